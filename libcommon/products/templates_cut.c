/* Cuts a setup to the pixels that an arm needs (products/templates_cut.h). */
#include "products/templates_cut.h"

#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "num/wave.h"

enum { MARGIN = 16 }; /* pixels beyond which the end of a spline has no effect: 0.268^16 is 7e-10 */

/* Copies columns first ... first+n-1 of from[rows][stride], elements of `size` bytes. */
static void *columns(const void *from, size_t rows, size_t stride, size_t first, size_t n, size_t size, spx_err *e)
{
    char *to = spx_alloc2(rows, n, size, e);
    for (size_t i = 0; to != NULL && i < rows; i++)
        memcpy(to + i * n * size, (const char *)from + (i * stride + first) * size, n * size);
    return to;
}

spx_status spx_setup_cut(const spx_setup *s, const spx_arm *arm, double vmin, double vmax, double vsini, spx_setup *out,
                         spx_err *e)
{
    double end[2] = {arm->wavelength[0], arm->wavelength[arm->nwave - 1]};
    const double v[2] = {vmax, vmin}, last = (double)s->nwave; /* velocities of the bluest and reddest pixel */
    memset(out, 0, sizeof *out);
    for (int i = 0; i < 2; i++) {
        if (arm->medium != s->medium)
            end[i] = s->medium == SPX_AIR ? spx_vacuum_to_air(end[i]) : spx_air_to_vacuum(end[i]);
        end[i] = (log(end[i]) - atanh(v[i] / SPX_C_KMS) - s->lnwave0) / s->dlnwave;
        if (!(end[i] > -1) || !(end[i] < last)) /* not covered: the user of the setup reports it */
            return SPX_OK;
        end[i] += (i ? 1 : -1) * (vsini / SPX_C_KMS / s->dlnwave + MARGIN);
    }
    if (!(end[0] < end[1]) || !(2 * (end[1] - end[0]) < last))
        return SPX_OK;
    const size_t first = end[0] > 0 ? (size_t)end[0] : 0, n = (size_t)fmin(ceil(end[1]) + 1, last) - first;
    spx_setup cut = *s;
    spx_status st = SPX_OK;
    cut.lnwave0 += (double)first * s->dlnwave;
    cut.nwave = n;
    cut.lnflux = NULL;
    cut.pca.mean = NULL;
    cut.pca.comp = NULL;
    if (s->lnflux != NULL && (cut.lnflux = columns(s->lnflux, s->ntemp, s->nwave, first, n, sizeof(float), e)) == NULL)
        st = SPX_EIO;
    if (s->pca.mean != NULL && (cut.pca.mean = columns(s->pca.mean, 1, s->nwave, first, n, sizeof(double), e)) == NULL)
        st = SPX_EIO;
    if (s->pca.comp != NULL &&
        (cut.pca.comp = columns(s->pca.comp, s->pca.ncomp, s->nwave, first, n, sizeof(float), e)) == NULL)
        st = SPX_EIO;
    *out = cut;
    if (st != SPX_OK)
        spx_setup_cut_free(out);
    return st;
}

void spx_setup_cut_free(spx_setup *cut)
{
    spx_free(cut->lnflux);
    spx_free(cut->pca.mean);
    spx_free(cut->pca.comp);
    memset(cut, 0, sizeof *cut);
}

spx_status spx_setups_cut(size_t narm, const spx_arm *arm, double vmin, double vmax, double vsini,
                          const spx_setup **setup, spx_setup *cut, spx_err *e)
{
    const spx_setup *whole[SPX_MAX_ARM];
    spx_status st = SPX_OK;
    memcpy(whole, setup, narm * sizeof *whole);
    for (size_t a = 0; a < narm && st == SPX_OK; a++) {
        size_t sharing = 0;
        for (size_t b = 0; b < narm; b++)
            sharing += whole[b] == whole[a];
        if (whole[a] == NULL || sharing < 2)
            continue;
        st = spx_setup_cut(whole[a], &arm[a], vmin, vmax, vsini, &cut[a], e);
        setup[a] = cut[a].nwave > 0 ? &cut[a] : whole[a];
    }
    return st;
}
