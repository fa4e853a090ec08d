/* Provides the sums over bins and fibres that a device computes for the sky; driver.c decides what follows.
 * Private to kernels/sky.
 *
 * An engine keeps the weights, w[nspec][nwave] (negative: left out for now), spectra c, and models m of the fibres, 0
 * at first. */
#ifndef SPX_SKY_ENGINE_H
#define SPX_SKY_ENGINE_H

#include "sky/sky.h"

enum { SPX_SKY_PAIRS = (SPX_SKY_MODES + 1) * (SPX_SKY_MODES + 2) / 2 };

/* Quantities of the iteration, on the host. */
typedef struct {
    const spx_sky_input *in;
    const spx_sky_options *o;
    size_t nq, nmode;
    uint8_t *active;   /* [nspec] 1: of the fibres that are worked on, 0: not now */
    uint8_t *use;      /* [nspec] 1: sky fibres that s is made of */
    uint8_t *kind;     /* [nspec] spx_sky_kind of a measurement */
    uint8_t *bad;      /* [nwave] 1: no sky fibre has light near this bin */
    double *s;         /* [nwave] */
    double *mode;      /* [nmode][nwave] */
    double *x;         /* [nspec][nmode], >= 0 */
    double *q;         /* [nspec] velocity difference v - v_i over c; NULL: none */
    double *continuum; /* [nwave] part of c that t does not multiply; NULL: none */
    double *noise;     /* [nwave] variance of c by the noise of s */
    double *p, *cov;   /* [nspec][nq], [nspec][nq][nq] */
} spx_sky_work;

/* Sums of a fibre over its bins with weight. */
typedef struct {
    double n;      /* bins that are in */
    double nout;   /* bins that were left out */
    double chi2;   /* of bins that are in, each at most `most` */
    double change; /* largest change of the model in units of the error */
} spx_sky_sums;

/* chi2 of a fibre by class of bin, and of all bins behind them. */
typedef struct {
    double n[SPX_SKY_CLASSES + 1], chi2[SPX_SKY_CLASSES + 1], loo[SPX_SKY_CLASSES + 1];
} spx_sky_chi2;

typedef struct spx_sky_engine {
    void *state;
    /* Weights from ivar: 0 where it is not above 0; nothing is left out. Bad bins, whose sky is not known well enough,
     * keep theirs for the normal equations alone: what is known beside them depends on it. */
    spx_status (*weights)(struct spx_sky_engine *g, const spx_sky_work *w, spx_err *e);
    /* c of active fibres. */
    spx_status (*spectra)(struct spx_sky_engine *g, const spx_sky_work *w, spx_err *e);
    /* spx_sky_measure() of fibres by kind, of those with a star with all their bins: info[nspec][nq][nq],
     * right[nspec][nq]. */
    spx_status (*measure)(struct spx_sky_engine *g, const spx_sky_work *w, double *info, double *right, spx_err *e);
    /* Begins that, and returns before it is done: measure() is the next to be called, with the same *w. NULL: measure()
     * does all of it. */
    spx_status (*begin_measure)(struct spx_sky_engine *g, const spx_sky_work *w, spx_err *e);
    /* Models of active fibres; sums[nspec] of them. */
    spx_status (*model)(struct spx_sky_engine *g, const spx_sky_work *w, double most, spx_sky_sums *sums, spx_err *e);
    /* Leaves out bins of active fibres, but for bad ones, with (d - m)^2 > limit^2 (1/w + (shift_error D1 c)^2), and no
     * others; sums. */
    spx_status (*reject)(struct spx_sky_engine *g, const spx_sky_work *w, double limit, double most, spx_sky_sums *sums,
                         spx_err *e);
    /* Normal equations of fibres in use, weights w t^2: a[pair][ndiag][nwave] with x_q x_r of pairs (q, r), r <= q, x_0
     * = 1, by q; y[q][nwave] = sum x_q R^T w t (d - m). a NULL: only y. */
    spx_status (*normal)(struct spx_sky_engine *g, const spx_sky_work *w, double *a, double *y, spx_err *e);
    /* Models and variances of all fibres into model, variance[nspec][nwave]; covariance[pair][ndiag][nwave] of s and
     * the modes. chi2[nspec] of sky fibres; line_class[nwave]. */
    spx_status (*finish)(struct spx_sky_engine *g, const spx_sky_work *w, const double *covariance,
                         const uint8_t *line_class, double *model, double *variance, spx_sky_chi2 *chi2, spx_err *e);
    /* Mean of c over fibres in use: mean[nwave]. */
    spx_status (*mean)(struct spx_sky_engine *g, const spx_sky_work *w, double *mean, spx_err *e);
} spx_sky_engine;

/* SPX_EINPUT or SPX_EUSAGE where there is nothing to solve. */
spx_status spx_sky_check(const spx_sky_input *in, const spx_sky_options *o, spx_err *e);

/* Finds the sky with an engine, behind spx_sky_check(): the contract of spx_sky_cpu(). o->terms.nt is 0 where there is
 * no scale. */
spx_status spx_sky_solve(spx_sky_engine *g, const spx_sky_input *in, const spx_sky_options *o, spx_sky *out,
                         spx_err *e);

/* The fit of the quantities for a frame's grid. */
spx_sky_fit spx_sky_fit_of(const spx_sky_input *in, const spx_sky_options *o);

/* Index of the pair (q, r) of modes, r <= q. */
static inline size_t spx_sky_pair(size_t q, size_t r)
{
    return q * (q + 1) / 2 + r;
}

#endif
