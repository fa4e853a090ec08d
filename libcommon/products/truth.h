/* Provides block `truth`: input of a simulation. */
#ifndef SPX_TRUTH_H
#define SPX_TRUTH_H

#include <stddef.h>

struct spx_table;

/* View of arrays that the caller owns. */
typedef struct {
    size_t nspec, nwave;
    const double *wavelength;      /* [nwave], Angstrom, vacuum */
    const double *flux;            /* [nspec][nwave], electron/Angstrom, with the sky */
    const double *sky;             /* [nwave], electron/Angstrom in every fibre; NULL: no sky */
    const struct spx_table *table; /* nspec rows: targets, stars' parameters and velocities */
    /* Further truth of an exposure; NULL or 0 where it has none. */
    const double *throughput;   /* [nspec][nwave], of each fibre relative to the camera's; `flux` contains it */
    const double *sky_fiber;    /* [nspec][nwave], electron/Angstrom before throughput, where fibres see other skies */
    const double *transmission; /* [nwave], of the atmosphere, in the light of targets */
    const double *response;     /* [nwave], electrons per photon, without transmission and throughput */
    const double *amplifier;    /* [4], electrons added to the CCD's quadrants */
    size_t ny, nx;              /* of the image */
    const float *hits;          /* [ny][nx], electrons of unflagged cosmic rays */
    /* [ny][nx], of a raw exposure: electrons of light without noise; structure of the bias, ADU; dark current,
     * electron/s; response of the pixels */
    const float *electrons, *bias, *dark, *pixel_response;
    const struct spx_table *lines;  /* of arc lamps */
    size_t nshift;                  /* wavelengths of `shift` */
    const double *shift_wavelength; /* [nshift], Angstrom */
    const double *shift;            /* [4][nspec][nshift]: x, y (pixels), wx, wy (relative), drawn less written */
} spx_truth;

#endif
