/* Provides the product of Burgers' equation (specpipe-schema(5): /burgers). */
#ifndef SPX_BLOCK_BURGERS_H
#define SPX_BLOCK_BURGERS_H

#include <stddef.h>

typedef struct {
    size_t nx, nsnapshot, every;
    double viscosity, dt;
    int lagged;
    double *x;        /* [nx] */
    double *time;     /* [nsnapshot] */
    double *snapshot; /* [nsnapshot * nx]: row k is the state after step (k + 1) * every */
} spx_burgers;

void spx_burgers_free(spx_burgers *b);

#endif
