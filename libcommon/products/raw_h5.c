/* Reads and writes /raw (products/raw_h5.h). */
#include "products/raw_h5.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "h5/attr.h"
#include "h5/object.h"
#include "h5/read.h"
#include "h5/schema.h"
#include "h5/table.h"
#include "h5/write.h"
#include "products/cards_h5.h"

void spx_raw_path(size_t k, char path[32])
{
    (void)snprintf(path, 32, "/raw/image%02zu", k);
}

/* Largest number of an integer type that a camera's digits may end at: 16 bits or less. */
static spx_status find_largest(hid_t file, const char *path, double *largest, spx_err *e)
{
    const hid_t d = spx_h5_open(file, path, e);
    if (d < 0)
        return SPX_EINPUT;
    const hid_t type = H5Dget_type(d);
    const size_t bits = 8 * H5Tget_size(type);
    *largest = 0;
    if (H5Tget_class(type) == H5T_INTEGER && bits <= 16)
        *largest = (double)((1ul << (bits - (H5Tget_sign(type) == H5T_SGN_2))) - 1);
    (void)H5Tclose(type);
    (void)H5Dclose(d);
    return SPX_OK;
}

static spx_status read_image(hid_t file, const char *group, spx_h5_reads *reads, spx_raw_image *im, spx_err *e)
{
    char path[400];
    size_t dims[2] = {0, 0};
    (void)snprintf(path, sizeof path, "%.300s/data", group);
    spx_status st = find_largest(file, path, &im->largest, e);
    if (st == SPX_OK)
        st = spx_h5_defer_f32(reads, file, path, 2, dims, &im->data, e);
    im->ny = dims[0];
    im->nx = dims[1];
    if (st == SPX_OK && (im->ny == 0 || im->nx == 0))
        st = spx_fail_at(e, SPX_EINPUT, spx_h5_filename(file), path, NULL, "has no pixels");
    (void)snprintf(path, sizeof path, "%.300s/header", group);
    if (st == SPX_OK)
        st = spx_cards_read(file, path, &im->header, e);
    if (st == SPX_OK && spx_h5_has_attr(file, group, "extname"))
        st = spx_h5_attr_str(file, group, "extname", im->extname, sizeof im->extname, e);
    return st;
}

spx_status spx_raw_read(hid_t file, spx_h5_reads *reads, spx_raw *r, spx_err *e)
{
    char **name = NULL, path[400];
    size_t n = 0;
    memset(r, 0, sizeof *r);
    spx_status st = spx_schema_accept(file, "/raw", "raw", e);
    if (st == SPX_OK)
        st = spx_h5_list(file, "/raw", &n, &name, e);
    if (st == SPX_OK && (r->image = spx_alloc(n, sizeof *r->image, e)) == NULL)
        st = SPX_EIO;
    for (size_t i = 0; i < n && st == SPX_OK; i++) {
        if (strcmp(name[i], "header") == 0)
            continue;
        (void)snprintf(path, sizeof path, "/raw/%.300s", name[i]);
        st = read_image(file, path, reads, &r->image[r->n++], e);
    }
    spx_h5_names_free(n, name);
    if (st == SPX_OK && r->n == 0)
        st = spx_fail_at(e, SPX_EINPUT, spx_h5_filename(file), "/raw", NULL, "holds no image");
    if (st == SPX_OK)
        st = spx_cards_read(file, "/raw/header", &r->header, e);
    if (st == SPX_OK && spx_h5_has_attr(file, "/raw", "camera"))
        st = spx_h5_attr_str(file, "/raw", "camera", r->camera, sizeof r->camera, e);
    return st == SPX_OK ? spx_table_read(file, "/fibermap", &r->fibermap, e) : st;
}

spx_status spx_raw_write(hid_t file, const spx_raw *r, spx_err *e)
{
    spx_status st = spx_h5_group(file, "/raw", e);
    if (st == SPX_OK)
        st = spx_cards_write(file, "/raw/header", &r->header, e);
    if (st == SPX_OK)
        st = spx_h5_set_str(file, "/raw", "camera", r->camera, e);
    return st == SPX_OK ? spx_table_write(file, "/fibermap", r->fibermap, e) : st;
}

spx_status spx_raw_write_image(hid_t file, size_t k, const spx_raw_image *im, hid_t type, const void *pixels,
                               spx_err *e)
{
    char group[32], path[48];
    const size_t dims[2] = {im->ny, im->nx};
    spx_raw_path(k, group);
    (void)snprintf(path, sizeof path, "%s/data", group);
    spx_status st = spx_h5_write(file, path, type, 2, dims, pixels, e);
    (void)snprintf(path, sizeof path, "%s/header", group);
    if (st == SPX_OK)
        st = spx_cards_write(file, path, &im->header, e);
    return st == SPX_OK ? spx_h5_set_str(file, group, "extname", im->extname, e) : st;
}
