/* Stage `rvfit`, zero points: measures them from velocities of exposures, and subtracts them. Values on the host. */
#ifndef SPX_RVFIT_ZERO_H
#define SPX_RVFIT_ZERO_H

#include "base/err.h"
#include "products/rvfit.h"

enum { SPX_ZERO_MAX_GROUP = 4000 };

/* Velocity v[i] +- err[i] (km/s) of an exposure of star[i] < nstar in group[i] < ngroup. A star has the velocity
 * known[k] +- known_err[k], or NaN: it is not known. */
typedef struct {
    size_t n, nstar, ngroup;
    const double *v, *err;
    const size_t *star, *group;
    const double *known, *known_err;
} spx_zero_input;

/* Least squares of v_i = V_star + zero_group, where V_star is a free number, with the known velocity as a measurement.
 * Robust: exposures farther than 2.5 errors lose weight (Huber), those beyond 6 are left out; errors are those of v,
 * times the robust scatter of the residuals where that is above 1. Groups that no known velocity fixes are relative:
 * relative[g] numbers the sets that stars connect, from 1 on, and the mean of each set is 0; else it is 0. zero, err,
 * scatter (NaN: of one exposure), relative and used (exposures) have [ngroup]. SPX_EINPUT: too many groups, or a
 * group without exposures; SPX_EIO: memory. */
spx_status spx_rvfit_measure_zero(const spx_zero_input *in, double *zero, double *err, double *scatter,
                                  int64_t *relative, int64_t *used, spx_err *e);

/* Subtracts zero points from velocities of stars and exposures of a fit with `with_epochs`: zero[nrow][narm], their
 * errors, and which row of the table they are from, id[nrow][narm] (SIZE_MAX: there is none, and 0 is subtracted). A
 * velocity is the mean of those of its arms (and exposures), weighted by their information, and so is its zero point;
 * its error is added in quadrature. chi^2 of constancy is computed again, with the covariances of exposures that have a
 * zero point in common. */
spx_status spx_rvfit_subtract_zero(spx_rvfit *r, const double *zero, const double *err, const size_t *id, spx_err *e);

/* Sets what follows from const_chisq and const_dof. */
void spx_rvfit_judge_constancy(spx_rvfit_star *s);

/* chi^2 of the constancy of v[n], whose covariance is covar[n][n], with room for covar[n+2][n], which is overwritten.
 */
double spx_rvfit_constancy(size_t n, const double *v, double *covar);

#endif
