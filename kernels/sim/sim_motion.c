/* Moves the traces and widths of a PSF (sim/sim_motion.h). */
#include "sim/sim_motion.h"

#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "calib/bordered.h"
#include "num/legendre.h"
#include "products/psf_index.h"
#include "psf/psf_math.h"
#include "sim/sim_math.h"

enum { TERMS = SPX_SIM_MOTION_TERMS, CHECKS = 65 };

static double *series(const spx_sim_motion *m, spx_sim_quantity q, size_t fibre)
{
    return m->coef + ((size_t)q * m->nspec + fibre) * TERMS;
}

static double slit(const spx_sim_motion *m, double fibre)
{
    return m->nspec > 1 ? 2.0 * fibre / (double)(m->nspec - 1) - 1.0 : 0.0;
}

spx_status spx_sim_motion_make(const spx_psf *psf, spx_sim_motion *m, spx_err *e)
{
    *m = (spx_sim_motion){.nspec = psf->nspec, .wmin = psf->x.wmin, .wmax = psf->x.wmax};
    m->coef = spx_alloc2(SPX_SIM_NMOTION * psf->nspec, TERMS, sizeof *m->coef, e);
    return m->coef == NULL ? SPX_EIO : SPX_OK;
}

void spx_sim_motion_free(spx_sim_motion *m)
{
    spx_free(m->coef);
    *m = (spx_sim_motion){0};
}

void spx_sim_motion_term(spx_sim_motion *m, spx_sim_quantity q, size_t i, size_t j, double c)
{
    double p[TERMS];
    for (size_t f = 0; f < m->nspec; f++) {
        spx_legendre_basis(TERMS, slit(m, (double)f), p);
        series(m, q, f)[j] += c * p[i];
    }
}

void spx_sim_motion_scatter(spx_sim_motion *m, spx_sim_quantity q, int by_bundle, double rms, uint64_t seed,
                            char camera)
{
    for (size_t f = 0; f < m->nspec; f++) {
        double u[2];
        spx_sim_uniform2(seed, SPX_SIM_MOVE, (unsigned char)camera, by_bundle ? f / SPX_SIM_BUNDLE : f,
                         2 * (uint32_t)q + (by_bundle ? 1 : 0), u);
        series(m, q, f)[0] += rms * spx_sim_normal(u);
    }
}

void spx_sim_motion_wave(spx_sim_motion *m, double size, uint64_t seed, char camera)
{
    for (size_t f = 0; f < m->nspec; f++) {
        const double p = 1.3 * 6.283185307179586477 * (double)f / (double)m->nspec + 0.5;
        series(m, SPX_SIM_X, f)[0] += size * 0.05 * cos(p);
        series(m, SPX_SIM_X, f)[1] += size * 0.02 * sin(p);
        series(m, SPX_SIM_Y, f)[0] += size * 0.05 * cos(p);
        series(m, SPX_SIM_Y, f)[1] += size * 0.03 * sin(p);
        series(m, SPX_SIM_WX, f)[0] += size * 0.01 * cos(p);
        series(m, SPX_SIM_WY, f)[0] += size * 0.01 * cos(p);
    }
    spx_sim_motion_scatter(m, SPX_SIM_Y, 0, size * 0.01, seed, camera);
}

spx_status spx_sim_motion_fit(spx_sim_motion *m, size_t n, const spx_sim_point *point, size_t di, size_t dj, spx_err *e)
{
    if (di >= TERMS || dj >= TERMS)
        return spx_fail(e, SPX_EINPUT, "degrees %zu in fibre number and %zu in wavelength: give 0 to %d", di, dj,
                        TERMS - 1);
    for (size_t k = 0; k < n; k++)
        if (!(point[k].fibre >= 0 && point[k].fibre <= (double)(m->nspec - 1)))
            return spx_fail(e, SPX_EINPUT, "point %zu is of fibre %g, the PSF has fibres 0 to %zu", k + 1,
                            point[k].fibre, m->nspec - 1);
    const size_t nk = (di + 1) * (dj + 1);
    double *a = spx_alloc2(nk, nk, sizeof *a, e), *y = spx_alloc2(SPX_SIM_NMOTION, nk, sizeof *y, e);
    spx_status st = a == NULL || y == NULL ? SPX_EIO : SPX_OK;
    for (size_t k = 0; k < n && st == SPX_OK; k++) {
        double p[TERMS], u[TERMS], b[TERMS * TERMS];
        spx_legendre_basis(di + 1, slit(m, point[k].fibre), p);
        spx_legendre_basis(dj + 1, spx_psf_u(m->wmin, m->wmax, point[k].wavelength), u);
        for (size_t r = 0; r < nk; r++)
            b[r] = p[r / (dj + 1)] * u[r % (dj + 1)];
        for (size_t r = 0; r < nk; r++) {
            for (size_t c = 0; c <= r; c++)
                a[r * nk + c] += b[r] * b[c];
            for (int q = 0; q < SPX_SIM_NMOTION; q++)
                y[(size_t)q * nk + r] += b[r] * point[k].value[q];
        }
    }
    if (st == SPX_OK && !(n > 0 && spx_small_factor(nk, a)))
        st = spx_fail(e, SPX_EINPUT,
                      "%zu points do not determine a polynomial of degree %zu in fibre number and %zu in wavelength: "
                      "give more points or lower degrees",
                      n, di, dj);
    for (int q = 0; q < SPX_SIM_NMOTION && st == SPX_OK; q++) {
        double *c = y + (size_t)q * nk;
        spx_small_solve(nk, a, c);
        for (size_t r = 0; r < nk; r++)
            spx_sim_motion_term(m, (spx_sim_quantity)q, r / (dj + 1), r % (dj + 1), c[r]);
    }
    spx_free(a);
    spx_free(y);
    return st;
}

void spx_sim_motion_at(const spx_sim_motion *m, size_t fibre, double wavelength, double *value)
{
    const double u = spx_psf_u(m->wmin, m->wmax, wavelength);
    for (int q = 0; q < SPX_SIM_NMOTION; q++)
        value[q] = spx_legendre_sum(TERMS, series(m, (spx_sim_quantity)q, fibre), u);
}

static spx_status check(const spx_sim_motion *m, spx_err *e)
{
    for (size_t f = 0; f < m->nspec; f++)
        for (int k = 0; k < CHECKS; k++) {
            double wave = m->wmin + (m->wmax - m->wmin) * k / (CHECKS - 1), v[SPX_SIM_NMOTION];
            spx_sim_motion_at(m, f, wave, v);
            if (!(fabs(v[SPX_SIM_X]) <= 100 && fabs(v[SPX_SIM_Y]) <= 100))
                return spx_fail(e, SPX_EINPUT,
                                "fibre %zu moves by %g, %g pixels at %g Angstrom: give shifts of at most 100", f,
                                v[SPX_SIM_X], v[SPX_SIM_Y], wave);
            for (int q = SPX_SIM_WX; q <= SPX_SIM_WY; q++)
                if (!(v[q] >= -0.8 && v[q] <= 4))
                    return spx_fail(e, SPX_EINPUT,
                                    "the width of fibre %zu changes by %g of itself at %g Angstrom: give -0.8 to 4", f,
                                    v[q], wave);
        }
    return SPX_OK;
}

/* Number of terms that are not 0 in the longest series of a quantity. */
static size_t terms(const spx_sim_motion *m, spx_sim_quantity q)
{
    size_t n = 0;
    for (size_t f = 0; f < m->nspec; f++)
        for (size_t k = n; k < TERMS; k++)
            if (series(m, q, f)[k] != 0.0)
                n = k + 1;
    return n;
}

/* Legendre coefficients of old(u) factor(u) + added(u), a polynomial of less than `to` terms, over [wmin, wmax]:
 * c_k = (2k+1)/2 sum_j w_j f(x_j) P_k(x_j) with Gauss's abscissae x[to] and weights w[to], which is exact. */
static void expand(const spx_sim_motion *m, size_t fibre, int added, int factor, size_t from, const double *old,
                   double wmin, double wmax, size_t to, const double *x, const double *w, double *out)
{
    double value[64];
    for (size_t j = 0; j < to; j++) {
        const double u = spx_psf_u(m->wmin, m->wmax, wmin + 0.5 * (x[j] + 1.0) * (wmax - wmin));
        double f = spx_legendre_sum(from, old, x[j]);
        if (factor >= 0)
            f *= 1.0 + spx_legendre_sum(TERMS, series(m, (spx_sim_quantity)factor, fibre), u);
        if (added >= 0)
            f += spx_legendre_sum(TERMS, series(m, (spx_sim_quantity)added, fibre), u);
        value[j] = f;
    }
    spx_legendre_project(to, x, w, value, to, out);
}

static spx_status move_series(const spx_sim_motion *m, spx_sim_quantity q, spx_psf_series *s, spx_err *e)
{
    const size_t n = terms(m, q), to = n > s->ncoef ? n : s->ncoef;
    double x[64], w[64], *coef;
    if (n == 0)
        return SPX_OK;
    if (to > 64)
        return spx_fail(e, SPX_EINPUT, "traces with %zu coefficients cannot be moved: at most 64", to);
    if ((coef = spx_alloc2(m->nspec, to, sizeof *coef, e)) == NULL)
        return SPX_EIO;
    spx_gauss_legendre(to, x, w);
    for (size_t f = 0; f < m->nspec; f++)
        expand(m, f, (int)q, -1, s->ncoef, s->coef + f * s->ncoef, s->wmin, s->wmax, to, x, w, coef + f * to);
    spx_free(s->coef);
    s->coef = coef;
    s->ncoef = to;
    return SPX_OK;
}

static spx_status widen(const spx_sim_motion *m, spx_psf *p, spx_err *e)
{
    const size_t nx = terms(m, SPX_SIM_WX), ny = terms(m, SPX_SIM_WY), n = nx > ny ? nx : ny;
    const size_t to = n > 0 ? p->ndeg + n - 1 : p->ndeg;
    double x[64], w[64], *coeff;
    if (n == 0)
        return SPX_OK;
    if (to > 64)
        return spx_fail(e, SPX_EINPUT, "parameters with %zu coefficients cannot be changed: at most 64", to);
    if ((coeff = spx_alloc2(p->npar * p->nspec, to, sizeof *coeff, e)) == NULL)
        return SPX_EIO;
    spx_gauss_legendre(to, x, w);
    for (size_t par = 0; par < p->npar; par++)
        for (size_t f = 0; f < p->nspec; f++) {
            const double *old = p->coeff + (par * p->nspec + f) * p->ndeg;
            double *out = coeff + (par * p->nspec + f) * to;
            const int is = (int)par; /* an absent row is -1 */
            int q = is == p->sigx || is == p->sigx2 ? SPX_SIM_WX : is == p->sigy || is == p->sigy2 ? SPX_SIM_WY : -1;
            if (q < 0)
                memcpy(out, old, p->ndeg * sizeof *out);
            else
                expand(m, f, -1, q, p->ndeg, old, p->wmin, p->wmax, to, x, w, out);
        }
    spx_free(p->coeff);
    p->coeff = coeff;
    p->ndeg = to;
    return SPX_OK;
}

spx_status spx_sim_motion_apply(const spx_sim_motion *m, const spx_psf *from, spx_psf *to, spx_err *e)
{
    spx_status st = check(m, e);
    *to = (spx_psf){0};
    if (st == SPX_OK)
        st = spx_psf_require(from, SPX_PSF_SPOTS, "a simulated shift", "simulate without it", e);
    if (st == SPX_OK)
        st = spx_psf_copy(from, to, e);
    if (st == SPX_OK)
        st = move_series(m, SPX_SIM_X, &to->x, e);
    if (st == SPX_OK)
        st = move_series(m, SPX_SIM_Y, &to->y, e);
    if (st == SPX_OK)
        st = widen(m, to, e);
    if (st != SPX_OK)
        spx_psf_free(to);
    return st;
}
