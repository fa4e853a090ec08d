/* Provides the subtraction of the sky on the CPU: the engine of sky/engine.h, fibres among threads. Sums of a fibre are
 * one thread's, in the order of bins. */
#include <math.h>
#include <omp.h>
#include <string.h>

#include "base/clones.h"
#include "base/mem.h"
#include "calib/resolution.h"
#include "calib/series.h"
#include "sky/engine.h"
#include "sky/sky_math.h"

/* Arrays of one thread, [nwave] each but for columns [K][nwave] and band [ndiag][nwave]. */
typedef struct {
    double *base, *s, *shifted, *d1, *d2, *t, *v, *columns, *band;
} scratch;

typedef struct {
    const spx_sky_input *in;
    spx_sky_fit fit;
    size_t nq;
    int nthreads;
    double *w, *c, *m;     /* [nspec][nwave] */
    double *weight, *data; /* [nspec][nwave] of the normal equations, and scaled parts of c */
    double *legendre;      /* [terms][nwave] */
    scratch *scratch;
} cpu;

static void *unset(size_t a, size_t b, spx_err *e)
{
    return spx_alloc_unset(a, b, sizeof(double), e);
}

static spx_status make_cpu(cpu *g, const spx_sky_input *in, const spx_sky_options *o, spx_err *e)
{
    const size_t ns = in->nspec, n = in->nwave, nq = spx_sky_count(&o->terms), nterm = nq > 0 ? nq : 1;
    const double last = in->wavelength[n - 1];
    *g = (cpu){.in = in, .fit = spx_sky_fit_of(in, o), .nq = nq, .nthreads = o->nthreads > 0 ? o->nthreads : 1};
    g->w = unset(ns, n, e);
    g->c = unset(ns, n, e);
    g->m = spx_alloc2(ns, n, sizeof(double), e);
    g->weight = unset(ns, n, e);
    g->data = unset(ns, n, e);
    g->legendre = unset(nterm, n, e);
    g->scratch = spx_alloc((size_t)g->nthreads, sizeof *g->scratch, e);
    if (g->w == NULL || g->c == NULL || g->m == NULL || g->weight == NULL || g->data == NULL || g->legendre == NULL ||
        g->scratch == NULL)
        return SPX_EIO;
    for (int i = 0; i < g->nthreads; i++) {
        scratch *s = &g->scratch[i];
        if ((s->base = unset(6 + nterm + in->ndiag, n, e)) == NULL)
            return SPX_EIO;
        s->s = s->base;
        s->shifted = s->s + n;
        s->d1 = s->shifted + n;
        s->d2 = s->d1 + n;
        s->t = s->d2 + n;
        s->v = s->t + n;
        s->columns = s->v + n;
        s->band = s->columns + nterm * n;
    }
    for (size_t k = 0; k < n; k++) {
        double p[SPX_SKY_MOST + 1];
        spx_legendre(spx_legendre_place(in->wavelength[0], last, in->wavelength[k]), nterm, p);
        for (size_t l = 0; l < nterm; l++)
            g->legendre[l * n + k] = p[l];
    }
    return SPX_OK;
}

static void free_cpu(cpu *g)
{
    spx_free(g->w);
    spx_free(g->c);
    spx_free(g->m);
    spx_free(g->weight);
    spx_free(g->data);
    spx_free(g->legendre);
    for (int i = 0; i < g->nthreads && g->scratch != NULL; i++)
        spx_free(g->scratch[i].base);
    spx_free(g->scratch);
}

static spx_status set_weights(spx_sky_engine *engine, const spx_sky_work *w, spx_err *e)
{
    const cpu *g = engine->state;
    const size_t n = g->in->nwave;
    (void)w;
    (void)e;
#pragma omp parallel for schedule(static) num_threads(g->nthreads)
    for (size_t i = 0; i < g->in->nspec; i++)
        for (size_t k = 0; k < n; k++) {
            const double v = g->in->ivar[i * n + k];
            g->w[i * n + k] = v > 0 && v < INFINITY ? v : 0;
        }
    return SPX_OK;
}

/* s of a fibre: with what varies with its coordinates, shifted by its velocity. */
static const double *sky_of(const cpu *g, const spx_sky_work *w, size_t i, scratch *t)
{
    const size_t n = g->in->nwave;
    const double *s = w->s;
    if (w->nmode > 0) {
        memcpy(t->s, s, n * sizeof *s);
        for (size_t q = 0; q < w->nmode; q++)
            for (size_t k = 0; k < n; k++)
                t->s[k] += w->x[i * w->nmode + q] * w->mode[q * n + k];
        s = t->s;
    }
    if (w->q == NULL)
        return s;
    for (size_t k = 0; k < n; k++)
        t->shifted[k] = spx_interpolate8(n, s, k, g->in->wavelength[k] * w->q[i] / g->fit.step);
    return t->shifted;
}

static spx_status make_spectra(spx_sky_engine *engine, const spx_sky_work *w, spx_err *e)
{
    const cpu *g = engine->state;
    const size_t n = g->in->nwave, nd = g->in->ndiag;
    (void)e;
#pragma omp parallel for schedule(dynamic, 4) num_threads(g->nthreads)
    for (size_t i = 0; i < g->in->nspec; i++)
        if (w->active[i])
            spx_resolution_apply(n, nd, g->in->resolution + i * nd * n,
                                 sky_of(g, w, i, &g->scratch[omp_get_thread_num()]), g->c + i * n);
    return SPX_OK;
}

static spx_status measure(spx_sky_engine *engine, const spx_sky_work *w, double *info, double *right, spx_err *e)
{
    const cpu *g = engine->state;
    const size_t n = g->in->nwave;
#pragma omp parallel for schedule(static) num_threads(g->nthreads)
    for (size_t i = 0; i < g->in->nspec; i++) {
        for (size_t k = 0; k < n && w->kind[i] == SPX_SKY_STAR; k++)
            g->w[i * n + k] = fabs(g->w[i * n + k]);
        for (size_t k = 0; k < n && w->kind[i] != SPX_SKY_LEAVE && w->continuum != NULL; k++)
            g->data[i * n + k] = g->c[i * n + k] - w->continuum[k];
    }
    spx_sky_fit fit = g->fit;
    fit.skip = w->bad;
    fit.noise = w->noise;
    return spx_sky_measure(&fit, g->in->nspec, g->c, w->continuum != NULL ? g->data : NULL, g->in->flux, g->w, w->kind,
                           info, right, e);
}

/* Series of a fibre over all bins: value = sum_l p_l P_l. */
static void series(const cpu *g, size_t nterm, const double *p, double *value)
{
    const size_t n = g->in->nwave;
    for (size_t k = 0; k < n; k++)
        value[k] = nterm > 0 ? p[0] : 0;
    for (size_t l = 1; l < nterm; l++)
        for (size_t k = 0; k < n; k++)
            value[k] += p[l] * g->legendre[l * n + k];
}

/* Scale of a fibre over all bins. */
static void scales(const cpu *g, const spx_sky_work *w, size_t i, double *t)
{
    const double one = 1;
    const size_t nt = g->fit.terms.nt;
    series(g, nt > 0 ? nt : 1, nt > 0 ? w->p + i * g->nq : &one, t);
}

SPX_CLONES
static void add_columns(size_t n, double p, const double *restrict column, double *restrict m)
{
#pragma omp simd
    for (size_t k = 0; k < n; k++)
        m[k] += p * column[k];
}

/* Columns of the quantities, G: m = offset + sum_a p_a G_a. */
static void make_columns(const cpu *g, const spx_sky_work *w, size_t i, scratch *t)
{
    const size_t n = g->in->nwave, nt = g->fit.terms.nt, nd = g->fit.terms.nd, nk = g->fit.terms.nk;
    const double *c = g->c + i * n, t0 = spx_sky_scale_of(nt, w->p + i * g->nq);
    spx_derivative_row(n, g->fit.step, c, t->d1);
    spx_derivative_row(n, g->fit.step, t->d1, t->d2);
    for (size_t l = 0; l < nt; l++)
        for (size_t k = 0; k < n; k++)
            t->columns[l * n + k] = (w->continuum != NULL ? c[k] - w->continuum[k] : c[k]) * g->legendre[l * n + k];
    for (size_t l = 0; l < nd; l++)
        for (size_t k = 0; k < n; k++)
            t->columns[(nt + l) * n + k] = t0 * t->d1[k] * g->legendre[l * n + k];
    for (size_t l = 0; l < nk; l++)
        for (size_t k = 0; k < n; k++)
            t->columns[(nt + nd + l) * n + k] = 0.5 * t0 * t->d2[k] * g->legendre[l * n + k];
}

static void make_model(const cpu *g, const spx_sky_work *w, size_t i, scratch *t, double *m)
{
    const size_t n = g->in->nwave;
    make_columns(g, w, i, t);
    for (size_t k = 0; k < n; k++)
        m[k] = g->fit.terms.nt == 0 ? g->c[i * n + k] : w->continuum != NULL ? w->continuum[k] : 0;
    for (size_t a = 0; a < g->nq; a++)
        add_columns(n, w->p[i * g->nq + a], t->columns + a * n, m);
}

static spx_status make_models(spx_sky_engine *engine, const spx_sky_work *w, double most, spx_sky_sums *sums,
                              spx_err *e)
{
    const cpu *g = engine->state;
    const size_t n = g->in->nwave;
    (void)e;
#pragma omp parallel for schedule(dynamic, 4) num_threads(g->nthreads)
    for (size_t i = 0; i < g->in->nspec; i++) {
        scratch *t = &g->scratch[omp_get_thread_num()];
        double *m = g->m + i * n, *now = t->v;
        const double *v = g->w + i * n, *d = g->in->flux + i * n;
        spx_sky_sums s = {0};
        if (!w->active[i])
            continue;
        make_model(g, w, i, t, now);
        for (size_t k = 0; k < n; k++) {
            if (w->bad[k])
                continue;
            const double step = (now[k] - m[k]) * (now[k] - m[k]) * fabs(v[k]);
            s.change = step > s.change ? step : s.change;
            s.nout += v[k] < 0;
            if (v[k] > 0) {
                const double r2 = (d[k] - now[k]) * (d[k] - now[k]) * v[k];
                s.n++;
                s.chi2 += r2 < most ? r2 : most;
            }
        }
        s.change = sqrt(s.change);
        memcpy(m, now, n * sizeof *m);
        sums[i] = s;
    }
    return SPX_OK;
}

static spx_status reject(spx_sky_engine *engine, const spx_sky_work *w, double limit, double most, spx_sky_sums *sums,
                         spx_err *e)
{
    const cpu *g = engine->state;
    const size_t n = g->in->nwave;
    (void)e;
#pragma omp parallel for schedule(dynamic, 4) num_threads(g->nthreads)
    for (size_t i = 0; i < g->in->nspec; i++) {
        scratch *t = &g->scratch[omp_get_thread_num()];
        double *v = g->w + i * n;
        const double *d = g->in->flux + i * n, *m = g->m + i * n;
        spx_sky_sums s = {.change = sums[i].change};
        if (!w->active[i])
            continue;
        spx_derivative_row(n, g->fit.step, g->c + i * n, t->d1);
        for (size_t k = 0; k < n; k++) {
            const double weight = fabs(v[k]), r = d[k] - m[k], r2 = r * r * weight;
            if (!(weight > 0) || w->bad[k])
                continue;
            const int out = spx_sky_is_out(r, weight, t->d1[k], limit, w->o->shift_error);
            v[k] = out ? -weight : weight;
            s.n += !out;
            s.nout += out;
            s.chi2 += out ? 0 : r2 < most ? r2 : most;
        }
        sums[i] = s;
    }
    return SPX_OK;
}

/* Weights times factor x_q x_r, and what is summed: data (d - m)/t. */
static void weigh(const cpu *g, const spx_sky_work *w, size_t q, size_t r)
{
    const size_t n = g->in->nwave, nm = w->nmode;
#pragma omp parallel for schedule(static) num_threads(g->nthreads)
    for (size_t i = 0; i < g->in->nspec; i++) {
        double *t = g->scratch[omp_get_thread_num()].t;
        const double factor = (q > 0 ? w->x[i * nm + q - 1] : 1) * (r > 0 ? w->x[i * nm + r - 1] : 1);
        if (!w->use[i])
            continue;
        scales(g, w, i, t);
        for (size_t k = 0; k < n; k++) {
            const size_t at = i * n + k;
            const double scale = spx_sky_positive(t[k]), v = g->w[at] > 0 ? g->w[at] : 0;
            g->weight[at] = v * scale * scale * factor;
            g->data[at] = v > 0 ? (g->in->flux[at] - g->m[at]) / scale : 0;
        }
    }
}

static spx_status normal(spx_sky_engine *engine, const spx_sky_work *w, double *a, double *y, spx_err *e)
{
    const cpu *g = engine->state;
    const size_t n = g->in->nwave, nd = g->in->ndiag;
    (void)e;
    for (size_t q = 0; q <= w->nmode; q++)
        for (size_t r = 0; r <= q; r++) {
            weigh(g, w, q, r);
            spx_resolution_normal(g->in->nspec, n, nd, g->in->resolution, g->weight, g->data, w->use, g->nthreads,
                                  a + spx_sky_pair(q, r) * nd * n, r == 0 ? y + q * n : NULL);
        }
    return SPX_OK;
}

static spx_status mean_spectrum(spx_sky_engine *engine, const spx_sky_work *w, double *mean, spx_err *e)
{
    const cpu *g = engine->state;
    const size_t n = g->in->nwave;
    size_t used = 0;
    (void)e;
    memset(mean, 0, n * sizeof *mean);
    for (size_t i = 0; i < g->in->nspec; i++)
        if (w->use[i]) {
            used++;
            add_columns(n, 1, g->c + i * n, mean);
        }
    for (size_t k = 0; k < n && used > 0; k++)
        mean[k] /= (double)used;
    return SPX_OK;
}

/* Band of the covariance of a fibre's own s. */
static const double *covariance_of(const cpu *g, const spx_sky_work *w, size_t i, const double *covariance,
                                   double *band)
{
    const size_t size = g->in->ndiag * g->in->nwave, nm = w->nmode;
    if (nm == 0)
        return covariance;
    memcpy(band, covariance, size * sizeof *band);
    for (size_t q = 1; q <= nm; q++)
        for (size_t r = 0; r <= q; r++)
            add_columns(size, w->x[i * nm + q - 1] * (r > 0 ? w->x[i * nm + r - 1] : 1),
                        covariance + spx_sky_pair(q, r) * size, band);
    return band;
}

SPX_CLONES
static void add_variance(size_t n, const double *restrict a, double scale, const double *restrict b, double *restrict v)
{
#pragma omp simd
    for (size_t k = 0; k < n; k++)
        v[k] += scale * a[k] * b[k];
}

static void sum_chi2(const cpu *g, const spx_sky_work *w, size_t i, const uint8_t *line_class, const double *m,
                     const double *of_sky, const double *variance, spx_sky_chi2 *sum)
{
    const size_t n = g->in->nwave;
    const double *v = g->w + i * n, *d = g->in->flux + i * n;
    memset(sum, 0, sizeof *sum);
    for (size_t k = 0; k < n; k++) {
        double chi2, loo;
        if (!(v[k] > 0) || w->bad[k] ||
            !spx_sky_terms_of_chi2(w->use[i], d[k] - m[k], v[k], of_sky[k], variance[k], &chi2, &loo))
            continue;
        for (int c = 0; c <= SPX_SKY_CLASSES; c++)
            if (c == SPX_SKY_CLASSES || (line_class[k] >> c & 1)) {
                sum->n[c]++;
                sum->chi2[c] += chi2;
                sum->loo[c] += loo;
            }
    }
}

static spx_status finish(spx_sky_engine *engine, const spx_sky_work *w, const double *covariance,
                         const uint8_t *line_class, double *model, double *variance, spx_sky_chi2 *chi2, spx_err *e)
{
    const cpu *g = engine->state;
    const size_t n = g->in->nwave, nd = g->in->ndiag, nq = g->nq;
    (void)e;
#pragma omp parallel for schedule(dynamic, 4) num_threads(g->nthreads)
    for (size_t i = 0; i < g->in->nspec; i++) {
        scratch *t = &g->scratch[omp_get_thread_num()];
        double *m = model + i * n, *v = variance + i * n;
        const double *cov = w->cov + i * nq * nq;
        make_model(g, w, i, t, m);
        spx_resolution_variance(n, nd, g->in->resolution + i * nd * n, covariance_of(g, w, i, covariance, t->band),
                                t->v);
        scales(g, w, i, t->t);
        for (size_t k = 0; k < n; k++)
            v[k] = t->v[k] = t->t[k] * t->t[k] * (t->v[k] > 0 ? t->v[k] : 0);
        for (size_t a = 0; a < nq; a++)
            for (size_t b = 0; b <= a; b++)
                add_variance(n, t->columns + a * n, (a == b ? 1 : 2) * cov[a * nq + b], t->columns + b * n, v);
        for (size_t k = 0; k < n; k++) {
            v[k] = w->bad[k] ? 0 : v[k] > t->v[k] ? v[k] : t->v[k];
            m[k] = w->bad[k] ? 0 : m[k];
        }
        sum_chi2(g, w, i, line_class, m, t->v, v, &chi2[i]);
    }
    return SPX_OK;
}

spx_status spx_sky_cpu(const spx_sky_input *in, const spx_sky_options *o, spx_sky *out, spx_err *e)
{
    cpu g = {0};
    spx_sky_engine engine = {.state = &g,
                             .weights = set_weights,
                             .spectra = make_spectra,
                             .measure = measure,
                             .model = make_models,
                             .reject = reject,
                             .normal = normal,
                             .finish = finish,
                             .mean = mean_spectrum};
    spx_sky_options used = *o;
    if (o->scale == SPX_SKY_SCALE_NONE)
        used.terms.nt = 0;
    memset(out, 0, sizeof *out);
    spx_status st = spx_sky_check(in, &used, e);
    if (st == SPX_OK)
        st = make_cpu(&g, in, &used, e);
    if (st == SPX_OK)
        st = spx_sky_solve(&engine, in, &used, out, e);
    free_cpu(&g);
    return st;
}

void spx_sky_subtract(const spx_sky *sky, uint32_t bad_bit, int nthreads, double *flux, double *ivar, uint32_t *mask)
{
    const size_t n = sky->nwave;
#pragma omp parallel for schedule(static) num_threads(nthreads > 0 ? nthreads : 1)
    for (size_t i = 0; i < sky->nspec; i++)
        for (size_t k = 0; k < n; k++) {
            const size_t at = i * n + k;
            if (sky->bad[k] || sky->role[i] == SPX_SKY_REJECTED)
                mask[at] |= bad_bit;
            if (sky->bad[k]) {
                flux[at] = ivar[at] = 0;
                continue;
            }
            flux[at] -= sky->model[at];
            ivar[at] = ivar[at] > 0 ? 1 / (1 / ivar[at] + sky->variance[at]) : 0;
        }
}
