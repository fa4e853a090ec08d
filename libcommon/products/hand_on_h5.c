/* Hands blocks on (products/hand_on_h5.h). */
#include "products/hand_on_h5.h"

#include <hdf5_hl.h>
#include <stdio.h>
#include <string.h>

#include "h5/attr.h"
#include "h5/object.h"
#include "h5/write.h"

/* A hard link, so that the block is this file's: a hostile file must not make a program open others. */
static int is_here(hid_t file, const char *path)
{
    H5L_info_t link;
    return spx_h5_exists(file, path) && H5Lget_info(file, path, &link, H5P_DEFAULT) >= 0 && link.type == H5L_TYPE_HARD;
}

/* ---- texts: H5Ocopy() gives each attribute a committed type without a name, which h5dump complains of ---- */

typedef struct {
    char name[32][64];
    size_t n;
} text_names;

static herr_t note_text(hid_t object, const char *name, const H5A_info_t *info, void *ctx)
{
    text_names *t = ctx;
    const hid_t a = H5Aopen(object, name, H5P_DEFAULT), type = a >= 0 ? H5Aget_type(a) : H5I_INVALID_HID;
    (void)info;
    if (type >= 0 && H5Tget_class(type) == H5T_STRING && H5Tis_variable_str(type) > 0 && strlen(name) < 64 && t->n < 32)
        memcpy(t->name[t->n++], name, strlen(name) + 1);
    if (type >= 0)
        (void)H5Tclose(type);
    if (a >= 0)
        (void)H5Aclose(a);
    return 0;
}

/* Writes the texts of an object again, with the type that all texts of the file have. */
static spx_status renew_texts(hid_t to, const char *path, spx_err *e)
{
    text_names t = {.n = 0};
    hsize_t at = 0;
    spx_status st = SPX_OK;
    if (H5Aiterate_by_name(to, path, H5_INDEX_NAME, H5_ITER_INC, &at, note_text, &t, H5P_DEFAULT) < 0)
        return spx_fail_at(e, SPX_EIO, spx_h5_filename(to), path, NULL, "its attributes cannot be read");
    for (size_t i = 0; i < t.n && st == SPX_OK; i++) {
        char text[4096];
        st = spx_h5_attr_str(to, path, t.name[i], text, sizeof text, e);
        if (st == SPX_OK)
            st = spx_h5_set_str(to, path, t.name[i], text, e);
    }
    return st;
}

/* ---- dimension scales: H5Ocopy() leaves references that point into the other file ---- */

/* Dataset whose scales are attached. */
typedef struct {
    hid_t to;
    const char *block, *path;
    spx_err *e;
    spx_status st;
} scales;

/* Opens it, if it is a dataset; negative: it is none. */
static hid_t dataset(hid_t file, const char *path)
{
    const hid_t d = is_here(file, path) ? H5Oopen(file, path, H5P_DEFAULT) : H5I_INVALID_HID;
    if (d < 0 || H5Iget_type(d) == H5I_DATASET)
        return d;
    (void)H5Oclose(d);
    return H5I_INVALID_HID;
}

/* Attaches a scale that lies in the same block. */
static herr_t attach(hid_t data, unsigned dim, hid_t scale, void *ctx)
{
    scales *s = ctx;
    char name[512];
    const size_t n = strlen(s->block);
    (void)data;
    const hid_t here = dataset(s->to, s->path);
    if (here < 0)
        return 1;
    (void)H5Oclose(here);
    if (H5Iget_name(scale, name, sizeof name) <= 0 || strncmp(name, s->block, n) != 0 || name[n] != '/' ||
        strchr(name + n + 1, '/') != NULL || !is_here(s->to, name))
        return 0;
    s->st = spx_h5_attach_scale(s->to, s->path, dim, name, name + n + 1, s->e);
    return s->st != SPX_OK;
}

static spx_status forget_scales(hid_t to, const char *path, spx_err *e)
{
    static const char *const of[] = {"DIMENSION_LIST", "REFERENCE_LIST"};
    spx_status st = SPX_OK;
    const hid_t d = dataset(to, path);
    for (size_t i = 0; i < 2 && d >= 0 && st == SPX_OK; i++)
        if (H5Aexists(d, of[i]) > 0 && H5Adelete(d, of[i]) < 0)
            st = spx_fail_at(e, SPX_EIO, spx_h5_filename(to), path, NULL, "its dimension scales cannot be written");
    if (d >= 0)
        (void)H5Oclose(d);
    return st;
}

static spx_status take_scales(hid_t from, hid_t to, const char *block, const char *path, spx_err *e)
{
    scales s = {.to = to, .block = block, .path = path, .e = e, .st = SPX_OK};
    const hid_t d = dataset(from, path);
    const hid_t space = d >= 0 ? H5Dget_space(d) : H5I_INVALID_HID;
    const int ndim = space >= 0 ? H5Sget_simple_extent_ndims(space) : 0;
    for (int k = 0; k < ndim && s.st == SPX_OK; k++)
        (void)H5DSiterate_scales(d, (unsigned)k, NULL, attach, &s);
    if (space >= 0)
        (void)H5Sclose(space);
    if (d >= 0)
        (void)H5Oclose(d);
    return s.st;
}

static spx_status renew_scales(hid_t from, hid_t to, const char *block, spx_err *e)
{
    char **name = NULL, path[512];
    size_t n = 0;
    const hid_t table = dataset(to, block);
    spx_status st = renew_texts(to, block, e);
    if (table >= 0)
        return H5Oclose(table) < 0 ? SPX_EIO : st;
    if (st == SPX_OK)
        st = spx_h5_list(to, block, &n, &name, e);
    for (int take = 0; take < 2; take++)
        for (size_t i = 0; i < n && st == SPX_OK; i++) {
            if ((size_t)snprintf(path, sizeof path, "%s/%s", block, name[i]) >= sizeof path)
                continue;
            st = take ? take_scales(from, to, block, path, e) : forget_scales(to, path, e);
            if (st == SPX_OK && !take)
                st = renew_texts(to, path, e);
        }
    spx_h5_names_free(n, name);
    return st;
}

static spx_status copy(hid_t from, hid_t to, size_t n, const char *const *path, spx_err *e)
{
    spx_status st = SPX_OK;
    for (size_t i = 0; i < n && st == SPX_OK; i++) {
        if (!is_here(from, path[i]) || spx_h5_exists(to, path[i]))
            continue;
        if (H5Ocopy(from, path[i], to, path[i], H5P_DEFAULT, H5P_DEFAULT) < 0)
            st = spx_fail_at(e, SPX_EINPUT, spx_h5_filename(from), path[i], "check the file with h5check",
                             "cannot be copied");
        if (st == SPX_OK)
            st = renew_scales(from, to, path[i], e);
    }
    return st;
}

spx_status spx_blocks_hand_on(hid_t from, hid_t to, spx_err *e)
{
    static const char *const blocks[] = {"/psf", "/shift", "/flat", "/sky", "/flux"};
    return copy(from, to, sizeof blocks / sizeof *blocks, blocks, e);
}

spx_status spx_traces_hand_on(hid_t from, hid_t to, spx_err *e)
{
    static const char *const blocks[] = {"/shift"};
    return copy(from, to, sizeof blocks / sizeof *blocks, blocks, e);
}

spx_status spx_exposure_hand_on(hid_t from, hid_t to, spx_err *e)
{
    static const char *const blocks[] = {"/image", "/fibermap"};
    return copy(from, to, sizeof blocks / sizeof *blocks, blocks, e);
}
