/* Provides HDF5 types of FITS elements and rows (convert/types_h5.h). */
#include "convert/types_h5.h"

enum { MAX_ROWTYPE = 60 * 1024 /* an HDF5 object header holds a datatype below 64 KiB */ };

static hid_t integer_type(size_t size, int unsign)
{
    switch (size) {
    case 1:
        return unsign ? H5T_STD_U8BE : H5T_STD_I8BE;
    case 2:
        return unsign ? H5T_STD_U16BE : H5T_STD_I16BE;
    case 4:
        return unsign ? H5T_STD_U32BE : H5T_STD_I32BE;
    default:
        return unsign ? H5T_STD_U64BE : H5T_STD_I64BE;
    }
}

hid_t spx_fits_image_type(const spx_fits_hdu *h)
{
    if (h->bitpix < 0)
        return h->bitpix == -32 ? H5T_IEEE_F32BE : H5T_IEEE_F64BE;
    /* FITS bytes are unsigned, all other integers signed */
    return integer_type((size_t)(h->bitpix / 8), (h->bitpix == 8) != (h->flip != 0));
}

/* Makes the type {a, b} of two equal members; the caller closes it. */
static hid_t pair_type(hid_t member, const char *a, const char *b)
{
    size_t size = H5Tget_size(member);
    hid_t t = H5Tcreate(H5T_COMPOUND, 2 * size);
    if (t >= 0 && (H5Tinsert(t, a, 0, member) < 0 || H5Tinsert(t, b, size, member) < 0)) {
        H5Tclose(t);
        return H5I_INVALID_HID;
    }
    return t;
}

static hid_t string_type(size_t size)
{
    hid_t t = H5Tcopy(H5T_C_S1);
    if (t >= 0 && (H5Tset_size(t, size) < 0 || H5Tset_strpad(t, H5T_STR_NULLPAD) < 0)) {
        H5Tclose(t);
        return H5I_INVALID_HID;
    }
    return t;
}

/* Boolean type of HDF5, an enumeration, as h5py writes and reads it. */
static hid_t bool_type(void)
{
    signed char no = 0, yes = 1;
    hid_t t = H5Tenum_create(H5T_STD_I8LE);
    if (t >= 0 && (H5Tenum_insert(t, "FALSE", &no) < 0 || H5Tenum_insert(t, "TRUE", &yes) < 0)) {
        H5Tclose(t);
        return H5I_INVALID_HID;
    }
    return t;
}

hid_t spx_fits_element_type(char code, size_t size, int flip, int truth)
{
    switch (code) {
    case 'L':
        return truth ? bool_type() : string_type(1);
    case 'A':
        return string_type(size);
    case 'X':
        return H5Tcopy(H5T_STD_U8BE);
    case 'B':
        return H5Tcopy(flip ? H5T_STD_I8BE : H5T_STD_U8BE);
    case 'I':
    case 'J':
    case 'K':
        return H5Tcopy(integer_type(spx_fits_element_size(code), flip));
    case 'E':
        return H5Tcopy(H5T_IEEE_F32BE);
    case 'D':
        return H5Tcopy(H5T_IEEE_F64BE);
    case 'C':
        return pair_type(H5T_IEEE_F32BE, "r", "i");
    case 'M':
        return pair_type(H5T_IEEE_F64BE, "r", "i");
    case 'P':
        return pair_type(H5T_STD_U32BE, "length", "offset");
    default:
        return pair_type(H5T_STD_U64BE, "length", "offset");
    }
}

hid_t spx_fits_row_type(const spx_fits_hdu *h, const unsigned char *truth, spx_err *e)
{
    size_t members = 0, encoded = 0;
    if (h->rowsize == 0)
        return H5I_INVALID_HID;
    hid_t row = H5Tcreate(H5T_COMPOUND, h->rowsize);
    int ok = row >= 0;
    for (size_t k = 0; ok && k < h->ncol; k++) {
        const spx_fits_column *c = &h->col[k];
        if (c->width == 0) /* 0 elements: HDF5 has no such member; the header still describes the column */
            continue;
        hid_t t = spx_fits_element_type(c->code, c->size, c->flip, truth != NULL && truth[k]);
        if (t >= 0 && c->ndim > 0) {
            hsize_t dims[SPX_FITS_MAXDIM];
            for (int i = 0; i < c->ndim; i++)
                dims[i] = c->dims[i];
            hid_t a = H5Tarray_create2(t, (unsigned)c->ndim, dims);
            H5Tclose(t);
            t = a;
        }
        ok = t >= 0 && H5Tinsert(row, c->name, c->offset, t) >= 0;
        if (t >= 0)
            H5Tclose(t);
        members++;
    }
    if (ok && members > 0 && H5Tencode(row, NULL, &encoded) >= 0 && encoded < MAX_ROWTYPE)
        return row;
    if (row >= 0)
        H5Tclose(row);
    if (!ok)
        spx_fail(e, SPX_EIO, "HDF5 cannot make the type of a table row");
    return H5I_INVALID_HID;
}
