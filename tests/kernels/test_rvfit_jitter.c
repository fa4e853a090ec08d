/* Checks the jitter of kernel `rvfit`: a given one is a variance in the square of a fraction of the smooth flux; a
 * fitted one is what was put in, with its error; errors allow for noise that neighbouring pixels share, and for misfit
 * that exposures share, and stay as they are where noise is independent, or the misfit displaces nothing, at bounds,
 * too. */
#include "rv_stars.h"

enum { NSTAR = 100 };

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Smooth level of flux[NPIX], plainly: medians of 7 blocks, joined by straight lines, constant beyond the outer ones.
 */
static void level(const double *flux, const uint32_t *mask, double *out)
{
    enum { BLOCKS = NPIX / 64 };
    double at[BLOCKS], value[BLOCKS], sorted[NPIX];
    for (size_t b = 0; b < BLOCKS; b++) {
        const size_t first = b * NPIX / BLOCKS, end = (b + 1) * NPIX / BLOCKS;
        size_t n = 0;
        for (size_t i = first; i < end; i++)
            if (mask[i] == 0)
                sorted[n++] = flux[i];
        qsort(sorted, n, sizeof *sorted, by_value);
        at[b] = ((double)first + (double)end - 1) / 2;
        value[b] = (sorted[n / 2] + sorted[(n - 1) / 2]) / 2;
    }
    for (size_t i = 0; i < NPIX; i++) {
        const double x = (double)i;
        out[i] = x < at[0] ? value[0] : value[BLOCKS - 1];
        for (size_t b = 0; b + 1 < BLOCKS; b++)
            if (x >= at[b] && x < at[b + 1])
                out[i] = value[b] + (value[b + 1] - value[b]) * (x - at[b]) / (at[b + 1] - at[b]);
    }
}

static void fit(const spx_rvfit_input *in, const spx_rvfit_options *o, spx_rvfit *out)
{
    NEED(backend.rvfit(&backend, in, o, NULL, out, &need_e));
}

/* Objective with a given jitter: that of spectra whose ivar holds it. */
static void given(const spx_templates *t)
{
    static const double x[NQ] = {31, 20, 5300, -0.7, 0.4}, jitter[NARM] = {0.03, 0.004};
    double f, want, c[NPIX];
    spx_spectra s;
    spx_rvfit_options o;
    init(&o);
    alloc_spectra(&s, 1);
    draw(&s, 0, &(truth){30, 10, 5400, -0.8, 150});
    spx_rvfit_input in = input_of(&s, t);
    s.arm[0].mask[40] = s.arm[1].mask[3] = 1;
    o.jitter = 1;
    memcpy(o.jitter_of, jitter, sizeof jitter);
    NEED(spx_rvfit_objective(&in, &o, x, &f, NULL, &need_e));
    for (size_t a = 0; a < NARM; a++) {
        level(s.arm[a].flux, s.arm[a].mask, c);
        for (size_t i = 0; i < NPIX; i++)
            s.arm[a].ivar[i] = 1 / (1 / s.arm[a].ivar[i] + jitter[a] * jitter[a] * c[i] * c[i]);
    }
    o.jitter = 0;
    NEED(spx_rvfit_objective(&in, &o, x, &want, NULL, &need_e));
    CHECK(fabs(f - want) < 1e-9 * fabs(want), "objective %.12g, with errors that hold the jitter %.12g", f, want);
    o.jitter = 1;
    o.jitter_of[1] = -0.1;
    refused("negative jitter", SPX_EUSAGE, &in, &o);
    o.jitter_of[1] = 0.1;
    o.scale_errors = 1;
    refused("jitter and scaled errors", SPX_EUSAGE, &in, &o);
    free_spectra(&s);
}

/* Stars with noise beyond what ivar says in the first arm: independent, a fraction of the flux (`share`), or smoothed
 * over three pixels with the variance of ivar. */
static void draw_stars(spx_spectra *s, truth *put, double sn, double share, int smoothed)
{
    for (size_t i = 0; i < NSTAR; i++) {
        put[i] =
            (truth){-150 + 300 * uniform(), 0, 4700 + 1600 * uniform(), -1.5 + 1.2 * uniform(), smoothed ? 1e4 : sn};
        draw(s, i, &put[i]);
        for (size_t a = 0; a < NARM; a++) {
            double white[NPIX + 2];
            for (size_t k = 0; k < NPIX + 2; k++)
                white[k] = gauss();
            for (size_t k = 0; k < NPIX; k++) {
                double *f = &s->arm[a].flux[i * NPIX + k];
                *f += a == 0 ? share * *f * white[k] : 0;
                *f += smoothed ? (white[k] + white[k + 1] + white[k + 2]) / sqrt(3) / sn : 0;
                s->arm[a].ivar[i * NPIX + k] = sn * sn;
            }
        }
    }
}

/* Mean and standard deviation. */
static void moments(size_t n, const double *x, double *mean, double *sigma)
{
    double sum = 0, square = 0;
    for (size_t i = 0; i < n; i++)
        sum += x[i];
    *mean = sum / (double)n;
    for (size_t i = 0; i < n; i++)
        square += (x[i] - *mean) * (x[i] - *mean);
    *sigma = sqrt(square / (double)(n - 1));
}

/* Standard deviation of the pulls of velocities. */
static double pulls(const spx_rvfit *r, const truth *put)
{
    double p[NSTAR], mean, sigma;
    for (size_t i = 0; i < NSTAR; i++)
        p[i] = (r->star[i].vrad - put[i].v) / r->star[i].vrad_err;
    moments(NSTAR, p, &mean, &sigma);
    return sigma;
}

/* The statistical errors of a standard deviation of 100 values are 7 %, those of a mean 0.1 of it; limits are three. */
static void fitted(const spx_templates *t)
{
    static const double share = 0.02;
    static truth put[NSTAR];
    double jitter[NSTAR], pull[NSTAR], mean, sigma, other = 0;
    spx_spectra s;
    spx_rvfit_options o;
    spx_rvfit r, plain;
    init(&o);
    alloc_spectra(&s, NSTAR);
    draw_stars(&s, put, 200, share, 0);
    spx_rvfit_input in = input_of(&s, t);
    fit(&in, &o, &plain);
    o.jitter = 1;
    o.jitter_of[0] = o.jitter_of[1] = NAN;
    fit(&in, &o, &r);
    for (size_t i = 0; i < NSTAR; i++) {
        jitter[i] = r.star[i].jitter[0];
        pull[i] = (jitter[i] - share) / r.star[i].jitter_err[0];
        other += r.star[i].jitter[1] / NSTAR;
    }
    moments(NSTAR, jitter, &mean, &sigma);
    /* fluxes are of lines, too, while the jitter is of their median: 3 % */
    CHECK(fabs(mean / share - 1) < 0.03 + 0.3 * sigma / share, "jitter %g +- %g where %g was put in", mean,
          sigma / sqrt(NSTAR), share);
    moments(NSTAR, pull, &mean, &sigma);
    CHECK(sigma > 0.79 && sigma < 1.3, "pulls of the jitter have a standard deviation of %g", sigma);
    CHECK(other < 0.0015, "mean jitter %g where none was put in: the noise is 0.005", other);
    CHECK(pulls(&plain, put) > 1.6, "pulls %g without jitter", pulls(&plain, put));
    CHECK(fabs(pulls(&r, put) - 1) < 0.21, "pulls %g with jitter", pulls(&r, put));
    spx_rvfit_free(&r);
    spx_rvfit_free(&plain);
    free_spectra(&s);
}

/* Errors with independent noise, and with noise that neighbours share, of the same variance. */
static void shared_noise(const spx_templates *t, int smoothed)
{
    static truth put[NSTAR];
    double ratio = 0;
    spx_spectra s;
    spx_rvfit_options o;
    spx_rvfit r, plain;
    init(&o);
    alloc_spectra(&s, NSTAR);
    draw_stars(&s, put, 40, 0, smoothed);
    if (!smoothed) /* again: draw_stars() draws it once */
        for (size_t i = 0; i < NSTAR; i++)
            draw(&s, i, &put[i]);
    spx_rvfit_input in = input_of(&s, t);
    fit(&in, &o, &plain);
    o.jitter = 1;
    fit(&in, &o, &r);
    for (size_t i = 0; i < NSTAR; i++)
        ratio += r.star[i].vrad_err / plain.star[i].vrad_err / NSTAR;
    CHECK(smoothed ? pulls(&plain, put) > 1.3 : fabs(pulls(&plain, put) - 1) < 0.21,
          "pulls %g without jitter, noise %s", pulls(&plain, put), smoothed ? "smoothed" : "independent");
    CHECK(fabs(pulls(&r, put) - 1) < 0.21, "pulls %g, noise %s", pulls(&r, put), smoothed ? "smoothed" : "independent");
    /* never below the noise: the mean of what fluctuates about 1, cut there */
    CHECK(smoothed || (ratio >= 1 && ratio < 1.15), "errors are %g times those of independent noise", ratio);
    spx_rvfit_free(&r);
    spx_rvfit_free(&plain);
    free_spectra(&s);
}

/* A star whose lines no template has, once and four times: exposures share the misfit, and its error stays. */
static void shared_misfit(const spx_templates *t)
{
    enum { N = 4 };
    static const size_t first[3] = {0, 1, 1 + N};
    spx_spectra s;
    spx_rvfit_options o;
    spx_rvfit r;
    init(&o);
    alloc_spectra(&s, 1 + N);
    draw(&s, 0, &(truth){30, 0, 5400, -0.8, 2000});
    for (size_t a = 0; a < NARM; a++) {
        double *f = s.arm[a].flux;
        for (size_t k = 0; k < NPIX; k++)
            f[k] = *f > 0 ? pow(f[k], k / 40 % 2 ? 0.7 : 1.2) : f[k];
        for (size_t x = 1; x <= N; x++) {
            memcpy(f + x * NPIX, f, NPIX * sizeof *f);
            memcpy(s.arm[a].ivar + x * NPIX, s.arm[a].ivar, NPIX * sizeof *s.arm[a].ivar);
        }
    }
    spx_rvfit_input in = input_of(&s, t);
    in.nstar = 2;
    in.first = first;
    o.jitter = 1;
    o.jitter_of[0] = o.jitter_of[1] = NAN;
    fit(&in, &o, &r);
    CHECK(r.star[0].jitter[0] > 0.01, "jitter %g of lines that no template has", r.star[0].jitter[0]);
    CHECK(fabs(r.star[1].vrad_err / r.star[0].vrad_err - 1) < 0.05, "error %g of one exposure, %g of four",
          r.star[0].vrad_err, r.star[1].vrad_err);
    spx_rvfit_free(&r);
    free_spectra(&s);
}

/* Stars whose lines are all too shallow alike, by light of another source, at nodes of the templates and with
 * parameters held: the misfit is large and displaces nothing, errors of velocities are those of noise. */
static void too_shallow(const spx_templates *t)
{
    enum { N = 20 };
    truth put[N];
    double ratio = 0;
    spx_spectra s;
    spx_rvfit_options o;
    spx_rvfit r, plain;
    init(&o);
    alloc_spectra(&s, N);
    for (size_t i = 0; i < N; i++) {
        put[i] = (truth){-150 + 300 * uniform(), 0, TEFF[1], FEH[1], 1000};
        draw(&s, i, &put[i]);
        for (size_t a = 0; a < NARM; a++)
            for (size_t k = 0; k < NPIX; k++) {
                double *f = &s.arm[a].flux[i * NPIX + k];
                *f = 0.8 * *f + 0.2;
            }
    }
    for (size_t q = 1; q < 2 + NPAR; q++)
        o.fixed[q] = 1;
    o.value[2] = TEFF[1];
    o.value[3] = FEH[1];
    spx_rvfit_input in = input_of(&s, t);
    fit(&in, &o, &plain);
    o.jitter = 1;
    o.jitter_of[0] = o.jitter_of[1] = NAN;
    fit(&in, &o, &r);
    for (size_t i = 0; i < N; i++) {
        CHECK(r.star[i].jitter[0] > 0.005, "jitter %g of lines that are too shallow", r.star[i].jitter[0]);
        ratio += r.star[i].vrad_err / plain.star[i].vrad_err / N;
    }
    /* pairs of clusters that share what their ends are wrong by: 1.6 where they are taken as independent */
    CHECK(ratio < 1.3, "errors of velocities are %g times those of noise, of lines that are all too shallow alike",
          ratio);
    spx_rvfit_free(&r);
    spx_rvfit_free(&plain);
    free_spectra(&s);
}

/* Stars that hardly rotate, whose steps along vsini end at 0: errors are those of the curvature where noise is all that
 * there is, and the same bits when repeated, whatever the stars beside them. */
static void slow_rotators(const spx_templates *t)
{
    enum { N = 300 };
    spx_spectra s;
    spx_rvfit_options o;
    spx_rvfit plain, r, again;
    size_t slow = 0;
    double most = 0;
    init(&o);
    alloc_spectra(&s, N);
    for (size_t i = 0; i < N; i++)
        draw(&s, i, &(truth){-200 + 400 * uniform(), 8 * uniform(), 4600 + 1800 * uniform(), -1.8 * uniform(), 40});
    spx_rvfit_input in = input_of(&s, t);
    fit(&in, &o, &plain);
    o.jitter = 1; /* of 0 */
    fit(&in, &o, &r);
    fit(&in, &o, &again);
    CHECK(memcmp(r.star, again.star, N * sizeof *r.star) == 0, "slow rotators are not the same when repeated");
    for (size_t i = 0; i < N; i++) {
        const spx_rvfit_star *a = &plain.star[i], *b = &r.star[i];
        slow += a->vsini > 0 && a->vsini < a->vsini_err;
        most = fmax(most, fmax(b->vsini_err / a->vsini_err, b->vrad_err / a->vrad_err));
        for (size_t p = 0; p < NPAR; p++)
            most = a->par_err[p] > 0 ? fmax(most, b->par_err[p] / a->par_err[p]) : most;
    }
    CHECK(slow > N / 20, "%zu slow rotators", slow);
    CHECK(most < 2, "errors of stars without misfit are %g times those of the curvature", most);
    spx_rvfit_free(&plain);
    spx_rvfit_free(&r);
    spx_rvfit_free(&again);
    free_spectra(&s);
}

static void body(spx_templates *t)
{
    given(t);
    slow_rotators(t);
    fitted(t);
    shared_noise(t, 0);
    shared_noise(t, 1);
    shared_misfit(t);
    too_shallow(t);
}

int main(void)
{
    return rv_test(body);
}
