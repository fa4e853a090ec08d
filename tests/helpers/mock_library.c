/* mock_library FILE [WMIN WMAX [TMIN TMAX [T G F A]]]: the made-up star library of the shared test data
 * (mock_library.h) as a library block: samples from WMIN up to WMAX Angstrom, temperatures from TMIN to TMAX. T, G, F,
 * A: the same formula on a denser grid, so many nodes more between each two of teff, logg, feh, alpha. Exit status 0,
 * or 1 with a message. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "h5/attr.h"
#include "h5/write.h"
#include "mock_library.h"

typedef struct {
    double wmin, wmax, tmin, tmax;
    long more[MOCK_NPAR];
} selection;

/* Nodes of an axis, with `more` between each two; returns how many. */
static size_t refine(size_t n, const double *node, long more, double *out)
{
    size_t m = 0;
    for (size_t i = 0; i + 1 < n; i++)
        for (long k = 0; k <= more; k++)
            out[m++] = node[i] + (node[i + 1] - node[i]) * (double)k / (double)(more + 1);
    out[m++] = node[n - 1];
    return m;
}

enum { MAX_MORE = 7, MAX_NODE = (MAX_MORE + 1) * 11 };

/* All parameters, params[*n][MOCK_NPAR], to be freed; NULL: no memory. */
static double *make_params(const selection *s, size_t *n)
{
    double teff[MAX_NODE], logg[MAX_NODE], feh[MAX_NODE], alpha[MAX_NODE];
    size_t nt = refine(MOCK_NTEFF, mock_teff, s->more[0], teff), ng = refine(MOCK_NLOGG, mock_logg, s->more[1], logg);
    size_t nf = refine(MOCK_NFEH, mock_feh, s->more[2], feh), na = refine(MOCK_NALPHA, mock_alpha, s->more[3], alpha);
    double *p = malloc(nt * ng * nf * na * MOCK_NPAR * sizeof *p);
    *n = 0;
    for (size_t i = 0; i < nt * ng * nf * na && p != NULL; i++) {
        double t = teff[i / (ng * nf * na)];
        if (t < s->tmin || t > s->tmax)
            continue;
        memcpy(p + *n * MOCK_NPAR, (double[]){t, logg[i / (nf * na) % ng], feh[i / na % nf], alpha[i % na]},
               MOCK_NPAR * sizeof *p);
        ++*n;
    }
    return p;
}

static spx_status write_library(hid_t file, const mock_library *m, const selection *s, const double *params, size_t nt,
                                float *flux, spx_err *e)
{
    static char names[MOCK_NPAR][32] = {"teff", "logg", "feh", "alpha"};
    size_t first = 0, n = 0, npar = MOCK_NPAR;
    for (size_t k = 0; k < MOCK_NWAVE; k++) {
        first += m->wave[k] < s->wmin;
        n += m->wave[k] >= s->wmin && m->wave[k] <= s->wmax;
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
    selection s = {.wmax = 1e9, .tmax = 1e9};
    double *range[] = {&s.wmin, &s.wmax, &s.tmin, &s.tmax}, *params = NULL;
    int ok = argc == 2 || argc == 4 || argc == 6 || argc == 10;
    for (int i = 2; i < argc && i < 6; i++)
        *range[i - 2] = strtod(argv[i], NULL);
    for (int i = 6; i < argc && ok; i++) {
        s.more[i - 6] = strtol(argv[i], NULL, 10);
        ok = s.more[i - 6] >= 0 && s.more[i - 6] <= MAX_MORE;
    }
    if (!ok) {
        puts("usage: mock_library FILE [WMIN WMAX [TMIN TMAX [T G F A]]]");
        return 1;
    }
    size_t n = 0;
    mock_library *m = mock_library_make();
    float *flux = malloc(MOCK_NWAVE * sizeof *flux);
    hid_t file = H5Fcreate(argv[1], H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
    spx_err e = {0};
    spx_status st = SPX_EIO;
    params = make_params(&s, &n);
    if (m != NULL && flux != NULL && params != NULL && file >= 0)
        st = write_library(file, m, &s, params, n, flux, &e);
    if (st != SPX_OK)
        printf("mock_library: %s\n", spx_err_text(&e));
    free(m);
    free(flux);
    free(params);
    return file < 0 || H5Fclose(file) < 0 || st != SPX_OK;
}
