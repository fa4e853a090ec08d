/* Reads numbers, lists and slices from text that a person wrote: the whole text is one, or it is refused. */
#ifndef SPX_PARSE_H
#define SPX_PARSE_H

#include <stddef.h>

#include "base/err.h"

/* Parses one finite double or integer that fills all of `s`. SPX_EUSAGE with `what` (the option's name) in the
 * message. */
spx_status spx_parse_double(const char *s, const char *what, double *out, spx_err *e);
spx_status spx_parse_long(const char *s, const char *what, long *out, spx_err *e);
spx_status spx_parse_bytes(const char *s, const char *what, size_t *out, spx_err *e);
/* Parses up to `max` doubles separated by `sep`; *n gets their number. `form`, such as "MIN,MAX", is for the
 * message. */
spx_status spx_parse_doubles(const char *s, char sep, const char *what, const char *form, size_t max, double *out,
                             size_t *n, spx_err *e);
/* Parses FIRST:LAST, a slice of 0 ... n-1 as in NumPy (LAST excluded; either may be left out). SPX_EUSAGE when it is
 * empty or goes beyond n. */
spx_status spx_parse_slice(const char *s, const char *what, size_t n, size_t *first, size_t *count, spx_err *e);

/* Parses a list such as 3,7,20:25 of numbers and slices of 0 ... n-1: mark[n] becomes 1 where it names one, and is left
 * alone elsewhere. SPX_EUSAGE when it is none, or goes beyond n. */
spx_status spx_parse_rows(const char *s, const char *what, size_t n, unsigned char *mark, spx_err *e);

#endif
