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
    VALUE_ROW = DEPTH + 4,            /* strides in shared memory, without bank conflicts: of a point's values, */
    COEF_ROW = POINTS + 8,            /* of a pair of components, */
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

/* Sample, from the first of a warp on, of column j of tile n of the products: a thread, which has columns 2 at and
 * 2 at + 1 of each, so has four samples side by side of two tiles. */
__device__ inline int sample_of(int n, int j)
{
    return n / 2 * 16 + j / 2 * 4 + n % 2 * 2 + j % 2;
}

/* Tile of POINTS x COLUMNS of the templates of arm blockIdx.z: flux[point][samples], slope[point][lanes-1][samples]. */
template <int L>
__global__ void __launch_bounds__(COMPONENT_THREADS, L <= 5 ? 3 : 2)
    component_kernel(model m, int npoint, const float *single, const double *large, double *flux, float *slope)
{
    __shared__ __align__(16) float values[POINTS * VALUE_ROW];  /* coefficients of the values, */
    __shared__ uint32_t as[2][L > 1 ? (L - 1) * COEF_LANE : 1]; /* of derivatives: high, low parts */
    __shared__ __align__(16) float bs[DEPTH * COMP_ROW];
    const arm &a = m.arms[blockIdx.z];
    const int column0 = (int)blockIdx.x * COLUMNS, point0 = (int)blockIdx.y * POINTS, columns = a.columns;
    const float *comp = a.comp;
    if (column0 >= columns || comp == nullptr)
        return;
    const int ncomp = a.ncomp, nlarge = a.nlarge;
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
    constexpr int QUARTERS = (L + 3) / 4, GROUPS_OF = COMPONENT_THREADS / STAGERS,
                  AS = (QUARTERS + GROUPS_OF - 1) / GROUPS_OF;
    constexpr int ROWS_OF = COMPONENT_THREADS / (COLUMNS / 4), BS = DEPTH / ROWS_OF;
    const int p = tid % POINTS, pair = tid % STAGERS / POINTS, quarter = tid / STAGERS;
    const float *from_a = single + coefficient_place(m, (size_t)(point0 + p), a.comp0 + 2 * pair);
    const float *from_b = comp + (size_t)(tid / (COLUMNS / 4)) * columns + column0 + 4 * (tid % (COLUMNS / 4));
    float4 next_a[2][AS], next_b[BS];
    auto fetch = [&](int k0) {
#pragma unroll
        for (int j = 0; j < 2; j++)
#pragma unroll
            for (int n = 0; n < AS; n++) {
                const int h = quarter + GROUPS_OF * n;
                next_a[j][n] = point0 + p < npoint && k0 + 2 * pair + j < ncomp && h < QUARTERS
                                   ? __ldg(reinterpret_cast<const float4 *>(from_a + j * POINTS * LANES + 4 * h))
                                   : make_float4(0, 0, 0, 0);
            }
#pragma unroll
        for (int n = 0; n < BS; n++)
            next_b[n] = k0 + tid / (COLUMNS / 4) + ROWS_OF * n < ncomp
                            ? __ldg(reinterpret_cast<const float4 *>(from_b + (size_t)(ROWS_OF * n) * columns))
                            : make_float4(0, 0, 0, 0);
        from_a += DEPTH * POINTS * LANES;
        from_b += (size_t)DEPTH * columns;
    };
    fetch(0);
    for (int k0 = 0; k0 < ncomp; k0 += DEPTH) {
        __syncthreads();
#pragma unroll
        for (int n = 0; n < AS; n++) {
            const float x[2][4] = {{next_a[0][n].x, next_a[0][n].y, next_a[0][n].z, next_a[0][n].w},
                                   {next_a[1][n].x, next_a[1][n].y, next_a[1][n].z, next_a[1][n].w}};
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const int l = 4 * (quarter + GROUPS_OF * n) + i, to = (l - 1) * COEF_LANE + pair * COEF_ROW + p;
                if (l == 0) {
                    *reinterpret_cast<float2 *>(&values[p * VALUE_ROW + 2 * pair]) = make_float2(x[0][i], x[1][i]);
                } else if (l < L) {
                    const halves both = split(x[0][i], x[1][i]);
                    as[0][to] = both.high;
                    as[1][to] = both.low;
                }
            }
        }
#pragma unroll
        for (int n = 0; n < BS; n++)
            *reinterpret_cast<float4 *>(
                &bs[(tid / (COLUMNS / 4) + ROWS_OF * n) * COMP_ROW + 4 * (tid % (COLUMNS / 4))]) = next_b[n];
        __syncthreads();
        if (k0 + DEPTH < ncomp)
            fetch(k0 + DEPTH);
#pragma unroll
        for (int k = 0; k < DEPTH; k += 4) {
            const float4 x0 = *reinterpret_cast<const float4 *>(&values[row * VALUE_ROW + k]);
            const float4 x1 = *reinterpret_cast<const float4 *>(&values[(row + 8) * VALUE_ROW + k]);
            const float of_row[4] = {x0.x, x0.y, x0.z, x0.w}, of_other[4] = {x1.x, x1.y, x1.z, x1.w};
#pragma unroll
            for (int i = 0; i < 4; i++)
#pragma unroll
                for (int n = 0; n < NTILE; n += 2) {
                    const float4 b =
                        *reinterpret_cast<const float4 *>(&bs[(k + i) * COMP_ROW + warp * SPAN + sample_of(n, 2 * at)]);
                    c[0][n][0] = fmaf(of_row[i], b.x, c[0][n][0]);
                    c[0][n][1] = fmaf(of_row[i], b.y, c[0][n][1]);
                    c[0][n][2] = fmaf(of_other[i], b.x, c[0][n][2]);
                    c[0][n][3] = fmaf(of_other[i], b.y, c[0][n][3]);
                    c[0][n + 1][0] = fmaf(of_row[i], b.z, c[0][n + 1][0]);
                    c[0][n + 1][1] = fmaf(of_row[i], b.w, c[0][n + 1][1]);
                    c[0][n + 1][2] = fmaf(of_other[i], b.z, c[0][n + 1][2]);
                    c[0][n + 1][3] = fmaf(of_other[i], b.w, c[0][n + 1][3]);
                }
        }
        if constexpr (L > 1) {
            halves b[NTILE][2];
#pragma unroll
            for (int n = 0; n < NTILE; n++)
#pragma unroll
                for (int j = 0; j < 2; j++) {
                    const float *from = &bs[(2 * at + 8 * j) * COMP_ROW + warp * SPAN + sample_of(n, row)];
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
    /* a thread has four samples side by side of tiles n and n + 1, of the points `row` and `row` + 8 */
    const double *of_row[2];
#pragma unroll
    for (int half = 0; half < 2; half++)
        of_row[half] = large + ((size_t)min(point0 + row + 8 * half, npoint - 1) * m.narm + blockIdx.z) * SPX_RV_LARGE;
#pragma unroll
    for (int n = 0; n < NTILE; n += 2) {
        const int column = column0 + warp * SPAN + sample_of(n, 2 * at);
        double v[2][4];
#pragma unroll
        for (int half = 0; half < 2; half++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                v[half][i] = (double)c[0][n + i / 2][2 * half + i % 2];
#pragma unroll
        for (int k = 0; k < SPX_RV_LARGE; k++)
            if (k < nlarge) {
                const float4 e = __ldg(reinterpret_cast<const float4 *>(comp + (size_t)k * columns + column));
                const double each[4] = {(double)e.x, (double)e.y, (double)e.z, (double)e.w};
#pragma unroll
                for (int half = 0; half < 2; half++) {
                    const double big = __ldg(of_row[half] + k);
#pragma unroll
                    for (int i = 0; i < 4; i++)
                        v[half][i] = fma(big, each[i], v[half][i]);
                }
            }
        double mean[4];
#pragma unroll
        for (int i = 0; i < 4; i += 2) {
            const double2 two = __ldg(reinterpret_cast<const double2 *>(a.mean + column + i));
            mean[i] = two.x;
            mean[i + 1] = two.y;
        }
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const int point = point0 + row + 8 * half;
            if (point >= npoint)
                continue;
            double f[4], d[4];
#pragma unroll
            for (int i = 0; i < 4; i++)
                f[i] = flux_of(a, v[half][i] + mean[i], &d[i]);
            double *to = flux + (size_t)point * m.samples + a.sample0 + column;
            *reinterpret_cast<double2 *>(to) = make_double2(f[0], f[1]);
            *reinterpret_cast<double2 *>(to + 2) = make_double2(f[2], f[3]);
            float *s = slope + (size_t)point * (L - 1) * m.samples + a.sample0 + column;
#pragma unroll
            for (int l = 1; l < L; l++)
                *reinterpret_cast<float4 *>(s + (size_t)(l - 1) * m.samples) =
                    make_float4((float)d[0] * c[l][n][2 * half], (float)d[1] * c[l][n][2 * half + 1],
                                (float)d[2] * c[l][n + 1][2 * half], (float)d[3] * c[l][n + 1][2 * half + 1]);
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
