/* Checks the zero point of wavelengths (shift/shift.h) on devices: by its steps (shift/zero_steps.h), run on the host
 * by teams (teams.h), and on the device under test, against the CPU; and that a device gives the same bits again.
 *
 * Tolerance: 1e-6 of the error of each quantity. Sums of the normal equations differ by rounding, 1e-15 of their
 * elements, which the factor's condition, some 1e5, makes 1e-10 errors at worst; the error of the last step, which is
 * below 1e-4 bins, is the same on both. */
#include "device.h"
#include "shift/zero_layout.h"
#include "shift_scene.h"
#include "spectral/lines.h"
#include "teams.h"

enum { NSPEC = 12 };

static const double WMIN = 8250, WMAX = 8950, STEP_OF_BINS = 0.8;

/* ---- a device that is the host ---- */

#define STEP(name, items, threads, bytes, teams)                                                                       \
    static void run_##name(const void *g, const spx_team *t, size_t item)                                              \
    {                                                                                                                  \
        spx_zero_##name(g, t, item);                                                                                   \
    }
STEP(splines, 0, 0, 0, 0)
SPX_ZERO_STEPS_OF_A_SUM(STEP)
#undef STEP

typedef struct {
    spx_zero_view g;
    char *tables, *work;
    long *xc;
    float *values;       /* [2][ny][nx] of the image, and weights */
    double *light;       /* of neighbours */
    size_t sums, beside; /* that were made; sides with a neighbour's light */
} host;

static spx_status begin_on_host(spx_zero_engine *engine, spx_zero_work *w, spx_err *e)
{
    host *h = engine->state;
    spx_zero_view *g = &h->g;
    CHECK(spx_zero_sizes(w, g, e) == SPX_OK, "%s", spx_err_text(e));
    const size_t rows = (size_t)g->nstrip * (size_t)g->rows;
    h->tables = team_unset(spx_zero_tables(w, g, NULL));
    (void)spx_zero_tables(w, g, h->tables);
    spx_zero_fill(w, g);
    h->work = team_unset(spx_zero_memory(g, NULL));
    (void)spx_zero_memory(g, h->work);
    for (size_t i = 0; i < rows; i++)
        spx_zero_row(g, i);
    team_run(run_splines, g, (size_t)g->nstrip, 0);
    h->xc = need(rows, sizeof *h->xc);
    for (size_t i = 0; i < (size_t)g->nstrip; i++) {
        w->strips[i].xc = h->xc + i * (size_t)g->rows;
        h->beside += (size_t)(w->strips[i].beside[0] + w->strips[i].beside[1]);
    }
    spx_zero_take_rows(g, g->xc, w);
    spx_zero_take_steps(g, g->step, w);
    const size_t pixels = rows * (size_t)g->cols, n = w->image->nx * w->image->ny;
    h->values = need(2 * n, sizeof *h->values);
    for (size_t i = 0; i < n; i++) {
        const spx_image *im = w->image;
        const int good = isfinite(im->data[i]) && isfinite(im->ivar[i]) && im->ivar[i] > 0 && im->mask[i] == 0;
        h->values[i] = good ? im->data[i] : 0;
        h->values[n + i] = good ? im->ivar[i] : 0;
    }
    g->image = h->values;
    g->weight = h->values + n;
    g->ccd_nx = (int)w->image->nx;
    h->light = need(pixels, sizeof *h->light);
    spx_zero_give_data(g, h->light, w);
    const spx_status st = spx_zero_take_neighbours_off(w, e);
    g->beside = spx_zero_beside(w) ? h->light : NULL;
    for (size_t i = 0; i < pixels; i++)
        spx_zero_pixel(g, i);
    return st;
}

static spx_status sum_on_host(spx_zero_engine *engine, spx_zero_work *w, int reject, spx_err *e)
{
    host *h = engine->state;
    spx_zero_view view = h->g;
    const spx_zero_view *g = &view;
    (void)e;
    spx_zero_sum_sizes(w, reject, &view);
    char *tables = team_unset(spx_zero_sum_tables(&view, NULL)), *sums = team_unset(spx_zero_sum_memory(&view, NULL));
    (void)spx_zero_sum_tables(&view, tables);
    (void)spx_zero_sum_memory(&view, sums);
    spx_zero_fill_sum(w, g);
#define RUN(name, items, threads, bytes, teams) team_run(run_##name, g, items, bytes);
    SPX_ZERO_STEPS_OF_A_SUM(RUN)
#undef RUN
    for (size_t k = 0; k < (size_t)(g->size + g->nc); k++)
        spx_zero_total(g, k);
    spx_zero_take_sum(g, g->sum, w);
    h->sums++;
    spx_free(tables);
    spx_free(sums);
    return SPX_OK;
}

/* ---- cases ---- */

typedef struct {
    const char *what;
    double wider;        /* factor of the spots' widths across: wide ones have their neighbours' light in them */
    size_t nkappa;       /* terms of kappa */
    int hits;            /* pixels are hit, masked, NaN; 2: by tracks, across bright lines */
    size_t nline_before; /* lines from the list that are taken, 0: all */
    int found;           /* there is a zero point */
    double other;        /* factor of the widths of every second fibre */
} a_case;

static const a_case cases[] = {
    {"sky lines", 1, 4, 0, 0, 1, 1},
    {"widths held", 1, 0, 0, 0, 1, 1},
    {"pixels hit, masked, NaN", 1, 1, 1, 0, 1, 1},
    {"spots that overlap", 1.5, 2, 0, 0, 1, 1},
    {"two lines: none", 1, 1, 0, 2, 0, 1},
    {"fibres of two widths", 1, 1, 0, 0, 1, 0.7},
    {"tracks across lines", 1, 4, 2, 0, 1, 1},
};

/* One pixel in 97: steps swing, and settle since they are halved. */
static void hit(spx_image *im)
{
    for (size_t i = 0; i < im->nx * im->ny; i += 97) {
        im->data[i] = i % 3 == 0 ? NAN : im->data[i] + 3000;
        im->mask[i] |= i % 5 == 0;
        im->ivar[i] = i % 7 == 0 ? 0 : im->ivar[i];
    }
}

/* Tracks of five pixels along one of n fibres, across one bright line in three: a line has more light in all fibres
 * then, and is wider. */
static void cross_lines(spx_image *im, const spx_psf *psf, const spx_shift_lines *lines, size_t n, const size_t *fibre)
{
    size_t bright = 0;
    for (size_t l = 0; l < lines->n; l++) {
        const double lambda = lines->line[l].wavelength;
        if (!(lambda > WMIN + 5 && lambda < WMAX - 5 && lines->line[l].strength > 20) || bright++ % 3 > 0)
            continue;
        const size_t f = fibre[bright / 3 % n];
        const double x = spx_psf_series_value(&psf->x, f, lambda), y = spx_psf_series_value(&psf->y, f, lambda);
        for (int k = 0; k < 5; k++)
            im->data[(size_t)(y + k) * im->nx + (size_t)(x + 0.5)] += k == 0 ? 20000 : 1000;
    }
    CHECK(bright > 10, "%zu bright lines", bright);
}

static spx_shift_lines lines_of(const a_case *c)
{
    spx_line *line = NULL;
    spx_shift_lines out = {0};
    spx_err e = {0};
    CHECK(spx_sky_lines(&line, &out.n, &e) == SPX_OK, "%s", spx_err_text(&e));
    out.line = need(out.n, sizeof *out.line);
    size_t n = 0;
    for (size_t i = 0; i < out.n; i++)
        if (c->nline_before == 0 || (line[i].wavelength > WMIN && line[i].wavelength < WMAX && n < c->nline_before))
            out.line[n++] = (spx_shift_line){line[i].wavelength, line[i].strength};
    out.n = n;
    spx_free(line);
    return out;
}

/* Largest difference of series of n terms in units of the errors of the first, and of these. */
static double series(size_t n, const double *a, const double *a_cov, const double *b, const double *b_cov)
{
    double most = 0;
    for (size_t q = 0; q < n; q++) {
        most = fmax(most, fabs(a[q] - b[q]) / sqrt(a_cov[q * n + q]));
        most = fmax(most, fabs(sqrt(b_cov[q * n + q] / a_cov[q * n + q]) - 1));
    }
    return most;
}

/* The same of zero points. */
static double difference(const spx_shift_zero *a, const spx_shift_zero *b)
{
    if (a->nline == 0 || b->nline == 0)
        return a->nline == b->nline ? 0 : INFINITY;
    const double z = series(a->nterm, a->z, a->cov, b->z, b->cov),
                 kappa = series(a->nkappa, a->kappa, a->kappa_cov, b->kappa, b->kappa_cov);
    return a->nline == b->nline && a->nterm == b->nterm && a->nkappa == b->nkappa && a->dof == b->dof &&
                   fabs(a->chi2 - b->chi2) < 1e-6 * a->chi2
               ? fmax(z, kappa)
               : INFINITY;
}

static void check(const a_case *c, spx_backend *b)
{
    shift_scene scene = shift_expose('z', NSPEC, WMIN, WMAX, 11, 900, NULL);
    spx_psf *psf = &scene.psf;
    size_t fibre[NSPEC], n = 0;
    double scale[NSPEC];
    spx_frame frame = {.nspec = NSPEC};
    const size_t nwave = (size_t)((WMAX - WMIN) / STEP_OF_BINS) + 1;
    frame.fiber = need(NSPEC, sizeof *frame.fiber);
    frame.arm.nwave = nwave;
    frame.arm.wavelength = need(nwave, sizeof(double));
    frame.arm.flux = need(NSPEC * nwave, sizeof(double));
    frame.arm.ivar = need(NSPEC * nwave, sizeof(double));
    for (size_t k = 0; k < nwave; k++)
        frame.arm.wavelength[k] = WMIN + STEP_OF_BINS * (double)k;
    for (size_t i = 0; i < NSPEC * nwave; i++) {
        frame.arm.flux[i] = 40 + (double)(i % 11);
        frame.arm.ivar[i] = i % 50 == 0 ? 0 : 1;
    }
    for (size_t f = 0; f < NSPEC; f++) {
        frame.fiber[f] = (int32_t)f;
        for (size_t q = 0; q < psf->ndeg; q++)
            psf->coeff[((size_t)psf->sigx * NSPEC + f) * psf->ndeg + q] *= c->wider * (n % 2 > 0 ? c->other : 1);
        if (!scene.target[f].sky)
            continue;
        const double lambda[2] = {WMIN, WMAX}, move[2] = {-0.08, -0.03};
        spx_shift_add_series(psf->y.ncoef, psf->y.coef + f * psf->y.ncoef, psf->y.wmin, psf->y.wmax, 2, 2, lambda,
                             move);
        fibre[n] = f;
        scale[n] = 1 + 0.01 * (double)n;
        n++;
    }
    spx_shift_lines lines = lines_of(c);
    if (c->hits == 1)
        hit(&scene.image);
    const spx_shift_common in = {.nfibre = n,
                                 .fibre = fibre,
                                 .scale = scale,
                                 .first = WMIN,
                                 .last = WMAX,
                                 .step = STEP_OF_BINS,
                                 .nterm = 4,
                                 .nkappa = c->nkappa,
                                 .frame = &frame,
                                 .nthreads = 2};
    spx_shift_zero clean, cpu, other[3];
    spx_err e = {0};
    CHECK(spx_zero_point_cpu(&scene.image, psf, &in, &lines, &clean, &e) == SPX_OK, "%s", spx_err_text(&e));
    if (c->hits == 2)
        cross_lines(&scene.image, psf, &lines, n, fibre);
    host h = {.sums = 0};
    spx_zero_engine engine = {&h, begin_on_host, sum_on_host};
    CHECK(spx_zero_point_cpu(&scene.image, psf, &in, &lines, &cpu, &e) == SPX_OK, "%s", spx_err_text(&e));
    CHECK(spx_zero_on_device(psf), "a device takes the PSF");
    CHECK(spx_zero_solve(&engine, &scene.image, psf, &in, &lines, &other[0], &e) == SPX_OK, "%s", spx_err_text(&e));
    for (int i = 1; i < 3; i++)
        CHECK(b->zero_point(b, &scene.image, psf, &in, &lines, &other[i], &e) == SPX_OK, "%s", spx_err_text(&e));
    const double steps = difference(&cpu, &other[0]), device = difference(&cpu, &other[1]);
    printf(
        "%s: zero point %.5f +- %.5f, %zu lines, kappa %.5f; off by %.2g errors in steps of the host, %zu sums, %.2g "
        "on %s\n",
        c->what, cpu.z[0], sqrt(cpu.cov[0]), cpu.nline, cpu.kappa[0], steps, h.sums, device, b->device);
    CHECK((cpu.nline > 0) == c->found, "%s: %zu lines", c->what, cpu.nline);
    if (c->hits == 2) /* what is lost is noise: of a third of the lines, in a third of the fibres */
        for (size_t q = 0; q < 4; q++) {
            const double z = (cpu.z[q] - clean.z[q]) / sqrt(clean.cov[5 * q]);
            const double k = (cpu.kappa[q] - clean.kappa[q]) / sqrt(clean.kappa_cov[5 * q]);
            CHECK(fabs(z) < 2.5 && fabs(k) < 2.5,
                  "%s: term %zu of the zero point moves by %.2f errors, of the width by %.2f", c->what, q, z, k);
        }
    CHECK((h.beside > 0) == (c->wider > 1), "%s: neighbours on %zu sides", c->what, h.beside);
    CHECK(steps < 1e-6, "%s: steps differ by %g errors", c->what, steps);
    CHECK(device < 1e-6, "%s: the device differs by %g errors", c->what, device);
    CHECK(memcmp(&other[1], &other[2], sizeof other[1]) == 0, "%s: another result when repeated", c->what);
    spx_free(h.tables);
    spx_free(h.work);
    spx_free(h.xc);
    spx_free(h.values);
    spx_free(h.light);
    spx_free(lines.line);
    spx_frame_free(&frame);
    shift_scene_free(&scene);
}

int main(void)
{
    spx_backend b;
    open_device(&b, SPX_OP_SHIFT);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        check(&cases[i], &b);
    spx_backend_close(&b);
    return failures != 0;
}
