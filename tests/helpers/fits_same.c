/* fits_same A B: compares cards, in order, and values of two FITS files. CFITSIO reads both, independently of
 * specpipe's reader. Prints a difference. Exit status 0: equal; 1: not. */
#include <fitsio.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int differ(int hdu, const char *what)
{
    printf("HDU %d: %s\n", hdu - 1, what);
    return 1;
}

static int same_cards(fitsfile *a, fitsfile *b, int hdu, int *status)
{
    int n = 0, m = 0;
    fits_get_hdrspace(a, &n, NULL, status);
    fits_get_hdrspace(b, &m, NULL, status);
    if (n != m)
        return differ(hdu, "another number of cards");
    for (int i = 1; i <= n && *status == 0; i++) {
        char x[FLEN_CARD], y[FLEN_CARD];
        fits_read_record(a, i, x, status);
        fits_read_record(b, i, y, status);
        if (strcmp(x, y) != 0) {
            printf("[%s]\n[%s]\n", x, y);
            return differ(hdu, "cards differ");
        }
    }
    return 0;
}

/* Elements of an image as stored. */
static int same_image(fitsfile *a, fitsfile *b, int hdu, int *status)
{
    int bitpix = 0, ndim = 0, bitpix2 = 0, ndim2 = 0, any;
    LONGLONG dims[99], dims2[99], n = 1;
    fits_get_img_paramll(a, 99, &bitpix, &ndim, dims, status);
    fits_get_img_paramll(b, 99, &bitpix2, &ndim2, dims2, status);
    if (*status || bitpix != bitpix2 || ndim != ndim2 || memcmp(dims, dims2, (size_t)ndim * sizeof *dims) != 0)
        return differ(hdu, "images of another shape or type");
    for (int i = 0; i < ndim; i++)
        n *= dims[i];
    if (ndim == 0 || n == 0)
        return 0;
    int type = bitpix == 8     ? TBYTE
               : bitpix == 16  ? TSHORT
               : bitpix == 32  ? TINT
               : bitpix == 64  ? TLONGLONG
               : bitpix == -32 ? TFLOAT
                               : TDOUBLE;
    size_t bytes = (size_t)n * (size_t)(abs(bitpix) / 8);
    void *x = calloc(bytes, 1), *y = calloc(bytes, 1);
    fits_set_bscale(a, 1.0, 0.0, status);
    fits_set_bscale(b, 1.0, 0.0, status);
    fits_read_img(a, type, 1, n, NULL, x, &any, status);
    fits_read_img(b, type, 1, n, NULL, y, &any, status);
    int bad = *status || memcmp(x, y, bytes) != 0;
    free(x);
    free(y);
    return bad ? differ(hdu, "pixels differ") : 0;
}

/* Rows as bytes, and what variable-length columns point at. */
static int same_table(fitsfile *a, fitsfile *b, int hdu, int type, int *status)
{
    LONGLONG nrow = 0, nrow2 = 0, width = 0, width2 = 0;
    int ncol = 0;
    fits_get_num_rowsll(a, &nrow, status);
    fits_get_num_rowsll(b, &nrow2, status);
    fits_read_key(a, TLONGLONG, "NAXIS1", &width, NULL, status);
    fits_read_key(b, TLONGLONG, "NAXIS1", &width2, NULL, status);
    fits_get_num_cols(a, &ncol, status);
    if (*status || nrow != nrow2 || width != width2)
        return differ(hdu, "tables of another shape");
    size_t bytes = (size_t)(nrow * width);
    unsigned char *x = calloc(bytes + 1, 1), *y = calloc(bytes + 1, 1);
    if (bytes > 0) {
        fits_read_tblbytes(a, 1, 1, nrow * width, x, status);
        fits_read_tblbytes(b, 1, 1, nrow * width, y, status);
    }
    int bad = *status || memcmp(x, y, bytes) != 0;
    free(x);
    free(y);
    for (int c = 1; c <= ncol && !bad && type == BINARY_TBL; c++) {
        int code = 0;
        fits_get_coltype(a, c, &code, NULL, NULL, status);
        for (LONGLONG r = 1; code < 0 && r <= nrow && !bad; r++) {
            LONGLONG n = 0, at = 0;
            int any;
            fits_read_descriptll(a, c, r, &n, &at, status);
            double *u = calloc((size_t)n + 1, sizeof *u), *v = calloc((size_t)n + 1, sizeof *v);
            if (n > 0 && -code != TSTRING && -code != TBIT) {
                fits_read_col(a, TDOUBLE, c, r, 1, n, NULL, u, &any, status);
                fits_read_col(b, TDOUBLE, c, r, 1, n, NULL, v, &any, status);
            }
            bad = *status || memcmp(u, v, (size_t)n * sizeof *u) != 0;
            free(u);
            free(v);
        }
    }
    return bad ? differ(hdu, "tables differ") : 0;
}

int main(int argc, char **argv)
{
    fitsfile *a = NULL, *b = NULL;
    int status = 0, n = 0, m = 0, bad = 0;
    if (argc != 3)
        return 1;
    fits_open_diskfile(&a, argv[1], READONLY, &status);
    fits_open_diskfile(&b, argv[2], READONLY, &status);
    fits_get_num_hdus(a, &n, &status);
    fits_get_num_hdus(b, &m, &status);
    if (status == 0 && n != m) {
        printf("%d HDUs and %d\n", n, m);
        bad = 1;
    }
    for (int i = 1; i <= n && !bad && status == 0; i++) {
        int type = 0, type2 = 0;
        fits_movabs_hdu(a, i, &type, &status);
        fits_movabs_hdu(b, i, &type2, &status);
        bad = type != type2 ? differ(i, "another kind of HDU") : same_cards(a, b, i, &status);
        if (!bad)
            bad = type == IMAGE_HDU ? same_image(a, b, i, &status) : same_table(a, b, i, type, &status);
    }
    if (status)
        fits_report_error(stdout, status);
    if (a)
        fits_close_file(a, &status);
    if (b)
        fits_close_file(b, &status);
    return bad || status != 0;
}
