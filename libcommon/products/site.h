/* Reads where an exposure was taken, and when, from a header or from text. */
#ifndef SPX_SITE_H
#define SPX_SITE_H

#include "base/err.h"
#include "fits/cards.h"
#include "num/barycentre.h"

/* "LONGITUDE,LATITUDE,HEIGHT", or the name of an observatory that is known (in any case, blanks and punctuation
 * ignored). SPX_EUSAGE, with the names that are known. */
spx_status spx_site_parse(const char *text, spx_site *site, spx_err *e) SPX_NODISCARD;

/* From a header: OBS-LONG, OBS-LAT, OBS-ELEV (or ESO's TEL GEOLON, GEOLAT, GEOELEV), else the name in OBSERVAT,
 * OBSERVATORY, SITE or TELESCOP. SPX_EINPUT when it has neither, or values that no place has. */
spx_status spx_site_from_header(const spx_cards *h, spx_site *site, spx_err *e) SPX_NODISCARD;

/* The same keywords into a header. */
spx_status spx_site_to_header(const spx_site *site, spx_cards *h, spx_err *e) SPX_NODISCARD;

/* Middle of the exposure, modified Julian date, UTC: MJD-MID, else half of EXPTIME (s) after the start, which is
 * MJD-OBS (or MJD_OBS, MJDSTART, MJD), or DATE-OBS as YYYY-MM-DDThh:mm:ss. SPX_EINPUT when a keyword is missing, not a
 * number, or no time between 1960 and 2100. */
spx_status spx_exposure_middle(const spx_cards *h, double *mjd, spx_err *e) SPX_NODISCARD;

#endif
