/* Provides functions on columns and types that table.c, table_join.c, table_io.c and copy.c share. */
#ifndef SPX_TABLE_INTERNAL_H
#define SPX_TABLE_INTERNAL_H

#include "h5/table.h"

enum { SPX_TABLE_MAX_UNITS = 60 * 1024 }; /* bytes of units: an attribute in the object header holds less than 64 KiB */

/* Column to be added. */
typedef struct {
    const char *name;
    hid_t type;
    const char *unit;
    const char *data; /* its value in row 0; NULL: zeros */
    size_t stride;    /* bytes from row to row */
} spx_table_column;

/* 1 when a type has a fixed size: rows are moved as bytes, and must not contain pointers. */
int spx_table_type_is_plain(hid_t type, int depth);
/* Element type of an array (of arrays), and the number of elements. */
hid_t spx_table_type_base(hid_t type, size_t *nelem);
/* 1 when neither type is an array, or both have the same dimensions. */
int spx_table_same_array_shape(hid_t a, hid_t b);
/* Adds n columns at once; t is unchanged on failure. */
spx_status spx_table_extend(spx_table *t, size_t n, const spx_table_column *c, spx_err *e);

#endif
