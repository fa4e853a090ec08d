/* Provides how host threads wait for a device. */
#ifndef SPX_CUDA_WAIT_CUH
#define SPX_CUDA_WAIT_CUH

#include <cuda_runtime.h>
#include <strings.h>

#include <chrono>
#include <cstdlib>
#include <thread>

namespace spx
{

/* Whether threads sleep: they see the device's end some 30 us later, and leave their processor to others meanwhile.
 * Else they ask again and again. As OMP_WAIT_POLICY says of OpenMP's threads, or, without it, as is best for a stage.
 */
inline bool waits_asleep(bool otherwise = false)
{
    static const char *const policy = getenv("OMP_WAIT_POLICY");
    if (policy == nullptr)
        return otherwise;
    return strcasecmp(policy, "passive") == 0 || (otherwise && strcasecmp(policy, "active") != 0);
}

/* Flags of an event that the host waits for. */
inline unsigned host_event(unsigned flags = cudaEventDefault, bool asleep = waits_asleep())
{
    return flags | (asleep ? (unsigned)cudaEventBlockingSync : 0u);
}

/* Between two questions whether an event has come: where there are few processors, others need them. */
inline void pause_asking(bool asleep = waits_asleep())
{
    if (asleep)
        std::this_thread::sleep_for(std::chrono::microseconds(20));
    else
        std::this_thread::yield();
}

} // namespace spx

#endif
