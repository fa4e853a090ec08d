/* Provides the schema, the definition of products: texts in schemas/, compiled in. Documentation (specpipe-schema(5)),
 * the attributes that writers add, and h5check come from them and from nowhere else. The language of the texts:
 * schemas/README. */
#ifndef SPX_SCHEMA_H
#define SPX_SCHEMA_H

#include <hdf5.h>
#include <stdio.h>

#include "base/err.h"

typedef struct {
    const char *name, *text;
} spx_schema_text;

extern const spx_schema_text spx_schema_texts[]; /* ended by an entry of zeros */

typedef enum { SPX_ITEM_GROUP, SPX_ITEM_DATASET, SPX_ITEM_TABLE } spx_item_kind;

/* A column of a table. */
typedef struct {
    char name[64];
    char types[96]; /* as of an item */
    char units[64];
    int required;
    char meaning[512];
} spx_schema_column;

/* One line of a schema: a group, a dataset or a table at a place. `<name>` in the path stands for any one name. */
typedef struct {
    spx_item_kind kind;
    char block[32];   /* name of the block (schema text) */
    char version[32]; /* of the block, "1.0" */
    char path[128];
    char types[96]; /* types accepted: "float32|float64", "int32", "string80", ... */
    int ndim;
    char dim[8][32]; /* names of the dimensions, or numbers */
    char units[64];
    char flags[512]; /* NAME:BIT,NAME:BIT of a mask */
    char per[32];    /* a dimension that may come before these; empty: none */
    int required, finite, nonnegative, increasing, scale, raw;
    char attrs[256];                 /* attributes that must be there: name=a|b,name */
    const spx_schema_column *column; /* of a table */
    size_t ncolumn;
    char meaning[512];
} spx_item;

/* Memory of the parsed lines: as many as the texts have groups, datasets and tables, and columns. */
extern spx_item spx_schema_storage[];
extern const size_t spx_schema_nstorage;
extern spx_schema_column spx_schema_column_storage[];
extern const size_t spx_schema_ncolumn_storage;

/* Item for an absolute path, or NULL when no schema has it. */
const spx_item *spx_schema_find(const char *path);
/* All items, in the order of the texts. */
const spx_item *spx_schema_items(size_t *n);

/* Checks an open file against the schema; prints one line `file:/dataset: violation` to `out` for each; *nbad counts
 * them. */
spx_status spx_schema_check(hid_t file, const char *name, FILE *out, size_t *nbad, spx_err *e);

/* Checks that a reader can take the group at `path`. SPX_EINPUT: another block than `type`, or a newer major version
 * than this build knows. */
spx_status spx_schema_accept(hid_t loc, const char *path, const char *type, spx_err *e);

/* Checks the attribute `units` of a dataset, where it has one, for readers that do not convert. SPX_EINPUT: it is not
 * that of the schema. */
spx_status spx_schema_check_units(hid_t file, const char *path, spx_err *e);

/* Prints specpipe-schema(5), in mdoc. */
void spx_schema_mdoc(FILE *out);

#endif
