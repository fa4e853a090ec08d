/* Coefficients of the templates' components and weights of the rotation kernel, for CUDA devices. */
#ifndef SPX_RVFIT_CUDA_COEFFICIENTS_CUH
#define SPX_RVFIT_CUDA_COEFFICIENTS_CUH

#include "rvfit/cuda/grid.cuh"

namespace rv
{

enum {
    NODES = 256,         /* templates whose weights are in shared memory at a time, */
    GROUPS = NODES / 16, /* in so many groups or fewer: a corner of a simplex is one, */
    THREADS = 192        /* of a block that makes coefficients */
};

__device__ inline double half_width(const arm &a, double vsini)
{
    return fmin(vsini / (SPX_C_KMS * a.dlnwave), (double)MAX_REACH - 4);
}

/* Weights w[L] of node k of the stencil, and its row of the arm. */
template <int L>
__device__ inline int node_weights(const model &m, const arm &a, const spx_rv_stencil &s, int k, double *w)
{
    int node = m.interpolator == SPX_INTERPOLATE_SIMPLEX ? s.corner[k] : s.base;
#pragma unroll
    for (int l = 0; l < L; l++)
        w[l] = m.interpolator == SPX_INTERPOLATE_SIMPLEX ? s.weight[k * m.lanes + l] : 1;
    for (int g = m.ng - 1, left = k; g >= 0 && m.interpolator != SPX_INTERPOLATE_SIMPLEX; g--) {
        const int j = left % s.count[g];
        left /= s.count[g];
        node += j * m.step[g];
#pragma unroll
        for (int l = 0; l < L; l++)
            w[l] *= l == 1 + g ? s.slope[g][j] : s.value[g][j];
    }
    return a.node != nullptr ? a.node[node] : node;
}

__device__ inline int count_nodes(const model &m, const spx_rv_stencil &s)
{
    if (m.interpolator == SPX_INTERPOLATE_SIMPLEX)
        return m.ng + 1;
    int n = 1;
    for (int g = 0; g < m.ng; g++)
        n *= s.count[g];
    return n;
}

/* Where the lanes of the coefficient of component k, of all arms', are: of a tile of points side by side. */
__device__ inline size_t coefficient_place(const model &m, size_t point, int k)
{
    return ((point / POINTS * m.ncomp + k) * POINTS + point % POINTS) * LANES;
}

/* Coefficients of component k in single precision, from coefficient_place() of a point's first on; 0 takes the place of
 * a value that is kept in double. */
template <typename T>
__device__ inline void put_coefficients(const arm &a, int k, int lanes, const T *sum, float *single)
{
    float x[LANES];
#pragma unroll
    for (int l = 0; l < LANES; l++)
        x[l] = l < lanes && !(k < a.nlarge && l == 0) ? (float)sum[l] : 0;
    float4 *to = reinterpret_cast<float4 *>(single + (size_t)k * POINTS * LANES);
    to[0] = make_float4(x[0], x[1], x[2], x[3]);
    to[1] = make_float4(x[4], x[5], x[6], x[7]);
}

/* A network's coefficients; a warp takes a neuron at a time. work[2][width][lanes] of this block. */
__device__ inline void network(const model &m, const arm &a, const spx_rv_stencil &s, int lanes, double *work,
                               float *single, double *large)
{
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32, warps = (int)blockDim.x / 32;
    const spx_nn &nn = a.nn;
    const float *w = nn.weight, *b = nn.bias;
    if (threadIdx.x == 0)
        spx_nn_input(&nn, s.x, (size_t)lanes, m.gpar, work);
    __syncthreads();
    for (size_t layer = 0; layer < nn.nlayer; layer++) {
        const int nin = (int)nn.size[layer], nout = (int)nn.size[layer + 1];
        const bool last = layer + 1 == nn.nlayer;
        const double *in = work + layer % 2 * (size_t)m.width * lanes;
        double *out = work + (layer + 1) % 2 * (size_t)m.width * lanes;
        for (int i = warp; i < nout; i += warps) {
            double sum[1 + SPX_MAX_PAR] = {0}, d = 1;
            for (int j = lane; j < nin; j += 32)
                for (int l = 0; l < lanes; l++)
                    sum[l] = fma((double)w[(size_t)i * nin + j], in[j * lanes + l], sum[l]);
            for (int l = 0; l < lanes; l++)
                sum[l] = spx::warp_sum(sum[l]);
            sum[0] += (double)b[i];
            if (!last) {
                sum[0] = spx_nn_activate(nn.activation, nn.slope, sum[0], &d);
                for (int l = 1; l < lanes; l++)
                    sum[l] *= d;
            }
            if (lane == 0 && !last)
                for (int l = 0; l < lanes; l++)
                    out[i * lanes + l] = sum[l];
            if (lane == 0 && last) {
                for (int g = 0; g + 1 < lanes; g++)
                    sum[1 + g] = s.clamped[g] ? 0 : sum[1 + g];
                put_coefficients(a, i, lanes, sum, single);
                if (i < a.nlarge)
                    large[i] = sum[0];
            }
        }
        __syncthreads();
        w += (size_t)nin * nout;
        b += nout;
    }
}

/* Weights of the rotation kernel of half-width h, w[1 + reach] and dw[1 + reach]. A warp shares the tails of its
 * weights (spectral/rotation_math.h), which take nearly all of the time; the last warp begins. */
__device__ inline void rotation_weights(int interpolator, double h, double *w, double *dw)
{
    constexpr int PER = 32 - 2 * SPX_ROTATION_NEAR;
    __shared__ double t[THREADS][2], dt[THREADS][2];
    const int reach = (int)spx_rotation_reach(h), tid = (int)threadIdx.x, lane = tid % 32;
    if (interpolator == SPX_INTERPOLATE_GRID) {
        for (int k = tid; k <= reach; k += THREADS)
            w[k] = spx_rotation_linear_weight((size_t)k, h, &dw[k]);
        return;
    }
    for (int k0 = (THREADS - 1 - tid) / 32 * PER; k0 <= reach; k0 += THREADS / 32 * PER) {
        __syncwarp();
        if (k0 + lane <= reach + 2 * SPX_ROTATION_NEAR)
            spx_rotation_tails((double)(k0 + lane - SPX_ROTATION_NEAR), h, t[tid], dt[tid]);
        __syncwarp();
        if (lane < PER && k0 + lane <= reach)
            w[k0 + lane] = spx_rotation_sum(h, t + tid, dt + tid, &dw[k0 + lane]);
    }
}

/* A group of nodes: those of the last two axes side by side, at which the others are the same; or a corner of a
 * simplex. Weights along both axes, in single precision. */
struct axis_pair {
    int na, nb;
    float value_a[4], slope_a[4], value_b[4], slope_b[4];

    __device__ axis_pair(const model &m, const spx_rv_stencil &s) : na(1), nb(1)
    {
        const bool grid = m.interpolator != SPX_INTERPOLATE_SIMPLEX;
        if (grid && m.ng > 0)
            nb = s.count[m.ng - 1];
        if (grid && m.ng > 1)
            na = s.count[m.ng - 2];
#pragma unroll
        for (int j = 0; j < 4; j++) {
            const bool has_a = grid && m.ng > 1 && j < na, has_b = grid && m.ng > 0 && j < nb;
            value_a[j] = has_a ? (float)s.value[m.ng - 2][j] : j == 0;
            slope_a[j] = has_a ? (float)s.slope[m.ng - 2][j] : 0;
            value_b[j] = has_b ? (float)s.value[m.ng - 1][j] : j == 0;
            slope_b[j] = has_b ? (float)s.slope[m.ng - 1][j] : 0;
        }
    }
};

/* Weights w[L] of group k of the stencil by the other axes: 0 of the derivatives along the last two. */
template <int L> __device__ inline void group_weights(const model &m, const spx_rv_stencil &s, int k, float *w)
{
    double product[L];
#pragma unroll
    for (int l = 0; l < L; l++)
        product[l] = m.interpolator == SPX_INTERPOLATE_SIMPLEX ? s.weight[k * m.lanes + l] : l < L - 2 || l == 0;
    for (int g = m.ng - 3, left = k; g >= 0 && m.interpolator != SPX_INTERPOLATE_SIMPLEX; g--) {
        const int j = left % s.count[g];
        left /= s.count[g];
#pragma unroll
        for (int l = 0; l < L; l++)
            product[l] *= l == 1 + g ? s.slope[g][j] : s.value[g][j];
    }
#pragma unroll
    for (int l = 0; l < L; l++)
        w[l] = (float)product[l];
}

/* Adds a group, whose nodes have the coefficients c(i), to sum[L]: axis by axis. ALL: there are four nodes along each
 * of both axes, whose loads are on their way together. */
template <int L, bool ALL, typename C>
__device__ inline void add_group(const axis_pair &p, const float *w, C c, float *sum)
{
    const int na = ALL ? 4 : p.na, nb = ALL ? 4 : p.nb;
    float value = 0, along_a = 0, along_b = 0;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        float line = 0, slope = 0;
#pragma unroll
        for (int j = 0; j < 4; j++)
            if (i < na && j < nb) {
                const float x = c(i * nb + j);
                line = fmaf(p.value_b[j], x, line);
                slope = fmaf(p.slope_b[j], x, slope);
            }
        value = fmaf(p.value_a[i], line, value);
        along_a = fmaf(p.slope_a[i], line, along_a);
        along_b = fmaf(p.value_a[i], slope, along_b);
    }
#pragma unroll
    for (int l = 0; l < L; l++)
        sum[l] = fmaf(w[l], value, sum[l]);
    if (L > 2)
        sum[L - 2] = fmaf(w[0], along_a, sum[L - 2]);
    if (L > 1)
        sum[L - 1] = fmaf(w[0], along_b, sum[L - 1]);
}

/* Block (point, arm): coefficients of the components, and the rotation kernel: rotation[2][1+reach] of the point and
 * arm. L: lanes. Sums are in single precision, as on the CPU, and in double those of the values of the components that
 * are large, each of which several threads share. */
template <int L>
__global__ void __launch_bounds__(THREADS, 3) coefficient_kernel(model m, const spx_rv_stencil *stencils, float *single,
                                                                 double *large, double *rotation, double *work)
{
    constexpr int SHARES = THREADS / SPX_RV_LARGE;
    __shared__ float weight[GROUPS * L], other[THREADS / 2 * L];
    __shared__ double value[NODES], share[SHARES][SPX_RV_LARGE];
    __shared__ unsigned row[NODES];
    const arm &a = m.arms[blockIdx.y];
    const spx_rv_stencil &s = stencils[blockIdx.x];
    const size_t point = blockIdx.x;
    const int tid = (int)threadIdx.x;
    single += coefficient_place(m, point, a.comp0);
    large += (point * m.narm + blockIdx.y) * SPX_RV_LARGE;
    rotation += (point * m.narm + blockIdx.y) * 2 * (m.reach + 1);
    rotation_weights(m.interpolator, half_width(a, s.vsini), rotation, rotation + m.reach + 1);
    if (m.interpolator == SPX_INTERPOLATE_NN) {
        network(m, a, s, L, work + (point * m.narm + blockIdx.y) * 2 * m.width * (size_t)L, single, large);
        return;
    }
    /* where the components are few, sets of threads have a part of the groups each */
    const int width = min((a.ncomp + 31) / 32 * 32, (int)THREADS), parts = THREADS / width;
    const int part = tid / width, of_part = tid % width, which = tid % SPX_RV_LARGE;
    const axis_pair pair(m, s);
    const int of_group = pair.na * pair.nb, ngroup = count_nodes(m, s) / of_group;
    const bool all = of_group == 16;
    double big = 0;
    for (int k0 = 0; k0 < a.ncomp; k0 += width) {
        const int k = k0 + of_part;
        const bool has = k < a.ncomp && part < parts;
        float sum[L];
#pragma unroll
        for (int l = 0; l < L; l++)
            sum[l] = 0;
        for (int g0 = 0; g0 < ngroup; g0 += GROUPS) {
            const int groups = min((int)GROUPS, ngroup - g0), n = groups * of_group;
            __syncthreads();
            for (int i = tid; i < n; i += THREADS)
                row[i] = (unsigned)node_weights<1>(m, a, s, g0 * of_group + i, value + i);
            if (tid < groups)
                group_weights<L>(m, s, g0 + tid, weight + tid * L);
            __syncthreads();
            if (has) {
                const char *from = reinterpret_cast<const char *>(a.coef + k);
                const unsigned bytes = (unsigned)(a.ncomp * sizeof(float));
                for (int g = groups * part / parts; g < groups * (part + 1) / parts; g++) {
                    const unsigned *rows = row + g * of_group;
                    auto coefficient = [&](int i) {
                        return __ldg(reinterpret_cast<const float *>(from + (size_t)rows[i] * bytes));
                    };
                    if (all)
                        add_group<L, true>(pair, weight + g * L, coefficient, sum);
                    else
                        add_group<L, false>(pair, weight + g * L, coefficient, sum);
                }
            }
            for (int i = tid / SPX_RV_LARGE; i < n && k0 == 0 && which < a.nlarge; i += SHARES)
                big = fma(value[i],
                          (double)__ldg(a.coef + (size_t)row[i] * a.ncomp + which) +
                              (double)__ldg(a.rest + (size_t)row[i] * a.nlarge + which),
                          big);
        }
        for (int p = 1; p < parts; p++) { /* to the first part, in their order */
            __syncthreads();
            if (part == p)
#pragma unroll
                for (int l = 0; l < L; l++)
                    other[l * width + of_part] = sum[l];
            __syncthreads();
            if (part == 0)
#pragma unroll
                for (int l = 0; l < L; l++)
                    sum[l] += other[l * width + of_part];
        }
        if (has && part == 0)
            put_coefficients(a, k, L, sum, single);
    }
    share[tid / SPX_RV_LARGE][which] = big;
    __syncthreads();
    if (tid < a.nlarge) {
        big = 0;
        for (int i = 0; i < SHARES; i++)
            big += share[i][tid];
        large[tid] = big;
    }
}

} // namespace rv

#endif
