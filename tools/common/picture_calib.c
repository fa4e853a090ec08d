/* Pictures of calibrations: flat, sky, response, shifts of traces (common/picture.h). */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "common/picture.h"
#include "h5/attr.h"
#include "h5/object.h"
#include "num/stat.h"
#include "products/cards_h5.h"
#include "products/site.h"
#include "products/wavelength_h5.h"

enum { LEFT = 90, RIGHT = 18, BAR = 100, TOP = 30, BOTTOM = 50, GAP = 12 };

/* Attribute of text, empty where there is none. */
static void word_of(spx_input *in, const char *path, const char *name, size_t size, char *out)
{
    *out = '\0';
    if (spx_h5_has_attr(in->file, path, name))
        (void)spx_h5_attr_str(in->file, path, name, out, size, NULL);
}

static double number_of(spx_input *in, const char *path, const char *name)
{
    double v = NAN;
    if (spx_h5_has_attr(in->file, path, name))
        (void)spx_h5_attr_f64(in->file, path, name, &v, NULL);
    return v;
}

/* Sets values of z[n] to NaN where weight is 0 or less. */
static void hide(double *z, const double *weight, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!(weight[i] > 0))
            z[i] = NAN;
}

/* ---- flat ---- */

void spx_picture_flat(spx_picture *p)
{
    enum { CURVES = 9 };
    size_t n = 0, m = 0;
    char camera[16];
    spx_input *in = spx_picture_need(p, "/flat/flat", "specx-flat makes flats");
    if (in == NULL)
        return;
    word_of(in, "/flat", "camera", sizeof camera, camera);
    double *flat = spx_picture_read2(p, in, "/flat/flat", &n, &m);
    const double *ivar = spx_picture_read2(p, in, "/flat/ivar", &n, &m);
    const double *wave = spx_picture_read1(p, in, "/flat/wavelength", &m);
    const double *chi2 = spx_picture_read1(p, in, "/flat/chi2", &n);
    double *off = spx_picture_alloc(p, n * m), lo, hi;
    if (p->st != SPX_OK || off == NULL)
        return;
    hide(flat, ivar, n * m);
    for (size_t i = 0; i < n * m; i++)
        off[i] = fabs(flat[i] - 1);
    (void)spx_picture_quantiles(off, n * m, 0.5, 0.99, &lo, &hi);
    const double most = fmax(hi, 1e-4), right = p->width - BAR, third = (p->height - TOP - BOTTOM - 30) / 3;
    spx_picture_add(p, "set multiplot\n");
    spx_picture_title(p, LEFT, "flat of camera %s: throughput of %zu fibres against their mean", camera, n);
    spx_picture_map(p, flat, wave, n, m, LEFT, right, TOP, TOP + third);
    spx_picture_range(p, "cb", 1 - most, 1 + most);
    spx_picture_add(p, "set palette defined " SPX_DIVERGING "\nset cbtics auto\nset format x ''\n");
    spx_picture_label(p, "y", "spectrum", "");
    spx_picture_label(p, "cb", "throughput", "");
    spx_picture_plot_map(p);
    spx_picture_untitled(p);
    /* single fibres, spread over the camera */
    const size_t step = n / CURVES + 1;
    spx_picture_panel(p, LEFT, right, TOP + third + GAP, TOP + 2 * third);
    spx_picture_range(p, "y", 1 - 1.5 * most, 1 + 1.5 * most);
    spx_picture_label(p, "y", "throughput", "");
    spx_picture_add(p, "set format x '%%g'\nset key off\nset palette defined " SPX_VIRIDIS "\nset cbrange [0:%zu]\n",
                    n - 1);
    spx_picture_label(p, "cb", "spectrum", "");
    spx_picture_bar(p, right, TOP + third + GAP, TOP + 2 * third);
    for (size_t i = step / 2; i < n; i += step) {
        char name[32];
        const double *col[] = {wave, flat + i * m};
        (void)snprintf(name, sizeof name, "f%zu", i);
        spx_picture_columns(p, name, m, 2, col);
    }
    const char *comma = "plot ";
    for (size_t i = step / 2; i < n; i += step) {
        spx_picture_add(p, "%s$f%zu using 1:2:(%zu) with lines lw 1 lc palette notitle", comma, i, i);
        comma = ", \\\n     ";
    }
    spx_picture_add(p, "\nunset colorbox\nunset label 3\n");
    double *number = spx_picture_alloc(p, n), *value = spx_picture_alloc(p, n);
    if (p->st != SPX_OK)
        return;
    for (size_t i = 0; i < n; i++) {
        number[i] = (double)i;
        value[i] = chi2[i] > 0 ? chi2[i] : NAN;
    }
    const double *col[] = {number, value};
    (void)spx_picture_quantiles(value, n, 0, 1, &lo, &hi);
    spx_picture_columns(p, "chi", n, 2, col);
    spx_picture_panel(p, LEFT, right, TOP + 2 * third + 36, p->height - BOTTOM);
    spx_picture_range(p, "x", -0.5, (double)n - 0.5);
    spx_picture_range(p, "y", fmin(0.9 * lo, 0.95), fmax(1.1 * hi, 1.05));
    spx_picture_label(p, "y", "χ² / dof", "");
    spx_picture_add(p, "set xlabel 'spectrum'\nset ytics auto\n"
                       "plot 1 with lines lw 0.6 lc rgb '" SPX_GREY "' notitle, \\\n"
                       "     $chi using 1:2 with points pt 7 ps 0.4 lc rgb '" SPX_BLUE "' notitle\nunset multiplot\n");
}

/* ---- sky ---- */

/* Median of |z| times 1.4826 in cells of wavelength: scatter[ncell] of rows z[n][m] where use[n] is not 0. */
static void scatter_of(spx_picture *p, const double *z, const unsigned char *use, size_t n, size_t m, size_t ncell,
                       double *scatter)
{
    double *v = spx_picture_alloc(p, n * (m / ncell + 2));
    for (size_t c = 0; c < ncell && v != NULL; c++) {
        size_t k = 0;
        for (size_t i = 0; i < n; i++)
            for (size_t j = c * m / ncell; use[i] && j < (c + 1) * m / ncell; j++)
                if (isfinite(z[i * m + j]))
                    v[k++] = fabs(z[i * m + j]);
        scatter[c] = k > 8 ? 1.4826 * spx_median(v, k) : NAN;
    }
}

/* Pulls of the sky fibres of a frame whose sky was subtracted, pull[nspec][nwave]; rows of others are not used. */
static double *sky_pulls(spx_picture *p, spx_input *in, size_t *n, size_t *m, unsigned char *use)
{
    double *flux = spx_picture_read2(p, in, "/frame/flux", n, m);
    const double *ivar = spx_picture_read2(p, in, "/frame/ivar", n, m);
    const double *mask = spx_picture_read2(p, in, "/frame/mask", n, m);
    for (size_t i = 0; p->st == SPX_OK && i < *n; i++)
        for (size_t j = i * *m; j < (i + 1) * *m; j++)
            flux[j] = use[i] && ivar[j] > 0 && mask[j] == 0 ? flux[j] * sqrt(ivar[j]) : NAN;
    return p->st == SPX_OK ? flux : NULL;
}

/* Mean of the sky in the spectra that have it: the fitted sky itself is deconvolved, and its noise with it. */
static double *mean_model(spx_picture *p, spx_input *in, size_t n, size_t m)
{
    const double *model = spx_picture_read2(p, in, "/sky/model", &n, &m);
    double *mean = spx_picture_alloc(p, m);
    for (size_t j = 0; j < m && model != NULL && mean != NULL; j++) {
        double count = 0;
        for (size_t i = 0; i < n; i++) {
            mean[j] += model[i * m + j];
            count += model[i * m + j] != 0;
        }
        mean[j] = count > 0 ? mean[j] / count : NAN;
    }
    return mean;
}

void spx_picture_sky(spx_picture *p)
{
    enum { WIDTH = 16, CELLS = 120, VALUES = 24 }; /* cells of wavelength, and values in each, of a scatter */
    size_t m = 0, n = 0, nsky = 0, k = 0;
    spx_input *in = spx_picture_need(p, "/sky/sky", "specx-sky subtracts the sky");
    if (in == NULL)
        return;
    spx_medium medium = SPX_VACUUM;
    const double *wave = spx_picture_read1(p, in, "/sky/wavelength", &m);
    double lo, hi;
    spx_table *t = NULL;
    char unit[64];
    spx_picture_unit(p, in, "/sky/model", sizeof unit, unit);
    if (p->st == SPX_OK)
        p->st = spx_wavelength_read_words(in->file, "/sky/wavelength", &medium, NULL, NULL, p->e);
    if (p->st == SPX_OK)
        p->st = spx_table_read(in->file, "/sky/table", &t, p->e);
    n = t != NULL ? t->nrow : 0;
    char *role = spx_alloc2(n + 1, WIDTH, 1, NULL);
    unsigned char *use = spx_alloc(n + 1, 1, NULL);
    spx_picture_keep(p, role);
    spx_picture_keep(p, use);
    if (p->st == SPX_OK && t != NULL && role != NULL)
        p->st = spx_table_get_str(t, "ROLE", WIDTH, role, p->e);
    for (size_t i = 0; i < n && role != NULL && use != NULL; i++) {
        use[i] = strcmp(role + i * WIDTH, "SKY") == 0 || strcmp(role + i * WIDTH, "HELDOUT") == 0;
        nsky += use[i];
    }
    const double *loo = spx_picture_column(p, t, "CHI2_LOO");
    double *chi2 = spx_picture_alloc(p, n);
    for (size_t i = 0; p->st == SPX_OK && i < n && loo != NULL; i++)
        if (use[i] && loo[i] > 0)
            chi2[k++] = loo[i];
    const double median = k > 0 ? spx_median(chi2, k) : NAN;
    const int frame = nsky > 0 && spx_h5_exists(in->file, "/frame/flux");
    double *sky = mean_model(p, in, n, m);
    double *pull = frame ? sky_pulls(p, in, &n, &m, use) : NULL;
    spx_table_free(t);
    if (p->st != SPX_OK)
        return;
    const double right = p->width - (frame ? BAR : RIGHT), all = p->height - TOP - BOTTOM;
    const double first = frame ? TOP + 0.5 * all : p->height - BOTTOM, second = TOP + 0.76 * all;
    (void)spx_picture_quantiles(sky, m, 0.02, 1, &lo, &hi);
    const double *col[] = {wave, sky};
    spx_picture_columns(p, "sky", m, 2, col);
    spx_picture_add(p, "set multiplot\n");
    if (isfinite(median))
        spx_picture_title(p, LEFT, "sky of %zu fibres; χ²/dof %.2f in the median, each without itself", nsky, median);
    else
        spx_picture_title(p, LEFT, "sky");
    spx_picture_panel(p, LEFT, right, TOP, first - (frame ? GAP : 0));
    spx_picture_range(p, "x", wave[0], wave[m - 1]);
    lo = fmax(0.6 * lo, hi * 1e-6);
    spx_picture_range(p, "y", lo, hi * 6);
    spx_picture_decades(p, "y", lo, hi * 6);
    spx_picture_label(p, "y", "electrons / Å", strcmp(unit, "electron/Angstrom") == 0 ? "" : unit);
    spx_picture_add(p, "set key off\nset format x '%s'\n%s\n", frame ? "" : "%g",
                    frame ? "" : "set xlabel 'wavelength (Å)'");
    spx_picture_sky_lines(p, medium, wave[0], wave[m - 1], right - LEFT);
    spx_picture_add(p, "plot $sky using 1:2 with lines lw 0.8 lc rgb '" SPX_BLUE
                       "' notitle\nunset logscale y\nset ytics auto\n");
    spx_picture_unlined(p);
    spx_picture_untitled(p);
    if (pull != NULL) {
        const size_t most = nsky * m / VALUES, ncell = most < 1 ? 1 : most < CELLS ? most : CELLS;
        /* rows of sky fibres alone, one over the other */
        double *rows = spx_picture_alloc(p, nsky * m), *centre = spx_picture_alloc(p, ncell),
               *scatter = spx_picture_alloc(p, ncell);
        size_t r = 0;
        for (size_t i = 0; i < n && rows != NULL; i++)
            if (use[i])
                memcpy(rows + m * r++, pull + m * i, m * sizeof *rows);
        if (p->st != SPX_OK)
            return;
        spx_picture_map(p, rows, wave, nsky, m, LEFT, right, first, second - GAP);
        spx_picture_range(p, "cb", -4, 4);
        spx_picture_add(p, "set palette defined " SPX_DIVERGING "\nset cbtics (-4, -2, 0, 2, 4)\nset format y ''\n");
        spx_picture_label(p, "y", "sky fibres", "");
        spx_picture_label(p, "cb", "residual / σ", "");
        spx_picture_plot_map(p);
        scatter_of(p, pull, use, n, m, ncell, scatter);
        for (size_t c = 0; c < ncell; c++)
            centre[c] = wave[(2 * c + 1) * m / (2 * ncell)];
        const double *cols[] = {centre, scatter};
        spx_picture_columns(p, "scatter", ncell, 2, cols);
        (void)spx_picture_quantiles(scatter, ncell, 0, 1, &lo, &hi);
        spx_picture_panel(p, LEFT, right, second, p->height - BOTTOM);
        spx_picture_range(p, "y", 0, fmax(1.5, 1.15 * hi));
        spx_picture_label(p, "y", "scatter / σ", "");
        spx_picture_add(p, "set format x '%%g'\nset format y '%%g'\nset xlabel 'wavelength (Å)'\n"
                           "plot 1 with lines lw 0.6 lc rgb '" SPX_GREY "' notitle, \\\n"
                           "     $scatter using 1:2 with steps lw 1.2 lc rgb '" SPX_BLUE "' notitle\n");
    }
    spx_picture_add(p, "unset multiplot\n");
}

/* ---- response ---- */

void spx_picture_flux(spx_picture *p)
{
    size_t m = 0, ndiag = 0, nband = 0, two = 2;
    char unit[64], camera[16];
    spx_table *t = NULL;
    spx_input *in = spx_picture_need(p, "/flux/response", "specx-flux finds responses");
    if (in == NULL)
        return;
    word_of(in, "/flux", "camera", sizeof camera, camera);
    spx_picture_unit(p, in, "/flux/response", sizeof unit, unit);
    const double *wave = spx_picture_read1(p, in, "/flux/wavelength", &m);
    const double *c = spx_picture_read1(p, in, "/flux/response", &m);
    const double *cov = spx_picture_read2(p, in, "/flux/covariance", &ndiag, &m);
    const double *model = spx_picture_read1(p, in, "/flux/model_error", &m);
    const double *nstar = spx_picture_read1(p, in, "/flux/nstar", &m);
    const double *band =
        spx_h5_exists(in->file, "/flux/band") ? spx_picture_read2(p, in, "/flux/band", &nband, &two) : NULL;
    if (p->st == SPX_OK)
        p->st = spx_table_read(in->file, "/flux/stars", &t, p->e);
    const double *used = spx_picture_column(p, t, "USED");
    size_t nused = 0;
    for (size_t i = 0; used != NULL && i < t->nrow; i++)
        nused += used[i] > 0;
    spx_table_free(t);
    double *up = spx_picture_alloc(p, m), *down = spx_picture_alloc(p, m), *noise = spx_picture_alloc(p, m);
    double *known = spx_picture_alloc(p, m), *percent = spx_picture_alloc(p, m), lo, hi, l, h;
    if (p->st != SPX_OK)
        return;
    for (size_t j = 0; j < m; j++) {
        const double relative = c[j] > 0 ? sqrt(fmax(cov[j], 0)) / c[j] : NAN;
        const double total = sqrt(relative * relative + model[j] * model[j]);
        noise[j] = 100 * relative;
        percent[j] = 100 * model[j];
        up[j] = c[j] * (1 + total);
        down[j] = c[j] * (1 - total);
        known[j] = nstar[j] > 0 ? c[j] : NAN;
    }
    const double *col[] = {wave, c, down, up, known, noise, percent};
    spx_picture_columns(p, "c", m, sizeof col / sizeof *col, col);
    const double right = p->width - RIGHT, middle = TOP + 0.68 * (p->height - TOP - BOTTOM);
    (void)spx_picture_quantiles(c, m, 0, 1, &lo, &hi);
    spx_picture_add(p, "set multiplot\n");
    spx_picture_title(p, LEFT, "response of camera %s, from %zu stars", camera, nused);
    spx_picture_panel(p, LEFT, right, TOP, middle - GAP);
    spx_picture_range(p, "x", wave[0], wave[m - 1]);
    spx_picture_range(p, "y", fmin(lo, 0), 1.1 * hi);
    spx_picture_label(p, "y", "response", strcmp(unit, "electron/Angstrom/(relative flux)") == 0 ? "" : unit);
    size_t nshown = 0, ninterpolated = 0;
    for (size_t j = 0; j < m; j++)
        ninterpolated += !(nstar[j] > 0);
    for (size_t b = 0; b < nband && band != NULL; b++) {
        if (band[2 * b] > wave[m - 1] || band[2 * b + 1] < wave[0])
            continue;
        nshown++;
        spx_picture_add(
            p,
            "set object %zu rectangle from first %.7g, graph 0 to first %.7g, graph 1 behind fc rgb '#eaf3f9' "
            "fs solid noborder\n",
            10 + b, fmin(fmax(band[2 * b], wave[0]), wave[m - 1]), fmin(fmax(band[2 * b + 1], wave[0]), wave[m - 1]));
    }
    spx_picture_add(p,
                    "set format x ''\nset key bottom center horizontal\n"
                    "plot $c using 1:3:4 with filledcurves fc rgb '" SPX_PALE "' title 'error', \\\n"
                    "     $c using 1:2 with lines lw 1.2 dt 3 lc rgb '" SPX_BLUE "' %s, \\\n"
                    "     $c using 1:5 with lines lw 1.2 lc rgb '" SPX_BLUE "' title 'response'%s\n",
                    ninterpolated > 0 ? "title 'interpolated'" : "notitle",
                    nshown > 0 ? ", \\\n     NaN with boxes fs solid noborder fc rgb '#d5e8f3' title 'telluric bands'"
                               : "");
    spx_picture_untitled(p);
    (void)spx_picture_quantiles(noise, m, 0, 0.97, &lo, &hi);
    (void)spx_picture_quantiles(percent, m, 0, 0.97, &l, &h);
    spx_picture_panel(p, LEFT, right, middle, p->height - BOTTOM);
    spx_picture_range(p, "y", 0, 1.6 * fmax(hi, h));
    spx_picture_label(p, "y", "error (%)", "");
    spx_picture_add(p, "set format x '%%g'\nset xlabel 'wavelength (Å)'\nset key top left horizontal\n"
                       "plot $c using 1:6 with lines lw 1.2 lc rgb '" SPX_BLUE "' title 'noise', \\\n"
                       "     $c using 1:7 with lines lw 1.2 lc rgb '" SPX_RED
                       "' title 'models of the stars'\nunset multiplot\n");
}

/* ---- shifts of traces ---- */

void spx_picture_shift(spx_picture *p)
{
    static const struct {
        const char *name, *window, *label, *unit;
        double scale;
    } quantity[] = {{"dx", "window_dx", "shift across", "pixel", 1},
                    {"dy", NULL, "shift along", "pixel", 1},
                    {"width_x", "window_width_x", "width across", "%", 100},
                    {"width_y", NULL, "width along", "%", 100}};
    size_t n = 0, m = 0, nw = 0;
    char camera[16], path[64];
    spx_input *in = spx_picture_need(p, "/shift/dx", "specx-shift measures shifts");
    if (in == NULL)
        return;
    word_of(in, "/shift", "camera", sizeof camera, camera);
    const double *wave = spx_picture_read1(p, in, "/shift/wavelength", &m);
    const double zero = number_of(in, "/shift", "zero_point"), error = number_of(in, "/shift", "zero_point_error");
    double *number = NULL, *each = NULL;
    spx_picture_add(p, "set multiplot\n");
    if (isfinite(zero) && number_of(in, "/shift", "lines") > 0)
        spx_picture_title(p, LEFT, "traces of camera %s have moved; zero point %.4f ± %.4f Å", camera, zero, error);
    else
        spx_picture_title(p, LEFT, "traces of camera %s have moved", camera);
    const double right = p->width - BAR, half = 0.5 * (right - LEFT - 98), tall = 0.5 * (p->height - TOP - BOTTOM - 26);
    for (size_t q = 0; q < sizeof quantity / sizeof *quantity; q++) {
        (void)snprintf(path, sizeof path, "/shift/%s", quantity[q].name);
        double *v = spx_picture_read2(p, in, path, &n, &m), lo = 0, hi = 0, l, h;
        const double left = LEFT + (double)(q % 2) * (half + 98), top = TOP + (double)(q / 2) * (tall + 26);
        for (size_t i = 0; v != NULL && i < n * m; i++)
            v[i] *= quantity[q].scale;
        if (v == NULL)
            return;
        (void)spx_picture_quantiles(v, n * m, 0.002, 0.998, &lo, &hi);
        /* a curve a fibre, with blank lines between */
        if (number == NULL) {
            number = spx_picture_alloc(p, n * (m + 1));
            each = spx_picture_alloc(p, n * (m + 1));
        }
        double *y = spx_picture_alloc(p, n * (m + 1));
        if (p->st != SPX_OK)
            return;
        for (size_t i = 0; i < n; i++)
            for (size_t j = 0; j <= m; j++) {
                number[i * (m + 1) + j] = (double)i;
                each[i * (m + 1) + j] = j < m ? wave[j] : wave[m - 1];
                y[i * (m + 1) + j] = j < m ? v[i * m + j] : NAN;
            }
        const double *col[] = {each, y, number};
        spx_picture_columns(p, quantity[q].name, n * (m + 1), 3, col);
        int window = 0;
        (void)snprintf(path, sizeof path, "/shift/%s", quantity[q].window != NULL ? quantity[q].window : "none");
        if (quantity[q].window != NULL && spx_h5_exists(in->file, path)) {
            double *w = spx_picture_read2(p, in, path, &n, &nw);
            const double *x = spx_picture_read2(p, in, "/shift/window_wavelength", &n, &nw);
            (void)snprintf(path, sizeof path, "/shift/%s_error", quantity[q].window);
            const double *s = spx_picture_read2(p, in, path, &n, &nw);
            double *typical = spx_picture_alloc(p, n * nw);
            if (p->st != SPX_OK)
                return;
            double unused, median;
            (void)spx_picture_quantiles(s, n * nw, 0, 0.5, &unused, &median);
            for (size_t i = 0; i < n * nw; i++)
                typical[i] = w[i] = s[i] > 0 && s[i] < 5 * median ? w[i] * quantity[q].scale : NAN;
            const double *cols[] = {x, w};
            spx_picture_columns(p, quantity[q].window, n * nw, 2, cols);
            /* three times the scatter of the windows: a few wild ones would hide the curves */
            if (spx_picture_quantiles(typical, n * nw, 0.16, 0.84, &l, &h) > 0) {
                lo = fmin(lo, 0.5 * (l + h) - 1.5 * (h - l));
                hi = fmax(hi, 0.5 * (l + h) + 1.5 * (h - l));
                window = 1;
            }
        }
        const double margin = fmax(0.08 * (hi - lo), 1e-4 * quantity[q].scale);
        spx_picture_panel(p, left, left + half, top, top + tall);
        spx_picture_range(p, "x", wave[0], wave[m - 1]);
        spx_picture_range(p, "y", lo - margin, hi + margin);
        spx_picture_label(p, "y", quantity[q].label, quantity[q].unit);
        spx_picture_add(
            p, "set key off\nset palette defined " SPX_VIRIDIS "\nset cbrange [0:%zu]\nset format x '%s'\n%s\n", n - 1,
            q < 2 ? "" : "%g", q < 2 ? "" : "set xlabel 'wavelength (Å)'");
        spx_picture_tics(p, "x", wave[0], wave[m - 1], 5);
        if (q == 1) {
            p->panel[2] = 0.5 * (TOP + p->height - BOTTOM);
            spx_picture_label(p, "cb", "fibre", "");
            spx_picture_bar(p, right, TOP, p->height - BOTTOM);
        } else {
            spx_picture_add(p, "unset colorbox\nunset label 3\n");
        }
        spx_picture_add(p, "plot ");
        if (window)
            spx_picture_add(p, "$%s using 1:2 with points pt 7 ps 0.2 lc rgb '" SPX_PALE "' notitle, \\\n     ",
                            quantity[q].window);
        spx_picture_add(p, "$%s using 1:2:3 with lines lw 0.8 lc palette notitle\n", quantity[q].name);
        if (q == 0)
            spx_picture_untitled(p);
    }
    spx_picture_add(p, "unset multiplot\n");
}

/* Modified Julian date of the exposure of an input, or NaN. */
static double date_of(spx_input *in)
{
    static const char *const path[] = {"/frame/header", "/image/header"};
    double mjd = NAN;
    for (size_t i = 0; i < 2 && !isfinite(mjd); i++) {
        spx_cards h = {0};
        if (spx_h5_exists(in->file, path[i]) && spx_cards_read(in->file, path[i], &h, NULL) == SPX_OK &&
            spx_exposure_middle(&h, &mjd, NULL) != SPX_OK)
            mjd = NAN;
        spx_cards_free(&h);
    }
    return mjd;
}

void spx_picture_shifts(spx_picture *p)
{
    enum { MOST = 12 };
    static const struct {
        const char *path, *label, *unit;
        double scale;
    } quantity[] = {{"/shift/dx", "across", "pixel", 1},
                    {"/shift/dy", "along", "pixel", 1},
                    {"/shift/width_x", "width across", "%", 100}};
    const size_t n = p->args->n;
    char name[MOST][16];
    size_t ncamera = 0;
    double *x = spx_picture_alloc(p, n), *which = spx_picture_alloc(p, n), first = INFINITY, last = -INFINITY;
    int dated = 1;
    (void)spx_picture_need(p, "/shift/dx", "specx-shift measures shifts");
    if (p->st != SPX_OK)
        return;
    for (size_t i = 0; i < n; i++) {
        char camera[16];
        size_t k = 0;
        word_of(p->args->in[i], "/shift", "camera", sizeof camera, camera);
        while (k < ncamera && strcmp(name[k], camera) != 0)
            k++;
        if (k == ncamera && ncamera < MOST)
            (void)snprintf(name[ncamera++], sizeof name[0], "%s", camera);
        which[i] = (double)k;
        x[i] = date_of(p->args->in[i]);
        dated &= isfinite(x[i]);
        first = fmin(first, x[i]);
        last = fmax(last, x[i]);
    }
    const double day = floor(first);
    for (size_t i = 0; i < n; i++)
        x[i] = dated ? 24 * (x[i] - day) : (double)i + 1;
    const double from = dated ? 24 * (first - day) : 1, to = dated ? 24 * (last - day) : (double)n;
    const double margin = fmax(0.04 * (to - from), 0.02), right = p->width - RIGHT;
    const double tall = (p->height - TOP - BOTTOM) / 3;
    spx_picture_add(p, "set multiplot\n");
    spx_picture_title(p, LEFT, "shifts of traces: median of the fibres, and where 68 %% of them are");
    for (size_t q = 0; q < 3; q++) {
        double *mid = spx_picture_alloc(p, n), *lo = spx_picture_alloc(p, n), *hi = spx_picture_alloc(p, n), a, b, c, d;
        for (size_t i = 0; i < n && p->st == SPX_OK; i++) {
            size_t ns = 0, np = 0;
            spx_input *in = p->args->in[i];
            double *v =
                spx_h5_exists(in->file, quantity[q].path) ? spx_picture_read2(p, in, quantity[q].path, &ns, &np) : NULL;
            mid[i] = lo[i] = hi[i] = NAN;
            if (v == NULL)
                continue;
            (void)spx_picture_quantiles(v, ns * np, 0.16, 0.84, &lo[i], &hi[i]);
            (void)spx_picture_quantiles(v, ns * np, 0.5, 0.5, &mid[i], &a);
            lo[i] *= quantity[q].scale;
            hi[i] *= quantity[q].scale;
            mid[i] *= quantity[q].scale;
        }
        if (p->st != SPX_OK)
            return;
        const double *col[] = {x, mid, lo, hi, which};
        char block[16];
        (void)snprintf(block, sizeof block, "q%zu", q);
        spx_picture_columns(p, block, n, 5, col);
        (void)spx_picture_quantiles(lo, n, 0, 1, &a, &b);
        (void)spx_picture_quantiles(hi, n, 0, 1, &c, &d);
        const double edge = fmax(0.08 * (fmax(d, 0) - fmin(a, 0)), 1e-4);
        spx_picture_panel(p, LEFT, right, TOP + (double)q * tall, TOP + (double)(q + 1) * tall - GAP * (q < 2));
        spx_picture_range(p, "x", from - margin, to + margin);
        spx_picture_range(p, "y", fmin(a, 0) - edge, fmax(d, 0) + edge * (q == 0 ? 3 : 1));
        spx_picture_label(p, "y", quantity[q].label, quantity[q].unit);
        spx_picture_add(p, "set xzeroaxis lt -1 lw 0.5 lc rgb '" SPX_GREY "'\nset format x '%s'\n", q < 2 ? "" : "%g");
        if (!dated)
            spx_picture_add(p, "set xtics 1, %zu\n", n / 12 + 1);
        if (q == 2)
            spx_picture_add(
                p, dated ? "set xlabel 'hours after MJD %.0f.0 (UTC)'\n" : "set xlabel 'file, in the order given'\n",
                day);
        spx_picture_add(p, q == 0 ? "set key top left horizontal\n" : "set key off\n");
        const char *comma = "plot ";
        for (size_t k = 0; k < ncamera; k++) {
            spx_picture_add(
                p, "%s$q%zu using ($5 == %zu ? $1 : NaN):2:3:4 with yerrorbars pt %d ps 0.7 lw 1 lc %zu title ", comma,
                q, k, k % 2 == 0 ? 7 : 5, k + 1);
            spx_picture_quote(p, name[k]);
            comma = ", \\\n     ";
        }
        spx_picture_add(p, "\n");
        if (q == 0)
            spx_picture_untitled(p);
    }
    spx_picture_add(p, "unset multiplot\n");
}
