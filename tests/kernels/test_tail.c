/* Tails (psf/tail.h) against the sum over all sources and pixels; light that moves by a little; independence of
 * threads; shapes that are refused. */
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "check.h"
#include "products/psf_index.h"
#include "psf/spot_math.h"
#include "psf/tail.h"
#include "random.h"
#include "sim/sim.h"

enum { NY = 210, NX = 230, NFIBRE = 20, NSOURCE = 60 };

typedef struct {
    size_t fibre;
    double lambda, electrons;
    spx_spot at;
} source;

static void set(spx_psf *p, const char *name, double value, double slope)
{
    for (size_t k = 0; k < p->npar; k++)
        for (size_t f = 0; f < p->nspec && strcmp(p->param[k], name) == 0; f++) {
            double *c = p->coeff + (k * p->nspec + f) * p->ndeg;
            c[0] = value;
            c[1] = slope;
        }
}

/* The tails of all sources by their definition. */
static void direct(const spx_psf *p, int beyond, const spx_tail_shape *s, size_t n, const source *src, double *image)
{
    spx_psf bare = *p;
    spx_psf_drop_tail(&bare);
    double work[40000], spot[6000], basis[16], scale = 0;
    for (size_t i = 0; i < (size_t)NY * NX; i++)
        image[i] = 0;
    for (size_t i = 0; i < n; i++) {
        CHECK(spx_psf_spot_scale(beyond ? p : &bare, src[i].fibre, src[i].lambda, work, spot, &scale) == SPX_SPOT_OK,
              "scale");
        spx_legendre_basis(p->ndeg, spx_psf_param_u(p, src[i].fibre, src[i].lambda), basis);
        const double a = src[i].electrons * scale * spx_psf_param_value(p, src[i].fibre, p->tail[SPX_TAIL_AMP], basis);
        for (long y = 0; y < NY; y++)
            for (long x = 0; x < NX; x++) {
                const int in = x >= src[i].at.xc && x < src[i].at.xc + spx_psf_nx(p) && y >= src[i].at.yc &&
                               y < src[i].at.yc + spx_psf_ny(p);
                const double dx = ((double)x - src[i].at.x) * s->xscale, dy = ((double)y - src[i].at.y) * s->yscale;
                const double r2 = dx * dx + dy * dy;
                if (!beyond || !in)
                    image[y * NX + x] += a * r2 / pow(s->core * s->core + r2, 1 + s->index / 2);
            }
    }
}

static size_t place_sources(const spx_psf *p, double bright, source *src)
{
    size_t n = 0;
    random_start(5);
    while (n < NSOURCE) {
        source s = {.fibre = (size_t)(NFIBRE * uniform()), .lambda = p->wmin + (p->wmax - p->wmin) * uniform()};
        s.electrons = n % 10 == 0 ? bright : 100 * uniform();
        if (spx_psf_spot_place(p, s.fibre, s.lambda, &s.at) == SPX_SPOT_OK && s.at.x > -8 && s.at.x < NX + 8 &&
            s.at.y > -5 && s.at.y < NY + 5)
            src[n++] = s;
    }
    return n;
}

/* close: largest difference over the largest value; far: rms of both. Tables are linear between places h = 1/16 of a
 * row apart, h^2/8 T'' or 1e-3 of T a pixel from its centre. Cubics between cells of 2 pixels add some 0.5 % beside the
 * place where the middle part begins.
 */
static void check_image(const spx_psf *p, const char *what, int beyond, double close, double far)
{
    static double want[NY * NX];
    static float got[NY * NX], again[NY * NX];
    static source src[NSOURCE];
    spx_err e = {0};
    spx_tail *t = NULL;
    spx_tail_shape shape;
    const size_t n = place_sources(p, 1e5, src);
    CHECK(spx_tail_shape_of(p, &shape, &e) == SPX_OK &&
              spx_tail_make(p, NY, NX, p->wmin, p->wmax, beyond, 2, &t, &e) == SPX_OK,
          "%s: %s", what, spx_err_text(&e));
    if (t == NULL)
        return;
    for (int round = 0; round < 2; round++) {
        CHECK(spx_tail_clear(t, n, &e) == SPX_OK, "%s: %s", what, spx_err_text(&e));
        for (size_t i = 0; i < n; i++)
            spx_tail_add(t, src[i].fibre, src[i].lambda, src[i].at.xc + p->hsizex, src[i].at.yc + p->hsizey,
                         src[i].at.dx, src[i].at.dy, src[i].electrons);
        CHECK(spx_tail_image(t, round + 1, round == 0 ? got : again, &e) == SPX_OK, "%s: %s", what, spx_err_text(&e));
    }
    CHECK(memcmp(got, again, sizeof got) == 0, "%s: one thread and two give different images", what);
    direct(p, beyond, &shape, n, src, want);
    double worst = 0, most = 0, rms = 0, all = 0;
    for (size_t i = 0; i < (size_t)NY * NX; i++) {
        worst = fmax(worst, fabs(got[i] - want[i]));
        most = fmax(most, fabs(want[i]));
        rms += (got[i] - want[i]) * (got[i] - want[i]);
        all += want[i] * want[i];
    }
    CHECK(worst < close * most && rms < far * far * all, "%s: worst %g of %g, rms %g", what, worst / most, most,
          sqrt(rms / all));
    spx_tail_free(t);
}

/* Largest difference of two images over their largest value. */
static double largest(const float *a, const float *b)
{
    double worst = 0, most = 0;
    for (size_t i = 0; i < (size_t)NY * NX; i++) {
        worst = fmax(worst, fabs((double)a[i] - (double)b[i]));
        most = fmax(most, fabs((double)a[i]));
    }
    return worst / most;
}

/* The image of one light at a place. */
static void draw_one(spx_tail *t, const spx_psf *p, double x, double y, float *image)
{
    const double column = floor(x + 0.5), row = floor(y + 0.5);
    spx_err e = {0};
    CHECK(spx_tail_clear(t, 1, &e) == SPX_OK, "%s", spx_err_text(&e));
    spx_tail_add(t, 7, 0.5 * (p->wmin + p->wmax), (long)column, (long)row, x - column, y - row, 1e4);
    CHECK(spx_tail_image(t, 1, image, &e) == SPX_OK, "%s", spx_err_text(&e));
}

/* Light that moves by 2e-7 of a pixel, across the places of the tables and the edges of pixels, changes the image by
 * single precision alone. Places in steps of 1/128 are those and the middles between them. Light in the middle of a row
 * is the same by its moment. */
static void check_moved(const spx_psf *p)
{
    static float before[NY * NX], after[NY * NX];
    spx_err e = {0};
    spx_tail *t = NULL;
    double across = 0, along = 0, by_moment = 0;
    CHECK(spx_tail_make(p, NY, NX, p->wmin, p->wmax, 0, 1, &t, &e) == SPX_OK, "%s", spx_err_text(&e));
    for (int k = 0; k <= 128 && t != NULL; k++) {
        const double at = k / 128.0 - 0.5, little = 1e-7;
        draw_one(t, p, 100 + at - little, 90, before);
        draw_one(t, p, 100 + at + little, 90, after);
        across = fmax(across, largest(before, after));
        draw_one(t, p, 100.3, 90 + at - little, before);
        draw_one(t, p, 100.3, 90 + at + little, after);
        along = fmax(along, largest(before, after));
        draw_one(t, p, 100 + at, 90, before);
        const spx_tail_knots knots = spx_tail_knots_at(t, 0.5 * (p->wmin + p->wmax));
        const spx_tail_column column = spx_tail_column_of(100 + at);
        CHECK(spx_tail_reserve(t, 3, &e) == SPX_OK, "%s", spx_err_text(&e));
        for (size_t i = 0; i < 3; i++) /* two of them dark */
            spx_tail_set(t, i, spx_tail_amplitude(t, 7, &knots), &column, 90, i == 1 ? 1e4 : 0,
                         i == 1 ? 1e4 * (100 + at - column.column) : 0);
        CHECK(spx_tail_image(t, 2, after, &e) == SPX_OK, "%s", spx_err_text(&e));
        by_moment = fmax(by_moment, k < 128 ? largest(before, after) : 0); /* the pixel beside has the last place */
    }
    CHECK(across < 3e-6 && along < 3e-6, "light moved by 2e-7 of a pixel changes its tail by %g across, %g along",
          across, along);
    CHECK(by_moment < 3e-6, "light by its moment differs by %g", by_moment);
    spx_tail_free(t);
}

/* The built-in camera with a tail. */
static void make_psf(double width, spx_psf *p)
{
    spx_err e = {0};
    spx_sim_camera camera = spx_sim_camera_defaults();
    camera.width = width;
    CHECK(spx_sim_psf_camera(&camera, 'r', NFIBRE, 6000, 6080, p, &e) == SPX_OK, "%s", spx_err_text(&e));
    set(p, "TAILAMP", 0.007, 0.002);
    set(p, "TAILINDE", 2.2, 0);
    CHECK(spx_psf_index(p, &e) == SPX_OK && spx_psf_has_tail(p) && !spx_psf_plain_spots(p), "%s", spx_err_text(&e));
}

static void check_refused(const char *name, double value, double slope, int fibre, const char *pattern)
{
    spx_psf p;
    spx_tail *t = NULL;
    spx_err e = {0};
    make_psf(1, &p);
    if (fibre)
        p.coeff[((size_t)p.tail[SPX_TAIL_CORE] * p.nspec + 3) * p.ndeg] = value;
    else
        set(&p, name, value, slope);
    CHECK(spx_tail_make(&p, NY, NX, p.wmin, p.wmax, 1, 0, &t, &e) == SPX_EINPUT && strstr(spx_err_text(&e), pattern),
          "%s %g %g: %s", name, value, slope, spx_err_text(&e));
    spx_tail_free(t);
    spx_psf_free(&p);
}

int main(void)
{
    spx_psf p;
    make_psf(1, &p);
    check_image(&p, "r", 1, 4e-3, 3e-3);
    check_image(&p, "all of r", 0, 6e-3, 5e-3);
    check_moved(&p);
    set(&p, "TAILXSCA", 0.8, 0);
    set(&p, "TAILYSCA", 1.3, 0);
    set(&p, "TAILCORE", 2.5, 0);
    set(&p, "TAILINDE", 3.1, 0);
    check_image(&p, "other", 1, 8e-3, 5e-3);
    spx_psf_free(&p);
    make_psf(6, &p);
    check_image(&p, "wide", 1, 7e-3, 3e-3);
    spx_psf_free(&p);
    check_refused("TAILCORE", 1.1, 0, 1, "TAILCORE is 1.1 for fibre 3");
    check_refused("TAILINDE", 2, 0.1, 0, "TAILINDE");
    check_refused("TAILINDE", -1, 0, 0, "TAILINDE -1");
    check_refused("TAILXSCA", 0, 0, 0, "TAILXSCA 0");
    return failures != 0;
}
