/* Provides the memory of the zero point on a device (zero_steps.h): sizes, tables that the host fills, and what the
 * host makes of results. Private to kernels/shift.
 *
 * A fit has tables and work that stay, and of each sum tables and results, whose sizes change with the groups. */
#ifndef SPX_SHIFT_ZERO_LAYOUT_H
#define SPX_SHIFT_ZERO_LAYOUT_H

#include "shift/zero_point.h"
#include "shift/zero_steps.h"

/* Sizes of a fit whose strips have their places; SPX_EIO where they are larger than indices are. */
spx_status spx_zero_sizes(const spx_zero_work *w, spx_zero_view *g, spx_err *e);

/* Hand out the arrays, and return the bytes; NULL: only count. */
size_t spx_zero_tables(const spx_zero_work *w, spx_zero_view *g, char *base);
size_t spx_zero_memory(spx_zero_view *g, char *base);
size_t spx_zero_sum_tables(spx_zero_view *g, char *base);
size_t spx_zero_sum_memory(spx_zero_view *g, char *base);

/* Light of neighbours on the host, zeroed [nstrip][rows cols]: strips get their parts, as data. */
void spx_zero_give_data(const spx_zero_view *g, double *data, spx_zero_work *w);

/* Fill tables that were handed out on the host. */
void spx_zero_fill(const spx_zero_work *w, const spx_zero_view *g);
void spx_zero_fill_sum(const spx_zero_work *w, const spx_zero_view *g);

/* Sizes of a sum of *w, in a view of the fit. */
void spx_zero_sum_sizes(const spx_zero_work *w, int reject, spx_zero_view *g);

/* xc of strips by the rows of a device; what is known of them by their step[nstrip]. */
void spx_zero_take_rows(const spx_zero_view *g, const int *xc, spx_zero_work *w);
void spx_zero_take_steps(const spx_zero_view *g, const double *step, spx_zero_work *w);

/* Results of a sum, sum[size + nc + 2]. */
void spx_zero_take_sum(const spx_zero_view *g, const double *sum, spx_zero_work *w);

#endif
