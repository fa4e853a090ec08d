/* Steps of the start without a PSF (psffit/cold.h). */
#ifndef SPX_PSFFIT_COLD_STEPS_H
#define SPX_PSFFIT_COLD_STEPS_H

#include "psffit/cold.h"

/* Terms of polynomials at most. */
enum { SPX_COLD_TERMS = 6 };

/* ---- polynomials ---- */

/* Weighted least squares of v[n] by nterm Legendre polynomials of u[n], weight[n]: c[nterm]; in rounds, `rounds` of
 * them, weights of values that are off by more than `clip` times the rms (1.4826 times the median) become 0. 0: fewer
 * values than terms. */
int spx_cold_fit(size_t n, const double *u, const double *v, double *weight, size_t nterm, int rounds, double clip,
                 double *c);

/* ---- peaks ---- */

typedef struct {
    double at;     /* centre, in samples */
    double height; /* above the background */
    double error;  /* of the height */
    double sigma2; /* square of the width of a Gaussian of this curvature, minus 1/12 for the pixel */
} spx_cold_peak;

/* Peaks of v[n] above `sharpest` errors: samples that none within `reach` exceeds, with a centre from the parabola
 * through the logarithms of it and of those `step` beside it, above background[n] (NULL: the lowest value within 8
 * reach). Values that are NaN are unknown: no peak has one within `step`; *spoilt counts maxima beside them (may be
 * NULL). peak[most], returns their number. */
size_t spx_cold_peaks(size_t n, const double *v, const double *error, const double *background, size_t reach,
                      size_t step, double sharpest, size_t most, spx_cold_peak *peak, size_t *spoilt);

/* ---- traces ---- */

typedef struct {
    size_t nspec, nx, ny;
    double *x;       /* [nspec][SPX_COLD_TERMS] Legendre series of the column over rows [0, ny - 1] */
    int *dead;       /* [nspec] */
    int32_t *bundle; /* [nspec] */
    size_t nbundle;
    double pitch, sigma; /* pixels */
    int turned;          /* fewer fibres would be dead with the bundles from the other side */
} spx_cold_traces;

void spx_cold_traces_free(spx_cold_traces *t);
/* Column of a trace at a row. */
double spx_cold_column(const spx_cold_traces *t, size_t fibre, double row);

/* Finds the traces of a flat; zeroed *t, which spx_cold_traces_free() frees also after an error. */
spx_status spx_cold_find_traces(const spx_image *flat, const spx_cold_options *o, spx_cold_traces *t,
                                spx_err *e) SPX_NODISCARD;

/* Numbers of the fibres that peaks x[npeak] (rising) belong to, peak_of[nfibre], -1: there is none; *pitch and *gap
 * between fibres of one and of two bundles; expected[nfibre]: place of all fibres. bundle[nbundle]: fibres of each,
 * from left to right; nfibre their sum. Dynamic programming: least sum of ((distance - expected)/tolerance)^2, with a
 * penalty for each fibre without a peak and each peak without a fibre. SPX_EINPUT: fewer than half of the fibres have a
 * peak, or another numbering fits as well. */
spx_status spx_cold_number(size_t npeak, const double *x, size_t nbundle, const size_t *bundle, size_t nfibre,
                           long *peak_of, double *expected, double *pitch, double *gap, spx_err *e) SPX_NODISCARD;

/* ---- wavelengths ---- */

/* Polynomial of the row: sum_k c[k] P_k(u), u = (row - middle)/half. */
typedef struct {
    int degree;
    double c[SPX_COLD_TERMS];
} spx_cold_wave;

double spx_cold_wavelength(const spx_cold_wave *w, double middle, double half, double row);

/* Searches and polishes the wavelengths of one spectrum: peak[npeak], lines wave[nwave] rising, rows 0 ... ny - 1.
 * *best and *rival, the best solution that differs; best_wave. SPX_EINPUT: no solution, or not a unique one. */
spx_status spx_cold_identify(size_t npeak, const spx_cold_peak *peak, size_t nwave, const double *wave, size_t ny,
                             const spx_cold_options *o, spx_cold_wave *best_wave, spx_cold_solution *best,
                             spx_cold_solution *rival, spx_err *e) SPX_NODISCARD;

/* Follows a solution to another spectrum: *w is that of a neighbour, and becomes this one's; line[npeak] gets the
 * number of the line of each peak, or -1. Shift of up to `reach` rows, then polynomials of degree `degree` at most.
 * Returns the number of lines; 0: *w is left as it is. */
size_t spx_cold_follow(size_t npeak, const spx_cold_peak *peak, size_t nwave, const double *wave, size_t ny,
                       double reach, int degree, spx_cold_wave *w, long *line);

#endif
