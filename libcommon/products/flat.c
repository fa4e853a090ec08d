/* Provides the block `flat`: throughput of the fibres of a camera, and its application to frames (products/flat.h). */
#include "products/flat.h"

#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "h5/table.h"
#include "num/wave.h"

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
    static const char again[] = "extract flat and frame with the same --wavelength";
    const spx_arm *a = &f->arm;
    /* a shift by at most 1e-4 of the wavelength, 40 km/s, is within 2 bins of the ends */
    const double margin = 2.5 * (flat->wavelength[flat->nwave - 1] - flat->wavelength[0]) / (double)flat->nwave;
    if (a->barycentric && flat->native)
        return spx_fail_remedy(e, SPX_EINPUT,
                               "extract the frame without --barycentric, or make the flat without --native",
                               "a flat of single bins cannot be shifted to barycentric wavelengths");
    if (a->barycentric && (f->fibermap == NULL || spx_table_find(f->fibermap, "BARYCENTRIC_VELOCITY") < 0))
        return spx_fail_remedy(e, SPX_EINPUT, "extract it with specx-extract --barycentric",
                               "the frame's wavelengths are barycentric, but no BARYCENTRIC_VELOCITY of its fibermap "
                               "says where its bins are on the ground");
    if (a->barycentric && a->medium == flat->medium && flat->nwave > 1 &&
        a->wavelength[0] > flat->wavelength[0] - margin &&
        a->wavelength[a->nwave - 1] < flat->wavelength[flat->nwave - 1] + margin)
        return SPX_OK;
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

/* The flat of a fibre at the bins of a frame: value, inverse variance and mask. */
typedef struct {
    double *value, *ivar;
    uint32_t *mask;
} at_bins;

/* At barycentric bins, which are at wavelength/factor on the ground: between the two bins around, straight, which is
 * within 1e-5 for splines with knots every 60 Angstrom. The nearest where that is beyond the ends. */
static void shift(const spx_flat *flat, size_t row, double factor, size_t n, const double *wavelength, at_bins *to)
{
    const double *value = flat->flat + row * flat->nwave, *ivar = flat->ivar + row * flat->nwave;
    const uint32_t *mask = flat->mask + row * flat->nwave;
    size_t b = 0;
    for (size_t k = 0; k < n; k++) {
        const double at = wavelength[k] / factor;
        while (b + 2 < flat->nwave && flat->wavelength[b + 1] <= at)
            b++;
        double part = (at - flat->wavelength[b]) / (flat->wavelength[b + 1] - flat->wavelength[b]);
        part = part < 0 ? 0 : part > 1 ? 1 : part;
        to->mask[k] = (part < 1 ? mask[b] : 0) | (part > 0 ? mask[b + 1] : 0);
        const int known = to->mask[k] == 0 && ivar[b] > 0 && ivar[b + 1] > 0;
        to->value[k] = known ? (1 - part) * value[b] + part * value[b + 1] : 1;
        to->ivar[k] = known ? (1 - part) * ivar[b] + part * ivar[b + 1] : 0;
    }
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
    double *velocity = NULL, *shifted = NULL;
    uint32_t *bits_shifted = NULL;
    spx_status st = row != NULL ? spx_flat_match(flat, f, row, e) : SPX_EIO;
    if (st == SPX_OK && a->barycentric &&
        ((velocity = spx_alloc(f->nspec, sizeof *velocity, e)) == NULL ||
         (shifted = spx_alloc2(f->nspec, 2 * n, sizeof *shifted, e)) == NULL ||
         (bits_shifted = spx_alloc2(f->nspec, n, sizeof *bits_shifted, e)) == NULL))
        st = SPX_EIO;
    if (st == SPX_OK && a->barycentric)
        st = spx_table_get_f64(f->fibermap, "BARYCENTRIC_VELOCITY", velocity, e);
    for (size_t i = 0; i < f->nspec && st == SPX_OK && a->barycentric; i++)
        if (!(fabs(velocity[i]) < 100))
            st = spx_fail_remedy(e, SPX_EINPUT, "extract it with specx-extract --barycentric",
                                 "BARYCENTRIC_VELOCITY of row %zu is %g km/s", i, velocity[i]);
    if (st == SPX_OK && a->mask == NULL && (a->mask = spx_alloc2(f->nspec, n, sizeof *a->mask, e)) == NULL)
        st = SPX_EIO;
    if (st == SPX_OK) {
#pragma omp parallel for num_threads(nthreads > 0 ? nthreads : 1) reduction(+ : lost)
        for (size_t i = 0; i < f->nspec; i++) {
            at_bins here = {flat->flat + row[i] * flat->nwave, flat->ivar + row[i] * flat->nwave,
                            flat->mask + row[i] * flat->nwave};
            if (a->barycentric) {
                here = (at_bins){shifted + i * 2 * n, shifted + (i * 2 + 1) * n, bits_shifted + i * n};
                shift(flat, row[i], 1 + velocity[i] / SPX_C_KMS, n, a->wavelength, &here);
            }
            const double *t = here.value, *w = here.ivar;
            const uint32_t *bits = here.mask;
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
    spx_free(velocity);
    spx_free(shifted);
    spx_free(bits_shifted);
    return st;
}
