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

void spx_text_flagged(size_t n, const uint32_t *flags, uint32_t flag, char text[80])
{
    enum { SOME = 3 };
    size_t all = 0, named = 0, at = 0;
    text[0] = '\0';
    for (size_t i = 0; i < n; i++)
        all += (flags[i] & flag) != 0;
    for (size_t i = 0; i < n && all < n && named < SOME; i++)
        if (flags[i] & flag)
            at += (size_t)snprintf(text + at, 80 - at, "%s%zu", named++ == 0 ? " (" : ", ", i);
    if (named > 0)
        (void)snprintf(text + at, 80 - at, all > SOME ? ", ...)" : ")");
}
