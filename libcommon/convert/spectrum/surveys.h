/* Identifies the survey or instrument of a file by keywords. */
#ifndef SPX_SPECTRUM_SURVEYS_H
#define SPX_SPECTRUM_SURVEYS_H

#include "convert/spectrum/spectrum.h"

/* Bits of SDSS's SPPIXMASK that make a pixel unusable in files with only an or-mask: FULLREJECT, NODATA. */
#define SPX_SDSS_OLD_BAD (1u << 18 | 1u << 24)

/* APOGEE_PIXMASK: BADPIX, CRPIX, SATPIX, UNFIXABLE, BADDARK, BADFLAT, BADERR, NOSKY, SIG_SKYLINE, NOT_ENOUGH_PSF. */
#define SPX_APOGEE_BAD (0xffu | 1u << 12 | 1u << 14)

typedef struct {
    const char *name, *key, *value; /* the card `key` contains the text `value` */
    const char *arm;
    uint32_t bad;
    int medium, barycentric; /* defaults where the header does not state them; -1: unknown */
} spx_survey;

/* SDSS, for files that only their content identifies. */
extern const spx_survey spx_survey_sdss;
/* APOGEE, for files that only their content identifies. */
const spx_survey *spx_survey_apogee(void);

/* Survey of a file; NULL: unknown. */
const spx_survey *spx_survey_of(const spx_fits *f);

#endif
