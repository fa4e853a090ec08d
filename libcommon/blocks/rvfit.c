#include "blocks/rvfit.h"

#include <ctype.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "blocks/io.h"
#include "h5/h5io.h"

/* Column of the table for a parameter of the templates: DESI's names where it has them. */
static void column_name(const char *par, char *out, size_t size)
{
    (void)snprintf(out, size, "%s", strcmp(par, "alpha") == 0 ? "ALPHAFE" : par);
    for (char *c = out; *c != '\0'; c++)
        *c = (char)toupper((unsigned char)*c);
}

/* A column of doubles: element i is at byte `offset` of star i. */
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
        char name[48], err[56];
        column_name(r->parname[k], name, sizeof name);
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

static spx_status add_arms(spx_table *t, const spx_rvfit *r, double *tmp, spx_err *e)
{
    static const struct {
        const char *prefix;
        size_t offset;
    } columns[] = {{"SN", AT(sn)}, {"CHISQ", AT(arm_chisq)}, {"CHISQ_C", AT(arm_chisq_c)}};
    spx_status st = SPX_OK;
    for (size_t k = 0; k < 3; k++)
        for (size_t a = 0; a < r->narm && st == SPX_OK; a++) {
            char name[48];
            (void)snprintf(name, sizeof name, "%s_%s", columns[k].prefix, r->arm[a].name);
            for (char *c = name; *c != '\0'; c++)
                *c = (char)toupper((unsigned char)*c);
            st = add_f64(t, r, name, "", columns[k].offset + a * sizeof(double), tmp, e);
        }
    return st;
}

/* Columns of the fibermap that say which star a row is. */
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

static spx_status write_table(hid_t file, const spx_rvfit *r, const spx_table *fibermap, spx_err *e)
{
    static const struct {
        const char *name, *unit;
        size_t offset;
    } first[] = {{"VRAD", "km/s", AT(vrad)},          {"VRAD_ERR", "km/s", AT(vrad_err)},
                 {"VRAD_SKEW", "", AT(vrad_skew)},    {"VRAD_KURT", "", AT(vrad_kurt)},
                 {"VRAD_CCF", "km/s", AT(vrad_ccf)},  {"VSINI", "km/s", AT(vsini)},
                 {"VSINI_ERR", "km/s", AT(vsini_err)}};
    static const struct {
        const char *name;
        size_t offset;
    } chisq[] = {{"NEG2LOGL", AT(neg2logl)}, {"CHISQ_TOT", AT(chisq)}, {"CHISQ_C_TOT", AT(chisq_c)}};
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
        st = add_arms(t, r, tmp, e);
    if (st == SPX_OK)
        st = add_i64(t, r, "NITER", AT(niter), sizeof r->star->niter, e);
    if (st == SPX_OK)
        st = add_i64(t, r, "SUCCESS", AT(success), sizeof r->star->success, e);
    if (st == SPX_OK)
        st = add_i64(t, r, "RVS_WARN", AT(warn), sizeof r->star->warn, e);
    if (st == SPX_OK)
        st = spx_table_write(file, "/rvfit/table", t, e);
    spx_free(tmp);
    spx_table_free(t);
    return st;
}

/* One model row a table row, so that they always line up. */
static spx_status write_arm(hid_t file, const spx_rvfit *r, size_t k, const spx_arm *a, spx_err *e)
{
    char w[64], p[64];
    size_t dims[2] = {r->nstar, a->nwave};
    (void)snprintf(w, sizeof w, "/rvfit/%s/wavelength", a->name);
    (void)snprintf(p, sizeof p, "/rvfit/%s/model", a->name);
    spx_status st;
    if ((st = spx_h5_write_real(file, w, 8, 1, &a->nwave, a->wavelength, e)) != SPX_OK ||
        (st = spx_h5_set_str(file, w, "medium", a->medium == SPX_AIR ? "air" : "vacuum", e)) != SPX_OK ||
        (st = spx_h5_set_str(file, w, "frame", a->barycentric ? "barycentric" : "topocentric", e)) != SPX_OK ||
        (st = spx_h5_write(file, p, H5T_NATIVE_FLOAT, 2, dims, r->arm[k].model, e)) != SPX_OK ||
        (st = spx_h5_set_str(file, p, "units", a->unit[0] != '\0' ? a->unit : "1", e)) != SPX_OK)
        return st;
    return spx_h5_attach_scale(file, p, 1, w, "wavelength", e);
}

spx_status spx_rvfit_write(hid_t file, const spx_rvfit *r, const spx_spectra *s, spx_err *e)
{
    spx_table *fibermap = NULL, *scores = NULL;
    spx_status st = spx_h5_group(file, "/rvfit", e);
    if (st == SPX_OK && s->fibermap != NULL && (fibermap = spx_table_take(s->fibermap, r->nstar, r->row, e)) == NULL)
        st = SPX_EIO;
    if (st == SPX_OK && s->scores != NULL && (scores = spx_table_take(s->scores, r->nstar, r->row, e)) == NULL)
        st = SPX_EIO;
    if (st == SPX_OK)
        st = write_table(file, r, fibermap, e);
    for (size_t k = 0; k < r->narm && st == SPX_OK; k++)
        for (size_t i = 0; i < s->narm && r->arm[k].model != NULL && st == SPX_OK; i++)
            if (strcmp(r->arm[k].name, s->arm[i].name) == 0)
                st = write_arm(file, r, k, &s->arm[i], e);
    if (st == SPX_OK)
        st = spx_table_write(file, "/fibermap", fibermap, e);
    if (st == SPX_OK)
        st = spx_table_write(file, "/scores", scores, e);
    if (st == SPX_OK)
        st = spx_table_write(file, "/exp_fibermap", s->exp_fibermap, e);
    spx_table_free(fibermap);
    spx_table_free(scores);
    return st;
}

void spx_rvfit_free(spx_rvfit *r)
{
    if (r == NULL)
        return;
    spx_free(r->row);
    spx_free(r->star);
    for (size_t k = 0; k < r->narm; k++)
        spx_free(r->arm[k].model);
    memset(r, 0, sizeof *r);
}
