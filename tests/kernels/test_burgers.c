/* Checks Burgers' equation: values of an independent solution, the order of the scheme against the exact solution,
 * threads; on the CPU or on the device $SPX_TEST_DEVICE. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "device.h"

static spx_backend backend;

static spx_burgers solve(size_t nx, double viscosity, double dt, size_t nstep, size_t every, int lagged)
{
    spx_err e = {0};
    spx_burgers out = {0};
    const spx_burgers_options o = {
        .nx = nx, .viscosity = viscosity, .dt = dt, .nstep = nstep, .every = every, .lagged = lagged, .nthreads = 2};
    if (backend.burgers(&backend, &o, &out, &e) != SPX_OK) {
        printf("%zu cells: %s\n", nx, spx_err_text(&e));
        exit(1);
    }
    return out;
}

static const double *last(const spx_burgers *b)
{
    return b->snapshot + (b->nsnapshot - 1) * b->nx;
}

/* 256 cells, 2001 steps of 0.001 with viscosity 0.01, and the decomposition of all snapshots. The published values were
 * made with 3.1415926535 for pi, which changes u near 0 by 2e-11 and the extremes, beside the steep front, by 1e-8. */
static void published(int lagged)
{
    static const double values[6] = {471.259287, 104.637607, 26.86457424, 8.458973931, 3.293722138, 1.306499485};
    static const double energy[3] = {0.949730, 0.996553, 0.999639};
    spx_burgers b = solve(256, 0.01, 0.001, 2001, 1, lagged);
    const double *u = last(&b), want = lagged ? 0.07338729558 : 0.07339337916;
    double low = u[0], high = u[0];
    CHECK(fabs(u[9] - want) < 3e-11, "boundary %d: u = %.12f, not %.12f", lagged, u[9], want);
    for (size_t i = 0; i < 256; i++) {
        low = fmin(low, u[i]);
        high = fmax(high, u[i]);
    }
    if (lagged)
        CHECK(fabs(low + 1.087655933) < 1.2e-8 && fabs(high - 1.087655912) < 1.2e-8, "extremes %.10f %.10f", low, high);
    CHECK(b.nsnapshot == 2001 && fabs(b.time[2000] - 2.001) < 1e-12 && fabs(b.x[255] - 255 * M_PI / 128) < 1e-12,
          "axes");
    spx_err e = {0};
    spx_svd d = {0};
    const spx_svd_options o = {.rank = 6};
    spx_status st = backend.svd(&backend, b.snapshot, b.nsnapshot, b.nx, &o, &d, &e);
    CHECK(st == SPX_OK, "%s", spx_err_text(&e));
    for (size_t k = 0; k < 6 && st == SPX_OK; k++)
        CHECK(fabs(d.s[k] - values[k]) < 1e-7 * values[0], "boundary %d: singular value %zu is %.10g", lagged, k,
              d.s[k]);
    for (size_t k = 0; k < 3 && st == SPX_OK; k++)
        CHECK(fabs(d.energy[k] - energy[k]) < 6e-7, "boundary %d: energy of %zu modes is %.7f", lagged, k + 1,
              d.energy[k]);
    spx_svd_free(&d);
    spx_burgers_free(&b);
}

/* The exact solution (Cole 1951, Hopf 1950): u = -2 nu theta_x / theta, theta = sum of exp(-n^2 nu t) I_n(a) cos(n x)
 * with a = 1 / 2 nu, for the initial sin x. The Bessel functions come from their recurrence, downwards. */
static double exact(double x, double t, double nu)
{
    enum { MOST = 80 };
    const double a = 1 / (2 * nu);
    double bessel[MOST + 2] = {0}, theta, slope = 0;
    bessel[MOST] = 1e-30;
    for (int n = MOST; n > 0; n--) {
        bessel[n - 1] = bessel[n + 1] + 2 * n / a * bessel[n];
        if (bessel[n - 1] > 1e250)
            for (int k = n - 1; k <= MOST; k++)
                bessel[k] *= 1e-250;
    }
    theta = bessel[0];
    for (int n = 1; n <= MOST; n++) {
        theta += 2 * exp(-n * n * nu * t) * bessel[n] * cos(n * x);
        slope -= 2 * n * exp(-n * n * nu * t) * bessel[n] * sin(n * x);
    }
    return -2 * nu * slope / theta;
}

/* Second order in h (with dt proportional to h^2), first order in dt. */
static void convergence(void)
{
    const double nu = 0.1, t = 1;
    double before = 0;
    for (size_t nx = 32; nx <= 256; nx *= 2) {
        const size_t nstep = nx * nx / 32;
        spx_burgers b = solve(nx, nu, t / (double)nstep, nstep, nstep, 0);
        double error = 0;
        for (size_t i = 0; i < nx; i++)
            error = fmax(error, fabs(last(&b)[i] - exact(b.x[i], t, nu)));
        if (nx > 32)
            CHECK(fabs(log2(before / error) - 2) < 0.15, "order in h at %zu cells: %g (errors %g, %g)", nx,
                  log2(before / error), before, error);
        before = error;
        spx_burgers_free(&b);
    }
    CHECK(before < 2e-3, "error at 256 cells: %g", before);
    spx_burgers b[4];
    double change[3] = {0};
    for (size_t k = 0; k < 4; k++)
        b[k] = solve(64, nu, t / (double)(100 << k), (size_t)100 << k, (size_t)100 << k, 0);
    for (size_t k = 0; k < 3; k++)
        for (size_t i = 0; i < 64; i++)
            change[k] = fmax(change[k], fabs(last(&b[k + 1])[i] - last(&b[k])[i]));
    for (size_t k = 0; k < 2; k++)
        CHECK(fabs(log2(change[k] / change[k + 1]) - 1) < 0.1, "order in dt: %g", log2(change[k] / change[k + 1]));
    for (size_t k = 0; k < 4; k++)
        spx_burgers_free(&b[k]);
}

/* Fewer snapshots are some of all; many cells on several threads are the same as on one; the mean is kept. */
static void snapshots(void)
{
    spx_burgers all = solve(100, 0.02, 0.002, 60, 1, 0), some = solve(100, 0.02, 0.002, 60, 20, 0);
    CHECK(some.nsnapshot == 3, "%zu snapshots", some.nsnapshot);
    for (size_t k = 0; k < 3; k++)
        CHECK(memcmp(some.snapshot + k * 100, all.snapshot + (20 * k + 19) * 100, 100 * sizeof(double)) == 0 &&
                  fabs(some.time[k] - all.time[20 * k + 19]) < 1e-15,
              "snapshot %zu", k);
    spx_burgers_free(&all);
    spx_burgers_free(&some);
    spx_err e = {0};
    spx_burgers one = {0}, two = {0};
    spx_burgers_options o = {.nx = 40000, .viscosity = 1e-5, .dt = 1e-4, .nstep = 20, .every = 10, .nthreads = 1};
    CHECK(backend.burgers(&backend, &o, &one, &e) == SPX_OK, "%s", spx_err_text(&e));
    o.nthreads = 3;
    CHECK(backend.burgers(&backend, &o, &two, &e) == SPX_OK, "%s", spx_err_text(&e));
    CHECK(memcmp(one.snapshot, two.snapshot, 80000 * sizeof(double)) == 0, "depends on the threads");
    double sum = 0;
    for (size_t i = 0; i < one.nx; i++)
        sum += last(&one)[i];
    CHECK(fabs(sum) < 1e-8, "the mean grows: %g", sum);
    spx_burgers_free(&one);
    spx_burgers_free(&two);
}

static void refused(spx_burgers_options o, const char *message)
{
    spx_err e = {0};
    spx_burgers out = {0};
    spx_status st = backend.burgers(&backend, &o, &out, &e);
    CHECK(st == SPX_EUSAGE && strstr(spx_err_text(&e), message) != NULL, "'%s' expected: status %d, '%s'", message, st,
          spx_err_text(&e));
    spx_burgers_free(&out);
}

int main(void)
{
    open_device(&backend, SPX_OP_BURGERS);
    published(1);
    published(0);
    convergence();
    snapshots();
    const spx_burgers_options o = {.nx = 256, .viscosity = 0.01, .dt = 0.1, .nstep = 400, .every = 100};
    refused(o, "beyond all bounds");
    refused((spx_burgers_options){.nx = 2, .dt = 1, .nstep = 1, .every = 1}, "at least 3 cells");
    refused((spx_burgers_options){.nx = 20, .dt = 1, .nstep = 10, .every = 3}, "a multiple");
    spx_backend_close(&backend);
    return failures != 0;
}
