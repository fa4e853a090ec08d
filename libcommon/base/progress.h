/* Provides a progress line for a long stage: on a terminal, nothing in a pipe. */
#ifndef SPX_PROGRESS_H
#define SPX_PROGRESS_H

#include <stddef.h>

/* Progress of a stage, which calls spx_progress_step() from any thread when a unit of work is done. NULL: no progress
 * is shown. */
typedef struct spx_progress spx_progress;

/* Starts a line `what: done/total unit` on stderr, at most ten times a second. NULL when `on` is 0 or memory is out. */
spx_progress *spx_progress_start(int on, const char *what, const char *unit, size_t total);
void spx_progress_step(spx_progress *p, size_t n);
/* Ends the line and frees p. */
void spx_progress_end(spx_progress *p);

#endif
