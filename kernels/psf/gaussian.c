/* Measures widths of spots of any kind, and makes Gaussian ones of them (psf/psf.h). */
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "num/legendre.h"
#include "products/psf_grid.h"
#include "products/psf_index.h"
#include "psf/psf.h"
#include "psf/spot_math.h"

enum {
    NODES = 8, /* wavelengths of a trace that are looked at, */
    TERMS = 4, /* and terms of the series through the widths there */
    ROUNDS = 50
};

/* Variance, pixel^2, of a profile p[n] about `middle`, by moments with a Gaussian weight as wide as the profile, so
 * that far wings do not count: for a Gaussian 1/m = 1/s^2 + 1/w^2 (adaptive moments, Bernstein & Jarvis 2002, AJ 123,
 * 583). Without the pixel's own 1/12; 0: the profile has none. */
static double variance_of(size_t n, const double *p, double middle)
{
    double s2 = 1.0;
    for (int round = 0; round < ROUNDS; round++) {
        double all = 0.0, moment = 0.0;
        for (size_t k = 0; k < n; k++) {
            const double d = (double)k - middle, v = p[k] * exp(-0.5 * d * d / s2);
            all += v;
            moment += v * d * d;
        }
        const double m = moment / all;
        if (!(all > 0.0 && m > 0.0))
            return 0.0;
        /* narrower than its weight: a profile that falls; else the weight grows */
        s2 = m < 0.9 * s2 ? 1.0 / (1.0 / m - 1.0 / s2) : 2.0 * s2;
        if (s2 > (double)(n * n))
            return 0.0;
    }
    return s2 - 1.0 / 12.0;
}

/* Variance of a spot across the trace (way 0) or along it, pixel^2; 0: it has none. profile: scratch. */
static double variance_of_spot(const spx_psf *psf, const double *spot, const spx_spot *at, int way, double *profile)
{
    const size_t nx = (size_t)spx_psf_nx(psf), ny = (size_t)spx_psf_ny(psf), n = way == 0 ? nx : ny;
    memset(profile, 0, n * sizeof *profile);
    for (size_t k = 0; k < nx * ny; k++)
        profile[way == 0 ? k % nx : k / nx] += spot[k];
    return way == 0 ? variance_of(n, profile, psf->hsizex + at->dx) : variance_of(n, profile, psf->hsizey + at->dy);
}

size_t spx_psf_width_work(const spx_psf *psf)
{
    const size_t nx = (size_t)spx_psf_nx(psf), ny = (size_t)spx_psf_ny(psf);
    return spx_psf_spot_work(psf) + nx * ny + nx + ny;
}

double spx_psf_sigma_across(const spx_psf *psf, size_t fibre, double lambda, double *work)
{
    double *spot = work + spx_psf_spot_work(psf);
    spx_spot at;
    if (psf->type != SPX_PSF_SPOTGRID)
        return spx_psf_ghsigx(psf, fibre, lambda);
    if (spx_psf_spot(psf, fibre, lambda, work, spot, &at) != SPX_SPOT_OK)
        return 0.0;
    const double v = variance_of_spot(psf, spot, &at, 0, spot + (size_t)spx_psf_nx(psf) * (size_t)spx_psf_ny(psf));
    return v > 0.0 ? sqrt(v) : 0.0;
}

/* Widths of the spots of a fibre as series over its range, c[2][TERMS]. work: as of spx_psf_spot(), spot[ny][nx], a
 * profile. 0: a spot is none. */
static int widths_of(const spx_psf *psf, size_t fibre, const double *u, const double *weight, double *work,
                     double c[2][TERMS])
{
    const size_t nx = (size_t)spx_psf_nx(psf), ny = (size_t)spx_psf_ny(psf);
    double *spot = work + spx_psf_spot_work(psf), *profile = spot + nx * ny, value[2][NODES];
    const double *range =
        psf->wave_range != NULL ? psf->wave_range + 2 * fibre : (const double[2]){psf->wmin, psf->wmax};
    for (size_t j = 0; j < NODES; j++) {
        const double lambda = range[0] + 0.5 * (u[j] + 1.0) * (range[1] - range[0]);
        spx_spot at;
        if (spx_psf_spot(psf, fibre, lambda, work, spot, &at) != SPX_SPOT_OK)
            return 0;
        for (int way = 0; way < 2; way++) {
            const double v = variance_of_spot(psf, spot, &at, way, profile);
            if (!(v > 0.0))
                return 0;
            value[way][j] = sqrt(v);
        }
    }
    memset(c, 0, 2 * TERMS * sizeof **c);
    for (int way = 0; way < 2; way++)
        spx_legendre_project(NODES, u, weight, value[way], TERMS, c[way]);
    return 1;
}

/* Table of GHSIGX, GHSIGY, GH-0-0, and the tail of `from`, in place of that of *to. */
static spx_status make_table(const spx_psf *from, const double (*c)[2][TERMS], spx_psf *to, spx_err *e)
{
    static const char name[][8] = {"GHSIGX", "GHSIGY", "GH-0-0"};
    const int tail = spx_psf_has_tail(from);
    const size_t n = from->nspec, ndeg = from->ndeg > TERMS ? from->ndeg : TERMS;
    spx_free(to->param);
    spx_free(to->coeff);
    to->npar = tail ? 3 + SPX_PSF_NTAIL : 3;
    to->ndeg = ndeg;
    to->param = spx_alloc(to->npar, sizeof *to->param, e);
    to->coeff = spx_alloc2(to->npar * n, ndeg, sizeof *to->coeff, e);
    if (to->param == NULL || to->coeff == NULL)
        return SPX_EIO;
    for (size_t k = 0; k < 3; k++)
        memcpy(to->param[k], name[k], sizeof *name);
    for (size_t f = 0; f < n; f++) {
        memcpy(to->coeff + f * ndeg, c[f][0], sizeof c[f][0]);
        memcpy(to->coeff + (n + f) * ndeg, c[f][1], sizeof c[f][1]);
        to->coeff[(2 * n + f) * ndeg] = 1.0;
    }
    for (size_t k = 0; k < SPX_PSF_NTAIL && tail; k++) {
        const size_t row = (size_t)from->tail[k];
        memcpy(to->param[3 + k], from->param[row], sizeof *to->param);
        for (size_t f = 0; f < n; f++)
            memcpy(to->coeff + ((3 + k) * n + f) * ndeg, from->coeff + (row * n + f) * from->ndeg,
                   from->ndeg * sizeof *to->coeff);
    }
    return SPX_OK;
}

spx_status spx_psf_gaussians(const spx_psf *from, spx_psf *to, spx_err *e)
{
    const size_t n = from->nspec;
    spx_psf core = *from;
    double u[NODES], weight[NODES];
    spx_psf_drop_tail(&core);
    spx_gauss_legendre(NODES, u, weight);
    double(*c)[2][TERMS] = spx_alloc(n, sizeof *c, e);
    double *work = spx_alloc(spx_psf_width_work(from), sizeof *work, e);
    spx_status st = c != NULL && work != NULL ? spx_psf_copy(from, to, e) : SPX_EIO;
    for (size_t f = 0; f < n && st == SPX_OK; f++)
        if (!widths_of(&core, f, u, weight, work, c[f]))
            st = spx_fail(e, SPX_EINPUT, "psf: the spots of fibre %zu have no width", f);
    if (st == SPX_OK)
        st = make_table(from, (const double(*)[2][TERMS])c, to, e);
    if (st == SPX_OK) {
        to->type = SPX_PSF_GAUSS_HERMITE;
        to->ghdegx = to->ghdegy = to->ghdegx2 = to->ghdegy2 = 0;
        spx_free(to->gh2);
        to->gh2 = NULL;
        spx_psf_grid_free(&to->grid);
        spx_cards_free(&to->header);
        st = spx_psf_index(to, e);
    }
    spx_free(c);
    spx_free(work);
    return st;
}
