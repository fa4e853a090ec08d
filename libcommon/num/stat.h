/* Provides order statistics, and the distribution of chi squared. */
#ifndef SPX_STAT_H
#define SPX_STAT_H

#include <stddef.h>

/* Median of v[n] (mean of the two middle values for even n; 0 for n = 0). v is scratch: long
 * arrays do not keep their values. No value may be NaN. */
double spx_median(double *v, size_t n);

/* log10 of the probability that chi squared with `dof` degrees of freedom (> 0) exceeds `chisq`: log10 Q(dof/2,
 * chisq/2), the incomplete gamma function (Abramowitz & Stegun 6.5.29, 6.5.31), which does not underflow: -193 000 for
 * 1e6 of 8 000. Exact to 1e-10 of its value or of 1. */
double spx_log10_chisq_tail(double chisq, double dof);

#endif
