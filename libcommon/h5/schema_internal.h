/* Provides functions on words of the schema texts that schema_parse.c, schema_check.c and schema_doc.c share. */
#ifndef SPX_SCHEMA_INTERNAL_H
#define SPX_SCHEMA_INTERNAL_H

#include "h5/schema.h"

/* Copies n characters into to[size] as a string; text that does not fit is a bug in schema `block`, and ends the
 * program. */
void spx_schema_put(char *to, size_t size, const char *from, size_t n, const char *block);
/* 1 when a word of n characters begins with `key`, or equals it. */
int spx_schema_starts(const char *w, size_t n, const char *key);
int spx_schema_same(const char *w, size_t n, const char *key);

#endif
