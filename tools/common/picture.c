/* Builds pictures of products (common/picture.h). */
#include "common/picture.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "h5/attr.h"
#include "h5/object.h"
#include "h5/read.h"

void spx_picture_free(spx_picture *p)
{
    for (size_t i = 0; i < p->nmemory; i++)
        spx_free(p->memory[i]);
    spx_free(p->memory);
    spx_text_free(&p->script);
}

void spx_picture_fail(spx_picture *p, spx_status code, const char *fmt, ...)
{
    char text[1024];
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    if (p->st == SPX_OK)
        p->st = spx_fail(p->e, code, "%s", text);
}

/* ---- the program ---- */

void spx_picture_add(spx_picture *p, const char *fmt, ...)
{
    char text[4096];
    va_list ap;
    va_start(ap, fmt);
    const int n = vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    if (p->st == SPX_OK && (n < 0 || (size_t)n >= sizeof text))
        p->st = spx_fail(p->e, SPX_EBUG, "a line of a picture's program is too long");
    if (p->st == SPX_OK)
        p->st = spx_text_add(&p->script, p->e, "%s", text);
}

void spx_picture_quote(spx_picture *p, const char *text)
{
    /* strings in single quotes are not searched for commands and macros */
    char out[600];
    size_t n = 0;
    for (const char *c = text; *c != '\0' && n + 5 < sizeof out; c++) {
        if ((unsigned char)*c < 32 || *c == 127)
            continue;
        if (*c == '\'')
            out[n++] = '\'';
        /* minus signs as those of the axes */
        if (*c == '-' && (c == text || c[-1] == ' ') && c[1] >= '0' && c[1] <= '9')
            n += (size_t)snprintf(out + n, sizeof out - n, "−");
        else
            out[n++] = *c;
    }
    out[n] = '\0';
    spx_picture_add(p, "'%s'", out);
}

void spx_picture_title(spx_picture *p, double left, const char *fmt, ...)
{
    char text[512];
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    spx_picture_add(p, "set label 1 ");
    spx_picture_quote(p, text);
    spx_picture_add(p, " at screen %.5f, screen %.5f left font 'sans-serif,12'\n", left / p->width, 1 - 15 / p->height);
}

void spx_picture_untitled(spx_picture *p)
{
    spx_picture_add(p, "unset label 1\n");
}

void spx_picture_panel(spx_picture *p, double left, double right, double top, double bottom)
{
    p->panel[0] = left;
    p->panel[1] = right;
    p->panel[2] = 0.5 * (top + bottom);
    spx_picture_add(p, "set lmargin at screen %.5f\nset rmargin at screen %.5f\n", left / p->width, right / p->width);
    spx_picture_add(p, "set tmargin at screen %.5f\nset bmargin at screen %.5f\n", 1 - top / p->height,
                    1 - bottom / p->height);
}

void spx_picture_range(spx_picture *p, const char *axis, double lo, double hi)
{
    if (!(hi > lo)) {
        const double half = fmax(fabs(lo) * 0.01, 0.5);
        lo -= half;
        hi = lo + 2 * half;
    }
    spx_picture_add(p, "set %srange [%.9g:%.9g]\n", axis, lo, hi);
}

/* Units as they are printed, where they differ from those of files. */
static void pretty_unit(const char *unit, size_t size, char *out)
{
    static const struct {
        const char *file, *print;
    } words[] = {{"Angstrom^2", "Å²"},
                 {"Angstrom", "Å"},
                 {"electron^2", "electrons²"},
                 {"electron", "electrons"},
                 {"degree", "°"},
                 {"^-2", "⁻²"},
                 {"^-1", "⁻¹"},
                 {"^2", "²"},
                 {"cm2", "cm²"},
                 {"10**-17", "10⁻¹⁷"},
                 {"1e-17", "10⁻¹⁷"}};
    size_t n = 0;
    for (const char *c = unit; *c != '\0' && n + 16 < size;) {
        size_t k = 0;
        while (k < sizeof words / sizeof *words && strncmp(c, words[k].file, strlen(words[k].file)) != 0)
            k++;
        if (k < sizeof words / sizeof *words) {
            n += (size_t)snprintf(out + n, size - n, "%s", words[k].print);
            c += strlen(words[k].file);
        } else {
            out[n++] = *c++;
        }
    }
    out[n] = '\0';
}

void spx_picture_label(spx_picture *p, const char *axis, const char *text, const char *unit)
{
    char print[128], label[256];
    pretty_unit(unit, sizeof print, print);
    if (*print == '\0' || strcmp(print, "1") == 0)
        (void)snprintf(label, sizeof label, "%s", text);
    else
        (void)snprintf(label, sizeof label, "%s (%s)", text, print);
    if (*axis == 'x') {
        spx_picture_add(p, "set xlabel ");
        spx_picture_quote(p, label);
        spx_picture_add(p, "\n");
        return;
    }
    /* all panels have it at the same distance, however long the numbers of their axes are */
    spx_picture_add(p, "set label %d ", *axis == 'y' ? 2 : 3);
    spx_picture_quote(p, label);
    spx_picture_add(p, " at screen %.5f, screen %.5f center rotate by 90\n",
                    (*axis == 'y' ? p->panel[0] - 72 : p->panel[1] + 84) / p->width, 1 - p->panel[2] / p->height);
}

void spx_picture_tics(spx_picture *p, const char *axis, double lo, double hi, int most)
{
    const double raw = (hi - lo) / most, power = raw > 0 ? pow(10, floor(log10(raw))) : 1;
    const double step = raw > 5 * power ? 10 * power : raw > 2 * power ? 5 * power : raw > power ? 2 * power : power;
    spx_picture_add(p, "set %stics %.9g\n", axis, step);
}

/* A number as gnuplot reads it. */
static void add_number(spx_picture *p, double z, const char *missing, const char *end)
{
    if (p->st != SPX_OK)
        return;
    p->st = isfinite(z) ? spx_text_add(&p->script, p->e, "%.7g%s", z, end)
                        : spx_text_add(&p->script, p->e, "%s%s", missing, end);
}

void spx_picture_columns(spx_picture *p, const char *name, size_t n, size_t ncol, const double *const *col)
{
    spx_picture_add(p, "$%s << EOD\n", name);
    for (size_t i = 0; i < n && p->st == SPX_OK; i++)
        for (size_t k = 0; k < ncol; k++)
            add_number(p, col[k][i], "NaN", k + 1 < ncol ? " " : "\n");
    spx_picture_add(p, "EOD\n");
}

void spx_picture_matrix(spx_picture *p, const char *name, size_t nx, size_t ny, const double *z)
{
    spx_picture_add(p, "v(z) = z < 1e29 ? z : NaN\n$%s << EOD\n", name);
    for (size_t j = 0; j < ny && p->st == SPX_OK; j++)
        for (size_t i = 0; i < nx; i++)
            add_number(p, z[j * nx + i], "1e30", i + 1 < nx ? " " : "\n");
    spx_picture_add(p, "EOD\n");
}

void spx_picture_power(int k, char out[16])
{
    static const char *const digit[] = {"⁰", "¹", "²", "³", "⁴", "⁵", "⁶", "⁷", "⁸", "⁹"};
    if (k >= -2 && k <= 3)
        (void)snprintf(out, 16, "%g", pow(10, k));
    else
        (void)snprintf(out, 16, "10%s%s%s", k < 0 ? "⁻" : "", abs(k) >= 10 ? digit[abs(k) / 10 % 10] : "",
                       digit[abs(k) % 10]);
}

void spx_picture_decades(spx_picture *p, const char *axis, double lo, double hi)
{
    char name[16];
    spx_picture_add(p, "set logscale %s\nset %stics (", axis, axis);
    const int first = (int)floor(log10(lo > 0 ? lo : 1e-30)), last = (int)ceil(log10(hi > 0 ? hi : 1));
    const int few = hi < 30 * lo;
    const char *comma = "";
    for (int k = first; k <= last; k++) {
        spx_picture_power(k, name);
        spx_picture_add(p, "%s'%s' 1e%d", comma, name, k);
        comma = ", ";
        for (int m = 2; m < 10 && last - first < 7; m++)
            if (few && (m == 2 || m == 5))
                spx_picture_add(p, ", '%g' %de%d", m * pow(10, k), m, k);
            else
                spx_picture_add(p, ", '' %de%d 1", m, k);
    }
    spx_picture_add(p, ")\n");
}

void spx_picture_asinh(spx_picture *p, double soft, double lo, double hi)
{
    /* labels at 0 and at 1, 2, 5 of each decade, from the top down, as far as they are apart */
    spx_picture_add(p, "f(z) = asinh(z / %.6g)\nset cbrange [f(%.6g):f(%.6g)]\nset cbtics (", soft, lo, hi);
    const double span = asinh(hi / soft) - asinh(lo / soft);
    const char *comma = "";
    double last = INFINITY;
    if (lo <= 0 && hi >= 0) {
        spx_picture_add(p, "'0' f(0)");
        comma = ", ";
    }
    for (int k = hi > 0 ? (int)floor(log10(hi)) : -300; k > -300 && last > 0; k--) {
        static const double steps[] = {5, 2, 1};
        for (size_t s = 0; s < 3; s++) {
            const double z = steps[s] * pow(10, k), place = asinh(z / soft) / span;
            if (z > hi || z < lo || last - place < 0.09)
                continue;
            if (place < 0.09) {
                last = 0;
                break;
            }
            spx_picture_add(p, "%s'%.9g' f(%.9g)", comma, z, z);
            comma = ", ";
            last = place;
        }
        if (pow(10, k) < 1e-3 * soft)
            break;
    }
    spx_picture_add(p, ")\n");
}

/* ---- data ---- */

void spx_picture_keep(spx_picture *p, void *memory)
{
    if (memory == NULL)
        return;
    void **more = spx_grow(p->memory, p->nmemory, 1, &p->capacity, sizeof *more, p->e);
    if (more == NULL) {
        p->st = SPX_EIO;
        spx_free(memory);
        return;
    }
    p->memory = more;
    p->memory[p->nmemory++] = memory;
}

double *spx_picture_alloc(spx_picture *p, size_t n)
{
    double *v = p->st == SPX_OK ? spx_alloc(n, sizeof *v, p->e) : NULL;
    if (p->st == SPX_OK && v == NULL)
        p->st = SPX_EIO;
    spx_picture_keep(p, v);
    return p->st == SPX_OK ? v : NULL;
}

spx_input *spx_picture_find(const spx_picture *p, const char *path)
{
    for (size_t i = 0; i < p->args->n; i++)
        if (spx_h5_exists(p->args->in[i]->file, path))
            return p->args->in[i];
    return NULL;
}

spx_input *spx_picture_need(spx_picture *p, const char *path, const char *remedy)
{
    spx_input *in = spx_picture_find(p, path);
    if (in == NULL && p->st == SPX_OK)
        p->st = spx_fail_at(p->e, SPX_EINPUT, p->args->in[0]->name, NULL, remedy, "has no %s", path);
    return in;
}

static double *read_any(spx_picture *p, spx_input *in, const char *path, int ndim, size_t *dims)
{
    double *v = NULL;
    if (p->st == SPX_OK && in != NULL)
        p->st = spx_h5_read_f64(in->file, path, ndim, dims, &v, p->e);
    spx_picture_keep(p, v);
    return p->st == SPX_OK ? v : NULL;
}

double *spx_picture_read1(spx_picture *p, spx_input *in, const char *path, size_t *n)
{
    return read_any(p, in, path, 1, n);
}

double *spx_picture_read2(spx_picture *p, spx_input *in, const char *path, size_t *n, size_t *m)
{
    size_t dims[2] = {*n, *m};
    double *v = read_any(p, in, path, 2, dims);
    *n = dims[0];
    *m = dims[1];
    return v;
}

void spx_picture_unit(const spx_picture *p, spx_input *in, const char *path, size_t size, char *unit)
{
    *unit = '\0';
    if (p->st == SPX_OK && in != NULL && spx_h5_has_attr(in->file, path, "units"))
        (void)spx_h5_attr_str(in->file, path, "units", unit, size, NULL);
}

double *spx_picture_column(spx_picture *p, const spx_table *t, const char *name)
{
    if (t == NULL || spx_table_find(t, name) < 0)
        return NULL;
    double *v = spx_picture_alloc(p, t->nrow);
    if (p->st == SPX_OK)
        p->st = spx_table_get_f64(t, name, v, p->e);
    return p->st == SPX_OK ? v : NULL;
}

static int ascending(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

size_t spx_picture_quantiles(const double *v, size_t n, double q0, double q1, double *lo, double *hi)
{
    /* some 100 000 values, evenly spaced, tell a quantile well enough for an axis */
    const size_t step = n / 100000 + 1;
    size_t m = 0;
    double *s = spx_alloc(n / step + 1, sizeof *s, NULL);
    *lo = 0;
    *hi = 1;
    if (s == NULL)
        return 0;
    for (size_t i = 0; i < n; i += step)
        if (isfinite(v[i]))
            s[m++] = v[i];
    qsort(s, m, sizeof *s, ascending);
    if (m > 0) {
        *lo = s[(size_t)(q0 * (double)(m - 1) + 0.5)];
        *hi = s[(size_t)(q1 * (double)(m - 1) + 0.5)];
    }
    spx_free(s);
    return m;
}

double *spx_picture_bin(spx_picture *p, const double *z, size_t nx, size_t ny, size_t kx, size_t ky)
{
    const size_t mx = (nx + kx - 1) / kx, my = (ny + ky - 1) / ky;
    double *out = spx_picture_alloc(p, mx * my);
    for (size_t j = 0; j < my && out != NULL; j++)
        for (size_t i = 0; i < mx; i++) {
            double sum = 0, n = 0;
            for (size_t y = j * ky; y < (j + 1) * ky && y < ny; y++)
                for (size_t x = i * kx; x < (i + 1) * kx && x < nx; x++)
                    if (isfinite(z[y * nx + x])) {
                        sum += z[y * nx + x];
                        n++;
                    }
            out[j * mx + i] = n > 0 ? sum / n : NAN;
        }
    return out;
}

/* First bin at or beyond a wavelength. */
static size_t bin_from(const double *wave, size_t n, double w)
{
    size_t lo = 0, hi = n;
    while (lo < hi) {
        const size_t mid = lo + (hi - lo) / 2;
        if (wave[mid] < w)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

double *spx_picture_resample(spx_picture *p, const double *z, const double *wave, size_t n, size_t nwave, double lo,
                             double hi, size_t ncol, size_t k)
{
    const size_t m = (n + k - 1) / k;
    double *out = spx_picture_alloc(p, m * ncol);
    const double step = (hi - lo) / (double)ncol;
    for (size_t c = 0; c < ncol && out != NULL; c++) {
        size_t first = bin_from(wave, nwave, lo + step * (double)c);
        size_t last = bin_from(wave, nwave, lo + step * (double)(c + 1));
        if (last == first) { /* the nearer of the bins on either side */
            const double centre = lo + step * ((double)c + 0.5);
            if (first == nwave || (first > 0 && centre - wave[first - 1] < wave[first] - centre))
                first--;
            last = first + 1;
        }
        for (size_t g = 0; g < m; g++) {
            double sum = 0, count = 0;
            for (size_t s = g * k; s < (g + 1) * k && s < n; s++)
                for (size_t j = first; j < last; j++)
                    if (isfinite(z[s * nwave + j])) {
                        sum += z[s * nwave + j];
                        count++;
                    }
            out[g * ncol + c] = count > 0 ? sum / count : NAN;
        }
    }
    return out;
}

/* ---- maps ---- */

void spx_picture_bar(spx_picture *p, double right, double top, double bottom)
{
    spx_picture_add(p, "set colorbox user origin screen %.5f, screen %.5f size screen %.5f, screen %.5f\n",
                    (right + 10) / p->width, 1 - bottom / p->height, 12 / p->width, (bottom - top) / p->height);
}

void spx_picture_map(spx_picture *p, const double *z, const double *wave, size_t n, size_t nwave, double left,
                     double right, double top, double bottom)
{
    /* at most one and a half cells a pixel, in either direction */
    const size_t rows = (size_t)(1.5 * (bottom - top)) + 1, k = (n + rows - 1) / rows, ny = n > 0 ? (n + k - 1) / k : 0;
    const double step = (wave[nwave - 1] - wave[0]) / (double)(nwave - 1);
    const double lo = wave[0] - step / 2, hi = wave[nwave - 1] + step / 2;
    const size_t nx = (size_t)fmin((double)nwave, 1.5 * (right - left)) + 1;
    const double *cell = n > 0 ? spx_picture_resample(p, z, wave, n, nwave, lo, hi, nx, k) : NULL;
    char name[32];
    if (cell == NULL)
        return;
    p->nmap++;
    (void)snprintf(name, sizeof name, "map%zu", p->nmap);
    spx_picture_matrix(p, name, nx, ny, cell);
    spx_picture_add(p, "map%zux(i) = %.9g + (i + 0.5) * %.9g\nmap%zur(j) = j * %zu + %g\nmap%zuy(j) = map%zur(j)\n",
                    p->nmap, lo, (hi - lo) / (double)nx, p->nmap, k, 0.5 * (double)(k - 1), p->nmap, p->nmap);
    spx_picture_panel(p, left, right, top, bottom);
    spx_picture_range(p, "x", wave[0], wave[nwave - 1]);
    spx_picture_range(p, "y", -0.5, (double)n - 0.5);
    spx_picture_bar(p, right, top, bottom);
}

void spx_picture_plot_map(spx_picture *p)
{
    /* cells without a value show the grey behind */
    spx_picture_add(p,
                    "set object 1 rectangle from graph 0,0 to graph 1,1 behind fc rgb '#e8e8e8' fs solid noborder\n"
                    "plot $map%zu matrix using (map%zux($1)):(map%zuy($2)):(v($3)) with image notitle\n"
                    "unset object 1\nunset colorbox\nunset label 3\n",
                    p->nmap, p->nmap, p->nmap);
}
