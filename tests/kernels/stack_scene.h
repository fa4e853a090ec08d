/* Provides random traces and shifts for tests of the stack, and its definition in a plain loop. */
#ifndef STACK_SCENE_H
#define STACK_SCENE_H

#include <stdint.h>

#include "device.h"

static unsigned seed = 20261120;

static inline unsigned next(void)
{
    seed = seed * 1664525u + 1013904223u;
    return seed >> 8;
}

static inline int within(int low, int high)
{
    return low + (int)(next() % (unsigned)(high - low + 1));
}

static inline double uniform(void)
{
    return (double)next() * 0x1p-23 - 1;
}

static inline void put(int precision, void *a, size_t i, double v)
{
    if (precision == 4)
        ((float *)a)[i] = (float)v;
    else
        ((double *)a)[i] = v;
}

static inline double get(int precision, const void *a, size_t i)
{
    return precision == 4 ? (double)((const float *)a)[i] : ((const double *)a)[i];
}

/* Traces of these lengths, all zero. */
static inline spx_traces new_traces(int precision, size_t ntrace, const size_t *length)
{
    spx_traces t = {.ntrace = ntrace, .precision = precision};
    t.start = need(ntrace + 1, sizeof *t.start);
    t.offset = need(ntrace, sizeof *t.offset);
    for (size_t j = 0; j < ntrace; j++)
        t.start[j + 1] = t.start[j] + length[j];
    t.nsample = t.start[ntrace];
    t.data = need(t.nsample, (size_t)precision);
    return t;
}

static inline spx_shifts new_shifts(int precision, size_t nshift, size_t ntrace)
{
    spx_shifts s = {.nshift = nshift, .ntrace = ntrace, .precision = precision};
    s.shift = need(nshift * ntrace, sizeof *s.shift);
    s.weight = need(nshift * ntrace, (size_t)precision);
    for (size_t i = 0; i < nshift * ntrace; i++)
        put(precision, s.weight, i, 1.0);
    return s;
}

static inline void fill(spx_traces *t, spx_shifts *s, int low, int high)
{
    for (size_t j = 0; j < t->ntrace; j++)
        t->offset[j] = within(low, high);
    for (size_t i = 0; i < t->nsample; i++)
        put(t->precision, t->data, i, uniform());
    for (size_t i = 0; i < s->nshift * s->ntrace; i++) {
        s->shift[i] = within(low, high);
        put(s->precision, s->weight, i, next() % 8 == 0 ? 0.0 : uniform());
    }
}

/* The definition. */
static inline double plain(const spx_traces *t, const spx_shifts *s, size_t k, int64_t at)
{
    double sum = 0;
    for (size_t j = 0; j < t->ntrace; j++) {
        int64_t i = at - t->offset[j] - s->shift[k * t->ntrace + j];
        if (i >= 0 && i < (int64_t)(t->start[j + 1] - t->start[j]))
            sum +=
                get(s->precision, s->weight, k * t->ntrace + j) * get(t->precision, t->data, t->start[j] + (size_t)i);
    }
    return sum;
}

#endif
