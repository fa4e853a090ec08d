/* Checks errors of velocities where chi^2 is far from the number of pixels: lines that no template has, and variances
 * that are not the noise's. The same data with K times the inverse variance have K times the objective, so that the
 * error of a well-measured star is 1/sqrt(K) of what it was, and never 0. Both hold for any range of velocities, whose
 * ends decide where the points of scans fall. */
#include "rv_stars.h"

enum { NSTAR = 12, NSCALE = 6, NRANGE = 3 };

/* A star whose lines are `power` times as deep as the templates', in ln(flux). */
static void draw_foreign(spx_spectra *s, size_t i, const truth *put, double power)
{
    draw(s, i, put);
    for (size_t a = 0; a < NARM; a++)
        for (size_t k = 0; k < NPIX; k++) {
            double *f = &s->arm[a].flux[i * NPIX + k];
            *f = *f > 0 ? pow(*f, power) : *f;
        }
}

static void body(spx_templates *t)
{
    static const double scale[NSCALE] = {1, 0.1, 10, 100, 1e4, 1e6};
    static const double range[NRANGE][2] = {{-600, 600}, {-200, 200}, {-200.3, 200}};
    static double err[NSTAR];
    double most = 0, least = HUGE_VAL;
    spx_spectra s;
    spx_rvfit_options o;
    alloc_spectra(&s, NSTAR);
    for (size_t a = 0; a < NARM; a++) /* many pixels a line: the scan's steps, of half a pixel, change little */
        for (size_t i = 0; i < NPIX; i++)
            s.arm[a].wavelength[i] = ARM_MIN[a] + 75 + 0.1 * (double)i;
    init(&o);
    for (size_t i = 0; i < NSTAR; i++)
        draw_foreign(&s, i,
                     &(truth){-150 + 300 * uniform(), 70 * (double)(i % 3), 4700 + 1600 * uniform(),
                              -1.8 + 1.6 * uniform(), 100},
                     i % 2 ? 0.6 : 1);
    for (size_t k = 0; k < NSCALE; k++)
        for (size_t r = 0; r < NRANGE; r++) {
            spx_rvfit out;
            spx_rvfit_input in = input_of(&s, t);
            for (size_t a = 0; a < NARM; a++)
                for (size_t i = 0; i < NSTAR * NPIX; i++)
                    s.arm[a].ivar[i] = 1e4 * scale[k];
            o.vmin = range[r][0];
            o.vmax = range[r][1];
            NEED(backend.rvfit(&backend, &in, &o, NULL, &out, &need_e));
            for (size_t i = 0; i < NSTAR; i++) {
                const spx_rvfit_star *w = &out.star[i];
                const double reduced = w->chisq / (double)w->npix;
                if (k == 0 && r == 0)
                    err[i] = w->vrad_err;
                most = fmax(most, reduced);
                least = fmin(least, reduced);
                CHECK(w->vrad_err > 0 && isfinite(w->vrad_err),
                      "star %zu, ivar x %g, range %g ... %g: chi2/n %g, error %g", i, scale[k], o.vmin, o.vmax, reduced,
                      w->vrad_err);
                const double ratio = w->vrad_err * sqrt(scale[k]) / err[i];
                CHECK(scale[k] < 1 || fabs(ratio - 1) < 0.1,
                      "star %zu, ivar x %g, range %g ... %g: chi2/n %g, error %g, %g of what it should be", i, scale[k],
                      o.vmin, o.vmax, reduced, w->vrad_err, ratio);
            }
            spx_rvfit_free(&out);
        }
    CHECK(least < 0.2 && most > 1e4, "chi2/n is within %g ... %g only", least, most);
    free_spectra(&s);
}

int main(void)
{
    return rv_test(body);
}
