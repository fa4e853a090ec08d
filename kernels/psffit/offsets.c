/* How far lines are from the traces that they were fitted with, which noise does not explain (psffit/fit.h). */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "num/stat.h"
#include "psffit/step_math.h"

/* Lines about a wavelength that tell, with variances up to UNTOLD times their median, and errors of the median misfit
 * above which it is none of noise: five of nine lines beyond 2.3 errors each, which noise makes in one of a million
 * places (6 errors, 1.6 each: in one of six hundred, and a bundle has some 300). */
enum { ABOUT = 9 };
#define UNTOLD 4.0
#define SURE   14.0
/* Pixels at most that a misfit of lines is looked for up to. */
#define MOST 1.0

/* sum_i c_ij g_(i+1)(x) and sum_i c_ij g_i(x), [side][nx] each: of all pixels of a spot. */
static void sum_columns(int side, int nx, const double *gx, const double *c, double *across, double *along)
{
    for (int j = 0; j < side; j++)
        for (int x = 0; x < nx; x++) {
            across[j * nx + x] = along[j * nx + x] = 0;
            for (int i = 0; i < side; i++) {
                across[j * nx + x] += c[i + side * j] * gx[(i + 1) * nx + x];
                along[j * nx + x] += c[i + side * j] * gx[i * nx + x];
            }
        }
}

/* As spx_pf_spot_gradient(), from these. */
static void gradient_at(int side, int nx, int ny, const double *across, const double *along, const double *gy,
                        const spx_pf_at *at, int x, int y, double by[2])
{
    by[0] = by[1] = 0;
    for (int j = 0; j < side; j++) {
        by[0] += across[j * nx + x] * gy[j * ny + y];
        by[1] += along[j * nx + x] * gy[(j + 1) * ny + y];
    }
    by[0] /= at->sigx;
    by[1] /= at->sigy;
}

void spx_pf_look_at_spot(const spx_pf_bundle *b, size_t x, size_t s, double *sum, double *cell)
{
    const spx_pf_plan *p = b->p;
    const size_t npix = (size_t)(p->nx * p->ny), n = (size_t)p->norder;
    const spx_pf_pixels *px = &b->px[x];
    const spx_pf_at *at = &b->now.at[s];
    const double *spot = b->now.spot + s * npix, *gx = b->now.gx + s * n * (size_t)p->nx;
    const double *gy = b->now.gy + s * n * (size_t)p->ny, *c = b->now.c + s * (size_t)p->nc;
    double peak = 0, across[(SPX_PF_MOST_HERMITE + 1) * SPX_PF_MOST_WIDE], along[sizeof across / sizeof *across];
    for (size_t k = 0; k < npix; k++)
        peak = fmax(peak, spot[k]);
    sum_columns(p->deg + 1, p->nx, gx, c, across, along);
    cell += (size_t)(spx_pf_phase_of(at->y) * SPX_PF_PHASES + spx_pf_phase_of(at->x)) * npix * SPX_PF_CELL;
    spx_pf_offset off = {0};
    for (int stack = 0; stack < 2; stack++) {
        for (int r = at->y0; r < at->y1; r++)
            for (int q = at->x0; q < at->x1; q++) {
                const size_t k = (size_t)(r * p->nx + q), on = (size_t)((at->yc + r) * (long)b->width + at->xc + q);
                const double m = px->ground[on] + b->now.light[x * p->height * b->width + on];
                if (!spx_pf_is_core(b->now.flux[s], spot[k], peak, m) || !(px->root[on] > 0))
                    continue;
                double by[2];
                gradient_at(p->deg + 1, p->nx, p->ny, across, along, gy, at, q, r, by);
                if (stack)
                    spx_pf_add_to_cell(b->now.flux[s], by, spot[k], px->data[on], px->noise[on], m, &off,
                                       cell + SPX_PF_CELL * k);
                else
                    spx_pf_add_to_offset(b->now.flux[s], by, spot[k], px->data[on], px->noise[on], m, sum);
            }
        off = spx_pf_solve_offset(sum);
    }
}

/* Offsets of a line of a fibre in x and y, and their variances: means of the exposures. */
typedef struct {
    double wave, off[2], var[2];
} offset;

static int by_wave(const void *a, const void *b)
{
    const double x = ((const offset *)a)->wave, y = ((const offset *)b)->wave;
    return (x > y) - (x < y);
}

/* Offsets of a fibre's lines, by wavelength. Returns how many. some: room for as many numbers as there are lines. */
static size_t of_fibre(const spx_pf_bundle *b, const double *sums, size_t i, double *some, offset *to)
{
    size_t n = 0, m = 0;
    for (size_t l = 0; l < b->nl; l++) {
        offset one = {.wave = spx_pf_wave(b, &b->now, &b->line[l])};
        double weight[2] = {0, 0};
        for (size_t x = 0; x < b->p->nexp && !b->line[l].free; x++) {
            const spx_pf_offset off = spx_pf_solve_offset(sums + SPX_PF_OFFSET * ((x * b->nl + l) * b->nf + i));
            for (int q = 0; q < 2 && off.told; q++) {
                const double var = off.variance[2 * q];
                one.off[q] += off.step[q] / var;
                weight[q] += 1 / var;
            }
        }
        for (int q = 0; q < 2 && weight[0] > 0; q++) {
            one.off[q] /= weight[q];
            one.var[q] = 1 / weight[q];
        }
        if (weight[0] > 0) {
            some[n] = one.var[0] + one.var[1];
            to[n++] = one;
        }
    }
    const double typical = spx_median(some, n);
    for (size_t k = 0; k < n; k++)
        if (to[k].var[0] + to[k].var[1] <= UNTOLD * typical)
            to[m++] = to[k];
    qsort(to, m, sizeof *to, by_wave);
    return m;
}

/* What lines about a wavelength are off by beyond their noise, pixels, in x or y: the variance that makes the median of
 * their squares that of noise. sample[ABOUT][SPX_PF_SAMPLE + 1]: room. */
static double misfit_about(const offset *line, size_t n, double wave, int q, double *sample)
{
    size_t first = 0;
    while (first + ABOUT < n && fabs(line[first + ABOUT].wave - wave) < fabs(line[first].wave - wave))
        first++;
    size_t told = 0;
    for (size_t k = first; k < n && told < ABOUT; k++) {
        double *to = sample + SPX_PF_SAMPLE * told++;
        to[0] = line[k].off[q] * line[k].off[q];
        to[1] = line[k].var[q];
        to[2] = 1;
        to[3] = 0;
    }
    return spx_pf_beyond_noise(sample, told, -1, 1, SURE, MOST, sample + SPX_PF_SAMPLE * ABOUT);
}

spx_status spx_pf_misplaced(const spx_pf_bundle *b, const double *sums, size_t nplace, const double *place,
                            double *misfit, double *most, spx_err *e)
{
    double *some = spx_alloc(b->nl + 1, sizeof *some, e), sample[ABOUT * (SPX_PF_SAMPLE + 1)];
    offset *line = spx_alloc(b->nl + 1, sizeof *line, e);
    const int ok = some != NULL && line != NULL;
    for (size_t i = 0; i < b->nf && ok; i++) {
        const size_t n = of_fibre(b, sums, i, some, line);
        most[i] = 0;
        for (int q = 0; q < 2; q++) {
            for (size_t k = 0; k < nplace; k++)
                misfit[(2 * i + (size_t)q) * nplace + k] = misfit_about(line, n, place[k], q, sample);
            for (size_t k = 0; k < n; k++)
                most[i] = fmax(most[i], misfit_about(line, n, line[k].wave, q, sample));
        }
    }
    spx_free(some);
    spx_free(line);
    return ok ? SPX_OK : SPX_EIO;
}
