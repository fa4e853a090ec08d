/* Reads spectra and curves from text files (convert/spectrum/text.h). */
#include "convert/spectrum/text.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/lines.h"
#include "base/mem.h"

/* Growing array of values. */
typedef struct {
    double *v;
    size_t n, capacity;
} column;

static spx_status append_value(column *c, double v, spx_err *e)
{
    double *more = spx_grow(c->v, c->n, 1, &c->capacity, sizeof *more, e);
    if (more == NULL)
        return SPX_EIO;
    c->v = more;
    c->v[c->n++] = v;
    return SPX_OK;
}

static spx_status read_file(const char *name, column *wave, column *flux, spx_err *e)
{
    spx_lines lines;
    spx_status st = spx_lines_open(&lines, name, e);
    if (st != SPX_OK)
        return st;
    for (char *p, *q, *r; st == SPX_OK && (p = spx_lines_next(&lines)) != NULL;) {
        double w = strtod(p, &q), x = strtod(q, &r);
        if (q == p || r == q || !isfinite(w) || !isfinite(x))
            st = spx_fail(e, SPX_EINPUT, "%s:%zu: is not a wavelength and a value", name, lines.number);
        else if (w <= 0.0 || (wave->n > 0 && w <= wave->v[wave->n - 1]))
            st = spx_fail(e, SPX_EINPUT, "%s:%zu: wavelengths do not increase: sort the file", name, lines.number);
        else if ((st = append_value(wave, w, e)) == SPX_OK)
            st = append_value(flux, x, e);
    }
    st = spx_lines_close(&lines, st, e);
    if (st == SPX_OK && wave->n < 2)
        st = spx_fail(e, SPX_EINPUT, "%s: has %zu lines with a wavelength and a value: at least 2 are needed", name,
                      wave->n);
    return st;
}

spx_status spx_textspec_curve(const char *name, size_t *n, double **wave, double **value, spx_err *e)
{
    column w = {0}, x = {0};
    spx_status st = read_file(name, &w, &x, e);
    if (st != SPX_OK) {
        spx_free(w.v);
        spx_free(x.v);
        w = x = (column){0};
    }
    *n = w.n;
    *wave = w.v;
    *value = x.v;
    return st;
}

/* Adds a spectrum; the first defines the wavelengths. */
static spx_status add_spectrum(const char *name, size_t nspec, column *wave, column *flux, spx_err *e)
{
    column w = {0}, x = {0};
    spx_status st = read_file(name, &w, &x, e);
    if (st == SPX_OK && nspec > 0 && (w.n != wave->n || memcmp(w.v, wave->v, w.n * sizeof *w.v) != 0))
        st = spx_fail_at(e, SPX_EINPUT, name, NULL, NULL,
                         "has other wavelengths than the first file of the list: resample one of them");
    for (size_t i = 0; i < w.n && st == SPX_OK; i++) {
        if (nspec == 0)
            st = append_value(wave, w.v[i], e);
        if (st == SPX_OK)
            st = append_value(flux, x.v[i], e);
    }
    spx_free(w.v);
    spx_free(x.v);
    return st;
}

spx_status spx_textspec_read(const char *list, const char *arm, spx_spectra *out, spx_err *e)
{
    memset(out, 0, sizeof *out);
    spx_lines lines = {.name = list, .file = stdin};
    spx_status st = strcmp(list, "-") == 0 ? SPX_OK : spx_lines_open(&lines, list, e);
    if (st != SPX_OK)
        return st;
    const char *slash = strrchr(list, '/');
    size_t nspec = 0;
    column wave = {0}, flux = {0};
    for (char *p; st == SPX_OK && (p = spx_lines_next(&lines)) != NULL;) {
        char name[4096];
        int m = *p == '/' || slash == NULL ? snprintf(name, sizeof name, "%s", p)
                                           : snprintf(name, sizeof name, "%.*s/%s", (int)(slash - list), list, p);
        if (m < 0 || (size_t)m >= sizeof name)
            st = spx_fail_at(e, SPX_EINPUT, list, NULL, NULL, "a file name is too long");
        else if ((st = add_spectrum(name, nspec, &wave, &flux, e)) == SPX_OK)
            nspec++;
    }
    st = spx_lines_close(&lines, st, e);
    if (st == SPX_OK && nspec == 0)
        st = spx_fail(e, SPX_EINPUT, "%s: names no files: write one name a line", list);
    if (st != SPX_OK) {
        spx_free(wave.v);
        spx_free(flux.v);
        return st;
    }
    spx_arm *a = &out->arm[0];
    out->nspec = nspec;
    out->narm = 1;
    (void)snprintf(a->name, sizeof a->name, "%s", arm);
    (void)snprintf(a->unit, sizeof a->unit, "electron/Angstrom");
    a->nwave = wave.n;
    a->wavelength = wave.v;
    a->flux = flux.v;
    return SPX_OK;
}
