/* Provides messages to the user, on stderr only: `tool: text`. */
#ifndef SPX_LOG_H
#define SPX_LOG_H

#include "base/err.h"

typedef enum { SPX_QUIET = -1, SPX_NORMAL = 0, SPX_VERBOSE = 1 } spx_verbosity;

/* Sets the name in front of every message, and the verbosity; at program start only. */
void spx_log_init(const char *program, spx_verbosity v);
void spx_log_level(spx_verbosity v);

/* Errors are always printed; warnings unless -q; notes by default on; details with -v (with a time stamp). */
void spx_error(const char *fmt, ...) SPX_PRINTF(1, 2);
void spx_warn(const char *fmt, ...) SPX_PRINTF(1, 2);
void spx_note(const char *fmt, ...) SPX_PRINTF(1, 2);
void spx_detail(const char *fmt, ...) SPX_PRINTF(1, 2);

/* Prepares a note that is printed only if a signal ends the program from now on, such as how much of its work is done.
 * One thread at a time. */
void spx_note_if_stopped(const char *fmt, ...) SPX_PRINTF(1, 2);
/* Prints that note; async-signal-safe. */
void spx_log_stopped(void);

#endif
