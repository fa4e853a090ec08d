/* Provides symmetric positive definite matrices whose rows begin late: normal equations of columns that are sorted by
 * wavelength and reach over a few others each, with some at the end that reach over all. Elements between the first of
 * a row and the diagonal are kept, and no factor has others (George & Liu 1981, Computer Solution of Large Sparse
 * Positive Definite Systems, chapter 4): a band whose width follows the density of columns, without a limit.
 *
 * For the host, one thread. */
#ifndef SPX_CALIB_ENVELOPE_H
#define SPX_CALIB_ENVELOPE_H

#include <math.h>
#include <stddef.h>

/* Shape: element (i, j), first[i] <= j <= i, is a[row[i] + j]. */
typedef struct {
    size_t n, *first, *row;
} spx_envelope;

/* Sets row[n] from first[n], first[i] <= i. Returns the number of elements. */
static inline size_t spx_envelope_rows(spx_envelope *v)
{
    size_t size = 0;
    for (size_t i = 0; i < v->n; i++) {
        v->row[i] = size - v->first[i]; /* at least i elements are before */
        size += i + 1 - v->first[i];
    }
    return size;
}

/* Cholesky factor L of a matrix in place; 0 when it is not positive definite: a pivot is not above 1e-13 of its
 * diagonal. */
static inline int spx_envelope_factor(const spx_envelope *v, double *a)
{
    for (size_t i = 0; i < v->n; i++) {
        double *ai = a + v->row[i];
        const double diagonal = ai[i];
        for (size_t j = v->first[i]; j <= i; j++) {
            const double *aj = a + v->row[j];
            double sum = ai[j];
            for (size_t t = v->first[i] > v->first[j] ? v->first[i] : v->first[j]; t < j; t++)
                sum -= ai[t] * aj[t];
            if (j < i) {
                ai[j] = sum / aj[j];
            } else {
                if (!(sum > 1e-13 * diagonal))
                    return 0;
                ai[i] = sqrt(sum);
            }
        }
    }
    return 1;
}

/* Solves by the factor, x[n] in place; elements of x before `from` are 0. */
static inline void spx_envelope_solve(const spx_envelope *v, const double *a, size_t from, double *x)
{
    for (size_t i = from; i < v->n; i++) {
        const double *ai = a + v->row[i];
        double sum = x[i];
        for (size_t t = v->first[i] > from ? v->first[i] : from; t < i; t++)
            sum -= ai[t] * x[t];
        x[i] = sum / ai[i];
    }
    for (size_t i = v->n; i-- > 0;) {
        const double *ai = a + v->row[i];
        x[i] /= ai[i];
        for (size_t t = v->first[i]; t < i; t++)
            x[t] -= ai[t] * x[i];
    }
}

#endif
