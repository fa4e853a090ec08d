/* psf_edit FILE COMMAND...: give the PSF of an HDF5 file what version 2.0 of its block has, for tests.
 *     orders FIRST:LAST,FIRST:LAST...   ranges of wavelengths of their own, the last for all traces that follow; traces
 *                                       and spots stay where they are: the series are changed to the new ranges
 *     valid FIBRE FIRST:LAST            range in which a trace may be used; that of others is as wide as their series
 *     status FIBRE FLAGS                status of a fibre; 0 of others
 *     bundles N,N...                    sizes of the bundles, one after another
 *     tilt VALUE                        rows of spots lean by so many columns a row
 *     number FIRST                      numbers of the fibres, from FIRST, and order 40, 39 ...
 *     size COLUMNS ROWS                 of the CCD
 * Several commands one after another. Exit status 0, or 1 with a message. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "products/psf_h5.h"
#include "products/psf_index.h"
#include "psf/psf.h"

/* Series of trace f from the range [lo, hi] to [a, b], exactly: values at n points are interpolated by the polynomial,
 * which is of degree n - 1. */
static void change_range(size_t n, double *c, double lo, double hi, double a, double b)
{
    double v[32], matrix[32][33];
    for (size_t k = 0; k < n; k++) {
        double p[32];
        const double u = n > 1 ? 2.0 * (double)k / (double)(n - 1) - 1 : 0;
        const double old = 2 * (a + 0.5 * (u + 1) * (b - a) - lo) / (hi - lo) - 1;
        p[0] = 1;
        p[1] = u;
        for (size_t i = 2; i < n; i++)
            p[i] = ((double)(2 * i - 1) * u * p[i - 1] - (double)(i - 1) * p[i - 2]) / (double)i;
        memcpy(matrix[k], p, n * sizeof *p);
        p[1] = old;
        for (size_t i = 2; i < n; i++)
            p[i] = ((double)(2 * i - 1) * old * p[i - 1] - (double)(i - 1) * p[i - 2]) / (double)i;
        v[k] = 0;
        for (size_t i = 0; i < n; i++)
            v[k] += c[i] * p[i];
        matrix[k][n] = v[k];
    }
    for (size_t i = 0; i < n; i++) { /* Gauss-Jordan with pivots */
        size_t best = i;
        for (size_t k = i + 1; k < n; k++)
            best = matrix[k][i] * matrix[k][i] > matrix[best][i] * matrix[best][i] ? k : best;
        for (size_t j = 0; j <= n; j++) {
            const double swap = matrix[i][j];
            matrix[i][j] = matrix[best][j];
            matrix[best][j] = swap;
        }
        for (size_t k = 0; k < n; k++)
            for (size_t j = n + 1; k != i && j-- > i;)
                matrix[k][j] -= matrix[k][i] / matrix[i][i] * matrix[i][j];
    }
    for (size_t i = 0; i < n; i++)
        c[i] = matrix[i][n] / matrix[i][i];
}

/* Range FIRST:LAST at *text, which goes behind it and a comma. */
static int read_range(char **text, double *range)
{
    char *end;
    range[0] = strtod(*text, &end);
    if (*end != ':')
        return 0;
    range[1] = strtod(end + 1, text);
    *text += **text == ',';
    return range[1] > range[0];
}

static int orders(spx_psf *p, char *text)
{
    double *range = spx_alloc2(p->nspec, 2, sizeof *range, NULL);
    int ok = range != NULL && p->wave_range == NULL && p->x.ncoef <= 32 && p->y.ncoef <= 32 && p->ndeg <= 32;
    for (size_t f = 0; f < p->nspec && ok; f++) {
        double *r = range + 2 * f;
        if (f > 0 && *text == '\0')
            memcpy(r, r - 2, 2 * sizeof *r);
        else
            ok = read_range(&text, r);
        change_range(p->x.ncoef, p->x.coef + f * p->x.ncoef, p->x.wmin, p->x.wmax, r[0], r[1]);
        change_range(p->y.ncoef, p->y.coef + f * p->y.ncoef, p->y.wmin, p->y.wmax, r[0], r[1]);
        for (size_t k = 0; k < p->npar; k++)
            change_range(p->ndeg, p->coeff + (k * p->nspec + f) * p->ndeg, p->wmin, p->wmax, r[0], r[1]);
    }
    spx_psf_set_wave_range(p, range);
    return ok;
}

static int valid(spx_psf *p, size_t fibre, char *text)
{
    if (p->valid_range == NULL && (p->valid_range = spx_alloc2(p->nspec, 2, sizeof(double), NULL)) != NULL)
        for (size_t f = 0; f < p->nspec; f++) {
            p->valid_range[2 * f] = p->wave_range != NULL ? p->wave_range[2 * f] : p->wmin;
            p->valid_range[2 * f + 1] = p->wave_range != NULL ? p->wave_range[2 * f + 1] : p->wmax;
        }
    return p->valid_range != NULL && fibre < p->nspec && read_range(&text, p->valid_range + 2 * fibre);
}

static int flag(spx_psf *p, size_t fibre, unsigned long status)
{
    if (p->status == NULL)
        p->status = spx_alloc(p->nspec, sizeof *p->status, NULL);
    if (p->status == NULL || fibre >= p->nspec)
        return 0;
    p->status[fibre] = (uint16_t)status;
    return 1;
}

static int bundles(spx_psf *p, char *text)
{
    unsigned long left = 0;
    int32_t bundle = -1;
    if ((p->bundle = spx_alloc(p->nspec, sizeof *p->bundle, NULL)) == NULL)
        return 0;
    for (size_t f = 0; f < p->nspec; f++, left--) {
        if (left == 0) {
            left = strtoul(text, &text, 10);
            text += *text == ',';
            bundle++;
        }
        if (left == 0)
            return 0;
        p->bundle[f] = bundle;
    }
    return left == 0 && *text == '\0';
}

static int tilt(spx_psf *p, double value)
{
    const size_t n = p->nspec * p->ndeg;
    spx_psf_param *param = spx_alloc(p->npar + 1, sizeof *param, NULL);
    double *coeff = spx_alloc((p->npar + 1) * n, sizeof *coeff, NULL);
    if (param == NULL || coeff == NULL)
        return 0;
    memcpy(param, p->param, p->npar * sizeof *param);
    memcpy(coeff, p->coeff, p->npar * n * sizeof *coeff);
    memcpy(param[p->npar], "TILT", sizeof "TILT");
    for (size_t f = 0; f < p->nspec; f++)
        coeff[p->npar * n + f * p->ndeg] = value;
    spx_free(p->param);
    spx_free(p->coeff);
    p->param = param;
    p->coeff = coeff;
    p->npar++;
    return spx_psf_index(p, NULL) == SPX_OK;
}

static int number(spx_psf *p, unsigned long first)
{
    p->fibre = spx_alloc(p->nspec, sizeof *p->fibre, NULL);
    p->order = spx_alloc(p->nspec, sizeof *p->order, NULL);
    for (size_t f = 0; f < p->nspec && p->fibre != NULL && p->order != NULL; f++) {
        p->fibre[f] = (uint32_t)(first + f);
        p->order[f] = 40 - (int32_t)f;
    }
    return p->fibre != NULL && p->order != NULL;
}

int main(int argc, char **argv)
{
    spx_err e = {0};
    spx_psf p = {0};
    int ok = argc > 2;
    hid_t file = ok ? H5Fopen(argv[1], H5F_ACC_RDWR, H5P_DEFAULT) : H5I_INVALID_HID;
    ok = ok && file >= 0 && spx_psf_read(file, &p, &e) == SPX_OK;
    for (int i = 2; i < argc && ok;) {
        const char *what = argv[i++];
        const int left = argc - i;
        if (strcmp(what, "orders") == 0 && left > 0)
            ok = orders(&p, argv[i++]);
        else if (strcmp(what, "valid") == 0 && left > 1) {
            ok = valid(&p, strtoul(argv[i], NULL, 10), argv[i + 1]);
            i += 2;
        } else if (strcmp(what, "status") == 0 && left > 1) {
            ok = flag(&p, strtoul(argv[i], NULL, 10), strtoul(argv[i + 1], NULL, 10));
            i += 2;
        } else if (strcmp(what, "bundles") == 0 && left > 0)
            ok = bundles(&p, argv[i++]);
        else if (strcmp(what, "tilt") == 0 && left > 0)
            ok = tilt(&p, strtod(argv[i++], NULL));
        else if (strcmp(what, "number") == 0 && left > 0)
            ok = number(&p, strtoul(argv[i++], NULL, 10));
        else if (strcmp(what, "size") == 0 && left > 1) {
            p.npix_x = strtoul(argv[i], NULL, 10);
            p.npix_y = strtoul(argv[i + 1], NULL, 10);
            i += 2;
        } else
            ok = 0;
        if (!ok)
            fprintf(stderr, "psf_edit: cannot do %s\n", what);
    }
    ok = ok && H5Ldelete(file, "/psf", H5P_DEFAULT) >= 0 && spx_psf_write(file, &p, &e) == SPX_OK;
    ok = (file < 0 || H5Fclose(file) >= 0) && ok;
    if (!ok)
        fprintf(stderr, "psf_edit: %s: %s\n", argc > 1 ? argv[1] : "no file", spx_err_text(&e));
    spx_psf_free(&p);
    return !ok;
}
