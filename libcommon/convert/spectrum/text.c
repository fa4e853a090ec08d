#include "convert/spectrum/text.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/infile.h"
#include "base/mem.h"

/* Values that grow while they are read. */
typedef struct {
    double *v;
    size_t n, capacity;
} column;

static spx_status append(column *c, double v, spx_err *e)
{
    double *more = spx_grow(c->v, c->n, 1, &c->capacity, sizeof *more, e);
    if (more == NULL)
        return SPX_EIO;
    c->v = more;
    c->v[c->n++] = v;
    return SPX_OK;
}

/* What a line holds before its comment and line end, without leading blanks. */
static char *content(char *line)
{
    line[strcspn(line, "#\r\n")] = '\0';
    return line + strspn(line, " \t");
}

static spx_status read_file(const char *name, column *wave, column *flux, spx_err *e)
{
    FILE *f = fopen(name, "r");
    if (f == NULL)
        return spx_fail_open(name, errno, SPX_EINPUT, e);
    char *line = NULL;
    size_t capacity = 0, number = 0;
    spx_status st = SPX_OK;
    while (st == SPX_OK && getline(&line, &capacity, f) >= 0) {
        char *p = content(line), *q, *r;
        number++;
        if (*p == '\0')
            continue;
        double w = strtod(p, &q), x = strtod(q, &r);
        if (q == p || r == q || !isfinite(w) || !isfinite(x))
            st = spx_fail(e, SPX_EINPUT, "%s:%zu: is not a wavelength and a value", name, number);
        else if (w <= 0.0 || (wave->n > 0 && w <= wave->v[wave->n - 1]))
            st = spx_fail(e, SPX_EINPUT, "%s:%zu: wavelengths do not increase: sort the file", name, number);
        else if ((st = append(wave, w, e)) == SPX_OK)
            st = append(flux, x, e);
    }
    if (st == SPX_OK && ferror(f))
        st = spx_fail(e, SPX_EIO, "%s: cannot read: %s", name, strerror(errno));
    if (st == SPX_OK && wave->n < 2)
        st = spx_fail(e, SPX_EINPUT, "%s: has %zu lines with a wavelength and a value: at least 2 are needed", name,
                      wave->n);
    free(line);
    (void)fclose(f);
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

/* One more spectrum; the first gives the wavelengths. */
static spx_status add(const char *name, size_t nspec, column *wave, column *flux, spx_err *e)
{
    column w = {0}, x = {0};
    spx_status st = read_file(name, &w, &x, e);
    if (st == SPX_OK && nspec > 0 && (w.n != wave->n || memcmp(w.v, wave->v, w.n * sizeof *w.v) != 0))
        st = spx_fail(e, SPX_EINPUT, "%s: has other wavelengths than the first file of the list: resample one of them",
                      name);
    for (size_t i = 0; i < w.n && st == SPX_OK; i++) {
        if (nspec == 0)
            st = append(wave, w.v[i], e);
        if (st == SPX_OK)
            st = append(flux, x.v[i], e);
    }
    spx_free(w.v);
    spx_free(x.v);
    return st;
}

spx_status spx_textspec_read(const char *list, const char *arm, spx_spectra *out, spx_err *e)
{
    memset(out, 0, sizeof *out);
    int standard = strcmp(list, "-") == 0;
    FILE *f = standard ? stdin : fopen(list, "r");
    if (f == NULL)
        return spx_fail_open(list, errno, SPX_EINPUT, e);
    const char *slash = standard ? NULL : strrchr(list, '/');
    char *line = NULL;
    size_t capacity = 0, nspec = 0;
    column wave = {0}, flux = {0};
    spx_status st = SPX_OK;
    while (st == SPX_OK && getline(&line, &capacity, f) >= 0) {
        char *p = content(line), name[4096];
        size_t n = strlen(p);
        while (n > 0 && (p[n - 1] == ' ' || p[n - 1] == '\t'))
            p[--n] = '\0';
        if (n == 0)
            continue;
        int m = *p == '/' || slash == NULL ? snprintf(name, sizeof name, "%s", p)
                                           : snprintf(name, sizeof name, "%.*s/%s", (int)(slash - list), list, p);
        if (m < 0 || (size_t)m >= sizeof name)
            st = spx_fail(e, SPX_EINPUT, "%s: a file name is too long", list);
        else if ((st = add(name, nspec, &wave, &flux, e)) == SPX_OK)
            nspec++;
    }
    if (st == SPX_OK && ferror(f))
        st = spx_fail(e, SPX_EIO, "%s: cannot read: %s", list, strerror(errno));
    if (st == SPX_OK && nspec == 0)
        st = spx_fail(e, SPX_EINPUT, "%s: names no files: write one name a line", list);
    free(line);
    if (!standard)
        (void)fclose(f);
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
