/* Reads and writes an arm, which frame and spectra share, and tables with a row a spectrum (products/arm_h5.h). */
#include "products/arm_h5.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "h5/attr.h"
#include "h5/deferred.h"
#include "h5/object.h"
#include "h5/read.h"
#include "h5/write.h"
#include "products/wavelength_h5.h"

static void sub(char *out, size_t size, const char *path, const char *name)
{
    (void)snprintf(out, size, "%s/%s", path, name);
}

/* Checks that the file can hold a dataset whose values are read later, by rows. */
static spx_status check_claim(hid_t file, const char *path, int ndim, const size_t *dims, spx_err *e)
{
    size_t bytes = 0;
    hid_t d = spx_h5_open(file, path, e);
    if (d < 0)
        return SPX_EINPUT;
    hid_t type = H5Dget_type(d);
    spx_status st = type < 0 ? spx_fail_at(e, SPX_EINPUT, spx_h5_filename(file), path, NULL, "has no type") : SPX_OK;
    bytes = st == SPX_OK ? H5Tget_size(type) : 0;
    for (int i = 0; i < ndim && st == SPX_OK; i++)
        st = spx_mul(bytes, dims[i], &bytes, e);
    if (st == SPX_OK && spx_h5_overclaims(d, bytes))
        st = spx_fail_at(e, SPX_EINPUT, spx_h5_filename(file), path, NULL, "claims more data than the file holds");
    if (type >= 0)
        (void)H5Tclose(type);
    (void)H5Dclose(d);
    return st;
}

/* Checks that dataset `name` of the arm at `path` has shape [nspec][n][nwave], or [nspec][nwave]. Lengths of 0 match
 * any, and are set. */
static spx_status check_shape(hid_t file, const char *path, const char *name, int ndim, size_t *dims, spx_err *e)
{
    char p[128];
    int have = 0;
    size_t d[SPX_H5_MAXDIM];
    sub(p, sizeof p, path, name);
    spx_status st = spx_h5_shape(file, p, &have, d, e);
    if (st == SPX_OK && have != ndim)
        st = spx_fail_at(e, SPX_EINPUT, spx_h5_filename(file), p, NULL, "has %d dimensions, %d expected", have, ndim);
    for (int i = 0; i < ndim && st == SPX_OK; i++) {
        if (dims[i] != 0 && dims[i] != d[i])
            st = spx_fail_at(e, SPX_EINPUT, spx_h5_filename(file), p, NULL,
                             "dimension %d is %zu, %zu expected from the other datasets", i, d[i], dims[i]);
        dims[i] = d[i];
    }
    return st == SPX_OK ? check_claim(file, p, ndim, d, e) : st;
}

/* Wavelengths of an arm; of one with a grid for each spectrum those of the first, and how many spectra there are. */
static spx_status read_bins(hid_t file, const char *p, int rows, size_t *nspec, spx_arm *a, spx_err *e)
{
    size_t dims[SPX_H5_MAXDIM];
    int ndim = 0;
    spx_status st = spx_h5_shape(file, p, &ndim, dims, e);
    if (st != SPX_OK || ndim != 2) {
        a->nwave = 0;
        return st == SPX_OK ? spx_wavelength_read(file, p, &a->nwave, &a->wavelength, e) : st;
    }
    if (!rows)
        return spx_fail_at(
            e, SPX_EINPUT, spx_h5_filename(file), p,
            "rvs-fit, h5merge, h52fits and specplot take such spectra; of one star a file, others do, too",
            "has a grid for each spectrum, and all have to be on the same wavelengths here");
    a->per_row = 1;
    a->nwave = dims[1];
    if (dims[0] == 0 || dims[1] == 0 || (*nspec != 0 && *nspec != dims[0]))
        return spx_fail_at(e, SPX_EINPUT, spx_h5_filename(file), p, NULL,
                           "has grids of %zu spectra of %zu bins, but there are %zu spectra", dims[0], dims[1], *nspec);
    *nspec = dims[0];
    st = check_claim(file, p, 2, dims, e);
    if (st == SPX_OK && (a->wavelength = spx_alloc(a->nwave, sizeof *a->wavelength, e)) == NULL)
        st = SPX_EIO;
    return st == SPX_OK ? spx_wavelength_read_rows(file, p, 0, 1, a->nwave, a->wavelength, e) : st;
}

spx_status spx_arm_read_head(hid_t file, const char *path, int rows, size_t *nspec, spx_arm *a, spx_err *e)
{
    char p[128];
    size_t dims[3] = {0, 0, 0};
    sub(p, sizeof p, path, "wavelength");
    spx_status st = read_bins(file, p, rows, nspec, a, e);
    if (st != SPX_OK)
        return st;
    if ((st = spx_wavelength_read_words(file, p, &a->medium, &a->barycentric,
                                        strcmp(path, "/frame") != 0 ? &a->frame_unknown : NULL, e)) != SPX_OK)
        return st;
    dims[0] = *nspec;
    dims[1] = a->nwave;
    if ((st = check_shape(file, path, "flux", 2, dims, e)) != SPX_OK)
        return st;
    sub(p, sizeof p, path, "flux");
    /* a length of 0 would match any below, and then contradict the shape already read */
    if (dims[0] == 0 || dims[1] == 0)
        return spx_fail_at(e, SPX_EINPUT, spx_h5_filename(file), p, NULL, "holds no spectra");
    *nspec = dims[0];
    if (spx_h5_has_attr(file, p, "units") &&
        (st = spx_h5_attr_str(file, p, "units", a->unit, sizeof a->unit, e)) != SPX_OK)
        return st;
    if ((st = check_shape(file, path, "ivar", 2, dims, e)) != SPX_OK)
        return st;
    sub(p, sizeof p, path, "mask");
    /* of spectra it is optional, of a frame it is not: without it, masked bins would be taken for good ones */
    if ((strcmp(path, "/frame") == 0 || spx_h5_exists(file, p)) &&
        (st = check_shape(file, path, "mask", 2, dims, e)) != SPX_OK)
        return st;
    sub(p, sizeof p, path, "resolution");
    size_t rd[3] = {*nspec, 0, a->nwave};
    if (spx_h5_exists(file, p) && (st = check_shape(file, path, "resolution", 3, rd, e)) != SPX_OK)
        return st;
    a->ndiag = rd[1];
    return SPX_OK;
}

spx_status spx_arm_read_values(hid_t file, const char *path, size_t nspec, int with_resolution, spx_arm *a, int *finite,
                               spx_err *e)
{
    char p[128];
    size_t dims[2] = {nspec, a->nwave}, rd[3] = {nspec, a->ndiag, a->nwave};
    int good[3] = {0, 0, 1};
    spx_status st = SPX_OK;
    sub(p, sizeof p, path, "wavelength");
    if (a->per_row)
        st = spx_wavelength_read_grids(file, p, &dims[0], &dims[1], &a->row_wavelength, e);
    sub(p, sizeof p, path, "flux");
    if (st == SPX_OK)
        st = spx_h5_read_checked(file, p, 2, dims, &a->flux, &good[0], e);
    sub(p, sizeof p, path, "ivar");
    if (st != SPX_OK || (st = spx_h5_read_checked(file, p, 2, dims, &a->ivar, &good[1], e)) != SPX_OK)
        return st;
    sub(p, sizeof p, path, "mask");
    if (spx_h5_exists(file, p) && (st = spx_h5_read_u32(file, p, 2, dims, &a->mask, e)) != SPX_OK)
        return st;
    if (!with_resolution)
        a->ndiag = 0;
    sub(p, sizeof p, path, "resolution");
    if (a->ndiag > 0)
        st = spx_h5_read_checked(file, p, 3, rd, &a->resolution, &good[2], e);
    if (finite != NULL)
        *finite = good[0] && good[1] && good[2];
    return st;
}

spx_status spx_arm_read(hid_t file, const char *path, size_t *nspec, int with_resolution, spx_arm *a, int *finite,
                        spx_err *e)
{
    spx_status st = spx_arm_read_head(file, path, 0, nspec, a, e);
    return st == SPX_OK ? spx_arm_read_values(file, path, *nspec, with_resolution, a, finite, e) : st;
}

/* Attaches a dimension to the wavelengths, where they are an axis. */
static spx_status attach(hid_t file, const char *path, unsigned dim, const char *wavelength, const spx_arm *a,
                         spx_err *e)
{
    return a->per_row ? SPX_OK : spx_h5_attach_scale(file, path, dim, wavelength, "wavelength", e);
}

static spx_status write_wavelength(hid_t file, const char *path, size_t nspec, const spx_arm *a, spx_err *e)
{
    char w[128];
    const size_t dims[2] = {nspec, a->nwave};
    sub(w, sizeof w, path, "wavelength");
    spx_status st = a->per_row ? spx_h5_write_real(file, w, 8, 2, dims, a->row_wavelength, e)
                               : spx_h5_write_real(file, w, 8, 1, &a->nwave, a->wavelength, e);
    if (st == SPX_OK)
        st = spx_wavelength_write_medium(file, w, a->medium, e);
    if (st == SPX_OK)
        st = spx_wavelength_write_frame(file, w, a->barycentric, a->frame_unknown, e);
    return st;
}

spx_status spx_arm_write(hid_t file, const char *path, size_t nspec, const spx_arm *a, int precision,
                         spx_h5_writes *writes, spx_err *e)
{
    char w[128], p[128], inverse[80];
    size_t dims[2] = {nspec, a->nwave};
    spx_status st = spx_h5_group(file, path, e);
    sub(w, sizeof w, path, "wavelength");
    if (st != SPX_OK || (st = write_wavelength(file, path, nspec, a, e)) != SPX_OK)
        return st;
    sub(p, sizeof p, path, "flux");
    if ((st = spx_h5_defer_write_real(writes, file, p, precision, 2, dims, a->flux, e)) != SPX_OK ||
        (st = spx_h5_set_str(file, p, "units", a->unit[0] != '\0' ? a->unit : "1", e)) != SPX_OK ||
        (st = attach(file, p, 1, w, a, e)) != SPX_OK)
        return st;
    sub(p, sizeof p, path, "ivar");
    (void)snprintf(inverse, sizeof inverse, "(%s)^-2", a->unit[0] != '\0' ? a->unit : "1");
    if ((st = spx_h5_defer_write_real(writes, file, p, precision, 2, dims, a->ivar, e)) != SPX_OK ||
        (st = spx_h5_set_str(file, p, "units", inverse, e)) != SPX_OK || (st = attach(file, p, 1, w, a, e)) != SPX_OK)
        return st;
    if (a->mask != NULL) {
        sub(p, sizeof p, path, "mask");
        if ((st = spx_h5_defer_write(writes, file, p, H5T_NATIVE_UINT32, 2, dims, a->mask, e)) != SPX_OK ||
            (st = attach(file, p, 1, w, a, e)) != SPX_OK)
            return st;
    }
    if (a->resolution != NULL) {
        size_t rd[3] = {nspec, a->ndiag, a->nwave};
        sub(p, sizeof p, path, "resolution");
        if ((st = spx_h5_defer_write_real(writes, file, p, precision, 3, rd, a->resolution, e)) != SPX_OK ||
            (st = attach(file, p, 2, w, a, e)) != SPX_OK)
            return st;
    }
    return SPX_OK;
}

/* Datasets of an arm that have a row a spectrum. */
typedef struct {
    const char *name, *unit; /* unit NULL: as the schema says */
    const void *data;
    size_t lines; /* of nwave values */
    int is_mask;
} row_set;

enum { ROW_SETS = 4 };

static void row_sets(const spx_arm *a, char inverse[80], row_set set[ROW_SETS])
{
    const char *unit = a->unit[0] != '\0' ? a->unit : "1";
    (void)snprintf(inverse, 80, "(%s)^-2", unit);
    set[0] = (row_set){"flux", unit, a->flux, 1, 0};
    set[1] = (row_set){"ivar", inverse, a->ivar, 1, 0};
    set[2] = (row_set){"mask", NULL, a->mask, 1, 1};
    set[3] = (row_set){"resolution", NULL, a->resolution, a->ndiag, 0};
}

spx_status spx_arm_create(hid_t file, const char *path, size_t nspec, const spx_arm *a, int precision, spx_err *e)
{
    char w[128], p[128], inverse[80];
    row_set set[ROW_SETS];
    row_sets(a, inverse, set);
    spx_status st = spx_h5_group(file, path, e);
    if (st == SPX_OK)
        st = write_wavelength(file, path, nspec, a, e);
    sub(w, sizeof w, path, "wavelength");
    for (size_t i = 0; i < ROW_SETS && st == SPX_OK; i++) {
        const size_t dims[3] = {nspec, set[i].lines, a->nwave}, flat[2] = {nspec, a->nwave};
        const int ndim = strcmp(set[i].name, "resolution") == 0 ? 3 : 2;
        if (set[i].data == NULL)
            continue;
        sub(p, sizeof p, path, set[i].name);
        const hid_t type = set[i].is_mask ? H5T_NATIVE_UINT32 : precision > 4 ? H5T_NATIVE_DOUBLE : H5T_NATIVE_FLOAT;
        st = spx_h5_create(file, p, type, ndim, ndim == 3 ? dims : flat, e);
        if (st == SPX_OK && set[i].unit != NULL)
            st = spx_h5_set_str(file, p, "units", set[i].unit, e);
        if (st == SPX_OK)
            st = attach(file, p, (unsigned)(ndim - 1), w, a, e);
    }
    return st;
}

spx_status spx_arm_write_rows(hid_t file, const char *path, size_t first, size_t n, const spx_arm *a, int precision,
                              spx_err *e)
{
    char p[128], inverse[80];
    row_set set[ROW_SETS];
    size_t most = 0;
    row_sets(a, inverse, set);
    spx_status st = spx_mul(n, a->nwave, &most, e);
    if (st == SPX_OK)
        st = spx_mul(most, a->ndiag > 0 ? a->ndiag : 1, &most, e);
    float *narrow = st == SPX_OK && precision == 4 ? spx_alloc_unset(most, 1, sizeof *narrow, e) : NULL;
    st = e->code;
    for (size_t i = 0; i < ROW_SETS && st == SPX_OK; i++) {
        const double *value = set[i].data;
        const size_t count = n * set[i].lines * a->nwave;
        if (value == NULL)
            continue;
        sub(p, sizeof p, path, set[i].name);
        if (!set[i].is_mask && narrow != NULL)
            st = spx_h5_narrow(file, p, value, count, narrow, e);
        if (st == SPX_OK && set[i].is_mask)
            st = spx_h5_write_rows(file, p, H5T_NATIVE_UINT32, first, n, set[i].data, e);
        else if (st == SPX_OK && precision == 4)
            st = spx_h5_write_rows(file, p, H5T_NATIVE_FLOAT, first, n, narrow, e);
        else if (st == SPX_OK)
            st = spx_h5_write_rows(file, p, H5T_NATIVE_DOUBLE, first, n, value, e);
    }
    spx_free(narrow);
    return st;
}

spx_status spx_row_table_read(hid_t file, const char *path, size_t nspec, spx_table **t, spx_err *e)
{
    spx_status st = spx_table_read(file, path, t, e);
    if (st == SPX_OK && *t != NULL && (*t)->nrow != nspec)
        st = spx_fail_at(e, SPX_EINPUT, spx_h5_filename(file), path, NULL, "has %zu rows, but there are %zu spectra",
                         (*t)->nrow, nspec);
    return st;
}
