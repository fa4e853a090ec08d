/* Provides the conversion between wavelengths in vacuum and in standard air (Angstrom). */
#ifndef SPX_WAVE_H
#define SPX_WAVE_H

#include <stddef.h>

#define SPX_C_KMS 299792.458

/* Vacuum wavelength, Angstrom, below which tables give vacuum wavelengths by convention: nothing is converted. */
#define SPX_AIR_MIN 2000.0

/* Ciddor 1996 (Applied Optics 35, 1566), as used for PHOENIX and SDSS: dry air, 15 C, 101325 Pa, 450 ppm CO2,
 *     n - 1 = 0.05792105 / (238.0185 - s^2) + 0.00167917 / (57.362 - s^2),   s = 10^4 / lambda_vacuum,
 * lambda_air = lambda_vacuum / n. */
double spx_vacuum_to_air(double vacuum);

/* Inverse of spx_vacuum_to_air(), by iteration to the last bits. */
double spx_air_to_vacuum(double air);

/* Angstrom in a unit of length as files name it: Angstrom, A, nm, um, micron, mm, cm, m and longer words, in any case
 * (but "M" is none), and "0.1 nm"; 0: it is none of these. Blanks around it do not matter. */
double spx_wave_unit(const char *text);

/* Frame of wavelengths by SPECSYS (FITS standard 4.0, section 8.4.2): 0 topocentric, 1 barycentric or heliocentric (13
 * m/s apart at most), -1 blank, -2 any other word. */
int spx_wave_frame(const char *text);

/* out[n]: start + k step for k = 0 ... n-1, or, logarithmic, 10 to the power of that. */
void spx_wave_axis(int logarithmic, double start, double step, size_t n, double *out);

#endif
