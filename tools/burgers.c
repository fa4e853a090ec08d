/* burgers: Burgers' equation, its snapshots, and their singular value decomposition. */
#include <string.h>

#include "app/main.h"
#include "app/plot.h"
#include "base/text.h"
#include "common/device.h"
#include "common/kernel_options.h"
#include "h5/attr.h"
#include "products/burgers_h5.h"
#include "products/svd_h5.h"

static struct {
    long nx, steps, every, modes;
    double viscosity, dt;
    int lagged;
    const char *plot;
} o = {.nx = 256, .steps = 2001, .every = 1, .modes = 10, .viscosity = 0.01, .dt = 0.001, .lagged = 0};

static const spx_opt options[] = {
    SPX_OPTION(INT, "cells", 'n', "N", o.nx, "Cells in [0, 2 pi)", .min = 3, .max = 1e9),
    SPX_OPTION(DOUBLE, "viscosity", 0, "NU", o.viscosity, "Viscosity nu", .min = 0, .max = 1e6),
    SPX_OPTION(DOUBLE, "dt", 0, "DT", o.dt, "Time step", .min = 1e-15, .max = 1e6),
    SPX_OPTION(INT, "steps", 's', "N", o.steps, "Steps to take", .min = 1, .max = 1e12),
    SPX_OPTION(INT, "every", 'e', "N", o.every,
               "Keep the state after every N-th step. The number of steps has to be a multiple of it", .min = 1,
               .max = 1e12),
    SPX_OPTION(CHOICE, "boundary", 0, NULL, o.lagged, "Values beyond the ends: of the same step, or of the step before",
               .choices = SPX_CHOICES({"periodic", 0}, {"lagged", 1})),
    SPX_HEADING("Analysis"),
    SPX_OPTION(INT, "modes", 'k', "K", o.modes, "Leading modes of the snapshots to write; 0: no decomposition",
               .min = 0, .max = 1e9),
    SPX_OPTION(STRING, "plot", 0, "FILE", o.plot,
               "Picture of the solution and its modes: .png, .svg or .pdf. Needs gnuplot"),
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

/* Two panels of a gnuplot script: the solution over x and t, and profiles at five times. */
static spx_status plot_solution(spx_text *t, const spx_burgers *b, spx_err *e)
{
    enum { ROWS = 200, COLUMNS = 512, PROFILES = 5 };
    const size_t row = b->nsnapshot / ROWS + 1, column = b->nx / COLUMNS + 1;
    spx_status st = spx_text_add(t, e, "$u << EOD\n");
    for (size_t k = 0; k < b->nsnapshot && st == SPX_OK; k += row) {
        for (size_t i = 0; i < b->nx && st == SPX_OK; i += column)
            st = spx_text_add(t, e, "%.6g %.6g %.6g\n", b->x[i], b->time[k], b->snapshot[k * b->nx + i]);
        if (st == SPX_OK)
            st = spx_text_add(t, e, "\n");
    }
    if (st == SPX_OK)
        st = spx_text_add(
            t, e,
            "EOD\nset xlabel 'x'\nset ylabel 't'\nset cblabel 'u'\nset xrange [0:2*pi]\nset yrange [0:%.6g]\n"
            "set palette defined (-1 '#2050a0', 0 '#f8f8f8', 1 '#c02020')\n"
            "plot $u using 1:2:3 with image notitle\nset autoscale y\n$profile << EOD\n",
            b->time[b->nsnapshot - 1]);
    for (size_t p = 0; p < PROFILES && st == SPX_OK; p++) {
        const size_t k = (b->nsnapshot - 1) * p / (PROFILES - 1);
        st = spx_text_add(t, e, "\"t = %.4g\"\n", b->time[k]);
        for (size_t i = 0; i < b->nx && st == SPX_OK; i += column)
            st = spx_text_add(t, e, "%.6g %.6g\n", b->x[i], b->snapshot[k * b->nx + i]);
        if (st == SPX_OK)
            st = spx_text_add(t, e, "\n\n");
    }
    return st == SPX_OK ? spx_text_add(t, e,
                                       "EOD\nset ylabel 'u'\nset key outside right\nset xzeroaxis\n"
                                       "plot for [i=0:%d] $profile index i using 1:2 with lines lw 1.5 "
                                       "title columnheader(1)\n",
                                       PROFILES - 1)
                        : st;
}

static spx_status draw(spx_run *s, const spx_burgers *run, const spx_svd *svd, spx_err *e)
{
    spx_text script = {0};
    spx_status st = spx_plot_begin(&script, o.plot, 1400, svd->nmode > 0 ? 900 : 450, e);
    if (st == SPX_OK)
        st = spx_text_add(&script, e, "set multiplot layout %d,2\n", svd->nmode > 0 ? 2 : 1);
    if (st == SPX_OK)
        st = plot_solution(&script, run, e);
    if (st == SPX_OK && svd->nmode > 0)
        st = spx_plot_svd(&script, svd->nmode, svd->ncol, svd->s, svd->energy, svd->v, run->x, "x", e);
    if (st == SPX_OK)
        st = spx_plot_output(s, o.plot, &script, e);
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
                              .lagged = o.lagged,
                              .nthreads = (int)s->common.threads};
    if (s->ninput != 0)
        return spx_fail(e, SPX_EUSAGE, "%s: there is no input", s->input[0]);
    if (o.steps % o.every != 0)
        return spx_fail(e, SPX_EUSAGE, "--every %ld: --steps %ld is no multiple of it", o.every, o.steps);

    spx_status st = spx_open_device(s, SPX_OP_BURGERS, &backend, e);
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
                                        .example = "burgers -o burgers.h5 --plot burgers.png",
                                        .flags = SPX_USES_DEVICE | SPX_USES_HOOK | SPX_USES_BLAS | SPX_IN_OPTIONAL,
                                        .run = run};
    spx_err_options(spx_kernel_options);
    return spx_main(&program, argc, argv);
}
