/* Templates between the two nodes of an abundance ratio, against the formula that made them: lines that grow with their
 * element's abundance and saturate, of which some are of that element; for any order of the parameters, with components
 * and without, and with lines that do not follow the sum of metallicity and ratio. */
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "check.h"
#include "rvfit/rvfit.h"

enum { NWAVE = 60, NPAR = 4 };
static const char *const names[NPAR] = {"teff", "logg", "feh", "alpha"};
static const double axes[NPAR][5] = {{4500, 5000, 6000}, {3, 4, 4.5}, {-1.5, -1, -0.6, -0.1, 0.3}, {0, 0.4}};
static const size_t naxis[NPAR] = {3, 3, 5, 2};

/* ln T at pixel k; `sum`: what the ratio counts in the lines of its element beside the metallicity. */
static double formula(const double *par, double sum, size_t k)
{
    const double growth = 0.6 + 0.01 * (double)k;
    const double abundance = par[2] + (k % 3 == 0 ? sum * par[3] : 0);
    const double weak = (0.05 + 0.02 * (double)(k % 7)) * pow(10, growth * abundance) * 5000 / par[0];
    return -weak / (1 + 0.8 * weak) - 0.05 * par[1];
}

/* A library with the parameters in the order `order`; components: ln T are coefficients, too. */
static void make(spx_setup *s, const int *order, double sum, int components)
{
    spx_err e = {0};
    memset(s, 0, sizeof *s);
    s->npar = NPAR;
    s->nwave = NWAVE;
    s->ntemp = 1;
    for (size_t p = 0; p < NPAR; p++) {
        (void)snprintf(s->parname[p], sizeof s->parname[p], "%s", names[order[p]]);
        s->naxis[p] = naxis[order[p]];
        s->ntemp *= s->naxis[p];
        s->axis[p] = spx_alloc(s->naxis[p], sizeof(double), &e);
        memcpy(s->axis[p], axes[order[p]], s->naxis[p] * sizeof(double));
    }
    s->params = spx_alloc2(s->ntemp, NPAR, sizeof(double), &e);
    s->lnflux = spx_alloc2(s->ntemp, NWAVE, sizeof(float), &e);
    s->lnnorm = spx_alloc(s->ntemp, sizeof(double), &e);
    s->node = spx_alloc(s->ntemp, sizeof *s->node, &e);
    if (components) {
        s->pca.mean = spx_alloc(NWAVE, sizeof(double), &e);
        s->pca.coef = spx_alloc2(s->ntemp, NWAVE, sizeof(double), &e);
        s->pca.ncomp = NWAVE;
    }
    for (size_t i = 0; i < s->ntemp; i++) {
        const size_t row = s->ntemp - 1 - i; /* rows are in another order than nodes */
        double par[NPAR];
        size_t rest = i;
        s->node[i] = (int32_t)row;
        for (size_t p = NPAR; p-- > 0;) {
            par[order[p]] = s->params[row * NPAR + p] = s->axis[p][rest % s->naxis[p]];
            rest /= s->naxis[p];
        }
        s->lnnorm[row] = formula(par, sum, 0);
        for (size_t k = 0; k < NWAVE; k++) {
            s->lnflux[row * NWAVE + k] = (float)formula(par, sum, k);
            if (components)
                s->pca.coef[row * NWAVE + k] = formula(par, sum, k);
        }
    }
}

/* rms error of the new nodes, of what linear interpolation has. */
static double error(const int *order, double sum, int components)
{
    spx_templates t = {.nsetup = 1};
    spx_err e = {0};
    const char *name;
    double new = 0, linear = 0;
    t.setup = spx_alloc(1, sizeof *t.setup, &e);
    spx_setup *s = t.setup;
    make(s, order, sum, components);
    const size_t old = s->ntemp;
    CHECK(spx_rvfit_bend(&t, &name, &e) == SPX_OK && name != NULL && strcmp(name, "alpha") == 0, "not bent: %s",
          spx_err_text(&e));
    CHECK(s->ntemp == old / 2 * 3, "%zu templates of %zu", s->ntemp, old);
    for (size_t i = 0; i < s->ntemp; i++) {
        const size_t row = (size_t)s->node[i];
        double par[NPAR], lo[NPAR], hi[NPAR];
        size_t rest = i;
        for (size_t p = NPAR; p-- > 0;) {
            const double at = s->axis[p][rest % s->naxis[p]];
            par[order[p]] = at;
            CHECK(fabs(s->params[row * NPAR + p] - at) < 1e-12, "node %zu, parameter %zu: %g, the template's is %g", i,
                  p, at, s->params[row * NPAR + p]);
            rest /= s->naxis[p];
        }
        CHECK((s->filled[row] != 0) == (fabs(par[3] - 0.2) < 1e-12), "node %zu: filled is %d", i, s->filled[row]);
        memcpy(lo, par, sizeof par);
        memcpy(hi, par, sizeof par);
        lo[3] = 0;
        hi[3] = 0.4;
        for (size_t k = 0; k < NWAVE && s->filled[row]; k++) {
            const double want = formula(par, sum, k);
            const double is = components ? s->pca.coef[row * NWAVE + k] : s->lnflux[row * NWAVE + k];
            const double between = 0.5 * (formula(lo, sum, k) + formula(hi, sum, k));
            new += (is - want) * (is - want);
            linear += (between - want) * (between - want);
        }
        if (s->filled[row])
            CHECK(fabs(s->lnnorm[row] - formula(par, sum, 0)) < 0.01, "node %zu: ln of the norm is %g, not %g", i,
                  s->lnnorm[row], formula(par, sum, 0));
    }
    spx_templates_free(&t);
    return sqrt(new / linear);
}

/* No axis of two nodes that the metallicity could bend: nothing changes. */
static void others(void)
{
    static const int order[NPAR] = {0, 1, 2, 3};
    static const char *const strange[] = {"beta", "teff2"};
    for (size_t k = 0; k < 3; k++) {
        spx_templates t = {.nsetup = 1};
        spx_err e = {0};
        const char *name;
        t.setup = spx_alloc(1, sizeof *t.setup, &e);
        make(t.setup, order, 1, 1);
        (void)snprintf(t.setup->parname[k < 2 ? 3 : 2], sizeof t.setup->parname[0], "%s", strange[k % 2]);
        const size_t old = t.setup->ntemp;
        CHECK(spx_rvfit_bend(&t, &name, &e) == SPX_OK && name == NULL && t.setup->ntemp == old, "%s is bent",
              strange[k % 2]);
        spx_templates_free(&t);
    }
}

int main(void)
{
    static const int order[4][NPAR] = {{0, 1, 2, 3}, {3, 2, 1, 0}, {1, 3, 0, 2}, {2, 0, 3, 1}};
    for (size_t k = 0; k < 4; k++)
        for (int components = 0; components < 2; components++) {
            double x = error(order[k], 1, components);
            CHECK(x < 0.12, "order %zu, components %d: %.3f of the linear error", k, components, x);
        }
    /* Lines that grow with the ratio less or more than with the metallicity: still better than straight lines. */
    double less = error(order[0], 0.7, 1), more = error(order[0], 1.5, 1);
    CHECK(less < 0.6 && more < 0.5, "lines that do not follow [X/H]: %.3f and %.3f of the linear error", less, more);
    others();
    return failures != 0;
}
