/* Provides the extraction with light beyond the spots: with a PSF that has a tail (psf/tail.h), with a background, or
 * both. With a tail, spots are cores alone: with wings of thousands of
 * pixels in the equations, 25 fibres at tolerance 1e-8 took fifty times as long. Light of tails is taken off the image:
 *
 *   1. the flux f of all fibres of the PSF, whichever are wanted: their light reaches the others. Narrow spots, the
 *      middle of the cores, are enough for that, and less than half the work; the light of their columns over that of
 *      the core is known, and light of a bin beyond its rows is found in the bins beside it
 *   2. tail(f) is taken from f as it is under the traces, to a few per cent; K f is the flux that tail(f) makes. Where
 *      K f is k f the limit of f_n = f_0 - K f_(n-1) is f_0 - K f_0/(1 + k): that is f_1 (Aitken), with k = (f_0 - f_1)
 *      f_0/f_0^2 of all bins. This tail(f_0) has half as many bins. More corrections repeat 1, of image - tail(f)
 *   3. wanted bundles are extracted from image - tail(f_1) as without tails; flux is given as electrons within the
 * spots with their tails, as without corrections
 *
 * The error falls to the share k of the light that a tail leaves under its fibre, 0.06 or so, with each correction.
 *
 * A background (extract/trace/background.h) is fitted with the fluxes of whole spots, whose equations stay, and again
 * after each correction for tails, which are not extrapolated then. Without a tail, spots are what they are, and the
 * background alone is taken off.
 *
 * With rejection of hits or the variance of a model, one correction comes before these, then all starts again with the
 * new weights.
 *
 * For windows of other programs, steps 1 and 2, and then the tails beyond the spots are taken off the image itself. */
#include "psf/tail.h"

#include <math.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "extract/trace/background.h"
#include "extract/trace/trace.h"
#include "psf/psf_math.h"
#include "psf/spot_math.h"

/* Share of its spot on pixels in use below which a bin's flux is taken from those before and behind it. */
#define LEAST_SEEN 0.5

/* Tolerance of fluxes that are not the result, of all bins of a bundle together, in their errors; of those that light
 * of tails is computed from. */
#define ROUGH     0.01
#define TAIL_ONLY 0.3

/* Share of a core's light that narrow spots may leave out, in columns and in rows: between 0.002 and 0.05 the bias
 * beside a star changed by 0.004 of its error. */
#define NARROW 0.01

enum { NKNOT = 9 }; /* of the light within the columns of narrow spots, along a trace; linear in between */

typedef struct {
    spx_extract_options all; /* fibres */
    spx_extract_job whole;
    spx_trace_plan plan;
    const spx_trace_plan *p; /* that */
    size_t nbundle, first, nwanted;
    spx_trace_bundle *list;   /* [nbundle] */
    spx_trace_bundle *b;      /* [nbundle] with their equations, or with x and seen alone, of `light` */
    spx_trace_workspace *r;   /* [nbundle]; with narrow spots [threads] */
    spx_trace_tally *tallies; /* [nbundle] */
    int *any, *solved;        /* [nbundle] */
    size_t nworkspace;
    int narrow; /* the spots are `spots`, the plan's PSF; equations are not kept */
    spx_psf spots;
    double *columns;            /* [nspec][NKNOT] share of the core's light in their columns */
    double **light;             /* [nbundle][LIGHTS][nbin][nl] of narrow spots */
    spx_tail *tail;             /* NULL: none */
    int beyond;                 /* the tail is that beyond spots, of light within them */
    spx_background *background; /* NULL: none */
    float *far;                 /* [ny][nx] of both */
} scene;

/* Image without tails, in a bundle's window. */
static void correct_window(const scene *s, const spx_image *im, spx_trace_bundle *b)
{
    const long x0 = b->wx0 > 0 ? b->wx0 : 0,
               x1 = b->wx0 + (long)b->wnx < (long)im->nx ? b->wx0 + (long)b->wnx : (long)im->nx;
    for (long y = b->y0; y < b->y1; y++)
        for (long x = x0; x < x1; x++) {
            const size_t from = (size_t)y * im->nx + (size_t)x,
                         to = (size_t)(y - b->wy0) * b->wnx + (size_t)(x - b->wx0);
            if (b->weight[to] > 0.0f)
                b->data[to] = im->data[from] - s->far[from];
        }
}

/* Wavelengths of a scene's first and last bin. */
static double first_wave(const scene *s)
{
    return spx_extract_lambda(&s->all, -(long)s->all.wave_pad);
}

static double last_wave(const scene *s)
{
    return spx_extract_lambda(&s->all, (long)(s->whole.nwave + s->all.wave_pad));
}

/* Share of a core's light in the columns of narrow spots. */
static double in_columns(const scene *s, size_t fibre, double lambda)
{
    const double knot = (lambda - first_wave(s)) / (last_wave(s) - first_wave(s)) * (NKNOT - 1);
    const size_t k = knot < 1.0 ? 0 : knot < NKNOT - 1 ? (size_t)knot : NKNOT - 2;
    const double *c = s->columns + fibre * NKNOT + k;
    return c[0] + (knot - (double)k) * (c[1] - c[0]);
}

/* Adds the light of bin k of fibre f of a bundle. */
static void add_bin(const scene *s, const spx_trace_bundle *b, size_t f, size_t k, double light)
{
    const spx_psf *psf = s->p->job->psf;
    const spx_bin_geometry *at = &b->at[k * b->nf + f];
    const double lambda = spx_extract_lambda(s->p->job->o, (long)k - (long)s->p->pad);
    spx_tail_add(s->tail, b->fibre0 + f, lambda, at->xc + psf->hsizex, at->yc + psf->hsizey, at->dx, at->dy,
                 s->beyond ? light * spx_tail_within(s->tail, b->fibre0 + f, lambda) : light);
}

/* Light of fibre f of a bundle into light[nbin]: bins that are hardly seen lie on the line between those beside them;
 * those before the first and behind the last have none. Returns its sum. */
static double light_of(const scene *s, const spx_trace_bundle *b, size_t f, double *light)
{
    const size_t n = s->p->nbin;
    double all = 0.0;
    size_t last = n;
    for (size_t k = 0; k < n; k++) {
        light[k] = 0.0;
        if (b->state[k * b->nf + f] != SPX_TRACE_SPOT || !(b->seen[k * b->nl + f] >= LEAST_SEEN))
            continue;
        const double here = b->x[k * b->nl + f], before = last < n ? b->x[last * b->nl + f] : here;
        for (size_t j = last < n ? last + 1 : k; j <= k; j++) {
            if (b->state[j * b->nf + f] != SPX_TRACE_SPOT)
                continue;
            const double found = j == k ? here : before + (here - before) * (double)(j - last) / (double)(k - last);
            const double lambda = spx_extract_lambda(s->p->job->o, (long)j - (long)s->p->pad);
            light[j] = s->narrow ? found / in_columns(s, b->fibre0 + f, lambda) : found;
            all += light[j];
        }
        last = k;
    }
    return all;
}

/* The image of tails of the fluxes as they are; thin: with the light of every other bin on those beside it. *light:
 * their sum. */
static spx_status draw_tails(scene *s, int thin, int nthreads, double *light, spx_err *e)
{
    const size_t n = s->p->nbin;
    double *v = spx_alloc(n + 2, sizeof *v, e);
    spx_status st = v ? spx_tail_clear(s->tail, n * s->all.nspec, e) : SPX_EIO;
    *light = 0.0;
    for (size_t i = 0; i < s->nbundle && st == SPX_OK; i++)
        for (size_t f = 0; f < s->b[i].nf && s->any[i] && s->solved[i]; f++) {
            *light += light_of(s, &s->b[i], f, v + 1);
            for (size_t k = 0; k < n; k += thin ? 2 : 1)
                add_bin(s, &s->b[i], f, k, thin ? v[k + 1] + 0.5 * (v[k] + v[k + 2]) : v[k + 1]);
        }
    spx_free(v);
    return st == SPX_OK ? spx_tail_image(s->tail, nthreads, s->far, e) : st;
}

/* ---- narrow spots ---- */

enum { LIGHT_X, LIGHT_SEEN, LIGHT_SHARE, LIGHT_BEGIN, LIGHTS }; /* of a bundle's light */

/* Size of the narrow spots, and the light in their columns. Light of a bin beyond its rows is found in others. */
static spx_status choose_spots(scene *s, const spx_psf *bare, int nthreads, spx_err *e)
{
    const int nx = spx_psf_nx(bare), ny = spx_psf_ny(bare), nside = (nx > ny ? nx : ny) / 2 + 1;
    const size_t npix = (size_t)nx * (size_t)ny, nwork = spx_psf_spot_work(bare);
    int failed = 0;
    /* light within half-widths 0, 1, ... of columns and of rows: of each knot, and the least of all */
    double *within = spx_alloc2(bare->nspec * NKNOT, 2 * (size_t)nside, sizeof *within, e);
    s->columns = spx_alloc2(bare->nspec, NKNOT, sizeof *s->columns, e);
    if (!within || !s->columns) {
        spx_free(within);
        return SPX_EIO;
    }
#pragma omp parallel num_threads(nthreads) reduction(| : failed)
    {
        double *work = spx_alloc(nwork + npix, sizeof *work, NULL), *spot = work + nwork;
        failed |= !work;
#pragma omp for
        for (size_t i = 0; i < bare->nspec * NKNOT; i++) {
            const double lambda =
                first_wave(s) + (last_wave(s) - first_wave(s)) * (double)(i % NKNOT) / (double)(NKNOT - 1);
            double *w = within + i * 2 * (size_t)nside;
            spx_spot at;
            const int lit = work && spx_psf_spot(bare, i / NKNOT, lambda, work, spot, &at) == SPX_SPOT_OK;
            for (int h = 0; h < 2 * nside; h++)
                w[h] = lit ? 0.0 : 1.0;
            for (int k = 0; lit && k < nx * ny; k++) {
                const int dx = abs(k % nx - bare->hsizex), dy = abs(k / nx - bare->hsizey);
                for (int h = 0; h < nside; h++) {
                    w[h] += dx <= h ? spot[k] : 0.0;
                    w[nside + h] += dy <= h ? spot[k] : 0.0;
                }
            }
        }
        spx_free(work);
    }
    s->spots = *bare;
    s->spots.hsizex = s->spots.hsizey = 1;
    for (size_t i = 0; i < bare->nspec * NKNOT; i++) {
        const double *w = within + i * 2 * (size_t)nside;
        while (s->spots.hsizex < bare->hsizex && w[s->spots.hsizex] < 1.0 - NARROW)
            s->spots.hsizex++;
        while (s->spots.hsizey < bare->hsizey && w[nside + s->spots.hsizey] < 1.0 - NARROW)
            s->spots.hsizey++;
    }
    for (size_t i = 0; i < bare->nspec * NKNOT; i++)
        s->columns[i] = within[i * 2 * (size_t)nside + (size_t)s->spots.hsizex];
    spx_free(within);
    return failed ? spx_mem_fail(e) : SPX_OK;
}

/* Keeps flux and light of a bundle, and for each bin A^T W 1 over the row of M: the flux that smooth light of 1
 * electron a pixel makes. */
static spx_status keep(scene *s, size_t i, spx_trace_bundle *b)
{
    const size_t nl = b->nl, n = s->p->nbin * nl;
    if (!s->light[i] && !(s->light[i] = spx_alloc(LIGHTS * n, sizeof **s->light, NULL)))
        return SPX_EIO;
    double *x = s->light[i] + LIGHT_X * n, *seen = s->light[i] + LIGHT_SEEN * n, *share = s->light[i] + LIGHT_SHARE * n;
    if (s->any[i] && s->solved[i]) {
        memcpy(x, b->x, n * sizeof *x);
        memcpy(s->light[i] + LIGHT_BEGIN * n, b->x, n * sizeof *x);
        memcpy(seen, b->seen, n * sizeof *seen);
        for (size_t k = 0; k < s->p->nbin; k++)
            for (size_t f = 0; f < b->nf; f++) {
                double row = 0.0;
                for (size_t d = 0; d <= (size_t)b->hi[0]; d++) {
                    row += b->m[(k * b->nelem + d) * nl + f];
                    row += d > 0 && k >= d ? b->m[((k - d) * b->nelem + d) * nl + f] : 0.0;
                }
                share[k * nl + f] = row > 0.0 ? b->w[k * nl + f] / row : 0.0;
            }
    }
    b->x = x;
    b->seen = seen;
    b->m = b->y = b->w = b->ldl = b->diag = b->diagonal = NULL;
    b->weight = b->data = NULL;
    spx_trace_free_copy(b);
    return SPX_OK;
}

/* Fluxes of all bundles with narrow spots, of the image without s->whole.far where that is not NULL. */
static spx_status solve_narrow(scene *s, const spx_trace_plan *rough, int nthreads, spx_err *e)
{
    int failed = 0;
#pragma omp parallel for schedule(dynamic) num_threads(nthreads) reduction(| : failed)
    for (size_t i = 0; i < s->nbundle; i++) {
        spx_trace_workspace *r = &s->r[omp_get_thread_num()];
        failed |= spx_trace_copy_bundle(&s->list[i], &s->b[i]) != SPX_OK ||
                  spx_trace_deconvolve(rough, &s->b[i], r, &s->tallies[i], &s->any[i], &s->solved[i], NULL) != SPX_OK ||
                  keep(s, i, &s->b[i]) != SPX_OK;
    }
    return failed ? spx_mem_fail(e) : SPX_OK;
}

/* GHSIGX in the middle of a trace; of spots without it a guess. */
static double width_of(const spx_psf *psf, size_t fibre)
{
    const double *c = psf->coeff + ((size_t)psf->sigx * psf->nspec + fibre) * psf->ndeg;
    const double sigma = psf->sigx >= 0 && psf->ndeg > 0 ? spx_legendre_sum(psf->ndeg, c, 0.0) : 0.0;
    return sigma > 0.0 ? sigma : 0.25 * (psf->hsizex + 1);
}

/* Takes from the flux of a bundle, about, what s->far gives it: of light that is the same along a trace, A^T W far is
 * A^T W 1 times its mean over the columns of a spot, by their weights. Spots are Gaussians for that, of the width that
 * they have in the middle of the trace. */
static void take_far(const scene *s, size_t bundle)
{
    enum { SIDE = 3, PHASES = 32 };
    const spx_trace_bundle *b = &s->b[bundle];
    const spx_image *im = s->p->job->image;
    const spx_psf *psf = s->p->job->psf;
    const float *weight = s->p->job->weight;
    const double *share = s->light[bundle] + LIGHT_SHARE * s->p->nbin * b->nl;
    const long side = psf->hsizex < SIDE ? psf->hsizex : SIDE;
    for (size_t f = 0; f < b->nf; f++) {
        const double sigma = width_of(psf, b->fibre0 + f);
        double profile[PHASES][2 * SIDE + 1]; /* for places of the trace centre within a pixel */
        for (int p = 0; p < PHASES; p++)
            for (int d = -SIDE; d <= SIDE; d++) {
                const double t = (d - ((p + 0.5) / PHASES - 0.5)) / sigma;
                profile[p][d + SIDE] = exp(-0.5 * t * t);
            }
        for (size_t k = 0; k < s->p->nbin; k++) {
            const spx_bin_geometry *at = &b->at[k * b->nf + f];
            const long y = at->yc + psf->hsizey, x = at->xc + psf->hsizex;
            if (b->state[k * b->nf + f] != SPX_TRACE_SPOT || y < b->y0 || y >= b->y1)
                continue;
            const double phase = fmin(fmax((at->dx + 0.5) * PHASES, 0.0), PHASES - 1), *g = profile[(size_t)phase];
            double far = 0.0, all = 0.0;
            for (long c = x - side > 0 ? x - side : 0; c <= x + side && c < (long)im->nx; c++) {
                const size_t from = (size_t)y * im->nx + (size_t)c;
                const double w =
                    g[c - x + SIDE] * (double)(weight != NULL ? weight[from] : spx_extract_pixel_weight(im, from));
                far += w * (double)s->far[from];
                all += w;
            }
            if (all > 0.0)
                b->x[k * b->nl + f] -= far / all * share[k * b->nl + f];
        }
    }
}

/* From f_0 and f_1 to where the corrections lead. */
static void extrapolate(scene *s)
{
    double change = 0.0, all = 0.0;
    for (size_t i = 0; i < s->nbundle; i++) {
        const double *begin = s->light[i] + LIGHT_BEGIN * s->p->nbin * s->b[i].nl;
        for (size_t f = 0; f < s->b[i].nf && s->any[i] && s->solved[i]; f++)
            for (size_t k = 0; k < s->p->nbin; k++) {
                const size_t j = k * s->b[i].nl + f;
                if (s->b[i].state[k * s->b[i].nf + f] != SPX_TRACE_SPOT || !(s->b[i].seen[j] >= LEAST_SEEN))
                    continue;
                change += (begin[j] - s->b[i].x[j]) * begin[j];
                all += begin[j] * begin[j];
            }
    }
    const double share = all > 0.0 ? fmin(fmax(change / all, 0.0), 0.5) : 0.0;
    for (size_t i = 0; i < s->nbundle; i++) {
        const double *begin = s->light[i] + LIGHT_BEGIN * s->p->nbin * s->b[i].nl;
        for (size_t j = 0; j < s->p->nbin * s->b[i].nl && s->any[i] && s->solved[i]; j++)
            s->b[i].x[j] = begin[j] + (s->b[i].x[j] - begin[j]) / (1.0 + share);
    }
}

/* The image of tails of the fluxes as they are, and how much light they have, into *counts. */
static spx_status count_tails(scene *s, int thin, int nthreads, spx_extract_counts *counts, spx_err *e)
{
    const size_t npix = s->p->job->image->ny * s->p->job->image->nx;
    const double begin = spx_thread_seconds();
    double light, far = 0.0;
    const spx_status st = draw_tails(s, thin, nthreads, &light, e);
    if (st != SPX_OK)
        return st;
    for (size_t k = 0; k < npix; k++)
        far += (double)s->far[k];
    counts->tail_change = far != 0.0 ? fabs(far - counts->tail_light) / fabs(far) : 0.0;
    counts->tail_light = far;
    counts->core_light = light;
    counts->seconds[SPX_EXTRACT_TAIL] += spx_thread_seconds() - begin;
    return SPX_OK;
}

/* The fluxes anew, of the image without s->far. */
static spx_status solve_again(scene *s, const spx_trace_plan *p, int nthreads, spx_err *e)
{
    int failed = 0;
#pragma omp parallel for schedule(dynamic) num_threads(nthreads) reduction(| : failed)
    for (size_t i = 0; i < s->nbundle; i++)
        if (s->any[i] && s->solved[i]) {
            correct_window(s, s->p->job->image, &s->b[i]);
            failed |= spx_trace_solve_again(p, &s->b[i], &s->r[i], &s->tallies[i], &s->solved[i], NULL) != SPX_OK;
        }
    return failed ? spx_mem_fail(e) : SPX_OK;
}

/* Background and tails in turn, as often as there are corrections; the last fluxes are those of the plan's tolerance.
 */
static spx_status solve_with_background(scene *s, const spx_trace_plan *rough, int corrections, int nthreads,
                                        spx_extract_counts *counts, spx_err *e)
{
    const spx_image *im = s->p->job->image;
    const spx_trace_all all = {.p = rough,
                               .nbundle = s->nbundle,
                               .b = s->b,
                               .r = s->r,
                               .tallies = s->tallies,
                               .any = s->any,
                               .solved = s->solved};
    spx_background_free(s->background);
    spx_status st = spx_background_make(im->ny, im->nx, s->all.background, &s->background, e);
    memset(s->far, 0, im->ny * im->nx * sizeof *s->far);
    counts->background_steps = 0;
    for (int c = 0; c <= corrections && st == SPX_OK; c++) {
        if (c > 0) {
            st = count_tails(s, 0, nthreads, counts, e);
            if (st == SPX_OK) {
                spx_background_add(s->background, nthreads, s->far);
                st = solve_again(s, rough, nthreads, e);
            }
        }
        const double begin = spx_thread_seconds();
        if (st == SPX_OK)
            st = spx_background_fit(s->background, &all, im, s->far, nthreads, counts, e);
        counts->seconds[SPX_EXTRACT_BACKGROUND] += spx_thread_seconds() - begin;
    }
    return st == SPX_OK ? solve_again(s, s->p, nthreads, e) : st;
}

/* Tails into s->far, of fluxes by narrow spots. */
static spx_status find_tails(scene *s, int corrections, int nthreads, spx_extract_counts *counts, spx_err *e)
{
    spx_trace_plan rough = *s->p;
    rough.tolerance = fmax(rough.tolerance, TAIL_ONLY);
    s->whole.far = NULL;
    spx_status st = solve_narrow(s, &rough, nthreads, e);
    for (int c = 1; c < corrections && st == SPX_OK; c++) {
        st = count_tails(s, c == 1, nthreads, counts, e);
        if (st == SPX_OK && c == 1) {
#pragma omp parallel for schedule(dynamic) num_threads(nthreads)
            for (size_t i = 0; i < s->nbundle; i++)
                if (s->any[i] && s->solved[i])
                    take_far(s, i);
            extrapolate(s);
        } else if (st == SPX_OK) {
            s->whole.far = s->far;
            st = solve_narrow(s, &rough, nthreads, e);
        }
    }
    return st == SPX_OK && corrections > 0 ? count_tails(s, 0, nthreads, counts, e) : st;
}

/* Solves all bundles for the flux, and corrects the image for a background and their tails. */
static spx_status solve_all(scene *s, int corrections, int nthreads, spx_extract_counts *counts, spx_err *e)
{
    spx_trace_plan rough = *s->p;
    int failed = 0;
    if (s->narrow)
        return find_tails(s, corrections, nthreads, counts, e);
    rough.tolerance = fmax(rough.tolerance, ROUGH);
#pragma omp parallel for schedule(dynamic) num_threads(nthreads) reduction(| : failed)
    for (size_t i = 0; i < s->nbundle; i++)
        failed |=
            spx_trace_copy_bundle(&s->list[i], &s->b[i]) != SPX_OK ||
            spx_trace_deconvolve(&rough, &s->b[i], &s->r[i], &s->tallies[i], &s->any[i], &s->solved[i], NULL) != SPX_OK;
    return failed ? spx_mem_fail(e)
                  : solve_with_background(s, &rough, s->tail != NULL ? corrections : 0, nthreads, counts, e);
}

/* Releases a bundle's equations. */
static void release(scene *s, size_t i)
{
    if (!s->narrow) {
        spx_trace_workspace_free(&s->r[i]);
        memset(&s->r[i], 0, sizeof s->r[i]);
    }
    spx_trace_free_copy(&s->b[i]);
}

static spx_status end_wanted(scene *s, const spx_trace_plan *wanted, int nthreads, spx_frame *out,
                             spx_extract_counts *counts, spx_err *e)
{
    int failed = 0;
#pragma omp parallel for schedule(dynamic) num_threads(nthreads) reduction(| : failed)
    for (size_t i = s->first; i < s->first + s->nwanted; i++) {
        failed |= spx_trace_end_bundle(wanted, &s->b[i], &s->r[i], s->any[i], s->solved[i], out, &s->tallies[i],
                                       NULL) != SPX_OK;
        release(s, i);
        spx_progress_step(wanted->job->o->progress, s->b[i].nf);
    }
    for (size_t i = 0; i < s->nbundle; i++)
        spx_trace_count(&s->tallies[i], i >= s->first && i < s->first + s->nwanted, counts);
    return failed ? spx_mem_fail(e) : SPX_OK;
}

/* Hits and variance of the wanted bundles, from an image that has been corrected once; weights of *job are changed. */
static spx_status screen(scene *s, const spx_trace_plan *wanted, const spx_trace_bundle *list, spx_extract_job *job,
                         int nthreads, spx_frame *out, spx_extract_counts *counts, spx_err *e)
{
    const size_t npix = job->image->ny * job->image->nx;
    spx_status st = solve_all(s, 1, nthreads, counts, e);
    for (size_t i = 0; i < s->nbundle; i++) {
        release(s, i);
        s->tallies[i].failed = s->tallies[i].regularised = s->tallies[i].nospot = 0; /* counted when solved again */
    }
    if (st != SPX_OK)
        return st;
    double *light = spx_alloc_unset(npix, 1, sizeof *light, e);
    int *chosen = spx_alloc(s->nwanted, sizeof *chosen, e);
    st = light && chosen ? SPX_OK : SPX_EIO;
    for (size_t k = 0; k < npix && st == SPX_OK; k++)
        light[k] = (double)s->far[k];
    if (st == SPX_OK) {
        job->far = s->far;
        st = spx_trace_screen_bundles(wanted, s->nwanted, list, NULL, light, job, 0, chosen, out, counts, e);
        job->far = NULL;
    }
    spx_free(light);
    spx_free(chosen);
    return st;
}

/* Tail of the scene in place of what it has. full: the PSF with its tail. */
static spx_status make_tail(scene *s, const spx_psf *full, int beyond, spx_err *e)
{
    const spx_extract_job *job = &s->whole;
    spx_tail_free(s->tail);
    s->tail = NULL;
    s->beyond = beyond;
    return spx_tail_make(full, job->image->ny, job->image->nx, first_wave(s), last_wave(s), beyond, &s->tail, e);
}

/* Plan, bundles and tail of a job, whose PSF is `full` without its tail; full NULL: no tail is taken off. *s has to
 * stay where it is; free_scene() also after an error. */
static spx_status make_scene(const spx_extract_job *job, const spx_psf *full, scene *s, spx_extract_counts *counts,
                             spx_err *e)
{
    const spx_psf *psf = job->psf;
    const double begin = spx_thread_seconds();
    const int nthreads = spx_extract_threads(job->o);
    *s = (scene){.all = *job->o, .whole = *job, .p = &s->plan, .narrow = !(job->o->background > 0.0)};
    s->all.first = 0;
    s->all.nspec = psf->nspec;
    s->whole.o = &s->all;
    s->nbundle = spx_extract_nbundle(psf, &s->all);
    s->first = spx_extract_bundle_of(psf, job->o, job->o->first);
    s->nwanted = spx_extract_nbundle(psf, job->o);
    s->nworkspace = s->narrow ? (size_t)nthreads : s->nbundle;
    spx_status st = s->narrow ? choose_spots(s, psf, nthreads, e) : SPX_OK;
    if (s->narrow)
        s->whole.psf = &s->spots;
    if (st == SPX_OK)
        st = spx_trace_plan_make(&s->whole, &s->plan, e);
    if (st == SPX_OK &&
        !((s->list = spx_alloc(s->nbundle, sizeof *s->list, e)) && (s->b = spx_alloc(s->nbundle, sizeof *s->b, e)) &&
          (s->r = spx_alloc(s->nworkspace, sizeof *s->r, e)) &&
          (s->tallies = spx_alloc(s->nbundle, sizeof *s->tallies, e)) &&
          (s->light = spx_alloc(s->nbundle, sizeof *s->light, e)) &&
          (s->any = spx_alloc2(2, s->nbundle, sizeof *s->any, e)) &&
          (s->far = spx_alloc2(job->image->ny, job->image->nx, sizeof *s->far, e))))
        st = SPX_EIO;
    if (st == SPX_OK) {
        s->solved = s->any + s->nbundle;
        st = spx_trace_bundles_make(&s->plan, s->nbundle, s->list, nthreads, e);
    }
    counts->seconds[SPX_EXTRACT_PLAN] = spx_thread_seconds() - begin;
    return st == SPX_OK && full != NULL ? make_tail(s, full, 0, e) : st;
}

static void free_scene(scene *s)
{
    for (size_t i = 0; i < s->nbundle && s->b && s->light && s->list; i++) {
        release(s, i);
        spx_trace_bundle_free(&s->list[i]);
        spx_free(s->light[i]);
    }
    for (size_t i = 0; i < s->nworkspace && s->r; i++)
        spx_trace_workspace_free(&s->r[i]);
    spx_trace_plan_free(&s->plan);
    spx_tail_free(s->tail);
    spx_background_free(s->background);
    spx_free(s->list);
    spx_free(s->b);
    spx_free(s->r);
    spx_free(s->tallies);
    spx_free(s->any);
    spx_free(s->light);
    spx_free(s->columns);
    spx_free(s->far);
}

/* The frame of a scene with narrow spots: tails, then the wanted bundles as without; weights of *job are changed. */
static spx_status extract_narrow(scene *s, spx_extract_job *job, spx_frame *out, spx_extract_counts *counts, spx_err *e)
{
    const int nthreads = spx_extract_threads(job->o);
    spx_trace_plan wanted = {0};
    spx_trace_bundle *list = spx_alloc(s->nwanted, sizeof *list, e);
    const double begin = spx_thread_seconds();
    spx_status st = list ? spx_trace_plan_make(job, &wanted, e) : SPX_EIO;
    if (st == SPX_OK)
        st = spx_trace_bundles_make(&wanted, s->nwanted, list, nthreads, e);
    counts->seconds[SPX_EXTRACT_PLAN] += spx_thread_seconds() - begin;
    if (st == SPX_OK && spx_extract_screens(job->o))
        st = screen(s, &wanted, list, job, nthreads, out, counts, e);
    if (st == SPX_OK)
        st = solve_all(s, job->o->tail_corrections, nthreads, counts, e);
    for (size_t i = 0; i < s->nbundle; i++)
        for (int step = 0; step < SPX_EXTRACT_STEPS; step++)
            counts->seconds[SPX_EXTRACT_TAIL] += s->tallies[i].seconds[step];
    if (st == SPX_OK) {
        job->far = s->far;
        st = spx_trace_solve_bundles(&wanted, s->nwanted, list, NULL, out, counts, e);
        job->far = NULL;
    }
    for (size_t i = 0; list && i < s->nwanted; i++)
        spx_trace_bundle_free(&list[i]);
    spx_trace_plan_free(&wanted);
    spx_free(list);
    return st;
}

/* From a scene to the frame; weights of *job are changed. */
static spx_status extract_all(scene *s, spx_extract_job *job, spx_frame *out, spx_extract_counts *counts, spx_err *e)
{
    const int nthreads = spx_extract_threads(job->o);
    spx_trace_plan wanted = s->plan;
    spx_status st = SPX_OK;
    wanted.job = job;
    counts->npatch = job->o->nspec;
    counts->fallback = (spx_fallback){.unit = "bundles", .total = s->nwanted};
    if (s->narrow)
        return extract_narrow(s, job, out, counts, e);
    if (spx_extract_screens(job->o))
        st = screen(s, &wanted, s->list + s->first, job, nthreads, out, counts, e);
    if (st == SPX_OK)
        st = solve_all(s, job->o->tail_corrections, nthreads, counts, e);
    return st == SPX_OK ? end_wanted(s, &wanted, nthreads, out, counts, e) : st;
}

/* Flux and ivar of cores as those of spots with their tails. */
static void add_tails(const spx_extract_job *job, const spx_tail *tail, spx_frame *out)
{
    for (size_t f = 0; f < out->nspec; f++)
        for (size_t k = 0; k < job->nwave; k++) {
            const double more = spx_tail_within(tail, job->o->first + f, out->arm.wavelength[k]);
            out->arm.flux[f * job->nwave + k] *= more;
            out->arm.ivar[f * job->nwave + k] /= more * more;
        }
}

/* The background at the bins of the frame, and its mean. */
static spx_status give_background(const spx_extract_job *job, const spx_background *bg, spx_frame *out,
                                  spx_extract_counts *counts, spx_err *e)
{
    const size_t nw = job->nwave, nbin = out->nspec * nw;
    double sum = 0.0;
    if ((out->background = spx_alloc2(out->nspec, nw, sizeof *out->background, e)) == NULL)
        return SPX_EIO;
    for (size_t i = 0; i < nbin; i++) {
        const size_t f = job->o->first + i / nw;
        const double lambda = out->arm.wavelength[i % nw], x = spx_psf_series_value(&job->psf->x, f, lambda),
                     y = spx_psf_series_value(&job->psf->y, f, lambda);
        const double here = isfinite(x) && isfinite(y) ? spx_background_at(bg, x, y) : 0.0;
        out->background[i] = here;
        sum += here / (double)nbin;
    }
    counts->background = sum;
    return SPX_OK;
}

spx_status spx_trace_extract_beyond_spots(const spx_image *image, const spx_psf *psf, const spx_extract_options *o,
                                          spx_frame *out, spx_extract_counts *counts, spx_err *e)
{
    const int tails = spx_extract_corrects_tail(psf, o);
    spx_psf bare = *psf;
    spx_extract_job job;
    scene s = {0};
    if (tails)
        spx_psf_drop_tail(&bare);
    spx_status st = spx_extract_begin(image, &bare, o, &job, out, counts, e);
    if (st == SPX_OK)
        st = make_scene(&job, tails ? psf : NULL, &s, counts, e);
    if (st == SPX_OK)
        st = extract_all(&s, &job, out, counts, e);
    const double begin = spx_thread_seconds();
    job.far = s.far;
    s.far = NULL;
    if (st == SPX_OK)
        st = spx_extract_end(&job, out, counts, e);
    if (st == SPX_OK && tails)
        add_tails(&job, s.tail, out);
    if (st == SPX_OK && s.background != NULL)
        st = give_background(&job, s.background, out, counts, e);
    counts->seconds[SPX_EXTRACT_END] = spx_thread_seconds() - begin;
    free_scene(&s);
    spx_extract_job_free(&job);
    return st;
}

spx_status spx_extract_take_tails(spx_image *image, const spx_psf *psf, const spx_extract_options *o, spx_err *e)
{
    spx_psf bare = *psf;
    spx_extract_job job;
    spx_extract_counts counts;
    scene s = {0};
    double light;
    const int nthreads = spx_extract_threads(o);
    if (!spx_extract_corrects_tail(psf, o))
        return SPX_OK;
    spx_psf_drop_tail(&bare);
    spx_status st = spx_extract_check_input(image, &bare, o, &job, &counts, e);
    if (st == SPX_OK)
        st = make_scene(&job, psf, &s, &counts, e);
    if (st == SPX_OK)
        st = solve_all(&s, o->tail_corrections, nthreads, &counts, e);
    if (st == SPX_OK)
        st = make_tail(&s, psf, 1, e);
    if (st == SPX_OK)
        st = draw_tails(&s, 0, nthreads, &light, e);
    for (size_t k = 0; k < image->ny * image->nx && st == SPX_OK; k++)
        image->data[k] -= s.far[k];
    free_scene(&s);
    spx_extract_job_free(&job);
    return st;
}
