/* Solves Burgers' equation on the CPU (burgers/burgers.h). */
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "burgers/burgers.h"
#include "burgers/burgers_math.h"

/* Cells from which on threads pay. */
enum { MANY_CELLS = 32768 };

spx_status spx_burgers_begin(const spx_burgers_options *o, spx_burgers *out, double **u, double *s1, double *s2,
                             spx_err *e)
{
    if (o->nx < 3 || o->nstep == 0 || o->every == 0 || o->nstep % o->every != 0)
        return spx_fail(e, SPX_EUSAGE,
                        "%zu steps of %zu cells, every %zu kept: at least 3 cells are needed, and steps "
                        "have to be a multiple of what is kept",
                        o->nstep, o->nx, o->every);
    const double h = 2.0 * 3.14159265358979323846 / (double)o->nx;
    *s1 = o->dt / (2.0 * h);
    *s2 = o->viscosity * o->dt / (h * h);
    out->nx = o->nx;
    out->every = o->every;
    out->nsnapshot = o->nstep / o->every;
    out->viscosity = o->viscosity;
    out->dt = o->dt;
    out->lagged = o->lagged;
    if ((out->x = spx_alloc(out->nx, sizeof *out->x, e)) == NULL ||
        (out->time = spx_alloc(out->nsnapshot, sizeof *out->time, e)) == NULL ||
        (out->snapshot = spx_alloc2(out->nsnapshot, out->nx, sizeof *out->snapshot, e)) == NULL ||
        (*u = spx_alloc2(o->nx + 2, 1, sizeof **u, e)) == NULL)
        return SPX_EIO;
    for (size_t i = 0; i < o->nx; i++)
        out->x[i] = (double)i * h;
    for (size_t k = 0; k < out->nsnapshot; k++)
        out->time[k] = (double)((k + 1) * o->every) * o->dt;
    for (size_t i = 0; i < o->nx + 2; i++)
        (*u)[i] = sin(((double)i - 1.0) * h);
    return SPX_OK;
}

spx_status spx_burgers_hook(const spx_burgers_options *o, size_t k, double *u, spx_hook_space at, spx_err *e)
{
    const spx_hook_array array = {
        .name = "u", .data = u + 1, .type = SPX_HOOK_FLOAT64, .ndim = 1, .writable = 1, .shape = {o->nx}};
    const spx_hook_step_info step = {.stage = "burgers",
                                     .number = k,
                                     .total = o->nstep,
                                     .time = (double)k * o->dt,
                                     .at = at,
                                     .narray = 1,
                                     .array = &array};
    return spx_hook_step(o->hook, &step, e);
}

spx_status spx_burgers_end(const spx_burgers_options *o, const spx_burgers *out, spx_err *e)
{
    size_t i = 0;
    while (i < out->nsnapshot * out->nx && isfinite(out->snapshot[i]))
        i++;
    if (i == out->nsnapshot * out->nx)
        return SPX_OK;
    const size_t k = (i / out->nx + 1) * out->every;
    if (o->hook != NULL && o->hook->writable)
        return spx_fail(e, SPX_EHOOK,
                        "{hook} %s: with what it wrote the solution is not finite at step %zu: does it write finite "
                        "values, and does the run without it hold?",
                        o->hook->file, k);
    return spx_fail_remedy(e, SPX_EUSAGE, "take a smaller {dt}, or fewer cells",
                           "the solution grows beyond all bounds before step %zu", k);
}

/* Computes next[nx + 2], one step after u[nx + 2]. */
static void compute_step(const double *restrict u, double *restrict next, size_t nx, double s1, double s2, int lagged,
                         int nthreads)
{
    if (nx >= MANY_CELLS && nthreads > 1) {
#pragma omp parallel for simd num_threads(nthreads) schedule(static)
        for (size_t i = 1; i <= nx; i++)
            next[i] = spx_burgers_step(u[i - 1], u[i], u[i + 1], s1, s2);
    } else {
#pragma omp simd
        for (size_t i = 1; i <= nx; i++)
            next[i] = spx_burgers_step(u[i - 1], u[i], u[i + 1], s1, s2);
    }
    next[0] = lagged ? u[nx] : next[nx];
    next[nx + 1] = lagged ? u[1] : next[1];
}

spx_status spx_burgers_cpu(const spx_burgers_options *o, spx_burgers *out, spx_err *e)
{
    double *u = NULL, *next = NULL, s1, s2;
    spx_status st = spx_burgers_begin(o, out, &u, &s1, &s2, e);
    if (st == SPX_OK && (next = spx_alloc(o->nx + 2, sizeof *next, e)) == NULL)
        st = SPX_EIO;
    for (size_t k = 1; k <= o->nstep && st == SPX_OK; k++) {
        compute_step(u, next, o->nx, s1, s2, o->lagged, o->nthreads);
        double *t = u;
        u = next;
        next = t;
        st = spx_burgers_hook(o, k, u, SPX_HOOK_HOST, e);
        if (o->hook != NULL && o->hook->writable && !o->lagged) {
            u[0] = u[o->nx];
            u[o->nx + 1] = u[1];
        }
        if (k % o->every == 0) {
            memcpy(out->snapshot + (k / o->every - 1) * o->nx, u + 1, o->nx * sizeof *u);
            spx_progress_step(o->progress, 1);
        }
    }
    spx_hook_release(o->hook);
    spx_free(u);
    spx_free(next);
    return st == SPX_OK ? spx_burgers_end(o, out, e) : st;
}
