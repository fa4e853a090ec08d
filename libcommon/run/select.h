/* Selects spectra as rvspecfit's rvs_desi_fit does, and groups the spectra of each star. */
#ifndef SPX_SELECT_H
#define SPX_SELECT_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "run/catalogue_parts.h"
#include "run/redshifts.h"

/* Collects TARGETIDs from texts and from a text file (NULL: none), one a line there (blank lines and lines that begin
 * with # ignored): id[*n], to be freed. SPX_EINPUT: the file cannot be read, or holds none. */
spx_status spx_targets_collect(size_t ntext, const char *const *text, const char *file, size_t *n, int64_t **id,
                               spx_err *e);

/* Bits of FIBERSTATUS, or else of COADD_FIBERSTATUS, that spoil a spectrum, (*bad)[nrow], to be freed: all but 3
 * (restricted reach) and 20 (many bad columns). NULL: the table, which may be NULL, has neither. */
spx_status spx_fibermap_status(const spx_table *fibermap, int64_t **bad, spx_err *e);

typedef struct {
    const char *rows; /* FIRST:LAST; NULL: all */
    int all_fibers;   /* 0: stars only: not OBJTYPE SKY or BAD, nor a bad status */
    size_t ntarget;   /* TARGETID is one of these; 0: any */
    const int64_t *target;
    int has_expid; /* expid_min <= EXPID <= expid_max */
    int64_t expid_min, expid_max;
    int has_minsn; /* largest signal-to-noise ratio over the arms is above minsn: from scores where these have one for
                    * every arm (MEDIAN_CALIB_SNR_x, MEDIAN_COADD_SNR_x or MEDIAN_COADD_FLUX_SNR_x), else the median
                    * over good pixels */
    double minsn;
    const uint8_t *sn_arm; /* [narm] 1: the arm counts */
    /* Type criteria: a spectrum passes that meets one of the two, where either is given. */
    const char *objtypes;       /* regular expressions separated by commas, matched at the beginning of the name of a
                                 * bit of DESI_TARGET (or SVn_DESI_TARGET); NULL: none */
    const spx_redshifts *stars; /* SPECTYPE is STAR, or |z| is below that of 1500 km/s; NULL: no criterion */
} spx_selection;

/* Selects rows: row[*n], to be freed. SPX_EINPUT where the fibermap lacks a column that a criterion needs; SPX_EUSAGE:
 * an invalid text; no row at all is no error. */
spx_status spx_spectra_select(const spx_spectra_parts *p, const spx_selection *s, size_t **row, size_t *n, spx_err *e);

/* Groups the exposures of each star: reorders row[n] by the first appearance of each star, whose rows then are
 * row[first[k]] ... row[first[k+1]-1]; first[*nstar+1], to be freed. all: every row is of one star; else stars are
 * identified by TARGETID, or, without one, by their index in the files. TARGETID -1 is that of no target: each such row
 * is a star of its own. */
spx_status spx_spectra_group(const spx_spectra_parts *p, int all, size_t n, size_t *row, size_t *nstar, size_t **first,
                             spx_err *e);
/* The same by numbers of one's own: id[k] of row k of the spectra. */
spx_status spx_spectra_group_by(const int64_t *id, size_t n, size_t *row, size_t *nstar, size_t **first, spx_err *e);

/* Of groups of rows as above, what exposures of one star should not be. *apart: how many stars have exposures more than
 * an arcminute apart on the sky; example: a row of the first. twice[2]: the first two rows of one star that are of the
 * same exposure (EXPID), fibre and arm; both the same: there are none. */
spx_status spx_spectra_apart(const spx_spectra_parts *p, const size_t *row, size_t nstar, const size_t *first,
                             size_t *apart, size_t *example, spx_err *e) SPX_NODISCARD;
spx_status spx_spectra_twice(const spx_spectra_parts *p, const size_t *row, size_t nstar, const size_t *first,
                             size_t twice[2], spx_err *e) SPX_NODISCARD;

#endif
