/* Checks h5check's function: a file that follows the schema passes, and each way to break it is one violation that
 * names the place. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "h5/attr.h"
#include "h5/provenance.h"
#include "h5/schema.h"
#include "h5/table.h"
#include "h5/write.h"
#include "products/frame_h5.h"
#include "products/spectra.h"

enum { NSPEC = 3, NWAVE = 6 };

static spx_err e;

static void stop(const char *what)
{
    printf("test_schema: %s (%s)\n", what, spx_err_text(&e));
    exit(1);
}

static hid_t in_memory(void)
{
    hid_t fapl = H5Pcreate(H5P_FILE_ACCESS);
    if (fapl < 0 || H5Pset_fapl_core(fapl, 1 << 16, 0) < 0)
        stop("no core driver");
    hid_t f = H5Fcreate("good.h5", H5F_ACC_TRUNC, H5P_DEFAULT, fapl);
    H5Pclose(fapl);
    return f;
}

/* A frame with everything that it may have, and a velocity table. */
static hid_t good_file(void)
{
    hid_t f = in_memory();
    spx_frame fr = {.nspec = NSPEC, .camera = "r0"};
    size_t n = NSPEC * NWAVE;
    double v[NSPEC] = {1, 2, 3};
    int64_t id[NSPEC] = {7, 8, 9};
    fr.arm.nwave = NWAVE;
    fr.arm.ndiag = 3;
    (void)snprintf(fr.arm.unit, sizeof fr.arm.unit, "electron/Angstrom");
    fr.arm.wavelength = spx_alloc(NWAVE, sizeof(double), &e);
    fr.arm.flux = spx_alloc(n, sizeof(double), &e);
    fr.arm.ivar = spx_alloc(n, sizeof(double), &e);
    fr.arm.mask = spx_alloc(n, sizeof(uint32_t), &e);
    fr.arm.resolution = spx_alloc(3 * n, sizeof(double), &e);
    fr.chi2pix = spx_alloc(n, sizeof(double), &e);
    fr.pixmask_fraction = spx_alloc(n, sizeof(double), &e);
    fr.fiber = spx_alloc(NSPEC, sizeof(int32_t), &e);
    fr.fibermap = spx_table_new(NSPEC, &e);
    spx_table *rv = spx_table_new(NSPEC, &e);
    if (e.code != SPX_OK)
        stop("no memory");
    for (size_t k = 0; k < NWAVE; k++)
        fr.arm.wavelength[k] = 5000 + (double)k;
    if (spx_table_add(fr.fibermap, "TARGETID", H5T_NATIVE_INT64, NULL, id, &e) != SPX_OK ||
        spx_table_add(rv, "VRAD", H5T_NATIVE_DOUBLE, "km/s", v, &e) != SPX_OK ||
        spx_table_add(rv, "VRAD_ERR", H5T_NATIVE_DOUBLE, "km/s", v, &e) != SPX_OK ||
        spx_table_add(rv, "RVS_WARN", H5T_NATIVE_INT64, NULL, id, &e) != SPX_OK ||
        spx_cards_set_int(&fr.header, "EXPID", 7, NULL, &e) != SPX_OK ||
        spx_frame_write(f, &fr, 4, NULL, &e) != SPX_OK || spx_table_write(f, "/rvfit/table", rv, &e) != SPX_OK ||
        spx_h5_set_str(f, "/", "product", "frame", &e) != SPX_OK ||
        spx_h5_set_str(f, "/", "schema_version", "1.0", &e) != SPX_OK ||
        spx_h5_set_str(f, "/", "creator", "test", &e) != SPX_OK ||
        spx_provenance_append(f, &(spx_provenance){.program = "test", .version = "1", .command_line = "test"}, &e) !=
            SPX_OK)
        stop("cannot write");
    spx_frame_free(&fr);
    spx_table_free(rv);
    return f;
}

/* All lines that the checker prints; caller frees. */
static char *check(hid_t f, size_t *nbad)
{
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    if (out == NULL || spx_schema_check(f, "file.h5", out, nbad, &e) != SPX_OK)
        stop("the checker failed");
    (void)fclose(out);
    return text;
}

/* Removes a dataset and puts another of doubles (or another type, or rank) in its place. */
static void replace(hid_t f, const char *path, hid_t type, int ndim, const hsize_t *dims, int chunked)
{
    hid_t s = H5Screate_simple(ndim, dims, NULL), p = H5Pcreate(H5P_DATASET_CREATE);
    hsize_t chunk[4] = {1, 1, 1, 1};
    if (chunked)
        H5Pset_chunk(p, ndim, chunk);
    H5Ldelete(f, path, H5P_DEFAULT);
    hid_t d = H5Dcreate2(f, path, type, s, H5P_DEFAULT, p, H5P_DEFAULT);
    if (d < 0)
        stop(path);
    H5Dclose(d);
    H5Pclose(p);
    H5Sclose(s);
}

static void set_value(hid_t f, const char *path, size_t index, double value)
{
    double v[3 * NSPEC * NWAVE];
    hid_t d = H5Dopen2(f, path, H5P_DEFAULT);
    if (d < 0 || H5Dread(d, H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT, v) < 0)
        stop(path);
    v[index] = value;
    if (H5Dwrite(d, H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT, v) < 0)
        stop(path);
    H5Dclose(d);
}

static void drop_attr(hid_t f, const char *path, const char *name)
{
    if (H5Adelete_by_name(f, path, name, H5P_DEFAULT) < 0)
        stop(name);
}

static void table_with(hid_t f, hid_t vrad, const char *unit, int text)
{
    spx_table *t = spx_table_new(NSPEC, &e);
    if (t == NULL || (vrad >= 0 && spx_table_add(t, "VRAD", vrad, unit, NULL, &e) != SPX_OK) ||
        spx_table_add(t, "VRAD_ERR", H5T_NATIVE_DOUBLE, "km/s", NULL, &e) != SPX_OK ||
        spx_table_add(t, "RVS_WARN", H5T_NATIVE_INT64, NULL, NULL, &e) != SPX_OK)
        stop("no table");
    H5Ldelete(f, "/rvfit/table", H5P_DEFAULT);
    if (text) {
        hid_t row = H5Tcopy(t->type), s = H5Tcopy(H5T_C_S1);
        size_t at = H5Tget_size(row);
        H5Tset_size(s, H5T_VARIABLE);
        H5Tset_size(row, at + sizeof(char *));
        H5Tinsert(row, "NOTE", at, s);
        replace(f, "/rvfit/table", row, 1, (const hsize_t[]){NSPEC}, 0);
        H5Tclose(row);
        H5Tclose(s);
    } else if (spx_table_write(f, "/rvfit/table", t, &e) != SPX_OK) {
        stop("no table");
    }
    spx_table_free(t);
}

/* ---- one breakage each ---- */

static const hsize_t shape[] = {NSPEC, NWAVE}, wide[] = {NSPEC, NWAVE + 1}, tall[] = {NSPEC + 1, NWAVE};

static void breakage(hid_t f, int which)
{
    hid_t g;
    switch (which) {
    case 0:
        drop_attr(f, "/", "product");
        break;
    case 1:
        (void)spx_h5_set_str(f, "/", "schema_version", "2.0", &e);
        break;
    case 2:
        (void)spx_h5_set_str(f, "/", "product", "psf", &e);
        break;
    case 3:
        (void)spx_h5_set_str(f, "/frame", "version", "2.0", &e);
        break;
    case 4:
        (void)spx_h5_set_str(f, "/frame", "version", "new", &e);
        break;
    case 5:
        (void)spx_h5_set_str(f, "/frame", "type", "spectra", &e);
        break;
    case 6:
        H5Ldelete(f, "/frame/ivar", H5P_DEFAULT);
        break;
    case 7:
        replace(f, "/frame/fiber", H5T_NATIVE_DOUBLE, 1, shape, 0);
        (void)spx_h5_set_str(f, "/frame/fiber", "units", "1", &e);
        (void)spx_h5_set_str(f, "/frame/fiber", "long_name", "x", &e);
        break;
    case 8:
        set_value(f, "/frame/flux", 4, NAN);
        break;
    case 9:
        set_value(f, "/frame/ivar", 5, -1);
        break;
    case 10:
        set_value(f, "/frame/wavelength", 2, 4000);
        break;
    case 11:
        (void)spx_h5_set_str(f, "/frame/resolution", "units", "pixel", &e);
        break;
    case 12:
        drop_attr(f, "/frame/resolution", "units");
        break;
    case 13:
        drop_attr(f, "/frame/wavelength", "medium");
        break;
    case 14:
        (void)spx_h5_set_str(f, "/frame/wavelength", "frame", "galactic", &e);
        break;
    case 15:
        drop_attr(f, "/frame/mask", "flag_meanings");
        break;
    case 16:
        (void)spx_h5_set_str(f, "/frame/mask", "flag_meanings", "ONE TWO", &e);
        break;
    case 17:
        replace(f, "/frame/chi2pix", H5T_NATIVE_FLOAT, 2, shape, 0);
        (void)spx_h5_set_str(f, "/frame/chi2pix", "units", "1", &e);
        (void)spx_h5_set_str(f, "/frame/chi2pix", "long_name", "x", &e);
        break;
    case 18:
        drop_attr(f, "/frame/chi2pix", "long_name");
        break;
    case 19:
        replace(f, "/frame/fiber", H5T_NATIVE_INT32, 2, shape, 0);
        break;
    case 20:
    case 21:
        replace(f, "/frame/chi2pix", H5T_NATIVE_FLOAT, 2, which == 20 ? wide : tall, 0);
        (void)spx_h5_set_str(f, "/frame/chi2pix", "units", "1", &e);
        (void)spx_h5_set_str(f, "/frame/chi2pix", "long_name", "x", &e);
        (void)spx_h5_attach_scale(f, "/frame/chi2pix", 1, "/frame/wavelength", "wavelength", &e);
        break;
    case 22:
        table_with(f, H5I_INVALID_HID, NULL, 0);
        break;
    case 23:
        table_with(f, H5T_NATIVE_INT32, "km/s", 0);
        break;
    case 24:
        table_with(f, H5T_NATIVE_DOUBLE, "m/s", 0);
        break;
    case 25:
        table_with(f, H5T_NATIVE_DOUBLE, "km/s", 1);
        break;
    case 26:
        H5Ldelete(f, "/provenance", H5P_DEFAULT);
        break;
    case 27:
        H5Ldelete(f, "/provenance/000", H5P_DEFAULT);
        (void)spx_h5_write_strings(f, "/provenance/000", 15, 2, "version: 1     command_line: x", &e);
        break;
    case 28:
        if (H5Lmove(f, "/provenance/000", f, "/provenance/003", H5P_DEFAULT, H5P_DEFAULT) < 0)
            stop("cannot rename");
        break;
    case 29:
        H5Ldelete(f, "/frame/chi2pix", H5P_DEFAULT);
        g = H5Gcreate2(f, "/frame/chi2pix", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
        H5Gclose(g);
        break;
    case 30:
        replace(f, "/frame/model", H5T_NATIVE_FLOAT, 2, (const hsize_t[]){(hsize_t)1 << 31, (hsize_t)1 << 20}, 1);
        (void)spx_h5_set_str(f, "/frame/model", "units", "electron", &e);
        (void)spx_h5_set_str(f, "/frame/model", "long_name", "x", &e);
        break;
    case 31:
        replace(f, "/fibermap", H5T_NATIVE_INT, 1, shape, 0);
        break;
    case 32: /* what H5DSget_num_scales() would read into memory for two lists */
    case 33: {
        const hid_t type = which == 32 ? H5Tcopy(H5T_C_S1) : H5Tvlen_create(H5T_STD_REF_OBJ);
        const hsize_t lists = 500;
        hid_t space = which == 32 ? H5Screate(H5S_SCALAR) : H5Screate_simple(1, &lists, NULL);
        if (which == 32)
            H5Tset_size(type, 60000);
        drop_attr(f, "/frame/chi2pix", "DIMENSION_LIST");
        hid_t a = H5Acreate_by_name(f, "/frame/chi2pix", "DIMENSION_LIST", type, space, H5P_DEFAULT, H5P_DEFAULT,
                                    H5P_DEFAULT);
        H5Aclose(a);
        H5Sclose(space);
        H5Tclose(type);
        break;
    }
    default: /* what the schema does not name is nobody's business */
        replace(f, "/frame/other", H5T_NATIVE_INT, 1, shape, 0);
        g = H5Gcreate2(f, "/mine", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
        H5Gclose(g);
        break;
    }
}

static const char *const expected[] = {
    "/: attribute product is missing",
    "/: has schema version 2.0, which is newer",
    "/psf: is missing, though",
    "/frame: was written with schema version 2.0",
    "/frame: attribute version is 'new', should be MAJOR.MINOR",
    "/frame: is a block of type 'spectra', not 'frame'",
    "/frame/ivar: is missing",
    "/frame/fiber: is float64, should be int32",
    "/frame/flux: 1 values are NaN or Inf (the first is number 4)",
    "/frame/ivar: 1 values are negative (the first is number 5)",
    "/frame/wavelength: values do not increase",
    "/frame/resolution: units are pixel, should be 1",
    "/frame/resolution: attribute units is missing",
    "/frame/wavelength: attribute medium is missing",
    "/frame/wavelength: attribute frame should be one of topocentric|barycentric",
    "/frame/mask: attributes flag_masks and flag_meanings of a mask are missing",
    "/frame/mask: attribute flag_masks has 10 bits, but flag_meanings names 2",
    "/frame/chi2pix: dimension nwave is not attached to the axis /frame/wavelength",
    "/frame/chi2pix: attribute long_name is missing",
    "/frame/fiber: has 2 dimensions, should have 1",
    "/frame/flux: dimension nwave is 6, but 7 in /frame/chi2pix", /* 20: chi2pix comes first, so the others are odd */
    "/frame/chi2pix: dimension nspec is 4, but 3 in /fibermap",
    "/rvfit/table: column VRAD is missing",
    "/rvfit/table: column VRAD is int32, should be float64|float32",
    "/rvfit/table: column VRAD is in 'm/s', should be in km/s",
    "/rvfit/table: column NOTE has no fixed size",
    "/provenance: is missing",
    "/provenance/000: has no line 'program: ...'",
    "/provenance: has no record 000, but 1 records",
    "/frame/chi2pix: is a group, should be a dataset",
    "/frame/model: claims more data than the file holds",
    "/fibermap: is int32, should be a table",
    "/frame/chi2pix: dimension nwave is not attached to the axis /frame/wavelength",
    "/frame/chi2pix: dimension nwave is not attached to the axis /frame/wavelength",
};

int main(void)
{
    size_t nbad = 0;
    const int n = (int)(sizeof expected / sizeof *expected);
    H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
    for (int i = -1; i <= n; i++) {
        hid_t f = good_file();
        if (i >= 0)
            breakage(f, i);
        char *text = check(f, &nbad), line[300] = "file.h5:";
        if (i < 0 || i == n) {
            if (nbad != 0 || text[0] != '\0') {
                printf("%s is called wrong:\n%s", i < 0 ? "a good file" : "a file with more in it", text);
                return 1;
            }
        } else {
            (void)snprintf(line + strlen(line), sizeof line - strlen(line), "%s", expected[i]);
            /* a wrong length makes every neighbour odd, an empty record lacks all: more than one line is right */
            if (strstr(text, line) == NULL || (nbad != 1 && i != 20 && i != 27)) {
                printf("breakage %d should give '%s', gives %zu:\n%s", i, line, nbad, text);
                return 1;
            }
        }
        free(text);
        H5Fclose(f);
    }
    return 0;
}
