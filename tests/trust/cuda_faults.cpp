/* Preloaded into a program (LD_PRELOAD), stands for CUDA's runtime under a backend that was linked without one
 * (tests/trust/cuda.bash), and makes its calls fail:
 *
 *     SPX_INJECT=CLASS:N[:on][@D]  the N-th call of the class fails, with `on` all later ones of all classes, too: the
 *                                  device has gone. Classes are below; `any` counts all. D: calls on this device only
 *     SPX_INJECT=full:N            other programs have all memory of the device: the first N calls that make a context,
 *                                  take memory or ask how much is free find none. filled:N: from the first cudaMalloc
 * on SPX_INJECT_COUNT=FILE        number of calls of each class, a line each, at the end SPX_CUDA_RUNTIME=FILE CUDA's
 * runtime (libcudart.so), to which the calls go that do not fail
 *
 * Without SPX_CUDA_RUNTIME two devices are emulated whose memory is the host's and whose kernels do nothing: enough to
 * see how programs end when calls fail, where there is no GPU. */
#include <cuda_runtime_api.h>

#include <dlfcn.h>
#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <initializer_list>

namespace
{

enum kind { ASK, MEMORY, HOST, COPY, LAUNCH, WAIT, STREAM, GRAPH, NKIND };
const struct {
    const char *name;
    cudaError_t error;
} kinds[NKIND] = {{"ask", cudaErrorDevicesUnavailable},      {"memory", cudaErrorMemoryAllocation},
                  {"host", cudaErrorMemoryAllocation},       {"copy", cudaErrorECCUncorrectable},
                  {"launch", cudaErrorLaunchOutOfResources}, {"wait", cudaErrorIllegalAddress},
                  {"stream", cudaErrorMemoryAllocation},     {"graph", cudaErrorStreamCaptureInvalidated}};

std::atomic<long> counted[NKIND + 1];
std::atomic<bool> gone;
thread_local cudaError_t last = cudaSuccess;
thread_local int current; /* device */

/* SPX_INJECT, and CUDA's runtime. */
struct wish {
    int kind = -1; /* NKIND: any */
    long at = 0, device = -1, full = 0;
    bool on = false, later = false;
    void *runtime = nullptr;
    const char *count_file = getenv("SPX_INJECT_COUNT");

    wish()
    {
        const char *what = getenv("SPX_INJECT"), *path = getenv("SPX_CUDA_RUNTIME");
        for (int k = 0; k <= NKIND && what != nullptr; k++) {
            const char *name = k < NKIND ? kinds[k].name : "any";
            const size_t n = strlen(name);
            if (strncmp(what, name, n) == 0 && what[n] == ':') {
                kind = k;
                at = atol(what + n + 1);
                on = strstr(what, ":on") != nullptr;
                device = strchr(what, '@') != nullptr ? atol(strchr(what, '@') + 1) : -1;
            }
        }
        for (const char *name : {"full:", "filled:"})
            if (what != nullptr && strncmp(what, name, strlen(name)) == 0) {
                full = atol(what + strlen(name));
                later = name[4] == 'e';
            }
        if (path != nullptr && (runtime = dlopen(path, RTLD_NOW | RTLD_LOCAL)) == nullptr) {
            (void)fprintf(stderr, "cuda_faults: %s\n", dlerror());
            _exit(125);
        }
    }
    ~wish()
    {
        char text[512];
        int n = 0;
        if (count_file == nullptr)
            return;
        for (int k = 0; k <= NKIND; k++)
            n += snprintf(text + n, sizeof text - (size_t)n, "%s %ld\n", k < NKIND ? kinds[k].name : "any",
                          counted[k].load());
        const int fd = open(count_file, O_WRONLY | O_CREAT | O_TRUNC, 0644);
        if (fd < 0 || write(fd, text, (size_t)n) != n || close(fd) != 0)
            _exit(125);
    }
};
wish &wanted()
{
    static wish w;
    return w;
}

cudaError_t failed(kind k)
{
    const wish &w = wanted();
    if (w.device >= 0 && w.device != current)
        return cudaSuccess;
    const long n = counted[k].fetch_add(1) + 1, all = counted[NKIND].fetch_add(1) + 1;
    if ((w.kind == k && n == w.at) || (w.kind == NKIND && all == w.at)) {
        gone = w.on;
        return last = kinds[k].error;
    }
    return gone ? last = cudaErrorDevicesUnavailable : cudaSuccess;
}

/* Whether a call finds the device full; malloc: it is the first that may do so with `filled`. */
std::atomic<long> asked;
std::atomic<bool> begun;
bool full(bool malloc)
{
    const wish &w = wanted();
    if (malloc)
        begun = true;
    return w.full > 0 && (begun || !w.later) && asked.fetch_add(1) < w.full;
}

template <typename F> F *real(const char *name)
{
    void *f = dlsym(wanted().runtime, name);
    if (f == nullptr) {
        (void)fprintf(stderr, "cuda_faults: %s\n", dlerror());
        _exit(125);
    }
    return reinterpret_cast<F *>(f);
}

template <typename T> cudaError_t made(T **p, size_t n = 1)
{
    *p = static_cast<T *>(calloc(n > 0 ? n : 1, 1));
    return *p != nullptr ? cudaSuccess : last = cudaErrorMemoryAllocation;
}

} // namespace

/* Passes a call on to CUDA's runtime, where there is one. */
#define FORWARD(type, name, parameters, arguments)                                                                     \
    if (wanted().runtime != nullptr) {                                                                                 \
        static const auto f = real<type parameters>(#name);                                                            \
        return f arguments;                                                                                            \
    }

/* CALL(class, function, parameters, arguments, emulation): the function, with its emulation for a device that is not.
 */
#define CALL(k, name, parameters, arguments, ...)                                                                      \
    extern "C" cudaError_t CUDARTAPI name parameters                                                                   \
    {                                                                                                                  \
        const cudaError_t error = failed(k);                                                                           \
        if (error != cudaSuccess)                                                                                      \
            return error;                                                                                              \
        FORWARD(cudaError_t, name, parameters, arguments)                                                              \
        __VA_ARGS__;                                                                                                   \
        return cudaSuccess;                                                                                            \
    }
/* FREE: a function that gives back, which a program calls when others have failed; it does not fail. */
#define FREE(name, parameters, arguments, ...)                                                                         \
    extern "C" cudaError_t CUDARTAPI name parameters                                                                   \
    {                                                                                                                  \
        FORWARD(cudaError_t, name, parameters, arguments)                                                              \
        __VA_ARGS__;                                                                                                   \
        return cudaSuccess;                                                                                            \
    }

// clang-format off
CALL(ASK, cudaDriverGetVersion, (int *v), (v), *v = CUDART_VERSION)
CALL(ASK, cudaRuntimeGetVersion, (int *v), (v), *v = CUDART_VERSION)
CALL(ASK, cudaGetDeviceCount, (int *n), (n), *n = 2)
CALL(ASK, cudaGetDevice, (int *d), (d), *d = current)
CALL(ASK, cudaGetDeviceProperties, (cudaDeviceProp *p, int d), (p, d),
     (void)d; memset(p, 0, sizeof *p); strcpy(p->name, "emulated"); p->major = 9; p->multiProcessorCount = 8)
CALL(ASK, cudaDeviceGetAttribute, (int *v, cudaDeviceAttr a, int d), (v, a, d),
     (void)d; *v = a == cudaDevAttrComputeCapabilityMajor ? 9 : a == cudaDevAttrMultiProcessorCount ? 8 : 227 << 10)
#if CUDART_VERSION >= 12000
CALL(ASK, cudaInitDevice, (int d, unsigned flags, unsigned which), (d, flags, which), (void)d; (void)flags; (void)which)
#endif
CALL(ASK, cudaDeviceGetStreamPriorityRange, (int *least, int *greatest), (least, greatest), *least = *greatest = 0)
CALL(ASK, cudaFuncGetAttributes, (cudaFuncAttributes *has, const void *kernel), (has, kernel), (void)kernel; *has = {})
CALL(ASK, cudaFuncSetAttribute, (const void *kernel, cudaFuncAttribute a, int v), (kernel, a, v), (void)kernel; (void)a; (void)v)
CALL(HOST, cudaMallocHost, (void **p, size_t n), (p, n), return made(p, n))
CALL(HOST, cudaHostRegister, (void *p, size_t n, unsigned flags), (p, n, flags), (void)p; (void)n; (void)flags)
CALL(COPY, cudaMemcpy, (void *to, const void *from, size_t n, cudaMemcpyKind k), (to, from, n, k),
     (void)k; memcpy(to, from, n))
CALL(COPY, cudaMemcpyAsync, (void *to, const void *from, size_t n, cudaMemcpyKind k, cudaStream_t s),
     (to, from, n, k, s), (void)k; (void)s; memcpy(to, from, n))
CALL(COPY, cudaMemcpy2D, (void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t n, size_t lines,
     cudaMemcpyKind k), (to, to_pitch, from, from_pitch, n, lines, k),
     (void)k; for (size_t i = 0; i < lines; i++) memcpy((char *)to + i * to_pitch, (const char *)from + i * from_pitch, n))
CALL(COPY, cudaMemcpy2DAsync, (void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t n, size_t lines,
     cudaMemcpyKind k, cudaStream_t s), (to, to_pitch, from, from_pitch, n, lines, k, s),
     (void)k; (void)s;
     for (size_t i = 0; i < lines; i++) memcpy((char *)to + i * to_pitch, (const char *)from + i * from_pitch, n))
CALL(COPY, cudaMemset, (void *p, int v, size_t n), (p, v, n), memset(p, v, n))
CALL(COPY, cudaMemsetAsync, (void *p, int v, size_t n, cudaStream_t s), (p, v, n, s), (void)s; memset(p, v, n))
CALL(LAUNCH, cudaLaunchKernel, (const void *kernel, dim3 grid, dim3 block, void **a, size_t shared, cudaStream_t s),
     (kernel, grid, block, a, shared, s), (void)kernel; (void)grid; (void)block; (void)a; (void)shared; (void)s)
CALL(LAUNCH, __cudaLaunchKernel, (cudaKernel_t kernel, dim3 grid, dim3 block, void **a, size_t shared, cudaStream_t s),
     (kernel, grid, block, a, shared, s), (void)kernel; (void)grid; (void)block; (void)a; (void)shared; (void)s)
CALL(LAUNCH, cudaLaunchCooperativeKernel,
     (const void *kernel, dim3 grid, dim3 block, void **a, size_t shared, cudaStream_t s),
     (kernel, grid, block, a, shared, s), (void)kernel; (void)grid; (void)block; (void)a; (void)shared; (void)s)
CALL(LAUNCH, cudaLaunchKernelExC, (const cudaLaunchConfig_t *c, const void *kernel, void **a), (c, kernel, a),
     (void)c; (void)kernel; (void)a)
CALL(WAIT, cudaDeviceSynchronize, (void), (), )
CALL(WAIT, cudaStreamSynchronize, (cudaStream_t s), (s), (void)s)
CALL(WAIT, cudaEventSynchronize, (cudaEvent_t v), (v), (void)v)
CALL(WAIT, cudaEventQuery, (cudaEvent_t v), (v), (void)v)
CALL(WAIT, cudaStreamQuery, (cudaStream_t s), (s), (void)s)
CALL(STREAM, cudaStreamCreateWithFlags, (cudaStream_t *s, unsigned flags), (s, flags),
     (void)flags; return made(reinterpret_cast<char **>(s)))
CALL(STREAM, cudaStreamCreateWithPriority, (cudaStream_t *s, unsigned flags, int priority), (s, flags, priority),
     (void)flags; (void)priority; return made(reinterpret_cast<char **>(s)))
CALL(STREAM, cudaStreamWaitEvent, (cudaStream_t s, cudaEvent_t v, unsigned flags), (s, v, flags),
     (void)s; (void)v; (void)flags)
CALL(STREAM, cudaEventCreate, (cudaEvent_t *v), (v), return made(reinterpret_cast<char **>(v)))
CALL(STREAM, cudaEventCreateWithFlags, (cudaEvent_t *v, unsigned flags), (v, flags),
     (void)flags; return made(reinterpret_cast<char **>(v)))
CALL(STREAM, cudaEventRecord, (cudaEvent_t v, cudaStream_t s), (v, s), (void)v; (void)s)
CALL(STREAM, cudaEventElapsedTime, (float *ms, cudaEvent_t a, cudaEvent_t b), (ms, a, b), (void)a; (void)b; *ms = 1)
CALL(GRAPH, cudaStreamBeginCapture, (cudaStream_t s, cudaStreamCaptureMode m), (s, m), (void)s; (void)m)
CALL(GRAPH, cudaStreamEndCapture, (cudaStream_t s, cudaGraph_t *g), (s, g),
     (void)s; return made(reinterpret_cast<char **>(g)))
CALL(GRAPH, cudaGraphInstantiate, (cudaGraphExec_t *x, cudaGraph_t g, unsigned long long flags), (x, g, flags),
     (void)g; (void)flags; return made(reinterpret_cast<char **>(x)))
CALL(GRAPH, cudaGraphLaunch, (cudaGraphExec_t x, cudaStream_t s), (x, s), (void)x; (void)s)

FREE(cudaFree, (void *p), (p), free(p))
FREE(cudaFreeHost, (void *p), (p), free(p))
FREE(cudaHostUnregister, (void *p), (p), (void)p)
FREE(cudaStreamDestroy, (cudaStream_t s), (s), free(s))
FREE(cudaEventDestroy, (cudaEvent_t v), (v), free(v))
FREE(cudaGraphDestroy, (cudaGraph_t g), (g), free(g))
FREE(cudaGraphExecDestroy, (cudaGraphExec_t x), (x), free(x))
// clang-format on

extern "C" cudaError_t CUDARTAPI cudaMemGetInfo(size_t *available, size_t *total)
{
    const cudaError_t error = failed(ASK);
    if (error != cudaSuccess)
        return error;
    cudaError_t asked = cudaSuccess;
    *available = *total = (size_t)4 << 30;
    if (wanted().runtime != nullptr)
        asked = real<cudaError_t(size_t *, size_t *)>("cudaMemGetInfo")(available, total);
    if (full(false))
        *available = 0;
    return asked;
}

extern "C" cudaError_t CUDARTAPI cudaMalloc(void **p, size_t n)
{
    const cudaError_t error = full(true) ? last = cudaErrorMemoryAllocation : failed(MEMORY);
    if (error != cudaSuccess)
        return error;
    FORWARD(cudaError_t, cudaMalloc, (void **p, size_t n), (p, n))
    return made(p, n);
}

/* A call of the device that becomes the current one. */
extern "C" cudaError_t CUDARTAPI cudaSetDevice(int d)
{
    current = d;
    const cudaError_t error = full(false) ? last = cudaErrorMemoryAllocation : failed(ASK);
    if (error != cudaSuccess || wanted().runtime == nullptr)
        return error;
    static const auto f = real<cudaError_t(int)>("cudaSetDevice");
    return f(d);
}

/* The error of a launch that failed, once. */
extern "C" cudaError_t CUDARTAPI cudaGetLastError(void)
{
    const cudaError_t error = last;
    last = cudaSuccess;
    if (wanted().runtime == nullptr)
        return error;
    static const auto f = real<cudaError_t(void)>("cudaGetLastError");
    const cudaError_t device = f();
    return error != cudaSuccess ? error : device;
}

extern "C" const char *CUDARTAPI cudaGetErrorString(cudaError_t error)
{
    if (wanted().runtime == nullptr)
        return "a call failed, as asked for";
    static const auto f = real<const char *(cudaError_t)>("cudaGetErrorString");
    return f(error);
}

/* ---- what nvcc's code calls: modules at the start, and launches ---- */

namespace
{
struct shape {
    dim3 grid, block;
    size_t shared;
    void *stream;
};
thread_local shape pushed;
} // namespace

#define PASS(type, name, parameters, arguments, ...)                                                                   \
    extern "C" type CUDARTAPI name parameters;                                                                         \
    extern "C" type CUDARTAPI name parameters                                                                          \
    {                                                                                                                  \
        FORWARD(type, name, parameters, arguments)                                                                     \
        __VA_ARGS__;                                                                                                   \
    }

// clang-format off
PASS(void **, __cudaRegisterFatBinary, (void *binary), (binary), (void)binary; static void *handle; return &handle)
PASS(void, __cudaRegisterFatBinaryEnd, (void **handle), (handle), (void)handle)
PASS(void, __cudaUnregisterFatBinary, (void **handle), (handle), (void)handle)
PASS(void, __cudaRegisterFunction, (void **handle, const char *host, char *device, const char *name, int limit, void *tid,
     void *bid, void *block, void *grid, int *warp), (handle, host, device, name, limit, tid, bid, block, grid, warp),
     (void)handle; (void)host; (void)device; (void)name; (void)limit; (void)tid; (void)bid; (void)block; (void)grid;
     (void)warp)
PASS(void, __cudaRegisterVar, (void **handle, char *host, char *device, const char *name, int external, size_t size,
     int constant, int global), (handle, host, device, name, external, size, constant, global),
     (void)handle; (void)host; (void)device; (void)name; (void)external; (void)size; (void)constant; (void)global)
PASS(unsigned, __cudaPushCallConfiguration, (dim3 grid, dim3 block, size_t shared, void *stream),
     (grid, block, shared, stream), pushed = {grid, block, shared, stream}; return 0)
PASS(cudaError_t, __cudaPopCallConfiguration, (dim3 *grid, dim3 *block, size_t *shared, void *stream),
     (grid, block, shared, stream), *grid = pushed.grid; *block = pushed.block; *shared = pushed.shared;
     *static_cast<void **>(stream) = pushed.stream; return cudaSuccess)
PASS(cudaError_t, __cudaGetKernel, (cudaKernel_t *kernel, const void *host), (kernel, host),
     *kernel = reinterpret_cast<cudaKernel_t>(const_cast<void *>(host)); return cudaSuccess)
// clang-format on
