/* Provides the optical depth of the atmosphere (products/transmission.h). */
#include "products/transmission.h"

#include <ctype.h>
#include <math.h>
#include <string.h>

#include "base/mem.h"

spx_status spx_transmission_check(const spx_transmission *t, spx_err *e)
{
    if (t->nspecies < 1 || t->nspecies > SPX_MAX_SPECIES || t->nwave < 2)
        return spx_fail(e, SPX_EINPUT, "a table of %zu species and %zu wavelengths: 1 to %d and 2 at least are wanted",
                        t->nspecies, t->nwave, SPX_MAX_SPECIES);
    for (size_t k = 0; k < t->nwave; k++)
        if (!(t->wavelength[k] > (k > 0 ? t->wavelength[k - 1] : 0) && t->wavelength[k] < 1e9))
            return spx_fail(e, SPX_EINPUT, "wavelengths do not increase at element %zu (%g)", k, t->wavelength[k]);
    for (size_t k = 0; k < t->nspecies * t->nwave; k++)
        if (!(t->tau[k] >= 0 && t->tau[k] < 1e30))
            return spx_fail(e, SPX_EINPUT, "optical depth of %s at %g Angstrom is %g", t->name[k / t->nwave],
                            t->wavelength[k % t->nwave], t->tau[k]);
    for (size_t s = 0; s < t->nspecies; s++) {
        const char *p = t->name[s];
        while (isalnum((unsigned char)*p) || *p == '_')
            p++;
        if (*p != '\0' || p == t->name[s])
            return spx_fail(e, SPX_EINPUT, "'%.15s' is no name of a species: letters, digits and _ are", t->name[s]);
        for (size_t k = 0; k < s; k++)
            if (strcmp(t->name[k], t->name[s]) == 0)
                return spx_fail(e, SPX_EINPUT, "two species are called %s", t->name[s]);
    }
    return SPX_OK;
}

void spx_transmission_free(spx_transmission *t)
{
    spx_free(t->wavelength);
    spx_free(t->tau);
    memset(t, 0, sizeof *t);
}
