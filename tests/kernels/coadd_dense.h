/* Provides scenes of coadds, exposures of a spectrum of lines with resolution matrices of several widths, and coadds by
 * dense algebra: the root of N from its eigenvalues. */
#ifndef COADD_DENSE_H
#define COADD_DENSE_H

#include <math.h>
#include <string.h>

#include "../must.h"
#include "base/mem.h"
#include "coadd/coadd.h"
#include "random.h"

typedef struct {
    size_t ntarget, nexp, nwave, ndiag;
    size_t *first;
    double *flux, *ivar, *resolution, *truth; /* truth[ntarget][nwave]: the spectrum before R */
    uint32_t *mask;
} exposures;

static inline void *memory_for(size_t n, size_t size)
{
    spx_err e = {0};
    return must_have(spx_alloc(n, size, &e));
}

static inline spx_coadd_input input_of(const exposures *x)
{
    return (spx_coadd_input){x->ntarget, x->nwave, x->ndiag, x->first, x->flux, x->ivar, x->mask, x->resolution};
}

static inline void exposures_free(exposures *x)
{
    spx_free(x->first);
    spx_free(x->flux);
    spx_free(x->ivar);
    spx_free(x->resolution);
    spx_free(x->truth);
    spx_free(x->mask);
}

/* Element R(k, j) by diagonals. */
static inline double element_of(size_t n, size_t ndiag, const double *r, size_t k, size_t j)
{
    const long b = (long)(ndiag / 2) + (long)k - (long)j;
    if (r == NULL)
        return k == j;
    return b < 0 || b >= (long)ndiag ? 0 : r[(size_t)b * n + j];
}

/* R with rows that sum to 1, of Gaussians of `width` bins (sigma) with some asymmetry; garbage where no row is. */
static inline void make_rows(size_t n, size_t ndiag, double width, double *r)
{
    for (size_t k = 0; k < n; k++) {
        double sum = 0;
        for (int pass = 0; pass < 2; pass++)
            for (size_t b = 0; b < ndiag; b++) {
                const long off = (long)(ndiag / 2) - (long)b, col = (long)k + off;
                const double at = ((double)off + 0.1) / (width * (1 + 0.1 * sin(0.02 * (double)k)));
                if (col < 0 || col >= (long)n)
                    continue;
                const double v = exp(-0.5 * at * at);
                sum += pass == 0 ? v : 0;
                if (pass == 1)
                    r[b * n + (size_t)col] = v / sum;
            }
    }
    for (size_t b = 0; b < ndiag; b++)
        for (size_t j = 0; j < n; j++) {
            const long row = (long)j + (long)b - (long)(ndiag / 2);
            if (row < 0 || row >= (long)n)
                r[b * n + j] = NAN;
        }
}

/* Targets with 1 ... most exposures each, the last with `most`. widths: of exposure i is width (1 + step i); noise 0 or
 * 1: with noise as ivar says. Depths differ by factors up to 4; 5 % of the bins are masked where `masked` is 1. */
static inline exposures draw_exposures(size_t ntarget, size_t most, size_t n, size_t ndiag, double width, double step,
                                       double signal, int noise, int masked, uint64_t seed)
{
    exposures x = {.ntarget = ntarget, .nwave = n, .ndiag = ndiag};
    random_start(seed * 7919 + 17);
    x.first = memory_for(ntarget + 1, sizeof *x.first);
    for (size_t t = 0; t < ntarget; t++)
        x.first[t + 1] = x.first[t] + (t + 1 == ntarget ? most : 1 + t % most);
    x.nexp = x.first[ntarget];
    x.flux = memory_for(x.nexp * n, sizeof *x.flux);
    x.ivar = memory_for(x.nexp * n, sizeof *x.ivar);
    x.mask = memory_for(x.nexp * n, sizeof *x.mask);
    x.truth = memory_for(ntarget * n, sizeof *x.truth);
    x.resolution = ndiag > 0 ? memory_for(x.nexp * ndiag * n, sizeof *x.resolution) : NULL;
    for (size_t t = 0; t < ntarget; t++) {
        double *truth = x.truth + t * n;
        for (size_t k = 0; k < n; k++)
            truth[k] = signal * (1 + 0.3 * sin(0.05 * (double)k));
        for (int line = 0; line < 1 + (int)n / 15; line++) {
            const double at = uniform() * (double)n, depth = 0.8 * uniform();
            for (size_t k = 0; k < n; k++)
                truth[k] *= 1 - depth * exp(-0.5 * pow(((double)k - at) / 1.2, 2));
        }
        for (size_t i = x.first[t]; i < x.first[t + 1]; i++) {
            const double deep = 0.25 + 0.75 * uniform();
            double *r = ndiag > 0 ? x.resolution + i * ndiag * n : NULL;
            if (r != NULL)
                make_rows(n, ndiag, width * (1 + step * (double)(i - x.first[t])), r);
            for (size_t k = 0; k < n; k++) {
                double flux = 0;
                for (size_t j = k > ndiag ? k - ndiag : 0; j < n && j <= k + ndiag; j++)
                    flux += element_of(n, ndiag, r, k, j) * (ndiag == 0 && j != k ? 0 : truth[j]);
                x.ivar[i * n + k] = deep * (0.5 + uniform());
                x.flux[i * n + k] = flux + (noise ? gauss() / sqrt(x.ivar[i * n + k]) : 0);
                x.mask[i * n + k] = masked && uniform() < 0.05 ? 1u << (int)(uniform() * 8) : 0;
                if (x.mask[i * n + k] != 0)
                    x.flux[i * n + k] = 1e6 * uniform(); /* must not matter */
            }
        }
    }
    return x;
}

/* Eigenvalues and vectors of a symmetric matrix a[n][n], destroyed: Jacobi's rotations. v[n][n]: vectors in columns. */
static inline void eigen(size_t n, long double *a, long double *v)
{
    for (size_t i = 0; i < n * n; i++)
        v[i] = i % (n + 1) == 0;
    for (int sweep = 0; sweep < 30; sweep++) {
        long double off = 0, all = 0;
        for (size_t p = 0; p < n; p++)
            for (size_t q = 0; q < n; q++) {
                off += p != q ? a[p * n + q] * a[p * n + q] : 0;
                all += a[p * n + q] * a[p * n + q];
            }
        if (off <= 1e-36L * all)
            break;
        for (size_t p = 0; p < n; p++)
            for (size_t q = p + 1; q < n; q++) {
                if (a[p * n + q] == 0)
                    continue;
                const long double theta = (a[q * n + q] - a[p * n + p]) / (2 * a[p * n + q]);
                const long double t = (theta < 0 ? -1 : 1) / (fabsl(theta) + sqrtl(theta * theta + 1));
                const long double c = 1 / sqrtl(t * t + 1), s = t * c;
                for (size_t i = 0; i < n; i++) {
                    const long double x = a[i * n + p], y = a[i * n + q];
                    a[i * n + p] = c * x - s * y;
                    a[i * n + q] = s * x + c * y;
                }
                for (size_t i = 0; i < n; i++) {
                    const long double x = a[p * n + i], y = a[q * n + i];
                    a[p * n + i] = c * x - s * y;
                    a[q * n + i] = s * x + c * y;
                }
                for (size_t i = 0; i < n; i++) {
                    const long double x = v[i * n + p], y = v[i * n + q];
                    v[i * n + p] = c * x - s * y;
                    v[i * n + q] = s * x + c * y;
                }
            }
    }
}

/* Weight of a bin, as coadd.h says. */
static inline double weight_of(const exposures *x, size_t i, size_t k)
{
    const size_t at = i * x->nwave + k;
    return x->mask[at] == 0 && x->ivar[at] > 0 && isfinite(x->flux[at]) ? x->ivar[at] : 0;
}

/* Sum of row k of an exposure, where diagonals of it lie beyond the ends, else 1. */
static inline long double inside_of(const exposures *x, const double *r, size_t k)
{
    const size_t n = x->nwave;
    long double sum = 0;
    int cut = 0;
    for (size_t b = 0; b < x->ndiag; b++) {
        const long j = (long)k + (long)(x->ndiag / 2) - (long)b;
        if (j >= 0 && j < (long)n)
            sum += r[b * n + (size_t)j];
        else
            cut = 1;
    }
    return cut && sum > 0 && sum < 1 ? sum : 1;
}

/* N[n][n] and y[n] of a target, dense. */
static inline void dense_normal(const exposures *x, size_t t, long double *normal, long double *y)
{
    const size_t n = x->nwave;
    memset(normal, 0, n * n * sizeof *normal);
    memset(y, 0, n * sizeof *y);
    for (size_t i = x->first[t]; i < x->first[t + 1]; i++) {
        const double *r = x->ndiag > 0 ? x->resolution + i * x->ndiag * n : NULL;
        for (size_t k = 0; k < n; k++) {
            const long double w = weight_of(x, i, k);
            const size_t lo = k > x->ndiag ? k - x->ndiag : 0, hi = k + x->ndiag + 1 < n ? k + x->ndiag + 1 : n;
            for (size_t p = lo; p < hi && w > 0; p++) {
                const long double rp = element_of(n, x->ndiag, r, k, p);
                y[p] += rp * w * x->flux[i * n + k] * inside_of(x, r, k);
                for (size_t q = lo; q < hi; q++)
                    normal[p * n + q] += rp * w * element_of(n, x->ndiag, r, k, q);
            }
        }
    }
}

/* Optimal coadd by eigenvalues: flux[n], ivar[n], and Q / s in r[n][n], of a target without gaps. */
static inline void dense_optimal(const exposures *x, size_t t, double *flux, double *ivar, double *r)
{
    const size_t n = x->nwave;
    long double *normal = memory_for(n * n, sizeof *normal), *v = memory_for(n * n, sizeof *v);
    long double *y = memory_for(n, sizeof *y), *root = memory_for(n * n, sizeof *root);
    dense_normal(x, t, normal, y);
    eigen(n, normal, v);
    for (size_t p = 0; p < n; p++)
        for (size_t q = 0; q < n; q++)
            for (size_t e = 0; e < n; e++)
                root[p * n + q] += v[p * n + e] * sqrtl(normal[e * n + e]) * v[q * n + e];
    for (size_t p = 0; p < n; p++) {
        long double s = 0, whitened = 0; /* N^(-1/2) y */
        for (size_t q = 0; q < n; q++)
            s += root[p * n + q];
        for (size_t e = 0; e < n; e++) {
            long double along = 0;
            for (size_t q = 0; q < n; q++)
                along += v[q * n + e] * y[q];
            whitened += v[p * n + e] * along / sqrtl(normal[e * n + e]);
        }
        flux[p] = (double)(whitened / s);
        ivar[p] = (double)(s * s);
        for (size_t q = 0; q < n; q++)
            r[p * n + q] = (double)(root[p * n + q] / s);
    }
    spx_free(normal);
    spx_free(v);
    spx_free(y);
    spx_free(root);
}

/* Simple coadd by its definition: r[n][n]. */
static inline void dense_simple(const exposures *x, size_t t, double *flux, double *ivar, double *r)
{
    const size_t n = x->nwave, nexp = x->first[t + 1] - x->first[t];
    for (size_t k = 0; k < n; k++) {
        double sum = 0, light = 0;
        for (size_t i = x->first[t]; i < x->first[t + 1]; i++) {
            sum += weight_of(x, i, k);
            light += weight_of(x, i, k) > 0 ? weight_of(x, i, k) * x->flux[i * n + k] : 0;
        }
        flux[k] = sum > 0 ? light / sum : 0;
        ivar[k] = sum;
        for (size_t j = 0; j < n; j++) {
            double row = 0;
            for (size_t i = x->first[t]; i < x->first[t + 1]; i++)
                row += (sum > 0 ? weight_of(x, i, k) / sum : 1. / (double)nexp) *
                       element_of(n, x->ndiag, x->ndiag > 0 ? x->resolution + i * x->ndiag * n : NULL, k, j);
            r[k * n + j] = row;
        }
    }
}

#endif
