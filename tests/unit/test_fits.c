/* Checks reading of FITS files made by hand, their restoration from HDF5 byte for byte, and that files that contradict
 * themselves are refused with a message that names the place. */
#include <hdf5.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "convert/hdf5.h"
#include "convert/table_h5.h"
#include "expect.h"
#include "fits/values.h"
#include "h5/table.h"

enum { ROOM = 64 * 2880 };

static unsigned char file[ROOM];
static size_t nfile;

static void pad(char fill)
{
    while (nfile % 2880 != 0)
        file[nfile++] = (unsigned char)fill;
}

/* Append a header: cards separated by '|', END added. */
static void header(const char *cards)
{
    while (*cards) {
        size_t n = strcspn(cards, "|");
        memset(file + nfile, ' ', 80);
        memcpy(file + nfile, cards, n);
        nfile += 80;
        cards += n + (cards[n] == '|');
    }
    memset(file + nfile, ' ', 80);
    memcpy(file + nfile, "END", 3);
    nfile += 80;
    pad(' ');
}

/* Append n bytes that count up, and padding. */
static void data(size_t n)
{
    for (size_t i = 0; i < n; i++)
        file[nfile++] = (unsigned char)(i * 37 + 11);
    pad(0);
}

#define PRIMARY "SIMPLE  =                    T|BITPIX  =                    8|NAXIS   =                    0"
#define IMAGE   "XTENSION= 'IMAGE   '|BITPIX  =                   16|NAXIS   =                    1|"
#define TABLE   "XTENSION= 'BINTABLE'|BITPIX  =                    8|NAXIS   =                    2|"

/* Parse, put into an HDF5 file in memory, write back, compare. */
static void round_trip(const char *name)
{
    spx_fits f;
    spx_err e = {0};
    char path[] = "/tmp/test_fits_XXXXXX";
    unsigned char *back = malloc(ROOM);
    if (spx_fits_parse(&f, name, file, nfile, &e) != SPX_OK) {
        EXPECT(0, "%s: not read: %s", name, spx_err_text(&e));
        free(back);
        return;
    }
    hid_t fapl = H5Pcreate(H5P_FILE_ACCESS);
    H5Pset_fapl_core(fapl, 1 << 16, 0);
    hid_t h5 = H5Fcreate("memory", H5F_ACC_TRUNC, H5P_DEFAULT, fapl);
    EXPECT(spx_fits_store(h5, &f, "generic", NULL, &e) == SPX_OK, "%s: not stored: %s", name, spx_err_text(&e));
    int fd = mkstemp(path);
    unlink(path);
    spx_fits_out out = {.fd = fd, .name = "back"};
    char group[200];
    snprintf(group, sizeof group, "/fits/%s", name);
    EXPECT(spx_fits_restore(h5, group, &out, &e) == SPX_OK, "%s: not restored: %s", name, spx_err_text(&e));
    EXPECT(out.at == nfile, "%s: %zu bytes came back of %zu", name, out.at, nfile);
    ssize_t got = pread(fd, back, ROOM, 0);
    EXPECT(got == (ssize_t)nfile && memcmp(back, file, nfile) == 0, "%s: other bytes came back", name);
    close(fd);
    H5Fclose(h5);
    H5Pclose(fapl);
    spx_fits_close(&f);
    free(back);
}

/* The file in `file` must be refused with a message that holds `text`. */
static void refused(const char *what, const char *text)
{
    spx_fits f;
    spx_err e = {0};
    unsigned char *exact = malloc(nfile ? nfile : 1); /* so that a sanitizer sees what is read beyond */
    memcpy(exact, file, nfile);
    spx_status st = spx_fits_parse(&f, "bad.fits", exact, nfile, &e);
    EXPECT(st == SPX_EINPUT && strstr(spx_err_text(&e), text) && strstr(spx_err_text(&e), "bad.fits"),
           "%s: status %d, message '%s', not '%s'", what, st, spx_err_text(&e), text);
    spx_fits_close(&f);
    free(exact);
}

static void hostile(void)
{
    static const struct {
        const char *what, *cards, *text;
        size_t ndata;
    } bad[] = {
        {"NAXIS1 overflows", IMAGE "NAXIS1  =  9223372036854775807", "NAXISn", 0},
        {"product overflows",
         "XTENSION= 'IMAGE   '|BITPIX  = 64|NAXIS   = 3|NAXIS1  = 4294967296|NAXIS2  = 4294967296|NAXIS3  = 9",
         "NAXISn", 0},
        {"NAXIS1 negative", IMAGE "NAXIS1  = -5", "NAXIS1 = -5", 0},
        {"NAXIS1 no number", IMAGE "NAXIS1  = 'five'", "NAXIS1", 0},
        {"NAXIS1 missing", "XTENSION= 'IMAGE   '|BITPIX  = 16|NAXIS   = 1", "NAXIS1", 0},
        {"NAXIS too large", "XTENSION= 'IMAGE   '|BITPIX  = 16|NAXIS   = 1000", "NAXIS", 0},
        {"BITPIX impossible", "XTENSION= 'IMAGE   '|BITPIX  = 12|NAXIS   = 0", "BITPIX", 0},
        {"PCOUNT negative", TABLE "NAXIS1  = 4|NAXIS2  = 2|PCOUNT  = -8|GCOUNT  = 1|TFIELDS = 1|TFORM1  = 'J'",
         "PCOUNT", 8},
        {"PCOUNT of two numbers", TABLE "NAXIS1  = 4|NAXIS2  = 2|PCOUNT  = 1 6|GCOUNT  = 1|TFIELDS = 1|TFORM1  = 'J'",
         "PCOUNT", 24},
        {"THEAP no number", TABLE "NAXIS1  = 4|NAXIS2  = 2|PCOUNT  = 16|THEAP   = 0x8|TFIELDS = 1|TFORM1  = 'J'",
         "THEAP", 24},
        {"PCOUNT beyond the file",
         TABLE "NAXIS1  = 4|NAXIS2  = 2|PCOUNT  = 8000000|GCOUNT  = 1|TFIELDS = 1|TFORM1  = 'J'", "truncated", 8},
        {"data beyond the file", IMAGE "NAXIS1  = 100000", "truncated", 100},
        {"TFORM missing", TABLE "NAXIS1  = 4|NAXIS2  = 2|TFIELDS = 2|TFORM1  = 'J'", "TFORM2", 8},
        {"TFORM nonsense", TABLE "NAXIS1  = 4|NAXIS2  = 2|TFIELDS = 1|TFORM1  = 'Y'", "TFORM1", 8},
        {"TFIELDS too large", TABLE "NAXIS1  = 4|NAXIS2  = 2|TFIELDS = 10000|TFORM1  = 'J'", "TFIELDS", 8},
        {"TFIELDS missing", TABLE "NAXIS1  = 4|NAXIS2  = 2|TFORM1  = 'J'", "TFIELDS", 8},
        {"columns narrower than the row", TABLE "NAXIS1  = 5|NAXIS2  = 2|TFIELDS = 1|TFORM1  = 'J'", "NAXIS1 = 5", 10},
        {"columns wider than the row", TABLE "NAXIS1  = 3|NAXIS2  = 2|TFIELDS = 1|TFORM1  = 'J'", "wider", 6},
        {"repeat count overflows", TABLE "NAXIS1  = 4|NAXIS2  = 2|TFIELDS = 1|TFORM1  = '9223372036854775807M'",
         "wider", 8},
        {"huge repeat count", TABLE "NAXIS1  = 4|NAXIS2  = 2|TFIELDS = 1|TFORM1  = '99999999999999999999999J'", "wider",
         8},
        {"descriptor outside the heap", TABLE "NAXIS1  = 8|NAXIS2  = 2|PCOUNT  = 16|TFIELDS = 1|TFORM1  = '1PJ(4)'",
         "heap", 32},
        {"descriptor without heap", TABLE "NAXIS1  = 16|NAXIS2  = 2|TFIELDS = 1|TFORM1  = 'QE'", "heap", 32},
        {"array of descriptors", TABLE "NAXIS1  = 16|NAXIS2  = 2|TFIELDS = 1|TFORM1  = '2PE'", "TFORM1", 32},
        {"THEAP outside", TABLE "NAXIS1  = 4|NAXIS2  = 2|PCOUNT  = 16|THEAP   = 4000|TFIELDS = 1|TFORM1  = 'J'",
         "THEAP", 24},
        {"THEAP within the rows", TABLE "NAXIS1  = 4|NAXIS2  = 2|PCOUNT  = 16|THEAP   = 4|TFIELDS = 1|TFORM1  = 'J'",
         "THEAP", 24},
        {"table of three dimensions",
         "XTENSION= 'BINTABLE'|BITPIX  = 8|NAXIS   = 3|NAXIS1  = 4|NAXIS2  = 1|NAXIS3  = 1|TFIELDS = 1|TFORM1  = 'J'",
         "NAXIS", 8},
        {"compressed image without ZBITPIX",
         TABLE "NAXIS1  = 8|NAXIS2  = 0|TFIELDS = 1|TFORM1  = '1PB(4)'|ZIMAGE  =                    T", "ZBITPIX", 0},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        nfile = 0;
        header(PRIMARY);
        header(bad[i].cards);
        data(bad[i].ndata);
        refused(bad[i].what, bad[i].text);
    }
    nfile = 0;
    refused("empty", "no FITS file");
    memcpy(file, "PK\3\4 something else", nfile = 19);
    refused("not FITS", "no FITS file");
    nfile = 0;
    header(PRIMARY);
    memset(file + 3 * 80, ' ', 80); /* END gone */
    refused("no END", "truncated");
    nfile = 0;
    header(PRIMARY);
    header(IMAGE "NAXIS1  = 10");
    data(20);
    for (size_t n = 80; n < nfile; n += 79) { /* every truncation is seen, but for one between HDUs */
        spx_fits f;
        spx_err e = {0};
        unsigned char *exact = malloc(n);
        memcpy(exact, file, n);
        spx_status st = spx_fits_parse(&f, "cut.fits", exact, n, &e);
        EXPECT((st == SPX_OK) == (n == 2880) && (n == 2880 || strstr(spx_err_text(&e), "truncated")),
               "cut at %zu: status %d %s", n, st, spx_err_text(&e));
        spx_fits_close(&f);
        free(exact);
    }
}

/* Decoding of compressed images that are damaged fails, and says so. */
static void damaged_tiles(void)
{
    spx_fits f;
    spx_err e = {0};
    nfile = 0;
    header(PRIMARY);
    header(
        TABLE
        "NAXIS1  = 8|NAXIS2  = 2|PCOUNT  = 40|GCOUNT  = 1|TFIELDS = 1|TTYPE1  = 'COMPRESSED_DATA'|TFORM1  = '1PB(20)'|"
        "ZIMAGE  =                    T|ZBITPIX = 32|ZNAXIS  = 2|ZNAXIS1 = 16|ZNAXIS2 = 2|ZTILE1  = 16|ZTILE2  = 1|"
        "ZCMPTYPE= 'GZIP_1  '");
    static const unsigned char rows[16] = {0, 0, 0, 20, 0, 0, 0, 0, 0, 0, 0, 20, 0, 0, 0, 20};
    memcpy(file + nfile, rows, sizeof rows);
    nfile += sizeof rows;
    data(40);
    EXPECT(spx_fits_parse(&f, "tiles.fits", file, nfile, &e) == SPX_OK, "tiles: %s", spx_err_text(&e));
    EXPECT(f.hdu[1].kind == SPX_FITS_TILED && f.hdu[1].nelem == 32, "not seen as a compressed image");
    EXPECT(!spx_fits_raw(&f, 1, &e) && e.code == SPX_EINPUT && strstr(spx_err_text(&e), "cannot be decoded"),
           "damaged tiles: %s", spx_err_text(&e));
    spx_fits_close(&f);
    /* an image that no machine holds is refused before anything is allocated */
    memset(&e, 0, sizeof e);
    nfile = 0;
    header(PRIMARY);
    header(
        TABLE
        "NAXIS1  = 8|NAXIS2  = 0|PCOUNT  = 0|GCOUNT  = 1|TFIELDS = 1|TTYPE1  = 'COMPRESSED_DATA'|TFORM1  = '1PB(20)'|"
        "ZIMAGE  =                    T|ZBITPIX = 32|ZNAXIS  = 2|ZNAXIS1 = 1000000000|ZNAXIS2 = 1000000|ZCMPTYPE= "
        "'RICE_1  '");
    EXPECT(spx_fits_parse(&f, "huge.fits", file, nfile, &e) == SPX_OK, "huge: %s", spx_err_text(&e));
    EXPECT(!spx_fits_raw(&f, 1, &e) && e.code == SPX_EIO, "huge: status %d", e.code);
    spx_fits_close(&f);
}

static void values(void)
{
    spx_fits f;
    spx_err e = {0};
    double *d = NULL;
    float *x = NULL;
    uint32_t *u = NULL;
    nfile = 0;
    header("SIMPLE  =                    T|BITPIX  =                   16|NAXIS   =                    2|NAXIS1  = "
           "2|NAXIS2  = 3|"
           "BZERO   =                32768|BLANK   = -32768|EXTNAME = 'UNSIGNED'");
    static const unsigned char v[12] = {0x80, 0, 0x80, 1, 0, 0, 0x7f, 0xff, 0xff, 0xff, 0, 1};
    memcpy(file + nfile, v, 12);
    nfile += 12;
    pad(0);
    header("XTENSION= 'IMAGE   '|BITPIX  =                  -32|NAXIS   = 1|NAXIS1  = 2|BSCALE  = 2.0|BZERO   = 1.0");
    static const unsigned char w[8] = {0x3f, 0x80, 0, 0, 0x7f, 0xc0, 0, 1};
    memcpy(file + nfile, w, 8);
    nfile += 8;
    pad(0);
    header(IMAGE "NAXIS1  = 2");
    static const unsigned char m[4] = {0xff, 0xff, 0, 7};
    memcpy(file + nfile, m, 4);
    nfile += 4;
    pad(0);
    EXPECT(spx_fits_parse(&f, "values.fits", file, nfile, &e) == SPX_OK, "values: %s", spx_err_text(&e));
    EXPECT(f.nhdu == 3 && f.hdu[0].dims[0] == 3 && f.hdu[0].dims[1] == 2 && f.hdu[0].flip, "shape");
    EXPECT(spx_fits_find(&f, "unsigned") == 0 && spx_fits_find(&f, "other") == -1, "find");
    EXPECT(spx_fits_f64(&f, 0, &d, &e) == SPX_OK && isnan(d[0]) && d[1] == 1.0 && d[2] == 32768.0 && d[3] == 65535.0 &&
               d[4] == 32767.0 && d[5] == 32769.0,
           "unsigned integers");
    spx_free(d);
    EXPECT(spx_fits_f32(&f, 1, &x, &e) == SPX_OK && x[0] == 3.0f && isnan(x[1]), "scaled floats");
    spx_free(x);
    EXPECT(spx_fits_u32(&f, 2, &u, &e) == SPX_OK && u[0] == 0xffffffffu && u[1] == 7, "mask keeps its bits");
    spx_free(u);
    EXPECT(spx_fits_u32(&f, 1, &u, &e) == SPX_EINPUT, "floats are no mask");
    spx_fits_close(&f);
    round_trip("values");
}

/* What a double cannot tell apart: null values of 64 bits are compared as integers. */
static void exact(void)
{
    enum { N = 4 };
    static const int64_t whole[N] = {INT64_MIN, INT64_MIN + 1, 1152921504606846976, 1152921504606846977};
    static const struct {
        const char *null;
        size_t at;
    } nulls[] = {{"-9223372036854775808", 0}, {"1152921504606846977", 3}};
    for (size_t i = 0; i < sizeof nulls / sizeof *nulls; i++) {
        spx_fits f;
        spx_err e = {0};
        char cards[600];
        double *d = NULL;
        size_t n = 0;
        nfile = 0;
        header(PRIMARY);
        for (int column = 0; column < 2; column++) {
            if (column)
                snprintf(cards, sizeof cards,
                         TABLE "NAXIS1  = 8|NAXIS2  = %d|PCOUNT  = 0|GCOUNT  = 1|TFIELDS = 1|TTYPE1  = 'K'|TFORM1  = "
                               "'K'|TNULL1  = %s",
                         N, nulls[i].null);
            else
                snprintf(cards, sizeof cards, "XTENSION= 'IMAGE   '|BITPIX  = 64|NAXIS   = 1|NAXIS1  = %d|BLANK   = %s",
                         N, nulls[i].null);
            header(cards);
            for (size_t k = 0; k < N; k++)
                for (int byte = 7; byte >= 0; byte--)
                    file[nfile++] = (unsigned char)((uint64_t)whole[k] >> 8 * byte);
            pad(0);
        }
        EXPECT(spx_fits_parse(&f, "null.fits", file, nfile, &e) == SPX_OK, "null: %s", spx_err_text(&e));
        for (int column = 0; column < 2; column++) {
            spx_status st = column ? spx_fits_column_f64(&f, 2, "K", &n, &d, &e) : spx_fits_f64(&f, 1, &d, &e);
            for (size_t k = 0; st == SPX_OK && k < N; k++)
                EXPECT(k == nulls[i].at ? isnan(d[k]) : d[k] == (double)whole[k], "null %s, %s, element %zu: %g",
                       nulls[i].null, column ? "column" : "image", k, d[k]);
            EXPECT(st == SPX_OK, "null: %s", spx_err_text(&e));
            spx_free(d);
        }
        spx_fits_close(&f);
    }
}

/* Complex columns of a table, scalar and array, become C and M and come back. */
static void complex_columns(void)
{
    static const struct {
        char code;
        const char *form;
        size_t size, repeat;
    } kinds[] = {{'C', "C", 4, 1}, {'M', "M", 8, 1}, {'C', "3C", 4, 3}, {'M', "3M", 8, 3}};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        enum { NROW = 2 };
        const size_t width = 2 * kinds[i].size * kinds[i].repeat, n = 2 * NROW * kinds[i].repeat;
        hid_t part = kinds[i].size == 4 ? H5T_NATIVE_FLOAT : H5T_NATIVE_DOUBLE;
        hid_t pair = H5Tcreate(H5T_COMPOUND, 2 * kinds[i].size), column = pair, row = H5Tcreate(H5T_COMPOUND, width);
        H5Tinsert(pair, "r", 0, part);
        H5Tinsert(pair, "i", kinds[i].size, part);
        if (kinds[i].repeat > 1)
            column = H5Tarray_create2(pair, 1, (hsize_t[]){kinds[i].repeat});
        H5Tinsert(row, "Z", 0, column);
        spx_err e = {0};
        spx_fits f;
        spx_table *t = spx_table_new(NROW, &e);
        t->type = row;
        t->rowsize = width;
        t->rows = spx_alloc(NROW, width, &e);
        for (size_t k = 0; k < n; k++) {
            const double d = 1.5 - (double)k;
            const float x = (float)d;
            memcpy(t->rows + k * kinds[i].size, kinds[i].size == 4 ? (const void *)&x : &d, kinds[i].size);
        }
        char path[] = "/tmp/test_fits_XXXXXX", form[16];
        int fd = mkstemp(path);
        unlink(path);
        spx_fits_out out = {.fd = fd, .name = "complex"};
        EXPECT(spx_fits_out_image(&out, NULL, 8, 0, NULL, NULL, NULL, &e) == SPX_OK &&
                   spx_fits_out_table(&out, "Z", t, NULL, &e) == SPX_OK,
               "%s: not written: %s", kinds[i].form, spx_err_text(&e));
        nfile = out.at;
        EXPECT(nfile < ROOM && pread(fd, file, nfile, 0) == (ssize_t)nfile, "%s: not read", kinds[i].form);
        close(fd);
        EXPECT(spx_fits_parse(&f, "complex.fits", file, nfile, &e) == SPX_OK && f.hdu[1].ncol == 1 &&
                   f.hdu[1].col[0].code == kinds[i].code && spx_cards_string(&f.hdu[1].header, "TFORM1", form, 16) &&
                   strcmp(form, kinds[i].form) == 0,
               "%s: other column: %s", kinds[i].form, spx_err_text(&e));
        for (size_t k = 0; f.nhdu == 2 && k < n; k++) {
            const uint64_t v = spx_fits_integer(file + f.hdu[1].data_at + k * kinds[i].size, kinds[i].size);
            const uint32_t u = (uint32_t)v;
            double d;
            float x;
            memcpy(&d, &v, sizeof d);
            memcpy(&x, &u, sizeof x);
            EXPECT((kinds[i].size == 4 ? (double)x : d) == 1.5 - (double)k, "%s: number %zu", kinds[i].form, k);
        }
        spx_fits_close(&f);
        spx_table_free(t);
        if (column != pair)
            H5Tclose(column);
        H5Tclose(pair);
    }
}

static void tables(void)
{
    spx_fits f;
    spx_err e = {0};
    spx_table *t = NULL;
    nfile = 0;
    header(PRIMARY);
    header(
        TABLE
        "NAXIS1  = 40|NAXIS2  = 3|PCOUNT  = 50|GCOUNT  = 1|THEAP   = 130|TFIELDS = 10|"
        "TTYPE1  = 'a'|TFORM1  = 'L'|TTYPE2  = 'A'|TFORM2  = '9X'|TFORM3  = 'I'|TZERO3  = 32768|TTYPE4  = '  '|TFORM4  "
        "= '3A'|"
        "TTYPE5  = 'VECTOR'|TFORM5  = '6B'|TDIM5   = '( 3, 2)'|TTYPE6  = 'C/D'|TFORM6  = 'C'|TUNIT6  = 'km/s'|"
        "TTYPE7  = 'none'|TFORM7  = '0J'|TTYPE8  = 'strings'|TFORM8  = '6A2'|TTYPE9  = 'E'|TFORM9  = 'E'|TSCAL9  = 2.5|"
        "TTYPE10 = 'VLA'|TFORM10 = '1PI(5)'");
    for (unsigned char r = 0; r < 3; r++) {
        unsigned char *row = file + nfile;
        memset(row, 0, 40);
        row[0] = r == 1 ? 'F' : 'T';
        row[1] = 0xaa;
        row[3] = 0x80;
        row[4] = r;
        memcpy(row + 5, "ab ", 3);
        for (unsigned char k = 0; k < 6; k++)
            row[8 + k] = k;
        memcpy(row + 22, "xyzwvu", 6);
        row[28] = 0x40;
        row[35] = r; /* r elements */
        row[39] = (unsigned char)(2 * r);
        nfile += 40;
    }
    for (unsigned char i = 0; i < 50; i++)
        file[nfile++] = i;
    pad(0);
    EXPECT(spx_fits_parse(&f, "table.fits", file, nfile, &e) == SPX_OK, "table: %s", spx_err_text(&e));
    const spx_fits_hdu *h = &f.hdu[1];
    EXPECT(h->kind == SPX_FITS_BINTABLE && h->ncol == 10 && h->nrow == 3 && h->theap == 10, "table structure");
    EXPECT(strcmp(h->col[1].name, "A_2") == 0 && strcmp(h->col[2].name, "COL3") == 0 &&
               strcmp(h->col[3].name, "COL4") == 0,
           "names: %s %s %s", h->col[1].name, h->col[2].name, h->col[3].name);
    EXPECT(h->col[4].ndim == 2 && h->col[4].dims[0] == 2 && h->col[4].dims[1] == 3, "TDIM");
    EXPECT(h->col[7].ndim == 1 && h->col[7].dims[0] == 3 && h->col[7].size == 2, "rAw");
    EXPECT(spx_fits_table(&f, 1, &t, &e) == SPX_OK && t, "as a table: %s", spx_err_text(&e));
    if (t) {
        double v[3];
        int64_t b[3];
        EXPECT(spx_table_ncol(t) == 9, "%zu columns", spx_table_ncol(t));
        EXPECT(spx_table_get_i64(t, "a", b, &e) == SPX_OK && b[0] == 1 && b[1] == 0, "logical");
        EXPECT(spx_table_get_f64(t, "COL3", v, &e) == SPX_OK && v[0] == 0.0 && v[2] == 2.0, "unsigned column");
        spx_table_free(t);
    }
    double *v = NULL;
    size_t n = 0;
    EXPECT(spx_fits_column_f64(&f, 1, "e", &n, &v, &e) == SPX_OK && n == 1 && v[0] == 5.0, "scaled column");
    spx_free(v);
    char *s = NULL;
    EXPECT(spx_fits_column_str(&f, 1, "COL4", 8, &s, &e) == SPX_OK && strcmp(s, "ab") == 0, "text column");
    spx_free(s);
    EXPECT(spx_fits_column_f64(&f, 1, "COL4", &n, &v, &e) == SPX_EINPUT, "text is no number");
    spx_fits_close(&f);
    round_trip("table");

    /* an L column with a null, tables without rows and without columns, ASCII, unknown and random groups */
    nfile = 0;
    header(
        "SIMPLE  =                    T|BITPIX  =                  -32|NAXIS   = 3|NAXIS1  = 0|NAXIS2  = 2|NAXIS3  = 3|"
        "GROUPS  =                    T|PCOUNT  = 2|GCOUNT  = 4");
    data(4 * (2 + 6) * 4);
    header(TABLE "NAXIS1  = 2|NAXIS2  = 3|TFIELDS = 1|TFORM1  = '2L'");
    data(6);
    header(TABLE "NAXIS1  = 8|NAXIS2  = 0|TFIELDS = 1|TFORM1  = 'D'");
    header(TABLE "NAXIS1  = 0|NAXIS2  = 0|TFIELDS = 0");
    header(TABLE "NAXIS1  = 0|NAXIS2  = 7|TFIELDS = 1|TFORM1  = '0A'");
    header("XTENSION= 'TABLE   '|BITPIX  = 8|NAXIS   = 2|NAXIS1  = 11|NAXIS2  = 2|PCOUNT  = 0|GCOUNT  = 1|TFIELDS = "
           "1|TBCOL1  = 1|TFORM1  = 'A11'");
    memcpy(file + nfile, "hello worldgoodbye all", 22);
    nfile += 22;
    pad(' ');
    header("XTENSION= 'UNKNOWN '|BITPIX  = 32|NAXIS   = 1|NAXIS1  = 5|PCOUNT  = 3|GCOUNT  = 2");
    data(4 * 2 * (3 + 5));
    header("XTENSION= 'IMAGE   '|BITPIX  = -64|NAXIS   = 9|NAXIS1  = 1|NAXIS2  = 2|NAXIS3  = 1|NAXIS4  = 1|NAXIS5  = "
           "1|NAXIS6  = 1|NAXIS7  = 2|NAXIS8  = 1|NAXIS9  = 1");
    data(32);
    header("XTENSION= 'IMAGE   '|BITPIX  = 8|NAXIS   = 2|NAXIS1  = 0|NAXIS2  = 4|EXTNAME = 'odd / name'");
    round_trip("others");

    /* what padding should not be, and what should not follow */
    nfile = 0;
    header(PRIMARY);
    header(IMAGE "NAXIS1  = 3");
    data(6);
    file[2880 - 10] = 'x';
    file[3 * 80 + 20] = 'z'; /* behind END */
    file[nfile - 10] = 'y';
    memcpy(file + nfile, "trailing", 8);
    nfile += 8;
    round_trip("padding");
}

int main(void)
{
    H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
    values();
    exact();
    complex_columns();
    tables();
    hostile();
    damaged_tiles();
    H5close();
    return failures != 0;
}
