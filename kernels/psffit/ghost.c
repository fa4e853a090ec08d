/* Light that repeats the lines of an arc some rows away (psffit/psffit.h). */
#include <math.h>

#include "psf/psf_math.h"
#include "psffit/psffit.h"

/* Rows from a line within which its companion is looked for; those, and the factor of the ratio of fluxes, within which
 * companions are alike; lines that need to have one, and rows to the next listed line, whose flux takes it in. */
#define FARTHEST 60.0
#define ALIKE    0.7
#define RATIO    1.5
#define CLOSE    3.0
enum { FEWEST = 4 };
/* S/N of light that counts, and of such that would be found. */
#define BRIGHT 10.0
#define SEEN   25.0

/* Row of a line in a fibre. */
static double row_of(const spx_psf *psf, size_t fibre, const spx_psffit_row *line)
{
    return spx_psf_series_value(&psf->y, fibre, line->wavelength + (line->used ? 0 : line->delta));
}

/* The fibre nearest to the middle of those that were fitted. 0: there is none. */
static int middle_of(const spx_psffit *fit, size_t *fibre)
{
    size_t near = fit->nspec;
    for (size_t i = 0; i < fit->nspec; i++) {
        const size_t off = i > fit->nspec / 2 ? i - fit->nspec / 2 : fit->nspec / 2 - i;
        if (off < near && (fit->fibre[i].status & (SPX_PSF_DEAD | SPX_PSF_BUNDLE)) == 0) {
            near = off;
            *fibre = i;
        }
    }
    return near < fit->nspec;
}

/* Is there a line as far from light at row `at` as that is from its line, and at least as bright, or may there be one
 * beyond the CCD? Lines of a comb or an etalon that a list lacks go on like that, and are no companions. */
static int goes_on(const spx_psf *psf, const spx_psffit *fit, size_t fibre, double at, double rows, double flux)
{
    int found = at + rows < 0 || at + rows > (double)fit->ny - 1;
    for (size_t l = 0; l < fit->nline && !found; l++)
        found = fit->line[l].flux > flux / RATIO && fabs(row_of(psf, fibre, &fit->line[l]) - (at + rows)) < ALIKE;
    return found;
}

/* Lines with `part` of their light `rows` away, out->with, of those where that would be found, out->of. */
static void count(const spx_psf *psf, const spx_psffit *fit, size_t fibre, double rows, double part,
                  spx_psffit_ghost *out)
{
    *out = (spx_psffit_ghost){.rows = rows, .part = part};
    for (size_t l = 0; l < fit->nline; l++) {
        const spx_psffit_row *line = &fit->line[l];
        const double to = row_of(psf, fibre, line) + rows;
        int hidden = !(line->listed && sqrt(part) * line->sn > SEEN) || to < 0 || to > (double)fit->ny - 1, seen = 0;
        for (size_t m = 0; m < fit->nline && !hidden; m++) {
            const spx_psffit_row *other = &fit->line[m];
            const double at = row_of(psf, fibre, other), ratio = other->flux / (part * line->flux);
            const int here = !other->listed && fabs(at - to) < ALIKE && ratio > 1 / RATIO && ratio < RATIO;
            hidden = (other->listed && other->sn > BRIGHT && fabs(at - to) < CLOSE) ||
                     (here && goes_on(psf, fit, fibre, at, rows, other->flux));
            seen |= here;
        }
        out->of += !hidden;
        out->with += !hidden && seen;
    }
}

void spx_psffit_find_ghost(spx_psf *psf, spx_psffit *fit, spx_psffit_ghost *out)
{
    size_t fibre = 0;
    *out = (spx_psffit_ghost){0};
    if (!middle_of(fit, &fibre))
        return;
    for (size_t m = 0; m < fit->nline; m++)
        for (size_t l = 0; l < fit->nline && !fit->line[m].listed; l++) {
            const spx_psffit_row *line = &fit->line[l], *other = &fit->line[m];
            const double rows = row_of(psf, fibre, other) - row_of(psf, fibre, line), part = other->flux / line->flux;
            spx_psffit_ghost found;
            if (!line->listed || !(fabs(rows) < FARTHEST) || !(part > 0 && part < 1) || !(line->sn > BRIGHT))
                continue;
            count(psf, fit, fibre, rows, part, &found);
            if (found.with >= FEWEST && 2 * found.with > found.of && found.with > out->with)
                *out = found;
        }
    for (size_t i = 0; i < fit->nspec && out->with > 0; i++)
        if ((fit->fibre[i].status & (SPX_PSF_DEAD | SPX_PSF_BUNDLE)) == 0) {
            fit->fibre[i].status |= SPX_PSF_BADFIT;
            psf->status[i] = (uint16_t)fit->fibre[i].status;
        }
}
