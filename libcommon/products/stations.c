/* Reads positions of stations from text (products/stations.h). */
#include "products/stations.h"

#include <math.h>
#include <stdlib.h>

#include "base/lines.h"
#include "base/mem.h"

spx_status spx_stations_read(const char *name, size_t *n, double **position, spx_err *e)
{
    spx_lines lines;
    size_t held = 0;
    spx_status st = spx_lines_open(&lines, name, e);
    if (st != SPX_OK)
        return st;
    *n = 0;
    *position = NULL;
    for (char *p, *q, *r; (p = spx_lines_next(&lines)) != NULL;) {
        double x = strtod(p, &q), y = strtod(q, &r);
        if (q == p || r == q || *r != '\0' || !isfinite(x) || !isfinite(y)) {
            st = spx_fail(e, SPX_EINPUT, "%s:%zu: is not a position: two numbers, east and north, in km", name,
                          lines.number);
            break;
        }
        double *more = spx_grow(*position, *n, 1, &held, 2 * sizeof *more, e);
        if (more == NULL) {
            st = SPX_EIO;
            break;
        }
        *position = more;
        (*position)[2 * *n] = x;
        (*position)[2 * (*n)++ + 1] = y;
    }
    st = spx_lines_close(&lines, st, e);
    if (st != SPX_OK) {
        spx_free(*position);
        *position = NULL;
    }
    return st;
}
