/* Provides the motion of traces (extract/motion.h): windows, and their bundles on the CPU, a thread each. */
#include <math.h>
#include <omp.h>
#include <string.h>

#include "base/mem.h"
#include "extract/trace/motion_layout.h"
#include "num/blas.h"
#include "psf/psf.h"

/* Most bins of a window: more is no window. */
#define MOST_BINS 100000.0

static spx_extract_options of_bundles(const spx_psf *psf, const spx_motion_options *o)
{
    spx_extract_options eo = spx_extract_trace_defaults();
    eo.nspec = psf->nspec;
    eo.bundle_size = o->bundle_size;
    eo.psf_bundles = o->psf_bundles;
    return eo;
}

size_t spx_motion_bundles(const spx_psf *psf, const spx_motion_options *o)
{
    const spx_extract_options eo = of_bundles(psf, o);
    return o->bundle_size > 0 && psf->nspec > 0 ? spx_extract_nbundle(psf, &eo) : 0;
}

size_t spx_motion_bundle_of(const spx_psf *psf, const spx_motion_options *o, size_t fibre)
{
    const spx_extract_options eo = of_bundles(psf, o);
    return spx_extract_bundle_of(psf, &eo, fibre);
}

/* Whether a trace has all of a window: one that ends within it has light beside that nobody knows of. */
static int has_window(const spx_psf *psf, size_t fibre, const spx_extract_options *o)
{
    double lo, hi;
    spx_psf_usable(psf, fibre, &lo, &hi);
    return spx_extract_has_spot(psf, o, fibre, o->wmin) && spx_extract_has_spot(psf, o, fibre, o->wmax) &&
           lo <= o->wmin && hi >= o->wmax;
}

/* Rows of the CCD from which on, and up to which, no light of bins beyond those of the plan falls: those are used.
 * Light of a bin reaches hsizey rows from the middle of its spot. */
static void use_inner_rows(const spx_trace_plan *p, spx_trace_bundle *b)
{
    long first = b->y0, end = b->y1;
    for (size_t f = 0; f < b->nf; f++) {
        const size_t from = f, to = (p->nbin - 1) * b->nf + f;
        if (b->state[from] == SPX_TRACE_NOSPOT || b->state[to] == SPX_TRACE_NOSPOT ||
            !has_window(p->job->psf, b->fibre0 + f, p->job->o))
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
static spx_status measure(const spx_motion_window *w, const spx_trace_bundle *from, spx_trace_workspace *r,
                          spx_motion_row *row, spx_motion_fit *fit, spx_err *e)
{
    const spx_trace_plan *p = &w->plan;
    spx_trace_bundle b = *from;
    spx_trace_tally tally = {0};
    int any = 0, solved = 0;
    if (b.y1 <= b.y0)
        return SPX_OK;
    b.singular = spx_alloc(b.nf, 1, e);
    b.regularize = spx_alloc(b.nf, sizeof *b.regularize, e);
    spx_status st = b.singular && b.regularize ? spx_trace_deconvolve(p, &b, r, &tally, &any, &solved, e) : SPX_EIO;
    if (st == SPX_OK && solved)
        st = spx_trace_kernels_best()->motion(p, &b, r, w->rough, row, fit, e);
    for (size_t f = 0; f < b.nf && b.singular != NULL; f++)
        if (b.singular[f])
            row[f].fisher[0] = 0;
    spx_free(b.singular);
    spx_free(b.regularize);
    return st;
}

/* Leaves nothing of a trace without a solution, or without all of the window: it says nothing. */
static void clean(const spx_psf *psf, const spx_extract_options *o, size_t fibre0, size_t nf, spx_motion_row *row)
{
    for (size_t f = 0; f < nf; f++) {
        int good = row[f].fisher[0] > 0 && has_window(psf, fibre0 + f, o);
        for (int i = 0; i < 3; i++)
            good &= isfinite(row[f].fisher[i]) != 0;
        for (int i = 0; i < 2; i++)
            good &= isfinite(row[f].gradient[i]) != 0;
        if (good)
            continue;
        row[f] = (spx_motion_row){.wavelength = row[f].wavelength};
        if (f > 0)
            memset(row[f - 1].next, 0, sizeof row[f - 1].next);
    }
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

static spx_status window_make(const spx_image *image, const spx_psf *psf, const spx_motion_options *o, size_t i,
                              const spx_trace_plan *like, spx_motion_window *w, spx_err *e)
{
    const size_t nbundle = spx_motion_bundles(psf, o);
    w->o = of_bundles(psf, o);
    w->o.wmin = o->first[i];
    w->o.wmax = o->last[i];
    w->o.dw = o->dw;
    w->o.wave_pad = 0;
    w->o.nthreads = o->nthreads;
    w->rough = o->rough;
    w->job = (spx_extract_job){.image = image, .psf = psf, .o = &w->o};
    spx_status st = spx_extract_check(psf, &w->o, e);
    if (st == SPX_OK) {
        w->job.nwave = spx_extract_nwave(&w->o);
        st = spx_trace_plan_make(&w->job, like, &w->plan, e);
    }
    if (st == SPX_OK && (w->list = spx_alloc(nbundle, sizeof *w->list, e)) == NULL)
        st = SPX_EIO;
    if (st == SPX_OK)
        spx_trace_bundles_place(&w->plan, nbundle, w->list);
    return st;
}

/* Rows of the CCD that traces cross in a window, those of bundles that are not measured now, too: by the fibres at the
 * ends of bundles. */
static void find_rows(const spx_motion_window *w, size_t nbundle, long *row0, size_t *nrow)
{
    const spx_psf *psf = w->job.psf;
    double low = INFINITY, high = -INFINITY;
    for (size_t i = 0; i < 2 * nbundle; i++) {
        const spx_trace_bundle *b = &w->list[i / 2];
        const size_t f = b->fibre0 + (i % 2 > 0 ? b->nf - 1 : 0);
        if (b->nf == 0 || !has_window(psf, f, &w->o))
            continue;
        const double first = spx_psf_series_value(&psf->y, f, w->o.wmin),
                     last = spx_psf_series_value(&psf->y, f, w->o.wmax);
        low = fmin(low, fmin(first, last));
        high = fmax(high, fmax(first, last));
    }
    const double from = fmax(floor(low), 0), end = fmin(ceil(high) + 1, (double)w->job.image->ny);
    *row0 = from < end ? (long)from : 0;
    *nrow = from < end ? (size_t)(end - from) : 0;
}

static spx_status send_rows(spx_motion_engine *g, const spx_motion_options *o, size_t nbundle,
                            const spx_motion_window *w, spx_err *e)
{
    long *row0 = spx_alloc(o->nwindow, sizeof *row0, e);
    size_t *nrow = spx_alloc(o->nwindow, sizeof *nrow, e);
    spx_status st = row0 != NULL && nrow != NULL ? SPX_OK : SPX_EIO;
    for (size_t i = 0; i < o->nwindow && st == SPX_OK; i++)
        find_rows(&w[i], nbundle, &row0[i], &nrow[i]);
    if (st == SPX_OK)
        st = g->send(g, o->nwindow, row0, nrow, e);
    spx_free(row0);
    spx_free(nrow);
    return st;
}

/* Geometry of the bundles of all windows, or of those that are measured. */
static spx_status make_bundles(const spx_motion_options *o, size_t nbundle, spx_motion_window *w, spx_err *e)
{
    size_t left_out = 0, solved = 0;
    int no_memory = 0;
#pragma omp parallel for schedule(dynamic) num_threads(spx_extract_threads(&w[0].o)) \
    reduction(+ : left_out, solved) reduction(| : no_memory)
    for (size_t job = 0; job < o->nwindow * nbundle; job++) {
        const spx_trace_plan *p = &w[job / nbundle].plan;
        spx_trace_bundle *b = &w[job / nbundle].list[job % nbundle];
        if (o->only != NULL && !o->only[job])
            continue;
        if (spx_trace_bundle_make(p, b, &left_out, NULL) == SPX_OK)
            use_inner_rows(p, b);
        else
            no_memory = 1;
        solved += b->nf;
    }
    if (no_memory)
        return spx_mem_fail(e);
    return solved > 0 && left_out == solved ? spx_trace_narrow(&w[0].plan, e) : SPX_OK;
}

static void window_free(spx_motion_window *w, size_t nbundle)
{
    for (size_t i = 0; w->list && i < nbundle; i++)
        spx_trace_bundle_free(&w->list[i]);
    spx_free(w->list);
    spx_trace_plan_free(&w->plan);
}

/* Bundles of windows on the CPU: all, or those of chosen[nwindow][nbundle]. */
static spx_status measure_on_cpu(size_t nwindow, const spx_motion_window *w, size_t nbundle, int nthreads,
                                 const unsigned char *chosen, spx_motion_row *row, spx_motion_fit *fit, spx_err *e)
{
    const size_t njob = nwindow * nbundle;
    spx_status st = spx_blas_open(e);
    spx_trace_workspace *workspaces = spx_trace_workspaces_make(nthreads, e);
    spx_err *errors = spx_alloc(njob, sizeof *errors, e);
    if (!workspaces || !errors)
        st = SPX_EIO;
    if (st == SPX_OK) {
#pragma omp parallel for schedule(dynamic) num_threads(nthreads)
        for (size_t job = 0; job < njob; job++)
            if (chosen == NULL || chosen[job]) {
                const size_t i = job / nbundle, k = job % nbundle;
                (void)measure(&w[i], &w[i].list[k], &workspaces[omp_get_thread_num()],
                              row + i * w[i].o.nspec + w[i].list[k].fibre0, &fit[job], &errors[job]);
            }
        for (size_t job = 0; job < njob && st == SPX_OK; job++)
            if (errors[job].code != SPX_OK)
                st = spx_err_pass(e, &errors[job]);
    }
    spx_trace_workspaces_free(workspaces, nthreads);
    spx_free(errors);
    return st;
}

spx_status spx_motion_solve(spx_motion_engine *g, const spx_image *image, const spx_psf *psf,
                            const spx_motion_options *o, spx_motion_row *row, spx_motion_fit *fit, spx_fallback *left,
                            spx_err *e)
{
    const size_t nbundle = spx_motion_bundles(psf, o), ns = psf->nspec;
    spx_motion_window *w = NULL;
    unsigned char *chosen = NULL;
    *left = (spx_fallback){.unit = "bundles", .total = o->nwindow * nbundle};
    spx_status st = check(psf, o, e);
    if (st == SPX_OK && ((w = spx_alloc(o->nwindow, sizeof *w, e)) == NULL ||
                         (g != NULL && (chosen = spx_alloc2(o->nwindow, nbundle, 1, e)) == NULL)))
        st = SPX_EIO;
    if (st == SPX_OK) {
        memset(row, 0, o->nwindow * ns * sizeof *row);
        memset(fit, 0, o->nwindow * nbundle * sizeof *fit);
    }
    for (size_t i = 0; i < o->nwindow && st == SPX_OK; i++) {
        for (size_t f = 0; f < ns; f++)
            row[i * ns + f].wavelength = 0.5 * (o->first[i] + o->last[i]);
        st = window_make(image, psf, o, i, i > 0 ? &w[0].plan : NULL, &w[i], e);
    }
    if (st == SPX_OK && g != NULL)
        left->reason = spx_extract_on_cpu_only(psf, &w[0].o);
    if (st == SPX_OK && g != NULL && left->reason == NULL)
        st = send_rows(g, o, nbundle, w, e);
    if (st == SPX_OK)
        st = make_bundles(o, nbundle, w, e);
    if (st == SPX_OK && g != NULL) {
        spx_motion_layout l = {0};
        if (left->reason != NULL)
            memset(chosen, 1, o->nwindow * nbundle);
        else
            st = spx_motion_layout_make(o->nwindow, w, nbundle, chosen, &l, e);
        if (st == SPX_OK && l.size.njob > 0)
            st = g->measure(g, o->nwindow, &l, row, fit, chosen, e);
        spx_motion_layout_free(&l);
    }
    for (size_t job = 0; chosen != NULL && job < o->nwindow * nbundle; job++)
        left->on_cpu += chosen[job];
    if (left->on_cpu > 0 && left->reason == NULL)
        left->reason = "those whose equations a device cannot solve as they are";
    if (st == SPX_OK && (g == NULL || left->on_cpu > 0))
        st = measure_on_cpu(o->nwindow, w, nbundle, o->nthreads > 0 ? o->nthreads : omp_get_max_threads(), chosen, row,
                            fit, e);
    for (size_t job = 0; job < o->nwindow * nbundle && st == SPX_OK; job++) {
        const spx_trace_bundle *b = &w[job / nbundle].list[job % nbundle];
        clean(psf, &w[job / nbundle].o, b->fibre0, b->nf, row + job / nbundle * ns + b->fibre0);
    }
    for (size_t i = 0; w && i < o->nwindow; i++)
        window_free(&w[i], nbundle);
    spx_free(w);
    spx_free(chosen);
    return st;
}

spx_status spx_motion_cpu(const spx_image *image, const spx_psf *psf, const spx_motion_options *o, spx_motion_row *row,
                          spx_motion_fit *fit, spx_fallback *left, spx_err *e)
{
    return spx_motion_solve(NULL, image, psf, o, row, fit, left, e);
}
