/* Provides the deconvolved flux: M x = y by conjugate gradients, preconditioned with the fibres' own blocks. */
#ifndef SPX_EXTRACT_CUDA_CG_CUH
#define SPX_EXTRACT_CUDA_CG_CUH

#include "extract/cuda/band.cuh"

namespace
{

/* What an inner product is for: r z of the start, d M d for the length of a step, r z for the next direction. */
enum { START, STEP, NEXT };

/* Whether an iteration has not reached what is enough. */
__device__ __host__ inline bool is_above_limit(const double *scalar)
{
    return scalar[RZ] > scalar[ENOUGH];
}

/* The iteration for a bundle, or for a run of its bins. */
struct iteration {
    double *parts;  /* of an inner product */
    int *ready;     /* how many of these are there */
    double *scalar; /* [SCALARS]; one that is done has alpha = beta = 0 */
    int *bad;       /* gets BAD_SOLVE */
    double tolerance;
    bool coupled; /* what is enough is smaller where fibres are coupled: see iterate() of the CPU */
};

__device__ iteration of_bundle(const params &k, int b)
{
    return {k.part + (size_t)b * dot_parts(k), &k.ready[b], k.scalar + SCALARS * b, &k.bad[b], k.tolerance, true};
}

/* Scalars from an inner product. */
__device__ void advance(const iteration &of, int what, double sum)
{
    double *s = of.scalar;
    const double square = of.tolerance * of.tolerance;
    if (what == START) {
        s[RZ] = sum;
        s[ROUNDING] = 1e-26 * sum;
        s[ENOUGH] = fmax(square, s[ROUNDING]);
        s[ALPHA] = s[BETA] = 0.0;
    } else if (what == STEP) {
        s[ALPHA] = 0.0;
        if (s[RZ] > s[ENOUGH]) {
            if (sum > 0.0 && isfinite(sum))
                s[ALPHA] = s[RZ] / sum;
            else
                atomicOr(of.bad, BAD_SOLVE);
            if (of.coupled && s[ALPHA] > 1.0)
                s[ENOUGH] = fmin(s[ENOUGH], fmax(square / (s[ALPHA] * s[ALPHA]), s[ROUNDING]));
        }
    } else {
        s[BETA] = s[RZ] > s[ENOUGH] && s[ALPHA] != 0.0 ? sum / s[RZ] : 0.0;
        if (s[ALPHA] != 0.0)
            s[RZ] = sum;
    }
}

/* An inner product, of which each of `count` blocks has part `at`: the last that is ready adds them up, in their order,
 * and goes on with it. */
__device__ void add_up(const iteration &of, int at, int count, double part, int what)
{
    __shared__ bool last;
    if (threadIdx.x == 0) {
        of.parts[at] = part;
        __threadfence();
        last = atomicAdd(of.ready, 1) == count - 1;
    }
    __syncthreads();
    if (!last || threadIdx.x >= WARP)
        return;
    __threadfence();
    double sum = 0.0;
    for (int i = threadIdx.x; i < count; i += WARP)
        sum += ((volatile double *)of.parts)[i];
    sum = warp_sum(sum);
    if (threadIdx.x == 0) {
        *of.ready = 0;
        advance(of, what, sum);
    }
}

/* Sum over `n` elements of M times elements of d. */
__device__ double along(const double *mat, ptrdiff_t next, const double *d, ptrdiff_t next_d, int n)
{
    enum { ASKED = 8 }; /* on their way before one is used */
    double sum = 0.0, m[ASKED], v[ASKED];
    int j = 0;
    for (; j + ASKED <= n; j += ASKED) {
#pragma unroll
        for (int i = 0; i < ASKED; i++, mat += next, d += next_d) {
            m[i] = *mat;
            v[i] = *d;
        }
#pragma unroll
        for (int i = 0; i < ASKED; i++)
            sum = fma(m[i], v[i], sum);
    }
    if (j < n) {
#pragma unroll
        for (int i = 0; i < ASKED - 1; i++, mat += next, d += next_d) {
            m[i] = j + i < n ? *mat : 0.0;
            v[i] = j + i < n ? *d : 0.0;
        }
#pragma unroll
        for (int i = 0; i < ASKED - 1; i++)
            sum = fma(m[i], v[i], sum);
    }
    return sum;
}

/* Element (bin, column) of M v; f: the fibre in its bundle. */
__device__ double product_at(const params &k, int bin, int f, int column, const double *v)
{
    const ptrdiff_t lanes = k.lanes, mrow = k.nelem * lanes;
    const double *mat = k.mat + bin * mrow + column, *d = v + bin * lanes + column;
    double q = mat[0] * d[0];
    for (int df = 0; df <= k.reach; df++) {
        const int lo = df > 0 ? k.lo[df] : 1, hi = k.hi[df];
        const double *element = mat + (k.first[df] - k.lo[df]) * lanes;
        if (f + df < k.nl) { /* with bin + dk of fibre + df */
            const int from = max(lo, -bin), to = min(hi, k.n - 1 - bin);
            q += along(element + from * lanes, lanes, d + from * lanes + df, lanes, to - from + 1);
        }
        if (f >= df) { /* with bin - dk of fibre - df */
            const int from = max(lo, bin - k.n + 1), to = min(hi, bin);
            q +=
                along(element + from * (lanes - mrow) - df, lanes - mrow, d - from * lanes - df, -lanes, to - from + 1);
        }
    }
    return q;
}

/* q = M d and the inner product of both; block (bins, bundle). Each element of M is used twice, by its own bin and by
 * that which it is shared with: a block has some bins in a row, so that it comes from the cache for one of them. */
__global__ void __launch_bounds__(MULTIPLY_THREADS, 2) multiply_kernel(params k)
{
    __shared__ double partial[MULTIPLY_THREADS / WARP];
    const int b = blockIdx.y, i = blockIdx.x * MULTIPLY_THREADS + threadIdx.x, bin = i / k.nl, f = i % k.nl;
    const int column = b * k.nl + f;
    double product = 0.0;
    if (bin < k.n && k.fibre[column] >= 0) {
        const ptrdiff_t at = (ptrdiff_t)bin * k.lanes + column;
        const double q = product_at(k, bin, f, column, k.d);
        k.q[at] = q;
        product = q * k.d[at];
    }
    product = spx::block_sum<MULTIPLY_THREADS / WARP>(product, partial);
    add_up(of_bundle(k, b), blockIdx.x, gridDim.x, product, STEP);
}

/* z = P^-1 r in bins first .. last - 1 of a lane, worked on from begin to end - 1; scratch: as many rows. Returns what
 * these bins give to the inner product of both, which is that of L^-1 r and D^-1 L^-1 r. */
template <int M>
__device__ double precondition(const params &k, int column, int first, int last, int begin, int end, double *scratch,
                               double *shared)
{
    const size_t lanes = k.lanes, lrow = (size_t)(k.m + 1) * lanes;
    const double *l = k.ldl + begin * lrow + column;
    double *z = k.z + column, product = 0.0;
    solve_forth<M>(end - begin, k.m, l, lrow, lanes, scratch, lanes, k.r + begin * lanes + column, lanes, shared,
                   [](int, double v) { return v; });
    solve_back<M>(end - begin, first - begin, k.m, l, lrow, lanes, scratch, lanes, shared,
                  [&](int j, double v, double part) {
                      if (begin + j < last) {
                          z[(begin + j) * lanes] = v;
                          product += part;
                      }
                  });
    return product;
}

/* Of all bins; block (lanes of a bundle, segment). Segments begin half as early as those of the factors: the iteration
 * takes the same steps. */
template <int M> __global__ void precondition_kernel(params k, int what)
{
    extern __shared__ double shared[];
    const int b = blockIdx.x / bundle_blocks(k), block = blockIdx.x % bundle_blocks(k), f = block * WARP + threadIdx.x;
    const int column = b * k.nl + f;
    double product = 0.0;
    if (f < k.nl && k.fibre[column] >= 0) {
        const segment s(k, blockIdx.y, k.halo / 2);
        product = precondition<M>(k, column, s.first, s.last, s.begin, s.end,
                                  k.scratch + (size_t)blockIdx.y * (k.seg + 2 * k.halo) * k.lanes + column,
                                  shared + threadIdx.x);
    }
    product = warp_sum(product);
    add_up(of_bundle(k, b), blockIdx.y * bundle_blocks(k) + block, gridDim.y * bundle_blocks(k), product, what);
}

/* x = 0 and r = y; one thread a bin. */
__global__ void start_kernel(params k)
{
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < k.nbundle)
        k.ready[i] = 0;
    if (i < k.n * k.lanes) {
        k.r[i] = k.y[i];
        k.x[i] = 0.0;
    }
}

/* What is left for the next step: r -= alpha q. */
__global__ void remainder_kernel(params k)
{
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= k.n * k.lanes)
        return;
    const double alpha = k.scalar[SCALARS * (i % k.lanes / k.nl) + ALPHA];
    if (alpha != 0.0)
        k.r[i] -= alpha * k.q[i];
}

/* The step itself, x += alpha d, and the next direction. */
__global__ void direction_kernel(params k)
{
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= k.n * k.lanes)
        return;
    const double *scalar = k.scalar + SCALARS * (i % k.lanes / k.nl), alpha = scalar[ALPHA], d = k.d[i];
    if (alpha != 0.0)
        k.x[i] += alpha * d;
    k.d[i] = k.z[i] + scalar[BETA] * d;
}

/* Steps that nearly all frames take, and that nobody waits for. */
enum { LEAST_STEPS = 4 };

/* scalar and bad: page-locked, what the host sees of k.scalar, and of k.bad with k.torn behind it. When the factors are
 * there, meanwhile() is called as often as the host waits. */
template <class MEANWHILE> void solve(params &k, slot *s, double *scalar, int *bad, MEANWHILE meanwhile)
{
    const size_t bins = (size_t)k.n * k.lanes;
    const dim3 products(blocks((size_t)k.n * k.nl, MULTIPLY_THREADS), k.nbundle);
    const unsigned each = blocks(bins, 128), column = blocks(k.lanes, 32);
    const size_t bytes = stream_bytes(k.m, k.m + 2);
    cut_lanes(k);
    for (int step = 0; step < MOST_STEPS; step++) {
        const dim3 segments(column, k.nseg);
        if (step == 0) {
            BY_BAND(k.m, factorise_kernel, <<<segments, 32, bytes, s->stream>>>(k))
            if (k.nseg > 1)
                seams_kernel<<<dim3(column, k.m, k.nseg - 1), 32, 0, s->stream>>>(k);
            start_kernel<<<each, 128, 0, s->stream>>>(k);
        } else {
            multiply_kernel<<<products, MULTIPLY_THREADS, 0, s->stream>>>(k);
            remainder_kernel<<<each, 128, 0, s->stream>>>(k);
        }
        const dim3 by_bundle((unsigned)(k.nbundle * bundle_blocks(k)), k.nseg);
        BY_BAND(k.m, precondition_kernel, <<<by_bundle, 32, bytes, s->stream>>>(k, step == 0 ? START : NEXT))
        direction_kernel<<<each, 128, 0, s->stream>>>(k);
        spx::check(cudaGetLastError(), "launch");
        if (step > 0 && step < LEAST_STEPS) /* a bundle that is done does not change any more */
            continue;
        get(s, scalar, k.scalar, SCALARS * (size_t)k.nbundle);
        get(s, bad, k.bad, (size_t)k.nbundle + 1);
        spx::check(cudaEventRecord(s->stepped, s->stream), "event");
        for (bool there = false; !there;) {
            there = is_over(s->stepped);
            if (!there && step > 0)
                meanwhile();
        }
        if (step == 0 && bad[k.nbundle] != 0 && k.nseg > 1) { /* segments do not fit together */
            one_piece(k);
            step = -1;
            continue;
        }
        meanwhile();
        int busy = 0;
        for (int b = 0; b < k.nbundle; b++)
            busy |= is_above_limit(scalar + SCALARS * b) && (step == 0 || scalar[SCALARS * b + ALPHA] != 0.0);
        if (!busy)
            break;
    }
}

} // namespace

#endif
