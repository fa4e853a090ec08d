/* Provides fits of stars on wavelength grids of their own (rvfit/grids.h): a plan, with places on the templates' grid,
 * continuum and starts, is for one grid of each arm. */
#include "rvfit/grids.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/mem.h"

enum { LEAST_BINS = 64 }; /* of an arm without information, so that there is one */

/* Row of the batch and the hash of its grid in an arm. */
typedef struct {
    uint64_t hash;
    size_t row;
} member;

/* Grids of a star: of each arm those of its exposures, each once, in the order of grid[]; [n] of them. */
typedef struct {
    size_t star, n;
    uint64_t hash;
    size_t *arm, *grid; /* [n] */
} star_grids;

typedef struct {
    const spx_rvfit_input *in;
    const spx_rvfit_options *o;
    spx_rvfit_call call;
    void *ctx;
    const spx_arm *bins; /* [narm] of templates of the stars; NULL: without */
    spx_progress *progress;
    /* [narm][nrow] first row with the same grid; that of an arm with one grid, or that is not fitted, is 0 */
    size_t *grid;
    star_grids *star;      /* [nstar], of the same grids beside each other */
    size_t *lists;         /* memory of their arm[] and grid[] */
    size_t nstar, nrow;    /* of the batch */
    size_t ngroup, *begin; /* [ngroup+1] of star[] */
    spx_rvfit *out;
} work;

/* Stars of a group, and its spectra: arm k of these is the part of arm from[k] of the batch that has grid which[k]. */
typedef struct {
    size_t nstar, n;
    size_t *row, *first; /* [n] of the batch; [nstar+1] */
    spx_spectra spectra;
    size_t from[SPX_MAX_ARM], which[SPX_MAX_ARM], skip[SPX_MAX_ARM];
    spx_rvfit_input in;
    spx_rvfit_options options;
    double *start, *air;
} group;

int spx_rvfit_has_grids(const spx_rvfit_input *in)
{
    for (size_t a = 0; a < in->spectra->narm; a++)
        if (in->setup[a] != NULL && in->spectra->arm[a].per_row)
            return 1;
    return 0;
}

static size_t first_row(const spx_rvfit_input *in, size_t star)
{
    return in->first != NULL ? in->first[star] : star;
}

static int by_hash(const void *x, const void *y)
{
    const member *a = x, *b = y;
    return a->hash != b->hash ? (a->hash > b->hash) - (a->hash < b->hash) : (a->row > b->row) - (a->row < b->row);
}

/* Numbers the grids of an arm: grid[nrow]. list[nrow] is used. */
static void number_grids(const spx_arm *a, size_t nrow, member *list, size_t *grid)
{
    const size_t bytes = a->nwave * sizeof *a->row_wavelength;
    for (size_t r = 0; r < nrow; r++)
        list[r] = (member){spx_fnv1a(SPX_FNV1A, a->row_wavelength + r * a->nwave, bytes), r};
    qsort(list, nrow, sizeof *list, by_hash);
    for (size_t i = 0, begin = 0; i < nrow; i++) {
        const size_t r = list[i].row;
        if (list[i].hash != list[begin].hash)
            begin = i;
        grid[r] = r;
        for (size_t k = begin; k < i && grid[r] == r; k++) /* the first of them, unless hashes collide */
            if (memcmp(a->row_wavelength + list[k].row * a->nwave, a->row_wavelength + r * a->nwave, bytes) == 0)
                grid[r] = grid[list[k].row];
    }
}

/* Lists the grids of a star; arm[], grid[]: of narm x exposures. */
static void list_grids(const work *w, size_t star, size_t *arm, size_t *grid, star_grids *out)
{
    const spx_rvfit_input *in = w->in;
    *out = (star_grids){.star = star, .arm = arm, .grid = grid, .hash = SPX_FNV1A};
    for (size_t k = 0; k < in->spectra->narm; k++)
        for (size_t r = first_row(in, star); r < first_row(in, star + 1); r++) {
            const size_t g = w->grid[k * w->nrow + r];
            size_t i = out->n;
            while (i > 0 && arm[i - 1] == k && grid[i - 1] > g)
                i--;
            if (i > 0 && arm[i - 1] == k && grid[i - 1] == g)
                continue;
            memmove(arm + i + 1, arm + i, (out->n - i) * sizeof *arm);
            memmove(grid + i + 1, grid + i, (out->n - i) * sizeof *grid);
            arm[i] = k;
            grid[i] = g;
            out->n++;
        }
    out->hash = spx_fnv1a(out->hash, arm, out->n * sizeof *arm);
    out->hash = spx_fnv1a(out->hash, grid, out->n * sizeof *grid);
}

static int same_grids(const star_grids *a, const star_grids *b)
{
    return a->n == b->n && memcmp(a->arm, b->arm, a->n * sizeof *a->arm) == 0 &&
           memcmp(a->grid, b->grid, a->n * sizeof *a->grid) == 0;
}

static int by_grids(const void *x, const void *y)
{
    const star_grids *a = x, *b = y;
    return a->hash != b->hash ? (a->hash > b->hash) - (a->hash < b->hash) : (a->star > b->star) - (a->star < b->star);
}

/* Stars by their grids, and the first of each group. */
static spx_status sort_stars(work *w, spx_err *e)
{
    const spx_rvfit_input *in = w->in;
    const size_t narm = in->spectra->narm, nrow = w->nrow;
    member *list = spx_alloc(nrow, sizeof *list, e);
    w->grid = spx_alloc2(narm, nrow, sizeof *w->grid, e);
    w->star = spx_alloc(w->nstar, sizeof *w->star, e);
    w->begin = spx_alloc(w->nstar + 1, sizeof *w->begin, e);
    w->lists = spx_alloc2(2 * narm, nrow, sizeof *w->lists, e);
    if (list == NULL || w->grid == NULL || w->star == NULL || w->begin == NULL || w->lists == NULL) {
        spx_free(list);
        return SPX_EIO;
    }
    for (size_t k = 0; k < narm; k++)
        if (in->setup[k] != NULL && in->spectra->arm[k].per_row)
            number_grids(&in->spectra->arm[k], nrow, list, w->grid + k * nrow);
    spx_free(list);
    const star_grids *any = NULL; /* a star without spectra goes with the first that has some */
    for (size_t s = 0; s < w->nstar; s++) {
        size_t *at = w->lists + 2 * narm * first_row(in, s);
        list_grids(w, s, at, at + narm * (first_row(in, s + 1) - first_row(in, s)), &w->star[s]);
        any = any == NULL && w->star[s].n > 0 ? &w->star[s] : any;
        if (w->star[s].n > SPX_MAX_ARM)
            return spx_fail_remedy(e, SPX_EINPUT, "fit fewer of them together",
                                   "exposures of star %zu have %zu wavelength grids in their arms, more than %d", s,
                                   w->star[s].n, SPX_MAX_ARM);
    }
    for (size_t s = 0; s < w->nstar && any != NULL; s++)
        if (w->star[s].n == 0) {
            w->star[s] = *any;
            w->star[s].star = s;
        }
    qsort(w->star, w->nstar, sizeof *w->star, by_grids);
    for (size_t i = 0; i < w->nstar; i++)
        if (i == 0 || w->star[i].hash != w->star[i - 1].hash || !same_grids(&w->star[i - 1], &w->star[i]))
            w->begin[w->ngroup++] = i;
    w->begin[w->ngroup] = w->nstar;
    return SPX_OK;
}

/* Bins first ... end-1 of an arm that one of the rows of a grid has information in; some in the middle where there are
 * none. */
static void used_bins(const spx_arm *a, size_t n, const size_t *row, const size_t *grid, size_t which, size_t *first,
                      size_t *end)
{
    *first = a->nwave;
    *end = 0;
    for (size_t i = 0; i < n; i++) {
        if (grid[row[i]] != which)
            continue;
        const double *ivar = a->ivar + row[i] * a->nwave;
        size_t lo = 0, hi = a->nwave;
        while (lo < *first && !(ivar[lo] > 0))
            lo++;
        while (hi > *end && !(ivar[hi - 1] > 0))
            hi--;
        *first = lo < *first ? lo : *first;
        *end = hi > *end ? hi : *end;
    }
    if (*end < *first + LEAST_BINS) {
        const size_t middle = *end > *first ? (*first + *end) / 2 : a->nwave / 2, half = LEAST_BINS / 2;
        *first = middle > half ? middle - half : 0;
        *end = *first + LEAST_BINS < a->nwave ? *first + LEAST_BINS : a->nwave;
    }
}

/* lines x (bins first ... end-1) of rows of from[][lines][nwave]. */
static void *take(const void *from, size_t lines, size_t nwave, size_t size, size_t n, const size_t *row, size_t first,
                  size_t end, spx_err *e)
{
    const size_t m = end - first;
    char *to = spx_alloc2(n * lines, m, size, e);
    for (size_t i = 0; i < n * lines && to != NULL; i++)
        memcpy(to + i * m * size, (const char *)from + ((row[i / lines] * lines + i % lines) * nwave + first) * size,
               m * size);
    return to;
}

/* An arm of the rows, on the grid that row `which` has; those on another grid have no information. */
static spx_status take_arm(const spx_arm *a, size_t n, const size_t *row, const size_t *grid, size_t which,
                           size_t first, size_t end, spx_arm *out, spx_err *e)
{
    const size_t bins_of = a->per_row ? which : 0;
    *out = *a;
    out->nwave = end - first;
    out->per_row = 0;
    out->row_wavelength = NULL;
    out->mask = NULL;
    out->resolution = NULL;
    out->wavelength =
        take(a->per_row ? a->row_wavelength : a->wavelength, 1, a->nwave, sizeof(double), 1, &bins_of, first, end, e);
    out->flux = take(a->flux, 1, a->nwave, sizeof(double), n, row, first, end, e);
    out->ivar = take(a->ivar, 1, a->nwave, sizeof(double), n, row, first, end, e);
    if (a->mask != NULL)
        out->mask = take(a->mask, 1, a->nwave, sizeof(uint32_t), n, row, first, end, e);
    if (a->resolution != NULL)
        out->resolution = take(a->resolution, a->ndiag, a->nwave, sizeof(double), n, row, first, end, e);
    if (out->wavelength == NULL || out->flux == NULL || out->ivar == NULL || (a->mask != NULL && out->mask == NULL) ||
        (a->resolution != NULL && out->resolution == NULL))
        return SPX_EIO;
    for (size_t i = 0; i < n; i++)
        if (grid[row[i]] != which)
            memset(out->ivar + i * out->nwave, 0, out->nwave * sizeof *out->ivar);
    return SPX_OK;
}

/* Is a name that of one of the first n arms? */
static int is_named(const spx_spectra *s, size_t n, const char *name)
{
    size_t k = 0;
    while (k < n && strcmp(s->arm[k].name, name) != 0)
        k++;
    return k < n;
}

/* Arms of a group, one a grid; the second of an arm is called ARM_2. */
static spx_status take_arms(const work *w, const star_grids *of, group *g, spx_err *e)
{
    const spx_rvfit_input *in = w->in;
    spx_status st = SPX_OK;
    for (size_t k = 0; k < of->n && st == SPX_OK; k++) {
        const size_t from = of->arm[k];
        const spx_arm *a = &in->spectra->arm[from];
        size_t end = a->nwave;
        spx_arm *out = &g->spectra.arm[k];
        g->from[k] = from;
        g->which[k] = of->grid[k];
        g->in.setup[k] = in->setup[from];
        g->options.jitter_of[k] = w->o->jitter_of[from];
        g->spectra.narm = k + 1;
        if (a->per_row && in->setup[from] != NULL)
            used_bins(a, g->n, g->row, w->grid + from * w->nrow, of->grid[k], &g->skip[k], &end);
        st = take_arm(a, g->n, g->row, w->grid + from * w->nrow, of->grid[k], g->skip[k], end, out, e);
        for (size_t i = 2; is_named(&g->spectra, k, out->name); i++)
            (void)snprintf(out->name, sizeof out->name, "%.11s_%zu", a->name, i % 1000);
    }
    return st;
}

/* Adds up what a star, or one of its exposures, has in the parts of an arm. Jitters of parts are means, with weights
 * err^-2 where they were fitted. */
static void join_parts(const group *g, size_t narm, const spx_rvfit_star *from, spx_rvfit_star *to)
{
    double weights[SPX_MAX_ARM] = {0};
    *to = *from;
    for (size_t a = 0; a < SPX_MAX_ARM; a++) {
        to->sn[a] = to->arm_chisq[a] = to->arm_chisq_c[a] = to->jitter[a] = to->jitter_err[a] = 0;
        to->npoly[a] = 0;
    }
    for (size_t k = 0; k < narm; k++) {
        const size_t a = g->from[k];
        const double err = from->jitter_err[k], weight = from->npoly[k] == 0 ? 0 : err > 0 ? 1 / (err * err) : 1;
        to->sn[a] += from->sn[k] * fabs(from->sn[k]);
        to->arm_chisq[a] += from->arm_chisq[k];
        to->arm_chisq_c[a] += from->arm_chisq_c[k];
        to->npoly[a] = from->npoly[k] > to->npoly[a] ? from->npoly[k] : to->npoly[a];
        if (weights[a] == 0) {
            to->jitter[a] = from->jitter[k];
            to->jitter_err[a] = err;
        } else if (weight > 0) {
            to->jitter[a] += weight / (weights[a] + weight) * (from->jitter[k] - to->jitter[a]);
            to->jitter_err[a] = err > 0 ? 1 / sqrt(weights[a] + weight) : 0;
        }
        weights[a] += weight;
    }
    for (size_t a = 0; a < SPX_MAX_ARM; a++)
        to->sn[a] = copysign(sqrt(fabs(to->sn[a])), to->sn[a]);
    if (from->warn & SPX_RVS_ARMS)
        to->odd_arm = (int32_t)g->from[from->odd_arm];
}

static void join_exposure(const group *g, size_t narm, const spx_rvfit_exposure *from, spx_rvfit_exposure *to)
{
    *to = *from;
    for (size_t a = 0; a < SPX_MAX_ARM; a++) {
        to->sn[a] = to->chisq[a] = to->weight[a] = 0;
        to->lsf[a] = 0;
    }
    for (size_t k = 0; k < narm; k++) {
        to->lsf[g->from[k]] = from->lsf[k];
        to->sn[g->from[k]] += from->sn[k];
        to->chisq[g->from[k]] += from->chisq[k];
        to->weight[g->from[k]] += from->weight[k];
    }
}

/* Memory for the curves of the cross-correlation, whose velocities are those of the templates: the same for all. */
static spx_status curves_init(const work *w, const spx_rvfit *fit, spx_err *e)
{
    spx_rvfit *out = w->out;
    out->lag_v0 = fit->lag_v0;
    out->lag_step = fit->lag_step;
    for (size_t k = 0; k < out->narm; k++)
        if (w->in->setup[k] != NULL &&
            (out->arm[k].ccf = spx_alloc2(out->nrow, fit->nlag, sizeof *out->arm[k].ccf, e)) == NULL)
            return SPX_EIO;
    out->nlag = fit->nlag;
    return SPX_OK;
}

/* Puts the results of a group in their places. */
static spx_status put(const work *w, const star_grids *star, const group *g, const spx_rvfit *fit, spx_err *e)
{
    spx_rvfit *out = w->out;
    spx_status st = SPX_OK;
#pragma omp critical(spx_rvfit_grids_curves)
    if (fit->nlag > 0 && out->nlag == 0)
        st = curves_init(w, fit, e);
    for (size_t i = 0; i < fit->nstar && st == SPX_OK; i++)
        join_parts(g, fit->narm, &fit->star[i], &out->star[star[i].star]);
    for (size_t i = 0; i < fit->nrow && st == SPX_OK; i++)
        join_exposure(g, fit->narm, &fit->exposure[i], &out->exposure[g->row[i]]);
    for (size_t k = 0; k < fit->narm && st == SPX_OK; k++)
        for (size_t i = 0; i < fit->nrow; i++) {
            const size_t a = g->from[k], r = g->row[i], n = fit->arm[k].nwave;
            if (w->grid[a * w->nrow + r] != g->which[k])
                continue;
            if (fit->arm[k].model != NULL)
                memcpy(out->arm[a].model + r * out->arm[a].nwave + g->skip[k], fit->arm[k].model + i * n,
                       n * sizeof *fit->arm[k].model);
            if (fit->arm[k].ccf != NULL)
                memcpy(out->arm[a].ccf + r * out->nlag, fit->arm[k].ccf + i * fit->nlag,
                       fit->nlag * sizeof *fit->arm[k].ccf);
            if (fit->arm[k].star_template != NULL)
                memcpy(out->arm[a].star_template + r * out->arm[a].nbin,
                       fit->arm[k].star_template + i * fit->arm[k].nbin,
                       fit->arm[k].nbin * sizeof *fit->arm[k].star_template);
        }
    return st;
}

/* Spectra, starts and options of a group. */
static spx_status take_group(const work *w, size_t which, const spx_rvfit_options *o, group *g, spx_err *e)
{
    const spx_rvfit_input *in = w->in;
    const star_grids *star = w->star + w->begin[which];
    const size_t na = in->air != NULL ? o->transmission->nspecies + 1 : 0;
    size_t nq = 2;
    g->nstar = w->begin[which + 1] - w->begin[which];
    for (size_t i = 0; i < g->nstar; i++)
        g->n += first_row(in, star[i].star + 1) - first_row(in, star[i].star);
    for (size_t k = 0; k < in->spectra->narm; k++)
        nq = in->setup[k] != NULL ? 2 + in->setup[k]->npar : nq;
    g->row = spx_alloc(g->n, sizeof *g->row, e);
    g->first = spx_alloc(g->nstar + 1, sizeof *g->first, e);
    if (g->row == NULL || g->first == NULL ||
        (in->start != NULL && (g->start = spx_alloc2(g->nstar, nq, sizeof *g->start, e)) == NULL))
        return SPX_EIO;
    for (size_t i = 0, m = 0; i < g->nstar; i++) {
        for (size_t r = first_row(in, star[i].star); r < first_row(in, star[i].star + 1); r++)
            g->row[m++] = r;
        g->first[i + 1] = m;
        if (g->start != NULL)
            memcpy(g->start + i * nq, in->start + star[i].star * nq, nq * sizeof *g->start);
    }
    if (in->air != NULL && (g->air = take(in->air, 1, na, sizeof *g->air, g->n, g->row, 0, na, e)) == NULL)
        return SPX_EIO;
    g->options = *o;
    g->spectra.nspec = g->n;
    g->in = (spx_rvfit_input){.spectra = &g->spectra,
                              .nrow = g->n,
                              .nstar = g->nstar,
                              .first = in->first != NULL ? g->first : NULL,
                              .start = g->start,
                              .air = g->air};
    return take_arms(w, star, g, e);
}

/* Bins of the templates of an arm: of a grid for each row all that row `which` has. */
static spx_arm template_bins(const work *w, size_t arm, size_t which)
{
    const spx_arm *a = &w->in->spectra->arm[arm];
    spx_arm bins = w->bins[arm];
    if (a->per_row) {
        bins.wavelength = a->row_wavelength + which * a->nwave;
        bins.nwave = a->nwave;
    }
    return bins;
}

/* Templates of a group's stars, on all bins. */
static spx_status add_templates(const work *w, const group *g, spx_rvfit *fit, spx_err *e)
{
    spx_arm bins[SPX_MAX_ARM];
    for (size_t k = 0; k < g->spectra.narm; k++)
        bins[k] = template_bins(w, g->from[k], g->which[k]);
    return spx_rvfit_templates(&g->in, &g->options, bins, fit, e);
}

static spx_status fit_group(const work *w, size_t which, const spx_rvfit_options *o, spx_err *e)
{
    group *g = spx_alloc(1, sizeof *g, e);
    spx_rvfit fit = {0};
    spx_status st = g == NULL ? SPX_EIO : take_group(w, which, o, g, e);
    if (st == SPX_OK)
        st = w->call(w->ctx, &g->in, g->row, &g->options, w->progress, &fit, e);
    if (st == SPX_OK && w->bins != NULL)
        st = add_templates(w, g, &fit, e);
    if (st == SPX_OK)
        st = put(w, w->star + w->begin[which], g, &fit, e);
    spx_rvfit_free(&fit);
    if (g != NULL) {
        spx_spectra_free(&g->spectra);
        spx_free(g->start);
        spx_free(g->air);
        spx_free(g->row);
        spx_free(g->first);
    }
    spx_free(g);
    return st;
}

/* Memory of the results. */
static spx_status result_init(const work *w, size_t nstar, spx_rvfit *out, spx_err *e)
{
    const spx_rvfit_input *in = w->in;
    const spx_rvfit_options *o = w->o;
    const spx_spectra *s = in->spectra;
    *out = (spx_rvfit){.nstar = nstar,
                       .narm = s->narm,
                       .nrow = in->nrow,
                       .with_jitter = o->jitter,
                       .with_epochs = o->epochs,
                       .with_double = o->components > 1};
    out->row = spx_alloc(out->nrow, sizeof *out->row, e);
    out->first = spx_alloc(nstar + 1, sizeof *out->first, e);
    out->star = spx_alloc(nstar, sizeof *out->star, e);
    out->exposure = spx_alloc(out->nrow, sizeof *out->exposure, e);
    if (out->row == NULL || out->first == NULL || out->star == NULL || out->exposure == NULL)
        return SPX_EIO;
    for (size_t i = 0; i < out->nrow; i++)
        out->row[i] = i;
    for (size_t i = 0; i <= nstar; i++)
        out->first[i] = first_row(in, i);
    for (size_t k = 0; k < s->narm; k++) {
        memcpy(out->arm[k].name, s->arm[k].name, sizeof out->arm[k].name);
        out->arm[k].nwave = s->arm[k].nwave;
        if (in->setup[k] == NULL)
            continue;
        out->npar = in->setup[k]->npar;
        memcpy(out->parname, in->setup[k]->parname, sizeof out->parname);
        if (o->keep_model &&
            (out->arm[k].model = spx_alloc2(out->nrow, s->arm[k].nwave, sizeof *out->arm[k].model, e)) == NULL)
            return SPX_EIO;
        if (w->bins == NULL)
            continue;
        const spx_arm bins = template_bins(w, k, 0);
        out->arm[k].nbin = bins.nwave;
        out->arm[k].bins = bins.wavelength;
        if ((out->arm[k].star_template = spx_alloc2(out->nrow, bins.nwave, sizeof *out->arm[k].star_template, e)) ==
            NULL)
            return SPX_EIO;
    }
    return SPX_OK;
}

spx_status spx_rvfit_grids(const spx_rvfit_input *in, const spx_rvfit_options *o, spx_rvfit_call call, void *ctx,
                           int together, const spx_arm *bins, spx_progress *p, spx_rvfit *out, spx_err *e)
{
    work w = {.in = in,
              .o = o,
              .call = call,
              .ctx = ctx,
              .bins = bins,
              .progress = p,
              .nstar = in->first != NULL ? in->nstar : in->nrow,
              .nrow = in->nrow,
              .out = out};
    *out = (spx_rvfit){0};
    spx_status st = result_init(&w, w.nstar, out, e);
    if (st == SPX_OK)
        st = sort_stars(&w, e);
    const size_t threads = o->threads > 1 ? (size_t)o->threads : 1;
    const int aside = together && o->hook == NULL && threads > 1 && w.ngroup >= threads;
    spx_rvfit_options single = *o;
    single.threads = 1;
    int failed = st;
#pragma omp parallel for schedule(dynamic, 1) num_threads((int)threads) if (aside)
    for (size_t g = 0; g < w.ngroup; g++) {
        spx_err mine = {0};
        int go;
#pragma omp atomic read
        go = failed;
        if (go != SPX_OK)
            continue;
        if (fit_group(&w, g, aside ? &single : o, &mine) != SPX_OK) {
#pragma omp critical(spx_rvfit_grids_error)
            st = spx_err_pass(e, &mine);
#pragma omp atomic write
            failed = mine.code;
        }
    }
    spx_free(w.grid);
    spx_free(w.star);
    spx_free(w.lists);
    spx_free(w.begin);
    if (st != SPX_OK)
        spx_rvfit_free(out);
    return st;
}
