/* Reads inputs of h5merge, and checks that they fit together. */
#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "h5/attr.h"
#include "h5/object.h"
#include "h5/read.h"
#include "h5/schema.h"
#include "merge/internal.h"
#include "products/cards_h5.h"
#include "products/wavelength_h5.h"

static spx_status read_arms(spx_merge_input *p, const char *block, spx_err *e)
{
    char root[32], path[PATH_LEN];
    size_t n = 0;
    char **names = NULL;
    (void)snprintf(root, sizeof root, "/%s", block);
    spx_status st = spx_h5_list(p->file, root, &n, &names, e);
    for (size_t i = 0; i < n && st == SPX_OK; i++) {
        (void)snprintf(path, sizeof path, "%s/%.200s/wavelength", root, names[i]);
        if (!spx_h5_exists(p->file, path))
            continue;
        if (p->narm == SPX_MAX_ARM || strlen(names[i]) >= sizeof p->arms[0].name) {
            st = spx_fail_at(e, SPX_EINPUT, p->name, root, NULL, "more than %d arms, or an arm's name is too long",
                             SPX_MAX_ARM);
            break;
        }
        spx_merge_arm *a = &p->arms[p->narm++];
        (void)snprintf(a->name, sizeof a->name, "%.15s", names[i]);
        (void)snprintf(a->path, sizeof a->path, "%s/%.15s", root, names[i]);
    }
    spx_h5_names_free(n, names);
    if (st == SPX_OK && p->narm == 0 && strcmp(block, "spectra") == 0)
        st = spx_fail_at(e, SPX_EINPUT, p->name, root, NULL, "has no arms");
    return st;
}

static spx_status rows_of(spx_merge_input *p, const char *path, spx_err *e)
{
    int ndim = 0;
    size_t dims[SPX_H5_MAXDIM];
    spx_status st = spx_h5_shape(p->file, path, &ndim, dims, e);
    if (st == SPX_OK && ndim < 1)
        st = spx_fail_at(e, SPX_EINPUT, p->name, path, NULL, "has no rows");
    if (st == SPX_OK)
        p->nrow = dims[0];
    return st;
}

spx_status spx_merge_read_table(const spx_merge_input *p, const char *path, spx_table **t, spx_err *e)
{
    spx_status st = spx_table_read(p->file, path, t, e);
    if (st == SPX_OK && *t != NULL && (*t)->nrow != p->nrow)
        st = spx_fail_at(e, SPX_EINPUT, p->name, path, NULL, "has %zu rows, but there are %zu spectra", (*t)->nrow,
                         p->nrow);
    if (st != SPX_OK || *t == NULL || spx_table_find(*t, spx_merge_missing_column) < 0)
        return st;
    const char *const names[] = {spx_merge_missing_column, NULL};
    spx_table *all = *t;
    *t = spx_table_without(all, names, e);
    spx_table_free(all);
    return e->code;
}

static spx_status read_keys(spx_merge_input *p, spx_err *e)
{
    spx_table *t = NULL;
    spx_status st = spx_table_read(p->file, "/fibermap", &t, e);
    if (st != SPX_OK)
        return st;
    if (t != NULL && t->nrow != p->nrow)
        st = spx_fail_at(e, SPX_EINPUT, p->name, "/fibermap", NULL, "has %zu rows, but there are %zu spectra", t->nrow,
                         p->nrow);
    if (st == SPX_OK && t != NULL && spx_table_find(t, "FIBER") >= 0) {
        p->fiber = spx_alloc(p->nrow, sizeof *p->fiber, e);
        st = p->fiber == NULL ? SPX_EIO : spx_table_get_i64(t, "FIBER", p->fiber, e);
    }
    if (st == SPX_OK && t != NULL && spx_table_find(t, "TARGETID") >= 0) {
        p->target = spx_alloc(p->nrow, sizeof *p->target, e);
        st = p->target == NULL ? SPX_EIO : spx_table_get_i64(t, "TARGETID", p->target, e);
    }
    if (st == SPX_OK && t != NULL && spx_table_find(t, spx_merge_missing_column) >= 0) {
        p->flagged = spx_alloc(p->nrow, sizeof *p->flagged, e);
        st = p->flagged == NULL ? SPX_EIO : spx_table_get_str(t, spx_merge_missing_column, FLAG_LEN, p->flagged[0], e);
    }
    if (st == SPX_EINPUT)
        spx_err_at(e, p->name, "/fibermap");
    spx_table_free(t);
    if (st == SPX_OK && spx_h5_exists(p->file, "/frame/fiber")) {
        size_t n = p->nrow;
        if (n > 0)
            st = spx_h5_read_i32(p->file, "/frame/fiber", 1, &n, &p->index, e);
    }
    return st;
}

spx_status spx_merge_read_input(spx_merge_input *p, spx_err *e)
{
    spx_status st = SPX_OK;
    for (int b = 0; b < NBLOCK && st == SPX_OK; b++) {
        char path[32];
        (void)snprintf(path, sizeof path, "/%s", spx_merge_block_name[b]);
        p->has[b] = spx_h5_exists(p->file, path);
        if (p->has[b])
            st = spx_schema_accept(p->file, path, spx_merge_block_name[b], e);
    }
    if (st != SPX_OK)
        return st;
    if (p->has[FRAME] && p->has[SPECTRA])
        return spx_fail_at(e, SPX_EINPUT, p->name, NULL, NULL,
                           "holds both /frame and /spectra: it cannot be seen which to join");
    if (p->has[FRAME]) {
        if (spx_h5_has_attr(p->file, "/frame", "camera") &&
            (st = spx_h5_attr_str(p->file, "/frame", "camera", p->camera, sizeof p->camera, e)) != SPX_OK)
            return st;
        p->narm = 1;
        spx_arm_of_camera(p->camera, p->arms[0].name);
        (void)snprintf(p->arms[0].path, sizeof p->arms[0].path, "/frame");
        if ((st = rows_of(p, "/frame/flux", e)) != SPX_OK)
            return st;
    } else if (p->has[SPECTRA]) {
        char path[PATH_LEN + 8];
        if ((st = read_arms(p, "spectra", e)) != SPX_OK)
            return st;
        (void)snprintf(path, sizeof path, "%s/flux", p->arms[0].path);
        if ((st = rows_of(p, path, e)) != SPX_OK)
            return st;
    } else if (p->has[RVFIT]) {
        if ((st = read_arms(p, "rvfit", e)) != SPX_OK || (st = rows_of(p, "/rvfit/table", e)) != SPX_OK)
            return st;
    } else {
        return spx_fail_at(e, SPX_EINPUT, p->name, NULL, "give extracted frames, spectra or fits",
                           "holds nothing that can be joined (/frame, /spectra or /rvfit)");
    }
    if ((st = spx_cards_read(p->file, p->has[FRAME] ? "/frame/header" : "/spectra/header", &p->header, e)) != SPX_OK)
        return st;
    return read_keys(p, e);
}

/* ---- agreement of inputs ---- */

spx_status spx_merge_same_version(const spx_merge_input *a, const spx_merge_input *b, const char *pa, const char *pb,
                                  spx_err *e)
{
    char va[64], vb[64];
    spx_status st = spx_h5_attr_str(a->file, pa, "version", va, sizeof va, e);
    if (st == SPX_OK)
        st = spx_h5_attr_str(b->file, pb, "version", vb, sizeof vb, e);
    if (st == SPX_OK && strcmp(va, vb) != 0)
        st = spx_fail_at(e, SPX_EINPUT, b->name, pb, "write both with the same version of specpipe",
                         "has schema version %s, but %s has %s", vb, a->name, va);
    return st;
}

spx_status spx_merge_same_attr(const spx_merge_input *a, const spx_merge_input *b, const char *pa, const char *pb,
                               const char *name, spx_err *e)
{
    char va[256] = "", vb[256] = "";
    spx_err none = {0};
    if (spx_h5_has_attr(a->file, pa, name))
        (void)spx_h5_attr_str(a->file, pa, name, va, sizeof va, &none);
    if (spx_h5_has_attr(b->file, pb, name))
        (void)spx_h5_attr_str(b->file, pb, name, vb, sizeof vb, &none);
    if (strcmp(va, vb) == 0)
        return SPX_OK;
    return spx_fail_at(e, SPX_EINPUT, b->name, pb, NULL,
                       "attribute %s is '%s', but '%s' in %s: these spectra do not belong together", name, vb, va,
                       a->name);
}

/* Are the wavelengths of a group a dataset with a row a spectrum? Then *nwave is set, and each row increases. */
static spx_status look_at_rows(const spx_merge_input *p, const char *path, int *per_row, size_t *nwave, spx_err *e)
{
    enum { AT_ONCE = 64 };
    int ndim = 0;
    size_t dims[SPX_H5_MAXDIM];
    spx_status st = spx_h5_shape(p->file, path, &ndim, dims, e);
    *per_row = st == SPX_OK && ndim == 2;
    if (!*per_row)
        return st;
    *nwave = dims[1];
    if (dims[0] != p->nrow)
        return spx_fail_at(e, SPX_EINPUT, p->name, path, NULL, "has %zu rows, but there are %zu spectra", dims[0],
                           p->nrow);
    double *w = spx_alloc2(AT_ONCE, dims[1], sizeof *w, e);
    st = w == NULL ? SPX_EIO : SPX_OK;
    for (size_t r = 0; r < dims[0] && st == SPX_OK; r += AT_ONCE)
        st = spx_wavelength_read_rows(p->file, path, r, dims[0] - r < AT_ONCE ? dims[0] - r : AT_ONCE, dims[1], w, e);
    spx_free(w);
    return st;
}

spx_status spx_merge_same_wavelength(const spx_merge_input *a, const spx_merge_input *b, const char *ga, const char *gb,
                                     size_t *nwave, int *per_row, spx_err *e)
{
    char pa[PATH_LEN + 16], pb[PATH_LEN + 16];
    size_t na = 0, nb = 0;
    double *wa = NULL, *wb = NULL;
    (void)snprintf(pa, sizeof pa, "%s/wavelength", ga);
    (void)snprintf(pb, sizeof pb, "%s/wavelength", gb);
    spx_medium ma = SPX_VACUUM, mb = SPX_VACUUM;
    int fa = 0, fb = 0, ua = 0, ub = 0;
    spx_status st = look_at_rows(b, pb, per_row, &nb, e);
    if (st == SPX_OK && a != b) {
        int ndim = 0;
        size_t dims[SPX_H5_MAXDIM];
        st = spx_h5_shape(a->file, pa, &ndim, dims, e);
        const int rows = ndim == 2;
        na = rows ? dims[1] : 0;
        if (st == SPX_OK && rows != *per_row)
            st = spx_fail_at(e, SPX_EINPUT, b->name, pb, "make both of their spectra in one call of fits2h5",
                             "has %s, but %s has %s", *per_row ? "a grid for each spectrum" : "one grid", a->name,
                             rows ? "a grid for each spectrum" : "one grid");
    } else {
        na = nb;
    }
    if (st == SPX_OK && !*per_row)
        st = spx_wavelength_read(a->file, pa, &na, &wa, e);
    if (st == SPX_OK)
        st = spx_wavelength_read_words(a->file, pa, &ma, &fa, &ua, e);
    if (st == SPX_OK && a != b && !*per_row)
        st = spx_wavelength_read(b->file, pb, &nb, &wb, e);
    if (st == SPX_OK && a != b)
        st = spx_wavelength_read_words(b->file, pb, &mb, &fb, &ub, e);
    if (st == SPX_OK && a != b) {
        if (na != nb)
            st = spx_fail_at(e, SPX_EINPUT, b->name, pb,
                             *per_row ? "make both of their spectra in one call of fits2h5"
                                      : "extract both with the same --wavelength",
                             "has %zu bins, but %s has %zu", nb, a->name, na);
        for (size_t i = 0; st == SPX_OK && i < na && !*per_row; i++)
            /* rounding of the grid's definition may differ, by less than any bin */
            if (!(fabs(wa[i] - wb[i]) <= 1e-9 * fabs(wa[i])))
                st = spx_fail_at(e, SPX_EINPUT, b->name, pb, "extract both with the same --wavelength",
                                 "differs from %s in bin %zu (%.10g, %.10g Angstrom)", a->name, i, wb[i], wa[i]);
        if (st == SPX_OK && ma != mb)
            st = spx_merge_same_attr(a, b, pa, pb, "medium", e);
        if (st == SPX_OK && (fa != fb || ua != ub))
            st = spx_merge_same_attr(a, b, pa, pb, "frame", e);
    }
    *nwave = na;
    spx_free(wa);
    spx_free(wb);
    return st;
}

spx_status spx_merge_same_exposure(const spx_merge_input *a, const spx_merge_input *b, spx_err *e)
{
    static const char *const keys[] = {"EXPID", "NIGHT", "TILEID"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        char va[80] = "", vb[80] = "";
        double xa, xb;
        if (!spx_cards_string(&a->header, keys[i], va, sizeof va) && spx_cards_double(&a->header, keys[i], &xa))
            (void)snprintf(va, sizeof va, "%.15g", xa);
        if (!spx_cards_string(&b->header, keys[i], vb, sizeof vb) && spx_cards_double(&b->header, keys[i], &xb))
            (void)snprintf(vb, sizeof vb, "%.15g", xb);
        if (va[0] != '\0' && vb[0] != '\0' && strcmp(va, vb) != 0)
            return spx_fail_at(e, SPX_EINPUT, b->name, b->has[FRAME] ? "/frame/header" : "/spectra/header", NULL,
                               "is of another exposure (%s %s) than %s (%s): --by rows stacks exposures, and rvs-fit "
                               "--joint target fits those of a star together",
                               keys[i], vb, a->name, va);
    }
    return SPX_OK;
}
