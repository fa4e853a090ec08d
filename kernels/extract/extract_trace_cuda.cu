/* Extraction of whole traces on a CUDA device: the method of extract_trace_cpu.c, whose comments say what is computed.
 *
 * All bundles of a piece of work stand side by side: a row holds one value a lane, nl lanes a bundle, lanes total; lane
 * = bundle * nl + fibre. Every sum has a fixed order, so a result is the same when repeated.
 *
 * What bounds it, and what is done about it (500 fibres x 2326 bins of a DESI r frame on one H200; milliseconds of the
 * kernels of a kind, one after another; all of them: 51, now 23):
 * - Overlaps of spots are 4.4 GFLOP and could take 0.2, but a product a pair of bins spends its time on addresses and
 * on adding up lanes: 9.9. As products of 8 x 8 bins over the pixels that both groups cover, zeros where a spot has
 * none, the tensor cores add them up (m8n8k4): 4.1. What is left is the wait for the partners' spots, although up to
 * three pixels a lane of up to three groups are on their way together, and own spots are weighted once, in shared
 * memory. More pixels at a time need more registers than there are: the compiler then waits for each load to spill it
 * (7.5).
 * - Recurrences along a trace are chains of some 2400 steps of 0.15 to 0.6 us, and there are only 500 traces, so that
 *   most of the device waited. Segments (see below) cut the chains to a sixth for a third more work: solution 5.1 to
 *   3.2, square root 24 to 12; and they run beside each other. Windows in registers that are not moved (loops unrolled
 *   over the window) saved a third of the instructions and no time: the steps wait for results, not for their turn.
 * - Pixels of chi^2: the traces that touch 32 pixels are found by their lanes, not by a loop over all of the bundle.
 * - Transfers, 125 MB to the device and 140 MB back, are 5 at the bus's speed. Spots are made while the image travels;
 *   four pieces of a frame run on streams of their own with falling priority, so that results of the first travel while
 *   the others compute. New memory of the host comes page by page, which took longer than copying: threads fetch the
 *   pages meanwhile.
 * A queue of frames is bound by the host, which makes the plan and the masks: that is why calls may overlap. */
#include <cuda_pipeline.h>
#include <cuda_runtime.h>

#include <climits>
#include <cmath>
#include <condition_variable>
#include <cstdio>
#include <cstring>
#include <future>
#include <memory>
#include <mutex>
#include <new>
#include <omp.h>
#include <sys/mman.h>
#include <thread>
#include <unistd.h>
#include <vector>

/* The host's part is C. */
extern "C" {
#include "base/mem.h"
#include "extract/extract_cuda.h"
#include "extract/extract_trace_impl.h"
}
#include "psf/psf_math.h"

namespace
{

enum {
    WARP = 32,
    REACH = SPX_TRACE_MAX_REACH, /* neighbours of a fibre that a table has room for */
    TAIL = SPX_TRACE_TAIL,
    DOT_PARTS = 64, /* partial sums of an inner product */
    MOST_STEPS = 500,
    SHORT = 128, /* bins of a segment of a recurrence with one thread a lane, */
    LONG = 256,  /* and of the square root */
    HALO = 8,    /* bandwidths that a segment is begun early */
    EXTRA = 16   /* bins beyond a segment whose results are compared with the next one's */
};

struct span;

/* What a pixel's model needs of a bin. */
struct brief {
    int xc, yc; /* yc beyond all rows: no spot */
    double x;
};

/* Everything that the kernels need; passed by value. Arrays are on the device. */
struct work {
    int n, pad, nwave;            /* bins of a trace, padding, bins of the output */
    int nbundle, nl, lanes;       /* lanes of a bundle, of all */
    int nx, ny, npix, degx, degy; /* spot */
    int npar, ndeg, nxc, nyc;
    int seg, nseg, halo;          /* segments of a recurrence: their bins, number, and the bins that they begin early */
    int reach, depth, m, band, h; /* see spx_trace_bundle; m = hi[0]; h = hsizey */
    int loop[SPX_TRACE_MOST_BAND + 1]; /* half-bandwidth that is computed for one that is needed */
    int nelem, lo[REACH + 1], hi[REACH + 1], first[REACH + 1];
    long ccd_nx, ccd_ny;
    double tolerance, psf_error, regularize;
    int half; /* window of the regularisation */
    int rows; /* most rows of a column of V */

    const float *weight, *data;  /* [ccd_ny][ccd_nx] */
    const double *coeff, *bp;    /* as in the plan */
    const double *xcoef, *ycoef; /* [nspec][nxc], [nyc] traces */
    const double *bx, *by;       /* as in the plan */
    const int *fibre;            /* [lanes] fibre of the PSF, -1: none */
    const int *nf;               /* [nbundle] fibres of a bundle */
    const unsigned char *known;  /* [nbundle][n nl] states as the bundles have them, [n][nf] */
    const int *y0, *y1;          /* [nbundle] rows in use */
    const int *wanted;           /* [lanes] row of the output, -1: none */
    spx_trace_place *at;         /* [n][lanes] */
    unsigned char *state;        /* [n][lanes] */
    double *spot;                /* [n][lanes][npix] */
    double *mat;                 /* [n][nelem][lanes], with `front` doubles before and after */
    double *y, *w, *seen;        /* [n][lanes] */
    double *largest;             /* [n][nbundle] */
    double *around;              /* [n][nbundle] largest of the bins around */
    double *inverse;             /* [n][lanes] 1 / (diagonal of M + prior) */
    double *ldl;                 /* [n][m + 1][lanes] */
    double *seam;                /* [nseg][m][m + 1][lanes] of the factors: what segments began with */
    int *torn;                   /* [1] whether that differs from what it should be */
    double *scratch;             /* [nseg][seg + 2 halo][lanes] */
    double *x, *r, *z, *q, *d;   /* [n][lanes], depth rows and nl of zeros around */
    double *part;                /* [nbundle][DOT_PARTS] */
    double *scalar;              /* [nbundle][4] rz, alpha, beta, enough */
    double *v;                   /* [n][rows][lanes] columns of V */
    int *length;                 /* [n][lanes] */
    double *t[2];                /* [n][band + 1][lanes] */
    double *a;                   /* [n][band + 1][lanes] */
    int *bad;                    /* [nbundle] reasons to leave a bundle to the CPU */
    int *need;                   /* [lanes] half-bandwidth that a fibre needs */
    double *bound;               /* [2][lanes] of the eigenvalues: norm of the inverse, largest */
    int *redo;                   /* [lanes] whether segments of the square root do not fit together */
    int *npole;                  /* [lanes] */
    double *shift, *pole_weight; /* [SPX_MAX_POLES][lanes] */
    double *total;               /* [lanes] sum of the weights */
    int task0;                   /* first task of a launch */
    const int *task;             /* [ntask][2] warp and pole */
    const int *wide_task;        /* fibres that a warp each works on, or these and their poles */
    double *window;              /* factors of any bandwidth: [m + 1][m + 1][lanes], or [task][mm + 1][mm + 1][WARP] */
    int wide_shared;             /* the square root's window is in shared memory */
    double *lower;               /* [task][nseg][seg + 2 halo][mm + 1][WARP] */
    double *rhs;                 /* [task][nseg][2][seg + 2 halo][WARP] */
    double *share;               /* [task][nseg][seg + EXTRA][h + 3][WARP] */
    double *sum;                 /* [n][h + 3][lanes] */
    struct span *span;           /* [ccd_ny][lanes] */
    struct brief *brief;         /* [n][lanes] */
    double *chi2;                /* [nbundle][ccd_ny][wide] */
    int wide;                    /* columns of a bundle's window */
    const int *x0;               /* [nbundle] first column of it */
    double *out_flux, *out_ivar, *out_res, *out_chi2, *out_seen; /* [row]... as in the frame */
    int row0;                                                    /* first row of the output of this piece */
};

enum { BAD_FACTOR = 1, BAD_SOLVE = 2, BAD_STRONG = 4, BAD_ROOT = 8 };

#define FULL 0xffffffffu

__device__ double warp_sum(double v)
{
    for (int s = WARP / 2; s > 0; s /= 2)
        v += __shfl_xor_sync(FULL, v, s);
    return v;
}

/* ---- spots ---- */

__device__ double series(int n, const double *c, const double *basis)
{
    double sum = 0.0;
    for (int i = 0; i < n; i++)
        sum += c[i] * basis[i];
    return sum;
}

/* Places of the spots, with the bits of the host's: what is known of them is which bins have one. */
__global__ void places_kernel(work k)
{
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= k.n * k.lanes)
        return;
    const int bin = i / k.lanes, column = i % k.lanes, b = column / k.nl, fibre = k.fibre[column];
    spx_trace_place at = {0, 0, 0.0, 0.0};
    unsigned char state = SPX_TRACE_OFF;
    if (fibre >= 0)
        state = k.known[(size_t)b * k.n * k.nl + (size_t)bin * k.nf[b] + column % k.nl];
    if (state == SPX_TRACE_SPOT) {
        const double x = series(k.nxc, k.xcoef + (size_t)fibre * k.nxc, k.bx + (size_t)bin * k.nxc);
        const double y = series(k.nyc, k.ycoef + (size_t)fibre * k.nyc, k.by + (size_t)bin * k.nyc);
        const double mx = floor(x + 0.5), my = floor(y + 0.5);
        at = {(int)mx - k.nx / 2, (int)my - k.ny / 2, x - mx, y - my};
    }
    k.at[i] = at;
    k.state[i] = state;
}

/* D += A B of the tensor cores, 8 x 4 by 4 x 8: lane l has A(l/4, l%4), B(l%4, l/4) and D(l/4, 2 (l%4) + 0, 1). */
__device__ void multiply_add(double (&d)[2], double a, double b)
{
    asm("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0, %1}, {%2}, {%3}, {%0, %1};"
        : "+d"(d[0]), "+d"(d[1])
        : "d"(a), "d"(b));
}

__device__ __host__ inline int round_to(int n, int unit)
{
    return (n + unit - 1) / unit * unit;
}

/* Doubles of shared memory that spots_kernel needs a warp. */
__device__ __host__ inline int spot_room(const work &k)
{
    const int deg = k.degx > k.degy ? k.degx : k.degy;
    return k.npar + (deg + 1) * (k.nx + k.ny + 2) + round_to(k.degx + 1, 4) * (round_to(k.nx, 8) + round_to(k.ny, 8)) +
           k.npix;
}

/* One warp a bin: its spot. Shared memory a warp: coefficients, edge functions, the differences of these over the
 * pixels of a row, their contraction with the coefficients over y, and the spot. */
__global__ void spots_kernel(work k, int per_warp)
{
    extern __shared__ double shared[];
    const int lane = threadIdx.x % WARP;
    const int item = blockIdx.x * (blockDim.x / WARP) + threadIdx.x / WARP;
    if (item >= k.n * k.lanes || k.state[item] != SPX_TRACE_SPOT)
        return;
    const int bin = item / k.lanes, column = item % k.lanes;
    const int nx = k.nx, ny = k.ny, ngh = (k.degx + 1) * (k.degy + 1), ne = nx + ny + 2;
    const int deg = k.degx > k.degy ? k.degx : k.degy;
    const int inner = round_to(k.degx + 1, 4), wx = round_to(nx, 8), wy = round_to(ny, 8);
    double *c = shared + (threadIdx.x / WARP) * per_warp, *e = c + k.npar, *along = e + (deg + 1) * ne;
    double *across = along + inner * wx, *s = across + inner * wy;
    const double *coeff = k.coeff + (size_t)k.fibre[column] * k.ndeg * k.npar, *basis = k.bp + (size_t)bin * k.ndeg;
    for (int i = lane; i < ngh + 2; i += WARP) {
        double sum = 0.0;
        for (int d = 0; d < k.ndeg; d++)
            sum = fma(coeff[(size_t)d * k.npar + i], basis[d], sum);
        c[i] = sum;
    }
    __syncwarp();
    const double sigx = c[ngh], sigy = c[ngh + 1];
    const spx_trace_place at = k.at[item];
    bool usable = sigx > 0.0 && sigy > 0.0 && sigx < SPX_SPOT_FAR && sigy < SPX_SPOT_FAR;
    double total = 0.0, raw = 0.0;
    if (usable) {
        for (int i = lane; i < ne; i += WARP) {
            const bool along_x = i <= nx;
            const double edge =
                along_x ? (i - nx / 2 - 0.5 - at.dx) / sigx : (i - nx - 1 - ny / 2 - 0.5 - at.dy) / sigy;
            e[i] = -0.5 * erf(edge * 0.70710678118654752440);
            double below = 0.0, here = exp(-0.5 * edge * edge) * 0.39894228040143267794;
            for (int m = 1; m <= deg; m++) {
                e[m * ne + i] = here;
                double above = edge * here - (m - 1) * below;
                below = here;
                here = above;
            }
        }
        __syncwarp();
        for (int i = lane; i < wx; i += WARP)
            for (int g = 0; g < inner; g++)
                along[g * wx + i] = g <= k.degx && i < nx ? e[g * ne + i] - e[g * ne + i + 1] : 0.0;
        for (int i = lane; i < inner * wy; i += WARP) {
            const int g = i / wy, y = i % wy;
            double sum = 0.0;
            if (g <= k.degx && y < ny)
                for (int j = 0; j <= k.degy; j++)
                    sum = fma(c[g + (k.degx + 1) * j], e[j * ne + nx + 1 + y] - e[j * ne + nx + 2 + y], sum);
            across[i] = sum;
        }
        __syncwarp();
        /* tiles of 8 x 8 pixels */
        const int r = lane / 4, q = lane % 4;
        for (int y0 = 0; y0 < ny; y0 += 8)
            for (int x0 = 0; x0 < nx; x0 += 8) {
                double tile[2] = {0.0, 0.0};
                for (int g = 0; g < inner; g += 4)
                    multiply_add(tile, across[(g + q) * wy + y0 + r], along[(g + q) * wx + x0 + r]);
#pragma unroll
                for (int i = 0; i < 2; i++) {
                    const int x = x0 + 2 * q + i, y = y0 + r;
                    if (x < nx && y < ny) {
                        const double v = tile[i] > 0.0 ? tile[i] : 0.0;
                        raw += tile[i];
                        total += v;
                        s[y * nx + x] = v;
                    }
                }
            }
        __syncwarp();
    }
    total = warp_sum(total);
    raw = warp_sum(raw);
    const double scale = usable && isfinite(raw) && total > 0.0 && isfinite(total) ? 1.0 / total : 0.0;
    usable = scale > 0.0 && isfinite(scale);
    double *spot = k.spot + (size_t)item * k.npix;
    if (usable)
        for (int i = lane; i < k.npix; i += WARP)
            spot[i] = s[i] * scale;
    else if (lane == 0)
        k.state[item] = SPX_TRACE_NOSPOT;
}

/* Pixels: x0 <= x < x1, y0 <= y < y1. */
struct box {
    int x0, x1, y0, y1;

    __device__ bool empty() const
    {
        return x0 >= x1 || y0 >= y1;
    }
};

/* Eight bins of a trace: lane l has bin l/4. */
struct eight {
    const double *spot;
    int xc, yc;
    bool there;

    __device__ eight(const work &k, int bin, int column)
    {
        const bool in = bin >= 0 && bin < k.n && column >= 0;
        const size_t at = in ? (size_t)bin * k.lanes + column : 0;
        there = in && k.state[at] == SPX_TRACE_SPOT;
        spot = k.spot + at * k.npix;
        xc = there ? k.at[at].xc : 0;
        yc = there ? k.at[at].yc : 0;
    }
    /* What their spots cover. */
    __device__ box cover(const work &k) const
    {
        return {__reduce_min_sync(FULL, there ? xc : INT_MAX), __reduce_max_sync(FULL, there ? xc + k.nx : INT_MIN),
                __reduce_min_sync(FULL, there ? yc : INT_MAX), __reduce_max_sync(FULL, there ? yc + k.ny : INT_MIN)};
    }
};

enum { TILES = 3, OVERLAP_TRACES = 4, OVERLAP_GROUPS = 2, AT_ONCE = 7 };

/* Products of eight bins with TILES times eight others of one trace, as they grow. */
struct products {
    double tile[TILES][2];
    const double *spot[TILES];
    int xc[TILES], yc[TILES];
    box cover[TILES];

    /* Pixels of `both`, 4 STEPS at a time: all of these are on their way before one is used. weighted: [8][npix], the
     * eight spots times W. */
    template <int STEPS> __device__ void add(const work &k, const eight &own, const double *weighted, const box &both)
    {
        const int q = threadIdx.x % 4;
        for (int y = both.y0; y < both.y1; y++) {
            const int dy = y - own.yc;
            const bool in_row = own.there && (unsigned)dy < (unsigned)k.ny;
            const double *row = weighted + (in_row ? dy * k.nx : 0);
            for (int x0 = both.x0 + q; x0 - q < both.x1; x0 += 4 * STEPS) {
                double mine[STEPS], other[TILES][STEPS];
#pragma unroll
                for (int j = 0; j < TILES; j++) {
                    if (y < cover[j].y0 || y >= cover[j].y1)
                        continue;
                    const int dj = y - yc[j];
                    const bool in_its = (unsigned)dj < (unsigned)k.ny;
                    const double *its = spot[j] + (in_its ? dj * k.nx : 0);
#pragma unroll
                    for (int i = 0; i < STEPS; i++) {
                        const int d = x0 + 4 * i - xc[j];
                        other[j][i] = in_its && (unsigned)d < (unsigned)k.nx ? its[d] : 0.0;
                    }
                }
#pragma unroll
                for (int i = 0; i < STEPS; i++) {
                    const int d = x0 + 4 * i - own.xc;
                    mine[i] = in_row && (unsigned)d < (unsigned)k.nx ? row[d] : 0.0;
                }
#pragma unroll
                for (int j = 0; j < TILES; j++)
                    if (y >= cover[j].y0 && y < cover[j].y1)
#pragma unroll
                        for (int i = 0; i < STEPS; i++)
                            multiply_add(tile[j], mine[i], other[j][i]);
            }
        }
    }
};

/* Elements of M of eight bins of a trace, and A^T W p, A^T W 1, A^T [W > 0]: one warp. Products with eight bins of a
 * trace are a matrix product over the pixels that both cover, which the tensor cores do, four pixels at a time; TILES
 * of them share what is read of these bins. Block: 4 traces x 2 groups of bins (or less), whose partners are the same.
 * Shared memory a warp: [8][npix]. */
__global__ void __launch_bounds__(OVERLAP_TRACES *OVERLAP_GROUPS *WARP, 2) overlaps_kernel(work k)
{
    extern __shared__ double shared[];
    const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, r = lane / 4, q = lane % 4;
    const int column = blockIdx.y * OVERLAP_TRACES + warp % OVERLAP_TRACES;
    const int bin0 = (blockIdx.x * (blockDim.x / (OVERLAP_TRACES * WARP)) + warp / OVERLAP_TRACES) * 8;
    if (column >= k.lanes || bin0 >= k.n)
        return;
    const int b = column / k.nl, f = column % k.nl, mine = bin0 + r, y0 = k.y0[b], y1 = k.y1[b];
    const eight own(k, mine, column);
    const box here = own.cover(k);
    double *weighted = shared + (warp * 8 + r) * k.npix, value = 0.0, weight = 0.0, seen = 0.0;
    for (int i0 = q, dx = q, dy = 0; i0 < k.npix && own.there; i0 += 4 * AT_ONCE) {
        double s[AT_ONCE];
        float ivar[AT_ONCE], data[AT_ONCE];
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++, dx += 4) {
            for (; dx >= k.nx; dx -= k.nx)
                dy++;
            const int x = own.xc + dx, y = own.yc + dy;
            const bool there = i0 + 4 * i < k.npix, in = there && x >= 0 && x < k.ccd_nx && y >= y0 && y < y1;
            const size_t pixel = in ? (size_t)y * k.ccd_nx + x : 0;
            s[i] = there ? own.spot[i0 + 4 * i] : 0.0;
            ivar[i] = in ? k.weight[pixel] : 0.0f;
            data[i] = in ? k.data[pixel] : 0.0f;
        }
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++) {
            const double a = s[i] * (double)ivar[i];
            if (i0 + 4 * i < k.npix)
                weighted[i0 + 4 * i] = a;
            if (ivar[i] > 0.0f) {
                value = fma(a, (double)data[i], value);
                weight += a;
                seen += s[i];
            }
        }
    }
    __syncwarp();
    for (int s = 1; s <= 2; s *= 2) {
        value += __shfl_xor_sync(FULL, value, s);
        weight += __shfl_xor_sync(FULL, weight, s);
        seen += __shfl_xor_sync(FULL, seen, s);
    }
    if (q == 0 && mine < k.n) {
        const size_t at = (size_t)mine * k.lanes + column;
        k.y[at] = value;
        k.w[at] = weight;
        k.seen[at] = seen;
    }
    products p;
    for (int df = 0; df <= k.reach; df++) {
        const int t0 = k.lo[df] >= 0 ? k.lo[df] / 8 : -((7 - k.lo[df]) / 8), t1 = (k.hi[df] + 7) / 8;
        for (int t = t0; t <= t1; t += TILES) {
            box both = {INT_MAX, INT_MIN, INT_MAX, INT_MIN};
#pragma unroll
            for (int j = 0; j < TILES; j++) {
                const bool in = t + j <= t1 && f + df < k.nl;
                const eight other(k, bin0 + 8 * (t + j) + r, in ? column + df : -1);
                p.tile[j][0] = p.tile[j][1] = 0.0;
                p.spot[j] = other.spot;
                p.cover[j] = other.cover(k);
                p.xc[j] = other.xc;
                p.yc[j] = other.there ? other.yc : INT_MAX / 2; /* no row is one of its */
                if (!p.cover[j].empty())
                    both = {min(both.x0, p.cover[j].x0), max(both.x1, p.cover[j].x1), min(both.y0, p.cover[j].y0),
                            max(both.y1, p.cover[j].y1)};
            }
            both = {max(both.x0, here.x0), min(both.x1, here.x1), max(both.y0, here.y0), min(both.y1, here.y1)};
            const int steps = both.empty() ? 0 : (both.x1 - both.x0 + 3) / 4;
            if (steps == 3 || steps > 4)
                p.add<3>(k, own, weighted, both);
            else if (steps > 1)
                p.add<2>(k, own, weighted, both);
            else if (steps == 1)
                p.add<1>(k, own, weighted, both);
            if (mine < k.n)
#pragma unroll
                for (int j = 0; j < TILES; j++)
#pragma unroll
                    for (int i = 0; i < 2; i++) {
                        const int dk = 8 * (t + j) + 2 * q + i - r;
                        if (dk >= k.lo[df] && dk <= k.hi[df])
                            k.mat[((size_t)mine * k.nelem + k.first[df] + dk - k.lo[df]) * k.lanes + column] =
                                p.tile[j][i];
                    }
        }
    }
}

/* ---- regularisation ---- */

__global__ void largest_kernel(work k)
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
__global__ void around_kernel(work k)
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

__global__ void regularise_kernel(work k)
{
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= k.n * k.lanes)
        return;
    const int bin = i / k.lanes, column = i % k.lanes, b = column / k.nl;
    const size_t at = (size_t)bin * k.nelem * k.lanes + column;
    if (k.fibre[column] >= 0) {
        const double least = 1e-4 * k.around[(size_t)bin * k.nbundle + b], w = k.w[i];
        const double alpha = w < least ? least - w : k.regularize;
        k.mat[at] += alpha * alpha + SPX_TRACE_PRIOR;
    }
    k.inverse[i] = 1.0 / (k.mat[at] + SPX_TRACE_PRIOR);
}

/* ---- banded factorisation: one thread a lane ---- */

/* What a recurrence reads is on its way to shared memory AHEAD steps before it is used. Each thread copies for itself,
 * so nobody waits for others. */
enum { AHEAD = 12 };

__device__ void fetch(double *to, const double *from)
{
    __pipeline_memcpy_async(to, from, sizeof(double));
}

/* A loop over n steps, forth or back, each of which reads COUNT doubles that `where(step, i)` points to; `body(step,
 * value)` gets them. buffer: [AHEAD][COUNT][WARP], of this lane. */
template <int COUNT, class WHERE, class BODY> __device__ void stream(int n, double *buffer, WHERE where, BODY body)
{
    for (int j = 0; j < AHEAD - 1; j++) {
        if (j < n)
#pragma unroll
            for (int i = 0; i < COUNT; i++)
                fetch(buffer + (j * COUNT + i) * WARP, where(j, i));
        __pipeline_commit();
    }
    int slot = 0, free_slot = AHEAD - 1;
    for (int j = 0; j < n; j++) {
        if (j + AHEAD - 1 < n)
#pragma unroll
            for (int i = 0; i < COUNT; i++)
                fetch(buffer + (free_slot * COUNT + i) * WARP, where(j + AHEAD - 1, i));
        __pipeline_commit();
        __pipeline_wait_prior(AHEAD - 1);
        double value[COUNT];
#pragma unroll
        for (int i = 0; i < COUNT; i++)
            value[i] = buffer[(slot * COUNT + i) * WARP];
        body(j, value);
        slot = slot + 1 < AHEAD ? slot + 1 : 0;
        free_slot = free_slot + 1 < AHEAD ? free_slot + 1 : 0;
    }
    __pipeline_wait_prior(0);
}

/* Segments. What a recurrence knows of bins far back fades away: it falls by ten every four bins or so of the usual
 * size. So the bins of a trace are worked on in segments, side by side, each of which begins `halo` bins early (and,
 * backwards, late) with nothing. Whether that was enough is seen at the seams, where what two segments have for the
 * same bin must agree; where it does not, the trace is worked on again in one piece. */
struct segment {
    int first, last, begin, end; /* own bins; those that are worked on */

    __device__ segment(const work &k, int i, int halo)
    {
        first = i * k.seg;
        last = min(first + k.seg, k.n);
        begin = max(first - halo, 0);
        end = min(last + halo, k.n);
    }
};

/* L D L^T as in the CPU's factor(); M columns back are in registers. Column j (1/D, then L) goes to row(j), if that is
 * not NULL. each(j, before) is called with before[t] = L(j, j-t), so that a right-hand side is solved for on the way.
 */
template <int M, class ROW, class EACH>
__device__ bool factor(int n, const double *a, size_t arow, size_t aelem, double shift, ROW row, size_t lelem,
                       double *buffer, EACH each)
{
    bool good = true;
    double back[M + 1][M + 1], diag[M + 1]; /* back[t][d] = L(j-t+d, j-t) */
#pragma unroll
    for (int t = 0; t <= M; t++) {
        diag[t] = 0.0;
#pragma unroll
        for (int d = 0; d <= M; d++)
            back[t][d] = 0.0;
    }
    stream<M + 1>(
        n, buffer, [&](int j, int i) { return a + (size_t)j * arow + (size_t)i * aelem; },
        [&](int j, double(&in)[M + 1]) {
            double u[M + 1], before[M + 1], other = shift; /* two sums, so that each waits less for itself */
#pragma unroll
            for (int t = M; t >= 1; t--) {
                before[t] = back[t][t];
                u[t] = back[t][t] * diag[t];
                if (t % 2 == 0)
                    other = fma(-back[t][t], u[t], other);
                else
                    in[0] = fma(-back[t][t], u[t], in[0]);
            }
            in[0] += other;
            if (!(in[0] > 0.0 && in[0] < INFINITY)) {
                good = false;
                in[0] = 1.0;
            }
            const double inverse = 1.0 / in[0];
#pragma unroll
            for (int i = 1; i <= M; i++) {
#pragma unroll
                for (int t = M - i; t >= 1; t--)
                    in[i] = fma(-back[t][t + i], u[t], in[i]);
            }
            each(j, before);
#pragma unroll
            for (int t = M; t >= 2; t--) {
                diag[t] = diag[t - 1];
#pragma unroll
                for (int d = t; d <= M; d++)
                    back[t][d] = back[t - 1][d];
            }
            diag[1] = in[0];
#pragma unroll
            for (int i = 1; i <= M; i++)
                back[1][i] = in[i] * inverse;
            double *lj = row(j);
            if (lj) {
                lj[0] = inverse;
#pragma unroll
                for (int i = 1; i <= M; i++)
                    lj[(size_t)i * lelem] = back[1][i];
            }
        });
    return good;
}

/* The same for any bandwidth: the last m columns are in `window`, [m + 1][m + 1][stride] of this lane; D in the place
 * of the diagonal. */
template <class EACH>
__device__ bool factor_any(int n, int m, const double *a, size_t arow, size_t aelem, double shift, double *l,
                           size_t lrow, size_t lelem, double *window, size_t stride, EACH each)
{
    bool good = true;
    const size_t wrow = (size_t)(m + 1) * stride;
    int slot = 0;
    for (int j = 0; j < n; j++) {
        const double *aj = a + (size_t)j * arow;
        double *lj = l + (size_t)j * lrow, *now = window + slot * wrow;
        for (int i = 0; i <= m; i++)
            now[i * stride] = aj[(size_t)i * aelem];
        now[0] += shift;
        for (int t = j < m ? j : m; t >= 1; t--) {
            const double *then = window + (slot >= t ? slot - t : slot - t + m + 1) * wrow;
            const double lt = then[t * stride], u = lt * then[0];
            each(t, lt);
            for (int i = 0; i <= m - t; i++)
                now[i * stride] = fma(-then[(t + i) * stride], u, now[i * stride]);
        }
        double pivot = now[0];
        if (!(pivot > 0.0 && pivot < INFINITY)) {
            good = false;
            pivot = 1.0;
            now[0] = pivot;
        }
        const double inverse = 1.0 / pivot;
        lj[0] = inverse;
        for (int i = 1; i <= m; i++) {
            const double value = now[i * stride] * inverse;
            now[i * stride] = value;
            lj[(size_t)i * lelem] = value;
        }
        each(0, inverse);
        slot = slot < m ? slot + 1 : 0;
    }
    return good;
}

struct nothing {
    template <class A, class B> __device__ void operator()(A, B) const
    {
    }
};

/* Factors of the fibres' own blocks; block (lanes, segment). */
template <int M> __global__ void factorise_kernel(work k)
{
    extern __shared__ double shared[];
    const int column = blockIdx.x * WARP + threadIdx.x;
    if (column >= k.lanes || k.fibre[column] < 0)
        return;
    const segment s(k, blockIdx.y, k.halo);
    const double *a = k.mat + column;
    double *l = k.ldl + column;
    const size_t arow = (size_t)k.nelem * k.lanes, lrow = (size_t)(k.m + 1) * k.lanes;
    bool good;
    if constexpr (M > 0) {
        double *seam = k.seam + (size_t)blockIdx.y * M * lrow + column;
        good = factor<M>(
            s.last - s.begin, a + s.begin * arow, arow, k.lanes, 0.0,
            [&](int j) {
                const int bin = s.begin + j;
                return bin >= s.first       ? l + bin * lrow
                       : bin >= s.first - M ? seam + (bin - s.first + M) * lrow
                                            : (double *)nullptr;
            },
            k.lanes, shared + threadIdx.x, nothing());
    } else {
        good = factor_any(k.n, k.m, a, arow, k.lanes, 0.0, l, lrow, k.lanes, k.window + column, k.lanes, nothing());
    }
    if (!good)
        atomicOr(&k.bad[column / k.nl], BAD_FACTOR);
}

/* Whether the segments of the factors fit together: block (lanes, m, segment - 1). */
__global__ void seams_kernel(work k)
{
    const int column = blockIdx.x * WARP + threadIdx.x, row = blockIdx.y, seg = blockIdx.z + 1;
    if (column >= k.lanes || k.fibre[column] < 0)
        return;
    const size_t lanes = k.lanes, lrow = (size_t)(k.m + 1) * lanes;
    const double *is = k.ldl + (size_t)(seg * k.seg - k.m + row) * lrow + column;
    const double *was = k.seam + (size_t)(seg * k.m + row) * lrow + column;
    const double far = fmax(1e-3 * k.tolerance, 1e-12);
    bool torn = !(fabs(is[0] - was[0]) <= far * fabs(is[0]));
    for (int i = 1; i <= k.m; i++)
        torn |= !(fabs(is[i * lanes] - was[i * lanes]) <= far);
    if (torn)
        atomicOr(k.torn, 1);
}

/* x = L^-T D^-1 L^-1 b for one lane: b(j) = right(j), result through put(j, x) for j >= stop. scratch: [n] with stride
 * `srow`. */
template <int M, class RIGHT, class PUT>
__device__ void solve_banded(int n, int stop, int m, const double *l, size_t lrow, size_t lelem, double *scratch,
                             size_t srow, const double *right, size_t rrow, double *buffer, RIGHT each_right, PUT put)
{
    if constexpr (M > 0) {
        double back[M + 1];
#pragma unroll
        for (int t = 0; t <= M; t++)
            back[t] = 0.0;
        stream<M + 1>(
            n, buffer,
            [&](int j, int i) {
                return i == 0 ? right + (size_t)j * rrow : l + (size_t)(j > i ? j - i : 0) * lrow + (size_t)i * lelem;
            },
            [&](int j, double(&v)[M + 1]) {
                double sum = each_right(j, v[0]), other = 0.0; /* the value of the last bin comes last */
#pragma unroll
                for (int t = M; t >= 2; t--) { /* back is 0 before the first bin */
                    if (t % 2 == 0)
                        other = fma(-v[t], back[t], other);
                    else
                        sum = fma(-v[t], back[t], sum);
                }
                sum = fma(-v[1], back[1], sum + other);
#pragma unroll
                for (int t = M; t >= 2; t--)
                    back[t] = back[t - 1];
                back[1] = sum;
                scratch[(size_t)j * srow] = sum;
            });
        __threadfence_block(); /* what was written is read again by copies */
#pragma unroll
        for (int t = 0; t <= M; t++)
            back[t] = 0.0;
        stream<M + 2>(
            n - stop, buffer,
            [&](int step, int i) {
                const size_t j = (size_t)(n - 1 - step);
                return i == M + 1 ? (const double *)scratch + j * srow : l + j * lrow + (size_t)i * lelem;
            },
            [&](int step, double(&v)[M + 2]) {
                double sum = v[M + 1] * v[0], other = 0.0;
#pragma unroll
                for (int t = M; t >= 2; t--) {
                    if (t % 2 == 0)
                        other = fma(-v[t], back[t], other);
                    else
                        sum = fma(-v[t], back[t], sum);
                }
                sum = fma(-v[1], back[1], sum + other);
#pragma unroll
                for (int t = M; t >= 2; t--)
                    back[t] = back[t - 1];
                back[1] = sum;
                put(n - 1 - step, sum);
            });
    } else {
        for (int j = 0; j < n; j++) {
            double sum = each_right(j, right[(size_t)j * rrow]);
            for (int t = j < m ? j : m; t >= 1; t--)
                sum = fma(-l[(size_t)(j - t) * lrow + t * lelem], scratch[(size_t)(j - t) * srow], sum);
            scratch[(size_t)j * srow] = sum;
        }
        for (int j = n - 1; j >= 0; j--) {
            double sum = scratch[(size_t)j * srow] * l[(size_t)j * lrow];
            for (int t = n - 1 - j < m ? n - 1 - j : m; t >= 1; t--)
                sum = fma(-l[(size_t)j * lrow + t * lelem], scratch[(size_t)(j + t) * srow], sum);
            scratch[(size_t)j * srow] = sum;
            put(j, sum);
        }
    }
}

/* ---- M x = y ---- */

__global__ void multiply_kernel(work k)
{
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= k.n * k.lanes)
        return;
    const int bin = i / k.lanes, column = i % k.lanes;
    if (k.fibre[column] < 0)
        return;
    const int f = column % k.nl;
    double sum = 0.0;
    for (int df = 0; df <= k.reach; df++)
        for (int dk = k.lo[df]; dk <= k.hi[df]; dk++) {
            const size_t e = (size_t)(k.first[df] + dk - k.lo[df]);
            if (bin + dk >= 0 && bin + dk < k.n && f + df < k.nl)
                sum += k.mat[((size_t)bin * k.nelem + e) * k.lanes + column] *
                       k.d[(size_t)(bin + dk) * k.lanes + column + df];
            if ((df > 0 || dk > 0) && bin - dk >= 0 && bin - dk < k.n && f - df >= 0)
                sum += k.mat[((size_t)(bin - dk) * k.nelem + e) * k.lanes + column - df] *
                       k.d[(size_t)(bin - dk) * k.lanes + column - df];
        }
    k.q[i] = sum;
}

/* z = P^-1 r; block (lanes, segment). */
template <int M> __global__ void precondition_kernel(work k)
{
    extern __shared__ double shared[];
    const int column = blockIdx.x * WARP + threadIdx.x;
    if (column >= k.lanes || k.fibre[column] < 0)
        return;
    const segment s(k, blockIdx.y, k.halo);
    const size_t lanes = k.lanes, lrow = (size_t)(k.m + 1) * lanes;
    double *z = k.z + column, *scratch = k.scratch + (size_t)blockIdx.y * (k.seg + 2 * k.halo) * lanes + column;
    solve_banded<M>(
        s.end - s.begin, s.first - s.begin, k.m, k.ldl + s.begin * lrow + column, lrow, lanes, scratch, lanes,
        k.r + s.begin * lanes + column, lanes, shared + threadIdx.x, [](int, double v) { return v; },
        [&](int j, double v) {
            if (s.begin + j < s.last)
                z[(s.begin + j) * lanes] = v;
        });
}

/* Inner products of each bundle, in parts: block (part, bundle). */
__global__ void dot_kernel(work k, const double *a, const double *c)
{
    __shared__ double partial[256];
    const int part = blockIdx.x, b = blockIdx.y;
    const int k0 = (int)((long)k.n * part / DOT_PARTS), k1 = (int)((long)k.n * (part + 1) / DOT_PARTS);
    double sum = 0.0;
    for (int i = threadIdx.x; i < (k1 - k0) * k.nl; i += blockDim.x) {
        const size_t at = (size_t)(k0 + i / k.nl) * k.lanes + (size_t)b * k.nl + i % k.nl;
        sum += a[at] * c[at];
    }
    partial[threadIdx.x] = sum;
    __syncthreads();
    for (int s = blockDim.x / 2; s > 0; s /= 2) {
        if (threadIdx.x < s)
            partial[threadIdx.x] += partial[threadIdx.x + s];
        __syncthreads();
    }
    if (threadIdx.x == 0)
        k.part[b * DOT_PARTS + part] = partial[0];
}

enum { START, STEP, NEXT };

/* scalar[b]: rz, alpha, beta, what is enough. A bundle that is done has alpha = beta = 0. */
__global__ void scalar_kernel(work k, int what)
{
    const int b = blockIdx.x * blockDim.x + threadIdx.x;
    if (b >= k.nbundle)
        return;
    double sum = 0.0, *s = k.scalar + 4 * b;
    for (int i = 0; i < DOT_PARTS; i++)
        sum += k.part[b * DOT_PARTS + i];
    if (what == START) {
        s[0] = sum;
        s[3] = fmax(k.tolerance * k.tolerance, 1e-26 * sum);
        s[1] = s[2] = 0.0;
    } else if (what == STEP) {
        s[1] = 0.0;
        if (s[0] > s[3]) {
            if (sum > 0.0 && isfinite(sum))
                s[1] = s[0] / sum;
            else
                atomicOr(&k.bad[b], BAD_SOLVE);
        }
    } else {
        s[2] = s[0] > s[3] && s[1] != 0.0 ? sum / s[0] : 0.0;
        if (s[1] != 0.0)
            s[0] = sum;
    }
}

__global__ void start_kernel(work k)
{
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < k.n * k.lanes) {
        k.r[i] = k.y[i];
        k.x[i] = 0.0;
    }
}

__global__ void update_kernel(work k)
{
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= k.n * k.lanes)
        return;
    const double alpha = k.scalar[4 * (i % k.lanes / k.nl) + 1];
    if (alpha != 0.0) {
        k.x[i] += alpha * k.d[i];
        k.r[i] -= alpha * k.q[i];
    }
}

__global__ void direction_kernel(work k)
{
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < k.n * k.lanes)
        k.d[i] = k.z[i] + k.scalar[4 * (i % k.lanes / k.nl) + 2] * k.d[i];
}

/* ---- marginal information ---- */

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

/* Bundles in which one neighbour on each side at a time is not enough; see find_strong() of the CPU. */
__global__ void strong_kernel(work k)
{
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= k.n * k.lanes)
        return;
    const int bin = i / k.lanes, column = i % k.lanes, f = column % k.nl;
    if (k.fibre[column] < 0)
        return;
    const size_t lanes = k.lanes, trow = (size_t)(k.band + 1) * lanes, mrow = (size_t)k.nelem * lanes;
    const double limit = 0.03 * k.tolerance, inverse = k.inverse[i];
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

/* Half-bandwidth that a fibre needs. */
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
            atomicMax(&k.need[column], d);
            break;
        }
    }
}

/* And the loop that is compiled for it. */
__global__ void loop_kernel(work k)
{
    const int column = blockIdx.x * blockDim.x + threadIdx.x;
    if (column >= k.lanes)
        return;
    int most = k.need[column];
    most = most > k.m ? most : k.m;
    k.need[column] = k.loop[most > k.h ? most : k.h];
    k.npole[column] = 0;
    k.total[column] = 0.0;
}

/* ---- square root ---- */

/* A fibre whose bandwidth is larger than there are loops for is worked on by a whole warp, one lane a diagonal. */
__device__ __host__ inline bool is_wide(int mm)
{
    return mm > 9 && mm < WARP;
}

/* The largest of all that is seen; nothing is below 0. */
__device__ void raise_to(double *most, double v)
{
    atomicMax((unsigned long long *)most, (unsigned long long)__double_as_longlong(v));
}

/* Largest sum of magnitudes of rows [first, last) (Gershgorin). */
__device__ double largest_row(const work &k, const segment &s, int column, int step, int from)
{
    double most = 0.0;
    for (int j = s.first + from; j < s.last; j += step)
        most = fmax(most, k.q[(size_t)j * k.lanes + column]);
    return most;
}

/* Bounds of the eigenvalues of a fibre (see smallest() and root_of() of the CPU): block (lanes, segment). Segments
 * begin and end two halos off, one for each of two solutions. */
template <int M> __global__ void bounds_kernel(work k, int mm)
{
    extern __shared__ double shared[];
    const int column = blockIdx.x * WARP + threadIdx.x;
    if (column >= k.lanes)
        return;
    if (k.wanted[column] < 0 || k.need[column] != mm)
        return;
    const segment s(k, blockIdx.y, 2 * k.halo);
    const int n = s.end - s.begin, block = blockIdx.y * gridDim.x + blockIdx.x;
    const size_t lanes = k.lanes, arow = (size_t)(k.band + 1) * lanes, lrow = (size_t)(mm + 1) * WARP;
    const size_t rows = k.seg + 4 * k.halo;
    const double *a = k.a + s.begin * arow + column;
    double *l = k.lower + block * rows * lrow + threadIdx.x, *z = k.rhs + block * rows * WARP + threadIdx.x;
    double inverse = 0.0;
    bool good;
    if constexpr (M > 0)
        good = factor<M>(
            n, a, arow, lanes, 0.0, [&](int j) { return l + j * lrow; }, WARP, shared + threadIdx.x, nothing());
    else
        good = factor_any(n, mm, a, arow, lanes, 0.0, l, lrow, WARP, k.window + column, lanes, nothing());
    for (int step = 0; step < 2; step++) {
        __threadfence_block();
        /* the first right-hand side is made here, whatever is read */
        solve_banded<M>(
            n, 0, mm, l, lrow, WARP, z, WARP, step == 0 ? a : z, step == 0 ? arow : WARP, shared + threadIdx.x,
            [&](int j, double v) { return step == 0 ? ((s.begin + j) % 2 == 0 ? 1.0 : -1.0) : copysign(1.0, v); },
            [&](int j, double v) {
                z[(size_t)j * WARP] = v;
                if (s.begin + j >= s.first && s.begin + j < s.last)
                    inverse = fmax(inverse, fabs(v));
            });
    }
    if (!good)
        atomicOr(&k.bad[column / k.nl], BAD_ROOT);
    raise_to(&k.bound[column], inverse);
    raise_to(&k.bound[lanes + column], largest_row(k, s, column, 1, 0));
}

/* Sums of magnitudes of the rows of A_s (Gershgorin), into q; diagonals beyond those that a fibre needs are cleared. */
__global__ void magnitudes_kernel(work k)
{
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= k.n * k.lanes)
        return;
    const int j = i / k.lanes, column = i % k.lanes, need = k.need[column], most = need > k.m ? need : k.m;
    const size_t lanes = k.lanes, arow = (size_t)(k.band + 1) * lanes;
    double *a = k.a + column;
    double sum = fabs(a[(size_t)j * arow]);
    for (int d = 1; d <= most; d++) {
        sum += fabs(a[(size_t)j * arow + d * lanes]);
        if (j >= d)
            sum += fabs(a[(size_t)(j - d) * arow + d * lanes]);
    }
    for (int d = most + 1; d <= k.band; d++)
        a[(size_t)j * arow + d * lanes] = 0.0;
    k.q[i] = sum;
}

/* Poles of each fibre: one block a lane, a thread a pole, and they look at the error together. */
__global__ void poles_kernel(work k)
{
    __shared__ double shift[SPX_MAX_POLES], weight[SPX_MAX_POLES];
    __shared__ int enough;
    const int column = blockIdx.x, me = threadIdx.x;
    if (k.wanted[column] < 0 || (k.bad[column / k.nl] & BAD_ROOT))
        return;
    const double b = k.bound[k.lanes + column], least = 0.5 / k.bound[column], a = least < b ? least : b;
    if (!(least > 0.0 && b < INFINITY)) {
        if (me == 0)
            atomicOr(&k.bad[column / k.nl], BAD_ROOT);
        return;
    }
    const double tolerance = 0.1 * k.tolerance;
    int n = (int)(0.7 * log(1.0 / tolerance) * (log(b / a) + 6.0) / 19.7392);
    n = n < 1 ? 1 : n > SPX_MAX_POLES ? SPX_MAX_POLES : n;
    for (;; n++) {
        const spx_sqrt_mean mean = spx_sqrt_mean_of(a, b);
        if (me < n)
            spx_sqrt_pole(&mean, a, n, me, &shift[me], &weight[me]);
        if (me == 0)
            enough = 1;
        __syncthreads();
        if (n >= SPX_MAX_POLES)
            break;
        const int samples = 96;
        const double step = log(b / a) / (samples - 1);
        for (int i = me; i < samples; i += blockDim.x) {
            double v = a * exp(step * i), sum = 0.0;
            for (int j = 0; j < n; j++)
                sum += weight[j] * (v / (v + shift[j]));
            if (fabs(sum / sqrt(v) - 1.0) > tolerance)
                atomicAnd(&enough, 0);
        }
        __syncthreads();
        const bool done = enough != 0;
        __syncthreads();
        if (done)
            break;
    }
    for (int j = me; j < n; j += blockDim.x) {
        k.shift[(size_t)j * k.lanes + column] = shift[j];
        k.pole_weight[(size_t)j * k.lanes + column] = weight[j];
    }
    if (me == 0) {
        double total = 0.0;
        for (int j = 0; j < n; j++)
            total += weight[j];
        k.npole[column] = n;
        k.total[column] = total;
    }
}

/* Where the share of a task has bin j; row 0 of the segment after it has the bin after its last. */
__device__ size_t share_row(const work &k, int task, int j)
{
    const int seg = j / k.seg;
    return ((size_t)task * k.nseg + seg) * (k.seg + EXTRA) + (j - seg * k.seg);
}

/* One warp a task, which is 32 lanes and one of their poles, and a segment: block (task, segment). What the pole adds
 * to the diagonals of Q, to Q 1 and Q x goes to `share`. M = 0: any bandwidth mm, in one piece, with a window in shared
 * memory. */
template <int M> __global__ void root_kernel(work k, int mm)
{
    extern __shared__ double shared[];
    const int task = k.task0 + blockIdx.x, in = threadIdx.x;
    const int column = k.task[2 * task] * WARP + in, pole = k.task[2 * task + 1];
    const size_t lanes = k.lanes, arow = (size_t)(k.band + 1) * lanes;
    const int h = k.h;
    const segment s(k, blockIdx.y, k.halo);
    const int begin = M > 0 ? s.begin : 0, n = (M > 0 ? s.end : k.n) - begin;
    const int stop = M > 0 ? s.first : 0, end = M > 0 ? min(s.last + EXTRA, k.n) : k.n; /* bins that are written */
    double *share = k.share + in;
    if (column >= k.lanes || pole >= k.npole[column] || is_wide(k.need[column])) {
        for (int j = stop; j < min(end, M > 0 ? s.last : k.n); j++)
            for (int c = 0; c < h + 3; c++)
                share[(share_row(k, task, j) * (h + 3) + c) * WARP] = 0.0;
        return;
    }
    share += share_row(k, task, stop) * (h + 3) * WARP;
    const double shift = k.shift[(size_t)pole * lanes + column], weight = k.pole_weight[(size_t)pole * lanes + column];
    const double scale = -weight * shift, *a = k.a + begin * arow + column, *x = k.x + begin * lanes + column;
    const size_t lrow = (size_t)(mm + 1) * WARP, block = (size_t)blockIdx.x * gridDim.y + blockIdx.y;
    const size_t rows = M > 0 ? k.seg + 2 * k.halo : k.n;
    double *l = k.lower + block * rows * lrow + in, *buffer = shared + in;
    double *one = k.rhs + block * 2 * rows * WARP + in, *flux = one + rows * WARP;
    bool good;
    if constexpr (M > 0) {
        double back1[M + 1], backx[M + 1], z[M + 1][M + 1]; /* z[i][d] = Z(j+1+i, j+1+i+d) */
#pragma unroll
        for (int t = 0; t <= M; t++) {
            back1[t] = backx[t] = 0.0;
#pragma unroll
            for (int d = 0; d <= M; d++)
                z[t][d] = 0.0;
        }
        good = factor<M>(
            n, a, arow, lanes, shift, [&](int j) { return l + j * lrow; }, WARP, buffer,
            [&](int j, double(&before)[M + 1]) {
                double s1 = 1.0, sx = x[(size_t)j * lanes];
#pragma unroll
                for (int t = M; t >= 1; t--) {
                    s1 = fma(-before[t], back1[t], s1);
                    sx = fma(-before[t], backx[t], sx);
                }
#pragma unroll
                for (int t = M; t >= 2; t--) {
                    back1[t] = back1[t - 1];
                    backx[t] = backx[t - 1];
                }
                back1[1] = s1;
                backx[1] = sx;
                one[(size_t)j * WARP] = s1;
                flux[(size_t)j * WARP] = sx;
            });
        __threadfence_block();
#pragma unroll
        for (int t = 0; t <= M; t++)
            back1[t] = backx[t] = 0.0;
        stream<M + 4>(
            begin + n - stop, buffer,
            [&](int step, int i) {
                const size_t j = (size_t)(n - 1 - step);
                return i <= M       ? (const double *)l + j * lrow + (size_t)i * WARP
                       : i == M + 1 ? (const double *)one + j * WARP
                       : i == M + 2 ? (const double *)flux + j * WARP
                                    : x + j * lanes;
            },
            [&](int step, double(&v)[M + 4]) {
                double s1 = v[M + 1] * v[0], sx = v[M + 2] * v[0], own = v[0], column_z[M + 1];
#pragma unroll
                for (int i = 1; i <= M; i++)
                    column_z[i] = 0.0;
#pragma unroll
                for (int t = M; t >= 1; t--) {
                    s1 = fma(-v[t], back1[t], s1);
                    sx = fma(-v[t], backx[t], sx);
#pragma unroll
                    for (int i = 1; i <= M; i++) /* Z(j+i, j+t) */
                        column_z[i] = fma(-v[t], i < t ? z[i - 1][t - i] : z[t - 1][i - t], column_z[i]);
                }
#pragma unroll
                for (int t = M; t >= 1; t--)
                    own = fma(-v[t], column_z[t], own);
#pragma unroll
                for (int t = M; t >= 2; t--) {
                    back1[t] = back1[t - 1];
                    backx[t] = backx[t - 1];
                }
                back1[1] = s1;
                backx[1] = sx;
#pragma unroll
                for (int i = M - 1; i >= 1; i--) {
#pragma unroll
                    for (int d = 0; d + i < M; d++)
                        z[i][d] = z[i - 1][d];
                }
                z[0][0] = own;
#pragma unroll
                for (int d = 1; d < M; d++)
                    z[0][d] = column_z[d];
                const int bin = begin + n - 1 - step;
                if (bin >= end)
                    return;
                double *to = share + (size_t)(bin - stop) * (h + 3) * WARP;
                to[0] = scale * own;
#pragma unroll
                for (int d = 1; d <= M; d++)
                    if (d <= h)
                        to[(size_t)d * WARP] = scale * column_z[d];
                to[(size_t)(h + 1) * WARP] = weight * fma(-shift, s1, 1.0);
                to[(size_t)(h + 2) * WARP] = weight * fma(-shift, sx, v[M + 3]);
            });
    } else {
        double *window = k.wide_shared ? buffer : k.window + (size_t)blockIdx.x * (mm + 1) * (mm + 1) * WARP + in;
        int j = 0;
        double s1 = 1.0, sx = x[0];
        good = factor_any(n, mm, a, arow, lanes, shift, l, lrow, WARP, window, WARP, [&](int t, double lt) {
            if (t > 0) {
                s1 = fma(-lt, one[(size_t)(j - t) * WARP], s1);
                sx = fma(-lt, flux[(size_t)(j - t) * WARP], sx);
                return;
            }
            one[(size_t)j * WARP] = s1;
            flux[(size_t)j * WARP] = sx;
            j++;
            s1 = 1.0;
            sx = j < n ? x[(size_t)j * lanes] : 0.0;
        });
        /* Z(j, j+d) of the last rows in the window, slot 0 .. mm; the row that is made is in the place after them */
        const size_t wrow = (size_t)(mm + 1) * WARP;
        int slot = 0;
        for (j = n - 1; j >= 0; j--) {
            const double *lj = l + (size_t)j * lrow;
            const int rest = n - 1 - j < mm ? n - 1 - j : mm;
            slot = slot > 0 ? slot - 1 : mm;
            double *now = window + slot * wrow;
            s1 = one[(size_t)j * WARP] * lj[0];
            sx = flux[(size_t)j * WARP] * lj[0];
            for (int i = 1; i <= mm; i++)
                now[i * WARP] = 0.0;
            for (int t = rest; t >= 1; t--) {
                const double lt = lj[t * WARP];
                s1 = fma(-lt, one[(size_t)(j + t) * WARP], s1);
                sx = fma(-lt, flux[(size_t)(j + t) * WARP], sx);
                const double *then = window + (slot + t <= mm ? slot + t : slot + t - mm - 1) * wrow;
                for (int i = t; i <= rest; i++)
                    now[i * WARP] = fma(-lt, then[(i - t) * WARP], now[i * WARP]);
                for (int i = 1; i < t; i++) {
                    const double *row = window + (slot + i <= mm ? slot + i : slot + i - mm - 1) * wrow;
                    now[i * WARP] = fma(-lt, row[(t - i) * WARP], now[i * WARP]);
                }
            }
            double own = lj[0];
            for (int t = rest; t >= 1; t--)
                own = fma(-lj[t * WARP], now[t * WARP], own);
            now[0] = own;
            one[(size_t)j * WARP] = s1;
            flux[(size_t)j * WARP] = sx;
            double *to = k.share + in + share_row(k, task, j) * (h + 3) * WARP;
            to[0] = scale * own;
            for (int d = 1; d <= h; d++)
                to[(size_t)d * WARP] = scale * now[d * WARP];
            to[(size_t)(h + 1) * WARP] = weight * fma(-shift, s1, 1.0);
            to[(size_t)(h + 2) * WARP] = weight * fma(-shift, sx, x[(size_t)j * lanes]);
        }
    }
    if (!good)
        atomicOr(&k.bad[column / k.nl], BAD_ROOT);
}

/* State of a warp that works on one fibre: lane i has element i of the column at hand, lane t >= 1 what the recurrences
 * need of the bin t back (or ahead). ring: [m + 1][m + 2] last columns of L, or rows of Z; line: [WARP]. */
struct wide_warp {
    int lane, n, m;
    double *ring, *line;

    __device__ int place(int slot) const
    {
        return slot * (m + 2);
    }
    __device__ double shifted(double v, double first) const
    {
        const double up = __shfl_up_sync(FULL, v, 1);
        return lane == 1 ? first : lane == 0 ? 0.0 : up;
    }

    /* L D L^T, and L^-1 b of two right-hand sides that right(j, b) gives: 1/D and L to l[n][m + 1], solutions to put.
     */
    template <class RIGHT, class PUT>
    __device__ bool factor(const double *a, size_t arow, size_t aelem, double shift, double *l, RIGHT right, PUT put)
    {
        bool good = true;
        double diag = 0.0, back[2] = {0.0, 0.0};
        const double *mine = a + (size_t)(lane <= m ? lane : 0) * aelem;
        double next = lane <= m ? mine[0] : 0.0, after = lane <= m && n > 1 ? mine[arow] : 0.0;
        int slot = 0;
        for (int j = 0; j < n; j++) {
            double sum = next + (lane == 0 ? shift : 0.0);
            next = after;
            after = lane <= m && j + 2 < n ? mine[(size_t)(j + 2) * arow] : 0.0;
            const int then = slot - lane < 0 ? slot - lane + m + 1 : slot - lane;
            const double lt = lane >= 1 && lane <= m && lane <= j ? ring[place(then) + lane] : 0.0;
            line[lane] = lt * diag;
            __syncwarp();
            for (int t = 1; t <= m - lane && t <= j; t++) {
                const int at = slot - t < 0 ? slot - t + m + 1 : slot - t;
                sum = fma(-ring[place(at) + t + lane], line[t], sum);
            }
            double b[2];
            right(j, b);
            const double s0 = b[0] - warp_sum(lt * back[0]), s1 = b[1] - warp_sum(lt * back[1]);
            double pivot = __shfl_sync(FULL, sum, 0);
            if (!(pivot > 0.0 && pivot < INFINITY)) {
                good = false;
                pivot = 1.0;
            }
            const double inverse = 1.0 / pivot, value = lane == 0 ? inverse : sum * inverse;
            __syncwarp();
            if (lane <= m) {
                ring[place(slot) + lane] = value;
                l[(size_t)j * (m + 1) + lane] = value;
            }
            diag = shifted(diag, pivot);
            back[0] = shifted(back[0], s0);
            back[1] = shifted(back[1], s1);
            put(j, s0, s1);
            slot = slot < m ? slot + 1 : 0;
            __syncwarp();
        }
        return good;
    }

    /* L^-1 b with the factor in l. */
    template <class RIGHT, class PUT> __device__ void forward(const double *l, RIGHT right, PUT put)
    {
        double back = 0.0;
        const auto element = [&](int j) {
            return lane >= 1 && lane <= m && lane <= j && j < n ? l[(size_t)(j - lane) * (m + 1) + lane] : 0.0;
        };
        double next = element(0), after = element(1);
        for (int j = 0; j < n; j++) {
            const double s = right(j) - warp_sum(next * back);
            next = after;
            after = element(j + 2);
            back = shifted(back, s);
            put(j, s);
        }
    }

    /* L^-T D^-1 f of two right-hand sides, and where INVERSE, row j of the inverse of the matrix in the band: lane d
     * has Z(j, j+d) in put(j, x0, x1, z); down to bin `stop`. */
    template <bool INVERSE, class RIGHT, class PUT>
    __device__ void backward(const double *l, int stop, RIGHT right, PUT put)
    {
        double ahead[2] = {0.0, 0.0};
        const auto element = [&](int j) { return lane <= m && j >= 0 ? l[(size_t)j * (m + 1) + lane] : 0.0; };
        double next = element(n - 1), after = element(n - 2);
        int slot = 0;
        for (int j = n - 1; j >= stop; j--) {
            const double lt = next, inverse = __shfl_sync(FULL, lt, 0), below = lane == 0 ? 0.0 : lt;
            next = after;
            after = element(j - 2);
            double f[2], z = 0.0;
            right(j, f);
            const double x0 = f[0] * inverse - warp_sum(below * ahead[0]);
            const double x1 = f[1] * inverse - warp_sum(below * ahead[1]);
            if (INVERSE) {
                const int rest = n - 1 - j < m ? n - 1 - j : m;
                line[lane] = below;
                __syncwarp();
                slot = slot > 0 ? slot - 1 : m;
                if (lane >= 1 && lane <= rest)
                    for (int t = 1; t <= rest; t++) {
                        const int row = lane < t ? lane : t, off = lane < t ? t - lane : lane - t;
                        const int at = slot + row > m ? slot + row - m - 1 : slot + row;
                        z = fma(-line[t], ring[place(at) + off], z);
                    }
                const double own = inverse - warp_sum(below * z);
                z = lane == 0 ? own : z;
                __syncwarp();
                if (lane <= m)
                    ring[place(slot) + lane] = z;
                __syncwarp();
            }
            ahead[0] = shifted(ahead[0], x0);
            ahead[1] = shifted(ahead[1], x1);
            put(j, x0, x1, z);
        }
    }
};

/* As bounds_kernel(), one warp a fibre and segment: block (fibre of k.wide_task, segment). */
__global__ void wide_bounds_kernel(work k)
{
    __shared__ double ring[WARP * (WARP + 1)], line[WARP];
    const segment s(k, blockIdx.y, 2 * k.halo);
    const int column = k.wide_task[blockIdx.x], m = k.need[column], n = s.end - s.begin, lane = threadIdx.x;
    const size_t lanes = k.lanes, arow = (size_t)(k.band + 1) * lanes;
    const size_t block = (size_t)blockIdx.x * gridDim.y + blockIdx.y, rows = k.seg + 4 * k.halo;
    double *l = k.lower + block * rows * (k.band + 1), *rhs = k.rhs + block * rows, inverse = 0.0;
    wide_warp w = {lane, n, m, ring, line};
    bool good = w.factor(
        k.a + s.begin * arow + column, arow, lanes, 0.0, l,
        [&](int j, double(&b)[2]) {
            b[0] = (s.begin + j) % 2 == 0 ? 1.0 : -1.0;
            b[1] = 0.0;
        },
        [&](int j, double s0, double) {
            if (lane == 0)
                rhs[j] = s0;
        });
    __syncwarp();
    for (int step = 0; step < 2; step++) {
        w.backward<false>(
            l, 0,
            [&](int j, double(&f)[2]) {
                f[0] = rhs[j];
                f[1] = 0.0;
            },
            [&](int j, double x0, double, double) {
                if (s.begin + j >= s.first && s.begin + j < s.last)
                    inverse = fmax(inverse, fabs(x0));
                if (lane == 0)
                    rhs[j] = copysign(1.0, x0);
            });
        __syncwarp();
        if (step == 0)
            w.forward(
                l, [&](int j) { return rhs[j]; },
                [&](int j, double v) {
                    if (lane == 0)
                        rhs[j] = v;
                });
        __syncwarp();
    }
    raise_to(&k.bound[lanes + column], largest_row(k, s, column, WARP, lane));
    if (lane != 0)
        return;
    if (!good)
        atomicOr(&k.bad[column / k.nl], BAD_ROOT);
    raise_to(&k.bound[column], inverse);
}

/* As root_kernel(), one warp a fibre, pole and segment: block (task, segment); k.wide_task[2 task], [2 task + 1]. */
__global__ void wide_root_kernel(work k)
{
    __shared__ double ring[WARP * (WARP + 1)], line[WARP];
    const int task = blockIdx.x, column = k.wide_task[2 * task], pole = k.wide_task[2 * task + 1];
    const segment s(k, blockIdx.y, k.halo);
    const int m = k.need[column], n = s.end - s.begin, h = k.h, lane = threadIdx.x, end = s.last + EXTRA;
    const size_t lanes = k.lanes, arow = (size_t)(k.band + 1) * lanes;
    const size_t block = (size_t)task * gridDim.y + blockIdx.y, rows = k.seg + 2 * k.halo;
    const double shift = k.shift[(size_t)pole * lanes + column], weight = k.pole_weight[(size_t)pole * lanes + column];
    const double scale = -weight * shift, *x = k.x + s.begin * lanes + column;
    double *l = k.lower + block * rows * (k.band + 1), *one = k.rhs + block * 2 * rows, *flux = one + rows;
    double *share = k.share + share_row(k, task, s.first) * (h + 3);
    wide_warp w = {lane, n, m, ring, line};
    const bool good = w.factor(
        k.a + s.begin * arow + column, arow, lanes, shift, l,
        [&](int j, double(&b)[2]) {
            b[0] = 1.0;
            b[1] = x[(size_t)j * lanes];
        },
        [&](int j, double s0, double s1) {
            if (lane == 0) {
                one[j] = s0;
                flux[j] = s1;
            }
        });
    __syncwarp();
    w.backward<true>(
        l, s.first - s.begin,
        [&](int j, double(&f)[2]) {
            f[0] = one[j];
            f[1] = flux[j];
        },
        [&](int j, double x0, double x1, double z) {
            if (s.begin + j >= end)
                return;
            double *to = share + (size_t)(s.begin + j - s.first) * (h + 3);
            if (lane <= h)
                to[lane] = scale * z;
            if (lane == 0) {
                to[h + 1] = weight * fma(-shift, x0, 1.0);
                to[h + 2] = weight * fma(-shift, x1, x[(size_t)j * lanes]);
            }
        });
    if (!good && lane == 0)
        atomicOr(&k.bad[column / k.nl], BAD_ROOT);
}

/* Their sums over the poles: fibre range[3 i] has tasks range[3 i + 1] .. range[3 i + 2] - 1. */
__global__ void wide_gather_kernel(work k, const int *range)
{
    const int *mine = range + 3 * blockIdx.y, i = blockIdx.x * blockDim.x + threadIdx.x, width = k.h + 3;
    if (i >= k.n * width)
        return;
    double sum = 0.0;
    for (int task = mine[1]; task < mine[2]; task++)
        sum += k.share[share_row(k, task, i / width) * width + i % width];
    k.sum[(size_t)i * k.lanes + mine[0]] = sum;
}

/* Sums over the poles, in their order: tasks range[2 warp] .. range[2 warp + 1] - 1 are those of a warp. */
__global__ void gather_kernel(work k, const int *range)
{
    const size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x, row = (size_t)(k.h + 3) * k.lanes;
    if (i >= k.n * row)
        return;
    const size_t j = i / row, c = i % row / k.lanes, column = i % k.lanes;
    const int warp = (int)(column / WARP), in = (int)(column % WARP);
    double sum = 0.0;
    for (int task = range[2 * warp]; task < range[2 * warp + 1]; task++)
        sum += k.share[(share_row(k, task, (int)j) * (k.h + 3) + c) * WARP + in];
    k.sum[i] += sum;
}

/* Whether two segments have the same for a bin: share[0 .. h + 2] of both, `stride` apart; a sum over the poles is s.
 * What remains is far below the tolerance of ivar and resolution, relative, and of the flux in standard deviations. */
__device__ bool fits(const work &k, const double *one, const double *other, size_t stride, size_t at, int column)
{
    const double *sum = k.sum + at * (k.h + 3) * k.lanes + column;
    const double s = fmax(fabs(sum[(size_t)(k.h + 1) * k.lanes]), 1e-5 * sqrt(k.bound[k.lanes + column]));
    const double x = fabs(sum[(size_t)(k.h + 2) * k.lanes]), least = fmax(0.01 * k.tolerance, 1e-12);
    bool good = true;
    for (int c = 0; c <= k.h + 1; c++)
        good &= fabs(one[c * stride] - other[c * stride]) <= least * s;
    return good && fabs(one[(k.h + 2) * stride] - other[(k.h + 2) * stride]) <= 10.0 * k.tolerance + least * x;
}

/* Fibres whose segments do not fit together: block (task, segment, bin). */
__global__ void root_seams_kernel(work k)
{
    const int task = k.task0 + blockIdx.x, seg = blockIdx.y, bin = (seg + 1) * k.seg + blockIdx.z;
    const int column = k.task[2 * task] * WARP + threadIdx.x;
    if (bin >= k.n || column >= k.lanes || k.task[2 * task + 1] >= k.npole[column] || is_wide(k.need[column]))
        return;
    const size_t width = (size_t)(k.h + 3) * WARP, row = ((size_t)task * k.nseg + seg) * (k.seg + EXTRA);
    const double *was = k.share + (row + k.seg + blockIdx.z) * width + threadIdx.x;
    const double *is = k.share + share_row(k, task, bin) * width + threadIdx.x;
    if (!fits(k, was, is, WARP, bin, column))
        atomicOr(&k.redo[column], 1);
}

/* As that for those with a warp each: thread bin. */
__global__ void wide_seams_kernel(work k)
{
    const int task = blockIdx.x, seg = blockIdx.y, bin = (seg + 1) * k.seg + threadIdx.x;
    const int column = k.wide_task[2 * task], width = k.h + 3;
    if (bin >= k.n || threadIdx.x >= EXTRA)
        return;
    const size_t row = ((size_t)task * k.nseg + seg) * (k.seg + EXTRA);
    if (!fits(k, k.share + (row + k.seg + threadIdx.x) * width, k.share + share_row(k, task, bin) * width, 1, bin,
              column))
        atomicOr(&k.redo[column], 1);
}

/* flux, ivar, pixmask_fraction and R: a block turns a tile of 32 bins and 32 lanes, which lie side by side on the
 * device, into rows of bins. Threads: 32 x 8. */
__global__ void turn_kernel(work k)
{
    __shared__ double tile[WARP][WARP + 1];
    const int lane0 = blockIdx.y * WARP, bin0 = blockIdx.x * WARP, d = blockIdx.z; /* d: diagonal; last: flux, ... */
    const int ndiag = 2 * k.h + 1, what = d - ndiag;
    const size_t row = (size_t)(k.h + 3) * k.lanes, norm = (size_t)(k.h + 1) * k.lanes, flux = norm + k.lanes;
    const int column = lane0 + threadIdx.x;
    for (int i = threadIdx.y; i < WARP; i += blockDim.y) {
        const int bin = bin0 + i, j = bin + k.pad;
        double v = 0.0;
        if (column < k.lanes && bin < k.nwave && k.wanted[column] >= 0) {
            if (what < 0) {
                const int off = d - k.h, to = j + off, low = off < 0 ? to : j;
                if (to >= 0 && to < k.n) {
                    const double s = k.sum[(size_t)to * row + norm + column];
                    const double q = k.sum[(size_t)low * row + (size_t)(off < 0 ? -off : off) * k.lanes + column];
                    v = s != 0.0 ? (off == 0 ? q + k.total[column] : q) / s : 0.0;
                }
            } else if (what == 2) {
                const double seen = k.seen[(size_t)j * k.lanes + column];
                v = seen < 1.0 ? 1.0 - seen : 0.0;
            } else {
                const double s = k.sum[(size_t)j * row + norm + column];
                v = what == 1 ? s * s : s != 0.0 ? k.sum[(size_t)j * row + flux + column] / s : 0.0;
            }
            if (!isfinite(v))
                atomicOr(&k.bad[column / k.nl], BAD_ROOT);
        }
        tile[i][threadIdx.x] = v;
    }
    __syncthreads();
    const int bin = bin0 + threadIdx.x;
    for (int i = threadIdx.y; i < WARP; i += blockDim.y) {
        if (lane0 + i >= k.lanes || bin >= k.nwave || k.wanted[lane0 + i] < 0)
            continue;
        const size_t out = (size_t)(k.wanted[lane0 + i] - k.row0);
        const double v = tile[threadIdx.x][i];
        if (what < 0)
            k.out_res[(out * ndiag + d) * k.nwave + bin] = v;
        else
            (what == 0 ? k.out_flux : what == 1 ? k.out_ivar : k.out_seen)[out * k.nwave + bin] = v;
    }
}

/* ---- model and chi^2 ---- */

/* Of each trace, the bins whose spot covers a row, and the columns of these spots. */
struct span {
    int k0, k1, x0, x1; /* k0 <= bin <= k1, x0 <= x < x1 */
};

__global__ void no_rows_kernel(work k)
{
    const long i = (long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < k.ccd_ny * k.lanes)
        k.span[i] = {INT_MAX, -1, INT_MAX, INT_MIN};
}

/* Bins that only widen what the bin before (after) them has said already say nothing. */
__global__ void rows_kernel(work k)
{
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= k.n * k.lanes)
        return;
    const int bin = i / k.lanes, column = i % k.lanes;
    const spx_trace_place at = k.at[i];
    const bool there = k.state[i] == SPX_TRACE_SPOT;
    k.brief[i] = {at.xc, there ? at.yc : INT_MAX / 2, k.x[i]};
    if (!there)
        return;
    const int xc = at.xc, yc = at.yc, before = i - k.lanes, after = i + k.lanes;
    const bool has_before = bin > 0 && k.state[before] == SPX_TRACE_SPOT;
    const bool has_after = bin + 1 < k.n && k.state[after] == SPX_TRACE_SPOT;
    const int yb = has_before ? k.at[before].yc : INT_MAX / 2, ya = has_after ? k.at[after].yc : INT_MAX / 2;
    const bool same = has_before && k.at[before].xc == xc;
    for (int y = yc > 0 ? yc : 0; y < yc + k.ny && y < k.ccd_ny; y++) {
        const bool said = (unsigned)(y - yb) < (unsigned)k.ny, will_be = (unsigned)(y - ya) < (unsigned)k.ny;
        span *s = k.span + (size_t)y * k.lanes + column;
        if (!said)
            atomicMin(&s->k0, bin);
        if (!will_be)
            atomicMax(&s->k1, bin);
        if (!said || !same) {
            atomicMin(&s->x0, xc);
            atomicMax(&s->x1, xc + k.nx);
        }
    }
}

/* (p - M)^2 / (1/ivar + (psf_error M)^2) of the pixels of a bundle, 0 without ivar: one thread a pixel, a warp 32 of a
 * row; its lanes look for the traces that touch any of these. */
__global__ void chi2_kernel(work k)
{
    const int column = blockIdx.x * blockDim.x + threadIdx.x, b = blockIdx.z, lane = threadIdx.x % WARP;
    const int y = (int)blockIdx.y, first = k.x0[b] + column - lane, x = first + lane;
    if (column - lane >= k.wide || y < k.y0[b] || y >= k.y1[b])
        return;
    const bool in = column < k.wide && x >= 0 && x < k.ccd_nx;
    const double ivar = in ? (double)k.weight[(size_t)y * k.ccd_nx + x] : 0.0;
    double model = 0.0;
    for (int f0 = 0; f0 < k.nl; f0 += WARP) {
        span s = {0, -1, INT_MAX, INT_MIN};
        if (f0 + lane < k.nl)
            s = k.span[(size_t)y * k.lanes + b * k.nl + f0 + lane];
        unsigned touch = __ballot_sync(FULL, s.x0 < first + WARP && s.x1 > first);
        for (; touch != 0; touch &= touch - 1) {
            const int f = __ffs((int)touch) - 1;
            const int k0 = __shfl_sync(FULL, s.k0, f), k1 = __shfl_sync(FULL, s.k1, f);
            const int trace = b * k.nl + f0 + f;
#pragma unroll 4
            for (int j = k0; j <= k1; j++) {
                const size_t i = (size_t)j * k.lanes + trace;
                const brief at = k.brief[i];
                const int dx = x - at.xc, dy = y - at.yc;
                if ((unsigned)dx < (unsigned)k.nx && (unsigned)dy < (unsigned)k.ny)
                    model = fma(at.x, k.spot[i * k.npix + dy * k.nx + dx], model);
            }
        }
    }
    if (column >= k.wide)
        return;
    double chi2 = 0.0;
    if (ivar > 0.0) {
        const double error = k.psf_error * model, rest = (double)k.data[(size_t)y * k.ccd_nx + x] - model;
        chi2 = rest * rest * ivar / (error * error * ivar + 1.0);
    }
    k.chi2[((size_t)b * k.ccd_ny + y) * k.wide + column] = chi2;
}

/* chi2pix: one warp GATHERED neighbouring bins of the output. */
enum { GATHERED = 4 };

__global__ void gather_chi2_kernel(work k)
{
    const int lane = threadIdx.x % WARP, groups = (k.nwave + GATHERED - 1) / GATHERED;
    const int item = blockIdx.x * (blockDim.x / WARP) + threadIdx.x / WARP;
    if (item >= groups * k.lanes)
        return;
    const int bin0 = item % groups * GATHERED, column = item / groups, b = column / k.nl;
    if (k.wanted[column] < 0)
        return;
    const int y0 = k.y0[b], y1 = k.y1[b];
    const double *chi2[GATHERED], *spot[GATHERED];
    int xc[GATHERED], yc[GATHERED];
    double sum[GATHERED], seen[GATHERED];
#pragma unroll
    for (int g = 0; g < GATHERED; g++) {
        const bool in = bin0 + g < k.nwave;
        const size_t i = (size_t)(in ? bin0 + g + k.pad : 0) * k.lanes + column;
        const spx_trace_place at = k.at[i];
        seen[g] = in && k.state[i] == SPX_TRACE_SPOT ? k.seen[i] : 0.0;
        sum[g] = 0.0;
        spot[g] = k.spot + i * k.npix;
        xc[g] = at.xc;
        yc[g] = seen[g] > 0.0 ? at.yc : INT_MAX / 2;
        chi2[g] = k.chi2 + ((long)b * k.ccd_ny + (seen[g] > 0.0 ? at.yc : 0)) * k.wide + (at.xc - k.x0[b]);
    }
    for (int s = lane; s < k.npix; s += WARP) {
        const int dy = s / k.nx, dx = s - dy * k.nx, at = dy * k.wide + dx;
#pragma unroll
        for (int g = 0; g < GATHERED; g++) {
            const int x = xc[g] + dx, y = yc[g] + dy;
            if (x >= 0 && x < k.ccd_nx && y >= y0 && y < y1)
                sum[g] = fma(spot[g][s], chi2[g][at], sum[g]);
        }
    }
#pragma unroll
    for (int g = 0; g < GATHERED; g++) {
        const double total = warp_sum(sum[g]);
        if (lane == 0 && bin0 + g < k.nwave)
            k.out_chi2[(size_t)(k.wanted[column] - k.row0) * k.nwave + bin0 + g] = total > 0.0 ? total / seen[g] : 0.0;
    }
}

/* ---- host ---- */

/* A piece of work has a stream of its own, and more for what can be done side by side; SLOTS pieces are under way at a
 * time, so that transfers and recurrences, which leave most of a device idle, run beside the others' work. */
enum { SLOTS = 4, BESIDE = 4, CHUNKS = 4, CHUNK_BYTES = 4 << 20, BLOCK_BYTES = 1 << 18, STEPS = 5 };

struct slot {
    cudaStream_t stream, beside[BESIDE];
    cudaEvent_t forked, joined[BESIDE], chunk[CHUNKS], step[STEPS + 1];
    char *staging; /* page-locked, [CHUNKS][CHUNK_BYTES] */
    char *table;   /* page-locked: small tables, to and fro */
    size_t ntable; /* its bytes */
    double seconds[STEPS];
};

/* What one call needs, kept from call to call. */
struct context {
    slot slots[SLOTS];
    cudaStream_t upload;
    cudaEvent_t image_there;
    char *room;
    size_t size;
    size_t shared; /* bytes of shared memory that a block may have */
    bool starved;  /* the last call found too little memory */
};

/* Of a device: as many contexts as there have been calls at a time. */
struct pool {
    std::mutex lock;
    std::condition_variable given_back;
    std::vector<context *> idle;
    int busy = 0;
};

spx_status failed(cudaError_t code, const char *what, spx_err *e)
{
    (void)cudaGetLastError();
    if (code == cudaErrorMemoryAllocation)
        return spx_fail(e, SPX_EDEVICE,
                        "cuda: %s: out of memory: give less than is free (--max-device-mem), or use --device cpu",
                        what);
    return spx_fail(e, SPX_EDEVICE, "cuda: %s: %s: use --device cpu", what, cudaGetErrorString(code));
}

#define TRY(call)                                                                                                      \
    do {                                                                                                               \
        cudaError_t code_ = (call);                                                                                    \
        if (code_ != cudaSuccess)                                                                                      \
            return failed(code_, #call, e);                                                                            \
    } while (0)

#define PASS(call)                                                                                                     \
    do {                                                                                                               \
        spx_status st_ = (call);                                                                                       \
        if (st_ != SPX_OK)                                                                                             \
            return st_;                                                                                                \
    } while (0)

/* Memory, handed out from the front; with base NULL it only counts. */
struct arena {
    char *base;
    size_t used, size;

    template <typename T> T *take(size_t n)
    {
        size_t at = used;
        used += (n * sizeof(T) + 255) / 256 * 256;
        return base ? (T *)(base + at) : (T *)256;
    }
};

/* Whether loops of constant length are compiled for a bandwidth, and the bytes of shared memory that they need to read
 * `count` doubles a step. */
bool has_loop(int mm)
{
    return mm >= 6 && mm <= 9;
}

/* The bandwidth that is computed for one that is needed: elements beyond a fibre's own are 0. */
int next_loop(int mm, int band)
{
    return mm < 6 && band >= 6 ? 6 : mm;
}

size_t stream_bytes(int mm, int count)
{
    return has_loop(mm) ? sizeof(double) * AHEAD * WARP * (size_t)count : 0;
}

/* Segments of about `bins` bins for recurrences of a bandwidth. */
void cut(work &k, int bins, int bandwidth)
{
    k.nseg = k.n > bins ? (k.n + bins / 2) / bins : 1;
    k.seg = (k.n + k.nseg - 1) / k.nseg;
    k.nseg = (k.n + k.seg - 1) / k.seg;
    k.halo = HALO * bandwidth;
}

void one_piece(work &k)
{
    k.nseg = 1;
    k.seg = k.n;
    k.halo = 0;
}

void cut_lanes(work &k)
{
    if (has_loop(k.m))
        cut(k, SHORT, k.m);
    else
        one_piece(k);
}

/* Everything but what marginal information and the poles' work take of what is left. */
void lay_out(arena &m, work &k)
{
    const size_t n = k.n, lanes = k.lanes, row = n * lanes, nb = k.nbundle;
    k.at = m.take<spx_trace_place>(row);
    k.state = m.take<unsigned char>(row);
    k.spot = m.take<double>(row * k.npix);
    k.mat = m.take<double>(row * k.nelem);
    k.y = m.take<double>(row);
    k.w = m.take<double>(row);
    k.seen = m.take<double>(row);
    k.largest = m.take<double>(n * nb);
    k.around = m.take<double>(n * nb);
    k.inverse = m.take<double>(row);
    k.ldl = m.take<double>(row * (k.m + 1));
    k.x = m.take<double>(row);
    k.r = m.take<double>(row);
    k.z = m.take<double>(row);
    k.q = m.take<double>(row);
    k.d = m.take<double>(row);
    k.part = m.take<double>(nb * DOT_PARTS);
    k.scalar = m.take<double>(nb * 4);
    k.window = m.take<double>(has_loop(k.m) ? 1 : (size_t)(k.m + 1) * (k.m + 1) * lanes);
    cut_lanes(k);
    k.seam = m.take<double>((size_t)k.nseg * k.m * (k.m + 1) * lanes);
    k.scratch = m.take<double>((size_t)k.nseg * (k.seg + 2 * k.halo) * lanes);
    k.length = m.take<int>(row);
    k.t[0] = m.take<double>(row * (k.band + 1));
    k.t[1] = m.take<double>(row * (k.band + 1));
    k.a = m.take<double>(row * (k.band + 1));
    k.bad = m.take<int>(nb + 1);
    k.torn = k.bad + nb;
    k.need = m.take<int>(lanes);
    k.redo = m.take<int>(lanes);
    k.bound = m.take<double>(2 * lanes);
    k.npole = m.take<int>(lanes);
    k.shift = m.take<double>(SPX_MAX_POLES * lanes);
    k.pole_weight = m.take<double>(SPX_MAX_POLES * lanes);
    k.total = m.take<double>(lanes);
    k.sum = m.take<double>(row * (k.h + 3));
    k.span = (struct span *)m.take<int>(4 * (size_t)k.ccd_ny * lanes);
    k.brief = m.take<struct brief>(row);
    k.chi2 = m.take<double>(nb * (size_t)k.ccd_ny * k.wide);
    const size_t nout = nb * (size_t)k.nl * k.nwave;
    k.out_flux = m.take<double>(nout);
    k.out_ivar = m.take<double>(nout);
    k.out_chi2 = m.take<double>(nout);
    k.out_seen = m.take<double>(nout);
    k.out_res = m.take<double>(nout * (2 * k.h + 1));
    k.task = m.take<int>(2 * (lanes / WARP + 1) * SPX_MAX_POLES);
}

/* Doubles of one task of the square root, all segments. */
size_t task_size(work k, int mm)
{
    cut(k, LONG, mm);
    const size_t rows = has_loop(mm) ? (size_t)k.nseg * (k.seg + 2 * k.halo) : (size_t)k.n;
    return WARP * (rows * (mm + 1 + 2) + (size_t)k.nseg * (k.seg + EXTRA) * (k.h + 3) + (size_t)(mm + 1) * (mm + 1)) +
           128;
}

/* Of one with a warp of its own. */
size_t wide_size(const work &k)
{
    return (size_t)k.nseg * ((k.seg + 2 * k.halo) * (size_t)(k.band + 1 + 2) + (k.seg + EXTRA) * (size_t)(k.h + 3)) + 8;
}

/* Doubles for the bounds of the eigenvalues, bandwidth mm. */
size_t bounds_size(work k, int mm)
{
    cut(k, SHORT, mm);
    if (!has_loop(mm))
        one_piece(k);
    const size_t warps = (size_t)(k.lanes + WARP - 1) / WARP;
    return warps * WARP * (k.nseg * (k.seg + 4 * (size_t)k.halo) * (mm + 2) + (size_t)(mm + 1) * (mm + 1)) + 128;
}

/* Geometry that all bundles of the call share: the union of theirs. */
spx_status common_geometry(const spx_trace_plan *p, const spx_trace_bundle *list, size_t nbundle, work &k, spx_err *e)
{
    const spx_extract_job *job = p->job;
    k = work();
    k.n = (int)p->nbin;
    k.pad = (int)p->pad;
    k.nwave = (int)job->nwave;
    k.nx = p->nx;
    k.ny = p->ny;
    k.npix = p->nx * p->ny;
    k.degx = p->degx;
    k.degy = p->degy;
    k.npar = (int)p->npar;
    k.ndeg = (int)job->psf->ndeg;
    k.nxc = (int)job->psf->x.ncoef;
    k.nyc = (int)job->psf->y.ncoef;
    k.h = job->psf->hsizey;
    k.ccd_nx = (long)job->image->nx;
    k.ccd_ny = (long)job->image->ny;
    k.tolerance = p->tolerance;
    k.psf_error = job->psf_error;
    k.regularize = job->o->regularize;
    k.half = job->o->wave_step > p->nbin ? (int)p->nbin : (int)(job->o->wave_step + 2 * p->pad);
    for (int df = 0; df <= REACH; df++) {
        k.lo[df] = INT_MAX;
        k.hi[df] = INT_MIN;
    }
    size_t most = 0;
    for (size_t i = 0; i < nbundle; i++) {
        const spx_trace_bundle *b = &list[i];
        most = b->nf > most ? b->nf : most;
        if (b->reach > REACH)
            return spx_fail(e, SPX_EDEVICE, "cuda: traces overlap with more than %d others: use --device cpu",
                            (int)REACH);
        k.reach = b->reach > k.reach ? b->reach : k.reach;
        for (int df = 0; df <= b->reach; df++) {
            k.lo[df] = b->lo[df] < k.lo[df] ? b->lo[df] : k.lo[df];
            k.hi[df] = b->hi[df] > k.hi[df] ? b->hi[df] : k.hi[df];
        }
        k.wide = (int)b->wnx > k.wide ? (int)b->wnx : k.wide;
    }
    for (int df = 0; df <= k.reach; df++) {
        k.first[df] = k.nelem;
        k.nelem += k.hi[df] - k.lo[df] + 1;
        k.depth = k.hi[df] > k.depth ? k.hi[df] : k.depth;
        k.depth = -k.lo[df] > k.depth ? -k.lo[df] : k.depth;
    }
    k.nl = (int)most + k.reach;
    k.m = k.hi[0];
    k.band = (int)spx_trace_band(k.m, k.reach, k.h, k.tolerance);
    k.rows = 2 * k.depth + 1 + TAIL;
    for (int mm = 0; mm <= k.band && mm <= SPX_TRACE_MOST_BAND; mm++)
        k.loop[mm] = next_loop(mm, k.band);
    return SPX_OK;
}

unsigned blocks(size_t n, unsigned threads)
{
    return (unsigned)((n + threads - 1) / threads);
}

/* Loops of constant length for the usual bandwidths. */
#define BY_BAND(mm, kernel, ...)                                                                                       \
    switch (mm) {                                                                                                      \
    case 6:                                                                                                            \
        kernel<6> __VA_ARGS__;                                                                                         \
        break;                                                                                                         \
    case 7:                                                                                                            \
        kernel<7> __VA_ARGS__;                                                                                         \
        break;                                                                                                         \
    case 8:                                                                                                            \
        kernel<8> __VA_ARGS__;                                                                                         \
        break;                                                                                                         \
    case 9:                                                                                                            \
        kernel<9> __VA_ARGS__;                                                                                         \
        break;                                                                                                         \
    default:                                                                                                           \
        kernel<0> __VA_ARGS__;                                                                                         \
    }

/* Streams beside the slot's own: they begin after what it has, and it goes on after them. */
spx_status fork(slot *s, spx_err *e)
{
    TRY(cudaEventRecord(s->forked, s->stream));
    for (int i = 0; i < BESIDE; i++)
        TRY(cudaStreamWaitEvent(s->beside[i], s->forked, 0));
    return SPX_OK;
}

spx_status join(slot *s, spx_err *e)
{
    for (int i = 0; i < BESIDE; i++) {
        TRY(cudaEventRecord(s->joined[i], s->beside[i]));
        TRY(cudaStreamWaitEvent(s->stream, s->joined[i], 0));
    }
    return SPX_OK;
}

/* Small tables: from the slot's page-locked memory to the device, and back. */
template <typename T> spx_status put(slot *s, const T *to, const T *from, size_t n, spx_err *e)
{
    TRY(cudaMemcpyAsync((void *)to, from, n * sizeof(T), cudaMemcpyHostToDevice, s->stream));
    return SPX_OK;
}

template <typename T> spx_status get(slot *s, T *to, const T *from, size_t n, spx_err *e)
{
    TRY(cudaMemcpyAsync(to, from, n * sizeof(T), cudaMemcpyDeviceToHost, s->stream));
    return SPX_OK;
}

spx_status zero(slot *s, void *at, size_t bytes, spx_err *e)
{
    TRY(cudaMemsetAsync(at, 0, bytes, s->stream));
    return SPX_OK;
}

spx_status spots(work &k, slot *s, spx_err *e)
{
    const size_t bins = (size_t)k.n * k.lanes;
    const int per_warp = spot_room(k);
    const unsigned warps = 4;
    places_kernel<<<blocks(bins, 128), 128, 0, s->stream>>>(k);
    spots_kernel<<<blocks(bins, warps), warps * WARP, sizeof(double) * warps * per_warp, s->stream>>>(k, per_warp);
    TRY(cudaGetLastError());
    return SPX_OK;
}

spx_status equations(work &k, size_t most_shared, slot *s, spx_err *e)
{
    const size_t bytes = sizeof(double) * 8 * OVERLAP_TRACES * (size_t)k.npix;
    const int groups = bytes * OVERLAP_GROUPS <= most_shared ? OVERLAP_GROUPS : 1;
    const dim3 tiles(blocks(k.n, 8 * (unsigned)groups), blocks(k.lanes, OVERLAP_TRACES));
    if (bytes > most_shared)
        return spx_fail(e, SPX_EDEVICE, "cuda: spots of %d x %d pixels are too large for the device: use --device cpu",
                        k.nx, k.ny);
    overlaps_kernel<<<tiles, OVERLAP_TRACES * groups * WARP, bytes * groups, s->stream>>>(k);
    largest_kernel<<<blocks((size_t)k.n * k.nbundle, 128), 128, 0, s->stream>>>(k);
    around_kernel<<<dim3(blocks(k.n, 128), k.nbundle), 128, 0, s->stream>>>(k);
    regularise_kernel<<<blocks((size_t)k.n * k.lanes, 128), 128, 0, s->stream>>>(k);
    TRY(cudaGetLastError());
    return SPX_OK;
}

/* scalar: page-locked, of the bundles, and k.bad and k.torn after it. */
spx_status solve(work &k, slot *s, double *scalar, int *bad, spx_err *e)
{
    const size_t bins = (size_t)k.n * k.lanes;
    const dim3 parts(DOT_PARTS, k.nbundle);
    const unsigned few = blocks(k.nbundle, 32), each = blocks(bins, 128), column = blocks(k.lanes, 32);
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
            multiply_kernel<<<each, 128, 0, s->stream>>>(k);
            dot_kernel<<<parts, 256, 0, s->stream>>>(k, k.d, k.q);
            scalar_kernel<<<few, 32, 0, s->stream>>>(k, STEP);
            update_kernel<<<each, 128, 0, s->stream>>>(k);
        }
        BY_BAND(k.m, precondition_kernel, <<<segments, 32, bytes, s->stream>>>(k))
        dot_kernel<<<parts, 256, 0, s->stream>>>(k, k.r, k.z);
        scalar_kernel<<<few, 32, 0, s->stream>>>(k, step == 0 ? START : NEXT);
        direction_kernel<<<each, 128, 0, s->stream>>>(k);
        TRY(cudaGetLastError());
        PASS(get(s, scalar, k.scalar, 4 * (size_t)k.nbundle, e));
        PASS(get(s, bad, k.bad, (size_t)k.nbundle + 1, e));
        TRY(cudaStreamSynchronize(s->stream));
        if (step == 0 && bad[k.nbundle] != 0 && k.nseg > 1) { /* segments do not fit together */
            one_piece(k);
            step = -1;
            continue;
        }
        int busy = 0;
        for (int b = 0; b < k.nbundle; b++)
            busy |= scalar[4 * b] > scalar[4 * b + 3] && (step == 0 || scalar[4 * b + 1] != 0.0);
        if (!busy)
            break;
    }
    return SPX_OK;
}

spx_status marginal(work &k, arena m, slot *s, spx_err *e)
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
    PASS(zero(s, k.need, sizeof(int) * k.lanes, e));
    need_kernel<<<each, 128, 0, s->stream>>>(k);
    magnitudes_kernel<<<each, 128, 0, s->stream>>>(k);
    loop_kernel<<<blocks(k.lanes, 128), 128, 0, s->stream>>>(k);
    TRY(cudaGetLastError());
    return SPX_OK;
}

/* Half-bandwidth and number of poles of the fibres of a warp, on the host. */
struct warp_work {
    int mm, npole;
};

/* Tables of one piece of work on the host, in page-locked memory. */
struct tables {
    int *fibre, *wanted, *nf, *y0, *y1, *x0; /* as on the device, in one block with `known` */
    unsigned char *known;
    int *need, *npole, *redo, *bad, *task, *range, *wide_task, *wide_range;
    double *scalar;
    warp_work *warps;

    tables(arena &m, const work &k)
    {
        const size_t lanes = k.lanes, nb = k.nbundle, most = (lanes / WARP + 1) * SPX_MAX_POLES;
        fibre = m.take<int>(lanes);
        wanted = m.take<int>(lanes);
        nf = m.take<int>(nb);
        y0 = m.take<int>(nb);
        y1 = m.take<int>(nb);
        x0 = m.take<int>(nb);
        known = m.take<unsigned char>(nb * k.n * k.nl);
        need = m.take<int>(lanes);
        npole = m.take<int>(lanes);
        redo = m.take<int>(lanes);
        bad = m.take<int>(nb + 1);
        task = m.take<int>(2 * most);
        range = m.take<int>(2 * (lanes / WARP + 1));
        wide_task = m.take<int>(2 * lanes * SPX_MAX_POLES);
        wide_range = m.take<int>(3 * lanes);
        scalar = m.take<double>(4 * nb);
        warps = m.take<warp_work>(lanes / WARP + 1);
    }
};

/* Bounds of the eigenvalues, bandwidth by bandwidth: side by side where there is room. */
spx_status bounds(work k, arena m, tables &t, slot *s, spx_err *e)
{
    const unsigned column = blocks(k.lanes, WARP);
    bool found[SPX_TRACE_MOST_BAND + 1] = {false};
    int nwide = 0, widest = 0;
    for (int i = 0; i < k.lanes; i++) {
        if (is_wide(t.need[i]) && t.wanted[i] >= 0) {
            t.wide_task[nwide++] = i;
            widest = t.need[i] > widest ? t.need[i] : widest;
        } else {
            found[t.need[i]] = true;
        }
    }
    PASS(zero(s, k.bound, sizeof(double) * 2 * k.lanes, e));
    int *list = m.take<int>((size_t)nwide + 1);
    PASS(put(s, list, t.wide_task, (size_t)nwide, e));
    PASS(fork(s, e));
    arena rest = m;
    int count = 0;
    for (int mm = 0; mm <= SPX_TRACE_MOST_BAND; mm++) {
        if (!found[mm])
            continue;
        if (bounds_size(k, mm) * sizeof(double) + 4096 > rest.size - rest.used) {
            PASS(join(s, e));
            PASS(fork(s, e));
            rest = m;
        }
        work w = k;
        cut(w, SHORT, mm);
        w.halo /= 2; /* these are only bounds */
        if (!has_loop(mm))
            one_piece(w);
        const size_t rows = (size_t)column * WARP * w.nseg * (w.seg + 4 * w.halo);
        w.lower = rest.take<double>(rows * (mm + 1));
        w.rhs = rest.take<double>(rows);
        w.window = rest.take<double>((size_t)(mm + 1) * (mm + 1) * k.lanes);
        cudaStream_t stream = s->beside[count++ % BESIDE];
        BY_BAND(mm, bounds_kernel, <<<dim3(column, w.nseg), WARP, stream_bytes(mm, mm + 2), stream>>>(w, mm))
    }
    for (int first = 0; first < nwide;) {
        work w = k;
        cut(w, SHORT, widest);
        w.halo /= 2;
        const size_t rows = (size_t)w.nseg * (w.seg + 4 * w.halo), each = rows * (k.band + 2) * sizeof(double);
        if (each + 4096 > rest.size - rest.used) {
            PASS(join(s, e));
            PASS(fork(s, e));
            rest = m;
        }
        const size_t fit = (rest.size - rest.used - 4096) / each, left = (size_t)(nwide - first);
        const int now = (int)(fit < left ? fit : left);
        if (now == 0)
            return spx_fail(e, SPX_EDEVICE, "cuda: too little memory on the device for one trace: use --device cpu");
        w.wide_task = list + first;
        w.lower = rest.take<double>((size_t)now * rows * (k.band + 1));
        w.rhs = rest.take<double>((size_t)now * rows);
        wide_bounds_kernel<<<dim3(now, w.nseg), WARP, 0, s->beside[count++ % BESIDE]>>>(w);
        first += now;
    }
    PASS(join(s, e));
    poles_kernel<<<k.lanes, 96, 0, s->stream>>>(k);
    TRY(cudaGetLastError());
    return SPX_OK;
}

/* Fibres with a warp for each pole. */
struct wide_work {
    work k;
    int ntask, nfibre;
    int *range; /* on the device */
};

/* The tasks of fibres `next` and on for which pick(i) holds, as many as fit in `room` doubles; next goes to the first
 * that is left. */
template <typename PICK>
spx_status wide_tasks(const work &k, arena &m, size_t room, int &next, tables &t, wide_work &w, slot *s, PICK pick,
                      spx_err *e)
{
    const size_t each = wide_size(k);
    w.k = k;
    w.ntask = w.nfibre = 0;
    for (; next < k.lanes; next++) {
        const int npole = t.npole[next];
        if (!pick(next) || npole == 0)
            continue;
        if ((size_t)(w.ntask + npole) * each > room)
            break;
        int *range = t.wide_range + 3 * w.nfibre++;
        range[0] = next;
        range[1] = w.ntask;
        for (int pole = 0; pole < npole; pole++, w.ntask++) {
            t.wide_task[2 * w.ntask] = next;
            t.wide_task[2 * w.ntask + 1] = pole;
        }
        range[2] = w.ntask;
    }
    if (w.ntask == 0)
        return next < k.lanes
                   ? spx_fail(e, SPX_EDEVICE,
                              "cuda: too little memory on the device for one trace: give more (--max-device-mem), or "
                              "use --device cpu")
                   : SPX_OK;
    int *task = m.take<int>(2 * (size_t)w.ntask);
    w.range = m.take<int>(3 * (size_t)w.nfibre);
    PASS(put(s, task, t.wide_task, 2 * (size_t)w.ntask, e));
    PASS(put(s, w.range, t.wide_range, 3 * (size_t)w.nfibre, e));
    const size_t rows = (size_t)w.ntask * k.nseg * (k.seg + 2 * k.halo);
    w.k.wide_task = task;
    w.k.lower = m.take<double>(rows * (k.band + 1));
    w.k.rhs = m.take<double>(rows * 2);
    w.k.share = m.take<double>((size_t)w.ntask * k.nseg * (k.seg + EXTRA) * (k.h + 3));
    return SPX_OK;
}

spx_status wide_sums(const wide_work &w, slot *s, spx_err *e)
{
    const work &k = w.k;
    wide_gather_kernel<<<dim3(blocks((size_t)k.n * (k.h + 3), 256), w.nfibre), 256, 0, s->stream>>>(k, w.range);
    if (k.nseg > 1)
        wide_seams_kernel<<<dim3(w.ntask, k.nseg - 1), WARP, 0, s->stream>>>(k);
    TRY(cudaGetLastError());
    return SPX_OK;
}

/* Traces pick(i) one after another, as many as there is room for at a time. */
template <typename PICK> spx_status wide_root(const work &k, arena m, tables &t, slot *s, PICK pick, spx_err *e)
{
    for (int next = 0; next < k.lanes;) {
        arena rest = m;
        wide_work w;
        const size_t reserve = 4096 + sizeof(int) * 5 * (size_t)k.lanes * SPX_MAX_POLES, left = m.size - m.used;
        TRY(cudaStreamSynchronize(s->stream)); /* tables are free */
        PASS(wide_tasks(k, rest, left > reserve ? (left - reserve) / sizeof(double) : 0, next, t, w, s, pick, e));
        if (w.ntask == 0)
            break;
        wide_root_kernel<<<dim3(w.ntask, k.nseg), WARP, 0, s->stream>>>(w.k);
        PASS(wide_sums(w, s, e));
    }
    return SPX_OK;
}

spx_status root(work &k, arena m, tables &t, const context *c, slot *s, spx_err *e)
{
    const int nwarp = (k.lanes + WARP - 1) / WARP;
    PASS(get(s, t.need, k.need, k.lanes, e));
    TRY(cudaStreamSynchronize(s->stream));
    PASS(bounds(k, m, t, s, e));
    PASS(get(s, t.npole, k.npole, k.lanes, e));
    PASS(zero(s, k.sum, sizeof(double) * (size_t)k.n * (k.h + 3) * k.lanes, e));
    PASS(zero(s, k.redo, sizeof(int) * k.lanes, e));
    TRY(cudaStreamSynchronize(s->stream));
    int widest = 0;
    for (int i = 0; i < nwarp; i++)
        t.warps[i] = {0, 0};
    for (int i = 0; i < k.lanes; i++) {
        warp_work &w = t.warps[i / WARP];
        if (t.npole[i] > 0 && is_wide(t.need[i])) {
            widest = t.need[i] > widest ? t.need[i] : widest;
        } else if (t.npole[i] > 0) {
            w.mm = t.need[i] > w.mm ? t.need[i] : w.mm;
            w.npole = t.npole[i] > w.npole ? t.npole[i] : w.npole;
        }
    }
    const size_t reserve = 4096 + sizeof(int) * 5 * (size_t)k.lanes * SPX_MAX_POLES;
    const auto room = [&]() { return m.size - m.used > reserve ? (m.size - m.used - reserve) / sizeof(double) : 0; };
    /* fibres with a warp for each pole: all of them beside the others, if half of the room is enough */
    const auto is_wide_fibre = [&](int i) { return is_wide(t.need[i]); };
    work wide = k;
    wide_work beside = {};
    cut(wide, LONG, widest);
    wide.halo /= 2; /* it is not the whole width that is strong */
    if (widest > 0) {
        size_t count = 0;
        for (int i = 0; i < k.lanes; i++)
            count += is_wide_fibre(i) ? (size_t)t.npole[i] : 0;
        int next = 0;
        if (count * wide_size(wide) < room() / 2)
            PASS(wide_tasks(wide, m, room(), next, t, beside, s, is_wide_fibre, e));
    }
    /* tasks by bandwidth, as many warps at a time as there is room for; those of different bandwidth side by side */
    bool launched = beside.ntask == 0;
    for (int mm = 1, at = 0, pole = 0; mm <= SPX_TRACE_MOST_BAND || !launched;) {
        struct {
            int mm, first, count;
        } part[SPX_TRACE_MOST_BAND + 1];
        int nparts = 0, ntask = 0;
        size_t used = 0;
        bool full = false;
        TRY(cudaStreamSynchronize(s->stream)); /* tables are free */
        for (int i = 0; i < nwarp; i++)
            t.range[2 * i] = t.range[2 * i + 1] = 0;
        for (; mm <= SPX_TRACE_MOST_BAND && !full; full ? 0 : (mm++, at = 0)) {
            const size_t each = task_size(k, mm);
            part[nparts] = {mm, ntask, 0};
            for (; at < nwarp && !full; full ? 0 : (at++, pole = 0)) {
                const warp_work &w = t.warps[at];
                if (w.mm != mm)
                    continue;
                t.range[2 * at] = ntask;
                for (; pole < w.npole && used + each <= room(); pole++, ntask++) {
                    used += each;
                    t.task[2 * ntask] = at;
                    t.task[2 * ntask + 1] = pole;
                }
                t.range[2 * at + 1] = ntask;
                full = pole < w.npole;
            }
            part[nparts].count = ntask - part[nparts].first;
            nparts += part[nparts].count > 0;
        }
        if (full && ntask == 0)
            return spx_fail(e, SPX_EDEVICE,
                            "cuda: too little memory on the device for one group of traces: give more "
                            "(--max-device-mem), or use --device cpu");
        arena rest = m;
        work w = k;
        cut(w, LONG, 1);
        int *where = rest.take<int>(2 * (size_t)nwarp);
        w.share = rest.take<double>((size_t)ntask * w.nseg * (w.seg + EXTRA) * (k.h + 3) * WARP);
        PASS(put(s, k.task, (const int *)t.task, 2 * (size_t)ntask, e));
        PASS(put(s, (const int *)where, (const int *)t.range, 2 * (size_t)nwarp, e));
        PASS(fork(s, e));
        if (!launched)
            wide_root_kernel<<<dim3(beside.ntask, wide.nseg), WARP, 0, s->beside[BESIDE - 1]>>>(beside.k);
        launched = true;
        for (int i = 0; i < nparts; i++) {
            const int band = part[i].mm, count = part[i].count;
            const size_t window = sizeof(double) * (size_t)(band + 1) * (band + 1) * WARP;
            size_t bytes = stream_bytes(band, band + 4), rows = (size_t)count * WARP * k.n;
            w.task0 = part[i].first;
            w.halo = HALO * band;
            if (has_loop(band))
                rows = (size_t)count * WARP * w.nseg * (w.seg + 2 * w.halo);
            w.lower = rest.take<double>(rows * (band + 1));
            w.rhs = rest.take<double>(rows * 2);
            w.window = rest.take<double>((size_t)count * (band + 1) * (band + 1) * WARP);
            w.wide_shared = !has_loop(band) && window <= c->shared;
            if (w.wide_shared)
                bytes = window;
            const dim3 tasks(count, has_loop(band) ? w.nseg : 1);
            BY_BAND(band, root_kernel, <<<tasks, WARP, bytes, s->beside[i % (BESIDE - 1)]>>>(w, band))
            TRY(cudaGetLastError());
        }
        PASS(join(s, e));
        if (ntask > 0)
            gather_kernel<<<blocks((size_t)k.n * (k.h + 3) * k.lanes, 256), 256, 0, s->stream>>>(w, where);
        for (int i = 0; i < nparts && w.nseg > 1; i++)
            if (has_loop(part[i].mm)) {
                w.task0 = part[i].first;
                root_seams_kernel<<<dim3(part[i].count, w.nseg - 1, EXTRA), WARP, 0, s->stream>>>(w);
            }
        TRY(cudaGetLastError());
    }
    if (beside.ntask > 0)
        PASS(wide_sums(beside, s, e));
    else if (widest > 0)
        PASS(wide_root(wide, m, t, s, is_wide_fibre, e));
    /* in one piece where segments do not fit together */
    PASS(get(s, t.redo, k.redo, k.lanes, e));
    TRY(cudaStreamSynchronize(s->stream));
    work whole = k;
    one_piece(whole);
    PASS(wide_root(
        whole, m, t, s, [&](int i) { return t.redo[i] != 0; }, e));
    turn_kernel<<<dim3(blocks(k.nwave, WARP), blocks(k.lanes, WARP), 2 * k.h + 4), dim3(WARP, 8), 0, s->stream>>>(k);
    TRY(cudaGetLastError());
    return SPX_OK;
}

spx_status fit(work &k, slot *s, spx_err *e)
{
    const unsigned warps = 8;
    no_rows_kernel<<<blocks((size_t)k.ccd_ny * k.lanes, 256), 256, 0, s->stream>>>(k);
    rows_kernel<<<blocks((size_t)k.n * k.lanes, 128), 128, 0, s->stream>>>(k);
    chi2_kernel<<<dim3(blocks(k.wide, 128), (unsigned)k.ccd_ny, k.nbundle), 128, 0, s->stream>>>(k);
    const size_t groups = (size_t)(k.nwave + GATHERED - 1) / GATHERED * k.lanes;
    gather_chi2_kernel<<<blocks(groups, warps), warps * WARP, 0, s->stream>>>(k);
    TRY(cudaGetLastError());
    return SPX_OK;
}

/* Fills the tables that the device needs of a piece of work, and says which rows of the output it has. */
void fill_tables(const spx_trace_plan *p, const spx_trace_bundle *list, work &k, tables &t, size_t *rows)
{
    const spx_extract_options *o = p->job->o;
    *rows = 0;
    k.row0 = INT_MAX;
    for (int b = 0; b < k.nbundle; b++) {
        const spx_trace_bundle *from = &list[b];
        t.nf[b] = (int)from->nf;
        t.y0[b] = (int)from->y0;
        t.y1[b] = (int)from->y1;
        t.x0[b] = (int)from->wx0;
        memcpy(t.known + (size_t)b * k.n * k.nl, from->state, k.n * from->nf);
        for (int f = 0; f < k.nl; f++) {
            const size_t fibre = from->fibre0 + (size_t)f;
            const bool there = (size_t)f < from->nf, kept = there && fibre >= o->first && fibre < o->first + o->nspec;
            t.fibre[b * k.nl + f] = there ? (int)fibre : -1;
            t.wanted[b * k.nl + f] = kept ? (int)(fibre - o->first) : -1;
            if (kept) {
                k.row0 = (int)(fibre - o->first) < k.row0 ? (int)(fibre - o->first) : k.row0;
                (*rows)++;
            }
        }
    }
}

/* Transfers through page-locked memory, in chunks: host threads fill or empty one while the device moves others. */
void copy_on_host(char *to, const char *from, size_t n, int nthreads)
{
    const long nblock = (long)((n + BLOCK_BYTES - 1) / BLOCK_BYTES);
#pragma omp parallel for num_threads(nthreads) schedule(static)
    for (long i = 0; i < nblock; i++) {
        const size_t at = (size_t)i * BLOCK_BYTES;
        memcpy(to + at, from + at, n - at < BLOCK_BYTES ? n - at : (size_t)BLOCK_BYTES);
    }
}

/* The staging memory of all slots, before any of them needs it. */
spx_status push(context *c, const void *to, const void *from, size_t n, int *turn, int nthreads, spx_err *e)
{
    for (size_t at = 0; at < n; at += CHUNK_BYTES, *turn = (*turn + 1) % (SLOTS * CHUNKS)) {
        const size_t part = n - at < CHUNK_BYTES ? n - at : (size_t)CHUNK_BYTES;
        slot *s = &c->slots[*turn % SLOTS];
        char *chunk = s->staging + (size_t)(*turn / SLOTS) * CHUNK_BYTES;
        cudaEvent_t empty = s->chunk[*turn / SLOTS];
        TRY(cudaEventSynchronize(empty));
        copy_on_host(chunk, (const char *)from + at, part, nthreads);
        TRY(cudaMemcpyAsync((char *)to + at, chunk, part, cudaMemcpyHostToDevice, c->upload));
        TRY(cudaEventRecord(empty, c->upload));
    }
    return SPX_OK;
}

spx_status pull(slot *s, void *to, const void *from, size_t n, int nthreads, spx_err *e)
{
    const size_t nchunk = (n + CHUNK_BYTES - 1) / CHUNK_BYTES;
    for (size_t i = 0; i < nchunk + CHUNKS - 1; i++) {
        if (i < nchunk) {
            const size_t at = i * CHUNK_BYTES, part = n - at < CHUNK_BYTES ? n - at : (size_t)CHUNK_BYTES;
            TRY(cudaMemcpyAsync(s->staging + i % CHUNKS * CHUNK_BYTES, (const char *)from + at, part,
                                cudaMemcpyDeviceToHost, s->stream));
            TRY(cudaEventRecord(s->chunk[i % CHUNKS], s->stream));
        }
        if (i + 1 >= CHUNKS) {
            const size_t old = i + 1 - CHUNKS, at = old * CHUNK_BYTES;
            if (old >= nchunk)
                continue;
            const size_t part = n - at < CHUNK_BYTES ? n - at : (size_t)CHUNK_BYTES;
            TRY(cudaEventSynchronize(s->chunk[old % CHUNKS]));
            copy_on_host((char *)to + at, s->staging + old % CHUNKS * CHUNK_BYTES, part, nthreads);
        }
    }
    return SPX_OK;
}

/* What the pieces of a call share. */
struct call {
    const spx_trace_plan *p;
    const spx_trace_bundle *list;
    size_t nbundle;
    int per_piece, nslot, nthreads;
    work k;
    spx_frame *out;
    int *why_host;
    context *c;
    char *room[SLOTS]; /* memory of a slot, and its size */
    size_t each;
    std::shared_future<bool> image; /* true: on its way, image_there will say when it is there */
};

/* One piece of work: bundles first .. first + k.nbundle - 1. why_host[b] gets the reasons to solve bundle b on the CPU.
 */
spx_status piece(const call &job, int which, size_t first, size_t *nospot, spx_err *e)
{
    const spx_trace_plan *p = job.p;
    slot *s = &job.c->slots[which];
    spx_frame *out = job.out;
    work k = job.k;
    k.nbundle = (int)(job.nbundle - first < (size_t)job.per_piece ? job.nbundle - first : (size_t)job.per_piece);
    k.lanes = k.nbundle * k.nl;
    const size_t bins = (size_t)k.n * k.lanes;
    size_t rows;
    arena page_locked = {s->table, 0, s->ntable}, m = {job.room[which], 0, job.each};
    tables t(page_locked, k);
    fill_tables(p, job.list + first, k, t, &rows);
    lay_out(m, k);
    char *block = m.take<char>((size_t)((char *)t.need - (char *)t.fibre));
    const auto on_device = [&](const void *host) { return block + ((const char *)host - (const char *)t.fibre); };
    k.fibre = (const int *)on_device(t.fibre);
    k.wanted = (const int *)on_device(t.wanted);
    k.nf = (const int *)on_device(t.nf);
    k.y0 = (const int *)on_device(t.y0);
    k.y1 = (const int *)on_device(t.y1);
    k.x0 = (const int *)on_device(t.x0);
    k.known = (const unsigned char *)on_device(t.known);
    PASS(put(s, block, (const char *)t.fibre, (size_t)((char *)t.need - (char *)t.fibre), e));
    PASS(zero(s, k.bad, sizeof(int) * (k.nbundle + 1), e));
    for (double *v : {k.x, k.r, k.z, k.q, k.d})
        PASS(zero(s, v, sizeof(double) * bins, e));
    PASS(spots(k, s, e));
    if (!job.image.get())
        return SPX_EDEVICE; /* the one who sends it says why */
    TRY(cudaStreamWaitEvent(s->stream, job.c->image_there, 0));
    TRY(cudaEventRecord(s->step[0], s->stream));
    for (int step = 0; step < STEPS; step++) {
        switch (step) {
        case 0:
            PASS(equations(k, job.c->shared, s, e));
            break;
        case 1:
            PASS(solve(k, s, t.scalar, t.bad, e));
            break;
        case 2:
            PASS(marginal(k, m, s, e));
            break;
        case 3:
            PASS(root(k, m, t, job.c, s, e));
            break;
        case 4:
            PASS(fit(k, s, e));
            break;
        }
        TRY(cudaEventRecord(s->step[step + 1], s->stream));
    }
    const size_t nw = p->job->nwave, row0 = (size_t)k.row0, ndiag = out->arm.ndiag;
    const size_t bytes = sizeof(double) * rows * nw;
    unsigned char *state = t.known; /* [n][lanes] now, in the same room */
    PASS(get(s, t.bad, k.bad, k.nbundle, e));
    PASS(get(s, state, k.state, bins, e));
    PASS(pull(s, out->arm.flux + row0 * nw, k.out_flux, bytes, job.nthreads, e));
    PASS(pull(s, out->arm.ivar + row0 * nw, k.out_ivar, bytes, job.nthreads, e));
    PASS(pull(s, out->chi2pix + row0 * nw, k.out_chi2, bytes, job.nthreads, e));
    PASS(pull(s, out->pixmask_fraction + row0 * nw, k.out_seen, bytes, job.nthreads, e));
    PASS(pull(s, out->arm.resolution + row0 * nw * ndiag, k.out_res, bytes * ndiag, job.nthreads, e));
    TRY(cudaStreamSynchronize(s->stream));
    for (int step = 0; step < STEPS; step++) {
        float ms = 0.0f;
        TRY(cudaEventElapsedTime(&ms, s->step[step], s->step[step + 1]));
        s->seconds[step] += 1e-3 * (double)ms;
    }
    int *why_host = job.why_host + first;
    for (int b = 0; b < k.nbundle; b++) {
        /* the last word: did the iteration converge? */
        why_host[b] = t.bad[b] | (t.scalar[4 * b] > t.scalar[4 * b + 3] ? BAD_SOLVE : 0);
        for (size_t j = 0; j < nw && !why_host[b]; j++)
            for (int f = 0; f < k.nl; f++)
                *nospot += t.wanted[b * k.nl + f] >= 0 &&
                           state[(j + p->pad) * k.lanes + (size_t)b * k.nl + f] == SPX_TRACE_NOSPOT;
        spx_progress_step(p->job->o->progress, why_host[b] ? 0 : job.list[first + (size_t)b].nf);
    }
    return SPX_OK;
}

/* Bundles that the device leaves to the CPU. */
spx_status on_host(const spx_trace_plan *p, spx_trace_bundle *list, size_t nbundle, const int *why_host, spx_frame *out,
                   spx_extract_counts *counts, spx_err *e)
{
    const int nthreads = spx_extract_threads(p->job->o);
    const size_t nw = p->job->nwave, ndiag = out->arm.ndiag;
    spx_trace_rooms *rooms = (spx_trace_rooms *)spx_alloc2(nthreads, 1, sizeof *rooms, e);
    spx_trace_tally *tally = (spx_trace_tally *)spx_alloc2(nthreads, 1, sizeof *tally, e);
    int bad = !rooms || !tally;
    if (!bad) {
#pragma omp parallel for schedule(dynamic) num_threads(nthreads) reduction(| : bad)
        for (size_t i = 0; i < nbundle; i++) {
            if (!why_host[i])
                continue;
            const spx_extract_options *o = p->job->o;
            for (size_t f = list[i].fibre0; f < list[i].fibre0 + list[i].nf; f++)
                if (f >= o->first && f < o->first + o->nspec) {
                    const size_t at = (f - o->first) * nw;
                    memset(out->arm.flux + at, 0, nw * sizeof(double));
                    memset(out->arm.ivar + at, 0, nw * sizeof(double));
                    memset(out->chi2pix + at, 0, nw * sizeof(double));
                    memset(out->arm.resolution + at * ndiag, 0, nw * ndiag * sizeof(double));
                }
            const int t = omp_get_thread_num();
            bad |= spx_trace_extract_bundle(p, &list[i], &rooms[t], out, &tally[t], NULL) != SPX_OK;
        }
    }
    for (int t = 0; rooms && tally && t < nthreads; t++) {
        spx_trace_rooms_free(&rooms[t]);
        counts->npatch_failed += tally[t].failed;
        counts->npatch_regularised += tally[t].regularised;
        counts->nbin_nospot += tally[t].nospot;
        for (int step = 0; step < SPX_EXTRACT_STEPS; step++)
            counts->seconds[step] += tally[t].seconds[step];
    }
    spx_free(rooms);
    spx_free(tally);
    return bad ? spx_fail(e, SPX_EIO, "out of memory: use fewer threads") : SPX_OK;
}

/* ---- contexts ---- */

void free_context(context *c)
{
    (void)cudaFree(c->room);
    for (slot &s : c->slots) {
        (void)cudaFreeHost(s.staging);
        (void)cudaFreeHost(s.table);
        for (cudaEvent_t v : s.chunk)
            (void)(v && cudaEventDestroy(v));
        for (cudaEvent_t v : s.step)
            (void)(v && cudaEventDestroy(v));
        for (cudaEvent_t v : s.joined)
            (void)(v && cudaEventDestroy(v));
        (void)(s.forked && cudaEventDestroy(s.forked));
        for (cudaStream_t v : s.beside)
            (void)(v && cudaStreamDestroy(v));
        (void)(s.stream && cudaStreamDestroy(s.stream));
    }
    (void)(c->image_there && cudaEventDestroy(c->image_there));
    (void)(c->upload && cudaStreamDestroy(c->upload));
    delete c;
}

/* Streams, events and staging memory of a new context. */
spx_status fill_context(context *c, int device, spx_err *e)
{
    const auto stream = [&](cudaStream_t *to, int priority) {
        return cudaStreamCreateWithPriority(to, cudaStreamNonBlocking, priority);
    };
    const auto event = [&](cudaEvent_t *to) { return cudaEventCreateWithFlags(to, cudaEventDisableTiming); };
    int low, high, shared;
    TRY(cudaDeviceGetAttribute(&shared, cudaDevAttrMaxSharedMemoryPerBlockOptin, device));
    TRY(cudaDeviceGetStreamPriorityRange(&low, &high));
    c->shared = (size_t)shared;
    TRY(cudaFuncSetAttribute(root_kernel<0>, cudaFuncAttributeMaxDynamicSharedMemorySize, shared));
    TRY(cudaFuncSetAttribute(root_kernel<9>, cudaFuncAttributeMaxDynamicSharedMemorySize, shared));
    TRY(cudaFuncSetAttribute(overlaps_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared));
    TRY(cudaFuncSetAttribute(spots_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared));
    TRY(stream(&c->upload, high));
    TRY(event(&c->image_there));
    for (int i = 0; i < SLOTS; i++) {
        /* the first piece goes ahead, so that its results travel while the others compute */
        const int priority = high + i < low ? high + i : low;
        slot *s = &c->slots[i];
        TRY(stream(&s->stream, priority));
        TRY(event(&s->forked));
        for (int j = 0; j < BESIDE; j++) {
            TRY(stream(&s->beside[j], priority));
            TRY(event(&s->joined[j]));
        }
        for (cudaEvent_t &v : s->chunk)
            TRY(event(&v));
        for (cudaEvent_t &v : s->step)
            TRY(cudaEventCreate(&v));
        TRY(cudaMallocHost((void **)&s->staging, (size_t)CHUNKS * CHUNK_BYTES));
    }
    return SPX_OK;
}

/* A context for a call: one that is idle, or a new one. Alone: when no other call is under way, and without the memory
 * of those that were. */
spx_status borrow(pool *all, int device, bool alone, context **c, spx_err *e)
{
    std::unique_lock<std::mutex> lock(all->lock);
    if (alone) {
        all->given_back.wait(lock, [&]() { return all->busy == 0; });
        for (context *old : all->idle)
            free_context(old);
        all->idle.clear();
    }
    all->busy++;
    if (!all->idle.empty()) {
        *c = all->idle.back();
        all->idle.pop_back();
        return SPX_OK;
    }
    lock.unlock();
    *c = new (std::nothrow) context();
    return *c ? fill_context(*c, device, e) : spx_fail(e, SPX_EIO, "out of memory");
}

void give_back(pool *all, context *c, bool keep)
{
    const std::lock_guard<std::mutex> lock(all->lock);
    if (c && keep)
        all->idle.push_back(c);
    else if (c)
        free_context(c);
    all->busy--;
    all->given_back.notify_all();
}

/* Page-locked tables for pieces of a size. */
spx_status need_tables(context *c, const work &k, int nslot, spx_err *e)
{
    arena count = {NULL, 0, 0};
    const tables t(count, k);
    (void)t;
    for (int i = 0; i < nslot; i++) {
        slot *s = &c->slots[i];
        if (s->ntable >= count.used)
            continue;
        (void)cudaFreeHost(s->table);
        s->table = NULL;
        s->ntable = 0;
        TRY(cudaMallocHost((void **)&s->table, count.used));
        s->ntable = count.used;
    }
    return SPX_OK;
}

/* Bytes that a piece of `count` bundles needs at least, and those with which nothing has to wait for memory. */
void piece_size(const work &k, int count, size_t *least, size_t *best)
{
    work w = k;
    arena m = {NULL, 0, 0};
    w.nbundle = count;
    w.lanes = count * w.nl;
    lay_out(m, w);
    m.take<char>((size_t)w.nbundle * (w.n * (size_t)w.nl + 4096) + 8192);
    const size_t warps = (size_t)(w.lanes / WARP + 1), columns = (size_t)w.n * w.lanes * w.rows;
    const size_t lists = 4 * (size_t)w.lanes * SPX_MAX_POLES;
    const int bands = w.band < WARP ? 9 : w.band;
    cut(w, LONG, WARP - 1);
    const size_t one = task_size(w, bands) > task_size(w, 9) ? task_size(w, bands) : task_size(w, 9);
    const size_t line = SPX_MAX_POLES * wide_size(w);
    size_t few = one > line ? one : line, all = warps * 16 * task_size(w, 9) * 3 / 2;
    for (size_t v : {columns, bounds_size(w, 9), bounds_size(w, bands)})
        few = v > few ? v : few;
    all = few > all ? few : all;
    *least = m.used + (few + lists) * sizeof(double) + 16384;
    *best = m.used + (all + lists) * sizeof(double) + 16384;
}

/* Sizes of the pieces, and memory for them, within `limit` bytes; first what all pieces share. */
spx_status need_room(call &job, size_t shared, size_t limit, spx_err *e)
{
    context *c = job.c;
    const int nbundle = (int)job.nbundle;
    size_t least = 0, best = 0, size = 0;
    int nslot = SLOTS, count = 0;
    for (;;) { /* as many pieces as slots; fewer slots, then smaller pieces, where memory is short */
        count = count == 0 || nslot > 1 ? (nbundle + nslot - 1) / nslot : count / 2;
        c->starved = count == 0;
        if (count == 0)
            return spx_fail(e, SPX_EDEVICE,
                            "cuda: one bundle needs %.2f GB on the device, %.2f GB may be used: give more "
                            "(--max-device-mem), or use --device cpu",
                            1e-9 * (double)(shared + least), 1e-9 * (double)limit);
        piece_size(job.k, count, &least, &best);
        if (shared + nslot * least <= limit)
            break;
        if (nslot > 1) {
            nslot /= 2;
            if (nslot == 1)
                count = nbundle;
            continue;
        }
    }
    nslot = (nbundle + count - 1) / count < nslot ? (nbundle + count - 1) / count : nslot;
    job.per_piece = count;
    job.nslot = nslot;
    job.each = (limit - shared) / nslot / 256 * 256;
    job.each = job.each < best ? job.each : best / 256 * 256 + 256;
    size = shared + nslot * job.each;
    if (c->size < size || c->size > limit) {
        (void)cudaFree(c->room);
        c->room = NULL;
        c->size = 0;
        c->starved = true;
        TRY(cudaMalloc((void **)&c->room, size));
        c->starved = false;
        c->size = size;
    }
    for (int i = 0; i < nslot; i++)
        job.room[i] = c->room + shared + i * job.each;
    return SPX_OK;
}

spx_status run_in(context *c, int device, const spx_trace_plan *p, const spx_trace_bundle *list, size_t nbundle,
                  spx_frame *out, size_t *nospot, int *why_host, spx_extract_cuda_times *times, spx_err *e)
{
    const spx_extract_job *job = p->job;
    const spx_psf *psf = job->psf;
    call all = {};
    all.p = p;
    all.list = list;
    all.nbundle = nbundle;
    all.out = out;
    all.why_host = why_host;
    all.c = c;
    PASS(common_geometry(p, list, nbundle, all.k, e));
    size_t free_bytes, total_bytes;
    TRY(cudaMemGetInfo(&free_bytes, &total_bytes));
    size_t limit = (free_bytes + c->size) / 10 * 9;
    if (job->o->max_device_mem != 0 && job->o->max_device_mem < limit)
        limit = job->o->max_device_mem;

    /* what all pieces share */
    const size_t npix = job->image->nx * job->image->ny, ncoeff = psf->nspec * psf->ndeg * p->npar;
    const auto share = [&](arena &m, work &k) {
        k.weight = m.take<float>(npix);
        k.data = m.take<float>(npix);
        k.coeff = m.take<double>(ncoeff);
        k.bp = m.take<double>(p->nbin * psf->ndeg);
        k.xcoef = m.take<double>(psf->nspec * psf->x.ncoef);
        k.ycoef = m.take<double>(psf->nspec * psf->y.ncoef);
        k.bx = m.take<double>(p->nbin * psf->x.ncoef);
        k.by = m.take<double>(p->nbin * psf->y.ncoef);
    };
    arena shared = {NULL, 0, 0};
    share(shared, all.k);
    PASS(need_room(all, shared.used, limit, e));
    work piece_work = all.k;
    piece_work.nbundle = all.per_piece;
    piece_work.lanes = all.per_piece * all.k.nl;
    PASS(need_tables(c, piece_work, all.nslot, e));
    shared = {c->room, 0, c->size};
    share(shared, all.k);
    const int nthreads = spx_extract_threads(job->o);
    all.nthreads = nthreads > all.nslot ? nthreads / all.nslot : 1;
    for (slot &s : c->slots)
        memset(s.seconds, 0, sizeof s.seconds);
    const double begin = omp_get_wtime();
    int turn = 0;
    const work &k = all.k;
    PASS(push(c, k.coeff, p->coeff, ncoeff * sizeof(double), &turn, nthreads, e));
    PASS(push(c, k.bp, p->bp, p->nbin * psf->ndeg * sizeof(double), &turn, nthreads, e));
    PASS(push(c, k.xcoef, psf->x.coef, psf->nspec * psf->x.ncoef * sizeof(double), &turn, nthreads, e));
    PASS(push(c, k.ycoef, psf->y.coef, psf->nspec * psf->y.ncoef * sizeof(double), &turn, nthreads, e));
    PASS(push(c, k.bx, p->bx, p->nbin * psf->x.ncoef * sizeof(double), &turn, nthreads, e));
    PASS(push(c, k.by, p->by, p->nbin * psf->y.ncoef * sizeof(double), &turn, nthreads, e));
    TRY(cudaStreamSynchronize(c->upload));

    std::promise<bool> image;
    all.image = image.get_future().share();
    spx_err errors[SLOTS] = {}, *mine = errors;
    spx_status status[SLOTS] = {SPX_OK, SPX_OK, SPX_OK, SPX_OK};
    size_t counted[SLOTS] = {0};
    const auto work_of = [&](int which) {
        status[which] = cudaSetDevice(device) == cudaSuccess ? SPX_OK : SPX_EDEVICE;
        for (size_t first = (size_t)which * all.per_piece; first < nbundle && status[which] == SPX_OK;
             first += (size_t)all.nslot * all.per_piece)
            status[which] = piece(all, which, first, &counted[which], &mine[which]);
    };
    std::vector<std::thread> slots;
    spx_status st = SPX_OK;
    try {
        for (int i = 0; i < all.nslot; i++)
            slots.emplace_back(work_of, i);
    } catch (const std::exception &x) {
        st = spx_fail(e, SPX_EIO, "threads of the host: %s", x.what());
    }
    const auto send = [&]() {
        PASS(push(c, k.weight, job->weight, npix * sizeof(float), &turn, nthreads, e));
        PASS(push(c, k.data, job->image->data, npix * sizeof(float), &turn, nthreads, e));
        TRY(cudaEventRecord(c->image_there, c->upload));
        return SPX_OK;
    };
    if (st == SPX_OK)
        st = send();
    image.set_value(st == SPX_OK);
    for (std::thread &t : slots)
        t.join();
    for (int i = 0; i < all.nslot && st == SPX_OK; i++)
        if (status[i] != SPX_OK)
            st = spx_fail(e, status[i], "%s", errors[i].msg);
    times->seconds = omp_get_wtime() - begin;
    for (int i = 0; i < all.nslot; i++) {
        *nospot += counted[i];
        for (int step = 0; step < STEPS; step++)
            times->step[step] += c->slots[i].seconds[step];
    }
    return st;
}

/* With a context of the device's. Where memory is out, once more, when no other call has some of it. */
spx_status run(const spx_extract_cuda *dev, const spx_trace_plan *p, const spx_trace_bundle *list, size_t nbundle,
               spx_frame *out, size_t *nospot, int *why_host, spx_extract_cuda_times *times, spx_err *e)
{
    pool *all = (pool *)dev->pool;
    TRY(cudaSetDevice(dev->device));
    for (bool alone = false;; alone = true) {
        context *c = NULL;
        spx_status st = borrow(all, dev->device, alone, &c, e);
        if (st == SPX_OK)
            st = run_in(c, dev->device, p, list, nbundle, out, nospot, why_host, times, e);
        const bool again = st != SPX_OK && c && c->starved && !alone;
        if (st != SPX_OK)
            (void)cudaDeviceSynchronize();
        give_back(all, c, st == SPX_OK);
        if (!again)
            return st;
        *e = {};
    }
}

/* The pages of new memory come when it is written to, and then take longer than what is copied there. These threads
 * fetch them meanwhile; without a word of the contents, so that it does not matter who comes first, nor whether the
 * system can do it. */
class prefetch
{
  public:
    prefetch(const spx_frame *f, size_t nthreads)
    {
#ifdef MADV_POPULATE_WRITE
        const size_t n = f->nspec * f->arm.nwave * sizeof(double), page = (size_t)sysconf(_SC_PAGESIZE);
        const auto part = [=](size_t i) {
            const auto fetch = [=](double *at, size_t bytes) {
                const size_t p0 = (size_t)at + bytes * i / nthreads, p1 = (size_t)at + bytes * (i + 1) / nthreads;
                const size_t from = p0 / page * page;
                (void)madvise((void *)from, p1 - from, MADV_POPULATE_WRITE);
            };
            for (double *v : {f->arm.flux, f->arm.ivar, f->chi2pix, f->pixmask_fraction})
                fetch(v, n);
            fetch(f->arm.resolution, n * f->arm.ndiag);
        };
        try {
            for (size_t i = 0; i < nthreads; i++)
                threads_.emplace_back(part, i);
        } catch (const std::exception &) {
            return; /* it goes without them */
        }
#else
        (void)f;
        (void)nthreads;
#endif
    }
    prefetch(const prefetch &) = delete;
    prefetch &operator=(const prefetch &) = delete;
    ~prefetch()
    {
        for (std::thread &t : threads_)
            t.join();
    }

  private:
    std::vector<std::thread> threads_;
};

} // namespace

extern "C" int spx_extract_cuda_count(void)
{
    int count = 0;
    if (cudaGetDeviceCount(&count) != cudaSuccess)
        (void)cudaGetLastError();
    return count;
}

extern "C" spx_status spx_extract_cuda_open(spx_extract_cuda *dev, int device, spx_err *e)
{
    dev->device = device;
    dev->pool = new (std::nothrow) pool;
    return dev->pool ? SPX_OK : spx_fail(e, SPX_EIO, "out of memory");
}

extern "C" void spx_extract_cuda_free(spx_extract_cuda *dev)
{
    pool *all = (pool *)dev->pool;
    if (!all)
        return;
    if (cudaSetDevice(dev->device) == cudaSuccess)
        for (context *c : all->idle)
            free_context(c);
    delete all;
    dev->pool = NULL;
}

extern "C" spx_status spx_extract_trace_cuda(const spx_extract_cuda *dev, size_t ndev, const spx_image *image,
                                             const spx_psf *psf, const spx_extract_options *o, spx_frame *out,
                                             spx_extract_counts *counts, spx_extract_cuda_times *times, spx_err *e)
{
    if (o->method != SPX_METHOD_TRACE)
        return spx_fail(e, SPX_EUSAGE, "patches are solved on the CPU only: use --method trace, or --device cpu");
    spx_extract_job job;
    spx_trace_plan plan = {};
    spx_trace_bundle *list = NULL;
    int *why_host = NULL;
    size_t nbundle = 0;
    memset(times, 0, sizeof *times);
    spx_status st = spx_extract_begin(image, psf, o, &job, out, counts, e);
    if (st == SPX_OK)
        st = spx_trace_plan_make(&job, &plan, e);
    if (st == SPX_OK) {
        const size_t first = o->first / o->bundle_size, last = (o->first + o->nspec - 1) / o->bundle_size;
        nbundle = last - first + 1;
        list = (spx_trace_bundle *)spx_alloc2(nbundle, 1, sizeof *list, e);
        why_host = (int *)spx_alloc2(nbundle, 1, sizeof *why_host, e);
        st = list && why_host ? spx_trace_bundles_make(&plan, nbundle, list, spx_extract_threads(o), e) : SPX_EIO;
    }
    counts->npatch = o->nspec;
    if (st == SPX_OK) {
        const std::unique_ptr<prefetch> pages(new (std::nothrow)
                                                  prefetch(out, (size_t)(spx_extract_threads(o) + 3) / 4));
        /* bundles are shared out among the devices, a host thread each */
        struct part {
            size_t nospot;
            spx_extract_cuda_times times;
            spx_status st;
            spx_err error;
        };
        try {
            std::vector<part> parts(ndev);
            const auto share = [&](size_t d) {
                const size_t b0 = nbundle * d / ndev, b1 = nbundle * (d + 1) / ndev;
                part &mine = parts[d];
                if (b0 < b1)
                    mine.st = run(&dev[d], &plan, list + b0, b1 - b0, out, &mine.nospot, why_host + b0, &mine.times,
                                  &mine.error);
            };
            std::vector<std::thread> others;
            for (size_t d = 1; d < ndev; d++)
                others.emplace_back(share, d);
            share(0);
            for (std::thread &t : others)
                t.join();
            for (const part &each : parts) {
                counts->nbin_nospot += each.nospot;
                times->seconds = fmax(times->seconds, each.times.seconds);
                for (int i = 0; i < STEPS; i++)
                    times->step[i] += each.times.step[i];
                if (st == SPX_OK && each.st != SPX_OK)
                    st = spx_fail(e, each.st, "%s", each.error.msg);
            }
        } catch (const std::exception &x) {
            st = spx_fail(e, SPX_EIO, "threads of the host: %s", x.what());
        }
        counts->device_seconds = times->seconds;
    }
    for (size_t i = 0; i < nbundle && why_host; i++)
        times->nbundle_host += why_host[i] != 0;
    if (st == SPX_OK && times->nbundle_host > 0)
        st = on_host(&plan, list, nbundle, why_host, out, counts, e);
    if (st == SPX_OK)
        st = spx_extract_end(&job, out, counts, e);
    for (size_t i = 0; list && i < nbundle; i++)
        spx_trace_bundle_free(&list[i]);
    spx_free(list);
    spx_free(why_host);
    spx_trace_plan_free(&plan);
    spx_extract_job_free(&job);
    return st;
}
