/* Recognises the inputs of fits2h5, and settles what becomes of each among the others. */
#ifndef SPX_TOOLS_FITS_INPUTS_H
#define SPX_TOOLS_FITS_INPUTS_H

#include "convert/blocks.h"
#include "convert/library.h"
#include "convert/spectrum/spectrum.h"
#include "fits/open.h"

/* What the options of fits2h5 say of its inputs. */
typedef struct {
    int generic;           /* HDUs only */
    const char *leave_out; /* names of HDUs, with commas between them, or NULL */
    int sums, strict;      /* compare with CHECKSUM and DATASUM; a difference is an error */
    spx_fits_product as;   /* SPX_FITS_PRODUCTS: any */
    spx_library_layout layout;
    spx_fits_spectrum_options spectrum;
} spx_fits_wanted;

/* One input file. Model spectra are closed again until their turn comes: a library has thousands. */
typedef struct {
    const char *path;
    spx_fits fits; /* nhdu 0: closed */
    spx_fits_product product;
    size_t nwave;    /* MODEL, WAVELENGTH */
    spx_fits *other; /* PSF: file of another input that has the rest of it, or NULL */
    spx_fits_spectra spectra;
    char note[200];
    char *sums; /* says that its bytes disagree with CHECKSUM or DATASUM, or NULL */
} spx_fits_input;

/* Opens it->path and finds what it holds. A file that is no FITS file may be a text with a spectrum. */
spx_status spx_fits_input_recognise(const spx_fits_wanted *o, spx_fits_input *it, spx_err *e);

/* Compares its bytes with CHECKSUM and DATASUM: SPX_EINPUT with `strict`, else it->sums says that they disagree. Images
 * that were copied have been summed. */
spx_status spx_fits_input_sums(const spx_fits_wanted *o, spx_fits_input *it, spx_err *e);

/* Trace sets of two files make one PSF, of the first; the other is kept as HDUs. Model spectra make a library when the
 * file of their wavelengths is among the inputs; alone they are spectra, where they have wavelengths of their own, or
 * HDUs. *wave: that file, or NULL; *nmodel: model spectra of the library. SPX_EUSAGE: two such files; SPX_EINPUT: none,
 * with several model spectra. */
spx_status spx_fits_inputs_settle(const spx_fits_wanted *o, spx_fits_input *it, size_t n, const spx_fits_input **wave,
                                  size_t *nmodel, spx_err *e);

/* SPX_EINPUT: one of them is something else than --as asks for. */
spx_status spx_fits_inputs_check_as(const spx_fits_wanted *o, const spx_fits_input *it, size_t n, spx_err *e);

/* Blocks have one place each. Frames, spectra and images share /fibermap. Spectra of other instruments become rows of
 * one block. SPX_EUSAGE: two inputs want the same place. */
spx_status spx_fits_inputs_check_conflicts(const spx_fits_input *it, size_t n, const spx_fits_input *wave, spx_err *e);

/* For each HDU the dataset that is made of it, or an empty text: (*view)[it->fits.nhdu], to be freed. */
spx_status spx_fits_input_views(const spx_fits_wanted *o, spx_fits_input *it, spx_fits_path **view, spx_err *e);

/* Name of the main block: that with which a pipe goes on. */
const char *spx_fits_inputs_product(const spx_fits_input *it, size_t n, size_t nmodel);

void spx_fits_input_close(spx_fits_input *it);

#endif
