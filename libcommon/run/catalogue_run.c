/* Runs a fit in chunks of stars through the pipeline of base/pipeline.h (run/catalogue_run.h). */
#include "run/catalogue_run.h"

#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/pipeline.h"
#include "products/rvfit_h5.h"
#include "products/spectra.h"

/* PART_BYTES: size of a chunk unless --max-mem asks for less; PARTS: chunks in the pipeline at one time. */
enum { PART_BYTES = 1 << 30, PARTS = 3 };

enum { READ, FIT, WRITE, STEPS };

typedef struct {
    const spx_rvfit_parts *p;
    size_t next, most_rows; /* first star of the next chunk; most rows of a chunk */
    hid_t file;
    spx_rvfit *all;
    double seconds[STEPS];
    spx_err err; /* first error */
} work;

typedef struct {
    size_t star, nstar, row, nrow; /* first star and number of stars, first row and number of rows */
    size_t *first;
    spx_spectra spectra;
    spx_rvfit fit;
    spx_err err;
} part;

static size_t first_of(const spx_rvfit_parts *p, size_t star)
{
    return p->first != NULL ? p->first[star] : star;
}

static void keep_error(work *w, const spx_err *e)
{
    if (w->err.code == SPX_OK)
        w->err = *e;
}

static void end_part(void *ctx, void *item)
{
    part *c = item;
    (void)ctx;
    spx_spectra_free(&c->spectra);
    spx_rvfit_free(&c->fit);
    spx_free(c->first);
    spx_free(c);
}

/* Reads a chunk: as many stars as have most_rows spectra, at least one. */
static void *read_part(void *ctx)
{
    work *w = ctx;
    const spx_rvfit_parts *p = w->p;
    spx_err e = {0};
    double begin = spx_seconds();
    if (w->next == p->nstar || w->err.code != SPX_OK)
        return NULL;
    part *c = spx_alloc(1, sizeof *c, &e);
    if (c != NULL) {
        c->star = w->next;
        c->row = first_of(p, w->next);
        do
            w->next++;
        while (w->next < p->nstar && first_of(p, w->next + 1) - c->row <= w->most_rows);
        c->nstar = w->next - c->star;
        c->nrow = first_of(p, w->next) - c->row;
        c->first = spx_alloc(c->nstar + 1, sizeof *c->first, &e);
        for (size_t k = 0; k <= c->nstar && c->first != NULL; k++)
            c->first[k] = first_of(p, c->star + k) - c->row;
        if (c->first == NULL ||
            spx_spectra_parts_read(p->spectra, c->nrow, p->row + c->row, &c->spectra, &e) != SPX_OK) {
            end_part(w, c);
            c = NULL;
        }
    }
    if (c == NULL)
        keep_error(w, &e);
    w->seconds[READ] += spx_seconds() - begin;
    return c;
}

static void fit_part(void *ctx, size_t worker, void *item)
{
    work *w = ctx;
    part *c = item;
    double begin = spx_seconds();
    (void)worker;
    (void)w->p->fit(w->p->ctx, &c->spectra, c->star, c->nstar, w->p->first != NULL ? c->first : NULL, &c->fit, &c->err);
    spx_spectra_free(&c->spectra);
    w->seconds[FIT] += spx_seconds() - begin;
}

/* Keeps the results of a chunk's stars that are not written by rows. */
static spx_status keep_stars(work *w, const part *c, spx_err *e)
{
    const spx_rvfit_parts *p = w->p;
    spx_rvfit *all = w->all;
    if (all->star == NULL) {
        *all = c->fit;
        all->nstar = p->nstar;
        all->nrow = p->nrow;
        for (size_t a = 0; a < all->narm; a++)
            all->arm[a].model = all->arm[a].star_template = all->arm[a].ccf = NULL;
        all->star = spx_alloc(p->nstar, sizeof *all->star, e);
        all->exposure = spx_alloc(p->nrow, sizeof *all->exposure, e);
        all->row = spx_alloc(p->nrow, sizeof *all->row, e);
        all->first = spx_alloc(p->nstar + 1, sizeof *all->first, e);
        if (all->star == NULL || all->exposure == NULL || all->row == NULL || all->first == NULL)
            return SPX_EIO;
        memcpy(all->row, p->row, p->nrow * sizeof *all->row);
        for (size_t k = 0; k <= p->nstar; k++)
            all->first[k] = first_of(p, k);
    }
    memcpy(all->star + c->star, c->fit.star, c->nstar * sizeof *all->star);
    memcpy(all->exposure + c->row, c->fit.exposure, c->nrow * sizeof *all->exposure);
    return SPX_OK;
}

static void write_part(void *ctx, void *item)
{
    work *w = ctx;
    const spx_rvfit_parts *p = w->p;
    part *c = item;
    int joint = p->first != NULL;
    double begin = spx_seconds();
    spx_err e = c->err;
    if (e.code == SPX_OK && w->err.code == SPX_OK && w->all->star == NULL &&
        spx_run_output(p->stage, "rvfit", &w->file, &e) == SPX_OK)
        (void)spx_rvfit_create(w->file, &c->fit, &p->spectra->all, p->nrow, joint, &e);
    if (e.code == SPX_OK && w->err.code == SPX_OK && keep_stars(w, c, &e) == SPX_OK)
        (void)spx_rvfit_write_rows(w->file, &c->fit, c->row, joint, &e);
    if (e.code != SPX_OK)
        keep_error(w, &e);
    w->seconds[WRITE] += spx_seconds() - begin;
}

static void publish_part(void *ctx, void *item)
{
    (void)ctx;
    (void)item; /* nothing to publish: all chunks go into one file, which is not complete yet */
}

/* Most spectra of a chunk: half of its share of memory, the other half is for the fit. */
static size_t rows_of_part(const spx_rvfit_parts *p)
{
    size_t row = spx_spectra_parts_row_bytes(p->spectra) + p->result_bytes, limit = spx_mem_limit_get();
    size_t held = spx_mem_peak(), bytes = spx_mem_cap() / (4 * PARTS); /* of the machine's memory, without a limit */
    if (limit > 0)
        bytes = limit > held ? (limit - held) / (2 * PARTS) : 0;
    else if (bytes > PART_BYTES)
        bytes = PART_BYTES;
    return bytes / row > 0 ? bytes / row : 1;
}

spx_status spx_rvfit_parts_run(const spx_rvfit_parts *p, hid_t *file, spx_rvfit *all, spx_err *e)
{
    static const char *const step[STEPS] = {"read", "fit", "write"};
    work w = {.p = p, .most_rows = rows_of_part(p), .file = H5I_INVALID_HID, .all = all};
    const spx_pipeline line = {.ctx = &w,
                               .nworker = 1,
                               .most = PARTS,
                               .read = read_part,
                               .compute = fit_part,
                               .write = write_part,
                               .publish = publish_part,
                               .end = end_part};
    memset(all, 0, sizeof *all);
    spx_status st = spx_pipeline_run(&line, e);
    for (size_t k = 0; k < STEPS; k++)
        spx_run_seconds(p->stage, step[k], w.seconds[k]);
    *file = w.file;
    return st == SPX_OK && w.err.code != SPX_OK ? spx_err_pass(e, &w.err) : st;
}
