/* Recognises FITS files by content, and writes the blocks image, psf, frame and spectra of DESI files
 * (convert/blocks.h). */
#include "convert/blocks.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/mem.h"
#include "convert/products.h"
#include "convert/raw.h"
#include "convert/table_h5.h"
#include "fits/values.h"
#include "h5/table.h"
#include "num/wave.h"
#include "products/frame_h5.h"
#include "products/image_h5.h"
#include "products/psf_h5.h"
#include "products/psf_index.h"
#include "products/spectra_h5.h"

const char *const spx_fits_product_names[SPX_FITS_PRODUCTS + 1] = {
    "generic", "image", "psf", "frame", "spectra", "raw", "spectrum", "library", "model", "wavelength", NULL};

enum { NODATA = 1 << 24 }; /* mask bit of DESI frames */

/* ---- finding HDUs ---- */

/* Index of the image HDU of this name and number of dimensions, or -1. */
static int find_image(const spx_fits *f, const char *name, int ndim)
{
    int i = spx_fits_find(f, name);
    return i >= 0 && spx_fits_is_image(&f->hdu[i], ndim) ? i : -1;
}

static int find_table(const spx_fits *f, const char *name)
{
    int i = spx_fits_find(f, name);
    return i >= 0 && f->hdu[i].kind == SPX_FITS_BINTABLE ? i : -1;
}

/* 1 when HDU i is X_FLUX of an arm that has X_WAVELENGTH, too; arm: its name in lower case, prefix: "X_". */
static int arm_at(const spx_fits *f, size_t i, char arm[16], char prefix[16])
{
    const char *name = f->hdu[i].extname;
    size_t n = strlen(name);
    char other[96];
    if (n < 6 || n - 5 > 15 || strcasecmp(name + n - 5, "_FLUX") != 0 || !spx_fits_is_image(&f->hdu[i], 2))
        return 0;
    n -= 5;
    memcpy(prefix, name, n);
    prefix[n] = 0;
    for (size_t k = 0; k <= n; k++) {
        if (k < n && !isalnum((unsigned char)prefix[k]) && prefix[k] != '_')
            return 0;
        arm[k] = (char)tolower((unsigned char)prefix[k]);
    }
    snprintf(other, sizeof other, "%s_WAVELENGTH", prefix);
    return find_image(f, other, 1) >= 0;
}

/* Index of the table of a PSF of the first layout of PSFVER 2, or -1: no HDUs XTRACE and YTRACE, but rows X and Y in
 * the table of parameters, whatever its name; every row has its own wavelength range. */
static int find_psf_of_rows(const spx_fits *f)
{
    for (size_t i = 0; i < f->nhdu && spx_fits_find(f, "XTRACE") < 0; i++)
        if (f->hdu[i].kind == SPX_FITS_BINTABLE && spx_fits_find_column(&f->hdu[i], "PARAM") != NULL &&
            spx_fits_find_column(&f->hdu[i], "COEFF") != NULL && spx_fits_find_column(&f->hdu[i], "WAVEMIN") != NULL &&
            spx_fits_find_column(&f->hdu[i], "WAVEMAX") != NULL)
            return (int)i;
    return -1;
}

/* Reads PSFTYPE and PSFVER from the primary header, or from that of the PSF table. */
static int psf_type(const spx_fits *f, char type[32], double *version)
{
    int found = 0;
    *version = 0.0;
    for (size_t i = 0; i < f->nhdu && !found; i++) {
        const spx_cards *h = &f->hdu[i].header;
        char text[32];
        found = spx_cards_string(h, "PSFTYPE", type, 32);
        if (found && !spx_cards_double(h, "PSFVER", version) && spx_cards_string(h, "PSFVER", text, sizeof text))
            *version = atof(text);
    }
    return found;
}

spx_fits_product spx_fits_recognise(const spx_fits *f, char *note, size_t size)
{
    char type[32], arm[16], prefix[16];
    double version;
    note[0] = 0;
    if (psf_type(f, type, &version)) {
        if ((strcmp(type, "GAUSS-HERMITE") == 0 && (version == 2.0 || version == 3.0)) ||
            (strcmp(type, "GAUSS-HERMITE2") == 0 && (version == 1.0 || version == 2.0)))
            return SPX_FITS_AS_PSF;
        for (char *c = type; *c; c++)
            if (*c < 32 || *c > 126)
                *c = '?';
        snprintf(note, size,
                 "holds a PSF of type %s, version %g; the extraction uses GAUSS-HERMITE, version 2 or 3, and "
                 "GAUSS-HERMITE2, version 1 or 2",
                 type, version);
        return SPX_FITS_AS_GENERIC;
    }
    if (find_image(f, "IMAGE", 2) >= 0 &&
        (spx_fits_find(f, "IVAR") >= 0 || spx_fits_find(f, "MASK") >= 0 || spx_fits_find(f, "READNOISE") >= 0))
        return SPX_FITS_AS_IMAGE;
    if (find_image(f, "FLUX", 2) >= 0 && find_image(f, "WAVELENGTH", 1) >= 0 &&
        (spx_fits_find(f, "IVAR") >= 0 || spx_fits_find(f, "RESOLUTION") >= 0 || spx_fits_find(f, "FIBERMAP") >= 0))
        return SPX_FITS_AS_FRAME;
    for (size_t i = 0; i < f->nhdu; i++)
        if (arm_at(f, i, arm, prefix))
            return SPX_FITS_AS_SPECTRA;
    return SPX_FITS_AS_GENERIC;
}

/* ---- plan ---- */

static void plan_hdu(const spx_fits *f, const char *hdu, spx_fits_path *view, const char *path)
{
    int i = spx_fits_find(f, hdu);
    if (i >= 0)
        snprintf(view[i], sizeof view[i], "%s", path);
}

void spx_fits_plan(const spx_fits *f, spx_fits_product p, spx_fits_path *view)
{
    static const char *const image[][2] = {
        {"IMAGE", "/image/data"}, {"IVAR", "/image/ivar"}, {"MASK", "/image/mask"}, {"READNOISE", "/image/readnoise"}};
    static const char *const psf[][2] = {{"XTRACE", "/psf/xtrace"}, {"YTRACE", "/psf/ytrace"}, {"PSF", "/psf/coeff"}};
    static const char *const frame[][2] = {{"FLUX", "/frame/flux"},
                                           {"IVAR", "/frame/ivar"},
                                           {"MASK", "/frame/mask"},
                                           {"CHI2PIX", "/frame/chi2pix"},
                                           {"WAVELENGTH", "/frame/wavelength"},
                                           {"RESOLUTION", "/frame/resolution"},
                                           {"PIXMASK_FRACTION", "/frame/pixmask_fraction"}};
    static const char *const part[] = {"wavelength", "flux", "ivar", "mask", "resolution"};
    for (size_t i = 0; i < f->nhdu; i++)
        view[i][0] = 0;
    switch (p) {
    case SPX_FITS_AS_IMAGE:
        for (size_t i = 0; i < sizeof image / sizeof *image; i++)
            plan_hdu(f, image[i][0], view, image[i][1]);
        break;
    case SPX_FITS_AS_PSF:
        for (size_t i = 0; i < sizeof psf / sizeof *psf; i++)
            plan_hdu(f, psf[i][0], view, psf[i][1]);
        break;
    case SPX_FITS_AS_FRAME:
        for (size_t i = 0; i < sizeof frame / sizeof *frame; i++)
            plan_hdu(f, frame[i][0], view, frame[i][1]);
        break;
    case SPX_FITS_AS_SPECTRA:
        for (size_t i = 0; i < f->nhdu; i++) {
            char arm[16], prefix[16], hdu[40], path[64];
            if (!arm_at(f, i, arm, prefix))
                continue;
            for (size_t k = 0; k < sizeof part / sizeof *part; k++) {
                snprintf(hdu, sizeof hdu, "%s_%s", prefix, part[k]);
                snprintf(path, sizeof path, "/spectra/%s/%s", arm, part[k]);
                plan_hdu(f, hdu, view, path);
            }
        }
        plan_hdu(f, "EXP_FIBERMAP", view, "/exp_fibermap");
        break;
    case SPX_FITS_AS_RAW:
        spx_fits_raw_plan(f, view);
        break;
    default:
        return;
    }
    if (p != SPX_FITS_AS_PSF)
        plan_hdu(f, "FIBERMAP", view, "/fibermap");
    if (p == SPX_FITS_AS_FRAME || p == SPX_FITS_AS_SPECTRA)
        plan_hdu(f, "SCORES", view, "/scores");
}

/* ---- parts ---- */

static spx_status need_hdu(const spx_fits *f, const char *hdu, const char *what, const char *shape, spx_err *e)
{
    return spx_fail_at(e, SPX_EINPUT, f->name, NULL, NULL,
                       "HDU %s is missing or is not %s: this %s is not complete (--generic keeps it as it is)", hdu,
                       shape, what);
}

/* Reads image HDU `name`, which must have the shape of HDU `like`. */
static spx_status same_shape(const spx_fits *f, const char *name, int i, int like, const char *what, spx_err *e)
{
    const spx_fits_hdu *a = &f->hdu[i], *b = &f->hdu[like];
    if (spx_fits_is_image(a, b->ndim) && memcmp(a->dims, b->dims, (size_t)b->ndim * sizeof *a->dims) == 0)
        return SPX_OK;
    return spx_fail_at(e, SPX_EINPUT, f->name, NULL, NULL,
                       "HDU %s has another shape than %s: this %s cannot be used (--generic keeps it)", name,
                       b->extname, what);
}

/* FIBERMAP and the like, with one row a spectrum where nrow > 0. Absent: *out stays NULL. */
static spx_status load_table(const spx_fits *f, const char *name, size_t nrow, spx_table **out, spx_note_list *notes,
                             spx_err *e)
{
    int i = find_table(f, name);
    if (i < 0)
        return SPX_OK;
    const spx_fits_hdu *h = &f->hdu[i];
    if (nrow > 0 && h->nrow != nrow)
        return spx_fail_at(e, SPX_EINPUT, f->name, NULL, NULL,
                           "HDU %s has %zu rows for %zu spectra: it cannot be used (--generic keeps it as it is)", name,
                           h->nrow, nrow);
    for (size_t k = 0; k < h->ncol; k++)
        if (h->col[k].element)
            return spx_note_list_add(notes, e, "%s: HDU %s has columns of variable length: kept as a FITS HDU only",
                                     f->name, name);
    return spx_fits_table(f, (size_t)i, out, e);
}

void spx_fits_camera(const spx_cards *h, char camera[16])
{
    char text[32] = "";
    size_t n = 0;
    if (!spx_cards_string(h, "CAMERA", text, sizeof text))
        return;
    for (const char *c = text; *c && n < 15; c++)
        if (isalnum((unsigned char)*c) || *c == '_' || *c == '-')
            camera[n++] = (char)tolower((unsigned char)*c);
    camera[n] = 0;
}

static spx_status copy_cards(const spx_fits *f, int hdu, spx_cards *to, spx_err *e)
{
    return spx_cards_copy(to, &f->hdu[hdu].header, e);
}

/* ---- image ---- */

static spx_status image_block(spx_fits *f, hid_t file, spx_note_list *notes, spx_err *e)
{
    const char *what = "CCD image";
    int image = find_image(f, "IMAGE", 2), ivar = spx_fits_find(f, "IVAR"), mask = spx_fits_find(f, "MASK"),
        noise = spx_fits_find(f, "READNOISE");
    spx_image im = {0};
    if (ivar < 0)
        return need_hdu(f, "IVAR", what, "an image", e);
    spx_status st = same_shape(f, "IVAR", ivar, image, what, e);
    if (st == SPX_OK && mask >= 0)
        st = same_shape(f, "MASK", mask, image, what, e);
    if (st != SPX_OK)
        return st;
    im.ny = f->hdu[image].dims[0];
    im.nx = f->hdu[image].dims[1];
    if (im.ny == 0 || im.nx == 0)
        return spx_fail_at(e, SPX_EINPUT, f->name, NULL, NULL, "HDU IMAGE has no pixels");
    st = spx_fits_f32(f, (size_t)image, &im.data, e);
    if (st == SPX_OK)
        st = spx_fits_f32(f, (size_t)ivar, &im.ivar, e);
    if (st == SPX_OK && mask >= 0)
        st = spx_fits_u32(f, (size_t)mask, &im.mask, e);
    else if (st == SPX_OK && (im.mask = spx_alloc2(im.ny, im.nx, sizeof *im.mask, e)) == NULL)
        st = SPX_EIO;
    /* a scalar read noise for the whole CCD stays in its header and HDU */
    if (st == SPX_OK && noise >= 0 && f->hdu[noise].ndim == 2 && f->hdu[noise].dims[0] == im.ny &&
        f->hdu[noise].dims[1] == im.nx && spx_fits_is_image(&f->hdu[noise], 2))
        st = spx_fits_f32(f, (size_t)noise, &im.readnoise, e);
    if (st == SPX_OK)
        st = copy_cards(f, image, &im.header, e);
    if (st == SPX_OK)
        st = load_table(f, "FIBERMAP", 0, &im.fibermap, notes, e);
    if (st == SPX_OK) {
        spx_fits_camera(&f->hdu[0].header, im.camera);
        if (!im.camera[0])
            spx_fits_camera(&im.header, im.camera);
        st = spx_image_write(file, &im, e);
    }
    spx_image_free(&im);
    return st;
}

/* ---- PSF ---- */

static spx_status need_key(const spx_fits *f, int hdu, const char *key, double *out, spx_err *e)
{
    if (spx_cards_double(&f->hdu[hdu].header, key, out))
        return SPX_OK;
    return spx_fail_at(e, SPX_EINPUT, f->name, spx_fits_hduname(f, (size_t)hdu), NULL,
                       "keyword %s is missing: this PSF is not complete", key);
}

static spx_status need_int(const spx_fits *f, int hdu, const char *key, int *out, spx_err *e)
{
    double v = 0.0;
    spx_status st = need_key(f, hdu, key, &v, e);
    if (st == SPX_OK && (v != floor(v) || fabs(v) > 1e6))
        st = spx_fail_at(e, SPX_EINPUT, f->name, spx_fits_hduname(f, (size_t)hdu), NULL, "%s = %g is impossible", key,
                         v);
    *out = st == SPX_OK ? (int)v : 0;
    return st;
}

static spx_status trace(spx_fits *f, const char *name, spx_psf_series *s, size_t *nspec, spx_err *e)
{
    int i = find_image(f, name, 2);
    if (i < 0)
        return need_hdu(f, name, "PSF", "an image of coefficients", e);
    const spx_fits_hdu *h = &f->hdu[i];
    if (*nspec > 0 && h->dims[0] != *nspec)
        return spx_fail_at(e, SPX_EINPUT, f->name, NULL, NULL, "HDU %s has %zu traces instead of %zu", name, h->dims[0],
                           *nspec);
    *nspec = h->dims[0];
    s->ncoef = h->dims[1];
    if (h->nelem == 0)
        return spx_fail_at(e, SPX_EINPUT, f->name, NULL, NULL, "HDU %s is empty", name);
    spx_status st = need_key(f, i, "WAVEMIN", &s->wmin, e);
    if (st == SPX_OK)
        st = need_key(f, i, "WAVEMAX", &s->wmax, e);
    if (st == SPX_OK)
        st = spx_fits_f64(f, (size_t)i, &s->coef, e);
    for (size_t k = 0; st == SPX_OK && k < h->nelem; k++)
        if (!isfinite(s->coef[k]))
            st = spx_fail_at(e, SPX_EINPUT, f->name, NULL, NULL, "HDU %s: a coefficient is not finite", name);
    return st;
}

/* Moves the series of row `name` out of the parameters. */
static spx_status trace_of_row(const spx_fits *f, const char *name, spx_psf *psf, double *wmin, double *wmax,
                               spx_psf_series *s, spx_err *e)
{
    const size_t n = psf->nspec * psf->ndeg;
    size_t row = 0;
    while (row < psf->npar && strcmp(psf->param[row], name) != 0)
        row++;
    if (row == psf->npar)
        return spx_fail_at(e, SPX_EINPUT, f->name, NULL, NULL,
                           "neither HDUs XTRACE and YTRACE nor a parameter %s: this PSF has no traces", name);
    s->ncoef = psf->ndeg;
    s->wmin = wmin[row];
    s->wmax = wmax[row];
    if ((s->coef = spx_alloc(n, sizeof *s->coef, e)) == NULL)
        return SPX_EIO;
    memcpy(s->coef, psf->coeff + row * n, n * sizeof *s->coef);
    psf->npar--;
    memmove(psf->coeff + row * n, psf->coeff + (row + 1) * n, (psf->npar - row) * n * sizeof *psf->coeff);
    memmove(psf->param + row, psf->param + row + 1, (psf->npar - row) * sizeof *psf->param);
    memmove(wmin + row, wmin + row + 1, (psf->npar - row) * sizeof *wmin);
    memmove(wmax + row, wmax + row + 1, (psf->npar - row) * sizeof *wmax);
    return SPX_OK;
}

/* Reads traces and wavelength range of a PSF whose table has a range in every row. */
static spx_status traces_of_rows(const spx_fits *f, int table, spx_psf *psf, spx_err *e)
{
    double *wmin = NULL, *wmax = NULL;
    size_t n[2] = {0, 0};
    spx_status st = spx_fits_column_f64(f, (size_t)table, "WAVEMIN", &n[0], &wmin, e);
    if (st == SPX_OK)
        st = spx_fits_column_f64(f, (size_t)table, "WAVEMAX", &n[1], &wmax, e);
    if (st == SPX_OK && (n[0] != 1 || n[1] != 1))
        st = spx_fail_at(e, SPX_EINPUT, f->name, spx_fits_hduname(f, (size_t)table), NULL,
                         "WAVEMIN and WAVEMAX should be one number a row");
    if (st == SPX_OK)
        st = trace_of_row(f, "X", psf, wmin, wmax, &psf->x, e);
    if (st == SPX_OK)
        st = trace_of_row(f, "Y", psf, wmin, wmax, &psf->y, e);
    for (size_t k = 0; st == SPX_OK && k < psf->npar; k++)
        if (!(wmin[k] == wmin[0] && wmax[k] == wmax[0]))
            st = spx_fail_at(e, SPX_EINPUT, f->name, spx_fits_hduname(f, (size_t)table), NULL,
                             "parameters %s and %s have different wavelength ranges", psf->param[0], psf->param[k]);
    if (st == SPX_OK && psf->npar > 0) {
        psf->wmin = wmin[0];
        psf->wmax = wmax[0];
    }
    spx_free(wmin);
    spx_free(wmax);
    return st;
}

static spx_status psf_block(spx_fits *f, hid_t file, spx_err *e)
{
    const int rows = find_psf_of_rows(f), table = rows < 0 ? find_table(f, "PSF") : rows;
    spx_psf psf = {0};
    char *param = NULL;
    size_t n = 0;
    double v;
    if (table < 0)
        return need_hdu(f, "PSF", "PSF", "a table of parameters", e);
    const spx_fits_hdu *h = &f->hdu[table];
    int fibre[2] = {0, 0};
    spx_status st;
    if (rows < 0) {
        if ((st = trace(f, "XTRACE", &psf.x, &psf.nspec, e)) == SPX_OK)
            st = trace(f, "YTRACE", &psf.y, &psf.nspec, e);
    } else if ((st = need_int(f, table, "FIBERMIN", &fibre[0], e)) == SPX_OK &&
               (st = need_int(f, table, "FIBERMAX", &fibre[1], e)) == SPX_OK) {
        if (fibre[1] < fibre[0])
            st = spx_fail_at(e, SPX_EINPUT, f->name, NULL, NULL, "FIBERMAX is below FIBERMIN: this PSF has no fibres");
        else
            psf.nspec = (size_t)(fibre[1] - fibre[0]) + 1;
    }
    if (st == SPX_OK)
        st = spx_fits_column_str(f, (size_t)table, "PARAM", sizeof *psf.param, &param, e);
    if (st == SPX_OK)
        st = spx_fits_column_f64(f, (size_t)table, "COEFF", &n, &psf.coeff, e);
    if (st == SPX_OK && (n == 0 || n % psf.nspec != 0))
        st = spx_fail_at(e, SPX_EINPUT, f->name, spx_fits_hduname(f, (size_t)table), NULL,
                         "COEFF has %zu values a parameter, which is not a multiple of %zu spectra", n, psf.nspec);
    if (st == SPX_OK) {
        psf.npar = h->nrow;
        psf.ndeg = n / psf.nspec;
        psf.param = (spx_psf_param *)param;
        param = NULL;
        for (size_t k = 0; st == SPX_OK && k < psf.npar * n; k++)
            if (!isfinite(psf.coeff[k]))
                st = spx_fail_at(e, SPX_EINPUT, f->name, spx_fits_hduname(f, (size_t)table), NULL,
                                 "parameter %s: a coefficient is not finite", psf.param[k / n]);
    }
    if (st == SPX_OK && rows >= 0)
        st = traces_of_rows(f, table, &psf, e);
    else if (st == SPX_OK && (st = need_key(f, table, "WAVEMIN", &psf.wmin, e)) == SPX_OK)
        st = need_key(f, table, "WAVEMAX", &psf.wmax, e);
    if (st != SPX_OK || (st = need_int(f, table, "GHDEGX", &psf.ghdegx, e)) != SPX_OK ||
        (st = need_int(f, table, "GHDEGY", &psf.ghdegy, e)) != SPX_OK ||
        (st = need_int(f, table, "HSIZEX", &psf.hsizex, e)) != SPX_OK ||
        (st = need_int(f, table, "HSIZEY", &psf.hsizey, e)) != SPX_OK)
        goto done;
    char type[32];
    if (psf_type(f, type, &v) && strcmp(type, "GAUSS-HERMITE2") == 0) {
        psf.type = SPX_PSF_GAUSS_HERMITE2;
        if ((st = need_int(f, table, "GHDEGX2", &psf.ghdegx2, e)) != SPX_OK ||
            (st = need_int(f, table, "GHDEGY2", &psf.ghdegy2, e)) != SPX_OK)
            goto done;
    }
    psf.psferr = spx_cards_double(&h->header, "PSFERR", &v) && v >= 0.0 ? v : 0.01;
    if (spx_cards_double(&h->header, "NPIX_X", &v) && v > 0.0 && v < 1e6)
        psf.npix_x = (size_t)v;
    if (spx_cards_double(&h->header, "NPIX_Y", &v) && v > 0.0 && v < 1e6)
        psf.npix_y = (size_t)v;
    spx_fits_camera(&h->header, psf.camera);
    if (!psf.camera[0])
        spx_fits_camera(&f->hdu[0].header, psf.camera);
    if ((st = copy_cards(f, table, &psf.header, e)) != SPX_OK)
        goto done;
    if ((st = spx_psf_index(&psf, e)) != SPX_OK) {
        spx_err_at(e, f->name, NULL);
        goto done;
    }
    st = spx_psf_write(file, &psf, e);
done:
    spx_free(param);
    spx_psf_free(&psf);
    return st;
}

/* ---- spectra ---- */

/* Replaces values of an arm that a product may not hold; returns how many. */
static size_t clean_arm(spx_arm *a, size_t nspec)
{
    size_t n = 0;
    for (size_t i = 0; i < nspec * a->nwave; i++)
        if (!isfinite(a->flux[i]) || !isfinite(a->ivar[i]) || a->ivar[i] < 0.0) {
            a->flux[i] = a->ivar[i] = 0.0;
            if (a->mask != NULL)
                a->mask[i] |= NODATA;
            n++;
        }
    for (size_t i = 0; i < nspec * a->ndiag * a->nwave; i++)
        if (!isfinite(a->resolution[i])) {
            a->resolution[i] = 0.0;
            n++;
        }
    return n;
}

/* Reads medium and frame from a header: CTYPE1 AWAV or AIRORVAC for air; SPECSYS for the frame. */
static spx_status axis_of(const spx_fits *f, size_t hdu, spx_arm *a, spx_err *e)
{
    const spx_cards *h = &f->hdu[hdu].header;
    char text[16];
    if (spx_cards_string(h, "AIRORVAC", text, sizeof text))
        a->medium = strncasecmp(text, "air", 3) == 0 ? SPX_AIR : SPX_VACUUM;
    if (spx_cards_string(h, "CTYPE1", text, sizeof text) && strncmp(text, "AWAV", 4) == 0)
        a->medium = SPX_AIR;
    const int frame = spx_cards_string(h, "SPECSYS", text, sizeof text) ? spx_wave_frame(text) : -1;
    if (frame == -2)
        return spx_fail_at(e, SPX_EINPUT, f->name, NULL, NULL,
                           "HDU %s: SPECSYS is '%s': should be TOPOCENT, BARYCENT or HELIOCEN",
                           spx_fits_hduname(f, hdu), text);
    if (frame >= 0)
        a->barycentric = frame;
    return SPX_OK;
}

/* Wavelengths of an HDU in the unit that its BUNIT says; none is Angstrom. */
static spx_status to_angstrom(const spx_fits *f, const char *name, size_t hdu, spx_arm *a, spx_err *e)
{
    char unit[72] = "";
    (void)spx_cards_string(&f->hdu[hdu].header, "BUNIT", unit, sizeof unit);
    const double scale = unit[0] == '\0' ? 1 : spx_wave_unit(unit);
    if (scale == 0)
        return spx_fail_at(e, SPX_EINPUT, f->name, NULL, NULL,
                           "HDU %s: BUNIT is '%s': should be Angstrom, nm, um, mm, cm or m", name, unit);
    for (size_t i = 0; scale != 1 && i < a->nwave; i++)
        a->wavelength[i] *= scale;
    return SPX_OK;
}

static spx_status check_wavelength(const spx_fits *f, const char *hdu, const spx_arm *a, spx_err *e)
{
    for (size_t i = 0; i < a->nwave; i++)
        if (!(a->wavelength[i] > (i ? a->wavelength[i - 1] : 0.0)) || !isfinite(a->wavelength[i]))
            return spx_fail_at(e, SPX_EINPUT, f->name, NULL, "sort the spectrum (--generic keeps it)",
                               "HDU %s: wavelengths do not increase at element %zu", hdu, i);
    return a->nwave ? SPX_OK : spx_fail_at(e, SPX_EINPUT, f->name, NULL, NULL, "HDU %s is empty", hdu);
}

/* Reads one arm from HDUs <prefix>FLUX, <prefix>IVAR ...; *nspec 0: any. */
static spx_status load_arm(spx_fits *f, const char *prefix, const char *what, spx_arm *a, size_t *nspec, spx_err *e)
{
    char name[5][40];
    static const char *const part[] = {"WAVELENGTH", "FLUX", "IVAR", "MASK", "RESOLUTION"};
    int hdu[5];
    for (int i = 0; i < 5; i++) {
        snprintf(name[i], sizeof name[i], "%s%s", prefix, part[i]);
        hdu[i] = spx_fits_find(f, name[i]);
    }
    const spx_fits_hdu *flux = &f->hdu[hdu[1]];
    if (hdu[2] < 0)
        return need_hdu(f, name[2], what, "an image", e);
    spx_status st = same_shape(f, name[2], hdu[2], hdu[1], what, e);
    if (st == SPX_OK && hdu[3] >= 0)
        st = same_shape(f, name[3], hdu[3], hdu[1], what, e);
    if (st != SPX_OK)
        return st;
    if (*nspec > 0 && flux->dims[0] != *nspec)
        return spx_fail_at(e, SPX_EINPUT, f->name, NULL, NULL, "HDU %s has %zu spectra, other arms have %zu", name[1],
                           flux->dims[0], *nspec);
    if (flux->dims[0] == 0)
        return spx_fail_at(e, SPX_EINPUT, f->name, NULL, NULL, "HDU %s holds no spectra", name[1]);
    *nspec = flux->dims[0];
    a->nwave = f->hdu[hdu[0]].dims[0];
    if (flux->dims[1] != a->nwave)
        return spx_fail_at(e, SPX_EINPUT, f->name, NULL, NULL, "HDU %s has %zu bins, %s has %zu", name[1],
                           flux->dims[1], name[0], a->nwave);
    if (hdu[4] >= 0) {
        const spx_fits_hdu *r = &f->hdu[hdu[4]];
        if (!spx_fits_is_image(r, 3) || r->dims[0] != *nspec || r->dims[2] != a->nwave || r->dims[1] % 2 == 0)
            return spx_fail_at(
                e, SPX_EINPUT, f->name, NULL, NULL,
                "HDU %s is not of the shape [spectra][odd number of diagonals][bins]: --generic keeps it", name[4]);
        a->ndiag = r->dims[1];
        st = spx_fits_f64(f, (size_t)hdu[4], &a->resolution, e);
    }
    if (st == SPX_OK)
        st = spx_fits_f64(f, (size_t)hdu[0], &a->wavelength, e);
    if (st == SPX_OK)
        st = to_angstrom(f, name[0], (size_t)hdu[0], a, e);
    if (st == SPX_OK)
        st = check_wavelength(f, name[0], a, e);
    if (st == SPX_OK)
        st = spx_fits_f64(f, (size_t)hdu[1], &a->flux, e);
    if (st == SPX_OK)
        st = spx_fits_f64(f, (size_t)hdu[2], &a->ivar, e);
    if (st == SPX_OK && hdu[3] >= 0)
        st = spx_fits_u32(f, (size_t)hdu[3], &a->mask, e);
    else if (st == SPX_OK && (a->mask = spx_alloc2(*nspec, a->nwave, sizeof *a->mask, e)) == NULL)
        st = SPX_EIO;
    if (!spx_cards_string(&flux->header, "BUNIT", a->unit, sizeof a->unit))
        (void)spx_cards_string(&flux->header, SPX_FITS_WORDS, a->unit, sizeof a->unit);
    for (char *c = a->unit; *c; c++)
        if (*c < 32 || *c > 126)
            *c = '?';
    return st == SPX_OK ? axis_of(f, (size_t)hdu[0], a, e) : st;
}

static spx_status report_clean(const spx_fits *f, const spx_arm *a, size_t n, spx_note_list *notes, spx_err *e)
{
    return n == 0
               ? SPX_OK
               : spx_note_list_add(notes, e, "%s: arm %s: %zu values that are not finite (or ivar < 0) were set to 0",
                                   f->name, a->name, n);
}

static int precision_of(const spx_fits *f, const char *flux)
{
    int i = spx_fits_find(f, flux);
    return i >= 0 && f->hdu[i].bitpix != -32 ? 8 : 4;
}

/* Reads an image [nspec][nwave] of finite, non-negative numbers; absent: *out stays NULL. */
static spx_status load_quality(spx_fits *f, const char *name, int flux, double **out, size_t *changed, spx_err *e)
{
    int i = spx_fits_find(f, name);
    if (i < 0)
        return SPX_OK;
    spx_status st = same_shape(f, name, i, flux, "frame", e);
    if (st == SPX_OK)
        st = spx_fits_f64(f, (size_t)i, out, e);
    for (size_t k = 0; st == SPX_OK && k < f->hdu[i].nelem; k++)
        if (!isfinite((*out)[k]) || (*out)[k] < 0.0) {
            (*out)[k] = 0.0;
            ++*changed;
        }
    return st;
}

/* Index in the PSF of each spectrum: DESI numbers fibres through ten spectrographs of 500 each. */
static spx_status frame_fibers(spx_frame *fr, spx_err *e)
{
    enum { PER_SPECTROGRAPH = 500 };
    if (fr->fibermap == NULL || spx_table_find(fr->fibermap, "FIBER") < 0)
        return SPX_OK;
    int64_t *fiber = spx_alloc(fr->nspec, sizeof *fiber, e);
    fr->fiber = fiber != NULL ? spx_alloc(fr->nspec, sizeof *fr->fiber, e) : NULL;
    spx_status st = fr->fiber != NULL ? spx_table_get_i64(fr->fibermap, "FIBER", fiber, e) : SPX_EIO;
    for (size_t i = 0; st == SPX_OK && i < fr->nspec; i++)
        fr->fiber[i] = fiber[i] < 0 ? 0 : (int32_t)(fiber[i] % PER_SPECTROGRAPH);
    spx_free(fiber);
    return st;
}

static spx_status frame_block(spx_fits *f, hid_t file, spx_note_list *notes, spx_err *e)
{
    spx_frame fr = {0};
    double helio = 1.0;
    size_t changed = 0;
    int flux = spx_fits_find(f, "FLUX");
    const spx_cards *primary = &f->hdu[0].header;
    spx_fits_camera(primary, fr.camera);
    if (!fr.camera[0])
        spx_fits_camera(&f->hdu[flux].header, fr.camera);
    snprintf(fr.arm.name, sizeof fr.arm.name, "%.1s", fr.camera);
    /* DESI extracts on barycentric wavelengths, and marks that by this keyword */
    fr.arm.barycentric =
        (spx_cards_double(primary, "HELIOCOR", &helio) || spx_cards_double(&f->hdu[flux].header, "HELIOCOR", &helio)) &&
        helio != 1.0;
    spx_status st = load_arm(f, "", "frame", &fr.arm, &fr.nspec, e);
    if (st == SPX_OK)
        st = load_quality(f, "CHI2PIX", flux, &fr.chi2pix, &changed, e);
    if (st == SPX_OK)
        st = load_quality(f, "PIXMASK_FRACTION", flux, &fr.pixmask_fraction, &changed, e);
    if (st == SPX_OK)
        st = report_clean(f, &fr.arm, changed + clean_arm(&fr.arm, fr.nspec), notes, e);
    if (st == SPX_OK)
        st = load_table(f, "FIBERMAP", fr.nspec, &fr.fibermap, notes, e);
    if (st == SPX_OK)
        st = load_table(f, "SCORES", fr.nspec, &fr.scores, notes, e);
    if (st == SPX_OK)
        st = frame_fibers(&fr, e);
    if (st == SPX_OK)
        st = copy_cards(f, flux, &fr.header, e);
    if (st == SPX_OK)
        st = spx_frame_write(file, &fr, precision_of(f, "FLUX"), NULL, e);
    spx_frame_free(&fr);
    return st;
}

static spx_status spectra_block(spx_fits *f, hid_t file, spx_note_list *notes, spx_err *e)
{
    spx_spectra s = {0};
    spx_status st = SPX_OK;
    int precision = 4;
    for (size_t i = 0; st == SPX_OK && i < f->nhdu; i++) {
        char arm[16], prefix[16], name[24];
        if (!arm_at(f, i, arm, prefix))
            continue;
        if (s.narm == SPX_MAX_ARM) {
            st = spx_fail_at(e, SPX_EINPUT, f->name, NULL, NULL, "more than %d arms", SPX_MAX_ARM);
            break;
        }
        spx_arm *a = &s.arm[s.narm++];
        memcpy(a->name, arm, sizeof a->name);
        a->barycentric = 1; /* default for DESI spectra and coadds */
        snprintf(name, sizeof name, "%s_", prefix);
        st = load_arm(f, name, "set of spectra", a, &s.nspec, e);
        if (st == SPX_OK)
            st = report_clean(f, a, clean_arm(a, s.nspec), notes, e);
        if (f->hdu[i].bitpix != -32)
            precision = 8;
    }
    if (st == SPX_OK)
        st = load_table(f, "FIBERMAP", s.nspec, &s.fibermap, notes, e);
    if (st == SPX_OK)
        st = load_table(f, "SCORES", s.nspec, &s.scores, notes, e);
    if (st == SPX_OK)
        st = load_table(f, "EXP_FIBERMAP", 0, &s.exp_fibermap, notes, e);
    if (st == SPX_OK)
        st = copy_cards(f, 0, &s.header, e);
    if (st == SPX_OK)
        st = spx_spectra_write(file, &s, precision, e);
    spx_spectra_free(&s);
    return st;
}

spx_status spx_fits_blocks(spx_fits *f, spx_fits_product p, hid_t file, spx_note_list *notes, spx_err *e)
{
    switch (p) {
    case SPX_FITS_AS_IMAGE:
        return image_block(f, file, notes, e);
    case SPX_FITS_AS_PSF:
        return psf_block(f, file, e);
    case SPX_FITS_AS_FRAME:
        return frame_block(f, file, notes, e);
    case SPX_FITS_AS_SPECTRA:
        return spectra_block(f, file, notes, e);
    case SPX_FITS_AS_RAW:
        return spx_fits_raw_block(f, file, e);
    default:
        return SPX_OK;
    }
}
