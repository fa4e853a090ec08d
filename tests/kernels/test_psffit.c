/* Checks the fit of traces and PSF to arcs (psffit/psffit.h): its normal equations against dense ones from central
 * differences, and its results against the truth of simulated arcs, in units of the errors that it gives. */
#include <lapacke.h>

#include "check.h"
#include "num/blas.h"
#include "psffit/fit.h"
#include "psffit_scene.h"

/* ---- derivatives ---- */

static void test_derivatives(void)
{
    const spx_pf_plan p = {.deg = 6, .norder = 9, .nc = 49, .nq = 50, .hx = 8, .hy = 5, .nx = 17, .ny = 11};
    double gx[9 * 17], gy[9 * 11], c[49], d[4][187], lo[187], hi[187], spot[187], peak = 0;
    const double at[4] = {0.31, -0.12, 1.13, 0.94}, h = 1e-4;
    for (int k = 0; k < 49; k++)
        c[k] = k == 0 ? 1 : 0.02 * scene_random(1, (uint64_t)k, 0);
    for (int way = 0; way < 4; way++) {
        for (int side = 1; side >= -1; side--) {
            double q[4];
            memcpy(q, at, sizeof q);
            q[way] += side * h;
            spx_gauss_hermite(8, 17, q[0], q[2], gx);
            spx_gauss_hermite(8, 11, q[1], q[3], gy);
            spx_pf_spot(&p, gx, gy, c, side > 0 ? hi : side < 0 ? lo : spot);
            if (side == 0)
                spx_pf_derive(&p, gx, gy, c, q[2], q[3], d[0]);
        }
        for (int k = 0; k < 187; k++)
            peak = fmax(peak, spot[k]);
        /* h^2 times third derivatives; clipped pixels have none */
        for (int k = 0; k < 187; k++)
            CHECK(!(lo[k] > 0 && hi[k] > 0) || fabs((hi[k] - lo[k]) / (2 * h) - d[way][k]) < 1e-7 * peak,
                  "derivative %d of pixel %d: %.10g, not %.10g", way, k, d[way][k], (hi[k] - lo[k]) / (2 * h));
    }
}

/* ---- normal equations ---- */

/* root times the model of both exposures without background for fluxes as they are, [n] */
static int model_of(spx_pf_bundle *b, spx_pf_state *s, const double *flux, double *out)
{
    const size_t npix = (size_t)b->p->nx * (size_t)b->p->ny, n = b->p->height * b->width;
    if (!spx_pf_spots(b, s))
        return 0;
    memset(out, 0, b->p->nexp * n * sizeof *out);
    for (size_t k = 0; k < b->nspot; k++) {
        const spx_pf_at *at = &s->at[k];
        const size_t x = k / (b->nl * b->nf);
        for (int r = at->y0; r < at->y1; r++)
            for (int c = at->x0; c < at->x1; c++) {
                const size_t p = (size_t)(at->yc + r) * b->width + (size_t)(at->xc + c);
                out[x * n + p] += b->px[x].root[p] * flux[k] * s->spot[k * npix + (size_t)(r * b->p->nx + c)];
            }
    }
    return 1;
}

/* J' J with fluxes eliminated, by dense algebra: jac[m][n] by theta, flux[k][n]; out[m][m], g[m] */
static void eliminate(size_t m, size_t k, size_t n, const double *jac, const double *flux, const double *rest,
                      double *out, double *g)
{
    double *a = spx_alloc2(k, k, sizeof *a, NULL), *w = spx_alloc2(m, k, sizeof *w, NULL);
    double *kept = spx_alloc2(m, k, sizeof *kept, NULL);
    if (a == NULL || w == NULL || kept == NULL)
        return;
    for (size_t i = 0; i < k; i++)
        for (size_t j = 0; j < k; j++)
            for (size_t p = 0; p < n; p++)
                a[i * k + j] += flux[i * n + p] * flux[j * n + p];
    for (size_t i = 0; i < m; i++)
        for (size_t j = 0; j < k; j++) {
            for (size_t p = 0; p < n; p++)
                w[i * k + j] += jac[i * n + p] * flux[j * n + p];
            kept[i * k + j] = w[i * k + j];
        }
    const int info =
        LAPACKE_dposv(LAPACK_COL_MAJOR, 'L', (lapack_int)k, (lapack_int)m, a, (lapack_int)k, w, (lapack_int)k);
    CHECK(info == 0, "dposv: %d", info);
    for (size_t i = 0; i < m; i++) {
        for (size_t j = 0; j < m; j++) {
            out[i * m + j] = 0;
            for (size_t p = 0; p < n; p++)
                out[i * m + j] += jac[i * n + p] * jac[j * n + p];
            for (size_t p = 0; p < k; p++)
                out[i * m + j] -= kept[i * k + p] * w[j * k + p];
        }
        g[i] = 0;
        for (size_t p = 0; p < n; p++)
            g[i] += jac[i * n + p] * rest[p];
    }
    spx_free(a);
    spx_free(w);
    spx_free(kept);
}

/* Prior by differences of its value, which is quadratic: exact but for rounding. */
static double prior_at(spx_pf_bundle *b, size_t i, double hi, size_t j, double hj)
{
    spx_pf_state *s = &b->trial;
    memcpy(s->theta, b->now.theta, b->ntheta * sizeof *s->theta);
    s->theta[i] += hi;
    s->theta[j] += hj;
    spx_pf_prior(b, s);
    return s->prior;
}

/* Two exposures, blended lines, a line whose wavelength is free and one that is in the model only, masked pixels, spots
 * that leave the CCD. */
static void test_normal(void)
{
    const psffit_request r = {.nspec = 4,
                              .bundle = 4,
                              .ny = 64,
                              .nexp = 2,
                              .nline = 5,
                              .faint = 2000,
                              .bright = 20000,
                              .readnoise = 3,
                              .deg = 2,
                              .seed = 3,
                              .noise = 1};
    psffit_scene s;
    spx_err e = {0};
    if (!scene_make(&r, 0, &s)) {
        CHECK(0, "no memory");
        return;
    }
    s.line[2].wavelength = s.drawn[2] = s.drawn[1] + 1.1; /* two pixels */
    s.line[4].wavelength = s.drawn[4] = SCENE_WMIN + SCENE_STEP * 62.6;
    CHECK(scene_expose(&s, 0, 0, 0, NULL) && scene_expose(&s, 1, 0.3, -0.2, NULL), "no memory");
    for (size_t k = 0; k < 30; k++)
        s.image[0].mask[k * 97 % (s.image[0].nx * s.image[0].ny)] = 1;
    const double dark[2] = {9, 9};
    const spx_pf_plan p = {.deg = 2,
                           .norder = 5,
                           .nc = 9,
                           .nq = 10,
                           .hx = 5,
                           .hy = 4,
                           .nx = 11,
                           .ny = 9,
                           .ntr = 3,
                           .na = 2,
                           .nb = 2,
                           .wmin = 4985,
                           .wmax = 5055,
                           .height = 64,
                           .columns = s.image[0].nx,
                           .nexp = 2,
                           .nshift = 2,
                           .image = s.image,
                           .start = &s.truth,
                           .dark = dark};
    spx_pf_line line[5] = {{0}};
    for (size_t l = 0; l < 5; l++)
        line[l] = (spx_pf_line){.wave = s.drawn[l], .listed = s.drawn[l], .row = l, .free = l == 1};
    spx_pf_bundle b;
    CHECK(spx_pf_open(&p, 0, 4, 5, line, NULL, &b, &e) == SPX_OK, "%s", spx_err_text(&e));
    b.now.theta[b.shift0] = 0.25;
    b.now.theta[b.shift0 + 1] = -0.15;
    spx_pf_first_weights(&b, 0.05);
    CHECK(spx_pf_spots(&b, &b.now) && spx_pf_regroup(&b, &e) == SPX_OK, "%s", spx_err_text(&e));
    for (int k = 0; k < 3; k++) {
        CHECK(spx_pf_fluxes(&b, &b.now) && spx_pf_background(&b), "no fluxes");
        spx_pf_weights(&b, 0.02, 1);
    }
    CHECK(spx_pf_fluxes(&b, &b.now), "no fluxes");
    CHECK(b.ngroup == 3 || b.ngroup == 4, "%zu groups", b.ngroup);
    for (size_t l = 0; l < b.nl; l++)
        b.line[l].weak = l == 3;

    const size_t m = spx_pf_columns(&b), n = 2 * p.height * b.width;
    double *h = spx_alloc2(m, m, sizeof *h, NULL), *g = spx_alloc(m, sizeof *g, NULL);
    double *dense = spx_alloc2(m, m, sizeof *h, NULL), *dg = spx_alloc(m, sizeof *g, NULL);
    double *jac = spx_alloc2(m, n, sizeof *jac, NULL), *lo = spx_alloc(n, sizeof *lo, NULL);
    double *flux = spx_alloc2(b.nspot, n, sizeof *flux, NULL), *rest = spx_alloc(n, sizeof *rest, NULL);
    double *one = spx_alloc(b.nspot, sizeof *one, NULL);
    if (h == NULL || g == NULL || dense == NULL || dg == NULL || jac == NULL || lo == NULL || flux == NULL ||
        rest == NULL || one == NULL) {
        CHECK(0, "no memory");
        return;
    }
    int ok = 0;
    CHECK(spx_pf_normal(&b, h, g, &ok, &e) == SPX_OK && ok, "%s", spx_err_text(&e));
    CHECK(m == b.ntheta, "%zu columns, %zu parameters", m, b.ntheta);

    /* optimal fluxes leave nothing in their own direction */
    for (size_t k = 0; k < b.nspot; k++) {
        memset(one, 0, b.nspot * sizeof *one);
        one[k] = 1;
        memcpy(b.trial.theta, b.now.theta, b.ntheta * sizeof *one);
        CHECK(model_of(&b, &b.trial, one, flux + k * n), "spots");
    }
    memcpy(b.trial.theta, b.now.theta, b.ntheta * sizeof *one);
    CHECK(model_of(&b, &b.trial, b.now.flux, lo), "spots");
    for (size_t k = 0; k < n; k++)
        rest[k] = b.px[k / (n / 2)].goal[k % (n / 2)] - lo[k];
    for (size_t k = 0; k < b.nspot; k++) {
        double sum = 0, scale = 0;
        for (size_t q = 0; q < n; q++) {
            sum += flux[k * n + q] * rest[q];
            scale += fabs(flux[k * n + q] * rest[q]);
        }
        CHECK(fabs(sum) <= 1e-9 * scale + 1e-9, "spot %zu: flux is not optimal, %g of %g", k, sum, scale);
    }
    /* central differences. A pixel that is clipped on one side alone has none, and their number falls with the step */
    static const double step = 1e-6;
    for (size_t k = 0; k < b.nspot; k++) /* a line that is weak says nothing of parameters */
        one[k] = b.line[k / b.nf % b.nl].weak ? 0 : b.now.flux[k];
    for (size_t k = 0; k < m; k++) {
        for (int side = 0; side < 2; side++) {
            memcpy(b.trial.theta, b.now.theta, b.ntheta * sizeof *one);
            b.trial.theta[k] += side ? step : -step;
            CHECK(model_of(&b, &b.trial, one, side ? jac + k * n : lo), "spots");
        }
        for (size_t q = 0; q < n; q++)
            jac[k * n + q] = (jac[k * n + q] - lo[q]) / (2 * step);
    }
    size_t seen = 0; /* spots off the CCD have no column */
    for (size_t k = 0; k < b.nspot; k++)
        if (b.now.at[k].y1 > b.now.at[k].y0 && fabs(b.now.flux[k]) > 0)
            memmove(flux + seen++ * n, flux + k * n, n * sizeof *flux);
    eliminate(m, seen, n, jac, flux, rest, dense, dg);
    const double base = prior_at(&b, 0, 0, 0, 0);
    double worst = 0, worst_free = 0, worst_g = 0, most_g = 0;
    for (size_t i = 0; i < m; i++) {
        dg[i] -= 0.5 * (prior_at(&b, i, 0.01, 0, 0) - prior_at(&b, i, -0.01, 0, 0)) / 0.02;
        most_g = fmax(most_g, fabs(dg[i]) / sqrt(h[i * m + i]));
        for (size_t j = i; j < m; j++) {
            dense[i * m + j] +=
                0.5 * (prior_at(&b, i, 0.5, j, 0.5) - prior_at(&b, i, 0.5, j, 0) - prior_at(&b, i, 0, j, 0.5) + base) /
                0.25;
            const double off = fabs(h[i * m + j] - dense[i * m + j]) / sqrt(h[i * m + i] * h[j * m + j]);
            double *to = i == b.free0 || j == b.free0 ? &worst_free : &worst;
            *to = fmax(*to, off);
        }
    }
    for (size_t i = 0; i < m; i++)
        if (i != b.free0)
            worst_g = fmax(worst_g, fabs(g[i] - dg[i]) / sqrt(h[i * m + i]));
    /* rounding of the differences, 1e-16/step by what pixels have, and pixels that are clipped between both sides */
    CHECK(worst < 5e-6, "matrix differs by %g of its diagonal", worst);
    /* the change of the shape with the wavelength of a free line is left out */
    CHECK(worst_free < 5e-3, "the column of a wavelength differs by %g", worst_free);
    CHECK(worst_g < 2e-5 * most_g, "gradient differs by %g of %g", worst_g, most_g);
    spx_free(h);
    spx_free(g);
    spx_free(dense);
    spx_free(dg);
    spx_free(jac);
    spx_free(lo);
    spx_free(flux);
    spx_free(rest);
    spx_free(one);
    spx_pf_close(&b);
    scene_free(&s);
}

/* ---- truth ---- */

static const psffit_request small = {.nspec = 10,
                                     .bundle = 10,
                                     .ny = 700,
                                     .nexp = 1,
                                     .nline = 24,
                                     .faint = 500,
                                     .bright = 50000,
                                     .continuum = 3,
                                     .readnoise = 3,
                                     .hits = 100,
                                     .deg = 4,
                                     .seed = 1,
                                     .noise = 1};

static spx_psffit_options small_options(void)
{
    spx_psffit_options o = spx_psffit_defaults();
    o.trace_degree = 4;
    o.hermite_degree = 4;
    o.bundle_size = 10;
    o.nthreads = 2;
    return o;
}

static int fit_scene(const psffit_scene *s, const spx_psffit_options *o, spx_psf *psf, spx_psffit *fit)
{
    spx_err e = {0};
    const spx_psffit_input in = {
        .nexp = s->r.nexp, .image = s->image, .start = &s->start, .nline = s->r.nline, .line = s->line};
    const spx_status st = spx_psffit_make(&in, o, psf, fit, &e);
    CHECK(st == SPX_OK, "%s", spx_err_text(&e));
    return st == SPX_OK;
}

/* Places are as wrong as their errors say. 10 fibres at 10 wavelengths with traces of 5 terms leave 50 independent
 * values a coordinate: their rms is known to a tenth, the limits allow three times that. */
static void check_score(const char *name, const psffit_score *q)
{
    int ok = q->n > 0 && q->chi2 > 0.9 && q->chi2 < 1.1 && q->core < 0.004 && fabs(q->kms_mean) < 0.1;
    for (int y = 0; y < 2; y++)
        ok = ok && q->rms[y] < 1.3 * q->limit[y] && q->rms[y] > 0.6 * q->limit[y] && q->limit[y] < 0.01 &&
             q->mad[y] > 0.6 && q->mad[y] < 1.4;
    CHECK(ok, "%s", name);
    if (!ok)
        scene_print(name, q);
}

static void test_truth(void)
{
    psffit_scene s;
    spx_psf psf = {0};
    spx_psffit fit = {0};
    CHECK(scene_make(&small, 0, &s) && scene_expose(&s, 0, 0, 0, NULL), "no memory");
    const spx_psffit_options o = small_options();
    if (fit_scene(&s, &o, &psf, &fit)) {
        const psffit_score q = scene_score(&s, &psf, &fit, 0);
        check_score("warm start", &q);
        for (size_t i = 0; i < fit.nspec; i++)
            CHECK((fit.fibre[i].status & ~(unsigned)SPX_PSF_RANGE) == 0, "fibre %zu: flags %x", i, fit.fibre[i].status);
        CHECK(fit.nunlisted == 0 && fit.ndisagree == 0, "%zu lines found, %zu disagree", fit.nunlisted, fit.ndisagree);
        for (size_t l = 0; l < fit.nline; l++)
            CHECK(fit.line[l].used, "line %zu at %g left out", l, fit.line[l].wavelength);
    }
    spx_psf_free(&psf);
    spx_psffit_free(&fit);
    scene_free(&s);
}

int main(void)
{
    spx_err e = {0};
    if (spx_blas_open(&e) != SPX_OK) {
        puts(spx_err_text(&e));
        return 1;
    }
    test_derivatives();
    test_normal();
    test_truth();
    return failures != 0;
}
