/* Reads and writes /psf (products/psf_h5.h). */
#include "products/psf_h5.h"

#include <math.h>
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

/* Refuses coefficients of n to each of `nspec` traces and `npar` parameters that are no numbers. */
static spx_status check_finite(hid_t file, const char *path, size_t npar, size_t nspec, size_t n, const double *coef,
                               spx_err *e)
{
    for (size_t i = 0; i < npar * nspec * n; i++)
        if (!isfinite(coef[i]))
            return spx_fail_at(e, SPX_EINPUT, spx_h5_filename(file), path, "make the PSF again",
                               "a coefficient of trace %zu is not finite", i / n % nspec);
    return SPX_OK;
}

static spx_status read_series(hid_t file, const char *path, size_t *nspec, spx_psf_series *s, spx_err *e)
{
    size_t dims[2] = {*nspec, 0};
    spx_status st = spx_h5_read_f64(file, path, 2, dims, &s->coef, e);
    *nspec = dims[0];
    s->ncoef = dims[1];
    if (st == SPX_OK)
        st = check_finite(file, path, 1, dims[0], dims[1], s->coef, e);
    if (st == SPX_OK)
        st = spx_schema_check_units(file, path, e);
    return st == SPX_OK ? read_range(file, path, &s->wmin, &s->wmax, e) : st;
}

/* Names of integer group attributes. */
static const char *const numbers[] = {"ghdegx", "ghdegy", "hsizex", "hsizey", "npix_x", "npix_y"};

/* Reads an integer attribute of the group. */
static spx_status read_number(hid_t file, const char *name, int64_t *v, spx_err *e)
{
    const spx_status st = spx_h5_attr_i64(file, "/psf", name, v, e);
    if (st == SPX_OK && (*v < 0 || *v > 1000000))
        return spx_fail_at(e, SPX_EINPUT, spx_h5_filename(file), "/psf", NULL, "attribute %s is %lld: out of range",
                           name, (long long)*v);
    return st;
}

/* Reads one range of wavelengths a trace, where the file has it; of wave_range each has to hold more than one. */
static spx_status read_ranges(hid_t file, const char *path, size_t nspec, int empty, double **range, spx_err *e)
{
    size_t dims[2] = {nspec, 2};
    *range = NULL;
    if (!spx_h5_exists(file, path))
        return SPX_OK;
    spx_status st = spx_schema_check_units(file, path, e);
    if (st == SPX_OK)
        st = spx_h5_read_f64(file, path, 2, dims, range, e);
    for (size_t f = 0; f < nspec && st == SPX_OK; f++) {
        const double lo = (*range)[2 * f], hi = (*range)[2 * f + 1];
        if (!(isfinite(hi - lo) && (empty || hi > lo)))
            st = spx_fail_at(e, SPX_EINPUT, spx_h5_filename(file), path, NULL,
                             "trace %zu: %g to %g Angstrom is no range", f, lo, hi);
    }
    return st;
}

/* Reads what single traces have in version 2.0. */
static spx_status read_traces(hid_t file, spx_psf *psf, spx_err *e)
{
    size_t n = psf->nspec;
    double *range = NULL;
    uint32_t *status = NULL;
    spx_status st = read_ranges(file, "/psf/wave_range", n, 0, &range, e);
    if (range != NULL)
        spx_psf_set_wave_range(psf, range);
    if (st == SPX_OK)
        st = read_ranges(file, "/psf/valid_range", n, 1, &psf->valid_range, e);
    if (st == SPX_OK && spx_h5_exists(file, "/psf/status"))
        st = spx_h5_read_u32(file, "/psf/status", 1, &n, &status, e);
    if (st == SPX_OK && status != NULL && (psf->status = spx_alloc(n, sizeof *psf->status, e)) == NULL)
        st = SPX_EIO;
    for (size_t f = 0; f < n && st == SPX_OK && status != NULL; f++)
        psf->status[f] = (uint16_t)status[f];
    spx_free(status);
    if (st == SPX_OK && spx_h5_exists(file, "/psf/bundle"))
        st = spx_h5_read_i32(file, "/psf/bundle", 1, &n, &psf->bundle, e);
    for (size_t f = 1; f < n && st == SPX_OK && psf->bundle != NULL; f++)
        if (psf->bundle[f] < psf->bundle[f - 1])
            st = spx_fail_at(e, SPX_EINPUT, spx_h5_filename(file), "/psf/bundle", NULL,
                             "trace %zu is of bundle %d, the one before of %d: numbers should never fall", f,
                             (int)psf->bundle[f], (int)psf->bundle[f - 1]);
    if (st == SPX_OK && spx_h5_exists(file, "/psf/fibre"))
        st = spx_h5_read_u32(file, "/psf/fibre", 1, &n, &psf->fibre, e);
    if (st == SPX_OK && spx_h5_exists(file, "/psf/order"))
        st = spx_h5_read_i32(file, "/psf/order", 1, &n, &psf->order, e);
    return st;
}

/* Reads the arrays of over-sampled spots. */
static spx_status read_grid(hid_t file, spx_psf *psf, spx_err *e)
{
    spx_psf_grid *g = &psf->grid;
    size_t dims[4] = {0, 0, 0, 0}, nspec = psf->nspec;
    int64_t oversample = 0;
    spx_status st = spx_h5_read_f32(file, "/psf/spots", 4, dims, &g->spot, e);
    if (st == SPX_OK)
        st = spx_h5_attr_i64(file, "/psf/spots", "oversample", &oversample, e);
    if (st == SPX_OK)
        st = spx_h5_attr_f64(file, "/psf/spots", "sigmax", &g->sigma_x, e);
    if (st == SPX_OK)
        st = spx_h5_attr_f64(file, "/psf/spots", "sigmay", &g->sigma_y, e);
    if (st == SPX_OK)
        st = spx_h5_read_f64(file, "/psf/spot_pos", 1, &dims[0], &g->pos, e);
    if (st == SPX_OK)
        st = spx_schema_check_units(file, "/psf/spot_wave", e);
    if (st == SPX_OK)
        st = spx_h5_read_f64(file, "/psf/spot_wave", 1, &dims[1], &g->wave, e);
    if (st == SPX_OK)
        st = spx_h5_read_f64(file, "/psf/fibre_pos", 1, &nspec, &g->fibre_pos, e);
    if (st == SPX_OK && spx_h5_exists(file, "/psf/spot_x"))
        st = spx_h5_read_f64(file, "/psf/spot_x", 2, dims, &g->place_x, e);
    if (st == SPX_OK && spx_h5_exists(file, "/psf/spot_y"))
        st = spx_h5_read_f64(file, "/psf/spot_y", 2, dims, &g->place_y, e);
    g->npos = dims[0];
    g->nwave = dims[1];
    g->my = dims[2];
    g->mx = dims[3];
    g->oversample = oversample > 0 && oversample < 1000000 ? (int)oversample : 0;
    return st;
}

static spx_status write_grid(hid_t file, const spx_psf *psf, spx_err *e)
{
    const spx_psf_grid *g = &psf->grid;
    const size_t dims[4] = {g->npos, g->nwave, g->my, g->mx};
    spx_status st = spx_h5_write(file, "/psf/spots", H5T_NATIVE_FLOAT, 4, dims, g->spot, e);
    if (st == SPX_OK)
        st = spx_h5_set_i64(file, "/psf/spots", "oversample", g->oversample, e);
    if (st == SPX_OK)
        st = spx_h5_set_f64(file, "/psf/spots", "sigmax", g->sigma_x, e);
    if (st == SPX_OK)
        st = spx_h5_set_f64(file, "/psf/spots", "sigmay", g->sigma_y, e);
    if (st == SPX_OK)
        st = spx_h5_write_real(file, "/psf/spot_pos", 8, 1, &dims[0], g->pos, e);
    if (st == SPX_OK)
        st = spx_h5_write_real(file, "/psf/spot_wave", 8, 1, &dims[1], g->wave, e);
    if (st == SPX_OK)
        st = spx_h5_write_real(file, "/psf/fibre_pos", 8, 1, &psf->nspec, g->fibre_pos, e);
    if (st == SPX_OK && g->place_x != NULL)
        st = spx_h5_write_real(file, "/psf/spot_x", 8, 2, dims, g->place_x, e);
    if (st == SPX_OK && g->place_y != NULL)
        st = spx_h5_write_real(file, "/psf/spot_y", 8, 2, dims, g->place_y, e);
    return st;
}

/* Reads the kind of spot, which version 1.0 does not say. */
static spx_status read_type(hid_t file, spx_psf *psf, spx_err *e)
{
    char type[32];
    psf->type = SPX_PSF_GAUSS_HERMITE;
    if (!spx_h5_has_attr(file, "/psf", "psftype"))
        return SPX_OK;
    spx_status st = spx_h5_attr_str(file, "/psf", "psftype", type, sizeof type, e);
    int k = SPX_PSF_GAUSS_HERMITE;
    while (st == SPX_OK && k <= SPX_PSF_SPOTGRID && strcmp(type, spx_psf_type_name((spx_psf_type)k)) != 0)
        k++;
    if (st == SPX_OK && k > SPX_PSF_SPOTGRID)
        st = spx_fail_at(e, SPX_EINPUT, spx_h5_filename(file), "/psf", "use a newer specpipe",
                         "attribute psftype is '%s', a kind of spot that this program does not know", type);
    if (st != SPX_OK)
        return st;
    psf->type = (spx_psf_type)k;
    if (psf->type == SPX_PSF_SPOTGRID)
        return read_grid(file, psf, e);
    if (psf->type != SPX_PSF_GAUSS_HERMITE2)
        return SPX_OK;
    int64_t degree[2] = {0, 0};
    st = read_number(file, "ghdegx2", &degree[0], e);
    if (st == SPX_OK)
        st = read_number(file, "ghdegy2", &degree[1], e);
    psf->ghdegx2 = (int)degree[0];
    psf->ghdegy2 = (int)degree[1];
    return st;
}

/* Reads the fractional error of the spots. */
static spx_status read_error(hid_t file, double *v, spx_err *e)
{
    const spx_status st = spx_h5_attr_f64(file, "/psf", "psferr", v, e);
    if (st == SPX_OK && !(*v >= 0 && isfinite(*v * *v)))
        return spx_fail_at(e, SPX_EINPUT, spx_h5_filename(file), "/psf", NULL,
                           "attribute psferr is %g: should be a fraction of the spot", *v);
    return st;
}

spx_status spx_psf_read(hid_t file, spx_psf *psf, spx_err *e)
{
    int64_t v[6];
    memset(psf, 0, sizeof *psf);
    spx_status st = spx_schema_accept(file, "/psf", "psf", e);
    for (size_t i = 0; i < 6 && st == SPX_OK; i++)
        st = read_number(file, numbers[i], &v[i], e);
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
    if ((st = read_error(file, &psf->psferr, e)) != SPX_OK ||
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
        (st = check_finite(file, "/psf/coeff", dims[0], dims[1], dims[2], psf->coeff, e)) != SPX_OK ||
        (st = spx_schema_check_units(file, "/psf/coeff", e)) != SPX_OK ||
        (st = read_range(file, "/psf/coeff", &psf->wmin, &psf->wmax, e)) != SPX_OK ||
        (st = spx_cards_read(file, "/psf/header", &psf->header, e)) != SPX_OK)
        return st;
    psf->ndeg = dims[2];
    if ((st = read_type(file, psf, e)) != SPX_OK || (st = read_traces(file, psf, e)) != SPX_OK)
        return st;
    if (spx_h5_has_attr(file, "/psf", "camera") &&
        (st = spx_h5_attr_str(file, "/psf", "camera", psf->camera, sizeof psf->camera, e)) != SPX_OK)
        return st;
    if ((st = spx_psf_index(psf, e)) != SPX_OK || (st = spx_psf_mark_lost(psf, e)) != SPX_OK)
        spx_err_at(e, spx_h5_filename(file), "/psf");
    return st;
}

/* Writes the kind of spot and what single traces have; where there is nothing but version 1.0 has, the block is of that
 * version, which older programs read. */
static spx_status write_traces(hid_t file, const spx_psf *psf, spx_err *e)
{
    const size_t n = psf->nspec, dims[2] = {n, 2};
    int tilt = 0;
    for (size_t k = 0; k < psf->npar; k++)
        tilt |= strcmp(psf->param[k], "TILT") == 0;
    if (psf->type == SPX_PSF_GAUSS_HERMITE && !tilt && psf->wave_range == NULL && psf->valid_range == NULL &&
        psf->status == NULL && psf->bundle == NULL && psf->fibre == NULL && psf->order == NULL)
        return spx_h5_set_str(file, "/psf", "version", "1.0", e);
    spx_status st = spx_h5_set_str(file, "/psf", "psftype", spx_psf_type_name(psf->type), e);
    if (st == SPX_OK && psf->type == SPX_PSF_SPOTGRID)
        st = write_grid(file, psf, e);
    else if (st == SPX_OK) /* has nothing that is new in 2.1 */
        st = spx_h5_set_str(file, "/psf", "version", "2.0", e);
    if (st == SPX_OK && psf->type == SPX_PSF_GAUSS_HERMITE2)
        st = spx_h5_set_i64(file, "/psf", "ghdegx2", psf->ghdegx2, e);
    if (st == SPX_OK && psf->type == SPX_PSF_GAUSS_HERMITE2)
        st = spx_h5_set_i64(file, "/psf", "ghdegy2", psf->ghdegy2, e);
    if (st == SPX_OK && psf->wave_range != NULL)
        st = spx_h5_write_real(file, "/psf/wave_range", 8, 2, dims, psf->wave_range, e);
    if (st == SPX_OK && psf->valid_range != NULL)
        st = spx_h5_write_real(file, "/psf/valid_range", 8, 2, dims, psf->valid_range, e);
    if (st == SPX_OK && psf->status != NULL)
        st = spx_h5_write(file, "/psf/status", H5T_NATIVE_UINT16, 1, &n, psf->status, e);
    if (st == SPX_OK && psf->bundle != NULL)
        st = spx_h5_write(file, "/psf/bundle", H5T_NATIVE_INT32, 1, &n, psf->bundle, e);
    if (st == SPX_OK && psf->fibre != NULL)
        st = spx_h5_write(file, "/psf/fibre", H5T_NATIVE_UINT32, 1, &n, psf->fibre, e);
    if (st == SPX_OK && psf->order != NULL)
        st = spx_h5_write(file, "/psf/order", H5T_NATIVE_INT32, 1, &n, psf->order, e);
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
    return st == SPX_OK ? write_traces(file, psf, e) : st;
}
