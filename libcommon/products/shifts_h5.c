/* Reads and writes /shifts (products/shifts_h5.h). */
#include "products/shifts_h5.h"

#include <stdio.h>
#include <string.h>

#include "app/dataset.h"
#include "base/mem.h"
#include "h5/file.h"
#include "h5/object.h"
#include "h5/read.h"
#include "h5/schema.h"
#include "h5/write.h"
#include "products/typed_h5.h"

spx_status spx_shifts_read(spx_input *in, int precision, spx_shifts *s, spx_err *e)
{
    spx_dataset d = {0};
    size_t dims[2] = {0, 0};
    memset(s, 0, sizeof *s);
    spx_status st = spx_schema_accept(in->file, "/shifts", "shifts", e);
    if (st == SPX_OK)
        st = spx_typed_open(in, "/shifts/shift", 0, 4, "int32", &d, e);
    if (st == SPX_OK)
        st = spx_h5_read_i32(in->file, "/shifts/shift", 2, dims, &s->shift, e);
    if (st != SPX_OK)
        return st;
    s->nshift = dims[0];
    s->ntrace = dims[1];
    s->precision = precision;
    if (!spx_h5_exists(in->file, "/shifts/weight")) {
        if ((s->weight = spx_alloc2(s->nshift, s->ntrace, (size_t)precision, e)) == NULL)
            return SPX_EIO;
        for (size_t i = 0; i < s->nshift * s->ntrace; i++)
            if (precision == 4)
                ((float *)s->weight)[i] = 1;
            else
                ((double *)s->weight)[i] = 1;
    } else if ((st = spx_typed_open(in, "/shifts/weight", 1, precision,
                                    precision == 4 ? "float32, as the traces are" : "float64, as the traces are", &d,
                                    e)) == SPX_OK) {
        (void)snprintf(s->name, sizeof s->name, "%s:/shifts/weight", in->name);
        st = spx_typed_read(in->file, "/shifts/weight", precision, 2, dims, &s->weight, e);
    }
    dims[1] = 2;
    if (st == SPX_OK && s->nshift > 0 && spx_h5_exists(in->file, "/shifts/grid"))
        st = spx_h5_read_f64(in->file, "/shifts/grid", 2, dims, &s->grid, e);
    return st;
}

spx_status spx_shifts_write(hid_t file, const spx_shifts *s, spx_err *e)
{
    const size_t dims[2] = {s->nshift, s->ntrace}, grid[2] = {s->nshift, 2};
    spx_status st = spx_h5_write(file, "/shifts/shift", H5T_NATIVE_INT32, 2, dims, s->shift, e);
    if (st == SPX_OK)
        st = spx_typed_write(file, "/shifts/weight", s->precision, 2, dims, s->weight, NULL, e);
    if (st == SPX_OK && s->grid != NULL)
        st = spx_h5_write_real(file, "/shifts/grid", 8, 2, grid, s->grid, e);
    return st;
}
