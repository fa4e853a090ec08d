/* Projects spectra onto the CCD image (sim/sim.h), in bands of rows for each thread. */
#include <limits.h>
#include <math.h>

#include "base/mem.h"
#include "psf/spot_math.h"
#include "psf/tail.h"
#include "sim/sim.h"
#include "sim/sim_math.h"
#include "sim/sim_mixture.h"

/* Rows of a band and samples of a chunk. A spot that straddles two bands is evaluated in both: bands should be much
 * higher than a spot. Fixed, so that results do not depend on the number of threads. */
enum { BAND = 128, CHUNK = 64 };

/* Rows [lo, hi) touched by a chunk of samples of one fibre; lo = hi: none. */
typedef struct {
    int lo, hi;
} rows;

static const char *spot_error(spx_spot_status st)
{
    return st == SPX_SPOT_CENTRE  ? "its trace is not finite there"
           : st == SPX_SPOT_SIGMA ? "its width is not positive there"
                                  : "it has no positive pixel there";
}

static int clamp_row(long y, size_t ny)
{
    return y < 0 ? 0 : (size_t)y > ny ? (int)ny : (int)y;
}

/* 1 when there is light to draw: none beyond the range of a trace that has one of its own. */
static int is_lit(const spx_psf *psf, size_t fibre, double lambda, double flux)
{
    const double *range = psf->wave_range != NULL ? psf->wave_range + 2 * fibre : NULL;
    return flux != 0.0 && (range == NULL || (lambda >= range[0] && lambda <= range[1]));
}

/* Finds the rows that every chunk of a fibre touches; returns the sample of a failure, or nwave. */
static size_t find_rows(const spx_psf *psf, size_t fibre, size_t nwave, const double *wavelength, const double *flux,
                        size_t ny, rows *chunk)
{
    size_t bad = nwave;
    for (size_t k = 0; k < nwave; k++) {
        rows *c = chunk + k / CHUNK;
        spx_spot at;
        if (k % CHUNK == 0)
            *c = (rows){INT_MAX, 0};
        if (!is_lit(psf, fibre, wavelength[k], flux[k]))
            continue;
        if (spx_psf_spot_place(psf, fibre, wavelength[k], &at) != SPX_SPOT_OK) {
            bad = bad < k ? bad : k;
            continue;
        }
        int lo = clamp_row(at.yc, ny), hi = clamp_row(at.yc + spx_psf_ny(psf), ny);
        c->lo = lo < c->lo ? lo : c->lo;
        c->hi = hi > c->hi ? hi : c->hi;
    }
    return bad;
}

/* Adds one fibre to rows [y0, y1). */
static spx_spot_status add_fibre(const spx_psf *psf, const spx_sim_mixture *mixture, size_t fibre, size_t nwave,
                                 const double *wavelength, const double *flux, const rows *chunk, long y0, long y1,
                                 size_t nx, double *work, double *image, size_t *bad)
{
    const long sx = spx_psf_nx(psf), sy = spx_psf_ny(psf);
    double *spot = work + spx_psf_spot_work(psf);
    for (size_t k = 0; k < nwave; k++) {
        if (k % CHUNK == 0 && (chunk[k / CHUNK].lo >= y1 || chunk[k / CHUNK].hi <= y0)) {
            k += CHUNK - 1;
            continue;
        }
        spx_spot at;
        if (!is_lit(psf, fibre, wavelength[k], flux[k]) ||
            spx_psf_spot_place(psf, fibre, wavelength[k], &at) != SPX_SPOT_OK || at.yc >= y1 || at.yc + sy <= y0 ||
            at.xc >= (long)nx || at.xc + sx <= 0)
            continue;
        spx_spot_status st = mixture->n == 0
                                 ? spx_psf_spot(psf, fibre, wavelength[k], work, spot, &at)
                                 : spx_sim_mixture_spot(mixture, psf, fibre, wavelength[k], work, spot, &at);
        if (st != SPX_SPOT_OK) {
            *bad = k;
            return st;
        }
        double electrons = flux[k] * (spx_sim_edge(nwave, wavelength, k + 1) - spx_sim_edge(nwave, wavelength, k));
        long ya = at.yc < y0 ? y0 : at.yc, yb = at.yc + sy > y1 ? y1 : at.yc + sy;
        long xa = at.xc < 0 ? 0 : at.xc, xb = at.xc + sx > (long)nx ? (long)nx : at.xc + sx;
        for (long y = ya; y < yb; y++) {
            double *to = image + (size_t)y * nx;
            const double *from = spot + (y - at.yc) * sx - at.xc;
            for (long x = xa; x < xb; x++)
                to[x] += electrons * from[x];
        }
    }
    return SPX_SPOT_OK;
}

static spx_status check(const spx_psf *psf, size_t nspec, const int32_t *fiber, size_t nwave, const double *wavelength,
                        const double *flux, size_t ny, spx_err *e)
{
    if (psf->gh == NULL)
        return spx_fail(e, SPX_EBUG, "the PSF was not indexed");
    const spx_status st = spx_psf_require(psf, SPX_PSF_SPOTS | SPX_PSF_RANGES, "the simulator", NULL, e);
    if (st != SPX_OK)
        return st;
    if (nwave < 2)
        return spx_fail(e, SPX_EINPUT, "%zu wavelengths: spectra to project need at least 2", nwave);
    if (ny > INT_MAX)
        return spx_fail(e, SPX_EINPUT, "%zu rows: too large for a CCD", ny);
    for (size_t k = 0; k < nwave; k++)
        if (!isfinite(wavelength[k]) || (k > 0 && !(wavelength[k] > wavelength[k - 1])))
            return spx_fail(e, SPX_EINPUT, "wavelengths do not increase at value %zu", k);
    for (size_t s = 0; s < nspec; s++) {
        if (fiber != NULL ? fiber[s] < 0 || (size_t)fiber[s] >= psf->nspec : s >= psf->nspec)
            return spx_fail(e, SPX_EINPUT, "spectrum %zu is of fibre %ld, the PSF has fibres 0 to %zu", s,
                            fiber != NULL ? (long)fiber[s] : (long)s, psf->nspec - 1);
        for (size_t k = 0; k < nwave; k++)
            if (!isfinite(flux[s * nwave + k]))
                return spx_fail(e, SPX_EINPUT, "spectrum %zu is not finite at %g Angstrom", s, wavelength[k]);
    }
    return SPX_OK;
}

/* Adds the light that tails have beyond the spots. */
static spx_status add_far_tails(const spx_psf *psf, size_t nspec, const int32_t *fiber, size_t nwave,
                                const double *wavelength, const double *flux, size_t ny, size_t nx, double *image,
                                spx_err *e)
{
    spx_tail *tail;
    float *far = spx_alloc2(ny, nx, sizeof *far, e);
    spx_status st = spx_tail_make(psf, ny, nx, wavelength[0], wavelength[nwave - 1], 1, 0, &tail, e);
    if (far == NULL)
        st = SPX_EIO;
    if (st == SPX_OK)
        st = spx_tail_clear(tail, nspec * nwave, e);
    for (size_t s = 0; s < nspec && st == SPX_OK; s++)
        for (size_t k = 0; k < nwave; k++) {
            const size_t f = fiber != NULL ? (size_t)fiber[s] : s;
            spx_spot at;
            if (is_lit(psf, f, wavelength[k], flux[s * nwave + k]) &&
                spx_psf_spot_place(psf, f, wavelength[k], &at) == SPX_SPOT_OK)
                spx_tail_add(tail, f, wavelength[k], at.xc + psf->hsizex, at.yc + psf->hsizey, at.dx, at.dy,
                             flux[s * nwave + k] *
                                 (spx_sim_edge(nwave, wavelength, k + 1) - spx_sim_edge(nwave, wavelength, k)));
        }
    if (st == SPX_OK)
        st = spx_tail_image(tail, 0, far, e);
    for (size_t k = 0; k < ny * nx && st == SPX_OK; k++)
        image[k] += (double)far[k];
    spx_tail_free(tail);
    spx_free(far);
    return st;
}

spx_status spx_sim_project(const spx_psf *psf, size_t nspec, const int32_t *fiber, size_t nwave,
                           const double *wavelength, const double *flux, size_t ny, size_t nx, double *image,
                           spx_progress *progress, spx_err *e)
{
    return spx_sim_project_family(psf, SPX_SIM_GAUSS_HERMITE, nspec, fiber, nwave, wavelength, flux, ny, nx, image,
                                  progress, e);
}

spx_status spx_sim_project_family(const spx_psf *psf, spx_sim_family family, size_t nspec, const int32_t *fiber,
                                  size_t nwave, const double *wavelength, const double *flux, size_t ny, size_t nx,
                                  double *image, spx_progress *progress, spx_err *e)
{
    spx_sim_mixture mixture;
    spx_sim_mixture_make(family, &mixture);
    spx_status st = check(psf, nspec, fiber, nwave, wavelength, flux, ny, e);
    if (st != SPX_OK)
        return st;
    const size_t nchunk = (nwave + CHUNK - 1) / CHUNK, nband = (ny + BAND - 1) / BAND;
    rows *chunk = spx_alloc2(nspec, nchunk, sizeof *chunk, e);
    size_t *bad = spx_alloc(nspec, sizeof *bad, e);
    /* Failures of bands: the spot's error, its spectrum and sample. */
    struct failure {
        spx_status memory;
        spx_spot_status spot;
        size_t spectrum, sample;
    } *failed = spx_alloc(nband, sizeof *failed, e);
    if (chunk == NULL || bad == NULL || failed == NULL) {
        st = SPX_EIO;
        goto done;
    }
#pragma omp parallel for schedule(dynamic, 1)
    for (size_t s = 0; s < nspec; s++)
        bad[s] = find_rows(psf, fiber != NULL ? (size_t)fiber[s] : s, nwave, wavelength, flux + s * nwave, ny,
                           chunk + s * nchunk);
    for (size_t s = 0; s < nspec; s++)
        if (bad[s] < nwave) {
            st = spx_fail(e, SPX_EINPUT, "PSF of fibre %zu at %g Angstrom: %s", fiber != NULL ? (size_t)fiber[s] : s,
                          wavelength[bad[s]], spot_error(SPX_SPOT_CENTRE));
            goto done;
        }
    const size_t nwork = spx_psf_spot_work(psf) + (size_t)spx_psf_nx(psf) * (size_t)spx_psf_ny(psf);
#pragma omp parallel for schedule(dynamic, 1)
    for (size_t b = 0; b < nband; b++) {
        long y0 = (long)(b * BAND), y1 = (long)((b + 1) * BAND < ny ? (b + 1) * BAND : ny);
        spx_err mine = {0};
        double *work = spx_alloc(nwork, sizeof *work, &mine);
        failed[b].memory = work == NULL ? SPX_EIO : SPX_OK;
        for (size_t s = 0; s < nspec && work != NULL && failed[b].spot == SPX_SPOT_OK; s++) {
            failed[b].spectrum = s;
            failed[b].spot =
                add_fibre(psf, &mixture, fiber != NULL ? (size_t)fiber[s] : s, nwave, wavelength, flux + s * nwave,
                          chunk + s * nchunk, y0, y1, nx, work, image, &failed[b].sample);
        }
        spx_free(work);
        spx_progress_step(progress, (size_t)(y1 - y0));
    }
    for (size_t b = 0; b < nband && st == SPX_OK; b++) {
        if (failed[b].memory != SPX_OK)
            st = spx_mem_fail(e);
        else if (failed[b].spot != SPX_SPOT_OK)
            st = spx_fail(e, SPX_EINPUT, "PSF of fibre %zu at %g Angstrom: %s",
                          fiber != NULL ? (size_t)fiber[failed[b].spectrum] : failed[b].spectrum,
                          wavelength[failed[b].sample], spot_error(failed[b].spot));
    }
    if (st == SPX_OK && family == SPX_SIM_GAUSS_HERMITE && spx_psf_has_tail(psf))
        st = add_far_tails(psf, nspec, fiber, nwave, wavelength, flux, ny, nx, image, e);
done:
    spx_free(chunk);
    spx_free(bad);
    spx_free(failed);
    return st;
}
