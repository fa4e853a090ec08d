/* Provides blocks `spectra` (any number of arms) and `frame` (one camera, as extracted). */
#ifndef SPX_SPECTRA_H
#define SPX_SPECTRA_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "fits/cards.h"

struct spx_table;

enum { SPX_MAX_ARM = 64 };

enum { SPX_ARM_NAME = 16 };

typedef enum { SPX_VACUUM = 0, SPX_AIR = 1 } spx_medium;

/* Arm: every spectrum is on the same wavelength grid, or has one of its own. */
typedef struct {
    char name[SPX_ARM_NAME]; /* b, r, z, sdss, ... */
    size_t nwave;
    double *wavelength; /* [nwave], Angstrom, strictly increasing; with a grid for each row, that of the first */
    int per_row; /* 1: each spectrum has a grid of its own. Where it ends before nwave bins, wavelengths go on, with
                  * ivar 0 */
    double *row_wavelength; /* [nspec][nwave] with per_row, where values are there; else NULL */
    spx_medium medium;
    int barycentric;   /* wavelengths are barycentric (1) or topocentric (0) */
    int frame_unknown; /* 1: which of these is not known; `barycentric` is 0 then: they count as topocentric */
    double *flux;      /* [nspec][nwave]; unit in `unit` */
    double *ivar;      /* [nspec][nwave]; 0: no information */
    uint32_t *mask;    /* [nspec][nwave]; non-zero: not used; NULL: none */
    /* Resolution matrix as diagonals, [nspec][ndiag][nwave]; scipy dia_matrix convention:
     * resolution[s][k][j] = R[j - off_k, j], off_k = ndiag/2 - k. NULL when ndiag is 0. */
    size_t ndiag;
    double *resolution;
    char unit[64]; /* of flux, e.g. "electron/Angstrom" */
} spx_arm;

/* Name of a camera's arm: the letters before the first digit, in lower case (r0 -> r, sm1 -> sm, vis_r2 -> vis_r), of
 * the part behind a '-' where that begins with a letter (sp1-b -> b). "frame" where the name is empty or begins
 * otherwise. */
void spx_arm_of_camera(const char *camera, char arm[SPX_ARM_NAME]);
/* Name of an arm as columns of scores end with, in upper case: MEDIAN_RAW_SNR_RED. */
void spx_arm_upper(const char *arm, char upper[SPX_ARM_NAME]);
/* 1: the names of two cameras differ in their arms at most. */
int spx_same_spectrograph(const char *a, const char *b);

typedef struct {
    size_t nspec, narm;
    spx_arm arm[SPX_MAX_ARM];
    spx_cards header;               /* primary header */
    struct spx_table *fibermap;     /* nspec rows, or NULL */
    struct spx_table *scores;       /* nspec rows, or NULL */
    struct spx_table *exp_fibermap; /* any number of rows, or NULL */
} spx_spectra;

/* Mask bits of extracted bins, as in DESI frames. */
enum {
    SPX_SOMEBADPIX = 1 << 0,   /* more than half of the bin's PSF fell on masked pixels */
    SPX_ALLBADPIX = 1 << 1,    /* all of it: no information; flux 0, ivar 0 */
    SPX_COSMIC = 1 << 2,       /* more than a tenth of it fell on pixels that the extraction rejected */
    SPX_LOWFLAT = 1 << 3,      /* no light reaches this end; or the flat is not known here: too little or too much
                                * light, or too few bins */
    SPX_BADFIBERFLAT = 1 << 4, /* the same of the whole fibre */
    SPX_BADSKY = 1 << 6,       /* no sky fibre has light here, or this is a sky fibre with other light in it */
    SPX_BAD2DFIT = 1 << 7,     /* poor 2-D fit */
    SPX_NODATA = 1 << 8,       /* not observed, or its arm or camera is missing */
    SPX_BADFIBER = 1 << 9      /* the trace of the fibre cannot be right */
};

typedef struct {
    size_t nspec;
    spx_arm arm;              /* flux electron/Angstrom, ivar, mask, resolution */
    double *chi2pix;          /* [nspec][nwave] */
    double *pixmask_fraction; /* [nspec][nwave] */
    double *background;       /* [nspec][nwave] electrons a pixel that were taken off, or NULL */
    char camera[16];
    int flat_applied;           /* 1: was divided by a flat field */
    char implausible[64];       /* names of the rules that it breaks (products/plausible.h), blanks between */
    spx_cards header;           /* header of the image that was extracted */
    struct spx_table *fibermap; /* nspec rows, or NULL */
    struct spx_table *scores;   /* nspec rows, or NULL */
    int32_t *fiber;             /* [nspec] index of the spectrum in the PSF */
    /* pixels that the extraction rejected as hit by cosmic rays: row and column of each, by rows */
    size_t ncosmic;
    int32_t *cosmic_pixels; /* [ncosmic][2]; NULL where there are none */
    /* model image, [model_ny][model_nx]; NULL unless requested */
    size_t model_ny, model_nx;
    float *model;
} spx_frame;

/* Selects rows, in this order, of all arrays and tables with a row a spectrum. */
spx_status spx_spectra_subset(const spx_spectra *s, size_t n, const size_t *row, spx_spectra *out, spx_err *e);

/* Copies name, unit and wavelengths of an arm, without values. */
spx_status spx_arm_copy_bins(const spx_arm *a, spx_arm *out, spx_err *e);

/* Marks the bins of a spectrum that lie in bands on the ground with SPX_NODATA; the arm has a mask. band[nband][2],
 * Angstrom in the arm's medium. velocity: of barycentric wavelengths against those on the ground, km/s; where it is
 * NULL or none that an observer has, bands are wider by 30 km/s on both sides. */
void spx_arm_leave_out(const spx_arm *a, size_t row, const double *velocity, size_t nband, const double *band);

/* Sums of rows of a resolution matrix by diagonals, r[ndiag][nwave], which should be 1: the median of a sample of the
 * bins with information; 1 where none has. */
double spx_resolution_sum(size_t nwave, size_t ndiag, const double *r, const double *ivar);
/* 1 when that is no resolution matrix: of another sign, in other units. Calibration leaves a few per cent. */
static inline int spx_resolution_is_wrong(double sum)
{
    return !(sum > 0.5 && sum < 2);
}

void spx_arm_free(spx_arm *a);
void spx_spectra_free(spx_spectra *s);
void spx_frame_free(spx_frame *f);

#endif
