/* Provides the parts of shift-and-stack that all backends share (stack/stack.h): checks, window, geometry. */
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "base/parse.h"
#include "stack/stack.h"
#include "stack/stack_math.h"

/* Limit of the window, so that sums and differences of sample indices stay far from the limits of int64. */
#define FARTHEST ((size_t)1 << 40)
/* A window that follows from offsets and shifts, longer than SPARSE_WINDOW samples and SPARSE_FACTOR times as long as
 * all traces together, is nearly empty: a mistake in the offsets. */
#define SPARSE_WINDOW ((size_t)1 << 24)
#define SPARSE_FACTOR ((size_t)100)

/* Traces whose shift ranges are computed together. */
enum { AT_ONCE = 64 };

void spx_stack_range(const int32_t *shift, size_t nshift, size_t stride, size_t n, int32_t *low, int32_t *high)
{
    memcpy(low, shift, n * sizeof *low);
    memcpy(high, shift, n * sizeof *high);
    for (size_t k = 1; k < nshift; k++) {
        const int32_t *s = shift + k * stride;
#pragma omp simd
        for (size_t j = 0; j < n; j++) {
            low[j] = s[j] < low[j] ? s[j] : low[j];
            high[j] = s[j] > high[j] ? s[j] : high[j];
        }
    }
}

spx_status spx_stack_window(const spx_traces *tr, const spx_shifts *sh, const spx_stack_options *o, int64_t *t0,
                            size_t *length, spx_err *e)
{
    int64_t low = INT64_MAX, high = INT64_MIN;
    if (tr->ntrace == 0 || sh->nshift == 0)
        return spx_fail(e, SPX_EINPUT, "there are no %s", tr->ntrace == 0 ? "traces" : "shifts");
    for (size_t j0 = 0; j0 < tr->ntrace; j0 += AT_ONCE) {
        int32_t least[AT_ONCE], most[AT_ONCE];
        const size_t n = tr->ntrace - j0 < AT_ONCE ? tr->ntrace - j0 : AT_ONCE;
        spx_stack_range(sh->shift + j0, sh->nshift, tr->ntrace, n, least, most);
        for (size_t i = 0; i < n; i++) {
            const size_t j = j0 + i;
            const int64_t first = spx_stack_first(tr->offset[j], least[i], 0);
            const int64_t end = spx_stack_first(tr->offset[j], most[i], 0) + (int64_t)(tr->start[j + 1] - tr->start[j]);
            low = first < low ? first : low;
            high = end > high ? end : high;
        }
    }
    *t0 = o->has_t0 ? o->t0 : low;
    if (!o->has_length && (*t0 >= high || *t0 < -(int64_t)FARTHEST))
        return spx_fail(e, SPX_EUSAGE,
                        "the window is empty or endless: it begins at sample %lld, the last trace ends at %lld",
                        (long long)*t0, (long long)high);
    *length = o->has_length ? o->length : (size_t)(high - *t0);
    if (!o->has_length && *length > SPARSE_WINDOW && *length / SPARSE_FACTOR > tr->nsample)
        return spx_fail_remedy(e, SPX_EINPUT, "correct them, or choose a window with {t0} and {length}",
                               "offsets and shifts spread %zu samples of the traces over %zu", tr->nsample, *length);
    if (*length == 0 || *length > FARTHEST || *t0 > (int64_t)FARTHEST || *t0 < -(int64_t)FARTHEST)
        return spx_fail(e, SPX_EUSAGE, "a window of %zu samples from sample %lld on is out of range", *length,
                        (long long)*t0);
    return SPX_OK;
}

/* 1 when all n values are finite: a weight of 0 cannot mask others, since 0 * NaN is NaN. */
static int all_finite(int precision, const void *data, size_t n)
{
    int bad = 0;
    if (precision == 4) {
        const float *x = data;
#pragma omp simd reduction(| : bad)
        for (size_t i = 0; i < n; i++)
            bad |= !(x[i] * 0.0F == 0.0F);
    } else {
        const double *x = data;
#pragma omp simd reduction(| : bad)
        for (size_t i = 0; i < n; i++)
            bad |= !(x[i] * 0.0 == 0.0);
    }
    return !bad;
}

/* SPX_EINPUT when one of n values is not finite. `what`: the kind of values; `name`: their dataset (NULL or empty:
 * unknown). */
static spx_status want_finite(const char *what, const char *name, int precision, const void *data, size_t n, spx_err *e)
{
    if (all_finite(precision, data, n))
        return SPX_OK;
    const int known = name != NULL && name[0] != '\0';
    return spx_fail(e, SPX_EINPUT, "%s%s%s NaN or infinite values: replace them, by 0 for example", known ? name : what,
                    known ? ": " : "", known ? "holds" : " hold");
}

static spx_status check_input(const spx_traces *tr, const spx_shifts *sh, spx_err *e)
{
    if (tr->ntrace != sh->ntrace)
        return spx_fail(e, SPX_EINPUT, "there are %zu traces, but shifts for %zu", tr->ntrace, sh->ntrace);
    if (tr->precision != sh->precision || (tr->precision != 4 && tr->precision != 8))
        return spx_fail(e, SPX_EINPUT, "traces are float%d, weights are float%d: they have to be alike",
                        8 * tr->precision, 8 * sh->precision);
    if (sh->nshift > INT32_MAX || tr->ntrace > INT32_MAX)
        return spx_fail(e, SPX_EINPUT, "more than %d shifts or traces", INT32_MAX);
    for (size_t j = 0; j < tr->ntrace; j++)
        if (tr->start[j] > tr->start[j + 1] || tr->start[j + 1] > tr->nsample)
            return spx_fail(e, SPX_EINPUT, "trace %zu: its place %llu:%llu among %zu samples is impossible", j,
                            (unsigned long long)tr->start[j], (unsigned long long)tr->start[j + 1], tr->nsample);
    const spx_status st = want_finite("the traces", tr->name, tr->precision, tr->data, tr->nsample, e);
    return st == SPX_OK ? want_finite("the weights", sh->name, sh->precision, sh->weight, sh->nshift * sh->ntrace, e)
                        : st;
}

spx_status spx_stack_begin(const spx_traces *tr, const spx_shifts *sh, const spx_stack_options *o, spx_stack *out,
                           spx_err *e)
{
    spx_status st = check_input(tr, sh, e);
    if (st == SPX_OK)
        st = spx_stack_window(tr, sh, o, &out->t0, &out->length, e);
    if (st != SPX_OK)
        return st;
    out->method = o->method;
    out->precision = tr->precision;
    out->nshift = sh->nshift;
    out->sampling_rate = tr->sampling_rate;
    memcpy(out->units, tr->units, sizeof out->units);
    size_t rows = o->method == SPX_STACK_ARGMAX ? 1 : out->nshift;
    size_t columns = o->method == SPX_STACK_MAX ? 1 : out->length, n;
    if ((st = spx_mul(rows, columns, &n, e)) != SPX_OK)
        return st;
    if (n > spx_mem_cap() / (size_t)out->precision)
        return spx_fail_remedy(e, SPX_EINPUT, "choose a shorter window with {t0} and {length}, or fewer shifts",
                               "%zu stacks of %zu samples do not fit into memory", rows, columns);
    if (o->earlier != NULL && o->method != SPX_STACK_STACK)
        return spx_fail(e, SPX_EINPUT, "only stacks can be added to an earlier result");
    if (o->earlier != NULL &&
        (st = want_finite("the earlier stacks", o->earlier_name, tr->precision, o->earlier, n, e)) != SPX_OK)
        return st;
    if ((out->value = spx_alloc(n, (size_t)out->precision, e)) == NULL ||
        (o->method != SPX_STACK_STACK && (out->index = spx_alloc(n, sizeof *out->index, e)) == NULL))
        return SPX_EIO;
    return SPX_OK;
}

spx_status spx_stack_overflow(int precision, spx_err *e)
{
    return spx_fail(e, SPX_EINPUT, "a stack is beyond the range of float%d: scale the traces or the weights%s",
                    8 * precision, precision == 4 ? ", or use float64" : "");
}

/* ---- geometry ---- */

static double axis_value(const spx_stack_axis *a, size_t i)
{
    return a->first + (double)i * a->step;
}

spx_status spx_stack_slowness_grid(const spx_stack_axis *sx, const spx_stack_axis *sy, size_t *n, double **out,
                                   spx_err *e)
{
    if (spx_mul(sx->n, sy->n, n, e) != SPX_OK || (*out = spx_alloc2(*n, 2, sizeof **out, e)) == NULL)
        return e != NULL ? e->code : SPX_EIO;
    for (size_t k = 0; k < *n; k++) {
        (*out)[2 * k] = axis_value(sx, k / sy->n);
        (*out)[2 * k + 1] = axis_value(sy, k % sy->n);
    }
    return SPX_OK;
}

spx_status spx_stack_velocity_grid(const spx_stack_axis *velocity, const spx_stack_axis *azimuth, size_t *n,
                                   double **out, spx_err *e)
{
    if (!(velocity->first > 0))
        return spx_fail(e, SPX_EUSAGE, "velocities have to be positive");
    if (spx_mul(velocity->n, azimuth->n, n, e) != SPX_OK || (*out = spx_alloc2(*n, 2, sizeof **out, e)) == NULL)
        return e != NULL ? e->code : SPX_EIO;
    for (size_t k = 0; k < *n; k++) {
        double v = axis_value(velocity, k / azimuth->n);
        double angle = axis_value(azimuth, k % azimuth->n) * (3.14159265358979323846 / 180.0);
        (*out)[2 * k] = sin(angle) / v;
        (*out)[2 * k + 1] = cos(angle) / v;
    }
    return SPX_OK;
}

spx_status spx_stack_geometry(const spx_traces *tr, size_t nshift, const double *slowness, spx_shifts *out, spx_err *e)
{
    if (tr->position == NULL)
        return spx_fail(e, SPX_EINPUT, "the traces have no positions");
    if (!(tr->sampling_rate > 0) || !isfinite(tr->sampling_rate))
        return spx_fail(e, SPX_EINPUT, "the traces have no sampling rate");
    if (tr->ntrace == 0)
        return spx_fail(e, SPX_EINPUT, "there are no traces");
    out->nshift = nshift;
    out->ntrace = tr->ntrace;
    out->precision = tr->precision;
    if ((out->shift = spx_alloc2(nshift, tr->ntrace, sizeof *out->shift, e)) == NULL ||
        (out->weight = spx_alloc2(nshift, tr->ntrace, (size_t)tr->precision, e)) == NULL ||
        (out->grid = spx_alloc2(nshift, 2, sizeof *out->grid, e)) == NULL)
        return SPX_EIO;
    memcpy(out->grid, slowness, 2 * nshift * sizeof *out->grid);
    double x0 = 0, y0 = 0, n = (double)tr->ntrace;
    for (size_t j = 0; j < tr->ntrace; j++) {
        if (!isfinite(tr->position[2 * j]) || !isfinite(tr->position[2 * j + 1]))
            return spx_fail(e, SPX_EINPUT, "/traces/position: that of trace %zu is not finite", j);
        x0 += tr->position[2 * j] / n;
        y0 += tr->position[2 * j + 1] / n;
    }
    for (size_t k = 0; k < nshift; k++)
        for (size_t j = 0; j < tr->ntrace; j++) {
            double delay =
                slowness[2 * k] * (tr->position[2 * j] - x0) + slowness[2 * k + 1] * (tr->position[2 * j + 1] - y0);
            double shift = -round(delay * tr->sampling_rate);
            if (!(fabs(shift) <= INT32_MAX))
                return spx_fail(e, SPX_EINPUT,
                                "slowness %g,%g s/km gives a shift of %g samples: are positions in km and the sampling "
                                "rate in Hz?",
                                slowness[2 * k], slowness[2 * k + 1], shift);
            out->shift[k * tr->ntrace + j] = (int32_t)shift;
            if (tr->precision == 4)
                ((float *)out->weight)[k * tr->ntrace + j] = (float)(1.0 / n);
            else
                ((double *)out->weight)[k * tr->ntrace + j] = 1.0 / n;
        }
    return SPX_OK;
}
