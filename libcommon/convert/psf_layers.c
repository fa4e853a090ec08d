/* Layers of detectorMaps of PFS (convert/psf_layers.h). */
#include "convert/psf_layers.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/mem.h"
#include "convert/blocks_parts.h"
#include "convert/psf_fits.h"
#include "fits/values.h"
#include "num/stat.h"

/* Kinds of distortions: HDUs of this name and a number, which are a table of these columns, of one piece or two, or an
 * image. */
static const struct {
    const char *name, *column[5];
    int npiece, mosaic;
} kinds[] = {{"PolynomialDistortion", {"xCoefficients", "yCoefficients"}, 1, 0},
             {"MosaicPolynomialDistortion", {NULL}, 1, 1},
             {"DoubleDistortion", {"xLeft", "yLeft", "xRight", "yRight"}, 2, 0},
             {"RotScaleDistortion", {NULL}, 1, 0},
             {"DoubleRotScaleDistortion", {NULL}, 2, 0}};

/* Classes of before 2024, of one distortion: the table COEFFICIENTS of these columns, ORDER and range in the first
 * header. DoubleDetectorMap, PolynomialDetectorMap, and DistortedDetectorMap, whose right CCD has an affine map of
 * pixels in a table RIGHTCCD. */
static const struct {
    const char *column[5];
    int npiece, mosaic;
} older[] = {{{"xLeft", "yLeft", "xRight", "yRight"}, 2, 0}, {{"xCoeff", "yCoeff"}, 1, 0}, {{"x", "y"}, 1, 1}};

enum { OLDER = sizeof older / sizeof *older };

/* HDU of such a distortion, or -1. */
static int find_older(const spx_fits *f, size_t *kind)
{
    const int hdu = spx_fits_find_table(f, "COEFFICIENTS"), right = spx_fits_find_table(f, "RIGHTCCD");
    for (*kind = 0; *kind < OLDER && hdu >= 0; ++*kind) {
        int all = older[*kind].mosaic == (right >= 0);
        for (int c = 0; older[*kind].column[c] != NULL; c++)
            all &= spx_fits_find_column(&f->hdu[hdu], older[*kind].column[c]) != NULL;
        if (all)
            return hdu;
    }
    return -1;
}

/* HDU of distortion k; -1: of another kind. */
static int find_distortion(const spx_fits *f, size_t k, size_t *kind)
{
    int hdu = -1;
    for (*kind = 0; *kind < sizeof kinds / sizeof *kinds; ++*kind) {
        char name[64];
        snprintf(name, sizeof name, "%s_%zu", kinds[*kind].name, k);
        hdu = kinds[*kind].column[0] != NULL ? spx_fits_find_table(f, name) : spx_fits_find_image(f, name, 1);
        if (hdu >= 0)
            break;
    }
    return hdu;
}

int spx_layers_found(const spx_fits *f)
{
    const int list = spx_fits_find_table(f, "DISTORTIONS");
    if (list >= 0) {
        size_t kind;
        int all = 1;
        for (size_t k = 0; k < f->hdu[list].nrow && all; k++)
            all = find_distortion(f, k, &kind) >= 0;
        return all ? 1 : -1;
    }
    size_t kind;
    if (find_older(f, &kind) >= 0)
        return 1;
    for (size_t i = 0; i < f->nhdu; i++)
        if (strncasecmp(f->hdu[i].extname, "DISTORTION", 10) == 0 || strcasecmp(f->hdu[i].extname, "LAYERS") == 0 ||
            strncasecmp(f->hdu[i].extname, "COEFF", 5) == 0)
            return -1;
    return 0;
}

static spx_status all_finite(const spx_fits *f, const char *hdu, size_t n, const double *v, spx_err *e)
{
    for (size_t k = 0; k < n; k++)
        if (!isfinite(v[k]))
            return spx_fail_at(e, SPX_EINPUT, f->name, hdu, NULL, "a number is not finite");
    return SPX_OK;
}

/* n numbers of a column's first row. */
static spx_status read_cell(const spx_fits *f, const char *name, size_t n, double **out, spx_err *e)
{
    const int hdu = spx_fits_find_table(f, "LAYERS");
    size_t have = 0;
    spx_status st = spx_fits_cell_f64(f, (size_t)hdu, name, 0, &have, out, e);
    if (st == SPX_OK && have != n)
        st = spx_fail_at(e, SPX_EINPUT, f->name, "LAYERS", NULL, "column %s has %zu numbers instead of %zu", name, have,
                         n);
    return st == SPX_OK ? all_finite(f, "LAYERS", n, *out, e) : st;
}

/* Range of an HDU, lo[2] and hi[2]: MINX and so on. Whole numbers are pixels, of which the first and last are whole,
 * too. */
static spx_status read_range(const spx_fits *f, int hdu, double *lo, double *hi, spx_err *e)
{
    static const char *const key[] = {"MINX", "MINY", "MAXX", "MAXY"};
    double box[4];
    spx_status st = SPX_OK;
    for (int k = 0; k < 4 && st == SPX_OK; k++)
        st = spx_fits_need_key(f, hdu, key[k], &box[k], e);
    for (int k = 0; k < 2 && st == SPX_OK; k++) {
        const double half = box[k] == floor(box[k]) && box[2 + k] == floor(box[2 + k]) ? 0.5 : 0;
        lo[k] = box[k] - half;
        hi[k] = box[2 + k] + half;
        if (!(hi[k] > lo[k]))
            st = spx_fail_at(e, SPX_EINPUT, f->name, spx_fits_hduname(f, (size_t)hdu), NULL,
                             "the range of the distortion is %g to %g", box[k], box[2 + k]);
    }
    return st;
}

/* Coefficients of a table of polynomials. */
static spx_status read_columns(const spx_fits *f, int hdu, const char *const *column, spx_distortion *d, spx_err *e)
{
    spx_status st = SPX_OK;
    for (size_t c = 0; c < 2 * (size_t)d->npiece && st == SPX_OK; c++) {
        double *one = NULL;
        size_t n = 0;
        st = spx_fits_column_f64(f, (size_t)hdu, column[c], &n, &one, e);
        if (st == SPX_OK && n != 1)
            st = spx_fail_at(e, SPX_EINPUT, f->name, spx_fits_hduname(f, (size_t)hdu), NULL,
                             "columns should hold one number a row");
        if (st == SPX_OK)
            memcpy(d->all + c * d->nterm, one, d->nterm * sizeof *one);
        spx_free(one);
    }
    return st;
}

/* Those of an image: of two CCDs the affine map, then those by column and by row; of rotations the offsets of column
 * and row, scale and angle, of each piece. */
static spx_status read_vector(spx_fits *f, int hdu, spx_distortion *d, spx_err *e)
{
    double *v = NULL;
    spx_status st = spx_fits_f64(f, (size_t)hdu, &v, e);
    if (st == SPX_OK && d->mosaic) {
        memcpy(d->right, v, sizeof d->right);
        memcpy(d->all, v + 6, 2 * d->nterm * sizeof *v);
    }
    for (int k = 0; k < d->npiece && st == SPX_OK && !d->mosaic; k++) {
        const double *r = v + 4 * k, six[] = {r[0], r[2], -r[3], r[1], r[3], r[2]};
        memcpy(d->all + 6 * k, six, sizeof six);
    }
    spx_free(v);
    return st;
}

/* A distortion of these pieces in an HDU, whose order and range are in the header of HDU `said`; column: of a table, or
 * none. */
static spx_status read_pieces(spx_fits *f, int hdu, int said, const char *const *column, spx_distortion *d, spx_err *e)
{
    enum { MOST = 20 };
    const char *name = spx_fits_hduname(f, (size_t)hdu);
    double order = 1, lo[2], hi[2];
    const int turns = column[0] == NULL && !d->mosaic;
    spx_status st = read_range(f, said, lo, hi, e);
    if (st == SPX_OK && !turns)
        st = spx_fits_need_key(f, said, "ORDER", &order, e);
    if (st == SPX_OK && !(order >= 0 && order <= MOST && order == floor(order)))
        st = spx_fail_at(e, SPX_EINPUT, f->name, name, NULL, "ORDER = %g should be 0 to %d", order, MOST);
    if (st != SPX_OK)
        return st;
    d->order = (int)order;
    d->nterm = (size_t)((d->order + 1) * (d->order + 2) / 2);
    const size_t n = column[0] == NULL ? f->hdu[hdu].nelem : f->hdu[hdu].nrow;
    const size_t want = turns ? 4 * (size_t)d->npiece : d->mosaic && column[0] == NULL ? 6 + 2 * d->nterm : d->nterm;
    if (n != want)
        return spx_fail_at(e, SPX_EINPUT, f->name, name, NULL, "has %zu coefficients: ORDER is %d", n, d->order);
    if ((d->all = spx_alloc2(d->nterm, 2 * (size_t)d->npiece, sizeof *d->all, e)) == NULL)
        return SPX_EIO;
    st = column[0] != NULL ? read_columns(f, hdu, column, d, e) : read_vector(f, hdu, d, e);
    d->edge = 0.5 * (lo[0] + hi[0]);
    for (int k = 0; k < d->npiece; k++) {
        spx_layers_piece *p = &d->piece[k];
        const double from[2] = {k == 1 ? d->edge : lo[0], lo[1]};
        const double to[2] = {k == 0 && d->npiece == 2 ? d->edge : hi[0], hi[1]};
        for (int a = 0; a < 2; a++) {
            p->middle[a] = 0.5 * (from[a] + to[a]);
            p->scale[a] = 2 / (to[a] - from[a]);
        }
        if (turns)
            p->scale[0] = p->scale[1] = 1 / fmax(p->middle[0], p->middle[1]);
        p->x = d->all + (size_t)(2 * k) * d->nterm;
        p->y = p->x + d->nterm;
    }
    return st == SPX_OK ? all_finite(f, name, 2 * d->nterm * (size_t)d->npiece, d->all, e) : st;
}

static spx_status read_distortion(spx_fits *f, size_t number, spx_distortion *d, spx_err *e)
{
    size_t kind;
    const int hdu = find_distortion(f, number, &kind);
    d->npiece = kinds[kind].npiece;
    d->mosaic = kinds[kind].mosaic;
    const spx_status st = read_pieces(f, hdu, hdu, kinds[kind].column, d, e);
    return st == SPX_OK ? all_finite(f, spx_fits_hduname(f, (size_t)hdu), 6, d->right, e) : st;
}

/* The one distortion of an older class. */
static spx_status read_older(spx_fits *f, spx_distortion *d, spx_err *e)
{
    size_t kind, n = 0;
    double *right = NULL;
    const int hdu = find_older(f, &kind), map = spx_fits_find_table(f, "RIGHTCCD");
    d->npiece = older[kind].npiece;
    d->mosaic = older[kind].mosaic;
    spx_status st = read_pieces(f, hdu, 0, older[kind].column, d, e);
    if (st != SPX_OK || !d->mosaic)
        return st;
    st = spx_fits_column_f64(f, (size_t)map, "coefficients", &n, &right, e);
    if (st == SPX_OK && (n != 1 || f->hdu[map].nrow != 6))
        st = spx_fail_at(e, SPX_EINPUT, f->name, "RIGHTCCD", NULL, "has %zu coefficients instead of 6",
                         n * f->hdu[map].nrow);
    if (st == SPX_OK)
        st = all_finite(f, "RIGHTCCD", 6, right, e);
    for (int a = 0; a < 2 && st == SPX_OK; a++) { /* of pixels: of -1 to 1 from here on */
        const spx_layers_piece *p = &d->piece[0];
        d->right[a] = right[a] / p->scale[0];
        d->right[2 + a] = right[2 + a] / p->scale[1];
        d->right[4 + a] = right[4 + a] + right[a] * p->middle[0] + right[2 + a] * p->middle[1];
    }
    spx_free(right);
    return st;
}

static void apply(const double affine[6], double x, double y, double out[2])
{
    out[0] += affine[0] * x + affine[2] * y + affine[4];
    out[1] += affine[1] * x + affine[3] * y + affine[5];
}

/* Adds the distortion at a point to out. */
static void distort(const spx_distortion *d, const double at[2], double out[2])
{
    const int right = at[0] > d->edge;
    const spx_layers_piece *p = &d->piece[right && d->npiece == 2];
    const double x = (at[0] - p->middle[0]) * p->scale[0], y = (at[1] - p->middle[1]) * p->scale[1];
    size_t k = 0;
    for (int n = 0; n <= d->order; n++)
        for (int i = 0; i <= n; i++, k++) {
            const double term = pow(x, n - i) * pow(y, i);
            out[0] += p->x[k] * term;
            out[1] += p->y[k] * term;
        }
    if (d->mosaic && right)
        apply(d->right, x, y, out);
}

/* Column and row of a wavelength in a fibre's splines, sought from a row on. */
static void base_place(const spx_layers *l, size_t f, double wave, double row, double out[2])
{
    enum { STEPS = 20 };
    const double h = 0.5;
    double lo, hi, off = INFINITY;
    for (int k = 0; k < STEPS && fabs(off) > 1e-9; k++) {
        double here;
        l->base(l->of, f, row - h, &lo, &out[0]);
        l->base(l->of, f, row + h, &hi, &out[0]);
        l->base(l->of, f, row, &here, &out[0]);
        off = 2 * h * (wave - here) / (hi - lo);
        row += off;
    }
    l->base(l->of, f, row, &lo, &out[0]);
    out[1] = row;
}

void spx_layers_place(const spx_layers *l, size_t f, double row, double *wave, double place[2])
{
    double at[2], own;
    l->base(l->of, f, row, &own, &at[0]);
    at[1] = row;
    *wave = own - l->spectral[f] * l->dispersion;
    if (l->spatial[f] != 0 && l->nfibre > 1) {
        /* a place between fibres, at this wavelength: on the line through two of them, of which the first is not
         * before it, but for the last two */
        const double fibre = l->id[f] + l->spatial[f] / l->pitch;
        size_t k = 0;
        while (k + 2 < l->nfibre && l->id[k] < floor(fibre))
            k++;
        const double t = (fibre - l->id[k]) / ((double)l->id[k + 1] - l->id[k]);
        double one[2], two[2];
        base_place(l, k, own, row, one);
        base_place(l, k + 1, own, row, two);
        for (int a = 0; a < 2; a++)
            at[a] = (1 - t) * one[a] + t * two[a];
    }
    memcpy(place, at, sizeof at);
    for (size_t k = 0; k < l->ndistortion; k++) {
        const double from[2] = {l->chained ? place[0] : at[0], l->chained ? place[1] : at[1]};
        distort(&l->distortion[k], from, place);
    }
    if (l->divided && place[0] > l->middle[0])
        apply(l->right, (place[0] - l->middle[0]) * l->scale[0], (place[1] - l->middle[1]) * l->scale[1], place);
}

/* Distance of fibres and dispersion in the middle of the detector. */
static spx_status find_scale(spx_layers *l, spx_err *e)
{
    const double row = l->middle[1];
    double *apart = spx_alloc(l->nfibre, sizeof *apart, e), wave, next, column, last = 0;
    if (apart == NULL)
        return SPX_EIO;
    for (size_t f = 0; f < l->nfibre; f++, last = column) {
        l->base(l->of, f, row, &wave, &column);
        if (f > 0)
            apart[f - 1] = column - last;
    }
    l->pitch = l->nfibre > 1 ? spx_median(apart, l->nfibre - 1) : 1;
    l->base(l->of, l->nfibre / 2, row, &wave, &column);
    l->base(l->of, l->nfibre / 2, row + 1, &next, &column);
    l->dispersion = next - wave;
    spx_free(apart);
    return SPX_OK;
}

/* The table LAYERS. */
static spx_status read_layers(const spx_fits *f, int hdu, spx_layers *l, spx_err *e)
{
    double *right = NULL;
    if (f->hdu[hdu].nrow != 1)
        return spx_fail_at(e, SPX_EINPUT, f->name, "LAYERS", NULL, "has %zu rows instead of one", f->hdu[hdu].nrow);
    for (size_t i = 1; i < l->nfibre; i++)
        if (l->id[i] <= l->id[i - 1])
            return spx_fail_at(e, SPX_EINPUT, f->name, "FIBERID", NULL, "numbers of fibres should increase");
    spx_status st = read_cell(f, "spatial", l->nfibre, &l->spatial, e);
    if (st == SPX_OK)
        st = read_cell(f, "spectral", l->nfibre, &l->spectral, e);
    if (st == SPX_OK)
        st = read_cell(f, "rightCcd", 6, &right, e);
    if (st == SPX_OK) {
        memcpy(l->right, right, sizeof l->right);
        st = spx_fits_cell_true(f, (size_t)hdu, "dividedDetector", 0, &l->divided, e);
    }
    spx_free(right);
    return st == SPX_OK ? find_scale(l, e) : st;
}

spx_status spx_layers_read(spx_fits *f, size_t nfibre, const uint32_t *id, const double box[4], spx_layers_base *base,
                           const void *of, spx_layers *l, spx_err *e)
{
    const int hdu = spx_fits_find_table(f, "LAYERS"), list = spx_fits_find_table(f, "DISTORTIONS");
    *l = (spx_layers){.nfibre = nfibre, .id = id, .base = base, .of = of, .chained = hdu < 0};
    for (int k = 0; k < 2; k++) {
        l->middle[k] = 0.5 * (box[2 * k] + box[2 * k + 1]);
        l->scale[k] = 2 / (box[2 * k + 1] - box[2 * k]);
    }
    spx_status st = SPX_OK;
    if (hdu >= 0)
        st = read_layers(f, hdu, l, e);
    else if ((l->spatial = spx_alloc(nfibre, sizeof *l->spatial, e)) == NULL ||
             (l->spectral = spx_alloc(nfibre, sizeof *l->spectral, e)) == NULL)
        st = SPX_EIO;
    const size_t n = list >= 0 ? f->hdu[list].nrow : 1;
    if (st == SPX_OK && (l->distortion = spx_alloc(n + 1, sizeof *l->distortion, e)) == NULL)
        st = SPX_EIO;
    for (size_t k = 0; k < n && st == SPX_OK; k++) {
        l->ndistortion = k + 1;
        st = list >= 0 ? read_distortion(f, k, &l->distortion[k], e) : read_older(f, &l->distortion[k], e);
    }
    return st;
}

void spx_layers_free(spx_layers *l)
{
    for (size_t k = 0; k < l->ndistortion; k++)
        spx_free(l->distortion[k].all);
    spx_free(l->distortion);
    spx_free(l->spatial);
    spx_free(l->spectral);
}
