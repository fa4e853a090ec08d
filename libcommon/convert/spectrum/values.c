/* Reads values and wavelengths of a spectrum: units, logarithms, turning points (convert/spectrum/values.h). */
#include "convert/spectrum/values.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "fits/cards.h"
#include "fits/values.h"

spx_status spx_values_get(spx_fits *f, const spx_fits_values *at, size_t n, spx_column_cache *keep, double **out,
                          spx_err *e)
{
    const spx_fits_hdu *h = &f->hdu[at->hdu];
    spx_status st = SPX_OK;
    if (keep->v == NULL || keep->hdu != at->hdu || keep->column != at->column) {
        spx_free(keep->v);
        *keep = (spx_column_cache){.hdu = at->hdu, .column = at->column};
        if (at->column < 0) {
            st = spx_fits_f64(f, (size_t)at->hdu, &keep->v, e);
            keep->n = h->dims[h->ndim - 1];
        } else {
            st = spx_fits_column_f64(f, (size_t)at->hdu, h->col[at->column].name, &keep->n, &keep->v, e);
        }
        keep->total = at->column < 0 ? h->nelem : keep->n * h->nrow;
    }
    if (st != SPX_OK)
        return st;
    const size_t total = keep->total, row = at->row == SPX_FITS_ROWS ? 0 : at->row;
    if ((at->row != SPX_FITS_ROWS && keep->n != n) || n > total || row > (total - n) / n)
        return spx_fail(e, SPX_EINPUT, "%s: %s: has no row %zu of %zu values", f->name,
                        spx_fits_hduname(f, (size_t)at->hdu), row, n);
    if ((*out = spx_alloc_unset(n, 1, sizeof **out, e)) == NULL)
        return SPX_EIO;
    memcpy(*out, keep->v + row * n, n * sizeof **out);
    return SPX_OK;
}

/* Restores double precision of logarithmic wavelengths in float32, which are good for 0.2 km/s only: takes the same
 * scale from the header (COEFF0 and COEFF1 of SDSS), or an even spacing that fits within rounding. */
static void sharpen(const spx_cards *h, size_t n, double *w)
{
    static const double ROUNDING = 5e-7; /* rounding of log10 of a wavelength in float32 */
    double c0 = 0, c1 = 0, worst = 0, sy = 0, sxx = 0, sxy = 0;
    const double start = w[0];
    if (h != NULL && spx_cards_double(h, "COEFF0", &c0) && spx_cards_double(h, "COEFF1", &c1) && c1 > 1e-6) {
        for (size_t i = 0; i < n; i++)
            worst = fmax(worst, fabs(w[i] - (start + c1 * (double)i)));
        double offset = round((start - c0) / c1); /* a spectrum may begin some pixels after the scale's origin */
        if (worst < 3e-6 && fabs(offset) < 1e5 && fabs(c0 + offset * c1 - start) < 3e-6) {
            for (size_t i = 0; i < n; i++)
                w[i] = c0 + (offset + (double)i) * c1;
            return;
        }
    }
    for (size_t i = 0; i < n; i++) {
        double x = (double)i - 0.5 * (double)(n - 1);
        sy += w[i] - start;
        sxx += x * x;
        sxy += x * (w[i] - start);
    }
    const double slope = sxy / sxx, mean = start + sy / (double)n;
    for (size_t i = 0; i < n; i++)
        worst = fmax(worst, fabs(w[i] - (mean + slope * ((double)i - 0.5 * (double)(n - 1)))));
    for (size_t i = 0; worst < ROUNDING && isfinite(slope) && i < n; i++)
        w[i] = mean + slope * ((double)i - 0.5 * (double)(n - 1));
}

/* Unit of wavelengths without one: values around 3.7 are log10 of Angstrom, others metre, micron, nanometre or
 * Angstrom. */
static double guess_scale(size_t n, const double *w, spx_wave_scale *scale)
{
    double lo = HUGE_VAL, hi = 0;
    for (size_t i = 0; i < n; i++)
        if (isfinite(w[i]) && w[i] > 0) {
            lo = fmin(lo, w[i]);
            hi = fmax(hi, w[i]);
        }
    if (*scale != SPX_WAVE_LINEAR || !(hi > 0))
        return 1;
    if (lo > 3 && hi < 5)
        *scale = SPX_WAVE_LOG10;
    else if (lo > 7 && hi < 11)
        *scale = SPX_WAVE_LN;
    else if (hi < 6)
        return hi < SPX_FITS_METRES ? 1e10 : 1e4;
    return lo > 280 && lo < 1100 && hi < 3000 ? 10 : 1;
}

spx_status spx_values_wavelengths(spx_fits *f, const spx_fits_spectrum *s, spx_column_cache *keep, double **out,
                                  spx_err *e)
{
    spx_status st = SPX_OK;
    spx_wave_scale scale = s->scale;
    double *w = NULL, unit = s->unit;
    if (s->wave.hdu >= 0)
        st = spx_values_get(f, &s->wave, s->n, keep, &w, e);
    else if ((w = spx_alloc_unset(s->n, 1, sizeof *w, e)) == NULL)
        st = SPX_EIO;
    if (st != SPX_OK)
        return st;
    for (size_t i = 0; s->wave.hdu < 0 && i < s->n; i++)
        w[i] = s->given[0] != NULL ? s->given[0][i] : s->start + s->step * (double)i;
    if (!(unit > 0)) /* all orders of a file are in the same one */
        unit = s->wave.hdu >= 0 ? guess_scale(keep->total, keep->v, &scale) : guess_scale(s->n, w, &scale);
    for (size_t i = 0; s->wave.hdu >= 0 && i < s->n; i++)
        w[i] = w[i] > 0 ? w[i] : NAN; /* 0 is no wavelength, and would be a valid logarithm */
    if (scale == SPX_WAVE_LOG10 && s->wave.hdu >= 0)
        sharpen(&f->hdu[0].header, s->n, w);
    for (size_t i = 0; i < s->n; i++)
        w[i] = unit * (scale == SPX_WAVE_LOG10 ? pow(10, w[i]) : scale == SPX_WAVE_LN ? exp(w[i]) : w[i]);
    *out = w;
    return SPX_OK;
}

/* Index of the pixel, of those with a wavelength, at which w[n] turns; 0: none. */
static size_t turning_point(size_t n, const double *w)
{
    size_t up = 0, down = 0;
    for (size_t i = 1; i < n; i++) {
        up += w[i] > w[i - 1];
        down += w[i] < w[i - 1];
    }
    double before = NAN;
    for (size_t i = 0; i < n; i++) {
        if (!isfinite(w[i]) || !(w[i] > 0))
            continue;
        if (down > up ? w[i] >= before : w[i] <= before)
            return i;
        before = w[i];
    }
    return 0;
}

int spx_values_possible(size_t n, const double *w, double *lo, double *hi)
{
    *lo = HUGE_VAL;
    *hi = 0;
    for (size_t i = 0; i < n; i++)
        if (isfinite(w[i]) && w[i] > 0) {
            *lo = fmin(*lo, w[i]);
            *hi = fmax(*hi, w[i]);
        }
    return !(*hi > 0) || (*lo >= SPX_FITS_SHORTEST && *hi <= SPX_FITS_LONGEST);
}

spx_status spx_fits_spectra_check(spx_fits *f, spx_fits_spectra *l, spx_err *e)
{
    spx_column_cache keep = {0};
    spx_status st = SPX_OK;
    for (size_t i = 0; i < l->n && st == SPX_OK && !l->note[0]; i++) {
        double *w = NULL;
        const spx_fits_spectrum *s = &l->s[i];
        st = spx_values_wavelengths(f, s, &keep, &w, e);
        const size_t at = st == SPX_OK ? turning_point(s->n, w) : 0;
        double lo, hi;
        if (at > 0)
            snprintf(
                l->note, sizeof l->note,
                "looks like a spectrum in HDU %d, but its wavelengths turn at pixel %zu (%.2f, then %.2f Angstrom)",
                s->flux.hdu, at, w[at - 1], w[at]);
        else if (st == SPX_OK && !spx_values_possible(s->n, w, &lo, &hi))
            snprintf(l->note, sizeof l->note,
                     "looks like a spectrum in HDU %d, but its wavelengths are %g to %g Angstrom: is their unit right?",
                     s->flux.hdu, lo, hi);
        else if (s->barycentric == -2)
            snprintf(l->note, sizeof l->note,
                     "looks like a spectrum in HDU %d, but its frame (SPECSYS) is neither TOPOCENT nor BARYCENT or "
                     "HELIOCEN",
                     s->flux.hdu);
        spx_free(w);
    }
    spx_free(keep.v);
    return st;
}
