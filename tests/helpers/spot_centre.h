/* Provides the centre of light of a spot of a PSF, for tests and helpers. */
#ifndef SPOT_CENTRE_H
#define SPOT_CENTRE_H

#include "psf/spot_math.h"

/* Centre of a spot, whose pixels sum to 1, at[2], pixels of the CCD; 0: there is no spot. room: spx_psf_spot_work() and
 * the pixels. */
static inline int spot_centre(const spx_psf *p, size_t fibre, double wave, double *room, double *at)
{
    double *pixel = room + spx_psf_spot_work(p);
    spx_spot s;
    if (spx_psf_spot(p, fibre, wave, room, pixel, &s) != SPX_SPOT_OK)
        return 0;
    at[0] = (double)s.xc;
    at[1] = (double)s.yc;
    for (int r = 0; r < spx_psf_ny(p); r++)
        for (int c = 0; c < spx_psf_nx(p); c++, pixel++) {
            at[0] += *pixel * c;
            at[1] += *pixel * r;
        }
    return 1;
}

#endif
