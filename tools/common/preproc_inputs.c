#include "common/preproc_inputs.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/lines.h"
#include "products/master_h5.h"
#include "products/plausible.h"

/* ---- masters and bad pixels ---- */

static spx_status read_bad(spx_run *s, spx_preproc_files *f, spx_err *e)
{
    spx_lines l;
    char *line, place[32];
    spx_status st = spx_run_text_input(s, f->bad_name, &l, e);
    if (st != SPX_OK)
        return st;
    while (st == SPX_OK && (line = spx_lines_next(&l)) != NULL) {
        int flip[2];
        spx_section *all = spx_grow(f->bad, f->nbad, 1, &f->capacity, sizeof *all, e);
        if (all == NULL) {
            st = SPX_EIO;
            break;
        }
        f->bad = all;
        st = spx_section_parse(line, &all[f->nbad++], flip, e);
        (void)snprintf(place, sizeof place, "line %zu", l.number);
        if (st != SPX_OK)
            (void)spx_err_at(e, f->bad_name, place);
    }
    return spx_lines_close(&l, st, e);
}

spx_status spx_preproc_files_read(spx_run *s, spx_preproc_files *f, spx_err *e)
{
    spx_status st = SPX_OK;
    for (int k = 0; k < SPX_MASTERS && st == SPX_OK; k++) {
        if (f->name[k] == NULL)
            continue;
        st = spx_run_extra_input(s, f->name[k], &f->in[k], e);
        if (st == SPX_OK && (st = spx_master_read(f->in[k]->file, &f->master[k], e)) != SPX_OK)
            st = spx_err_at(e, f->name[k], NULL);
        if (st == SPX_OK && (int)f->master[k].kind != k)
            st = spx_fail_at(e, SPX_EINPUT, f->name[k], NULL, NULL, "is a master %s, not a %s",
                             spx_master_names[f->master[k].kind], spx_master_names[k]);
    }
    return st == SPX_OK && f->bad_name != NULL ? read_bad(s, f, e) : st;
}

void spx_preproc_files_free(spx_preproc_files *f)
{
    for (int k = 0; k < SPX_MASTERS; k++)
        spx_master_free(&f->master[k]);
    spx_free(f->bad);
}

/* Were the master's exposures read out by these amplifiers, with these gains? */
static spx_status same_amplifiers(const spx_master *m, const spx_layout *l, spx_err *e)
{
    static const char remedy[] = "make the master with the same gains, keywords and --layout";
    if (m->amplifiers == NULL)
        return SPX_OK;
    const size_t n = m->amplifiers->nrow;
    double *gain = spx_alloc(n, sizeof *gain, e);
    char *section = spx_alloc(n, SPX_SECTION_TEXT, e), text[SPX_SECTION_TEXT];
    spx_status st = gain == NULL || section == NULL ? SPX_EIO : spx_table_get_f64(m->amplifiers, "GAIN", gain, e);
    if (st == SPX_OK)
        st = spx_table_get_str(m->amplifiers, "CCDSEC", SPX_SECTION_TEXT, section, e);
    for (size_t k = 0; k < l->namp && st == SPX_OK; k++) {
        size_t i = 0;
        spx_section_print(&l->amp[k].ccd, text);
        while (i < n && strcmp(section + i * SPX_SECTION_TEXT, text) != 0)
            i++;
        if (i == n)
            st = spx_fail_remedy(e, SPX_EINPUT, remedy, "no amplifier of it has read the pixels %s of amplifier %s",
                                 text, l->amp[k].name);
        else if (!(fabs(gain[i] - l->amp[k].gain) <= 1e-6 * l->amp[k].gain))
            st = spx_fail_remedy(e, SPX_EINPUT, remedy,
                                 "its gain of amplifier %s is %g electron/adu, that of the exposure %g", l->amp[k].name,
                                 gain[i], l->amp[k].gain);
    }
    spx_free(gain);
    spx_free(section);
    return st;
}

static spx_status fits(const spx_master *m, const spx_layout *l, const char *camera, spx_err *e)
{
    if (m->camera[0] != '\0' && camera[0] != '\0' && strcasecmp(m->camera, camera) != 0)
        return spx_fail(e, SPX_EINPUT, "is a %s of camera %s, the exposure is of camera %s", spx_master_names[m->kind],
                        m->camera, camera);
    if (m->ny != l->ny || m->nx != l->nx)
        return spx_fail(e, SPX_EINPUT, "is a %s of %zu x %zu pixels, the exposure has %zu x %zu",
                        spx_master_names[m->kind], m->nx, m->ny, l->nx, l->ny);
    return same_amplifiers(m, l, e);
}

static spx_status flag_bad(const spx_preproc_files *f, const spx_layout *l, uint32_t *bad, spx_err *e)
{
    for (size_t k = 0; k < f->nbad; k++) {
        const spx_section *s = &f->bad[k];
        char text[SPX_SECTION_TEXT];
        spx_section_print(s, text);
        if (s->x1 > (long)l->nx || s->y1 > (long)l->ny)
            return spx_fail_at(e, SPX_EINPUT, f->bad_name, NULL, NULL, "%s lies outside the image of %zu x %zu pixels",
                               text, l->nx, l->ny);
        for (long y = s->y0; y < s->y1; y++)
            for (long x = s->x0; x < s->x1; x++)
                bad[(size_t)y * l->nx + (size_t)x] = SPX_CCD_BAD;
    }
    return SPX_OK;
}

spx_status spx_preproc_files_for(const spx_preproc_files *f, const spx_layout *l, const char *camera, double exptime,
                                 spx_preproc_masters *m, spx_err *e)
{
    const spx_master **at[SPX_MASTERS] = {&m->bias, &m->dark, &m->flat};
    uint32_t *bad = NULL;
    spx_status st = SPX_OK;
    for (int k = 0; k < SPX_MASTERS && st == SPX_OK; k++) {
        if (f->name[k] == NULL)
            continue;
        *at[k] = &f->master[k];
        if ((st = fits(&f->master[k], l, camera, e)) != SPX_OK)
            st = spx_err_at(e, f->name[k], NULL);
    }
    if (st == SPX_OK && m->dark != NULL && exptime <= 0)
        st = spx_fail_remedy(e, SPX_EINPUT, "leave out --dark, or give exposures with EXPTIME",
                             "the header has no exposure time to scale the dark by");
    if (st == SPX_OK && f->nbad > 0 && (bad = spx_alloc2(l->ny, l->nx, sizeof *bad, e)) == NULL)
        st = SPX_EIO;
    m->bad = bad;
    return st == SPX_OK && bad != NULL ? flag_bad(f, l, bad, e) : st;
}

/* ---- results ---- */

/* Appends the cards of `from` that h does not have, comments and blanks included. */
static spx_status join_cards(spx_cards *h, const spx_cards *from, spx_err *e)
{
    spx_status st = SPX_OK;
    const size_t n = h->n;
    for (size_t i = 0; i < from->n && st == SPX_OK; i++) {
        char card[81] = "";
        int there = 0;
        memcpy(card, from->cards + 80 * i, 80);
        for (size_t k = 0; k < n && card[8] == '=' && !there; k++)
            there = memcmp(h->cards + 80 * k, card, 8) == 0;
        if (!there)
            st = spx_cards_append(h, card, e);
    }
    return st;
}

spx_status spx_preproc_header(const spx_raw *raw, spx_cards *h, spx_err *e)
{
    /* structure of the raw file, and sections, which the image does not have any more */
    static const char *const gone[] = {"SIMPLE",  "XTENSION", "BITPIX",   "NAXIS*",   "EXTEND",  "PCOUNT",   "GCOUNT",
                                       "EXTNAME", "EXTVER",   "BZERO",    "BSCALE",   "BLANK",   "CHECKSUM", "DATASUM",
                                       "BUNIT",   "DATASEC*", "BIASSEC*", "TRIMSEC*", "DETSEC*", "CCDSEC*",  "AMPSEC*",
                                       "ORSEC*",  "PRESEC*",  "DSEC*",    "BSEC*",    "TSEC*",   "CSEC*",    "ASEC*",
                                       "LTM*",    "LTV*",     "ATM*",     "ATV*",     "DTM*",    "DTV*",     "END"};
    spx_status st = spx_cards_copy(h, &raw->header, e);
    for (size_t k = 0; k < raw->n && k < 1 && st == SPX_OK; k++)
        st = join_cards(h, &raw->image[k].header, e);
    for (size_t i = 0; i < sizeof gone / sizeof *gone && st == SPX_OK; i++)
        spx_cards_drop(h, gone[i]);
    return st == SPX_OK ? spx_cards_set_string(h, "BUNIT", "electron", NULL, e) : st;
}

spx_status spx_preproc_table(const spx_layout *l, const spx_overscan *over, spx_table **t, spx_err *e)
{
    enum { NREAL = 7, MODEL = 8 };
    static const struct {
        const char *name, *unit;
    } real[NREAL] = {{"GAIN", "electron/adu"}, {"READNOISE", "electron"}, {"READNOISE_ERR", "electron"},
                     {"OVERSCAN", "adu"},      {"OVERSCAN_CHI2", NULL},   {"OVERSCAN_ERR", "electron"},
                     {"SATURATION", "adu"}};
    const size_t n = l->namp;
    char *name = spx_alloc(n, SPX_RAW_NAME, e), *section = spx_alloc(n, SPX_SECTION_TEXT, e),
         *model = spx_alloc(n, MODEL, e);
    double *v = spx_alloc2(NREAL, n, sizeof *v, e);
    int32_t *dropped = spx_alloc(n, sizeof *dropped, e);
    int64_t *full = spx_alloc(n, sizeof *full, e);
    *t = spx_table_new(n, e);
    spx_status st =
        name && section && model && v != NULL && dropped != NULL && full != NULL && *t != NULL ? SPX_OK : SPX_EIO;
    for (size_t k = 0; k < n && st == SPX_OK; k++) {
        const spx_amplifier *a = &l->amp[k];
        const spx_overscan *s = &over[k];
        const double one[NREAL] = {a->gain,
                                   s->readnoise * a->gain,
                                   s->readnoise_err * a->gain,
                                   s->mean,
                                   s->chi2,
                                   sqrt(s->level_var) * a->gain,
                                   s->saturation};
        memcpy(name + k * SPX_RAW_NAME, a->name, strlen(a->name));
        spx_section_print(&a->ccd, section + k * SPX_SECTION_TEXT);
        memcpy(model + k * MODEL, spx_overscan_names[s->model], strlen(spx_overscan_names[s->model]));
        for (size_t i = 0; i < NREAL; i++)
            v[i * n + k] = one[i];
        dropped[k] = (int32_t)s->ndropped;
        full[k] = (int64_t)s->nsaturated;
    }
    if (st == SPX_OK)
        st = spx_table_add_strings(*t, "NAME", SPX_RAW_NAME, name, e);
    if (st == SPX_OK)
        st = spx_table_add_strings(*t, "CCDSEC", SPX_SECTION_TEXT, section, e);
    for (size_t i = 0; i < NREAL && st == SPX_OK; i++)
        st = spx_table_add(*t, real[i].name, H5T_NATIVE_DOUBLE, real[i].unit, v + i * n, e);
    if (st == SPX_OK)
        st = spx_table_add_strings(*t, "OVERSCAN_MODEL", MODEL, model, e);
    if (st == SPX_OK)
        st = spx_table_add(*t, "OVERSCAN_DROPPED", H5T_NATIVE_INT32, NULL, dropped, e);
    if (st == SPX_OK)
        st = spx_table_add(*t, "NSATURATED", H5T_NATIVE_INT64, NULL, full, e);
    spx_free(name);
    spx_free(section);
    spx_free(model);
    spx_free(v);
    spx_free(dropped);
    spx_free(full);
    return st;
}

/* Levels that pixels pile up at. */
static void warn_of_piles(const char *label, const spx_amplifier *a, const spx_overscan *s)
{
    char levels[96] = "";
    for (size_t k = 0, used = 0; k < s->npile && used < sizeof levels; k++)
        used += (size_t)snprintf(levels + used, sizeof levels - used,
                                 isinf(s->pile[k].to) ? "%sfrom %.0f ADU on" : "%sat %.0f ADU", k > 0 ? ", and " : "",
                                 s->pile[k].from);
    spx_warn("%samplifier %s: its pixels pile up %s: %zu are taken for saturated, saturation= says from where on they "
             "are",
             label, a->name, levels, s->nsaturated);
}

void spx_preproc_report(const char *label, const spx_layout *l, const spx_overscan *over, unsigned *broken)
{
    for (size_t k = 0; k < l->namp; k++) {
        const spx_amplifier *a = &l->amp[k];
        const spx_overscan *s = &over[k];
        const double noise = s->readnoise * a->gain;
        spx_note("%samplifier %s: overscan %.2f ADU (%s, chi2 %.2f), read noise %.3f +- %.3f electrons, gain %g", label,
                 a->name, s->mean, spx_overscan_names[s->model], s->chi2, noise, s->readnoise_err * a->gain, a->gain);
        if (s->ndropped > 0)
            spx_note("%samplifier %s: %zu columns at the ends of its overscan differ from the others: left out", label,
                     a->name, s->ndropped);
        if (s->trail > 0)
            spx_note("%samplifier %s: its overscan has %.1g of the signal of the pixels beside it", label, a->name,
                     s->trail);
        if (s->npile > 0)
            warn_of_piles(label, a, s);
        else if (s->nsaturated > 0)
            spx_note("%samplifier %s: %zu saturated pixels", label, a->name, s->nsaturated);
        if (noise > 0 && a->readnoise > 0 && spx_rule_broken(SPX_RULE_READNOISE, noise / a->readnoise)) {
            *broken |= 1u << SPX_RULE_READNOISE;
            spx_warn("%samplifier %s: its overscan has a noise of %.3g electrons with a gain of %g, the header says "
                     "%.3g: is the gain right?",
                     label, a->name, noise, a->gain, a->readnoise);
        }
    }
}
