/* check_shift [small|parts]: specx-shift on a CUDA device against the CPU, from the image to the moved PSF, with the
 * options of the program: shifts, widths, traces and the zero point agree to 2e-6 of their errors, and errors to 2e-6
 * of themselves.
 *
 * `small`: without the whole camera; `parts`: also with single operations (windows, extraction, sky, zero point) on the
 * device, and the others on the CPU: where a difference begins. Built by make cuda-tests.
 *
 * Wavelengths are all that the traces have on the CCD, as in the program: beyond its edges bins have next to no light,
 * and poles of the square root are others on CPU and device (SPX_TRACE_ROOT_MOST).
 *
 * Tolerance: all programs of calibration have 1e-6. Windows, sky and zero point part by 1e-9, rounding; the extraction
 * by what its tolerance leaves, in bins at the CCD's edge more than elsewhere, and by what its square roots leave, in
 * all bins of a fibre alike (SPX_TRACE_ROOT_MOST). So b parts by 1.7e-6 here, all others by 3e-7; with 1e-3 and roots
 * of 1e-5 they did by up to 3e-6, with roots of 1e-2 by 4e-4. */
#include "../kernels/device.h"
#include "../kernels/shift_scene.h"
#include "common/extract_options.h"
#include "common/shift_options.h"
#include "products/frame.h"
#include "psf/psf_math.h"
#include "sky/sky.h"
#include "spectral/lines.h"

/* Of errors. */
#define MOST 2e-6

typedef struct {
    const char *name;
    char arm;
    size_t nspec;
    double wmin, wmax;
    uint64_t seed;
    int hits;  /* unflagged pixels of particles, a million pixels */
    int frame; /* an extracted frame is given: the CPU's */
} exposure;

static const exposure exposures[] = {{"z", 'z', 50, 8250, 8950, 11, 0, 0},
                                     {"z, hits", 'z', 50, 8250, 8950, 12, 150, 0},
                                     {"r", 'r', 50, 6300, 7000, 13, 0, 0},
                                     {"r, hits", 'r', 50, 6300, 7000, 14, 150, 0},
                                     {"z, a frame", 'z', 50, 8250, 8950, 15, 0, 1},
                                     {"b", 'b', 50, 4600, 5300, 16, 20, 0},
                                     {"a whole camera", 'z', 500, 7560, 9780, 17, 0, 0}};

enum { WINDOWS, EXTRACT, SKY, ZERO, PARTS };

typedef struct {
    spx_backend *by[PARTS];
    const shift_scene *scene;
    spx_extract_options extract;
} engine;

static spx_status windows(void *ctx, const spx_image *image, const spx_psf *psf, const spx_motion_options *o,
                          spx_motion_row *row, spx_motion_fit *fit, spx_err *e)
{
    spx_backend *b = ((engine *)ctx)->by[WINDOWS];
    spx_fallback left;
    return b->motion(b, image, psf, o, row, fit, &left, e);
}

static spx_status extract(void *ctx, const spx_image *image, const spx_psf *psf, spx_frame *frame, spx_err *e)
{
    engine *g = ctx;
    spx_extract_counts counts;
    const spx_status st = spx_frame_inherit(frame, image, psf, g->extract.first, g->extract.nspec, e);
    return st != SPX_OK ? st : g->by[EXTRACT]->extract(g->by[EXTRACT], image, psf, &g->extract, frame, &counts, e);
}

static spx_status sky(void *ctx, const spx_frame *frame, const double *usual, const double *moved, spx_sky *out,
                      int *found, spx_err *e)
{
    const engine *g = ctx;
    spx_sky_options o = spx_sky_defaults();
    double together[SPX_SKY_MOST] = {0};
    uint8_t *role = need(frame->nspec, 1);
    double *place = need(frame->nspec, sizeof *place);
    o.terms = (spx_sky_terms){1, 4, 1};
    memcpy(together + o.terms.nt, usual, o.terms.nd * sizeof *usual);
    o.together = together;
    o.quantities = 1;
    const spx_sky_input in = shift_sky_input(g->scene, frame, 0, moved, role, place);
    *found = 1;
    const spx_status st = g->by[SKY]->sky(g->by[SKY], &in, &o, out, e);
    spx_free(role);
    spx_free(place);
    return st;
}

static spx_status zero(void *ctx, const spx_image *image, const spx_psf *psf, const spx_shift_common *in,
                       const spx_shift_lines *lines, spx_shift_zero *out, spx_err *e)
{
    spx_backend *b = ((engine *)ctx)->by[ZERO];
    return b->zero_point(b, image, psf, in, lines, out, e);
}

/* Lines of the sky. */
static spx_shift_lines lines;

static void open_lines(void)
{
    spx_line *line = NULL;
    spx_err e = {0};
    CHECK(spx_sky_lines(&line, &lines.n, &e) == SPX_OK, "%s", spx_err_text(&e));
    lines.line = need(lines.n, sizeof *lines.line);
    for (size_t i = 0; i < lines.n; i++)
        lines.line[i] = (spx_shift_line){line[i].wavelength, line[i].strength};
    spx_free(line);
}

static void add_hits(shift_scene *s, int each_million, uint64_t seed)
{
    const size_t n = s->image.nx * s->image.ny;
    uint64_t state = seed * 0x9e3779b97f4a7c15u + 1;
    for (size_t i = 0; i < n; i++) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        if (state % 1000000 < (uint64_t)each_million)
            s->image.data[i] += (float)(100 + state / 1000000 % 3000);
    }
}

typedef struct {
    spx_psf psf;
    spx_shift shift;
} answer;

static void answer_free(answer *a)
{
    spx_psf_free(&a->psf);
    spx_shift_free(&a->shift);
}

/* The program's work; on[PARTS] '1': on the device. */
static answer solve(const shift_scene *s, int given, const char *on, spx_backend *cpu, spx_backend *device)
{
    static const shift_motion wrong = {
        .x = 0.05, .x_slope = 0.02, .y = 0.05, .y_slope = 0.03, .y_fibre = 0.01, .width = 0.01};
    const spx_extract_args args = {.method = SPX_METHOD_TRACE,
                                   .bundle_size = 25,
                                   .wave_step = 50,
                                   .wave_pad = 40,
                                   .pix_pad_frac = 0.9,
                                   .widest = SPX_SHIFT_WIDEST,
                                   .sigmas = SPX_SHIFT_BIN,
                                   .tolerance = SPX_SHIFT_TOLERANCE};
    const spx_shift_args of_shift = {.windows = 6, .window = 60, .terms_x = NULL};
    engine g = {.scene = s};
    const spx_shift_engine functions = {&g, windows, extract, sky, zero};
    spx_err e = {0};
    spx_frame frame = {0};
    answer a = {{0}, {0}};
    for (int i = 0; i < PARTS; i++)
        g.by[i] = on[i] == '1' ? device : cpu;
    shift_psf_before(s, &wrong, &a.psf);
    CHECK(spx_extract_args_options(&args, 0, &s->image, &a.psf, &g.extract, &e) == SPX_OK, "%s", spx_err_text(&e));
    spx_shift_options o = {.wmin = g.extract.wmin,
                           .wmax = g.extract.wmax,
                           .dw = g.extract.dw,
                           .bundle_size = 25,
                           .nwindow = 6,
                           .window = spx_shift_args_window(&of_shift, &a.psf),
                           .degree_wave = -1,
                           .degree_fibre = -1,
                           .width = 1};
    engine of_frame = g;
    of_frame.by[EXTRACT] = cpu;
    spx_status st = given ? extract(&of_frame, &s->image, &a.psf, &frame, &e) : SPX_OK;
    if (st == SPX_OK)
        st = spx_shift_traces(&functions, &s->image, &frame, &lines, &o, &a.psf, &a.shift, &e);
    CHECK(st == SPX_OK, "%s", spx_err_text(&e));
    spx_frame_free(&frame);
    return a;
}

/* Largest difference of a[n] and b[n] over error[n]. */
static double worst_of(size_t n, const double *a, const double *b, const double *error)
{
    double worst = 0;
    for (size_t i = 0; i < n; i++) {
        const double off = fabs(a[i] - b[i]);
        worst = off > 0 ? fmax(worst, off / (error != NULL ? error[i] : fabs(a[i]))) : worst;
    }
    return worst;
}

/* The same of places of traces that a PSF has. */
static double worst_trace(const answer *a, const answer *b, int along)
{
    const spx_shift *s = &a->shift;
    double worst = 0;
    for (size_t i = 0; i < s->nspec * s->nplace; i++) {
        const size_t f = i / s->nplace, k = i % s->nplace;
        const double off = fabs(spx_psf_series_value(along ? &a->psf.y : &a->psf.x, f, s->wavelength[k]) -
                                spx_psf_series_value(along ? &b->psf.y : &b->psf.x, f, s->wavelength[k]));
        worst = off > 0 ? fmax(worst, off / (along ? s->dy_error : s->dx_error)[i]) : worst;
    }
    return worst;
}

/* Largest difference in units of the error; INFINITY: of what is decided. */
static double compare(const char *name, const char *on, const answer *a, const answer *b)
{
    const spx_shift *s = &a->shift, *t = &b->shift;
    const size_t n = s->nspec * s->nplace;
    if (s->dx == NULL || t->dx == NULL)
        return INFINITY;
    const double value[] = {worst_of(n, s->dx, t->dx, s->dx_error),
                            worst_of(n, s->width_x, t->width_x, s->width_x_error),
                            worst_of(n, s->dy, t->dy, s->dy_error),
                            worst_of(n, s->width_y, t->width_y, s->width_y_error),
                            worst_of(1, &s->zero_point, &t->zero_point, &s->zero_point_error),
                            worst_trace(a, b, 0),
                            worst_trace(a, b, 1),
                            worst_of(n, s->dx_error, t->dx_error, NULL),
                            worst_of(n, s->width_x_error, t->width_x_error, NULL),
                            worst_of(n, s->dy_error, t->dy_error, NULL),
                            worst_of(n, s->width_y_error, t->width_y_error, NULL),
                            worst_of(1, &s->zero_point_error, &t->zero_point_error, NULL)};
    double worst = 0;
    printf("%-15s %s:", name, on);
    for (size_t i = 0; i < sizeof value / sizeof *value; i++) {
        printf(" %.1e", value[i]);
        worst = fmax(worst, value[i]);
    }
    printf("; steps %d %d rounds %d %d rejected %zu %zu lines %zu %zu\n", s->steps, t->steps, s->rounds, t->rounds,
           s->nwindow_rejected, t->nwindow_rejected, s->nline, t->nline);
    (void)fflush(stdout);
    const int same = s->steps == t->steps && s->rounds == t->rounds && s->nwindow_rejected == t->nwindow_rejected &&
                     s->nline == t->nline && memcmp(s->flags, t->flags, s->nspec * sizeof *s->flags) == 0;
    return same ? worst : INFINITY;
}

int main(int argc, char **argv)
{
    static const char *const sets[] = {"1111", "1000", "0100", "0010", "0001"};
    const int small = argc > 1 && strcmp(argv[1], "small") == 0, parts = argc > 1 && strcmp(argv[1], "parts") == 0;
    spx_backend device, cpu;
    spx_err e = {0};
    open_device(&device, SPX_OP_SHIFT);
    CHECK(spx_backend_open(&cpu, "cpu", SPX_OP_SHIFT, NULL, &e) == SPX_OK, "%s", spx_err_text(&e));
    open_lines();
    puts("dx width_x dy width_y zero | trace x, y | errors of dx width_x dy width_y zero");
    for (size_t i = 0; i < sizeof exposures / sizeof *exposures; i++) {
        const exposure *x = &exposures[i];
        if (small && x->nspec > 100)
            continue;
        shift_scene s = shift_expose(x->arm, x->nspec, x->wmin, x->wmax, x->seed, 900, NULL);
        add_hits(&s, x->hits, x->seed);
        answer a = solve(&s, x->frame, "0000", &cpu, &device);
        for (int k = 0; k < (parts ? 5 : 1); k++) {
            answer b = solve(&s, x->frame, sets[k], &cpu, &device);
            const double worst = compare(x->name, sets[k], &a, &b);
            CHECK(worst < MOST, "%s: %g of an error between %s and the CPU", x->name, worst, sets[k]);
            answer_free(&b);
        }
        answer_free(&a);
        shift_scene_free(&s);
    }
    spx_free(lines.line);
    spx_backend_close(&cpu);
    spx_backend_close(&device);
    return failures != 0;
}
