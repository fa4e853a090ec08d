/* Provides the fit of the zero point (zero_point.c) to devices: its lines, fibres and columns, and the engine that sums
 * up its normal equations. Private to kernels/shift. */
#ifndef SPX_SHIFT_ZERO_POINT_H
#define SPX_SHIFT_ZERO_POINT_H

#include "calib/envelope.h"
#include "calib/series.h"
#include "shift/shift.h"
#include "shift/spots.h"

/* Parts that fibres are summed in, each by one thread; a line without a group. */
enum { SPX_ZERO_PARTS = 16 };
#define SPX_ZERO_NONE ((size_t)-1)

/* Lines that are one column; group of those that share a place, SPX_ZERO_NONE: too faint to have one. */
typedef struct {
    size_t first, n, group; /* of the sorted lines */
    double middle;          /* Angstrom */
} spx_zero_blend;

/* Column of the fit in a strip: rows first ... first + n - 1. */
typedef struct {
    size_t first, n;
    double *value;
} spx_zero_column;

/* Rows y0 ... y0 + nrow - 1 of the CCD along one fibre, ncol pixels each from column xc[row] on. With a device the host
 * has none of the arrays, or the light of neighbours alone, in the place of data. */
typedef struct {
    size_t fibre, nrow, ncol;
    double scale, low, high; /* wavelengths that its rows may have */
    int beside[2];           /* the fibre before, and behind, has light in it */
    long y0, *xc;
    double *data, *w, *unit; /* [nrow][ncol] electrons, inverse variances, U */
    double *lambda, *rest;   /* [nrow]; [nrow][ncol] */
    spx_zero_column *line;   /* [nl] images of lines by the zero point of `made`, as make_line() gives them */
    double *values;          /* theirs, value_size() */
    int made;
} spx_zero_strip;

typedef struct {
    double *at;
    size_t n;
} spx_zero_array;

/* Columns of a strip, and memory that stays from strip to strip. */
typedef struct {
    spx_zero_column *c; /* [nc] strengths of lines, splines, places of groups, kappa */
    size_t n;           /* that there is memory for */
    spx_zero_array work, rest, weighted;
} spx_zero_columns;

struct spx_zero_engine;

typedef struct {
    const spx_image *image;
    const spx_psf *psf;
    const spx_shift_common *in;
    const spx_shift_spots *spots;   /* of the best instruction set */
    struct spx_zero_engine *engine; /* NULL: the CPU */
    spx_bspline spline;
    spx_shift_line *line; /* [nline] with their fraction of the blend as strength */
    size_t nline;
    spx_zero_blend *of;        /* [nl] */
    size_t nl, nb, ng, nk, nc; /* columns: strengths of lines, splines, places of groups, terms of kappa; all of them */
    int nthreads;
    double z[SPX_SHIFT_ZERO_MOST], kappa[SPX_SHIFT_ZERO_MOST];
    int made;               /* counts changes of z and kappa */
    double *strength;       /* [nl + nb] */
    double row;             /* Angstrom that a row has, at most */
    spx_zero_strip *strips; /* [nfibre], and what they have: */
    double *pixels;
    long *corners;
    spx_zero_column *images;
    /* Normal equations, columns sorted by wavelength, kappa last: column[i] is that of row i, and rank[] its inverse.
     */
    spx_envelope shape;
    size_t *column, *rank;
    double *g,
        *right; /* [PARTS][size], [PARTS][nc]: of the parts, then all in the first, right in the order of columns */
    size_t size;
    double *found; /* [nc] solution */
    double chi2[SPX_ZERO_PARTS], npix[SPX_ZERO_PARTS];
    spx_zero_columns memory[SPX_ZERO_PARTS];
} spx_zero_work;

/* A device that sums up. */
typedef struct spx_zero_engine {
    void *state;
    /* Takes strips whose place and size are known, and sets w->row. Light of neighbours: by
     * spx_zero_take_neighbours_off(), when xc is there. */
    spx_status (*begin)(struct spx_zero_engine *g, spx_zero_work *w, spx_err *e);
    /* Normal equations of all strips into w->g[size], w->right[nc]; chi^2 and pixels into w->chi2[0], w->npix[0].
     * reject: pixels far from the model are left out from now on. */
    spx_status (*sum_up)(struct spx_zero_engine *g, spx_zero_work *w, int reject, spx_err *e);
} spx_zero_engine;

/* Is it a PSF whose spots devices make? */
int spx_zero_on_device(const spx_psf *psf);

/* spx_zero_point_cpu() with a device, where that takes the PSF. */
spx_status spx_zero_solve(spx_zero_engine *g, const spx_image *image, const spx_psf *psf, const spx_shift_common *in,
                          const spx_shift_lines *lines, spx_shift_zero *out, spx_err *e);

/* Where a line is on the traces by the zero point so far, Angstrom. */
double spx_zero_place(const spx_zero_work *w, double lambda);

/* Kappa so far at a blend, and the terms p[SPX_SHIFT_ZERO_MOST] of its series there. */
double spx_zero_kappa(const spx_zero_work *w, const spx_zero_blend *b, double *p);

/* Terms x[n] of a series, n at most SPX_SHIFT_ZERO_MOST, with covariance cov[n][n], from normal equations info[n][n]
 * and right[n]. Those of usual[q] 0 have a normal prior of size wide[q]; the size of others is not known: none, about
 * what is usual, or, rarely, any up to wide[q], by their own values and errors (num/stat.h); cov has what it is not
 * known to. 0: no solution. */
int spx_zero_shrink(size_t n, const double *info, const double *right, const double *wide, const double *usual,
                    double *x, double *cov);

/* Angstrom from the first line of a blend to the last of another. */
static inline double spx_zero_length(const spx_zero_work *w, size_t first, size_t last)
{
    return w->line[w->of[last].first + w->of[last].n - 1].wavelength - w->line[w->of[first].first].wavelength;
}

/* Rows that a column of lines over `length` Angstrom may take in a strip. */
size_t spx_zero_most_rows(const spx_zero_work *w, const spx_zero_strip *s, double length);

/* Whether any strip has its neighbours' light in it; takes it off their data. xc is set. */
int spx_zero_beside(const spx_zero_work *w);
spx_status spx_zero_take_neighbours_off(const spx_zero_work *w, spx_err *e);

#endif
