/* Provides what comes before an extraction that rejects cosmic-ray hits, or takes the variance from a model: all
 * bundles are solved as far as the flux, and the weights of the pixels follow from that. */
#include <math.h>
#include <omp.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "extract/end_math.h"
#include "extract/trace/reject_math.h"
#include "extract/trace/trace.h"

typedef struct {
    const spx_trace_plan *p;
    spx_extract_job *job;
    unsigned char *hit;    /* [ny][nx] */
    unsigned char *cosmic; /* [nspec][nwave] bins that have lost more than SPX_COSMIC_LOSS of their light */
    double *light;         /* [ny][nx] smoothed spectra on the CCD; NULL: the variance stays */
} screen;

/* Read noise of a bundle's window; 1 off the CCD. */
static float *load_readnoise(const spx_trace_plan *p, const spx_trace_bundle *b, spx_trace_workspace *r, spx_err *e)
{
    const spx_image *im = p->job->image;
    float *noise = (float *)spx_trace_workspace_get(r, SPX_BUFFER_READNOISE, b->wny, b->wnx / 2 + 1, e);
    for (size_t i = 0; noise && i < b->wny * b->wnx; i++) {
        const long y = (long)(i / b->wnx) + b->wy0, x = (long)(i % b->wnx) + b->wx0;
        const int on_ccd = y >= 0 && x >= 0 && y < (long)im->ny && x < (long)im->nx;
        noise[i] = on_ccd ? im->readnoise[(size_t)y * im->nx + (size_t)x] : 1.0f;
    }
    return noise;
}

/* Adds the hits of a bundle to the arrays of the frame; one bundle after another. */
static void join(screen *s, const spx_trace_bundle *b, const spx_trace_hits *hits, const double *light)
{
    const spx_extract_options *o = s->job->o;
    const size_t nx = s->job->image->nx, pad = s->p->pad;
    const long x0 = b->wx0 > 0 ? b->wx0 : 0, x1 = b->wx0 + (long)b->wnx < (long)nx ? b->wx0 + (long)b->wnx : (long)nx;
    for (long y = b->y0; y < b->y1; y++)
        for (long x = x0; x < x1; x++) {
            const size_t i = (size_t)y * nx + (size_t)x, at = (size_t)(y - b->wy0) * b->wnx + (size_t)(x - b->wx0);
            if (hits->changed)
                s->hit[i] |= (hits->flag[at] & hits->is_hit) != 0;
            if (light)
                s->light[i] += light[at];
        }
    for (size_t f = 0; f < b->nf && hits->changed; f++)
        for (size_t k = 0; k < s->job->nwave && b->fibre0 + f >= o->first && b->fibre0 + f < o->first + o->nspec; k++) {
            const size_t j = (k + pad) * b->nl + f;
            s->cosmic[(b->fibre0 + f - o->first) * s->job->nwave + k] = hits->whole[j] - b->seen[j] > SPX_COSMIC_LOSS;
        }
}

/* Columns of each row that the spots of a bundle may cover: first[ny], and end[ny] behind the last; end 0: none. */
static void find_columns(const spx_trace_plan *p, const spx_trace_bundle *b, long ny, long *first, long *end)
{
    memset(end, 0, (size_t)ny * sizeof *end);
    for (size_t i = 0; i < p->nbin * b->nf; i++) {
        const spx_bin_geometry *at = &b->at[i];
        const long last = b->state[i] == SPX_TRACE_SPOT ? at->yc + p->ny : 0;
        for (long y = at->yc > 0 ? at->yc : 0; y < last && y < ny; y++) {
            first[y] = end[y] == 0 || at->xc < first[y] ? at->xc : first[y];
            end[y] = at->xc + p->nx > end[y] ? at->xc + p->nx : end[y];
        }
    }
}

/* Sets alone[] to 1 for bundles whose spots cover no pixel that those of another may cover. */
static spx_status find_alone(const spx_trace_plan *p, size_t nbundle, const spx_trace_bundle *list, int nthreads,
                             int *alone, spx_err *e)
{
    const size_t ny = p->job->image->ny;
    long *first = spx_alloc2(2 * nbundle, ny, sizeof *first, e);
    if (!first)
        return SPX_EIO;
    long *end = first + nbundle * ny;
#pragma omp parallel for schedule(dynamic) num_threads(nthreads)
    for (size_t i = 0; i < nbundle; i++)
        find_columns(p, &list[i], (long)ny, first + i * ny, end + i * ny);
    for (size_t i = 0; i < nbundle; i++) {
        alone[i] = 1;
        for (size_t j = 0; j < nbundle; j++)
            for (size_t y = 0; y < ny && i != j && alone[i]; y++)
                alone[i] = !(first[i * ny + y] < end[j * ny + y] && first[j * ny + y] < end[i * ny + y]);
    }
    spx_free(first);
    return SPX_OK;
}

/* Whether a pixel that any bundle has rejected lies in the window of this one. */
static int is_hit(const screen *s, const spx_trace_bundle *b)
{
    const size_t nx = s->job->image->nx;
    const long x0 = b->wx0 > 0 ? b->wx0 : 0, x1 = b->wx0 + (long)b->wnx < (long)nx ? b->wx0 + (long)b->wnx : (long)nx;
    for (long y = b->y0; y < b->y1 && x0 < x1; y++)
        if (memchr(s->hit + (size_t)y * nx + (size_t)x0, 1, (size_t)(x1 - x0)))
            return 1;
    return 0;
}

/* Hits into the frame, their weights 0; weights of the others from the model. */
static spx_status weigh(screen *s, spx_frame *out, spx_extract_counts *counts, spx_err *e)
{
    const spx_image *im = s->job->image;
    const size_t npix = im->ny * im->nx;
    size_t n = 0;
    for (size_t i = 0; i < npix; i++)
        n += s->hit[i];
    counts->npix_rejected = out->ncosmic = n;
    if (n > 0 && !(out->cosmic_pixels = spx_alloc2(n, 2, sizeof *out->cosmic_pixels, e)))
        return SPX_EIO;
    n = 0;
    for (size_t i = 0; i < npix; i++) {
        float *w = &s->job->weight[i];
        if (s->hit[i]) {
            out->cosmic_pixels[2 * n] = (int32_t)(i / im->nx);
            out->cosmic_pixels[2 * n++ + 1] = (int32_t)(i % im->nx);
            *w = 0.0f;
        } else if (s->light && *w > 0.0f) {
            *w = (float)(1.0 / spx_model_variance((double)im->readnoise[i], s->light[i]));
        }
    }
    for (size_t i = 0; i < out->nspec * s->job->nwave; i++)
        if (s->cosmic[i]) {
            out->arm.mask[i] |= SPX_COSMIC;
            counts->nbin_cosmic++;
        }
    return SPX_OK;
}

/* With the variance of the model, pixels without read noise cannot be used. */
static void need_readnoise(spx_extract_job *job, spx_extract_counts *counts)
{
    const spx_image *im = job->image;
    for (size_t i = 0; i < im->ny * im->nx; i++)
        if (job->weight[i] > 0.0f && !(im->readnoise[i] >= SPX_LEAST_READNOISE && isfinite(im->readnoise[i]))) {
            job->weight[i] = 0.0f;
            counts->npix_bad++;
        }
}

spx_status spx_trace_no_readnoise(spx_err *e)
{
    return spx_fail_remedy(e, SPX_EINPUT, "give {variance} data",
                           "/image/readnoise: is not there: the variance of the model needs it");
}

spx_status spx_trace_screen_bundles(const spx_trace_plan *p, size_t nbundle, const spx_trace_bundle *list,
                                    const int *only, const double *light, spx_extract_job *job, int finish, int *chosen,
                                    spx_frame *out, spx_extract_counts *counts, spx_err *e)
{
    const int nthreads = spx_extract_threads(job->o), anew = job->o->variance == SPX_VARIANCE_MODEL;
    const size_t npix = job->image->ny * job->image->nx;
    screen s = {.p = p, .job = job};
    if (anew && job->image->readnoise == NULL)
        return spx_trace_no_readnoise(e);
    if (anew)
        need_readnoise(job, counts);
    spx_trace_workspace *workspaces = spx_trace_workspaces_make(nthreads, e);
    spx_trace_tally *tallies = spx_alloc(nbundle, sizeof *tallies, e);
    int *alone = spx_alloc(nbundle, sizeof *alone, e);
    spx_status st = workspaces && tallies && alone && (s.hit = spx_alloc(npix, 1, e)) &&
                            (s.cosmic = spx_alloc2(job->o->nspec, job->nwave, 1, e)) &&
                            (!anew || (s.light = spx_alloc(npix, sizeof *s.light, e)))
                        ? SPX_OK
                        : SPX_EIO;
    int failed = 0;
    if (st == SPX_OK && finish && !anew)
        st = find_alone(p, nbundle, list, nthreads, alone, e);
    if (st == SPX_OK && anew && light)
        memcpy(s.light, light, npix * sizeof *s.light);
    if (st == SPX_OK) {
#pragma omp parallel for ordered schedule(dynamic) num_threads(nthreads) reduction(| : failed)
        for (size_t i = 0; i < nbundle; i++) {
            spx_trace_workspace *r = &workspaces[omp_get_thread_num()];
            spx_trace_bundle b;
            spx_trace_hits hits = {0};
            double *own = NULL;
            const int here = only == NULL || only[i] != 0;
            const float *noise = here && anew && job->o->reject > 0.0 ? load_readnoise(p, &list[i], r, NULL) : NULL;
            failed |= here && anew && job->o->reject > 0.0 && !noise;
            failed |= here && spx_trace_screen_bundle(p, &list[i], &b, r, noise, finish, alone[i], &hits, &own,
                                                      &chosen[i], out, &tallies[i], NULL) != SPX_OK;
#pragma omp ordered
            if (here)
                join(&s, &b, &hits, own);
        }
        if (failed) /* there is no other reason */
            st = spx_mem_fail(e);
    }
    for (size_t i = 0; i < nbundle && st == SPX_OK; i++) {
        chosen[i] |= !alone[i] && is_hit(&s, &list[i]);
        if (!chosen[i])
            spx_progress_step(job->o->progress, list[i].nf);
        spx_trace_count(&tallies[i], !chosen[i], counts);
    }
    if (st == SPX_OK)
        st = weigh(&s, out, counts, e);
    spx_trace_count_tasks(workspaces, nthreads, counts);
    spx_trace_workspaces_free(workspaces, nthreads);
    spx_free(tallies);
    spx_free(alone);
    spx_free(s.hit);
    spx_free(s.cosmic);
    spx_free(s.light);
    return st;
}
