/* h5edit FILE COMMAND...: damage an HDF5 file in place, for tests.
 *     delete PATH              unlink
 *     lose PATH                a link to nothing in its place
 *     elsewhere PATH           a link to the same path of other.h5
 *     fill PATH VALUE          all elements of a numeric dataset (nan and inf too)
 *     scale PATH FACTOR        all elements of a numeric dataset times it
 *     set PATH INDEX VALUE     one element, counted through all dimensions
 *     range PATH FIRST LAST VALUE   elements FIRST ... LAST-1, counted the same way
 *     twin PATH DIM FROM TO    slice TO along dimension DIM becomes that at FROM
 *     add PATH DIM FROM TO     slice FROM is added to TO
 *     move PATH STEP           all elements of a numeric dataset plus it
 *     grids PATH N STEP        N rows of a dataset of one dimension, each plus STEP times its number
 *     hill PATH HEIGHT         adds a Gaussian hill, a third of it wide (sigma), to a dataset of two dimensions
 *     strings PATH TEXT,TEXT   replace a dataset by one of these texts
 *     shape PATH N,N...        replace a dataset by one of doubles, zeros, of this shape
 *     attr PATH NAME TEXT      a text attribute
 *     attr-number PATH NAME V  an attribute that is a number
 *     delete-attr PATH NAME    remove an attribute
 *     column PATH NAME N,N...  add a column of numbers to a table; of whole numbers in place of one that is there
 *     detach PATH              remove all dimension scales
 * Several commands one after another. Exit status 0, or 1 with a message. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "h5/attr.h"
#include "h5/table.h"
#include "h5/write.h"

/* Gives back what a change of a dataset has used; `ok` goes through. */
static int done(double *v, hid_t space, hid_t set, int ok)
{
    free(v);
    if (space >= 0)
        H5Sclose(space);
    if (set >= 0)
        H5Dclose(set);
    return ok;
}

/* Elements first ... last-1, or all where first is negative, get the value, or are multiplied by it where `factor`. */
static int numbers(hid_t file, const char *path, long long first, long long last, double value, int factor)
{
    hid_t set = H5Dopen2(file, path, H5P_DEFAULT), space = set >= 0 ? H5Dget_space(set) : H5I_INVALID_HID;
    hssize_t n = space >= 0 ? H5Sget_simple_extent_npoints(space) : -1;
    double *v = n > 0 ? malloc((size_t)n * sizeof *v) : NULL;
    int ok =
        v != NULL && first < n && last <= n && H5Dread(set, H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT, v) >= 0;
    for (hssize_t k = 0; ok && k < n; k++)
        if (first < 0 || (k >= first && k < last))
            v[k] = factor ? v[k] * value : value;
    ok = ok && H5Dwrite(set, H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT, v) >= 0;
    return done(v, space, set, ok);
}

static int twin(hid_t file, const char *path, unsigned dim, hsize_t from, hsize_t to, int add)
{
    hid_t set = H5Dopen2(file, path, H5P_DEFAULT), space = set >= 0 ? H5Dget_space(set) : H5I_INVALID_HID;
    hsize_t dims[8] = {0}, start[8] = {0}, n = 1;
    const int ndim = space >= 0 ? H5Sget_simple_extent_dims(space, dims, NULL) : 0;
    int ok = ndim > 0 && dim < (unsigned)ndim && from < dims[dim] && to < dims[dim];
    for (int k = 0; k < ndim; k++) {
        dims[k] = k == (int)dim ? 1 : dims[k];
        n *= dims[k];
    }
    double *v = ok ? malloc(2 * (size_t)n * sizeof *v) : NULL;
    hid_t memory = ok ? H5Screate_simple(ndim, dims, NULL) : H5I_INVALID_HID;
    start[dim < 8 ? dim : 0] = from;
    ok = v != NULL && H5Sselect_hyperslab(space, H5S_SELECT_SET, start, NULL, dims, NULL) >= 0 &&
         H5Dread(set, H5T_NATIVE_DOUBLE, memory, space, H5P_DEFAULT, v) >= 0;
    start[dim < 8 ? dim : 0] = to;
    ok = ok && H5Sselect_hyperslab(space, H5S_SELECT_SET, start, NULL, dims, NULL) >= 0 &&
         (!add || H5Dread(set, H5T_NATIVE_DOUBLE, memory, space, H5P_DEFAULT, v + n) >= 0);
    for (hsize_t k = 0; ok && add && k < n; k++)
        v[k] += v[n + k];
    ok = ok && H5Dwrite(set, H5T_NATIVE_DOUBLE, memory, space, H5P_DEFAULT, v) >= 0;
    if (memory >= 0)
        H5Sclose(memory);
    return done(v, space, set, ok);
}

/* The dataset plus step, or, where rows > 0, in its place that many rows of it, each plus step times its number. */
static int grids(hid_t file, const char *path, hsize_t rows, double step)
{
    hid_t set = H5Dopen2(file, path, H5P_DEFAULT), space = set >= 0 ? H5Dget_space(set) : H5I_INVALID_HID;
    const hssize_t n = space >= 0 ? H5Sget_simple_extent_npoints(space) : -1;
    const hsize_t dims[2] = {rows, n > 0 ? (hsize_t)n : 0}, total = (rows > 0 ? rows : 1) * dims[1];
    double *v = total > 0 ? malloc((size_t)total * sizeof *v) : NULL;
    int ok = v != NULL && H5Dread(set, H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT, v) >= 0;
    for (hsize_t k = total; ok && k-- > 0;)
        v[k] = v[k % dims[1]] + step * (rows > 0 ? (double)(k / dims[1]) : 1);
    if (ok && rows == 0)
        ok = H5Dwrite(set, H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT, v) >= 0;
    if (ok && rows > 0) { /* with the same attributes, but for those of scales */
        hid_t shape = H5Screate_simple(2, dims, NULL);
        static const char *const name[] = {"units", "medium", "frame"};
        char text[3][64] = {"", "", ""};
        for (int k = 0; k < 3; k++)
            if (H5Aexists_by_name(file, path, name[k], H5P_DEFAULT) > 0)
                ok = ok && spx_h5_attr_str(file, path, name[k], text[k], sizeof text[k], NULL) == SPX_OK;
        ok = ok && H5Ldelete(file, path, H5P_DEFAULT) >= 0;
        hid_t out = H5Dcreate2(file, path, H5T_NATIVE_DOUBLE, shape, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
        ok = ok && out >= 0 && H5Dwrite(out, H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT, v) >= 0;
        for (int k = 0; k < 3; k++)
            if (text[k][0] != '\0')
                ok = ok && spx_h5_set_str(file, path, name[k], text[k], NULL) == SPX_OK;
        ok = out >= 0 && H5Dclose(out) >= 0 && ok;
        H5Sclose(shape);
    }
    return done(v, space, set, ok);
}

static int hill(hid_t file, const char *path, double height)
{
    hid_t set = H5Dopen2(file, path, H5P_DEFAULT), space = set >= 0 ? H5Dget_space(set) : H5I_INVALID_HID;
    hsize_t dims[2] = {0};
    const int two =
        space >= 0 && H5Sget_simple_extent_ndims(space) == 2 && H5Sget_simple_extent_dims(space, dims, NULL) == 2;
    double *v = two ? malloc((size_t)(dims[0] * dims[1]) * sizeof *v) : NULL;
    int ok = v != NULL && H5Dread(set, H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT, v) >= 0;
    for (hsize_t k = 0; ok && k < dims[0] * dims[1]; k++) {
        const double y = (double)(k / dims[1]) / (double)dims[0] - 0.5,
                     x = (double)(k % dims[1]) / (double)dims[1] - 0.5;
        v[k] += height * exp(-4.5 * (x * x + y * y));
    }
    ok = ok && H5Dwrite(set, H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT, v) >= 0;
    return done(v, space, set, ok);
}

/* Adds a column of numbers, "1.5,2,...", a row each, to a table. */
static int column(hid_t file, const char *path, const char *name, const char *values)
{
    spx_table *t = NULL;
    spx_err e = {0};
    if (spx_table_read(file, path, &t, &e) != SPX_OK || t == NULL)
        return 0;
    double *v = calloc(t->nrow + 1, sizeof *v);
    size_t n = 0;
    for (const char *p = values; v != NULL && *p != '\0' && n < t->nrow;) {
        char *end;
        v[n++] = strtod(p, &end);
        p = *end == ',' ? end + 1 : end;
    }
    const int there = spx_table_find(t, name) >= 0;
    if (there) {
        spx_table *rest = spx_table_without(t, (const char *const[]){name, NULL}, &e);
        spx_table_free(t);
        if ((t = rest) == NULL)
            return 0;
        for (size_t i = 0; i < n; i++) {
            const int64_t whole = (int64_t)v[i];
            memcpy(&v[i], &whole, sizeof whole);
        }
    }
    const hid_t type = there ? H5T_NATIVE_INT64 : H5T_NATIVE_DOUBLE;
    const int ok = v != NULL && n == t->nrow && spx_table_add(t, name, type, "", v, &e) == SPX_OK &&
                   H5Ldelete(file, path, H5P_DEFAULT) >= 0 && spx_table_write(file, path, t, &e) == SPX_OK;
    if (!ok)
        printf("h5edit: %s\n", spx_err_text(&e));
    free(v);
    spx_table_free(t);
    return ok;
}

static int reshape(hid_t file, const char *path, const char *shape)
{
    hsize_t dims[8];
    int ndim = 0;
    for (const char *p = shape; ndim < 8 && *p != '\0';) {
        char *end;
        dims[ndim++] = strtoull(p, &end, 10);
        p = *end == ',' ? end + 1 : end;
    }
    if (H5Ldelete(file, path, H5P_DEFAULT) < 0)
        return 0;
    hid_t space = H5Screate_simple(ndim, dims, NULL);
    hid_t set = H5Dcreate2(file, path, H5T_NATIVE_DOUBLE, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    H5Sclose(space);
    return set >= 0 && H5Dclose(set) >= 0;
}

static int strings(hid_t file, const char *path, const char *text)
{
    enum { SIZE = 32, MOST = 16 };
    char v[MOST][SIZE];
    size_t n = 0;
    memset(v, ' ', sizeof v);
    for (const char *p = text; n < MOST && *p != '\0'; n++) {
        const size_t length = strcspn(p, ",");
        memcpy(v[n], p, length < SIZE ? length : SIZE);
        p += length + (p[length] == ',');
    }
    return H5Ldelete(file, path, H5P_DEFAULT) >= 0 && spx_h5_write_strings(file, path, SIZE, n, v[0], NULL) == SPX_OK;
}

/* Runs the command at argv[0]; number of words that it took, 0 when it failed. */
static int command(hid_t file, int argc, char **argv)
{
    if (argc >= 2 && strcmp(argv[0], "delete") == 0)
        return H5Ldelete(file, argv[1], H5P_DEFAULT) >= 0 ? 2 : 0;
    if (argc >= 2 && strcmp(argv[0], "lose") == 0)
        return H5Ldelete(file, argv[1], H5P_DEFAULT) >= 0 &&
                       H5Lcreate_soft("/nowhere", file, argv[1], H5P_DEFAULT, H5P_DEFAULT) >= 0
                   ? 2
                   : 0;
    if (argc >= 2 && strcmp(argv[0], "elsewhere") == 0)
        return H5Ldelete(file, argv[1], H5P_DEFAULT) >= 0 &&
                       H5Lcreate_external("other.h5", argv[1], file, argv[1], H5P_DEFAULT, H5P_DEFAULT) >= 0
                   ? 2
                   : 0;
    if (argc >= 3 && strcmp(argv[0], "fill") == 0)
        return numbers(file, argv[1], -1, -1, strtod(argv[2], NULL), 0) ? 3 : 0;
    if (argc >= 3 && strcmp(argv[0], "scale") == 0)
        return numbers(file, argv[1], -1, -1, strtod(argv[2], NULL), 1) ? 3 : 0;
    if (argc >= 3 && strcmp(argv[0], "move") == 0)
        return grids(file, argv[1], 0, strtod(argv[2], NULL)) ? 3 : 0;
    if (argc >= 4 && strcmp(argv[0], "grids") == 0)
        return grids(file, argv[1], strtoull(argv[2], NULL, 10), strtod(argv[3], NULL)) ? 4 : 0;
    if (argc >= 3 && strcmp(argv[0], "hill") == 0)
        return hill(file, argv[1], strtod(argv[2], NULL)) ? 3 : 0;
    if (argc >= 4 && strcmp(argv[0], "set") == 0)
        return numbers(file, argv[1], strtoll(argv[2], NULL, 10), strtoll(argv[2], NULL, 10) + 1, strtod(argv[3], NULL),
                       0)
                   ? 4
                   : 0;
    if (argc >= 5 && strcmp(argv[0], "range") == 0)
        return numbers(file, argv[1], strtoll(argv[2], NULL, 10), strtoll(argv[3], NULL, 10), strtod(argv[4], NULL), 0)
                   ? 5
                   : 0;
    if (argc >= 5 && (strcmp(argv[0], "twin") == 0 || strcmp(argv[0], "add") == 0))
        return twin(file, argv[1], (unsigned)strtoul(argv[2], NULL, 10), strtoull(argv[3], NULL, 10),
                    strtoull(argv[4], NULL, 10), strcmp(argv[0], "add") == 0)
                   ? 5
                   : 0;
    if (argc >= 3 && strcmp(argv[0], "strings") == 0)
        return strings(file, argv[1], argv[2]) ? 3 : 0;
    if (argc >= 3 && strcmp(argv[0], "shape") == 0)
        return reshape(file, argv[1], argv[2]) ? 3 : 0;
    if (argc >= 4 && strcmp(argv[0], "attr") == 0)
        return spx_h5_set_str(file, argv[1], argv[2], argv[3], NULL) == SPX_OK ? 4 : 0;
    if (argc >= 4 && strcmp(argv[0], "attr-number") == 0)
        return spx_h5_set_f64(file, argv[1], argv[2], strtod(argv[3], NULL), NULL) == SPX_OK ? 4 : 0;
    if (argc >= 3 && strcmp(argv[0], "delete-attr") == 0)
        return H5Adelete_by_name(file, argv[1], argv[2], H5P_DEFAULT) >= 0 ? 3 : 0;
    if (argc >= 4 && strcmp(argv[0], "column") == 0)
        return column(file, argv[1], argv[2], argv[3]) ? 4 : 0;
    if (argc >= 2 && strcmp(argv[0], "detach") == 0)
        return H5Adelete_by_name(file, argv[1], "DIMENSION_LIST", H5P_DEFAULT) >= 0 ? 2 : 0;
    return 0;
}

int main(int argc, char **argv)
{
    (void)H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
    hid_t file = argc > 2 ? H5Fopen(argv[1], H5F_ACC_RDWR, H5P_DEFAULT) : H5I_INVALID_HID;
    if (file < 0) {
        puts("usage: h5edit FILE COMMAND...");
        return 1;
    }
    for (int i = 2, n; i < argc; i += n)
        if ((n = command(file, argc - i, argv + i)) == 0) {
            printf("h5edit: failed: %s %s\n", argv[i], i + 1 < argc ? argv[i + 1] : "");
            H5Fclose(file);
            return 1;
        }
    return H5Fclose(file) < 0;
}
