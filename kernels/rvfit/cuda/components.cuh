/* Templates and their derivatives out of principal components: a product on the tensor cores, for CUDA devices; and out
 * of templates themselves where there are no components.
 *
 * Single precision is split into two numbers of 11 bits each (TF32), of which the cores take products without rounding
 * and sum in single precision: high * high + high * low + low * high, which leaves out 2^-22. Derivatives need that:
 * where the gradient is 0 is where the minimum is. Values are summed without the tensor cores, whose sums are cut off
 * instead of rounded: at a signal-to-noise ratio of 70 that moved the objective by 6e-4. */
#ifndef SPX_RVFIT_CUDA_COMPONENTS_CUH
#define SPX_RVFIT_CUDA_COMPONENTS_CUH

namespace rv
{

enum {
    DEPTH = 16,                       /* components that are staged at a time */
    COEF_ROW = POINTS + 8,            /* strides in shared memory, without bank conflicts: of a component, */
    COEF_LANE = DEPTH * COEF_ROW + 4, /* and of a lane of coefficients; */
    COMP_ROW = COLUMNS + 8,           /* of a component's samples */
    SPAN = 32,                        /* samples of a warp */
    NTILE = SPAN / 8
};
static_assert(POINTS == 16 && SPAN * 4 == COLUMNS, "a warp has all points of a block and a quarter of its samples");

/* The high part of x, rounded; x - high is exact. */
__device__ inline uint32_t high_part(float x)
{
    return (__float_as_uint(x) + 0x1000u) & 0xffffe000u;
}

__device__ inline uint32_t low_part(float x, uint32_t high)
{
    return __float_as_uint(x - __uint_as_float(high));
}

/* c += a b of 16 x 8 and 8 x 8. */
__device__ inline void mma_tf32(float *c, const uint32_t *a, const uint32_t *b)
{
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
                 "{%0,%1,%2,%3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

/* Flux of a template whose components are those of flux itself; less has no logarithm. */
#define LEAST_FLUX 1e-10

/* Template `value` (ln, or flux) and its derivatives by the axes, which are slope[l] times it. */
__device__ inline double flux_of(const arm &a, double value, double *factor)
{
    if (a.of_flux) {
        *factor = value > LEAST_FLUX;
        return fmax(value, LEAST_FLUX);
    }
    return *factor = exp(fmax(-300.0, fmin(300.0, value)));
}

/* Tile of POINTS x COLUMNS of the templates of arm blockIdx.z: flux[point][samples], slope[point][lanes-1][samples]. */
template <int L>
__global__ void __launch_bounds__(128, L <= 5 ? 3 : 2)
    component_kernel(model m, int npoint, const float *single, const double *large, double *flux, float *slope)
{
    __shared__ uint32_t as[2][L * COEF_LANE]; /* high, low; of the values, lane 0, all in the first */
    __shared__ __align__(16) float bs[DEPTH * COMP_ROW];
    const arm &a = m.arms[blockIdx.z];
    const int column0 = (int)blockIdx.x * COLUMNS, point0 = (int)blockIdx.y * POINTS;
    if (column0 >= a.columns || a.comp == nullptr)
        return;
    const int tid = (int)threadIdx.x, warp = tid / 32, row = tid % 32 / 4, at = tid % 4;
    float c[L][NTILE][4];
#pragma unroll
    for (int l = 0; l < L; l++)
#pragma unroll
        for (int n = 0; n < NTILE; n++)
#pragma unroll
            for (int j = 0; j < 4; j++)
                c[l][n][j] = 0;
    /* the next components are on their way while these are summed */
    constexpr int HALVES = L > 4 ? 2 : 1, AS = POINTS * DEPTH * HALVES / 128, BS = DEPTH * (COLUMNS / 4) / 128;
    float4 next_a[AS], next_b[BS];
    auto fetch = [&](int k0) {
#pragma unroll
        for (int n = 0; n < AS; n++) {
            const int i = tid + 128 * n, p = i % POINTS, k = k0 + i / POINTS / HALVES, h = i / POINTS % HALVES;
            next_a[n] = point0 + p < npoint && k < a.ncomp
                            ? *reinterpret_cast<const float4 *>(
                                  single + ((size_t)(point0 + p) * m.ncomp + a.comp0 + k) * LANES + 4 * h)
                            : make_float4(0, 0, 0, 0);
        }
#pragma unroll
        for (int n = 0; n < BS; n++) {
            const int i = tid + 128 * n, k = k0 + i / (COLUMNS / 4), j = i % (COLUMNS / 4);
            next_b[n] = k < a.ncomp
                            ? *reinterpret_cast<const float4 *>(a.comp + (size_t)k * a.columns + column0 + 4 * j)
                            : make_float4(0, 0, 0, 0);
        }
    };
    fetch(0);
    for (int k0 = 0; k0 < a.ncomp; k0 += DEPTH) {
        __syncthreads();
#pragma unroll
        for (int n = 0; n < AS; n++) {
            const int i = tid + 128 * n, p = i % POINTS, k = i / POINTS / HALVES, h = i / POINTS % HALVES;
            const float x[4] = {next_a[n].x, next_a[n].y, next_a[n].z, next_a[n].w};
#pragma unroll
            for (int j = 0; j < 4; j++)
                if (h + j == 0) {
                    as[0][k * COEF_ROW + p] = __float_as_uint(x[0]);
                } else if (4 * h + j < L) {
                    const uint32_t high = high_part(x[j]);
                    const int to = (4 * h + j) * COEF_LANE + k * COEF_ROW + p;
                    as[0][to] = high;
                    as[1][to] = low_part(x[j], high);
                }
        }
#pragma unroll
        for (int n = 0; n < BS; n++) {
            const int i = tid + 128 * n;
            *reinterpret_cast<float4 *>(&bs[i / (COLUMNS / 4) * COMP_ROW + 4 * (i % (COLUMNS / 4))]) = next_b[n];
        }
        __syncthreads();
        if (k0 + DEPTH < a.ncomp)
            fetch(k0 + DEPTH);
#pragma unroll 4
        for (int k = 0; k < DEPTH; k++) {
            const float x0 = __uint_as_float(as[0][k * COEF_ROW + row]);
            const float x1 = __uint_as_float(as[0][k * COEF_ROW + row + 8]);
#pragma unroll
            for (int n = 0; n < NTILE; n++) {
                const float2 b = *reinterpret_cast<const float2 *>(&bs[k * COMP_ROW + warp * SPAN + n * 8 + 2 * at]);
                c[0][n][0] = fmaf(x0, b.x, c[0][n][0]);
                c[0][n][1] = fmaf(x0, b.y, c[0][n][1]);
                c[0][n][2] = fmaf(x1, b.x, c[0][n][2]);
                c[0][n][3] = fmaf(x1, b.y, c[0][n][3]);
            }
        }
#pragma unroll
        for (int k = 0; k < DEPTH && L > 1; k += 8) {
            uint32_t high[NTILE][2], low[NTILE][2];
#pragma unroll
            for (int n = 0; n < NTILE; n++)
#pragma unroll
                for (int j = 0; j < 2; j++) {
                    const float b = bs[(k + at + 4 * j) * COMP_ROW + warp * SPAN + n * 8 + row];
                    high[n][j] = high_part(b);
                    low[n][j] = low_part(b, high[n][j]);
                }
#pragma unroll
            for (int l = 1; l < L; l++)
#pragma unroll
                for (int part = 0; part < 2; part++) {
                    const uint32_t *p = &as[part][l * COEF_LANE + (k + at) * COEF_ROW + row];
                    const uint32_t x[4] = {p[0], p[8], p[4 * COEF_ROW], p[4 * COEF_ROW + 8]};
#pragma unroll
                    for (int n = 0; n < NTILE; n++)
                        mma_tf32(c[l][n], x, high[n]);
                    if (part == 0)
#pragma unroll
                        for (int n = 0; n < NTILE; n++)
                            mma_tf32(c[l][n], x, low[n]);
                }
        }
    }
    /* a thread has samples 2 at and 2 at + 1 of each tile, of the points `row` and `row` + 8 */
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const int point = point0 + row + 8 * half;
        if (point >= npoint)
            continue;
        const double *from = large + ((size_t)point * m.narm + blockIdx.z) * SPX_RV_LARGE;
        double big[SPX_RV_LARGE];
#pragma unroll
        for (int k = 0; k < SPX_RV_LARGE; k++)
            big[k] = k < a.nlarge ? from[k] : 0;
        double *f = flux + (size_t)point * m.samples + a.sample0;
        float *s = slope + (size_t)point * (L - 1) * m.samples + a.sample0;
#pragma unroll
        for (int n = 0; n < NTILE; n++) {
            const int column = column0 + warp * SPAN + n * 8 + 2 * at;
            double v0 = (double)c[0][n][2 * half], v1 = (double)c[0][n][2 * half + 1], d0, d1;
#pragma unroll
            for (int k = 0; k < SPX_RV_LARGE; k++)
                if (k < a.nlarge) {
                    const float2 e = *reinterpret_cast<const float2 *>(a.comp + (size_t)k * a.columns + column);
                    v0 = fma(big[k], (double)e.x, v0);
                    v1 = fma(big[k], (double)e.y, v1);
                }
            const double2 mean = *reinterpret_cast<const double2 *>(a.mean + column);
            v0 = flux_of(a, v0 + mean.x, &d0);
            v1 = flux_of(a, v1 + mean.y, &d1);
            *reinterpret_cast<double2 *>(f + column) = make_double2(v0, v1);
            const float g0 = (float)d0, g1 = (float)d1;
#pragma unroll
            for (int l = 1; l < L; l++)
                *reinterpret_cast<float2 *>(s + (size_t)(l - 1) * m.samples + column) =
                    make_float2(g0 * c[l][n][2 * half], g1 * c[l][n][2 * half + 1]);
        }
    }
}

/* The same from the templates themselves, for arms without components; block (samples, point, arm). */
template <int L>
__global__ void __launch_bounds__(128)
    template_kernel(model m, const spx_rv_stencil *stencils, double *flux, float *slope)
{
    __shared__ double weight[NODES * L];
    __shared__ int row[NODES];
    const arm &a = m.arms[blockIdx.z];
    const int column = (int)(blockIdx.x * 128 + threadIdx.x);
    if ((int)blockIdx.x * 128 >= a.columns || a.comp != nullptr)
        return;
    const size_t point = blockIdx.y;
    const spx_rv_stencil &s = stencils[point];
    double sum[L] = {0}, factor;
    const int nnode = count_nodes(m, s);
    for (int n0 = 0; n0 < nnode; n0 += NODES) {
        const int n = min(NODES, nnode - n0);
        __syncthreads();
        expand<L>(m, a, s, n0, n, weight, row);
        __syncthreads();
        for (int i = 0; i < n && column < a.nt; i++) {
            const double f = (double)a.lnflux[(size_t)row[i] * a.nt + column];
#pragma unroll
            for (int l = 0; l < L; l++)
                sum[l] = fma(weight[i * L + l], f, sum[l]);
        }
    }
    flux[point * m.samples + a.sample0 + column] = flux_of(a, sum[0], &factor);
#pragma unroll
    for (int l = 1; l < L; l++)
        slope[(point * (L - 1) + (l - 1)) * m.samples + a.sample0 + column] = (float)(factor * sum[l]);
}

} // namespace rv

#endif
