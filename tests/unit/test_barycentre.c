/* Checks barycentric factors against Astropy's, sites, times of exposures, and fibres without a position. */

#include <math.h>
#include <string.h>

#include "check.h"
#include "h5/table.h"
#include "num/wave.h"
#include "products/frame_barycentre.h"
#include "products/site.h"

static void add(spx_cards *h, const char *card)
{
    CHECK(spx_cards_append(h, card, &e) == SPX_OK);
}

/* SkyCoord.radial_velocity_correction("barycentric") of Astropy 6 with UT1 = UTC, km/s, and its altitudes. It too has
 * no Shapiro delay; ERFA's analytic Earth ephemeris is behind both: what is left is constants. */
static void compare_with_astropy(void)
{
    static const struct {
        spx_site site;
        double mjd, ra, dec, v, altitude;
    } known[] = {{{-111.59989, 31.96403, 2097}, 59198.105208333334, 150.1, 2.2, 27.9157466671, -38.970972},
                 {{149.067083, -31.277039, 1149}, 53000.25, 10, -60, -14.0128131756, 52.834916},
                 {{-17.8816, 28.7606, 2344}, 60500.9, 279.2, 38.8, -0.4048557071, 51.696054},
                 {{-111.59989, 31.96403, 2097}, 59198.105208333334, 330, -20, -26.6318469948, 25.406287}};
    for (size_t k = 0; k < sizeof known / sizeof *known; k++) {
        double factor;
        CHECK(spx_barycentric_factors(&known[k].site, known[k].mjd, 1, &known[k].ra, &known[k].dec, &factor, &e) ==
              SPX_OK);
        double off = SPX_C_KMS * (factor - 1) - known[k].v;
        if (!(fabs(off) < 1e-5)) {
            printf("case %zu: %.3g km/s from Astropy's %.6f\n", k, off, known[k].v);
            exit(1);
        }
        double altitude;
        CHECK(spx_altitudes(&known[k].site, known[k].mjd, 1, &known[k].ra, &known[k].dec, &altitude, &e) == SPX_OK);
        CHECK(fabs(altitude - known[k].altitude) < 1e-3); /* the pole's motion, an arcsecond */
    }
    double ra = 10, dec = 91, factor;
    CHECK(spx_barycentric_factors(&known[0].site, known[0].mjd, 1, &ra, &dec, &factor, &e) == SPX_EINPUT);
}

static void sites(void)
{
    spx_site s;
    CHECK(spx_site_parse("-70.5,-29.25,2400", &s, &e) == SPX_OK);
    CHECK(s.longitude == -70.5 && s.latitude == -29.25 && s.height == 2400);
    CHECK(spx_site_parse("Kitt Peak", &s, &e) == SPX_OK && fabs(s.latitude - 31.96403) < 1e-9);
    CHECK(spx_site_parse("LAMOST", &s, &e) == SPX_OK && s.longitude > 117);
    spx_err_clear(&e);
    CHECK(spx_site_parse("atlantis", &s, &e) == SPX_EUSAGE && strstr(spx_err_text(&e), "lasilla") != NULL);
    CHECK(spx_site_parse("", &s, &e) == SPX_EUSAGE);
    CHECK(spx_site_parse("10,95,0", &s, &e) == SPX_EUSAGE);
    CHECK(spx_site_parse("10,5", &s, &e) == SPX_EUSAGE);

    spx_cards h = {0};
    CHECK(spx_site_from_header(&h, &s, &e) == SPX_EINPUT);
    add(&h, "TELESCOP= 'Unheard of'");
    CHECK(spx_site_from_header(&h, &s, &e) == SPX_EINPUT);
    add(&h, "OBSERVAT= 'KPNO    '");
    CHECK(spx_site_from_header(&h, &s, &e) == SPX_OK && s.height == 2097);
    add(&h, "OBS-LONG=              -70.25");
    CHECK(spx_site_from_header(&h, &s, &e) == SPX_EINPUT); /* a part of a place is an error, not a fallback */
    add(&h, "OBS-LAT =               -29.5");
    add(&h, "OBS-ELEV=                2100");
    /* another place than the observatory that is named: which of the two is wrong nobody knows */
    spx_err_clear(&e);
    CHECK(spx_site_from_header(&h, &s, &e) == SPX_EINPUT && strstr(spx_err_text(&e), "OBSERVAT 'KPNO'") != NULL);
    spx_cards_free(&h);
    add(&h, "OBS-LONG=              -70.25");
    add(&h, "OBS-LAT =               -29.5");
    add(&h, "OBS-ELEV=                2100");
    CHECK(spx_site_from_header(&h, &s, &e) == SPX_OK && s.longitude == -70.25 && s.height == 2100);
    spx_cards_free(&h);
    /* longitudes to the east, in either range, and to the west */
    static const struct {
        const char *longitude;
        spx_status st;
    } kitt_peak[] = {{"OBS-LONG=            -111.5999", SPX_OK},
                     {"OBS-LONG=             248.4001", SPX_OK},
                     {"OBS-LONG=             111.5999", SPX_EINPUT}};
    for (size_t i = 0; i < sizeof kitt_peak / sizeof *kitt_peak; i++) {
        add(&h, "TELESCOP= 'Kitt Peak'");
        add(&h, kitt_peak[i].longitude);
        add(&h, "OBS-LAT =              31.9640");
        add(&h, "OBS-ELEV=                2100");
        spx_err_clear(&e);
        CHECK(spx_site_from_header(&h, &s, &e) == kitt_peak[i].st);
        spx_cards_free(&h);
    }
}

static void times(void)
{
    double mjd;
    spx_cards h = {0};
    add(&h, "DATE-OBS= '2020-12-15T02:24:00.000'");
    spx_err_clear(&e);
    CHECK(spx_exposure_middle(&h, &mjd, &e) == SPX_EINPUT && strstr(spx_err_text(&e), "EXPTIME") != NULL);
    add(&h, "EXPTIME =                900.0");
    CHECK(spx_exposure_middle(&h, &mjd, &e) == SPX_OK && fabs(mjd - (59198.1 + 450 / 86400.0)) < 1e-8);
    add(&h, "MJD-OBS =              59199.5");
    CHECK(spx_exposure_middle(&h, &mjd, &e) == SPX_OK && fabs(mjd - (59199.5 + 450 / 86400.0)) < 1e-8);
    add(&h, "MJD-MID =              59200.5");
    CHECK(spx_exposure_middle(&h, &mjd, &e) == SPX_OK && mjd == 59200.5);
    spx_cards_free(&h);
    add(&h, "DATE-OBS= '15/12/20'");
    add(&h, "EXPTIME =                900.0");
    spx_err_clear(&e);
    CHECK(spx_exposure_middle(&h, &mjd, &e) == SPX_EINPUT && strstr(spx_err_text(&e), "DATE-OBS") != NULL);
    spx_cards_free(&h);
    add(&h, "DATE-OBS= '2010-12-15T02:24:00.000'");
    add(&h, "MJD-MID =              59200.5");
    spx_err_clear(&e);
    CHECK(spx_exposure_middle(&h, &mjd, &e) == SPX_EINPUT && strstr(spx_err_text(&e), "days apart") != NULL);
    spx_cards_free(&h);
    add(&h, "MJD-OBS =                  0.0");
    add(&h, "EXPTIME =                900.0");
    spx_err_clear(&e);
    CHECK(spx_exposure_middle(&h, &mjd, &e) == SPX_EINPUT && strstr(spx_err_text(&e), "1960") != NULL);
    spx_cards_free(&h);
}

/* Where a header says that the telescope pointed. */
static void pointing(void)
{
    spx_cards h = {0};
    double ra, dec;
    CHECK(!spx_pointing_from_header(&h, &ra, &dec));
    add(&h, "RA      = '12:30:36.0'");
    CHECK(!spx_pointing_from_header(&h, &ra, &dec));
    add(&h, "DEC     = '-00 06 36'");
    CHECK(spx_pointing_from_header(&h, &ra, &dec) && fabs(ra - 187.65) < 1e-12 && fabs(dec + 0.11) < 1e-12);
    add(&h, "TELRA   =                188.5");
    add(&h, "TELDEC  =                -0.25");
    CHECK(spx_pointing_from_header(&h, &ra, &dec) && ra == 188.5 && dec == -0.25);
    spx_cards_free(&h);
    add(&h, "RA      = 'unknown '");
    add(&h, "DEC     = '91:00:00'");
    CHECK(!spx_pointing_from_header(&h, &ra, &dec));
    spx_cards_free(&h);
}

/* Four fibres, of which one has no position and one no row. */
static void fibres(void)
{
    spx_image im = {0};
    spx_psf psf = {.nspec = 4};
    double factor[4], alone, ra[] = {150.0, 150.5, NAN}, dec[] = {2.0, 2.0, 2.0};
    int32_t fiber[] = {3, 0, 1};
    spx_directions where;
    spx_site site = {-111.6, 31.96, 2097};
    add(&im.header, "MJD-MID =              59200.5");
    CHECK(spx_image_barycentric(&im, &psf, &site, factor, &where, &e) == SPX_EINPUT);
    CHECK((im.fibermap = spx_table_new(3, &e)) != NULL);
    CHECK(spx_table_add(im.fibermap, "FIBER", H5T_NATIVE_INT32, "", fiber, &e) == SPX_OK);
    CHECK(spx_image_barycentric(&im, &psf, &site, factor, &where, &e) == SPX_EINPUT);
    CHECK(spx_table_add(im.fibermap, "TARGET_RA", H5T_NATIVE_DOUBLE, "deg", ra, &e) == SPX_OK);
    CHECK(spx_table_add(im.fibermap, "TARGET_DEC", H5T_NATIVE_DOUBLE, "deg", dec, &e) == SPX_OK);
    CHECK(spx_image_barycentric(&im, &psf, NULL, factor, &where, &e) == SPX_EINPUT); /* no site */
    spx_err_clear(&e);
    CHECK(spx_image_barycentric(&im, &psf, &site, factor, &where, &e) == SPX_OK && where.nowhere == 2);
    CHECK(where.below == 0 && fabs(where.altitude - 54) < 10 && isnan(where.in_hours));
    CHECK(where.astray == 0 && isnan(where.off) && isnan(where.flat));
    CHECK(spx_barycentric_factors(&site, 59200.5, 1, &ra[0], &dec[0], &alone, &e) == SPX_OK && factor[3] == alone);
    CHECK(spx_barycentric_factors(&site, 59200.5, 1, &ra[1], &dec[1], &alone, &e) == SPX_OK && factor[0] == alone);
    /* the others: between the two, nearly in the middle */
    CHECK(factor[1] == factor[2] && fabs(factor[1] - (factor[0] + factor[3]) / 2) < 1e-9 && factor[0] != factor[3]);

    int32_t two[] = {3, 0};
    spx_frame f = {.nspec = 2, .fiber = two};
    CHECK((f.fibermap = spx_table_new(2, &e)) != NULL);
    CHECK(spx_frame_set_barycentric(&f, factor, &e) == SPX_OK && f.arm.barycentric == 1);
    double v[2], mean;
    CHECK(spx_table_get_f64(f.fibermap, "BARYCENTRIC_VELOCITY", v, &e) == SPX_OK);
    CHECK(fabs(v[0] - SPX_C_KMS * (factor[3] - 1)) < 1e-12 && fabs(v[1] - SPX_C_KMS * (factor[0] - 1)) < 1e-12);
    CHECK(spx_cards_double(&f.header, "HELIOCOR", &mean) && fabs(mean - (factor[0] + factor[3]) / 2) < 1e-12);
    spx_table_free(f.fibermap);
    spx_cards_free(&f.header);
    spx_image_free(&im);
}

int main(void)
{
    compare_with_astropy();
    sites();
    times();
    pointing();
    fibres();
    return 0;
}
