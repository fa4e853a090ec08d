/* Provides block `psf`: point-spread function of one camera, spots of several kinds along traces that may have ranges
 * of wavelengths of their own. */
#ifndef SPX_PSF_H
#define SPX_PSF_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "fits/cards.h"

/* Names of table rows have at most 15 characters ("GH-10-10"). */
typedef char spx_psf_param[16];

/* Legendre series: value(lambda) = sum_k c[k] P_k(u), u = 2 (lambda - wmin)/(wmax - wmin) - 1. */
typedef struct {
    size_t ncoef;
    double wmin, wmax;   /* Angstrom */
    const double *range; /* [nspec][2] wmin and wmax of each trace in place of both, not owned; NULL: all alike */
    double *coef;        /* [nspec][ncoef] */
} spx_psf_series;

/* Kind of spot. */
typedef enum {
    SPX_PSF_GAUSS_HERMITE = 0, /* DESI PSF files, PSFTYPE = GAUSS-HERMITE, PSFVER 2, 3; degree 0: a Gaussian */
    SPX_PSF_GAUSS_HERMITE2,    /* BOSS PSF files of specex: the first core is cut off, a second one and a tail added */
    SPX_PSF_SPOTGRID           /* arrays of over-sampled spots, by place on the slit and wavelength */
} spx_psf_type;

/* Over-sampled spots, of SPX_PSF_SPOTGRID. Sub-pixels are 1/oversample of a pixel wide; the first has its middle at 0.
 */
typedef struct {
    size_t npos, nwave, my, mx;
    int oversample;
    float *spot;               /* [npos][nwave][my][mx] light of each sub-pixel, any unit */
    double *pos, *wave;        /* [npos] places on the slit, [nwave] wavelengths (Angstrom), both increasing */
    double *fibre_pos;         /* [nspec] place of each trace on the slit */
    double *place_x, *place_y; /* [npos][nwave] sub-pixel of each array that lies on the trace; NULL: its centroid */
    double sigma_x, sigma_y;   /* GHSIGX and GHSIGY at which spots are as stored, pixels; else they are stretched */
    double *stretched;         /* [nspec] the trace's wavelengths over those of the grid; NULL: 1 */
    /* Set by spx_psf_index(): light below and left of each edge between sub-pixels, [npos][nwave][my + 1][mx + 1], and
     * the edge coordinates of the trace in each array, [npos][nwave][2], y first. */
    double *sum, *centre;
} spx_psf_grid;

/* Parameters of the tail, in this order: TAILAMP, TAILCORE, TAILXSCA, TAILYSCA, TAILINDE. */
enum { SPX_TAIL_AMP, SPX_TAIL_CORE, SPX_TAIL_XSCA, SPX_TAIL_YSCA, SPX_TAIL_INDE, SPX_PSF_NTAIL };

/* Flags of a fibre's trace and spot. */
enum {
    SPX_PSF_DEAD = 1,          /* no light: trace of the neighbours, spot of the bundle */
    SPX_PSF_FEWLINES = 2,      /* too few lines: high orders are the prior's */
    SPX_PSF_RANGE = 4,         /* lines end before the CCD does */
    SPX_PSF_BADFIT = 8,        /* chi2 is too high */
    SPX_PSF_MOVED = 16,        /* trace far from those of the neighbours */
    SPX_PSF_MASKED = 32,       /* most of its pixels are masked */
    SPX_PSF_BUNDLE = 64,       /* the bundle could not be fitted */
    SPX_PSF_NOTCONVERGED = 128 /* the fit of the bundle has not converged */
};

typedef struct {
    size_t nspec;
    spx_psf_type type;
    spx_psf_series x, y;   /* trace centre, pixels */
    size_t npar;           /* rows of the parameter table */
    spx_psf_param *param;  /* [npar] names */
    size_t ndeg;           /* Legendre coefficients a parameter */
    double wmin, wmax;     /* range of the parameters' series, Angstrom */
    double *coeff;         /* [npar][nspec][ndeg] */
    int ghdegx, ghdegy;    /* highest Gauss-Hermite order */
    int ghdegx2, ghdegy2;  /* of the second core */
    int hsizex, hsizey;    /* half size of a spot: (2 hsizey + 1) x (2 hsizex + 1) pixels */
    double psferr;         /* fractional model error; 0.01 when the file has none */
    size_t npix_x, npix_y; /* CCD size that the PSF was made for; 0 when unknown */
    char camera[16];
    spx_cards header; /* header of the PSF HDU */
    /* Of each trace, NULL where the file has none. Set wave_range with spx_psf_set_wave_range(). */
    double *wave_range; /* [nspec][2] Angstrom, domain of the series x, y and coeff in place of their wmin and wmax */
    double
        *valid_range; /* [nspec][2] Angstrom, where the trace may be used; none where the second is below the first */
    uint16_t *status; /* [nspec] SPX_PSF_DEAD ... */
    int32_t *bundle;  /* [nspec] bundle: fibres side by side of one bundle share light; never falls */
    uint32_t *fibre;  /* [nspec] number of the fibre in the instrument */
    int32_t *order;   /* [nspec] order of an echelle */
    /* Set by spx_psf_index(): rows in `param` of GHSIGX, GHSIGY, and of GH-i-j at gh[i + (ghdegx+1)*j]; -1: absent
     * (0). */
    int sigx, sigy;
    int *gh;
    int tilt; /* TILT: the slit's image leans, row r of a spot lies at X + TILT (r - Y); -1: it does not */
    /* Of SPX_PSF_GAUSS_HERMITE2: GHSIGX2, GHSIGY2, GH2-i-j as gh, GHNSIG; else -1 and NULL. */
    int sigx2, sigy2;
    int *gh2;
    int nsig;
    spx_psf_grid grid; /* of SPX_PSF_SPOTGRID */
    /* The tail's parameters; -1: absent. SPX_PSF_GAUSS_HERMITE has none where TAILAMP is 0 everywhere. */
    int tail[SPX_PSF_NTAIL];
} spx_psf;

void spx_psf_free(spx_psf *psf);

/* 1 when spots are plain Gauss-Hermite series: separable (spx_psf_spot_factors()). */
static inline int spx_psf_plain_spots(const spx_psf *psf)
{
    return psf->type == SPX_PSF_GAUSS_HERMITE && psf->tilt < 0 && psf->tail[SPX_TAIL_AMP] < 0;
}

/* Name of a kind of spot, as in the attribute psftype: "gauss-hermite" ... */
const char *spx_psf_type_name(spx_psf_type type);

/* 1 when spots have a tail that is not 0. */
int spx_psf_has_tail(const spx_psf *psf);

/* Takes the tail out of an indexed PSF: its spots end with their cores. */
void spx_psf_drop_tail(spx_psf *psf);

/* Gives the traces ranges of their own: range[nspec][2], Angstrom, which *psf then owns (NULL: none). Sets the series'
 * wmin and wmax to the lowest and highest of all. */
void spx_psf_set_wave_range(spx_psf *psf, double *range);

/* What a program can take beside version 1 of the block, for spx_psf_require(). */
enum {
    SPX_PSF_RANGES = 1, /* ranges of single traces */
    SPX_PSF_SPOTS = 2   /* spots that are no plain Gauss-Hermite series: another type, TILT, a tail */
};

/* Refuses a PSF that needs more than `can` (SPX_PSF_RANGES ...), SPX_EINPUT; `what` takes it, such as "the fit of
 * shifts", and `remedy` may be NULL. */
spx_status spx_psf_require(const spx_psf *psf, unsigned can, const char *what, const char *remedy,
                           spx_err *e) SPX_NODISCARD;

/* Deep copy; *to is overwritten, and empty after an error. */
spx_status spx_psf_copy(const spx_psf *from, spx_psf *to, spx_err *e);

/* 1 when two indexed PSFs have the same bits in all that traces, spots and tails are computed from. 0 for those of
 * SPX_PSF_SPOTGRID, whose arrays are not compared. */
int spx_psf_same_light(const spx_psf *a, const spx_psf *b);

#endif
