/* Weights of pixels, from the model, and the background of a bundle (psffit/fit.h). */
#include <lapacke.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "calib/bordered.h"
#include "num/blas.h"
#include "num/stat.h"
#include "psffit/step_math.h"

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
    double *light = spx_alloc(width, sizeof *light, e);
    uint8_t *whole = spx_alloc(width, 1, e);
    const int ok = light != NULL && whole != NULL;
    if (ok && b->there != NULL)
        b->p->device->first_weights(b, epsilon);
    for (size_t x = 0; x < b->p->nexp && ok && b->there == NULL; x++) {
        spx_pf_pixels *px = &b->px[x];
        memset(px->rejected, 0, b->p->height * width);
        px->weighed = 0;
        for (size_t r = 0; r < b->p->height; r++) {
            const size_t at = r * width;
            float *median = px->median + at;
            if (r > 0 && r + 1 < b->p->height && width > 2)
                kernels->medians(width, px->data + at, px->noise + at, median, whole);
            else
                memset(whole, 0, width);
            for (size_t c = 0; c < width; c++) {
                if (!whole[c])
                    median[c] = px->noise[at + c] > 0 ? (float)median3x3(b, px, r, c) : 0;
                light[c] = median[c] - px->ground[at + c];
            }
            px->quiet[r] = kernels->weigh(width, px, at, light, epsilon, SPX_PF_ROBUST);
        }
    }
    spx_free(whole);
    spx_free(light);
    return ok ? SPX_OK : SPX_EIO;
}

/* Rejects the pixels above SPX_PF_CLIP of a row, and of those around them the ones above SPX_PF_BESIDE; roots are
 * misfits. */
static void reject(const spx_pf_bundle *b, const spx_pf_pixels *px, size_t r)
{
    const size_t width = b->width;
    for (size_t c = 0; c < width; c++) {
        if (!(px->root[r * width + c] > SPX_PF_CLIP))
            continue;
        px->rejected[r * width + c] = 1;
        for (size_t y = r > 0 ? r - 1 : 0; y <= r + 1 && y < b->p->height; y++)
            for (size_t x = c > 0 ? c - 1 : 0; x <= c + 1 && x < width; x++)
                px->rejected[y * width + x] |= px->root[y * width + x] > SPX_PF_BESIDE;
    }
}

/* Whether a row, or one beside it, has one of these bits. */
static int has_near(const uint8_t *rows, size_t height, size_t r, int bits)
{
    const int near = rows[r] | (r > 0 ? rows[r - 1] : 0) | (r + 1 < height ? rows[r + 1] : 0);
    return (near & bits) != 0;
}

/* Rows whose weights are to be made again: all, or, where nothing but the light of spots has changed, those that have
 * it now or had it then, and those beside them, for the clip. */
static void find_new_rows(spx_pf_pixels *px, size_t height, const uint8_t *lit, double epsilon, int clip)
{
    const int same = px->weighed && px->clip == clip && px->epsilon == epsilon;
    for (size_t r = 0; r < height; r++)
        if (!same || has_near(lit, height, r, 0xff) || has_near(px->rows, height, r, SPX_PF_ROW_LIT))
            px->rows[r] |= SPX_PF_ROW_NEW;
    px->weighed = 1;
    px->clip = clip;
    px->epsilon = epsilon;
}

/* Whether fibres are side by side in a row, from the left (1) or from the right (-1); 0: they are not in order. */
static int order_of(size_t nf, const int32_t *first)
{
    int up = 1, down = 1;
    for (size_t i = 1; i < nf; i++) {
        up &= first[i] > first[i - 1];
        down &= first[i] < first[i - 1];
    }
    return up - down;
}

/* spx_pf_nearest() of a column, from that of one before it: fibres in order are passed one after the other. */
static int nearest_from(int before, int nf, int hx, const int32_t *first, int order, long column)
{
    if (order == 0)
        return spx_pf_nearest(nf, hx, first, column);
    for (int next = before + order; next >= 0 && next < nf; next += order) {
        const long old = labs(first[before] + hx - column), new = labs(first[next] + hx - column);
        if (new > old || (new == old &&next > before))
            break;
        before = next;
    }
    return before;
}

/* Misfits of a row, of a model that is uncertain by a part epsilon of itself, or by what that of the nearest fibre is.
 */
static void row_misfits(const spx_pf_bundle *b, const spx_pf_pixels *px, size_t r, const double *light, double epsilon)
{
    const spx_pf_kernels *kernels = spx_pf_kernels_find();
    const int nf = (int)b->nf, hx = b->p->hx;
    const int32_t *at = px->at + r * b->nf;
    const int order = order_of(b->nf, at);
    int fibre = spx_pf_nearest(nf, hx, at, 0);
    for (size_t c = 0; c < b->width;) { /* pixels of one fibre at a time */
        const size_t first = c++;
        int next = fibre;
        while (c < b->width && (next = nearest_from(fibre, nf, hx, at, order, (long)c)) == fibre)
            c++;
        kernels->misfit(c - first, px, r * b->width + first, light + first, fmax(epsilon, b->doubt[fibre]));
        fibre = next;
    }
}

/* Rejects pixels of an exposure, and weighs their rows again: those that may be far, beside rows with new weights. */
static void clip_rows(const spx_pf_bundle *b, const spx_pf_pixels *px, const double *light, double epsilon)
{
    const spx_pf_kernels *kernels = spx_pf_kernels_find();
    const size_t height = b->p->height, width = b->width;
    for (size_t r = 0; r < height; r++)
        if ((px->rows[r] & SPX_PF_ROW_FAR) && has_near(px->rows, height, r, SPX_PF_ROW_NEW))
            for (size_t y = r > 0 ? r - 1 : 0; y <= r + 1 && y < height; y++) {
                if (!(px->rows[y] & SPX_PF_ROW_MISFITS))
                    row_misfits(b, px, y, light + y * width, epsilon);
                px->rows[y] |= SPX_PF_ROW_MISFITS;
            }
    for (size_t r = 0; r < height; r++)
        if ((px->rows[r] & SPX_PF_ROW_FAR) && has_near(px->rows, height, r, SPX_PF_ROW_NEW))
            reject(b, px, r);
    for (size_t r = 0; r < height; r++)
        if (px->rows[r] & SPX_PF_ROW_MISFITS) {
            int far;
            px->quiet[r] = kernels->weigh_clipped(width, px, r * width, light + r * width, epsilon, &far);
        }
}

void spx_pf_weights(spx_pf_bundle *b, double epsilon, int clip)
{
    const spx_pf_kernels *kernels = spx_pf_kernels_find();
    const size_t height = b->p->height, width = b->width;
    if (b->there != NULL) {
        b->p->device->weights(b, epsilon, clip);
        return;
    }
    for (size_t x = 0; x < b->p->nexp; x++) {
        spx_pf_pixels *px = &b->px[x];
        const double *light = b->now.light + x * height * width;
        const uint8_t *lit = b->now.lit + x * height;
        find_new_rows(px, height, lit, epsilon, clip);
        for (size_t r = 0; r < height; r++) {
            int far = 0;
            if (!(px->rows[r] & SPX_PF_ROW_NEW))
                continue;
            memset(px->rejected + r * width, 0, width);
            px->quiet[r] = clip ? kernels->weigh_clipped(width, px, r * width, light + r * width, epsilon, &far)
                                : kernels->weigh(width, px, r * width, light + r * width, epsilon, SPX_PF_ROBUST);
            px->rows[r] = (uint8_t)(SPX_PF_ROW_NEW | (far ? SPX_PF_ROW_FAR : 0) | (lit[r] ? SPX_PF_ROW_LIT : 0));
        }
        if (clip)
            clip_rows(b, px, light, epsilon);
        for (size_t r = 0; r < height; r++)
            px->rows[r] &= SPX_PF_ROW_LIT | SPX_PF_ROW_FAR;
    }
}

/* Largest of n numbers within `reach` of each, `stride` numbers of a row side by side. */
static void largest_within(size_t n, size_t reach, size_t stride, const float *from, float *to)
{
    memcpy(to, from, n * stride * sizeof *to);
    for (size_t k = 1; k <= reach && k < n; k++) {
        const size_t all = (n - k) * stride, off = k * stride;
#pragma omp simd
        for (size_t c = 0; c < all; c++)
            to[c] = from[c + off] > to[c] ? from[c + off] : to[c];
#pragma omp simd
        for (size_t c = 0; c < all; c++)
            to[c + off] = from[c] > to[c + off] ? from[c] : to[c + off];
    }
}

spx_status spx_pf_soften(spx_pf_bundle *b, double part, spx_err *e)
{
    const size_t height = b->p->height, width = b->width, npix = height * width;
    b->soft = part;
    for (size_t x = 0; x < b->p->nexp; x++)
        b->px[x].weighed = 0;
    if (b->there != NULL) {
        (void)b->p->device->soften(b, part); /* what fails is told in the end */
        return SPX_OK;
    }
    float *light = part > 0 ? spx_alloc(npix, sizeof *light, e) : NULL;
    spx_status st = light != NULL || !(part > 0) ? SPX_OK : SPX_EIO;
    for (size_t x = 0; x < b->p->nexp && st == SPX_OK; x++) {
        spx_pf_pixels *px = &b->px[x];
        spx_free(px->soft);
        px->soft = NULL;
        if (!(part > 0))
            continue;
        if ((px->soft = spx_alloc(npix, sizeof *px->soft, e)) == NULL) {
            st = SPX_EIO;
            break;
        }
        for (size_t k = 0; k < npix; k++)
            px->soft[k] = (float)b->now.light[x * npix + k];
        for (size_t r = 0; r < height; r++)
            largest_within(width, (size_t)b->p->hx, 1, px->soft + r * width, light + r * width);
        largest_within(height, (size_t)b->p->hy, width, light, px->soft);
        for (size_t k = 0; k < npix; k++)
            px->soft[k] = px->noise[k] > 0 ? px->noise[k] + (float)part * px->soft[k] : 0;
    }
    spx_free(light);
    return st;
}

/* Median of t^2 of noise alone, and the standard deviation of that of n, by sqrt n and itself. */
#define MEDIAN_SQUARE  0.4549
#define MEDIAN_SCATTER 2.33

/* The pixels that are bright enough (spx_pf_is_bright()), or every second, fourth ... of them, at most `most`:
 * sample[n] (spx_pf_bright_sample()). Returns n. */
static size_t bright_pixels(const spx_pf_bundle *b, size_t most, double *sample)
{
    enum { EACH = SPX_PF_SAMPLE };
    const size_t height = b->p->height, width = b->width;
    size_t n = 0, seen = 0, step = 1;
    for (size_t x = 0; x < b->p->nexp; x++)
        for (size_t r = 0; r < height; r++)
            for (size_t c = 0; c < width && b->now.lit[x * height + r]; c++) {
                const spx_pf_pixels *px = &b->px[x];
                const size_t k = r * width + c;
                const double light = b->now.light[x * height * width + k], m = px->ground[k] + light;
                if (!spx_pf_is_bright(px->noise[k], m, light) || seen++ % step != 0)
                    continue;
                if (n == most) { /* every second one of these, and of those that come */
                    for (n = 0; n < most / 2; n++)
                        memcpy(sample + EACH * n, sample + 2 * EACH * n, EACH * sizeof *sample);
                    step *= 2;
                }
                const int fibre = spx_pf_nearest((int)b->nf, b->p->hx, px->at + r * b->nf, (long)c);
                spx_pf_bright_sample(px->data[k], px->noise[k], m, fibre, sample + EACH * n++);
            }
    return n;
}

/* Median misfit of the samples of a fibre (-1: of all), in units of that of noise, if the model is uncertain by a part
 * epsilon of itself. *n: in, all samples; out, the fibre's. square: room for all. */
static double misfit_at(const double *sample, int fibre, double epsilon, size_t *n, double *square)
{
    size_t told = 0;
    for (const double *s = sample; s < sample + SPX_PF_SAMPLE * *n; s += SPX_PF_SAMPLE)
        if (fibre < 0 || (int)s[3] == fibre)
            square[told++] = s[0] / (s[1] + epsilon * epsilon * s[2]);
    *n = told;
    return told > 0 ? spx_median(square, told) / MEDIAN_SQUARE : 0;
}

double spx_pf_beyond_noise(const double *sample, size_t n, int fibre, size_t fewest, double sure, double most,
                           double *square)
{
    enum { HALVINGS = 14 };
    double lo = 1e-4, hi = most;
    size_t told = n;
    const double without = misfit_at(sample, fibre, 0, &told, square);
    if (told < fewest || without < 1 + sure * MEDIAN_SCATTER / sqrt((double)told + 1))
        return 0;
    for (int k = 0; k < HALVINGS; k++) { /* in the logarithm */
        const double at = sqrt(lo * hi);
        told = n;
        const int above = misfit_at(sample, fibre, at, &told, square) > 1;
        lo = above ? at : lo;
        hi = above ? hi : at;
    }
    return sqrt(lo * hi);
}

spx_status spx_pf_uncertain(spx_pf_bundle *b, spx_err *e)
{
    enum { MOST = 4096, FEWEST = 100, OF_FIBRE = 30 };
    const double most = 0.01, sure = 4, highest = 0.1;
    double *sample = spx_alloc2(MOST, SPX_PF_SAMPLE + 1, sizeof *sample, e);
    size_t n = 0;
    if (sample == NULL)
        return SPX_EIO;
    double *square = sample + SPX_PF_SAMPLE * MOST;
    if (b->there == NULL)
        n = bright_pixels(b, MOST, sample);
    else
        (void)b->p->device->bright(b, MOST, sample, &n); /* what fails is told in the end */
    const double all = spx_pf_beyond_noise(sample, n, -1, FEWEST, sure, highest, square);
    b->unsure = fmin(all, most);
    for (size_t i = 0; i < b->nf; i++) {
        const double own = spx_pf_beyond_noise(sample, n, (int)i, OF_FIBRE, sure, highest, square);
        size_t told = n;
        b->doubt[i] = all > 0 ? b->unsure * fmax(1, own / all) : fmin(own, most);
        b->swell[i] = own > b->unsure ? sqrt(fmax(1, misfit_at(sample, (int)i, b->unsure, &told, square))) : 1;
    }
    for (size_t x = 0; x < b->p->nexp; x++)
        b->px[x].weighed = 0; /* the clip is another one */
    spx_free(sample);
    return SPX_OK;
}

/* ---- background ---- */

/* What a drift is of before the continuum tells: none, uncertain by this many pixels, and pixels^2. */
#define DRIFT 0.3
/* (drift / error)^2 above which the profiles are made again where the traces are now. */
#define DRIFTED 25.0
enum { CONTINUUM = 1, CHANGES = 2 };

/* Pieces of the B-splines: coefficients of 1, t, t^2, t^3. */
static const double piece[SPX_PF_SPLINE][SPX_PF_SPLINE] = {
    {1.0 / 6, -0.5, 0.5, -1.0 / 6}, {2.0 / 3, 0, -1, 0.5}, {1.0 / 6, 0.5, 0.5, -0.5}, {0, 0, 0, 1.0 / 6}};

void spx_pf_splines(const spx_pf_bundle *b, size_t r, size_t *first, double *value)
{
    double t;
    *first = spx_pf_interval(b->nknot, b->p->height, r, &t);
    spx_pf_spline_values(t, value);
}

/* Levels of each fibre's profile and its changes in a row, level[nf][3]. drifts: there are any. */
static void levels(const spx_pf_bundle *b, const spx_pf_pixels *px, size_t r, int drifts, double *level)
{
    size_t first;
    double value[SPX_PF_SPLINE];
    const double t = spx_pf_row_at(b->p->height, r);
    spx_pf_splines(b, r, &first, value);
    for (size_t i = 0; i < b->nf; i++) {
        const double *coef = px->coef + i * b->nknot + first, *drift = px->drift + 6 * i;
        double c = 0;
        for (size_t k = 0; k < SPX_PF_SPLINE; k++)
            c += coef[k] * value[k];
        level[3 * i] = c;
        if (!drifts)
            continue;
        level[3 * i + 1] = c * (drift[0] + t * (drift[1] + t * drift[2]));
        level[3 * i + 2] = c * (drift[3] + t * (drift[4] + t * drift[5]));
    }
}

static int has_drift(const spx_pf_bundle *b, const spx_pf_pixels *px)
{
    int any = 0;
    for (size_t k = 0; k < 6 * b->nf; k++)
        any |= px->drift[k] != 0;
    return any;
}

/* Background of an exposure from its coefficients, of the parts that are asked for, and the goal; work: room for rows
 * and levels. */
static void fill_ground(spx_pf_bundle *b, spx_pf_pixels *px, int parts, double *work)
{
    const spx_pf_kernels *kernels = spx_pf_kernels_find();
    px->whole = parts == (CONTINUUM | CHANGES);
    px->weighed = 0;
    if (b->there != NULL) {
        b->p->device->ground(b, (size_t)(px - b->px), (parts & CONTINUUM) != 0, (parts & CHANGES) != 0);
        return;
    }
    double *level = work, *rows = work + 4 * b->nf;
    const int drifts = has_drift(b, px), none = (parts & CONTINUUM) == 0 && !drifts;
    memset(level, 0, 3 * b->nf * sizeof *level);
    for (size_t r = 0; r < b->p->height; r++) {
        if (!none)
            levels(b, px, r, drifts, level);
        for (size_t i = 0; i < b->nf && (drifts || (parts & CONTINUUM) == 0); i++) {
            level[3 * i] *= (parts & CONTINUUM) != 0;
            level[3 * i + 1] *= (parts & CHANGES) != 0;
            level[3 * i + 2] *= (parts & CHANGES) != 0;
        }
        px->quiet[r] = kernels->ground(b, px, r, level, parts & CONTINUUM ? px->coef[b->nf * b->nknot] : 0, rows);
    }
}

/* Room for four numbers of each fibre, two rows with a profile's width on either side, and a profile of each fibre with
 * the same. */
static size_t room_for_rows(const spx_pf_bundle *b)
{
    return 4 * b->nf + 2 * (b->width + 2 * spx_pf_profile_width(b->p)) + 3 * b->nf * spx_pf_profile_width(b->p);
}

void spx_pf_take_background(const spx_pf_bundle *b, size_t x, double *out)
{
    const size_t n = spx_pf_nground(b);
    memcpy(out, b->px[x].coef, n * sizeof *out);
    for (size_t k = 0; k < 6 * b->nf; k++)
        out[n - 6 * b->nf + k] += b->px[x].own[k];
}

spx_status spx_pf_put_background(spx_pf_bundle *b, const double *coef, spx_err *e)
{
    const size_t n = spx_pf_nground(b);
    double *work = spx_alloc(room_for_rows(b), sizeof *work, e);
    if (work == NULL)
        return SPX_EIO;
    for (size_t x = 0; x < b->p->nexp; x++) {
        memcpy(b->px[x].coef, coef + x * n, n * sizeof *coef);
        fill_ground(b, &b->px[x], CONTINUUM | CHANGES, work);
    }
    spx_free(work);
    return SPX_OK;
}

/* Sums of every step-th row for the drift of each fibre, sums[nf][2][8]: w c^2 d^2 t^k (k < 5), w c d v t^k (k < 3),
 * and the same of s (kernels->drift). */
static void drift_sums(spx_pf_bundle *b, size_t x, size_t step, double *sums, double *work)
{
    const spx_pf_kernels *kernels = spx_pf_kernels_find();
    if (b->there != NULL) {
        if (!b->p->device->drift(b, x, step, sums))
            memset(sums, 0, 16 * b->nf * sizeof *sums);
        return;
    }
    const spx_pf_pixels *px = &b->px[x];
    const size_t nf = b->nf, height = b->p->height;
    double *level = work, *rows = work + 4 * nf;
    memset(sums, 0, 16 * nf * sizeof *sums);
    for (size_t r = step / 2; r < height; r += step) {
        size_t first;
        double value[SPX_PF_SPLINE];
        const double t = spx_pf_row_at(b->p->height, r);
        spx_pf_splines(b, r, &first, value);
        kernels->drift(b, px, r, b->now.light + (x * height + r) * b->width, rows, level);
        for (size_t i = 0; i < nf; i++) {
            double c = 0, power = 1;
            for (size_t k = 0; k < SPX_PF_SPLINE; k++)
                c += px->coef[i * b->nknot + first + k] * value[k];
            for (size_t k = 0; k < 5; k++, power *= t)
                for (size_t s = 0; s < 2; s++) {
                    double *to = sums + 16 * i + 8 * s;
                    to[k] += power * c * c * level[4 * i + 2 * s + 1];
                    if (k < 3)
                        to[5 + k] += power * c * level[4 * i + 2 * s];
                }
        }
    }
}

/* The drift of an exposure: how far the continuum of each fibre lies from its profile, and how much wider it is,
 * quadratics of the row, from what continuum and spots leave. Traces follow lines, which are sharper; while they are on
 * their way a strong continuum, misplaced, would push them too far. *far: largest (drift / error)^2. A continuum too
 * weak for a drift to be more than noise has none. sums[nf][16]: room. */
static void find_drift(spx_pf_bundle *b, size_t x, double *sums, double *work, double *far)
{
    enum { SAMPLE = 16 };
    spx_pf_pixels *px = &b->px[x];
    const size_t nf = b->nf;
    double most = 0;
    px->whole &= !has_drift(b, px);
    memset(px->drift, 0, 6 * nf * sizeof *px->drift);
    drift_sums(b, x, SAMPLE, sums, work);
    for (size_t i = 0; i < 2 * nf; i++)
        most = fmax(most, SAMPLE * sums[8 * i]);
    if (most * DRIFT * DRIFT < DRIFTED)
        return;
    fill_ground(b, px, CONTINUUM, work);
    drift_sums(b, x, 1, sums, work);
    for (size_t i = 0; i < 2 * nf; i++) {
        const double *s = sums + 8 * i;
        double a[9], q[3];
        for (size_t k = 0; k < 3; k++) {
            for (size_t l = 0; l < 3; l++)
                a[3 * k + l] = s[k + l];
            a[4 * k] += 1 / (DRIFT * DRIFT);
            q[k] = s[5 + k];
        }
        if (!spx_small_factor(3, a))
            continue;
        spx_small_solve(3, a, q);
        memcpy(px->drift + 3 * i, q, sizeof q);
        const double ratio = q[0] * s[5] + q[1] * s[6] + q[2] * s[7];
        if (i % 2 == 0)
            px->drifts[i / 2] |= ratio > DRIFTED;
        *far = fmax(*far, ratio);
    }
}

/* Adds the moments of an interval of the B-splines to the border, and clears them. */
static void end_interval(const spx_pf_bundle *b, size_t q, spx_pf_moments *m, spx_pf_border *to)
{
    enum { N = SPX_PF_SPLINE };
    const size_t nf = b->nf;
    for (size_t i = 0; i < nf; i++) {
        double one[2][N], pair[SPX_PF_PAIR];
        for (size_t l = 0; l < 2 * N; l++)
            one[l / N][l % N] = m->one[(l % N * nf + i) * 2 + l / N];
        for (size_t k = 0; k < N; k++)
            for (size_t l = 0; l < N; l++) {
                to->rhs[(q + k) * nf + i] += piece[k][l] * one[0][l];
                to->rhs[to->n + (q + k) * nf + i] += piece[k][l] * one[1][l];
            }
        for (size_t j = i; j < nf && j < i + m->band; j++) {
            for (size_t l = 0; l < SPX_PF_PAIR; l++)
                pair[l] = m->pair[(l * nf + i) * m->band + j - i];
            for (size_t k = 0; k < N; k++)
                for (size_t l = j == i ? k : 0; l < N; l++) {
                    const size_t one_at = (q + k) * nf + i, other = (q + l) * nf + j;
                    const size_t row = one_at < other ? one_at : other, column = one_at < other ? other : one_at;
                    double sum = 0;
                    for (size_t s = 0; s < N; s++)
                        for (size_t t = 0; t < N; t++)
                            sum += piece[k][s] * piece[l][t] * pair[s + t];
                    to->a[row * (to->band + 1) + column - row] += sum;
                }
        }
    }
    memset(m->pair, 0, SPX_PF_PAIR * m->band * nf * sizeof *m->pair);
    memset(m->one, 0, 2 * N * nf * sizeof *m->one);
}

/* Normal equations of continuum and constant of an exposure, without spots. SPX_EIO: memory. */
static spx_status background_matrix(spx_pf_bundle *b, size_t x, double *work, spx_pf_border *to, spx_err *e)
{
    const spx_pf_kernels *kernels = spx_pf_kernels_find();
    const spx_pf_pixels *px = &b->px[x];
    const size_t nf = b->nf, height = b->p->height;
    spx_pf_moments m = {.band = px->overlap};
    const size_t npair = SPX_PF_PAIR * m.band * nf, none = 2 * SPX_PF_SPLINE * nf;
    double *room = spx_alloc(npair + none + nf * (m.band + 2), sizeof *room, e), power[SPX_PF_PAIR] = {1};
    if (room == NULL)
        return SPX_EIO;
    m.pair = room;
    m.one = room + npair;
    m.row = m.one + none;
    memset(to->a, 0, to->n * (to->band + 1) * sizeof *to->a);
    memset(to->rhs, 0, 2 * to->n * sizeof *to->rhs);
    size_t q = 0;
    for (size_t r = 0; r < height; r++) {
        double t;
        const size_t now = spx_pf_interval(b->nknot, height, r, &t);
        if (now > q)
            end_interval(b, q, &m, to);
        q = now;
        for (size_t k = 1; k < SPX_PF_PAIR; k++)
            power[k] = power[k - 1] * t;
        kernels->moments(b, px, r, power, work, &m);
    }
    end_interval(b, q, &m, to);
    to->corner = m.weight;
    to->level = m.sum;
    spx_free(room);
    return SPX_OK;
}

static void border_free(spx_pf_border *k)
{
    spx_free(k->a);
    spx_free(k->product);
    spx_free(k->at);
}

static spx_status border_new(const spx_pf_bundle *b, spx_pf_border *to, spx_err *e)
{
    const size_t n = b->nf * b->nknot;
    *to = (spx_pf_border){.n = n, .band = SPX_PF_SPLINE * b->nf};
    size_t most = 0;
    if ((to->at = spx_alloc(b->ngroup + 1, sizeof *to->at, e)) == NULL)
        return SPX_EIO;
    for (size_t x = 0; x < b->p->nexp; x++) {
        for (size_t k = 0; k < b->ngroup; k++) {
            size_t first;
            const spx_pf_group *g = &b->group[k];
            const size_t m = b->nf * spx_pf_border_splines(b, x, g, &first);
            to->at[k + 1] = to->at[k] + (g->last - g->first) * b->nf * (m + 1);
            to->band = m > to->band ? m : to->band;
        }
        most = to->at[b->ngroup] > most ? to->at[b->ngroup] : most;
    }
    if ((to->a = spx_alloc2(n, to->band + 1 + 5, sizeof *to->a, e)) == NULL)
        return SPX_EIO;
    to->rhs = to->a + n * (to->band + 1);
    to->column = to->rhs + 2 * n;
    to->product = spx_alloc_unset(most + 1, 1, sizeof *to->product, e);
    return to->product != NULL ? SPX_OK : SPX_EIO;
}

/* Makes the drift that was found one of the profiles themselves, whose shape becomes that of spots. Their places do not
 * follow the spots': a line would be pushed aside by its own continuum, and that after it; shapes follow half-way. */
static spx_status own_drift(spx_pf_bundle *b, spx_err *e)
{
    for (size_t x = 0; x < b->p->nexp; x++)
        for (size_t k = 0; k < 6 * b->nf; k++) {
            b->px[x].own[k] += b->px[x].drift[k];
            b->px[x].drift[k] = 0;
        }
    for (size_t k = b->shape0; k < b->ntheta; k++)
        b->base[k] += 0.5 * (b->now.theta[k] - b->base[k]);
    return spx_pf_profiles(b, e);
}

/* Background of an exposure from the coefficients that were found, changes of those at hand where it is whole. 0: they
 * are not finite. */
static int take_coefficients(const spx_pf_bundle *b, spx_pf_pixels *px, const double *found)
{
    int ok = 1;
    for (size_t k = 0; k <= b->nf * b->nknot; k++) {
        px->coef[k] = px->whole ? px->coef[k] + found[k] : found[k];
        ok &= isfinite(px->coef[k]) != 0;
    }
    return ok;
}

/* Background and fluxes of all exposures by a device. *ok 0: no solution. SPX_EIO: memory. work: room. */
static spx_status background_there(spx_pf_bundle *b, double *work, int *ok, spx_err *e)
{
    const size_t n = b->nf * b->nknot + 1;
    double *found = spx_alloc2(b->p->nexp, n, sizeof *found, e);
    if (found == NULL)
        return SPX_EIO;
    for (size_t x = 0; x < b->p->nexp; x++)
        if (!b->px[x].whole)
            fill_ground(b, &b->px[x], CHANGES, work);
    *ok = b->p->device->background(b, found);
    for (size_t x = 0; x < b->p->nexp && *ok; x++) {
        *ok = take_coefficients(b, &b->px[x], found + x * n);
        b->px[x].whole = 1;
    }
    spx_free(found);
    return SPX_OK;
}

/* The same by the host. rows, out: room. */
static spx_status background_here(spx_pf_bundle *b, double *work, double *rows, double *out, int *ok, spx_err *e)
{
    spx_pf_border border = {0};
    spx_status st = border_new(b, &border, e);
    for (size_t x = 0; x < b->p->nexp && st == SPX_OK && *ok; x++) {
        spx_pf_pixels *px = &b->px[x];
        if (!px->whole)
            fill_ground(b, px, CHANGES, work);
        st = background_matrix(b, x, rows, &border, e);
        if (st != SPX_OK)
            break;
        /* the constant's element is the largest: profiles are below 1, and of some pixels */
        for (size_t k = 0; k < border.n; k++)
            border.a[k * (border.band + 1)] = spx_pf_border_floor(border.a[k * (border.band + 1)], border.corner);
        border.corner = spx_pf_border_floor(border.corner, border.corner);
        *ok = spx_pf_bordered(b, x, &border, out) && take_coefficients(b, px, out);
        if (*ok)
            fill_ground(b, px, CONTINUUM | CHANGES, work);
    }
    if (st == SPX_OK && *ok)
        spx_pf_draw(b, &b->now);
    border_free(&border);
    return st;
}

spx_status spx_pf_background(spx_pf_bundle *b, int *ok, spx_err *e)
{
    const size_t room = room_for_rows(b);
    double *work = spx_alloc(room + 16 * b->nf + spx_pf_nground(b), sizeof *work, e), far = 0;
    const double before = b->now.chi2;
    if (work == NULL)
        return SPX_EIO;
    double *sums = work + room, *out = sums + 16 * b->nf;
    spx_status st = SPX_OK;
    *ok = 1;
    for (size_t x = 0; x < b->p->nexp; x++)
        find_drift(b, x, sums, work, &far);
    for (int again = 0; again < 2 && st == SPX_OK && far > DRIFTED; again++) {
        far = 0;
        st = own_drift(b, e);
        for (size_t x = 0; x < b->p->nexp && st == SPX_OK; x++)
            find_drift(b, x, sums, work, &far);
    }
    if (st == SPX_OK)
        st = b->there != NULL ? background_there(b, work, ok, e)
                              : background_here(b, work, work + 4 * b->nf, out, ok, e);
    if (st == SPX_OK && *ok)
        b->calm = before > 0 ? 1 - b->now.chi2 / before : 0;
    spx_free(work);
    return st;
}
