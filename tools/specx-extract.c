/* specx-extract: CCD image and PSF to spectra with inverse variance and resolution matrix. */
#include <string.h>

#include "backend.h"
#include "blocks/barycentre.h"
#include "blocks/frame.h"
#include "blocks/io.h"
#include "h5/stage.h"
#include "psf/psf.h"

/* Step of the default wavelength grid, Angstrom: that of DESI's frames. */
#define DEFAULT_STEP 0.8

static const char *opt_wavelength, *opt_spectra, *opt_psf_error, *opt_precision = "float", *opt_method = "trace",
                                                                 *opt_site;
static long opt_bundle_size = 25, opt_sub_bundles = 5, opt_wave_step = 50, opt_wave_pad;
static double opt_pix_pad_frac, opt_regularize, opt_tolerance = 1e-8;
static int opt_model, opt_strict, opt_barycentric, given_sub_bundles, given_wave_pad, given_pix_pad_frac,
    given_tolerance;

static const spx_opt options[] = {
    {.kind = SPX_OPT_STRING,
     .name = "wavelength",
     .letter = 'w',
     .arg = "MIN,MAX,STEP",
     .value = &opt_wavelength,
     .help =
         "Wavelengths to extract, Angstrom in vacuum; without it, those that all traces of the PSF have on the CCD, "
         "in steps of 0.8"},
    {.kind = SPX_OPT_STRING,
     .name = "spectra",
     .letter = 's',
     .arg = "FIRST:LAST",
     .value = &opt_spectra,
     .help = "Fibres to extract, counted from 0, LAST not included; without it, all that the PSF has"},
    {.kind = SPX_OPT_FLAG,
     .name = "barycentric",
     .value = &opt_barycentric,
     .help = "Wavelengths are barycentric, for each fibre by its own position; its velocity goes into the fibermap"},
    {.kind = SPX_OPT_STRING,
     .name = "site",
     .arg = "NAME|LON,LAT,HEIGHT",
     .value = &opt_site,
     .help = "Observatory, for --barycentric: degrees east, degrees, metres; without it, the image's header says"},
    {.kind = SPX_OPT_FLAG,
     .name = "model",
     .letter = 'm',
     .value = &opt_model,
     .help = "Add the model of the image to the output"},
    {.kind = SPX_OPT_CHOICE,
     .name = "precision",
     .value = &opt_precision,
     .choices = "float|double",
     .help = "Floating-point type of the output"},
    {.kind = SPX_OPT_STRING,
     .name = "psf-error",
     .arg = "FRACTION",
     .value = &opt_psf_error,
     .help = "Error of the PSF model, as a fraction, in the chi2 of the fit; without it, the PSF's own"},
    {.kind = SPX_OPT_FLAG,
     .name = "strict",
     .value = &opt_strict,
     .help = "Write nothing when any trace or patch has no solution; without it, they are flagged"},
    {.kind = SPX_OPT_HEADING, .name = "Method"},
    {.kind = SPX_OPT_CHOICE,
     .name = "method",
     .value = &opt_method,
     .choices = "trace|patch",
     .help = "Solve whole traces with banded algebra, or patch by patch with dense algebra"},
    {.kind = SPX_OPT_DOUBLE,
     .name = "tolerance",
     .arg = "T",
     .value = &opt_tolerance,
     .min = 1e-13,
     .max = 1e-2,
     .given = &given_tolerance,
     .help = "Accuracy of whole traces: of fluxes in units of their error, of errors and resolution as a fraction"},
    {.kind = SPX_OPT_INT,
     .name = "bundle-size",
     .arg = "N",
     .value = &opt_bundle_size,
     .min = 1,
     .max = 1e6,
     .help = "Fibres in a bundle; bundles share no light"},
    {.kind = SPX_OPT_INT,
     .name = "sub-bundles",
     .arg = "N",
     .value = &opt_sub_bundles,
     .min = 1,
     .max = 1e6,
     .given = &given_sub_bundles,
     .help = "Groups that the fibres of a bundle are solved in; patches only"},
    {.kind = SPX_OPT_INT,
     .name = "wave-step",
     .arg = "N",
     .value = &opt_wave_step,
     .min = 1,
     .max = 30000,
     .help = "Wavelengths that are kept of a patch; for traces, how far around a bin the largest weight is looked for "
             "that decides whether the bin needs regularisation"},
    {.kind = SPX_OPT_INT,
     .name = "wave-pad",
     .arg = "N",
     .value = &opt_wave_pad,
     .max = 30000,
     .given = &given_wave_pad,
     .help =
         "Wavelengths that are solved beyond those that are kept, at both ends; without it, 40 for traces and 12 for "
         "patches"},
    {.kind = SPX_OPT_DOUBLE,
     .name = "pix-pad-frac",
     .arg = "FRACTION",
     .value = &opt_pix_pad_frac,
     .max = 1,
     .given = &given_pix_pad_frac,
     .help =
         "Part that is used of the pixel rows which only this padding reaches; without it, 0.9 for traces and 0.8 for "
         "patches"},
    {.kind = SPX_OPT_DOUBLE,
     .name = "regularize",
     .arg = "ALPHA",
     .value = &opt_regularize,
     .max = 1e6,
     .help = "Pull the deconvolved flux to 0 with weight ALPHA squared"},
    {0}};

/* Image and PSF from whatever inputs hold them. */
static spx_status read_inputs(spx_stage *s, spx_image *image, spx_psf *psf, spx_err *e)
{
    spx_status st = SPX_OK;
    for (size_t i = 0; i < s->ninput && st == SPX_OK; i++) {
        spx_input *in;
        if ((st = spx_stage_input(s, i, &in, e)) != SPX_OK)
            return st;
        int has_image = spx_h5_exists(in->file, "/image"), has_psf = spx_h5_exists(in->file, "/psf");
        if (!has_image && !has_psf)
            return spx_fail(e, SPX_EINPUT, "%s: holds neither an image nor a PSF: make them of FITS files with fits2h5",
                            in->name);
        if ((has_image && image->data != NULL) || (has_psf && psf->coeff != NULL))
            return spx_fail(e, SPX_EUSAGE, "%s: is a second %s: give one image and one PSF", in->name,
                            has_image && image->data != NULL ? "image" : "PSF");
        if (has_image)
            st = spx_image_read(in->file, image, e);
        if (has_psf && st == SPX_OK)
            st = spx_psf_read(in->file, psf, e);
    }
    if (st == SPX_OK && (image->data == NULL || psf->coeff == NULL))
        st = spx_fail(e, SPX_EINPUT, "%s: no %s: give the file that holds /%s too (fits2h5 joins several inputs)",
                      strcmp(s->input[0], "-") == 0 ? "standard input" : s->input[0],
                      image->data == NULL ? "image" : "PSF", image->data == NULL ? "image" : "psf");
    return st;
}

/* Things that are allowed, but seldom meant. */
static void warn_of_mismatch(const spx_image *image, const spx_psf *psf)
{
    if (image->camera[0] != '\0' && psf->camera[0] != '\0' && strcmp(image->camera, psf->camera) != 0)
        spx_warn("the image is of camera %s, the PSF of camera %s", image->camera, psf->camera);
    if (psf->npix_x > 0 && psf->npix_y > 0 && (psf->npix_x != image->nx || psf->npix_y != image->ny))
        spx_warn("the image has %zu x %zu pixels, the PSF was made for %zu x %zu", image->nx, image->ny, psf->npix_x,
                 psf->npix_y);
}

/* With --barycentric: the PSF on barycentric wavelengths in place of the PSF, and the factor of each of its fibres,
 * which is to be freed. */
static spx_status to_barycentre(const spx_image *image, spx_psf *psf, double **factor, spx_err *e)
{
    spx_site site;
    spx_psf stretched = {0};
    size_t nowhere = 0;
    if (!opt_barycentric)
        return opt_site == NULL ? SPX_OK : spx_fail(e, SPX_EUSAGE, "--site goes with --barycentric only");
    spx_status st = opt_site != NULL ? spx_site_parse(opt_site, &site, e) : SPX_OK;
    if (st == SPX_OK && (*factor = spx_alloc(psf->nspec, sizeof **factor, e)) == NULL)
        st = SPX_EIO;
    if (st == SPX_OK)
        st = spx_image_barycentric(image, psf, opt_site != NULL ? &site : NULL, *factor, &nowhere, e);
    if (st == SPX_OK)
        st = spx_psf_to_barycentre(psf, *factor, &stretched, e);
    if (st != SPX_OK)
        return st;
    if (nowhere > 0)
        spx_note("%zu of %zu fibres have no position: they get the barycentric velocity of the others' mean direction",
                 nowhere, psf->nspec);
    spx_psf_free(psf);
    *psf = stretched;
    return SPX_OK;
}

static spx_status make_options(const spx_stage *s, const spx_image *image, const spx_psf *psf, spx_extract_options *o,
                               spx_err *e)
{
    spx_status st = SPX_OK;
    int trace = strcmp(opt_method, "trace") == 0;
    if (trace ? given_sub_bundles : given_tolerance)
        return spx_fail(e, SPX_EUSAGE, "--%s: belongs to --method %s", trace ? "sub-bundles" : "tolerance",
                        trace ? "patch" : "trace");
    *o = trace ? spx_extract_trace_defaults() : spx_extract_defaults();
    o->bundle_size = (size_t)opt_bundle_size;
    if (!trace)
        o->sub_bundles = (size_t)opt_sub_bundles;
    o->wave_step = (size_t)opt_wave_step;
    if (given_wave_pad)
        o->wave_pad = (size_t)opt_wave_pad;
    if (given_pix_pad_frac)
        o->pix_pad_frac = opt_pix_pad_frac;
    if (trace)
        o->tolerance = opt_tolerance;
    o->regularize = opt_regularize;
    o->want_model = opt_model;
    o->nthreads = (int)s->common.threads;
    o->nspec = psf->nspec;
    if (opt_spectra != NULL)
        st = spx_parse_slice(opt_spectra, "--spectra", psf->nspec, &o->first, &o->nspec, e);
    if (st == SPX_OK && opt_psf_error != NULL) {
        st = spx_parse_double(opt_psf_error, "--psf-error", &o->psf_error, e);
        if (st == SPX_OK && o->psf_error < 0)
            st = spx_fail(e, SPX_EUSAGE, "--psf-error: %s is negative", opt_psf_error);
    }
    if (st != SPX_OK)
        return st;
    if (opt_wavelength == NULL) {
        o->dw = DEFAULT_STEP;
        return spx_psf_coverage(psf, image->nx, image->ny, o->dw, &o->wmin, &o->wmax, e);
    }
    double w[3];
    size_t n;
    st = spx_parse_doubles(opt_wavelength, ',', "--wavelength", 3, w, &n, e);
    if (st == SPX_OK && n != 3)
        st = spx_fail(e, SPX_EUSAGE, "--wavelength: '%s' is not MIN,MAX,STEP", opt_wavelength);
    if (st == SPX_OK) {
        o->wmin = w[0];
        o->wmax = w[1];
        o->dw = w[2];
    }
    return st;
}

static spx_status add_scores(spx_frame *frame, spx_err *e)
{
    spx_score_range range;
    double *scores = spx_alloc2(3, frame->nspec, sizeof *scores, e);
    if (scores == NULL)
        return SPX_EIO;
    double *sum = scores, *median = sum + frame->nspec, *snr = median + frame->nspec;
    spx_status st = spx_extract_scores(frame, sum, median, snr, &range, e);
    if (st == SPX_OK)
        st = spx_frame_set_scores(frame, range.band, sum, median, snr, e);
    spx_free(scores);
    return st;
}

/* What the user and the provenance should know of the run. SPX_ENO when there is no result at all, or with --strict not
 * all. */
static spx_status report(spx_stage *s, const spx_extract_options *o, const spx_extract_counts *c, spx_err *e)
{
    const char *unit = o->method == SPX_METHOD_TRACE ? "traces" : "patches";
    spx_detail("%zu %s, %zu of %zu bins without information, %zu of %zu pixels masked", c->npatch, unit, c->nbin_empty,
               c->nbin, c->npix_masked, c->npix);
    if (c->npix_bad > 0)
        spx_note("%zu pixels are not finite or have a negative ivar: masked", c->npix_bad);
    if (c->nbin_nospot > 0)
        spx_warn("the PSF is not usable at %zu of %zu bins: flux and ivar 0 there", c->nbin_nospot, c->nbin);
    if (c->nbin_empty == c->nbin)
        return spx_fail(e, SPX_ENO, "no bin could be extracted (%zu of %zu %s failed): nothing is written",
                        c->npatch_failed, c->npatch, unit);
    if (c->npatch_failed > 0 && opt_strict)
        return spx_fail(e, SPX_ENO,
                        "%zu of %zu %s have no solution: nothing is written; without --strict they are flagged",
                        c->npatch_failed, c->npatch, unit);
    if (c->npatch_failed > 0)
        spx_warn("%zu of %zu %s have no solution: flux and ivar 0 there, mask ALLBADPIX and BAD2DFIT", c->npatch_failed,
                 c->npatch, unit);
    if (c->npatch_regularised > 0)
        spx_warn("%zu of %zu %s had to be solved with regularisation", c->npatch_regularised, c->npatch, unit);
    spx_status st = spx_stage_record(s, "grid", e, "%.17g,%.17g,%.17g", o->wmin, o->wmax, o->dw);
    if (st == SPX_OK)
        st = spx_stage_record(s, unit, e, "%zu", c->npatch);
    const struct {
        const char *name;
        size_t value;
    } count[] = {
        {"failed", c->npatch_failed},      {"regularised", c->npatch_regularised}, {"bins", c->nbin},
        {"bins_empty", c->nbin_empty},     {"bins_without_psf", c->nbin_nospot},   {"pixels_masked", c->npix_masked},
        {"pixels_not_finite", c->npix_bad}};
    for (size_t i = 0; i < sizeof count / sizeof *count && st == SPX_OK; i++)
        st = spx_stage_record(s, count[i].name, e, "%zu", count[i].value);
    return st;
}

/* Device for the method: patches are for the CPU alone. */
static spx_status open_backend(const spx_stage *s, spx_backend *backend, spx_err *why, spx_err *e)
{
    const char *device = s->common.device;
    if (strcmp(opt_method, "patch") == 0) {
        if (strncmp(device, "cuda", 4) == 0)
            return spx_fail(e, SPX_EDEVICE, "--device %s: patches are solved on the CPU only: use --method trace",
                            device);
        device = strcmp(device, "auto") == 0 ? "cpu" : device;
    }
    return spx_backend_open(backend, device, SPX_STAGE_EXTRACT, why, e);
}

static spx_status run(spx_stage *s, spx_err *e)
{
    spx_image image = {0};
    spx_psf psf = {0};
    spx_frame frame = {0};
    spx_extract_options o;
    spx_extract_counts counts;
    spx_backend backend = {0};
    spx_err why = {0};
    double *factor = NULL;
    hid_t file;

    spx_status st = open_backend(s, &backend, &why, e);
    if (st == SPX_OK)
        spx_stage_device(s, backend.device);
    if (st == SPX_OK && why.code != SPX_OK)
        spx_detail("computes on the CPU: %s", why.msg);

    spx_stage_step(s, "read");
    if (st == SPX_OK)
        st = read_inputs(s, &image, &psf, e);
    if (st == SPX_OK)
        warn_of_mismatch(&image, &psf);
    if (st == SPX_OK)
        st = to_barycentre(&image, &psf, &factor, e);
    if (st == SPX_OK)
        st = make_options(s, &image, &psf, &o, e);
    if (st == SPX_OK)
        st = spx_frame_inherit(&frame, &image, &psf, o.first, o.nspec, e);

    spx_stage_step(s, "extract");
    if (st == SPX_OK) {
        o.progress =
            spx_progress_start(s->common.progress, "extract", o.method == SPX_METHOD_TRACE ? "traces" : "patches",
                               spx_extract_units(&psf, &o));
        st = backend.extract(&backend, &image, &psf, &o, &frame, &counts, e);
        spx_progress_end(o.progress);
    }
    if (st == SPX_OK && factor != NULL)
        st = spx_frame_set_barycentric(&frame, factor, e);
    if (st == SPX_OK)
        st = add_scores(&frame, e);
    if (st == SPX_OK)
        st = report(s, &o, &counts, e);

    spx_stage_step(s, "write");
    if (st == SPX_OK)
        st = spx_stage_output(s, "frame", &file, e);
    if (st == SPX_OK)
        st = spx_frame_write(file, &frame, strcmp(opt_precision, "double") == 0 ? 8 : 4, e);
    if (st == SPX_OK)
        st = spx_stage_commit(s, e);

    spx_backend_close(&backend);
    spx_free(factor);
    spx_image_free(&image);
    spx_psf_free(&psf);
    spx_frame_free(&frame);
    return st;
}

int main(int argc, char **argv)
{
    static const spx_program program = {.name = "specx-extract",
                                        .summary = "extract spectra from a CCD image",
                                        .usage = "[OPTION...] [FILE...]",
                                        .options = options,
                                        .flags = SPX_USES_DEVICE,
                                        .run = run};
    return spx_main(&program, argc, argv);
}
