/* Solves the viscous Burgers equation u_t + u u_x = nu u_xx, periodic on [0, 2 pi), u(x, 0) = sin x: forward Euler in
 * time, central differences in space, u_i' = u_i + s2 (u_{i+1} - 2 u_i + u_{i-1}) - s1 u_i (u_{i+1} - u_{i-1}), s1 = dt
 * / 2h, s2 = nu dt / h^2,   h = 2 pi / nx, of second order in h and first order in dt. Stable for s2 <= 1/2 and dt <= 2
 * nu / max(u)^2.
 *
 * Ghost cells hold the value of the opposite end, of the same step, or, with `lagged`, of the step before, as in the
 * demonstration of in-situ analysis that this program follows. */
#ifndef SPX_BURGERS_H
#define SPX_BURGERS_H

#include "base/err.h"
#include "base/hook.h"
#include "base/progress.h"
#include "products/burgers.h"

typedef struct {
    size_t nx;
    double viscosity, dt;
    size_t nstep, every; /* every n-th state is a snapshot; nstep must be a multiple of it */
    int lagged;
    int nthreads;
    spx_progress *progress; /* counts snapshots; may be NULL */
    spx_hook *hook;         /* called after each step with u[nx], which it may change; may be NULL */
} spx_burgers_options;

/* Solves the equation; fills a zeroed *out (spx_burgers_free()). SPX_EUSAGE: invalid options, or a step so large that
 * the solution diverges. */
spx_status spx_burgers_cpu(const spx_burgers_options *o, spx_burgers *out, spx_err *e);

/* ---- shared by the backends ---- */

/* Checks options, allocates *out with its axes, and sets the initial state u[nx + 2], whose first and last elements are
 * ghost cells. */
spx_status spx_burgers_begin(const spx_burgers_options *o, spx_burgers *out, double **u, double *s1, double *s2,
                             spx_err *e);
/* Calls the hook after step k with the state u[nx + 2]. */
spx_status spx_burgers_hook(const spx_burgers_options *o, size_t k, double *u, spx_hook_space at, spx_err *e);
/* Checks the result: SPX_EUSAGE where a snapshot is not finite; SPX_EHOOK where a hook may have changed the state. */
spx_status spx_burgers_end(const spx_burgers_options *o, const spx_burgers *out, spx_err *e);

#endif
