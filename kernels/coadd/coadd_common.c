/* Checks and results of coadds, for all backends (coadd/coadd.h). */
#include <math.h>
#include <stdint.h>
#include <string.h>

#include "base/clones.h"
#include "base/mem.h"
#include "coadd/coadd.h"
#include "coadd/coadd_math.h"
#include "products/spectra.h"

size_t spx_coadd_diagonals(spx_coadd_method method, size_t ndiag)
{
    return method == SPX_COADD_SIMPLE || ndiag < 2 ? ndiag : ndiag / 2 * 2 + 1 + SPX_COADD_MORE;
}

SPX_CLONES
static int all_finite(const double *v, size_t n)
{
    uint64_t bad = 0;
#pragma omp simd reduction(| : bad)
    for (size_t i = 0; i < n; i++)
        bad |= !(fabs(v[i]) < INFINITY);
    return bad == 0;
}

SPX_CLONES
static void copy_finite(const double *from, size_t n, double *to)
{
#pragma omp simd
    for (size_t i = 0; i < n; i++)
        to[i] = fabs(from[i]) < INFINITY ? from[i] : 0;
}

static void clean_rows(size_t nwave, size_t ndiag, double *resolution, double *ivar)
{
    for (size_t b = 0; b < ndiag; b++) {
        const long off = (long)(ndiag / 2) - (long)b; /* row = column - off */
        double *r = resolution + b * nwave;
        for (size_t c = all_finite(r, nwave) ? nwave : 0; c < nwave; c++) {
            const long row = (long)c - off;
            if (fabs(r[c]) < INFINITY)
                continue;
            r[c] = 0;
            if (row >= 0 && row < (long)nwave)
                ivar[(size_t)row] = 0;
        }
    }
}

/* Bounds the range of a target's ivar, as coadd.h says; how many bins were above it. */
static size_t bound_range(size_t n, double *ivar)
{
    enum { LEAST = -1100, MOST = 1100 };
    size_t some = 0, above = 0, over = 0, count[MOST - LEAST] = {0}; /* by powers of 2 */
    double least = INFINITY, most = 0;
    int power = MOST;
    for (size_t k = 0; k < n; k++)
        if (ivar[k] > 0 && ivar[k] < INFINITY) {
            least = fmin(least, ivar[k]);
            most = fmax(most, ivar[k]);
        }
    if (!(most > SPX_COADD_MOST_IVAR * least))
        return 0;
    for (size_t k = 0; k < n; k++)
        if (ivar[k] > 0 && ivar[k] < INFINITY) {
            count[ilogb(ivar[k]) - LEAST]++;
            some++;
        }
    while (SPX_COADD_LIT * above <= some)
        above += count[--power - LEAST];
    const double limit = ldexp(SPX_COADD_MOST_IVAR, power + 1), floor = ldexp(1 / SPX_COADD_MOST_IVAR, power);
    for (size_t k = 0; k < n; k++)
        if (ivar[k] > limit || ivar[k] < floor) {
            over += ivar[k] > limit;
            ivar[k] = 0;
        }
    return over;
}

void spx_coadd_clean(size_t ntarget, const size_t *first, size_t nwave, size_t ndiag, double *resolution, double *ivar,
                     int nthreads, spx_coadd_cleaned *n)
{
    size_t over = 0, wrong = 0;
#pragma omp parallel for num_threads(nthreads > 0 ? nthreads : 1) reduction(+ : over, wrong)
    for (size_t t = 0; t < ntarget; t++) {
        const int several = first[t + 1] - first[t] > 1;
        for (size_t i = first[t]; i < first[t + 1]; i++) {
            double *r = resolution != NULL ? resolution + i * ndiag * nwave : NULL, *w = ivar + i * nwave;
            clean_rows(nwave, ndiag, r, w);
            if (several && r != NULL && spx_resolution_is_wrong(spx_resolution_sum(nwave, ndiag, r, w))) {
                memset(r, 0, ndiag * nwave * sizeof *r);
                memset(w, 0, nwave * sizeof *w);
                wrong++;
            }
        }
        if (several)
            over += bound_range((first[t + 1] - first[t]) * nwave, ivar + first[t] * nwave);
    }
    n->over += over;
    n->wrong += wrong;
}

spx_status spx_coadd_begin(const spx_coadd_input *in, const spx_coadd_options *o, spx_coadd *out, spx_err *e)
{
    const size_t nexp = in->first[in->ntarget];
    if (in->ndiag > SPX_COADD_MOST_DIAGONALS)
        return spx_fail(e, SPX_EINPUT, "resolution matrices of %zu diagonals cannot be coadded: at most %d", in->ndiag,
                        SPX_COADD_MOST_DIAGONALS);
    if (in->ndiag == 0 && o->method == SPX_COADD_OPTIMAL)
        return spx_fail(e, SPX_EUSAGE,
                        "{coadd} optimal: the spectra have no resolution matrix: coadd them with {coadd} simple");
    const size_t least = in->ndiag, most = SPX_COADD_MOST_OUT;
    if (o->ndiag_out < least || o->ndiag_out > most || (in->ndiag == 0 && o->ndiag_out > 0) ||
        (o->ndiag_out != least && o->ndiag_out % 2 == 0))
        return spx_fail(e, SPX_EBUG, "coadd of %zu diagonals to %zu", in->ndiag, o->ndiag_out);
    out->ntarget = in->ntarget;
    out->nexp = nexp;
    out->nwave = in->nwave;
    out->ndiag = o->ndiag_out;
    size_t bins = 0;
    spx_status st = spx_mul(in->nwave, out->ndiag, &bins, e);
    if (st == SPX_OK && ((out->flux = spx_alloc_unset(in->ntarget, in->nwave, sizeof *out->flux, e)) == NULL ||
                         (out->ivar = spx_alloc_unset(in->ntarget, in->nwave, sizeof *out->ivar, e)) == NULL ||
                         (out->mask = spx_alloc_unset(in->ntarget, in->nwave, sizeof *out->mask, e)) == NULL ||
                         (out->optimal = spx_alloc(in->ntarget, sizeof *out->optimal, e)) == NULL ||
                         (out->spread = spx_alloc(in->ntarget, sizeof *out->spread, e)) == NULL ||
                         (out->scale = spx_alloc(nexp, sizeof *out->scale, e)) == NULL ||
                         (out->chi2 = spx_alloc(nexp, sizeof *out->chi2, e)) == NULL ||
                         (out->good = spx_alloc(nexp, sizeof *out->good, e)) == NULL ||
                         (out->rejected = spx_alloc(nexp, sizeof *out->rejected, e)) == NULL))
        st = SPX_EIO;
    if (st == SPX_OK && out->ndiag > 0 &&
        (out->resolution = spx_alloc_unset(in->ntarget, bins, sizeof *out->resolution, e)) == NULL)
        st = SPX_EIO;
    return st;
}

void spx_coadd_copy(const spx_coadd_input *in, size_t t, spx_coadd *out)
{
    const size_t n = in->nwave, i = in->first[t];
    const double *flux = in->flux + i * n, *ivar = in->ivar + i * n;
    out->good[i] = 0;
    for (size_t k = 0; k < n; k++) {
        const int good = fabs(flux[k]) < INFINITY && ivar[k] >= 0 && ivar[k] < INFINITY;
        const uint32_t mask = in->mask != NULL ? in->mask[i * n + k] : 0;
        out->flux[t * n + k] = good ? flux[k] : 0;
        out->ivar[t * n + k] = good ? ivar[k] : 0;
        out->mask[t * n + k] = mask != 0 || good ? mask : (uint32_t)SPX_COADD_NODATA;
        out->good[i] += spx_coadd_weight(flux[k], ivar[k], mask) > 0;
    }
    /* diagonals of the output that the input lacks: the first ones and the last ones */
    const size_t more = out->ndiag / 2 - in->ndiag / 2, end = more + in->ndiag;
    double *r = out->resolution != NULL ? out->resolution + t * out->ndiag * n : NULL;
    if (r != NULL) {
        memset(r, 0, more * n * sizeof *r);
        memset(r + end * n, 0, (out->ndiag - end) * n * sizeof *r);
    }
    if (r != NULL) /* elements without a row, too */
        copy_finite(in->resolution + i * in->ndiag * n, in->ndiag * n, r + more * n);
    out->scale[i] = 1;
    out->spread[t] = out->chi2[i] = 0;
    out->optimal[t] = 0;
    out->rejected[i] = 0;
}

void spx_coadd_free(spx_coadd *c)
{
    spx_free(c->flux);
    spx_free(c->ivar);
    spx_free(c->mask);
    spx_free(c->resolution);
    spx_free(c->optimal);
    spx_free(c->spread);
    spx_free(c->scale);
    spx_free(c->chi2);
    spx_free(c->good);
    spx_free(c->rejected);
    *c = (spx_coadd){0};
}
