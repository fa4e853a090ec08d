/* Templates and their derivatives out of principal components: a product on the tensor cores, for CUDA devices; and out
 * of templates themselves where there are no components.
 *
 * Derivatives: single precision is split into two numbers of 8 bits each (BF16), of which the cores take products
 * without rounding and sum in single precision: high * high + high * low + low * high, which leaves out 2^-16. The
 * gradient is 0 where the minimum is: with the high parts alone parameters move by 0.01 of their errors. Values are
 * summed without the tensor cores, whose sums are cut off instead of rounded: at a signal-to-noise ratio of 70 that
 * moved the objective by 6e-4. */
#ifndef SPX_RVFIT_CUDA_COMPONENTS_CUH
#define SPX_RVFIT_CUDA_COMPONENTS_CUH

namespace rv
{

enum {
    DEPTH = 16,                       /* components that are staged at a time */
    COEF_ROW = POINTS + 8,            /* strides in shared memory, without bank conflicts: of a component, or a pair, */
    COEF_LANE = DEPTH / 2 * COEF_ROW, /* and of a lane of derivatives; */
    COMP_ROW = COLUMNS + 4,           /* of a component's samples */
    SPAN = 32,                        /* samples of a warp, with all points of a block */
    NTILE = SPAN / 8,
    COMPONENT_THREADS = COLUMNS / SPAN * 32,
    STAGERS = POINTS * DEPTH / 2 /* threads that have a pair of a point's coefficients each */
};
static_assert(COMPONENT_THREADS % STAGERS == 0, "a group of threads has some of the quarters of all coefficients");
static_assert(DEPTH == 16, "a product of 16 components");

/* Two numbers, of components side by side, and what their high parts leave of them. */
struct halves {
    uint32_t high, low;
};

__device__ inline uint32_t two_bf16(float first, float second)
{
    uint32_t x;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(x) : "f"(second), "f"(first));
    return x;
}

__device__ inline halves split(float first, float second)
{
    halves x;
    x.high = two_bf16(first, second);
    x.low = two_bf16(first - __uint_as_float(x.high << 16), second - __uint_as_float(x.high & 0xffff0000u));
    return x;
}

/* c += a b of 16 x 16 and 16 x 8. */
__device__ inline void mma_bf16(float *c, const uint32_t *a, uint32_t b0, uint32_t b1)
{
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
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
__global__ void __launch_bounds__(COMPONENT_THREADS, L <= 5 ? 3 : 2)
    component_kernel(model m, int npoint, const float *single, const double *large, double *flux, float *slope)
{
    __shared__ float values[DEPTH * COEF_ROW];                  /* coefficients of the values, */
    __shared__ uint32_t as[2][L > 1 ? (L - 1) * COEF_LANE : 1]; /* of derivatives: high, low parts */
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
    /* the next components are on their way while these are summed; a thread has, of a pair of a point's coefficients,
     * some lanes, four at a time */
    constexpr int QUARTERS = (L + 3) / 4, GROUPS = COMPONENT_THREADS / STAGERS, AS = (QUARTERS + GROUPS - 1) / GROUPS;
    constexpr int BS = DEPTH * (COLUMNS / 4) / COMPONENT_THREADS;
    const int p = tid % POINTS, pair = tid % STAGERS / POINTS, quarter = tid / STAGERS;
    float4 next_a[2][AS], next_b[BS];
    auto fetch = [&](int k0) {
#pragma unroll
        for (int j = 0; j < 2; j++)
#pragma unroll
            for (int n = 0; n < AS; n++) {
                const int k = k0 + 2 * pair + j, h = quarter + GROUPS * n;
                next_a[j][n] = point0 + p < npoint && k < a.ncomp && h < QUARTERS
                                   ? *reinterpret_cast<const float4 *>(
                                         single + ((size_t)(point0 + p) * m.ncomp + a.comp0 + k) * LANES + 4 * h)
                                   : make_float4(0, 0, 0, 0);
            }
#pragma unroll
        for (int n = 0; n < BS; n++) {
            const int i = tid + COMPONENT_THREADS * n, k = k0 + i / (COLUMNS / 4), j = i % (COLUMNS / 4);
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
            const float x[2][4] = {{next_a[0][n].x, next_a[0][n].y, next_a[0][n].z, next_a[0][n].w},
                                   {next_a[1][n].x, next_a[1][n].y, next_a[1][n].z, next_a[1][n].w}};
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const int l = 4 * (quarter + GROUPS * n) + i, to = (l - 1) * COEF_LANE + pair * COEF_ROW + p;
                if (l == 0) {
                    values[2 * pair * COEF_ROW + p] = x[0][i];
                    values[(2 * pair + 1) * COEF_ROW + p] = x[1][i];
                } else if (l < L) {
                    const halves both = split(x[0][i], x[1][i]);
                    as[0][to] = both.high;
                    as[1][to] = both.low;
                }
            }
        }
#pragma unroll
        for (int n = 0; n < BS; n++) {
            const int i = tid + COMPONENT_THREADS * n;
            *reinterpret_cast<float4 *>(&bs[i / (COLUMNS / 4) * COMP_ROW + 4 * (i % (COLUMNS / 4))]) = next_b[n];
        }
        __syncthreads();
        if (k0 + DEPTH < a.ncomp)
            fetch(k0 + DEPTH);
#pragma unroll 4
        for (int k = 0; k < DEPTH; k++) {
            const float x0 = values[k * COEF_ROW + row], x1 = values[k * COEF_ROW + row + 8];
#pragma unroll
            for (int n = 0; n < NTILE; n++) {
                const float2 b = *reinterpret_cast<const float2 *>(&bs[k * COMP_ROW + warp * SPAN + n * 8 + 2 * at]);
                c[0][n][0] = fmaf(x0, b.x, c[0][n][0]);
                c[0][n][1] = fmaf(x0, b.y, c[0][n][1]);
                c[0][n][2] = fmaf(x1, b.x, c[0][n][2]);
                c[0][n][3] = fmaf(x1, b.y, c[0][n][3]);
            }
        }
        if constexpr (L > 1) {
            halves b[NTILE][2];
#pragma unroll
            for (int n = 0; n < NTILE; n++)
#pragma unroll
                for (int j = 0; j < 2; j++) {
                    const float *from = &bs[(2 * at + 8 * j) * COMP_ROW + warp * SPAN + n * 8 + row];
                    b[n][j] = split(from[0], from[COMP_ROW]);
                }
#pragma unroll
            for (int l = 1; l < L; l++) {
                uint32_t high[4], low[4];
#pragma unroll
                for (int j = 0; j < 4; j++) {
                    const int from = (l - 1) * COEF_LANE + (at + j / 2 * 4) * COEF_ROW + row + j % 2 * 8;
                    high[j] = as[0][from];
                    low[j] = as[1][from];
                }
#pragma unroll
                for (int n = 0; n < NTILE; n++)
                    mma_bf16(c[l][n], high, b[n][0].high, b[n][1].high);
#pragma unroll
                for (int n = 0; n < NTILE; n++)
                    mma_bf16(c[l][n], high, b[n][0].low, b[n][1].low);
#pragma unroll
                for (int n = 0; n < NTILE; n++)
                    mma_bf16(c[l][n], low, b[n][0].high, b[n][1].high);
            }
        }
    }
    /* a thread has samples 2 at and 2 at + 1 of each tile, of the points `row` and `row` + 8 */
    double big[2][SPX_RV_LARGE];
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const int point = min(point0 + row + 8 * half, npoint - 1);
        const double *from = large + ((size_t)point * m.narm + blockIdx.z) * SPX_RV_LARGE;
#pragma unroll
        for (int k = 0; k < SPX_RV_LARGE; k++)
            big[half][k] = k < a.nlarge ? from[k] : 0;
    }
#pragma unroll
    for (int n = 0; n < NTILE; n++) {
        const int column = column0 + warp * SPAN + n * 8 + 2 * at;
        double v[2][2];
#pragma unroll
        for (int j = 0; j < 4; j++)
            v[j / 2][j % 2] = (double)c[0][n][j];
#pragma unroll
        for (int k = 0; k < SPX_RV_LARGE; k++)
            if (k < a.nlarge) {
                const float2 e = *reinterpret_cast<const float2 *>(a.comp + (size_t)k * a.columns + column);
                const double e0 = (double)e.x, e1 = (double)e.y;
#pragma unroll
                for (int half = 0; half < 2; half++) {
                    v[half][0] = fma(big[half][k], e0, v[half][0]);
                    v[half][1] = fma(big[half][k], e1, v[half][1]);
                }
            }
        const double2 mean = *reinterpret_cast<const double2 *>(a.mean + column);
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const int point = point0 + row + 8 * half;
            if (point >= npoint)
                continue;
            double d0, d1;
            const double f0 = flux_of(a, v[half][0] + mean.x, &d0), f1 = flux_of(a, v[half][1] + mean.y, &d1);
            *reinterpret_cast<double2 *>(flux + (size_t)point * m.samples + a.sample0 + column) = make_double2(f0, f1);
            float *s = slope + (size_t)point * (L - 1) * m.samples + a.sample0 + column;
            const float g0 = (float)d0, g1 = (float)d1;
#pragma unroll
            for (int l = 1; l < L; l++)
                *reinterpret_cast<float2 *>(s + (size_t)(l - 1) * m.samples) =
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
        const int n = min((int)NODES, nnode - n0);
        __syncthreads();
        for (int i = (int)threadIdx.x; i < n; i += (int)blockDim.x)
            row[i] = node_weights<L>(m, a, s, n0 + i, weight + i * L);
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
