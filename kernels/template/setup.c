/* Checks a setup, and makes its log-wavelength grid and line-spread function. */
#include <ctype.h>
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "base/parse.h"
#include "num/wave.h"
#include "template/template.h"
#include "template/template_impl.h"

/* Most pixels of a grid: a smaller step is taken for a mistake. */
#define MAX_PIXELS ((size_t)1 << 24)

#define MARGIN_KMS 1000.0

spx_status spx_template_check_setup(const spx_template_request *r, spx_err *e)
{
    spx_lsf_width unused;
    if (!r->name[0])
        return spx_fail(e, SPX_EUSAGE, "the setup has no name");
    for (const char *p = r->name; *p; p++)
        if (!isalnum((unsigned char)*p) && !strchr("_-+.", *p))
            return spx_fail(e, SPX_EUSAGE, "a setup's name has letters, digits and _ - + . only");
    if (r->name[0] == '.')
        return spx_fail(e, SPX_EUSAGE, "a setup's name does not begin with a dot");
    if (!(r->wmin > 0 && r->wmax > r->wmin && r->wmax < 1e9))
        return spx_fail(e, SPX_EUSAGE, "the range %g to %g Angstrom is empty or impossible", r->wmin, r->wmax);
    if (!(r->step > 0 && r->step < (r->wmax - r->wmin) / 4))
        return spx_fail(e, SPX_EUSAGE, "a step of %g Angstrom does not divide the range %g to %g into pixels", r->step,
                        r->wmin, r->wmax);
    if ((r->wmax - r->wmin) / r->step > (double)(MAX_PIXELS / 4))
        return spx_fail(e, SPX_EUSAGE, "a step of %g Angstrom makes more than %zu pixels", r->step, MAX_PIXELS / 4);
    return spx_lsf_parse(r->resolution, 0, &unused, e);
}

double spx_template_wave(const spx_setup *s, double k)
{
    return exp(s->lnwave0 + k * s->dlnwave);
}

double spx_template_edge(const spx_setup *s, size_t k)
{
    return 0.5 * (spx_template_wave(s, (double)k - 1) + spx_template_wave(s, (double)k));
}

spx_status spx_template_make_grid(const spx_template_request *r, spx_norm norm, double first, double last, spx_setup *s,
                                  size_t *missing, spx_err *e)
{
    const double factor = 1 + MARGIN_KMS / SPX_C_KMS;
    memcpy(s->setup, r->name, sizeof s->setup);
    s->wmin = r->wmin;
    s->wmax = r->wmax;
    s->step = r->step;
    memcpy(s->resolution, r->resolution, sizeof s->resolution);
    s->medium = r->medium;
    s->norm = norm;
    s->dlnwave = log1p(r->step / (0.5 * (r->wmin + r->wmax)));
    s->lnwave0 = log(r->wmin / factor);
    double n = ceil((log(r->wmax * factor) - s->lnwave0) / s->dlnwave);
    if (!(n >= 4 && n <= (double)MAX_PIXELS))
        return spx_fail(e, SPX_EUSAGE, "setup '%s': a step of %g Angstrom makes %g pixels", r->name, r->step, n);
    size_t begin = 0, end = (size_t)n;
    while (begin < end && spx_template_edge(s, begin) < first)
        begin++;
    while (end > begin && spx_template_edge(s, end) > last)
        end--;
    *missing = (size_t)n - (end - begin);
    if (end - begin < 4)
        return spx_fail(e, SPX_EINPUT, "setup '%s': only %zu pixels are left inside the library", r->name, end - begin);
    s->lnwave0 += (double)begin * s->dlnwave;
    s->nwave = end - begin;
    return SPX_OK;
}

spx_status spx_template_sigma(const spx_setup *s, const spx_template_request *r, const spx_template_config *cfg,
                              double *sigma, spx_err *e)
{
    spx_lsf_width setup, library;
    spx_status st = spx_lsf_parse(r->resolution, 0, &setup, e);
    if (st == SPX_OK)
        st = spx_lsf_parse(cfg->library_resolution, 1, &library, e) == SPX_OK
                 ? SPX_OK
                 : spx_err_context(e, "{library_resolution}");
    if (st == SPX_OK)
        st = spx_lsf_take_table(&setup, &r->table, s->wmin, s->wmax, e);
    if (st == SPX_OK)
        st = spx_lsf_take_table(&library, &cfg->library_table, s->wmin, s->wmax, e);
    for (size_t k = 0; k < s->nwave && st == SPX_OK; k++) {
        double x = spx_template_wave(s, (double)k), want, have;
        st = spx_lsf_fwhm(&setup, x, &want, e);
        if (st != SPX_OK)
            break;
        st = spx_lsf_fwhm(&library, x, &have, e);
        if (st != SPX_OK) {
            spx_err_context(e, "resolution of the library");
            break;
        }
        if (want < have)
            st = spx_fail(e, SPX_EUSAGE,
                          "a FWHM of %g Angstrom at %g Angstrom is less than the library's own %g: choose a lower "
                          "resolution, or say what the library's is with {library_resolution}",
                          want, x, have);
        else if (want > 0.5 * (s->wmax - s->wmin))
            st = spx_fail(e, SPX_EUSAGE, "a FWHM of %g Angstrom at %g Angstrom is wider than half the setup", want, x);
        else
            sigma[k] = sqrt((want - have) * (want + have)) / SPX_FWHM_PER_SIGMA;
    }
    return st != SPX_OK ? spx_err_context(e, "setup '%s'", s->setup) : SPX_OK;
}
