/* Reads and writes /ccf as traces, and velocities of a stack of them (products/ccf_h5.h). */
#include "products/ccf_h5.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "h5/file.h"
#include "h5/read.h"
#include "h5/schema.h"
#include "h5/table.h"
#include "h5/write.h"
#include "products/typed_h5.h"

/* Reads the velocity axis, which must be evenly spaced, so that shifts are whole samples. */
static spx_status read_velocity(spx_input *in, size_t n, spx_ccf_stars *c, spx_err *e)
{
    double *v = NULL;
    spx_status st = spx_h5_read_f64(in->file, "/ccf/velocity", 1, &n, &v, e);
    if (st == SPX_OK && n < 2)
        st = spx_fail_at(e, SPX_EINPUT, in->name, "/ccf/velocity", NULL, "a single velocity is no curve");
    if (st == SPX_OK) {
        c->v0 = v[0];
        c->step = (v[n - 1] - v[0]) / (double)(n - 1);
    }
    for (size_t i = 0; i < n && st == SPX_OK; i++)
        if (!(fabs(v[i] - (c->v0 + (double)i * c->step)) <= 1e-6 * fabs(c->step)) || !(c->step > 0))
            st = spx_fail_at(e, SPX_EINPUT, in->name, "/ccf/velocity", NULL, "the steps are not equal at element %zu",
                             i);
    spx_free(v);
    return st;
}

/* Reads the range of spectra of each star: its exposures, where stars were fitted jointly. */
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
            st = spx_fail_at(e, SPX_EINPUT, in->name, "/rvfit/table", NULL,
                             "NEXP does not add up to the %zu spectra of /ccf/gain", nrow);
        else
            c->first[k + 1] = (at += (size_t)n) * narm;
    }
    if (st == SPX_OK && at != nrow)
        st = spx_fail_at(e, SPX_EINPUT, in->name, "/rvfit/table", NULL,
                         "NEXP does not add up to the %zu spectra of /ccf/gain", nrow);
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
    spx_status st = spx_typed_write(file, path, 8, 1, &n, v, "km/s", e);
    spx_free(v);
    return st == SPX_OK && !max ? spx_h5_attach_scale(file, path, 0, "/stack/sample", "sample", e) : st;
}
