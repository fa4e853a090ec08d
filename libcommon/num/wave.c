/* Provides the conversion of wavelengths between vacuum and air (num/wave.h). */
#include "num/wave.h"

#include <ctype.h>
#include <math.h>
#include <string.h>
#include <strings.h>

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

void spx_wave_axis(int logarithmic, double start, double step, size_t n, double *out)
{
    for (size_t k = 0; k < n; k++) {
        const double at = start + step * (double)k;
        out[k] = logarithmic ? pow(10.0, at) : at;
    }
}

double spx_wave_unit(const char *text)
{
    /* whole: the text is the name, and does not only begin with it */
    static const struct {
        const char *name;
        double angstrom;
        int whole;
    } units[] = {{"ang", 1, 0},    {"a", 1, 1},        {"0.1 nm", 1, 1},  {"0.1nm", 1, 1}, {"nm", 10, 1},
                 {"nanom", 10, 0}, {"um", 1e4, 1},     {"mic", 1e4, 0},   {"mm", 1e7, 1},  {"cm", 1e8, 1},
                 {"m", 1e10, 1},   {"meter", 1e10, 1}, {"metre", 1e10, 1}};
    while (isspace((unsigned char)*text))
        text++;
    size_t n = strlen(text);
    while (n > 0 && isspace((unsigned char)text[n - 1]))
        n--;
    for (size_t i = 0; i < sizeof units / sizeof *units && strncmp(text, "M", n) != 0; i++) {
        const size_t length = strlen(units[i].name);
        if (strncasecmp(text, units[i].name, length) == 0 && (n == length || !units[i].whole))
            return units[i].angstrom;
    }
    return 0;
}

int spx_wave_frame(const char *text)
{
    while (isspace((unsigned char)*text))
        text++;
    if (*text == '\0')
        return -1;
    return strncasecmp(text, "topo", 4) == 0                                         ? 0
           : strncasecmp(text, "bary", 4) == 0 || strncasecmp(text, "helio", 5) == 0 ? 1
                                                                                     : -2;
}
