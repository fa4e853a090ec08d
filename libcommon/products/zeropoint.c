/* Provides the search for zero points (products/zeropoint.h). */
#include "products/zeropoint.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

static int by_number(int64_t a, int64_t b)
{
    return (a > b) - (a < b);
}

int spx_zero_key_compare(const void *a, const void *b)
{
    const spx_zero_key *x = &((const spx_zeropoint *)a)->key, *y = &((const spx_zeropoint *)b)->key;
    int c = strcmp(x->arm, y->arm);
    c = c != 0 ? c : by_number(x->petal, y->petal);
    c = c != 0 ? c : by_number(x->fiber, y->fiber);
    return c != 0 ? c : by_number(x->night, y->night);
}

const spx_zeropoint *spx_zeropoints_find(const spx_zeropoints *z, const spx_zero_key *key)
{
    /* what a row names, most first: 8 fibre, 4 night, 2 spectrograph, 1 arm */
    static const int order[] = {15, 14, 13, 11, 7, 12, 10, 9, 6, 5, 3, 8, 4, 2, 1, 0};
    for (size_t k = 0; k < sizeof order / sizeof *order; k++) {
        spx_zeropoint want = {.key = *key};
        if ((order[k] & 1) == 0)
            want.key.arm[0] = '\0';
        want.key.petal = order[k] & 2 ? key->petal : -1;
        want.key.night = order[k] & 4 ? key->night : -1;
        want.key.fiber = order[k] & 8 ? key->fiber : -1;
        const spx_zeropoint *found =
            z->n > 0 ? bsearch(&want, z->row, z->n, sizeof *z->row, spx_zero_key_compare) : NULL;
        if (found != NULL)
            return found;
    }
    return NULL;
}

void spx_zeropoints_free(spx_zeropoints *z)
{
    spx_free(z->row);
    *z = (spx_zeropoints){0};
}
