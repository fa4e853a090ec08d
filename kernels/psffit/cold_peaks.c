/* Finds peaks in profiles and spectra, and fits polynomials to their places (psffit/cold_steps.h). */
#include <math.h>

#include "base/mem.h"
#include "calib/bordered.h"
#include "num/stat.h"
#include "psf/psf_math.h"
#include "psffit/cold_steps.h"

static int solve(size_t n, const double *u, const double *v, const double *weight, size_t nterm, double *c)
{
    double g[SPX_COLD_TERMS * SPX_COLD_TERMS] = {0}, p[SPX_COLD_TERMS];
    size_t used = 0;
    for (size_t k = 0; k < nterm; k++)
        c[k] = 0.0;
    for (size_t i = 0; i < n; i++) {
        if (!(weight[i] > 0.0))
            continue;
        used++;
        spx_legendre_basis(nterm, u[i], p);
        for (size_t k = 0; k < nterm; k++) {
            c[k] += weight[i] * p[k] * v[i];
            for (size_t j = 0; j <= k; j++)
                g[k * nterm + j] += weight[i] * p[k] * p[j];
        }
    }
    if (used < nterm || !spx_small_factor(nterm, g))
        return 0;
    spx_small_solve(nterm, g, c);
    return 1;
}

int spx_cold_fit(size_t n, const double *u, const double *v, double *weight, size_t nterm, int rounds, double clip,
                 double *c)
{
    double *off = rounds > 0 ? spx_alloc(n, sizeof *off, NULL) : NULL;
    int ok = (rounds == 0 || off != NULL) && solve(n, u, v, weight, nterm, c);
    for (int r = 0; r < rounds && ok; r++) {
        size_t used = 0, left = 0;
        for (size_t i = 0; i < n; i++)
            if (weight[i] > 0.0)
                off[used++] = fabs(v[i] - spx_legendre_sum(nterm, c, u[i]));
        const double limit = fmax(clip * 1.4826 * spx_median(off, used), 1e-9);
        for (size_t i = 0; i < n; i++)
            left += weight[i] > 0.0 && fabs(v[i] - spx_legendre_sum(nterm, c, u[i])) <= limit;
        if (left == used || left < nterm + 2)
            break;
        for (size_t i = 0; i < n; i++)
            if (fabs(v[i] - spx_legendre_sum(nterm, c, u[i])) > limit)
                weight[i] = 0.0;
        ok = solve(n, u, v, weight, nterm, c);
    }
    spx_free(off);
    return ok;
}

/* Lowest known value within `reach` of sample c. */
static double lowest(size_t n, const double *v, size_t c, size_t reach)
{
    double low = v[c];
    const size_t first = c > reach ? c - reach : 0, last = c + reach < n ? c + reach : n - 1;
    for (size_t i = first; i <= last; i++)
        if (v[i] < low)
            low = v[i];
    return low;
}

/* No value within `reach` is higher; of equal ones the last counts. */
static int is_highest(size_t n, const double *v, size_t c, size_t reach)
{
    for (size_t d = 1; d <= reach; d++)
        if ((c >= d && v[c - d] > v[c]) || (c + d < n && v[c + d] >= v[c]))
            return 0;
    return 1;
}

size_t spx_cold_peaks(size_t n, const double *v, const double *error, const double *background, size_t reach,
                      size_t step, double sharpest, size_t most, spx_cold_peak *peak, size_t *spoilt)
{
    size_t found = 0;
    for (size_t c = step; c + step < n && found < most; c++) {
        if (!isfinite(v[c]) || !is_highest(n, v, c, reach))
            continue;
        const double low = background != NULL ? background[c] : lowest(n, v, c, 8 * reach), top = v[c] - low;
        if (!(top > sharpest * error[c]))
            continue;
        int left = 1, right = 1;
        for (size_t d = 1; d <= step; d++) {
            left &= isfinite(v[c - d]) != 0;
            right &= isfinite(v[c + d]) != 0;
        }
        if (!left || !right) {
            if (spoilt != NULL && !right) /* a line has two sides */
                ++*spoilt;
            continue;
        }
        const double a = log(fmax((v[c - step] - low) / top, 1e-3)), b = log(fmax((v[c + step] - low) / top, 1e-3));
        const double bend = -a - b, h = (double)step;
        if (!(bend > 1e-6))
            continue;
        peak[found++] = (spx_cold_peak){(double)c + fmax(-h, fmin(h, 0.5 * h * (b - a) / bend)), top, error[c],
                                        h * h / bend - 1.0 / 12.0};
    }
    return found;
}
