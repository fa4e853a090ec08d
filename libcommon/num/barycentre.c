/* Provides barycentric corrections of num/barycentre.h: observer's velocity from ERFA's eraApco13(), potential of Sun
 * and Earth added. */
#include "num/barycentre.h"

#include <erfa.h>
#include <erfam.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* GM/c^2 in metres: TCB-compatible nominal values (IAU 2015 resolution B3). */
#define SUN_LENGTH   (1.3271244e20 / (ERFA_CMPS * ERFA_CMPS))
#define EARTH_LENGTH (3.986004e14 / (ERFA_CMPS * ERFA_CMPS))

int spx_mjd_from_date(const char *text, double *mjd)
{
    int year, month, day, hour, minute, used = 0;
    double second, jd, part;
    if (sscanf(text, "%4d-%2d-%2dT%2d:%2d:%lf%n", &year, &month, &day, &hour, &minute, &second, &used) != 6 ||
        strspn(text + used, " Z") != strlen(text + used))
        return 0;
    if (eraDtf2d("UTC", year, month, day, hour, minute, second, &jd, &part) < 0)
        return 0;
    *mjd = (jd - ERFA_DJM0) + part;
    return 1;
}

/* The observer at that time; xyz: in metres from the Earth's centre. */
static spx_status observe(const spx_site *site, double mjd, eraASTROM *astrom, double xyz[3], spx_err *e)
{
    double eo, lon = site->longitude * ERFA_DD2R, lat = site->latitude * ERFA_DD2R;
    return eraGd2gc(1, lon, lat, site->height, xyz) == 0 &&
                   eraApco13(ERFA_DJM0, mjd, 0, lon, lat, site->height, 0, 0, 0, 0, 0, 0.5, astrom, &eo) >= 0
               ? SPX_OK
               : spx_fail(e, SPX_EINPUT, "no barycentric velocity at MJD %.10g", mjd);
}

spx_status spx_barycentric_factors(const spx_site *site, double mjd, size_t n, const double *ra, const double *dec,
                                   double *factor, spx_err *e)
{
    eraASTROM astrom;
    double up[3], xyz[3];
    const spx_status st = observe(site, mjd, &astrom, xyz, e);
    if (st != SPX_OK)
        return st;
    double potential = SUN_LENGTH / (astrom.em * ERFA_DAU) + EARTH_LENGTH / eraPm(xyz);
    for (size_t k = 0; k < n; k++) {
        if (!(fabs(ra[k]) <= 360 && fabs(dec[k]) <= 90))
            return spx_fail(e, SPX_EINPUT, "fibermap: TARGET_RA %g, TARGET_DEC %g in row %zu is not a direction", ra[k],
                            dec[k], k);
        eraS2c(ra[k] * ERFA_DD2R, dec[k] * ERFA_DD2R, up);
        /* bm1 = sqrt(1 - beta^2) = 1/gamma */
        factor[k] = (1 + eraPdp(astrom.v, up)) / astrom.bm1 * (1 + potential);
    }
    return SPX_OK;
}

spx_status spx_altitudes(const spx_site *site, double mjd, size_t n, const double *ra, const double *dec,
                         double *altitude, spx_err *e)
{
    eraASTROM astrom;
    double xyz[3];
    const spx_status st = observe(site, mjd, &astrom, xyz, e);
    for (size_t k = 0; k < n && st == SPX_OK; k++) {
        double ri, di, azimuth, zenith, hour, dob, rob;
        eraAtciqz(ra[k] * ERFA_DD2R, dec[k] * ERFA_DD2R, &astrom, &ri, &di);
        eraAtioq(ri, di, &astrom, &azimuth, &zenith, &hour, &dob, &rob);
        altitude[k] = 90 - zenith / ERFA_DD2R;
    }
    return st;
}

size_t spx_fill_directions(size_t n, double *ra, double *dec)
{
    double sum[3] = {0, 0, 0}, up[3], mean[2];
    size_t nowhere = 0;
    for (size_t k = 0; k < n; k++) {
        if (!isfinite(ra[k]) || !isfinite(dec[k])) {
            nowhere++;
            continue;
        }
        eraS2c(ra[k] * ERFA_DD2R, dec[k] * ERFA_DD2R, up);
        eraPpp(sum, up, sum);
    }
    eraC2s(sum, &mean[0], &mean[1]);
    for (size_t k = 0; k < n; k++)
        if (!isfinite(ra[k]) || !isfinite(dec[k])) {
            ra[k] = mean[0] / ERFA_DD2R;
            dec[k] = mean[1] / ERFA_DD2R;
        }
    return nowhere;
}

double spx_separation(double ra1, double dec1, double ra2, double dec2)
{
    return ERFA_DR2D * eraSeps(ra1 * ERFA_DD2R, dec1 * ERFA_DD2R, ra2 * ERFA_DD2R, dec2 * ERFA_DD2R);
}
