/* Provides block `zeropoint`: offsets of velocities by arm, spectrograph, fibre and night. */
#ifndef SPX_ZEROPOINT_H
#define SPX_ZEROPOINT_H

#include <stddef.h>
#include <stdint.h>

/* Where a zero point holds: an arm (empty: all), a spectrograph, fibre and night (-1: all). */
typedef struct {
    char arm[16];
    int64_t petal, fiber, night;
} spx_zero_key;

typedef struct {
    spx_zero_key key;
    double zero, err; /* km/s: velocities there are too large by so much */
    int64_t n;        /* exposures that it is from */
    double scatter;   /* km/s, robust, of their velocities about it */
    int64_t relative; /* 0: measured against known velocities; k: relative to others with the same k, whose mean is 0 */
} spx_zeropoint;

typedef struct {
    size_t n;
    spx_zeropoint *row; /* [n], sorted by key */
} spx_zeropoints;

int spx_zero_key_compare(const void *a, const void *b); /* spx_zeropoint *, by their keys */

/* The zero point of a key that names everything that is known (empty or -1: unknown): of those whose keys agree in all
 * that they name, the one that names most; between equal numbers fibre goes before night, night before spectrograph and
 * that before arm. NULL: there is none. */
const spx_zeropoint *spx_zeropoints_find(const spx_zeropoints *z, const spx_zero_key *key);

void spx_zeropoints_free(spx_zeropoints *z);

#endif
