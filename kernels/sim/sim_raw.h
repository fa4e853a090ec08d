/* Provides raw exposures of a CCD with amplifiers, of which the pre-processed image is known. */
#ifndef SPX_SIM_RAW_H
#define SPX_SIM_RAW_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "products/raw.h"

enum { SPX_SIM_MOST_AMPLIFIERS = 4 };

/* An amplifier and what it adds. Numbers are doubles, as an option's list of KEY=VALUE sets them. */
typedef struct {
    double amps;       /* 1, 2 (left, right) or 4 (quadrants) */
    double extensions; /* 1: one image an amplifier; 0: one image with all, overscan in the middle */
    double flipped;    /* 1: extensions are stored in the order of reading */
    double overscan;   /* columns that are read after the pixels */
    double prescan;    /* columns that are read before them */
    double rows;       /* overscan rows that are read after the pixels */
    double binning;    /* CCD pixels to one of the image, which sections of the detector count */
    double gain;       /* electron/ADU of the first amplifier; each further has 3 % more */
    double gain_error; /* gain that the header says, over the true one */
    double keywords;   /* 0: the header says nothing of amplifiers */
    double level;      /* ADU; each further amplifier has 20 more */
    double gradient;   /* ADU between the first row and the last */
    double wander;     /* ADU: rms of the level from row to row */
    double pickup;     /* ADU: amplitude of a hum, period 7.3 pixels of the readout */
    double bias;       /* ADU: rms of the structure of the bias, smooth along columns and from pixel to pixel */
    double dark;       /* electron/s */
    double hot;        /* hot pixels in a million, with 1000 times the dark current and 1 electron/s more */
    double response;   /* rms of the pixels' response */
    double uniform;    /* electrons a pixel of even light instead of spectra; 0: spectra */
    double crosstalk;  /* part of the signal that each amplifier has of each other */
    double trail;      /* part of the last pixel that the first column of the overscan has; halves with each column */
    double nonlinear;  /* c: signal = m (1 + c m) of m ADU */
} spx_sim_raw_options;

/* Structure of a camera, [ny][nx] each: bias (ADU), dark (electron/s), response (about 1). */
typedef struct {
    size_t ny, nx;
    float *bias, *dark, *response;
} spx_sim_raw_truth;

/* Makes the structure, which depends on the instrument's seed and the camera alone. */
spx_status spx_sim_raw_structure(const spx_sim_raw_options *o, uint64_t seed, char camera, size_t ny, size_t nx,
                                 spx_sim_raw_truth *t, spx_err *e) SPX_NODISCARD;
void spx_sim_raw_truth_free(spx_sim_raw_truth *t);

/* Reads out electrons[ny][nx] (with photon noise): images with pixels as whole numbers from 0 to 65535, and the layout
 * that describes them. SPX_EUSAGE: a number of `o` makes no sense for a CCD of this size. */
spx_status spx_sim_raw_read_out(const spx_sim_raw_options *o, const spx_sim_raw_truth *t, const float *electrons,
                                double readnoise, uint64_t seed, char camera, spx_raw *raw, spx_layout *l,
                                spx_err *e) SPX_NODISCARD;

#endif
