/* Checks the cross-correlation of kernel `rvfit`: curves of chi^2 by the short inverse transform of few lags are those
 * that a plain sum over all frequencies gives, for ranges of velocity from some km/s to all that the sets allow. */
#include "rv_stars.h"

#include "rvfit/search/search.h"

enum { NSTAR = 3 };
static const double TOLERANCE = 1e-6; /* of the components' largest chi^2: single precision */

/* Sample j of the inverse transform of the products of a component with the star's arm, as they are in the workspace.
 */
static double sample(const spx_rv_arm *a, const spx_rv_workspace *r, size_t k, size_t j)
{
    const size_t ns = a->nshort, nf = ns / 2 + 1;
    const float *f = a->ccf_comp + k * 4 * nf, *f2 = f + 2 * nf;
    double sum = 0;
    for (size_t i = 0; i < nf; i++) {
        const double s[2] = {r->cs[i][0], r->cs[i][1]}, v[2] = {r->civ[i][0], r->civ[i][1]};
        const double re = s[0] * f[2 * i] + s[1] * f[2 * i + 1] + v[0] * f2[2 * i] + v[1] * f2[2 * i + 1];
        const double im = s[1] * f[2 * i] - s[0] * f[2 * i + 1] + v[1] * f2[2 * i] - v[0] * f2[2 * i + 1];
        const double angle = 2 * M_PI * (double)(i * j % ns) / (double)ns;
        sum += (i == 0 || 2 * i == ns ? 1 : 2) * (re * cos(angle) - im * sin(angle));
    }
    return sum;
}

static void curves(const spx_templates *t, const spx_spectra *s, double vmin, double vmax, size_t *least, size_t *most)
{
    spx_rvfit_options o;
    spx_rvfit_plan *plan = NULL;
    spx_rv_ctx c;
    spx_rv_workspace r;
    spx_rv_spectra w;
    init(&o);
    o.vmin = vmin;
    o.vmax = vmax;
    const spx_rvfit_input in = input_of(s, t);
    NEED(spx_rvfit_open_cpu(&in, &o, &plan, &need_e));
    NEED(spx_rv_ctx_batch(&c, plan, &in, &o, &need_e));
    NEED(spx_rv_workspace_init(&r, &c, &need_e));
    void *pieces = spx_alloc(spx_rv_pieces_bytes(&c), 1, NULL);
    float *got = spx_alloc(c.ccf.nlag, sizeof *got, NULL);
    double *samples = spx_alloc(c.ccf.n, sizeof *samples, NULL);
    if (!pieces || !got || !samples)
        exit(1);
    NEED(spx_rv_spectra_init(&w, &c, &r, pieces, &need_e));
    for (size_t i = 0; i < s->nspec; i++) {
        CHECK(spx_rv_load(&w, i), "star %zu cannot be loaded", i);
        for (size_t p = 0; p < w.first[c.narm]; p++) {
            const spx_rv_arm *a = &c.arm[w.piece[p].arm];
            const size_t entry = (size_t)(uniform() * (double)a->setup->ccf.ntemp);
            double worst = 0, scale = 0;
            spx_rv_ccf(&w, &w.piece[p], entry, got);
            memset(samples, 0, a->nshort * sizeof *samples);
            for (size_t k = 0; k < a->nccf; k++) {
                double largest = 0;
                for (size_t j = 0; j < a->nshort; j++) {
                    const double x = -(double)a->ccf_coef[entry * a->nccf + k] * sample(a, &r, k, j);
                    samples[j] += x;
                    largest = fmax(largest, fabs(x));
                }
                scale += largest;
            }
            for (size_t l = 0; l < c.ccf.nlag; l++) {
                double want = 0;
                for (size_t q = 0; q < 4; q++)
                    want += (double)a->lag_weight[4 * l + q] * samples[(a->lag_at[l] + q) & (a->nshort - 1)];
                worst = fmax(worst, fabs(want - (double)got[l]));
            }
            CHECK(worst < TOLERANCE * scale, "%g to %g km/s, star %zu, arm %zu: off by %g of %g; %zu of %zu samples",
                  vmin, vmax, i, w.piece[p].arm, worst, scale, a->few.length, a->nshort);
            *least = a->few.per < *least ? a->few.per : *least;
            *most = a->few.per > *most ? a->few.per : *most;
        }
    }
    spx_rv_spectra_free(&w);
    spx_rv_workspace_free(&r);
    spx_rvfit_close_cpu(plan);
    spx_free(pieces);
    spx_free(got);
    spx_free(samples);
}

static void body(spx_templates *t)
{
    static const double range[][2] = {{-1000, 1000}, {-1500, 1500}, {300, 900}, {-1400, -1350},
                                      {-150, 150},   {-3, 12},      {0, 0.5}};
    enum { PART = 100, FROM = 200 };
    size_t least = 1000, most = 0;
    spx_spectra spectra, part;
    interpolator = SPX_INTERPOLATE_CUBIC;
    alloc_spectra(&spectra, NSTAR);
    for (size_t i = 0; i < NSTAR; i++)
        draw(&spectra, i,
             &(truth){-300 + 600 * uniform(), 40 * (double)i, 4600 + 1800 * uniform(), -1.8 + 1.7 * uniform(), 40});
    for (size_t k = 0; k < sizeof range / sizeof *range; k++)
        curves(t, &spectra, range[k][0], range[k][1], &least, &most);
    part = spectra; /* some pixels of the first star, which leave room for the largest velocities */
    part.nspec = 1;
    for (size_t a = 0; a < NARM; a++) {
        part.arm[a].nwave = PART;
        part.arm[a].wavelength += FROM;
        part.arm[a].flux += FROM;
        part.arm[a].ivar += FROM;
        part.arm[a].mask += FROM;
    }
    curves(t, &part, -4000, 4000, &least, &most);
    CHECK(least == 1 && most >= 8, "inverse transforms shortened from %zu to %zu times", least, most);
    free_spectra(&spectra);
}

int main(void)
{
    return rv_test(body);
}
