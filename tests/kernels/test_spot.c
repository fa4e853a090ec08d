/* Checks spots of all types (psf/spot_math.h), grids of over-sampled ones too: against a direct evaluation of their
 * definition, against each other where two types describe the same spot, and derivatives against central differences.
 * With $SPX_SHARED, a real BOSS PSF, too.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "../helpers/spot_rays.h"
#include "check.h"
#include "convert/ccd.h"
#include "products/psf_grid.h"
#include "psf/psf.h"
#include "psf/spot_math.h"
#include "small_psf.h"

enum { NX = 21, NPIX = NX * NX, NWORK = 4000, MANY = 120 };

/* ---- a direct evaluation, in long double ---- */

/* He_n by its explicit sum n! sum_m (-1)^m e^(n-2m) / (m! (n-2m)! 2^m). */
static long double hermite(int n, long double e)
{
    long double sum = 0;
    for (int m = 0; 2 * m <= n; m++)
        sum += (m % 2 ? -1 : 1) * powl(e, n - 2 * m) * tgammal(n + 1) /
               (tgammal(m + 1) * tgammal(n - 2 * m + 1) * powl(2, m));
    return sum;
}

/* Integral of He_n phi from a to b. */
static long double integral(int n, long double a, long double b)
{
    const long double root = sqrtl(2 * acosl(-1));
    if (n == 0)
        return 0.5L * (erfl(b / sqrtl(2)) - erfl(a / sqrtl(2)));
    return (hermite(n - 1, a) * expl(-0.5L * a * a) - hermite(n - 1, b) * expl(-0.5L * b * b)) / root;
}

/* Legendre series by Bonnet's recurrence, upwards in long double. */
static long double series(size_t n, const double *c, double lo, double hi, double lambda)
{
    const long double u = 2 * ((long double)lambda - lo) / ((long double)hi - lo) - 1;
    long double below = 0, here = 1, sum = 0;
    for (size_t k = 0; k < n; k++) {
        sum += c[k] * here;
        const long double above = ((2 * (long double)k + 1) * u * here - (long double)k * below) / ((long double)k + 1);
        below = here;
        here = above;
    }
    return sum;
}

static long double named(const spx_psf *p, const char *name, size_t fibre, double lambda)
{
    for (size_t k = 0; k < p->npar; k++)
        if (strcmp(p->param[k], name) == 0)
            return series(p->ndeg, p->coeff + (k * p->nspec + fibre) * p->ndeg, p->wmin, p->wmax, lambda);
    return 0;
}

/* Sum of a Gauss-Hermite series over one pixel, whose centre is dx, dy from that of the spot. */
static long double core(const spx_psf *p, const char *prefix, int degx, int degy, long double sx, long double sy,
                        size_t fibre, double lambda, long double dx, long double dy)
{
    long double sum = 0;
    for (int j = 0; j <= degy; j++)
        for (int i = 0; i <= degx; i++) {
            char name[40];
            snprintf(name, sizeof name, "%s-%d-%d", prefix, i, j);
            sum += named(p, name, fibre, lambda) * integral(i, (dx - 0.5L) / sx, (dx + 0.5L) / sx) *
                   integral(j, (dy - 0.5L) / sy, (dy + 0.5L) / sy);
        }
    return sum;
}

/* The spot by its definition, where `x0`, `y0` is its first pixel; *margin: least distance of a pixel from the cut of
 * the first core, in sigma. */
static void direct(const spx_psf *p, size_t fibre, double lambda, long x0, long y0, double *spot, double *margin)
{
    const int nx = 2 * p->hsizex + 1, ny = 2 * p->hsizey + 1, two = p->type == SPX_PSF_GAUSS_HERMITE2;
    const long double x = series(p->x.ncoef, p->x.coef + fibre * p->x.ncoef, p->x.wmin, p->x.wmax, lambda);
    const long double y = series(p->y.ncoef, p->y.coef + fibre * p->y.ncoef, p->y.wmin, p->y.wmax, lambda);
    const long double sx = named(p, "GHSIGX", fibre, lambda), sy = named(p, "GHSIGY", fibre, lambda);
    const long double nsig = named(p, "GHNSIG", fibre, lambda), tilt = named(p, "TILT", fibre, lambda);
    long double sum = 0;
    *margin = 9;
    for (int k = 0; k < nx * ny; k++) {
        const long double dy = (long double)(y0 + k / nx) - y, dx = (long double)(x0 + k % nx) - x - tilt * dy;
        long double v = core(p, "GH", p->ghdegx, p->ghdegy, sx, sy, fibre, lambda, dx, dy);
        if (two) {
            const long double r = sqrtl(dx * dx / (sx * sx) + dy * dy / (sy * sy));
            *margin = fmin(*margin, (double)fabsl(r - nsig));
            v = r < nsig ? v : 0;
            v += core(p, "GH2", p->ghdegx2, p->ghdegy2, named(p, "GHSIGX2", fibre, lambda),
                      named(p, "GHSIGY2", fibre, lambda), fibre, lambda, dx, dy);
            const long double tx = dx * named(p, "TAILXSCA", fibre, lambda),
                              ty = dy * named(p, "TAILYSCA", fibre, lambda), r2 = tx * tx + ty * ty,
                              q = named(p, "TAILCORE", fibre, lambda);
            v +=
                named(p, "TAILAMP", fibre, lambda) * r2 / powl(q * q + r2, 1 + named(p, "TAILINDE", fibre, lambda) / 2);
        }
        spot[k] = (double)(v > 0 ? v : 0);
        sum += v > 0 ? v : 0;
    }
    for (int k = 0; k < nx * ny; k++)
        spot[k] = (double)(spot[k] / sum);
}

/* Compares spots with the direct evaluation: to `tolerance`. */
static void check_direct(const spx_psf *p, double first, double last, double tolerance)
{
    double spot[NPIX], want[NPIX], work[NWORK], margin;
    CHECK(spx_psf_spot_work(p) <= NWORK && spx_psf_nx(p) <= NX && spx_psf_ny(p) <= NX, "sizes");
    for (size_t f = 0; f < p->nspec; f += 3)
        for (int k = 0; k < 6; k++) {
            const double lambda = first + (last - first) * (k + 0.37) / 6;
            spx_spot at;
            const spx_spot_status st = spx_psf_spot(p, f, lambda, work, spot, &at);
            CHECK(st == SPX_SPOT_OK, "status %d", st);
            direct(p, f, lambda, at.xc, at.yc, want, &margin);
            double worst = 0, sum = 0;
            for (int i = 0; i < spx_psf_nx(p) * spx_psf_ny(p); i++) {
                worst = fmax(worst, fabs(spot[i] - want[i]));
                sum += spot[i];
            }
            CHECK(worst < tolerance, "fibre %zu at %g: spot differs by %g (cut %g sigma from a pixel)", f, lambda,
                  worst, margin);
            CHECK(fabs(sum - 1) < 1e-13, "sum %.17g", sum);
        }
}

/* ---- derivatives ---- */

/* Pixels of the spot before they are divided, with the corner held: X, Y or a parameter is moved by `by`. */
static void moved(spx_psf *p, size_t fibre, double lambda, int what, double by, double *spot)
{
    double work[NWORK];
    spx_spot at;
    double *c = what >= 0 ? p->coeff + ((size_t)what * p->nspec + fibre) * p->ndeg : NULL;
    (void)spx_psf_spot_place(p, fibre, lambda, &at);
    if (what == SPX_SPOT_X)
        at.dx += by;
    else if (what == SPX_SPOT_Y)
        at.dy += by;
    else
        c[0] += by;
    const spx_spot_parts w = spx_spot_divide_work(p, work);
    CHECK(spx_spot_raw(p, fibre, lambda, &at, &w, spot) == SPX_SPOT_OK, "raw spot");
    if (c != NULL)
        c[0] -= by;
}

/* All derivatives against central differences, to 1e-6 of the largest. */
static void check_derivatives(spx_psf *p, double first, double last)
{
    static double d[MANY * NPIX], spot[NPIX], same[NPIX], raw[NPIX], up[NPIX], down[NPIX], work[NWORK];
    int what[MANY] = {SPX_SPOT_X, SPX_SPOT_Y};
    const size_t n = (size_t)(spx_psf_nx(p) * spx_psf_ny(p)), nwhat = 2 + p->npar;
    CHECK(nwhat <= MANY && n <= NPIX && spx_psf_spot_work(p) <= NWORK, "sizes");
    for (size_t k = 0; k < p->npar; k++)
        what[2 + k] = (int)k;
    for (int t = 0; t < 4; t++) {
        const double lambda = first + (last - first) * (t + 0.41) / 4, h = 1e-5;
        const size_t f = (size_t)t % p->nspec;
        spx_spot at;
        CHECK(spx_psf_spot_diff(p, f, lambda, nwhat, what, work, spot, d, &at) == SPX_SPOT_OK, "derivatives");
        CHECK(spx_psf_spot(p, f, lambda, work, same, &at) == SPX_SPOT_OK && memcmp(spot, same, n * sizeof *spot) == 0,
              "not the spot of spx_psf_spot()");
        moved(p, f, lambda, SPX_SPOT_X, 0, raw);
        double sum = 0;
        for (size_t i = 0; i < n; i++)
            sum += raw[i] > 0 ? raw[i] : 0;
        for (size_t k = 0; k < nwhat; k++) {
            double most = 0, worst = 0;
            moved(p, f, lambda, what[k], h, up);
            moved(p, f, lambda, what[k], -h, down);
            for (size_t i = 0; i < n; i++) {
                const double want = (up[i] - down[i]) / (2 * h) / sum;
                if (raw[i] <= 0)
                    CHECK(d[k * n + i] == 0, "clipped pixel %zu has a derivative", i);
                else if (fabs(up[i] - down[i]) < 1e-3) { /* not a pixel that has crossed the cut */
                    most = fmax(most, fabs(want));
                    worst = fmax(worst, fabs(d[k * n + i] - want));
                }
            }
            CHECK(worst <= 1e-6 * (most > 1e-3 ? most : 1e-3), "d/d %s at %g: wrong by %g of %g",
                  what[k] == SPX_SPOT_X   ? "X"
                  : what[k] == SPX_SPOT_Y ? "Y"
                                          : p->param[what[k]],
                  lambda, worst, most);
        }
    }
}

/* The factors of a separable spot give it. */
static void check_factors(const spx_psf *p, double lambda)
{
    double gx[20 * NX], gy[20 * NX], c[400], work[NWORK], spot[NPIX], sum = 0, worst = 0;
    spx_spot at, same;
    const int nx = spx_psf_nx(p), ny = spx_psf_ny(p), mx = p->ghdegx + 1;
    for (int more = 0; more <= SPX_SPOT_MORE; more++) {
        CHECK(spx_psf_spot_factors(p, 1, lambda, more, work, gx, gy, c, &at) == SPX_SPOT_OK, "factors");
        CHECK(spx_psf_spot(p, 1, lambda, work, spot, &same) == SPX_SPOT_OK && at.xc == same.xc && at.dy == same.dy,
              "place");
        double *v = spx_alloc((size_t)(nx * ny), sizeof *v, NULL);
        sum = worst = 0;
        for (int k = 0; k < nx * ny; k++) {
            for (int j = 0; j <= p->ghdegy; j++)
                for (int i = 0; i < mx; i++)
                    v[k] += c[i + mx * j] * gx[i * nx + k % nx] * gy[j * ny + k / nx];
            v[k] = v[k] > 0 ? v[k] : 0;
            sum += v[k];
        }
        for (int k = 0; k < nx * ny; k++)
            worst = fmax(worst, fabs(v[k] / sum - spot[k]));
        CHECK(worst < 1e-15, "factors differ by %g", worst);
        spx_free(v);
    }
}

/* ---- PSFs ---- */

/* Adds a parameter with these coefficients, the same in all fibres but for some per cent. */
static void add(spx_psf *p, const char *name, double c0, double c1)
{
    const size_t n = p->nspec * p->ndeg;
    spx_psf_param *param = spx_alloc(p->npar + 1, sizeof *param, NULL);
    double *coeff = spx_alloc((p->npar + 1) * n, sizeof *coeff, NULL);
    CHECK(param != NULL && coeff != NULL, "memory");
    memcpy(param, p->param, p->npar * sizeof *param);
    memcpy(coeff, p->coeff, p->npar * n * sizeof *coeff);
    snprintf(param[p->npar], sizeof *param, "%s", name);
    for (size_t f = 0; f < p->nspec; f++) {
        coeff[(p->npar * p->nspec + f) * p->ndeg] = c0 * (1 + 0.02 * (double)f);
        coeff[(p->npar * p->nspec + f) * p->ndeg + 1] = c1;
    }
    spx_free(p->param);
    spx_free(p->coeff);
    p->param = param;
    p->coeff = coeff;
    p->npar++;
}

/* A PSF of two cores. nsig: of the cut; share: of the second core; tail: amplitude. */
static spx_psf *two_cores(double nsig, double share, double tail)
{
    small_psf_shape shape = small_psf_default();
    shape.hsizex = 6;
    shape.hsizey = 5;
    spx_psf *p = small_psf(&shape);
    CHECK(p != NULL, "no PSF");
    p->type = SPX_PSF_GAUSS_HERMITE2;
    p->ghdegx2 = 2;
    p->ghdegy2 = 3;
    add(p, "GHSIGX2", 2.3, 0.1);
    add(p, "GHSIGY2", 2.1, -0.1);
    add(p, "GHNSIG", nsig, 0);
    for (int j = 0; j <= 3; j++)
        for (int i = 0; i <= 2; i++) {
            char name[40];
            snprintf(name, sizeof name, "GH2-%d-%d", i, j);
            if (i != 1 || j != 2) /* an absent one is 0 */
                add(p, name, share * (i + j == 0 ? 1 : 0.1 / (1 + i + j)), 0.02 * share);
        }
    add(p, "TAILAMP", tail, 0.1 * tail);
    add(p, "TAILCORE", 1.2, 0);
    add(p, "TAILXSCA", 0.9, 0);
    add(p, "TAILYSCA", 1.1, 0.05);
    add(p, "TAILINDE", 2.2, 0);
    CHECK(spx_psf_index(p, NULL) == SPX_OK, "index");
    return p;
}

static void done(spx_psf *p)
{
    spx_psf_free(p);
    spx_free(p);
}

/* Two types that describe the same spot. */
static void check_same(void)
{
    small_psf_shape shape = small_psf_default();
    shape.hsizex = 6;
    shape.hsizey = 5;
    spx_psf *one = small_psf(&shape), *two = two_cores(100, 0, 0), *straight = small_psf(&shape);
    double a[NPIX], b[NPIX], work[NWORK];
    spx_spot at;
    add(straight, "TILT", 0, 0);
    CHECK(spx_psf_index(straight, NULL) == SPX_OK && !spx_psf_plain_spots(straight) && spx_psf_plain_spots(one),
          "kinds");
    CHECK(spx_psf_spot_factors(straight, 0, 5030, 0, work, a, b, b, &at) == SPX_SPOT_DENSE &&
              spx_psf_spot_factors(two, 0, 5030, 0, work, a, b, b, &at) == SPX_SPOT_DENSE,
          "factors of spots that are not separable");
    for (double lambda = 5003; lambda < 5080; lambda += 11.3) {
        double worst = 0;
        CHECK(spx_psf_spot(one, 2, lambda, work, a, &at) == SPX_SPOT_OK, "spot");
        CHECK(spx_psf_spot(straight, 2, lambda, work, b, &at) == SPX_SPOT_OK && memcmp(a, b, 13 * 11 * sizeof *a) == 0,
              "TILT 0 changes the spot");
        CHECK(spx_psf_spot(two, 2, lambda, work, b, &at) == SPX_SPOT_OK, "spot");
        for (int k = 0; k < 13 * 11; k++)
            worst = fmax(worst, fabs(a[k] - b[k]));
        CHECK(worst < 1e-15, "two cores, of which one is 0, differ by %g", worst); /* other order of sums */
    }
    done(one);
    done(two);
    done(straight);
}

/* ---- grids of spots ---- */

/* A PSF whose spots are npos x nwave arrays of so many sub-pixels a pixel, `side` pixels wide; its light is spot(node,
 * side, over, image). */
static spx_psf *grid_psf(size_t npos, size_t nwave, int over, int side, int centroid,
                         void (*spot)(size_t node, int side, int over, double *image))
{
    static double one[400 * 400];
    small_psf_shape shape = small_psf_default();
    shape.ghdegx = shape.ghdegy = 0;
    spx_psf *p = small_psf(&shape);
    CHECK(p != NULL, "no PSF");
    spx_psf_grid *g = &p->grid;
    const size_t my = (size_t)(side * over), mx = my + 2, n = npos * nwave; /* not of equal sides */
    p->type = SPX_PSF_SPOTGRID;
    *g = (spx_psf_grid){.npos = npos, .nwave = nwave, .my = my, .mx = mx, .oversample = over};
    g->spot = spx_alloc(n * my * mx, sizeof *g->spot, NULL);
    g->pos = spx_alloc(npos, sizeof *g->pos, NULL);
    g->wave = spx_alloc(nwave, sizeof *g->wave, NULL);
    g->fibre_pos = spx_alloc(p->nspec, sizeof *g->fibre_pos, NULL);
    if (!centroid) {
        g->place_x = spx_alloc(n, sizeof *g->place_x, NULL);
        g->place_y = spx_alloc(n, sizeof *g->place_y, NULL);
    }
    for (size_t i = 0; i < npos; i++)
        g->pos[i] = 2.0 * (double)i - 1.3 + 0.1 * (double)(i * i);
    for (size_t i = 0; i < nwave; i++)
        g->wave[i] = 5003.0 + 31.0 * (double)i + 2 * (double)(i * i);
    for (size_t f = 0; f < p->nspec; f++)
        g->fibre_pos[f] = 2.9 - 0.83 * (double)f;
    for (size_t k = 0; k < n; k++) {
        spot(k, side, over, one);
        for (size_t i = 0; i < my * my; i++)
            g->spot[(k * my + i / my) * mx + i % my] = (float)one[i];
        if (!centroid) {
            g->place_x[k] = 0.5 * (double)(my - 1) + 0.31 * (double)k;
            g->place_y[k] = 0.5 * (double)(my - 1) - 0.17 * (double)k;
        }
    }
    g->sigma_x = shape.sigx; /* stretched by a few per cent, by fibre and wavelength */
    g->sigma_y = shape.sigy;
    spx_err e = {0};
    CHECK(spx_psf_index(p, &e) == SPX_OK, "index: %s", spx_err_text(&e));
    spx_psf_grid_size(g, &p->hsizex, &p->hsizey);
    CHECK(2 * p->hsizex + 1 <= NX && 2 * p->hsizey + 1 <= NX, "half sizes %d, %d", p->hsizex, p->hsizey);
    return p;
}

static void coma_spot(size_t node, int side, int over, double *image)
{
    const ray_spot s = {.coma = 0.6 + 0.1 * (double)node, .angle = 0.4 * (double)node, .disc = 0.5, .sigma = 0.35};
    ray_image(&s, side * over, side * over, -0.5 * side, -0.5 * side, 1.0 / over, image);
    image[0] = -2e-4; /* noise of a measured spot: pixels to be clipped */
    for (int k = 0; k < side * side * over * over; k++)
        image[k] *= 3 + (double)node; /* of any unit */
}

static const double gauss_x = 1.07, gauss_y = 0.86;

static void gauss_spot(size_t node, int side, int over, double *image)
{
    static double x[400], y[400];
    (void)node;
    ray_cells(side * over, -0.5 * side, 1.0 / over, 0, gauss_x, x);
    ray_cells(side * over, -0.5 * side, 1.0 / over, 0, gauss_y, y);
    for (int k = 0; k < side * side * over * over; k++)
        image[k] = x[k % (side * over)] * y[k / (side * over)];
}

/* Common length of the intervals from a to a + wide and from b to b + 1. */
static long double common(long double a, long double wide, long double b)
{
    const long double low = a > b ? a : b, high = a + wide < b + 1 ? a + wide : b + 1;
    return high > low ? high - low : 0;
}

/* The spot by its definition: areas that sub-pixels, which are rectangles, share with pixels. */
static void direct_grid(const spx_psf *p, size_t fibre, double lambda, const spx_spot *at, double *spot)
{
    const spx_psf_grid *g = &p->grid;
    const int nx = 2 * p->hsizex + 1, ny = 2 * p->hsizey + 1;
    const long double x = series(p->x.ncoef, p->x.coef + fibre * p->x.ncoef, p->x.wmin, p->x.wmax, lambda);
    const long double y = series(p->y.ncoef, p->y.coef + fibre * p->y.ncoef, p->y.wmin, p->y.wmax, lambda);
    const long double sx = named(p, "GHSIGX", fibre, lambda) / g->sigma_x / g->oversample,
                      sy = named(p, "GHSIGY", fibre, lambda) / g->sigma_y / g->oversample,
                      tilt = named(p, "TILT", fibre, lambda);
    size_t i = 0, j = 0;
    while (i + 2 < g->npos && g->fibre_pos[fibre] >= g->pos[i + 1])
        i++;
    while (j + 2 < g->nwave && lambda >= g->wave[j + 1])
        j++;
    const long double u = (g->fibre_pos[fibre] - (long double)g->pos[i]) / ((long double)g->pos[i + 1] - g->pos[i]);
    const long double v = (lambda - (long double)g->wave[j]) / ((long double)g->wave[j + 1] - g->wave[j]);
    static long double sum[NPIX];
    long double all = 0;
    memset(sum, 0, sizeof sum);
    for (int n = 0; n < 4; n++) {
        const size_t node = (i + (size_t)(n / 2)) * g->nwave + j + (size_t)(n % 2);
        const float *s = g->spot + node * g->my * g->mx;
        long double cx = 0, cy = 0, light = 0;
        for (size_t k = 0; k < g->my * g->mx; k++) {
            light += s[k];
            cx += s[k] * (long double)(k % g->mx);
            cy += s[k] * (long double)(k / g->mx);
        }
        cx = g->place_x != NULL ? g->place_x[node] : cx / light;
        cy = g->place_y != NULL ? g->place_y[node] : cy / light;
        for (size_t k = 0; k < g->my * g->mx; k++)
            for (int r = 0; r < ny && s[k] != 0; r++) {
                const long double down = y + ((long double)(k / g->mx) - cy - 0.5L) * sy;
                const long double high = common(down, sy, (long double)(at->yc + r) - 0.5L) / sy;
                const long double lean = tilt * ((long double)(at->yc + r) - y);
                for (int c = 0; c < nx && high > 0; c++) {
                    const long double left = x + lean + ((long double)(k % g->mx) - cx - 0.5L) * sx;
                    sum[r * nx + c] += (n / 2 ? u : 1 - u) * (n % 2 ? v : 1 - v) * s[k] * high *
                                       common(left, sx, (long double)(at->xc + c) - 0.5L) / sx;
                }
            }
    }
    for (int k = 0; k < nx * ny; k++)
        all += sum[k] > 0 ? sum[k] : 0;
    for (int k = 0; k < nx * ny; k++)
        spot[k] = (double)(sum[k] > 0 ? sum[k] / all : 0);
}

static void check_direct_grid(const spx_psf *p, double first, double last)
{
    double spot[NPIX], want[NPIX], work[NWORK];
    CHECK(spx_psf_spot_work(p) <= NWORK, "sizes");
    for (size_t f = 0; f < p->nspec; f++)
        for (int k = 0; k < 5; k++) {
            const double lambda = first + (last - first) * (k + 0.37) / 5;
            spx_spot at;
            CHECK(spx_psf_spot(p, f, lambda, work, spot, &at) == SPX_SPOT_OK, "spot");
            direct_grid(p, f, lambda, &at, want);
            double worst = 0;
            for (int i = 0; i < spx_psf_nx(p) * spx_psf_ny(p); i++)
                worst = fmax(worst, fabs(spot[i] - want[i]));
            CHECK(worst < 1e-13, "fibre %zu at %g: spot differs by %g", f, lambda, worst);
        }
}

/* Largest difference of spots of two PSFs with the same traces, over the largest pixel. */
static double differ(const spx_psf *p, const spx_psf *q)
{
    double a[NPIX], b[NPIX], work[NWORK], worst = 0, most = 0;
    for (size_t f = 0; f < p->nspec; f++)
        for (double lambda = 5004; lambda < 5080; lambda += 7.7) {
            spx_spot at, other;
            CHECK(spx_psf_spot(p, f, lambda, work, a, &at) == SPX_SPOT_OK &&
                      spx_psf_spot(q, f, lambda, work, b, &other) == SPX_SPOT_OK,
                  "spots");
            for (int y = 0; y < spx_psf_ny(p); y++)
                for (int x = 0; x < spx_psf_nx(p); x++) {
                    const long i = x + at.xc - other.xc, j = y + at.yc - other.yc;
                    const double v = a[y * spx_psf_nx(p) + x];
                    const int in = i >= 0 && j >= 0 && i < spx_psf_nx(q) && j < spx_psf_ny(q);
                    worst = fmax(worst, fabs(v - (in ? b[j * spx_psf_nx(q) + i] : 0)));
                    most = fmax(most, v);
                }
        }
    return worst / most;
}

/* A Gaussian as Gauss-Hermite series of degree 0, and as a grid: even light within sub-pixels of width h is a linear
 * interpolation of its sums, off by h^2/8 times their second derivative at most, here 0.4 h^2 of the peak with both
 * axes; so the difference falls with the square of h. */
static void check_gauss(void)
{
    small_psf_shape shape = small_psf_default();
    shape.ghdegx = shape.ghdegy = 0;
    shape.hsizex = shape.hsizey = 8;
    spx_psf *series_of = small_psf(&shape);
    double apart[2];
    for (int k = 0; k < 2; k++) {
        const int over = k == 0 ? 7 : 21;
        spx_psf *p = grid_psf(2, 2, over, 17, 1, gauss_spot);
        p->grid.sigma_x = gauss_x;
        p->grid.sigma_y = gauss_y;
        CHECK(spx_psf_index(p, NULL) == SPX_OK, "index");
        apart[k] = differ(series_of, p);
        CHECK(apart[k] < 0.4 / (over * over), "%d sub-pixels: %g of the peak", over, apart[k]);
        double sx, sy;
        spx_psf_grid_sigma(&p->grid, 1, 1, &sx, &sy);
        CHECK(fabs(sx / gauss_x - 1) < 0.03 / over && fabs(sy / gauss_y - 1) < 0.03 / over, "widths %g, %g", sx, sy);
        done(p);
    }
    CHECK(apart[0] / apart[1] > 7 && apart[0] / apart[1] < 11, "%g and %g: not like the square of the sub-pixels",
          apart[0], apart[1]);
    done(series_of);
}

/* Grid of spots with coma, at one of its corners, against the light of the rays themselves. */
static void check_rays(void)
{
    const int over = 15;
    spx_psf *p = grid_psf(2, 2, over, 9, 1, coma_spot);
    double spot[NPIX], want[NPIX], work[NWORK], worst = 0, most = 0;
    for (size_t k = 0; k < p->npar * p->nspec * p->ndeg; k++)
        p->coeff[k] = k % p->ndeg != 0 ? 0 : k < p->nspec * p->ndeg ? p->grid.sigma_x : p->grid.sigma_y;
    p->grid.fibre_pos[2] = p->grid.pos[1];
    spx_spot at;
    CHECK(spx_psf_spot(p, 2, p->grid.wave[0], work, spot, &at) == SPX_SPOT_OK, "spot");
    const ray_spot s = {.coma = 0.8, .angle = 0.8, .disc = 0.5, .sigma = 0.35};
    const int nx = spx_psf_nx(p), ny = spx_psf_ny(p);
    ray_image(&s, ny, nx, -p->hsizey - 0.5 - at.dy, -p->hsizex - 0.5 - at.dx, 1, want);
    for (int k = 0; k < nx * ny; k++) {
        worst = fmax(worst, fabs(spot[k] - want[k]));
        most = fmax(most, want[k]);
    }
    CHECK(worst < 2e-3 * most, "spot with coma differs by %g of its peak", worst / most);
    done(p);
}

/* What cannot be a grid of spots. */
static void check_grid_refusals(void)
{
    static const char *const says[] = {"oversample", "increase",   "increase", "sums up to 0", "not finite",
                                       "sub-pixel",  "not finite", "sigmax",   "spot_x",       "TAILAMP"};
    for (int k = 0; k < 10; k++) {
        spx_psf *p = grid_psf(2, 3, 5, 9, 0, coma_spot);
        spx_psf_grid *g = &p->grid;
        const size_t size = g->my * g->mx;
        spx_err e = {0};
        if (k == 0)
            g->oversample = 0;
        else if (k == 1)
            g->wave[2] = g->wave[1];
        else if (k == 2)
            g->pos[1] = NAN;
        else if (k == 3)
            memset(g->spot + 4 * size, 0, size * sizeof *g->spot);
        else if (k == 4)
            g->spot[3 * size + 7] = INFINITY;
        else if (k == 5)
            g->place_y[2] = 2e9;
        else if (k == 6)
            g->fibre_pos[1] = NAN;
        else if (k == 7)
            g->sigma_x = 0;
        else if (k == 8) {
            spx_free(g->place_x);
            g->place_x = NULL;
        } else {
            add(p, "TAILAMP", 0.01, 0);
            add(p, "TAILCORE", 1, 0);
            add(p, "TAILXSCA", 1, 0);
            add(p, "TAILYSCA", 1, 0);
            add(p, "TAILINDE", 2, 0);
        }
        CHECK(spx_psf_index(p, &e) == SPX_EINPUT && strstr(spx_err_text(&e), says[k]) != NULL, "%d: %s", k,
              spx_err_text(&e));
        done(p);
    }
}

static void check_grid(void)
{
    spx_psf *p = grid_psf(3, 3, 5, 9, 0, coma_spot), copy;
    CHECK(!spx_psf_plain_spots(p), "separable?");
    check_direct_grid(p, 5000, 5080);
    check_derivatives(p, 5000, 5080);
    add(p, "TILT", 0.11, 0.02);
    CHECK(spx_psf_index(p, NULL) == SPX_OK, "index");
    check_direct_grid(p, 5000, 5080);
    check_derivatives(p, 5000, 5080);
    CHECK(spx_psf_copy(p, &copy, NULL) == SPX_OK, "copy");
    CHECK(differ(p, &copy) == 0, "a copy has other spots");
    spx_psf_free(&copy);
    /* spots of the detector's wavelengths, seen at those of the barycentre */
    const double factor[7] = {1.0001, 0.9999, 1.00005, 1, 1, 1, 1};
    double a[NPIX], b[NPIX], work[NWORK], worst = 0;
    spx_spot at;
    CHECK(spx_psf_to_barycentre(p, factor, &copy, NULL) == SPX_OK, "barycentre");
    for (size_t f = 0; f < p->nspec; f++) {
        CHECK(spx_psf_spot(p, f, 5031, work, a, &at) == SPX_SPOT_OK &&
                  spx_psf_spot(&copy, f, 5031 * factor[f], work, b, &at) == SPX_SPOT_OK,
              "spots");
        for (int k = 0; k < spx_psf_nx(p) * spx_psf_ny(p); k++)
            worst = fmax(worst, fabs(a[k] - b[k]));
    }
    CHECK(worst < 1e-9, "at barycentric wavelengths spots differ by %g", worst);
    spx_psf_free(&copy);
    done(p);
    p = grid_psf(2, 4, 3, 11, 1, coma_spot);
    check_direct_grid(p, 5000, 5080);
    check_derivatives(p, 5000, 5080);
    done(p);
}

/* What cannot be a PSF of two cores. */
static void check_refusals(void)
{
    static const char *const need[] = {"GHSIGX2", "GHSIGY2", "GHNSIG", "TAILCORE", "TAILINDE"};
    for (size_t k = 0; k < sizeof need / sizeof *need; k++) {
        spx_psf *p = two_cores(3, 0.1, 0.01);
        spx_err e = {0};
        for (size_t i = 0; i < p->npar; i++)
            if (strcmp(p->param[i], need[k]) == 0)
                strcpy(p->param[i], "OTHER");
        CHECK(spx_psf_index(p, &e) == SPX_EINPUT && strstr(spx_err_text(&e), need[k]) != NULL, "%s: %s", need[k],
              spx_err_text(&e));
        done(p);
    }
    spx_psf *p = two_cores(3, 0.1, 0.01);
    spx_err e = {0};
    CHECK(spx_psf_require(p, SPX_PSF_RANGES, "this test", NULL, &e) == SPX_EINPUT &&
              strstr(spx_err_text(&e), "gauss-hermite2") != NULL,
          "%s", spx_err_text(&e));
    spx_err_clear(&e);
    p->ghdegy2 = 100;
    CHECK(spx_psf_index(p, &e) == SPX_EINPUT && strstr(spx_err_text(&e), "second core") != NULL, "%s",
          spx_err_text(&e));
    p->ghdegy2 = 3;
    CHECK(spx_psf_index(p, NULL) == SPX_OK, "index");
    double work[NWORK], spot[NPIX];
    spx_spot at;
    p->coeff[(size_t)p->sigy2 * p->nspec * p->ndeg] = NAN;
    CHECK(spx_psf_spot(p, 0, 5030, work, spot, &at) == SPX_SPOT_SIGMA && spot[70] == 0, "width that is not finite");
    done(p);
}

/* A real file: the definition to 1e-10, and derivatives. */
static void check_boss(void)
{
    const char *shared = getenv("SPX_SHARED");
    char path[500];
    spx_psf p;
    spx_note_list notes = {0};
    spx_err e = {0};
    snprintf(path, sizeof path, "%s/data/formats/psf-gausshermite2_boss_r2.fits", shared != NULL ? shared : "");
    FILE *f = fopen(path, "rb");
    if (f == NULL)
        return;
    (void)fclose(f);
    CHECK(spx_psf_read_fits(path, &p, &notes, &e) == SPX_OK, "%s", spx_err_text(&e));
    CHECK(p.type == SPX_PSF_GAUSS_HERMITE2 && p.nspec == 25 && p.ndeg == 8 && p.ghdegx == 6 && p.ghdegx2 == 3 &&
              p.hsizex == 10 && p.npix_y == 4128 && p.x.coef[0] > 250.11 && p.x.coef[0] < 250.12,
          "what it holds");
    check_direct(&p, 5700, 7500, 1e-10);
    check_derivatives(&p, 5700, 7500);
    spx_psf_free(&p);
    spx_note_list_free(&notes);
}

int main(void)
{
    small_psf_shape shape = small_psf_default();
    spx_psf *p = small_psf(&shape);
    check_direct(p, 5000, 5080, 1e-14);
    check_derivatives(p, 5000, 5080);
    check_factors(p, 5033.3);
    add(p, "TILT", 0.11, 0.02);
    CHECK(spx_psf_index(p, NULL) == SPX_OK, "index");
    check_direct(p, 5000, 5080, 1e-14);
    check_derivatives(p, 5000, 5080);
    done(p);
    p = two_cores(2.6, 0.15, 0.01);
    check_direct(p, 5000, 5080, 1e-14);
    check_derivatives(p, 5000, 5080);
    add(p, "TILT", -0.08, 0.01);
    CHECK(spx_psf_index(p, NULL) == SPX_OK, "index");
    check_direct(p, 5000, 5080, 1e-14);
    check_derivatives(p, 5000, 5080);
    done(p);
    check_same();
    check_refusals();
    check_grid();
    check_gauss();
    check_rays();
    check_grid_refusals();
    check_boss();
    return failures != 0;
}
