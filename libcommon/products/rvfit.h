/* Provides block `rvfit`: result of a fit of velocities and stellar parameters, one entry a star, and one for each
 * spectrum fitted (an exposure of the star; a star has one unless exposures are fitted jointly). */
#ifndef SPX_BLOCK_RVFIT_H
#define SPX_BLOCK_RVFIT_H

#include <stddef.h>
#include <stdint.h>

#include "products/spectra.h"
#include "products/templates.h"

/* Fitted quantities of a star: velocity, vsini, and the parameters of the templates. */
enum { SPX_MAX_FIT = 2 + SPX_MAX_PAR };

/* RVS_WARN, as in DESI's rvtab. */
enum {
    SPX_RVS_CHISQ = 1,  /* chi^2 is less than 50 below that of the continuum alone */
    SPX_RVS_VEDGE = 2,  /* v within 5 km/s of an end of the searched range */
    SPX_RVS_VERR = 4,   /* error of v above 100 km/s */
    SPX_RVS_PARAM = 8,  /* a parameter at the edge of the templates' range: teff within 10 K, logg and feh within 0.01,
                         * other parameters than alpha within 1/1000 of the range */
    SPX_RVS_VSINI = 16, /* vsini above 100 km/s */
    SPX_RVS_BAD = 32,   /* bad spectrum: nothing was fitted, all parameters are NaN */
    SPX_RVS_HESSIAN = 64,     /* curvature of the objective is not positive definite: errors are rough */
    SPX_RVS_FIT = 256,        /* chi^2 a degree of freedom is below 0.5 or above 1.5, and noise does not give that */
    SPX_RVS_NEGATIVE = 512,   /* the light is negative */
    SPX_RVS_EXPOSURES = 1024, /* exposures that are fitted jointly have different velocities */
    SPX_RVS_WIDE = 2048,      /* templates too wide to be made as sharp as the resolution matrix says */
    SPX_RVS_ARMS = 4096,      /* an arm has another velocity than the others */
    SPX_RVS_LAST = SPX_RVS_ARMS,
    SPX_RVS_PROFILE = 128 /* width of the profile in v differs from the curvature's by more than a quarter */
};

/* EPOCH_WARN: why the velocity of an exposure is not compared with those of the others, or is to be read with care. */
enum {
    SPX_EPOCH_BAD = 1,       /* it could not be measured: NaN */
    SPX_EPOCH_AMBIGUOUS = 2, /* another velocity fits nearly as well */
    SPX_EPOCH_PROFILE = 4,   /* the likelihood along v is no Gaussian, or wider than 100 km/s */
    SPX_EPOCH_OUT = SPX_EPOCH_BAD | SPX_EPOCH_AMBIGUOUS | SPX_EPOCH_PROFILE /* with these, it is not compared */
};

/* Reason why nothing of a spectrum can be fitted. */
typedef enum {
    SPX_RVFIT_GOOD = 0,   /* it was, or the fit found no finite objective */
    SPX_RVFIT_NO_PIXEL,   /* no good pixel in any arm that is fitted */
    SPX_RVFIT_FEW_PIXELS, /* no arm has more good pixels than the continuum has functions */
    SPX_RVFIT_NO_FLUX,    /* the median flux is 0, or beyond all bounds */
    SPX_RVFIT_NBAD
} spx_rvfit_bad;

typedef struct {
    double vrad, vrad_err, vrad_skew, vrad_kurt; /* km/s; moments of exp(-objective(v)/2), other parameters held */
    double vrad_ccf;                             /* km/s, the start from cross-correlation */
    double vrad_alt, dchisq_alt; /* km/s; alternative velocity: best other minimum of the objective along v, other
                                  * quantities fixed, farther than 60 km/s away, and its objective above the best; NaN:
                                  * none */
    double vsini, vsini_err;     /* km/s */
    double par[SPX_MAX_PAR], par_err[SPX_MAX_PAR];
    double covar[SPX_MAX_FIT * SPX_MAX_FIT]; /* [2+npar][2+npar]: v, vsini, parameters */
    double neg2logl;                         /* objective at the solution */
    double chisq, chisq_c;                   /* chi^2 over good pixels of all arms: of the model, of the continuum
                                              * alone */
    double chisq_logp;                       /* log10 of the probability that noise alone gives a larger chi^2 */
    double sn[SPX_MAX_ARM]; /* median of flux/error over good pixels, root of the sum of squares over exposures; 0: no
                             * good pixel */
    double arm_chisq[SPX_MAX_ARM], arm_chisq_c[SPX_MAX_ARM];
    double jitter[SPX_MAX_ARM], jitter_err[SPX_MAX_ARM]; /* fraction of the flux that errors of pixels hold; its error,
                                                          * 0 where it was given */
    int32_t npoly[SPX_MAX_ARM]; /* functions of the continuum of each exposure; 0: the arm was not used */
    int64_t npix;               /* good pixels */
    int64_t nreject;            /* pixels rejected as outliers, which are not in npix */
    int32_t niter;              /* evaluations of the objective with its derivatives */
    int32_t success;            /* 1: a minimum was reached */
    int32_t nexp;               /* exposures used */
    /* Of velocities of single exposures: chi^2 of their constancy, its degrees of freedom, and log10 of the probability
     * that noise alone gives a larger one; 1: that is less than of a deviation of 3 sigma. */
    double const_chisq, const_logp;
    int32_t const_dof, variable;
    double zero, zero_err, zero_known; /* km/s: zero point that was subtracted; share of the velocity that has one */
    /* With a search for a second component: velocities of the brighter one and the other, km/s, light ratio and
     * temperature of the other (NaN: there is no better pair), how much lower the objective is than of one star, in
     * units of chi^2 a degree of freedom where that is above 1, and 1 where that is a detection. */
    double vrad1, vrad1_err, vrad2, vrad2_err, flux_ratio, flux_ratio_err, teff2, dchisq_2;
    int32_t is_double;
    int32_t odd_arm;   /* with SPX_RVS_ARMS: the arm, */
    double odd_by;     /* and its velocity less that of the others, km/s */
    int32_t ccf_entry; /* entry of the cross-correlation set whose curves are kept; -1: none */
    int64_t warn;      /* SPX_RVS_* */
    spx_rvfit_bad bad; /* with SPX_RVS_BAD */
} spx_rvfit_star;

/* Spectrum of a star in its fit. */
typedef struct {
    double sn[SPX_MAX_ARM], chisq[SPX_MAX_ARM]; /* 0: the arm was not used */
    int64_t npix;                               /* good pixels */
    uint8_t lsf[SPX_MAX_ARM]; /* with resolution matrices, 1 + level of their rows' width; 0: the arm was not used */
    /* With velocities of single exposures, at the parameters of the star: km/s, error of noise alone; best other
     * minimum, and its objective above the best (NaN: none); SPX_EPOCH_* */
    double vrad, vrad_err, vrad_alt, dchisq_alt;
    double weight[SPX_MAX_ARM];        /* share of an arm in the information on vrad */
    double information;                /* on vrad, (km/s)^-2; 0: none */
    double zero, zero_err, zero_known; /* as of a star */
    int64_t warn;
} spx_rvfit_exposure;

typedef struct {
    size_t nstar, npar, narm, nrow;
    int with_jitter; /* 1: errors of pixels hold one */
    int with_epochs; /* 1: velocities of single exposures were measured */
    int with_zero;   /* 1: zero points were subtracted */
    int with_double; /* 1: second components were sought */
    char parname[SPX_MAX_PAR][32];
    spx_rvfit_star *star;         /* [nstar] */
    size_t *row;                  /* [nrow] rows of the fitted spectra in the input */
    size_t *first;                /* [nstar+1] star k has exposures first[k] ... first[k+1]-1 */
    spx_rvfit_exposure *exposure; /* [nrow] */
    /* Velocity axis of the cross-correlation, lag_v0 + i lag_step in km/s; nlag 0: no curves. */
    size_t nlag;
    double lag_v0, lag_step;
    struct {
        char name[16];
        size_t nwave;
        double *row_wavelength; /* [nrow][nwave] where each spectrum has a grid of its own (products/spectra.h), else
                                 * NULL */
        float *model; /* [nrow][nwave] model on the pixels and in the unit of the data, 0 for bad spectra; NULL: not
                       * kept */
        /* [nrow][nbin] template at the fitted point with its own continuum, without line-spread function, in the unit
         * of the library, on all bins of the arm, also those that were not fitted; 0: not known. NULL: not kept */
        float *star_template;
        size_t nbin;
        const double *bins; /* [nbin] their wavelengths, which belong to the caller; with row_wavelength those are the
                             * bins */
        /* [nrow][nlag] decrease of chi^2 from the continuum alone to the star's best entry of the cross-correlation set
         * times the continuum; NULL: not kept */
        float *ccf;
        /* [nrow][nwave] for a hook: (data - model) / error in pixels that the fit used, else 0; NULL: no hook, or the
         * arm is not fitted */
        float *residual;
    } arm[SPX_MAX_ARM];
} spx_rvfit;

void spx_rvfit_free(spx_rvfit *r);

#endif
