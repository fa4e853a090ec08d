#include "common/flux_options.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/lines.h"
#include "base/mem.h"
#include "base/parse.h"
#include "common/bands.h"
#include "h5/table.h"
#include "products/rvfit.h"

static const double LEAST_SN = 10; /* of stars that nothing calls standards */
enum { LEAST_FIT = 10 };           /* bins of a template that make it one */

spx_status spx_flux_read_bands(spx_run *s, const char *name, spx_bands *b, spx_err *e)
{
    if (name == NULL)
        return spx_bands_add_telluric(b, SPX_VACUUM, e);
    return strcmp(name, "none") != 0 ? spx_bands_add_file(b, s, name, e) : SPX_OK;
}

/* ---- which stars ---- */

/* Marks spectra that the fibermap calls standards; returns how many. */
static spx_status mark_standards(const spx_table *fibermap, size_t n, uint8_t *mark, size_t *count, spx_err *e)
{
    static const char *const column[] = {"DESI_TARGET", "SV1_DESI_TARGET", "SV2_DESI_TARGET", "SV3_DESI_TARGET"};
    const int64_t bits = INT64_C(7) << 33; /* STD_FAINT, STD_WD, STD_BRIGHT of desitarget */
    enum { WORD = 16 };
    spx_status st = SPX_OK;
    for (size_t c = 0; c < sizeof column / sizeof *column && st == SPX_OK; c++) {
        int64_t *value = NULL;
        st = spx_table_find_i64(fibermap, column[c], &value, e);
        for (size_t i = 0; i < n && value != NULL; i++)
            mark[i] |= (value[i] & bits) != 0;
        spx_free(value);
    }
    if (st == SPX_OK && fibermap != NULL && spx_table_find(fibermap, "OBJTYPE") >= 0) {
        char *word = spx_alloc(n, WORD, e);
        st = word != NULL ? spx_table_get_str(fibermap, "OBJTYPE", WORD, word, e) : SPX_EIO;
        for (size_t i = 0; i < n && st == SPX_OK; i++)
            mark[i] |= strncmp(word + i * WORD, "STD", 3) == 0;
        spx_free(word);
    }
    *count = 0;
    for (size_t i = 0; i < n; i++)
        *count += mark[i];
    return st;
}

/* Row of the fit for each spectrum of the frame, SPX_NO_ROW: none. By TARGETID, and EXPID where both have it; without
 * TARGETID by FIBER. */
static spx_status match_rows(const spx_star_templates *t, const spx_frame *f, size_t *match, spx_err *e)
{
    int64_t *id = NULL, *expid = NULL, *fiber = NULL;
    spx_status st = spx_table_find_i64(f->fibermap, "TARGETID", &id, e);
    if (st == SPX_OK)
        st = spx_table_find_i64(f->fibermap, "EXPID", &expid, e);
    if (st == SPX_OK)
        st = spx_table_find_i64(f->fibermap, "FIBER", &fiber, e);
    const int by_id = id != NULL && t->targetid != NULL, by_fiber = !by_id && fiber != NULL && t->fiber != NULL;
    const int by_exposure = expid != NULL && t->expid != NULL;
    if (st == SPX_OK && !by_id && !by_fiber)
        st = spx_fail(e, SPX_EINPUT,
                      "the fibermap of the frame and the fit have neither TARGETID nor FIBER in common: nothing tells "
                      "which star is which");
    for (size_t i = 0; i < f->nspec && st == SPX_OK; i++) {
        match[i] = SPX_NO_ROW;
        for (size_t k = 0; k < t->nrow && match[i] == SPX_NO_ROW; k++)
            if ((by_id ? t->targetid[k] == id[i] : t->fiber[k] == fiber[i]) &&
                (!by_exposure || t->expid[k] == expid[i] || t->expid[k] == -1))
                match[i] = k;
    }
    spx_free(id);
    spx_free(expid);
    spx_free(fiber);
    return st;
}

/* Does the template of a row exist, and was its fit good? */
static int good_fit(const spx_star_templates *t, const spx_template_arm *a, size_t row)
{
    size_t n = 0;
    for (size_t k = 0; k < a->nbin; k++)
        n += a->value[row * a->nbin + k] > 0;
    return n >= LEAST_FIT && (t->warn[row] & (SPX_RVS_CHISQ | SPX_RVS_VEDGE | SPX_RVS_VERR | SPX_RVS_BAD |
                                              SPX_RVS_NEGATIVE | SPX_RVS_EXPOSURES)) == 0;
}

/* Chosen spectra into s->row; match[]: rows of the fit. */
static spx_status choose(const spx_flux_args *o, const spx_star_templates *t, const spx_template_arm *a,
                         const spx_frame *f, const size_t *match, spx_flux_standards *s, spx_err *e)
{
    uint8_t *mark = spx_alloc(f->nspec, 1, e);
    size_t nmark = 0, n = 0, fitted = 0;
    spx_status st = mark == NULL ? SPX_EIO : SPX_OK;
    if (st == SPX_OK && o->stars != NULL)
        st = spx_parse_rows(o->stars, "--stars", f->nspec, mark, e);
    else if (st == SPX_OK)
        st = mark_standards(f->fibermap, f->nspec, mark, &nmark, e);
    s->how = o->stars != NULL ? "--stars" : nmark > 0 ? "standards of the fibermap" : "all good fits";
    for (size_t i = 0; i < f->nspec && st == SPX_OK; i++) {
        const int has = match[i] != SPX_NO_ROW;
        fitted += has;
        if (o->stars != NULL && mark[i] && (!has || !(a->sn[match[i]] > 0)))
            st = spx_fail(e, SPX_EUSAGE, "--stars: spectrum %zu has no template in %s: fit it, or leave it out", i,
                          o->fit);
        const int wanted = o->stars != NULL || nmark > 0 ? mark[i] : has && a->sn[match[i]] >= LEAST_SN;
        if (st == SPX_OK && wanted && has && (o->stars != NULL || good_fit(t, a, match[i])))
            s->row[n++] = i;
    }
    spx_free(mark);
    s->in.nstar = n;
    s->in.row = s->row;
    if (st == SPX_OK && fitted == 0)
        return spx_fail(e, SPX_EINPUT, "none of its stars is among those of %s: give the fit of this exposure", o->fit);
    if (st == SPX_OK && n == 0)
        return spx_fail(e, SPX_EINPUT,
                        "no standard star (%s) has a good fit in %s: name stars with --stars, or --apply a response",
                        s->how, o->fit);
    return st;
}

/* ---- their brightness ---- */

/* Passbands of the columns FLUX_X (nanomaggies) and MAG_X (AB): half-power points of DECam's filters. */
static const struct {
    const char *flux, *mag;
    double lo, hi;
} passband[] = {{"FLUX_R", "MAG_R", 5680, 7160}, {"FLUX_G", "MAG_G", 3990, 5480}, {"FLUX_Z", "MAG_Z", 8460, 9800}};

/* Fluxes in nanomaggies of all spectra in passband p; 0: none. */
static spx_status read_fluxes(const spx_table *fibermap, size_t p, double *flux, spx_err *e)
{
    if (fibermap == NULL)
        return SPX_OK;
    const int linear = spx_table_find(fibermap, passband[p].flux) >= 0;
    const int mag = !linear && spx_table_find(fibermap, passband[p].mag) >= 0;
    if (!linear && !mag)
        return SPX_OK;
    spx_status st = spx_table_get_f64(fibermap, linear ? passband[p].flux : passband[p].mag, flux, e);
    for (size_t i = 0; i < fibermap->nrow && st == SPX_OK; i++) {
        flux[i] = linear ? flux[i] : pow(10, 0.4 * (22.5 - flux[i]));
        flux[i] = flux[i] > 0 && flux[i] < 1e12 ? flux[i] : 0;
    }
    return st;
}

/* Factor of each star's template to flux, by the first passband of which most stars have one: 1 in *found. Stars
 * without are left out. */
static spx_status scale_by_magnitudes(const spx_star_templates *t, const spx_frame *f, const size_t *match,
                                      const spx_flux_standards *s, double *factor, int *found, spx_err *e)
{
    double *flux = spx_alloc(f->nspec, sizeof *flux, e);
    spx_status st = flux == NULL ? SPX_EIO : SPX_OK;
    *found = 0;
    for (size_t p = 0; p < sizeof passband / sizeof *passband && st == SPX_OK && !*found; p++) {
        size_t n = 0;
        memset(flux, 0, f->nspec * sizeof *flux);
        st = read_fluxes(f->fibermap, p, flux, e);
        for (size_t i = 0; i < s->in.nstar && st == SPX_OK; i++) {
            const size_t row = match[s->row[i]];
            factor[i] = 0;
            for (size_t a = 0; a < t->narm && factor[i] == 0; a++)
                factor[i] = spx_flux_factor(t->arm[a].nbin, spx_template_wave(&t->arm[a], row),
                                            t->arm[a].value + row * t->arm[a].nbin, passband[p].lo, passband[p].hi,
                                            flux[s->row[i]]);
            n += factor[i] > 0;
        }
        *found = st == SPX_OK && n >= SPX_FLUX_LEAST_STARS && 2 * n >= s->in.nstar;
    }
    spx_free(flux);
    return st;
}

/* Factor by the brightness in one arm for all: the one nearest to this wavelength, Angstrom, which is r. */
#define BRIGHTNESS_AT 6200.0

static double from_brightness_at(const spx_template_arm *a)
{
    return fmax(fmax(a->wavelength[0] - BRIGHTNESS_AT, BRIGHTNESS_AT - a->wavelength[a->nbin - 1]), 0);
}

static void scale_by_brightness(const spx_star_templates *t, const size_t *match, const spx_flux_standards *s,
                                double *factor)
{
    const spx_template_arm *a = &t->arm[0];
    for (size_t k = 0; k < t->narm; k++)
        if (from_brightness_at(&t->arm[k]) < from_brightness_at(a))
            a = &t->arm[k];
    for (size_t i = 0; i < s->in.nstar; i++)
        factor[i] = a->brightness[match[s->row[i]]];
}

/* Models on the frame's bins; stars without a factor are dropped. */
static spx_status make_models(const spx_template_arm *a, const spx_frame *f, const size_t *match, const double *factor,
                              spx_flux_standards *s, spx_err *e)
{
    const size_t n = f->arm.nwave;
    size_t kept = 0;
    if ((s->model = spx_alloc2(s->in.nstar, n, sizeof *s->model, e)) == NULL ||
        (s->targetid = spx_alloc(s->in.nstar, sizeof *s->targetid, e)) == NULL)
        return SPX_EIO;
    int64_t *id = NULL;
    spx_status st = spx_table_find_i64(f->fibermap, "TARGETID", &id, e);
    for (size_t i = 0; i < s->in.nstar && st == SPX_OK; i++) {
        double *model = s->model + kept * n;
        if (!(factor[i] > 0))
            continue;
        const size_t row = match[s->row[i]];
        spx_flux_on_bins(a->nbin, spx_template_wave(a, row), a->value + row * a->nbin, n, f->arm.wavelength, model);
        for (size_t k = 0; k < n; k++) {
            model[k] *= factor[i];
            model[k] = isfinite(model[k]) ? model[k] : 0;
        }
        s->row[kept] = s->row[i];
        s->targetid[kept] = id != NULL ? id[s->row[i]] : 0;
        kept++;
    }
    spx_free(id);
    s->in.nstar = kept;
    s->in.model = s->model;
    return st;
}

spx_status spx_flux_choose_stars(const spx_flux_args *o, const spx_star_templates *t, const spx_frame *f,
                                 spx_flux_standards *s, spx_err *e)
{
    const spx_template_arm *a = NULL;
    for (size_t k = 0; k < t->narm; k++)
        if (strcmp(t->arm[k].name, f->arm.name) == 0)
            a = &t->arm[k];
    *s = (spx_flux_standards){.how = ""};
    if (a == NULL)
        return spx_fail(e, SPX_EINPUT,
                        "is of arm '%s', of which %s has no templates: fit this arm, too, with rvs-fit --with-template",
                        f->arm.name, o->fit);
    if (a->medium != f->arm.medium || a->barycentric != f->arm.barycentric)
        return spx_fail(e, SPX_EINPUT,
                        "the stars of %s were fitted on %s wavelengths, the frame has %s: fit it as it is", o->fit,
                        a->medium != f->arm.medium ? "other"
                        : a->barycentric           ? "barycentric"
                                                   : "topocentric",
                        a->medium != f->arm.medium ? "those of another medium"
                        : f->arm.barycentric       ? "barycentric ones"
                                                   : "topocentric ones");
    size_t *match = spx_alloc(f->nspec, sizeof *match, e);
    double *factor = spx_alloc(f->nspec, sizeof *factor, e);
    s->row = spx_alloc(f->nspec, sizeof *s->row, e);
    spx_status st = match == NULL || factor == NULL || s->row == NULL ? SPX_EIO : match_rows(t, f, match, e);
    if (st == SPX_OK)
        st = choose(o, t, a, f, match, s, e);
    int absolute = 0;
    if (st == SPX_OK)
        st = scale_by_magnitudes(t, f, match, s, factor, &absolute, e);
    if (st == SPX_OK && !absolute)
        scale_by_brightness(t, match, s, factor);
    s->in.calibrated = absolute;
    (void)snprintf(s->unit, sizeof s->unit, "%s", absolute ? "10**-17 erg/(s cm2 Angstrom)" : "relative flux");
    if (st == SPX_OK)
        st = make_models(a, f, match, factor, s, e);
    spx_free(match);
    spx_free(factor);
    return st;
}

void spx_flux_standards_free(spx_flux_standards *s)
{
    spx_free(s->row);
    spx_free(s->targetid);
    spx_free(s->model);
    *s = (spx_flux_standards){.how = ""};
}
