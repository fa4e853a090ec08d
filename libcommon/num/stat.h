/* Provides order statistics, the distribution of chi squared, and the scatter of values beyond their errors. */
#ifndef SPX_STAT_H
#define SPX_STAT_H

#include <stddef.h>

/* Median of v[n] (mean of the two middle values for even n; 0 for n = 0). v is scratch: long
 * arrays do not keep their values. No value may be NaN. */
double spx_median(double *v, size_t n);

/* The same of the m smallest of v[n], m <= n: those that do not count may be infinite. */
double spx_median_smallest(double *v, size_t n, size_t m);

/* median[i] of v[i - half] ... v[i + half], as far as they are among the n and are numbers, as spx_median(): 0 where
 * none is. sorted: memory, [2 half + 1]. */
void spx_running_median(size_t n, const double *v, size_t half, double *sorted, double *median);

/* log10 of the probability that chi squared with `dof` degrees of freedom (> 0) exceeds `chisq`: log10 Q(dof/2,
 * chisq/2), the incomplete gamma function (Abramowitz & Stegun 6.5.29, 6.5.31), which does not underflow: -193 000 for
 * 1e6 of 8 000. Exact to 1e-10 of its value or of 1. */
double spx_log10_chisq_tail(double chisq, double dof);

/* Prior of an intrinsic variance t of which is known that it may well be none: 0, with odds `odds`, or flat in its
 * logarithm, from a hundredth of what the values tell on, for its scale is unknown (Jeffreys 1961). usual: a variance
 * that is expected, or down to a hundredth of it; smaller ones, and none, are then rare, one in fifty, and so are
 * larger ones unless `larger` says that they are as likely. 0: nothing is known. */
typedef struct {
    double odds, usual;
    int larger;
} spx_scatter_prior;

/* Intrinsic variance t of n values, with which they have variances v_i + t. From their squared distances from the mean,
 * square[n], and error variances v, variance[n], > 0; each counts `times`, such as (n - k)/n of values whose distances
 * are from k terms that were fitted to them, or more for one that stands for many. Returns t with the sum of weights
 * 1/(v_i + t) that has the mean over the likelihood prod (v_i + t)^(-1/2) exp(-square_i/2(v_i + t)). 0 without
 * values. unsure: variance of t, as that which the sum of weights has over the likelihood makes it; NULL: not asked
 * for. */
double spx_intrinsic_variance(size_t n, const double *square, const double *variance, double times,
                              const spx_scatter_prior *prior, double *unsure);

#endif
