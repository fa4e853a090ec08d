/* Provides jobs, sizes, tables and memory of the motion of traces on a device (trace/motion_layout.h). */
#include "extract/trace/motion_layout.h"

#include <limits.h>
#include <string.h>

#include "base/mem.h"
#include "layout.h"

/* Elements of an array of a job at most: indices within a job are int. */
#define MOST_ELEMENTS 1e9

/* Columns that the spots of each fibre touch: out[nf][2]. */
static void find_columns(const spx_motion_window *w, const spx_trace_bundle *b, int *out)
{
    for (size_t f = 0; f < b->nf; f++) {
        out[2 * f] = INT_MAX;
        out[2 * f + 1] = INT_MIN;
    }
    for (size_t k = 0; k < w->plan.nbin; k++)
        for (size_t f = 0; f < b->nf; f++) {
            const int xc = b->at[k * b->nf + f].xc;
            if (b->state[k * b->nf + f] != SPX_TRACE_SPOT)
                continue;
            out[2 * f] = xc < out[2 * f] ? xc : out[2 * f];
            out[2 * f + 1] = xc + w->plan.nx > out[2 * f + 1] ? xc + w->plan.nx : out[2 * f + 1];
        }
    for (size_t f = 0; f < b->nf; f++)
        if (out[2 * f] >= out[2 * f + 1])
            out[2 * f] = out[2 * f + 1] = 0;
}

/* Adds a bundle to the sizes. columns: of its fibres. lo, hi: [reach + 1] of all. */
static void add_size(const spx_motion_window *w, const spx_trace_bundle *b, const int *columns, spx_motion_view *g,
                     int *lo, int *hi)
{
    int left = INT_MAX, right = INT_MIN;
    g->n = (int)w->plan.nbin > g->n ? (int)w->plan.nbin : g->n;
    g->nl = (int)b->nf > g->nl ? (int)b->nf : g->nl;
    g->height = (int)(b->y1 - b->y0) > g->height ? (int)(b->y1 - b->y0) : g->height;
    for (size_t f = 0; f < b->nf; f++) {
        const int first = columns[2 * f], end = columns[2 * f + 1];
        if (first < end) {
            g->width = end - first > g->width ? end - first : g->width;
            left = first < left ? first : left;
            right = end > right ? end : right;
        }
    }
    g->tile = right - left > g->tile && left < right ? right - left : g->tile;
    for (int df = 0; df <= b->reach && df <= SPX_TRACE_MAX_REACH; df++) {
        lo[df] = b->lo[df] < lo[df] ? b->lo[df] : lo[df];
        hi[df] = b->hi[df] > hi[df] ? b->hi[df] : hi[df];
    }
    g->reach = b->reach > g->reach ? b->reach : g->reach;
}

/* Whether all of it is what steps and blocks can bear. */
static int has_room(const spx_motion_view *g)
{
    const double n = g->n, nl = g->nl, most = MOST_ELEMENTS;
    const int beyond = g->reach < g->nl - 3 ? g->reach : g->nl - 3; /* spx_motion_beyond_systems() */
    return 4 * beyond <= 3 * g->nl && g->reach <= SPX_TRACE_MAX_REACH && g->m <= SPX_TRACE_MAX_BAND && g->nl <= 256 &&
           n * nl * g->nelem < most && n * nl * g->npix < most && (double)g->height * g->width < most &&
           (double)g->height * g->tile < most && sizeof(double) * spx_motion_spot_work(g) <= SPX_MOTION_SHARED &&
           sizeof(double) * spx_motion_factor_shared(g) <= SPX_MOTION_SHARED &&
           sizeof(double) * (size_t)g->npix <= SPX_MOTION_SHARED &&
           sizeof(double) * spx_motion_light_shared(g) <= SPX_MOTION_SHARED;
}

spx_status spx_motion_layout_make(size_t nwindow, const spx_motion_window *w, size_t nbundle, unsigned char *left,
                                  spx_motion_layout *l, spx_err *e)
{
    spx_motion_view *g = &l->size;
    const spx_trace_plan *p = &w[0].plan;
    int lo[SPX_TRACE_MAX_REACH + 1] = {0}, hi[SPX_TRACE_MAX_REACH + 1] = {0};
    size_t njob = 0;
    *l = (spx_motion_layout){.nbundle = nbundle, .w = w};
    l->job = spx_alloc2(nwindow, nbundle, sizeof *l->job, e);
    l->row0 = spx_alloc(nwindow, sizeof *l->row0, e);
    l->nrow = spx_alloc(2 * nwindow, sizeof *l->nrow, e);
    if (!l->job || !l->row0 || !l->nrow)
        return SPX_EIO;
    l->pixel = l->nrow + nwindow;
    g->nx = p->nx;
    g->ny = p->ny;
    g->npix = p->nx * p->ny;
    g->degx = p->degx;
    g->degy = p->degy;
    g->npar = (int)p->npar;
    g->ndeg = (int)p->job->psf->ndeg;
    g->ccd_nx = (int)p->job->image->nx;
    g->half = (int)(p->job->o->wave_step + 2 * p->pad);
    g->tolerance = p->tolerance;
    g->rough = w[0].rough;
    for (size_t i = 0; i < nwindow * nbundle; i++) {
        const spx_trace_bundle *b = &w[i / nbundle].list[i % nbundle];
        l->most = b->nf > l->most ? b->nf : l->most;
        if (b->y1 > b->y0) /* others have no row, and stay 0 */
            l->job[njob++] = i;
    }
    if ((l->columns = spx_alloc2(njob + 1, 2 * l->most, sizeof *l->columns, e)) == NULL)
        return SPX_EIO;
#pragma omp parallel for num_threads(spx_extract_threads(&w[0].o))
    for (size_t j = 0; j < njob; j++)
        find_columns(&w[l->job[j] / nbundle], &w[l->job[j] / nbundle].list[l->job[j] % nbundle],
                     l->columns + 2 * l->most * j);
    for (size_t i = 0, j = 0; i < nwindow; i++) {
        long first = LONG_MAX, end = LONG_MIN;
        for (; j < njob && l->job[j] / nbundle == i; j++) {
            const spx_trace_bundle *b = &w[i].list[l->job[j] % nbundle];
            add_size(&w[i], b, l->columns + 2 * l->most * j, g, lo, hi);
            first = b->y0 < first ? b->y0 : first;
            end = b->y1 > end ? b->y1 : end;
        }
        l->row0[i] = first < end ? first : 0;
        l->nrow[i] = first < end ? (size_t)(end - first) : 0;
        l->pixel[i] = g->npixel;
        g->npixel += l->nrow[i] * (size_t)g->ccd_nx;
    }
    g->m = hi[0];
    g->z = g->reach + 1;
    for (int df = 0; df <= g->reach && df <= SPX_TRACE_MAX_REACH; df++)
        g->nelem += hi[df] - lo[df] + 1;
    if (njob > 0 && !has_room(g)) {
        memset(left, 1, nwindow * nbundle);
        njob = 0;
    }
    g->njob = (int)njob;
    g->group = (int)(SPX_MOTION_SHARED / sizeof(double)) / g->npix;
    g->group = g->group < SPX_MOTION_TOGETHER ? g->group : SPX_MOTION_TOGETHER;
    return SPX_OK;
}

void spx_motion_layout_free(spx_motion_layout *l)
{
    spx_free(l->job);
    spx_free(l->columns);
    spx_free(l->row0);
    spx_free(l->nrow);
}

/* ---- memory ---- */

size_t spx_motion_tables(spx_motion_view *g, size_t nwindow, size_t nspec, char *base)
{
    const size_t njob = (size_t)g->njob, n = (size_t)g->n, nl = (size_t)g->nl, reach = (size_t)g->reach + 1;
    size_t used = 0;
    g->lo = spx_layout_take(base, &used, reach, sizeof *g->lo);
    g->hi = spx_layout_take(base, &used, reach, sizeof *g->hi);
    g->first = spx_layout_take(base, &used, reach, sizeof *g->first);
    g->element = spx_layout_take(base, &used, (size_t)g->nelem, sizeof *g->element);
    g->job = spx_layout_take(base, &used, njob, sizeof *g->job);
    g->at = spx_layout_take(base, &used, njob * n * nl, sizeof *g->at);
    g->state = spx_layout_take(base, &used, njob * n * nl, 1);
    g->left = spx_layout_take(base, &used, njob * nl, sizeof *g->left);
    g->coeff = spx_layout_take(base, &used, nspec * (size_t)g->ndeg * (size_t)g->npar, sizeof(double));
    g->basis = spx_layout_take(base, &used, nwindow * n * (size_t)g->ndeg, sizeof(double));
    g->lambda = spx_layout_take(base, &used, nwindow * n, sizeof(double));
    return used;
}

size_t spx_motion_work(spx_motion_view *g, char *base)
{
    const size_t njob = (size_t)g->njob, n = (size_t)g->n, nl = (size_t)g->nl, row = njob * n * nl;
    const size_t spots = row * (size_t)g->npix, fibres = njob * nl, strip = spx_motion_strip_size(g);
    const size_t columns = 2 * fibres * (2 * (size_t)g->z + 1) * n;
    size_t used = 0;
    double **const rows[] = {&g->y, &g->w, &g->x, &g->variance, &g->light};
    g->spot = spx_layout_take(base, &used, spots, sizeof(double));
    g->dx = spx_layout_take(base, &used, spots, sizeof(double));
    g->dwidth = spx_layout_take(base, &used, spots, sizeof(double));
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        *rows[i] = spx_layout_take(base, &used, row, sizeof(double));
    g->mat = spx_layout_take(base, &used, row * (size_t)g->nelem, sizeof(double));
    g->ldl = spx_layout_take(base, &used, row * (size_t)(g->m + 1), sizeof(double));
    g->inverse = spx_layout_take(base, &used, row * (size_t)(g->m + 1), sizeof(double));
    g->vector = spx_layout_take(base, &used, row * (size_t)g->nl * SPX_MOTION_VECTORS, sizeof(double));
    g->work = spx_layout_take(base, &used, 4 * njob * (n + 1) * nl, sizeof(double));
    g->strip = spx_layout_take(base, &used, 3 * fibres * strip, sizeof(double));
    g->wj = spx_layout_take(base, &used, 2 * fibres * strip, sizeof(double));
    g->touched = spx_layout_take(base, &used, fibres * strip, 1);
    g->rest = spx_layout_take(base, &used, njob * (size_t)g->height * (size_t)g->tile, sizeof(double));
    g->v = spx_layout_take(base, &used, columns, sizeof(double));
    g->solution = spx_layout_take(base, &used, columns, sizeof(double));
    g->row = spx_layout_take(base, &used, fibres, sizeof *g->row);
    g->result = spx_layout_take(base, &used, njob, sizeof *g->result);
    return used;
}

size_t spx_motion_pixels(spx_motion_view *g, int has_mask, char *base)
{
    size_t used = 0;
    g->weight = spx_layout_take(base, &used, g->npixel, sizeof *g->weight);
    g->data = spx_layout_take(base, &used, g->npixel, sizeof *g->data);
    g->mask = has_mask ? spx_layout_take(base, &used, g->npixel, sizeof *g->mask) : NULL;
    return used;
}

/* ---- tables ---- */

/* Places of the spots of a job, and the columns that they touch. */
static void fill_job(const spx_motion_layout *l, size_t from, size_t to, const spx_motion_view *g)
{
    const size_t i = l->job[from] / l->nbundle;
    const spx_motion_window *w = &l->w[i];
    const spx_trace_bundle *b = &w->list[l->job[from] % l->nbundle];
    int left = INT_MAX, right = INT_MIN;
    for (size_t f = 0; f < (size_t)g->nl; f++) {
        const int *columns = l->columns + 2 * (l->most * from + (f < b->nf ? f : 0)), first = columns[0],
                  end = columns[1];
        g->left[to * (size_t)g->nl + f] = 0;
        if (f >= b->nf || first >= end)
            continue;
        g->left[to * (size_t)g->nl + f] = first;
        left = first < left ? first : left;
        right = end > right ? end : right;
    }
    g->job[to] = (spx_motion_job){.window = (int)i,
                                  .n = (int)w->plan.nbin,
                                  .nf = (int)b->nf,
                                  .fibre0 = (int)b->fibre0,
                                  .y0 = (int)b->y0,
                                  .y1 = (int)b->y1,
                                  .x0 = left < right ? left : 0,
                                  .width = left < right ? right - left : 0,
                                  .image = (long)l->pixel[i] - l->row0[i] * g->ccd_nx};
    for (size_t k = 0; k < (size_t)g->n; k++)
        for (size_t f = 0; f < (size_t)g->nl; f++) {
            const size_t bin = spx_motion_bin(g, to, k, f);
            const int there = k < w->plan.nbin && f < b->nf;
            g->state[bin] = there ? b->state[k * b->nf + f] : SPX_TRACE_NOSPOT;
            g->at[bin] = there ? b->at[k * b->nf + f] : (spx_bin_geometry){0, 0, 0, 0};
        }
}

void spx_motion_fill(const spx_motion_layout *l, size_t nwindow, size_t first, const spx_motion_view *g)
{
    const spx_psf *psf = l->w[0].job.psf;
    const size_t n = (size_t)g->n, ndeg = (size_t)g->ndeg;
    for (int df = 0; df <= g->reach; df++)
        g->lo[df] = g->hi[df] = 0;
    for (size_t i = 0; i < (size_t)l->size.njob; i++) {
        const spx_trace_bundle *b = &l->w[l->job[i] / l->nbundle].list[l->job[i] % l->nbundle];
        for (int df = 0; df <= b->reach; df++) {
            g->lo[df] = b->lo[df] < g->lo[df] ? b->lo[df] : g->lo[df];
            g->hi[df] = b->hi[df] > g->hi[df] ? b->hi[df] : g->hi[df];
        }
    }
    for (int df = 0, at = 0; df <= g->reach; df++) {
        g->first[df] = at;
        for (int dk = g->lo[df]; dk <= g->hi[df]; dk++)
            g->element[at++] = (spx_motion_element){df, dk};
    }
    memcpy(g->coeff, l->w[0].plan.coeff, psf->nspec * ndeg * (size_t)g->npar * sizeof *g->coeff);
    for (size_t i = 0; i < nwindow; i++) {
        const spx_motion_window *w = &l->w[i];
        for (size_t k = 0; k < n; k++)
            g->lambda[i * n + k] = spx_extract_lambda(&w->o, (long)k);
        const size_t nbin = w->plan.nbin < n ? w->plan.nbin : n; /* more: of a window without jobs */
        memcpy(g->basis + i * n * ndeg, w->plan.bp, nbin * ndeg * sizeof *g->basis);
    }
#pragma omp parallel for num_threads(spx_extract_threads(&l->w[0].o))
    for (size_t i = 0; i < (size_t)g->njob; i++)
        fill_job(l, first + i, i, g);
}

void spx_motion_collect(const spx_motion_layout *l, size_t first, size_t njob, const spx_motion_row *row,
                        const spx_motion_result *result, spx_motion_row *rows, spx_motion_fit *fits,
                        unsigned char *left)
{
    const size_t ns = l->w[0].job.psf->nspec, nl = (size_t)l->size.nl;
    for (size_t i = 0; i < njob; i++) {
        const size_t job = l->job[first + i];
        const spx_trace_bundle *b = &l->w[job / l->nbundle].list[job % l->nbundle];
        left[job] = result[i].status == SPX_MOTION_LEFT;
        for (size_t f = 0; f < b->nf && result[i].status == SPX_MOTION_SOLVED; f++) {
            spx_motion_row *to = &rows[job / l->nbundle * ns + b->fibre0 + f];
            const double middle = to->wavelength;
            *to = row[i * nl + f];
            to->wavelength = to->wavelength > 0 ? to->wavelength : middle;
        }
        if (result[i].status == SPX_MOTION_SOLVED)
            fits[job] = result[i].fit;
    }
}
