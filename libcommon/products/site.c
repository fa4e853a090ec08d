/* Reads the site and time of an exposure, from a header or from text (products/site.h). */
#include "products/site.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/parse.h"

/* Observatories of multi-fibre and echelle spectrographs. Positions: the observatories' own pages and the site registry
 * of the IRAF/obsdb and Astropy projects, to some 100 m, which is 0.01 m/s. */
static const struct {
    const char *names; /* names as spx_site_parse() normalises them, with a blank on both sides of each */
    spx_site site;
} known[] = {
    {" kpno kittpeak kittpeaknationalobservatory mayall ", {-111.59989, 31.96403, 2097}},
    {" apo apachepoint apachepointobservatory ", {-105.820417, 32.780361, 2788}},
    {" lco lascampanas lascampanasobservatory ", {-70.692, -29.0146, 2402}},
    {" paranal vlt cerroparanal ", {-70.404167, -24.625278, 2635}},
    {" vista ", {-70.397, -24.6157, 2518}},
    {" lasilla lasillaobservatory ", {-70.73, -29.2567, 2400}},
    {" sso siding sidingspring aat sidingspringobservatory ", {149.067083, -31.277039, 1149}},
    {" orm lapalma wht roquedelosmuchachos roque ", {-17.8816, 28.7606, 2344}},
    {" maunakea subaru keck cfht mauna ", {-155.476667, 19.825556, 4139}},
    {" xinglong lamost ", {117.5775, 40.3957, 960}},
    {" ctio cerrotololo blanco ", {-70.806525, -30.169661, 2215}},
    {" geminisouth cerropachon ", {-70.736683, -30.24075, 2722}},
    {" mmt mthopkins fred whipple ", {-110.885, 31.6883, 2600}},
    {" mcdonald het mcdonaldobservatory ", {-104.0247, 30.6814, 2025}},
    {" palomar hale ", {-116.865, 33.356, 1706}},
    {" lick mthamilton ", {-121.637222, 37.343333, 1290}},
};

static int usable(const spx_site *s)
{
    return fabs(s->longitude) <= 360 && fabs(s->latitude) <= 90 && s->height > -500 && s->height < 1e5;
}

static int site_by_name(const char *text, spx_site *site)
{
    char word[64];
    size_t n = 0;
    word[n++] = ' ';
    for (const char *p = text; *p != '\0' && n < sizeof word - 2; p++)
        if (isalnum((unsigned char)*p))
            word[n++] = (char)tolower((unsigned char)*p);
    word[n++] = ' ';
    word[n] = '\0';
    for (size_t i = 0; n > 2 && i < sizeof known / sizeof *known; i++)
        if (strstr(known[i].names, word) != NULL) {
            *site = known[i].site;
            return 1;
        }
    return 0;
}

spx_status spx_site_parse(const char *text, spx_site *site, spx_err *e)
{
    double v[3];
    size_t n;
    if (strchr(text, ',') == NULL) {
        char names[256] = "";
        if (site_by_name(text, site))
            return SPX_OK;
        for (size_t i = 0, at = 0; i < sizeof known / sizeof *known; i++) {
            size_t len = strcspn(known[i].names + 1, " ");
            at += (size_t)snprintf(names + at, sizeof names - at, "%s%.*s", i > 0 ? ", " : "", (int)len,
                                   known[i].names + 1);
        }
        return spx_fail(e, SPX_EUSAGE,
                        "--site: '%s' is not known: give LONGITUDE,LATITUDE,HEIGHT in degrees east, degrees and metres,"
                        " or one of %s",
                        text, names);
    }
    spx_status st = spx_parse_doubles(text, ',', "--site", "LONGITUDE,LATITUDE,HEIGHT", 3, v, &n, e);
    if (st != SPX_OK)
        return st;
    *site = (spx_site){n > 0 ? v[0] : 0, n > 1 ? v[1] : 0, n > 2 ? v[2] : 0};
    if (n != 3 || !usable(site))
        return spx_fail(e, SPX_EUSAGE, "--site: '%s' is not LONGITUDE,LATITUDE,HEIGHT (degrees east, degrees, metres)",
                        text);
    return SPX_OK;
}

/* Degrees by which a place in a header may differ from that of the observatory that the header names. */
#define NEAR 0.5

/* The site that a header names; key: its keyword. 0: none that is known. */
static int site_named(const spx_cards *h, const char **key, char text[80], spx_site *site)
{
    static const char *const named[] = {"OBSERVAT", "OBSERVATORY", "SITE", "TELESCOP"};
    for (size_t i = 0; i < sizeof named / sizeof *named; i++) {
        *key = named[i];
        if (spx_cards_string(h, named[i], text, 80) && site_by_name(text, site))
            return 1;
    }
    return 0;
}

/* Longitudes that are counted to the west, as in headers of IRAF, are 0.9 km/s off at most. */
static spx_status check_named(const spx_cards *h, const char *const *place, const spx_site *site, spx_err *e)
{
    const char *key;
    char text[80];
    spx_site there;
    if (!site_named(h, &key, text, &there) || (fabs(remainder(site->longitude - there.longitude, 360)) < NEAR &&
                                               fabs(site->latitude - there.latitude) < NEAR))
        return SPX_OK;
    return spx_fail(
        e, SPX_EINPUT,
        "image: %s and %s of the header say %g, %g degrees, and %s '%s', which is at %g, %g: longitudes count "
        "to the east: give --site",
        place[0], place[1], site->longitude, site->latitude, key, text, there.longitude, there.latitude);
}

spx_status spx_site_from_header(const spx_cards *h, spx_site *site, spx_err *e)
{
    static const char *const place[][3] = {{"OBS-LONG", "OBS-LAT", "OBS-ELEV"},
                                           {"ESO TEL GEOLON", "ESO TEL GEOLAT", "ESO TEL GEOELEV"}};
    for (size_t i = 0; i < sizeof place / sizeof *place; i++) {
        int have = spx_cards_double(h, place[i][0], &site->longitude);
        have += spx_cards_double(h, place[i][1], &site->latitude);
        have += spx_cards_double(h, place[i][2], &site->height);
        if (have > 0 && (have < 3 || !usable(site)))
            return spx_fail(e, SPX_EINPUT, "image: header keywords %s, %s, %s are no place on Earth: give --site",
                            place[i][0], place[i][1], place[i][2]);
        if (have == 3)
            return check_named(h, place[i], site, e);
    }
    const char *key;
    char text[80];
    if (site_named(h, &key, text, site))
        return SPX_OK;
    return spx_fail(e, SPX_EINPUT,
                    "image: the header does not say where the observatory is (OBS-LONG, OBS-LAT, OBS-ELEV, OBSERVAT): "
                    "give --site");
}

spx_status spx_site_to_header(const spx_site *site, spx_cards *h, spx_err *e)
{
    spx_status st = spx_cards_set_double(h, "OBS-LONG", site->longitude, "[deg] observatory, east longitude", e);
    if (st == SPX_OK)
        st = spx_cards_set_double(h, "OBS-LAT", site->latitude, "[deg] observatory, latitude", e);
    if (st == SPX_OK)
        st = spx_cards_set_double(h, "OBS-ELEV", site->height, "[m] observatory, height", e);
    return st;
}

spx_status spx_exposure_middle(const spx_cards *h, double *mjd, spx_err *e)
{
    static const char *const start[] = {"MJD-OBS", "MJD_OBS", "MJDSTART", "MJD"};
    char text[80];
    double exptime;
    int have = spx_cards_double(h, "MJD-MID", mjd);
    if (!have) {
        for (size_t i = 0; i < sizeof start / sizeof *start && !have; i++)
            have = spx_cards_double(h, start[i], mjd);
        if (!have && spx_cards_string(h, "DATE-OBS", text, sizeof text) && !(have = spx_mjd_from_date(text, mjd)))
            return spx_fail(e, SPX_EINPUT, "image: DATE-OBS '%s' is not YYYY-MM-DDThh:mm:ss", text);
        if (!have)
            return spx_fail(e, SPX_EINPUT,
                            "image: the header does not say when it was taken (MJD-OBS or DATE-OBS, or MJD-MID): no "
                            "barycentric wavelengths");
        if (!spx_cards_double(h, "EXPTIME", &exptime) || !(exptime >= 0 && exptime <= 86400))
            return spx_fail(e, SPX_EINPUT,
                            "image: the header has no usable EXPTIME (s, a day at most): the middle of the exposure is "
                            "not known");
        *mjd += exptime / 2 / 86400;
    }
    if (!(*mjd > 36934 && *mjd < 88069)) /* 1960 ... 2100: where UTC and the Earth's orbit are defined */
        return spx_fail(e, SPX_EINPUT, "image: MJD %.10g of the exposure is not between 1960 and 2100", *mjd);
    double date; /* of another clock or of the night's begin, perhaps, but not of another week */
    if (spx_cards_string(h, "DATE-OBS", text, sizeof text) && spx_mjd_from_date(text, &date) &&
        !(fabs(*mjd - date) < 7))
        return spx_fail(e, SPX_EINPUT, "image: MJD %.10g of the exposure and DATE-OBS '%s' are %.3g days apart", *mjd,
                        text, fabs(*mjd - date));
    return SPX_OK;
}

/* A keyword in degrees, or a text of units of `unit` degrees, minutes and seconds. */
static int angle(const spx_cards *h, const char *key, double unit, double *out)
{
    char text[80];
    double v[3] = {0, 0, 0};
    if (spx_cards_double(h, key, out))
        return isfinite(*out);
    if (!spx_cards_string(h, key, text, sizeof text))
        return 0;
    const char *p = text + strspn(text, " ");
    const double sign = *p == '-' ? -1 : 1;
    p += *p == '-' || *p == '+';
    if (sscanf(p, "%lf%*1[: ]%lf%*1[: ]%lf", &v[0], &v[1], &v[2]) < 2 || !(v[0] >= 0 && v[1] >= 0 && v[2] >= 0))
        return 0;
    *out = sign * unit * (v[0] + v[1] / 60 + v[2] / 3600);
    return isfinite(*out);
}

int spx_pointing_from_header(const spx_cards *h, double *ra, double *dec)
{
    static const char *const key[][2] = {
        {"TILERA", "TILEDEC"}, {"TELRA", "TELDEC"}, {"SKYRA", "SKYDEC"}, {"RADEG", "DECDEG"}, {"RA", "DEC"}};
    for (size_t i = 0; i < sizeof key / sizeof *key; i++)
        if (angle(h, key[i][0], 15, ra) && angle(h, key[i][1], 1, dec) && fabs(*ra) <= 360 && fabs(*dec) <= 90)
            return 1;
    return 0;
}
