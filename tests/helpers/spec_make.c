/* spec_make KIND FILE [N]: one star of the simulator's formula as a survey or instrument would keep its spectrum, for
 * tests of fits2h5 and rvs-fit: teff 5500, logg 4, feh -0.5, vsini 5 km/s, at +37 km/s for an observer at rest, seen
 * with a Gaussian of FWHM 1 Angstrom and a signal-to-noise ratio of 80 a pixel, mostly in 6400-6600 Angstrom. N is the
 * seed of the noise, or what the kind says. Some pixels of each are spoilt in the way that the layout has for it.
 *     spspec      SDSS-I: rows of one image, flux, flux without continuum, error, mask
 *     spec        SDSS from DR8: a table of pixels with logarithms of the wavelength in single precision, SPECOBJ;
 *                 N begins N pixels later
 *     lamost      LAMOST to DR8: rows of one image
 *     lamost-table  LAMOST from DR9: vectors in one row
 *     mrs         LAMOST, medium resolution: tables of pixels COADD_B, COADD_R, and two exposures of each
 *     mrs-table   the same as vectors in one row
 *     apstar      APOGEE: HDUs without names, rows of the sum and of visits, a logarithmic scale
 *     aspcapstar  the same, one row
 *     apvisit     three detectors from red to blue, wavelengths decrease
 *     galah       HERMES: a file for camera N (1 to 4) each, relative errors in a second HDU, air
 *     eso         vectors in one row, in nanometre and air
 *     eso-noerr   HARPS: the same in Angstrom without usable errors
 *     linear, wave-log, iraf-log, log  an array with such a scale in its header; linear: in air, in micron
 *     metre       the same in metres, without errors
 *     lines       a list of lines, which is no spectrum
 *     pixels      an array whose scale counts pixels, which is no spectrum
 *     bands       IRAF: one spectrum, its errors in another band
 *     muse        HDUs DATA and STAT with a linear scale
 *     orders      CARMENES: HDUs SPEC, SIG, WAVE with a row an order
 *     espresso    the same with ESPRESSO's names and flags of bad pixels
 *     rows        three spectra on the same wavelengths
 *     blank       six orders, of which three have no wavelengths
 *     echelle     N orders (30) in 5000-6600 Angstrom, as orders
 *     multispec   IRAF: orders with linear, logarithmic, Chebyshev, Legendre and spline scales, bands, air
 *     e2ds        orders whose wavelengths are polynomials in the header, HARPS, air
 *     csv, text   columns with a line of names, and without; text: no errors
 * Exit status 0, or 1 with a message. */
#include <fitsio.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "num/wave.h"
#include "sim/sim.h"
#include "sim/sim_math.h"

enum { MOST = 4096, NORDER = 5, ORDER = 500 };
static const double SIGMA = 1 / 2.3548200450309493, SN = 80, STEP = 0.05, V = 37;

static spx_err err;
static uint64_t seed;

/* What an observer gets at vacuum wavelengths w[n], with its error. */
static void observe(size_t n, const double *w, unsigned draw, double *flux, double *sigma)
{
    enum { REACH = 48 };
    const spx_target star = {.targetid = 1, .teff = 5500, .logg = 4, .feh = -0.5, .v = V, .vsini = 5, .mag = 15};
    double lo = fmin(w[0], w[n - 1]) - 5, hi = fmax(w[0], w[n - 1]) + 5, lsf[2 * REACH + 1], sum = 0, middle;
    size_t m = (size_t)((hi - lo) / STEP);
    double *fine = spx_alloc(m, sizeof *fine, &err), *f = spx_alloc(m, sizeof *f, &err);
    for (size_t i = 0; fine && i < m; i++)
        fine[i] = lo + STEP * (double)i;
    if (!fine || !f || spx_sim_stars(1, &star, m, fine, f, NULL, NULL, &err) != SPX_OK)
        exit(1);
    for (int k = -REACH; k <= REACH; k++)
        sum += lsf[k + REACH] = exp(-0.5 * pow(k * STEP / SIGMA, 2));
    middle = f[m / 2];
    for (size_t i = 0; i < n; i++) {
        double u[2], x = (w[i] - lo) / STEP, at = floor(x), rest = x - at;
        size_t k0 = (size_t)at;
        flux[i] = 0;
        for (int k = -REACH; k <= REACH; k++) {
            const double *g = f + k0 + (size_t)(ptrdiff_t)k;
            flux[i] += lsf[k + REACH] / sum * ((1 - rest) * g[0] + rest * g[1]) / middle;
        }
        sigma[i] = 1 / SN;
        spx_sim_uniform2(seed, SPX_SIM_READ, draw, i, 0, u);
        flux[i] += sigma[i] * spx_sim_normal(u);
    }
    spx_free(fine);
    spx_free(f);
}

/* A spectrum as a file has it: wavelengths, what is kept of them (air, logarithms, other units), values. */
typedef struct {
    size_t n;
    double wave[MOST], flux[MOST], sigma[MOST], ivar[MOST];
    int mask[MOST];
} spectrum;

static spectrum s;

/* n pixels of vacuum wavelengths `from` on: linear, or of this step in log10. */
static void draw(size_t n, double from, double step, int log, unsigned which)
{
    s.n = n;
    for (size_t i = 0; i < n; i++) {
        s.wave[i] = log ? pow(10, log10(from) + step * (double)i) : from + step * (double)i;
        s.mask[i] = 0;
    }
    observe(n, s.wave, which, s.flux, s.sigma);
    for (size_t i = 0; i < n; i++)
        s.ivar[i] = 1 / (s.sigma[i] * s.sigma[i]);
}

/* The same on wavelengths that look so in air. */
static void draw_air(size_t n, double from, double step, unsigned which)
{
    s.n = n;
    for (size_t i = 0; i < n; i++) {
        s.wave[i] = spx_air_to_vacuum(from + step * (double)i);
        s.mask[i] = 0;
    }
    observe(n, s.wave, which, s.flux, s.sigma);
    for (size_t i = 0; i < n; i++) {
        s.wave[i] = from + step * (double)i;
        s.ivar[i] = 1 / (s.sigma[i] * s.sigma[i]);
    }
}

/* Pixels 40 ... 44 are worth nothing: as `mask` says, or by their flux or error. */
static void spoil(int mask, double flux, double error)
{
    for (int i = 40; i < 45; i++) {
        s.mask[i] = mask;
        s.flux[i] = flux;
        s.sigma[i] = error;
        s.ivar[i] = error > 0 ? 1 / (error * error) : 0;
    }
}

static void key_text(fitsfile *f, const char *key, const char *value, int *status)
{
    fits_write_key(f, TSTRING, key, (void *)(size_t)value, NULL, status);
}

static void key_number(fitsfile *f, const char *key, double value, int *status)
{
    fits_write_key(f, TDOUBLE, key, &value, NULL, status);
}

static void key_whole(fitsfile *f, const char *key, int value, int *status)
{
    fits_write_key(f, TINT, key, &value, NULL, status);
}

static void key_logical(fitsfile *f, const char *key, int value, int *status)
{
    fits_write_key(f, TLOGICAL, key, &value, NULL, status);
}

/* An image with rows of n values. */
static void image(fitsfile *f, const char *name, int bitpix, int ndim, long n, long rows, long bands, int *status)
{
    long dims[3] = {n, rows, bands};
    fits_create_img(f, bitpix, ndim, dims, status);
    if (name)
        key_text(f, "EXTNAME", name, status);
}

static void row(fitsfile *f, long r, double *v, int *status)
{
    fits_write_img(f, TDOUBLE, r * (long)s.n + 1, (long)s.n, v, status);
}

static void row_mask(fitsfile *f, long r, int *status)
{
    fits_write_img(f, TINT, r * (long)s.n + 1, (long)s.n, s.mask, status);
}

/* A table with columns name[]: a row a pixel, or vectors in one row. */
static void table(fitsfile *f, const char *extname, int vectors, int ncol, const char *const *name,
                  const char *const *type, const char *const *unit, double *const *value, int *status)
{
    char form[8][16], *forms[8], *names[8], *units[8];
    for (int c = 0; c < ncol; c++) {
        snprintf(form[c], sizeof form[c], "%zu%s", vectors ? s.n : 1, type[c]);
        forms[c] = form[c];
        names[c] = (char *)(size_t)name[c];
        units[c] = (char *)(size_t)(unit ? unit[c] : "");
    }
    fits_create_tbl(f, BINARY_TBL, 0, ncol, names, forms, unit ? units : NULL, extname, status);
    for (int c = 0; c < ncol; c++) {
        if (value[c])
            fits_write_col(f, TDOUBLE, c + 1, 1, 1, (long)s.n, value[c], status);
        else
            fits_write_col(f, TINT, c + 1, 1, 1, (long)s.n, s.mask, status);
    }
}

static double *logs(void)
{
    static double v[MOST];
    for (size_t i = 0; i < s.n; i++)
        v[i] = log10(s.wave[i]);
    return v;
}

/* ---- surveys ---- */

static void sdss_header(fitsfile *f, int *status)
{
    key_text(f, "TELESCOP", "SDSS 2.5-M", status);
    key_whole(f, "PLATEID", 266, status);
    key_whole(f, "MJD", 51602, status);
    key_whole(f, "FIBERID", 31 + (int)seed, status);
    key_number(f, "COEFF0", log10(6400), status);
    key_number(f, "COEFF1", 2e-5, status);
    key_logical(f, "VACUUM", 1, status);
}

static void spspec(fitsfile *f, int *status)
{
    draw(660, 6400, 2e-5, 1, 0);
    spoil(1 << 24, 1e3, 0);
    image(f, NULL, FLOAT_IMG, 2, (long)s.n, 5, 0, status);
    sdss_header(f, status);
    key_number(f, "RAOBJ", 145.5, status);
    key_number(f, "DECOBJ", -1.25, status);
    row(f, 0, s.flux, status);
    row(f, 1, s.flux, status);
    row(f, 2, s.sigma, status);
    row_mask(f, 3, status);
    row_mask(f, 4, status);
}

static void spec(fitsfile *f, int *status)
{
    static const char *const name[] = {"flux", "loglam", "ivar", "and_mask", "or_mask"};
    static const char *const type[] = {"E", "E", "E", "J", "J"};
    draw(600 + 10 * (size_t)seed, pow(10, log10(6400) + 2e-5 * (double)seed), 2e-5, 1, 0);
    spoil(1 << 23, 1e3, 1 / SN);
    image(f, NULL, BYTE_IMG, 0, 0, 0, 0, status);
    sdss_header(f, status);
    table(f, "COADD", 0, 5, name, type, NULL, (double *[]){s.flux, logs(), s.ivar, NULL, NULL}, status);
    char *column[] = {"PLUG_RA", "PLUG_DEC"}, *form[] = {"1D", "1D"};
    double ra = 145.5, dec = -1.25;
    fits_create_tbl(f, BINARY_TBL, 1, 2, column, form, NULL, "SPECOBJ", status);
    fits_write_col(f, TDOUBLE, 1, 1, 1, 1, &ra, status);
    fits_write_col(f, TDOUBLE, 2, 1, 1, 1, &dec, status);
}

static void lamost_header(fitsfile *f, int *status)
{
    key_text(f, "TELESCOP", "LAMOST", status);
    key_text(f, "DESIG", "LAMOST J004114.61+063310.8", status);
    key_whole(f, "OBSID", 1001, status);
    key_number(f, "RA", 10.31, status);
    key_number(f, "DEC", 6.55, status);
}

static void lamost(fitsfile *f, int *status)
{
    draw(660, 6400, 2e-5, 1, 0);
    spoil(2, 1e3, 1 / SN);
    image(f, NULL, FLOAT_IMG, 2, (long)s.n, 5, 0, status);
    lamost_header(f, status);
    double *const value[] = {s.flux, s.ivar, s.wave};
    for (int r = 0; r < 3; r++)
        row(f, r, value[r], status);
    row_mask(f, 3, status);
    row_mask(f, 4, status);
}

static void lamost_table(fitsfile *f, int *status)
{
    static const char *const name[] = {"FLUX", "IVAR", "WAVELENGTH", "ANDMASK", "ORMASK"};
    static const char *const type[] = {"E", "E", "E", "J", "J"};
    draw(660, 6400, 2e-5, 1, 0);
    spoil(2, 1e3, 1 / SN);
    image(f, NULL, BYTE_IMG, 0, 0, 0, 0, status);
    lamost_header(f, status);
    table(f, "COADD", 1, 5, name, type, NULL, (double *[]){s.flux, s.ivar, s.wave, NULL, NULL}, status);
}

static void mrs_as(fitsfile *f, int vectors, int *status)
{
    static const char *const pixels[] = {"FLUX", "IVAR", "LOGLAM", "OR_MASK"};
    static const char *const vector[] = {"FLUX", "IVAR", "WAVELENGTH", "ORMASK"};
    static const char *const one[] = {"FLUX", "IVAR", "LOGLAM", "PIXMASK"};
    static const char *const type[] = {"E", "E", "D", "J"};
    static const char *const extname[2][3] = {{"COADD_B", "B-84419148-1", "B-84419171-1"},
                                              {"COADD_R", "R-84419148-1", "R-84419171-1"}};
    image(f, NULL, BYTE_IMG, 0, 0, 0, 0, status);
    lamost_header(f, status);
    for (int k = 0; k < 6; k++) {
        const int exposure = k / 2, red = k % 2;
        draw(480 + (size_t)exposure, red ? 6400 + 0.3 * exposure : 5000 + 0.2 * exposure, 2.6e-5, 1, (unsigned)k);
        spoil(1, 1e3, 1 / SN);
        table(f, extname[red][exposure], vectors, 4,
              vectors    ? vector
              : exposure ? one
                         : pixels,
              type, NULL, (double *[]){s.flux, s.ivar, vectors ? s.wave : logs(), NULL}, status);
    }
}

static void mrs(fitsfile *f, int *status)
{
    mrs_as(f, 0, status);
}

static void mrs_table(fitsfile *f, int *status)
{
    mrs_as(f, 1, status);
}

static void apogee_header(fitsfile *f, int *status)
{
    image(f, NULL, BYTE_IMG, 0, 0, 0, 0, status);
    key_text(f, "TELESCOP", "apo25m", status);
    key_text(f, "OBJID", "2M00000002+7417074", status);
    fits_write_history(f, "APOGEE_APRED", status);
}

static void log_scale(fitsfile *f, const char *unit, int *status)
{
    key_text(f, "BUNIT", unit, status);
    key_number(f, "CRVAL1", log10(6400), status);
    key_number(f, "CDELT1", 2e-5, status);
    key_number(f, "CRPIX1", 1, status);
    key_text(f, "CTYPE1", "LOG-LINEAR", status);
    key_whole(f, "DC-FLAG", 1, status);
}

static void apogee(fitsfile *f, int rows, int *status)
{
    static double huge[MOST];
    static const char *const unit[] = {"Flux (10^-17 erg/s/cm^2/Ang)", "Err (10^-17 erg/s/cm^2/Ang)", "Mask"};
    apogee_header(f, status);
    draw(660, 6400, 2e-5, 1, 0);
    spoil(1 << 4, 1e3, 1 / SN);
    for (int i = 50; i < 55; i++) { /* bad pixels have a huge error, or none */
        s.flux[i] = 0;
        s.sigma[i] = 1e10;
    }
    for (size_t i = 0; i < s.n; i++)
        huge[i] = 1e10;
    for (int k = 0; k < 3; k++) {
        image(f, NULL, k == 2 ? LONG_IMG : FLOAT_IMG, rows > 1 ? 2 : 1, (long)s.n, rows, 0, status);
        log_scale(f, unit[k], status);
        for (int r = 0; r < rows; r++) {
            if (k == 2)
                row_mask(f, r, status);
            else
                row(f, r, k == 1 && r == 1 ? huge : k == 0 ? s.flux : s.sigma, status);
        }
    }
}

static void apstar(fitsfile *f, int *status)
{
    apogee(f, 4, status);
}

static void aspcapstar(fitsfile *f, int *status)
{
    apogee(f, 1, status);
}

static void apvisit(fitsfile *f, int *status)
{
    static const char *const unit[] = {"Flux (10^-17 erg/s/cm^2/Ang)", "Err (10^-17 erg/s/cm^2/Ang)", "Flag Mask",
                                       "Wavelength (Ang)"};
    static spectrum chip[3];
    apogee_header(f, status);
    for (int c = 0; c < 3; c++) {
        draw(220, 6599 - 68 * c, -0.3, 0, (unsigned)c);
        spoil(1, 1e3, 1 / SN);
        chip[c] = s;
    }
    for (int k = 0; k < 4; k++) {
        image(f, NULL, k == 2 ? SHORT_IMG : k == 3 ? DOUBLE_IMG : FLOAT_IMG, 2, (long)s.n, 3, 0, status);
        key_text(f, "BUNIT", unit[k], status);
        for (int c = 0; c < 3; c++) {
            s = chip[c];
            if (k == 2)
                row_mask(f, c, status);
            else
                row(f, c, k == 0 ? s.flux : k == 1 ? s.sigma : s.wave, status);
        }
    }
}

static void galah(fitsfile *f, int *status)
{
    static const char *const band[] = {"BL", "GN", "RD", "IR"};
    const int camera = seed >= 1 && seed <= 4 ? (int)seed - 1 : 0;
    draw_air(400, 6400 + 50 * camera, 0.12, 0);
    for (size_t i = 0; i < s.n; i++)
        s.sigma[i] /= s.flux[i];
    spoil(0, NAN, 1 / SN);
    image(f, NULL, FLOAT_IMG, 1, (long)s.n, 0, 0, status);
    key_text(f, "ORIGIN", "GALAH", status);
    key_text(f, "OBJECT", "galah_bright_1", status);
    key_text(f, "SPECTID", band[camera], status);
    key_number(f, "UTMJD", 56612.5, status);
    key_number(f, "CRVAL1", s.wave[0], status);
    key_number(f, "CDELT1", 0.12, status);
    key_number(f, "CRPIX1", 1, status);
    key_text(f, "CTYPE1", "Wavelength", status);
    row(f, 0, s.flux, status);
    image(f, NULL, FLOAT_IMG, 1, (long)s.n, 0, 0, status);
    row(f, 0, s.sigma, status);
    for (int k = 0; k < 2; k++) { /* not reduced, normalised */
        image(f, NULL, FLOAT_IMG, 1, (long)s.n, 0, 0, status);
        row(f, 0, s.flux, status);
    }
}

/* ---- tables and arrays of other instruments ---- */

static void eso_table(fitsfile *f, const char *instrument, double scale, const char *wave_unit, int errors, int *status)
{
    static const char *const name[] = {"WAVE", "FLUX", "ERR", "QUAL"}, *const type[] = {"D", "D", "D", "J"};
    const char *const unit[] = {wave_unit, "erg.cm**(-2).s**(-1).angstrom**(-1)", "erg.cm**(-2).s**(-1).angstrom**(-1)",
                                ""};
    draw_air(1600, 6400, 0.12, 0);
    spoil(errors, errors ? 1e3 : 0, 1 / SN);
    for (size_t i = 0; i < s.n; i++) {
        s.wave[i] /= scale;
        s.flux[i] *= errors ? 1e-17 : 1;
        s.sigma[i] *= errors ? 1e-17 : NAN;
    }
    image(f, NULL, BYTE_IMG, 0, 0, 0, 0, status);
    key_text(f, "INSTRUME", instrument, status);
    key_text(f, "OBJECT", "HD 1", status);
    key_text(f, "SPECSYS", "BARYCENT", status);
    table(f, "SPECTRUM", 1, errors ? 4 : 3, name, type, unit, (double *[]){s.wave, s.flux, s.sigma, NULL}, status);
    key_text(f, "TUCD1", "em.wl;obs.atmos", status);
    key_text(f, "TUCD2", "phot.flux.density;em.wl", status);
}

static void eso(fitsfile *f, int *status)
{
    eso_table(f, "XSHOOTER", 10, "nm", 1, status);
}

/* A list of lines by strength: names of columns are those of a spectrum. */
static void lines(fitsfile *f, int *status)
{
    static const char *const name[] = {"WAVELENGTH", "FLUX"}, *const type[] = {"D", "D"};
    draw(60, 6400, 1, 0, 0);
    for (size_t i = 0; i < s.n; i++)
        s.wave[i] = 6400 + 37 * (double)i - 200 * floor((double)i * 37 / 200);
    image(f, NULL, BYTE_IMG, 0, 0, 0, 0, status);
    table(f, "LINES", 0, 2, name, type, NULL, (double *[]){s.wave, s.flux}, status);
}

static void eso_noerr(fitsfile *f, int *status)
{
    eso_table(f, "HARPS", 1, "angstrom", 0, status);
}

static void linear(fitsfile *f, int *status)
{
    draw_air(1600, 6400, 0.12, 0);
    spoil(0, 0, 1 / SN); /* no errors: 0 is no data */
    image(f, NULL, DOUBLE_IMG, 1, (long)s.n, 0, 0, status);
    key_number(f, "CRVAL1", (6400 + 9 * 0.12) * 1e-4, status);
    key_number(f, "CD1_1", 0.12e-4, status);
    key_number(f, "CRPIX1", 10, status);
    key_text(f, "CTYPE1", "AWAV", status);
    key_text(f, "CUNIT1", "um", status);
    key_text(f, "SPECSYS", "TOPOCENT", status);
    key_number(f, "HIERARCH ESO DRS BERV", -12.5, status);
    row(f, 0, s.flux, status);
}

/* SI units, which the standard takes where no unit is said. */
static void metre(fitsfile *f, int *status)
{
    draw_air(1600, 6400, 0.12, 0);
    image(f, NULL, FLOAT_IMG, 1, (long)s.n, 0, 0, status);
    key_number(f, "CRVAL1", 6400e-10, status);
    key_number(f, "CDELT1", 0.12e-10, status);
    key_number(f, "CRPIX1", 1, status);
    key_text(f, "CTYPE1", "AWAV", status);
    key_text(f, "CUNIT1", "m", status);
    row(f, 0, s.flux, status);
}

static void wave_log(fitsfile *f, int *status)
{
    draw(700, 6400, 2e-5, 1, 0);
    spoil(0, 1e3, -1);
    image(f, "FLUX", FLOAT_IMG, 1, (long)s.n, 0, 0, status);
    key_number(f, "CRVAL1", 6400, status);
    key_number(f, "CDELT1", 6400 * 2e-5 * M_LN10, status);
    key_number(f, "CRPIX1", 1, status);
    key_text(f, "CTYPE1", "WAVE-LOG", status);
    key_text(f, "CUNIT1", "Angstrom", status);
    row(f, 0, s.flux, status);
    image(f, "ERR", FLOAT_IMG, 1, (long)s.n, 0, 0, status);
    row(f, 0, s.sigma, status);
}

static void iraf_log(fitsfile *f, int *status)
{
    draw(700, 6400, 2e-5, 1, 0);
    image(f, NULL, FLOAT_IMG, 1, (long)s.n, 0, 0, status);
    log_scale(f, "counts", status);
    row(f, 0, s.flux, status);
}

/* As MILES and others have it: natural logarithms, which nothing but their size tells. */
static void ln_scale(fitsfile *f, int *status)
{
    draw(700, 6400, 2e-5, 1, 0);
    image(f, NULL, FLOAT_IMG, 1, (long)s.n, 0, 0, status);
    key_number(f, "CRVAL1", log(6400), status);
    key_number(f, "CDELT1", 2e-5 * M_LN10, status);
    row(f, 0, s.flux, status);
}

static void pixels(fitsfile *f, int *status)
{
    draw(700, 6400, 2e-5, 1, 0);
    image(f, NULL, FLOAT_IMG, 1, (long)s.n, 0, 0, status);
    key_number(f, "CRVAL1", 1, status);
    key_number(f, "CDELT1", 1, status);
    row(f, 0, s.flux, status);
}

static void bands(fitsfile *f, int *status)
{
    draw_air(1600, 6400, 0.12, 0);
    spoil(0, 1e3, 0);
    image(f, NULL, FLOAT_IMG, 3, (long)s.n, 1, 4, status);
    key_number(f, "CRVAL1", 6400, status);
    key_number(f, "CDELT1", 0.12, status);
    key_number(f, "CD1_1", 0.12, status);
    key_text(f, "CTYPE1", "LINEAR", status);
    key_text(f, "BANDID1", "spectrum - background median, weights variance, clean yes", status);
    key_text(f, "BANDID2", "raw - background median, weights none, clean no", status);
    key_text(f, "BANDID3", "background - background median", status);
    key_text(f, "BANDID4", "sigma - background median, weights variance, clean yes", status);
    for (int k = 0; k < 4; k++)
        row(f, k, k == 3 ? s.sigma : s.flux, status);
}

static void muse(fitsfile *f, int *status)
{
    draw_air(500, 6400, 0.4, 0);
    spoil(0, NAN, 1 / SN);
    image(f, NULL, BYTE_IMG, 0, 0, 0, 0, status);
    key_text(f, "INSTRUME", "MUSE", status);
    for (int k = 0; k < 2; k++) {
        for (size_t i = 0; i < s.n && k; i++)
            s.sigma[i] *= s.sigma[i];
        image(f, k ? "STAT" : "DATA", FLOAT_IMG, 1, (long)s.n, 0, 0, status);
        key_number(f, "CRVAL1", 6400, status);
        key_number(f, "CD1_1", 0.4, status);
        key_text(f, "CTYPE1", "AWAV", status);
        key_text(f, "CUNIT1", "Angstrom", status);
        row(f, 0, k ? s.sigma : s.flux, status);
    }
}

/* ---- echelle ---- */

static spectrum order[NORDER];

/* Orders of 50 Angstrom that overlap, the red one first, with a blaze. */
static void draw_orders(int air, double spoilt, double (*wave)(int k, double pixel))
{
    for (int k = 0; k < NORDER; k++) {
        s.n = ORDER;
        for (int i = 0; i < ORDER; i++) {
            double w = wave(k, i);
            s.wave[i] = air ? spx_air_to_vacuum(w) : w;
        }
        observe(s.n, s.wave, (unsigned)k, s.flux, s.sigma);
        for (int i = 0; i < ORDER; i++) {
            double blaze = 1 - 0.8 * pow((double)i / (ORDER - 1) * 2 - 1, 2);
            s.wave[i] = wave(k, i);
            s.flux[i] *= 100 * blaze;
            s.sigma[i] *= 100 * blaze;
            s.mask[i] = 0;
        }
        spoil(16, spoilt, 1);
        order[k] = s;
    }
}

static double nearly_linear(int k, double pixel)
{
    return 6545 - 36 * k + 0.1 * pixel + 2e-6 * pixel * pixel;
}

static void write_orders(fitsfile *f, const char *const *name, const char *unit, int mask, int *status)
{
    draw_orders(0, mask ? 1e5 : NAN, nearly_linear);
    for (int c = 0; c < 3 + mask; c++) {
        image(f, name[c], c == 3 ? SHORT_IMG : DOUBLE_IMG, 2, ORDER, NORDER, 0, status);
        key_text(f, "BUNIT", c == 2 ? unit : "", status);
        for (int k = 0; k < NORDER; k++) {
            s = order[k];
            if (c == 3)
                row_mask(f, k, status);
            else
                row(f, k, c == 0 ? s.flux : c == 1 ? s.sigma : s.wave, status);
        }
    }
}

static void orders(fitsfile *f, int *status)
{
    static const char *const name[] = {"SPEC", "SIG", "WAVE"};
    image(f, NULL, BYTE_IMG, 0, 0, 0, 0, status);
    key_text(f, "INSTRUME", "CARMENES", status);
    write_orders(f, name, "Angstrom", 0, status);
}

/* Three spectra of nobody knows whom, on the same wavelengths. */
static void rows(fitsfile *f, int *status)
{
    static const char *const name[] = {"FLUX", "ERR", "WAVE"};
    for (int c = 0; c < 3; c++) {
        image(f, name[c], DOUBLE_IMG, c < 2 ? 2 : 1, 700, c < 2 ? 3 : 0, 0, status);
        for (int k = 0; k < (c < 2 ? 3 : 1); k++) {
            draw(700, 6400, 2e-5, 1, (unsigned)k);
            row(f, k, c == 0 ? s.flux : c == 1 ? s.sigma : s.wave, status);
        }
    }
}

/* Six orders; the first two, in which nothing was traced, and the fifth have no wavelengths; nobody says the unit. */
static void blank(fitsfile *f, int *status)
{
    static const char *const name[] = {"SPEC", "WAVE", "SIG"};
    image(f, NULL, BYTE_IMG, 0, 0, 0, 0, status);
    for (int c = 0; c < 3; c++) {
        image(f, name[c], DOUBLE_IMG, 2, ORDER, 6, 0, status);
        for (int k = 0; k < 6; k++) {
            draw(ORDER, 6550 - 26 * (double)k, 0.1, 0, (unsigned)k);
            for (size_t i = 0; i < ORDER && (k < 2 || k == 4); i++) {
                s.wave[i] = k == 4 ? NAN : 0;
                s.flux[i] = s.sigma[i] = 0;
            }
            row(f, k, c == 0 ? s.flux : c == 1 ? s.wave : s.sigma, status);
        }
    }
}

/* Many orders of 60 Angstrom, the red ones first, 53 apart. */
static void echelle(fitsfile *f, int *status)
{
    enum { PIXELS = 300 };
    static const char *const name[] = {"SPEC", "WAVE", "SIG"};
    const int n = seed > 0 && seed < 100 ? (int)seed : 30;
    image(f, NULL, BYTE_IMG, 0, 0, 0, 0, status);
    for (int c = 0; c < 3; c++) {
        image(f, name[c], DOUBLE_IMG, 2, PIXELS, n, 0, status);
        if (c == 1)
            key_text(f, "BUNIT", "Angstrom", status);
        for (int k = 0; k < n; k++) {
            draw(PIXELS, 6537 - 53 * k % 1537, 0.2, 0, (unsigned)k);
            row(f, k, c == 0 ? s.flux : c == 1 ? s.wave : s.sigma, status);
        }
    }
}

static void espresso(fitsfile *f, int *status)
{
    static const char *const name[] = {"SCIDATA", "ERRDATA", "WAVEDATA_VAC_BARY", "QUALDATA"};
    image(f, NULL, BYTE_IMG, 0, 0, 0, 0, status);
    key_text(f, "INSTRUME", "ESPRESSO", status);
    write_orders(f, name, "Angstrom", 1, status);
}

/* Order k of multispec, pixel from 0: scales of all kinds. */
static double multispec_wave(int k, double pixel)
{
    const double u = (2 * (pixel + 1) - (ORDER + 1)) / (ORDER - 1), from = 6545 - 36 * k;
    if (k == 0)
        return from + 0.1 * pixel;
    if (k == 1)
        return pow(10, log10(from) + 7e-6 * pixel);
    if (k == 2)
        return (from + 25 + 25 * u + 0.3 * (2 * u * u - 1) + 0.05 * (4 * u * u * u - 3 * u)) / (1 + 1e-5);
    if (k == 3)
        return from + 25 + 25 * u + 0.3 * (1.5 * u * u - 0.5) + 0.05 * (2.5 * u * u * u - 1.5 * u);
    return from + 0.1 * pixel;
}

static void multispec(fitsfile *f, int *status)
{
    char text[2048], card[128], key[32];
    draw_orders(1, 1e5, multispec_wave);
    image(f, NULL, FLOAT_IMG, 3, ORDER, NORDER, 2, status);
    key_text(f, "CTYPE1", "MULTISPE", status);
    key_text(f, "CTYPE2", "MULTISPE", status);
    key_text(f, "WAT0_001", "system=multispec", status);
    key_text(f, "BANDID1", "spectrum - background median, weights variance, clean yes", status);
    key_text(f, "BANDID2", "sigma - background median, weights variance, clean yes", status);
    /* the last is a linear spline of two pieces */
    const double from = 6545 - 36 * 4, half = 0.05 * (ORDER - 1);
    snprintf(text, sizeof text,
             "wtype=multispec spec1 = \"1 99 0 %.10g 0.1 %d 0. 1. 9.\" spec2 = \"2 98 1 %.14g 7.0E-6 %d 0. 1. 9.\" "
             "spec3 = \"3 97 2 %.10g 0.1 %d 1.E-5 1. 9. 1. 0. 1 4 1. %d. %.10g 25. 0.3 0.05\" "
             "spec4 = \"4 96 2 %.10g 0.1 %d 0. 1. 9. 1. 0. 2 4 1. %d. %.10g 25. 0.3 0.05\" "
             "spec5 = \"5 95 2 %.10g 0.1 %d 0. 1. 9. 1. 0. 4 2 1. %d. %.10g %.10g %.10g\"",
             multispec_wave(0, 0), ORDER, log10(6545 - 36), ORDER, multispec_wave(2, 0), ORDER, ORDER,
             6545 - 36 * 2 + 25.0, multispec_wave(3, 0), ORDER, ORDER, 6545 - 36 * 3 + 25.0, from, ORDER, ORDER, from,
             from + half, from + 2 * half);
    for (size_t i = 0, k = 1; i < strlen(text); i += 68, k++) {
        snprintf(key, sizeof key, "WAT2_%03zu", k);
        snprintf(card, sizeof card, "%-8s= '%-.68s'", key, text + i);
        fits_write_record(f, card, status);
    }
    for (int k = 0; k < NORDER; k++) {
        s = order[k];
        for (int i = 40; i < 45; i++)
            s.sigma[i] = 0;
        row(f, k, s.flux, status);
        row(f, NORDER + k, s.sigma, status);
    }
}

static void e2ds(fitsfile *f, int *status)
{
    char key[64];
    draw_orders(1, 1e5, nearly_linear);
    image(f, NULL, DOUBLE_IMG, 2, ORDER, NORDER, 0, status);
    key_text(f, "INSTRUME", "HARPS", status);
    key_whole(f, "HIERARCH ESO DRS CAL TH DEG LL", 3, status);
    for (int k = 0; k < NORDER; k++) {
        const double c[4] = {nearly_linear(k, 0), 0.1, 2e-6, 0};
        for (int j = 0; j < 4; j++) {
            snprintf(key, sizeof key, "HIERARCH ESO DRS CAL TH COEFF LL%d", 4 * k + j);
            key_number(f, key, c[j], status);
        }
        s = order[k];
        for (int i = 40; i < 45; i++)
            s.flux[i] = 0;
        row(f, k, s.flux, status);
    }
}

/* ---- */

static int write_text(const char *name, int csv)
{
    FILE *f = fopen(name, "w");
    if (!f)
        return 1;
    draw_air(1600, 6400, 0.12, 0);
    spoil(0, csv ? NAN : 0, 1 / SN);
    fputs(csv ? "wavelength,flux,error\n" : "# a star\n", f);
    for (size_t i = 0; i < s.n; i++) {
        if (csv)
            fprintf(f, "%.6f,%.8g,%.4g\n", s.wave[i], s.flux[i], s.sigma[i]);
        else
            fprintf(f, "  %.6f  %.8g\n", s.wave[i], s.flux[i]);
    }
    return fclose(f) != 0;
}

static const struct {
    const char *name;
    void (*write)(fitsfile *f, int *status);
} kinds[] = {{"spspec", spspec},   {"spec", spec},           {"lamost", lamost},     {"lamost-table", lamost_table},
             {"mrs", mrs},         {"mrs-table", mrs_table}, {"apstar", apstar},     {"aspcapstar", aspcapstar},
             {"apvisit", apvisit}, {"galah", galah},         {"eso", eso},           {"eso-noerr", eso_noerr},
             {"linear", linear},   {"metre", metre},         {"wave-log", wave_log}, {"iraf-log", iraf_log},
             {"log", ln_scale},    {"pixels", pixels},       {"lines", lines},       {"bands", bands},
             {"muse", muse},       {"orders", orders},       {"espresso", espresso}, {"multispec", multispec},
             {"rows", rows},       {"blank", blank},         {"echelle", echelle},   {"e2ds", e2ds}};

int main(int argc, char **argv)
{
    int status = 0;
    fitsfile *f = NULL;
    if (argc < 3)
        return 1;
    seed = argc > 3 ? strtoull(argv[3], NULL, 10) : 0;
    if (strcmp(argv[1], "text") == 0 || strcmp(argv[1], "csv") == 0)
        return write_text(argv[2], argv[1][0] == 'c');
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++)
        if (strcmp(argv[1], kinds[k].name) == 0) {
            (void)remove(argv[2]);
            fits_create_diskfile(&f, argv[2], &status);
            kinds[k].write(f, &status);
            fits_close_file(f, &status);
            if (status)
                fits_report_error(stdout, status);
            return status != 0;
        }
    puts("spec_make: no such kind");
    return 1;
}
