/* Columns of numbers and words as text: aligned for people, or as comma-separated values with all digits. */
#ifndef SPX_TEXTCOLUMN_H
#define SPX_TEXTCOLUMN_H

#include <hdf5.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum { SPX_TEXTCOLUMN_WIDTH = 64 };

/* How they are printed. */
typedef struct {
    int csv, units; /* comma-separated; units in a second line */
} spx_textformat;

/* How the values of one column are held, and how wide they are on paper. Its arrays belong to it. */
typedef struct {
    char *name, *unit;
    H5T_class_t kind; /* H5T_INTEGER, H5T_FLOAT or H5T_STRING */
    int digits;       /* of a floating-point number */
    int decimals;     /* of one, where it has a fixed number of them; else -1 */
    int64_t *i;
    double *f;
    char *s; /* rows of SPX_TEXTCOLUMN_WIDTH bytes */
    int width;
} spx_textcolumn;

/* Frees what n columns hold, and empties them. */
void spx_textcolumns_empty(spx_textcolumn *c, size_t n);
/* Significant digits of a number that is stored in so many bytes: all that tell two values apart (csv), or as many as a
 * person reads. */
int spx_textcolumn_digits(size_t bytes, const spx_textformat *f);
/* For people: up to four decimals, as many as the column needs, or five digits where all numbers are below 0.1. Angles
 * and dates keep all their digits, and so do comma-separated values. */
void spx_textcolumn_round(spx_textcolumn *c, size_t nrow, const spx_textformat *f);
/* The width of the column: to be called when all else is set. */
void spx_textcolumn_measure(spx_textcolumn *c, size_t nrow, const spx_textformat *f);
/* A line of names, one of units on demand, and rows first ... first+nrow-1 of n columns. */
void spx_textcolumns_print(FILE *out, const spx_textcolumn *c, size_t n, size_t first, size_t nrow,
                           const spx_textformat *f);

#endif
