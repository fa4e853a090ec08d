/* Provides --keep-going: an input that cannot be read is counted and left out, the others are processed. */
#ifndef SPX_FAILURES_H
#define SPX_FAILURES_H

#include <stddef.h>

#include "base/err.h"

typedef struct {
    int go_on; /* 0: the first failure ends the program */
    size_t n;  /* number of inputs left out */
} spx_failures;

/* Handles the status of one input. With go_on, SPX_EINPUT becomes SPX_OK: the error is printed and counted, *e is
 * clear, and *left_out is 1. Other states are returned. */
spx_status spx_failures_note(spx_failures *f, spx_status st, int *left_out, spx_err *e);

#endif
