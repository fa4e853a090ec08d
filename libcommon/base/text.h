/* Provides text in a growing buffer: NUL-terminated, with capacity. */
#ifndef SPX_TEXT_H
#define SPX_TEXT_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

typedef struct {
    char *s; /* NUL-terminated, or NULL when empty */
    size_t n, capacity;
} spx_text;

spx_status spx_text_add(spx_text *t, spx_err *e, const char *fmt, ...) SPX_PRINTF(3, 4);
void spx_text_free(spx_text *t);

/* Makes control characters '?': what follows a line break in the name of a file would pass for a line of the program's,
 * and escapes would reach the terminal. Returns the text. */
char *spx_text_one_line(char *text);

/* Numbers, from 0, of the first three of n that have a flag, unless all have it: " (7, 12, 13, ...)"; else "". */
void spx_text_flagged(size_t n, const uint32_t *flags, uint32_t flag, char text[80]);

#endif
