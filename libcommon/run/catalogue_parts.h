/* Reads spectra of any number of files as one block: wavelengths and tables at once, pixels by rows, so that memory
 * does not grow with the files. */
#ifndef SPX_SPECTRA_PARTS_H
#define SPX_SPECTRA_PARTS_H

#include <hdf5.h>

#include "base/err.h"
#include "base/text.h"
#include "products/spectra.h"
#include "products/spectra_h5.h"

/* File of spectra; stays open as long as the parts are in use. */
typedef struct {
    hid_t file;
    size_t first, nspec; /* its spectra are rows first ... first+nspec-1 of all */
    size_t narm, arm[SPX_MAX_ARM];
    char path[SPX_MAX_ARM][SPX_ARM_PATH];
    long expid; /* EXPID of the header; -1: it has none */
} spx_spectra_part;

typedef struct {
    spx_spectra all; /* rows of all files; arms without flux, ivar, mask and resolution */
    /* Name of an arm in its file. An arm of the same name on other wavelengths, or with flux of another unit, is called
     * b2, b3, ... in `all`. */
    char base[SPX_MAX_ARM][16];
    int has_mask[SPX_MAX_ARM], with_resolution;
    int rows; /* 1: arms may have a wavelength grid for each spectrum; 0: files with such are refused */
    double ends[SPX_MAX_ARM][2];  /* of these arms: first and last wavelength of all grids, and of the range that is */
    double range[SPX_MAX_ARM][2]; /* taken: bins beyond it are read with ivar 0 */
    size_t skip[SPX_MAX_ARM], whole[SPX_MAX_ARM]; /* pixels of the files before the first of `all`, and in all */
    size_t npart, capacity;
    spx_spectra_part *part;
    /* Bands that are left out of all spectra, band[nband][2], Angstrom on the ground; they belong to the caller. */
    size_t nband;
    const double *band;
    double *velocity; /* [all.nspec] of barycentric wavelengths against the ground's, km/s; NULL: not known */
    spx_text dropped; /* columns that not all fibermaps have alike, and `all` lacks: "A, B" */
} spx_spectra_parts;

/* Adds a file. It gives further arms of the last file's rows when it has other arms and lacks none of their identity:
 * as many rows, with the same TARGETID, FIBER and EXPID, that of the header, too, where both have them; where no
 * header tells, the same must not hold of rows before these that lack its arms. Otherwise its rows are appended, where
 * it has one of their arms again or `exposures` are allowed; SPX_EINPUT where not, or where one file has a fibermap and
 * another has none, or one of them alone has a TARGETID. */
spx_status spx_spectra_parts_add(spx_spectra_parts *p, hid_t file, int exposures, spx_err *e);

/* Restricts an arm to pixels from wavelength `lo` to `hi`; returns their number, and leaves the arm unchanged where
 * that is 0. Call it once an arm, after all files were added. Of an arm with a grid for each spectrum all pixels stay,
 * and those outside are read with ivar 0; returns 0 where no grid reaches into the range. */
size_t spx_spectra_parts_cut(spx_spectra_parts *p, size_t arm, double lo, double hi);

/* Reads BARYCENTRIC_VELOCITY of the fibermap into p->velocity where wavelengths of an arm are barycentric; *unknown 1:
 * it is not there. Call it after all files were added. */
spx_status spx_spectra_parts_ground(spx_spectra_parts *p, int *unknown, spx_err *e);

/* Leaves bands out: their bins, where each spectrum has them on the ground, are read with SPX_NODATA in the mask. Of
 * barycentric wavelengths that is by BARYCENTRIC_VELOCITY of the fibermap; where it has none, bands are wider by 30
 * km/s on both sides, and *widened is 1. Call it after all files were added. */
spx_status spx_spectra_parts_leave_out(spx_spectra_parts *p, size_t nband, const double *band, int *widened,
                                       spx_err *e);

/* Reads rows row[n] into a block without tables and header; an arm that a row's file lacks has ivar 0. */
spx_status spx_spectra_parts_read(const spx_spectra_parts *p, size_t n, const size_t *row, spx_spectra *out,
                                  spx_err *e);
/* Memory of the pixels of a row, bytes. */
size_t spx_spectra_parts_row_bytes(const spx_spectra_parts *p);

/* Cards of a file's header. */
spx_status spx_spectra_part_header(const spx_spectra_part *part, spx_cards *h, spx_err *e);
/* First file that has a row, part[all.nspec], and the arms of all files that have it, a bit each; `arms` may be NULL.
 */
void spx_spectra_parts_sources(const spx_spectra_parts *p, size_t *part, uint64_t *arms);
/* A whole number of each row, (*out)[all.nspec], to be freed: a column of the fibermap, or else of the header of the
 * row's file; -1: not known. */
spx_status spx_spectra_parts_number(const spx_spectra_parts *p, const char *name, int64_t **out, spx_err *e);
/* Middle of the exposure of each row, modified Julian date, UTC, (*out)[all.nspec], to be freed: MJD_MID of the
 * fibermap, else its MJD, the start, with half of its EXPTIME (s); where it has no MJD, that of the header of the row's
 * file (products/site.h); NaN: not known. */
spx_status spx_spectra_parts_middle(const spx_spectra_parts *p, double **out, spx_err *e);

void spx_spectra_parts_free(spx_spectra_parts *p);

#endif
