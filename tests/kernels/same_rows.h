/* Provides the comparison of fibres of two frames, bit by bit. */
#ifndef SAME_ROWS_H
#define SAME_ROWS_H

#include <string.h>

#include "products/spectra.h"

/* Rows [fa, fa+n) of a and [fb, ...) of b are the same to the last bit (mask: but for BAD2DFIT, which looks at all
 * fibres). */
static inline int same_rows(const spx_frame *a, size_t fa, const spx_frame *b, size_t fb, size_t n)
{
    size_t nw = a->arm.nwave, nd = a->arm.ndiag;
    if (nw != b->arm.nwave || nd != b->arm.ndiag)
        return 0;
    for (size_t k = 0; k < n * nw; k++)
        if ((a->arm.mask[fa * nw + k] ^ b->arm.mask[fb * nw + k]) & ~(uint32_t)SPX_BAD2DFIT)
            return 0;
    size_t bytes = n * nw * sizeof(double);
    return !memcmp(a->arm.flux + fa * nw, b->arm.flux + fb * nw, bytes) &&
           !memcmp(a->arm.ivar + fa * nw, b->arm.ivar + fb * nw, bytes) &&
           !memcmp(a->chi2pix + fa * nw, b->chi2pix + fb * nw, bytes) &&
           !memcmp(a->pixmask_fraction + fa * nw, b->pixmask_fraction + fb * nw, bytes) &&
           !memcmp(a->arm.resolution + fa * nw * nd, b->arm.resolution + fb * nw * nd, nd * bytes);
}

#endif
