/* Provides what all extraction methods share: checks of the input, the grid, the frame and its end
 * (extract/common.h). */
#include <math.h>
#include <omp.h>
#include <string.h>

#include "base/clones.h"
#include "base/mem.h"
#include "extract/common.h"
#include "extract/end_math.h"
#include "num/blas.h"
#include "num/stat.h"
#include "psf/psf.h"
#include "psf/spot_math.h"

/* Share of masked pixels under the traces above which an extraction is refused. */
#define MAX_MASKED 0.95
/* More bins a fibre than this: wrong units or a wrong step. */
#define MAX_NWAVE 1e7
#define MIN_STEP  1e-6

spx_extract_options spx_extract_defaults(void)
{
    return (spx_extract_options){
        .bundle_size = 25,
        .sub_bundles = 5,
        .wave_step = 50,
        .wave_pad = 12,
        .pix_pad_frac = 0.8,
        .regularize = 0.0,
        .psf_error = -1.0,
        .device = -1,
    };
}

size_t spx_extract_nwave(const spx_extract_options *o)
{
    return (size_t)ceil((o->wmax + 0.5 * o->dw - o->wmin) / o->dw);
}

int spx_extract_threads(const spx_extract_options *o)
{
    return o->nthreads > 0 ? o->nthreads : omp_get_max_threads();
}

spx_status spx_extract_check(const spx_psf *psf, const spx_extract_options *o, spx_err *e)
{
    if (o->nspec == 0 || o->first >= psf->nspec || o->nspec > psf->nspec - o->first)
        return spx_fail_remedy(e, SPX_EUSAGE, "give other {spectra}",
                               "fibres %zu to %zu wanted, but the PSF has 0 to %zu", o->first, o->first + o->nspec,
                               psf->nspec);
    const spx_status st = spx_psf_require(psf, SPX_PSF_SPOTS | SPX_PSF_RANGES, "the extraction", NULL, e);
    if (st != SPX_OK)
        return st;
    if (!(isfinite(o->wmin) && isfinite(o->wmax) && o->wmin > 0.0 && o->wmax >= o->wmin && o->dw >= MIN_STEP &&
          spx_extract_step(o) > 0.0 && isfinite(o->dw) && (o->wmax - o->wmin) / o->dw < MAX_NWAVE))
        return spx_fail_remedy(e, SPX_EUSAGE, "give another {wavelength}",
                               "wavelengths %g to %g Angstrom in steps of %g", o->wmin, o->wmax, o->dw);
    if (o->bundle_size == 0 || o->sub_bundles == 0 || o->sub_bundles > o->bundle_size)
        return spx_fail(e, SPX_EUSAGE,
                        "{sub_bundles}: %zu sub-bundles in a bundle of %zu fibres: need 1 to the bundle size",
                        o->sub_bundles, o->bundle_size);
    if (o->wave_step == 0)
        return spx_fail(e, SPX_EUSAGE, "patches of 0 bins: need at least 1");
    if (!(o->pix_pad_frac >= 0.0 && o->pix_pad_frac <= 1.0))
        return spx_fail(e, SPX_EUSAGE, "pixel padding %g: must be 0 to 1", o->pix_pad_frac);
    if (!(o->regularize >= 0.0 && isfinite(o->regularize * o->regularize)))
        return spx_fail(e, SPX_EUSAGE, "regularisation %g: must not be negative", o->regularize);
    if (!(o->reject >= 0.0 && isfinite(o->reject)))
        return spx_fail(e, SPX_EUSAGE, "rejection above %g sigma: must not be negative", o->reject);
    if (spx_extract_screens(o) && o->method != SPX_METHOD_TRACE)
        return spx_fail_remedy(e, SPX_EUSAGE, "use {method} trace",
                               "patches neither reject cosmic-ray hits nor make a variance");
    if (spx_extract_corrects_tail(psf, o) && o->method != SPX_METHOD_TRACE)
        return spx_fail_remedy(e, SPX_EUSAGE, "use {method} trace, or {tail} near or none",
                               "the PSF has a tail, and patches do not take it off the image");
    if (!(o->background == 0.0 || (o->background >= SPX_EXTRACT_LEAST_CELL && isfinite(o->background))))
        return spx_fail(e, SPX_EUSAGE, "{background} %g: must be 0, or %d pixels or more: it is fitted beside spectra",
                        o->background, (int)SPX_EXTRACT_LEAST_CELL);
    if (o->background > 0.0 && o->method != SPX_METHOD_TRACE)
        return spx_fail_remedy(e, SPX_EUSAGE, "use {method} trace", "patches fit no background");
    for (size_t l = 0; l < o->nline; l++)
        if (!(o->line[l] > 0.0 && isfinite(o->line[l])))
            return spx_fail(e, SPX_EUSAGE, "{sky_lines} %g: is no wavelength", o->line[l]);
    if (o->nline > 0 && o->method != SPX_METHOD_TRACE)
        return spx_fail_remedy(e, SPX_EUSAGE, "use {method} trace", "patches have no lines between bins");
    if (!isfinite(o->psf_error * o->psf_error))
        return spx_fail(e, SPX_EUSAGE, "{psf_error} %g: must not be so large", o->psf_error);
    return SPX_OK;
}

static int own_bundles(const spx_psf *psf, const spx_extract_options *o)
{
    return o->psf_bundles && psf->bundle != NULL;
}

size_t spx_extract_bundle_of(const spx_psf *psf, const spx_extract_options *o, size_t fibre)
{
    size_t n = 0;
    if (!own_bundles(psf, o))
        return fibre / o->bundle_size;
    for (size_t f = 1; f <= fibre; f++)
        n += psf->bundle[f] != psf->bundle[f - 1];
    return n;
}

void spx_extract_bundle(const spx_psf *psf, const spx_extract_options *o, size_t bundle, size_t *first, size_t *end)
{
    if (!own_bundles(psf, o)) {
        *first = bundle * o->bundle_size;
        *end = psf->nspec - *first < o->bundle_size ? psf->nspec : *first + o->bundle_size;
        return;
    }
    for (*first = 0; bundle > 0; bundle--)
        for (++*first; *first < psf->nspec && psf->bundle[*first] == psf->bundle[*first - 1];)
            ++*first;
    for (*end = *first + 1; *end < psf->nspec && psf->bundle[*end] == psf->bundle[*first];)
        ++*end;
}

size_t spx_extract_nbundle(const spx_psf *psf, const spx_extract_options *o)
{
    return spx_extract_bundle_of(psf, o, o->first + o->nspec - 1) - spx_extract_bundle_of(psf, o, o->first) + 1;
}

int spx_extract_has_spot(const spx_psf *psf, const spx_extract_options *o, size_t fibre, double lambda)
{
    const double beyond = (double)o->wave_pad * spx_extract_step(o);
    return psf->wave_range == NULL ||
           (lambda >= psf->wave_range[2 * fibre] - beyond && lambda <= psf->wave_range[2 * fibre + 1] + beyond);
}

const char *spx_extract_on_cpu_only(const spx_psf *psf, const spx_extract_options *o)
{
    spx_psf bare = *psf;
    if (spx_extract_corrects_tail(psf, o))
        spx_psf_drop_tail(&bare);
    if (spx_psf_has_tail(&bare) && psf->type == SPX_PSF_GAUSS_HERMITE && psf->tilt < 0)
        return "their spots have a tail within their pixels";
    if (!spx_psf_plain_spots(&bare))
        return "their spots are no plain Gauss-Hermite series";
    if (psf->wave_range != NULL)
        return "traces have ranges of wavelengths of their own";
    if (own_bundles(psf, o))
        return "bundles are of unequal size";
    if (spx_extract_goes_beyond(psf, o) && o->hook != NULL)
        return "light beyond the spots is taken off, and a hook sees the frame";
    if (psf->valid_range != NULL && o->hook != NULL)
        return "traces have ranges in which they may be used, and a hook sees the frame";
    return NULL;
}

/* Counts both kinds of refusal of pixels; weight, unless it is NULL, gets the ivar of those that may be used, and 0. */
static void look_at_pixels(const spx_extract_job *job, float *weight, spx_extract_counts *counts)
{
    const spx_image *im = job->image;
    const size_t npix = im->ny * im->nx;
    size_t npix_bad = 0, npix_masked = 0;
#pragma omp parallel for num_threads(spx_extract_threads(job->o)) reduction(+ : npix_bad, npix_masked)
    for (size_t k = 0; k < npix; k++) {
        int bad = !isfinite(im->data[k]) || !isfinite(im->ivar[k]) || im->ivar[k] < 0.0f;
        int masked = (im->mask && im->mask[k] != 0) || !(im->ivar[k] > 0.0f);
        npix_bad += (size_t)bad;
        npix_masked += (size_t)(masked && !bad);
        if (weight != NULL)
            weight[k] = spx_extract_pixel_weight(im, k);
    }
    counts->npix = npix;
    counts->npix_bad = npix_bad;
    counts->npix_masked = npix_masked;
}

spx_status spx_extract_pixel_weights(spx_extract_job *job, spx_extract_counts *counts, spx_err *e)
{
    job->weight = spx_alloc_unset(job->image->ny, job->image->nx, sizeof *job->weight, e);
    if (!job->weight)
        return SPX_EIO;
    look_at_pixels(job, job->weight, counts);
    return SPX_OK;
}

spx_status spx_extract_check_traces(const spx_extract_job *job, spx_err *e)
{
    const spx_image *im = job->image;
    const spx_psf *psf = job->psf;
    const size_t nx = psf->x.ncoef, ny = psf->y.ncoef, f0 = job->o->first, f1 = f0 + job->o->nspec;
    size_t seen = 0, masked = 0;
    const int own = psf->wave_range != NULL;
    double *basis = spx_alloc2(job->nwave, nx + ny, sizeof *basis, e);
    if (!basis)
        return SPX_EIO;
    for (size_t k = 0; k < job->nwave && !own; k++) {
        double lambda = spx_extract_lambda(job->o, (long)k);
        spx_legendre_basis(nx, spx_psf_u(psf->x.wmin, psf->x.wmax, lambda), basis + k * (nx + ny));
        spx_legendre_basis(ny, spx_psf_u(psf->y.wmin, psf->y.wmax, lambda), basis + k * (nx + ny) + nx);
    }
#pragma omp parallel for num_threads(spx_extract_threads(job->o)) reduction(+ : seen, masked)
    for (size_t k = 0; k < job->nwave; k++) /* pixels of neighbours lie side by side */
        for (size_t f = f0; f < f1; f++) {
            double cx, cy, lo, hi;
            const double lambda = spx_extract_lambda(job->o, (long)k);
            spx_psf_usable(psf, f, &lo, &hi);
            if (!(lambda >= lo && lambda <= hi))
                continue;
            if (own) {
                cx = floor(spx_psf_series_value(&psf->x, f, lambda) + 0.5);
                cy = floor(spx_psf_series_value(&psf->y, f, lambda) + 0.5);
            } else {
                cx = floor(spx_basis_sum((int)nx, psf->x.coef + f * nx, basis + k * (nx + ny)) + 0.5);
                cy = floor(spx_basis_sum((int)ny, psf->y.coef + f * ny, basis + k * (nx + ny) + nx) + 0.5);
            }
            if (!(cy >= 0.0 && cy < (double)im->ny && cx >= -1.0 && cx <= (double)im->nx))
                continue;
            for (long x = (long)cx - 1; x <= (long)cx + 1; x++)
                if (x >= 0 && (size_t)x < im->nx) {
                    seen++;
                    masked += !(spx_extract_weight(job, (size_t)cy * im->nx + (size_t)x) > 0.0f);
                }
        }
    spx_free(basis);
    return spx_extract_check_coverage(job, seen, masked, e);
}

spx_status spx_extract_check_coverage(const spx_extract_job *job, size_t seen, size_t masked, spx_err *e)
{
    const spx_image *im = job->image;
    const size_t f0 = job->o->first, f1 = f0 + job->o->nspec;
    if (seen == 0)
        return spx_fail_remedy(
            e, SPX_EINPUT, "image and PSF do not belong together, or give another {wavelength}",
            "no trace of fibres %zu to %zu lies on the image of %zu x %zu pixels between %g and %g Angstrom", f0,
            f1 - 1, im->nx, im->ny, job->o->wmin, job->o->wmax);
    if ((double)masked > MAX_MASKED * (double)seen)
        return spx_fail(e, SPX_EINPUT,
                        "%.1f%% of the pixels under the traces of fibres %zu to %zu are masked: nothing to extract; "
                        "check the image's mask and ivar, or give other {spectra}",
                        100.0 * (double)masked / (double)seen, f0, f1 - 1);
    return SPX_OK;
}

spx_status spx_extract_alloc(const spx_extract_job *job, int unset, spx_frame *out, spx_err *e)
{
    void *(*const alloc)(size_t, size_t, size_t, spx_err *) = unset ? spx_alloc_unset : spx_alloc2;
    const spx_extract_options *o = job->o;
    size_t ns = o->nspec, nw = job->nwave, row;
    spx_arm *arm = &out->arm;
    out->nspec = ns;
    arm->nwave = nw;
    arm->medium = SPX_VACUUM;
    arm->ndiag = (size_t)spx_psf_ny(job->psf);
    if (spx_mul(nw, arm->ndiag, &row, e) != SPX_OK)
        return SPX_EUSAGE;
    if (!(arm->wavelength = spx_alloc(nw, sizeof(double), e)) || !(arm->flux = alloc(ns, nw, sizeof(double), e)) ||
        !(arm->ivar = alloc(ns, nw, sizeof(double), e)) || !(arm->mask = spx_alloc2(ns, nw, sizeof(uint32_t), e)) ||
        !(arm->resolution = alloc(ns, row, sizeof(double), e)) || !(out->chi2pix = alloc(ns, nw, sizeof(double), e)) ||
        !(out->pixmask_fraction = alloc(ns, nw, sizeof(double), e)) ||
        !(out->fiber = spx_alloc(ns, sizeof(int32_t), e)))
        return SPX_EIO;
    for (size_t k = 0; k < nw; k++)
        arm->wavelength[k] = spx_extract_lambda(o, (long)k);
    for (size_t f = 0; f < ns; f++)
        out->fiber[f] = (int32_t)(o->first + f);
    const char *camera = job->image->camera[0] ? job->image->camera : job->psf->camera;
    memcpy(out->camera, camera, sizeof out->camera);
    spx_extract_arm(camera, 0.5 * (arm->wavelength[0] + arm->wavelength[nw - 1]), arm->name);
    strcpy(arm->unit, "electron/Angstrom");
    return SPX_OK;
}

spx_status spx_extract_check_input(const spx_image *image, const spx_psf *psf, const spx_extract_options *o,
                                   spx_extract_job *job, spx_extract_counts *counts, spx_err *e)
{
    memset(counts, 0, sizeof *counts);
    *job = (spx_extract_job){.image = image, .psf = psf, .o = o};
    spx_status st = spx_extract_check(psf, o, e);
    if (st == SPX_OK)
        st = spx_blas_open(e);
    if (st != SPX_OK)
        return st;
    job->nwave = spx_extract_nwave(o);
    job->psf_error = o->psf_error < 0.0 ? psf->psferr : o->psf_error;
    if (!isfinite(job->psf_error * job->psf_error))
        return spx_fail_remedy(e, SPX_EINPUT, "give {psf_error}", "psf: fractional error %g", job->psf_error);
    return SPX_OK;
}

spx_status spx_extract_begin(const spx_image *image, const spx_psf *psf, const spx_extract_options *o,
                             spx_extract_job *job, spx_frame *out, spx_extract_counts *counts, spx_err *e)
{
    spx_status st = spx_extract_check_input(image, psf, o, job, counts, e);
    if (st == SPX_OK && spx_extract_screens(o))
        st = spx_extract_pixel_weights(job, counts, e);
    else if (st == SPX_OK)
        look_at_pixels(job, NULL, counts);
    if (st == SPX_OK)
        st = spx_extract_check_traces(job, e);
    return st == SPX_OK ? spx_extract_alloc(job, 0, out, e) : st;
}

void spx_extract_job_free(spx_extract_job *job)
{
    spx_free(job->weight);
    job->weight = NULL;
}

/* Rows that one thread adds up at a time: the sum in a pixel has the same order whatever the number of threads. */
enum { MODEL_ROWS = 64 };

/* Add flux times spot of every bin that touches rows y0..y1-1 to sum[y1-y0][nx], fibre by fibre, bin by bin. */
static void model_rows(const spx_extract_job *job, const spx_frame *out, const long *corner, long y0, long y1,
                       double *sum, double *work, double *spot)
{
    const int nx = spx_psf_nx(job->psf), ny = spx_psf_ny(job->psf);
    const long ccd_nx = (long)job->image->nx;
    for (size_t f = 0; f < out->nspec; f++)
        for (size_t k = 0; k < job->nwave; k++) {
            double flux = out->arm.flux[f * job->nwave + k];
            long yc = corner[f * job->nwave + k];
            if (flux == 0.0 || yc >= y1 || yc + ny <= y0)
                continue;
            spx_spot at;
            if (spx_psf_spot(job->psf, job->o->first + f, out->arm.wavelength[k], work, spot, &at) != SPX_SPOT_OK)
                continue;
            long xlo = at.xc > 0 ? at.xc : 0, xhi = at.xc + nx < ccd_nx ? at.xc + nx : ccd_nx;
            for (long y = yc > y0 ? yc : y0; y < yc + ny && y < y1; y++)
                for (long x = xlo; x < xhi; x++)
                    sum[(y - y0) * ccd_nx + x] += flux * spot[(y - yc) * nx + (x - at.xc)];
        }
}

spx_status spx_extract_model(const spx_extract_job *job, spx_frame *out, spx_err *e)
{
    const size_t ccd_nx = job->image->nx, ccd_ny = job->image->ny, nbin = out->nspec * job->nwave;
    const size_t nspot = (size_t)spx_psf_nx(job->psf) * (size_t)spx_psf_ny(job->psf);
    const size_t nsum = MODEL_ROWS * ccd_nx, nwork = spx_psf_spot_work(job->psf);
    const int nthreads = spx_extract_threads(job->o);
    spx_status st = SPX_EIO;
    out->model = spx_alloc2(ccd_ny, ccd_nx, sizeof *out->model, e);
    long *corner = spx_alloc(nbin, sizeof *corner, e);
    double *scratch = spx_alloc2((size_t)nthreads, nsum + nspot + nwork, sizeof *scratch, e);
    if (!out->model || !corner || !scratch)
        goto done;
    out->model_ny = ccd_ny;
    out->model_nx = ccd_nx;
    for (size_t i = 0; i < nbin; i++) {
        spx_spot at;
        spx_psf_spot_place(job->psf, job->o->first + i / job->nwave, out->arm.wavelength[i % job->nwave], &at);
        corner[i] = at.yc;
    }
    long nband = (long)((ccd_ny + MODEL_ROWS - 1) / MODEL_ROWS);
#pragma omp parallel for schedule(dynamic) num_threads(nthreads)
    for (long band = 0; band < nband; band++) {
        double *sum = scratch + (size_t)omp_get_thread_num() * (nsum + nspot + nwork), *spot = sum + nsum,
               *work = spot + nspot;
        long y0 = band * MODEL_ROWS, y1 = y0 + MODEL_ROWS < (long)ccd_ny ? y0 + MODEL_ROWS : (long)ccd_ny;
        memset(sum, 0, nsum * sizeof *sum);
        model_rows(job, out, corner, y0, y1, sum, work, spot);
        for (size_t k = 0; job->far && k < (size_t)(y1 - y0) * ccd_nx; k++)
            sum[k] += (double)job->far[(size_t)y0 * ccd_nx + k];
        for (size_t k = 0; k < (size_t)(y1 - y0) * ccd_nx; k++) {
            float v = (float)sum[k];
            out->model[(size_t)y0 * ccd_nx + k] = isfinite(v) ? v : 0.0f;
        }
    }
    st = SPX_OK;
done:
    spx_free(corner);
    spx_free(scratch);
    return st;
}

/* Whether some chi2[n] with ivar > 0 can be far above their median: not where the largest is not far above more than
 * half of them. */
SPX_CLONES
static int may_fit_badly(size_t n, const double *restrict chi2, const double *restrict ivar)
{
    double most = 0.0, all = 0.0, near = 0.0;
#pragma omp simd reduction(max : most) reduction(+ : all)
    for (size_t k = 0; k < n; k++) {
        const double value = ivar[k] > 0.0 ? chi2[k] : 0.0;
        most = value > most ? value : most;
        all += ivar[k] > 0.0 ? 1.0 : 0.0;
    }
#pragma omp simd reduction(+ : near)
    for (size_t k = 0; k < n; k++)
        near += ((ivar[k] > 0.0) & (SPX_BAD_FIT * chi2[k] >= most)) ? 1.0 : 0.0;
    return most > 1.0 && !(near > 0.5 * all + 0.5);
}

/* Bins of fibre f that are far above its median, which is in *median: ask[nwave] becomes 1 there. values[nwave]:
 * scratch. */
static void find_bad_fits(const spx_frame *out, size_t f, double *values, double *median, unsigned char *ask)
{
    const size_t nw = out->arm.nwave;
    const double *chi2 = out->chi2pix + f * nw, *ivar = out->arm.ivar + f * nw;
    size_t n = 0;
    *median = INFINITY;
    if (!may_fit_badly(nw, chi2, ivar)) /* nor is the median to be found, which takes longer */
        return;
    for (size_t k = 0; k < nw; k++)
        if (ivar[k] > 0.0)
            values[n++] = chi2[k];
    *median = spx_median(values, n);
    for (size_t k = 0; k < nw; k++)
        if (spx_extract_fits_badly(chi2[k], *median, *median))
            __atomic_store_n(&ask[k], 1, __ATOMIC_RELAXED);
}

enum { TOGETHER = 8 }; /* wavelengths that share a line of the cache */

/* Medians over fibres of the wavelengths k0 ... that are asked for, of TOGETHER. values[TOGETHER nspec]: scratch. */
static void find_medians(const spx_frame *out, const unsigned char *ask, size_t k0, double *values, double *median)
{
    const size_t nw = out->arm.nwave, ns = out->nspec, count = nw - k0 < TOGETHER ? nw - k0 : TOGETHER;
    size_t n[TOGETHER] = {0};
    if (memchr(ask + k0, 1, count) == NULL)
        return;
    for (size_t f = 0; f < ns; f++)
        for (size_t i = 0; i < count; i++)
            if (ask[k0 + i] && out->arm.ivar[f * nw + k0 + i] > 0.0)
                values[i * ns + n[i]++] = out->chi2pix[f * nw + k0 + i];
    for (size_t i = 0; i < count; i++)
        if (ask[k0 + i])
            median[k0 + i] = spx_median(values + i * ns, n[i]);
}

/* BAD2DFIT: chi2pix far above both its median over fibres and its median over wavelengths. The former, which lies
 * strided in memory, is found at those wavelengths alone at which a bin is far above the latter. */
static spx_status flag_bad_fits(const spx_extract_job *job, spx_frame *out, spx_err *e)
{
    const size_t nw = job->nwave, ns = out->nspec, most = nw > TOGETHER * ns ? nw : TOGETHER * ns;
    const int nthreads = spx_extract_threads(job->o);
    double *over_fibres = spx_alloc(nw, sizeof(double), e), *over_waves = spx_alloc(ns, sizeof(double), e);
    double *values = spx_alloc2((size_t)nthreads, most, sizeof(double), e);
    unsigned char *ask = spx_alloc(nw, 1, e);
    const int good = over_fibres && over_waves && values && ask;
    if (good) {
#pragma omp parallel num_threads(nthreads)
        {
            double *v = values + (size_t)omp_get_thread_num() * most;
#pragma omp for
            for (size_t f = 0; f < ns; f++)
                find_bad_fits(out, f, v, &over_waves[f], ask);
#pragma omp for
            for (size_t k0 = 0; k0 < nw; k0 += TOGETHER)
                find_medians(out, ask, k0, v, over_fibres);
#pragma omp for
            for (size_t f = 0; f < ns; f++)
                for (size_t k = 0; k < nw; k++)
                    if (ask[k] && spx_extract_fits_badly(out->chi2pix[f * nw + k], over_fibres[k], over_waves[f]))
                        out->arm.mask[f * nw + k] |= SPX_BAD2DFIT;
        }
    }
    spx_free(over_fibres);
    spx_free(over_waves);
    spx_free(values);
    spx_free(ask);
    return good ? SPX_OK : SPX_EIO;
}

/* Takes out the bins of fibre f at which its trace may not be used: no flux, ivar, row of R; all of it is masked.
 * Returns their number. */
static size_t take_out(const spx_extract_job *job, size_t f, spx_frame *out)
{
    const size_t nw = job->nwave, ndiag = out->arm.ndiag;
    size_t n = 0;
    double lo, hi;
    spx_psf_usable(job->psf, job->o->first + f, &lo, &hi);
    if (spx_extract_lambda(job->o, 0) >= lo && spx_extract_lambda(job->o, (long)nw - 1) <= hi)
        return 0; /* of a frame's million bins most */
    for (size_t k = 0; k < nw; k++) {
        const size_t at = f * nw + k;
        const double lambda = spx_extract_lambda(job->o, (long)k);
        if (lambda >= lo && lambda <= hi)
            continue;
        n++;
        out->arm.flux[at] = out->arm.ivar[at] = out->chi2pix[at] = 0.0;
        out->pixmask_fraction[at] = 1.0;
        for (size_t d = 0; d < ndiag; d++) { /* element R[k, j] is stored in column j */
            const long j = (long)k + (long)(ndiag / 2) - (long)d;
            if (j >= 0 && j < (long)nw)
                out->arm.resolution[(f * ndiag + d) * nw + (size_t)j] = 0.0;
        }
    }
    return n;
}

spx_status spx_extract_end(const spx_extract_job *job, spx_frame *out, spx_extract_counts *counts, spx_err *e)
{
    const size_t nbin = out->nspec * job->nwave;
    const double dw = spx_extract_step(job->o);
    spx_arm *arm = &out->arm;
    size_t empty = 0;
    counts->nbin = nbin;
    for (size_t f = 0; f < out->nspec; f++)
        counts->nbin_outside += take_out(job, f, out);
#pragma omp parallel for num_threads(spx_extract_threads(job->o)) reduction(+ : empty)
    for (size_t i = 0; i < nbin; i++) {
        const int is_empty = spx_extract_is_empty(out->pixmask_fraction[i], arm->ivar[i]);
        if (is_empty)
            arm->flux[i] = arm->ivar[i] = out->chi2pix[i] = 0.0;
        arm->mask[i] |= spx_extract_bits(out->pixmask_fraction[i], is_empty);
        empty += is_empty != 0;
    }
    counts->nbin_empty += empty;
    spx_status st = flag_bad_fits(job, out, e);
    if (st == SPX_OK && job->o->want_model)
        st = spx_extract_model(job, out, e);
#pragma omp parallel for num_threads(spx_extract_threads(job->o))
    for (size_t i = 0; i < nbin; i++) {
        arm->flux[i] = spx_extract_flux_density(arm->flux[i], dw);
        arm->ivar[i] = spx_extract_ivar_density(arm->ivar[i], dw);
    }
    return st;
}

void spx_extract_arm(const char *camera, double mean_wavelength, char arm[SPX_ARM_NAME])
{
    if (camera[0] != '\0')
        spx_arm_of_camera(camera, arm);
    else
        strcpy(arm, mean_wavelength <= 5800.0 ? "b" : mean_wavelength >= 7600.0 ? "z" : "r");
}

size_t spx_extract_beyond(const spx_frame *frame, const spx_psf *psf, double *lo, double *hi)
{
    const spx_arm *a = &frame->arm;
    size_t n = 0;
    spx_psf_range(psf, lo, hi);
    const double rounding = 1e-9 * *hi;
    for (size_t k = 0; k < a->nwave; k++)
        if (a->wavelength[k] < *lo - rounding || a->wavelength[k] > *hi + rounding)
            for (size_t f = 0; f < frame->nspec; f++)
                n += a->ivar[f * a->nwave + k] > 0.0;
    return n;
}

spx_status spx_extract_scores(const spx_frame *frame, int nthreads, double *sum_count, double *median_count,
                              double *median_snr, spx_score_range *range, spx_err *e)
{
    const spx_arm *a = &frame->arm;
    const size_t nw = a->nwave;
    static const spx_score_range fixed[] = {{"b", 4000, 5800}, {"r", 5800, 7600}, {"z", 7600, 9800}};
    spx_extract_arm(frame->camera, 0.5 * (a->wavelength[0] + a->wavelength[nw - 1]), range->arm);
    range->wlo = range->whi = 0;
    for (size_t i = 0; i < sizeof fixed / sizeof *fixed; i++)
        if (strcmp(range->arm, fixed[i].arm) == 0)
            *range = fixed[i];
    size_t k0 = 0, k1 = nw;
    while (k0 < nw && a->wavelength[k0] < range->wlo)
        k0++;
    while (k1 > k0 && a->wavelength[k1 - 1] >= range->whi)
        k1--;
    if (k0 == k1) {
        k0 = 0;
        k1 = nw;
        range->wlo = a->wavelength[0];
        range->whi = a->wavelength[nw - 1];
    }
    /* widths of the bins by central differences, one-sided at the ends; then flux and S/N of a fibre, for each thread
     */
    double *width = spx_alloc2(1 + 2 * (size_t)nthreads, nw, sizeof(double), e);
    if (!width)
        return SPX_EIO;
    for (size_t k = 0; k < nw; k++) {
        size_t lo = k > 0 ? k - 1 : 0, hi = k + 1 < nw ? k + 1 : nw - 1;
        width[k] = hi > lo ? (a->wavelength[hi] - a->wavelength[lo]) / (double)(hi - lo) : 1.0;
    }
#pragma omp parallel for num_threads(nthreads)
    for (size_t f = 0; f < frame->nspec; f++) {
        double *flux = width + (1 + 2 * (size_t)omp_get_thread_num()) * nw, *snr = flux + nw;
        sum_count[f] = 0.0;
        for (size_t k = k0; k < k1; k++) {
            double value = a->flux[f * nw + k];
            sum_count[f] += value * width[k];
            flux[k - k0] = value;
            snr[k - k0] = sqrt(a->ivar[f * nw + k]) * value / sqrt(width[k]);
        }
        median_count[f] = spx_median(flux, k1 - k0);
        median_snr[f] = spx_median(snr, k1 - k0);
    }
    spx_free(width);
    return SPX_OK;
}
