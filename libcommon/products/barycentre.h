/* Barycentric factor of wavelengths: from the observatory, the time and the direction of each fibre. */
#ifndef SPX_BARYCENTRE_H
#define SPX_BARYCENTRE_H

#include <stddef.h>

#include "base/err.h"
#include "products/image.h"
#include "products/psf.h"
#include "products/spectra.h"

/* Place on Earth, WGS84: east longitude and geodetic latitude in degrees, height in metres. */
typedef struct {
    double longitude, latitude, height;
} spx_site;

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

/* factor[n] = barycentric over observed wavelength of light from right ascension ra[n], declination dec[n] (degrees,
 * ICRS): gamma (1 + beta.n) (1 + Phi/c^2), with the observer's barycentric velocity c beta and the potential Phi of
 * Sun and Earth where the observer is (Wright & Eastman 2014, PASP 126, 838, eq. 28 without Shapiro delay and the
 * star's own motion). UT1 - UTC is taken as 0: less than 0.9 s, 0.1 m/s. SPX_EINPUT: not a direction. */
spx_status spx_barycentric_factors(const spx_site *site, double mjd, size_t n, const double *ra, const double *dec,
                                   double *factor, spx_err *e) SPX_NODISCARD;

/* The same for all fibres of a PSF, from TARGET_RA and TARGET_DEC of the image's fibermap and the time in its header;
 * factor[psf->nspec]. `site` NULL: from the header. Fibres without a row or a finite position get the factor of the
 * mean direction of the others; their number is in *nowhere. SPX_EINPUT: no fibermap, or no position at all. */
spx_status spx_image_barycentric(const spx_image *im, const spx_psf *psf, const spx_site *site, double *factor,
                                 size_t *nowhere, spx_err *e) SPX_NODISCARD;

/* Mark the frame's wavelengths as barycentric and add the velocity c (factor - 1), km/s, of its fibres to its fibermap
 * as BARYCENTRIC_VELOCITY. factor[] of all fibres of the PSF. */
spx_status spx_frame_set_barycentric(spx_frame *f, const double *factor, spx_err *e) SPX_NODISCARD;

#endif
