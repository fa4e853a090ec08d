/* psf_table FILE.h5 CASE SEED[:DRAW]...: fits simulated arcs of the first 25 fibres of a PSF, whose spots are those of
 * the file, and prints how wrong places and shape are, in pixels and in units of what the errors say: a line for each
 * seed and one of all of them. The last figure is what the covariance says of the shape's rms in the core. DRAWs are
 * other noise of the same scene. 67 lines of Ne, Ar, Kr, Hg and Cd, 5720 to 7700 Angstrom, of 300 to 56 000 electrons,
 * read noise 3, a continuum, a bad column, from a start 1.2 pixels off. Cases:
 *
 *     warm five hits masked dead lamp few list unlisted wrong cold
 *
 * Status 1 with a message: input that is no such PSF, or flags and lines that should not be. */
#include <stdio.h>

#include "../kernels/psffit_scene.h"
#include "num/blas.h"
#include "products/psf_h5.h"
#include "psffit/cold.h"

enum { FIBRES = 25, LINES = 67, FEW = 18, UNLISTED = 30, DEAD = 11, WRONG = 33 };

static spx_err err;

static void stop(const char *what)
{
    (void)fprintf(stderr, "psf_table: %s: %s\n", what, spx_err_text(&err));
    exit(1);
}

static void *room(size_t n, size_t size)
{
    void *p = spx_alloc(n, size, &err);
    if (p == NULL)
        stop("memory");
    return p;
}

/* The first fibres of a Gauss-Hermite PSF. */
static void take_fibres(const char *path, spx_psf *p)
{
    spx_psf all = {0};
    const hid_t file = H5Fopen(path, H5F_ACC_RDONLY, H5P_DEFAULT);
    if (file < 0 || spx_psf_read(file, &all, &err) != SPX_OK || H5Fclose(file) < 0)
        stop(path);
    if (!spx_psf_plain_spots(&all) || all.nspec < FIBRES || all.wave_range != NULL || all.npix_y == 0)
        stop("no Gauss-Hermite PSF of 25 fibres and a known CCD");
    if (spx_psf_copy(&all, p, &err) != SPX_OK)
        stop(path);
    for (size_t k = 0; k < p->npar; k++)
        memmove(p->coeff + k * FIBRES * p->ndeg, all.coeff + k * all.nspec * p->ndeg,
                FIBRES * p->ndeg * sizeof *p->coeff);
    p->nspec = FIBRES;
    p->bundle = NULL;
    p->status = NULL;
    p->valid_range = NULL;
    double most = 0;
    for (size_t i = 0; i < FIBRES; i++)
        for (int k = 0; k <= 20; k++)
            most = fmax(most, spx_psf_series_value(&p->x, i, p->x.wmin + (p->x.wmax - p->x.wmin) * k / 20));
    p->npix_x = (size_t)most + 20;
    spx_psf_free(&all);
}

/* Another night's: traces moved by up to 1.2 pixels with a slope and a scatter of 0.15, widths 5 % too large, Gaussian.
 */
static void make_start(const psffit_scene *s, spx_psf *p)
{
    if (spx_psf_copy(&s->truth, p, &err) != SPX_OK)
        stop("start");
    const size_t row = p->nspec * p->ndeg;
    for (size_t i = 0; i < p->nspec; i++) {
        double *x = p->x.coef + p->x.ncoef * i, *y = p->y.coef + p->y.ncoef * i;
        x[0] += 0.7 + 0.15 * scene_random(s->r.seed, i, 8);
        x[1] += 0.3;
        y[0] += -0.6 + 0.15 * scene_random(s->r.seed, i, 9);
        y[1] += -0.4;
        for (size_t k = 0; k < p->npar; k++)
            for (size_t d = 0; d < p->ndeg; d++) {
                const int width = (int)k == p->sigx || (int)k == p->sigy;
                double *c = &p->coeff[k * row + i * p->ndeg + d];
                *c = width ? 1.05 * *c : (int)k == p->gh[0] && d == 0 ? 1 : 0;
            }
    }
}

/* Lines of the list, spread over the range: the brightest of NIST's are as many as are asked for. */
static void take_lines(psffit_scene *s)
{
    spx_arc_line *all;
    size_t n, have = 0;
    if (spx_arc_lines(SPX_LAMP_NE | SPX_LAMP_AR | SPX_LAMP_KR | SPX_LAMP_HG | SPX_LAMP_CD, &all, &n, &err) != SPX_OK)
        stop("lines");
    for (int quality = SPX_ARC_BRIGHT; quality <= SPX_ARC_FAINT && have < s->r.nline; quality++)
        for (size_t k = 0; k < n && have < s->r.nline; k++)
            if (all[k].quality == quality && all[k].wavelength > 5720 && all[k].wavelength < 7700)
                s->line[have++] = all[k];
    spx_free(all);
    s->r.nline = have;
    qsort(s->line, have, sizeof *s->line, spx_arc_order);
    for (size_t l = 0; l < have; l++)
        s->drawn[l] = s->line[l].wavelength;
}

/* Electrons of each line in each fibre: random, of a line alike in all fibres but for 10 %. */
static void light_lines(psffit_scene *s)
{
    const size_t all = s->r.nline + s->nextra;
    for (size_t l = 0; l < s->nextra; l++)
        s->drawn[s->r.nline + l] = 5750 + 1930 * ((double)l + 0.37) / (double)s->nextra;
    for (size_t i = 0; i < FIBRES; i++)
        for (size_t l = 0; l < all; l++) {
            const double u = scene_uniform(s->r.seed, l, 2);
            const double f = l < s->r.nline ? s->r.faint * pow(s->r.bright / s->r.faint, u) : 3000;
            s->flux[i * all + l] = f * (1 + 0.1 * scene_random(s->r.seed, i, 10));
        }
}

static int is_case(const char *name, const char *what)
{
    return strcmp(name, what) == 0;
}

static void put_out(psffit_scene *s, size_t line)
{
    for (size_t i = 0; i < FIBRES; i++)
        s->flux[i * (s->r.nline + s->nextra) + line] = 0;
}

/* Masks of the first exposure: a column, and what a case adds. */
static void mask(const char *name, psffit_scene *s)
{
    for (size_t x = 0; x < s->r.nexp; x++) {
        spx_image *im = &s->image[x];
        for (size_t k = 0; k < im->ny * im->nx; k++) {
            const size_t block = k / im->nx / 8 * (im->nx / 8 + 1) + k % im->nx / 8;
            if (k % im->nx == 97 || (is_case(name, "masked") && scene_uniform(s->r.seed, block, 11) < 0.3)) {
                im->mask[k] = 4;
                im->data[k] = 1e6f;
            }
        }
    }
}

/* A flat: continuum alone, and the start that it and the arcs make. */
static void cold_start(psffit_scene *s, spx_psf *start)
{
    psffit_scene flat = *s;
    spx_cold_options o = spx_cold_defaults();
    spx_cold_report report;
    const size_t nline = s->r.nline, bundle = FIBRES;
    flat.image = room(1, sizeof *flat.image);
    flat.r.nexp = 1;
    flat.r.nline = flat.nextra = 0;
    flat.r.continuum = 6000;
    if (!scene_expose(&flat, 0, 0, 0, NULL))
        stop("memory");
    const double middle = 0.5 * (double)s->r.ny;
    double lo = s->truth.y.wmin, hi = s->truth.y.wmax;
    for (int k = 0; k < 40; k++)
        *(spx_psf_series_value(&s->truth.y, FIBRES / 2, 0.5 * (lo + hi)) < middle ? &lo : &hi) = 0.5 * (lo + hi);
    o.nbundle = 1;
    o.bundle = &bundle;
    o.centre = lo + 60;
    o.dispersion = 1.03 * s->step;
    o.nthreads = 1;
    spx_psf_free(start);
    *start = (spx_psf){0};
    if (spx_cold_start(&flat.image[0], s->r.nexp, s->image, nline, s->line, &o, start, &report, &err) != SPX_OK)
        stop("cold");
    spx_image_free(&flat.image[0]);
    spx_free(flat.image);
}

/* What the covariance says of the shape's error in the core, rms over the places that scene_score() takes. */
static double core_limit(const psffit_scene *s, const spx_psf *psf, const spx_psffit *fit, unsigned skip,
                         const spx_psffit_options *o)
{
    double sum = 0;
    size_t n = 0;
    for (size_t k = 0; k < fit->nspec * fit->nplace; k++)
        if (!(fit->fibre[k / fit->nplace].status & skip) && fit->x_error[k] > 0) {
            sum += scene_core_variance(s, psf, fit, k / fit->nplace, fit->place[k % fit->nplace],
                                       (size_t)o->shape_degree_fibre + 1, (size_t)o->shape_degree_wave + 1);
            n++;
        }
    return n > 0 ? sqrt(sum / (double)n) : 0;
}

static void run(const spx_psf *truth, const char *name, uint64_t seed, uint64_t draw, psffit_score *q)
{
    const int few = is_case(name, "few") || is_case(name, "list");
    psffit_scene s = {.r = {.nspec = FIBRES,
                            .bundle = FIBRES,
                            .ny = truth->npix_y,
                            .nexp = is_case(name, "five") ? 5 : 1,
                            .nline = LINES,
                            .faint = 300,
                            .bright = 56000,
                            .continuum = 30,
                            .readnoise = 3,
                            .hits = is_case(name, "hits") ? 100 : 0,
                            .seed = seed,
                            .draw = draw,
                            .noise = 1},
                      .nextra = is_case(name, "unlisted") ? UNLISTED : 0};
    unsigned char dead[FIBRES] = {0};
    unsigned skip = 0;
    spx_psf psf = {0};
    spx_psffit fit = {0};
    if (spx_psf_copy(truth, &s.truth, &err) != SPX_OK)
        stop("truth");
    s.line = room(LINES, sizeof *s.line);
    s.drawn = room(LINES + s.nextra, sizeof *s.drawn);
    s.flux = room(FIBRES * (LINES + s.nextra), sizeof *s.flux);
    s.image = room(s.r.nexp, sizeof *s.image);
    take_lines(&s);
    light_lines(&s);
    make_start(&s, &s.start);
    const double y0 = spx_psf_series_value(&s.truth.y, FIBRES / 2, 6000);
    s.step = 1000 / (spx_psf_series_value(&s.truth.y, FIBRES / 2, 7000) - y0);
    s.wmin = 6000 - y0 * s.step;
    for (size_t l = 0; l < s.r.nline; l++)
        if ((is_case(name, "lamp") && strcmp(s.line[l].element, "Ar") == 0) ||
            (few && l * FEW / LINES == (l + 1) * FEW / LINES))
            put_out(&s, l);
    if (is_case(name, "dead")) {
        dead[DEAD] = 1;
        skip = SPX_PSF_DEAD;
    }
    const double listed = s.line[WRONG].wavelength;
    if (is_case(name, "wrong")) {
        s.line[WRONG].wavelength += 0.05;
        for (size_t i = 0; i < FIBRES; i++)
            s.flux[i * s.r.nline + WRONG] = 10000;
    }
    for (size_t x = 0; x < s.r.nexp; x++)
        if (!scene_expose(&s, x, 0, 0, dead))
            stop("memory");
    mask(name, &s);
    if (is_case(name, "cold"))
        cold_start(&s, &s.start);
    spx_arc_line *list = s.line, some[LINES];
    size_t nlist = s.r.nline;
    if (is_case(name, "few")) { /* the lines that are there */
        nlist = 0;
        for (size_t l = 0; l < s.r.nline; l++)
            if (s.flux[l] > 0)
                some[nlist++] = s.line[l];
        list = some;
    }
    spx_psffit_options o = spx_psffit_defaults();
    const spx_psffit_input in = {.nexp = s.r.nexp, .image = s.image, .start = &s.start, .nline = nlist, .line = list};
    if (spx_psffit_make(&in, &o, &psf, &fit, &err) != SPX_OK)
        stop(name);
    *q = scene_score(&s, &psf, &fit, skip);
    q->core_limit = core_limit(&s, &psf, &fit, skip, &o);
    char label[64];
    (void)snprintf(label, sizeof label, "%s:%llu:%llu", name, (unsigned long long)seed, (unsigned long long)draw);
    scene_print(label, q);
    size_t flagged = 0, wrong = 0, off = 0;
    for (size_t i = 0; i < FIBRES; i++)
        flagged += (fit.fibre[i].status & ~(unsigned)SPX_PSF_RANGE) != (dead[i] ? SPX_PSF_DEAD : 0);
    for (size_t l = 0; l < nlist; l++) {
        wrong += !fit.line[l].used;
        off += fit.line[l].sn < 3;
    }
    printf("%-10s flagged %zu, lines left out %zu, found %zu, with S/N below 3 %zu, iterations %d, rejected %zu", label,
           flagged, wrong, fit.nunlisted, off, fit.bundle[0].niter, (size_t)fit.bundle[0].nreject);
    if (is_case(name, "wrong"))
        printf(", line off by %.4f +- %.4f", fit.line[WRONG].delta + s.line[WRONG].wavelength - listed,
               fit.line[WRONG].delta_error);
    printf("\n");
    spx_psf_free(&psf);
    spx_psffit_free(&fit);
    scene_free(&s);
}

int main(int argc, char **argv)
{
    spx_psf truth = {0};
    psffit_score sum = {0};
    int n = 0;
    if (argc < 4 || spx_blas_open(&err) != SPX_OK)
        stop("usage: psf_table FILE.h5 CASE SEED[:DRAW]...");
    take_fibres(argv[1], &truth);
    for (int k = 3; k < argc; k++, n++) {
        psffit_score q;
        char *end;
        const uint64_t seed = strtoull(argv[k], &end, 10);
        run(&truth, argv[2], seed, *end == ':' ? strtoull(end + 1, NULL, 10) : 0, &q);
        for (int y = 0; y < 2; y++) {
            sum.rms[y] += q.rms[y] * q.rms[y];
            sum.limit[y] += q.limit[y] * q.limit[y];
            sum.median[y] += q.median[y];
            sum.mad[y] += q.mad[y];
        }
        sum.kms_mean += q.kms_mean * q.kms_mean;
        sum.kms_rms += q.kms_rms * q.kms_rms;
        sum.core += q.core * q.core;
        sum.core_limit += q.core_limit * q.core_limit;
        sum.worst_median += q.worst_median;
        sum.worst = fmax(sum.worst, q.worst);
        sum.chi2 += q.chi2;
        sum.n += q.n;
    }
    for (int y = 0; y < 2; y++) {
        sum.rms[y] = sqrt(sum.rms[y] / n);
        sum.limit[y] = sqrt(sum.limit[y] / n);
        sum.median[y] /= n;
        sum.mad[y] /= n;
    }
    sum.kms_mean = sqrt(sum.kms_mean / n);
    sum.kms_rms = sqrt(sum.kms_rms / n);
    sum.core = sqrt(sum.core / n);
    sum.core_limit = sqrt(sum.core_limit / n);
    sum.worst_median /= n;
    sum.chi2 /= n;
    if (n > 1)
        scene_print(argv[2], &sum);
    spx_psf_free(&truth);
    return 0;
}
