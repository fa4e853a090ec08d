/* Provides training steps on a CUDA device (nn_steps.h). Against the CPU the sums of a step differ in rounding alone.
 *
 * A step has at most 64 templates: its matrix products are small, and launches and memory latency dominate. Rows are
 * independent in the forward and backward pass: a block takes two of them through all layers, in shared memory, and a
 * second kernel computes gradient and Adam of all layers. Layers too wide to read their weights for every two rows, and
 * the loss, use tiled matrix products, one kernel for each layer and direction. An epoch is one CUDA graph: all that
 * changes from epoch to epoch is in device memory. Sums have a fixed order, so that results are reproducible. */
#include <algorithm>
#include <memory>
#include <vector>

#include "cuda/backend.cuh"
#include "cuda/reduce.cuh"

namespace
{

using spx::FULL;
using spx::WARP;

enum {
    TILE = 16,   /* a block makes TILE x TILE elements of a product, a thread each */
    DEPTH = 128, /* terms of a sum at one time */
    PITCH = DEPTH + 4,
    THREADS = TILE * TILE,
    ROWS = 2, /* rows that a block takes through all layers, with PASS threads; each of its warps computes OUTPUTS of a
               * layer */
    PASS = 512,
    OUTPUTS = 8,
    AHEAD = 16,         /* loads of a thread at once */
    NARROW = 256 * 256, /* weights of a layer that each two rows may well read */
    MEMORY = 96 << 10,  /* bytes that a block may have */
    PIECE = 256         /* rows of a loss at a time */
};

struct layer {
    int nin, nout;
    size_t weight, bias; /* offsets in the arrays of weights and biases */
    int block;           /* index of the first block that updates them */
};

struct layers {
    int n;
    layer l[SPX_NN_MAX_LAYER];
};

/* Rows of a step: those of the current epoch, from `first` on. */
struct place {
    const int32_t *row;
    const int *epoch;
    int length, first, n;
    __device__ size_t at(int i) const
    {
        return (size_t)row[(size_t)*epoch * length + first + i];
    }
};

/* Element (i, k) of a matrix whose sums run along rows: rows contiguous in memory, or gathered by a `place`. `n`
 * rows. */
template <bool GATHER> struct by_row {
    static constexpr bool along = true;
    const float *v;
    int stride, n;
    place p;
    __device__ float operator()(int i, int k) const
    {
        if (i >= n)
            return 0;
        return GATHER ? v[p.at(i) * stride + k] : v[(size_t)i * stride + k];
    }
};

/* As by_row, for sums along columns, with a column of ones appended where ONE. */
template <bool GATHER, bool ONE> struct by_column {
    static constexpr bool along = false;
    const float *v;
    int stride, n;
    place p;
    __device__ float operator()(int i, int k) const
    {
        if (i >= n)
            return ONE && i == n ? 1 : 0;
        return GATHER ? v[p.at(k) * stride + i] : v[(size_t)k * stride + i];
    }
};

/* Loads rows first ... first + TILE - 1 of a matrix and terms k0 ... k0 + width - 1, padded with zeros to a multiple of
 * 4. */
template <class M> __device__ void load(const M &m, int first, int k0, int width, float (*to)[PITCH])
{
    const int t = (int)threadIdx.x, full = (width + 3) / 4 * 4;
#pragma unroll
    for (int r = 0; r < TILE * DEPTH / THREADS; r++) {
        const int i = M::along ? t / DEPTH + r * (THREADS / DEPTH) : t % TILE;
        const int k = M::along ? t % DEPTH : t / TILE + r * (THREADS / TILE);
        if (k < full)
            to[i][k] = k < width ? m(first + i, k0 + k) : 0;
    }
}

/* sum_k a(i, k) b(j, k) over `depth` terms; i and j are the block's origin plus the thread's position in the tile. */
template <class A, class B> __device__ float product(const A &a, const B &b, int i0, int j0, int depth)
{
    __shared__ __align__(16) float sa[TILE][PITCH], sb[TILE][PITCH];
    const int i = (int)threadIdx.x / TILE, j = (int)threadIdx.x % TILE;
    float4 sum = {0, 0, 0, 0};
    for (int k0 = 0; k0 < depth; k0 += DEPTH) {
        const int width = min(depth - k0, (int)DEPTH);
        if (k0 > 0)
            __syncthreads();
        load(a, i0, k0, width, sa);
        load(b, j0, k0, width, sb);
        __syncthreads();
#pragma unroll 8
        for (int k = 0; k < width; k += 4) {
            const float4 x = *reinterpret_cast<const float4 *>(&sa[i][k]);
            const float4 y = *reinterpret_cast<const float4 *>(&sb[j][k]);
            sum.x = fmaf(x.x, y.x, sum.x);
            sum.y = fmaf(x.y, y.y, sum.y);
            sum.z = fmaf(x.z, y.z, sum.z);
            sum.w = fmaf(x.w, y.w, sum.w);
        }
    }
    return (sum.x + sum.y) + (sum.z + sum.w);
}

/* Layer of n rows: y = f(in W^T + b), and for the backward pass d: f' of a hidden layer; scale (y - z) of the last one,
 * where f is the identity. NULL: not computed. */
template <bool GATHER, bool LAST>
__global__ void __launch_bounds__(THREADS) nn_forward(layer l, const float *w, by_row<GATHER> in, place p, float *y,
                                                      float *d, const float *z, const float *scale)
{
    const int i0 = (int)blockIdx.y * TILE, j0 = (int)blockIdx.x * TILE;
    const by_row<false> weight = {w + l.weight, l.nin, l.nout, {}};
    const float sum = product(in, weight, i0, j0, l.nin);
    const int i = i0 + (int)threadIdx.x / TILE, j = j0 + (int)threadIdx.x % TILE;
    if (i >= p.n || j >= l.nout)
        return;
    const size_t at = (size_t)i * l.nout + j;
    const float a = sum + w[l.bias + j];
    if (LAST) {
        y[at] = a;
        if (d != nullptr)
            d[at] = scale[j] * (a - z[p.at(i) * l.nout + j]);
    } else {
        const float u = 1 / (1 + expf(-a)), f = a * u;
        y[at] = f;
        if (d != nullptr)
            d[at] = u + f * (1 - u);
    }
}

/* Back through layer l: d[n][nin], which holds the activations' derivatives, times delta W. */
__global__ void __launch_bounds__(THREADS) nn_back(layer l, const float *w, const float *delta, int n, float *d)
{
    const int i0 = (int)blockIdx.y * TILE, j0 = (int)blockIdx.x * TILE;
    const by_row<false> from = {delta, l.nout, n, {}};
    const by_column<false, false> weight = {w + l.weight, l.nin, l.nin, {}};
    const float sum = product(from, weight, i0, j0, l.nout);
    const int i = i0 + (int)threadIdx.x / TILE, j = j0 + (int)threadIdx.x % TILE;
    if (i < n && j < l.nin)
        d[(size_t)i * l.nin + j] *= sum;
}

/* Sums of 16 values over the lanes of a warp; each pair of lanes gets one, of value lane / 2. */
__device__ float sums_of_16(float (&v)[16])
{
    const int lane = (int)threadIdx.x % WARP;
#pragma unroll
    for (int half = 8; half > 0;
         half /= 2) { /* butterfly: send one half of the values to the lane `half` away, keep the other */
        const bool upper = (lane & 2 * half) != 0;
#pragma unroll
        for (int i = 0; i < half; i++) {
            const float away = upper ? v[i] : v[i + half], here = upper ? v[i + half] : v[i];
            v[i] = here + __shfl_xor_sync(FULL, away, 2 * half);
        }
    }
    return v[0] + __shfl_xor_sync(FULL, v[0], 1);
}

/* Results of nn_pass for the update: outputs of the layers, and derivatives with respect to them. */
struct results {
    float *y[SPX_NN_MAX_LAYER], *d[SPX_NN_MAX_LAYER];
};

/* Waits for the preceding kernel (programmatic dependent launch). Code before the call may overlap that kernel, and
 * must not touch its results. */
__device__ void wait_for_the_kernel_before()
{
#if __CUDA_ARCH__ >= 900
    cudaGridDependencySynchronize();
    cudaTriggerProgrammaticLaunchCompletion();
#endif
}

/* Forward and backward pass of ROWS rows. Shared memory: outputs y and derivatives d of all layers, [neuron][ROWS],
 * inputs first, and partial sums of the threads; target outputs are stored where their derivatives go. */
__global__ void __launch_bounds__(PASS)
    nn_pass(const __grid_constant__ layers s, const float *w, const float *x, place p, const float *z,
            const float *scale, const __grid_constant__ results out)
{
    extern __shared__ float2 room[];
    const int t = (int)threadIdx.x, lane = t % WARP, i0 = (int)blockIdx.x * ROWS;
    int total = s.l[0].nin;
    for (int k = 0; k < s.n; k++)
        total += s.l[k].nout;
    float2 *const part = room + 2 * total;
    float2 *y = room, *d = room + total;
    const int nin = s.l[0].nin, nout = s.l[s.n - 1].nout;
    const bool second = i0 + 1 < p.n;
    const size_t row0 = p.at(i0), row1 = second ? p.at(i0 + 1) : row0;
    for (int j = t; j < nin; j += PASS)
        y[j] = float2{x[row0 * nin + j], x[row1 * nin + j]};
    for (int j = t; j < nout; j += PASS)
        d[total - nout + j] = float2{z[row0 * nout + j], z[row1 * nout + j]};
    wait_for_the_kernel_before();
    for (int k = 0; k < s.n; k++) {
        const layer l = s.l[k];
        float *const to = reinterpret_cast<float *>(y + l.nin), *const slope = reinterpret_cast<float *>(d + l.nin);
        __syncthreads();
        for (int first = t / WARP * OUTPUTS; first < l.nout; first += PASS / WARP * OUTPUTS) {
            float v[OUTPUTS * ROWS] = {};
            const float *const from = w + l.weight + (size_t)first * l.nin;
            for (int j0 = lane; j0 < l.nin; j0 += 4 * WARP) {
#pragma unroll
                for (int step = 0; step < 4; step++) {
                    const int j = j0 + step * WARP;
                    const bool inside = j < l.nin;
                    const float2 here = y[inside ? j : 0];
#pragma unroll
                    for (int u = 0; u < OUTPUTS; u++) {
                        const float weight = inside && first + u < l.nout ? from[u * l.nin + j] : 0;
                        v[u * ROWS] = fmaf(weight, here.x, v[u * ROWS]);
                        v[u * ROWS + 1] = fmaf(weight, here.y, v[u * ROWS + 1]);
                    }
                }
            }
            const float sum = sums_of_16(v);
            const int o = first + lane / 2 / ROWS, r = lane / 2 % ROWS;
            if (lane % 2 != 0 || o >= l.nout)
                continue;
            const float a = sum + w[l.bias + o];
            if (k + 1 == s.n) {
                to[o * ROWS + r] = a;
                slope[o * ROWS + r] = scale[o] * (a - slope[o * ROWS + r]);
            } else {
                const float u = 1 / (1 + expf(-a)), f = a * u;
                to[o * ROWS + r] = f;
                slope[o * ROWS + r] = u + f * (1 - u);
            }
        }
        y += l.nin;
        d += l.nin;
    }
    for (int k = s.n - 1; k > 0; k--) { /* d and y point to the outputs of layer k; groups of threads divide the sums */
        const layer l = s.l[k];
        const int wide = (l.nin + WARP - 1) / WARP * WARP, groups = PASS / wide, g = t / wide, j = t % wide;
        __syncthreads();
        float2 sum = {0, 0};
        if (g < groups && j < l.nin) {
            for (int first = g; first < l.nout; first += AHEAD * groups) { /* many loads in flight, also at the end */
#pragma unroll
                for (int u = 0; u < AHEAD; u++) {
                    const int o = first + u * groups;
                    const float weight = o < l.nout ? w[l.weight + (size_t)o * l.nin + j] : 0;
                    const float2 back = d[min(o, l.nout - 1)];
                    sum.x = fmaf(back.x, weight, sum.x);
                    sum.y = fmaf(back.y, weight, sum.y);
                }
            }
            part[t] = sum;
        }
        d -= l.nin;
        y -= l.nin;
        __syncthreads();
        if (t < l.nin) {
            for (int from = 1; from < groups; from++) {
                sum.x += part[from * wide + t].x;
                sum.y += part[from * wide + t].y;
            }
            d[t].x *= sum.x;
            d[t].y *= sum.y;
        }
    }
    __syncthreads();
    for (int k = 0; k < s.n; k++) { /* back at layer 0 */
        const int n = s.l[k].nout;
        for (int j = t; j < n; j += PASS) {
            out.y[k][(size_t)i0 * n + j] = y[j].x;
            out.d[k][(size_t)i0 * n + j] = d[j].x;
            if (second) {
                out.y[k][(size_t)(i0 + 1) * n + j] = y[j].y;
                out.d[k][(size_t)(i0 + 1) * n + j] = d[j].y;
            }
        }
        y += n;
        d += n;
    }
}

/* Inputs of the layers, and derivatives with respect to their outputs. */
struct passes {
    const float *y[SPX_NN_MAX_LAYER];
    const float *d[SPX_NN_MAX_LAYER];
};

/* Gradient and Adam of all layers: a block has TILE outputs and TILE inputs of one; the bias is the weight of a further
 * input, which is 1. */
__global__ void __launch_bounds__(THREADS)
    nn_update(const __grid_constant__ layers s, const __grid_constant__ passes from, place p, const spx_nn_rate *rate,
              int nstep, int step, float *w, float *m, float *v)
{
    int k = 0;
    while (k + 1 < s.n && (int)blockIdx.x >= s.l[k + 1].block)
        k++;
    const layer l = s.l[k];
    const int across = l.nin / TILE + 1, block = (int)blockIdx.x - l.block;
    const int i0 = block / across * TILE, j0 = block % across * TILE;
    const by_column<false, false> back = {from.d[k], l.nout, l.nout, {}};
    const int i = i0 + (int)threadIdx.x / TILE, j = j0 + (int)threadIdx.x % TILE;
    const bool mine = i < l.nout && j <= l.nin;
    const size_t at = j < l.nin ? l.weight + (size_t)i * l.nin + j : l.bias + i;
    const spx_nn_rate now = rate[(size_t)*p.epoch * nstep + step];
    const float weight = mine ? w[at] : 0, last_m = mine ? m[at] : 0, last_v = mine ? v[at] : 0;
    float g;
    wait_for_the_kernel_before();
    if (k == 0)
        g = product(back, by_column<true, true>{from.y[0], l.nin, l.nin, p}, i0, j0, p.n);
    else
        g = product(back, by_column<false, true>{from.y[k], l.nin, l.nin, {}}, i0, j0, p.n);
    if (!mine)
        return;
    const float b1 = (float)SPX_NN_BETA1, b2 = (float)SPX_NN_BETA2;
    const float mean = b1 * last_m + (1 - b1) * g, square = b2 * last_v + (1 - b2) * g * g;
    m[at] = mean;
    v[at] = square;
    w[at] = weight - now.size * mean / (sqrtf(square * now.norm) + (float)SPX_NN_EPSILON);
}

__global__ void nn_next(int *epoch)
{
    ++*epoch;
}

/* *sum += sum over n rows of (sigma_k (y_k - z_k))^2; one block. */
__global__ void __launch_bounds__(THREADS)
    nn_loss(int nout, const double *sigma, const float *y, const float *z, place p, double *sum)
{
    __shared__ double part[THREADS];
    double mine = 0;
    for (size_t at = threadIdx.x; at < (size_t)p.n * nout; at += THREADS) {
        const int k = (int)(at % nout);
        const double d = sigma[k] * (double)(y[at] - z[p.at((int)(at / nout)) * nout + k]);
        mine += d * d;
    }
    part[threadIdx.x] = mine;
    for (int half = THREADS / 2; half > 0; half /= 2) {
        __syncthreads();
        if ((int)threadIdx.x < half)
            part[threadIdx.x] += part[threadIdx.x + half];
    }
    if (threadIdx.x == 0)
        *sum += part[0];
}

struct trainer {
    int device, nstep;
    const spx_nn_problem *problem;
    layers s = {};
    size_t total; /* weights and biases */
    size_t pass;  /* shared memory of a block in nn_pass, bytes; 0: tiled products */
    bool early;   /* 1: programmatic dependent launch */
    spx::stream stream;
    spx::array<float> x, z, w, m, v, scale; /* scale [2][outputs]: of full steps, and of an epoch's last */
    spx::array<double> sigma, sum;
    std::vector<spx::array<float>> y, d; /* of each layer's outputs */
    spx::array<int32_t> row, look;
    spx::array<spx_nn_rate> rate;
    spx::array<int> epoch; /* number of the current epoch, and a zero for rows of no epoch */
    size_t room = 0;       /* capacity of row and rate, epochs */
    cudaGraphExec_t graph = nullptr;

    ~trainer()
    {
        if (graph != nullptr)
            (void)cudaGraphExecDestroy(graph);
    }
};

unsigned tiles(size_t n)
{
    return (unsigned)((n + TILE - 1) / TILE);
}

/* Forward pass through all layers of the rows at p. */
void forward(const trainer &t, const place &p, const float *scale)
{
    for (int k = 0; k < t.s.n; k++) {
        const layer l = t.s.l[k];
        const dim3 grid(tiles((size_t)l.nout), tiles((size_t)p.n));
        const bool last = k + 1 == t.s.n;
        float *const y = t.y[k].get(), *const d = scale != nullptr ? t.d[k].get() : nullptr;
        const by_row<true> first = {t.x.get(), l.nin, p.n, p};
        const by_row<false> in = {k > 0 ? t.y[k - 1].get() : nullptr, l.nin, p.n, {}};
        const float *const w = t.w.get(), *const z = t.z.get();
        if (k == 0 && last)
            nn_forward<true, true><<<grid, THREADS, 0, t.stream.s>>>(l, w, first, p, y, d, z, scale);
        else if (k == 0)
            nn_forward<true, false><<<grid, THREADS, 0, t.stream.s>>>(l, w, first, p, y, d, z, scale);
        else if (last)
            nn_forward<false, true><<<grid, THREADS, 0, t.stream.s>>>(l, w, in, p, y, d, z, scale);
        else
            nn_forward<false, false><<<grid, THREADS, 0, t.stream.s>>>(l, w, in, p, y, d, z, scale);
    }
}

/* Launches one of the two kernels of a step, with programmatic dependent launch where the device supports it. */
template <typename... P, typename... A>
void launch(const trainer &t, void (*kernel)(P...), unsigned blocks, unsigned threads, size_t memory, A... arguments)
{
    cudaLaunchAttribute early = {};
    early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    early.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t how = {};
    how.gridDim = dim3(blocks);
    how.blockDim = dim3(threads);
    how.dynamicSmemBytes = memory;
    how.stream = t.stream.s;
    how.attrs = &early;
    how.numAttrs = t.early ? 1 : 0;
    spx::check(cudaLaunchKernelEx(&how, kernel, static_cast<P>(arguments)...), "kernels");
}

void step(const trainer &t, int number)
{
    const int epoch = (int)t.problem->epoch, batch = (int)t.problem->batch, nout = t.s.l[t.s.n - 1].nout;
    const int first = number * batch, n = std::min(batch, epoch - first);
    const place p = {t.row.get(), t.epoch.get(), epoch, first, n};
    const float *const scale = t.scale.get() + (n < batch ? nout : 0);
    passes from = {};
    results to = {};
    for (int k = 0; k < t.s.n; k++) {
        to.y[k] = t.y[(size_t)k].get();
        to.d[k] = t.d[(size_t)k].get();
    }
    if (t.pass > 0)
        launch(t, nn_pass, spx::blocks(n, ROWS), PASS, t.pass, t.s, t.w.get(), t.x.get(), p, t.z.get(), scale, to);
    else
        forward(t, p, scale);
    int blocks = 0;
    for (int k = t.s.n - 1; k >= 0; k--) {
        const layer l = t.s.l[k];
        from.y[k] = k > 0 ? to.y[k - 1] : t.x.get();
        from.d[k] = to.d[k];
        blocks = std::max(blocks, l.block + (int)tiles((size_t)l.nout) * (l.nin / TILE + 1));
        if (k > 0 && t.pass == 0)
            nn_back<<<dim3(tiles((size_t)l.nin), tiles((size_t)n)), THREADS, 0, t.stream.s>>>(
                l, t.w.get(), t.d[k].get(), n, t.d[(size_t)k - 1].get());
    }
    launch(t, nn_update, (unsigned)blocks, THREADS, 0, t.s, from, p, t.rate.get(), t.nstep, number, t.w.get(),
           t.m.get(), t.v.get());
}

/* Captures the graph of an epoch. */
void capture(trainer &t)
{
    cudaGraph_t graph;
    spx::check(cudaStreamBeginCapture(t.stream.s, cudaStreamCaptureModeThreadLocal), "capture");
    for (int k = 0; k < t.nstep; k++)
        step(t, k);
    nn_next<<<1, 1, 0, t.stream.s>>>(t.epoch.get());
    spx::check(cudaStreamEndCapture(t.stream.s, &graph), "capture");
    const cudaError_t made = cudaGraphInstantiate(&t.graph, graph, 0);
    (void)cudaGraphDestroy(graph);
    spx::check(made, "graph of an epoch");
}

template <typename T> void send(const trainer &t, const spx::array<T> &to, const T *from, size_t n)
{
    spx::check(cudaMemcpyAsync(to.get(), from, n * sizeof(T), cudaMemcpyHostToDevice, t.stream.s),
               "copy to the device");
}

/* Allocates memory with a copy of host values, or zeros; on the trainer's stream, since no thread may synchronise the
 * device while another captures a graph. */
template <typename T> void bring(const trainer &t, spx::array<T> &to, const T *from, size_t n)
{
    to = spx::array<T>(n);
    if (from != nullptr)
        send(t, to, from, n);
    else
        spx::check(cudaMemsetAsync(to.get(), 0, n * sizeof(T), t.stream.s), "device memory");
}

template <typename T> void fetch(const trainer &t, const spx::array<T> &from, T *to, size_t n)
{
    spx::to_host += n * sizeof(T);
    spx::check(cudaMemcpyAsync(to, from.get(), n * sizeof(T), cudaMemcpyDeviceToHost, t.stream.s),
               "copy from the device");
    spx::check(cudaStreamSynchronize(t.stream.s), "kernels");
}

template <typename F> spx_status with(spx_nn_trainer *l, spx_err *e, F f)
{
    return spx::guarded("template", e, [&] {
        trainer &t = *static_cast<trainer *>(l->state);
        spx::check(cudaSetDevice(t.device), "device");
        f(t);
        return SPX_OK;
    });
}

spx_status descend_cuda(spx_nn_trainer *l, size_t nepoch, const int32_t *row, const spx_nn_rate *rate, spx_err *e)
{
    return with(l, e, [&](trainer &t) {
        const size_t n = t.problem->epoch, nstep = (size_t)t.nstep;
        if (nepoch > t.room) { /* the graph has the addresses of these arrays */
            if (t.graph != nullptr)
                spx::check(cudaGraphExecDestroy(t.graph), "graph of an epoch");
            t.graph = nullptr;
            t.row = spx::array<int32_t>(nepoch * n);
            t.rate = spx::array<spx_nn_rate>(nepoch * nstep);
            t.room = nepoch;
            capture(t);
        }
        send(t, t.row, row, nepoch * n);
        send(t, t.rate, rate, nepoch * nstep);
        spx::check(cudaMemsetAsync(t.epoch.get(), 0, sizeof(int), t.stream.s), "device memory");
        for (size_t k = 0; k < nepoch; k++)
            spx::check(cudaGraphLaunch(t.graph, t.stream.s), "an epoch");
        spx::check(cudaStreamSynchronize(t.stream.s), "kernels");
    });
}

spx_status loss_cuda(spx_nn_trainer *l, size_t n, const int32_t *row, double *sum, spx_err *e)
{
    return with(l, e, [&](trainer &t) {
        const int nout = t.s.l[t.s.n - 1].nout;
        send(t, t.look, row, n);
        spx::check(cudaMemsetAsync(t.sum.get(), 0, sizeof(double), t.stream.s), "device memory");
        for (size_t first = 0; first < n; first += PIECE) {
            const place p = {t.look.get(), t.epoch.get() + 1, 0, (int)first, (int)std::min((size_t)PIECE, n - first)};
            forward(t, p, nullptr);
            nn_loss<<<1, THREADS, 0, t.stream.s>>>(nout, t.sigma.get(), t.y[(size_t)t.s.n - 1].get(), t.z.get(), p,
                                                   t.sum.get());
            spx::check(cudaGetLastError(), "kernels");
        }
        fetch(t, t.sum, sum, 1);
    });
}

spx_status weights_cuda(spx_nn_trainer *l, float *weight, spx_err *e)
{
    return with(l, e, [&](trainer &t) { fetch(t, t.w, weight, t.total); });
}

void close_cuda(spx_nn_trainer *l)
{
    trainer *t = static_cast<trainer *>(l->state);
    if (t != nullptr)
        (void)cudaSetDevice(t->device);
    delete t;
    l->state = nullptr;
}

} // namespace

extern "C" spx_status spx_nn_open_cuda(spx_backend *b, const spx_nn_problem *problem, spx_nn_trainer *l, spx_err *e)
{
    *l = spx_nn_trainer{nullptr, descend_cuda, loss_cuda, weights_cuda, close_cuda};
    return spx::guarded("template", e, [&] {
        const spx_cuda_state *state = spx::state_of(b);
        const int device = state->device[problem->number % (size_t)state->ndevice];
        spx::check(cudaSetDevice(device), "device");
        std::unique_ptr<trainer> made(new trainer);
        trainer &t = *made;
        const spx_nn *nn = problem->nn;
        size_t nweight, nbias, weight = 0, bias = 0;
        spx_nn_count(nn, &nweight, &nbias);
        t.device = device;
        t.problem = problem;
        t.nstep = (int)spx_nn_steps(problem);
        t.total = nweight + nbias;
        t.s.n = (int)nn->nlayer;
        const size_t most = std::max(problem->batch, std::min(problem->most, (size_t)PIECE)),
                     nout = nn->size[nn->nlayer];
        int block = 0;
        for (size_t k = 0; k < nn->nlayer; k++) {
            const int in = (int)nn->size[k], out = (int)nn->size[k + 1];
            t.s.l[k] = layer{in, out, weight, nweight + bias, block};
            weight += nn->size[k] * nn->size[k + 1];
            bias += nn->size[k + 1];
            block += (int)tiles((size_t)out) * (in / TILE + 1);
            t.y.emplace_back(most * nn->size[k + 1]);
            t.d.emplace_back(problem->batch * nn->size[k + 1]);
        }
        size_t neurons = nn->size[0];
        bool narrow = true;
        for (size_t k = 0; k < nn->nlayer; k++) {
            neurons += nn->size[k + 1];
            narrow = narrow && nn->size[k] <= PASS && nn->size[k] * nn->size[k + 1] <= NARROW;
        }
        t.pass = (2 * neurons + PASS) * ROWS * sizeof(float);
        t.pass = narrow && t.pass <= MEMORY ? t.pass : 0;
        int major = 0;
        spx::check(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device), "device");
        t.early = t.pass > 0 && major >= 9;
        if (t.pass > 0)
            spx::check(cudaFuncSetAttribute(nn_pass, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)MEMORY),
                       "nn_pass");
        bring(t, t.x, problem->x, problem->nrow * nn->size[0]);
        bring(t, t.z, problem->z, problem->nrow * nout);
        bring(t, t.w, problem->weight, t.total);
        bring<float>(t, t.m, nullptr, t.total);
        bring<float>(t, t.v, nullptr, t.total);
        bring(t, t.sigma, problem->sigma, nout);
        t.sum = spx::array<double>(1);
        t.look = spx::array<int32_t>(problem->most);
        bring<int>(t, t.epoch, nullptr, 2);
        /* rounded as on the CPU */
        const size_t left = problem->epoch - (size_t)(t.nstep - 1) * problem->batch;
        std::vector<float> scale(2 * nout);
        double total = 0;
        for (size_t k = 0; k < nout; k++)
            total += problem->sigma[k] * problem->sigma[k];
        for (size_t k = 0; k < 2 * nout; k++) {
            const double s = problem->sigma[k % nout];
            scale[k] = (float)(s * s / total / (double)(k < nout ? problem->batch : left));
        }
        bring(t, t.scale, scale.data(), scale.size());
        spx::check(cudaStreamSynchronize(t.stream.s), "copies to the device");
        l->state = made.release();
        return SPX_OK;
    });
}
