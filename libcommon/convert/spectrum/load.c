/* Reads a spectrum into memory: order of wavelengths, errors to inverse variances, masks (convert/spectrum/load.h). */
#include "convert/spectrum/load.h"

#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "num/stat.h"

void spx_loaded_free(spx_loaded *l)
{
    spx_free(l->wave);
    spx_free(l->flux);
    spx_free(l->ivar);
    spx_free(l->mask);
}

/* Sorts pixels by wavelength, and drops those without one: none may be left. */
static spx_status put_in_order(const char *name, spx_loaded *l, spx_err *e)
{
    size_t up = 0, down = 0, m = 0;
    for (size_t i = 1; i < l->n; i++) {
        up += l->wave[i] > l->wave[i - 1];
        down += l->wave[i] < l->wave[i - 1];
    }
    for (size_t i = 0, j = l->n - 1; i < j && down > up; i++, j--) {
        double w = l->wave[i], f = l->flux[i], v = l->ivar[i];
        uint32_t k = l->mask[i];
        l->wave[i] = l->wave[j];
        l->flux[i] = l->flux[j];
        l->ivar[i] = l->ivar[j];
        l->mask[i] = l->mask[j];
        l->wave[j] = w;
        l->flux[j] = f;
        l->ivar[j] = v;
        l->mask[j] = k;
    }
    for (size_t i = 0; i < l->n; i++) {
        if (!isfinite(l->wave[i]) || !(l->wave[i] > 0))
            continue;
        l->wave[m] = l->wave[i];
        l->flux[m] = l->flux[i];
        l->ivar[m] = l->ivar[i];
        l->mask[m++] = l->mask[i];
    }
    l->n = m;
    for (size_t i = 1; i < m; i++)
        if (!(l->wave[i] > l->wave[i - 1]))
            return spx_fail_at(e, SPX_EINPUT, name, NULL, NULL,
                               "arm %s: wavelengths turn at pixel %zu (%.2f, then %.2f Angstrom): sort the spectrum%s",
                               l->from->arm, i, l->wave[i - 1], l->wave[i],
                               l->from->flux.hdu >= 0 ? " (--generic keeps it)" : "");
    double lo, hi;
    if (!spx_values_possible(m, l->wave, &lo, &hi))
        return spx_fail_at(e, SPX_EINPUT, name, NULL, "give Angstrom",
                           "arm %s: wavelengths of %g to %g Angstrom cannot be", l->from->arm, lo, hi);
    return SPX_OK;
}

enum { WINDOW = 200 }; /* pixels of a window in which the noise is taken as constant */

/* Standard deviation of the noise at each pixel, from second differences of pixels two apart, which resolved lines
 * change little: 1.482602/sqrt(6) times the median of |2 f_i - f_(i-2) - f_(i+2)| (Stoehr et al. 2008, ASP Conf. Ser.
 * 394, 505) in windows, interpolated between their middles. 0: unknown. */
static spx_status scatter(size_t n, const double *flux, double *sigma, spx_err *e)
{
    const size_t nwin = n / WINDOW ? n / WINDOW : 1;
    double *d = spx_alloc(n, sizeof *d, e), *level = spx_alloc(nwin, sizeof *level, e), last = 0;
    for (size_t k = 0; d != NULL && level != NULL && k < nwin; k++) {
        size_t a = k * n / nwin, b = (k + 1) * n / nwin, m = 0;
        for (size_t i = a > 2 ? a : 2; i < b && i + 2 < n; i++) {
            double x = fabs(2 * flux[i] - flux[i - 2] - flux[i + 2]);
            if (isfinite(x) && flux[i] != 0 && flux[i - 2] != 0 && flux[i + 2] != 0)
                d[m++] = x;
        }
        level[k] = m < 8 ? 0 : 1.482602 / sqrt(6) * spx_median(d, m);
        last = level[k] > 0 ? level[k] : last;
    }
    for (size_t k = 0; d != NULL && level != NULL && k < nwin;
         k++) /* windows that say nothing take what comes before, or after */
        if (!(level[k] > 0))
            level[k] = k > 0 ? level[k - 1] : 0;
    for (size_t k = nwin; d != NULL && level != NULL && k-- > 0;)
        if (!(level[k] > 0))
            level[k] = k + 1 < nwin ? level[k + 1] : last;
    for (size_t i = 0; d != NULL && level != NULL && i < n; i++) {
        double at = ((double)i + 0.5) / (double)n * (double)nwin - 0.5, k = floor(fmin(fmax(at, 0), (double)nwin - 1));
        double u = fmin(fmax(at - k, 0), 1);
        size_t j = (size_t)k, next = j + 1 < nwin ? j + 1 : j;
        sigma[i] = (1 - u) * level[j] + u * level[next];
    }
    spx_free(d);
    spx_free(level);
    return d != NULL && level != NULL ? SPX_OK : SPX_EIO;
}

/* Converts noise[n] to ivar, in place. */
static spx_status to_ivar(size_t n, const double *flux, spx_fits_noise kind, double *noise, spx_err *e)
{
    double *sigma = NULL, *ratio = NULL;
    spx_status st = SPX_OK;
    if (kind == SPX_NOISE_NONE || kind == SPX_NOISE_RELATIVE) {
        sigma = spx_alloc(n, sizeof *sigma, e);
        ratio = spx_alloc(n, sizeof *ratio, e);
        st = sigma != NULL && ratio != NULL ? scatter(n, flux, sigma, e) : SPX_EIO;
    }
    if (st == SPX_OK && kind == SPX_NOISE_RELATIVE) {
        double off[2] = {0, 0};
        for (int relative = 0; relative < 2; relative++) {
            size_t m = 0;
            for (size_t i = 0; i < n; i++) {
                double x = log(noise[i] * (relative ? fabs(flux[i]) : 1) / sigma[i]);
                if (isfinite(x))
                    ratio[m++] = x;
            }
            off[relative] = m > 0 ? fabs(spx_median(ratio, m)) : HUGE_VAL;
        }
        for (size_t i = 0; i < n && off[1] < off[0]; i++)
            noise[i] *= fabs(flux[i]);
        kind = SPX_NOISE_SIGMA;
    }
    for (size_t i = 0; st == SPX_OK && i < n; i++) {
        double x = kind == SPX_NOISE_NONE ? (flux[i] != 0 ? sigma[i] : 0) : noise[i];
        double v = kind == SPX_NOISE_IVAR ? x : x > 0 ? 1 / (kind == SPX_NOISE_VARIANCE ? x : x * x) : 0;
        noise[i] = isfinite(v) && v > 0 ? v : 0;
    }
    spx_free(sigma);
    spx_free(ratio);
    return st;
}

spx_status spx_spectrum_load(const spx_spectrum_file *file, const spx_fits_spectrum *s, spx_spectrum_cache *k,
                             spx_loaded *l, spx_fits_noise *noise, spx_err *e)
{
    double *mask = NULL;
    const size_t n = s->n;
    int some = 0;
    l->from = s;
    l->n = n;
    spx_status st = spx_values_wavelengths(file->f, s, &k->wave, &l->wave, e);
    if (st == SPX_OK && s->flux.hdu >= 0)
        st = spx_values_get(file->f, &s->flux, n, &k->flux, &l->flux, e);
    else if (st == SPX_OK && (l->flux = spx_alloc(n, sizeof *l->flux, e)) == NULL)
        st = SPX_EIO;
    if (st == SPX_OK && s->noise.hdu >= 0)
        st = spx_values_get(file->f, &s->noise, n, &k->noise, &l->ivar, e);
    else if (st == SPX_OK && (l->ivar = spx_alloc(n, sizeof *l->ivar, e)) == NULL)
        st = SPX_EIO;
    if (st == SPX_OK && s->given[1] != NULL)
        memcpy(l->flux, s->given[1], n * sizeof *l->flux);
    if (st == SPX_OK && s->given[2] != NULL)
        memcpy(l->ivar, s->given[2], n * sizeof *l->ivar);
    if (st == SPX_OK && s->mask.hdu >= 0)
        st = spx_values_get(file->f, &s->mask, n, &k->mask, &mask, e);
    if (st == SPX_OK && (l->mask = spx_alloc(n, sizeof *l->mask, e)) == NULL)
        st = SPX_EIO;
    for (size_t i = 0; st == SPX_OK && i < n && !some; i++)
        some = isfinite(l->ivar[i]) && l->ivar[i] > 0;
    *noise = some || s->kind == SPX_NOISE_IVAR ? s->kind : SPX_NOISE_NONE;
    if (st == SPX_OK)
        st = to_ivar(n, l->flux, *noise, l->ivar, e);
    for (size_t i = 0; st == SPX_OK && i < n; i++) {
        if (mask != NULL && mask[i] > -2147483649.0 && mask[i] < 4294967296.0)
            l->mask[i] = (mask[i] < 0 ? (uint32_t)(int32_t)mask[i] : (uint32_t)mask[i]) & s->bad ? SPX_SOMEBADPIX : 0;
        if (!isfinite(l->flux[i]))
            l->flux[i] = l->ivar[i] = 0;
        if (l->mask[i] != 0)
            l->ivar[i] = 0;
        else if (!(l->ivar[i] > 0))
            l->mask[i] = SPX_NODATA;
    }
    spx_free(mask);
    return st == SPX_OK ? put_in_order(file->name, l, e) : st;
}
