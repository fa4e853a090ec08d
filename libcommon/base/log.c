/* Provides messages on stderr, with control characters replaced, and the note of a signal handler (base/log.h). */
#include "base/log.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/text.h"

static const char *program = "specpipe";
static spx_verbosity level = SPX_NORMAL;

void spx_log_init(const char *name, spx_verbosity v)
{
    program = name;
    level = v;
}

void spx_log_level(spx_verbosity v)
{
    level = v;
}

static void SPX_PRINTF(2, 0) print_message(const char *kind, const char *fmt, va_list ap)
{
    char line[2048];
    int n = vsnprintf(line, sizeof line, fmt, ap);
    if (n < 0)
        return;
    (void)spx_text_one_line(line);
    if (level >= SPX_VERBOSE) {
        time_t now = time(NULL);
        struct tm tm;
        char t[16] = "";
        if (localtime_r(&now, &tm) != NULL)
            (void)strftime(t, sizeof t, "%H:%M:%S ", &tm);
        fprintf(stderr, "%s%s: %s%s\n", t, program, kind, line);
    } else {
        fprintf(stderr, "%s: %s%s\n", program, kind, line);
    }
}

#define SAY(kind, min)                                                                                                 \
    do {                                                                                                               \
        if (level >= (min)) {                                                                                          \
            va_list ap;                                                                                                \
            va_start(ap, fmt);                                                                                         \
            print_message((kind), fmt, ap);                                                                            \
            va_end(ap);                                                                                                \
        }                                                                                                              \
    } while (0)

void spx_error(const char *fmt, ...)
{
    SAY("", SPX_QUIET);
}

void spx_warn(const char *fmt, ...)
{
    SAY("warning: ", SPX_NORMAL);
}

void spx_note(const char *fmt, ...)
{
    SAY("", SPX_NORMAL);
}

void spx_detail(const char *fmt, ...)
{
    SAY("", SPX_VERBOSE);
}

/* Double buffer: a signal handler reads one while the other is written. */
static char last_words[2][512];
static _Atomic(const char *) if_stopped;

void spx_note_if_stopped(const char *fmt, ...)
{
    char *next = last_words[atomic_load(&if_stopped) == last_words[0]];
    char text[400];
    va_list ap;
    if (level < SPX_NORMAL)
        return;
    va_start(ap, fmt);
    (void)vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    (void)snprintf(next, sizeof last_words[0], "%s: %s\n", program, text);
    atomic_store(&if_stopped, next);
}

void spx_log_stopped(void)
{
    const char *text = atomic_load(&if_stopped);
    if (text != NULL && write(STDERR_FILENO, text, strlen(text)) < 0) {
        /* stderr is closed or full: nothing to report to */
    }
}
