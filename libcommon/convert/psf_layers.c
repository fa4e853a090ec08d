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

static const char polynomial[] = "PolynomialDistortion", mosaic[] = "MosaicPolynomialDistortion";

/* HDU of distortion k; *two: of two CCDs. -1: of another kind. */
static int find_distortion(const spx_fits *f, size_t k, int *two)
{
    char name[64];
    snprintf(name, sizeof name, "%s_%zu", polynomial, k);
    const int one = spx_fits_find_table(f, name);
    snprintf(name, sizeof name, "%s_%zu", mosaic, k);
    *two = one < 0;
    return one >= 0 ? one : spx_fits_find_image(f, name, 1);
}

int spx_layers_found(const spx_fits *f)
{
    const int layers = spx_fits_find_table(f, "LAYERS"), list = spx_fits_find_table(f, "DISTORTIONS");
    if (layers >= 0 && list >= 0) {
        int two, all = 1;
        for (size_t k = 0; k < f->hdu[list].nrow; k++)
            all &= find_distortion(f, k, &two) >= 0;
        return all ? 1 : -1;
    }
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

/* Range of an HDU, from -1 to 1: MINX and so on. Whole numbers are pixels, of which the first and last are whole, too.
 */
static spx_status read_range(const spx_fits *f, int hdu, spx_distortion *d, spx_err *e)
{
    static const char *const key[] = {"MINX", "MINY", "MAXX", "MAXY"};
    double box[4];
    spx_status st = SPX_OK;
    for (int k = 0; k < 4 && st == SPX_OK; k++)
        st = spx_fits_need_key(f, hdu, key[k], &box[k], e);
    for (int k = 0; k < 2 && st == SPX_OK; k++) {
        const double wide = box[2 + k] - box[k], pixels = box[k] == floor(box[k]) && box[2 + k] == floor(box[2 + k]);
        if (!(wide > 0))
            return spx_fail_at(e, SPX_EINPUT, f->name, spx_fits_hduname(f, (size_t)hdu), NULL,
                               "the range of the distortion is %g to %g", box[k], box[2 + k]);
        d->middle[k] = 0.5 * (box[k] + box[2 + k]);
        d->scale[k] = 2 / (wide + pixels);
    }
    return st;
}

static spx_status read_distortion(spx_fits *f, size_t k, spx_distortion *d, spx_err *e)
{
    enum { MOST = 20 };
    const int hdu = find_distortion(f, k, &d->mosaic);
    const char *name = spx_fits_hduname(f, (size_t)hdu);
    double order = 0, *all = NULL;
    spx_status st = read_range(f, hdu, d, e);
    if (st == SPX_OK)
        st = spx_fits_need_key(f, hdu, "ORDER", &order, e);
    if (st == SPX_OK && !(order >= 0 && order <= MOST && order == floor(order)))
        st = spx_fail_at(e, SPX_EINPUT, f->name, name, NULL, "ORDER = %g should be 0 to %d", order, MOST);
    if (st != SPX_OK)
        return st;
    d->order = (int)order;
    d->nterm = (size_t)((d->order + 1) * (d->order + 2) / 2);
    const size_t before = d->mosaic ? 6 : 0, n = d->mosaic ? f->hdu[hdu].nelem : f->hdu[hdu].nrow;
    if (n != (d->mosaic ? 6 + 2 * d->nterm : d->nterm))
        return spx_fail_at(e, SPX_EINPUT, f->name, name, NULL, "has %zu coefficients: ORDER is %d", n, d->order);
    if (d->mosaic) {
        st = spx_fits_f64(f, (size_t)hdu, &all, e);
        if (st == SPX_OK && (d->x = spx_alloc(2 * d->nterm, sizeof *d->x, e)) == NULL)
            st = SPX_EIO;
        if (st == SPX_OK) {
            memcpy(d->right, all, before * sizeof *all);
            memcpy(d->x, all + before, 2 * d->nterm * sizeof *all);
        }
    } else {
        size_t one = 0, two = 0;
        double *y = NULL;
        st = spx_fits_column_f64(f, (size_t)hdu, "xCoefficients", &one, &all, e);
        if (st == SPX_OK)
            st = spx_fits_column_f64(f, (size_t)hdu, "yCoefficients", &two, &y, e);
        if (st == SPX_OK && (one != 1 || two != 1))
            st = spx_fail_at(e, SPX_EINPUT, f->name, name, NULL, "columns should hold one number a row");
        if (st == SPX_OK && (d->x = spx_alloc(2 * d->nterm, sizeof *d->x, e)) == NULL)
            st = SPX_EIO;
        if (st == SPX_OK) {
            memcpy(d->x, all, d->nterm * sizeof *all);
            memcpy(d->x + d->nterm, y, d->nterm * sizeof *y);
        }
        spx_free(y);
    }
    spx_free(all);
    d->y = st == SPX_OK ? d->x + d->nterm : NULL;
    if (st == SPX_OK)
        st = all_finite(f, name, 2 * d->nterm, d->x, e);
    return st == SPX_OK ? all_finite(f, name, 6, d->right, e) : st;
}

static void apply(const double affine[6], double x, double y, double out[2])
{
    out[0] += affine[0] * x + affine[2] * y + affine[4];
    out[1] += affine[1] * x + affine[3] * y + affine[5];
}

/* Adds the distortion at a point to out. */
static void distort(const spx_distortion *d, const double at[2], double out[2])
{
    const double x = (at[0] - d->middle[0]) * d->scale[0], y = (at[1] - d->middle[1]) * d->scale[1];
    size_t k = 0;
    for (int n = 0; n <= d->order; n++)
        for (int i = 0; i <= n; i++, k++) {
            const double term = pow(x, n - i) * pow(y, i);
            out[0] += d->x[k] * term;
            out[1] += d->y[k] * term;
        }
    if (d->mosaic && at[0] > d->middle[0])
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
    for (size_t k = 0; k < l->ndistortion; k++)
        distort(&l->distortion[k], at, place);
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

spx_status spx_layers_read(spx_fits *f, size_t nfibre, const uint32_t *id, const double box[4], spx_layers_base *base,
                           const void *of, spx_layers *l, spx_err *e)
{
    const int hdu = spx_fits_find_table(f, "LAYERS"), list = spx_fits_find_table(f, "DISTORTIONS");
    double *right = NULL;
    *l = (spx_layers){.nfibre = nfibre, .id = id, .base = base, .of = of};
    for (int k = 0; k < 2; k++) {
        l->middle[k] = 0.5 * (box[2 * k] + box[2 * k + 1]);
        l->scale[k] = 2 / (box[2 * k + 1] - box[2 * k]);
    }
    for (size_t i = 1; i < nfibre; i++)
        if (id[i] <= id[i - 1])
            return spx_fail_at(e, SPX_EINPUT, f->name, "FIBERID", NULL, "numbers of fibres should increase");
    if (f->hdu[hdu].nrow != 1)
        return spx_fail_at(e, SPX_EINPUT, f->name, "LAYERS", NULL, "has %zu rows instead of one", f->hdu[hdu].nrow);
    spx_status st = read_cell(f, "spatial", nfibre, &l->spatial, e);
    if (st == SPX_OK)
        st = read_cell(f, "spectral", nfibre, &l->spectral, e);
    if (st == SPX_OK)
        st = read_cell(f, "rightCcd", 6, &right, e);
    if (st == SPX_OK) {
        memcpy(l->right, right, sizeof l->right);
        st = spx_fits_cell_true(f, (size_t)hdu, "dividedDetector", 0, &l->divided, e);
    }
    spx_free(right);
    const size_t n = f->hdu[list].nrow;
    if (st == SPX_OK && (l->distortion = spx_alloc(n + 1, sizeof *l->distortion, e)) == NULL)
        st = SPX_EIO;
    for (size_t k = 0; k < n && st == SPX_OK; k++) {
        l->ndistortion = k + 1;
        st = read_distortion(f, k, &l->distortion[k], e);
    }
    return st == SPX_OK ? find_scale(l, e) : st;
}

void spx_layers_free(spx_layers *l)
{
    for (size_t k = 0; k < l->ndistortion; k++)
        spx_free(l->distortion[k].x);
    spx_free(l->distortion);
    spx_free(l->spatial);
    spx_free(l->spectral);
}
