/* Provides what a fibre has of its own in a spectrum that all fibres share, such as the sky: scale t, shift delta and
 * additional width kappa, each a Legendre series over the arm, by linear least squares; and an empirical prior of all
 * fibres, with which one without bright lines gets what its neighbours have. Sky subtraction and the measurement of
 * shifts use it.
 *
 *     d_i = t_i o c_i + delta_i o D1 c_i + 1/2 kappa_i o D2 c_i [+ spline] + noise,   c_i = R_i s
 *
 * delta (Angstrom): a bin holds light of wavelength lambda + delta; kappa (Angstrom^2): by how much the square of the
 * width of the line-spread function is larger than R_i says. Quantities are in the order t_0 ..., delta_0 ...,
 * kappa_0 ...: K = nt + nd + nk of them. Derivatives D1, D2: calib/series.h. */
#ifndef SPX_SKY_PARAMS_H
#define SPX_SKY_PARAMS_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "products/sky.h" /* SPX_SKY_MOST */

/* Bins at either end that are not used: there, or that near, second derivatives are 0. */
enum { SPX_SKY_EDGE = 8 };

/* Number of terms of each series. */
typedef struct {
    size_t nt, nd, nk;
} spx_sky_terms;

static inline size_t spx_sky_count(const spx_sky_terms *t)
{
    return t->nt + t->nd + t->nk;
}

/* Kind of fit of a fibre: none; without, or with a spline beside, which stands for the continuum of a star, so
 * that only lines tell the quantities. */
typedef enum { SPX_SKY_LEAVE = 0, SPX_SKY_ALONE = 1, SPX_SKY_STAR = 2 } spx_sky_kind;

/* Grid and method of the fits. */
typedef struct {
    size_t nwave;
    double first, step; /* wavelengths first + k step, Angstrom */
    spx_sky_terms terms;
    double knots;  /* distance of the knots of the spline (cubic), Angstrom: 25 */
    size_t rounds; /* reweightings of fibres with a star, against its absorption lines: 3 */
    int nthreads;
    const uint8_t *skip; /* [nwave] 1: a bin that no fibre uses; NULL: none */
    const double *noise; /* [nwave] variance of c by the noise of what it was made of; NULL: 0 */
} spx_sky_fit;

/* Normal equations of each fibre: information matrix info[nspec][K][K] = V^-1, symmetric, and right[nspec][K] = V^-1 p,
 * a star's spline being marginalised. c[nspec][nwave]: model R_i s; scaled[nspec][nwave]: the part of it that t
 * multiplies, such as its lines, NULL: all of it; d, w[nspec][nwave]: data and weights (inverse variances; 0: not used,
 * and d is not looked at); kind[nspec]: spx_sky_kind. A fibre that is not fitted, or has no weight, has zeros. Without
 * a term for t, t is 1.
 *
 * Noise of c, which a fibre with a star does not share, is light that lines do not have: by it alone t is too small,
 * the more so the fewer fibres c was made of (attenuation, of errors in a regressor). `right` gets what is missing,
 * spx_sky_noise() sum w noise t P_l. A fibre without a star is part of what c was made of: its own noise makes up for
 * it.
 *
 * Reweighting: w <- w / loc min(1, 3/|r|), 18/r^2 beyond |r| = 6 in the last round, r the residual in units of its
 * error, loc the mean over 51 bins around of min(r^2, 25), at least 1. Fibres are independent of each other. SPX_EIO:
 * memory. */
spx_status spx_sky_measure(const spx_sky_fit *f, size_t nspec, const double *c, const double *scaled, const double *d,
                           const double *w, const uint8_t *kind, double *info, double *right, spx_err *e);

/* Makes normal equations of physical shifts and widths of those whose columns are derivatives of c: in a fibre of scale
 * t the light that is shifted is t c, so that its quantities are delta/scale and kappa/scale. scale[nspec]: t, > 0. */
void spx_sky_physical(const spx_sky_terms *t, size_t nspec, const double *scale, double *info, double *right);

/* Values of quantity q in `step` (Angstrom): what is expected where nothing is known at all, and the error of that: t
 * is 1 +- 1, delta 0 +- step/2, kappa 0 +- step^2/2; further terms of t 0 +- 0.3. */
double spx_sky_expected(const spx_sky_terms *t, size_t q);
double spx_sky_expected_error(const spx_sky_terms *t, double step, size_t q);

/* Estimate of one fibre by its own data alone: p[K] and covariance cov[K][K]; 0 where its data do not tell all of them:
 * then these are 0. */
int spx_sky_estimate(size_t nq, const double *info, const double *right, double *p, double *cov);

/* Highest degree of the polynomial of a prior, and its terms. */
enum { SPX_SKY_DEGREE = 8, SPX_SKY_PRIOR_TERMS = SPX_SKY_DEGREE + 1 };

/* Empirical prior of each quantity: a polynomial in the place of the fibre, and intrinsic scatter tau about it. */
typedef struct {
    size_t nspec, nq, nterm;        /* nterm: coefficients of all quantities */
    double *mean;                   /* [nspec][nq]: the polynomials */
    double *basis;                  /* [nspec][SPX_SKY_PRIOR_TERMS] Legendre polynomials */
    double *covariance;             /* [nterm][nterm] of the coefficients, those of a quantity behind each other */
    double precision[SPX_SKY_MOST]; /* 1/tau^2, finite where tau is 0 */
    double tau[SPX_SKY_MOST];       /* in units of the quantity */
    size_t used[SPX_SKY_MOST];      /* fibres that it was found of */
    size_t degree[SPX_SKY_MOST];    /* of the polynomial */
    double curve[SPX_SKY_MOST];     /* variance a priori of coefficients of degree 1 and above */
    double unsure[SPX_SKY_MOST], unsure_curve[SPX_SKY_MOST]; /* variances of tau^2 and of curve; 0: known */
    int nthreads;                                            /* that it is used with */
} spx_sky_prior;

/* Finds the prior from fibres with use[i] != 0 (NULL: all): up to 12 rounds of the polynomials of all quantities by
 * generalised least squares, weights (V_i + diag(tau^2))^-1, and of tau^2 by restricted maximum likelihood (Patterson
 * and Thompson 1971; Fisher's scoring), at last its mean over the likelihood: where it is badly known, 0 is no safe
 * guess. All quantities at once, since their errors are correlated, and the same way in all fibres, which see the same
 * lines. A fibre's quantity beyond 4 sqrt(e^2 + tau^2) is left out. Degree 0 for t; for delta and kappa `degree`, or
 * less where there are not five fibres a coefficient. place[nspec]: of the fibres, -1 ... 1, such as their number in
 * the slit. Coefficients have spx_sky_expected() and its error as prior, and tau is not more than this error: so a
 * frame without lines has these. step: of the grid, Angstrom. The result does not depend on nthreads. Free with
 * spx_sky_prior_free(). SPX_EIO: memory.
 *
 * together[K]: fibres are expected to move as one, with as little scatter and curves of their polynomials as they show:
 * the scales of both are unknown, with priors flat in their logarithm; where together[q] is not 0, they are expected to
 * be that, in units of the quantity, or down to a tenth of it, or larger, and rarely smaller. Each scale has its mean
 * over the evidence, given all others, from the first quantity on, three times; what they are not known to is part of
 * errors (prior->unsure, unsure_curve). Shifts of fibres that have neither scatter nor curves are twice better known by
 * that; scatter of the size of what is hardly seen has errors too small by up to 1.2. One more hypothesis, of
 * odds 3, that all fibres move by the same at all wavelengths, is no gain: pulls of y of constant shifts 0.52 -> 0.54
 * in r and 0.53 -> 0.60 in z, of bends that r does not show (chi^2 of 3 against none, 62 in z) 1.07 -> 1.22 (30
 * exposures each). Nor are scatter and curves of one size in all terms of delta, averaged over the evidence: constants
 * have the same errors in r, and bends there, rows and bundles are left wrong by more. NULL: they are not, but terms of
 * delta above the first are expected to scatter as the first does, or down to a tenth of it: what tilts a fibre moves
 * it. */
spx_status spx_sky_prior_find(const spx_sky_terms *t, double step, size_t degree, const double *together, size_t nspec,
                              const double *place, const double *info, const double *right, const uint8_t *use,
                              int nthreads, spx_sky_prior *prior, spx_err *e);
void spx_sky_prior_free(spx_sky_prior *prior);

/* Posterior of each fibre, p = C (V^-1 p + T mean), C = (V^-1 + T)^-1, T = diag(1/tau^2): p[nspec][K], and its
 * covariance cov[nspec][K][K] = C + C T E T C, E: covariance of the polynomials. That is the best linear prediction,
 * with its error, also of fibres that the polynomial was found of: their own data count once. Fibres without
 * information have the prior. Of fibres with use[i] != 0 (NULL: all); the others' stay. cov NULL: not asked for. */
void spx_sky_posterior(const spx_sky_prior *prior, const double *info, const double *right, const uint8_t *use,
                       double *p, double *cov);

/* Covariances of posteriors whose means over fibres with use[i] != 0 are fixed (spx_sky_gauge()): those of p_i less the
 * mean of p_j over these fibres. Errors of p_i and p_j have in common C_i (i = j) and X_i cov X_j^T, X_i = C_i T B_i,
 * of the coefficients, B_i: the basis. cov: of spx_sky_posterior() with the same info; without a fibre in use it stays.
 * SPX_EIO: memory. */
spx_status spx_sky_gauge_errors(const spx_sky_prior *prior, const double *info, const uint8_t *use, double *cov,
                                spx_err *e);

/* Gauge: the mean over fibres with use[i] != 0 of t becomes 1, those of all other terms 0, since their common parts are
 * parts of s; all fibres are changed by the same. change[K]: what was subtracted (of t_0: divided by). Returns the
 * number of fibres; with none nothing is changed. */
size_t spx_sky_gauge(const spx_sky_terms *t, size_t nspec, const uint8_t *use, double *p, double *cov, double *change);

#endif
