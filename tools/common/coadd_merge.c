#include "common/coadd_merge.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "common/coadd_inputs.h"
#include "common/device.h"
#include "h5/attr.h"
#include "h5/write.h"
#include "products/arm_h5.h"
#include "run/groups.h"

typedef struct {
    const spx_coadd_args *args;
    spx_run *run;
    spx_backend backend;
    spx_coadd_inputs in;
    spx_coadd *all; /* [narm] counts of all targets and exposures, without spectra */
    hid_t file;
    spx_coadd_cleaned cleaned;
    spx_progress *progress;
} work;

/* Spectra that are read at one time: fresh memory, which the system clears, costs as much as all else, and opening the
 * datasets for each chunk as much as clearing 8 MiB. A device goes along the bins of all targets of a chunk side by
 * side. */
#define CHUNK_BYTES        ((size_t)1 << 24)
#define CHUNK_BYTES_DEVICE ((size_t)1 << 27)

/* The coadds of a chunk of targets. */
typedef struct {
    spx_coadd *coadd; /* [narm] */
    spx_coadd_cleaned cleaned;
} result;

static void clear(void *ctx, void *of)
{
    const work *w = ctx;
    result *r = of;
    for (size_t k = 0; k < w->in.spectra.all.narm && r->coadd != NULL; k++)
        spx_coadd_free(&r->coadd[k]);
    spx_free(r->coadd);
}

static spx_coadd_options options_of(const work *w, size_t ndiag)
{
    const spx_coadd_method method =
        ndiag == 0 && w->args->method == SPX_COADD_AUTO ? SPX_COADD_SIMPLE : w->args->method;
    return (spx_coadd_options){.method = method,
                               .reject = w->args->reject,
                               .scale = w->args->scale,
                               .ndiag_out = ndiag > 0 && w->args->diagonals > 0 ? (size_t)w->args->diagonals
                                                                                : spx_coadd_diagonals(method, ndiag),
                               .nthreads = (int)w->run->common.threads,
                               .progress = w->progress};
}

static spx_status coadd_chunk(void *ctx, spx_group_chunk *c, spx_err *e)
{
    work *w = ctx;
    result *r = c->result;
    r->coadd = spx_alloc(w->in.spectra.all.narm, sizeof *r->coadd, e);
    spx_status st = r->coadd != NULL ? SPX_OK : SPX_EIO;
    for (size_t k = 0; k < c->spectra.narm && st == SPX_OK; k++) {
        spx_arm *a = &c->spectra.arm[k];
        const spx_coadd_input in = {c->ngroup, a->nwave, a->ndiag, c->first, a->flux, a->ivar, a->mask, a->resolution};
        const spx_coadd_options o = options_of(w, a->ndiag);
        spx_coadd_clean(c->ngroup, c->first, a->nwave, a->ndiag, a->resolution, a->ivar, o.nthreads, &r->cleaned);
        st = w->backend.coadd(&w->backend, &in, &o, &r->coadd[k], e);
        spx_arm_free(a);
    }
    return st;
}

/* Arm k of the product, with the arrays of a coadd. */
static spx_arm product_arm(const work *w, size_t k, const spx_coadd *c)
{
    spx_arm a = w->in.spectra.all.arm[k];
    a.flux = c->flux;
    a.ivar = c->ivar;
    a.mask = c->mask;
    a.resolution = c->resolution;
    a.ndiag = c->ndiag;
    return a;
}

static void arm_path(const work *w, size_t k, char path[40])
{
    (void)snprintf(path, 40, "/spectra/%.15s", w->in.spectra.all.arm[k].name);
}

static spx_status create(work *w, const result *r, spx_err *e)
{
    spx_status st = spx_run_output(w->run, "spectra", &w->file, e);
    if (st == SPX_OK)
        st = spx_h5_group(w->file, "/spectra", e);
    for (size_t k = 0; k < w->in.spectra.all.narm && st == SPX_OK; k++) {
        char path[40];
        const spx_arm a = product_arm(w, k, &r->coadd[k]);
        arm_path(w, k, path);
        st = spx_arm_create(w->file, path, w->in.ntarget, &a, w->in.precision, e);
    }
    return st;
}

static spx_status write_chunk(void *ctx, spx_group_chunk *c, spx_err *e)
{
    work *w = ctx;
    const result *r = c->result;
    w->cleaned.over += r->cleaned.over;
    w->cleaned.wrong += r->cleaned.wrong;
    spx_status st = w->file < 0 ? create(w, r, e) : SPX_OK;
    for (size_t k = 0; k < w->in.spectra.all.narm && st == SPX_OK; k++) {
        char path[40];
        const spx_coadd *from = &r->coadd[k];
        const spx_arm a = product_arm(w, k, from);
        spx_coadd *to = &w->all[k];
        arm_path(w, k, path);
        st = spx_arm_write_rows(w->file, path, c->group, c->ngroup, &a, w->in.precision, e);
        memcpy(to->optimal + c->group, from->optimal, c->ngroup * sizeof *to->optimal);
        memcpy(to->spread + c->group, from->spread, c->ngroup * sizeof *to->spread);
        memcpy(to->scale + c->row, from->scale, c->nrow * sizeof *to->scale);
        memcpy(to->chi2 + c->row, from->chi2, c->nrow * sizeof *to->chi2);
        memcpy(to->good + c->row, from->good, c->nrow * sizeof *to->good);
        memcpy(to->rejected + c->row, from->rejected, c->nrow * sizeof *to->rejected);
        to->failed += from->failed;
        to->on_cpu += from->on_cpu;
    }
    return st;
}

static spx_status make_counts(work *w, spx_err *e)
{
    const size_t narm = w->in.spectra.all.narm, nrow = w->in.nrow, ntarget = w->in.ntarget;
    w->all = spx_alloc(narm, sizeof *w->all, e);
    for (size_t k = 0; k < narm && w->all != NULL && e->code == SPX_OK; k++) {
        spx_coadd *c = &w->all[k];
        c->optimal = spx_alloc(ntarget, sizeof *c->optimal, e);
        c->spread = spx_alloc(ntarget, sizeof *c->spread, e);
        c->scale = spx_alloc(nrow, sizeof *c->scale, e);
        c->chi2 = spx_alloc(nrow, sizeof *c->chi2, e);
        c->good = spx_alloc(nrow, sizeof *c->good, e);
        c->rejected = spx_alloc(nrow, sizeof *c->rejected, e);
    }
    return e->code;
}

static spx_status coadd_all(work *w, spx_err *e)
{
    w->progress =
        spx_progress_start(w->run->common.progress, "coadd", "targets", w->in.ntarget * w->in.spectra.all.narm);
    spx_mem_cache(1); /* chunks use the memory of those before */
    const spx_status st =
        spx_groups_run(&(spx_groups){.stage = w->run,
                                     .step = "coadd",
                                     .spectra = &w->in.spectra,
                                     .ngroup = w->in.ntarget,
                                     .row = w->in.row,
                                     .first = w->in.first,
                                     .most_bytes = w->backend.library != NULL ? CHUNK_BYTES_DEVICE : CHUNK_BYTES,
                                     .result_size = sizeof(result),
                                     .compute = coadd_chunk,
                                     .write = write_chunk,
                                     .clear = clear,
                                     .ctx = w},
                       e);
    spx_mem_cache(0);
    spx_progress_end(w->progress);
    return st;
}

/* chi2 about the coadd, and grey scales of a target's exposures over one another, that noise and clouds do not make; of
 * how many good bins; the part of the exposures above which it is none of single stars. */
#define MOST_CHI2  3.0
#define MOST_SCALE 10.0
#define MOST_PART  0.1
enum { FEWEST_BINS = 50 };

/* Warns where exposures are not of one spectrum: fluxes in other units or of the wrong sign, stars mixed up. */
static spx_status look_at_misfits(const work *w, spx_err *e)
{
    size_t n = 0, compared = 0, example = 0, arm = 0;
    for (size_t k = 0; k < w->in.spectra.all.narm; k++) {
        const spx_coadd *c = &w->all[k];
        for (size_t t = 0; t < w->in.ntarget; t++) {
            double lo = HUGE_VAL, hi = 0;
            for (size_t i = w->in.first[t]; i < w->in.first[t + 1]; i++) {
                lo = c->chi2[i] > 0 ? fmin(lo, c->scale[i]) : lo;
                hi = c->chi2[i] > 0 ? fmax(hi, c->scale[i]) : hi;
            }
            for (size_t i = w->in.first[t]; i < w->in.first[t + 1]; i++) {
                const int counts = c->chi2[i] > 0 && c->good[i] >= FEWEST_BINS,
                          off = counts && (c->chi2[i] > MOST_CHI2 || hi > MOST_SCALE * lo);
                compared += (size_t)counts;
                example = off && n == 0 ? i : example;
                arm = off && n == 0 ? k : arm;
                n += (size_t)off;
            }
        }
    }
    if (n == 0)
        return SPX_OK;
    if ((double)n > MOST_PART * (double)compared)
        spx_warn(
            "%zu of %zu spectra of single exposures, such as of EXPID %lld in arm %s, are not the target's that the "
            "others show (COADD_CHI2 above %g, COADD_SCALE that differ by more than %g times): are units, signs and "
            "TARGETIDs of all exposures right, and fluxes calibrated?",
            n, compared, (long long)w->in.expid[w->in.row[example]], w->in.spectra.all.arm[arm].name, MOST_CHI2,
            MOST_SCALE);
    return spx_run_record(w->run, "misfits", e, "%zu", n);
}

/* Counts of all arms, into the record and to the terminal. */
static spx_status report(const work *w, spx_err *e)
{
    spx_fallback left = {.unit = "targets", .reason = "resolution matrices of many diagonals"};
    size_t optimal = 0, failed = 0, scaled = 0, rejected = 0, good = 0;
    for (size_t k = 0; k < w->in.spectra.all.narm; k++) {
        const spx_coadd *c = &w->all[k];
        failed += c->failed;
        left.on_cpu += c->on_cpu;
        left.total += w->in.ntarget;
        for (size_t t = 0; t < w->in.ntarget; t++)
            optimal += c->optimal[t];
        for (size_t i = 0; i < w->in.nrow; i++) {
            scaled += c->scale[i] != 1;
            rejected += c->rejected[i];
            good += c->good[i];
        }
    }
    spx_status st = spx_run_record(w->run, "targets", e, "%zu", w->in.ntarget);
    if (st == SPX_OK)
        st = spx_run_record(w->run, "exposures", e, "%zu", w->in.nrow);
    if (st == SPX_OK)
        st = spx_run_record(w->run, "optimal", e, "%zu", optimal);
    if (st == SPX_OK)
        st = spx_run_record(w->run, "scaled", e, "%zu", scaled);
    if (st == SPX_OK)
        st = spx_run_record(w->run, "rejected_bins", e, "%zu", rejected);
    if (st == SPX_OK)
        st = spx_run_fallback(w->run, "", &left, e);
    if (st == SPX_OK && w->in.nleft > 0)
        st = spx_run_record(w->run, "rows_without_target", e, "%zu", w->in.nleft);
    if (st == SPX_OK && w->in.nbad > 0)
        st = spx_run_record(w->run, "exposures_of_bad_status", e, "%zu", w->in.nbad);
    if (st == SPX_OK && w->cleaned.over > 0)
        st = spx_run_record(w->run, "bins_of_wrong_ivar", e, "%zu", w->cleaned.over);
    if (st == SPX_OK && w->cleaned.wrong > 0)
        st = spx_run_record(w->run, "exposures_of_wrong_resolution", e, "%zu", w->cleaned.wrong);
    if (w->cleaned.over > 0)
        spx_warn("%zu bins of exposures have an ivar beyond 1e8 times that of others of their target: left out",
                 w->cleaned.over);
    if (w->cleaned.wrong > 0)
        spx_warn("%zu arms of exposures have a resolution matrix whose rows do not sum to 1: left out",
                 w->cleaned.wrong);
    if (w->in.nbad > 0)
        spx_note("%zu exposures have a bad FIBERSTATUS, and are left out of targets with others", w->in.nbad);
    if (w->in.nleft > 0)
        spx_warn("%zu rows have no target (TARGETID -1) and are left out", w->in.nleft);
    if (failed > 0)
        spx_warn("%zu spectra could not be coadded optimally, and are coadded simply: see COADD_OPTIMAL in /fibermap",
                 failed);
    spx_note("%zu targets of %zu exposures; %zu bins rejected of %zu; %zu spectra optimal of %zu", w->in.ntarget,
             w->in.nrow, rejected, rejected + good, optimal, w->in.ntarget * w->in.spectra.all.narm);
    return st == SPX_OK ? look_at_misfits(w, e) : st;
}

/* Diagonals that are asked for have to hold those of the exposures. */
static spx_status check_diagonals(const work *w, spx_err *e)
{
    const long n = w->args->diagonals;
    for (size_t k = 0; k < w->in.spectra.all.narm && n > 0; k++) {
        const spx_arm *a = &w->in.spectra.all.arm[k];
        if (n % 2 == 0 || (size_t)n < a->ndiag)
            return spx_fail(e, SPX_EUSAGE, "--diagonals %ld: give an odd number of at least %zu, as arm %s has", n,
                            a->ndiag, a->name);
    }
    return SPX_OK;
}

spx_status spx_coadd_merge(const spx_coadd_args *a, spx_run *run, spx_err *e)
{
    work w = {.args = a, .run = run, .file = H5I_INVALID_HID};
    spx_run_step(run, "open");
    spx_device_opening device = {.s = run, .op = SPX_OP_COADD, .b = &w.backend};
    spx_open_device_begin(&device);
    spx_status st = spx_coadd_inputs_read(run, a->allow_topocentric, a->targets, &w.in, e);
    spx_err with_device = {0};
    if (spx_open_device_end(&device, &with_device) != SPX_OK && st == SPX_OK)
        st = spx_err_pass(e, &with_device);
    spx_run_pause(run);
    if (st == SPX_OK)
        st = check_diagonals(&w, e);
    if (st == SPX_OK)
        st = make_counts(&w, e);
    if (st == SPX_OK)
        st = coadd_all(&w, e);
    spx_run_step(run, "tables");
    if (st == SPX_OK)
        st = spx_coadd_inputs_write(&w.in, w.all, w.file, e);
    if (st == SPX_OK && a->absent != NULL)
        st = spx_h5_set_str(w.file, "/spectra", "missing_inputs", a->absent, e);
    if (st == SPX_OK && a->absent != NULL)
        st = spx_run_record(run, "missing_inputs", e, "%s", a->absent);
    if (st == SPX_OK)
        st = report(&w, e);
    if (st == SPX_OK)
        st = spx_run_commit(run, e);
    for (size_t k = 0; k < w.in.spectra.all.narm && w.all != NULL; k++)
        spx_coadd_free(&w.all[k]);
    spx_free(w.all);
    spx_coadd_inputs_free(&w.in);
    spx_backend_close(&w.backend);
    return st;
}
