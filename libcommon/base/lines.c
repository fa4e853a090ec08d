#include "base/lines.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/infile.h"

spx_status spx_lines_open(spx_lines *l, const char *name, spx_err *e)
{
    *l = (spx_lines){.name = name, .file = fopen(name, "r")};
    return l->file != NULL ? SPX_OK : spx_fail_open(name, errno, e);
}

char *spx_lines_next(spx_lines *l)
{
    while (getline(&l->line, &l->capacity, l->file) >= 0) {
        l->number++;
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
    free(l->line);
    if (l->file != stdin)
        (void)fclose(l->file);
    return st;
}
