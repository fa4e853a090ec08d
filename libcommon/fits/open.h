/* Opens FITS files: plain (mapped), gzip (inflated), or from a pipe. */
#ifndef SPX_FITS_OPEN_H
#define SPX_FITS_OPEN_H

#include "base/err.h"
#include "fits/scan.h"

/* Opens a file, gzip file or "-". SPX_EINPUT, naming file and HDU: no FITS file, truncated, a structure that
 * contradicts itself. SPX_EIO: cannot be read, or does not fit --max-mem (the machine's memory where none is set). */
spx_status spx_fits_open(spx_fits *f, const char *path, spx_err *e);

#endif
