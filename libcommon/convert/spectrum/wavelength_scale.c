/* Reads wavelength scales from headers (convert/spectrum/wavelength_scale.h). */
#include "convert/spectrum/wavelength_scale.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "convert/spectrum/columns.h"
#include "fits/cards.h"
#include "num/wave.h"

int spx_wave_scale_header(const spx_cards *h, spx_fits_spectrum *s)
{
    double value, step, pixel = 1;
    long flag = 0;
    char type[72] = "", unit[72] = "";
    if (!spx_cards_double(h, "CRVAL1", &value) ||
        (!spx_cards_double(h, "CD1_1", &step) && !spx_cards_double(h, "CDELT1", &step)) || !isfinite(value) ||
        !isfinite(step) || step == 0 || !(value > 0))
        return 0;
    (void)spx_cards_double(h, "CRPIX1", &pixel);
    (void)spx_cards_int(h, "DC-FLAG", &flag);
    (void)spx_cards_string(h, "CTYPE1", type, sizeof type);
    (void)spx_cards_string(h, "CUNIT1", unit, sizeof unit);
    if (strncmp(type, "RA--", 4) == 0 || strncmp(type, "DEC-", 4) == 0 || strncmp(type, "FREQ", 4) == 0 ||
        strncmp(type, "VELO", 4) == 0 || strncmp(type, "VRAD", 4) == 0 || strncmp(type, "ENER", 4) == 0)
        return 0;
    s->unit = spx_wave_unit(unit);
    const int logarithmic = strncmp(type + (strlen(type) > 4 ? 4 : 0), "-LOG", 4) == 0;
    if (logarithmic && value > SPX_FITS_METRES && value < 11 &&
        s->unit <= 1) { /* the logarithm itself, against the rule */
        s->scale = value < 6 ? SPX_WAVE_LOG10 : SPX_WAVE_LN;
        s->start = value + (1 - pixel) * step;
        s->step = step;
        return 1;
    }
    if (logarithmic) { /* value exp(step (i - pixel) / value) */
        s->scale = SPX_WAVE_LN;
        s->start = log(value) + (1 - pixel) * step / value;
        s->step = step / value;
        return 1;
    }
    s->scale = flag == 1 && value < 6 ? SPX_WAVE_LOG10 : SPX_WAVE_LINEAR;
    if (flag == 0 && value < 11 && fabs(step) < 0.01) /* not a wavelength, unless in micron with a small step */
        s->scale = value < 3 || s->unit > 1 ? SPX_WAVE_LINEAR : value < 6 ? SPX_WAVE_LOG10 : SPX_WAVE_LN;
    s->start = value + (1 - pixel) * step;
    s->step = step;
    return 1;
}

int spx_wave_scale_coefficients(const spx_cards *h, spx_fits_spectrum *s)
{
    if (!spx_cards_double(h, "COEFF0", &s->start) || !spx_cards_double(h, "COEFF1", &s->step) || !(s->start > 2) ||
        !(s->start < 6) || !(s->step > 0) || !(s->step < 0.1))
        return 0;
    s->scale = SPX_WAVE_LOG10;
    s->unit = 1;
    return 1;
}

void spx_wave_scale_table(const spx_fits_hdu *h, int c, int name, spx_fits_spectrum *s)
{
    char key[16], text[72] = "";
    s->scale = spx_column_names[name].log10 ? SPX_WAVE_LOG10 : SPX_WAVE_LINEAR;
    s->medium = spx_column_names[name].medium;
    s->unit = spx_wave_unit(h->col[c].unit);
    snprintf(key, sizeof key, "TUCD%d", c + 1); /* IVOA: observed in air or not */
    if (s->medium < 0 && spx_cards_string(&h->header, key, text, sizeof text) && strstr(text, "em.wl") != NULL)
        s->medium = strstr(text, "obs.atmos") != NULL ? SPX_AIR : SPX_VACUUM;
    if (s->scale == SPX_WAVE_LINEAR && (strncasecmp(h->col[c].unit, "log", 3) == 0))
        s->scale = SPX_WAVE_LOG10;
    if (s->scale == SPX_WAVE_LOG10)
        s->unit = 1;
}
