/* Provides calibration lamps: a smooth one, and arcs of several gases. */
#ifndef SPX_SIM_LAMP_H
#define SPX_SIM_LAMP_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

/* Spectrum of the flat lamp, out[nwave] electron/Angstrom: photons of a black body of 3100 K times the throughput of
 * the camera (spx_sim_throughput()), `level` where it is brightest in the range of the arm, or of `wavelength` for an
 * arm that is not built in. */
void spx_sim_flat(char arm, double level, size_t nwave, const double *wavelength, double *out);

typedef struct {
    double wavelength; /* vacuum, Angstrom */
    double electrons;  /* in the whole line */
    char species[3];   /* "Hg" */
} spx_sim_arc_line;

/* Spectrum of arc lamps (bits, spectral/lines.h), out[nwave] electron/Angstrom on an increasing grid of at least two
 * values. The brightest line of each lamp has `level` electrons where the camera's throughput is 0.3; lamps differ by
 * 10 % and lines by 3 % from one noise_seed to another, and have no continuum. Lines are Gaussians of sigma half a mean
 * interval of the grid, 0.01 at least, which is the width of a lamp's, and 0.05 at most. line: those within the grid,
 * by wavelength, nline of them; free with spx_free(). */
spx_status spx_sim_arc(unsigned lamps, char arm, double level, uint64_t noise_seed, size_t nwave,
                       const double *wavelength, double *out, spx_sim_arc_line **line, size_t *nline,
                       spx_err *e) SPX_NODISCARD;

#endif
