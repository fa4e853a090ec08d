/* Provides the simulation of an exposure: targets -> spectra -> electrons -> CCD image. Pure computation; every
 * function takes a whole batch. Random numbers come from a counter (seed, camera, kind, index), never from a state, so
 * that a result does not depend on the order of work or on the number of threads, and targets that are drawn from one
 * seed are the same for every camera of an exposure.
 *
 * Stars and sky follow closed formulas, which resemble a stellar and an airglow spectrum and have physical wavelengths,
 * but are no atmosphere models: the purpose is a known truth. */
#ifndef SPX_SIM_H
#define SPX_SIM_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/progress.h"
#include "products/image.h"
#include "products/psf.h"
#include "products/target.h"

#define SPX_SIM_MIRROR      8.66e4 /* collecting area, cm^2 */
#define SPX_SIM_FIBRE_AREA  1.79   /* of the sky, arcsec^2 */
#define SPX_SIM_FIBRE_LIGHT 0.60   /* fraction of a star's light that enters its fibre */
#define SPX_SIM_WAVE_REF    6200.0 /* Angstrom, where magnitudes and signal-to-noise ratios are defined */

/* ---- targets ---------------------------------------------------------------------------------------------------- */

/* Ranges of parameters, each drawn uniformly from [0],[1] (equal: a constant). */
typedef struct {
    uint64_t seed;
    size_t nsky;     /* sky fibres, spread evenly; at most nspec */
    size_t nlibrary; /* rows of the library to draw `member` from; 0: none */
    double teff[2], logg[2], feh[2], alpha[2], v[2], vsini[2];
    double mag[2];
} spx_sim_ranges;

/* Draws target[nspec]. Target i depends on the seed, i, nspec and the ranges only. SPX_EUSAGE: a range that is not
 * finite or runs backwards, |v| of 100000 km/s or more, vsini outside 0..1000 km/s, teff not in 1000..100000 K, or more
 * sky fibres than fibres. */
spx_status spx_sim_draw(const spx_sim_ranges *range, size_t nspec, spx_target *target, spx_err *e) SPX_NODISCARD;

/* Computes the magnitude at which a star has this signal-to-noise ratio per Angstrom at SPX_SIM_WAVE_REF, with photon
 * noise of star and sky (sky 0 or 1) and read noise (electrons a pixel). SPX_EUSAGE when snr <= 0 or exptime <= 0. */
spx_status spx_sim_magnitude(double snr, double exptime, double readnoise, int sky, double *mag,
                             spx_err *e) SPX_NODISCARD;

enum { SPX_SIM_NAXIS = 4, SPX_SIM_MAX_NODE = 200 };

/* Values of one of teff, logg, feh, alpha (in this order) in a grid of stars. */
typedef struct {
    size_t n;
    double v[SPX_SIM_MAX_NODE];
} spx_sim_axis;

/* Number of stars of the grid, and star k of it, the last axis running fastest: only its four parameters are set. */
size_t spx_sim_nodes(const spx_sim_axis axis[SPX_SIM_NAXIS]);
void spx_sim_node(const spx_sim_axis axis[SPX_SIM_NAXIS], size_t k, spx_target *star);

/* ---- spectra ---------------------------------------------------------------------------------------------------- */

/* Number of values of min, min + step, ... up to max (rounded), and the values: wavelength[n]. n is 0 for a range that
 * is not finite, not positive, backwards or has more than 2^31 values. */
size_t spx_sim_grid_size(double min, double max, double step);
void spx_sim_grid(double min, double step, size_t n, double *wavelength);

/* Computes flux of simulated stars per unit wavelength (erg/s/cm^2/cm at the stellar surface) as seen at velocity v
 * with rotation vsini: flux[nstar][nwave] on wavelength[nwave] (vacuum Angstrom, increasing). Rows of sky targets are
 * 0. norm[nstar] (may be NULL) gets the continuum at SPX_SIM_WAVE_REF, for spx_sim_electrons().
 *   F = pi B(lambda, teff) * (Balmer jump) * exp(-tau(lambda; teff, logg, feh, alpha)), tau the sum of 3600 narrow
 *   lines with made-up strengths and of the hydrogen, Ca II, Na I and Mg I lines at their wavelengths.
 * Doppler shift: lambda_obs = lambda sqrt((1+b)/(1-b)), b = v/c, exact where vsini is 0 (the formula is evaluated at
 * the rest wavelengths). Rotation: see spx_sim_observe(). */
spx_status spx_sim_stars(size_t nstar, const spx_target *star, size_t nwave, const double *wavelength, double *flux,
                         double *norm, spx_progress *progress, spx_err *e) SPX_NODISCARD;

/* Continuum of the formula at one rest wavelength, same unit (no lines). */
double spx_sim_continuum(double teff, double wavelength);

/* Broaden and shift a tabulated spectrum: in[nin] on win[nin] (increasing) -> out[nout] on wout[nout] (increasing). The
 * rotating disc is a sum of strips x = cos(pi j/(n+1)) with line-of-sight velocity x vsini and the weight of the
 * limb-darkening law (epsilon 0.6; Gray, The Observation and Analysis of Stellar Photospheres, ch. 18), n large enough
 * for strips at most 6 km/s apart; each strip is the shifted spectrum, interpolated with cubics through four points.
 * SPX_EINPUT when the table does not cover wout, shifted and broadened. */
spx_status spx_sim_observe(size_t nin, const double *win, const double *in, double v, double vsini, size_t nout,
                           const double *wout, double *out, spx_err *e) SPX_NODISCARD;

/* spx_sim_observe() for stars drawn from a library: row s of table[nstar][ntable] is the spectrum of star s per unit
 * wavelength on wtable[ntable] (Angstrom, increasing; air wavelengths when `air`) -> flux[nstar][nwave] on vacuum
 * wavelengths. norm[nstar] gets the mean flux within 100 Angstrom of SPX_SIM_WAVE_REF, or of all of the row where the
 * library does not reach there. SPX_EINPUT: a table that is too short, or not finite. */
spx_status spx_sim_members(size_t nstar, const spx_target *star, size_t ntable, const double *wtable, int air,
                           const float *table, size_t nwave, const double *wavelength, double *flux, double *norm,
                           spx_progress *progress, spx_err *e) SPX_NODISCARD;

/* Strips of a disc: number for this vsini, and x[n] in units of vsini with weight[n], which sum to 1. */
size_t spx_sim_strips(double vsini);
void spx_sim_disc(size_t n, double *x, double *weight);

/* Electrons per photon at the top of the atmosphere, out[nwave], of arm b, r or z: smooth, with the dichroic edges
 * at 5660-5800 and 7470-7620 Angstrom; any other arm: 0.25 everywhere. */
void spx_sim_throughput(char arm, size_t nwave, const double *wavelength, double *out);

/* Photons/s/cm^2/Angstrom of a source of constant AB magnitude. */
double spx_sim_photons(double mag, double wavelength);

/* Turn star fluxes (any scale) into electrons per Angstrom on the CCD, in place: flux[nstar][nwave]. `norm[s]` is the
 * flux of star s at SPX_SIM_WAVE_REF that its magnitude stands for. */
spx_status spx_sim_electrons(size_t nstar, const spx_target *star, const double *norm, char arm, double exptime,
                             size_t nwave, const double *wavelength, double *flux, spx_err *e) SPX_NODISCARD;

/* Makes stars that no template is like, flux[nstar][nwave] in place: star s is multiplied by
 *     1 + rms (2 n_0 (lambda - 6700)/3100 + sqrt(2) cos(2 pi (lambda/period + phase)) + n(lambda)),  at least 0.05
 * with a normal number n_0, a period of 50 to 500 Angstrom and a phase of its own, and a normal number in each
 * Angstrom. They depend on the seed and on index[s] alone, so that all cameras see the same star. */
void spx_sim_star_errors(double rms, uint64_t seed, size_t nstar, const int32_t *index, size_t nwave,
                         const double *wavelength, double *flux);

/* Dark-time night sky seen by one fibre, electrons per Angstrom, out[nwave] on an increasing grid of at least two
 * values: continuum of 21.3 AB mag/arcsec^2 (bluer: fainter), atomic lines of the airglow and of street lamps at their
 * wavelengths, and the OH Meinel bands with line positions from the molecule's constants (Huber & Herzberg 1979).
 * Every line is a Gaussian of sigma SPX_SIM_LINE_WIDTH, integrated over the grid's intervals: its photons are exact. */
spx_status spx_sim_sky(char arm, double exptime, size_t nwave, const double *wavelength, double *out,
                       spx_err *e) SPX_NODISCARD;

/* Parts of the night sky that vary on their own. */
enum {
    SPX_SIM_SKY_CONTINUUM,
    SPX_SIM_SKY_OH,
    SPX_SIM_SKY_OI,   /* 5578.9, 6302.0, 6365.5, 8448.7 Angstrom */
    SPX_SIM_SKY_NA,   /* 5891.6, 5897.6 Angstrom */
    SPX_SIM_SKY_REST, /* Hg of street lamps, [N I], H alpha */
    SPX_SIM_NSKY
};

/* spx_sim_sky() with its parts multiplied by factor[SPX_SIM_NSKY]. */
spx_status spx_sim_sky_parts(char arm, double exptime, const double *factor, size_t nwave, const double *wavelength,
                             double *out, spx_err *e) SPX_NODISCARD;

/* Multiplies factor[SPX_SIM_NSKY] of the lines, not of the continuum, by exp(rms normal), of noise_seed. */
void spx_sim_sky_vary(double rms, uint64_t noise_seed, double *factor);

/* Sky of nspec fibres at x, y (millimetres on the focal plane), out[nspec][nwave]:
 *     sky + continuum (gx x + gy y)/400 + oh (hx x + hy y)/400
 * with sky, continuum, oh [nwave] and gradients g = {gx, gy} of the continuum, h of the OH lines. Negative light is 0.
 */
void spx_sim_sky_field(size_t nspec, const double *x, const double *y, size_t nwave, const double *sky,
                       const double *continuum, const double *oh, const double g[2], const double h[2], double *out);

/* Place of a target on the focal plane of a telescope that points at (150, +2) degrees, 250 mm a degree. */
void spx_sim_focal_plane(const spx_target *target, double *x, double *y);

/* Width of lines of the sky, Angstrom: sigma. */
#define SPX_SIM_LINE_WIDTH 0.05

/* Adds a line's photons at `wave` to out[nwave], per Angstrom: a Gaussian of `sigma` Angstrom, integrated over the
 * intervals of an increasing grid of at least two values. Of intervals longer than two sigma its place is not kept. */
void spx_sim_add_line(double wave, double photons, double sigma, size_t nwave, const double *wavelength, double *out);

/* Adds one spectrum, sky[nwave], to each of flux[nspec][nwave]. */
void spx_sim_add_sky(size_t nspec, size_t nwave, const double *sky, double *flux);

/* ---- instrument ------------------------------------------------------------------------------------------------- */

/* Built-in camera b, r or z with nspec fibres in bundles of 25, traces along y, bent in x and y, spots that vary with
 * fibre and wavelength. It images wmin..wmax and 60 Angstrom more at both ends; npix_x, npix_y is a CCD just large
 * enough. wmin = wmax = 0: the arm's own range (3600-5800, 5760-7620, 7520-9824 Angstrom). Same dispersion whatever
 * the range. Free with spx_psf_free(). SPX_EUSAGE: another arm, nspec 0 or above 5000, a range that is not within
 * 3000..11000 Angstrom or shorter than 10. */
spx_status spx_sim_psf(char arm, size_t nspec, double wmin, double wmax, spx_psf *psf, spx_err *e) SPX_NODISCARD;

/* A camera that differs from the built-in ones. */
typedef struct {
    size_t nbundle; /* bundles and the fibres of each, in order; 0: of 25 */
    const size_t *bundle;
    double pitch, gap;                  /* from fibre to fibre and across a gap, pixels: 7.3 and 20 */
    double dispersion;                  /* Angstrom a row; 0: the arm's */
    double width;                       /* factor on the widths of spots */
    double tail, tail_index, tail_core; /* TAILAMP, TAILINDE, TAILCORE of the spots: none, 2, 1 */
    double mirrored;                    /* 1: fibre 0 is at the right */
    double falling;                     /* 1: wavelengths fall with the row */
} spx_sim_camera;

/* That of spx_sim_psf(). */
spx_sim_camera spx_sim_camera_defaults(void);

/* spx_sim_psf() of such a camera, whose bundles it names. SPX_EUSAGE also: fewer fibres in the bundles than nspec. */
spx_status spx_sim_psf_camera(const spx_sim_camera *camera, char arm, size_t nspec, double wmin, double wmax,
                              spx_psf *psf, spx_err *e) SPX_NODISCARD;

/* Range of an arm, Angstrom; 0 when there is no such arm. */
int spx_sim_arm_range(char arm, double *wmin, double *wmax);

/* Image of spectra: image[ny][nx] += sum over fibres s and samples k of electrons(s,k) * spot(fiber[s], wavelength[k]),
 * electrons(s,k) = flux[s][k] (per Angstrom) * width of sample k (half the distance between its neighbours).
 * fiber[nspec]: rows of the PSF; NULL: 0..nspec-1. Light outside the CCD is dropped; that of a
 * tail beyond the spots is drawn (psf/tail.h). Threads work on fixed bands of
 * rows, and each pixel is summed in the order of fibre, wavelength: the result does not depend on the number of
 * threads. Progress counts rows. psf must be indexed (spx_psf_index). SPX_EINPUT: fibre not in the PSF, wavelengths
 * that do not increase, flux that is not finite, a spot that the PSF cannot give. */
spx_status spx_sim_project(const spx_psf *psf, size_t nspec, const int32_t *fiber, size_t nwave,
                           const double *wavelength, const double *flux, size_t ny, size_t nx, double *image,
                           spx_progress *progress, spx_err *e) SPX_NODISCARD;

/* Families of spots, of the place and the widths that the PSF says. Those that are no Gauss-Hermite series have its
 * GHSIGX and GHSIGY, are symmetric, and their light within the PSF's box is 1, too. */
typedef enum {
    SPX_SIM_GAUSS_HERMITE, /* the PSF's own */
    SPX_SIM_MOFFAT,        /* (1 + r^2/a^2)^-4 with half its light within 1.177 sigma, like a Gaussian */
    SPX_SIM_DISC           /* uniform image of a fibre, radius 1.5 sigma, smoothed to an rms width of sigma */
} spx_sim_family;

/* spx_sim_project() with spots of a family. */
spx_status spx_sim_project_family(const spx_psf *psf, spx_sim_family family, size_t nspec, const int32_t *fiber,
                                  size_t nwave, const double *wavelength, const double *flux, size_t ny, size_t nx,
                                  double *image, spx_progress *progress, spx_err *e) SPX_NODISCARD;

/* Spreads a fraction of all light into wings, as scattered light does: image = (1 - fraction) image + fraction image *
 * W, W(r) the sum of Gaussians of sigma 3, 6, 12, 24 pixels with 0.4, 0.3, 0.2, 0.1 of the light (about r^-2.5 between
 * 5 and 40 pixels), each cut at 4 sigma. Light beyond the CCD's edges is lost. fraction from 0 to 1. */
spx_status spx_sim_tails(double fraction, size_t ny, size_t nx, double *image, spx_err *e) SPX_NODISCARD;

/* Variance from which ivar is made. MODEL: noise-free electrons + readnoise^2. DATA: max(measured electrons, 0) +
 * readnoise^2, as a pre-processing without a model must do; this correlates flux and weight, and biases faint fluxes
 * low. */
typedef enum { SPX_SIM_IVAR_MODEL = 0, SPX_SIM_IVAR_DATA = 1 } spx_sim_ivar;

typedef struct {
    uint64_t seed;
    char camera;         /* same seed, other camera: other noise */
    int photon_noise;    /* 0: no photon and read noise is drawn; ivar is unchanged */
    double readnoise;    /* electrons */
    double fullwell;     /* electrons; a pixel above it is clipped and flagged */
    double cosmics;      /* cosmic-ray hits a million pixels, mean of a Poisson number */
    size_t badcolumns;   /* segments of bad columns */
    size_t gap_row, gap; /* amplifier gap: `gap` rows from gap_row on, no data */
    size_t blocks;       /* saturated blocks of 8 x 24 pixels */
    size_t nans;         /* pixels that are NaN (flagged, ivar 0): tests of readers */
    spx_sim_ivar ivar;
    int hide_cosmics; /* 1: hits are not flagged, and with ivar DATA their charge is in the variance */
    double offset[4]; /* electrons that are added to the amplifiers' quadrants: low rows left, right, high rows left,
                         right; from row ny/2 and column nx/2 on it is the next one */
    float *hits;      /* [ny][nx], gets the electrons that hits have left; NULL: not wanted */
} spx_sim_noise;

/* Draws the offsets of four amplifiers, normal with this rms. */
void spx_sim_amplifiers(double rms, uint64_t seed, char camera, double offset[4]);

/* Exposes model[ny][nx] (electrons, finite, >= 0): Poisson and Gaussian noise, then the defects. Allocates out->data,
 * ivar, mask and readnoise and sets ny, nx; nothing else in *out is touched. Flagged pixels have ivar 0, but for
 * cosmic-ray hits, whose pixels keep the ivar of the model: readers have to use the mask. hits are those in pixels that
 * are not bad. */
spx_status spx_sim_expose(size_t ny, size_t nx, const double *model, const spx_sim_noise *noise, spx_image *out,
                          spx_err *e) SPX_NODISCARD;

#endif
