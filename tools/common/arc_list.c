/* Reads line lists of arcs (common/arc_list.h). */
#include "common/arc_list.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/lines.h"
#include "base/log.h"
#include "base/mem.h"
#include "num/wave.h"

/* A line, and where it is in the file. */
typedef struct {
    spx_arc_line line;
    size_t number;
} listed;

/* Value of Roman figures up to VIII; 0: they are none. */
static int roman(const char *s)
{
    static const char *const figures[] = {"I", "II", "III", "IV", "V", "VI", "VII", "VIII"};
    for (int k = 0; k < 8; k++)
        if (strcmp(s, figures[k]) == 0)
            return k + 1;
    return 0;
}

/* Symbol and ion of "Ar", "ArI", "OH". */
static int element(char *word, spx_arc_line *to)
{
    size_t symbol = isupper((unsigned char)word[0]) ? islower((unsigned char)word[1]) ? 2 : 1 : 0;
    for (const char *p = word; *p != '\0'; p++)
        if (!isalpha((unsigned char)*p))
            return 0;
    to->ion = roman(word + symbol);
    if (symbol == 0 || to->ion == 0) {
        symbol = strlen(word);
        to->ion = 0;
    }
    if (symbol == 0 || symbol >= sizeof to->element)
        return 0;
    memcpy(to->element, word, symbol);
    to->element[symbol] = '\0';
    return 1;
}

/* A number that fills the word. */
static int number(const char *word, double *to)
{
    char *end;
    *to = strtod(word, &end);
    return end != word && *end == '\0' && isfinite(*to);
}

static spx_status one_line(const spx_lines *l, char *text, spx_medium medium, spx_arc_line *to, spx_err *e)
{
    char *word[6], *rest = NULL;
    size_t n = 0;
    double quality = SPX_ARC_BRIGHT;
    *to = (spx_arc_line){0};
    for (char *p = strtok_r(text, " \t", &rest); p != NULL && n < 6; p = strtok_r(NULL, " \t", &rest))
        word[n++] = p;
    if (n < 2 || n > 4 || !element(word[0], to) || !number(word[1], &to->wavelength) ||
        (n > 2 && !number(word[2], &quality)) || (n > 3 && !number(word[3], &to->intensity)))
        return spx_fail(e, SPX_EINPUT,
                        "%s:%zu: should be 'ELEMENT WAVELENGTH [QUALITY [INTENSITY]]', such as NeI 6404.018 1", l->name,
                        l->number);
    if (!(to->wavelength >= 100.0 && to->wavelength <= 1e7))
        return spx_fail(e, SPX_EINPUT, "%s:%zu: %s is no wavelength in Angstrom", l->name, l->number, word[1]);
    if (quality != floor(quality) || quality < SPX_ARC_BRIGHT || quality > SPX_ARC_FAINT)
        return spx_fail(e, SPX_EINPUT, "%s:%zu: quality %s: should be 1 (bright), 2 or 3 (faint)", l->name, l->number,
                        word[2]);
    if (!(to->intensity >= 0))
        return spx_fail(e, SPX_EINPUT, "%s:%zu: intensity %s is negative", l->name, l->number, word[3]);
    to->quality = (int)quality;
    if (medium == SPX_AIR)
        to->wavelength = spx_air_to_vacuum(to->wavelength);
    return SPX_OK;
}

static int order(const void *a, const void *b)
{
    const listed *p = a, *q = b;
    const int c = spx_arc_order(&p->line, &q->line);
    return c != 0 ? c : (p->number > q->number) - (p->number < q->number);
}

static spx_status read_all(const char *name, spx_medium medium, spx_arc_line **line, size_t *n, spx_err *e)
{
    spx_lines l;
    listed *all = NULL;
    size_t capacity = 0;
    spx_status st = spx_lines_open(&l, name, e);
    if (st != SPX_OK)
        return st;
    for (char *text; st == SPX_OK && (text = spx_lines_next(&l)) != NULL;) {
        listed *more = spx_grow(all, *n, 1, &capacity, sizeof *more, e);
        if (more == NULL) {
            st = SPX_EIO;
            break;
        }
        all = more;
        all[*n].number = l.number;
        st = one_line(&l, text, medium, &all[*n].line, e);
        *n += st == SPX_OK;
    }
    st = spx_lines_close(&l, st, e);
    if (st == SPX_OK && *n == 0)
        st = spx_fail_at(e, SPX_EINPUT, name, NULL, "give lines as 'ELEMENT WAVELENGTH QUALITY INTENSITY'",
                         "has no lines");
    if (st == SPX_OK && (*line = spx_alloc(*n, sizeof **line, e)) == NULL)
        st = SPX_EIO;
    if (st == SPX_OK)
        qsort(all, *n, sizeof *all, order);
    for (size_t i = 0; i < *n && st == SPX_OK; i++) {
        (*line)[i] = all[i].line;
        if (i > 0 && all[i].line.wavelength == all[i - 1].line.wavelength)
            st = spx_fail(e, SPX_EINPUT, "%s:%zu: %s %.4f is in line %zu already", name, all[i].number,
                          all[i].line.element, all[i].line.wavelength, all[i - 1].number);
    }
    spx_free(all);
    return st;
}

/* Fewest lines that tell the medium. */
enum { FEWEST = 4 };

spx_status spx_arc_list_read(const char *name, spx_medium medium, spx_arc_line **line, size_t *n, spx_err *e)
{
    spx_arc_agreement a;
    *line = NULL;
    *n = 0;
    spx_status st = read_all(name, medium, line, n, e);
    if (st == SPX_OK)
        st = spx_arc_medium(*n, *line, 0, &a, e);
    const size_t other = st != SPX_OK ? 0 : medium == SPX_AIR ? a.twice : a.air;
    if (st == SPX_OK && other >= FEWEST && other > 2 * a.vacuum)
        st = spx_fail_at(e, SPX_EINPUT, name, NULL, medium == SPX_AIR ? "give --medium vacuum" : "give --medium air",
                         "%zu of %zu lines are at known wavelengths in %s, %zu in %s", other, a.compared,
                         medium == SPX_AIR ? "vacuum" : "air", a.vacuum, medium == SPX_AIR ? "air" : "vacuum");
    if (st == SPX_OK)
        st = spx_arc_medium(*n, *line, 1, &a, e);
    const size_t strange = st != SPX_OK ? 0 : medium == SPX_AIR ? a.twice : a.air;
    if (st == SPX_OK && strange >= FEWEST && 2 * strange > a.compared && strange > 2 * a.vacuum)
        spx_warn(
            "%s: %zu of %zu lines of elements that are not known here are where lines of known ones are in %s, %zu "
            "where they are in %s: if they are in %s, give --medium %s",
            name, strange, a.compared, medium == SPX_AIR ? "vacuum" : "air", a.vacuum,
            medium == SPX_AIR ? "air" : "vacuum", medium == SPX_AIR ? "vacuum" : "air",
            medium == SPX_AIR ? "vacuum" : "air");
    if (st != SPX_OK) {
        spx_free(*line);
        *line = NULL;
        *n = 0;
    }
    return st;
}

spx_status spx_arc_list_tells_medium(size_t n, const spx_arc_line *line, int *tells, spx_err *e)
{
    spx_arc_agreement known = {0}, strange = {0};
    spx_status st = spx_arc_medium(n, line, 0, &known, e);
    if (st == SPX_OK)
        st = spx_arc_medium(n, line, 1, &strange, e);
    *tells = known.vacuum >= FEWEST || (strange.vacuum >= FEWEST && 2 * strange.vacuum > strange.compared);
    return st;
}
