/* What the files of the CPU fit share. A context holds what is common to all stars; a workspace belongs to one thread
 * and holds one star at a time.
 *
 * Points are in internal units, x[2+npar]: v, vsini, mapped parameters. Free quantities are those that the fit varies;
 * gradient and curvature refer to them in the order of ctx->freeq. */
#ifndef SPX_RVFIT_INTERNAL_H
#define SPX_RVFIT_INTERNAL_H

#include <fftw3.h>
#include <stdint.h>

#include "rvfit/rvfit.h"
#include "rvfit/rvfit_math.h"

enum {
    SPX_RV_MAX_START = 6,
    SPX_MAX_NDIAG = 129 /* diagonals of a resolution matrix */
};

/* One arm: its pixels on the templates' grid and the continuum's basis. */
typedef struct {
    size_t index; /* arm of the spectra */
    const spx_arm *arm;
    const spx_setup *setup;
    size_t n, nt;          /* pixels, template pixels */
    double *lnwave;        /* [n] in the templates' medium */
    double *place;         /* [n] place on the templates' grid at v = 0 */
    double *basis, *pairs; /* [npoly][n] orthonormal; [npoly(npoly+1)/2][n] their products */
    double lndet;          /* ln det(S'S) of the defined basis minus that of the orthonormal one */
    double *cprime;        /* [nt] of the spline */
    uint8_t *leftout;      /* [n] pixels that no star uses */
    double *deconvolve;    /* [ndiag][ndiag] takes the templates' own LSF out of a row of a resolution matrix */
    fftwf_plan forward, inverse;
} spx_rv_arm;

typedef struct {
    const spx_rvfit_input *in;
    const spx_rvfit_options *opt;
    size_t narm, npar, nq; /* nq = 2 + npar */
    spx_rv_arm arm[SPX_MAX_ARM];
    size_t nfree, freeq[SPX_MAX_FIT];
    double start[SPX_MAX_FIT], lo[SPX_MAX_FIT], hi[SPX_MAX_FIT]; /* fixed: lo = hi = start */
    int parlog[SPX_MAX_PAR];
    size_t ng, gpar[SPX_MAX_PAR], stride[SPX_MAX_PAR]; /* parameters with more than one node; step in node[] */
    size_t naxis[SPX_MAX_PAR];
    double *axis[SPX_MAX_PAR]; /* mapped nodes */
    size_t maxn, maxnt, maxccf, nlag;
    size_t ccf_stride;       /* between arms, of transforms: keeps FFTW's alignment */
    double lag_v0, lag_step; /* common velocity grid of the cross-correlation */
} spx_rv_ctx;

/* A star's arm. */
typedef struct {
    int used;
    double *flux, *ie, *ie2, *die; /* [n] filled flux, 1/e, 1/e^2, flux/e^2 */
    uint8_t *good;                 /* [n] */
    double *band;                  /* [n][ndiag] rows of the resolution matrix, ready for use; or NULL */
    double sum_lne2;               /* 2 sum ln e */
    size_t ngood;
    double sn;
} spx_rv_data;

typedef struct {
    double f; /* objective; HUGE_VAL where it cannot be computed */
    double grad[SPX_MAX_FIT], hess[SPX_MAX_FIT * SPX_MAX_FIT];
} spx_rv_value;

typedef struct {
    const spx_rv_ctx *ctx;
    spx_rv_data data[SPX_MAX_ARM];
    size_t npix;                                  /* all pixels of used arms */
    double *y[SPX_MAX_ARM], *m[SPX_MAX_ARM];      /* [nt][lanes] templates and their splines */
    double *plane;                                /* [1+npar][nt] */
    double *rot;                                  /* [nt][lanes] */
    double *t, *t2;                               /* [n][1+nfree] at the pixels */
    double *q, *r, *w;                            /* [n] */
    double *u;                                    /* [n][nfree] */
    double coef[SPX_MAX_ARM][SPX_RVFIT_MAX_POLY]; /* of the last projection */
    double prep[SPX_MAX_FIT];                     /* point whose templates y, m hold */
    double prior, prior_grad[SPX_MAX_FIT], prior_hess[SPX_MAX_FIT * SPX_MAX_FIT];
    int prep_deriv;
    int clamped[SPX_MAX_PAR]; /* parameters of `prep` outside the templates' range */
    int32_t neval;
    spx_err err; /* set when memory ran out: the batch has failed */
    /* cross-correlation */
    float *cdata, *cout;
    fftwf_complex *cs, *civ, *cprod;
    double *chi, *best;
    size_t *best_entry;
} spx_rv_ws;

/* A start: internal point and its chi^2 in cross-correlation. */
typedef struct {
    double x[SPX_MAX_FIT], chisq;
} spx_rv_start;

spx_status spx_rv_ctx_init(spx_rv_ctx *c, const spx_rvfit_input *in, const spx_rvfit_options *o, spx_err *e);
void spx_rv_ctx_free(spx_rv_ctx *c);
spx_status spx_rv_ws_init(spx_rv_ws *w, const spx_rv_ctx *c, spx_err *e);
void spx_rv_ws_free(spx_rv_ws *w);

/* Take row `row` of the spectra into the workspace; 0 when no arm of it can be fitted. */
int spx_rv_load(spx_rv_ws *w, size_t row);

/* Cell of the grid that x is in, lower nodes in cell[ng]. */
void spx_rv_cell(const spx_rv_ctx *c, const double *x, size_t *cell);
double spx_rv_unmap(const spx_rv_ctx *c, size_t q, double x);
double spx_rv_map(const spx_rv_ctx *c, size_t q, double p);

/* Templates at x, seen from within `cell` (NULL: the one that x is in), and with `deriv` their derivatives. */
void spx_rv_template(spx_rv_ws *w, const double *x, const size_t *cell, int deriv);
/* Objective at velocity v and the templates in the workspace. */
void spx_rv_project(spx_rv_ws *w, double v, spx_rv_value *out);
/* Both. */
void spx_rv_eval(spx_rv_ws *w, const double *x, const size_t *cell, int deriv, spx_rv_value *out);
/* chi^2 over good pixels of arm a with the templates in the workspace (`flat`: with T = 1 instead) at velocity v;
 * model[n] may be NULL. */
double spx_rv_chisq(spx_rv_ws *w, size_t a, double v, int flat, float *model);

/* Starts, best first; returns how many (at least one). *v_ccf: velocity of the best. */
size_t spx_rv_starts(spx_rv_ws *w, spx_rv_start *start, double *v_ccf);

/* Minimum of the objective from these starts; x receives it, out its value and derivatives; 1 when it converged. */
int spx_rv_minimise(spx_rv_ws *w, size_t nstart, const spx_rv_start *start, double *x, spx_rv_value *out);

#endif
