/* Provides fits of arcs that are made again to judge a first one: degrees that suit spots better, and places that spots
 * of another kind suit as well. */
#ifndef SPX_PSFFIT_AGAIN_H
#define SPX_PSFFIT_AGAIN_H

#include "psffit/psffit.h"
#include "psffit/tail_fit.h"

/* What fits, without a tail, with the contract of spx_psffit_make(). */
typedef struct {
    spx_status (*fit)(void *with, const spx_psffit_input *in, const spx_psffit_options *o, spx_psf *psf,
                      spx_psffit *fit, spx_err *e);
    void *with;
    int at_once; /* fits of one bundle that it makes at the same time */
} spx_psffit_maker;

typedef enum {
    SPX_PSFFIT_USUAL,      /* spots are those of the fit */
    SPX_PSFFIT_TAKEN,      /* they are not, and other degrees are taken */
    SPX_PSFFIT_NOT_IN_ALL, /* other degrees suit the worst bundle, but not all */
    SPX_PSFFIT_NONE_FITS,  /* no degrees suit it */
    SPX_PSFFIT_BY_HALVES   /* other degrees are taken, as two halves of the exposures agree */
} spx_psffit_outcome;

typedef struct {
    spx_psffit_outcome what;
    size_t bundle;           /* whose spots are off by most */
    double off, left;        /* by what part of their peak, and with the degrees of `best` */
    spx_psffit_options best; /* degrees that suit it best */
    int all_told;            /* its lines tell all degrees that there are to try */
} spx_psffit_choice;

/* Where spots are not those of the fit: fits the bundle that shows it most with narrower functions and higher degrees
 * and, where some leave less than half of it, all bundles with those, which have *psf and *fit then if no bundle is
 * worse than that was; *o gets them. Where none shows it, two halves of the exposures are asked. SPX_EIO: memory. */
spx_status spx_psffit_choose_degrees(const spx_psffit_maker *by, const spx_psffit_input *in, spx_psffit_options *o,
                                     spx_psf *psf, spx_psffit *fit, spx_psffit_choice *out, spx_err *e) SPX_NODISCARD;

/* Where spots are not the usual ones: light of a wing may be that of the next fibre's core, or the reverse, and terms
 * of the shape along fibres trade the one for the other, as may those of a fibre through bad pixels. Fits such bundles
 * again with spots that are alike in all fibres, and, where these are less than twice as far from the light, adds the
 * distances of places to their errors; a fibre with one above SPX_PSFFIT_OFF is flagged BADFIT. *farthest: the largest
 * distance, pixels, of *fibre; 0: none. tail: of the first fit, NULL: it has none. SPX_EIO: memory. */
spx_status spx_psffit_doubt_places(const spx_psffit_maker *by, const spx_psffit_input *in, const spx_psffit_options *o,
                                   const spx_psffit_tail *tail, spx_psf *psf, spx_psffit *fit, double *farthest,
                                   size_t *fibre, spx_err *e) SPX_NODISCARD;

#endif
