/* Stores FITS files in HDF5 without loss, and restores them (convert/hdf5.h). */
#include "convert/hdf5.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "convert/table_h5.h"
#include "convert/types_h5.h"
#include "fits/values.h"
#include "h5/attr.h"
#include "h5/object.h"
#include "h5/read.h"
#include "h5/table.h"
#include "h5/write.h"

enum { PATH = 400, CARD = 80 };

static const char *const kind_name[] = {"image", "tiled", "bintable", "table", "other"};

/* ---- names ---- */

/* Replaces characters that need quoting in a shell or an HDF5 path. */
static void plain_name(char *s)
{
    for (; *s; s++)
        if (!isalnum((unsigned char)*s) && strchr("_-+.", *s) == NULL)
            *s = '_';
}

/* Name /fits/<file>: base name without .gz, .fits, .fit, .fts. */
static spx_status file_group(hid_t file, const char *name, char group[PATH], spx_err *e)
{
    static const char *const suffix[] = {".gz", ".fz", ".fits", ".fit", ".fts"};
    const char *slash = strrchr(name, '/');
    char base[128];
    snprintf(base, sizeof base, "%.100s",
             strcmp(name, "standard input") == 0 ? "stdin"
             : slash != NULL                     ? slash + 1
                                                 : name);
    for (size_t i = 0; i < sizeof suffix / sizeof *suffix; i++) {
        size_t n = strlen(base), m = strlen(suffix[i]);
        if (n > m && strcmp(base + n - m, suffix[i]) == 0)
            base[n - m] = 0;
    }
    plain_name(base);
    if (base[0] == '.')
        base[0] = '_';
    snprintf(group, PATH, "/fits/%s", base);
    for (int i = 2; spx_h5_exists(file, group); i++)
        snprintf(group, PATH, "/fits/%s_%d", base, i);
    return spx_h5_group(file, group, e);
}

static void hdu_group(const char *group, const spx_fits_hdu *h, size_t index, char path[PATH])
{
    char name[80];
    snprintf(name, sizeof name, "%s", h->extname);
    plain_name(name);
    snprintf(path, PATH, "%.250s/HDU%03zu%s%s", group, index, name[0] ? "_" : "", name);
}

static void below(char path[PATH], const char *group, const char *name)
{
    snprintf(path, PATH, "%.300s/%s", group, name);
}

/* ---- values as FITS bytes ---- */

/* Reads an image dataset as FITS bytes; SPX_EINPUT when it differs from the header's shape. `ours`: this program has
 * just written it, and its size on disk is not known yet. */
static spx_status read_image(hid_t file, const char *path, const spx_fits_hdu *h, int ours, unsigned char **out,
                             spx_err *e)
{
    int ndim;
    size_t dims[SPX_H5_MAXDIM], size = (size_t)(abs(h->bitpix) / 8);
    *out = NULL;
    spx_status st = spx_h5_shape(file, path, &ndim, dims, e);
    if (st != SPX_OK)
        return st;
    int fits = ndim == h->ndim && memcmp(dims, h->dims, (size_t)ndim * sizeof *dims) == 0;
    hid_t d = spx_h5_open(file, path, e);
    if (d < 0)
        return SPX_EINPUT;
    hid_t stored = H5Dget_type(d), type = H5Tcopy(stored); /* a copy, whose byte order can be set */
    H5T_class_t class = H5Tget_class(type);
    H5Tclose(stored);
    fits = fits && H5Tget_size(type) == size && class == (h->bitpix < 0 ? H5T_FLOAT : H5T_INTEGER) &&
           (size == 1 || H5Tset_order(type, H5T_ORDER_BE) >= 0);
    if (fits && class == H5T_FLOAT)
        fits = H5Tequal(type, spx_fits_image_type(h)) > 0;
    if (!fits)
        st = spx_fail_at(e, SPX_EINPUT, spx_h5_filename(file), path, NULL,
                         "is not the image that its FITS header describes: it was changed");
    else if (!ours && spx_h5_overclaims(d, h->nelem * size))
        st = spx_fail(e, SPX_EINPUT, "%s:%s: claims more data than the file holds", spx_h5_filename(file), path);
    else if ((*out = spx_alloc(h->nelem, size, e)) == NULL)
        st = SPX_EIO;
    else if (h->nelem > 0)
        st = spx_h5_get(d, type, H5S_ALL, H5S_ALL, *out, e);
    H5Tclose(type);
    H5Dclose(d);
    if (st != SPX_OK) {
        spx_free(*out);
        *out = NULL;
    } else if (h->flip) {
        spx_fits_flip(*out, h->nelem, size);
    }
    return st;
}

/* Reads a dataset of `n` bytes without conversion of its type. */
static spx_status read_bytes(hid_t file, const char *path, size_t n, unsigned char **out, spx_err *e)
{
    *out = NULL;
    hid_t d = spx_h5_open(file, path, e);
    if (d < 0)
        return SPX_EINPUT;
    hid_t type = H5Dget_type(d), space = H5Dget_space(d);
    hssize_t count = H5Sget_simple_extent_npoints(space);
    size_t size = H5Tget_size(type);
    H5T_class_t class = H5Tget_class(type);
    spx_status st = SPX_OK;
    if (!((class == H5T_STRING && H5Tis_variable_str(type) == 0) || (class == H5T_INTEGER && size == 1)) || count < 0 ||
        (size_t)count != n / size || n % size != 0 || spx_h5_overclaims(d, n))
        st = spx_fail(e, SPX_EINPUT, "%s:%s: is not the data that its FITS header describes: it was changed",
                      spx_h5_filename(file), path);
    else if ((*out = spx_alloc(n, 1, e)) == NULL)
        st = SPX_EIO;
    else if (n > 0)
        st = spx_h5_get(d, type, H5S_ALL, H5S_ALL, *out, e);
    H5Sclose(space);
    H5Tclose(type);
    H5Dclose(d);
    if (st != SPX_OK) {
        spx_free(*out);
        *out = NULL;
    }
    return st;
}

/* Reads rows of a binary table as FITS bytes. */
static spx_status read_rows(hid_t file, const char *path, const spx_fits_hdu *h, int ours, unsigned char **out,
                            spx_err *e)
{
    *out = NULL;
    hid_t d = spx_h5_open(file, path, e);
    if (d < 0)
        return SPX_EINPUT;
    hid_t type = H5Dget_type(d), space = H5Dget_space(d), row = H5I_INVALID_HID;
    hssize_t count = H5Sget_simple_extent_npoints(space);
    if (H5Tget_class(type) != H5T_COMPOUND) { /* more columns than an HDF5 type can have: stored as bytes */
        H5Sclose(space);
        H5Tclose(type);
        H5Dclose(d);
        return read_bytes(file, path, h->nrow * h->rowsize, out, e);
    }
    spx_status st = SPX_OK;
    unsigned char *truth = spx_alloc(h->ncol, 1, e);
    int fits = truth != NULL, members = 0;
    for (size_t k = 0; fits && k < h->ncol; k++) {
        if (h->col[k].width == 0)
            continue;
        int m = H5Tget_member_index(type, h->col[k].name);
        hid_t t = m < 0 ? H5I_INVALID_HID : H5Tget_member_type(type, (unsigned)m), base = t;
        if (t >= 0 && H5Tget_class(t) == H5T_ARRAY)
            base = H5Tget_super(t);
        truth[k] = h->col[k].code == 'L' && base >= 0 && H5Tget_class(base) == H5T_ENUM;
        if (base >= 0 && base != t)
            H5Tclose(base);
        if (t >= 0)
            H5Tclose(t);
        fits = m >= 0;
        members++;
    }
    if (fits)
        row = spx_fits_row_type(h, truth, e);
    fits = fits && row >= 0 && members == H5Tget_nmembers(type) && count >= 0 && (size_t)count == h->nrow &&
           H5Tget_size(type) <= 16 * h->rowsize + 64;
    if (!fits)
        st = spx_fail_at(e, SPX_EINPUT, spx_h5_filename(file), path, NULL,
                         "is not the table that its FITS header describes: it was changed");
    else if (!ours && spx_h5_overclaims(d, h->nrow * h->rowsize))
        st = spx_fail(e, SPX_EINPUT, "%s:%s: claims more data than the file holds", spx_h5_filename(file), path);
    else if ((*out = spx_alloc2(h->nrow, h->rowsize, 1, e)) == NULL)
        st = SPX_EIO;
    else if (h->nrow > 0)
        st = spx_h5_get(d, row, H5S_ALL, H5S_ALL, *out, e);
    if (row >= 0)
        H5Tclose(row);
    H5Sclose(space);
    H5Tclose(type);
    H5Dclose(d);
    if (st == SPX_OK)
        spx_fits_convert_rows(h, truth, *out, h->nrow, 1);
    spx_free(truth);
    if (st != SPX_OK) {
        spx_free(*out);
        *out = NULL;
    }
    return st;
}

/* ---- writing ---- */

static spx_status write_bytes(hid_t file, const char *path, size_t n, const unsigned char *p, const char *what,
                              spx_err *e)
{
    spx_status st = spx_h5_write(file, path, H5T_STD_U8LE, 1, &n, p, e);
    return st == SPX_OK && what != NULL ? spx_h5_set_str(file, path, "long_name", what, e) : st;
}

/* Writes an attribute with one double a column. */
static spx_status column_attribute(hid_t file, const char *path, const char *name, size_t n, const double *v,
                                   spx_err *e)
{
    hsize_t dim = n;
    hid_t space = H5Screate_simple(1, &dim, NULL);
    hid_t a = H5Acreate_by_name(file, path, name, H5T_IEEE_F64LE, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    int bad = a < 0 || H5Awrite(a, H5T_NATIVE_DOUBLE, v) < 0;
    if (a >= 0)
        H5Aclose(a);
    H5Sclose(space);
    return bad ? spx_fail_at(e, SPX_EIO, spx_h5_filename(file), path, NULL, "attribute %s cannot be written", name)
               : SPX_OK;
}

/* Writes scales of columns stored as numbers: value = number * column_scale + column_zero. */
static spx_status column_scales(hid_t file, const char *path, const spx_fits_hdu *h, spx_err *e)
{
    int any = 0;
    size_t n = 0;
    for (size_t k = 0; k < h->ncol; k++)
        any |= h->col[k].width > 0 && (h->col[k].scale != 1.0 || h->col[k].zero != 0.0);
    if (!any)
        return SPX_OK;
    double *v = spx_alloc2(2, h->ncol, sizeof *v, e);
    if (v == NULL)
        return SPX_EIO;
    for (size_t k = 0; k < h->ncol; k++)
        if (h->col[k].width > 0) {
            v[n] = h->col[k].scale;
            v[h->ncol + n++] = h->col[k].zero;
        }
    spx_status st = column_attribute(file, path, "column_scale", n, v, e);
    if (st == SPX_OK)
        st = column_attribute(file, path, "column_zero", n, v + h->ncol, e);
    spx_free(v);
    return st;
}

/* Writes one variable-length column decoded: values one after another, and the start of each row. Left out when rows
 * share so much of the heap that the copy would be many times larger: the heap is complete. */
static spx_status write_vla(hid_t file, const char *group, const spx_fits *f, const spx_fits_hdu *h, size_t k,
                            spx_err *e)
{
    const spx_fits_column *c = &h->col[k];
    const unsigned char *rows = f->bytes + h->data_at, *heap = rows + h->nrow * h->rowsize + h->theap;
    char name[80], path[PATH];
    hid_t type = spx_fits_element_type(c->element, 1, 0, 0);
    size_t size = H5Tget_size(type), total = 0, n1 = h->nrow + 1;
    uint64_t *offsets = spx_alloc(n1, sizeof *offsets, e);
    unsigned char *values = NULL;
    spx_status st = offsets != NULL ? SPX_OK : SPX_EIO;
    for (size_t r = 0; st == SPX_OK && r < h->nrow; r++) {
        uint64_t n = spx_fits_integer(rows + r * h->rowsize + c->offset, c->width / 2);
        total += c->element == 'X' ? n / 8 + (n % 8 != 0) : n;
        offsets[r + 1] = total;
        if (total * size > 16 * h->pcount + 4096) {
            H5Tclose(type);
            spx_free(offsets);
            return SPX_OK;
        }
    }
    if (st == SPX_OK && (values = spx_alloc(total, size, e)) == NULL)
        st = SPX_EIO;
    for (size_t r = 0; st == SPX_OK && r < h->nrow; r++)
        if (offsets[r + 1] > offsets[r])
            memcpy(values + offsets[r] * size,
                   heap + spx_fits_integer(rows + r * h->rowsize + c->offset + c->width / 2, c->width / 2),
                   (offsets[r + 1] - offsets[r]) * size);
    snprintf(name, sizeof name, "%s", c->name);
    plain_name(name);
    if (name[0] == '.')
        name[0] = '_';
    snprintf(path, sizeof path, "%.200s/vla/%s", group, name);
    if (spx_h5_exists(file, path)) /* names that differ only in replaced characters */
        snprintf(path, sizeof path, "%.200s/vla/%s_%zu", group, name, k + 1);
    char sub[PATH];
    below(sub, path, "offsets");
    if (st == SPX_OK)
        st = spx_h5_write(file, sub, H5T_NATIVE_UINT64, 1, &n1, offsets, e);
    below(sub, path, "values");
    if (st == SPX_OK)
        st = spx_h5_write(file, sub, type, 1, &total, values, e);
    if (st == SPX_OK && c->unit[0])
        st = spx_h5_set_str(file, sub, "units", c->unit, e);
    H5Tclose(type);
    spx_free(offsets);
    spx_free(values);
    return st;
}

/* Writes rows and heap of a binary table below `group`; rows at `path`. */
static spx_status write_bintable(hid_t file, const char *group, const char *path, const spx_fits *f, size_t hdu,
                                 int decode, spx_err *e)
{
    const spx_fits_hdu *h = &f->hdu[hdu];
    const unsigned char *rows = f->bytes + h->data_at;
    char p[PATH];
    spx_table *t = NULL;
    spx_status st = spx_fits_table(f, hdu, &t, e);
    if (st == SPX_OK && t != NULL) {
        st = spx_table_write(file, path, t, e);
        if (st == SPX_OK)
            st = column_scales(file, path, h, e);
    } else if (st == SPX_OK && h->rowsize > 0) {
        size_t dims[2] = {h->nrow, h->rowsize};
        st = spx_h5_write(file, path, H5T_STD_U8LE, 2, dims, rows, e);
    }
    spx_table_free(t);
    if (st == SPX_OK && h->pcount > 0) {
        below(p, group, "heap");
        st = write_bytes(file, p, h->pcount, rows + h->nrow * h->rowsize, NULL, e);
    }
    for (size_t k = 0; st == SPX_OK && decode && k < h->ncol; k++)
        if (h->col[k].element && h->col[k].width > 0)
            st = write_vla(file, group, f, h, k, e);
    return st;
}

static spx_status write_image(hid_t file, const char *path, spx_fits *f, size_t hdu, spx_err *e)
{
    const spx_fits_hdu *h = &f->hdu[hdu];
    unsigned char *copy;
    char unit[72];
    if (h->ndim == 0)
        return SPX_OK;
    const unsigned char *values = spx_fits_signed(f, hdu, &copy, e);
    if (values == NULL)
        return e->code;
    spx_status st = spx_h5_write(file, path, spx_fits_image_type(h), h->ndim, h->dims, values, e);
    spx_free(copy);
    if (st == SPX_OK && spx_cards_string(&h->header, "BUNIT", unit, sizeof unit) && unit[0]) {
        for (char *c = unit; *c; c++)
            if (*c < 32 || *c > 126)
                *c = '?';
        st = spx_h5_set_str(file, path, "units", unit, e);
    }
    if (st == SPX_OK && (h->scale != 1.0 || h->zero != 0.0)) {
        st = spx_h5_set_f64(file, path, "scale_factor", h->scale, e);
        if (st == SPX_OK)
            st = spx_h5_set_f64(file, path, "add_offset", h->zero, e);
    }
    return st;
}

/* *same: a block's dataset, which this program has written, holds exactly the values of the HDU. An error is the
 * machine's: of a dataset that is another, *same is 0. */
static spx_status same_values(hid_t file, const char *path, spx_fits *f, size_t hdu, int *same, spx_err *e)
{
    const spx_fits_hdu *h = &f->hdu[hdu];
    unsigned char *have = NULL;
    spx_err err = {0};
    *same = h->copied != NULL && strcmp(h->copied, path) == 0;
    if (*same || !spx_h5_exists(file, path))
        return SPX_OK;
    if (h->kind == SPX_FITS_BINTABLE && h->pcount == 0) {
        int tables = 0; /* equal columns are required, not only equal bytes */
        hid_t d = spx_h5_open(file, path, &err), type = d < 0 ? H5I_INVALID_HID : H5Dget_type(d);
        tables = type >= 0 && H5Tget_class(type) == H5T_COMPOUND;
        if (type >= 0)
            H5Tclose(type);
        if (d >= 0)
            H5Dclose(d);
        *same = tables && read_rows(file, path, h, 1, &have, &err) == SPX_OK &&
                memcmp(have, f->bytes + h->data_at, h->nrow * h->rowsize) == 0;
    } else if ((h->kind == SPX_FITS_IMAGE || h->kind == SPX_FITS_TILED) && h->ndim > 0) {
        const unsigned char *raw = spx_fits_raw(f, hdu, &err);
        *same = raw != NULL && read_image(file, path, h, 1, &have, &err) == SPX_OK &&
                memcmp(have, raw, h->nelem * (size_t)(abs(h->bitpix) / 8)) == 0;
    }
    spx_free(have);
    return err.code == SPX_EIO ? spx_err_pass(e, &err) : SPX_OK;
}

/* Writes the padding after `used` bytes at `at`, unless it is `fill` to the end of the block. */
static spx_status write_padding(hid_t file, const char *group, const char *name, const spx_fits *f, size_t at,
                                size_t used, size_t end, unsigned char fill, spx_err *e)
{
    char path[PATH];
    size_t n = end - (at + used), want = (SPX_FITS_BLOCK - used % SPX_FITS_BLOCK) % SPX_FITS_BLOCK;
    int usual = n == want;
    for (size_t i = 0; i < n; i++)
        usual &= f->bytes[at + used + i] == fill;
    if (usual)
        return SPX_OK;
    below(path, group, name);
    return write_bytes(file, path, n, f->bytes + at + used, NULL, e);
}

static spx_status store_hdu(hid_t file, const char *top, spx_fits *f, size_t i, const char *view, spx_err *e)
{
    const spx_fits_hdu *h = &f->hdu[i];
    char group[PATH], path[PATH], tiled[PATH];
    spx_status st;
    hdu_group(top, h, i, group);
    if ((st = spx_h5_group(file, group, e)) != SPX_OK ||
        (st = spx_h5_set_i64(file, group, "index", (int64_t)i, e)) != SPX_OK ||
        (st = spx_h5_set_str(file, group, "extname", h->extname, e)) != SPX_OK ||
        (st = spx_h5_set_str(file, group, "kind", kind_name[h->kind], e)) != SPX_OK)
        return st;
    below(path, group, "header");
    if ((st = spx_h5_write_strings(file, path, CARD, h->header.n, h->header.cards, e)) != SPX_OK)
        return st;
    if ((st = write_padding(file, group, "header_padding", f, h->header_at, h->header.n * CARD + 3, h->data_at, ' ',
                            e)) != SPX_OK ||
        (st = write_padding(file, group, "data_padding", f, h->data_at, h->nbytes, h->end,
                            h->kind == SPX_FITS_ASCII ? ' ' : 0, e)) != SPX_OK)
        return st;
    below(path, group, "data");
    int same = 0;
    if (view != NULL && view[0] && (st = same_values(file, view, f, i, &same, e)) != SPX_OK)
        return st;
    if (same) {
        if ((st = spx_h5_link(file, view, path, e)) != SPX_OK)
            return st;
    } else if (h->kind == SPX_FITS_IMAGE || h->kind == SPX_FITS_TILED) {
        if ((st = write_image(file, path, f, i, e)) != SPX_OK)
            return st;
    }
    switch (h->kind) {
    case SPX_FITS_IMAGE:
        return SPX_OK;
    case SPX_FITS_TILED:
        below(tiled, group, "compressed");
        if ((st = spx_h5_group(file, tiled, e)) != SPX_OK)
            return st;
        below(path, tiled, "rows");
        return write_bintable(file, tiled, path, f, i, 0, e);
    case SPX_FITS_BINTABLE:
        return spx_h5_exists(file, path) ? SPX_OK : write_bintable(file, group, path, f, i, 1, e);
    case SPX_FITS_ASCII:
        return h->rowsize
                   ? spx_h5_write_strings(file, path, h->rowsize, h->nrow, (const char *)f->bytes + h->data_at, e)
                   : SPX_OK;
    case SPX_FITS_OTHER:
        break;
    }
    return h->nbytes ? write_bytes(file, path, h->nbytes, f->bytes + h->data_at, "Bytes, as in the FITS file", e)
                     : SPX_OK;
}

spx_status spx_fits_store(hid_t file, spx_fits *f, const char *product, const spx_fits_path *view, spx_err *e)
{
    char top[PATH], path[PATH];
    const char *slash = strrchr(f->name, '/');
    spx_status st = file_group(file, f->name, top, e);
    if (st == SPX_OK)
        st = spx_h5_set_str(file, top, "filename", slash != NULL ? slash + 1 : f->name, e);
    if (st == SPX_OK)
        st = spx_h5_set_str(file, top, "product", product, e);
    for (size_t i = 0; st == SPX_OK && i < f->nhdu; i++) {
        st = store_hdu(file, top, f, i, view != NULL ? view[i] : NULL, e);
        if (st == SPX_EINPUT)
            return st;
        if (st != SPX_OK)
            return spx_err_at(e, f->name, spx_fits_hduname(f, i));
    }
    below(path, top, "trailing");
    if (st == SPX_OK && f->trailing < f->size)
        st = write_bytes(file, path, f->size - f->trailing, f->bytes + f->trailing, NULL, e);
    return st;
}

/* ---- restoring FITS ---- */

/* Writes the stored padding after `used` bytes, or standard padding. */
static spx_status put_padding(hid_t file, const char *group, const char *name, size_t used, char fill,
                              spx_fits_out *out, spx_err *e)
{
    char path[PATH];
    int ndim;
    size_t dims[SPX_H5_MAXDIM];
    unsigned char *p = NULL;
    below(path, group, name);
    if (!spx_h5_exists(file, path))
        return spx_fits_out_fill(out, (SPX_FITS_BLOCK - used % SPX_FITS_BLOCK) % SPX_FITS_BLOCK, fill, e);
    spx_status st = spx_h5_shape(file, path, &ndim, dims, e);
    if (st == SPX_OK && (ndim != 1 || dims[0] >= SPX_FITS_BLOCK))
        st = spx_fail_at(e, SPX_EINPUT, spx_h5_filename(file), path, NULL, "is no padding of a FITS file");
    if (st == SPX_OK)
        st = read_bytes(file, path, dims[0], &p, e);
    if (st == SPX_OK)
        st = spx_fits_out_bytes(out, p, dims[0], e);
    spx_free(p);
    return st;
}

/* Writes rows, then the heap. */
static spx_status put_bintable(hid_t file, const char *group, const char *rows, const spx_fits_hdu *h,
                               spx_fits_out *out, spx_err *e)
{
    char path[PATH];
    unsigned char *p = NULL;
    spx_status st = SPX_OK;
    below(path, group, rows);
    if (h->rowsize > 0) {
        st = read_rows(file, path, h, 0, &p, e);
        if (st == SPX_OK)
            st = spx_fits_out_bytes(out, p, h->nrow * h->rowsize, e);
        spx_free(p);
    }
    if (st == SPX_OK && h->pcount > 0) {
        below(path, group, "heap");
        p = NULL;
        st = read_bytes(file, path, h->pcount, &p, e);
        if (st == SPX_OK)
            st = spx_fits_out_bytes(out, p, h->pcount, e);
        spx_free(p);
    }
    return st;
}

static spx_status restore_hdu(hid_t file, const char *group, int first, spx_fits_out *out, spx_err *e)
{
    char path[PATH];
    int ndim;
    size_t dims[SPX_H5_MAXDIM];
    spx_fits_hdu h = {0};
    unsigned char *cards = NULL, *p = NULL;
    below(path, group, "header");
    spx_status st = spx_h5_shape(file, path, &ndim, dims, e);
    if (st == SPX_OK && (ndim != 1 || dims[0] > SIZE_MAX / CARD))
        st = spx_fail_at(e, SPX_EINPUT, spx_h5_filename(file), path, NULL, "is no FITS header");
    if (st == SPX_OK)
        st = read_bytes(file, path, dims[0] * CARD, &cards, e);
    if (st == SPX_OK) {
        h.header.n = dims[0];
        h.header.cards = (char *)cards;
        const spx_fits_where where = {spx_h5_filename(file), path};
        st = spx_fits_describe(&h, first, &where, e);
    }
    if (st == SPX_OK)
        st = spx_fits_out_cards(out, &h.header, e);
    if (st == SPX_OK)
        st = put_padding(file, group, "header_padding", h.header.n * CARD + 3, ' ', out, e);
    if (st == SPX_OK && h.nbytes > 0) {
        below(path, group, h.kind == SPX_FITS_TILED ? "compressed" : "data");
        if (!spx_h5_exists(file, path) && !(h.kind == SPX_FITS_BINTABLE && h.rowsize == 0))
            st = spx_fail_at(e, SPX_EINPUT, spx_h5_filename(file), group, "take the file that fits2h5 wrote",
                             "holds the header of this HDU, but not its data");
        else if (h.kind == SPX_FITS_TILED)
            st = put_bintable(file, path, "rows", &h, out, e);
        else if (h.kind == SPX_FITS_BINTABLE)
            st = put_bintable(file, group, "data", &h, out, e);
        else if (h.kind == SPX_FITS_IMAGE)
            st = read_image(file, path, &h, 0, &p, e);
        else
            st = read_bytes(file, path, h.nbytes, &p, e);
        if (st == SPX_OK && p != NULL)
            st = spx_fits_out_bytes(out, p, h.nbytes, e);
        spx_free(p);
    }
    if (st == SPX_OK)
        st = put_padding(file, group, "data_padding", h.nbytes, h.kind == SPX_FITS_ASCII ? ' ' : 0, out, e);
    spx_fits_hdu_free(&h);
    spx_free(cards);
    return st;
}

spx_status spx_fits_restore(hid_t file, const char *group, spx_fits_out *out, spx_err *e)
{
    size_t n = 0, nhdu = 0;
    char **names = NULL, path[PATH];
    spx_status st = spx_h5_list(file, group, &n, &names, e);
    size_t *order = st == SPX_OK ? spx_alloc(n + 1, sizeof *order, e) : NULL; /* name of HDU i, plus one */
    if (st == SPX_OK && order == NULL)
        st = SPX_EIO;
    for (size_t i = 0; st == SPX_OK && i < n; i++) {
        int64_t index;
        below(path, group, names[i]);
        if (!spx_h5_has_attr(file, path, "index"))
            continue;
        if ((st = spx_h5_attr_i64(file, path, "index", &index, e)) != SPX_OK)
            break;
        if (index < 0 || (size_t)index >= n || order[index])
            st = spx_fail_at(e, SPX_EINPUT, spx_h5_filename(file), path, NULL,
                             "attribute index is %lld of %zu HDUs: one is missing, or was added", (long long)index, n);
        else
            order[index] = i + 1;
        nhdu++;
    }
    if (st == SPX_OK && nhdu == 0)
        st = spx_fail_at(e, SPX_EINPUT, spx_h5_filename(file), group, NULL, "holds no HDUs");
    for (size_t i = 0; st == SPX_OK && i < nhdu; i++) {
        if (!order[i]) {
            st = spx_fail_at(e, SPX_EINPUT, spx_h5_filename(file), group, NULL, "HDU %zu is missing", i);
            break;
        }
        below(path, group, names[order[i] - 1]);
        st = restore_hdu(file, path, i == 0, out, e);
    }
    below(path, group, "trailing");
    if (st == SPX_OK && spx_h5_exists(file, path)) {
        int ndim;
        size_t dims[SPX_H5_MAXDIM];
        unsigned char *p = NULL;
        st = spx_h5_shape(file, path, &ndim, dims, e);
        if (st == SPX_OK && ndim == 1 && (st = read_bytes(file, path, dims[0], &p, e)) == SPX_OK)
            st = spx_fits_out_bytes(out, p, dims[0], e);
        spx_free(p);
    }
    spx_free(order);
    spx_h5_names_free(n, names);
    return st;
}
