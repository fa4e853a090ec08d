/* Reads the list of a queue's exposures, which may be a pipe (run/queue_lines.h). */
#include "run/queue_lines.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/lines.h"
#include "base/mem.h"

enum { AT_ONCE = 4096 }; /* bytes that are asked for */

int spx_queue_is_list(const char *input)
{
    struct stat sb;
    return input[0] == '@' && input[1] != '\0' && stat(input, &sb) != 0;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

spx_status spx_queue_targets(const char *output, const char *input, spx_filelist *target, spx_err *e)
{
    if (output[0] != '@' || output[1] == '\0')
        return spx_fail(e, SPX_EUSAGE, "%s: a list of inputs goes with -o @FILE, a list of outputs", input);
    if (spx_filelist_add(target, output, "", e) != SPX_OK)
        return e->code;
    char **sorted = spx_alloc(target->n, sizeof *sorted, e), *twice = NULL;
    if (sorted == NULL)
        return SPX_EIO;
    memcpy(sorted, target->name, target->n * sizeof *sorted);
    qsort(sorted, target->n, sizeof *sorted, by_name);
    for (size_t i = 1; i < target->n && twice == NULL; i++)
        twice = strcmp(sorted[i - 1], sorted[i]) == 0 ? sorted[i] : NULL;
    spx_free(sorted);
    return twice == NULL ? SPX_OK : spx_fail(e, SPX_EUSAGE, "-o %s: names %s twice", output, twice);
}

spx_status spx_queue_lines_open(spx_queue_lines *l, const char *name, spx_err *e)
{
    *l = (spx_queue_lines){.name = name};
    l->fd = strcmp(name, "-") == 0 ? STDIN_FILENO : open(name, O_RDONLY | O_CLOEXEC);
    return l->fd >= 0 ? SPX_OK : spx_fail(e, SPX_EINPUT, "@%s: the list cannot be read: %s", name, strerror(errno));
}

void spx_queue_lines_close(spx_queue_lines *l)
{
    if (l->fd > STDIN_FILENO)
        (void)close(l->fd);
    spx_free(l->bytes);
    *l = (spx_queue_lines){.fd = -1};
}

/* End of the first line that is there; NULL: none is whole. */
static char *whole_line(const spx_queue_lines *l)
{
    return l->n > l->at ? memchr(l->bytes + l->at, '\n', l->n - l->at) : NULL;
}

/* Reads more bytes, waiting for them where there are none. */
static spx_status read_more(spx_queue_lines *l, spx_err *e)
{
    if (l->at > 0)
        memmove(l->bytes, l->bytes + l->at, l->n - l->at);
    l->n -= l->at;
    l->at = 0;
    if (l->n > SPX_LINE_MOST)
        return spx_fail(e, SPX_EINPUT, "@%s: a line is longer than %d bytes: is this a text file?", l->name,
                        SPX_LINE_MOST);
    char *more = spx_grow(l->bytes, l->n, AT_ONCE, &l->capacity, 1, e);
    if (more == NULL)
        return SPX_EIO;
    l->bytes = more;
    ssize_t got;
    while ((got = read(l->fd, l->bytes + l->n, AT_ONCE)) < 0 && errno == EINTR)
        continue;
    if (got < 0)
        return spx_fail(e, SPX_EIO, "@%s: cannot read: %s", l->name, strerror(errno));
    l->n += (size_t)got;
    l->over = got == 0;
    return SPX_OK;
}

int spx_queue_lines_ready(spx_queue_lines *l)
{
    spx_err ignored = {0};
    for (;;) {
        struct pollfd p = {.fd = l->fd, .events = POLLIN};
        if (l->over || whole_line(l) != NULL)
            return 1;
        if (poll(&p, 1, 0) == 0)
            return 0;
        if (read_more(l, &ignored) != SPX_OK) /* the next line says so */
            return 1;
    }
}

spx_status spx_queue_lines_next(spx_queue_lines *l, char **line, spx_err *e)
{
    *line = NULL;
    for (;;) {
        char *end = whole_line(l);
        if (end == NULL && l->over) {
            const int cut = l->n > l->at;
            l->at = l->n;
            return cut ? spx_fail(e, SPX_EINPUT, "@%s: its last line has no end: what writes it was stopped", l->name)
                       : SPX_OK;
        }
        if (end == NULL) {
            const spx_status st = read_more(l, e);
            if (st != SPX_OK) {
                l->over = 1;
                l->at = l->n;
                return st;
            }
            continue;
        }
        char *begin = l->bytes + l->at;
        l->at = (size_t)(end - l->bytes) + 1;
        *end = '\0';
        begin[strcspn(begin, "\r")] = '\0';
        if (begin[0] != '\0' && begin[0] != '#') {
            *line = begin;
            return SPX_OK;
        }
    }
}
