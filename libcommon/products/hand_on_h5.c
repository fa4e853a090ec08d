/* Hands blocks on (products/hand_on_h5.h). */
#include "products/hand_on_h5.h"

#include <hdf5_hl.h>
#include <stdio.h>
#include <string.h>

#include "h5/attr.h"
#include "h5/copy.h"
#include "h5/object.h"
#include "h5/write.h"

/* A hard link, so that the block is this file's: a hostile file must not make a program open others. */
static int is_here(hid_t file, const char *path)
{
    H5L_info_t link;
    return spx_h5_exists(file, path) && H5Lget_info(file, path, &link, H5P_DEFAULT) >= 0 && link.type == H5L_TYPE_HARD;
}

/* ---- dimension scales ---- */

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

static spx_status take_scales(hid_t from, hid_t to, const char *block, const char *path, spx_err *e)
{
    scales s = {.to = to, .block = block, .path = path, .e = e, .st = SPX_OK};
    const hid_t d = dataset(from, path);
    const hid_t space = d >= 0 ? H5Dget_space(d) : H5I_INVALID_HID;
    const int ndim = space >= 0 && spx_h5_has_scales(d) ? H5Sget_simple_extent_ndims(space) : 0;
    /* one whose scale was deleted has none; failures of the machine are pending */
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
    spx_status st = spx_h5_copy_attrs(from, block, to, block, NULL, e);
    if (table >= 0)
        return H5Oclose(table) < 0 ? SPX_EIO : st;
    if (st == SPX_OK)
        st = spx_h5_list(to, block, &n, &name, e);
    for (int take = 0; take < 2; take++)
        for (size_t i = 0; i < n && st == SPX_OK; i++) {
            (void)snprintf(path, sizeof path, "%s/%s", block, name[i]); /* spx_h5_copy() refuses longer ones */
            st = take ? take_scales(from, to, block, path, e) : spx_h5_copy_attrs(from, path, to, path, NULL, e);
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
        st = spx_h5_copy(from, to, path[i], e);
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
