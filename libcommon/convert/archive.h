/* Reads objects that LSST's afw has written into a FITS file: the table ARCHIVE_INDEX says of each, by its number and
 * the name of its class, in which rows of which of the tables after it (EXTTYPE ARCHIVE_DATA) its parts are. */
#ifndef SPX_FITS_ARCHIVE_H
#define SPX_FITS_ARCHIVE_H

#include "fits/scan.h"

enum { SPX_ARCHIVE_NAME = 128 };

/* The index, by its columns. */
typedef struct {
    int hdu;
    size_t n;
    double *id, *table, *row, *nrow, *part;
    char *name; /* [n][SPX_ARCHIVE_NAME] */
} spx_archive;

/* Rows of an object: its first one, and how many. */
typedef struct {
    double id;
    int hdu;
    size_t row, nrow;
} spx_archived;

/* SPX_EINPUT: no such table, or a column is missing. Free also after an error. */
spx_status spx_archive_open(const spx_fits *f, spx_archive *a, spx_err *e) SPX_NODISCARD;
void spx_archive_free(spx_archive *a);

/* Number of the first object of a class; 0: none. */
double spx_archive_find(const spx_archive *a, const char *name);
/* Class of an object; NULL: none has this number. */
const char *spx_archive_class(const spx_archive *a, double id);

/* Rows of the object of this number, which is of the class `name`. SPX_EINPUT: it is not there, or is of another, or
 * its rows are not in the file. */
spx_status spx_archive_object(const spx_fits *f, const spx_archive *a, double id, const char *name, spx_archived *to,
                              spx_err *e) SPX_NODISCARD;

/* One number of an object's first row. SPX_EINPUT: absent, or not finite. */
spx_status spx_archive_number(const spx_fits *f, const spx_archived *of, const char *column, double *to,
                              spx_err *e) SPX_NODISCARD;

#endif
