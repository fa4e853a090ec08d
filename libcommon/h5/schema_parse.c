/* Provides the table of items of the schema texts, and the item of a path.
 *
 * spx_schema_items() parses the texts at its first use, in any thread. The texts are compiled in, so a mistake in one
 * is a bug and ends the program there. Language of the texts: schemas/README. */
#include <ctype.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "h5/schema_internal.h"

static spx_item *const items = spx_schema_storage;
static size_t nitem, ncolumn;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void bad_schema(const char *block, const char *line)
{
    fprintf(stderr, "specpipe: bug in schema %s: %s\n", block, line);
    abort();
}

void spx_schema_put(char *to, size_t size, const char *from, size_t n, const char *block)
{
    if (n >= size)
        bad_schema(block, from);
    memcpy(to, from, n);
    to[n] = '\0';
}

/* Length of the next blank-separated word of *p, which begins at *w; 0 at the end. */
static size_t next_word(const char **p, const char **w)
{
    while (**p == ' ')
        ++*p;
    *w = *p;
    while (**p != '\0' && **p != ' ')
        ++*p;
    return (size_t)(*p - *w);
}

int spx_schema_starts(const char *w, size_t n, const char *key)
{
    return n >= strlen(key) && strncmp(w, key, strlen(key)) == 0;
}

int spx_schema_same(const char *w, size_t n, const char *key)
{
    return n == strlen(key) && strncmp(w, key, n) == 0;
}

static void parse_dims(spx_item *it, const char *w, size_t n)
{
    const char *p = w + 1, *end = w + n - 1;
    if (n < 2 || *end != ']')
        bad_schema(it->block, w);
    while (p < end) {
        size_t len = 0;
        while (p + len < end && p[len] != ',')
            len++;
        if (it->ndim == 8)
            bad_schema(it->block, w);
        spx_schema_put(it->dim[it->ndim++], sizeof it->dim[0], p, len, it->block);
        p += len + (p + len < end);
    }
}

static void parse_words(spx_item *it, const char *p)
{
    const char *w;
    size_t n;
    while ((n = next_word(&p, &w)) > 0) {
        if (w[0] == '[')
            parse_dims(it, w, n);
        else if (spx_schema_same(w, n, "required"))
            it->required = 1;
        else if (spx_schema_same(w, n, "finite"))
            it->finite = 1;
        else if (spx_schema_same(w, n, "nonnegative"))
            it->nonnegative = 1;
        else if (spx_schema_same(w, n, "increasing"))
            it->increasing = 1;
        else if (spx_schema_same(w, n, "scale"))
            it->scale = 1;
        else if (spx_schema_same(w, n, "raw"))
            it->raw = 1;
        else if (spx_schema_starts(w, n, "per="))
            spx_schema_put(it->per, sizeof it->per, w + 4, n - 4, it->block);
        else if (spx_schema_starts(w, n, "units="))
            spx_schema_put(it->units, sizeof it->units, w + 6, n - 6, it->block);
        else if (spx_schema_starts(w, n, "flags="))
            spx_schema_put(it->flags, sizeof it->flags, w + 6, n - 6, it->block);
        else if (spx_schema_starts(w, n, "attrs="))
            spx_schema_put(it->attrs, sizeof it->attrs, w + 6, n - 6, it->block);
        else
            bad_schema(it->block, w);
    }
}

/* One column of the table that is the last item: "NAME TYPES [units=U] [required] : meaning". */
static void parse_column(spx_item *table, const char *p, const char *meaning)
{
    if (ncolumn == spx_schema_ncolumn_storage)
        bad_schema(table->block, p);
    spx_schema_column *c = &spx_schema_column_storage[ncolumn++];
    const char *w;
    size_t n = next_word(&p, &w);
    spx_schema_put(c->name, sizeof c->name, w, n, table->block);
    n = next_word(&p, &w);
    spx_schema_put(c->types, sizeof c->types, w, n, table->block);
    while ((n = next_word(&p, &w)) > 0) {
        if (spx_schema_same(w, n, "required"))
            c->required = 1;
        else if (spx_schema_starts(w, n, "units="))
            spx_schema_put(c->units, sizeof c->units, w + 6, n - 6, table->block);
        else
            bad_schema(table->block, w);
    }
    spx_schema_put(c->meaning, sizeof c->meaning, meaning, strlen(meaning), table->block);
    if (table->ncolumn++ == 0)
        table->column = c;
}

static void parse_line(char *line, char (*block)[32], char (*version)[32])
{
    const char *p = line, *w, *meaning = "";
    char *colon = strstr(line, " : ");
    if (colon != NULL) {
        *colon = '\0';
        meaning = colon + 3;
    }
    size_t n = next_word(&p, &w);
    if (n == 0 || w[0] == '#')
        return;
    if (spx_schema_same(w, n, "block")) {
        n = next_word(&p, &w);
        spx_schema_put(*block, sizeof *block, w, n, line);
        n = next_word(&p, &w);
        spx_schema_put(*version, sizeof *version, w, n, line);
        return;
    }
    if (spx_schema_same(w, n, "col")) {
        if (nitem == 0 || items[nitem - 1].kind != SPX_ITEM_TABLE)
            bad_schema(*block, line);
        parse_column(&items[nitem - 1], p, meaning);
        return;
    }
    if (nitem == spx_schema_nstorage)
        bad_schema(*block, line);
    spx_item *it = &items[nitem++];
    memcpy(it->block, *block, sizeof *block);
    memcpy(it->version, *version, sizeof *version);
    it->kind = spx_schema_same(w, n, "group")   ? SPX_ITEM_GROUP
               : spx_schema_same(w, n, "table") ? SPX_ITEM_TABLE
                                                : SPX_ITEM_DATASET;
    if (it->kind == SPX_ITEM_DATASET && !spx_schema_same(w, n, "data"))
        bad_schema(*block, line);
    n = next_word(&p, &w);
    spx_schema_put(it->path, sizeof it->path, w, n, *block);
    if (it->kind == SPX_ITEM_DATASET) {
        n = next_word(&p, &w);
        spx_schema_put(it->types, sizeof it->types, w, n, *block);
    }
    spx_schema_put(it->meaning, sizeof it->meaning, meaning, strlen(meaning), *block);
    parse_words(it, p);
}

static void parse_all(void)
{
    for (const spx_schema_text *t = spx_schema_texts; t->name != NULL; t++) {
        char block[32] = "", version[32] = "";
        for (const char *p = t->text; *p != '\0';) {
            char line[1024];
            size_t n = strcspn(p, "\n");
            spx_schema_put(line, sizeof line, p, n, t->name);
            parse_line(line, &block, &version);
            p += n + (p[n] == '\n');
        }
    }
}

const spx_item *spx_schema_items(size_t *n)
{
    (void)pthread_once(&once, parse_all);
    *n = nitem;
    return items;
}

/* 1 when a path matches a pattern, component by component; `<x>` matches any one component. */
static int matches(const char *pattern, const char *path)
{
    while (*pattern != '\0' && *path != '\0') {
        if (*pattern == '<') {
            pattern = strchr(pattern, '>') + 1;
            size_t n = strcspn(path, "/");
            if (n == 0)
                return 0;
            path += n;
        } else if (*pattern++ != *path++) {
            return 0;
        }
    }
    return *pattern == '\0' && *path == '\0';
}

const spx_item *spx_schema_find(const char *path)
{
    size_t n;
    const spx_item *it = spx_schema_items(&n), *wild = NULL;
    for (size_t i = 0; i < n; i++)
        if (matches(it[i].path, path)) {
            if (strchr(it[i].path, '<') == NULL)
                return &it[i];
            /* a pattern with a fixed last component is preferred: /templates/<setup>/grid before /x/<y>/<z> */
            if (wild == NULL || strlen(it[i].path) > strlen(wild->path))
                wild = &it[i];
        }
    return wild;
}
