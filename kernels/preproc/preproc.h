/* Provides the way from a raw exposure to a pre-processed image, and master calibrations from many exposures.
 *
 * Of each amplifier, with its raw pixels v (ADU), the level b of its overscan, gain g, cross-talk factors k, linearity
 * c, master bias B (electrons), dark D (electrons a second), exposure time t, pixel flat F:
 *
 *     u = v - b(row)                             overscan.c
 *     u -= sum over sources s: k_s u_s           at the pixel that s read at the same time
 *     e = g u - B,   e *= 1 + c_1 e/g + c_2 (e/g)^2 ...
 *     image = (e - t D) / F
 *     variance = (max(s, 0) F + n^2) / F^2 + s^2 var(F)/F^2
 *     n^2 = r^2 + var(b) + var(B) + t^2 var(D) + t max(D, 0)
 *
 * r is the read noise that the overscan shows, in electrons, with that of the digits; n/F is written as the image's
 * read noise, so that a variance from a model of the light needs nothing else (specx-extract).
 *
 * s is the light that the variance is made of. Where it is the pixel itself, noise that makes it bright makes its
 * weight small, and sums come out too low. So it is the mean of the pixels above and below, along the traces, wherever
 * these agree within their noise; elsewhere, in lines, it is the pixel. */
#ifndef SPX_PREPROC_H
#define SPX_PREPROC_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/progress.h"
#include "products/image.h"
#include "products/master.h"
#include "products/raw.h"

/* How the level of the overscan depends on the row; of a section above or below the pixels on the column. AUTO takes
 * the simplest that describes it. */
typedef enum {
    SPX_OVERSCAN_AUTO,
    SPX_OVERSCAN_NONE,     /* no overscan is used: the level is 0, and the read noise that of the header */
    SPX_OVERSCAN_CONSTANT, /* one level */
    SPX_OVERSCAN_SMOOTH,   /* a straight line in a window around each row */
    SPX_OVERSCAN_LINE,     /* each row has its own */
    SPX_OVERSCANS
} spx_overscan_model;

extern const char *const spx_overscan_names[SPX_OVERSCANS + 1];

typedef struct {
    spx_overscan_model overscan;
    size_t window;  /* rows of SMOOTH */
    int smooth;     /* 1: the variance of the light is that of neighbours; 0: of each pixel */
    size_t grow;    /* pixels beside saturated ones, in the column, that are flagged, too */
    double exptime; /* s, for the dark */
    int nthreads;
} spx_preproc_options;

/* Values that pixels pile up at, because they are full: ADU, from, and to below which; INFINITY for the highest pile.
 */
typedef struct {
    double from, to;
    int charge; /* 1: above the level of their row or column, which the mean stands for in `from` and `to` */
} spx_pile;

enum { SPX_PILES = 4 };

/* Overscan of one amplifier. */
typedef struct {
    spx_overscan_model model;
    int columns;      /* 1: `level` depends on the column */
    size_t n;         /* rows or columns of its data section */
    double *level;    /* [n], ADU; owned */
    double mean;      /* ADU */
    double readnoise; /* ADU; 0: no overscan */
    double readnoise_err;
    double level_var;  /* of the level of a row, ADU^2 */
    double chi2;       /* per degree of freedom, of the rows' means about a constant */
    size_t ndropped;   /* columns left out, because they have charge of the pixels beside them */
    double trail;      /* part of the nearest pixel's signal that the first of them has */
    double saturation; /* ADU from which on a pixel is saturated: the amplifier's, or the highest pile's; 0: none is */
    size_t npile;      /* levels below the amplifier's that pixels pile up at, the highest first */
    spx_pile pile[SPX_PILES];
    size_t nsaturated; /* pixels */
} spx_overscan;

/* Level and noise of the overscan of an amplifier. Values 5 sigma from the median of their row are left out. The noise
 * is the pooled scatter about the mean of rows, unbiased for Gaussian noise: var = sum (v - mean)^2 / sum (n - 1), and
 * 1 + 1/(4 dof) for its root. Columns beside the pixels are dropped, from both ends of a section and up to half of it,
 * as long as they show charge that the image has left: a mean 5 errors off, or a part of the nearest pixel's signal
 * that is 5 errors above 0. AUTO: constant where the means of rows agree with it, else a smooth level where that
 * describes them, else rows of their own. Without any section, or with NONE, the level is 0. Fills a zeroed *out, freed
 * with spx_overscan_free(). SPX_EINPUT: a section of fewer than two values. */
spx_status spx_overscan_fit(const spx_raw *raw, const spx_amplifier *a, const spx_preproc_options *o, spx_overscan *out,
                            spx_err *e);
void spx_overscan_free(spx_overscan *s);

/* Value v of pixel (x,y) of the data section above its level, ADU. */
static inline double spx_overscan_above(const spx_overscan *s, double v, long x, long y)
{
    return v - s->level[s->columns ? x : y];
}

/* Does value v, u above its level, lie in a pile of the amplifier? */
static inline int spx_overscan_piled(const spx_overscan *s, double v, double u)
{
    int in = 0;
    for (size_t k = 0; k < s->npile && !in; k++) {
        const double w = s->pile[k].charge ? u + s->mean : v;
        in = w >= s->pile[k].from && w < s->pile[k].to;
    }
    return in;
}

/* Fills `pile`: values that pixels of an amplifier pile up at, because no pixel holds more charge or no digits are
 * left. Photons make the levels of bright pixels scatter by more than the read noise r: where 20 or more, and fewer
 * than half of all, lie within 6 r, five times as many as within 6 r below, at most 2 % as many above, and most of
 * them, in more than one column and eight rows, in runs along x that end beside a bright one, they are full. Where
 * parts of an amplifier hold less than others, pixels pile up below others that are right: there 50 or more within 6 r
 * are full, five times as many as in any 6 r within 96 r on either side, which light does not make either. Four
 * such levels are coarse digits, and none. Full digits are the same in all rows, full wells hold the same charge above
 * a level that may vary: both are looked for. A level that scatters from pixel to pixel by more is not found. */
spx_status spx_preproc_ceiling(const spx_raw *raw, const spx_amplifier *a, spx_overscan *s, spx_err *e);

/* Calibrations to apply; each may be NULL. All have the size of the layout. `bad`: bits that are flagged, [ny][nx]. */
typedef struct {
    const spx_master *bias, *dark, *flat;
    const uint32_t *bad;
} spx_preproc_masters;

/* Pre-processes an exposure: fills data, ivar, mask, readnoise, ny, nx of a zeroed *out, and over[namp]. Mask: BAD
 * where no amplifier reads, a value is not finite, or `bad` and masters say so; SATURATED. Pixels with any bit have
 * ivar 0. SPX_EINPUT: all pixels are saturated; the overscan cannot be used. */
spx_status spx_preproc_cpu(const spx_raw *raw, const spx_layout *l, const spx_preproc_masters *m,
                           const spx_preproc_options *o, spx_image *out, spx_overscan *over, spx_err *e);

/* ---- master calibrations ---- */

/* A pre-processed exposure among those that are combined. */
typedef struct {
    float *data;                            /* [ny][nx], electrons; NAN: masked */
    double scale;                           /* of values in the master; dark: 1/s, flat: 1/median */
    double noise2[SPX_RAW_MOST_AMPLIFIERS]; /* electrons^2: of read noise and level */
} spx_combine_exposure;

typedef struct {
    size_t n, capacity;
    spx_combine_exposure *exposure;
} spx_combine;

typedef struct {
    spx_master_kind kind;
    double reject; /* values further than this from the mean of the others are left out, in units of their error */
    size_t smooth; /* flat: pixels that the light of the lamp is smooth over */
    double hot;    /* dark: pixels above it are flagged, electron/s; 0: none */
    int nthreads;
    spx_progress *progress; /* counts amplifiers; may be NULL */
} spx_combine_options;

/* Exposures of one amplifier. */
typedef struct {
    double scatter;   /* about their mean, in units of the expected one */
    double dof;       /* degrees of freedom of that; 0: one exposure */
    double photons;   /* part of the expected variance that is that of photons */
    double readnoise; /* electrons, with that of the level */
} spx_combine_amp;

/* Adds an exposure: what spx_preproc_cpu() has made of it, with its exposure time (s, of a dark). Its pixels are a
 * block of their own, in a file of $TMPDIR where memory is short (spx_alloc_spill()). SPX_EINPUT: a flat has no light.
 */
spx_status spx_combine_add(spx_combine *c, const spx_combine_options *o, const spx_layout *l, const spx_image *im,
                           const spx_overscan *over, double exptime, spx_err *e);
void spx_combine_free(spx_combine *c);

/* Mean of all exposures. The variance of a value is that of its read noise and of the photons of the mean, so that
 * noise is not in the weights; values `reject` errors from the mean are left out, beginning with the median, of two
 * with the smaller. Variances are then multiplied by the square of the scatter that the exposures of an amplifier have
 * about their means, that of the median pixel. `bias` (NULL: none) was subtracted from all: its variance is added. BAD:
 * fewer than half of the exposures are left. A flat is divided by the light of the lamp, straight lines in windows of
 * `smooth` pixels along rows and columns of each amplifier; below 0.1 it is LOWFLAT; where its error is above a quarter
 * it is 1, ivar 0. Fills data, ivar, mask, count, kind, nexp and size of a zeroed *out, and amp[namp]. The same bits
 * for any nthreads.
 */
spx_status spx_combine_cpu(const spx_combine *c, const spx_combine_options *o, const spx_layout *l,
                           const spx_master *bias, spx_master *out, spx_combine_amp *amp, spx_err *e);

#endif
