/* Traces, shifts and stacks, in and out of HDF5. */
#include "products/stack.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "app/dataset.h"
#include "base/mem.h"
#include "h5/attr.h"
#include "h5/file.h"
#include "h5/object.h"
#include "h5/read.h"
#include "h5/schema.h"
#include "h5/write.h"
#include "products/io.h"

void spx_traces_free(spx_traces *t)
{
    spx_free(t->start);
    spx_free(t->offset);
    spx_free(t->data);
    spx_free(t->position);
    memset(t, 0, sizeof *t);
}

void spx_shifts_free(spx_shifts *s)
{
    spx_free(s->shift);
    spx_free(s->weight);
    spx_free(s->grid);
    memset(s, 0, sizeof *s);
}

void spx_stack_free(spx_stack *s)
{
    spx_free(s->value);
    spx_free(s->index);
    memset(s, 0, sizeof *s);
}

void spx_ccf_stars_free(spx_ccf_stars *c)
{
    spx_free(c->first);
    memset(c, 0, sizeof *c);
}

/* ---- reading ---- */

/* Types that must be exactly so: a shift that is not a whole number, or a weight of another precision, is a mistake. */
static spx_status want_type(spx_input *in, const char *path, int is_float, int bytes, const char *what, spx_dataset *d,
                            spx_err *e)
{
    spx_status st = spx_dataset_open(in, path, d, e);
    if (st == SPX_OK && (d->is_float != is_float || !d->is_signed || (bytes != 0 && d->bytes != bytes)))
        st = spx_fail(e, SPX_EINPUT, "%s: is %s%d, should be %s", d->name,
                      d->is_float    ? "float"
                      : d->is_signed ? "int"
                                     : "uint",
                      8 * d->bytes, what);
    return st;
}

/* Values in the type that they have. */
static spx_status read_real(hid_t file, const char *path, int precision, int ndim, size_t *dims, void **out, spx_err *e)
{
    spx_status st;
    if (precision == 4) {
        float *f = NULL;
        st = spx_h5_read_f32(file, path, ndim, dims, &f, e);
        *out = f;
    } else {
        double *f = NULL;
        st = spx_h5_read_f64(file, path, ndim, dims, &f, e);
        *out = f;
    }
    return st;
}

static spx_status write_real(hid_t file, const char *path, int precision, int ndim, const size_t *dims,
                             const void *data, const char *units, spx_err *e)
{
    spx_status st =
        spx_h5_write(file, path, precision == 4 ? H5T_NATIVE_FLOAT : H5T_NATIVE_DOUBLE, ndim, dims, data, e);
    return st == SPX_OK && units != NULL ? spx_h5_set_str(file, path, "units", units, e) : st;
}

static spx_status read_starts(spx_input *in, spx_traces *t, spx_err *e)
{
    size_t n = 0;
    int ndim;
    size_t dims[SPX_H5_MAXDIM];
    spx_status st = spx_h5_shape(in->file, "/traces/start", &ndim, dims, e);
    if (st != SPX_OK)
        return st;
    if (ndim != 1 || (n = dims[0]) != t->ntrace + 1)
        return spx_fail(e, SPX_EINPUT, "%s:/traces/start: should have %zu values, one more than there are traces",
                        in->name, t->ntrace + 1);
    if ((t->start = spx_alloc(n, sizeof *t->start, e)) == NULL)
        return SPX_EIO;
    st = spx_h5_read_rows(in->file, "/traces/start", H5T_NATIVE_UINT64, 0, n, t->start, e);
    for (size_t j = 0; j < t->ntrace && st == SPX_OK; j++)
        if (t->start[j] > t->start[j + 1])
            st = spx_fail(e, SPX_EINPUT, "%s:/traces/start: value %zu is larger than the next", in->name, j);
    if (st == SPX_OK && (t->start[0] != 0 || t->start[t->ntrace] != t->nsample))
        st = spx_fail(e, SPX_EINPUT, "%s:/traces/start: should go from 0 to the %zu samples of data", in->name,
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
        st = want_type(in, "/traces/data", 1, 0, "float32 or float64", &d, e);
    if (st == SPX_OK && d.bytes != 4 && d.bytes != 8)
        st = spx_fail(e, SPX_EINPUT, "%s: is float%d, should be float32 or float64", d.name, 8 * d.bytes);
    if (st != SPX_OK)
        return st;
    (void)snprintf(t->name, sizeof t->name, "%s:/traces/data", in->name);
    t->precision = d.bytes;
    memcpy(t->units, d.units, sizeof t->units);
    if ((st = read_real(in->file, "/traces/data", t->precision, 1, &t->nsample, &t->data, e)) != SPX_OK ||
        (st = want_type(in, "/traces/offset", 0, 4, "int32", &d, e)) != SPX_OK ||
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

/* Velocities have to be evenly spaced, for samples to be shifted. */
static spx_status read_velocity(spx_input *in, size_t n, spx_ccf_stars *c, spx_err *e)
{
    double *v = NULL;
    spx_status st = spx_h5_read_f64(in->file, "/ccf/velocity", 1, &n, &v, e);
    if (st == SPX_OK && n < 2)
        st = spx_fail(e, SPX_EINPUT, "%s:/ccf/velocity: a single velocity is no curve", in->name);
    if (st == SPX_OK) {
        c->v0 = v[0];
        c->step = (v[n - 1] - v[0]) / (double)(n - 1);
    }
    for (size_t i = 0; i < n && st == SPX_OK; i++)
        if (!(fabs(v[i] - (c->v0 + (double)i * c->step)) <= 1e-6 * fabs(c->step)) || !(c->step > 0))
            st = spx_fail(e, SPX_EINPUT, "%s:/ccf/velocity: the steps are not equal at element %zu", in->name, i);
    spx_free(v);
    return st;
}

/* Spectra of each star: its exposures, where stars were fitted jointly. */
static spx_status read_stars(spx_input *in, size_t nrow, size_t narm, spx_ccf_stars *c, spx_err *e)
{
    spx_table *t = NULL;
    int64_t *nexp = NULL;
    size_t at = 0;
    spx_status st = spx_table_read(in->file, "/rvfit/table", &t, e);
    int joint = st == SPX_OK && t != NULL && spx_table_find(t, "NEXP") >= 0;
    c->nstar = joint ? t->nrow : nrow;
    if (st == SPX_OK && ((c->first = spx_alloc(c->nstar + 1, sizeof *c->first, e)) == NULL ||
                         (nexp = spx_alloc(c->nstar, sizeof *nexp, e)) == NULL))
        st = SPX_EIO;
    if (st == SPX_OK && joint)
        st = spx_table_get_i64(t, "NEXP", nexp, e);
    for (size_t k = 0; k < c->nstar && st == SPX_OK; k++) {
        int64_t n = joint ? nexp[k] : 1;
        if (n < 0 || (uint64_t)n > nrow - at)
            st = spx_fail(e, SPX_EINPUT, "%s:/rvfit/table: NEXP does not add up to the %zu spectra of /ccf/gain",
                          in->name, nrow);
        else
            c->first[k + 1] = (at += (size_t)n) * narm;
    }
    if (st == SPX_OK && at != nrow)
        st = spx_fail(e, SPX_EINPUT, "%s:/rvfit/table: NEXP does not add up to the %zu spectra of /ccf/gain", in->name,
                      nrow);
    spx_free(nexp);
    spx_table_free(t);
    return st;
}

spx_status spx_ccf_read(spx_input *in, spx_traces *t, spx_ccf_stars *c, spx_err *e)
{
    size_t dims[3] = {0};
    float *gain = NULL;
    memset(t, 0, sizeof *t);
    memset(c, 0, sizeof *c);
    spx_status st = spx_schema_accept(in->file, "/ccf", "ccf", e);
    if (st == SPX_OK)
        st = spx_h5_read_f32(in->file, "/ccf/gain", 3, dims, &gain, e);
    (void)snprintf(t->name, sizeof t->name, "%s:/ccf/gain", in->name);
    t->data = gain;
    t->precision = 4;
    t->ntrace = dims[0] * dims[1];
    t->nsample = t->ntrace * dims[2];
    (void)snprintf(t->units, sizeof t->units, "1");
    if (st == SPX_OK && (t->start = spx_alloc(t->ntrace + 1, sizeof *t->start, e)) == NULL)
        st = SPX_EIO;
    if (st == SPX_OK && (t->offset = spx_alloc(t->ntrace, sizeof *t->offset, e)) == NULL)
        st = SPX_EIO;
    for (size_t j = 0; j <= t->ntrace && st == SPX_OK; j++)
        t->start[j] = j * dims[2];
    if (st == SPX_OK)
        st = read_velocity(in, dims[2], c, e);
    return st == SPX_OK ? read_stars(in, dims[0], dims[1], c, e) : st;
}

spx_status spx_shifts_read(spx_input *in, int precision, spx_shifts *s, spx_err *e)
{
    spx_dataset d = {0};
    size_t dims[2] = {0, 0};
    memset(s, 0, sizeof *s);
    spx_status st = spx_schema_accept(in->file, "/shifts", "shifts", e);
    if (st == SPX_OK)
        st = want_type(in, "/shifts/shift", 0, 4, "int32", &d, e);
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
    } else if ((st = want_type(in, "/shifts/weight", 1, precision,
                               precision == 4 ? "float32, as the traces are" : "float64, as the traces are", &d, e)) ==
               SPX_OK) {
        (void)snprintf(s->name, sizeof s->name, "%s:/shifts/weight", in->name);
        st = read_real(in->file, "/shifts/weight", precision, 2, dims, &s->weight, e);
    }
    dims[1] = 2;
    if (st == SPX_OK && s->nshift > 0 && spx_h5_exists(in->file, "/shifts/grid"))
        st = spx_h5_read_f64(in->file, "/shifts/grid", 2, dims, &s->grid, e);
    return st;
}

spx_status spx_stack_read_earlier(spx_input *in, const spx_stack *like, void **value, spx_err *e)
{
    spx_dataset d = {0};
    size_t dims[2] = {like->nshift, like->length}, n = like->length;
    *value = NULL;
    spx_status st = spx_schema_accept(in->file, "/stack", "stack", e);
    if (st == SPX_OK && !spx_h5_exists(in->file, "/stack/stack"))
        st = spx_fail(e, SPX_EINPUT, "%s: holds no stacks, but maxima: only stacks can be added to", in->name);
    if (st == SPX_OK)
        st = want_type(in, "/stack/stack", 1, like->precision,
                       like->precision == 4 ? "float32, as the traces are" : "float64, as the traces are", &d, e);
    if (st == SPX_OK && (d.ndim != 2 || d.dims[0] != dims[0] || d.dims[1] != dims[1]))
        st = spx_fail(e, SPX_EINPUT, "%s: should have %zu stacks of %zu samples: give --t0 and --length as they were",
                      d.name, dims[0], dims[1]);
    int64_t *sample = NULL;
    if (st == SPX_OK && (sample = spx_alloc(n, sizeof *sample, e)) == NULL)
        st = SPX_EIO;
    if (st == SPX_OK)
        st = spx_h5_read_rows(in->file, "/stack/sample", H5T_NATIVE_INT64, 0, n, sample, e);
    if (st == SPX_OK && sample[0] != like->t0)
        st = spx_fail(e, SPX_EINPUT, "%s: begins at sample %lld, this one at %lld: give --t0 as it was", d.name,
                      (long long)sample[0], (long long)like->t0);
    spx_free(sample);
    return st == SPX_OK ? read_real(in->file, "/stack/stack", like->precision, 2, dims, value, e) : st;
}

spx_status spx_stations_read(const char *name, size_t *n, double **position, spx_err *e)
{
    FILE *f = fopen(name, "r");
    if (f == NULL)
        return spx_fail(e, SPX_EINPUT, "%s: cannot open: %s", name, strerror(errno));
    char *line = NULL;
    size_t room = 0, held = 0, number = 0;
    spx_status st = SPX_OK;
    *n = 0;
    *position = NULL;
    while (st == SPX_OK && getline(&line, &room, f) >= 0) {
        line[strcspn(line, "#\r\n")] = '\0';
        char *q, *r;
        double x = strtod(line, &q), y = strtod(q, &r);
        number++;
        if (line[strspn(line, " \t")] == '\0')
            continue;
        if (q == line || r == q || r[strspn(r, " \t")] != '\0' || !isfinite(x) || !isfinite(y)) {
            st = spx_fail(e, SPX_EINPUT, "%s:%zu: is not a position: two numbers, east and north, in km", name, number);
            break;
        }
        if (*n == held) {
            double *more = spx_alloc2(held = 2 * held + 64, 2, sizeof *more, e);
            if (more == NULL) {
                st = SPX_EIO;
                break;
            }
            if (*n > 0)
                memcpy(more, *position, 2 * *n * sizeof *more);
            spx_free(*position);
            *position = more;
        }
        (*position)[2 * *n] = x;
        (*position)[2 * (*n)++ + 1] = y;
    }
    if (st == SPX_OK && ferror(f))
        st = spx_fail(e, SPX_EIO, "%s: cannot read: %s", name, strerror(errno));
    free(line);
    (void)fclose(f);
    if (st != SPX_OK) {
        spx_free(*position);
        *position = NULL;
    }
    return st;
}

/* ---- writing ---- */

spx_status spx_traces_write(hid_t file, const spx_traces *t, spx_err *e)
{
    const size_t nstart = t->ntrace + 1, position[2] = {t->ntrace, 2};
    spx_status st = write_real(file, "/traces/data", t->precision, 1, &t->nsample, t->data, t->units, e);
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

spx_status spx_shifts_write(hid_t file, const spx_shifts *s, spx_err *e)
{
    const size_t dims[2] = {s->nshift, s->ntrace}, grid[2] = {s->nshift, 2};
    spx_status st = spx_h5_write(file, "/shifts/shift", H5T_NATIVE_INT32, 2, dims, s->shift, e);
    if (st == SPX_OK)
        st = write_real(file, "/shifts/weight", s->precision, 2, dims, s->weight, NULL, e);
    if (st == SPX_OK && s->grid != NULL)
        st = spx_h5_write_real(file, "/shifts/grid", 8, 2, grid, s->grid, e);
    return st;
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

spx_status spx_stack_write_velocity(hid_t file, const spx_stack *s, const spx_ccf_stars *c, spx_err *e)
{
    const int max = s->method == SPX_STACK_MAX;
    const char *path = max ? "/stack/maximum_coordinate" : "/stack/coordinate";
    size_t n = max ? s->nshift : s->length;
    double *v = spx_alloc(n, sizeof *v, e);
    if (v == NULL)
        return SPX_EIO;
    for (size_t i = 0; i < n; i++)
        v[i] = c->v0 + c->step * (double)(max ? s->index[i] : s->t0 + (int64_t)i);
    spx_status st = write_real(file, path, 8, 1, &n, v, "km/s", e);
    spx_free(v);
    return st == SPX_OK && !max ? spx_h5_attach_scale(file, path, 0, "/stack/sample", "sample", e) : st;
}

spx_status spx_stack_write(hid_t file, const spx_stack *s, spx_err *e)
{
    static const char *const method[] = {"stack", "max", "argmax"};
    const size_t dims[2] = {s->nshift, s->length};
    const char *path = "/stack/stack";
    spx_status st;
    switch (s->method) {
    case SPX_STACK_MAX:
        st = write_real(file, "/stack/maximum", s->precision, 1, &s->nshift, s->value, s->units, e);
        if (st == SPX_OK)
            st = spx_h5_write(file, "/stack/maximum_sample", H5T_NATIVE_INT64, 1, &s->nshift, s->index, e);
        break;
    case SPX_STACK_ARGMAX:
        path = "/stack/best";
        st = write_real(file, path, s->precision, 1, &s->length, s->value, s->units, e);
        if (st == SPX_OK)
            st = write_numbers(file, s, e);
        if (st == SPX_OK && (st = write_axis(file, s, e)) == SPX_OK)
            st = spx_h5_attach_scale(file, path, 0, "/stack/sample", "sample", e);
        if (st == SPX_OK)
            st = spx_h5_attach_scale(file, "/stack/best_shift", 0, "/stack/sample", "sample", e);
        break;
    default:
        st = write_real(file, path, s->precision, 2, dims, s->value, s->units, e);
        if (st == SPX_OK && (st = write_axis(file, s, e)) == SPX_OK)
            st = spx_h5_attach_scale(file, path, 1, "/stack/sample", "sample", e);
    }
    if (st == SPX_OK)
        st = spx_h5_set_str(file, "/stack", "method", method[s->method], e);
    if (st == SPX_OK && s->sampling_rate > 0)
        st = spx_h5_set_f64(file, "/stack", "sampling_rate", s->sampling_rate, e);
    return st;
}
