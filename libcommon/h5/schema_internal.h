/* Shared by schema_parse.c, schema_check.c and schema_doc.c: words of the schema texts. */
#ifndef SPX_SCHEMA_INTERNAL_H
#define SPX_SCHEMA_INTERNAL_H

#include "h5/schema.h"

/* n characters as a string in to[size]; text that does not fit is a bug in schema `block`, and ends the program. */
void spx_schema_put(char *to, size_t size, const char *from, size_t n, const char *block);
/* Does a word of n characters begin with, or equal, `key`? */
int spx_schema_starts(const char *w, size_t n, const char *key);
int spx_schema_same(const char *w, size_t n, const char *key);

#endif
