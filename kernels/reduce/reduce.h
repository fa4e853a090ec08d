/* Reductions along one axis: minimum, maximum and their places, sum, mean, median.
 *
 * Data are seen as [outer, n, inner], the axis in the middle; there is one result for each outer and inner index. They
 * may come in pieces along the axis, in order, so that memory is bounded; only the median needs whole lines, or goes
 * over the data several times (spx_reduce_select).
 *
 * Sums are carried in two doubles (Knuth's TwoSum; Dekker 1971, Numerische Mathematik 18, 224), in the order of the
 * axis: the error is that of one rounding, whatever the length. Of equal minima or maxima the first counts. Values that
 * are not finite are left out, or an error: results are always finite. */
#ifndef SPX_REDUCE_H
#define SPX_REDUCE_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

typedef enum {
    SPX_REDUCE_MINIMUM,
    SPX_REDUCE_MAXIMUM,
    SPX_REDUCE_ARGMIN,
    SPX_REDUCE_ARGMAX,
    SPX_REDUCE_SUM,
    SPX_REDUCE_MEAN,
    SPX_REDUCE_MEDIAN
} spx_reduce_op;

/* Results while they grow: [nout]. */
typedef struct {
    spx_reduce_op op;
    int skip; /* leave out values that are not finite */
    size_t nout;
    double *value;
    double *rest;    /* sums: what value is short of */
    int64_t *index;  /* along the axis: place of the minimum or maximum */
    uint64_t *count; /* values that counted */
} spx_reduce;

/* Memory for up to `most` results; free with spx_reduce_free(). */
spx_status spx_reduce_new(spx_reduce_op op, int skip, size_t most, spx_reduce *r, spx_err *e);
void spx_reduce_free(spx_reduce *r);
/* Begin with nout <= most results. */
void spx_reduce_begin(spx_reduce *r, size_t nout);

/* A piece of the data: data[outer, n, inner], elements first ... first + n - 1 of the axis; nout = outer * inner.
 * MEDIAN: the piece has to be whole (first 0), and is the last.
 * SPX_EINPUT where a value is not finite and such are not left out; *bad is then its index in the piece. */
spx_status spx_reduce_cpu(const double *data, size_t outer, size_t n, size_t inner, size_t first, int nthreads,
                          spx_reduce *r, size_t *bad, spx_err *e);

/* Message for that value. */
spx_status spx_reduce_refuse(const double *data, size_t bad, spx_err *e);

/* The end: sums are rounded, means divided; where nothing counted, value and index are 0. SPX_EINPUT: a sum overflows.
 */
spx_status spx_reduce_end(spx_reduce *r, spx_err *e);

/* Median of one line that is longer than memory: it is gone over SPX_SELECT_PASSES times. The bits of a double, taken
 * as a whole number, have the order of the values; each pass fixes 16 bits of the lower middle value, and the last one
 * finds the upper middle value of an even number. */
enum { SPX_SELECT_PASSES = 5 };

typedef struct {
    int pass;
    uint64_t prefix;      /* bits that are known, of the lower middle value */
    uint64_t rank;        /* of that value, among those that begin with the prefix */
    uint64_t count, upto; /* values that counted; values up to the lower middle one */
    uint64_t next;        /* smallest one above it */
    uint64_t *histogram;
} spx_reduce_select;

spx_status spx_reduce_select_new(spx_reduce_select *s, spx_err *e);
void spx_reduce_select_free(spx_reduce_select *s);
/* Begin with a line. */
void spx_reduce_select_begin(spx_reduce_select *s);
/* Values of the line, in pieces; *bad as above. */
spx_status spx_reduce_select_add(spx_reduce_select *s, const double *data, size_t n, int skip, size_t *bad, spx_err *e);
/* End of a pass over the whole line. After the last one result 0 of r is the median. */
void spx_reduce_select_next(spx_reduce_select *s, spx_reduce *r);

#endif
