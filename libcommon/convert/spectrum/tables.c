/* Finds spectra in tables (convert/spectrum/tables.h). */
#include "convert/spectrum/tables.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/mem.h"
#include "base/parse.h"
#include "convert/spectrum/list.h"
#include "convert/spectrum/wavelength_scale.h"
#include "fits/values.h"

size_t spx_column_elements(const spx_fits_column *c)
{
    size_t n = 1;
    for (int i = 0; i < c->ndim; i++)
        n *= c->dims[i];
    return n;
}

static int is_numeric(const spx_fits_column *c)
{
    return c->element == 0 && strchr("BIJKED", c->code) != NULL;
}

void spx_table_roles(const spx_fits_hdu *h, spx_column_roles *c)
{
    *c = SPX_NO_ROLES;
    for (size_t i = 0; i < h->ncol; i++)
        if (is_numeric(&h->col[i]))
            spx_match_role(c, (int)i, h->col[i].name);
    /* flux and error after division by the instrument's response are used together */
    for (size_t i = 0; i < h->ncol; i++)
        if (c->at[FLUX] >= 0 && strcmp(spx_column_names[c->name[FLUX]].name, "fluxreduced") == 0 &&
            is_numeric(&h->col[i]) && strcasecmp(h->col[i].name, "ERR_REDUCED") == 0)
            c->at[SIGMA] = (int)i;
}

spx_status spx_same_wavelengths(spx_fits *f, const spx_fits_values *wave, size_t n, int *same, spx_err *e)
{
    double *v = NULL;
    const spx_fits_hdu *h = &f->hdu[wave->hdu];
    const size_t nrow = wave->column < 0 ? h->nelem / n : h->nrow;
    size_t m = n;
    spx_status st = wave->column < 0 ? spx_fits_f64(f, (size_t)wave->hdu, &v, e)
                                     : spx_fits_column_f64(f, (size_t)wave->hdu, h->col[wave->column].name, &m, &v, e);
    *same = st == SPX_OK && m == n;
    for (size_t r = 1; *same && r < nrow; r++) /* the first orders of an echelle spectrograph may be blank */
        *same = memcmp(v, v + r * n, n * sizeof *v) == 0;
    spx_free(v);
    return st;
}

spx_status spx_orders_of(const spx_fits_spectrum_options *o, size_t n, size_t *first, size_t *count, spx_err *e)
{
    *first = 0;
    *count = n;
    return o->orders != NULL ? spx_parse_slice(o->orders, "--orders", n, first, count, e) : SPX_OK;
}

/* Adds the spectra of table i as arm `arm`. */
static spx_status add_table(spx_fits *f, int i, const spx_column_roles *c, const spx_survey *fam, const char *arm,
                            int exposure, const spx_fits_spectrum_options *o, spx_fits_spectra *out, spx_err *e)
{
    const spx_fits_hdu *h = &f->hdu[i];
    const size_t m = spx_column_elements(&h->col[c->at[FLUX]]), nrow = m == 1 ? 1 : h->nrow, n = m == 1 ? h->nrow : m;
    size_t first = 0, count = nrow;
    int same = 0;
    if (nrow > 1) {
        const spx_fits_values wave = {i, c->at[WAVE], 0};
        spx_status st = spx_same_wavelengths(f, &wave, n, &same, e);
        if (st == SPX_OK && !same)
            st = spx_orders_of(o, nrow, &first, &count, e);
        if (st != SPX_OK)
            return st;
    }
    for (size_t r = first; r < first + count; r++) {
        spx_fits_spectrum *s = spx_spectra_list_add(out, e);
        if (s == NULL)
            return SPX_EIO;
        const size_t row = m == 1 ? SPX_FITS_ROWS : r;
        snprintf(s->arm, sizeof s->arm, "%s", arm);
        s->n = n;
        s->exposure = exposure;
        s->row = same ? r : 0;
        s->flux = (spx_fits_values){i, c->at[FLUX], row};
        s->wave = (spx_fits_values){i, c->at[WAVE], row};
        for (size_t k = sizeof spx_noise_roles / sizeof *spx_noise_roles; k-- > 0;)
            if (c->at[spx_noise_roles[k].role] >= 0 &&
                spx_column_elements(&h->col[c->at[spx_noise_roles[k].role]]) == m) {
                s->noise = (spx_fits_values){i, c->at[spx_noise_roles[k].role], row};
                s->kind = spx_noise_roles[k].kind;
            }
        if (c->at[MASK] >= 0 && spx_column_elements(&h->col[c->at[MASK]]) == m)
            s->mask = (spx_fits_values){i, c->at[MASK], row};
        s->bad = fam != NULL ? fam->bad : UINT32_MAX;
        spx_wave_scale_table(h, c->at[WAVE], c->name[WAVE], s);
        spx_spectrum_axis(f, i, fam, s);
    }
    return SPX_OK;
}

static int is_spectrum_table(const spx_fits_hdu *h, spx_column_roles *c)
{
    if (h->kind != SPX_FITS_BINTABLE || h->nrow == 0)
        return 0;
    spx_table_roles(h, c);
    if (c->at[WAVE] < 0 || c->at[FLUX] < 0)
        return 0;
    size_t m = spx_column_elements(&h->col[c->at[FLUX]]);
    return m == spx_column_elements(&h->col[c->at[WAVE]]) && m > 0 && (m == 1 ? h->nrow : m) >= SPX_LEAST_PIXELS;
}

/* Letter of the camera at the beginning of an HDU's name (B1-00123456); x: none. */
static char camera_letter(const char *extname)
{
    const int c = (unsigned char)extname[0];
    return isalpha(c) ? (char)tolower(c) : 'x';
}

spx_status spx_find_tables(spx_fits *f, const spx_survey *fam, const spx_fits_spectrum_options *o,
                           spx_fits_spectra *out, spx_err *e)
{
    size_t ntable = 0, k = 0;
    spx_column_roles c;
    int loglam = 0;
    for (size_t i = 0; i < f->nhdu; i++)
        if (is_spectrum_table(&f->hdu[i], &c)) {
            if (ntable++ == 0)
                loglam = spx_fits_find_column(&f->hdu[i], "loglam") != NULL &&
                         spx_fits_find_column(&f->hdu[i], "ivar") != NULL;
        }
    if (ntable == 0)
        return SPX_OK;
    if (fam == NULL && loglam)
        fam = &spx_survey_sdss;
    out->format = fam != NULL ? fam->name : "table";
    const int is_sdss = fam != NULL && strcmp(fam->arm, "sdss") == 0,
              lamost = fam != NULL && strcmp(fam->arm, "lamost") == 0;
    for (size_t i = 0; i < f->nhdu; i++) {
        if (!is_spectrum_table(&f->hdu[i], &c))
            continue;
        char arm[16];
        const char *name = f->hdu[i].extname;
        int exposure = 0;
        spx_arm_name_default(f, fam, arm);
        if (is_sdss && k > 0) { /* SDSS: the first table is the sum */
            exposure = 1;
            snprintf(arm, sizeof arm, "%c", camera_letter(name));
        } else if (lamost && strncasecmp(name, "COADD_", 6) == 0 && isalpha((unsigned char)name[6])) {
            snprintf(arm, sizeof arm, "%c", camera_letter(name + 6));
        } else if (lamost && isalpha((unsigned char)name[0]) && name[1] == '-') {
            exposure = 1;
            snprintf(arm, sizeof arm, "%c", camera_letter(name));
        } else if (fam == NULL && ntable > 1) {
            char other[16];
            memcpy(other, arm, sizeof other);
            spx_arm_name_from(arm, name, other);
        }
        k++;
        spx_status st = add_table(f, (int)i, &c, fam, arm, exposure, o, out, e);
        if (st != SPX_OK)
            return st;
    }
    return SPX_OK;
}
