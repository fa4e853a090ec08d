/* Cases of the operation `burgers`, against the scheme in long double. Sizes: cells, steps, every, lagged boundary.
 *
 * Tolerance: the scheme is stable (s2 below 1/2, and a front is wider than a cell), so that the roundings of n steps
 * add up to n 2^-52 at most, which is 2e-13 of 1000. */
#include <math.h>

#include "device.h"
#include "op.h"
#include "random.h"

static const op_case cases[] = {
    {"64 cells", {64, 100, 10, 0}},
    {"three cells, one step", {3, 1, 1, 0}},
    {"lagged boundary", {64, 100, 10, 1}},
    {"three cells, lagged", {3, 50, 5, 1}},
    {"more cells than a block", {2051, 60, 30, 0}},
    {"so many that threads share them", {40000, 4, 2, 0}},
    {"one snapshot of many steps", {129, 1000, 1000, 0}},
};

static void *draw(const size_t *size, uint64_t seed)
{
    spx_burgers_options *o = need(1, sizeof *o);
    const double h = 2 * M_PI / (double)size[0];
    random_start(seed);
    *o = (spx_burgers_options){.nx = size[0],
                               .viscosity = fmax(0.05, h) * (1 + uniform()),
                               .nstep = size[1],
                               .every = size[2],
                               .lagged = (int)size[3]};
    o->dt = (0.2 + 0.2 * uniform()) * fmin(h * h / o->viscosity, o->viscosity);
    return o;
}

static void run(spx_backend *b, void *scene, int threads, op_answer *a)
{
    spx_burgers_options o = *(const spx_burgers_options *)scene;
    spx_burgers *out = op_output("burgers", 1, sizeof *out);
    spx_err e = {0};
    o.nthreads = threads;
    if (op_done(b->burgers(b, &o, out, &e), &e)) {
        op_put(a, "time", out->nsnapshot, out->time, 1e-14);
        op_put(a, "snapshot", out->nsnapshot * out->nx, out->snapshot, 1e-12);
    }
    spx_burgers_free(out);
}

static void reference(void *scene, op_answer *a)
{
    const spx_burgers_options *o = scene;
    const size_t nx = o->nx;
    const long double h = 2 * acosl(-1) / (long double)nx, s1 = o->dt / (2 * h), s2 = o->viscosity * o->dt / (h * h);
    double *time = op_add(a, "time", o->nstep / o->every, 1e-14, NULL);
    double *snapshot = op_add(a, "snapshot", o->nstep / o->every * nx, 1e-12, NULL);
    long double *u = need(nx, sizeof *u), *next = need(nx, sizeof *next);
    for (size_t i = 0; i < nx; i++)
        u[i] = sinl((long double)i * h);
    long double left = sinl(-h), right = sinl((long double)nx * h); /* the cells beside the ends */
    for (size_t k = 1; k <= o->nstep; k++) {
        for (size_t i = 0; i < nx; i++) {
            const long double l = i > 0 ? u[i - 1] : left, r = i + 1 < nx ? u[i + 1] : right;
            next[i] = u[i] + s2 * (r - 2 * u[i] + l) - s1 * u[i] * (r - l);
        }
        left = o->lagged ? u[nx - 1] : next[nx - 1];
        right = o->lagged ? u[0] : next[0];
        long double *t = u;
        u = next;
        next = t;
        if (k % o->every == 0) {
            time[k / o->every - 1] = (double)k * o->dt;
            for (size_t i = 0; i < nx; i++)
                snapshot[(k / o->every - 1) * nx + i] = (double)u[i];
        }
    }
    spx_free(u);
    spx_free(next);
}

const op_test op_burgers = {sizeof cases / sizeof *cases, cases, draw, run, reference, spx_free};
