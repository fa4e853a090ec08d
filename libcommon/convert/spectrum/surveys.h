/* Tells by keywords which survey or instrument a file is of. */
#ifndef SPX_SPECTRUM_SURVEYS_H
#define SPX_SPECTRUM_SURVEYS_H

#include "convert/spectrum/spectrum.h"

/* Bits of SDSS's SPPIXMASK that count in files whose only mask is that of any exposure: FULLREJECT, NODATA. */
#define SPX_SDSS_OLD_BAD (1u << 18 | 1u << 24)

/* APOGEE_PIXMASK: BADPIX, CRPIX, SATPIX, UNFIXABLE, BADDARK, BADFLAT, BADERR, NOSKY, SIG_SKYLINE, NOT_ENOUGH_PSF. */
#define SPX_APOGEE_BAD (0xffu | 1u << 12 | 1u << 14)

typedef struct {
    const char *name, *key, *value; /* keyword whose text contains the value, both as they are */
    const char *arm;
    uint32_t bad;
    int medium, barycentric; /* where the header does not say; -1: not known */
} spx_survey;

/* Where only the content says that it is SDSS. */
extern const spx_survey spx_survey_sdss;
/* APOGEE, where only the content says so. */
const spx_survey *spx_survey_apogee(void);

/* The file's survey; NULL: none that is known. */
const spx_survey *spx_survey_of(const spx_fits *f);

#endif
