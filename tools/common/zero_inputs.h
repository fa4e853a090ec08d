/* Reads velocities of exposures from products of rvs-fit --epochs, for the measurement of zero points. */
#ifndef SPX_TOOLS_ZERO_INPUTS_H
#define SPX_TOOLS_ZERO_INPUTS_H

#include "app/main.h"
#include "products/zeropoint.h"

/* What zero points are told apart by: a sum. */
enum { SPX_BY_ARM = 1, SPX_BY_PETAL = 2, SPX_BY_FIBER = 4, SPX_BY_NIGHT = 8 };

/* Velocity of an exposure, km/s, and where it was taken, as far as it counts. */
typedef struct {
    double v, err;
    int64_t target;
    spx_zeropoint where;
} spx_zero_exposure;

typedef struct {
    size_t n, capacity, nstar, ngroup;
    size_t nleft;                /* exposures that are left out: no velocity, EPOCH_WARN, or too large an error */
    spx_zero_exposure *exposure; /* [n] */
    double *v, *err;             /* [n] the same as the kernel takes them, */
    size_t *star, *group;        /* [n] < nstar, < ngroup */
    int64_t *target;             /* [nstar] TARGETID of the stars, sorted */
    double *known, *known_err;   /* [nstar]; NaN: not known */
    size_t nknown;
    spx_zeropoint *zero; /* [ngroup] keys, sorted */
} spx_zero_inputs;

/* Reads all inputs of a run. `by`: SPX_BY_*; max_err: exposures with larger errors are left out. known: text of
 * TARGETID, velocity and (else 0) its error, a line a star; NULL: none. SPX_EINPUT where an input has no velocities of
 * exposures, or has zero points subtracted already; where a key is not known; where `by` has SPX_BY_ARM and velocities
 * are of several arms; SPX_ENO where nothing is left. To be freed also after an error. */
spx_status spx_zero_inputs_read(spx_run *run, int by, double max_err, const char *known, spx_zero_inputs *z,
                                spx_err *e);
void spx_zero_inputs_free(spx_zero_inputs *z);

#endif
