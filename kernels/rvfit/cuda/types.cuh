/* Provides types that host and device code share: templates on the device, chunks of a star's data, sums over their
 * pixels. */
#ifndef SPX_RVFIT_CUDA_TYPES_CUH
#define SPX_RVFIT_CUDA_TYPES_CUH

#include <cstdint>

#include "cuda/backend.cuh"
#include "cuda/reduce.cuh"
#include "cuda/tensor.cuh"

#define restrict __restrict__
extern "C" {
#include "rvfit/search/search.h"
#include "spectral/continuum.h"
#include "spectral/nn_math.h"
#include "spectral/rotation_math.h"
}
#undef restrict

namespace rv
{

using spx::blocks;
using spx::FULL;

enum {
    POINTS = 16,     /* of a tile of templates, and */
    COLUMNS = 128,   /* samples of it */
    LANES = 8,       /* of a row of coefficients */
    MAX_REACH = 4096 /* of a rotation kernel: the longest that the CPU takes, too */
};

/* Functions l <= k of row k of S'S that a band leaves: where they begin, packed, and the first of them. */
__host__ __device__ inline int band_row(int band, int k)
{
    return k <= band ? k * (k + 1) / 2 : band * (band + 1) / 2 + (k - band) * (band + 1);
}

__host__ __device__ inline int band_first(int band, int k)
{
    return k <= band ? 0 : k - band;
}

/* Numbers of a velocity's equations in a scan: S'S packed, then S'D. */
__host__ __device__ inline int scan_entries(int npoly, int band)
{
    return band_row(band, npoly) + npoly;
}

/* One arm on the device; offsets into arrays that hold all arms side by side. */
struct arm {
    int n, nt, ncomp, nlarge;   /* pixels, samples, components, those that are summed in double precision */
    int columns;                /* samples, padded to COLUMNS */
    int pixel0, sample0, comp0; /* where the arm begins in a point's pixels, samples, coefficients */
    int npoly, stride;          /* functions of the continuum; of basis rows */
    int ndiag, of_flux;
    double dlnwave, lndet;
    /* with resolution matrices, of spx_rv_match: [nclass][SPX_RV_LEVELS][ndiag][ndiag],
     * [nclass][SPX_RV_LEVELS][3][ndiag] (NULL: templates have no LSF), [n] */
    int nclass;
    const double *match, *match_lag, *match_place;
    const float *comp;   /* [ncomp][columns] */
    const double *mean;  /* [columns] */
    const float *coef;   /* [ntemp][ncomp], */
    const float *rest;   /* [ntemp][nlarge] and what single precision leaves of the first ones */
    const int *node;     /* rows of the grid's nodes; NULL: nodes are rows */
    const float *lnflux; /* [ntemp][nt], where there are no components */
    const double *place, *basis;
    const uint8_t *leftout;   /* pixels that no star uses; NULL: of the coarse model */
    int basis_band;           /* functions whose numbers differ by more are nowhere both different from 0 */
    const double2 *fragments; /* the basis as products take it, [chunks][basis_tiles()][4][32] (pixels.cuh) */
    const int *first;         /* of the functions of each chunk of 32 pixels; not more than a span of the model's has */
    int per;                  /* pixels of a block of a scan, with */
    int band;                 /* functions whose numbers differ by more have no block in common */
    const double *line;       /* lines of the basis in each; 0: the objective itself is scanned */
    const int2 *range;        /* first and last + 1 of the functions that differ from 0 in each */
    spx_nn nn;
    /* cross-correlation */
    int nccf, nfreq, ccf0;            /* ccf0: first of the arm's components among all arms' */
    int nsample, cyclic;              /* samples of the inverse transform that lags need; 1: all there are */
    size_t freq0, samples0;           /* first of the arm's frequencies, and of its components' samples */
    const float *ccf_comp, *response; /* [nccf][2][nfreq][2]; [2 nfreq][nsample] of the samples */
    int nwave_ccf, nbin;              /* samples of the set; bins of the continuum, */
    double bin_ln0, bin_width;        /* from here on, so wide in ln(wavelength), */
    const int *bin, *rebin_at;        /* pixels bin[b] ... bin[b+1]-1; spx_rv_arm's */
    const double *rebin, *lnwave;
    const int *lag_at;        /* [nlag] first of a lag's four samples, */
    const float4 *lag_weight; /* and how much of each */
};

/* What all stars share. */
struct model {
    const arm *arms;
    int narm, ng, nfree, lanes;  /* lanes = 1 + ng */
    int npoly, basis_band, span; /* most of an arm; continuum functions of a span of chunks */
    int nbroadened,
        broadened[SPX_MAX_FIT]; /* derivatives of templates that pass through rotation: axis, or -1: vsini */
    int free_v;                 /* 1: v is the first of the free quantities */
    int interpolator;
    int step[SPX_MAX_PAR]; /* of the grid's axes */
    size_t gpar[SPX_MAX_PAR];
    int pixels, samples, ncomp, nccf;    /* of a point: sums over arms */
    size_t nfreq, ccf_samples, most_ccf; /* frequencies: sum over arms; samples of all components; most of a set */
    int reach;                           /* longest rotation kernel: weights 0 ... reach */
    int width;                           /* of the networks */
    int scan_entries;                    /* most of an arm */
    int scan_window;                     /* functions that have a block in common, at most; -1: not in their order */
    int nscan;                           /* velocities scan_v0 + i scan_step */
    double scan_v0, scan_step;
    spx_rv_set set;
    const float *ccf_coef; /* [ntemp][nccf] */
};

/* Tiles of eight rows for the functions of a span of chunks, and the data. */
__host__ __device__ inline int basis_tiles(const model &m)
{
    return (m.span + 1 + 7) / 8;
}

/* Where a piece's data are. */
struct piece {
    int arm;
    size_t pixel0, band0;
    double sum_lne2;
};

/* A sum over the pixels of a piece: template number `at`, at velocity v. */
struct item {
    int at, piece;
    double v;
};

/* An exposure whose models are shifted (spx_rv_shifts): its pieces list[begin] ... list[end-1]; result[out ...]. */
struct shifts {
    int begin, end;
    unsigned n;
    double first, step;
    size_t out;
};

/* A piece whose pixels are rejected, and the error of a bad one. */
struct rejection {
    int piece;
    double large;
};

/* A piece whose errors have a jitter; error of a bad pixel. */
struct jittered {
    int piece;
    double large, jitter;
};

/* An arm of a star whose jitter is fitted: its pieces list[begin] ... list[end-1]; share of their freedom that is
 * taken. */
struct arm_of_star {
    int begin, end;
    double taken;
};

/* spx_rv_shared_misfit of pieces begin ... end-1; scores from score0 on. */
struct shared_misfit {
    int begin, end, is_velocity, first;
    double up, down, ln0, bin, free, length;
    size_t bins, score0;
};

/* A piece whose models are `half` km/s on both sides of its velocity. */
struct informed {
    int piece;
    double half;
};

/* A piece that was fitted, and where its rows begin. */
struct hook_row {
    int piece;
    size_t row;
};

} // namespace rv

#endif
