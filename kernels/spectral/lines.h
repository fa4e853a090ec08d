/* Provides lines at known wavelengths, of the night sky and of calibration lamps: what simulated exposures are made of,
 * and what wavelengths are measured against.
 *
 * Sky: atomic lines (NIST Atomic Spectra Database, 0.01 Angstrom), and the OH Meinel bands from the molecule's
 * constants, whose lines are at their observed places to 0.1 Angstrom. Lamps: NIST, each with its error. All in vacuum.
 */
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
    SPX_LAMP_HE = 1 << 6,
    SPX_LAMP_ZN = 1 << 7,
    SPX_LAMP_ALL = (1 << 6) - 1, /* Hg, Cd, Ne, Ar, Kr, Xe: those of simulated arcs, unless others are asked for */
    SPX_LAMP_EVERY = (1 << 8) - 1
};

enum { SPX_NLAMP = 8 };

/* Emitter of a line of the night sky. */
typedef enum { SPX_SKY_LINE_OH, SPX_SKY_LINE_OI, SPX_SKY_LINE_NA, SPX_SKY_LINE_REST } spx_sky_source;

typedef struct {
    double wavelength; /* vacuum, Angstrom */
    double strength;   /* sky: Rayleigh, of an average dark night; lamps: of their brightest line, rounded from what
                          such lamps show (He, Zn: NIST intensities) */
    int source;        /* spx_sky_source; lamps: number of the gas, 0 ... SPX_NLAMP-1 */
} spx_line;

/* Bit of a gas by its symbol, "Hg" or "hg"; 0: no such lamp. */
unsigned spx_lamp_of(const char *symbol, size_t length);
/* Symbol of gas 0 ... SPX_NLAMP-1. */
const char *spx_lamp_symbol(size_t gas);

/* Lines of the night sky, 3000 to 11000 Angstrom, in no order; free with spx_free(). SPX_EIO: memory. */
spx_status spx_sky_lines(spx_line **line, size_t *n, spx_err *e) SPX_NODISCARD;
/* Bright lines of lamps (bits), gas by gas: those of simulated arcs. */
spx_status spx_lamp_lines(unsigned lamps, spx_line **line, size_t *n, spx_err *e) SPX_NODISCARD;

/* ---- line lists of arcs ---- */

/* What a line is good for. */
enum {
    SPX_ARC_BRIGHT = 1,  /* seen in every arc of its lamp */
    SPX_ARC_VISIBLE = 2, /* fainter */
    SPX_ARC_FAINT = 3    /* seldom seen, or not known to 0.02 Angstrom: a name for light that is found */
};

typedef struct {
    double wavelength; /* vacuum, Angstrom */
    double error;      /* of the wavelength; 0: not known */
    double intensity;  /* relative to other lines of the list; lamps differ; 0: not known */
    int quality;       /* SPX_ARC_BRIGHT ... SPX_ARC_FAINT */
    int ion;           /* 1: neutral, 2: singly ionised ...; 0: not known */
    char element[8];   /* "Ne" */
} spx_arc_line;

/* All known lines of lamps (bits), 3000 to 11000 Angstrom, by wavelength, blends left in; free with spx_free(). */
spx_status spx_arc_lines(unsigned lamps, spx_arc_line **line, size_t *n, spx_err *e) SPX_NODISCARD;
/* Order by wavelength, for qsort(). */
int spx_arc_order(const void *a, const void *b);

/* Lines of a list that agree with known ones to 0.1 Angstrom. */
typedef struct {
    size_t compared; /* those of gases that are known here, or of others */
    size_t vacuum;   /* as they are */
    size_t air;      /* only if the list is in air */
    size_t twice;    /* only if it was in vacuum and has been converted as if it had been in air */
} spx_arc_agreement;

/* Compares a list with spx_arc_lines(): is it in vacuum? Each line with those of its element, or, strange: lines of
 * elements that are not known here with those of any: a list of lamps with names of its own agrees in most, others by
 * chance in some per cent. */
spx_status spx_arc_medium(size_t n, const spx_arc_line *line, int strange, spx_arc_agreement *found,
                          spx_err *e) SPX_NODISCARD;

#endif
