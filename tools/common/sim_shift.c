#include "common/sim_shift.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/parse.h"

enum { MAX_WORDS = 8 };

/* File that is being read. */
typedef struct {
    const spx_lines *lines;
    spx_sim_motion *m;
    uint64_t seed;
    char camera;
    spx_sim_point *point;
    size_t npoint, capacity;
    size_t di, dj; /* degrees of the polynomial through the points */
} reading;

static int number(const char *word, double *v)
{
    char *end;
    *v = strtod(word, &end);
    return end != word && *end == '\0' && isfinite(*v);
}

static int degree(const char *word, size_t *v)
{
    double d;
    if (!number(word, &d) || !(d >= 0 && d < SPX_SIM_MOTION_TERMS) || d != floor(d))
        return 0;
    *v = (size_t)d;
    return 1;
}

static spx_status bad(const reading *r, const char *form, spx_err *e)
{
    return spx_fail(e, SPX_EINPUT, "%s:%zu: should be '%s'", r->lines->name, r->lines->number, form);
}

static spx_status read_point(reading *r, size_t n, char **word, spx_err *e)
{
    spx_sim_point p = {0};
    double *v[] = {&p.fibre, &p.wavelength, &p.value[0], &p.value[1], &p.value[2], &p.value[3]};
    int good = n == 5 || n == 7;
    for (size_t k = 1; k < n && good; k++)
        good = number(word[k], v[k - 1]);
    if (!good || p.fibre != floor(p.fibre))
        return bad(r, "at FIBER WAVELENGTH DX DY [WX WY]", e);
    spx_sim_point *more = spx_grow(r->point, r->npoint, 1, &r->capacity, sizeof *more, e);
    if (more == NULL)
        return SPX_EIO;
    r->point = more;
    r->point[r->npoint++] = p;
    return SPX_OK;
}

/* One line: x|y|wx|wy I J C, x|y|wx|wy fiber|bundle RMS, degree I J, at FIBER WAVELENGTH DX DY [WX WY]. */
static spx_status read_line(reading *r, char *line, spx_err *e)
{
    static const char *const name[SPX_SIM_NMOTION] = {"x", "y", "wx", "wy"};
    char *word[MAX_WORDS], *save = NULL;
    size_t n = 0, i, j;
    double c;
    for (char *w = strtok_r(line, " \t", &save); w != NULL && n < MAX_WORDS; w = strtok_r(NULL, " \t", &save))
        word[n++] = w;
    if (n == 0)
        return SPX_OK;
    if (strcmp(word[0], "at") == 0)
        return read_point(r, n, word, e);
    if (strcmp(word[0], "degree") == 0)
        return n == 3 && degree(word[1], &r->di) && degree(word[2], &r->dj)
                   ? SPX_OK
                   : bad(r, "degree FIBER WAVELENGTH, 0 to 9", e);
    int q = 0;
    while (q < SPX_SIM_NMOTION && strcmp(word[0], name[q]) != 0)
        q++;
    if (q == SPX_SIM_NMOTION)
        return bad(r, "x|y|wx|wy I J COEFFICIENT, x|y|wx|wy fiber|bundle RMS, at ..., or degree ...", e);
    if (n == 3 && (strcmp(word[1], "fiber") == 0 || strcmp(word[1], "bundle") == 0)) {
        if (!number(word[2], &c) || c < 0)
            return bad(r, "x|y|wx|wy fiber|bundle RMS", e);
        spx_sim_motion_scatter(r->m, (spx_sim_quantity)q, word[1][0] == 'b', c, r->seed, r->camera);
        return SPX_OK;
    }
    if (n != 4 || !degree(word[1], &i) || !degree(word[2], &j) || !number(word[3], &c))
        return bad(r, "x|y|wx|wy I J COEFFICIENT, I and J from 0 to 9", e);
    spx_sim_motion_term(r->m, (spx_sim_quantity)q, i, j, c);
    return SPX_OK;
}

spx_status spx_sim_shift_lines(spx_lines *lines, uint64_t seed, char camera, spx_sim_motion *m, spx_err *e)
{
    reading r = {.lines = lines, .m = m, .seed = seed, .camera = camera, .di = 2, .dj = 3};
    spx_status st = SPX_OK;
    size_t n = 0;
    for (char *p; st == SPX_OK && (p = spx_lines_next(lines)) != NULL; n++)
        st = read_line(&r, p, e);
    st = spx_lines_close(lines, st, e);
    if (st == SPX_OK && n == 0)
        st = spx_fail(e, SPX_EINPUT, "%s: says nothing of a motion", lines->name);
    if (st == SPX_OK && r.npoint > 0 && (st = spx_sim_motion_fit(m, r.npoint, r.point, r.di, r.dj, e)) != SPX_OK)
        st = spx_err_at(e, lines->name, NULL);
    spx_free(r.point);
    return st;
}

spx_status spx_sim_shift(const char *text, spx_run *s, uint64_t seed, char camera, spx_sim_motion *m, spx_err *e)
{
    static const char form[] = "DX,DY[,WX,WY], wave[:SIZE], or a file (./wave)";
    double v[SPX_SIM_NMOTION] = {0}, size = 1;
    spx_lines lines;
    size_t n;
    spx_status st;
    if (strncmp(text, "wave", 4) == 0 && (text[4] == '\0' || text[4] == ':')) {
        st = text[4] == ':' ? spx_parse_double(text + 5, "--shift", &size, e) : SPX_OK;
        if (st == SPX_OK)
            spx_sim_motion_wave(m, size, seed, camera);
        return st;
    }
    if (strchr("+-.0123456789", text[0]) != NULL && strchr(text, ',') != NULL) {
        st = spx_parse_doubles(text, ',', "--shift", form, SPX_SIM_NMOTION, v, &n, e);
        if (st == SPX_OK && n != 2 && n != 4)
            st = spx_fail(e, SPX_EUSAGE, "--shift: '%s' should be %s", text, form);
        for (int q = 0; q < SPX_SIM_NMOTION && st == SPX_OK; q++)
            spx_sim_motion_term(m, (spx_sim_quantity)q, 0, 0, v[q]);
        return st;
    }
    st = spx_run_text_input(s, text, &lines, e);
    return st == SPX_OK ? spx_sim_shift_lines(&lines, seed, camera, m, e) : st;
}
