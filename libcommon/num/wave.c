/* Provides the conversion of wavelengths between vacuum and air (num/wave.h). */
#include "num/wave.h"

#include <math.h>

static double refraction(double vacuum)
{
    double s2 = 1e8 / (vacuum * vacuum);
    return 1 + 0.05792105 / (238.0185 - s2) + 0.00167917 / (57.362 - s2);
}

double spx_vacuum_to_air(double vacuum)
{
    return vacuum > SPX_AIR_MIN ? vacuum / refraction(vacuum) : vacuum;
}

double spx_air_to_vacuum(double air)
{
    /* fixed-point iteration: n changes by 1e-8 an Angstrom or less, so that each round gains five digits or more */
    double vacuum = air * refraction(air > SPX_AIR_MIN ? air : SPX_AIR_MIN);
    if (!(vacuum > SPX_AIR_MIN))
        return air;
    for (int i = 0; i < 4; i++)
        vacuum = air * refraction(vacuum);
    return vacuum;
}

void spx_wave_scale(int logarithmic, double start, double step, size_t n, double *out)
{
    for (size_t k = 0; k < n; k++) {
        const double at = start + step * (double)k;
        out[k] = logarithmic ? pow(10.0, at) : at;
    }
}
