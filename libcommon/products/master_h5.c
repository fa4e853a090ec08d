/* Reads and writes /master (products/master_h5.h). */
#include "products/master_h5.h"

#include <math.h>
#include <string.h>

#include "h5/attr.h"
#include "h5/object.h"
#include "h5/read.h"
#include "h5/schema.h"
#include "h5/table.h"
#include "h5/write.h"
#include "products/cards_h5.h"

static const char *const units[SPX_MASTERS][2] = {
    {"electron", "electron^-2"}, {"electron/s", "s^2/electron^2"}, {"1", "1"}};

static spx_status read_kind(hid_t file, spx_master *m, spx_err *e)
{
    char kind[16];
    spx_status st = spx_h5_attr_str(file, "/master", "kind", kind, sizeof kind, e);
    for (int k = 0; k < SPX_MASTERS && st == SPX_OK; k++)
        if (strcmp(kind, spx_master_names[k]) == 0) {
            m->kind = (spx_master_kind)k;
            return SPX_OK;
        }
    return st == SPX_OK ? spx_fail_at(e, SPX_EINPUT, spx_h5_filename(file), "/master", NULL,
                                      "kind is '%s': should be bias, dark or flat", kind)
                        : st;
}

static spx_status check_values(hid_t file, const spx_master *m, spx_err *e)
{
    for (size_t i = 0; i < m->ny * m->nx; i++)
        if (!isfinite(m->data[i]) || !(m->ivar[i] >= 0) || !isfinite(m->ivar[i]) ||
            (m->kind == SPX_MASTER_FLAT && !(m->data[i] > 0)))
            return spx_fail_at(e, SPX_EINPUT, spx_h5_filename(file), "/master/data", "make it again",
                               "pixel (%zu, %zu) is %g with ivar %g", i % m->nx, i / m->nx, m->data[i], m->ivar[i]);
    return SPX_OK;
}

spx_status spx_master_read(hid_t file, spx_master *m, spx_err *e)
{
    size_t dims[2] = {0, 0};
    memset(m, 0, sizeof *m);
    spx_status st = spx_schema_accept(file, "/master", "master", e);
    if (st == SPX_OK)
        st = read_kind(file, m, e);
    if (st == SPX_OK)
        st = spx_h5_read_f32(file, "/master/data", 2, dims, &m->data, e);
    m->ny = dims[0];
    m->nx = dims[1];
    if (st == SPX_OK)
        st = spx_h5_read_f32(file, "/master/ivar", 2, dims, &m->ivar, e);
    if (st == SPX_OK)
        st = spx_h5_read_u32(file, "/master/mask", 2, dims, &m->mask, e);
    if (st == SPX_OK)
        st = check_values(file, m, e);
    if (st == SPX_OK && spx_h5_has_attr(file, "/master", "camera"))
        st = spx_h5_attr_str(file, "/master", "camera", m->camera, sizeof m->camera, e);
    if (st == SPX_OK)
        st = spx_cards_read(file, "/master/header", &m->header, e);
    return st == SPX_OK ? spx_table_read(file, "/master/amplifiers", &m->amplifiers, e) : st;
}

spx_status spx_master_write(hid_t file, const spx_master *m, spx_err *e)
{
    const size_t dims[2] = {m->ny, m->nx};
    spx_status st = spx_h5_write(file, "/master/data", H5T_NATIVE_FLOAT, 2, dims, m->data, e);
    if (st == SPX_OK)
        st = spx_h5_set_str(file, "/master/data", "units", units[m->kind][0], e);
    if (st == SPX_OK)
        st = spx_h5_write(file, "/master/ivar", H5T_NATIVE_FLOAT, 2, dims, m->ivar, e);
    if (st == SPX_OK)
        st = spx_h5_set_str(file, "/master/ivar", "units", units[m->kind][1], e);
    if (st == SPX_OK)
        st = spx_h5_write(file, "/master/mask", H5T_NATIVE_UINT32, 2, dims, m->mask, e);
    if (st == SPX_OK && m->count != NULL)
        st = spx_h5_write(file, "/master/count", H5T_NATIVE_UINT16, 2, dims, m->count, e);
    if (st == SPX_OK)
        st = spx_cards_write(file, "/master/header", &m->header, e);
    if (st == SPX_OK)
        st = spx_h5_set_str(file, "/master", "kind", spx_master_names[m->kind], e);
    if (st == SPX_OK)
        st = spx_h5_set_str(file, "/master", "camera", m->camera, e);
    if (st == SPX_OK)
        st = spx_h5_set_i64(file, "/master", "exposures", (int64_t)m->nexp, e);
    if (st == SPX_OK)
        st = spx_h5_set_f64(file, "/master", "exptime", m->exptime, e);
    return st == SPX_OK ? spx_table_write(file, "/master/amplifiers", m->amplifiers, e) : st;
}
