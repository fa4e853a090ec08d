/* Reads and writes /rvfit (products/rvfit_h5.h). */
#include "products/rvfit_h5.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/order.h"
#include "h5/attr.h"
#include "h5/object.h"
#include "h5/write.h"
#include "products/cards_h5.h"
#include "products/spectra.h"
#include "products/templates.h"
#include "products/wavelength_h5.h"

enum { COLUMN = 48 };

static void column_name(const char (*par)[32], size_t k, char out[COLUMN]);

/* 1 when a column of that name exists, without counting parameter k. */
static int is_taken(const char *name, const char (*par)[32], size_t k)
{
    static const char *const fixed[] = {
        "TARGETID",   "EXPID",      "FIBER",          "TARGET_RA", "TARGET_DEC", "REF_ID",   "REF_CAT",   "OBJTYPE",
        "VRAD",       "VRAD_ERR",   "VRAD_SKEW",      "VRAD_KURT", "VRAD_CCF",   "VRAD_ALT", "VSINI",     "VSINI_ERR",
        "DCHISQ_ALT", "COVAR",      "NEG2LOGL",       "NPIX_TOT",  "NREJECT",    "NITER",    "SUCCESS",   "RVS_WARN",
        "NEXP",       "VARIABLE",   "ZERO",           "ZERO_ERR",  "ZERO_KNOWN", "VRAD1",    "VRAD1_ERR", "VRAD2",
        "VRAD2_ERR",  "FLUX_RATIO", "FLUX_RATIO_ERR", "TEFF2",     "DCHISQ_2",   "DOUBLE"};
    int yes = strncmp(name, "SN_", 3) == 0 || strncmp(name, "CHISQ_", 6) == 0 || strncmp(name, "JITTER_", 7) == 0 ||
              strncmp(name, "NPOLY_", 6) == 0 || strncmp(name, "CONST_", 6) == 0;
    for (size_t i = 0; i < sizeof fixed / sizeof *fixed; i++)
        yes |= strcmp(name, fixed[i]) == 0;
    for (size_t j = 0; j < k && !yes; j++) {
        char other[COLUMN], error[COLUMN + 4];
        column_name(par, j, other);
        (void)snprintf(error, sizeof error, "%s_ERR", other);
        yes = strcmp(name, other) == 0 || strcmp(name, error) == 0;
    }
    return yes;
}

/* Name of the column of parameter k of the templates: DESI's name where there is one, else its own in capitals; with
 * PAR_ before it, and a number after it, where that name is taken. */
static void column_name(const char (*par)[32], size_t k, char out[COLUMN])
{
    const char *name = strcmp(par[k], "alpha") == 0 ? "ALPHAFE" : par[k];
    (void)snprintf(out, COLUMN, "%s", name);
    for (int again = 1;; again++) {
        for (char *c = out; *c != '\0'; c++)
            *c = (char)toupper((unsigned char)*c);
        if (!is_taken(out, par, k))
            return;
        if (again == 1)
            (void)snprintf(out, COLUMN, "PAR_%s", name);
        else
            (void)snprintf(out, COLUMN, "PAR_%s_%d", name, again);
    }
}

/* Adds a column of doubles: element i is at byte `offset` of star i. */
static spx_status add_f64(spx_table *t, const spx_rvfit *r, const char *name, const char *unit, size_t offset,
                          double *tmp, spx_err *e)
{
    for (size_t i = 0; i < r->nstar; i++)
        memcpy(&tmp[i], (const char *)&r->star[i] + offset, sizeof(double));
    return spx_table_add(t, name, H5T_NATIVE_DOUBLE, unit, tmp, e);
}

static spx_status add_i64(spx_table *t, const spx_rvfit *r, const char *name, size_t offset, size_t size, spx_err *e)
{
    int64_t *v = spx_alloc(r->nstar, sizeof *v, e);
    if (v == NULL)
        return SPX_EIO;
    for (size_t i = 0; i < r->nstar; i++) {
        const char *p = (const char *)&r->star[i] + offset;
        int32_t small;
        if (size == sizeof small) {
            memcpy(&small, p, sizeof small);
            v[i] = small;
        } else {
            memcpy(&v[i], p, sizeof *v);
        }
    }
    spx_status st = spx_table_add(t, name, H5T_NATIVE_INT64, "", v, e);
    spx_free(v);
    return st;
}

#define AT(field) offsetof(spx_rvfit_star, field)

static spx_status add_parameters(spx_table *t, const spx_rvfit *r, double *tmp, spx_err *e)
{
    spx_status st = SPX_OK;
    for (size_t k = 0; k < r->npar && st == SPX_OK; k++) {
        char name[COLUMN], err[COLUMN + 8];
        column_name(r->parname, k, name);
        (void)snprintf(err, sizeof err, "%s_ERR", name);
        const char *unit = strcmp(name, "TEFF") == 0 ? "K" : "";
        st = add_f64(t, r, name, unit, AT(par) + k * sizeof(double), tmp, e);
        if (st == SPX_OK)
            st = add_f64(t, r, err, unit, AT(par_err) + k * sizeof(double), tmp, e);
    }
    return st;
}

static spx_status add_covariance(spx_table *t, const spx_rvfit *r, spx_err *e)
{
    size_t n = 2 + r->npar;
    hsize_t dims[2] = {n, n};
    double *v = spx_alloc2(r->nstar, n * n, sizeof *v, e);
    if (v == NULL)
        return SPX_EIO;
    for (size_t i = 0; i < r->nstar; i++)
        memcpy(v + i * n * n, r->star[i].covar, n * n * sizeof *v);
    hid_t type = H5Tarray_create2(H5T_NATIVE_DOUBLE, 2, dims);
    spx_status st = spx_table_add(t, "COVAR", type, "", v, e);
    (void)H5Tclose(type);
    spx_free(v);
    return st;
}

static void arm_column(const char *prefix, const char *arm, char *out, size_t size)
{
    (void)snprintf(out, size, "%s_%s", prefix, arm);
    for (char *c = out; *c != '\0'; c++)
        *c = (char)toupper((unsigned char)*c);
}

static spx_status add_arms(spx_table *t, const spx_rvfit *r, double *tmp, spx_err *e)
{
    static const struct {
        const char *prefix;
        size_t offset;
    } columns[] = {{"SN", AT(sn)},
                   {"CHISQ", AT(arm_chisq)},
                   {"CHISQ_C", AT(arm_chisq_c)},
                   {"JITTER", AT(jitter)},
                   {"JITTER_ERR", AT(jitter_err)}};
    spx_status st = SPX_OK;
    for (size_t k = 0; k < (r->with_jitter ? 5 : 3); k++)
        for (size_t a = 0; a < r->narm && st == SPX_OK; a++) {
            char name[48];
            arm_column(columns[k].prefix, r->arm[a].name, name, sizeof name);
            st = add_f64(t, r, name, "", columns[k].offset + a * sizeof(double), tmp, e);
        }
    for (size_t a = 0; a < r->narm && st == SPX_OK; a++) {
        char name[48];
        arm_column("NPOLY", r->arm[a].name, name, sizeof name);
        st = add_i64(t, r, name, AT(npoly) + a * sizeof r->star->npoly[0], sizeof r->star->npoly[0], e);
    }
    return st;
}

/* Copies the fibermap's columns that identify a star. */
static spx_status add_identity(spx_table *t, const spx_table *fibermap, spx_err *e)
{
    static const char *const wanted[] = {"TARGETID",   "EXPID",  "FIBER",   "TARGET_RA",
                                         "TARGET_DEC", "REF_ID", "REF_CAT", "OBJTYPE"};
    spx_status st = SPX_OK;
    for (size_t k = 0; fibermap != NULL && k < sizeof wanted / sizeof *wanted && st == SPX_OK; k++) {
        int col = spx_table_find(fibermap, wanted[k]);
        if (col >= 0)
            st = spx_table_copy_column(t, wanted[k], fibermap, col, e);
    }
    return st;
}

/* Adds the number of exposures of each star. */
static spx_status add_counts(spx_table *t, const spx_rvfit *r, spx_err *e)
{
    int64_t *n = spx_alloc(r->nstar, sizeof *n, e);
    if (n == NULL)
        return SPX_EIO;
    for (size_t i = 0; i < r->nstar; i++)
        n[i] = (int64_t)(r->first[i + 1] - r->first[i]);
    spx_status st = spx_table_add(t, "NEXP", H5T_NATIVE_INT64, "", n, e);
    spx_free(n);
    return st;
}

/* Adds what velocities of single exposures say of a star. */
static spx_status add_constancy(spx_table *t, const spx_rvfit *r, double *tmp, spx_err *e)
{
    spx_status st = add_f64(t, r, "CONST_CHISQ", "", AT(const_chisq), tmp, e);
    if (st == SPX_OK)
        st = add_i64(t, r, "CONST_DOF", AT(const_dof), sizeof r->star->const_dof, e);
    if (st == SPX_OK)
        st = add_f64(t, r, "CONST_LOGP", "", AT(const_logp), tmp, e);
    return st == SPX_OK ? add_i64(t, r, "VARIABLE", AT(variable), sizeof r->star->variable, e) : st;
}

/* Adds the zero points that were subtracted. */
static spx_status add_zero(spx_table *t, const spx_rvfit *r, double *tmp, spx_err *e)
{
    spx_status st = add_f64(t, r, "ZERO", "km/s", AT(zero), tmp, e);
    if (st == SPX_OK)
        st = add_f64(t, r, "ZERO_ERR", "km/s", AT(zero_err), tmp, e);
    return st == SPX_OK ? add_f64(t, r, "ZERO_KNOWN", "", AT(zero_known), tmp, e) : st;
}

/* Adds second components. */
static spx_status add_doubles(spx_table *t, const spx_rvfit *r, double *tmp, spx_err *e)
{
    static const struct {
        const char *name, *unit;
        size_t offset;
    } column[] = {{"VRAD1", "km/s", AT(vrad1)},       {"VRAD1_ERR", "km/s", AT(vrad1_err)},
                  {"VRAD2", "km/s", AT(vrad2)},       {"VRAD2_ERR", "km/s", AT(vrad2_err)},
                  {"FLUX_RATIO", "", AT(flux_ratio)}, {"FLUX_RATIO_ERR", "", AT(flux_ratio_err)},
                  {"TEFF2", "K", AT(teff2)},          {"DCHISQ_2", "", AT(dchisq_2)}};
    spx_status st = SPX_OK;
    for (size_t c = 0; c < sizeof column / sizeof *column && st == SPX_OK; c++)
        st = add_f64(t, r, column[c].name, column[c].unit, column[c].offset, tmp, e);
    return st == SPX_OK ? add_i64(t, r, "DOUBLE", AT(is_double), sizeof r->star->is_double, e) : st;
}

static spx_status write_table(hid_t file, const spx_rvfit *r, const spx_table *fibermap, int joint,
                              const spx_table *more, spx_err *e)
{
    static const struct {
        const char *name, *unit;
        size_t offset;
    } first[] = {
        {"VRAD", "km/s", AT(vrad)},         {"VRAD_ERR", "km/s", AT(vrad_err)}, {"VRAD_SKEW", "", AT(vrad_skew)},
        {"VRAD_KURT", "", AT(vrad_kurt)},   {"VRAD_CCF", "km/s", AT(vrad_ccf)}, {"VRAD_ALT", "km/s", AT(vrad_alt)},
        {"DCHISQ_ALT", "", AT(dchisq_alt)}, {"VSINI", "km/s", AT(vsini)},       {"VSINI_ERR", "km/s", AT(vsini_err)}};
    static const struct {
        const char *name;
        size_t offset;
    } chisq[] = {{"NEG2LOGL", AT(neg2logl)},
                 {"CHISQ_TOT", AT(chisq)},
                 {"CHISQ_C_TOT", AT(chisq_c)},
                 {"CHISQ_LOGP", AT(chisq_logp)}};
    spx_table *t = spx_table_new(r->nstar, e);
    double *tmp = spx_alloc(r->nstar, sizeof *tmp, e);
    spx_status st = t == NULL || tmp == NULL ? SPX_EIO : add_identity(t, fibermap, e);
    for (size_t k = 0; k < sizeof first / sizeof *first && st == SPX_OK; k++)
        st = add_f64(t, r, first[k].name, first[k].unit, first[k].offset, tmp, e);
    if (st == SPX_OK)
        st = add_parameters(t, r, tmp, e);
    if (st == SPX_OK)
        st = add_covariance(t, r, e);
    for (size_t k = 0; k < sizeof chisq / sizeof *chisq && st == SPX_OK; k++)
        st = add_f64(t, r, chisq[k].name, "", chisq[k].offset, tmp, e);
    if (st == SPX_OK)
        st = add_i64(t, r, "NPIX_TOT", AT(npix), sizeof r->star->npix, e);
    if (st == SPX_OK)
        st = add_i64(t, r, "NREJECT", AT(nreject), sizeof r->star->nreject, e);
    if (st == SPX_OK)
        st = add_arms(t, r, tmp, e);
    if (st == SPX_OK)
        st = add_i64(t, r, "NITER", AT(niter), sizeof r->star->niter, e);
    if (st == SPX_OK)
        st = add_i64(t, r, "SUCCESS", AT(success), sizeof r->star->success, e);
    if (st == SPX_OK)
        st = add_i64(t, r, "RVS_WARN", AT(warn), sizeof r->star->warn, e);
    if (st == SPX_OK && joint)
        st = add_counts(t, r, e);
    if (st == SPX_OK && joint && r->with_epochs)
        st = add_constancy(t, r, tmp, e);
    if (st == SPX_OK && r->with_zero)
        st = add_zero(t, r, tmp, e);
    if (st == SPX_OK && r->with_double)
        st = add_doubles(t, r, tmp, e);
    if (st == SPX_OK && more != NULL)
        st = spx_table_join(t, more, NULL, e);
    if (st == SPX_OK)
        st = spx_table_write(file, "/rvfit/table", t, e);
    spx_free(tmp);
    spx_table_free(t);
    return st;
}

/* ---- start of a fit from an earlier result ---- */

/* Row of the table for each spectrum: with its TARGETID (and EXPID where both have it and the table's is one), else in
 * order. */
static spx_status match_rows(const spx_table *t, const spx_table *fibermap, size_t nspec, size_t *match, spx_err *e)
{
    int64_t *id = NULL, *exp = NULL, *my_id = NULL, *my_exp = NULL;
    spx_status st = spx_table_find_i64(t, "TARGETID", &id, e);
    if (st == SPX_OK)
        st = spx_table_find_i64(t, "EXPID", &exp, e);
    if (st == SPX_OK)
        st = spx_table_find_i64(fibermap, "TARGETID", &my_id, e);
    if (st == SPX_OK)
        st = spx_table_find_i64(fibermap, "EXPID", &my_exp, e);
    int by_id = id != NULL && my_id != NULL, by_exp = exp != NULL && my_exp != NULL;
    if (st == SPX_OK && !by_id && t->nrow != nspec)
        st = spx_fail(e, SPX_EINPUT, "has %zu rows for %zu spectra, and no TARGETID to tell which is which", t->nrow,
                      nspec);
    for (size_t i = 0; i < nspec && st == SPX_OK; i++) {
        match[i] = by_id ? SPX_NO_ROW : i;
        /* the search begins after the last match: linear time for tables in the same order */
        size_t from = i > 0 && match[i - 1] != SPX_NO_ROW ? match[i - 1] + 1 : 0;
        for (size_t k = 0; by_id && k < t->nrow && match[i] == SPX_NO_ROW; k++) {
            size_t row = (from + k) % t->nrow;
            if (id[row] == my_id[i] && (!by_exp || exp[row] == my_exp[i] || exp[row] == -1))
                match[i] = row;
        }
    }
    spx_free(id);
    spx_free(exp);
    spx_free(my_id);
    spx_free(my_exp);
    return st;
}

spx_status spx_rvfit_read_start(hid_t file, const spx_spectra *s, const spx_setup *setup, size_t nrow,
                                const size_t *row, double *start, spx_err *e)
{
    spx_table *t = NULL;
    size_t nq = 2 + setup->npar;
    spx_status st = spx_table_read(file, "/rvfit/table", &t, e);
    if (st == SPX_OK && t == NULL)
        st = spx_fail_at(e, SPX_EINPUT, spx_h5_filename(file), "/rvfit/table", "give what rvs-fit wrote", "is missing");
    if (st != SPX_OK)
        return st;
    size_t *match = spx_alloc(s->nspec, sizeof *match, e);
    double *column = spx_alloc(t->nrow, sizeof *column, e);
    st = match == NULL || column == NULL ? SPX_EIO : match_rows(t, s->fibermap, s->nspec, match, e);
    for (size_t q = 0; q < nq && st == SPX_OK; q++) {
        char name[COLUMN] = "VRAD";
        if (q == 1)
            (void)snprintf(name, sizeof name, "VSINI");
        else if (q > 1)
            column_name(setup->parname, q - 2, name);
        int have = spx_table_find(t, name) >= 0;
        if (have || q == 0)
            st = spx_table_get_f64(t, name, column, e);
        for (size_t i = 0; i < nrow && st == SPX_OK; i++) {
            size_t m = match[row[i]];
            start[i * nq + q] = have && m != SPX_NO_ROW ? column[m] : NAN;
        }
    }
    if (st != SPX_OK)
        spx_err_at(e, spx_h5_filename(file), "/rvfit/table");
    spx_free(match);
    spx_free(column);
    spx_table_free(t);
    return st;
}

/* ---- models and curves, by rows ---- */

static const char *model_name(int joint)
{
    return joint ? "exposure_model" : "model";
}

static const char *template_name(int joint)
{
    return joint ? "exposure_template" : "template";
}

/* Medium and frame of wavelengths. */
static spx_status write_words(hid_t file, const char *path, const spx_arm *a, spx_err *e)
{
    spx_status st = spx_wavelength_write_medium(file, path, a->medium, e);
    return st == SPX_OK ? spx_wavelength_write_frame(file, path, a->barycentric, a->frame_unknown, e) : st;
}

static spx_status create_model(hid_t file, const spx_arm *a, size_t nrow, int joint, spx_err *e)
{
    char w[64], p[64];
    size_t dims[2] = {nrow, a->nwave};
    (void)snprintf(w, sizeof w, "/rvfit/%s/wavelength", a->name);
    (void)snprintf(p, sizeof p, "/rvfit/%s/%s", a->name, model_name(joint));
    spx_status st = a->per_row ? spx_h5_create(file, w, H5T_NATIVE_DOUBLE, 2, dims, e)
                               : spx_h5_write_real(file, w, 8, 1, &a->nwave, a->wavelength, e);
    if (st == SPX_OK)
        st = write_words(file, w, a, e);
    if (st == SPX_OK)
        st = spx_h5_create(file, p, H5T_NATIVE_FLOAT, 2, dims, e);
    if (st == SPX_OK)
        st = spx_h5_set_str(file, p, "units", a->unit[0] != '\0' ? a->unit : "1", e);
    return st == SPX_OK && !a->per_row ? spx_h5_attach_scale(file, p, 1, w, "wavelength", e) : st;
}

/* Of an arm with a grid for each row, the template's bins are those of the model. */
static spx_status create_template(hid_t file, const spx_arm *a, size_t n, const double *bins, size_t nrow, int joint,
                                  spx_err *e)
{
    char w[64], p[64];
    size_t dims[2] = {nrow, n};
    (void)snprintf(w, sizeof w, "/rvfit/%s/template_wavelength", a->name);
    (void)snprintf(p, sizeof p, "/rvfit/%s/%s", a->name, template_name(joint));
    spx_status st = a->per_row ? spx_h5_create(file, w, H5T_NATIVE_DOUBLE, 2, dims, e)
                               : spx_h5_write_real(file, w, 8, 1, &n, bins, e);
    if (st == SPX_OK)
        st = write_words(file, w, a, e);
    if (st == SPX_OK)
        st = spx_h5_create(file, p, H5T_NATIVE_FLOAT, 2, dims, e);
    return st == SPX_OK && !a->per_row ? spx_h5_attach_scale(file, p, 1, w, "wavelength", e) : st;
}

static size_t count_curves(const spx_rvfit *r)
{
    size_t n = 0;
    for (size_t k = 0; k < r->narm; k++)
        n += r->arm[k].ccf != NULL;
    return n;
}

static spx_status create_curves(hid_t file, const spx_rvfit *r, size_t nrow, spx_err *e)
{
    size_t dims[3] = {nrow, count_curves(r), r->nlag}, n = 0;
    char name[SPX_MAX_ARM][16];
    double *v = spx_alloc(r->nlag, sizeof *v, e);
    if (v == NULL)
        return SPX_EIO;
    for (size_t i = 0; i < r->nlag; i++)
        v[i] = r->lag_v0 + (double)i * r->lag_step;
    memset(name, ' ', sizeof name);
    for (size_t k = 0; k < r->narm; k++)
        if (r->arm[k].ccf != NULL)
            memcpy(name[n++], r->arm[k].name, strlen(r->arm[k].name));
    spx_status st = spx_h5_group(file, "/ccf", e);
    if (st == SPX_OK)
        st = spx_h5_write_real(file, "/ccf/velocity", 8, 1, &r->nlag, v, e);
    if (st == SPX_OK)
        st = spx_h5_write_strings(file, "/ccf/arm", sizeof name[0], n, name[0], e);
    if (st == SPX_OK)
        st = spx_h5_create(file, "/ccf/gain", H5T_NATIVE_FLOAT, 3, dims, e);
    if (st == SPX_OK)
        st = spx_h5_attach_scale(file, "/ccf/gain", 2, "/ccf/velocity", "velocity", e);
    spx_free(v);
    return st;
}

spx_status spx_rvfit_create(hid_t file, const spx_rvfit *part, const spx_spectra *s, size_t nrow, int joint, spx_err *e)
{
    spx_status st = spx_h5_group(file, "/rvfit", e);
    for (size_t k = 0; k < part->narm && st == SPX_OK; k++) {
        if (part->arm[k].model != NULL)
            st = create_model(file, &s->arm[k], nrow, joint, e);
        if (part->arm[k].star_template != NULL && st == SPX_OK)
            st = create_template(file, &s->arm[k], part->arm[k].nbin, part->arm[k].bins, nrow, joint, e);
    }
    return st == SPX_OK && part->nlag > 0 ? create_curves(file, part, nrow, e) : st;
}

static spx_status write_curves(hid_t file, const spx_rvfit *part, size_t first, spx_err *e)
{
    size_t n = count_curves(part), at = 0;
    float *rows = spx_alloc2(part->nrow, n * part->nlag, sizeof *rows, e);
    if (rows == NULL)
        return SPX_EIO;
    for (size_t i = 0; i < part->nrow; i++)
        for (size_t k = 0; k < part->narm; k++)
            if (part->arm[k].ccf != NULL) {
                memcpy(rows + at, part->arm[k].ccf + i * part->nlag, part->nlag * sizeof *rows);
                at += part->nlag;
            }
    for (size_t i = 0; i < at; i++)
        rows[i] = isfinite(rows[i]) ? rows[i] : 0;
    spx_status st = spx_h5_write_rows(file, "/ccf/gain", H5T_NATIVE_FLOAT, first, part->nrow, rows, e);
    spx_free(rows);
    return st;
}

spx_status spx_rvfit_write_rows(hid_t file, const spx_rvfit *part, size_t first, int joint, spx_err *e)
{
    spx_status st = SPX_OK;
    for (size_t k = 0; k < part->narm && st == SPX_OK; k++) {
        char p[64];
        (void)snprintf(p, sizeof p, "/rvfit/%s/wavelength", part->arm[k].name);
        if (part->arm[k].row_wavelength != NULL)
            st = spx_h5_write_rows(file, p, H5T_NATIVE_DOUBLE, first, part->nrow, part->arm[k].row_wavelength, e);
        (void)snprintf(p, sizeof p, "/rvfit/%s/%s", part->arm[k].name, model_name(joint));
        if (st == SPX_OK && part->arm[k].model != NULL)
            st = spx_h5_write_rows(file, p, H5T_NATIVE_FLOAT, first, part->nrow, part->arm[k].model, e);
        if (st != SPX_OK || part->arm[k].star_template == NULL)
            continue;
        (void)snprintf(p, sizeof p, "/rvfit/%s/template_wavelength", part->arm[k].name);
        if (part->arm[k].row_wavelength != NULL)
            st = spx_h5_write_rows(file, p, H5T_NATIVE_DOUBLE, first, part->nrow, part->arm[k].row_wavelength, e);
        (void)snprintf(p, sizeof p, "/rvfit/%s/%s", part->arm[k].name, template_name(joint));
        if (st == SPX_OK)
            st = spx_h5_write_rows(file, p, H5T_NATIVE_FLOAT, first, part->nrow, part->arm[k].star_template, e);
    }
    return st == SPX_OK && part->nlag > 0 ? write_curves(file, part, first, e) : st;
}

/* ---- tables ---- */

/* Adds velocities of single exposures; tmp[nrow] and whole[nrow] are used. */
static spx_status add_epochs(spx_table *t, const spx_rvfit *r, double *tmp, int64_t *whole, spx_err *e)
{
    static const struct {
        const char *name, *unit;
        size_t offset;
    } column[] = {{"VRAD", "km/s", offsetof(spx_rvfit_exposure, vrad)},
                  {"VRAD_ERR", "km/s", offsetof(spx_rvfit_exposure, vrad_err)},
                  {"VRAD_ALT", "km/s", offsetof(spx_rvfit_exposure, vrad_alt)},
                  {"DCHISQ_ALT", "", offsetof(spx_rvfit_exposure, dchisq_alt)},
                  {"ZERO", "km/s", offsetof(spx_rvfit_exposure, zero)},
                  {"ZERO_ERR", "km/s", offsetof(spx_rvfit_exposure, zero_err)},
                  {"ZERO_KNOWN", "", offsetof(spx_rvfit_exposure, zero_known)}};
    spx_status st = SPX_OK;
    for (size_t c = 0; c < (r->with_zero ? 7 : 4) && st == SPX_OK; c++) {
        for (size_t i = 0; i < r->nrow; i++)
            memcpy(&tmp[i], (const char *)&r->exposure[i] + column[c].offset, sizeof *tmp);
        st = spx_table_add(t, column[c].name, H5T_NATIVE_DOUBLE, column[c].unit, tmp, e);
    }
    for (size_t a = 0; a < r->narm && st == SPX_OK; a++) {
        char name[48];
        arm_column("VRAD_WEIGHT", r->arm[a].name, name, sizeof name);
        for (size_t i = 0; i < r->nrow; i++)
            tmp[i] = r->exposure[i].weight[a];
        st = spx_table_add(t, name, H5T_NATIVE_DOUBLE, "", tmp, e);
    }
    for (size_t i = 0; i < r->nrow; i++)
        whole[i] = r->exposure[i].warn;
    return st == SPX_OK ? spx_table_add(t, "EPOCH_WARN", H5T_NATIVE_INT64, "", whole, e) : st;
}

/* Writes the table with one row a spectrum, for stars of several exposures. */
static spx_status write_exposures(hid_t file, const spx_rvfit *r, const spx_table *fibermap, const spx_table *more,
                                  spx_err *e)
{
    static const char *const prefix[] = {"SN", "CHISQ"};
    spx_table *t = spx_table_new(r->nrow, e);
    double *tmp = spx_alloc(r->nrow, sizeof *tmp, e);
    int64_t *npix = spx_alloc(r->nrow, sizeof *npix, e);
    spx_status st = t == NULL || tmp == NULL || npix == NULL ? SPX_EIO : add_identity(t, fibermap, e);
    for (size_t c = 0; c < 2 && st == SPX_OK; c++)
        for (size_t a = 0; a < r->narm && st == SPX_OK; a++) {
            char name[48];
            arm_column(prefix[c], r->arm[a].name, name, sizeof name);
            for (size_t i = 0; i < r->nrow; i++)
                tmp[i] = c == 0 ? r->exposure[i].sn[a] : r->exposure[i].chisq[a];
            st = spx_table_add(t, name, H5T_NATIVE_DOUBLE, "", tmp, e);
        }
    for (size_t i = 0; i < r->nrow && st == SPX_OK; i++)
        npix[i] = r->exposure[i].npix;
    if (st == SPX_OK)
        st = spx_table_add(t, "NPIX", H5T_NATIVE_INT64, "", npix, e);
    if (st == SPX_OK && r->with_epochs)
        st = add_epochs(t, r, tmp, npix, e);
    if (st == SPX_OK && more != NULL)
        st = spx_table_join(t, more, NULL, e);
    if (st == SPX_OK)
        st = spx_table_write(file, "/rvfit/exposures", t, e);
    spx_free(tmp);
    spx_free(npix);
    spx_table_free(t);
    return st;
}

/* First exposure of each star: [nstar], to be freed. */
static size_t *first_rows(const spx_rvfit *r, spx_err *e)
{
    size_t *row = spx_alloc(r->nstar, sizeof *row, e);
    for (size_t i = 0; i < r->nstar && row != NULL; i++)
        row[i] = r->row[r->first[i]];
    return row;
}

/* Writes the exposures that were coadded into the fitted targets. */
static spx_status write_coadded(hid_t file, const spx_table *exposures, const spx_table *fibermap, spx_err *e)
{
    int64_t *id = NULL, *fitted = NULL;
    size_t n = 0, *row = NULL;
    spx_status st = spx_table_find_i64(exposures, "TARGETID", &id, e);
    if (st == SPX_OK)
        st = spx_table_find_i64(fibermap, "TARGETID", &fitted, e);
    if (st == SPX_OK && exposures != NULL && (row = spx_alloc(exposures->nrow, sizeof *row, e)) == NULL)
        st = SPX_EIO;
    if (st == SPX_OK && fitted != NULL)
        qsort(fitted, fibermap->nrow, sizeof *fitted, spx_by_i64);
    for (size_t i = 0; st == SPX_OK && exposures != NULL && i < exposures->nrow; i++)
        if (id == NULL || fitted == NULL || bsearch(&id[i], fitted, fibermap->nrow, sizeof *fitted, spx_by_i64) != NULL)
            row[n++] = i;
    spx_table *t = st == SPX_OK && exposures != NULL ? spx_table_subset(exposures, n, row, e) : NULL;
    if (st == SPX_OK && exposures != NULL && t == NULL)
        st = SPX_EIO;
    if (st == SPX_OK && n > 0)
        st = spx_table_write(file, "/exp_fibermap", t, e);
    spx_table_free(t);
    spx_free(row);
    spx_free(id);
    spx_free(fitted);
    return st;
}

spx_status spx_rvfit_write_tables(hid_t file, const spx_rvfit *r, const spx_spectra *s, int joint,
                                  const spx_table *more, const spx_table *epochs, spx_err *e)
{
    spx_table *fibermap = NULL, *scores = NULL, *each = NULL;
    size_t *row = first_rows(r, e);
    spx_status st = row == NULL ? SPX_EIO : SPX_OK;
    if (st == SPX_OK && s->fibermap != NULL &&
        ((fibermap = spx_table_subset(s->fibermap, r->nstar, row, e)) == NULL ||
         (each = spx_table_subset(s->fibermap, r->nrow, r->row, e)) == NULL))
        st = SPX_EIO;
    if (st == SPX_OK && !joint && s->scores != NULL && (scores = spx_table_subset(s->scores, r->nstar, row, e)) == NULL)
        st = SPX_EIO;
    /* EXPID of a star of several exposures is -1 */
    for (size_t i = 0; i < r->nstar && st == SPX_OK && fibermap != NULL && spx_table_find(fibermap, "EXPID") >= 0; i++)
        if (r->first[i + 1] - r->first[i] > 1)
            st = spx_table_set_i64(fibermap, "EXPID", i, -1, e);
    if (st == SPX_OK)
        st = write_table(file, r, fibermap, joint, more, e);
    if (st == SPX_OK && joint)
        st = write_exposures(file, r, each, epochs, e);
    if (st == SPX_OK && s->header.n > 0)
        st = spx_cards_write(file, "/rvfit/header", &s->header, e);
    if (st == SPX_OK)
        st = spx_table_write(file, "/fibermap", fibermap, e);
    if (st == SPX_OK)
        st = spx_table_write(file, "/scores", scores, e);
    if (st == SPX_OK)
        st =
            joint ? spx_table_write(file, "/exp_fibermap", each, e) : write_coadded(file, s->exp_fibermap, fibermap, e);
    spx_free(row);
    spx_table_free(fibermap);
    spx_table_free(scores);
    spx_table_free(each);
    return st;
}
