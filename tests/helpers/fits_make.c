/* fits_make KIND FILE: FITS files for tests, made with CFITSIO.
 *     types    images of all types and table columns of all types, variable-length ones too
 *     tiles    tile-compressed images: RICE, GZIP, HCOMPRESS, PLIO; integers and quantised floats
 *     wide     a table of 999 columns with long names: more than HDF5 can describe
 *     psf2     reads a DESI PSF file of version 3 (fits_make psf2 FILE PSF) and gives it the layout that version 2 had
 *              first: one table, rows X and Y for the traces, a wavelength range in every row
 *     boss     reads an SDSS spectrum (fits_make boss FILE SPECTRUM) and adds two exposures of two cameras, which hold
 * half of the information each, on pixels of their own Exit status 0, or 1 with a message. */
#include <fitsio.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { NROW = 5, NX = 40, NY = 30 };

/* Image of NX*NY made-up values at most, written as values of `type`. */
static void image(fitsfile *f, int bitpix, int type, int ndim, long *dims, const char *name, int *status)
{
    static unsigned char bytes[NX * NY];
    static short small[NX * NY];
    static unsigned short unsign[NX * NY];
    static int whole[NX * NY];
    static float single[NX * NY];
    static double real[NX * NY];
    void *data = type == TBYTE     ? (void *)bytes
                 : type == TSHORT  ? (void *)small
                 : type == TUSHORT ? (void *)unsign
                 : type == TINT    ? (void *)whole
                 : type == TFLOAT  ? (void *)single
                                   : (void *)real;
    long n = ndim > 0;
    for (int i = 0; i < ndim; i++)
        n *= dims[i];
    for (long i = 0; i < NX * NY; i++) {
        bytes[i] = (unsigned char)(i * 7);
        small[i] = (short)(i * 37 % 100);
        unsign[i] = (unsigned short)(i * 37 % 60000);
        whole[i] = (int)(i * 37 % 100);
        real[i] = 100.0 * sin((double)i);
        single[i] = (float)real[i];
    }
    fits_create_img(f, bitpix, ndim, dims, status);
    if (name)
        fits_write_key(f, TSTRING, "EXTNAME", (void *)(size_t)name, NULL, status);
    if (n > 0)
        fits_write_img(f, type, 1, n, data, status);
}

static void types(fitsfile *f, int *status)
{
    long none[1] = {0}, flat[2] = {NX, NY}, five[5] = {2, 3, 1, 4, 5}, zero[2] = {3, 0};
    image(f, BYTE_IMG, TBYTE, 0, none, NULL, status);
    image(f, BYTE_IMG, TBYTE, 2, flat, "U8", status);
    image(f, SBYTE_IMG, TINT, 2, flat, "S8", status);
    image(f, SHORT_IMG, TINT, 2, flat, "S16", status);
    image(f, USHORT_IMG, TINT, 2, flat, "U16", status);
    image(f, LONG_IMG, TINT, 2, flat, "S32", status);
    image(f, ULONG_IMG, TINT, 2, flat, "U32", status);
    image(f, LONGLONG_IMG, TINT, 2, flat, "S64", status);
    image(f, ULONGLONG_IMG, TINT, 2, flat, "U64", status);
    image(f, FLOAT_IMG, TDOUBLE, 2, flat, "F32", status);
    image(f, DOUBLE_IMG, TDOUBLE, 5, five, "FIVE AXES", status);
    image(f, FLOAT_IMG, TDOUBLE, 2, zero, "NO PIXELS", status);
    fits_create_img(f, SHORT_IMG, 2, flat, status);
    double scale = 0.5, offset = 10.0;
    int blank = -32768;
    fits_write_key(f, TDOUBLE, "BSCALE", &scale, NULL, status);
    fits_write_key(f, TDOUBLE, "BZERO", &offset, NULL, status);
    fits_write_key(f, TINT, "BLANK", &blank, NULL, status);
    fits_write_key_longstr(
        f, "LONGKEY",
        "a text that is so long that it goes on in a second card, as the convention has it, and in a "
        "third, since it's longer still",
        "comment", status);
    fits_write_comment(f, "and a comment", status);
    double v[6] = {1.0, NAN, 12.5, 10.0, -3.0, 100.0}, null = NAN;
    fits_set_hdustruc(f, status);
    fits_write_imgnull(f, TDOUBLE, 1, 6, v, &null, status);

    static char *name[] = {"L",  "X", "B", "SB", "I", "UI",     "J",  "UJ", "K",  "UK",      "A",
                           "AA", "E", "D", "C",  "M", "SCALED", "PJ", "QD", "PA", "NOTHING", "l"};
    static char *form[] = {"1L",   "11X", "1B", "1S", "3I", "1U", "1J",  "1V",  "1K",  "1W", "9A",
                           "12A4", "1E",  "6D", "1C", "2M", "1J", "1PJ", "1QD", "1PA", "0J", "1J"};
    enum { NCOL = sizeof name / sizeof *name };
    fits_create_tbl(f, BINARY_TBL, NROW, NCOL, name, form, NULL, "ALL", status);
    fits_write_key(f, TSTRING, "TDIM14", (void *)(size_t) "(2,3)", NULL, status);
    fits_write_key(f, TSTRING, "TUNIT13", (void *)(size_t) "km/s", NULL, status);
    fits_write_key(f, TDOUBLE, "TSCAL17", &scale, NULL, status);
    fits_write_key(f, TDOUBLE, "TZERO17", &offset, NULL, status);
    fits_write_key(f, TINT, "TNULL7", &blank, NULL, status);
    fits_set_hdustruc(f, status);
    for (long r = 1; r <= NROW; r++) {
        char logical[1] = {r == 2}, bits[11] = {1, 0, 1};
        char *text[1] = {r == 3 ? "" : "text it's"};
        unsigned long long huge = 18446744073709551000ull + (unsigned long long)r;
        long long whole[9] = {r, -r, 3, 4, 5, 6, 7, 8, 9};
        double real[12] = {r == 4 ? NAN : 0.1, -0.0, INFINITY, 4, 5, 6, 7, 8, 9, 10, 11, 12};
        long long positive[3] = {60000, 4000000000, 9};
        fits_write_col(f, TLOGICAL, 1, r, 1, 1, logical, status);
        fits_write_col(f, TBIT, 2, r, 1, 11, bits, status);
        fits_write_col(f, TLONGLONG, 3, r, 1, 1, whole, status);
        fits_write_col(f, TLONGLONG, 4, r, 1, 1, whole + 1, status);
        fits_write_col(f, TLONGLONG, 5, r, 1, 3, whole, status);
        fits_write_col(f, TLONGLONG, 6, r, 1, 1, positive, status);
        fits_write_col(f, TLONGLONG, 7, r, 1, 1, whole, status);
        fits_write_col(f, TLONGLONG, 8, r, 1, 1, positive + 1, status);
        fits_write_col(f, TLONGLONG, 9, r, 1, 1, whole, status);
        fits_write_col(f, TULONGLONG, 10, r, 1, 1, &huge, status);
        fits_write_col(f, TSTRING, 11, r, 1, 1, text, status);
        fits_write_col(f, TSTRING, 12, r, 1, 1, text, status);
        fits_write_col(f, TDOUBLE, 13, r, 1, 1, real, status);
        fits_write_col(f, TDOUBLE, 14, r, 1, 6, real, status);
        fits_write_col(f, TDBLCOMPLEX, 15, r, 1, 1, real, status);
        fits_write_col(f, TDBLCOMPLEX, 16, r, 1, 2, real, status);
        fits_write_col(f, TLONGLONG, 17, r, 1, 1, whole, status);
        if (r != 3) {
            fits_write_col(f, TLONGLONG, 18, r, 1, r, whole, status);
            fits_write_col(f, TDOUBLE, 19, r, 1, 2 * r, real, status);
            fits_write_col(f, TSTRING, 20, r, 1, 1, text, status);
        }
    }
    static char *cols[] = {"A", "B"}, *forms[] = {"1D", "20A"}, *ascii[] = {"F10.3", "A7"};
    fits_create_tbl(f, BINARY_TBL, 0, 2, cols, forms, NULL, "NO ROWS", status);
    fits_create_tbl(f, ASCII_TBL, 2, 2, cols, ascii, NULL, "ASCII", status);
    double x[2] = {1.5, -2.25};
    char *s[2] = {"one", "two"};
    fits_write_col(f, TDOUBLE, 1, 1, 1, 2, x, status);
    fits_write_col(f, TSTRING, 2, 1, 1, 2, s, status);
}

static void tiles(fitsfile *f, int *status)
{
    static const int kind[] = {RICE_1, GZIP_1, GZIP_2, HCOMPRESS_1, PLIO_1};
    static const char *const name[] = {"RICE", "GZIP", "GZIP2", "HCOMPRESS", "PLIO"};
    long flat[2] = {NX, NY};
    for (int i = 0; i < 5; i++) {
        char text[32];
        fits_set_compression_type(f, kind[i], status);
        snprintf(text, sizeof text, "%s INTEGER", name[i]);
        image(f, kind[i] == PLIO_1 ? SHORT_IMG : LONG_IMG, kind[i] == PLIO_1 ? TSHORT : TINT, 2, flat, text, status);
        if (kind[i] == PLIO_1)
            continue;
        snprintf(text, sizeof text, "%s UNSIGNED", name[i]);
        image(f, USHORT_IMG, TUSHORT, 2, flat, text, status);
        snprintf(text, sizeof text, "%s FLOAT", name[i]);
        fits_set_quantize_level(f, 16.0f, status);
        image(f, FLOAT_IMG, TFLOAT, 2, flat, text, status);
    }
}

static void wide(fitsfile *f, int *status)
{
    enum { NCOL = 999 };
    static char text[NCOL][64];
    static char *name[NCOL], *form[NCOL];
    for (int i = 0; i < NCOL; i++) {
        snprintf(text[i], sizeof text[i], "A_RATHER_LONG_COLUMN_NAME_THAT_FILLS_THE_OBJECT_HEADER_%04d", i);
        name[i] = text[i];
        form[i] = "1J";
    }
    fits_create_tbl(f, BINARY_TBL, 2, NCOL, name, form, NULL, "WIDE", status);
    for (int i = 0; i < NCOL; i++)
        fits_write_col(f, TINT, i + 1, 1, 1, 2, (int[]){i, -i}, status);
}

static void psf2(fitsfile *f, const char *from, int *status)
{
    enum { MOST = 1 << 20 };
    static double coeff[MOST], wide[MOST];
    static char text[80];
    char *param[1] = {text};
    static char *name[] = {"PARAM", "WAVEMIN", "WAVEMAX", "COEFF"};
    char form[32];
    char *forms[] = {"8A", "1D", "1D", form};
    static const char *const keys[] = {"FIBERMIN", "FIBERMAX", "NPIX_X", "NPIX_Y",
                                       "HSIZEX",   "HSIZEY",   "GHDEGX", "GHDEGY"};
    fitsfile *in = NULL;
    long size[2] = {0, 0}, nrow = 0, key = 0;
    double range[2] = {0, 0};
    int ncoeff = 0, type = 0;
    fits_open_diskfile(&in, from, READONLY, status);
    fits_movnam_hdu(in, IMAGE_HDU, "XTRACE", 0, status);
    fits_get_img_size(in, 2, size, status);
    const long ncoef = size[0], nspec = size[1];
    fits_movnam_hdu(in, BINARY_TBL, "PSF", 0, status);
    fits_get_num_rows(in, &nrow, status);
    fits_get_colnum(in, CASEINSEN, "COEFF", &ncoeff, status);
    long repeat = 0, width = 0;
    fits_get_coltype(in, ncoeff, &type, &repeat, &width, status);
    const long ndeg = *status || nspec == 0 ? 0 : repeat / nspec, most = ncoef > ndeg ? ncoef : ndeg;
    if (*status || most * nspec > MOST)
        return;
    snprintf(form, sizeof form, "%ldD", most * nspec);
    fits_create_img(f, BYTE_IMG, 0, NULL, status);
    fits_write_key(f, TSTRING, "PSFTYPE", (void *)(size_t) "GAUSS-HERMITE", NULL, status);
    fits_write_key(f, TSTRING, "PSFVER", (void *)(size_t) "2", NULL, status);
    fits_create_tbl(f, BINARY_TBL, 0, 4, name, forms, NULL, NULL, status);
    fits_write_key(f, TSTRING, "PSFTYPE", (void *)(size_t) "GAUSS-HERMITE", NULL, status);
    fits_write_key(f, TSTRING, "PSFVER", (void *)(size_t) "2", NULL, status);
    for (size_t k = 0; k < sizeof keys / sizeof *keys; k++) {
        fits_read_key(in, TLONG, keys[k], &key, NULL, status);
        fits_write_key(f, TLONG, keys[k], &key, NULL, status);
    }
    for (long r = 0; r < nrow + 2 && *status == 0; r++) { /* X in the middle, Y at the end */
        const int trace = r == nrow / 2 ? 0 : r == nrow + 1 ? 1 : -1;
        const long degree = trace < 0 ? ndeg : ncoef;
        if (trace < 0)
            fits_movnam_hdu(in, BINARY_TBL, "PSF", 0, status);
        else
            fits_movnam_hdu(in, IMAGE_HDU, (char *)(size_t)(trace ? "YTRACE" : "XTRACE"), 0, status);
        fits_read_key(in, TDOUBLE, "WAVEMIN", &range[0], NULL, status);
        fits_read_key(in, TDOUBLE, "WAVEMAX", &range[1], NULL, status);
        if (trace < 0) {
            const long from_row = r < nrow / 2 ? r + 1 : r;
            fits_read_col(in, TSTRING, 1, from_row, 1, 1, NULL, param, NULL, status);
            fits_read_col(in, TDOUBLE, ncoeff, from_row, 1, repeat, NULL, coeff, NULL, status);
        } else {
            snprintf(text, sizeof text, "%s", trace ? "Y" : "X");
            fits_read_img(in, TDOUBLE, 1, ncoef * nspec, NULL, coeff, NULL, status);
        }
        for (long s = 0; s < nspec; s++)
            for (long k = 0; k < most; k++)
                wide[s * most + k] = k < degree ? coeff[s * degree + k] : 0.0;
        fits_write_col(f, TSTRING, 1, r + 1, 1, 1, param, status);
        fits_write_col(f, TDOUBLE, 2, r + 1, 1, 1, &range[0], status);
        fits_write_col(f, TDOUBLE, 3, r + 1, 1, 1, &range[1], status);
        fits_write_col(f, TDOUBLE, 4, r + 1, 1, most * nspec, wide, status);
    }
    fits_close_file(in, status);
}

static void boss(fitsfile *f, const char *from, int *status)
{
    enum { MOST = 1 << 16, CAMERAS = 2, EXPOSURES = 2 };
    static char *name[] = {"flux", "loglam", "ivar", "mask"}, *forms[] = {"1E", "1E", "1E", "1J"};
    static float value[3][MOST];
    static int mask[MOST];
    fitsfile *in = NULL;
    long n = 0;
    fits_open_diskfile(&in, from, READONLY, status);
    for (int hdu = 1; hdu <= 2; hdu++) {
        fits_movabs_hdu(in, hdu, NULL, status);
        fits_copy_hdu(in, f, 0, status);
    }
    fits_get_num_rows(in, &n, status);
    for (int c = 0; c < 3; c++) {
        int col = 0;
        fits_get_colnum(in, CASEINSEN, name[c], &col, status);
        fits_read_col(in, TFLOAT, col, 1, 1, n < MOST ? n : MOST, NULL, value[c], NULL, status);
    }
    fits_close_file(in, status);
    if (n > MOST)
        n = MOST;
    for (long i = 0; i < n; i++)
        value[2][i] /= EXPOSURES;
    for (int k = 0; k < CAMERAS * EXPOSURES && *status == 0; k++) {
        const int red = k / EXPOSURES, exposure = k % EXPOSURES;
        const long first = red ? n / 2 : 0, last = red ? n : n / 2; /* the ends differ */
        const long at = first + 3 * exposure, rows = last - exposure - at;
        char extname[32];
        snprintf(extname, sizeof extname, "%c1-0000000%d", red ? 'R' : 'B', exposure + 1);
        fits_create_tbl(f, BINARY_TBL, 0, 4, name, forms, NULL, extname, status);
        for (int c = 0; c < 3; c++)
            fits_write_col(f, TFLOAT, c + 1, 1, 1, rows, value[c] + at, status);
        fits_write_col(f, TINT, 4, 1, 1, rows, mask, status);
    }
}

int main(int argc, char **argv)
{
    fitsfile *f = NULL;
    int status = 0;
    if (argc != 3 && !(argc == 4 && (strcmp(argv[1], "psf2") == 0 || strcmp(argv[1], "boss") == 0)))
        return 1;
    fits_create_diskfile(&f, argv[2], &status);
    if (strcmp(argv[1], "types") == 0)
        types(f, &status);
    else if (strcmp(argv[1], "tiles") == 0)
        tiles(f, &status);
    else if (strcmp(argv[1], "wide") == 0)
        wide(f, &status);
    else if (strcmp(argv[1], "psf2") == 0 && argc == 4)
        psf2(f, argv[3], &status);
    else if (strcmp(argv[1], "boss") == 0 && argc == 4)
        boss(f, argv[3], &status);
    else
        return 1;
    for (int i = 1, n = 0; status == 0 && fits_get_num_hdus(f, &n, &status) == 0 && i <= n; i++)
        if (fits_movabs_hdu(f, i, NULL, &status) == 0 && i % 2 == 0)
            fits_write_chksum(f, &status);
    fits_close_file(f, &status);
    if (status)
        fits_report_error(stdout, status);
    return status != 0;
}
