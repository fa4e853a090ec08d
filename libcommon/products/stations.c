#include "products/stations.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/infile.h"
#include "base/mem.h"

spx_status spx_stations_read(const char *name, size_t *n, double **position, spx_err *e)
{
    FILE *f = fopen(name, "r");
    if (f == NULL)
        return spx_fail_open(name, errno, SPX_EINPUT, e);
    char *line = NULL;
    size_t capacity = 0, held = 0, number = 0;
    spx_status st = SPX_OK;
    *n = 0;
    *position = NULL;
    while (st == SPX_OK && getline(&line, &capacity, f) >= 0) {
        line[strcspn(line, "#\r\n")] = '\0';
        char *q, *r;
        double x = strtod(line, &q), y = strtod(q, &r);
        number++;
        if (line[strspn(line, " \t")] == '\0')
            continue;
        if (q == line || r == q || r[strspn(r, " \t")] != '\0' || !isfinite(x) || !isfinite(y)) {
            st = spx_fail(e, SPX_EINPUT, "%s:%zu: is not a position: two numbers, east and north, in km", name, number);
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
    if (st == SPX_OK && ferror(f))
        st = spx_fail(e, SPX_EIO, "%s: cannot read: %s", name, strerror(errno));
    free(line);
    (void)fclose(f);
    if (st != SPX_OK) {
        spx_free(*position);
        *position = NULL;
    }
    return st;
}
