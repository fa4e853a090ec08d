/* Provides A_s = M_ss - M_so M_oo^-1 M_os, the Schur complement of each fibre with respect to the others (its
 * information with them marginalised), and the half-bandwidth that it needs. */
#ifndef SPX_EXTRACT_CUDA_SCHUR_CUH
#define SPX_EXTRACT_CUDA_SCHUR_CUH

#include "extract/cuda/band.cuh"
#include "extract/cuda/band_block.cuh"
#include "extract/cuda/drop_scale.cuh"

namespace
{

/* ---- how well a bin is known from its fibre alone ---- */

/* k.variance: diagonal Z of the inverse of each fibre's own block (Takahashi's recurrence), from its factor. Bins of a
 * segment, and those after it that it begins with. */
enum { OWN_SEGMENT = 64, OWN_HALO = 64 };

template <int M> __global__ void own_variance_kernel(params k)
{
    extern __shared__ double shared[];
    const int column = blockIdx.x * WARP + threadIdx.x, first = blockIdx.y * OWN_SEGMENT;
    if (column >= k.lanes || k.fibre[column] < 0)
        return;
    const int last = min(first + OWN_SEGMENT, k.n), end = min(last + OWN_HALO, k.n);
    const size_t lanes = k.lanes, lrow = (size_t)(k.m + 1) * lanes;
    const double *l = k.ldl + column;
    inverse_window<M> z;
    stream<M + 1>(
        end - first, shared + threadIdx.x,
        [&](int step, int i) { return l + (size_t)(end - 1 - step) * lrow + i * lanes; },
        [&](int step, const double(&line)[M + 1]) {
            const int j = end - 1 - step;
            double diagonal = line[0], row[M + 1];
#pragma unroll
            for (int i = 1; i <= M; i++)
                row[i] = 0.0;
#pragma unroll
            for (int t = M; t >= 1; t--)
#pragma unroll
                for (int i = 1; i <= M; i++)
                    row[i] = fma(-line[t], z.at(i, t), row[i]);
#pragma unroll
            for (int t = M; t >= 1; t--)
                diagonal = fma(-line[t], row[t], diagonal);
            z.next(diagonal, row);
            if (j < last)
                k.variance[(size_t)j * lanes + column] = diagonal;
        });
}

/* The same for any bandwidth: block (lane); memory: of each own_size() doubles. */
__host__ __device__ inline size_t own_size(const geometry &k)
{
    return (size_t)k.n * (k.m + 1) + band_window(k.m);
}

__global__ void __launch_bounds__(BAND_THREADS) own_variance_block_kernel(params k, double *memory)
{
    extern __shared__ double shared[];
    const int column = blockIdx.x, m = k.m;
    if (k.fibre[column] < 0)
        return;
    const size_t lanes = k.lanes, lrow = (size_t)(m + 1) * lanes;
    double *mine = memory + column * own_size(k), *l = mine + band_window(m); /* [n][m + 1] */
    const band_block scratch = {m, window_is_shared(m) ? shared + band_shared(m) : mine, shared};
    for (int i = threadIdx.x; i < k.n * (m + 1); i += blockDim.x) {
        const int j = i / (m + 1), d = i - j * (m + 1);
        l[i] = j + d < k.n ? k.ldl[j * lrow + d * lanes + column] : 0.0;
    }
    __syncthreads();
    block_inverse(
        scratch, k.n, 0, l,
        [&](int j, int d, double z) {
            if (d == 0)
                k.variance[(size_t)j * lanes + column] = z;
        },
        [](int, const double *) {});
}

/* memory: lanes times own_size(), where there are no loops for the bandwidth. */
void own_variances(const params &k, double *memory, slot *s)
{
    const dim3 grid(blocks(k.lanes, WARP), blocks(k.n, OWN_SEGMENT));
    const size_t bytes = stream_bytes(k.m, k.m + 1);
    switch (k.m) {
    case 6:
        own_variance_kernel<6><<<grid, WARP, bytes, s->stream>>>(k);
        break;
    case 7:
        own_variance_kernel<7><<<grid, WARP, bytes, s->stream>>>(k);
        break;
    case 8:
        own_variance_kernel<8><<<grid, WARP, bytes, s->stream>>>(k);
        break;
    case 9:
        own_variance_kernel<9><<<grid, WARP, bytes, s->stream>>>(k);
        break;
    default:
        own_variance_block_kernel<<<k.lanes, BAND_THREADS, band_bytes(k.m), s->stream>>>(k, memory);
    }
}

/* Bins whose Z M is above HARD are beside masks, or narrow: there what is left out is limited in units of 1/Z, and not
 * of M, which is some 1/5 to 1/30 of it on other bins. */
__device__ constexpr double HARD = 50.0;

/* Z M of such a bin, else 0. */
__device__ double hard_z(const params &k, int bin, int column)
{
    const double z = k.variance[(size_t)bin * k.lanes + column] * k.mat[(size_t)bin * k.nelem * k.lanes + column];
    return z > HARD ? z : 0.0;
}

__device__ bool is_hard(const params &k, int bin, int column)
{
    return hard_z(k, bin, column) > 0.0;
}

/* ---- what a neighbour takes off, T = V^T D^-1 V with V = L^-1 B, for the usual bandwidths ---- */

/* A thread has four columns of V side by side, a warp those of a few fibres, so that the columns of a fibre are a ring
 * that goes along the trace with the row of V that is computed. All of a warp are at the same row, whose factors all
 * columns share, and neighbouring columns meet in registers: V is never stored. A column is followed for the bins of
 * the ring but three; where that is too little, twice as far with half as many fibres.
 *
 * A frame of 500 x 2326 takes 0.50 ms on an H200, and less than that again for the columns that are longer and for
 * diagonals that M does not have. One thread a column, V in memory, took 2.25. */
enum {
    SCHUR_COLUMNS = 4,
    SCHUR_WARPS = 4,
    SCHUR_TOGETHER = 224, /* bins that a warp does one after the other */
    SHORT_RING = 4,       /* fibres of a warp, */
    LONG_RING = 2,        /* and where columns are followed farther */
    FAR_DIAGONALS = 8,
    FARTHEST = 48,  /* diagonal at most, which a long ring still holds together with the main one */
    TURNS_AHEAD = 2 /* what is read is on its way four rows times this before */
};

/* Bins of the ring of a warp with the columns of `fibres` fibres. */
__host__ __device__ constexpr int ring_of(int fibres)
{
    return SCHUR_COLUMNS * (WARP / fibres);
}

/* Flags per segment of SCHUR_BINS bins. LONG: a column of V exceeds the short ring buffer. LARGE: T fills diagonals
 * outside M's pattern. STRONG: second-neighbour terms may matter, strong_kernel() decides. SECOND: they do;
 * second_kernel() corrects T to first order. WIDE: that is not enough; second_wide_kernel() corrects it to second
 * order, and diagonals outside M's pattern, too. */
enum { SCHUR_LONG = 1, SCHUR_LARGE = 2, SCHUR_STRONG = 4, SCHUR_SECOND = 8, SCHUR_WIDE = 16 };

/* Flags of the segments of bins from .. to, or-ed. */
__device__ int schur_flags_of(const params &k, int column, int from, int to)
{
    int said = 0;
    for (int segment = from / SCHUR_BINS; segment <= min(to, k.n - 1) / SCHUR_BINS; segment++)
        said |= k.schur_flags[segment * k.lanes + column];
    return said;
}

/* What a warp reads for a row: elements of M of its columns, factors of its fibres. */
__device__ constexpr int schur_row(int m, int fibres)
{
    return SCHUR_COLUMNS * WARP + fibres * (m + 1);
}

/* From global to shared memory, on its way; 0 where there is nothing. One instruction: __pipeline_memcpy_async() makes
 * two of a number of zeros that is not known when it is compiled, one for either case. */
__device__ void fetch_or_zero(double *to, const double *from, bool there)
{
    asm volatile("cp.async.ca.shared.global [%0], [%1], 8, %2;" ::"r"((unsigned)__cvta_generic_to_shared(to)),
                 "l"(from), "r"(there ? 8 : 0)
                 : "memory");
}

/* Bins of which one is looked at, to tell how narrow those of a trace are; and the pivot, as a fraction of the
 * diagonal, of bins that are not: the limits here are for them. With 0.8 Angstrom all arms are above it. */
enum { SAMPLED = 8 };
__device__ constexpr double NOT_NARROW = 0.3, TOO_NARROW = 0.06; /* these are for coupled.cuh */

/* How much smaller what is left out of a trace has to be as its bins are narrow: by the mean of the pivots, for beside
 * masks single ones say anything. Eighth power, measured: with bins of 0.65 Angstrom, and pivots of a quarter, fluxes
 * beside a gap were 1.6e-6 of their error off, and are 1.6e-7. One warp a lane. */
__global__ void narrow_kernel(params k)
{
    const int column = blockIdx.x;
    const size_t lanes = k.lanes;
    double sum = 0.0;
    for (int bin = (int)threadIdx.x * SAMPLED; bin < k.n && k.fibre[column] >= 0; bin += WARP * SAMPLED)
        sum += 1.0 / (k.ldl[(size_t)bin * (k.m + 1) * lanes + column] * k.mat[(size_t)bin * k.nelem * lanes + column]);
    sum = warp_sum(sum);
    const double r = sum / (NOT_NARROW * ((k.n + SAMPLED - 1) / SAMPLED)), r2 = r * r, r4 = r2 * r2;
    if (threadIdx.x == 0)
        k.narrow[column] = r < 1.0 ? r4 * r4 : 1.0;
    if (threadIdx.x == 0 && k.fibre[column] >= 0 && r * NOT_NARROW < TOO_NARROW)
        atomicOr(&k.bad[column / k.nl], BAD_BAND);
}

/* Whether an element of the diagonal of T is so large that diagonals matter which M does not have, whatever those say
 * that it has: of T as a multiple of the tolerance, `far` of that of M, which may have a scale for narrow bins. */
__device__ bool is_large(const params &k, int bin, int column, double t, double m, double far)
{
    return t > far * k.drop_tolerance * m ||
           (is_hard(k, bin, column) &&
            t * k.variance[(size_t)bin * k.lanes + column] > SPX_TRACE_MAX_INVERSE * SPX_TRACE_FAR * k.drop_tolerance);
}

/* Limits of the usual bandwidths: T that is small in this sense takes a frame's time, and is seen in the outermost
 * diagonals that M has, in units of 1/Z. */
__device__ constexpr double USUAL_FAR = 30.0, OUTERMOST = 0.3;

__device__ bool is_large_outside(const params &k, int bin, int column, double outer, double next)
{
    return fmax(fabs(outer), fabs(next)) * k.variance[(size_t)bin * k.lanes + column] > OUTERMOST * k.drop_tolerance;
}

/* Whether the end of a column of V is too large to be left out where `taken` is what the column takes off its bin: of a
 * bin beside masks. limit: of an element of T, as a multiple of the tolerance over Z. */
__device__ bool is_hard_end(const params &k, int bin, int column, double end, double taken, double limit)
{
    const double z = k.variance[(size_t)bin * k.lanes + column];
    return is_hard(k, bin, column) && end * z * taken * z > limit * limit * k.tolerance * k.tolerance;
}

/* Rows of a column that follow those which are known take off at most so many times as much as the last four. */
__device__ constexpr double ENDLESS = 4.0;

/* Limits of ends of columns beside masks: above which they are followed farther, and above which that is not enough. */
__device__ constexpr double SHORT_END = 0.3, LONG_END = 1.0;

/* T of columns `first` .. last - 1 and the neighbour on one side: diagonals 0 .. M or, with FAR, `from` and the next
 * ones, which M does not have: 0 where T is not large. One warp; ring: [TURNS_AHEAD C][schur_row()]; large: [bin -
 * first][SHORT_RING]. */
template <int M, int FIBRES, bool FAR>
__device__ void schur_term(const params &k, int side, int column, int first, int last, int from, double *ring,
                           const unsigned char *large)
{
    constexpr int C = SCHUR_COLUMNS, PLACES = WARP / FIBRES, RING = ring_of(FIBRES), ROW = schur_row(M, FIBRES),
                  DIAGONALS = FAR ? FAR_DIAGONALS : M + 1, OFFSET = FAR ? (M + 1) % C : 0,
                  OTHERS = OFFSET + DIAGONALS + C - 1, GROUPS = (OTHERS + C - 1) / C;
    const int lane = threadIdx.x % WARP, place = lane / FIBRES, fibre = lane % FIBRES, ahead = from / C;
    const bool in = column < k.lanes;
    const int mine = in ? column : 0, f = mine % k.nl;
    const bool beside =
        in && f + side >= 0 && f + side < k.nl && k.fibre[mine] >= 0 && k.fibre[mine + side] >= 0 && k.reach >= 1;
    const ptrdiff_t lanes = k.lanes, lrow = (k.m + 1) * lanes, mrow = k.nelem * lanes, trow = (k.band + 1) * lanes;
    const double *l = k.ldl + mine + (beside ? side : 0), *diagonals = k.mat + mine;
    double *t = k.t[side > 0] + mine;
    double back[C][M + 1], sum[C][DIAGONALS];
    const int outer = min((k.band + 1) / C, PLACES - 1); /* age of columns from which on rows are beyond the band */
    const auto begin = [&](int c) {                      /* a column: nothing is known of it */
#pragma unroll
                                    for (int s = 0; s <= M; s++)
                                        back[c][s] = 0.0;
#pragma unroll
                                    for (int d = 0; d < DIAGONALS; d++)
                                        sum[c][d] = 0.0;
    };
#pragma unroll
    for (int c = 0; c < C; c++)
        begin(c);
    int source[GROUPS]; /* who has the columns further on */
#pragma unroll
    for (int i = 0; i < GROUPS; i++)
        source[i] = (place + ahead + i) % PLACES * FIBRES + fibre;
    int age = (PLACES - place) % PLACES, j = first + C * place - RING, row = first - k.depth;
    /* what is read next: factors of a row, and its elements with columns j ... of M. An element is of two bins, `step`
     * apart, and with the lane and the bin of the fibre with the smaller index. */
    const ptrdiff_t next_column = side > 0 ? mrow - lanes : lanes, next_row = side > 0 ? lanes : mrow - lanes;
    const int lo = k.reach >= 1 ? k.lo[1] : 0;
    const unsigned steps = k.reach >= 1 ? k.hi[1] - lo : 0;
    const double *factor_at = l + row * lrow;
    const double *coupling_at = diagonals + (k.reach >= 1 ? k.first[1] * lanes : 0) - (beside && side < 0 ? 1 : 0) +
                                row * next_row + j * next_column - lo * lanes;
    int step = side * (row - j) - lo, left = 0;
    const auto next_columns = [&]() {
        coupling_at += RING * next_column;
        step -= side * RING;
        left = beside ? k.n - (j + RING) : 0;
    };
    const auto fetch_row = [&](int at, double *to) {
        const bool inside = at >= 0 && at < k.n;
        const double *element = coupling_at;
#pragma unroll
        for (int c = 0; c < C; c++, element += next_column)
            fetch_or_zero(to + c * WARP + lane, element, inside && c < left && (unsigned)(step - side * c) <= steps);
        for (int s = place; s <= M; s += PLACES)
            fetch_or_zero(to + C * WARP + s * FIBRES + fibre, factor_at + s * (lanes - lrow),
                          beside && inside && at >= s);
        __pipeline_commit();
        factor_at += lrow;
        coupling_at += next_row;
        step += side;
    };
    const int turns = (last - first + C - 1) / C + PLACES - 1;
    for (int turn = 0; turn < TURNS_AHEAD; turn++) {
        if ((age + turn) % PLACES == 0)
            next_columns();
        for (int r = 0; r < C; r++)
            fetch_row(row + turn * C + r, ring + (turn * C + r) * ROW);
    }
    for (int turn = 0;; turn++) {
        if (age == 0) { /* these columns are done, the next ones begin */
            if (in && j >= first) {
#pragma unroll
                for (int c = 0; c < C; c++) {
                    if (j + c >= last)
                        continue;
#pragma unroll
                    for (int d = 0; d < DIAGONALS; d++) {
                        const int at = (j + c - first) * SHORT_RING + fibre;
                        double v = sum[c][d];
                        if (FAR && from + d > k.band)
                            continue;
                        if (FAR && !large[at] && !large[at + (from + d) * SHORT_RING])
                            v = 0.0;
                        t[(j + c) * trow + (from + d) * lanes] = v;
                    }
                }
            }
            j += RING;
#pragma unroll
            for (int c = 0; c < C; c++)
                begin(c);
        }
        if (turn == turns)
            break;
#pragma unroll
        for (int i = 0; i < GROUPS; i++) /* what these met so far was the end of older columns */
            if (age == ahead + i)
#pragma unroll
                for (int c = 0; c < C; c++)
#pragma unroll
                    for (int d = 0; d < DIAGONALS; d++)
                        if ((OFFSET + c + d) / C == i)
                            sum[c][d] = 0.0;
#pragma unroll
        for (int c = 0; c < C; c++)
            if (!FAR && in && j >= first && j + c < last) {
                if (age == outer)
                    k.within[side > 0][(j + c) * lanes + mine] = sum[c][0];
                if (age == PLACES - 1)
                    k.early[side > 0][(j + c) * lanes + mine] = sum[c][0];
            }
        if ((age + TURNS_AHEAD) % PLACES == 0)
            next_columns();
#pragma unroll
        for (int r = 0; r < C; r++, row++) {
            double *now = ring + (turn % TURNS_AHEAD * C + r) * ROW, factor[M + 1], coupling[C];
            __pipeline_wait_prior(TURNS_AHEAD * C - 1);
            __syncwarp();
#pragma unroll
            for (int s = 0; s <= M; s++)
                factor[s] = now[C * WARP + s * FIBRES + fibre];
#pragma unroll
            for (int c = 0; c < C; c++)
                coupling[c] = now[c * WARP + lane];
            __syncwarp();
            fetch_row(row + TURNS_AHEAD * C, now);
            double scaled[C], other[OTHERS];
#pragma unroll
            for (int c = 0; c < C; c++) {
                double v = coupling[c];
#pragma unroll
                for (int s = M; s >= 1; s--)
                    v = fma(-factor[s], back[c][s], v);
#pragma unroll
                for (int s = M; s >= 2; s--)
                    back[c][s] = back[c][s - 1];
                back[c][1] = v;
                scaled[c] = v * factor[0];
            }
#pragma unroll
            for (int o = OFFSET; o < OTHERS; o++)
                other[o] = !FAR && o < C ? back[o % C][1] : __shfl_sync(FULL, back[o % C][1], source[o / C]);
#pragma unroll
            for (int c = 0; c < C; c++)
#pragma unroll
                for (int d = 0; d < DIAGONALS; d++)
                    sum[c][d] = fma(scaled[c], other[OFFSET + c + d], sum[c][d]);
        }
        age = age + 1 < PLACES ? age + 1 : 0;
    }
    __pipeline_wait_prior(0);
}

/* Block (fibres, segment, side) of SCHUR_WARPS warps: T of all columns, with the short ring; */
template <int M> __global__ void __launch_bounds__(SCHUR_WARPS *WARP, 8 / SCHUR_WARPS) schur_term_kernel(params k)
{
    __shared__ double ring[SCHUR_WARPS][TURNS_AHEAD * SCHUR_COLUMNS * schur_row(M, SHORT_RING)];
    const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, first = blockIdx.y * SCHUR_TOGETHER;
    const int column = (blockIdx.x * SCHUR_WARPS + warp) * SHORT_RING + lane % SHORT_RING;
    schur_term<M, SHORT_RING, false>(k, 2 * (int)blockIdx.z - 1, column, first, min(first + SCHUR_TOGETHER, k.n), 0,
                                     ring[warp], NULL);
}

/* of those that are longer, and of no others: who else is in a warp depends on the bundles of the piece; */
template <int M> __global__ void __launch_bounds__(SCHUR_WARPS *WARP, 8 / SCHUR_WARPS) schur_term_long_kernel(params k)
{
    __shared__ double ring[SCHUR_WARPS][TURNS_AHEAD * SCHUR_COLUMNS * schur_row(M, LONG_RING)];
    const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, first = blockIdx.y * SCHUR_BINS;
    const int column = (blockIdx.x * SCHUR_WARPS + warp) * LONG_RING + lane % LONG_RING;
    const bool is_long = column < k.lanes && (k.schur_flags[blockIdx.y * k.lanes + column] & SCHUR_LONG);
    if (__any_sync(FULL, is_long))
        schur_term<M, LONG_RING, false>(k, 2 * (int)blockIdx.z - 1, is_long ? column : k.lanes, first,
                                        min(first + SCHUR_BINS, k.n), 0, ring[warp], NULL);
}

/* and the diagonals that M does not have: block (fibres, segment, side and diagonals). */
template <int M> __global__ void __launch_bounds__(SCHUR_WARPS *WARP, 8 / SCHUR_WARPS) schur_term_far_kernel(params k)
{
    __shared__ double ring[SCHUR_WARPS][TURNS_AHEAD * SCHUR_COLUMNS * schur_row(M, SHORT_RING)];
    __shared__ unsigned char large[SCHUR_WARPS][(SCHUR_BINS + FARTHEST) * SHORT_RING];
    const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, first = blockIdx.y * SCHUR_BINS;
    const int side = blockIdx.z % 2, column0 = (blockIdx.x * SCHUR_WARPS + warp) * SHORT_RING;
    const int column = column0 + lane % SHORT_RING, last = min(first + SCHUR_BINS, k.n);
    const int from = M + 1 + (int)(blockIdx.z / 2) * FAR_DIAGONALS;
    const int said = column < k.lanes ? schur_flags_of(k, column, first, first + SCHUR_BINS - 1 + k.band) : 0;
    if (!__any_sync(FULL, said & SCHUR_LARGE))
        return;
    bool any = false;
    for (int i = lane / SHORT_RING; i < SCHUR_BINS + k.band; i += WARP / SHORT_RING) {
        const size_t bin = first + i, at = bin * (k.band + 1) * k.lanes + column;
        const double *t = k.t[side] + at;
        const bool is =
            first + i < k.n && column < k.lanes &&
            (is_large(k, (int)bin, column, *t, k.mat[bin * k.nelem * k.lanes + column] * k.narrow[column], USUAL_FAR) ||
             is_large_outside(k, (int)bin, column, t[M * k.lanes], t[(M - 1) * k.lanes]));
        large[warp][i * SHORT_RING + lane % SHORT_RING] = is;
        any |= is;
    }
    __syncwarp();
    if (!__any_sync(FULL, any)) { /* the other side alone */
        for (int i = lane / SHORT_RING; i < (last - first) * FAR_DIAGONALS; i += WARP / SHORT_RING) {
            const size_t bin = first + i / FAR_DIAGONALS, d = from + i % FAR_DIAGONALS;
            if (column < k.lanes && d <= (size_t)k.band)
                k.t[side][(bin * (k.band + 1) + d) * k.lanes + column] = 0.0;
        }
        return;
    }
    const bool is_long = (said & SCHUR_LONG) || k.band > ring_of(SHORT_RING) - FAR_DIAGONALS;
    if (__any_sync(FULL, !is_long))
        schur_term<M, SHORT_RING, true>(k, 2 * side - 1, is_long ? k.lanes : column, first, last, from, ring[warp],
                                        large[warp]);
    for (int i = 0; i < SHORT_RING; i += LONG_RING) {
        const int its = i + lane % LONG_RING;
        const bool its_long = __shfl_sync(FULL, is_long, its);
        if (__any_sync(FULL, its_long))
            schur_term<M, LONG_RING, true>(k, 2 * side - 1, its_long ? column0 + its : k.lanes, first, last, from,
                                           ring[warp], large[warp] + i);
    }
}

/* k.taken, of a bin. */
__device__ void raise_taken(const params &k, int side, int i, int column, double t)
{
    double *most = &k.taken[(size_t)side * k.lanes + column];
    const double v = t * k.variance[i];
    if (v > *most)
        raise_to(most, v);
}

/* Flags of the terms: one thread a bin. again: of segments whose columns have been followed farther. */
__global__ void schur_flags_kernel(params k, bool again)
{
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= k.n * k.lanes)
        return;
    const int bin = i / k.lanes, column = i % k.lanes;
    const size_t lanes = k.lanes;
    int *flags = &k.schur_flags[(size_t)(bin / SCHUR_BINS) * lanes + column];
    if (k.fibre[column] < 0 || (again && !(*flags & SCHUR_LONG)))
        return;
    const double own = k.mat[(size_t)bin * k.nelem * lanes + column];
    int said = 0;
    for (int side = 0; side < 2; side++) {
        const double *t = k.t[side] + (size_t)bin * (k.band + 1) * lanes + column;
        const double end = *t - k.early[side][i];
        raise_taken(k, side, i, column, *t);
        if (is_large(k, bin, column, *t, own * k.narrow[column], USUAL_FAR) ||
            is_large_outside(k, bin, column, t[k.m * lanes], t[(k.m - 1) * lanes]))
            said |= SCHUR_LARGE;
        if (!again && (end > 0.001 * k.tolerance * own || is_hard_end(k, bin, column, end, *t, SHORT_END)))
            said |= SCHUR_LONG;
        if (again && is_hard_end(k, bin, column, end, *t, LONG_END))
            atomicOr(&k.bad[column / k.nl], BAD_STRONG);
    }
    if (said & ~*flags)
        atomicOr(flags, said);
}

/* Z is there when the first terms are. */
template <int M> void schur_terms(const params &k, slot *s)
{
    const unsigned threads = SCHUR_WARPS * WARP, few = blocks(k.lanes, SHORT_RING * SCHUR_WARPS),
                   most = blocks(k.lanes, LONG_RING * SCHUR_WARPS), far = blocks(k.band - M, FAR_DIAGONALS);
    const unsigned each = blocks((size_t)k.n * k.lanes, 128);
    schur_term_kernel<M><<<dim3(few, blocks(k.n, SCHUR_TOGETHER), 2), threads, 0, s->stream>>>(k);
    join(s, 1);
    schur_flags_kernel<<<each, 128, 0, s->stream>>>(k, false);
    schur_term_long_kernel<M><<<dim3(most, schur_segments(k), 2), threads, 0, s->stream>>>(k);
    schur_flags_kernel<<<each, 128, 0, s->stream>>>(k, true);
    if (k.band > M)
        schur_term_far_kernel<M><<<dim3(few, schur_segments(k), 2 * far), threads, 0, s->stream>>>(k);
}

/* ---- the same for any bandwidth ---- */

/* Diagonals that are kept in registers; there may be more. */
enum { NEAR = 9 };

/* How much smaller what is left out of a bin has to be where bins are narrow, from the pivots D of the L D L^T of the
 * fibre's block, which are at hand: the least that those of this bin and of the bins that it reaches say, as what these
 * know of it only theirs tell. D is 0.47 of the diagonal of M for bins of 0.8 Angstrom on a camera of 0.53 a pixel,
 * 0.17 for 0.6 and 0.03 to 0.06 for 0.5; the factor and the fourth power are measured on that camera. The CPU has a
 * rule for any PSF from the diagonal of the inverse, see SPX_TRACE_MAX_INVERSE: what a device does not see coming,
 * BAD_BAND finds in A_s. */
__device__ double drop_scale(const params &k, int bin, int column)
{
    constexpr double PIVOT = 2.5;
    double least = 1.0;
    for (int j = bin; j <= min(bin + k.m, k.n - 1); j++) {
        const double inverse_pivot = k.ldl[(size_t)j * (k.m + 1) * k.lanes + column];
        const double r = PIVOT / (inverse_pivot * k.mat[(size_t)j * k.nelem * k.lanes + column]), r2 = r * r;
        least = fmin(least, r2 < 1.0 ? r2 * r2 : 1.0);
    }
    return least;
}

/* Whether an element of the diagonal of T is so large that diagonals matter which M does not have. */
__device__ bool is_large_for(const params &k, int bin, int column, double t)
{
    const double own = k.mat[(size_t)bin * k.nelem * k.lanes + column];
    if (k.fibre[column] < 0)
        return false;
    if (k.coupled)
        return t > SPX_TRACE_FAR * k.drop_tolerance * k.drop_scale[(size_t)bin * k.lanes + column] * own;
    return is_large(k, bin, column, t, drop_scale(k, bin, column) * own, SPX_TRACE_FAR);
}

/* Columns of V for the neighbour on one side, and the diagonal of T: one thread a bin. */
__global__ void columns_kernel(params k, int side)
{
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= k.n * k.lanes)
        return;
    const int j = i / k.lanes, column = i % k.lanes, f = column % k.nl;
    const size_t lanes = k.lanes, lrow = (size_t)(k.m + 1) * lanes;
    double diagonal = 0.0;
    int rows = 0;
    const int other = f + side;
    k.within[side > 0][i] = k.early[side > 0][i] = 0.0;
    if (k.fibre[column] >= 0 && other >= 0 && other < k.nl && k.fibre[column + side] >= 0 && k.reach >= 1) {
        const double *l = k.ldl + column + side;
        double *v = k.v + (size_t)j * k.rows * lanes + column;
        const double own = k.mat[(size_t)j * k.nelem * lanes + column];
        double scale = !k.coupled && is_hard(k, j, column) ? SPX_TRACE_MAX_INVERSE / (k.variance[i] * own) : 1.0;
        for (int to = j; k.coupled && to < min(j + k.band + 1, k.n); to++) /* of all elements of the column */
            scale = fmin(scale, k.drop_scale[(size_t)to * lanes + column]);
        const double least = SPX_TRACE_LITTLE * k.tolerance * own * scale; /* as on the CPU */
        const double met = (k.coupled ? 1.0 : SPX_TRACE_OTHER) * own;      /* by the column, of another one */
        double recent = 0.0, beyond = 0.0, back[NEAR + 1] = {0.0};         /* back[s]: the value s rows before */
        for (int bin = -k.depth; bin <= k.depth + k.tail; bin++, rows++) {
            const int at = j + bin;
            double sum = 0.0, added = 0.0;
            if (at >= 0 && at < k.n) {
                const int step = side > 0 ? bin : -bin;
                if (step >= k.lo[1] && step <= k.hi[1])
                    sum = side > 0 ? k.mat[((size_t)j * k.nelem + k.first[1] + step - k.lo[1]) * lanes + column]
                                   : k.mat[((size_t)at * k.nelem + k.first[1] + step - k.lo[1]) * lanes + column - 1];
                const int most = min(k.m, min(rows, at));
#pragma unroll
                for (int s = 1; s <= NEAR; s++)
                    if (s <= most)
                        sum = fma(-l[(size_t)(at - s) * lrow + s * lanes], back[s], sum);
                for (int s = NEAR + 1; s <= most; s++)
                    sum = fma(-l[(size_t)(at - s) * lrow + s * lanes], v[(size_t)(rows - s) * lanes], sum);
                added = sum * sum * l[(size_t)at * lrow];
            }
            v[(size_t)rows * lanes] = sum;
#pragma unroll
            for (int s = NEAR; s >= 2; s--)
                back[s] = back[s - 1];
            back[1] = sum;
            diagonal += added;
            beyond += bin > k.band - k.depth ? added : 0.0;
            recent = 0.5 * recent + added;
            if (bin > k.depth && recent * fmax(diagonal, met) <= least * least) {
                rows++;
                break;
            }
        }
        raise_taken(k, side > 0, i, column, diagonal);
        k.within[side > 0][i] = diagonal - beyond;
        k.early[side > 0][i] = diagonal - recent;
        if (!k.coupled && is_hard_end(k, j, column, recent, diagonal, LONG_END))
            atomicOr(&k.bad[column / k.nl], BAD_STRONG);
        if (is_large_for(k, j, column, diagonal))
            atomicOr(&k.schur_flags[j / SCHUR_BINS * k.lanes + column], SCHUR_LARGE);
    }
    k.length[i] = rows;
    k.t[side > 0][((size_t)j * (k.band + 1)) * lanes + column] = diagonal;
}

/* The other diagonals of T; those that M does not have only where T is large near by. */
__global__ void diagonals_kernel(params k, int side)
{
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= k.n * k.lanes)
        return;
    const int j = i / k.lanes, column = i % k.lanes;
    const size_t lanes = k.lanes, lrow = (size_t)(k.m + 1) * lanes, trow = (size_t)(k.band + 1) * lanes;
    double *t = k.t[side > 0] + column;
    const bool large = is_large_for(k, j, column, t[(size_t)j * trow]);
    const double *l = k.ldl + column + side, *v = k.v + (size_t)j * k.rows * lanes + column;
    /* element (j, j + d) from columns j and j + d; those near the diagonal together */
    const int length = k.length[i], near = min(min(NEAR, k.m), k.n - 1 - j);
    double sums[NEAR + 1] = {0.0};
    int rows[NEAR + 1];
#pragma unroll
    for (int d = 1; d <= NEAR; d++)
        rows[d] = d <= near ? min(k.length[(size_t)(j + d) * lanes + column] + d, length) : 0;
    for (int r = 1; r < length; r++) {
        const int at = j - k.depth + r;
        if (at < 0 || at >= k.n)
            continue;
        const double mine = v[(size_t)r * lanes] * l[(size_t)at * lrow];
#pragma unroll
        for (int d = 1; d <= NEAR; d++)
            if (r >= d && r < rows[d])
                sums[d] = fma(mine, v[((size_t)d * k.rows + r - d) * lanes], sums[d]);
    }
#pragma unroll
    for (int d = 1; d <= NEAR; d++)
        if (d <= k.band)
            t[(size_t)j * trow + (size_t)d * lanes] = sums[d];
    for (int d = near + 1; d <= k.band; d++) {
        double sum = 0.0;
        const int to = j + d;
        if (to < k.n && length > 0 && (d <= k.m || large || is_large_for(k, to, column, t[(size_t)to * trow]))) {
            const double *other = k.v + (size_t)to * k.rows * lanes + column;
            const int theirs = k.length[(size_t)to * lanes + column], mine = length - d;
            for (int r = 0; r < theirs && r < mine; r++) {
                const int at = to - k.depth + r;
                if (at >= 0 && at < k.n)
                    sum += other[(size_t)r * lanes] * l[(size_t)at * lrow] * v[(size_t)(r + d) * lanes];
            }
        }
        t[(size_t)j * trow + (size_t)d * lanes] = sum;
    }
}

/* ---- A_s ---- */

/* Limits of second-neighbour terms of T, as multiples of the tolerance. STRONG: left after the correction, else the
 * bundle is strongly coupled. SECOND: above it the correction is made, HARD_SECOND beside masks. Ten times the CPU's
 * limits, because all of the bundle is solved again; with 0.03 traces that come close to each other differed from the
 * CPU's by 1.2e-6 sigma. */
__device__ constexpr double STRONG = 0.01, SECOND = 0.001, HARD_SECOND = 0.004;

/* The same of bins beside masks: smaller as Z M is above HARD. */
__device__ double strong_scale(const params &k, int bin, int column)
{
    const double z = hard_z(k, bin, column);
    return z > 0.0 ? HARD / z : 1.0;
}

/* The same in units of 1/Z: above WIDE_SECOND diagonals matter that M does not have, and second_wide_kernel() makes the
 * correction; above MOST_SECOND the bundle is strongly coupled where that has too little shared memory. */
__device__ constexpr double WIDE_SECOND = 1.0, MOST_SECOND = 50.0;

/* Values that a thread asks for before it uses one. */
enum { ASKED = 8 };

/* How far away the neighbour's own neighbour counts. */
__device__ int strong_bins(const params &k)
{
    return k.depth + TAIL / 2;
}

/* Of an element of A_s, in units of 1/Z as in trace/sqrt.h, as a multiple of the tolerance: the half-bandwidth is that
 * of larger ones. */
__device__ constexpr double NEEDED = 0.3;

/* A_s = M_ss - T- - T+, and the half-bandwidth that a fibre needs, by blocks of bins. Says where more than one
 * neighbour at a time may matter, for strong_kernel(): nowhere if no neighbour takes off more than the root of what is
 * corrected, and those beyond the next one take off no more than a third of the limit. One thread a bin. */
__global__ void schur_kernel(params k)
{
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= k.n * k.lanes)
        return;
    const int j = i / k.lanes, column = i % k.lanes, f = column % k.nl;
    const size_t lanes = k.lanes, trow = (size_t)(k.band + 1) * lanes, mrow = (size_t)k.nelem * lanes;
    const size_t at = (size_t)j * trow + column;
    const double *mat = k.mat + (size_t)j * mrow + column;
    double *a = k.a + at;
    const bool there = k.fibre[column] >= 0;
    for (int d0 = 0; d0 <= k.m; d0 += ASKED) {
        double v[ASKED];
#pragma unroll
        for (int i = 0; i < ASKED; i++) {
            const size_t e = (size_t)(d0 + i) * lanes;
            v[i] = d0 + i <= k.m ? mat[e] : 0.0;
            if (d0 + i <= k.m && k.reach >= 1)
                v[i] -= k.t[0][at + e] + k.t[1][at + e];
        }
#pragma unroll
        for (int i = 0; i < ASKED; i++)
            if (d0 + i <= k.m)
                a[(size_t)(d0 + i) * lanes] = there ? v[i] : d0 + i == 0 ? 1.0 : 0.0;
    }
    if (!there || k.reach < 1 || !(schur_flags_of(k, column, j, j + k.band) & SCHUR_LARGE)) {
        for (int d = k.m + 1; d <= k.band; d++)
            a[d * lanes] = 0.0;
    } else {
        const double least = NEEDED * k.drop_tolerance;
        int need = 0;
        for (int d = k.m + 1; d <= k.band; d++) {
            const double v = -(k.t[0][at + d * lanes] + k.t[1][at + d * lanes]);
            a[d * lanes] = v;
            if (j + d < k.n && v * v * k.variance[i] * k.variance[i + d * k.lanes] > least * least)
                need = d;
        }
        if (need > 0) {
            atomicMax(&k.need[(size_t)(j / NEED) * lanes + column], need);
            atomicMax(&k.need[(size_t)((j + need) / NEED) * lanes + column], need);
        }
    }
    if (!there || k.reach < 1)
        return;
    const double third = STRONG * strong_scale(k, j, column) * k.tolerance / 3.0, inverse = k.inverse[i];
    const double taken = fmax(k.t[0][at], k.t[1][at]) * inverse;
    if (taken * taken > SECOND * strong_scale(k, j, column) * k.tolerance)
        for (int g = max(f - 1, 0); g <= min(f + 1, k.nl - 1); g++)
            for (int to = max(j - strong_bins(k), 0) / SCHUR_BINS; to <= min(j + strong_bins(k), k.n - 1) / SCHUR_BINS;
                 to++)
                atomicOr(&k.schur_flags[to * k.lanes + column - f + g], SCHUR_STRONG);
    int pairs = 0;
    for (int df = 2; df <= k.reach; df++)
        pairs += k.hi[df] - k.lo[df] + 1;
    for (int df = 2; df <= k.reach && f + df < k.nl; df++)
        for (int dk0 = k.lo[df]; dk0 <= k.hi[df]; dk0 += ASKED) {
            double v[ASKED];
#pragma unroll
            for (int i = 0; i < ASKED; i++)
                v[i] = dk0 + i <= k.hi[df] ? mat[(size_t)(k.first[df] + dk0 + i - k.lo[df]) * lanes] : 0.0;
#pragma unroll
            for (int i = 0; i < ASKED; i++) {
                const int to = j + dk0 + i; /* there is no bin beyond the last, and no overlap with it */
                if (v[i] != 0.0 &&
                    10.0 * pairs * v[i] * v[i] * inverse * k.inverse[(size_t)to * lanes + column + df] > third) {
                    atomicOr(&k.schur_flags[j / SCHUR_BINS * k.lanes + column], SCHUR_STRONG);
                    atomicOr(&k.schur_flags[to / SCHUR_BINS * k.lanes + column + df], SCHUR_STRONG);
                }
            }
        }
}

/* Elements of T beyond the band: T_ij^2 <= T_jj times what rows of column i of V beyond the band take off. Where that
 * matters, as where two fibres touch at both ends of a trace and nowhere else, A_s has more diagonals than there is
 * room for; then it is 10^3 to 10^7 times the tolerance. In usual frames it is up to a hundred times, of elements that
 * lie beside the band and are a small part of that: one thread a bin. */
__device__ constexpr double BEYOND_BAND = 600.0;

__global__ void beyond_kernel(params k)
{
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= k.n * k.lanes)
        return;
    const int bin = i / k.lanes, column = i % k.lanes;
    const double limit = BEYOND_BAND * k.drop_tolerance * BEYOND_BAND * k.drop_tolerance;
    for (int side = 0; side < 2 && k.fibre[column] >= 0; side++) {
        const double taken = k.t[side][(size_t)bin * (k.band + 1) * k.lanes + column];
        const double mine = (taken - k.within[side][i] + ENDLESS * (taken - k.early[side][i])) * k.variance[i];
        if (mine * k.taken[(size_t)side * k.lanes + column] <= limit)
            continue;
        double most = 0.0;
        for (int to = bin + k.band + 1; to < min(bin + 2 * k.depth + SPX_TRACE_LONG_TAIL, k.n); to++) {
            const size_t at = (size_t)to * k.lanes + column;
            most = fmax(most, k.t[side][(size_t)to * (k.band + 1) * k.lanes + column] * k.variance[at]);
        }
        if (mine * most > limit)
            atomicOr(&k.bad[column / k.nl], BAD_BAND);
    }
}

/* Bins beyond the overlap that second_kernel() follows a column for: a thousandth is left there. Threads of a block. */
enum { SECOND_TAIL = 16, SECOND_THREADS = 2 * WARP };

/* Rows of a column of W, and columns that the elements of a segment's T need. */
__host__ __device__ inline int second_rows(const params &k)
{
    return 2 * (k.depth + SECOND_TAIL) + 1;
}
__host__ __device__ inline int second_columns(const params &k)
{
    return SCHUR_BINS + k.m;
}
/* Rows of factors, and of T, that are in shared memory, and their length there: odd, so that those of neighbouring bins
 * are in different banks. */
__host__ __device__ inline int second_bins(const params &k)
{
    return second_rows(k) + second_columns(k) - 1;
}
__host__ __device__ inline int second_pitch(const params &k)
{
    return k.m + 1 + k.m % 2;
}
/* Doubles of shared memory; 0: T is not corrected. */
__host__ __device__ inline int second_size(const params &k)
{
    const int size = second_rows(k) * second_columns(k) + 2 * second_bins(k) * second_pitch(k);
    return k.m <= NEAR && size * sizeof(double) <= 48 << 10 ? size : 0;
}

/* The same for second_wide_kernel(), whose columns are of all of the band. The ends of a column, WIDE_END rows of it,
 * say whether it is long enough. */
enum { WIDE_TAIL = 20, WIDE_THREADS = 4 * WARP, WIDE_END = 4, WIDE_TOGETHER = 8 };

__host__ __device__ inline int wide_rows(const params &k)
{
    return 2 * (k.depth + WIDE_TAIL) + 1;
}
__host__ __device__ inline int wide_columns(const params &k)
{
    return SCHUR_BINS + k.band;
}
__host__ __device__ inline int wide_pitch(const params &k)
{
    return wide_columns(k) + 1 - wide_columns(k) % 2;
}
/* Bins that rows of columns are of. */
__host__ __device__ inline int wide_bins(const params &k)
{
    return wide_rows(k) + wide_columns(k) - 1;
}
/* Bytes of shared memory; 0: it is more than there is. */
__host__ __device__ inline size_t wide_size(const params &k)
{
    const size_t doubles = 2 * (size_t)wide_rows(k) * wide_pitch(k) + (size_t)wide_bins(k) * second_pitch(k);
    const size_t size = doubles * sizeof(double) + wide_bins(k);
    return size <= BAND_SHARED ? size : 0;
}

/* What a neighbour takes off a bin, as a fraction of its diagonal: the most of the bins around. Of bins beside masks as
 * a fraction of 1/Z, unless bundles are coupled: the CPU's rule, which has the diagonal, is for more neighbours. */
__device__ double most_subtracted(const params &k, int side, int bin, int column, int around)
{
    double most = 0.0;
    for (int j = max(bin - around, 0); j <= min(bin + around, k.n - 1); j++) {
        const double scale = k.inverse[j * k.lanes + column];
        const double z = k.coupled ? 0.0 : hard_z(k, j, column);
        most = fmax(most, k.t[side][(size_t)j * (k.band + 1) * k.lanes + column] * scale * fmax(z, 1.0));
    }
    return most;
}

/* Bound of what fibres farther than the next take off the diagonal of a bin on one side, as a fraction of it: see
 * find_scales() of the CPU. */
__device__ double most_direct(const params &k, int side, int bin, int column)
{
    const int f = column % k.nl;
    const size_t lanes = k.lanes, mrow = (size_t)k.nelem * lanes;
    double direct = 0.0;
    for (int df = 2; df <= k.reach; df++)
        for (int dk = k.lo[df]; dk <= k.hi[df]; dk++) {
            const int to = side ? bin + dk : bin - dk, far = side ? f + df : f - df;
            if (to < 0 || to >= k.n || far < 0 || far >= k.nl || k.fibre[column + (side ? df : -df)] < 0)
                continue;
            const size_t e = (size_t)(k.first[df] + dk - k.lo[df]) * lanes;
            const double v = side ? k.mat[(size_t)bin * mrow + e + column] : k.mat[(size_t)to * mrow + e + column - df];
            direct += v * v * k.inverse[(size_t)to * lanes + column + (side ? df : -df)];
        }
    return direct * (10.0 * k.inverse[(size_t)bin * lanes + column]);
}

/* Where one neighbour on each side at a time is not enough, see find_strong() of the CPU: one thread a bin. What the
 * neighbour's own neighbour takes off it is corrected by second_kernel() or second_wide_kernel(); bundles for which
 * that is not enough are strongly coupled. Bins that are near none of the output do not matter. With T_g and T_h, what
 * is taken off the next fibre and the one after it, as fractions x and y: the first leaves x and y of its correction,
 * the second x^2, and what T_g itself lacks, y and 2 x y. */
__global__ void strong_kernel(params k)
{
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= k.n * k.lanes)
        return;
    const int bin = i / k.lanes, column = i % k.lanes, f = column % k.nl, around = strong_bins(k);
    if (k.fibre[column] < 0 || !(k.schur_flags[bin / SCHUR_BINS * k.lanes + column] & SCHUR_STRONG) ||
        bin + around < k.pad || bin - around >= k.pad + k.nwave)
        return;
    const size_t trow = (size_t)(k.band + 1) * k.lanes;
    const double scale = strong_scale(k, bin, column), limit = STRONG * scale * k.tolerance, inverse = k.inverse[i];
    const double second = scale < 1.0 ? HARD_SECOND * scale : SECOND;
    for (int side = 0; side < 2; side++) {
        const int g = 2 * side - 1;
        if (f + g < 0 || f + g >= k.nl || k.fibre[column + g] < 0)
            continue;
        const double own = k.t[side][(size_t)bin * trow + column] * inverse;
        const double direct = most_direct(k, side, bin, column);
        const double both = own > second * k.tolerance ? own * most_subtracted(k, side, bin, column + g, around) : 0.0;
        const double in_z = both * k.variance[i] * k.mat[(size_t)bin * k.nelem * k.lanes + column];
        double left = both;
        if (both > second * k.tolerance && (second_size(k) > 0 || wide_size(k) > 0)) {
            const int far = f + 2 * g;
            const double x = both / own;
            double y = 0.0;
            if (far >= 0 && far < k.nl && k.fibre[column + 2 * g] >= 0)
                y = most_subtracted(k, side, bin, column + 2 * g, 2 * around);
            left *= 2.0 * fmax(x, y);
            const bool wide = second_size(k) == 0 || in_z > WIDE_SECOND * k.tolerance || left > 0.5 * limit;
            if (wide && wide_size(k) > 0)
                left = both * (x * x + 2.0 * x * y + y);
            else if (wide && in_z > MOST_SECOND * k.tolerance)
                atomicOr(&k.bad[column / k.nl], BAD_STRONG);
            const int flags = SCHUR_SECOND | (wide && wide_size(k) > 0 ? SCHUR_WIDE : 0);
            for (int to = max(bin - around, 0) / SCHUR_BINS; to <= min(bin + around, k.n - 1) / SCHUR_BINS; to++)
                atomicOr(&k.schur_flags[to * k.lanes + column], flags);
        }
        if (left + sqrt(both * direct) + direct > limit)
            atomicOr(&k.bad[column / k.nl], BAD_STRONG);
    }
}

/* A_f where the neighbour g of a fibre f has lost information to the next but one, T_g, to first order in it:
 *     M_fg (M_gg - T_g)^-1 M_gf = T_f + W^T T_g W + ...,   W = M_gg^-1 M_gf.
 * Block (lane, segment of bins): factors and T_g go to shared memory; a thread makes a column of W, [row][column]; then
 * each of the warps has every other row of W^T T_g W. */
__global__ void second_kernel(params k)
{
    extern __shared__ double shared[];
    const int column = blockIdx.x;
    if ((k.schur_flags[blockIdx.y * k.lanes + column] & (SCHUR_SECOND | SCHUR_WIDE)) != SCHUR_SECOND)
        return;
    const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, first = blockIdx.y * SCHUR_BINS, j = first + lane;
    const int rows = second_rows(k), before = rows / 2, columns = second_columns(k);
    const int bins = second_bins(k), pitch = second_pitch(k), bin0 = first - before;
    const size_t lanes = k.lanes, lrow = (size_t)(k.m + 1) * lanes, trow = (size_t)(k.band + 1) * lanes;
    double *l = shared + rows * columns, *t = l + bins * pitch; /* of bins bin0 ... */
    for (int side = 0; side < 2; side++) {
        const int g = 2 * side - 1, far = column % k.nl + 2 * g;
        if (far < 0 || far >= k.nl || k.fibre[column + g] < 0 || k.fibre[column + 2 * g] < 0)
            continue;
        for (int i = threadIdx.x; i < bins * (k.m + 1); i += SECOND_THREADS) {
            const int row = i / (k.m + 1), d = i - row * (k.m + 1), at = bin0 + row;
            const bool there = at >= 0 && at < k.n;
            const size_t bin = there ? at : 0;
            fetch_or_zero(l + row * pitch + d, k.ldl + bin * lrow + d * lanes + column + g, there);
            fetch_or_zero(t + row * pitch + d, k.t[side] + bin * trow + d * lanes + column + g, there && at + d < k.n);
        }
        __pipeline_commit();
        __pipeline_wait_prior(0);
        __syncthreads();
        for (int c = threadIdx.x; c < columns; c += SECOND_THREADS) {
            double *w = shared + c;
            const double *lc = l + c * pitch; /* of row 0 */
            const int top = bin0 + c;
            for (int r = 0; r < rows; r++) {
                const int at = top + r, step = side ? r - before : before - r;
                double sum = 0.0;
                if (first + c < k.n && at >= 0 && at < k.n && step >= k.lo[1] && step <= k.hi[1])
                    sum = k.mat[((size_t)(side ? first + c : at) * k.nelem + k.first[1] + step - k.lo[1]) * lanes +
                                column - !side];
                const int most = min(k.m, r);
#pragma unroll
                for (int s = NEAR; s >= 1; s--)
                    if (s <= most)
                        sum = fma(-lc[(r - s) * pitch + s], w[(r - s) * columns], sum);
                w[r * columns] = at < k.n ? sum : 0.0;
            }
            for (int r = rows - 1; r >= 0; r--) {
                double sum = w[r * columns] * lc[r * pitch];
                const int most = min(k.m, rows - 1 - r);
#pragma unroll
                for (int s = NEAR; s >= 1; s--)
                    if (s <= most)
                        sum = fma(-lc[r * pitch + s], w[(r + s) * columns], sum);
                w[r * columns] = sum;
            }
        }
        __syncthreads();
        double sums[NEAR + 1] = {0.0};
        for (int r = warp; r < rows; r += SECOND_THREADS / WARP) {
            const int below = min(k.m, r), above = min(k.m, rows - 1 - r);
            const double *tr = t + (lane + r) * pitch;
            double u = 0.0;
#pragma unroll
            for (int e = -NEAR; e <= NEAR; e++)
                if (e >= -below && e <= above)
                    u = fma(tr[e < 0 ? e * pitch - e : e], shared[(r + e) * columns + lane], u);
#pragma unroll
            for (int d = 0; d <= NEAR; d++)
                if (d <= below)
                    sums[d] = fma(u, shared[(r - d) * columns + lane + d], sums[d]);
        }
        __syncthreads();
        if (warp > 0)
#pragma unroll
            for (int d = 0; d <= NEAR; d++)
                shared[d * WARP + lane] = sums[d];
        __syncthreads();
        if (warp == 0)
#pragma unroll
            for (int d = 0; d <= NEAR; d++)
                if (d <= k.m && j + d < k.n)
                    k.a[(size_t)j * trow + d * lanes + column] -= sums[d] + shared[d * WARP + lane];
        __syncthreads();
    }
}

/* Columns of a segment for one neighbour: row r of column c is of bin bin0 + c + r. */
struct wide_block {
    int first, bin0; /* bin of the segment, of row 0 of its first column */
    int rows, columns, pitch, bins, m, factor_pitch;
    int mine, beside;  /* lanes of the fibre and of its neighbour */
    const double *l;   /* [bins][factor_pitch] factors of the neighbour, 0 outside the trace */
    const double *t;   /* its T_g, of bin 0 */
    const char *known; /* [bins] whether T_g has diagonals that M does not have */
};

/* w, [rows][pitch], becomes M_gg^-1 w within the window of each column. */
__device__ void wide_solve(const wide_block &o, double *w)
{
    for (int c = threadIdx.x; c < o.columns; c += WIDE_THREADS) {
        const double *l = o.l + c * o.factor_pitch;
        double *v = w + c;
        for (int r = 0; r < o.rows; r++) {
            double sum = v[r * o.pitch];
            for (int s = min(o.m, r); s >= 1; s--)
                sum = fma(-l[(r - s) * o.factor_pitch + s], v[(r - s) * o.pitch], sum);
            v[r * o.pitch] = sum;
        }
        for (int r = o.rows - 1; r >= 0; r--) {
            double sum = v[r * o.pitch] * l[r * o.factor_pitch];
            for (int s = min(o.m, o.rows - 1 - r); s >= 1; s--)
                sum = fma(-l[r * o.factor_pitch + s], v[(r + s) * o.pitch], sum);
            v[r * o.pitch] = sum;
        }
    }
    __syncthreads();
}

/* u = T_g w: a thread has a bin and a few columns. */
__device__ void wide_multiply(const params &k, const wide_block &o, const double *w, double *u)
{
    const int groups = (o.columns + WIDE_TOGETHER - 1) / WIDE_TOGETHER;
    const size_t trow = (size_t)(k.band + 1) * k.lanes;
    for (int i = threadIdx.x; i < o.bins * groups; i += WIDE_THREADS) {
        const int b = i % o.bins, at = o.bin0 + b, c0 = i / o.bins * WIDE_TOGETHER;
        double sum[WIDE_TOGETHER] = {0.0};
        for (int e = -k.band; e <= k.band && at >= 0 && at < k.n; e++) {
            const int from = b + min(e, 0), d = abs(e);
            if (b + e < 0 || b + e >= o.bins || at + e < 0 || at + e >= k.n || (d > o.m && !o.known[from]))
                continue;
            const double t = o.t[(size_t)(o.bin0 + from) * trow + (size_t)d * k.lanes];
#pragma unroll
            for (int c = 0; c < WIDE_TOGETHER; c++) {
                const int r = b + e - c0 - c;
                if (c0 + c < o.columns && r >= 0 && r < o.rows)
                    sum[c] = fma(t, w[r * o.pitch + c0 + c], sum[c]);
            }
        }
#pragma unroll
        for (int c = 0; c < WIDE_TOGETHER; c++) {
            const int r = b - c0 - c;
            if (c0 + c < o.columns && r >= 0 && r < o.rows)
                u[r * o.pitch + c0 + c] = sum[c];
        }
    }
    __syncthreads();
}

/* A_f -= u^T w, and the half-bandwidth that A_f needs then: a thread has a bin and a diagonal. */
__device__ void wide_subtract(const params &k, const wide_block &o, const double *u, const double *w)
{
    for (int i = threadIdx.x; i < SCHUR_BINS * (k.band + 1); i += WIDE_THREADS) {
        const int c = i % SCHUR_BINS, d = i / SCHUR_BINS, j = o.first + c;
        if (j + d >= k.n)
            continue;
        double sum = 0.0, ends = 0.0;
        for (int r = d; r < o.rows; r++) {
            const double v = u[r * o.pitch + c] * w[(r - d) * o.pitch + c + d];
            sum += v;
            ends += r < WIDE_END || r >= o.rows - WIDE_END ? fabs(v) : 0.0;
        }
        double &a = k.a[((size_t)j * (k.band + 1) + d) * k.lanes + o.mine];
        a -= sum;
        const double z = k.variance[(size_t)j * k.lanes + o.mine], limit = NEEDED * k.drop_tolerance;
        if (d == 0 && ends * z > k.tolerance)
            atomicOr(&k.bad[o.mine / k.nl], BAD_STRONG);
        if (d > k.m && a * a * z * k.variance[(size_t)(j + d) * k.lanes + o.mine] > limit * limit) {
            atomicMax(&k.need[(size_t)(j / NEED) * k.lanes + o.mine], d);
            atomicMax(&k.need[(size_t)((j + d) / NEED) * k.lanes + o.mine], d);
        }
    }
    __syncthreads();
}

/* The same to second order in T_g, with all diagonals of T_g and of A_f:
 *     M_fg (M_gg - T_g)^-1 M_gf = T_f + U^T W + U^T M_gg^-1 U + ...,   U = T_g W.
 * Block (lane, segment). */
__global__ void __launch_bounds__(WIDE_THREADS) second_wide_kernel(params k)
{
    extern __shared__ double shared[];
    const int column = blockIdx.x;
    if (!(k.schur_flags[blockIdx.y * k.lanes + column] & SCHUR_WIDE))
        return;
    wide_block o;
    o.rows = wide_rows(k);
    o.columns = wide_columns(k);
    o.pitch = wide_pitch(k);
    o.bins = wide_bins(k);
    o.m = k.m;
    o.factor_pitch = second_pitch(k);
    o.first = blockIdx.y * SCHUR_BINS;
    o.bin0 = o.first - o.rows / 2;
    o.mine = column;
    const size_t lanes = k.lanes, lrow = (size_t)(k.m + 1) * lanes;
    double *w = shared, *u = w + o.rows * o.pitch, *l = u + o.rows * o.pitch;
    char *known = (char *)(l + o.bins * o.factor_pitch);
    for (int side = 0; side < 2; side++) {
        const int g = 2 * side - 1, far = column % k.nl + 2 * g;
        if (far < 0 || far >= k.nl || k.fibre[column + g] < 0 || k.fibre[column + 2 * g] < 0)
            continue;
        o.beside = column + g;
        for (int i = threadIdx.x; i < o.bins * (k.m + 1); i += WIDE_THREADS) {
            const int row = i / (k.m + 1), d = i - row * (k.m + 1), at = o.bin0 + row;
            l[row * o.factor_pitch + d] = at >= 0 && at + d < k.n ? k.ldl[at * lrow + d * lanes + o.beside] : 0.0;
        }
        for (int i = threadIdx.x; i < o.bins; i += WIDE_THREADS) {
            const int at = o.bin0 + i;
            known[i] = at >= 0 && at < k.n && (schur_flags_of(k, o.beside, at, at + k.band) & SCHUR_LARGE) != 0;
        }
        for (int i = threadIdx.x; i < o.rows * o.columns; i += WIDE_THREADS) {
            const int r = i / o.columns, c = i % o.columns, at = o.bin0 + c + r;
            const int step = side ? r - o.rows / 2 : o.rows / 2 - r;
            const bool in = o.first + c < k.n && at >= 0 && at < k.n && step >= k.lo[1] && step <= k.hi[1];
            w[r * o.pitch + c] =
                !in ? 0.0
                    : k.mat[((size_t)(side ? o.first + c : at) * k.nelem + k.first[1] + step - k.lo[1]) * lanes +
                            column - !side];
        }
        o.l = l;
        o.t = k.t[side] + o.beside;
        o.known = known;
        __syncthreads();
        wide_solve(o, w);
        wide_multiply(k, o, w, u);
        wide_subtract(k, o, u, w);
        for (int i = threadIdx.x; i < o.rows * o.pitch; i += WIDE_THREADS)
            w[i] = u[i];
        __syncthreads();
        wide_solve(o, w);
        wide_subtract(k, o, u, w);
    }
}

/* Whether columns of V fit into a ring: those of all bandwidths that have loops, but for spots far longer than usual.
 */
bool fits_ring(const params &k)
{
    return has_loop(k.m) && k.rows <= ring_of(LONG_RING) - (SCHUR_COLUMNS - 1) && k.band <= FARTHEST;
}

/* A_s in k.a, and what bounds() needs of it. The half-bandwidths go to `need` of the host, when the stream has come so
 * far. */
void schur_complement(params k, arena m, int *need, slot *s)
{
    const size_t bins = (size_t)k.n * k.lanes, nneed = (size_t)need_blocks(k) * k.lanes;
    const unsigned each = blocks(bins, 128);
    const bool ring = fits_ring(k);
    zero(s, k.need, sizeof(int) * nneed);
    zero(s, k.schur_flags, sizeof(int) * schur_segments(k) * k.lanes);
    zero(s, k.taken, sizeof(double) * 2 * k.lanes);
    arena own = m;
    slot beside = *s;
    fork(s, 0, &beside.stream);
    own_variances(k, has_loop(k.m) ? NULL : own.take<double>(own_size(k) * k.lanes), &beside);
    narrow_kernel<<<k.lanes, WARP, 0, s->stream>>>(k);
    if (ring) {
        switch (k.m) {
        case 6:
            schur_terms<6>(k, s);
            break;
        case 7:
            schur_terms<7>(k, s);
            break;
        case 8:
            schur_terms<8>(k, s);
            break;
        default:
            schur_terms<9>(k, s);
        }
    } else {
        join(s, 1);
    }
    arena scratch = m;
    if (k.reach >= 1) /* memory is that of V, which comes after it */
        drop_scale_kernel<<<k.lanes, BAND_THREADS, 0, s->stream>>>(k, take_drop_scratch(scratch, k));
    if (!ring && k.reach >= 1) {
        k.v = m.take<double>(bins * k.rows);
        for (int side = -1; side <= 1; side += 2) {
            columns_kernel<<<each, 128, 0, s->stream>>>(k, side);
            diagonals_kernel<<<each, 128, 0, s->stream>>>(k, side);
        }
    }
    schur_kernel<<<each, 128, 0, s->stream>>>(k);
    if (k.reach >= 1) {
        strong_kernel<<<each, 128, 0, s->stream>>>(k);
        const size_t memory = (size_t)second_size(k) * sizeof(double);
        fork(s, 0, &beside.stream);
        if (memory > 0)
            second_kernel<<<dim3(k.lanes, schur_segments(k)), SECOND_THREADS, memory, beside.stream>>>(k);
        if (wide_size(k) > 0)
            second_wide_kernel<<<dim3(k.lanes, schur_segments(k)), WIDE_THREADS, wide_size(k), s->stream>>>(k);
        beyond_kernel<<<each, 128, 0, s->stream>>>(k);
        join(s, 1);
    }
    spx::check(cudaGetLastError(), "launch");
    get(s, need, k.need, nneed);
}

} // namespace

#endif
