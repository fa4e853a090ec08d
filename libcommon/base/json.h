/* Provides values of JSON (RFC 8259), printed on a stream. */
#ifndef SPX_JSON_H
#define SPX_JSON_H

#include <stdio.h>

/* Prints a text in double quotes. What is not UTF-8 is taken for Latin-1. */
void spx_json_string(FILE *out, const char *s);
/* Prints a number with so many significant digits; null for NaN and infinities, which JSON does not have. */
void spx_json_number(FILE *out, double v, int digits);
/* Prints a text of several lines as an array of texts. */
void spx_json_lines(FILE *out, const char *lines);

#endif
