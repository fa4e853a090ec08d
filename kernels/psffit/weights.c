/* Weights of pixels, from the model, and the background of a bundle (psffit/fit.h). */
#include <lapacke.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "num/blas.h"
#include "psffit/fit.h"

/* Robust weights fall as (ROBUST / |t|)^2; the hard clip takes |t| > CLIP, and neighbours of these above BESIDE. */
#define ROBUST 4.0
#define CLIP   6.0
#define BESIDE 2.0

double spx_pf_variance(const spx_pf_bundle *b, size_t x, size_t k, double epsilon)
{
    const spx_pf_pixels *px = &b->px[x];
    return spx_pf_noise(px->noise[k], px->ground[k] + b->now.light[x * b->p->height * b->width + k], epsilon * epsilon);
}

/* Median of the pixels around one, itself among them, without those that are masked or beyond the bundle. */
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
    for (int i = 1; i < n; i++)
        for (int j = i; j > 0 && v[j] < v[j - 1]; j--) {
            const float t = v[j];
            v[j] = v[j - 1];
            v[j - 1] = t;
        }
    return n == 0 ? 0 : n % 2 ? v[n / 2] : 0.5 * ((double)v[n / 2 - 1] + v[n / 2]);
}

spx_status spx_pf_first_weights(spx_pf_bundle *b, double epsilon, spx_err *e)
{
    const spx_pf_kernels *kernels = spx_pf_kernels_find();
    const size_t width = b->width;
    float *median = spx_alloc(width, sizeof *median, e);
    double *light = spx_alloc(width, sizeof *light, e);
    uint8_t *whole = spx_alloc(width, 1, e);
    const int ok = median != NULL && light != NULL && whole != NULL;
    for (size_t x = 0; x < b->p->nexp && ok; x++) {
        const spx_pf_pixels *px = &b->px[x];
        memset(px->rejected, 0, b->p->height * width);
        for (size_t r = 0; r < b->p->height; r++) {
            const size_t at = r * width;
            if (r > 0 && r + 1 < b->p->height && width > 2)
                kernels->medians(width, px->data + at, px->noise + at, median, whole);
            else
                memset(whole, 0, width);
            for (size_t c = 0; c < width; c++)
                light[c] = (whole[c]                ? (double)median[c]
                            : px->noise[at + c] > 0 ? median3x3(b, px, r, c)
                                                    : 0) -
                           px->ground[at + c];
            px->quiet[r] = kernels->weigh(width, px, at, light, epsilon, ROBUST);
        }
    }
    spx_free(whole);
    spx_free(median);
    spx_free(light);
    return ok ? SPX_OK : SPX_EIO;
}

/* Rejects the pixels above CLIP of a row, and of those around them the ones above BESIDE; roots are misfits. */
static void reject(const spx_pf_bundle *b, const spx_pf_pixels *px, size_t r)
{
    const size_t width = b->width;
    for (size_t c = 0; c < width; c++) {
        if (!(px->root[r * width + c] > CLIP))
            continue;
        px->rejected[r * width + c] = 1;
        for (size_t y = r > 0 ? r - 1 : 0; y <= r + 1 && y < b->p->height; y++)
            for (size_t x = c > 0 ? c - 1 : 0; x <= c + 1 && x < width; x++)
                px->rejected[y * width + x] |= px->root[y * width + x] > BESIDE;
    }
}

void spx_pf_weights(spx_pf_bundle *b, double epsilon, int clip)
{
    const spx_pf_kernels *kernels = spx_pf_kernels_find();
    const size_t height = b->p->height, width = b->width;
    for (size_t x = 0; x < b->p->nexp; x++) {
        const spx_pf_pixels *px = &b->px[x];
        const double *light = b->now.light + x * height * width;
        memset(px->rejected, 0, height * width);
        for (size_t r = 0; clip && r < height; r++) /* the largest misfit of a row in the place of its sum */
            px->quiet[r] = kernels->misfit(width, px, r * width, light + r * width, epsilon);
        for (size_t r = 0; clip && r < height; r++)
            if (px->quiet[r] > CLIP)
                reject(b, px, r);
        for (size_t r = 0; r < height; r++)
            px->quiet[r] = kernels->weigh(width, px, r * width, light + r * width, epsilon, clip ? 0 : ROBUST);
    }
}

/* ---- background ---- */

/* Powers 0 to 4 of the row on [-1, 1]. */
static void row_powers(size_t r, size_t height, double *t)
{
    t[0] = 1;
    t[1] = 2 * (double)r / (double)(height > 1 ? height - 1 : 1) - 1;
    for (int k = 2; k < 5; k++)
        t[k] = t[k - 1] * t[1];
}

/* Background of an exposure from its coefficients, and the goal; work: room for a row. */
static void fill_ground(const spx_pf_bundle *b, const spx_pf_pixels *px, double *work)
{
    const spx_pf_kernels *kernels = spx_pf_kernels_find();
    double t[5];
    for (size_t r = 0; r < b->p->height; r++) {
        row_powers(r, b->p->height, t);
        px->quiet[r] = kernels->ground(b, px, r, t, work);
    }
}

/* Room for two rows with a profile's width on either side, and a profile of each fibre with the same. */
static size_t room_for_rows(const spx_pf_bundle *b)
{
    return 2 * (b->width + 2 * spx_pf_profile_width(b->p)) + 3 * b->nf * spx_pf_profile_width(b->p);
}

spx_status spx_pf_put_background(spx_pf_bundle *b, const double *coef, spx_err *e)
{
    const size_t n = 3 * b->nf + 1;
    double *work = spx_alloc(room_for_rows(b), sizeof *work, e);
    if (work == NULL)
        return SPX_EIO;
    for (size_t x = 0; x < b->p->nexp; x++) {
        memcpy(b->px[x].coef, coef + x * n, n * sizeof *coef);
        fill_ground(b, &b->px[x], work);
    }
    spx_free(work);
    return SPX_OK;
}

/* Fibres, itself among them, that the profile of one overlaps in any row on the side of higher numbers. */
static size_t overlapping(const spx_pf_bundle *b, const spx_pf_pixels *px)
{
    const long wide = (long)spx_pf_profile_width(b->p);
    size_t most = 1;
    for (size_t r = 0; r < b->p->height; r++)
        for (size_t i = r * b->nf; i < (r + 1) * b->nf; i++)
            while (i + most < (r + 1) * b->nf && labs(px->at[i + most] - px->at[i]) < wide)
                most++;
    return most;
}

static double sum_of(const double *lane)
{
    double sum = 0;
    for (int k = 0; k < SPX_PF_LANES; k++)
        sum += lane[k];
    return sum;
}

/* Normal equations of the background of an exposure, upper triangle a[n][n], rhs[n]. SPX_EIO: memory. */
static spx_status background_matrix(const spx_pf_bundle *b, size_t x, double *work, double *a, double *rhs, spx_err *e)
{
    enum { LANES = SPX_PF_LANES };
    const spx_pf_kernels *kernels = spx_pf_kernels_find();
    const spx_pf_pixels *px = &b->px[x];
    const size_t nf = b->nf, n = 3 * nf + 1, height = b->p->height;
    spx_pf_moments m = {.band = overlapping(b, px)};
    const size_t npair = 5 * m.band * nf * LANES, none = 6 * nf * LANES;
    double *room = spx_alloc(npair + none, sizeof *room, e), t[5];
    if (room == NULL)
        return SPX_EIO;
    m.pair = room;
    m.one = room + npair;
    for (size_t r = 0; r < height; r++) {
        row_powers(r, height, t);
        kernels->moments(b, px, r, b->now.light + (x * height + r) * b->width, t, work, &m);
    }
    memset(a, 0, n * n * sizeof *a);
    for (size_t i = 0; i < nf; i++)
        for (size_t l = 0; l < 3; l++) {
            rhs[3 * i + l] = sum_of(m.one + (6 * i + l) * LANES);
            a[(3 * i + l) * n + n - 1] = sum_of(m.one + (6 * i + 3 + l) * LANES);
            for (size_t j = i; j < nf && j < i + m.band; j++)
                for (size_t k = 0; k < 3; k++)
                    a[(3 * i + l) * n + 3 * j + k] = sum_of(m.pair + (5 * (i * m.band + j - i) + l + k) * LANES);
        }
    a[n * n - 1] = m.weight;
    rhs[n - 1] = m.sum;
    spx_free(room);
    return SPX_OK;
}

spx_status spx_pf_background(spx_pf_bundle *b, int *ok, spx_err *e)
{
    const size_t nf = b->nf, n = 3 * nf + 1;
    double *a = spx_alloc(n * (n + 1) + room_for_rows(b), sizeof *a, e);
    spx_status st = a != NULL ? SPX_OK : SPX_EIO;
    *ok = 1;
    for (size_t x = 0; x < b->p->nexp && st == SPX_OK && *ok; x++) {
        double *rhs = a + n * n, *work = rhs + n, most = 0;
        if ((st = background_matrix(b, x, work, a, rhs, e)) != SPX_OK)
            break;
        for (size_t k = 0; k < n; k++)
            most = fmax(most, a[k * n + k]);
        for (size_t k = 0; k < n; k++)
            a[k * n + k] += 1e-8 * most + 1e-30;
        /* the upper triangle in rows is the lower one in columns */
        *ok = LAPACKE_dposv(LAPACK_COL_MAJOR, 'L', (lapack_int)n, 1, a, (lapack_int)n, rhs, (lapack_int)n) == 0;
        for (size_t k = 0; k < n && *ok; k++)
            *ok = isfinite(rhs[k]);
        if (*ok) {
            memcpy(b->px[x].coef, rhs, n * sizeof *rhs);
            fill_ground(b, &b->px[x], work);
        }
    }
    spx_free(a);
    return st;
}
