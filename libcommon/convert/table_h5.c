/* Converts tables between FITS binary tables and HDF5 compound types (convert/table_h5.h). */
#include "convert/table_h5.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "convert/types_h5.h"
#include "fits/values.h"

/* Units of the columns that become members of the row type: those of no width do not. */
static spx_status column_units(const spx_fits_hdu *h, char ***out, spx_err *e)
{
    const char **unit = spx_alloc(h->ncol, sizeof *unit, e);
    if (unit == NULL)
        return e->code;
    size_t n = 0;
    for (size_t k = 0; k < h->ncol; k++)
        if (h->col[k].width > 0)
            unit[n++] = h->col[k].unit;
    *out = spx_table_units(n, unit, e);
    spx_free(unit);
    return e->code;
}

spx_status spx_fits_table(const spx_fits *f, size_t hdu, spx_table **out, spx_err *e)
{
    const spx_fits_hdu *h = &f->hdu[hdu];
    *out = NULL;
    unsigned char *truth = spx_alloc(h->ncol, 1, e);
    if (truth == NULL)
        return SPX_EIO;
    spx_fits_truth(f, hdu, truth);
    hid_t type = spx_fits_row_type(h, truth, e);
    spx_table *t = type < 0 ? NULL : spx_table_new(h->nrow, e);
    if (t != NULL) {
        t->type = type;
        t->rowsize = h->rowsize;
        t->rows = spx_alloc2(h->nrow, h->rowsize, 1, e);
        if (t->rows != NULL && h->nrow)
            memcpy(t->rows, f->bytes + h->data_at, h->nrow * h->rowsize);
        if (t->rows != NULL)
            spx_fits_convert_rows(h, truth, (unsigned char *)t->rows, h->nrow, 0);
        if (t->rows == NULL || column_units(h, &t->unit, e) != SPX_OK) {
            spx_table_free(t);
            t = NULL;
        }
    } else if (type >= 0) {
        H5Tclose(type);
    }
    spx_free(truth);
    *out = t;
    return e->code;
}

/* FITS form of a column: TFORM code, HDF5 type of one element, signedness by TZERO, boolean. */
typedef struct {
    char code;
    hid_t file; /* big-endian type of one element; owned */
    size_t repeat, ndim, dims[SPX_FITS_MAXDIM];
    int flip, truth;
} out_column;

static int is_boolean(hid_t t)
{
    signed char no = 1, yes = 0;
    hid_t super = H5Tget_super(t);
    int ok = super >= 0 && H5Tget_size(t) == 1 && H5Tget_nmembers(t) == 2 && H5Tget_class(super) == H5T_INTEGER &&
             H5Tenum_valueof(t, "FALSE", &no) >= 0 && H5Tenum_valueof(t, "TRUE", &yes) >= 0 && no == 0 && yes == 1;
    if (super >= 0)
        H5Tclose(super);
    return ok;
}

static int is_complex(hid_t t)
{
    char *a = H5Tget_nmembers(t) == 2 ? H5Tget_member_name(t, 0) : NULL;
    char *b = a != NULL ? H5Tget_member_name(t, 1) : NULL;
    int ok = a != NULL && b != NULL && strcmp(a, "r") == 0 && strcmp(b, "i") == 0 &&
             H5Tget_member_class(t, 0) == H5T_FLOAT && H5Tget_member_class(t, 1) == H5T_FLOAT;
    H5free_memory(a);
    H5free_memory(b);
    return ok;
}

/* Finds the FITS form of an HDF5 type; 0: none. */
static int classify(hid_t type, out_column *c)
{
    memset(c, 0, sizeof *c);
    c->file = H5I_INVALID_HID;
    c->repeat = 1;
    hid_t t = H5Tcopy(type);
    while (t >= 0 && H5Tget_class(t) == H5T_ARRAY) {
        hsize_t d[H5S_MAX_RANK];
        int n = H5Tget_array_dims2(t, d);
        for (int i = 0; i < n; i++) {
            c->repeat *= (size_t)d[i];
            if (c->ndim < SPX_FITS_MAXDIM)
                c->dims[c->ndim] = (size_t)d[i];
            c->ndim++;
        }
        hid_t super = H5Tget_super(t);
        H5Tclose(t);
        t = super;
    }
    size_t size = t < 0 ? 0 : H5Tget_size(t);
    int flip;
    switch (t < 0 ? H5T_NO_CLASS : H5Tget_class(t)) {
    case H5T_INTEGER:
        flip = (H5Tget_sign(t) == H5T_SGN_NONE) != (size == 1);
        c->code = size == 1 ? 'B' : size == 2 ? 'I' : size == 4 ? 'J' : size == 8 ? 'K' : 0;
        c->flip = flip;
        break;
    case H5T_FLOAT:
        c->code = size <= 4 ? 'E' : 'D';
        size = size <= 4 ? 4 : 8;
        break;
    case H5T_STRING:
        c->code = 'A';
        break;
    case H5T_ENUM:
        c->truth = is_boolean(t);
        c->code = c->truth ? 'L' : 0;
        break;
    case H5T_COMPOUND:
        c->code = !is_complex(t) ? 0 : size <= 8 ? 'C' : 'M';
        break;
    default:
        break;
    }
    if (t >= 0)
        H5Tclose(t);
    if (c->code)
        c->file = spx_fits_element_type(c->code, size, c->flip, c->truth);
    return c->file >= 0;
}

/* Adds TTYPEn, TFORMn, TUNITn, TDIMn, TZEROn. */
static spx_status describe_column(spx_cards *h, size_t k, const char *name, const char *unit, const out_column *c,
                                  spx_err *e)
{
    char key[32], text[200];
    size_t width = c->code == 'A' ? H5Tget_size(c->file) : 1;
    spx_status st;
    snprintf(key, sizeof key, "TTYPE%zu", k);
    if ((st = spx_cards_set_string(h, key, name, NULL, e)) != SPX_OK)
        return st;
    snprintf(key, sizeof key, "TFORM%zu", k);
    if (c->repeat * width == 1)
        snprintf(text, sizeof text, "%c", c->code);
    else
        snprintf(text, sizeof text, "%zu%c", c->repeat * width, c->code);
    if ((st = spx_cards_set_string(h, key, text, NULL, e)) != SPX_OK)
        return st;
    snprintf(key, sizeof key, "TUNIT%zu", k);
    if (strcmp(unit, "degree") == 0)
        unit = "deg"; /* spelling of FITS */
    if (strcmp(unit, "km/s") == 0)
        unit = "km s-1";
    if (*unit && strcmp(unit, "1") != 0 && (st = spx_cards_set_string(h, key, unit, NULL, e)) != SPX_OK)
        return st;
    if (c->ndim > (c->code == 'A' ? 0 : 1) && c->ndim <= SPX_FITS_MAXDIM) {
        size_t n = (size_t)snprintf(text, sizeof text, "(");
        if (c->code == 'A')
            n += (size_t)snprintf(text + n, sizeof text - n, "%zu,", width);
        for (size_t i = c->ndim; i-- > 0;)
            n += (size_t)snprintf(text + n, sizeof text - n, "%zu%s", c->dims[i], i ? "," : ")");
        snprintf(key, sizeof key, "TDIM%zu", k);
        if ((st = spx_cards_set_string(h, key, text, NULL, e)) != SPX_OK)
            return st;
    }
    if (c->flip) {
        static const struct {
            char code;
            const char *zero;
        } zeros[] = {{'B', "-128"}, {'I', "32768"}, {'J', "2147483648"}, {'K', "9223372036854775808"}};
        for (size_t i = 0; i < sizeof zeros / sizeof *zeros; i++)
            if (zeros[i].code == c->code) {
                snprintf(text, sizeof text, "TZERO%-3zu= %20s", k, zeros[i].zero);
                if ((st = spx_cards_append(h, text, e)) != SPX_OK)
                    return st;
            }
    }
    return SPX_OK;
}

spx_status spx_fits_out_table(spx_fits_out *o, const char *extname, const spx_table *t, const spx_cards *more,
                              spx_err *e)
{
    spx_cards h = {0}, columns = {0};
    size_t ncol = spx_table_ncol(t), size = 0;
    out_column *c = spx_alloc(ncol, sizeof *c, e);
    spx_status st = c != NULL ? SPX_OK : SPX_EIO;
    if (st == SPX_OK && ncol > 999)
        st = spx_fail(e, SPX_EINPUT, "table %s has %zu columns, FITS allows 999", extname, ncol);
    size_t made = 0;
    for (; st == SPX_OK && made < ncol; made++) {
        char *name = spx_table_name(t, (int)made, e);
        hid_t type = H5Tget_member_type(t->type, (unsigned)made);
        if (name == NULL)
            st = SPX_EIO;
        else if (!classify(type, &c[made]))
            st = spx_fail(e, SPX_EINPUT, "table %s, column %s: FITS has no such type of column", extname, name);
        else
            st = describe_column(&columns, made + 1, name, spx_table_unit(t, (int)made), &c[made], e);
        if (st == SPX_OK)
            size += c[made].repeat * H5Tget_size(c[made].file);
        H5Tclose(type);
        spx_free(name);
    }
    /* one row more: a buffer holds wider values during conversion */
    size_t wide = size > t->rowsize ? size : t->rowsize, at = 0;
    unsigned char *rows = NULL;
    char *work = NULL, *background = NULL; /* H5Tconvert() keeps members of complex numbers in the background buffer */
    if (st == SPX_OK &&
        ((rows = spx_alloc2(t->nrow, size ? size : 1, 1, e)) == NULL ||
         (work = spx_alloc(wide ? wide : 1, 1, e)) == NULL || (background = spx_alloc(wide ? wide : 1, 1, e)) == NULL))
        st = SPX_EIO;
    for (size_t k = 0; st == SPX_OK && k < ncol; k++) {
        hid_t type = H5Tget_member_type(t->type, (unsigned)k), base = H5Tcopy(type);
        while (H5Tget_class(base) == H5T_ARRAY) {
            hid_t super = H5Tget_super(base);
            H5Tclose(base);
            base = super;
        }
        size_t from = H5Tget_member_offset(t->type, (unsigned)k), have = H5Tget_size(type);
        size_t want = c[k].repeat * H5Tget_size(c[k].file);
        for (size_t r = 0; st == SPX_OK && r < t->nrow; r++) {
            unsigned char *to = rows + r * size + at;
            memcpy(work, t->rows + r * t->rowsize + from, have);
            if (H5Tconvert(base, c[k].file, c[k].repeat, work, background, H5P_DEFAULT) < 0)
                st = spx_fail(e, SPX_EINPUT, "table %s: column %zu cannot be converted", extname, k + 1);
            memcpy(to, work, want);
            if (c[k].flip)
                spx_fits_flip(to, c[k].repeat, H5Tget_size(c[k].file));
            for (size_t i = 0; c[k].truth && i < want; i++)
                to[i] = to[i] ? 'T' : 'F';
        }
        at += want;
        H5Tclose(base);
        H5Tclose(type);
    }
    size_t dims[2] = {t->nrow, size};
    if (st == SPX_OK && o->at == 0)
        st = spx_fail(e, SPX_EBUG, "a table cannot be the first HDU");
    if (st == SPX_OK)
        st = spx_fits_out_start(o, &h, "BINTABLE", 8, 2, dims, e);
    if (st == SPX_OK)
        st = spx_cards_set_int(&h, "TFIELDS", (long)ncol, NULL, e);
    if (st == SPX_OK)
        st = spx_cards_set_string(&h, "EXTNAME", extname, NULL, e);
    for (size_t i = 0; st == SPX_OK && i < columns.n; i++) {
        char card[81];
        snprintf(card, sizeof card, "%.80s", columns.cards + i * 80);
        st = spx_cards_append(&h, card, e);
    }
    if (st == SPX_OK)
        st = spx_fits_out_more(&h, more, e);
    if (st == SPX_OK)
        st = spx_fits_out_hdu(o, &h, rows, t->nrow * size, e);
    for (size_t k = 0; c != NULL && k < made; k++)
        if (c[k].file >= 0)
            H5Tclose(c[k].file);
    spx_free(c);
    spx_free(rows);
    spx_free(work);
    spx_free(background);
    spx_cards_free(&h);
    spx_cards_free(&columns);
    return st;
}
