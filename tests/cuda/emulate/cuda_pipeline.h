/* Provides asynchronous copies to shared memory, which are done at once: see cuda_runtime.h. */
#ifndef SPX_EMULATED_CUDA_PIPELINE_H
#define SPX_EMULATED_CUDA_PIPELINE_H

#include <cstring>

inline void __pipeline_memcpy_async(void *to, const void *from, size_t bytes, size_t zeros = 0)
{
    if (bytes > zeros)
        memcpy(to, from, bytes - zeros);
    memset((char *)to + (bytes - zeros), 0, zeros);
}
inline void __pipeline_commit()
{
}
inline void __pipeline_wait_prior(int)
{
}

#endif
