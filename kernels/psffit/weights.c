/* Weights of pixels, from the model, and the background of a bundle (psffit/fit.h). */
#include <lapacke.h>
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "num/blas.h"
#include "psffit/fit.h"

/* Robust weights fall as (ROBUST / |t|)^2; the hard clip takes |t| > CLIP, and neighbours of these above BESIDE. */
#define ROBUST 4.0
#define CLIP   6.0
#define BESIDE 2.0

static double variance(double noise, double m, double epsilon)
{
    return noise + (m > 0 ? m : 0) + epsilon * epsilon * m * m;
}

double spx_pf_variance(const spx_pf_bundle *b, size_t x, size_t k, double epsilon)
{
    const spx_pf_pixels *px = &b->px[x];
    return variance(px->noise[k], px->ground[k] + b->now.light[x * b->p->height * b->width + k], epsilon);
}

static void order(float *a, float *b)
{
    const float lo = *a < *b ? *a : *b, hi = *a < *b ? *b : *a;
    *a = lo;
    *b = hi;
}

/* Median of nine, by the network of 19 exchanges of Paeth (1990, Graphics Gems, 171). */
static float median9(float *v)
{
    static const unsigned char pairs[19][2] = {{1, 2}, {4, 5}, {7, 8}, {0, 1}, {3, 4}, {6, 7}, {1, 2},
                                               {4, 5}, {7, 8}, {0, 3}, {5, 8}, {4, 7}, {3, 6}, {1, 4},
                                               {2, 5}, {4, 7}, {4, 2}, {6, 4}, {4, 2}};
    for (int k = 0; k < 19; k++)
        order(&v[pairs[k][0]], &v[pairs[k][1]]);
    return v[4];
}

/* Median of the pixels around one, itself among them, without those that are masked. */
static double median3x3(const spx_pf_bundle *b, const spx_pf_pixels *px, size_t r, size_t c)
{
    float v[9];
    int n = 0;
    for (long dr = -1; dr <= 1; dr++)
        for (long dc = -1; dc <= 1; dc++) {
            const long y = (long)r + dr, x = (long)c + dc;
            if (y < 0 || x < 0 || y >= (long)b->p->height || x >= (long)b->width)
                continue;
            const size_t k = (size_t)y * b->width + (size_t)x;
            if (px->noise[k] > 0)
                v[n++] = px->data[k];
        }
    if (n == 9)
        return median9(v);
    for (int i = 1; i < n; i++)
        for (int j = i; j > 0 && v[j] < v[j - 1]; j--) {
            const float t = v[j];
            v[j] = v[j - 1];
            v[j - 1] = t;
        }
    return n == 0 ? 0 : n % 2 ? v[n / 2] : 0.5 * ((double)v[n / 2 - 1] + v[n / 2]);
}

static void set_weight(spx_pf_pixels *px, size_t k, double w)
{
    px->root[k] = (float)sqrt(w);
    px->goal[k] = px->root[k] * (px->data[k] - px->ground[k]);
}

static double robust(double t)
{
    return t > ROBUST ? ROBUST * ROBUST / (t * t) : 1;
}

void spx_pf_first_weights(spx_pf_bundle *b, double epsilon)
{
    for (size_t x = 0; x < b->p->nexp; x++) {
        spx_pf_pixels *px = &b->px[x];
        for (size_t k = 0; k < b->p->height * b->width; k++) {
            double w = 0;
            if (px->noise[k] > 0) {
                const double m = median3x3(b, px, k / b->width, k % b->width), v = variance(px->noise[k], m, epsilon);
                w = robust(fabs(px->data[k] - m) / sqrt(v)) / v;
            }
            set_weight(px, k, w);
        }
    }
}

void spx_pf_weights(spx_pf_bundle *b, double epsilon, int clip)
{
    const size_t n = b->p->height * b->width;
    for (size_t x = 0; x < b->p->nexp; x++) {
        spx_pf_pixels *px = &b->px[x];
        const double *light = b->now.light + x * n;
        /* t in the place of the root at first */
        for (size_t k = 0; k < n; k++) {
            const double m = px->ground[k] + light[k], v = variance(px->noise[k], m, epsilon);
            px->root[k] = px->noise[k] > 0 ? (float)(fabs(px->data[k] - m) / sqrt(v)) : 0;
            px->rejected[k] = clip && px->root[k] > CLIP;
        }
        for (size_t r = 0; clip && r < b->p->height; r++)
            for (size_t c = 0; c < b->width; c++) {
                const size_t k = r * b->width + c;
                if (px->rejected[k] || !(px->root[k] > BESIDE))
                    continue;
                int beside = 0;
                for (size_t y = r > 0 ? r - 1 : 0; y <= r + 1 && y < b->p->height; y++)
                    for (size_t z = c > 0 ? c - 1 : 0; z <= c + 1 && z < b->width; z++)
                        beside |= px->root[y * b->width + z] > CLIP;
                px->rejected[k] = (uint8_t)beside;
            }
        for (size_t k = 0; k < n; k++) {
            double w = 0;
            if (px->noise[k] > 0 && !px->rejected[k]) {
                w = 1 / variance(px->noise[k], px->ground[k] + light[k], epsilon);
                if (!clip)
                    w *= robust(px->root[k]);
            }
            set_weight(px, k, w);
        }
    }
}

/* ---- background ---- */

/* Polynomials 1, t, t^2 of the row, on [-1, 1]. */
static void row_terms(size_t r, size_t height, double *t)
{
    t[0] = 1;
    t[1] = 2 * (double)r / (double)(height > 1 ? height - 1 : 1) - 1;
    t[2] = t[1] * t[1];
}

/* Columns of the bundle that a fibre's profile has in a row. */
static void columns(const spx_pf_bundle *b, const spx_pf_pixels *px, size_t i, size_t r, long *first, long *lo,
                    long *hi)
{
    *first = px->at[i * b->p->height + r];
    *lo = *first > 0 ? *first : 0;
    *hi = *first + b->p->nx + 2;
    *hi = *hi < (long)b->width ? *hi : (long)b->width;
}

/* work[2][width] */
static void add_row(const spx_pf_bundle *b, size_t x, size_t r, double *work, double *a, double *rhs)
{
    const spx_pf_pixels *px = &b->px[x];
    const size_t n = 3 * b->nf + 1, wide = (size_t)b->p->nx + 2, height = b->p->height;
    const double *light = b->now.light + (x * height + r) * b->width;
    const float *root = px->root + r * b->width, *data = px->data + r * b->width;
    double t[3], *w = work, *v = work + b->width, sum = 0, all = 0;
    row_terms(r, height, t);
    for (size_t k = 0; k < b->width; k++) {
        w[k] = (double)root[k] * root[k];
        v[k] = w[k] * (data[k] - light[k]);
        sum += v[k];
        all += w[k];
    }
    a[(n - 1) * n + n - 1] += all;
    rhs[n - 1] += sum;
    for (size_t i = 0; i < b->nf; i++) {
        long first, lo, hi, first2, lo2, hi2;
        columns(b, px, i, r, &first, &lo, &hi);
        const float *p = px->profile + (i * height + r) * wide - first;
        double to = 0, one = 0;
        for (long k = lo; k < hi; k++) {
            to += v[k] * p[k];
            one += w[k] * p[k];
        }
        for (size_t l = 0; l < 3; l++) {
            rhs[3 * i + l] += t[l] * to;
            a[(3 * i + l) * n + n - 1] += t[l] * one;
        }
        for (size_t j = i; j < b->nf; j++) {
            columns(b, px, j, r, &first2, &lo2, &hi2);
            if (lo2 >= hi)
                break;
            const float *q = px->profile + (j * height + r) * wide - first2;
            double both = 0;
            for (long k = lo2 > lo ? lo2 : lo; k < hi && k < hi2; k++)
                both += w[k] * p[k] * q[k];
            for (size_t l = 0; l < 3; l++)
                for (size_t m = 0; m < 3; m++)
                    a[(3 * i + l) * n + 3 * j + m] += t[l] * t[m] * both;
        }
    }
}

/* Background of an exposure from its coefficients, and the goal. */
static void fill_ground(spx_pf_bundle *b, spx_pf_pixels *px)
{
    const size_t height = b->p->height, wide = (size_t)b->p->nx + 2;
    const double *coef = px->coef, constant = coef[3 * b->nf];
    double t[3];
    for (size_t r = 0; r < height; r++) {
        double *to = px->ground + r * b->width;
        row_terms(r, height, t);
        for (size_t k = 0; k < b->width; k++)
            to[k] = constant;
        for (size_t i = 0; i < b->nf; i++) {
            long first, lo, hi;
            columns(b, px, i, r, &first, &lo, &hi);
            const float *p = px->profile + (i * height + r) * wide - first;
            const double level = coef[3 * i] * t[0] + coef[3 * i + 1] * t[1] + coef[3 * i + 2] * t[2];
            for (long k = lo; k < hi; k++)
                to[k] += level * p[k];
        }
        for (size_t k = r * b->width; k < (r + 1) * b->width; k++)
            px->goal[k] = px->root[k] * (px->data[k] - px->ground[k]);
    }
}

void spx_pf_put_background(spx_pf_bundle *b, const double *coef)
{
    const size_t n = 3 * b->nf + 1;
    for (size_t x = 0; x < b->p->nexp; x++) {
        memcpy(b->px[x].coef, coef + x * n, n * sizeof *coef);
        fill_ground(b, &b->px[x]);
    }
}

int spx_pf_background(spx_pf_bundle *b)
{
    const size_t n = 3 * b->nf + 1, height = b->p->height;
    double *a = spx_alloc(n * (n + 1) + 2 * b->width, sizeof *a, NULL), *rhs, *work;
    if (a == NULL)
        return 0;
    rhs = a + n * n;
    work = rhs + n;
    int ok = 1;
    for (size_t x = 0; x < b->p->nexp && ok; x++) {
        spx_pf_pixels *px = &b->px[x];
        memset(a, 0, n * (n + 1) * sizeof *a);
        for (size_t r = 0; r < height; r++)
            add_row(b, x, r, work, a, rhs);
        double most = 0;
        for (size_t k = 0; k < n; k++)
            most = fmax(most, a[k * n + k]);
        for (size_t k = 0; k < n; k++)
            a[k * n + k] += 1e-8 * most + 1e-30;
        /* the upper triangle in rows is the lower one in columns */
        ok = LAPACKE_dposv(LAPACK_COL_MAJOR, 'L', (lapack_int)n, 1, a, (lapack_int)n, rhs, (lapack_int)n) == 0;
        for (size_t k = 0; k < n && ok; k++)
            ok = isfinite(rhs[k]);
        if (!ok)
            break;
        memcpy(px->coef, rhs, n * sizeof *rhs);
        fill_ground(b, px);
    }
    spx_free(a);
    return ok;
}
