/* Reads and writes /network (products/network_h5.h). */
#include "products/network_h5.h"

#include <string.h>

#include "base/mem.h"
#include "h5/attr.h"
#include "h5/object.h"
#include "h5/read.h"
#include "h5/schema.h"
#include "h5/write.h"
#include "products/nn_h5.h"
#include "products/spectra.h"
#include "products/wavelength_h5.h"

spx_status spx_network_read(hid_t file, spx_network *n, spx_err *e)
{
    static const char wave[] = "/network/wavelength";
    char word[16], *names = NULL;
    size_t width = sizeof n->parname[0];
    *n = (spx_network){0};
    spx_status st = spx_schema_accept(file, "/network", "network", e);
    if (st != SPX_OK || (st = spx_wavelength_read(file, wave, &n->nwave, &n->wavelength, e)) != SPX_OK ||
        (st = spx_wavelength_read_words(file, wave, &n->medium, NULL, NULL, e)) != SPX_OK)
        return st;
    if ((st = spx_h5_attr_str(file, "/network", "output", word, sizeof word, e)) != SPX_OK)
        return st;
    n->of_flux = strcmp(word, "flux") == 0;
    if (!n->of_flux && strcmp(word, "lnflux") != 0)
        return spx_fail_at(e, SPX_EINPUT, spx_h5_filename(file), "/network", NULL,
                           "output '%s' is neither flux nor lnflux", word);
    if ((st = spx_h5_read_strings(file, "/network/parname", width, &n->npar, &names, e)) != SPX_OK)
        return st;
    if (n->npar < 1 || n->npar > SPX_MAX_PAR)
        st = spx_fail_at(e, SPX_EINPUT, spx_h5_filename(file), "/network/parname", NULL,
                         "%zu parameters; 1 to %d are possible", n->npar, SPX_MAX_PAR);
    for (size_t i = 0; i < n->npar && st == SPX_OK; i++) {
        memcpy(n->parname[i], names + i * width, width);
        n->parname[i][width - 1] = '\0';
        for (size_t k = strlen(n->parname[i]); k > 0 && n->parname[i][k - 1] == ' '; k--)
            n->parname[i][k - 1] = '\0';
    }
    spx_free(names);
    return st == SPX_OK ? spx_nn_read(file, "/network", n->npar, n->nwave, &n->nn, e) : st;
}

spx_status spx_network_write(hid_t file, const spx_network *n, spx_err *e)
{
    static const char wave[] = "/network/wavelength";
    spx_status st = spx_h5_group(file, "/network", e);
    if (st == SPX_OK)
        st = spx_h5_set_str(file, "/network", "output", n->of_flux ? "flux" : "lnflux", e);
    if (st == SPX_OK)
        st = spx_h5_write_real(file, wave, 8, 1, &n->nwave, n->wavelength, e);
    if (st == SPX_OK)
        st = spx_wavelength_write_medium(file, wave, n->medium, e);
    if (st == SPX_OK)
        st = spx_h5_write_strings(file, "/network/parname", sizeof n->parname[0], n->npar, n->parname[0], e);
    return st == SPX_OK ? spx_nn_write(file, "/network", &n->nn, e) : st;
}
