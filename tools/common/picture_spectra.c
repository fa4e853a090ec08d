/* Pictures of frames and spectra, and of fits to them (common/picture.h). */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/parse.h"
#include "common/picture_shown.h"
#include "h5/object.h"
#include "products/spectra_h5.h"

enum { LEFT = 90, RIGHT = 18, BAR = 100, TOP = 30, BOTTOM = 50, GAP = 12 };

/* Colour of an arm: blue, red and infrared ones as they are usually drawn, others in turn. */
static const char *colour_of(const char *name, size_t k)
{
    static const char *const turn[] = {SPX_BLUE, SPX_RED, SPX_PURPLE, SPX_GREEN};
    return strcmp(name, "b") == 0   ? SPX_BLUE
           : strcmp(name, "r") == 0 ? SPX_RED
           : strcmp(name, "z") == 0 ? SPX_PURPLE
                                    : turn[k % 4];
}

void spx_shown_free(spx_shown *d)
{
    for (size_t i = 0; i < d->nsource; i++) {
        spx_spectra_free(&d->source[i]);
        spx_free(d->target[i]);
    }
}

/* Even steps from the first to the last wavelength of the bins that are shown of all spectra. */
static const double *common_wave(spx_picture *p, const spx_shown_arm *s, size_t nspec)
{
    double *w = spx_picture_alloc(p, s->n), lo = HUGE_VAL, hi = 0;
    for (size_t i = 0; i < nspec; i++) {
        lo = fmin(lo, spx_shown_wave(s, i)[0]);
        hi = fmax(hi, spx_shown_wave(s, i)[s->n - 1]);
    }
    for (size_t j = 0; w != NULL && j < s->n; j++)
        w[j] = lo + (hi - lo) * (double)j / (double)(s->n - 1);
    return w;
}

/* Range of wavelengths that is shown. */
static void load_arm(spx_picture *p, spx_shown *d, size_t source, const spx_arm *a)
{
    spx_shown_arm *s = &d->arm[d->narm];
    const size_t nspec = d->source[source].nspec;
    const double *limit = p->args->wave;
    const int all = limit[0] == limit[1];
    *s = (spx_shown_arm){.arm = a, .source = source};
    for (size_t j = 0; j < a->nwave; j++) {
        int inside = all;
        for (size_t i = 0; i < (a->per_row ? nspec : 1) && !inside; i++) { /* of any spectrum */
            const double w = a->per_row ? a->row_wavelength[i * a->nwave + j] : a->wavelength[j];
            inside = w >= limit[0] && w <= limit[1];
        }
        if (inside && s->n == 0)
            s->first = j;
        s->n += inside != 0;
    }
    if (s->n < 2 || d->narm == SPX_MAX_ARM - 1)
        return;
    d->narm++;
    s->wave = a->per_row ? common_wave(p, s, nspec) : a->wavelength + s->first;
    if (s->wave == NULL)
        return;
    s->flux = spx_picture_alloc(p, nspec * s->n);
    s->sigma = spx_picture_alloc(p, nspec * s->n);
    for (size_t i = 0; i < nspec && p->st == SPX_OK; i++)
        for (size_t j = 0; j < s->n; j++) {
            const size_t k = i * a->nwave + s->first + j;
            const int good = a->ivar[k] > 0 && (a->mask == NULL || a->mask[k] == 0);
            s->flux[i * s->n + j] = good ? a->flux[k] : NAN;
            s->sigma[i * s->n + j] = good ? 1 / sqrt(a->ivar[k]) : NAN;
        }
}

void spx_shown_load(spx_picture *p, spx_shown *d, int with_resolution)
{
    *d = (spx_shown){0};
    for (size_t i = 0; i < p->args->n && p->st == SPX_OK; i++) {
        spx_input *in = p->args->in[i];
        if (!spx_h5_exists(in->file, "/frame") && !spx_h5_exists(in->file, "/spectra"))
            continue;
        if (d->nsource == SPX_MAX_SHOWN) {
            spx_picture_fail(p, SPX_EUSAGE, "at most %d files with spectra", SPX_MAX_SHOWN);
            return;
        }
        spx_spectra *s = &d->source[d->nsource];
        p->st = spx_spectra_read_grids(in->file, with_resolution, s, p->e);
        if (p->st == SPX_OK)
            p->st = spx_table_find_i64(s->fibermap, "TARGETID", &d->target[d->nsource], p->e);
        d->in[d->nsource++] = in;
        for (size_t a = 0; a < s->narm && p->st == SPX_OK; a++)
            load_arm(p, d, d->nsource - 1, &s->arm[a]);
    }
    if (p->st == SPX_OK && d->nsource == 0)
        spx_picture_fail(p, SPX_EINPUT, "%s: holds no spectra (/frame or /spectra)", p->args->in[0]->name);
    if (p->st == SPX_OK && d->narm == 0)
        spx_picture_fail(p, SPX_EUSAGE, "--wavelength: no spectrum has light between %g and %g Angstrom",
                         p->args->wave[0], p->args->wave[1]);
}

size_t spx_shown_row(const spx_shown *d, size_t k, size_t row)
{
    if (k == 0)
        return row;
    if (d->target[0] == NULL || d->target[k] == NULL)
        return row < d->source[k].nspec ? row : SPX_NO_ROW;
    if (row < d->source[k].nspec && d->target[k][row] == d->target[0][row])
        return row;
    for (size_t i = 0; i < d->source[k].nspec; i++)
        if (d->target[k][i] == d->target[0][row])
            return i;
    return SPX_NO_ROW;
}

typedef struct {
    double snr;
    size_t row;
} ranked;

static int by_snr(const void *a, const void *b)
{
    const double x = ((const ranked *)a)->snr, y = ((const ranked *)b)->snr;
    return (x > y) - (x < y);
}

/* Median of flux over error in a row of the first source. */
static double snr_of(const spx_shown *d, size_t row)
{
    double best = 0;
    for (size_t a = 0; a < d->narm; a++) {
        const spx_shown_arm *s = &d->arm[a];
        if (s->source != 0)
            continue;
        double *v = spx_alloc(s->n, sizeof *v, NULL), lo, hi;
        for (size_t j = 0; v != NULL && j < s->n; j++)
            v[j] = s->flux[row * s->n + j] / s->sigma[row * s->n + j];
        if (v != NULL && spx_picture_quantiles(v, s->n, 0.5, 0.5, &lo, &hi) > s->n / 4 && lo > best)
            best = lo;
        spx_free(v);
    }
    return best;
}

size_t spx_shown_choose(spx_picture *p, const spx_shown *d, const unsigned char *usable)
{
    const spx_spectra *s = &d->source[0];
    if (p->args->target != NULL) {
        long id = 0;
        if (p->st == SPX_OK)
            p->st = spx_parse_long(p->args->target, "--targetid", &id, p->e);
        for (size_t i = 0; d->target[0] != NULL && i < s->nspec; i++)
            if (d->target[0][i] == id)
                return i;
        spx_picture_fail(p, SPX_EINPUT, "%s:/fibermap: no spectrum has TARGETID %ld", d->in[0]->name, id);
        return 0;
    }
    if (p->args->spectrum >= 0) {
        if ((size_t)p->args->spectrum >= s->nspec)
            spx_picture_fail(p, SPX_EUSAGE, "--spectrum: %s has the spectra 0 to %zu, not %ld", d->in[0]->name,
                             s->nspec - 1, p->args->spectrum);
        return (size_t)p->args->spectrum;
    }
    enum { WIDTH = 8 };
    ranked *r = spx_alloc(s->nspec, sizeof *r, p->e);
    char *type = s->fibermap != NULL && spx_table_find(s->fibermap, "OBJTYPE") >= 0
                     ? spx_alloc2(s->nspec, WIDTH, 1, NULL)
                     : NULL;
    size_t n = 0, row = 0;
    if (r == NULL)
        p->st = SPX_EIO;
    if (type != NULL && p->st == SPX_OK)
        p->st = spx_table_get_str(s->fibermap, "OBJTYPE", WIDTH, type, p->e);
    for (size_t i = 0; p->st == SPX_OK && i < s->nspec; i++)
        if ((usable == NULL || usable[i]) && (type == NULL || strcmp(type + i * WIDTH, "SKY") != 0)) {
            const double snr = snr_of(d, i);
            if (snr > 0)
                r[n++] = (ranked){snr, i};
        }
    if (n > 0) {
        qsort(r, n, sizeof *r, by_snr);
        row = r[n / 2].row;
    }
    spx_free(r);
    spx_free(type);
    return row;
}

void spx_shown_name(const spx_shown *d, size_t row, size_t size, char *name)
{
    if (d->target[0] != NULL)
        (void)snprintf(name, size, "spectrum %zu, target %lld", row, (long long)d->target[0][row]);
    else
        (void)snprintf(name, size, "spectrum %zu", row);
}

const char *spx_shown_file(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash != NULL ? slash + 1 : path;
}

/* ---- one spectrum ---- */

/* Data block $s<k> of an arm's spectrum: wavelength, flux, flux - sigma, flux + sigma, model (NaN: none), and whether
 * the bin is masked (1, else NaN). Returns 0 where the arm lacks it. */
static int spectrum_block(spx_picture *p, const spx_shown *d, size_t k, size_t row, const double *model)
{
    const spx_shown_arm *s = &d->arm[k];
    const size_t r = spx_shown_row(d, s->source, row);
    double *lo = spx_picture_alloc(p, s->n), *hi = spx_picture_alloc(p, s->n), *bad = spx_picture_alloc(p, s->n);
    double *none = spx_picture_alloc(p, s->n);
    char name[32];
    if (r == SPX_NO_ROW || p->st != SPX_OK)
        return 0;
    const double *flux = s->flux + r * s->n, *sigma = s->sigma + r * s->n;
    for (size_t j = 0; j < s->n; j++) {
        lo[j] = flux[j] - sigma[j];
        hi[j] = flux[j] + sigma[j];
        bad[j] = isfinite(flux[j]) ? NAN : 1;
        none[j] = NAN;
    }
    const double *col[] = {spx_shown_wave(s, r), flux, lo, hi, model != NULL ? model : none, bad};
    (void)snprintf(name, sizeof name, "s%zu", k);
    spx_picture_columns(p, name, s->n, sizeof col / sizeof *col, col);
    return 1;
}

void spx_shown_range(const double *v, size_t n, double *lo, double *hi)
{
    (void)spx_picture_quantiles(v, n, 0.004, 0.996, lo, hi);
    const double span = fmax(*hi, 0) - fmin(*lo, 0);
    *hi = fmax(*hi, 0) + 0.22 * span; /* above them, names of lines */
    *lo = fmin(*lo, 0) - (*lo < 0 ? 0.05 * span : 0);
}

/* Commands that plot block $s<k>: error band, spectrum, masked bins at the lower edge. */
static void plot_spectrum(spx_picture *p, size_t k, size_t n, double lo, double hi, const char *colour,
                          const char *name, int key)
{
    spx_picture_add(p, "plot $s%zu using 1:3:4 with filledcurves fc rgb '" SPX_PALE "' notitle, \\\n", k);
    spx_picture_add(p, "     $s%zu using 1:2 with %s lw 0.8 lc rgb '%s' ", k, n < 300 ? "histeps" : "lines", colour);
    spx_picture_add(p, key ? "title " : "notitle ");
    if (key)
        spx_picture_quote(p, name);
    spx_picture_add(p, ", \\\n     $s%zu using 1:(%.6g * $6) with points pt 5 ps 0.25 lc rgb '" SPX_ORANGE "' %s", k,
                    lo + 0.02 * (hi - lo), key ? "title 'masked'" : "notitle");
}

static const char *flux_label(const char *unit)
{
    return strncmp(unit, "electron", 8) == 0 ? "electrons" : "flux";
}

void spx_shown_label(spx_picture *p, const char *unit)
{
    if (strcmp(unit, "electron/Angstrom") == 0)
        spx_picture_label(p, "y", "electrons / Å", "");
    else if (strcmp(unit, "relative flux") == 0)
        spx_picture_label(p, "y", "relative flux", "");
    else
        spx_picture_label(p, "y", flux_label(unit), unit);
}

/* ---- a frame ---- */

/* Ends of all arms, and whether one of the inputs holds the sky that was subtracted. */
static void ends_of(const spx_shown *d, double *lo, double *hi)
{
    *lo = INFINITY;
    *hi = -INFINITY;
    for (size_t a = 0; a < d->narm; a++) {
        *lo = fmin(*lo, d->arm[a].wave[0]);
        *hi = fmax(*hi, d->arm[a].wave[d->arm[a].n - 1]);
    }
}

const double *spx_shown_on_one_grid(spx_picture *p, const spx_shown_arm *s, size_t nspec, const double *value)
{
    double *z = s->arm->per_row ? spx_picture_alloc(p, nspec * s->n) : NULL;
    if (!s->arm->per_row || z == NULL)
        return value;
    for (size_t i = 0; i < nspec; i++) {
        const double *w = spx_shown_wave(s, i);
        for (size_t j = 0, k = 0; j < s->n; j++) {
            while (k + 1 < s->n && fabs(w[k + 1] - s->wave[j]) < fabs(w[k] - s->wave[j]))
                k++;
            const double step = k > 0 ? w[k] - w[k - 1] : w[1] - w[0];
            z[i * s->n + j] = fabs(w[k] - s->wave[j]) < 1.5 * step ? value[i * s->n + k] : NAN;
        }
    }
    return z;
}

/* Image of all spectra of the first source (of all sources with as many rows), on one axis of wavelengths. */
static void plot_image(spx_picture *p, const spx_shown *d, double w0, double w1, double top, double bottom, size_t row)
{
    const size_t nspec = d->source[0].nspec;
    const double right = p->width - BAR, pixels = right - LEFT;
    const size_t k = (size_t)(2 * (double)nspec / (bottom - top)) / 2 + 1;
    double lo = 0, hi = 1, soft = 0, l, h;
    int used[SPX_MAX_ARM] = {0};
    for (size_t a = 0; a < d->narm && p->st == SPX_OK; a++) {
        const spx_shown_arm *s = &d->arm[a];
        char name[32];
        if (d->source[s->source].nspec != nspec)
            continue;
        const double step = (s->wave[s->n - 1] - s->wave[0]) / (double)(s->n - 1);
        const double x0 = s->wave[0] - step / 2, x1 = s->wave[s->n - 1] + step / 2;
        size_t ncol = (size_t)fmin((double)s->n, 1.5 * pixels * (x1 - x0) / (w1 - w0)) + 1;
        double *z =
            spx_picture_resample(p, spx_shown_on_one_grid(p, s, nspec, s->flux), s->wave, nspec, s->n, x0, x1, ncol, k);
        if (z == NULL)
            return;
        const size_t ny = (nspec + k - 1) / k;
        (void)spx_picture_quantiles(z, ncol * ny, 0.5, 0.997, &l, &h);
        soft = fmax(soft, fabs(l));
        hi = a == 0 ? h : fmax(hi, h);
        (void)spx_picture_quantiles(z, ncol * ny, 0.01, 0.01, &l, &h);
        lo = a == 0 ? l : fmin(lo, l);
        (void)snprintf(name, sizeof name, "i%zu", a);
        spx_picture_matrix(p, name, ncol, ny, z);
        spx_picture_add(p, "x%zu(i) = %.9g + (i + 0.5) * %.9g\n", a, x0, (x1 - x0) / (double)ncol);
        used[a] = 1;
    }
    spx_picture_panel(p, LEFT, right, top, bottom);
    spx_picture_range(p, "x", w0, w1);
    spx_picture_range(p, "y", -0.5, (double)nspec - 0.5);
    soft = fmax(soft, hi / 3000);
    spx_picture_asinh(p, soft > 0 ? soft : 1, fmax(lo, -soft), hi);
    spx_picture_add(p,
                    "set palette defined " SPX_VIRIDIS "\nset format x ''\n"
                    "set object 1 rectangle from graph 0,0 to graph 1,1 behind fc rgb '#e8e8e8' fs solid noborder\n"
                    "set colorbox user origin screen %.5f, screen %.5f size screen %.5f, screen %.5f\n",
                    (right + 10) / p->width, 1 - bottom / p->height, 12 / p->width, (bottom - top) / p->height);
    spx_picture_label(p, "y", "spectrum", "");
    spx_picture_label(p, "cb", flux_label(d->arm[0].arm->unit),
                      strncmp(d->arm[0].arm->unit, "electron/", 9) == 0   ? "per Å"
                      : strcmp(d->arm[0].arm->unit, "relative flux") == 0 ? ""
                                                                          : d->arm[0].arm->unit);
    /* the spectrum that is shown below */
    spx_picture_add(
        p, "set label 4 '◂' at graph 1, first %zu left offset character -0.15,0 tc rgb '" SPX_RED "' front\n", row);
    const char *comma = "plot ";
    for (size_t a = 0; a < d->narm; a++)
        if (used[a]) {
            spx_picture_add(p, "%s$i%zu matrix using (x%zu($1)):(%zu * $2 + %g):(f(v($3))) with image notitle", comma,
                            a, a, k, 0.5 * (double)(k - 1));
            comma = ", \\\n     ";
        }
    spx_picture_add(p, "\nunset object 1\nunset label 4\nunset colorbox\nunset label 3\n");
}

/* Sky that was subtracted from the spectra, by arm; $k<a>. Returns the number of arms that have it. */
static size_t sky_blocks(spx_picture *p, const spx_shown *d, size_t row, unsigned char *has, double *lo, double *hi)
{
    size_t n = 0;
    double *all = NULL;
    *lo = INFINITY;
    *hi = 0;
    for (size_t a = 0; a < d->narm && p->st == SPX_OK; a++) {
        const spx_shown_arm *s = &d->arm[a];
        spx_input *in = d->in[s->source];
        size_t nspec = d->source[s->source].nspec, nwave = s->arm->nwave;
        const size_t r = spx_shown_row(d, s->source, row);
        char name[32];
        has[a] = 0;
        if (!spx_h5_exists(in->file, "/sky/model") || d->source[s->source].narm != 1 || r == SPX_NO_ROW)
            continue;
        all = spx_picture_read2(p, in, "/sky/model", &nspec, &nwave);
        if (all == NULL)
            return 0;
        const double *col[] = {s->wave, all + r * nwave + s->first};
        (void)snprintf(name, sizeof name, "k%zu", a);
        spx_picture_columns(p, name, s->n, 2, col);
        double l, h;
        (void)spx_picture_quantiles(col[1], s->n, 0.02, 1, &l, &h);
        *lo = fmin(*lo, l);
        *hi = fmax(*hi, h);
        has[a] = 1;
        n++;
    }
    return n;
}

void spx_picture_frame(spx_picture *p)
{
    spx_shown *d = spx_alloc(1, sizeof *d, p->e);
    double w0, w1, lo = 0, hi = 0, l, h, sky_lo, sky_hi;
    unsigned char has_sky[SPX_MAX_ARM] = {0};
    char name[80];
    if (d == NULL) {
        p->st = SPX_EIO;
        return;
    }
    spx_shown_load(p, d, 0);
    const size_t row = p->st == SPX_OK ? spx_shown_choose(p, d, NULL) : 0;
    if (p->st == SPX_OK) {
        ends_of(d, &w0, &w1);
        const size_t nsky = sky_blocks(p, d, row, has_sky, &sky_lo, &sky_hi);
        const double sky_height = nsky > 0 ? 0.2 * p->height : 0;
        const double middle = TOP + 0.5 * (p->height - TOP - BOTTOM - sky_height), right = p->width - BAR;
        const double lower = p->height - BOTTOM - sky_height;
        spx_picture_add(p, "set multiplot\n");
        spx_shown_name(d, row, sizeof name, name);
        spx_picture_title(p, LEFT, "%s: %zu spectra; below, %s", spx_shown_file(d->in[0]->name), d->source[0].nspec,
                          name);
        plot_image(p, d, w0, w1, TOP, middle - GAP, row);
        spx_picture_untitled(p);
        for (size_t a = 0; a < d->narm; a++) {
            const spx_shown_arm *s = &d->arm[a];
            const size_t r = spx_shown_row(d, s->source, row);
            if (r == SPX_NO_ROW)
                continue;
            spx_shown_range(s->flux + r * s->n, s->n, &l, &h);
            lo = fmin(lo, l);
            hi = fmax(hi, h);
        }
        spx_picture_panel(p, LEFT, right, middle, lower - (nsky > 0 ? GAP : 0));
        spx_picture_range(p, "y", lo, hi);
        spx_shown_label(p, d->arm[0].arm->unit);
        if (nsky == 0)
            spx_picture_add(p, "set format x '%%g'\nset xlabel 'wavelength (Å)'\n");
        if (nsky == 0 && strncmp(d->arm[0].arm->unit, "electron", 8) == 0)
            spx_picture_sky_lines(p, d->arm[0].arm->medium, w0, w1, right - LEFT);
        spx_picture_add(p, "set xzeroaxis lt -1 lw 0.5 lc rgb '" SPX_GREY "'\nset key bottom center horizontal\n");
        int first = 1;
        /* arms one over the other: each plot command has the same axes */
        for (size_t a = 0; a < d->narm; a++) {
            if (!spectrum_block(p, d, a, row, NULL))
                continue;
            plot_spectrum(p, a, d->arm[a].n, lo, hi, d->narm > 1 ? colour_of(d->arm[a].arm->name, a) : SPX_INK,
                          "flux ± error", first);
            spx_picture_add(p, "\n");
            if (first)
                spx_picture_add(p, "set format x ''\nunset xlabel\nunset label 2\n");
            first = 0;
        }
        spx_picture_unlined(p);
        if (nsky > 0) {
            spx_picture_panel(p, LEFT, right, lower, p->height - BOTTOM);
            spx_picture_add(p, "set format x '%%g'\nset xlabel 'wavelength (Å)'\nset key off\n");
            spx_picture_label(p, "y", "sky / Å", "");
            spx_picture_range(p, "y", fmax(sky_lo * 0.5, sky_hi * 1e-5), sky_hi * 8);
            spx_picture_decades(p, "y", sky_lo * 0.1, sky_hi * 10);
            spx_picture_sky_lines(p, d->arm[0].arm->medium, w0, w1, right - LEFT);
            const char *comma = "plot ";
            for (size_t a = 0; a < d->narm; a++)
                if (has_sky[a]) {
                    spx_picture_add(p, "%s$k%zu using 1:2 with lines lw 0.8 lc rgb '" SPX_BLUE "' notitle", comma, a);
                    comma = ", ";
                }
            spx_picture_add(p, "\n");
        }
        spx_picture_add(p, "unset multiplot\n");
    }
    spx_shown_free(d);
    spx_free(d);
}

/* ---- spectrum, fit ---- */

/* Row of the models of exposures that shows spectrum `row` of a source: stars that were fitted jointly have one for
 * each. Of those of the target, the first whose columns agree with the spectrum's; SPX_NO_ROW: none. */
static size_t exposure_of(spx_picture *p, spx_input *fit, const spx_shown *d, size_t source, size_t row)
{
    static const char *const same[] = {"TARGETID", "EXPID", "NIGHT", "BARYCENTRIC_VELOCITY"};
    enum { NSAME = sizeof same / sizeof *same };
    const spx_table *mine = d->source[source].fibermap;
    spx_table *theirs = NULL;
    size_t found = SPX_NO_ROW;
    if (p->st == SPX_OK)
        p->st = spx_table_read(fit->file, "/exp_fibermap", &theirs, p->e);
    const double *a[NSAME], *b[NSAME];
    for (size_t c = 0; c < NSAME; c++) {
        a[c] = spx_picture_column(p, mine, same[c]);
        b[c] = spx_picture_column(p, theirs, same[c]);
    }
    for (size_t i = 0; p->st == SPX_OK && theirs != NULL && i < theirs->nrow && found == SPX_NO_ROW; i++) {
        int alike = a[0] != NULL && b[0] != NULL;
        for (size_t c = 0; c < NSAME && alike; c++)
            alike = a[c] == NULL || b[c] == NULL || a[c][row] == b[c][i];
        if (alike)
            found = i;
    }
    spx_table_free(theirs);
    return found;
}

/* Model of a star in one arm, on the bins of the data. */
static double *model_of(spx_picture *p, spx_input *fit, const spx_shown *d, const spx_shown_arm *s, size_t row,
                        size_t star)
{
    char path[80];
    size_t nwave = 0, n = 0;
    const size_t mine = spx_shown_row(d, s->source, row);
    (void)snprintf(path, sizeof path, "/rvfit/%s/wavelength", s->arm->name);
    if (!spx_h5_exists(fit->file, path) || mine == SPX_NO_ROW)
        return NULL;
    const double *wave = NULL;
    size_t ngrid = 0; /* 0: one for all */
    if (s->arm->per_row)
        wave = spx_picture_read2(p, fit, path, &ngrid, &nwave);
    else
        wave = spx_picture_read1(p, fit, path, &nwave);
    (void)snprintf(path, sizeof path, "/rvfit/%s/exposure_model", s->arm->name);
    if (spx_h5_exists(fit->file, path))
        star = exposure_of(p, fit, d, s->source, mine);
    else
        (void)snprintf(path, sizeof path, "/rvfit/%s/model", s->arm->name);
    const double *all = wave != NULL ? spx_picture_read2(p, fit, path, &n, &nwave) : NULL;
    double *model = all != NULL && star < n ? spx_picture_alloc(p, s->n) : NULL;
    size_t i = 0;
    const double *bin = spx_shown_wave(s, mine);
    wave = ngrid > 0 && model != NULL ? wave + star * nwave : wave;
    for (size_t j = 0; model != NULL && j < s->n; j++) {
        while (i < nwave && wave[i] < bin[j] - 1e-3)
            i++;
        model[j] = i < nwave && wave[i] < bin[j] + 1e-3 && all[star * nwave + i] != 0 ? all[star * nwave + i] : NAN;
    }
    return model;
}

/* Panels of one spectrum, an arm each, with its model where there is one. v: velocity of the star, km/s; NaN: not
 * known. */
static void draw_arms(spx_picture *p, const spx_shown *d, size_t row, double *const *model, double v)
{
    size_t n = 0, k = 0;
    int fitted = 0;
    for (size_t a = 0; a < d->narm; a++) {
        n += spx_shown_row(d, d->arm[a].source, row) != SPX_NO_ROW;
        fitted |= model != NULL && model[a] != NULL;
    }
    const double each = (p->height - TOP - BOTTOM + 26) / (double)(n > 0 ? n : 1), right = p->width - RIGHT;
    for (size_t a = 0; a < d->narm; a++) {
        const spx_shown_arm *s = &d->arm[a];
        const size_t r = spx_shown_row(d, s->source, row);
        double lo, hi, chi2 = 0, good = 0;
        const double top = TOP + each * (double)k, bottom = top + each - 26;
        const double split = fitted ? top + 0.70 * (bottom - top) : bottom;
        const double *m = model != NULL ? model[a] : NULL;
        if (!spectrum_block(p, d, a, row, m))
            continue;
        double *pull = spx_picture_alloc(p, s->n);
        const double *wave = spx_shown_wave(s, r);
        spx_shown_range(s->flux + r * s->n, s->n, &lo, &hi);
        for (size_t j = 0; pull != NULL && j < s->n; j++) {
            pull[j] = m != NULL ? (s->flux[r * s->n + j] - m[j]) / s->sigma[r * s->n + j] : NAN;
            if (isfinite(pull[j])) {
                chi2 += pull[j] * pull[j];
                good++;
            }
        }
        spx_picture_panel(p, LEFT, right, top, split);
        spx_picture_range(p, "x", wave[0], wave[s->n - 1]);
        spx_picture_range(p, "y", lo, hi);
        spx_shown_label(p, s->arm->unit);
        spx_picture_add(p,
                        "set key bottom right horizontal\nset xzeroaxis lt -1 lw 0.5 lc rgb '" SPX_GREY "'\n"
                        "set ytics auto\nset format y '%%g'\nset format x '%s'\n%s\n",
                        fitted ? "" : "%g", k + 1 < n || fitted ? "unset xlabel" : "set xlabel 'wavelength (Å)'");
        if (isfinite(v))
            spx_picture_star_lines(p, s->arm->medium, v, wave[0], wave[s->n - 1], right - LEFT);
        if (fitted) {
            spx_picture_add(p, "set label 5 ");
            char text[80];
            if (good > 0)
                (void)snprintf(text, sizeof text, "%s: χ²/N = %.2f", s->arm->name, chi2 / good);
            else
                (void)snprintf(text, sizeof text, "%s: no model here", s->arm->name);
            spx_picture_quote(p, text);
            spx_picture_add(p,
                            " at graph 0.008, graph 0 left offset 0, character 1.6 tc rgb '%s' font 'sans-serif,9.5'\n",
                            colour_of(s->arm->name, a));
        }
        plot_spectrum(p, a, s->n, lo, hi, m != NULL ? "#808080" : SPX_INK, "data ± error", k == 0);
        if (m != NULL) {
            spx_picture_add(p, ", \\\n     $s%zu using 1:5 with lines lw 1.3 lc rgb '%s' ", a,
                            colour_of(s->arm->name, a));
            spx_picture_add(p, k == 0 ? "title 'model'" : "notitle");
        }
        spx_picture_add(p, "\nunset label 5\n");
        spx_picture_unlined(p);
        if (k == 0)
            spx_picture_untitled(p);
        k++;
        if (!fitted)
            continue;
        const double *col[] = {wave, pull};
        char name[32];
        (void)snprintf(name, sizeof name, "r%zu", a);
        spx_picture_columns(p, name, s->n, 2, col);
        spx_picture_panel(p, LEFT, right, split + 3, bottom);
        spx_picture_range(p, "y", -5, 5);
        spx_picture_label(p, "y", "residual / σ", "");
        spx_picture_add(
            p,
            "set ytics (-3, 0, 3)\nset format x '%%g'\nset key off\n%s\n"
            "plot $%s using 1:($2 > 4.8 ? 4.8 : $2 < -4.8 ? -4.8 : $2) with points pt 7 ps 0.22 lc rgb '%s' notitle\n",
            k == n ? "set xlabel 'wavelength (Å)'" : "", name, colour_of(s->arm->name, a));
    }
}

void spx_picture_spectrum(spx_picture *p)
{
    spx_shown *d = spx_alloc(1, sizeof *d, p->e);
    char name[80];
    if (d == NULL) {
        p->st = SPX_EIO;
        return;
    }
    spx_shown_load(p, d, 0);
    const size_t row = p->st == SPX_OK ? spx_shown_choose(p, d, NULL) : 0;
    if (p->st == SPX_OK) {
        spx_shown_name(d, row, sizeof name, name);
        spx_picture_add(p, "set multiplot\n");
        spx_picture_title(p, LEFT, "%s: %s, S/N %.1f", spx_shown_file(d->in[0]->name), name, snr_of(d, row));
        draw_arms(p, d, row, NULL, NAN);
        spx_picture_add(p, "unset multiplot\n");
    }
    spx_shown_free(d);
    spx_free(d);
}

/* Row of the fit's table for each row of the first source, +1; 0: not fitted. NULL after a failure. */
static double *stars_of(spx_picture *p, const spx_shown *d, const spx_table *t)
{
    double *star = spx_picture_alloc(p, d->source[0].nspec);
    int64_t *id = NULL;
    if (p->st == SPX_OK)
        p->st = spx_table_find_i64(t, "TARGETID", &id, p->e);
    for (size_t i = 0; p->st == SPX_OK && i < d->source[0].nspec; i++) {
        if (id == NULL || d->target[0] == NULL) {
            star[i] = i < t->nrow ? (double)i + 1 : 0;
            continue;
        }
        for (size_t k = 0; k < t->nrow && star[i] == 0; k++)
            if (id[k] == d->target[0][i])
                star[i] = (double)k + 1;
    }
    spx_free(id);
    return p->st == SPX_OK ? star : NULL;
}

void spx_picture_fit(spx_picture *p)
{
    spx_shown *d = spx_alloc(1, sizeof *d, p->e);
    spx_table *t = NULL;
    spx_input *fit = spx_picture_need(p, "/rvfit/table", "give the product of rvs-fit with the spectra that it fitted");
    double *model[SPX_MAX_ARM] = {NULL};
    char name[80];
    if (d == NULL)
        p->st = SPX_EIO;
    if (p->st != SPX_OK) {
        spx_free(d);
        return;
    }
    spx_shown_load(p, d, 0);
    if (p->st == SPX_OK)
        p->st = spx_table_read(fit->file, "/rvfit/table", &t, p->e);
    const double *star = p->st == SPX_OK ? stars_of(p, d, t) : NULL;
    const double *v = spx_picture_column(p, t, "VRAD"), *error = spx_picture_column(p, t, "VRAD_ERR");
    if (p->st == SPX_OK && v == NULL)
        spx_picture_fail(p, SPX_EINPUT, "%s:/rvfit/table: there is no column VRAD", fit->name);
    if (star != NULL && p->st == SPX_OK) {
        unsigned char *usable = spx_alloc(d->source[0].nspec, 1, p->e);
        for (size_t i = 0; usable != NULL && i < d->source[0].nspec; i++)
            usable[i] = star[i] > 0 && isfinite(v[(size_t)star[i] - 1]);
        const size_t row = usable != NULL ? spx_shown_choose(p, d, usable) : 0;
        spx_free(usable);
        if (p->st == SPX_OK && star[row] == 0)
            spx_picture_fail(p, SPX_EINPUT, "%s: spectrum %zu was not fitted", fit->name, row);
        const size_t k = p->st == SPX_OK ? (size_t)star[row] - 1 : 0;
        for (size_t a = 0; a < d->narm && p->st == SPX_OK; a++)
            model[a] = model_of(p, fit, d, &d->arm[a], row, k);
        spx_shown_name(d, row, sizeof name, name);
        spx_picture_add(p, "set multiplot\n");
        const double *teff = spx_picture_column(p, t, "TEFF"), *logg = spx_picture_column(p, t, "LOGG");
        const double *feh = spx_picture_column(p, t, "FEH");
        char text[300];
        int n = snprintf(text, sizeof text, "%s: v = %.2f ± %.2f km/s", name, v[k], error != NULL ? error[k] : NAN);
        if (teff != NULL && logg != NULL && feh != NULL)
            (void)snprintf(text + n, sizeof text - (size_t)n, ", %.0f K, log g %.2f, [Fe/H] %.2f", teff[k], logg[k],
                           feh[k]);
        spx_picture_title(p, LEFT, "%s", text);
        draw_arms(p, d, row, model, v[k]);
        spx_picture_add(p, "unset multiplot\n");
    }
    spx_table_free(t);
    spx_shown_free(d);
    spx_free(d);
}
