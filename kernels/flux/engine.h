/* Provides the sums over bins and stars that a backend computes for the response (flux/flux.h). The driver of
 * flux_cpu.c decides.
 */
#ifndef SPX_FLUX_ENGINE_H
#define SPX_FLUX_ENGINE_H

#include "flux/flux.h"

typedef struct {
    void *state;
    /* Takes b[nstar][ndiag][n], R diag(T) of each star, which stays as it is. */
    spx_status (*load)(void *state, size_t nstar, size_t n, size_t ndiag, const double *b, spx_err *e);
    /* a[ndiag][n] and y[n] of the stars with use[nstar] != 0, as spx_resolution_normal(); w, d: [nstar][n]. */
    spx_status (*normal)(void *state, const double *w, const double *d, const uint8_t *use, double *a, double *y,
                         spx_err *e);
    /* model[nstar][n] = R diag(T) c. */
    spx_status (*models)(void *state, const double *c, double *model, spx_err *e);
} spx_flux_engine;

spx_status spx_flux_solve_with(const spx_flux_engine *engine, const spx_arm *arm, const spx_flux_stars *in,
                               const spx_flux_options *o, spx_flux *out, spx_err *e);

#endif
