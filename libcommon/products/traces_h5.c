/* Reads and writes /traces (products/traces_h5.h). */
#include "products/traces_h5.h"

#include <stdio.h>
#include <string.h>

#include "app/dataset.h"
#include "base/mem.h"
#include "h5/attr.h"
#include "h5/file.h"
#include "h5/object.h"
#include "h5/read.h"
#include "h5/schema.h"
#include "h5/write.h"
#include "products/typed_h5.h"

static spx_status read_starts(spx_input *in, spx_traces *t, spx_err *e)
{
    size_t n = 0;
    int ndim;
    size_t dims[SPX_H5_MAXDIM];
    spx_status st = spx_h5_shape(in->file, "/traces/start", &ndim, dims, e);
    if (st != SPX_OK)
        return st;
    if (ndim != 1 || (n = dims[0]) != t->ntrace + 1)
        return spx_fail_at(e, SPX_EINPUT, in->name, "/traces/start", NULL,
                           "should have %zu values, one more than there are traces", t->ntrace + 1);
    if ((t->start = spx_alloc(n, sizeof *t->start, e)) == NULL)
        return SPX_EIO;
    st = spx_h5_read_rows(in->file, "/traces/start", H5T_NATIVE_UINT64, 0, n, t->start, e);
    for (size_t j = 0; j < t->ntrace && st == SPX_OK; j++)
        if (t->start[j] > t->start[j + 1])
            st = spx_fail_at(e, SPX_EINPUT, in->name, "/traces/start", NULL, "value %zu is larger than the next", j);
    if (st == SPX_OK && (t->start[0] != 0 || t->start[t->ntrace] != t->nsample))
        st = spx_fail_at(e, SPX_EINPUT, in->name, "/traces/start", NULL, "should go from 0 to the %zu samples of data",
                         t->nsample);
    return st;
}

spx_status spx_traces_read(spx_input *in, spx_traces *t, spx_err *e)
{
    spx_dataset d = {0};
    size_t ntrace = 0, position[2] = {0, 2};
    memset(t, 0, sizeof *t);
    spx_status st = spx_schema_accept(in->file, "/traces", "traces", e);
    if (st == SPX_OK)
        st = spx_typed_open(in, "/traces/data", 1, 0, "float32 or float64", &d, e);
    if (st == SPX_OK && d.bytes != 4 && d.bytes != 8)
        st = spx_fail_at(e, SPX_EINPUT, d.in->name, d.path, NULL, "is float%d, should be float32 or float64",
                         8 * d.bytes);
    if (st != SPX_OK)
        return st;
    (void)snprintf(t->name, sizeof t->name, "%s:/traces/data", in->name);
    t->precision = d.bytes;
    memcpy(t->units, d.units, sizeof t->units);
    if ((st = spx_typed_read(in->file, "/traces/data", t->precision, 1, &t->nsample, &t->data, e)) != SPX_OK ||
        (st = spx_typed_open(in, "/traces/offset", 0, 4, "int32", &d, e)) != SPX_OK ||
        (st = spx_h5_read_i32(in->file, "/traces/offset", 1, &ntrace, &t->offset, e)) != SPX_OK)
        return st;
    t->ntrace = position[0] = ntrace;
    st = read_starts(in, t, e);
    if (st == SPX_OK && ntrace > 0 && spx_h5_exists(in->file, "/traces/position"))
        st = spx_h5_read_f64(in->file, "/traces/position", 2, position, &t->position, e);
    if (st == SPX_OK && spx_h5_has_attr(in->file, "/traces", "sampling_rate"))
        st = spx_h5_attr_f64(in->file, "/traces", "sampling_rate", &t->sampling_rate, e);
    return st;
}

spx_status spx_traces_write(hid_t file, const spx_traces *t, spx_err *e)
{
    const size_t nstart = t->ntrace + 1, position[2] = {t->ntrace, 2};
    spx_status st = spx_typed_write(file, "/traces/data", t->precision, 1, &t->nsample, t->data, t->units, e);
    if (st == SPX_OK)
        st = spx_h5_write(file, "/traces/start", H5T_NATIVE_UINT64, 1, &nstart, t->start, e);
    if (st == SPX_OK)
        st = spx_h5_write(file, "/traces/offset", H5T_NATIVE_INT32, 1, &t->ntrace, t->offset, e);
    if (st == SPX_OK && t->position != NULL)
        st = spx_h5_write_real(file, "/traces/position", 8, 2, position, t->position, e);
    if (st == SPX_OK && t->sampling_rate > 0)
        st = spx_h5_set_f64(file, "/traces", "sampling_rate", t->sampling_rate, e);
    return st;
}
