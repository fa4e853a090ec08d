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

/* Whether threads sleep, as OMP_WAIT_POLICY=passive says of OpenMP's: they see the device's end some 30 us later, and
 * leave their processor to others meanwhile. Else they ask again and again. */
inline bool waits_asleep()
{
    static const bool passive = []() {
        const char *policy = getenv("OMP_WAIT_POLICY");
        return policy != nullptr && strcasecmp(policy, "passive") == 0;
    }();
    return passive;
}

/* Flags of an event that the host waits for. */
inline unsigned host_event(unsigned flags = cudaEventDefault)
{
    return flags | (waits_asleep() ? (unsigned)cudaEventBlockingSync : 0u);
}

/* Between two questions whether an event has come: where there are few processors, others need them. */
inline void pause_asking()
{
    if (waits_asleep())
        std::this_thread::sleep_for(std::chrono::microseconds(20));
    else
        std::this_thread::yield();
}

} // namespace spx

#endif
