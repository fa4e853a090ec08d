/* Coefficients of the templates' components and weights of the rotation kernel, for CUDA devices. */
#ifndef SPX_RVFIT_CUDA_COEFFICIENTS_CUH
#define SPX_RVFIT_CUDA_COEFFICIENTS_CUH

#include "rvfit/cuda/grid.cuh"

namespace rv
{

enum {
    NODES = 128,  /* templates whose weights are in shared memory at a time */
    THREADS = 192 /* of a block that makes coefficients */
};

__device__ inline double half_width(const arm &a, double vsini)
{
    return fmin(vsini / (SPX_C_KMS * a.dlnwave), (double)MAX_REACH - 4);
}

/* Weights of nodes n0 ... n0+n-1 of the stencil, [n][lanes], and their rows of the arm. */
template <int L>
__device__ inline void expand(const model &m, const arm &a, const spx_rv_stencil &s, int n0, int n, double *weight,
                              int *row)
{
    for (int k = (int)threadIdx.x; k < n; k += (int)blockDim.x) {
        int node, left = n0 + k;
        double w[L];
        if (m.interpolator == SPX_INTERPOLATE_SIMPLEX) {
            node = s.corner[left];
#pragma unroll
            for (int l = 0; l < L; l++)
                w[l] = s.weight[left * m.lanes + l];
        } else {
            node = s.base;
#pragma unroll
            for (int l = 0; l < L; l++)
                w[l] = 1;
            for (int g = m.ng - 1; g >= 0; g--) {
                const int j = left % s.count[g];
                left /= s.count[g];
                node += j * m.step[g];
#pragma unroll
                for (int l = 0; l < L; l++)
                    w[l] *= l == 1 + g ? s.slope[g][j] : s.value[g][j];
            }
        }
        row[k] = a.node != nullptr ? a.node[node] : node;
#pragma unroll
        for (int l = 0; l < L; l++)
            weight[k * L + l] = w[l];
    }
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

/* Coefficients of component k: lanes in single precision, the value of the first nlarge in double. */
__device__ inline void put_coefficients(const arm &a, int k, int lanes, const double *sum, float *single, double *large)
{
    const bool big = k < a.nlarge;
    if (big)
        large[k] = sum[0];
    for (int l = 0; l < LANES; l++)
        single[(size_t)k * LANES + l] = l < lanes && !(big && l == 0) ? (float)sum[l] : 0;
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
                put_coefficients(a, i, lanes, sum, single, large);
            }
        }
        __syncthreads();
        w += (size_t)nin * nout;
        b += nout;
    }
}

/* Block (point, arm): coefficients of the components, and the rotation kernel: rotation[2][1+reach] of the point and
 * arm. L: lanes. */
template <int L>
__global__ void __launch_bounds__(THREADS) coefficient_kernel(model m, const spx_rv_stencil *stencils, float *single,
                                                              double *large, double *rotation, double *work)
{
    __shared__ double weight[NODES * L];
    __shared__ int row[NODES];
    const arm &a = m.arms[blockIdx.y];
    const spx_rv_stencil &s = stencils[blockIdx.x];
    const size_t point = blockIdx.x;
    single += (point * m.ncomp + a.comp0) * LANES;
    large += (point * m.narm + blockIdx.y) * SPX_RV_LARGE;
    rotation += (point * m.narm + blockIdx.y) * 2 * (m.reach + 1);
    const double h = half_width(a, s.vsini);
    const int reach = (int)spx_rotation_reach(h);
    for (int k = (int)threadIdx.x; k <= reach; k += (int)blockDim.x)
        rotation[k] = rotation_weight(m.interpolator, k, h, &rotation[m.reach + 1 + k]);
    if (m.interpolator == SPX_INTERPOLATE_NN) {
        network(m, a, s, L, work + (point * m.narm + blockIdx.y) * 2 * m.width * (size_t)L, single, large);
        return;
    }
    /* where the components are few, groups of threads have a part of the nodes each */
    const int width = min((a.ncomp + 31) / 32 * 32, (int)THREADS), parts = THREADS / width;
    const int part = (int)threadIdx.x / width, of_part = (int)threadIdx.x % width;
    const int nnode = count_nodes(m, s);
    for (int k0 = 0; k0 < a.ncomp; k0 += width) {
        const int k = k0 + of_part;
        const bool has = k < a.ncomp && part < parts, large_one = k < a.nlarge;
        double sum[L];
#pragma unroll
        for (int l = 0; l < L; l++)
            sum[l] = 0;
        for (int n0 = 0; n0 < nnode; n0 += NODES) {
            const int n = min(NODES, nnode - n0);
            __syncthreads();
            expand<L>(m, a, s, n0, n, weight, row);
            __syncthreads();
            if (has) {
#pragma unroll 16
                for (int i = n * part / parts; i < n * (part + 1) / parts; i++) { /* many loads are on their way */
                    double c = (double)__ldg(a.coef + (size_t)row[i] * a.ncomp + k);
                    if (large_one)
                        c += (double)__ldg(a.rest + (size_t)row[i] * a.nlarge + k);
#pragma unroll
                    for (int l = 0; l < L; l++)
                        sum[l] = fma(weight[i * L + l], c, sum[l]);
                }
            }
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
            put_coefficients(a, k, L, sum, single, large);
    }
}

} // namespace rv

#endif
