/* Makes the options of the measurement of traces from those of specx-shift's command line. */
#ifndef SPX_TOOLS_SHIFT_OPTIONS_H
#define SPX_TOOLS_SHIFT_OPTIONS_H

#include "app/opt.h"
#include "extract/extract.h"
#include "products/frame.h"
#include "shift/shift.h"
#include "sky/params.h"

/* Values of specx-shift's option table; its help says what they are. */
typedef struct {
    const char *wavelength, *terms_x, *terms_y, *lines, *sky_fibers;
    long windows, bundle_size;
    double window;
    size_t max_device_mem;
    int bundle_size_given, window_given, lamp, no_width, psf_only, skip_existing;
    spx_opt_list allow;
} spx_shift_args;

/* Options but for the wavelengths; terms of part Y and their degree over fibres. SPX_EUSAGE: --terms-x or --terms-y is
 * not two numbers. */
spx_status spx_shift_args_options(const spx_shift_args *o, int nthreads, spx_shift_options *so, spx_sky_terms *terms,
                                  size_t *degree, spx_err *e);

/* Lines of --lines: of the sky, of arc lamps, none, or those of a text file, one a line: vacuum wavelength (Angstrom)
 * and strength, which may be absent. Free lines->line with spx_free(). SPX_EINPUT: the file has something else. */
spx_status spx_shift_args_lines(const spx_shift_args *o, spx_shift_lines *lines, spx_err *e);
/* Warns of what the user gives for an exposure: lines of a file that are all outside the wavelengths that are measured,
 * as those in nm are; bins above SPX_SHIFT_WIDEST. */
void spx_shift_say_given(const spx_shift_args *o, const spx_shift_lines *lines, const spx_psf *psf,
                         const spx_shift_options *so, const char *label);

/* Bins of an extraction, in sigma of the spots along the traces, where 0.8 Angstrom are wider than the first. Wide ones
 * hold the place of a line worse than 80 stars tell it, and otherwise beside a star, whose pixels have other weights:
 * the brightest line of r, in bins of 1.37 sigma, is 0.004 Angstrom elsewhere, 5.5 errors of all stars, of 1.2
 * sigma 3.0, of 1.1 sigma 0.9. The lines of z, in bins of 1.21 sigma, gain nothing from narrower ones, which take 1.4
 * times as long. */
#define SPX_SHIFT_WIDEST 1.25
#define SPX_SHIFT_BIN    1.1

/* Tolerance of the extraction within: shifts and widths along the traces of a device and a CPU agree to 3e-7 of their
 * errors, to 1.7e-6 in one scene of b (tests/cuda/check_shift.c). */
#define SPX_SHIFT_TOLERANCE 3e-4

/* Bins of `step` Angstrom in sigma of the spots along the traces, where these are above SPX_SHIFT_WIDEST; else 0. */
double spx_shift_too_wide(const spx_psf *psf, double step);

/* Takes the wavelengths of a frame that is given, in place of those in *extract; it is freed, with a note, where its
 * bins are too wide: the image is extracted over them, then. label: before the note; name: of its file. SPX_EINPUT: it
 * does not belong to the traces: barycentric wavelengths, another camera. */
spx_status spx_shift_args_frame(const char *label, const char *name, const spx_psf *psf, spx_frame *frame,
                                spx_extract_options *extract, spx_err *e);

/* Length of windows, Angstrom: --window-length, or what large spots need where it is not given. */
double spx_shift_args_window(const spx_shift_args *o, const spx_psf *psf);

#endif
