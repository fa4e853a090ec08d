/* Finds echelle orders whose wavelengths are formulas of the header: HARPS's DRS, IRAF's multispec
 * (convert/spectrum/echelle.h). */
#include "convert/spectrum/echelle.h"

#include <stdio.h>

#include "base/mem.h"
#include "convert/spectrum/images.h"
#include "convert/spectrum/iraf_multispec.h"
#include "convert/spectrum/list.h"
#include "convert/spectrum/tables.h"
#include "fits/cards.h"

/* Wavelengths of an order from HARPS's data reduction software: polynomials of the pixel from 0. */
static int drs_orders(const spx_cards *h, const char *who, size_t order, size_t n, double *w)
{
    char key[64];
    double degree = -1, c[16];
    snprintf(key, sizeof key, "%s DRS CAL TH DEG LL", who);
    if (!spx_cards_double(h, key, &degree) || !(degree >= 1) || !(degree < 16))
        return 0;
    const size_t m = (size_t)degree + 1;
    for (size_t k = 0; k < m; k++) {
        snprintf(key, sizeof key, "%s DRS CAL TH COEFF LL%zu", who, order * m + k);
        if (!spx_cards_double(h, key, &c[k]))
            return 0;
    }
    for (size_t i = 0; w != NULL && i < n; i++) {
        w[i] = 0;
        for (size_t k = m; k-- > 0;)
            w[i] = w[i] * (double)i + c[k];
    }
    return 1;
}

spx_status spx_find_formulas(spx_fits *f, const spx_survey *fam, const spx_fits_spectrum_options *o,
                             spx_fits_spectra *out, spx_err *e)
{
    const spx_fits_hdu *h = &f->hdu[0];
    char arm[16];
    if (h->ndim < 1 || h->ndim > 3 || !spx_fits_is_image(h, h->ndim) || h->nelem == 0 ||
        h->dims[h->ndim - 1] < SPX_LEAST_PIXELS)
        return SPX_OK;
    const size_t n = h->dims[h->ndim - 1], nrow = h->ndim > 1 ? h->dims[h->ndim - 2] : 1;
    const size_t nband = h->ndim > 2 ? h->dims[0] : 1;
    static const char *const drs[] = {"ESO", "TNG", "OHP"}; /* HARPS, HARPS-N, SOPHIE */
    const char *who = NULL;
    for (size_t i = 0; i < sizeof drs / sizeof *drs; i++)
        if (drs_orders(&h->header, drs[i], 0, n, NULL))
            who = drs[i];
    const int multispec =
        spx_card_has_text(&h->header, "CTYPE1", "MULTISPE") || spx_card_has_text(&h->header, "WAT0_001", "multispec");
    const size_t sigma = spx_band_of_errors(&h->header, nband);
    size_t first, count;
    if (who == NULL && !multispec)
        return SPX_OK;
    spx_status st = spx_orders_of(o, nrow, &first, &count, e);
    spx_arm_name_default(f, fam, arm);
    out->format = who != NULL ? "orders of HARPS" : "IRAF multispec";
    for (size_t r = first; st == SPX_OK && r < first + count; r++) {
        spx_fits_spectrum *s = spx_spectra_list_add(out, e);
        if (s == NULL || (s->given[0] = spx_alloc(n, sizeof *s->given[0], e)) == NULL)
            return SPX_EIO;
        snprintf(s->arm, sizeof s->arm, "%s", arm);
        s->n = n;
        s->flux = spx_values_of_row(0, r);
        if (sigma > 0) {
            s->noise = spx_values_of_row(0, sigma * nrow + r);
            s->kind = SPX_NOISE_SIGMA;
        }
        if (who == NULL)
            st = spx_fits_multispec(&h->header, r, n, s->given[0], e);
        else if (!drs_orders(&h->header, who, r, n, s->given[0]))
            st = spx_fail(e, SPX_EINPUT, "order %zu has no wavelengths in the header", r);
        s->unit = 1;
        s->bad = UINT32_MAX;
        spx_spectrum_axis(f, 0, fam, s);
        if (s->medium < 0) /* medium of the thorium-argon line lists */
            s->medium = SPX_AIR;
    }
    return st == SPX_OK ? SPX_OK : spx_err_at(e, f->name, NULL);
}
