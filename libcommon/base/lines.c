#include "base/lines.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/infile.h"

spx_status spx_lines_open(spx_lines *l, const char *name, spx_err *e)
{
    *l = (spx_lines){.name = name};
    return spx_infile_open(name, &l->file, e);
}

char *spx_lines_raw(spx_lines *l, size_t *n)
{
    int c = 0;
    for (*n = 0; !l->too_long && c != '\n' && (c = getc_unlocked(l->file)) != EOF;) {
        if (*n + 2 > l->capacity) {
            const size_t capacity = l->capacity > 0 ? 2 * l->capacity : 256;
            char *more = *n < SPX_LINE_MOST ? realloc(l->line, capacity) : NULL;
            if (more == NULL) {
                l->too_long = *n >= SPX_LINE_MOST;
                l->no_memory = !l->too_long;
                return NULL;
            }
            l->line = more;
            l->capacity = capacity;
        }
        l->line[(*n)++] = (char)c;
    }
    if (*n == 0)
        return NULL;
    l->line[*n] = '\0';
    l->number++;
    return l->line;
}

char *spx_lines_next(spx_lines *l)
{
    size_t length;
    while (spx_lines_raw(l, &length) != NULL) {
        l->line[strcspn(l->line, "#\r\n")] = '\0';
        char *p = l->line + strspn(l->line, " \t");
        size_t n = strlen(p);
        while (n > 0 && (p[n - 1] == ' ' || p[n - 1] == '\t'))
            p[--n] = '\0';
        if (n > 0)
            return p;
    }
    return NULL;
}

spx_status spx_lines_close(spx_lines *l, spx_status st, spx_err *e)
{
    if (st == SPX_OK && ferror(l->file))
        st = spx_fail(e, SPX_EIO, "%s: cannot read: %s", l->name, strerror(errno));
    if (st == SPX_OK && l->no_memory)
        st = spx_fail(e, SPX_EIO, "%s: out of memory", l->name);
    if (st == SPX_OK && l->too_long)
        st = spx_fail(e, SPX_EINPUT, "%s:%zu: is longer than %d bytes: is this a text file?", l->name, l->number + 1,
                      SPX_LINE_MOST);
    free(l->line);
    if (l->file != stdin)
        (void)fclose(l->file);
    return st;
}
