/* spot_make PSF FILE [NAME=VALUE...]: SPOTGRID file of specter's layout with the traces of a PSF in an HDF5 product,
 * for tests, or a NevenPsf of PFS. Spots are of spot_rays.h; names, with their values where they are not given:
 *     over=9     sub-pixels a pixel         size=15  pixels of an array along each axis
 *     coma=1     pixel, at the ends of the slit; half of that in its middle
 *     turn=1     radians that the coma's direction turns by along the slit, and half along the wavelengths
 *     disc=1.0   radius of the fibre's image, pixel, 10 % larger at the last wavelength
 *     sigma=0.5  diffusion of charge from the back of the detector, pixel
 *     depth=0    mean depth at which light of the last wavelength is absorbed, by the detector's thickness, and less in
 *                proportion at the first; charge spreads by sigma times the root of the part that it has to go
 *     moffat=0   width of Moffat's spots (sim/sim_mixture.h), pixel, instead of all these
 *     ghost=0    light of a second core, a part of that of the first, and rows from there, apart=2
 *     npos=4     wavelengths: nwave=5
 *     each=0     1: npos is the number of fibres, and each has its own spots; 2: every other one at the first and last
 *                wavelength alone, with others in proportion
 *     neven=0    1: the same, of each=1 or 2, as a NevenPsf with a SplinedDetectorMap in the archive of an exposure; 2:
 *                with a LayeredDetectorMap, of which no more than its class is there. Fibres are 300, 303 ...
 *     break=0    1: a spot without light, 2: NaN, 3: wavelengths that fall, 4: other FIBERPOS, 5: PIXSIZE, 6: no SPOTS;
 *                of neven 2: NaN, 3: two spots of one wavelength, 4: an image of another size, 5: rows that are not
 *                there, 6: no images
 *
 * Exit status 0, or 1 with a message. */
#include <fitsio.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "products/psf_h5.h"
#include "psf/psf.h"
#include "psf/psf_math.h"
#include "sim/sim_mixture.h"
#include "spot_rays.h"

typedef struct {
    double over, size, coma, turn, disc, sigma, depth, moffat, npos, nwave, each, neven, broken, ghost, apart;
} wanted;

static int read_words(int n, char **word, wanted *w)
{
    const struct {
        const char *name;
        double *to;
    } known[] = {{"over", &w->over},    {"size", &w->size},   {"coma", &w->coma},     {"turn", &w->turn},
                 {"disc", &w->disc},    {"sigma", &w->sigma}, {"npos", &w->npos},     {"nwave", &w->nwave},
                 {"break", &w->broken}, {"depth", &w->depth}, {"moffat", &w->moffat}, {"each", &w->each},
                 {"neven", &w->neven},  {"ghost", &w->ghost}, {"apart", &w->apart}};
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

static void image(fitsfile *f, const char *name, int type, int ndim, long *dims, const void *data, int *status)
{
    long n = 1;
    for (int i = 0; i < ndim; i++)
        n *= dims[i];
    fits_create_img(f, type == TFLOAT ? FLOAT_IMG : DOUBLE_IMG, ndim, dims, status);
    fits_write_key(f, TSTRING, "EXTNAME", (void *)(size_t)name, NULL, status);
    fits_write_img(f, type, 1, n, (void *)(size_t)data, status);
}

static void traces(fitsfile *f, const char *name, const spx_psf_series *s, size_t nspec, int *status)
{
    long dims[2] = {(long)s->ncoef, (long)nspec};
    double lo = s->wmin, hi = s->wmax;
    image(f, name, TDOUBLE, 2, dims, s->coef, status);
    fits_write_key(f, TDOUBLE, "WAVEMIN", &lo, NULL, status);
    fits_write_key(f, TDOUBLE, "WAVEMAX", &hi, NULL, status);
}

/* Spot of charge that is set free at all depths: exp(-z/depth), z in thicknesses within 1. sum: [side][side] */
static void diffuse(const ray_spot *ray, double depth, int side, const wanted *w, double *one, double *sum)
{
    enum { LAYERS = 12 };
    memset(sum, 0, (size_t)(side * side) * sizeof *sum);
    for (int i = 0; i < LAYERS; i++) {
        ray_spot layer = *ray;
        const double z = (i + 0.5) / LAYERS, within = 1 - exp(-1 / depth);
        layer.sigma = ray->sigma * sqrt(1 - z);
        ray_image(&layer, side, side, -0.5 * w->size, -0.5 * w->size, 1 / w->over, one);
        const double share = (exp(-(double)i / LAYERS / depth) - exp(-(i + 1.0) / LAYERS / depth)) / within;
        for (int k = 0; k < side * side; k++)
            sum[k] += share * one[k];
    }
}

/* Moffat's spots, as a sum of Gaussians about one place. */
static void moffat(int side, const wanted *w, double *one, double *sum)
{
    spx_sim_mixture m;
    spx_sim_mixture_make(SPX_SIM_MOFFAT, &m);
    memset(sum, 0, (size_t)(side * side) * sizeof *sum);
    for (size_t i = 0; i < m.n; i++) {
        const ray_spot ray = {.sigma = w->moffat * m.sigma[i]};
        ray_image(&ray, side, side, -0.5 * w->size, -0.5 * w->size, 1 / w->over, one);
        for (int k = 0; k < side * side; k++)
            sum[k] += one[k] / (double)m.n;
    }
}

/* ---- NevenPsf ---- */

enum { KNOTS = 60, FIRST_FIBRE = 300, FIBRE_STEP = 3 };

/* A table of an archive, number n of it. */
static void archive_table(fitsfile *f, int n, int ncol, char **name, char **form, const char *what, int *status)
{
    fits_create_tbl(f, BINARY_TBL, 0, ncol, name, form, NULL, what, status);
    fits_write_key(f, TSTRING, "EXTTYPE", n > 0 ? "ARCHIVE_DATA" : "ARCHIVE_INDEX", NULL, status);
    fits_write_key(f, TINT, "AR_CATN", &n, NULL, status);
}

/* Object `id` of a class, in rows of a table. */
static void archive_object(fitsfile *f, long line, int id, int table, int row, int nrow, const char *class, int *status)
{
    int v[] = {id, table, 0, row, nrow};
    for (int c = 0; c < 5; c++)
        fits_write_col(f, TINT, c + 1, line, 1, 1, &v[c], status);
    fits_write_col(f, TSTRING, 6, line, 1, 1, (void *)(size_t) & class, status);
}

/* Wavelength, nm, and column of a trace at a row. */
static void at_row(const spx_psf *p, size_t k, double row, double *nm, double *x)
{
    double lo = p->y.wmin - 30, hi = p->y.wmax + 30;
    for (int i = 0; i < 60; i++) {
        const double mid = 0.5 * (lo + hi);
        if (spx_psf_series_value(&p->y, k, mid) < row)
            lo = mid;
        else
            hi = mid;
    }
    *nm = 0.1 * lo;
    *x = spx_psf_series_value(&p->x, k, lo);
}

/* The table of splines, columns of all fibres and then wavelengths; objects 11 ... are they. */
static void neven_splines(fitsfile *f, const spx_psf *p, int *status)
{
    char *name[] = {"x", "y", "interpolationType", "extrapolationType"}, *form[] = {"1PD", "1PD", "1J", "1J"};
    archive_table(f, 2, 4, name, form, "Spline", status);
    for (size_t k = 0; k < p->nspec; k++) {
        double row[KNOTS], nm[KNOTS], x[KNOTS];
        for (int i = 0; i < KNOTS; i++) {
            row[i] = -5 + ((double)p->npix_y + 9) * i / (KNOTS - 1);
            at_row(p, k, row[i], &nm[i], &x[i]);
        }
        for (int which = 0; which < 2; which++) {
            const long line = (long)(k + (size_t)which * p->nspec + 1);
            fits_write_col(f, TDOUBLE, 1, line, 1, KNOTS, row, status);
            fits_write_col(f, TDOUBLE, 2, line, 1, KNOTS, which == 0 ? x : nm, status);
        }
    }
}

static void neven_map(fitsfile *f, const spx_psf *p, int *status)
{
    char *name[] = {"bbox_min_x", "bbox_min_y", "bbox_max_x",    "bbox_max_y",    "fiberId",
                    "xCenter",    "wavelength", "spatialOffset", "spectralOffset"};
    char *form[] = {"1J", "1J", "1J", "1J", "1PJ", "1PJ", "1PJ", "1PD", "1PD"};
    int v[3][64] = {{0}}, box[4] = {0, 0, (int)p->npix_x - 1, (int)p->npix_y - 1};
    double none[64] = {0};
    const long n = (long)p->nspec;
    for (int k = 0; k < n; k++) {
        v[0][k] = FIRST_FIBRE + FIBRE_STEP * k;
        v[1][k] = 11 + k;
        v[2][k] = 11 + (int)n + k;
    }
    archive_table(f, 3, 9, name, form, "SplinedDetectorMap", status);
    for (int c = 0; c < 4; c++)
        fits_write_col(f, TINT, c + 1, 1, 1, 1, &box[c], status);
    for (int c = 0; c < 3; c++)
        fits_write_col(f, TINT, c + 5, 1, 1, n, v[c], status);
    for (int c = 0; c < 2; c++)
        fits_write_col(f, TDOUBLE, c + 8, 1, 1, n, none, status);
}

/* spots [nspec][nwave][side][side]; the last fibre first, to be sorted. */
static void write_neven(fitsfile *f, const spx_psf *p, const wanted *w, long side, const double *wave, float *spots,
                        int *status)
{
    char *index[] = {"id", "cat.archive", "cat.persistable", "row0", "nrows", "name", "module"};
    char *forms[] = {"1J", "1J", "1J", "1J", "1J", "64A", "64A"};
    char *psf[] = {"detectorMap",      "fiberId",      "wavelength",  "images",
                   "oversampleFactor", "targetSize_x", "targetSize_y"};
    char *psf_form[] = {"1J", "1PJ", "1PD", "1J", "1J", "1J", "1J"};
    char *image_name[] = {"width", "height", "images"}, *image_form[] = {"1J", "1J", "1PE"};
    const size_t nwave = (size_t)w->nwave;
    int id[4096], n = 0, map = 2, images = 3, over = (int)w->over, size = (int)w->size + 4;
    double nm[4096];
    long from[4096];
    for (size_t k = p->nspec; k-- > 0;)
        for (size_t j = 0; j < nwave; j++)
            if (w->each != 2 || k % 2 == 0 || j == 0 || j == nwave - 1) {
                id[n] = FIRST_FIBRE + FIBRE_STEP * (int)k;
                nm[n] = 0.1 * wave[w->broken == 3 ? 0 : j];
                from[n++] = (long)(k * nwave + j) * side * side;
            }
    fits_create_img(f, BYTE_IMG, 0, NULL, status);
    archive_table(f, 0, 7, index, forms, "ARCHIVE_INDEX", status);
    archive_object(f, 1, 1, 1, 0, 1, "NevenPsf", status);
    archive_object(f, 2, 2, 3, w->broken == 5 ? 9 : 0, 1, w->neven == 2 ? "LayeredDetectorMap" : "SplinedDetectorMap",
                   status);
    archive_object(f, 3, w->broken == 6 ? 4 : 3, 4, 0, n, "NevenPsfImages", status);
    for (int k = 0; k < 2 * (int)p->nspec; k++)
        archive_object(f, 4 + k, 11 + k, 2, k, 1, "Spline", status);
    archive_table(f, 1, 7, psf, psf_form, "NevenPsf", status);
    fits_write_col(f, TINT, 1, 1, 1, 1, &map, status);
    fits_write_col(f, TINT, 2, 1, 1, n, id, status);
    fits_write_col(f, TDOUBLE, 3, 1, 1, n, nm, status);
    fits_write_col(f, TINT, 4, 1, 1, 1, &images, status);
    fits_write_col(f, TINT, 5, 1, 1, 1, &over, status);
    for (int c = 0; c < 2; c++)
        fits_write_col(f, TINT, 6 + c, 1, 1, 1, &size, status);
    neven_splines(f, p, status);
    neven_map(f, p, status);
    archive_table(f, 4, 3, image_name, image_form, "NevenPsfImages", status);
    for (int i = 0; i < n; i++) {
        int rows = (int)side - (w->broken == 4 && i == 7);
        fits_write_col(f, TINT, 1, i + 1, 1, 1, &rows, status);
        fits_write_col(f, TINT, 2, i + 1, 1, 1, (int[]){(int)side}, status);
        fits_write_col(f, TFLOAT, 3, i + 1, 1, side * side, spots + from[i], status);
    }
}

/* Every other fibre's spots in proportion between those of the first and last wavelength. */
static void straighten(size_t npos, size_t nwave, size_t n, const double *wave, float *spots)
{
    for (size_t k = 1; k < npos; k += 2)
        for (size_t j = 1; j + 1 < nwave; j++)
            for (size_t i = 0; i < n; i++) {
                const double part = (wave[j] - wave[0]) / (wave[nwave - 1] - wave[0]);
                const float *first = spots + k * nwave * n;
                spots[(k * nwave + j) * n + i] = (float)((1 - part) * first[i] + part * first[(nwave - 1) * n + i]);
            }
}

static int write_file(const spx_psf *p, const wanted *w, const char *path)
{
    const size_t npos = w->each > 0 ? p->nspec : (size_t)w->npos, nwave = (size_t)w->nwave,
                 side = (size_t)(w->over * w->size);
    float *spots = calloc(npos * nwave * side * side, sizeof *spots);
    double *one = calloc(side * side, sizeof *one), *sum = calloc(side * side, sizeof *sum),
           *pos = calloc(npos, sizeof *pos), *wave = calloc(nwave, sizeof *wave),
           *fibre = calloc(p->nspec, sizeof *fibre), ccd = 0.015, sub = 0.015 / w->over;
    for (size_t i = 0; i < npos; i++)
        pos[i] = npos > 1 ? -60 + 120 * (double)i / (double)(npos - 1) : 0;
    for (size_t j = 0; j < nwave; j++)
        wave[j] = p->x.wmin + (p->x.wmax - p->x.wmin) * ((double)j + 0.02) / ((double)nwave - 0.96);
    for (size_t k = 0; k < p->nspec; k++)
        fibre[k] = w->each > 0 ? pos[k] : p->nspec > 1 ? -58 + 116 * (double)k / (double)(p->nspec - 1) : 0;
    for (size_t n = 0; n < npos * nwave; n++) {
        const double s = pos[n / nwave] / 60, u = nwave > 1 ? (double)(n % nwave) / (double)(nwave - 1) : 0;
        const ray_spot ray = {.coma = w->coma * (0.5 + 0.5 * s * s),
                              .angle = w->turn * (s + 0.5 * u) + 0.3,
                              .disc = w->disc * (1 + 0.1 * u),
                              .sigma = w->sigma};
        if (w->moffat > 0)
            moffat((int)side, w, one, sum);
        else if (w->depth > 0)
            diffuse(&ray, w->depth * (0.1 + 0.9 * u), (int)side, w, one, sum);
        else
            ray_image(&ray, (int)side, (int)side, -0.5 * w->size, -0.5 * w->size, 1 / w->over, sum);
        const size_t far = (size_t)(w->apart * w->over + 0.5) * side;
        for (size_t k = 0; k < side * side; k++)
            spots[n * side * side + k] = (float)(1000 * (sum[k] + (k < far ? 0 : w->ghost * sum[k - far])));
    }
    if (w->each == 2)
        straighten(npos, nwave, side * side, wave, spots);
    if (w->broken == 1)
        memset(spots + side * side, 0, side * side * sizeof *spots);
    else if (w->broken == 2)
        spots[side * side / 2] = NAN;
    else if (w->broken == 3 && w->neven == 0)
        wave[nwave - 1] = wave[0];
    long four[4] = {(long)side, (long)side, (long)nwave, (long)npos}, np = (long)npos, nw = (long)nwave,
         nx = (long)p->npix_x, ny = (long)p->npix_y, nspec = (long)p->nspec, nf = nspec - (w->broken == 4);
    if (w->broken == 5)
        sub *= 0.93;
    int status = 0;
    fitsfile *f = NULL;
    (void)remove(path);
    fits_create_file(&f, path, &status);
    if (w->neven > 0) {
        write_neven(f, p, w, (long)side, wave, spots, &status);
        goto done;
    }
    traces(f, "XCOEFF", &p->x, p->nspec, &status);
    fits_write_key(f, TSTRING, "PSFTYPE", "SPOTGRID", NULL, &status);
    fits_write_key(f, TLONG, "NPIX_X", &nx, NULL, &status);
    fits_write_key(f, TLONG, "NPIX_Y", &ny, NULL, &status);
    fits_write_key(f, TLONG, "NSPEC", &nspec, NULL, &status);
    fits_write_key(f, TSTRING, "CAMERA", (void *)(size_t)p->camera, NULL, &status);
    fits_write_key(f, TDOUBLE, "CCDPIXSZ", &ccd, "mm", &status);
    fits_write_key(f, TDOUBLE, "PIXSIZE", &sub, "mm", &status);
    traces(f, "YCOEFF", &p->y, p->nspec, &status);
    image(f, w->broken == 6 ? "STOPS" : "SPOTS", TFLOAT, 4, four, spots, &status);
    image(f, "FIBERPOS", TDOUBLE, 1, &nf, fibre, &status);
    image(f, "SPOTPOS", TDOUBLE, 1, &np, pos, &status);
    image(f, "SPOTWAVE", TDOUBLE, 1, &nw, wave, &status);
done:
    fits_close_file(f, &status);
    if (status != 0)
        fits_report_error(stderr, status);
    free(spots);
    free(one);
    free(sum);
    free(pos);
    free(wave);
    free(fibre);
    return status == 0;
}

int main(int argc, char **argv)
{
    spx_err e = {0};
    spx_psf p = {0};
    wanted w = {
        .over = 9, .size = 15, .coma = 1, .turn = 1, .disc = 1, .sigma = 0.5, .npos = 4, .nwave = 5, .apart = 2};
    int ok = argc > 2 && read_words(argc - 3, argv + 3, &w);
    hid_t file = ok ? H5Fopen(argv[1], H5F_ACC_RDONLY, H5P_DEFAULT) : H5I_INVALID_HID;
    ok = ok && file >= 0 && spx_psf_read(file, &p, &e) == SPX_OK && write_file(&p, &w, argv[2]);
    if (file >= 0)
        (void)H5Fclose(file);
    if (!ok)
        fprintf(stderr, "spot_make: %s: %s\n", argc > 1 ? argv[1] : "no file", spx_err_text(&e));
    spx_psf_free(&p);
    return !ok;
}
