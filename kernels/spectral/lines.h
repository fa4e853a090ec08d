/* Provides lines at known wavelengths, of the night sky and of calibration lamps: what simulated exposures are made of,
 * and what wavelengths are measured against.
 *
 * Sky: atomic lines (NIST Atomic Spectra Database, 0.01 Angstrom), and the OH Meinel bands from the molecule's
 * constants, whose lines are at their observed places to 0.1 Angstrom. Lamps: NIST, 0.001 Angstrom. All in vacuum. */
#ifndef SPX_SPECTRAL_LINES_H
#define SPX_SPECTRAL_LINES_H

#include <stddef.h>

#include "base/err.h"

/* Gases of arc lamps, bits. */
enum {
    SPX_LAMP_HG = 1 << 0,
    SPX_LAMP_CD = 1 << 1,
    SPX_LAMP_NE = 1 << 2,
    SPX_LAMP_AR = 1 << 3,
    SPX_LAMP_KR = 1 << 4,
    SPX_LAMP_XE = 1 << 5,
    SPX_LAMP_ALL = (1 << 6) - 1
};

enum { SPX_NLAMP = 6 };

/* Emitter of a line of the night sky. */
typedef enum { SPX_SKY_LINE_OH, SPX_SKY_LINE_OI, SPX_SKY_LINE_NA, SPX_SKY_LINE_REST } spx_sky_source;

typedef struct {
    double wavelength; /* vacuum, Angstrom */
    double strength;   /* sky: Rayleigh, of an average dark night; lamps: of their brightest line, rounded from what
                          such lamps show */
    int source;        /* spx_sky_source; lamps: number of the gas, 0 ... SPX_NLAMP-1 */
} spx_line;

/* Bit of a gas by its symbol, "Hg" or "hg"; 0: no such lamp. */
unsigned spx_lamp_of(const char *symbol, size_t length);
/* Symbol of gas 0 ... SPX_NLAMP-1. */
const char *spx_lamp_symbol(size_t gas);

/* Lines of the night sky, 3000 to 11000 Angstrom, in no order; free with spx_free(). SPX_EIO: memory. */
spx_status spx_sky_lines(spx_line **line, size_t *n, spx_err *e) SPX_NODISCARD;
/* Lines of lamps (bits), gas by gas. */
spx_status spx_lamp_lines(unsigned lamps, spx_line **line, size_t *n, spx_err *e) SPX_NODISCARD;

#endif
