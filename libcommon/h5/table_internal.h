/* Shared by table.c, table_join.c and table_io.c. */
#ifndef SPX_TABLE_INTERNAL_H
#define SPX_TABLE_INTERNAL_H

#include "h5/table.h"

enum { SPX_TABLE_MAX_UNITS = 60 * 1024 }; /* an attribute in the object header holds less than 64 KiB */

/* A column that is to be added. */
typedef struct {
    const char *name;
    hid_t type;
    const char *unit; /* not terminated */
    size_t unitlen;
    const char *data; /* element of row 0; NULL: zeros */
    size_t stride;    /* bytes from row to row */
} spx_table_column;

/* Types of fixed size only: rows are moved as bytes, and a pointer must never be among them. */
int spx_table_type_is_plain(hid_t type, int depth);
/* The element type below arrays of arrays, and how many of them there are. */
hid_t spx_table_type_base(hid_t type, size_t *nelem);
/* Are both no arrays, or arrays of the same dimensions? */
int spx_table_same_array_shape(hid_t a, hid_t b);
/* Unit of column i in text with a line a column, not terminated: *len characters, none where there is no such line. */
const char *spx_table_unit_at(const char *units, size_t i, size_t *len);
/* Add n columns at once; t is unchanged on failure. */
spx_status spx_table_extend(spx_table *t, size_t n, const spx_table_column *c, spx_err *e);

#endif
