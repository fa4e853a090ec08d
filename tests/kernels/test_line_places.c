/* Checks that lines which lie elsewhere than their wavelengths say are found (shift/line_places.h), on spectra of the
 * listed night sky with noise, and of one with lines of other strengths, and that lines of another list are not found.
 * Seeds are printed with a failure.
 *
 * Tolerances: offsets are looked for in steps of half a row; the nearest step and noise put them at most 0.8 off. */
#include <math.h>
#include <string.h>

#include "../must.h"
#include "base/mem.h"
#include "check.h"
#include "random.h"
#include "shift/line_places.h"
#include "spectral/lines.h"

enum { NBIN = 2000, NSEED = 20 };

static spx_shift_lines sky(void)
{
    spx_err e = {0};
    spx_line *line;
    spx_shift_lines lines = {0};
    if (spx_sky_lines(&line, &lines.n, &e) != SPX_OK)
        must_have(NULL);
    lines.line = must_have(spx_alloc(lines.n, sizeof *lines.line, &e));
    for (size_t i = 0; i < lines.n; i++)
        lines.line[i] = (spx_shift_line){line[i].wavelength, line[i].strength};
    spx_free(line);
    return lines;
}

typedef struct {
    double first, step;   /* of the bins, Angstrom */
    double offset;        /* bins by which lines are moved */
    int mirrored, others; /* the spectrum runs the other way; lines are at random places */
    double noise;         /* of a bin; a line of strength 1 has an area of 1 */
    double uneven;        /* sigma of ln of what lines have of their listed strength; a fifth of them are absent, then,
                             and as many others of the same strengths at random places */
} recipe;

static void make(const recipe *r, const spx_shift_lines *lines, double *wavelength, double *flux)
{
    for (size_t k = 0; k < NBIN; k++) {
        wavelength[k] = r->first + r->step * (double)k;
        flux[k] = 3 + sin((double)k / 100) + r->noise * gauss();
    }
    for (size_t i = 0; i < lines->n; i++) {
        double at = (lines->line[i].wavelength - r->first) / r->step;
        if (at < 0 || at > NBIN - 1)
            continue;
        const int other = r->others || (r->uneven > 0 && uniform() < 0.2);
        const double strength = lines->line[i].strength * (r->uneven > 0 ? exp(r->uneven * gauss()) : 1);
        at = (other ? NBIN * uniform() : r->mirrored ? NBIN - 1 - at : at) + r->offset;
        for (size_t k = (size_t)fmax(at - 6, 0); k < NBIN && (double)k < at + 6; k++)
            flux[k] += strength * 0.3 * exp(-0.5 * pow(((double)k - at) / 1.3, 2));
    }
}

int main(void)
{
    static const recipe recipes[] = {
        {5700, 0.8, 0, 0, 0, 1, 0},
        {5700, 0.8, 0.75, 0, 0, 0.1, 0},
        {5700, 0.8, 3.2, 0, 0, 0.1, 0},
        {5700, 0.8, -150, 0, 0, 0.1, 0},
        {5700, 0.8, 0, 1, 0, 0.1, 0},
        {5700, 0.8, 40.6, 1, 0, 0.1, 0},
        {7500, 0.8, 0, 0, 0, 1, 0},
        {7500, 0.8, -3.1, 0, 0, 0.3, 0},
        {7500, 0.8, 400, 0, 0, 0.3, 0},
        {7500, 0.8, 7, 1, 0, 0.3, 0},
        {3600, 1.1, 0, 0, 0, 0.3, 0},
        {3600, 1.1, 5, 0, 0, 0.03, 0},
        {7500, 0.8, 0, 0, 1, 1, 0},
        {7500, 0.8, 0, 0, 1, 0.1, 0},
        {5700, 0.8, 0, 0, 1, 1, 0},
        {5700, 0.8, 0, 0, 1, 0.1, 0},
        {6500, 0.8, 0, 0, 0, 1e4, 0},
        /* lines so bright that their wings are where the list has them */
        {5700, 0.8, 2, 0, 0, 0.03, 0},
        {7500, 0.8, -2, 0, 0, 0.001, 0},
        {3600, 1.1, 3, 0, 0, 0.03, 0},
        /* many in bins that are wide: all offsets have some */
        {5700, 2.5, -12, 0, 0, 0.03, 0},
        /* a sky that is not the listed one */
        {5700, 0.8, 3, 0, 0, 0.003, 1},
        {5700, 0.8, 0, 0, 0, 0.3, 1},
        {5700, 0.8, 5.3, 0, 0, 0.3, 1},
        {7500, 0.8, 0, 0, 0, 0.3, 1},
        {7500, 0.8, -6, 0, 0, 0.3, 1},
        {7500, 0.8, 0, 1, 0, 0.3, 1},
    };
    static double wavelength[NBIN], flux[NBIN];
    static uint8_t bad[NBIN];
    spx_err e = {0};
    spx_shift_lines lines = sky();
    memset(bad + 500, 1, 40);
    for (size_t i = 0; i < sizeof recipes / sizeof *recipes; i++) {
        unsigned missed = 0;
        for (unsigned seed = 1; seed <= NSEED; seed++) {
            const recipe *r = &recipes[i];
            const int lost = !r->others && (r->mirrored || fabs(r->offset) > 1);
            spx_line_places p;
            random_start(seed);
            make(r, &lines, wavelength, flux);
            const spx_status st = spx_find_line_places(NULL, NBIN, wavelength, flux, bad, &lines, &p, &e);
            const int silent = p.offset == 0 && !p.mirrored && p.nline == 0, miss = r->uneven > 0 && lost && silent;
            missed += miss;
            CHECK(st == SPX_OK && (miss || (p.mirrored == (r->mirrored && lost) &&
                                            (lost ? fabs(p.offset - r->offset) < 0.8 && p.nline >= 4 : silent))),
                  "recipe %zu, seed %u: status %d, offset %g, mirrored %d, %zu lines, agree %g, here %g", i, seed, st,
                  p.offset, p.mirrored, p.nline, p.agree, p.here);
            CHECK(fabs(p.angstrom - p.offset * r->step) < 1e-9, "recipe %zu: %g Angstrom", i, p.angstrom);
        }
        /* of a sky that is not the list's one in ten may pass in silence, but none gets a wrong place */
        CHECK(missed <= NSEED / 10, "recipe %zu: %u of %d are not found", i, missed, NSEED);
    }
    /* too short, and without lines */
    spx_line_places p = {.offset = 1};
    CHECK(spx_find_line_places(NULL, 200, wavelength, flux, bad, &lines, &p, &e) == SPX_OK && p.offset == 0, "short");
    CHECK(spx_find_line_places(NULL, NBIN, wavelength, flux, NULL, &(spx_shift_lines){0}, &p, &e) == SPX_OK &&
              p.offset == 0,
          "no lines");
    spx_free(lines.line);
    return failures != 0;
}
