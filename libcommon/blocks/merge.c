#include "blocks/merge.h"

#include <ctype.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/text.h"
#include "blocks/io.h"
#include "h5/h5io.h"
#include "h5/schema.h"
#include "h5/table.h"

enum {
    BLOCK_BYTES = 8 << 20, /* rows copied at one time */
    PATH_LEN = 300,
    FLAG_LEN = 2 * SPX_MAX_ARM * 8, /* MISSING_ARMS: names and blanks */
    MAX_FIBER = 1000000
};

static const char missing_column[] = "MISSING_ARMS";

enum { FRAME, SPECTRA, RVFIT, NBLOCK };
static const char *const block_name[NBLOCK] = {"frame", "spectra", "rvfit"};

typedef struct {
    char name[16]; /* b, r, z */
    char path[PATH_LEN];
} arm;

/* What is known of one input. */
typedef struct {
    hid_t file;
    const char *name;
    int has[NBLOCK];
    size_t nrow;
    char camera[16];
    size_t narm; /* of the block that carries wavelengths: frame or spectra, else rvfit */
    arm arms[SPX_MAX_ARM];
    int64_t *fiber, *target;   /* [nrow] of the fibermap; NULL: no such column */
    int32_t *index;            /* [nrow] /frame/fiber, or NULL */
    char (*flagged)[FLAG_LEN]; /* [nrow] MISSING_ARMS of an earlier merge, or NULL */
    spx_cards header;
} input;

/* Where a row of the product comes from. */
typedef struct {
    size_t part, row; /* part SPX_NO_ROW: from nowhere */
} origin;

/* One group of the product with datasets that have a row a spectrum. */
typedef struct {
    char path[PATH_LEN], arm[16];
    const char *pattern; /* its path in the schema */
    size_t part;         /* CAMERAS: the only input that has it; else SPX_NO_ROW */
    size_t nwave;
    size_t first; /* an input that has it */
} group;

typedef struct {
    size_t group;
    char leaf[64];
    int ndim;
    size_t dims[SPX_H5_MAXDIM]; /* dims[0]: rows of the product */
    int is_float, is_signed;
    size_t size; /* bytes of an element */
    int create;  /* in no input: made of the fill value */
} dataset;

struct spx_merge {
    spx_merge_by by;
    int allow_missing, blocks[NBLOCK];
    size_t npart, nout, nmissing;
    input *part;
    origin *ref;      /* [nout] FIBERS, ROWS */
    size_t **where;   /* [npart][nout] CAMERAS: row of the input or SPX_NO_ROW */
    int64_t *key;     /* [nout] FIBERS: fibre */
    int key_is_index; /* the key is /frame/fiber, not fibermap's FIBER */
    size_t ngroup;
    group *groups;
    size_t ndataset, dataset_room;
    dataset *datasets;
    int model; /* FIBERS: every input has a model image; they are added */
    spx_text left_out;
};

/* ---- small things ---- */

static spx_status left_out(spx_merge *m, const input *p, const char *path, spx_err *e)
{
    return spx_text_add(&m->left_out, e, "%s%s:%s", m->left_out.n > 0 ? "\n" : "", p->name, path);
}

/* Index of an arm of an input, or -1. */
static int find_arm(const input *p, const char *name)
{
    for (size_t i = 0; i < p->narm; i++)
        if (strcmp(p->arms[i].name, name) == 0)
            return (int)i;
    return -1;
}

/* Group of input `part` that goes into group g of the product; 0 when it has none. */
static int source_path(const spx_merge *m, const group *g, size_t part, char *path)
{
    const input *p = &m->part[part];
    if (m->by == SPX_MERGE_CAMERAS && g->part != part)
        return 0;
    if (strncmp(g->path, "/rvfit/", 7) == 0) {
        (void)snprintf(path, PATH_LEN, "%s", g->path);
        return spx_h5_exists(p->file, path);
    }
    int i = find_arm(p, g->arm);
    if (i >= 0)
        (void)snprintf(path, PATH_LEN, "%s", p->arms[i].path);
    return i >= 0;
}

static origin row_origin(const spx_merge *m, const group *g, size_t row)
{
    if (m->by != SPX_MERGE_CAMERAS)
        return m->ref[row];
    size_t r = m->where[g->part][row];
    return (origin){r == SPX_NO_ROW ? SPX_NO_ROW : g->part, r};
}

/* Is a word in a list separated by blanks? */
static int has_word(const char *text, const char *word, size_t len)
{
    while (*text != '\0') {
        size_t n = strcspn(text, " ");
        if (n == len && memcmp(text, word, len) == 0)
            return 1;
        text += n + (text[n] == ' ');
    }
    return 0;
}

/* Does an input know anything about its row? An earlier merge may have put it in without any arm. */
static int row_known(const input *p, size_t row)
{
    if (row == SPX_NO_ROW)
        return 0;
    for (size_t a = 0; a < p->narm && p->flagged != NULL; a++)
        if (!has_word(p->flagged[row], p->arms[a].name, strlen(p->arms[a].name)))
            return 1;
    return p->flagged == NULL || p->narm == 0;
}

static int by_value(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static int64_t *sorted(const int64_t *v, size_t n, spx_err *e)
{
    int64_t *s = spx_alloc(n, sizeof *s, e);
    if (s != NULL && n > 0) {
        memcpy(s, v, n * sizeof *s);
        qsort(s, n, sizeof *s, by_value);
    }
    return s;
}

/* ---- reading what an input is ---- */

static spx_status read_arms(input *p, const char *block, spx_err *e)
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
            st = spx_fail(e, SPX_EINPUT, "%s:%s: more than %d arms, or an arm's name is too long", p->name, root,
                          SPX_MAX_ARM);
            break;
        }
        arm *a = &p->arms[p->narm++];
        (void)snprintf(a->name, sizeof a->name, "%.15s", names[i]);
        (void)snprintf(a->path, sizeof a->path, "%s/%.15s", root, names[i]);
    }
    spx_h5_names_free(n, names);
    if (st == SPX_OK && p->narm == 0 && strcmp(block, "spectra") == 0)
        st = spx_fail(e, SPX_EINPUT, "%s:%s: has no arms", p->name, root);
    return st;
}

static spx_status rows_of(input *p, const char *path, spx_err *e)
{
    int ndim = 0;
    size_t dims[SPX_H5_MAXDIM];
    spx_status st = spx_h5_shape(p->file, path, &ndim, dims, e);
    if (st == SPX_OK && ndim < 1)
        st = spx_fail(e, SPX_EINPUT, "%s:%s: has no rows", p->name, path);
    if (st == SPX_OK)
        p->nrow = dims[0];
    return st;
}

/* A table that has a row a spectrum; MISSING_ARMS apart. */
static spx_status read_table(const input *p, const char *path, spx_table **t, spx_err *e)
{
    spx_status st = spx_table_read(p->file, path, t, e);
    if (st == SPX_OK && *t != NULL && (*t)->nrow != p->nrow)
        st = spx_fail(e, SPX_EINPUT, "%s:%s: has %zu rows, but there are %zu spectra", p->name, path, (*t)->nrow,
                      p->nrow);
    if (st != SPX_OK || *t == NULL || spx_table_find(*t, missing_column) < 0)
        return st;
    spx_table *all = *t, *rest = spx_table_new(all->nrow, e);
    for (size_t i = 0; rest != NULL && e->code == SPX_OK && i < spx_table_ncol(all); i++) {
        char *name = spx_table_name(all, (int)i, e);
        if (name != NULL && strcmp(name, missing_column) != 0)
            (void)spx_table_copy_column(rest, name, all, (int)i, e);
        spx_free(name);
    }
    spx_table_free(all);
    *t = rest;
    return e->code;
}

static spx_status read_keys(input *p, spx_err *e)
{
    spx_table *t = NULL;
    spx_status st = spx_table_read(p->file, "/fibermap", &t, e);
    if (st != SPX_OK)
        return st;
    if (t != NULL && t->nrow != p->nrow)
        st =
            spx_fail(e, SPX_EINPUT, "%s:/fibermap: has %zu rows, but there are %zu spectra", p->name, t->nrow, p->nrow);
    if (st == SPX_OK && t != NULL && spx_table_find(t, "FIBER") >= 0) {
        p->fiber = spx_alloc(p->nrow, sizeof *p->fiber, e);
        st = p->fiber == NULL ? SPX_EIO : spx_table_get_i64(t, "FIBER", p->fiber, e);
    }
    if (st == SPX_OK && t != NULL && spx_table_find(t, "TARGETID") >= 0) {
        p->target = spx_alloc(p->nrow, sizeof *p->target, e);
        st = p->target == NULL ? SPX_EIO : spx_table_get_i64(t, "TARGETID", p->target, e);
    }
    if (st == SPX_OK && t != NULL && spx_table_find(t, missing_column) >= 0) {
        p->flagged = spx_alloc(p->nrow, sizeof *p->flagged, e);
        st = p->flagged == NULL ? SPX_EIO : spx_table_get_str(t, missing_column, FLAG_LEN, p->flagged[0], e);
    }
    if (st == SPX_EINPUT)
        spx_err_context(e, "%s:/fibermap", p->name);
    spx_table_free(t);
    if (st == SPX_OK && spx_h5_exists(p->file, "/frame/fiber")) {
        size_t n = p->nrow;
        if (n > 0)
            st = spx_h5_read_i32(p->file, "/frame/fiber", 1, &n, &p->index, e);
    }
    return st;
}

static spx_status read_input(input *p, spx_err *e)
{
    spx_status st = SPX_OK;
    for (int b = 0; b < NBLOCK && st == SPX_OK; b++) {
        char path[32];
        (void)snprintf(path, sizeof path, "/%s", block_name[b]);
        p->has[b] = spx_h5_exists(p->file, path);
        if (p->has[b])
            st = spx_schema_accept(p->file, path, block_name[b], e);
    }
    if (st != SPX_OK)
        return st;
    if (p->has[FRAME] && p->has[SPECTRA])
        return spx_fail(e, SPX_EINPUT, "%s: holds both /frame and /spectra: it cannot be seen which to join", p->name);
    if (p->has[FRAME]) {
        if (spx_h5_has_attr(p->file, "/frame", "camera") &&
            (st = spx_h5_attr_str(p->file, "/frame", "camera", p->camera, sizeof p->camera, e)) != SPX_OK)
            return st;
        p->narm = 1;
        /* the camera's letter, as everywhere: r0 -> r */
        if (isalpha((unsigned char)p->camera[0]))
            p->arms[0].name[0] = (char)tolower((unsigned char)p->camera[0]);
        else
            (void)snprintf(p->arms[0].name, sizeof p->arms[0].name, "frame");
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
        return spx_fail(e, SPX_EINPUT,
                        "%s: holds nothing that can be joined (/frame, /spectra or /rvfit): give extracted frames, "
                        "spectra or fits",
                        p->name);
    }
    if ((st = spx_cards_read(p->file, p->has[FRAME] ? "/frame/header" : "/spectra/header", &p->header, e)) != SPX_OK)
        return st;
    return read_keys(p, e);
}

/* ---- do the inputs fit together? ---- */

static spx_status same_version(const input *a, const input *b, const char *pa, const char *pb, spx_err *e)
{
    char va[64], vb[64];
    spx_status st = spx_h5_attr_str(a->file, pa, "version", va, sizeof va, e);
    if (st == SPX_OK)
        st = spx_h5_attr_str(b->file, pb, "version", vb, sizeof vb, e);
    if (st == SPX_OK && strcmp(va, vb) != 0)
        st = spx_fail(e, SPX_EINPUT,
                      "%s:%s: has schema version %s, but %s has %s: write both with the same version of specpipe",
                      b->name, pb, vb, a->name, va);
    return st;
}

/* Attributes that have to agree; absent in one only is a difference too. */
static spx_status same_attr(const input *a, const input *b, const char *pa, const char *pb, const char *name,
                            spx_err *e)
{
    char va[256] = "", vb[256] = "";
    spx_err none = {0};
    if (spx_h5_has_attr(a->file, pa, name))
        (void)spx_h5_attr_str(a->file, pa, name, va, sizeof va, &none);
    if (spx_h5_has_attr(b->file, pb, name))
        (void)spx_h5_attr_str(b->file, pb, name, vb, sizeof vb, &none);
    if (strcmp(va, vb) == 0)
        return SPX_OK;
    return spx_fail(e, SPX_EINPUT, "%s:%s: attribute %s is '%s', but '%s' in %s: these spectra do not belong together",
                    b->name, pb, name, vb, va, a->name);
}

static spx_status same_wavelength(const input *a, const input *b, const char *ga, const char *gb, size_t *nwave,
                                  spx_err *e)
{
    char pa[PATH_LEN + 16], pb[PATH_LEN + 16];
    size_t na = 0, nb = 0;
    double *wa = NULL, *wb = NULL;
    (void)snprintf(pa, sizeof pa, "%s/wavelength", ga);
    (void)snprintf(pb, sizeof pb, "%s/wavelength", gb);
    spx_status st = spx_h5_read_f64(a->file, pa, 1, &na, &wa, e);
    if (st == SPX_OK && a != b)
        st = spx_h5_read_f64(b->file, pb, 1, &nb, &wb, e);
    if (st == SPX_OK && a != b) {
        if (na != nb)
            st = spx_fail(e, SPX_EINPUT, "%s:%s: has %zu bins, but %s has %zu: extract both with the same --wavelength",
                          b->name, pb, nb, a->name, na);
        for (size_t i = 0; st == SPX_OK && i < na; i++)
            /* rounding of the grid's definition may differ, a bin may not */
            if (!(fabs(wa[i] - wb[i]) <= 1e-9 * fabs(wa[i])))
                st = spx_fail(e, SPX_EINPUT,
                              "%s:%s: differs from %s in bin %zu (%.10g, %.10g Angstrom): extract both with the same "
                              "--wavelength",
                              b->name, pb, a->name, i, wb[i], wa[i]);
        if (st == SPX_OK && (st = same_attr(a, b, pa, pb, "medium", e)) == SPX_OK)
            st = same_attr(a, b, pa, pb, "frame", e);
    }
    *nwave = na;
    spx_free(wa);
    spx_free(wb);
    return st;
}

/* Header cards that tell one exposure from another. */
static spx_status same_exposure(const input *a, const input *b, spx_err *e)
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
            return spx_fail(e, SPX_EINPUT,
                            "%s:%s: is of another exposure (%s %s) than %s (%s): --by rows stacks exposures", b->name,
                            b->has[FRAME] ? "/frame/header" : "/spectra/header", keys[i], vb, a->name, va);
    }
    return SPX_OK;
}

/* ---- which rows ---- */

typedef struct {
    int64_t key;
    size_t part, row;
} keyed;

static int by_key(const void *a, const void *b)
{
    const keyed *x = a, *y = b;
    if (x->key != y->key)
        return x->key < y->key ? -1 : 1;
    if (x->part != y->part)
        return x->part < y->part ? -1 : 1;
    return (x->row > y->row) - (x->row < y->row);
}

static spx_status total_rows(const spx_merge *m, size_t *n, spx_err *e)
{
    *n = 0;
    for (size_t i = 0; i < m->npart; i++) {
        if (m->part[i].nrow > SIZE_MAX / 64 - *n)
            return spx_fail(e, SPX_EINPUT, "%s: has too many rows", m->part[i].name);
        *n += m->part[i].nrow;
    }
    return SPX_OK;
}

static spx_status plan_fibers(spx_merge *m, const spx_merge_options *opt, spx_err *e)
{
    const input *p0 = &m->part[0];
    int index = 1, fiber = 1;
    for (size_t i = 0; i < m->npart; i++) {
        const input *p = &m->part[i];
        if (!p->has[FRAME])
            return spx_fail(e, SPX_EINPUT, "%s: is no frame of one camera: --by fibers joins frames", p->name);
        if (strcmp(p->camera, p0->camera) != 0)
            return spx_fail(e, SPX_EINPUT,
                            "%s:/frame: is of camera %s, but %s of camera %s: --by cameras joins cameras", p->name,
                            p->camera, p0->name, p0->camera);
        spx_status st = same_exposure(p0, p, e);
        if (st != SPX_OK)
            return st;
        index &= p->index != NULL || p->nrow == 0;
        fiber &= p->fiber != NULL || p->nrow == 0;
    }
    if (!index && !fiber)
        return spx_fail(e, SPX_EINPUT, "%s: has no fibre numbers (/frame/fiber, or FIBER in /fibermap) in every input",
                        p0->name);
    m->key_is_index = index;
    size_t n = 0, k = 0;
    spx_status st = total_rows(m, &n, e);
    keyed *rows = st == SPX_OK ? spx_alloc(n, sizeof *rows, e) : NULL;
    if (rows == NULL)
        return e->code;
    for (size_t i = 0; i < m->npart; i++)
        for (size_t r = 0; r < m->part[i].nrow; r++)
            rows[k++] = (keyed){index ? m->part[i].index[r] : m->part[i].fiber[r], i, r};
    qsort(rows, n, sizeof *rows, by_key);
    for (size_t i = 0; i < n && st == SPX_OK; i++) {
        if (rows[i].key < 0 || rows[i].key >= MAX_FIBER)
            st = spx_fail(e, SPX_EINPUT, "%s: fibre number %lld is out of range", m->part[rows[i].part].name,
                          (long long)rows[i].key);
        else if (i > 0 && rows[i].key == rows[i - 1].key)
            st = spx_fail(e, SPX_EINPUT, "%s:/frame: fibre %lld is in %s already: subsets must not overlap",
                          m->part[rows[i].part].name, (long long)rows[i].key, m->part[rows[i - 1].part].name);
        else if (opt->last > 0 && (rows[i].key < opt->first || rows[i].key >= opt->last))
            st = spx_fail(e, SPX_EINPUT, "%s:/frame: fibre %lld is outside --fibers %ld:%ld",
                          m->part[rows[i].part].name, (long long)rows[i].key, opt->first, opt->last);
    }
    int64_t first = opt->last > 0 ? opt->first : n > 0 ? rows[0].key : 0;
    int64_t end = opt->last > 0 ? opt->last : n > 0 ? rows[n - 1].key + 1 : 0;
    m->nout = m->allow_missing || opt->last > 0 ? (size_t)(end - first) : n;
    if (st == SPX_OK && ((m->ref = spx_alloc(m->nout, sizeof *m->ref, e)) == NULL ||
                         (m->key = spx_alloc(m->nout, sizeof *m->key, e)) == NULL))
        st = SPX_EIO;
    k = 0;
    for (size_t i = 0; i < m->nout && st == SPX_OK; i++) {
        int64_t want = m->nout == n ? rows[i].key : first + (int64_t)i;
        m->key[i] = want;
        m->ref[i] = (origin){SPX_NO_ROW, SPX_NO_ROW};
        if (k < n && rows[k].key == want) {
            m->ref[i] = (origin){rows[k].part, rows[k].row};
            k++;
        } else if (!m->allow_missing) {
            st = spx_fail(e, SPX_EINPUT, "%s:/frame: fibre %lld is in none of the inputs: --allow-missing goes on",
                          p0->name, (long long)want);
        }
    }
    spx_free(rows);
    return st;
}

/* The column that tells which rows belong together: in every input, and no value twice in one. */
static spx_status usable_key(const spx_merge *m, int64_t *const *key, int *ok, spx_err *e)
{
    *ok = 1;
    for (size_t i = 0; i < m->npart && *ok; i++) {
        size_t n = m->part[i].nrow;
        if (key[i] == NULL) {
            *ok = n == 0;
            continue;
        }
        int64_t *s = sorted(key[i], n, e);
        if (s == NULL)
            return SPX_EIO;
        for (size_t r = 1; r < n; r++)
            if (s[r] == s[r - 1])
                *ok = 0;
        spx_free(s);
    }
    return SPX_OK;
}

static spx_status same_targets(const spx_merge *m, spx_err *e)
{
    for (size_t r = 0; r < m->nout; r++) {
        size_t first = SPX_NO_ROW;
        for (size_t i = 0; i < m->npart; i++) {
            size_t row = m->where[i][r];
            if (m->part[i].target == NULL || !row_known(&m->part[i], row))
                continue;
            if (first == SPX_NO_ROW) {
                first = i;
                continue;
            }
            int64_t a = m->part[first].target[m->where[first][r]], b = m->part[i].target[row];
            if (a != b)
                return spx_fail(
                    e, SPX_EINPUT,
                    "%s:/fibermap: row %zu is of target %lld, but %lld in %s: these are different exposures",
                    m->part[i].name, row, (long long)b, (long long)a, m->part[first].name);
        }
    }
    return SPX_OK;
}

/* Rows of the product: the keys of all inputs, fibres ascending, targets in the order in which they are first met. */
static spx_status match_rows(spx_merge *m, int64_t *const *key, const char *what, int ascending, spx_err *e)
{
    size_t n = 0, k = 0;
    spx_status st = total_rows(m, &n, e);
    keyed *rows = st == SPX_OK ? spx_alloc(n, sizeof *rows, e) : NULL;
    keyed *first = rows == NULL ? NULL : spx_alloc(n, sizeof *first, e);
    if (first == NULL) {
        spx_free(rows);
        return e->code;
    }
    for (size_t i = 0; i < m->npart; i++)
        for (size_t r = 0; r < m->part[i].nrow; r++)
            rows[k++] = (keyed){key[i][r], i, r};
    qsort(rows, n, sizeof *rows, by_key);
    /* one entry a key; `key` of it becomes the place in the order wanted */
    size_t nout = 0;
    for (size_t i = 0; i < n; i++)
        if (i == 0 || rows[i].key != rows[i - 1].key) {
            first[nout] = rows[i];
            if (!ascending) /* (part, row) decides: equal keys make by_key() compare those */
                first[nout].key = 0;
            nout++;
        }
    if (!ascending)
        qsort(first, nout, sizeof *first, by_key);
    m->nout = nout;
    m->where = spx_alloc(m->npart, sizeof *m->where, e);
    for (size_t i = 0; m->where != NULL && e->code == SPX_OK && i < m->npart; i++)
        if ((m->where[i] = spx_alloc(nout, sizeof **m->where, e)) != NULL)
            for (size_t r = 0; r < nout; r++)
                m->where[i][r] = SPX_NO_ROW;
    for (size_t r = 0; e->code == SPX_OK && r < nout; r++) {
        keyed want = {key[first[r].part][first[r].row], 0, 0};
        size_t lo = 0, hi = n;
        while (lo < hi) {
            size_t mid = lo + (hi - lo) / 2;
            if (rows[mid].key < want.key)
                lo = mid + 1;
            else
                hi = mid;
        }
        for (; lo < n && rows[lo].key == want.key; lo++)
            m->where[rows[lo].part][r] = rows[lo].row;
        for (size_t i = 0; i < m->npart && !m->allow_missing; i++)
            if (m->where[i][r] == SPX_NO_ROW) {
                spx_fail(e, SPX_EINPUT, "%s: has no row of %s %lld, which %s has: --allow-missing goes on without",
                         m->part[i].name, what, (long long)want.key, m->part[first[r].part].name);
                break;
            }
    }
    spx_free(rows);
    spx_free(first);
    return e->code;
}

static spx_status plan_cameras(spx_merge *m, spx_err *e)
{
    int frames = 1;
    for (size_t i = 0; i < m->npart; i++) {
        const input *p = &m->part[i];
        if (!p->has[FRAME] && !p->has[SPECTRA])
            return spx_fail(e, SPX_EINPUT, "%s: holds neither /frame nor /spectra: --by cameras joins spectra",
                            p->name);
        if (p->has[FRAME] && !isalpha((unsigned char)p->camera[0]))
            return spx_fail(e, SPX_EINPUT,
                            "%s:/frame: has no attribute camera: its arm is not known, so cameras cannot be joined",
                            p->name);
        frames &= p->has[FRAME];
        for (size_t k = 0; k < i; k++) {
            const input *q = &m->part[k];
            for (size_t a = 0; a < p->narm; a++)
                if (find_arm(q, p->arms[a].name) >= 0)
                    return spx_fail(e, SPX_EINPUT,
                                    "%s:%s: arm %s is in %s already: --by fibers joins parts of one camera", p->name,
                                    p->arms[a].path, p->arms[a].name, q->name);
            if (p->has[FRAME] && q->has[FRAME] && strcmp(p->camera + 1, q->camera + 1) != 0)
                return spx_fail(e, SPX_EINPUT, "%s:/frame: camera %s belongs to another spectrograph than %s of %s",
                                p->name, p->camera, q->camera, q->name);
            spx_status st = same_exposure(q, p, e);
            if (st != SPX_OK)
                return st;
        }
    }
    int64_t **fiber = spx_alloc(m->npart, sizeof *fiber, e), **target = spx_alloc(m->npart, sizeof *target, e);
    int64_t **index = spx_alloc(m->npart, sizeof *index, e);
    spx_status st = fiber == NULL || target == NULL || index == NULL ? SPX_EIO : SPX_OK;
    for (size_t i = 0; i < m->npart && st == SPX_OK; i++) {
        const input *p = &m->part[i];
        fiber[i] = p->fiber;
        target[i] = p->target;
        if (p->index != NULL) {
            if ((index[i] = spx_alloc(p->nrow, sizeof **index, e)) == NULL)
                st = SPX_EIO;
            for (size_t r = 0; st == SPX_OK && r < p->nrow; r++)
                index[i][r] = p->index[r];
        }
    }
    struct {
        int64_t **key;
        const char *what;
        int ascending;
    } order[3] = {{fiber, "fibre", 1}, {index, "fibre", 1}, {target, "target", 0}};
    if (!frames) { /* coadded spectra: a target is a row, fibres may come twice */
        order[0].key = target;
        order[0].what = "target";
        order[0].ascending = 0;
        order[1].key = fiber;
        order[2].key = index;
        order[2].what = "fibre";
        order[2].ascending = 1;
    }
    int done = 0;
    for (size_t k = 0; k < 3 && st == SPX_OK && !done; k++) {
        st = usable_key(m, order[k].key, &done, e);
        if (st == SPX_OK && done)
            st = match_rows(m, order[k].key, order[k].what, order[k].ascending, e);
    }
    if (st == SPX_OK && !done)
        st =
            spx_fail(e, SPX_EINPUT,
                     "%s:/fibermap: rows of the inputs cannot be matched: neither FIBER nor TARGETID is in every input "
                     "and different in every row",
                     m->part[0].name);
    if (st == SPX_OK)
        st = same_targets(m, e);
    for (size_t i = 0; index != NULL && i < m->npart; i++)
        spx_free(index[i]);
    spx_free(index);
    spx_free(fiber);
    spx_free(target);
    return st;
}

static spx_status plan_rows(spx_merge *m, spx_err *e)
{
    const input *p0 = &m->part[0];
    for (size_t i = 1; i < m->npart; i++)
        for (int b = 0; b < NBLOCK; b++)
            if (m->part[i].has[b] != p0->has[b]) {
                const input *without = m->part[i].has[b] ? p0 : &m->part[i];
                return spx_fail(e, SPX_EINPUT, "%s: has no /%s, but %s has: rows are joined of the same blocks",
                                without->name, block_name[b], (without == p0 ? &m->part[i] : p0)->name);
            }
    spx_status st = total_rows(m, &m->nout, e);
    if (st != SPX_OK || (m->ref = spx_alloc(m->nout, sizeof *m->ref, e)) == NULL)
        return e->code;
    for (size_t i = 0, k = 0; i < m->npart; i++)
        for (size_t r = 0; r < m->part[i].nrow; r++)
            m->ref[k++] = (origin){i, r};
    return SPX_OK;
}

/* What is joined, from the content. */
static spx_status recognise(spx_merge *m, spx_err *e)
{
    size_t nframe = 0, shared_arms = 0, same_camera = 0;
    for (size_t i = 0; i < m->npart; i++) {
        const input *p = &m->part[i];
        nframe += (size_t)p->has[FRAME];
        same_camera += strcmp(p->camera, m->part[0].camera) == 0;
        for (size_t k = 0; k < i; k++)
            for (size_t a = 0; a < p->narm; a++)
                shared_arms += find_arm(&m->part[k], p->arms[a].name) >= 0;
        if (p->has[RVFIT])
            shared_arms++;
    }
    if (nframe == m->npart && same_camera == m->npart)
        m->by = SPX_MERGE_FIBERS;
    else if (shared_arms == 0 && m->npart > 1)
        m->by = SPX_MERGE_CAMERAS;
    else if (nframe == 0)
        m->by = SPX_MERGE_ROWS;
    else
        return spx_fail(e, SPX_EUSAGE,
                        "%s and %s: it cannot be seen how to join these: join the parts of each camera first, then the "
                        "cameras, or give --by",
                        m->part[0].name, m->part[m->npart - 1].name);
    return SPX_OK;
}

/* ---- what is written ---- */

static group *add_group(spx_merge *m, const char *path, const char *pattern, const char *name, spx_err *e)
{
    group *more = spx_alloc(m->ngroup + 1, sizeof *more, e);
    if (more == NULL)
        return NULL;
    if (m->ngroup > 0)
        memcpy(more, m->groups, m->ngroup * sizeof *more);
    spx_free(m->groups);
    m->groups = more;
    group *g = &more[m->ngroup++];
    (void)snprintf(g->path, sizeof g->path, "%s", path);
    (void)snprintf(g->arm, sizeof g->arm, "%s", name);
    g->pattern = pattern;
    g->part = SPX_NO_ROW;
    return g;
}

/* Group of the product at `path`, made when it is not there yet. */
static group *need_group(spx_merge *m, const char *path, const char *pattern, const char *name, spx_err *e)
{
    for (size_t i = 0; i < m->ngroup; i++)
        if (strcmp(m->groups[i].path, path) == 0)
            return &m->groups[i];
    return add_group(m, path, pattern, name, e);
}

static spx_status plan_groups(spx_merge *m, spx_err *e)
{
    char path[PATH_LEN];
    for (size_t i = 0; i < m->npart; i++) {
        const input *p = &m->part[i];
        if (m->blocks[FRAME] && need_group(m, "/frame", "/frame", m->part[0].arms[0].name, e) == NULL)
            return SPX_EIO;
        if (m->blocks[FRAME] && find_arm(p, m->groups[0].arm) < 0)
            return spx_fail(e, SPX_EINPUT,
                            "%s:/frame: is of camera %s, but %s of camera %s: frames of one arm make rows", p->name,
                            p->camera, m->part[0].name, m->part[0].camera);
        for (size_t a = 0; a < p->narm && m->blocks[SPECTRA]; a++) {
            (void)snprintf(path, sizeof path, "/spectra/%s", p->arms[a].name);
            group *g = need_group(m, path, "/spectra/<arm>", p->arms[a].name, e);
            if (g == NULL)
                return SPX_EIO;
            if (m->by == SPX_MERGE_CAMERAS)
                g->part = i;
        }
        size_t n = 0;
        char **names = NULL;
        spx_status st = m->blocks[RVFIT] ? spx_h5_list(p->file, "/rvfit", &n, &names, e) : SPX_OK;
        for (size_t k = 0; k < n && st == SPX_OK; k++) {
            (void)snprintf(path, sizeof path, "/rvfit/%.200s/exposure_model", names[k]);
            if (spx_h5_exists(p->file, path))
                st = left_out(m, p, path, e);
            (void)snprintf(path, sizeof path, "/rvfit/%.200s/model", names[k]);
            if (strlen(names[k]) >= sizeof m->groups[0].arm || !spx_h5_exists(p->file, path) || st != SPX_OK)
                continue;
            (void)snprintf(path, sizeof path, "/rvfit/%.15s", names[k]);
            if (need_group(m, path, "/rvfit/<arm>", names[k], e) == NULL)
                st = SPX_EIO;
        }
        spx_h5_names_free(n, names);
        if (st != SPX_OK)
            return st;
    }
    return SPX_OK;
}

/* Type and shape of one input's dataset, joined to what is known of it. */
static spx_status look_at(dataset *d, const input *p, const char *path, int mask, int seen, spx_err *e)
{
    int ndim = 0;
    size_t dims[SPX_H5_MAXDIM], bytes = 1;
    hid_t set = spx_h5_open(p->file, path, e);
    if (set < 0)
        return e->code;
    hid_t type = H5Dget_type(set);
    H5T_class_t class = H5Tget_class(type);
    size_t size = H5Tget_size(type);
    int is_signed = class == H5T_INTEGER && H5Tget_sign(type) == H5T_SGN_2;
    spx_status st = spx_h5_shape(p->file, path, &ndim, dims, e);
    bytes = size;
    for (int i = 0; i < ndim && st == SPX_OK; i++)
        st = spx_mul(bytes, dims[i], &bytes, e);
    if (st == SPX_OK && spx_h5_overclaims(set, bytes))
        st = spx_fail(e, SPX_EINPUT, "%s:%s: claims more data than the file holds", p->name, path);
    (void)H5Tclose(type);
    (void)H5Dclose(set);
    if (st != SPX_OK)
        return st;
    if ((class != H5T_FLOAT && class != H5T_INTEGER) || size > 8 || (mask && (class != H5T_INTEGER || size != 4)))
        return spx_fail(e, SPX_EINPUT, "%s:%s: has another type of values than %s should have", p->name, path,
                        mask ? "a mask (32 bits)" : "this dataset");
    if (ndim < 1 || dims[0] != p->nrow)
        return spx_fail(e, SPX_EINPUT, "%s:%s: has %zu rows, but there are %zu spectra", p->name, path,
                        ndim < 1 ? 0 : dims[0], p->nrow);
    int is_float = class == H5T_FLOAT;
    if (!seen) {
        d->ndim = ndim;
        memcpy(d->dims, dims, sizeof dims);
        d->is_float = is_float;
        d->is_signed = is_signed;
        d->size = size;
        return SPX_OK;
    }
    if (ndim != d->ndim || memcmp(dims + 1, d->dims + 1, (size_t)(ndim - 1) * sizeof *dims) != 0)
        return spx_fail(e, SPX_EINPUT, "%s:%s: has another shape than in the inputs before it", p->name, path);
    if (is_float != d->is_float || (!is_float && size != d->size))
        return spx_fail(e, SPX_EINPUT, "%s:%s: has another type of values than in the inputs before it", p->name, path);
    if (size > d->size)
        d->size = size;
    return SPX_OK;
}

static dataset *add_dataset(spx_merge *m, size_t g, const char *leaf, spx_err *e)
{
    if (m->ndataset == m->dataset_room) {
        size_t room = 2 * m->dataset_room + 16;
        dataset *more = spx_alloc(room, sizeof *more, e);
        if (more == NULL)
            return NULL;
        if (m->ndataset > 0)
            memcpy(more, m->datasets, m->ndataset * sizeof *more);
        spx_free(m->datasets);
        m->datasets = more;
        m->dataset_room = room;
    }
    dataset *d = &m->datasets[m->ndataset++];
    memset(d, 0, sizeof *d);
    d->group = g;
    (void)snprintf(d->leaf, sizeof d->leaf, "%s", leaf);
    return d;
}

/* One dataset of a group: which inputs have it, and in what form. */
static spx_status plan_dataset(spx_merge *m, size_t gi, const spx_item *it, const char *leaf, int missing, spx_err *e)
{
    const group *g = &m->groups[gi];
    const int mask = strcmp(leaf, "mask") == 0;
    size_t with = SPX_NO_ROW, without = SPX_NO_ROW;
    dataset found = {0};
    for (size_t i = 0; i < m->npart; i++) {
        char base[PATH_LEN], path[PATH_LEN + 80], first[PATH_LEN + 80];
        if (!source_path(m, g, i, base))
            continue;
        (void)snprintf(path, sizeof path, "%s/%s", base, leaf);
        if (!spx_h5_exists(m->part[i].file, path)) {
            without = i;
            if (it->required)
                return spx_fail(e, SPX_EINPUT, "%s:%s: is missing: is the file complete? (h5check tells)",
                                m->part[i].name, path);
            continue;
        }
        spx_status st = look_at(&found, &m->part[i], path, mask, with != SPX_NO_ROW, e);
        if (st == SPX_OK && with != SPX_NO_ROW && source_path(m, g, with, base)) {
            (void)snprintf(first, sizeof first, "%s/%s", base, leaf);
            st = same_attr(&m->part[with], &m->part[i], first, path, "units", e);
        }
        if (st != SPX_OK)
            return st;
        if (it->ndim == found.ndim && strcmp(it->dim[it->ndim - 1], "nwave") == 0 &&
            found.dims[found.ndim - 1] != g->nwave)
            return spx_fail(e, SPX_EINPUT, "%s:%s: has %zu bins, but there are %zu wavelengths", m->part[i].name, path,
                            found.dims[found.ndim - 1], g->nwave);
        if (with == SPX_NO_ROW)
            with = i;
    }
    if (with == SPX_NO_ROW && !(mask && missing))
        return SPX_OK;
    if (with != SPX_NO_ROW && without != SPX_NO_ROW && !mask)
        return spx_fail(e, SPX_EINPUT, "%s:%s/%s: is missing, but %s has it: make the inputs with the same options",
                        m->part[without].name, g->path, leaf, m->part[with].name);
    dataset *d = add_dataset(m, gi, leaf, e);
    if (d == NULL)
        return SPX_EIO;
    found.group = d->group;
    memcpy(found.leaf, d->leaf, sizeof found.leaf);
    *d = found;
    if (with == SPX_NO_ROW) {
        d->create = 1;
        d->ndim = 2;
        d->dims[1] = g->nwave;
        d->size = 4;
    }
    d->dims[0] = m->nout;
    return SPX_OK;
}

/* Does row r of the product lack this group? */
static int row_missing(const spx_merge *m, const group *g, const char *has, size_t r)
{
    origin o = row_origin(m, g, r);
    return o.part == SPX_NO_ROW || !has[o.part];
}

static spx_status plan_group(spx_merge *m, size_t gi, spx_err *e)
{
    group *g = &m->groups[gi];
    char *has = spx_alloc(m->npart, 1, e), base[PATH_LEN], first[PATH_LEN];
    spx_status st = has == NULL ? SPX_EIO : SPX_OK;
    g->first = SPX_NO_ROW;
    for (size_t i = 0; i < m->npart && st == SPX_OK; i++) {
        has[i] = (char)source_path(m, g, i, base);
        if (!has[i])
            continue;
        if (g->first == SPX_NO_ROW) {
            g->first = i;
            memcpy(first, base, sizeof first);
        }
        st = same_wavelength(&m->part[g->first], &m->part[i], first, base, &g->nwave, e);
    }
    int missing = 0;
    for (size_t r = 0; r < m->nout && st == SPX_OK; r++)
        missing |= row_missing(m, g, has, r);
    for (size_t i = 0; i < m->npart && st == SPX_OK && !m->allow_missing && m->by == SPX_MERGE_ROWS; i++)
        if (!has[i])
            st = spx_fail(e, SPX_EINPUT, "%s:%s: is missing, but %s has it: --allow-missing goes on without",
                          m->part[i].name, g->path, m->part[g->first].name);
    spx_free(has);
    size_t n = 0, len = strlen(g->pattern);
    const spx_item *it = spx_schema_items(&n);
    for (size_t i = 0; i < n && st == SPX_OK; i++)
        if (it[i].kind == SPX_ITEM_DATASET && it[i].ndim > 0 && strcmp(it[i].dim[0], "nspec") == 0 &&
            strncmp(it[i].path, g->pattern, len) == 0 && it[i].path[len] == '/' &&
            strchr(it[i].path + len + 1, '/') == NULL && it[i].path[len + 1] != '<')
            st = plan_dataset(m, gi, &it[i], it[i].path + len + 1, missing, e);
    return st;
}

/* Names the objects of an input that do not travel. */
static spx_status note_left_out(spx_merge *m, const input *p, spx_err *e)
{
    static const char *const kept[] = {"frame", "spectra", "rvfit", "fibermap", "scores", "exp_fibermap", "provenance"};
    size_t n = 0;
    char **names = NULL, path[PATH_LEN];
    spx_status st = spx_h5_list(p->file, "/", &n, &names, e);
    for (size_t i = 0; i < n && st == SPX_OK; i++) {
        int known = 0;
        for (size_t k = 0; k < sizeof kept / sizeof *kept; k++)
            known |= strcmp(names[i], kept[k]) == 0;
        if (strcmp(names[i], "rvfit") == 0 && !m->blocks[RVFIT])
            known = 0;
        (void)snprintf(path, sizeof path, "/%.250s", names[i]);
        H5O_info_t info; /* a type that attributes share is no content */
        if (!known && H5Oget_info_by_name2(p->file, path, &info, H5O_INFO_BASIC, H5P_DEFAULT) >= 0 &&
            info.type == H5O_TYPE_NAMED_DATATYPE)
            known = 1;
        if (!known)
            st = left_out(m, p, path, e);
    }
    spx_h5_names_free(n, names);
    /* inside the groups: what the schema does not give a row a spectrum */
    for (size_t a = 0; a < p->narm && st == SPX_OK; a++) {
        if ((st = spx_h5_list(p->file, p->arms[a].path, &n, &names, e)) != SPX_OK)
            return st;
        for (size_t i = 0; i < n && st == SPX_OK; i++) {
            int known = strcmp(names[i], "wavelength") == 0 || strcmp(names[i], "header") == 0 ||
                        (m->model && strcmp(names[i], "model") == 0) ||
                        (m->by == SPX_MERGE_CAMERAS && strcmp(names[i], "fiber") == 0);
            for (size_t k = 0; k < m->ndataset; k++)
                known |= strcmp(m->datasets[k].leaf, names[i]) == 0 &&
                         strcmp(m->groups[m->datasets[k].group].arm, p->arms[a].name) == 0;
            (void)snprintf(path, sizeof path, "%s/%.200s", p->arms[a].path, names[i]);
            if (!known)
                st = left_out(m, p, path, e);
        }
        spx_h5_names_free(n, names);
    }
    return st;
}

/* Model images of fibre subsets add up when every input has one of the same size. */
static spx_status plan_model(spx_merge *m, spx_err *e)
{
    size_t dims[SPX_H5_MAXDIM], want[2] = {0, 0};
    int ndim;
    m->model = 0;
    if (m->by != SPX_MERGE_FIBERS)
        return SPX_OK;
    for (size_t i = 0; i < m->npart; i++) {
        if (!spx_h5_exists(m->part[i].file, "/frame/model"))
            return SPX_OK;
        spx_status st = spx_h5_shape(m->part[i].file, "/frame/model", &ndim, dims, e);
        if (st != SPX_OK)
            return st;
        if (ndim != 2 || (i > 0 && (dims[0] != want[0] || dims[1] != want[1])))
            return spx_fail(e, SPX_EINPUT, "%s:/frame/model: has another shape than in %s", m->part[i].name,
                            m->part[0].name);
        want[0] = dims[0];
        want[1] = dims[1];
    }
    m->model = 1;
    return SPX_OK;
}

/* Add a word to a list separated by blanks, once. */
static void add_word(char text[FLAG_LEN], const char *word, size_t len)
{
    size_t used = strlen(text);
    if (has_word(text, word, len))
        return;
    if (used + len + 2 < FLAG_LEN)
        (void)snprintf(text + used, FLAG_LEN - used, "%s%.*s", used > 0 ? " " : "", (int)len, word);
}

/* Arms that row r of the product lacks, separated by blanks; those that an earlier merge flagged too. */
static void missing_text(const spx_merge *m, const char *const *has, size_t r, char text[FLAG_LEN])
{
    text[0] = '\0';
    for (size_t g = 0; g < m->ngroup; g++) {
        origin o = row_origin(m, &m->groups[g], r);
        if (o.part == SPX_NO_ROW || !has[g][o.part])
            add_word(text, m->groups[g].arm, strlen(m->groups[g].arm));
    }
    for (size_t i = 0; i < m->npart; i++) {
        size_t row = m->where != NULL ? m->where[i][r] : m->ref[r].part == i ? m->ref[r].row : SPX_NO_ROW;
        if (row == SPX_NO_ROW || m->part[i].flagged == NULL)
            continue;
        for (const char *p = m->part[i].flagged[row]; *p != '\0'; p += *p == ' ') {
            size_t n = strcspn(p, " ");
            if (n > 0)
                add_word(text, p, n);
            p += n;
        }
    }
}

/* [nout] texts for MISSING_ARMS; *nmissing counts rows that are not complete. */
static spx_status missing_texts(const spx_merge *m, char (**out)[FLAG_LEN], size_t *nmissing, spx_err *e)
{
    char **has = spx_alloc(m->ngroup, sizeof *has, e), base[PATH_LEN];
    spx_status st = has == NULL ? SPX_EIO : SPX_OK;
    for (size_t g = 0; g < m->ngroup && st == SPX_OK; g++) {
        if ((has[g] = spx_alloc(m->npart, 1, e)) == NULL)
            st = SPX_EIO;
        for (size_t i = 0; i < m->npart && st == SPX_OK; i++)
            has[g][i] = (char)source_path(m, &m->groups[g], i, base);
    }
    *nmissing = 0;
    if (st == SPX_OK && (*out = spx_alloc(m->nout, sizeof **out, e)) == NULL)
        st = SPX_EIO;
    for (size_t r = 0; r < m->nout && st == SPX_OK; r++) {
        missing_text(m, (const char *const *)has, r, (*out)[r]);
        *nmissing += (*out)[r][0] != '\0';
    }
    for (size_t g = 0; has != NULL && g < m->ngroup; g++)
        spx_free(has[g]);
    spx_free(has);
    return st;
}

spx_status spx_merge_plan(size_t n, const spx_merge_part *part, const spx_merge_options *opt, spx_merge **out,
                          spx_err *e)
{
    *out = NULL;
    spx_merge *m = spx_alloc(1, sizeof *m, e);
    if (m == NULL)
        return SPX_EIO;
    spx_status st = n > 0 ? SPX_OK : spx_fail(e, SPX_EINPUT, "no input is left to join");
    m->by = opt->by;
    m->allow_missing = opt->allow_missing;
    if (st == SPX_OK && (m->part = spx_alloc(n, sizeof *m->part, e)) == NULL)
        st = SPX_EIO;
    for (size_t i = 0; i < n && st == SPX_OK; i++) {
        m->part[i].file = part[i].file;
        m->part[i].name = part[i].name;
        m->npart = i + 1;
        st = read_input(&m->part[i], e);
        for (int b = 0; b < NBLOCK && st == SPX_OK && i > 0; b++) {
            char path[32];
            (void)snprintf(path, sizeof path, "/%s", block_name[b]);
            if (m->part[i].has[b] && m->part[0].has[b])
                st = same_version(&m->part[0], &m->part[i], path, path, e);
        }
    }
    if (st == SPX_OK && m->by == SPX_MERGE_AUTO)
        st = recognise(m, e);
    if (st == SPX_OK)
        st = m->by == SPX_MERGE_FIBERS    ? plan_fibers(m, opt, e)
             : m->by == SPX_MERGE_CAMERAS ? plan_cameras(m, e)
                                          : plan_rows(m, e);
    if (st == SPX_OK) {
        m->blocks[FRAME] = m->part[0].has[FRAME] && m->by != SPX_MERGE_CAMERAS;
        m->blocks[SPECTRA] = m->by == SPX_MERGE_CAMERAS || m->part[0].has[SPECTRA];
        m->blocks[RVFIT] = m->part[0].has[RVFIT] && m->by == SPX_MERGE_ROWS;
        st = plan_groups(m, e);
    }
    for (size_t g = 0; g < m->ngroup && st == SPX_OK; g++)
        st = plan_group(m, g, e);
    if (st == SPX_OK)
        st = plan_model(m, e);
    for (size_t i = 0; i < m->npart && st == SPX_OK; i++)
        st = note_left_out(m, &m->part[i], e);
    char(*text)[FLAG_LEN] = NULL;
    if (st == SPX_OK)
        st = missing_texts(m, &text, &m->nmissing, e);
    spx_free(text);
    if (st != SPX_OK) {
        spx_merge_free(m);
        return st;
    }
    *out = m;
    return SPX_OK;
}

void spx_merge_free(spx_merge *m)
{
    if (m == NULL)
        return;
    for (size_t i = 0; i < m->npart; i++) {
        spx_free(m->part[i].fiber);
        spx_free(m->part[i].target);
        spx_free(m->part[i].index);
        spx_free(m->part[i].flagged);
        spx_cards_free(&m->part[i].header);
        if (m->where != NULL)
            spx_free(m->where[i]);
    }
    spx_free(m->where);
    spx_free(m->part);
    spx_free(m->ref);
    spx_free(m->key);
    spx_free(m->groups);
    spx_free(m->datasets);
    spx_text_free(&m->left_out);
    spx_free(m);
}

spx_merge_by spx_merge_kind(const spx_merge *m)
{
    return m->by;
}

const char *spx_merge_product(const spx_merge *m)
{
    return m->blocks[RVFIT] ? "rvfit" : m->blocks[SPECTRA] ? "spectra" : "frame";
}

size_t spx_merge_nrow(const spx_merge *m)
{
    return m->nout;
}

size_t spx_merge_nmissing(const spx_merge *m)
{
    return m->nmissing;
}

const char *spx_merge_left_out(const spx_merge *m)
{
    return m->left_out.s;
}

size_t spx_merge_steps(const spx_merge *m)
{
    return m->ndataset;
}

/* ---- writing ---- */

/* Attributes of an object that describe its content: text and numbers, HDF5's own bookkeeping apart. */
typedef struct {
    hid_t from, to;
    const char *frompath, *topath;
    spx_err *e;
} attr_copy;

static herr_t copy_attr(hid_t obj, const char *name, const H5A_info_t *info, void *data)
{
    static const char *const own[] = {"CLASS", "NAME", "DIMENSION_LIST", "REFERENCE_LIST", "type", "version"};
    attr_copy *c = data;
    (void)info;
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        if (strcmp(name, own[i]) == 0)
            return 0;
    hid_t a = H5Aopen(obj, name, H5P_DEFAULT), type = a < 0 ? a : H5Aget_type(a), space = a < 0 ? a : H5Aget_space(a);
    H5T_class_t class = type < 0 ? H5T_NO_CLASS : H5Tget_class(type);
    hssize_t n = space < 0 ? -1 : H5Sget_simple_extent_npoints(space);
    spx_status st = SPX_OK;
    if (class == H5T_STRING && n == 1) {
        char text[4096];
        spx_err none = {0};
        if (spx_h5_attr_str(c->from, c->frompath, name, text, sizeof text, &none) == SPX_OK)
            st = spx_h5_set_str(c->to, c->topath, name, text, c->e);
    } else if ((class == H5T_INTEGER || class == H5T_FLOAT) && n > 0 && n <= 1024 && H5Tget_size(type) <= 8) {
        char value[1024 * 8];
        if (H5Aexists_by_name(c->to, c->topath, name, H5P_DEFAULT) > 0)
            (void)H5Adelete_by_name(c->to, c->topath, name, H5P_DEFAULT);
        hid_t b = H5Aread(a, type, value) < 0
                      ? H5I_INVALID_HID
                      : H5Acreate_by_name(c->to, c->topath, name, type, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
        if (b < 0 || H5Awrite(b, type, value) < 0)
            st = spx_fail(c->e, SPX_EIO, "%s: attribute %s cannot be written", c->topath, name);
        if (b >= 0)
            (void)H5Aclose(b);
    }
    if (space >= 0)
        (void)H5Sclose(space);
    if (type >= 0)
        (void)H5Tclose(type);
    if (a >= 0)
        (void)H5Aclose(a);
    return st == SPX_OK ? 0 : -1;
}

static spx_status copy_attrs(hid_t from, const char *frompath, hid_t to, const char *topath, spx_err *e)
{
    attr_copy c = {from, to, frompath, topath, e};
    hsize_t idx = 0;
    if (H5Aiterate_by_name(from, frompath, H5_INDEX_NAME, H5_ITER_INC, &idx, copy_attr, &c, H5P_DEFAULT) < 0)
        return spx_fail(e, SPX_EIO, "%s: attributes cannot be copied", topath);
    return SPX_OK;
}

static hid_t native_type(int is_float, int is_signed, size_t size)
{
    if (is_float)
        return size > 4 ? H5T_NATIVE_DOUBLE : H5T_NATIVE_FLOAT;
    switch (size) {
    case 1:
        return is_signed ? H5T_NATIVE_INT8 : H5T_NATIVE_UINT8;
    case 2:
        return is_signed ? H5T_NATIVE_INT16 : H5T_NATIVE_UINT16;
    case 4:
        return is_signed ? H5T_NATIVE_INT32 : H5T_NATIVE_UINT32;
    default:
        return is_signed ? H5T_NATIVE_INT64 : H5T_NATIVE_UINT64;
    }
}

/* A row without information. */
static void fill_row(const dataset *d, char *row, size_t nelem)
{
    const int masked = strcmp(d->leaf, "pixmask_fraction") == 0;
    const uint32_t nodata = SPX_NODATA;
    memset(row, 0, nelem * d->size);
    for (size_t i = 0; i < nelem && strcmp(d->leaf, "mask") == 0; i++)
        memcpy(row + i * 4, &nodata, 4);
    for (size_t i = 0; i < nelem && masked && d->is_float; i++) {
        const double one = 1;
        const float onef = 1;
        memcpy(row + i * d->size, d->size > 4 ? (const void *)&one : (const void *)&onef, d->size);
    }
}

/* Values of an integer dataset are read in its own signedness and kept as bits: HDF5 would clip those of a mask. */
static spx_status read_type(const input *p, const char *path, const dataset *d, hid_t *mem, spx_err *e)
{
    *mem = native_type(d->is_float, d->is_signed, d->size);
    if (d->is_float)
        return SPX_OK;
    hid_t set = spx_h5_open(p->file, path, e), type = set < 0 ? set : H5Dget_type(set);
    if (type >= 0)
        *mem = native_type(0, H5Tget_sign(type) == H5T_SGN_2, d->size);
    if (type >= 0)
        (void)H5Tclose(type);
    if (set >= 0)
        (void)H5Dclose(set);
    return e->code;
}

static spx_status write_dataset(const spx_merge *m, const dataset *d, hid_t out, spx_err *e)
{
    const group *g = &m->groups[d->group];
    char path[PATH_LEN + 80], wave[PATH_LEN + 16];
    size_t nelem = 1, rowbytes = 0;
    (void)snprintf(path, sizeof path, "%s/%s", g->path, d->leaf);
    (void)snprintf(wave, sizeof wave, "%s/wavelength", g->path);
    spx_status st = SPX_OK;
    for (int i = 1; i < d->ndim && st == SPX_OK; i++)
        st = spx_mul(nelem, d->dims[i], &nelem, e);
    if (st == SPX_OK)
        st = spx_mul(nelem, d->size, &rowbytes, e);
    if (st != SPX_OK)
        return st;
    hid_t type = native_type(d->is_float, d->is_signed, d->size);
    if ((st = spx_h5_create(out, path, type, d->ndim, d->dims, e)) != SPX_OK)
        return st;
    if (!d->create) {
        for (size_t i = 0; i < m->npart; i++) {
            char base[PATH_LEN], from[PATH_LEN + 80];
            if (!source_path(m, g, i, base))
                continue;
            (void)snprintf(from, sizeof from, "%s/%s", base, d->leaf);
            if (!spx_h5_exists(m->part[i].file, from))
                continue;
            if ((st = copy_attrs(m->part[i].file, from, out, path, e)) != SPX_OK)
                return st;
            break;
        }
    }
    size_t block = BLOCK_BYTES / (rowbytes + 1) + 1;
    if (block > m->nout)
        block = m->nout;
    char *buf = spx_alloc2(block, rowbytes, 1, e);
    if (buf == NULL)
        return SPX_EIO;
    for (size_t r0 = 0; r0 < m->nout && st == SPX_OK; r0 += block) {
        size_t n = m->nout - r0 < block ? m->nout - r0 : block;
        for (size_t r = 0; r < n && st == SPX_OK;) {
            origin o = row_origin(m, g, r0 + r);
            char base[PATH_LEN], from[PATH_LEN + 80] = "";
            size_t run = 1;
            if (o.part != SPX_NO_ROW) {
                if (source_path(m, g, o.part, base))
                    (void)snprintf(from, sizeof from, "%s/%s", base, d->leaf);
                while (r + run < n) {
                    origin next = row_origin(m, g, r0 + r + run);
                    if (next.part != o.part || next.row != o.row + run)
                        break;
                    run++;
                }
            }
            int there = from[0] != '\0' && spx_h5_exists(m->part[o.part].file, from);
            hid_t mem = H5I_INVALID_HID;
            if (there && (st = read_type(&m->part[o.part], from, d, &mem, e)) == SPX_OK)
                st = spx_h5_read_rows(m->part[o.part].file, from, mem, o.row, run, buf + r * rowbytes, e);
            for (size_t k = 0; k < run && !there; k++) {
                if (from[0] != '\0') /* an input without a mask: nothing is masked */
                    memset(buf + (r + k) * rowbytes, 0, rowbytes);
                else
                    fill_row(d, buf + (r + k) * rowbytes, nelem);
            }
            /* the fibre's number is known even of a row that is not there */
            if (st == SPX_OK && !there && strcmp(d->leaf, "fiber") == 0 && d->size == 4 && m->key != NULL)
                for (size_t k = 0; k < run; k++) {
                    int32_t f = (int32_t)m->key[r0 + r + k];
                    memcpy(buf + (r + k) * rowbytes, &f, 4);
                }
            r += run;
        }
        if (st == SPX_OK)
            st = spx_h5_write_rows(out, path, type, r0, n, buf, e);
    }
    spx_free(buf);
    if (st == SPX_OK && d->ndim > 1 && d->dims[d->ndim - 1] == g->nwave)
        st = spx_h5_attach_scale(out, path, (unsigned)(d->ndim - 1), wave, "wavelength", e);
    return st;
}

static spx_status write_wavelength(const spx_merge *m, const group *g, hid_t out, spx_err *e)
{
    const input *p = &m->part[g->first];
    char base[PATH_LEN], from[PATH_LEN + 16], to[PATH_LEN + 16];
    size_t n = 0;
    double *w = NULL;
    if (!source_path(m, g, g->first, base))
        return spx_fail(e, SPX_EBUG, "%s: no input has it", g->path);
    (void)snprintf(from, sizeof from, "%s/wavelength", base);
    (void)snprintf(to, sizeof to, "%s/wavelength", g->path);
    spx_status st = spx_h5_group(out, g->path, e);
    if (st == SPX_OK)
        st = copy_attrs(p->file, base, out, g->path, e);
    /* the camera's name, where cameras of several spectrographs were stacked, is the arm's */
    for (size_t i = 0; i < m->npart && st == SPX_OK && m->blocks[FRAME]; i++)
        if (strcmp(m->part[i].camera, p->camera) != 0)
            st = spx_h5_set_str(out, g->path, "camera", g->arm, e);
    if (st == SPX_OK)
        st = spx_h5_read_f64(p->file, from, 1, &n, &w, e);
    if (st == SPX_OK)
        st = spx_h5_write(out, to, H5T_NATIVE_DOUBLE, 1, &n, w, e);
    if (st == SPX_OK)
        st = copy_attrs(p->file, from, out, to, e);
    spx_free(w);
    if (st == SPX_OK && m->by == SPX_MERGE_CAMERAS) {
        spx_cards own = {0};
        (void)snprintf(from, sizeof from, "%s/header", base);
        (void)snprintf(to, sizeof to, "%s/header", g->path);
        st = spx_cards_read(p->file, from, &own, e);
        if (st == SPX_OK)
            st = spx_cards_write(out, to, &own, e);
        spx_cards_free(&own);
    } else if (st == SPX_OK && strncmp(g->path, "/spectra/", 9) == 0) {
        /* an arm's header says what is true of all rows only when there is one input */
        (void)snprintf(from, sizeof from, "%s/header", base);
        (void)snprintf(to, sizeof to, "%s/header", g->path);
        spx_cards own = {0};
        if (m->npart == 1)
            st = spx_cards_read(p->file, from, &own, e);
        if (st == SPX_OK)
            st = spx_cards_write(out, to, &own, e);
        spx_cards_free(&own);
    }
    return st;
}

/* Cards that all inputs have, to the letter. */
static spx_status write_header(const spx_merge *m, hid_t out, spx_err *e)
{
    spx_cards h = {0};
    const spx_cards *a = &m->part[0].header;
    spx_status st = SPX_OK;
    for (size_t i = 0; i < a->n && st == SPX_OK; i++) {
        int all = 1;
        for (size_t k = 1; k < m->npart && all; k++) {
            const spx_cards *b = &m->part[k].header;
            size_t j = 0;
            while (j < b->n && memcmp(a->cards + 80 * i, b->cards + 80 * j, 80) != 0)
                j++;
            all = j < b->n;
        }
        char card[81];
        memcpy(card, a->cards + 80 * i, 80);
        card[80] = '\0';
        if (all)
            st = spx_cards_append(&h, card, e);
    }
    if (st == SPX_OK)
        st = spx_cards_write(out, m->blocks[FRAME] ? "/frame/header" : "/spectra/header", &h, e);
    spx_cards_free(&h);
    return st;
}

static spx_status write_model(const spx_merge *m, hid_t out, spx_err *e)
{
    size_t dims[SPX_H5_MAXDIM], bytes;
    int ndim;
    spx_status st = spx_h5_shape(m->part[0].file, "/frame/model", &ndim, dims, e);
    hid_t set = st == SPX_OK ? spx_h5_open(m->part[0].file, "/frame/model", e) : H5I_INVALID_HID;
    if (set >= 0) {
        if (spx_mul(dims[0], dims[1], &bytes, e) == SPX_OK && spx_h5_overclaims(set, bytes))
            st = spx_fail(e, SPX_EINPUT, "%s:/frame/model: claims more data than the file holds", m->part[0].name);
        (void)H5Dclose(set);
    }
    if (e->code != SPX_OK || (st = spx_h5_create(out, "/frame/model", H5T_NATIVE_FLOAT, 2, dims, e)) != SPX_OK)
        return e->code;
    size_t block = BLOCK_BYTES / (dims[1] * sizeof(float) + 1) + 1;
    float *sum = spx_alloc2(block, dims[1], sizeof *sum, e), *one = spx_alloc2(block, dims[1], sizeof *one, e);
    for (size_t r = 0; r < dims[0] && e->code == SPX_OK && one != NULL; r += block) {
        size_t n = dims[0] - r < block ? dims[0] - r : block;
        memset(sum, 0, n * dims[1] * sizeof *sum);
        for (size_t i = 0; i < m->npart && e->code == SPX_OK; i++)
            if (spx_h5_read_rows(m->part[i].file, "/frame/model", H5T_NATIVE_FLOAT, r, n, one, e) == SPX_OK)
                for (size_t k = 0; k < n * dims[1]; k++)
                    sum[k] += one[k];
        if (e->code == SPX_OK)
            (void)spx_h5_write_rows(out, "/frame/model", H5T_NATIVE_FLOAT, r, n, sum, e);
    }
    spx_free(sum);
    spx_free(one);
    return e->code;
}

/* ---- tables ---- */

/* Rows of inputs [lo, hi), one after the other. Halves are joined, so that each row is moved log(n) times. */
static spx_table *stack(const spx_merge *m, const char *path, size_t lo, size_t hi, int one_a_row, spx_err *e)
{
    spx_table *t = NULL;
    if (hi - lo == 1) {
        if ((one_a_row ? read_table(&m->part[lo], path, &t, e) : spx_table_read(m->part[lo].file, path, &t, e)) !=
            SPX_OK) {
            spx_table_free(t);
            return NULL;
        }
        if (t == NULL)
            spx_fail(e, SPX_EINPUT, "%s:%s: is missing, but other inputs have it", m->part[lo].name, path);
        return t;
    }
    size_t mid = lo + (hi - lo) / 2;
    spx_table *a = stack(m, path, lo, mid, one_a_row, e), *b = a == NULL ? NULL : stack(m, path, mid, hi, one_a_row, e);
    if (b != NULL && (t = spx_table_append(a, b, e)) == NULL && e->code == SPX_EINPUT)
        spx_err_context(e, "%s:%s: does not fit to %s", m->part[mid].name, path, m->part[lo].name);
    spx_table_free(a);
    spx_table_free(b);
    return t;
}

static int any_has(const spx_merge *m, const char *path)
{
    for (size_t i = 0; i < m->npart; i++)
        if (spx_h5_exists(m->part[i].file, path))
            return 1;
    return 0;
}

/* FIBERS, ROWS: the rows of the product, in its order. */
static spx_table *stacked_rows(const spx_merge *m, const char *path, spx_err *e)
{
    spx_table *all = stack(m, path, 0, m->npart, 1, e), *t = NULL;
    size_t *row = all == NULL ? NULL : spx_alloc(m->nout, sizeof *row, e);
    size_t *base = row == NULL ? NULL : spx_alloc(m->npart, sizeof *base, e);
    for (size_t i = 1; base != NULL && i < m->npart; i++)
        base[i] = base[i - 1] + m->part[i - 1].nrow;
    for (size_t r = 0; base != NULL && r < m->nout; r++)
        row[r] = m->ref[r].part == SPX_NO_ROW ? SPX_NO_ROW : base[m->ref[r].part] + m->ref[r].row;
    if (base != NULL)
        t = spx_table_take(all, m->nout, row, e);
    spx_table_free(all);
    spx_free(row);
    spx_free(base);
    return t;
}

/* Columns of one camera's scores get the arm's letter, as in DESI's files, unless they have it. */
static spx_table *scores_of_arm(spx_table *t, const char *name, spx_err *e)
{
    spx_table *s = spx_table_new(t->nrow, e);
    char suffix[20] = "_";
    for (size_t i = 0; i < 16 && name[i] != '\0'; i++)
        suffix[i + 1] = (char)toupper((unsigned char)name[i]);
    for (size_t i = 0; s != NULL && e->code == SPX_OK && i < spx_table_ncol(t); i++) {
        char *col = spx_table_name(t, (int)i, e);
        size_t n = col == NULL ? 0 : strlen(col), k = strlen(suffix);
        int keep = col != NULL && (strcmp(col, "TARGETID") == 0 || strcmp(col, "FIBER") == 0 ||
                                   (n > k && strcmp(col + n - k, suffix) == 0));
        char *to = col == NULL ? NULL : spx_alloc(n + k + 1, 1, e);
        if (to != NULL) {
            (void)snprintf(to, n + k + 1, "%s%s", col, keep ? "" : suffix);
            (void)spx_table_copy_column(s, to, t, (int)i, e);
        }
        spx_free(to);
        spx_free(col);
    }
    if (e->code != SPX_OK) {
        spx_table_free(s);
        s = NULL;
    }
    return s;
}

/* CAMERAS: columns of all inputs, rows matched. */
static spx_table *joined_columns(const spx_merge *m, const char *path, spx_err *e)
{
    const int scores = strcmp(path, "/scores") == 0;
    spx_table *out = NULL;
    char *have = spx_alloc(m->nout, 1, e), *have_b = have == NULL ? NULL : spx_alloc(m->nout, 1, e);
    for (size_t i = 0; have_b != NULL && e->code == SPX_OK && i < m->npart; i++) {
        const input *p = &m->part[i];
        spx_table *t = NULL, *taken = NULL;
        char suffix[SPX_MAX_ARM + 2] = "_";
        for (size_t a = 0; a < p->narm; a++)
            suffix[a + 1] = (char)toupper((unsigned char)p->arms[a].name[0]);
        if (read_table(p, path, &t, e) == SPX_OK && t != NULL && scores && p->has[FRAME]) {
            spx_table *named = scores_of_arm(t, p->arms[0].name, e);
            spx_table_free(t);
            t = named;
        }
        if (e->code == SPX_OK && t != NULL)
            taken = spx_table_take(t, m->nout, m->where[i], e);
        for (size_t r = 0; r < m->nout; r++)
            have_b[r] = (char)row_known(p, m->where[i][r]);
        if (taken != NULL && out == NULL) {
            out = taken;
            taken = NULL;
        } else if (taken != NULL && spx_table_fill(out, have, taken, have_b, suffix, e) != SPX_OK) {
            if (e->code == SPX_EINPUT)
                spx_err_context(e, "%s:%s", p->name, path);
        }
        for (size_t r = 0; r < m->nout && t != NULL; r++)
            have[r] = (char)(have[r] | have_b[r]);
        spx_table_free(taken);
        spx_table_free(t);
    }
    spx_free(have);
    spx_free(have_b);
    if (e->code != SPX_OK) {
        spx_table_free(out);
        out = NULL;
    }
    return out;
}

/* Keys of rows that came from nowhere, and MISSING_ARMS. */
static spx_status finish_fibermap(const spx_merge *m, spx_table **fm, spx_err *e)
{
    char(*text)[FLAG_LEN] = NULL;
    size_t nmissing = 0, width = 1;
    spx_status st = missing_texts(m, &text, &nmissing, e);
    if (st == SPX_OK && *fm == NULL && (nmissing > 0 || m->by == SPX_MERGE_CAMERAS)) {
        /* fibre numbers survive even where there was no fibermap */
        int32_t *fiber = spx_alloc(m->nout, sizeof *fiber, e);
        int known = fiber != NULL;
        for (size_t r = 0; r < m->nout && known; r++) {
            if (m->key != NULL) {
                fiber[r] = (int32_t)m->key[r];
                continue;
            }
            known = 0;
            for (size_t i = 0; i < m->npart && !known && m->where != NULL; i++)
                if (m->where[i][r] != SPX_NO_ROW && m->part[i].index != NULL) {
                    fiber[r] = m->part[i].index[m->where[i][r]];
                    known = 1;
                }
        }
        if (fiber != NULL && (*fm = spx_table_new(m->nout, e)) != NULL && known)
            (void)spx_table_add(*fm, "FIBER", H5T_NATIVE_INT32, NULL, fiber, e);
        spx_free(fiber);
        st = e->code;
    }
    if (st == SPX_OK && m->by == SPX_MERGE_FIBERS && *fm != NULL && nmissing > 0) {
        /* FIBER counts all fibres of the instrument, /frame/fiber those of the camera: a fixed distance */
        int64_t distance = 0;
        int fixed = !m->key_is_index, first = 1;
        for (size_t r = 0; r < m->nout && m->key_is_index; r++) {
            const origin *o = &m->ref[r];
            if (o->part == SPX_NO_ROW || m->part[o->part].fiber == NULL)
                continue;
            int64_t d = m->part[o->part].fiber[o->row] - m->key[r];
            fixed = first || (fixed && d == distance);
            distance = d;
            first = 0;
        }
        for (size_t r = 0; r < m->nout && st == SPX_OK; r++) {
            if (m->ref[r].part != SPX_NO_ROW)
                continue;
            if (spx_table_find(*fm, "FIBER") >= 0 && m->part[0].fiber != NULL)
                st = spx_table_set_i64(*fm, "FIBER", r, fixed ? m->key[r] + distance : -1, e);
            if (st == SPX_OK && spx_table_find(*fm, "TARGETID") >= 0)
                st = spx_table_set_i64(*fm, "TARGETID", r, -1, e);
        }
    }
    for (size_t r = 0; r < m->nout && st == SPX_OK; r++)
        width = strlen(text[r]) > width ? strlen(text[r]) : width;
    if (st == SPX_OK && *fm != NULL && nmissing > 0) {
        char *cells = spx_alloc2(m->nout, width, 1, e);
        for (size_t r = 0; r < m->nout && cells != NULL; r++)
            memcpy(cells + r * width, text[r], strlen(text[r]));
        if (cells != NULL)
            (void)spx_table_add_strings(*fm, missing_column, width, cells, e);
        spx_free(cells);
        st = e->code;
    }
    spx_free(text);
    return st;
}

static spx_status write_table(const spx_merge *m, const char *path, hid_t out, spx_err *e)
{
    const int fibermap = strcmp(path, "/fibermap") == 0;
    spx_table *t = NULL;
    if (any_has(m, path)) {
        if (strcmp(path, "/exp_fibermap") == 0 || strcmp(path, "/rvfit/exposures") == 0)
            t = m->by == SPX_MERGE_CAMERAS ? NULL : stack(m, path, 0, m->npart, 0, e);
        else
            t = m->by == SPX_MERGE_CAMERAS ? joined_columns(m, path, e) : stacked_rows(m, path, e);
    }
    if (e->code == SPX_OK && fibermap)
        (void)finish_fibermap(m, &t, e);
    if (e->code == SPX_OK && t != NULL && spx_table_ncol(t) > 0)
        (void)spx_table_write(out, path, t, e);
    spx_table_free(t);
    return e->code;
}

/* CAMERAS: exposures that went into the spectra are the same in every input, so they are taken from one. */
static spx_status write_exposures(const spx_merge *m, hid_t out, spx_err *e)
{
    for (size_t i = 0; i < m->npart; i++) {
        if (!spx_h5_exists(m->part[i].file, "/exp_fibermap"))
            continue;
        spx_table *t = NULL;
        if (spx_table_read(m->part[i].file, "/exp_fibermap", &t, e) == SPX_OK)
            (void)spx_table_write(out, "/exp_fibermap", t, e);
        spx_table_free(t);
        break;
    }
    return e->code;
}

spx_status spx_merge_write(const spx_merge *m, hid_t out, spx_progress *progress, spx_err *e)
{
    spx_status st = SPX_OK;
    for (int b = 0; b < NBLOCK && st == SPX_OK; b++) {
        char path[32];
        (void)snprintf(path, sizeof path, "/%s", block_name[b]);
        if (m->blocks[b])
            st = spx_h5_group(out, path, e);
    }
    for (size_t i = 0; i < m->ngroup && st == SPX_OK; i++)
        st = write_wavelength(m, &m->groups[i], out, e);
    for (size_t i = 0; i < m->ndataset && st == SPX_OK; i++) {
        st = write_dataset(m, &m->datasets[i], out, e);
        spx_progress_step(progress, 1);
    }
    if (st == SPX_OK && m->model)
        st = write_model(m, out, e);
    if (st == SPX_OK && !(m->blocks[RVFIT] && !m->blocks[FRAME] && !m->blocks[SPECTRA]))
        st = write_header(m, out, e);
    if (st == SPX_OK && m->blocks[RVFIT])
        st = write_table(m, "/rvfit/table", out, e);
    if (st == SPX_OK && m->blocks[RVFIT])
        st = write_table(m, "/rvfit/exposures", out, e);
    if (st == SPX_OK)
        st = write_table(m, "/fibermap", out, e);
    if (st == SPX_OK)
        st = write_table(m, "/scores", out, e);
    if (st == SPX_OK)
        st = m->by == SPX_MERGE_CAMERAS ? write_exposures(m, out, e) : write_table(m, "/exp_fibermap", out, e);
    return st;
}
