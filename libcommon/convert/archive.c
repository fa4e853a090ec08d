/* Objects of LSST's afw in tables (convert/archive.h). */
#include "convert/archive.h"

#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "convert/blocks_parts.h"
#include "fits/values.h"

static const char index_name[] = "ARCHIVE_INDEX";

spx_status spx_archive_open(const spx_fits *f, spx_archive *a, spx_err *e)
{
    const struct {
        const char *name;
        double **to;
    } column[] = {{"id", &a->id},
                  {"cat.archive", &a->table},
                  {"cat.persistable", &a->part},
                  {"row0", &a->row},
                  {"nrows", &a->nrow}};
    memset(a, 0, sizeof *a);
    a->hdu = spx_fits_find_table(f, index_name);
    if (a->hdu < 0)
        return spx_fits_need_hdu(f, index_name, "archive", "a table", e);
    a->n = f->hdu[a->hdu].nrow;
    spx_status st = spx_fits_column_str(f, (size_t)a->hdu, "name", SPX_ARCHIVE_NAME, &a->name, e);
    for (size_t k = 0; k < sizeof column / sizeof *column && st == SPX_OK; k++) {
        size_t n = 0;
        st = spx_fits_column_f64(f, (size_t)a->hdu, column[k].name, &n, column[k].to, e);
        if (st == SPX_OK && n != 1)
            st = spx_fail_at(e, SPX_EINPUT, f->name, index_name, NULL, "%s should be one number a row", column[k].name);
    }
    return st;
}

void spx_archive_free(spx_archive *a)
{
    spx_free(a->id);
    spx_free(a->table);
    spx_free(a->part);
    spx_free(a->row);
    spx_free(a->nrow);
    spx_free(a->name);
    memset(a, 0, sizeof *a);
}

double spx_archive_find(const spx_archive *a, const char *name)
{
    for (size_t i = 0; i < a->n; i++)
        if (strcmp(a->name + i * SPX_ARCHIVE_NAME, name) == 0)
            return a->id[i];
    return 0;
}

/* Index of the first part of an object; a->n: none. */
static size_t first_part(const spx_archive *a, double id)
{
    size_t i = 0;
    while (i < a->n && !(a->id[i] == id && a->part[i] == 0))
        i++;
    return i;
}

const char *spx_archive_class(const spx_archive *a, double id)
{
    const size_t i = first_part(a, id);
    return i < a->n ? a->name + i * SPX_ARCHIVE_NAME : NULL;
}

spx_status spx_archive_object(const spx_fits *f, const spx_archive *a, double id, const char *name, spx_archived *to,
                              spx_err *e)
{
    const char *its = spx_archive_class(a, id);
    if (its == NULL)
        return spx_fail_at(e, SPX_EINPUT, f->name, index_name, NULL, "has no object %g, which should be a %s", id,
                           name);
    if (strcmp(its, name) != 0)
        return spx_fail_at(e, SPX_EINPUT, f->name, index_name, NULL, "object %g is a %s instead of a %s", id, its,
                           name);
    const size_t i = first_part(a, id);
    const double hdu = a->hdu + a->table[i];
    const int there = a->table[i] >= 1 && hdu < (double)f->nhdu && f->hdu[(size_t)hdu].kind == SPX_FITS_BINTABLE;
    if (!there || !(a->row[i] >= 0 && a->nrow[i] >= 1 && a->row[i] + a->nrow[i] <= (double)f->hdu[(size_t)hdu].nrow))
        return spx_fail_at(e, SPX_EINPUT, f->name, index_name, NULL,
                           "object %g, a %s, is in %g rows from %g of table %g, which the file does not have", id, name,
                           a->nrow[i], a->row[i], a->table[i]);
    *to = (spx_archived){.id = id, .hdu = (int)hdu, .row = (size_t)a->row[i], .nrow = (size_t)a->nrow[i]};
    return SPX_OK;
}

spx_status spx_archive_number(const spx_fits *f, const spx_archived *of, const char *column, double *to, spx_err *e)
{
    size_t n = 0;
    double *v = NULL;
    spx_status st = spx_fits_cell_f64(f, (size_t)of->hdu, column, of->row, &n, &v, e);
    if (st == SPX_OK && (n != 1 || !isfinite(v[0])))
        st = spx_fail_at(e, SPX_EINPUT, f->name, spx_fits_hduname(f, (size_t)of->hdu), NULL, "%s should be one number",
                         column);
    *to = st == SPX_OK ? v[0] : 0;
    spx_free(v);
    return st;
}
