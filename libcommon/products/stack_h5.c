/* Reads and writes /stack (products/stack_h5.h). */
#include "products/stack_h5.h"

#include "app/dataset.h"
#include "base/mem.h"
#include "h5/attr.h"
#include "h5/file.h"
#include "h5/object.h"
#include "h5/read.h"
#include "h5/schema.h"
#include "h5/write.h"
#include "products/typed_h5.h"

spx_status spx_stack_read_earlier(spx_input *in, const spx_stack *like, void **value, spx_err *e)
{
    spx_dataset d = {0};
    size_t dims[2] = {like->nshift, like->length}, n = like->length;
    *value = NULL;
    spx_status st = spx_schema_accept(in->file, "/stack", "stack", e);
    if (st == SPX_OK && !spx_h5_exists(in->file, "/stack/stack"))
        st = spx_fail_at(e, SPX_EINPUT, in->name, NULL, NULL,
                         "holds no stacks, but maxima: only stacks can be added to");
    if (st == SPX_OK)
        st = spx_typed_open(in, "/stack/stack", 1, like->precision,
                            like->precision == 4 ? "float32, as the traces are" : "float64, as the traces are", &d, e);
    if (st == SPX_OK && (d.ndim != 2 || d.dims[0] != dims[0] || d.dims[1] != dims[1]))
        st = spx_fail_at(e, SPX_EINPUT, d.in->name, d.path, "give --t0 and --length as they were",
                         "should have %zu stacks of %zu samples", dims[0], dims[1]);
    int64_t *sample = NULL;
    if (st == SPX_OK && (sample = spx_alloc(n, sizeof *sample, e)) == NULL)
        st = SPX_EIO;
    if (st == SPX_OK)
        st = spx_h5_read_rows(in->file, "/stack/sample", H5T_NATIVE_INT64, 0, n, sample, e);
    if (st == SPX_OK && sample[0] != like->t0)
        st = spx_fail_at(e, SPX_EINPUT, d.in->name, d.path, "give --t0 as it was",
                         "begins at sample %lld, this one at %lld", (long long)sample[0], (long long)like->t0);
    spx_free(sample);
    return st == SPX_OK ? spx_typed_read(in->file, "/stack/stack", like->precision, 2, dims, value, e) : st;
}

static spx_status write_axis(hid_t file, const spx_stack *s, spx_err *e)
{
    int64_t *sample = spx_alloc(s->length, sizeof *sample, e);
    if (sample == NULL)
        return SPX_EIO;
    for (size_t i = 0; i < s->length; i++)
        sample[i] = s->t0 + (int64_t)i;
    spx_status st = spx_h5_write(file, "/stack/sample", H5T_NATIVE_INT64, 1, &s->length, sample, e);
    spx_free(sample);
    return st;
}

/* Shift numbers are below 2^31 (spx_stack_begin()). */
static spx_status write_numbers(hid_t file, const spx_stack *s, spx_err *e)
{
    int32_t *number = spx_alloc(s->length, sizeof *number, e);
    if (number == NULL)
        return SPX_EIO;
    for (size_t i = 0; i < s->length; i++)
        number[i] = (int32_t)s->index[i];
    spx_status st = spx_h5_write(file, "/stack/best_shift", H5T_NATIVE_INT32, 1, &s->length, number, e);
    spx_free(number);
    return st;
}

spx_status spx_stack_write(hid_t file, const spx_stack *s, spx_err *e)
{
    static const char *const method[] = {"stack", "max", "argmax"};
    const size_t dims[2] = {s->nshift, s->length};
    const char *path = "/stack/stack";
    spx_status st;
    switch (s->method) {
    case SPX_STACK_MAX:
        st = spx_typed_write(file, "/stack/maximum", s->precision, 1, &s->nshift, s->value, s->units, e);
        if (st == SPX_OK)
            st = spx_h5_write(file, "/stack/maximum_sample", H5T_NATIVE_INT64, 1, &s->nshift, s->index, e);
        break;
    case SPX_STACK_ARGMAX:
        path = "/stack/best";
        st = spx_typed_write(file, path, s->precision, 1, &s->length, s->value, s->units, e);
        if (st == SPX_OK)
            st = write_numbers(file, s, e);
        if (st == SPX_OK && (st = write_axis(file, s, e)) == SPX_OK)
            st = spx_h5_attach_scale(file, path, 0, "/stack/sample", "sample", e);
        if (st == SPX_OK)
            st = spx_h5_attach_scale(file, "/stack/best_shift", 0, "/stack/sample", "sample", e);
        break;
    default:
        st = spx_typed_write(file, path, s->precision, 2, dims, s->value, s->units, e);
        if (st == SPX_OK && (st = write_axis(file, s, e)) == SPX_OK)
            st = spx_h5_attach_scale(file, path, 1, "/stack/sample", "sample", e);
    }
    if (st == SPX_OK)
        st = spx_h5_set_str(file, "/stack", "method", method[s->method], e);
    if (st == SPX_OK && s->sampling_rate > 0)
        st = spx_h5_set_f64(file, "/stack", "sampling_rate", s->sampling_rate, e);
    return st;
}
