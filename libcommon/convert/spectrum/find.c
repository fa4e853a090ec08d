/* Finds the spectra of a FITS file. Each layout has a finder (tables.h, images.h, echelle.h); they are tried in a fixed
 * order, and the first that finds spectra decides. */
#include "convert/spectrum/spectrum.h"

#include <stdio.h>
#include <string.h>

#include "convert/spectrum/columns.h"
#include "convert/spectrum/echelle.h"
#include "convert/spectrum/images.h"
#include "convert/spectrum/list.h"
#include "convert/spectrum/surveys.h"
#include "convert/spectrum/tables.h"
#include "fits/cards.h"

/* Keeps sums or single exposures, as requested; exposures where there is no sum. */
static spx_status choose_sums(const spx_fits *f, const spx_fits_spectrum_options *o, spx_fits_spectra *out, spx_err *e)
{
    size_t sums = 0, n = 0;
    for (size_t i = 0; i < out->n; i++)
        sums += !out->s[i].exposure;
    if (o->exposures && sums == out->n)
        return spx_fail_at(e, SPX_EINPUT, f->name, NULL, NULL, "has no single exposures, only the sum");
    const int exposures = o->exposures || sums == 0;
    for (size_t i = 0; i < out->n; i++)
        if (out->s[i].exposure == exposures)
            out->s[n++] = out->s[i];
    for (size_t i = n; i < out->n; i++)
        memset(&out->s[i], 0, sizeof *out->s);
    out->n = n;
    return SPX_OK;
}

/* Notes why something resembling a spectrum cannot be used. */
static void say_why(const spx_fits *f, spx_fits_spectra *out)
{
    spx_column_roles c;
    for (size_t i = 0; i < f->nhdu && !out->note[0]; i++) {
        const spx_fits_hdu *h = &f->hdu[i];
        if (h->kind != SPX_FITS_BINTABLE)
            continue;
        spx_table_roles(h, &c);
        for (size_t k = 0; k < h->ncol && !out->note[0]; k++) {
            const int name = h->col[k].element > 0 ? spx_column_name_of(h->col[k].name) : -1;
            if (name >= 0 && spx_column_names[name].role == FLUX)
                snprintf(out->note, sizeof out->note,
                         "HDU %zu has fluxes (%.60s) in a column of variable length, which is not read as a spectrum",
                         i, h->col[k].name);
        }
        if (!out->note[0] && c.at[FLUX] >= 0 && c.at[WAVE] < 0 &&
            spx_column_elements(&h->col[c.at[FLUX]]) * h->nrow >= SPX_LEAST_PIXELS)
            snprintf(out->note, sizeof out->note, "HDU %zu has a column of fluxes (%.60s), but none of wavelengths", i,
                     h->col[c.at[FLUX]].name);
    }
    spx_image_roles(f, &c);
    if (!out->note[0] && c.at[FLUX] > 0 && c.at[WAVE] < 0 && f->hdu[c.at[FLUX]].ndim == 1)
        snprintf(out->note, sizeof out->note, "HDU %d (%.60s) holds fluxes, but there are no wavelengths", c.at[FLUX],
                 f->hdu[c.at[FLUX]].extname);
    if (!out->note[0] && spx_image_is_float(&f->hdu[0], 2) && f->hdu[0].dims[0] <= SPX_MOST_ROWS &&
        f->hdu[0].dims[1] >= SPX_LEAST_PIXELS)
        snprintf(out->note, sizeof out->note,
                 "holds an array of %zu rows that may be a spectrum, but nothing says what each row is",
                 f->hdu[0].dims[0]);
    if (!out->note[0] && spx_image_is_float(&f->hdu[0], 1) && f->hdu[0].nelem >= SPX_LEAST_PIXELS) {
        double first;
        char unit[72] = "";
        (void)spx_cards_string(&f->hdu[0].header, "CUNIT1", unit, sizeof unit);
        if (spx_cards_double(&f->hdu[0].header, "CRVAL1", &first))
            snprintf(out->note, sizeof out->note,
                     "holds an array that may be a spectrum, but CRVAL1, %g %.20s, is no wavelength, or its step none",
                     first, unit);
        else
            snprintf(out->note, sizeof out->note, "holds an array that may be a spectrum, but no wavelength scale");
    }
}

spx_status spx_fits_spectra_find(spx_fits *f, const spx_fits_spectrum_options *o, spx_fits_spectra *out, spx_err *e)
{
    typedef spx_status finder(spx_fits * f, const spx_survey *fam, const spx_fits_spectrum_options *o,
                              spx_fits_spectra *out, spx_err *e);
    static finder *const finders[] = {spx_find_image_rows, spx_find_apogee,   spx_find_tables,
                                      spx_find_images,     spx_find_formulas, spx_find_plain};
    *out = (spx_fits_spectra){0};
    if (f->nhdu == 0)
        return SPX_OK;
    const spx_survey *fam = spx_survey_of(f);
    spx_status st = SPX_OK;
    for (size_t i = 0; i < sizeof finders / sizeof *finders && st == SPX_OK && out->n == 0; i++)
        st = finders[i](f, fam, o, out, e);
    /* of what is no known survey's, names alone say that it is a spectrum: lists of lines have such names, too */
    if (st == SPX_OK && out->n > 0 && fam == NULL && (st = spx_fits_spectra_check(f, out, e)) == SPX_OK && out->note[0])
        spx_spectra_list_clear(out);
    if (st == SPX_OK && out->n > 0)
        st = choose_sums(f, o, out, e);
    else if (st == SPX_OK) {
        out->format = NULL;
        if (!out->note[0])
            say_why(f, out);
    }
    for (size_t i = 0; i < out->n; i++)
        if (o->medium >= 0)
            out->s[i].medium = o->medium;
    return st;
}

/* `path` of a spectrum as the place of values: of an HDU of their own with their dataset's name. */
static void plan_values(const spx_fits *f, const spx_fits_values *v, const char *path, const char *dataset,
                        spx_fits_path *view)
{
    if (v->hdu < 0 || view[v->hdu][0])
        return;
    const int alone = f->hdu[v->hdu].kind == SPX_FITS_IMAGE || f->hdu[v->hdu].kind == SPX_FITS_TILED;
    snprintf(view[v->hdu], sizeof *view, "%s%s%s", path, alone ? "/" : "", alone ? dataset : "");
}

void spx_fits_spectra_plan(const spx_fits *f, const spx_fits_spectra *l, spx_fits_path *view)
{
    for (size_t i = 0; i < f->nhdu; i++)
        view[i][0] = 0;
    for (size_t i = 0; i < l->n; i++) {
        const spx_fits_spectrum *s = &l->s[i];
        size_t same = 1;
        for (size_t k = 0; k < i; k++)
            same += strcmp(l->s[k].arm, s->arm) == 0 && l->s[k].row == s->row;
        char path[64];
        if (same > 1)
            snprintf(path, sizeof path, "/spectra/%s%zu", s->arm, same);
        else
            snprintf(path, sizeof path, "/spectra/%s", s->arm);
        plan_values(f, &s->flux, path, "flux", view);
        plan_values(f, &s->noise, path, "ivar", view);
        plan_values(f, &s->mask, path, "mask", view);
        plan_values(f, &s->wave, path, "wavelength", view);
    }
}
