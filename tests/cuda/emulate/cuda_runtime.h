/* Provides as much of CUDA as the kernels of specpipe use, on the processor: their sources, changed by emulate.sed,
 * compile as C++ and run without a GPU. It is for finding faults, and for checks where there is none: some hundred
 * times slower than the processor's own code.
 *
 * A launch runs its blocks one after another, before it returns. The threads of a block take turns: each runs until it
 * waits for others (a barrier of the block or of its warp, a shuffle). What does not end, because some threads wait for
 * what others never do, is an error with the kernel's name; memory that is allocated begins as NaN. Streams and events
 * have nothing to do. */
#ifndef SPX_EMULATED_CUDA_RUNTIME_H
#define SPX_EMULATED_CUDA_RUNTIME_H

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <tuple>
#include <utility>

#define __global__
#define __device__
#define __host__
#define __shared__ static thread_local
#define __launch_bounds__(...)
#define __restrict__
#define __forceinline__ inline
#define __grid_constant__

enum cudaError_t { cudaSuccess, cudaErrorInvalidValue, cudaErrorMemoryAllocation = 2, cudaErrorNotReady = 600 };
enum cudaMemcpyKind { cudaMemcpyHostToHost, cudaMemcpyHostToDevice, cudaMemcpyDeviceToHost, cudaMemcpyDeviceToDevice };
enum {
    cudaStreamNonBlocking = 1,
    cudaEventDefault = 0,
    cudaEventBlockingSync = 1,
    cudaEventDisableTiming = 2,
    cudaHostRegisterDefault = 0,
    cudaHostRegisterPortable = 1
};
enum cudaDeviceAttr { cudaDevAttrMultiProcessorCount = 16, cudaDevAttrMaxSharedMemoryPerBlockOptin = 97 };
enum cudaFuncAttribute { cudaFuncAttributeMaxDynamicSharedMemorySize = 8 };
typedef struct CUstream_st *cudaStream_t;
typedef struct CUevent_st *cudaEvent_t;

extern "C" {
cudaError_t cudaMalloc(void **p, size_t bytes);
cudaError_t cudaFree(void *p);
cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total);
cudaError_t cudaGetDeviceCount(int *count);
}

inline cudaError_t cudaMallocHost(void **p, size_t bytes)
{
    return cudaMalloc(p, bytes);
}
inline cudaError_t cudaFreeHost(void *p)
{
    return cudaFree(p);
}
inline cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, cudaMemcpyKind)
{
    memcpy(to, from, bytes);
    return cudaSuccess;
}
inline cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, cudaMemcpyKind, cudaStream_t)
{
    memcpy(to, from, bytes);
    return cudaSuccess;
}
inline cudaError_t cudaMemcpy2DAsync(void *to, size_t pitch, const void *from, size_t from_pitch, size_t width,
                                     size_t height, cudaMemcpyKind, cudaStream_t)
{
    for (size_t y = 0; y < height; y++)
        memcpy((char *)to + y * pitch, (const char *)from + y * from_pitch, width);
    return cudaSuccess;
}
inline cudaError_t cudaMemset(void *at, int value, size_t bytes)
{
    memset(at, value, bytes);
    return cudaSuccess;
}
inline cudaError_t cudaMemsetAsync(void *at, int value, size_t bytes, cudaStream_t)
{
    memset(at, value, bytes);
    return cudaSuccess;
}
inline cudaError_t cudaHostRegister(void *, size_t, unsigned)
{
    return cudaSuccess;
}
inline cudaError_t cudaHostUnregister(void *)
{
    return cudaSuccess;
}
inline const char *cudaGetErrorString(cudaError_t)
{
    return "error of the emulation";
}
inline cudaError_t cudaGetLastError()
{
    return cudaSuccess;
}
inline cudaError_t cudaSetDevice(int)
{
    return cudaSuccess;
}
inline cudaError_t cudaGetDevice(int *device)
{
    *device = 0;
    return cudaSuccess;
}
inline cudaError_t cudaDeviceSynchronize()
{
    return cudaSuccess;
}
inline cudaError_t cudaDeviceGetStreamPriorityRange(int *low, int *high)
{
    *low = 0;
    *high = -5;
    return cudaSuccess;
}
inline cudaError_t cudaDeviceGetAttribute(int *value, cudaDeviceAttr which, int)
{
    /* blocks that run at one time; compute capability 9.0 */
    *value = which == cudaDevAttrMultiProcessorCount ? 1 : 227 << 10;
    return cudaSuccess;
}
struct cudaFuncAttributes {
    size_t sharedSizeBytes;
    int maxDynamicSharedSizeBytes;
};
inline cudaError_t cudaFuncGetAttributes(cudaFuncAttributes *has, const void *)
{
    *has = {0, 227 << 10};
    return cudaSuccess;
}
template <typename F> cudaError_t cudaFuncSetAttribute(F, cudaFuncAttribute, int)
{
    return cudaSuccess;
}
inline cudaError_t cudaStreamCreateWithFlags(cudaStream_t *s, unsigned)
{
    *s = nullptr;
    return cudaSuccess;
}
inline cudaError_t cudaStreamCreateWithPriority(cudaStream_t *s, unsigned, int)
{
    *s = nullptr;
    return cudaSuccess;
}
inline cudaError_t cudaStreamDestroy(cudaStream_t)
{
    return cudaSuccess;
}
inline cudaError_t cudaStreamQuery(cudaStream_t)
{
    return cudaSuccess;
}
inline cudaError_t cudaStreamSynchronize(cudaStream_t)
{
    return cudaSuccess;
}
inline cudaError_t cudaStreamWaitEvent(cudaStream_t, cudaEvent_t, unsigned)
{
    return cudaSuccess;
}
inline cudaError_t cudaEventCreate(cudaEvent_t *v)
{
    *v = nullptr;
    return cudaSuccess;
}
inline cudaError_t cudaEventCreateWithFlags(cudaEvent_t *v, unsigned)
{
    *v = nullptr;
    return cudaSuccess;
}
inline cudaError_t cudaEventDestroy(cudaEvent_t)
{
    return cudaSuccess;
}
inline cudaError_t cudaEventRecord(cudaEvent_t, cudaStream_t)
{
    return cudaSuccess;
}
inline cudaError_t cudaEventQuery(cudaEvent_t)
{
    return cudaSuccess;
}
inline cudaError_t cudaEventSynchronize(cudaEvent_t)
{
    return cudaSuccess;
}
inline cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t, cudaEvent_t)
{
    *ms = 0.0f;
    return cudaSuccess;
}

/* ---- types ---- */

enum libraryPropertyType { MAJOR_VERSION, MINOR_VERSION, PATCH_LEVEL };

struct dim3 {
    unsigned x, y, z;
    dim3(unsigned nx = 1, unsigned ny = 1, unsigned nz = 1) : x(nx), y(ny), z(nz)
    {
    }
};
struct float2 {
    float x, y;
};
inline float2 make_float2(float x, float y)
{
    return {x, y};
}
struct int2 {
    int x, y;
};
struct alignas(16) double2 {
    double x, y;
};
struct alignas(16) float4 {
    float x, y, z, w;
};
struct alignas(16) uint4 {
    unsigned x, y, z, w;
};
inline double2 make_double2(double x, double y)
{
    return {x, y};
}

/* ---- threads ---- */

namespace spx_emulated
{

constexpr int WARP = 32;

/* The thread that runs, and its block. */
struct place {
    dim3 thread, block, block_dim, grid_dim;
    int lane;
    char *dynamic; /* shared memory that the launch asked for */
};
extern thread_local place here;

void wait_block();
/* Bits of a value to the others of a warp, in `all`, when all have come that are still there; returns the lanes that
 * are. */
unsigned exchange(uint64_t mine, const uint64_t **all);
void launch(const char *name, dim3 grid, dim3 block, size_t shared, const std::function<void()> &kernel);

inline char *dynamic_shared()
{
    return here.dynamic;
}

struct config {
    dim3 grid, block;
    size_t shared;
    config(dim3 g, dim3 b, size_t s = 0, cudaStream_t = nullptr) : grid(g), block(b), shared(s)
    {
    }
};
template <typename... A> std::tuple<A...> args(A... a)
{
    return std::tuple<A...>(a...);
}
template <typename F> struct launcher {
    F kernel;
    config how;
};
template <typename... P> launcher<void (*)(P...)> operator/(void (*kernel)(P...), config how)
{
    return {kernel, how};
}
template <typename F, typename... A> void operator%(launcher<F> l, std::tuple<A...> a)
{
    launch(__PRETTY_FUNCTION__, l.how.grid, l.how.block, l.how.shared, [&]() { std::apply(l.kernel, a); });
}

} // namespace spx_emulated

/* Blocks that wait for each other are one. */
template <typename... P, size_t... I>
cudaError_t launch_together(void (*kernel)(P...), dim3 grid, dim3 block, void **args, size_t shared,
                            std::index_sequence<I...>)
{
    ::spx_emulated::launch(__PRETTY_FUNCTION__, grid, block, shared,
                           [&]() { kernel(*static_cast<std::remove_const_t<P> *>(args[I])...); });
    return cudaSuccess;
}
template <typename... P>
cudaError_t cudaLaunchCooperativeKernel(void (*kernel)(P...), dim3 grid, dim3 block, void **args, size_t shared,
                                        cudaStream_t)
{
    return launch_together(kernel, grid, block, args, shared, std::index_sequence_for<P...>{});
}

namespace spx_emulated
{

template <typename T> uint64_t bits_of(T v)
{
    uint64_t bits = 0;
    static_assert(sizeof v <= sizeof bits, "values of a shuffle");
    memcpy(&bits, &v, sizeof v);
    return bits;
}
template <typename T> T of_bits(uint64_t bits)
{
    T v;
    memcpy(&v, &bits, sizeof v);
    return v;
}
template <typename T> T from_lane(T v, int lane)
{
    const uint64_t *all;
    exchange(bits_of(v), &all);
    return of_bits<T>(all[lane & (WARP - 1)]);
}
template <typename T, typename F> T over_lanes(T v, F f)
{
    const uint64_t *all;
    const unsigned there = exchange(bits_of(v), &all);
    T sum = v;
    bool any = false;
    for (int i = 0; i < WARP; i++)
        if (there >> i & 1) {
            const T other = of_bits<T>(all[i]);
            sum = any ? f(sum, other) : other;
            any = true;
        }
    return sum;
}

/* D += A B, 8 x 4 by 4 x 8, with the lanes' parts of mma.m8n8k4. */
inline void multiply_add_8x8x4(double (&d)[2], double a, double b)
{
    const uint64_t *p;
    double as[WARP], bs[WARP];
    exchange(bits_of(a), &p);
    for (int i = 0; i < WARP; i++)
        as[i] = of_bits<double>(p[i]);
    exchange(bits_of(b), &p);
    for (int i = 0; i < WARP; i++)
        bs[i] = of_bits<double>(p[i]);
    const int row = here.lane / 4, column = 2 * (here.lane % 4);
    for (int j = 0; j < 2; j++)
        for (int i = 0; i < 4; i++)
            d[j] = std::fma(as[4 * row + i], bs[4 * (column + j) + i], d[j]);
}

} // namespace spx_emulated

#define threadIdx (::spx_emulated::here.thread)
#define blockIdx  (::spx_emulated::here.block)
#define blockDim  (::spx_emulated::here.block_dim)
#define gridDim   (::spx_emulated::here.grid_dim)

inline void __syncthreads()
{
    ::spx_emulated::wait_block();
}
int __syncthreads_count(int v);
inline int __syncthreads_or(int v)
{
    return __syncthreads_count(v) != 0;
}
inline void __syncwarp()
{
    const uint64_t *all;
    ::spx_emulated::exchange(0, &all);
}
template <typename T> T __shfl_sync(unsigned, T v, int lane)
{
    return ::spx_emulated::from_lane(v, lane);
}
template <typename T> T __shfl_xor_sync(unsigned, T v, int mask)
{
    return ::spx_emulated::from_lane(v, ::spx_emulated::here.lane ^ mask);
}
inline unsigned __ballot_sync(unsigned, int v)
{
    const uint64_t *all;
    const unsigned there = ::spx_emulated::exchange((uint64_t)(v != 0), &all);
    unsigned bits = 0;
    for (int i = 0; i < ::spx_emulated::WARP; i++)
        bits |= (there >> i & 1) && all[i] ? 1u << i : 0u;
    return bits;
}
inline int __any_sync(unsigned mask, int v)
{
    return __ballot_sync(mask, v) != 0;
}
template <typename T> T __reduce_min_sync(unsigned, T v)
{
    return ::spx_emulated::over_lanes(v, [](T a, T b) { return b < a ? b : a; });
}
template <typename T> T __reduce_max_sync(unsigned, T v)
{
    return ::spx_emulated::over_lanes(v, [](T a, T b) { return b > a ? b : a; });
}
template <typename T> T __reduce_add_sync(unsigned, T v)
{
    return ::spx_emulated::over_lanes(v, [](T a, T b) { return a + b; });
}

/* ---- arithmetic and memory ---- */

inline double rsqrt(double v)
{
    return 1 / std::sqrt(v);
}

template <typename T> T atomicAdd(T *at, T v)
{
    return __atomic_fetch_add(at, v, __ATOMIC_SEQ_CST);
}
template <typename T> T atomicOr(T *at, unsigned long long v)
{
    return __atomic_fetch_or(at, (T)v, __ATOMIC_SEQ_CST);
}
template <typename T> T atomicAnd(T *at, int v)
{
    return __atomic_fetch_and(at, (T)v, __ATOMIC_SEQ_CST);
}
template <typename T> T atomicMax(T *at, T v) /* of different pieces' threads: never the same one */
{
    const T was = *at;
    *at = v > was ? v : was;
    return was;
}
template <typename T> T atomicMin(T *at, T v)
{
    const T was = *at;
    *at = v < was ? v : was;
    return was;
}
inline void __threadfence_system()
{
}
inline void __threadfence()
{
}
inline void __threadfence_block()
{
}
template <typename T> void __stcs(T *to, T v)
{
    *to = v;
}
inline int __double2int_rn(double v)
{
    return (int)std::nearbyint(v);
}
inline long long __double_as_longlong(double v)
{
    return (long long)::spx_emulated::bits_of(v);
}
inline double __longlong_as_double(long long v)
{
    return ::spx_emulated::of_bits<double>((uint64_t)v);
}
inline int __popc(unsigned v)
{
    return __builtin_popcount(v);
}
inline int __ffs(int v)
{
    return __builtin_ffs(v);
}
inline int __clz(int v)
{
    return v == 0 ? 32 : __builtin_clz((unsigned)v);
}
#define SPX_EMULATED_MIN_MAX(T)                                                                                        \
    inline T min(T a, T b)                                                                                             \
    {                                                                                                                  \
        return b < a ? b : a;                                                                                          \
    }                                                                                                                  \
    inline T max(T a, T b)                                                                                             \
    {                                                                                                                  \
        return b > a ? b : a;                                                                                          \
    }
SPX_EMULATED_MIN_MAX(int)
SPX_EMULATED_MIN_MAX(unsigned)
SPX_EMULATED_MIN_MAX(long)
SPX_EMULATED_MIN_MAX(unsigned long)
SPX_EMULATED_MIN_MAX(double)

#endif
