/* Provides the extraction with light beyond the spots: with a PSF that has a tail (psf/tail.h), with a background
 * (extract/trace/background.h), with lines between bins (extract/trace/lines.h), or all of them. That light is found
 * from the light of all fibres by rows (extract/trace/rows.h), whichever fibres and wavelengths are wanted, and taken
 * off the image, which is then extracted as without. With a tail, spots are cores alone: with wings of thousands of
 * pixels in the equations, 25 fibres at tolerance 1e-8 took fifty times as long. Flux is given as electrons within the
 * spots with their tails.
 *
 *   1. f_0: the light by rows
 *   2. f_1 = f_0 - K f_0: that of the image without tail(f_0). Where K f is k f the limit of f_n = f_0 - K f_(n-1) is
 *      f_0 - K f_0/(1 + k) (Aitken), with k = (f_0 - f_1) f_0/f_0^2 of all light. The lights of eight rows are
 *      taken for two here, at last each for itself
 *   3. image - tail(f_1) is extracted
 *
 * The error falls to the share k of the light that a tail leaves under its fibre, 0.06 or so, with each correction. A
 * background is fitted roughly before the last, which is not extrapolated then, and in full at last: in f_0 it counts
 * as light of the fibres, whose tail is as smooth as it is.
 *
 * With rejection of hits or the variance of a model, one correction comes before these, then all starts again with the
 * new weights. For windows of other programs, steps 1 and 2, and then the tails beyond the spots are taken off the
 * image itself. */
#include "psf/tail.h"

#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "extract/trace/background.h"
#include "extract/trace/beyond.h"
#include "extract/trace/lines.h"
#include "extract/trace/trace.h"
#include "psf/psf_math.h"

struct spx_beyond {
    const spx_extract_job *job; /* of the spots' cores */
    int nthreads;
    spx_rows *rows;
    float *light, *before;        /* [nspec][ny] light by rows; that of the first correction */
    spx_tail *tail;               /* NULL: none */
    int parameter[SPX_PSF_NTAIL]; /* of its PSF: where the table has the tail's */
    int beyond;                   /* the tail is that beyond spots, of light within them */
    spx_background *background;   /* NULL: none */
    float *far;                   /* [ny][nx] of both */
};
typedef spx_beyond scene;

/* Wavelengths of the tail's amplitudes: all of the traces. */
static void tail_range(const spx_extract_job *job, double *lo, double *hi)
{
    const spx_psf *psf = job->psf;
    *lo = fmin(fmin(psf->wmin, psf->x.wmin), spx_extract_lambda(job->o, -(long)job->o->wave_pad));
    *hi = fmax(fmax(psf->wmax, psf->x.wmax), spx_extract_lambda(job->o, (long)(job->nwave + job->o->wave_pad)));
}

/* The tail of a PSF for a scene's images: that beyond the spots, or all of it. */
static spx_status make_tail(const scene *s, const spx_psf *full, int beyond, spx_tail **tail, spx_err *e)
{
    double lo, hi;
    tail_range(s->job, &lo, &hi);
    return spx_tail_make(full, s->job->image->ny, s->job->image->nx, lo, hi, beyond, s->nthreads, tail, e);
}

/* Images and light of a job, where its light is found here. */
static spx_status make_room(scene *s, spx_err *e)
{
    const spx_image *im = s->job->image;
    const size_t nspec = s->job->psf->nspec;
    if (spx_beyond_room(s, e) == NULL)
        return SPX_EIO;
    s->light = s->light ? s->light : spx_alloc_unset(nspec, im->ny * sizeof *s->light, 1, e);
    if (s->light && s->before == NULL)
        s->before = spx_alloc_unset(nspec, im->ny * sizeof *s->before, 1, e);
    return s->before ? SPX_OK : SPX_EIO;
}

static void begin_job(scene *s, const spx_extract_job *job)
{
    s->job = job;
    s->nthreads = spx_extract_threads(job->o);
}

spx_status spx_beyond_make(const spx_extract_job *job, const spx_psf *full, spx_beyond **b, spx_err *e)
{
    spx_beyond *s = *b = spx_alloc(1, sizeof *s, e);
    if (!s)
        return SPX_EIO;
    begin_job(s, job);
    const spx_status st = spx_rows_make(job, s->nthreads, &s->rows, e);
    if (st != SPX_OK || full == NULL)
        return st;
    memcpy(s->parameter, full->tail, sizeof s->parameter);
    return make_tail(s, full, 0, &s->tail, e);
}

void spx_beyond_rest(spx_beyond *s)
{
    spx_background_free(s->background);
    spx_free(s->light);
    spx_free(s->before);
    spx_free(s->far);
    s->background = NULL;
    s->light = s->before = s->far = NULL;
    s->job = NULL;
    spx_rows_set_job(s->rows, NULL);
}

void spx_beyond_go_on(spx_beyond *s, const spx_extract_job *job)
{
    spx_rows_set_job(s->rows, job);
    begin_job(s, job);
}

float *spx_beyond_room(spx_beyond *s, spx_err *e)
{
    if (s->far == NULL)
        s->far = spx_alloc_unset(s->job->image->ny, s->job->image->nx, sizeof *s->far, e);
    return s->far;
}

const spx_rows *spx_beyond_rows(const spx_beyond *s)
{
    return s->rows;
}

const spx_tail *spx_beyond_tail(const spx_beyond *s)
{
    return s->tail;
}

void spx_beyond_key(const spx_beyond *s, int *key)
{
    memcpy(key, s->parameter, sizeof s->parameter);
    key[SPX_PSF_NTAIL] = s->tail != NULL;
}

void spx_beyond_take_background(spx_beyond *s, spx_background *bg)
{
    spx_background_free(s->background);
    s->background = bg;
}

int spx_beyond_has_tail_of(const spx_beyond *s, const spx_psf *full)
{
    return (s->tail != NULL) == (full != NULL) &&
           (full == NULL || memcmp(s->parameter, full->tail, sizeof s->parameter) == 0);
}

void spx_beyond_free(spx_beyond *s)
{
    if (s == NULL)
        return;
    spx_rows_free(s->rows);
    spx_tail_free(s->tail);
    spx_background_free(s->background);
    spx_free(s->light);
    spx_free(s->before);
    spx_free(s->far);
    spx_free(s);
}

const float *spx_beyond_light(const spx_beyond *s)
{
    return s->far;
}

/* ---- tails ---- */

/* The light of n rows of a fibre from y on as lights number i, i + 1, ... of the tail: of each row, or, roughly, all of
 * it as that of two rows, with the same sum and moments. Returns the sum. Linear in the light: rounding has no more of
 * an effect than its own size. */
static double set_light(const scene *s, size_t i, size_t fibre, size_t y, size_t n, int rough)
{
    const float *light = s->light + fibre * s->job->image->ny;
    const size_t nset = spx_beyond_lights(rough);
    double x[SPX_BEYOND_ROUGHLY], sum = 0.0, electrons[SPX_BEYOND_TOGETHER] = {0}, moment[SPX_BEYOND_TOGETHER] = {0},
                                  column = 0.0, lambda = 0.0, count = 0.0, amplitude = 0.0;
    spx_tail_column at = {0};
    for (size_t k = 0; k < n; k++) {
        double wave;
        if (!spx_rows_place(s->rows, fibre, y + k, &x[k], &wave)) {
            x[k] = NAN;
            continue;
        }
        column += x[k];
        lambda += wave;
        count++;
    }
    if (count > 0.0) {
        const spx_tail_knots knots = spx_tail_knots_at(s->tail, lambda / count);
        at = spx_tail_column_of(column / count);
        amplitude = spx_tail_amplitude(s->tail, fibre, &knots);
        amplitude *= s->beyond ? spx_tail_within(s->tail, fibre, &knots) : 1.0;
    }
    for (size_t k = 0; k < n; k++) {
        if (isnan(x[k]))
            continue;
        const double here = (double)light[y + k];
        sum += here;
        for (size_t j = 0; j < nset; j++) {
            const double part = here * spx_beyond_part(rough, (int)k, (int)j);
            electrons[j] += part;
            moment[j] += part * (x[k] - at.column);
        }
    }
    for (size_t j = 0; j < nset; j++)
        spx_tail_set(s->tail, i + j, amplitude, &at, (long)y + spx_beyond_row(rough, (int)j), electrons[j], moment[j]);
    return sum;
}

/* The image of tails of the light as it is into s->far, and how much there is. */
static spx_status draw_tails(void *with, int rough, double *all, spx_err *e)
{
    scene *s = with;
    const size_t n = (size_t)spx_beyond_rows_of(rough), each = spx_beyond_lights(rough);
    const size_t ny = s->job->image->ny, nx = s->job->image->nx, nspec = s->job->psf->nspec, nrow = (ny + n - 1) / n;
    double *sum = spx_alloc2(2, ny, sizeof *sum, e);
    spx_status st = sum ? spx_tail_reserve(s->tail, nrow * nspec * each, e) : SPX_EIO;
    if (st == SPX_OK) {
#pragma omp parallel for num_threads(s->nthreads)
        for (size_t i = 0; i < nrow; i++)
            for (size_t f = 0; f < nspec; f++)
                sum[i] += set_light(s, (i * nspec + f) * each, f, i * n, (i + 1) * n <= ny ? n : ny - i * n, rough);
        st = spx_tail_image(s->tail, s->nthreads, s->far, e);
    }
    all[0] = all[1] = 0.0;
    if (st == SPX_OK) {
#pragma omp parallel for num_threads(s->nthreads)
        for (size_t y = 0; y < ny; y++)
            for (size_t x = 0; x < nx; x++)
                sum[ny + y] += (double)s->far[y * nx + x];
        for (size_t y = 0; y < ny; y++) {
            all[0] += sum[y];
            all[1] += sum[ny + y];
        }
    }
    spx_free(sum);
    return st;
}

/* From f_0 and f_1 to where the corrections lead. k is that of lights of EACH rows: f_0 is of every other one, whose
 * lines are wider. */
static spx_status extrapolate(void *with, spx_err *e)
{
    enum { EACH = SPX_BEYOND_EACH };
    scene *s = with;
    const size_t ny = s->job->image->ny, nspec = s->job->psf->nspec;
    double change = 0.0, all = 0.0, (*sum)[2] = spx_alloc(nspec, sizeof *sum, e);
    if (!sum)
        return SPX_EIO;
#pragma omp parallel for num_threads(s->nthreads)
    for (size_t f = 0; f < nspec; f++)
        for (size_t y = 0; y < ny; y += EACH) {
            const float *first = s->before + f * ny, *next = s->light + f * ny;
            double a = 0.0, b = 0.0;
            for (size_t k = y; k < ny && k < y + EACH; k++) {
                a += (double)first[k];
                b += (double)next[k];
            }
            sum[f][0] += (a - b) * a;
            sum[f][1] += a * a;
        }
    for (size_t f = 0; f < nspec; f++) {
        change += sum[f][0];
        all += sum[f][1];
    }
    spx_free(sum);
    const float share = spx_beyond_share(change, all);
#pragma omp parallel for num_threads(s->nthreads)
    for (size_t k = 0; k < nspec * ny; k++)
        s->light[k] = s->before[k] + (s->light[k] - s->before[k]) / (1.0f + share);
    return SPX_OK;
}

/* ---- steps of the host ---- */

static spx_status clear_far(void *with, spx_err *e)
{
    scene *s = with;
    const spx_image *im = s->job->image;
    const spx_status st = make_room(s, e);
#pragma omp parallel for num_threads(s->nthreads)
    for (size_t y = 0; y < im->ny; y++)
        if (st == SPX_OK)
            memset(s->far + y * im->nx, 0, im->nx * sizeof *s->far);
    return st;
}

static spx_status find_light(void *with, int rough, spx_err *e)
{
    scene *s = with;
    return spx_rows_light(s->rows, s->far, rough, s->nthreads, s->light, e);
}

static spx_status keep_light(void *with, spx_err *e)
{
    scene *s = with;
    (void)e;
    memcpy(s->before, s->light, s->job->psf->nspec * s->job->image->ny * sizeof *s->before);
    return SPX_OK;
}

static spx_status fit_background(void *with, spx_background *bg, int rough, spx_extract_counts *counts, spx_err *e)
{
    scene *s = with;
    return spx_background_fit(bg, s->rows, s->far, rough, s->nthreads, counts, e);
}

static spx_status add_background(void *with, const spx_background *bg, spx_err *e)
{
    scene *s = with;
    (void)e;
    spx_background_add(bg, s->nthreads, s->far);
    return SPX_OK;
}

/* ---- both ---- */

/* Fits the background to the image without far, and adds it there. */
static spx_status take_background(const spx_beyond_steps *by, spx_background *bg, int rough, spx_extract_counts *counts,
                                  spx_err *e)
{
    const double begin = spx_thread_seconds();
    spx_status st = by->fit(by->with, bg, rough, counts, e);
    if (st == SPX_OK)
        st = by->add(by->with, bg, e);
    counts->seconds[SPX_EXTRACT_BACKGROUND] += spx_thread_seconds() - begin;
    return st;
}

/* A correction for tails; c: how many were before. */
static spx_status correct_tails(const spx_beyond_steps *by, int c, int corrections, int extrapolated,
                                spx_extract_counts *counts, spx_err *e)
{
    const double begin = spx_thread_seconds();
    const int more = c + 1 < corrections;
    double sum[2] = {0};
    spx_status st = by->light(by->with, more, e);
    if (st == SPX_OK && c == 1 && extrapolated)
        st = by->extrapolate(by->with, e);
    if (st == SPX_OK && c == 0 && more && extrapolated)
        st = by->keep(by->with, e);
    if (st == SPX_OK)
        st = by->draw(by->with, more, sum, e);
    if (st == SPX_OK) {
        counts->tail_change = sum[1] != 0.0 ? fabs(sum[1] - counts->tail_light) / fabs(sum[1]) : 0.0;
        counts->core_light = sum[0];
        counts->tail_light = sum[1];
    }
    counts->seconds[SPX_EXTRACT_TAIL] += spx_thread_seconds() - begin;
    return st;
}

spx_status spx_beyond_find_by(const spx_beyond *s, const spx_beyond_steps *by, int corrections, spx_background **bg,
                              spx_extract_counts *counts, spx_err *e)
{
    const spx_image *im = s->job->image;
    const double cell = s->job->o->background;
    const int rounds = s->tail != NULL ? corrections : 0;
    *bg = NULL;
    spx_status st = by->clear(by->with, e);
    if (st == SPX_OK && cell > 0.0)
        st = spx_background_make(im->ny, im->nx, cell, bg, e);
    for (int c = 0; st == SPX_OK && c < rounds; c++) {
        if (*bg != NULL && (c > 0 || rounds == 1))
            st = take_background(by, *bg, 1, counts, e);
        if (st == SPX_OK)
            st = correct_tails(by, c, rounds, *bg == NULL, counts, e);
    }
    if (st == SPX_OK && *bg != NULL && rounds == 0)
        st = by->fit(by->with, *bg, 1, counts, e);
    return st == SPX_OK && *bg != NULL ? take_background(by, *bg, 0, counts, e) : st;
}

spx_status spx_beyond_find(spx_beyond *s, int corrections, spx_extract_counts *counts, spx_err *e)
{
    const spx_beyond_steps here = {s,           clear_far,  find_light,     keep_light,
                                   extrapolate, draw_tails, fit_background, add_background};
    spx_background *bg;
    spx_status st = spx_beyond_find_by(s, &here, corrections, &bg, counts, e);
    spx_beyond_take_background(s, bg);
    const double begin = spx_thread_seconds();
    if (st == SPX_OK && s->job->o->nline > 0)
        st = spx_rows_light(s->rows, s->far, 0, s->nthreads, s->light, e);
    if (st == SPX_OK && s->job->o->nline > 0)
        st = spx_lines_add(s->job, s->light, s->nthreads, s->far, counts, e);
    counts->seconds[SPX_EXTRACT_TAIL] += spx_thread_seconds() - begin;
    return st;
}

/* Hits and variance of the wanted bundles, from an image that has been corrected once; weights of *job are changed. */
static spx_status screen(scene *s, const spx_trace_plan *wanted, size_t nbundle, const spx_trace_bundle *list,
                         spx_extract_job *job, spx_frame *out, spx_extract_counts *counts, spx_err *e)
{
    const size_t npix = job->image->ny * job->image->nx;
    spx_status st = spx_beyond_find(s, 1, counts, e);
    if (st != SPX_OK)
        return st;
    double *light = spx_alloc_unset(npix, 1, sizeof *light, e);
    int *chosen = spx_alloc(nbundle, sizeof *chosen, e);
    st = light && chosen ? SPX_OK : SPX_EIO;
    for (size_t k = 0; k < npix && st == SPX_OK; k++)
        light[k] = (double)s->far[k];
    if (st == SPX_OK) {
        job->far = s->far;
        st = spx_trace_screen_bundles(wanted, nbundle, list, NULL, light, job, 0, chosen, out, counts, e);
        job->far = NULL;
    }
    spx_free(light);
    spx_free(chosen);
    return st;
}

/* From a scene to the frame; weights of *job are changed. */
static spx_status extract_all(scene *s, spx_extract_job *job, spx_frame *out, spx_extract_counts *counts, spx_err *e)
{
    const size_t nbundle = spx_extract_nbundle(job->psf, job->o);
    spx_trace_plan wanted = {0};
    spx_trace_bundle *list = spx_alloc(nbundle, sizeof *list, e);
    const double begin = spx_thread_seconds();
    spx_status st = list ? spx_trace_plan_make(job, NULL, &wanted, e) : SPX_EIO;
    if (st == SPX_OK)
        st = spx_trace_bundles_make(&wanted, nbundle, list, s->nthreads, e);
    counts->seconds[SPX_EXTRACT_PLAN] += spx_thread_seconds() - begin;
    counts->npatch = job->o->nspec;
    counts->fallback = (spx_fallback){.unit = "bundles", .total = nbundle};
    if (st == SPX_OK && spx_extract_screens(job->o))
        st = screen(s, &wanted, nbundle, list, job, out, counts, e);
    if (st == SPX_OK)
        st = spx_beyond_find(s, job->o->tail_corrections, counts, e);
    if (st == SPX_OK) {
        job->far = s->far;
        st = spx_trace_solve_bundles(&wanted, nbundle, list, NULL, out, counts, e);
        job->far = NULL;
    }
    for (size_t i = 0; list && i < nbundle; i++)
        spx_trace_bundle_free(&list[i]);
    spx_trace_plan_free(&wanted);
    spx_free(list);
    return st;
}

/* Flux and ivar of cores as those of spots with their tails. */
static spx_status add_tails(const spx_extract_job *job, const spx_tail *tail, spx_frame *out, spx_err *e)
{
    spx_tail_knots *knots = spx_alloc(job->nwave, sizeof *knots, e);
    if (!knots)
        return SPX_EIO;
    for (size_t k = 0; k < job->nwave; k++)
        knots[k] = spx_tail_knots_at(tail, out->arm.wavelength[k]);
#pragma omp parallel for num_threads(spx_extract_threads(job->o))
    for (size_t f = 0; f < out->nspec; f++)
        for (size_t k = 0; k < job->nwave; k++) {
            const double more = spx_tail_within(tail, job->o->first + f, &knots[k]);
            out->arm.flux[f * job->nwave + k] *= more;
            out->arm.ivar[f * job->nwave + k] /= more * more;
        }
    spx_free(knots);
    return SPX_OK;
}

/* Bins between those that the background is computed at, with cubics in between, where its cells are the smallest: a
 * few pixels, where it is smooth over many; up to four times as many where cells are larger. */
enum { NODE = 4 };

/* The background at the place of a bin, which may be beyond the frame's. */
static double background_of(const spx_extract_job *job, const spx_background *bg, size_t fibre, long bin)
{
    const double lambda = spx_extract_lambda(job->o, bin), x = spx_psf_series_value(&job->psf->x, fibre, lambda),
                 y = spx_psf_series_value(&job->psf->y, fibre, lambda);
    return isfinite(x) && isfinite(y) ? spx_background_at(bg, x, y) : 0.0;
}

spx_status spx_beyond_give_background(const spx_beyond *s, int nthreads, spx_frame *out, double *all, spx_err *e)
{
    const spx_extract_job *job = s->job;
    const spx_background *bg = s->background;
    const size_t nw = job->nwave;
    const long node = NODE * (long)fmin(fmax(job->o->background / SPX_EXTRACT_LEAST_CELL, 1.0), 4.0);
    double *mean = spx_alloc(out->nspec, sizeof *mean, e);
    if (!mean || (out->background = spx_alloc_unset(out->nspec, nw, sizeof *out->background, e)) == NULL) {
        spx_free(mean);
        return SPX_EIO;
    }
#pragma omp parallel for num_threads(nthreads)
    for (size_t f = 0; f < out->nspec; f++) {
        double v[4] = {0}; /* at four nodes, of which k lies behind the second */
        for (long i = -1; i < 2; i++)
            v[i + 2] = background_of(job, bg, job->o->first + f, i * node);
        for (size_t k = 0; k < nw; k++) {
            const double u = (double)((long)k % node) / (double)node;
            if ((long)k % node == 0) {
                memmove(v, v + 1, 3 * sizeof *v);
                v[3] = background_of(job, bg, job->o->first + f, (long)k + 2 * node);
            }
            const double here = (-v[0] * u * (u - 1) * (u - 2) + v[3] * (u + 1) * u * (u - 1)) / 6 +
                                (v[1] * (u + 1) * (u - 1) * (u - 2) - v[2] * (u + 1) * u * (u - 2)) / 2;
            out->background[f * nw + k] = here;
            mean[f] += here / (double)(out->nspec * nw);
        }
    }
    *all = 0.0;
    for (size_t f = 0; f < out->nspec; f++)
        *all += mean[f];
    spx_free(mean);
    return SPX_OK;
}

spx_status spx_beyond_end(const spx_beyond *s, spx_frame *out, spx_extract_counts *counts, spx_err *e)
{
    const spx_status st = s->tail != NULL ? add_tails(s->job, s->tail, out, e) : SPX_OK;
    return st == SPX_OK && s->background != NULL && out->background == NULL
               ? spx_beyond_give_background(s, s->nthreads, out, &counts->background, e)
               : st;
}

spx_status spx_trace_extract_beyond_spots(const spx_image *image, const spx_psf *psf, const spx_extract_options *o,
                                          spx_frame *out, spx_extract_counts *counts, spx_err *e)
{
    const int tails = spx_extract_corrects_tail(psf, o);
    spx_psf bare = *psf;
    spx_extract_job job;
    spx_beyond *s = NULL;
    if (tails)
        spx_psf_drop_tail(&bare);
    spx_status st = spx_extract_begin(image, &bare, o, &job, out, counts, e);
    if (st == SPX_OK)
        st = spx_beyond_make(&job, tails ? psf : NULL, &s, e);
    if (st == SPX_OK)
        st = extract_all(s, &job, out, counts, e);
    const double begin = spx_thread_seconds();
    job.far = s != NULL ? s->far : NULL;
    if (st == SPX_OK)
        st = spx_extract_end(&job, out, counts, e);
    if (st == SPX_OK)
        st = spx_beyond_end(s, out, counts, e);
    counts->seconds[SPX_EXTRACT_END] = spx_thread_seconds() - begin;
    spx_beyond_free(s);
    spx_extract_job_free(&job);
    return st;
}

struct spx_extract_tails {
    spx_psf psf, bare; /* a copy; it without its tail, which has the copy's arrays */
    spx_extract_options o;
    size_t ny, nx;
    spx_extract_job job;
    spx_beyond *scene;
    spx_tail *beyond; /* the tail beyond spots */
};

void spx_extract_tails_free(spx_extract_tails *t)
{
    if (t == NULL)
        return;
    spx_beyond_free(t->scene);
    spx_tail_free(t->beyond);
    spx_psf_free(&t->psf);
    spx_free(t);
}

static int tables_fit(const spx_extract_tails *t, const spx_image *image, const spx_psf *psf,
                      const spx_extract_options *o)
{
    const spx_extract_options *p = &t->o;
    return t->ny == image->ny && t->nx == image->nx && p->wmin == o->wmin && p->wmax == o->wmax && p->dw == o->dw &&
           p->wave_pad == o->wave_pad && p->first == o->first && p->nspec == o->nspec &&
           p->bundle_size == o->bundle_size && p->nthreads == o->nthreads && spx_psf_same_light(&t->psf, psf);
}

/* Tables of t->psf for an image; *t is new. */
static spx_status make_tables(const spx_image *image, const spx_psf *psf, const spx_extract_options *o,
                              spx_extract_tails *t, spx_err *e)
{
    spx_extract_counts counts;
    t->o = *o;
    t->ny = image->ny;
    t->nx = image->nx;
    spx_status st = spx_psf_copy(psf, &t->psf, e);
    t->bare = t->psf;
    spx_psf_drop_tail(&t->bare);
    if (st == SPX_OK)
        st = spx_extract_check_input(image, &t->bare, &t->o, &t->job, &counts, e);
    if (st == SPX_OK)
        st = spx_beyond_make(&t->job, &t->psf, &t->scene, e);
    return st == SPX_OK ? make_tail(t->scene, &t->psf, 1, &t->beyond, e) : st;
}

/* With the tables of its PSF: see spx_extract_take_tails(). */
static spx_status take_tails(spx_extract_tails *t, spx_image *image, spx_err *e)
{
    spx_extract_counts counts;
    double sum[2];
    spx_status st = spx_extract_check_input(image, &t->bare, &t->o, &t->job, &counts, e);
    if (st != SPX_OK)
        return st;
    spx_beyond_go_on(t->scene, &t->job);
    st = spx_beyond_find(t->scene, t->o.tail_corrections, &counts, e);
    if (st == SPX_OK) {
        scene beyond = *t->scene;
        beyond.tail = t->beyond;
        beyond.beyond = 1;
        st = draw_tails(&beyond, 0, sum, e);
    }
    for (size_t k = 0; k < image->ny * image->nx && st == SPX_OK; k++)
        image->data[k] -= t->scene->far[k];
    spx_beyond_rest(t->scene);
    spx_extract_job_free(&t->job);
    return st;
}

spx_status spx_extract_take_tails(spx_image *image, const spx_psf *psf, const spx_extract_options *o,
                                  spx_extract_tails **tables, spx_err *e)
{
    spx_extract_tails *t = *tables;
    if (!spx_extract_corrects_tail(psf, o))
        return SPX_OK;
    if (t != NULL && tables_fit(t, image, psf, o)) {
        t->o = *o;
        return take_tails(t, image, e);
    }
    spx_extract_tails_free(t);
    t = *tables = spx_alloc(1, sizeof *t, e);
    const spx_status st = t ? make_tables(image, psf, o, t, e) : SPX_EIO;
    if (st == SPX_OK)
        return take_tails(t, image, e);
    spx_extract_tails_free(t);
    *tables = NULL;
    return st;
}
