/* The CUDA backend: which devices, and which stages it has. */
#include <cufft.h>

#include <cstdlib>
#include <cstring>

#include "cuda.cuh"

/* Machine code is compiled in from this compute capability on. */
enum { LEAST_MAJOR = 8 };

static void close_cuda(spx_backend *b)
{
    spx_extract_close_cuda(spx::state_of(b));
    free(b->state);
    b->state = nullptr;
}

static size_t bytes_to_host(const spx_backend *)
{
    return spx::to_host;
}

extern "C" int spx_cuda_order(void *earlier, void *later)
{
    cudaEvent_t done;
    if (cudaEventCreateWithFlags(&done, cudaEventDisableTiming) != cudaSuccess)
        return 1;
    const bool ok = cudaEventRecord(done, static_cast<cudaStream_t>(earlier)) == cudaSuccess &&
                    cudaStreamWaitEvent(static_cast<cudaStream_t>(later), done, 0) == cudaSuccess;
    (void)cudaEventDestroy(done);
    return !ok;
}

/* "0,2" into the state; "" is the first device that is new enough. */
static spx_status choose(const char *list, int count, spx_cuda_state *s, spx_err *e)
{
    cudaDeviceProp p;
    if (list[0] == '\0') {
        for (int d = 0; d < count; d++)
            if (cudaGetDeviceProperties(&p, d) == cudaSuccess && p.major >= LEAST_MAJOR) {
                s->device[s->ndevice++] = d;
                return SPX_OK;
            }
        return spx_fail(e, SPX_EDEVICE, "none of the %d CUDA devices has compute capability %d.0 or newer", count,
                        LEAST_MAJOR);
    }
    for (const char *q = list;; q++) {
        char *end;
        const long d = strtol(q, &end, 10);
        if (end == q || d < 0 || (*end != ',' && *end != '\0'))
            return spx_fail(e, SPX_EUSAGE, "--device cuda:%s: should be numbers of devices, separated by commas", list);
        if (d >= count)
            return spx_fail(e, SPX_EDEVICE, "--device cuda:%s: there is no device %ld, but %d of them, from 0 on", list,
                            d, count);
        for (int i = 0; i < s->ndevice; i++)
            if (s->device[i] == (int)d)
                return spx_fail(e, SPX_EUSAGE, "--device cuda:%s: device %ld is there twice", list, d);
        if (s->ndevice == SPX_CUDA_MOST_DEVICES)
            return spx_fail(e, SPX_EUSAGE, "--device cuda:%s: more than %d devices", list, SPX_CUDA_MOST_DEVICES);
        if (cudaGetDeviceProperties(&p, (int)d) != cudaSuccess || p.major < LEAST_MAJOR)
            return spx_fail(e, SPX_EDEVICE, "--device cuda:%s: device %ld has a compute capability below %d.0", list, d,
                            LEAST_MAJOR);
        s->device[s->ndevice++] = (int)d;
        if (*(q = end) == '\0')
            return SPX_OK;
    }
}

extern "C" spx_status spx_backend_entry_point(spx_backend *b, const char *list, spx_err *e)
{
    int count = 0;
    const cudaError_t found = cudaGetDeviceCount(&count);
    if (found != cudaSuccess || count == 0)
        return spx_fail(e, SPX_EDEVICE, "--device cuda: no device is usable: %s",
                        found != cudaSuccess ? cudaGetErrorString(found) : "there is none");
    spx_cuda_state *s = static_cast<spx_cuda_state *>(calloc(1, sizeof *s));
    if (s == nullptr)
        return spx_fail(e, SPX_EIO, "out of memory");
    const spx_status st = choose(list, count, s, e);
    if (st != SPX_OK) {
        free(s);
        return st;
    }
    b->abi = SPX_BACKEND_ABI;
    b->state = s;
    b->close = close_cuda;
    b->to_host = bytes_to_host;
    size_t used = 0;
    for (int i = 0; i < s->ndevice && used < sizeof b->device; i++) {
        cudaDeviceProp p;
        const int n = cudaGetDeviceProperties(&p, s->device[i]) == cudaSuccess
                          ? snprintf(b->device + used, sizeof b->device - used, "%scuda:%d (%s)", i > 0 ? ", " : "",
                                     s->device[i], p.name)
                          : 0;
        used += n > 0 ? (size_t)n : 0;
    }
    b->extract = spx_extract_stage_cuda;
    b->rvfit = spx_rvfit_cuda;
    b->stack = spx_stack_cuda;
    b->reduce = spx_reduce_cuda;
    b->svd = spx_svd_cuda;
    b->burgers = spx_burgers_cuda;
    return SPX_OK;
}

/* 13020 as CUDA counts: 13.2. */
static void tell_version(spx_plugin_tell *tell, const char *key, int version)
{
    tell(key, "%d.%d", version / 1000, version % 1000 / 10);
}

/* A library's version by its parts. */
template <typename F> static void tell_library(spx_plugin_tell *tell, const char *key, F property)
{
    int part[3] = {0, 0, 0};
    const libraryPropertyType which[3] = {MAJOR_VERSION, MINOR_VERSION, PATCH_LEVEL};
    for (int i = 0; i < 3; i++)
        (void)property(which[i], &part[i]);
    tell(key, "%d.%d.%d", part[0], part[1], part[2]);
}

extern "C" void spx_backend_describe_point(spx_plugin_tell *tell)
{
    int driver = 0, runtime = 0, count = 0;
    if (cudaDriverGetVersion(&driver) == cudaSuccess)
        tell_version(tell, "cuda driver supports", driver);
    if (cudaRuntimeGetVersion(&runtime) == cudaSuccess)
        tell_version(tell, "cuda runtime", runtime);
    tell_library(tell, "cublas", cublasGetProperty);
    tell_library(tell, "cusolver", cusolverGetProperty);
    tell_library(tell, "cufft", cufftGetProperty);
    const cudaError_t found = cudaGetDeviceCount(&count);
    if (found != cudaSuccess)
        tell("cuda devices", "none: %s", cudaGetErrorString(found));
    for (int d = 0; d < count; d++) {
        cudaDeviceProp p;
        char key[32];
        size_t available = 0, total = 0;
        (void)snprintf(key, sizeof key, "device cuda:%d", d);
        cudaError_t status = cudaGetDeviceProperties(&p, d);
        if (status != cudaSuccess) {
            tell(key, "refused: %s", cudaGetErrorString(status));
            continue;
        }
        tell(key, "%s, compute capability %d.%d, %d multiprocessors", p.name, p.major, p.minor, p.multiProcessorCount);
        if (p.major < LEAST_MAJOR)
            tell(key, "refused: its compute capability is below %d.0", LEAST_MAJOR);
        else if ((status = cudaSetDevice(d)) != cudaSuccess ||
                 (status = cudaMemGetInfo(&available, &total)) != cudaSuccess)
            tell(key, "refused: %s", cudaGetErrorString(status));
        else
            tell(key, "usable, %.1f of %.1f GiB of memory are free", (double)available / (1 << 30),
                 (double)total / (1 << 30));
    }
    (void)cudaGetLastError();
}
