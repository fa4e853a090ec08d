/* Cases of the operation `flat`, against dense least squares that alternate in the same way until nothing changes.
 * Sizes: exposures, fibres, bins, diagonals, and the sum of 1 native, 2 one lamp, 4 gaps and a dead fibre, 8 hits.
 *
 * Tolerance: passes end when F changes by less than 1e-13, or after 20 of them. F of splines has a mean that differs
 * from 1 by some 1e-5, which each step to m takes off again; with a factor whose weights are 1 % old that is wrong by
 * 1e-7 of m, or 1e-5 of its error in these few fibres: 1e-4 of an error from the reference, and 1e-6 between backends.
 * The deconvolved lamp of few fibres has a condition of up to 1e6: a thousand times that. */
#include <math.h>
#include <string.h>

#include "flat_scene.h"
#include "op.h"

enum { NATIVE = 1, ONE_LAMP = 2, GAPS = 4, HITS = 8 };

typedef struct {
    flat_scene s;
    spx_flat_options o;
} scene;

static const op_case cases[] = {
    {"one exposure", {1, 6, 120, 5, 0}},
    {"three exposures, lamps of their own", {3, 7, 130, 7, 0}},
    {"three exposures of one lamp", {3, 5, 110, 5, ONE_LAMP}},
    {"one fibre: flat 1", {2, 1, 90, 5, 0}},
    {"two fibres", {2, 2, 100, 11, 0}},
    {"gaps, a dead fibre", {2, 9, 160, 7, GAPS}},
    {"hits", {3, 8, 150, 5, HITS}},
    {"hits, gaps, one lamp", {3, 8, 150, 5, HITS | GAPS | ONE_LAMP}},
    {"single bins", {3, 12, 140, 5, NATIVE | HITS}},
    {"resolution of one diagonal", {2, 4, 80, 1, 0}},
};

static void *draw(const size_t *size, uint64_t from)
{
    scene *c = need(1, sizeof *c);
    const size_t nexp = size[0], ns = size[1], n = size[2];
    random_start(from);
    c->s = flat_scene_new(nexp, ns, n, size[3], 6000, 0.4, 1);
    c->o = (spx_flat_options){.knots = 24,
                              .reject = 5,
                              .floor = 0.001,
                              .converge = 1e-13,
                              .native = (size[4] & NATIVE) != 0,
                              .one_lamp = (size[4] & ONE_LAMP) != 0};
    for (size_t h = 0; h < 6 && (size[4] & HITS) != 0; h++)
        c->s.flux[h % nexp][(size_t)((double)(ns * n) * uniform())] += 4000 * (1 + uniform());
    for (size_t k = 0; k < n && (size[4] & GAPS) != 0; k++) {
        c->s.mask[0][k] = c->s.mask[nexp - 1][k] = k < n / 2; /* half a fibre */
        c->s.ivar[0][n + k] = k % 3 == 0 ? 0 : c->s.ivar[0][n + k];
        c->s.flux[0][n + k] = k % 3 == 0 ? NAN : c->s.flux[0][n + k];
        for (size_t x = 0; x < nexp; x++) {
            c->s.mask[x][3 * n + k] = k < 12;
            c->s.flux[x][(ns - 1) * n + k] = 3 * gauss();
        }
    }
    for (size_t k = 0; k < ns && (size[4] & NATIVE) != 0; k += 3) /* pixels with a response of their own */
        for (size_t x = 0; x < nexp; x++)
            c->s.flux[x][k * n + 40 + k] *= 0.85;
    for (size_t x = 0; x < nexp; x++) {
        op_const("flux", c->s.flux[x], ns * n, sizeof(double));
        op_const("ivar", c->s.ivar[x], ns * n, sizeof(double));
        op_const("resolution", c->s.resolution[x], ns * n * size[3], sizeof(double));
    }
    return c;
}

static void put(op_answer *a, const char *name, size_t n, const double *value, const double *scale, double tolerance)
{
    double *s, *v = op_add(a, name, n, tolerance, &s);
    for (size_t k = 0; k < n; k++) {
        v[k] = value[k];
        s[k] = scale[k];
    }
}

/* Results, from either side. */
static void answer(const scene *c, const double *flat, const double *ivar, const uint32_t *mask, const double *lamp,
                   const double *mean, const double *chi2, const double *counts, double tolerance, op_answer *a)
{
    const size_t bins = c->s.nspec * c->s.nwave, nlamp = c->s.nexp * c->s.nwave;
    double *error = need(bins + nlamp + 3, sizeof *error), *bits = need(bins, sizeof *bits);
    for (size_t k = 0; k < bins; k++) {
        error[k] = ivar[k] > 0 ? 1 / sqrt(ivar[k]) : 1;
        bits[k] = mask[k];
    }
    put(a, "flat", bins, flat, error, tolerance);
    put(a, "ivar", bins, ivar, ivar, tolerance);
    op_put(a, "mask", bins, bits, 0);
    for (size_t k = 0; k < nlamp; k++)
        error[k] = 80; /* sqrt(6000) electron/Angstrom, in one bin of one fibre */
    put(a, "lamp", nlamp, lamp, error, 1e3 * tolerance);
    put(a, "mean", nlamp, mean, error, tolerance);
    op_put(a, "chi2", c->s.nspec, chi2, tolerance);
    op_put(a, "counts", 5, counts, 0);
    spx_free(error);
    spx_free(bits);
}

static void run(spx_backend *b, void *scene_, int threads, op_answer *a)
{
    const scene *c = scene_;
    const spx_flat_input in = flat_scene_input(&c->s);
    spx_flat_options o = c->o;
    spx_flat_counts *counts = op_output("counts", 1, sizeof *counts);
    spx_flat *out = op_output("flat", 1, sizeof *out);
    spx_err e = {0};
    o.nthreads = threads;
    if (op_done(b->flat(b, &in, &o, out, counts, &e), &e)) {
        const double number[5] = {(double)counts->nmasked, (double)counts->nreject, (double)counts->nbadfiber,
                                  (double)counts->nlow, (double)counts->nnative};
        answer(c, out->flat, out->ivar, out->mask, out->lamp, out->mean, out->chi2, number, 1e-6, a);
    }
    spx_flat_free(out);
}

/* ---- reference ---- */

/* Solves A x = b, A[n][n] symmetric, by elimination in long double; inverse (may be NULL) is A^-1. */
static void solve(size_t n, const long double *a, const double *b, double *x, long double *inverse)
{
    const size_t width = 2 * n + 1;
    long double *w = need(n * width, sizeof *w);
    for (size_t i = 0; i < n; i++) {
        for (size_t j = 0; j < n; j++)
            w[i * width + j] = a[i * n + j];
        w[i * width + n + i] = 1;
        w[i * width + 2 * n] = b[i];
    }
    for (size_t p = 0; p < n; p++) {
        const long double scale = 1 / w[p * width + p];
        for (size_t j = p; j < width; j++)
            w[p * width + j] *= scale;
        for (size_t i = 0; i < n; i++) {
            const long double f = i == p ? 0 : w[i * width + p];
            for (size_t j = p; j < width && f != 0; j++)
                w[i * width + j] -= f * w[p * width + j];
        }
    }
    for (size_t i = 0; i < n; i++) {
        x[i] = (double)w[i * width + 2 * n];
        for (size_t j = 0; j < n && inverse != NULL; j++)
            inverse[i * n + j] = w[i * width + n + j];
    }
    spx_free(w);
}

/* Cubic B-spline j of nspline over [first, last] at x, by the recurrence of Cox and de Boor on uniform knots. */
static double spline_at(size_t nspline, double first, double last, size_t j, double x)
{
    const double step = (last - first) / (double)(nspline - 3);
    double b[4], at = (x - first) / step;
    long t = (long)at;
    t = t > (long)nspline - 4 ? (long)nspline - 4 : t;
    for (int i = 0; i < 4; i++) /* degree 0: functions j ... j+3 begin at knot j-3+i */
        b[i] = (long)j - 3 + i == t ? 1 : 0;
    for (int d = 1; d < 4; d++)
        for (int i = 0; i + d < 4; i++) {
            const double knot = (double)((long)j - 3 + i);
            b[i] = (at - knot) / d * b[i] + (knot + d + 1 - at) / d * b[i + 1];
        }
    return b[0];
}

typedef struct {
    const scene *c;
    size_t nspline, nint;
    double *basis; /* [nwave][nspline] */
    double *flat, *x, *lamp, *variance, *gain, *mean;
    uint8_t *good, *seen, *use, *ref, *support;
    size_t nuse, nref;
} plain;

static int usable(const scene *c, size_t x, size_t at)
{
    return c->s.mask[x][at] == 0 && c->s.ivar[x][at] > 0 && isfinite(c->s.flux[x][at]);
}

static size_t interval(const plain *p, size_t k)
{
    const double *l = p->c->s.wavelength, at = (l[k] - l[0]) / (l[p->c->s.nwave - 1] - l[0]) * (double)p->nint;
    return at >= (double)p->nint ? p->nint - 1 : (size_t)at;
}

/* m from all fibres in use. */
static void plain_lamp(plain *p)
{
    const flat_scene *s = &p->c->s;
    const size_t n = s->nwave, ns = s->nspec;
    const size_t nlamp = p->c->o.one_lamp ? 1 : s->nexp;
    for (size_t l = 0; l < nlamp; l++) {
        long double *a = need(n * n, sizeof *a);
        double *b = need(n, sizeof *b), *m = need(n, sizeof *m);
        for (size_t x = l; x < s->nexp; x += nlamp == 1 ? 1 : s->nexp)
            for (size_t i = 0; i < ns; i++)
                for (size_t k = 0; k < n; k++) {
                    const size_t at = i * n + k;
                    const long h = (long)(s->ndiag / 2);
                    if (!p->use[i] || !p->good[x * ns * n + at])
                        continue;
                    const double *r = s->resolution[x] + i * s->ndiag * n;
                    const double w = s->ivar[x][at], f = p->flat[at] * p->gain[x];
                    for (long j = (long)k - h; j <= (long)k + h; j++)
                        for (long g = (long)k - h; g <= (long)k + h; g++)
                            if (j >= 0 && g >= 0 && j < (long)n && g < (long)n)
                                a[(size_t)j * n + (size_t)g] += (long double)w * f * f *
                                                                r[(size_t)(h + (long)k - j) * n + (size_t)j] *
                                                                r[(size_t)(h + (long)k - g) * n + (size_t)g];
                    for (long j = (long)k - h; j <= (long)k + h; j++)
                        if (j >= 0 && j < (long)n)
                            b[j] += w * f * s->flux[x][at] * r[(size_t)(h + (long)k - j) * n + (size_t)j];
                }
        solve(n, a, b, m, NULL);
        for (size_t x = l; x < s->nexp; x += nlamp == 1 ? 1 : s->nexp)
            for (size_t k = 0; k < n; k++)
                p->lamp[x * n + k] = p->gain[x] * m[k];
        spx_free(a);
        spx_free(b);
        spx_free(m);
    }
}

/* F of a fibre by dense least squares, and its variance. */
static void plain_fibre(plain *p, size_t i)
{
    const flat_scene *s = &p->c->s;
    const size_t n = s->nwave, ns = s->nspec, q = p->nspline;
    long double *a = need(q * q, sizeof *a), *inverse = need(q * q, sizeof *inverse), most = 0;
    double *b = need(q, sizeof *b), *coeff = need(q, sizeof *coeff);
    size_t *count = need(p->nint, sizeof *count), *all = need(p->nint, sizeof *all);
    for (size_t k = 0; k < n; k++) {
        double w = 0, t = 0;
        for (size_t x = 0; x < s->nexp; x++) {
            const size_t at = i * n + k;
            p->x[(x * ns + i) * n + k] =
                flat_scene_convolved(n, s->ndiag, s->resolution[x] + i * s->ndiag * n, p->lamp + x * n, k);
            const double m = p->x[(x * ns + i) * n + k];
            if (!p->good[x * ns * n + at])
                continue;
            w += s->ivar[x][at] * m * m;
            t += s->ivar[x][at] * m * s->flux[x][at];
        }
        for (size_t g = 0; g < q; g++) {
            for (size_t h = 0; h < q; h++)
                a[g * q + h] += (long double)w * p->basis[k * q + g] * p->basis[k * q + h];
            b[g] += t * p->basis[k * q + g];
        }
        count[interval(p, k)] += w > 0;
        all[interval(p, k)]++;
    }
    for (size_t t = 0; t < p->nint; t++)
        p->support[i * p->nint + t] = 2 * count[t] >= all[t] || count[t] >= 20;
    for (size_t g = 0; g < q; g++)
        most = a[g * q + g] > most ? a[g * q + g] : most;
    for (size_t g = 0; g + 2 < q; g++) {
        const long double second[3] = {1, -2, 1};
        for (size_t h = 0; h < 3; h++)
            for (size_t j = 0; j < 3; j++)
                a[(g + h) * q + g + j] += 1e-7L * most * second[h] * second[j];
    }
    if (most > 0)
        solve(q, a, b, coeff, inverse);
    for (size_t k = 0; k < n; k++) {
        double f = 0, v = 0;
        for (size_t g = 0; g < q; g++) {
            f += coeff[g] * p->basis[k * q + g];
            for (size_t h = 0; h < q; h++)
                v += (double)(p->basis[k * q + g] * inverse[g * q + h] * p->basis[k * q + h]);
        }
        p->flat[i * n + k] = f;
        p->variance[i * n + k] = v;
    }
    spx_free(a);
    spx_free(inverse);
    spx_free(b);
    spx_free(coeff);
    spx_free(count);
    spx_free(all);
}

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void plain_choose(plain *p)
{
    const flat_scene *s = &p->c->s;
    const size_t n = s->nwave, ns = s->nspec;
    double *level = need(ns, sizeof *level), *sorted = need(ns, sizeof *sorted);
    size_t have = 0;
    for (size_t i = 0; i < ns; i++) {
        double t = 0, w = 0;
        for (size_t x = 0; x < s->nexp; x++)
            for (size_t k = 0; k < n; k++) {
                const size_t at = i * n + k;
                const double m = p->x[(x * ns + i) * n + k];
                t += p->seen[x * ns * n + at] ? s->ivar[x][at] * m * s->flux[x][at] : 0;
                w += p->seen[x * ns * n + at] ? s->ivar[x][at] * m * m : 0;
            }
        level[i] = w > 0 ? t / w : 0;
        if (level[i] > 0)
            sorted[have++] = level[i];
    }
    qsort(sorted, have, sizeof *sorted, by_value);
    const double median = 0.5 * (sorted[(have - 1) / 2] + sorted[have / 2]);
    p->nuse = p->nref = 0;
    for (size_t i = 0; i < ns; i++) {
        int any = 0;
        for (size_t t = 0; t < p->nint; t++)
            any |= p->support[i * p->nint + t];
        p->use[i] = any && level[i] > 0.1 * median && level[i] < 10 * median;
        p->nuse += p->use[i];
    }
    for (size_t i = 0; i < ns; i++) {
        p->ref[i] = p->use[i];
        for (size_t t = 0; t < p->nint; t++) {
            size_t others = 0;
            for (size_t j = 0; j < ns; j++)
                others += p->use[j] && p->support[j * p->nint + t];
            if (2 * others >= p->nuse && !p->support[i * p->nint + t])
                p->ref[i] = 0;
        }
        p->nref += p->ref[i];
    }
    spx_free(level);
    spx_free(sorted);
}

/* Alternates until F stays. */
static void plain_passes(plain *p)
{
    const flat_scene *s = &p->c->s;
    const size_t n = s->nwave, ns = s->nspec;
    for (size_t i = 0; i < ns; i++)
        p->use[i] = 1;
    for (size_t k = 0; k < ns * n; k++)
        p->flat[k] = s->truth[k]; /* any start */
    for (size_t x = 0; x < s->nexp; x++) {
        p->gain[x] = 1 + 0.04 * (double)x;
        for (size_t k = 0; k < ns * n; k++)
            p->good[x * ns * n + k] =
                usable(p->c, x, k) && fabs(s->flux[x][k] - p->gain[x] * s->truth[k] * s->lamp[k % n]) < 3000;
    }
    for (int pass = 0; pass < 40; pass++) {
        plain_lamp(p);
        for (size_t k = 0; k < s->nexp * n && pass > 0; k++) /* of F that is 1 in the mean */
            p->lamp[k] *= p->mean[k % n];
        for (size_t i = 0; i < ns; i++)
            plain_fibre(p, i);
        memcpy(p->seen, p->good, s->nexp * ns * n);
        for (size_t x = 0; x < s->nexp; x++)
            for (size_t k = 0; k < ns * n; k++) {
                const double r = s->flux[x][k] - p->flat[k] * p->x[x * ns * n + k];
                p->good[x * ns * n + k] = usable(p->c, x, k) && r * r * s->ivar[x][k] <= 25;
            }
        plain_choose(p);
        for (size_t k = 0; k < n; k++) {
            double sum = 0;
            for (size_t i = 0; i < ns; i++)
                sum += p->ref[i] ? p->flat[i * n + k] : 0;
            p->mean[k] = sum / (double)p->nref;
        }
        for (size_t x = 0; x < s->nexp && p->c->o.one_lamp; x++) {
            double t = 0, w = 0;
            for (size_t k = 0; k < ns * n; k++) {
                const double f = p->flat[k] * p->x[x * ns * n + k];
                t += p->use[k / n] && p->good[x * ns * n + k] ? s->ivar[x][k] * f * s->flux[x][k] : 0;
                w += p->use[k / n] && p->good[x * ns * n + k] ? s->ivar[x][k] * f * f : 0;
            }
            p->gain[x] *= t / w;
        }
    }
}

static void plain_answer(plain *p, op_answer *a)
{
    const flat_scene *s = &p->c->s;
    const size_t n = s->nwave, ns = s->nspec;
    double *ivar = need(ns * n, sizeof *ivar), *chi2 = need(ns, sizeof *chi2), counts[5] = {0};
    uint32_t *mask = need(ns * n, sizeof *mask);
    double *out = need(ns * n, sizeof *out), *spread = need(n, sizeof *spread);
    for (int last = 0; last < 2; last++)
        for (size_t i = 0; i < ns; i++) {
            double used = 0;
            for (size_t k = 0; k < n; k++) {
                const size_t at = i * n + k;
                double t = 0, w = 0, nu = 0, factor = 1, variance = p->variance[at];
                for (size_t x = 0; x < s->nexp; x++) {
                    const double f = p->flat[at] * p->x[x * ns * n + at];
                    t += usable(p->c, x, at) ? s->ivar[x][at] * f * s->flux[x][at] : 0;
                    w += usable(p->c, x, at) ? s->ivar[x][at] * f * f : 0;
                    nu += usable(p->c, x, at);
                }
                int native = p->c->o.native && p->use[i] && nu > 1 && t > 0 && fabs(t / w - 1) * sqrt(w) > 4;
                for (size_t x = 0; x < s->nexp && native; x++) {
                    const double r = s->flux[x][at] - t / w * p->flat[at] * p->x[x * ns * n + at];
                    native = !usable(p->c, x, at) || fabs(r) * sqrt(s->ivar[x][at]) <= 5;
                }
                if (native) {
                    factor = t / w;
                    variance += p->flat[at] * p->flat[at] / w;
                }
                if (last == 0) {
                    spread[k] += p->ref[i] ? variance / p->mean[k] / p->mean[k] : 0;
                    continue;
                }
                counts[4] += native;
                for (size_t x = 0; x < s->nexp; x++) {
                    const double r = s->flux[x][at] - factor * p->flat[at] * p->x[x * ns * n + at];
                    const double z = r * r * s->ivar[x][at];
                    counts[0] += !usable(p->c, x, at);
                    counts[1] += usable(p->c, x, at) && z > 25;
                    used += usable(p->c, x, at) && z <= 25;
                    chi2[i] += usable(p->c, x, at) && z <= 25 ? z : 0;
                }
                const double f = factor * p->flat[at] / p->mean[k], nr = (double)p->nref;
                variance =
                    variance / p->mean[k] / p->mean[k] * (p->ref[i] ? 1 - 2 * f / nr : 1) + f * f * spread[k] / nr / nr;
                variance = fmax(variance, 1e-12) + 1e-6 * f * f;
                mask[at] = !p->use[i]                                                       ? SPX_BADFIBERFLAT
                           : !p->support[i * p->nint + interval(p, k)] || f < 0.1 || f > 10 ? SPX_LOWFLAT
                                                                                            : 0;
                counts[3] += mask[at] == SPX_LOWFLAT;
                out[at] = mask[at] != 0 ? 1 : f;
                ivar[at] = mask[at] != 0 ? 0 : 1 / variance;
            }
            counts[2] += last && !p->use[i];
            const double dof =
                used - (double)p->nspline - (double)(n * (p->c->o.one_lamp ? 1 : s->nexp)) / (double)p->nuse;
            chi2[i] = last && p->use[i] ? chi2[i] / fmax(dof, 1) : 0;
        }
    double *mean = need(s->nexp * n, sizeof *mean);
    for (size_t k = 0; k < s->nexp * n; k++) {
        p->lamp[k] *= p->mean[k % n];
        for (size_t i = 0; i < ns; i++)
            mean[k] += p->use[i] ? p->x[(k / n * ns + i) * n + k % n] * p->mean[k % n] / (double)p->nuse : 0;
    }
    answer(p->c, out, ivar, mask, p->lamp, mean, chi2, counts, 1e-4, a);
    spx_free(mean);
    spx_free(ivar);
    spx_free(chi2);
    spx_free(mask);
    spx_free(out);
    spx_free(spread);
}

static void reference(void *scene_, op_answer *a)
{
    const scene *c = scene_;
    const size_t n = c->s.nwave, ns = c->s.nspec, nexp = c->s.nexp;
    const double first = c->s.wavelength[0], last = c->s.wavelength[n - 1];
    plain p = {.c = c, .nint = (size_t)((last - first) / c->o.knots + 0.5)};
    p.nspline = p.nint + 3;
    p.basis = need(n * p.nspline, sizeof *p.basis);
    for (size_t k = 0; k < n; k++)
        for (size_t j = 0; j < p.nspline; j++)
            p.basis[k * p.nspline + j] = spline_at(p.nspline, first, last, j, c->s.wavelength[k]);
    p.flat = need(ns * n, sizeof *p.flat);
    p.variance = need(ns * n, sizeof *p.variance);
    p.x = need(nexp * ns * n, sizeof *p.x);
    p.lamp = need(nexp * n, sizeof *p.lamp);
    p.gain = need(nexp, sizeof *p.gain);
    p.mean = need(n, sizeof *p.mean);
    p.good = need(nexp * ns * n, 1);
    p.seen = need(nexp * ns * n, 1);
    p.use = need(ns, 1);
    p.ref = need(ns, 1);
    p.support = need(ns * p.nint, 1);
    plain_passes(&p);
    plain_answer(&p, a);
    void *const all[] = {p.basis, p.flat, p.variance, p.x,   p.lamp, p.gain,
                         p.mean,  p.good, p.seen,     p.use, p.ref,  p.support};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        spx_free(all[i]);
}

static void release(void *scene_)
{
    scene *c = scene_;
    flat_scene_free(&c->s);
    spx_free(c);
}

const op_test op_flat = {sizeof cases / sizeof *cases, cases, draw, run, reference, release};
