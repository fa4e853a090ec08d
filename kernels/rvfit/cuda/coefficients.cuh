/* Coefficients of the templates' components and weights of the rotation kernel, for CUDA devices. */
#ifndef SPX_RVFIT_CUDA_COEFFICIENTS_CUH
#define SPX_RVFIT_CUDA_COEFFICIENTS_CUH

#include "rvfit/cuda/grid.cuh"

namespace rv
{

enum {
    NODES = 256,  /* templates whose weights are in shared memory at a time */
    THREADS = 192 /* of a block that makes coefficients */
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

/* Coefficients of component k in single precision; 0 takes the place of a value that is kept in double. */
template <typename T>
__device__ inline void put_coefficients(const arm &a, int k, int lanes, const T *sum, float *single)
{
    for (int l = 0; l < LANES; l++)
        single[(size_t)k * LANES + l] = l < lanes && !(k < a.nlarge && l == 0) ? (float)sum[l] : 0;
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

/* Block (point, arm): coefficients of the components, and the rotation kernel: rotation[2][1+reach] of the point and
 * arm. L: lanes. Sums are in single precision, as on the CPU, and in double those of the values of the components that
 * are large, each of which several threads share. */
template <int L>
__global__ void __launch_bounds__(THREADS) coefficient_kernel(model m, const spx_rv_stencil *stencils, float *single,
                                                              double *large, double *rotation, double *work)
{
    constexpr int STRIDE = L <= 4 ? 4 : 8, SHARES = THREADS / SPX_RV_LARGE;
    __shared__ __align__(16) float weight[NODES * STRIDE];
    __shared__ double value[NODES], share[SHARES][SPX_RV_LARGE];
    __shared__ unsigned row[NODES];
    const arm &a = m.arms[blockIdx.y];
    const spx_rv_stencil &s = stencils[blockIdx.x];
    const size_t point = blockIdx.x;
    const int tid = (int)threadIdx.x;
    single += (point * m.ncomp + a.comp0) * LANES;
    large += (point * m.narm + blockIdx.y) * SPX_RV_LARGE;
    rotation += (point * m.narm + blockIdx.y) * 2 * (m.reach + 1);
    rotation_weights(m.interpolator, half_width(a, s.vsini), rotation, rotation + m.reach + 1);
    if (m.interpolator == SPX_INTERPOLATE_NN) {
        network(m, a, s, L, work + (point * m.narm + blockIdx.y) * 2 * m.width * (size_t)L, single, large);
        return;
    }
    /* where the components are few, groups of threads have a part of the nodes each */
    const int width = min((a.ncomp + 31) / 32 * 32, (int)THREADS), parts = THREADS / width;
    const int part = tid / width, of_part = tid % width;
    const int nnode = count_nodes(m, s), which = tid % SPX_RV_LARGE;
    double big = 0;
    for (int k0 = 0; k0 < a.ncomp; k0 += width) {
        const int k = k0 + of_part;
        const bool has = k < a.ncomp && part < parts;
        float sum[L];
#pragma unroll
        for (int l = 0; l < L; l++)
            sum[l] = 0;
        for (int n0 = 0; n0 < nnode; n0 += NODES) {
            const int n = min((int)NODES, nnode - n0);
            __syncthreads();
            for (int i = tid; i < n; i += THREADS) {
                double w[L];
                row[i] = (unsigned)node_weights<L>(m, a, s, n0 + i, w);
                value[i] = w[0];
#pragma unroll
                for (int l = 0; l < L; l++)
                    weight[i * STRIDE + l] = (float)w[l];
            }
            __syncthreads();
            if (has) {
                const char *from = reinterpret_cast<const char *>(a.coef + k);
                const unsigned bytes = (unsigned)(a.ncomp * sizeof(float));
#pragma unroll 16
                for (int i = n * part / parts; i < n * (part + 1) / parts; i++) { /* many loads are on their way */
                    const float c = __ldg(reinterpret_cast<const float *>(from + (size_t)row[i] * bytes));
                    float w[STRIDE];
#pragma unroll
                    for (int l = 0; l < L / 4 * 4; l += 4)
                        *reinterpret_cast<float4 *>(w + l) = *reinterpret_cast<const float4 *>(weight + i * STRIDE + l);
#pragma unroll
                    for (int l = L / 4 * 4; l < L; l++)
                        w[l] = weight[i * STRIDE + l];
#pragma unroll
                    for (int l = 0; l < L; l++)
                        sum[l] = fmaf(w[l], c, sum[l]);
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
                    weight[l * width + of_part] = sum[l];
            __syncthreads();
            if (part == 0)
#pragma unroll
                for (int l = 0; l < L; l++)
                    sum[l] += weight[l * width + of_part];
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
