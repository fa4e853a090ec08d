/* Writes the product of h5merge: datasets in chunks of rows, headers, tables. */
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "h5/attr.h"
#include "h5/gather.h"
#include "h5/object.h"
#include "h5/read.h"
#include "h5/schema.h"
#include "h5/write.h"
#include "merge/internal.h"
#include "products/cards_h5.h"
#include "products/wavelength_h5.h"

enum { BLOCK_BYTES = 8 << 20 }; /* size of a chunk of rows */

/* Attributes of an object that describe its content. */
static spx_status copy_attrs(hid_t from, const char *frompath, hid_t to, const char *topath, spx_err *e)
{
    static const char *const own[] = {"type", "version", NULL};
    return spx_h5_copy_attrs(from, frompath, to, topath, own, e);
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

/* Fills a row without information. */
static void fill_row(const spx_merge_dataset *d, char *row, size_t nelem)
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

/* Memory type of an integer dataset, with its own signedness, so that bits are kept: HDF5 would clip those of a
 * mask. */
static spx_status read_type(const spx_merge_input *p, const char *path, const spx_merge_dataset *d, hid_t *mem,
                            spx_err *e)
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

/* Reads `run` rows from `row` on of a dataset of an input, `nelem` values each: by threads, or as HDF5 reads them. */
static spx_status read_run(const spx_merge_input *p, const char *path, const spx_merge_dataset *d, size_t nelem,
                           size_t row, size_t run, char *to, spx_err *e)
{
    hid_t mem = H5I_INVALID_HID;
    int done = 0;
    spx_status st = read_type(p, path, d, &mem, e);
    spx_h5_move *m = st == SPX_OK ? spx_alloc_unset(run, 1, sizeof *m, e) : NULL;
    if (m == NULL)
        return e->code;
    for (size_t i = 0; i < run; i++)
        m[i] = (spx_h5_move){row + i, i};
    st = spx_h5_gather(p->file, path, mem, &(spx_h5_row){1, nelem, 0, nelem}, run, m, to, &done, NULL, e);
    spx_free(m);
    return st == SPX_OK && !done ? spx_h5_read_rows(p->file, path, mem, row, run, to, e) : st;
}

/* State of the checks of a group's values. */
typedef struct {
    spx_merge_bins bad;
    spx_merge_sums sums;
    spx_merge_repairs *repairs;
} checks;

/* Flux at bins that ivar calls bad, after it was written. */
static spx_status repair_flux(const spx_merge *m, const spx_merge_dataset *ivar, size_t from, const checks *c,
                              hid_t out, spx_err *e)
{
    const spx_merge_group *g = &m->groups[ivar->group];
    char path[PATH_LEN + 80];
    spx_status st = SPX_OK;
    (void)snprintf(path, sizeof path, "%s/flux", g->path);
    double *row = from < c->bad.n ? spx_alloc(g->nwave, sizeof *row, e) : NULL;
    if (row == NULL || !spx_h5_exists(out, path))
        from = c->bad.n;
    for (size_t i = from; i < c->bad.n && st == SPX_OK;) {
        const size_t r = c->bad.bin[i].row;
        st = spx_h5_read_rows(out, path, H5T_NATIVE_DOUBLE, r, 1, row, e);
        for (; i < c->bad.n && c->bad.bin[i].row == r; i++)
            row[c->bad.bin[i].bin] = 0;
        if (st == SPX_OK)
            st = spx_h5_write_rows(out, path, H5T_NATIVE_DOUBLE, r, 1, row, e);
    }
    spx_free(row);
    return e->code;
}

/* Medium and frame of a group's wavelengths, as the definition wants them. */
static spx_status write_words(const spx_merge *m, const spx_merge_group *g, hid_t out, spx_err *e)
{
    const spx_merge_input *p = &m->part[g->first];
    char base[PATH_LEN], from[PATH_LEN + 16], to[PATH_LEN + 16];
    spx_medium medium = SPX_VACUUM;
    int barycentric = 0, unknown = 0;
    if (!spx_merge_source_path(m, g, g->first, base))
        return spx_fail_at(e, SPX_EBUG, NULL, g->path, NULL, "no input has it");
    (void)snprintf(from, sizeof from, "%s/wavelength", base);
    (void)snprintf(to, sizeof to, "%s/wavelength", g->path);
    spx_status st = spx_wavelength_read_words(p->file, from, &medium, &barycentric, &unknown, e);
    if (st == SPX_OK)
        st = spx_wavelength_write_medium(out, to, medium, e);
    return st == SPX_OK ? spx_wavelength_write_frame(out, to, barycentric, unknown, e) : st;
}

static spx_status write_dataset(const spx_merge *m, const spx_merge_dataset *d, hid_t out, checks *c, spx_err *e)
{
    /* light, or a model of it: two rows never have the same */
    const int unique = !m->allow_repeated && (strcmp(d->leaf, "flux") == 0 || strcmp(d->leaf, "model") == 0);
    const size_t known = c->bad.n;
    const spx_merge_group *g = &m->groups[d->group];
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
            if (!spx_merge_source_path(m, g, i, base))
                continue;
            (void)snprintf(from, sizeof from, "%s/%s", base, d->leaf);
            if (!spx_h5_exists(m->part[i].file, from))
                continue;
            /* spx_h5_create() writes the definition's, also of bits of which only masks or only names are there */
            const spx_item *it = spx_schema_find(path);
            const int has = it != NULL && !it->raw && it->units[0] != '\0';
            long bits, names;
            spx_h5_count_flags(m->part[i].file, from, &bits, &names);
            if (bits >= 0 && names >= 0 && bits != names)
                return spx_fail_at(e, SPX_EINPUT, m->part[i].name, from, NULL,
                                   "has %ld bits in flag_masks, but %ld names in flag_meanings", bits, names);
            const char *except[4] = {NULL};
            size_t n = 0;
            if (has)
                except[n++] = "units";
            if (bits < 0 || names < 0) {
                except[n++] = "flag_masks";
                except[n++] = "flag_meanings";
            }
            if ((st = spx_h5_copy_attrs(m->part[i].file, from, out, path, except, e)) != SPX_OK)
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
            spx_merge_origin o = spx_merge_row_origin(m, g, r0 + r);
            char base[PATH_LEN], from[PATH_LEN + 80] = "";
            size_t run = 1;
            if (o.part != SPX_NO_ROW) {
                if (spx_merge_source_path(m, g, o.part, base))
                    (void)snprintf(from, sizeof from, "%s/%s", base, d->leaf);
                while (r + run < n) {
                    spx_merge_origin next = spx_merge_row_origin(m, g, r0 + r + run);
                    if (next.part != o.part || next.row != o.row + run)
                        break;
                    run++;
                }
            }
            int there = from[0] != '\0' && spx_h5_exists(m->part[o.part].file, from);
            if (there)
                st = read_run(&m->part[o.part], from, d, nelem, o.row, run, buf + r * rowbytes, e);
            for (size_t k = 0; k < run && !there; k++) {
                if (from[0] != '\0') /* an input without a mask: all values are good */
                    memset(buf + (r + k) * rowbytes, 0, rowbytes);
                else
                    fill_row(d, buf + (r + k) * rowbytes, nelem);
            }
            /* the fibre's number is known even of a missing row */
            if (st == SPX_OK && !there && strcmp(d->leaf, "fiber") == 0 && d->size == 4 && m->key != NULL)
                for (size_t k = 0; k < run; k++) {
                    int32_t f = (int32_t)m->key[r0 + r + k];
                    memcpy(buf + (r + k) * rowbytes, &f, 4);
                }
            r += run;
        }
        if (st == SPX_OK)
            st = spx_merge_repair(m, d, r0, n, nelem, buf, &c->bad, c->repairs, e);
        if (st == SPX_OK && unique)
            spx_merge_add_sums(r0, n, rowbytes, buf, &c->sums);
        if (st == SPX_OK)
            st = spx_h5_write_rows(out, path, type, r0, n, buf, e);
    }
    spx_free(buf);
    if (st == SPX_OK && strcmp(d->leaf, "ivar") == 0)
        st = repair_flux(m, d, known, c, out, e);
    if (st == SPX_OK && unique)
        st = spx_merge_check_sums(m, d, &c->sums, e);
    if (st == SPX_OK && strcmp(d->leaf, "wavelength") == 0) /* with a grid for each row */
        st = write_words(m, g, out, e);
    else if (st == SPX_OK && !g->per_row && d->ndim > 1 && d->dims[d->ndim - 1] == g->nwave)
        st = spx_h5_attach_scale(out, path, (unsigned)(d->ndim - 1), wave, "wavelength", e);
    return st;
}

static spx_status write_wavelength(const spx_merge *m, const spx_merge_group *g, hid_t out, spx_err *e)
{
    const spx_merge_input *p = &m->part[g->first];
    char base[PATH_LEN], from[PATH_LEN + 16], to[PATH_LEN + 16];
    size_t n = 0;
    double *w = NULL;
    if (!spx_merge_source_path(m, g, g->first, base))
        return spx_fail_at(e, SPX_EBUG, NULL, g->path, NULL, "no input has it");
    (void)snprintf(from, sizeof from, "%s/wavelength", base);
    (void)snprintf(to, sizeof to, "%s/wavelength", g->path);
    spx_status st = spx_h5_group(out, g->path, e);
    if (st == SPX_OK)
        st = copy_attrs(p->file, base, out, g->path, e);
    /* CAMERA is the arm's name where cameras of several spectrographs are joined */
    for (size_t i = 0; i < m->npart && st == SPX_OK && m->blocks[FRAME]; i++)
        if (strcmp(m->part[i].camera, p->camera) != 0)
            st = spx_h5_set_str(out, g->path, "camera", g->arm, e);
    static const char *const words[] = {"units", "medium", "frame", NULL}; /* as the definition wants them */
    if (st == SPX_OK && !g->per_row)
        st = spx_wavelength_read(p->file, from, &n, &w, e);
    if (st == SPX_OK && !g->per_row)
        st = spx_h5_write(out, to, H5T_NATIVE_DOUBLE, 1, &n, w, e);
    if (st == SPX_OK && !g->per_row)
        st = spx_h5_copy_attrs(p->file, from, out, to, words, e);
    if (st == SPX_OK && !g->per_row)
        st = write_words(m, g, out, e);
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
        /* an arm's header applies to all rows only when it has one input */
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

/* Writes the cards that are identical in all inputs. */
static spx_status write_header(const spx_merge *m, hid_t out, spx_err *e)
{
    spx_cards h = {0};
    spx_status st = spx_cards_copy(&h, &m->part[0].header, e);
    for (size_t k = 1; k < m->npart && st == SPX_OK; k++)
        spx_cards_keep_common(&h, &m->part[k].header);
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
            st = spx_fail_at(e, SPX_EINPUT, m->part[0].name, "/frame/model", NULL,
                             "claims more data than the file holds");
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

/* Appends the rows of inputs [lo, hi) in order, by halves, so that each row is moved log(n) times. */
static spx_table *stack(const spx_merge *m, const char *path, size_t lo, size_t hi, int one_a_row, spx_err *e)
{
    spx_table *t = NULL;
    if (hi - lo == 1) {
        if ((one_a_row ? spx_merge_read_table(&m->part[lo], path, &t, e)
                       : spx_table_read(m->part[lo].file, path, &t, e)) != SPX_OK) {
            spx_table_free(t);
            return NULL;
        }
        if (t == NULL)
            spx_fail_at(e, SPX_EINPUT, m->part[lo].name, path, NULL, "is missing, but other inputs have it");
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

/* FIBERS, ROWS: table with the rows of the product, in order. */
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
        t = spx_table_subset(all, m->nout, row, e);
    spx_table_free(all);
    spx_free(row);
    spx_free(base);
    return t;
}

/* Adds the arm's name to columns of one camera's scores that lack it, as in DESI's files. */
static spx_table *scores_of_arm(spx_table *t, const char *name, spx_err *e)
{
    spx_table *s = spx_table_new(t->nrow, e);
    char suffix[SPX_ARM_NAME + 1] = "_";
    spx_arm_upper(name, suffix + 1);
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

/* CAMERAS: table with the columns of all inputs, rows matched. */
static spx_table *joined_columns(const spx_merge *m, const char *path, spx_err *e)
{
    const int scores = strcmp(path, "/scores") == 0;
    spx_table *out = NULL;
    char *have = spx_alloc(m->nout, 1, e), *have_b = have == NULL ? NULL : spx_alloc(m->nout, 1, e);
    for (size_t i = 0; have_b != NULL && e->code == SPX_OK && i < m->npart; i++) {
        const spx_merge_input *p = &m->part[i];
        spx_table *t = NULL, *taken = NULL;
        char suffix[SPX_MAX_ARM * SPX_ARM_NAME + 2] = "_";
        for (size_t a = 0; a < p->narm; a++)
            spx_arm_upper(p->arms[a].name, suffix + strlen(suffix));
        if (spx_merge_read_table(p, path, &t, e) == SPX_OK && t != NULL && scores && p->has[FRAME]) {
            spx_table *named = scores_of_arm(t, p->arms[0].name, e);
            spx_table_free(t);
            t = named;
        }
        if (e->code == SPX_OK && t != NULL)
            taken = spx_table_subset(t, m->nout, m->where[i], e);
        for (size_t r = 0; r < m->nout; r++)
            have_b[r] = (char)spx_merge_row_known(p, m->where[i][r]);
        if (taken != NULL && out == NULL) {
            out = taken;
            taken = NULL;
        } else if (taken != NULL && spx_table_fill(out, have, taken, have_b, suffix, e) != SPX_OK) {
            if (e->code == SPX_EINPUT)
                spx_err_at(e, p->name, path);
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

/* Sets keys of rows without a source, and MISSING_ARMS. */
static spx_status finish_fibermap(const spx_merge *m, spx_table **fm, spx_err *e)
{
    char(*text)[FLAG_LEN] = NULL;
    size_t nmissing = 0, width = 1;
    spx_status st = spx_merge_missing_texts(m, &text, &nmissing, e);
    if (st == SPX_OK && *fm == NULL && (nmissing > 0 || m->by == SPX_MERGE_CAMERAS)) {
        /* fibre numbers are kept even without a fibermap */
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
        /* FIBER counts fibres of the instrument, /frame/fiber those of the camera: they differ by a constant */
        int64_t distance = 0;
        int fixed = !m->key_is_index, first = 1;
        for (size_t r = 0; r < m->nout && m->key_is_index; r++) {
            const spx_merge_origin *o = &m->ref[r];
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
            (void)spx_table_add_strings(*fm, spx_merge_missing_column, width, cells, e);
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

/* CAMERAS: the exposures coadded into the spectra are the same in every input, and are copied from one. */
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

spx_status spx_merge_write(const spx_merge *m, hid_t out, spx_progress *progress, spx_merge_repairs *repairs,
                           spx_err *e)
{
    checks c = {.repairs = repairs};
    c.sums.row = spx_alloc(m->nout, sizeof *c.sums.row, e);
    spx_status st = c.sums.row == NULL ? SPX_EIO : SPX_OK;
    for (int b = 0; b < NBLOCK && st == SPX_OK; b++) {
        char path[32];
        (void)snprintf(path, sizeof path, "/%s", spx_merge_block_name[b]);
        if (m->blocks[b])
            st = spx_h5_group(out, path, e);
    }
    for (size_t i = 0; i < m->ngroup && st == SPX_OK; i++)
        st = write_wavelength(m, &m->groups[i], out, e);
    for (size_t i = 0; i < m->ndataset && st == SPX_OK; i++) {
        if (i > 0 && m->datasets[i].group != m->datasets[i - 1].group)
            c.bad.n = 0;
        st = write_dataset(m, &m->datasets[i], out, &c, e);
        spx_progress_step(progress, 1);
    }
    spx_free(c.bad.bin);
    spx_free(c.sums.row);
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
