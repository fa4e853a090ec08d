/* Finds spectra in images (convert/spectrum/images.h). */
#include "convert/spectrum/images.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/mem.h"
#include "convert/spectrum/list.h"
#include "convert/spectrum/tables.h"
#include "convert/spectrum/wavelength_scale.h"
#include "fits/cards.h"
#include "fits/values.h"
#include "num/wave.h"

int spx_image_is_float(const spx_fits_hdu *h, int ndim)
{
    return spx_fits_is_image(h, ndim) && h->bitpix < 0;
}

spx_status spx_find_image_rows(spx_fits *f, const spx_survey *fam, const spx_fits_spectrum_options *o,
                               spx_fits_spectra *out, spx_err *e)
{
    const spx_fits_hdu *h = &f->hdu[0];
    (void)o;
    if (fam == NULL || !spx_image_is_float(h, 2) || h->dims[0] < 3 || h->dims[0] > SPX_MOST_ROWS ||
        h->dims[1] < SPX_LEAST_PIXELS || (strcmp(fam->arm, "lamost") != 0 && strcmp(fam->arm, "sdss") != 0))
        return SPX_OK;
    const int lamost = strcmp(fam->arm, "lamost") == 0;
    const size_t n = h->dims[1];
    spx_fits_spectrum *s = spx_spectra_list_add(out, e);
    if (s == NULL)
        return SPX_EIO;
    snprintf(s->arm, sizeof s->arm, "%s", fam->arm);
    s->n = n;
    s->flux = spx_values_of_row(0, 0);
    s->noise = spx_values_of_row(0, lamost ? 1 : 2);
    s->kind = lamost ? SPX_NOISE_IVAR : SPX_NOISE_SIGMA;
    s->mask = h->dims[0] > 3 ? spx_values_of_row(0, 3) : SPX_NO_VALUES;
    s->bad = lamost ? fam->bad : SPX_SDSS_OLD_BAD;
    /* LAMOST: the third row is the wavelength; in the pilot survey it was the continuum-normalised flux */
    double *v = NULL;
    spx_status st = lamost ? spx_fits_f64(f, 0, &v, e) : SPX_OK;
    int wave = v != NULL;
    for (size_t i = 1; wave && i < n; i++)
        wave = v[2 * n + i] > v[2 * n + i - 1];
    if (wave && v[2 * n] > 1000) {
        s->wave = spx_values_of_row(0, 2);
        s->unit = 1;
    } else if (st == SPX_OK && !spx_wave_scale_coefficients(&h->header, s) && !spx_wave_scale_header(&h->header, s)) {
        out->n = 0;
    }
    spx_free(v);
    spx_spectrum_axis(f, 0, fam, s);
    out->format = fam->name;
    return st;
}

/* Assigns noise and mask HDUs of the same shape as HDU `flux`, whose rows are spectra. */
static void add_noise_and_mask(const spx_fits *f, const spx_column_roles *c, int flux, size_t row, spx_fits_spectrum *s)
{
    const spx_fits_hdu *h = &f->hdu[flux];
    for (size_t k = sizeof spx_noise_roles / sizeof *spx_noise_roles; k-- > 0;) {
        int i = c->at[spx_noise_roles[k].role];
        if (i >= 0 && f->hdu[i].nelem == h->nelem) {
            s->noise = spx_values_of_row(i, row);
            s->kind = spx_noise_roles[k].kind;
        }
    }
    if (c->at[MASK] >= 0 && f->hdu[c->at[MASK]].nelem == h->nelem)
        s->mask = spx_values_of_row(c->at[MASK], row);
}

static int is_array(const spx_fits_hdu *h)
{
    return (spx_fits_is_image(h, 1) || spx_fits_is_image(h, 2)) && h->dims[h->ndim - 1] >= SPX_LEAST_PIXELS;
}

void spx_image_roles(const spx_fits *f, spx_column_roles *c)
{
    *c = SPX_NO_ROLES;
    for (size_t i = 0; i < f->nhdu; i++)
        if (is_array(&f->hdu[i]))
            spx_match_role(c, (int)i, f->hdu[i].extname);
    if (c->at[FLUX] < 0 && is_array(&f->hdu[0]) && !f->hdu[0].extname[0])
        c->at[FLUX] = 0; /* the primary array may be without a name */
}

spx_status spx_find_images(spx_fits *f, const spx_survey *fam, const spx_fits_spectrum_options *o,
                           spx_fits_spectra *out, spx_err *e)
{
    spx_column_roles c;
    char arm[16];
    spx_image_roles(f, &c);
    if (c.at[FLUX] < 0 || c.at[WAVE] < 0)
        return SPX_OK;
    const spx_fits_hdu *h = &f->hdu[c.at[FLUX]], *w = &f->hdu[c.at[WAVE]];
    const size_t n = h->dims[h->ndim - 1], nrow = h->ndim == 2 ? h->dims[0] : 1;
    const int own = w->nelem == h->nelem; /* every row has its own wavelengths */
    size_t first = 0, count = nrow;
    int same = !own;
    if ((!own && w->nelem != n) || w->dims[w->ndim - 1] != n || nrow == 0)
        return SPX_OK;
    const spx_fits_values wave = spx_values_of_row(c.at[WAVE], 0);
    spx_status st = own && nrow > 1 ? spx_same_wavelengths(f, &wave, n, &same, e) : SPX_OK;
    if (st == SPX_OK && !same)
        st = spx_orders_of(o, nrow, &first, &count, e);
    out->format = nrow > 1 && !same ? "orders" : "HDUs";
    spx_arm_name_default(f, fam, arm);
    for (size_t r = first; r < first + count && st == SPX_OK; r++) {
        char unit[72] = "";
        spx_fits_spectrum *s = spx_spectra_list_add(out, e);
        if (s == NULL)
            return SPX_EIO;
        snprintf(s->arm, sizeof s->arm, "%s", arm);
        s->n = n;
        s->row = same && nrow > 1 ? r : 0;
        s->flux = spx_values_of_row(c.at[FLUX], r);
        s->wave = spx_values_of_row(c.at[WAVE], own ? r : 0);
        add_noise_and_mask(f, &c, c.at[FLUX], r, s);
        s->bad = fam != NULL ? fam->bad : UINT32_MAX;
        s->medium = c.name[WAVE] < SPX_NCOLUMN_NAME ? spx_column_names[c.name[WAVE]].medium : -1;
        s->scale =
            c.name[WAVE] < SPX_NCOLUMN_NAME && spx_column_names[c.name[WAVE]].log10 ? SPX_WAVE_LOG10 : SPX_WAVE_LINEAR;
        (void)spx_cards_string(&w->header, "BUNIT", unit, sizeof unit);
        s->unit = s->scale == SPX_WAVE_LOG10 ? 1 : spx_wave_unit(unit);
        spx_spectrum_axis(f, c.at[WAVE], fam, s);
        if (c.name[WAVE] < SPX_NCOLUMN_NAME && strstr(spx_column_names[c.name[WAVE]].name, "bary") != NULL)
            s->barycentric = 1;
    }
    return st;
}

spx_status spx_find_apogee(spx_fits *f, const spx_survey *fam, const spx_fits_spectrum_options *o,
                           spx_fits_spectra *out, spx_err *e)
{
    char unit[72] = "";
    if (f->nhdu < 3 || f->hdu[0].nelem > 0 || f->hdu[0].kind != SPX_FITS_IMAGE || !is_array(&f->hdu[1]) ||
        !is_array(&f->hdu[2]) || f->hdu[1].bitpix > 0 || f->hdu[2].nelem != f->hdu[1].nelem)
        return SPX_OK;
    const spx_fits_hdu *h = &f->hdu[1];
    const size_t n = h->dims[h->ndim - 1], nrow = h->ndim == 2 ? h->dims[0] : 1;
    const int wave = f->nhdu > 4 && is_array(&f->hdu[4]) && f->hdu[4].nelem == h->nelem &&
                     spx_cards_string(&f->hdu[4].header, "BUNIT", unit, sizeof unit) &&
                     strncasecmp(unit, "wave", 4) == 0;
    const int is_apogee = fam != NULL && strcmp(fam->arm, "apogee") == 0;
    spx_fits_spectrum scale = {0};
    if (nrow == 0 || (!is_apogee && n != 8575) || (!wave && !spx_wave_scale_header(&h->header, &scale)))
        return SPX_OK;
    if (!is_apogee)
        fam = spx_survey_apogee();
    /* sums and visits: the first row is the sum; three detectors: each is an arm */
    const int visits = !wave && o->exposures && nrow > 2;
    const size_t first = visits ? 2 : 0, end = wave || visits ? nrow : 1;
    out->format = fam->name;
    for (size_t r = first; r < end; r++) {
        spx_fits_spectrum *s = spx_spectra_list_add(out, e);
        if (s == NULL)
            return SPX_EIO;
        snprintf(s->arm, sizeof s->arm, "%s", fam->arm);
        s->n = n;
        s->row = visits ? r - first : 0;
        s->exposure = visits;
        s->flux = spx_values_of_row(1, r);
        s->noise = spx_values_of_row(2, r);
        s->kind = SPX_NOISE_SIGMA;
        if (f->nhdu > 3 && is_array(&f->hdu[3]) && f->hdu[3].nelem == h->nelem && f->hdu[3].bitpix > 0)
            s->mask = spx_values_of_row(3, r);
        s->bad = SPX_APOGEE_BAD;
        s->unit = 1;
        s->scale = scale.scale;
        s->start = scale.start;
        s->step = scale.step;
        if (wave) {
            s->wave = spx_values_of_row(4, r);
            s->scale = SPX_WAVE_LINEAR;
        }
        spx_spectrum_axis(f, 1, fam, s);
    }
    return SPX_OK;
}

int spx_card_has_text(const spx_cards *h, const char *key, const char *text)
{
    char value[72];
    return spx_cards_string(h, key, value, sizeof value) && strstr(value, text) != NULL;
}

size_t spx_band_of_errors(const spx_cards *h, size_t nband)
{
    size_t sigma = 0;
    for (size_t b = 1; b < nband && b < 9; b++) {
        char key[16];
        snprintf(key, sizeof key, "BANDID%zu", b + 1);
        sigma = spx_card_has_text(h, key, "sigma") ? b : sigma;
    }
    return sigma;
}

/* 1 when a scale of n pixels can be one of wavelengths: pixel numbers and the like span orders of magnitude. */
static int plausible(const spx_fits_spectrum *s, size_t n)
{
    const double last = s->start + s->step * (double)(n - 1), lo = fmin(s->start, last), hi = fmax(s->start, last);
    if (s->scale != SPX_WAVE_LINEAR)
        return lo > -30 && hi < 30;
    return (s->unit > 0 ? s->unit * lo > 0.1 : lo > 0.1 || (lo > 1e-9 && hi < SPX_FITS_METRES)) && hi < 50 * lo;
}

spx_status spx_find_plain(spx_fits *f, const spx_survey *fam, const spx_fits_spectrum_options *o, spx_fits_spectra *out,
                          spx_err *e)
{
    spx_column_roles c;
    spx_fits_spectrum scale = {.medium = -1};
    int i = 0;
    (void)o;
    while ((size_t)i < f->nhdu && f->hdu[i].nelem == 0)
        i++;
    if ((size_t)i == f->nhdu)
        return SPX_OK;
    const spx_fits_hdu *h = &f->hdu[i];
    /* axes of length 1 do not count */
    if (h->ndim < 1 || h->ndim > 3 || !spx_fits_is_image(h, h->ndim) || h->dims[h->ndim - 1] < SPX_LEAST_PIXELS)
        return SPX_OK;
    const size_t n = h->dims[h->ndim - 1], nband = h->ndim == 3 && h->dims[1] == 1 ? h->dims[0] : 1;
    const size_t sigma = spx_band_of_errors(&h->header, nband);
    if (h->nelem != n * nband || (nband > 1 && sigma == 0))
        return SPX_OK;
    if ((!spx_wave_scale_coefficients(&h->header, &scale) && !spx_wave_scale_header(&h->header, &scale)) ||
        !plausible(&scale, n))
        return SPX_OK;
    spx_fits_spectrum *s = spx_spectra_list_add(out, e);
    if (s == NULL)
        return SPX_EIO;
    spx_image_roles(f, &c);
    spx_arm_name_default(f, fam, s->arm);
    s->n = n;
    s->flux = spx_values_of_row(i, 0);
    s->scale = scale.scale;
    s->start = scale.start;
    s->step = scale.step;
    s->unit = scale.unit;
    s->bad = fam != NULL ? fam->bad : UINT32_MAX;
    if (sigma > 0) {
        s->noise = spx_values_of_row(i, sigma);
        s->kind = SPX_NOISE_SIGMA;
    } else {
        add_noise_and_mask(f, &c, i, 0, s);
    }
    if (fam != NULL && strcmp(fam->arm, "galah") == 0) { /* a file a camera: blue, green, red, infrared */
        char band[72] = "";
        (void)spx_cards_string(&h->header, "SPECTID", band, sizeof band);
        const char *known = strchr("BGRI", toupper((unsigned char)band[0]));
        if (band[0] && known != NULL)
            snprintf(s->arm, sizeof s->arm, "%c", tolower((unsigned char)band[0]));
        if (s->noise.hdu < 0 && f->nhdu > (size_t)i + 1 && f->hdu[i + 1].nelem == h->nelem &&
            spx_fits_is_image(&f->hdu[i + 1], 1)) {
            s->noise = spx_values_of_row(i + 1, 0);
            s->kind = SPX_NOISE_RELATIVE;
        }
    }
    spx_spectrum_axis(f, i, fam, s);
    out->format = fam != NULL ? fam->name : "image";
    return SPX_OK;
}
