/* Provides a driver for fuzz targets without libFuzzer: every file of a folder as it is, and damaged copies of it, the
 * same in every run; the smaller the file the more. Usage: fuzz_NAME FOLDER [SEED], where SEED gives others; with
 * SPX_FUZZ_KEEP=FILE each input is written to FILE before it is tried, so that after a crash FILE holds the culprit.
 *
 * `make fuzz` has libFuzzer in place of this file, for a long search. */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "damage.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { VARIANT_BYTES = 1000000, MAX_SIZE = 1 << 20, MAX_FILE = 1000 };

static void try_one(const uint8_t *data, size_t size)
{
    const char *keep = getenv("SPX_FUZZ_KEEP");
    if (keep != NULL) {
        FILE *f = fopen(keep, "wb");
        if (f == NULL || fwrite(data, 1, size, f) != size || fclose(f) != 0)
            exit(2);
    }
    /* A copy of its own: reading past the end is seen. */
    uint8_t *copy = malloc(size > 0 ? size : 1);
    if (copy == NULL)
        exit(2);
    memcpy(copy, data, size);
    (void)LLVMFuzzerTestOneInput(copy, size);
    free(copy);
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

int main(int argc, char **argv)
{
    static char *name[MAX_FILE];
    static uint8_t file[MAX_SIZE], variant[MAX_SIZE];
    size_t n = 0;
    DIR *d = argc == 2 || argc == 3 ? opendir(argv[1]) : NULL;
    if (d == NULL) {
        printf("usage: %s FOLDER [SEED]\n", argv[0]);
        return 2;
    }
    for (struct dirent *entry; n < MAX_FILE && (entry = readdir(d)) != NULL;)
        if (entry->d_name[0] != '.' && (name[n] = malloc(strlen(argv[1]) + strlen(entry->d_name) + 2)) != NULL)
            (void)sprintf(name[n++], "%s/%s", argv[1], entry->d_name);
    (void)closedir(d);
    qsort(name, n, sizeof *name, by_name);
    for (size_t i = 0; i < n; i++) {
        uint64_t state = i + (argc == 3 ? 1000003 * strtoull(argv[2], NULL, 10) : 0);
        FILE *f = fopen(name[i], "rb");
        size_t size = f != NULL ? fread(file, 1, sizeof file, f) : 0;
        if (f == NULL || fclose(f) != 0) {
            printf("cannot read %s\n", name[i]);
            return 2;
        }
        try_one(file, size);
        for (size_t k = 0; k < VARIANT_BYTES / (size + 1000); k++) {
            memcpy(variant, file, size);
            try_one(variant, damage(variant, size, MAX_SIZE, &state));
        }
        free(name[i]);
    }
    if (n == 0)
        printf("no files in %s\n", argv[1]);
    return n == 0;
}
