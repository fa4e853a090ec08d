/* Reads text files line by line: lists of names, columns of numbers. */
#ifndef SPX_LINES_H
#define SPX_LINES_H

#include <stddef.h>
#include <stdio.h>

#include "base/err.h"

enum { SPX_LINE_MOST = 1 << 20 };

typedef struct {
    const char *name; /* for messages; the caller's */
    FILE *file;
    char *line;
    size_t capacity;
    size_t number; /* of the line that was read last, from 1 */
    int too_long;  /* a line has more than SPX_LINE_MOST bytes: this is no text */
    int no_memory;
} spx_lines;

/* Errors as of spx_fail_open(); close only what was opened. For standard input: {.name, .file = stdin}. */
spx_status spx_lines_open(spx_lines *l, const char *name, spx_err *e) SPX_NODISCARD;

/* Next line as it is, with its end, *n bytes and a NUL. NULL: there is none any more, or it is too long: a file without
 * line breaks, and a sparse one of any size, does not fill the memory. */
char *spx_lines_raw(spx_lines *l, size_t *n);
/* Next line that has anything but blanks and a comment, which # begins: without these and its end. NULL: there is none
 * any more. It may be changed, and stays until the next one. */
char *spx_lines_next(spx_lines *l);

/* Returns st; where it is SPX_OK and a line could not be read, SPX_EIO; was too long, SPX_EINPUT. */
spx_status spx_lines_close(spx_lines *l, spx_status st, spx_err *e) SPX_NODISCARD;

#endif
