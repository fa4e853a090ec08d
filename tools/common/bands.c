/* Reads bands of wavelengths (common/bands.h). */
#include "common/bands.h"

#include <stdlib.h>

#include "base/lines.h"
#include "base/mem.h"
#include "flux/flux.h"
#include "num/wave.h"

spx_status spx_bands_add(spx_bands *b, double lo, double hi, spx_err *e)
{
    double *more = spx_grow(b->band, b->n, 1, &b->held, 2 * sizeof *more, e);
    if (more == NULL)
        return SPX_EIO;
    b->band = more;
    b->band[2 * b->n] = lo;
    b->band[2 * b->n++ + 1] = hi;
    return SPX_OK;
}

spx_status spx_bands_add_telluric(spx_bands *b, spx_medium medium, spx_err *e)
{
    spx_status st = SPX_OK;
    for (size_t i = 0; i < spx_flux_nband && st == SPX_OK; i++) {
        const double lo = spx_flux_bands[i][0], hi = spx_flux_bands[i][1];
        st = medium == SPX_AIR ? spx_bands_add(b, spx_vacuum_to_air(lo), spx_vacuum_to_air(hi), e)
                               : spx_bands_add(b, lo, hi, e);
    }
    return st;
}

spx_status spx_bands_add_file(spx_bands *b, spx_run *s, const char *name, spx_err *e)
{
    const size_t before = b->n;
    spx_lines lines;
    spx_status st = spx_run_text_input(s, name, &lines, e);
    if (st != SPX_OK)
        return st;
    for (char *p, *q, *r; st == SPX_OK && (p = spx_lines_next(&lines)) != NULL;) {
        const double lo = strtod(p, &q), hi = strtod(q, &r);
        const double unit = r == q || *r == '\0' ? 1 : spx_wave_unit(r);
        if (q == p || r == q || unit == 0 || !(lo > 0 && hi > lo && hi * unit < 1e9))
            st = spx_fail(e, SPX_EINPUT, "%s:%zu: is not a band: two wavelengths, in Angstrom, or with their unit (nm)",
                          name, lines.number);
        else
            st = spx_bands_add(b, lo * unit, hi * unit, e);
    }
    st = spx_lines_close(&lines, st, e);
    if (st == SPX_OK && b->n == before)
        st = spx_fail(e, SPX_EINPUT, "%s: holds no band: two wavelengths a line, in Angstrom", name);
    return st;
}

int spx_bands_touch(const spx_bands *b, size_t first, const spx_arm *a)
{
    const double moved = 1 + 100 / SPX_C_KMS;
    int touch = a->per_row || a->nwave == 0;
    for (size_t i = first; i < b->n && !touch; i++)
        touch = b->band[2 * i] < a->wavelength[a->nwave - 1] * moved && b->band[2 * i + 1] * moved > a->wavelength[0];
    return touch;
}

void spx_bands_warn(const spx_bands *b, size_t first, const char *option, const char *name)
{
    if (first < b->n)
        spx_warn(
            "%s %s: no wavelength of the spectra is within its bands (the first is %.8g to %.8g Angstrom): are they "
            "in nm? a line may end with the unit",
            option, name, b->band[2 * first], b->band[2 * first + 1]);
}
