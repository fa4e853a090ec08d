/* mock_library FILE [WMIN WMAX [TMIN TMAX]]: the made-up star library of the shared test data (mock_library.h) as a
 * library block: samples from WMIN up to WMAX Angstrom, temperatures from TMIN to TMAX. Exit status 0, or 1 with a
 * message. */
#include <stdio.h>
#include <string.h>

#include "h5/h5io.h"
#include "mock_library.h"

static spx_status write_library(hid_t file, const mock_library *m, const double range[4], float *flux, spx_err *e)
{
    static char names[MOCK_NPAR][32] = {"teff", "logg", "feh", "alpha"};
    double params[MOCK_NTEMP * MOCK_NPAR];
    size_t first = 0, n = 0, nt = 0, npar = MOCK_NPAR;
    for (size_t k = 0; k < MOCK_NWAVE; k++) {
        first += m->wave[k] < range[0];
        n += m->wave[k] >= range[0] && m->wave[k] <= range[1];
    }
    for (int i = 0; i < MOCK_NTEMP; i++) {
        mock_library_params(i, params + nt * MOCK_NPAR);
        nt += params[nt * MOCK_NPAR] >= range[2] && params[nt * MOCK_NPAR] <= range[3];
    }
    size_t dp[2] = {nt, MOCK_NPAR}, df[2] = {nt, n};
    spx_status st = spx_h5_group(file, "/library", e);
    if (st == SPX_OK)
        st = spx_h5_write(file, "/library/wavelength", H5T_NATIVE_DOUBLE, 1, &n, m->wave + first, e);
    if (st == SPX_OK)
        st = spx_h5_set_str(file, "/library/wavelength", "medium", "vacuum", e);
    if (st == SPX_OK)
        st = spx_h5_write(file, "/library/params", H5T_NATIVE_DOUBLE, 2, dp, params, e);
    if (st == SPX_OK)
        st = spx_h5_write_strings(file, "/library/parname", sizeof names[0], npar, names[0], e);
    if (st == SPX_OK)
        st = spx_h5_create(file, "/library/flux", H5T_NATIVE_FLOAT, 2, df, e);
    for (size_t i = 0; i < nt && st == SPX_OK; i++) {
        mock_library_flux(m, params + i * MOCK_NPAR, flux);
        st = spx_h5_write_rows(file, "/library/flux", H5T_NATIVE_FLOAT, i, 1, flux + first, e);
    }
    return st;
}

int main(int argc, char **argv)
{
    double range[4] = {0, 1e9, 0, 1e9};
    if (argc != 2 && argc != 4 && argc != 6) {
        puts("usage: mock_library FILE [WMIN WMAX [TMIN TMAX]]");
        return 1;
    }
    for (int i = 2; i < argc; i++)
        range[i - 2] = strtod(argv[i], NULL);
    mock_library *m = mock_library_make();
    float *flux = malloc(MOCK_NWAVE * sizeof *flux);
    hid_t file = H5Fcreate(argv[1], H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
    spx_err e = {0};
    spx_status st = SPX_EIO;
    if (m != NULL && flux != NULL && file >= 0)
        st = write_library(file, m, range, flux, &e);
    if (st != SPX_OK)
        printf("mock_library: %s\n", e.msg);
    free(m);
    free(flux);
    return file < 0 || H5Fclose(file) < 0 || st != SPX_OK;
}
