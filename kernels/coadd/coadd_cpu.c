/* Coadds on the CPU (coadd/coadd.h): targets one by one up to N and x, then the roots of those of a group side by side.
 */
#include <omp.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/order.h"
#include "calib/band.h"
#include "calib/resolution.h"
#include "coadd/coadd_lanes.h"
#include "coadd/coadd_math.h"
#include "num/stat.h"

const spx_coadd_kernels *spx_coadd_forced;

static const spx_coadd_kernels *choose(void)
{
    const spx_coadd_kernels *k = spx_coadd_forced != NULL ? spx_coadd_forced : spx_coadd_kernels_avx512();
    k = k != NULL ? k : spx_coadd_kernels_avx2();
    return k != NULL ? k : spx_coadd_kernels_base();
}

/* A call. m: half-bandwidth of N; h: that of R as it is coadded; band: of N in the roots, the larger of both. */
typedef struct {
    const spx_coadd_input *in;
    const spx_coadd_options *o;
    spx_coadd *out;
    const spx_coadd_kernels *lanes;
    size_t n, ndiag, m, h, band, most; /* most: exposures of a target */
} job;

/* Memory of a thread: of the target that is worked on, and of the roots of a group. */
typedef struct {
    double *w, *d, *model; /* [most][n], with the scales in w and d */
    uint8_t *rejected;     /* [most][n] */
    double *scale;         /* [most] */
    size_t *most;          /* [most] bins of an exposure that may still be rejected */
    double *sum;           /* [n] W */
    double *a, *l;         /* [m + 1][n] N by diagonals, and its factor */
    double *x;             /* [n] */
    uint8_t *dead;         /* [n] 1: N has no information on the bin */
    double *far;           /* [n] worst residual of a bin, in units of its error, */
    uint32_t *worst;       /* and the exposure that it is of */
    double *line;          /* [2 n] scratch, or [most] */
    double *roots;         /* of the lanes */
    uint8_t *deads;        /* [lane][n] */
} space;

static const double *resolution_of(const job *j, size_t i)
{
    return j->in->resolution + i * j->ndiag * j->n;
}

/* ---- weights, N and x ---- */

/* Weights of exposure i, and its fluxes but for light from beyond the arm's ends, with its scale. */
static void take_exposure(const job *j, size_t i, double scale, const uint8_t *rejected, double *w, double *d)
{
    const size_t n = j->n;
    const double *flux = j->in->flux + i * n, *ivar = j->in->ivar + i * n;
    const double *r = j->in->resolution != NULL ? resolution_of(j, i) : NULL;
    const uint32_t *mask = j->in->mask != NULL ? j->in->mask + i * n : NULL;
    for (size_t k = 0; k < n; k++) {
        const double weight = spx_coadd_weight(flux[k], ivar[k], mask != NULL ? mask[k] : 0);
        w[k] = rejected[k] ? 0 : weight * scale * scale;
        d[k] = weight > 0 ? flux[k] / scale * spx_coadd_inside(n, j->ndiag, r, k) : 0;
    }
}

static void take_target(const job *j, size_t first, size_t nexp, space *s)
{
    const size_t n = j->n;
    memset(s->sum, 0, n * sizeof *s->sum);
    for (size_t i = 0; i < nexp; i++) {
        take_exposure(j, first + i, s->scale[i], s->rejected + i * n, s->w + i * n, s->d + i * n);
        for (size_t k = 0; k < n; k++)
            s->sum[k] += s->w[i * n + k];
    }
}

/* N, regularised, y, x = N^-1 y, and R_i x. Rows of N without information are those of unity, and x is 0 there. */
static void solve(const job *j, size_t first, size_t nexp, space *s)
{
    const size_t n = j->n, m = j->m;
    if (j->in->resolution != NULL) {
        spx_resolution_normal(nexp, n, j->ndiag, resolution_of(j, first), s->w, s->d, NULL, 1, s->a, s->x);
    } else {
        memcpy(s->a, s->sum, n * sizeof *s->a);
        memset(s->x, 0, n * sizeof *s->x);
        for (size_t i = 0; i < nexp; i++)
            for (size_t k = 0; k < n; k++)
                s->x[k] += s->w[i * n + k] * s->d[i * n + k];
    }
    size_t some = 0;
    for (size_t k = 0; k < n; k++)
        if (s->a[k] > 0)
            s->line[some++] = s->a[k];
    const double median = some > 0 ? spx_median(s->line, some) : 1;
    for (size_t k = 0; k < n; k++) {
        s->dead[k] = !(s->a[k] > SPX_COADD_NOTHING * median);
        if (!s->dead[k]) {
            s->a[k] += SPX_COADD_RIDGE * s->a[k] + SPX_COADD_PRIOR * median;
            continue;
        }
        s->a[k] = median;
        s->x[k] = 0;
        for (size_t d = 1; d <= m; d++) {
            s->a[d * n + k] = 0;
            if (k >= d)
                s->a[d * n + k - d] = 0;
        }
    }
    (void)spx_band_factor_host(n, (int)m, s->a, 1e-13, s->l);
    spx_band_solve_host(n, (int)m, s->l, s->x);
    for (size_t i = 0; i < nexp; i++) {
        if (j->in->resolution != NULL)
            spx_resolution_apply(n, j->ndiag, resolution_of(j, first + i), s->x, s->model + i * n);
        else
            memcpy(s->model + i * n, s->x, n * sizeof *s->x);
    }
}

/* Better scales from R x; returns the largest change. */
static double improve_scales(const job *j, size_t nexp, space *s)
{
    double *scale = s->scale;
    const size_t n = j->n;
    double mean = 0, all = 0, change = 0;
    for (size_t i = 0; i < nexp; i++) {
        const double *w = s->w + i * n, *d = s->d + i * n, *model = s->model + i * n;
        double dm = 0, mm = 0, good = 0;
        for (size_t k = 0; k < n; k++) {
            const double robust = spx_coadd_robust(w[k], d[k] - model[k]);
            dm += robust * d[k] * model[k];
            mm += robust * model[k] * model[k];
            good += w[k] > 0;
        }
        /* of fluxes and weights without the scale that they have now */
        const double a = spx_coadd_scale(dm / scale[i], mm / (scale[i] * scale[i]), good);
        s->line[i] = a;
        mean += mm / (scale[i] * scale[i]) * a;
        all += mm / (scale[i] * scale[i]);
    }
    mean = all > 0 ? mean / all : 1;
    for (size_t i = 0; i < nexp; i++) {
        const double a = s->line[i] / mean;
        change = fmax(change, fabs(a / scale[i] - 1));
        scale[i] = a;
    }
    return change;
}

/* ---- rejection ---- */

/* Residuals of all bins in units of their errors, and the exposure that is furthest off. */
static void residuals(const job *j, size_t nexp, space *s)
{
    const size_t n = j->n;
    memset(s->far, 0, n * sizeof *s->far);
    memset(s->worst, 0, n * sizeof *s->worst);
    for (size_t i = 0; i < nexp; i++)
        for (size_t k = 0; k < n; k++) {
            const double z = spx_coadd_residual(s->w[i * n + k], s->sum[k], s->d[i * n + k], s->model[i * n + k]);
            if (i == 0 || spx_coadd_worse(z, s->far[k])) {
                s->far[k] = z;
                s->worst[k] = (uint32_t)i;
            }
        }
}

static int falling(const void *a, const void *b)
{
    return spx_by_f64(b, a);
}

/* Rejects bins; most[i]: how many more of an exposure may go. Returns how many there were. */
static size_t reject(const job *j, size_t nexp, space *s)
{
    size_t *most = s->most;
    const size_t n = j->n;
    size_t total = 0;
    residuals(j, nexp, s);
    for (size_t i = 0; i < nexp; i++) {
        size_t count = 0;
        for (size_t k = 0; k < n; k++)
            if (s->worst[k] == i && fabs(s->far[k]) > j->o->reject && spx_coadd_stands_out(n, s->far, k))
                s->line[count++] = fabs(s->far[k]);
        double limit = j->o->reject;
        if (count > most[i]) { /* the furthest ones: those beyond the first that may not go */
            qsort(s->line, count, sizeof *s->line, falling);
            limit = s->line[most[i]];
        }
        for (size_t k = 0; k < n && count > 0; k++)
            if (s->worst[k] == i && fabs(s->far[k]) > limit && spx_coadd_stands_out(n, s->far, k) && most[i] > 0) {
                s->rejected[i * n + k] = 1;
                most[i]--;
                total++;
            }
    }
    return total;
}

/* ---- a target ---- */

/* Relative spread of the widths of the exposures' rows, rms, mean over the bins of several exposures. */
static double spread(const job *j, size_t first, size_t nexp, space *s)
{
    const size_t n = j->n;
    double *width = s->line, *square = s->line + n, *mean = s->x, *rms = s->far, total = 0;
    size_t rows = 0;
    if (j->in->resolution == NULL)
        return 0;
    memset(mean, 0, n * sizeof *mean);
    memset(rms, 0, n * sizeof *rms);
    for (size_t i = 0; i < nexp; i++) {
        const double *w = s->w + i * n;
        spx_resolution_widths(n, j->ndiag, resolution_of(j, first + i), square, width);
        for (size_t k = 0; k < n; k++) {
            mean[k] += w[k] * width[k];
            rms[k] += w[k] * width[k] * width[k];
        }
    }
    for (size_t k = 0; k < n; k++) {
        if (!(s->sum[k] > 0 && mean[k] > 0))
            continue;
        const double at = mean[k] / s->sum[k], v = rms[k] / s->sum[k] - at * at;
        total += v > 0 ? sqrt(v) / at : 0;
        rows++;
    }
    return rows > 0 ? total / (double)rows : 0;
}

/* Row by row: flux, ivar, and R by columns. Bins without information have the mean of the exposures' rows, so that R
 * stays a resolution matrix. */
static void simple(const job *j, size_t t, size_t first, size_t nexp, const space *s)
{
    const size_t n = j->n, ndiag_out = j->out->ndiag;
    double *flux = j->out->flux + t * n, *ivar = j->out->ivar + t * n;
    for (size_t k = 0; k < n; k++) {
        double sum = 0, one = 0;
        size_t count = 0;
        for (size_t i = 0; i < nexp; i++)
            if (s->w[i * n + k] > 0) {
                one = j->in->flux[(first + i) * n + k] / s->scale[i];
                sum += s->w[i * n + k] * one;
                count++;
            }
        flux[k] = count == 0 ? 0 : count == 1 ? one : sum / s->sum[k];
        ivar[k] = s->sum[k];
    }
    if (j->out->resolution == NULL)
        return;
    double *res = j->out->resolution + t * ndiag_out * n;
    memset(res, 0, ndiag_out * n * sizeof *res);
    for (size_t b = 0; b < j->ndiag; b++) {
        double *to = res + (b + ndiag_out / 2 - j->ndiag / 2) * n;
        const long off = (long)(j->ndiag / 2) - (long)b;
        for (size_t c = off > 0 ? (size_t)off : 0; c < n && (long)c - off < (long)n; c++) {
            const size_t k = (size_t)((long)c - off);
            double sum = 0, plain = 0, one = 0;
            size_t count = 0;
            for (size_t i = 0; i < nexp; i++) {
                const double v = resolution_of(j, first + i)[b * n + c], w = s->w[i * n + k];
                plain += v;
                if (w > 0) {
                    sum += w * v;
                    one = v;
                    count++;
                }
            }
            to[c] = count == 0 ? plain / (double)nexp : count == 1 ? one : sum / s->sum[k];
        }
    }
}

/* Bits of bins that no exposure has information on. */
static void masks(const job *j, size_t t, size_t first, size_t nexp, const space *s)
{
    const size_t n = j->n;
    uint32_t *mask = j->out->mask + t * n;
    for (size_t k = 0; k < n; k++) {
        mask[k] = 0;
        if (s->sum[k] > 0)
            continue;
        for (size_t i = 0; i < nexp; i++) {
            mask[k] |= j->in->mask != NULL ? j->in->mask[(first + i) * n + k] : 0;
            mask[k] |= s->rejected[i * n + k] ? (uint32_t)SPX_COADD_REJECTED : 0;
        }
        mask[k] = mask[k] != 0 ? mask[k] : (uint32_t)SPX_COADD_NODATA;
    }
}

/* chi^2 of each exposure over its degrees of freedom, and what is left of it. */
static void judge(const job *j, size_t first, size_t nexp, const space *s)
{
    const size_t n = j->n;
    for (size_t i = 0; i < nexp; i++) {
        double chi2 = 0, dof = 0;
        uint32_t good = 0, gone = 0;
        for (size_t k = 0; k < n; k++) {
            const double w = s->w[i * n + k], r = s->d[i * n + k] - s->model[i * n + k];
            gone += s->rejected[i * n + k];
            if (!(w > 0))
                continue;
            good++;
            if (w < (1 - 1e-9) * s->sum[k]) {
                chi2 += w * r * r;
                dof += 1 - w / s->sum[k];
            }
        }
        j->out->scale[first + i] = s->scale[i];
        j->out->good[first + i] = good;
        j->out->rejected[first + i] = gone;
        j->out->chi2[first + i] = dof >= 1 ? chi2 / dof : 0;
    }
}

/* A target but for its root: 1 when it is to be coadded optimally, by N and x in s. */
static int coadd_target(const job *j, size_t t, space *s)
{
    const size_t n = j->n, first = j->in->first[t], nexp = j->in->first[t + 1] - first;
    if (nexp == 1) {
        spx_coadd_copy(j->in, t, j->out);
        return 0;
    }
    memset(s->rejected, 0, nexp * n);
    size_t with = 0;
    for (size_t i = 0; i < nexp; i++)
        s->scale[i] = 1;
    take_target(j, first, nexp, s);
    for (size_t i = 0; i < nexp; i++) {
        s->most[i] = 0;
        for (size_t k = 0; k < n; k++)
            s->most[i] += s->w[i * n + k] > 0;
        with += s->most[i] > 0;
        s->most[i] /= 10;
    }
    j->out->spread[t] = with > 1 ? spread(j, first, nexp, s) : 0;
    for (int round = 0; with > 1; round++) {
        solve(j, first, nexp, s);
        for (int again = 0; j->o->scale && again < SPX_COADD_SCALINGS; again++) {
            if (improve_scales(j, nexp, s) < SPX_COADD_SETTLED)
                break;
            take_target(j, first, nexp, s);
            solve(j, first, nexp, s);
        }
        if (round == SPX_COADD_ROUNDS || !(j->o->reject > 0) || reject(j, nexp, s) == 0)
            break;
        take_target(j, first, nexp, s);
    }
    if (with <= 1)
        for (size_t i = 0; i < nexp; i++) /* nothing to compare with */
            memcpy(s->model + i * n, s->d + i * n, n * sizeof *s->d);
    judge(j, first, nexp, s);
    masks(j, t, first, nexp, s);
    const int optimal =
        with > 1 && j->ndiag > 1 &&
        (j->o->method == SPX_COADD_OPTIMAL || (j->o->method == SPX_COADD_AUTO && j->out->spread[t] > SPX_COADD_SPREAD));
    simple(j, t, first, nexp, s);
    return optimal;
}

/* ---- roots, and all targets ---- */

/* Puts N and x of a target into lane `lane` of the roots. */
static void to_lane(const job *j, size_t lane, const space *s)
{
    double *a, *x;
    const size_t n = j->n, m = j->band, vl = j->lanes->lanes;
    j->lanes->place(n, m, j->h, s->roots, &a, &x);
    for (size_t d = 0; d <= m; d++)
        for (size_t k = 0; k < n; k++)
            a[(k * (m + 1) + d) * vl + lane] = d <= j->m && k + d < n ? s->a[d * n + k] : 0;
    for (size_t k = 0; k < n; k++)
        x[k * vl + lane] = s->x[k];
}

/* A lane that has no target: N is unity. */
static void empty_lane(const job *j, size_t lane, const space *s)
{
    double *a, *x;
    const size_t n = j->n, m = j->band, vl = j->lanes->lanes;
    j->lanes->place(n, m, j->h, s->roots, &a, &x);
    for (size_t k = 0; k < n; k++) {
        for (size_t d = 0; d <= m; d++)
            a[(k * (m + 1) + d) * vl + lane] = d == 0;
        x[k * vl + lane] = 0;
    }
}

/* flux, ivar and R of a target from its lane, but for bins without information; 0 when a value is not finite: nothing
 * is written then. */
static int from_lane(const job *j, size_t t, size_t lane, const uint8_t *dead, const spx_coadd_root *q, double *line)
{
    const size_t n = j->n, h = j->h, vl = j->lanes->lanes, ndiag = j->out->ndiag;
    double *flux = j->out->flux + t * n, *ivar = j->out->ivar + t * n, *res = j->out->resolution + t * ndiag * n;
    for (size_t k = 0; k < n; k++) {
        const double s = q->sum1[k * vl + lane], v = q->sumx[k * vl + lane];
        if (!dead[k] && !(s != 0 && fabs(v / s) < INFINITY && s * s < INFINITY))
            return 0;
        for (size_t d = 0; d <= h && !dead[k]; d++)
            if (!(fabs(q->root[(k * (h + 1) + d) * vl + lane] / s) < INFINITY))
                return 0;
    }
    for (size_t k = 0; k < n; k++) {
        const double s = q->sum1[k * vl + lane];
        flux[k] = dead[k] ? 0 : q->sumx[k * vl + lane] / s;
        ivar[k] = dead[k] ? 0 : s * s;
        if (dead[k] && j->out->mask[t * n + k] == 0)
            j->out->mask[t * n + k] = (uint32_t)SPX_COADD_NODATA;
    }
    double *norm = line; /* sums of the rows that are kept: s but for the diagonals further out */
    memset(norm, 0, n * sizeof *norm);
    for (int pass = 0; pass < 2; pass++)
        for (size_t b = 0; b < ndiag; b++) {
            const long off = (long)h - (long)b; /* row = column - off */
            for (size_t c = off > 0 ? (size_t)off : 0; c < n && (long)c - off < (long)n; c++) {
                const size_t k = (size_t)((long)c - off), low = c < k ? c : k, d = (size_t)labs(off);
                const double value = q->root[(low * (h + 1) + d) * vl + lane] + (d == 0 ? q->total[lane] : 0);
                if (pass == 0)
                    norm[k] += value;
                else if (!dead[k])
                    res[b * n + c] = value / spx_coadd_norm(norm[k], q->sum1[k * vl + lane]);
            }
        }
    return 1;
}

/* Targets t0 ... of a group, which may be fewer than lanes. Returns how many had no root. */
static size_t coadd_group(const job *j, size_t t0, space *s)
{
    const size_t vl = j->lanes->lanes, n = j->n;
    const size_t end = t0 + SPX_COADD_LANES < j->in->ntarget ? t0 + SPX_COADD_LANES : j->in->ntarget;
    size_t target[SPX_COADD_LANES], used = 0, failed = 0;
    for (size_t t = t0; t < end; t++) {
        if (coadd_target(j, t, s)) {
            to_lane(j, used, s);
            memcpy(s->deads + used * n, s->dead, n);
            target[used++] = t;
        }
        if (used > 0 && (used == vl || t + 1 == end)) {
            spx_coadd_root q;
            for (size_t lane = used; lane < vl; lane++)
                empty_lane(j, lane, s);
            j->lanes->root(n, j->band, j->h, s->roots, &q);
            for (size_t lane = 0; lane < used; lane++) {
                const size_t to = target[lane];
                const int good = !q.bad[lane] && from_lane(j, to, lane, s->deads + lane * n, &q, s->line);
                j->out->optimal[to] = (uint8_t)good;
                failed += !good;
            }
            used = 0;
        }
        spx_progress_step(j->o->progress, 1);
    }
    return failed;
}

static void space_free(space *s)
{
    spx_free(s->w);
    spx_free(s->d);
    spx_free(s->model);
    spx_free(s->rejected);
    spx_free(s->sum);
    spx_free(s->a);
    spx_free(s->l);
    spx_free(s->x);
    spx_free(s->far);
    spx_free(s->worst);
    spx_free(s->dead);
    spx_free(s->deads);
    spx_free(s->line);
    spx_free(s->roots);
    spx_free(s->scale);
    spx_free(s->most);
}

static spx_status space_new(const job *j, space *s, spx_err *e)
{
    const size_t n = j->n, lines = 2 * n > j->most ? 2 * n : j->most;
    size_t roots = 0, matrix = 0;
    spx_status st = spx_mul(n, j->m + 1, &matrix, e);
    if (st == SPX_OK && j->ndiag > 1 && j->o->method != SPX_COADD_SIMPLE)
        roots = j->lanes->memory(n, j->band, j->h);
    if (st == SPX_OK &&
        ((s->w = spx_alloc2(j->most, n, sizeof *s->w, e)) == NULL ||
         (s->d = spx_alloc2(j->most, n, sizeof *s->d, e)) == NULL ||
         (s->model = spx_alloc2(j->most, n, sizeof *s->model, e)) == NULL ||
         (s->rejected = spx_alloc2(j->most, n, 1, e)) == NULL || (s->sum = spx_alloc(n, sizeof *s->sum, e)) == NULL ||
         (s->a = spx_alloc(matrix, sizeof *s->a, e)) == NULL || (s->l = spx_alloc(matrix, sizeof *s->l, e)) == NULL ||
         (s->x = spx_alloc(n, sizeof *s->x, e)) == NULL || (s->far = spx_alloc(n, sizeof *s->far, e)) == NULL ||
         (s->worst = spx_alloc(n, sizeof *s->worst, e)) == NULL || (s->dead = spx_alloc(n, 1, e)) == NULL ||
         (s->deads = spx_alloc2(n, SPX_COADD_LANES, 1, e)) == NULL ||
         (s->line = spx_alloc(lines, sizeof *s->line, e)) == NULL ||
         (s->roots = spx_alloc(roots, sizeof *s->roots, e)) == NULL ||
         (s->scale = spx_alloc(j->most, sizeof *s->scale, e)) == NULL ||
         (s->most = spx_alloc(j->most, sizeof *s->most, e)) == NULL))
        st = SPX_EIO;
    return st;
}

spx_status spx_coadd_cpu(const spx_coadd_input *in, const spx_coadd_options *o, spx_coadd *out, spx_err *e)
{
    spx_status st = spx_coadd_begin(in, o, out, e);
    job j = {.in = in, .o = o, .out = out, .lanes = choose(), .n = in->nwave};
    j.ndiag = in->ndiag > 0 ? in->ndiag : 1;
    j.m = j.ndiag - 1;
    j.h = o->ndiag_out / 2;
    j.band = j.m > j.h ? j.m : j.h;
    for (size_t t = 0; t < in->ntarget; t++) {
        const size_t nexp = in->first[t + 1] - in->first[t];
        j.most = nexp > j.most ? nexp : j.most;
    }
    const size_t ngroup = (in->ntarget + SPX_COADD_LANES - 1) / SPX_COADD_LANES;
    size_t nthreads = o->nthreads > 1 ? (size_t)o->nthreads : 1, failed = 0;
    nthreads = nthreads > ngroup ? ngroup > 0 ? ngroup : 1 : nthreads;
    space *s = st == SPX_OK ? spx_alloc(nthreads, sizeof *s, e) : NULL;
    st = st == SPX_OK && s == NULL ? SPX_EIO : st;
    for (size_t i = 0; i < nthreads && st == SPX_OK && j.most > 1; i++) /* a single exposure is copied */
        st = space_new(&j, &s[i], e);
    if (st == SPX_OK) {
#pragma omp parallel for num_threads((int)nthreads) schedule(dynamic, 1) reduction(+ : failed)
        for (size_t g = 0; g < ngroup; g++)
            failed += coadd_group(&j, g * SPX_COADD_LANES, &s[omp_get_thread_num()]);
        out->failed = failed;
    }
    for (size_t i = 0; i < nthreads && s != NULL; i++)
        space_free(&s[i]);
    spx_free(s);
    return st;
}
