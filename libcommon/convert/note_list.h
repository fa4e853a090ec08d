/* Provides a list of what a user should hear of a conversion, in order: a program says it once the product is whole. */
#ifndef SPX_CONVERT_NOTE_LIST_H
#define SPX_CONVERT_NOTE_LIST_H

#include <stddef.h>

#include "base/err.h"

typedef struct {
    char **note;
    size_t n, capacity;
} spx_note_list;

/* One more, in any characters: it names files. SPX_EIO: no memory. */
spx_status spx_note_list_add(spx_note_list *l, spx_err *e, const char *fmt, ...) SPX_PRINTF(3, 4);
void spx_note_list_free(spx_note_list *l);

#endif
