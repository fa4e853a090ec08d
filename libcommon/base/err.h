/* Provides errors as values: library code returns them, only programs print them and exit.
 *
 * Every function that can fail takes `spx_err *e` last and returns an spx_status (or a pointer, NULL on failure).
 * The first failure fills *e; callers say where it was with spx_err_at(), or add context with spx_err_context(), on the
 * way up. spx_err_text() makes the message of it: `file:place: what is wrong: what to do`. Code that has to know which
 * file an error is about compares the field `file`, never the message. */
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

/* Each field is empty where it does not apply, and cut where it is too long.
 *
 * `text` and `remedy` may name parameters of a kernel in braces, "use fewer ({npoly})": kernels know no command line,
 * so the programs say which option sets the parameter (spx_err_options()). */
typedef struct {
    spx_status code;
    char file[1024];  /* name of the input or output, "standard input" too */
    char place[512];  /* where in it: path of a dataset, HDU, row */
    char text[1024];  /* what is wrong */
    char remedy[512]; /* what to do */
} spx_err;

#if defined(__GNUC__)
#define SPX_PRINTF(fmt, first) __attribute__((format(printf, fmt, first)))
#define SPX_NODISCARD          __attribute__((warn_unused_result))
#else
#define SPX_PRINTF(fmt, first)
#define SPX_NODISCARD
#endif

/* Fills *e with `code` and the message, unless it already holds an error; e may be NULL. Returns `code`. */
spx_status spx_fail(spx_err *e, spx_status code, const char *fmt, ...) SPX_PRINTF(3, 4);

/* The same with what to do about it. */
spx_status spx_fail_remedy(spx_err *e, spx_status code, const char *remedy, const char *fmt, ...) SPX_PRINTF(4, 5);

/* The same of a file and a place in it. Of file, place and remedy each may be NULL. */
spx_status spx_fail_at(spx_err *e, spx_status code, const char *file, const char *place, const char *remedy,
                       const char *fmt, ...) SPX_PRINTF(6, 7);

/* Pass on: set *e (unless it already holds an error; e may be NULL) to *from and return the code of that. */
spx_status spx_err_pass(spx_err *e, const spx_err *from);

/* Say of the error in *e that it is in this file, and at this place of it where `place` is not NULL. An error that has
 * another file already, or a place when it gets another, keeps it as part of its text. Returns e->code; does nothing
 * where *e holds no error. */
spx_status spx_err_at(spx_err *e, const char *file, const char *place);

/* Put `context: ` in front of the whole message in *e; returns e->code. Does nothing where *e holds no error. */
spx_status spx_err_context(spx_err *e, const char *fmt, ...) SPX_PRINTF(2, 3);

/* Clears *e, after the error was dealt with. */
void spx_err_clear(spx_err *e);

/* The message: `file:place: text: remedy`, with a colon and a blank before a place that is neither a path nor in
 * brackets. Valid until this thread's next call. */
const char *spx_err_text(const spx_err *e);

/* `{parameter}` in texts and remedies is the option `option` of this program. */
typedef struct {
    const char *parameter, *option;
} spx_err_option;

/* Messages name these options (up to one whose parameter is NULL) instead of the parameters, from now on in all
 * threads; other braces stay as they are. The list is not copied. */
void spx_err_options(const spx_err_option *option);

#endif
