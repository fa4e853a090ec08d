/* The model of a star: templates at a point of the parameters, and the objective with its derivatives (rvfit/README has
 * the equations). A context holds what is common to all stars, spx_rv_spectra one star, and a workspace, which belongs
 * to one thread, what is computed of a star at a time.
 *
 * Points are in internal units, x[2+npar]: v, vsini as in model/math.h, mapped parameters. Free quantities are those
 * that the fit varies; gradient and curvature refer to them in the order of ctx->freeq. */
#ifndef SPX_RVFIT_MODEL_H
#define SPX_RVFIT_MODEL_H

#include <fftw3.h>
#include <stdint.h>

#include "rvfit/model/math.h"
#include "rvfit/rvfit.h"

enum {
    SPX_RV_LANES = 8,    /* velocities of a scan side by side; rows of pixels are padded to so many: any vector's */
    SPX_RV_TILE = 32,    /* pixels of a tile of the principal components */
    SPX_RV_LARGE = 8,    /* components that are summed in double precision: what follows is small */
    SPX_RV_BLOCK = 256,  /* most pixels of a block of a scan */
    SPX_RV_PAD = 16,     /* coefficients are padded to so many: any vector's */
    SPX_RV_KNOTS = 18,   /* numbers beyond those of a template's pixels that a scan has memory for */
    SPX_RV_BATCH = 16,   /* stars that advance together */
    SPX_RV_TOGETHER = 8, /* stars whose errors are computed side by side */
    SPX_RV_BIN = 4,      /* pixels of a coarse one */
    SPX_RV_MAX_NODE = 1 << (2 * SPX_MAX_PAR), /* templates that a cubic interpolation takes */
    SPX_MAX_NDIAG = 129,                      /* diagonals of a resolution matrix */
    SPX_RV_MOST_LAG = 129                     /* of filters, pixels */
};

/* Pixels begin ... end-1, multiples of SPX_RV_LANES, at which none but functions first ... first+n-1 differ from 0. */
typedef struct {
    size_t begin, end, first, n;
} spx_rv_span;

/* Functions of the continuum of an arm. Splines overlap with few others, so that S'S is a band; the other forms have
 * one span, and a band that is all of S'S. */
typedef struct {
    size_t n, stride; /* functions; pixels of a row */
    double *value;    /* [n][stride], 0 beyond the last pixel; forms other than splines are orthonormal */
    double lndet;     /* ln det(S'S) of the functions as they are defined less that of these */
    size_t band;      /* functions whose numbers differ by more have no pixel in common */
    size_t nspan;
    spx_rv_span *span; /* of all pixels, in their order */
} spx_rv_basis;

/* The functions' best straight lines in blocks of pixels, for the velocity scan (search/scan.c). */
typedef struct {
    size_t per;          /* pixels of a block; 0: the objective itself is scanned */
    size_t functions, n; /* blocks */
    size_t band;         /* as that of the functions, of whole blocks */
    size_t (*range)[2];  /* [n] first and number of the functions that differ from 0 in a block */
    double *line;        /* [n][2][SPX_RVFIT_MAX_POLY] value in the middle, and slope */
} spx_rv_lines;

/* A pixel of a velocity scan: 1/e^2, that times x and x^2, flux/e^2, that times x, where x is from the middle of its
 * block; and its place on the templates' grid at v = 0, k + u with 0 <= u < 1. */
typedef struct {
    double weight[5];
    int32_t k;
    float u;
} spx_rv_scan_pixel;

/* Heavy loops (model/lanes.h). Arrays over pixels have a stride that is a multiple of SPX_RV_LANES, zero beyond the
 * last pixel. */
typedef struct {
    /* out[nlane][n] = sum over nodes of weight[nnode][nlane] coef[row[node]][n]; n is a multiple of SPX_RV_PAD */
    void (*combine)(size_t n, size_t nnode, const int32_t *row, const float *weight, size_t nlane, const float *coef,
                    float *out);
    /* For n stars: plane[star][ntile * SPX_RV_TILE]: mean + sum_k c_k comp_k, slope[star][L - 1][ntile * SPX_RV_TILE]:
     * the same of the derivatives' coefficients, without the mean. comp[ntile][nc][SPX_RV_TILE]; cd[star][nc][L] is
     * used for the first nd of the values, cf[star][nc][L] for the rest. */
    void (*components)(size_t L, size_t ntile, size_t nd, size_t nc, const float *comp, const double *mean, size_t n,
                       const double *const *cd, const float *const *cf, double *const *plane, float *const *slope);
    void (*exponential)(size_t n, double *x); /* in place; n a multiple of SPX_RV_LANES */
    void (*slopes)(size_t n, const float *flux, const float *dln, float *out); /* their product */
    void (*scaled)(size_t n, const double *x, double scale, float *out);       /* scale x */
    /* Rotation, weights 0 ... reach; beyond the ends the template is constant. */
    void (*broaden_one)(size_t n, size_t reach, const double *weight, const double *f, double *y);
    void (*broaden_float)(size_t n, size_t reach, const float *weight, const float *f, float *y);
    /* Coefficients c[-1 ... n] of the spline through y[n] by B-splines; m[n] is scratch. n >= 3 */
    void (*coefficients)(size_t n, const double *cprime, const double *y, double *m, double *c);
    void (*coefficients_float)(size_t n, const double *cprime, const float *y, float *m, float *c);
    /* Values and derivatives at the pixels, of such coefficients: t[1 + slope + nlane][stride] is the value, its
     * derivative by v if `slope`, and the others, s[nlane][sstride]. */
    void (*sample)(size_t n, const double *place, double shift, double dshift, size_t nt, const double *c,
                   const float *s, size_t sstride, size_t nlane, int slope, double *t, size_t stride);
    void (*sample_one)(size_t n, const double *place, double shift, size_t nt, const double *c, double *t);
    /* out[npix][SPX_RV_LANES]: templates moved by shift[SPX_RV_LANES] of their pixels at those of a piece, as its
     * resolution matrix makes them, band[ndiag][npix]. Between template pixels k and k + 1 a template is the sum of
     * curve[i][1+k] u^i, i < 4, u = 0 ... 1; at -1 and nt - 1 the first of these is the value at that end, and the
     * others are 0. Beyond nt these are read up to SPX_RV_KNOTS, and have no weight. */
    void (*moved)(size_t npix, const spx_rv_scan_pixel *pixel, const float *const *curve, size_t nt,
                  const double *shift, size_t ndiag, const double *band, double *out);
    /* f[SPX_RV_LANES]: the objective of a piece at so many velocities, with a continuum that is linear in blocks, less
     * what does not depend on v; HUGE_VAL where it cannot be computed. Either of the templates' pixels knot[1+k], with
     * differences to the next ones rise[1+k] (-1 and nt: their ends' values), moved by shift[SPX_RV_LANES]; or of the
     * templates at the pixels, t[npix][SPX_RV_LANES]. Beyond nt these are read up to SPX_RV_KNOTS, and have no weight.
     */
    void (*scan)(size_t npix, const spx_rv_lines *lines, const spx_rv_scan_pixel *pixel, const float *knot,
                 const float *rise, size_t nt, const double *shift, const double *t, double *f);
    /* gram: S'S by diagonals, [band+1][functions] as calib/band.h has them; right[functions]: S'D. */
    void (*normal)(const spx_rv_basis *basis, const double *t, const double *ie, const double *flux, double *gram,
                   double *right);
    /* cont = sum_k coef_k basis_k; returns |D - S a|^2 */
    double (*residual)(const spx_rv_basis *basis, const double *coef, const double *t, const double *ie,
                       const double *flux, double *cont);
    /* out[functions+1+nf][nf]: S'u, half of the gradient, u'u (model/model.c). inverse: the band of (S'S)^-1. */
    void (*curvature)(const spx_rv_basis *basis, size_t nf, const double *inverse, const double *cont, const double *t,
                      const double *ie, const double *flux, double *out);
    /* out_i = sum_k band[k][i] in_(i-h+k), h = ndiag/2: rows in[nrow][stride] of n values by a band with diagonals
     * [ndiag][n], 0 beyond their ends. */
    void (*resolve)(size_t n, size_t ndiag, const double *band, size_t nrow, size_t stride, const double *in,
                    double *out);
    /* m columns of rows[ndiag][n], each by ((1 - t) M + t N), matrices [ndiag][ndiag], t[m]; N NULL: by M. */
    void (*match)(size_t ndiag, size_t n, size_t m, const double *M, const double *N, const double *t, double *rows);
    /* out[SPX_RV_TAPS][n] = sum over r < per of tap[r][SPX_RV_TAPS] times p[per][n] = s conj(f) + v conj(f2), complex;
     * si, vi: -i times s and v, (imaginary part, -real part). n is a multiple of SPX_RV_LANES. */
    void (*correlate)(size_t n, size_t per, const float *tap, const float (*s)[2], const float (*si)[2],
                      const float (*v)[2], const float (*vi)[2], const float (*f)[2], const float (*f2)[2],
                      float (*out)[2]);
} spx_rv_kernels;

/* NULL: not for this processor. */
const spx_rv_kernels *spx_rv_kernels_base(void);
const spx_rv_kernels *spx_rv_kernels_avx2(void);
const spx_rv_kernels *spx_rv_kernels_avx512(void);

/* Templates with an LSF of their own, and resolution matrices (model/lsf_match.c). */
typedef struct {
    double *g;      /* [n] sigma of the templates' LSF, pixels of the arm */
    size_t nclass;  /* of g, in equal steps of its logarithm, from `least` on */
    double *place;  /* [n] where g lies among these, 0 ... nclass-1 */
    double least;   /* pixels */
    double *matrix; /* [nclass][SPX_RV_LEVELS][ndiag][ndiag] makes a row of R a row of the band */
    double *lag;    /* [nclass][SPX_RV_LEVELS][3][ndiag] autocorrelations, for the misfit */
} spx_rv_match;

/* Samples of the templates between the bin centres, for a transmission of the atmosphere (model/transmission.c). per 0:
 * there is none. */
typedef struct {
    size_t per, n;  /* samples of a bin, odd; of the arm, sample i per + per/2 at the centre of bin i */
    size_t half;    /* a row of the band has samples -half ... half from its bin's centre */
    size_t reach;   /* and a kernel 0 ... reach */
    double *place;  /* [n] on the templates' grid at v = 0 */
    double *wave;   /* [n] Angstrom, in the medium of the transmission */
    double *kernel; /* [match.nclass][SPX_RV_LEVELS][reach+1] weights of the samples around the centre of a bin */
} spx_rv_fine;

/* Inverse transform where it is wanted at few lags only, of P_f, f = 0 ... nshort/2. Convolved with a window h that is
 * narrow in frequency and whose transform g falls off beyond these lags, P is needed at every per-th frequency only:
 * Q_m = sum_f h(f - m per) P_f has the inverse transform g_j p_j, in a length of nshort/per (gridding: Jackson et al.
 * 1991, IEEE Trans. Med. Imaging 10, 473). Spectra for it have frequency (b - SPX_RV_TAPS/2) per + r at [r][b], as
 * that of a real function continues beyond its ends. */
enum { SPX_RV_TAPS = 8 };
typedef struct {
    size_t per, nblock, length; /* [per][nblock], 0 behind length/2 + SPX_RV_TAPS of them; length nshort/per */
    float *window;              /* [per][SPX_RV_TAPS] h((b - SPX_RV_TAPS/2) per + r) */
    float *comp;                /* [nccf][2][per][nblock][2] the components */
    size_t first, n;            /* samples that the lags need, cyclic from the first one on */
    size_t *at;                 /* [nlag] first of four of these, and their weights, g divided out */
    float *weight;              /* [nlag][4] */
    fftwf_plan inverse;
} spx_rv_few_lags;

/* One arm: its pixels on the templates' grid, and the continuum. */
typedef struct {
    size_t index;       /* arm of the spectra */
    const spx_arm *arm; /* of the batch */
    const spx_setup *setup;
    double *wave;         /* [n] wavelengths, Angstrom, that the rest is for */
    size_t ndiag;         /* of the resolution matrix, where it is used; else 0 */
    size_t n, nt;         /* pixels, template pixels */
    size_t stride, ntile; /* of arrays over pixels; tiles of the template's */
    float *comp;    /* [ntile][ncomp][SPX_RV_TILE] principal components; NULL: the templates themselves are used */
    double *mean;   /* [ntile * SPX_RV_TILE] */
    size_t ncoef;   /* ncomp, padded; */
    float *coef;    /* [ntemp][ncoef] coefficients of the templates, of the setup's in single precision, or NULL */
    double *lnwave; /* [n] in the templates' medium */
    double *place;  /* [n] place on the templates' grid at v = 0 */
    spx_rv_basis basis;
    spx_rv_lines lines;
    double *cprime;     /* [nt] of the spline */
    uint8_t *leftout;   /* [n] pixels that no star uses */
    spx_rv_match match; /* with resolution matrices */
    spx_rv_fine fine;
    /* Cross-correlation: entry t of the set is about sum_k ccf_coef[t][k] times component k, whose transform and that
     * of its square's counterpart are ccf_comp[k][2][nfreq][2]. Frequencies that the templates do not have are left
     * out. */
    size_t nccf, nshort; /* components; length of the inverse transform, nfreq = nshort/2 + 1 */
    const float *ccf_comp, *ccf_coef;
    spx_ccf_pca ccf_made; /* where the setup does not have them */
    size_t *lag_at;       /* [nlag] first of four samples of the inverse transform, and their weights */
    float *lag_weight;    /* [nlag][4] */
    int32_t *rebin_at;    /* [nwave of the set] sample k lies between pixels rebin_at[k], -1: none, and the next, at */
    double *rebin;        /* [nwave of the set] this fraction */
    fftwf_plan forward;
    spx_rv_few_lags few;
} spx_rv_arm;

/* Parameters of the templates, of a grid, simplices or a network. */
typedef struct {
    int parlog[SPX_MAX_PAR];
    double transform[SPX_MAX_PAR], origin[SPX_MAX_PAR]; /* of spx_rv_axis_transform(), which is after the logarithm */
    size_t naxis[SPX_MAX_PAR];
    double *axis[SPX_MAX_PAR];                         /* mapped nodes */
    size_t ng, gpar[SPX_MAX_PAR], stride[SPX_MAX_PAR]; /* parameters with more than one node; step in node[] */
    size_t nsimplex;
    double *simplex; /* [nsimplex][ng+1][ng+1] barycentric coordinates: row k times (1, mapped parameters) is that of
                      * corner k; HUGE_VAL: the simplex has no volume */
} spx_rv_grid;

/* Sizes of the cross-correlation, and its velocities lag_v0 + i lag_step, which all arms share. */
typedef struct {
    size_t n, ncomp;            /* largest of all arms: samples of a set, components, */
    size_t nfew, nsum, nsample; /* and of spx_rv_few_lags frequencies, sums of the taps, samples */
    size_t stride;              /* between arms, of transforms: keeps FFTW's alignment */
    size_t nlag;
    double lag_v0, lag_step; /* km/s */
    size_t main;             /* as in spx_rv_set; */
    float *place;            /* [entries of the set][npar] too */
} spx_rv_lags;

/* Velocities of the velocity scan, c->lo[0] + i step in km/s; n 0: there is none. */
typedef struct {
    size_t n;
    double step;
} spx_rv_scan;

/* Largest of all arms, for workspaces. */
typedef struct {
    size_t n, nt;  /* strides of arrays over pixels and over template pixels */
    size_t sample; /* that of arrays over samples: of pixels, or those between them */
    size_t comp;   /* principal components */
    size_t band;   /* elements of the resolution matrix of a piece */
    size_t width;  /* of the networks' layers */
} spx_rv_sizes;

/* The batch (in, nstar, arm[].arm), and what does not depend on it: a plan's context has no batch, that of a batch is
 * the plan's with the batch, and owns nothing. */
typedef struct spx_rv_ctx {
    const spx_rvfit_input *in;
    const spx_rvfit_options *opt;
    const spx_rv_kernels *kernels;
    spx_interpolator interpolator; /* not AUTO */
    size_t nstar;
    size_t narm, npar, nq; /* nq = 2 + npar */
    spx_rv_arm arm[SPX_MAX_ARM];
    size_t nfree, freeq[SPX_MAX_FIT];
    double start[SPX_MAX_FIT], lo[SPX_MAX_FIT], hi[SPX_MAX_FIT]; /* fixed: lo = hi = start */
    double slow;                                                 /* a of the internal vsini (model/math.h) */
    spx_rv_grid grid;
    spx_rv_lags ccf;
    spx_rv_scan scan;
    spx_rv_sizes size;
    struct spx_rv_ctx *coarse; /* to follow starts on (model/coarse.c); NULL: there is none */
} spx_rv_ctx;

/* Threads of the loops that make a plan, each 10 to 50 ms of one core's work, mostly while a device's context is being
 * made: more of them spin between the loops, and hold that up. */
static inline int spx_rv_plan_threads(const spx_rv_ctx *c)
{
    enum { FEW = 4 };
    return c->opt->threads < 1 ? 1 : c->opt->threads < FEW ? c->opt->threads : FEW;
}

struct spx_rvfit_plan {
    spx_rv_ctx ctx;
    void *device; /* a backend's copies on its devices */
};

/* A piece of a star: one arm of one exposure. */
typedef struct {
    size_t arm;        /* of the context */
    size_t exposure;   /* index in the input's row[] */
    double *flux, *ie; /* [stride] filled flux, 1/e */
    uint8_t *good;     /* [n] */
    double *band;      /* diagonals of the resolution matrix, ready for use (spx_rv_match_rows()); or NULL */
    double *air;       /* [2][fine.n] transmission at the samples, and what multiplies the differences of neighbours */
    double width;      /* with a resolution matrix: sigma of its rows, pixels, */
    double misfit;     /* and what the templates' LSF cannot be made of these, rms over rms; medians */
    /* With jitter, else NULL: errors without it, smooth level of the flux, a second model (search/misfit.c). */
    double *sigma, *level, *other;
    double sum_lne2; /* 2 sum ln e */
    double large;    /* error of a bad pixel */
    size_t ngood, nreject;
    double sn;
    /* at the last models(): model [stride], chi^2 over good pixels with it, and with the continuum alone; HUGE_VAL and
     * a model of 0 where there is none */
    double *model, chisq, chisq_c;
    float *kept;  /* of a star that is unread: where the model goes; NULL: nowhere */
    void *memory; /* block of the arrays of this piece and those behind it; NULL: it is another's */
} spx_rv_data;

/* What the pixels of a piece say when they are read: as in spx_rv_data, and why the piece is left out, a spx_rvfit_bad.
 */
typedef struct {
    double large, sn, sum_lne2;
    double width, misfit; /* with resolution matrices */
    int32_t ngood, bad;
} spx_rv_read;

/* What a rejection has done to a piece. */
typedef struct {
    double sum_lne2;
    int32_t found;
} spx_rv_rejected;

typedef struct {
    double f; /* objective; HUGE_VAL where it cannot be computed */
    double grad[SPX_MAX_FIT], hess[SPX_MAX_FIT * SPX_MAX_FIT];
} spx_rv_value;

/* Templates of a star at a point: c[1+k] is coefficient k of their splines by B-splines, -1 ... nt. */
typedef struct {
    const void *owner; /* the spectra; NULL: of none any more */
    double x[SPX_MAX_FIT];
    double *c[SPX_MAX_ARM];
} spx_rv_templates;

/* What is computed of one star at a time; the stars of a batch share it. */
typedef struct {
    void *memory;                                /* of all arrays but those of kept[] */
    spx_rv_templates own, kept[SPX_RV_TOGETHER]; /* the last ones; those of stars side by side */
    const spx_rv_templates *at;                  /* those in use */
    float *s[SPX_MAX_ARM];                       /* coefficients of splines of derivatives, [SPX_MAX_FIT][nt+2] */
    double *plane[SPX_RV_BATCH];                 /* [maxnt] */
    float *slope[SPX_RV_BATCH];                  /* [npar][maxnt] */
    double *rot;                                 /* [2][maxnt] */
    float *rotf;                                 /* [3][maxnt] */
    double *t, *t2;                              /* [1+nfree][max of samples] at the pixels, or the samples between */
    double *product;                             /* [max of samples] */
    double *q, *r, *w;                           /* [maxn] */
    double *u;                                   /* [nfree][maxn] */
    spx_rv_scan_pixel *pixel;                    /* [maxn] of the velocity scan, */
    float *curve[4];                             /* [maxnt+SPX_RV_KNOTS], the last two with resolution matrices, */
    double *rows;                                /* as [maxn][SPX_RV_LANES] */
    int32_t *node, *row;                         /* [SPX_RV_MAX_NODE] of the interpolation; rows of an arm */
    double *weight;                              /* [SPX_RV_MAX_NODE][1+npar] */
    float *single;                               /* the same */
    float *sum;                                  /* [1+npar][maxcomp] */
    double *net;                                 /* [2][maxwidth][1+npar] layers of a network */
    double *cd[SPX_RV_BATCH];                    /* [narm][maxcomp][1+npar] */
    float *cf[SPX_RV_BATCH];
    /* cross-correlation */
    float *cdata, *cout;
    fftwf_complex *cs, *civ, *cprod;
    float (*cfew)[2];    /* [4][nfew] the data as spx_rv_few_lags has them, and their products with -i; */
    float (*csum)[2];    /* [nsum] */
    float *csample;      /* [nsample][nccf] */
    float *clag;         /* [nlag][nccf] */
    float *chi;          /* [entries][nlag] chi^2 less what is common to all */
    float *best;         /* [nlag] the least of all entries */
    int32_t *best_entry; /* [nlag] whose it is */
    float *least;        /* [entries] near the best velocity */
    int32_t *least_lag;  /* [entries] where */
} spx_rv_workspace;

typedef struct spx_rv_spectra {
    const spx_rv_ctx *ctx;
    const struct spx_rv_spectra *of; /* of the coarse model: the star as the model sees it */
    struct spx_rv_spectra *whole;    /* of an exposure: its star, whose templates it has, */
    const size_t *part;              /* and which of its pieces these are; else NULL */
    spx_rv_workspace *workspace;
    size_t slot;        /* which of its group */
    spx_rv_data *piece; /* those that are used, ordered by arm, then exposure; maxpiece are allocated */
    size_t maxpiece;
    spx_rvfit_bad bad; /* why there is none */
    int unread;        /* the engine has read the pixels, or will; what pieces have of them here is not set */
    size_t first[SPX_MAX_ARM + 1];                       /* pieces of arm i are first[i] ... first[i+1]-1 */
    size_t npix;                                         /* all pixels of pieces */
    double jitter[SPX_MAX_ARM], jitter_err[SPX_MAX_ARM]; /* of each arm of the context: fraction, error */
    double prep[SPX_MAX_FIT];                            /* point of the templates in use */
    double prior, prior_grad[SPX_MAX_FIT], prior_hess[SPX_MAX_FIT * SPX_MAX_FIT];
    int prep_deriv;
    double bary[SPX_MAX_PAR + 1]; /* barycentric coordinates of `prep`, in */
    size_t simplex;               /* this simplex */
    int clamped[SPX_MAX_PAR];     /* parameters of `prep` outside the templates' range */
    int32_t neval;
    double *scan;      /* [nscan] objective along v, or nearly so */
    int32_t ccf_entry; /* best of the cross-correlation set; -1: none */
    spx_err err;       /* set when memory ran out: the batch has failed */
} spx_rv_spectra;

/* All but the batch: of `in`, the setups and what the arms are. */
spx_status spx_rv_ctx_init(spx_rv_ctx *c, const spx_rvfit_input *in, const spx_rvfit_options *o, spx_err *e);
void spx_rv_ctx_free(spx_rv_ctx *c);
/* The context of a batch: the plan's, with the batch, which is checked. Nothing to free. */
spx_status spx_rv_ctx_batch(spx_rv_ctx *c, const spx_rvfit_plan *plan, const spx_rvfit_input *in,
                            const spx_rvfit_options *o, spx_err *e);
spx_status spx_rv_workspace_init(spx_rv_workspace *r, const spx_rv_ctx *c, spx_err *e);
void spx_rv_workspace_free(spx_rv_workspace *r);
/* memory: spx_rv_pieces_bytes() zeroed bytes for a piece of each arm, which stay the caller's. */
size_t spx_rv_pieces_bytes(const spx_rv_ctx *c);
spx_status spx_rv_spectra_init(spx_rv_spectra *w, const spx_rv_ctx *c, spx_rv_workspace *r, void *memory, spx_err *e);
void spx_rv_spectra_free(spx_rv_spectra *w);
/* Room for n pieces of any arm; a star with many exposures makes it grow. 0: no memory. */
int spx_rv_need_pieces(spx_rv_spectra *w, size_t n, spx_err *e);

/* A star as the coarse model sees it, from the one that is loaded, w->of: its pieces without their pixels, or with
 * them. 0: no memory (w->err). */
int spx_rv_coarse_pieces(spx_rv_spectra *w);
int spx_rv_coarsen(spx_rv_spectra *w);

/* R, res[ndiag][n] by diagonals, for templates with an LSF of their own: band[ndiag][n] with which out_i =
 * sum_k band[k][i] T_(i-h+k), h = ndiag/2. Rows that are cut by the ends of the arm are scaled to the sum that rows
 * have in the middle. *width: sigma of the rows of R, pixels, the median; *misfit: rms difference between the model's
 * LSF and that of the spectrum, of the latter's rms, the median of some rows. tmp[n]. */
void spx_rv_match_rows(const spx_rv_kernels *kernels, const spx_rv_arm *a, const double *res, double *band, double *tmp,
                       double *width, double *misfit);

/* With a transmission of the atmosphere: rows of the band by samples between the bins, [n][2 fine.half + 1], with which
 * values are sum_m band[i][m] times (transmission times template) at sample i per + per/2 + m - half. The rest as
 * above. */
void spx_rv_fine_rows(const spx_rv_arm *a, const double *res, double *band, double *tmp, double *width, double *misfit);
/* Transmission at the samples, of strengths, and of a shift in km/s behind them: air[2][fine.n]. tmp[fine.n]. */
void spx_rv_air(const spx_rv_arm *a, const spx_transmission *t, const double *strength, double *air, double *tmp);
/* Values out[stride] of a template in[fine.n]. product[fine.n] is used. */
void spx_rv_apply_fine(const spx_rv_arm *a, const double *band, const double *air, const double *in, double *product,
                       double *out);

/* Filter that takes the templates' LSF, a Gaussian of sigma g pixels, out of values at the pixels of an arm: with it
 * they are what a resolution matrix, whose rows have a sigma of p pixels, acts on. filter[n], n <= SPX_RV_MOST_LAG,
 * symmetric around filter[0]. g 0: nothing is taken out. Of p, matches are made for SPX_RV_LEVELS levels (the nearest
 * to p: spx_rv_match_level()), of these widths. */
void spx_rv_filter(double g, double p, size_t n, double *filter);
double spx_rv_level_width(size_t level);

/* By how much vsini^2 comes out too small, pixels^2, since the band is not what the resolution matrix res[ndiag][n] of
 * a spectrum and the templates' LSF ask for: the difference of their frequency responses along that of lines' variance,
 * their depth marginalised, for lines of vsini pixels. width: sigma of the matrix's rows. */
double spx_rv_match_off(const spx_rv_kernels *kernels, const spx_rv_arm *a, const double *res, double width,
                        double vsini);

/* Sigma of a setup's LSF at n > 1 wavelengths, in steps of these, into g[n]; `sigma` as in spx_rvfit_options. Templates
 * are means over their own pixels, which adds to the variance. SPX_EINPUT: the setup does not say. */
spx_status spx_rv_template_lsf(const spx_setup *s, double sigma, size_t n, const double *wave, double *g, spx_err *e);

/* Mask good pixels that are farther than `sigma` from the pieces' models; returns how many. */
size_t spx_rv_reject(spx_rv_spectra *w, double sigma);
/* The same where the engine has done it, to r[] of each piece. */
size_t spx_rv_take_rejected(spx_rv_spectra *w, const spx_rv_rejected *r);

/* Errors e of a piece from sigma[n], and with jitter from level[n] (else NULL): sets ie and sum_lne2. */
void spx_rv_set_errors(const spx_rv_arm *a, spx_rv_data *d, const double *sigma, const double *level, double jitter);
/* Smooth level of the flux of a piece, [n]: medians of good pixels in blocks, joined by straight lines. Uses tmp[n]. */
void spx_rv_level(size_t n, const double *flux, const uint8_t *good, double *tmp, double *level);
/* The jitter of the arms where it is fitted, from the pieces' models, and errors with it. Returns whether one has
 * changed by enough to matter. */
int spx_rv_fit_jitter(spx_rv_spectra *w);

/* Parts of it: is that of an arm fitted; share h of its pixels' freedom that fitted quantities take; and what is done
 * with the square where the likelihood has its maximum, and the Fisher information on it. */
int spx_rv_is_jitter_fitted(const spx_rv_spectra *w, size_t ia);
double spx_rv_freedom_taken(const spx_rv_spectra *w, size_t ia);
int spx_rv_take_jitter(spx_rv_spectra *w, size_t ia, double square, double info);

/* Exposures of a star: indices first ... end-1 of the input's row[]. */
void spx_rv_exposures(const spx_rv_ctx *c, size_t star, size_t *first, size_t *end);
size_t spx_rv_row(const spx_rv_ctx *c, size_t exposure);

/* Functions of the continua of all pieces. */
size_t spx_rv_continua(const spx_rv_spectra *w);

/* Take a star into the workspace; 0 when no piece of it can be fitted, or memory ran out (w->err). */
int spx_rv_load(spx_rv_spectra *w, size_t star);
/* The same for an engine that reads the pixels itself: all pieces, of which r[] of each then says what is in them. */
int spx_rv_list(spx_rv_spectra *w, size_t star);
void spx_rv_take_read(spx_rv_spectra *w, const spx_rv_read *r);

/* Between which templates a point lies, and how much of each: a product of weights along the axes of a grid (axis g: up
 * to four nodes from that of `base` on), or corners of a simplex. A network takes the mapped parameters themselves,
 * which are within range. */
typedef struct {
    double vsini, vsini_square_dx; /* km/s; derivative of its square by the internal unit */
    double x[SPX_MAX_PAR];
    int32_t base, count[SPX_MAX_PAR];
    double value[SPX_MAX_PAR][4], slope[SPX_MAX_PAR][4];
    int32_t corner[SPX_MAX_PAR + 1];
    double weight[(SPX_MAX_PAR + 1) * (SPX_MAX_PAR + 1)]; /* [corner][1+ng] value, and derivatives by the axes */
    int32_t clamped[SPX_MAX_PAR];                         /* of axis g: outside the templates' range */
} spx_rv_stencil;

/* Spectrum z[nshort/2+1] of a real function as arm->few takes it, out[per][nblock]. */
void spx_rv_few_of(const spx_rv_arm *a, const float (*z)[2], float (*out)[2]);

/* The stencil of a point, seen from within `cell` (NULL: the one that it is in); its prior and penalty are kept in w.
 */
void spx_rv_stencil_at(spx_rv_spectra *w, const double *x, const size_t *cell, int deriv, spx_rv_stencil *s);
/* ln of the factor that normalisation has divided the template of arm ia at x by, interpolated as the template; 0 where
 * there is none. */
double spx_rv_lnnorm(spx_rv_spectra *w, size_t ia, const double *x);
/* What the objective at velocity v is without the data, and its derivatives; the point is that of the last templates or
 * stencil. */
void spx_rv_begin_value(spx_rv_spectra *w, double v, spx_rv_value *out);

/* Cell of the grid that x is in, lower nodes in cell[ng]. */
void spx_rv_cell(const spx_rv_ctx *c, const double *x, size_t *cell);
double spx_rv_unmap(const spx_rv_ctx *c, size_t q, double x);
double spx_rv_map(const spx_rv_ctx *c, size_t q, double p);
/* Derivative of the quantity by its internal unit at x; of vsini, which has none at rest, the change over an error of
 * `sigma` internal units. */
double spx_rv_slope(const spx_rv_ctx *c, size_t q, double x, double sigma);

/* Templates at x, seen from within `cell` (NULL: the one that x is in), and with `deriv` their derivatives. */
void spx_rv_template(spx_rv_spectra *w, const double *x, const size_t *cell, int deriv);
/* Stars of a batch whose templates, without derivatives, a workspace keeps: SPX_RV_TOGETHER, or 1. */
size_t spx_rv_together(const spx_rv_ctx *c);
/* Those of n stars of a workspace at x[k], n <= spx_rv_together(); what is kept is not made again. 0: no memory, with
 * w[0]->err. */
int spx_rv_keep_templates(size_t n, spx_rv_spectra *const *w, const double (*x)[SPX_MAX_FIT]);
/* The templates of a star at x, kept or made now, are those in the workspace. */
void spx_rv_use_templates(spx_rv_spectra *w, const double *x);
/* Keeps none of a star, whose pieces are others from now on. */
void spx_rv_forget(const spx_rv_spectra *w);
int spx_rv_make_templates(const spx_rv_ctx *c, spx_rv_templates *t, spx_err *e);
/* The template in the workspace at a piece's pixels and velocity v, and with derivatives those behind it:
 * [1 or 1+nfree][stride], until the next call. */
const double *spx_rv_sample(spx_rv_spectra *w, const spx_rv_data *d, double v);
/* That template of arm `ia` at places[n] on the templates' grid at v = 0, before any resolution matrix: t[n]; 0 where
 * there is no template. */
void spx_rv_sample_at(const spx_rv_spectra *w, size_t ia, double v, size_t n, const double *place, double *t);
/* Adds a piece to out->f for the template t[stride] at its pixels, with its best continuum, and its residuals over
 * errors, r[stride]; 0 when the objective cannot be computed. */
int spx_rv_add_sampled(const spx_rv_spectra *w, const spx_rv_data *d, const double *t, spx_rv_value *out, double *r);
/* Objective at velocity v and the templates in the workspace. */
void spx_rv_project(spx_rv_spectra *w, double v, spx_rv_value *out);
/* Both. */
void spx_rv_eval(spx_rv_spectra *w, const double *x, const size_t *cell, int deriv, spx_rv_value *out);
/* The same with derivatives for n <= SPX_RV_BATCH stars of one workspace (one star in multilinear interpolation), star
 * k at x[k], seen from cell[k] (NULL: all from where they are). No templates are left in use. */
void spx_rv_eval_batch(size_t n, spx_rv_spectra *const *w, const double (*x)[SPX_MAX_FIT], const size_t *const *cell,
                       spx_rv_value *out);
/* Normal equations, half of curvature and gradient, of the free quantities and, behind them, of strengths and shift of
 * the atmosphere, at x and strength[]: hess[n][n], grad[n], n = nfree + nspecies + 1. 0: there are none, or memory ran
 * out (w->err). */
int spx_rv_air_normal(spx_rv_spectra *w, const double *x, const double *strength, double *hess, double *grad);
/* chi^2 over good pixels of a piece with the templates in the workspace (`flat`: with T = 1 instead) at velocity v,
 * HUGE_VAL when there is none; model[stride] may be NULL. */
double spx_rv_chisq(spx_rv_spectra *w, const spx_rv_data *d, double v, int flat, double *model);

#endif
