/* Provides the barycentric correction of a frame's wavelengths, fibre by fibre (products/frame_barycentre.h). */
#include "products/frame_barycentre.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "h5/table.h"
#include "num/stat.h"
#include "num/wave.h"
#include "products/frame.h"
#include "products/site.h"

/* Fewest positions whose scatter says something, and degrees beyond which a fibre is not of the field. */
enum { FEWEST = 8 };
#define FIELD 10.0

/* Median of n values, which stay as they are, and 1.4826 times the median of their distances to it. work[n]. */
static double median_scatter(size_t n, const double *v, double *work, double *scatter)
{
    memcpy(work, v, n * sizeof *work);
    const double middle = spx_median(work, n);
    for (size_t k = 0; k < n; k++)
        work[k] = fabs(v[k] - middle);
    *scatter = 1.4826 * spx_median(work, n);
    return middle;
}

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Different ones of n values; work[n]. Orders of a fibre have one position, and so have fibres of one star. */
static size_t count_different(size_t n, const double *v, double *work)
{
    size_t different = n > 0;
    memcpy(work, v, n * sizeof *work);
    qsort(work, n, sizeof *work, compare);
    for (size_t k = 1; k < n; k++)
        different += work[k] > work[k - 1];
    return different;
}

/* Fills off, off_hours, flat, astray, stray from positions, which may be NAN. */
static spx_status look_at_field(const spx_cards *h, size_t n, const double *ra, const double *dec,
                                spx_directions *where, spx_err *e)
{
    double *r = spx_alloc2(3, n, sizeof *r, e), width, height, there[2];
    size_t m = 0;
    int hours = 1;
    where->off = where->off_hours = where->flat = NAN;
    where->astray = where->stray = 0;
    if (r == NULL)
        return SPX_EIO;
    double *d = r + n, *work = d + n;
    for (size_t k = 0; k < n; k++)
        if (isfinite(ra[k]) && isfinite(dec[k])) {
            r[m] = m == 0 ? ra[k] : r[0] + remainder(ra[k] - r[0], 360);
            d[m++] = dec[k];
            hours &= ra[k] >= 0 && ra[k] < 24;
        }
    if (m > 0) {
        const double a = median_scatter(m, r, work, &width), b = median_scatter(m, d, work, &height);
        if (hours && height > 0 && count_different(m, d, work) >= FEWEST && count_different(m, r, work) >= FEWEST)
            where->flat = width * cos(b * (acos(-1) / 180)) / height;
        for (size_t k = n; k-- > 0;)
            if (spx_separation(ra[k], dec[k], a, b) > FIELD) {
                where->astray++;
                where->stray = k;
            }
        if (spx_pointing_from_header(h, &there[0], &there[1])) {
            where->off = spx_separation(there[0], there[1], a, b);
            if (there[0] >= 0 && there[0] < 24) /* of the header, in hours */
                where->off = fmin(where->off, spx_separation(15 * there[0], there[1], a, b));
            if (hours)
                where->off_hours = spx_separation(there[0], there[1], 15 * a, b);
        }
    }
    spx_free(r);
    return SPX_OK;
}

/* Fills below, altitude, in_hours from positions, which may be NAN. */
static spx_status look_at_horizon(const spx_site *site, double mjd, size_t n, const double *ra, const double *dec,
                                  spx_directions *where, spx_err *e)
{
    double *r = spx_alloc2(3, n + 2, sizeof *r, e);
    size_t m = 0, below = 0;
    int hours = 1;
    if (r == NULL)
        return SPX_EIO;
    double *d = r + n + 2, *altitude = d + n + 2;
    where->below = where->altitude = 0;
    where->in_hours = NAN;
    for (size_t k = 0; k < n; k++)
        if (fabs(ra[k]) <= 360 && fabs(dec[k]) <= 90) {
            r[m] = ra[k];
            d[m++] = dec[k];
            hours &= ra[k] >= 0 && ra[k] < 24;
        }
    /* beside them their mean, as it is and in hours */
    r[m] = d[m] = NAN;
    (void)spx_fill_directions(m + 1, r, d);
    r[m + 1] = 15 * r[m];
    d[m + 1] = d[m];
    const spx_status st = m > 0 ? spx_altitudes(site, mjd, m + 2, r, d, altitude, e) : SPX_OK;
    for (size_t k = 0; k < m && st == SPX_OK; k++)
        below += altitude[k] < 0;
    if (st == SPX_OK && m > 0) {
        where->below = (double)below / (double)m;
        where->altitude = altitude[m];
        if (hours)
            where->in_hours = altitude[m + 1];
    }
    spx_free(r);
    return st;
}

/* A position that stands for none: (0, 0), -99, -999. */
static int no_place(double ra, double dec)
{
    return (ra == 0 && dec == 0) || fabs(dec) > 90;
}

spx_status spx_image_barycentric(const spx_image *im, const spx_psf *psf, const spx_site *site, double *factor,
                                 spx_directions *where, spx_err *e)
{
    spx_site place;
    double mjd;
    size_t n = psf->nspec;
    spx_status st = SPX_OK;
    if (site == NULL) {
        st = spx_site_from_header(&im->header, &place, e);
        site = &place;
    }
    if (st == SPX_OK)
        st = spx_exposure_middle(&im->header, &mjd, e);
    if (st != SPX_OK)
        return st;
    if (im->fibermap == NULL)
        return spx_fail(e, SPX_EINPUT,
                        "image: has no fibermap, which says where the fibres point (TARGET_RA, "
                        "TARGET_DEC): no barycentric wavelengths");
    size_t nrow = im->fibermap->nrow, *row = spx_alloc(n, sizeof *row, e);
    double *table = spx_alloc2(2, nrow, sizeof *table, e), *ra = spx_alloc(n, sizeof *ra, e),
           *dec = spx_alloc(n, sizeof *dec, e);
    if (row == NULL || table == NULL || ra == NULL || dec == NULL)
        st = SPX_EIO;
    if (st == SPX_OK)
        st = spx_table_get_f64(im->fibermap, "TARGET_RA", table, e);
    if (st == SPX_OK)
        st = spx_table_get_f64(im->fibermap, "TARGET_DEC", table + nrow, e);
    if (st == SPX_OK)
        st = spx_frame_fibre_rows(im, psf, row, e);
    for (size_t k = 0; k < n && st == SPX_OK; k++) {
        ra[k] = row[k] == SPX_NO_ROW ? NAN : table[row[k]];
        dec[k] = row[k] == SPX_NO_ROW ? NAN : table[nrow + row[k]];
        if (no_place(ra[k], dec[k]))
            ra[k] = dec[k] = NAN;
    }
    if (st == SPX_OK)
        st = look_at_field(&im->header, n, ra, dec, where, e);
    if (st == SPX_OK)
        st = look_at_horizon(site, mjd, n, ra, dec, where, e);
    if (st == SPX_OK && (where->nowhere = spx_fill_directions(n, ra, dec)) == n)
        st = spx_fail(e, SPX_EINPUT, "fibermap: no fibre has a direction in TARGET_RA and TARGET_DEC (degrees)");
    if (st == SPX_OK)
        st = spx_barycentric_factors(site, mjd, n, ra, dec, factor, e);
    spx_free(row);
    spx_free(table);
    spx_free(ra);
    spx_free(dec);
    return st;
}

spx_status spx_frame_set_barycentric(spx_frame *f, const double *factor, spx_err *e)
{
    double mean = 0, *v = spx_alloc(f->nspec, sizeof *v, e);
    if (v == NULL)
        return SPX_EIO;
    for (size_t k = 0; k < f->nspec; k++) {
        v[k] = SPX_C_KMS * (factor[f->fiber[k]] - 1);
        mean += factor[f->fiber[k]] / (double)f->nspec;
    }
    f->arm.barycentric = 1;
    spx_status st = spx_table_add(f->fibermap, "BARYCENTRIC_VELOCITY", H5T_NATIVE_DOUBLE, "km/s", v, e);
    if (st == SPX_OK)
        st = spx_cards_set_double(&f->header, "HELIOCOR", mean, "mean barycentric factor of the fibres", e);
    spx_free(v);
    return st;
}
