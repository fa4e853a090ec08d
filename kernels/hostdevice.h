/* Provides SPX_HD, which marks arithmetic compiled for both host and device. */
#ifndef SPX_HOSTDEVICE_H
#define SPX_HOSTDEVICE_H

#ifdef __CUDACC__
#define SPX_HD static inline __host__ __device__
#else
#define SPX_HD static inline
#endif

#endif
