/* Provides sizes, tables and memory of the zero point on a device (zero_layout.h). */
#include "shift/zero_layout.h"

#include <limits.h>
#include <string.h>

#include "base/mem.h"
#include "layout.h"
#include "psf/psf.h"

/* Elements of an array at most, as indices are int. */
#define MOST_ELEMENTS 2e9

/* Shared memory of a block that every device has, bytes. */
enum { MOST_SHARED = 48 << 10 };

int spx_zero_on_device(const spx_psf *psf)
{
    const spx_zero_view g = {.psf = *psf};
    return spx_psf_plain_spots(psf) && spx_zero_line_shared(&g) * sizeof(double) <= MOST_SHARED;
}

spx_status spx_zero_sizes(const spx_zero_work *w, spx_zero_view *g, spx_err *e)
{
    *g = (spx_zero_view){.psf = *w->psf, .nstrip = (int)w->in->nfibre, .nl = (int)w->nl, .nline = (int)w->nline};
    g->nb = (int)w->nb;
    g->spline = w->spline;
    size_t rows = 1, cols = 1, of_lines = 0;
    for (size_t i = 0; i < w->in->nfibre; i++) {
        rows = w->strips[i].nrow > rows ? w->strips[i].nrow : rows;
        cols = w->strips[i].ncol > cols ? w->strips[i].ncol : cols;
    }
    const spx_zero_strip largest = {.nrow = rows, .ncol = cols};
    for (size_t l = 0; l < w->nl; l++)
        of_lines += spx_zero_most_rows(w, &largest, spx_zero_length(w, l, l));
    /* groups: their lines have gaps of fewer than GROUP bins */
    const size_t of_groups = 2 * (rows + of_lines);
    const double most = (double)(w->in->nfibre + 1) * (double)cols * (double)(3 * of_lines + of_groups + 4 * rows);
    if (!(most < MOST_ELEMENTS) || spx_zero_model_shared(g) > MOST_SHARED)
        return spx_fail(e, SPX_EIO, "%zu fibres of %zu rows and %zu lines: too many for a device: use {device} cpu",
                        w->in->nfibre, rows, w->nl);
    g->rows = (int)rows;
    g->cols = (int)cols;
    g->line_size = (int)(3 * of_lines * cols);
    g->group_size = (int)(of_groups * cols);
    return SPX_OK;
}

void spx_zero_sum_sizes(const spx_zero_work *w, int reject, spx_zero_view *g)
{
    g->ng = (int)w->ng;
    g->nc = (int)w->nc;
    g->size = (int)w->size;
    g->nk = (int)w->nk;
    g->reject = reject;
}

/* ---- memory ---- */

size_t spx_zero_tables(const spx_zero_work *w, spx_zero_view *g, char *base)
{
    const spx_psf *p = w->psf;
    const size_t nl = (size_t)g->nl, ns = (size_t)g->nstrip, ngh = (size_t)(p->ghdegx + 1) * (size_t)(p->ghdegy + 1);
    size_t used = 0;
    g->psf.x.coef = spx_layout_take(base, &used, p->nspec * p->x.ncoef, sizeof(double));
    g->psf.y.coef = spx_layout_take(base, &used, p->nspec * p->y.ncoef, sizeof(double));
    g->psf.coeff = spx_layout_take(base, &used, p->npar * p->nspec * p->ndeg, sizeof(double));
    g->psf.gh = spx_layout_take(base, &used, ngh, sizeof *g->psf.gh);
    if (p->wave_range != NULL)
        g->psf.wave_range = spx_layout_take(base, &used, 2 * p->nspec, sizeof(double));
    g->psf.x.range = p->x.range != NULL ? g->psf.wave_range : NULL;
    g->psf.y.range = p->y.range != NULL ? g->psf.wave_range : NULL;
    g->strip = spx_layout_take(base, &used, ns, sizeof *g->strip);
    g->blend = spx_layout_take(base, &used, nl + 1, sizeof *g->blend);
    g->line_at = spx_layout_take(base, &used, nl, sizeof *g->line_at);
    g->most = spx_layout_take(base, &used, ns * nl, sizeof *g->most);
    g->part_of = spx_layout_take(base, &used, (size_t)g->nline, sizeof(double));
    return used;
}

size_t spx_zero_memory(spx_zero_view *g, char *base)
{
    const size_t ns = (size_t)g->nstrip, rows = ns * (size_t)g->rows, pixels = rows * (size_t)g->cols;
    double **const of_pixels[] = {&g->data, &g->w, &g->unit, &g->rest};
    size_t used = 0;
    for (size_t i = 0; i < sizeof of_pixels / sizeof *of_pixels; i++)
        *of_pixels[i] = spx_layout_take(base, &used, pixels, sizeof(double));
    g->wide = spx_layout_take(base, &used, SPX_SHIFT_ZERO_MOST * pixels, sizeof(double));
    g->step = spx_layout_take(base, &used, ns, sizeof(double));
    g->xc = spx_layout_take(base, &used, rows, sizeof *g->xc);
    g->interval = spx_layout_take(base, &used, rows, sizeof *g->interval);
    g->lambda = spx_layout_take(base, &used, rows, sizeof(double));
    g->basis = spx_layout_take(base, &used, 4 * rows, sizeof(double));
    g->span = spx_layout_take(base, &used, ns * (size_t)(2 * g->nl + g->nb), sizeof *g->span);
    g->line = spx_layout_take(base, &used, ns * (size_t)g->line_size, sizeof(double));
    g->places = spx_layout_take(base, &used, ns * (size_t)g->group_size, sizeof(double));
    g->chi2 = spx_layout_take(base, &used, 2 * ns * spx_zero_chunks(g), sizeof(double));
    return used;
}

size_t spx_zero_sum_tables(spx_zero_view *g, char *base)
{
    const size_t ng = (size_t)g->ng;
    size_t used = 0;
    g->place = spx_layout_take(base, &used, (size_t)g->nline, sizeof(double));
    g->strength = spx_layout_take(base, &used, (size_t)(g->nl + g->nb), sizeof(double));
    g->kappa = spx_layout_take(base, &used, (size_t)g->nl, sizeof(double));
    g->terms = spx_layout_take(base, &used, (size_t)(g->nl * g->nk), sizeof(double));
    g->group_of = spx_layout_take(base, &used, (size_t)g->nl, sizeof *g->group_of);
    g->group = spx_layout_take(base, &used, 2 * ng, sizeof *g->group);
    g->group_at = spx_layout_take(base, &used, ng + 1, sizeof *g->group_at);
    g->element = spx_layout_take(base, &used, 2 * (size_t)g->size, sizeof *g->element);
    g->column = spx_layout_take(base, &used, (size_t)g->nc, sizeof *g->column);
    return used;
}

size_t spx_zero_sum_memory(spx_zero_view *g, char *base)
{
    const size_t all = (size_t)(g->size + g->nc);
    size_t used = 0;
    g->sum = spx_layout_take(base, &used, all + 2, sizeof(double));
    g->part = spx_layout_take(base, &used, (size_t)g->nstrip * all, sizeof(double));
    return used;
}

void spx_zero_give_data(const spx_zero_view *g, double *data, spx_zero_work *w)
{
    for (size_t i = 0; i < (size_t)g->nstrip; i++)
        w->strips[i].data = data + i * (size_t)g->rows * (size_t)g->cols;
}

/* ---- tables ---- */

void spx_zero_fill(const spx_zero_work *w, const spx_zero_view *g)
{
    const spx_psf *p = w->psf;
    const spx_zero_strip largest = {.nrow = (size_t)g->rows, .ncol = (size_t)g->cols};
    const size_t ngh = (size_t)(p->ghdegx + 1) * (size_t)(p->ghdegy + 1);
    memcpy(g->psf.x.coef, p->x.coef, p->nspec * p->x.ncoef * sizeof(double));
    memcpy(g->psf.y.coef, p->y.coef, p->nspec * p->y.ncoef * sizeof(double));
    memcpy(g->psf.coeff, p->coeff, p->npar * p->nspec * p->ndeg * sizeof(double));
    memcpy(g->psf.gh, p->gh, ngh * sizeof *p->gh);
    if (p->wave_range != NULL)
        memcpy(g->psf.wave_range, p->wave_range, 2 * p->nspec * sizeof(double));
    for (size_t i = 0; i < (size_t)g->nstrip; i++) {
        const spx_zero_strip *s = &w->strips[i];
        g->strip[i] = (spx_zero_place_of){.fibre = (int)s->fibre,
                                          .nrow = (int)s->nrow,
                                          .ncol = s->nrow > 0 ? (int)s->ncol : 1,
                                          .y0 = (int)s->y0,
                                          .scale = s->scale,
                                          .trace = spx_zero_parabola_of(&p->y, s->fibre, s->low, s->high)};
        for (size_t l = 0; l < w->nl; l++)
            g->most[i * w->nl + l] = (int)spx_zero_most_rows(w, s, spx_zero_length(w, l, l));
    }
    for (size_t l = 0, at = 0; l < w->nl; l++) {
        g->blend[l] = (int)w->of[l].first;
        g->blend[l + 1] = (int)(w->of[l].first + w->of[l].n);
        g->line_at[l] = (int)at;
        at += 3 * spx_zero_most_rows(w, &largest, spx_zero_length(w, l, l)) * (size_t)g->cols;
    }
    for (size_t i = 0; i < w->nline; i++)
        g->part_of[i] = w->line[i].strength;
}

void spx_zero_fill_sum(const spx_zero_work *w, const spx_zero_view *g)
{
    const spx_zero_strip largest = {.nrow = (size_t)g->rows, .ncol = (size_t)g->cols};
    for (size_t i = 0; i < w->nline; i++)
        g->place[i] = spx_zero_place(w, w->line[i].wavelength);
    for (size_t l = 0; l < w->nl; l++) {
        double p[SPX_SHIFT_ZERO_MOST];
        g->kappa[l] = spx_zero_kappa(w, &w->of[l], p);
        for (size_t q = 0; q < w->nk; q++)
            g->terms[l * w->nk + q] = p[q];
    }
    memcpy(g->strength, w->strength, (w->nl + w->nb) * sizeof *g->strength);
    for (size_t n = 0; n < w->ng; n++)
        g->group[2 * n] = -1;
    for (size_t l = 0; l < w->nl; l++) {
        const int n = w->of[l].group == SPX_ZERO_NONE ? -1 : (int)w->of[l].group;
        g->group_of[l] = n;
        if (n < 0)
            continue;
        g->group[2 * n] = g->group[2 * n] < 0 ? (int)l : g->group[2 * n];
        g->group[2 * n + 1] = (int)l;
    }
    g->group_at[0] = 0;
    for (size_t n = 0; n < w->ng; n++) {
        const double length = spx_zero_length(w, (size_t)g->group[2 * n], (size_t)g->group[2 * n + 1]);
        g->group_at[n + 1] = g->group_at[n] + (int)spx_zero_most_rows(w, &largest, length) * g->cols;
    }
    for (size_t i = 0; i < w->nc; i++) {
        g->column[i] = (int)w->column[i];
        for (size_t j = w->shape.first[i]; j <= i; j++) {
            int *to = g->element + 2 * (w->shape.row[i] + j);
            to[0] = (int)w->column[i];
            to[1] = (int)w->column[j];
        }
    }
}

/* ---- results ---- */

void spx_zero_take_rows(const spx_zero_view *g, const int *xc, spx_zero_work *w)
{
    for (size_t i = 0; i < (size_t)g->nstrip; i++)
        for (size_t row = 0; row < w->strips[i].nrow; row++)
            w->strips[i].xc[row] = xc[spx_zero_row_at(g, i, (int)row)];
}

void spx_zero_take_steps(const spx_zero_view *g, const double *step, spx_zero_work *w)
{
    for (size_t i = 0; i < (size_t)g->nstrip; i++)
        w->row = w->strips[i].nrow > 0 && step[i] > w->row ? step[i] : w->row;
}

void spx_zero_take_sum(const spx_zero_view *g, const double *sum, spx_zero_work *w)
{
    const size_t size = (size_t)g->size, nc = (size_t)g->nc;
    memcpy(w->g, sum, size * sizeof *sum);
    memcpy(w->right, sum + size, nc * sizeof *sum);
    w->chi2[0] = sum[size + nc];
    w->npix[0] = sum[size + nc + 1];
}
