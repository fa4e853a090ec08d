/* Checks kernel `rvfit` on the device $SPX_TEST_DEVICE against the CPU, star by star: random options, interpolators,
 * priors, fixed quantities, masks, rejected pixels, resolution matrices, jitters, exposures and their velocities,
 * curves of the cross-correlation. The minimum is the same: the objective to 1e-4, the velocity to 1e-3 of its error.
 * With little memory the result is the same to the bit, with too little it is refused. A minimum on a face between
 * simplices is one whatever the rounding, with the curvature of either side. */
#include "rv_stars.h"

enum { NSTAR = 6, NTRIAL = 12, SMALL = 5, NDIAG = 7 };

/* For sanitizers: a trial of each interpolator, once. */
static int small;

/* A resolution matrix that is a Gaussian of `sigma` pixels. */
static void add_resolution(spx_spectra *s, double sigma)
{
    for (size_t a = 0; a < s->narm; a++) {
        spx_arm *m = &s->arm[a];
        double w[NDIAG], sum = 0;
        m->ndiag = NDIAG;
        m->resolution = need(s->nspec * NDIAG * NPIX, sizeof *m->resolution);
        for (int k = 0; k < NDIAG; k++)
            sum += w[k] = exp(-0.5 * pow((k - NDIAG / 2) / sigma, 2));
        for (size_t i = 0; i < s->nspec * NDIAG * NPIX; i++)
            m->resolution[i] = w[i / NPIX % NDIAG] / sum;
    }
}

/* A network whose hidden layer is made of random numbers and whose last one fits the templates' coefficients. */
static void add_network(spx_setup *s)
{
    enum { HIDDEN = 9, IN = NPAR };
    const spx_pca *p = &s->pca;
    spx_nn *nn = &s->nn;
    size_t nc = p->ncomp;
    *nn = (spx_nn){.nlayer = 2, .size = {IN, HIDDEN, nc}, .activation = SPX_NN_SILU};
    nn->weight = need(IN * HIDDEN + HIDDEN * nc, sizeof *nn->weight);
    nn->bias = need(HIDDEN + nc, sizeof *nn->bias);
    for (size_t q = 0; q < IN; q++) {
        double lo = s->axis[q][0], hi = s->axis[q][s->naxis[q] - 1];
        nn->lo[q] = s->parlog[q] ? log10(lo) : lo;
        nn->hi[q] = s->parlog[q] ? log10(hi) : hi;
        nn->offset[q] = 0.5 * (nn->lo[q] + nn->hi[q]);
        nn->scale[q] = hi > lo ? 2 / (nn->hi[q] - nn->lo[q]) : 0;
    }
    for (size_t i = 0; i < IN * HIDDEN; i++)
        nn->weight[i] = (float)gauss();
    for (size_t i = 0; i < HIDDEN; i++)
        nn->bias[i] = (float)gauss();
    /* linear least squares for each component, by Gauss-Jordan on normal equations with a little damping */
    double a[HIDDEN + 1][HIDDEN + 1] = {{0}}, *b = need((HIDDEN + 1) * nc, sizeof *b);
    for (size_t t = 0; t < s->ntemp; t++) {
        double h[HIDDEN + 1] = {0};
        for (size_t i = 0; i < HIDDEN; i++) {
            double y = (double)nn->bias[i];
            for (size_t q = 0; q < IN; q++) {
                double x = s->params[t * IN + q];
                y += (double)nn->weight[i * IN + q] * ((s->parlog[q] ? log10(x) : x) - nn->offset[q]) * nn->scale[q];
            }
            h[i] = y / (1 + exp(-y));
        }
        h[HIDDEN] = 1;
        for (size_t i = 0; i <= HIDDEN; i++) {
            for (size_t j = 0; j <= HIDDEN; j++)
                a[i][j] += h[i] * h[j] + (i == j ? 1e-6 : 0);
            for (size_t k = 0; k < nc; k++)
                b[i * nc + k] += h[i] * p->coef[t * nc + k];
        }
    }
    for (size_t i = 0; i <= HIDDEN; i++)
        for (size_t r = 0; r <= HIDDEN; r++) {
            double f = r == i ? 0 : a[r][i] / a[i][i];
            for (size_t j = 0; j <= HIDDEN && f != 0; j++)
                a[r][j] -= f * a[i][j];
            for (size_t k = 0; k < nc && f != 0; k++)
                b[r * nc + k] -= f * b[i * nc + k];
        }
    for (size_t k = 0; k < nc; k++) {
        for (size_t i = 0; i < HIDDEN; i++)
            nn->weight[IN * HIDDEN + k * HIDDEN + i] = (float)(b[i * nc + k] / a[i][i]);
        nn->bias[HIDDEN + k] = (float)(b[HIDDEN * nc + k] / a[HIDDEN][HIDDEN]);
    }
    spx_free(b);
}

static int chance(double p)
{
    return uniform() < p;
}

/* Something that users may ask for. */
static void random_options(spx_rvfit_options *o, int trial)
{
    static const size_t npoly[] = {10, 1, 3, 7, 8, 10, 15, 16, 23, 24, 31, 32};
    init(o);
    o->npoly = npoly[trial % 12];
    o->continuum = chance(0.4)                    ? SPX_CONTINUUM_SPLINE
                   : o->npoly > 16 || chance(0.5) ? SPX_CONTINUUM_CHEBYSHEV
                                                  : SPX_CONTINUUM_RBF;
    o->vsinimax = chance(0.2) ? 0 : (chance(0.3) ? 1500 : 500);
    o->dichroic = chance(0.5);
    o->resolution = trial % 3 == 2;
    o->reject = chance(0.3) ? 2 : 0;
    o->brute = trial == 6;
    if (o->brute) { /* a few velocities are enough */
        o->vmin = -210;
        o->vmax = 210;
    }
    if (trial == 2 || trial == 5) /* such a scan is one of lines, for matrices, too */
        o->continuum = SPX_CONTINUUM_SPLINE;
    o->jitter = trial % 4 == 1;
    if (trial == 5)
        o->jitter_of[0] = 0.02;
    o->threads = 1 + trial % 3;
    o->keep_model = trial % 4 != 3;
    o->keep_ccf = trial % 3 == 0 || trial == 5;
    for (size_t q = 0; q < NQ; q++)
        if (chance(0.15)) {
            o->prior_mean[q] = (double[]){20, 30, 5400, -0.7, 0}[q];
            o->prior_sigma[q] = (double[]){300, 50, 300, 0.5, 1}[q];
        }
    if (chance(0.3)) {
        o->fixed[2] = 1;
        o->value[2] = 5350;
    }
    if (chance(0.2)) {
        o->fixed[0] = 1;
        o->value[0] = 3;
    }
}

static int near_to(double a, double b, double tol)
{
    return a == b || (isnan(a) && isnan(b)) || fabs(a - b) <= tol;
}

static void compare(const spx_rvfit *d, size_t k, const spx_rvfit *c, int trial)
{
    const spx_rvfit_star *a = &d->star[k], *b = &c->star[0];
    size_t nq = 2 + d->npar;
    CHECK(a->npix == b->npix && a->nreject == b->nreject && a->nexp == b->nexp && a->success == b->success,
          "trial %d, star %zu: pixels %d, %d; rejected %d, %d; success %d, %d", trial, k, (int)a->npix, (int)b->npix,
          (int)a->nreject, (int)b->nreject, a->success, b->success);
    CHECK(a->warn == b->warn, "trial %d, star %zu: RVS_WARN %d, %d", trial, k, (int)a->warn, (int)b->warn);
    CHECK(near_to(a->neg2logl, b->neg2logl, 1e-4), "trial %d, star %zu: objective %.9g, %.9g", trial, k, a->neg2logl,
          b->neg2logl);
    CHECK(near_to(a->vrad, b->vrad, 1e-3 * b->vrad_err), "trial %d, star %zu: v %.9g, %.9g +- %.3g", trial, k, a->vrad,
          b->vrad, b->vrad_err);
    CHECK(near_to(a->vsini, b->vsini, 1e-3 + 1e-2 * b->vsini_err), "trial %d, star %zu: vsini %.9g, %.9g +- %.3g",
          trial, k, a->vsini, b->vsini, b->vsini_err);
    for (size_t p = 0; p < d->npar; p++)
        CHECK(near_to(a->par[p], b->par[p], 1e-2 * b->par_err[p]), "trial %d, star %zu: parameter %zu %.9g, %.9g",
              trial, k, p, a->par[p], b->par[p]);
    CHECK(near_to(a->vrad_err, b->vrad_err, 2e-3 * b->vrad_err) && near_to(a->vrad_ccf, b->vrad_ccf, 1e-2),
          "trial %d, star %zu: error %.9g, %.9g, start %g, %g", trial, k, a->vrad_err, b->vrad_err, a->vrad_ccf,
          b->vrad_ccf);
    CHECK(near_to(a->chisq, b->chisq, 1e-2) && near_to(a->chisq_c, b->chisq_c, 1e-7 * b->chisq_c),
          "trial %d, star %zu: chi^2 %.9g, %.9g; continuum %.9g, %.9g", trial, k, a->chisq, b->chisq, a->chisq_c,
          b->chisq_c);
    for (size_t i = 0; i < d->narm && d->with_jitter; i++)
        CHECK(near_to(a->jitter[i], b->jitter[i], 1e-3 * b->jitter_err[i] + 1e-9) &&
                  near_to(a->jitter_err[i], b->jitter_err[i], 1e-3 * b->jitter_err[i]),
              "trial %d, star %zu, arm %zu: jitter %.9g +- %.3g, %.9g +- %.3g", trial, k, i, a->jitter[i],
              a->jitter_err[i], b->jitter[i], b->jitter_err[i]);
    for (size_t i = 0; i < nq * nq; i++) {
        double size = sqrt(b->covar[i / nq * nq + i / nq] * b->covar[i % nq * nq + i % nq]);
        CHECK(near_to(a->covar[i], b->covar[i], 2e-3 * size), "trial %d, star %zu: covariance %zu: %.9g, %.9g", trial,
              k, i, a->covar[i], b->covar[i]);
    }
    for (size_t r = 0; r + d->first[k] < d->first[k + 1]; r++)
        for (size_t arm = 0; arm < d->narm; arm++)
            for (size_t i = 0; d->arm[arm].model && i < NPIX; i++) {
                double x = (double)d->arm[arm].model[(d->first[k] + r) * NPIX + i];
                double y = (double)c->arm[arm].model[r * NPIX + i];
                CHECK(near_to(x, y, 1e-3), "trial %d, star %zu: model %g, %g at %zu", trial, k, x, y, i);
            }
}

/* Velocities of the exposures of a star. */
static void compare_exposures(const spx_rvfit *d, size_t k, const spx_rvfit *c, int trial)
{
    static const double FAR = 100;
    for (size_t r = 0; r + d->first[k] < d->first[k + 1]; r++) {
        const spx_rvfit_exposure *a = &d->exposure[d->first[k] + r], *b = &c->exposure[r];
        CHECK(a->warn == b->warn && near_to(a->vrad, b->vrad, 1e-3 * b->vrad_err) &&
                  near_to(a->vrad_err, b->vrad_err, 2e-3 * b->vrad_err),
              "trial %d, star %zu, exposure %zu: v %.9g +- %.6g, EPOCH_WARN %d; %.9g +- %.6g, %d", trial, k, r, a->vrad,
              a->vrad_err, (int)a->warn, b->vrad, b->vrad_err, (int)b->warn);
        /* of minima far above, scans in single and double precision may choose others */
        CHECK((a->dchisq_alt > FAR && b->dchisq_alt > FAR) ||
                  (near_to(a->vrad_alt, b->vrad_alt, 0.1) && near_to(a->dchisq_alt, b->dchisq_alt, 0.1)),
              "trial %d, star %zu, exposure %zu: other minimum %g, %g; %g, %g above", trial, k, r, a->vrad_alt,
              b->vrad_alt, a->dchisq_alt, b->dchisq_alt);
        for (size_t i = 0; i < d->narm; i++)
            CHECK(near_to(a->weight[i], b->weight[i], 1e-3), "trial %d, star %zu, exposure %zu: weights %g, %g", trial,
                  k, r, a->weight[i], b->weight[i]);
    }
    CHECK(near_to(d->star[k].const_chisq, c->star[0].const_chisq, 1e-2 * (1 + c->star[0].const_chisq)) &&
              near_to(d->star[k].const_dof, c->star[0].const_dof, 0),
          "trial %d, star %zu: constant by %g, %g", trial, k, d->star[k].const_chisq, c->star[0].const_chisq);
}

/* Curves of the cross-correlation of a star. Sums of single precision over some hundred components and frequencies, in
 * another order: 1e-5 of the largest. */
static void compare_curves(const spx_rvfit *d, size_t k, size_t a, const spx_rvfit *c, int trial)
{
    CHECK(d->star[k].ccf_entry == c->star[0].ccf_entry, "trial %d, star %zu: entry %d, %d", trial, k,
          (int)d->star[k].ccf_entry, (int)c->star[0].ccf_entry);
    for (size_t r = 0; r + d->first[k] < d->first[k + 1]; r++) {
        const float *x = d->arm[a].ccf + (d->first[k] + r) * d->nlag, *y = c->arm[a].ccf + r * d->nlag;
        double most = 0, off = 0;
        for (size_t i = 0; i < d->nlag; i++) {
            most = fmax(most, fabs((double)y[i]));
            off = fmax(off, fabs((double)x[i] - (double)y[i]));
        }
        CHECK(off <= 1e-5 * most, "trial %d, star %zu, exposure %zu, arm %zu: curves differ by %g of %g", trial, k, r,
              a, off, most);
    }
}

static int same_covariance(const spx_rvfit *d, size_t k, const spx_rvfit *c)
{
    const double *a = d->star[k].covar, *b = c->star[0].covar;
    size_t nq = 2 + d->npar;
    for (size_t i = 0; i < nq * nq; i++)
        if (!near_to(a[i], b[i], 2e-3 * sqrt(b[i / nq * nq + i / nq] * b[i % nq * nq + i % nq])))
            return 0;
    return 1;
}

/* The star alone on the CPU. A minimum on a face between simplices has a curvature on each side, and rounding decides
 * which one is given: spectra that differ in one pixel by 1e-8 are fitted until the covariance is that of star
 * k of *d. */
static void fit_alone(const spx_rvfit *d, size_t k, const spx_rvfit_input *single, const spx_rvfit_options *o,
                      spx_spectra *s, spx_rvfit *one, int trial)
{
    enum { DRAWS = 64, LEAST = 16 };
    NEED(spx_rvfit_cpu(single, o, NULL, one, &need_e));
    if (interpolator != SPX_INTERPOLATE_SIMPLEX || small)
        return;
    for (size_t draw = 0; draw < DRAWS && (draw < LEAST || !same_covariance(d, k, one)); draw++) {
        double *pixel = &s->arm[draw % NARM].flux[single->row[0] * NPIX + draw * 37 % NPIX], flux = *pixel;
        spx_rvfit other;
        *pixel = flux * (1 + 1e-8);
        NEED(spx_rvfit_cpu(single, o, NULL, &other, &need_e));
        *pixel = flux;
        CHECK(other.star[0].success == one->star[0].success, "trial %d, star %zu: success %d, %d after a rounding",
              trial, k, one->star[0].success, other.star[0].success);
        if (!same_covariance(d, k, one) && same_covariance(d, k, &other)) {
            spx_rvfit_free(one);
            *one = other;
        } else
            spx_rvfit_free(&other);
    }
}

/* Less and less device memory. A limit that is not met is said with what is needed, in megabytes. */
static void little_memory(const spx_rvfit_input *in, const spx_rvfit_options *unlimited, const spx_rvfit *r, int trial)
{
    spx_rvfit_options o = *unlimited;
    spx_rvfit limited;
    int kept = 0, refused = 0;
    for (o.max_device_mem = (size_t)1 << 28; o.max_device_mem > 0; o.max_device_mem /= 4) {
        spx_err e = {0};
        spx_status st = backend.rvfit(&backend, in, &o, NULL, &limited, &e);
        CHECK(st == SPX_OK ? !refused : st == SPX_EDEVICE && strstr(spx_err_text(&e), "{max_device_mem}"),
              "trial %d, %zu bytes of device memory: status %d, %s", trial, o.max_device_mem, (int)st,
              spx_err_text(&e));
        CHECK(st != SPX_OK || memcmp(r->star, limited.star, r->nstar * sizeof *r->star) == 0,
              "trial %d: %zu bytes of device memory change the result", trial, o.max_device_mem);
        kept += st == SPX_OK;
        refused += st != SPX_OK;
        if (st == SPX_OK)
            spx_rvfit_free(&limited);
    }
    CHECK(kept > 0 && refused > 0, "trial %d: %d limits of device memory kept, %d refused", trial, kept, refused);
}

static void trials(const spx_templates *t)
{
    static const spx_interpolator which[SMALL] = {SPX_INTERPOLATE_CUBIC, SPX_INTERPOLATE_GRID, SPX_INTERPOLATE_SIMPLEX,
                                                  SPX_INTERPOLATE_NN, SPX_INTERPOLATE_CUBIC};
    spx_spectra s;
    alloc_spectra(&s, NSTAR);
    for (size_t i = 0; i < NSTAR; i++) {
        draw(&s, i,
             &(truth){-200 + 400 * uniform(), i % 3 ? 60 * uniform() : 0, 4550 + 1900 * uniform(), -1.9 * uniform(),
                      5 + 60 * uniform()});
        for (size_t a = 0; a < NARM; a++)
            for (size_t n = 0; n < 12; n++) {
                size_t at = i * NPIX + (size_t)(uniform() * NPIX);
                s.arm[a].mask[at] |= chance(0.5);
                s.arm[a].ivar[at] *= chance(0.5);
                s.arm[a].flux[at] += chance(0.3) ? 3 : 0;
            }
    }
    for (size_t i = 0; i < NPIX; i++)
        s.arm[0].ivar[2 * NPIX + i] = s.arm[0].ivar[4 * NPIX + i] = s.arm[1].ivar[4 * NPIX + i] = 0;
    add_resolution(&s, 1.0);
    for (int trial = 0; trial < (small ? SMALL : NTRIAL); trial++) {
        spx_rvfit_options o;
        spx_rvfit r, again, one;
        interpolator = which[trial % SMALL];
        random_options(&o, trial);
        spx_setup setup[NARM] = {t->setup[0], t->setup[1]};
        if (trial % 8 == 1) /* templates themselves, and in one arm only */
            setup[1].pca = (spx_pca){0};
        spx_rvfit_input in = input_of(&s, t);
        in.setup[0] = &setup[0];
        in.setup[1] = trial % 7 == 5 ? NULL : &setup[1];
        /* stars of one, two and three exposures; no exposures; rows twice and in any order */
        size_t row[NSTAR], first[5] = {0, 1, 3, 3, 6};
        double start[NSTAR * NQ];
        for (size_t i = 0; i < NSTAR; i++)
            row[i] = (size_t)(uniform() * NSTAR);
        for (size_t i = 0; i < NSTAR * NQ; i++)
            start[i] = chance(0.4) ? NAN : (double[]){10 * gauss(), 5, 5300, -0.8, 0}[i % NQ];
        in.row = row;
        in.start = trial % 5 == 4 ? start : NULL;
        if (trial % 4 == 1 || trial % 4 == 2) {
            in.first = first;
            in.nstar = 4;
            o.epochs = !o.fixed[0];
        }
        NEED(backend.rvfit(&backend, &in, &o, NULL, &r, &need_e));
        if (!small) {
            NEED(backend.rvfit(&backend, &in, &o, NULL, &again, &need_e));
            CHECK(memcmp(r.star, again.star, r.nstar * sizeof *r.star) == 0 &&
                      memcmp(r.exposure, again.exposure, r.nrow * sizeof *r.exposure) == 0,
                  "trial %d: not the same when repeated", trial);
            for (size_t a = 0; a < NARM && o.keep_ccf; a++)
                CHECK(in.setup[a] == NULL ||
                          memcmp(r.arm[a].ccf, again.arm[a].ccf, r.nrow * r.nlag * sizeof(float)) == 0,
                      "trial %d: curves of arm %zu are not the same when repeated", trial, a);
            spx_rvfit_free(&again);
        }
        if (!small && backend.library && trial < 2)
            little_memory(&in, &o, &r, trial);
        for (size_t k = 0; k < r.nstar; k++) {
            spx_rvfit_input single = in;
            size_t span[2] = {0, r.first[k + 1] - r.first[k]};
            single.row = row + r.first[k];
            single.nrow = span[1];
            single.first = span;
            single.nstar = 1;
            single.start = in.start ? start + k * NQ : NULL;
            fit_alone(&r, k, &single, &o, &s, &one, trial);
            compare(&r, k, &one, trial);
            if (o.epochs)
                compare_exposures(&r, k, &one, trial);
            for (size_t a = 0; a < NARM && o.keep_ccf; a++)
                if (in.setup[a] != NULL)
                    compare_curves(&r, k, a, &one, trial);
            spx_rvfit_free(&one);
            if (small)
                continue;
            /* and alone on the device */
            NEED(backend.rvfit(&backend, &single, &o, NULL, &one, &need_e));
            CHECK(memcmp(&r.star[k], &one.star[0], sizeof one.star[0]) == 0, "trial %d: star %zu depends on the others",
                  trial, k);
            spx_rvfit_free(&one);
        }
        spx_rvfit_free(&r);
    }
    free_spectra(&s);
}

/* Spectra that are odd in many ways: the same pixels are used, the same are left out, and for the same reason. */
static void odd_pixels(const spx_templates *t)
{
    enum { ODD = 9 };
    spx_spectra s;
    spx_rvfit_options o;
    spx_rvfit d, c;
    alloc_spectra(&s, ODD);
    for (size_t i = 0; i < ODD; i++)
        draw(&s, i, &(truth){30, 5, 5200, -0.5, 30});
    for (size_t a = 0; a < NARM; a++) {
        double *f = s.arm[a].flux, *iv = s.arm[a].ivar;
        uint32_t *mask = s.arm[a].mask;
        for (size_t i = 0; i < NPIX; i++) {
            if (i < 40 || i >= NPIX - 7 || (i > 200 && i < 260))
                f[i] = i % 2 ? NAN : INFINITY; /* runs, at both ends, too */
            iv[i] = i % 17 == 3 ? NAN : i % 17 == 4 ? -1 : i % 17 == 5 ? 1e200 : iv[i];
            mask[i] = i % 23 == 1;
            f[NPIX + i] = i % 5 ? 0 : f[NPIX + i];                     /* most are 0: the median of the others */
            f[2 * NPIX + i] = i % 5 ? 0 : -f[2 * NPIX + i];            /* none is positive */
            f[3 * NPIX + i] = a == 0 ? NAN : f[3 * NPIX + i];          /* one arm has no pixel, */
            iv[4 * NPIX + i] = i > 5 ? 0 : iv[4 * NPIX + i];           /* both have few, */
            iv[5 * NPIX + i] = a == 1 || i > 5 ? 0 : iv[5 * NPIX + i]; /* or few and none, */
            f[6 * NPIX + i] *= 1e-60;                                  /* no flux, */
            iv[6 * NPIX + i] = 1;
            f[7 * NPIX + i] = 0;
            iv[8 * NPIX + i] *= i % 3 ? 1 : 1e4; /* errors below the least */
        }
    }
    init(&o);
    const spx_rvfit_input in = input_of(&s, t);
    NEED(backend.rvfit(&backend, &in, &o, NULL, &d, &need_e));
    NEED(spx_rvfit_cpu(&in, &o, NULL, &c, &need_e));
    for (size_t k = 0; k < ODD; k++) {
        const spx_rvfit_star *x = &d.star[k], *y = &c.star[k];
        CHECK(x->bad == y->bad && x->npix == y->npix && ((x->warn ^ y->warn) & SPX_RVS_BAD) == 0,
              "odd pixels, star %zu: left out for %d, %d; pixels %d, %d", k, (int)x->bad, (int)y->bad, (int)x->npix,
              (int)y->npix);
        for (size_t a = 0; a < NARM; a++)
            CHECK(x->sn[a] == y->sn[a] || (isnan(x->sn[a]) && isnan(y->sn[a])),
                  "odd pixels, star %zu, arm %zu: S/N %.17g, %.17g", k, a, x->sn[a], y->sn[a]);
    }
    spx_rvfit_free(&d);
    spx_rvfit_free(&c);
    free_spectra(&s);
}

static void body(spx_templates *t)
{
    for (size_t a = 0; a < NARM; a++)
        add_network(&t->setup[a]);
    odd_pixels(t);
    trials(t);
}

int main(int argc, char **argv)
{
    small = argc > 1 && strcmp(argv[1], "small") == 0;
    return rv_test(body);
}
