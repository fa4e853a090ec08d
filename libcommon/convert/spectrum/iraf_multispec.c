/* Computes wavelengths of IRAF's multispec headers: WAT2 text, Chebyshev, Legendre and spline terms
 * (convert/spectrum/iraf_multispec.h). */
#include "convert/spectrum/iraf_multispec.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "fits/cards.h"

enum { WAT_TEXT = 68, MOST_TERMS = 64 };

/* Concatenates the cards WAT2_001, WAT2_002 ...; blanks at the end of a card, which some writers drop, are significant.
 * NULL: no memory, or no such cards (e->code tells). */
static char *wat_text(const spx_cards *h, spx_err *e)
{
    size_t n = 0, at = 0;
    for (size_t i = 0; i < h->n; i++)
        n += strncmp(h->cards + 80 * i, "WAT2_", 5) == 0;
    char *text = n ? spx_alloc(n, WAT_TEXT + 1, e) : NULL;
    for (size_t i = 0; text != NULL && i < h->n; i++) {
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

/* Parses n numbers at *p into v[n]; 0: fewer. */
static int parse_numbers(const char **p, size_t n, double *v)
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

/* Adds the terms of a non-linear dispersion function, from *p on, to w[n]; 0: malformed, or an unknown function. */
static int add_terms(const char *p, size_t n, double *w)
{
    int terms = 0;
    for (;; terms++) {
        double head[3], range[3], c[MOST_TERMS];
        const char *before = p;
        if (!parse_numbers(&p, 1, head)) {
            while (isspace((unsigned char)*before))
                before++;
            return terms > 0 && *before == '"';
        }
        if (!parse_numbers(&p, 2, head + 1) || !parse_numbers(&p, 3, range))
            return 0;
        const int kind = (int)head[2];
        const double m = range[0] + (kind == 3 ? 3 : kind == 4 ? 1 : 0);
        if (head[2] != floor(head[2]) || kind < 1 || kind > 4 || !(m >= 1) || m != floor(m) || m > MOST_TERMS ||
            range[0] < 1 || !(range[2] > range[1]) || !parse_numbers(&p, (size_t)m, c))
            return 0;
        for (size_t i = 0; i < n; i++)
            w[i] += head[0] * (head[1] + dispersion(kind, range[1], range[2], (size_t)m, c, (double)i + 1));
    }
}

spx_status spx_fits_multispec(const spx_cards *h, size_t order, size_t n, double *w, spx_err *e)
{
    char name[32], *text = wat_text(h, e);
    double v[9];
    if (text == NULL)
        return e->code != SPX_OK ? e->code : spx_fail(e, SPX_EINPUT, "the header has no keywords WAT2_nnn");
    snprintf(name, sizeof name, " spec%zu ", order + 1);
    const char *p = strstr(text, name);
    if (p == NULL) { /* spec12="..." */
        snprintf(name, sizeof name, " spec%zu=", order + 1);
        p = strstr(text, name);
    }
    p = p != NULL ? strchr(p, '"') : NULL;
    int ok = p != NULL;
    if (ok) {
        p++;
        ok = parse_numbers(&p, 9, v) && v[6] > -1;
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
