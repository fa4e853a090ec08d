/* Solves Burgers' equation on a CUDA device: CUDA graphs of many steps, launched without synchronising. The arithmetic
 * is the host's, so that results are equal to the last bit. */
#include <utility>

#include "burgers/burgers_math.h"
#include "cuda/backend.cuh"

/* Steps of one graph: an even number, so that the two buffers are back in place. */
enum { STEPS = 100, THREADS = 256 };

/* Elements before the state u[nx + 2], so that its cells, from u[1] on, are aligned to 256 bytes, as frameworks expect
 * of arrays that a hook passes on. */
enum { FRONT = 31 };

/* Computes step *before + s + 1, from u[nx + 2] to next[nx + 2]; every `every`-th is copied into its row of the
 * snapshots. */
static __global__ void burgers_step(const double *__restrict__ u, double *__restrict__ next, size_t nx, double s1,
                                    double s2, int lagged, const unsigned long long *before, unsigned long long s,
                                    unsigned long long nstep, unsigned long long every, double *snapshot)
{
    const size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x + 1;
    const unsigned long long k = *before + s + 1;
    if (i > nx || k > nstep)
        return;
    const double v = spx_burgers_step(u[i - 1], u[i], u[i + 1], s1, s2);
    next[i] = v;
    if (i == nx)
        next[0] = lagged ? u[nx] : v;
    if (i == 1)
        next[nx + 1] = lagged ? u[1] : v;
    if (k % every == 0)
        snapshot[(k / every - 1) * nx + i - 1] = v;
}

static __global__ void burgers_count(unsigned long long *before)
{
    *before += STEPS;
}

/* After a hook that may have changed u[nx + 2]: updates the ghost cells, unless they lag, and the row of the snapshots,
 * where this step has one. */
static __global__ void burgers_settle(double *u, size_t nx, int lagged, double *row)
{
    const size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x + 1;
    if (i > nx)
        return;
    if (i == nx && !lagged)
        u[0] = u[nx];
    if (i == 1 && !lagged)
        u[nx + 1] = u[1];
    if (row != nullptr)
        row[i - 1] = u[i];
}

namespace
{

struct graph {
    cudaGraph_t g = nullptr;
    cudaGraphExec_t exec = nullptr;
    graph() = default;
    graph(const graph &) = delete;
    graph &operator=(const graph &) = delete;
    ~graph()
    {
        if (exec != nullptr)
            (void)cudaGraphExecDestroy(exec);
        if (g != nullptr)
            (void)cudaGraphDestroy(g);
    }
};

/* Arrays of the steps. */
struct field {
    const spx_burgers_options *o;
    double s1, s2;
    spx::stream st;
    spx::array<double> state[2], snapshot;
    double *u, *next;
    spx::array<unsigned long long> before; /* number of steps before those of the graph */
    unsigned threads, blocks;
    field(const spx_burgers_options *options, const double *initial, double a, double b, size_t nsnapshot)
        : o(options), s1(a), s2(b), state{spx::array<double>(FRONT + o->nx + 2), spx::array<double>(FRONT + o->nx + 2)},
          snapshot(nsnapshot * o->nx), u(state[0].get() + FRONT), next(state[1].get() + FRONT), before(1),
          threads(o->nx < THREADS ? ((unsigned)o->nx + 31) / 32 * 32 : (unsigned)THREADS),
          blocks((unsigned)((o->nx + threads - 1) / threads))
    {
        spx::check(cudaMemcpy(u, initial, (o->nx + 2) * sizeof *u, cudaMemcpyHostToDevice), "initial state");
        before.clear(1);
        /* written through another stream: wait for it */
        spx::check(cudaDeviceSynchronize(), "initial state");
    }
    void step(const double *from, double *to, unsigned long long s)
    {
        burgers_step<<<blocks, threads, 0, st.s>>>(from, to, o->nx, s1, s2, o->lagged, before.get(), s, o->nstep,
                                                   o->every, snapshot.get());
        spx::check(cudaGetLastError(), "step");
    }
};

/* Runs all steps by graphs; returns their seconds. */
double steps(field &f)
{
    graph gr;
    spx::check(cudaStreamBeginCapture(f.st.s, cudaStreamCaptureModeThreadLocal), "graph");
    for (unsigned s = 0; s < STEPS; s++)
        f.step(s % 2 == 0 ? f.u : f.next, s % 2 == 0 ? f.next : f.u, s);
    burgers_count<<<1, 1, 0, f.st.s>>>(f.before.get());
    spx::check(cudaGetLastError(), "step");
    spx::check(cudaStreamEndCapture(f.st.s, &gr.g), "graph");
    spx::check(cudaGraphInstantiate(&gr.exec, gr.g, 0), "graph");
    spx::stopwatch watch(f.st.s);
    for (size_t k = 0; k < f.o->nstep; k += STEPS)
        spx::check(cudaGraphLaunch(gr.exec, f.st.s), "steps");
    return watch.stop();
}

/* Runs all steps with the hook after each, without synchronising. Single launches have less latency than graphs of one
 * kernel. */
spx_status hooked_steps(field &f, int device, double *seconds, spx_err *e)
{
    struct guest {
        field &f;
        ~guest()
        {
            (void)cudaStreamSynchronize(f.st.s);
            spx_hook_release(f.o->hook);
        }
    } while_it_is_there{f};
    double *u = f.u, *next = f.next;
    spx_status st = SPX_OK;
    spx::stopwatch watch(f.st.s);
    for (size_t k = 1; k <= f.o->nstep && st == SPX_OK; k++) {
        f.step(u, next, k - 1);
        std::swap(u, next);
        st = spx_burgers_hook(f.o, k, u, {device, f.st.s, spx::order}, e);
        spx::check(cudaSetDevice(device), "device");
        if (f.o->hook->writable) {
            burgers_settle<<<f.blocks, f.threads, 0, f.st.s>>>(
                u, f.o->nx, f.o->lagged,
                k % f.o->every == 0 ? f.snapshot.get() + (k / f.o->every - 1) * f.o->nx : nullptr);
            spx::check(cudaGetLastError(), "step");
        }
    }
    *seconds = watch.stop();
    return st;
}

} // namespace

extern "C" spx_status spx_burgers_cuda(spx_backend *b, const spx_burgers_options *o, spx_burgers *out, spx_err *e)
{
    double *u = nullptr, s1, s2;
    spx_status st = spx_burgers_begin(o, out, &u, &s1, &s2, e);
    if (st == SPX_OK)
        st = spx::guarded("burgers", e, [&] {
            const int device = spx::use_first(b);
            field f(o, u, s1, s2, out->nsnapshot);
            spx_status done = SPX_OK;
            if (o->hook != nullptr)
                done = hooked_steps(f, device, &b->device_seconds, e);
            else
                b->device_seconds = steps(f);
            if (done == SPX_OK)
                f.snapshot.take(out->snapshot, out->nsnapshot * o->nx);
            return done;
        });
    spx_free(u);
    if (st != SPX_OK)
        return st;
    spx_progress_step(o->progress, out->nsnapshot);
    return spx_burgers_end(o, out, e);
}
