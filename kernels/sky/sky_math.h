/* Provides arithmetic of the sky that host and device share. */
#ifndef SPX_SKY_MATH_H
#define SPX_SKY_MATH_H

#include <stddef.h>

#include "hostdevice.h"

/* Scale that is divided by: never 0 or negative, whatever a fit says. */
SPX_HD double spx_sky_positive(double t)
{
    return t > 0.02 ? t : 0.02;
}

/* Covariance of white noise of variance 1 with the column that t, delta or kappa multiplies when it is all that is in
 * the spectrum: 1, 0 (a central difference), and half of the second difference's middle. */
SPX_HD double spx_sky_noise(size_t nt, size_t nd, double step, size_t q)
{
    const double middle = 2 * (16. / 25 + 1. / 25 + 16. / 11025 + 1. / 78400);
    return q < nt ? 1 : q < nt + nd ? 0 : -0.5 * middle / (step * step);
}

/* Scale of light that is noise: the value, as far as lines tell it. Of the information, `noise` is no lines; there is
 * not more of it than of information. */
SPX_HD double spx_sky_told(double expected, double value, double noise, double information)
{
    return information > noise ? expected + (value - expected) * (1 - noise / information)
           : noise > 0         ? expected * (information / noise)
                               : expected;
}

/* Weight of a bin of a star whose residual is r >= 0 errors: Huber's, 3/r beyond 3, whose solution is unique; in the
 * last round, near that, bins beyond 6 lose what pull they have left, as 1/r, so that a line of the star does not move
 * t. */
SPX_HD double spx_sky_robust_weight(double r, int last)
{
    return r <= 3 ? 1 : last && r > 6 ? 18 / (r * r) : 3 / r;
}

/* Scale of a fibre's light for its shift and width: the first term of t, p[nt ...]. */
SPX_HD double spx_sky_scale_of(size_t nt, const double *p)
{
    return nt == 0 ? 1 : p[0] > 0.05 ? p[0] : 0.05;
}

/* Is a residual r of a bin of weight w beyond `limit` errors, an unknown shift in Angstrom allowed for? */
SPX_HD int spx_sky_is_out(double r, double w, double slope, double limit, double shift)
{
    const double moved = shift * slope;
    return r * r > limit * limit * (1 / w + moved * moved);
}

/* Terms of a bin in the sums of chi2: of a fibre that s is made of as fitted, and as if it had been left out, r^2 w /
 * (1
 * - h) by its leverage h = w var(t R s); of another one with the model's variance. 0: the bin alone tells the sky
 * there, so that its residual says nothing. */
SPX_HD int spx_sky_terms_of_chi2(int used, double r, double w, double of_sky, double variance, double *chi2,
                                 double *loo)
{
    const double h = w * of_sky;
    if (!used) {
        *chi2 = *loo = r * r / (1 / w + variance);
        return 1;
    }
    if (!(h < 0.95))
        return 0;
    *chi2 = r * r * w;
    *loo = *chi2 / (1 - h);
    return 1;
}

#endif
