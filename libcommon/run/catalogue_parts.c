/* Reads spectra of several files as one block: heads at once, pixels by rows (run/catalogue_parts.h). */
#include "run/catalogue_parts.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "h5/gather.h"
#include "h5/object.h"
#include "h5/read.h"
#include "h5/table.h"
#include "products/spectra_h5.h"
#include "products/wavelength_h5.h"

/* ---- files as arms of the same rows, or as further rows ---- */

static int covers(const spx_spectra_part *part, const spx_spectra_parts *p, const char *name)
{
    for (size_t k = 0; k < part->narm; k++)
        if (strcmp(p->base[part->arm[k]], name) == 0)
            return 1;
    return 0;
}

/* First file of those with the last rows. */
static const spx_spectra_part *last_rows(const spx_spectra_parts *p)
{
    const spx_spectra_part *part = &p->part[p->npart - 1];
    while (part > p->part && part[-1].first == part->first)
        part--;
    return part;
}

/* SPX_EINPUT when both tables have column `name`, and rows of `a` from `first` on differ from `b`. */
static spx_status same_column(const spx_table *a, size_t first, const spx_table *b, const char *name, spx_err *e)
{
    if (a == NULL || b == NULL || spx_table_find(a, name) < 0 || spx_table_find(b, name) < 0)
        return SPX_OK;
    int64_t *x = spx_alloc(a->nrow, sizeof *x, e), *y = spx_alloc(b->nrow, sizeof *y, e);
    spx_status st = x == NULL || y == NULL ? SPX_EIO : spx_table_get_i64(a, name, x, e);
    if (st == SPX_OK)
        st = spx_table_get_i64(b, name, y, e);
    if (st == SPX_OK && memcmp(x + first, y, b->nrow * sizeof *x) != 0)
        st = spx_fail(e, SPX_EINPUT,
                      "/fibermap: %s differs from that of the input before: join them with h5merge (exposures of a "
                      "star: --joint)",
                      name);
    spx_free(x);
    spx_free(y);
    return st;
}

/* Has the file an arm that the rows of this part, the first of its rows, have? Then it cannot be of the same rows. */
static int has_arm_of(const spx_spectra_parts *p, const spx_spectra_part *part, const spx_spectra *more)
{
    const size_t first = part->first;
    for (; part < p->part + p->npart && part->first == first; part++)
        for (size_t k = 0; k < more->narm; k++)
            if (covers(part, p, more->arm[k].name))
                return 1;
    return 0;
}

/* Checks that a file, of exposure expid, -1: not known, may be of the rows of a part; SPX_EINPUT with the reason if
 * not.
 */
static spx_status check_rows(const spx_spectra_parts *p, const spx_spectra_part *part, const spx_spectra *more,
                             long expid, spx_err *e)
{
    if (expid >= 0 && part->expid >= 0 && expid != part->expid)
        return spx_fail(e, SPX_EINPUT,
                        "has other arms than the input before and is of exposure %ld, that one of %ld: give all arms "
                        "of an exposure before those of the next (exposures of a star: --joint)",
                        expid, part->expid);
    if (more->nspec != part->nspec)
        return spx_fail(e, SPX_EINPUT,
                        "has %zu spectra, the input before %zu: join them with h5merge (exposures of a star: --joint)",
                        more->nspec, part->nspec);
    static const char *const key[] = {"TARGETID", "FIBER", "EXPID"};
    spx_status st = SPX_OK;
    for (size_t k = 0; k < sizeof key / sizeof *key && st == SPX_OK; k++)
        st = same_column(p->all.fibermap, part->first, more->fibermap, key[k], e);
    return st;
}

/* Checks that a file has other arms of the last rows; SPX_EINPUT with the reason if not. Where no EXPID says so, it
 * must not fit rows before these that lack its arms, too: in a shell's order, b1 b2 r1 r2, it would be of these. */
static spx_status check_other_arms(const spx_spectra_parts *p, const spx_spectra *more, long expid, spx_err *e)
{
    const spx_spectra_part *last = last_rows(p);
    const int known = expid >= 0 && last->expid >= 0;
    spx_status st = check_rows(p, last, more, expid, e);
    for (const spx_spectra_part *part = p->part; part < last && !known && st == SPX_OK; part++) {
        spx_err other = {0};
        if ((part > p->part && part[-1].first == part->first) || has_arm_of(p, part, more))
            continue;
        const spx_status fits = check_rows(p, part, more, expid, &other);
        if (fits == SPX_OK)
            st = spx_fail(e, SPX_EINPUT,
                          "may be of the exposure of the input before or of an earlier one, which lacks its arms, too, "
                          "and without EXPID in their headers nothing tells: give all arms of an exposure before those "
                          "of the next");
        else if (fits != SPX_EINPUT)
            st = spx_err_pass(e, &other);
        else
            spx_err_clear(&other);
    }
    return st;
}

/* Appends rows of b to a. Where a file lacks the table, or has other columns, the block has none. */
static spx_status append_table(spx_table **a, const spx_table *b, spx_err *e)
{
    spx_table *both = NULL;
    spx_err why = {0};
    if (*a != NULL && b != NULL && (both = spx_table_append(*a, b, &why)) == NULL && why.code != SPX_EINPUT)
        return spx_err_pass(e, &why);
    spx_table_free(*a);
    *a = both;
    return SPX_OK;
}

/* 1 when name[len] is in a list "A, B". */
static int is_listed(const char *list, const char *name, size_t len)
{
    for (const char *at = list; at != NULL && *at != '\0';) {
        const size_t n = strcspn(at, ",");
        if (n == len && strncmp(at, name, n) == 0)
            return 1;
        at += n + (at[n] == ',' ? 2 : 0);
    }
    return 0;
}

/* Appends a fibermap, keeping the columns that all files have; TARGETID is required of all or none. */
static spx_status append_fibermap(spx_spectra_parts *p, const spx_table *more, spx_err *e)
{
    spx_text dropped = {0};
    spx_table **all = &p->all.fibermap, *both = spx_table_append_common(*all, more, &dropped, e);
    spx_status st = both == NULL ? e->code : SPX_OK;
    if (st == SPX_OK && (spx_table_find(*all, "TARGETID") >= 0 || spx_table_find(more, "TARGETID") >= 0) &&
        spx_table_find(both, "TARGETID") < 0)
        st = spx_fail(e, SPX_EINPUT,
                      "column TARGETID is in one table and not in the other, or of another type: exposures of a star "
                      "cannot be told");
    for (const char *name = dropped.s; st == SPX_OK && name != NULL && *name != '\0'; name += strcspn(name, "\n") + 1) {
        const size_t len = strcspn(name, "\n");
        if (!is_listed(p->dropped.s, name, len)) /* a third file may have a column that the second lacks */
            st = spx_text_add(&p->dropped, e, "%s%.*s", p->dropped.n > 0 ? ", " : "", (int)len, name);
    }
    spx_text_free(&dropped);
    if (st != SPX_OK) {
        spx_table_free(both);
        return st;
    }
    spx_table_free(*all);
    *all = both;
    return SPX_OK;
}

static spx_status add_rows(spx_spectra_parts *p, const spx_spectra *more, spx_err *e)
{
    spx_spectra *all = &p->all;
    if ((all->fibermap == NULL) != (more->fibermap == NULL))
        return spx_fail(e, SPX_EINPUT, "/fibermap: %s: exposures of a star cannot be told",
                        more->fibermap == NULL ? "is missing, but the input before has one"
                                               : "is there, but the input before has none");
    spx_status st = all->fibermap == NULL ? SPX_OK : append_fibermap(p, more->fibermap, e);
    if (st != SPX_OK)
        spx_err_context(e, "/fibermap");
    if (st == SPX_OK)
        st = append_table(&all->scores, more->scores, e);
    if (st == SPX_OK)
        st = append_table(&all->exp_fibermap, more->exp_fibermap, e);
    all->nspec += more->nspec;
    return st;
}

/* One grid for all rows of each. Rounding, as of one in nm, is less than any bin. */
static int same_wavelengths(const spx_arm *a, const spx_arm *b)
{
    for (size_t k = 0; k < a->nwave; k++)
        if (!(fabs(a->wavelength[k] - b->wavelength[k]) <= 1e-9 * fabs(a->wavelength[k])))
            return 0;
    return 1;
}

static int same_arm(const spx_spectra_parts *p, const spx_arm *a, const spx_arm *b)
{
    return a->nwave == b->nwave && a->per_row == b->per_row && a->medium == b->medium &&
           strcmp(a->unit, b->unit) == 0 && a->barycentric == b->barycentric && a->frame_unknown == b->frame_unknown &&
           (!p->with_resolution || a->ndiag == b->ndiag) && (a->per_row || same_wavelengths(a, b));
}

/* 1 when one of the first n arms has this name. */
static int name_taken(const spx_spectra *s, size_t n, const char *name)
{
    for (size_t k = 0; k < n; k++)
        if (strcmp(s->arm[k].name, name) == 0)
            return 1;
    return 0;
}

/* Index of the arm in `all`, which takes ownership of a new one. */
static spx_status find_arm(spx_spectra_parts *p, spx_arm *arm, size_t *out, spx_err *e)
{
    spx_spectra *all = &p->all;
    size_t same_name = 0;
    for (size_t k = 0; k < all->narm; k++) {
        if (strcmp(p->base[k], arm->name) != 0)
            continue;
        if (same_arm(p, &all->arm[k], arm)) {
            *out = k;
            return SPX_OK;
        }
        same_name++;
    }
    if (all->narm == SPX_MAX_ARM)
        return spx_fail(e, SPX_EINPUT, "brings the number of arms (on wavelengths of their own) above %d", SPX_MAX_ARM);
    char name[sizeof arm->name], base[sizeof arm->name];
    memcpy(base, arm->name, sizeof base);
    memcpy(name, base, sizeof name);
    *out = all->narm++;
    memcpy(p->base[*out], base, sizeof base);
    all->arm[*out] = *arm;
    p->whole[*out] = arm->nwave;
    memset(arm, 0, sizeof *arm);
    while (name_taken(all, *out, name))
        (void)snprintf(name, sizeof name, "%.12s%zu", base, ++same_name % 1000);
    memcpy(all->arm[*out].name, name, sizeof name);
    return SPX_OK;
}

static spx_status grow(spx_spectra_parts *p, spx_err *e)
{
    spx_spectra_part *more = spx_grow(p->part, p->npart, 1, &p->capacity, sizeof *more, e);
    if (more == NULL)
        return SPX_EIO;
    p->part = more;
    return SPX_OK;
}

/* Moves header and tables of the first file. */
static void take_over(spx_spectra *all, spx_spectra *first)
{
    all->nspec = first->nspec;
    all->header = first->header;
    all->fibermap = first->fibermap;
    all->scores = first->scores;
    all->exp_fibermap = first->exp_fibermap;
    memset(&first->header, 0, sizeof first->header);
    first->fibermap = first->scores = first->exp_fibermap = NULL;
}

/* Reads the grids of a file's spectra through: they increase, and how far they reach in all. */
static spx_status look_at_grids(spx_spectra_parts *p, const spx_spectra_part *part, size_t k, spx_err *e)
{
    enum { AT_ONCE = 64 };
    const size_t arm = part->arm[k], nwave = p->all.arm[arm].nwave;
    double *ends = p->ends[arm], *w = spx_alloc2(AT_ONCE, nwave, sizeof *w, e);
    char path[SPX_ARM_PATH + 16];
    (void)snprintf(path, sizeof path, "%s/wavelength", part->path[k]);
    spx_status st = w == NULL ? SPX_EIO : SPX_OK;
    for (size_t r = 0; r < part->nspec && st == SPX_OK; r += AT_ONCE) {
        const size_t n = part->nspec - r < AT_ONCE ? part->nspec - r : AT_ONCE;
        st = spx_wavelength_read_rows(part->file, path, r, n, nwave, w, e);
        for (size_t i = 0; i < n && st == SPX_OK; i++) {
            const double first = w[i * nwave], last = w[(i + 1) * nwave - 1];
            ends[0] = ends[1] > 0 ? fmin(ends[0], first) : first;
            ends[1] = fmax(ends[1], last);
        }
    }
    spx_free(w);
    p->range[arm][1] = HUGE_VAL;
    return st;
}

spx_status spx_spectra_parts_add(spx_spectra_parts *p, hid_t file, int exposures, spx_err *e)
{
    spx_spectra head;
    spx_spectra_part part = {.file = file};
    spx_err why = {0};
    spx_status st = spx_spectra_read_head(file, p->rows, &head, part.path, e);
    int known = st != SPX_OK; /* 1: the message names the file already */
    if (st == SPX_OK)
        st = grow(p, e);
    part.nspec = head.nspec;
    part.expid = -1;
    if (st == SPX_OK)
        (void)spx_cards_int(&head.header, "EXPID", &part.expid);
    const int again = st == SPX_OK && p->npart > 0 && has_arm_of(p, last_rows(p), &head);
    if (st == SPX_OK && p->npart == 0)
        take_over(&p->all, &head);
    else if (st == SPX_OK && !again && check_other_arms(p, &head, part.expid, &why) == SPX_OK)
        part.first = last_rows(p)->first;
    else if (st == SPX_OK && !exposures && !again)
        st = spx_err_pass(e, &why);
    else if (st == SPX_OK) {
        part.first = p->all.nspec;
        st = add_rows(p, &head, e);
    }
    part.narm = head.narm;
    for (size_t k = 0; k < head.narm && st == SPX_OK; k++) {
        char mask[SPX_ARM_PATH + 8];
        (void)snprintf(mask, sizeof mask, "%s/mask", part.path[k]);
        int has_mask = spx_h5_exists(file, mask);
        st = find_arm(p, &head.arm[k], &part.arm[k], e);
        if (st == SPX_OK && has_mask)
            p->has_mask[part.arm[k]] = 1;
        if (st == SPX_OK && p->all.arm[part.arm[k]].per_row)
            st = look_at_grids(p, &part, k, e);
    }
    if (st == SPX_OK)
        p->part[p->npart++] = part;
    else if (!known)
        spx_err_at(e, spx_h5_filename(file), NULL);
    spx_spectra_free(&head);
    return st;
}

size_t spx_spectra_parts_cut(spx_spectra_parts *p, size_t arm, double lo, double hi)
{
    spx_arm *a = &p->all.arm[arm];
    size_t first = 0, end = a->nwave;
    if (a->per_row) {
        p->range[arm][0] = lo;
        p->range[arm][1] = hi;
        return p->ends[arm][0] <= hi && p->ends[arm][1] >= lo ? end : 0;
    }
    while (first < end && a->wavelength[first] < lo)
        first++;
    while (end > first && a->wavelength[end - 1] > hi)
        end--;
    if (end > first) {
        memmove(a->wavelength, a->wavelength + first, (end - first) * sizeof *a->wavelength);
        p->skip[arm] = first;
        a->nwave = end - first;
    }
    return end - first;
}

/* ---- rows ---- */

static int by_row(const void *a, const void *b)
{
    const spx_h5_move *x = a, *y = b;
    return x->from != y->from ? (x->from > y->from) - (x->from < y->from) : (x->to > y->to) - (x->to < y->to);
}

enum { ROWS_AT_ONCE = 256 }; /* most rows in the read buffer */

/* Copies the wanted part of a row. */
static void take_row(const spx_h5_row *s, size_t size, const char *from, char *to)
{
    const size_t bytes = s->count * size;
    for (size_t i = 0; i < s->lines; i++)
        memcpy(to + i * bytes, from + (i * s->whole + s->skip) * size, bytes);
}

/* Rows m[], in the order of `from`. */
static spx_status read_rows(hid_t file, const char *arm, const char *name, hid_t type, const spx_h5_row *s, size_t n,
                            const spx_h5_move *m, void *out, spx_err *e)
{
    char path[SPX_ARM_PATH + 16], *aside = NULL;
    const size_t size = H5Tget_size(type), bytes = s->lines * s->count * size, count = s->lines * s->whole;
    /* limits the read buffer to the memory of the rows that are kept, or one row */
    const size_t fit = n * s->count / s->whole, most = fit < 1 ? 1 : fit < ROWS_AT_ONCE ? fit : ROWS_AT_ONCE;
    int done;
    (void)snprintf(path, sizeof path, "%s/%s", arm, name);
    spx_status st = spx_h5_gather(file, path, type, s, n, m, out, &done, NULL, e);
    for (size_t i = 0, k; i < n && !done && st == SPX_OK; i = k) {
        int in_place = s->count == s->whole;
        for (k = i + 1; k < n && m[k].from == m[k - 1].from + 1; k++) {
            int next = m[k].to == m[k - 1].to + 1;
            if ((in_place && !next && k - i > 16) || (!(in_place && next) && k - i >= most))
                break;
            in_place = in_place && next;
        }
        if (in_place) {
            st = spx_h5_read_rows(file, path, type, m[i].from, k - i, (char *)out + m[i].to * bytes, e);
            continue;
        }
        if (aside == NULL && (aside = spx_alloc2(most, count, size, e)) == NULL)
            return SPX_EIO;
        st = spx_h5_read_rows(file, path, type, m[i].from, k - i, aside, e);
        for (size_t r = i; r < k && st == SPX_OK; r++)
            take_row(s, size, aside + (r - i) * count * size, (char *)out + m[r].to * bytes);
    }
    spx_free(aside);
    return st;
}

static spx_status read_part(const spx_spectra_parts *p, const spx_spectra_part *part, size_t n, const spx_h5_move *m,
                            spx_spectra *out, spx_err *e)
{
    spx_status st = SPX_OK;
    for (size_t k = 0; k < part->narm && st == SPX_OK; k++) {
        const char *path = part->path[k];
        char mask[SPX_ARM_PATH + 8];
        spx_arm *a = &out->arm[part->arm[k]];
        (void)snprintf(mask, sizeof mask, "%s/mask", path);
        spx_h5_row shape = {1, p->whole[part->arm[k]], p->skip[part->arm[k]], a->nwave};
        st = read_rows(part->file, path, "flux", H5T_NATIVE_DOUBLE, &shape, n, m, a->flux, e);
        if (st == SPX_OK && a->per_row)
            st = read_rows(part->file, path, "wavelength", H5T_NATIVE_DOUBLE, &shape, n, m, a->row_wavelength, e);
        if (st == SPX_OK)
            st = read_rows(part->file, path, "ivar", H5T_NATIVE_DOUBLE, &shape, n, m, a->ivar, e);
        shape.lines = a->ndiag;
        if (st == SPX_OK && a->resolution != NULL)
            st = read_rows(part->file, path, "resolution", H5T_NATIVE_DOUBLE, &shape, n, m, a->resolution, e);
        shape.lines = 1;
        if (st == SPX_OK && p->has_mask[part->arm[k]] && spx_h5_exists(part->file, mask))
            st = read_rows(part->file, path, "mask", H5T_NATIVE_UINT32, &shape, n, m, a->mask, e);
    }
    return st;
}

/* Do all rows have arm k? No row has it from two files. */
static int in_all_rows(const spx_spectra_parts *p, size_t k)
{
    size_t n = 0;
    for (const spx_spectra_part *part = p->part; part < p->part + p->npart; part++)
        for (size_t i = 0; i < part->narm; i++)
            n += part->arm[i] == k ? part->nspec : 0;
    return n == p->all.nspec;
}

static spx_status make_arm(const spx_spectra_parts *p, size_t k, size_t n, spx_arm *a, spx_err *e)
{
    const spx_arm *from = &p->all.arm[k];
    void *(*const alloc)(size_t, size_t, size_t, spx_err *) = in_all_rows(p, k) ? spx_alloc_unset : spx_alloc2;
    *a = *from;
    a->ndiag = p->with_resolution ? from->ndiag : 0;
    a->resolution = NULL;
    a->mask = NULL;
    a->row_wavelength = NULL;
    a->wavelength = spx_alloc(a->nwave, sizeof *a->wavelength, e);
    a->flux = alloc(n, a->nwave, sizeof *a->flux, e);
    a->ivar = alloc(n, a->nwave, sizeof *a->ivar, e);
    if (a->wavelength == NULL || a->flux == NULL || a->ivar == NULL ||
        (a->per_row && (a->row_wavelength = spx_alloc2(n, a->nwave, sizeof *a->row_wavelength, e)) == NULL) ||
        ((p->has_mask[k] || p->nband > 0) && (a->mask = spx_alloc2(n, a->nwave, sizeof *a->mask, e)) == NULL) ||
        (a->ndiag > 0 && (a->resolution = alloc(n, a->ndiag * a->nwave, sizeof *a->resolution, e)) == NULL))
        return SPX_EIO;
    memcpy(a->wavelength, from->wavelength, a->nwave * sizeof *a->wavelength);
    return SPX_OK;
}

/* Of an arm with a grid for each spectrum: rows that have none, as their file lacks the arm, get that of the first;
 * bins out of range have no information. */
static void end_grids(spx_arm *a, size_t n, const double *range)
{
    for (size_t r = 0; r < n && a->per_row; r++) {
        double *w = a->row_wavelength + r * a->nwave, *ivar = a->ivar + r * a->nwave;
        if (!(w[0] > 0))
            memcpy(w, a->wavelength, a->nwave * sizeof *w);
        for (size_t i = 0; i < a->nwave; i++)
            if (w[i] < range[0] || w[i] > range[1])
                ivar[i] = 0;
    }
}

spx_status spx_spectra_parts_ground(spx_spectra_parts *p, int *unknown, spx_err *e)
{
    int barycentric = 0;
    *unknown = 0;
    for (size_t k = 0; k < p->all.narm; k++)
        barycentric |= p->all.arm[k].barycentric;
    if (!barycentric || p->velocity != NULL)
        return SPX_OK;
    *unknown = p->all.fibermap == NULL || spx_table_find(p->all.fibermap, "BARYCENTRIC_VELOCITY") < 0;
    if (*unknown)
        return SPX_OK;
    p->velocity = spx_alloc(p->all.nspec, sizeof *p->velocity, e);
    return p->velocity != NULL ? spx_table_get_f64(p->all.fibermap, "BARYCENTRIC_VELOCITY", p->velocity, e) : SPX_EIO;
}

spx_status spx_spectra_parts_leave_out(spx_spectra_parts *p, size_t nband, const double *band, int *widened, spx_err *e)
{
    *widened = 0;
    p->nband = nband;
    p->band = band;
    return nband > 0 ? spx_spectra_parts_ground(p, widened, e) : SPX_OK;
}

spx_status spx_spectra_parts_read(const spx_spectra_parts *p, size_t n, const size_t *row, spx_spectra *out, spx_err *e)
{
    memset(out, 0, sizeof *out);
    out->nspec = n;
    spx_h5_move *m = spx_alloc(n, sizeof *m, e);
    spx_status st = m == NULL ? SPX_EIO : SPX_OK;
    for (size_t k = 0; k < p->all.narm && st == SPX_OK; k++) {
        out->narm = k + 1;
        st = make_arm(p, k, n, &out->arm[k], e);
    }
    for (size_t i = 0; i < p->npart && st == SPX_OK; i++) {
        const spx_spectra_part *part = &p->part[i];
        size_t have = 0;
        for (size_t k = 0; k < n; k++)
            if (row[k] >= part->first && row[k] - part->first < part->nspec)
                m[have++] = (spx_h5_move){row[k] - part->first, k};
        qsort(m, have, sizeof *m, by_row);
        st = read_part(p, part, have, m, out, e);
    }
    for (size_t a = 0; a < out->narm && st == SPX_OK; a++)
        end_grids(&out->arm[a], n, p->range[a]);
    for (size_t k = 0; k < n && st == SPX_OK && p->nband > 0; k++)
        for (size_t a = 0; a < out->narm; a++)
            spx_arm_leave_out(&out->arm[a], k, p->velocity != NULL ? &p->velocity[row[k]] : NULL, p->nband, p->band);
    spx_free(m);
    return st;
}

size_t spx_spectra_parts_row_bytes(const spx_spectra_parts *p)
{
    size_t n = 0;
    for (size_t k = 0; k < p->all.narm; k++) {
        size_t doubles = 2 + (size_t)p->all.arm[k].per_row + (p->with_resolution ? p->all.arm[k].ndiag : 0);
        n += p->all.arm[k].nwave * (doubles * sizeof(double) + (p->has_mask[k] || p->nband > 0 ? sizeof(uint32_t) : 0));
    }
    return n;
}

void spx_spectra_parts_free(spx_spectra_parts *p)
{
    spx_spectra_free(&p->all);
    spx_text_free(&p->dropped);
    spx_free(p->part);
    spx_free(p->velocity);
    memset(p, 0, sizeof *p);
}
