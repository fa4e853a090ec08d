/* Inputs of which each may fail for itself: with --keep-going the others are worked on all the same. */
#ifndef SPX_FAILURES_H
#define SPX_FAILURES_H

#include <stddef.h>

#include "base/err.h"

typedef struct {
    int go_on; /* 0: the first failure is the program's */
    size_t n;  /* that were left out */
} spx_failures;

/* What became of an input. SPX_OK also for one that could not be read (SPX_EINPUT), where others are to be gone on
 * with: the error has been said and counted then, *e is clear, and *left_out 1. */
spx_status spx_failures_note(spx_failures *f, spx_status st, int *left_out, spx_err *e);

#endif
