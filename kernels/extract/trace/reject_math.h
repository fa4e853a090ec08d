/* Provides the arithmetic of the search for cosmic-ray hits, and of the variance of a model, for host and device: which
 * pixels of a window are rejected, and which come back. */
#ifndef SPX_EXTRACT_TRACE_REJECT_MATH_H
#define SPX_EXTRACT_TRACE_REJECT_MATH_H

#include <math.h>
#include <stddef.h>

#include "hostdevice.h"

/* Errors of the PSF that are allowed for: a fraction of the light in a pixel, and of the place of a spot, pixels. */
#define SPX_REJECT_SHAPE 0.02
#define SPX_REJECT_SHIFT 0.05

/* A pixel is rejected when its excess is this part of the largest within 5 x 5 at least. */
#define SPX_REJECT_WORST 0.25
/* An excess above STRONG is a hit for certain: pixels beside it go from NEAR on, and stay out from BACK_NEAR on. Others
 * come back below BACK times the threshold. */
#define SPX_REJECT_STRONG    10.0
#define SPX_REJECT_NEAR      3.0
#define SPX_REJECT_BACK_NEAR 2.0
#define SPX_REJECT_BACK      0.8

/* Part of a pixel's noise that is left in its residual at least: a residual that is next to nothing says nothing. */
#define SPX_REJECT_LEAST_FREE 0.1

/* Error of the flux, in units of it, to which the equations are solved in a round, and the bins on both sides of those
 * with new equations that are solved with them: what is wrong at the ends falls by ten every four. */
#define SPX_REJECT_TOLERANCE 1e-2
/* Change of the flux in units of its error, below which the model stays as it is. */
#define SPX_REJECT_SAME 1e-4
/* Part of a spot's light that a bin has to lose to be tied to the next, and the strength: a fraction of the diagonal of
 * M, of the square of the difference. With 1e-2 the rest of a hit that looks like a spot stays in, as a bin between two
 * that ring; with 1e-1 bins on lines of the sky lose their light to hits beside them. */
#define SPX_REJECT_TIED_LOSS     0.3
#define SPX_REJECT_TIED_STRENGTH 4e-2
enum { SPX_REJECT_AROUND = 24, SPX_REJECT_ROUNDS = 30, SPX_REJECT_CHANCES = 2 };

/* Read noise below which a pixel has none, electrons: its variance could be 0. */
#define SPX_LEAST_READNOISE 1e-3

/* Variance of a pixel, electrons^2, of which a model is known: read noise and photons. */
SPX_HD double spx_model_variance(double readnoise, double model)
{
    return readnoise * readnoise + (model > 0.0 ? model : 0.0);
}

/* (p - m) / sqrt(variance + (0.02 m)^2 + (0.05 |grad m|)^2), from the model in a pixel and in its four neighbours. */
SPX_HD double spx_reject_excess(double value, double variance, double m, double left, double right, double below,
                                double above)
{
    const double gx = 0.5 * SPX_REJECT_SHIFT * (right - left), gy = 0.5 * SPX_REJECT_SHIFT * (above - below);
    const double shape = SPX_REJECT_SHAPE * m;
    return (value - m) / sqrt(variance + shape * shape + gx * gx + gy * gy);
}

/* Excess of a pixel that noise reaches as seldom as that of a Gaussian reaches `sigma`: photons are skewed, with a
 * third moment of m (Cornish & Fisher 1938, Rev. Inst. Int. Stat. 5, 307). */
SPX_HD double spx_reject_threshold(double sigma, double variance, double m)
{
    const double skewness = m > 0.0 ? m / (variance * sqrt(variance)) : 0.0;
    return sigma > 1.0 ? sigma + skewness * (sigma * sigma - 1.0) / 6.0 : sigma;
}

/* Bins between two runs of such bins, of equations that reach `depth` bins: runs that are closer are one, so that it
 * does not matter in which order they are solved. */
SPX_HD size_t spx_reject_apart(size_t depth)
{
    const size_t least = 16;
    return depth > least ? depth : least;
}

/* What is known of a pixel of a window. SEEN: hits are looked for there; INNER: and kept. HIT: rejected. */
enum {
    SPX_REJECT_SEEN = 1,
    SPX_REJECT_HIT = 2,
    SPX_REJECT_IS_STRONG = 4,
    SPX_REJECT_CHANGED = 8,
    SPX_REJECT_INNER = 16
};

/* Pixels of a bundle in rows, from two rows before the first that is SEEN to two behind the last. */
typedef struct {
    size_t row; /* pixels of a row */
    double sigma;
    const float *data, *ivar; /* ivar: 1/variance, or more */
    const float *readnoise;   /* NULL: the variance is 1/ivar */
    const float *free;        /* 1 - leverage: part of the noise that is left in a residual */
    const double *model;
    const unsigned char *flag;
} spx_reject_window;

/* Of a pixel that is SEEN. */
SPX_HD double spx_reject_variance(const spx_reject_window *w, size_t i)
{
    const double least = 1.0 / (double)w->ivar[i];
    return w->readnoise != NULL ? fmax(least, spx_model_variance((double)w->readnoise[i], w->model[i])) : least;
}

/* The same. What the model follows of a pixel in use is not left in its residual. */
SPX_HD double spx_reject_excess_of(const spx_reject_window *w, size_t i)
{
    const size_t row = w->row;
    const double *m = w->model + i;
    const double part = w->flag[i] & SPX_REJECT_HIT ? 1.0 : (double)w->free[i];
    return spx_reject_excess((double)w->data[i], part * spx_reject_variance(w, i), m[0], i > 0 ? m[-1] : 0.0, m[1],
                             m[-(ptrdiff_t)row], m[row]);
}

/* Excess of a pixel dx, dy beside, 0 where it is rejected. */
SPX_HD double spx_reject_excess_beside(const spx_reject_window *w, size_t i, long dx, long dy)
{
    const long row = (long)w->row, x = (long)i % row;
    const size_t j = (size_t)((long)i + dy * row + dx);
    return x + dx >= 0 && x + dx < row && (w->flag[j] & (SPX_REJECT_SEEN | SPX_REJECT_HIT)) == SPX_REJECT_SEEN
               ? spx_reject_excess_of(w, j)
               : 0.0;
}

/* Largest excess within 5 x 5 pixels, of those that are not rejected. */
SPX_HD double spx_reject_worst_around(const spx_reject_window *w, size_t i)
{
    double most = 0.0;
    for (long dy = -2; dy <= 2; dy++)
        for (long dx = -2; dx <= 2; dx++)
            most = fmax(most, spx_reject_excess_beside(w, i, dx, dy));
    return most;
}

/* Whether a pixel, or one of its four, or eight, neighbours has this flag. */
SPX_HD int spx_reject_beside(const spx_reject_window *w, size_t i, int flag, int eight)
{
    const long row = (long)w->row, x = (long)i % row;
    for (long dy = -1; dy <= 1; dy++)
        for (long dx = -1; dx <= 1; dx++)
            if ((eight || dx == 0 || dy == 0) && x + dx >= 0 && x + dx < row &&
                (w->flag[(size_t)((long)i + dy * row + dx)] & flag))
                return 1;
    return 0;
}

/* Whether the excess of a pixel makes a hit for certain. */
SPX_HD int spx_reject_is_strong(const spx_reject_window *w, size_t i)
{
    return spx_reject_excess_of(w, i) > fmax(SPX_REJECT_STRONG, w->sigma);
}

/* Square of the least excess of a hit, and whether a pixel may have it: nearly all have not. */
SPX_HD double spx_reject_least(const spx_reject_window *w)
{
    const double least = fmin(w->sigma, SPX_REJECT_NEAR);
    return least * least;
}
SPX_HD int spx_reject_stands_out(double least, double value, double ivar, double free, double model)
{
    const double rest = value - model;
    return (rest > 0.0) & !(rest * rest * ivar < least * free);
}

/* The excess of a pixel that is to be rejected if it is large enough beside those around; 0: it is not. */
SPX_HD double spx_reject_candidate(const spx_reject_window *w, size_t i)
{
    if (!spx_reject_stands_out(spx_reject_least(w), (double)w->data[i], (double)w->ivar[i], (double)w->free[i],
                               w->model[i]))
        return 0.0;
    if ((w->flag[i] & (SPX_REJECT_SEEN | SPX_REJECT_HIT)) != SPX_REJECT_SEEN)
        return 0.0;
    const double z = spx_reject_excess_of(w, i);
    return z > spx_reject_threshold(w->sigma, spx_reject_variance(w, i), w->model[i]) ||
                   (z > SPX_REJECT_NEAR && spx_reject_beside(w, i, SPX_REJECT_IS_STRONG, 1))
               ? z
               : 0.0;
}

/* Whether a pixel is to be rejected. */
SPX_HD int spx_reject_is_new(const spx_reject_window *w, size_t i)
{
    const double z = spx_reject_candidate(w, i);
    return z > 0.0 && z >= SPX_REJECT_WORST * spx_reject_worst_around(w, i);
}

/* Whether a pixel that was rejected comes back. */
SPX_HD int spx_reject_comes_back(const spx_reject_window *w, size_t i)
{
    return (w->flag[i] & SPX_REJECT_HIT) &&
           spx_reject_excess_of(w, i) < (spx_reject_beside(w, i, SPX_REJECT_IS_STRONG, 1)
                                             ? fmin(w->sigma, SPX_REJECT_BACK_NEAR)
                                             : SPX_REJECT_BACK * w->sigma);
}

/* Whether the charge of a strong hit has spread to a pixel that is in use. */
SPX_HD int spx_reject_is_spilled_on(const spx_reject_window *w, size_t i)
{
    return (w->flag[i] & (SPX_REJECT_SEEN | SPX_REJECT_HIT)) == SPX_REJECT_SEEN &&
           spx_reject_beside(w, i, SPX_REJECT_IS_STRONG, 0);
}

/* Whether a pixel that was rejected lies where hits are not kept. */
SPX_HD int spx_reject_is_outside(const spx_reject_window *w, size_t i)
{
    return (w->flag[i] & (SPX_REJECT_HIT | SPX_REJECT_INNER)) == SPX_REJECT_HIT;
}

/* 1 - leverage, within what is allowed. */
SPX_HD float spx_reject_free(double leverage)
{
    const double left = 1.0 - leverage; /* no fmin(), fmax(): compilers know no vectors of them */
    return (float)(left > SPX_REJECT_LEAST_FREE ? left < 1.0 ? left : 1.0 : SPX_REJECT_LEAST_FREE);
}

#endif
