/* Provides what the headers of spectra say of each of their rows, where fibermaps do not (run/catalogue_parts.h). */
#include <math.h>

#include "base/mem.h"
#include "h5/object.h"
#include "h5/table.h"
#include "products/cards_h5.h"
#include "products/site.h"
#include "run/catalogue_parts.h"

spx_status spx_spectra_part_header(const spx_spectra_part *part, spx_cards *h, spx_err *e)
{
    return spx_cards_read(part->file, spx_h5_exists(part->file, "/frame") ? "/frame/header" : "/spectra/header", h, e);
}

void spx_spectra_parts_sources(const spx_spectra_parts *p, size_t *part, uint64_t *arms)
{
    for (size_t i = p->npart; i-- > 0;)
        for (size_t r = 0; r < p->part[i].nspec; r++) {
            part[p->part[i].first + r] = i;
            for (size_t k = 0; k < p->part[i].narm && arms != NULL; k++)
                arms[p->part[i].first + r] |= UINT64_C(1) << p->part[i].arm[k];
        }
}

/* Values of the files, of[npart], for each of their rows: a whole number of the header, or (name NULL) the middle of
 * the exposure. */
static spx_status of_headers(const spx_spectra_parts *p, const char *name, double *of, spx_err *e)
{
    spx_status st = SPX_OK;
    for (size_t i = 0; i < p->npart && st == SPX_OK; i++) {
        spx_cards h = {0};
        spx_err unknown = {0};
        long value = -1;
        st = spx_spectra_part_header(&p->part[i], &h, e);
        of[i] = NAN;
        if (name != NULL) {
            (void)spx_cards_int(&h, name, &value);
            of[i] = (double)value;
        } else if (spx_exposure_middle(&h, &of[i], &unknown) != SPX_OK) {
            of[i] = NAN;
        }
        spx_cards_free(&h);
    }
    return st;
}

/* The same, row by row. */
static spx_status by_headers(const spx_spectra_parts *p, const char *name, double *out, spx_err *e)
{
    double *of = spx_alloc(p->npart, sizeof *of, e);
    size_t *part = spx_alloc(p->all.nspec, sizeof *part, e);
    spx_status st = of == NULL || part == NULL ? SPX_EIO : of_headers(p, name, of, e);
    if (st == SPX_OK)
        spx_spectra_parts_sources(p, part, NULL);
    for (size_t r = 0; r < p->all.nspec && st == SPX_OK; r++)
        out[r] = of[part[r]];
    spx_free(of);
    spx_free(part);
    return st;
}

spx_status spx_spectra_parts_number(const spx_spectra_parts *p, const char *name, int64_t **out, spx_err *e)
{
    spx_status st = spx_table_find_i64(p->all.fibermap, name, out, e);
    if (st != SPX_OK || *out != NULL)
        return st;
    double *value = spx_alloc(p->all.nspec, sizeof *value, e);
    *out = spx_alloc(p->all.nspec, sizeof **out, e);
    st = value == NULL || *out == NULL ? SPX_EIO : by_headers(p, name, value, e);
    for (size_t r = 0; r < p->all.nspec && st == SPX_OK; r++)
        (*out)[r] = (int64_t)value[r];
    spx_free(value);
    return st;
}

spx_status spx_spectra_parts_middle(const spx_spectra_parts *p, double **out, spx_err *e)
{
    const spx_table *t = p->all.fibermap;
    const size_t n = p->all.nspec;
    double *exptime = spx_alloc(n, sizeof *exptime, e);
    *out = spx_alloc(n, sizeof **out, e);
    spx_status st = exptime == NULL || *out == NULL ? SPX_EIO : SPX_OK;
    if (st == SPX_OK && t != NULL && spx_table_find(t, "MJD_MID") >= 0) {
        st = spx_table_get_f64(t, "MJD_MID", *out, e);
    } else if (st == SPX_OK && t != NULL && spx_table_find(t, "MJD") >= 0) {
        const int timed = spx_table_find(t, "EXPTIME") >= 0;
        st = spx_table_get_f64(t, "MJD", *out, e);
        if (st == SPX_OK && timed)
            st = spx_table_get_f64(t, "EXPTIME", exptime, e);
        for (size_t r = 0; r < n && st == SPX_OK; r++)
            (*out)[r] = timed && exptime[r] >= 0 ? (*out)[r] + exptime[r] / 2 / 86400 : NAN;
    } else if (st == SPX_OK) {
        st = by_headers(p, NULL, *out, e);
    }
    spx_free(exptime);
    return st;
}
