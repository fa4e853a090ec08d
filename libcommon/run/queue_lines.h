/* Reads the list of a queue's exposures: a line each, which names its inputs with tabs between. A pipe is read as its
 * lines come, so that a program may begin before the files of later lines are there. */
#ifndef SPX_QUEUE_LINES_H
#define SPX_QUEUE_LINES_H

#include <stddef.h>

#include "app/filelist.h"
#include "base/err.h"

typedef struct {
    const char *name; /* of the file, for messages */
    int fd;
    char *bytes; /* read, and not yet returned: from `at` to n */
    size_t at, n, capacity;
    int over; /* 1: the file has ended */
} spx_queue_lines;

/* 1 when an input is a list, @FILE or @-, and no file whose name begins so. */
int spx_queue_is_list(const char *input);
/* Outputs of the lines of the list `input`: those that -o @FILE names. SPX_EUSAGE where `output` is no list, or has one
 * name twice. */
spx_status spx_queue_targets(const char *output, const char *input, spx_filelist *target, spx_err *e);

/* Opens the list, - is standard input; SPX_EINPUT where it cannot be read. */
spx_status spx_queue_lines_open(spx_queue_lines *l, const char *name, spx_err *e);
/* 1 when the next line, or the end, is there: spx_queue_lines_next() will not wait for it. */
int spx_queue_lines_ready(spx_queue_lines *l);
/* *line: the next line that is neither empty nor begins with #, without its end; valid until the next call, and the
 * caller may change it. NULL at the end. SPX_EIO: it cannot be read; SPX_EINPUT: it is longer than SPX_LINE_MOST, or
 * without an end, so that its writer has been stopped. */
spx_status spx_queue_lines_next(spx_queue_lines *l, char **line, spx_err *e);
void spx_queue_lines_close(spx_queue_lines *l);

#endif
