/* Provides coadds: the exposures of each target, in one arm, become one spectrum.
 *
 * Exposure i of a target has flux D_i, inverse variance w_i and resolution matrix R_i, and sees a_i R_i f of the
 * target's spectrum f, with a grey scale a_i. From here on D_i is D_i/a_i and w_i is w_i a_i^2.
 *
 * Simple, bin by bin: W = sum w, flux = sum w D / W, ivar = W, and row k of R = sum_i w_ik (row k of R_i) / W_k. Exact
 * in R, each row with its own weights; where the widths of the R_i differ some information is lost.
 *
 * Optimal: N = sum R_i^T W_i R_i, y = sum R_i^T W_i D_i, x = N^-1 y; Q = N^(1/2), s = Q 1 and then flux = Q x / s,
 * ivar = s^2, R = Q / s (Bolton & Schlegel 2010): R^T diag(ivar) R = N, all information of all exposures. R keeps
 * ndiag_out diagonals, and its rows, which sum to 1, are divided by the sum of what is kept. Where an arm ends, rows of
 * the R_i lack what lies beyond, and D_i is multiplied by what is left of their sum: the spectrum goes on as it is
 * there.
 *
 * Auto: optimal for targets whose R_i differ in width by more than SPX_COADD_SPREAD (rms over the exposures, mean over
 * bins), else simple. Width of a row: (sum r)^2 / sum r^2.
 *
 * Before that, twice: grey scales, where chi^2 drops by more than SPX_COADD_DROP a good bin, a_i = <D_i, R_i x>/<R_i x,
 * R_i x> with weights w_i, less beyond 3 errors, within 0.1 ... 10, their mean weighted with <R_i x, R_i x> being 1;
 * and rejection: bins with |D_i - R_i x| > reject sqrt(1/w_i - 1/W), which is the error of that difference, at most 1
 * in 10 of an exposure, one exposure a bin, those that are at least half as far off as any within 2 bins, and a share
 * that falls by two every two bins of those further away. Of two that are as far off, as always with two exposures, the
 * brighter one goes: hits add light.
 *
 * N is banded. It gets 1e-10 of its diagonal on the diagonal, so that gaps do not make it singular; bins with less than
 * 1e-12 of the median information are left out of it, and have flux 0 and ivar 0. */
#ifndef SPX_COADD_H
#define SPX_COADD_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/progress.h"

typedef enum { SPX_COADD_SIMPLE, SPX_COADD_OPTIMAL, SPX_COADD_AUTO } spx_coadd_method;

enum { SPX_COADD_MOST_DIAGONALS = 63, SPX_COADD_MOST_OUT = 127, SPX_COADD_MORE = 4 };
#define SPX_COADD_SPREAD 0.05
#define SPX_COADD_DROP   0.1

/* Bits of masks that a coadd sets (products/spectra.h): a rejected bin; no exposure has information and none says why.
 */
enum { SPX_COADD_REJECTED = 1 << 2, SPX_COADD_NODATA = 1 << 8 };

/* A batch: exposures first[t] ... first[t+1]-1 are of target t, all on one grid of nwave bins. Bins that are masked,
 * not finite or of ivar <= 0 have no information. */
typedef struct {
    size_t ntarget, nwave, ndiag;
    const size_t *first;      /* [ntarget + 1], from 0 */
    const double *flux;       /* [nexp][nwave] */
    const double *ivar;       /* [nexp][nwave] */
    const uint32_t *mask;     /* [nexp][nwave], or NULL: all good */
    const double *resolution; /* [nexp][ndiag][nwave] by diagonals (products/spectra.h), finite where there is a row;
                               * NULL when ndiag is 0 */
} spx_coadd_input;

/* Makes R finite: elements that are not become 0, and ivar of their rows 0. Exposures whose R is none
 * (spx_resolution_is_wrong()) lose their ivar. Bounds the dynamic range of N, whose root
 * double precision gives to some 1e-16 of its largest element: of the bins of a target with ivar above 0, an eighth has
 * at least q; ivar becomes 0 where it is more than SPX_COADD_MOST_IVAR times q, and where it is less than q by that
 * factor, within 2: no detector makes such a range, and so little light tells nothing. Not the median: most bins may be
 * dark. A target's only exposure keeps what it has. Adds to *n. */
typedef struct {
    size_t over, wrong; /* bins above; exposures without an R */
} spx_coadd_cleaned;

void spx_coadd_clean(size_t ntarget, const size_t *first, size_t nwave, size_t ndiag, double *resolution, double *ivar,
                     int nthreads, spx_coadd_cleaned *n);
#define SPX_COADD_MOST_IVAR 0x1p27 /* 1.3e8: rings of 0.02 errors begin at 1e10, of 19 at 1e14 */
enum { SPX_COADD_LIT = 8 };        /* one of so many bins, at least, is lit */

typedef struct {
    spx_coadd_method method;
    double reject;    /* in errors; 0: nothing is rejected */
    int scale;        /* 1: grey scales */
    size_t ndiag_out; /* diagonals of the resulting R; at least those of the input; odd and at most
                       * SPX_COADD_MOST_OUT where coadds are optimal. 0 when ndiag is */
    int nthreads;
    spx_progress *progress; /* counts targets; may be NULL */
} spx_coadd_options;

typedef struct {
    size_t ntarget, nexp, nwave, ndiag;
    double *flux, *ivar; /* [ntarget][nwave] */
    uint32_t *mask;      /* [ntarget][nwave]: the bits of all exposures, where all are masked or rejected */
    double *resolution;  /* [ntarget][ndiag][nwave], or NULL */
    uint8_t *optimal;    /* [ntarget] 1: optimal, 0: simple, or the only exposure as it is */
    double *spread;      /* [ntarget] of the widths, relative */
    double *scale;       /* [nexp] a_i */
    double *chi2;        /* [nexp] of D_i - R_i x, over its degrees of freedom; 0: no other exposure to compare with */
    uint32_t *good;      /* [nexp] bins with information, rejected ones not counted */
    uint32_t *rejected;  /* [nexp] */
    size_t on_cpu;       /* targets that a device has left to the CPU */
    size_t failed;       /* targets whose N has no root in double precision: coadded simply instead */
} spx_coadd;

/* Default diagonals of R: of simple coadds those of the input, of others SPX_COADD_MORE more. Elements further out
 * are lost (kernels/coadd/README gives how much). */
size_t spx_coadd_diagonals(spx_coadd_method method, size_t ndiag);

/* Coadds on the CPU; fills a zeroed *out, freed with spx_coadd_free(). A target's only exposure is copied as it is, but
 * for values that are not finite. SPX_EUSAGE: optimal without a resolution matrix; SPX_EINPUT: too many diagonals. */
spx_status spx_coadd_cpu(const spx_coadd_input *in, const spx_coadd_options *o, spx_coadd *out, spx_err *e);
void spx_coadd_free(spx_coadd *c);

/* Begins a coadd, on any backend: checks, allocates *out; flux, ivar, mask and resolution are not set. */
spx_status spx_coadd_begin(const spx_coadd_input *in, const spx_coadd_options *o, spx_coadd *out, spx_err *e);
/* Copies the only exposure of target t. */
void spx_coadd_copy(const spx_coadd_input *in, size_t t, spx_coadd *out);

#endif
