/* Checks that copied objects are the same: scalars, empty datasets, more than one piece in each dimension, compressed
 * chunks, texts of variable length, tables, groups below groups; that references become empty, those in tables alone,
 * and committed types the dataset's own; that both names of a dataset are there. And of records of the provenance, that
 * one which cannot be read is not taken for one that lacks a line. */
#include "h5/copy.h"

#include <hdf5_hl.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "check_on.h"
#include "h5/attr.h"
#include "h5/provenance.h"
#include "h5/write.h"

static hid_t in_memory(void)
{
    static int n;
    char name[32];
    (void)snprintf(name, sizeof name, "copy-%d.h5", n++);
    const hid_t fapl = H5Pcreate(H5P_FILE_ACCESS);
    H5Pset_fapl_core(fapl, 1 << 20, 0);
    const hid_t f = H5Fcreate(name, H5F_ACC_TRUNC, H5P_DEFAULT, fapl);
    H5Pclose(fapl);
    return f;
}

/* A dataset of bytes of any shape, in the second file the same. */
static void shape(int ndim, const hsize_t *dims, int chunked)
{
    spx_err e = {0};
    size_t n = 1;
    const hid_t from = in_memory(), to = in_memory(), space = H5Screate_simple(ndim, dims, NULL);
    const hid_t how = H5Pcreate(H5P_DATASET_CREATE);
    for (int k = 0; k < ndim; k++)
        n *= dims[k];
    uint8_t *value = spx_alloc(n, 1, &e), *copy = spx_alloc(n, 1, &e);
    for (size_t i = 0; i < n; i++)
        value[i] = (uint8_t)(i * 2654435761u >> 13);
    if (chunked) {
        hsize_t chunk[H5S_MAX_RANK];
        for (int k = 0; k < ndim; k++)
            chunk[k] = dims[k] > 100 ? 100 : dims[k];
        H5Pset_chunk(how, ndim, chunk);
        H5Pset_deflate(how, 1);
    }
    H5Gclose(H5Gcreate2(from, "/a", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
    H5Gclose(H5Gcreate2(from, "/a/b", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
    hid_t d = H5Dcreate2(from, "/a/b/x", H5T_NATIVE_UINT8, space, H5P_DEFAULT, how, H5P_DEFAULT);
    CHECK(H5Dwrite(d, H5T_NATIVE_UINT8, H5S_ALL, H5S_ALL, H5P_DEFAULT, value) >= 0);
    H5Dclose(d);
    CHECK(spx_h5_copy(from, to, "/a", &e) == SPX_OK);
    d = H5Dopen2(to, "/a/b/x", H5P_DEFAULT);
    CHECK(H5Dread(d, H5T_NATIVE_UINT8, H5S_ALL, H5S_ALL, H5P_DEFAULT, copy) >= 0 && memcmp(value, copy, n) == 0);
    const hid_t made = H5Dget_create_plist(d);
    CHECK((H5Pget_layout(made) == H5D_CHUNKED) == chunked && H5Pget_nfilters(made) == chunked);
    H5Pclose(made);
    H5Dclose(d);
    H5Pclose(how);
    H5Sclose(space);
    H5Fclose(to);
    H5Fclose(from);
    spx_free(value);
    spx_free(copy);
}

typedef struct {
    char *text;
    double x;
} row;

static void types(void)
{
    spx_err e = {0};
    const hid_t from = in_memory(), to = in_memory(), scalar = H5Screate(H5S_SCALAR), none = H5Screate(H5S_NULL);
    const hsize_t two = 2;
    const hid_t space = H5Screate_simple(1, &two, NULL), text = H5Tcopy(H5T_C_S1);
    H5Tset_size(text, H5T_VARIABLE);
    const hid_t table = H5Tcreate(H5T_COMPOUND, sizeof(row));
    H5Tinsert(table, "text", offsetof(row, text), text);
    H5Tinsert(table, "x", offsetof(row, x), H5T_NATIVE_DOUBLE);
    char one[] = "one", longer[] = "a longer text";
    const row rows[2] = {{one, 1}, {longer, -2}};
    const hid_t committed = H5Tcopy(table);
    CHECK(H5Tcommit2(from, "/type", committed, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT) >= 0);
    hid_t d = H5Dcreate2(from, "/table", committed, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    CHECK(H5Dwrite(d, table, H5S_ALL, H5S_ALL, H5P_DEFAULT, rows) >= 0);
    H5Dclose(d);
    H5Gclose(H5Gcreate2(from, "/g", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
    const double v = 42;
    d = H5Dcreate2(from, "/g/scalar", H5T_IEEE_F64BE, scalar, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    CHECK(H5Dwrite(d, H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT, &v) >= 0);
    H5Dclose(d);
    H5Dclose(H5Dcreate2(from, "/g/null", H5T_NATIVE_INT, none, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
    hobj_ref_t reference;
    CHECK(H5Rcreate(&reference, from, "/table", H5R_OBJECT, -1) >= 0);
    d = H5Dcreate2(from, "/g/reference", H5T_STD_REF_OBJ, scalar, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    CHECK(H5Dwrite(d, H5T_STD_REF_OBJ, H5S_ALL, H5S_ALL, H5P_DEFAULT, &reference) >= 0);
    H5Dclose(d);

    CHECK(spx_h5_copy(from, to, "/table", &e) == SPX_OK && spx_h5_copy(from, to, "/g", &e) == SPX_OK);
    row got[2];
    d = H5Dopen2(to, "/table", H5P_DEFAULT);
    const hid_t type = H5Dget_type(d);
    CHECK(H5Tcommitted(type) == 0);
    H5Tclose(type);
    CHECK(H5Dread(d, table, H5S_ALL, H5S_ALL, H5P_DEFAULT, got) >= 0);
    CHECK(strcmp(got[0].text, one) == 0 && strcmp(got[1].text, longer) == 0 && got[0].x == 1 && got[1].x == -2);
    H5Dvlen_reclaim(table, space, H5P_DEFAULT, got);
    H5Dclose(d);
    double copied = 0;
    CHECK(H5LTread_dataset_double(to, "/g/scalar", &copied) >= 0 && copied == 42);
    CHECK(H5Lexists(to, "/g/null", H5P_DEFAULT) > 0);
    d = H5Dopen2(to, "/g/reference", H5P_DEFAULT);
    CHECK(H5Dread(d, H5T_STD_REF_OBJ, H5S_ALL, H5S_ALL, H5P_DEFAULT, &reference) >= 0 && reference == 0);
    H5Dclose(d);
    const hid_t linked = H5Tcreate(H5T_COMPOUND, 24);
    H5Tinsert(linked, "text", 0, text);
    H5Tinsert(linked, "to", 8, H5T_STD_REF_OBJ);
    H5Tinsert(linked, "x", 16, H5T_NATIVE_DOUBLE);
    struct {
        char *text;
        hobj_ref_t to;
        double x;
    } links[2] = {{one, 1, 1}, {longer, 1, -2}};
    CHECK(sizeof links[0] == 24 && H5Rcreate(&links[0].to, from, "/table", H5R_OBJECT, -1) >= 0);
    links[1].to = links[0].to;
    d = H5Dcreate2(from, "/links", linked, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    CHECK(H5Dwrite(d, linked, H5S_ALL, H5S_ALL, H5P_DEFAULT, links) >= 0);
    H5Dclose(d);
    CHECK(spx_h5_copy(from, to, "/links", &e) == SPX_OK);
    memset(links, 0, sizeof links);
    d = H5Dopen2(to, "/links", H5P_DEFAULT);
    CHECK(H5Dread(d, linked, H5S_ALL, H5S_ALL, H5P_DEFAULT, links) >= 0);
    H5Dclose(d);
    CHECK(links[1].to == 0 && links[1].x == -2 && links[1].text != NULL && strcmp(links[1].text, longer) == 0);
    H5Dvlen_reclaim(linked, space, H5P_DEFAULT, links);
    H5Tclose(linked);
    CHECK(spx_h5_copy(from, to, "/absent", &e) == SPX_EINPUT);
    char name[600] = "/long";
    H5Gclose(H5Gcreate2(from, name, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
    memset(name + 5, 'g', sizeof name - 6);
    name[5] = '/';
    H5Gclose(H5Gcreate2(from, name, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
    CHECK(spx_h5_copy(from, to, "/long", &e) == SPX_EINPUT);
    spx_err_clear(&e);
    CHECK(H5Fget_obj_count(from, H5F_OBJ_ALL | H5F_OBJ_LOCAL) >= 1 && H5Fget_obj_count(to, H5F_OBJ_ALL) == 1);
    H5Tclose(committed);
    H5Tclose(table);
    H5Tclose(text);
    H5Sclose(space);
    H5Sclose(scalar);
    H5Sclose(none);
    H5Fclose(to);
    H5Fclose(from);
}

/* A dataset with two names has both in the copy; a group has one. */
static void names(void)
{
    spx_err e = {0};
    const hid_t from = in_memory(), to = in_memory(), other = in_memory();
    const double v = 42;
    double copied[2] = {0, 0};
    H5Gclose(H5Gcreate2(from, "/g", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
    H5Gclose(H5Gcreate2(from, "/g/below", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
    CHECK(H5LTmake_dataset_double(from, "/g/below/one", 0, NULL, &v) >= 0);
    CHECK(H5Lcreate_hard(from, "/g/below/one", from, "/g/two", H5P_DEFAULT, H5P_DEFAULT) >= 0);
    CHECK(H5Lcreate_soft("/g/two", from, "/g/soft", H5P_DEFAULT, H5P_DEFAULT) >= 0);
    CHECK(spx_h5_copy(from, to, "/g", &e) == SPX_OK && H5Lexists(to, "/g/soft", H5P_DEFAULT) == 0);
    CHECK(H5LTread_dataset_double(to, "/g/below/one", &copied[0]) >= 0 && copied[0] == v);
    CHECK(H5LTread_dataset_double(to, "/g/two", &copied[1]) >= 0 && copied[1] == v);
    CHECK(H5Lcreate_hard(from, "/g/below", from, "/g/again", H5P_DEFAULT, H5P_DEFAULT) >= 0);
    CHECK(spx_h5_copy(from, other, "/g", &e) == SPX_EINPUT && strstr(spx_err_text(&e), "2 names") != NULL);
    H5Fclose(other);
    H5Fclose(to);
    H5Fclose(from);
}

static void records(void)
{
    spx_err e = {0};
    const hid_t from = in_memory(), to = in_memory();
    const spx_provenance p = {.program = "test", .version = "1", .command_line = "test"};
    CHECK(spx_provenance_append(from, &p, &e) == SPX_OK);
    spx_mem_limit(1);
    CHECK(spx_provenance_copy(1, &from, to, &e) == SPX_EIO);
    spx_err_clear(&e);
    spx_mem_limit(0);
    CHECK(spx_provenance_copy(1, &from, to, &e) == SPX_OK && spx_provenance_count(to) == 1);
    H5Fclose(to);
    H5Fclose(from);
}

/* Records of two branches that share their beginning, more than the first size of the set, lines of several widths. */
static void branches(void)
{
    enum { SHARED = 90, OWN = 40 };
    spx_err e = {0};
    const hid_t from[] = {in_memory(), in_memory()}, to = in_memory();
    char command[32], found[32], option[4] = "";
    for (int b = 0; b < 2; b++)
        for (int i = 0; i < SHARED + OWN; i++) {
            (void)snprintf(command, sizeof command, "test %d", i < SHARED ? i : i + OWN * b);
            (void)snprintf(option, sizeof option, "%d", i < SHARED ? i : 0);
            const spx_provenance p = {.program = "test", .version = "1", .command_line = command, .options = option};
            CHECK(spx_provenance_append(from[b], &p, &e) == SPX_OK);
        }
    CHECK(spx_provenance_copy(2, from, to, &e) == SPX_OK && spx_provenance_count(to) == SHARED + 2 * OWN);
    for (size_t i = 0; i < SHARED + 2 * OWN; i++) {
        (void)snprintf(command, sizeof command, "test %zu", i);
        CHECK(spx_provenance_field(to, i, "command_line", found, sizeof found) && strcmp(found, command) == 0);
    }
    H5Fclose(to);
    H5Fclose(from[0]);
    H5Fclose(from[1]);
}

/* A record that lacks a line stops the copy. */
static void damaged_record(void)
{
    spx_err e = {0};
    const hid_t from = in_memory(), to = in_memory();
    H5Gclose(H5Gcreate2(from, "/provenance", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
    CHECK(spx_h5_write_strings(from, "/provenance/000", 12, 2, "program: x  version: 1  ", &e) == SPX_OK);
    CHECK(spx_provenance_copy(1, &from, to, &e) == SPX_EINPUT && strstr(spx_err_text(&e), "command_line") != NULL);
    H5Fclose(to);
    H5Fclose(from);
}

/* Attributes of a dataset keep long texts whole. */
static void long_texts(void)
{
    enum { LONG = 9999 };
    spx_err e = {0};
    const hid_t from = in_memory(), to = in_memory();
    char text[LONG + 1], found[LONG + 10] = "";
    memset(text, 'x', LONG);
    text[LONG] = '\0';
    CHECK(spx_h5_set_str(from, "/", "history", text, &e) == SPX_OK);
    CHECK(spx_h5_copy_attrs(from, "/", to, "/", NULL, &e) == SPX_OK);
    CHECK(spx_h5_attr_str(to, "/", "history", found, sizeof found, &e) == SPX_OK && strcmp(text, found) == 0);
    H5Fclose(to);
    H5Fclose(from);
}

int main(void)
{
    static const struct {
        int ndim;
        hsize_t dims[3];
    } shapes[] = {{1, {1}}, {1, {5 << 20}}, {2, {3, 5 << 20}}, {2, {2500, 2001}}, {3, {2, 3000, 1500}}, {3, {7, 1, 3}}};
    H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        shape(shapes[i].ndim, shapes[i].dims, 0);
    shape(2, (hsize_t[]){2500, 2001}, 1);
    types();
    long_texts();
    names();
    records();
    branches();
    damaged_record();
    return bad;
}
