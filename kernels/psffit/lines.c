/* What the residuals say of lines: wavelengths that are listed wrong, and light that is not listed (psffit/fit.h). */
#include <lapacke.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "num/blas.h"
#include "num/stat.h"
#include "psf/psf_math.h"
#include "psffit/fit.h"

#define BRIGHT 10.0
/* Light that no line explains: its S/N in a fibre, how far its wavelengths in different fibres may differ (Angstrom,
 * and pixels), and its part of the flux of a line so near that their spots touch, of whose misfit it may be. */
#define UNLISTED_SN     10.0
#define UNLISTED_APART  0.2
#define UNLISTED_PIXELS 0.35
#define UNLISTED_PART   0.05

/* dY/dlambda of a fibre, pixels an Angstrom. */
static double slope(const spx_pf_bundle *b, size_t i, double wave)
{
    const double h = 1e-4 * (b->p->wmax - b->p->wmin);
    double x, lo, hi;
    spx_pf_place(b, b->now.theta, i, wave - h, &x, &lo);
    spx_pf_place(b, b->now.theta, i, wave + h, &x, &hi);
    return (hi - lo) / (2 * h);
}

/* root f dS/dY dY/dlambda of a spot over the pixels of a window, two; one: room. */
static void derive(const spx_pf_bundle *b, size_t x, size_t line, size_t i, double *one, double *two)
{
    const spx_pf_plan *p = b->p;
    const size_t npix = (size_t)p->nx * (size_t)p->ny, s = (x * b->nl + line) * b->nf + i;
    const spx_pf_at *at = &b->now.at[s];
    const double *spot = b->now.spot + s * npix;
    double *const stamp[SPX_PF_STAMPS] = {[SPX_PF_BY_X] = one, [SPX_PF_BY_Y] = two};
    spx_pf_kernels_find()->derive(p, 0, at, b->now.gx + s * (size_t)(p->norder * p->nx),
                                  b->now.gy + s * (size_t)(p->norder * p->ny), b->now.c + s * (size_t)p->nc, spot,
                                  b->now.flux[s], b->px[x].root, at->yc * (long)b->width + at->xc, b->width, stamp,
                                  NULL);
    const double by = slope(b, i, spx_pf_wave(b, &b->now, &b->line[line]));
    for (size_t k = 0; k < npix; k++)
        two[k] *= by;
}

/* Fluxes of a line's group. */
static size_t fluxes_of(const spx_pf_bundle *b, size_t line)
{
    const spx_pf_group *g = &b->group[b->line[line].group];
    return (g->last - g->first) * b->nf;
}

/* Derivative of all spots of a line in an exposure by its wavelength, as an image of the bundle: its square, its
 * gradient, and its products with the spots of the group, rhs. work: image of the bundle; one, two: room. */
static void by_wavelength(const spx_pf_bundle *b, size_t x, size_t line, double *work, double *rhs, double *one,
                          double *two, double *info, double *gradient)
{
    const spx_pf_plan *p = b->p;
    const spx_pf_group *g = &b->group[b->line[line].group];
    const size_t n = fluxes_of(b, line), base = x * b->nl * b->nf;
    const double *light = b->now.light + x * p->height * b->width;
    *info = *gradient = 0;
    for (int put = 1; put >= 0; put--) /* into the image; then out of it again */
        for (size_t i = 0; i < b->nf; i++) {
            const spx_pf_at *at = &b->now.at[base + line * b->nf + i];
            if (put)
                derive(b, x, line, i, one, two);
            for (int r = at->y0; r < at->y1; r++)
                for (int c = at->x0; c < at->x1; c++) {
                    const size_t k = (size_t)((at->yc + r) * (long)b->width + at->xc + c);
                    if (put) {
                        work[k] += two[r * p->nx + c];
                        *gradient += two[r * p->nx + c] * (b->px[x].goal[k] - b->px[x].root[k] * light[k]);
                    } else {
                        *info += work[k] * work[k];
                        work[k] = 0;
                    }
                }
            if (put && i + 1 == b->nf) {
                for (size_t s = 0; s < n; s++) {
                    const spx_pf_at *of = &b->now.at[base + g->first * b->nf + s];
                    const double *spot = b->now.spot + (base + g->first * b->nf + s) * (size_t)(p->nx * p->ny);
                    rhs[s] = 0;
                    for (int r = of->y0; r < of->y1; r++)
                        for (int c = of->x0; c < of->x1; c++) {
                            const size_t k = (size_t)((of->yc + r) * (long)b->width + of->xc + c);
                            rhs[s] += b->px[x].root[k] * spot[r * p->nx + c] * work[k];
                        }
                }
            }
        }
}

/* Adds what a line says of its wavelength in an exposure, with the fluxes of its group eliminated: info, gradient and
 * rhs of by_wavelength(). 0: no solution. */
static int add_line(const spx_pf_bundle *b, size_t x, size_t line, double info, double gradient, double *rhs,
                    spx_pf_line_news *to)
{
    const spx_pf_group *g = &b->group[b->line[line].group];
    const size_t n = fluxes_of(b, line);
    if (LAPACKE_dtrtrs(LAPACK_COL_MAJOR, 'L', 'N', 'N', (lapack_int)n, 1, b->now.factor + x * b->nfactor + g->factor,
                       (lapack_int)n, rhs, (lapack_int)n) != 0)
        return 0;
    for (size_t s = 0; s < n; s++)
        info -= rhs[s] * rhs[s];
    if (info > 0 && isfinite(info) && isfinite(gradient)) {
        to->info += info;
        to->gradient += gradient;
    }
    return 1;
}

/* Products of by_wavelength() of all lines and exposures by a device: info and gradient of each spot,
 * [nexp][nl][nf][2], and right-hand sides, [nexp][each]. 0: there are none. */
static int wavelengths_there(spx_pf_bundle *b, size_t each, double *spot, double *rhs)
{
    const size_t n = b->nl * b->nf;
    double *by = spot + 2 * b->p->nexp * n;
    int ok = 1;
    for (size_t k = 0; k < n; k++)
        by[k] = slope(b, k % b->nf, spx_pf_wave(b, &b->now, &b->line[k / b->nf]));
    for (size_t x = 0; x < b->p->nexp && ok; x++)
        ok = b->p->device->wavelengths(b, x, by, spot + 2 * x * n, rhs + x * each);
    return ok;
}

spx_status spx_pf_line_steps(spx_pf_bundle *b, size_t nline, spx_pf_line_news *news, spx_err *e)
{
    const spx_pf_plan *p = b->p;
    const size_t npix = (size_t)p->nx * (size_t)p->ny, n = b->nl * b->nf;
    const int there = b->there != NULL;
    size_t each = 0, before = 0;
    for (size_t l = 0; l < b->nl; l++)
        each += fluxes_of(b, l);
    double *work = there ? spx_alloc_unset((2 * p->nexp + 1) * n + 1, 1, sizeof *work, e)
                         : spx_alloc2(p->height, b->width, sizeof *work, e);
    double *rhs = spx_alloc((there ? p->nexp * each : n) + 2 * npix, sizeof *rhs, e);
    double *variance = spx_alloc(b->nspot + 1, sizeof *variance, e);
    spx_status st = work != NULL && rhs != NULL && variance != NULL ? SPX_OK : SPX_EIO;
    if (st == SPX_OK && spx_pf_flux_variance(b, variance) && (!there || wavelengths_there(b, each, work, rhs)))
        for (size_t l = 0; l < b->nl; l++) {
            spx_pf_line_news *to = &news[b->line[l].row];
            const double offset = spx_pf_wave(b, &b->now, &b->line[l]) - b->line[l].wave;
            for (size_t x = 0; x <= p->nexp; x++)
                to[x * nline] = (spx_pf_line_news){.offset = offset};
            for (size_t i = 0; i < b->nf; i++) {
                int seen = 0, bright = 0;
                for (size_t x = 0; x < p->nexp; x++) {
                    const size_t s = (x * b->nl + l) * b->nf + i;
                    spx_pf_line_news *one = &to[(1 + x) * nline];
                    if (b->now.at[s].y0 == b->now.at[s].y1 || !(variance[s] > 0) ||
                        fabs(b->now.at[s].y - 0.5 * (double)p->height) > 0.5 * (double)p->height)
                        continue;
                    seen = 1;
                    one->nseen++;
                    if (b->now.flux[s] > BRIGHT * sqrt(variance[s])) {
                        bright = 1;
                        one->nbright++;
                        one->power += b->now.flux[s] * b->now.flux[s] / variance[s];
                    }
                }
                to->nseen += seen;
                to->nbright += bright;
            }
            for (size_t x = 0; x < p->nexp && 2 * to->nbright >= to->nseen && to->nseen > 0; x++) {
                spx_pf_line_news *one = &to[(1 + x) * nline];
                double info = 0, gradient = 0, *of = there ? rhs + x * each + before : rhs;
                for (size_t i = 0; i < b->nf && there; i++) {
                    info += work[2 * (x * n + l * b->nf + i)];
                    gradient += work[2 * (x * n + l * b->nf + i) + 1];
                }
                if (!there)
                    by_wavelength(b, x, l, work, rhs, rhs + n, rhs + n + npix, &info, &gradient);
                if (!add_line(b, x, l, info, gradient, of, one))
                    break;
                to->info += one->info;
                to->gradient += one->gradient;
                to->power += one->power;
            }
            before += fluxes_of(b, l);
        }
    spx_free(work);
    spx_free(rhs);
    spx_free(variance);
    return st;
}

/* ---- light that is not listed ---- */

typedef struct {
    double wave;
    size_t fibre;
} peak;

static int by_wave(const void *a, const void *b)
{
    const double x = ((const peak *)a)->wave, y = ((const peak *)b)->wave;
    return (x > y) - (x < y);
}

/* Flux of the brightest line whose spot touches a row of a fibre. */
static double line_near(const spx_pf_bundle *b, size_t i, double row)
{
    double most = 0;
    for (size_t k = 0; k < b->p->nexp * b->nl; k++) {
        const spx_pf_at *at = &b->now.at[k * b->nf + i];
        if (fabs(at->y - row) < b->p->hy + 2)
            most = fmax(most, b->now.flux[k * b->nf + i]);
    }
    return most;
}

/* Peaks of the residual spectrum of a fibre, filtered by its own spot; num, den: [height], flux = num / den of a row.
 */
static spx_status find_peaks(const spx_pf_bundle *b, size_t i, const double *num, const double *den, double sigma,
                             peak **list, size_t *n, size_t *capacity, spx_err *e)
{
    enum { HALF = 4 };
    const long height = (long)b->p->height;
    double kernel[2 * HALF + 1], z[3] = {0, 0, 0};
    for (int k = -HALF; k <= HALF; k++)
        kernel[k + HALF] = 0.5 * (erf((k + 0.5) / sigma * M_SQRT1_2) - erf((k - 0.5) / sigma * M_SQRT1_2));
    for (long r = 0; r <= height; r++) {
        double top = 0, bottom = 0;
        for (long k = -HALF; k <= HALF && r < height; k++)
            if (r + k >= 0 && r + k < height) {
                top += kernel[k + HALF] * num[r + k];
                bottom += kernel[k + HALF] * kernel[k + HALF] * den[r + k];
            }
        z[0] = z[1];
        z[1] = z[2];
        z[2] = bottom > 0 ? top / sqrt(bottom) : 0;
        if (!(z[1] > UNLISTED_SN && z[1] >= z[0] && z[1] > z[2]))
            continue;
        double flux = 0, weight = 0;
        for (long k = -HALF; k <= HALF; k++)
            if (r - 1 + k >= 0 && r - 1 + k < height) {
                flux += kernel[k + HALF] * num[r - 1 + k];
                weight += kernel[k + HALF] * kernel[k + HALF] * den[r - 1 + k];
            }
        if (!(flux / weight > UNLISTED_PART * line_near(b, i, (double)(r - 1))))
            continue;
        peak *more = spx_grow(*list, *n, 1, capacity, sizeof *more, e);
        if (more == NULL)
            return SPX_EIO;
        *list = more;
        const double bend = z[0] - 2 * z[1] + z[2], off = bend < 0 ? 0.5 * (z[0] - z[2]) / bend : 0;
        more[(*n)++] = (peak){spx_pf_wave_at(b, b->now.theta, i, (double)(r - 1) + off), i};
    }
    return SPX_OK;
}

/* Residuals of all fibres along their traces, all exposures: sums of profile r / V and profile^2 / V in each row,
 * num[nf][height] and den[nf][height]. work: room for two rows. */
static void residuals(const spx_pf_bundle *b, double *num, double *den, double *work)
{
    const spx_pf_plan *p = b->p;
    const size_t width = b->width, height = p->height;
    const long wide = (long)spx_pf_profile_width(p);
    double *w = work, *v = work + width;
    memset(num, 0, b->nf * height * sizeof *num);
    memset(den, 0, b->nf * height * sizeof *den);
    for (size_t x = 0; x < p->nexp; x++)
        for (size_t r = 0; r < height; r++) {
            const spx_pf_pixels *px = &b->px[x];
            const double *ground = px->ground + r * width, *light = b->now.light + (x * height + r) * width;
            const float *data = px->data + r * width, *noise = px->noise + r * width;
#pragma omp simd
            for (size_t k = 0; k < width; k++) {
                const double m = ground[k] + light[k];
                w[k] = noise[k] > 0 ? 1 / spx_pf_noise(noise[k], m, 0) : 0;
                v[k] = w[k] * (data[k] - m);
            }
            for (size_t i = 0; i < b->nf; i++) {
                const long first = px->at[r * b->nf + i], from = first < 0 ? -first : 0;
                const long to = (long)width - first < wide ? (long)width - first : wide;
                const float *profile = px->profile + (r * b->nf + i) * (size_t)wide;
                double one = 0, two = 0;
#pragma omp simd reduction(+ : one, two)
                for (long c = from; c < to; c++) {
                    one += profile[c] * v[first + c];
                    two += (double)profile[c] * profile[c] * w[first + c];
                }
                num[i * height + r] += one;
                den[i * height + r] += two;
            }
        }
}

spx_status spx_pf_unlisted(spx_pf_bundle *b, spx_pf_light **light, size_t *n, spx_err *e)
{
    const spx_pf_plan *p = b->p;
    const size_t all = b->nf * p->height;
    double *num = spx_alloc(2 * all + 2 * b->width, sizeof *num, e), *some = spx_alloc(b->nf, sizeof *some, e);
    peak *list = NULL;
    size_t have = 0, capacity = 0;
    spx_status st = num != NULL && some != NULL ? SPX_OK : SPX_EIO;
    *light = NULL;
    *n = 0;
    if (st == SPX_OK && b->there == NULL)
        residuals(b, num, num + all, num + 2 * all);
    else if (st == SPX_OK && !p->device->residuals(b, num, num + all))
        memset(num, 0, 2 * all * sizeof *num); /* what fails is told in the end */
    for (size_t i = 0; i < b->nf && st == SPX_OK; i++) {
        double sigx, sigy, c[SPX_PF_MOST_LOCAL];
        spx_pf_shape(b, b->now.theta, i, 0.5 * (p->wmin + p->wmax), &sigx, &sigy, c);
        st = find_peaks(b, i, num + i * p->height, num + all + i * p->height, sigy, &list, &have, &capacity, e);
    }
    if (st == SPX_OK && have > 0 && (*light = spx_alloc(have, sizeof **light, e)) == NULL)
        st = SPX_EIO;
    if (st == SPX_OK && have > 0)
        qsort(list, have, sizeof *list, by_wave);
    const double pixel = UNLISTED_PIXELS / fmax(fabs(slope(b, b->nf / 2, 0.5 * (p->wmin + p->wmax))), 1e-6);
    const double apart = 2 * fmax(UNLISTED_APART, pixel);
    for (size_t k = 0; k < have && st == SPX_OK;) {
        /* fibres that have a peak within `apart` of this one */
        size_t m = k, nfibre = 0;
        for (; m < have && list[m].wave - list[k].wave < apart; m++) {
            int known = 0;
            for (size_t l = k; l < m; l++)
                known |= list[l].fibre == list[m].fibre;
            if (!known)
                some[nfibre++] = list[m].wave;
        }
        if (2 * nfibre < b->nf || nfibre < 2) {
            k++;
            continue;
        }
        (*light)[(*n)++] = (spx_pf_light){spx_median(some, nfibre), (int)nfibre};
        k = m;
    }
    spx_free(num);
    spx_free(some);
    spx_free(list);
    return st;
}
