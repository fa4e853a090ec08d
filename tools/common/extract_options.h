/* Makes the options of the extraction from those of specx-extract's command line. */
#ifndef SPX_TOOLS_EXTRACT_OPTIONS_H
#define SPX_TOOLS_EXTRACT_OPTIONS_H

#include "app/opt.h"
#include "extract/extract.h"

/* The tail of the PSF: on the whole image, in the spots alone, nowhere. */
typedef enum { SPX_TAIL_ALL = 0, SPX_TAIL_NEAR, SPX_TAIL_NONE } spx_tail_use;

/* Most wavelengths of --sky-lines. */
enum { SPX_EXTRACT_MOST_LINES = 64 };

/* Values of specx-extract's option table; its help says what they are. */
typedef struct {
    const char *wavelength, *spectra, *psf_error, *site, *sky_lines;
    spx_extract_method method;
    spx_variance variance;
    spx_tail_use tail;
    int bytes; /* of a number of the output */
    long bundle_size, sub_bundles, wave_step, wave_pad;
    double pix_pad_frac, regularize, tolerance, reject, background;
    /* Default bins, in sigma of the spots along the traces: `sigmas`, where 0.8 Angstrom are wider than `widest`, or
     * too narrow. round_step: of a round number, the same in all exposures of a camera. */
    double widest, sigmas;
    int round_step;
    size_t max_device_mem;
    spx_opt_list allow;
    int model, strict, barycentric, skip_existing;
    double line[SPX_EXTRACT_MOST_LINES]; /* of sky_lines: spx_extract_args_complete() */
    size_t nline;
    int sub_bundles_given, wave_pad_given, pix_pad_frac_given, tolerance_given, bundle_size_given;
} spx_extract_args;

/* Defaults of --wave-pad and --pix-pad-frac, which are the method's, as if they had been given: so the product's record
 * shows what is in effect; and wavelengths of --sky-lines. SPX_EUSAGE: these are no numbers; SPX_EIO: memory. */
spx_status spx_extract_args_complete(spx_extract_args *o, spx_err *e);

/* Options for a frame: the fibres wanted of this PSF, and without --wavelength the range that all of them have on the
 * CCD. nthreads: of the call. SPX_EUSAGE: an option makes no sense, or belongs to the other method. */
spx_status spx_extract_args_options(const spx_extract_args *o, int nthreads, const spx_image *image, const spx_psf *psf,
                                    spx_extract_options *eo, spx_err *e);

/* The device of --device: patches are solved on the CPU only, which is what `auto` becomes. SPX_EDEVICE: CUDA is asked
 * for. */
spx_status spx_extract_args_device(const spx_extract_args *o, const char **device, spx_err *e);

#endif
