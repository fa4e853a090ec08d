/* Provides the normal equations, M = A^T W A and A^T W p, and the flux weights, from overlaps of spots; regularisation.
 *
 * Overlaps of a frame of 500 fibres x 2326 bins are 4.4 GFLOP and could take 0.2 ms on an H200, but a product a pair of
 * bins spends its time on addresses and on adding up lanes: 9.9. As products of 8 x 8 bins over the pixels that both
 * groups cover, zeros where a spot has none, the tensor cores add them up (m8n8k4); group by group, each of which asks
 * for its partners' spots again: 4.0. Row by row along a trace, with all products of two groups in registers, a row of
 * a spot is read once for all of them, and tiles of 16 x 8 bins take the tensor cores as long as 8 x 8 (4 cycles of a
 * multiprocessor): 1.9. On the way: 2.9 where registers do not hold the next row, which then is not under way while one
 * is worked on; 2.7 where it goes through shared memory, two copies a pixel as zeros are filled in by one of their own;
 * 2.7 with 8 warps a multiprocessor and elements of M written where they are, 8 bytes apart by a row of lanes each. */
#ifndef SPX_EXTRACT_CUDA_NORMAL_CUH
#define SPX_EXTRACT_CUDA_NORMAL_CUH

#include "extract/cuda/spots.cuh"

namespace
{

enum {
    SIDES = 3,      /* a trace and the next two */
    TRACES = 4,     /* traces of a block, a warp each, */
    RUN = 14,       /* and groups of eight bins that it goes along these */
    BEFORE = 16,    /* pixels in front of a spot that an address may point to; nobody reads them */
    TILE_ROOM = 68, /* elements of 8 x 8 bins, with a gap that keeps the traces out of each other's banks */
    TILES = 3 * SIDES - 1,
    NO_ROW = INT_MAX / 2 /* a row that no image has */
};

/* Eight bins of a trace: lane l has bin l/4. */
struct eight {
    unsigned at; /* pixels from the spot of w's first bin, of the block's first trace, to that of this bin */
    int xc, yc;  /* yc = NO_ROW: no spot */

    __device__ bool there() const
    {
        return yc != NO_ROW;
    }
};

/* What a row has of pixels in columns x .. x + 4 N - 1, of w and of w + 1. Lane l: bin l/4, column l%4 of each four.
 * Traces df further have none of their pixels in the first 4 S<df> columns. */
template <int N, int S1, int S2> struct row {
    double own[2][N], next[2][N - S1], far[2][N - S2];
    float ivar, flux; /* of column l, l < 4 N */
};

/* A window: what the pixels of two groups of eight bins of a trace, w and w + 1, add to M and to the right-hand sides.
 */
struct window {
    double first[2];                     /* products of w with w, */
    double other[SIDES][2][4];           /* [df][j]: of w, and of w + 1, with w + j of the trace df further */
    double value[2], weight[2], seen[2]; /* of w and of w + 1 */

    /* Rows begin .. end - 1. image: [16] shared memory of this warp. The next row is on its way while one is worked on,
     * if TWO rows are to be held. */
    template <int N, int S1, int S2, bool TWO>
    __device__ void add(const params &k, const double *spots, const eight (&e)[SIDES][2], double2 *image, int x,
                        int begin, int end)
    {
        const int lane = (int)threadIdx.x % WARP, q = lane % 4;
        unsigned at[SIDES][2], inside = 0; /* bytes; columns that are a spot's, four bits each of them */
#pragma unroll
        for (int i = 0; i < SIDES; i++)
#pragma unroll
            for (int j = 0; j < 2; j++) {
                const int dx = x + q - e[i][j].xc;
#pragma unroll
                for (int s = 0; s < N; s++)
                    inside |= (unsigned)(dx + 4 * s) < (unsigned)k.nx ? 1u << (4 * (2 * i + j) + s) : 0u;
                at[i][j] =
                    (unsigned)sizeof(double) * (e[i][j].at + (unsigned)((begin - e[i][j].yc) * k.nx + dx + BEFORE));
            }
        const int column = x + lane;
        const bool on_ccd = lane < 4 * N && column >= 0 && column < k.ccd_nx;
        unsigned pixel = (unsigned)begin * (unsigned)k.ccd_nx + (on_ccd ? (unsigned)column : 0);
        const char *base = (const char *)(spots - BEFORE);
        auto fetch = [&](row<N, S1, S2> &to, int y) {
            to.ivar = k.weight[pixel];
            to.flux = k.data[pixel];
            pixel += (unsigned)k.ccd_nx;
#pragma unroll
            for (int j = 0; j < 2; j++) {
                unsigned in[SIDES];
                const double *from[SIDES];
#pragma unroll
                for (int i = 0; i < SIDES; i++) {
                    in[i] = (unsigned)(y - e[i][j].yc) < (unsigned)k.ny ? inside : 0;
                    from[i] = (const double *)(base + at[i][j]);
                    at[i][j] += (unsigned)sizeof(double) * (unsigned)k.nx;
                }
#pragma unroll
                for (int s = 0; s < N; s++)
                    to.own[j][s] = in[0] & 1u << (4 * j + s) ? from[0][4 * s] : 0.0;
#pragma unroll
                for (int s = S1; s < N; s++)
                    to.next[j][s - S1] = in[1] & 1u << (8 + 4 * j + s) ? from[1][4 * s] : 0.0;
#pragma unroll
                for (int s = S2; s < N; s++)
                    to.far[j][s - S2] = in[2] & 1u << (16 + 4 * j + s) ? from[2][4 * s] : 0.0;
            }
        };
        auto use = [&](const row<N, S1, S2> &have) {
            const float ivar = on_ccd ? have.ivar : 0.0f;
            if (lane < 16)
                image[lane] = {(double)ivar, ivar > 0.0f ? (double)have.flux : 0.0};
            __syncwarp();
#pragma unroll
            for (int s = 0; s < N; s++) {
                const double w = image[q + 4 * s].x, p = image[q + 4 * s].y, counts = w > 0.0 ? 1.0 : 0.0;
                const double mine[2] = {have.own[0][s] * w, have.own[1][s] * w};
#pragma unroll
                for (int j = 0; j < 2; j++) {
                    value[j] = fma(mine[j], p, value[j]);
                    weight[j] += mine[j];
                    seen[j] = fma(have.own[j][s], counts, seen[j]);
                }
                multiply_add(first, mine[0], have.own[0][s]);
                multiply_add(other[0][1], mine[0], mine[1], have.own[1][s]);
#pragma unroll
                for (int j = 0; j < 2; j++) {
                    if (s >= S1)
                        multiply_add(other[1][j], mine[0], mine[1], have.next[j][s - S1]);
                    if (s >= S2)
                        multiply_add(other[2][j], mine[0], mine[1], have.far[j][s - S2]);
                }
            }
            __syncwarp();
        };
        row<N, S1, S2> a;
        if (!TWO) {
#pragma unroll 1
            for (int y = begin; y < end; y++) {
                fetch(a, y);
                use(a);
            }
            return;
        }
        row<N, S1, S2> b;
        fetch(a, begin);
#pragma unroll 1
        for (int y = begin; y < end; y += 2) {
            if (y + 1 < end)
                fetch(b, y + 1);
            use(a);
            if (y + 1 == end)
                break;
            if (y + 2 < end)
                fetch(a, y + 2);
            use(b);
        }
    }

    /* All columns of these rows. Neighbours of the usual spots, 15 pixels wide and 7 to 8 apart, begin at the third and
     * the fourth four columns, or at the second one where bins do not begin at the same column. */
    __device__ void add_rows(const params &k, const double *spots, const eight (&e)[SIDES][2], double2 *image,
                             int begin, int end)
    {
        int left = INT_MAX, right = INT_MIN, next = INT_MAX, far = INT_MAX;
#pragma unroll
        for (int j = 0; j < 2; j++) {
            if (e[0][j].there()) {
                left = min(left, e[0][j].xc);
                right = max(right, e[0][j].xc + k.nx);
            }
            next = e[1][j].there() ? min(next, e[1][j].xc) : next;
            far = e[2][j].there() ? min(far, e[2][j].xc) : far;
        }
        left = __reduce_min_sync(FULL, left);
        right = __reduce_max_sync(FULL, right);
        next = __reduce_min_sync(FULL, next);
        far = __reduce_min_sync(FULL, far);
        if (left >= right)
            return;
        const int x = max(min(left, next - 8), right - 16);
        if (x <= left && next >= x + 8 && far >= x + 12)
            add<4, 2, 3, true>(k, spots, e, image, x, begin, end);
        else if (x <= left && next >= x + 4 && far >= x + 12)
            add<4, 1, 3, false>(k, spots, e, image, x, begin, end);
        else
            for (int some = left; some < right; some += 4)
                add<1, 0, 0, false>(k, spots, e, image, some, begin, end);
    }

    /* What w has with w, at a time before. */
    __device__ void take_back(const window &before)
    {
#pragma unroll
        for (int l = 0; l < 2; l++) {
            first[l] = before.first[l];
#pragma unroll
            for (int i = 1; i < SIDES; i++)
                other[i][0][l] = before.other[i][0][l];
        }
        value[0] = before.value[0];
        weight[0] = before.weight[0];
        seen[0] = before.seen[0];
    }

    /* The next window: what was w + 1 is its w. */
    __device__ void advance()
    {
        first[0] = other[0][1][2];
        first[1] = other[0][1][3];
#pragma unroll
        for (int i = 0; i < SIDES; i++) {
            other[i][0][0] = other[i][1][2];
            other[i][0][1] = other[i][1][3];
            other[i][0][2] = other[i][0][3] = 0.0;
            other[i][1][0] = other[i][1][1] = other[i][1][2] = other[i][1][3] = 0.0;
        }
        value[0] = value[1];
        weight[0] = weight[1];
        seen[0] = seen[1];
        value[1] = weight[1] = seen[1] = 0.0;
    }

    /* tiles: [TILES][TRACES][TILE_ROOM]: w with w and w + 1; then, of each further trace, w + 1 with w, w with w, w
     * with w + 1. */
    __device__ void put(double *tiles) const
    {
        double2 *to = (double2 *)(tiles + threadIdx.x / WARP * TILE_ROOM) + threadIdx.x % WARP;
        const int next = TRACES * TILE_ROOM / 2;
        to[0] = {first[0], first[1]};
        to[next] = {other[0][1][0], other[0][1][1]};
#pragma unroll
        for (int i = 1; i < SIDES; i++) {
            to[(3 * i - 1) * next] = {other[i][0][2], other[i][0][3]};
            to[3 * i * next] = {other[i][0][0], other[i][0][1]};
            to[(3 * i + 1) * next] = {other[i][1][0], other[i][1][1]};
        }
    }
};

/* Elements of M from the tiles of a block's windows: neighbouring threads write neighbouring traces. Those of w, and of
 * w + 1, are wanted or not. */
__device__ void write_tiles(const params &k, const double *tiles, int w, bool want_w, bool want_after)
{
    const int trace = threadIdx.x % TRACES, column = blockIdx.y * TRACES + trace;
    const int r = threadIdx.x / TRACES / 8, c = threadIdx.x / TRACES % 8; /* and r + 4 */
    if (column >= k.lanes)
        return;
    tiles += trace * TILE_ROOM + threadIdx.x / TRACES;
#pragma unroll
    for (int half = 0; half < 2; half++)
#pragma unroll
        for (int after = 0; after < 2; after++) {
            const int bin = 8 * (w + after) + 4 * half + r;
            if (bin >= k.n || !(after ? want_after : want_w))
                continue;
            double *to = k.mat + ((size_t)bin * k.nelem * k.lanes + column);
#pragma unroll
            for (int df = after; df < SIDES; df++)
#pragma unroll
                for (int t = after ? -1 : 0; t < (after ? 0 : 2); t++) {
                    const int element = c - r + (8 * t - 4 * half - k.lo[df]);
                    if (df <= k.reach && (unsigned)element <= (unsigned)(k.hi[df] - k.lo[df]))
                        to[(k.first[df] + element) * k.lanes] = tiles[(3 * df + t) * TRACES * TILE_ROOM + 4 * 8 * half];
                }
        }
}

/* Elements of M between bins of the same and of adjoining groups of eight, of traces up to two apart, and A^T W p,
 * A^T W 1, A^T [W > 0]. A warp goes along a trace with a window of two groups, row by row; each row of a spot is read
 * once for all products, which the tensor cores do. A block has TRACES traces and RUN groups; windows begin a group
 * early, for what its first group has with the one before. */
__global__ void __launch_bounds__(TRACES *WARP, 3) overlaps_kernel(params k)
{
    enum { BINS = 8 * (RUN + 2), COLUMNS = TRACES + SIDES - 1 };
    __shared__ int2 place[BINS][COLUMNS];
    __shared__ double2 images[TRACES][16];
    __shared__ double2 tiles[TILES * TRACES * TILE_ROOM / 2];
    const int lane = threadIdx.x % WARP, r = lane / 4, trace = threadIdx.x / WARP;
    const int column0 = blockIdx.y * TRACES, column = column0 + trace;
    const int w0 = blockIdx.x * RUN, w1 = min(w0 + RUN, (k.n + 7) / 8);
    const int f = column % k.nl, b = min(column, k.lanes - 1) / k.nl, y0 = k.y0[b], y1 = k.y1[b];
    for (int i = threadIdx.x; i < BINS * COLUMNS; i += blockDim.x) {
        const int bin = 8 * (w0 - 1) + i / COLUMNS, its = column0 + i % COLUMNS;
        int2 at = {0, NO_ROW};
        if (bin >= 0 && bin < k.n && its < k.lanes) {
            const size_t place_of = (size_t)bin * k.lanes + its;
            if (k.state[place_of] == SPX_TRACE_SPOT)
                at = {k.at[place_of].xc, k.at[place_of].yc};
        }
        place[i / COLUMNS][i % COLUMNS] = at;
    }
    __syncthreads();
    window sum = {};
    int done = INT_MIN; /* rows before that one: w with w is done */
    for (int w = w0 - 1; w < w1; w++) {
        eight e[SIDES][2];
        int first[2] = {INT_MAX, INT_MAX}, end = INT_MIN;
#pragma unroll
        for (int j = 0; j < 2; j++)
#pragma unroll
            for (int i = 0; i < SIDES; i++) {
                const int2 at = place[8 * (w - w0 + 1 + j) + r][trace + i];
                const bool in = f + i < k.nl && column < k.lanes;
                e[i][j] = {(unsigned)(((8 * j + r) * k.lanes + trace + i) * k.npix), at.x, in ? at.y : NO_ROW};
                if (e[i][j].there()) {
                    first[j] = min(first[j], at.y);
                    end = j == 0 ? max(end, at.y + k.ny) : end;
                }
            }
        first[0] = __reduce_min_sync(FULL, first[0]);
        first[1] = __reduce_min_sync(FULL, first[1]);
        end = min(__reduce_max_sync(FULL, end), y1);
        /* Rows up to the last one of w; what w + 1 has beyond it is the next window's. Where this window begins before
         * the last one has ended, that one has w with w already. */
        const int begin = max(y0, w < w0 ? first[1] : max(min(first[1], done), min(first[0], first[1])));
        const int from = w < w0 ? begin : max(begin, done);
        const double *spots = k.spot + ((ptrdiff_t)(8 * w) * k.lanes + column0) * k.npix;
#pragma unroll 1
        for (int again = 1; again >= 0; again--) {
            const int y = again ? begin : from, last = again ? min(from, end) : end;
            if (y >= last)
                continue;
            const window has = sum;
            sum.add_rows(k, spots, e, images[trace], y, last);
            if (again)
                sum.take_back(has);
        }
        done = end;
        double value = sum.value[0], weight = sum.weight[0], seen = sum.seen[0];
        for (int s = 1; s <= 2; s *= 2) {
            value += __shfl_xor_sync(FULL, value, s);
            weight += __shfl_xor_sync(FULL, weight, s);
            seen += __shfl_xor_sync(FULL, seen, s);
        }
        if (w >= w0 && lane % 4 == 0 && 8 * w + r < k.n && column < k.lanes) {
            const size_t at = (size_t)(8 * w + r) * k.lanes + column;
            k.y[at] = value;
            k.w[at] = weight;
            k.seen[at] = seen;
        }
        __syncthreads();
        sum.put((double *)tiles);
        __syncthreads();
        write_tiles(k, (const double *)tiles, w, w >= w0, w + 1 < w1);
        sum.advance();
    }
}

/* Elements (df, dk), dk >= dk0, where overlaps_kernel leaves them out: of bins more than a group apart, of traces more
 * than two apart. One thread each. */
__global__ void rest_kernel(params k, int df, int dk0)
{
    const int i = blockIdx.x * blockDim.x + threadIdx.x, dk = dk0 + (int)blockIdx.y;
    if (i >= k.n * k.lanes)
        return;
    const int bin = i / k.lanes, column = i % k.lanes, b = column / k.nl, apart = bin % 8 + dk;
    const int other = i + dk * k.lanes + df;
    if (df < SIDES && apart >= -8 && apart < 16)
        return;
    double sum = 0.0;
    if (bin + dk >= 0 && bin + dk < k.n && column % k.nl + df < k.nl && k.state[i] == SPX_TRACE_SPOT &&
        k.state[other] == SPX_TRACE_SPOT) {
        const spx_bin_geometry at = k.at[i], its = k.at[other];
        const double *spot = k.spot + (size_t)i * k.npix, *another = k.spot + (size_t)other * k.npix;
        const int x0 = max(max(at.xc, its.xc), 0), x1 = min(min(at.xc, its.xc) + k.nx, (int)k.ccd_nx);
        const int y0 = max(max(at.yc, its.yc), k.y0[b]), y1 = min(min(at.yc, its.yc) + k.ny, k.y1[b]);
        for (int y = y0; y < y1; y++)
            for (int x = x0; x < x1; x++)
                sum = fma(spot[(y - at.yc) * k.nx + x - at.xc] * (double)k.weight[(size_t)y * k.ccd_nx + x],
                          another[(y - its.yc) * k.nx + x - its.xc], sum);
    }
    k.mat[((size_t)bin * k.nelem + k.first[df] + dk - k.lo[df]) * k.lanes + column] = sum;
}

/* ---- regularisation ---- */

/* Largest weight (A^T W 1) of the fibres of a bundle, bin by bin: one thread a bin and bundle. */
__global__ void largest_kernel(params k)
{
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= k.n * k.nbundle)
        return;
    const double *w = k.w + (size_t)(i / k.nbundle) * k.lanes + (size_t)(i % k.nbundle) * k.nl;
    double most = 0.0;
    for (int f = 0; f < k.nl; f++)
        most = fmax(most, w[f]);
    k.largest[i] = most;
}

/* Largest weight of the bins around each; of all where these have none: such bins stand alone, any diagonal will do.
 * One block of 128 a bundle and 128 bins. */
__global__ void around_kernel(params k)
{
    __shared__ double most[128];
    const int bin = blockIdx.x * 128 + threadIdx.x, b = blockIdx.y;
    double everywhere = 0.0, v = 0.0;
    for (int j = threadIdx.x; j < k.n; j += 128)
        everywhere = fmax(everywhere, k.largest[(size_t)j * k.nbundle + b]);
    most[threadIdx.x] = everywhere;
    __syncthreads();
    for (int step = 64; step > 0; step /= 2) {
        if (threadIdx.x < step)
            most[threadIdx.x] = fmax(most[threadIdx.x], most[threadIdx.x + step]);
        __syncthreads();
    }
    if (bin >= k.n)
        return;
    const int k0 = bin > k.half ? bin - k.half : 0, k1 = k.half < k.n - bin ? bin + k.half : k.n - 1;
    for (int j = k0; j <= k1 && j < k.n; j++)
        v = fmax(v, k.largest[(size_t)j * k.nbundle + b]);
    k.around[(size_t)bin * k.nbundle + b] = v > 0.0 ? v : most[0];
}

/* What is added to the diagonal of M, as on the CPU: alpha^2, larger where a bin has little weight, and the prior. */
__device__ double regularisation(const params &k, int bin, int column)
{
    const double least = 1e-4 * k.around[(size_t)bin * k.nbundle + column / k.nl];
    const double w = k.w[(size_t)bin * k.lanes + column], alpha = w < least ? least - w : k.regularize;
    return alpha * alpha + SPX_TRACE_PRIOR;
}

/* One thread a bin. */
__global__ void regularise_kernel(params k)
{
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= k.n * k.lanes)
        return;
    const int bin = i / k.lanes, column = i % k.lanes;
    const size_t at = (size_t)bin * k.nelem * k.lanes + column;
    if (k.fibre[column] >= 0)
        k.mat[at] += regularisation(k, bin, column);
    k.inverse[i] = 1.0 / (k.mat[at] + SPX_TRACE_PRIOR);
}

/* The rest of df: dk0 <= dk <= dk1, if any. */
void rest(const params &k, int df, int dk0, int dk1, slot *s)
{
    if (dk0 <= dk1)
        rest_kernel<<<dim3(blocks((size_t)k.n * k.lanes, 128), (unsigned)(dk1 - dk0 + 1)), 128, 0, s->stream>>>(k, df,
                                                                                                                dk0);
}

/* Before regularisation: the largest weights of the bins around each. */
void weights_around(const params &k, slot *s)
{
    largest_kernel<<<blocks((size_t)k.n * k.nbundle, 128), 128, 0, s->stream>>>(k);
    around_kernel<<<dim3(blocks(k.n, 128), k.nbundle), 128, 0, s->stream>>>(k);
}

/* M, right-hand side and weights of a piece, from its spots and pixels. */
void equations(const params &k, slot *s)
{
    if ((size_t)17 * k.lanes * k.npix * sizeof(double) > UINT_MAX)
        spx::fail("spots of %d x %d pixels are too large for the device: use {device} cpu", k.nx, k.ny);
    if ((size_t)k.ccd_nx * (size_t)k.ccd_ny > UINT_MAX)
        spx::fail("an image of %ld x %ld pixels is too large for the device: use {device} cpu", k.ccd_nx, k.ccd_ny);
    overlaps_kernel<<<dim3(blocks(k.n, 8 * RUN), blocks(k.lanes, TRACES)), TRACES * WARP, 0, s->stream>>>(k);
    for (int df = 0; df <= k.reach; df++)
        if (df < SIDES) {
            rest(k, df, k.lo[df], k.hi[df] < -9 ? k.hi[df] : -9, s);
            rest(k, df, k.lo[df] > 9 ? k.lo[df] : 9, k.hi[df], s);
        } else {
            rest(k, df, k.lo[df], k.hi[df], s);
        }
    spx::check(cudaGetLastError(), "launch");
}

void regularise(const params &k, slot *s)
{
    weights_around(k, s);
    regularise_kernel<<<blocks((size_t)k.n * k.lanes, 128), 128, 0, s->stream>>>(k);
    spx::check(cudaGetLastError(), "launch");
}

} // namespace

#endif
