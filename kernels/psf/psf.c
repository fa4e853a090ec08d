#include "psf/psf.h"

#include <math.h>

#include "psf/psf_math.h"

/* More grid points than any spectrograph has pixels along a trace: the step is wrong. */
#define MAX_POINTS 1e6

static int all_on_ccd(const spx_psf *psf, size_t nx, size_t ny, double lambda)
{
    for (size_t f = 0; f < psf->nspec; f++) {
        double x = spx_psf_series_value(&psf->x, f, lambda), y = spx_psf_series_value(&psf->y, f, lambda);
        if (!(x >= -0.5 && y >= -0.5 && x < (double)nx - 0.5 && y < (double)ny - 0.5))
            return 0;
    }
    return 1;
}

spx_status spx_psf_coverage(const spx_psf *psf, size_t nx, size_t ny, double step, double *wmin, double *wmax,
                            spx_err *e)
{
    double lo = fmax(psf->wmin, fmax(psf->x.wmin, psf->y.wmin));
    double hi = fmin(psf->wmax, fmin(psf->x.wmax, psf->y.wmax));
    if (!(step > 0.0 && isfinite(step) && hi >= lo && (hi - lo) / step < MAX_POINTS))
        return spx_fail(e, SPX_EINPUT,
                        "psf: no usable wavelengths between %g and %g Angstrom in steps of %g: give --wavelength", lo,
                        hi, step);
    double first = ceil(lo / step), last = floor(hi / step), best = 0.0, run = 0.0;
    for (double k = first; k <= last; k += 1.0) {
        run = all_on_ccd(psf, nx, ny, k * step) ? run + 1.0 : 0.0;
        if (run > best) {
            best = run;
            *wmin = (k - run + 1.0) * step;
            *wmax = k * step;
        }
    }
    if (!(best > 0.0))
        return spx_fail(e, SPX_EINPUT,
                        "psf: at no wavelength do all traces lie on the CCD of %zu x %zu pixels: image and PSF do not "
                        "belong together, or give --wavelength",
                        nx, ny);
    return SPX_OK;
}
