/* Provides the check of the medium by strong lines (spectral/star_lines.h). A line tells where the lowest sample near
 * it, with a parabola through its neighbours, is within a third of the way from air to vacuum of one of the two, and
 * 5 % below the highest sample around: blends move some lines, and low resolution many, so that lines are counted. */
#include "spectral/star_lines.h"

#include <math.h>

#include "num/wave.h"

/* Strong lines of stars of all kinds, in air (NIST): H, Ca, Na, Mg, Fe, K. */
static const double strong[] = {3933.66, 3968.47, 4101.74, 4226.73, 4340.47, 4383.55, 4861.33,
                                5172.68, 5183.60, 5269.54, 5328.04, 5889.95, 5895.92, 6122.22,
                                6162.17, 6439.07, 6562.80, 7698.96, 8498.02, 8542.09, 8662.14};

enum { NSTRONG = sizeof strong / sizeof *strong, FEWEST = 4 };
/* Depth of a line that tells; part of the difference of the media by which its place may be off; and part of the lines
 * that may say the contrary. */
#define DEEP 0.05
#define OFF  0.33
#define PART 0.25

/* Wavelength of the lowest sample within low ... high, and its depth below the highest one; NAN: not within. */
static double lowest(size_t n, const double *w, const double *f, double low, double high, double *depth)
{
    size_t first = 0, last = n;
    *depth = 0;
    while (first < last) { /* the first sample from low on */
        const size_t middle = first + (last - first) / 2;
        if (w[middle] < low)
            first = middle + 1;
        else
            last = middle;
    }
    size_t at = first, end = first;
    double top = -INFINITY;
    for (; end < n && w[end] <= high; end++) {
        at = f[end] < f[at] ? end : at;
        top = fmax(top, f[end]);
    }
    if (at <= first || at + 1 >= end || !(top > 0) || isnan(f[at]))
        return NAN;
    *depth = 1 - f[at] / top;
    const double a = f[at - 1] - f[at], b = f[at + 1] - f[at], step = 0.5 * (w[at + 1] - w[at - 1]);
    return w[at] + (a + b > 0 ? 0.5 * step * (a - b) / (a + b) : 0);
}

spx_star_medium spx_star_lines_medium(size_t n, const double *wavelength, const double *flux)
{
    spx_star_medium found = {0};
    for (size_t i = 0; i < NSTRONG; i++) {
        const double air = strong[i], more = spx_air_to_vacuum(air) - air;
        double depth;
        const double place = (lowest(n, wavelength, flux, air - more, air + 2 * more, &depth) - air) / more;
        if (!(depth > DEEP))
            continue;
        found.air += fabs(place) < OFF;
        found.vacuum += fabs(place - 1) < OFF;
    }
    return found;
}

int spx_star_medium_wrong(const spx_star_medium *lines, int air)
{
    const size_t own = air ? lines->air : lines->vacuum, other = air ? lines->vacuum : lines->air;
    return other >= FEWEST && (double)own <= PART * (double)other;
}
