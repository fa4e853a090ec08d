/* Selects spectra, and groups them into stars (run/select.h). */
#include "run/select.h"

#include <math.h>
#include <regex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "app/opt.h"
#include "base/lines.h"
#include "base/mem.h"
#include "base/order.h"
#include "base/parse.h"
#include "h5/attr.h"
#include "h5/object.h"
#include "h5/table.h"
#include "num/barycentre.h"
#include "num/stat.h"
#include "num/wave.h"

/* ---- criteria from the fibermap ---- */

spx_status spx_fibermap_status(const spx_table *fibermap, int64_t **bad, spx_err *e)
{
    const int64_t harmless = (int64_t)1 << 3 | (int64_t)1 << 20;
    spx_status st = spx_table_find_i64(fibermap, "FIBERSTATUS", bad, e);
    if (st == SPX_OK && *bad == NULL)
        st = spx_table_find_i64(fibermap, "COADD_FIBERSTATUS", bad, e);
    for (size_t i = 0; st == SPX_OK && *bad != NULL && i < fibermap->nrow; i++)
        (*bad)[i] &= ~harmless;
    return st;
}

static spx_status drop_sky(const spx_spectra *s, char *take, spx_err *e)
{
    enum { WIDTH = 8 };
    spx_status st = SPX_OK;
    if (s->fibermap != NULL && spx_table_find(s->fibermap, "OBJTYPE") >= 0) {
        char *type = spx_alloc2(s->nspec, WIDTH, 1, e);
        st = type == NULL ? SPX_EIO : spx_table_get_str(s->fibermap, "OBJTYPE", WIDTH, type, e);
        for (size_t i = 0; i < s->nspec && st == SPX_OK; i++)
            if (strcmp(type + WIDTH * i, "SKY") == 0 || strcmp(type + WIDTH * i, "BAD") == 0)
                take[i] = 0;
        spx_free(type);
    }
    int64_t *bad = NULL;
    if (st == SPX_OK)
        st = spx_fibermap_status(s->fibermap, &bad, e);
    for (size_t i = 0; i < s->nspec && st == SPX_OK && bad != NULL; i++)
        if (bad[i] != 0)
            take[i] = 0;
    spx_free(bad);
    return st;
}

static spx_status append_target(size_t *n, size_t *capacity, int64_t **id, long value, spx_err *e)
{
    int64_t *more = spx_grow(*id, *n, 1, capacity, sizeof *more, e);
    if (more == NULL)
        return SPX_EIO;
    *id = more;
    (*id)[(*n)++] = value;
    return SPX_OK;
}

static spx_status read_targets(const char *file, size_t *n, size_t *capacity, int64_t **id, spx_err *e)
{
    const size_t before = *n;
    spx_lines lines;
    spx_status st = spx_lines_open(&lines, file, e);
    if (st != SPX_OK)
        return st;
    for (char *p; st == SPX_OK && (p = spx_lines_next(&lines)) != NULL;) {
        long value;
        st = spx_parse_long(p, file, &value, e);
        if (st == SPX_OK)
            st = append_target(n, capacity, id, value, e);
        else
            e->code = st = SPX_EINPUT; /* an error in a file, not on the command line */
    }
    st = spx_lines_close(&lines, st, e);
    if (st == SPX_OK && *n == before)
        st = spx_fail(e, SPX_EINPUT, "%s: holds no TARGETID", file);
    return st;
}

spx_status spx_targets_collect(size_t ntext, const char *const *text, const char *file, size_t *n, int64_t **id,
                               spx_err *e)
{
    size_t capacity = 0;
    spx_status st = SPX_OK;
    *n = 0;
    *id = NULL;
    for (size_t i = 0; i < ntext && st == SPX_OK; i++) {
        long value = 0;
        st = spx_parse_long(text[i], "--targetid", &value, e);
        if (st == SPX_OK)
            st = append_target(n, &capacity, id, value, e);
    }
    return st == SPX_OK && file != NULL ? read_targets(file, n, &capacity, id, e) : st;
}

static spx_status keep_targets(const spx_spectra *s, size_t n, const int64_t *wanted, char *take, spx_err *e)
{
    int64_t *have = NULL, *sorted = spx_alloc(n, sizeof *sorted, e);
    spx_status st = sorted == NULL ? SPX_EIO : spx_fibermap_need_i64(s->fibermap, "TARGETID", &have, e);
    if (st == SPX_OK) {
        memcpy(sorted, wanted, n * sizeof *sorted);
        qsort(sorted, n, sizeof *sorted, spx_by_i64);
    }
    for (size_t i = 0; i < s->nspec && st == SPX_OK; i++) {
        size_t k = spx_targets_lower(n, sorted, have[i]);
        take[i] = take[i] && k < n && sorted[k] == have[i];
    }
    spx_free(have);
    spx_free(sorted);
    return st;
}

static spx_status keep_exposures(const spx_spectra *s, int64_t min, int64_t max, char *take, spx_err *e)
{
    int64_t *id = NULL;
    spx_status st = spx_fibermap_need_i64(s->fibermap, "EXPID", &id, e);
    for (size_t i = 0; i < s->nspec && st == SPX_OK; i++)
        take[i] = take[i] && id[i] >= min && id[i] <= max;
    spx_free(id);
    return st;
}

/* Bits of DESI_TARGET in the main survey (desitarget, targetmask.yaml); those of stars are the same in all surveys. */
static const struct {
    int bit;
    const char *name;
} target_bits[] = {{0, "LRG"},
                   {1, "ELG"},
                   {2, "QSO"},
                   {3, "LGE"},
                   {4, "QSO_HIZ"},
                   {5, "ELG_LOP"},
                   {6, "ELG_HIP"},
                   {7, "ELG_VLO"},
                   {8, "LRG_NORTH"},
                   {9, "ELG_NORTH"},
                   {10, "QSO_NORTH"},
                   {11, "ELG_LOP_NORTH"},
                   {12, "ELG_VLO_NORTH"},
                   {13, "LGE_NORTH"},
                   {16, "LRG_SOUTH"},
                   {17, "ELG_SOUTH"},
                   {18, "QSO_SOUTH"},
                   {19, "ELG_LOP_SOUTH"},
                   {20, "ELG_VLO_SOUTH"},
                   {21, "LGE_SOUTH"},
                   {32, "SKY"},
                   {33, "STD_FAINT"},
                   {34, "STD_WD"},
                   {35, "STD_BRIGHT"},
                   {36, "BAD_SKY"},
                   {37, "SUPP_SKY"},
                   {49, "NO_TARGET"},
                   {50, "BRIGHT_OBJECT"},
                   {51, "IN_BRIGHT_OBJECT"},
                   {52, "NEAR_BRIGHT_OBJECT"},
                   {60, "BGS_ANY"},
                   {61, "MWS_ANY"},
                   {62, "SCND_ANY"}};

/* Mask of the bits whose names match one of the expressions. */
static spx_status type_bits(const char *text, int64_t *bits, spx_err *e)
{
    *bits = 0;
    for (const char *p = text;; p++) {
        size_t n = strcspn(p, ",");
        char pattern[256];
        regex_t re;
        int64_t found = 0;
        if (n == 0 || n > sizeof pattern - 8)
            return spx_fail(e, SPX_EUSAGE, "--objtypes: '%s' is no list of expressions with commas between", text);
        (void)snprintf(pattern, sizeof pattern, "^(%.*s)", (int)n, p);
        if (regcomp(&re, pattern, REG_EXTENDED | REG_NOSUB) != 0)
            return spx_fail(e, SPX_EUSAGE, "--objtypes: '%.*s' is no regular expression", (int)n, p);
        for (size_t k = 0; k < sizeof target_bits / sizeof *target_bits; k++)
            if (regexec(&re, target_bits[k].name, 0, NULL, 0) == 0)
                found |= (int64_t)1 << target_bits[k].bit;
        regfree(&re);
        if (found == 0)
            return spx_fail(e, SPX_EUSAGE,
                            "--objtypes: no bit of DESI_TARGET is called '%.*s': STD_FAINT, MWS_ANY, ...", (int)n, p);
        *bits |= found;
        p += n;
        if (*p == '\0')
            return SPX_OK;
    }
}

static spx_status choose_types(const spx_spectra *s, const char *text, char *chosen, spx_err *e)
{
    static const char *const column[] = {"DESI_TARGET", "SV1_DESI_TARGET", "SV2_DESI_TARGET", "SV3_DESI_TARGET"};
    int64_t bits, *have = NULL;
    spx_status st = type_bits(text, &bits, e);
    for (size_t k = 0; k < sizeof column / sizeof *column && st == SPX_OK && have == NULL; k++)
        st = spx_table_find_i64(s->fibermap, column[k], &have, e);
    if (st == SPX_OK && have == NULL)
        st = spx_fail(e, SPX_EINPUT, "--objtypes: the spectra have no fibermap with a DESI_TARGET");
    for (size_t i = 0; i < s->nspec && st == SPX_OK; i++)
        chosen[i] = chosen[i] || (have[i] & bits) != 0;
    spx_free(have);
    return st;
}

static spx_status choose_stars(const spx_spectra *s, const spx_redshifts *r, char *chosen, spx_err *e)
{
    static const double slow = 1500 / SPX_C_KMS;
    int64_t *id = NULL;
    spx_status st = spx_fibermap_need_i64(s->fibermap, "TARGETID", &id, e);
    for (size_t i = 0; i < s->nspec && st == SPX_OK; i++) {
        size_t k = spx_redshifts_find(r, id[i]);
        chosen[i] = chosen[i] || (k != SPX_NO_ROW && (strcmp(r->spectype[k], "STAR") == 0 || fabs(r->z[k]) < slow));
    }
    spx_free(id);
    return st;
}

/* ---- signal-to-noise ratio ---- */

/* Largest signal-to-noise ratio over the arms, from the scores: sn[nspec]; *found 0: not all arms have scores. */
static spx_status sn_of_scores(const spx_spectra_parts *p, const uint8_t *arm, double *sn, int *found, spx_err *e)
{
    static const char *const column[] = {"MEDIAN_CALIB_SNR_", "MEDIAN_COADD_SNR_", "MEDIAN_COADD_FLUX_SNR_"};
    const spx_spectra *s = &p->all;
    double *one = spx_alloc(s->nspec, sizeof *one, e);
    spx_status st = one == NULL ? SPX_EIO : SPX_OK;
    *found = 0;
    for (size_t c = 0; c < sizeof column / sizeof *column && s->scores != NULL && !*found && st == SPX_OK; c++) {
        *found = 1;
        for (size_t i = 0; i < s->nspec; i++)
            sn[i] = -HUGE_VAL;
        for (size_t a = 0; a < s->narm && *found && st == SPX_OK; a++) {
            char name[64];
            (void)snprintf(name, sizeof name, "%s%s", column[c], s->arm[a].name);
            if (!arm[a])
                continue;
            *found = spx_table_find(s->scores, name) >= 0;
            if (*found)
                st = spx_table_get_f64(s->scores, name, one, e);
            for (size_t i = 0; i < s->nspec && *found && st == SPX_OK; i++)
                sn[i] = fmax(sn[i], one[i]);
        }
    }
    spx_free(one);
    return st;
}

static double median_sn(const spx_arm *a, size_t row, double *tmp)
{
    size_t n = 0;
    for (size_t i = row * a->nwave; i < (row + 1) * a->nwave; i++) {
        double sn = a->flux[i] * sqrt(a->ivar[i] > 0 ? a->ivar[i] : 0);
        if (a->ivar[i] > 0 && (a->mask == NULL || a->mask[i] == 0) && isfinite(sn))
            tmp[n++] = sn;
    }
    return n > 0 ? spx_median(tmp, n) : -HUGE_VAL;
}

/* Largest signal-to-noise ratio over the arms, from the pixels, of the spectra still selected. */
static spx_status sn_of_pixels(const spx_spectra_parts *p, const uint8_t *arm, const char *take, double *sn, spx_err *e)
{
    enum { AT_ONCE = 64 };
    size_t row[AT_ONCE], most = 0;
    for (size_t a = 0; a < p->all.narm; a++)
        most = p->all.arm[a].nwave > most ? p->all.arm[a].nwave : most;
    spx_spectra_parts plain = *p; /* without resolution matrices */
    plain.with_resolution = 0;
    double *tmp = spx_alloc(most, sizeof *tmp, e);
    spx_status st = tmp == NULL ? SPX_EIO : SPX_OK;
    for (size_t i = 0; i < p->all.nspec && st == SPX_OK;) {
        size_t n = 0;
        spx_spectra s;
        for (; i < p->all.nspec && n < AT_ONCE; i++)
            if (take[i])
                row[n++] = i;
        st = spx_spectra_parts_read(&plain, n, row, &s, e);
        for (size_t k = 0; k < n && st == SPX_OK; k++) {
            sn[row[k]] = -HUGE_VAL;
            for (size_t a = 0; a < s.narm; a++)
                if (arm[a])
                    sn[row[k]] = fmax(sn[row[k]], median_sn(&s.arm[a], k, tmp));
        }
        spx_spectra_free(&s);
    }
    spx_free(tmp);
    return st;
}

static spx_status keep_bright(const spx_spectra_parts *p, const spx_selection *s, char *take, spx_err *e)
{
    int found;
    double *sn = spx_alloc(p->all.nspec, sizeof *sn, e);
    spx_status st = sn == NULL ? SPX_EIO : sn_of_scores(p, s->sn_arm, sn, &found, e);
    if (st == SPX_OK && !found)
        st = sn_of_pixels(p, s->sn_arm, take, sn, e);
    for (size_t i = 0; i < p->all.nspec && st == SPX_OK; i++)
        take[i] = take[i] && sn[i] > s->minsn;
    spx_free(sn);
    return st;
}

/* ---- selection ---- */

spx_status spx_spectra_select(const spx_spectra_parts *p, const spx_selection *s, size_t **row, size_t *n, spx_err *e)
{
    const spx_spectra *all = &p->all;
    size_t first = 0, count = all->nspec;
    char *take = spx_alloc(all->nspec, 1, e), *chosen = spx_alloc(all->nspec, 1, e);
    *n = 0;
    *row = spx_alloc(all->nspec, sizeof **row, e);
    spx_status st = take == NULL || chosen == NULL || *row == NULL ? SPX_EIO : SPX_OK;
    if (st == SPX_OK && s->rows != NULL)
        st = spx_parse_slice(s->rows, "--rows", all->nspec, &first, &count, e);
    for (size_t i = 0; i < count && st == SPX_OK; i++)
        take[first + i] = 1;
    if (st == SPX_OK && !s->all_fibers)
        st = drop_sky(all, take, e);
    if (st == SPX_OK && s->ntarget > 0)
        st = keep_targets(all, s->ntarget, s->target, take, e);
    if (st == SPX_OK && s->has_expid)
        st = keep_exposures(all, s->expid_min, s->expid_max, take, e);
    if (st == SPX_OK && s->objtypes != NULL)
        st = choose_types(all, s->objtypes, chosen, e);
    if (st == SPX_OK && s->stars != NULL)
        st = choose_stars(all, s->stars, chosen, e);
    for (size_t i = 0; i < all->nspec && st == SPX_OK && (s->objtypes != NULL || s->stars != NULL); i++)
        take[i] = take[i] && chosen[i];
    if (st == SPX_OK && s->has_minsn)
        st = keep_bright(p, s, take, e);
    for (size_t i = 0; i < all->nspec && st == SPX_OK; i++)
        if (take[i])
            (*row)[(*n)++] = i;
    spx_free(take);
    spx_free(chosen);
    return st;
}

/* ---- exposures of a star ---- */

typedef struct {
    int64_t star;
    size_t at, order; /* index in row[]; index of the star's first one */
} exposure;

static int by_star(const void *a, const void *b)
{
    const exposure *x = a, *y = b;
    return x->star != y->star ? (x->star > y->star) - (x->star < y->star) : (x->at > y->at) - (x->at < y->at);
}

static int by_order(const void *a, const void *b)
{
    const exposure *x = a, *y = b;
    return x->order != y->order ? (x->order > y->order) - (x->order < y->order) : (x->at > y->at) - (x->at < y->at);
}

/* Star of each row: id[nspec]. */
static spx_status star_ids(const spx_spectra_parts *p, int all, int64_t **id, spx_err *e)
{
    *id = NULL;
    spx_status st = all ? SPX_OK : spx_table_find_i64(p->all.fibermap, "TARGETID", id, e);
    if (st != SPX_OK || *id != NULL)
        return st;
    if ((*id = spx_alloc(p->all.nspec, sizeof **id, e)) == NULL)
        return SPX_EIO;
    for (size_t i = 0; i < p->npart && !all; i++) {
        const spx_spectra_part *part = &p->part[i];
        if (part->nspec != p->part[0].nspec)
            return spx_fail(e, SPX_EINPUT,
                            "without a TARGETID, row k of every file is taken for the same star, but one file has %zu "
                            "spectra and another %zu: add column TARGETID to the fibermaps",
                            p->part[0].nspec, part->nspec);
        for (size_t k = 0; k < part->nspec; k++)
            (*id)[part->first + k] = (int64_t)k;
    }
    return SPX_OK;
}

spx_status spx_spectra_group_by(const int64_t *id, size_t n, size_t *row, size_t *nstar, size_t **first, spx_err *e)
{
    exposure *x = spx_alloc(n, sizeof *x, e);
    size_t *old = spx_alloc(n, sizeof *old, e);
    *nstar = 0;
    *first = spx_alloc(n + 1, sizeof **first, e);
    spx_status st = x == NULL || old == NULL || *first == NULL ? SPX_EIO : SPX_OK;
    for (size_t i = 0; i < n && st == SPX_OK; i++) {
        x[i] = (exposure){id[row[i]], i, i};
        old[i] = row[i];
    }
    if (st == SPX_OK) {
        qsort(x, n, sizeof *x, by_star);
        for (size_t i = 1; i < n; i++)
            if (x[i].star == x[i - 1].star && x[i].star != -1)
                x[i].order = x[i - 1].order;
        qsort(x, n, sizeof *x, by_order);
        for (size_t i = 0; i < n; i++) {
            if (i == 0 || x[i].order != x[i - 1].order)
                (*first)[(*nstar)++] = i;
            row[i] = old[x[i].at];
        }
        (*first)[*nstar] = n;
    }
    spx_free(x);
    spx_free(old);
    return st;
}

spx_status spx_spectra_group(const spx_spectra_parts *p, int all, size_t n, size_t *row, size_t *nstar, size_t **first,
                             spx_err *e)
{
    int64_t *id;
    *nstar = 0;
    *first = NULL;
    spx_status st = star_ids(p, all, &id, e);
    if (st == SPX_OK)
        st = spx_spectra_group_by(id, n, row, nstar, first, e);
    spx_free(id);
    return st;
}

/* Degrees by which exposures of a target may point elsewhere: fields of integral-field units, and stars that move. */
#define APART (1 / 60.)

spx_status spx_spectra_apart(const spx_spectra_parts *p, const size_t *row, size_t nstar, const size_t *first,
                             size_t *apart, size_t *example, spx_err *e)
{
    const spx_table *map = p->all.fibermap;
    *apart = *example = 0;
    if (map == NULL || spx_table_find(map, "TARGET_RA") < 0 || spx_table_find(map, "TARGET_DEC") < 0)
        return SPX_OK;
    double *ra = spx_alloc2(2, map->nrow, sizeof *ra, e), *dec = ra != NULL ? ra + map->nrow : NULL;
    spx_status st = ra != NULL ? spx_table_get_f64(map, "TARGET_RA", ra, e) : SPX_EIO;
    if (st == SPX_OK)
        st = spx_table_get_f64(map, "TARGET_DEC", dec, e);
    for (size_t t = 0; t < nstar && st == SPX_OK; t++) {
        const size_t a = row[first[t]];
        int far = 0;
        for (size_t i = first[t] + 1; i < first[t + 1]; i++)
            far |= spx_separation(ra[a], dec[a], ra[row[i]], dec[row[i]]) > APART;
        *example = far && *apart == 0 ? a : *example;
        *apart += (size_t)far;
    }
    spx_free(ra);
    return st;
}

spx_status spx_spectra_twice(const spx_spectra_parts *p, const size_t *row, size_t nstar, const size_t *first,
                             size_t twice[2], spx_err *e)
{
    const size_t n = p->all.nspec;
    int64_t *fiber = NULL, *expid = NULL;
    size_t *part = spx_alloc(n, sizeof *part, e);
    uint64_t *arms = part != NULL ? spx_alloc(n, sizeof *arms, e) : NULL;
    twice[0] = twice[1] = 0;
    spx_status st = arms != NULL ? spx_spectra_parts_number(p, "EXPID", &expid, e) : SPX_EIO;
    if (st == SPX_OK)
        st = spx_table_find_i64(p->all.fibermap, "FIBER", &fiber, e);
    if (st == SPX_OK)
        spx_spectra_parts_sources(p, part, arms);
    for (size_t t = 0; t < nstar && st == SPX_OK; t++)
        for (size_t i = first[t]; i < first[t + 1]; i++)
            for (size_t k = first[t]; k < i; k++) {
                const size_t a = row[k], b = row[i];
                if (twice[0] == twice[1] && expid[a] >= 0 && expid[a] == expid[b] && (arms[a] & arms[b]) != 0 &&
                    (fiber == NULL || fiber[a] == fiber[b])) {
                    twice[0] = a;
                    twice[1] = b;
                }
            }
    spx_free(part);
    spx_free(arms);
    spx_free(expid);
    spx_free(fiber);
    return st;
}
