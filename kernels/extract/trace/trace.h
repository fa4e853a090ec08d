/* Provides the types and constants that the parts of whole-trace extraction share. Private to kernels/extract/ (see its
 * README).
 *
 * plan.c plans, driver.c drives; the heavy loops are in kernels.inc, compiled once for every instruction set
 * (kernels_base.c, _avx2.c, _avx512.c) and chosen at run time. */
#ifndef SPX_EXTRACT_TRACE_TRACE_H
#define SPX_EXTRACT_TRACE_TRACE_H

#include <math.h>
#include <stddef.h>

#include "calib/root_math.h"
#include "extract/common.h"
#include "extract/motion.h"

enum {
    SPX_TRACE_LANES = 8,       /* doubles in the widest vector: rows of arrays are padded to it */
    SPX_TRACE_TAIL = 40,       /* bins that a column of L^-1 M is followed at most beyond the overlap */
    SPX_TRACE_LONG_TAIL = 160, /* the same on the CPU where traces lie on each other */
    SPX_TRACE_LAST = 8,        /* bins of it that say, together with those before, how much may follow */
    SPX_TRACE_AROUND = 24,     /* bins around one beside a mask that say how narrow it is, at least */
    SPX_TRACE_RUN = 128,       /* bins that neighbours beyond the next are taken off together at most */
    SPX_TRACE_MAX_REACH = 24,  /* of these neighbours, on each side */
    SPX_TRACE_WIDER = 16,      /* diagonals of A_s beyond those of M that are looked at beside masks at least */
    SPX_TRACE_RIM = 8,         /* more of them that the CPU looks at, where the outermost matter still */
    SPX_TRACE_MOST_BAND = 112, /* half-bandwidth of the square root at most */
    SPX_TRACE_MAX_BAND = 96    /* a bin that overlaps with more bins of its own trace: bins far smaller than a pixel */
};

/* Drop tolerances, as multiples of the tolerance and relative to the diagonal of M (elements: M scaled to a unit
 * diagonal). The error of the square root is what is dropped over its smallest eigenvalue there, some 0.01 where
 * nothing is masked; that of the flux is this times the signal-to-noise ratio. Together they are within the tolerance
 * up to signal-to-noise ratios of a hundred. */
#define SPX_TRACE_FAR     1.0   /* of T, below which its diagonals beyond those of M are not made */
#define SPX_TRACE_NOTHING 1e-4  /* of an element of T beyond the diagonals of M, below which it is not made */
#define SPX_TRACE_LITTLE  0.1   /* of an element of T, by the end of a column of V */
#define SPX_TRACE_STRONG  0.001 /* of T, by neighbours beyond the next */
#define SPX_TRACE_TRIM    0.003 /* of the outer diagonals of A_s */
#define SPX_TRACE_EDGE                                                                                                 \
    0.1                      /* the same in units of 1/Z_kk, the information on bin k with its neighbours marginalised \
                              */
#define SPX_TRACE_FALL  3.0  /* from one of its outermost diagonals to the next, at least: see goes_on() */
#define SPX_TRACE_ENDS  1.0  /* of a bound of elements of T farther out: frames of usual cameras have none above it */
#define SPX_TRACE_POLES 0.01 /* of the square root itself, relative: 1/100, and fluxes of that S/N are within it */

/* Tolerance of the square root at most, whatever that of the fluxes. Poles follow from bounds of the eigenvalues, which
 * are those of whole traces on a GPU, and on the CPU those of parts of a trace: so what the poles leave is another
 * error on each, of all bins alike, and so is what parts leave at their ends. With 1e-2 shifts along the traces of
 * specx-shift parted by up to 4e-4 of their errors, with 1e-5 by 2e-6. From 1e-2 to 1e-5 are four poles of eleven. */
#define SPX_TRACE_ROOT_MOST 1e-6

/* Tolerance from which on T is left out where a bound of it is below SPX_TRACE_LITTLE (coupling.h). In usual cameras T
 * is some 1e-7 of the diagonal, 1e-4 beside masks, and the bound ten to a hundred times that: with finer tolerances it
 * would leave out nothing. */
#define SPX_TRACE_BOUNDED 1e-4

/* Tolerance by which diagonals of T and A_s are left out (FAR, TRIM, EDGE; on a GPU also those in schur.cuh and
 * sqrt.cuh that say so). Element (i, j) changes the flux of bin i by A_ij sqrt(Z_ii) x_j of its error: A_ij sqrt(Z_ii
 * Z_jj) times the signal-to-noise ratio of bin j, to which a hundred is allowed. Coarse tolerances leave out elements
 * that just miss the limit, and fluxes of narrow bins were up to 11 times the tolerance off. With 1e-8 and less the
 * band that is made anyway ends far below the limit, but beside masks, and a smaller one would ask for diagonals that
 * are rounding. */
#define SPX_TRACE_DROPPED      0.01
#define SPX_TRACE_DROP_TO_HERE 1e-8

static inline double spx_trace_drop_tolerance(double tolerance)
{
    const double most = tolerance < SPX_TRACE_DROP_TO_HERE ? tolerance : SPX_TRACE_DROP_TO_HERE;
    return fmax(SPX_TRACE_DROPPED * tolerance, most);
}

/* Drop scale: tightening of the drop tolerances where bins are narrower than the PSF and M is ill-conditioned. Dropping
 * element E_ij of A_s changes flux and ivar by some E_ij sqrt(Z_ii Z_jj) of their errors, Z = A_s^-1: the change of Q
 * is that of A_s over the sum of two square roots of eigenvalues, and the deconvolved flux has errors of sqrt(Z_jj). Z
 * times the diagonal of M is 1 for bins that do not overlap. Gaussian spots along a trace that are s bins wide (sigma)
 * have a spectrum that falls with exp(-s^2 k^2): Z M is 5 for s = 0.7, 26 for 0.85, 230 for 1, 10^4 for 1.2 and 10^7
 * for 1.5; with tilts and cut wings it was 20 to 10^8 at 1.2 to 1.3. The tolerances above hold up to Z M =
 * SPX_TRACE_MAX_INVERSE; beyond, they are multiplied by SPX_TRACE_MAX_INVERSE / (Z M). Before A_s is known, Z is the
 * inverse of the fibre's block of M. Bins beside masks are as narrow as others with that Z M, but few: there the drop
 * scale falls as far as rounding allows. A bin that overlaps with one that has less than SPX_TRACE_UNMASKED of the
 * pixels that others around it have is beside a mask.
 */
#define SPX_TRACE_MAX_INVERSE 20.0
#define SPX_TRACE_UNMASKED    0.9

/* Least drop scale, of bins beside masks: what is left out is SPX_TRACE_ROUNDING of the diagonal of M. Of others: bins
 * for which Z M is above SPX_TRACE_MAX_INVERSE over it, 20 000, are less exact than the tolerance, by what Z M is above
 * that: with each factor of ten of Z M they would need more neighbours and diagonals, of which rounding leaves little
 * in the end. */
#define SPX_TRACE_ROUNDING    1e-15
#define SPX_TRACE_LEAST_SCALE 0.001

static inline double spx_trace_rounding(double tolerance)
{
    const double least = SPX_TRACE_ROUNDING / (0.1 * tolerance);
    return least < 1 ? least : 1;
}

static inline double spx_trace_least_scale(double tolerance)
{
    const double rounding = spx_trace_rounding(tolerance);
    return rounding > SPX_TRACE_LEAST_SCALE ? rounding : SPX_TRACE_LEAST_SCALE;
}

/* Tolerance that is reached where bins have at most this Z M, rounding aside: with the drop scale at its least, what is
 * dropped is that part of what it is at Z M = SPX_TRACE_MAX_INVERSE, where the tolerance holds, and matters as many
 * times more as Z M is larger. Of 411 random cameras with narrow bins, less the bound of rounding, fluxes were off by
 * at most 0.08 of it with a tolerance of 1e-8, by 0.3 with 1e-4. */
static inline double spx_trace_reached_tolerance(double tolerance, double z)
{
    const double more = z * spx_trace_least_scale(tolerance) / SPX_TRACE_MAX_INVERSE;
    return more > 1.0 ? more * tolerance : tolerance;
}

/* Tolerance that is reached where A_s has more diagonals than SPX_TRACE_MOST_BAND; left: the largest element that is
 * left out, in units of 1/Z. Of 43 scenes with such bins fluxes of those where it is below 0.1 were a thousandth to a
 * seven-hundredth of it off. Above SPX_TRACE_INEXACT a fibre has bit BAD2DFIT: bins that narrow cannot be told apart.
 */
#define SPX_TRACE_INEXACT 0.1

static inline double spx_trace_left_tolerance(double tolerance, double left)
{
    return left > SPX_TRACE_EDGE * tolerance ? left : tolerance;
}

/* Bound of what rounding makes of the fluxes of a bundle, in their errors. M is known to some units of its last place,
 * dM_kl = u sqrt(M_kk M_ll), which moves the deconvolved flux by Z dM x. As |Z_jk| <= sqrt(Z_jj Z_kk), that of any bin
 * j moves by up to u sqrt(Z_kk M_kk) sqrt(M_ll) |x_l| of its error: the bins k and l, in the padding or of another
 * fibre, count, and not those of j itself. u is SPX_TRACE_LAST_PLACE: factors add their own rounding, to 6.3e-15
 * in one of 980 frames with wild weights and in all others with a solution to 6e-16 at most. */
#define SPX_TRACE_LAST_PLACE 1e-14

/* Of a bin: sqrt(Z M), and sqrt(M) times its deconvolved flux or its error, which is more. The bound is the product of
 * the largest of each, and u. */
SPX_HD double spx_trace_amplifies(double z, double m)
{
    return z > 0.0 ? sqrt(z * m) : 0.0;
}
SPX_HD double spx_trace_amplified(double z, double m, double x)
{
    return z > 0.0 ? sqrt(m) * fmax(fabs(x), sqrt(z)) : 0.0;
}

/* Neighbours are added no longer when what they change, as a fraction of the diagonal, has not fallen by more in two
 * rounds and is small: it is rounding. Where traces overlap it falls by ten or more with each; where one row of pixels
 * is left, or weights are wild, it may grow before it falls. */
#define SPX_TRACE_STALL   0.5
#define SPX_TRACE_ROUNDED 1e-3

/* T as a fraction of M that a column may meet, to begin with: what is cut off is its product with the other column. */
#define SPX_TRACE_OTHER 1e-2

/* Regularisation that is tried where equations have no solution. */
#define SPX_TRACE_RETRY 1e-4

/* Elements of M of fibres with others between them are left out where their spots share less light than this, of spots
 * whose light is 1. The diagonal of M is some 0.1 of a weight, so that this is as small a part of it as rounding
 * (SPX_TRACE_LAST_PLACE), and within the bound of that. 1e-12 is enough for usual bins, but those far narrower than the
 * spots amplify what is left out, as they do rounding: fluxes were 1.8e-4 of their errors off, where 4e-5 was said.
 * Weights do not count, so that other masks leave out the same. */
#define SPX_TRACE_NIL 1e-15

/* Added to the diagonal of M whatever the regularisation is, as in the patch method. */
#define SPX_TRACE_PRIOR 1e-15

/* One column of A: where its spot lies. */
typedef struct {
    int xc, yc;    /* first column and row */
    double dx, dy; /* centre minus middle of the central pixel */
} spx_bin_geometry;

/* What all bundles share. Bins are counted from the first padding bin: bin k lies at wmin + (k - pad) dw. */
typedef struct {
    const spx_extract_job *job;
    size_t nbin, pad; /* bins of a trace with its padding; padding bins at each end */
    int nx, ny;       /* size of a spot */
    size_t nxp, nyp;  /* columns of a stored row: a multiple of the lanes, at least nx + lanes - 1; rows alike */
    int degx, degy;   /* Gauss-Hermite degrees */
    size_t npar;      /* Gauss-Hermite coefficients, then sigma x and y, padded to the lanes */
    double *coeff;    /* [nspec][ndeg][npar] */
    int shares_coeff; /* which are another plan's */
    /* Legendre polynomials of the series for x, y and the parameters at every bin: [nbin][ncoef], of each fibre where
     * traces have ranges of their own; see spx_trace_basis(). */
    double *bx, *by, *bp;
    int own_basis;
    double *column_mask; /* [nxp] 1 for the nx columns of a spot, 0 beyond */
    double *row_mask;    /* [nyp] the same for its rows */
    size_t spot_work;    /* doubles of scratch that a spot needs */
    size_t motion_work;  /* and how many more with its derivatives */
    double tolerance, drop_tolerance;
    int dense; /* spots are no plain Gauss-Hermite series: made one by one, without vectors (psf/spot_math.h) */
} spx_trace_plan;

/* Polynomials of n coefficients for bin k of a fibre, in bx, by or bp. */
static inline const double *spx_trace_basis(const spx_trace_plan *p, const double *table, size_t n, size_t fibre,
                                            size_t k)
{
    return table + (p->own_basis ? fibre * p->nbin + k : k) * n;
}

/* One bundle: fibres fibre0 .. fibre0 + nf - 1 of the PSF. Rows of [nl] doubles hold one value a fibre. */
typedef struct {
    size_t fibre0, nf, nl;   /* nl: lanes, a multiple of SPX_TRACE_LANES, at least nf + reach */
    spx_bin_geometry *at;    /* [nbin][nf] */
    unsigned char *state;    /* [nbin][nf] SPX_TRACE_... */
    unsigned char *singular; /* [nf] 1: this trace has no solution; it is left out of the equations */
    /* Pairs of bins that overlap: (f, k) with (f + df, k + dk), lo[df] <= dk <= hi[df], lo[0] = 0. Element
     * first[df] + dk - lo[df] of the nelem elements of a bin. */
    int reach;            /* largest df */
    int *lo, *hi;         /* [reach + 1] */
    size_t *first, nelem; /* [reach + 1] */
    int depth;            /* largest |dk| */
    size_t band;          /* half-bandwidth of A_s */
    int fit_depth;        /* bins that a pass over the image must remember */
    long y0, y1;          /* rows of the CCD that are used */
    long wx0, wy0;        /* CCD pixel of element (0,0) of the window */
    size_t margin;        /* rows of zeros around the factors, which a column of V reaches */
    size_t wnx, wny;      /* size of the window: all pixels that a spot may touch, and some more */
    float *weight, *data; /* [wny][wnx] ivar and value, both 0 where a pixel must not be used */
    unsigned *lit;        /* [wny + 1] rows before with a pixel that may be used */
    double *m;            /* [nbin][nelem][nl] M, each pair once: in the lane of its fibre with the smaller index */
    unsigned char *far; /* [nbin] 1: rows with elements of fibres that have others between them; elsewhere they are 0 */
    double *ldl;        /* [nbin][hi[0] + 1][nl] L D L^T of each fibre's block: 1/D, then L below it; zeros around it */
    double *diag;       /* [nbin][lanes] scratch of the factorisation, hi[0] rows of zeros before it */
    double *x;          /* [nbin][nl] deconvolved flux */
    double *y, *w, *seen; /* [nbin][nl] A^T W p, A^T W 1, A^T [W > 0] */
    double *diagonal;     /* [nbin][nl] of M, without what regularisation adds */
    double *regularize;   /* [nf] alpha */
} spx_trace_bundle;

enum {
    SPX_TRACE_SPOT = 0,  /* has a spot that may touch the CCD */
    SPX_TRACE_OFF = 1,   /* its spot lies beyond the pixels in use */
    SPX_TRACE_NOSPOT = 2 /* the PSF has no spot here */
};

/* A_s of the fibres of a bundle: element (k, k + d) of each. */
typedef struct {
    double *near; /* [nbin][hi[0] + 1][nl] the diagonals that M has */
    double *far;  /* [band - hi[0]][nbin][nl] those beyond, one after the other; not looked at unless `wide` */
    /* [nbin][nl] what is left out as a multiple of what it is on other bins, at most 1: see SPX_TRACE_MAX_INVERSE; only
     * where fibres overlap */
    double *drop_scale;
    int wide;
    double *variance;            /* [nbin][nl] diagonal of A_s^-1, by the square root */
    const unsigned char *wanted; /* [nf] 1: A_s of this fibre is looked at */
    /* [nl / lanes][nbin], 0 to begin with: neighbours on each side that bins have needed, where a wider A_s is made
     * after a narrower one */
    unsigned char *reached;
    /* [nl / lanes] 1: elements beyond the band matter, or may, however small the outermost are */
    unsigned char *ends;
    /* Largest Z M of wanted bins, masks aside; SPX_TRACE_MAX_INVERSE where none is above it. 0 where fibres do not
     * overlap: nothing is left out there, and what remains is rounding. */
    double z;
} spx_trace_diagonals;

/* Memory of one thread, kept from bundle to bundle. */
typedef enum {
    SPX_BUFFER_M,
    SPX_BUFFER_VECTORS,
    SPX_BUFFER_FACTOR,
    SPX_BUFFER_A,
    SPX_BUFFER_CG,
    SPX_BUFFER_RING,
    SPX_BUFFER_SPOT,
    SPX_BUFFER_COLUMNS,
    SPX_BUFFER_SIDES,
    SPX_BUFFER_CHAIN,
    SPX_BUFFER_TILE,
    SPX_BUFFER_MODEL,
    SPX_BUFFER_ROOT,
    SPX_BUFFER_MOTION,
    SPX_BUFFER_REJECT,
    SPX_BUFFER_REJECT_WINDOW,
    SPX_BUFFER_SMOOTH,
    SPX_BUFFER_READNOISE,
    SPX_BUFFERS
} spx_trace_buffer;

typedef struct spx_trace_workspace {
    double *at[SPX_BUFFERS];
    size_t size[SPX_BUFFERS];
    /* [threads] of the tasks that a bundle is shared out by: of the one that thread t is at. Threads that have no
     * bundle left take them. */
    struct spx_trace_workspace *of_tasks;
    int thread;
    double begun, seconds[SPX_EXTRACT_STEPS]; /* when its task began, and what those of others' bundles took */
} spx_trace_workspace;

/* Workspaces of the threads of a team, [nthreads]; those of their tasks are behind them. NULL: memory is out. */
spx_trace_workspace *spx_trace_workspaces_make(int nthreads, spx_err *e);
void spx_trace_workspaces_free(spx_trace_workspace *list, int nthreads);
/* Within a task of the bundle whose workspace is r: begins, with the workspace that it uses, and ends. */
spx_trace_workspace *spx_trace_task_begin(const spx_trace_workspace *r);
void spx_trace_task_end(const spx_trace_workspace *r, spx_trace_workspace *own, int step);
/* n1 x n2 doubles, with anything in them. NULL and SPX_EIO when memory is out. */
double *spx_trace_workspace_get(spx_trace_workspace *r, spx_trace_buffer id, size_t n1, size_t n2, spx_err *e);

/* like: a plan of the same PSF, which outlives this one, or NULL. */
spx_status spx_trace_plan_make(const spx_extract_job *job, const spx_trace_plan *like, spx_trace_plan *p, spx_err *e);
void spx_trace_plan_free(spx_trace_plan *p);
/* Fill list[nbundle] (zeroed), the bundles from that of the first wanted fibre on, with their geometry; or their fibres
 * alone, and the geometry of one, *left_out: traces whose bins overlap with too many of their own are added. Where all
 * are, no bundle can be solved: spx_trace_narrow(), SPX_EUSAGE. SPX_EIO: memory. */
spx_status spx_trace_bundles_make(const spx_trace_plan *p, size_t nbundle, spx_trace_bundle *list, int nthreads,
                                  spx_err *e);
void spx_trace_bundles_place(const spx_trace_plan *p, size_t nbundle, spx_trace_bundle *list);
spx_status spx_trace_bundle_make(const spx_trace_plan *p, spx_trace_bundle *b, size_t *left_out, spx_err *e);
spx_status spx_trace_narrow(const spx_trace_plan *p, spx_err *e);
void spx_trace_bundle_free(spx_trace_bundle *b);

/* Plan and bundles, for frames that follow each other with the same PSF, wavelengths and options. */
typedef struct {
    spx_trace_plan plan; /* without job: a call has a copy with its own */
    size_t nbundle;
    spx_trace_bundle *list; /* [nbundle] geometry alone: a call that works on a bundle has a copy of it */
    /* What they were made of. */
    spx_extract_options o;
    size_t ny, nx;
    spx_psf psf; /* numbers alone */
} spx_trace_layout;

spx_status spx_trace_layout_make(const spx_extract_job *job, spx_trace_layout *l, spx_err *e);
/* Whether it is what spx_trace_layout_make() would make for this job: everything that goes into it is compared. */
int spx_trace_layout_fits(const spx_trace_layout *l, const spx_extract_job *job);
void spx_trace_layout_free(spx_trace_layout *l);

/* What one thread has met. */
typedef struct {
    double seconds[SPX_EXTRACT_STEPS];
    size_t failed, regularised, inexact, nospot;
    double tolerance; /* the largest that was reached */
    double rounding;  /* see spx_extract_counts */
} spx_trace_tally;

/* Adds what a task has met, but for the seconds. */
void spx_trace_tally_add(const spx_trace_tally *t, spx_trace_tally *sum);
/* Adds what was met; all: not the seconds alone. */
void spx_trace_count(const spx_trace_tally *t, int all, spx_extract_counts *counts);
/* Adds the seconds of tasks. */
void spx_trace_count_tasks(const spx_trace_workspace *list, int nthreads, spx_extract_counts *counts);

/* Solves bundles on the CPU, side by side: list[i] where chosen[i] is not 0, whose rows of the output are cleared
 * before; all of them, and the output is 0 already, where `chosen` is NULL. For the CPU backend, and for the bundles
 * that a device leaves to the CPU: with the same bits. Adds to *counts; SPX_EIO: memory. The list is geometry alone
 * and is not changed; the result does not depend on threads, OpenBLAS's included. */
spx_status spx_trace_solve_bundles(const spx_trace_plan *p, size_t nbundle, const spx_trace_bundle *list,
                                   const int *chosen, spx_frame *out, spx_extract_counts *counts, spx_err *e);

typedef struct spx_trace_kernels spx_trace_kernels;

/* Puts the diagonal of a bundle's M in place: b->diagonal with what regularisation adds. */
spx_status spx_trace_regularise(const spx_trace_plan *p, spx_trace_bundle *b, spx_err *e);

/* ---- before the extraction: cosmic-ray hits, and the variance of the model ---- */

/* Hits in a bundle; arrays are the workspace's. */
typedef struct {
    int changed;               /* its equations are others than they were, even where no hit is left */
    int solved;                /* they are those of an extraction without the hits, but for the diagonal of M */
    const unsigned char *flag; /* [wny][wnx] & is_hit: the pixel is rejected */
    int is_hit;
    const double *whole; /* [nbin][nl] b->seen with nothing rejected; now it is without the rejected pixels */
} spx_trace_hits;

/* Finds the pixels of a bundle with a solution that are more than the options' `reject` errors above its model; leaves
 * weights and, for the variance of the model, flux without them (the flux within 1e-3 of its error). readnoise:
 * [wny][wnx], for the variance of the model in place of 1/ivar; or NULL. Ends early where the equations have no
 * solution any more. */
spx_status spx_trace_reject(const spx_trace_plan *p, const spx_trace_kernels *kernels, spx_trace_bundle *b,
                            spx_trace_workspace *r, const float *readnoise, spx_trace_hits *out, spx_err *e);

/* Bins on each side that the median of a smoothed spectrum is taken over, and errors of the flux within which a bin is
 * no line. */
enum { SPX_TRACE_SMOOTH_HALF = 15 };
#define SPX_TRACE_SMOOTH_LINE 4.0

/* A f of a bundle with a solution, into the window light[wny][wnx]: f is the median of 31 bins or, with `lines`, its
 * own value where that is more than 4 errors away from it. The noise of the pixels is in it to a small part only. */
spx_status spx_trace_smooth_light(const spx_trace_plan *p, const spx_trace_kernels *kernels, const spx_trace_bundle *b,
                                  spx_trace_workspace *r, int lines, double **light, spx_err *e);

/* One bundle of spx_trace_screen_bundles(), which see: *b gets the bundle with its solution, whose arrays are the
 * workspace's; *light stays NULL where none is wanted. alone: no other bundle has spots on its pixels, so that
 * no other's hits count. */
spx_status spx_trace_screen_bundle(const spx_trace_plan *p, const spx_trace_bundle *from, spx_trace_bundle *b,
                                   spx_trace_workspace *r, const float *readnoise, int finish, int alone,
                                   spx_trace_hits *hits, double **light, int *chosen, spx_frame *out,
                                   spx_trace_tally *t, spx_err *e);

/* All bundles, or those of which only[i] is not 0: solves them as far as the flux, rejects hits and makes the variance
 * anew, as the job's options say. job->weight, hit pixels and cosmic bins of *out, and counts of them are changed.
 * chosen[nbundle]: 1 for bundles to be extracted with these weights; 0: nothing has changed, and the rows of *out have
 * the bundle's spectra already
 * (`finish`), with the bits of spx_trace_solve_bundles(). light: [ny][nx] of the bundles that are not, or NULL. The
 * result does not depend on the number of threads. */
spx_status spx_trace_screen_bundles(const spx_trace_plan *p, size_t nbundle, const spx_trace_bundle *list,
                                    const int *only, const double *light, spx_extract_job *job, int finish, int *chosen,
                                    spx_frame *out, spx_extract_counts *counts, spx_err *e);

/* SPX_EINPUT: the variance of a model needs the read noise. */
spx_status spx_trace_no_readnoise(spx_err *e);

/* The loops that are compiled for each instruction set. They are called for different bundles at the same time, by
 * threads of a team; equations, schur and root are shared out in tasks to those of them that have no bundle. */
struct spx_trace_kernels {
    const char *name;
    /* M, y, w and seen of a bundle from its window. only: NULL, or [nbin][nf] with 1 for bins on pixels whose weights
     * have changed: their elements are made again, with the bits of a call without it. */
    spx_status (*equations)(const spx_trace_plan *p, spx_trace_bundle *b, spx_trace_workspace *r,
                            const unsigned char *only, spx_err *e);
    /* Factorise every fibre's block; singular[] gets 1 where it is not positive definite. Returns the number of those.
     * only: NULL, or [nbin] with 1 for rows whose factors are wanted, runs of which follow from the factors before. */
    size_t (*factorise)(const spx_trace_plan *p, spx_trace_bundle *b, const unsigned char *only);
    /* Diagonal of the inverse of each fibre's block, from its factors, into z[nbin][nl]. */
    spx_status (*variances)(const spx_trace_plan *p, const spx_trace_bundle *b, spx_trace_workspace *r, double *z,
                            spx_err *e);
    /* Solve M x = y by conjugate gradients; *solved is 0 when they do not converge. */
    spx_status (*solve)(const spx_trace_plan *p, spx_trace_bundle *b, spx_trace_workspace *r, int *solved, spx_err *e);
    /* The same from what is in b->x, for runs of bins with chosen[nbin] 1, one after the other: x stays elsewhere. The
     * error of a run, in errors of the flux, is below the tolerance given. */
    spx_status (*improve)(const spx_trace_plan *p, spx_trace_bundle *b, spx_trace_workspace *r,
                          const unsigned char *chosen, double tolerance, int *solved, spx_err *e);
    /* A_s of all fibres of the bundle into *a, which has its memory. */
    spx_status (*schur)(const spx_trace_plan *p, const spx_trace_bundle *b, spx_trace_workspace *r,
                        spx_trace_diagonals *a, spx_err *e);
    /* Square root: flux, ivar and resolution of fibres f0 .. f1 - 1 of the bundle; singular[] of a fibre gets 1 where
     * even regularisation gives none. pending[nf]: 1 for fibres to do; it stays 1 for those whose A_s is wider than
     * b->band.
     */
    spx_status (*root)(const spx_trace_plan *p, spx_trace_bundle *b, spx_trace_workspace *r,
                       const spx_trace_diagonals *a, size_t f0, size_t f1, unsigned char *pending, spx_frame *out,
                       spx_trace_tally *t, spx_err *e);
    /* chi2pix of fibres f0 .. f1 - 1 into chi2[f1 - f0][nwave]. */
    spx_status (*fit)(const spx_trace_plan *p, const spx_trace_bundle *b, spx_trace_workspace *r, size_t f0, size_t f1,
                      double *chi2, spx_err *e);
    /* Adds A v to the window model[wny][wnx], v[nbin][nl]; bins where it is 0 cost nothing. */
    spx_status (*render)(const spx_trace_plan *p, const spx_trace_bundle *b, spx_trace_workspace *r, const double *v,
                         double *model, spx_err *e);
    /* Leverage of the pixels, 0 to 1, into window[wny][wnx]: the part of a pixel's value that its model follows;
     * without the coupling of fibres. The same pass over the spots adds A x to the window `model`, unless it is NULL.
     */
    spx_status (*leverage)(const spx_trace_plan *p, const spx_trace_bundle *b, spx_trace_workspace *r, double *window,
                           double *model, spx_err *e);
    /* Motion of the traces of a bundle that was solved: rows of *out that belong to its fibres and this window. */
    spx_status (*motion)(const spx_trace_plan *p, spx_trace_bundle *b, spx_trace_workspace *r, int rough,
                         spx_motion_row *out, spx_motion_fit *fit, spx_err *e);
};

/* The best of those below for this processor. */
const spx_trace_kernels *spx_trace_kernels_best(void);

/* The deconvolved flux of a bundle on the CPU: tile, equations, solution; pointers of *b are the workspace's then.
 * b->singular and b->regularize have room for its fibres. *solved is 0 where there is no light, *any is 0, or no
 * solution. */
spx_status spx_trace_deconvolve(const spx_trace_plan *p, spx_trace_bundle *b, spx_trace_workspace *r,
                                spx_trace_tally *t, int *any, int *solved, spx_err *e);

/* spx_extract_trace_cpu() with the options' corrections for a tail of the PSF, and with a background. */
spx_status spx_trace_extract_beyond_spots(const spx_image *image, const spx_psf *psf, const spx_extract_options *o,
                                          spx_frame *out, spx_extract_counts *counts, spx_err *e);

/* Used instead of the best of those below where it is not NULL: for tests. */
extern const spx_trace_kernels *spx_trace_forced;

/* Half-bandwidth that A_s is computed for, when M's is m and spots have 2 hsizey + 1 rows. Beside masks and where
 * traces are close its elements fall by ten every two bins or so, and what is cut off is felt in the square root as if
 * divided by that of the smallest eigenvalue. */
static inline size_t spx_trace_band(int m, int reach, int hsizey, double tolerance)
{
    int band = m;
    if (reach > 0) {
        const int least = 8 + (int)ceil(-2.0 * log10(tolerance));
        band = m + SPX_TRACE_WIDER > least ? m + SPX_TRACE_WIDER : least;
    }
    return (size_t)(band > hsizey ? band : hsizey);
}

static inline double spx_trace_root_tolerance(double tolerance)
{
    return fmin(tolerance, SPX_TRACE_ROOT_MOST);
}

/* How far off the square root may be for a tolerance; rounding ends at some 1e-14. */
static inline double spx_trace_root_error(double tolerance)
{
    return fmax(SPX_TRACE_POLES * spx_trace_root_tolerance(tolerance), 1e-14);
}

/* NULL where the compiler or the processor lacks the instructions. */
const spx_trace_kernels *spx_trace_kernels_base(void);
const spx_trace_kernels *spx_trace_kernels_avx2(void);
const spx_trace_kernels *spx_trace_kernels_avx512(void);

#endif
