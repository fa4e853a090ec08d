/* Reads the templates of stars (products/rvfit_templates_h5.h). */
#include "products/rvfit_templates_h5.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "h5/object.h"
#include "h5/read.h"
#include "h5/schema.h"
#include "h5/table.h"
#include "num/stat.h"
#include "products/wavelength_h5.h"

/* Median of model/template of each row, where the bins that were fitted have both. */
static spx_status read_brightness(hid_t file, const char *model, const char *bins, size_t nrow, spx_template_arm *a,
                                  spx_err *e)
{
    size_t dims[2] = {nrow, 0}, n = 0, grids = 0;
    double *w = NULL, *m = NULL, *ratio = NULL;
    spx_status st = spx_wavelength_read_grids(file, bins, &grids, &n, &w, e);
    dims[1] = n;
    if (st == SPX_OK && grids != (a->per_row ? nrow : 0))
        st = spx_fail_at(e, SPX_EINPUT, spx_h5_filename(file), bins, "fit the stars again with rvs-fit",
                         "does not have the grids of the templates");
    if (st == SPX_OK)
        st = spx_h5_read_f64(file, model, 2, dims, &m, e);
    if (st == SPX_OK && (ratio = spx_alloc(n, sizeof *ratio, e)) == NULL)
        st = SPX_EIO;
    for (size_t i = 0; i < nrow && st == SPX_OK; i++) {
        const double *here = spx_template_wave(a, i), *fitted = w + (grids > 0 ? i * n : 0);
        size_t count = 0, skip = 0;
        while (skip < a->nbin && n > 0 && here[skip] < fitted[0] - 1e-6)
            skip++;
        for (size_t k = 0; k < n && skip + k < a->nbin; k++) {
            const double t = a->value[i * a->nbin + skip + k], y = m[i * n + k];
            if (t > 0 && isfinite(y) && fabs(here[skip + k] - fitted[k]) < 1e-6)
                ratio[count++] = y / t;
        }
        const double middle = spx_median(ratio, count);
        a->brightness[i] = middle > 0 && isfinite(middle) ? middle : 0;
    }
    spx_free(w);
    spx_free(m);
    spx_free(ratio);
    return st;
}

static spx_status read_arm(hid_t file, const char *name, int joint, const spx_table *table, size_t nrow,
                           spx_template_arm *a, spx_err *e)
{
    char bins[80], values[80], model[80], fitted[80], sn[32];
    (void)snprintf(a->name, sizeof a->name, "%.15s", name);
    (void)snprintf(bins, sizeof bins, "/rvfit/%.15s/template_wavelength", name);
    (void)snprintf(values, sizeof values, "/rvfit/%.15s/%s", name, joint ? "exposure_template" : "template");
    (void)snprintf(model, sizeof model, "/rvfit/%.15s/%s", name, joint ? "exposure_model" : "model");
    (void)snprintf(fitted, sizeof fitted, "/rvfit/%.15s/wavelength", name);
    (void)snprintf(sn, sizeof sn, "SN_%.15s", name);
    for (char *c = sn; *c != '\0'; c++)
        *c = (char)toupper((unsigned char)*c);
    size_t grids = 0;
    spx_status st = spx_wavelength_read_grids(file, bins, &grids, &a->nbin, &a->wavelength, e);
    a->per_row = grids > 0;
    if (st == SPX_OK && a->per_row && grids != nrow)
        st = spx_fail_at(e, SPX_EINPUT, spx_h5_filename(file), bins, "fit the stars again with rvs-fit",
                         "has grids of %zu spectra, but there are %zu", grids, nrow);
    if (st == SPX_OK)
        st = spx_wavelength_read_words(file, bins, &a->medium, &a->barycentric, NULL, e);
    if (st == SPX_OK && a->nbin < 8)
        st = spx_fail_at(e, SPX_EINPUT, spx_h5_filename(file), bins, NULL, "has %zu bins: 8 are needed", a->nbin);
    size_t dims[2] = {nrow, a->nbin};
    if (st == SPX_OK)
        st = spx_h5_read_f64(file, values, 2, dims, &a->value, e);
    for (size_t k = 0; st == SPX_OK && k < nrow * a->nbin; k++)
        if (!(a->value[k] >= 0 && a->value[k] < 1e100))
            st = spx_fail_at(e, SPX_EINPUT, spx_h5_filename(file), values, "fit the stars again with rvs-fit",
                             "element %zu is %g", k, a->value[k]);
    if (st == SPX_OK && ((a->brightness = spx_alloc(nrow, sizeof *a->brightness, e)) == NULL ||
                         (a->sn = spx_alloc(nrow, sizeof *a->sn, e)) == NULL))
        st = SPX_EIO;
    if (st == SPX_OK && spx_h5_exists(file, model) && spx_h5_exists(file, fitted))
        st = read_brightness(file, model, fitted, nrow, a, e);
    if (st == SPX_OK && spx_table_find(table, sn) >= 0)
        st = spx_table_get_f64(table, sn, a->sn, e);
    for (size_t i = 0; i < nrow && st == SPX_OK; i++)
        a->sn[i] = isfinite(a->sn[i]) ? a->sn[i] : 0;
    return st;
}

/* RVS_WARN of each row: that of its star, whose exposures follow each other. */
static spx_status read_warn(const spx_table *stars, int joint, spx_star_templates *t, spx_err *e)
{
    int64_t *warn = NULL, *nexp = NULL;
    spx_status st = spx_table_find_i64(stars, "RVS_WARN", &warn, e);
    if (st == SPX_OK && joint)
        st = spx_table_find_i64(stars, "NEXP", &nexp, e);
    if (st == SPX_OK && (t->warn = spx_alloc(t->nrow, sizeof *t->warn, e)) == NULL)
        st = SPX_EIO;
    size_t at = 0;
    for (size_t k = 0; k < stars->nrow && st == SPX_OK; k++)
        for (int64_t i = 0; i < (nexp != NULL ? nexp[k] : 1) && at < t->nrow; i++)
            t->warn[at++] = warn != NULL ? warn[k] : 0;
    spx_free(warn);
    spx_free(nexp);
    return st;
}

spx_status spx_star_templates_read(hid_t file, spx_star_templates *t, spx_err *e)
{
    size_t n = 0;
    char **names = NULL, path[80];
    spx_table *stars = NULL, *exposures = NULL;
    memset(t, 0, sizeof *t);
    if (!spx_h5_exists(file, "/rvfit"))
        return spx_fail_at(e, SPX_EINPUT, spx_h5_filename(file), "/rvfit", "give what rvs-fit --with-template wrote",
                           "is missing");
    const int joint = spx_h5_exists(file, "/rvfit/exposures");
    spx_status st = spx_schema_accept(file, "/rvfit", "rvfit", e);
    if (st == SPX_OK)
        st = spx_table_read(file, "/rvfit/table", &stars, e);
    if (st == SPX_OK && joint)
        st = spx_table_read(file, "/rvfit/exposures", &exposures, e);
    if (st == SPX_OK && stars == NULL)
        st = spx_fail_at(e, SPX_EINPUT, spx_h5_filename(file), "/rvfit/table", "give what rvs-fit wrote", "is missing");
    const spx_table *rows = joint ? exposures : stars;
    if (st == SPX_OK) {
        t->nrow = rows->nrow;
        st = read_warn(stars, joint, t, e);
    }
    if (st == SPX_OK)
        st = spx_table_find_i64(rows, "TARGETID", &t->targetid, e);
    if (st == SPX_OK)
        st = spx_table_find_i64(rows, "EXPID", &t->expid, e);
    if (st == SPX_OK)
        st = spx_table_find_i64(rows, "FIBER", &t->fiber, e);
    if (st == SPX_OK)
        st = spx_h5_list(file, "/rvfit", &n, &names, e);
    for (size_t i = 0; i < n && st == SPX_OK && t->narm < SPX_MAX_ARM; i++) {
        (void)snprintf(path, sizeof path, "/rvfit/%.15s/%s", names[i], joint ? "exposure_template" : "template");
        if (strlen(names[i]) <= 15 && spx_h5_exists(file, path))
            st = read_arm(file, names[i], joint, rows, t->nrow, &t->arm[t->narm++], e);
    }
    if (st == SPX_OK && t->narm == 0)
        st = spx_fail_at(e, SPX_EINPUT, spx_h5_filename(file), "/rvfit", "fit the stars with rvs-fit --with-template",
                         "holds no templates of the stars");
    spx_h5_names_free(n, names);
    spx_table_free(stars);
    spx_table_free(exposures);
    return st;
}

void spx_star_templates_free(spx_star_templates *t)
{
    for (size_t a = 0; a < t->narm; a++) {
        spx_free(t->arm[a].wavelength);
        spx_free(t->arm[a].value);
        spx_free(t->arm[a].brightness);
        spx_free(t->arm[a].sn);
    }
    spx_free(t->targetid);
    spx_free(t->expid);
    spx_free(t->fiber);
    spx_free(t->warn);
    memset(t, 0, sizeof *t);
}
