/* Provides the targets of an exposure, one a fibre, and their fibermap and truth table. */
#ifndef SPX_TARGET_H
#define SPX_TARGET_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "num/barycentre.h"

struct spx_table;

/* Target of one fibre. For a star in a simulation all fields hold the truth. */
typedef struct {
    int64_t targetid;
    int sky;                       /* 1: sky fibre */
    char objtype[4];               /* of the fibermap: FLT or ARC, a lamp; empty: TGT or SKY */
    double ra, dec;                /* degrees */
    double teff, logg, feh, alpha; /* K, dex(cm/s^2), dex, dex */
    double v, vsini;               /* km/s */
    double mag;                    /* AB magnitude of the continuum at 6200 Angstrom */
    size_t member;                 /* row of a spectra library that the star was drawn from */
} spx_target;

/* Observed targets: seen[n] is target[n] with velocities as an observer at `site` measures them in the middle of an
 * exposure of exptime seconds that starts at mjd (UTC); those of target[] are barycentric. site NULL: a copy.
 * SPX_EINPUT: invalid direction or time. */
spx_status spx_target_observe(size_t n, const spx_target *target, const spx_site *site, double mjd, double exptime,
                              spx_target *seen, spx_err *e);

/* Makes a fibermap of nfiber rows: columns TARGETID, FIBER, OBJTYPE, TARGET_RA, TARGET_DEC, FIBERSTATUS. Targets are
 * those of fibres first ... first+n-1; the others are dark: OBJTYPE BAD, TARGETID -1, FIBERSTATUS 1. */
spx_status spx_target_fibermap(size_t n, const spx_target *target, size_t first, size_t nfiber, struct spx_table **out,
                               spx_err *e);

/* Makes the truth table of fibres first ... first+n-1: the columns of the fibermap, with `stars` TEFF, LOGG, FEH,
 * ALPHAFE, VRAD, VSINI, MAG (0 in sky fibres), and with `members` MEMBER (-1 in sky fibres). */
spx_status spx_target_truth(size_t n, const spx_target *target, size_t first, int stars, int members,
                            struct spx_table **out, spx_err *e);

/* Reads TARGETID and OBJTYPE of a fibermap of n rows, where it has them, into target[n]. */
spx_status spx_target_from_fibermap(const struct spx_table *fibermap, size_t n, spx_target *target, spx_err *e);

#endif
