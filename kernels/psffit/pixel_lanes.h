/* Provides the loops over the pixels of a bundle (spx_pf_kernels), compiled for each instruction set by fit_lanes.h,
 * which includes it. Most loops are plain, for the compiler to vectorise. */
#include <math.h>
#include <stddef.h>
#include <string.h>

#include "psffit/step_math.h"
#include "simd/simd.h"

static void pixels_misfit(size_t n, const spx_pf_pixels *px, size_t at, const double *light, double epsilon)
{
    const float *data = px->data + at, *noise = (px->soft != NULL ? px->soft : px->noise) + at;
    const double *ground = px->ground + at, epsilon2 = epsilon * epsilon;
    float *out = px->root + at;
#pragma omp simd
    for (size_t k = 0; k < n; k++) {
        const double m = ground[k] + light[k];
        const float t = (float)(fabs(data[k] - m) / sqrt(spx_pf_noise(noise[k], m, epsilon2)));
        out[k] = noise[k] > 0 ? t : 0;
    }
}

/* Where the model is still too faint, as in wings that it has not, its variance alone would give them a weight that
 * changes from step to step, by which steps converge in a line, not a square. */
static double pixels_weigh(size_t n, const spx_pf_pixels *px, size_t at, const double *light, double epsilon,
                           double robust)
{
    const float *data = px->data + at, *noise = px->noise + at, *median = px->median + at;
    const double *ground = px->ground + at, epsilon2 = epsilon * epsilon, by = 1 / (robust * robust);
    float *root = px->root + at;
    double *goal = px->goal + at, sum = 0;
#pragma omp simd reduction(+ : sum)
    for (size_t k = 0; k < n; k++) {
        const double m = ground[k] + light[k], off = data[k] - m;
        const double v = spx_pf_noise(noise[k], median[k] > m ? median[k] : m, epsilon2), far = by * off * off;
        const float w = (float)(1 / sqrt(v > far ? v : far)); /* weight min(1, (robust / t)^2) / V */
        root[k] = noise[k] > 0 ? w : 0;
        goal[k] = root[k] * (data[k] - ground[k]);
        sum += goal[k] * goal[k];
    }
    return sum;
}

static double pixels_weigh_clipped(size_t n, const spx_pf_pixels *px, size_t at, const double *light, double epsilon,
                                   int *far)
{
    const float *data = px->data + at, *noise = (px->soft != NULL ? px->soft : px->noise) + at;
    /* pixels that may be rejected: their misfit is looked at as what it is, of single precision */
    const double clip2 = (1 - 1e-6) * SPX_PF_CLIP * SPX_PF_CLIP;
    const double *ground = px->ground + at, epsilon2 = epsilon * epsilon;
    const uint8_t *rejected = px->rejected + at;
    float *root = px->root + at;
    double *goal = px->goal + at, sum = 0, most = -1;
#pragma omp simd reduction(+ : sum) reduction(max : most)
    for (size_t k = 0; k < n; k++) {
        const double m = ground[k] + light[k], off = data[k] - m, v = spx_pf_noise(noise[k], m, epsilon2);
        const double beyond = noise[k] > 0 ? off * off - clip2 * v : -1;
        const float w = (float)(1 / sqrt(v));
        most = beyond > most ? beyond : most;
        root[k] = noise[k] > 0 && !rejected[k] ? w : 0;
        goal[k] = root[k] * (data[k] - ground[k]);
        sum += goal[k] * goal[k];
    }
    *far = most > 0;
    return sum;
}

static double pixels_squares(size_t n, const double *goal, const float *root, const double *light)
{
    double sum = 0;
#pragma omp simd reduction(+ : sum)
    for (size_t k = 0; k < n; k++) {
        const double t = goal[k] - root[k] * light[k];
        sum += t * t;
    }
    return sum;
}

/* Median of nine, by the network of 19 exchanges of Paeth (1990, Graphics Gems, 171). */
static void pixels_medians(size_t n, const float *data, const float *noise, float *out, uint8_t *whole)
{
    const float *up = data + n, *down = data - n;
    for (size_t k = 1; k < n - 1; k++) {
        float least = noise[k];
        for (size_t row = 0; row < 3; row++)
            for (size_t c = 0; c < 3; c++) {
                const float v = (noise + k - n - 1)[row * n + c];
                least = v < least ? v : least;
            }
        whole[k] = least > 0;
    }
#define ORDER(i, j)                                                                                                    \
    do {                                                                                                               \
        const float lo = v##j < v##i ? v##j : v##i;                                                                    \
        v##j = v##j < v##i ? v##i : v##j;                                                                              \
        v##i = lo;                                                                                                     \
    } while (0)
#pragma omp simd
    for (size_t k = 1; k < n - 1; k++) {
        float v0 = up[k - 1], v1 = up[k], v2 = up[k + 1], v3 = data[k - 1], v4 = data[k], v5 = data[k + 1];
        float v6 = down[k - 1], v7 = down[k], v8 = down[k + 1];
        ORDER(1, 2);
        ORDER(4, 5);
        ORDER(7, 8);
        ORDER(0, 1);
        ORDER(3, 4);
        ORDER(6, 7);
        ORDER(1, 2);
        ORDER(4, 5);
        ORDER(7, 8);
        ORDER(0, 3);
        ORDER(5, 8);
        ORDER(4, 7);
        ORDER(3, 6);
        ORDER(1, 4);
        ORDER(2, 5);
        ORDER(4, 7);
        ORDER(4, 2);
        ORDER(6, 4);
        ORDER(4, 2);
        out[k] = v4;
    }
#undef ORDER
}

/* Row `row` of a bundle within zeros of a profile's width on either side: its pixel 0. */
static inline double *pixels_padded(const spx_pf_bundle *b, double *work, size_t row)
{
    const size_t wide = spx_pf_profile_width(b->p), n = b->width + 2 * wide;
    for (size_t k = 0; k < wide; k++)
        work[row * n + k] = work[row * n + wide + b->width + k] = 0;
    return work + row * n + wide;
}

/* Profile of fibre i in a row, and the column of the bundle that it begins at; NULL: none of it is there. */
static inline const float *pixels_profile(const spx_pf_bundle *b, const spx_pf_pixels *px, size_t i, size_t r,
                                          long *first)
{
    const size_t k = r * b->nf + i, wide = spx_pf_profile_width(b->p);
    *first = px->at[k];
    return *first > -(long)wide && *first < (long)b->width ? px->profile + k * wide : NULL;
}

/* Sum of products a b, of whole vectors; work: the products. */
static inline double pixels_product(size_t n, const double *a, const float *b, double *work)
{
    vec sum = every(0.0);
    for (size_t k = 0; k < n; k += SPX_VL) {
        const vec v = load(a + k) * load_float(b + k);
        store(work + k, v);
        sum += v;
    }
    return sum_lanes(sum);
}

static inline double pixels_dot(size_t n, const double *a, const float *b)
{
    vec sum = every(0.0);
    for (size_t k = 0; k < n; k += SPX_VL)
        sum += load(a + k) * load_float(b + k);
    return sum_lanes(sum);
}

/* Adds n sums of a row, times its powers, to their moments. */
static inline void pixels_add(size_t powers, const double *power, size_t n, const double *row, double *to)
{
    for (size_t l = 0; l < powers; l++)
#pragma omp simd
        for (size_t k = 0; k < n; k++)
            to[l * n + k] += power[l] * row[k];
}

static void pixels_moments(const spx_pf_bundle *b, const spx_pf_pixels *px, size_t r, const double *power, double *work,
                           spx_pf_moments *m)
{
    const size_t nf = b->nf, wide = spx_pf_profile_width(b->p), at = r * b->width;
    const float *root = px->root + at, *data = px->data + at;
    const double *ground = px->ground + at;
    double *w = pixels_padded(b, work, 0), *v = pixels_padded(b, work, 1), sum = 0, total = 0;
    double *wp = work + 2 * (b->width + 2 * wide) + wide; /* w times profiles, each with zeros on either side */
    double *one = m->row, *pair = one + 2 * nf;
    memset(m->row, 0, nf * (m->band + 2) * sizeof *m->row);
#pragma omp simd reduction(+ : sum, total)
    for (size_t k = 0; k < b->width; k++) {
        w[k] = (double)root[k] * root[k];
        v[k] = w[k] * (data[k] - ground[k]);
        sum += v[k];
        total += w[k];
    }
    m->weight += total;
    m->sum += sum;
    for (size_t i = 0; i < nf; i++) {
        long first;
        const float *p = pixels_profile(b, px, i, r, &first);
        if (p == NULL)
            continue;
        one[2 * i] = pixels_dot(wide, v + first, p);
        one[2 * i + 1] = pixels_product(wide, w + first, p, wp + 3 * i * wide);
    }
    for (size_t i = 0; i < nf; i++) {
        long first, first2;
        const float *p = pixels_profile(b, px, i, r, &first), *q;
        if (p == NULL)
            continue;
        for (size_t j = i; j < nf && j < i + m->band && (q = pixels_profile(b, px, j, r, &first2)) != NULL; j++) {
            const long off = first2 - first;
            if (off <= -(long)wide || off >= (long)wide)
                break;
            pair[i * m->band + j - i] = pixels_dot(wide, wp + 3 * (long)(i * wide) + off, q);
        }
    }
    pixels_add(SPX_PF_SPLINE, power, 2 * nf, one, m->one);
    pixels_add(SPX_PF_PAIR, power, nf * m->band, pair, m->pair);
}

/* Changes of a profile by a shift of a pixel and by half a pixel^2 of variance, d[wide] and s[wide]: differences of its
 * pixels. */
static inline void pixels_change(size_t wide, const float *p, double *d, double *s)
{
    double q[SPX_PF_MOST_WIDE + 2];
    q[0] = q[wide + 1] = 0;
    for (size_t k = 0; k < wide; k++)
        q[k + 1] = p[k];
#pragma omp simd
    for (size_t k = 0; k < wide; k++) {
        d[k] = 0.5 * (q[k] - q[k + 2]);
        s[k] = q[k] - 2 * q[k + 1] + q[k + 2];
    }
}

static void pixels_drift(const spx_pf_bundle *b, const spx_pf_pixels *px, size_t r, const double *light, double *work,
                         double *out)
{
    const size_t nf = b->nf, wide = spx_pf_profile_width(b->p), at = r * b->width;
    const float *root = px->root + at, *data = px->data + at;
    const double *ground = px->ground + at;
    double *w = pixels_padded(b, work, 0), *v = pixels_padded(b, work, 1);
    double d[SPX_PF_MOST_WIDE], s[SPX_PF_MOST_WIDE];
#pragma omp simd
    for (size_t k = 0; k < b->width; k++) {
        w[k] = (double)root[k] * root[k];
        v[k] = w[k] * (data[k] - ground[k] - light[k]);
    }
    for (size_t i = 0; i < nf; i++) {
        long first;
        const float *p = pixels_profile(b, px, i, r, &first);
        double dv = 0, dd = 0, sv = 0, ss = 0;
        if (p != NULL) {
            const double *wf = w + first, *vf = v + first;
            pixels_change(wide, p, d, s);
#pragma omp simd reduction(+ : dv, dd, sv, ss)
            for (size_t k = 0; k < wide; k++) {
                dv += d[k] * vf[k];
                dd += d[k] * d[k] * wf[k];
                sv += s[k] * vf[k];
                ss += s[k] * s[k] * wf[k];
            }
        }
        out[4 * i] = dv;
        out[4 * i + 1] = dd;
        out[4 * i + 2] = sv;
        out[4 * i + 3] = ss;
    }
}

static double pixels_ground(const spx_pf_bundle *b, const spx_pf_pixels *px, size_t r, const double *level,
                            double constant, double *work)
{
    const size_t wide = spx_pf_profile_width(b->p), at = r * b->width;
    const float *data = px->data + at, *root = px->root + at;
    double *row = pixels_padded(b, work, 0), *ground = px->ground + at, *goal = px->goal + at, sum = 0;
    double d[SPX_PF_MOST_WIDE], s[SPX_PF_MOST_WIDE];
    for (size_t k = 0; k < b->width; k++)
        row[k] = constant;
    for (size_t i = 0; i < b->nf; i++) {
        long first;
        const float *p = pixels_profile(b, px, i, r, &first);
        const double by = level[3 * i], by_d = level[3 * i + 1], by_s = level[3 * i + 2];
        if (p == NULL || (by == 0 && by_d == 0 && by_s == 0))
            continue;
        double *to = row + first;
        if (by_d != 0 || by_s != 0) {
            pixels_change(wide, p, d, s);
#pragma omp simd
            for (size_t k = 0; k < wide; k++)
                to[k] += by_d * d[k] + by_s * s[k];
        }
#pragma omp simd
        for (size_t k = 0; k < wide; k++)
            to[k] += by * p[k];
    }
#pragma omp simd reduction(+ : sum)
    for (size_t k = 0; k < b->width; k++) {
        ground[k] = row[k];
        goal[k] = root[k] * (data[k] - row[k]);
        sum += goal[k] * goal[k];
    }
    return sum;
}
