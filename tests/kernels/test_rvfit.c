/* Checks kernel `rvfit` on a library and stars from a formula: the objective against its definition, its gradient
 * against differences, recovery of true parameters, bad spectra, and that a star's result does not depend on other
 * stars. */
#include "rv_stars.h"
#include "rvfit/model/model.h"

/* ---- the objective ---- */

/* ln det of a and solution of a x = b, by elimination with pivots. */
static double solve(size_t n, double *a, double *b)
{
    double lndet = 0;
    for (size_t k = 0; k < n; k++) {
        size_t p = k;
        for (size_t i = k + 1; i < n; i++)
            p = fabs(a[i * n + k]) > fabs(a[p * n + k]) ? i : p;
        for (size_t j = 0; j < n; j++) {
            double swap = a[k * n + j];
            a[k * n + j] = a[p * n + j];
            a[p * n + j] = swap;
        }
        double swap = b[k];
        b[k] = b[p];
        b[p] = swap;
        lndet += log(fabs(a[k * n + k]));
        for (size_t i = k + 1; i < n; i++) {
            double f = a[i * n + k] / a[k * n + k];
            for (size_t j = k; j < n; j++)
                a[i * n + j] -= f * a[k * n + j];
            b[i] -= f * b[k];
        }
    }
    for (size_t k = n; k-- > 0;) {
        for (size_t j = k + 1; j < n; j++)
            b[k] -= a[k * n + j] * b[j];
        b[k] /= a[k * n + k];
    }
    return lndet;
}

/* The definition, for a template at a node of the grid and without rotation. */
static double plain_objective(const spx_arm *arm, const spx_setup *s, size_t node, double v, const double *flux,
                              const double *err)
{
    enum { NP = 10 };
    size_t n = s->nwave;
    const float *ln = s->lnflux + (size_t)s->node[node] * n;
    double *y2 = spx_alloc(n, sizeof *y2, NULL), *u = spx_alloc(n, sizeof *u, NULL);
    static double S[NPIX][NP];
    double a[NP * NP] = {0}, b[NP] = {0}, rhs[NP], out = 0;
    if (!y2 || !u)
        exit(1);
    for (size_t i = 1; i + 1 < n; i++) { /* Press et al., spline() */
        double p = 0.5 * y2[i - 1] + 2, d2 = exp(ln[i + 1]) - 2 * exp(ln[i]) + exp(ln[i - 1]);
        y2[i] = -0.5 / p;
        u[i] = (3 * d2 - 0.5 * u[i - 1]) / p;
    }
    y2[n - 1] = 0;
    for (size_t i = n - 1; i-- > 0;)
        y2[i] = y2[i] * y2[i + 1] + u[i];
    for (size_t i = 0; i < NPIX; i++) {
        double lambda = arm->wavelength[i] * sqrt((1 - v / SPX_C_KMS) / (1 + v / SPX_C_KMS));
        double x = (log(lambda) - s->lnwave0) / s->dlnwave, f = floor(x), B = x - f, A = 1 - B;
        size_t k = (size_t)f;
        double t = A * exp(ln[k]) + B * exp(ln[k + 1]) + ((A * A * A - A) * y2[k] + (B * B * B - B) * y2[k + 1]) / 6;
        double z = 2 * (arm->wavelength[i] - arm->wavelength[0]) / (arm->wavelength[NPIX - 1] - arm->wavelength[0]) - 1;
        for (size_t q = 0; q < NP; q++) {
            double c = -1 + ((double)q - 3) / 3;
            double basis = q < 3 ? pow(z, (double)q) : exp(-0.5 * (z - c) * (z - c) * 49);
            S[i][q] = basis * t / err[i];
        }
        out += 2 * log(err[i]);
    }
    for (size_t i = 0; i < NPIX; i++)
        for (size_t q = 0; q < NP; q++) {
            for (size_t p = 0; p < NP; p++)
                a[q * NP + p] += S[i][q] * S[i][p];
            b[q] += S[i][q] * flux[i] / err[i];
        }
    memcpy(rhs, b, sizeof rhs);
    out += solve(NP, a, rhs);
    for (size_t i = 0; i < NPIX; i++) {
        double r = flux[i] / err[i];
        for (size_t q = 0; q < NP; q++)
            r -= S[i][q] * rhs[q];
        out += r * r;
    }
    spx_free(y2);
    spx_free(u);
    return out;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(const double *x, size_t n)
{
    double tmp[NPIX];
    memcpy(tmp, x, n * sizeof *tmp);
    qsort(tmp, n, sizeof *tmp, compare);
    return n % 2 ? tmp[n / 2] : 0.5 * (tmp[n / 2 - 1] + tmp[n / 2]);
}

static void objective(const spx_templates *full)
{
    /* Without the principal components, which are rounded. */
    spx_setup bare[NARM] = {full->setup[0], full->setup[1]};
    spx_templates plain = {.nsetup = NARM, .setup = bare}, *t = &plain;
    bare[0].pca = bare[1].pca = (spx_pca){0};
    spx_spectra s;
    spx_rvfit_options o;
    alloc_spectra(&s, 1);
    draw(&s, 0, &(truth){37, 0, 5500, -1, 40});
    double flux[NPIX], err[NPIX], want = 0;
    /* Bad pixels of every kind, in a row, at an end, and an error that is too small. */
    s.arm[0].mask[0] = 4;
    s.arm[0].flux[1] = NAN;
    s.arm[0].ivar[100] = 0;
    s.arm[0].ivar[101] = -1;
    s.arm[0].ivar[102] = INFINITY;
    s.arm[0].flux[499] = 1e30;
    s.arm[0].ivar[300] *= 1e4;
    for (size_t a = 0; a < NARM; a++) {
        memcpy(flux, s.arm[a].flux, sizeof flux);
        double good[NPIX], finite[NPIX];
        size_t ngood = 0, nfinite = 0;
        for (size_t i = 0; i < NPIX; i++) {
            int bad = a == 0 && (i <= 1 || (i >= 100 && i <= 102) || i == 499);
            err[i] = bad ? 0 : 1 / sqrt(s.arm[a].ivar[i]);
            if (!bad)
                good[ngood++] = err[i];
            if (isfinite(flux[i]))
                finite[nfinite++] = flux[i];
        }
        if (a == 0) {
            flux[0] = flux[1] = flux[2];
            for (size_t i = 100; i < 103; i++)
                flux[i] = flux[99] + (flux[103] - flux[99]) * (double)(i - 99) / 4;
            flux[499] = flux[498];
        }
        double least = 0.3 * median(good, ngood), large = 1000 * median(finite, nfinite);
        for (size_t i = 0; i < NPIX; i++)
            err[i] = err[i] == 0 ? large : fmax(err[i], least);
        want += plain_objective(&s.arm[a], &t->setup[a], 2 * 4 + 1, 37.5, flux, err);
    }
    init(&o);
    o.continuum = SPX_CONTINUUM_RBF;
    spx_rvfit_input in = input_of(&s, t);
    double x[NQ] = {37.5, 0, 5500, -1, 0}, f;
    NEED(spx_rvfit_objective(&in, &o, x, &f, NULL, &need_e));
    CHECK(fabs(f - want) < 1e-7, "objective is %.9f, its definition %.9f", f, want);

    /* A prior adds its term, and the penalty outside grows from 0, without a step. */
    o.prior_mean[2] = 5400;
    o.prior_sigma[2] = 50;
    double g;
    NEED(spx_rvfit_objective(&in, &o, x, &g, NULL, &need_e));
    CHECK(fabs(g - f - 4) < 1e-8, "prior of 2 sigma adds %.9f", g - f);
    o.prior_sigma[2] = 0;
    double edge[NQ] = {37.5, 0, 6500, -1, 0}, beyond[NQ] = {37.5, 0, 6500.001, -1, 0}, far[NQ] = {37.5, 0, 7500, -1, 0};
    double fe, fb, ff;
    NEED(spx_rvfit_objective(&in, &o, edge, &fe, NULL, &need_e));
    NEED(spx_rvfit_objective(&in, &o, beyond, &fb, NULL, &need_e));
    NEED(spx_rvfit_objective(&in, &o, far, &ff, NULL, &need_e));
    CHECK(fb >= fe && fb - fe < 1e-6 && ff > fe + 100, "penalty at the edge %g, far out %g", fb - fe, ff - fe);

    /* A resolution matrix that is the identity changes nothing but the five pixels at the ends. */
    for (size_t a = 0; a < NARM; a++) {
        s.arm[a].ndiag = 3;
        s.arm[a].resolution = spx_alloc2(3, NPIX, sizeof(double), NULL);
        if (!s.arm[a].resolution)
            exit(1);
        for (size_t i = 0; i < NPIX; i++) {
            s.arm[a].resolution[NPIX + i] = 1;
            if (i < 5 || i >= NPIX - 5)
                s.arm[a].mask[i] = 1;
        }
    }
    NEED(spx_rvfit_objective(&in, &o, x, &f, NULL, &need_e));
    spx_setup sharp[NARM] = {t->setup[0], t->setup[1]};
    for (size_t a = 0; a < NARM; a++) {
        sharp[a].resolution[0] = '\0';
        in.setup[a] = &sharp[a];
    }
    o.resolution = 1;
    o.lsf_sigma = 0;
    NEED(spx_rvfit_objective(&in, &o, x, &g, NULL, &need_e));
    CHECK(fabs(f - g) < 1e-8, "identity as resolution matrix changes the objective by %g", g - f);
    free_spectra(&s);
}

/* ---- interpolation ---- */

static void cubic_weights(void)
{
    for (size_t n = 2; n <= 7; n++) {
        double x[7], w[4], d[4];
        for (size_t i = 0; i < n; i++)
            x[i] = (i ? x[i - 1] : -1) + 0.2 + uniform();
        for (int trial = 0; trial < 50; trial++) {
            double at = x[0] + (x[n - 1] - x[0]) * (trial < 2 ? trial : uniform()), f[7], g = 0, slope = 0;
            int degree = n < 3 ? 1 : 2;
            size_t first = spx_rv_cubic_weights(n, x, at, w, d);
            double sum = w[0] + w[1] + w[2] + w[3], zero = d[0] + d[1] + d[2] + d[3];
            CHECK(first + (n < 4 ? n : 4) <= n && (n >= 4 || w[3] == 0), "%zu nodes: first is %zu", n, first);
            CHECK(fabs(sum - 1) < 1e-13 && fabs(zero) < 1e-12, "%zu nodes: weights sum to 1 + %g and %g", n, sum - 1,
                  zero);
            for (size_t i = 0; i < n; i++)
                f[i] = degree == 2 ? 3 - x[i] + 0.7 * x[i] * x[i] : 3 - x[i];
            for (size_t k = 0; k < 4 && first + k < n; k++) {
                g += w[k] * f[first + k];
                slope += d[k] * f[first + k];
            }
            double want = degree == 2 ? 3 - at + 0.7 * at * at : 3 - at, dwant = degree == 2 ? -1 + 1.4 * at : -1;
            CHECK(fabs(g - want) < 1e-12 && fabs(slope - dwant) < 1e-11, "%zu nodes: %g and %g, want %g and %g", n, g,
                  slope, want, dwant);
        }
        /* The slope has no jump at a node, whatever the values. */
        for (size_t i = 1; i + 1 < n && n > 2; i++) {
            double value[2] = {0}, slope[2] = {0}, f[7];
            for (size_t k = 0; k < n; k++)
                f[k] = gauss();
            for (int side = 0; side < 2; side++) {
                size_t first = spx_rv_cubic_weights(n, x, x[i] + (side ? 1e-12 : -1e-12), w, d);
                for (size_t k = 0; k < 4 && first + k < n; k++) {
                    value[side] += w[k] * f[first + k];
                    slope[side] += d[k] * f[first + k];
                }
            }
            CHECK(fabs(value[0] - value[1]) < 1e-9 && fabs(slope[0] - slope[1]) < 1e-8, "jump at node %zu of %zu", i,
                  n);
        }
    }
}

/* m of the natural spline through y[n] (rvfit/model/math.h). */
static void spline(size_t n, const double *cprime, const double *y, double *m)
{
    m[0] = m[n - 1] = 0;
    for (size_t i = 1; i + 1 < n; i++)
        m[i] = ((y[i - 1] - y[i]) + (y[i + 1] - y[i]) - m[i - 1]) * cprime[i];
    for (size_t i = n - 2; i >= 1; i--)
        m[i] -= cprime[i] * m[i + 1];
}

/* The loops over templates of every instruction set that this processor has give the same; those over pixels are in
 * test_rvfit_continuum. */
static void instruction_sets(const spx_templates *t)
{
    const spx_rv_kernels *k[3] = {spx_rv_kernels_base(), spx_rv_kernels_avx2(), spx_rv_kernels_avx512()};
    const spx_pca *p = &t->setup[0].pca;
    enum { L = 4, NT = 2, N = NT * SPX_RV_TILE, NLOOP = 7, NPLACE = 45 };
    size_t nc = p->ncomp;
    float *comp = spx_alloc2(N, nc, sizeof *comp, NULL), *cf = spx_alloc2(nc, L, sizeof *cf, NULL);
    double *cd = spx_alloc2(nc, L, sizeof *cd, NULL), mean[N], in[N], cprime[N], bend[N], place[NPLACE];
    if (!comp || !cf || !cd)
        exit(1);
    for (size_t i = 0; i < N * nc; i++)
        comp[i] = (float)gauss();
    for (size_t i = 0; i < nc * L; i++) {
        cd[i] = gauss();
        cf[i] = (float)cd[i];
    }
    float single[N];
    for (size_t i = 0; i < N; i++) {
        mean[i] = gauss();
        in[i] = uniform();
        single[i] = (float)in[i];
    }
    for (size_t i = 0; i < NPLACE; i++) /* side by side, as pixels are, beyond the first end too, and anywhere */
        place[i] = i < 16 ? -1 + 2.3 * (double)i + uniform() : -1 + (N + 1) * uniform();
    spx_rv_spline_factor(N, cprime);
    spline(N, cprime, in, bend);
    const double weight[4] = {0.4, 0.2, 0.07, 0.03};
    const float weightf[4] = {0.4F, 0.2F, 0.07F, 0.03F};
    double first[NLOOP][L * N], got[NLOOP][L * N];
    for (int set = 0; set < 3; set++) {
        if (!k[set])
            continue;
        memset(got, 0, sizeof got);
        double *plane = got[0], scratch[N], c[N + 2], sampled[4][N];
        float slope[(L - 1) * N], scratchf[N], s[2][N + 2];
        k[set]->components(L, NT, 2, nc, comp, mean, 1, (const double *[]){cd}, (const float *[]){cf}, &plane,
                           &(float *){slope});
        for (size_t i = 0; i < (L - 1) * N; i++)
            got[0][N + i] = slope[i];
        memcpy(got[1], mean, sizeof mean);
        k[set]->exponential(N, got[1]);
        for (size_t i = 0; i < N && set == 0; i++)
            CHECK(fabs(got[1][i] / exp(mean[i]) - 1) < 1e-15 * 4, "exp(%g) is %.17g", mean[i], got[1][i]);
        k[set]->broaden_one(N, 3, weight, in, got[2]);
        k[set]->broaden_float(N, 3, weightf, single, slope);
        for (size_t i = 0; i < N; i++)
            got[3][i] = slope[i];
        k[set]->coefficients(N, cprime, in, scratch, c + 1);
        k[set]->coefficients_float(N, cprime, single, scratchf, s[0] + 1);
        memcpy(s[1], s[0], sizeof s[0]);
        for (size_t i = 0; i < N + 2; i++) {
            const double want = i == 0  ? 2 * in[0] - (in[1] - bend[1])
                                : i > N ? 2 * in[N - 1] - (in[N - 2] - bend[N - 2])
                                        : in[i - 1] - bend[i - 1];
            CHECK(fabs(c[i] - want) < 1e-14 && fabs((double)s[0][i] - want) < 1e-6,
                  "set %d, coefficient %zu of a spline: %.17g, in single precision %.9g, want %.17g", set, i, c[i],
                  (double)s[0][i], want);
        }
        memset(sampled, 0, sizeof sampled);
        k[set]->sample(NPLACE, place, 0.3, -7, N, c + 1, s[0] + 1, N + 2, 2, 1, sampled[0], N);
        for (size_t i = 0; i < NPLACE; i++) {
            double w[4], d[4];
            const size_t j = spx_rv_spline_weights(place[i] + 0.3, N, w, d);
            const double want = w[0] * in[j] + w[1] * in[j + 1] + w[2] * bend[j] + w[3] * bend[j + 1];
            const double by_v = -7 * (d[0] * in[j] + d[1] * in[j + 1] + d[2] * bend[j] + d[3] * bend[j + 1]);
            CHECK(fabs(sampled[0][i] - want) < 1e-14 && fabs(sampled[1][i] - by_v) < 1e-12 &&
                      fabs(sampled[2][i] - want) < 2e-6 && fabs(sampled[3][i] - want) < 2e-6,
                  "set %d, place %g: %.17g, %.17g, %.9g, %.9g, want %.17g and %.17g", set, place[i] + 0.3,
                  sampled[0][i], sampled[1][i], sampled[2][i], sampled[3][i], want, by_v);
        }
        CHECK(sampled[0][NPLACE] == 0 && sampled[3][NPLACE] == 0, "set %d: more pixels than there are", set);
        k[set]->sample(NPLACE, place, 0.3, -7, N, c + 1, s[0] + 1, N + 2, 1, 0, got[4], N);
        k[set]->sample_one(NPLACE, place, 0.3, N, c + 1, got[6]);
        for (size_t i = 0; i < NPLACE; i++)
            CHECK(fabs(got[6][i] - sampled[0][i]) < 1e-14, "set %d, place %g: value alone %.17g, not %.17g", set,
                  place[i] + 0.3, got[6][i], sampled[0][i]);
        CHECK(got[6][NPLACE] == 0, "set %d: more values than pixels", set);
        k[set]->slopes(N, single, single, scratchf);
        for (size_t i = 0; i < N; i++)
            got[5][i] = scratchf[i];
        if (set == 0)
            memcpy(first, got, sizeof first);
        for (size_t i = 0; i < NLOOP; i++)
            for (size_t j = 0; j < L * N; j++) {
                double tol = (i == 0 || i >= 3 ? 3e-6 : 1e-12) * (1 + fabs(first[i][j]));
                CHECK(fabs(got[i][j] - first[i][j]) < tol, "set %d, loop %zu, element %zu: %.17g, base %.17g", set, i,
                      j, got[i][j], first[i][j]);
            }
    }
    spx_free(comp);
    spx_free(cf);
    spx_free(cd);
}

/* Principal components against the templates themselves. */
static void component_sums(const spx_templates *t)
{
    enum { NSTAR = 12 };
    spx_spectra s;
    spx_rvfit_options o;
    double x[NSTAR][NQ], f[2][NSTAR], grad[2][NSTAR][NQ];
    alloc_spectra(&s, NSTAR);
    for (size_t i = 0; i < NSTAR; i++) {
        draw(&s, i, &(truth){0, 0, 5300, -0.7, 100});
        memcpy(x[i], (double[]){50 * gauss(), 100 * uniform(), 4400 + 2200 * uniform(), -2.1 + 2.2 * uniform(), 0},
               sizeof x[i]);
    }
    init(&o);
    spx_setup bare[NARM] = {t->setup[0], t->setup[1]};
    bare[0].pca = bare[1].pca = (spx_pca){0};
    spx_rvfit_input in = input_of(&s, t);
    for (int k = 0; k < 2; k++) {
        NEED(spx_rvfit_objective(&in, &o, &x[0][0], f[k], &grad[k][0][0], &need_e));
        in.setup[0] = &bare[0];
        in.setup[1] = &bare[1];
    }
    for (size_t i = 0; i < NSTAR; i++) {
        CHECK(fabs(f[0][i] - f[1][i]) < 1e-6 * fabs(f[1][i]), "objective from components %.8g, from templates %.8g",
              f[0][i], f[1][i]);
        for (size_t q = 0; q < NQ; q++)
            CHECK(fabs(grad[0][i][q] - grad[1][i][q]) < 1e-4 * fabs(grad[1][i][q]) + 1e-4,
                  "gradient by %zu from components %.8g, from templates %.8g", q, grad[0][i][q], grad[1][i][q]);
    }
    free_spectra(&s);
}

/* ---- the gradient ---- */

static void gradient(const spx_templates *t)
{
    enum { NSTAR = 6, NDIAG = 5 };
    static const double step[NQ] = {1e-3, 1e-3, 1e-2, 1e-5, 0};
    spx_spectra s;
    spx_rvfit_options o;
    alloc_spectra(&s, NSTAR);
    double x[NSTAR][NQ], f[NSTAR], up[NSTAR], down[NSTAR], grad[NSTAR][NQ];
    for (size_t i = 0; i < NSTAR; i++) {
        draw(&s, i, &(truth){-300 + 600 * uniform(), 0, 5300, -0.7, 30});
        x[i][0] = -300 + 600 * uniform();
        x[i][1] = i == 0 ? 0 : 250 * uniform() * uniform();
        x[i][2] = 4600 + 1800 * uniform();
        x[i][3] = -1.9 + 1.8 * uniform();
        x[i][4] = 0;
    }
    for (size_t a = 0; a < NARM; a++) {
        s.arm[a].ndiag = NDIAG;
        s.arm[a].resolution = spx_alloc2(NSTAR * NDIAG, NPIX, sizeof(double), NULL);
        if (!s.arm[a].resolution)
            exit(1);
        for (size_t i = 0; i < NSTAR * NDIAG * NPIX; i++) {
            double z = (double)(i / NPIX % NDIAG) - 2;
            s.arm[a].resolution[i] = 0.4 * exp(-0.5 * z * z);
        }
    }
    spx_rvfit_input in = input_of(&s, t);
    for (int variant = 0; variant < 4; variant++) {
        init(&o);
        o.resolution = variant == 1;
        o.continuum = variant == 2 ? SPX_CONTINUUM_CHEBYSHEV : variant == 3 ? SPX_CONTINUUM_RBF : SPX_CONTINUUM_SPLINE;
        o.npoly = (size_t[]){0, 16, 6, 10}[variant];
        for (size_t q = 0; q < 4 && variant == 2; q++) {
            o.prior_mean[q] = q == 2 ? 5000 : 1;
            o.prior_sigma[q] = q == 2 ? 100 : 1;
        }
        NEED(spx_rvfit_objective(&in, &o, &x[0][0], f, &grad[0][0], &need_e));
        for (size_t q = 0; q < 4; q++) {
            double plus[NSTAR][NQ], minus[NSTAR][NQ];
            memcpy(plus, x, sizeof x);
            memcpy(minus, x, sizeof x);
            for (size_t i = 0; i < NSTAR; i++) {
                plus[i][q] += step[q];
                minus[i][q] -= x[i][q] >= step[q] || q != 1 ? step[q] : 0;
            }
            NEED(spx_rvfit_objective(&in, &o, &plus[0][0], up, NULL, &need_e));
            NEED(spx_rvfit_objective(&in, &o, &minus[0][0], down, NULL, &need_e));
            for (size_t i = 0; i < NSTAR; i++) {
                if (q == 1 && x[i][1] == 0 && interpolator != SPX_INTERPOLATE_GRID) { /* the model depends on vsini^2 */
                    CHECK(grad[i][1] == 0, "variant %d: gradient %g by vsini of a star at rest", variant, grad[i][1]);
                    continue;
                }
                double diff = (up[i] - down[i]) / (plus[i][q] - minus[i][q]);
                double tol = 1e-5 * fabs(grad[i][q]) + 2e-9 * fabs(f[i]) / step[q];
                CHECK(fabs(diff - grad[i][q]) < tol, "variant %d, quantity %zu at %g: gradient %.8g, difference %.8g",
                      variant, q, x[i][q], grad[i][q], diff);
            }
        }
        for (size_t i = 0; i < NSTAR; i++)
            CHECK(grad[i][4] == 0, "gradient %g by a parameter with one value", grad[i][4]);
    }
    free_spectra(&s);
}

/* ---- fits ---- */

enum { NDRAWN = 16 };

/* The fit is where the truth is, within its errors; best[NDRAWN] are its points. */
static void check_pulls(const spx_rvfit *r, const truth *put, double (*best)[NQ])
{
    double sum[4] = {0};
    for (size_t i = 0; i < NDRAWN; i++) {
        const spx_rvfit_star *w = &r->star[i];
        double pull[4] = {(w->vrad - put[i].v) / w->vrad_err, (w->vsini - put[i].vsini) / w->vsini_err,
                          (w->par[0] - put[i].teff) / w->par_err[0], (w->par[1] - put[i].feh) / w->par_err[1]};
        for (size_t k = 0; k < 4; k++) {
            CHECK(fabs(pull[k]) < 5,
                  "star %zu (v %g vsini %g teff %g feh %g S/N %g): quantity %zu is off by %.1f sigma", i, put[i].v,
                  put[i].vsini, put[i].teff, put[i].feh, put[i].sn, k, pull[k]);
            sum[k] += pull[k] * pull[k] / NDRAWN;
        }
        CHECK(w->success && w->chisq < 1250 && w->chisq > 750 && w->npix == 1000, "star %zu: chi2 %g of %d pixels", i,
              w->chisq, (int)w->npix);
        CHECK(!(w->warn & ~(SPX_RVS_VSINI | SPX_RVS_PARAM)), "star %zu: RVS_WARN %d", i, (int)w->warn);
        CHECK((put[i].vsini > 130) <= ((w->warn & SPX_RVS_VSINI) != 0), "star %zu: vsini %g, no warning", i,
              put[i].vsini);
        CHECK(fabs(w->vrad_kurt - 3) < 0.3 && fabs(w->vrad_skew) < 0.3, "star %zu: skewness %g, kurtosis %g", i,
              w->vrad_skew, w->vrad_kurt);
        double conditional = sqrt(w->covar[0]);
        CHECK(w->vrad_err <= conditional * 1.02 && w->vrad_err > 0.5 * conditional, "star %zu: errors of v %g and %g",
              i, w->vrad_err, conditional);
        CHECK(w->par[2] == 0 && w->par_err[2] == 0, "star %zu: parameter with one value is %g +- %g", i, w->par[2],
              w->par_err[2]);
        memcpy(best[i], (double[]){w->vrad, w->vsini, w->par[0], w->par[1], 0}, sizeof best[i]);
    }
    for (size_t k = 0; k < 4; k++)
        CHECK(sum[k] > 0.25 && sum[k] < 2.5, "mean squared pull of quantity %zu is %.2f", k, sum[k]);
}

/* No point near, or anywhere at random, is lower than best[NDRAWN]; f[NDRAWN]: the objective there. */
static void check_minimum(const spx_rvfit_input *in, const spx_rvfit_options *o, const spx_rvfit *r, double (*best)[NQ],
                          double *f)
{
    for (int trial = 0; trial < 36; trial++) {
        double x[NDRAWN][NQ];
        for (size_t i = 0; i < NDRAWN; i++) {
            const spx_rvfit_star *w = &r->star[i];
            double scale = trial < 30 ? pow(10, -2 + 2.5 * uniform()) : 100;
            memcpy(x[i], best[i], sizeof x[i]);
            x[i][0] += scale * gauss() * w->vrad_err;
            x[i][1] = fmin(500, fabs(x[i][1] + scale * gauss() * w->vsini_err));
            x[i][2] += scale * gauss() * w->par_err[0];
            x[i][3] += scale * gauss() * w->par_err[1];
            x[i][0] = fmax(-1000, fmin(1000, x[i][0]));
            x[i][2] = fmax(4500, fmin(6500, x[i][2]));
            x[i][3] = fmax(-2, fmin(0, x[i][3]));
        }
        NEED(spx_rvfit_objective(in, o, &x[0][0], f, NULL, &need_e));
        for (size_t i = 0; i < NDRAWN; i++)
            CHECK(f[i] > r->star[i].neg2logl - 2e-3, "star %zu: objective %.5f at the minimum, %.5f elsewhere", i,
                  r->star[i].neg2logl, f[i]);
    }
    NEED(spx_rvfit_objective(in, o, &best[0][0], f, NULL, &need_e));
    for (size_t i = 0; i < NDRAWN; i++)
        CHECK(fabs(f[i] - r->star[i].neg2logl) < 1e-6, "star %zu: NEG2LOGL %.8f, objective %.8f", i,
              r->star[i].neg2logl, f[i]);
}

/* Held quantities stay; a narrow prior wins; without a set of templates for cross-correlation it works as well. `best`
 * and its objective are of the first star. */
static void check_held(const spx_templates *t, spx_rvfit_input *in, const truth *put, const double *best,
                       double neg2logl)
{
    spx_rvfit r;
    spx_rvfit_options o;
    init(&o);
    o.fixed[2] = 1;
    o.value[2] = 5300;
    o.prior_mean[0] = 50;
    o.prior_sigma[0] = 1e-3;
    in->nrow = 3;
    NEED(backend.rvfit(&backend, in, &o, NULL, &r, &need_e));
    for (size_t i = 0; i < 3; i++)
        CHECK(fabs(r.star[i].par[0] - 5300) < 1e-9 && r.star[i].par_err[0] == 0 && fabs(r.star[i].vrad - 50) < 0.1,
              "star %zu: teff %.10g +- %g, v %g", i, r.star[i].par[0], r.star[i].par_err[0], r.star[i].vrad);
    spx_rvfit_free(&r);
    /* with all of them held only the continuum is fitted */
    init(&o);
    for (size_t q = 0; q < 2 + t->setup[0].npar; q++) {
        o.fixed[q] = 1;
        o.value[q] = best[q];
    }
    NEED(backend.rvfit(&backend, in, &o, NULL, &r, &need_e));
    CHECK(fabs(r.star[0].neg2logl - neg2logl) < 1e-6 && r.star[0].vrad == best[0] && r.star[0].vrad_err == 0,
          "all held: NEG2LOGL %.8f, objective %.8f, v %g +- %g", r.star[0].neg2logl, neg2logl, r.star[0].vrad,
          r.star[0].vrad_err);
    spx_rvfit_free(&r);
    init(&o);
    spx_setup bare[NARM] = {t->setup[0], t->setup[1]};
    bare[0].ccf.ntemp = bare[1].ccf.ntemp = 0;
    in->setup[0] = &bare[0];
    in->setup[1] = &bare[1];
    NEED(backend.rvfit(&backend, in, &o, NULL, &r, &need_e));
    for (size_t i = 0; i < 3; i++)
        CHECK(fabs(r.star[i].vrad - put[i].v) < 5 * r.star[i].vrad_err,
              "star %zu, no cross-correlation: v %g, put in %g", i, r.star[i].vrad, put[i].v);
    spx_rvfit_free(&r);
}

static void recovered(const spx_templates *t)
{
    spx_spectra s;
    spx_rvfit r;
    spx_rvfit_options o;
    truth put[NDRAWN];
    alloc_spectra(&s, NDRAWN);
    for (size_t i = 0; i < NDRAWN; i++) { /* at nodes: what is tested is the fit, not the interpolation */
        put[i] = (truth){-800 + 1600 * uniform(), i % 3 == 0 ? 0 : 20 + 180 * uniform(),
                         TEFF[1 + (size_t)(3 * uniform())], FEH[1 + (size_t)(2 * uniform())], 15 + 60 * uniform()};
        draw(&s, i, &put[i]);
    }
    init(&o);
    spx_rvfit_input in = input_of(&s, t);
    NEED(backend.rvfit(&backend, &in, &o, NULL, &r, &need_e));
    double best[NDRAWN][NQ], f[NDRAWN];
    check_pulls(&r, put, best);
    check_minimum(&in, &o, &r, best, f);
    spx_rvfit_free(&r);
    check_held(t, &in, put, best[0], f[0]);
    free_spectra(&s);
}

/* ---- given starts, outliers, other minima ---- */

static void starts_and_outliers(const spx_templates *t)
{
    enum { NSTAR = 6 };
    spx_spectra s;
    spx_rvfit_options o;
    spx_rvfit plain, given, spoilt, clipped;
    alloc_spectra(&s, NSTAR);
    for (size_t i = 0; i < NSTAR; i++)
        draw(&s, i, &(truth){-150 + 300 * uniform(), 30 * uniform(), 4800 + 1500 * uniform(), -0.8, i < 4 ? 40 : 1.5});
    init(&o);
    spx_rvfit_input in = input_of(&s, t);
    NEED(backend.rvfit(&backend, &in, &o, NULL, &plain, &need_e));
    double start[NSTAR][NQ];
    for (size_t i = 0; i < NSTAR; i++) {
        const spx_rvfit_star *w = &plain.star[i];
        memcpy(start[i], (double[]){w->vrad + 3, w->vsini, w->par[0] + 30, NAN, 0}, sizeof start[i]);
        /* Noise has several minima, and all that is said of them is that they are farther, and not lower. */
        CHECK(i < 4 || isfinite(w->dchisq_alt), "star %zu: no other minimum", i);
        CHECK(isnan(w->dchisq_alt) || (w->dchisq_alt > (i < 4 ? 50 : 0) && fabs(w->vrad_alt - w->vrad) > 60),
              "star %zu: other minimum at %g, %g higher", i, w->vrad_alt, w->dchisq_alt);
        CHECK(i >= 4 || !(w->warn & SPX_RVS_PROFILE), "star %zu: RVS_WARN %d", i, (int)w->warn);
        CHECK(w->nreject == 0, "star %zu: %d rejected", i, (int)w->nreject);
    }
    start[1][0] = NAN;
    in.start = &start[0][0];
    NEED(backend.rvfit(&backend, &in, &o, NULL, &given, &need_e));
    for (size_t i = 0; i < 4; i++) {
        const spx_rvfit_star *w = &given.star[i], *v = &plain.star[i];
        CHECK(isnan(w->vrad_ccf) == (i != 1), "star %zu: VRAD_CCF %g", i, w->vrad_ccf);
        CHECK(fabs(w->neg2logl - v->neg2logl) < 0.01 && fabs(w->vrad - v->vrad) < 0.02 * v->vrad_err,
              "star %zu: from a given start %g, else %g", i, w->vrad, v->vrad);
    }
    in.start = NULL;
    for (size_t i = 0; i < NSTAR; i++)
        for (size_t k = 0; k < 6; k++)
            s.arm[k % NARM].flux[i * NPIX + 40 + 70 * k] += k % 3 ? 20 : -15;
    NEED(backend.rvfit(&backend, &in, &o, NULL, &spoilt, &need_e));
    o.reject = 3;
    NEED(backend.rvfit(&backend, &in, &o, NULL, &clipped, &need_e));
    for (size_t i = 0; i < 4; i++) {
        const spx_rvfit_star *w = &clipped.star[i], *v = &plain.star[i];
        CHECK(w->nreject == 6 && w->npix == v->npix - 6, "star %zu: %d pixels rejected", i, (int)w->nreject);
        CHECK(fabs(w->vrad - v->vrad) < v->vrad_err && fabs(w->par[0] - v->par[0]) < v->par_err[0],
              "star %zu: v %g without outliers, %g rejected, %g with", i, v->vrad, w->vrad, spoilt.star[i].vrad);
        CHECK(spoilt.star[i].chisq > w->chisq + 1000, "star %zu: outliers do not show", i);
    }
    o.reject_sigma = 0;
    spx_err e = {0};
    spx_rvfit r;
    CHECK(backend.rvfit(&backend, &in, &o, NULL, &r, &e) == SPX_EUSAGE, "rejection beyond 0 sigma");
    spx_rvfit_free(&plain);
    spx_rvfit_free(&given);
    spx_rvfit_free(&spoilt);
    spx_rvfit_free(&clipped);
    free_spectra(&s);
}

/* Other minima along v against the objective itself, computed everywhere: none that is as low has a dip worth the name.
 */
static void other_minima(const spx_templates *t)
{
    enum { NSTAR = 4, N = 501 };
    static const double DIP = 2; /* between a minimum and the lower of the maxima around it */
    /* Of its height: the scan knows the continuum to about 1 %, and the five places that it finds lowest, which the
     * objective then looks at, may be ripples of a slope that are no minima. */
    static const double RIPPLES = 0.04;
    static size_t row[N];
    static double x[N][NQ], f[N];
    spx_spectra s;
    spx_rvfit_options o;
    spx_rvfit r;
    size_t seen = 0;
    alloc_spectra(&s, NSTAR);
    for (size_t i = 0; i < NSTAR; i++)
        draw(&s, i,
             &(truth){-600 + 1200 * uniform(), i < 2 ? 0 : 60 * uniform(), 4800 + 1500 * uniform(), -0.8,
                      5 + 10 * (double)i});
    init(&o);
    spx_rvfit_input in = input_of(&s, t);
    NEED(backend.rvfit(&backend, &in, &o, NULL, &r, &need_e));
    for (size_t i = 0; i < NSTAR; i++) {
        const spx_rvfit_star *w = &r.star[i];
        double lowest = HUGE_VAL, at = NAN;
        for (size_t k = 0; k < N; k++) {
            row[k] = i;
            memcpy(x[k], (double[NQ]){-1000 + 4 * (double)k, w->vsini, w->par[0], w->par[1]}, sizeof x[k]);
        }
        in.row = row;
        in.nrow = N;
        NEED(spx_rvfit_objective(&in, &o, &x[0][0], f, NULL, &need_e));
        for (size_t k = 1; k + 1 < N; k++) {
            double left = f[k], right = f[k];
            if (!(f[k] < f[k - 1] && f[k] <= f[k + 1]) || fabs(x[k][0] - w->vrad) <= 60 || f[k] > lowest)
                continue;
            for (size_t j = k; j-- > 0 && f[j] >= f[k];)
                left = fmax(left, f[j]);
            for (size_t j = k + 1; j < N && f[j] >= f[k]; j++)
                right = fmax(right, f[j]);
            if (fmin(left, right) - f[k] < DIP)
                continue;
            lowest = f[k];
            at = x[k][0];
        }
        seen += isfinite(at);
        CHECK(isnan(at) || w->dchisq_alt < (1 + RIPPLES) * (lowest - w->neg2logl) + 0.1,
              "star %zu: other minimum at %g, %g higher, but at %g it is %g higher", i, w->vrad_alt, w->dchisq_alt, at,
              lowest - w->neg2logl);
        if (isfinite(w->vrad_alt)) { /* it is one */
            size_t k = (size_t)fmin(fmax(floor((w->vrad_alt + 1000) / 4 + 0.5), 1), N - 2);
            CHECK(fabs(f[k] - w->neg2logl - w->dchisq_alt) < 0.05 * w->dchisq_alt + 0.5,
                  "star %zu: other minimum at %g, %g higher; the objective there is %g higher", i, w->vrad_alt,
                  w->dchisq_alt, f[k] - w->neg2logl);
        }
    }
    CHECK(seen >= 3, "%zu stars of %d have another minimum", seen, (int)NSTAR);
    spx_rvfit_free(&r);
    free_spectra(&s);
}

/* ---- bad spectra; one star is nobody else's business ---- */

enum {
    GOOD,
    ALL_MASKED,
    ZERO,
    NOT_A_NUMBER,
    ONE_PIXEL,
    NO_ARM,
    CONSTANT,
    HUGE_FLUX,
    NEGATIVE,
    NO_IVAR,
    WILD_IVAR,
    NKIND
};

static void spoil(spx_spectra *s, size_t row, int kind)
{
    for (size_t a = 0; a < NARM; a++)
        for (size_t i = 0; i < NPIX; i++) {
            double *f = &s->arm[a].flux[row * NPIX + i], *v = &s->arm[a].ivar[row * NPIX + i];
            uint32_t *m = &s->arm[a].mask[row * NPIX + i];
            switch (kind) {
            case ALL_MASKED:
                *m = 1;
                break;
            case ZERO:
                *f = 0;
                break;
            case NOT_A_NUMBER:
                *f = NAN;
                break;
            case ONE_PIXEL:
                *m = a != 0 || i != 77;
                break;
            case NO_ARM:
                *v = a ? 0 : *v;
                break;
            case CONSTANT:
                *f = 3;
                break;
            case HUGE_FLUX:
                *f = 1e30;
                break;
            case NEGATIVE:
                *f = -*f;
                break;
            case NO_IVAR:
                *v = 0;
                break;
            case WILD_IVAR:
                *v = i % 3 ? INFINITY : (i % 2 ? 1e300 : -1e300);
                break;
            default:
                break;
            }
        }
}

static int finite_star(const spx_rvfit_star *w, size_t nq)
{
    double sum = w->vrad + w->vrad_err + w->vrad_skew + w->vrad_kurt + w->vrad_ccf + w->vsini + w->vsini_err +
                 w->neg2logl + w->chisq + w->chisq_c;
    for (size_t p = 0; p + 2 < nq; p++)
        sum += w->par[p] + w->par_err[p];
    for (size_t i = 0; i < nq * nq; i++)
        sum += w->covar[i];
    return isfinite(sum);
}

static void bad_spectra(const spx_templates *t)
{
    spx_spectra s, clean;
    spx_rvfit_options o;
    spx_rvfit r, alone, threaded;
    alloc_spectra(&s, 2 * NKIND);
    alloc_spectra(&clean, NKIND);
    for (size_t i = 0; i < 2 * NKIND; i++) /* rotation, slow to draw, where the star stays good */
        draw(&s, i,
             &(truth){-200 + 400 * uniform(), i % 2 ? 0 : 60 * uniform(), 4600 + 1800 * uniform(), -1.5 * uniform(),
                      5 + 40 * uniform()});
    for (size_t i = 0; i < NKIND; i++) {
        for (size_t a = 0; a < NARM; a++) { /* even rows stay good */
            memcpy(clean.arm[a].flux + i * NPIX, s.arm[a].flux + 2 * i * NPIX, NPIX * sizeof(double));
            memcpy(clean.arm[a].ivar + i * NPIX, s.arm[a].ivar + 2 * i * NPIX, NPIX * sizeof(double));
        }
        spoil(&s, 2 * i + 1, (int)i);
    }
    init(&o);
    spx_rvfit_input in = input_of(&s, t), only = input_of(&clean, t);
    NEED(backend.rvfit(&backend, &in, &o, NULL, &r, &need_e));
    NEED(backend.rvfit(&backend, &only, &o, NULL, &alone, &need_e));
    o.threads = 3;
    NEED(backend.rvfit(&backend, &in, &o, NULL, &threaded, &need_e));
    CHECK(memcmp(r.star, threaded.star, r.nstar * sizeof *r.star) == 0, "three threads change the result");
    for (size_t i = 0; i < NKIND; i++) {
        CHECK(memcmp(&r.star[2 * i], &alone.star[i], sizeof *r.star) == 0, "star %zu depends on the others", i);
        for (size_t a = 0; a < NARM; a++) {
            CHECK(memcmp(r.arm[a].model, threaded.arm[a].model, r.nstar * NPIX * sizeof(float)) == 0,
                  "three threads change a model");
            CHECK(memcmp(r.arm[a].model + 2 * i * NPIX, alone.arm[a].model + i * NPIX, NPIX * sizeof(float)) == 0,
                  "model of star %zu depends on the others", i);
        }
    }
    for (size_t k = 0; k < NKIND; k++) {
        const spx_rvfit_star *w = &r.star[2 * k + 1];
        int bad = k == ALL_MASKED || k == ZERO || k == NOT_A_NUMBER || k == ONE_PIXEL || k == HUGE_FLUX ||
                  k == NO_IVAR || k == WILD_IVAR;
        int models = 1, zero = 1;
        for (size_t a = 0; a < NARM; a++)
            for (size_t i = 0; i < NPIX; i++) {
                float m = r.arm[a].model[(2 * k + 1) * NPIX + i];
                models = models && isfinite(m);
                zero = zero && m == 0;
            }
        CHECK(models, "kind %zu: model is not finite", k);
        if (bad) {
            CHECK(w->warn == SPX_RVS_BAD && isnan(w->vrad) && isnan(w->par[0]) && zero && !w->success,
                  "kind %zu: v %g, RVS_WARN %d", k, w->vrad, (int)w->warn);
        } else {
            CHECK(finite_star(w, NQ) && !(w->warn & SPX_RVS_BAD), "kind %zu: not finite, or RVS_WARN %d", k,
                  (int)w->warn);
        }
        if (k == CONSTANT)
            CHECK(w->warn & SPX_RVS_CHISQ, "constant flux: RVS_WARN %d", (int)w->warn);
        if (k == NO_ARM)
            CHECK(w->sn[1] == 0 && w->arm_chisq[1] == 0 && w->npix == 500, "arm without data: %d pixels", (int)w->npix);
    }
    /* Rows that were chosen, in another order. */
    size_t row[3] = {6, 3, 0};
    spx_rvfit chosen;
    o.keep_model = 0;
    in.row = row;
    in.nrow = 3;
    NEED(backend.rvfit(&backend, &in, &o, NULL, &chosen, &need_e));
    for (size_t i = 0; i < 3; i++)
        CHECK(chosen.row[i] == row[i] && memcmp(&chosen.star[i], &r.star[row[i]], sizeof *r.star) == 0 &&
                  !chosen.arm[0].model,
              "row %zu, chosen: another result", row[i]);
    spx_rvfit_free(&chosen);
    spx_rvfit_free(&threaded);
    spx_rvfit_free(&alone);
    spx_rvfit_free(&r);
    free_spectra(&s);
    free_spectra(&clean);
}

/* ---- refusals ---- */

static void refusals(const spx_templates *t)
{
    spx_spectra s;
    spx_rvfit_options o, d;
    alloc_spectra(&s, 1);
    draw(&s, 0, &(truth){0, 0, 5500, -1, 40});
    spx_rvfit_input in = input_of(&s, t), other;
    init(&d);

    o = d;
    o.npoly = SPX_RVFIT_MAX_POLY + 1;
    refused("too many functions", SPX_EUSAGE, &in, &o);
    o = d;
    o.vmin = 10;
    o.vmax = -10;
    refused("velocity range", SPX_EUSAGE, &in, &o);
    o = d;
    o.vmax = NAN;
    refused("velocity NaN", SPX_EUSAGE, &in, &o);
    o = d;
    o.vsinimin = -1;
    refused("vsini range", SPX_EUSAGE, &in, &o);
    o = d;
    o.vmax = 30000;
    refused("templates do not reach", SPX_EINPUT, &in, &o);
    o = d;
    o.resolution = 1;
    refused("no resolution matrix", SPX_EINPUT, &in, &o);
    o = d;
    o.fixed[2] = 1;
    o.value[2] = -5;
    refused("logarithm of a negative value", SPX_EUSAGE, &in, &o);

    other = in;
    other.setup[0] = other.setup[1] = NULL;
    refused("no setup", SPX_EINPUT, &other, &d);
    other = in;
    other.setup[0] = &t->setup[1];
    refused("setup of another arm", SPX_EINPUT, &other, &d);
    size_t row = 1;
    other = in;
    other.row = &row;
    refused("row that is not there", SPX_EINPUT, &other, &d);

    spx_setup broken = t->setup[0];
    other = in;
    other.setup[0] = &broken;
    int32_t *node = spx_alloc(20, sizeof *node, NULL);
    if (!node)
        exit(1);
    memcpy(node, t->setup[0].node, 20 * sizeof *node);
    broken.node = node;
    node[7] = -1;
    d.interpolator = SPX_INTERPOLATE_AUTO; /* there is a grid, so it is taken */
    refused("hole in the grid", SPX_EINPUT, &other, &d);
    node[7] = (int32_t)broken.ntemp;
    refused("node beyond the templates", SPX_EINPUT, &other, &d);
    broken = t->setup[0];
    broken.node = NULL;
    d.interpolator = SPX_INTERPOLATE_CUBIC;
    refused("no grid", SPX_EINPUT, &other, &d);
    broken = t->setup[0];
    broken.simplex = NULL;
    d.interpolator = SPX_INTERPOLATE_SIMPLEX;
    refused("no triangulation", SPX_EINPUT, &other, &d);
    d.interpolator = interpolator;
    broken = t->setup[0];
    broken.parlog[0] = 0;
    refused("other mapping", SPX_EINPUT, &other, &d);
    spx_free(node);

    double keep = s.arm[1].wavelength[7];
    s.arm[1].wavelength[7] = s.arm[1].wavelength[8];
    refused("wavelengths not increasing", SPX_EINPUT, &in, &d);
    s.arm[1].wavelength[7] = keep;
    spx_mem_limit(1 << 20);
    refused("no memory", SPX_EIO, &in, &d);
    spx_mem_limit(0);
    free_spectra(&s);
}

/* Of spectra that tell rotation far less well than a prior does, its error is that of the prior, also at rest. */
static void prior_on_rotation(const spx_templates *t)
{
    enum { N = 6 };
    static const double prior[2][2] = {{0, 10}, {8, 3}};
    spx_spectra s;
    spx_rvfit_options o;
    spx_rvfit r;
    init(&o);
    alloc_spectra(&s, N);
    for (size_t i = 0; i < N; i++)
        draw(&s, i, &(truth){-40 + 20 * (double)i, 4, 5100 + 100 * (double)i, -0.8, 12});
    const spx_rvfit_input in = input_of(&s, t);
    for (size_t k = 0; k < 2; k++) {
        o.prior_mean[1] = prior[k][0];
        o.prior_sigma[1] = prior[k][1];
        NEED(backend.rvfit(&backend, &in, &o, NULL, &r, &need_e));
        for (size_t i = 0; i < N; i++)
            CHECK(r.star[i].vsini_err > 0.6 * prior[k][1] && r.star[i].vsini_err < 1.2 * prior[k][1] &&
                      fabs(r.star[i].vsini - prior[k][0]) < prior[k][1],
                  "prior %g +- %g, star %zu: vsini %g +- %g", prior[k][0], prior[k][1], i, r.star[i].vsini,
                  r.star[i].vsini_err);
        spx_rvfit_free(&r);
    }
    free_spectra(&s);
}

static void body(spx_templates *t)
{
    cubic_weights();
    instruction_sets(t);
    static const spx_interpolator all[] = {SPX_INTERPOLATE_CUBIC, SPX_INTERPOLATE_GRID, SPX_INTERPOLATE_SIMPLEX};
    for (size_t k = 0; k < sizeof all / sizeof *all; k++) {
        interpolator = all[k];
        objective(t);
        component_sums(t);
        gradient(t);
        recovered(t);
        starts_and_outliers(t);
        other_minima(t);
        bad_spectra(t);
        refusals(t);
    }
    interpolator = SPX_INTERPOLATE_CUBIC;
    prior_on_rotation(t);
}

int main(void)
{
    return rv_test(body);
}
