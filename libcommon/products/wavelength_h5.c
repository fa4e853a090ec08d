/* Medium, frame and units of wavelengths (products/wavelength_h5.h). */
#include "products/wavelength_h5.h"

#include <strings.h>

#include "base/mem.h"
#include "h5/attr.h"
#include "h5/object.h"
#include "h5/read.h"
#include "num/wave.h"

/* Which of `n` words, two or three, attribute `name` is; the first where it is absent. */
static spx_status read_word(hid_t file, const char *path, const char *name, int n, const char *const *word, int *which,
                            spx_err *e)
{
    char text[64];
    *which = 0;
    if (!spx_h5_has_attr(file, path, name))
        return SPX_OK;
    const spx_status st = spx_h5_attr_str(file, path, name, text, sizeof text, e);
    if (st != SPX_OK)
        return st;
    while (*which < n && strcasecmp(text, word[*which]) != 0)
        ++*which;
    return *which < n ? SPX_OK
                      : spx_fail_at(e, SPX_EINPUT, spx_h5_filename(file), path, NULL,
                                    "attribute '%s' is '%s': should be %s%s%s or %s", name, text, word[0],
                                    n > 2 ? ", " : "", n > 2 ? word[1] : "", word[n - 1]);
}

static const char *const media[2] = {"vacuum", "air"};
enum { TOPOCENTRIC, BARYCENTRIC, UNKNOWN, FRAMES };
static const char *const frames[FRAMES] = {"topocentric", "barycentric", "unknown"};

spx_status spx_wavelength_read_words(hid_t file, const char *path, spx_medium *medium, int *barycentric, int *unknown,
                                     spx_err *e)
{
    int which;
    spx_status st = SPX_OK;
    if (medium != NULL && (st = read_word(file, path, "medium", 2, media, &which, e)) == SPX_OK)
        *medium = which ? SPX_AIR : SPX_VACUUM;
    if (st == SPX_OK && barycentric != NULL &&
        (st = read_word(file, path, "frame", unknown != NULL ? FRAMES : UNKNOWN, frames, &which, e)) == SPX_OK) {
        *barycentric = which == BARYCENTRIC;
        if (unknown != NULL)
            *unknown = which == UNKNOWN;
    }
    return st;
}

spx_status spx_wavelength_write_medium(hid_t file, const char *path, spx_medium medium, spx_err *e)
{
    return spx_h5_set_str(file, path, "medium", media[medium == SPX_AIR], e);
}

spx_status spx_wavelength_write_frame(hid_t file, const char *path, int barycentric, int unknown, spx_err *e)
{
    return spx_h5_set_str(file, path, "frame", frames[unknown ? UNKNOWN : barycentric ? BARYCENTRIC : TOPOCENTRIC], e);
}

static spx_status no_bins(hid_t file, const char *path, spx_err *e)
{
    return spx_fail_at(e, SPX_EINPUT, spx_h5_filename(file), path, NULL, "is empty: there are no bins");
}

/* NaN and infinity do not increase, either. */
static spx_status check_increase(hid_t file, const char *path, size_t n, const double *wavelength, spx_err *e)
{
    for (size_t i = 0; i < n; i++)
        if (!(wavelength[i] > (i > 0 ? wavelength[i - 1] : 0)) || wavelength[i] > 1e9)
            return spx_fail_at(e, SPX_EINPUT, spx_h5_filename(file), path, "sort the spectrum",
                               "wavelengths do not increase at element %zu (%g)", i, wavelength[i]);
    return SPX_OK;
}

spx_status spx_wavelength_read(hid_t file, const char *path, size_t *n, double **wavelength, spx_err *e)
{
    char unit[64] = "";
    spx_status st = spx_h5_read_f64(file, path, 1, n, wavelength, e);
    if (st == SPX_OK && *n == 0)
        st = no_bins(file, path, e);
    if (st == SPX_OK && spx_h5_has_attr(file, path, "units"))
        st = spx_h5_attr_str(file, path, "units", unit, sizeof unit, e);
    const double scale = unit[0] == '\0' ? 1 : spx_wave_unit(unit);
    if (st == SPX_OK && scale == 0)
        st = spx_fail_at(e, SPX_EINPUT, spx_h5_filename(file), path, NULL,
                         "has units '%s': should be Angstrom, nm, um, mm, cm or m", unit);
    for (size_t i = 0; st == SPX_OK && scale != 1 && i < *n; i++)
        (*wavelength)[i] *= scale;
    return st == SPX_OK ? check_increase(file, path, *n, *wavelength, e) : st;
}

/* Grids of rows are in Angstrom, and not converted. */
static spx_status check_unit(hid_t file, const char *path, spx_err *e)
{
    char unit[64] = "Angstrom";
    spx_status st = SPX_OK;
    if (spx_h5_has_attr(file, path, "units"))
        st = spx_h5_attr_str(file, path, "units", unit, sizeof unit, e);
    if (st == SPX_OK && spx_wave_unit(unit) != 1)
        st = spx_fail_at(e, SPX_EINPUT, spx_h5_filename(file), path, NULL,
                         "has units '%s': with a grid for each spectrum it should be Angstrom", unit);
    return st;
}

static spx_status check_rows(hid_t file, const char *path, size_t first, size_t n, size_t nwave, const double *wave,
                             spx_err *e)
{
    spx_status st = SPX_OK;
    for (size_t i = 0; i < n && st == SPX_OK; i++)
        if ((st = check_increase(file, path, nwave, wave + i * nwave, e)) != SPX_OK)
            spx_err_context(e, "spectrum %zu", first + i);
    return st;
}

spx_status spx_wavelength_read_rows(hid_t file, const char *path, size_t first, size_t n, size_t nwave, double *out,
                                    spx_err *e)
{
    spx_status st = check_unit(file, path, e);
    if (st == SPX_OK)
        st = spx_h5_read_rows(file, path, H5T_NATIVE_DOUBLE, first, n, out, e);
    return st == SPX_OK ? check_rows(file, path, first, n, nwave, out, e) : st;
}

spx_status spx_wavelength_read_grids(hid_t file, const char *path, size_t *nrow, size_t *nwave, double **out,
                                     spx_err *e)
{
    size_t dims[SPX_H5_MAXDIM], length[2] = {0, 0};
    int ndim = 0;
    spx_status st = spx_h5_shape(file, path, &ndim, dims, e);
    *nrow = *nwave = 0;
    if (st != SPX_OK || ndim != 2)
        return st == SPX_OK ? spx_wavelength_read(file, path, nwave, out, e) : st;
    if ((st = check_unit(file, path, e)) == SPX_OK)
        st = spx_h5_read_f64(file, path, 2, length, out, e);
    if (st == SPX_OK && (length[0] == 0 || length[1] == 0))
        st = no_bins(file, path, e);
    *nrow = length[0];
    *nwave = length[1];
    return st == SPX_OK ? check_rows(file, path, 0, *nrow, *nwave, *out, e) : st;
}
