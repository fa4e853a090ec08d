/* Checks kernel `rvfit` on unusual input: parameters interpolated in a mapping, stars unlike any template, and spectra
 * with emission lines and cosmic rays. */
#include "rv_stars.h"
#include "rvfit/model/model.h"

/* A library in which ln flux is linear in (exp(g p) - 1)/g of one parameter: the mapping is found, interpolation in it
 * is exact, and steps in it are what they say. */
static void mapping(const spx_templates *t)
{
    static const double trial[] = {-2, 1.5, 3};
    spx_spectra s;
    spx_rvfit_options o;
    alloc_spectra(&s, 1);
    draw(&s, 0, &(truth){0, 0, 5500, -1, 40});
    init(&o);
    for (size_t k = 0; k < sizeof trial / sizeof *trial; k++) {
        spx_setup set[NARM];
        double lo = log10(TEFF[0]), range = log10(TEFF[4]) - lo, g = trial[k] / range;
        spx_rvfit_input in = input_of(&s, t);
        for (size_t a = 0; a < NARM; a++) {
            set[a] = t->setup[a];
            set[a].pca = (spx_pca){0};
            set[a].lnflux = spx_alloc2(set[a].ntemp, set[a].nwave, sizeof(float), NULL);
            if (!set[a].lnflux)
                exit(1);
            for (size_t i = 0; i < set[a].ntemp * set[a].nwave; i++) {
                size_t row = i / set[a].nwave, pixel = i % set[a].nwave;
                double x = log10(set[a].params[row * NPAR]) - lo;
                set[a].lnflux[i] =
                    (float)(expm1(g * x) / g * sin(0.1 * (double)pixel) + 0.1 * set[a].params[row * NPAR + 1]);
            }
            in.setup[a] = &set[a];
        }
        spx_rv_ctx c;
        NEED(spx_rv_ctx_init(&c, &in, &o, &need_e));
        /* half of it is as good: cubic interpolation has parabolas exactly */
        CHECK(fabs(c.grid.transform[0] * range - trial[k]) < 1e-9 ||
                  fabs(c.grid.transform[0] * range - 0.5 * trial[k]) < 1e-9,
              "mapping of teff is %g, the library's %g", c.grid.transform[0] * range, trial[k]);
        CHECK(c.grid.transform[1] == 0 && c.grid.transform[2] == 0, "mapping of feh %g, of alpha %g",
              c.grid.transform[1], c.grid.transform[2]);
        for (double p = 4600; p < 6500; p += 370) {
            double x = spx_rv_map(&c, 2, p), d = 1e-6, up = spx_rv_unmap(&c, 2, x + d),
                   down = spx_rv_unmap(&c, 2, x - d);
            double slope = spx_rv_slope(&c, 2, x, 0), diff = (up - down) / (2 * d);
            CHECK(fabs(spx_rv_unmap(&c, 2, x) - p) < 1e-8 * p, "teff %g comes back as %g", p, spx_rv_unmap(&c, 2, x));
            CHECK(fabs(slope - diff) < 1e-6 * fabs(slope), "teff %g: slope %g, difference %g", p, slope, diff);
            double w[4], dw[4], ln = 0, want = expm1(g * (log10(p) - lo)) / g;
            size_t first = spx_rv_cubic_weights(c.grid.naxis[0], c.grid.axis[0], x, w, dw);
            for (size_t i = 0; i < 4; i++)
                ln += w[i] * expm1(g * (log10(TEFF[first + i]) - lo)) / g;
            CHECK(fabs(ln - want) < 1e-12, "teff %g: interpolated %.15g, want %.15g", p, ln, want);
        }
        spx_rv_ctx_free(&c);
        for (size_t a = 0; a < NARM; a++)
            spx_free(set[a].lnflux);
    }
    free_spectra(&s);
}

/* Stars beyond the library still get a velocity, with a warning. */
static void outside(const spx_templates *t)
{
    enum { NSTAR = 4 };
    static const truth put[NSTAR] = {
        {120, 0, 7300, -0.5, 40}, {-310, 30, 4100, -1, 40}, {55, 10, 5700, 0.6, 40}, {0, 0, 5200, -2.8, 60}};
    spx_spectra s;
    spx_rvfit_options o;
    spx_rvfit r;
    alloc_spectra(&s, NSTAR);
    for (size_t i = 0; i < NSTAR; i++)
        draw(&s, i, &put[i]);
    init(&o);
    spx_rvfit_input in = input_of(&s, t);
    NEED(backend.rvfit(&backend, &in, &o, NULL, &r, &need_e));
    for (size_t i = 0; i < NSTAR; i++) {
        const spx_rvfit_star *w = &r.star[i];
        CHECK(w->warn & SPX_RVS_PARAM, "star %zu beyond the templates: teff %g feh %g, RVS_WARN %d", i, w->par[0],
              w->par[1], (int)w->warn);
        CHECK(fabs(w->vrad - put[i].v) < 5 * w->vrad_err + 1 && w->vrad_err > 0 && w->vrad_err < 20,
              "star %zu beyond the templates: v %g +- %g, put in %g", i, w->vrad, w->vrad_err, put[i].v);
        for (size_t q = 0; q < NQ * NQ; q++)
            CHECK(isfinite(w->covar[q]), "star %zu: covariance is not finite", i);
    }
    spx_rvfit_free(&r);
    free_spectra(&s);
}

/* Emission lines and single hot pixels, clipped. */
static void emission(const spx_templates *t)
{
    enum { NSTAR = 4, NEMISSION = 4, NHIT = 10 };
    spx_spectra s;
    spx_rvfit_options o;
    spx_rvfit plain, spoilt, clipped;
    alloc_spectra(&s, NSTAR);
    for (size_t i = 0; i < NSTAR; i++)
        draw(&s, i, &(truth){-200 + 100 * (double)i, 10 * (double)i, 4900 + 300 * (double)i, -0.7, 30});
    init(&o);
    spx_rvfit_input in = input_of(&s, t);
    NEED(backend.rvfit(&backend, &in, &o, NULL, &plain, &need_e));
    for (size_t i = 0; i < NSTAR; i++)
        for (size_t a = 0; a < NARM; a++) {
            double *f = s.arm[a].flux + i * NPIX;
            for (size_t k = 0; k < NEMISSION; k++) {
                size_t centre = 30 + (size_t)(440 * uniform());
                for (size_t j = centre - 8; j < centre + 9; j++)
                    f[j] += 2 * exp(-0.5 * pow(((double)j - (double)centre) / 1.6, 2));
            }
            for (size_t k = 0; k < NHIT; k++)
                f[(size_t)(NPIX * uniform())] += pow(10, 0.3 + 1.2 * uniform());
        }
    NEED(backend.rvfit(&backend, &in, &o, NULL, &spoilt, &need_e));
    o.reject = 6;
    NEED(backend.rvfit(&backend, &in, &o, NULL, &clipped, &need_e));
    for (size_t i = 0; i < NSTAR; i++) {
        const spx_rvfit_star *w = &clipped.star[i], *v = &plain.star[i];
        double off = w->vrad - v->vrad;
        CHECK(w->nreject > NARM * NEMISSION * 3 && w->nreject < NARM * (NEMISSION * 14 + NHIT),
              "star %zu: %d pixels rejected", i, (int)w->nreject);
        CHECK(fabs(off) < 2 * v->vrad_err && fabs(w->par[0] - v->par[0]) < 3 * v->par_err[0],
              "star %zu: v %g +- %g and teff %g without, %g and %g with emission that is clipped, %g with all of it", i,
              v->vrad, v->vrad_err, v->par[0], w->vrad, w->par[0], spoilt.star[i].vrad);
        CHECK(w->chisq / (double)w->npix < 2.5 && spoilt.star[i].chisq > 3 * w->chisq, "star %zu: chi2 %g, %g clipped",
              i, spoilt.star[i].chisq, w->chisq);
    }
    spx_rvfit_free(&plain);
    spx_rvfit_free(&spoilt);
    spx_rvfit_free(&clipped);
    free_spectra(&s);
}

static void body(spx_templates *t)
{
    interpolator = SPX_INTERPOLATE_CUBIC;
    mapping(t);
    static const spx_interpolator all[] = {SPX_INTERPOLATE_CUBIC, SPX_INTERPOLATE_SIMPLEX};
    for (size_t k = 0; k < sizeof all / sizeof *all; k++) {
        interpolator = all[k];
        outside(t);
        emission(t);
    }
}

int main(void)
{
    return rv_test(body);
}
