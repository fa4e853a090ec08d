/* Makes master calibrations of many exposures (preproc/preproc.h). */
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "num/stat.h"
#include "preproc/preproc.h"
#include "preproc/smooth.h"

/* Most exposures: the counts of pixels are 16 bits. */
enum { MOST = 10000, ROWS = 64 };

void spx_combine_free(spx_combine *c)
{
    for (size_t k = 0; k < c->n; k++)
        spx_free(c->exposure[k].data);
    spx_free(c->exposure);
    memset(c, 0, sizeof *c);
}

/* Median of the pixels that are not masked, of every 7th at most 1e6. */
static double median_level(const float *data, size_t n, double *scratch, size_t most)
{
    const size_t step = n / most + 1;
    size_t m = 0;
    for (size_t i = 0; i < n; i += step)
        if (isfinite(data[i]))
            scratch[m++] = data[i];
    return spx_median(scratch, m);
}

spx_status spx_combine_add(spx_combine *c, const spx_combine_options *o, const spx_layout *l, const spx_image *im,
                           const spx_overscan *over, double exptime, spx_err *e)
{
    enum { SAMPLE = 1 << 16 };
    const size_t n = im->ny * im->nx;
    if (c->n == MOST)
        return spx_fail(e, SPX_EUSAGE, "more than %d exposures", MOST);
    spx_combine_exposure *all = spx_grow(c->exposure, c->n, 1, &c->capacity, sizeof *all, e);
    if (all == NULL)
        return SPX_EIO;
    c->exposure = all;
    spx_combine_exposure *x = &all[c->n];
    memset(x, 0, sizeof *x);
    double *scratch = spx_alloc(SAMPLE + 1, sizeof *scratch, e);
    x->data = scratch != NULL ? spx_alloc_spill(im->ny, im->nx, sizeof *x->data, e) : NULL;
    if (x->data == NULL) {
        spx_free(scratch);
        return SPX_EIO;
    }
    c->n++;
    for (size_t i = 0; i < n; i++)
        x->data[i] = im->mask[i] == 0 ? im->data[i] : NAN;
    for (size_t k = 0; k < l->namp; k++) {
        const double g = l->amp[k].gain, r = over[k].readnoise > 0 ? over[k].readnoise * g : l->amp[k].readnoise;
        x->noise2[k] = r * r + over[k].level_var * g * g;
    }
    x->scale = 1;
    spx_status st = SPX_OK;
    if (o->kind == SPX_MASTER_DARK) {
        x->scale = 1 / exptime;
    } else if (o->kind == SPX_MASTER_FLAT) {
        const double level = median_level(x->data, n, scratch, SAMPLE);
        if (!(level > 3 * sqrt(x->noise2[0])))
            st = spx_fail(e, SPX_EINPUT, "has no light: the median of its pixels is %g electrons", level);
        x->scale = level > 0 ? 1 / level : 1;
    }
    spx_mem_passed(x->data);
    spx_free(scratch);
    return st;
}

/* ---- a pixel ---- */

/* Values of one pixel, and the variance of each about a mean. */
typedef struct {
    size_t n;
    double *x, *scale, *noise2; /* value, its factor, electrons^2 of noise without light */
    double *scratch;
    unsigned char *use;
    int photons; /* 0: a bias, which has none */
} pixel;

/* Variance of value i, where the mean is m. */
static double variance_at(const pixel *p, size_t i, double m)
{
    const double s = p->scale[i];
    return s * s * (p->noise2[i] + (p->photons ? fmax(m / s, 0) : 0));
}

/* Mean of the values in use, weighted by the variances that they have about m. */
static double weighted(const pixel *p, double m, double *var)
{
    double sw = 0, swx = 0;
    for (size_t i = 0; i < p->n; i++)
        if (p->use[i]) {
            const double w = 1 / variance_at(p, i, m);
            sw += w;
            swx += w * p->x[i];
        }
    *var = sw > 0 ? 1 / sw : 0;
    return sw > 0 ? swx / sw : 0;
}

/* Begins with the median, of two values that disagree with the smaller, since hits are positive. */
static double first_guess(const pixel *p, double reject)
{
    for (size_t i = 0; i < p->n; i++)
        p->scratch[i] = p->x[i];
    const double m = spx_median(p->scratch, p->n);
    if (p->n != 2)
        return m;
    const double d = fabs(p->x[0] - p->x[1]), least = fmin(p->x[0], p->x[1]);
    return d > reject * sqrt(variance_at(p, 0, least) + variance_at(p, 1, least)) ? least : m;
}

/* Mean without values `reject` errors away from it; the errors are those of the noise, not of the scatter, which few
 * values do not show. *used: values in it; *chi2 about it. */
static double combine(pixel *p, double reject, double *var, size_t *used, double *chi2)
{
    double m = first_guess(p, reject);
    *var = 0;
    for (size_t i = 0; i < p->n; i++)
        *var += 1 / variance_at(p, i, m);
    *var = 1.571 / *var; /* of a median */
    for (int pass = 0; pass < 8; pass++) {
        int changed = pass == 0;
        *used = 0;
        for (size_t i = 0; i < p->n; i++) {
            const double v = variance_at(p, i, m), d = p->x[i] - m;
            /* the value is part of the mean, but of the median hardly */
            const int use = p->n == 1 || d * d <= reject * reject * (pass == 0 ? v + *var : v);
            changed |= use != p->use[i];
            p->use[i] = (unsigned char)use;
            *used += (size_t)use;
        }
        if (*used == 0 || !changed)
            break;
        m = weighted(p, m, var);
    }
    *chi2 = 0;
    for (size_t i = 0; i < p->n; i++)
        *chi2 += p->use[i] ? (p->x[i] - m) * (p->x[i] - m) / variance_at(p, i, m) : 0;
    return m;
}

/* ---- all pixels ---- */

typedef struct {
    double n, light, total; /* pixels without a rejected value; variance of photons in them, and all of it */
} sums;

typedef struct {
    const spx_combine *c;
    const spx_combine_options *o;
    const spx_layout *l;
    spx_master *out;
    sums *sum;   /* [ny], of an amplifier's rows */
    float *chi2; /* [ny][nx]: of a pixel's values about their mean; NAN where some are left out */
} work;

static void free_pixel(pixel *p)
{
    spx_free(p->x);
    spx_free(p->use);
}

static int make_pixel(pixel *p, size_t n)
{
    p->x = spx_alloc2(4, n, sizeof *p->x, NULL);
    p->use = spx_alloc(n, 1, NULL);
    if (p->x == NULL || p->use == NULL)
        return 0;
    p->scale = p->x + n;
    p->noise2 = p->x + 2 * n;
    p->scratch = p->x + 3 * n;
    return 1;
}

static void one_pixel(const work *w, size_t amp, size_t i, pixel *p, sums *s)
{
    double var = 0, chi2 = 0;
    size_t used = 0;
    p->n = 0;
    for (size_t k = 0; k < w->c->n; k++) {
        const spx_combine_exposure *x = &w->c->exposure[k];
        if (!isfinite(x->data[i]))
            continue;
        p->x[p->n] = x->data[i] * x->scale;
        p->scale[p->n] = x->scale;
        p->noise2[p->n++] = x->noise2[amp];
    }
    w->chi2[i] = NAN;
    const double m = p->n > 0 ? combine(p, w->o->reject, &var, &used, &chi2) : 0;
    w->out->count[i] = (uint16_t)used;
    /* no value, or none that half of them agree with: nobody knows what the next exposure has */
    if (2 * used < w->c->n || used == 0) {
        w->out->mask[i] |= SPX_CCD_BAD;
        if (used == 0)
            return;
    }
    w->out->data[i] = (float)m;
    w->out->ivar[i] = var > 0 ? (float)(1 / var) : 0;
    if (used == w->c->n && used > 1) {
        w->chi2[i] = (float)chi2;
        s->n++;
        for (size_t k = 0; k < p->n; k++) {
            s->light += fmax(m / p->scale[k], 0);
            s->total += fmax(m / p->scale[k], 0) + p->noise2[k];
        }
    }
}

/* Median of chi squared with n degrees of freedom; above 4 Wilson & Hilferty's approximation, exact to 0.001. */
static double chi2_median(size_t n)
{
    static const double few[] = {0, 0.454936, 1.386294, 2.365974, 3.356694};
    const double k = (double)n, c = 1 - 2 / (9 * k);
    return n <= 4 ? few[n] : k * c * c * c;
}

/* Scatter of an amplifier's exposures over that of their noise: of the median pixel, which faint hits do not change. */
static spx_status find_scatter(const work *w, const spx_section *c, double *scatter, spx_err *e)
{
    enum { SAMPLE = 1 << 18 };
    const size_t n = (size_t)(c->x1 - c->x0) * (size_t)(c->y1 - c->y0), step = n / SAMPLE + 1;
    size_t m = 0;
    double *v = spx_alloc(n / step + 1, sizeof *v, e);
    if (v == NULL)
        return SPX_EIO;
    for (size_t k = 0; k < n; k += step) {
        const size_t nx = (size_t)(c->x1 - c->x0);
        const float chi2 = w->chi2[((size_t)c->y0 + k / nx) * w->out->nx + (size_t)c->x0 + k % nx];
        if (isfinite(chi2))
            v[m++] = chi2;
    }
    *scatter = m > 0 ? sqrt(spx_median(v, m) / chi2_median(w->c->n - 1)) : 1;
    spx_free(v);
    return SPX_OK;
}

/* The pixels of an amplifier; then their variances by the scatter of the exposures, and what all exposures share. */
static spx_status one_amplifier(const work *w, const spx_master *bias, size_t amp, spx_combine_amp *out, spx_err *e)
{
    const spx_section *c = &w->l->amp[amp].ccd;
    const size_t nx = w->out->nx;
    int failed = 0;
    sums all = {0};
    memset(w->sum, 0, w->out->ny * sizeof *w->sum);
#pragma omp parallel num_threads(w->o->nthreads)
    {
        pixel p = {.photons = w->o->kind != SPX_MASTER_BIAS};
        const int ready = make_pixel(&p, w->c->n);
#pragma omp for schedule(dynamic, 8)
        for (long y = c->y0; y < c->y1; y++)
            for (long x = c->x0; x < c->x1 && ready; x++)
                one_pixel(w, amp, (size_t)y * nx + (size_t)x, &p, &w->sum[y]);
#pragma omp critical
        failed |= !ready;
        free_pixel(&p);
    }
    if (failed)
        return spx_mem_fail(e);
    for (long y = c->y0; y < c->y1; y++) {
        all.n += w->sum[y].n;
        all.light += w->sum[y].light;
        all.total += w->sum[y].total;
    }
    if (find_scatter(w, c, &out->scatter, e) != SPX_OK)
        return SPX_EIO;
    out->dof = all.n * (double)(w->c->n - 1);
    out->photons = all.total > 0 ? all.light / all.total : 0;
    double noise = 0, scale = 0;
    for (size_t k = 0; k < w->c->n; k++) {
        noise += sqrt(w->c->exposure[k].noise2[amp]) / (double)w->c->n;
        scale += w->c->exposure[k].scale / (double)w->c->n;
    }
    out->readnoise = noise;
    for (long y = c->y0; y < c->y1; y++)
        for (long x = c->x0; x < c->x1; x++) {
            const size_t i = (size_t)y * nx + (size_t)x;
            if (!(w->out->ivar[i] > 0))
                continue;
            double var = out->scatter * out->scatter / w->out->ivar[i];
            if (bias != NULL && bias->ivar[i] > 0)
                var += scale * scale / bias->ivar[i];
            w->out->ivar[i] = var > 0 && isfinite(1 / var) ? (float)(1 / var) : 0;
        }
    return SPX_OK;
}

/* ---- flats ---- */

/* Light of the lamp at the pixels of an amplifier: straight lines in windows along rows, then along columns of that. */
static void smooth_lamp(const spx_section *c, size_t nx, size_t window, int nthreads, const double *v, const double *w,
                        double *rows, double *weight, double *out)
{
    const size_t mx = (size_t)(c->x1 - c->x0), my = (size_t)(c->y1 - c->y0), at = (size_t)c->y0 * nx + (size_t)c->x0;
#pragma omp parallel for schedule(static) num_threads(nthreads)
    for (size_t y = 0; y < my; y++)
        for (size_t x = 0; x < mx; x++) {
            const size_t i = at + y * nx;
            double var;
            const double s = spx_local_line(mx, 1, v + i, w + i, window, x, &var);
            rows[i + x] = s;
            weight[i + x] = isfinite(s) && var > 0 ? 1 / var : 0;
        }
#pragma omp parallel for schedule(static) num_threads(nthreads)
    for (size_t x = 0; x < mx; x++)
        for (size_t y = 0; y < my; y++) {
            double var;
            out[at + y * nx + x] = spx_local_line(my, nx, rows + at + x, weight + at + x, window, y, &var);
        }
}

/* Response of pixels: mean of the exposures by the smooth light of the lamp. The lamp is smoothed twice, the second
 * time without pixels that are 30 % off. */
static spx_status make_flat(const work *w, spx_err *e)
{
    spx_master *m = w->out;
    const size_t n = m->ny * m->nx;
    double *v = spx_alloc2(5, n, sizeof *v, e);
    if (v == NULL)
        return SPX_EIO;
    double *weight = v + n, *rows = weight + n, *second = rows + n, *lamp = second + n;
    for (size_t i = 0; i < n; i++) {
        v[i] = m->data[i];
        weight[i] = m->mask[i] == 0 && m->ivar[i] > 0;
    }
    for (int pass = 0; pass < 2; pass++) {
        for (size_t k = 0; k < w->l->namp; k++)
            smooth_lamp(&w->l->amp[k].ccd, m->nx, w->o->smooth, w->o->nthreads, v, weight, rows, second, lamp);
        for (size_t i = 0; i < n; i++)
            weight[i] = weight[i] > 0 && lamp[i] > 0 && fabs(v[i] / lamp[i] - 1) < 0.3;
    }
    for (size_t i = 0; i < n; i++) {
        const double s = lamp[i], f = s > 0 ? m->data[i] / s : 1, ivar = s > 0 ? m->ivar[i] * s * s : 0;
        /* no light: nothing is known of the pixel */
        const int known = m->mask[i] == 0 && ivar > 16;
        if (known && f < 0.1)
            m->mask[i] |= SPX_CCD_LOWFLAT;
        m->data[i] = known && f >= 0.1 ? (float)f : 1;
        m->ivar[i] = known && f >= 0.1 ? (float)ivar : 0;
    }
    spx_free(v);
    return SPX_OK;
}

spx_status spx_combine_cpu(const spx_combine *c, const spx_combine_options *o, const spx_layout *l,
                           const spx_master *bias, spx_master *out, spx_combine_amp *amp, spx_err *e)
{
    work w = {.c = c, .o = o, .l = l, .out = out};
    out->kind = o->kind;
    out->ny = l->ny;
    out->nx = l->nx;
    out->nexp = c->n;
    out->data = spx_alloc2(l->ny, l->nx, sizeof *out->data, e);
    out->ivar = spx_alloc2(l->ny, l->nx, sizeof *out->ivar, e);
    out->mask = spx_alloc2(l->ny, l->nx, sizeof *out->mask, e);
    out->count = spx_alloc2(l->ny, l->nx, sizeof *out->count, e);
    w.sum = spx_alloc(l->ny, sizeof *w.sum, e);
    w.chi2 = spx_alloc2(l->ny, l->nx, sizeof *w.chi2, e);
    spx_status st = out->data == NULL || out->ivar == NULL || out->mask == NULL || out->count == NULL ||
                            w.sum == NULL || w.chi2 == NULL
                        ? SPX_EIO
                        : SPX_OK;
    for (size_t k = 0; k < l->namp && st == SPX_OK; k++) {
        st = one_amplifier(&w, bias, k, &amp[k], e);
        spx_progress_step(o->progress, 1);
    }
    for (size_t i = 0; i < l->ny * l->nx && st == SPX_OK; i++)
        if (o->kind == SPX_MASTER_DARK && o->hot > 0 && out->data[i] > o->hot)
            out->mask[i] |= SPX_CCD_HOT;
    for (size_t i = 0; i < l->ny * l->nx && st == SPX_OK; i++)
        if (out->count[i] == 0) /* of pixels that no amplifier reads, too */
            out->mask[i] |= SPX_CCD_BAD;
    if (st == SPX_OK && o->kind == SPX_MASTER_FLAT)
        st = make_flat(&w, e);
    spx_free(w.sum);
    spx_free(w.chi2);
    return st;
}
