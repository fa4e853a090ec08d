/* Provides traces, the shifts to stack them with, and stacks (specpipe-schema(5): /traces, /shifts, /stack). */
#ifndef SPX_BLOCK_STACK_H
#define SPX_BLOCK_STACK_H

#include <stddef.h>
#include <stdint.h>

enum { SPX_STACK_NAME = 1100 };

/* Traces of any length, one after another. Values are float (precision 4) or double (8). */
typedef struct {
    size_t ntrace, nsample;
    uint64_t *start; /* [ntrace + 1]: trace j is data[start[j]] ... data[start[j + 1] - 1]; start[ntrace] = nsample */
    int32_t *offset; /* [ntrace]: sample index of the first sample of each trace */
    int precision;
    void *data;                /* [nsample] */
    double *position;          /* [ntrace * 2]: x, y of each station, km; NULL: unknown */
    double sampling_rate;      /* Hz; 0: unknown */
    char units[64];            /* of data */
    char name[SPX_STACK_NAME]; /* FILE:/dataset of origin, for messages; empty: unknown */
} spx_traces;

/* Sets of shifts, one number and weight a trace. */
typedef struct {
    size_t nshift, ntrace;
    int32_t *shift; /* [nshift * ntrace], samples */
    int precision;
    void *weight;              /* [nshift * ntrace], type as that of the traces */
    double *grid;              /* [nshift * 2]: slowness (x, y), s/km, of each set of shifts; NULL: unknown */
    char name[SPX_STACK_NAME]; /* FILE:/dataset of the weights, for messages; empty: none */
} spx_shifts;

typedef enum { SPX_STACK_STACK, SPX_STACK_MAX, SPX_STACK_ARGMAX } spx_stack_method;

/* Result of a stack. Sample t has index t0 + t. */
typedef struct {
    spx_stack_method method;
    int precision; /* bytes of an element of `value` */
    size_t nshift, length;
    int64_t t0;
    void *value;    /* STACK: [nshift * length] stacks; MAX: [nshift]; ARGMAX: [length] */
    int64_t *index; /* MAX: [nshift], t + t0 of the maximum; ARGMAX: [length], shift with the maximum; else NULL */
    double sampling_rate; /* Hz; 0: unknown */
    char units[64];
} spx_stack;

/* Curves of the cross-correlation as traces: star k has traces first[k] ... first[k+1]-1, of all its spectra and arms.
 * Sample i is at velocity v0 + i step, km/s. */
typedef struct {
    size_t nstar, *first; /* [nstar+1] */
    double v0, step;
} spx_ccf_stars;

void spx_ccf_stars_free(spx_ccf_stars *c);
void spx_traces_free(spx_traces *t);
void spx_shifts_free(spx_shifts *s);
void spx_stack_free(spx_stack *s);

#endif
