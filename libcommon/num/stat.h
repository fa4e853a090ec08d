/* Provides order statistics. */
#ifndef SPX_STAT_H
#define SPX_STAT_H

#include <stddef.h>

/* Median of v[n] (mean of the two middle values for even n; 0 for n = 0). Reorders v in an unspecified way. No value
 * may be NaN. */
double spx_median(double *v, size_t n);

#endif
