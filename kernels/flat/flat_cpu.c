/* Computes the steps of the fibre flat field on the CPU (flat/flat_engine.h). Fibres are divided into parts whose sums
 * are added in order, so that results do not depend on the number of threads. */
#include <math.h>
#include <omp.h>
#include <string.h>

#include "base/clones.h"
#include "base/mem.h"
#include "calib/band.h"
#include "calib/resolution.h"
#include "flat/flat_engine.h"
#include "flat/flat_math.h"
#include "simd/vector.h"

enum { PARTS = 32, FOUR = 4 };

typedef SPX_VECTOR(double, FOUR * 8) four;
typedef SPX_VECTOR_ANY(double, FOUR * 8) four_any;

typedef struct {
    const spx_flat_input *in;
    const spx_flat_options *o;
    const spx_flat_plan *plan;
    int nthreads;
    size_t npart;
    uint8_t *state;      /* [nexp][nspec][nwave] */
    double *flat, *last; /* [nspec][nwave]: F, and the normalised one of the last pass */
    double *lamp;        /* [nexp][nwave] of the last pass */
    double *weight;      /* [nspec][nwave]: w F^2 of an exposure */
    double *part;        /* [npart][part_size()]: y, v, t, s */
    double *work;        /* [nthreads][work_size()] */
} engine;

/* Arrays of a thread that works on a fibre. */
typedef struct {
    double *x;        /* [nexp][nwave]: R m */
    double *p, *q;    /* [nwave]: sum w x^2, sum w x D */
    double *r, *back; /* [nwave]: weighted residual, and R^T of it */
    double *sum, *band, *rhs, *inverse;
} fibre_work;

static size_t work_size(const engine *w)
{
    const size_t nspline = w->plan->spline.n;
    return (w->in->nexp + 4) * w->in->nwave + w->plan->nint * SPX_FLAT_SUMS + 9 * nspline;
}

static fibre_work work_of(const engine *w, int thread)
{
    const size_t n = w->in->nwave, nspline = w->plan->spline.n;
    double *at = w->work + (size_t)thread * work_size(w);
    fibre_work f;
    f.x = at, at += w->in->nexp * n;
    f.p = at, at += n;
    f.q = at, at += n;
    f.r = at, at += n;
    f.back = at, at += n;
    f.sum = at, at += w->plan->nint * SPX_FLAT_SUMS;
    f.band = at, at += 4 * nspline;
    f.rhs = at, at += nspline;
    f.inverse = at;
    return f;
}

/* Sums of a part: y[nexp][nwave], v[nexp][nwave], t[nexp], s[nexp]. */
static size_t part_size(const engine *w)
{
    return w->in->nexp * (2 * w->in->nwave + 2);
}

static size_t first_of(const engine *w, size_t part)
{
    return part * w->in->nspec / w->npart;
}

/* x = R m of all exposures, and p, q of the bins that are in the fit. */
static void convolve(const engine *w, size_t i, const fibre_work *f)
{
    const spx_flat_input *in = w->in;
    const size_t n = in->nwave;
    memset(f->p, 0, n * sizeof *f->p);
    memset(f->q, 0, n * sizeof *f->q);
    for (size_t x = 0; x < in->nexp; x++) {
        const double *d = in->flux[x] + i * n, *ivar = in->ivar[x] + i * n;
        const uint8_t *state = w->state + (x * in->nspec + i) * n;
        double *model = f->x + x * n;
        spx_resolution_apply(n, in->ndiag, in->resolution[x] + i * in->ndiag * n, w->lamp + x * n, model);
        for (size_t k = 0; k < n; k++)
            if (state[k] == SPX_FLAT_USABLE) {
                f->p[k] += ivar[k] * model[k] * model[k];
                f->q[k] += ivar[k] * model[k] * d[k];
            }
    }
}

/* spx_flat_add() of the bins of an interval, with the same bits: products with one function side by side. */
SPX_CLONES
static void sum_interval(size_t n, const double *basis, const double *p, const double *q, double *sum)
{
    const four nothing = {0};
    four row[FOUR] = {nothing, nothing, nothing, nothing}, right = nothing;
    for (size_t k = 0; k < n; k++) {
        if (!(p[k] > 0))
            continue;
        const four b = *(const four_any *)(const void *)(basis + FOUR * k), weighted = p[k] * b;
        for (size_t i = 0; i < FOUR; i++)
            row[i] += weighted[i] * b;
        right += q[k] * b;
    }
    for (size_t i = 0; i < FOUR; i++)
        for (size_t j = i; j < FOUR; j++)
            *sum++ = row[i][j];
    for (size_t i = 0; i < FOUR; i++)
        *sum++ = right[i];
}

/* Normal equations of the splines of a fibre; 0 without light. */
static int equations(const spx_flat_plan *plan, const fibre_work *f)
{
    for (size_t t = 0; t < plan->nint; t++) {
        const size_t first = plan->begin[t];
        sum_interval(plan->begin[t + 1] - first, plan->basis + FOUR * first, f->p + first, f->q + first,
                     f->sum + t * SPX_FLAT_SUMS);
    }
    return spx_flat_assemble(plan->spline.n, f->sum, f->band, f->rhs);
}

/* F of a fibre, its level and its numbers of bins. */
static void fit(engine *w, size_t i, const fibre_work *f, spx_flat_pass *out)
{
    const spx_flat_plan *plan = w->plan;
    const size_t n = w->in->nwave;
    double *flat = w->flat + i * n, p = 0, q = 0;
    for (size_t t = 0; t < plan->nint; t++) {
        uint32_t count = 0;
        for (size_t k = plan->begin[t]; k < plan->begin[t + 1]; k++) {
            count += f->p[k] > 0;
            p += f->p[k];
            q += f->q[k];
        }
        out->count[i * plan->nint + t] = count;
    }
    out->level[i] = p > 0 ? q / p : 0;
    if (!equations(plan, f)) {
        memset(flat, 0, n * sizeof *flat);
        return;
    }
    (void)spx_band_factor(plan->spline.n, 3, f->band, 1e-13, f->band);
    spx_band_solve(plan->spline.n, 3, f->band, f->rhs);
    for (size_t k = 0; k < n; k++)
        flat[k] = spx_flat_value(plan->basis + 4 * k, f->rhs + plan->first[k]);
}

/* Tests the bins of a fibre again, and adds it to the sums of its part where it is in use. */
static void add_fibre(engine *w, size_t i, int use, int test, const fibre_work *f, double *part)
{
    const spx_flat_input *in = w->in;
    const size_t n = in->nwave;
    const double limit = w->o->reject * w->o->reject, *flat = w->flat + i * n;
    for (size_t x = 0; x < in->nexp; x++) {
        const double *d = in->flux[x] + i * n, *ivar = in->ivar[x] + i * n, *model = f->x + x * n;
        uint8_t *state = w->state + (x * in->nspec + i) * n;
        double *y = part + x * n, *v = part + (in->nexp + x) * n, t = 0, s = 0;
        for (size_t k = 0; k < n; k++) {
            f->r[k] = 0;
            if ((state[k] & SPX_FLAT_USABLE) == 0)
                continue;
            const double at = flat[k] * model[k], r = d[k] - at;
            if (test)
                state[k] = r * r * ivar[k] > limit ? SPX_FLAT_USABLE | SPX_FLAT_REJECTED : SPX_FLAT_USABLE;
            if (state[k] != SPX_FLAT_USABLE || !use)
                continue;
            f->r[k] = ivar[k] * flat[k] * r;
            v[k] += ivar[k] * flat[k] * flat[k];
            t += ivar[k] * at * d[k];
            s += ivar[k] * at * at;
        }
        if (!use)
            continue;
        part[2 * in->nexp * n + x] += t;
        part[2 * in->nexp * n + in->nexp + x] += s;
        spx_resolution_apply_transposed(n, in->ndiag, in->resolution[x] + i * in->ndiag * n, f->r, f->back);
        for (size_t k = 0; k < n; k++)
            y[k] += f->back[k];
    }
}

/* Sum of all parts, in order. */
static void add_parts(const engine *w, spx_flat_pass *out)
{
    const size_t nexp = w->in->nexp, n = w->in->nwave, size = part_size(w);
    memset(out->y, 0, nexp * n * sizeof *out->y);
    memset(out->v, 0, nexp * n * sizeof *out->v);
    memset(out->t, 0, nexp * sizeof *out->t);
    memset(out->s, 0, nexp * sizeof *out->s);
    for (size_t p = 0; p < w->npart; p++) {
        const double *from = w->part + p * size;
        for (size_t k = 0; k < nexp * n; k++) {
            out->y[k] += from[k];
            out->v[k] += from[nexp * n + k];
        }
        for (size_t x = 0; x < nexp; x++) {
            out->t[x] += from[2 * nexp * n + x];
            out->s[x] += from[2 * nexp * n + nexp + x];
        }
    }
}

static spx_status begin(void *self, const double *level, const double *median, const uint8_t *use, spx_flat_pass *out,
                        spx_err *e)
{
    engine *w = self;
    const size_t n = w->in->nwave;
    (void)e;
    memset(w->part, 0, w->npart * part_size(w) * sizeof *w->part);
#pragma omp parallel for schedule(dynamic, 1) num_threads(w->nthreads)
    for (size_t p = 0; p < w->npart; p++) {
        const fibre_work f = work_of(w, omp_get_thread_num());
        memset(f.x, 0, w->in->nexp * n * sizeof *f.x);
        for (size_t i = first_of(w, p); i < first_of(w, p + 1); i++) {
            for (size_t k = 0; k < n; k++)
                w->flat[i * n + k] = w->last[i * n + k] =
                    spx_flat_start(w->plan->nblock, level + i * w->plan->nblock, k);
            for (size_t x = 0; x < w->in->nexp; x++)
                for (size_t k = 0; k < n; k++) {
                    const size_t at = i * n + k;
                    w->state[x * w->in->nspec * n + at] = spx_flat_first_state(
                        w->in->flux[x][at], w->in->ivar[x][at], w->in->mask[x] != NULL ? w->in->mask[x][at] : 0,
                        w->flat[at] * median[x * n + k], w->o->reject);
                }
            add_fibre(w, i, use[i], 0, &f, w->part + p * part_size(w));
        }
    }
    add_parts(w, out);
    return SPX_OK;
}

static spx_status pass(void *self, const double *lamp, const uint8_t *use, spx_flat_pass *out, spx_err *e)
{
    engine *w = self;
    (void)e;
    memcpy(w->lamp, lamp, w->in->nexp * w->in->nwave * sizeof *lamp);
    memset(w->part, 0, w->npart * part_size(w) * sizeof *w->part);
#pragma omp parallel for schedule(dynamic, 1) num_threads(w->nthreads)
    for (size_t p = 0; p < w->npart; p++) {
        const fibre_work f = work_of(w, omp_get_thread_num());
        for (size_t i = first_of(w, p); i < first_of(w, p + 1); i++) {
            convolve(w, i, &f);
            fit(w, i, &f, out);
            add_fibre(w, i, use[i], 1, &f, w->part + p * part_size(w));
        }
    }
    add_parts(w, out);
    return SPX_OK;
}

static spx_status normal(void *self, const uint8_t *use, double *a, spx_err *e)
{
    engine *w = self;
    const spx_flat_input *in = w->in;
    const size_t n = in->nwave;
    (void)e;
    for (size_t x = 0; x < in->nexp; x++) {
        const uint8_t *state = w->state + x * in->nspec * n;
        const double *ivar = in->ivar[x];
#pragma omp parallel for num_threads(w->nthreads)
        for (size_t i = 0; i < in->nspec; i++)
            for (size_t k = i * n; k < (i + 1) * n; k++)
                w->weight[k] = state[k] == SPX_FLAT_USABLE ? ivar[k] * w->flat[k] * w->flat[k] : 0;
        spx_resolution_normal(in->nspec, n, in->ndiag, in->resolution[x], w->weight, NULL, use, w->nthreads,
                              a + x * in->ndiag * n, NULL);
    }
    return SPX_OK;
}

static spx_status normalise(void *self, const uint8_t *ref, size_t nref, double *mean, double *change, spx_err *e)
{
    engine *w = self;
    const size_t n = w->in->nwave, ns = w->in->nspec;
    (void)e;
#pragma omp parallel for num_threads(w->nthreads)
    for (size_t b = 0; b < (n + 63) / 64; b++) {
        const size_t low = 64 * b, high = n < low + 64 ? n : low + 64;
        for (size_t k = low; k < high; k++)
            mean[k] = change[k] = 0;
        for (size_t i = 0; i < ns; i++)
            for (size_t k = low; k < high && ref[i]; k++)
                mean[k] += w->flat[i * n + k];
        for (size_t k = low; k < high; k++)
            mean[k] = mean[k] > 0 ? mean[k] / (double)nref : 1;
        for (size_t i = 0; i < ns; i++)
            for (size_t k = low; k < high; k++) {
                const double value = w->flat[i * n + k] / mean[k];
                if (ref[i])
                    change[k] = fmax(change[k], fabs(value - w->last[i * n + k]));
                w->last[i * n + k] = value;
            }
    }
    return SPX_OK;
}

/* Factor that the usable exposures of a bin have in common; 1 where none is significant, or they differ. */
static double native_factor(const engine *w, size_t i, size_t k, const fibre_work *f, double *variance)
{
    const spx_flat_input *in = w->in;
    const size_t at = i * in->nwave + k;
    double t = 0, s = 0;
    size_t usable = 0;
    for (size_t x = 0; x < in->nexp; x++)
        if (w->state[x * in->nspec * in->nwave + at] & SPX_FLAT_USABLE) {
            const double model = w->flat[at] * f->x[x * in->nwave + k];
            t += in->ivar[x][at] * model * in->flux[x][at];
            s += in->ivar[x][at] * model * model;
            usable++;
        }
    if (!spx_flat_is_native(usable, t, s))
        return 1;
    for (size_t x = 0; x < in->nexp; x++) {
        const double r = in->flux[x][at] - t / s * w->flat[at] * f->x[x * in->nwave + k];
        if ((w->state[x * in->nspec * in->nwave + at] & SPX_FLAT_USABLE) &&
            r * r * in->ivar[x][at] > w->o->reject * w->o->reject)
            return 1;
    }
    *variance += w->flat[at] * w->flat[at] / s;
    return t / s;
}

static void end_fibre(engine *w, size_t i, const fibre_work *f, spx_flat_end *out)
{
    const spx_flat_input *in = w->in;
    const spx_flat_plan *plan = w->plan;
    const size_t n = in->nwave, nspline = plan->spline.n;
    convolve(w, i, f);
    const int light = equations(plan, f);
    if (light) {
        (void)spx_band_factor(nspline, 3, f->band, 1e-13, f->band);
        spx_band_inverse(nspline, 3, f->band, f->inverse);
    }
    out->nnative[i] = 0;
    for (size_t k = 0; k < n; k++) {
        double *variance = out->variance + i * n + k;
        *variance = light ? spx_flat_variance(nspline, f->inverse, plan->first[k], plan->basis + 4 * k) : 0;
        const double factor = w->o->native && light ? native_factor(w, i, k, f, variance) : 1;
        out->nnative[i] += factor != 1;
        out->flat[i * n + k] = factor * w->flat[i * n + k];
    }
    for (size_t x = 0; x < in->nexp; x++) {
        const double *d = in->flux[x] + i * n, *ivar = in->ivar[x] + i * n, *model = f->x + x * n;
        const uint8_t *state = w->state + (x * in->nspec + i) * n;
        double sum = 0;
        uint32_t used = 0, rejected = 0;
        for (size_t k = 0; k < n; k++) {
            const double r = d[k] - out->flat[i * n + k] * model[k];
            if ((state[k] & SPX_FLAT_USABLE) == 0)
                continue;
            if (r * r * ivar[k] > w->o->reject * w->o->reject) {
                rejected++;
                continue;
            }
            used++;
            sum += r * r * ivar[k];
        }
        out->chi2[x * in->nspec + i] = sum;
        out->nused[x * in->nspec + i] = used;
        out->nreject[x * in->nspec + i] = rejected;
    }
}

static spx_status end(void *self, const uint8_t *use, spx_flat_end *out, spx_err *e)
{
    engine *w = self;
    const size_t n = w->in->nwave, nexp = w->in->nexp, size = part_size(w);
    (void)e;
    memset(w->part, 0, w->npart * size * sizeof *w->part);
    memset(out->mean, 0, nexp * n * sizeof *out->mean);
#pragma omp parallel for schedule(dynamic, 1) num_threads(w->nthreads)
    for (size_t p = 0; p < w->npart; p++) {
        const fibre_work f = work_of(w, omp_get_thread_num());
        for (size_t i = first_of(w, p); i < first_of(w, p + 1); i++) {
            end_fibre(w, i, &f, out);
            for (size_t k = 0; k < nexp * n && use[i]; k++)
                w->part[p * size + k] += f.x[k];
        }
    }
    for (size_t p = 0; p < w->npart; p++)
        for (size_t k = 0; k < nexp * n; k++)
            out->mean[k] += w->part[p * size + k];
    return SPX_OK;
}

spx_status spx_flat_cpu(const spx_flat_input *in, const spx_flat_options *o, spx_flat *out, spx_flat_counts *counts,
                        spx_err *e)
{
    const size_t bins = in->nspec * in->nwave;
    spx_flat_plan plan = {0};
    engine w = {.in = in, .o = o, .plan = &plan, .nthreads = o->nthreads > 1 ? o->nthreads : 1};
    w.npart = in->nspec < PARTS ? in->nspec : PARTS;
    spx_status st = spx_flat_plan_make(in, o, &plan, e);
    if (st == SPX_OK && ((w.state = spx_alloc_unset(in->nexp, bins, sizeof *w.state, e)) == NULL ||
                         (w.flat = spx_alloc_unset(1, bins, sizeof *w.flat, e)) == NULL ||
                         (w.last = spx_alloc_unset(1, bins, sizeof *w.last, e)) == NULL ||
                         (w.weight = spx_alloc_unset(1, bins, sizeof *w.weight, e)) == NULL ||
                         (w.lamp = spx_alloc2(in->nexp, in->nwave, sizeof *w.lamp, e)) == NULL ||
                         (w.part = spx_alloc2(w.npart, part_size(&w), sizeof *w.part, e)) == NULL ||
                         (w.work = spx_alloc2((size_t)w.nthreads, work_size(&w), sizeof *w.work, e)) == NULL))
        st = SPX_EIO;
    if (st == SPX_OK) {
        const spx_flat_engine engine_ = {
            .self = &w, .begin = begin, .normal = normal, .pass = pass, .normalise = normalise, .end = end};
        st = spx_flat_run(&engine_, &plan, in, o, out, counts, e);
    }
    spx_free(w.state);
    spx_free(w.flat);
    spx_free(w.last);
    spx_free(w.weight);
    spx_free(w.lamp);
    spx_free(w.part);
    spx_free(w.work);
    spx_flat_plan_free(&plan);
    return st;
}
