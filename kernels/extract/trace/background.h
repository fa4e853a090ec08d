/* Provides the background of an image: smooth light between and beneath the traces, such as scattered light, as a few
 * more unknowns of the extraction. Private to kernels/extract/.
 *
 *     p = A f + B c + noise,   B: products of cubic B-splines over the CCD
 *
 * by weighted least squares, all fluxes f free. With f eliminated, P = A M^-1 A^T W of each bundle:
 *
 *     S c = B^T W (I - P) p,   S = B^T W (I - P) B
 *
 * by conjugate gradients: each step is a solution of all bundles for other values of the pixels, for which the factors
 * of M stay. B is smooth over the distance of fibres, so P B is nearly B (P 1), and B^T diag(W (1 - P 1)) B, summed
 * over blocks of pixels, is a preconditioner with which few steps are enough. */
#ifndef SPX_EXTRACT_TRACE_BACKGROUND_H
#define SPX_EXTRACT_TRACE_BACKGROUND_H

#include "extract/trace/trace.h"

typedef struct spx_background spx_background;

/* All bundles of a frame, solved as far as the flux; the members are arrays of [nbundle]. */
typedef struct {
    const spx_trace_plan *p;
    size_t nbundle;
    spx_trace_bundle *b;
    spx_trace_workspace *r;
    spx_trace_tally *tallies;
    const int *any; /* has light, see spx_trace_deconvolve() */
    int *solved;
} spx_trace_all;

/* A background of 0 on images [ny][nx], with knots `cell` pixels apart. SPX_EUSAGE: more than SPX_BACKGROUND_MOST
 * unknowns; SPX_EIO: memory. Free it with spx_background_free(), also after an error. */
enum { SPX_BACKGROUND_MOST = 4000 };
spx_status spx_background_make(size_t ny, size_t nx, double cell, spx_background **bg, spx_err *e) SPX_NODISCARD;
void spx_background_free(spx_background *bg);

/* Fits it anew, from the one that it is, with all pixels whose spots are solved: those of the bundles and
 * SPX_BACKGROUND_GAP beside them. Pixels more than 6 errors off the model are left out then, and it is fitted again.
 * far [ny][nx] is other light that has been taken off the image, and this background; its change is added. The bundles'
 * fluxes are those of image - far before, within the plan's tolerance after it; their windows are not, and are to be
 * made anew. The result does not depend on the number of threads. SPX_EINPUT: no pixel is left that tells of a
 * background. */
enum { SPX_BACKGROUND_GAP = 8 };
spx_status spx_background_fit(spx_background *bg, const spx_trace_all *all, const spx_image *image, float *far,
                              int nthreads, spx_extract_counts *counts, spx_err *e) SPX_NODISCARD;

/* Adds it to far[ny][nx]. */
void spx_background_add(const spx_background *bg, int nthreads, float *far);

/* Electrons a pixel at column x, row y. */
double spx_background_at(const spx_background *bg, double x, double y);

#endif
