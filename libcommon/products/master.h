/* Provides block `master`: bias, dark or pixel flat that was made of many exposures. */
#ifndef SPX_MASTER_H
#define SPX_MASTER_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "fits/cards.h"

struct spx_table;

typedef enum { SPX_MASTER_BIAS, SPX_MASTER_DARK, SPX_MASTER_FLAT, SPX_MASTERS } spx_master_kind;

extern const char *const spx_master_names[SPX_MASTERS + 1]; /* "bias", "dark", "flat" */

/* Row-major [ny][nx], as the image that it is applied to. */
typedef struct {
    spx_master_kind kind;
    size_t ny, nx;
    float *data;     /* bias: electrons; dark: electrons a second; flat: relative response */
    float *ivar;     /* inverse variance of data; 0: not known */
    uint32_t *mask;  /* bits of image.h */
    uint16_t *count; /* exposures that a pixel was made of; NULL: not read */
    char camera[16];
    size_t nexp;
    double exptime; /* s, of all exposures */
    spx_cards header;
    struct spx_table *amplifiers; /* as of /image */
} spx_master;

void spx_master_free(spx_master *m);

#endif
