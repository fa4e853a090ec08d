/* Pictures of templates, of singular value decompositions, and of matrices of any kind (common/picture.h). */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "app/plot.h"
#include "base/mem.h"
#include "common/picture.h"
#include "h5/object.h"
#include "h5/read.h"

enum { LEFT = 90, RIGHT = 18, BAR = 100, TOP = 30, BOTTOM = 50 };

/* ---- templates ---- */

/* Panel of one setup: some of its templates, coolest first, without their continua. */
static void draw_setup(spx_picture *p, spx_input *in, const char *setup, double top, double bottom, int last)
{
    enum { CURVES = 4, WIDTH = 32 };
    static const double STEP = 1.5; /* between the zeros of two curves */
    char path[400], *name = NULL, label[160];
    size_t n = 0, m = 0, npar = 0, len = 0;
    double lo, hi;
    (void)snprintf(path, sizeof path, "/templates/%s/wavelength", setup);
    const double *wave = spx_picture_read1(p, in, path, &m);
    (void)snprintf(path, sizeof path, "/templates/%s/params", setup);
    const double *par = spx_picture_read2(p, in, path, &n, &npar);
    (void)snprintf(path, sizeof path, "/templates/%s/parname", setup);
    if (p->st == SPX_OK)
        p->st = spx_h5_read_strings(in->file, path, WIDTH, &npar, &name, p->e);
    spx_picture_keep(p, name);
    (void)snprintf(path, sizeof path, "/templates/%s/lnflux", setup);
    if (p->st != SPX_OK || n == 0 || !spx_h5_exists(in->file, path))
        return;
    size_t row[CURVES];
    for (size_t k = 0; k < CURVES; k++) {
        row[k] = n * (2 * k + 1) / (2 * CURVES);
        float *flux = spx_alloc(m, sizeof *flux, p->e);
        double *f = spx_picture_alloc(p, m);
        spx_picture_keep(p, flux);
        if (p->st == SPX_OK)
            p->st = spx_h5_read_rows(in->file, path, H5T_NATIVE_FLOAT, row[k], 1, flux, p->e);
        if (p->st != SPX_OK || flux == NULL)
            return;
        for (size_t j = 0; j < m; j++)
            f[j] = exp((double)flux[j]);
        (void)spx_picture_quantiles(f, m, 0, 1, &lo, &hi);
        for (size_t j = 0; j < m; j++)
            f[j] = f[j] / hi + STEP * (double)k;
        const double *col[] = {wave, f};
        char block[32];
        (void)snprintf(block, sizeof block, "t%zu", k);
        spx_picture_columns(p, block, m, 2, col);
    }
    spx_picture_panel(p, LEFT, p->width - RIGHT, top, bottom);
    spx_picture_range(p, "x", wave[0], wave[m - 1]);
    spx_picture_range(p, "y", -0.6, STEP * (CURVES - 1) + 1.1);
    (void)snprintf(label, sizeof label, "%s: flux / maximum", setup);
    spx_picture_label(p, "y", label, "");
    for (size_t k = 0; k < CURVES; k++) {
        len = 0;
        for (size_t q = 0; q < npar && len < sizeof label; q++)
            len += (size_t)snprintf(label + len, sizeof label - len, "%s%s %g", q > 0 ? ", " : "", name + q * WIDTH,
                                    par[row[k] * npar + q]);
        spx_picture_add(p, "set label %zu ", 10 + k);
        spx_picture_quote(p, label);
        spx_picture_add(p, " at graph 0.01, first %g left font 'sans-serif,8.5'\n", STEP * (double)k - 0.2);
    }
    spx_picture_add(p,
                    "set key off\nunset ytics\n%s\n"
                    "plot for [k=0:%d] sprintf('$t%%d', k) using 1:2 with lines lw 0.7 lc k + 1 notitle\n",
                    last ? "set xlabel 'wavelength (Å)'" : "unset xlabel", CURVES - 1);
}

void spx_picture_templates(spx_picture *p)
{
    enum { MOST = 4 };
    size_t n = 0, count = 0;
    char **name = NULL;
    spx_input *in = spx_picture_need(p, "/templates", "rvs-template makes templates");
    if (in != NULL && p->st == SPX_OK)
        p->st = spx_h5_list(in->file, "/templates", &n, &name, p->e);
    const size_t shown = n < MOST ? n : MOST;
    const double each = (p->height - TOP - BOTTOM + 26) / (double)(shown > 0 ? shown : 1);
    spx_picture_add(p, "set multiplot\n");
    spx_picture_title(p, LEFT, "templates of %zu setups, some of each one above the other", n);
    for (size_t i = 0; i < shown && p->st == SPX_OK; i++, count++) {
        draw_setup(p, in, name[i], TOP + each * (double)i, TOP + each * (double)(i + 1) - 26, i + 1 == shown);
        spx_picture_untitled(p);
    }
    spx_picture_add(p, "unset multiplot\n");
    spx_h5_names_free(n, name);
}

/* ---- singular values ---- */

void spx_picture_svd(spx_picture *p)
{
    size_t nmode = 0, ncol = 0;
    spx_input *in = spx_picture_need(p, "/svd/s", "h5svd makes it");
    const double *s = spx_picture_read1(p, in, "/svd/s", &nmode),
                 *energy = spx_picture_read1(p, in, "/svd/energy", &nmode);
    const double *v = spx_picture_read2(p, in, "/svd/v", &nmode, &ncol);
    if (p->st != SPX_OK)
        return;
    spx_picture_add(p, "set multiplot layout 2,1\n");
    p->st = spx_plot_svd(&p->script, nmode, ncol, s, energy, v, NULL, "column", p->e);
    spx_picture_add(p, "unset multiplot\n");
}

/* ---- any matrix ---- */

void spx_picture_matrix_of(spx_picture *p)
{
    static const struct {
        const char *data, *x, *y, *xlabel, *ylabel;
    } known[] = {{"/burgers/snapshot", "/burgers/x", "/burgers/time", "x", "time"},
                 {"/stack/stack", "/stack/coordinate", NULL, "coordinate", "stack"},
                 {"/stack/stack", "/stack/sample", NULL, "sample", "stack"},
                 {"/library/flux", "/library/wavelength", NULL, "wavelength (Å)", "spectrum"}};
    size_t k = 0, n = 0, m = 0;
    spx_input *in = NULL;
    while (k < sizeof known / sizeof *known &&
           ((in = spx_picture_find(p, known[k].data)) == NULL || spx_picture_find(p, known[k].x) == NULL))
        k++;
    if (k == sizeof known / sizeof *known) {
        spx_picture_fail(
            p, SPX_EINPUT,
            "%s: holds no matrix that a picture is known for (/burgers/snapshot, /stack/stack or /library/flux)",
            p->args->in[0]->name);
        return;
    }
    double *z = spx_picture_read2(p, in, known[k].data, &n, &m), lo, hi;
    const double *x = spx_picture_read1(p, in, known[k].x, &m);
    const double *y = known[k].y != NULL ? spx_picture_read1(p, in, known[k].y, &n) : NULL;
    char unit[64];
    if (p->st != SPX_OK || m < 2)
        return;
    spx_picture_unit(p, in, known[k].data, sizeof unit, unit);
    (void)spx_picture_quantiles(z, n * m, 0.002, 0.998, &lo, &hi);
    /* very large and small values in powers of ten of their unit */
    const double most = fmax(fabs(lo), fabs(hi));
    const int power = most >= 1e5 || (most > 0 && most < 1e-3) ? (int)floor(log10(most)) : 0;
    char scale[16] = "", label[96];
    if (power != 0)
        spx_picture_power(power, scale);
    for (size_t i = 0; i < n * m && power != 0; i++)
        z[i] /= pow(10, power);
    lo /= pow(10, power);
    hi /= pow(10, power);
    (void)snprintf(label, sizeof label, "%s%s%s", scale, *scale != '\0' && *unit != '\0' ? " " : "", unit);
    const char *slash = strrchr(in->name, '/');
    const int both = lo < 0 && hi > 0 && -lo > 0.3 * hi;
    spx_picture_title(p, LEFT, "%s: %s", slash != NULL ? slash + 1 : in->name, known[k].data + 1);
    spx_picture_map(p, z, x, n, m, LEFT, p->width - BAR, TOP, p->height - BOTTOM);
    spx_picture_label(p, "y", known[k].ylabel, "");
    spx_picture_label(p, "x", known[k].xlabel, "");
    spx_picture_label(p, "cb", "value", label);
    spx_picture_range(p, "cb", both ? -fmax(-lo, hi) : lo, both ? fmax(-lo, hi) : hi);
    spx_picture_add(p, both ? "set palette defined " SPX_DIVERGING "\n" : "set palette defined " SPX_VIRIDIS "\n");
    if (y != NULL && n > 1) { /* rows at equal steps */
        const double step = (y[n - 1] - y[0]) / (double)(n - 1);
        spx_picture_range(p, "y", y[0] - step / 2, y[n - 1] + step / 2);
        spx_picture_add(p, "map%zuy(j) = %.9g + %.9g * map%zur(j)\n", p->nmap, y[0], step, p->nmap);
    }
    spx_picture_plot_map(p);
}
