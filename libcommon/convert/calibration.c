/* Writes calibrated frames, skies, flats and coadds as DESI's files (convert/products.h): layouts of desidatamodel, as
 * desispec and redrock read them. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "convert/bricks.h"
#include "convert/products.h"
#include "convert/products_parts.h"
#include "h5/attr.h"
#include "h5/object.h"
#include "h5/read.h"
#include "h5/schema.h"
#include "h5/table.h"
#include "products/arm_h5.h"
#include "products/cards_h5.h"
#include "products/flat_h5.h"
#include "products/frame_h5.h"
#include "products/sky_h5.h"
#include "products/spectra_h5.h"
#include "products/wavelength_h5.h"

/* ---- frames ---- */

/* Unit of the flux, empty where there is none. */
static void frame_unit(hid_t in, char unit[64])
{
    spx_err e = {0};
    unit[0] = '\0';
    if (spx_h5_exists(in, "/frame/flux") && spx_h5_has_attr(in, "/frame/flux", "units") &&
        spx_h5_attr_str(in, "/frame/flux", "units", unit, 64, &e) != SPX_OK)
        unit[0] = '\0';
}

static int in_electrons(hid_t in)
{
    char unit[64];
    frame_unit(in, unit);
    return strstr(unit, "electron") != NULL;
}

int spx_fits_is_cframe(hid_t in)
{
    return !in_electrons(in);
}

int spx_fits_is_sframe(hid_t in)
{
    return in_electrons(in) && spx_sky_is_subtracted(in);
}

spx_status spx_fits_put_cframe(hid_t in, spx_fits_out *o, spx_err *e)
{
    char unit[64];
    frame_unit(in, unit);
    if (!spx_fits_is_cframe(in))
        return spx_fail_at(e, SPX_EINPUT, spx_h5_filename(in), "/frame/flux",
                           "calibrate it with specx-flux, or write it with --as frame or sframe",
                           "is in '%s': the frame is not flux-calibrated", unit);
    return spx_fits_put_frame(in, o, e);
}

spx_status spx_fits_put_sframe(hid_t in, spx_fits_out *o, spx_err *e)
{
    char unit[64];
    frame_unit(in, unit);
    if (!spx_sky_is_subtracted(in))
        return spx_fail_at(e, SPX_EINPUT, spx_h5_filename(in), "/sky",
                           "subtract it with specx-sky, or write --as frame", "no sky was subtracted from the frame");
    if (!in_electrons(in))
        return spx_fail_at(e, SPX_EINPUT, spx_h5_filename(in), "/frame/flux", "write it with --as cframe",
                           "is in '%s': the frame is flux-calibrated already", unit);
    return spx_fits_put_frame(in, o, e);
}

/* ---- sky ---- */

/* One row of masks for every spectrum. */
static spx_status put_mask_rows(spx_fits_out *o, size_t nspec, size_t nwave, const uint32_t *row, spx_err *e)
{
    const size_t dims[2] = {nspec, nwave};
    uint32_t *mask = spx_alloc2(nspec, nwave, sizeof *mask, e);
    if (mask == NULL)
        return SPX_EIO;
    for (size_t i = 0; i < nspec; i++)
        memcpy(mask + i * nwave, row, nwave * sizeof *mask);
    const spx_status st = spx_fits_out_image(o, "MASK", SPX_FITS_UINT32, 2, dims, mask, NULL, e);
    spx_free(mask);
    return st;
}

/* Cards of the frame that the block came with, if any, and the history. */
static spx_status block_header(hid_t in, const char *unit, spx_cards *h, spx_err *e)
{
    spx_status st = spx_cards_read(in, "/frame/header", h, e);
    if (st == SPX_OK)
        st = spx_fits_unit_card(h, unit, e);
    return st == SPX_OK ? spx_fits_add_history(in, h, e) : st;
}

spx_status spx_fits_put_sky(hid_t in, spx_fits_out *o, spx_err *e)
{
    size_t dims[2] = {0, 0};
    double *model = NULL, *variance = NULL;
    uint32_t *mask = NULL;
    spx_arm a = {0};
    spx_cards h = {0};
    spx_table *fibermap = NULL;
    /* of a barycentric frame the sky has wavelengths of its own, but its models are on the frame's */
    const char *w = spx_h5_exists(in, "/frame/wavelength") ? "/frame/wavelength" : "/sky/wavelength";
    spx_status st = spx_schema_accept(in, "/sky", "sky", e);
    if (st == SPX_OK)
        st = spx_h5_read_f64(in, "/sky/model", 2, dims, &model, e);
    if (st == SPX_OK)
        st = spx_h5_read_f64(in, "/sky/variance", 2, dims, &variance, e);
    if (st == SPX_OK)
        st = spx_h5_read_u32(in, "/sky/mask", 1, &dims[1], &mask, e);
    a.nwave = dims[1];
    if (st == SPX_OK)
        st = spx_wavelength_read(in, w, &a.nwave, &a.wavelength, e);
    if (st == SPX_OK)
        st = spx_wavelength_read_words(in, w, &a.medium, &a.barycentric, NULL, e);
    if (st == SPX_OK && (dims[0] == 0 || dims[1] == 0))
        st = spx_fail_at(e, SPX_EINPUT, spx_h5_filename(in), "/sky/model", NULL, "holds no spectra");
    for (size_t k = 0; st == SPX_OK && k < dims[0] * dims[1]; k++) {
        const double v = variance[k];
        variance[k] = v > 0 && isfinite(1 / v) && mask[k % dims[1]] == 0 ? 1 / v : 0;
    }
    if (st == SPX_OK)
        st = spx_row_table_read(in, "/fibermap", dims[0], &fibermap, e);
    if (st == SPX_OK)
        st = block_header(in, "electron/Angstrom", &h, e);
    if (st == SPX_OK)
        st = spx_fits_put_reals(o, "SKY", -32, 2, dims, model, &h, e);
    if (st == SPX_OK)
        st = spx_fits_put_reals(o, "IVAR", -32, 2, dims, variance, NULL, e);
    if (st == SPX_OK)
        st = put_mask_rows(o, dims[0], dims[1], mask, e);
    if (st == SPX_OK)
        st = spx_fits_put_wavelength(o, "WAVELENGTH", 0, &a, e);
    if (st == SPX_OK)
        st = spx_fits_put_table(o, "FIBERMAP", fibermap, e);
    spx_free(model);
    spx_free(variance);
    spx_free(mask);
    spx_arm_free(&a);
    spx_cards_free(&h);
    spx_table_free(fibermap);
    return st;
}

/* ---- flat ---- */

spx_status spx_fits_put_fiberflat(hid_t in, spx_fits_out *o, spx_err *e)
{
    spx_flat f = {0};
    spx_cards h = {0};
    double *mean = NULL;
    spx_status st = spx_flat_read(in, &f, e);
    const size_t dims[2] = {f.nspec, f.nwave}, n = f.nwave;
    const spx_arm a = {.nwave = f.nwave, .wavelength = f.wavelength, .medium = f.medium};
    if (st == SPX_OK && (mean = spx_alloc(n, sizeof *mean, e)) == NULL)
        st = SPX_EIO;
    for (size_t i = 0; st == SPX_OK && i < f.nlamp * n; i++)
        mean[i % n] += f.mean[i] / (double)f.nlamp;
    if (st == SPX_OK && f.camera[0] != '\0')
        st = spx_cards_set_string(&h, "CAMERA", f.camera, NULL, e);
    if (st == SPX_OK)
        st = spx_fits_add_history(in, &h, e);
    if (st == SPX_OK)
        st = spx_fits_put_reals(o, "FIBERFLAT", -32, 2, dims, f.flat, &h, e);
    if (st == SPX_OK)
        st = spx_fits_put_reals(o, "IVAR", -32, 2, dims, f.ivar, NULL, e);
    if (st == SPX_OK)
        st = spx_fits_out_image(o, "MASK", SPX_FITS_UINT32, 2, dims, f.mask, NULL, e);
    if (st == SPX_OK)
        st = spx_fits_put_reals(o, "MEANSPEC", -32, 1, &n, mean, NULL, e);
    if (st == SPX_OK)
        st = spx_fits_put_wavelength(o, "WAVELENGTH", 0, &a, e);
    if (st == SPX_OK)
        st = spx_fits_put_table(o, "FIBERMAP", f.fibermap, e);
    spx_free(mean);
    spx_cards_free(&h);
    spx_flat_free(&f);
    return st;
}

/* ---- coadds ---- */

/* Number of rows of `exposures` (may be NULL) that a target has; 1 where it has none. */
static int32_t count_exposures(const int64_t *id, size_t n, int64_t target)
{
    int32_t count = 0;
    for (size_t i = 0; i < n && id != NULL; i++)
        count += id[i] == target;
    return count > 0 ? count : 1;
}

/* Adds the columns of coadds that readers ask for, where the fibermap lacks them: COADD_FIBERSTATUS, COADD_NUMEXP. */
static spx_status add_coadd_columns(spx_spectra *s, spx_err *e)
{
    spx_table *t = s->fibermap;
    int64_t *status = NULL, *id = NULL, *each = NULL;
    int32_t *out = spx_alloc(s->nspec, sizeof *out, e);
    spx_status st = out == NULL ? SPX_EIO : spx_table_find_i64(t, "FIBERSTATUS", &status, e);
    if (st == SPX_OK)
        st = spx_table_find_i64(t, "TARGETID", &id, e);
    if (st == SPX_OK)
        st = spx_table_find_i64(s->exp_fibermap, "TARGETID", &each, e);
    if (st == SPX_OK && id == NULL)
        st = spx_fail(e, SPX_EINPUT, "the fibermap has no TARGETID: coadds are of targets");
    for (size_t i = 0; i < s->nspec && st == SPX_OK; i++)
        out[i] = status != NULL ? (int32_t)status[i] : 0;
    if (st == SPX_OK && spx_table_find(t, "COADD_FIBERSTATUS") < 0)
        st = spx_table_add(t, "COADD_FIBERSTATUS", H5T_NATIVE_INT32, "", out, e);
    for (size_t i = 0; i < s->nspec && st == SPX_OK; i++)
        out[i] = count_exposures(each, s->exp_fibermap != NULL ? s->exp_fibermap->nrow : 0, id[i]);
    if (st == SPX_OK && spx_table_find(t, "COADD_NUMEXP") < 0)
        st = spx_table_add(t, "COADD_NUMEXP", H5T_NATIVE_INT32, "", out, e);
    spx_free(status);
    spx_free(id);
    spx_free(each);
    spx_free(out);
    return st;
}

/* Each target has one row. */
static spx_status check_targets(const spx_spectra *s, spx_err *e)
{
    int64_t *id = NULL;
    spx_status st = spx_table_find_i64(s->fibermap, "TARGETID", &id, e);
    for (size_t i = 0; i < s->nspec && id != NULL && st == SPX_OK; i++)
        for (size_t k = 0; k < i && st == SPX_OK; k++)
            if (id[i] == id[k])
                st = spx_fail(e, SPX_EINPUT,
                              "target %lld has several spectra: coadd them with h5merge --coadd, or write --as spectra",
                              (long long)id[i]);
    spx_free(id);
    return st;
}

spx_status spx_fits_put_coadd(hid_t in, spx_fits_out *o, spx_err *e)
{
    spx_spectra s = {0};
    spx_status st = spx_spectra_read_grids(in, 1, &s, e);
    if (st == SPX_OK && s.fibermap == NULL)
        st = spx_fail_at(e, SPX_EINPUT, spx_h5_filename(in), "/fibermap", "write --as spectra", "is missing");
    if (st == SPX_OK && (st = check_targets(&s, e)) == SPX_OK)
        st = add_coadd_columns(&s, e);
    if (st == SPX_OK)
        st = spx_fibermap_add_bricks(s.fibermap, e);
    if (st != SPX_OK)
        spx_err_at(e, spx_h5_filename(in), "/fibermap");
    if (st == SPX_OK)
        st = spx_fits_put_primary(in, o, &s.header, NULL, e);
    if (st == SPX_OK)
        st = spx_fits_put_table(o, "FIBERMAP", s.fibermap, e);
    if (st == SPX_OK) /* what was observed once is its own exposure */
        st = spx_fits_put_table(o, "EXP_FIBERMAP", s.exp_fibermap != NULL ? s.exp_fibermap : s.fibermap, e);
    for (size_t i = 0; st == SPX_OK && i < s.narm; i++)
        st = spx_fits_put_arm(in, o, s.nspec, &s.arm[i], e);
    if (st == SPX_OK)
        st = spx_fits_put_table(o, "SCORES", s.scores, e);
    spx_spectra_free(&s);
    return st;
}
