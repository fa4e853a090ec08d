/* Marginal information of each fibre, A_s = M_ss - M_so M_oo^-1 M_os, and the bandwidth that it needs. */
#ifndef SPX_EXTRACT_CUDA_MARGINAL_CUH
#define SPX_EXTRACT_CUDA_MARGINAL_CUH

#include "extract/extract_cuda_work.cuh"

namespace
{

/* Diagonals that are kept in registers; there may be more. */
enum { NEAR = 9 };

/* Columns of V for the neighbour on one side, and the diagonal of T: one thread a bin. */
__global__ void columns_kernel(work k, int side)
{
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= k.n * k.lanes)
        return;
    const int j = i / k.lanes, column = i % k.lanes, f = column % k.nl;
    const size_t lanes = k.lanes, lrow = (size_t)(k.m + 1) * lanes;
    double diagonal = 0.0;
    int rows = 0;
    const int other = f + side;
    if (k.fibre[column] >= 0 && other >= 0 && other < k.nl && k.fibre[column + side] >= 0 && k.reach >= 1) {
        const double *l = k.ldl + column + side;
        double *v = k.v + (size_t)j * k.rows * lanes + column;
        const double own = k.mat[(size_t)j * k.nelem * lanes + column];
        double recent = 0.0, back[NEAR + 1] = {0.0}; /* back[s]: the value s rows before */
        for (int bin = -k.depth; bin <= k.depth + TAIL; bin++, rows++) {
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
            recent = 0.5 * recent + added;
            if (bin > k.depth && recent <= 0.001 * k.tolerance * own) {
                rows++;
                break;
            }
        }
    }
    k.length[i] = rows;
    k.t[side > 0][((size_t)j * (k.band + 1)) * lanes + column] = diagonal;
}

/* The other diagonals of T; those that M does not have only where T is large near by. */
__global__ void diagonals_kernel(work k, int side)
{
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= k.n * k.lanes)
        return;
    const int j = i / k.lanes, column = i % k.lanes;
    const size_t lanes = k.lanes, lrow = (size_t)(k.m + 1) * lanes, trow = (size_t)(k.band + 1) * lanes;
    double *t = k.t[side > 0] + column;
    const double *mat = k.mat + column;
    const double far = 30.0 * k.tolerance;
    const bool large = t[(size_t)j * trow] > far * mat[(size_t)j * k.nelem * lanes];
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
        if (to < k.n && length > 0 &&
            (d <= k.m || large || t[(size_t)to * trow] > far * mat[(size_t)to * k.nelem * lanes])) {
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

/* A_s = M_ss - T- - T+. */
__global__ void schur_kernel(work k)
{
    const size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x, lanes = k.lanes, trow = (k.band + 1) * lanes;
    if (i >= k.n * trow)
        return;
    const size_t j = i / trow, e = i % trow / lanes, column = i % lanes;
    double v = e <= (size_t)k.m ? k.mat[(j * k.nelem + e) * lanes + column] : 0.0;
    if (k.reach >= 1)
        v -= k.t[0][i] + k.t[1][i];
    k.a[i] = k.fibre[column] < 0 ? (e == 0 ? 1.0 : 0.0) : v;
}

/* Bundles in which one neighbour on each side at a time is not enough: the host does them, as find_strong() says where.
 * Ten times the CPU's limit: it is the whole bundle that goes, and with 0.03 of the tolerance traces that come close to
 * each other differed from the CPU's by 1.2e-6 sigma. */
__global__ void strong_kernel(work k)
{
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= k.n * k.lanes)
        return;
    const int bin = i / k.lanes, column = i % k.lanes, f = column % k.nl;
    if (k.fibre[column] < 0)
        return;
    const size_t lanes = k.lanes, trow = (size_t)(k.band + 1) * lanes, mrow = (size_t)k.nelem * lanes;
    const double limit = 0.01 * k.tolerance, inverse = k.inverse[i];
    const int around = k.depth + TAIL / 2;
    for (int side = 0; side < 2; side++) {
        const int g = 2 * side - 1;
        if (f + g < 0 || f + g >= k.nl || k.fibre[column + g] < 0)
            continue;
        double direct = 0.0, next = 0.0, own = k.t[side][(size_t)bin * trow + column] * inverse;
        for (int df = 2; df <= k.reach; df++)
            for (int dk = k.lo[df]; dk <= k.hi[df]; dk++) {
                const int to = side ? bin + dk : bin - dk, far = side ? f + df : f - df;
                if (to < 0 || to >= k.n || far < 0 || far >= k.nl || k.fibre[column + (side ? df : -df)] < 0)
                    continue;
                const size_t e = (size_t)(k.first[df] + dk - k.lo[df]) * lanes;
                const double v =
                    side ? k.mat[(size_t)bin * mrow + e + column] : k.mat[(size_t)to * mrow + e + column - df];
                direct += v * v * k.inverse[(size_t)to * lanes + column + (side ? df : -df)];
            }
        direct *= 10.0 * inverse;
        if (own > limit)
            for (int j = bin > around ? bin - around : 0; j <= bin + around && j < k.n; j++)
                next = fmax(next, k.t[side][(size_t)j * trow + column + g] * k.inverse[(size_t)j * lanes + column + g]);
        if (own * next + sqrt(own * next * direct) + direct > limit)
            atomicOr(&k.bad[column / k.nl], BAD_STRONG);
    }
}

/* Half-bandwidth that a fibre needs, by blocks of bins. */
__global__ void need_kernel(work k)
{
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= k.n * k.lanes)
        return;
    const int j = i / k.lanes, column = i % k.lanes;
    if (k.fibre[column] < 0)
        return;
    const size_t lanes = k.lanes, row = (size_t)(k.band + 1) * lanes;
    const double least = 0.03 * k.tolerance, *a = k.a + (size_t)j * row + column;
    for (int d = k.band; d > k.m; d--) {
        const double v = a[(size_t)d * lanes];
        if (j + d < k.n && v * v > least * least * a[0] * a[(size_t)d * row]) {
            atomicMax(&k.need[(size_t)(j / NEED) * lanes + column], d);
            atomicMax(&k.need[(size_t)((j + d) / NEED) * lanes + column], d);
            break;
        }
    }
}

/* Sums of magnitudes of the rows of A_s (Gershgorin). */
__global__ void magnitudes_kernel(work k)
{
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= k.n * k.lanes)
        return;
    const int j = i / k.lanes, column = i % k.lanes;
    const int most = max(k.m, needed(k.need, k, column, j - k.band, j + k.band));
    const size_t lanes = k.lanes, arow = (size_t)(k.band + 1) * lanes;
    const double *a = k.a + column;
    double sum = fabs(a[(size_t)j * arow]);
    for (int d = 1; d <= most; d++) {
        sum += fabs(a[(size_t)j * arow + d * lanes]);
        if (j >= d)
            sum += fabs(a[(size_t)(j - d) * arow + d * lanes]);
    }
    k.magnitude[i] = sum;
}

/* The half-bandwidths go to `need` of the host. */
spx_status marginal(work k, arena m, int *need, slot *s, spx_err *e)
{
    const size_t bins = (size_t)k.n * k.lanes;
    const unsigned each = blocks(bins, 128);
    k.v = m.take<double>(bins * k.rows);
    if (k.reach >= 1) {
        for (int side = -1; side <= 1; side += 2) {
            columns_kernel<<<each, 128, 0, s->stream>>>(k, side);
            diagonals_kernel<<<each, 128, 0, s->stream>>>(k, side);
        }
        strong_kernel<<<each, 128, 0, s->stream>>>(k);
    }
    schur_kernel<<<blocks(bins * (k.band + 1), 256), 256, 0, s->stream>>>(k);
    PASS(zero(s, k.need, sizeof(int) * need_blocks(k) * k.lanes, e));
    need_kernel<<<each, 128, 0, s->stream>>>(k);
    magnitudes_kernel<<<each, 128, 0, s->stream>>>(k);
    TRY(cudaGetLastError());
    return get(s, need, k.need, (size_t)need_blocks(k) * k.lanes, e);
}

} // namespace

#endif
