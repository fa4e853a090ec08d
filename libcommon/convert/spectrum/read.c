/* Values of spectra out of FITS files and texts, and the block that is made of them. */
#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/text.h"
#include "convert/spectrum/spectrum.h"
#include "fits/values.h"
#include "h5/table.h"
#include "num/stat.h"
#include "products/spectra_h5.h"

/* ---- IRAF's multispec ---- */

enum { WAT_TEXT = 68, MOST_TERMS = 64 };

/* The text that the cards WAT2_001, WAT2_002 ... hold together. Blanks at the end of a card, which some writers drop,
 * are part of it. NULL: no memory, or no such cards (e->code tells). */
static char *wat_text(const spx_cards *h, spx_err *e)
{
    size_t n = 0, at = 0;
    for (size_t i = 0; i < h->n; i++)
        n += strncmp(h->cards + 80 * i, "WAT2_", 5) == 0;
    char *text = n ? spx_alloc(n, WAT_TEXT + 1, e) : NULL;
    for (size_t i = 0; text && i < h->n; i++) {
        const char *c = h->cards + 80 * i;
        if (strncmp(c, "WAT2_", 5) != 0 || c[10] != '\'')
            continue;
        size_t k = 79;
        while (k > 10 && c[k] != '\'')
            k--;
        for (size_t j = 0; j < WAT_TEXT; j++)
            text[at++] = 11 + j < k ? c[11 + j] : ' ';
    }
    return text;
}

/* Value at x of the term with coefficients c[m] over lo ... hi; kind: 1 Chebyshev, 2 Legendre, 3 cubic spline, 4 linear
 * spline. */
static double dispersion(int kind, double lo, double hi, size_t m, const double *c, double x)
{
    double u = (2 * x - (hi + lo)) / (hi - lo), sum = 0, before = 1, now = u;
    if (kind <= 2) {
        for (size_t k = 0; k < m; k++) {
            double p = k == 0 ? 1 : k == 1 ? u : 0, d = (double)k;
            if (k > 1) {
                p = kind == 1 ? 2 * u * now - before : ((2 * d - 1) * u * now - (d - 1) * before) / d;
                before = now;
                now = p;
            }
            sum += c[k] * p;
        }
        return sum;
    }
    const size_t pieces = m - (kind == 3 ? 3 : 1);
    double s = (x - lo) / (hi - lo) * (double)pieces, j = fmin(fmax(floor(s), 0), (double)pieces - 1);
    double a = j + 1 - s, b = s - j;
    const double *at = c + (size_t)j;
    if (kind == 4)
        return at[0] * a + at[1] * b;
    return at[0] * a * a * a + at[1] * (1 + 3 * a * (1 + a * b)) + at[2] * (1 + 3 * b * (1 + a * b)) +
           at[3] * b * b * b;
}

/* Numbers at *p into v[n]; 0: there are not so many. */
static int numbers(const char **p, size_t n, double *v)
{
    for (size_t i = 0; i < n; i++) {
        char *end;
        v[i] = strtod(*p, &end);
        if (end == *p || !isfinite(v[i]))
            return 0;
        *p = end;
    }
    return 1;
}

/* The terms of a dispersion function that is not linear, from *p on, added to w[n]; 0: damaged, or not known. */
static int add_terms(const char *p, size_t n, double *w)
{
    int terms = 0;
    for (;; terms++) {
        double head[3], range[3], c[MOST_TERMS];
        const char *before = p;
        if (!numbers(&p, 1, head)) {
            while (isspace((unsigned char)*before))
                before++;
            return terms > 0 && *before == '"';
        }
        if (!numbers(&p, 2, head + 1) || !numbers(&p, 3, range))
            return 0;
        const int kind = (int)head[2];
        const double m = range[0] + (kind == 3 ? 3 : kind == 4 ? 1 : 0);
        if (head[2] != floor(head[2]) || kind < 1 || kind > 4 || !(m >= 1) || m != floor(m) || m > MOST_TERMS ||
            range[0] < 1 || !(range[2] > range[1]) || !numbers(&p, (size_t)m, c))
            return 0;
        for (size_t i = 0; i < n; i++)
            w[i] += head[0] * (head[1] + dispersion(kind, range[1], range[2], (size_t)m, c, (double)i + 1));
    }
}

spx_status spx_fits_multispec(const spx_cards *h, size_t order, size_t n, double *w, spx_err *e)
{
    char name[32], *text = wat_text(h, e);
    double v[9];
    if (!text)
        return e->code != SPX_OK ? e->code : spx_fail(e, SPX_EINPUT, "the header has no keywords WAT2_nnn");
    snprintf(name, sizeof name, " spec%zu ", order + 1);
    const char *p = strstr(text, name);
    if (!p) { /* spec12="..." */
        snprintf(name, sizeof name, " spec%zu=", order + 1);
        p = strstr(text, name);
    }
    p = p ? strchr(p, '"') : NULL;
    int ok = p != NULL;
    if (ok) {
        p++;
        ok = numbers(&p, 9, v) && v[6] > -1;
    }
    if (ok && v[2] == 2) {
        for (size_t i = 0; i < n; i++)
            w[i] = 0;
        ok = add_terms(p, n, w);
    } else if (ok && (v[2] == 0 || v[2] == 1)) {
        for (size_t i = 0; i < n; i++)
            w[i] = v[3] + v[4] * (double)i;
    } else {
        ok = 0;
    }
    for (size_t i = 0; ok && i < n; i++)
        w[i] = (v[2] == 1 ? pow(10, w[i]) : w[i]) / (1 + v[6]);
    spx_free(text);
    return ok ? SPX_OK
              : spx_fail(
                    e, SPX_EINPUT,
                    "the wavelengths of order %zu are missing in WAT2_nnn, damaged, or of a kind that is not known",
                    order);
}

/* ---- texts ---- */

typedef struct {
    size_t n, room;
    double *v[3];
} columns;

static spx_status add_row(columns *c, const double *v, spx_err *e)
{
    if (c->n == c->room) {
        size_t room = c->room ? 2 * c->room : 4096;
        for (int k = 0; k < 3; k++) {
            double *more = spx_alloc(room, sizeof *more, e);
            if (!more)
                return SPX_EIO;
            if (c->n)
                memcpy(more, c->v[k], c->n * sizeof *more);
            spx_free(c->v[k]);
            c->v[k] = more;
        }
        c->room = room;
    }
    for (int k = 0; k < 3; k++)
        c->v[k][c->n] = v[k];
    c->n++;
    return SPX_OK;
}

/* Numbers of a line, separated by blanks, commas or semicolons, into v[3]; how many, -1: something else too. "nan" is a
 * number. */
static int line_numbers(const char *p, double *v)
{
    int n = 0;
    for (;;) {
        char *end;
        p += strspn(p, " \t,;\r\n");
        if (*p == '\0')
            return n;
        double x = strtod(p, &end);
        if (end == p || !strchr(" \t,;\r\n", *end))
            return -1;
        if (n < 3)
            v[n] = x;
        n++;
        p = end;
    }
}

/* Does the first line with names say that the third column is no error but an inverse variance? */
static spx_fits_noise kind_by_name(const char *line)
{
    char lower[256];
    size_t n = 0;
    for (; line[n] && n + 1 < sizeof lower; n++)
        lower[n] = (char)tolower((unsigned char)line[n]);
    lower[n] = 0;
    return strstr(lower, "ivar") || strstr(lower, "invvar") ? SPX_NOISE_IVAR : SPX_NOISE_SIGMA;
}

spx_status spx_text_spectrum_find(const char *name, spx_fits_spectra *out, spx_err *e)
{
    *out = (spx_fits_spectra){0};
    FILE *f = fopen(name, "r");
    if (!f)
        return SPX_OK;
    columns c = {0};
    char *line = NULL;
    size_t room = 0, number = 0;
    int ncol = 0, named = 0, text = 1;
    spx_fits_noise kind = SPX_NOISE_SIGMA;
    spx_status st = SPX_OK;
    ssize_t len;
    while (st == SPX_OK && text && (len = getline(&line, &room, f)) >= 0) {
        double v[3] = {0, 0, 0};
        number++;
        if (strlen(line) != (size_t)len) { /* bytes that no text has */
            text = 0;
            break;
        }
        if (line[0] == '#' && ncol == 0)
            kind = kind_by_name(line);
        line[strcspn(line, "#")] = '\0';
        int n = line_numbers(line, v);
        if (n == 0)
            continue;
        if (n < 2 || (ncol > 0 && n != ncol)) {
            if (ncol == 0 && !named) { /* names of the columns */
                named = 1;
                kind = kind_by_name(line);
                continue;
            }
            text = 0;
            if (c.n >= 2) /* it was one up to here */
                st = spx_fail(e, SPX_EINPUT, "%s:%zu: is not a line of %d numbers as those before", name, number, ncol);
            break;
        }
        ncol = n;
        st = add_row(&c, v, e);
    }
    free(line);
    if (ferror(f) && st == SPX_OK)
        st = spx_fail(e, SPX_EIO, "%s: cannot read: %s", name, strerror(errno));
    (void)fclose(f);
    spx_fits_spectrum *s = NULL;
    if (st == SPX_OK && text && c.n >= 2 && !(s = spx_alloc(1, sizeof *s, e)))
        st = SPX_EIO;
    if (!s) {
        for (int k = 0; k < 3; k++)
            spx_free(c.v[k]);
        return st;
    }
    const spx_fits_values nowhere = {-1, -1, 0};
    *s = (spx_fits_spectrum){.arm = "spectrum",
                             .n = c.n,
                             .flux = nowhere,
                             .noise = nowhere,
                             .mask = nowhere,
                             .wave = nowhere,
                             .kind = ncol > 2 ? kind : SPX_NOISE_NONE,
                             .medium = -1,
                             .barycentric = -1,
                             .unit = 0};
    for (int k = 0; k < 3; k++)
        s->given[k] = c.v[k];
    *out = (spx_fits_spectra){.format = "text", .n = 1, .room = 1, .s = s};
    return SPX_OK;
}

/* ---- values ---- */

/* A whole HDU or column, kept until another one is wanted: rows of it come one after another. */
typedef struct {
    int hdu, column;
    size_t n, total; /* a row, all of them */
    double *v;
} whole;

static spx_status get(spx_fits *f, const spx_fits_values *at, size_t n, whole *keep, double **out, spx_err *e)
{
    const spx_fits_hdu *h = &f->hdu[at->hdu];
    spx_status st = SPX_OK;
    if (!keep->v || keep->hdu != at->hdu || keep->column != at->column) {
        spx_free(keep->v);
        *keep = (whole){.hdu = at->hdu, .column = at->column};
        if (at->column < 0) {
            st = spx_fits_f64(f, (size_t)at->hdu, &keep->v, e);
            keep->n = h->dims[h->ndim - 1];
        } else {
            st = spx_fits_column_f64(f, (size_t)at->hdu, h->col[at->column].name, &keep->n, &keep->v, e);
        }
        keep->total = at->column < 0 ? h->nelem : keep->n * h->nrow;
    }
    if (st != SPX_OK)
        return st;
    const size_t total = keep->total, row = at->row == SPX_FITS_ROWS ? 0 : at->row;
    if ((at->row != SPX_FITS_ROWS && keep->n != n) || n > total || row > (total - n) / n)
        return spx_fail(e, SPX_EINPUT, "%s: %s: has no row %zu of %zu values", f->name,
                        spx_fits_hduname(f, (size_t)at->hdu), row, n);
    if (!(*out = spx_alloc_unset(n, 1, sizeof **out, e)))
        return SPX_EIO;
    memcpy(*out, keep->v + row * n, n * sizeof **out);
    return SPX_OK;
}

/* Wavelengths as logarithms in single precision are good for 0.2 km/s only. Where the header gives the same scale
 * exactly (COEFF0 and COEFF1 of SDSS), or where they are evenly spaced within their rounding, that is taken. */
static void sharpen(const spx_cards *h, size_t n, double *w)
{
    static const double ROUNDING = 5e-7; /* of log10 of a wavelength in single precision */
    double c0 = 0, c1 = 0, worst = 0, sy = 0, sxx = 0, sxy = 0;
    const double start = w[0];
    if (h && spx_cards_double(h, "COEFF0", &c0) && spx_cards_double(h, "COEFF1", &c1) && c1 > 1e-6) {
        for (size_t i = 0; i < n; i++)
            worst = fmax(worst, fabs(w[i] - (start + c1 * (double)i)));
        double offset = round((start - c0) / c1); /* a spectrum may begin some pixels into that grid */
        if (worst < 3e-6 && fabs(offset) < 1e5 && fabs(c0 + offset * c1 - start) < 3e-6) {
            for (size_t i = 0; i < n; i++)
                w[i] = c0 + (offset + (double)i) * c1;
            return;
        }
    }
    for (size_t i = 0; i < n; i++) {
        double x = (double)i - 0.5 * (double)(n - 1);
        sy += w[i] - start;
        sxx += x * x;
        sxy += x * (w[i] - start);
    }
    const double slope = sxy / sxx, mean = start + sy / (double)n;
    for (size_t i = 0; i < n; i++)
        worst = fmax(worst, fabs(w[i] - (mean + slope * ((double)i - 0.5 * (double)(n - 1)))));
    for (size_t i = 0; worst < ROUNDING && isfinite(slope) && i < n; i++)
        w[i] = mean + slope * ((double)i - 0.5 * (double)(n - 1));
}

/* What a unit that nobody names is: values around 3.7 are log10 of Angstrom, others metre, micron, nanometre or
 * Angstrom. */
static double guess_scale(size_t n, const double *w, spx_wave_scale *scale)
{
    double lo = HUGE_VAL, hi = 0;
    for (size_t i = 0; i < n; i++)
        if (isfinite(w[i]) && w[i] > 0) {
            lo = fmin(lo, w[i]);
            hi = fmax(hi, w[i]);
        }
    if (*scale != SPX_WAVE_LINEAR || !(hi > 0))
        return 1;
    if (lo > 3 && hi < 5)
        *scale = SPX_WAVE_LOG10;
    else if (lo > 7 && hi < 11)
        *scale = SPX_WAVE_LN;
    else if (hi < 6)
        return hi < SPX_FITS_METRES ? 1e10 : 1e4;
    return lo > 280 && lo < 1100 && hi < 3000 ? 10 : 1;
}

/* Wavelengths of a spectrum in Angstrom, as the file has them, into new memory. */
static spx_status wavelengths(spx_fits *f, const spx_fits_spectrum *s, whole *keep, double **out, spx_err *e)
{
    spx_status st = SPX_OK;
    spx_wave_scale scale = s->scale;
    double *w = NULL, unit = s->unit;
    if (s->wave.hdu >= 0)
        st = get(f, &s->wave, s->n, keep, &w, e);
    else if (!(w = spx_alloc_unset(s->n, 1, sizeof *w, e)))
        st = SPX_EIO;
    if (st != SPX_OK)
        return st;
    for (size_t i = 0; s->wave.hdu < 0 && i < s->n; i++)
        w[i] = s->given[0] ? s->given[0][i] : s->start + s->step * (double)i;
    if (!(unit > 0)) /* all orders of a file are in the same one */
        unit = s->wave.hdu >= 0 ? guess_scale(keep->total, keep->v, &scale) : guess_scale(s->n, w, &scale);
    for (size_t i = 0; s->wave.hdu >= 0 && i < s->n; i++)
        w[i] = w[i] > 0 ? w[i] : NAN; /* which 0 as a logarithm would not be */
    if (scale == SPX_WAVE_LOG10 && s->wave.hdu >= 0)
        sharpen(&f->hdu[0].header, s->n, w);
    for (size_t i = 0; i < s->n; i++)
        w[i] = unit * (scale == SPX_WAVE_LOG10 ? pow(10, w[i]) : scale == SPX_WAVE_LN ? exp(w[i]) : w[i]);
    *out = w;
    return SPX_OK;
}

/* Pixel, of those with a wavelength, at which w[n] turns; 0: nowhere. */
static size_t turning_point(size_t n, const double *w)
{
    size_t up = 0, down = 0;
    for (size_t i = 1; i < n; i++) {
        up += w[i] > w[i - 1];
        down += w[i] < w[i - 1];
    }
    double before = NAN;
    for (size_t i = 0; i < n; i++) {
        if (!isfinite(w[i]) || !(w[i] > 0))
            continue;
        if (down > up ? w[i] >= before : w[i] <= before)
            return i;
        before = w[i];
    }
    return 0;
}

spx_status spx_fits_spectra_check(spx_fits *f, spx_fits_spectra *l, spx_err *e)
{
    whole keep = {0};
    spx_status st = SPX_OK;
    for (size_t i = 0; i < l->n && st == SPX_OK && !l->note[0]; i++) {
        double *w = NULL;
        const spx_fits_spectrum *s = &l->s[i];
        st = wavelengths(f, s, &keep, &w, e);
        const size_t at = st == SPX_OK ? turning_point(s->n, w) : 0;
        if (at > 0)
            snprintf(
                l->note, sizeof l->note,
                "looks like a spectrum in HDU %d, but its wavelengths turn at pixel %zu (%.2f, then %.2f Angstrom)",
                s->flux.hdu, at, w[at - 1], w[at]);
        spx_free(w);
    }
    spx_free(keep.v);
    return st;
}

/* ---- errors ---- */

enum { WINDOW = 200 }; /* pixels whose scatter is one number */

/* Standard deviation of the noise at each pixel from second differences of pixels two apart, which lines that are
 * resolved change little: 1.482602/sqrt(6) times the median of |2 f_i - f_(i-2) - f_(i+2)| (Stoehr et al. 2008, ASP
 * Conf. Ser. 394, 505), in windows, between whose middles it is interpolated. 0 where nothing is known. */
static spx_status scatter(size_t n, const double *flux, double *sigma, spx_err *e)
{
    const size_t nwin = n / WINDOW ? n / WINDOW : 1;
    double *d = spx_alloc(n, sizeof *d, e), *level = spx_alloc(nwin, sizeof *level, e), last = 0;
    for (size_t k = 0; d && level && k < nwin; k++) {
        size_t a = k * n / nwin, b = (k + 1) * n / nwin, m = 0;
        for (size_t i = a > 2 ? a : 2; i < b && i + 2 < n; i++) {
            double x = fabs(2 * flux[i] - flux[i - 2] - flux[i + 2]);
            if (isfinite(x) && flux[i] != 0 && flux[i - 2] != 0 && flux[i + 2] != 0)
                d[m++] = x;
        }
        level[k] = m < 8 ? 0 : 1.482602 / sqrt(6) * spx_median(d, m);
        last = level[k] > 0 ? level[k] : last;
    }
    for (size_t k = 0; d && level && k < nwin; k++) /* windows that say nothing take what comes before, or after */
        if (!(level[k] > 0))
            level[k] = k > 0 ? level[k - 1] : 0;
    for (size_t k = nwin; d && level && k-- > 0;)
        if (!(level[k] > 0))
            level[k] = k + 1 < nwin ? level[k + 1] : last;
    for (size_t i = 0; d && level && i < n; i++) {
        double at = ((double)i + 0.5) / (double)n * (double)nwin - 0.5, k = floor(fmin(fmax(at, 0), (double)nwin - 1));
        double u = fmin(fmax(at - k, 0), 1);
        size_t j = (size_t)k, next = j + 1 < nwin ? j + 1 : j;
        sigma[i] = (1 - u) * level[j] + u * level[next];
    }
    spx_free(d);
    spx_free(level);
    return d && level ? SPX_OK : SPX_EIO;
}

/* noise[n] becomes ivar. */
static spx_status to_ivar(size_t n, const double *flux, spx_fits_noise kind, double *noise, spx_err *e)
{
    double *sigma = NULL, *ratio = NULL;
    spx_status st = SPX_OK;
    if (kind == SPX_NOISE_NONE || kind == SPX_NOISE_RELATIVE) {
        sigma = spx_alloc(n, sizeof *sigma, e);
        ratio = spx_alloc(n, sizeof *ratio, e);
        st = sigma && ratio ? scatter(n, flux, sigma, e) : SPX_EIO;
    }
    if (st == SPX_OK && kind == SPX_NOISE_RELATIVE) {
        double off[2] = {0, 0};
        for (int relative = 0; relative < 2; relative++) {
            size_t m = 0;
            for (size_t i = 0; i < n; i++) {
                double x = log(noise[i] * (relative ? fabs(flux[i]) : 1) / sigma[i]);
                if (isfinite(x))
                    ratio[m++] = x;
            }
            off[relative] = m > 0 ? fabs(spx_median(ratio, m)) : HUGE_VAL;
        }
        for (size_t i = 0; i < n && off[1] < off[0]; i++)
            noise[i] *= fabs(flux[i]);
        kind = SPX_NOISE_SIGMA;
    }
    for (size_t i = 0; st == SPX_OK && i < n; i++) {
        double x = kind == SPX_NOISE_NONE ? (flux[i] != 0 ? sigma[i] : 0) : noise[i];
        double v = kind == SPX_NOISE_IVAR ? x : x > 0 ? 1 / (kind == SPX_NOISE_VARIANCE ? x : x * x) : 0;
        noise[i] = isfinite(v) && v > 0 ? v : 0;
    }
    spx_free(sigma);
    spx_free(ratio);
    return st;
}

/* ---- spectra in memory ---- */

typedef struct {
    const spx_fits_spectrum *from;
    size_t row, n;
    double *wave, *flux, *ivar;
    uint32_t *mask;
    size_t arm, offset; /* where it is in the block */
} loaded;

static void loaded_free(loaded *l)
{
    spx_free(l->wave);
    spx_free(l->flux);
    spx_free(l->ivar);
    spx_free(l->mask);
}

/* Pixels in the order of their wavelengths, those without one dropped: none may be left. */
static spx_status put_in_order(const char *name, loaded *l, spx_err *e)
{
    size_t up = 0, down = 0, m = 0;
    for (size_t i = 1; i < l->n; i++) {
        up += l->wave[i] > l->wave[i - 1];
        down += l->wave[i] < l->wave[i - 1];
    }
    for (size_t i = 0, j = l->n - 1; i < j && down > up; i++, j--) {
        double w = l->wave[i], f = l->flux[i], v = l->ivar[i];
        uint32_t k = l->mask[i];
        l->wave[i] = l->wave[j];
        l->flux[i] = l->flux[j];
        l->ivar[i] = l->ivar[j];
        l->mask[i] = l->mask[j];
        l->wave[j] = w;
        l->flux[j] = f;
        l->ivar[j] = v;
        l->mask[j] = k;
    }
    for (size_t i = 0; i < l->n; i++) {
        if (!isfinite(l->wave[i]) || !(l->wave[i] > 0))
            continue;
        l->wave[m] = l->wave[i];
        l->flux[m] = l->flux[i];
        l->ivar[m] = l->ivar[i];
        l->mask[m++] = l->mask[i];
    }
    l->n = m;
    for (size_t i = 1; i < m; i++)
        if (!(l->wave[i] > l->wave[i - 1]))
            return spx_fail(e, SPX_EINPUT,
                            "%s: arm %s: wavelengths turn at pixel %zu (%.2f, then %.2f Angstrom): sort the spectrum%s",
                            name, l->from->arm, i, l->wave[i - 1], l->wave[i],
                            l->from->flux.hdu >= 0 ? " (--generic keeps it)" : "");
    return SPX_OK;
}

typedef struct {
    whole wave, flux, noise, mask;
} kept;

/* *noise: how the errors are given, in fact: some files have a column for them with nothing in it. */
static spx_status load(const spx_spectrum_file *file, const spx_fits_spectrum *s, kept *k, loaded *l,
                       spx_fits_noise *noise, spx_err *e)
{
    double *mask = NULL;
    const size_t n = s->n;
    int some = 0;
    l->from = s;
    l->n = n;
    spx_status st = wavelengths(file->f, s, &k->wave, &l->wave, e);
    if (st == SPX_OK && s->flux.hdu >= 0)
        st = get(file->f, &s->flux, n, &k->flux, &l->flux, e);
    else if (st == SPX_OK && !(l->flux = spx_alloc(n, sizeof *l->flux, e)))
        st = SPX_EIO;
    if (st == SPX_OK && s->noise.hdu >= 0)
        st = get(file->f, &s->noise, n, &k->noise, &l->ivar, e);
    else if (st == SPX_OK && !(l->ivar = spx_alloc(n, sizeof *l->ivar, e)))
        st = SPX_EIO;
    if (st == SPX_OK && s->given[1])
        memcpy(l->flux, s->given[1], n * sizeof *l->flux);
    if (st == SPX_OK && s->given[2])
        memcpy(l->ivar, s->given[2], n * sizeof *l->ivar);
    if (st == SPX_OK && s->mask.hdu >= 0)
        st = get(file->f, &s->mask, n, &k->mask, &mask, e);
    if (st == SPX_OK && !(l->mask = spx_alloc(n, sizeof *l->mask, e)))
        st = SPX_EIO;
    for (size_t i = 0; st == SPX_OK && i < n && !some; i++)
        some = isfinite(l->ivar[i]) && l->ivar[i] > 0;
    *noise = some || s->kind == SPX_NOISE_IVAR ? s->kind : SPX_NOISE_NONE;
    if (st == SPX_OK)
        st = to_ivar(n, l->flux, *noise, l->ivar, e);
    for (size_t i = 0; st == SPX_OK && i < n; i++) {
        if (mask && mask[i] > -2147483649.0 && mask[i] < 4294967296.0)
            l->mask[i] = (mask[i] < 0 ? (uint32_t)(int32_t)mask[i] : (uint32_t)mask[i]) & s->bad ? SPX_SOMEBADPIX : 0;
        if (!isfinite(l->flux[i]))
            l->flux[i] = l->ivar[i] = 0;
        if (l->mask[i] != 0)
            l->ivar[i] = 0;
        else if (!(l->ivar[i] > 0))
            l->mask[i] = SPX_NODATA;
    }
    spx_free(mask);
    return st == SPX_OK ? put_in_order(file->name, l, e) : st;
}

/* ---- one grid for spectra that are on parts of it ---- */

static const double SAME_PIXEL = 1e-3; /* of a pixel, by which wavelengths of the same grid differ at most */

/* By how many pixels w[n] begins after g[m], into *shift; 0: they are not on the same grid, or do not meet. */
static int align(size_t m, const double *g, size_t n, const double *w, ptrdiff_t *shift)
{
    /* the first pixel of the one that begins later, in the other */
    const int later = w[0] >= g[0];
    const double *a = later ? g : w, first = later ? w[0] : g[0];
    size_t na = later ? m : n, lo = 0, hi = na;
    while (hi - lo > 1) {
        size_t mid = lo + (hi - lo) / 2;
        if (a[mid] <= first)
            lo = mid;
        else
            hi = mid;
    }
    if (lo + 1 < na && a[lo + 1] - first < first - a[lo])
        lo++;
    *shift = later ? (ptrdiff_t)lo : -(ptrdiff_t)lo;
    size_t ig = later ? lo : 0, iw = later ? 0 : lo, both = 0;
    for (; ig < m && iw < n; ig++, iw++, both++) {
        double step = iw + 1 < n ? w[iw + 1] - w[iw] : w[iw] - w[iw - 1];
        if (fabs(w[iw] - g[ig]) > SAME_PIXEL * step)
            return 0;
    }
    return both >= 2;
}

typedef struct {
    spx_spectra s;
    char base[SPX_MAX_ARM][16];
    size_t nloaded, nplaced, room; /* all are loaded before the first is placed */
    loaded *l;
} builder;

static int is_free(const builder *b, size_t arm, size_t row)
{
    for (size_t i = 0; i < b->nplaced; i++)
        if (b->l[i].arm == arm && b->l[i].row == row)
            return 0;
    return 1;
}

/* Make the grid of arm `a` reach over w[n], which begins `shift` pixels after it. */
static spx_status widen(builder *b, size_t arm, size_t n, const double *w, ptrdiff_t shift, spx_err *e)
{
    spx_arm *a = &b->s.arm[arm];
    const size_t before = shift < 0 ? (size_t)-shift : 0, start = shift > 0 ? (size_t)shift : 0;
    const size_t end = start + n > before + a->nwave ? start + n : before + a->nwave;
    if (end == a->nwave)
        return SPX_OK;
    double *more = spx_alloc_unset(end, 1, sizeof *more, e);
    if (!more)
        return SPX_EIO;
    memcpy(more + start, w, n * sizeof *more);
    memcpy(more + before, a->wavelength, a->nwave * sizeof *more);
    spx_free(a->wavelength);
    a->wavelength = more;
    a->nwave = end;
    for (size_t i = 0; i < b->nplaced; i++)
        b->l[i].offset += b->l[i].arm == arm ? before : 0;
    return SPX_OK;
}

static int taken(const builder *b, const char *name)
{
    for (size_t k = 0; k < b->s.narm; k++)
        if (strcmp(b->s.arm[k].name, name) == 0)
            return 1;
    return 0;
}

/* Arm and place of a spectrum; the arm is made where none fits. */
static spx_status place(builder *b, const char *file, loaded *l, spx_err *e)
{
    const spx_fits_spectrum *s = l->from;
    const spx_medium medium = s->medium == SPX_AIR ? SPX_AIR : SPX_VACUUM;
    size_t same = 1;
    for (size_t k = 0; k < b->s.narm; k++) {
        spx_arm *a = &b->s.arm[k];
        ptrdiff_t shift;
        if (strcmp(b->base[k], s->arm) != 0)
            continue;
        same++;
        if (a->medium != medium || a->barycentric != (s->barycentric == 1) || !is_free(b, k, l->row) ||
            !align(a->nwave, a->wavelength, l->n, l->wave, &shift))
            continue;
        spx_status st = widen(b, k, l->n, l->wave, shift, e);
        l->arm = k;
        l->offset = shift > 0 ? (size_t)shift : 0;
        return st;
    }
    if (b->s.narm == SPX_MAX_ARM)
        return spx_fail(e, SPX_EINPUT,
                        "%s: spectra on more than %d different wavelength grids do not fit into one file: convert "
                        "fewer at a time, or choose orders with --orders",
                        file, SPX_MAX_ARM);
    spx_arm *a = &b->s.arm[b->s.narm];
    memcpy(b->base[b->s.narm], s->arm, sizeof s->arm);
    snprintf(a->name, sizeof a->name, "%s", s->arm);
    while (taken(b, a->name))
        snprintf(a->name, sizeof a->name, "%.10s%zu", s->arm, same++ % 100000);
    b->s.narm++;
    a->medium = medium;
    a->barycentric = s->barycentric == 1;
    a->nwave = l->n;
    if (!(a->wavelength = spx_alloc_unset(l->n, 1, sizeof *a->wavelength, e)))
        return SPX_EIO;
    memcpy(a->wavelength, l->wave, l->n * sizeof *a->wavelength);
    l->arm = b->s.narm - 1;
    l->offset = 0;
    return SPX_OK;
}

static spx_status fill(builder *b, spx_err *e)
{
    spx_spectra *s = &b->s;
    for (size_t k = 0; k < s->narm; k++) {
        spx_arm *a = &s->arm[k];
        a->flux = spx_alloc2(s->nspec, a->nwave, sizeof *a->flux, e);
        a->ivar = spx_alloc2(s->nspec, a->nwave, sizeof *a->ivar, e);
        a->mask = spx_alloc2(s->nspec, a->nwave, sizeof *a->mask, e);
        if (!a->flux || !a->ivar || !a->mask)
            return SPX_EIO;
        for (size_t i = 0; i < s->nspec * a->nwave; i++)
            a->mask[i] = SPX_NODATA;
    }
    for (size_t i = 0; i < b->nloaded; i++) {
        const loaded *l = &b->l[i];
        spx_arm *a = &s->arm[l->arm];
        const size_t at = l->row * a->nwave + l->offset;
        memcpy(a->flux + at, l->flux, l->n * sizeof *a->flux);
        memcpy(a->ivar + at, l->ivar, l->n * sizeof *a->ivar);
        memcpy(a->mask + at, l->mask, l->n * sizeof *a->mask);
    }
    return SPX_OK;
}

/* ---- who it is ---- */

enum { NAME = 48, FILE_NAME = 64 };

typedef struct {
    char object[NAME], file[FILE_NAME];
    int64_t target;
    int32_t fiber;
    double ra, dec, when; /* NAN: not known */
    size_t rows;          /* of the file */
    int by_file;          /* nothing but its name tells what it is of */
} identity;

static int first_double(const spx_fits *f, const char *const *key, double *out)
{
    for (; *key; key++)
        if (spx_cards_double(&f->hdu[0].header, *key, out))
            return 1;
    return 0;
}

/* Printable ASCII without blanks at the ends. */
static void clean_text(char *to, size_t size, const char *from)
{
    size_t n = 0;
    while (*from == ' ')
        from++;
    for (; *from && n + 1 < size; from++)
        to[n++] = (unsigned char)*from > 31 && (unsigned char)*from < 127 ? *from : '?';
    while (n > 0 && to[n - 1] == ' ')
        n--;
    to[n] = 0;
}

/* 63 bits of the FNV-1a hash: a TARGETID for what has a name only. */
static int64_t hash(const char *text)
{
    uint64_t h = 14695981039346656037u;
    for (; *text; text++)
        h = (h ^ (unsigned char)*text) * 1099511628211u;
    return (int64_t)(h >> 1 ? h >> 1 : 1);
}

/* The only value of a column in the first table of one row that has it; what is no number leaves *out. */
static void only_value(const spx_fits *f, const char *column, double *out)
{
    for (size_t i = 1; i < f->nhdu; i++) {
        size_t n = 0;
        double *v = NULL;
        spx_err ignored = {0};
        if (f->hdu[i].kind == SPX_FITS_BINTABLE && f->hdu[i].nrow == 1 && spx_fits_find_column(&f->hdu[i], column) &&
            spx_fits_column_f64(f, i, column, &n, &v, &ignored) == SPX_OK && n == 1 && isfinite(v[0]))
            *out = v[0];
        spx_free(v);
    }
}

/* TARGETID of SDSS: plate, MJD and fibre in decimal digits; 0: not all are known. */
static int64_t sdss_target(const spx_fits *f, int32_t *fiber)
{
    const spx_cards *h = &f->hdu[0].header;
    long plate = 0, mjd = 0, number = 0;
    double id = 0;
    if (!spx_cards_int(h, "PLATEID", &plate))
        spx_cards_int(h, "PLATE", &plate);
    spx_cards_int(h, "MJD", &mjd);
    if (!spx_cards_int(h, "FIBERID", &number))
        spx_cards_int(h, "FIBER", &number);
    if (number == 0)
        only_value(f, "FIBERID", &id);
    if (id > 0 && id < 1e4)
        number = (long)id;
    *fiber = number > 0 && number < 10000 ? (int32_t)number : 0;
    return plate > 0 && plate < 100000 && mjd > 0 && mjd < 100000 && *fiber > 0
               ? ((int64_t)plate * 100000 + mjd) * 10000 + *fiber
               : 0;
}

static void identify(const spx_spectrum_file *file, identity *id)
{
    static const char *const ra[] = {"PLUG_RA", "RAOBJ", "RA_OBJ", "OBJRA", "RA_TARG", "RA", NULL};
    static const char *const dec[] = {"PLUG_DEC", "DECOBJ", "DEC_OBJ", "OBJDEC", "DEC_TARG", "DEC", NULL};
    static const char *const when[] = {"MJD-OBS", "UTMJD", "MJD", "LMJD", NULL};
    static const char *const name[] = {"OBJID", "DESIG", "GALAH_ID", "OBJECT", "OBJNAME", "TARGNAME", NULL};
    static const char *const own[] = {"OBSID", "CATALOGID", "SDSS_ID", "SOBJECT_ID", NULL};
    const char *slash = strrchr(file->name, '/');
    const spx_fits *f = file->f;
    *id = (identity){.ra = NAN, .dec = NAN, .when = NAN, .rows = 1};
    clean_text(id->file, sizeof id->file, slash ? slash + 1 : file->name);
    for (size_t i = 0; i < file->found->n; i++)
        id->rows = file->found->s[i].row + 1 > id->rows ? file->found->s[i].row + 1 : id->rows;
    if (f->nhdu > 0) {
        char text[72];
        long number = 0;
        const spx_cards *h = &f->hdu[0].header;
        for (const char *const *k = name; *k && !id->object[0]; k++) {
            if (spx_cards_string(h, *k, text, sizeof text))
                clean_text(id->object, sizeof id->object, text);
            else if (spx_cards_int(h, *k, &number))
                snprintf(id->object, sizeof id->object, "%ld", number);
        }
        (void)first_double(f, when, &id->when);
        if (first_double(f, ra, &id->ra))
            (void)first_double(f, dec, &id->dec);
        only_value(f, "PLUG_RA", &id->ra); /* SPECOBJ knows better */
        only_value(f, "PLUG_DEC", &id->dec);
        id->target = sdss_target(f, &id->fiber);
        for (const char *const *k = own; *k && id->target == 0; k++)
            if (spx_cards_int(h, *k, &number) && number > 0)
                id->target = number;
    }
    id->by_file = id->target == 0 && !id->object[0];
    if (id->target == 0)
        id->target = hash(id->object[0] ? id->object : id->file);
}

/* Are these files arms of one observation? Same star, same time, and no arm in both. */
static int belong_together(const spx_spectrum_file *a, const identity *ia, const spx_spectrum_file *b,
                           const identity *ib)
{
    if (ia->rows != 1 || ib->rows != 1 || ia->target != ib->target || !ia->object[0] || !(ia->when == ib->when))
        return 0;
    for (size_t i = 0; i < a->found->n; i++)
        for (size_t k = 0; k < b->found->n; k++)
            if (strcmp(a->found->s[i].arm, b->found->s[k].arm) == 0)
                return 0;
    return 1;
}

static spx_status make_fibermap(size_t n, const identity *id, spx_table **out, spx_err *e)
{
    int64_t *target = spx_alloc(n, sizeof *target, e);
    int32_t *fiber = spx_alloc(n, sizeof *fiber, e);
    double *ra = spx_alloc(n, sizeof *ra, e), *dec = spx_alloc(n, sizeof *dec, e);
    char(*object)[NAME] = spx_alloc(n, sizeof *object, e), (*file)[FILE_NAME] = spx_alloc(n, sizeof *file, e);
    spx_table *t = target && fiber && ra && dec && object && file ? spx_table_new(n, e) : NULL;
    int place = 1, named = 0;
    spx_status st = t ? SPX_OK : SPX_EIO;
    for (size_t i = 0; i < n && t; i++) {
        target[i] = id[i].target;
        fiber[i] = id[i].fiber;
        ra[i] = id[i].ra;
        dec[i] = id[i].dec;
        memcpy(object[i], id[i].object, sizeof *object);
        memcpy(file[i], id[i].file, sizeof *file);
        place = place && isfinite(ra[i]) && isfinite(dec[i]);
        named = named || object[i][0];
    }
    if (st == SPX_OK)
        st = spx_table_add(t, "TARGETID", H5T_NATIVE_INT64, NULL, target, e);
    if (st == SPX_OK)
        st = spx_table_add(t, "FIBER", H5T_NATIVE_INT32, NULL, fiber, e);
    if (st == SPX_OK && place)
        st = spx_table_add(t, "TARGET_RA", H5T_NATIVE_DOUBLE, "degree", ra, e);
    if (st == SPX_OK && place)
        st = spx_table_add(t, "TARGET_DEC", H5T_NATIVE_DOUBLE, "degree", dec, e);
    if (st == SPX_OK && named)
        st = spx_table_add_strings(t, "OBJECT", NAME, object[0], e);
    if (st == SPX_OK)
        st = spx_table_add_strings(t, "FILENAME", FILE_NAME, file[0], e);
    spx_free(target);
    spx_free(fiber);
    spx_free(ra);
    spx_free(dec);
    spx_free(object);
    spx_free(file);
    if (st == SPX_OK)
        *out = t;
    else
        spx_table_free(t);
    return st;
}

/* ---- what a user should hear ---- */

typedef struct {
    size_t count[4]; /* files without errors, medium, frame; not barycentric */
    const char *first[4];
    const char *blank;   /* file with orders that were left out */
    size_t nblank;       /* so many of them, in all files */
    char correction[64]; /* of the first that is not barycentric: what its header says, or empty */
} sayings;

static void hear(sayings *said, const char *file, size_t k, int is)
{
    if (is && said->count[k]++ == 0)
        said->first[k] = file;
}

/* The correction that the header of a file knows, which nobody applies here. */
static void find_correction(const spx_fits *f, char *text, size_t size)
{
    static const char *const key[] = {"ESO QC VRAD BARYCOR",
                                      "ESO DRS BERV",
                                      "TNG DRS BERV",
                                      "OHP DRS BERV",
                                      "BARYCORR",
                                      "BERV",
                                      "VHELIO",
                                      "HELIOVEL",
                                      "HELIO_RV"};
    double v;
    for (size_t i = 0; f->nhdu > 0 && i < sizeof key / sizeof *key && !text[0]; i++)
        if (spx_cards_double(&f->hdu[0].header, key[i], &v) && fabs(v) < 100)
            snprintf(text, size, " (%s = %g)", key[i], v);
}

static spx_status say(const sayings *said, spx_text *notes, spx_err *e)
{
    static const char *const text[] = {
        "no errors are given: they are taken from the scatter of neighbouring pixels, so that chi squared says little",
        "wavelengths are taken for vacuum, as the file does not say: --air otherwise",
        "wavelengths are taken as they are: whether the motion of the Earth was taken out is not said",
        "the motion of the Earth is in the wavelengths, and in velocities that are measured on them"};
    spx_status st = SPX_OK;
    if (said->nblank > 0)
        st = spx_text_add(notes, e, "%s: orders without wavelengths are left out: %zu\n", said->blank, said->nblank);
    for (int k = 0; k < 4 && st == SPX_OK; k++) {
        const char *more = k >= 2 ? said->correction : "";
        if (said->count[k] == 1)
            st = spx_text_add(notes, e, "%s: %s%s\n", said->first[k], text[k], more);
        else if (said->count[k] > 1)
            st = spx_text_add(notes, e, "%s and %zu other files: %s%s\n", said->first[k], said->count[k] - 1, text[k],
                              more);
    }
    return st;
}

/* Unit of the fluxes, as header or column say. */
static void unit_of_flux(const spx_spectrum_file *file, const spx_fits_spectrum *s, char unit[64])
{
    if (s->flux.hdu < 0)
        return;
    const spx_fits_hdu *h = &file->f->hdu[s->flux.hdu];
    char text[72] = "";
    if (s->flux.column >= 0)
        memcpy(text, h->col[s->flux.column].unit, sizeof text);
    if (!text[0])
        (void)spx_cards_string(&h->header, "BUNIT", text, sizeof text);
    if (!text[0] && strcmp(s->arm, "sdss") == 0)
        snprintf(text, sizeof text, "10**-17 erg/(s cm2 Angstrom)");
    clean_text(unit, 64, text);
}

/* 8 bytes a value where 4 are not enough: for doubles, and for inverse variances of fluxes in cgs units. */
static int precision_of(const builder *b, size_t n, const spx_spectrum_file *file)
{
    static const double MOST = 1e30;
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < file[i].found->n; k++) {
            const spx_fits_values *v = &file[i].found->s[k].flux;
            if (v->hdu < 0)
                return 8;
            const spx_fits_hdu *h = &file[i].f->hdu[v->hdu];
            if (v->column < 0 ? h->bitpix == -64 : h->col[v->column].code == 'D')
                return 8;
        }
    for (size_t i = 0; i < b->nloaded; i++)
        for (size_t k = 0; k < b->l[i].n; k++)
            if (b->l[i].ivar[k] > MOST || fabs(b->l[i].flux[k]) > MOST)
                return 8;
    return 4;
}

/* ---- the block ---- */

/* Row of the block at which each file begins, and who its rows are. */
static spx_status give_rows(size_t n, const spx_spectrum_file *file, size_t *first, identity **row, size_t *nrow,
                            spx_err *e)
{
    size_t total = 0;
    identity *id = spx_alloc(n, sizeof *id, e);
    if (!id)
        return SPX_EIO;
    *nrow = 0;
    for (size_t i = 0; i < n; i++) {
        size_t k = 0;
        identify(&file[i], &id[i]);
        while (k < i && !(belong_together(&file[k], &id[k], &file[i], &id[i])))
            k++;
        first[i] = k < i ? first[k] : *nrow;
        *nrow += k < i ? 0 : id[i].rows;
        total = *nrow;
    }
    *row = spx_alloc(total, sizeof **row, e);
    for (size_t i = n; *row && i-- > 0;) /* the first file of a row names it */
        for (size_t r = 0; r < id[i].rows; r++) {
            identity *to = &(*row)[first[i] + r];
            *to = id[i];
            if (id[i].rows > 1 && id[i].by_file) { /* of stars that nobody names, not of one */
                char name[FILE_NAME + 24];
                snprintf(name, sizeof name, "%s %zu", id[i].file, r);
                to->target = hash(name);
                to->fiber = (int32_t)r;
            }
        }
    spx_free(id);
    return *row ? SPX_OK : SPX_EIO;
}

/* All spectra of a file behind those that are there. */
static spx_status load_file(builder *b, const spx_spectrum_file *file, sayings *said, spx_err *e)
{
    kept k = {0};
    int no[4] = {0};
    size_t blank = 0;
    const size_t before = b->nloaded;
    spx_status st = SPX_OK;
    for (size_t j = 0; j < file->found->n && st == SPX_OK; j++) {
        loaded *l = &b->l[b->nloaded];
        const spx_fits_spectrum *s = &file->found->s[j];
        spx_fits_noise noise = s->kind;
        st = load(file, s, &k, l, &noise, e);
        if (st == SPX_OK && l->n < 2) {
            loaded_free(l);
            *l = (loaded){0};
            blank++;
            continue;
        }
        no[0] = no[0] || noise == SPX_NOISE_NONE;
        no[1] = no[1] || s->medium < 0;
        no[2] = no[2] || s->barycentric < 0;
        no[3] = no[3] || s->barycentric == 0;
        b->nloaded++; /* to be freed, whatever became of it */
    }
    if (st == SPX_OK && blank == file->found->n)
        st =
            spx_fail(e, SPX_EINPUT, "%s: has no wavelengths: all are 0 or no numbers (--generic keeps it)", file->name);
    spx_free(k.wave.v);
    spx_free(k.flux.v);
    spx_free(k.noise.v);
    spx_free(k.mask.v);
    if (st != SPX_OK) {
        for (; b->nloaded > before; b->nloaded--) {
            loaded_free(&b->l[b->nloaded - 1]);
            b->l[b->nloaded - 1] = (loaded){0};
        }
        return st;
    }
    said->blank = said->nblank == 0 ? file->name : said->blank;
    said->nblank += blank;
    for (size_t j = 0; j < 4; j++)
        hear(said, file->name, j, no[j]);
    if (no[2] || no[3])
        find_correction(file->f, said->correction, sizeof said->correction);
    return SPX_OK;
}

/* Loads all files, and copies those that could be read to file[*m]; end[]: number of spectra up to the end of each. */
static spx_status load_all(builder *b, size_t n, spx_spectrum_file *from, size_t *m, spx_spectrum_file *file,
                           size_t *end, spx_failures *failed, sayings *said, spx_err *e)
{
    spx_status st = SPX_OK;
    *m = 0;
    for (size_t i = 0; i < n && st == SPX_OK; i++) {
        st = spx_failures_note(failed, load_file(b, &from[i], said, e), &from[i].left_out, e);
        if (from[i].left_out)
            continue;
        file[*m] = from[i];
        end[(*m)++] = b->nloaded;
    }
    return st == SPX_OK && *m == 0 ? spx_fail(e, SPX_EINPUT, "no spectrum could be read: see above") : st;
}

spx_status spx_fits_spectra_write(size_t nfile, spx_spectrum_file *files, hid_t out, spx_failures *failed,
                                  spx_text *notes, spx_err *e)
{
    builder b = {0};
    sayings said = {0};
    identity *row = NULL;
    size_t n = 0, *first = spx_alloc(nfile, sizeof *first, e), *end = spx_alloc(nfile, sizeof *end, e);
    spx_spectrum_file *file = spx_alloc(nfile, sizeof *file, e);
    for (size_t i = 0; i < nfile; i++)
        b.room += files[i].found->n;
    b.l = spx_alloc(b.room, sizeof *b.l, e);
    spx_status st = first && end && file && b.l ? SPX_OK : SPX_EIO;
    if (st == SPX_OK)
        st = load_all(&b, nfile, files, &n, file, end, failed, &said, e);
    if (st == SPX_OK)
        st = give_rows(n, file, first, &row, &b.s.nspec, e);
    for (size_t i = 0, j = 0; i < n && st == SPX_OK; i++)
        for (; j < end[i] && st == SPX_OK; j++) {
            loaded *l = &b.l[j];
            const size_t narm = b.s.narm;
            l->row = first[i] + l->from->row;
            st = place(&b, file[i].name, l, e);
            b.nplaced++;
            if (st == SPX_OK && b.s.narm > narm)
                unit_of_flux(&file[i], l->from, b.s.arm[narm].unit);
        }
    if (st == SPX_OK)
        st = fill(&b, e);
    if (st == SPX_OK)
        st = make_fibermap(b.s.nspec, row, &b.s.fibermap, e);
    if (st == SPX_OK && file[0].f->nhdu > 0)
        st = spx_cards_copy(&b.s.header, &file[0].f->hdu[0].header, e);
    if (st == SPX_OK)
        st = spx_spectra_write(out, &b.s, precision_of(&b, n, file), e);
    if (st == SPX_OK)
        st = say(&said, notes, e);
    for (size_t i = 0; i < b.nloaded; i++)
        loaded_free(&b.l[i]);
    spx_free(b.l);
    spx_free(first);
    spx_free(end);
    spx_free(file);
    spx_free(row);
    spx_spectra_free(&b.s);
    return st;
}
