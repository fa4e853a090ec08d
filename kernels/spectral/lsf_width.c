/* Parses and evaluates widths of line-spread functions (spectral/lsf_width.h). */
#include "spectral/lsf_width.h"

#include <math.h>
#include <string.h>

spx_status spx_lsf_parse(const char *text, int number_allowed, spx_lsf_width *w, spx_err *e)
{
    memset(w, 0, sizeof *w);
    if (!strncmp(text, "R=", 2)) {
        w->kind = SPX_LSF_R;
        text += 2;
    } else if (!strncmp(text, "FWHM=", 5)) {
        w->kind = SPX_LSF_FWHM;
        text += 5;
    } else if (number_allowed) {
        w->kind = *text ? SPX_LSF_R : SPX_LSF_NONE;
        if (!*text)
            return SPX_OK;
    } else {
        return spx_fail(e, SPX_EUSAGE, "resolution '%.100s': R=EXPRESSION or FWHM=EXPRESSION is wanted", text);
    }
    if (*text == '@') {
        w->name = text + 1;
        return *w->name ? SPX_OK : spx_fail(e, SPX_EUSAGE, "resolution: @ is not followed by the name of a table");
    }
    return spx_expr_parse(text, &w->expr, e);
}

/* Linear interpolation in the table. */
static double table_at(const spx_lsf_table *t, double x)
{
    size_t lo = 0, hi = t->n - 1;
    while (lo + 1 < hi) {
        size_t mid = lo + (hi - lo) / 2;
        if (t->wave[mid] <= x)
            lo = mid;
        else
            hi = mid;
    }
    double u = (x - t->wave[lo]) / (t->wave[hi] - t->wave[lo]);
    u = u < 0 ? 0 : (u > 1 ? 1 : u);
    return (1 - u) * t->value[lo] + u * t->value[hi];
}

spx_status spx_lsf_take_table(spx_lsf_width *w, const spx_lsf_table *t, double first, double last, spx_err *e)
{
    if (!w->name)
        return SPX_OK;
    if (t->n < 2)
        return spx_fail(e, SPX_EUSAGE, "the table '%.100s' of a resolution is missing", w->name);
    for (size_t i = 1; i < t->n; i++)
        if (!(t->wave[i] > t->wave[i - 1]))
            return spx_fail(e, SPX_EINPUT, "table '%.100s' of a resolution: wavelengths do not increase", w->name);
    if (!(t->wave[0] <= first && t->wave[t->n - 1] >= last))
        return spx_fail(e, SPX_EINPUT, "table '%.100s' of a resolution covers %g to %g Angstrom, not %g to %g", w->name,
                        t->wave[0], t->wave[t->n - 1], first, last);
    w->table = *t;
    return SPX_OK;
}

spx_status spx_lsf_fwhm(const spx_lsf_width *w, double x, double *fwhm, spx_err *e)
{
    *fwhm = 0;
    if (w->kind == SPX_LSF_NONE)
        return SPX_OK;
    double v = w->name ? table_at(&w->table, x) : spx_expr_eval(&w->expr, x);
    *fwhm = w->kind == SPX_LSF_R ? x / v : v;
    if (!(isfinite(v) && v > 0 && isfinite(*fwhm) && *fwhm > 0))
        return spx_fail(e, SPX_EUSAGE, "%s is %g at %g Angstrom",
                        w->kind == SPX_LSF_R ? "the resolution R" : "the FWHM", v, x);
    return SPX_OK;
}
