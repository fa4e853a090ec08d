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
#include "convert/blocks_parts.h"
#include "convert/products.h"
#include "convert/psf_fits.h"
#include "convert/raw.h"
#include "convert/table_h5.h"
#include "fits/checksum.h"
#include "fits/values.h"
#include "h5/table.h"
#include "h5/write.h"
#include "num/wave.h"
#include "products/frame_h5.h"
#include "products/image_h5.h"
#include "products/spectra_h5.h"

const char *const spx_fits_product_names[SPX_FITS_PRODUCTS + 1] = {
    "generic", "image", "psf", "frame", "spectra", "raw", "spectrum", "library", "model", "wavelength", NULL};

enum { NODATA = 1 << 24 }; /* mask bit of DESI frames */

/* ---- finding HDUs ---- */

int spx_fits_find_image(const spx_fits *f, const char *name, int ndim)
{
    int i = spx_fits_find(f, name);
    return i >= 0 && spx_fits_is_image(&f->hdu[i], ndim) ? i : -1;
}

int spx_fits_find_table(const spx_fits *f, const char *name)
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
    /* one grid, or one for each spectrum */
    return spx_fits_find_image(f, other, 1) >= 0 || spx_fits_find_image(f, other, 2) >= 0;
}

spx_fits_product spx_fits_recognise(const spx_fits *f, char *note, size_t size)
{
    char arm[16], prefix[16];
    const int psf = spx_fits_psf_recognise(f, note, size);
    if (psf >= 0)
        return psf ? SPX_FITS_AS_PSF : SPX_FITS_AS_GENERIC;
    if (spx_fits_find_image(f, "IMAGE", 2) >= 0 &&
        (spx_fits_find(f, "IVAR") >= 0 || spx_fits_find(f, "MASK") >= 0 || spx_fits_find(f, "READNOISE") >= 0))
        return SPX_FITS_AS_IMAGE;
    if (spx_fits_find_image(f, "FLUX", 2) >= 0 && spx_fits_find_image(f, "WAVELENGTH", 1) >= 0 &&
        (spx_fits_find(f, "IVAR") >= 0 || spx_fits_find(f, "RESOLUTION") >= 0 || spx_fits_find(f, "FIBERMAP") >= 0))
        return SPX_FITS_AS_FRAME;
    for (size_t i = 0; i < f->nhdu; i++)
        if (arm_at(f, i, arm, prefix))
            return SPX_FITS_AS_SPECTRA;
    return SPX_FITS_AS_GENERIC;
}

/* ---- plan ---- */

void spx_fits_plan_hdu(const spx_fits *f, const char *hdu, spx_fits_path *view, const char *path)
{
    int i = spx_fits_find(f, hdu);
    if (i >= 0)
        snprintf(view[i], sizeof view[i], "%s", path);
}

void spx_fits_plan(const spx_fits *f, spx_fits_product p, spx_fits_path *view)
{
    static const char *const image[][2] = {
        {"IMAGE", "/image/data"}, {"IVAR", "/image/ivar"}, {"MASK", "/image/mask"}, {"READNOISE", "/image/readnoise"}};
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
            spx_fits_plan_hdu(f, image[i][0], view, image[i][1]);
        break;
    case SPX_FITS_AS_PSF:
        spx_fits_psf_plan(f, view);
        break;
    case SPX_FITS_AS_FRAME:
        for (size_t i = 0; i < sizeof frame / sizeof *frame; i++)
            spx_fits_plan_hdu(f, frame[i][0], view, frame[i][1]);
        break;
    case SPX_FITS_AS_SPECTRA:
        for (size_t i = 0; i < f->nhdu; i++) {
            char arm[16], prefix[16], hdu[40], path[64];
            if (!arm_at(f, i, arm, prefix))
                continue;
            for (size_t k = 0; k < sizeof part / sizeof *part; k++) {
                snprintf(hdu, sizeof hdu, "%s_%s", prefix, part[k]);
                snprintf(path, sizeof path, "/spectra/%s/%s", arm, part[k]);
                spx_fits_plan_hdu(f, hdu, view, path);
            }
        }
        spx_fits_plan_hdu(f, "EXP_FIBERMAP", view, "/exp_fibermap");
        break;
    case SPX_FITS_AS_RAW:
        spx_fits_raw_plan(f, view);
        break;
    default:
        return;
    }
    if (p != SPX_FITS_AS_PSF)
        spx_fits_plan_hdu(f, "FIBERMAP", view, "/fibermap");
    if (p == SPX_FITS_AS_FRAME || p == SPX_FITS_AS_SPECTRA)
        spx_fits_plan_hdu(f, "SCORES", view, "/scores");
}

/* ---- parts ---- */

spx_status spx_fits_need_hdu(const spx_fits *f, const char *hdu, const char *what, const char *shape, spx_err *e)
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
    int i = spx_fits_find_table(f, name);
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

/* Copies pixels of words (spx_fits_has_words()), some rows at a time, which stay in the cache. */
static spx_status copy_words(spx_fits *f, size_t hdu, hid_t file, const char *path, hid_t type, spx_err *e)
{
    enum { PIECE = 1 << 18 };
    spx_fits_hdu *h = &f->hdu[hdu];
    const size_t nx = h->dims[1], step = nx < PIECE ? PIECE / nx : 1;
    const unsigned char *raw = spx_fits_raw(f, hdu, e);
    if (raw == NULL)
        return e->code;
    uint64_t sum = 0;
    uint32_t *piece = spx_alloc2(step, nx, sizeof *piece, e);
    spx_status st = piece != NULL ? spx_h5_create(file, path, type, 2, h->dims, e) : SPX_EIO;
    for (size_t i = 0; st == SPX_OK && i < h->dims[0]; i += step) {
        const size_t n = h->dims[0] - i < step ? h->dims[0] - i : step;
        sum += spx_fits_words(raw + i * nx * sizeof *piece, n * nx, h->flip, piece);
        st = spx_h5_write_rows(file, path, type, i, n, piece, e);
    }
    spx_free(piece);
    if (st == SPX_OK && h->kind == SPX_FITS_IMAGE && h->nelem <= UINT32_MAX)
        spx_fits_note_sum(f, h, sum);
    h->copied = st == SPX_OK ? path : NULL;
    return st;
}

/* Writes the pixels of an HDU: numbers, or, where `bits` is set, a mask. */
static spx_status copy_pixels(spx_fits *f, size_t hdu, hid_t file, const char *path, int bits, spx_err *e)
{
    const hid_t type = bits ? H5T_NATIVE_UINT32 : H5T_NATIVE_FLOAT;
    float *number = NULL;
    uint32_t *mask = NULL;
    if (spx_fits_has_words(&f->hdu[hdu], bits ? 32 : -32))
        return copy_words(f, hdu, file, path, type, e);
    spx_status st = bits ? spx_fits_u32(f, hdu, &mask, e) : spx_fits_f32(f, hdu, &number, e);
    if (st == SPX_OK)
        st = spx_h5_write(file, path, type, 2, f->hdu[hdu].dims, bits ? (const void *)mask : number, e);
    spx_free(number);
    spx_free(mask);
    return st;
}

static spx_status check_electrons(const spx_fits *f, size_t image, spx_err *e)
{
    char unit[64] = "";
    (void)spx_cards_string(&f->hdu[image].header, "BUNIT", unit, sizeof unit);
    if (spx_image_in_counts(unit))
        return spx_fail_at(e, SPX_EINPUT, f->name, NULL,
                           "specx-preproc makes electrons of raw exposures; if they are, correct BUNIT (--generic "
                           "keeps the file as it is)",
                           "HDU IMAGE: BUNIT is '%s': a CCD image should be in electrons", unit);
    return SPX_OK;
}

static spx_status image_block(spx_fits *f, hid_t file, spx_note_list *notes, spx_err *e)
{
    const char *what = "CCD image";
    int image = spx_fits_find_image(f, "IMAGE", 2), ivar = spx_fits_find(f, "IVAR"), mask = spx_fits_find(f, "MASK"),
        noise = spx_fits_find(f, "READNOISE");
    spx_image im = {0};
    if (ivar < 0)
        return spx_fits_need_hdu(f, "IVAR", what, "an image", e);
    spx_status st = same_shape(f, "IVAR", ivar, image, what, e);
    if (st == SPX_OK)
        st = check_electrons(f, (size_t)image, e);
    if (st == SPX_OK && mask >= 0)
        st = same_shape(f, "MASK", mask, image, what, e);
    if (st != SPX_OK)
        return st;
    im.ny = f->hdu[image].dims[0];
    im.nx = f->hdu[image].dims[1];
    if (im.ny == 0 || im.nx == 0)
        return spx_fail_at(e, SPX_EINPUT, f->name, NULL, NULL, "HDU IMAGE has no pixels");
    st = copy_pixels(f, (size_t)image, file, "/image/data", 0, e);
    if (st == SPX_OK)
        st = copy_pixels(f, (size_t)ivar, file, "/image/ivar", 0, e);
    if (st == SPX_OK && mask >= 0)
        st = copy_pixels(f, (size_t)mask, file, "/image/mask", 1, e);
    else if (st == SPX_OK && (im.mask = spx_alloc2(im.ny, im.nx, sizeof *im.mask, e)) == NULL)
        st = SPX_EIO;
    /* a scalar read noise for the whole CCD stays in its header and HDU */
    if (st == SPX_OK && noise >= 0 && f->hdu[noise].ndim == 2 && f->hdu[noise].dims[0] == im.ny &&
        f->hdu[noise].dims[1] == im.nx && spx_fits_is_image(&f->hdu[noise], 2))
        st = copy_pixels(f, (size_t)noise, file, "/image/readnoise", 0, e);
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
    const int said = spx_cards_string(h, "SPECSYS", text, sizeof text), frame = said ? spx_wave_frame(text) : -1;
    if (frame == -2)
        return spx_fail_at(e, SPX_EINPUT, f->name, NULL, NULL,
                           "HDU %s: SPECSYS is '%s': should be TOPOCENT, BARYCENT or HELIOCEN",
                           spx_fits_hduname(f, hdu), text);
    if (said) { /* blank: h52fits had spectra of unknown frame */
        a->barycentric = frame == 1;
        a->frame_unknown = frame < 0;
    }
    return SPX_OK;
}

/* Wavelengths of an HDU in the unit that its BUNIT says; none is Angstrom. */
static spx_status to_angstrom(const spx_fits *f, const char *name, size_t hdu, double *wavelength, spx_err *e)
{
    char unit[72] = "";
    (void)spx_cards_string(&f->hdu[hdu].header, "BUNIT", unit, sizeof unit);
    const double scale = unit[0] == '\0' ? 1 : spx_wave_unit(unit);
    if (scale == 0)
        return spx_fail_at(e, SPX_EINPUT, f->name, NULL, NULL,
                           "HDU %s: BUNIT is '%s': should be Angstrom, nm, um, mm, cm or m", name, unit);
    for (size_t i = 0; scale != 1 && i < f->hdu[hdu].nelem; i++)
        wavelength[i] *= scale;
    return SPX_OK;
}

/* Reads wavelengths, nwave of them, or as many for each of nspec spectra. */
static spx_status load_wavelength(spx_fits *f, const char *name, size_t hdu, size_t nspec, spx_arm *a, spx_err *e)
{
    const spx_fits_hdu *h = &f->hdu[hdu];
    double *w = NULL;
    a->per_row = spx_fits_is_image(h, 2);
    if (h->nelem == 0)
        return spx_fail_at(e, SPX_EINPUT, f->name, NULL, NULL, "HDU %s is empty", name);
    if (a->per_row && h->dims[0] != nspec)
        return spx_fail_at(e, SPX_EINPUT, f->name, NULL, NULL, "HDU %s has wavelengths of %zu spectra, there are %zu",
                           name, h->dims[0], nspec);
    spx_status st = spx_fits_f64(f, hdu, &w, e);
    if (st == SPX_OK)
        st = to_angstrom(f, name, hdu, w, e);
    for (size_t i = 0; i < h->nelem && st == SPX_OK; i++)
        if (!(w[i] > (i % a->nwave ? w[i - 1] : 0.0)) || !isfinite(w[i]))
            st = spx_fail_at(e, SPX_EINPUT, f->name, NULL, "sort the spectrum (--generic keeps it)",
                             "HDU %s: wavelengths do not increase at element %zu", name, i);
    if (!a->per_row) {
        a->wavelength = w;
        return st;
    }
    a->row_wavelength = w;
    if (st == SPX_OK && (a->wavelength = spx_alloc(a->nwave, sizeof *a->wavelength, e)) == NULL)
        st = SPX_EIO;
    if (st == SPX_OK)
        memcpy(a->wavelength, w, a->nwave * sizeof *a->wavelength);
    return st;
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
        return spx_fits_need_hdu(f, name[2], what, "an image", e);
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
    const spx_fits_hdu *wave = &f->hdu[hdu[0]];
    a->nwave = wave->dims[spx_fits_is_image(wave, 2)];
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
        st = load_wavelength(f, name[0], (size_t)hdu[0], *nspec, a, e);
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
    spx_arm_of_camera(fr.camera, fr.arm.name);
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

/* An arm of which two of wavelengths, flux and ivar are there, and not all, is not left out without a word. */
static spx_status check_arms(const spx_fits *f, spx_err *e)
{
    static const char *const part[] = {"_WAVELENGTH", "_FLUX", "_IVAR"};
    static const char *const shape[] = {"an image of one or two dimensions", "an image of two dimensions", "an image"};
    enum { N = sizeof part / sizeof *part };
    for (size_t i = 0; i < f->nhdu; i++)
        for (int k = 0; k < N; k++) {
            const char *name = f->hdu[i].extname;
            const size_t n = strlen(name), tail = strlen(part[k]);
            char other[N][96], arm[16], prefix[16];
            int at[N], flux = 0, there = 0;
            if (n <= tail || n - tail > 15 || strcasecmp(name + n - tail, part[k]) != 0)
                continue;
            for (int m = 0; m < N; m++) {
                (void)snprintf(other[m], sizeof other[m], "%.*s%s", (int)(n - tail), name, part[m]);
                at[m] = spx_fits_find(f, other[m]);
                there += at[m] >= 0;
            }
            flux = at[1] >= 0 && arm_at(f, (size_t)at[1], arm, prefix);
            if (there < 2 || (flux && there == N))
                continue;
            const int lacks = at[0] < 0                                            ? 0
                              : at[2] < 0                                          ? 2
                              : at[1] < 0 || !spx_fits_is_image(&f->hdu[at[1]], 2) ? 1
                                                                                   : 0;
            return spx_fits_need_hdu(f, other[lacks], "set of spectra", shape[lacks], e);
        }
    return SPX_OK;
}

static spx_status spectra_block(spx_fits *f, hid_t file, spx_note_list *notes, spx_err *e)
{
    spx_spectra s = {0};
    spx_status st = check_arms(f, e);
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
        return spx_fits_psf_block(f, NULL, file, notes, e);
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
