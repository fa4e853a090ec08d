#include "convert/note_list.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"

static spx_status more_space(spx_note_list *l, spx_err *e)
{
    const size_t capacity = l->capacity > 0 ? 2 * l->capacity : 8;
    char **note = spx_alloc(capacity, sizeof *note, e);
    if (note == NULL)
        return SPX_EIO;
    if (l->n > 0)
        memcpy(note, l->note, l->n * sizeof *note);
    spx_free(l->note);
    l->note = note;
    l->capacity = capacity;
    return SPX_OK;
}

spx_status spx_note_list_add(spx_note_list *l, spx_err *e, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    const int length = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    if (length < 0)
        return spx_fail(e, SPX_EBUG, "bad format");
    if (l->n == l->capacity && more_space(l, e) != SPX_OK)
        return SPX_EIO;
    char *note = spx_alloc((size_t)length + 1, 1, e);
    if (note == NULL)
        return SPX_EIO;
    va_start(ap, fmt);
    (void)vsnprintf(note, (size_t)length + 1, fmt, ap);
    va_end(ap);
    l->note[l->n++] = note;
    return SPX_OK;
}

void spx_note_list_free(spx_note_list *l)
{
    for (size_t i = 0; i < l->n; i++)
        spx_free(l->note[i]);
    spx_free(l->note);
    *l = (spx_note_list){0};
}
