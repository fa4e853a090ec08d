/* Provides access to objects of an HDF5 file that may be hostile: links, shapes, sizes that are claimed
 * (h5/object.h). */
#include "h5/object.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/tmpfile.h"
#include "h5/failure.h"
#include "h5/heaps.h"
#include "h5/internal.h"

static int refused_external;

/* Refuses external links wherever a path is traversed: a hostile file must not make a program open other files. */
static herr_t refuse_external(const char *pf, const char *po, const char *cf, const char *co, unsigned *flags,
                              hid_t fapl, void *data)
{
    (void)pf, (void)po, (void)cf, (void)co, (void)flags, (void)fapl, (void)data;
    refused_external = 1;
    return -1;
}

static hid_t access_list(hid_t class)
{
    hid_t list = H5Pcreate(class);
    if (list >= 0 && H5Pset_elink_cb(list, refuse_external, NULL) < 0) {
        (void)H5Pclose(list);
        list = H5I_INVALID_HID;
    }
    return list;
}

const char *spx_h5_shown(const char *name)
{
    return strncmp(name, SPX_H5_IMAGE_NAME, strlen(SPX_H5_IMAGE_NAME)) == 0 ? "standard input"
                                                                            : spx_tmpfile_shown(name);
}

const char *spx_h5_filename(hid_t loc)
{
    static _Thread_local char name[1024];
    if (H5Fget_name(loc, name, sizeof name) < 0)
        return "HDF5 file";
    return spx_h5_shown(name);
}

/* Absolute path of `path` below `loc`. */
void spx_h5_absolute(hid_t loc, const char *path, char *out, size_t size)
{
    char base[512] = "";
    if (path[0] == '/' || H5Iget_name(loc, base, sizeof base) < 0)
        base[0] = '\0';
    if (strcmp(path, ".") == 0 || path[0] == '\0')
        (void)snprintf(out, size, "%s", base[0] != '\0' ? base : "/");
    else
        (void)snprintf(out, size, "%s%s%s", base,
                       path[0] == '/' || (base[0] != '\0' && base[strlen(base) - 1] == '/') ? "" : "/", path);
}

spx_status spx_h5_fail_at(hid_t loc, const char *path, spx_status code, const char *what, spx_err *e)
{
    char abs[600];
    spx_h5_absolute(loc, path, abs, sizeof abs);
    return spx_fail_at(e, code, spx_h5_filename(loc), abs, NULL, "%s", what);
}

/* The link is there and leads to another file, or to nothing. */
enum { LOST = 2 };

/* Is the link `part` below `loc` there, and does it lead to an object? Negative: that cannot be found out. Nothing is
 * below a dataset. */
static int resolves(hid_t loc, const char *part, hid_t lapl)
{
    refused_external = 0;
    const htri_t link = H5Lexists(loc, part, lapl);
    const htri_t object = link > 0 ? H5Oexists_by_name(loc, part, lapl) : link;
    if (link > 0 && (object == 0 || (object < 0 && refused_external)))
        return LOST;
    if (link < 0 && strrchr(part, '/') > part) {
        char parent[600];
        H5O_info_t info;
        (void)snprintf(parent, sizeof parent, "%.*s", (int)(strrchr(part, '/') - part), part);
        if (H5Oget_info_by_name1(loc, parent, &info, lapl) >= 0 && info.type != H5O_TYPE_GROUP)
            return 0;
    }
    return object;
}

int spx_h5_exists(hid_t loc, const char *path)
{
    char part[600];
    size_t n = strlen(path);
    if (strcmp(path, "/") == 0 || strcmp(path, ".") == 0)
        return 1;
    if (n == 0 || n >= sizeof part)
        return 0;
    hid_t lapl = access_list(H5P_LINK_ACCESS);
    int found = lapl >= 0 ? 1 : -1;
    for (size_t i = 1; i <= n && found == 1; i++) {
        if (path[i] != '/' && path[i] != '\0')
            continue;
        memcpy(part, path, i);
        part[i] = '\0';
        found = resolves(loc, part, lapl);
    }
    if (lapl >= 0)
        (void)H5Pclose(lapl);
    if (found < 0)
        spx_h5_lookup_failed(loc, path);
    if (found == LOST) { /* what was to be there is lost, not absent */
        spx_err lost = {0};
        char abs[600];
        spx_h5_absolute(loc, part, abs, sizeof abs);
        (void)spx_fail_at(&lost, SPX_EINPUT, spx_h5_filename(loc), abs,
                          "copy what belongs there into the file (h5copy)", "is a link to another file, or to nothing");
        spx_h5_keep_damage(&lost);
    }
    return found == 1;
}

/* Bytes of a chunk that HDF5 unpacks as a whole, outside of spx_alloc(), into a second one; 0: it unpacks none. */
static size_t filtered_chunk(hid_t d)
{
    hsize_t dims[H5S_MAX_RANK];
    const hid_t dcpl = H5Dget_create_plist(d), type = H5Dget_type(d);
    const int n = dcpl >= 0 && H5Pget_layout(dcpl) == H5D_CHUNKED && H5Pget_nfilters(dcpl) > 0
                      ? H5Pget_chunk(dcpl, H5S_MAX_RANK, dims)
                      : 0;
    size_t bytes = n > 0 && type >= 0 ? H5Tget_size(type) : 0;
    for (int i = 0; i < n; i++)
        bytes = dims[i] > 0 && bytes > SIZE_MAX / 4 / dims[i] ? SIZE_MAX / 4 : bytes * (size_t)dims[i];
    if (type >= 0)
        (void)H5Tclose(type);
    if (dcpl >= 0)
        (void)H5Pclose(dcpl);
    return bytes;
}

hid_t spx_h5_open(hid_t loc, const char *path, spx_err *e)
{
    if (!spx_h5_exists(loc, path)) {
        spx_h5_fail_at(loc, path, SPX_EINPUT, "dataset is missing: is this the right kind of file? (h5check tells)", e);
        return H5I_INVALID_HID;
    }
    hid_t dapl = access_list(H5P_DATASET_ACCESS);
    hid_t d = H5Dopen2(loc, path, dapl);
    (void)H5Pclose(dapl);
    if (d < 0) {
        spx_h5_fail_at(loc, path, SPX_EINPUT, "is not a dataset", e);
        return d;
    }
    /* external storage would let a hostile file read other files */
    hid_t dcpl = H5Dget_create_plist(d);
    int outside = dcpl < 0 || H5Pget_external_count(dcpl) != 0 || H5Pget_layout(dcpl) == H5D_VIRTUAL;
    if (dcpl >= 0)
        (void)H5Pclose(dcpl);
    if (outside) {
        spx_h5_fail_at(loc, path, SPX_EINPUT, "keeps its data in other files, which is not accepted: h5repack it first",
                       e);
        (void)H5Dclose(d);
        return H5I_INVALID_HID;
    }
    const size_t chunk = filtered_chunk(d);
    if (chunk > 0 && !spx_mem_fits(2 * chunk)) {
        char what[160];
        (void)snprintf(what, sizeof what,
                       "has chunks of %.1f MiB, of which two do not fit into the memory: h5repack it with smaller ones",
                       (double)chunk / 0x1p20);
        spx_h5_fail_at(loc, path, SPX_EIO, what, e);
        (void)H5Dclose(d);
        return H5I_INVALID_HID;
    }
    return d;
}

int spx_h5_has_scales(hid_t d)
{
    int ndim = -1, sound = 0;
    size_t dims[SPX_H5_MAXDIM];
    if (H5Aexists(d, "DIMENSION_LIST") <= 0 || spx_h5_dataset_dims(d, &ndim, dims) != SPX_OK)
        return 0;
    spx_h5_attribute a;
    if (spx_h5_attribute_open(d, "DIMENSION_LIST", &a) && H5Tget_class(a.type) == H5T_VLEN) {
        const hid_t element = H5Tget_super(a.type);
        sound = element >= 0 && H5Tequal(element, H5T_STD_REF_OBJ) > 0 && H5Sget_simple_extent_ndims(a.space) == 1 &&
                H5Sget_simple_extent_npoints(a.space) == ndim && spx_heaps_attribute(a.id, a.type, (size_t)ndim);
        if (element >= 0)
            (void)H5Tclose(element);
    }
    spx_h5_attribute_close(&a);
    return sound;
}

spx_status spx_h5_dataset_dims(hid_t d, int *ndim, size_t dims[SPX_H5_MAXDIM])
{
    hsize_t h[H5S_MAX_RANK];
    hid_t s = H5Dget_space(d);
    int n = s < 0 ? -1 : H5Sget_simple_extent_dims(s, h, NULL);
    if (s >= 0)
        (void)H5Sclose(s);
    if (n < 0 || n > SPX_H5_MAXDIM)
        return SPX_EINPUT;
    for (int i = 0; i < n; i++)
        dims[i] = (size_t)h[i];
    *ndim = n;
    return SPX_OK;
}

spx_status spx_h5_shape(hid_t loc, const char *path, int *ndim, size_t dims[SPX_H5_MAXDIM], spx_err *e)
{
    hid_t d = spx_h5_open(loc, path, e);
    if (d < 0)
        return e->code;
    spx_status st = spx_h5_dataset_dims(d, ndim, dims);
    if (st != SPX_OK)
        spx_h5_fail_at(loc, path, st, "has too many dimensions", e);
    (void)H5Dclose(d);
    return st;
}

typedef struct {
    size_t n, capacity;
    char **names;
    spx_err *e;
} name_list;

static herr_t add_name(hid_t g, const char *name, const H5L_info_t *info, void *data)
{
    (void)g, (void)info;
    name_list *l = data;
    if (l->n == l->capacity || (l->names[l->n] = spx_strdup(name, l->e)) == NULL)
        return -1;
    l->n++;
    return 0;
}

spx_status spx_h5_list(hid_t loc, const char *path, size_t *n, char ***names, spx_err *e)
{
    spx_err err = {0};
    name_list l = {0, 0, NULL, &err};
    H5G_info_t info;
    *n = 0;
    *names = NULL;
    if (!spx_h5_exists(loc, path) || H5Gget_info_by_name(loc, path, &info, H5P_DEFAULT) < 0)
        return spx_h5_fail_at(loc, path, SPX_EINPUT, "group is missing", e);
    l.capacity = (size_t)info.nlinks;
    if ((l.names = spx_alloc(l.capacity, sizeof *l.names, e)) == NULL)
        return SPX_EIO;
    hsize_t idx = 0;
    if (H5Literate_by_name(loc, path, H5_INDEX_NAME, H5_ITER_INC, &idx, add_name, &l, H5P_DEFAULT) < 0) {
        spx_h5_names_free(l.n, l.names);
        if (err.code != SPX_OK) /* memory */
            return spx_err_pass(e, &err);
        return spx_h5_fail_at(loc, path, SPX_EINPUT, "cannot list the group: is the file damaged?", e);
    }
    *n = l.n;
    *names = l.names;
    return SPX_OK;
}

void spx_h5_names_free(size_t n, char **names)
{
    for (size_t i = 0; names != NULL && i < n; i++)
        spx_free(names[i]);
    spx_free(names);
}
int spx_h5_overclaims(hid_t d, size_t bytes)
{
    /* deflate compresses by 1:1032 at most, and stored data cannot exceed the file, whatever the header says */
    hsize_t stored = H5Dget_storage_size(d), size = 0;
    hid_t f = H5Iget_file_id(d);
    if (f < 0 || H5Fget_filesize(f, &size) < 0)
        size = 0;
    if (f >= 0)
        (void)H5Fclose(f);
    return bytes > ((size_t)1 << 20) && bytes / 2048 > (stored < size ? stored : size);
}
