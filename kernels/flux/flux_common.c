/* Provides what backends of stage `flux` share (flux/flux.h). */
#include <math.h>

#include "calib/series.h"
#include "flux/flux.h"
#include "flux/flux_math.h"

const double spx_flux_bands[][2] = {{6270, 6330}, {6865, 6945}, {7160, 7340}, {7590, 7710},
                                    {8130, 8350}, {8940, 9240}, {9300, 9700}};
const size_t spx_flux_nband = sizeof spx_flux_bands / sizeof *spx_flux_bands;

void spx_flux_options_init(spx_flux_options *o)
{
    *o = (spx_flux_options){.smooth_band = 1e-2, .clip = 6, .passes = 6, .nthreads = 1};
}

spx_status spx_flux_check(const spx_flux *f, size_t nspec, const spx_arm *arm, spx_err *e)
{
    if (nspec == 0 || arm->resolution == NULL)
        return spx_fail_remedy(e, SPX_EINPUT, "extract it with specx-extract",
                               "the frame has no resolution matrices, which flux calibration changes");
    if (arm->ndiag % 2 == 0 || arm->ndiag > arm->nwave)
        return spx_fail(e, SPX_EINPUT, "resolution matrices of %zu diagonals for %zu bins: want an odd number, fewer",
                        arm->ndiag, arm->nwave);
    if (arm->nwave != f->nwave)
        return spx_fail(e, SPX_EINPUT, "the frame has %zu wavelengths, the response %zu: give frames of one camera",
                        arm->nwave, f->nwave);
    for (size_t k = 0; k < f->nwave; k++)
        if (!(fabs(arm->wavelength[k] - f->wavelength[k]) < 1e-6))
            return spx_fail(e, SPX_EINPUT,
                            "bin %zu is at %.6f Angstrom in the frame, at %.6f in the response: give frames of one "
                            "camera, extracted alike",
                            k, arm->wavelength[k], f->wavelength[k]);
    return SPX_OK;
}

void spx_flux_on_bins(size_t nin, const double *win, const double *tin, size_t n, const double *wavelength, double *t)
{
    size_t i = 0;
    for (size_t k = 0; k < n; k++) {
        const double w = wavelength[k];
        t[k] = 0;
        while (i + 2 < nin && win[i + 1] <= w)
            i++;
        double q = (w - win[i]) / (win[i + 1] - win[i]);
        if (fabs(q) < 1e-6 || fabs(q - 1) < 1e-6) { /* the same bin */
            t[k] = tin[q < 0.5 ? i : i + 1];
            continue;
        }
        if (!(q > 0 && q < 1))
            continue;
        size_t first = i < 3 ? 0 : i - 3;
        first = first > nin - 8 ? nin - 8 : first;
        int known = 1;
        for (size_t j = 0; j < 8; j++)
            known = known && tin[first + j] > 0;
        if (known)
            t[k] = spx_interpolate8(nin, tin, i, q);
    }
}

double spx_flux_factor(size_t n, const double *wavelength, const double *t, double lo, double hi, double nanomaggies)
{
    const double c = 2.99792458e18, maggy = 3.631e-29 * 1e17; /* Angstrom/s; of a nanomaggy, in units of the result */
    double sum = 0, norm = 0, covered = 0;
    for (size_t k = 0; k < n; k++) {
        const double w = wavelength[k];
        const double step =
            ((k + 1 < n ? wavelength[k + 1] : w) - (k > 0 ? wavelength[k - 1] : w)) / (k > 0 && k + 1 < n ? 2 : 1);
        if (!(w >= lo && w <= hi && t[k] > 0))
            continue;
        sum += t[k] * w * step;
        norm += step / w;
        covered += step;
    }
    if (!(covered >= 0.9 * (hi - lo)) || !(sum > 0) || !(nanomaggies > 0))
        return 0;
    const double factor = nanomaggies * maggy * c * norm / sum;
    return factor > 0 && isfinite(factor) ? factor : 0;
}

void spx_flux_end_rows(size_t n, size_t ndiag, const double *r, double *scale)
{
    for (size_t i = 0; i < 2 * (ndiag / 2); i++)
        scale[i] = spx_flux_end_scale(n, ndiag, r, i);
}
