/* h5/schema: any number of blocks and lines, of texts of this test's own: 50 blocks, one of them with 540
 * datasets, one with two tables of 91 and 1 columns. */
#include <string.h>

#include "check.h"
#include "h5/schema.h"

#define LINE(n) "data /wide/d" #n " float64 [n] : Dataset " #n "\n"
#define TEN(n)                                                                                                         \
    LINE(n##0) LINE(n##1) LINE(n##2) LINE(n##3) LINE(n##4) LINE(n##5) LINE(n##6) LINE(n##7) LINE(n##8) LINE(n##9)
#define NINETY(n) TEN(n##1) TEN(n##2) TEN(n##3) TEN(n##4) TEN(n##5) TEN(n##6) TEN(n##7) TEN(n##8) TEN(n##9)
#define COLUMN(n) "col C" #n " float64|float32 units=km/s required : Column " #n ", whose meaning takes some words\n"
#define TEN_COLUMNS(n)                                                                                                 \
    COLUMN(n##0)                                                                                                       \
    COLUMN(n##1) COLUMN(n##2) COLUMN(n##3) COLUMN(n##4) COLUMN(n##5) COLUMN(n##6) COLUMN(n##7) COLUMN(n##8) COLUMN(n##9)
#define NINETY_COLUMNS                                                                                                 \
    TEN_COLUMNS(1)                                                                                                     \
    TEN_COLUMNS(2)                                                                                                     \
    TEN_COLUMNS(3) TEN_COLUMNS(4) TEN_COLUMNS(5) TEN_COLUMNS(6) TEN_COLUMNS(7) TEN_COLUMNS(8) TEN_COLUMNS(9)
#define BLOCK(n) {"b" #n, "block b" #n " 1." #n " : Block " #n "\ngroup /b" #n " : Block " #n "\n"},
#define EIGHT(n) BLOCK(n##0) BLOCK(n##1) BLOCK(n##2) BLOCK(n##3) BLOCK(n##4) BLOCK(n##5) BLOCK(n##6) BLOCK(n##7)

/* Instead of those that the library has compiled in. */
const spx_schema_text spx_schema_texts[] = {
    EIGHT(1) EIGHT(2) EIGHT(3) EIGHT(4)
        EIGHT(5){"wide", "block wide 1.0 : Many datasets\n"
                         "group /wide : Many datasets\n" NINETY(1) NINETY(2) NINETY(3) NINETY(4) NINETY(5) NINETY(6)},
    EIGHT(6){"last", "block last 1.0 : Two tables\n"
                     "group /last : Two tables\n"
                     "table /last/a [n] : Many columns\n" NINETY_COLUMNS "col MORE int32 : No units\n"
                     "table /last/b [n] : One column\n"
                     "col ID int64 required : Number\n"},
    {NULL, NULL}};

enum { NITEM = 48 + 1 + 540 + 3, NCOLUMN = 92 };
spx_item spx_schema_storage[NITEM];
const size_t spx_schema_nstorage = NITEM;
spx_schema_column spx_schema_column_storage[NCOLUMN];
const size_t spx_schema_ncolumn_storage = NCOLUMN;

static void check_columns(void)
{
    const spx_item *a = spx_schema_find("/last/a"), *b = spx_schema_find("/last/b");
    CHECK(a != NULL && a->ncolumn == 91 && b != NULL && b->ncolumn == 1);
    const spx_schema_column *c = &a->column[89];
    CHECK(strcmp(c->name, "C99") == 0 && strcmp(c->types, "float64|float32") == 0 && strcmp(c->units, "km/s") == 0);
    CHECK(c->required && strcmp(c->meaning, "Column 99, whose meaning takes some words") == 0);
    c = &a->column[90];
    CHECK(strcmp(c->name, "MORE") == 0 && c->units[0] == '\0' && !c->required && strcmp(c->meaning, "No units") == 0);
    CHECK(strcmp(b->column->name, "ID") == 0 && b->column->required);
    CHECK(spx_schema_find("/last")->ncolumn == 0);
}

int main(void)
{
    size_t n;
    const spx_item *it = spx_schema_items(&n);
    CHECK(n == NITEM);
    CHECK(spx_schema_items(&n) == it && n == NITEM);
    for (size_t i = 0; i < n; i++) {
        CHECK(spx_schema_find(it[i].path) == &it[i]);
        CHECK(i < 40 || i > 580 || strcmp(it[i].block, "wide") == 0);
    }
    CHECK(strcmp(it[0].block, "b10") == 0 && strcmp(it[0].version, "1.10") == 0);
    CHECK(strcmp(it[588].block, "b67") == 0 && strcmp(it[588].version, "1.67") == 0);
    it = spx_schema_find("/wide/d699");
    CHECK(it != NULL && it->ndim == 1 && strcmp(it->dim[0], "n") == 0 && strcmp(it->meaning, "Dataset 699") == 0);
    CHECK(spx_schema_find("/wide/d700") == NULL);
    check_columns();
    return 0;
}
