/* Finds by how much the traces of a PSF have moved (psffit/cold.h).
 *
 * Cross-correlation of the arcs with the places of listed lines: score(dx, dy) = sum over fibres and lines of
 * min(S/N, MOST_SN) of the pixel at (x + dx, y + dy), so that lines count alike, whatever their flux. About the highest
 * score the same sum of the square root of S/N, which has its peak where the spots do, tells half pixels. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "num/stat.h"
#include "psf/psf_math.h"
#include "psffit/cold.h"

#define MOST_SN 30.0
#define REACH_Y 25.0
#define STEP    0.5
/* The highest score over the highest that is more than APART pixels away in y. */
#define CLEAR 1.5
#define APART 5.0
/* Scores this near to the highest are as good: fibres without light leave the number of pitches open, and the camera
 * has rather moved by less. */
#define ALIKE 0.99

#define REACH_X 40.0 /* at most */

enum { MOST_FIBRES = 120, MOST_LINES = 60, FEWEST = 5, MOST_STEPS = 2 * (int)(REACH_X / STEP) + 1 };

typedef struct {
    size_t n;
    double *x, *y; /* [n] places of lines */
    size_t narc;
    const spx_image *arc;
} places;

/* S/N of a pixel of all arcs together; 0 where it is not good, or off the CCD. */
static double significance(const places *p, long c, long r)
{
    double sum = 0.0, variance = 0.0;
    if (c < 0 || r < 0 || c >= (long)p->arc->nx || r >= (long)p->arc->ny)
        return 0.0;
    const size_t k = (size_t)r * p->arc->nx + (size_t)c;
    for (size_t a = 0; a < p->narc; a++)
        if (p->arc[a].mask[k] == 0 && p->arc[a].ivar[k] > 0.0f && isfinite(p->arc[a].data[k])) {
            sum += p->arc[a].data[k];
            variance += 1.0 / p->arc[a].ivar[k];
        }
    return sum > 0.0 && variance > 0.0 ? sum / sqrt(variance) : 0.0;
}

/* Scores of shifts x + STEP i, y + STEP j with i of -nx to nx and j of -ny to ny, all[2 nx + 1][2 ny + 1]. Steps are
 * shorter than pixels, and a pixel is looked at once for those that share it: in rows, since columns are few. */
static void scores(const places *p, double x, double y, long nx, long ny, int capped, int nthreads, double *all)
{
    const long w = 2 * ny + 1, m = 2 * nx + 1;
    memset(all, 0, (size_t)(m * w) * sizeof *all);
#pragma omp parallel for schedule(static, 1) num_threads(nthreads)
    for (int part = 0; part < nthreads; part++) {
        const long first = w * part / nthreads, end = w * (part + 1) / nthreads;
        double row[MOST_STEPS]; /* of the image */
        long at[MOST_STEPS];    /* columns of the steps */
        for (size_t k = 0; k < p->n && end > first; k++) {
            long now = 0;
            for (long i = 0; i < m; i++)
                at[i] = lround(p->x[k] + (x + STEP * (double)(i - nx)));
            for (long j = first; j < end; j++) {
                const long r = lround(p->y[k] + (y + STEP * (double)(j - ny)));
                for (long c = at[0]; c <= at[m - 1] && (j == first || r != now); c++) {
                    const double s = significance(p, c, r);
                    row[c - at[0]] = capped ? fmin(s, MOST_SN) : sqrt(s);
                }
                now = r;
                for (long i = 0; i < m; i++)
                    all[i * w + j] += row[at[i] - at[0]];
            }
        }
    }
}

/* Fibres whose neighbour is far, at the ends of bundles, and some others: they tell a shift of a whole pitch. */
static size_t choose_fibres(const spx_psf *psf, double wave, double *pitch, size_t *fibre, double *scratch)
{
    const size_t n = psf->nspec;
    size_t m = 0;
    for (size_t i = 0; i + 1 < n; i++)
        scratch[i] = fabs(spx_psf_series_value(&psf->x, i + 1, wave) - spx_psf_series_value(&psf->x, i, wave));
    *pitch = n > 1 ? spx_median(scratch, n - 1) : 10.0;
    const size_t every = n / (MOST_FIBRES / 2) + 1;
    for (size_t i = 0; i < n && m < MOST_FIBRES; i++) {
        const double x = spx_psf_series_value(&psf->x, i, wave);
        const int first = i == 0 || fabs(x - spx_psf_series_value(&psf->x, i - 1, wave)) > 1.35 * *pitch,
                  last = i + 1 == n || fabs(spx_psf_series_value(&psf->x, i + 1, wave) - x) > 1.35 * *pitch;
        if (first || last || i % every == 0)
            fibre[m++] = i;
    }
    return m;
}

/* Lines of this quality on the CCD or near it, MOST_LINES of them, evenly: number[most]. */
static size_t choose_lines(const spx_psf *psf, const spx_image *arc, size_t nline, const spx_arc_line *line,
                           int quality, size_t *number)
{
    size_t n = 0, kept = 0;
    for (size_t k = 0; k < nline; k++) {
        if (line[k].quality > quality || line[k].wavelength < psf->y.wmin || line[k].wavelength > psf->y.wmax)
            continue;
        const double y = spx_psf_series_value(&psf->y, psf->nspec / 2, line[k].wavelength);
        if (y > -REACH_Y && y < (double)arc->ny + REACH_Y)
            number[n++] = k;
    }
    const size_t every = n / MOST_LINES + 1;
    for (size_t k = 0; k < n; k += every)
        number[kept++] = number[k];
    return kept;
}

/* Highest score within reach of (0, 0); returns whether it is clear. all: one for each step. */
static int search(const places *p, double reach_x, int nthreads, double *all, double *dx, double *dy)
{
    const long nx = lround(reach_x / STEP), ny = lround(REACH_Y / STEP), w = 2 * ny + 1, n = (2 * nx + 1) * w;
    long best = nx * w + ny;
    scores(p, 0, 0, nx, ny, 1, nthreads, all);
    double highest = 0.0, rival = 0.0, least = INFINITY;
    for (long k = 0; k < n; k++)
        highest = fmax(highest, all[k]);
    for (long k = 0; k < n; k++) {
        const double way = hypot((double)(k / w - nx), (double)(k % w - ny));
        if (all[k] >= ALIKE * highest && way < least) {
            best = k;
            least = way;
        }
    }
    for (long k = 0; k < n; k++)
        if (STEP * (double)labs(k % w - best % w) > APART)
            rival = fmax(rival, all[k]);
    *dx = STEP * (double)(best / w - nx);
    *dy = STEP * (double)(best % w - ny);
    return all[best] > CLEAR * rival;
}

/* Highest sum of square roots near a place, in half pixels. */
static void refine(const places *p, int nthreads, double *dx, double *dy)
{
    enum { NEAR = 6, SIDE = 2 * NEAR + 1 };
    double all[SIDE * SIDE];
    int best = 0;
    scores(p, *dx, *dy, NEAR, NEAR, 0, nthreads, all);
    for (int k = 1; k < SIDE * SIDE; k++)
        best = all[k] > all[best] ? k : best;
    *dx += STEP * (best / SIDE - NEAR);
    *dy += STEP * (best % SIDE - NEAR);
}

spx_status spx_cold_shift(const spx_psf *start, size_t narc, const spx_image *arc, size_t nline,
                          const spx_arc_line *line, int nthreads, int *found, double *dx, double *dy, spx_err *e)
{
    size_t fibre[MOST_FIBRES], nfibre = 0, chosen = 0;
    double pitch = 0.0, *all = NULL;
    places p = {.narc = narc, .arc = arc};
    *found = 0;
    *dx = *dy = 0.0;
    double *scratch = spx_alloc(start->nspec, sizeof *scratch, e);
    size_t *number = spx_alloc(nline + 1, sizeof *number, e);
    spx_status st = scratch != NULL && number != NULL ? SPX_OK : SPX_EIO;
    if (st == SPX_OK) {
        for (int quality = SPX_ARC_BRIGHT; quality <= SPX_ARC_VISIBLE && chosen < FEWEST; quality++)
            chosen = choose_lines(start, arc, nline, line, quality, number);
        nfibre = choose_fibres(start, 0.5 * (start->x.wmin + start->x.wmax), &pitch, fibre, scratch);
        const double reach_x = fmin(1.1 * pitch, REACH_X);
        p.x = spx_alloc2(nfibre, chosen, sizeof *p.x, e);
        p.y = spx_alloc2(nfibre, chosen, sizeof *p.y, e);
        all = spx_alloc2((size_t)(2 * lround(reach_x / STEP) + 1), (size_t)(2 * lround(REACH_Y / STEP) + 1),
                         sizeof *all, e);
        if (p.x == NULL || p.y == NULL || all == NULL)
            st = SPX_EIO;
        for (size_t i = 0; i < nfibre && st == SPX_OK; i++)
            for (size_t k = 0; k < chosen; k++) {
                const double wave = line[number[k]].wavelength;
                p.x[p.n] = spx_psf_series_value(&start->x, fibre[i], wave);
                p.y[p.n++] = spx_psf_series_value(&start->y, fibre[i], wave);
            }
        if (st == SPX_OK && chosen >= FEWEST && search(&p, reach_x, nthreads, all, dx, dy)) {
            refine(&p, nthreads, dx, dy);
            *found = 1;
        } else
            *dx = *dy = 0.0;
    }
    spx_free(scratch);
    spx_free(number);
    spx_free(p.x);
    spx_free(p.y);
    spx_free(all);
    return st;
}

void spx_cold_move(spx_psf *psf, double dx, double dy)
{
    for (size_t i = 0; i < psf->nspec; i++) {
        psf->x.coef[i * psf->x.ncoef] += dx;
        psf->y.coef[i * psf->y.ncoef] += dy;
    }
}
