/* Burgers' equation on a CUDA device: a graph of steps, which the host launches without waiting for them. The
 * arithmetic is the host's, so that results are the same to the last bit. */
#include <vector>

#include "burgers/burgers_math.h"
#include "cuda.cuh"

/* Steps of one graph: an even number, so that the state is where it was. */
enum { STEPS = 100, THREADS = 256 };

/* Step number *before + s + 1, from u[nx + 2] to next[nx + 2]; every so many steps into its row of the snapshots. */
static __global__ void burgers_step(const double *__restrict__ u, double *__restrict__ next, size_t nx, double s1,
                                    double s2, int lagged, const unsigned long long *before, unsigned s,
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

namespace
{

struct stream {
    cudaStream_t s = nullptr;
    stream()
    {
        spx::check(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking), "stream");
    }
    stream(const stream &) = delete;
    stream &operator=(const stream &) = delete;
    ~stream()
    {
        (void)cudaStreamDestroy(s);
    }
};

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

double run(const spx_burgers_options *o, const double *initial, double s1, double s2, spx_burgers *out)
{
    const size_t cells = o->nx + 2, values = out->nsnapshot * out->nx;
    stream st;
    graph gr;
    spx::array<double> u = spx::upload(initial, cells), next(cells), snapshot(values);
    spx::array<unsigned long long> before(1);
    before.clear(1);
    const unsigned threads = o->nx < THREADS ? ((unsigned)o->nx + 31) / 32 * 32 : (unsigned)THREADS;
    const unsigned blocks = (unsigned)((o->nx + threads - 1) / threads);
    spx::check(cudaStreamBeginCapture(st.s, cudaStreamCaptureModeThreadLocal), "graph");
    for (unsigned s = 0; s < STEPS; s++)
        burgers_step<<<blocks, threads, 0, st.s>>>(s % 2 == 0 ? u.get() : next.get(), s % 2 == 0 ? next.get() : u.get(),
                                                   o->nx, s1, s2, o->lagged, before.get(), s, o->nstep, o->every,
                                                   snapshot.get());
    burgers_count<<<1, 1, 0, st.s>>>(before.get());
    spx::check(cudaStreamEndCapture(st.s, &gr.g), "graph");
    spx::check(cudaGraphInstantiate(&gr.exec, gr.g, 0), "graph");
    /* what was put there through another stream has to be there */
    spx::check(cudaDeviceSynchronize(), "initial state");
    spx::stopwatch watch(st.s);
    for (size_t k = 0; k < o->nstep; k += STEPS)
        spx::check(cudaGraphLaunch(gr.exec, st.s), "steps");
    const double seconds = watch.stop();
    snapshot.take(out->snapshot, values);
    return seconds;
}

} // namespace

extern "C" spx_status spx_burgers_cuda(spx_backend *b, const spx_burgers_options *o, spx_burgers *out, spx_err *e)
{
    double *u = nullptr, s1, s2;
    spx_status st = spx_burgers_begin(o, out, &u, &s1, &s2, e);
    if (st == SPX_OK)
        st = spx::guarded("burgers", e, [&] {
            (void)spx::use_first(b);
            b->device_seconds = run(o, u, s1, s2, out);
            return SPX_OK;
        });
    spx_free(u);
    if (st != SPX_OK)
        return st;
    spx_progress_step(o->progress, out->nsnapshot);
    return spx_burgers_end(out, e);
}
