/* Provides the CUDA backend: selects devices, makes their contexts, and fills the table of operations. */
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <new>
#include <thread>

#include "cuda/backend.cuh"
#include "cuda/wait.cuh"

#define restrict __restrict__
extern "C" {
#include "psffit/cuda/psffit_cuda.h"
}
#undef restrict

/* Lowest major compute capability that machine code is compiled for. */
enum { LEAST_MAJOR = 8 };

/* State of the backend, and the thread that makes the devices' contexts, for which the first operation waits. number:
 * of the devices, as the user counts them (spx_backend_restrict()). */
struct opened : spx_cuda_state {
    int number[SPX_CUDA_MOST_DEVICES];
    std::thread *contexts;
    std::once_flag *ready;
};

/* Makes the context of a device, which takes half a gigabyte of it. FIRST_LAUNCHES more bytes have to be free after it,
 * for the code of kernels and the stacks of their threads, which are taken when kernels are first launched; devices too
 * small for that to matter, as emulated ones are, need not have them. Where other programs have all memory, waits for
 * them, PATIENCE seconds at most, and says so. Any other failure is reported when the device is used. */
static void make_context(int device, int number)
{
    constexpr size_t FIRST_LAUNCHES = (size_t)64 << 20;
    const double begin = spx_seconds();
    for (int tries = 0;; tries++) {
        size_t available = 0, total = 0;
#if CUDART_VERSION >= 12000
        cudaError_t code = spx::waits_asleep()
                               ? cudaInitDevice(device, cudaDeviceScheduleBlockingSync, cudaInitDeviceFlagsAreValid)
                               : cudaSuccess;
        if (code == cudaSuccess)
            code = cudaSetDevice(device);
#else
        cudaError_t code = cudaSetDevice(device);
        if (code == cudaSuccess && spx::waits_asleep())
            code = cudaSetDeviceFlags(cudaDeviceScheduleBlockingSync);
#endif
        if (code == cudaSuccess)
            code = cudaFree(nullptr);
        if (code == cudaSuccess)
            code = cudaMemGetInfo(&available, &total);
        (void)cudaGetLastError();
        const bool lacks = code == cudaErrorMemoryAllocation ||
                           (code == cudaSuccess && available < FIRST_LAUNCHES && FIRST_LAUNCHES < total / 8);
        if (!lacks || spx_seconds() - begin > spx::PATIENCE)
            return;
        if (tries == 1)
            spx_note("waits for memory of device cuda:%d, up to %.0f s: other programs have all of it", number,
                     spx::PATIENCE);
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
}

/* The driver makes one context of a machine after another, and who waits for that spins in the kernel: eight programs
 * that begin together took 0.8 s each of a processor. So they take turns by a lock of the machine, on a folder that
 * each has, and sleep; as long as one context takes at most, for a driver that hangs holds nobody else. */
class turn
{
  public:
    turn()
    {
        constexpr double LONGEST = 3.0;
        const double begin = spx_seconds();
        at_ = open("/dev/shm", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        while (at_ >= 0 && flock(at_, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK &&
               spx_seconds() - begin < LONGEST)
            std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    turn(const turn &) = delete;
    turn &operator=(const turn &) = delete;
    ~turn()
    {
        if (at_ >= 0)
            (void)close(at_);
    }

  private:
    int at_;
};

static void make_contexts(const opened *s)
{
    for (int i = 0; i < s->ndevice; i++) {
        const turn mine;
        make_context(s->device[i], s->number[i]);
    }
}

/* In a thread, while the program reads its input: each takes a tenth of a second. */
static void start_contexts(opened *s)
{
    try {
        s->contexts = new std::thread([s]() { make_contexts(s); });
    } catch (const std::exception &) {
        s->contexts = nullptr;
    }
}

/* Returns when the contexts are there, or could not be made. */
static void wait_for_contexts(spx_backend *b)
{
    opened *s = static_cast<opened *>(spx::state_of(b));
    std::call_once(*s->ready, [s]() {
        if (s->contexts != nullptr)
            s->contexts->join();
        else
            make_contexts(s);
    });
}

/* waiting<f>::call is f, an operation, with contexts there. */
template <auto f> struct waiting;
template <typename T, typename... A, T (*f)(spx_backend *, A...)> struct waiting<f> {
    static T call(spx_backend *b, A... arguments)
    {
        wait_for_contexts(b);
        return f(b, arguments...);
    }
};

static void close_cuda(spx_backend *b)
{
    opened *s = static_cast<opened *>(spx::state_of(b));
    if (s->contexts != nullptr)
        wait_for_contexts(b);
    delete s->contexts;
    delete s->ready;
    spx_extract_close_cuda(s);
    spx_psffit_close_cuda();
    if (s->pagelock)
        spx_mem_end_pagelock();
    free(b->state);
    b->state = nullptr;
}

/* Loads backend-cuda-svd.so on demand, and keeps it: cuBLAS and cuSOLVER take longer to load than the other operations
 * to run. */
static void *svd_symbol(const char *symbol, spx_err *e)
{
    char path[PATH_MAX + 64];
    if (spx_plugin_path("backend-cuda-svd.so", path, sizeof path, e) != SPX_OK)
        return nullptr;
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE), *found = nullptr;
    if (library != nullptr)
        found = dlsym(library, symbol);
    if (found == nullptr)
        spx_fail_remedy(e, SPX_EDEVICE, "use {device} cpu", "CUDA, svd: %s", dlerror());
    if (library != nullptr)
        (void)dlclose(library);
    return found;
}

extern "C" spx_status spx_svd_cuda(spx_backend *b, double *a, size_t nrow, size_t ncol, const spx_svd_options *o,
                                   spx_svd *out, spx_err *e)
{
    const auto stage = reinterpret_cast<decltype(&spx_svd_cusolver)>(svd_symbol("spx_svd_cusolver", e));
    return stage != nullptr ? stage(b, a, nrow, ncol, o, out, e) : SPX_EDEVICE;
}

static void bytes_copied(const spx_backend *, size_t *to_host, size_t *to_device)
{
    *to_host = spx::to_host;
    *to_device = spx::to_device;
}

/* Appends device d to the state and its name to the list of the backend: what is asked once cannot be lost later. */
static void take(spx_backend *b, opened *s, int d, int number, const cudaDeviceProp *p)
{
    const size_t used = strlen(b->device);
    (void)snprintf(b->device + used, sizeof b->device - used, "%scuda:%d (%s)", s->ndevice > 0 ? ", " : "", number,
                   p->name);
    s->number[s->ndevice] = number;
    s->device[s->ndevice++] = d;
}

/* Parses "0,2" into the state; "3@0" is the device that the user calls 3, and the driver 0; "" is the first device of
 * sufficient compute capability. */
static spx_status choose_devices(const char *list, int count, spx_backend *b, opened *s, spx_err *e)
{
    cudaDeviceProp p;
    if (list[0] == '\0') {
        for (int d = 0; d < count && s->ndevice == 0; d++)
            if (cudaGetDeviceProperties(&p, d) == cudaSuccess && p.major >= LEAST_MAJOR)
                take(b, s, d, d, &p);
        return s->ndevice > 0 ? SPX_OK
                              : spx_fail(e, SPX_EDEVICE,
                                         "{device} cuda: no device in view has compute capability %d.0 or newer: name "
                                         "another ({device} cuda:N)",
                                         LEAST_MAJOR);
    }
    for (const char *q = list;; q++) {
        char *end;
        const long number = strtol(q, &end, 10), d = *end == '@' ? strtol(end + 1, &end, 10) : number;
        if (end == q || d < 0 || (*end != ',' && *end != '\0'))
            return spx_fail(e, SPX_EUSAGE, "{device} cuda:%s: should be numbers of devices, separated by commas", list);
        if (d >= count)
            return spx_fail(e, SPX_EDEVICE, "{device} cuda:%s: there is no device %ld, but %d of them, from 0 on", list,
                            d, count);
        for (int i = 0; i < s->ndevice; i++)
            if (s->device[i] == (int)d)
                return spx_fail(e, SPX_EUSAGE, "{device} cuda:%s: device %ld is there twice", list, d);
        if (s->ndevice == SPX_CUDA_MOST_DEVICES)
            return spx_fail(e, SPX_EUSAGE, "{device} cuda:%s: more than %d devices", list, SPX_CUDA_MOST_DEVICES);
        const cudaError_t asked = cudaGetDeviceProperties(&p, (int)d);
        if (asked != cudaSuccess)
            return spx_fail(e, SPX_EDEVICE, "{device} cuda:%s: device %ld does not answer: %s", list, number,
                            cudaGetErrorString(asked));
        if (p.major < LEAST_MAJOR)
            return spx_fail(e, SPX_EDEVICE, "{device} cuda:%s: device %ld has a compute capability below %d.0", list,
                            number, LEAST_MAJOR);
        take(b, s, (int)d, (int)number, &p);
        if (*(q = end) == '\0')
            return SPX_OK;
    }
}

extern "C" spx_status spx_backend_entry_point(spx_backend *b, const char *list, spx_err *e)
{
    int count = 0;
    const cudaError_t found = cudaGetDeviceCount(&count);
    const char *why = found != cudaSuccess ? cudaGetErrorString(found) : "there is none";
    if ((found != cudaSuccess || count == 0) && strchr(list, '@') != nullptr)
        return spx_fail_remedy(e, SPX_EDEVICE, "name another one (nvidia-smi -L lists them)",
                               "{device} cuda:%ld: there is no such device in view, or it is not usable: %s",
                               strtol(list, nullptr, 10), why);
    if (found != cudaSuccess || count == 0)
        return spx_fail(e, SPX_EDEVICE, "{device} cuda: no device is usable: %s", why);
    opened *s = static_cast<opened *>(calloc(1, sizeof *s));
    if (s != nullptr)
        s->ready = new (std::nothrow) std::once_flag;
    if (s == nullptr || s->ready == nullptr) {
        free(s);
        return spx_fail(e, SPX_EIO, "out of memory");
    }
    b->device[0] = '\0';
    const spx_status st = choose_devices(list, count, b, s, e);
    if (st != SPX_OK) {
        delete s->ready;
        free(s);
        return st;
    }
    start_contexts(s);
    b->abi = SPX_BACKEND_ABI;
    b->state = static_cast<spx_cuda_state *>(s);
    b->close = close_cuda;
    b->copied = bytes_copied;
#define SPX_FUNCTION(type, function, cuda, parameters, arguments)                                                      \
    SPX_CUDA_##cuda(b->function = waiting<spx_##function##_cuda>::call;)
#include "operations.def"
    return SPX_OK;
}

/* CUDA version numbers: 13020 is 13.2. */
static void tell_version(spx_plugin_tell *tell, const char *key, int version)
{
    tell(key, "%d.%d", version / 1000, version % 1000 / 10);
}

extern "C" void spx_backend_describe_point(spx_plugin_tell *tell)
{
    int driver = 0, runtime = 0, count = 0;
    if (cudaDriverGetVersion(&driver) == cudaSuccess)
        tell_version(tell, "cuda driver supports", driver);
    if (cudaRuntimeGetVersion(&runtime) == cudaSuccess)
        tell_version(tell, "cuda runtime", runtime);
    spx_err e = {};
    const auto describe = reinterpret_cast<decltype(&spx_svd_describe_cuda)>(svd_symbol("spx_svd_describe_cuda", &e));
    if (describe != nullptr)
        describe(tell);
    else
        tell("backend cuda svd", "not usable: %s", e.text);
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
