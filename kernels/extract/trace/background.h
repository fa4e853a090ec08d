/* Provides the background of an image: smooth light between and beneath the traces, such as scattered light, as a few
 * more unknowns of the light by rows (extract/trace/rows.h). Private to kernels/extract/.
 *
 *     p = G a + B c + noise,   G: profiles of the fibres in a row,  B: products of cubic B-splines over the CCD
 *
 * by weighted least squares, all a free: with V = G^T W B and A = G^T W G of a row,
 *
 *     S c = B^T W p - V^T A^-1 G^T W p,   S = B^T W B - V^T A^-1 V,
 *
 * summed over the rows. A is banded, and splines are wide: only those that are not 0 at a fibre count for it. */
#ifndef SPX_EXTRACT_TRACE_BACKGROUND_H
#define SPX_EXTRACT_TRACE_BACKGROUND_H

#include "calib/series.h"
#include "extract/trace/rows.h"

typedef struct spx_background spx_background;

/* A background of 0 on images [ny][nx], with knots `cell` pixels apart. SPX_EUSAGE: more than SPX_BACKGROUND_MOST
 * unknowns; SPX_EIO: memory. Free it with spx_background_free(), also after an error. */
enum { SPX_BACKGROUND_MOST = 4000 };
spx_status spx_background_make(size_t ny, size_t nx, double cell, spx_background **bg, spx_err *e) SPX_NODISCARD;
void spx_background_free(spx_background *bg);

/* Fits it anew to the pixels of the fibres, and SPX_BACKGROUND_GAP beside them, of the image - far[ny][nx] (NULL: the
 * image); those of fibres whose trace has ended are not used. rough: to some of the rows. Else pixels more than 6
 * errors off light and background, as it was before, are left out, with those beside them. The result does not depend
 * on the number of threads. SPX_EINPUT: no pixel is left that tells of a background; SPX_EIO: memory. */
enum { SPX_BACKGROUND_GAP = 8 };
spx_status spx_background_fit(spx_background *bg, const spx_rows *rows, const float *far, int rough, int nthreads,
                              spx_extract_counts *counts, spx_err *e) SPX_NODISCARD;

/* Its splines, for who fits it elsewhere. */
typedef struct {
    size_t ny, nx;
    spx_bspline along, across; /* in rows, in columns */
    size_t every;              /* rows, of which one is used for a rough fit */
    const double *c;           /* [along.n][across.n] */
} spx_background_view;
void spx_background_look(const spx_background *bg, spx_background_view *v);

/* Errors from light and background beyond which a pixel is left out: hits, and stars that the PSF does not fit. */
#define SPX_BACKGROUND_CLIP 6.0

/* The fit, from equations that are summed up: sums[along.n][4][across.n][5] is, of each spline along and it and those
 * behind it, and each spline across, S with itself and those behind it, and at last, where the first are the same, the
 * right side. Errors as of spx_background_fit(). */
enum { SPX_BACKGROUND_NEAR = 4 };
spx_status spx_background_solve(spx_background *bg, const double *sums, spx_err *e) SPX_NODISCARD;

/* Adds it to far[ny][nx]. */
void spx_background_add(const spx_background *bg, int nthreads, float *far);

/* Electrons a pixel at column x, row y. */
double spx_background_at(const spx_background *bg, double x, double y);

#endif
