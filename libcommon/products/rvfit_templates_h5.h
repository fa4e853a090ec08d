/* Reads the templates of stars from /rvfit (rvs-fit --with-template): contract of all readers in products/README. */
#ifndef SPX_RVFIT_TEMPLATES_H5_H
#define SPX_RVFIT_TEMPLATES_H5_H

#include <hdf5.h>
#include <stdint.h>

#include "products/spectra.h"

/* Templates of one arm, a row for each spectrum that was fitted (each exposure, where stars were fitted jointly). */
typedef struct {
    char name[16];
    size_t nbin;
    int per_row;        /* 1: each row has bins of its own, */
    double *wavelength; /* [nrow][nbin] Angstrom; else [nbin] */
    spx_medium medium;
    int barycentric;
    double *value;      /* [nrow][nbin]; 0: not known */
    double *brightness; /* [nrow] median of model/template of the fitted bins: the unit of the data for one of the
                         * library; 0: not known */
    double *sn;         /* [nrow] signal-to-noise ratio; 0: not fitted */
} spx_template_arm;

/* Wavelengths [nbin] of a row. */
static inline const double *spx_template_wave(const spx_template_arm *a, size_t row)
{
    return a->wavelength + (a->per_row ? row * a->nbin : 0);
}

typedef struct {
    size_t nrow, narm;
    spx_template_arm arm[SPX_MAX_ARM];
    int64_t *targetid, *expid, *fiber; /* [nrow]; NULL: not there */
    int64_t *warn;                     /* [nrow] RVS_WARN */
} spx_star_templates;

/* SPX_EINPUT: no templates. */
spx_status spx_star_templates_read(hid_t file, spx_star_templates *t, spx_err *e);
void spx_star_templates_free(spx_star_templates *t);

#endif
