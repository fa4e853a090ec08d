/* Provides shifts and widths across the traces (shift/shift.h, part X): windows, the smooth fit, the moved PSF. */
#include <math.h>
#include <omp.h>
#include <string.h>

#include "base/mem.h"
#include "calib/bordered.h"
#include "calib/clones.h"
#include "num/stat.h"
#include "psf/psf.h"
#include "psf/psf_math.h"
#include "shift/shift.h"

/* Fibres whose light is looked at for the choice of windows. */
enum { SAMPLES = 40 };

/* Steps at most, halved ones too, and a step that needs no other: the error that is left is about its square. */
enum { MOST_STEPS = 12 };
#define SMALL_STEP 0.02

/* Priors: of coefficients and of bundles' offsets, pixels; of widths, relative. Of a width that is not free. */
#define PRIOR_SHIFT        0.5
#define PRIOR_WIDTH        0.1
#define PRIOR_BUNDLE       0.01
#define PRIOR_BUNDLE_WIDTH 0.005
#define NOT_FREE           1e-9

/* Fraction of chi^2 by which a step may raise it: one that raises it by more is halved. */
#define RAISED 1e-5
/* A fibre has light when the error of its shift, by its own windows, is below this, pixels. */
#define LIT 0.1
/* A shift that is known worse than this is not applied, pixels. */
#define KNOWN 0.1
/* Factor of chi^2 of the image by which it is worse: hits of particles make it vary by less. */
#define WORSE 1.02
/* chi^2 of two degrees of freedom beyond which a window is left out (its probability is 5e-5), and the most of them. */
#define REJECT      20.0
#define MOST_REJECT 0.5
/* Fibres for each degree of the function of fibres, unless the degree is asked for. */
#define FIBRES_A_TERM 12

typedef struct {
    const spx_shift_options *o;
    size_t ns, nw, nb, nl, nm, smooth,
        n; /* smooth = nl nm functions; n = 2 (smooth + nb) coefficients of shift, width */
    spx_motion_row *row;
    spx_motion_fit *fit;
    double *first, *last;
    double *total, *step, *prior; /* [n] coefficients so far, this step, variances a priori */
    double *normal, *right;       /* [n][n] lower triangle, [n] */
    double *phi;                  /* [2][smooth] */
    uint8_t *use;                 /* [nw][ns] */
    double usual;                 /* median chi^2 of windows about the smooth functions over its expectation */
} work;

static void free_work(work *w)
{
    spx_free(w->row);
    spx_free(w->fit);
    spx_free(w->first);
    spx_free(w->total);
    spx_free(w->normal);
    spx_free(w->use);
}

/* Smooth functions of fibre f at a wavelength: phi[smooth]. The fibre has its bundle's offset besides. */
static void basis(const work *w, size_t f, double wavelength, double *phi)
{
    double p[16], q[16];
    spx_legendre_basis(w->nl, spx_psf_u(w->o->wmin, w->o->wmax, wavelength), p);
    spx_legendre_basis(w->nm, w->ns > 1 ? 2 * (double)f / (double)(w->ns - 1) - 1 : 0, q);
    for (size_t l = 0; l < w->nl; l++)
        for (size_t m = 0; m < w->nm; m++)
            phi[l * w->nm + m] = p[l] * q[m];
}

/* Index of the offset of fibre f's bundle, of shifts (q = 0) or widths (q = 1), in the order of the product; those of
 * smooth functions are before, q smooth + i. */
static size_t offset_of(const work *w, size_t q, size_t f)
{
    return 2 * w->smooth + q * w->nb + f / w->o->bundle_size;
}

/* ---- windows ---- */

/* Information on a shift that the light of some fibres has at each bin, in arbitrary units: squares of the signal in
 * three pixels around the trace over its variance. info[n]. */
static void sample_light(const spx_image *im, const spx_psf *psf, const spx_shift_options *o, size_t n, double *info)
{
    const size_t every = psf->nspec / SAMPLES + 1;
#pragma omp parallel for num_threads(o->nthreads > 0 ? o->nthreads : omp_get_max_threads())
    for (size_t k = 0; k < n; k++)
        for (size_t f = every / 2; f < psf->nspec; f += every) {
            const double lambda = o->wmin + (double)k * o->dw;
            const double x = floor(spx_psf_series_value(&psf->x, f, lambda) + 0.5);
            const double y = floor(spx_psf_series_value(&psf->y, f, lambda) + 0.5);
            double signal = 0, variance = 0;
            if (!(x >= 1 && y >= 0 && x + 1 < (double)im->nx && y < (double)im->ny))
                continue;
            const size_t at = (size_t)y * im->nx + (size_t)x - 1;
            for (size_t i = at; i < at + 3; i++) {
                const int good = im->ivar[i] > 0 && isfinite(im->ivar[i]) && isfinite(im->data[i]) &&
                                 (im->mask == NULL || im->mask[i] == 0);
                signal += good ? (double)im->data[i] : 0;
                variance += good ? 1 / (double)im->ivar[i] : 0;
            }
            info[k] += variance > 0 && signal > 0 ? signal * signal / variance : 0;
        }
}

/* Bin at the border of parts of the range that are narrow at its ends, -cos(pi i/nw): between the extrema of a
 * Chebyshev polynomial, as a function that is smooth is best measured near the ends. */
static size_t border(size_t n, size_t i, size_t nw)
{
    return (size_t)(0.5 * (1 - cos(M_PI * (double)i / (double)nw)) * (double)n + 0.5);
}

/* Windows of `length` bins, one in each of nw parts of the range: where the light tells most. */
static spx_status place_windows(const spx_image *im, const spx_psf *psf, work *w, spx_err *e)
{
    const spx_shift_options *o = w->o;
    const size_t n = (size_t)((o->wmax - o->wmin) / o->dw + 0.5) + 1;
    size_t length = (size_t)(o->window / o->dw + 0.5) + 1;
    double *info = spx_alloc(n + 1, sizeof *info, e);
    if (info == NULL)
        return SPX_EIO;
    sample_light(im, psf, o, n, info + 1);
    for (size_t k = 0; k < n; k++) /* of the bins before k */
        info[k + 1] += info[k];
    length = length < border(n, 1, w->nw) ? length : border(n, 1, w->nw);
    length = length > 0 ? length : 1;
    for (size_t i = 0; i < w->nw; i++) {
        const size_t from = border(n, i, w->nw), to = border(n, i + 1, w->nw);
        size_t best = to - from > length ? from + (to - from - length) / 2 : from;
        for (size_t k = from; k + length <= to; k++)
            if (info[k + length] - info[k] > 1.001 * (info[best + length] - info[best]))
                best = k;
        w->first[i] = o->wmin + (double)best * o->dw;
        w->last[i] = w->first[i] + (double)(length - 1) * o->dw;
    }
    spx_free(info);
    return SPX_OK;
}

/* ---- the smooth fit ---- */

/* to[j] += a x[j] + b y[j], j < n. */
SPX_CLONES static void add_both(size_t n, double a, const double *x, double b, const double *y, double *to)
{
    for (size_t j = 0; j < n; j++)
        to[j] += a * x[j] + b * y[j];
}

/* Adds a window of fibre f to the lower triangle: F (2 x 2), and that with the next fibre; phi, psi: functions of both.
 */
static void add_window(work *w, size_t f, const double own[4], const double next[4], const double *phi,
                       const double *psi)
{
    const size_t n = w->smooth;
    for (size_t q = 0; q < 2; q++)
        for (size_t r = 0; r <= q; r++) {
            const double o = own[2 * q + r], a = next[2 * q + r], b = next[2 * r + q];
            double *to = w->normal + q * n * w->n + r * n;
            for (size_t i = 0; i < n; i++) /* o phi phi^T + a phi psi^T + b psi phi^T */
                add_both(q == r ? i + 1 : n, o * phi[i] + b * psi[i], phi, a * phi[i], psi, to + i * w->n);
            w->normal[offset_of(w, q, f) * w->n + offset_of(w, r, f)] += o + a + b;
        }
    for (size_t q = 0; q < 2; q++)
        for (size_t r = 0; r < 2; r++)
            add_both(n, own[2 * q + r] + next[2 * r + q], phi, next[2 * q + r], psi,
                     w->normal + offset_of(w, q, f) * w->n + r * n);
}

/* Normal equations of a step, the prior of all so far included; right[n]. */
static void sum_up(work *w)
{
    memset(w->normal, 0, w->n * w->n * sizeof *w->normal);
    for (size_t i = 0; i < w->n; i++) {
        w->normal[i * w->n + i] = 1 / w->prior[i];
        w->right[i] = -w->total[i] / w->prior[i];
    }
    double *phi = w->phi, *psi = w->phi + w->smooth;
    for (size_t k = 0; k < w->nw; k++)
        for (size_t f = 0; f < w->ns; f++) {
            const spx_motion_row *r = &w->row[k * w->ns + f];
            static const double none[4];
            if (!w->use[k * w->ns + f])
                continue;
            const double own[4] = {r->fisher[0], r->fisher[1], r->fisher[1], r->fisher[2]};
            const int next = f + 1 < w->ns && (f + 1) % w->o->bundle_size != 0 && w->use[k * w->ns + f + 1];
            basis(w, f, r->wavelength, phi);
            if (next)
                basis(w, f + 1, w->row[k * w->ns + f + 1].wavelength, psi);
            add_window(w, f, own, next ? r->next : none, phi, next ? psi : phi);
            for (size_t q = 0; q < 2; q++) {
                for (size_t i = 0; i < w->smooth; i++)
                    w->right[q * w->smooth + i] += r->gradient[q] * phi[i];
                w->right[offset_of(w, q, f)] += r->gradient[q];
            }
        }
}

/* Shift and width of fibre f by coefficients c, its functions phi. */
static void value_of(const work *w, const double *c, size_t f, const double *phi, double out[2])
{
    for (size_t q = 0; q < 2; q++) {
        out[q] = c[offset_of(w, q, f)];
        for (size_t i = 0; i < w->smooth; i++)
            out[q] += c[q * w->smooth + i] * phi[i];
    }
}

/* The same at a wavelength; phi: room for its functions. */
static void value(const work *w, const double *c, size_t f, double wavelength, double *phi, double out[2])
{
    basis(w, f, wavelength, phi);
    value_of(w, c, f, phi, out);
}

/* g - F step: what a window has left against the smooth function. chi^2 of it, for two degrees of freedom. */
static double window_chi2(const spx_motion_row *r, const double step[2], double rest[2])
{
    const double determinant = r->fisher[0] * r->fisher[2] - r->fisher[1] * r->fisher[1];
    rest[0] = r->gradient[0] - r->fisher[0] * step[0] - r->fisher[1] * step[1];
    rest[1] = r->gradient[1] - r->fisher[1] * step[0] - r->fisher[2] * step[1];
    if (!(determinant > 1e-12 * r->fisher[0] * r->fisher[2]))
        return rest[0] * rest[0] / r->fisher[0];
    return (rest[0] * rest[0] * r->fisher[2] - 2 * rest[0] * rest[1] * r->fisher[1] +
            rest[1] * rest[1] * r->fisher[0]) /
           determinant;
}

/* Solves for the step; 0 where the matrix is not positive definite, which its prior does not allow. */
static int solve(work *w)
{
    memcpy(w->step, w->right, w->n * sizeof *w->step);
    if (!spx_small_factor(w->n, w->normal))
        return 0;
    spx_small_solve(w->n, w->normal, w->step);
    return 1;
}

/* Leaves windows out that do not agree with the smooth function: hit by a particle, or beside a star's ghost. Returns
 * whether there are new ones. */
static spx_status reject(work *w, spx_shift *out, int *again, spx_err *e)
{
    double *chi2 = spx_alloc(w->nw * w->ns, sizeof *chi2, e);
    size_t n = 0;
    *again = 0;
    if (chi2 == NULL)
        return SPX_EIO;
    out->chi2_smooth = 0;
    out->nwindow_used = out->nwindow_rejected = 0;
    for (size_t i = 0; i < w->nw * w->ns; i++) {
        double step[2], rest[2];
        if (!(w->row[i].fisher[0] > 0))
            continue;
        value(w, w->step, i % w->ns, w->row[i].wavelength, w->phi, step);
        chi2[n++] = window_chi2(&w->row[i], step, rest);
    }
    const size_t nlit = n;
    w->usual = nlit > 0 ? spx_median(chi2, nlit) / 1.386 : 1; /* median of two degrees of freedom */
    const double limit = REJECT * (w->usual > 1 ? w->usual : 1);
    n = 0;
    for (size_t i = 0; i < w->nw * w->ns; i++) {
        double step[2], rest[2];
        if (!(w->row[i].fisher[0] > 0))
            continue;
        value(w, w->step, i % w->ns, w->row[i].wavelength, w->phi, step);
        const double here = window_chi2(&w->row[i], step, rest);
        const int keep = !(here > limit);
        n += !keep;
        *again |= keep != w->use[i];
        if (keep) {
            out->chi2_smooth += here;
            out->nwindow_used++;
        }
    }
    out->nwindow_rejected = n;
    if ((double)n > MOST_REJECT * (double)nlit) { /* then it is the smooth function that is wrong */
        *again = 0;
        out->nwindow_rejected = 0;
    }
    for (size_t i = 0; i < w->nw * w->ns && *again; i++) {
        double step[2], rest[2];
        if (!(w->row[i].fisher[0] > 0))
            continue;
        value(w, w->step, i % w->ns, w->row[i].wavelength, w->phi, step);
        w->use[i] = !(window_chi2(&w->row[i], step, rest) > limit);
    }
    spx_free(chi2);
    return SPX_OK;
}

/* ---- the PSF ---- */

spx_status spx_shift_psf_copy(const spx_psf *from, spx_psf *to, spx_err *e)
{
    *to = (spx_psf){0};
    const spx_status st =
        spx_psf_require(from, 0, "the fit of shifts", "extract with the PSF as it is, or make one of this exposure", e);
    return st == SPX_OK ? spx_psf_copy(from, to, e) : st;
}

void spx_shift_add_series(size_t n, double *c, double wmin, double wmax, size_t use, size_t m, const double *lambda,
                          const double *y)
{
    double p[16], g[256], x[16];
    use = use > n ? n : use > 16 ? 16 : use;
    for (; use > 0; use--) {
        memset(g, 0, sizeof g);
        memset(x, 0, sizeof x);
        for (size_t k = 0; k < m; k++) {
            spx_legendre_basis(use, spx_psf_u(wmin, wmax, lambda[k]), p);
            for (size_t i = 0; i < use; i++) {
                x[i] += p[i] * y[k];
                for (size_t j = 0; j <= i; j++)
                    g[i * use + j] += p[i] * p[j];
            }
        }
        if (!spx_small_factor(use, g)) /* a range so short that higher terms are all alike */
            continue;
        spx_small_solve(use, g, x);
        for (size_t i = 0; i < use; i++)
            c[i] += x[i];
        return;
    }
}

/* Wavelengths that polynomials are compared at: enough for degree 15. */
enum { NODES = 33 };

/* psf: that of before, moved by all coefficients so far. moves[ns]: 0 leaves a fibre where it was. */
static void move(const work *w, const spx_psf *from, const double *coef, const uint8_t *moves, spx_psf *psf)
{
    double lambda[NODES], dx[NODES], ds[NODES], at[2];
    for (size_t k = 0; k < NODES; k++)
        lambda[k] = w->o->wmin + (w->o->wmax - w->o->wmin) * (double)k / (NODES - 1);
    memcpy(psf->x.coef, from->x.coef, from->nspec * from->x.ncoef * sizeof *psf->x.coef);
    const size_t sigx = (size_t)psf->sigx * psf->nspec * psf->ndeg;
    memcpy(psf->coeff + sigx, from->coeff + sigx, from->nspec * from->ndeg * sizeof *psf->coeff);
    for (size_t f = 0; f < w->ns; f++) {
        const double *old = from->coeff + sigx + f * from->ndeg;
        if (!moves[f])
            continue;
        for (size_t k = 0; k < NODES; k++) {
            value(w, coef, f, lambda[k], w->phi, at);
            dx[k] = at[0];
            ds[k] = at[1] * spx_legendre_sum(from->ndeg, old, spx_psf_u(from->wmin, from->wmax, lambda[k]));
        }
        spx_shift_add_series(psf->x.ncoef, psf->x.coef + f * psf->x.ncoef, psf->x.wmin, psf->x.wmax, w->nl, NODES,
                             lambda, dx);
        if (w->o->width)
            spx_shift_add_series(psf->ndeg, psf->coeff + sigx + f * psf->ndeg, psf->wmin, psf->wmax, psf->ndeg, NODES,
                                 lambda, ds);
    }
}

/* ---- all ---- */

static spx_status make_work(const spx_image *im, const spx_psf *psf, const spx_shift_options *o, work *w, spx_err *e)
{
    *w = (work){.o = o, .ns = psf->nspec, .nw = o->nwindow};
    if (!(o->wmax > o->wmin && o->dw > 0) || o->bundle_size == 0 || o->nwindow == 0 || !(o->window >= o->dw) ||
        o->degree_wave > 9 || o->degree_fibre > 15)
        return spx_fail(e, SPX_EUSAGE,
                        "%zu windows of %g Angstrom between %g and %g, functions of degrees %d and %d: nothing to "
                        "measure",
                        o->nwindow, o->window, o->wmin, o->wmax, o->degree_wave, o->degree_fibre);
    w->nb = (psf->nspec + o->bundle_size - 1) / o->bundle_size;
    const size_t bears = 1 + psf->nspec / FIBRES_A_TERM;
    w->nl = o->degree_wave < 0 ? 4 : (size_t)o->degree_wave + 1;
    w->nl = w->nl < o->nwindow ? w->nl : o->nwindow;
    w->nl = w->nl < psf->x.ncoef ? w->nl : psf->x.ncoef;
    w->nm = o->degree_fibre < 0 ? (bears < 7 ? bears : 7) + 1 : (size_t)o->degree_fibre + 1;
    w->nm = w->nm < psf->nspec ? w->nm : psf->nspec;
    w->smooth = w->nl * w->nm;
    w->n = 2 * (w->smooth + w->nb);
    const size_t rows = w->nw * w->ns;
    w->row = spx_alloc(rows, sizeof *w->row, e);
    w->fit = spx_alloc(w->nw * w->nb, sizeof *w->fit, e);
    w->first = spx_alloc(2 * w->nw, sizeof *w->first, e);
    w->total = spx_alloc(5 * w->n, sizeof *w->total, e);
    w->normal = spx_alloc2(w->n, w->n, sizeof *w->normal, e);
    w->use = spx_alloc(rows, 1, e);
    if (!w->row || !w->fit || !w->first || !w->total || !w->normal || !w->use)
        return SPX_EIO;
    w->last = w->first + w->nw;
    w->step = w->total + w->n;
    w->prior = w->step + w->n;
    w->right = w->prior + w->n;
    w->phi = w->right + w->n;
    for (size_t i = 0; i < w->n; i++) {
        const int offset = i >= 2 * w->smooth, q = i >= (offset ? 2 * w->smooth + w->nb : w->smooth);
        const double error = q == 0     ? offset ? PRIOR_BUNDLE : PRIOR_SHIFT
                             : o->width ? offset ? PRIOR_BUNDLE_WIDTH : PRIOR_WIDTH
                                        : NOT_FREE;
        w->prior[i] = error * error;
    }
    return place_windows(im, psf, w, e);
}

/* Measures the windows of a PSF, and the step that they ask for. *largest: of it, over all fibres and windows. */
static spx_status one_step(work *w, spx_shift_measure *measure, void *ctx, const spx_image *image, const spx_psf *psf,
                           spx_shift *out, double *largest, double *chi2, spx_err *e)
{
    const spx_motion_options m = {w->nw, w->first, w->last, w->o->dw, w->o->bundle_size, w->o->nthreads};
    spx_status st = measure(ctx, image, psf, &m, w->row, w->fit, e);
    *chi2 = *largest = out->dof = 0;
    for (size_t i = 0; i < w->nw * w->nb && st == SPX_OK; i++) {
        *chi2 += w->fit[i].chi2;
        out->dof += w->fit[i].npix - w->fit[i].nflux;
    }
    for (size_t i = 0; i < w->nw * w->ns && st == SPX_OK; i++)
        w->use[i] = w->row[i].fisher[0] > 0;
    for (int round = 0, again = 1; round < 4 && again && st == SPX_OK; round++) {
        sum_up(w);
        if (!solve(w))
            return spx_fail(e, SPX_EBUG, "the smooth fit of the shifts has no solution");
        st = reject(w, out, &again, e);
    }
    for (size_t i = 0; i < w->nw * w->ns && st == SPX_OK; i++) {
        double at[2];
        value(w, w->step, i % w->ns, w->row[i].wavelength, w->phi, at);
        *largest = fmax(*largest, fmax(fabs(at[0]), fabs(at[1])));
    }
    return st;
}

/* chi^2 of the image that the last step, which is not measured again, takes off. */
static double gain(work *w)
{
    double sum = 0, step[2], next[2];
    for (size_t k = 0; k < w->nw; k++)
        for (size_t f = 0; f < w->ns; f++) {
            const spx_motion_row *r = &w->row[k * w->ns + f];
            if (!w->use[k * w->ns + f])
                continue;
            value(w, w->step, f, r->wavelength, w->phi, step);
            sum += 2 * (r->gradient[0] * step[0] + r->gradient[1] * step[1]) - r->fisher[0] * step[0] * step[0] -
                   2 * r->fisher[1] * step[0] * step[1] - r->fisher[2] * step[1] * step[1];
            if (f + 1 < w->ns && (f + 1) % w->o->bundle_size != 0 && w->use[k * w->ns + f + 1]) {
                value(w, w->step, f + 1, w->row[k * w->ns + f + 1].wavelength, w->phi, next);
                sum -= 2 * (step[0] * (r->next[0] * next[0] + r->next[1] * next[1]) +
                            step[1] * (r->next[2] * next[0] + r->next[3] * next[1]));
            }
        }
    return sum;
}

static spx_status alloc_out(const work *w, const spx_psf *psf, spx_shift *out, spx_err *e)
{
    const size_t at = w->ns * SPX_SHIFT_PLACES, windows = w->ns * w->nw;
    double **const places[] = {&out->dx, &out->dx_error, &out->width_x, &out->width_x_error,
                               &out->dy, &out->dy_error, &out->width_y, &out->width_y_error};
    double **const local[] = {&out->window_wavelength, &out->window_dx, &out->window_dx_error, &out->window_width_x,
                              &out->window_width_x_error};
    spx_status st = SPX_OK;
    for (size_t i = 0; i < sizeof places / sizeof *places && st == SPX_OK; i++)
        st = (*places[i] = spx_alloc(at, sizeof(double), e)) == NULL ? SPX_EIO : SPX_OK;
    for (size_t i = 0; i < sizeof local / sizeof *local && st == SPX_OK; i++)
        st = (*local[i] = spx_alloc(windows, sizeof(double), e)) == NULL ? SPX_EIO : SPX_OK;
    if (st == SPX_OK && ((out->wavelength = spx_alloc(SPX_SHIFT_PLACES, sizeof(double), e)) == NULL ||
                         (out->flags = spx_alloc(w->ns, sizeof *out->flags, e)) == NULL ||
                         (out->coef = spx_alloc(w->n, sizeof(double), e)) == NULL ||
                         (out->covariance = spx_alloc2(w->n, w->n, sizeof(double), e)) == NULL))
        st = SPX_EIO;
    out->nspec = w->ns;
    out->nplace = SPX_SHIFT_PLACES;
    memcpy(out->camera, psf->camera, sizeof out->camera);
    out->wmin = w->o->wmin;
    out->wmax = w->o->wmax;
    out->nterm_wave = w->nl;
    out->nterm_fibre = w->nm;
    out->nbundle = w->nb;
    out->ncoef = w->n;
    out->nwindow = w->nw;
    for (size_t k = 0; k < SPX_SHIFT_PLACES && st == SPX_OK; k++)
        out->wavelength[k] = out->wmin + (out->wmax - out->wmin) * (double)k / (SPX_SHIFT_PLACES - 1);
    return st;
}

/* Covariance of all coefficients from the factor, enlarged where windows or pixels scatter more than they should. */
static void fill_covariance(const work *w, spx_shift *out)
{
    const size_t free = (w->o->width ? 2 : 1) * w->nl * w->nm;
    out->dof_smooth = 2 * (double)out->nwindow_used - (double)free;
    /* the median: a hit by a particle is no reason; chi2 of the image: spots may be unlike those of the PSF */
    const double more = fmax(fmax(1, w->usual), out->dof > 0 ? out->chi2_after / out->dof : 1);
    for (size_t i = 0; i < w->n; i++) {
        double *to = out->covariance + i * w->n;
        to[i] = 1;
        spx_small_solve(w->n, w->normal, to);
        for (size_t j = 0; j < w->n; j++)
            to[j] *= more;
    }
}

/* Error of shift (q = 0) or width of fibre f, its functions phi. */
static double error_of(const work *w, const double *covariance, size_t q, size_t f, const double *phi)
{
    const size_t n = w->smooth, offset = offset_of(w, q, f);
    const double *row = covariance + offset * w->n + q * n;
    double sum = covariance[offset * w->n + offset];
    for (size_t i = 0; i < n; i++) {
        double here = 2 * row[i] + phi[i] * covariance[(q * n + i) * w->n + q * n + i];
        for (size_t j = 0; j < i; j++)
            here += 2 * phi[j] * covariance[(q * n + i) * w->n + q * n + j];
        sum += phi[i] * here;
    }
    return sum > 0 ? sqrt(sum) : 0;
}

/* Errors at the places of the product. */
static void fill_errors(const work *w, spx_shift *out)
{
    for (size_t f = 0; f < w->ns; f++)
        for (size_t k = 0; k < SPX_SHIFT_PLACES; k++) {
            const size_t at = f * SPX_SHIFT_PLACES + k;
            basis(w, f, out->wavelength[k], w->phi);
            out->dx_error[at] = error_of(w, out->covariance, 0, f, w->phi);
            out->width_x_error[at] = w->o->width ? error_of(w, out->covariance, 1, f, w->phi) : 0;
        }
}

/* Shifts of single windows, which are measured from the traces of the last step, as shifts of the traces before it. */
static void fill_windows(const work *w, const double *before, spx_shift *out)
{
    for (size_t f = 0; f < w->ns; f++)
        for (size_t k = 0; k < w->nw; k++) {
            const spx_motion_row *r = &w->row[k * w->ns + f];
            double at[2];
            const double xx = r->fisher[0] + 1 / (PRIOR_SHIFT * PRIOR_SHIFT), xs = r->fisher[1];
            const double ss = r->fisher[2] + 1 / (PRIOR_WIDTH * PRIOR_WIDTH), determinant = xx * ss - xs * xs;
            value(w, before, f, r->wavelength, w->phi, at);
            const size_t to = f * w->nw + k;
            out->window_wavelength[to] = r->wavelength;
            out->window_dx[to] = at[0] + (ss * r->gradient[0] - xs * r->gradient[1]) / determinant;
            out->window_width_x[to] = at[1] + (xx * r->gradient[1] - xs * r->gradient[0]) / determinant;
            out->window_dx_error[to] = sqrt(ss / determinant);
            out->window_width_x_error[to] = sqrt(xx / determinant);
        }
}

/* Flags, and which fibres move. */
static void judge(const work *w, spx_shift *out, uint8_t *moves)
{
    for (size_t f = 0; f < w->ns; f++) {
        double info = 0;
        for (size_t k = 0; k < w->nw; k++) {
            const double *h = w->row[k * w->ns + f].fisher;
            info += w->use[k * w->ns + f] && h[2] > 0 ? h[0] - h[1] * h[1] / h[2] : 0;
        }
        out->flags[f] = info * LIT * LIT > 1 ? 0 : SPX_SHIFT_NOLIGHT;
    }
    for (size_t f = 0; f < w->ns; f++) {
        const size_t b = f / w->o->bundle_size, end = (b + 1) * w->o->bundle_size;
        int lit = 0;
        double error = 0;
        for (size_t g = b * w->o->bundle_size; g < end && g < w->ns; g++)
            lit |= !(out->flags[g] & SPX_SHIFT_NOLIGHT);
        for (size_t k = 0; k < SPX_SHIFT_PLACES; k++)
            error = fmax(error, out->dx_error[f * SPX_SHIFT_PLACES + k]);
        moves[f] = lit && error < KNOWN;
        if (!moves[f])
            out->flags[f] |= SPX_SHIFT_OLDX;
    }
}

spx_status spx_shift_across(spx_shift_measure *measure, void *ctx, const spx_image *image, spx_psf *psf,
                            const spx_shift_options *o, spx_shift *out, spx_err *e)
{
    work w;
    spx_psf before = {0};
    double *last = NULL, *best, largest = 1, chi2 = 0, lowest = INFINITY;
    uint8_t *moves = NULL;
    spx_status st = make_work(image, psf, o, &w, e);
    if (st == SPX_OK)
        st = spx_shift_psf_copy(psf, &before, e);
    if (st == SPX_OK)
        st = alloc_out(&w, psf, out, e);
    if (st == SPX_OK &&
        ((last = spx_alloc(2 * w.n, sizeof *last, e)) == NULL || (moves = spx_alloc(w.ns, 1, e)) == NULL))
        st = SPX_EIO;
    if (st == SPX_OK)
        memset(moves, 1, w.ns);
    best = st == SPX_OK ? last + w.n : NULL; /* coefficients of the lowest chi2 */
    for (int step = 0; st == SPX_OK && step < MOST_STEPS && largest > SMALL_STEP; step++) {
        st = one_step(&w, measure, ctx, image, psf, out, &largest, &chi2, e);
        if (st != SPX_OK)
            break;
        if (step == 0)
            out->chi2_before = chi2;
        memcpy(last, w.total, w.n * sizeof *last);
        if (chi2 > (1 + RAISED) * lowest) {
            largest = 1;
            for (size_t i = 0; i < w.n; i++)
                w.total[i] = 0.5 * (best[i] + w.total[i]);
        } else {
            lowest = chi2;
            for (size_t i = 0; i < w.n; i++) {
                best[i] = w.total[i];
                w.total[i] += w.step[i];
            }
        }
        out->steps = step + 1;
        move(&w, &before, w.total, moves, psf);
    }
    if (st == SPX_OK) {
        /* a step that is still large is no prediction: chi^2 of the last measurement, then */
        out->chi2_after = largest > SMALL_STEP ? chi2 : chi2 - gain(&w);
        fill_covariance(&w, out);
        fill_errors(&w, out);
        fill_windows(&w, last, out);
        judge(&w, out, moves);
        /* no convergence, or a worse image: nothing that may be used */
        if (out->chi2_after > WORSE * out->chi2_before || largest > SMALL_STEP)
            for (size_t f = 0; f < w.ns; f++) {
                moves[f] = 0;
                out->flags[f] |= SPX_SHIFT_OLDX;
            }
        if (memchr(moves, 1, w.ns) == NULL)
            out->chi2_after = out->chi2_before;
        move(&w, &before, w.total, moves, psf);
        memcpy(out->coef, w.total, w.n * sizeof *out->coef);
        for (size_t f = 0; f < w.ns; f++)
            for (size_t k = 0; k < SPX_SHIFT_PLACES; k++) {
                const size_t at = f * SPX_SHIFT_PLACES + k;
                double change[2];
                value(&w, w.total, f, out->wavelength[k], w.phi, change);
                out->dx[at] = moves[f] ? change[0] : 0;
                out->width_x[at] = moves[f] && o->width ? change[1] : 0;
            }
    }
    spx_free(last);
    spx_free(moves);
    spx_psf_free(&before);
    free_work(&w);
    return st;
}
