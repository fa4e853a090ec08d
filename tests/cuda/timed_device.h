/* Provides a device of the fit of PSFs that tells the time of its steps: timed_device() makes one of another,
 * timed_print() prints the calls and seconds of each, those of all bundles added up, and the next times begin at 0. */
#ifndef SPX_TIMED_DEVICE_H
#define SPX_TIMED_DEVICE_H

#include <stdio.h>

#include "base/clock.h"
#include "psffit/fit.h"

static spx_pf_device timed_inner;

typedef struct {
    const char *name;
    int calls;
    double seconds;
} timed_step;

static void timed_note(timed_step *s, double begin)
{
    const double t = spx_seconds() - begin;
#pragma omp critical(timed_device)
    {
        s->calls++;
        s->seconds += t;
    }
}

#define TIMED(type, name, parameters, arguments)                                                                       \
    static timed_step timed_of_##name = {#name, 0, 0};                                                                 \
    static type timed_##name parameters                                                                                \
    {                                                                                                                  \
        const double begin = spx_seconds();                                                                            \
        const type result = timed_inner.name arguments;                                                                \
        timed_note(&timed_of_##name, begin);                                                                           \
        return result;                                                                                                 \
    }
#define TIMED_VOID(name, parameters, arguments)                                                                        \
    static timed_step timed_of_##name = {#name, 0, 0};                                                                 \
    static void timed_##name parameters                                                                                \
    {                                                                                                                  \
        const double begin = spx_seconds();                                                                            \
        timed_inner.name arguments;                                                                                    \
        timed_note(&timed_of_##name, begin);                                                                           \
    }

TIMED(spx_status, begin, (spx_pf_bundle * b, spx_err *e), (b, e))
TIMED(int, spots, (spx_pf_bundle * b, spx_pf_state *s), (b, s))
TIMED(int, fluxes, (spx_pf_bundle * b, spx_pf_state *s), (b, s))
TIMED_VOID(draw, (spx_pf_bundle * b, spx_pf_state *s), (b, s))
TIMED_VOID(first_weights, (spx_pf_bundle * b, double epsilon), (b, epsilon))
TIMED_VOID(weights, (spx_pf_bundle * b, double epsilon, int clip), (b, epsilon, clip))
TIMED(int, bright, (spx_pf_bundle * b, size_t most, double *sample, size_t *n), (b, most, sample, n))
TIMED(int, places, (spx_pf_bundle * b, double *power), (b, power))
TIMED(int, regroup, (spx_pf_bundle * b), (b))
TIMED(int, take_fluxes, (spx_pf_bundle * b), (b))
TIMED(int, flux_variance, (spx_pf_bundle * b, double *out), (b, out))
TIMED(int, put_fluxes, (spx_pf_bundle * b), (b))
TIMED(int, profiles, (spx_pf_bundle * b, size_t x, size_t n, size_t nstep, const spx_pf_node *node, int32_t *at),
      (b, x, n, nstep, node, at))
TIMED_VOID(ground, (spx_pf_bundle * b, size_t x, int continuum, int changes), (b, x, continuum, changes))
TIMED(int, drift, (spx_pf_bundle * b, size_t x, size_t n, double *sums), (b, x, n, sums))
TIMED(int, background, (spx_pf_bundle * b, double *out), (b, out))
TIMED(int, gradient, (spx_pf_bundle * b, double *g), (b, g))
TIMED(int, normal, (spx_pf_bundle * b, const double *weight, double *diagonal, double *g), (b, weight, diagonal, g))
TIMED(int, solve, (spx_pf_bundle * b, size_t m, const size_t *at, double damping, const double *g, double *out),
      (b, m, at, damping, g, out))
TIMED(int, learn,
      (spx_pf_bundle * b, size_t m, const size_t *at, size_t ns, const double *g, const double *z, const double *was,
       const spx_pf_turned *t, const int *of, int nclass, double *precision),
      (b, m, at, ns, g, z, was, t, of, nclass, precision))
TIMED(int, covariance, (spx_pf_bundle * b, double *c), (b, c))
TIMED(int, residuals, (spx_pf_bundle * b, double *num, double *den), (b, num, den))
TIMED(int, wavelengths, (spx_pf_bundle * b, size_t x, const double *slope, double *spot, double *rhs),
      (b, x, slope, spot, rhs))
TIMED(int, look, (spx_pf_bundle * b, const int *bright, spx_pf_look *to), (b, bright, to))

static timed_step *const timed_steps[] = {
    &timed_of_begin,         &timed_of_spots,      &timed_of_fluxes,      &timed_of_draw,    &timed_of_first_weights,
    &timed_of_weights,       &timed_of_bright,     &timed_of_places,      &timed_of_regroup, &timed_of_take_fluxes,
    &timed_of_flux_variance, &timed_of_put_fluxes, &timed_of_profiles,    &timed_of_ground,  &timed_of_drift,
    &timed_of_background,    &timed_of_gradient,   &timed_of_normal,      &timed_of_solve,   &timed_of_learn,
    &timed_of_covariance,    &timed_of_residuals,  &timed_of_wavelengths, &timed_of_look};

static void timed_device(const spx_pf_device *of, spx_pf_device *out)
{
    timed_inner = *of;
    *out = *of;
    out->begin = timed_begin;
    out->spots = timed_spots;
    out->fluxes = timed_fluxes;
    out->draw = timed_draw;
    out->first_weights = timed_first_weights;
    out->weights = timed_weights;
    out->bright = timed_bright;
    out->places = timed_places;
    out->regroup = timed_regroup;
    out->take_fluxes = timed_take_fluxes;
    out->flux_variance = timed_flux_variance;
    out->put_fluxes = timed_put_fluxes;
    out->profiles = timed_profiles;
    out->ground = timed_ground;
    out->drift = timed_drift;
    out->background = timed_background;
    out->gradient = timed_gradient;
    out->normal = timed_normal;
    out->solve = timed_solve;
    out->learn = timed_learn;
    out->covariance = timed_covariance;
    out->residuals = timed_residuals;
    out->wavelengths = timed_wavelengths;
    out->look = timed_look;
}

static void timed_print(const char *before)
{
    for (size_t k = 0; k < sizeof timed_steps / sizeof *timed_steps; k++) {
        timed_step *s = timed_steps[k];
        if (s->calls > 0)
            printf("%s%-13s %5d calls %8.4f s\n", before, s->name, s->calls, s->seconds);
        s->calls = 0;
        s->seconds = 0;
    }
}

#endif
