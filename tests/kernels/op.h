/* Provides the frame of test_backend_ops.c for the cases of one operation, op_NAME.c.
 *
 * A case is a list of sizes; with a seed it makes a scene. The operation is run on it, on the CPU and on the device
 * under test, and its results are put into an answer: arrays of double, each with a tolerance and, where that is
 * relative, a scale for each element. Answers of the same backend have to be equal to the last bit; those of two
 * backends, or of a backend and a plain reference, to the tolerance. */
#ifndef OP_H
#define OP_H

#include <stdint.h>

#include "backend.h"

enum { OP_SIZES = 5, OP_PARTS = 16 };

typedef struct {
    const char *what;
    size_t size[OP_SIZES]; /* as op_NAME.c says */
} op_case;

typedef struct {
    const char *name;
    size_t n;
    double tolerance; /* |x - y| <= tolerance, times scale[i] of the answer that is compared with; 0: equal */
    double *value, *scale;
} op_part;

typedef struct {
    size_t n;
    op_part part[OP_PARTS];
} op_answer;

typedef struct {
    size_t ncase;
    const op_case *cases;
    void *(*draw)(const size_t *size, uint64_t seed); /* a scene */
    /* Runs the operation on the scene and adds the results to *a. Errors that the case does not expect: op_done(). */
    void (*run)(spx_backend *b, void *scene, int threads, op_answer *a);
    /* The same by a plain evaluation, or what is known otherwise: the parts that it has, in any order; NaN says that an
     * element is not known. NULL: there is none. */
    void (*reference)(void *scene, op_answer *a);
    void (*release)(void *scene);
} op_test;

/* A part of n elements, zero; `scale` (may be NULL) is where its scales are to be written. */
double *op_add(op_answer *a, const char *name, size_t n, double tolerance, double **scale);
/* The same with these values. */
void op_put(op_answer *a, const char *name, size_t n, const double *value, double tolerance);
/* Message with the case, and a failure, unless the status is SPX_OK. 1: it is. */
int op_done(spx_status st, const spx_err *e);
/* Memory that the operation writes to, between sentinels, which are looked at when the case ends. */
void *op_output(const char *name, size_t n, size_t size);
/* Memory of the scene that no run may change; a copy is compared when the case ends. */
void op_const(const char *name, const void *at, size_t n, size_t size);

#endif
