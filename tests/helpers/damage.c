/* damage SEED [FIRST LAST] <FILE >DAMAGED: one to four random damages (tests/fuzz/damage.h), to the bytes FIRST to LAST
 * alone when they are given; the length stays then. */
#include <stdio.h>
#include <stdlib.h>

#include "../fuzz/damage.h"

enum { MOST = 16 << 20, GROWTH = 64 };

int main(int argc, char **argv)
{
    uint8_t *data = calloc(1, MOST + GROWTH), *part = calloc(1, MOST + GROWTH);
    if ((argc != 2 && argc != 4) || data == NULL || part == NULL) {
        fprintf(stderr, "usage: damage SEED [FIRST LAST]\n");
        return 2;
    }
    uint64_t state = strtoull(argv[1], NULL, 10);
    size_t n = fread(data, 1, MOST, stdin), first = 0, last = n;
    if (argc == 4) {
        first = strtoul(argv[2], NULL, 10) < n ? strtoul(argv[2], NULL, 10) : n;
        last = strtoul(argv[3], NULL, 10) < n ? strtoul(argv[3], NULL, 10) : n;
        last = last < first ? first : last;
        memcpy(part, data + first, last - first);
        const size_t left = damage(part, last - first, last - first, &state);
        memcpy(data + first, part, left);
    } else {
        n = damage(data, n, MOST + GROWTH, &state);
    }
    free(part);
    const int bad = fwrite(data, 1, n, stdout) != n || fflush(stdout) != 0;
    free(data);
    return bad;
}
