/* Checks the motion of traces and widths (sim/sim_motion.h) and the throughput of fibres (sim/sim_fibre.h): the moved
 * PSF against old trace + motion evaluated directly, the wave against its formula, rms of random parts, fits of
 * polynomials, refusals. */
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "check.h"
#include "psf/psf_math.h"
#include "sim/sim.h"
#include "sim/sim_fibre.h"
#include "sim/sim_math.h"
#include "sim/sim_motion.h"

enum { N = 60 };

static double parameter(const spx_psf *p, int par, size_t f, double wave)
{
    return spx_legendre_sum(p->ndeg, p->coeff + ((size_t)par * p->nspec + f) * p->ndeg,
                            spx_psf_u(p->wmin, p->wmax, wave));
}

/* Largest difference between the moved PSF and the old one with the motion added, pixels. */
static double compare(const spx_psf *old, const spx_psf *moved, const spx_sim_motion *m)
{
    double worst = 0;
    for (size_t f = 0; f < N; f++)
        for (int k = 0; k <= 40; k++) {
            double wave = old->wmin - 20 + (old->wmax - old->wmin + 40) * k / 40, v[SPX_SIM_NMOTION];
            spx_sim_motion_at(m, f, wave, v);
            double dx = spx_psf_series_value(&moved->x, f, wave) - spx_psf_series_value(&old->x, f, wave);
            double dy = spx_psf_series_value(&moved->y, f, wave) - spx_psf_series_value(&old->y, f, wave);
            double sx = parameter(moved, moved->sigx, f, wave) / parameter(old, old->sigx, f, wave) - 1;
            double sy = parameter(moved, moved->sigy, f, wave) / parameter(old, old->sigy, f, wave) - 1;
            worst = fmax(worst, fabs(dx - v[SPX_SIM_X]));
            worst = fmax(worst, fabs(dy - v[SPX_SIM_Y]));
            worst = fmax(worst, fabs(sx - v[SPX_SIM_WX]));
            worst = fmax(worst, fabs(sy - v[SPX_SIM_WY]));
            for (int par = 2; par < (int)old->npar; par++)
                worst = fmax(worst, fabs(parameter(moved, par, f, wave) - parameter(old, par, f, wave)));
        }
    return worst;
}

static double uniform(uint64_t k)
{
    double u[2];
    spx_sim_uniform2(77, 99, 0, k, 0, u);
    return u[0];
}

static void test_apply(const spx_psf *psf)
{
    spx_err e = {0};
    spx_sim_motion m;
    spx_psf moved, other = {0};
    CHECK(spx_sim_motion_make(psf, &m, &e) == SPX_OK, "%s", spx_err_text(&e));
    /* Constant: traces and widths keep their number of coefficients. */
    for (int q = 0; q < SPX_SIM_NMOTION; q++)
        spx_sim_motion_term(&m, (spx_sim_quantity)q, 0, 0, q < 2 ? 0.3 - 0.5 * q : 0.02 * q);
    CHECK(spx_sim_motion_apply(&m, psf, &moved, &e) == SPX_OK, "%s", spx_err_text(&e));
    CHECK(moved.x.ncoef == psf->x.ncoef && moved.ndeg == psf->ndeg, "a constant made series longer");
    CHECK(compare(psf, &moved, &m) < 1e-10, "constant: off by %g", compare(psf, &moved, &m));
    spx_psf_free(&moved);
    /* All terms, and widths over another range than the traces: rounding of sums of 12 terms of a CCD's 1e3 pixels. */
    for (int q = 0; q < SPX_SIM_NMOTION; q++)
        for (size_t k = 0; k < 100; k++)
            spx_sim_motion_term(&m, (spx_sim_quantity)q, k / 10, k % 10, 0.004 * (uniform(k + 100 * (size_t)q) - 0.5));
    CHECK(spx_psf_copy(psf, &other, &e) == SPX_OK, "%s", spx_err_text(&e));
    other.wmin -= 55;
    other.wmax += 10;
    other.y.wmax += 30;
    CHECK(spx_sim_motion_apply(&m, &other, &moved, &e) == SPX_OK, "%s", spx_err_text(&e));
    CHECK(compare(&other, &moved, &m) < 1e-9, "all terms: off by %g", compare(&other, &moved, &m));
    spx_psf_free(&moved);
    spx_psf_free(&other);

    spx_sim_motion_term(&m, SPX_SIM_Y, 0, 0, 101);
    CHECK(spx_sim_motion_apply(&m, psf, &moved, &e) == SPX_EINPUT, "101 pixels accepted");
    spx_err_clear(&e);
    spx_sim_motion_term(&m, SPX_SIM_Y, 0, 0, -101);
    spx_sim_motion_term(&m, SPX_SIM_WX, 0, 1, -1);
    CHECK(spx_sim_motion_apply(&m, psf, &moved, &e) == SPX_EINPUT, "negative width accepted");
    spx_err_clear(&e);
    spx_sim_motion_term(&m, SPX_SIM_X, 1, 0, NAN);
    CHECK(spx_sim_motion_apply(&m, psf, &moved, &e) == SPX_EINPUT, "NaN accepted");
    spx_err_clear(&e);
    spx_sim_motion_free(&m);
}

static void test_patterns(const spx_psf *psf)
{
    spx_err e = {0};
    spx_sim_motion m, fit;
    double v[SPX_SIM_NMOTION], sum = 0, sum2 = 0;
    CHECK(spx_sim_motion_make(psf, &m, &e) == SPX_OK, "%s", spx_err_text(&e));
    spx_sim_motion_wave(&m, 2, 5, 'r');
    for (size_t f = 0; f < N; f++)
        for (int k = 0; k <= 4; k++) {
            double u = k / 2. - 1, p = 1.3 * 2 * 3.14159265358979323846 * (double)f / N + 0.5;
            spx_sim_motion_at(&m, f, psf->x.wmin + (u + 1) / 2 * (psf->x.wmax - psf->x.wmin), v);
            CHECK(fabs(v[SPX_SIM_X] - 2 * (0.05 * cos(p) + 0.02 * u * sin(p))) < 1e-12, "wave in x");
            CHECK(fabs(v[SPX_SIM_WX] - 0.02 * cos(p)) < 1e-12 && fabs(v[SPX_SIM_WY] - 0.02 * cos(p)) < 1e-12,
                  "wave of the widths");
            double own = v[SPX_SIM_Y] - 2 * (0.05 * cos(p) + 0.03 * u * sin(p));
            sum += own / 5;
            sum2 += own * own / 5;
        }
    /* 60 normal numbers of rms 0.02: mean and rms within 3.5 of their errors. */
    CHECK(fabs(sum / N) < 3.5 * 0.02 / sqrt(N), "mean of the random part %g", sum / N);
    CHECK(fabs(sqrt(sum2 / N) / 0.02 - 1) < 3.5 / sqrt(2. * N), "rms of the random part %g", sqrt(sum2 / N));
    spx_sim_motion_free(&m);

    /* Bundles move as one. */
    CHECK(spx_sim_motion_make(psf, &m, &e) == SPX_OK, "%s", spx_err_text(&e));
    spx_sim_motion_scatter(&m, SPX_SIM_X, 1, 0.1, 3, 'r');
    double first[3];
    for (size_t f = 0; f < N; f++) {
        spx_sim_motion_at(&m, f, 6100, v);
        if (f % SPX_SIM_BUNDLE == 0)
            first[f / SPX_SIM_BUNDLE] = v[SPX_SIM_X];
        CHECK(v[SPX_SIM_X] == first[f / SPX_SIM_BUNDLE] && v[SPX_SIM_Y] == 0, "fibre %zu leaves its bundle", f);
    }
    CHECK(first[0] != first[1] && first[1] != first[2], "bundles move alike");

    /* Points on a polynomial give it back, those of one fibre do not determine it. */
    CHECK(spx_sim_motion_make(psf, &fit, &e) == SPX_OK, "%s", spx_err_text(&e));
    spx_sim_motion_term(&m, SPX_SIM_X, 0, 0, 0.05);
    memset(m.coef, 0, SPX_SIM_NMOTION * N * SPX_SIM_MOTION_TERMS * sizeof *m.coef);
    for (int q = 0; q < SPX_SIM_NMOTION; q++)
        for (size_t k = 0; k < 6; k++)
            spx_sim_motion_term(&m, (spx_sim_quantity)q, k / 3, k % 3, 0.1 * (uniform(k + 7 * (size_t)q) - 0.5));
    spx_sim_point point[40];
    for (size_t k = 0; k < 40; k++) {
        point[k].fibre = (double)(k % 5 * 12);
        point[k].wavelength = 6000 + 15 * (double)k;
        spx_sim_motion_at(&m, k % 5 * 12, point[k].wavelength, point[k].value);
    }
    CHECK(spx_sim_motion_fit(&fit, 40, point, 1, 2, &e) == SPX_OK, "%s", spx_err_text(&e));
    double worst = 0;
    for (size_t k = 0; k < SPX_SIM_NMOTION * N * SPX_SIM_MOTION_TERMS; k++)
        worst = fmax(worst, fabs(fit.coef[k] - m.coef[k]));
    CHECK(worst < 1e-12, "fit of a polynomial is off by %g", worst);
    for (size_t k = 0; k < 40; k++)
        point[k].fibre = 7;
    CHECK(spx_sim_motion_fit(&fit, 40, point, 1, 2, &e) == SPX_EINPUT, "one fibre determines a slope");
    spx_err_clear(&e);
    CHECK(spx_sim_motion_fit(&fit, 2, point, 0, 2, &e) == SPX_EINPUT, "two points determine a parabola");
    spx_err_clear(&e);
    point[3].fibre = N;
    CHECK(spx_sim_motion_fit(&fit, 40, point, 0, 2, &e) == SPX_EINPUT, "fibre %d accepted", N);
    spx_err_clear(&e);
    spx_sim_motion_free(&m);
    spx_sim_motion_free(&fit);
}

static void test_fibres(void)
{
    enum { NF = 2000, NW = 21 };
    static double factor[NF * NW], again[NF * NW], scatter[NF], wave[NW];
    static int32_t fiber[NF];
    double sum2 = 0, sc2 = 0;
    for (int k = 0; k < NW; k++)
        wave[k] = 6000 + 10 * k;
    for (int f = 0; f < NF; f++)
        fiber[f] = f;
    spx_sim_fibres s = {
        .throughput = 0.1, .scatter = 0.02, .seed = 3, .noise_seed = 4, .camera = 'r', .wmin = 6000, .wmax = 6200};
    spx_sim_fibre_factors(&s, NF, fiber, NW, wave, factor, scatter);
    for (size_t f = 0; f < NF; f++) {
        sc2 += (scatter[f] - 1) * (scatter[f] - 1);
        for (size_t k = 0; k < NW; k++) {
            double g = log(factor[f * NW + k] / scatter[f]);
            sum2 += g * g * (k == 0 || k == NW - 1 ? 0.5 : 1) / (NW - 1);
        }
    }
    /* The rms is 0.1 within 3.5 errors of 2000 fibres, some 2 % for the 1.6 independent values of each. */
    CHECK(fabs(sqrt(sum2 / NF) / 0.1 - 1) < 0.05, "throughput has rms %g", sqrt(sum2 / NF));
    CHECK(fabs(sqrt(sc2 / NF) / 0.02 - 1) < 0.055, "scatter has rms %g", sqrt(sc2 / NF));
    /* Other scatter, same throughput; and a fibre does not depend on the others. */
    static double other[NF];
    s.noise_seed = 5;
    spx_sim_fibre_factors(&s, NF - 10, fiber + 10, NW, wave, again, other);
    for (size_t k = 0; k < (NF - 10) * NW; k++)
        CHECK(fabs(again[k] / other[k / NW] - factor[k + 10 * NW] / scatter[k / NW + 10]) < 1e-14, "value %zu", k);
    CHECK(other[0] != scatter[10], "scatter is that of another exposure");
}

int main(void)
{
    spx_err e = {0};
    spx_psf psf;
    CHECK(spx_sim_psf('r', N, 6000, 6600, &psf, &e) == SPX_OK, "%s", spx_err_text(&e));
    test_apply(&psf);
    test_patterns(&psf);
    test_fibres();
    spx_psf_free(&psf);
    return failures != 0;
}
