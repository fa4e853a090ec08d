/* Provides block `sky`: the sky that was found in a frame, and what it was subtracted with. */
#ifndef SPX_SKY_H
#define SPX_SKY_H

#include <stddef.h>
#include <stdint.h>

/* Most quantities of a fibre, and most spectra that vary with a coordinate of the fibres. */
enum { SPX_SKY_MOST = 12, SPX_SKY_MODES = 3 };

/* Classes of bins, bits: sky lines fainter than 1 % of the brightest, brighter than 10 %; brightest 1 % of all bins. */
enum { SPX_SKY_OFF = 0, SPX_SKY_ON = 1, SPX_SKY_TOP = 2, SPX_SKY_CLASSES = 3 };

typedef enum {
    SPX_SKY_TARGET = 0,   /* has the light of a target, too */
    SPX_SKY_FIBRE = 1,    /* the sky was found of it */
    SPX_SKY_HELD_OUT = 2, /* a sky fibre that is treated as a target, for a test */
    SPX_SKY_REJECTED = 3  /* a sky fibre that contradicts the others: a star in it */
} spx_sky_role;

typedef struct {
    size_t nspec, nwave, ndiag;
    size_t nt, nd, nk; /* terms of t, delta, kappa; nq of all */
    size_t nq, nmode;
    double *wavelength; /* [nwave] Angstrom, of s */
    double *s;          /* [nwave] deconvolved sky, electron/Angstrom */
    double *covariance; /* [ndiag][nwave] band of its covariance C: C(j, j+d) at [d][j] */
    double *mode;       /* [nmode][nwave] spectra that are added in proportion to a coordinate, electron/Angstrom */
    double *coordinate; /* [nspec][nmode] */
    char mode_name[SPX_SKY_MODES][16];
    double *model, *variance;   /* [nspec][nwave] electron/Angstrom, and its square */
    double *p, *cov;            /* [nspec][nq], [nspec][nq][nq]: t, delta (Angstrom), kappa (Angstrom^2) */
    double *chi2, *chi2_loo;    /* [nspec] reduced, of sky fibres; 0: none */
    uint8_t *role;              /* [nspec] spx_sky_role */
    uint32_t *nrejected;        /* [nspec] bins of sky fibres that were left out */
    uint8_t *line_class;        /* [nwave] bits 1 << SPX_SKY_OFF ... */
    uint8_t *bad;               /* [nwave] 1: no sky fibre has this bin, or one near it */
    double mean_velocity;       /* km/s; wavelengths of s are those of the frame divided by 1 + v/c */
    double tau[SPX_SKY_MOST];   /* intrinsic scatter of the quantities */
    double gauge[SPX_SKY_MOST]; /* last change that made their means 1 or 0 */
    size_t degree[SPX_SKY_MOST], informed[SPX_SKY_MOST];
    double noise; /* median chi2 of sky fibres, at least 1: by how much the variance is too small */
    double fitted[SPX_SKY_CLASSES], loo[SPX_SKY_CLASSES], held_out[SPX_SKY_CLASSES]; /* reduced chi2; 0: none */
    size_t nfitted[SPX_SKY_CLASSES], nheld_out[SPX_SKY_CLASSES];                     /* bins of these */
    size_t nsky, passes;
    double change; /* largest of a bin of a sky fibre in the last pass, in errors; infinite: other fibres or bins */
    int converged; /* it is below the tolerance */
} spx_sky;

/* Change of a bin, in errors, above which a sky that has not converged is none. */
#define SPX_SKY_UNSETTLED 1.0

void spx_sky_free(spx_sky *sky);

#endif
