/* Provides the barycentric correction factor of wavelengths, from site, time and direction, with ERFA. */
#ifndef SPX_BARYCENTRE_H
#define SPX_BARYCENTRE_H

#include <stddef.h>

#include "base/err.h"

/* Observing site, WGS84: east longitude and geodetic latitude in degrees, height in metres. */
typedef struct {
    double longitude, latitude, height;
} spx_site;

/* Modified Julian date, UTC, of YYYY-MM-DDThh:mm:ss[.sss]. 1 when it is such a date, 0 otherwise. */
int spx_mjd_from_date(const char *text, double *mjd);

/* factor[n] = barycentric over observed wavelength of light from right ascension ra[n], declination dec[n] (degrees,
 * ICRS): gamma (1 + beta.n) (1 + Phi/c^2), with the observer's barycentric velocity c beta and the potential Phi of
 * Sun and Earth where the observer is (Wright & Eastman 2014, PASP 126, 838, eq. 28 without Shapiro delay and the
 * star's own motion). UT1 - UTC is taken as 0: less than 0.9 s, 0.1 m/s. SPX_EINPUT: not a direction. */
spx_status spx_barycentric_factors(const spx_site *site, double mjd, size_t n, const double *ra, const double *dec,
                                   double *factor, spx_err *e) SPX_NODISCARD;

/* altitude[n] above the horizon of these directions, degrees, without refraction. SPX_EINPUT: no such time or place. */
spx_status spx_altitudes(const spx_site *site, double mjd, size_t n, const double *ra, const double *dec,
                         double *altitude, spx_err *e) SPX_NODISCARD;

/* Replaces positions ra[n], dec[n] (degrees) that are not finite by the mean direction of the others; returns how many,
 * n when all. */
size_t spx_fill_directions(size_t n, double *ra, double *dec);

/* Angle between two directions, degrees. */
double spx_separation(double ra1, double dec1, double ra2, double dec2);

#endif
