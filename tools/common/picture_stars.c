/* Pictures of fitted stars: parameters, truth, covariance, cross-correlation (common/picture.h). */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/parse.h"
#include "common/picture.h"
#include "h5/object.h"
#include "h5/read.h"
#include "num/stat.h"

enum { LEFT = 90, RIGHT = 18, BAR = 100, TOP = 30, BOTTOM = 50 };

/* Parameters that stars are fitted with, in the order of COVAR, velocity and rotation first. */
static const struct {
    const char *column, *label, *unit;
} parameter[] = {{"VRAD", "velocity", "km/s"}, {"VSINI", "v sin i", "km/s"}, {"TEFF", "Teff", "K"},
                 {"LOGG", "log g", "dex"},     {"FEH", "[Fe/H]", "dex"},     {"ALPHAFE", "[α/Fe]", "dex"}};
enum { NPAR = sizeof parameter / sizeof *parameter, VRAD = 0, VSINI = 1 };

static spx_table *read_table(spx_picture *p, const char *path, const char *remedy)
{
    spx_table *t = NULL;
    spx_input *in = spx_picture_need(p, path, remedy);
    if (in != NULL && p->st == SPX_OK)
        p->st = spx_table_read(in->file, path, &t, p->e);
    return p->st == SPX_OK ? t : NULL;
}

static const char fit_remedy[] = "rvs-fit fits stars";

/* Row of the table of fits that was asked for, else the first without a warning. */
static size_t choose_star(spx_picture *p, const spx_table *t)
{
    int64_t *id = NULL, *warn = NULL;
    size_t row = 0;
    if (p->st == SPX_OK)
        p->st = spx_table_find_i64(t, "TARGETID", &id, p->e);
    if (p->st == SPX_OK)
        p->st = spx_table_find_i64(t, "RVS_WARN", &warn, p->e);
    spx_picture_keep(p, id);
    spx_picture_keep(p, warn);
    if (p->st != SPX_OK)
        return 0;
    if (p->args->target != NULL) {
        long wanted = 0;
        p->st = spx_parse_long(p->args->target, "--targetid", &wanted, p->e);
        while (row < t->nrow && (id == NULL || id[row] != wanted))
            row++;
        if (row == t->nrow)
            spx_picture_fail(p, SPX_EINPUT, "/rvfit/table: no star has TARGETID %ld", wanted);
    } else if (p->args->spectrum >= 0) {
        row = (size_t)p->args->spectrum;
        if (row >= t->nrow)
            spx_picture_fail(p, SPX_EUSAGE, "--spectrum: the table of fits has the rows 0 to %zu, not %zu", t->nrow - 1,
                             row);
    } else {
        while (warn != NULL && row + 1 < t->nrow && warn[row] != 0)
            row++;
        if (warn != NULL && warn[row] != 0)
            row = 0;
    }
    return row;
}

static void title_of_star(spx_picture *p, const spx_table *t, size_t row, const char *text)
{
    int64_t *id = NULL;
    const double *v = spx_picture_column(p, t, "VRAD"), *error = spx_picture_column(p, t, "VRAD_ERR");
    if (p->st == SPX_OK)
        p->st = spx_table_find_i64(t, "TARGETID", &id, p->e);
    char name[64];
    if (id != NULL)
        (void)snprintf(name, sizeof name, "target %lld", (long long)id[row]);
    else
        (void)snprintf(name, sizeof name, "star %zu", row);
    spx_free(id);
    if (v != NULL && error != NULL)
        spx_picture_title(p, LEFT, "%s: v = %.2f ± %.2f km/s; %s", name, v[row], error[row], text);
}

/* ---- all stars ---- */

void spx_picture_stars(spx_picture *p)
{
    spx_table *t = read_table(p, "/rvfit/table", fit_remedy);
    const double *teff = spx_picture_column(p, t, "TEFF"), *logg = spx_picture_column(p, t, "LOGG");
    const double *feh = spx_picture_column(p, t, "FEH"), *v = spx_picture_column(p, t, "VRAD");
    const double *error = spx_picture_column(p, t, "VRAD_ERR"), *warn = spx_picture_column(p, t, "RVS_WARN");
    const size_t n = t != NULL ? t->nrow : 0;
    double *sn = spx_picture_alloc(p, n), lo, hi, l, h;
    const char *best = "";
    if (p->st == SPX_OK && (v == NULL || error == NULL))
        spx_picture_fail(p, SPX_EINPUT, "/rvfit/table: there is no column VRAD or VRAD_ERR");
    /* signal-to-noise ratio: of the arm where it is largest in the median */
    double most = 0;
    char name[8] = "SN_";
    static char arm[8];
    for (char c = 'A'; c <= 'Z' && p->st == SPX_OK; c++) {
        name[3] = c;
        const double *s = spx_picture_column(p, t, name);
        if (s != NULL && spx_picture_quantiles(s, n, 0.5, 0.5, &lo, &hi) > 0 && lo > most) {
            most = lo;
            memcpy(sn, s, n * sizeof *sn);
            memcpy(arm, name, sizeof name);
            best = arm;
        }
    }
    if (p->st == SPX_OK && n > 0) {
        double *none = spx_picture_alloc(p, n), *flag = spx_picture_alloc(p, n);
        size_t nwarn = 0;
        for (size_t i = 0; i < n && none != NULL && flag != NULL; i++) {
            none[i] = NAN;
            flag[i] = warn != NULL && warn[i] != 0 ? 1 : 0;
            nwarn += warn != NULL && warn[i] != 0;
        }
        const double *col[] = {
            teff != NULL ? teff : none, logg != NULL ? logg : none, feh != NULL ? feh : none, v, error, sn, flag};
        spx_picture_columns(p, "stars", n, 7, col);
        const double right = p->width - RIGHT, middle = LEFT + 0.5 * (right - LEFT - 30), top = TOP + 4;
        spx_picture_add(p, "set multiplot\nset key off\n");
        spx_picture_title(p, LEFT, nwarn > 0 ? "%zu stars, %zu with a warning (open symbols)" : "%zu stars", n, nwarn);
        const double cut = middle - 60;
        if (teff != NULL && logg != NULL) {
            spx_picture_panel(p, LEFT, cut, top, p->height - BOTTOM);
            (void)spx_picture_quantiles(teff, n, 0, 1, &lo, &hi);
            (void)spx_picture_quantiles(logg, n, 0, 1, &l, &h);
            spx_picture_range(p, "x", lo - 0.06 * (hi - lo) - 1, hi + 0.06 * (hi - lo) + 1);
            spx_picture_range(p, "y", l - 0.06 * (h - l) - 0.01, h + 0.06 * (h - l) + 0.01);
            spx_picture_add(p, "set xrange [] reverse\nset yrange [] reverse\nset xlabel 'Teff (K)'\nset xtics auto\n");
            spx_picture_label(p, "y", "log g", "");
            const double *shown = feh != NULL ? feh : none;
            if (spx_picture_quantiles(shown, n, 0.02, 0.98, &l, &h) > 0) {
                spx_picture_add(p, "set palette defined " SPX_VIRIDIS "\n");
                spx_picture_range(p, "cb", l, h);
                spx_picture_bar(p, cut, top, p->height - BOTTOM);
                spx_picture_label(p, "cb", "[Fe/H]", "");
            }
            const char *colour = feh != NULL ? "lc palette" : "lc rgb '" SPX_BLUE "'";
            spx_picture_add(p,
                            "plot $stars using 1:($7 == 0 ? $2 : NaN):3 with points pt 7 ps 0.7 %s, \\\n"
                            "     $stars using 1:($7 == 1 ? $2 : NaN):3 with points pt 6 ps 0.8 %s\nunset "
                            "colorbox\nunset label 3\n",
                            colour, colour);
            spx_picture_untitled(p);
        }
        spx_picture_panel(p, cut + BAR + 82, right, top, p->height - BOTTOM);
        spx_picture_add(p, "set xrange [*:*] noreverse\nset yrange [*:*] noreverse\n");
        if (*best != '\0') {
            spx_picture_add(p, "set xlabel 'signal-to-noise ratio of a bin, arm %c'\nset xtics auto\n",
                            best[3] + 'a' - 'A');
        } else {
            spx_picture_add(p, "set xlabel 'star'\n");
            for (size_t i = 0; i < n; i++)
                sn[i] = (double)i;
        }
        if (spx_picture_quantiles(error, n, 0, 1, &lo, &hi) > 0 && lo > 0) {
            spx_picture_range(p, "y", lo / 1.3, hi * 1.3);
            spx_picture_decades(p, "y", lo / 1.3, hi * 1.3);
        }
        if (*best != '\0' && spx_picture_quantiles(sn, n, 0, 1, &lo, &hi) > 0 && lo > 0) {
            spx_picture_range(p, "x", lo / 1.15, hi * 1.15);
            spx_picture_decades(p, "x", lo / 1.15, hi * 1.15);
        }
        spx_picture_label(p, "y", "error of the velocity", "km/s");
        spx_picture_add(p,
                        "plot $stars using 6:($7 == 0 ? $5 : NaN) with points pt 7 ps 0.6 lc rgb '" SPX_BLUE "', \\\n"
                        "     $stars using 6:($7 == 1 ? $5 : NaN) with points pt 6 ps 0.7 lc rgb '" SPX_RED "'\n"
                        "unset multiplot\n");
    }
    spx_table_free(t);
}

/* ---- truth ---- */

/* Row of the truth for each star, by TARGETID or else row by row; -1: none. */
static double *match_truth(spx_picture *p, const spx_table *fit, const spx_table *truth)
{
    int64_t *a = NULL, *b = NULL;
    double *row = spx_picture_alloc(p, fit != NULL ? fit->nrow : 0);
    if (p->st == SPX_OK)
        p->st = spx_table_find_i64(fit, "TARGETID", &a, p->e);
    if (p->st == SPX_OK)
        p->st = spx_table_find_i64(truth, "TARGETID", &b, p->e);
    for (size_t i = 0; p->st == SPX_OK && i < fit->nrow; i++) {
        row[i] = a == NULL || b == NULL ? (i < truth->nrow ? (double)i : -1) : -1;
        for (size_t k = 0; a != NULL && b != NULL && k < truth->nrow && row[i] < 0; k++)
            if (a[i] == b[k])
                row[i] = (double)k;
    }
    spx_free(a);
    spx_free(b);
    return p->st == SPX_OK ? row : NULL;
}

void spx_picture_pulls(spx_picture *p, const char *ylabel, const char *yunit, const char *xlabel, const char *plabel,
                       const double *x, const double *diff, const double *error, size_t n, double top, double bottom)
{
    enum { BINS = 16 };
    double *v = spx_picture_alloc(p, n), *away = spx_picture_alloc(p, n), *scratch = spx_picture_alloc(p, n);
    double count[BINS] = {0}, centre[BINS], lo, hi, l, h, most = 0.45;
    size_t m = 0;
    char name[32];
    if (p->st != SPX_OK)
        return;
    for (size_t i = 0; i < n; i++) {
        const double pull = diff[i] / error[i];
        away[i] = fabs(diff[i]) + error[i];
        if (isfinite(pull) && error[i] > 0)
            v[m++] = pull;
    }
    if (m == 0)
        return;
    for (size_t i = 0; i < m; i++) {
        const double bin = (v[i] + 4) / 8 * BINS;
        if (bin >= 0 && bin < BINS)
            count[(int)bin]++;
    }
    memcpy(scratch, v, m * sizeof *v);
    const double median = spx_median(scratch, m);
    for (size_t i = 0; i < m; i++)
        scratch[i] = fabs(v[i] - median);
    const double scatter = 1.4826 * spx_median(scratch, m);
    for (int k = 0; k < BINS; k++) {
        centre[k] = -4 + 8 * (k + 0.5) / BINS;
        count[k] /= (double)m * 8 / BINS;
        most = fmax(most, count[k]);
    }
    const size_t q = p->nmap++;
    const double *col[] = {x, diff, error};
    (void)snprintf(name, sizeof name, "p%zu", q);
    spx_picture_columns(p, name, n, 3, col);
    const double *cols[] = {centre, count};
    (void)snprintf(name, sizeof name, "h%zu", q);
    spx_picture_columns(p, name, BINS, 2, cols);
    const double split = LEFT + 0.66 * (p->width - LEFT - RIGHT);
    (void)spx_picture_quantiles(x, n, 0, 1, &lo, &hi);
    (void)spx_picture_quantiles(away, n, 0, 0.99, &l, &h);
    spx_picture_panel(p, LEFT, split, top, bottom);
    spx_picture_range(p, "x", lo - 0.03 * (hi - lo), hi + 0.03 * (hi - lo));
    spx_picture_range(p, "y", -1.15 * h, 1.15 * h);
    spx_picture_label(p, "y", ylabel, yunit);
    spx_picture_add(p, "set xlabel ");
    spx_picture_quote(p, xlabel);
    spx_picture_add(p,
                    " offset 0,0.5\nset format x '%%g'\nset ytics auto\nset xtics auto\n"
                    "set xzeroaxis lt -1 lw 0.6 lc rgb '" SPX_GREY "'\nset key off\n"
                    "plot $p%zu using 1:2:3 with yerrorbars pt 7 ps 0.5 lw 0.8 lc rgb '" SPX_BLUE "' notitle\n",
                    q);
    spx_picture_untitled(p);
    spx_picture_panel(p, split + 40, p->width - RIGHT, top, bottom);
    spx_picture_range(p, "x", -4, 4);
    spx_picture_range(p, "y", 0, 1.35 * most);
    spx_picture_add(p, "unset label 2\nset ytics format ''\nset xlabel ");
    spx_picture_quote(p, plabel);
    spx_picture_add(p, " offset 0,0.5\nset label 5 ");
    char text[96];
    (void)snprintf(text, sizeof text, "median %.2f ± %.2f, scatter %.2f", median, 1.253 * scatter / sqrt((double)m),
                   scatter);
    spx_picture_quote(p, text);
    spx_picture_add(p,
                    " at graph 0.5, graph 0.91 center font 'sans-serif,8.5'\n"
                    "plot $h%zu using 1:2 with boxes fs solid 0.35 noborder fc rgb '" SPX_BLUE "' notitle, \\\n"
                    "     exp(-0.5 * x**2) / sqrt(2 * pi) with lines lw 1.2 lc rgb '" SPX_INK "' notitle\n"
                    "unset label 5\nset ytics format '%%g'\n",
                    q);
}

void spx_picture_truth(spx_picture *p)
{
    spx_table *fit = read_table(p, "/rvfit/table", fit_remedy);
    spx_table *truth = read_table(p, "/truth/table", "specx-sim --truth writes it");
    const double *row = fit != NULL && truth != NULL ? match_truth(p, fit, truth) : NULL;
    const size_t n = fit != NULL ? fit->nrow : 0;
    struct {
        size_t q;
        double *truth, *diff, *error;
    } shown[NPAR];
    size_t m = 0;
    for (size_t q = 0; q < NPAR && row != NULL; q++) {
        char name[32];
        (void)snprintf(name, sizeof name, "%s_ERR", parameter[q].column);
        const double *a = spx_picture_column(p, fit, parameter[q].column);
        const double *b = spx_picture_column(p, truth, parameter[q].column), *s = spx_picture_column(p, fit, name);
        double *t = spx_picture_alloc(p, n), *d = spx_picture_alloc(p, n), *u = spx_picture_alloc(p, n);
        double l = 0, h = 0;
        size_t good = 0;
        if (q == VSINI || a == NULL || b == NULL || s == NULL || p->st != SPX_OK)
            continue;
        for (size_t i = 0; i < n; i++) {
            t[i] = row[i] >= 0 ? b[(size_t)row[i]] : NAN;
            d[i] = s[i] > 0 ? a[i] - t[i] : NAN;
            u[i] = s[i] > 0 ? s[i] : NAN;
            good += isfinite(d[i]);
        }
        (void)spx_picture_quantiles(t, n, 0, 1, &l, &h);
        if (good > 0 && h > l) {
            shown[m].q = q;
            shown[m].truth = t;
            shown[m].diff = d;
            shown[m++].error = u;
        }
    }
    if (p->st == SPX_OK && m == 0)
        spx_picture_fail(p, SPX_EINPUT, "no star of the fit is among those of the truth");
    if (p->st == SPX_OK) {
        const double each = (p->height - TOP - BOTTOM + 52) / (double)m;
        spx_picture_add(p, "set multiplot\n");
        spx_picture_title(p, LEFT, "%zu stars against the truth", n);
        for (size_t k = 0; k < m; k++) {
            char ylabel[80], xlabel[80];
            (void)snprintf(ylabel, sizeof ylabel, "Δ %s", parameter[shown[k].q].label);
            (void)snprintf(xlabel, sizeof xlabel, "%s, true (%s)", parameter[shown[k].q].label,
                           parameter[shown[k].q].unit);
            spx_picture_pulls(p, ylabel, parameter[shown[k].q].unit, xlabel, "(result − truth) / error", shown[k].truth,
                              shown[k].diff, shown[k].error, n, TOP + (double)k * each,
                              TOP + (double)(k + 1) * each - 52);
        }
        spx_picture_add(p, "unset multiplot\n");
    }
    spx_table_free(fit);
    spx_table_free(truth);
}

/* ---- covariance ---- */

/* Axis of a corner plot: tics of three round values within +-3 errors. */
static void corner_tics(spx_picture *p, const char *axis, double centre, double error, int labels)
{
    const double raw = 1.8 * error, power = pow(10, floor(log10(raw)));
    const double step = raw > 5 * power ? 10 * power : raw > 2 * power ? 5 * power : 2 * power;
    const double first = ceil((centre - 2.6 * error) / step) * step;
    const char *comma = "";
    const int digits = step < 1 ? (int)ceil(-log10(step)) : 0;
    spx_picture_range(p, axis, centre - 3 * error, centre + 3 * error);
    spx_picture_add(p, "set %stics (", axis);
    for (double v = first; v <= centre + 2.7 * error; v += step) {
        char text[32];
        (void)snprintf(text, sizeof text, "%.*f", digits, fabs(v) < 1e-9 * step ? 0.0 : v);
        spx_picture_add(p, "%s'%s%s' %.9g", comma,
                        !labels        ? ""
                        : *text == '-' ? "−"
                                       : "",
                        !labels ? "" : text + (*text == '-'), v);
        comma = ", ";
    }
    spx_picture_add(p, ") font 'sans-serif,8.5'\n");
}

void spx_picture_corner(spx_picture *p)
{
    spx_table *t = read_table(p, "/rvfit/table", fit_remedy), *truth = NULL;
    const size_t row = t != NULL ? choose_star(p, t) : 0;
    double *covar = NULL, value[NPAR], error[NPAR], real[NPAR];
    size_t npar = 0, use[NPAR], m = 0, count = 0;
    if (p->st == SPX_OK)
        p->st = spx_table_get_row(t, "COVAR", row, &count, &covar, p->e);
    spx_picture_keep(p, covar);
    for (size_t q = 0; q < NPAR && p->st == SPX_OK; q++) {
        const double *v = spx_picture_column(p, t, parameter[q].column);
        npar += v != NULL;
        value[q] = v != NULL ? v[row] : NAN;
        error[q] = 0;
        real[q] = NAN;
    }
    spx_input *known = spx_picture_find(p, "/truth/table");
    if (known != NULL && p->st == SPX_OK)
        p->st = spx_table_read(known->file, "/truth/table", &truth, p->e);
    const double *match = truth != NULL ? match_truth(p, t, truth) : NULL;
    for (size_t q = 0; q < NPAR && match != NULL && match[row] >= 0; q++) {
        const double *v = spx_picture_column(p, truth, parameter[q].column);
        real[q] = v != NULL ? v[(size_t)match[row]] : NAN;
    }
    spx_table_free(truth);
    if (p->st == SPX_OK && npar * npar != count)
        spx_picture_fail(p, SPX_EINPUT, "/rvfit/table: COVAR has not a row and column for each of %zu parameters",
                         npar);
    for (size_t q = 0; q < npar && p->st == SPX_OK; q++) {
        error[q] = sqrt(covar[q * npar + q]);
        if (error[q] > 0 && isfinite(error[q]))
            use[m++] = q;
    }
    if (p->st == SPX_OK && m == 0)
        spx_picture_fail(p, SPX_ENO, "this star has no covariance: it was not fitted, or the fit did not converge");
    if (p->st == SPX_OK) {
        const double side = (fmin(p->width - LEFT - RIGHT, p->height - TOP - BOTTOM - 20)) / (double)m;
        spx_picture_add(p, "set multiplot\nset key off\nset parametric\nset trange [0:2*pi]\nset samples 200\n");
        title_of_star(p, t, row, truth != NULL || known != NULL ? "1 and 2 σ, truth in orange" : "1 and 2 σ");
        for (size_t i = 0; i < m; i++)
            for (size_t j = 0; j <= i; j++) {
                const size_t a = use[j], b = use[i];
                const double left = LEFT + (double)j * side, top = TOP + (double)i * side;
                spx_picture_panel(p, left, left + side - 6, top, top + side - 6);
                corner_tics(p, "x", value[a], error[a], i + 1 == m);
                if (i + 1 == m)
                    spx_picture_add(p, "set xlabel '%s (%s)' offset 0,0\n", parameter[a].label, parameter[a].unit);
                else
                    spx_picture_add(p, "unset xlabel\n");
                if (j == 0 && i > 0)
                    spx_picture_label(p, "y", parameter[b].label, parameter[b].unit);
                else
                    spx_picture_add(p, "unset label 2\n");
                if (i == j) {
                    spx_picture_add(p, "set yrange [0:1.2]\nunset ytics\nset label 5 ");
                    char text[80];
                    const int digits = (int)fmax(0, ceil(1 - log10(error[a])));
                    (void)snprintf(text, sizeof text, "%.*f ± %.*f", digits, value[a], digits, error[a]);
                    spx_picture_quote(p, text);
                    spx_picture_add(p, " at graph 0.5, graph 0.92 center font 'sans-serif,9'\n");
                    if (fabs(real[a] - value[a]) < 3 * error[a])
                        spx_picture_add(p,
                                        "set arrow 1 from first %.9g, graph 0 to first %.9g, graph 0.84 nohead lw 1.5 "
                                        "lc rgb '" SPX_RED "'\n",
                                        real[a], real[a]);
                    spx_picture_add(p,
                                    "plot %.9g + %.9g * (t / pi - 1) * 3, exp(-4.5 * (t / pi - 1)**2) * 0.82 with "
                                    "lines lw 1.4 lc rgb '" SPX_BLUE "'\nunset label 5\nunset arrow 1\nunset label 1\n",
                                    value[a], error[a]);
                    continue;
                }
                /* ellipses of 68.3 and 95.4 % of a normal distribution: x = s r cos t, y along the regression line */
                const double rho = fmax(-1, fmin(1, covar[a * npar + b] / (error[a] * error[b])));
                corner_tics(p, "y", value[b], error[b], j == 0);
                spx_picture_add(
                    p,
                    "x(r,t) = %.9g + %.9g * r * cos(t)\ny(r,t) = %.9g + %.9g * r * (%.9g * cos(t) + %.9g * sin(t))\n",
                    value[a], error[a], value[b], error[b], rho, sqrt(1 - rho * rho));
                if (fabs(real[a] - value[a]) < 3 * error[a] && fabs(real[b] - value[b]) < 3 * error[b])
                    spx_picture_add(
                        p,
                        "set label 5 '' at first %.9g, first %.9g front point pt 2 ps 1 lw 1.8 lc rgb '" SPX_RED "'\n",
                        real[a], real[b]);
                spx_picture_add(p,
                                "plot x(2.486,t), y(2.486,t) with filledcurves fc rgb '#cfe3f1', x(1.515,t), "
                                "y(1.515,t) with filledcurves fc rgb '#7fb5d9', \\\n"
                                "     x(2.486,t), y(2.486,t) with lines lw 0.8 lc rgb '" SPX_BLUE
                                "', x(1.515,t), y(1.515,t) with lines lw 0.8 lc rgb '" SPX_BLUE "'\nunset label 5\n");
            }
        spx_picture_add(p, "unset multiplot\n");
    }
    spx_table_free(t);
}

/* ---- cross-correlation ---- */

void spx_picture_ccf(spx_picture *p)
{
    enum { WIDTH = 16, MOST = 8 };
    static const char *const colour[MOST] = {SPX_BLUE,   SPX_RED,   SPX_PURPLE, SPX_GREEN,
                                             SPX_ORANGE, "#56B4E9", "#CC79A7",  SPX_GREY};
    spx_table *t = read_table(p, "/rvfit/table", fit_remedy);
    const size_t row = t != NULL ? choose_star(p, t) : 0;
    spx_input *in = spx_picture_need(p, "/ccf/gain", "rvs-fit --ccf writes it");
    size_t nlag = 0, narm = 0, ncurve = 0, curve = row, n = 1;
    char *arm = NULL;
    const double *velocity = spx_picture_read1(p, in, "/ccf/velocity", &nlag);
    if (p->st == SPX_OK)
        p->st = spx_h5_read_strings(in->file, "/ccf/arm", WIDTH, &narm, &arm, p->e);
    spx_picture_keep(p, arm);
    size_t dims[3] = {0, narm, nlag};
    double *gain = NULL;
    if (p->st == SPX_OK)
        p->st = spx_h5_read_f64(in->file, "/ccf/gain", 3, dims, &gain, p->e);
    spx_picture_keep(p, gain);
    ncurve = dims[0];
    /* curves are those of the exposures of a star, where there are several */
    const double *nexp = spx_picture_column(p, t, "NEXP");
    if (nexp != NULL) {
        curve = 0;
        for (size_t i = 0; i < row; i++)
            curve += (size_t)fmax(0, nexp[i]);
        n = (size_t)fmax(0, nexp[row]);
    }
    if (p->st == SPX_OK && (n == 0 || curve + n > ncurve))
        spx_picture_fail(p, SPX_EINPUT, "/ccf/gain: has no curve of row %zu of the table", row);
    const double *v = spx_picture_column(p, t, "VRAD"), *error = spx_picture_column(p, t, "VRAD_ERR");
    const double *start = spx_picture_column(p, t, "VRAD_CCF");
    double *sum = spx_picture_alloc(p, (narm + 1) * nlag), *drop = spx_picture_alloc(p, nlag);
    const double *col[MOST + 3] = {velocity};
    if (p->st == SPX_OK && (v == NULL || error == NULL))
        spx_picture_fail(p, SPX_EINPUT, "/rvfit/table: there is no column VRAD or VRAD_ERR");
    if (p->st == SPX_OK && nlag > 1) {
        double lo = INFINITY, hi = -INFINITY;
        narm = narm < MOST ? narm : MOST;
        for (size_t i = 0; i < nlag; i++) {
            for (size_t a = 0; a < narm; a++) {
                for (size_t c = curve; c < curve + n; c++)
                    sum[(a + 1) * nlag + i] += gain[(c * dims[1] + a) * nlag + i];
                sum[i] += sum[(a + 1) * nlag + i];
            }
            hi = fmax(hi, sum[i]);
            lo = fmin(lo, sum[i]);
        }
        for (size_t i = 0; i < nlag; i++)
            drop[i] = hi - sum[i];
        for (size_t a = 0; a <= narm; a++)
            col[a + 1] = sum + a * nlag;
        col[narm + 2] = drop;
        spx_picture_columns(p, "ccf", nlag, narm + 3, col);
        const double right = p->width - RIGHT, middle = TOP + 0.5 * (p->height - TOP - BOTTOM);
        spx_picture_add(p, "set multiplot\n");
        title_of_star(p, t, row, "cross-correlation");
        spx_picture_panel(p, LEFT, right, TOP, middle - 26);
        spx_picture_range(p, "x", velocity[0], velocity[nlag - 1]);
        spx_picture_range(p, "y", fmin(lo, 0), hi + 0.15 * (hi - lo));
        spx_picture_label(p, "y", "gain in χ²", "");
        spx_picture_add(p,
                        "set key top left\nset arrow 1 from first %.9g, graph 0 to first %.9g, graph 1 nohead back lw "
                        "0.8 dt 3 lc rgb '" SPX_INK "'\n"
                        "plot $ccf using 1:2 with lines lw 1.3 lc rgb '" SPX_INK "' title 'all arms'",
                        v[row], v[row]);
        for (size_t a = 0; a < narm && narm > 1; a++) {
            spx_picture_add(p, ", \\\n     $ccf using 1:%zu with lines lw 0.9 lc rgb '%s' title ", a + 3, colour[a]);
            spx_picture_quote(p, arm + a * WIDTH);
        }
        spx_picture_add(p, "\n");
        spx_picture_untitled(p);
        /* near the minimum: chi2 of the best template of the correlation, and the parabola of the fit's error */
        const double step = (velocity[nlag - 1] - velocity[0]) / (double)(nlag - 1);
        const double half = fmax(6 * step, 4 * error[row]);
        double near = 0;
        for (size_t i = 0; i < nlag; i++)
            if (fabs(velocity[i] - v[row]) < half)
                near = fmax(near, drop[i]);
        spx_picture_panel(p, LEFT, right, middle + 36, p->height - BOTTOM);
        spx_picture_range(p, "x", v[row] - half, v[row] + half);
        spx_picture_range(p, "y", -0.05 * near, 1.1 * fmax(near, 1));
        spx_picture_label(p, "y", "χ²(v) − minimum", "");
        spx_picture_add(
            p, "set xlabel 'velocity (km/s)'\nset key at graph 0.5, graph 1.09 center horizontal\nset samples 400\n");
        if (start != NULL && isfinite(start[row]))
            spx_picture_add(
                p,
                "set arrow 2 from first %.9g, graph 0 to first %.9g, graph 1 nohead back lw 0.8 lc rgb '" SPX_ORANGE
                "'\n",
                start[row], start[row]);
        spx_picture_add(p,
                        "plot $ccf using 1:%zu with linespoints pt 7 ps 0.5 lw 1 lc rgb '" SPX_INK
                        "' title 'cross-correlation', \\\n"
                        "     ((x - %.9g) / %.9g)**2 with lines lw 1.3 lc rgb '" SPX_BLUE
                        "' title 'fit: (v − VRAD)² / VRAD_ERR²'\nunset multiplot\n",
                        narm + 3, v[row], error[row]);
    }
    spx_table_free(t);
}
