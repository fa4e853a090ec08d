/* Spectra of other instruments and surveys: where in a file they are, seen by its content, and the block `spectra` of
 * any number of such files.
 *
 * What is known is in tables (surveys.c, columns.c): of files that say what they are (SDSS, LAMOST, APOGEE, GALAH), and
 * of names that columns and HDUs of wavelengths, fluxes, errors and masks have wherever they come from: one spectrum a
 * table (a row a pixel, or vectors in a row), orders of an echelle spectrograph, HDUs side by side, images with a
 * wavelength scale in their header (FITS standard 4.0, section 8.4; IRAF's linear, logarithmic and multispec scales:
 * Valdes 1993, ASP Conf. Ser. 52, 467). */
#ifndef SPX_FITS_SPECTRUM_H
#define SPX_FITS_SPECTRUM_H

#include <hdf5.h>
#include <stdint.h>

#include "app/failures.h"
#include "base/err.h"
#include "convert/hdf5.h"
#include "convert/note_list.h"
#include "fits/scan.h"
#include "products/spectra.h"

/* Kind of errors of fluxes. */
typedef enum {
    SPX_NOISE_NONE, /* none: estimated from the scatter of neighbouring pixels */
    SPX_NOISE_IVAR,
    SPX_NOISE_SIGMA,
    SPX_NOISE_VARIANCE,
    SPX_NOISE_RELATIVE /* sigma, or sigma over flux: whichever is closer to the scatter of neighbouring pixels */
} spx_fits_noise;

/* Location of values: row `row` of an image (column -1), a column with one value a row of the table (row
 * SPX_FITS_ROWS), or the vector in row `row` of a column. hdu -1: none. */
#define SPX_FITS_ROWS SIZE_MAX
/* Wavelengths without a unit are metres below this. */
#define SPX_FITS_METRES 1e-3
/* Wavelengths that cannot be, Angstrom: below 10 nm, above 1 mm. */
#define SPX_FITS_SHORTEST 100.0
#define SPX_FITS_LONGEST  1e7
typedef struct {
    int hdu, column;
    size_t row;
} spx_fits_values;
#define SPX_NO_VALUES ((spx_fits_values){-1, -1, 0})

typedef enum { SPX_WAVE_LINEAR, SPX_WAVE_LOG10, SPX_WAVE_LN } spx_wave_scale;

typedef struct {
    char arm[16];                            /* name of the arm; another one of the same name gets a number */
    size_t row;                              /* index among the file's rows of the block */
    int exposure;                            /* 1: single exposure of a sum that is in the file, too */
    size_t n;                                /* pixels */
    spx_fits_values flux, noise, mask, wave; /* wave may be empty: then `given`, or start + step i, i = 0 ... n-1 */
    spx_fits_noise kind;
    uint32_t bad; /* mask bits that make a pixel unusable */
    spx_wave_scale scale;
    double start, step, unit; /* unit in Angstrom, after undoing the logarithm; 0: guessed from the values */
    int medium, barycentric;  /* -1: not stated; barycentric -2: a frame that is neither */
    double *given[3];         /* owned: wavelengths in Angstrom; fluxes and errors of a text file */
} spx_fits_spectrum;

typedef struct {
    const char *format; /* as a person knows it; NULL: nothing that is known */
    size_t n, capacity;
    spx_fits_spectrum *s;
    char note[200]; /* reason why something resembling a spectrum cannot be used, or empty */
} spx_fits_spectra;

typedef struct {
    int exposures;      /* 1: single exposures in place of their sum */
    int medium;         /* SPX_VACUUM, SPX_AIR; -1: from the file, else vacuum */
    const char *orders; /* FIRST:LAST of the orders of an echelle spectrum; NULL: all */
} spx_fits_spectrum_options;

/* Finds the spectra of a file; n 0 and SPX_OK where none is recognised. Free with spx_fits_spectra_free(), also after
 * an error. SPX_EINPUT: no single exposures although requested, a damaged wavelength scale; SPX_EUSAGE: no such
 * orders. */
spx_status spx_fits_spectra_find(spx_fits *f, const spx_fits_spectrum_options *o, spx_fits_spectra *out, spx_err *e);
void spx_fits_spectra_free(spx_fits_spectra *s);

/* Checks that wavelengths are monotonic and possible, and their frame a known one; l->note names a spectrum whose are
 * not. */
spx_status spx_fits_spectra_check(spx_fits *f, spx_fits_spectra *l, spx_err *e);

/* Dataset of an arm made from each HDU, its group where an HDU holds several; or an empty text. */
void spx_fits_spectra_plan(const spx_fits *f, const spx_fits_spectra *s, spx_fits_path *view);

/* File of a block of spectra; f->nhdu 0: a text file. */
typedef struct {
    spx_fits *f;
    const char *name;
    const spx_fits_spectra *found;
    int left_out; /* set by spx_fits_spectra_write(): could not be read */
} spx_spectrum_file;

/* Writes /spectra and /fibermap of n files: a row a file (files that are arms of one observation, as those of the four
 * cameras of HERMES, share a row), in their order. Spectra on pixels of the same grid, of which they may have different
 * parts, are one arm; others of that name are numbered. Wavelengths are made to increase; pixels without a wavelength
 * are dropped, and so are orders that have none at all; a pixel whose flux or error is not finite, or whose error is
 * not positive, gets ivar 0 and the mask SPX_NODATA, one with a bad bit of its own mask 0 and SPX_SOMEBADPIX. What a
 * user should hear is added to `notes`. SPX_EINPUT: wavelengths that turn, no wavelengths in a whole file,
 * which `failed` may allow, unless it is all files; more arms than there is room for. */
spx_status spx_fits_spectra_write(size_t n, spx_spectrum_file *file, hid_t out, spx_failures *failed,
                                  spx_note_list *notes, spx_err *e);

/* and_mask bits of SDSS spectra that make a pixel unusable: NOPLUG 0, BADTRACE 1, BADFLAT 2, BADARC 3, FULLREJECT 18,
 * NOSKY 22, BRIGHTSKY 23, NODATA 24, BADFLUXFACTOR 26, BADSKYCHI 27, REDMONSTER 28. The others tell how a pixel came
 * about, and its ivar says what it is worth (SDSS bitmask SPPIXMASK). */
#define SPX_SDSS_BAD                                                                                                   \
    (1u << 0 | 1u << 1 | 1u << 2 | 1u << 3 | 1u << 18 | 1u << 22 | 1u << 23 | 1u << 24 | 1u << 26 | 1u << 27 | 1u << 28)

#endif
