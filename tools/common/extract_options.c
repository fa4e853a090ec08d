#include "common/extract_options.h"

#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/parse.h"
#include "psf/psf.h"
#include "spectral/lines.h"

/* Step of the default wavelength grid, Angstrom, where it suits the spots: that of DESI's frames. */
#define DEFAULT_STEP 0.8
/* Strength of the oxygen lines that --sky-lines oi means, Rayleigh: 5579, 6302 and 6366 Angstrom. */
#define BRIGHT 40
/* Tolerance of spots whose wings reach many fibres. */
#define WIDE_TOLERANCE 1e-4

/* Corrections for light of tails. The first leaves some 0.06 of it, the second less than 0.005. */
enum { TAIL_CORRECTIONS = 2 };

static spx_extract_options defaults(spx_extract_method method)
{
    return method == SPX_METHOD_TRACE ? spx_extract_trace_defaults() : spx_extract_defaults();
}

/* Wavelengths of --sky-lines: numbers, or those of forbidden oxygen, by their strength the only ones that need it. */
static spx_status find_lines(spx_extract_args *o, spx_err *e)
{
    spx_line *known = NULL;
    size_t n = 0;
    if (o->sky_lines == NULL || strcmp(o->sky_lines, "none") == 0)
        return SPX_OK;
    if (strcmp(o->sky_lines, "oi") != 0)
        return spx_parse_doubles(o->sky_lines, ',', "--sky-lines", "oi, none, or W,W,...", SPX_EXTRACT_MOST_LINES,
                                 o->line, &o->nline, e);
    spx_status st = spx_sky_lines(&known, &n, e);
    for (size_t i = 0; st == SPX_OK && i < n && o->nline < SPX_EXTRACT_MOST_LINES; i++)
        if (known[i].source == SPX_SKY_LINE_OI && known[i].strength >= BRIGHT)
            o->line[o->nline++] = known[i].wavelength;
    spx_free(known);
    return st;
}

spx_status spx_extract_args_complete(spx_extract_args *o, spx_err *e)
{
    const spx_extract_options d = defaults(o->method);
    if (!o->wave_pad_given)
        o->wave_pad = (long)d.wave_pad;
    if (!o->pix_pad_frac_given)
        o->pix_pad_frac = d.pix_pad_frac;
    o->wave_pad_given = o->pix_pad_frac_given = 1;
    return find_lines(o, e);
}

/* The bundles that the PSF names: all of one size, which every device takes, or not. */
static void find_bundles(const spx_psf *psf, spx_extract_options *eo)
{
    size_t size = 0, end = 0, equal = 1;
    if (psf->bundle == NULL)
        return;
    for (size_t first = 0; first < psf->nspec; first = end) {
        for (end = first + 1; end < psf->nspec && psf->bundle[end] == psf->bundle[first];)
            end++;
        size = first == 0 ? end : size;
        equal &= end - first == size || (end == psf->nspec && end - first < size);
    }
    eo->psf_bundles = !equal;
    if (equal)
        eo->bundle_size = size;
}

/* Bins narrower than this part of the PSF's sigma along the traces take several times as long. */
#define NARROW 0.8

/* Says once, before the work, that bins are too narrow to be quick. */
static void tell_narrow(const spx_psf *psf, const spx_extract_options *eo)
{
    static int told; /* options are read on one thread */
    const double sigma = spx_psf_sigma_along(psf, eo->first + eo->nspec / 2);
    if (told || eo->method != SPX_METHOD_TRACE || !(eo->dw > 0 && eo->dw < NARROW * sigma))
        return;
    told = 1;
    spx_warn(
        "bins of %g Angstrom are %.2f of the PSF's sigma along the traces, %.3g Angstrom: that takes many times as "
        "long and as much memory, and tells nothing new: give bins of %.3g or more",
        eo->dw, eo->dw / sigma, sigma, sigma);
}

spx_status spx_extract_args_options(const spx_extract_args *o, int nthreads, const spx_image *image, const spx_psf *psf,
                                    spx_extract_options *eo, spx_err *e)
{
    spx_status st = SPX_OK;
    int trace = o->method == SPX_METHOD_TRACE;
    if (trace ? o->sub_bundles_given : o->tolerance_given)
        return spx_fail(e, SPX_EUSAGE, "--%s: belongs to --method %s", trace ? "sub-bundles" : "tolerance",
                        trace ? "patch" : "trace");
    *eo = defaults(o->method);
    eo->bundle_size = (size_t)o->bundle_size;
    if (!o->bundle_size_given)
        find_bundles(psf, eo);
    if (!trace)
        eo->sub_bundles = (size_t)o->sub_bundles;
    if (!o->sub_bundles_given && !o->bundle_size_given && eo->sub_bundles > eo->bundle_size)
        eo->sub_bundles = eo->bundle_size;
    eo->wave_step = (size_t)o->wave_step;
    eo->wave_pad = (size_t)o->wave_pad;
    eo->pix_pad_frac = o->pix_pad_frac;
    if (trace) /* wings of two cores and a tail reach many fibres: 1e-8 would take a hundred times as long */
        eo->tolerance = !o->tolerance_given && psf->type == SPX_PSF_GAUSS_HERMITE2 ? WIDE_TOLERANCE : o->tolerance;
    eo->regularize = o->regularize;
    eo->reject = o->reject;
    eo->variance = o->variance;
    eo->tail_corrections = o->tail == SPX_TAIL_ALL ? TAIL_CORRECTIONS : 0;
    eo->background = o->background;
    eo->line = o->line;
    eo->nline = o->nline;
    eo->want_model = o->model;
    eo->max_device_mem = o->max_device_mem;
    eo->nthreads = nthreads;
    eo->nspec = psf->nspec;
    if (o->spectra != NULL)
        st = spx_parse_slice(o->spectra, "--spectra", psf->nspec, &eo->first, &eo->nspec, e);
    if (st == SPX_OK && o->psf_error != NULL) {
        st = spx_parse_double(o->psf_error, "--psf-error", &eo->psf_error, e);
        if (st == SPX_OK && eo->psf_error < 0)
            st = spx_fail(e, SPX_EUSAGE, "--psf-error: %s is negative", o->psf_error);
    }
    if (st != SPX_OK)
        return st;
    if (o->wavelength == NULL) {
        const spx_psf_bins bins = {DEFAULT_STEP, NARROW, o->widest, o->sigmas, o->round_step};
        eo->dw = spx_psf_step(psf, eo->first + eo->nspec / 2, image->ny, &bins);
        return spx_psf_coverage(psf, image->nx, image->ny, eo->dw, &eo->wmin, &eo->wmax, e);
    }
    double w[3];
    size_t n;
    st = spx_parse_doubles(o->wavelength, ',', "--wavelength", "MIN,MAX,STEP", 3, w, &n, e);
    if (st == SPX_OK && n != 3)
        st = spx_fail(e, SPX_EUSAGE, "--wavelength: '%s' is not MIN,MAX,STEP", o->wavelength);
    if (st == SPX_OK) {
        eo->wmin = w[0];
        eo->wmax = w[1];
        eo->dw = w[2];
        tell_narrow(psf, eo);
    }
    return st;
}

spx_status spx_extract_args_device(const spx_extract_args *o, const char **device, spx_err *e)
{
    if (o->method != SPX_METHOD_PATCH)
        return SPX_OK;
    if (strncmp(*device, "cuda", 4) == 0)
        return spx_fail(e, SPX_EDEVICE, "--device %s: patches are solved on the CPU only: use --method trace", *device);
    if (strcmp(*device, "auto") == 0)
        *device = "cpu";
    return SPX_OK;
}
