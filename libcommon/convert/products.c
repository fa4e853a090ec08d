/* Writes blocks as FITS files (convert/products.h). */
#include "convert/products.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "convert/bricks.h"
#include "convert/ccd.h"
#include "convert/products_parts.h"
#include "convert/table_h5.h"
#include "convert/types_h5.h"
#include "h5/attr.h"
#include "h5/object.h"
#include "h5/provenance.h"
#include "h5/read.h"
#include "h5/schema.h"
#include "h5/table.h"
#include "products/cards_h5.h"
#include "products/frame_h5.h"
#include "products/image_h5.h"
#include "products/psf_h5.h"
#include "products/spectra_h5.h"
#include "products/wavelength_h5.h"

enum { TEXT = 16384 };

/* ---- provenance ---- */

/* Adds HISTORY cards for each run in the provenance. */
spx_status spx_fits_add_history(hid_t in, spx_cards *h, spx_err *e)
{
    size_t n = spx_provenance_count(in);
    char *text = spx_alloc(TEXT, 1, e), card[81], version[64] = "";
    spx_status st = text != NULL ? SPX_OK : SPX_EIO;
    for (size_t i = 0; st == SPX_OK && i < n; i++) {
        if (!spx_provenance_field(in, i, "command_line", text, TEXT))
            continue;
        spx_provenance_field(in, i, "version", version, sizeof version);
        for (char *c = text; *c; c++)
            if (*c < 32 || *c > 126)
                *c = '?';
        size_t used = strlen(text);
        snprintf(text + used, TEXT - used, " (specpipe %s)", version);
        for (size_t at = 0; st == SPX_OK && at < strlen(text); at += 70) {
            snprintf(card, sizeof card, "HISTORY %s%.70s", at ? "  " : "", text + at);
            st = spx_cards_append(h, card, e);
        }
    }
    spx_free(text);
    return st;
}

/* ---- parts ---- */

static void upper(char *to, size_t size, const char *from)
{
    size_t n = 0;
    for (; *from && n + 1 < size; from++)
        to[n++] = (char)toupper((unsigned char)*from);
    to[n] = 0;
}

/* BITPIX -32 or -64, as the dataset is stored. */
int spx_fits_bitpix_of(hid_t in, const char *path)
{
    spx_err e = {0};
    hid_t d = spx_h5_open(in, path, &e), t = d < 0 ? H5I_INVALID_HID : H5Dget_type(d);
    int bitpix = t >= 0 && H5Tget_size(t) > 4 ? -64 : -32;
    if (t >= 0)
        H5Tclose(t);
    if (d >= 0)
        H5Dclose(d);
    return bitpix;
}

/* Writes an image of doubles, stored with `bitpix`. */
spx_status spx_fits_put_reals(spx_fits_out *o, const char *extname, int bitpix, int ndim, const size_t *dims,
                              const double *data, const spx_cards *more, spx_err *e)
{
    size_t n = 1;
    if (bitpix == -64)
        return spx_fits_out_image(o, extname, bitpix, ndim, dims, data, more, e);
    for (int i = 0; i < ndim; i++)
        n *= dims[i];
    float *f = spx_alloc(n, sizeof *f, e);
    if (f == NULL)
        return SPX_EIO;
    for (size_t i = 0; i < n; i++)
        f[i] = (float)data[i];
    spx_status st = spx_fits_out_image(o, extname, bitpix, ndim, dims, f, more, e);
    spx_free(f);
    return st;
}

spx_status spx_fits_put_table(spx_fits_out *o, const char *extname, const spx_table *t, spx_err *e)
{
    return t != NULL ? spx_fits_out_table(o, extname, t, NULL, e) : SPX_OK;
}

/* Writes wavelengths with keywords for medium and frame. */
spx_status spx_fits_put_wavelength(spx_fits_out *o, const char *extname, size_t nspec, const spx_arm *a, spx_err *e)
{
    const size_t dims[2] = {nspec, a->nwave};
    spx_cards h = {0};
    spx_status st = spx_cards_set_string(&h, "BUNIT", "Angstrom", NULL, e);
    if (st == SPX_OK)
        st = spx_cards_set_string(&h, "AIRORVAC", a->medium == SPX_AIR ? "air" : "vac", "wavelengths in air or vacuum",
                                  e);
    if (st == SPX_OK) /* blank: not known */
        st = spx_cards_set_string(&h, "SPECSYS",
                                  a->frame_unknown ? ""
                                  : a->barycentric ? "BARYCENT"
                                                   : "TOPOCENT",
                                  "frame of the wavelengths", e);
    if (st == SPX_OK)
        st = a->per_row ? spx_fits_out_image(o, extname, -64, 2, dims, a->row_wavelength, &h, e)
                        : spx_fits_out_image(o, extname, -64, 1, &a->nwave, a->wavelength, &h, e);
    spx_cards_free(&h);
    return st;
}

spx_status spx_fits_unit_card(spx_cards *h, const char *unit, spx_err *e)
{
    const int words = strstr(unit, "relative flux") != NULL;
    spx_cards_drop(h, "BUNIT");
    spx_cards_drop(h, SPX_FITS_WORDS);
    if (unit[0] == '\0' || strcmp(unit, "1") == 0)
        return SPX_OK;
    return spx_cards_set_string(h, words ? SPX_FITS_WORDS : "BUNIT", unit, NULL, e);
}

/* Reads a factor of a unit, `cm2`, `s**-1` or `A^2`: its name, which ends at *end, and its power. 0: there is none. */
static int factor(const char *p, const char **name_end, long *power, const char **end)
{
    char *number;
    const char *q = p;
    while (isalpha((unsigned char)*q))
        q++;
    *name_end = q;
    *power = 1;
    *end = q;
    if (q == p)
        return 0;
    q += strncmp(q, "**", 2) == 0 ? 2 : *q == '^';
    if (isdigit((unsigned char)*q) || ((*q == '-' || *q == '+') && isdigit((unsigned char)q[1]))) {
        *power = strtol(q, &number, 10);
        *end = number;
    }
    return labs(*power) <= 99 && **end != '.' && strncmp(*end, "**", 2) != 0 && **end != '^';
}

/* Unit of an inverse variance, `10**34 erg-2 s2` for `10**-17 erg / s`: factors of integer powers, behind a power of
 * ten, joined by blanks, `*`, `.` or `/`, of which one parenthesis may hold several. An empty text: the unit is of
 * another form. */
static void inverse_square(const char *unit, char *out, size_t size)
{
    int below = 0, inside = 0;
    size_t n = 0;
    char *end;
    out[0] = '\0';
    if (strcmp(unit, "relative flux") == 0) /* no unit, words */
        return;
    if (strncmp(unit, "10**", 4) == 0) {
        const long power = strtol(unit + 4, &end, 10);
        if (end == unit + 4 || labs(power) > 99)
            return;
        n = (size_t)snprintf(out, size, "10**%ld", -2 * power);
        unit = end;
    }
    for (const char *p = unit, *name_end; *p != '\0';) {
        long power;
        if (strchr(" *.", *p) != NULL || (*p == '(' && !inside)) {
            inside |= *p++ == '(';
        } else if (*p == '/') { /* what follows, one factor or a parenthesis */
            below = 1;
            p++;
        } else if (*p == ')' && inside && p[1] != '*' && p[1] != '^') {
            inside = below = 0;
            p++;
        } else {
            const char *name = p;
            if (!factor(name, &name_end, &power, &p) || n + (size_t)(name_end - name) + 8 > size) {
                out[0] = '\0';
                return;
            }
            n += (size_t)snprintf(out + n, size - n, "%s%.*s%ld", n > 0 ? " " : "", (int)(name_end - name), name,
                                  (below ? 2 : -2) * power);
            below = below && inside;
        }
    }
    if (inside)
        out[0] = '\0';
}

/* ---- frame ---- */

/* Makes the header of a frame: the image's cards, and those that desispec adds. */
spx_status spx_fits_frame_header(hid_t in, const spx_frame *f, spx_cards *h, spx_err *e)
{
    const spx_arm *a = &f->arm;
    double step = a->nwave > 1 ? (a->wavelength[a->nwave - 1] - a->wavelength[0]) / (double)(a->nwave - 1) : 0.0, old;
    char text[1024];
    spx_status st = spx_cards_copy(h, &f->header, e);
    if (st != SPX_OK || (st = spx_fits_unit_card(h, a->unit, e)) != SPX_OK ||
        (f->camera[0] && (st = spx_cards_set_string(h, "CAMERA", f->camera, NULL, e)) != SPX_OK) ||
        (st = spx_cards_set_int(h, "NSPEC", (long)f->nspec, "number of spectra", e)) != SPX_OK ||
        (st = spx_cards_set_double(h, "WAVEMIN", a->wavelength[0], "first wavelength [Angstrom]", e)) != SPX_OK ||
        (st = spx_cards_set_double(h, "WAVEMAX", a->wavelength[a->nwave - 1], "last wavelength [Angstrom]", e)) !=
            SPX_OK ||
        (st = spx_cards_set_double(h, "WAVESTEP", step, "mean step of the wavelengths [Angstrom]", e)) != SPX_OK)
        return st;
    if (!spx_cards_double(h, "HELIOCOR", &old) &&
        (st = spx_cards_set_double(h, "HELIOCOR", 1.0, "barycentric factor of the wavelengths", e)) != SPX_OK)
        return st;
    if (spx_provenance_option(in, "image", text, sizeof text) &&
        (st = spx_cards_set_string(h, "IN_IMG", text, NULL, e)) != SPX_OK)
        return st;
    if (spx_provenance_option(in, "psf", text, sizeof text) &&
        (st = spx_cards_set_string(h, "IN_PSF", text, NULL, e)) != SPX_OK)
        return st;
    return spx_fits_add_history(in, h, e);
}

spx_status spx_fits_put_frame(hid_t in, spx_fits_out *o, spx_err *e)
{
    spx_frame f = {0};
    spx_cards h = {0};
    spx_status st = spx_frame_read(in, &f, e);
    if (st == SPX_OK && (f.nspec == 0 || f.arm.nwave == 0))
        st = spx_fail_at(e, SPX_EINPUT, spx_h5_filename(in), "/frame", NULL, "holds no spectra");
    if (st == SPX_OK)
        st = spx_fits_frame_header(in, &f, &h, e);
    size_t dims[2] = {f.nspec, f.arm.nwave}, rdims[3] = {f.nspec, f.arm.ndiag, f.arm.nwave};
    int bitpix = spx_fits_bitpix_of(in, "/frame/flux");
    if (st == SPX_OK)
        st = spx_fits_put_reals(o, "FLUX", bitpix, 2, dims, f.arm.flux, &h, e);
    if (st == SPX_OK)
        st = spx_fits_put_reals(o, "IVAR", bitpix, 2, dims, f.arm.ivar, NULL, e);
    if (st == SPX_OK && f.arm.mask != NULL)
        st = spx_fits_out_image(o, "MASK", SPX_FITS_UINT32, 2, dims, f.arm.mask, NULL, e);
    if (st == SPX_OK)
        st = spx_fits_put_wavelength(o, "WAVELENGTH", f.nspec, &f.arm, e);
    if (st == SPX_OK && f.arm.resolution != NULL)
        st = spx_fits_put_reals(o, "RESOLUTION", bitpix, 3, rdims, f.arm.resolution, NULL, e);
    if (st == SPX_OK)
        st = spx_fits_put_table(o, "FIBERMAP", f.fibermap, e);
    if (st == SPX_OK && f.chi2pix != NULL)
        st = spx_fits_put_reals(o, "CHI2PIX", bitpix, 2, dims, f.chi2pix, NULL, e);
    if (st == SPX_OK && f.pixmask_fraction != NULL)
        st = spx_fits_put_reals(o, "PIXMASK_FRACTION", bitpix, 2, dims, f.pixmask_fraction, NULL, e);
    if (st == SPX_OK)
        st = spx_fits_put_table(o, "SCORES", f.scores, e);
    spx_cards_free(&h);
    spx_frame_free(&f);
    return st;
}

/* ---- spectra ---- */

spx_status spx_fits_put_primary(hid_t in, spx_fits_out *o, const spx_cards *from, const char *command, spx_err *e)
{
    spx_cards h = {0};
    spx_status st = from != NULL ? spx_cards_copy(&h, from, e) : SPX_OK;
    spx_cards_drop(&h, "BUNIT");         /* of the image that the spectra come from */
    if (st == SPX_OK && command != NULL) /* as rvspecfit calls it */
        st = spx_cards_set_string(&h, "RVS_CMD", command, NULL, e);
    if (st == SPX_OK)
        st = spx_fits_add_history(in, &h, e);
    if (st == SPX_OK)
        st = spx_fits_out_image(o, NULL, 8, 0, NULL, NULL, &h, e);
    spx_cards_free(&h);
    return st;
}

spx_status spx_fits_put_arm(hid_t in, spx_fits_out *o, size_t nspec, const spx_arm *a, spx_err *e)
{
    char band[16], name[40], path[64];
    size_t dims[2] = {nspec, a->nwave}, rdims[3] = {nspec, a->ndiag, a->nwave};
    spx_cards unit = {0}, ivar_unit = {0};
    char per[128];
    inverse_square(a->unit, per, sizeof per);
    upper(band, sizeof band, a->name);
    snprintf(path, sizeof path, "/spectra/%s/flux", a->name);
    int bitpix = spx_fits_bitpix_of(in, spx_h5_exists(in, path) ? path : "/frame/flux");
    snprintf(name, sizeof name, "%s_WAVELENGTH", band);
    spx_status st = spx_fits_put_wavelength(o, name, nspec, a, e);
    if (st == SPX_OK)
        st = spx_fits_unit_card(&unit, a->unit, e);
    if (st == SPX_OK)
        st = spx_fits_unit_card(&ivar_unit, per, e);
    snprintf(name, sizeof name, "%s_FLUX", band);
    if (st == SPX_OK)
        st = spx_fits_put_reals(o, name, bitpix, 2, dims, a->flux, &unit, e);
    snprintf(name, sizeof name, "%s_IVAR", band);
    if (st == SPX_OK)
        st = spx_fits_put_reals(o, name, bitpix, 2, dims, a->ivar, &ivar_unit, e);
    snprintf(name, sizeof name, "%s_MASK", band);
    if (st == SPX_OK && a->mask != NULL)
        st = spx_fits_out_image(o, name, 32, 2, dims, a->mask, NULL, e);
    snprintf(name, sizeof name, "%s_RESOLUTION", band);
    if (st == SPX_OK && a->resolution != NULL)
        st = spx_fits_put_reals(o, name, bitpix, 3, rdims, a->resolution, NULL, e);
    spx_cards_free(&unit);
    spx_cards_free(&ivar_unit);
    return st;
}

spx_status spx_fits_put_spectra(hid_t in, spx_fits_out *o, spx_err *e)
{
    spx_spectra s = {0};
    spx_status st = spx_spectra_read_grids(in, 1, &s, e);
    if (st == SPX_OK)
        st = spx_fits_put_primary(in, o, &s.header, NULL, e);
    if (st == SPX_OK)
        st = spx_fibermap_add_bricks(s.fibermap, e);
    if (st == SPX_OK)
        st = spx_fits_put_table(o, "FIBERMAP", s.fibermap, e);
    if (st == SPX_OK)
        st = spx_fits_put_table(o, "EXP_FIBERMAP", s.exp_fibermap, e);
    for (size_t i = 0; st == SPX_OK && i < s.narm; i++)
        st = spx_fits_put_arm(in, o, s.nspec, &s.arm[i], e);
    if (st == SPX_OK)
        st = spx_fits_put_table(o, "SCORES", s.scores, e);
    spx_spectra_free(&s);
    return st;
}

/* ---- velocities ---- */

/* Command line of the fit, from the provenance. */
static int fit_command(hid_t in, char *text, size_t size)
{
    char program[64];
    for (size_t i = spx_provenance_count(in); i-- > 0;)
        if (spx_provenance_field(in, i, "program", program, sizeof program) && strcmp(program, "rvs-fit") == 0)
            return spx_provenance_field(in, i, "command_line", text, size);
    return 0;
}

/* Makes cards of rvspecfit's files that come from the spectra's header. */
static spx_status rv_header(hid_t in, spx_cards *h, spx_err *e)
{
    static const char *const key[] = {"SPGRP", "SPGRPVAL", "TILEID",   "SPECTRO",  "PETAL",
                                      "NIGHT", "EXPID",    "HPXPIXEL", "HPXNSIDE", "HPXNEST"};
    spx_cards all = {0};
    spx_status st = spx_cards_read(in, "/rvfit/header", &all, e);
    for (size_t i = 0; i < all.n && st == SPX_OK; i++)
        for (size_t k = 0; k < sizeof key / sizeof *key && st == SPX_OK; k++) {
            size_t n = strlen(key[k]);
            const char *card = all.cards + 80 * i;
            char text[81];
            if (strncmp(card, key[k], n) != 0 || strncmp(card + n, "        ", 8 - n) != 0)
                continue;
            (void)snprintf(text, sizeof text, "%.80s", card);
            st = spx_cards_append(h, text, e);
        }
    spx_cards_free(&all);
    return st;
}

/* Adds TMPLCON0 ...: the setup of the templates of each arm. */
static spx_status add_setups(hid_t in, spx_cards *h, spx_err *e)
{
    size_t n = 0, found = 0;
    char **names = NULL, key[64], setup[128];
    spx_status st = spx_h5_list(in, "/rvfit", &n, &names, e);
    for (size_t i = 0; i < n && st == SPX_OK; i++) {
        snprintf(key, sizeof key, "/rvfit/%.40s/wavelength", names[i]);
        if (!spx_h5_exists(in, key)) /* no arm: all records would be read in vain */
            continue;
        snprintf(key, sizeof key, "setup_%.40s", names[i]);
        if (!spx_provenance_option(in, key, setup, sizeof setup))
            continue;
        snprintf(key, sizeof key, "TMPLCON%zu", found++ % 10);
        st = spx_cards_set_string(h, key, setup, "setup of the templates", e);
    }
    spx_h5_names_free(n, names);
    return st;
}

static spx_status put_rv_primary(hid_t in, spx_fits_out *o, spx_err *e)
{
    char command[1024], file[512] = "";
    spx_cards h = {0};
    spx_status st = rv_header(in, &h, e);
    if (st == SPX_OK)
        st = add_setups(in, &h, e);
    (void)spx_provenance_option(in, "zbest", file, sizeof file);
    if (st == SPX_OK)
        st = spx_cards_set_string(&h, "RR_FILE", file, "redshift file", e);
    if (st == SPX_OK)
        st = spx_fits_put_primary(in, o, &h, fit_command(in, command, sizeof command) ? command : NULL, e);
    spx_cards_free(&h);
    return st;
}

/* Adds the redshift file's columns, which rvspecfit's tables always have; empty where there was none. */
static spx_status add_redshifts(spx_table *t, spx_err *e)
{
    if (spx_table_find(t, "RR_Z") >= 0)
        return SPX_OK;
    double *z = spx_alloc(t->nrow, sizeof *z, e);
    char *text = spx_alloc(t->nrow, 8, e);
    spx_status st = z == NULL || text == NULL ? SPX_EIO : SPX_OK;
    for (size_t i = 0; i < t->nrow && st == SPX_OK; i++)
        z[i] = NAN;
    if (st == SPX_OK)
        st = spx_table_add(t, "RR_Z", H5T_NATIVE_DOUBLE, "", z, e);
    if (st == SPX_OK)
        st = spx_table_add_strings(t, "RR_SPECTYPE", 8, text, e);
    if (st == SPX_OK)
        st = spx_table_add_strings(t, "RR_SUBTYPE", 8, text, e);
    spx_free(z);
    spx_free(text);
    return st;
}

/* Writes the table in rvspecfit's form: SUCCESS is a logical column, and true where no warning is set. */
static spx_status put_rv_table(hid_t in, spx_fits_out *o, spx_err *e)
{
    static const char *const changed = "SUCCESS";
    spx_table *t = NULL, *out = NULL;
    int64_t *warn = NULL, *success = NULL;
    signed char *good = NULL;
    spx_status st = spx_table_read(in, "/rvfit/table", &t, e);
    if (st == SPX_OK && (spx_table_find(t, changed) < 0 || spx_table_find(t, "RVS_WARN") < 0)) {
        st = spx_fits_put_table(o, "RVTAB", t, e);
        spx_table_free(t);
        return st;
    }
    hid_t type = spx_fits_element_type('L', 1, 0, 1);
    if (st == SPX_OK &&
        ((out = spx_table_new(t->nrow, e)) == NULL || (warn = spx_alloc(t->nrow, sizeof *warn, e)) == NULL ||
         (success = spx_alloc(t->nrow, sizeof *success, e)) == NULL || (good = spx_alloc(t->nrow, 1, e)) == NULL))
        st = SPX_EIO;
    if (st == SPX_OK)
        st = spx_table_get_i64(t, "RVS_WARN", warn, e);
    if (st == SPX_OK)
        st = spx_table_get_i64(t, changed, success, e);
    for (size_t i = 0; st == SPX_OK && i < t->nrow; i++)
        good[i] = warn[i] == 0 && success[i] != 0;
    for (size_t k = 0; st == SPX_OK && k < spx_table_ncol(t); k++) {
        char *name = spx_table_name(t, (int)k, e);
        if (name == NULL)
            st = SPX_EIO;
        else if (strcmp(name, changed) == 0)
            st = spx_table_add(out, name, type, "", good, e);
        else
            st = spx_table_copy_column(out, name, t, (int)k, e);
        spx_free(name);
    }
    if (st == SPX_OK)
        st = add_redshifts(out, e);
    if (st == SPX_OK)
        st = spx_fits_put_table(o, "RVTAB", out, e);
    if (type >= 0)
        (void)H5Tclose(type);
    spx_table_free(t);
    spx_table_free(out);
    spx_free(warn);
    spx_free(success);
    spx_free(good);
    return st;
}

static spx_status put_named_table(hid_t in, spx_fits_out *o, const char *path, const char *extname, spx_err *e)
{
    spx_table *t = NULL;
    spx_status st = spx_table_read(in, path, &t, e);
    if (st == SPX_OK)
        st = spx_fits_put_table(o, extname, t, e);
    spx_table_free(t);
    return st;
}

spx_status spx_fits_put_rvtab(hid_t in, spx_fits_out *o, spx_err *e)
{
    spx_status st = spx_schema_accept(in, "/rvfit", "rvfit", e);
    if (st == SPX_OK && !spx_h5_exists(in, "/rvfit/table"))
        st = spx_fail_at(e, SPX_EINPUT, spx_h5_filename(in), "/rvfit/table", NULL, "is missing");
    if (st == SPX_OK)
        st = put_rv_primary(in, o, e);
    if (st == SPX_OK)
        st = put_rv_table(in, o, e);
    if (st == SPX_OK)
        st = put_named_table(in, o, "/fibermap", "FIBERMAP", e);
    if (st == SPX_OK)
        st = put_named_table(in, o, "/scores", "SCORES", e);
    return st == SPX_OK ? put_named_table(in, o, "/exp_fibermap", "EXP_FIBERMAP", e) : st;
}

/* Writes wavelengths and models of one arm. */
static spx_status put_model(hid_t in, spx_fits_out *o, const char *arm, const char *dataset, spx_err *e)
{
    char band[16], name[40], path[64], unit[64] = "";
    size_t dims[2] = {0, 0};
    double *model = NULL;
    spx_arm a = {0};
    spx_cards h = {0};
    upper(band, sizeof band, arm);
    snprintf(path, sizeof path, "/rvfit/%.15s/wavelength", arm);
    spx_status st = spx_wavelength_read_grids(in, path, &dims[0], &a.nwave, &a.wavelength, e);
    a.per_row = dims[0] > 0;
    if (a.per_row) {
        a.row_wavelength = a.wavelength;
        a.wavelength = NULL;
    }
    if (st == SPX_OK)
        st = spx_wavelength_read_words(in, path, &a.medium, &a.barycentric, &a.frame_unknown, e);
    snprintf(name, sizeof name, "%s_WAVELENGTH", band);
    if (st == SPX_OK)
        st = spx_fits_put_wavelength(o, name, dims[0], &a, e);
    snprintf(path, sizeof path, "/rvfit/%.15s/%s", arm, dataset);
    dims[1] = a.nwave;
    if (st == SPX_OK)
        st = spx_h5_read_f64(in, path, 2, dims, &model, e);
    if (st == SPX_OK && spx_h5_has_attr(in, path, "units"))
        st = spx_h5_attr_str(in, path, "units", unit, sizeof unit, e);
    if (st == SPX_OK)
        st = spx_fits_unit_card(&h, unit, e);
    snprintf(name, sizeof name, "%s_MODEL", band);
    if (st == SPX_OK)
        st = spx_fits_put_reals(o, name, spx_fits_bitpix_of(in, path), 2, dims, model, &h, e);
    spx_cards_free(&h);
    spx_arm_free(&a);
    spx_free(model);
    return st;
}

spx_status spx_fits_put_rvmod(hid_t in, spx_fits_out *o, spx_err *e)
{
    size_t n = 0, found = 0;
    char **names = NULL, path[64];
    /* for stars of several exposures models are those of exposures, as is their fibermap */
    int joint = spx_h5_exists(in, "/rvfit/exposures");
    const char *model = joint ? "exposure_model" : "model";
    spx_status st = spx_schema_accept(in, "/rvfit", "rvfit", e);
    if (st == SPX_OK)
        st = put_rv_primary(in, o, e);
    if (st == SPX_OK)
        st = spx_h5_list(in, "/rvfit", &n, &names, e);
    for (size_t i = 0; st == SPX_OK && i < n; i++) {
        snprintf(path, sizeof path, "/rvfit/%.15s/%s", names[i], model);
        if (strlen(names[i]) > 15 || !spx_h5_exists(in, path))
            continue;
        found++;
        st = put_model(in, o, names[i], model, e);
    }
    spx_h5_names_free(n, names);
    if (st == SPX_OK && found == 0)
        st = spx_fail_at(e, SPX_EINPUT, spx_h5_filename(in), "/rvfit", "run rvs-fit without --no-model",
                         "holds no models");
    return st == SPX_OK ? put_named_table(in, o, joint ? "/exp_fibermap" : "/fibermap", "FIBERMAP", e) : st;
}

/* ---- image and PSF ---- */

spx_status spx_fits_put_image(hid_t in, spx_fits_out *o, spx_err *e)
{
    spx_image im = {0};
    spx_status st = spx_image_read(in, &im, e);
    if (st == SPX_OK)
        st = spx_fits_add_history(in, &im.header, e);
    if (st == SPX_OK)
        st = spx_image_write_fits(o, &im, e);
    spx_image_free(&im);
    return st;
}

spx_status spx_fits_put_psf(hid_t in, spx_fits_out *o, spx_err *e)
{
    spx_psf psf = {0};
    spx_status st = spx_psf_read(in, &psf, e);
    if (st == SPX_OK)
        st = spx_fits_add_history(in, &psf.header, e);
    if (st == SPX_OK)
        st = spx_psf_write_fits(o, &psf, e);
    spx_psf_free(&psf);
    return st;
}
