/* Provides block `image`: one pre-processed CCD exposure. */
#ifndef SPX_IMAGE_H
#define SPX_IMAGE_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "fits/cards.h"

struct spx_table;

/* Bits of the mask, as in DESI's ccdmask. */
enum {
    SPX_CCD_BAD = 1 << 0,       /* bad column, amplifier gap, NaN, nothing was read */
    SPX_CCD_HOT = 1 << 1,       /* too much dark current */
    SPX_CCD_SATURATED = 1 << 3, /* full well or largest digit reached */
    SPX_CCD_COSMIC = 1 << 4,    /* cosmic-ray hit */
    SPX_CCD_LOWFLAT = 1 << 6    /* pixel flat below 0.1 */
};

/* Image: row-major [ny][nx]; pixel (0,0) has its centre at (0,0). Detector data are float32 in every survey's files,
 * and so here. */
typedef struct {
    size_t ny, nx;
    float *data;                /* electrons */
    float *ivar;                /* 1/electron^2; 0: no information */
    uint32_t *mask;             /* non-zero: the pixel is not used; NULL: ivar says it */
    float *readnoise;           /* electrons, [ny][nx]; NULL when the file has none */
    char camera[16];            /* "r0"; empty when unknown */
    spx_cards header;           /* header of the image HDU */
    struct spx_table *fibermap; /* one row a fibre, or NULL */
} spx_image;

/* Does a unit mean digits of the amplifiers, such as adu, and not electrons? Poisson noise, cosmic rays and the
 * spectra's unit are of these. */
int spx_image_in_counts(const char *unit);

void spx_image_free(spx_image *im);
/* Frees the pixel arrays alone, once they are not needed; any thread may call it. */
void spx_image_drop_pixels(spx_image *im);

#endif
