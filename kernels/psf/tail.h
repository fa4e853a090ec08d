/* Provides images of tails: of the light that spots have beyond their pixels, or of all light around cores.
 *
 * A core whose pixels sum up to c has in pixel (x, y), for each electron of the core, the tail
 *     (TAILAMP/c) R2/(TAILCORE^2 + R2)^(1 + TAILINDE/2),  R2 = (dx TAILXSCA)^2 + (dy TAILYSCA)^2,
 * dx, dy from the trace centre to the centre of the pixel, on all of the CCD; light beyond its edges is lost. Spots
 * have the tail within their own pixels (psf/spot_math.h): what they have not is the tail beyond them. TAILAMP may
 * depend on fibre and wavelength; the others must be the same in a camera. Tails do not lean (TILT).
 *
 * Method: T = T (1 - S1) + T (S1 - S2) + T S2 with smooth steps S1, S2 of the distance. The near part is tabulated for
 * places within a pixel, and linear in between. The others are smooth: light and result on grids of SPX_TAIL_FINE and
 * SPX_TAIL_COARSE pixels, with cubics in between, and FFTs, of tiles for the middle part. */
#ifndef SPX_PSF_TAIL_H
#define SPX_PSF_TAIL_H

#include <stddef.h>

#include "base/err.h"
#include "products/psf.h"

/* Pixels of a cell of both grids; distances, pixels, at which the middle part begins at least, which it does not within
 * a spot whose own pixels are left out, and the far part; those in which each rises to all of T, the middle part in
 * more where there is no near part that errors are small beside. */
enum {
    SPX_TAIL_FINE = 2,
    SPX_TAIL_COARSE = 8,
    SPX_TAIL_INNER = 2,
    SPX_TAIL_OUTER = 8,
    SPX_TAIL_MIDDLE_STEP = 9,
    SPX_TAIL_BEYOND_STEP = 13,
    SPX_TAIL_FAR_STEP = 56
};

/* Cells around a grid that cubics reach; steps between the places of the trace centre within a pixel that the near part
 * is tabulated for, from one edge to the other; knots of the amplitude along a trace; pixels around the CCD whose light
 * counts at least. */
enum { SPX_TAIL_RIM = 2, SPX_TAIL_XPHASES = 64, SPX_TAIL_YPHASES = 16, SPX_TAIL_KNOTS = 17, SPX_TAIL_LEAST_EDGE = 9 };

typedef struct spx_tail spx_tail;

/* Its tables, for a device: these stay where they are. */
typedef struct {
    size_t ny, nx, edge;         /* of the CCD; pixels around it whose light counts */
    size_t near, row;            /* pixels that the near part reaches; columns of its tables' rows */
    size_t fine_ny, fine_nx;     /* cells of the grid of SPX_TAIL_FINE pixels */
    size_t coarse_ny, coarse_nx; /* of that of SPX_TAIL_COARSE */
    size_t reach, tile;          /* cells that the middle part reaches; of the side of its transforms */
    size_t field_ny, field_nx;   /* cells of the transforms of the far part */
    const float *table;          /* [XPHASES + 1][2 near + 1][row] for light in the middle of rows */
    const float *middle, *far;   /* [tile][tile/2 + 1][2], [field_ny][field_nx/2 + 1][2]: transforms of kernels */
    double wmin, wmax;           /* of the first and the last knot */
    const double *amplitude;     /* [nspec][SPX_TAIL_KNOTS] */
} spx_tail_view;

/* What all tails of a camera share. */
typedef struct {
    double core, xscale, yscale, index; /* TAILCORE (pixel), TAILXSCA, TAILYSCA, TAILINDE */
} spx_tail_shape;

/* That of a PSF with a tail (spx_psf_has_tail()). SPX_EINPUT: TAILCORE, TAILXSCA, TAILYSCA or TAILINDE depend on fibre
 * or wavelength by more than 1e-6 of themselves, or make no tail that falls: TAILCORE below 0, a scale or TAILINDE not
 * above 0. */
spx_status spx_tail_shape_of(const spx_psf *psf, spx_tail_shape *shape, spx_err *e) SPX_NODISCARD;

/* T of amplitude 1 at dx, dy pixels from the trace centre. */
double spx_tail_value(const spx_tail_shape *shape, double dx, double dy);

/* Makes what the tails of images [ny][nx] need, for wavelengths wmin to wmax, Angstrom, of a PSF with a tail, which has
 * to stay. beyond: 1: the tail beyond the spots' pixels, of light that is counted within them; 0: all of the tail, of
 * light that is counted within cores alone. nthreads: 0: OpenMP's default; nothing depends on it. Free with
 * spx_tail_free(), also after an error. Errors as of spx_tail_shape_of(); SPX_EIO: memory. */
spx_status spx_tail_make(const spx_psf *psf, size_t ny, size_t nx, double wmin, double wmax, int beyond, int nthreads,
                         spx_tail **tail, spx_err *e) SPX_NODISCARD;
void spx_tail_free(spx_tail *t);
void spx_tail_look(const spx_tail *t, spx_tail_view *v);

/* A wavelength among the knots of what changes along the traces: the first of four, and their weights. */
typedef struct {
    size_t first;
    double weight[4];
} spx_tail_knots;
spx_tail_knots spx_tail_knots_at(const spx_tail *t, double lambda);

/* Light within the pixels of a spot with its tail, over that of its core alone. */
double spx_tail_within(const spx_tail *t, size_t fibre, const spx_tail_knots *at);

/* TAILAMP of a core's electrons. */
double spx_tail_amplitude(const spx_tail *t, size_t fibre, const spx_tail_knots *at);

/* Takes away all light, and makes room for that of nlight bins. SPX_EIO: memory. */
spx_status spx_tail_clear(spx_tail *t, size_t nlight, spx_err *e) SPX_NODISCARD;

/* Adds light at a place: electrons within the pixels of a spot whose central pixel is (column, row) and whose trace
 * centre lies dx, dy from its middle. Light whose central pixel is more than a spot's size beyond the CCD is lost. From
 * one thread. */
void spx_tail_add(spx_tail *t, size_t fibre, double lambda, long column, long row, double dx, double dy,
                  double electrons);

/* A tabulated place across a pixel, which the light of a few rows may share: its pixel, number, and column. */
typedef struct {
    long pixel;
    int place;
    double column;
} spx_tail_column;
spx_tail_column spx_tail_column_of(double column);

/* Makes room for n lights, and sets number i of them, which lies in the middle of a row: electrons, and their moment,
 * electrons times pixels from the place's column. The image is linear in both. Each has to be set, different ones from
 * different threads. In the order of their rows, or of up to eight together, the image takes least. SPX_EIO: memory. */
spx_status spx_tail_reserve(spx_tail *t, size_t n, spx_err *e) SPX_NODISCARD;
void spx_tail_set(spx_tail *t, size_t i, double amplitude, const spx_tail_column *at, long row, double electrons,
                  double moment);

/* The tails of the light that was added or set since spx_tail_clear() or spx_tail_reserve(), electrons, into
 * image[ny][nx]. The result does not depend on the number of threads (0: OpenMP's default). SPX_EIO: memory. */
spx_status spx_tail_image(spx_tail *t, int nthreads, float *image, spx_err *e) SPX_NODISCARD;

#endif
