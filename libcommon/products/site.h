/* Reads the site and time of an exposure, from a header or from text. */
#ifndef SPX_SITE_H
#define SPX_SITE_H

#include "base/err.h"
#include "fits/cards.h"
#include "num/barycentre.h"

/* Parses "LONGITUDE,LATITUDE,HEIGHT", or the name of a known observatory (case, blanks and punctuation are ignored).
 * SPX_EUSAGE lists the known names. */
spx_status spx_site_parse(const char *text, spx_site *site, spx_err *e) SPX_NODISCARD;

/* Reads the site from a header: OBS-LONG, OBS-LAT, OBS-ELEV (or ESO's TEL GEOLON, GEOLAT, GEOELEV), else the name in
 * OBSERVAT, OBSERVATORY, SITE or TELESCOP. SPX_EINPUT when it has neither, or values out of range. */
spx_status spx_site_from_header(const spx_cards *h, spx_site *site, spx_err *e) SPX_NODISCARD;

/* Writes OBS-LONG, OBS-LAT and OBS-ELEV into a header. */
spx_status spx_site_to_header(const spx_site *site, spx_cards *h, spx_err *e) SPX_NODISCARD;

/* Middle of the exposure, modified Julian date, UTC: MJD-MID, else half of EXPTIME (s) after the start, which is
 * MJD-OBS (or MJD_OBS, MJDSTART, MJD), or DATE-OBS as YYYY-MM-DDThh:mm:ss. SPX_EINPUT when a keyword is missing, not a
 * number, or no time between 1960 and 2100. */
spx_status spx_exposure_middle(const spx_cards *h, double *mjd, spx_err *e) SPX_NODISCARD;

/* Where the header says that the telescope pointed, degrees: TILERA and TILEDEC, TELRA and TELDEC, SKYRA and SKYDEC,
 * RADEG and DECDEG, or RA and DEC; numbers are degrees, texts hh:mm:ss and dd:mm:ss. 0: it does not say it. */
int spx_pointing_from_header(const spx_cards *h, double *ra, double *dec);

#endif
