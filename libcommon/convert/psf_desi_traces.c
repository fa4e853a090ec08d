/* Reads traces of DESI without spots as PSFs (convert/psf_kinds.h). */
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "convert/blocks_parts.h"
#include "convert/psf_fits.h"
#include "convert/psf_kinds.h"
#include "convert/psf_traces.h"
#include "fits/values.h"
#include "num/legendre.h"
#include "num/stat.h"

enum { MOST = 32, NODES = 64 }; /* terms of a series, and Gauss's abscissae for products of two */

/* Widths of all fibres: series over the range of the traces. */
typedef struct {
    size_t nterm;
    double *c; /* [nspec][nterm] */
} widths;

int spx_fits_desi_traces(const spx_fits *f)
{
    static const char *const name[] = {"XTRACE", "YTRACE"};
    for (int k = 0; k < 2; k++) {
        const int i = spx_fits_find_image(f, name[k], 2);
        double v;
        if (i < 0 || !spx_cards_double(&f->hdu[i].header, "WAVEMIN", &v) ||
            !spx_cards_double(&f->hdu[i].header, "WAVEMAX", &v))
            return 0;
    }
    return spx_fits_find_table(f, "PSF") < 0;
}

/* Widths of HDU `name`: a number a fibre, or a series. */
static spx_status read_widths(spx_fits *f, const char *name, size_t nspec, widths *w, spx_err *e)
{
    int i = spx_fits_find_image(f, name, 2);
    i = i < 0 ? spx_fits_find_image(f, name, 1) : i;
    if (i < 0)
        return spx_fail_at(e, SPX_EINPUT, f->name, name, NULL, "is no image of one or two dimensions");
    const spx_fits_hdu *h = &f->hdu[i];
    w->nterm = h->nelem / nspec;
    if (h->dims[0] != nspec || w->nterm == 0 || w->nterm > MOST)
        return spx_fail_at(e, SPX_EINPUT, f->name, name, NULL,
                           "has %zu values for %zu traces: should be a series of 1 to %d terms for each", h->nelem,
                           nspec, MOST);
    spx_status st = spx_fits_f64(f, (size_t)i, &w->c, e);
    for (size_t k = 0; st == SPX_OK && k < h->nelem; k++)
        if (!isfinite(w->c[k]))
            st = spx_fail_at(e, SPX_EINPUT, f->name, name, NULL, "a coefficient is not finite");
    return st;
}

/* dy/dlambda of a series of n terms at u, times half its range: P'_(k+1) = P'_(k-1) + (2k + 1) P_k. */
static double slope(size_t n, const double *c, double u)
{
    double p[2] = {1.0, u}, d[2] = {0.0, 1.0}, sum = n > 1 ? c[1] : 0.0;
    for (size_t k = 1; k + 1 < n; k++) {
        const double next = ((2.0 * (double)k + 1.0) * u * p[1] - (double)k * p[0]) / ((double)k + 1.0),
                     steeper = d[0] + (2.0 * (double)k + 1.0) * p[1];
        p[0] = p[1];
        p[1] = next;
        d[0] = d[1];
        d[1] = steeper;
        sum += c[k + 1] * steeper;
    }
    return sum;
}

/* Widths along the traces from Angstrom to pixels: times |dy/dlambda|, a product of two series. */
static spx_status to_pixels(const spx_psf *psf, widths *w, spx_err *e)
{
    double x[NODES], weight[NODES], v[NODES];
    const size_t ny = psf->y.ncoef, n = w->nterm + ny - 1;
    double *c = spx_alloc2(psf->nspec, n, sizeof *c, e);
    if (c == NULL)
        return SPX_EIO;
    spx_gauss_legendre(NODES, x, weight);
    for (size_t s = 0; s < psf->nspec; s++) {
        for (int j = 0; j < NODES; j++)
            v[j] = spx_legendre_value(w->nterm, w->c + s * w->nterm, x[j]) *
                   fabs(slope(ny, psf->y.coef + s * ny, x[j])) * 2.0 / (psf->y.wmax - psf->y.wmin);
        spx_legendre_project(NODES, x, weight, v, n, c + s * n);
    }
    spx_free(w->c);
    *w = (widths){.nterm = n, .c = c};
    return SPX_OK;
}

/* Widths in x and y, pixels, of the HDUs that have them, or SPX_TRACE_SIGMA. */
static spx_status find_widths(spx_fits *f, const spx_psf *psf, widths w[2], spx_note_list *notes, spx_err *e)
{
    static const char *const name[2][2] = {{"XSIGMA", "XSIG"}, {"WSIGMA", "YSIG"}};
    spx_status st = SPX_OK;
    for (int k = 0; k < 2 && st == SPX_OK; k++) {
        const char *has = spx_fits_find(f, name[k][1]) >= 0   ? name[k][1]
                          : spx_fits_find(f, name[k][0]) >= 0 ? name[k][0]
                                                              : NULL;
        if (has != NULL) {
            st = read_widths(f, has, psf->nspec, &w[k], e);
            if (st == SPX_OK && k == 1 && has == name[k][0])
                st = to_pixels(psf, &w[k], e);
            continue;
        }
        w[k].nterm = 1;
        if ((w[k].c = spx_alloc(psf->nspec, sizeof *w[k].c, e)) == NULL)
            return SPX_EIO;
        for (size_t s = 0; s < psf->nspec; s++)
            w[k].c[s] = SPX_TRACE_SIGMA;
        st = spx_note_list_add(notes, e,
                               "%s: has no widths of spots in %c: Gaussians of %g pixel, for specx-psf --start",
                               f->name, k == 0 ? 'x' : 'y', SPX_TRACE_SIGMA);
    }
    return st;
}

/* Largest width of a trace; 0: one is not above 0. */
static double widest_of(const widths *w, size_t trace)
{
    enum { CHECKS = 65 };
    double widest = 0.0;
    for (int i = 0; i < CHECKS; i++) {
        const double v = spx_legendre_value(w->nterm, w->c + trace * w->nterm, 2.0 * (double)i / (CHECKS - 1) - 1.0);
        if (!(v > 0.0))
            return 0.0;
        widest = fmax(widest, v);
    }
    return widest;
}

/* Gives traces whose widths are none, as those of fibres without light, the medians of the others' terms: where one is
 * not above 0, or above LARGEST times that of the median trace. The largest that is left into *widest. */
static spx_status mend_widths(const spx_fits *f, size_t n, char axis, widths *w, double *widest, spx_note_list *notes,
                              spx_err *e)
{
    const double largest = 3.0;
    double *of = spx_alloc_unset(n, sizeof *of, 2, e), *v = of ? of + n : NULL;
    size_t good = 0, first = n;
    if (of == NULL)
        return SPX_EIO;
    for (size_t s = 0; s < n; s++)
        if ((of[s] = widest_of(w, s)) > 0.0)
            v[good++] = of[s];
    const double most = good > 0 ? largest * spx_median(v, good) : 0.0;
    good = 0;
    for (size_t s = 0; s < n; s++) {
        of[s] = of[s] <= most ? of[s] : 0.0;
        good += of[s] > 0.0;
        first = first == n && !(of[s] > 0.0) ? s : first;
        *widest = fmax(*widest, of[s]);
    }
    for (size_t k = 0; k < w->nterm && good > 0 && good < n; k++) {
        size_t m = 0;
        for (size_t s = 0; s < n; s++)
            if (of[s] > 0.0)
                v[m++] = w->c[s * w->nterm + k];
        const double middle = spx_median(v, m);
        for (size_t s = 0; s < n; s++)
            w->c[s * w->nterm + k] = of[s] > 0.0 ? w->c[s * w->nterm + k] : middle;
    }
    spx_free(of);
    if (good == 0)
        return spx_fail_at(e, SPX_EINPUT, f->name, NULL, NULL, "no trace has widths in %c above 0", axis);
    return good == n ? SPX_OK
                     : spx_note_list_add(notes, e,
                                         "%s: %zu of %zu traces, %zu the first, have no width in %c that can be: they "
                                         "get that of the median trace",
                                         f->name, n - good, n, first, axis);
}

/* The parameters of Gaussian spots, and half sizes of five sigma. */
static spx_status fill(const spx_fits *f, widths w[2], spx_psf *psf, spx_note_list *notes, spx_err *e)
{
    const size_t n = psf->nspec;
    double widest[2] = {0, 0};
    spx_status st = mend_widths(f, n, 'x', &w[0], &widest[0], notes, e);
    if (st == SPX_OK)
        st = mend_widths(f, n, 'y', &w[1], &widest[1], notes, e);
    if (st != SPX_OK)
        return st;
    psf->npar = 3;
    psf->ndeg = w[0].nterm > w[1].nterm ? w[0].nterm : w[1].nterm;
    psf->param = spx_alloc(psf->npar, sizeof *psf->param, e);
    psf->coeff = spx_alloc2(psf->npar * n, psf->ndeg, sizeof *psf->coeff, e);
    if (psf->param == NULL || psf->coeff == NULL)
        return SPX_EIO;
    memcpy(psf->param[0], "GHSIGX", 7);
    memcpy(psf->param[1], "GHSIGY", 7);
    memcpy(psf->param[2], "GH-0-0", 7);
    for (size_t s = 0; s < n; s++) {
        for (size_t k = 0; k < 2; k++)
            memcpy(psf->coeff + (k * n + s) * psf->ndeg, w[k].c + s * w[k].nterm, w[k].nterm * sizeof *w[k].c);
        psf->coeff[(2 * n + s) * psf->ndeg] = 1.0;
    }
    psf->hsizex = (int)ceil(SPX_TRACE_SPOT * widest[0]);
    psf->hsizey = (int)ceil(SPX_TRACE_SPOT * widest[1]);
    return SPX_OK;
}

spx_status spx_fits_read_desi_traces(spx_fits *f, spx_psf *psf, spx_note_list *notes, spx_err *e)
{
    widths w[2] = {{0}};
    spx_status st = spx_fits_trace_series(f, "XTRACE", &psf->x, &psf->nspec, e);
    if (st == SPX_OK)
        st = spx_fits_trace_series(f, "YTRACE", &psf->y, &psf->nspec, e);
    if (st == SPX_OK && !(psf->x.wmin == psf->y.wmin && psf->x.wmax == psf->y.wmax && psf->x.wmax > psf->x.wmin &&
                          psf->y.ncoef <= MOST))
        st = spx_fail_at(e, SPX_EINPUT, f->name, NULL, NULL,
                         "XTRACE and YTRACE have different ranges, WAVEMIN to WAVEMAX, or more than %d terms", MOST);
    psf->wmin = psf->y.wmin;
    psf->wmax = psf->y.wmax;
    if (st == SPX_OK)
        st = find_widths(f, psf, w, notes, e);
    if (st == SPX_OK)
        st = fill(f, w, psf, notes, e);
    spx_free(w[0].c);
    spx_free(w[1].c);
    return st == SPX_OK ? spx_cards_copy(&psf->header, &f->hdu[spx_fits_find_image(f, "XTRACE", 2)].header, e) : st;
}
