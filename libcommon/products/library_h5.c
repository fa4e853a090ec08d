/* Reads /library (products/library_h5.h). */
#include "products/library_h5.h"

#include <string.h>

#include "base/mem.h"
#include "h5/attr.h"
#include "h5/object.h"
#include "h5/read.h"
#include "h5/schema.h"
#include "products/spectra.h"
#include "products/wavelength_h5.h"

static spx_status read_names(hid_t file, spx_library *lib, spx_err *e)
{
    char *names = NULL;
    size_t n = 0, size = sizeof lib->parname[0];
    spx_status st = spx_h5_read_strings(file, "/library/parname", size, &n, &names, e);
    if (st == SPX_OK && n != lib->npar)
        st = spx_fail_at(e, SPX_EINPUT, spx_h5_filename(file), "/library/parname", NULL,
                         "names %zu parameters, params has %zu", n, lib->npar);
    for (size_t i = 0; i < n && st == SPX_OK; i++) {
        memcpy(lib->parname[i], names + i * size, size);
        lib->parname[i][size - 1] = '\0';
        for (size_t k = strlen(lib->parname[i]); k > 0 && lib->parname[i][k - 1] == ' '; k--)
            lib->parname[i][k - 1] = '\0';
    }
    for (size_t i = 0; i < n && st == SPX_OK; i++) {
        if (lib->parname[i][0] == '\0')
            st = spx_fail_at(e, SPX_EINPUT, spx_h5_filename(file), "/library/parname", "give it one",
                             "parameter %zu has no name", i);
        for (size_t k = 0; k < i && st == SPX_OK; k++)
            if (strcmp(lib->parname[i], lib->parname[k]) == 0)
                st = spx_fail_at(e, SPX_EINPUT, spx_h5_filename(file), "/library/parname", NULL,
                                 "parameters %zu and %zu are both called %s: rename one", k, i, lib->parname[i]);
    }
    spx_free(names);
    return st;
}

spx_status spx_library_read(hid_t file, spx_library *lib, spx_err *e)
{
    int ndim;
    size_t dims[SPX_H5_MAXDIM] = {0};
    memset(lib, 0, sizeof *lib);
    if (!spx_h5_exists(file, "/library"))
        return spx_fail_at(e, SPX_EINPUT, spx_h5_filename(file), "/library", "fits2h5 makes it of model spectra",
                           "is missing");
    spx_status st = spx_schema_accept(file, "/library", "library", e);
    if (st != SPX_OK || (st = spx_wavelength_read(file, "/library/wavelength", dims, &lib->wavelength, e)) != SPX_OK)
        return st;
    lib->nwave = dims[0];
    if ((st = spx_wavelength_read_words(file, "/library/wavelength", &lib->medium, NULL, NULL, e)) != SPX_OK)
        return st;
    dims[0] = dims[1] = 0;
    if ((st = spx_h5_read_f64(file, "/library/params", 2, dims, &lib->params, e)) != SPX_OK)
        return st;
    lib->ntemp = dims[0];
    lib->npar = dims[1];
    if (lib->npar < 1 || lib->npar > SPX_MAX_PAR)
        return spx_fail_at(e, SPX_EINPUT, spx_h5_filename(file), "/library/params", NULL,
                           "%zu parameters; 1 to %d are possible", lib->npar, SPX_MAX_PAR);
    if ((st = read_names(file, lib, e)) != SPX_OK ||
        (st = spx_h5_shape(file, "/library/flux", &ndim, dims, e)) != SPX_OK)
        return st;
    if (ndim != 2 || dims[0] != lib->ntemp || dims[1] != lib->nwave)
        return spx_fail_at(e, SPX_EINPUT, spx_h5_filename(file), "/library/flux", NULL,
                           "is not of %zu spectra with %zu samples", lib->ntemp, lib->nwave);
    return SPX_OK;
}

spx_status spx_library_read_flux(hid_t file, const spx_library *lib, size_t first, size_t n, float *flux, spx_err *e)
{
    if (first > lib->ntemp || n > lib->ntemp - first)
        return spx_fail(e, SPX_EBUG, "rows %zu to %zu of a library of %zu", first, first + n, lib->ntemp);
    return spx_h5_read_rows(file, "/library/flux", H5T_NATIVE_FLOAT, first, n, flux, e);
}
