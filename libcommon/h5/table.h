/* Provides tables: compound datasets (h5py, pandas and astropy read them as tables). Rows are kept as in the file, so
 * that columns that the program does not use are copied unchanged. */
#ifndef SPX_TABLE_H
#define SPX_TABLE_H

#include <hdf5.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/text.h"

typedef struct spx_table {
    hid_t type; /* compound type of a row, in memory and file (any byte order) */
    size_t nrow;
    size_t rowsize; /* bytes */
    char *rows;     /* nrow*rowsize */
    char **unit;    /* of each column, empty where it has none; NULL: no column has one. One block with its texts */
} spx_table;

/* Empty table of nrow rows (zeroed once columns are added). */
spx_table *spx_table_new(size_t nrow, spx_err *e);
void spx_table_free(spx_table *t);

/* Column index, or -1. Names compare without regard to case. */
int spx_table_find(const spx_table *t, const char *name);
size_t spx_table_ncol(const spx_table *t);
/* Name of a column (spx_free). */
char *spx_table_name(const spx_table *t, int col, spx_err *e);
/* Unit of a column, empty when it has none or there is no such column; valid as long as the table's columns are. */
const char *spx_table_unit(const spx_table *t, int col);
/* Block of units for spx_table.unit: copies of n texts (NULL: empty), to be freed with spx_free(). NULL and SPX_OK when
 * all are empty. */
char **spx_table_units(size_t n, const char *const *unit, spx_err *e);

/* Adds a column of an HDF5 type of fixed size (number, fixed string, enumeration, array or compound of them). `data`:
 * nrow elements of that type, or NULL for zeros. SPX_EINPUT when the name is taken. */
spx_status spx_table_add(spx_table *t, const char *name, hid_t type, const char *unit, const void *data, spx_err *e);
/* Adds a column of fixed strings of `size` characters. */
spx_status spx_table_add_strings(spx_table *t, const char *name, size_t size, const char *data, spx_err *e);

/* Converts a whole scalar numeric column into caller's memory, nrow elements. SPX_EINPUT when absent or not a number;
 * get_i64 accepts integers and logical columns only. */
spx_status spx_table_get_f64(const spx_table *t, const char *name, double *out, spx_err *e);
spx_status spx_table_get_i64(const spx_table *t, const char *name, int64_t *out, spx_err *e);
/* Reads the array that one row of a numeric column holds: (*out)[*n], to be freed with spx_free(), arrays of several
 * dimensions in C order. SPX_EINPUT when the column is absent or not of numbers. */
spx_status spx_table_get_row(const spx_table *t, const char *name, size_t row, size_t *n, double **out, spx_err *e);
/* Reads an optional integer or logical column of a table that may be NULL: *out[nrow], to be freed with spx_free(),
 * else NULL and SPX_OK. */
spx_status spx_table_find_i64(const spx_table *t, const char *name, int64_t **out, spx_err *e);
/* Reads a string column: nrow blocks of `size` characters, NUL-terminated, trailing blanks dropped, cut when longer. */
spx_status spx_table_get_str(const spx_table *t, const char *name, size_t size, char *out, spx_err *e);

/* Sets a number in one row of a scalar integer column. SPX_EINPUT when absent or not of integers. */
spx_status spx_table_set_i64(spx_table *t, const char *name, size_t row, int64_t value, spx_err *e);
/* Copies column `col` of another table with as many rows, under a name of its own. */
spx_status spx_table_copy_column(spx_table *t, const char *name, const spx_table *from, int col, spx_err *e);

/* Row index that stands for no row. */
#define SPX_NO_ROW SIZE_MAX

/* New table of the rows with these indices (each < nrow; may repeat). SPX_NO_ROW gives a row of zeros. */
spx_table *spx_table_subset(const spx_table *t, size_t n, const size_t *row, spx_err *e);
/* New table with a row for each group of rows, row[first[g]] ... row[first[g+1]-1] of t: the columns that are the same,
 * byte by byte, in all rows of each group. Names of the others are added to `varying`, "A, B". */
spx_table *spx_table_subset_common(const spx_table *t, size_t ngroup, const size_t *first, const size_t *row,
                                   spx_text *varying, spx_err *e);
/* New table without the columns of these names, where it has them; names ends with NULL. */
spx_table *spx_table_without(const spx_table *t, const char *const *names, spx_err *e);
/* New table of all rows of a, then b. Both must have the same column names, in any order, and equal units where both
 * have one. Widths and byte orders may differ: the type that holds the values of both is chosen, a's where they are
 * equal. SPX_EINPUT otherwise, naming the column. */
spx_table *spx_table_append(const spx_table *a, const spx_table *b, spx_err *e);
/* As spx_table_append() for columns that both have: others, and those that cannot be joined, are left out, and their
 * names added to `dropped`, a line each. */
spx_table *spx_table_append_common(const spx_table *a, const spx_table *b, spx_text *dropped, spx_err *e);
/* Adds b's columns to a (same nrow). A column that both have must be equal; else b's is added as NAME`suffix`, or
 * refused (SPX_EINPUT) when suffix is NULL. */
spx_status spx_table_join(spx_table *a, const spx_table *b, const char *suffix, spx_err *e);
/* As spx_table_join() for partly filled tables: have_a[nrow], have_b[nrow] mark the rows of a and b that hold values.
 * Columns are compared in rows that both have; rows that only b has are copied to a. */
spx_status spx_table_fill(spx_table *a, const char *have_a, const spx_table *b, const char *have_b, const char *suffix,
                          spx_err *e);

/* Reads the compound dataset at `path`; *out stays NULL and SPX_OK when it does not exist. Variable-length members,
 * references and data outside the file are refused. Units come from the attribute `column_units`. */
spx_status spx_table_read(hid_t loc, const char *path, spx_table **out, spx_err *e);
/* A table of a file: its path, rows, and the names of its columns with commas between. */
typedef struct {
    char *path, *columns;
    size_t nrow;
} spx_table_entry;

/* Lists the one-dimensional compound datasets below a group, in alphabetical order, without reading their rows. Free
 * with spx_table_list_free(). */
spx_status spx_table_list(hid_t loc, const char *group, size_t *n, spx_table_entry **out, spx_err *e);
void spx_table_list_free(size_t n, spx_table_entry *list);

/* Writes a table; nothing where t is NULL. */
spx_status spx_table_write(hid_t loc, const char *path, const spx_table *t, spx_err *e);

#endif
