/* Provides the extraction of simulated frames, and the solution of the same equations by dense algebra. */
#ifndef EXTRACT_SCENE_H
#define EXTRACT_SCENE_H

#include <lapacke.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "extract/trace/trace.h"
#include "extract_exposure.h"
#include "psf/spot_math.h"
#include "same_rows.h"

typedef struct {
    spx_frame frame;
    spx_extract_counts counts;
    spx_status status;
    spx_err e;
} result;

static inline int all_finite(size_t n, const double *v)
{
    for (size_t k = 0; k < n; k++)
        if (!isfinite(v[k]))
            return 0;
    return 1;
}

static inline result extract(const scene *s, int patch, const char *what)
{
    result r = {0};
    r.status = patch ? spx_extract_patch_cpu(&s->image, s->psf, &s->o, &r.frame, &r.counts, &r.e)
                     : spx_extract_trace_cpu(&s->image, s->psf, &s->o, &r.frame, &r.counts, &r.e);
    CHECK(r.status == SPX_OK, "%s: %s", what, spx_err_text(&r.e));
    if (r.status != SPX_OK)
        return r;
    const spx_frame *f = &r.frame;
    size_t nbin = f->nspec * f->arm.nwave, empty = 0;
    CHECK(f->nspec == s->o.nspec && f->arm.ndiag == (size_t)spx_psf_ny(s->psf), "%s: shape", what);
    CHECK(all_finite(nbin, f->arm.flux) && all_finite(nbin, f->arm.ivar) && all_finite(nbin, f->chi2pix) &&
              all_finite(nbin, f->pixmask_fraction) && all_finite(nbin * f->arm.ndiag, f->arm.resolution),
          "%s: not finite", what);
    for (size_t i = 0; i < nbin; i++) {
        int none = (f->arm.mask[i] & SPX_ALLBADPIX) != 0;
        empty += (size_t)none;
        CHECK(none == !(f->arm.ivar[i] > 0.0) && (!none || (f->arm.flux[i] == 0.0 && f->chi2pix[i] == 0.0)),
              "%s: bin %zu: flux %g, ivar %g, mask %u", what, i, f->arm.flux[i], f->arm.ivar[i], f->arm.mask[i]);
    }
    CHECK(r.counts.nbin == nbin && r.counts.nbin_empty == empty, "%s: counts", what);
    return r;
}

/* ---- against dense algebra ---- */

/* flux (per Angstrom), ivar, R and chi2pix of the fibres of one bundle, from all of M. The patch method takes the
 * square root of the inverse of C_s, and loses as many digits as C_s has condition: up to 12 beside masks. Here C_s^-1
 * comes from the Schur complement M_ss - M_so M_oo^-1 M_os, and keeps them; and the deconvolved flux is refined with
 * residuals of M in extended precision, for normal equations square the condition of A. */
typedef struct {
    double *flux, *ivar, *resolution, *chi2; /* [nspec][nwave], R as in the frame */
    double *largest;                         /* [nspec][nwave + 2 wave_pad] magnitude in a row of R */
} dense;

static inline dense dense_alloc(size_t nspec, size_t nwave, size_t pad, size_t ndiag)
{
    dense d = {.flux = spx_alloc2(nspec, nwave, sizeof(double), NULL),
               .ivar = spx_alloc2(nspec, nwave, sizeof(double), NULL),
               .resolution = spx_alloc2(nspec * nwave, ndiag, sizeof(double), NULL),
               .chi2 = spx_alloc2(nspec, nwave, sizeof(double), NULL)};
    if (d.flux && d.ivar && d.resolution && d.chi2) /* the last: there when all are */
        d.largest = spx_alloc2(nspec, nwave + 2 * pad, sizeof(double), NULL);
    return d;
}

static inline void dense_free(dense *d)
{
    spx_free(d->flux);
    spx_free(d->ivar);
    spx_free(d->resolution);
    spx_free(d->chi2);
    spx_free(d->largest);
}

typedef struct {
    spx_spot at;
    double spot[600], weight;
} column;

static inline double weight_of(const spx_image *im, long y, long x)
{
    size_t i = (size_t)y * im->nx + (size_t)x;
    if (!isfinite(im->data[i]) || !isfinite(im->ivar[i]) || im->ivar[i] < 0.0f || (im->mask && im->mask[i]))
        return 0.0;
    return (double)im->ivar[i];
}

static inline long double overlap(const scene *s, const column *a, const column *b, long y0, long y1)
{
    const long nx = spx_psf_nx(s->psf), ny = spx_psf_ny(s->psf);
    long double sum = 0.0L;
    for (long y = a->at.yc > b->at.yc ? a->at.yc : b->at.yc; y < a->at.yc + ny && y < b->at.yc + ny; y++)
        for (long x = a->at.xc > b->at.xc ? a->at.xc : b->at.xc; x < a->at.xc + nx && x < b->at.xc + nx; x++)
            if (y >= y0 && y < y1 && x >= 0 && x < (long)s->image.nx)
                sum += (long double)weight_of(&s->image, y, x) * a->spot[(y - a->at.yc) * nx + x - a->at.xc] *
                       b->spot[(y - b->at.yc) * nx + x - b->at.xc];
    return sum;
}

/* Lower Cholesky factor [n][n] by rows in place, in extended precision. 0: there is none. */
static inline int long_factor(size_t n, long double *l)
{
    for (size_t i = 0; i < n; i++)
        for (size_t j = 0; j <= i; j++) {
            const long double *a = l + i * n, *b = l + j * n;
            long double sum = a[j];
            for (size_t k = 0; k < j; k++)
                sum -= a[k] * b[k];
            if (i == j && !(sum > 0.0L))
                return 0;
            l[i * n + j] = i == j ? sqrtl(sum) : sum / b[j];
        }
    return 1;
}

/* v = L^-1 v, and L^-T v. */
static inline void long_forth(size_t n, const long double *l, long double *v)
{
    for (size_t i = 0; i < n; i++) {
        for (size_t k = 0; k < i; k++)
            v[i] -= l[i * n + k] * v[k];
        v[i] /= l[i * n + i];
    }
}

static inline void long_back(size_t n, const long double *l, long double *v)
{
    for (size_t i = n; i-- > 0;) {
        v[i] /= l[i * n + i];
        for (size_t k = 0; k < i; k++)
            v[k] -= l[i * n + k] * v[i];
    }
}

/* The same as dense_bundle() has by double precision, in extended precision, where M is not far from singular: x = M^-1
 * y. */
static inline int long_solve(size_t n, const long double *m, const long double *y, double *x)
{
    long double *l = spx_alloc2(n, n, sizeof *l, NULL), *v = spx_alloc(n, sizeof *v, NULL);
    int done = l && v;
    for (size_t i = 0; i < n * n && done; i++)
        l[i] = m[i];
    done = done && long_factor(n, l);
    for (size_t i = 0; i < n && done; i++)
        v[i] = y[i];
    if (done) {
        long_forth(n, l, v);
        long_back(n, l, v);
    }
    for (size_t i = 0; i < n && done; i++)
        x[i] = (double)v[i];
    spx_free(l);
    spx_free(v);
    return done;
}

/* The lower Cholesky factor of the Schur complement of bins s0 .. s0 + nb - 1, by columns as LAPACK has it: the last
 * block of that of M with these bins last. */
static inline int long_complement(size_t n, const long double *m, size_t s0, size_t nb, double *a)
{
    long double *l = spx_alloc2(n, n, sizeof *l, NULL);
    const size_t no = n - nb;
    int done = l != NULL;
    for (size_t i = 0; i < n && done; i++)
        for (size_t j = 0; j < n; j++) {
            const size_t row = i >= no ? s0 + i - no : i < s0 ? i : i + nb;
            const size_t col = j >= no ? s0 + j - no : j < s0 ? j : j + nb;
            l[i * n + j] = m[row * n + col];
        }
    done = done && long_factor(n, l);
    for (size_t i = 0; i < nb && done; i++)
        for (size_t j = 0; j < nb; j++)
            a[j * nb + i] = j <= i ? (double)l[(no + i) * n + no + j] : 0.0;
    spx_free(l);
    return done;
}

/* x = M^-1 y from the lower Cholesky factor of M in double precision, refined as long as that helps: the square of a
 * correction in units of the errors is its product with the residual. Returns the first correction as a fraction of x,
 * which is what double precision makes of these equations; INFINITY where the corrections do not become small. */
static inline double dense_solve(size_t n, const long double *m, const double *factor, const long double *y, double *x)
{
    double *step = spx_alloc(n, sizeof *step, NULL);
    long double *sum = spx_alloc(n, sizeof *sum, NULL), *rest = spx_alloc(n, sizeof *rest, NULL);
    long double last = INFINITY, size = INFINITY, all = 0.0L, first = 0.0L;
    for (int round = 0; step && sum && rest && round < 50 && (round < 2 || size < 0.5L * last); round++) {
        for (size_t i = 0; i < n; i++) {
            rest[i] = y[i];
            for (size_t j = 0; j < n; j++)
                rest[i] -= m[i * n + j] * sum[j];
            step[i] = (double)rest[i];
        }
        if (LAPACKE_dpotrs(LAPACK_COL_MAJOR, 'L', (lapack_int)n, 1, factor, (lapack_int)n, step, (lapack_int)n) != 0)
            break;
        last = size;
        size = 0.0L;
        for (size_t i = 0; i < n; i++) {
            size += fabsl(rest[i] * step[i]);
            sum[i] += step[i];
        }
        all = round == 0 ? size : all;
        first = round == 1 ? size : first;
    }
    for (size_t i = 0; i < n && sum; i++)
        x[i] = (double)sum[i];
    spx_free(step);
    spx_free(sum);
    spx_free(rest);
    return size <= 1e-24L * all ? sqrt((double)(first / all)) : INFINITY;
}

/* chi2pix of column `of`, from the model of all columns in the rows y0 .. y1 - 1 of the CCD. */
static inline double dense_chi2(const scene *s, const long double *model, const column *of, long y0, long y1)
{
    const long nx = spx_psf_nx(s->psf), ny = spx_psf_ny(s->psf), width = (long)s->image.nx;
    const long double psf_error = s->o.psf_error < 0.0 ? s->psf->psferr : s->o.psf_error;
    long double sum = 0.0L, seen = 0.0L;
    for (long y = of->at.yc > y0 ? of->at.yc : y0; y < of->at.yc + ny && y < y1; y++)
        for (long x = of->at.xc > 0 ? of->at.xc : 0; x < of->at.xc + nx && x < width; x++) {
            const double spot = of->spot[(y - of->at.yc) * nx + x - of->at.xc], w = weight_of(&s->image, y, x);
            const long double of_pixel = model[(y - y0) * width + x], error = psf_error * of_pixel;
            if (!(w > 0.0))
                continue;
            const long double rest = s->image.data[y * width + x] - of_pixel;
            sum += spot * rest * rest / (error * error + 1.0L / w);
            seen += spot;
        }
    return seen > 0.0L ? (double)(sum / seen) : 0.0;
}

static inline void dense_bundle(const scene *s, size_t fibre0, size_t nf, dense *out)
{
    const size_t nwave = spx_extract_nwave(&s->o), pad = s->o.wave_pad, nb = nwave + 2 * pad, n = nf * nb;
    const long nx = spx_psf_nx(s->psf), ny = spx_psf_ny(s->psf);
    column *c = spx_alloc(n, sizeof *c, NULL);
    double *m = spx_alloc2(n, n, sizeof *m, NULL), *oo = spx_alloc2(n, n, sizeof *oo, NULL);
    long double *exact = spx_alloc2(n, n, sizeof *exact, NULL), *y = spx_alloc(n, sizeof *y, NULL);
    long double *model = spx_alloc2(s->image.ny, s->image.nx, sizeof *model, NULL);
    double *os = spx_alloc2(n, nb, sizeof *os, NULL), *a = spx_alloc2(nb, nb, sizeof *a, NULL);
    double *q = spx_alloc2(nb, nb, sizeof *q, NULL), *x = spx_alloc(n, sizeof *x, NULL);
    double *root = spx_alloc(nb, sizeof *root, NULL), *norm = spx_alloc(nb, sizeof *norm, NULL);
    if (!c || !m || !oo || !exact || !y || !model || !os || !a || !q || !x || !root || !norm) {
        CHECK(0, "memory");
        return;
    }
    long in0 = 1 << 30, in1 = -in0, all0 = in0, all1 = -in0;
    for (size_t i = 0; i < n; i++) {
        double work[1000];
        long k = (long)(i % nb) - (long)pad;
        if (spx_psf_spot(s->psf, fibre0 + i / nb, spx_extract_lambda(&s->o, k), work, c[i].spot, &c[i].at) !=
            SPX_SPOT_OK) { /* no light: its column of A is 0 */
            memset(&c[i], 0, sizeof c[i]);
            continue;
        }
        all0 = c[i].at.yc < all0 ? c[i].at.yc : all0;
        all1 = c[i].at.yc + ny > all1 ? c[i].at.yc + ny : all1;
        if (k >= 0 && k < (long)nwave) {
            in0 = c[i].at.yc < in0 ? c[i].at.yc : in0;
            in1 = c[i].at.yc + ny > in1 ? c[i].at.yc + ny : in1;
        }
    }
    double fraction = s->o.pix_pad_frac, most = 0.0;
    long y0 = all0 + (long)((double)(in0 - all0) * (1.0 - fraction));
    long y1 = all0 + (long)((double)(in1 - all0) + (double)(all1 - in1) * fraction);
    y0 = y0 < 0 ? 0 : y0;
    y1 = y1 > (long)s->image.ny ? (long)s->image.ny : y1;
    for (size_t i = 0; i < n; i++) {
        for (long row = c[i].at.yc; row < c[i].at.yc + ny; row++)
            for (long col = c[i].at.xc; col < c[i].at.xc + nx; col++)
                if (row >= y0 && row < y1 && col >= 0 && col < (long)s->image.nx) {
                    const double spot = c[i].spot[(row - c[i].at.yc) * nx + col - c[i].at.xc];
                    const long double w = (long double)weight_of(&s->image, row, col) * spot;
                    c[i].weight += (double)w;
                    if (w > 0.0L)
                        y[i] += w * s->image.data[(size_t)row * s->image.nx + (size_t)col];
                }
        most = fmax(most, c[i].weight);
    }
    for (size_t i = 0; i < n; i++) {
        for (size_t j = 0; j <= i; j++)
            exact[i * n + j] = exact[j * n + i] = overlap(s, &c[i], &c[j], y0, y1);
        double alpha = c[i].weight < 1e-4 * most ? 1e-4 * most - c[i].weight : s->o.regularize;
        exact[i * n + i] += (long double)alpha * alpha + 1e-15L;
    }
    for (size_t i = 0; i < n * n; i++)
        oo[i] = m[i] = (double)exact[i];
    lapack_int info = LAPACKE_dpotrf(LAPACK_COL_MAJOR, 'L', (lapack_int)n, oo, (lapack_int)n);
    const int hard = info != 0 || !(dense_solve(n, exact, oo, y, x) < 1e-10);
    CHECK(!hard || long_solve(n, exact, y, x), "dense equations: %d", (int)info);
    for (size_t i = 0; i < n; i++)
        for (long row = c[i].at.yc > y0 ? c[i].at.yc : y0; row < c[i].at.yc + ny && row < y1; row++)
            for (long col = c[i].at.xc > 0 ? c[i].at.xc : 0; col < c[i].at.xc + nx && col < (long)s->image.nx; col++)
                model[(size_t)(row - y0) * s->image.nx + (size_t)col] +=
                    (long double)x[i] * c[i].spot[(row - c[i].at.yc) * nx + col - c[i].at.xc];
    for (size_t f = 0; f < nf; f++) {
        const size_t no = n - nb, s0 = f * nb;
        for (size_t j = 0; j < no && !hard; j++) {
            size_t jj = j < s0 ? j : j + nb;
            for (size_t i = 0; i < no; i++)
                oo[j * no + i] = m[jj * n + (i < s0 ? i : i + nb)];
            for (size_t k = 0; k < nb; k++)
                os[k * no + j] = m[jj * n + s0 + k];
        }
        info = 0;
        if (no > 0 && !hard) {
            info = LAPACKE_dpotrf(LAPACK_COL_MAJOR, 'L', (lapack_int)no, oo, (lapack_int)no);
            info |= LAPACKE_dtrtrs(LAPACK_COL_MAJOR, 'L', 'N', 'N', (lapack_int)no, (lapack_int)nb, oo, (lapack_int)no,
                                   os, (lapack_int)no);
        }
        for (size_t i = 0; i < nb && !hard; i++)
            for (size_t j = 0; j < nb; j++) {
                double sum = 0.0;
                for (size_t k = 0; k < no; k++)
                    sum += os[i * no + k] * os[j * no + k];
                a[i * nb + j] = m[(s0 + i) * n + s0 + j] - sum;
            }
        /* A = L L^T = U S^2 U^T with L = U S V^T by Jacobi rotations, which keep the digits of small eigenvalues */
        for (size_t j = 0; j < nb && !hard; j++)
            for (size_t i = 0; i < j; i++)
                a[j * nb + i] = 0.0;
        if (hard)
            info = !long_complement(n, exact, s0, nb, a);
        else
            info |= LAPACKE_dpotrf(LAPACK_COL_MAJOR, 'L', (lapack_int)nb, a, (lapack_int)nb);
        double stat[6] = {0};
        info |= LAPACKE_dgesvj(LAPACK_COL_MAJOR, 'L', 'U', 'N', (lapack_int)nb, (lapack_int)nb, a, (lapack_int)nb, root,
                               0, q, (lapack_int)nb, stat);
        CHECK(info == 0 && root[nb - 1] > 0.0, "dense square root: %d, %g", (int)info, root[nb - 1]);
        for (size_t i = 0; i < nb; i++) {
            norm[i] = 0.0;
            for (size_t j = 0; j < nb; j++) {
                double sum = 0.0;
                for (size_t k = 0; k < nb; k++)
                    sum += a[k * nb + i] * stat[0] * root[k] * a[k * nb + j];
                q[i * nb + j] = sum;
                norm[i] += sum;
            }
            double peak = 0.0;
            for (size_t j = 0; j < nb; j++)
                peak = fmax(peak, fabs(q[i * nb + j]));
            out->largest[(fibre0 + f - s->o.first) * nb + i] = peak / fabs(norm[i]);
        }
        for (size_t k = 0; k < nwave; k++) {
            size_t i = k + pad, row_of = fibre0 + f - s->o.first, at = row_of * nwave + k;
            double sum = 0.0;
            for (size_t j = 0; j < nb; j++)
                sum += q[i * nb + j] * x[s0 + j];
            out->flux[at] = sum / norm[i] / s->o.dw;
            out->ivar[at] = norm[i] * norm[i] * s->o.dw * s->o.dw;
            out->chi2[at] = dense_chi2(s, model, &c[s0 + i], y0, y1);
            for (long d = 0; d < ny; d++) {
                long row = (long)i + d - ny / 2;
                if (row >= 0 && row < (long)nb)
                    out->resolution[(row_of * (size_t)ny + (size_t)d) * nwave + k] =
                        q[(size_t)row * nb + i] / norm[row];
            }
        }
    }
    spx_free(c);
    spx_free(m);
    spx_free(exact);
    spx_free(y);
    spx_free(model);
    spx_free(oo);
    spx_free(os);
    spx_free(a);
    spx_free(q);
    spx_free(x);
    spx_free(root);
    spx_free(norm);
}

/* Whether a trace is flagged as a whole, as one is whose bins cannot be told apart. */
static inline int is_flagged(const spx_frame *f, size_t fibre)
{
    size_t k = 0;
    while (k < f->arm.nwave && (f->arm.mask[fibre * f->arm.nwave + k] & SPX_BAD2DFIT) != 0)
        k++;
    return k == f->arm.nwave;
}

/* flux (in units of its error), ivar and R within `limit` of dense algebra, chi2pix within the tolerance or 2e-8,
 * where `limit` is not smaller (1.2e-8 by the instructions of one processor, in narrow bins); pixmask_fraction and mask
 * against the patch method with one patch for everything. The limits are larger
 * - in proportion to the largest signal-to-noise ratio, of the fibre for the flux and of the bundle for chi2pix, where
 *   that is above a hundred: what is left out or rounded is a fraction of the deconvolved flux;
 * - where bins are so narrow that the tolerance is not reached, and the counts say so;
 * - in rows of R with elements above 1, in proportion to the largest: the sum of this row of Q, which divides it, has
 *   nearly cancelled (sixty times smaller than an element in scene 48 of test_extract_random).
 * Traces that are flagged as inexact may have any values. */
static inline void compare(const scene *s, double limit, const char *what)
{
    result a = extract(s, 0, what), p = extract(s, 1, what);
    const size_t nw = spx_extract_nwave(&s->o), nd = (size_t)spx_psf_ny(s->psf), n = s->o.nspec * nw;
    const size_t pad = s->o.wave_pad, nb = nw + 2 * pad, size = s->o.bundle_size;
    size_t other = 0;
    double flux = 0.0, ivar = 0.0, res = 0.0, chi2 = 0.0, fraction = 0.0;
    dense d = dense_alloc(s->o.nspec, nw, pad, nd);
    if (!d.largest || a.status != SPX_OK || p.status != SPX_OK)
        return;
    for (size_t f = 0; f < s->o.nspec; f += size)
        dense_bundle(s, s->o.first + f, f + size < s->o.nspec ? size : s->o.nspec - f, &d);
    double brightest[64] = {0.0}, bundle[64] = {0.0};
    CHECK(s->o.nspec <= 64, "%s: too many fibres", what);
    for (size_t i = 0; i < n && s->o.nspec <= 64; i++) {
        const double snr = fabs(d.flux[i]) * sqrt(d.ivar[i]);
        brightest[i / nw] = fmax(brightest[i / nw], 0.01 * snr);
        bundle[i / nw / size] = fmax(bundle[i / nw / size], 0.01 * snr);
    }
    for (size_t i = 0; i < n && s->o.nspec <= 64; i++) {
        const size_t f = i / nw, k = i % nw;
        fraction = fmax(fraction, fabs(a.frame.pixmask_fraction[i] - p.frame.pixmask_fraction[i]));
        if (a.counts.npatch_inexact > 0 && is_flagged(&a.frame, f)) /* of which patches may have no solution */
            continue;
        other += ((a.frame.arm.mask[i] ^ p.frame.arm.mask[i]) & SPX_ALLBADPIX) != 0;
        /* what is left of a bin with hardly a pixel is rounding */
        if (!(a.frame.arm.ivar[i] > 0.0) || a.frame.pixmask_fraction[i] > 0.99)
            continue;
        for (size_t r = 0; r < nd; r++) {
            const size_t at = (f * nd + r) * nw + k, row = k + r - nd / 2; /* beyond the grid: some large number */
            if (row < nw && a.frame.pixmask_fraction[f * nw + row] > 0.99)
                continue;
            const double scale = row + pad < nb ? fmax(1.0, d.largest[f * nb + row + pad]) : 1.0;
            res = fmax(res, fabs(a.frame.arm.resolution[at] - d.resolution[at]) / scale);
        }
        const double scale = fmax(1.0, d.largest[f * nb + k + pad]);
        flux = fmax(flux, fabs(a.frame.arm.flux[i] - d.flux[i]) * sqrt(d.ivar[i]) / fmax(1.0, brightest[f]) / scale);
        ivar = fmax(ivar, fabs(a.frame.arm.ivar[i] / d.ivar[i] - 1.0) / scale);
        chi2 = fmax(chi2, fabs(a.frame.chi2pix[i] - d.chi2[i]) / (1.0 + d.chi2[i]) / fmax(1.0, bundle[f / size]));
    }
    const double more = fmax(1.0, fmax(a.counts.tolerance, a.counts.rounding) / s->o.tolerance);
    CHECK(other == 0 && flux <= limit * more && ivar <= limit * more && res <= limit * more &&
              chi2 <= fmax(fmin(limit, 2e-8), s->o.tolerance) * more && fraction <= 1e-12,
          "seed %llu, %s, tolerance %.1g, reached %.1g: flux %.2g sigma, ivar %.2g, R %.2g, chi2pix %.2g, "
          "pixmask_fraction %.2g, mask in %zu bins",
          (unsigned long long)seed, what, s->o.tolerance, a.counts.tolerance, flux, ivar, res, chi2, fraction, other);
    spx_frame_free(&a.frame);
    spx_frame_free(&p.frame);
    dense_free(&d);
}

/* ---- against patches ---- */

/* Patches of 50 bins, all fibres of one of `groups` parts of a bundle in each, against whole traces: largest difference
 * in units of its error, of bins at most one bin and of bins at least 20 bins from a border, and where. What differs is
 * what the padding does not see. Left out are bins within REGULARISED bins of one that is regularised, of the same
 * fibre or the next: how much depends on the largest weight around, in the patch or in the bundle. */
enum { PATCH = 50, MIDDLE = 20, REGULARISED = 20 };

typedef struct {
    double border, middle;
    size_t border_at, middle_at; /* fibre times nwave plus bin */
    size_t bins;                 /* that were compared */
    result patches;
} difference;

static inline difference from_patches(const scene *s, const result *trace, size_t pad, size_t groups)
{
    scene patches = *s;
    patches.o.wave_step = PATCH;
    patches.o.wave_pad = pad;
    patches.o.pix_pad_frac = 0.8;
    patches.o.sub_bundles = groups;
    difference d = {.patches = extract(&patches, 1, "patches")};
    const long nw = (long)spx_extract_nwave(&s->o), ns = (long)s->o.nspec;
    for (long i = 0; trace->status == SPX_OK && d.patches.status == SPX_OK && i < ns * nw; i++) {
        const long f = i / nw, k = i % nw, first = k % PATCH, last = PATCH - 1 - first;
        int weak = 0;
        for (long g = f > 0 ? f - 1 : 0; g <= f + 1 && g < ns; g++)
            for (long j = k > REGULARISED ? k - REGULARISED : 0; j <= k + REGULARISED && j < nw; j++)
                weak |= trace->frame.pixmask_fraction[g * nw + j] > 0.95;
        if (weak)
            continue;
        const double by = fabs(d.patches.frame.arm.flux[i] - trace->frame.arm.flux[i]) * sqrt(trace->frame.arm.ivar[i]);
        d.bins++;
        if ((first < 2 || last < 2) && by > d.border) {
            d.border = by;
            d.border_at = (size_t)i;
        }
        if (first >= MIDDLE && last >= MIDDLE && by > d.middle) {
            d.middle = by;
            d.middle_at = (size_t)i;
        }
    }
    return d;
}

/* Bin `at` of a frame and those up to ten bins around it, of its fibre, by dense algebra of the fibres up to four
 * beside it in its bundle and 20 bins more: whole traces are within 1e-8 of the error there (of a hundredth of the
 * signal-to-noise ratio, where that is above a hundred). Returns by how much patches are off in the bin itself. */
static inline double check_around(const scene *s, const result *trace, const result *patches, size_t at,
                                  const char *what)
{
    enum { BINS = 10, MORE = 20, FIBRES = 4 };
    const size_t nw = spx_extract_nwave(&s->o), size = s->o.bundle_size, f = at / nw, k = at % nw;
    const size_t fibre = s->o.first + f, bundle0 = fibre / size * size;
    const size_t bundle1 = bundle0 + size < s->psf->nspec ? bundle0 + size : s->psf->nspec;
    const size_t f0 = fibre > bundle0 + FIBRES ? fibre - FIBRES : bundle0,
                 f1 = fibre + FIBRES < bundle1 ? fibre + FIBRES + 1 : bundle1;
    const size_t k0 = k > BINS + MORE ? k - BINS - MORE : 0, k1 = k + BINS + MORE < nw ? k + BINS + MORE : nw - 1;
    scene part = *s;
    part.o.first = f0;
    part.o.nspec = f1 - f0;
    part.o.wmin = spx_extract_lambda(&s->o, (long)k0);
    part.o.wmax = spx_extract_lambda(&s->o, (long)k1);
    const size_t pw = spx_extract_nwave(&part.o), nd = (size_t)spx_psf_ny(s->psf), n = part.o.nspec * pw;
    dense d = dense_alloc(part.o.nspec, pw, part.o.wave_pad, nd);
    if (!d.largest || pw != k1 - k0 + 1) {
        CHECK(0, "%s: memory, or %zu wavelengths", what, pw);
        return 0.0;
    }
    dense_bundle(&part, f0, part.o.nspec, &d);
    double worst = 0.0, off = 0.0;
    for (size_t j = k > BINS ? k - BINS : 0; j <= k + BINS && j < nw; j++) {
        const size_t i = (fibre - f0) * pw + j - k0;
        const double error = sqrt(d.ivar[i]), snr = fabs(d.flux[i]) * error;
        worst = fmax(worst, fabs(trace->frame.arm.flux[f * nw + j] - d.flux[i]) * error / fmax(1.0, 0.01 * snr));
        off = j == k ? fabs(patches->frame.arm.flux[at] - d.flux[i]) * error : off;
    }
    CHECK(n > 0 && worst <= 1e-8, "%s, fibre %zu, bin %zu: whole traces are %.2g sigma from dense algebra", what, fibre,
          k, worst);
    dense_free(&d);
    return off;
}

/* Where patches with a padding of 12, as the reference programs have it, in `groups` differ most from whole traces,
 * beside a border and in the middle, it is the patches that are off. */
static inline difference check_worst(const scene *s, size_t groups, const char *what)
{
    result trace = extract(s, 0, what);
    difference d = from_patches(s, &trace, 12, groups);
    if (trace.status == SPX_OK && d.patches.status == SPX_OK) {
        const double border = check_around(s, &trace, &d.patches, d.border_at, what);
        const double middle = check_around(s, &trace, &d.patches, d.middle_at, what);
        CHECK(d.bins > 100 && fabs(border - d.border) <= 1e-3 * d.border && fabs(middle - d.middle) <= 0.01 * d.middle,
              "%s: patches are %.3g and %.3g sigma from whole traces, but %.3g and %.3g from dense algebra", what,
              d.border, d.middle, border, middle);
    }
    spx_frame_free(&trace.frame);
    spx_frame_free(&d.patches.frame);
    return d;
}

static inline void add_masks(scene *s)
{
    const size_t nx = s->image.nx;
    for (size_t y = 0; y < s->image.ny; y++) {
        s->image.mask[y * nx + 19] |= y > 10 && y < 40 ? 2u : 0u; /* dead column on a trace */
        for (size_t x = 0; x < nx; x++) {
            s->image.mask[y * nx + x] |= y >= 50 && y < 64 ? 16u : 0u;                     /* gap over all traces */
            s->image.mask[y * nx + x] |= y >= 22 && y < 34 && x >= 30 && x < 36 ? 8u : 0u; /* saturated block */
            s->image.mask[y * nx + x] |= (7 * y + 3 * x) % 151 == 0 ? 64u : 0u;            /* cosmic rays */
        }
    }
    s->image.data[20 * nx + 9] = NAN;
    s->image.ivar[30 * nx + 25] = -1.0f;
}

/* The part x0..x1-1, y0..y1-1 of a scene's image, with the traces moved along, as a scene of its own; `shape` is that
 * of its PSF. Free with free_scene(). */
static inline scene cut_scene(const scene *s, const small_psf_shape *shape, size_t x0, size_t x1, size_t y0, size_t y1)
{
    const size_t nx = x1 - x0, ny = y1 - y0;
    scene cut = {.psf = small_psf(shape), .image = {.ny = ny, .nx = nx}, .o = s->o};
    cut.image.data = spx_alloc2(ny, nx, sizeof(float), NULL);
    cut.image.ivar = spx_alloc2(ny, nx, sizeof(float), NULL);
    CHECK(cut.psf && cut.image.data && cut.image.ivar, "memory");
    if (!cut.psf || !cut.image.data || !cut.image.ivar)
        return cut;
    for (size_t f = 0; f < shape->nspec; f++) {
        cut.psf->x.coef[f * shape->ncoef] -= (double)x0;
        cut.psf->y.coef[f * shape->ncoef] -= (double)y0;
    }
    for (size_t y = y0; y < y1; y++)
        for (size_t x = x0; x < x1; x++) {
            cut.image.data[(y - y0) * nx + x - x0] = s->image.data[y * s->image.nx + x];
            cut.image.ivar[(y - y0) * nx + x - x0] = s->image.ivar[y * s->image.nx + x];
        }
    return cut;
}

#endif
