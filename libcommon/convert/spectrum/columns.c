/* Provides the names of columns and HDUs, and assigns roles by them (convert/spectrum/columns.h). */
#include "convert/spectrum/columns.h"

#include <ctype.h>
#include <math.h>
#include <string.h>

const spx_column_name spx_column_names[] = {{WAVE, "wave", 0, -1},
                                            {WAVE, "wavelength", 0, -1},
                                            {WAVE, "wavelengths", 0, -1},
                                            {WAVE, "lambda", 0, -1},
                                            {WAVE, "lam", 0, -1},
                                            {WAVE, "loglam", 1, -1},
                                            {WAVE, "loglambda", 1, -1},
                                            {WAVE, "logwave", 1, -1},
                                            {WAVE, "wavevac", 0, SPX_VACUUM},
                                            {WAVE, "wavelengthvac", 0, SPX_VACUUM},
                                            {WAVE, "wavedatavacbary", 0, SPX_VACUUM},
                                            {WAVE, "waveair", 0, SPX_AIR},
                                            {WAVE, "wavelengthair", 0, SPX_AIR},
                                            {WAVE, "wavedataairbary", 0, SPX_AIR},
                                            {WAVE, "awav", 0, SPX_AIR},
                                            {WAVE, "sciwave", 0, -1},
                                            {WAVE, "sciwavl", 0, -1},
                                            {WAVE, "wl", 0, -1},
                                            {WAVE, "wav", 0, -1},
                                            {WAVE, "waveobs", 0, -1},
                                            {WAVE, "obswave", 0, -1},
                                            {FLUX, "flux", 0, -1},
                                            {FLUX, "fluxes", 0, -1},
                                            {FLUX, "fluxreduced", 0, -1},
                                            {FLUX, "fluxcal", 0, -1},
                                            {FLUX, "spectrum", 0, -1},
                                            {FLUX, "spec", 0, -1},
                                            {FLUX, "scidata", 0, -1},
                                            {FLUX, "sciflux", 0, -1},
                                            {FLUX, "flam", 0, -1},
                                            {FLUX, "fluxdensity", 0, -1},
                                            {FLUX, "counts", 0, -1},
                                            {FLUX, "intensity", 0, -1},
                                            {FLUX, "data", 0, -1},
                                            {IVAR, "ivar", 0, -1},
                                            {IVAR, "invvar", 0, -1},
                                            {IVAR, "fluxivar", 0, -1},
                                            {SIGMA, "err", 0, -1},
                                            {SIGMA, "error", 0, -1},
                                            {SIGMA, "errors", 0, -1},
                                            {SIGMA, "errs", 0, -1},
                                            {SIGMA, "errreduced", 0, -1},
                                            {SIGMA, "fluxerr", 0, -1},
                                            {SIGMA, "fluxerror", 0, -1},
                                            {SIGMA, "errdata", 0, -1},
                                            {SIGMA, "scierr", 0, -1},
                                            {SIGMA, "errflux", 0, -1},
                                            {SIGMA, "eflux", 0, -1},
                                            {SIGMA, "fluxsigma", 0, -1},
                                            {SIGMA, "fluxunc", 0, -1},
                                            {SIGMA, "sigma", 0, -1},
                                            {SIGMA, "sig", 0, -1},
                                            {SIGMA, "unc", 0, -1},
                                            {SIGMA, "uncert", 0, -1},
                                            {SIGMA, "uncertainty", 0, -1},
                                            {SIGMA, "noise", 0, -1},
                                            {SIGMA, "stdev", 0, -1},
                                            {VARIANCE, "var", 0, -1},
                                            {VARIANCE, "variance", 0, -1},
                                            {VARIANCE, "fluxvar", 0, -1},
                                            {VARIANCE, "stat", 0, -1},
                                            {VARIANCE, "scivar", 0, -1},
                                            {VARIANCE, "scivariance", 0, -1},
                                            {MASK, "andmask", 0, -1},
                                            {MASK, "mask", 0, -1},
                                            {MASK, "pixmask", 0, -1},
                                            {MASK, "qual", 0, -1},
                                            {MASK, "quality", 0, -1},
                                            {MASK, "qualdata", 0, -1},
                                            {MASK, "dq", 0, -1},
                                            {MASK, "flags", 0, -1},
                                            {MASK, "ormask", 0, -1}};

int spx_column_name_of(const char *text)
{
    char plain[24];
    size_t n = 0;
    for (const char *c = text; *c; c++)
        if (isalnum((unsigned char)*c)) {
            if (n + 1 == sizeof plain)
                return -1;
            plain[n++] = (char)tolower((unsigned char)*c);
        }
    plain[n] = 0;
    for (int i = 0; i < SPX_NCOLUMN_NAME; i++)
        if (strcmp(plain, spx_column_names[i].name) == 0)
            return i;
    return -1;
}

void spx_match_role(spx_column_roles *c, int at, const char *text)
{
    int i = spx_column_name_of(text);
    if (i < 0 || i >= c->name[spx_column_names[i].role])
        return;
    c->at[spx_column_names[i].role] = at;
    c->name[spx_column_names[i].role] = i;
}

const spx_noise_role spx_noise_roles[] = {
    {IVAR, SPX_NOISE_IVAR}, {SIGMA, SPX_NOISE_SIGMA}, {VARIANCE, SPX_NOISE_VARIANCE}};
