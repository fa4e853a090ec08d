/* Provides the block `flat`: throughput of the fibres of a camera, and its application to frames (products/flat.h). */
#include "products/flat.h"

#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "h5/table.h"

void spx_flat_free(spx_flat *flat)
{
    if (flat == NULL)
        return;
    spx_free(flat->wavelength);
    spx_free(flat->flat);
    spx_free(flat->ivar);
    spx_free(flat->mask);
    spx_free(flat->lamp);
    spx_free(flat->mean);
    spx_free(flat->chi2);
    spx_free(flat->knot);
    spx_free(flat->fiber);
    spx_table_free(flat->fibermap);
    memset(flat, 0, sizeof *flat);
}

static spx_status match_grid(const spx_flat *flat, const spx_frame *f, spx_err *e)
{
    static const char again[] = "extract flat and frame with the same --wavelength, without --barycentric";
    const spx_arm *a = &f->arm;
    if (a->barycentric)
        return spx_fail_remedy(e, SPX_EINPUT,
                               "extract without --barycentric, or let specx-sky and rvs-fit use its velocities",
                               "the frame's wavelengths are barycentric, and fibres' flats are not");
    if (a->nwave != flat->nwave || a->medium != flat->medium)
        return spx_fail_remedy(e, SPX_EINPUT, again,
                               "the flat has %zu bins, %g to %g Angstrom, the frame %zu, %g to %g", flat->nwave,
                               flat->wavelength[0], flat->wavelength[flat->nwave - 1], a->nwave, a->wavelength[0],
                               a->wavelength[a->nwave - 1]);
    for (size_t k = 0; k < a->nwave; k++)
        if (!(fabs(a->wavelength[k] - flat->wavelength[k]) <= 1e-9 * a->wavelength[k]))
            return spx_fail_remedy(e, SPX_EINPUT, again,
                                   "bin %zu of the flat is at %.9g Angstrom, that of the frame at %.9g", k,
                                   flat->wavelength[k], a->wavelength[k]);
    return SPX_OK;
}

spx_status spx_flat_match(const spx_flat *flat, const spx_frame *f, size_t *row, spx_err *e)
{
    if (f->flat_applied)
        return spx_fail_remedy(e, SPX_EINPUT, "leave the flat out", "the frame was divided by a flat field before");
    if (flat->camera[0] != '\0' && f->camera[0] != '\0' && strcmp(flat->camera, f->camera) != 0)
        return spx_fail_remedy(e, SPX_EINPUT, "give the flat of the frame's camera",
                               "the flat is of camera %s, the frame of camera %s", flat->camera, f->camera);
    spx_status st = match_grid(flat, f, e);
    if (st != SPX_OK)
        return st;
    if (flat->fiber == NULL || f->fiber == NULL) {
        for (size_t i = 0; i < f->nspec; i++)
            row[i] = i;
        return f->nspec == flat->nspec
                   ? SPX_OK
                   : spx_fail_remedy(e, SPX_EINPUT, "make both from files with /frame/fiber",
                                     "the flat has %zu fibres, the frame %zu, and not both say which", flat->nspec,
                                     f->nspec);
    }
    for (size_t i = 0; i < f->nspec && st == SPX_OK; i++) {
        size_t at = i < flat->nspec && flat->fiber[i] == f->fiber[i] ? i : 0;
        while (at < flat->nspec && flat->fiber[at] != f->fiber[i])
            at++;
        row[i] = at;
        if (at == flat->nspec)
            st = spx_fail_remedy(e, SPX_EINPUT, "make the flat of all fibres, or extract only those that it has",
                                 "the flat has no fibre %d", f->fiber[i]);
    }
    return st;
}

/* R' = F^-1 R F: element R[j - off, j] times F_j / F_(j - off). */
static void divide_resolution(size_t nwave, size_t ndiag, const double *flat, double *resolution)
{
    for (size_t b = 0; b < ndiag; b++) {
        const long off = (long)(ndiag / 2) - (long)b;
        for (size_t j = 0; j < nwave; j++) {
            const long k = (long)j - off;
            if (k >= 0 && k < (long)nwave)
                resolution[b * nwave + j] *= flat[j] / flat[k];
        }
    }
}

spx_status spx_flat_apply(const spx_flat *flat, spx_frame *f, int nthreads, size_t *nlost, spx_err *e)
{
    spx_arm *a = &f->arm;
    const size_t n = a->nwave;
    size_t lost = 0;
    size_t *row = spx_alloc(f->nspec, sizeof *row, e);
    spx_status st = row != NULL ? spx_flat_match(flat, f, row, e) : SPX_EIO;
    if (st == SPX_OK && a->mask == NULL && (a->mask = spx_alloc2(f->nspec, n, sizeof *a->mask, e)) == NULL)
        st = SPX_EIO;
    if (st == SPX_OK) {
#pragma omp parallel for num_threads(nthreads > 0 ? nthreads : 1) reduction(+ : lost)
        for (size_t i = 0; i < f->nspec; i++) {
            const double *t = flat->flat + row[i] * n, *w = flat->ivar + row[i] * n;
            const uint32_t *bits = flat->mask + row[i] * n;
            double *d = a->flux + i * n, *ivar = a->ivar + i * n;
            for (size_t k = 0; k < n; k++) {
                const double value = d[k] / t[k];
                const int known = w[k] > 0;
                lost += !known && ivar[k] > 0;
                /* 1/(1/(w F^2) + (D/F)^2 var(F)/F^2), without a division by w, which may be 0 */
                const double own = ivar[k] * t[k] * t[k];
                ivar[k] = known ? own / (1 + own * value * value / (w[k] * t[k] * t[k])) : 0;
                d[k] = value;
                a->mask[i * n + k] |= bits[k];
            }
            if (flat->native && a->resolution != NULL)
                divide_resolution(n, a->ndiag, t, a->resolution + i * a->ndiag * n);
        }
    }
    f->flat_applied |= st == SPX_OK;
    *nlost = lost;
    spx_free(row);
    return st;
}
