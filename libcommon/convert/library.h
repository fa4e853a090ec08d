/* Reads libraries of model spectra in FITS files: one spectrum a file with wavelengths in a separate file (PHOENIX), or
 * all spectra in one file. Written as the block `library` (schemas/library.schema) row by row. */
#ifndef SPX_FITS_LIBRARY_H
#define SPX_FITS_LIBRARY_H

#include <hdf5.h>

#include "app/failures.h"
#include "base/err.h"
#include "base/progress.h"
#include "convert/hdf5.h"
#include "convert/note_list.h"
#include "fits/scan.h"
#include "products/templates.h"

/* Layout of a library, as options give it; NULL, 0 and -1: determined from the files. */
typedef struct {
    const char *flux;          /* HDU (name or number) of the fluxes [ntemp][nwave]; NULL: searched */
    const char *params;        /* HDU of the table of parameters, one row a spectrum; NULL: searched */
    const char *wavelength;    /* HDU of the wavelengths, or log10:START:STEP, linear:START:STEP (Angstrom); NULL:
                                * searched */
    int medium;                /* SPX_VACUUM, SPX_AIR; -1: as the file says, else vacuum */
    size_t npar;               /* 0: teff, logg, feh, alpha, under their usual names */
    char par[SPX_MAX_PAR][32]; /* names of parameters */
    char key[SPX_MAX_PAR][72]; /* their FITS keywords or columns */
} spx_library_layout;

/* Parses NAME=KEYWORD,NAME=KEYWORD... into l->par and l->key. SPX_EUSAGE. */
spx_status spx_library_parse_params(const char *text, spx_library_layout *l, spx_err *e);

/* 1 when the file holds one model spectrum: a 1-D array, with parameters as keywords. *nwave gets its length. */
int spx_fits_is_model(const spx_fits *f, const spx_library_layout *l, size_t *nwave);
/* 1 when the file holds wavelengths: an increasing 1-D array of floats, and nothing else. */
int spx_fits_is_wavelengths(spx_fits *f, size_t *nwave);
/* 1 when the file holds a whole library: fluxes, a table of parameters with a row for each, wavelengths (see the
 * options of fits2h5). view[nhdu] (may be NULL) gets the path of the dataset made from each HDU. */
int spx_fits_is_library(spx_fits *f, const spx_library_layout *l, spx_fits_path *view);

/* The block, from a single file. SPX_EINPUT says what is missing and which option gives it. */
spx_status spx_fits_library_single(spx_fits *f, const spx_library_layout *l, hid_t file, spx_note_list *notes,
                                   spx_err *e);
/* The block, from files of one spectrum each and the file of wavelengths. Each file is opened when its turn comes;
 * `progress` (may be NULL) gets a step a file. The headers are kept in /library/header, [spectra][cards]. Files that
 * are no spectrum of the library are left out where `failed` allows it, unless it is all of them. */
spx_status spx_fits_library_files(size_t nfile, const char *const *files, const char *wavelengths,
                                  const spx_library_layout *l, hid_t file, spx_progress *progress, spx_failures *failed,
                                  spx_note_list *notes, spx_err *e);

#endif
