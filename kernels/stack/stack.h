/* Provides shift-and-stack: sums of shifted, weighted traces for many sets of shifts.
 *
 *     stack[k, t] = sum_j w_kj a_j[t + t0 - offset_j - shift_kj]
 *
 * over the traces j whose index lies inside the trace and whose weight is not 0. With delays of a wave front as shifts
 * this is the delay-and-sum beam of an array of seismometers or antennas; with velocities, the sum of the
 * cross-correlation functions of several arms or exposures.
 *
 * Sums are taken in a fixed order: the terms of SPX_STACK_BLOCK traces in the type of the traces, and these partial
 * sums in double, rounded once at the end. So a sum of many float traces has the full precision of float, and the
 * result depends neither on the number of threads nor on the instruction set. */
#ifndef SPX_STACK_H
#define SPX_STACK_H

#include "base/err.h"
#include "base/progress.h"
#include "products/stack.h"

typedef struct {
    spx_stack_method method;
    int has_t0, has_length; /* 0: automatic */
    int64_t t0;
    size_t length;
    const void *earlier;      /* STACK: [nshift * length], earlier stacks to add to (type of the traces); NULL: none */
    const char *earlier_name; /* its FILE:/dataset, for messages; may be NULL */
    int nthreads;
    spx_progress *progress; /* counts shifts; may be NULL */
} spx_stack_options;

/* Computes the window: where the options leave it open, t0 = min(offset + shift), and the end is max(offset + shift +
 * samples). SPX_EUSAGE when it is empty, SPX_EINPUT when there are no traces or shifts. */
spx_status spx_stack_window(const spx_traces *tr, const spx_shifts *sh, const spx_stack_options *o, int64_t *t0,
                            size_t *length, spx_err *e);

/* Stacks on the CPU. Fills a zeroed *out, freed with spx_stack_free(). MAX is the true maximum over t, also where all
 * values are negative, and the first t that has it; ARGMAX the maximum over the shifts and the first shift with it.
 * SPX_EINPUT: types or numbers of traces differ, data, weights or earlier result are not finite, or a sum overflows. */
spx_status spx_stack_cpu(const spx_traces *tr, const spx_shifts *sh, const spx_stack_options *o, spx_stack *out,
                         spx_err *e);

/* Begins a stack, on any backend: checks the input, computes the window, allocates *out. */
spx_status spx_stack_begin(const spx_traces *tr, const spx_shifts *sh, const spx_stack_options *o, spx_stack *out,
                           spx_err *e);
/* Smallest and largest of nshift shifts, `stride` apart, of each of n traces. */
void spx_stack_range(const int32_t *shift, size_t nshift, size_t stride, size_t n, int32_t *low, int32_t *high);
/* Error for a sum beyond the type's range. */
spx_status spx_stack_overflow(int precision, spx_err *e);

/* ---- geometry ---- */

/* Computes shifts and weights that align a plane wave of horizontal slowness s (s/km) across stations at r (km;
 * positions of the traces): the wave reaches a station s . (r - r0) seconds later than the centroid r0, so
 *     shift = -round(s . (r - r0) * sampling_rate),   weight = 1 / number of traces;
 * the stack is then the mean of the aligned traces. slowness: [nshift * 2], taken over into out->grid. SPX_EINPUT: no
 * positions or sampling rate, or a shift beyond int32. */
spx_status spx_stack_geometry(const spx_traces *tr, size_t nshift, const double *slowness, spx_shifts *out, spx_err *e);

/* Axis of a slowness grid: first value, step, number of values. Grids have y fastest; free with spx_free(). */
typedef struct {
    double first, step;
    size_t n;
} spx_stack_axis;
/* s = (sx, sy), s/km. */
spx_status spx_stack_slowness_grid(const spx_stack_axis *sx, const spx_stack_axis *sy, size_t *n, double **out,
                                   spx_err *e);
/* s = (sin azimuth, cos azimuth) / velocity: apparent velocity in km/s (> 0) and direction in which the wave travels,
 * in degrees from y (north) towards x (east). */
spx_status spx_stack_velocity_grid(const spx_stack_axis *velocity, const spx_stack_axis *azimuth, size_t *n,
                                   double **out, spx_err *e);

#endif
