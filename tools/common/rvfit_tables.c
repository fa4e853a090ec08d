#include "common/rvfit_tables.h"

#include <math.h>

#include "base/log.h"
#include "base/mem.h"
#include "products/rvfit_h5.h"

/* Adds a whole number of each exposure, if one of them is known. */
static spx_status add_number(spx_table *t, const spx_spectra_parts *p, const spx_rvfit_stars *stars, const char *name,
                             spx_err *e)
{
    int64_t *all = NULL, *v = spx_alloc(stars->nrow, sizeof *v, e);
    int known = 0;
    spx_status st = v == NULL ? SPX_EIO : spx_spectra_parts_number(p, name, &all, e);
    for (size_t i = 0; i < stars->nrow && st == SPX_OK; i++) {
        v[i] = all[stars->row[i]];
        known |= v[i] >= 0;
    }
    if (st == SPX_OK && known)
        st = spx_table_add(t, name, H5T_NATIVE_INT64, "", v, e);
    spx_free(all);
    spx_free(v);
    return st;
}

/* When exposures were taken. */
static spx_status epoch_columns(const spx_spectra_parts *p, const spx_rvfit_stars *stars, spx_table **out, spx_err *e)
{
    double *all = NULL, *v = spx_alloc(stars->nrow, sizeof *v, e);
    size_t unknown = 0;
    *out = spx_table_new(stars->nrow, e);
    spx_status st = v == NULL || *out == NULL ? SPX_EIO : spx_spectra_parts_middle(p, &all, e);
    for (size_t i = 0; i < stars->nrow && st == SPX_OK; i++) {
        v[i] = all[stars->row[i]];
        unknown += !isfinite(v[i]);
    }
    if (st == SPX_OK)
        st = spx_table_add(*out, "MJD_MID", H5T_NATIVE_DOUBLE, "d", v, e);
    if (st == SPX_OK)
        st = add_number(*out, p, stars, "NIGHT", e);
    if (st == SPX_OK && (p->all.fibermap == NULL || spx_table_find(p->all.fibermap, "EXPID") < 0))
        st = add_number(*out, p, stars, "EXPID", e); /* else the fibermap's own column is in the table */
    if (st == SPX_OK && unknown > 0)
        spx_warn("it is not known when %zu of %zu exposures were taken (MJD_MID, or MJD and EXPTIME, in fibermap or "
                 "header): MJD_MID is NaN",
                 unknown, stars->nrow);
    spx_free(all);
    spx_free(v);
    return st;
}

spx_status spx_rvfit_write_stars(hid_t file, const spx_rvfit *all, const spx_spectra_parts *p,
                                 const spx_rvfit_stars *stars, spx_err *e)
{
    spx_table *redshifts = NULL, *epochs = NULL;
    size_t *row = spx_rvfit_star_rows(stars, e);
    spx_status st = row == NULL ? SPX_EIO : SPX_OK;
    if (st == SPX_OK && stars->redshifts.n > 0)
        st = spx_redshifts_columns(&stars->redshifts, &p->all, stars->nstar, row, &redshifts, e);
    if (st == SPX_OK && stars->joint && all->with_epochs)
        st = epoch_columns(p, stars, &epochs, e);
    if (st == SPX_OK)
        st = spx_rvfit_write_tables(file, all, &p->all, stars->joint, redshifts, epochs, e);
    spx_table_free(redshifts);
    spx_table_free(epochs);
    spx_free(row);
    return st;
}

void spx_rvfit_drop_models(spx_rvfit *fit)
{
    for (size_t a = 0; a < SPX_MAX_ARM; a++) {
        spx_free(fit->arm[a].model);
        fit->arm[a].model = NULL;
    }
}
