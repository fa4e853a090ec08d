/* Prints columns of numbers and words as text: aligned, or, with all digits, as comma-separated values or JSON. */
#ifndef SPX_TEXTCOLUMN_H
#define SPX_TEXTCOLUMN_H

#include <hdf5.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum { SPX_TEXTCOLUMN_WIDTH = 64 };

/* Format of printing. */
typedef struct {
    int csv, json, units; /* 1: comma-separated; JSON; units in a second line */
} spx_textformat;

/* Values of one column, and their width in characters. Owns its arrays. */
typedef struct {
    char *name, *unit;
    H5T_class_t kind; /* H5T_INTEGER, H5T_FLOAT or H5T_STRING */
    int digits;       /* significant digits of a floating-point number */
    int decimals;     /* digits behind the decimal point, where their number is fixed; else -1 */
    int64_t *i;
    double *f;
    char *s; /* rows of SPX_TEXTCOLUMN_WIDTH bytes */
    int width;
} spx_textcolumn;

/* Frees the values of n columns, and clears them. */
void spx_textcolumns_empty(spx_textcolumn *c, size_t n);
/* Significant digits of a number stored in so many bytes: all that distinguish two values (csv, json), or as many as
 * are useful to read. */
int spx_textcolumn_digits(size_t bytes, const spx_textformat *f);
/* Chooses decimals for reading: up to four, as many as the column needs, or five digits where all numbers are below
 * 0.1. Angles and dates keep all digits, and so do comma-separated values and JSON. */
void spx_textcolumn_round(spx_textcolumn *c, size_t nrow, const spx_textformat *f);
/* Sets the width of a column, after its other fields are set. */
void spx_textcolumn_measure(spx_textcolumn *c, size_t nrow, const spx_textformat *f);
/* Prints a line of names, one of units on demand, and rows first ... first+nrow-1 of n columns. JSON: an object with
 * the member `kind`, whose value is `name` (a number as it stands), "units", an object, and "rows", an array of
 * objects, one a line. */
void spx_textcolumns_print(FILE *out, const char *kind, const char *name, const spx_textcolumn *c, size_t n,
                           size_t first, size_t nrow, const spx_textformat *f);

#endif
