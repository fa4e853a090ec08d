/* Provides barriers of all blocks of a launch, of which there is one: see cuda_runtime.h. */
#ifndef SPX_EMULATED_COOPERATIVE_GROUPS_H
#define SPX_EMULATED_COOPERATIVE_GROUPS_H

#include "cuda_runtime.h"

namespace cooperative_groups
{

struct grid_group {
    void sync() const
    {
        __syncthreads();
    }
};
inline grid_group this_grid()
{
    return {};
}

} // namespace cooperative_groups

#endif
