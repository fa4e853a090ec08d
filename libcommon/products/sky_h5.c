/* Writes /sky (products/sky_h5.h). */
#include "products/sky_h5.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "h5/attr.h"
#include "h5/object.h"
#include "h5/provenance.h"
#include "h5/table.h"
#include "h5/write.h"

enum { ROLE = 8 };

/* First coefficient of each of t, delta, kappa and its error; t is 1 where it has no term. */
static spx_status add_quantities(spx_table *t, const spx_sky *s, double *v, spx_err *e)
{
    static const char *const name[3][2] = {{"T", "T_ERR"}, {"DELTA", "DELTA_ERR"}, {"KAPPA", "KAPPA_ERR"}};
    static const char *const unit[3] = {"", "Angstrom", "Angstrom^2"};
    const size_t nterm[3] = {s->nt, s->nd, s->nk}, first[3] = {0, s->nt, s->nt + s->nd};
    spx_status st = SPX_OK;
    for (int c = 0; c < 3; c++)
        for (int error = 0; error < 2 && st == SPX_OK; error++) {
            for (size_t i = 0; i < s->nspec; i++) {
                const double *cov = s->cov + i * s->nq * s->nq;
                v[i] = nterm[c] == 0 ? (c == 0 && !error ? 1 : 0)
                       : error       ? sqrt(cov[first[c] * (s->nq + 1)])
                                     : s->p[i * s->nq + first[c]];
            }
            st = spx_table_add(t, name[c][error], H5T_NATIVE_DOUBLE, unit[c], v, e);
        }
    return st;
}

static spx_status write_table(hid_t file, const spx_sky *s, spx_err *e)
{
    static const char *const role[] = {"TARGET", "SKY", "HELDOUT", "REJECTED"};
    spx_table *t = spx_table_new(s->nspec, e);
    double *v = spx_alloc(s->nspec, sizeof *v, e);
    char *text = spx_alloc(s->nspec, ROLE + 1, e);
    int64_t *number = spx_alloc(s->nspec, sizeof *number, e);
    spx_status st = t != NULL && v != NULL && text != NULL && number != NULL ? SPX_OK : SPX_EIO;
    for (size_t i = 0; i < s->nspec && st == SPX_OK; i++) {
        memcpy(text + i * ROLE, role[s->role[i]], strlen(role[s->role[i]]));
        number[i] = s->nrejected[i];
    }
    if (st == SPX_OK)
        st = spx_table_add_strings(t, "ROLE", ROLE, text, e);
    if (st == SPX_OK)
        st = add_quantities(t, s, v, e);
    if (st == SPX_OK)
        st = spx_table_add(t, "CHI2", H5T_NATIVE_DOUBLE, "", s->chi2, e);
    if (st == SPX_OK)
        st = spx_table_add(t, "CHI2_LOO", H5T_NATIVE_DOUBLE, "", s->chi2_loo, e);
    if (st == SPX_OK)
        st = spx_table_add(t, "NREJECTED", H5T_NATIVE_INT64, "", number, e);
    if (st == SPX_OK)
        st = spx_table_write(file, "/sky/table", t, e);
    spx_table_free(t);
    spx_free(v);
    spx_free(text);
    spx_free(number);
    return st;
}

static spx_status write_mask(hid_t file, const spx_sky *s, spx_err *e)
{
    uint32_t *mask = spx_alloc(s->nwave, sizeof *mask, e);
    if (mask == NULL)
        return SPX_EIO;
    for (size_t k = 0; k < s->nwave; k++)
        mask[k] = s->bad[k] ? SPX_BADSKY : 0;
    spx_status st = spx_h5_write(file, "/sky/mask", H5T_NATIVE_UINT32, 1, &s->nwave, mask, e);
    if (st == SPX_OK)
        st = spx_h5_attach_scale(file, "/sky/mask", 0, "/sky/wavelength", "wavelength", e);
    spx_free(mask);
    return st;
}

static spx_status write_modes(hid_t file, const spx_sky *s, spx_err *e)
{
    const size_t of_mode[2] = {s->nmode, s->nwave}, of_fibre[2] = {s->nspec, s->nmode};
    char names[sizeof s->mode_name + SPX_SKY_MODES] = "";
    if (s->nmode == 0)
        return SPX_OK;
    for (size_t q = 0; q < s->nmode; q++)
        (void)snprintf(names + strlen(names), sizeof names - strlen(names), "%s%s", q > 0 ? "," : "", s->mode_name[q]);
    spx_status st = spx_h5_write_real(file, "/sky/mode", 8, 2, of_mode, s->mode, e);
    if (st == SPX_OK)
        st = spx_h5_attach_scale(file, "/sky/mode", 1, "/sky/wavelength", "wavelength", e);
    if (st == SPX_OK)
        st = spx_h5_set_str(file, "/sky/mode", "names", names, e);
    return st == SPX_OK ? spx_h5_write_real(file, "/sky/coordinate", 8, 2, of_fibre, s->coordinate, e) : st;
}

/* Figures of the whole: attributes of the group. */
static spx_status write_figures(hid_t file, const spx_sky *s, spx_err *e)
{
    static const char *const class[SPX_SKY_CLASSES] = {"off", "on", "top"};
    char terms[64], name[64];
    (void)snprintf(terms, sizeof terms, "%zu,%zu,%zu", s->nt, s->nd, s->nk);
    spx_status st = spx_h5_set_str(file, "/sky", "terms", terms, e);
    for (size_t c = 0; c < SPX_SKY_CLASSES; c++) {
        const double value[3] = {s->fitted[c], s->loo[c], s->held_out[c]};
        static const char *const what[3] = {"chi2", "chi2_loo", "chi2_heldout"};
        for (int k = 0; k < 3 && st == SPX_OK; k++) {
            (void)snprintf(name, sizeof name, "%s_%s", what[k], class[c]);
            st = spx_h5_set_f64(file, "/sky", name, value[k], e);
        }
    }
    for (size_t q = 0; q < s->nq && st == SPX_OK; q++) {
        (void)snprintf(name, sizeof name, "tau_%zu", q);
        st = spx_h5_set_f64(file, "/sky", name, s->tau[q], e);
    }
    if (st == SPX_OK)
        st = spx_h5_set_f64(file, "/sky", "noise", s->noise, e);
    if (st == SPX_OK)
        st = spx_h5_set_i64(file, "/sky", "converged", s->converged, e);
    if (st == SPX_OK)
        st = spx_h5_set_f64(file, "/sky", "change", s->change, e);
    return st == SPX_OK ? spx_h5_set_f64(file, "/sky", "mean_velocity", s->mean_velocity, e) : st;
}

spx_status spx_sky_write(hid_t file, const spx_sky *s, spx_medium medium, int precision, spx_h5_writes *writes,
                         spx_err *e)
{
    const size_t of_bins[2] = {s->nspec, s->nwave}, band[2] = {s->ndiag, s->nwave};
    const size_t of_fibre[3] = {s->nspec, s->nq, s->nq};
    const char *const w = "/sky/wavelength";
    spx_status st = spx_h5_group(file, "/sky", e);
    if (st == SPX_OK)
        st = spx_h5_write_real(file, w, 8, 1, &s->nwave, s->wavelength, e);
    if (st == SPX_OK)
        st = spx_h5_set_str(file, w, "medium", medium == SPX_AIR ? "air" : "vacuum", e);
    if (st == SPX_OK)
        st = spx_h5_write_real(file, "/sky/sky", 8, 1, &s->nwave, s->s, e);
    if (st == SPX_OK)
        st = spx_h5_attach_scale(file, "/sky/sky", 0, w, "wavelength", e);
    if (st == SPX_OK)
        st = spx_h5_write_real(file, "/sky/covariance", 8, 2, band, s->covariance, e);
    if (st == SPX_OK)
        st = spx_h5_attach_scale(file, "/sky/covariance", 1, w, "wavelength", e);
    if (st == SPX_OK)
        st = spx_h5_defer_write_real(writes, file, "/sky/model", precision, 2, of_bins, s->model, e);
    if (st == SPX_OK)
        st = spx_h5_attach_scale(file, "/sky/model", 1, w, "wavelength", e);
    if (st == SPX_OK)
        st = spx_h5_defer_write_real(writes, file, "/sky/variance", precision, 2, of_bins, s->variance, e);
    if (st == SPX_OK)
        st = spx_h5_attach_scale(file, "/sky/variance", 1, w, "wavelength", e);
    if (st == SPX_OK)
        st = spx_h5_write_real(file, "/sky/parameters", 8, 2, of_fibre, s->p, e);
    if (st == SPX_OK)
        st = spx_h5_write_real(file, "/sky/parameter_covariance", 8, 3, of_fibre, s->cov, e);
    if (st == SPX_OK)
        st = spx_h5_write(file, "/sky/class", H5T_NATIVE_UINT8, 1, &s->nwave, s->line_class, e);
    if (st == SPX_OK)
        st = spx_h5_attach_scale(file, "/sky/class", 0, w, "wavelength", e);
    if (st == SPX_OK)
        st = write_mask(file, s, e);
    if (st == SPX_OK)
        st = write_modes(file, s, e);
    if (st == SPX_OK)
        st = write_table(file, s, e);
    return st == SPX_OK ? write_figures(file, s, e) : st;
}

int spx_sky_is_subtracted(hid_t file)
{
    char kept[16] = "";
    return spx_h5_exists(file, "/sky") &&
           !(spx_provenance_option(file, "keep-sky", kept, sizeof kept) && strcmp(kept, "1") == 0);
}
