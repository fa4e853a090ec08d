/* Why an input cannot be used: messages about files that are not there, or are of another kind. */
#ifndef SPX_INFILE_H
#define SPX_INFILE_H

#include <stddef.h>

#include "base/err.h"

/* The file `name` could not be opened, for the reason `err` (errno). SPX_EINPUT where it does not exist, with a hint
 * where that is a pattern that matched nothing, or FILE[1]; else `code`. */
spx_status spx_fail_open(const char *name, int err, spx_status code, spx_err *e);

/* By its first n bytes: words for the kind of a compressed file ("packed with gzip"), and in *command what writes its
 * content to standard output ("gunzip -c"); NULL where it is none. */
const char *spx_packed_with(const unsigned char *head, size_t n, const char **command);

#endif
