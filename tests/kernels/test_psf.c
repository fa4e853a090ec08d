/* Checks spots of the Gauss-Hermite PSF against numerical integration; places, degenerate PSFs, coverage. */
#include <math.h>
#include <string.h>

#include "../must.h"
#include "check.h"
#include "products/psf_index.h"
#include "psf/psf.h"
#include "psf/spot_math.h"
#include "small_psf.h"

static void check_legendre(void)
{
    double basis[30];
    for (int t = -10; t <= 10; t++) {
        double u = t / 10.0, c[4] = {0.3, -1.0, 2.0, 0.7};
        spx_legendre_basis(30, u, basis);
        CHECK(fabs(basis[2] - (3 * u * u - 1) / 2) < 1e-14 && fabs(basis[3] - (5 * u * u - 3) * u / 2) < 1e-14,
              "P_2 or P_3 at %g", u);
        double want = c[0] + c[1] * u + c[2] * (3 * u * u - 1) / 2 + c[3] * (5 * u * u - 3) * u / 2;
        CHECK(fabs(spx_legendre_sum(4, c, u) - want) < 1e-14, "sum at %g", u);
    }
    spx_legendre_basis(30, -1.0, basis);
    for (int k = 0; k < 30; k++)
        CHECK(fabs(basis[k] - (k % 2 ? -1.0 : 1.0)) < 1e-13, "P_%d(-1) = %g", k, basis[k]);
}

/* He_n(e) phi(e), straight from the recurrence. */
static double hermite_gauss(int n, double e)
{
    double below = 0.0, here = 1.0;
    for (int k = 0; k < n; k++) {
        double above = e * here - k * below;
        below = here;
        here = above;
    }
    return here * exp(-0.5 * e * e) / sqrt(2.0 * acos(-1.0));
}

/* Integral of He_n phi from a to b by Simpson's rule. */
static double integral(int n, double a, double b)
{
    enum { STEPS = 200 };
    double sum = hermite_gauss(n, a) + hermite_gauss(n, b), h = (b - a) / STEPS;
    for (int k = 1; k < STEPS; k++)
        sum += (k % 2 ? 4.0 : 2.0) * hermite_gauss(n, a + k * h);
    return sum * h / 3.0;
}

/* One spot pixel by pixel from the definition. */
static void check_spot(const small_psf_shape *shape)
{
    spx_psf *p = small_psf(shape);
    CHECK(p != NULL, "no PSF");
    if (!p)
        return;
    const int nx = spx_psf_nx(p), ny = spx_psf_ny(p);
    const size_t npix = (size_t)(nx * ny), nwork = spx_psf_spot_work(p);
    double *spot = spx_alloc(npix + 2, sizeof(double), NULL), *work = spx_alloc(nwork + 2, sizeof(double), NULL),
           *want = spx_alloc(npix, sizeof(double), NULL);
    CHECK(spot && work && want, "memory");
    for (size_t f = 0; spot && work && want && f < p->nspec; f += 3)
        for (double lambda = shape->wmin - 10.0; lambda <= shape->wmax + 10.0; lambda += 9.7) {
            spot[0] = spot[npix + 1] = work[0] = work[nwork + 1] = SENTINEL;
            spx_spot at;
            spx_spot_status st = spx_psf_spot(p, f, lambda, work + 1, spot + 1, &at);
            CHECK(st == SPX_SPOT_OK, "status %d", st);
            CHECK(spot[0] == SENTINEL && spot[npix + 1] == SENTINEL && work[0] == SENTINEL &&
                      work[nwork + 1] == SENTINEL,
                  "wrote beyond its memory");
            double u = spx_psf_u(p->x.wmin, p->x.wmax, lambda);
            double x = spx_legendre_sum(p->x.ncoef, p->x.coef + f * p->x.ncoef, u);
            double y = spx_legendre_sum(p->y.ncoef, p->y.coef + f * p->y.ncoef, u);
            CHECK(at.x == x && at.y == y, "centre");
            CHECK(at.xc == (long)floor(x - p->hsizex + 0.5) && at.yc == (long)floor(y - p->hsizey + 0.5), "corner");
            CHECK(fabs((double)(at.xc + p->hsizex) + at.dx - x) < 1e-9 && at.dx >= -0.5 && at.dx < 0.5, "offset in x");
            CHECK(fabs((double)(at.yc + p->hsizey) + at.dy - y) < 1e-9 && at.dy >= -0.5 && at.dy < 0.5, "offset in y");

            double basis[20];
            spx_legendre_basis(p->ndeg, spx_psf_u(p->wmin, p->wmax, lambda), basis);
            double par[200];
            for (size_t k = 0; k < p->npar; k++) {
                par[k] = 0.0;
                for (size_t d = 0; d < p->ndeg; d++)
                    par[k] += p->coeff[(k * p->nspec + f) * p->ndeg + d] * basis[d];
            }
            double sum = 0.0;
            for (int iy = 0; iy < ny; iy++)
                for (int ix = 0; ix < nx; ix++) {
                    double ex = ((double)at.xc + ix - 0.5 - x) / par[0], ey = ((double)at.yc + iy - 0.5 - y) / par[1];
                    double v = 0.0;
                    for (int j = 0; j <= p->ghdegy; j++)
                        for (int i = 0; i <= p->ghdegx; i++)
                            v += par[2 + i + (p->ghdegx + 1) * j] * integral(i, ex, ex + 1.0 / par[0]) *
                                 integral(j, ey, ey + 1.0 / par[1]);
                    want[iy * nx + ix] = v > 0.0 ? v : 0.0;
                    sum += want[iy * nx + ix];
                }
            double worst = 0.0, total = 0.0;
            for (size_t k = 0; k < npix; k++) {
                worst = fmax(worst, fabs(spot[1 + k] - want[k] / sum));
                total += spot[1 + k];
                CHECK(spot[1 + k] >= 0.0, "negative pixel");
            }
            CHECK(worst < 1e-9, "fibre %zu, %g A: spot differs by %g", f, lambda, worst);
            CHECK(fabs(total - 1.0) < 1e-13, "sum %.17g", total);
        }
    spx_free(spot);
    spx_free(work);
    spx_free(want);
    spx_psf_free(p);
    spx_free(p);
}

/* Centres on pixel borders and left of or below the CCD. */
static void check_places(void)
{
    const double x[] = {3.0, 3.5, 3.4999999999999996, -0.5, -0.49999999999999994, -7.25, -1e-17, 0.0, 4095.5};
    double cx[1] = {0}, cy[1] = {0};
    spx_psf p = {.nspec = 1, .hsizex = 2, .hsizey = 1};
    p.x = (spx_psf_series){.ncoef = 1, .wmin = 1.0, .wmax = 2.0, .coef = cx};
    p.y = (spx_psf_series){.ncoef = 1, .wmin = 1.0, .wmax = 2.0, .coef = cy};
    for (size_t k = 0; k < sizeof x / sizeof *x; k++) {
        cx[0] = x[k];
        cy[0] = -x[k];
        spx_spot at;
        CHECK(spx_psf_spot_place(&p, 0, 1.5, &at) == SPX_SPOT_OK, "place %g", x[k]);
        CHECK(at.dx >= -0.5 && at.dx <= 0.5 && fabs((double)at.xc + 2 + at.dx - x[k]) < 1e-12, "x %.17g: %ld + %g",
              x[k], at.xc, at.dx);
        CHECK(at.dy >= -0.5 && at.dy <= 0.5 && fabs((double)at.yc + 1 + at.dy + x[k]) < 1e-12, "y %.17g: %ld + %g",
              -x[k], at.yc, at.dy);
    }
}

static void check_refusals(void)
{
    small_psf_shape shape = small_psf_default();
    spx_psf *p = small_psf(&shape);
    CHECK(p != NULL, "no PSF");
    if (!p)
        return;
    double work[200], spot[63];
    spx_spot at;
    struct {
        double *value, bad;
        spx_spot_status want;
    } cases[] = {{&p->coeff[0], 0.0, SPX_SPOT_SIGMA},
                 {&p->coeff[0], -1.0, SPX_SPOT_SIGMA},
                 {&p->coeff[0], NAN, SPX_SPOT_SIGMA},
                 {&p->coeff[p->nspec * p->ndeg], INFINITY, SPX_SPOT_SIGMA},
                 {&p->coeff[2 * p->nspec * p->ndeg], NAN, SPX_SPOT_EMPTY},
                 {&p->coeff[3 * p->nspec * p->ndeg], INFINITY, SPX_SPOT_EMPTY},
                 {&p->coeff[2 * p->nspec * p->ndeg], -100.0, SPX_SPOT_EMPTY},
                 {&p->x.coef[0], NAN, SPX_SPOT_CENTRE},
                 {&p->y.coef[0], 1e300, SPX_SPOT_CENTRE},
                 {&p->x.coef[1], -INFINITY, SPX_SPOT_CENTRE}};
    CHECK(spx_psf_spot_work(p) <= 200 && spx_psf_nx(p) * spx_psf_ny(p) == 63, "sizes");
    /* the negative case needs a spot that is negative everywhere */
    for (size_t k = 3; k < p->npar; k++)
        for (size_t d = 0; d < p->ndeg; d++)
            p->coeff[k * p->nspec * p->ndeg + d] = 0.0;
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        double saved = *cases[k].value;
        *cases[k].value = cases[k].bad;
        double lambda = cases[k].want == SPX_SPOT_SIGMA ? 0.5 * (p->wmin + p->wmax) : 5010.0;
        spx_spot_status st = spx_psf_spot(p, 0, lambda, work, spot, &at);
        CHECK(st == cases[k].want, "case %zu: status %d, want %d", k, st, cases[k].want);
        for (int i = 0; i < 63; i++)
            CHECK(spot[i] == 0.0, "case %zu: pixel %d is %g", k, i, spot[i]);
        CHECK(isfinite(at.x) && isfinite(at.y) && isfinite(at.dx) && isfinite(at.dy), "case %zu: place", k);
        *cases[k].value = saved;
    }
    spx_psf_free(p);
    spx_free(p);
}

static void check_index(void)
{
    small_psf_shape shape = small_psf_default();
    spx_psf *p = small_psf(&shape);
    CHECK(p != NULL, "no PSF");
    if (!p)
        return;
    strcpy(p->param[2 + 1], "OTHER"); /* GH-1-0: absent is 0 */
    CHECK(spx_psf_index(p, NULL) == SPX_OK && p->gh[0] == 2 && p->gh[1] == -1 && p->gh[2] == 4, "index");
    double work[200], spot[63];
    spx_spot at;
    CHECK(spx_psf_spot(p, 1, 5030.0, work, spot, &at) == SPX_SPOT_OK, "absent coefficient");
    spx_err e = {0};
    strcpy(p->param[1], "SIGY");
    CHECK(spx_psf_index(p, &e) == SPX_EINPUT && strstr(spx_err_text(&e), "GHSIGY"), "no GHSIGY: %s", spx_err_text(&e));
    strcpy(p->param[1], "GHSIGY");
    p->hsizey = 1 << 29;
    spx_err_clear(&e);
    CHECK(spx_psf_index(p, &e) == SPX_EINPUT && strstr(spx_err_text(&e), "half size"), "half size: %s",
          spx_err_text(&e));
    p->hsizey = 3;
    p->ghdegx = -1;
    spx_err_clear(&e);
    CHECK(spx_psf_index(p, &e) == SPX_EINPUT && strstr(spx_err_text(&e), "degree"), "degree: %s", spx_err_text(&e));
    p->ghdegx = 3;
    p->x.wmax = p->x.wmin;
    spx_err_clear(&e);
    CHECK(spx_psf_index(p, &e) == SPX_EINPUT && strstr(spx_err_text(&e), "WAVEM"), "range: %s", spx_err_text(&e));
    p->x.wmax = HUGE_VAL;
    spx_err_clear(&e);
    CHECK(spx_psf_index(p, &e) == SPX_EINPUT && strstr(spx_err_text(&e), "WAVEM"), "range without end: %s",
          spx_err_text(&e));
    spx_psf_free(p);
    CHECK(p->nspec == 0 && !p->gh, "free");
    spx_psf_free(NULL);
    spx_free(p);
}

static void check_coverage(void)
{
    small_psf_shape shape = small_psf_default();
    spx_psf *p = small_psf(&shape);
    CHECK(p != NULL, "no PSF");
    if (!p)
        return;
    double wmin = 0.0, wmax = 0.0;
    spx_err e = {0};
    CHECK(spx_psf_coverage(p, 50, 90, 0.8, &wmin, &wmax, &e) == SPX_OK && wmin == 6250 * 0.8 && wmax == 6350 * 0.8,
          "all: %.17g %.17g %s", wmin, wmax, spx_err_text(&e));
    CHECK(spx_psf_coverage(p, 50, 40, 0.8, &wmin, &wmax, &e) == SPX_OK && wmin == 6250 * 0.8 && wmax < 5060.0 &&
              wmax > 5020.0,
          "cut at the top: %.17g %.17g %s", wmin, wmax, spx_err_text(&e));
    for (size_t f = 0; f < p->nspec; f++) {
        double y = spx_psf_series_value(&p->y, f, wmax);
        CHECK(y < 39.5, "fibre %zu at %g A is on row %g", f, wmax, y);
    }
    CHECK(spx_psf_coverage(p, 20, 90, 0.8, &wmin, &wmax, &e) == SPX_EINPUT && strstr(spx_err_text(&e), "20 x 90"),
          "narrow: %s", spx_err_text(&e));
    spx_err_clear(&e);
    CHECK(spx_psf_coverage(p, 50, 90, 1e-9, &wmin, &wmax, &e) == SPX_EINPUT, "tiny step");
    spx_psf_free(p);
    spx_free(p);
}

/* A stretched PSF is at lambda what the PSF is at lambda / factor: traces and parameters. */
static void check_stretch(void)
{
    small_psf_shape shape = small_psf_default();
    shape.ncoef = 7;
    shape.ndeg = 3;
    spx_psf *p = small_psf(&shape), to = {0};
    spx_err e = {0};
    double factor[16], worst = 0.0;
    CHECK(p != NULL && p->nspec <= 16, "setup");
    for (size_t f = 0; f < p->nspec; f++)
        factor[f] = 1.0 + 2e-4 * ((double)f - 2.0);
    CHECK(spx_psf_to_barycentre(p, factor, &to, &e) == SPX_OK, "%s", spx_err_text(&e));
    for (size_t f = 0; f < p->nspec; f++)
        for (double w = p->wmin; w <= p->wmax; w += 2.5) {
            worst =
                fmax(worst, fabs(spx_psf_series_value(&to.x, f, w) - spx_psf_series_value(&p->x, f, w / factor[f])));
            worst =
                fmax(worst, fabs(spx_psf_series_value(&to.y, f, w) - spx_psf_series_value(&p->y, f, w / factor[f])));
            for (size_t par = 0; par < p->npar; par++) {
                size_t at = (par * p->nspec + f) * p->ndeg;
                worst = fmax(
                    worst, fabs(spx_legendre_sum(p->ndeg, to.coeff + at, spx_psf_u(p->wmin, p->wmax, w)) -
                                spx_legendre_sum(p->ndeg, p->coeff + at, spx_psf_u(p->wmin, p->wmax, w / factor[f]))));
            }
        }
    /* rounding of numbers up to 100, enlarged by the argument's 1 / (wmax - wmin) */
    CHECK(worst < 1e-11, "stretched series differ by %g", worst);
    CHECK(to.sigx == p->sigx && to.nspec == p->nspec && to.gh[0] == p->gh[0], "stretched PSF lost its index");
    spx_psf_free(&to);
    spx_psf_free(p);
    spx_free(p);
}

/* Traces with ranges of their own: each series is that of the trace, and a stretched one is that at lambda / factor. */
static void check_ranges(void)
{
    small_psf_shape shape = small_psf_default();
    spx_psf *p = small_psf(&shape), to = {0};
    double *range = spx_alloc2(16, 2, sizeof *range, NULL), factor[16], worst = 0.0;
    spx_err e = {0};
    CHECK(p != NULL && range != NULL && p->nspec <= 16, "setup");
    for (size_t f = 0; f < p->nspec; f++) {
        range[2 * f] = 4000.0 + 500.0 * (double)f;
        range[2 * f + 1] = 4700.0 + 520.0 * (double)f;
        factor[f] = 1.0 - 1e-4 * ((double)f - 2.0);
    }
    spx_psf_set_wave_range(p, range);
    CHECK(p->wmin == 4000.0 && p->y.wmax == 4700.0 + 520.0 * (double)(p->nspec - 1), "range of all");
    CHECK(spx_psf_to_barycentre(p, factor, &to, &e) == SPX_OK, "%s", spx_err_text(&e));
    for (size_t f = 0; f < p->nspec; f++)
        for (int k = 0; k <= 20; k++) {
            const double u = -1.0 + 0.1 * k;
            const double w = range[2 * f] + 0.5 * (u + 1.0) * (range[2 * f + 1] - range[2 * f]);
            const double x = spx_legendre_sum(p->x.ncoef, p->x.coef + f * p->x.ncoef, u);
            CHECK(fabs(spx_psf_series_value(&p->x, f, w) - x) < 1e-12, "x of fibre %zu at %g", f, w);
            CHECK(fabs(spx_psf_param_u(p, f, w) - u) < 1e-12, "argument of fibre %zu at %g", f, w);
            worst = fmax(worst, fabs(spx_psf_series_value(&to.x, f, w * factor[f]) - x));
            worst =
                fmax(worst, fabs(spx_psf_series_value(&to.y, f, w * factor[f]) - spx_psf_series_value(&p->y, f, w)));
            for (size_t par = 0; par < p->npar; par++) {
                const size_t at = (par * p->nspec + f) * p->ndeg;
                worst =
                    fmax(worst, fabs(spx_legendre_sum(p->ndeg, to.coeff + at, spx_psf_param_u(&to, f, w * factor[f])) -
                                     spx_legendre_sum(p->ndeg, p->coeff + at, u)));
            }
        }
    CHECK(worst < 1e-11, "stretched series differ by %g", worst); /* as in check_stretch() */
    for (size_t f = 0; f < p->nspec; f++)                         /* the light stays where it may be used */
        CHECK(to.valid_range != NULL && fabs(to.valid_range[2 * f] - range[2 * f] * factor[f]) < 1e-9 &&
                  fabs(to.valid_range[2 * f + 1] - range[2 * f + 1] * factor[f]) < 1e-9 &&
                  to.wave_range[2 * f] == range[2 * f],
              "ranges of fibre %zu", f);
    spx_psf_free(&to);
    spx_psf_free(p);
    spx_free(p);
}

/* Bins by the spots: a straight trace of 73.9 rows in 80 Angstrom, spots of 0.75 pixel. */
static void check_step(void)
{
    small_psf_shape shape = small_psf_default();
    shape.ncoef = 2;
    shape.ndeg = 1;
    spx_psf *p = must_have(small_psf(&shape));
    const double sigma = 0.75 * 80 / 73.9;
    CHECK(fabs(spx_psf_sigma_along(p, 3) / sigma - 1) < 1e-9, "sigma %g", spx_psf_sigma_along(p, 3));
    /* the bins of 0.9 are 1.11 sigma */
    const spx_psf_bins usual = {0.9, 0.8, 1.25, 1.1, 0}, narrow = {0.9, 0.8, 1.05, 0.7, 0}, wide = {0.9, 1.2, 9, 2, 0},
                       fine = {0.9, 0.8, 1.05, 0.5, 0}, coarse = {0.9, 1.2, 9, 99, 0}, round = {0.9, 1.2, 9, 2.47, 1};
    CHECK(spx_psf_step(p, 3, 100, &usual) == 0.9, "bins that suit");
    CHECK(fabs(spx_psf_step(p, 3, 1000, &narrow) - 0.7 * sigma) < 1e-9, "bins of 0.7 sigma where 0.9 are too wide");
    CHECK(fabs(spx_psf_step(p, 3, 1000, &wide) - 1.6) < 0.05, "bins of 2 sigma where 0.9 are too narrow, at most 50");
    CHECK(fabs(spx_psf_step(p, 3, 100, &fine) - 0.8) < 1e-9, "no more bins than rows");
    CHECK(spx_psf_step(p, 3, 100, &coarse) == 1.6, "not fewer than 50");
    CHECK(spx_psf_step(p, 3, 100, &round) == 1.6, "1.6, as 1.62 and 1.9 would be");
    spx_psf_free(p);
    spx_free(p);
}

int main(void)
{
    check_step();
    check_legendre();
    check_stretch();
    check_ranges();
    small_psf_shape shape = small_psf_default();
    check_spot(&shape);
    shape.hsizex = shape.hsizey = shape.ghdegx = shape.ghdegy = 0;
    shape.ndeg = shape.ncoef = 1;
    check_spot(&shape);
    shape = small_psf_default();
    shape.hsizex = 1;
    shape.hsizey = 6;
    shape.ghdegx = 0;
    shape.ghdegy = 9;
    shape.ndeg = 5;
    shape.ncoef = 8;
    check_spot(&shape);
    check_places();
    check_refusals();
    check_index();
    check_coverage();
    return failures != 0;
}
