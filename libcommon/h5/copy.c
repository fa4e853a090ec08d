/* Copies objects, by reading and writing them (h5/copy.h). H5Ocopy() of HDF5 1.10 crashes where a read fails, follows
 * external storage, and copies the committed datatypes of attributes, without a name, of which h5dump complains. */
#include "h5/copy.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "h5/internal.h"
#include "h5/object.h"
#include "h5/read.h"
#include "h5/table_internal.h"

/* Bytes of a dataset that are copied at one time. */
enum { PIECE = 1 << 22 };

/* Selection that goes through a dataset in pieces. */
typedef struct {
    int ndim;
    hsize_t dims[H5S_MAX_RANK], at[H5S_MAX_RANK], count[H5S_MAX_RANK];
    size_t most; /* elements of a piece */
} pieces;

static void pieces_of(pieces *p, size_t size)
{
    p->most = 1;
    for (int k = p->ndim - 1; k >= 0; k--) {
        const size_t space = PIECE / size / p->most;
        p->at[k] = 0;
        p->count[k] = p->dims[k] <= space ? p->dims[k] : space > 0 ? space : 1;
        p->most *= p->count[k];
    }
}

/* Selects the piece in `file`, and as many elements in `memory`. */
static int select_piece(const pieces *p, hid_t file, hid_t memory)
{
    hsize_t count[H5S_MAX_RANK], n = 1;
    for (int k = 0; k < p->ndim; k++) {
        count[k] = p->at[k] + p->count[k] <= p->dims[k] ? p->count[k] : p->dims[k] - p->at[k];
        n *= count[k];
    }
    return H5Sselect_hyperslab(file, H5S_SELECT_SET, p->at, NULL, count, NULL) >= 0 &&
           H5Sset_extent_simple(memory, 1, &n, NULL) >= 0;
}

/* To the next piece; 0: that was the last. */
static int next_piece(pieces *p)
{
    for (int k = p->ndim - 1; k >= 0; k--) {
        if ((p->at[k] += p->count[k]) < p->dims[k])
            return 1;
        p->at[k] = 0;
    }
    return 0;
}

/* *values: a type's values that are no references, which lead elsewhere in the other file: columns of a table, or the
 * type itself; H5I_INVALID_HID: there are none. 0: no memory. */
static int without_references(hid_t type, hid_t *values)
{
    *values = H5I_INVALID_HID;
    if (H5Tdetect_class(type, H5T_REFERENCE) <= 0)
        return (*values = H5Tcopy(type)) >= 0;
    const int n = H5Tget_class(type) == H5T_COMPOUND ? H5Tget_nmembers(type) : 0;
    int fine = 1;
    for (int k = 0; k < n && fine; k++) {
        const hid_t member = H5Tget_member_type(type, (unsigned)k);
        char *name = H5Tget_member_name(type, (unsigned)k);
        const int wanted = member >= 0 && H5Tdetect_class(member, H5T_REFERENCE) == 0;
        if (wanted && *values < 0)
            *values = H5Tcreate(H5T_COMPOUND, H5Tget_size(type));
        fine = member >= 0 && name != NULL &&
               (!wanted || H5Tinsert(*values, name, H5Tget_member_offset(type, (unsigned)k), member) >= 0);
        (void)H5free_memory(name);
        if (member >= 0)
            (void)H5Tclose(member);
    }
    return fine;
}

/* Values of a dataset, in memory as `type` has them. */
static spx_status copy_values(hid_t from, hid_t to, hid_t type, hid_t space, spx_err *e)
{
    const hssize_t n = H5Sget_simple_extent_npoints(space);
    const size_t size = H5Tget_size(type);
    const int plain = spx_table_type_is_plain(type, 0);
    pieces p = {.ndim = H5Sget_simple_extent_ndims(space)};
    if (n < 0 || size == 0 || p.ndim < 0 || H5Sget_simple_extent_dims(space, p.dims, NULL) < 0)
        return spx_h5_fail_at(from, ".", SPX_EINPUT, "cannot be read", e);
    if (n == 0)
        return SPX_OK;
    pieces_of(&p, size);
    char *value = spx_alloc(p.most, size, e);
    const hid_t memory = H5Screate(p.ndim > 0 ? H5S_SIMPLE : H5S_SCALAR);
    spx_status st = value != NULL ? SPX_OK : SPX_EIO;
    do {
        if (st == SPX_OK && (memory < 0 || (p.ndim > 0 && !select_piece(&p, space, memory))))
            st = spx_fail(e, SPX_EIO, "out of memory");
        if (st == SPX_OK)
            st = spx_h5_get(from, type, memory, space, value, e);
        if (st == SPX_OK && H5Dwrite(to, type, memory, space, H5P_DEFAULT, value) < 0)
            st = spx_h5_write_failed(to, ".", e);
        if (st == SPX_OK && !plain) /* memory of texts and sequences: HDF5 calls a function for each value */
            (void)H5Dvlen_reclaim(type, memory, H5P_DEFAULT, value);
    } while (st == SPX_OK && next_piece(&p));
    if (memory >= 0)
        (void)H5Sclose(memory);
    spx_free(value);
    return st;
}

static spx_status copy_dataset(hid_t from, hid_t to, const char *path, spx_err *e)
{
    const hid_t d = spx_h5_open(from, path, e);
    if (d < 0)
        return e->code;
    const hid_t stored = H5Dget_type(d), space = H5Dget_space(d), how = H5Dget_create_plist(d);
    const hid_t type = stored >= 0 ? H5Tcopy(stored) : H5I_INVALID_HID; /* its own, where it is a committed one */
    hid_t values = H5I_INVALID_HID;
    /* no time: the same command makes the same bytes */
    const hid_t copy = type >= 0 && space >= 0 && how >= 0 && H5Pset_obj_track_times(how, 0) >= 0
                           ? H5Dcreate2(to, path, type, space, H5P_DEFAULT, how, H5P_DEFAULT)
                           : -1;
    spx_status st = copy >= 0 ? SPX_OK : spx_h5_write_failed(to, path, e);
    if (st == SPX_OK && !without_references(type, &values))
        st = spx_fail(e, SPX_EIO, "out of memory");
    if (st == SPX_OK && values >= 0)
        st = copy_values(d, copy, values, space, e);
    if (copy >= 0 && H5Dclose(copy) < 0 && st == SPX_OK)
        st = spx_h5_write_failed(to, path, e);
    if (how >= 0)
        (void)H5Pclose(how);
    if (space >= 0)
        (void)H5Sclose(space);
    if (values >= 0)
        (void)H5Tclose(values);
    if (type >= 0)
        (void)H5Tclose(type);
    if (stored >= 0)
        (void)H5Tclose(stored);
    (void)H5Dclose(d);
    return st;
}

static spx_status make_group(hid_t to, const char *path, spx_err *e)
{
    const hid_t g = H5Gcreate2(to, path, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    return g >= 0 && H5Gclose(g) >= 0 ? SPX_OK : spx_h5_write_failed(to, path, e);
}

typedef struct {
    hid_t from, to;
    const char *path;
    spx_err *e;
    spx_status st;
} copying;

/* One that a link below c->path leads to. A dataset is copied for each of its names; a group has one, or copies of what
 * it holds would have no end. */
static herr_t copy_object(hid_t root, const char *name, const H5L_info_t *link, void *ctx)
{
    copying *c = ctx;
    char path[512];
    H5O_info_t info;
    if (link->type != H5L_TYPE_HARD)
        return 0;
    const int n = snprintf(path, sizeof path, "%s/%s", c->path, name);
    if ((size_t)n >= sizeof path)
        c->st = spx_fail_at(c->e, SPX_EINPUT, spx_h5_filename(c->from), c->path, "give it a shorter name",
                            "holds an object with a name of more than %zu bytes", sizeof path - 1);
    else if (H5Oget_info_by_name(root, name, &info, H5P_DEFAULT) < 0)
        c->st = spx_h5_fail_at(c->from, path, SPX_EINPUT, "cannot be copied", c->e);
    else if (info.type == H5O_TYPE_DATASET)
        c->st = copy_dataset(c->from, c->to, path, c->e);
    else if (info.type == H5O_TYPE_GROUP && info.rc > 1)
        c->st =
            spx_fail_at(c->e, SPX_EINPUT, spx_h5_filename(c->from), path, "leave it one name", "has %u names", info.rc);
    else if (info.type == H5O_TYPE_GROUP)
        c->st = make_group(c->to, path, c->e);
    return c->st != SPX_OK;
}

spx_status spx_h5_copy(hid_t from, hid_t to, const char *path, spx_err *e)
{
    copying c = {.from = from, .to = to, .path = path, .e = e, .st = SPX_OK};
    H5O_info_t info;
    herr_t done = H5Oget_info_by_name(from, path, &info, H5P_DEFAULT);
    if (done >= 0 && info.type == H5O_TYPE_DATASET)
        return copy_dataset(from, to, path, e);
    if (done >= 0 && info.type == H5O_TYPE_GROUP && (c.st = make_group(to, path, e)) == SPX_OK)
        done = H5Lvisit_by_name(from, path, H5_INDEX_NAME, H5_ITER_INC, copy_object, &c, H5P_DEFAULT);
    return c.st != SPX_OK ? c.st : done < 0 ? spx_h5_fail_at(from, path, SPX_EINPUT, "cannot be copied", e) : SPX_OK;
}
