/* Provides the list of spectra found in a file (convert/spectrum/list.h). */
#include "convert/spectrum/list.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/mem.h"
#include "fits/cards.h"
#include "num/wave.h"

spx_fits_values spx_values_of_row(int hdu, size_t row)
{
    return hdu < 0 ? SPX_NO_VALUES : (spx_fits_values){hdu, -1, row};
}

void spx_arm_name_from(char arm[16], const char *text, const char *otherwise)
{
    size_t n = 0;
    for (const char *c = text; *c && n < 10; c++)
        if (isalnum((unsigned char)*c))
            arm[n++] = (char)tolower((unsigned char)*c);
    while (n > 1 && isdigit((unsigned char)arm[n - 1]))
        n--;
    arm[n] = 0;
    if (n == 0 || isdigit((unsigned char)arm[0]))
        snprintf(arm, 16, "%s", otherwise);
}

void spx_arm_name_default(const spx_fits *f, const spx_survey *fam, char arm[16])
{
    char text[72] = "";
    for (size_t h = 0; h < f->nhdu && h < 2 && !text[0]; h++)
        (void)spx_cards_string(&f->hdu[h].header, "INSTRUME", text, sizeof text);
    if (fam != NULL)
        snprintf(arm, 16, "%s", fam->arm);
    else
        spx_arm_name_from(arm, text, "spectrum");
}

void spx_spectrum_axis(const spx_fits *f, int hdu, const spx_survey *fam, spx_fits_spectrum *s)
{
    char text[72];
    int vacuum;
    const int at[] = {hdu, 0};
    for (size_t i = 0; i < 2; i++) {
        const spx_cards *h = &f->hdu[at[i]].header;
        if (s->medium < 0 && spx_cards_string(h, "AIRORVAC", text, sizeof text))
            s->medium = strncasecmp(text, "air", 3) == 0 ? SPX_AIR : SPX_VACUUM;
        if (s->medium < 0 && spx_cards_bool(h, "VACUUM", &vacuum))
            s->medium = vacuum ? SPX_VACUUM : SPX_AIR;
        if (s->medium < 0 && spx_cards_string(h, "CTYPE1", text, sizeof text)) {
            if (strncmp(text, "AWAV", 4) == 0)
                s->medium = SPX_AIR;
            else if (strcmp(text, "WAVE") == 0 || strncmp(text, "WAVE-", 5) == 0)
                s->medium = SPX_VACUUM;
        }
        if (s->barycentric < 0 && spx_cards_string(h, "SPECSYS", text, sizeof text))
            s->barycentric = spx_wave_frame(text);
    }
    if (s->medium < 0 && fam != NULL)
        s->medium = fam->medium;
    if (s->barycentric == -1 && fam != NULL)
        s->barycentric = fam->barycentric;
}

spx_fits_spectrum *spx_spectra_list_add(spx_fits_spectra *l, spx_err *e)
{
    spx_fits_spectrum *more = spx_grow(l->s, l->n, 1, &l->capacity, sizeof *more, e);
    if (more == NULL)
        return NULL;
    l->s = more;
    spx_fits_spectrum *s = &l->s[l->n++];
    *s = (spx_fits_spectrum){.flux = SPX_NO_VALUES,
                             .noise = SPX_NO_VALUES,
                             .mask = SPX_NO_VALUES,
                             .wave = SPX_NO_VALUES,
                             .medium = -1,
                             .barycentric = -1};
    return s;
}

void spx_spectra_list_clear(spx_fits_spectra *l)
{
    for (size_t i = 0; i < l->n; i++)
        for (int k = 0; k < 3; k++)
            spx_free(l->s[i].given[k]);
    l->n = 0;
}

void spx_fits_spectra_free(spx_fits_spectra *l)
{
    spx_spectra_list_clear(l);
    spx_free(l->s);
    *l = (spx_fits_spectra){0};
}
