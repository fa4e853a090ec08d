#include "products/spectra.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "h5/attr.h"
#include "h5/object.h"
#include "h5/read.h"
#include "h5/schema.h"
#include "h5/write.h"
#include "products/io.h"

static void sub(char *out, size_t size, const char *path, const char *name)
{
    (void)snprintf(out, size, "%s/%s", path, name);
}

/* ---- one arm ---- */

static spx_status check_wavelength(hid_t file, const char *path, const spx_arm *a, spx_err *e)
{
    for (size_t i = 0; i < a->nwave; i++)
        if (!(a->wavelength[i] > (i > 0 ? a->wavelength[i - 1] : 0)) || a->wavelength[i] > 1e9)
            return spx_fail(e, SPX_EINPUT, "%s:%s: wavelengths do not increase at element %zu (%g): sort the spectrum",
                            spx_h5_filename(file), path, i, a->wavelength[i]);
    return SPX_OK;
}

/* Values are read later, by rows: what a file promises has to be credible before. */
static spx_status check_claim(hid_t file, const char *path, int ndim, const size_t *dims, spx_err *e)
{
    size_t bytes = 0;
    hid_t d = spx_h5_open(file, path, e);
    if (d < 0)
        return SPX_EINPUT;
    hid_t type = H5Dget_type(d);
    spx_status st = type < 0 ? spx_fail(e, SPX_EINPUT, "%s:%s: has no type", spx_h5_filename(file), path) : SPX_OK;
    bytes = st == SPX_OK ? H5Tget_size(type) : 0;
    for (int i = 0; i < ndim && st == SPX_OK; i++)
        st = spx_mul(bytes, dims[i], &bytes, e);
    if (st == SPX_OK && spx_h5_overclaims(d, bytes))
        st = spx_fail(e, SPX_EINPUT, "%s:%s: claims more data than the file holds", spx_h5_filename(file), path);
    if (type >= 0)
        (void)H5Tclose(type);
    (void)H5Dclose(d);
    return st;
}

/* Is dataset `name` of the arm at `path` shaped [nspec][n][nwave], or [nspec][nwave]? Lengths of 0 are any, and set. */
static spx_status check_shape(hid_t file, const char *path, const char *name, int ndim, size_t *dims, spx_err *e)
{
    char p[128];
    int have = 0;
    size_t d[SPX_H5_MAXDIM];
    sub(p, sizeof p, path, name);
    spx_status st = spx_h5_shape(file, p, &have, d, e);
    if (st == SPX_OK && have != ndim)
        st = spx_fail(e, SPX_EINPUT, "%s:%s: has %d dimensions, %d expected", spx_h5_filename(file), p, have, ndim);
    for (int i = 0; i < ndim && st == SPX_OK; i++) {
        if (dims[i] != 0 && dims[i] != d[i])
            st = spx_fail(e, SPX_EINPUT, "%s:%s: dimension %d is %zu, %zu expected from the other datasets",
                          spx_h5_filename(file), p, i, d[i], dims[i]);
        dims[i] = d[i];
    }
    return st == SPX_OK ? check_claim(file, p, ndim, d, e) : st;
}

spx_status spx_arm_read_head(hid_t file, const char *path, size_t *nspec, spx_arm *a, spx_err *e)
{
    char p[128], word[32];
    size_t dims[3] = {0, 0, 0};
    sub(p, sizeof p, path, "wavelength");
    spx_status st = spx_h5_read_f64(file, p, 1, dims, &a->wavelength, e);
    if (st != SPX_OK)
        return st;
    a->nwave = dims[0];
    if ((st = check_wavelength(file, p, a, e)) != SPX_OK)
        return st;
    a->medium = SPX_VACUUM;
    a->barycentric = 0;
    if (spx_h5_has_attr(file, p, "medium")) {
        if ((st = spx_h5_attr_str(file, p, "medium", word, sizeof word, e)) != SPX_OK)
            return st;
        a->medium = strcmp(word, "air") == 0 ? SPX_AIR : SPX_VACUUM;
    }
    if (spx_h5_has_attr(file, p, "frame")) {
        if ((st = spx_h5_attr_str(file, p, "frame", word, sizeof word, e)) != SPX_OK)
            return st;
        a->barycentric = strcmp(word, "barycentric") == 0;
    }
    dims[0] = *nspec;
    dims[1] = a->nwave;
    if ((st = check_shape(file, path, "flux", 2, dims, e)) != SPX_OK)
        return st;
    sub(p, sizeof p, path, "flux");
    /* a length of 0 would mean "any" below, and then contradict what was read */
    if (dims[0] == 0 || dims[1] == 0)
        return spx_fail(e, SPX_EINPUT, "%s:%s: holds no spectra", spx_h5_filename(file), p);
    *nspec = dims[0];
    if (spx_h5_has_attr(file, p, "units") &&
        (st = spx_h5_attr_str(file, p, "units", a->unit, sizeof a->unit, e)) != SPX_OK)
        return st;
    if ((st = check_shape(file, path, "ivar", 2, dims, e)) != SPX_OK)
        return st;
    sub(p, sizeof p, path, "mask");
    if (spx_h5_exists(file, p) && (st = check_shape(file, path, "mask", 2, dims, e)) != SPX_OK)
        return st;
    sub(p, sizeof p, path, "resolution");
    size_t rd[3] = {*nspec, 0, a->nwave};
    if (spx_h5_exists(file, p) && (st = check_shape(file, path, "resolution", 3, rd, e)) != SPX_OK)
        return st;
    a->ndiag = rd[1];
    return SPX_OK;
}

/* What the head leaves out. */
static spx_status read_values(hid_t file, const char *path, size_t nspec, int with_resolution, spx_arm *a, spx_err *e)
{
    char p[128];
    size_t dims[2] = {nspec, a->nwave}, rd[3] = {nspec, a->ndiag, a->nwave};
    sub(p, sizeof p, path, "flux");
    spx_status st = spx_h5_read_f64(file, p, 2, dims, &a->flux, e);
    sub(p, sizeof p, path, "ivar");
    if (st != SPX_OK || (st = spx_h5_read_f64(file, p, 2, dims, &a->ivar, e)) != SPX_OK)
        return st;
    sub(p, sizeof p, path, "mask");
    if (spx_h5_exists(file, p) && (st = spx_h5_read_u32(file, p, 2, dims, &a->mask, e)) != SPX_OK)
        return st;
    if (!with_resolution)
        a->ndiag = 0;
    sub(p, sizeof p, path, "resolution");
    return a->ndiag > 0 ? spx_h5_read_f64(file, p, 3, rd, &a->resolution, e) : SPX_OK;
}

spx_status spx_arm_read(hid_t file, const char *path, size_t *nspec, int with_resolution, spx_arm *a, spx_err *e)
{
    spx_status st = spx_arm_read_head(file, path, nspec, a, e);
    return st == SPX_OK ? read_values(file, path, *nspec, with_resolution, a, e) : st;
}

spx_status spx_arm_write(hid_t file, const char *path, size_t nspec, const spx_arm *a, int precision, spx_err *e)
{
    char w[128], p[128], inverse[80];
    size_t dims[2] = {nspec, a->nwave};
    spx_status st = spx_h5_group(file, path, e);
    sub(w, sizeof w, path, "wavelength");
    if (st != SPX_OK || (st = spx_h5_write_real(file, w, 8, 1, &a->nwave, a->wavelength, e)) != SPX_OK ||
        (st = spx_h5_set_str(file, w, "medium", a->medium == SPX_AIR ? "air" : "vacuum", e)) != SPX_OK ||
        (st = spx_h5_set_str(file, w, "frame", a->barycentric ? "barycentric" : "topocentric", e)) != SPX_OK)
        return st;
    sub(p, sizeof p, path, "flux");
    if ((st = spx_h5_write_real_lasting(file, p, precision, 2, dims, a->flux, e)) != SPX_OK ||
        (st = spx_h5_set_str(file, p, "units", a->unit[0] != '\0' ? a->unit : "1", e)) != SPX_OK ||
        (st = spx_h5_attach_scale(file, p, 1, w, "wavelength", e)) != SPX_OK)
        return st;
    sub(p, sizeof p, path, "ivar");
    (void)snprintf(inverse, sizeof inverse, "(%s)^-2", a->unit[0] != '\0' ? a->unit : "1");
    if ((st = spx_h5_write_real_lasting(file, p, precision, 2, dims, a->ivar, e)) != SPX_OK ||
        (st = spx_h5_set_str(file, p, "units", inverse, e)) != SPX_OK ||
        (st = spx_h5_attach_scale(file, p, 1, w, "wavelength", e)) != SPX_OK)
        return st;
    if (a->mask != NULL) {
        sub(p, sizeof p, path, "mask");
        if ((st = spx_h5_write_lasting(file, p, H5T_NATIVE_UINT32, 2, dims, a->mask, e)) != SPX_OK ||
            (st = spx_h5_attach_scale(file, p, 1, w, "wavelength", e)) != SPX_OK)
            return st;
    }
    if (a->resolution != NULL) {
        size_t rd[3] = {nspec, a->ndiag, a->nwave};
        sub(p, sizeof p, path, "resolution");
        if ((st = spx_h5_write_real_lasting(file, p, precision, 3, rd, a->resolution, e)) != SPX_OK ||
            (st = spx_h5_attach_scale(file, p, 2, w, "wavelength", e)) != SPX_OK)
            return st;
    }
    return SPX_OK;
}

void spx_arm_free(spx_arm *a)
{
    spx_free(a->wavelength);
    spx_free(a->flux);
    spx_free(a->ivar);
    spx_free(a->mask);
    spx_free(a->resolution);
    memset(a, 0, sizeof *a);
}

/* ---- frame ---- */

/* Fibermap and scores: a row a spectrum. */
static spx_status read_row_table(hid_t file, const char *path, size_t nspec, spx_table **t, spx_err *e)
{
    spx_status st = spx_table_read(file, path, t, e);
    if (st == SPX_OK && *t != NULL && (*t)->nrow != nspec)
        st = spx_fail(e, SPX_EINPUT, "%s:%s: has %zu rows, but there are %zu spectra", spx_h5_filename(file), path,
                      (*t)->nrow, nspec);
    return st;
}

/* Camera of a frame, and the arm's name: the camera's letter, r0 -> r. */
static spx_status read_camera(hid_t file, size_t size, char *camera, spx_arm *a, spx_err *e)
{
    spx_status st = SPX_OK;
    if (spx_h5_has_attr(file, "/frame", "camera"))
        st = spx_h5_attr_str(file, "/frame", "camera", camera, size, e);
    if (isalpha((unsigned char)camera[0]))
        (void)snprintf(a->name, sizeof a->name, "%c", tolower((unsigned char)camera[0]));
    else
        (void)snprintf(a->name, sizeof a->name, "frame");
    return st;
}

spx_status spx_frame_read(hid_t file, spx_frame *f, spx_err *e)
{
    spx_status st = spx_schema_accept(file, "/frame", "frame", e);
    memset(f, 0, sizeof *f);
    if (st != SPX_OK || (st = spx_arm_read(file, "/frame", &f->nspec, 1, &f->arm, e)) != SPX_OK)
        return st;
    size_t dims[2] = {f->nspec, f->arm.nwave};
    if (spx_h5_exists(file, "/frame/chi2pix") &&
        (st = spx_h5_read_f64(file, "/frame/chi2pix", 2, dims, &f->chi2pix, e)) != SPX_OK)
        return st;
    if (spx_h5_exists(file, "/frame/pixmask_fraction") &&
        (st = spx_h5_read_f64(file, "/frame/pixmask_fraction", 2, dims, &f->pixmask_fraction, e)) != SPX_OK)
        return st;
    if (spx_h5_exists(file, "/frame/fiber") &&
        (st = spx_h5_read_i32(file, "/frame/fiber", 1, &f->nspec, &f->fiber, e)) != SPX_OK)
        return st;
    if (spx_h5_exists(file, "/frame/model")) {
        size_t md[2] = {0, 0};
        if ((st = spx_h5_read_f32(file, "/frame/model", 2, md, &f->model, e)) != SPX_OK)
            return st;
        f->model_ny = md[0];
        f->model_nx = md[1];
    }
    if ((st = read_camera(file, sizeof f->camera, f->camera, &f->arm, e)) != SPX_OK ||
        (st = spx_cards_read(file, "/frame/header", &f->header, e)) != SPX_OK ||
        (st = read_row_table(file, "/fibermap", f->nspec, &f->fibermap, e)) != SPX_OK)
        return st;
    return read_row_table(file, "/scores", f->nspec, &f->scores, e);
}

spx_status spx_frame_write(hid_t file, const spx_frame *f, int precision, spx_err *e)
{
    size_t dims[2] = {f->nspec, f->arm.nwave};
    spx_status st = spx_arm_write(file, "/frame", f->nspec, &f->arm, precision, e);
    const char *w = "/frame/wavelength";
    if (st == SPX_OK && f->chi2pix != NULL &&
        (st = spx_h5_write_real_lasting(file, "/frame/chi2pix", precision, 2, dims, f->chi2pix, e)) == SPX_OK)
        st = spx_h5_attach_scale(file, "/frame/chi2pix", 1, w, "wavelength", e);
    if (st == SPX_OK && f->pixmask_fraction != NULL &&
        (st = spx_h5_write_real_lasting(file, "/frame/pixmask_fraction", precision, 2, dims, f->pixmask_fraction, e)) ==
            SPX_OK)
        st = spx_h5_attach_scale(file, "/frame/pixmask_fraction", 1, w, "wavelength", e);
    if (st == SPX_OK && f->fiber != NULL)
        st = spx_h5_write(file, "/frame/fiber", H5T_NATIVE_INT32, 1, &f->nspec, f->fiber, e);
    if (st == SPX_OK && f->model != NULL) {
        size_t md[2] = {f->model_ny, f->model_nx};
        st = spx_h5_write_lasting(file, "/frame/model", H5T_NATIVE_FLOAT, 2, md, f->model, e);
    }
    if (st == SPX_OK)
        st = spx_h5_set_str(file, "/frame", "camera", f->camera, e);
    if (st == SPX_OK)
        st = spx_cards_write(file, "/frame/header", &f->header, e);
    if (st == SPX_OK)
        st = spx_table_write(file, "/fibermap", f->fibermap, e);
    if (st == SPX_OK)
        st = spx_table_write(file, "/scores", f->scores, e);
    return st;
}

void spx_frame_free(spx_frame *f)
{
    if (f == NULL)
        return;
    spx_arm_free(&f->arm);
    spx_free(f->chi2pix);
    spx_free(f->pixmask_fraction);
    spx_cards_free(&f->header);
    spx_table_free(f->fibermap);
    spx_table_free(f->scores);
    spx_free(f->fiber);
    spx_free(f->model);
    memset(f, 0, sizeof *f);
}

/* ---- spectra ---- */

/* A frame as spectra of one arm. */
static spx_status frame_head(hid_t file, spx_spectra *s, char (*path)[SPX_ARM_PATH], spx_err *e)
{
    char camera[16] = "";
    spx_status st = spx_schema_accept(file, "/frame", "frame", e);
    s->narm = 1;
    (void)snprintf(path[0], SPX_ARM_PATH, "/frame");
    if (st != SPX_OK || (st = spx_arm_read_head(file, path[0], &s->nspec, &s->arm[0], e)) != SPX_OK ||
        (st = read_camera(file, sizeof camera, camera, &s->arm[0], e)) != SPX_OK)
        return st;
    return spx_cards_read(file, "/frame/header", &s->header, e);
}

/* Arms in order of wavelength, which is what people expect of b, r, z; HDF5 lists them by name. */
static void sort_arms(spx_spectra *s, char (*path)[SPX_ARM_PATH])
{
    for (size_t i = 1; i < s->narm; i++)
        for (size_t k = i; k > 0 && s->arm[k].nwave > 0 && s->arm[k - 1].nwave > 0 &&
                           s->arm[k].wavelength[0] < s->arm[k - 1].wavelength[0];
             k--) {
            char name[SPX_ARM_PATH];
            spx_arm t = s->arm[k];
            s->arm[k] = s->arm[k - 1];
            s->arm[k - 1] = t;
            memcpy(name, path[k], sizeof name);
            memcpy(path[k], path[k - 1], sizeof name);
            memcpy(path[k - 1], name, sizeof name);
        }
}

static spx_status spectra_head(hid_t file, spx_spectra *s, char (*path)[SPX_ARM_PATH], spx_err *e)
{
    size_t n = 0;
    char **names = NULL;
    spx_status st = spx_schema_accept(file, "/spectra", "spectra", e);
    if (st != SPX_OK || (st = spx_h5_list(file, "/spectra", &n, &names, e)) != SPX_OK)
        return st;
    for (size_t i = 0; i < n && st == SPX_OK; i++) {
        char p[300];
        char flux[300]; /* an arm without wavelengths is damaged, not absent */
        (void)snprintf(p, sizeof p, "/spectra/%s/wavelength", names[i]);
        (void)snprintf(flux, sizeof flux, "/spectra/%s/flux", names[i]);
        if (!spx_h5_exists(file, p) && !spx_h5_exists(file, flux))
            continue;
        if (s->narm == SPX_MAX_ARM || strlen(names[i]) >= sizeof s->arm[0].name) {
            st = spx_fail(e, SPX_EINPUT, "%s:/spectra: more than %d arms, or an arm's name is too long",
                          spx_h5_filename(file), SPX_MAX_ARM);
            break;
        }
        spx_arm *a = &s->arm[s->narm];
        (void)snprintf(a->name, sizeof a->name, "%.15s", names[i]);
        (void)snprintf(path[s->narm], SPX_ARM_PATH, "/spectra/%s", a->name);
        st = spx_arm_read_head(file, path[s->narm++], &s->nspec, a, e);
    }
    spx_h5_names_free(n, names);
    if (st == SPX_OK && s->narm == 0)
        st = spx_fail(e, SPX_EINPUT, "%s:/spectra: has no arms", spx_h5_filename(file));
    sort_arms(s, path);
    if (st == SPX_OK)
        st = spx_cards_read(file, "/spectra/header", &s->header, e);
    return st == SPX_OK ? spx_table_read(file, "/exp_fibermap", &s->exp_fibermap, e) : st;
}

spx_status spx_spectra_read_head(hid_t file, spx_spectra *s, char (*path)[SPX_ARM_PATH], spx_err *e)
{
    spx_status st;
    memset(s, 0, sizeof *s);
    if (spx_h5_exists(file, "/spectra"))
        st = spectra_head(file, s, path, e);
    else if (spx_h5_exists(file, "/frame"))
        st = frame_head(file, s, path, e);
    else
        st = spx_fail(
            e, SPX_EINPUT,
            "%s: holds no spectra (/spectra or /frame): fits2h5 makes them of FITS files, specx-extract of images",
            spx_h5_filename(file));
    if (st == SPX_OK)
        st = read_row_table(file, "/fibermap", s->nspec, &s->fibermap, e);
    return st == SPX_OK ? read_row_table(file, "/scores", s->nspec, &s->scores, e) : st;
}

spx_status spx_spectra_read(hid_t file, int with_resolution, spx_spectra *s, spx_err *e)
{
    char path[SPX_MAX_ARM][SPX_ARM_PATH];
    spx_status st = spx_spectra_read_head(file, s, path, e);
    for (size_t i = 0; i < s->narm && st == SPX_OK; i++)
        st = read_values(file, path[i], s->nspec, with_resolution, &s->arm[i], e);
    return st;
}

spx_status spx_spectra_write(hid_t file, const spx_spectra *s, int precision, spx_err *e)
{
    spx_status st = spx_h5_group(file, "/spectra", e);
    for (size_t i = 0; i < s->narm && st == SPX_OK; i++) {
        char path[64];
        (void)snprintf(path, sizeof path, "/spectra/%s", s->arm[i].name);
        st = spx_arm_write(file, path, s->nspec, &s->arm[i], precision, e);
    }
    if (st == SPX_OK)
        st = spx_cards_write(file, "/spectra/header", &s->header, e);
    if (st == SPX_OK)
        st = spx_table_write(file, "/fibermap", s->fibermap, e);
    if (st == SPX_OK)
        st = spx_table_write(file, "/scores", s->scores, e);
    if (st == SPX_OK)
        st = spx_table_write(file, "/exp_fibermap", s->exp_fibermap, e);
    return st;
}

/* n blocks of `size` bytes chosen from `from`; NULL stays NULL. */
static spx_status take(void **to, const void *from, size_t per_row, size_t size, size_t n, const size_t *row,
                       spx_err *e)
{
    if (from == NULL)
        return SPX_OK;
    if ((*to = spx_alloc2(n, per_row, size, e)) == NULL)
        return SPX_EIO;
    for (size_t i = 0; i < n; i++)
        memcpy((char *)*to + i * per_row * size, (const char *)from + row[i] * per_row * size, per_row * size);
    return SPX_OK;
}

spx_status spx_spectra_take(const spx_spectra *s, size_t n, const size_t *row, spx_spectra *out, spx_err *e)
{
    memset(out, 0, sizeof *out);
    out->nspec = n;
    out->narm = s->narm;
    spx_status st = SPX_OK;
    for (size_t i = 0; i < s->narm && st == SPX_OK; i++) {
        const spx_arm *a = &s->arm[i];
        spx_arm *b = &out->arm[i];
        static const size_t all = 0;
        *b = *a;
        b->wavelength = NULL;
        b->flux = b->ivar = b->resolution = NULL;
        b->mask = NULL;
        if ((st = take((void **)&b->wavelength, a->wavelength, a->nwave, sizeof(double), 1, &all, e)) == SPX_OK &&
            (st = take((void **)&b->flux, a->flux, a->nwave, sizeof(double), n, row, e)) == SPX_OK &&
            (st = take((void **)&b->ivar, a->ivar, a->nwave, sizeof(double), n, row, e)) == SPX_OK &&
            (st = take((void **)&b->mask, a->mask, a->nwave, sizeof(uint32_t), n, row, e)) == SPX_OK)
            st = take((void **)&b->resolution, a->resolution, a->ndiag * a->nwave, sizeof(double), n, row, e);
    }
    if (st == SPX_OK)
        st = spx_cards_copy(&out->header, &s->header, e);
    if (st == SPX_OK && s->fibermap != NULL && (out->fibermap = spx_table_take(s->fibermap, n, row, e)) == NULL)
        st = SPX_EIO;
    if (st == SPX_OK && s->scores != NULL && (out->scores = spx_table_take(s->scores, n, row, e)) == NULL)
        st = SPX_EIO;
    return st;
}

void spx_spectra_free(spx_spectra *s)
{
    if (s == NULL)
        return;
    for (size_t i = 0; i < s->narm; i++)
        spx_arm_free(&s->arm[i]);
    spx_cards_free(&s->header);
    spx_table_free(s->fibermap);
    spx_table_free(s->scores);
    spx_table_free(s->exp_fibermap);
    memset(s, 0, sizeof *s);
}
