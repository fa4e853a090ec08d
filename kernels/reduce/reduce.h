/* Provides reductions along one axis: minimum, maximum and their indices, sum, mean, median.
 *
 * Data are seen as [outer, n, inner], the axis in the middle; there is one result for each outer and inner index. They
 * may come in chunks along the axis, in order, so that memory is bounded; only the median needs whole lines, or several
 * passes over the data (spx_reduce_select).
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

/* Partial results: [nout]. */
typedef struct {
    spx_reduce_op op;
    int skip; /* 1: values that are not finite are left out */
    size_t nout;
    double *value;
    double *rest;    /* sums: low word, the rounding error of `value` */
    int64_t *index;  /* index along the axis of the minimum or maximum */
    uint64_t *count; /* number of values used */
} spx_reduce;

/* Allocates up to `most` results; free with spx_reduce_free(). */
spx_status spx_reduce_new(spx_reduce_op op, int skip, size_t most, spx_reduce *r, spx_err *e);
void spx_reduce_free(spx_reduce *r);
/* Begins with nout <= most results. */
void spx_reduce_begin(spx_reduce *r, size_t nout);

/* Adds a chunk: data[outer, n, inner], elements first ... first + n - 1 of the axis; nout = outer * inner. MEDIAN: the
 * chunk must be all of the axis (first 0). SPX_EINPUT where a value is not finite and those are not left out; *bad is
 * then its index in the chunk. */
spx_status spx_reduce_cpu(const double *data, size_t outer, size_t n, size_t inner, size_t first, int nthreads,
                          spx_reduce *r, size_t *bad, spx_err *e);

/* Error for that value. */
spx_status spx_reduce_refuse(const double *data, size_t bad, spx_err *e);

/* Ends the reduction: rounds sums, divides means; without any value, value and index are 0. SPX_EINPUT: a sum
 * overflows. */
spx_status spx_reduce_end(spx_reduce *r, spx_err *e);

/* Median of one line longer than memory, by radix selection in SPX_SELECT_PASSES passes. The bits of a double, mapped
 * to an integer, have the order of the values; each pass fixes 16 bits of the lower middle value, and the last one
 * finds the upper middle value of an even number. */
enum { SPX_SELECT_PASSES = 5 };

typedef struct {
    int pass;
    uint64_t prefix;      /* bits of the lower middle value found so far */
    uint64_t rank;        /* its rank among values with that prefix */
    uint64_t count, upto; /* number of values; number of values up to the lower middle one */
    uint64_t next;        /* smallest value above it */
    uint64_t *histogram;
} spx_reduce_select;

spx_status spx_reduce_select_new(spx_reduce_select *s, spx_err *e);
void spx_reduce_select_free(spx_reduce_select *s);
/* Begins a line. */
void spx_reduce_select_begin(spx_reduce_select *s);
/* Adds values of the line, in chunks; *bad as above. */
spx_status spx_reduce_select_add(spx_reduce_select *s, const double *data, size_t n, int skip, size_t *bad, spx_err *e);
/* Ends a pass over the whole line. After the last one, result 0 of r is the median. */
void spx_reduce_select_next(spx_reduce_select *s, spx_reduce *r);

#endif
