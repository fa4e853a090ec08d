/* Reads positions of stations from text. */
#ifndef SPX_STATIONS_H
#define SPX_STATIONS_H

#include <stddef.h>

#include "base/err.h"

/* Reads east and north in km, one station a line; # begins a comment. position[n * 2], spx_free. */
spx_status spx_stations_read(const char *name, size_t *n, double **position, spx_err *e);

#endif
