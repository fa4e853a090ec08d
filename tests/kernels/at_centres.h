/* Provides the expected result of an extraction: a spectrum at the centres of bins. */
#ifndef AT_CENTRES_H
#define AT_CENTRES_H

#include <math.h>
#include <stddef.h>
#include <string.h>

/* Points of the interpolation. */
enum { CENTRES_POINTS = 12 };

/* Spectrum flux[n] (per Angstrom) on fine wavelengths [n] -> out[nbin] (per Angstrom) at first, first + step, ...
 *
 * Column j of the extraction's model is the spot of the centre of bin j, so the resolution matrix acts on a spectrum
 * that is sampled there. Each fine sample, with the width of its interval, is shared out to the centres around by
 * interpolation (Lagrange): that keeps the image of a line that is not resolved. With fine wavelengths on the centres
 * it changes nothing. */
static inline void at_centres(size_t n, const double *wavelength, const double *flux, double first, double step,
                              size_t nbin, double *out)
{
    memset(out, 0, nbin * sizeof *out);
    for (size_t i = 1; i + 1 < n; i++) {
        const double width = 0.5 * (wavelength[i + 1] - wavelength[i - 1]), light = flux[i] * width / step;
        const double at = (wavelength[i] - first) / step, base = floor(at + 1e-9), x = at - base;
        for (int k = 1 - CENTRES_POINTS / 2; k <= CENTRES_POINTS / 2; k++) {
            const double j = base + k;
            double weight = 1.0;
            for (int q = 1 - CENTRES_POINTS / 2; q <= CENTRES_POINTS / 2; q++)
                weight *= q == k ? 1.0 : (x - q) / (double)(k - q);
            if (j >= 0 && j < (double)nbin)
                out[(size_t)j] += light * weight;
        }
    }
}

#endif
