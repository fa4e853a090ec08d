/* Provides text in a growing buffer (base/text.h). */
#include "base/text.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"

spx_status spx_text_add(spx_text *t, spx_err *e, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    int k = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    if (k < 0)
        return spx_fail(e, SPX_EBUG, "bad format");
    char *s = spx_grow(t->s, t->n, (size_t)k + 1, &t->capacity, 1, e);
    if (s == NULL)
        return SPX_EIO;
    t->s = s;
    va_start(ap, fmt);
    (void)vsnprintf(t->s + t->n, (size_t)k + 1, fmt, ap);
    va_end(ap);
    t->n += (size_t)k;
    return SPX_OK;
}

void spx_text_free(spx_text *t)
{
    spx_free(t->s);
    memset(t, 0, sizeof *t);
}

char *spx_text_one_line(char *text)
{
    for (char *c = text; *c != '\0'; c++)
        if ((unsigned char)*c < 0x20 || *c == 0x7f)
            *c = '?';
    return text;
}
