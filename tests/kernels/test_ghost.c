/* Checks which light beside lines of an arc is taken for their ghost (psffit/psffit.h): that of any distance and part,
 * and not the lines of a comb that a list lacks. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "check.h"
#include "psffit/psffit.h"
#include "small_psf.h"

enum { ROWS = 2000, MOST = 400 };

static spx_psf *psf;
static spx_psffit_row row[MOST];
static spx_psffit_fibre fibre[3];
static spx_psffit fit = {.nspec = 3, .fibre = fibre, .line = row, .ny = ROWS};

/* One pixel is one Angstrom, from 5000 on. */
static void add(double at, double flux, int listed)
{
    if (at > 0 && at < ROWS - 1 && fit.nline < MOST)
        row[fit.nline++] =
            (spx_psffit_row){.wavelength = 5000 + at, .flux = flux, .sn = sqrt(flux), .listed = listed, .used = listed};
}

static spx_psffit_ghost look(void)
{
    spx_psffit_ghost found;
    memset(fibre, 0, sizeof fibre);
    memset(psf->status, 0, 3 * sizeof *psf->status);
    spx_psffit_find_ghost(psf, &fit, &found);
    for (int i = 0; i < 3; i++)
        CHECK((found.with > 0) == ((psf->status[i] & SPX_PSF_BADFIT) != 0), "fibre %d: status %d", i, psf->status[i]);
    fit.nline = 0;
    return found;
}

int main(void)
{
    small_psf_shape s = small_psf_default();
    s.nspec = 3;
    s.ncoef = 2;
    s.wmin = 5000;
    s.wmax = 5000 + ROWS;
    CHECK((psf = small_psf(&s)) != NULL && (psf->status = spx_alloc(3, sizeof *psf->status, NULL)) != NULL, "memory");
    for (int i = 0; i < 3; i++) /* row = wavelength - 5000 */
        psf->y.coef[2 * i] = psf->y.coef[2 * i + 1] = ROWS / 2.0;

    /* lines at irregular places, some of them fainter than a ghost that would be seen */
    const double parts[] = {0.02, 0.05, 0.1, 0.3}, away[] = {5, 7, 9, 12, 20, 30, 40, 55, -9, -30};
    for (size_t p = 0; p < sizeof parts / sizeof *parts; p++)
        for (size_t a = 0; a < sizeof away / sizeof *away; a++) {
            for (int l = 0; l < 24; l++) {
                const double at = 75.0 * l + 60 * fmod(0.618 * l * l, 1), flux = 1e5 * pow(40, fmod(0.37 * l, 1));
                add(at, flux, 1);
                add(at + away[a] + 0.1 * sin(l), flux * parts[p] * (1 + 0.1 * cos(l)), 0);
            }
            const spx_psffit_ghost g = look();
            CHECK(g.with >= 8 && fabs(g.rows - away[a]) < 0.3 && fabs(g.part / parts[p] - 1) < 0.25,
                  "%g %% %g rows away: %zu of %zu, %g %% %g rows away", 100 * parts[p], away[a], g.with, g.of,
                  100 * g.part, g.rows);
        }
    /* every `nth` line of a comb is listed; fluxes follow the lamp */
    for (int nth = 2; nth <= 4; nth++)
        for (double step = 6; step < 30; step += 7.3) {
            for (int l = 0; l < MOST; l++)
                add(step * (l + 0.5), 1e5 * (2 + sin(0.05 * l)) * (l % nth != 0 && nth > 2 ? 0.6 : 1), l % nth == 0);
            const spx_psffit_ghost g = look();
            CHECK(g.with == 0, "one line of %d listed, %g rows apart: %zu of %zu have %g %% %g rows away", nth, step,
                  g.with, g.of, 100 * g.part, g.rows);
        }
    spx_psf_free(psf);
    spx_free(psf);
    return failures != 0;
}
