/* Makes Legendre series in wavelength, as /psf has them, of traces that are functions of the row: trace sets of SDSS,
 * splines of a detectorMap. */
#ifndef SPX_FITS_PSF_TRACES_H
#define SPX_FITS_PSF_TRACES_H

#include "convert/note_list.h"
#include "products/psf.h"

/* Wavelength, column and widths of the spot at a row of a trace. */
enum { SPX_ROW_WAVELENGTH, SPX_ROW_X, SPX_ROW_SIGMA_X, SPX_ROW_SIGMA_Y, SPX_ROW_VALUES };

/* Traces as functions of the row, which can be evaluated some per cent beyond their first and last row. */
typedef struct {
    const char *file; /* for messages */
    size_t ntrace;
    const double *rows; /* [ntrace][2] first and last row of each */
    const void *of;     /* handed to at() */
    void (*at)(const void *of, size_t trace, double row, double value[SPX_ROW_VALUES]); /* Angstrom, pixels */
} spx_row_traces;

/* Largest degree of the series, and the largest difference of a row, column or width from them, pixels. */
enum { SPX_TRACE_DEGREE = 12 };
#define SPX_TRACE_RESIDUAL 0.01

/* Half size of a spot, sigma; sigma of spots whose file has no widths, pixels: about that of PFS. */
#define SPX_TRACE_SPOT  5.0
#define SPX_TRACE_SIGMA 1.4

/* Fills *psf, which is empty: traces, and Gaussian spots (GH degree 0) with half sizes of five sigma. Series are of the
 * lowest degree that leaves less than 0.0001 pixel; what is left is noted. They share one range of wavelengths where
 * the ranges of the traces differ by 5 % at most, else each has its own (wave_range). Not indexed. SPX_EINPUT: a value
 * is not finite, the wavelength neither rises nor falls along a trace, a width is not above 0, or more than
 * SPX_TRACE_RESIDUAL is left. Free *psf with spx_psf_free(), also after an error. */
spx_status spx_psf_of_rows(const spx_row_traces *t, spx_psf *psf, spx_note_list *notes, spx_err *e) SPX_NODISCARD;

#endif
