/* Checks kernel `rvfit` on stars of several exposures: their objective is the sum of those of the exposures, the same
 * spectrum twice has errors smaller by sqrt 2, two exposures are as good as their coadd, bad exposures change nothing,
 * curves of the cross-correlation add up, and exposures or arms of another velocity are found. */
#include "rv_stars.h"

static int close_to(double a, double b, double tol)
{
    return fabs(a - b) <= tol;
}

static void fit(const spx_rvfit_input *in, const spx_rvfit_options *o, spx_rvfit *out)
{
    NEED(backend.rvfit(&backend, in, o, NULL, out, &need_e));
}

static void copy_row(spx_spectra *s, size_t from, size_t to)
{
    for (size_t a = 0; a < s->narm; a++) {
        memcpy(s->arm[a].flux + to * NPIX, s->arm[a].flux + from * NPIX, NPIX * sizeof(double));
        memcpy(s->arm[a].ivar + to * NPIX, s->arm[a].ivar + from * NPIX, NPIX * sizeof(double));
    }
}

/* Resolution matrices of another width for each row. */
static void blur(spx_spectra *s)
{
    enum { ND = 7 };
    for (size_t a = 0; a < s->narm; a++) {
        spx_arm *m = &s->arm[a];
        m->ndiag = ND;
        m->resolution = spx_alloc2(s->nspec, ND * NPIX, sizeof *m->resolution, NULL);
        if (!m->resolution)
            exit(1);
        for (size_t row = 0; row < s->nspec; row++)
            for (size_t d = 0; d < ND; d++)
                for (size_t i = 0; i < NPIX; i++) {
                    double sigma = 1.3 + 0.2 * (double)row + 0.1 * (double)a, z = ((double)d - ND / 2) / sigma;
                    m->resolution[(row * ND + d) * NPIX + i] = exp(-0.5 * z * z) / (sqrt(2 * M_PI) * sigma);
                }
    }
}

/* Without prior and inside the grid the objective of a star is the sum over its exposures, and so is its gradient, also
 * with a resolution matrix for each. */
static void sums(const spx_templates *t, int resolution)
{
    enum { N = 3 };
    static const size_t first[2] = {0, N}, row[N] = {2, 0, 1};
    static const double x[NQ] = {31, 20, 5300, -0.7, 0.4};
    double each[N], grad[N * NQ], joint, joint_grad[NQ], points[N * NQ];
    spx_spectra s;
    spx_rvfit_options o;
    init(&o);
    alloc_spectra(&s, N);
    for (size_t i = 0; i < N; i++) {
        draw(&s, i, &(truth){30, 10, 5400, -0.8, 20 + 10 * (double)i});
        memcpy(points + i * NQ, x, sizeof x);
    }
    s.arm[0].mask[NPIX + 3] = 1;
    if (resolution)
        blur(&s);
    o.resolution = resolution;
    spx_rvfit_input in = input_of(&s, t);
    in.row = row;
    NEED(spx_rvfit_objective(&in, &o, points, each, grad, &need_e));
    in.nstar = 1;
    in.first = first;
    NEED(spx_rvfit_objective(&in, &o, points, &joint, joint_grad, &need_e));
    CHECK(close_to(joint, each[0] + each[1] + each[2], 1e-9 * fabs(joint)), "objective %.12g of %.12g + %.12g + %.12g",
          joint, each[0], each[1], each[2]);
    for (size_t q = 0; q < NQ; q++) {
        double sum = grad[q] + grad[NQ + q] + grad[2 * NQ + q];
        CHECK(close_to(joint_grad[q], sum, 1e-8 * (1 + fabs(grad[q]) + fabs(sum))), "gradient by %zu: %.12g, sum %.12g",
              q, joint_grad[q], sum);
    }
    free_spectra(&s);
}

static void same_spectrum_twice(const spx_templates *t)
{
    static const size_t first[3] = {0, 1, 3}, row[3] = {0, 0, 1};
    spx_spectra s;
    spx_rvfit_options o;
    spx_rvfit r;
    init(&o);
    alloc_spectra(&s, 2);
    draw(&s, 0, &(truth){-55, 60, 5600, -0.6, 40});
    copy_row(&s, 0, 1);
    spx_rvfit_input in = input_of(&s, t);
    in.nrow = 3;
    in.row = row;
    in.nstar = 2;
    in.first = first;
    fit(&in, &o, &r);
    const spx_rvfit_star *one = &r.star[0], *two = &r.star[1];
    CHECK(r.nstar == 2 && r.nrow == 3 && one->nexp == 1 && two->nexp == 2, "%zu stars of %zu spectra, exposures %d, %d",
          r.nstar, r.nrow, one->nexp, two->nexp);
    CHECK(close_to(two->neg2logl, 2 * one->neg2logl, 0.01), "objective %.9g twice, %.9g once", two->neg2logl,
          one->neg2logl);
    CHECK(close_to(two->vrad, one->vrad, 0.02 * one->vrad_err), "v %g, %g +- %g", two->vrad, one->vrad, one->vrad_err);
    CHECK(close_to(two->vrad_err * sqrt(2), one->vrad_err, 0.02 * one->vrad_err), "error of v %g twice, %g once",
          two->vrad_err, one->vrad_err);
    for (size_t q = 0; q < NQ; q++)
        CHECK(close_to(2 * two->covar[q * NQ + q], one->covar[q * NQ + q], 0.05 * one->covar[q * NQ + q]),
              "variance of %zu: %g twice, %g once", q, two->covar[q * NQ + q], one->covar[q * NQ + q]);
    CHECK(two->npix == 2 * one->npix && close_to(two->chisq, 2 * one->chisq, 0.01), "%d and %d pixels, chi2 %g and %g",
          (int)two->npix, (int)one->npix, two->chisq, one->chisq);
    for (size_t a = 0; a < NARM; a++) {
        CHECK(close_to(two->sn[a], sqrt(2) * one->sn[a], 1e-9 * one->sn[a]), "S/N %g and %g", two->sn[a], one->sn[a]);
        CHECK(r.exposure[1].chisq[a] == r.exposure[2].chisq[a] && r.exposure[1].sn[a] == one->sn[a] &&
                  memcmp(r.arm[a].model + NPIX, r.arm[a].model + 2 * NPIX, NPIX * sizeof(float)) == 0,
              "the same spectrum has different models");
    }
    spx_rvfit_free(&r);
    free_spectra(&s);
}

/* Exposures of different depth and continuum against their mean weighted by ivar. */
static void coadd(const spx_templates *t)
{
    enum { NSTAR = 6 };
    size_t first[2 * NSTAR + 1], row[3 * NSTAR];
    spx_spectra s;
    spx_rvfit_options o;
    spx_rvfit r;
    init(&o);
    o.threads = 2;
    alloc_spectra(&s, 3 * NSTAR);
    for (size_t i = 0; i < NSTAR; i++) {
        truth star = {-300 + 110 * (double)i, 10, 4900 + 250 * (double)i, -0.9 + 0.1 * (double)i, 25};
        draw(&s, 3 * i, &star);
        star.sn = 40;
        draw(&s, 3 * i + 1, &star);
        for (size_t a = 0; a < NARM; a++)
            for (size_t k = 0; k < NPIX; k++) {
                double *f = s.arm[a].flux + 3 * i * NPIX + k, *v = s.arm[a].ivar + 3 * i * NPIX + k;
                v[2 * NPIX] = v[0] + v[NPIX];
                f[2 * NPIX] = (f[0] * v[0] + f[NPIX] * v[NPIX]) / v[2 * NPIX];
                double tilt = 3 - 4e-3 * (double)k; /* of one exposure: the continuum's business */
                f[NPIX] *= tilt;
                v[NPIX] /= tilt * tilt;
            }
        first[2 * i] = 3 * i;
        first[2 * i + 1] = 3 * i + 2;
    }
    first[2 * NSTAR] = 3 * NSTAR;
    for (size_t i = 0; i < 3 * NSTAR; i++)
        row[i] = i;
    spx_rvfit_input in = input_of(&s, t);
    in.row = row;
    in.nstar = 2 * NSTAR;
    in.first = first;
    fit(&in, &o, &r);
    for (size_t i = 0; i < NSTAR; i++) {
        const spx_rvfit_star *joint = &r.star[2 * i], *sum = &r.star[2 * i + 1];
        CHECK(close_to(joint->vrad, sum->vrad, 0.3 * sum->vrad_err), "star %zu: v %g jointly, %g +- %g of the coadd", i,
              joint->vrad, sum->vrad, sum->vrad_err);
        CHECK(close_to(joint->vrad_err, sum->vrad_err, 0.1 * sum->vrad_err), "star %zu: error of v %g, %g", i,
              joint->vrad_err, sum->vrad_err);
        for (size_t p = 0; p < 2; p++)
            CHECK(close_to(joint->par[p], sum->par[p], 0.5 * sum->par_err[p]), "star %zu: parameter %zu %g, %g +- %g",
                  i, p, joint->par[p], sum->par[p], sum->par_err[p]);
    }
    spx_rvfit_free(&r);
    free_spectra(&s);
}

/* A star with an exposure that cannot be used, beside it as if that were not there; many exposures; none. */
static void odd_stars(const spx_templates *t)
{
    enum { MANY = 9 };
    static const size_t first[] = {0, 1, 3, 3, 3 + MANY, 4 + MANY}, row[4 + MANY] = {0, 0, 1, [3 + MANY] = 2};
    spx_spectra s;
    spx_rvfit_options o;
    spx_rvfit r, again;
    init(&o);
    o.reject = 1;
    alloc_spectra(&s, 3);
    draw(&s, 0, &(truth){70, 0, 5200, -0.5, 30});
    draw(&s, 1, &(truth){70, 0, 5200, -0.5, 30});
    draw(&s, 2, &(truth){-10, 0, 6100, -0.3, 30});
    for (size_t a = 0; a < NARM; a++)
        memset(s.arm[a].ivar + NPIX, 0, NPIX * sizeof(double));
    spx_rvfit_input in = input_of(&s, t);
    in.nrow = 4 + MANY;
    in.row = row;
    in.nstar = 5;
    in.first = first;
    fit(&in, &o, &r);
    CHECK(r.star[1].nexp == 1 && r.exposure[2].npix == 0 && r.star[1].vrad == r.star[0].vrad &&
              memcmp(r.star[1].covar, r.star[0].covar, sizeof r.star[0].covar) == 0,
          "a bad exposure changes the star: v %.17g, %.17g", r.star[1].vrad, r.star[0].vrad);
    CHECK(r.star[2].warn == SPX_RVS_BAD && isnan(r.star[2].vrad), "a star without an exposure");
    CHECK(r.star[3].nexp == MANY &&
              close_to(r.star[3].vrad_err * sqrt(MANY), r.star[0].vrad_err, 0.05 * r.star[0].vrad_err),
          "%d exposures, error %g, one %g", r.star[3].nexp, r.star[3].vrad_err, r.star[0].vrad_err);
    for (size_t a = 0; a < NARM; a++)
        for (size_t k = 0; k < NPIX; k++)
            if (r.arm[a].model[2 * NPIX + k] != 0)
                CHECK(0, "model of an exposure that was not used");
    o.threads = 3;
    fit(&in, &o, &again);
    CHECK(memcmp(again.star, r.star, 5 * sizeof *r.star) == 0, "threads change the result");
    spx_rvfit_free(&again);
    in.nrow = 1;
    in.row = row + 3 + MANY;
    in.first = NULL;
    fit(&in, &o, &again);
    CHECK(again.star[0].vrad == r.star[4].vrad && again.star[0].neg2logl == r.star[4].neg2logl,
          "a star depends on what is fitted beside it: %.17g, %.17g", again.star[0].vrad, r.star[4].vrad);
    spx_rvfit_free(&again);
    spx_rvfit_free(&r);
    free_spectra(&s);
}

/* The fit as it is, with rejection (1), with a jitter (2). */
static void fit_as(int look, const spx_rvfit_input *in, spx_rvfit *out)
{
    spx_rvfit_options o;
    init(&o);
    o.reject = look == 1;
    o.jitter = look == 2;
    fit(in, &o, out);
}

/* Exposures of one velocity are as one; where one of them has another, the star says so: whatever their order, also
 * where an arm of it is missing, and where its pixels are looked at by others. */
static void other_velocity(const spx_templates *t)
{
    enum { EXPOSURES = 3, STARS = 8 };
    static const double off[STARS] = {0, 60, -60, 300, 0, 60, -900, 0};
    size_t first[STARS + 1];
    spx_spectra s;
    alloc_spectra(&s, STARS * EXPOSURES);
    for (size_t i = 0; i <= STARS; i++)
        first[i] = i * EXPOSURES;
    for (size_t i = 0; i < STARS * EXPOSURES; i++) {
        const size_t star = i / EXPOSURES, other = star % EXPOSURES;
        draw(&s, i, &(truth){10 + (i % EXPOSURES == other ? off[star] : 0), 0, 5300, -0.5, 40});
        for (size_t k = 0; k < NPIX && star == 5 && i % EXPOSURES == other; k++)
            s.arm[0].ivar[i * NPIX + k] = 0;
    }
    for (int look = 0; look < 3; look++) {
        spx_rvfit r;
        spx_rvfit_input in = input_of(&s, t);
        in.first = first;
        in.nstar = STARS;
        fit_as(look, &in, &r);
        for (size_t i = 0; i < STARS; i++)
            CHECK(!(r.star[i].warn & SPX_RVS_EXPOSURES) == (off[i] == 0),
                  "exposure of star %zu by %g km/s: RVS_WARN %d", i, off[i], (int)r.star[i].warn);
        spx_rvfit_free(&r);
    }
    free_spectra(&s);
}

/* Arms of one velocity are as one, also where one is off by what a calibration may be; where one has another velocity,
 * the star says which and by how much, wherever between them the fit has settled: of stars of one and two exposures,
 * whose rows are their own or looked at by others. */
static void other_arm(const spx_templates *t)
{
    enum { STARS = 8 };
    static const double off[STARS] = {0, -83, 83, 10, -83, 0, 50, -83};
    static const size_t first[STARS + 1] = {0, 1, 2, 3, 4, 5, 6, 7, 9};
    const size_t nrow = first[STARS];
    spx_spectra s;
    alloc_spectra(&s, nrow + 1);
    for (size_t i = 0; i < nrow; i++) {
        const size_t star = i < STARS ? i : STARS - 1;
        truth put = {10, star == 4 ? 60 : 5, 5000 + 150 * (double)star, -0.5, 40};
        draw(&s, i, &put);
        put.v += off[star];
        draw(&s, nrow, &put);
        memcpy(s.arm[0].flux + i * NPIX, s.arm[0].flux + nrow * NPIX, NPIX * sizeof(double));
    }
    for (int look = 0; look < 3; look++) {
        spx_rvfit r;
        spx_rvfit_input in = input_of(&s, t);
        in.first = first;
        in.nstar = STARS;
        in.nrow = nrow;
        fit_as(look, &in, &r);
        for (size_t i = 0; i < STARS; i++) {
            const spx_rvfit_star *star = &r.star[i];
            const int flagged = (star->warn & SPX_RVS_ARMS) != 0;
            CHECK(flagged == (fabs(off[i]) > 25), "arm b of star %zu by %g km/s: RVS_WARN %d", i, off[i],
                  (int)star->warn);
            /* of two arms, each is odd to the other */
            CHECK(!flagged || close_to(star->odd_arm == 0 ? star->odd_by : -star->odd_by, off[i], 10),
                  "arm b of star %zu by %g km/s: found %g of arm %d", i, off[i], star->odd_by, (int)star->odd_arm);
        }
        spx_rvfit_free(&r);
    }
    free_spectra(&s);
}

/* Curves of the pieces add up to what the start was found with: their sum has its maximum there. */
static void kept_ccf(const spx_templates *t)
{
    static const size_t first[2] = {0, 2};
    static const double start[2 * NQ] = {140, 5, 5500, -0.5, 0.4, 0, 5, 5500, -0.5, 0.4};
    spx_spectra s;
    spx_rvfit_options o;
    spx_rvfit r;
    init(&o);
    o.keep_ccf = 1;
    alloc_spectra(&s, 2);
    draw(&s, 0, &(truth){140, 0, 5500, -0.5, 20});
    draw(&s, 1, &(truth){140, 0, 5500, -0.5, 30});
    spx_rvfit_input in = input_of(&s, t);
    for (int joint = 0; joint < 2; joint++) {
        if (joint) {
            in.nstar = 1;
            in.first = first;
        } else {
            in.start = start;
        }
        fit(&in, &o, &r);
        CHECK(r.nlag > 100 && r.lag_v0 == o.vmin && r.star[0].ccf_entry >= 0, "no curves");
        for (size_t k = 0; k < r.nstar; k++) {
            size_t top = 0;
            double best = -1;
            for (size_t i = 0; i < r.nlag; i++) {
                double sum = 0;
                for (size_t j = r.first[k]; j < r.first[k + 1]; j++)
                    for (size_t a = 0; a < NARM; a++)
                        sum += (double)r.arm[a].ccf[j * r.nlag + i];
                if (sum > best) {
                    best = sum;
                    top = i;
                }
            }
            double v = r.lag_v0 + (double)top * r.lag_step, gain = r.star[k].chisq_c - r.star[k].chisq;
            CHECK(close_to(v, r.star[k].vrad_ccf, r.lag_step), "curves have their top at %g, the start is %g", v,
                  r.star[k].vrad_ccf);
            CHECK(best > 0.5 * gain && best < 1.5 * gain, "gain in chi2 %g by the curves, %g by the fit", best, gain);
        }
        in.start = NULL;
        spx_rvfit_free(&r);
    }
    free_spectra(&s);
}

/* Starts from the objective on a grid lead to the same minima. */
static void brute_force(const spx_templates *t)
{
    spx_spectra s;
    spx_rvfit_options o;
    spx_rvfit r, brute;
    init(&o);
    o.vmin = -200;
    o.vmax = 200;
    alloc_spectra(&s, 2);
    draw(&s, 0, &(truth){-90, 0, 6200, -0.4, 30});
    draw(&s, 1, &(truth){33, 60, 4800, -1.2, 30});
    spx_rvfit_input in = input_of(&s, t);
    fit(&in, &o, &r);
    o.brute = 1;
    fit(&in, &o, &brute);
    for (size_t i = 0; i < 2; i++)
        CHECK(brute.star[i].neg2logl < r.star[i].neg2logl + 0.01 && isnan(brute.star[i].vrad_ccf),
              "star %zu: objective %.9g by brute force, %.9g by cross-correlation", i, brute.star[i].neg2logl,
              r.star[i].neg2logl);
    spx_rvfit_free(&r);
    spx_rvfit_free(&brute);
    free_spectra(&s);
}

static void refusals(const spx_templates *t)
{
    static const size_t lists[][3] = {{1, 1, 2}, {0, 1, 1}, {0, 3, 2}};
    spx_spectra s;
    spx_rvfit_options o;
    spx_rvfit r;
    init(&o);
    alloc_spectra(&s, 2);
    spx_rvfit_input in = input_of(&s, t);
    in.nstar = 2;
    for (size_t k = 0; k < sizeof lists / sizeof *lists; k++) {
        spx_err e = {0};
        in.first = lists[k];
        spx_status st = backend.rvfit(&backend, &in, &o, NULL, &r, &e);
        CHECK(st == SPX_EINPUT && e.text[0] != '\0' && r.star == NULL, "list %zu of exposures: status %d", k, (int)st);
    }
    free_spectra(&s);
}

static void body(spx_templates *t)
{
    static const spx_interpolator all[] = {SPX_INTERPOLATE_CUBIC, SPX_INTERPOLATE_GRID};
    for (size_t k = 0; k < sizeof all / sizeof *all; k++) {
        interpolator = all[k];
        sums(t, 0);
        sums(t, 1);
        same_spectrum_twice(t);
        odd_stars(t);
        other_velocity(t);
        other_arm(t);
    }
    interpolator = SPX_INTERPOLATE_CUBIC;
    coadd(t);
    kept_ccf(t);
    brute_force(t);
    refusals(t);
}

int main(void)
{
    return rv_test(body);
}
