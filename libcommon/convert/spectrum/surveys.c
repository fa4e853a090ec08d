/* Provides the table of surveys and instruments, and finds that of a file (convert/spectrum/surveys.h). */
#include "convert/spectrum/surveys.h"

#include <string.h>

#include "fits/cards.h"

static const spx_survey families[] = {
    {"LAMOST", "TELESCOP", "LAMOST", "lamost", UINT32_MAX, SPX_VACUUM, 1},
    {"LAMOST", "ORIGIN", "LAMOST", "lamost", UINT32_MAX, SPX_VACUUM, 1},
    {"APOGEE", "SURVEY", "apogee", "apogee", SPX_APOGEE_BAD, SPX_VACUUM, 1},
    {"APOGEE", "TELESCOP", "apo25m", "apogee", SPX_APOGEE_BAD, SPX_VACUUM, 1},
    {"APOGEE", "TELESCOP", "lco25m", "apogee", SPX_APOGEE_BAD, SPX_VACUUM, 1},
    {"SDSS", "TELESCOP", "SDSS", "sdss", SPX_SDSS_BAD, SPX_VACUUM, 1},
    {"GALAH", "ORIGIN", "GALAH", "galah", UINT32_MAX, SPX_AIR, -1},
    {"GALAH", "INSTRUME", "HERMES-2dF", "galah", UINT32_MAX, SPX_AIR, -1},
};

const spx_survey spx_survey_sdss = {"SDSS", NULL, NULL, "sdss", SPX_SDSS_BAD, SPX_VACUUM, 1};

const spx_survey *spx_survey_apogee(void)
{
    const spx_survey *fam = NULL;
    for (size_t i = 0; i < sizeof families / sizeof *families; i++)
        if (strcmp(families[i].arm, "apogee") == 0)
            fam = &families[i];
    return fam;
}

const spx_survey *spx_survey_of(const spx_fits *f)
{
    char text[72];
    for (size_t i = 0; i < sizeof families / sizeof *families; i++)
        for (size_t h = 0; h < f->nhdu && h < 2; h++)
            if (spx_cards_string(&f->hdu[h].header, families[i].key, text, sizeof text) &&
                strstr(text, families[i].value) != NULL)
                return &families[i];
    return NULL;
}
