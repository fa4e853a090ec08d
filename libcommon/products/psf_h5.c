/* Reads and writes /psf (products/psf_h5.h). */
#include "products/psf_h5.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "h5/attr.h"
#include "h5/object.h"
#include "h5/read.h"
#include "h5/schema.h"
#include "h5/write.h"
#include "products/cards_h5.h"
#include "products/psf_index.h"

static spx_status read_range(hid_t file, const char *path, double *wmin, double *wmax, spx_err *e)
{
    spx_status st = spx_h5_attr_f64(file, path, "wavemin", wmin, e);
    return st == SPX_OK ? spx_h5_attr_f64(file, path, "wavemax", wmax, e) : st;
}

static spx_status write_range(hid_t file, const char *path, double wmin, double wmax, spx_err *e)
{
    spx_status st = spx_h5_set_f64(file, path, "wavemin", wmin, e);
    return st == SPX_OK ? spx_h5_set_f64(file, path, "wavemax", wmax, e) : st;
}

static spx_status read_series(hid_t file, const char *path, size_t *nspec, spx_psf_series *s, spx_err *e)
{
    size_t dims[2] = {*nspec, 0};
    spx_status st = spx_h5_read_f64(file, path, 2, dims, &s->coef, e);
    *nspec = dims[0];
    s->ncoef = dims[1];
    return st == SPX_OK ? read_range(file, path, &s->wmin, &s->wmax, e) : st;
}

/* Names of integer group attributes. */
static const char *const numbers[] = {"ghdegx", "ghdegy", "hsizex", "hsizey", "npix_x", "npix_y"};

spx_status spx_psf_read(hid_t file, spx_psf *psf, spx_err *e)
{
    int64_t v[6];
    memset(psf, 0, sizeof *psf);
    spx_status st = spx_schema_accept(file, "/psf", "psf", e);
    for (size_t i = 0; i < 6 && st == SPX_OK; i++) {
        st = spx_h5_attr_i64(file, "/psf", numbers[i], &v[i], e);
        if (st == SPX_OK && (v[i] < 0 || v[i] > 1000000))
            st = spx_fail_at(e, SPX_EINPUT, spx_h5_filename(file), "/psf", NULL, "attribute %s is %lld: out of range",
                             numbers[i], (long long)v[i]);
    }
    if (st != SPX_OK)
        return st;
    psf->ghdegx = (int)v[0];
    psf->ghdegy = (int)v[1];
    psf->hsizex = (int)v[2];
    psf->hsizey = (int)v[3];
    psf->npix_x = (size_t)v[4];
    psf->npix_y = (size_t)v[5];
    char *param = NULL;
    size_t dims[3] = {0, 0, 0};
    if ((st = spx_h5_attr_f64(file, "/psf", "psferr", &psf->psferr, e)) != SPX_OK ||
        (st = read_series(file, "/psf/xtrace", &psf->nspec, &psf->x, e)) != SPX_OK ||
        (st = read_series(file, "/psf/ytrace", &psf->nspec, &psf->y, e)) != SPX_OK ||
        (st = spx_h5_read_strings(file, "/psf/param", sizeof *psf->param, &psf->npar, &param, e)) != SPX_OK)
        return st;
    psf->param = (spx_psf_param *)param;
    for (size_t i = 0; i < psf->npar; i++) {
        psf->param[i][sizeof *psf->param - 1] = '\0';
        for (size_t k = sizeof *psf->param; k-- > 0 && (psf->param[i][k] == ' ' || psf->param[i][k] == '\0');)
            psf->param[i][k] = '\0';
    }
    dims[0] = psf->npar;
    dims[1] = psf->nspec;
    if ((st = spx_h5_read_f64(file, "/psf/coeff", 3, dims, &psf->coeff, e)) != SPX_OK ||
        (st = read_range(file, "/psf/coeff", &psf->wmin, &psf->wmax, e)) != SPX_OK ||
        (st = spx_cards_read(file, "/psf/header", &psf->header, e)) != SPX_OK)
        return st;
    psf->ndeg = dims[2];
    if (spx_h5_has_attr(file, "/psf", "camera") &&
        (st = spx_h5_attr_str(file, "/psf", "camera", psf->camera, sizeof psf->camera, e)) != SPX_OK)
        return st;
    if ((st = spx_psf_index(psf, e)) != SPX_OK)
        spx_err_at(e, spx_h5_filename(file), "/psf");
    return st;
}

spx_status spx_psf_write(hid_t file, const spx_psf *psf, spx_err *e)
{
    const int64_t v[6] = {psf->ghdegx, psf->ghdegy,          psf->hsizex,
                          psf->hsizey, (int64_t)psf->npix_x, (int64_t)psf->npix_y};
    size_t dx[2] = {psf->nspec, psf->x.ncoef}, dy[2] = {psf->nspec, psf->y.ncoef};
    size_t dc[3] = {psf->npar, psf->nspec, psf->ndeg};
    spx_status st = spx_h5_write_real(file, "/psf/xtrace", 8, 2, dx, psf->x.coef, e);
    if (st == SPX_OK && (st = write_range(file, "/psf/xtrace", psf->x.wmin, psf->x.wmax, e)) == SPX_OK &&
        (st = spx_h5_write_real(file, "/psf/ytrace", 8, 2, dy, psf->y.coef, e)) == SPX_OK &&
        (st = write_range(file, "/psf/ytrace", psf->y.wmin, psf->y.wmax, e)) == SPX_OK &&
        (st = spx_h5_write_strings(file, "/psf/param", sizeof *psf->param, psf->npar, (const char *)psf->param, e)) ==
            SPX_OK &&
        (st = spx_h5_write_real(file, "/psf/coeff", 8, 3, dc, psf->coeff, e)) == SPX_OK &&
        (st = write_range(file, "/psf/coeff", psf->wmin, psf->wmax, e)) == SPX_OK &&
        (st = spx_cards_write(file, "/psf/header", &psf->header, e)) == SPX_OK &&
        (st = spx_h5_set_str(file, "/psf", "camera", psf->camera, e)) == SPX_OK)
        st = spx_h5_set_f64(file, "/psf", "psferr", psf->psferr, e);
    for (size_t i = 0; i < 6 && st == SPX_OK; i++)
        st = spx_h5_set_i64(file, "/psf", numbers[i], v[i], e);
    return st;
}
