/* Provides the motion of traces on the CPU (extract/motion.h): windows times bundles, a thread each. */
#include <math.h>
#include <omp.h>
#include <string.h>

#include "base/mem.h"
#include "extract/trace/trace.h"
#include "num/blas.h"
#include "psf/psf_math.h"

/* Most bins of a window: more is no window. */
#define MOST_BINS 100000.0

size_t spx_motion_bundles(const spx_psf *psf, const spx_motion_options *o)
{
    return o->bundle_size > 0 ? (psf->nspec + o->bundle_size - 1) / o->bundle_size : 0;
}

/* Rows of the CCD from which on, and up to which, no light of bins beyond those of the plan falls: those are used.
 * Light of a bin reaches hsizey rows from the middle of its spot. */
static void use_inner_rows(const spx_trace_plan *p, spx_trace_bundle *b)
{
    long first = b->y0, end = b->y1;
    for (size_t f = 0; f < b->nf; f++) {
        const size_t from = f, to = (p->nbin - 1) * b->nf + f;
        if (b->state[from] == SPX_TRACE_NOSPOT || b->state[to] == SPX_TRACE_NOSPOT)
            continue;
        const int up = b->at[to].yc >= b->at[from].yc;
        const long low = b->at[up ? from : to].yc, high = b->at[up ? to : from].yc;
        first = low + p->ny > first ? low + p->ny : first;
        end = high < end ? high : end;
    }
    b->y0 = first;
    b->y1 = end > first ? end : first;
}

/* One bundle in one window. */
static spx_status measure(const spx_trace_plan *p, const spx_trace_bundle *from, spx_trace_workspace *r,
                          spx_motion_row *row, spx_motion_fit *fit, spx_err *e)
{
    spx_trace_bundle b = *from;
    spx_trace_tally tally = {0};
    int any = 0, solved = 0;
    use_inner_rows(p, &b);
    if (b.y1 <= b.y0)
        return SPX_OK;
    b.singular = spx_alloc(b.nf, 1, e);
    b.regularize = spx_alloc(b.nf, sizeof *b.regularize, e);
    spx_status st = b.singular && b.regularize ? spx_trace_deconvolve(p, &b, r, &tally, &any, &solved, e) : SPX_EIO;
    if (st == SPX_OK && solved)
        st = spx_trace_kernels_best()->motion(p, &b, r, row, fit, e);
    for (size_t f = 0; f < b.nf; f++) { /* a trace without a solution says nothing */
        int good = !b.singular || !b.singular[f];
        for (int i = 0; i < 3; i++)
            good &= isfinite(row[f].fisher[i]) != 0;
        for (int i = 0; i < 2; i++)
            good &= isfinite(row[f].gradient[i]) != 0;
        if (!good || !(row[f].fisher[0] > 0)) {
            const double wavelength = row[f].wavelength;
            row[f] = (spx_motion_row){.wavelength = wavelength};
            if (f > 0)
                memset(row[f - 1].next, 0, sizeof row[f - 1].next);
        }
    }
    spx_free(b.singular);
    spx_free(b.regularize);
    return st;
}

static spx_status check(const spx_psf *psf, const spx_motion_options *o, spx_err *e)
{
    if (psf->nspec == 0 || o->bundle_size == 0 || o->nwindow == 0 || !(o->dw > 0) || !isfinite(o->dw))
        return spx_fail(e, SPX_EUSAGE,
                        "%zu windows of %zu fibres in bundles of %zu and bins of %g Angstrom: nothing "
                        "to measure",
                        o->nwindow, psf->nspec, o->bundle_size, o->dw);
    for (size_t i = 0; i < o->nwindow; i++)
        if (!(o->first[i] > 0 && o->last[i] >= o->first[i] && (o->last[i] - o->first[i]) / o->dw < MOST_BINS))
            return spx_fail(e, SPX_EUSAGE, "window of %g to %g Angstrom in bins of %g", o->first[i], o->last[i], o->dw);
    return SPX_OK;
}

/* Plan and bundles of one window. */
typedef struct {
    spx_extract_options o;
    spx_extract_job job;
    spx_trace_plan plan;
    spx_trace_bundle *list;
} window;

static spx_status window_make(const spx_image *image, const spx_psf *psf, const spx_motion_options *o, size_t i,
                              float *weight, window *w, spx_err *e)
{
    const size_t nbundle = spx_motion_bundles(psf, o);
    w->o = spx_extract_trace_defaults();
    w->o.nspec = psf->nspec;
    w->o.wmin = o->first[i];
    w->o.wmax = o->last[i];
    w->o.dw = o->dw;
    w->o.bundle_size = o->bundle_size;
    w->o.wave_pad = 0;
    w->o.nthreads = o->nthreads;
    w->job = (spx_extract_job){.image = image, .psf = psf, .o = &w->o, .weight = weight};
    spx_status st = spx_extract_check(psf, &w->o, e);
    if (st == SPX_OK) {
        w->job.nwave = spx_extract_nwave(&w->o);
        st = spx_trace_plan_make(&w->job, &w->plan, e);
    }
    if (st == SPX_OK && (w->list = spx_alloc(nbundle, sizeof *w->list, e)) == NULL)
        st = SPX_EIO;
    return st == SPX_OK ? spx_trace_bundles_make(&w->plan, nbundle, w->list, spx_extract_threads(&w->o), e) : st;
}

static void window_free(window *w, size_t nbundle)
{
    for (size_t i = 0; w->list && i < nbundle; i++)
        spx_trace_bundle_free(&w->list[i]);
    spx_free(w->list);
    spx_trace_plan_free(&w->plan);
}

spx_status spx_motion_cpu(const spx_image *image, const spx_psf *psf, const spx_motion_options *o, spx_motion_row *row,
                          spx_motion_fit *fit, spx_err *e)
{
    const size_t nbundle = spx_motion_bundles(psf, o), ns = psf->nspec;
    const int nthreads = o->nthreads > 0 ? o->nthreads : omp_get_max_threads();
    spx_extract_counts counts = {0};
    spx_extract_options some = {.nthreads = nthreads};
    spx_extract_job pixels = {.image = image, .o = &some};
    spx_status st = check(psf, o, e);
    if (st == SPX_OK)
        st = spx_blas_open(e);
    if (st == SPX_OK)
        st = spx_extract_pixel_weights(&pixels, &counts, e);
    window *w = spx_alloc(o->nwindow, sizeof *w, e);
    spx_trace_workspace *workspaces = spx_alloc((size_t)nthreads, sizeof *workspaces, e);
    if (!w || !workspaces)
        st = SPX_EIO;
    if (st == SPX_OK) {
        memset(row, 0, o->nwindow * ns * sizeof *row);
        memset(fit, 0, o->nwindow * nbundle * sizeof *fit);
    }
    for (size_t i = 0; i < o->nwindow && st == SPX_OK; i++) {
        for (size_t f = 0; f < ns; f++)
            row[i * ns + f].wavelength = 0.5 * (o->first[i] + o->last[i]);
        st = window_make(image, psf, o, i, pixels.weight, &w[i], e);
    }
    if (st == SPX_OK) {
        spx_err *errors = spx_alloc(o->nwindow * nbundle, sizeof *errors, e);
        if (!errors)
            st = SPX_EIO;
#pragma omp parallel for schedule(dynamic) num_threads(nthreads) if (st == SPX_OK)
        for (size_t job = 0; job < o->nwindow * nbundle; job++)
            if (errors) {
                const size_t i = job / nbundle, k = job % nbundle;
                (void)measure(&w[i].plan, &w[i].list[k], &workspaces[omp_get_thread_num()],
                              row + i * ns + w[i].list[k].fibre0, &fit[job], &errors[job]);
            }
        for (size_t job = 0; errors && job < o->nwindow * nbundle && st == SPX_OK; job++)
            if (errors[job].code != SPX_OK)
                st = spx_err_pass(e, &errors[job]);
        spx_free(errors);
    }
    for (int t = 0; workspaces && t < nthreads; t++)
        spx_trace_workspace_free(&workspaces[t]);
    for (size_t i = 0; w && i < o->nwindow; i++)
        window_free(&w[i], nbundle);
    spx_free(workspaces);
    spx_free(w);
    spx_extract_job_free(&pixels);
    return st;
}
