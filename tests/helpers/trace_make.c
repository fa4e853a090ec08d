/* trace_make: files with traces that are functions of the row, for tests, and whether /psf has these traces.
 *     trace_make flat|arc|both FILE [NAME=VALUE...]   trace sets as SDSS has them in spFlat and spArc, or all in one
 *     trace_make apogee|apwave FILE [NAME=VALUE...]   traces as APOGEE's apPSF has them, and wavelengths of apWave
 *     trace_make map FILE [NAME=VALUE...]             a detectorMap of PFS, of splines
 *     trace_make desi FILE [NAME=VALUE...]            traces of DESI without spots, over 6000 to 6590 Angstrom: columns
 * 10 + 7.3 f + 2 P_1, rows 599.5 + 590 P_1 + 59 P_2 trace_make check sets|apogee|map FILE TOLERANCE [NAME=VALUE...] of
 * an HDF5 product: rows, columns and widths at 300 rows of each fibre differ by no more than TOLERANCE pixels Names:
 * func=0 (legendre, 1: chebyshev, 2: poly), jump=0 (XJUMPVAL, pixels), names=1 (0: no EXTNAME), apart=0 (Angstrom that
 * the ranges of neighbouring fibres are apart), layers=0 (1: a LayeredDetectorMap; 2: a
 * MultipleDistortionsDetectorMap, with other distortions; 3: a DoubleDetectorMap; 4: a DistortedDetectorMap),
 * break=0 (1: unknown FUNC, 2: NaN, 3: wavelengths that turn, 4: fewer traces in WSET, 5: width below 0, 6: knots that
 * fall, 7: a wiggling column, 8: distortions, 9: ORDER of one, 10: NaN in an offset; of desi 1: no range, 2: NaN, 4:
 * fewer traces in YTRACE, 5: no width above 0), width=0 (of desi: XSIGMA 1.05 pixel and WSIGMA 0.55 Angstrom, the
 * latter of fibre 5 below 0; 1: series XSIG and YSIG, pixels; 2: none). Exit status 0, or 1 with a message. */
#include <fitsio.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "products/psf_h5.h"
#include "psf/psf.h"
#include "psf/psf_math.h"

enum { NFIBRE = 12, NROW = 1200, NTERM = 4, NKNOT = 25 };

typedef struct {
    double func, jump, names, apart, layers, broken, width;
} wanted;

enum { COLUMN, WAVE, WIDTH, ALONG };

/* Powers of u, -1 at the first row and 1 at the last. */
static void powers(const wanted *w, int what, int f, double c[NTERM])
{
    const double of[4][NTERM] = {{10 + 7.3 * f, 1.2, 0.5 + 0.03 * f, 0.2},
                                 {3.7993 + 1e-5 * f + log10(1 + w->apart * f / 6300), 0.0165, 0.0006, -0.0002},
                                 {1.25 + 0.004 * f, 0.05, 0, 0},
                                 {1.15, 0, 0.1, 0}};
    memcpy(c, of[what], NTERM * sizeof *c);
    if (w->broken == 3 && what == WAVE)
        c[2] = 0.03;
    if (w->broken == 5 && what == WIDTH && f == 3)
        c[1] = 1.4;
}

static double power_sum(const double c[NTERM], double u)
{
    return c[0] + u * (c[1] + u * (c[2] + u * c[3]));
}

/* Of a detectorMap: nm, and columns. */
static double of_map(const wanted *w, int what, int f, double row)
{
    const double u = 2 * row / (NROW - 1) - 1;
    const double wave[NTERM] = {630 + 0.01 * f, 24, 0.8, -0.3};
    double c[NTERM];
    powers(w, COLUMN, f, c);
    if (what == WAVE)
        return power_sum(wave, u);
    return power_sum(c, u) + (w->broken == 7 ? 0.3 * sin(row / 20) : 0);
}

static const double spatial = 0.25, spectral = -0.4;

static int read_words(int n, char **word, wanted *w)
{
    const struct {
        const char *name;
        double *to;
    } known[] = {{"func", &w->func},     {"jump", &w->jump},    {"names", &w->names}, {"apart", &w->apart},
                 {"layers", &w->layers}, {"break", &w->broken}, {"width", &w->width}};
    for (int i = 0; i < n; i++) {
        size_t k = 0;
        const size_t m = strcspn(word[i], "=");
        while (k < sizeof known / sizeof *known &&
               (strlen(known[k].name) != m || strncmp(known[k].name, word[i], m) != 0))
            k++;
        if (k == sizeof known / sizeof *known || word[i][m] != '=')
            return 0;
        *known[k].to = atof(word[i] + m + 1);
    }
    return 1;
}

static void image(fitsfile *f, const wanted *w, const char *name, int ndim, long *dims, int *status)
{
    static float zero[3 * NFIBRE];
    fits_create_img(f, FLOAT_IMG, ndim, dims, status);
    if (w->names != 0)
        fits_write_key(f, TSTRING, "EXTNAME", (void *)(size_t)name, NULL, status);
    if (ndim > 0)
        fits_write_img(f, TFLOAT, 1, dims[0] < NFIBRE ? dims[0] : NFIBRE, zero, status);
}

static void set(fitsfile *f, const wanted *w, int what, int *status)
{
    static const char *const name[] = {"TSET", "WSET", "WIDTHSET", "DISPSET"};
    const int n = NFIBRE - (w->broken == 4 && what == WAVE);
    const int jump = w->jump != 0 && (what == WAVE || what == COLUMN);
    double c[NFIBRE * NTERM], first = 0, last = NROW - 1, low = NROW / 2 - 1.5, high = NROW / 2 + 0.5, by = w->jump;
    for (int i = 0; i < n; i++) {
        double p[NTERM], *to = c + i * NTERM;
        powers(w, what, i, p);
        if (w->func == 0) {
            to[0] = p[0] + p[2] / 3;
            to[1] = p[1] + 3 * p[3] / 5;
            to[2] = 2 * p[2] / 3;
            to[3] = 2 * p[3] / 5;
        } else if (w->func == 1) {
            to[0] = p[0] + p[2] / 2;
            to[1] = p[1] + 3 * p[3] / 4;
            to[2] = p[2] / 2;
            to[3] = p[3] / 4;
        } else {
            memcpy(to, p, sizeof p);
        }
    }
    if (w->broken == 2 && what == ALONG)
        c[5] = NAN;
    char form[20], dim[20],
        *func = w->broken == 1 ? "sine"
                : w->func == 0 ? "legendre"
                : w->func == 1 ? "chebyshev"
                               : "poly";
    char *type[] = {"FUNC", "XMIN", "XMAX", "COEFF", "XJUMPLO", "XJUMPHI", "XJUMPVAL"};
    snprintf(form, sizeof form, "%dD", n * NTERM);
    snprintf(dim, sizeof dim, "(%d,%d)", NTERM, n);
    char *forms[] = {"10A", "1D", "1D", form, "1D", "1D", "1D"};
    fits_create_tbl(f, BINARY_TBL, 1, jump ? 7 : 4, type, forms, NULL, w->names != 0 ? name[what] : NULL, status);
    fits_write_key(f, TSTRING, "TDIM4", dim, NULL, status);
    fits_set_hdustruc(f, status);
    fits_write_col(f, TSTRING, 1, 1, 1, 1, &func, status);
    fits_write_col(f, TDOUBLE, 2, 1, 1, 1, &first, status);
    fits_write_col(f, TDOUBLE, 3, 1, 1, 1, &last, status);
    fits_write_col(f, TDOUBLE, 4, 1, 1, n * NTERM, c, status);
    if (jump) {
        fits_write_col(f, TDOUBLE, 5, 1, 1, 1, &low, status);
        fits_write_col(f, TDOUBLE, 6, 1, 1, 1, &high, status);
        fits_write_col(f, TDOUBLE, 7, 1, 1, 1, &by, status);
    }
}

static void write_sets(fitsfile *f, const wanted *w, const char *which, int *status)
{
    long dims[2] = {NROW, NFIBRE};
    image(f, w, "FFLAT", 2, dims, status);
    fits_write_key(f, TSTRING, "CAMERAS", "b1      ", NULL, status);
    if (strcmp(which, "arc") == 0) {
        image(f, w, "LAMBDA", 2, dims, status);
        set(f, w, WAVE, status);
        image(f, w, "FIBERMASK", 1, dims + 1, status);
        set(f, w, ALONG, status);
        return;
    }
    set(f, w, COLUMN, status);
    image(f, w, "FIBERMASK", 1, dims + 1, status);
    set(f, w, WIDTH, status);
    if (strcmp(which, "both") == 0) {
        set(f, w, WAVE, status);
        set(f, w, ALONG, status);
    }
}

/* Coefficients as image, its function in the header: apPSF. */
static void image_set(fitsfile *f, const wanted *w, int what, int *status)
{
    double c[NFIBRE * NTERM], first = 0, last = NROW - 1;
    long dims[2] = {NTERM, NFIBRE};
    int type = 3;
    for (int i = 0; i < NFIBRE; i++)
        powers(w, what, i, c + i * NTERM);
    fits_create_img(f, DOUBLE_IMG, 2, dims, status);
    fits_write_key(f, TSTRING, "FUNC", w->broken == 1 ? "sine" : "poly", NULL, status);
    fits_write_key(f, TDOUBLE, "XMIN", &first, NULL, status);
    fits_write_key(f, TDOUBLE, "XMAX", &last, NULL, status);
    if (what == WIDTH)
        fits_write_key(f, TINT, "PROFTYPE", &type, NULL, status);
    fits_write_img(f, TDOUBLE, 1, NFIBRE * NTERM, c, status);
}

static void write_apogee(fitsfile *f, const wanted *w, const char *which, int *status)
{
    static double wave[NFIBRE][NROW];
    long square[2] = {NROW, NROW}, waves[2] = {NROW, NFIBRE - (w->broken == 4)}, terms[2] = {NTERM, waves[1]};
    char *name[] = {"COEF"}, *form[] = {"4D"};
    fits_create_img(f, BYTE_IMG, 0, NULL, status);
    if (strcmp(which, "apogee") == 0) {
        fits_create_tbl(f, BINARY_TBL, NFIBRE, 1, name, form, NULL, NULL, status);
        fits_create_img(f, FLOAT_IMG, 2, square, status);
        image_set(f, w, COLUMN, status);
        image_set(f, w, WIDTH, status);
        return;
    }
    for (int i = 0; i < NFIBRE; i++)
        for (int r = 0; r < NROW; r++) {
            double c[NTERM];
            powers(w, WAVE, i, c);
            wave[i][r] = pow(10, power_sum(c, 2.0 * r / (NROW - 1) - 1));
        }
    fits_create_img(f, DOUBLE_IMG, 2, terms, status);
    fits_create_img(f, DOUBLE_IMG, 2, waves, status);
    fits_write_img(f, TDOUBLE, 1, waves[0] * waves[1], wave, status);
}

static void spline(fitsfile *f, const wanted *w, int what, int *status)
{
    char *type[] = {"index", "knot", "value"}, *form[] = {"1K", "1D", "1D"};
    fits_create_tbl(f, BINARY_TBL, 0, 3, type, form, NULL, what == WAVE ? "WAVELENGTH" : "CENTER", status);
    for (long i = 0; i < (long)NFIBRE * NKNOT; i++) {
        long fibre = i / NKNOT;
        double row = (NROW + 40) * (double)(i % NKNOT) / (NKNOT - 1) - 20;
        double v = of_map(w, what, (int)fibre, row);
        if (w->broken == 6 && i == 40)
            row = 3;
        fits_write_col(f, TLONG, 1, i + 1, 1, 1, &fibre, status);
        fits_write_col(f, TDOUBLE, 2, i + 1, 1, 1, &row, status);
        fits_write_col(f, TDOUBLE, 3, i + 1, 1, 1, &v, status);
    }
}

/* ---- layers over the splines of a detectorMap ---- */

/* A cubic, and of two CCDs a plane and the right one's map: coefficients of 1, x, y, x^2 ..., xx, yx, xy, yy, x, y. */
static const double cubic[2][10] = {{0.1, 0.2, -0.15, 0.05, 0.02, -0.04, 0.01, 0, 0.03, -0.02},
                                    {-0.3, 0.1, 0.2, 0, -0.05, 0.06, 0, 0.02, 0, 0.04}};
static const double mosaic[6 + 2 * 3] = {0.02, -0.01, 0.03, 0.04, 0.05, -0.06, 0.1, -0.02, 0.03, -0.1, 0.02, 0.01};
static const double right[6] = {0.05, 0.02, -0.03, 0.04, 0.3, -0.2};

static double layer_offset(int what, int f)
{
    return what == 0 ? 0.3 - 0.06 * f : 0.2 + 0.01 * f;
}

static void write_layers(fitsfile *f, const wanted *w, int *status)
{
    char *type[] = {"box", "spatial", "spectral", "dividedDetector", "rightCcd"};
    char *form[] = {"4I", "1PD", "1PD", "1L", "1PD"}, *one[] = {"name"}, *text[] = {"1PA"};
    char *xy[] = {"xCoefficients", "yCoefficients"}, *doubles[] = {"1D", "1D"};
    const char *name[] = {"PolynomialDistortion", "MosaicPolynomialDistortion"};
    static const char *const key[] = {"MINX", "MINY", "MAXX", "MAXY"};
    short box[4] = {0, 0, 99, NROW - 1};
    char divided = 1;
    int order[2] = {w->broken == 9 ? 2 : 3, 1};
    long n = 6 + 2 * 3;
    fits_create_tbl(f, BINARY_TBL, 0, 5, type, form, NULL, "LAYERS", status);
    fits_write_col(f, TSHORT, 1, 1, 1, 4, box, status);
    for (int k = 0; k < 2; k++) {
        double v[NFIBRE];
        for (int i = 0; i < NFIBRE; i++)
            v[i] = w->broken == 10 && i == 7 ? NAN : layer_offset(k, i);
        fits_write_col(f, TDOUBLE, 2 + k, 1, 1, NFIBRE, v, status);
    }
    fits_write_col(f, TLOGICAL, 4, 1, 1, 1, &divided, status);
    fits_write_col(f, TDOUBLE, 5, 1, 1, 6, (void *)(size_t)right, status);
    fits_create_tbl(f, BINARY_TBL, 0, 1, one, text, NULL, "DISTORTIONS", status);
    for (int k = 0; k < 2; k++)
        fits_write_col(f, TSTRING, 1, k + 1, 1, 1, (void *)(size_t)&name[k], status);
    for (int k = 0; k < 2; k++) {
        if (k == 0) {
            fits_create_tbl(f, BINARY_TBL, 0, 2, xy, doubles, NULL, "PolynomialDistortion_0", status);
            fits_write_col(f, TDOUBLE, 1, 1, 1, 10, (void *)(size_t)cubic[0], status);
            fits_write_col(f, TDOUBLE, 2, 1, 1, 10, (void *)(size_t)cubic[1], status);
        } else {
            fits_create_img(f, DOUBLE_IMG, 1, &n, status);
            fits_write_key(f, TSTRING, "EXTNAME", "MosaicPolynomialDistortion_1", NULL, status);
            fits_write_img(f, TDOUBLE, 1, n, (void *)(size_t)mosaic, status);
        }
        fits_write_key(f, TINT, "ORDER", &order[k], NULL, status);
        for (int i = 0; i < 4; i++) { /* pixels, and their edges */
            double edge = box[i] + (k == 0 ? 0 : i < 2 ? -0.5 : 0.5);
            int pixel = box[i];
            if (k == 0)
                fits_write_key(f, TINT, key[i], &pixel, NULL, status);
            else
                fits_write_key(f, TDOUBLE, key[i], &edge, NULL, status);
        }
    }
}

/* Of two CCDs: columns and rows of the left one by 1, x, y, then of the right one; offsets, scale and angle of all; and
 * of the left and right one. */
static const double halves[4][3] = {{0.1, 0.2, -0.1}, {0.05, -0.1, 0.15}, {-0.2, 0.1, 0.05}, {0.1, 0.05, -0.2}};
static const double turn[4] = {0.2, -0.1, 0.3, 0.04}, turns[8] = {0.1, 0.2, -0.2, 0.03, -0.1, 0.05, 0.1, -0.02};

static void write_chain(fitsfile *f, int *status)
{
    char *one[] = {"name"}, *text[] = {"1PA"}, *four[] = {"xLeft", "yLeft", "xRight", "yRight"};
    char *doubles[] = {"1D", "1D", "1D", "1D"};
    const char *name[] = {"DoubleDistortion", "RotScaleDistortion", "DoubleRotScaleDistortion"};
    static const char *const key[] = {"MINX", "MINY", "MAXX", "MAXY"};
    int box[4] = {0, 0, 99, NROW - 1}, order = 1;
    fits_create_tbl(f, BINARY_TBL, 0, 1, one, text, NULL, "DISTORTIONS", status);
    for (int k = 0; k < 3; k++)
        fits_write_col(f, TSTRING, 1, k + 1, 1, 1, (void *)(size_t)&name[k], status);
    for (int k = 0; k < 3; k++) {
        char hdu[64];
        snprintf(hdu, sizeof hdu, "%s_%d", name[k], k);
        long n = k == 1 ? 4 : 8;
        if (k == 0) {
            fits_create_tbl(f, BINARY_TBL, 0, 4, four, doubles, NULL, hdu, status);
            for (int c = 0; c < 4; c++)
                fits_write_col(f, TDOUBLE, c + 1, 1, 1, 3, (void *)(size_t)halves[c], status);
            fits_write_key(f, TINT, "ORDER", &order, NULL, status);
        } else {
            fits_create_img(f, DOUBLE_IMG, 1, &n, status);
            fits_write_key(f, TSTRING, "EXTNAME", hdu, NULL, status);
            fits_write_img(f, TDOUBLE, 1, n, (void *)(size_t)(k == 1 ? turn : turns), status);
        }
        for (int i = 0; i < 4; i++)
            fits_write_key(f, TINT, key[i], &box[i], NULL, status);
    }
}

/* Older classes, of one distortion in a table COEFFICIENTS; of pixels where it is the right CCD's. */
static const double pixels[6] = {0.001, -0.0004, 2e-5, 3e-5, 0.15, -0.2};

static void write_older(fitsfile *f, const wanted *w, int *status)
{
    char *four[] = {"xLeft", "yLeft", "xRight", "yRight"}, *xy[] = {"x", "y"}, *one[] = {"coefficients"};
    char *doubles[] = {"1D", "1D", "1D", "1D"};
    const int two = w->layers == 3;
    fits_create_tbl(f, BINARY_TBL, 0, two ? 4 : 2, two ? four : xy, doubles, NULL, "COEFFICIENTS", status);
    for (int c = 0; c < (two ? 4 : 2); c++)
        fits_write_col(f, TDOUBLE, c + 1, 1, 1, two ? 3 : 10, (void *)(size_t)(two ? halves[c] : cubic[c]), status);
    if (two)
        return;
    fits_create_tbl(f, BINARY_TBL, 0, 1, one, doubles, NULL, "RIGHTCCD", status);
    fits_write_col(f, TDOUBLE, 1, 1, 1, w->broken == 9 ? 5 : 6, (void *)(size_t)pixels, status);
}

static void add_turn(const double v[4], double middle, double p[2])
{
    const double most = fmax(middle, 0.5 * (NROW - 1)), x = (p[0] - middle) / most,
                 y = (p[1] - 0.5 * (NROW - 1)) / most;
    p[0] += v[0] + v[2] * x - v[3] * y;
    p[1] += v[1] + v[3] * x + v[2] * y;
}

static void add_halves(double p[2])
{
    const int half = p[0] > 49.5;
    const double x = (p[0] - (half ? 74.5 : 24.5)) / 25, y = (p[1] - 0.5 * (NROW - 1)) / (0.5 * NROW);
    for (int a = 0; a < 2; a++)
        p[a] += halves[2 * half + a][0] + halves[2 * half + a][1] * x + halves[2 * half + a][2] * y;
}

/* Sum of the cubic at a place. */
static void add_cubic(const double at[2], double p[2])
{
    const double u = (at[0] - 49.5) / 50, v = (at[1] - 0.5 * (NROW - 1)) / (0.5 * NROW);
    const double term[10] = {1, u, v, u * u, u * v, v * v, u * u * u, u * u * v, u * v * v, v * v * v};
    for (int a = 0; a < 2; a++)
        for (int i = 0; i < 10; i++)
            p[a] += cubic[a][i] * term[i];
}

/* A cubic, and the right CCD's map of pixels. */
static void add_distorted(double p[2])
{
    const double at[2] = {p[0], p[1]};
    add_cubic(at, p);
    for (int a = 0; a < 2 && at[0] > 49.5; a++)
        p[a] += pixels[a] * at[0] + pixels[2 + a] * at[1] + pixels[4 + a];
}

/* Where three distortions, one after another, move a place. */
static void add_chain(double p[2])
{
    add_halves(p);
    add_turn(turn, 49.5, p);
    const int half = p[0] > 49.5;
    add_turn(turns + 4 * (size_t)half, half ? 74.5 : 24.5, p);
}

static double base_wave(const wanted *w, int f, double row)
{
    return of_map(w, WAVE, f, row - (float)spectral);
}

static double base_column(const wanted *w, int f, double row)
{
    return of_map(w, COLUMN, f, row - (float)spectral) + (float)spatial;
}

/* Wavelength, column and row of the light that the splines of fibre f have at `row`. */
static void layered_place(const wanted *w, int f, double row, double *lambda, double *x, double *y)
{
    const double middle[2] = {49.5, 0.5 * (NROW - 1)};
    const double nm = base_wave(w, f, row), pitch = base_column(w, 1, middle[1]) - base_column(w, 0, middle[1]);
    const double id = 300 + 3 * f + layer_offset(0, f) / pitch;
    /* the first fibre whose number is not below the whole part of this, and the one after it */
    int k = 0;
    while (k < NFIBRE - 2 && 300 + 3 * k < floor(id))
        k++;
    double at[2] = {0, 0};
    for (int i = 0; i < 2; i++) {
        double lo = -100, hi = NROW + 100;
        for (int step = 0; step < 60; step++) {
            const double mid = 0.5 * (lo + hi);
            if (base_wave(w, k + i, mid) < nm)
                lo = mid;
            else
                hi = mid;
        }
        const double part = (id - 300 - 3 * k) / 3, by = i == 0 ? 1 - part : part;
        at[0] += by * base_column(w, k + i, lo);
        at[1] += by * lo;
    }
    const double u = (at[0] - middle[0]) / 50, v = (at[1] - middle[1]) / (0.5 * NROW);
    const double term[3] = {1, u, v};
    double p[2] = {at[0], at[1]};
    add_cubic(at, p);
    for (int a = 0; a < 2; a++) {
        for (int i = 0; i < 3; i++)
            p[a] += mosaic[6 + 3 * a + i] * term[i];
        if (at[0] > middle[0])
            p[a] += mosaic[a] * u + mosaic[2 + a] * v + mosaic[4 + a];
    }
    if (p[0] > middle[0]) {
        const double s = (p[0] - middle[0]) / 49.5, t = (p[1] - middle[1]) / (0.5 * (NROW - 1));
        for (int a = 0; a < 2; a++)
            p[a] += right[a] * s + right[2 + a] * t + right[4 + a];
    }
    *lambda = 10 * (nm - layer_offset(1, f) *
                             (base_wave(w, NFIBRE / 2, middle[1] + 1) - base_wave(w, NFIBRE / 2, middle[1])));
    *x = p[0];
    *y = p[1];
}

static void write_map(fitsfile *f, const wanted *w, int *status)
{
    long dims[2] = {NFIBRE, 3};
    int id[NFIBRE], box[4] = {0, 0, 99, NROW - 1};
    static const char *const key[] = {"MINX", "MINY", "MAXX", "MAXY"};
    float off[3][NFIBRE] = {{0}};
    for (int i = 0; i < NFIBRE; i++) {
        id[i] = 300 + 3 * i;
        off[0][i] = (float)spatial;
        off[1][i] = (float)spectral;
    }
    fits_create_img(f, BYTE_IMG, 0, NULL, status);
    for (int k = 0; k < 4; k++)
        fits_write_key(f, TINT, key[k], &box[k], NULL, status);
    if (w->layers >= 3) {
        int order = w->layers == 3 ? 1 : 3;
        fits_write_key(f, TINT, "ORDER", &order, NULL, status);
    }
    fits_create_img(f, LONG_IMG, 1, dims, status);
    fits_write_key(f, TSTRING, "EXTNAME", "FIBERID", NULL, status);
    fits_write_img(f, TINT, 1, NFIBRE, id, status);
    fits_create_img(f, FLOAT_IMG, 2, dims, status);
    fits_write_key(f, TSTRING, "EXTNAME", "SLITOFF", NULL, status);
    fits_write_img(f, TFLOAT, 1, 3L * NFIBRE, off, status);
    spline(f, w, COLUMN, status);
    spline(f, w, WAVE, status);
    if (w->layers == 1)
        write_layers(f, w, status);
    else if (w->layers == 2)
        write_chain(f, status);
    else if (w->layers >= 3)
        write_older(f, w, status);
    if (w->broken == 8) {
        fits_create_img(f, FLOAT_IMG, 1, dims, status);
        fits_write_key(f, TSTRING, "EXTNAME", "DISTORTIONS", NULL, status);
        fits_write_img(f, TFLOAT, 1, NFIBRE, off, status);
    }
}

/* Rows, columns and widths of the product against the functions. */
/* Coefficients [n][nterm] of fibres that are alike, but for the first term, which rises by `more`. nterm 1: of one
 * dimension. */
static void series(fitsfile *f, const wanted *w, const char *name, int n, const double *c, int nterm, double more,
                   int *status)
{
    long dims[] = {nterm, n};
    double all[NFIBRE * NTERM], range[2] = {6000, 6590};
    for (int i = 0; i < n * nterm; i++)
        all[i] = c[i % nterm] + (i % nterm == 0 ? more * (i / nterm) : 0);
    if (w->broken == 2 && strcmp(name, "XTRACE") == 0)
        all[3] = NAN;
    if (strcmp(name, "WSIGMA") == 0)
        all[5 * nterm] = -1;
    if (w->broken == 5 && name[1] == 'S')
        memset(all, 0, sizeof all);
    fits_create_img(f, DOUBLE_IMG, nterm > 1 ? 2 : 1, nterm > 1 ? dims : dims + 1, status);
    fits_write_key(f, TSTRING, "EXTNAME", (void *)(size_t)name, NULL, status);
    if (name[1] == 'T' && w->broken != 1) {
        fits_write_key(f, TDOUBLE, "WAVEMIN", &range[0], NULL, status);
        fits_write_key(f, TDOUBLE, "WAVEMAX", &range[1], NULL, status);
    }
    fits_write_img(f, TDOUBLE, 1, n * nterm, all, status);
}

static void write_desi(fitsfile *f, const wanted *w, int *status)
{
    const double x[2] = {10, 2}, y[3] = {599.5, 590, 59}, sigma = 1.05, angstrom[2] = {0.55, 0}, sx[2] = {1.1, 0.1},
                 sy[2] = {1.2, -0.1};
    series(f, w, "XTRACE", NFIBRE, x, 2, 7.3, status);
    series(f, w, "YTRACE", NFIBRE - (w->broken == 4), y, 3, 0, status);
    if (w->width == 0) {
        series(f, w, "XSIGMA", NFIBRE, &sigma, 1, 0, status);
        series(f, w, "WSIGMA", NFIBRE, angstrom, 2, 0, status);
    } else if (w->width == 1) {
        series(f, w, "XSIG", NFIBRE, sx, 2, 0, status);
        series(f, w, "YSIG", NFIBRE, sy, 2, 0, status);
    }
}

static int check(const char *path, const char *kind, double tolerance, const wanted *w)
{
    spx_psf p = {0};
    spx_err e = {0};
    const int map = strcmp(kind, "map") == 0;
    double worst[4] = {0, 0, 0, 0};
    hid_t file = H5Fopen(path, H5F_ACC_RDONLY, H5P_DEFAULT);
    if (file < 0 || spx_psf_read(file, &p, &e) != SPX_OK) {
        fprintf(stderr, "trace_make: %s: %s\n", path, spx_err_text(&e));
        return 0;
    }
    const size_t many = w->jump != 0 ? 2 : 1;
    int ok = p.nspec == many * NFIBRE;
    for (size_t t = 0; t < p.nspec && ok; t++)
        for (int i = 0; i < 300; i++) {
            const int f = (int)(t % NFIBRE);
            double row = (NROW - 1) * i / 299.0, c[4], u, lambda, v[4];
            if (many == 2) /* beside the two rows of the jump */
                row = t < NFIBRE ? 598 * i / 299.0 : 601 + 598 * i / 299.0;
            u = 2 * (row + (t < NFIBRE ? 0 : w->jump)) / (NROW - 1) - 1;
            if (map && w->layers >= 2) {
                const double at = fmin(fmax(row, 5), NROW - 6);
                double place[2] = {base_column(w, f, at), at};
                lambda = 10 * base_wave(w, f, at);
                (w->layers == 2 ? add_chain : w->layers == 3 ? add_halves : add_distorted)(place);
                v[COLUMN] = place[0];
                row = place[1];
                v[WIDTH] = v[ALONG] = 1.4;
            } else if (map && w->layers == 1) {
                layered_place(w, f, fmin(fmax(row, 5), NROW - 6), &lambda, &v[COLUMN], &row);
                v[WIDTH] = v[ALONG] = 1.4;
            } else if (map) {
                lambda = 10 * of_map(w, WAVE, f, row - (float)spectral);
                v[COLUMN] = of_map(w, COLUMN, f, row - (float)spectral) + (float)spatial;
                v[WIDTH] = v[ALONG] = 1.4;
            } else {
                powers(w, WAVE, f, c);
                const int alike = strcmp(kind, "apogee") == 0; /* widths across and along */
                lambda = pow(10, power_sum(c, u));
                for (int k = 0; k < 4; k++) {
                    powers(w, k == ALONG && alike ? WIDTH : k, f, c);
                    v[k] = power_sum(c, k == COLUMN ? u : 2 * row / (NROW - 1) - 1);
                }
            }
            const size_t n = p.nspec * p.ndeg;
            const double at = spx_psf_param_u(&p, t, lambda);
            worst[0] = fmax(worst[0], fabs(spx_psf_series_value(&p.y, t, lambda) - row));
            worst[1] = fmax(worst[1], fabs(spx_psf_series_value(&p.x, t, lambda) - v[COLUMN]));
            worst[2] = fmax(worst[2],
                            fabs(spx_legendre_sum(p.ndeg, p.coeff + (size_t)p.sigx * n + t * p.ndeg, at) - v[WIDTH]));
            worst[3] = fmax(worst[3],
                            fabs(spx_legendre_sum(p.ndeg, p.coeff + (size_t)p.sigy * n + t * p.ndeg, at) - v[ALONG]));
        }
    printf("%zu traces, %s: row %.2g column %.2g widths %.2g %.2g pixel, degrees %zu %zu %zu\n", p.nspec,
           p.wave_range != NULL ? "ranges of their own" : "one range", worst[0], worst[1], worst[2], worst[3],
           p.y.ncoef - 1, p.x.ncoef - 1, p.ndeg - 1);
    for (int k = 0; k < 4; k++)
        ok &= worst[k] <= tolerance;
    spx_psf_free(&p);
    (void)H5Fclose(file);
    return ok;
}

int main(int argc, char **argv)
{
    wanted w = {.names = 1};
    int status = 0;
    fitsfile *f = NULL;
    if (argc > 4 && strcmp(argv[1], "check") == 0)
        return !(read_words(argc - 5, argv + 5, &w) && check(argv[3], argv[2], atof(argv[4]), &w));
    if (argc < 3 || !read_words(argc - 3, argv + 3, &w)) {
        fprintf(stderr,
                "trace_make: flat|arc|both|apogee|apwave|map|desi FILE, or check sets|apogee|map FILE TOLERANCE\n");
        return 1;
    }
    (void)remove(argv[2]);
    fits_create_file(&f, argv[2], &status);
    if (strcmp(argv[1], "map") == 0)
        write_map(f, &w, &status);
    else if (strncmp(argv[1], "ap", 2) == 0)
        write_apogee(f, &w, argv[1], &status);
    else if (strcmp(argv[1], "desi") == 0)
        write_desi(f, &w, &status);
    else
        write_sets(f, &w, argv[1], &status);
    fits_close_file(f, &status);
    if (status != 0)
        fits_report_error(stderr, status);
    return status != 0;
}
