/* Provides fits of stars on wavelength grids of their own (rvfit/grids.h): a plan, with places on the templates' grid,
 * continuum and starts, is for one grid of each arm. */
#include "rvfit/grids.h"

#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/mem.h"

enum { LEAST_BINS = 64 }; /* of an arm without information, so that there is one */

/* Star of the batch and the hash of its grids. */
typedef struct {
    uint64_t hash;
    size_t star;
} member;

typedef struct {
    const spx_rvfit_input *in;
    const spx_rvfit_options *o;
    spx_rvfit_call call;
    void *ctx;
    spx_progress *progress;
    const member *list;
    size_t ngroup, *begin; /* [ngroup+1] of list[] */
    spx_rvfit *out;
} work;

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

/* Have two rows the same grids? */
static int same_grids(const spx_rvfit_input *in, size_t x, size_t y)
{
    for (size_t k = 0; k < in->spectra->narm; k++) {
        const spx_arm *a = &in->spectra->arm[k];
        if (in->setup[k] != NULL && a->per_row &&
            memcmp(a->row_wavelength + x * a->nwave, a->row_wavelength + y * a->nwave,
                   a->nwave * sizeof *a->row_wavelength) != 0)
            return 0;
    }
    return 1;
}

static int by_hash(const void *x, const void *y)
{
    const member *a = x, *b = y;
    return a->hash != b->hash ? (a->hash > b->hash) - (a->hash < b->hash) : (a->star > b->star) - (a->star < b->star);
}

/* Stars by their grids: list[nstar], and the first of each group. */
static spx_status sort_stars(const spx_rvfit_input *in, size_t nstar, member *list, size_t *begin, size_t *ngroup,
                             spx_err *e)
{
    for (size_t s = 0; s < nstar; s++) {
        const size_t row = first_row(in, s);
        list[s] = (member){SPX_FNV1A, s};
        for (size_t r = row + 1; r < first_row(in, s + 1); r++)
            if (!same_grids(in, row, r))
                return spx_fail_remedy(
                    e, SPX_EINPUT, "give these exposures in files of their own, whose arms are kept apart",
                    "exposures of star %zu have different wavelength grids in one arm: they cannot be fitted jointly",
                    s);
        for (size_t k = 0; k < in->spectra->narm && row < first_row(in, s + 1); k++) {
            const spx_arm *a = &in->spectra->arm[k];
            if (in->setup[k] != NULL && a->per_row)
                list[s].hash =
                    spx_fnv1a(list[s].hash, a->row_wavelength + row * a->nwave, a->nwave * sizeof *a->row_wavelength);
        }
    }
    qsort(list, nstar, sizeof *list, by_hash);
    *ngroup = 0;
    for (size_t i = 0; i < nstar; i++)
        if (i == 0 || list[i].hash != list[i - 1].hash ||
            !same_grids(in, first_row(in, list[i - 1].star), first_row(in, list[i].star)))
            begin[(*ngroup)++] = i;
    begin[*ngroup] = nstar;
    return SPX_OK;
}

/* Bins first ... end-1 of an arm that one of the rows has information in; some in the middle where there are none. */
static void used_bins(const spx_arm *a, size_t n, const size_t *row, size_t *first, size_t *end)
{
    *first = a->nwave;
    *end = 0;
    for (size_t i = 0; i < n; i++) {
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

/* An arm of the rows, on one grid. */
static spx_status take_arm(const spx_arm *a, size_t n, const size_t *row, size_t first, size_t end, spx_arm *out,
                           spx_err *e)
{
    *out = *a;
    out->nwave = end - first;
    out->per_row = 0;
    out->row_wavelength = NULL;
    out->mask = NULL;
    out->resolution = NULL;
    out->wavelength = a->per_row ? take(a->row_wavelength, 1, a->nwave, sizeof(double), 1, row, first, end, e)
                                 : take(a->wavelength, 1, a->nwave, sizeof(double), 1, &(size_t){0}, first, end, e);
    out->flux = take(a->flux, 1, a->nwave, sizeof(double), n, row, first, end, e);
    out->ivar = take(a->ivar, 1, a->nwave, sizeof(double), n, row, first, end, e);
    if (a->mask != NULL)
        out->mask = take(a->mask, 1, a->nwave, sizeof(uint32_t), n, row, first, end, e);
    if (a->resolution != NULL)
        out->resolution = take(a->resolution, a->ndiag, a->nwave, sizeof(double), n, row, first, end, e);
    return out->wavelength != NULL && out->flux != NULL && out->ivar != NULL &&
                   (a->mask == NULL || out->mask != NULL) && (a->resolution == NULL || out->resolution != NULL)
               ? SPX_OK
               : SPX_EIO;
}

/* Puts the results of a group, whose spectra are row[], in their places. */
static void put(const work *w, size_t group, const size_t *row, const size_t *skip, const spx_rvfit *fit)
{
    spx_rvfit *out = w->out;
    for (size_t i = 0; i < fit->nstar; i++)
        out->star[w->list[w->begin[group] + i].star] = fit->star[i];
    for (size_t i = 0; i < fit->nrow; i++)
        out->exposure[row[i]] = fit->exposure[i];
    for (size_t k = 0; k < fit->narm; k++)
        for (size_t i = 0; i < fit->nrow && fit->arm[k].model != NULL; i++)
            memcpy(out->arm[k].model + row[i] * out->arm[k].nwave + skip[k], fit->arm[k].model + i * fit->arm[k].nwave,
                   fit->arm[k].nwave * sizeof *fit->arm[k].model);
}

static spx_status fit_group(const work *w, size_t group, const spx_rvfit_options *o, spx_err *e)
{
    const spx_rvfit_input *in = w->in;
    const size_t nstar = w->begin[group + 1] - w->begin[group];
    size_t skip[SPX_MAX_ARM] = {0}, nq = 2, n = 0;
    for (size_t i = 0; i < nstar; i++) {
        const size_t star = w->list[w->begin[group] + i].star;
        n += first_row(in, star + 1) - first_row(in, star);
    }
    spx_spectra *s = spx_alloc(1, sizeof *s, e);
    size_t *row = spx_alloc(n, sizeof *row, e), *first = spx_alloc(nstar + 1, sizeof *first, e);
    spx_rvfit_input one = *in;
    spx_rvfit fit = {0};
    spx_status st = s != NULL && row != NULL && first != NULL ? SPX_OK : SPX_EIO;
    for (size_t i = 0, m = 0; i < nstar && st == SPX_OK; i++) {
        const size_t star = w->list[w->begin[group] + i].star;
        for (size_t r = first_row(in, star); r < first_row(in, star + 1); r++)
            row[m++] = r;
        first[i + 1] = m;
    }
    for (size_t k = 0; k < in->spectra->narm && st == SPX_OK; k++) {
        const spx_arm *a = &in->spectra->arm[k];
        size_t end = a->nwave;
        s->narm = k + 1;
        if (in->setup[k] != NULL)
            nq = 2 + in->setup[k]->npar;
        if (a->per_row && in->setup[k] != NULL)
            used_bins(a, n, row, &skip[k], &end);
        st = take_arm(a, n, row, skip[k], end, &s->arm[k], e);
    }
    double *start = NULL;
    if (st == SPX_OK && in->start != NULL && (start = spx_alloc2(nstar, nq, sizeof *start, e)) == NULL)
        st = SPX_EIO;
    for (size_t i = 0; i < nstar && start != NULL; i++)
        memcpy(start + i * nq, in->start + w->list[w->begin[group] + i].star * nq, nq * sizeof *start);
    if (st == SPX_OK) {
        s->nspec = n;
        one.spectra = s;
        one.nrow = n;
        one.nstar = nstar;
        one.first = in->first != NULL ? first : NULL;
        one.start = start;
        st = w->call(w->ctx, &one, o, w->progress, &fit, e);
    }
    if (st == SPX_OK)
        put(w, group, row, skip, &fit);
    if (s != NULL)
        spx_spectra_free(s);
    spx_rvfit_free(&fit);
    spx_free(start);
    spx_free(s);
    spx_free(row);
    spx_free(first);
    return st;
}

/* Memory of the results. */
static spx_status result_init(const spx_rvfit_input *in, const spx_rvfit_options *o, size_t nstar, spx_rvfit *out,
                              spx_err *e)
{
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
    }
    return SPX_OK;
}

spx_status spx_rvfit_grids(const spx_rvfit_input *in, const spx_rvfit_options *o, spx_rvfit_call call, void *ctx,
                           int together, spx_progress *p, spx_rvfit *out, spx_err *e)
{
    const size_t nstar = in->first != NULL ? in->nstar : in->nrow;
    work w = {.in = in, .o = o, .call = call, .ctx = ctx, .progress = p, .out = out};
    *out = (spx_rvfit){0};
    if (o->keep_ccf || o->transmission != NULL)
        return spx_fail(e, SPX_EUSAGE,
                        "{tellurics} and kept cross-correlations need one wavelength grid for all spectra");
    member *list = spx_alloc(nstar, sizeof *list, e);
    w.begin = spx_alloc(nstar + 1, sizeof *w.begin, e);
    w.list = list;
    spx_status st = list != NULL && w.begin != NULL ? result_init(in, o, nstar, out, e) : SPX_EIO;
    if (st == SPX_OK)
        st = sort_stars(in, nstar, list, w.begin, &w.ngroup, e);
    const size_t threads = o->threads > 1 ? (size_t)o->threads : 1;
    const int aside = together && o->hook == NULL && threads > 1 && w.ngroup >= threads;
    spx_rvfit_options single = *o; /* the same for all groups: a plan keeps its address */
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
    spx_free(list);
    spx_free(w.begin);
    if (st != SPX_OK)
        spx_rvfit_free(out);
    return st;
}
