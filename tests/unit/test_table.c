/* Checks tables: values, joins, round trip through a file, and refusals. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "check.h"
#include "h5/table.h"

#define REFUSED(call, word)                                                                                            \
    do {                                                                                                               \
        spx_err_clear(&e);                                                                                             \
        (void)(call);                                                                                                  \
        CHECK(e.code == SPX_EINPUT && strstr(spx_err_text(&e), word) != NULL);                                         \
        spx_err_clear(&e);                                                                                             \
    } while (0)

/* FIBER (big-endian int16), NAME (string), FLUX[2] (float), OK (logical) */
static spx_table *sample(int first, size_t width)
{
    spx_table *t = spx_table_new(3, &e);
    unsigned char fiber[6] = {0, (unsigned char)first, 0, (unsigned char)(first + 1), 0, (unsigned char)(first + 2)};
    float flux[6] = {1, 2, 3, 4, 5, 6};
    signed char ok[3] = {1, 0, 1}, v;
    char *names = spx_alloc(3, width, &e);
    CHECK(t != NULL && names != NULL);
    memcpy(names, "a", 1);
    memcpy(names + width, "bb ", 3);
    memcpy(names + 2 * width, "cccc", 4);
    CHECK(spx_table_add(t, "FIBER", H5T_STD_I16BE, NULL, fiber, &e) == SPX_OK);
    CHECK(spx_table_add_strings(t, "NAME", width, names, &e) == SPX_OK);
    hsize_t two = 2;
    hid_t pair = H5Tarray_create2(H5T_NATIVE_FLOAT, 1, &two), logical = H5Tenum_create(H5T_NATIVE_SCHAR);
    v = 0;
    H5Tenum_insert(logical, "FALSE", &v);
    v = 1;
    H5Tenum_insert(logical, "TRUE", &v);
    CHECK(spx_table_add(t, "FLUX", pair, "nanomaggy", flux, &e) == SPX_OK);
    CHECK(spx_table_add(t, "OK", logical, NULL, ok, &e) == SPX_OK);
    H5Tclose(pair);
    H5Tclose(logical);
    spx_free(names);
    return t;
}

static void check_sample(const spx_table *t, size_t row0, int first)
{
    int64_t i[16];
    char s[16][8];
    size_t n = t->nrow;
    CHECK(n <= 16 && spx_table_get_i64(t, "fiber", i, &e) == SPX_OK && i[row0] == first && i[row0 + 2] == first + 2);
    CHECK(spx_table_get_str(t, "NAME", 8, s[0], &e) == SPX_OK);
    CHECK(strcmp(s[row0], "a") == 0 && strcmp(s[row0 + 1], "bb") == 0 && strcmp(s[row0 + 2], "cccc") == 0);
    CHECK(spx_table_get_i64(t, "OK", i, &e) == SPX_OK && i[row0] == 1 && i[row0 + 1] == 0);
}

static void test_values(void)
{
    spx_table *t = sample(7, 8);
    double d[3];
    char s3[3][3];
    check_sample(t, 0, 7);
    CHECK(spx_table_ncol(t) == 4 && spx_table_find(t, "flux") == 2 && spx_table_find(t, "nope") < 0);
    CHECK(spx_table_get_f64(t, "FIBER", d, &e) == SPX_OK && d[1] == 8);
    CHECK(spx_table_get_str(t, "NAME", 3, s3[0], &e) == SPX_OK && strcmp(s3[2], "cc") == 0);
    char *name = spx_table_name(t, 2, &e);
    CHECK(strcmp(spx_table_unit(t, 2), "nanomaggy") == 0 && strcmp(name, "FLUX") == 0);
    CHECK(spx_table_unit(t, 0)[0] == '\0' && spx_table_unit(t, -1)[0] == '\0' && spx_table_unit(t, 4)[0] == '\0');
    spx_free(name);
    REFUSED(spx_table_get_f64(t, "NAME", d, &e), "NAME");
    REFUSED(spx_table_get_f64(t, "FLUX", d, &e), "FLUX");
    REFUSED(spx_table_get_f64(t, "nope", d, &e), "FIBER, NAME, FLUX, OK");
    REFUSED(spx_table_get_str(t, "FIBER", 3, s3[0], &e), "text");
    REFUSED(spx_table_add(t, "Fiber", H5T_NATIVE_INT, NULL, NULL, &e), "already");
    hid_t text = H5Tcopy(H5T_C_S1);
    H5Tset_size(text, H5T_VARIABLE);
    REFUSED(spx_table_add(t, "TEXT", text, NULL, NULL, &e), "fixed-length");
    H5Tclose(text);
    CHECK(spx_table_ncol(t) == 4);
    spx_table_free(t);
    t = spx_table_new(0, &e);
    CHECK(spx_table_ncol(t) == 0 && spx_table_find(t, "x") < 0);
    CHECK(spx_table_add(t, "x", H5T_NATIVE_DOUBLE, "m", NULL, &e) == SPX_OK &&
          spx_table_get_f64(t, "X", d, &e) == SPX_OK);
    spx_table_free(t);
    spx_table_free(NULL);
}

static void test_take_append_join(void)
{
    spx_table *a = sample(7, 8), *b = sample(10, 8), *c = sample(20, 12), *t;
    const size_t rows[] = {2, 0, 0, 1, 2};
    int64_t i[8];
    double d[8];
    t = spx_table_subset(a, 5, rows, &e);
    CHECK(t != NULL && t->nrow == 5 && spx_table_get_i64(t, "FIBER", i, &e) == SPX_OK && i[0] == 9 && i[2] == 7 &&
          i[4] == 9);
    check_sample(t, 2, 7);
    spx_table_free(t);

    t = spx_table_append(a, b, &e);
    CHECK(t != NULL && t->nrow == 6 && t->rowsize == a->rowsize);
    check_sample(t, 0, 7);
    check_sample(t, 3, 10);
    spx_table_free(t);

    t = spx_table_append(a, c, &e); /* longer strings in the second */
    CHECK(t != NULL && t->nrow == 6 && t->rowsize == c->rowsize);
    check_sample(t, 0, 7);
    check_sample(t, 3, 20);
    spx_table_free(t);

    /* columns in another order and number formats of other width, sign and byte order */
    spx_table *p = spx_table_new(1, &e), *q = spx_table_new(1, &e);
    uint32_t big = 4000000000u;
    int16_t small = -5;
    float f = 0.5f;
    CHECK(spx_table_add(p, "N", H5T_NATIVE_INT16, NULL, &small, &e) == SPX_OK);
    CHECK(spx_table_add(p, "X", H5T_NATIVE_FLOAT, "m", &f, &e) == SPX_OK);
    CHECK(spx_table_add(q, "x", H5T_NATIVE_INT16, NULL, &small, &e) == SPX_OK);
    CHECK(spx_table_add(q, "n", H5T_NATIVE_UINT32, NULL, &big, &e) == SPX_OK);
    t = spx_table_append(p, q, &e);
    CHECK(t != NULL && spx_table_get_i64(t, "N", i, &e) == SPX_OK && i[0] == -5 && i[1] == 4000000000);
    CHECK(spx_table_get_f64(t, "X", d, &e) == SPX_OK && d[0] == 0.5 && d[1] == -5);
    CHECK(spx_table_unit(t, 0)[0] == '\0' && strcmp(spx_table_unit(t, 1), "m") == 0);
    spx_table_free(t);
    REFUSED(spx_table_append(p, a, &e), "column");
    CHECK(spx_table_add(p, "L", H5T_NATIVE_INT64, "s", NULL, &e) == SPX_OK);
    REFUSED(spx_table_append(p, q, &e), "column L is in one table");
    REFUSED(spx_table_append(q, p, &e), "column L is in one table");
    CHECK(spx_table_add(q, "L", H5T_NATIVE_UINT64, "s", NULL, &e) == SPX_OK);
    REFUSED(spx_table_append(p, q, &e), "column L has another type");
    spx_table_free(q);
    q = spx_table_subset(p, 1, (const size_t[]){0}, &e);
    CHECK(strcmp(q->unit[2], "s") == 0);
    q->unit[2][0] = 'd';
    REFUSED(spx_table_append(p, q, &e), "column L is in s");
    /* the columns that both have: not L, whose units differ, nor what one of them has alone */
    spx_text dropped = {0};
    CHECK(spx_table_add(q, "Q", H5T_NATIVE_INT64, NULL, NULL, &e) == SPX_OK);
    t = spx_table_append_common(p, q, &dropped, &e);
    CHECK(t != NULL && t->nrow == 2 && spx_table_ncol(t) == 2 && spx_table_find(t, "L") < 0 &&
          spx_table_find(t, "Q") < 0 && strcmp(dropped.s, "Q\nL\n") == 0);
    CHECK(spx_table_get_i64(t, "N", i, &e) == SPX_OK && i[0] == -5 && i[1] == -5);
    spx_table_free(t);
    spx_text_free(&dropped);
    spx_table_free(p);
    spx_table_free(q);

    /* join: equal columns once, others under the suffix */
    spx_table *x = sample(7, 8);
    CHECK(spx_table_join(x, a, NULL, &e) == SPX_OK && spx_table_ncol(x) == 4);
    REFUSED(spx_table_join(x, b, "", &e), "FIBER");
    CHECK(spx_table_ncol(x) == 4);
    CHECK(spx_table_join(x, b, "_B", &e) == SPX_OK && spx_table_ncol(x) == 5);
    CHECK(spx_table_get_i64(x, "FIBER_B", i, &e) == SPX_OK && i[2] == 12);
    CHECK(spx_table_get_i64(x, "FIBER", i, &e) == SPX_OK && i[2] == 9);
    REFUSED(spx_table_join(x, b, "_B", &e), "already");
    t = spx_table_subset(a, 1, rows, &e);
    REFUSED(spx_table_join(x, t, NULL, &e), "rows");
    CHECK(spx_table_copy_column(x, "AGAIN", a, 0, &e) == SPX_OK && spx_table_get_i64(x, "AGAIN", i, &e) == SPX_OK &&
          i[2] == 9);
    CHECK(spx_table_set_i64(x, "AGAIN", 2, -3, &e) == SPX_OK && spx_table_get_i64(x, "AGAIN", i, &e) == SPX_OK &&
          i[1] == 8 && i[2] == -3);
    REFUSED(spx_table_set_i64(x, "NAME", 2, -3, &e), "NAME");

    /* tables that know different rows */
    const char knows_a[] = {1, 1, 0}, knows_b[] = {0, 1, 1};
    spx_table *fa = spx_table_subset(a, 3, (const size_t[]){0, 1, SPX_NO_ROW}, &e);
    spx_table *fb = spx_table_subset(a, 3, (const size_t[]){SPX_NO_ROW, 1, 2}, &e);
    CHECK(fa != NULL && fb != NULL && spx_table_get_i64(fa, "FIBER", i, &e) == SPX_OK && i[2] == 0);
    CHECK(spx_table_fill(fa, knows_a, fb, knows_b, NULL, &e) == SPX_OK &&
          memcmp(fa->rows, a->rows, 3 * a->rowsize) == 0);
    CHECK(spx_table_set_i64(fb, "FIBER", 1, 77, &e) == SPX_OK);
    REFUSED(spx_table_fill(fa, knows_a, fb, knows_b, NULL, &e), "FIBER");
    CHECK(spx_table_fill(fa, knows_a, fb, knows_b, "_B", &e) == SPX_OK && spx_table_ncol(fa) == 5);
    CHECK(spx_table_get_i64(fa, "FIBER", i, &e) == SPX_OK && i[0] == 7 && i[1] == 8 && i[2] == 9);
    CHECK(spx_table_get_i64(fa, "FIBER_B", i, &e) == SPX_OK && i[0] == 0 && i[1] == 77 && i[2] == 9);
    spx_table_free(fa);
    spx_table_free(fb);
    spx_table_free(t);
    spx_table_free(x);
    spx_table_free(a);
    spx_table_free(b);
    spx_table_free(c);
}

/* One compound dataset made with plain HDF5. nrow rows are claimed; nothing is written. */
static void hostile(hid_t f, const char *name, hid_t type, hsize_t nrow, int chunked)
{
    hid_t space = H5Screate_simple(1, &nrow, NULL), plist = H5Pcreate(H5P_DATASET_CREATE);
    hsize_t chunk = 3;
    if (chunked) {
        H5Pset_chunk(plist, 1, &chunk);
        H5Pset_deflate(plist, 1);
    }
    hid_t d = H5Dcreate2(f, name, type, space, H5P_DEFAULT, plist, H5P_DEFAULT);
    CHECK(d >= 0);
    H5Dclose(d);
    H5Pclose(plist);
    H5Sclose(space);
}

static void test_file(const char *path)
{
    hid_t f = H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
    spx_table *t = sample(7, 8), *s = NULL;
    CHECK(spx_table_write(f, "/x/good", t, &e) == SPX_OK && spx_table_write(f, "/x/none", NULL, &e) == SPX_OK);
    spx_table *none = spx_table_subset(t, 0, NULL, &e);
    CHECK(spx_table_write(f, "/x/norows", none, &e) == SPX_OK);
    spx_table_free(none);
    none = spx_table_new(2, &e);
    REFUSED(spx_table_write(f, "/x/nocolumns", none, &e), "columns");
    spx_table_free(none);

    hid_t row = H5Tcreate(H5T_COMPOUND, 16), text = H5Tcopy(H5T_C_S1), list = H5Tvlen_create(H5T_NATIVE_INT);
    hid_t inner = H5Tcreate(H5T_COMPOUND, 16);
    H5Tset_size(text, H5T_VARIABLE);
    H5Tinsert(row, "N", 0, H5T_NATIVE_INT);
    hostile(f, "/many", row, (hsize_t)1 << 33, 1);
    hostile(f, "/unwritten", row, (hsize_t)1 << 33, 0);
    H5Tinsert(row, "TEXT", 8, text);
    hostile(f, "/text", row, 3, 0);
    H5Tclose(row);
    row = H5Tcreate(H5T_COMPOUND, 32);
    H5Tinsert(inner, "LIST", 0, list);
    H5Tinsert(row, "INNER", 0, inner);
    hostile(f, "/nested_list", row, 3, 0);
    H5Tclose(row);
    row = H5Tcreate(H5T_COMPOUND, 16);
    H5Tinsert(row, "REF", 0, H5T_STD_REF_OBJ);
    hostile(f, "/ref", row, 3, 0);
    H5Tclose(row);
    row = H5Tcreate(H5T_COMPOUND, 32);
    H5Tclose(inner);
    inner = H5Tcreate(H5T_COMPOUND, 16);
    H5Tinsert(inner, "A", 4, H5T_NATIVE_INT);
    H5Tinsert(row, "N", 3, H5T_NATIVE_INT16); /* gaps, odd offsets */
    H5Tinsert(row, "INNER", 7, inner);
    hostile(f, "/nested", row, 3, 1);
    hostile(f, "/numbers", H5T_NATIVE_INT, 3, 0);

    hsize_t dim = 4;
    hid_t space = H5Screate_simple(1, &dim, NULL), plist = H5Pcreate(H5P_DATASET_CREATE);
    H5Pset_external(plist, "/etc/passwd", 0, 4 * 32);
    hid_t d = H5Dcreate2(f, "/outside", row, space, H5P_DEFAULT, plist, H5P_DEFAULT);
    CHECK(d >= 0);
    H5Dclose(d);
    H5Pclose(plist);
    H5Sclose(space);
    dim = 1;
    space = H5Screate_simple(1, &dim, NULL);
    hsize_t two[2] = {2, 2};
    H5Sset_extent_simple(space, 2, two, NULL);
    d = H5Dcreate2(f, "/plane", row, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    CHECK(d >= 0);
    H5Dclose(d);
    H5Sclose(space);
    H5Tclose(row);
    H5Tclose(inner);
    H5Tclose(list);
    H5Tclose(text);
    H5Fclose(f);

    f = H5Fopen(path, H5F_ACC_RDONLY, H5P_DEFAULT);
    CHECK(f >= 0 && spx_table_read(f, "/x/good", &s, &e) == SPX_OK && s != NULL);
    check_sample(s, 0, 7);
    for (int c = 0; c < 4; ++c)
        CHECK(strcmp(spx_table_unit(s, c), spx_table_unit(t, c)) == 0);
    CHECK(s->rowsize == t->rowsize && H5Tequal(s->type, t->type) > 0 && memcmp(s->rows, t->rows, 3 * t->rowsize) == 0);
    spx_table_free(s);
    CHECK(spx_table_read(f, "/x/none", &s, &e) == SPX_OK && s == NULL);
    CHECK(spx_table_read(f, "/x/norows", &s, &e) == SPX_OK && s->nrow == 0 && spx_table_ncol(s) == 4);
    spx_table_free(s);
    CHECK(spx_table_read(f, "/nested", &s, &e) == SPX_OK && s->nrow == 3);
    double v[3];
    CHECK(spx_table_get_f64(s, "N", v, &e) == SPX_OK);
    REFUSED(spx_table_get_f64(s, "INNER", v, &e), "INNER");
    spx_table *u = spx_table_append(s, s, &e);
    CHECK(u != NULL && u->nrow == 6);
    spx_table_free(u);
    spx_table_free(s);
    REFUSED(spx_table_read(f, "/many", &s, &e), "/many: claims");
    REFUSED(spx_table_read(f, "/text", &s, &e), "fixed-length");
    REFUSED(spx_table_read(f, "/nested_list", &s, &e), "fixed-length");
    REFUSED(spx_table_read(f, "/ref", &s, &e), "fixed-length");
    REFUSED(spx_table_read(f, "/numbers", &s, &e), "not a table");
    REFUSED(spx_table_read(f, "/outside", &s, &e), "other files");
    REFUSED(spx_table_read(f, "/plane", &s, &e), "one-dimensional");
    REFUSED(spx_table_read(f, "/unwritten", &s, &e), "/unwritten");
    REFUSED(spx_table_read(f, "/x", &s, &e), "dataset");
    CHECK(s == NULL);
    H5Fclose(f);
    spx_table_free(t);
}

int main(void)
{
    char path[] = "/tmp/spx_test_table.XXXXXX";
    int fd = mkstemp(path);
    H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
    if (fd < 0)
        return 1;
    close(fd);
    test_values();
    test_take_append_join();
    test_file(path);
    unlink(path);
    return 0;
}
