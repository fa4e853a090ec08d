/* Provides the start of a fit of traces and PSF without a PSF to begin with: traces from a flat, wavelengths from an
 * arc.
 *
 *     1 traces      peaks of the flat in blocks of rows, followed along the CCD; fibres without light by the pattern of
 * bundles 2 spectra     of the arc along the traces, and the places of their peaks 3 wavelengths of a fibre in the
 * middle: exhaustive search of c + s t + q t^2, then polynomials of rising degree through peaks and listed lines; the
 * solution has to be the only one 4 fibres      outwards from there, each from its neighbour's 5 series      Legendre
 * polynomials x(lambda), y(lambda); widths of spots
 *
 * Traces run along columns; wavelengths rise or fall with the row. Intensities of lines are not used, because they do
 * not hold between lamps. The first three steps can be called alone (psffit/cold_steps.h). */
#ifndef SPX_PSFFIT_COLD_H
#define SPX_PSFFIT_COLD_H

#include <stddef.h>

#include "base/err.h"
#include "products/image.h"
#include "products/psf.h"
#include "spectral/lines.h"

typedef struct {
    size_t nbundle; /* bundles, and the fibres of each in order of their number; 0: the flat's peaks are all there is */
    const size_t *bundle;    /* [nbundle] */
    int from_right;          /* fibre 0 has the highest column, not the lowest */
    double centre;           /* wavelength at the middle row, Angstrom */
    double centre_range;     /* by which it may be off */
    double dispersion;       /* Angstrom a row at the middle, above 0 */
    double dispersion_range; /* fraction by which it may be off */
    int direction;           /* of wavelengths with rows: 1 rising, -1 falling, 0 not known */
    int trace_degree;        /* of the series */
    int hsizex, hsizey;      /* half size of a spot, pixels */
    int nthreads;
} spx_cold_options;

/* No bundles, trace_degree 6, hsize 8 and 5, centre +- 200 Angstrom, dispersion +- 8 %: centre and dispersion are still
 * to be given. */
spx_cold_options spx_cold_defaults(void);

/* A solution for the wavelengths of the middle fibre. */
typedef struct {
    size_t nline;       /* peaks that are listed lines */
    double first, last; /* wavelengths at the first and last row, Angstrom */
    double dispersion;  /* at the middle row, Angstrom a row; below 0 where wavelengths fall */
    double rms;         /* of the lines, Angstrom */
    int degree;         /* of the polynomial */
} spx_cold_solution;

typedef struct {
    size_t nspec, ndead;   /* fibres, and those without light */
    int turned;            /* there would be fewer of these with the bundles from the other side of the CCD */
    size_t nbundle;        /* bundles */
    double pitch;          /* between fibres of a bundle, pixels */
    double sigmax, sigmay; /* median widths of traces and lines, pixels */
    size_t middle;         /* fibre that was identified first */
    size_t npeak;          /* its peaks */
    size_t nlost;          /* its peaks that saturated or masked pixels spoil */
    spx_cold_solution best, rival;
    int degree;   /* of the wavelengths of most fibres; below 5 where lines are few */
    double nline; /* median number of lines of a fibre */
    double rms;   /* of all lines about the polynomials, pixels in y */
    size_t nfew;  /* fibres that take the wavelengths of their neighbours, for want of lines */
} spx_cold_report;

/* Start of a fit from an exposure of a flat and the sum of arcs, arc[narc], of equal size; line[nline]: the list, by
 * wavelength. Fills zeroed *psf (type Gauss-Hermite of degree 0, with status, bundle and the widths; spx_psf_free(),
 * also after an error) and *report, as far as it got. Fibres without light are flagged SPX_PSF_DEAD and have their
 * place in the pattern, with the trace of their neighbours; those without lines, SPX_PSF_FEWLINES. SPX_EINPUT: images
 * differ in size or camera, too few fibres, no lines, no unique identification; the message names both solutions.
 * SPX_EUSAGE: options out of range. SPX_EIO: memory. */
spx_status spx_cold_start(const spx_image *flat, size_t narc, const spx_image *arc, size_t nline,
                          const spx_arc_line *line, const spx_cold_options *o, spx_psf *psf, spx_cold_report *report,
                          spx_err *e) SPX_NODISCARD;

/* Shift of the arcs' lines against the traces of a PSF, in half pixels, one for the whole camera: within 25 pixels in y
 * and 1.1 times the distance of fibres in x. *found: 1 when it is clear; 0 (and shifts of 0) without five listed lines
 * or their light. SPX_EIO: memory. */
spx_status spx_cold_shift(const spx_psf *start, size_t narc, const spx_image *arc, size_t nline,
                          const spx_arc_line *line, int nthreads, int *found, double *dx, double *dy,
                          spx_err *e) SPX_NODISCARD;

/* Moves all traces. */
void spx_cold_move(spx_psf *psf, double dx, double dy);

#endif
