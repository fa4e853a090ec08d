/* Provides the parts of singular value decomposition that all backends share (svd/svd.h). */
#include <limits.h>
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "sim/sim_math.h"
#include "svd/svd.h"

/* Limit of the Frobenius norm of a matrix: random samples of it are at most some 1e5 times as large. */
#define LARGEST_NORM 1e302

spx_status spx_svd_check_weights(const double *weight, size_t n, const char *what, spx_err *e)
{
    int some = 0;
    for (size_t i = 0; weight != NULL && i < n; i++) {
        if (!(weight[i] >= 0) || !isfinite(weight[i]))
            return spx_fail(e, SPX_EINPUT, "weight %zu of the %s is %g: weights are finite and not negative", i, what,
                            weight[i]);
        some |= weight[i] > 0;
    }
    return weight != NULL && !some ? spx_fail(e, SPX_EINPUT, "all weights of the %s are 0", what) : SPX_OK;
}

/* Subtracts the weighted mean row. */
static void center(double *a, size_t nrow, size_t ncol, const double *weight, double *mean)
{
    double sum = 0;
    for (size_t i = 0; i < nrow; i++) {
        const double w = weight != NULL ? weight[i] : 1.0;
        sum += w;
        for (size_t j = 0; j < ncol; j++)
            mean[j] += w * a[i * ncol + j];
    }
    for (size_t j = 0; j < ncol; j++)
        mean[j] /= sum;
    for (size_t i = 0; i < nrow; i++)
        for (size_t j = 0; j < ncol; j++)
            a[i * ncol + j] -= mean[j];
}

static spx_status copy(const double *from, size_t n, double **to, spx_err *e)
{
    if (from == NULL)
        return SPX_OK;
    if ((*to = spx_alloc(n, sizeof **to, e)) == NULL)
        return SPX_EIO;
    memcpy(*to, from, n * sizeof **to);
    return SPX_OK;
}

void spx_svd_subtract(double *a, const double *b, size_t n)
{
    for (size_t i = 0; i < n; i++)
        a[i] -= b[i];
}

size_t spx_svd_sample(const spx_svd_options *o, size_t nrow, size_t ncol)
{
    const size_t least = nrow < ncol ? nrow : ncol;
    return o->rank >= least || o->oversample >= least - o->rank ? least : o->rank + o->oversample;
}

double spx_svd_random(uint64_t seed, size_t i)
{
    double u[2];
    spx_sim_uniform2(seed, 0, 0, i, 0, u);
    return spx_sim_normal(u);
}

spx_status spx_svd_begin(double *a, size_t nrow, size_t ncol, const spx_svd_options *o, spx_svd *out, double *total,
                         double *scale, spx_err *e)
{
    const size_t least = nrow < ncol ? nrow : ncol;
    if (least == 0 || nrow > INT_MAX || ncol > INT_MAX)
        return spx_fail(e, SPX_EINPUT, "a matrix of %zu x %zu cannot be decomposed", nrow, ncol);
    if (o->method == SPX_SVD_RANDOMISED && o->rank == 0)
        return spx_fail(e, SPX_EUSAGE, "the randomised method needs a rank");
    out->nrow = nrow;
    out->ncol = ncol;
    out->nmode = o->rank > 0 && o->rank < least ? o->rank : least;
    spx_status st = spx_svd_check_weights(o->row_weight, nrow, "rows", e);
    if (st == SPX_OK)
        st = spx_svd_check_weights(o->column_weight, ncol, "columns", e);
    if (st == SPX_OK)
        st = copy(o->row_weight, nrow, &out->row_weight, e);
    if (st == SPX_OK)
        st = copy(o->column_weight, ncol, &out->column_weight, e);
    if (st != SPX_OK)
        return st;
    if ((out->u = spx_alloc2(nrow, out->nmode, sizeof *out->u, e)) == NULL ||
        (out->v = spx_alloc2(out->nmode, ncol, sizeof *out->v, e)) == NULL ||
        (out->s = spx_alloc(out->nmode, sizeof *out->s, e)) == NULL ||
        (out->energy = spx_alloc(out->nmode, sizeof *out->energy, e)) == NULL ||
        (o->center && (out->mean = spx_alloc(ncol, sizeof *out->mean, e)) == NULL))
        return SPX_EIO;
    if (o->center)
        center(a, nrow, ncol, o->row_weight, out->mean);
    for (size_t i = 0; i < nrow; i++)
        for (size_t j = 0; j < ncol; j++) {
            if (o->row_weight != NULL)
                a[i * ncol + j] *= sqrt(o->row_weight[i]);
            if (o->column_weight != NULL)
                a[i * ncol + j] *= sqrt(o->column_weight[j]);
        }
    *scale = 0;
    *total = 0;
    for (size_t i = 0; i < nrow * ncol; i++) {
        if (!isfinite(a[i]))
            return spx_fail(e, SPX_EINPUT, "row %zu, column %zu: the value is not finite", i / ncol, i % ncol);
        *scale = fabs(a[i]) > *scale ? fabs(a[i]) : *scale;
    }
    for (size_t i = 0; i<nrow && * scale> 0; i++) {
        double row = 0;
        for (size_t j = 0; j < ncol; j++)
            row += (a[i * ncol + j] / *scale) * (a[i * ncol + j] / *scale);
        *total += row;
    }
    if (*scale * sqrt(*total) > LARGEST_NORM)
        return spx_fail(e, SPX_EINPUT, "a singular value may be beyond the range of float64: scale the matrix");
    return SPX_OK;
}

void spx_svd_end(spx_svd *out, double total, double scale)
{
    double sum = 0;
    for (size_t k = 0; k < out->nmode; k++) {
        double *v = out->v + k * out->ncol, largest = 0;
        size_t first = 0;
        for (size_t j = 0; j < out->ncol; j++)
            largest = fmax(largest, fabs(v[j]));
        while (first + 1 < out->ncol && fabs(v[first]) < (1 - SPX_SVD_SIGN_TIE) * largest)
            first++;
        if (v[first] < 0) {
            for (size_t j = 0; j < out->ncol; j++)
                v[j] = -v[j];
            for (size_t i = 0; i < out->nrow; i++)
                out->u[i * out->nmode + k] = -out->u[i * out->nmode + k];
        }
        /* a matrix of zeros: nothing is lost */
        sum += scale > 0 ? (out->s[k] / scale) * (out->s[k] / scale) : 0;
        out->energy[k] = total > 0 ? (sum < total ? sum / total : 1) : 1;
    }
}
