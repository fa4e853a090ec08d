/* Marks spectral lines in pictures (common/picture.h). */
#include <math.h>
#include <stdlib.h>

#include "base/mem.h"
#include "common/picture.h"
#include "num/wave.h"
#include "spectral/lines.h"

typedef struct {
    double wavelength; /* vacuum, Angstrom */
    const char *name;
} named_line;

/* Lines that stars are recognised by; vacuum wavelengths (NIST Atomic Spectra Database; of the G band its middle). */
static const named_line star[] = {
    {3934.78, "Ca K"},  {3969.59, "Ca H"}, {4102.89, "Hδ"},   {4305.61, "G band"}, {4341.68, "Hγ"},
    {4862.69, "Hβ"},    {5168.76, ""},     {5174.13, "Mg b"}, {5185.05, ""},       {5271.00, "Fe I"},
    {5891.58, "Na D"},  {5897.56, ""},     {6564.61, "Hα"},   {6709.61, "Li I"},   {7667.01, "K I"},
    {7701.09, ""},      {7774.08, "O I"},  {8185.50, "Na I"}, {8197.08, ""},       {8500.36, ""},
    {8544.44, "Ca II"}, {8664.52, ""},     {8809.18, "Mg I"}, {9231.55, "Pa 9"},   {9548.59, "Pa 8"}};

enum { FIRST_LABEL = 100, LABELS = 60, ROWS = 2 };

/* A mark for each line, and its name in the first row in which it does not touch another one. */
static void mark(spx_picture *p, const named_line *line, size_t n, double lo, double hi, double pixels)
{
    double end[ROWS];
    int label = FIRST_LABEL;
    spx_picture_add(p, "set style textbox opaque noborder margins 0.4,0.2\n");
    for (int r = 0; r < ROWS; r++)
        end[r] = -100;
    for (size_t i = 0; i < n && label < FIRST_LABEL + LABELS; i++) {
        const double x = (line[i].wavelength - lo) / (hi - lo) * pixels;
        if (x < 2 || x > pixels - 2)
            continue;
        /* marks end below the names, which lie above the light of most spectra */
        spx_picture_add(p,
                        "set arrow %d from first %.7g, graph 0.0 to first %.7g, graph 0.86 nohead back lw 0.5 dt 3 lc "
                        "rgb '" SPX_GREY "'\n",
                        label, line[i].wavelength, line[i].wavelength);
        size_t letters = 0;
        for (const char *c = line[i].name; *c != '\0'; c++)
            letters += ((unsigned char)*c & 0xC0) != 0x80;
        const double half = 3.6 * (double)letters;
        for (int r = 0; r < ROWS && letters > 0; r++)
            if (x - half > end[r] + 3 && x - half > 0 && x + half < pixels) {
                spx_picture_add(p, "set label %d ", label);
                spx_picture_quote(p, line[i].name);
                spx_picture_add(
                    p,
                    " at first %.7g, graph 1 offset 0, character %g center boxed font 'sans-serif,8.5' tc rgb "
                    "'#505050' front\n",
                    line[i].wavelength, -0.75 - 0.95 * r);
                end[r] = x + half;
                break;
            }
        label++;
    }
}

void spx_picture_unlined(spx_picture *p)
{
    spx_picture_add(p, "do for [i=%d:%d] { unset arrow i; unset label i }\n", FIRST_LABEL, FIRST_LABEL + LABELS - 1);
}

void spx_picture_star_lines(spx_picture *p, spx_medium medium, double v, double lo, double hi, double pixels)
{
    named_line line[sizeof star / sizeof *star];
    const size_t n = sizeof star / sizeof *star;
    for (size_t i = 0; i < n; i++) {
        const double w = star[i].wavelength * (1 + v / SPX_C_KMS);
        line[i] = (named_line){medium == SPX_AIR ? spx_vacuum_to_air(w) : w, star[i].name};
    }
    mark(p, line, n, lo, hi, pixels);
}

static int by_wavelength(const void *a, const void *b)
{
    const double x = ((const named_line *)a)->wavelength, y = ((const named_line *)b)->wavelength;
    return (x > y) - (x < y);
}

void spx_picture_sky_lines(spx_picture *p, spx_medium medium, double lo, double hi, double pixels)
{
    enum { CELLS = 12 };
    static const char *const names[] = {"OH", "[O I]", "Na D", ""};
    spx_line *line = NULL;
    size_t n = 0, m = 0;
    named_line chosen[CELLS + 16];
    double strongest[CELLS] = {0};
    if (p->st == SPX_OK)
        p->st = spx_sky_lines(&line, &n, p->e);
    /* of the many lines of OH the strongest in each twelfth of the axis */
    for (size_t i = 0; i < CELLS; i++)
        chosen[i] = (named_line){0, ""};
    m = CELLS;
    for (size_t i = 0; i < n && p->st == SPX_OK; i++) {
        const double w = medium == SPX_AIR ? spx_vacuum_to_air(line[i].wavelength) : line[i].wavelength;
        const double cell = (w - lo) / (hi - lo) * CELLS;
        if (!(cell >= 0 && cell < CELLS) || line[i].source == SPX_SKY_LINE_REST)
            continue;
        if (line[i].source != SPX_SKY_LINE_OH) {
            if (line[i].strength > 30 && m < sizeof chosen / sizeof *chosen)
                chosen[m++] = (named_line){w, names[line[i].source]};
        } else if (line[i].strength > strongest[(int)cell]) {
            strongest[(int)cell] = line[i].strength;
            chosen[(int)cell] = (named_line){line[i].strength > 20 ? w : 0, names[SPX_SKY_LINE_OH]};
        }
    }
    spx_free(line);
    qsort(chosen, m, sizeof *chosen, by_wavelength);
    mark(p, chosen, m, lo, hi, pixels);
}
