/* any_library SEED NPAR grid|holes|scattered LIBRARY SPECTRA [MISFIT [SN [WORD...]]]: a library of NPAR parameters, and
 * six stars of the same formula at parameters between its own, for tests of rvs-template and rvs-fit on libraries of
 * any kind. Names, ranges and nodes of the parameters are random; some are such that ln flux depends on their
 * logarithm. holes: some of the nodes inside the grid are missing; scattered: no grid at all. Stars are seen through an
 * LSF of FWHM 1.6 Angstrom, signal-to-noise ratio SN, 100 by itself. With MISFIT each star has lines of its own, as
 * real stars have for any library: optical depths off by a factor exp(MISFIT gauss), and centres by 0.1 MISFIT gauss
 * Angstrom; strengths: the centres are right. formula: all stars share another curve of growth, 1/(1 + tau) for
 * exp(-tau) (Minnaert 1935, with a line's deepest flux at 0), and Lorentz wings, a third of each line, besides what
 * MISFIT says of strengths and centres. few: ten lines, deeper by four, in place of forty. wide: five times the range
 * of wavelengths and as many lines, 5020 to 5980 Angstrom. exposures: the spectra are six exposures of the first star.
 *
 * Standard output: names of the parameters that are to be mapped, separated by commas, or none; the columns VRAD and
 * NAME of rvs-fit, with commas; how far off each may be beside its error, 0.02 of a range; then the truth, a line a
 * star. Exit status 0, or 1 with a message. */
#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../kernels/random.h"
#include "base/mem.h"
#include "h5/attr.h"
#include "h5/write.h"
#include "products/rvfit.h"
#include "products/spectra_h5.h"
#include "products/templates.h"

enum { WIDE = 5, NWAVE = 2001, NLINE = 40, NSTAR = 6, MOST_NODES = 30, MOST_TEMP = 1024, NAME = 32 };
static const double WAVE0 = 5000, STEP = 0.1, PIXEL = 0.4, FWHM = 1.6, C_KMS = 299792.458;

typedef struct {
    size_t npar, ntemp;
    char name[SPX_MAX_PAR][NAME];
    int mapped[SPX_MAX_PAR];
    double lo[SPX_MAX_PAR], hi[SPX_MAX_PAR]; /* of what ln flux depends on */
    size_t n[SPX_MAX_PAR];
    double node[SPX_MAX_PAR][MOST_NODES]; /* in 0 ... 1 */
    double u[MOST_TEMP][SPX_MAX_PAR];     /* each template's place in 0 ... 1 */
    size_t nwave, nline;
    double centre[WIDE * NLINE], depth[WIDE * NLINE], width[WIDE * NLINE], slope[WIDE * NLINE][SPX_MAX_PAR];
    int other; /* 1: lines of another formula */
} library;

/* What of a star's lines is not as in the library. */
typedef struct {
    double misfit;
    int strengths, formula; /* 1: strengths alone; lines of another formula */
    int few, wide, exposures;
} difference;

static double between(double lo, double hi)
{
    return lo + (hi - lo) * uniform();
}

/* Parameter p from its place. */
static double value(const library *l, size_t p, double u)
{
    double v = l->lo[p] + u * (l->hi[p] - l->lo[p]);
    return l->mapped[p] ? pow(10, v) : v;
}

static double flux_at(const library *l, const double *u, double wave)
{
    double tau = 0;
    for (size_t k = 0; k < l->nline; k++) {
        double z = (wave - l->centre[k]) / l->width[k], a = 0;
        if (fabs(z) > (l->other ? 60 : 6))
            continue;
        for (size_t p = 0; p < l->npar; p++)
            a += l->slope[k][p] * (u[p] - 0.5);
        const double wings = l->other ? 1.0 / 3 : 0;
        tau += l->depth[k] * exp(a) * ((1 - wings) * exp(-0.5 * z * z) + wings / (1 + z * z));
    }
    return pow(wave / 5000, -2 + 3 * u[0]) * (l->other ? 1 / (1 + tau) : exp(-tau));
}

static void draw_parameters(library *l, const difference *d)
{
    static const size_t nodes[SPX_MAX_PAR + 1] = {0, 30, 6, 5, 4, 3, 3};
    for (size_t p = 0; p < l->npar; p++) {
        const size_t length = 1 + (size_t)between(0, 12);
        l->name[p][0] = (char)('a' + (int)p); /* they differ */
        for (size_t k = 1; k <= length; k++)
            l->name[p][k] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_"[(size_t)between(0, 63)];
        if (p + 1 == l->npar && uniform() < 0.4)
            strcpy(l->name[p], "vsini"); /* has a column of that name */
        l->mapped[p] = uniform() < 0.4;
        l->lo[p] = l->mapped[p] ? between(-3, 4) : between(-1, 1) * pow(10, between(-2, 5));
        l->hi[p] = l->mapped[p] ? l->lo[p] + between(0.2, 1.5) : l->lo[p] + pow(10, between(-2, 4));
        l->n[p] = nodes[l->npar];
        double at = 0;
        for (size_t k = 0; k < l->n[p]; k++) {
            l->node[p][k] = at;
            at += between(0.6, 1.4);
        }
        for (size_t k = 0; k < l->n[p]; k++)
            l->node[p][k] /= l->node[p][l->n[p] - 1];
    }
    l->nwave = d->wide ? WIDE * (NWAVE - 1) + 1 : NWAVE;
    l->nline = (d->wide ? WIDE : 1) * (d->few ? NLINE / 4 : NLINE);
    for (size_t k = 0; k < l->nline; k++) {
        l->centre[k] = between(WAVE0, WAVE0 + STEP * (double)l->nwave);
        l->depth[k] = between(0.05, 0.8) * (d->few ? 4 : 1);
        l->width[k] = between(0.2, 0.9);
        for (size_t p = 0; p < l->npar; p++)
            l->slope[k][p] = between(-1, 1);
    }
}

static void draw_templates(library *l, const char *kind)
{
    static const size_t scattered[SPX_MAX_PAR + 1] = {0, 24, 60, 150, 250, 300, 200};
    const size_t corners = (size_t)1 << l->npar;
    size_t all = 1;
    for (size_t p = 0; p < l->npar; p++)
        all *= l->n[p];
    all = kind[0] == 's' ? scattered[l->npar] + corners : all;
    for (size_t i = 0; i < all; i++) {
        size_t rest = i, inside = 1;
        for (size_t p = 0; p < l->npar; p++) {
            size_t k = rest % l->n[p];
            rest /= l->n[p];
            inside &= k > 0 && k + 1 < l->n[p];
            l->u[l->ntemp][p] = kind[0] != 's' ? l->node[p][k] : (i < corners ? (double)(i >> p & 1) : uniform());
        }
        l->ntemp += kind[0] != 'h' || !inside || uniform() > 0.1;
    }
}

static spx_status write_library(const library *l, const char *name, spx_err *e)
{
    static double par[MOST_TEMP * SPX_MAX_PAR];
    const size_t nw = l->nwave, dp[2] = {l->ntemp, l->npar}, df[2] = {l->ntemp, nw};
    double *wave = spx_alloc(nw, sizeof *wave, e);
    float *flux = spx_alloc2(l->ntemp, nw, sizeof *flux, e);
    if (wave == NULL || flux == NULL)
        return SPX_EIO;
    for (size_t k = 0; k < nw; k++)
        wave[k] = WAVE0 + STEP * (double)k;
    for (size_t i = 0; i < l->ntemp; i++) {
        for (size_t p = 0; p < l->npar; p++)
            par[i * l->npar + p] = value(l, p, l->u[i][p]);
        for (size_t k = 0; k < nw; k++)
            flux[i * nw + k] = (float)(1e5 * flux_at(l, l->u[i], wave[k]));
    }
    hid_t file = H5Fcreate(name, H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
    spx_status st = file < 0 ? SPX_EIO : spx_h5_group(file, "/library", e);
    if (st == SPX_OK)
        st = spx_h5_write(file, "/library/wavelength", H5T_NATIVE_DOUBLE, 1, &nw, wave, e);
    if (st == SPX_OK)
        st = spx_h5_set_str(file, "/library/wavelength", "medium", "vacuum", e);
    if (st == SPX_OK)
        st = spx_h5_write(file, "/library/params", H5T_NATIVE_DOUBLE, 2, dp, par, e);
    if (st == SPX_OK)
        st = spx_h5_write_strings(file, "/library/parname", NAME, l->npar, l->name[0], e);
    if (st == SPX_OK)
        st = spx_h5_write(file, "/library/flux", H5T_NATIVE_FLOAT, 2, df, flux, e);
    spx_free(wave);
    spx_free(flux);
    return file < 0 || H5Fclose(file) < 0 ? SPX_EIO : st;
}

/* The lines of the library as a star has them. */
static void lines_of_star(const library *l, const difference *d, library *own)
{
    *own = *l;
    own->other = d->formula;
    for (size_t k = 0; k < l->nline && d->misfit > 0; k++) {
        own->depth[k] *= exp(d->misfit * gauss());
        own->centre[k] += d->strengths ? 0 : 0.1 * d->misfit * gauss();
    }
}

/* Pixels of 0.4 Angstrom; photons through the LSF. */
static spx_status write_stars(const library *l, const difference *d, double sn, const char *name, spx_err *e)
{
    static library own;
    spx_spectra s = {.nspec = NSTAR, .narm = 1};
    spx_arm *a = &s.arm[0];
    const double sigma = FWHM / 2.3548200450309493;
    strcpy(a->name, "a");
    const size_t n = a->nwave = (size_t)((STEP * (double)(l->nwave - 1) - 40) / PIXEL + 0.5);
    double *clean = spx_alloc(n, sizeof *clean, e), u[SPX_MAX_PAR], v = 0;
    a->wavelength = spx_alloc(n, sizeof *a->wavelength, e);
    a->flux = spx_alloc2(NSTAR, n, sizeof *a->flux, e);
    a->ivar = spx_alloc2(NSTAR, n, sizeof *a->ivar, e);
    spx_status st = clean && a->wavelength && a->flux && a->ivar ? SPX_OK : SPX_EIO;
    for (size_t i = 0; i < NSTAR && st == SPX_OK; i++) {
        const int again = i > 0 && d->exposures;
        if (!again) {
            v = between(-150, 150);
            lines_of_star(l, d, &own);
        }
        const double beta = v / C_KMS;
        printf("%.6f", v);
        for (size_t p = 0; p < l->npar; p++) {
            u[p] = again ? u[p] : between(0.2, 0.8);
            printf(",%.9g", value(l, p, u[p]));
        }
        puts("");
        for (size_t k = 0; k < n; k++) {
            double w = a->wavelength[k] = WAVE0 + 20 + PIXEL * (double)k, sum = 0, norm = 0;
            for (int j = -80; j <= 80 && !again; j++) {
                double x = w + 0.05 * j, g = exp(-0.5 * pow(0.05 * j / sigma, 2));
                sum += g * x * flux_at(&own, u, x * sqrt((1 - beta) / (1 + beta)));
                norm += g;
            }
            clean[k] = again ? clean[k] : sum / norm / w;
            a->flux[i * n + k] = clean[k] + gauss() / sn;
            a->ivar[i * n + k] = sn * sn;
        }
    }
    spx_free(clean);
    hid_t file = H5Fcreate(name, H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
    if (st == SPX_OK)
        st = file < 0 ? SPX_EIO : spx_spectra_write(file, &s, 8, e);
    spx_spectra_free(&s);
    return file < 0 || H5Fclose(file) < 0 ? SPX_EIO : st;
}

int main(int argc, char **argv)
{
    static library l;
    const long npar = argc >= 6 ? strtol(argv[2], NULL, 10) : 0;
    if (npar < 1 || npar > SPX_MAX_PAR || strchr("ghs", argv[3][0]) == NULL) {
        puts("usage: any_library SEED NPAR grid|holes|scattered LIBRARY SPECTRA [MISFIT [SN [WORD...]]]");
        return 1;
    }
    spx_err e = {0};
    difference d = {.misfit = argc >= 7 ? strtod(argv[6], NULL) : 0};
    for (int k = 8; k < argc; k++) {
        d.strengths |= strcmp(argv[k], "strengths") == 0;
        d.formula |= strcmp(argv[k], "formula") == 0;
        d.few |= strcmp(argv[k], "few") == 0;
        d.wide |= strcmp(argv[k], "wide") == 0;
        d.exposures |= strcmp(argv[k], "exposures") == 0;
    }
    l.npar = (size_t)npar;
    random_start(strtoull(argv[1], NULL, 10) * 0x9e3779b97f4a7c15u + 88172645463325252u);
    for (int i = 0; i < 8; i++)
        (void)uniform();
    draw_parameters(&l, &d);
    draw_templates(&l, argv[3]);
    const char *comma = "";
    for (size_t p = 0; p < l.npar; p++)
        if (l.mapped[p]) {
            printf("%s%s", comma, l.name[p]);
            comma = ",";
        }
    printf("%s\nVRAD", *comma ? "" : "none");
    for (size_t p = 0; p < l.npar; p++) {
        printf(strcmp(l.name[p], "vsini") == 0 ? ",PAR_" : ",");
        for (const char *c = l.name[p]; *c; c++)
            putchar(toupper((unsigned char)*c));
    }
    printf("\n0.5");
    for (size_t p = 0; p < l.npar; p++)
        printf(",%.9g", 0.02 * (value(&l, p, 1) - value(&l, p, 0)));
    puts("");
    spx_status st = write_library(&l, argv[4], &e);
    if (st == SPX_OK)
        st = write_stars(&l, &d, argc >= 8 ? strtod(argv[7], NULL) : 100, argv[5], &e);
    if (st != SPX_OK)
        printf("any_library: %s\n", spx_err_text(&e));
    return st != SPX_OK;
}
