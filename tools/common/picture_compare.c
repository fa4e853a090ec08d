/* Two extractions of the same light, bin by bin: a picture, and the same numbers as text (common/picture.h).
 *
 * Differences are in units of the first one's errors. Both have the same photons and the same read noise, so that they
 * agree much better than within these errors: what is left is what the methods, or the masks, differ in. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "common/picture_shown.h"
#include "num/stat.h"

enum { LEFT = 90, RIGHT = 18, BAR = 100, TOP = 30, BOTTOM = 50, GAP = 12, AXIS = 46 };

/* Signal-to-noise ratios of a bin, by which differences are sorted. */
enum { NCLASS = 6 };
static const double class_end[NCLASS] = {1, 3, 10, 30, 100, INFINITY};
static const char *const class_name[NCLASS] = {"below_1", "1_to_3", "3_to_10", "10_to_30", "30_to_100", "above_100"};

/* Bins that both files have: n of them, from i and from j on. */
typedef struct {
    size_t i, j, n;
} bin_run;

/* Arm that both files have. Values [nspec][n] are over the rows of the first file and its bins from i on, which are
 * those that both have; all of its bins, where spectra have grids of their own. NaN where the other file has no such
 * bin, and where one of them is masked or without information. */
typedef struct {
    const spx_shown_arm *a, *b;
    size_t i, n, nspec; /* first bin and number of bins, rows of the first file */
    bin_run *run;       /* [nspec] of each row; n 0: the other file does not have it */
    double *pull, *snr; /* difference over error; mean of both fluxes over error */
    double *ivar;       /* ratio of inverse variances - 1 */
    double *resolution; /* half the sum of |difference of R|: 0 equal, 1 nothing in common; NULL: one has no R */
    size_t masked[3];   /* bins that are bad in both, in the first alone, in the second alone */
    size_t nrow;        /* rows that both have */
} arm_pair;

/* Median and 1.4826 MAD of the values that are finite, with their errors if these are independent; what 99 % of the
 * absolute values are below. */
typedef struct {
    size_t n;
    double median, median_err, scatter, scatter_err, most;
} spread;

static spread spread_of(spx_picture *p, const double *v, const double *snr, double lo, double hi, size_t n)
{
    spread s = {0, NAN, NAN, NAN, NAN, NAN};
    double *use = spx_alloc2(n + 1, 2, sizeof *use, p->e);
    if (use == NULL) {
        p->st = SPX_EIO;
        return s;
    }
    for (size_t k = 0; k < n; k++)
        if (isfinite(v[k]) && (snr == NULL || (snr[k] >= lo && snr[k] < hi)))
            use[s.n++] = v[k];
    if (s.n > 0) {
        double *off = use + n, unused;
        memcpy(off, use, s.n * sizeof *off);
        s.median = spx_median(off, s.n);
        for (size_t k = 0; k < s.n; k++)
            off[k] = fabs(use[k] - s.median);
        s.scatter = 1.4826 * spx_median(off, s.n);
        for (size_t k = 0; k < s.n; k++)
            off[k] = fabs(use[k]);
        (void)spx_picture_quantiles(off, s.n, 0.5, 0.99, &unused, &s.most);
        /* of a normal distribution */
        s.median_err = 1.2533 * s.scatter / sqrt((double)s.n);
        s.scatter_err = 1.1664 * s.scatter / sqrt((double)s.n);
    }
    spx_free(use);
    return s;
}

/* Factor from wavelengths of the first file to those of the second one: DESI's frames are barycentric by the factor
 * HELIOCOR, which wavelengths on the ground are multiplied by. */
static double factor_of(const spx_shown *d, const spx_arm *a, const spx_arm *b)
{
    double ha = 1, hb = 1;
    if (a->barycentric == b->barycentric)
        return 1;
    if (a->barycentric)
        (void)spx_cards_double(&d->source[0].header, "HELIOCOR", &ha);
    if (b->barycentric)
        (void)spx_cards_double(&d->source[1].header, "HELIOCOR", &hb);
    return hb > 0 && ha > 0 ? hb / ha : 1;
}

/* Bins of a row up to the last with information, of a grid for each spectrum: behind it wavelengths are made up. */
static size_t bins_of(const spx_shown_arm *s, size_t row)
{
    size_t n = s->n;
    while (s->arm->per_row && n > 0 && !isfinite(s->sigma[row * s->n + n - 1]))
        n--;
    return n;
}

/* Bins that row s of the first file and row t of the second have: the same to a thousandth of a step. */
static bin_run match_bins(spx_picture *p, const spx_shown *d, const arm_pair *q, size_t s, size_t t)
{
    const double f = factor_of(d, q->a->arm, q->b->arm), *u = spx_shown_wave(q->a, s), *w = spx_shown_wave(q->b, t);
    const size_t n = bins_of(q->a, s), m = bins_of(q->b, t);
    const double step = (w[q->b->n - 1] - w[0]) / (double)(q->b->n - 1), near = 1e-3 * step;
    bin_run r = {0};
    while (r.i < n && r.j < m && !(fabs(u[r.i] * f - w[r.j]) <= near))
        if (u[r.i] * f < w[r.j])
            r.i++;
        else
            r.j++;
    while (r.i + r.n < n && r.j + r.n < m && fabs(u[r.i + r.n] * f - w[r.j + r.n]) <= near)
        r.n++;
    if (n > 0 && m > 0 && p->st == SPX_OK && (r.n < 2 || (r.i + r.n < n && r.j + r.n < m))) {
        char what[192] = "give spectra that are on the same bins";
        if (!q->a->arm->per_row && !q->b->arm->per_row)
            (void)snprintf(what, sizeof what, "extract with --wavelength %.9f,%.9f,%.12f", w[0] / f, w[q->b->n - 1] / f,
                           step / f);
        p->st = spx_fail_at(p->e, SPX_EINPUT, d->in[0]->name, NULL, what, "has other bins than %s", d->in[1]->name);
    }
    return r;
}

/* Bins of all rows. */
static void match_rows(spx_picture *p, const spx_shown *d, arm_pair *q)
{
    const int own = q->a->arm->per_row || q->b->arm->per_row;
    bin_run all = {.n = q->a->n};
    if (!own)
        all = match_bins(p, d, q, 0, 0);
    q->nspec = d->source[0].nspec;
    q->i = all.i;
    q->n = all.n;
    if ((q->run = spx_alloc(q->nspec, sizeof *q->run, p->e)) == NULL)
        p->st = SPX_EIO;
    spx_picture_keep(p, q->run);
    for (size_t s = 0; s < q->nspec && p->st == SPX_OK; s++) {
        const size_t t = spx_shown_row(d, 1, s);
        if (t != SPX_NO_ROW)
            q->run[s] = own ? match_bins(p, d, q, s, t) : all;
    }
}

/* Does the second file have bin k of the values of a row? *j: its number there. */
static int other_bin(const arm_pair *q, size_t s, size_t k, size_t *j)
{
    const bin_run *r = &q->run[s];
    *j = r->j + (q->i + k - r->i);
    return q->i + k >= r->i && q->i + k < r->i + r->n;
}

/* Half the sum of the absolute differences of the columns of R of one bin. */
static double resolution_difference(const spx_arm *a, size_t s, size_t i, const spx_arm *b, size_t t, size_t j)
{
    const long half_a = (long)(a->ndiag / 2), half_b = (long)(b->ndiag / 2), most = half_a > half_b ? half_a : half_b;
    double sum = 0;
    for (long off = -most; off <= most; off++) {
        const long ka = half_a - off, kb = half_b - off;
        const double x = ka >= 0 && ka < (long)a->ndiag ? a->resolution[(s * a->ndiag + (size_t)ka) * a->nwave + i] : 0;
        const double y = kb >= 0 && kb < (long)b->ndiag ? b->resolution[(t * b->ndiag + (size_t)kb) * b->nwave + j] : 0;
        sum += fabs(x - y);
    }
    return 0.5 * sum;
}

static void compare_arm(spx_picture *p, const spx_shown *d, arm_pair *q)
{
    const spx_shown_arm *a = q->a, *b = q->b;
    const int with_resolution = a->arm->ndiag > 0 && b->arm->ndiag > 0;
    const size_t n = q->n;
    q->pull = spx_picture_alloc(p, q->nspec * n);
    q->snr = spx_picture_alloc(p, q->nspec * n);
    q->ivar = spx_picture_alloc(p, q->nspec * n);
    q->resolution = with_resolution ? spx_picture_alloc(p, q->nspec * n) : NULL;
    for (size_t s = 0; s < q->nspec && p->st == SPX_OK; s++) {
        const size_t t = spx_shown_row(d, 1, s);
        q->nrow += t != SPX_NO_ROW;
        for (size_t k = 0; k < n; k++) {
            const size_t to = s * n + k, i = q->i + k;
            size_t j;
            const int both = other_bin(q, s, k, &j);
            const double fa = a->flux[s * a->n + i], sa = a->sigma[s * a->n + i];
            const double fb = both ? b->flux[t * b->n + j] : NAN;
            const double sb = both ? b->sigma[t * b->n + j] : NAN;
            q->pull[to] = (fa - fb) / sa;
            q->snr[to] = 0.5 * (fa + fb) / sa;
            q->ivar[to] = sb * sb / (sa * sa) - 1;
            const int good = isfinite(q->pull[to]) != 0;
            if (q->resolution != NULL)
                q->resolution[to] =
                    good ? resolution_difference(a->arm, s, a->first + i, b->arm, t, b->first + j) : NAN;
            if (both && !good)
                q->masked[isfinite(fa) ? 2 : isfinite(fb) ? 1 : 0]++;
        }
    }
    if (p->st == SPX_OK && q->nrow == 0)
        spx_picture_fail(p, SPX_EINPUT, "%s and %s have no target in common", d->in[0]->name, d->in[1]->name);
}

/* All arms that both files have. */
static void compare_all(spx_picture *p, spx_shown *d, size_t *npair, arm_pair *q)
{
    *npair = 0;
    spx_shown_load(p, d, 1);
    if (p->st == SPX_OK && d->nsource != 2)
        spx_picture_fail(p, SPX_EUSAGE, "--kind compare takes two files with spectra, not %zu", d->nsource);
    for (size_t k = 0; k < d->narm && p->st == SPX_OK; k++)
        for (size_t m = 0; m < d->narm && p->st == SPX_OK; m++) {
            const spx_shown_arm *a = &d->arm[k], *b = &d->arm[m];
            if (a->source != 0 || b->source != 1 || strcmp(a->arm->name, b->arm->name) != 0)
                continue;
            if (strcmp(a->arm->unit, b->arm->unit) != 0)
                spx_picture_fail(p, SPX_EINPUT, "flux of arm %s is in '%s' in %s, and in '%s' in %s", a->arm->name,
                                 a->arm->unit, d->in[0]->name, b->arm->unit, d->in[1]->name);
            else if (a->arm->medium != b->arm->medium)
                spx_picture_fail(p, SPX_EINPUT,
                                 "wavelengths are in air in one of %s and %s, and in vacuum in the other",
                                 d->in[0]->name, d->in[1]->name);
            q[*npair] = (arm_pair){.a = a, .b = b};
            if (p->st == SPX_OK)
                match_rows(p, d, &q[*npair]);
            if (p->st == SPX_OK)
                compare_arm(p, d, &q[*npair]);
            ++*npair;
        }
    if (p->st == SPX_OK && *npair == 0)
        spx_picture_fail(p, SPX_EINPUT, "%s and %s have no arm in common", d->in[0]->name, d->in[1]->name);
}

/* ---- text ---- */

static void table_row(spx_picture *p, const arm_pair *q, const char *quantity, const char *which, spread s)
{
    spx_picture_add(p, "%s\t%s%s\t%zu\t%.6g\t%.3g\t%.6g\t%.3g\t%.6g\n", q->a->arm->name, quantity, which, s.n, s.median,
                    s.median_err, s.scatter, s.scatter_err, s.most);
}

void spx_picture_compare_table(spx_picture *p)
{
    static const char *const masked[] = {"masked_both", "masked_first", "masked_second"};
    spx_shown *d = spx_alloc(1, sizeof *d, p->e);
    arm_pair *q = spx_alloc(SPX_MAX_ARM, sizeof *q, p->e);
    size_t npair = 0;
    if (d == NULL || q == NULL) {
        p->st = SPX_EIO;
        spx_free(d);
        spx_free(q);
        return;
    }
    compare_all(p, d, &npair, q);
    spx_picture_add(p, "arm\tquantity\tbins\tmedian\tmedian_err\tscatter\tscatter_err\tp99\n");
    for (size_t k = 0; k < npair && p->st == SPX_OK; k++) {
        const arm_pair *r = &q[k];
        const size_t n = r->nspec * r->n;
        table_row(p, r, "flux", "", spread_of(p, r->pull, NULL, 0, 0, n));
        for (size_t c = 0; c < NCLASS; c++)
            table_row(p, r, "flux_", class_name[c],
                      spread_of(p, r->pull, r->snr, c > 0 ? class_end[c - 1] : -INFINITY, class_end[c], n));
        table_row(p, r, "ivar", "", spread_of(p, r->ivar, NULL, 0, 0, n));
        if (r->resolution != NULL)
            table_row(p, r, "resolution", "", spread_of(p, r->resolution, NULL, 0, 0, n));
        for (size_t c = 0; c < 3; c++)
            table_row(p, r, masked[c], "", (spread){r->masked[c], NAN, NAN, NAN, NAN, NAN});
    }
    spx_shown_free(d);
    spx_free(d);
    spx_free(q);
}

/* ---- picture ---- */

/* Power of ten that differences up to `most` are shown in: 0 from 0.01 on. */
static int power_of(double most)
{
    const int k = (int)floor(log10(most));
    return k < -2 ? k : 0;
}

static void label_difference(spx_picture *p, const char *axis, int power)
{
    char ten[16], text[64] = "difference / σ";
    if (power != 0) {
        spx_picture_power(power, ten);
        (void)snprintf(text, sizeof text, "difference / %s σ", ten);
    }
    spx_picture_label(p, axis, text, "");
}

/* All differences, as an image. */
static void plot_map(spx_picture *p, const arm_pair *q, double top, double bottom)
{
    const size_t total = q->nspec * q->n;
    double *shown = spx_picture_alloc(p, total), lo, hi;
    if (shown == NULL)
        return;
    for (size_t k = 0; k < total; k++)
        shown[k] = fabs(q->pull[k]);
    (void)spx_picture_quantiles(shown, total, 0.5, 0.99, &lo, &hi);
    hi = fmax(hi, 1e-12);
    const int power = power_of(hi);
    for (size_t k = 0; k < total; k++)
        shown[k] = q->pull[k] * pow(10, -power);
    hi *= pow(10, -power);
    spx_picture_map(p, spx_shown_on_one_grid(p, q->a, q->nspec, shown), q->a->wave + q->i, q->nspec, q->n, LEFT,
                    p->width - BAR, top, bottom);
    spx_picture_range(p, "cb", -hi, hi);
    spx_picture_add(p, "set palette defined " SPX_DIVERGING "\nset cbtics auto\nset format x ''\n");
    spx_picture_label(p, "y", "spectrum", "");
    label_difference(p, "cb", power);
    spx_picture_plot_map(p);
}

/* One spectrum in both files, and its differences; `theirs` is its row in the second one. */
static void plot_both(spx_picture *p, const spx_shown *d, const arm_pair *q, size_t row, size_t theirs, double top,
                      double middle, double bottom)
{
    const double *mine = q->a->flux + row * q->a->n + q->i;
    const double *pull = q->pull + row * q->n, right = p->width - BAR;
    double *away = spx_picture_alloc(p, q->n), *other = spx_picture_alloc(p, q->n), lo, hi;
    const double *col[] = {spx_shown_wave(q->a, row) + q->i, mine, other, pull};
    if (away == NULL || other == NULL)
        return;
    for (size_t k = 0, j; k < q->n; k++)
        other[k] = other_bin(q, row, k, &j) ? q->b->flux[theirs * q->b->n + j] : NAN;
    spx_picture_columns(p, "both", q->n, 4, col);
    spx_shown_range(mine, q->n, &lo, &hi);
    spx_picture_panel(p, LEFT, right, top, middle);
    spx_picture_range(p, "y", lo, hi);
    spx_shown_label(p, q->a->arm->unit);
    spx_picture_add(p, "set key top left horizontal\nset xzeroaxis lt -1 lw 0.5 lc rgb '" SPX_GREY "'\n"
                       "plot $both using 1:2 with lines lw 1.6 lc rgb '" SPX_INK "' title ");
    spx_picture_quote(p, spx_shown_file(d->in[0]->name));
    spx_picture_add(p, ", \\\n     $both using 1:3 with lines lw 0.8 lc rgb '" SPX_ORANGE "' title ");
    spx_picture_quote(p, spx_shown_file(d->in[1]->name));
    for (size_t k = 0; k < q->n; k++)
        away[k] = fabs(pull[k]);
    (void)spx_picture_quantiles(away, q->n, 0.5, 0.99, &lo, &hi);
    hi = fmax(1.2 * hi, 1e-12);
    const int power = power_of(hi);
    hi *= pow(10, -power);
    spx_picture_add(p, "\nset key off\n");
    spx_picture_panel(p, LEFT, right, middle + 3, bottom);
    spx_picture_range(p, "y", -hi, hi);
    label_difference(p, "y", power);
    /* differences beyond the panel at its edge */
    spx_picture_add(
        p,
        "set format x '%%g'\nset xlabel 'wavelength (Å)' offset 0,0.5\ne = %.9g\nd(z) = z * %g\n"
        "plot $both using 1:(d($4) > e ? e : d($4) < -e ? -e : d($4)) with points pt 7 ps 0.22 lc rgb '" SPX_BLUE
        "' notitle\n",
        0.97 * hi, pow(10, -power));
}

/* Median and scatter by signal-to-noise ratio. */
static void plot_classes(spx_picture *p, const arm_pair *q, double top, double bottom)
{
    double x[NCLASS], median[NCLASS], median_err[NCLASS], scatter[NCLASS], scatter_err[NCLASS], most = 1e-12, least = 0;
    for (size_t c = 0; c < NCLASS; c++) {
        const spread s =
            spread_of(p, q->pull, q->snr, c > 0 ? class_end[c - 1] : -INFINITY, class_end[c], q->nspec * q->n);
        x[c] = (double)c;
        median[c] = s.median;
        median_err[c] = s.median_err;
        scatter[c] = s.scatter;
        scatter_err[c] = s.scatter_err;
        if (s.n > 0) {
            most = fmax(most, fmax(s.median + s.median_err, s.scatter + s.scatter_err));
            least = fmin(least, s.median - s.median_err);
        }
    }
    const int power = power_of(fmax(most, -least));
    const double scale = pow(10, -power), span = (most - least) * scale;
    const double *col[] = {x, median, median_err, scatter, scatter_err};
    spx_picture_columns(p, "classes", NCLASS, 5, col);
    spx_picture_panel(p, LEFT, p->width - BAR, top, bottom);
    spx_picture_range(p, "x", -0.5, NCLASS - 0.5);
    spx_picture_range(p, "y", least * scale - 0.1 * span, most * scale + 0.35 * span);
    label_difference(p, "y", power);
    spx_picture_add(p,
                    "set format x '%%g'\nset format y '%%g'\nset ytics auto\nd(z) = z * %g\n"
                    "set xlabel 'signal-to-noise ratio of a bin'\n"
                    "set xtics ('< 1' 0, '1–3' 1, '3–10' 2, '10–30' 3, '30–100' 4, '> 100' 5)\n"
                    "set key top left horizontal\nset xzeroaxis lt -1 lw 0.6 lc rgb '" SPX_GREY "'\n"
                    "plot $classes using ($1 - 0.05):(d($2)):(d($3)) with yerrorbars pt 7 ps 0.8 lc rgb '" SPX_BLUE
                    "' title 'median', \\\n"
                    "     $classes using ($1 + 0.05):(d($4)):(d($5)) with yerrorbars pt 5 ps 0.8 lc rgb '" SPX_RED
                    "' title '1.4826 MAD'\nset key off\n",
                    scale);
}

void spx_picture_compare(spx_picture *p)
{
    spx_shown *d = spx_alloc(1, sizeof *d, p->e);
    arm_pair *q = spx_alloc(SPX_MAX_ARM, sizeof *q, p->e);
    size_t npair = 0;
    char name[80];
    if (d == NULL || q == NULL) {
        p->st = SPX_EIO;
        spx_free(d);
        spx_free(q);
        return;
    }
    compare_all(p, d, &npair, q);
    unsigned char *both = p->st == SPX_OK ? spx_alloc(q->nspec, 1, p->e) : NULL;
    if (p->st == SPX_OK && both == NULL)
        p->st = SPX_EIO;
    for (size_t s = 0; p->st == SPX_OK && s < q->nspec; s++)
        both[s] = spx_shown_row(d, 1, s) != SPX_NO_ROW;
    const size_t row = p->st == SPX_OK ? spx_shown_choose(p, d, both) : 0;
    spx_free(both);
    const size_t theirs = p->st == SPX_OK ? spx_shown_row(d, 1, row) : SPX_NO_ROW;
    if (p->st == SPX_OK && theirs == SPX_NO_ROW)
        spx_picture_fail(p, SPX_EINPUT, "%s does not have the target of spectrum %zu of %s", d->in[1]->name, row,
                         d->in[0]->name);
    if (p->st == SPX_OK) {
        /* two parts of the height for the map, two for the spectrum, one for its differences, two for the medians */
        const double last = p->height - BOTTOM, part = (last - TOP - AXIS) / 7;
        spx_shown_name(d, row, sizeof name, name);
        spx_picture_add(p, "set multiplot\n");
        spx_picture_title(p, LEFT, "%s − %s, arm %s: %zu spectra; below, %s", spx_shown_file(d->in[0]->name),
                          spx_shown_file(d->in[1]->name), q->a->arm->name, q->nrow, name);
        plot_map(p, q, TOP, TOP + 2 * part);
        spx_picture_untitled(p);
        plot_both(p, d, q, row, theirs, TOP + 2 * part + GAP, TOP + 4 * part, TOP + 5 * part);
        plot_classes(p, q, TOP + 5 * part + AXIS, last);
        spx_picture_add(p, "unset multiplot\n");
    }
    spx_shown_free(d);
    spx_free(d);
    spx_free(q);
}
