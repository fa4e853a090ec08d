/* Provides the fibre flat field: throughput of every fibre against the mean of all, as a function of wavelength, from
 * exposures of a lamp that lights all fibres alike.
 *
 *     D_eik = F_ik (R_ei m_e)_k + noise
 *
 * with exposure e, fibre i, bin k, resolution matrix R, and the deconvolved spectrum m of the lamp, which is free. So
 * edges of the lamp, blurred differently in each fibre, are no part of F. Alternately
 *
 *     m_e  from  sum_i R_ei^T (W_ei F_i^2) R_ei m = sum_i R_ei^T (W_ei F_i D_ei)      banded, all fibres
 *     F_i = B a_i, cubic B-splines, from D_ei / (R_ei m_e) with weights w (R_ei m_e)^2      banded, one fibre
 *
 * until F changes by less than `converge` everywhere. F is then 1 in the mean of the fibres at each wavelength. Bins
 * further than `reject` errors from the model are left out; each pass tests all of them again. The variance of F is
 * that of the splines, B (B^T W B)^-1 B^T, of which the selected inverse gives the band that is needed, with the share
 * of the mean. The error of m is common to all fibres, and 1/sqrt(fibres) smaller: left out. */
#ifndef SPX_FLAT_H
#define SPX_FLAT_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/progress.h"
#include "products/flat.h"

/* Exposures of the same fibres on the same bins. */
typedef struct {
    size_t nexp, nspec, nwave, ndiag;
    const double *wavelength; /* [nwave], Angstrom, increasing */
    /* [nexp] each: flux [nspec][nwave], electron/Angstrom; ivar, its inverse variance; mask (NULL: none); resolution
     * [nspec][ndiag][nwave] (products/spectra.h) */
    const double *const *flux, *const *ivar, *const *resolution;
    const uint32_t *const *mask;
} spx_flat_input;

typedef struct {
    double knots;    /* spacing of the spline's knots, Angstrom */
    double reject;   /* bins further than this from the model are left out, in units of their error */
    double floor;    /* smallest relative error of F, added in quadrature */
    double converge; /* change of F that ends the passes */
    int native;      /* F follows single bins that all exposures have the same way */
    int one_lamp;    /* exposures share m but for a factor; else each has its own */
    int nthreads;
    spx_progress *progress; /* counts passes; may be NULL */
} spx_flat_options;

/* Most passes, and the change that programs ask for: a tenth of the error that hundreds of fibres have. */
enum { SPX_FLAT_PASSES = 20 };
#define SPX_FLAT_CONVERGE 1e-4

typedef struct {
    size_t npass;
    int converged;
    double change;                 /* of F in the last pass, largest */
    double chi2;                   /* per degree of freedom, all exposures */
    size_t nbin, nmasked, nreject; /* bins of all exposures; without information; left out as far from the model */
    size_t nbadfiber, nlow, nnative;
    size_t nline, line_exposure; /* bins of the exposure with most of them that stand out like emission lines */
    double device_seconds;
} spx_flat_counts;

/* Flat field of all exposures, on the CPU. Fills a zeroed *out (flat, ivar, mask, lamp, mean, chi2, knot; the rest is
 * the caller's), freed with spx_flat_free(). A fibre without light, or beyond 0.1 to 10 times the median throughput, is
 * BADFIBERFLAT: flat 1, ivar 0; so are, as LOWFLAT, bins where F is beyond 0.1 to 10, and those of an interval between
 * knots in which fewer than 20 bins (half of it, where it is shorter) are good. SPX_EINPUT: no fibre has light, arrays
 * that do not fit; SPX_EUSAGE: native with a single exposure. */
spx_status spx_flat_cpu(const spx_flat_input *in, const spx_flat_options *o, spx_flat *out, spx_flat_counts *counts,
                        spx_err *e);

#endif
