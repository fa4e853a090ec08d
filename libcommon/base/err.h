/* Errors: library code returns them, only programs print them and exit.
 *
 * Every function that can fail takes `spx_err *e` last and returns an spx_status (or a pointer, NULL on failure).
 * The first failure fills *e; callers add context with spx_err_context() on the way up, so that the message that a
 * program prints reads `file:/dataset: what is wrong: what to do`. */
#ifndef SPX_ERR_H
#define SPX_ERR_H

#include <stdarg.h>

/* The values are the exit status of a program that stops with this error (specpipe(7), EXIT STATUS). */
typedef enum {
    SPX_OK = 0,      /* done */
    SPX_ENO = 1,     /* the answer is no: invalid, differs, nothing fitted */
    SPX_EUSAGE = 2,  /* wrong options */
    SPX_EINPUT = 3,  /* bad input */
    SPX_EIO = 4,     /* reading, writing or memory failed */
    SPX_EDEVICE = 5, /* the device asked for is missing or failed */
    SPX_EHOOK = 6,   /* the function of --hook raised an exception */
    SPX_EBUG = 70    /* a bug in specpipe */
} spx_status;

typedef struct {
    spx_status code;
    char msg[1024];
} spx_err;

#if defined(__GNUC__)
#define SPX_PRINTF(fmt, first) __attribute__((format(printf, fmt, first)))
#define SPX_NODISCARD          __attribute__((warn_unused_result))
#else
#define SPX_PRINTF(fmt, first)
#define SPX_NODISCARD
#endif

/* Set *e (unless it already holds an error; e may be NULL) and return `code`. */
spx_status spx_fail(spx_err *e, spx_status code, const char *fmt, ...) SPX_PRINTF(3, 4);

/* Put `context: ` in front of the message in *e; returns e->code. Does nothing where *e holds no error. */
spx_status spx_err_context(spx_err *e, const char *fmt, ...) SPX_PRINTF(2, 3);

/* Forget the error in *e (after it was dealt with). */
void spx_err_clear(spx_err *e);

#endif
