/* Spectra of all inputs as pictures show them (common/picture.h): arms within the wavelengths that were asked for, rows
 * of different files matched by TARGETID. */
#ifndef SPX_TOOLS_PICTURE_SHOWN_H
#define SPX_TOOLS_PICTURE_SHOWN_H

#include <stddef.h>
#include <stdint.h>

#include "common/picture.h"
#include "products/spectra.h"

enum { SPX_MAX_SHOWN = 16 };

/* Arm of one of the inputs: values that are masked or without information are NaN. */
typedef struct {
    const spx_arm *arm;
    size_t source, first, n; /* input, and the bins that are shown */
    const double *wave;      /* [n]; of a grid for each spectrum even steps over all (spx_shown_wave()) */
    double *flux, *sigma;    /* [nspec][n] */
} spx_shown_arm;

/* Wavelengths [n] of a row of the arm's source. */
static inline const double *spx_shown_wave(const spx_shown_arm *s, size_t row)
{
    return s->arm->per_row ? s->arm->row_wavelength + row * s->arm->nwave + s->first : s->wave;
}

/* Values [nspec][n] of an arm's bins on s->wave: of the nearest bin of each spectrum, NaN where none is nearer than one
 * and a half of its steps. `value` itself where all have one grid. */
const double *spx_shown_on_one_grid(spx_picture *p, const spx_shown_arm *s, size_t nspec, const double *value);

typedef struct {
    size_t nsource, narm;
    spx_spectra source[SPX_MAX_SHOWN];
    spx_input *in[SPX_MAX_SHOWN];
    int64_t *target[SPX_MAX_SHOWN]; /* [nspec]; NULL: it has none */
    spx_shown_arm arm[SPX_MAX_ARM];
} spx_shown;

/* Reads the frames and spectra of all inputs. Inputs without any are left out; a failure when all are. */
void spx_shown_load(spx_picture *p, spx_shown *d, int with_resolution);
void spx_shown_free(spx_shown *d);
/* Row of source `k` that shows the star in row `row` of the first one, by TARGETID, or else by its number; SPX_NO_ROW:
 * none. */
size_t spx_shown_row(const spx_shown *d, size_t k, size_t row);
/* The row of the first source that was asked for, else that of the median signal-to-noise ratio among those `usable`
 * (NULL: all), which are not the sky's. */
size_t spx_shown_choose(spx_picture *p, const spx_shown *d, const unsigned char *usable);
/* "spectrum 12, target 39627...". */
void spx_shown_name(const spx_shown *d, size_t row, size_t size, char *name);
/* Name of a file without its folder. */
const char *spx_shown_file(const char *path);
/* Range of an axis of fluxes v[n]: without the outermost 0.4 %, and with 0. */
void spx_shown_range(const double *v, size_t n, double *lo, double *hi);
/* Label of the y axis for fluxes of this unit. */
void spx_shown_label(spx_picture *p, const char *unit);

#endif
