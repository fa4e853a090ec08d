/* Provides what the steps of whole-trace extraction on a CUDA device share. Each step is a file, kernels first, then
 * the host's function that launches them:
 *
 *     spots.cuh         places and spots of all bins
 *     normal.cuh        normal matrix of overlapping spots, regularisation
 *     band.cuh          banded recurrences along a trace, in segments
 *     cg.cuh            deconvolved flux
 *     reject.cuh        search for cosmic-ray hits
 *     schur.cuh         information of each fibre with its neighbours marginalised
 *     sqrt_poles.cuh    bounds of the eigenvalues, poles of the square root
 *     sqrt_wide.cuh     the same, and the root, of traces with wide bands: a warp each
 *     sqrt.cuh          square root: flux, ivar, resolution
 *     drop_scale.cuh    how narrow bins are, and the scale of the drop tolerances for that
 *     band_block.cuh    bands of any width, a block each: for
 *     coupled.cuh       information of fibres in bundles that are strongly coupled, and
 *     sqrt_broad.cuh    bounds and root of bands that are wider than a warp
 *     chi2.cuh          model and chi^2
 *     weights.cuh       weights of the pixels, and whether there is anything to extract
 *     beyond_rows.cuh   light of fibres by rows, and what rows tell of a background
 *     beyond_tail.cuh   images of tails
 *     beyond_find.cuh   light beyond the spots by these, taken off the image
 *     hook_frame.cuh    a frame that stays on the device for a hook
 *     staging.cuh       host threads that copy between pageable and page-locked memory
 *     contexts.cuh      contexts of calls on a device, and their scheduling
 *     transfer.cuh      a call's image to the device, and its results to the host
 *     plan.cuh          geometry, tables and memory of pieces
 *     extract_cuda.cu   pieces of a frame, devices
 *
 * All bundles of a piece of work stand side by side: a row holds one value a lane, nl lanes a bundle, lanes total; lane
 * = bundle * nl + fibre. Every sum has a fixed order, so a result is the same when repeated.
 *
 * Private to extract_cuda.cu, which is the only one to include any of these. */
#ifndef SPX_EXTRACT_CUDA_PARAMS_CUH
#define SPX_EXTRACT_CUDA_PARAMS_CUH

#include <cuda_pipeline.h>
#include <cuda_runtime.h>

#include <climits>
#include <cmath>
#include <cstring>

#include "cuda/memory.cuh"
#include "cuda/reduce.cuh"
#include "cuda/stream.cuh"
#include "cuda/wait.cuh"

/* The host's part is C. */
extern "C" {
#include "extract/trace/trace.h"
}
#include "psf/psf_math.h"

namespace
{

using spx::arena;
using spx::blocks;
using spx::FULL;
using spx::WARP;
using spx::warp_sum;

enum {
    REACH = SPX_TRACE_MAX_REACH, /* neighbours of a fibre that a table has room for */
    TAIL = SPX_TRACE_TAIL,
    MULTIPLY_THREADS = 512, /* of a block of the product with M */
    MOST_STEPS = 500,       /* of conjugate gradients */
    SHORT = 64,             /* bins of a segment of a recurrence with one thread a lane, */
    LONG = 128,             /* and of the square root */
    BOUNDS = 64,            /* of the bounds of eigenvalues */
    HALO = 8,               /* bandwidths that a segment is begun early, */
    WIDE_HALO = 96,         /* bins where these are many; */
    BOUNDS_HALO = 4,        /* the same for bounds, of which three digits are enough */
    WIDE_BOUNDS_HALO = 64,
    EXTRA = 16,      /* bins beyond a segment whose results are compared with the next one's */
    WIDER = 12,      /* half-bandwidth that most segments beside masks are content with: there are loops for it */
    WIDEST = 29,     /* half-bandwidth that a warp can work on together, a lane a diagonal */
    SCHUR_BINS = 32, /* bins of which it is known together what neighbours take off */
    NEED = 64,       /* bins that share one half-bandwidth that is needed */
    NORMAL_FAR = 10, /* how far edges of pixels are looked at, sigma */
    NORMALS = 16 * NORMAL_FAR + 1
};

/* Bins first .. last - 1 of a lane, worked on from begin to end - 1, with half-bandwidth mm. */
struct item {
    int column, mm, first, last, begin, end;
};

/* Items of a kind, and memory for them. Those that a block works on are a group; a task is a group, and a pole where
 * each has a warp. */
struct batch {
    const item *at;
    int count;        /* items */
    int lanes;        /* of an item */
    int mm;           /* largest half-bandwidth */
    int rows;         /* most bins that are worked on; by poles side by side from each end up to the middle */
    int span;         /* most bins that are written, EXTRA beyond the last included */
    int pole0, npole; /* poles pole0 .. pole0 + npole - 1, where there are as many */
    int in_shared;    /* the window is in shared memory */
    double *lower;    /* [task][rows][mm + 1][warp] factors; with poles side by side right-hand sides, too, of the mm
                       * bins in the middle as well, for each warp of the block */
    double *rhs;      /* [task][2][rows][warp] right-hand sides; one instead of two for bounds */
    double *share;    /* [task][span][h + 3] what a pole with a warp adds to the diagonals of Q, to Q 1 and to Q x */
    double *window;   /* [task][mm + 1][mm + 1][warp] last columns of a factor of any bandwidth */
};

/* ---- what kernels need, by job ---- */

/* Numbers of bins, lanes and overlaps: the union of all bundles of a call, and the size of a piece. */
struct geometry {
    int n, pad, nwave;                 /* bins of a trace, padding, bins of the output */
    int nbundle, nl, lanes;            /* lanes of a bundle, of all */
    int nx, ny, npix, degx, degy;      /* spot */
    int npar, ndeg, nxc, nyc;          /* PSF: parameters, their coefficients, those of the traces */
    int reach, depth, m, band, h;      /* see spx_trace_bundle; m = hi[0]; h = hsizey */
    int loop[SPX_TRACE_MOST_BAND + 1]; /* half-bandwidth that is computed for one that is needed */
    int nelem, lo[REACH + 1], hi[REACH + 1], first[REACH + 1];
    int half;                  /* bins on each side that the regularisation takes its largest weight from */
    int tail, rows;            /* bins that a column of V goes on beyond the overlap, and its rows, at most */
    int wide;                  /* most columns of the image that a bundle reads */
    int tile_rows, row, ntile; /* rows of an image's tile, their length, and the number of tiles */
    int nshare;                /* tiles that a spot may touch */
};

/* Segments of a recurrence: their bins, number, and the bins that they begin early. */
struct segmentation {
    int seg, nseg, halo;
};

/* Options of the call. */
struct settings {
    double tolerance, drop_tolerance, psf_error, regularize;
    double least_scale;    /* spx_trace_least_scale(), */
    double rounding_scale; /* spx_trace_rounding() */
    double root_error;     /* of the square root by its poles, relative */
    int coupled;           /* bundles are strongly coupled: see coupled.cuh */
    double reject;         /* 0, or errors above the model from which on pixels are hits */
    int light_wanted;      /* whether this call makes the light of the model's variance */
    int model_variance;    /* whether weights are made anew, from the light of a model and the read noise */
};

/* Pixels. */
struct ccd {
    long ccd_nx, ccd_ny;
    const float *weight, *data; /* [ccd_ny][ccd_nx] */
    const float *readnoise;     /* the same, */
    long long *light;           /* and light of smoothed spectra, in LIGHT_UNITs; NULL: the variance stays */
};

/* PSF at the bins, as in the plan; shared by frames of a layout. */
struct psf_tables {
    const double *coeff, *bp;
    const double *xcoef, *ycoef; /* [nspec][nxc], [nyc] traces */
    const double *bx, *by;
};

/* Bundles of a piece; see struct tables, the host's. */
struct bundle_tables {
    const int *fibre;               /* [lanes] fibre of the PSF, -1: none */
    const int *nf;                  /* [nbundle] fibres of a bundle */
    const unsigned char *bin_state; /* [nbundle][n nl] states as the bundles have them, [n][nf] */
    const int *y0, *y1, *x0;        /* [nbundle] rows in use, first column */
    const int *wanted;              /* [lanes] row of the output, -1: none */
    const int *others;              /* [nbundle] rows before a bundle's that are not of this piece */
};

/* Arrays that the steps leave to each other. */
struct workspace {
    spx_bin_geometry *at;        /* [n][lanes] */
    unsigned char *state;        /* [n][lanes] */
    double2 *normal;             /* [NORMALS] half an error function and the Gaussian at every eighth */
    double *spot;                /* [n][lanes][npix] */
    double *mat;                 /* [n][nelem][lanes] M: element (df, dk) at first[df] + dk - lo[df] */
    double *y, *w, *seen;        /* [n][lanes] A^T W p, A^T W 1 and the part of a spot on usable pixels */
    double *largest;             /* [n][nbundle] */
    double *around;              /* [n][nbundle] largest of the bins around */
    double *inverse;             /* [n][lanes] 1 / (diagonal of M + prior) */
    double *ldl;                 /* [n][m + 1][lanes] factors of the fibres' own blocks: 1/D, L */
    double *seam;                /* [nseg][m][m + 1][lanes] of the factors: what segments began with */
    int *torn;                   /* [1], behind `bad`: whether that differs from what it should be */
    double *scratch;             /* [nseg][seg + 2 halo][lanes] L^-1 r */
    double *x, *r, *z, *q, *d;   /* [n][lanes] flux, rest of y, P^-1 r, M d, direction of a step */
    double *part;                /* [nbundle][dot_parts()] of inner products */
    int *ready;                  /* [nbundle] how many of them are there */
    double *scalar;              /* [nbundle][SCALARS] of the iteration */
    double *v;                   /* [n][rows][lanes] columns of V, where they do not fit into a ring, */
    int *length;                 /* [n][lanes] and their rows */
    double *t[2];                /* [n][band + 1][lanes] Schur terms of the neighbour before, and after */
    double *within[2];           /* [n][lanes] of their diagonals: by rows of columns of V within the band, */
    double *early[2];            /* and without the last ones */
    double *taken;               /* [2][lanes] the largest of them in units of 1/Z: 0 where that is small */
    double *a;                   /* [n][band + 1][lanes] A_s */
    int *bad;                    /* [nbundle] reasons to leave a bundle to the CPU: BAD_... */
    int *need;                   /* [need_blocks()][lanes] half-bandwidth that NEED bins of a fibre need */
    int *schur_flags;            /* [schur_segments()][lanes] SCHUR_... of the terms */
    double *narrow;              /* [4][lanes] see narrow_kernel(), drop_scale_kernel(); rounding_kernel() */
    double *drop_scale;          /* [n][lanes] see SPX_TRACE_MAX_INVERSE; NULL where bundles are not coupled */
    double *bound;               /* [2][lanes] of the eigenvalues: norm of the inverse, largest */
    double *variance;            /* [n][lanes] Z: of the fibre's own block, then diagonal of A_s^-1 */
    int *redo;                   /* [nseg][lanes] whether segments of the square root do not fit together */
    int *npole;                  /* [lanes] poles of the square root */
    double *shift, *pole_weight; /* [SPX_MAX_POLES][lanes] */
    double *total;               /* [lanes] sum of the weights */
    double *window;              /* [m + 1][m + 1][lanes] factors of any bandwidth */
    double *sum;                 /* [n][h + 3][lanes] sums over the poles */
    double *over;                /* [nseg][EXTRA][h + 3][lanes] those that a segment has of bins of the next */
    int *tile_begin, *tile_end;  /* [ntile][lanes] first, and one past the last, bin that touches a tile */
    double *chi2;                /* [nshare][lanes][n] sums of the bins over these */
};

/* Rows of the output, as in the frame. */
struct outputs {
    double *out_flux, *out_ivar, *out_res, *out_chi2, *out_seen;
};

/* All of it; passed to kernels by value. Arrays are on the device. */
struct params : geometry, segmentation, settings, ccd, psf_tables, bundle_tables, workspace, outputs {
};

/* A bundle is left to the CPU: a fibre's own block has no factor; the iteration fails, or does not end; one neighbour
 * on each side at a time is not enough; a square root fails; A_s has more diagonals that matter than there is room for;
 * a coupled bundle needs more memory than there is. */
enum { BAD_FACTOR = 1, BAD_SOLVE = 2, BAD_STRONG = 4, BAD_ROOT = 8, BAD_BAND = 16, BAD_MEMORY = 32 };

__device__ __host__ inline int round_to(int n, int unit)
{
    return (n + unit - 1) / unit * unit;
}

/* Scalars of an iteration of conjugate gradients: r^T P^-1 r, length of the step, part of the last direction in the
 * next, the first of these that is small enough, and where rounding ends. */
enum { RZ, ALPHA, BETA, ENOUGH, ROUNDING, SCALARS };

/* ---- memory ---- */

/* Whether loops of constant length are compiled for a bandwidth. */
bool has_loop(int mm)
{
    return mm >= 6 && mm <= 9;
}

/* The bandwidth that is computed for one that is needed: elements beyond a fibre's own are 0. */
int next_loop(int mm, int band)
{
    return mm < 6 && band >= 6 ? 6 : mm;
}

/* Segments of about `bins` bins for recurrences of a bandwidth. */
void cut(params &k, int bins, int bandwidth)
{
    k.nseg = k.n > bins ? (k.n + bins / 2) / bins : 1;
    k.seg = (k.n + k.nseg - 1) / k.nseg;
    k.nseg = (k.n + k.seg - 1) / k.seg;
    k.halo = HALO * bandwidth;
}

/* Traces as a whole. */
void one_piece(params &k)
{
    k.nseg = 1;
    k.seg = k.n;
    k.halo = 0;
}

/* Segments of the factors and of the solution: only where there are loops. */
void cut_lanes(params &k)
{
    if (has_loop(k.m))
        cut(k, SHORT, k.m);
    else
        one_piece(k);
}

/* Segments of SCHUR_BINS bins of a trace, and blocks of NEED. */
inline int schur_segments(const geometry &k)
{
    return (k.n + SCHUR_BINS - 1) / SCHUR_BINS;
}

__device__ __host__ inline int need_blocks(const geometry &k)
{
    return (k.n + NEED - 1) / NEED;
}

/* Largest half-bandwidth that any of the bins from .. to - 1 needs. */
__device__ __host__ inline int needed(const int *need, const geometry &k, int column, int from, int to)
{
    const int b0 = from > 0 ? from / NEED : 0, b1 = to < k.n ? (to - 1) / NEED : (k.n - 1) / NEED;
    int most = 0;
    for (int b = b0; b <= b1; b++) {
        const int v = need[(size_t)b * k.lanes + column];
        most = v > most ? v : most;
    }
    return most;
}

/* Blocks of WARP lanes of a bundle. */
__device__ __host__ inline int bundle_blocks(const geometry &k)
{
    return (k.nl + WARP - 1) / WARP;
}

/* Parts that inner products of a bundle have at most: of blocks of the product with M, or of segments. */
__device__ __host__ inline size_t dot_parts(const params &k)
{
    const size_t products = ((size_t)k.n * k.nl + MULTIPLY_THREADS - 1) / MULTIPLY_THREADS;
    const size_t segments = (size_t)bundle_blocks(k) * k.nseg;
    return products > segments ? products : segments;
}

/* Spots, equations and deconvolved flux. */
void lay_out_solution(arena &m, params &k)
{
    const size_t n = k.n, lanes = k.lanes, row = n * lanes, nb = k.nbundle;
    k.at = m.take<spx_bin_geometry>(row);
    k.state = m.take<unsigned char>(row);
    k.normal = m.take<double2>(NORMALS);
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
    k.ready = m.take<int>(nb);
    k.scalar = m.take<double>(nb * SCALARS);
    k.window = m.take<double>(has_loop(k.m) ? 1 : (size_t)(k.m + 1) * (k.m + 1) * lanes);
    cut_lanes(k);
    k.seam = m.take<double>((size_t)k.nseg * k.m * (k.m + 1) * lanes);
    k.scratch = m.take<double>((size_t)k.nseg * (k.seg + 2 * k.halo) * lanes);
    k.part = m.take<double>(nb * dot_parts(k));
    k.bad = m.take<int>(nb + 1);
    k.torn = k.bad + nb;
}

/* Everything but what marginal information and the poles' work take of what is left. */
void lay_out(arena &m, params &k)
{
    const size_t n = k.n, lanes = k.lanes, row = n * lanes, nb = k.nbundle;
    lay_out_solution(m, k);
    k.length = m.take<int>(row);
    k.t[0] = m.take<double>(row * (k.band + 1));
    k.t[1] = m.take<double>(row * (k.band + 1));
    for (int side = 0; side < 2; side++) {
        k.within[side] = m.take<double>(row);
        k.early[side] = m.take<double>(row);
    }
    k.taken = m.take<double>(2 * lanes);
    k.a = m.take<double>(row * (k.band + 1));
    k.need = m.take<int>((size_t)need_blocks(k) * lanes);
    k.schur_flags = m.take<int>((size_t)schur_segments(k) * lanes);
    k.narrow = m.take<double>(4 * lanes);
    k.drop_scale = k.coupled ? m.take<double>(row) : NULL;
    k.bound = m.take<double>(2 * lanes);
    k.variance = m.take<double>(row);
    k.npole = m.take<int>(lanes);
    k.shift = m.take<double>(SPX_MAX_POLES * lanes);
    k.pole_weight = m.take<double>(SPX_MAX_POLES * lanes);
    k.total = m.take<double>(lanes);
    k.sum = m.take<double>(row * (k.h + 3));
    params root = k;
    cut(root, LONG, 0);
    k.redo = m.take<int>(root.nseg * lanes);
    k.over = m.take<double>((size_t)root.nseg * EXTRA * (k.h + 3) * lanes);
    k.tile_begin = m.take<int>(k.ntile * lanes);
    k.tile_end = m.take<int>(k.ntile * lanes);
    k.chi2 = m.take<double>(k.nshare * row);
    const size_t nout = nb * (size_t)k.nl * k.nwave;
    k.out_flux = m.take<double>(nout);
    k.out_ivar = m.take<double>(nout);
    k.out_chi2 = m.take<double>(nout);
    k.out_seen = m.take<double>(nout);
    k.out_res = m.take<double>(nout * (2 * k.h + 1));
}

/* Tables of one piece of work on the host, in page-locked memory. */
struct tables {
    int *fibre, *wanted, *nf, *y0, *y1, *x0, *others; /* as on the device, in one block */
    unsigned char *bin_state;
    int *need, *npole, *redo, *bad, *most; /* most: scratch, [lanes] */
    item *items, *draft;
    double *scalar, *narrow;

    tables(arena &m, const params &k)
    {
        const size_t lanes = k.lanes, nb = k.nbundle, segments = lanes * ((size_t)k.n / BOUNDS + 2);
        fibre = m.take<int>(lanes);
        wanted = m.take<int>(lanes);
        nf = m.take<int>(nb);
        y0 = m.take<int>(nb);
        y1 = m.take<int>(nb);
        x0 = m.take<int>(nb);
        others = m.take<int>(nb);
        bin_state = m.take<unsigned char>(nb * k.n * k.nl);
        need = m.take<int>(need_blocks(k) * lanes);
        npole = m.take<int>(lanes);
        redo = m.take<int>(segments);
        bad = m.take<int>(nb + 1);
        most = m.take<int>(lanes);
        items = m.take<item>(segments);
        draft = m.take<item>(segments);
        scalar = m.take<double>(SCALARS * nb);
        narrow = m.take<double>(4 * lanes);
    }
};

/* ---- launches ---- */

/* A piece of work has a stream of its own, and more for what can be done side by side; SLOTS pieces are under way at a
 * time, so that transfers and recurrences, which leave most of a device idle, run beside the others' work. */
enum { SLOTS = 4, BESIDE = 10, STEPS = 5 };

/* Threads that wait for a device: a queue of r frames takes 9.4 to 10.4 ms a frame of 16 processors, of which 48 are
 * used, where they sleep, and 10.7 to 11.5, and 83, where they ask again and again; of 4 processors 12 and 14. */
bool sleeps()
{
    return spx::waits_asleep(true);
}

struct slot {
    cudaStream_t stream, beside[BESIDE];
    cudaStream_t aside, last;   /* for what does not need the deconvolved flux, and what nothing waits for: the fit */
    cudaEvent_t begun, ended;   /* of the work on `aside`: its begin, the end of its last part */
    cudaEvent_t stepped;        /* the host may look at how far the solution is, or at what it has waited for */
    cudaEvent_t solved, fitted; /* begin and end of the fit */
    cudaEvent_t forked, joined[BESIDE];
    cudaEvent_t step[STEPS]; /* begin of the first step and the ends of all but the fit */
    char *table;             /* page-locked: small tables, to and fro */
    size_t ntable;           /* its bytes */
    double seconds[STEPS];
    const void *spots_of, *spots_in; /* first bundle and memory of the spots that the last piece has left there, */
    int nspots;                      /* and its bundles: they are the same for all frames of a queue */
};

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

/* The largest of all that is seen: the bits of numbers from 0 up are in their order. */
__device__ void raise_to(double *most, double v)
{
    atomicMax((unsigned long long *)most, (unsigned long long)__double_as_longlong(v));
}

/* Streams beside the slot's own, for work number 0, 1, ... until the next join(): they begin after what the slot's has
 * when number 0 comes, and it goes on after all `count` of them. */
void fork(slot *s, int number, cudaStream_t *to)
{
    *to = s->beside[number % BESIDE];
    if (number == 0)
        spx::check(cudaEventRecord(s->forked, s->stream), "event");
    if (number < BESIDE)
        spx::check(cudaStreamWaitEvent(*to, s->forked, 0), "stream");
}

void join(slot *s, int count)
{
    for (int i = 0; i < count && i < BESIDE; i++) {
        spx::check(cudaEventRecord(s->joined[i], s->beside[i]), "event");
        spx::check(cudaStreamWaitEvent(s->stream, s->joined[i], 0), "stream");
    }
}

/* Whether an event has come. Who asks, asks again until it has. */
bool is_over(cudaEvent_t event)
{
    const cudaError_t code = cudaEventQuery(event);
    if (code == cudaSuccess)
        return true;
    if (code != cudaErrorNotReady)
        spx::check(code, "event");
    (void)cudaGetLastError(); /* which is no error */
    spx::pause_asking(sleeps());
    return false;
}

/* Small tables: from the slot's page-locked memory to the device, and back, by a kernel. Copies of all streams stand in
 * few queues of the device, and would wait there for others' that were asked for before, but cannot begin yet: 2 to 3
 * ms where the work of a piece went on by what the host had read. Arrays begin at multiples of 16 bytes. */
__global__ void table_kernel(char *to, const char *from, size_t bytes)
{
    const size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x, whole = bytes / sizeof(uint4);
    if (i < whole)
        ((uint4 *)to)[i] = ((const uint4 *)from)[i];
    else if (whole * sizeof(uint4) + (i - whole) < bytes)
        to[whole * sizeof(uint4) + (i - whole)] = from[whole * sizeof(uint4) + (i - whole)];
}

/* Waits for all of a stream: by an event, as the thread sleeps then where it is to, whatever the context's flags say.
 */
void wait_for(cudaStream_t stream, cudaEvent_t event)
{
    spx::check(cudaEventRecord(event, stream), "event");
    spx::check(cudaEventSynchronize(event), "event");
}

template <typename T> void get(slot *s, T *to, const T *from, size_t n)
{
    const size_t bytes = n * sizeof(T);
    table_kernel<<<blocks(bytes / sizeof(uint4) + sizeof(uint4), 128), 128, 0, s->stream>>>((char *)to,
                                                                                            (const char *)from, bytes);
    spx::check(cudaGetLastError(), "launch");
}

template <typename T> void put(slot *s, const T *to, const T *from, size_t n)
{
    get(s, (T *)to, from, n);
}

void zero(slot *s, void *at, size_t bytes)
{
    spx::check(cudaMemsetAsync(at, 0, bytes, s->stream), "device memory");
}

} // namespace

#endif
