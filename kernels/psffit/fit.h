/* Provides what the files of kernels/psffit share: the problem of one bundle, its state, and the steps of the fit
 * (psffit/psffit.h). */
#ifndef SPX_PSFFIT_FIT_H
#define SPX_PSFFIT_FIT_H

#include <stddef.h>
#include <stdint.h>

#include "hostdevice.h"
#include "psffit/psffit.h"

enum {
    SPX_PF_MOST_TRACE = 16,   /* terms of a trace */
    SPX_PF_MOST_HERMITE = 10, /* degree */
    SPX_PF_MOST_FIBRE = 4,    /* terms of the shape along fibres */
    SPX_PF_MOST_WAVE = 6,     /* and along wavelengths */
    SPX_PF_FEWEST_ALIVE = 5,  /* fibres of a bundle that is fitted; all of a smaller one */
    SPX_PF_LANES = 8,         /* sums side by side */
    SPX_PF_MOST_WIDE = 128,   /* pixels of a profile */
    SPX_PF_MOST_LOCAL = (SPX_PF_MOST_HERMITE + 1) * (SPX_PF_MOST_HERMITE + 1) + 1
};

struct spx_pf_work;
struct spx_pf_device;

/* Numbers that all bundles share. */
typedef struct {
    int deg;                /* Gauss-Hermite degree */
    double narrow;          /* widths of the series by those of Gaussians; 1: as the fit has them */
    int norder;             /* orders of g that derivatives need: deg + 3 */
    int nc;                 /* coefficients c_ij: (deg + 1)^2 */
    int nq;                 /* free parameters of a spot: widths and nc - 1; 0: the shape is that of the start */
    int hx, hy, nx, ny;     /* half size and size of a spot */
    int ntr, na, nb;        /* terms: traces, shape along fibres and wavelengths */
    double wmin, wmax;      /* of all series, Angstrom */
    size_t height, columns; /* of the CCD */
    size_t nexp, nshift;    /* parameters of their shifts: 2 (nexp - 1) or 0 */
    const spx_image *image; /* [nexp] */
    const spx_psf *start;
    double moved[2];    /* of the start, from the PSF that shifts are against */
    const double *dark; /* [nexp] variance without light, electron^2, where an image has no read noise */
    int trial;          /* no errors are asked for (spx_psffit_options) */
    const struct spx_pf_device *device; /* NULL: the CPU */
} spx_pf_plan;

/* A line in a bundle. */
typedef struct {
    double wave;                    /* where it is, Angstrom; of a free line, where the bundle began with it */
    double listed;                  /* in the list */
    size_t free;                    /* its wavelength is not known, and parameter free - 1 of these; 0: it is */
    int weak;                       /* tells traces and shape nothing, or next to nothing: in the model only */
    size_t row;                     /* in the camera's list */
    size_t source;                  /* in the caller's; SIZE_MAX: found in the residuals */
    size_t group;                   /* lines whose spots touch */
    double term[SPX_PF_MOST_TRACE]; /* Legendre polynomials at its wavelength */
} spx_pf_line;

/* Lines first ... last-1, whose fluxes are solved for together. */
typedef struct {
    size_t first, last;
    size_t factor; /* where its matrix begins in the factors of an exposure */
} spx_pf_group;

/* Place of a spot: corner in the bundle's pixels, and its part within them (empty where y0 == y1). */
typedef struct {
    long xc, yc;
    int x0, x1, y0, y1;
    double x, y, sigx, sigy;
} spx_pf_at;

/* Pixels of a bundle in one exposure: [height][width]. */
typedef struct {
    float *data;       /* NULL, as noise: the device has them already */
    float *noise;      /* variance without light; 0: masked */
    float *soft;       /* the same with the floor of the weights (spx_pf_soften()); NULL: there is none */
    float *median;     /* of 3 x 3 pixels of the image */
    float *root;       /* square root of the weight */
    double *ground;    /* background */
    double *goal;      /* root (data - ground) */
    double *quiet;     /* sum of goal^2 of each row */
    uint8_t *rejected; /* by the hard clip */
    uint8_t *rows;     /* [height] SPX_PF_ROW_...: of the weights as they are */
    int weighed, clip; /* weights are those of the background and the clip as it is, with it or not, and */
    double epsilon;    /* this uncertainty of the model */
    double *coef;      /* of the background (spx_pf_nground()): [nf][nknot], the constant, then the drift, [nf][2][3] */
    double *drift;     /* the drift's part of coef */
    double *own;       /* [nf][2][3] drift that the profiles have already */
    int whole;         /* ground is all of the background that coef and the profiles are of */
    uint8_t *drifts;   /* [nf] a fibre's drift in x is no noise */
    float *profile;    /* cross profile of each fibre: [height][nf][spx_pf_profile_width()] */
    int32_t *at;       /* first column of the profile: [height][nf] */
    size_t overlap;    /* fibres, itself among them, that a profile overlaps in any row on the side of higher numbers */
} spx_pf_pixels;

/* A row had light of spots when it was weighed; has a pixel that the hard clip takes. In spx_pf_weights(): has new
 * weights; has misfits in the place of the roots. */
enum { SPX_PF_ROW_LIT = 1, SPX_PF_ROW_FAR = 2, SPX_PF_ROW_NEW = 4, SPX_PF_ROW_MISFITS = 8 };

/* Parameters, and what follows from them. Spots are [nexp][nline][nf]. Of a bundle that is on a device the arrays of
 * spots and pixels, here and in spx_pf_pixels, are there: the host has parameters, places, fluxes and their factors. */
typedef struct {
    double *theta;
    spx_pf_at *at;
    double *gx, *gy; /* [norder][nx], [norder][ny] */
    double *c;       /* [nc] */
    double *spot;    /* [ny][nx], clipped, not normalised */
    double *flux;
    double *factor; /* Cholesky factors of N_ff, [nexp][nfactor], group by group */
    double *light;  /* sum of f S, [nexp][height][width] */
    uint8_t *lit;   /* [nexp][height] rows that have any */
    double chi2, prior;
    void *there; /* the same on a device */
} spx_pf_state;

typedef struct {
    const spx_pf_plan *p;
    size_t fibre0, nf;
    size_t nl, ngroup, nfactor, nspot;
    size_t x0, width;                     /* columns of the CCD */
    size_t nfree;                         /* lines whose wavelength is free */
    size_t ntheta, shift0, free0, shape0; /* parameters: traces, shifts, wavelengths of free lines, shape */
    spx_pf_line *line;
    spx_pf_group *group;
    spx_pf_pixels *px; /* [nexp] */
    size_t nknot;      /* B-splines along the rows of a fibre's continuum */
    double *base;      /* [ntheta] parameters that the profiles are of, but for their own drift */
    double calm;       /* relative fall of chi squared by the background's last solution */
    double *v;         /* [nf] place of each fibre on [-1, 1] */
    double *vterm;     /* [nf][na] */
    double *doubt;     /* [nf] uncertainty of the model that the hard clip allows for, a part of it */
    double *swell;     /* [nf] errors of places by those of the covariance (spx_pf_uncertain()) */
    double *fixed;     /* shape of the start, [nl][nf][2 + nc]; NULL: free */
    double *theta0;    /* the start */
    double *held;      /* [nb na][2] widths that the prior holds (spx_pf_narrow()); NULL: it does not */
    double *prior;     /* [nf][nf]: projection off cubics along fibres */
    /* of the shape's prior as it was learned, NULL: it was not: [ntheta - shape0][deg + 1], of each parameter the
     * elements of the prior's matrix with others of its term, mate[nq][deg + 1]; -1: none */
    double *precision;
    int *mate;
    spx_pf_state now, trial;
    double *slope;            /* [nl][nf][2] dX/dlambda, dY/dlambda of free lines */
    double *stamp;            /* [SPX_PF_STAMPS][nl*nf][ny*nx] of an exposure; with a fixed shape without widths */
    double *covariance;       /* of the result, [ntheta][ntheta], upper triangle; NULL: a trial has none */
    struct spx_pf_work *work; /* of normal.c */
    double *matrix;           /* one group's N_ff of the largest group, and its right-hand side */
    int reach;                /* fibres on either side whose spots overlap */
    void *there;              /* the bundle on a device, where its arrays are; NULL: they are the host's */
    /* of a pass */
    int active;    /* leading local parameters of the shape that are free: 0, 2, nq */
    int terms;     /* of traces that are free */
    double unsure; /* uncertainty of the model (spx_pf_uncertain()) */
    double soft;   /* floor of the weights, of the peaks around a pixel (spx_pf_soften()) */
    int gauge;     /* GH-1-0, GH-0-1, GH-2-0, GH-0-2 are free */
} spx_pf_bundle;

/* ---- spots.c ---- */

/* Row of GH-i-j among the local parameters; those before are GHSIGX and GHSIGY. i + j > 0. */
static inline int spx_pf_row(const spx_pf_plan *p, int i, int j)
{
    return 1 + i + (p->deg + 1) * j;
}

/* Legendre argument of a wavelength. */
static inline double spx_pf_u(const spx_pf_plan *p, double wave)
{
    return 2.0 * (wave - p->wmin) / (p->wmax - p->wmin) - 1.0;
}

/* Shape of fibre i of the bundle at a wavelength: widths and c[nc]. */
void spx_pf_shape(const spx_pf_bundle *b, const double *theta, size_t i, double wave, double *sigx, double *sigy,
                  double *c);
/* The shape that the start has, any fibre of the PSF. */
void spx_pf_shape_start(const spx_pf_plan *p, size_t fibre, double wave, double *sigx, double *sigy, double *c);

/* Trace of fibre i at a wavelength. */
void spx_pf_place(const spx_pf_bundle *b, const double *theta, size_t i, double wave, double *x, double *y);
/* Wavelength at which the trace of fibre i crosses a row, Angstrom; within the range of the series. */
double spx_pf_wave_at(const spx_pf_bundle *b, const double *theta, size_t i, double row);

/* Wavelength of a line in a state. */
double spx_pf_wave(const spx_pf_bundle *b, const spx_pf_state *s, const spx_pf_line *line);
/* All spots of a state from its parameters. 0: a width or a place is out of range. */
int spx_pf_spots(spx_pf_bundle *b, spx_pf_state *s);

/* ---- a device ---- */

/* Where a fibre crosses a row, for the profile of its continuum: the wavelength, the place in x, pixels, and what its
 * own drift adds to the variance along x, pixel^2. */
typedef struct {
    double wave, x, wider;
} spx_pf_node;

/* Pixels of a bundle as its result sees them; near NULL: spots alone are looked at. */
typedef struct {
    double *cell;   /* [SPX_PF_PHASES^2][npix][SPX_PF_CELL] residuals of bright spots (spx_pf_add_to_cell()) */
    double *offset; /* [nspot][SPX_PF_OFFSET] of the cores of bright spots (spx_pf_add_to_offset()); 0: of others */
    double *near;   /* [nf][4] of pixels near a fibre's spots: chi squared, their number, masked ones, all */
    double *part;   /* [nexp][spx_pf_nparts()][nf][2] of pixels near a fibre in SPX_PF_PART rows: chi squared, number */
    size_t nreject; /* by the hard clip, of all exposures */
} spx_pf_look;

/* The shape's parameters of one term as coefficients of functions about the middle of the spot, and back (learn.c):
 * each is a sum over those of its order, its mates. */
typedef struct {
    size_t nq, side; /* deg + 1 */
    int *mate;       /* [nq][side] parameters; -1: none */
    int *classes;    /* [nq]; -1: a place or a width to first order, which has the prior that it always has */
    double *there;   /* [nq][side] coefficient q is the sum of there[q][] times its mates */
    double *back;    /* [nq][side] B: matrices M of parameters are B M B^T of coefficients, gradients g B g */
} spx_pf_turned;

/* Steps of a bundle that go over its pixels, spots or groups, by a device: between begin and end they are what the
 * functions with their names do, and the arrays of spots and pixels are on the device, where they stay. Parameters,
 * coefficients of the background and tables of lines and groups are the host's always; places, fluxes and factors of
 * b->now after places() and take_fluxes(). One that fails tells it by its result, as if there were no solution, and end
 * says why. */
typedef struct spx_pf_device {
    void *state;
    /* a camera, whose bundles' pixels stay from stage to stage; whether those of the bundle from a fibre on are there:
     * they are kept for it until it begins */
    void (*begin_fit)(const struct spx_pf_device *d);
    int (*has_pixels)(const struct spx_pf_device *d, size_t fibre0);
    spx_status (*begin)(spx_pf_bundle *b, spx_err *e);
    spx_status (*end)(spx_pf_bundle *b, spx_err *e);
    int (*spots)(spx_pf_bundle *b, spx_pf_state *s);
    int (*fluxes)(spx_pf_bundle *b, spx_pf_state *s);
    void (*draw)(spx_pf_bundle *b, spx_pf_state *s);
    void (*first_weights)(spx_pf_bundle *b, double epsilon);
    void (*weights)(spx_pf_bundle *b, double epsilon, int clip);
    int (*soften)(spx_pf_bundle *b, double part);
    /* bright pixels of b->now, or every second, fourth ... of them, at most `most` (spx_pf_bright_sample()):
     * sample[n][SPX_PF_SAMPLE] */
    int (*bright)(spx_pf_bundle *b, size_t most, double *sample, size_t *n);
    /* places of b->now, and of each spot sum (root S)^2; groups and lines have been made: the device gets them */
    int (*places)(spx_pf_bundle *b, double *power);
    int (*regroup)(spx_pf_bundle *b);
    /* the host's are now those of b->now: fluxes and factors; and back: fluxes */
    int (*take_fluxes)(spx_pf_bundle *b);
    /* the host's fluxes are those of b->now, and their variances out[nspot] */
    int (*flux_variance)(spx_pf_bundle *b, double *out);
    int (*put_fluxes)(spx_pf_bundle *b);
    /* profiles of an exposure from those of every step-th row, node[nf][nstep + 1], whose first columns go into at */
    int (*profiles)(spx_pf_bundle *b, size_t x, size_t step, size_t nstep, const spx_pf_node *node, int32_t *at);
    /* background of an exposure by its coefficients: levels of profiles, and of their changes where `changes` is not 0,
     * and the goal */
    void (*ground)(spx_pf_bundle *b, size_t x, int continuum, int changes);
    int (*drift)(spx_pf_bundle *b, size_t x, size_t step, double *sums);
    /* continuum and constant beside the fluxes, and these, of all exposures, and the light: out[nexp][nf nknot + 1],
     * changes of the coefficients where the background is whole; it is with them then */
    int (*background)(spx_pf_bundle *b, double *out);
    /* without priors */
    int (*gradient)(spx_pf_bundle *b, double *g);
    /* The matrix, which stays on the device, with priors, and the gradient without them: weight[2 ntr] times b->prior
     * of the coefficients of traces, and diagonal[n], in whose place is the matrix's then. */
    int (*normal)(spx_pf_bundle *b, const double *weight, double *diagonal, double *g);
    int (*take_matrix)(spx_pf_bundle *b, double *h);
    /* adds add[ntheta - shape0][deg + 1] to elements of parameters of the shape and their mates[nq][deg + 1] */
    int (*add_to_matrix)(spx_pf_bundle *b, const int *mate, const double *add);
    /* step[m] of its columns at[m], with the diagonal times 1 + damping, for the gradient g */
    int (*solve)(spx_pf_bundle *b, size_t m, const size_t *at, double damping, const double *g, double *step);
    /* Precisions of coefficients of the shape by the evidence of the matrix and gradient g (learn.c), of m columns
     * at[m], the last ns of which are the shape's: z[ns] coefficients from the centres of their priors, was[ns]
     * precisions of parameters, which the matrix has and the gradient has not, of[ns] classes, of nclass;
     * precision[ns] to begin with. 0: not positive definite. */
    int (*learn)(spx_pf_bundle *b, size_t m, const size_t *at, size_t ns, const double *g, const double *z,
                 const double *was, const spx_pf_turned *t, const int *of, int nclass, double *precision);
    /* its inverse, of all columns, upper triangle, after which there is no matrix */
    int (*covariance)(spx_pf_bundle *b, double *c);
    /* residuals along traces, sums over exposures: num[nf][height], den[nf][height] (lines.c) */
    int (*residuals)(spx_pf_bundle *b, double *num, double *den);
    /* Of the wavelength of each line in exposure x, for dY/dlambda of its spots, slope[nl][nf]: of each spot what it
     * adds to the information, fluxes being known, and to the gradient, spot[nl][nf][2], and products with the spots of
     * its group, rhs[..], line by line. */
    int (*wavelengths)(spx_pf_bundle *b, size_t x, const double *slope, double *spot, double *rhs);
    /* bright[nspot]: spots whose residuals are wanted */
    int (*look)(spx_pf_bundle *b, const int *bright, spx_pf_look *to);
    /* those arrays of pixels and of spots of b->now that the host has, too: not NULL */
    int (*take_arrays)(spx_pf_bundle *b);
} spx_pf_device;

/* ---- bundle.c ---- */

/* Pixels of a cross profile: those of a spot, two more as it moves between rows, and zeros to whole lanes. */
static inline size_t spx_pf_profile_width(const spx_pf_plan *p)
{
    return ((size_t)p->nx + 2 + SPX_PF_LANES - 1) / SPX_PF_LANES * SPX_PF_LANES;
}

/* Coefficients of the background of an exposure. */
static inline size_t spx_pf_nground(const spx_pf_bundle *b)
{
    return b->nf * (b->nknot + 6) + 1;
}

/* Begins a bundle with the parameters that continue the start, theta0. */
spx_status spx_pf_begin(const spx_pf_plan *p, size_t fibre0, size_t nf, size_t nfree, spx_pf_bundle *b, spx_err *e);
/* Opens a bundle: its pixels, lines, and memory. theta: parameters to begin with,
 * those of a bundle without free lines, or NULL for those of the start, in a stage that no other comes before. */
spx_status spx_pf_open(const spx_pf_plan *p, size_t fibre0, size_t nf, size_t nline, const spx_pf_line *line,
                       const double *theta, spx_pf_bundle *b, spx_err *e);
void spx_pf_close(spx_pf_bundle *b);
/* Makes the widths of the series p->narrow of those that Gaussians have, and holds them there; GH-2-0 and GH-0-2, which
 * are widths to first order, are free instead, and begin with the same spots to that order. Sharp edges, such as a
 * fibre's image has, need high frequencies: series of degree n have them up to about sqrt(n)/width, and chi squared has
 * minima at several widths, between which steps do not go. SPX_EIO: memory. */
spx_status spx_pf_narrow(spx_pf_bundle *b, spx_err *e);
/* Groups of lines, which lines are weak, and the profiles of the background, for the parameters as they are. early: a
 * pass that others follow, and faint lines may wait. */
spx_status spx_pf_regroup(spx_pf_bundle *b, int early, spx_err *e);
/* The profiles of the background alone: those of the parameters `base`, moved and widened by their own drift. SPX_EIO:
 * memory. */
spx_status spx_pf_profiles(spx_pf_bundle *b, spx_err *e);
/* Moves traces in x, and shifts of exposures, by the continuum's own drift (spx_pf_background()), where that is no
 * noise. *moved: spots have to be made again. */
spx_status spx_pf_follow(spx_pf_bundle *b, int *moved, spx_err *e);

/* ---- weights.c ---- */

/* First weights, from the 3 x 3 medians of the image. SPX_EIO: memory. */
spx_status spx_pf_first_weights(spx_pf_bundle *b, double epsilon, spx_err *e);
/* Weights from the model: robust (0), or a hard clip (1). */
void spx_pf_weights(spx_pf_bundle *b, double epsilon, int clip);
/* Floor of the weights under a clip, for spots that the model has no terms for: the variance of a pixel has in addition
 * `part` of the light of b->now where that is brightest within the size of a spot. Photons alone give wings, whose
 * variance is small, so much weight that what the model lacks there is taken from the core, the more so the brighter
 * the lines are. 0: none. SPX_EIO: memory. */
spx_status spx_pf_soften(spx_pf_bundle *b, double part, spx_err *e);
/* By what part of itself the model of b->now is uncertain where lines are so bright that photons would tell more than
 * it has terms for: b->unsure is the epsilon at which the median misfit of bright pixels is that of noise, at most
 * 0.01; 0: it is so without. Fibres whose spots are farther from the model have their own: the clip allows for
 * b->doubt, larger in proportion, and errors are multiplied by b->swell, the root of a fibre's chi squared at
 * b->unsure. A clip by what all have would take one side of such spots, and move them until the other one fits.
 * SPX_EIO: memory. */
spx_status spx_pf_uncertain(spx_pf_bundle *b, spx_err *e);
/* Epsilon, up to `most`, at which the median of s[0] / (s[1] + epsilon^2 s[2]), s of sample[n][SPX_PF_SAMPLE] with s[3]
 * = fibre (-1: all), is that of noise; 0: it is without, within `sure` of its errors, or samples are fewer than
 * `fewest`. square[n]: room. */
double spx_pf_beyond_noise(const double *sample, size_t n, int fibre, size_t fewest, double sure, double most,
                           double *square);

/* ---- offsets.c ---- */

/* Looks at the core of a spot of an exposure: sums that tell how far it is from its place, sum[SPX_PF_OFFSET], and its
 * residuals, added to the cells of its phase (spx_pf_look). */
void spx_pf_look_at_spot(const spx_pf_bundle *b, size_t x, size_t s, double *sum, double *cell);
/* From those of all spots, what the lines of fibres are off by beyond noise, pixels: misfit[nf][2][nplace] of the nine
 * lines about each wavelength of place[nplace], in x and y, and the most about any line, most[nf]. */
spx_status spx_pf_misplaced(const spx_pf_bundle *b, const double *sums, size_t nplace, const double *place,
                            double *misfit, double *most, spx_err *e);
/* Background and fluxes of all spots together, of the state b->now, whose fluxes are known for the weights as they are:
 * least squares of continuum, constant and fluxes, after the drift from what these left before. *ok 0: no solution.
 * SPX_EIO: memory. */
spx_status spx_pf_background(spx_pf_bundle *b, int *ok, spx_err *e);
/* B-splines along rows that are not 0 in a row: *first and the SPX_PF_SPLINE - 1 after it. */
void spx_pf_splines(const spx_pf_bundle *b, size_t r, size_t *first, double *value);
/* Coefficients of the background of an exposure, out[spx_pf_nground()], all of the drift in them. */
void spx_pf_take_background(const spx_pf_bundle *b, size_t x, double *out);
/* Background from coefficients that are known, [nexp][spx_pf_nground()]. SPX_EIO: memory. */
spx_status spx_pf_put_background(spx_pf_bundle *b, const double *coef, spx_err *e);
/* Variance of a pixel with the model's m electrons, epsilon2 the square of what the model is uncertain by. */
SPX_HD double spx_pf_noise(double noise, double m, double epsilon2)
{
    return noise + (m > 0 ? m : 0) + epsilon2 * m * m;
}
/* Variance of pixel k of an exposure under the model. */
double spx_pf_variance(const spx_pf_bundle *b, size_t x, size_t k, double epsilon);

/* ---- normal.c ---- */

/* Fluxes of all spots, the light of the model, and chi squared. 0: a matrix is not positive definite. */
int spx_pf_fluxes(spx_pf_bundle *b, spx_pf_state *s);
/* Normal equations of the background of an exposure beside its fluxes: B-splines of the continuum, all fibres of one
 * after those of the one before, whose matrix is banded, and a constant. Without spots; then with their fluxes
 * eliminated. */
typedef struct spx_pf_border {
    size_t n, band;       /* nf nknot; elements of a row beyond the diagonal */
    double *a;            /* [n][band + 1] upper triangle: element (i, j) is a[i (band + 1) + j - i] */
    double *rhs;          /* [2][n]: right-hand side, products with the constant */
    double corner, level; /* the constant by itself, and its right-hand side */
    double *product;      /* N_ff^-1/2 N_fb of all groups: [fluxes of a group][columns and the constant] */
    size_t *at;           /* [ngroup + 1] where each begins */
    double *column;       /* [n + 1] sums by the columns of a group */
} spx_pf_border;

/* Fluxes of b->now and coefficients of the border together, goal being that without either: out[nf][nknot], and the
 * constant. 0: no solution. */
int spx_pf_bordered(spx_pf_bundle *b, size_t x, spx_pf_border *to, double *out);
/* B-splines that the rows of a group touch, from *first on; columns: nf times the result. */
size_t spx_pf_border_splines(const spx_pf_bundle *b, size_t x, const spx_pf_group *g, size_t *first);
/* Light of the spots with their fluxes, and chi squared of all pixels. */
void spx_pf_draw(spx_pf_bundle *b, spx_pf_state *s);
/* Memory that spx_pf_normal() keeps. */
void spx_pf_work_free(struct spx_pf_work *w);
/* Prior of a state, s->prior. */
void spx_pf_prior(const spx_pf_bundle *b, spx_pf_state *s);
/* Centre and 1/sigma^2 of the prior of parameter k of the shape, before it is learned. */
double spx_pf_shape_prior(const spx_pf_bundle *b, size_t k, double *centre);
/* Row k of the matrix of the learned prior times v[nq], parameters of its term. */
double spx_pf_prior_row(const spx_pf_bundle *b, size_t k, const double *v);
/* Adds the learned prior to the matrix h[n][n], upper triangle, or to that on a device, and takes the diagonal was[] of
 * the shape's parameters off (NULL: none). SPX_EIO: memory. */
spx_status spx_pf_add_learned(spx_pf_bundle *b, const double *was, size_t n, double *h, spx_err *e);
/* Columns of a pass: traces, shifts, and `active` parameters of the shape. */
size_t spx_pf_columns(const spx_pf_bundle *b);
/* Gauss-Newton matrix H[n][n] (upper triangle) and gradient g[n] of the pass' columns with fluxes eliminated, priors
 * included; on a device the matrix stays there. SPX_EIO: memory. *ok 0: a matrix is not finite. */
spx_status spx_pf_normal(spx_pf_bundle *b, double *h, double *g, int *ok, spx_err *e);
/* The gradient alone, g[n]. SPX_EIO: memory. */
spx_status spx_pf_gradient(spx_pf_bundle *b, double *g, spx_err *e);
/* Parameter of column k. *is_free: it is free in this pass. */
size_t spx_pf_parameter(const spx_pf_bundle *b, size_t k, int *is_free);
/* Variances of fluxes, out[nspot], from the factors of the state. 0: not positive definite. */
int spx_pf_flux_variance(spx_pf_bundle *b, double *out);

/* ---- learn.c ---- */

/* Priors of the shape by their evidence (empirical Bayes): coefficients of one class are draws of one variance, which
 * the arc tells: sigma^2 = <c^2> by expectation and maximisation (Dempster, Laird & Rubin 1977, J. R. Stat. Soc. B 39,
 * 1). Of the functions of one i + j and one term along fibres and wavelengths, He_i He_j scaled to norm 1, the round
 * one (that of polar shapelets without angle, Massey & Refregier 2005, MNRAS 363, 197) is a class, and the others are
 * one: images of fibres and charge that spreads are nearly round, and a class of all would shrink what they have, and
 * leave noise to the others. Terms that a camera has stay as they are, others lose most of their noise; so terms may be
 * many. Of a pass in which all parameters are free, whose matrix and gradient are h and g; these change with the prior,
 * and b->now.prior. SPX_EIO: memory. */
spx_status spx_pf_learn(spx_pf_bundle *b, double *h, double *g, spx_err *e);
/* Adds to the covariance of the shape's parameters, c[ntheta - shape0] squared, that variances of learned priors are
 * not known: mean and variance of a class have those of all sigma that the arc allows (the law of total covariance, of
 * one class at a time), and other parameters follow as the covariance says. With priors taken for known, what is left
 * of spots is 1.2 to 1.4 times what it says. SPX_EIO: memory. */
spx_status spx_pf_unknown_priors(const spx_pf_bundle *b, double *c, spx_err *e);

/* ---- passes.c ---- */

/* Why a bundle is not fitted: too few of its fibres have light, or equations have no solution. */
typedef enum { SPX_PF_GOES_ON, SPX_PF_DARK, SPX_PF_UNSOLVED, SPX_PF_HOPELESS } spx_pf_failure;

typedef struct {
    int niter, converged;
    spx_pf_failure failed;
    double seconds;
} spx_pf_run;

/* Model that stage 0 has left, besides parameters. */
typedef struct {
    size_t nl, *row; /* lines on the CCD, rows of the camera's list */
    double *flux;    /* [nexp][nl][nf] */
    double *coef;    /* of the background, [nexp][spx_pf_nground()] */
} spx_pf_model;

/* Passes "place" to "clip" (model NULL), or those after lines were looked at: "final", which goes on from the model
 * of the stage before, or, when lines have changed, "clip" before it. Of traces alone "place" and "final", or "final".
 */
spx_status spx_pf_passes(spx_pf_bundle *b, const spx_pf_model *model, int changed, int max_iterations, spx_pf_run *run,
                         spx_err *e);

/* ---- lines.c ---- */

/* What a bundle says of a line. */
typedef struct {
    double info, gradient; /* of its wavelength, Angstrom^-2 and Angstrom^-1, fluxes eliminated */
    double offset;         /* from where the bundle began with it, Angstrom */
    double power;          /* sum of (S/N)^2 of the fibres where it is bright */
    int nbright, nseen;    /* fibres with S/N above 10; on the CCD */
} spx_pf_line_news;

typedef struct {
    double wave;
    int nfibre;
} spx_pf_light;

/* Of each line of the bundle, news[1 + nexp][nline], lines by their row in the camera's list: of all exposures
 * together, where a fibre is bright that is so in any, and of each. */
spx_status spx_pf_line_steps(spx_pf_bundle *b, size_t nline, spx_pf_line_news *news, spx_err *e);
/* Light in the residuals that no line explains: *light[*n], freed with spx_free(). */
spx_status spx_pf_unlisted(spx_pf_bundle *b, spx_pf_light **light, size_t *n, spx_err *e);

/* ---- finish.c ---- */

/* Puts the result of a bundle into psf and fit: traces, shape, errors, fluxes, flags. number: the bundle's. shift:
 * those of exposures and their variances, [nshift][2]. SPX_EIO: memory. */
spx_status spx_pf_finish(spx_pf_bundle *b, const spx_pf_run *run, size_t number, double *shift, spx_psf *psf,
                         spx_psffit *fit, spx_err *e);
/* Error of the PSF from a bundle's sums, or those of all bundles: a fraction, 0: not measured. */
double spx_pf_psf_error(double misfit, const double of[2]);
/* Chi squared by a stacked pixel of the residuals of bright spots of b->now, whose fluxes are known, that their places
 * make, beyond what noise makes at most. *ok 0: no solution. SPX_EIO: memory. */
spx_status spx_pf_places_off(spx_pf_bundle *b, double *off, int *ok, spx_err *e);
/* Sums of their stacked residuals, as those of the result: misfit, unlike and what these are of. */
spx_status spx_pf_misfit(spx_pf_bundle *b, spx_psffit_bundle *to, int *ok, spx_err *e);
/* A bundle that was not fitted: traces of the PSF that shifts are against, moved by dx, dy pixels, shape of the start,
 * which a trial leaves 0. */
spx_status spx_pf_keep_start(const spx_pf_plan *p, size_t number, size_t fibre0, size_t nf, double dx, double dy,
                             spx_psf *psf, spx_psffit *fit, spx_err *e);
/* Memory of *psf, for results of a plan. */
spx_status spx_pf_new_psf(const spx_pf_plan *p, spx_psf *psf, spx_err *e);

/* ---- kernels for an instruction set ---- */

/* Sums over pixels for the background of weights w and profiles p_i with their moments along the rows of an interval of
 * the B-splines, t of 0 to 1. */
typedef struct {
    size_t band;        /* fibres from i on whose profiles overlap with its own */
    double *pair;       /* t^l w p_i p_i+k: [SPX_PF_PAIR][nf][band] */
    double *one;        /* t^l w p_i (data - ground), t^l w p_i: [SPX_PF_SPLINE][nf][2] */
    double *row;        /* room for those of a row: [nf (band + 2)] */
    double weight, sum; /* w, w (data - ground) */
} spx_pf_moments;

/* Terms of the piece of a cubic B-spline, and powers of the product of two. */
enum { SPX_PF_SPLINE = 4, SPX_PF_PAIR = 2 * SPX_PF_SPLINE - 1 };

/* Terms of spx_pf_kernels.combine that are worked on together. */
enum { SPX_PF_TERMS = 7 };

/* Stamps of a spot, [ny][nx]: root S; root f times the derivatives of S; root f where it is not clipped, which the
 * Gauss-Hermite functions multiply. */
enum {
    SPX_PF_BY_FLUX,
    SPX_PF_BY_X,
    SPX_PF_BY_Y,
    SPX_PF_BY_SIGX,
    SPX_PF_PLACES = SPX_PF_BY_SIGX,
    SPX_PF_BY_SIGY,
    SPX_PF_DENSE,
    SPX_PF_LIT = SPX_PF_DENSE,
    SPX_PF_STAMPS
};

/* Part of a spot from a pixel of its stamps on. */
typedef struct {
    const double *stamp[SPX_PF_STAMPS]; /* rows of nx pixels */
    const double *across;               /* g_i(x) by columns, [..][pad] */
    const double *gy;                   /* g_j(y), rows of ny */
} spx_pf_part;

/* Orders of Gauss-Hermite functions, to whole lanes. */
static inline size_t spx_pf_pad(const spx_pf_plan *p)
{
    return ((size_t)p->deg / SPX_PF_LANES + 1) * SPX_PF_LANES;
}

/* Products of these of two spots, to whole blocks of lanes; those of a stamp with all derivatives of a spot. */
static inline size_t spx_pf_pair_width(const spx_pf_plan *p)
{
    enum { BLOCK = 8 * SPX_PF_LANES };
    return ((size_t)(p->deg + 1) * spx_pf_pad(p) + BLOCK - 1) / BLOCK * BLOCK;
}

static inline size_t spx_pf_projected(const spx_pf_plan *p)
{
    return 2 + (size_t)(p->deg + 1) * spx_pf_pad(p);
}

typedef struct {
    /* Pixel-integrated Gauss-Hermite functions, g[deg + 1][n], as spx_gauss_hermite() makes them but for rounding */
    void (*hermite)(int deg, int n, double d, double sigma, double *g);
    /* Pixels of a spot, negative ones clipped, spot[ny][nx]; their sums along columns, out[nx]. gx has one order more
     * than deg, which is read, but not used. */
    void (*spot)(const spx_pf_plan *p, const double *gx, const double *gy, const double *c, double *spot);
    void (*profile)(const spx_pf_plan *p, const double *gx, const double *gy, const double *c, double *out);
    /* out[n] = (1 - t) a + t b */
    void (*between)(size_t n, const double *a, const double *b, double t, float *out);
    /* Sum of products of h rows and w columns. Of a and b whole vectors are read, SPX_PF_LANES doubles. */
    double (*dot)(int h, int w, const double *a, size_t astride, const double *b, size_t bstride);
    /* Of the part of a spot within the bundle, whose pixel (0,0) is that of root and light, of rows of `width`: out =
     * root S, rows of nx; light += f S. */
    void (*weigh_spot)(const spx_pf_at *at, int nx, const double *spot, const float *root, size_t width, double *out);
    void (*draw_spot)(const spx_pf_at *at, int nx, const double *spot, double flux, size_t width, double *light);
    /* Derivatives of one spot, whose c, gx, gy, widths and pixels are as in the state, times root: stamps from
     * SPX_PF_BY_X on, and g_i(x) by columns, by_column[nx][pad]; those by the widths, SPX_PF_LIT and by_column where
     * `widths` is not 0. root has `width` pixels a row; pixel (0,0) of the stamp is `at_root` of them, its part within
     * them alone is read. */
    void (*derive)(const spx_pf_plan *p, int widths, const spx_pf_at *at, const double *gx, const double *gy,
                   const double *c, const double *spot, double flux, const float *root, long at_root, size_t width,
                   double *const stamp[SPX_PF_STAMPS], double *by_column);
    /* Of two spots that overlap in h rows and w columns: products of their derivatives by GH-i-j and GH-i'-j', times
     * by[t] each, added to sum[na na][side][side][pair_width], [t][j][j'][i pad + i']. */
    void (*shapes)(const spx_pf_plan *p, int h, int w, const spx_pf_part *s, const spx_pf_part *m, const double *by,
                   double *sum);
    /* Products of the first n stamps of s with the derivatives of m, times by[a] each, added to out[n][na][projected]:
     * by GHSIGX, GHSIGY, and, where `whole` is not 0, GH-i-j at 2 + j pad + i. */
    void (*project)(const spx_pf_plan *p, int h, int w, int n, int whole, const spx_pf_part *s, const spx_pf_part *m,
                    const double *by, double *out);
    /* Products of the first SPX_PF_PLACES stamps of two spots, `step` numbers apart, in h rows of w columns:
     * out[SPX_PF_PLACES][SPX_PF_PLACES]. */
    void (*places)(int h, int w, const double *a, const double *b, size_t step, size_t nx, double *out);
    /* to[n] += by from */
    void (*add)(size_t n, double by, const double *from, double *to);
    /* to[q][n] += sum over m < nrow of weight[m][q] row m, q < nterm; rows are `size` apart, and whole vectors of them
     * are read, as SPX_PF_TERMS of the weights. */
    void (*combine)(size_t nrow, const double *row, size_t size, size_t nterm, const double *weight, size_t n,
                    double *const *to);
    /* out[2 + active] = f sum over pixels of root rest dS/dq, q the place and the shape; rest is the bundle's as root,
     * whose pixel at_pixel is (0,0) of the stamp */
    void (*gradient)(const spx_pf_plan *p, int active, const spx_pf_at *at, const double *gx, const double *gy,
                     const double *c, const double *spot, double flux, const float *root, const double *rest,
                     long at_pixel, size_t width, double *out);
    /* n pixels of an exposure from pixel `at`, light: theirs. misfit: |data - m| / sqrt V in the place of the root, 0
     * where masked. weigh: root of min(1, (robust / t)^2) / V, V of the model or of the median image, where that is
     * brighter; goal; returns the sum of goal^2. weigh_clipped: the same of 1 / V, V of the model; *far: a pixel may be
     * above SPX_PF_CLIP. */
    void (*misfit)(size_t n, const spx_pf_pixels *px, size_t at, const double *light, double epsilon);
    double (*weigh)(size_t n, const spx_pf_pixels *px, size_t at, const double *light, double epsilon, double robust);
    double (*weigh_clipped)(size_t n, const spx_pf_pixels *px, size_t at, const double *light, double epsilon,
                            int *far);
    /* sum (goal - root light)^2 */
    double (*squares)(size_t n, const double *goal, const float *root, const double *light);
    /* Of pixels 1 ... n-2 of a row, rows having n pixels: medians of 3 x 3, and whether all nine are good */
    void (*medians)(size_t n, const float *data, const float *noise, float *out, uint8_t *whole);
    /* Background, row r; work, zeros: two rows and nf profiles, each with a profile's width on either side. moments:
     * adds the row to m, power[k] = t^k of the row (k < SPX_PF_PAIR). drift: of each fibre sums w d v, w d d,
     * w s v, w s s, out[nf][4], of v = data - ground - light and the changes d, s of its profile by a shift of a pixel
     * and by half a pixel^2 of variance. ground: background, and goal, from the levels of each fibre's profile, d and
     * s, level[nf][3], and the constant; returns the sum of goal^2. */
    void (*moments)(const spx_pf_bundle *b, const spx_pf_pixels *px, size_t r, const double *power, double *work,
                    spx_pf_moments *m);
    void (*drift)(const spx_pf_bundle *b, const spx_pf_pixels *px, size_t r, const double *light, double *work,
                  double *out);
    double (*ground)(const spx_pf_bundle *b, const spx_pf_pixels *px, size_t r, const double *level, double constant,
                     double *work);
} spx_pf_kernels;

const spx_pf_kernels *spx_pf_kernels_find(void);
const spx_pf_kernels *spx_pf_kernels_base(void);
/* NULL: the processor lacks the instructions. */
const spx_pf_kernels *spx_pf_kernels_avx2(void);
const spx_pf_kernels *spx_pf_kernels_avx512(void);

#endif
