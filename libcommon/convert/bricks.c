/* Numbers bricks (convert/bricks.h). Rows of bricks of 0.25 degrees in declination, the first and the last centred on
 * the poles; each row has the smallest even number of bricks that are no wider than that in right ascension anywhere,
 * those at the poles have one. They count from the south pole, and from right ascension 0 within a row
 * (legacysurvey.org, files: survey-bricks). */
#include "convert/bricks.h"

#include <math.h>
#include <stdint.h>

#include "base/mem.h"
#include "h5/table.h"

enum { NROW = 721 };

static const double size = 0.25;

/* Number of bricks in a row. */
static long columns(long row)
{
    const double centre = -90.0 + size * (double)row, nearest = fmax(0.0, fabs(centre) - size / 2);
    return row == 0 || row == NROW - 1 ? 1 : 2 * (long)ceil(360.0 / size * cos(nearest * (acos(-1.0) / 180.0)) / 2);
}

/* Brick of a place; before[row]: the number of bricks in the rows south of one. */
static int32_t brick(const long before[NROW + 1], double ra, double dec)
{
    if (!isfinite(ra) || !(fabs(dec) <= 90.0))
        return 0;
    const long row = (long)floor((dec + 90.0 + size / 2) / size);
    const long n = before[row + 1] - before[row], column = (long)((ra / 360.0 - floor(ra / 360.0)) * (double)n);
    return (int32_t)(before[row] + (column < n ? column : n - 1) + 1);
}

spx_status spx_fibermap_add_bricks(spx_table *t, spx_err *e)
{
    if (t == NULL || t->nrow == 0 || spx_table_find(t, "BRICKID") >= 0 || spx_table_find(t, "TARGET_RA") < 0 ||
        spx_table_find(t, "TARGET_DEC") < 0)
        return SPX_OK;
    double *ra = spx_alloc(t->nrow, sizeof *ra, e), *dec = spx_alloc(t->nrow, sizeof *dec, e);
    long before[NROW + 1] = {0};
    for (long r = 0; r < NROW; r++)
        before[r + 1] = before[r] + columns(r);
    int32_t *id = spx_alloc(t->nrow, sizeof *id, e);
    spx_status st = ra == NULL || dec == NULL || id == NULL ? SPX_EIO : spx_table_get_f64(t, "TARGET_RA", ra, e);
    if (st == SPX_OK)
        st = spx_table_get_f64(t, "TARGET_DEC", dec, e);
    for (size_t i = 0; i < t->nrow && st == SPX_OK; i++)
        id[i] = brick(before, ra[i], dec[i]);
    if (st == SPX_OK)
        st = spx_table_add(t, "BRICKID", H5T_NATIVE_INT32, "", id, e);
    spx_free(ra);
    spx_free(dec);
    spx_free(id);
    return st;
}
