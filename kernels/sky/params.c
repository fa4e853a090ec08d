/* Scale, shift and width of fibres, and their empirical prior (sky/params.h).
 *
 * Sums run over bins in the order of the knots: bins between two knots have a block of slots, filled up with weight 0,
 * so that each element of the normal equations is a sum of whole vectors of LANES, the same on every processor. */
#include "sky/params.h"

#include <math.h>
#include <omp.h>
#include <string.h>

#include "base/mem.h"
#include "calib/bordered.h"
#include "calib/clones.h"
#include "calib/resolution.h"
#include "calib/series.h"
#include "num/stat.h"
#include "simd/vector.h"

enum { LANES = 8, AROUND = 25, MOST_DEGREE = 8, ROUNDS = 8 };

/* Bins in the order of the spline's intervals, `slots` for each; a fit without spline has one interval. */
typedef struct {
    spx_bspline spline;
    size_t ninterval, slots, size; /* size: of an array in this order */
    size_t *slot;                  /* [nwave] */
    double *b;                     /* [7][size]: functions of the spline, the last three 0 */
    double *legendre;              /* [most terms][size] */
} layout;

/* Memory of one thread. */
typedef struct {
    double *base;
    double *column;                                /* [K][size] */
    double *y, *w0, *w, *r, *product;              /* [size]; product: [4][slots] or [size] */
    double *d1, *d2;                               /* [nwave] */
    double *band, *border, *x, *corner, *z, *fill; /* of the bordered system */
} workspace;

static size_t most_terms(const spx_sky_terms *t)
{
    const size_t n = t->nt > t->nd ? t->nt : t->nd;
    return n > t->nk ? n : t->nk;
}

static void free_layout(layout *l)
{
    spx_free(l->slot);
    spx_free(l->b);
    spx_free(l->legendre);
}

static spx_status make_layout(const spx_sky_fit *f, layout *l, spx_err *e)
{
    const double last = f->first + (double)(f->nwave - 1) * f->step;
    const size_t nterm = most_terms(&f->terms);
    size_t most = 0;
    double b[4], p[SPX_SKY_MOST];
    *l = (layout){.spline = spx_bspline_of(f->first, last, f->knots)};
    l->ninterval = l->spline.n - 3;
    l->slot = spx_alloc(f->nwave, sizeof *l->slot, e);
    if (l->slot == NULL)
        return SPX_EIO;
    for (size_t k = 0, in = 0, before = 0; k < f->nwave; k++) {
        const size_t i = spx_bspline_at(&l->spline, f->first + (double)k * f->step, b);
        in = i == before && k > 0 ? in + 1 : 1;
        before = i;
        most = in > most ? in : most;
    }
    l->slots = (most + LANES - 1) / LANES * LANES;
    l->size = l->ninterval * l->slots;
    l->b = spx_alloc2(7, l->size, sizeof *l->b, e);
    l->legendre = spx_alloc2(nterm > 0 ? nterm : 1, l->size, sizeof *l->legendre, e);
    if (l->b == NULL || l->legendre == NULL)
        return SPX_EIO;
    for (size_t k = 0, in = 0, before = 0; k < f->nwave; k++) {
        const double at = f->first + (double)k * f->step;
        const size_t i = spx_bspline_at(&l->spline, at, b);
        in = i == before && k > 0 ? in + 1 : 0;
        before = i;
        l->slot[k] = i * l->slots + in;
        for (size_t a = 0; a < 4; a++)
            l->b[a * l->size + l->slot[k]] = b[a];
        spx_legendre(spx_legendre_place(f->first, last, at), nterm, p);
        for (size_t t = 0; t < nterm; t++)
            l->legendre[t * l->size + l->slot[k]] = p[t];
    }
    return SPX_OK;
}

static spx_status make_workspace(const spx_sky_fit *f, const layout *l, workspace *s, spx_err *e)
{
    const size_t nq = spx_sky_count(&f->terms), n = l->spline.n;
    const size_t size = l->size > 4 * l->slots ? l->size : 4 * l->slots;
    const size_t of_system = 4 * n + nq * n + n + nq * nq + nq + nq * n + nq * nq;
    double *at = s->base =
        spx_alloc_unset(1, nq * l->size + 4 * l->size + size + 2 * f->nwave + of_system, sizeof *s->base, e);
    if (at == NULL)
        return SPX_EIO;
    s->column = at;
    s->y = s->column + nq * l->size;
    s->w0 = s->y + l->size;
    s->w = s->w0 + l->size;
    s->r = s->w + l->size;
    s->product = s->r + l->size;
    s->d1 = s->product + size;
    s->d2 = s->d1 + f->nwave;
    s->band = s->d2 + f->nwave;
    s->border = s->band + 4 * n;
    s->x = s->border + nq * n;
    s->corner = s->x + n;
    s->z = s->corner + nq * nq;
    s->fill = s->z + nq;
    return SPX_OK;
}

/* ---- sums over slots; n is a multiple of LANES ---- */

SPX_CLONES
static void multiply(size_t n, const double *restrict a, const double *restrict b, double *restrict product)
{
#pragma omp simd
    for (size_t i = 0; i < n; i++)
        product[i] = a[i] * b[i];
}

typedef SPX_VECTOR(double, 8 * LANES) lanes;
typedef SPX_VECTOR_ANY(double, 8 * LANES) lanes_any;
typedef SPX_VECTOR(double, 32) four;

/* sum[c] = x . y_c, y_c = y + c stride, c < 4: x is read once, and lanes of all four are added together. */
SPX_CLONES
static void dots4(size_t n, const double *x, size_t stride, const double *y, double *sum)
{
    lanes s0 = {0}, s1 = {0}, s2 = {0}, s3 = {0};
    for (size_t i = 0; i < n; i += LANES) {
        const lanes v = *(const lanes_any *)(x + i);
        s0 += v * *(const lanes_any *)(y + i);
        s1 += v * *(const lanes_any *)(y + stride + i);
        s2 += v * *(const lanes_any *)(y + 2 * stride + i);
        s3 += v * *(const lanes_any *)(y + 3 * stride + i);
    }
#define HALVES(s)   (__builtin_shufflevector(s, s, 0, 1, 2, 3) + __builtin_shufflevector(s, s, 4, 5, 6, 7))
#define PAIRS(a, b) (__builtin_shufflevector(a, b, 0, 4, 2, 6) + __builtin_shufflevector(a, b, 1, 5, 3, 7))
    const four h0 = HALVES(s0), h1 = HALVES(s1), h2 = HALVES(s2), h3 = HALVES(s3);
    const four p = PAIRS(h0, h1), q = PAIRS(h2, h3);
#undef HALVES
#undef PAIRS
    const four all = __builtin_shufflevector(p, q, 0, 1, 4, 5) + __builtin_shufflevector(p, q, 2, 3, 6, 7);
    memcpy(sum, &all, sizeof all);
}

/* The same for any number. */
SPX_CLONES
static void dots(size_t n, const double *x, size_t count, size_t stride, const double *y, double *sum)
{
    for (size_t c = 0; c < count; c++) {
        const double *yc = y + c * stride;
        lanes s = {0};
        for (size_t i = 0; i < n; i += LANES)
            s += *(const lanes_any *)(x + i) * *(const lanes_any *)(yc + i);
        sum[c] = ((s[0] + s[4]) + (s[1] + s[5])) + ((s[2] + s[6]) + (s[3] + s[7]));
    }
}

/* ---- one fibre ---- */

/* Columns, data and weights of a fibre in the order of slots. */
static void fill_columns(const spx_sky_fit *f, const layout *l, const double *c, const double *scaled, const double *d,
                         const double *w, workspace *s)
{
    const size_t n = f->nwave, size = l->size, nt = f->terms.nt, nd = f->terms.nd, nk = f->terms.nk;
    memset(s->column, 0, (nt + nd + nk) * size * sizeof *s->column);
    memset(s->y, 0, size * sizeof *s->y);
    memset(s->w0, 0, size * sizeof *s->w0);
    spx_derivative_row(n, f->step, c, s->d1);
    spx_derivative_row(n, f->step, s->d1, s->d2);
    for (size_t k = SPX_SKY_EDGE; k + SPX_SKY_EDGE < n; k++) {
        const size_t at = l->slot[k];
        const double part = nt == 0 ? 0 : scaled != NULL ? scaled[k] : c[k];
        const double *p = l->legendre + at;
        if (!(w[k] > 0) || (f->skip != NULL && f->skip[k]))
            continue;
        s->w0[at] = w[k];
        s->y[at] = d[k] - (c[k] - part);
        for (size_t t = 0; t < nt; t++)
            s->column[t * size + at] = part * p[t * size];
        for (size_t t = 0; t < nd; t++)
            s->column[(nt + t) * size + at] = s->d1[k] * p[t * size];
        for (size_t t = 0; t < nk; t++)
            s->column[(nt + nd + t) * size + at] = 0.5 * s->d2[k] * p[t * size];
    }
}

/* Corner and its right-hand side, weights s->w. */
static void sum_corner(const layout *l, size_t nq, workspace *s)
{
    for (size_t q = 0; q < nq; q++) {
        multiply(l->size, s->w, s->column + q * l->size, s->product);
        dots(l->size, s->product, q + 1, l->size, s->column, s->corner + q * nq);
        dots(l->size, s->product, 1, 0, s->y, s->z + q);
    }
}

/* Spline and border. */
static void sum_spline(const layout *l, size_t nq, workspace *s)
{
    const size_t n = l->spline.n;
    double sum[4], most = 0;
    memset(s->band, 0, (4 * n + nq * n + n) * sizeof *s->band); /* and border and x, which lie behind */
    for (size_t i = 0; i < l->ninterval; i++) {
        const size_t at = i * l->slots;
        for (size_t a = 0; a < 4; a++)
            multiply(l->slots, s->w + at, l->b + a * l->size + at, s->product + a * l->slots);
        for (size_t a = 0; a < 4; a++) {
            /* behind the fourth function are zeros */
            dots4(l->slots, s->product + a * l->slots, l->size, l->b + a * l->size + at, sum);
            for (size_t b = 0; b < 4 - a; b++)
                s->band[b * n + i + a] += sum[b];
        }
        for (size_t q = 0; q < nq; q++) {
            dots4(l->slots, s->column + q * l->size + at, l->slots, s->product, sum);
            for (size_t a = 0; a < 4; a++)
                s->border[q * n + i + a] += sum[a];
        }
        dots4(l->slots, s->y + at, l->slots, s->product, sum);
        for (size_t a = 0; a < 4; a++)
            s->x[i + a] += sum[a];
    }
    /* functions without data: 0 */
    for (size_t j = 0; j < n; j++)
        most = s->band[j] > most ? s->band[j] : most;
    for (size_t j = 0; j < n; j++)
        s->band[j] += 1e-14 * most;
}

/* Residual in units of its error, of spline x and quantities p. */
SPX_CLONES
static void residuals(const layout *l, size_t nq, const double *p, const double *x, const workspace *s)
{
    for (size_t i = 0; i < l->ninterval; i++) {
        const size_t at = i * l->slots;
        double *restrict r = s->r + at;
        const double *b = l->b + at, *y = s->y + at, *w0 = s->w0 + at;
        for (size_t k = 0; k < l->slots; k++)
            r[k] = y[k] - x[i] * b[k] - x[i + 1] * b[l->size + k] - x[i + 2] * b[2 * l->size + k] -
                   x[i + 3] * b[3 * l->size + k];
        for (size_t q = 0; q < nq; q++) {
            const double *column = s->column + q * l->size + at, pq = p[q];
            for (size_t k = 0; k < l->slots; k++)
                r[k] -= pq * column[k];
        }
        for (size_t k = 0; k < l->slots; k++)
            r[k] *= sqrt(w0[k]);
    }
}

/* w = w0 / loc min(1, 3/|r|). The mean is over bins with a weight; `sum` and `count` of it move along with the bin. */
static void reweight(const spx_sky_fit *f, const layout *l, workspace *s)
{
    double sum = 0;
    size_t count = 0;
    double *square = s->d1; /* no longer needed */
    for (size_t k = 0; k < f->nwave; k++) {
        const double r = s->r[l->slot[k]];
        square[k] = s->w0[l->slot[k]] > 0 ? (r * r < 25 ? r * r : 25) : -1;
    }
    for (size_t k = 0; k < f->nwave + AROUND; k++) {
        if (k < f->nwave && square[k] >= 0) {
            sum += square[k];
            count++;
        }
        if (k > 2 * AROUND && square[k - 2 * AROUND - 1] >= 0) {
            sum -= square[k - 2 * AROUND - 1];
            count--;
        }
        if (k < AROUND)
            continue;
        const size_t at = l->slot[k - AROUND];
        const double mean = count > 0 ? sum / (double)count : 0, r = fabs(s->r[at]);
        s->w[at] = s->w0[at] / (mean > 1 ? mean : 1) * (r > 3 ? 3 / r : 1);
    }
}

static void measure_star(const spx_sky_fit *f, const layout *l, size_t nq, workspace *s, double *info, double *right)
{
    const size_t n = l->spline.n;
    double *schur = s->fill + nq * n;
    for (size_t round = 0;; round++) {
        sum_corner(l, nq, s);
        sum_spline(l, nq, s);
        spx_bordered_eliminate(n, 3, s->band, nq, s->border, s->corner, s->x, s->z, s->fill);
        memcpy(right, s->z, nq * sizeof *right);
        for (size_t q = 0; q < nq; q++)
            for (size_t r = 0; r <= q; r++)
                info[q * nq + r] = info[r * nq + q] = schur[q * nq + r];
        if (round >= f->rounds)
            break;
        /* with what is expected beside, so that there is a solution whatever the lines say */
        for (size_t q = 0; q < nq; q++) {
            const double error = spx_sky_expected_error(&f->terms, f->step, q);
            schur[q * nq + q] += 1 / (error * error);
            s->z[q] += spx_sky_expected(&f->terms, q) / (error * error);
        }
        if (spx_small_factor(nq, schur))
            spx_small_solve(nq, schur, s->z);
        else
            memset(s->z, 0, nq * sizeof *s->z);
        spx_bordered_return(n, nq, s->fill, s->z, s->x);
        residuals(l, nq, s->z, s->x, s);
        reweight(f, l, s);
    }
    /* a column that the spline holds already has no information of its own, but rounding */
    for (size_t q = 0; q < nq; q++) {
        if (info[q * nq + q] > 1e-10 * s->corner[q * nq + q])
            continue;
        for (size_t r = 0; r < nq; r++)
            info[q * nq + r] = info[r * nq + q] = 0;
        right[q] = 0;
    }
}

static void measure_fibre(const spx_sky_fit *f, const layout *l, const double *c, const double *scaled, const double *d,
                          const double *w, spx_sky_kind kind, workspace *s, double *info, double *right)
{
    const size_t nq = spx_sky_count(&f->terms);
    fill_columns(f, l, c, scaled, d, w, s);
    memcpy(s->w, s->w0, l->size * sizeof *s->w);
    if (kind == SPX_SKY_STAR) {
        measure_star(f, l, nq, s, info, right);
        return;
    }
    sum_corner(l, nq, s);
    memcpy(right, s->z, nq * sizeof *right);
    for (size_t q = 0; q < nq; q++)
        for (size_t r = 0; r <= q; r++)
            info[q * nq + r] = info[r * nq + q] = s->corner[q * nq + r];
}

spx_status spx_sky_measure(const spx_sky_fit *f, size_t nspec, const double *c, const double *scaled, const double *d,
                           const double *w, const uint8_t *kind, double *info, double *right, spx_err *e)
{
    const size_t n = f->nwave, nq = spx_sky_count(&f->terms);
    const int nthreads = f->nthreads > 0 ? f->nthreads : 1;
    layout l = {0};
    memset(info, 0, nspec * nq * nq * sizeof *info);
    memset(right, 0, nspec * nq * sizeof *right);
    if (nq == 0 || nspec == 0)
        return SPX_OK;
    if (nq > SPX_SKY_MOST)
        return spx_fail(e, SPX_EUSAGE, "%zu terms of scale, shift and width: not more than %d ({terms})", nq,
                        SPX_SKY_MOST);
    workspace *work = spx_alloc((size_t)nthreads, sizeof *work, e);
    spx_status st = work != NULL ? make_layout(f, &l, e) : SPX_EIO;
    for (int t = 0; t < nthreads && st == SPX_OK; t++)
        st = make_workspace(f, &l, &work[t], e);
    if (st == SPX_OK) {
#pragma omp parallel for schedule(dynamic, 4) num_threads(nthreads)
        for (size_t i = 0; i < nspec; i++)
            if (kind[i] != SPX_SKY_LEAVE)
                measure_fibre(f, &l, c + i * n, scaled != NULL ? scaled + i * n : NULL, d + i * n, w + i * n,
                              (spx_sky_kind)kind[i], &work[omp_get_thread_num()], info + i * nq * nq, right + i * nq);
    }
    for (int t = 0; t < nthreads && work != NULL; t++)
        spx_free(work[t].base);
    spx_free(work);
    free_layout(&l);
    return st;
}

/* ---- estimates and their prior ---- */

double spx_sky_expected(const spx_sky_terms *t, size_t q)
{
    return q == 0 && t->nt > 0 ? 1 : 0;
}

double spx_sky_expected_error(const spx_sky_terms *t, double step, size_t q)
{
    if (q < t->nt)
        return q == 0 ? 1 : 0.3;
    return q < t->nt + t->nd ? 0.5 * step : 0.5 * step * step;
}

int spx_sky_estimate(size_t nq, const double *info, const double *right, double *p, double *cov)
{
    double factor[SPX_SKY_MOST * SPX_SKY_MOST], scale[SPX_SKY_MOST];
    int good = nq > 0;
    /* scaled to a unit diagonal: quantities have different units */
    for (size_t q = 0; q < nq; q++) {
        good = good && info[q * nq + q] > 0 && info[q * nq + q] < INFINITY;
        scale[q] = good ? 1 / sqrt(info[q * nq + q]) : 0;
    }
    for (size_t q = 0; q < nq && good; q++)
        for (size_t r = 0; r <= q; r++)
            factor[q * nq + r] = info[q * nq + r] * scale[q] * scale[r];
    good = good && spx_small_factor(nq, factor);
    for (size_t q = 0; q < nq; q++)
        p[q] = good ? right[q] * scale[q] : 0;
    if (good) {
        spx_small_solve(nq, factor, p);
        spx_small_inverse(nq, factor, cov);
    }
    for (size_t q = 0; q < nq; q++) {
        p[q] *= scale[q];
        for (size_t r = 0; r < nq; r++)
            cov[q * nq + r] = good ? cov[q * nq + r] * scale[q] * scale[r] : 0;
    }
    return good;
}

void spx_sky_physical(const spx_sky_terms *t, size_t nspec, const double *scale, double *info, double *right)
{
    const size_t nq = spx_sky_count(t);
    for (size_t i = 0; i < nspec; i++)
        for (size_t q = 0; q < nq; q++) {
            const double at_q = q < t->nt ? 1 : scale[i];
            right[i * nq + q] *= at_q;
            for (size_t r = 0; r < nq; r++)
                info[(i * nq + q) * nq + r] *= at_q * (r < t->nt ? 1 : scale[i]);
        }
}

/* Polynomial a[degree + 1] of the n values, weights in w; cov[degree + 1][degree + 1]. */
static void fit_polynomial(size_t n, const double *basis, size_t nterm, const double *value, const double *w,
                           double expected, double error, double *a, double *cov)
{
    double g[(MOST_DEGREE + 1) * (MOST_DEGREE + 1)] = {0};
    memset(a, 0, nterm * sizeof *a);
    for (size_t i = 0; i < n; i++)
        for (size_t s = 0; s < nterm; s++) {
            const double x = w[i] * basis[i * (MOST_DEGREE + 1) + s];
            a[s] += x * value[i];
            for (size_t t = 0; t <= s; t++)
                g[s * nterm + t] += x * basis[i * (MOST_DEGREE + 1) + t];
        }
    for (size_t s = 0; s < nterm; s++) {
        g[s * nterm + s] += 1 / (error * error);
        a[s] += s == 0 ? expected / (error * error) : 0;
    }
    (void)spx_small_factor(nterm, g); /* positive definite by the prior */
    spx_small_solve(nterm, g, a);
    spx_small_inverse(nterm, g, cov);
}

static double polynomial(size_t nterm, const double *basis, const double *a)
{
    double sum = 0;
    for (size_t s = 0; s < nterm; s++)
        sum += a[s] * basis[s];
    return sum;
}

/* Values of the fibres that a prior is found of, and what belongs to each. */
typedef struct {
    size_t n;
    double *value, *variance, *basis, *w, *sort;
    double expected, error; /* of a coefficient before anything is known */
} sample;

/* Square of the median deviation from the median, as that of a normal distribution. */
static double robust_variance(sample *s)
{
    memcpy(s->sort, s->value, s->n * sizeof *s->sort);
    const double median = spx_median(s->sort, s->n);
    for (size_t i = 0; i < s->n; i++)
        s->sort[i] = fabs(s->value[i] - median);
    const double sigma = 1.4826 * spx_median(s->sort, s->n);
    return sigma * sigma;
}

/* Rounds of the moments. Returns the number of terms; *used: fibres that were not left out. */
static size_t find_moments(sample *s, size_t degree, double *a, double *cov, double *tau2, size_t *used)
{
    size_t nterm = (s->n > 0 ? (s->n - 1) / 5 : 0) + 1;
    const double most = s->error * s->error;
    nterm = nterm > degree + 1 ? degree + 1 : nterm;
    *tau2 = s->n > 1 ? robust_variance(s) : 0;
    *tau2 = *tau2 < most ? *tau2 : most;
    for (size_t i = 0; i < s->n; i++)
        s->w[i] = 1 / (s->variance[i] + *tau2);
    fit_polynomial(s->n, s->basis, nterm, s->value, s->w, s->expected, s->error, a, cov);
    *used = s->n;
    for (size_t round = 0; round < ROUNDS && s->n > 0; round++) {
        size_t in = 0;
        double sum = 0, weight = 0;
        for (size_t i = 0; i < s->n; i++) {
            const double v = s->variance[i] + *tau2;
            const double r = s->value[i] - polynomial(nterm, s->basis + i * (MOST_DEGREE + 1), a);
            s->w[i] = r * r <= 16 * v ? 1 / v : 0;
            in += s->w[i] > 0;
        }
        if (in == 0) /* two fibres that contradict each other: the scatter is theirs */
            break;
        fit_polynomial(s->n, s->basis, nterm, s->value, s->w, s->expected, s->error, a, cov);
        for (size_t i = 0; i < s->n; i++) {
            const double r = s->value[i] - polynomial(nterm, s->basis + i * (MOST_DEGREE + 1), a);
            const double free = in > nterm ? (double)in / (double)(in - nterm) : 1;
            sum += s->w[i] * (r * r * free - s->variance[i]);
            weight += s->w[i];
        }
        *tau2 = sum / weight;
        *tau2 = *tau2 < 0 ? 0 : *tau2 > most ? most : *tau2;
        *used = in;
    }
    return nterm;
}

spx_status spx_sky_prior_find(const spx_sky_terms *t, double step, size_t degree, size_t nspec, const double *place,
                              const double *info, const double *right, const uint8_t *use, spx_sky_prior *prior,
                              spx_err *e)
{
    const size_t nq = spx_sky_count(t), width = MOST_DEGREE + 1;
    double a[MOST_DEGREE + 1], ca[(MOST_DEGREE + 1) * (MOST_DEGREE + 1)];
    sample s = {0};
    degree = degree > MOST_DEGREE ? MOST_DEGREE : degree;
    *prior = (spx_sky_prior){.nspec = nspec, .nq = nq};
    prior->mean = spx_alloc2(nspec, nq, sizeof(double), e);
    prior->variance = spx_alloc2(nspec, nq, sizeof(double), e);
    double *p = spx_alloc2(nspec, nq, sizeof *p, e), *cov = spx_alloc2(nspec, nq * nq, sizeof *cov, e);
    uint8_t *good = spx_alloc(nspec, sizeof *good, e);
    double *values = spx_alloc2(nspec, 4 + 2 * width, sizeof *values, e);
    const int failed =
        prior->mean == NULL || prior->variance == NULL || p == NULL || cov == NULL || good == NULL || values == NULL;
    for (size_t i = 0; i < nspec && !failed; i++)
        good[i] = (use == NULL || use[i]) &&
                  spx_sky_estimate(nq, info + i * nq * nq, right + i * nq, p + i * nq, cov + i * nq * nq);
    double *basis = failed ? NULL : values + nspec * (4 + width); /* of all fibres; that of the sample lies before */
    for (size_t i = 0; i < nspec && !failed; i++)
        spx_legendre(place[i], width, basis + i * width);
    for (size_t q = 0; q < nq && !failed; q++) {
        double tau2;
        s = (sample){.value = values,
                     .variance = values + nspec,
                     .w = values + 2 * nspec,
                     .sort = values + 3 * nspec,
                     .basis = values + 4 * nspec,
                     .expected = spx_sky_expected(t, q),
                     .error = spx_sky_expected_error(t, step, q)};
        for (size_t i = 0; i < nspec; i++) {
            if (!good[i])
                continue;
            s.value[s.n] = p[i * nq + q];
            s.variance[s.n] = cov[(i * nq + q) * nq + q];
            memcpy(s.basis + s.n * width, basis + i * width, width * sizeof *basis);
            s.n++;
        }
        const size_t nterm = find_moments(&s, q < t->nt ? 0 : degree, a, ca, &tau2, &prior->used[q]);
        prior->tau[q] = sqrt(tau2);
        prior->degree[q] = nterm - 1;
        for (size_t i = 0; i < nspec; i++) {
            double error2 = 0;
            const double *at = basis + i * width;
            for (size_t u = 0; u < nterm; u++)
                for (size_t v = 0; v < nterm; v++)
                    error2 += at[u] * ca[u * nterm + v] * at[v];
            prior->mean[i * nq + q] = polynomial(nterm, at, a);
            prior->variance[i * nq + q] = tau2 + error2;
        }
    }
    spx_free(p);
    spx_free(cov);
    spx_free(good);
    spx_free(values);
    if (failed)
        spx_sky_prior_free(prior);
    return failed ? SPX_EIO : SPX_OK;
}

void spx_sky_prior_free(spx_sky_prior *prior)
{
    spx_free(prior->mean);
    spx_free(prior->variance);
    *prior = (spx_sky_prior){0};
}

void spx_sky_posterior(const spx_sky_prior *prior, const double *info, const double *right, double *p, double *cov)
{
    const size_t nq = prior->nq;
    double a[SPX_SKY_MOST * SPX_SKY_MOST], b[SPX_SKY_MOST];
    for (size_t i = 0; i < prior->nspec; i++) {
        int informed = 0;
        memcpy(a, info + i * nq * nq, nq * nq * sizeof *a);
        for (size_t q = 0; q < nq; q++) {
            const double w = 1 / prior->variance[i * nq + q];
            informed |= a[q * nq + q] != 0;
            a[q * nq + q] += w;
            b[q] = right[i * nq + q] + w * prior->mean[i * nq + q];
        }
        if (informed && spx_sky_estimate(nq, a, b, p + i * nq, cov + i * nq * nq))
            continue;
        for (size_t q = 0; q < nq; q++) { /* nothing measured, or not finite */
            p[i * nq + q] = prior->mean[i * nq + q];
            for (size_t r = 0; r < nq; r++)
                cov[(i * nq + q) * nq + r] = q == r ? prior->variance[i * nq + q] : 0;
        }
    }
}

size_t spx_sky_gauge(const spx_sky_terms *t, size_t nspec, const uint8_t *use, double *p, double *cov, double *change)
{
    const size_t nq = spx_sky_count(t);
    size_t n = 0;
    for (size_t q = 0; q < nq; q++)
        change[q] = 0;
    for (size_t i = 0; i < nspec; i++) {
        if (use != NULL && !use[i])
            continue;
        n++;
        for (size_t q = 0; q < nq; q++)
            change[q] += p[i * nq + q];
    }
    for (size_t q = 0; q < nq; q++)
        change[q] = n > 0 ? change[q] / (double)n : q == 0 && t->nt > 0 ? 1 : 0;
    const double scale = t->nt > 0 && change[0] > 0 ? change[0] : 1;
    for (size_t i = 0; i < nspec; i++)
        for (size_t q = 0; q < nq; q++) {
            const int scaled = q < t->nt;
            const double shift = q == 0 && t->nt > 0 ? 0 : change[q];
            p[i * nq + q] = (p[i * nq + q] - shift) / (scaled ? scale : 1);
            for (size_t r = 0; r < nq; r++)
                cov[(i * nq + q) * nq + r] /= (scaled ? scale : 1) * (r < t->nt ? scale : 1);
        }
    return n;
}
