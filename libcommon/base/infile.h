/* Opens input files, and provides messages about unusable ones: that do not exist, cannot be opened, or are compressed.
 */
#ifndef SPX_INFILE_H
#define SPX_INFILE_H

#include <stddef.h>
#include <stdio.h>

#include "base/err.h"

/* Fails because the file `name` could not be opened; `err` is the errno. SPX_EINPUT where it does not exist, with a
 * hint where the name is a pattern without a match, or FILE[1], or where it may not be read; SPX_EIO where the machine
 * fails. */
spx_status spx_fail_open(const char *name, int err, spx_err *e);

/* Opens a file to read; a folder, which fopen() opens, is none: SPX_EINPUT. */
spx_status spx_infile_open(const char *name, FILE **file, spx_err *e);

/* Recognises a compressed file by its first n bytes: returns words for the message ("packed with gzip") and in *command
 * what unpacks it to standard output ("gunzip -c"); NULL where it is none. */
const char *spx_packed_with(const unsigned char *head, size_t n, const char **command);

#endif
