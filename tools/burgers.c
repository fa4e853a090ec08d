/* burgers: Burgers' equation, its snapshots, and their singular value decomposition. */
#include <string.h>

#include "app/main.h"
#include "app/plot.h"
#include "device.h"
#include "h5/attr.h"
#include "products/io.h"

static struct {
    long nx, steps, every, modes;
    double viscosity, dt;
    const char *boundary, *plot;
} o = {.nx = 256, .steps = 2001, .every = 1, .modes = 10, .viscosity = 0.01, .dt = 0.001, .boundary = "periodic"};

static const spx_opt options[] = {
    SPX_OPTION(INT, "cells", 'n', "N", o.nx, "Cells in [0, 2 pi)", .min = 3, .max = 1e9),
    SPX_OPTION(DOUBLE, "viscosity", 0, "NU", o.viscosity, "Viscosity nu", .min = 0, .max = 1e6),
    SPX_OPTION(DOUBLE, "dt", 0, "DT", o.dt, "Time step", .min = 1e-15, .max = 1e6),
    SPX_OPTION(INT, "steps", 's', "N", o.steps, "Steps to take", .min = 1, .max = 1e12),
    SPX_OPTION(INT, "every", 'e', "N", o.every,
               "Keep the state after every N-th step; the number of steps has to be a multiple of it", .min = 1,
               .max = 1e12),
    SPX_OPTION(CHOICE, "boundary", 0, NULL, o.boundary,
               "Values beyond the ends: those of the same step, or of the step before", .choices = "periodic|lagged"),
    SPX_HEADING("Analysis"),
    SPX_OPTION(INT, "modes", 'k', "K", o.modes, "Leading modes of the snapshots to write; 0: no decomposition",
               .min = 0, .max = 1e9),
    SPX_OPTION(STRING, "plot", 0, "FILE", o.plot,
               "Picture of the solution and its modes: .png, .svg or .pdf; needs gnuplot"),
    {0}};

static spx_status decompose(spx_backend *backend, const spx_burgers *run, spx_svd *svd, spx_err *e)
{
    const spx_svd_options so = {.rank = (size_t)o.modes};
    double *a = spx_alloc2(run->nsnapshot, run->nx, sizeof *a, e);
    if (a == NULL)
        return SPX_EIO;
    memcpy(a, run->snapshot, run->nsnapshot * run->nx * sizeof *a);
    spx_status st = backend->svd(backend, a, run->nsnapshot, run->nx, &so, svd, e);
    spx_free(a);
    return st;
}

static spx_status draw(spx_run *s, const spx_burgers *run, const spx_svd *svd, spx_err *e)
{
    spx_text script = {0};
    spx_tmpfile *picture;
    spx_status st = spx_plot_begin(&script, o.plot, 1400, svd->nmode > 0 ? 900 : 450, e);
    if (st == SPX_OK)
        st = spx_text_add(&script, e, "set multiplot layout %d,2\n", svd->nmode > 0 ? 2 : 1);
    if (st == SPX_OK)
        st = spx_burgers_plot(&script, run, e);
    if (st == SPX_OK && svd->nmode > 0)
        st = spx_svd_plot(&script, svd, run->x, "x", e);
    if (st == SPX_OK)
        st = spx_run_tmpfile(s, o.plot, &picture, e);
    if (st == SPX_OK)
        st = spx_plot_run(&script, picture->fd, e);
    spx_text_free(&script);
    return st;
}

static spx_status run(spx_run *s, spx_err *e)
{
    spx_backend backend = {0};
    spx_burgers out = {0};
    spx_svd svd = {0};
    hid_t file;
    spx_burgers_options bo = {.nx = (size_t)o.nx,
                              .viscosity = o.viscosity,
                              .dt = o.dt,
                              .nstep = (size_t)o.steps,
                              .every = (size_t)o.every,
                              .lagged = strcmp(o.boundary, "lagged") == 0,
                              .nthreads = (int)s->common.threads};
    if (s->ninput != 0)
        return spx_fail(e, SPX_EUSAGE, "%s: there is no input", s->input[0]);
    if (o.steps % o.every != 0)
        return spx_fail(e, SPX_EUSAGE, "--every %ld: --steps %ld is no multiple of it", o.every, o.steps);

    spx_status st = open_device(s, SPX_OP_BURGERS, &backend, e);
    if (st == SPX_OK)
        st = spx_run_hook(s, &bo.hook, e);

    spx_run_step(s, "solve");
    if (st == SPX_OK) {
        bo.progress = spx_progress_start(s->common.progress, "solve", "snapshots", (size_t)(o.steps / o.every));
        st = backend.burgers(&backend, &bo, &out, e);
        spx_progress_end(bo.progress);
    }
    spx_run_step(s, "svd");
    if (st == SPX_OK && o.modes > 0)
        st = decompose(&backend, &out, &svd, e);

    spx_run_step(s, "write");
    if (st == SPX_OK)
        st = spx_run_output(s, "burgers", &file, e);
    if (st == SPX_OK)
        st = spx_burgers_write(file, &out, e);
    if (st == SPX_OK && o.modes > 0 && (st = spx_svd_write(file, &svd, "1", e)) == SPX_OK &&
        (st = spx_h5_set_str(file, "/svd", "dataset", "/burgers/snapshot", e)) == SPX_OK)
        st = spx_h5_set_str(file, "/svd", "method", "economic", e);
    if (st == SPX_OK && o.plot != NULL)
        st = draw(s, &out, &svd, e);
    if (st == SPX_OK)
        st = spx_run_commit(s, e);

    spx_backend_close(&backend);
    spx_burgers_free(&out);
    spx_svd_free(&svd);
    return st;
}

int main(int argc, char **argv)
{
    static const spx_program program = {.name = "burgers",
                                        .summary = "solve Burgers' equation and decompose its snapshots",
                                        .usage = "[OPTION...]",
                                        .options = options,
                                        .flags = SPX_USES_DEVICE | SPX_USES_HOOK | SPX_USES_BLAS | SPX_IN_OPTIONAL,
                                        .run = run};
    return spx_main(&program, argc, argv);
}
