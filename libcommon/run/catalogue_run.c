/* Runs a fit in chunks of stars (run/catalogue_run.h). */
#include "run/catalogue_run.h"

#include <string.h>

#include "base/mem.h"
#include "products/rvfit_h5.h"
#include "run/groups.h"

typedef struct {
    const spx_rvfit_parts *p;
    hid_t file;
    spx_rvfit *all;
} work;

static spx_status fit_chunk(void *ctx, spx_group_chunk *c, spx_err *e)
{
    const work *w = ctx;
    const spx_status st =
        w->p->fit(w->p->ctx, &c->spectra, c->group, c->ngroup, w->p->first != NULL ? c->first : NULL, c->result, e);
    spx_spectra_free(&c->spectra);
    return st;
}

/* Memory of what is kept of all stars. */
static spx_status make_all(const spx_rvfit_parts *p, spx_rvfit *all, spx_err *e)
{
    *all = (spx_rvfit){.star = spx_alloc(p->nstar, sizeof *all->star, e),
                       .exposure = spx_alloc(p->nrow, sizeof *all->exposure, e),
                       .row = spx_alloc(p->nrow, sizeof *all->row, e),
                       .first = spx_alloc(p->nstar + 1, sizeof *all->first, e)};
    if (all->star == NULL || all->exposure == NULL || all->row == NULL || all->first == NULL)
        return SPX_EIO;
    memcpy(all->row, p->row, p->nrow * sizeof *all->row);
    for (size_t k = 0; k <= p->nstar; k++)
        all->first[k] = p->first != NULL ? p->first[k] : k;
    return SPX_OK;
}

/* Takes over what is the same in the results of all chunks. */
static void take_head(const spx_rvfit *fit, const spx_rvfit_parts *p, spx_rvfit *all)
{
    const spx_rvfit own = *all;
    *all = *fit;
    all->nstar = p->nstar;
    all->nrow = p->nrow;
    all->star = own.star;
    all->exposure = own.exposure;
    all->row = own.row;
    all->first = own.first;
    for (size_t a = 0; a < all->narm; a++) {
        all->arm[a].row_wavelength = NULL;
        all->arm[a].model = all->arm[a].star_template = all->arm[a].ccf = all->arm[a].residual = NULL;
    }
}

/* Keeps the results of a chunk's stars that are not written by rows. */
static void keep_stars(const work *w, const spx_group_chunk *c)
{
    const spx_rvfit *fit = c->result;
    spx_rvfit *all = w->all;
    memcpy(all->star + c->group, fit->star, c->ngroup * sizeof *all->star);
    memcpy(all->exposure + c->row, fit->exposure, c->nrow * sizeof *all->exposure);
}

static spx_status write_chunk(void *ctx, spx_group_chunk *c, spx_err *e)
{
    work *w = ctx;
    const spx_rvfit_parts *p = w->p;
    const int joint = p->first != NULL;
    spx_status st = SPX_OK;
    if (w->all->nstar == 0) {
        take_head(c->result, p, w->all);
        st = spx_run_output(p->stage, "rvfit", &w->file, e);
        if (st == SPX_OK)
            st = spx_rvfit_create(w->file, c->result, &p->spectra->all, p->nrow, joint, e);
    }
    keep_stars(w, c);
    return st == SPX_OK ? spx_rvfit_write_rows(w->file, c->result, c->row, joint, e) : st;
}

static void clear(void *ctx, void *result)
{
    (void)ctx;
    spx_rvfit_free(result);
}

/* Fresh memory costs more than reading into it, so chunks are small, but each thread has some 20 stars, and a device
 * some hundreds. */
static size_t chunk_bytes(size_t nthread)
{
    const size_t unit = (size_t)1 << 26;
    return unit * (nthread == 0 ? 4 : nthread < 16 ? nthread : 16);
}

spx_status spx_rvfit_parts_run(const spx_rvfit_parts *p, hid_t *file, spx_rvfit *all, spx_err *e)
{
    work w = {.p = p, .file = H5I_INVALID_HID, .all = all};
    spx_status st = make_all(p, all, e); /* first: chunks share what it leaves */
    if (st != SPX_OK)
        return st;
    spx_mem_cache(1); /* chunks use the memory of those before: the system clears it once */
    st =
        spx_groups_run(&(spx_groups){.stage = p->stage,
                                     .step = "fit",
                                     .spectra = p->spectra,
                                     .ngroup = p->nstar,
                                     .row = p->row,
                                     .first = p->first,
                                     .most_bytes = chunk_bytes(p->nthread),
                                     .row_bytes = p->result_bytes + sizeof(spx_rvfit_star) + sizeof(spx_rvfit_exposure),
                                     .result_size = sizeof(spx_rvfit),
                                     .compute = fit_chunk,
                                     .write = write_chunk,
                                     .clear = clear,
                                     .ctx = &w},
                       e);
    spx_mem_cache(0);
    *file = w.file;
    return st;
}
