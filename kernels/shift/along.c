/* Provides shifts and widths along the traces (shift/shift.h, part Y), and the order of all steps. */
#include <math.h>
#include <omp.h>
#include <string.h>

#include "base/mem.h"
#include "calib/series.h"
#include "psf/psf.h"
#include "psf/psf_math.h"
#include "shift/shift.h"

/* A shift that is known worse than this is not applied, and one from which on the frame is extracted again, pixels;
 * of a lamp one of so many errors, too: a fifth of a shift is left after a round. */
#define KNOWN        0.1
#define AGAIN        0.1
#define AGAIN_ERRORS 3.0
/* Light of a line that is elsewhere than bins and their derivatives say, as a part of its brightest bin: 0.24 % at
 * worst in extracted sky lines of S/N 200 a bin; and how far the differences of 8th order reach. */
#define GRID_MISFIT 0.005
enum { GRID_REACH = 4 };
enum { MOST_ROUNDS = 3, NODES = SPX_SHIFT_NODES };
/* Priors, pixels: slopes and curves of the zero point, and differences between fibres, of this size are expected of any
 * exposure; larger ones where columns have moved so. */
#define LEAST_SLOPE      0.04
#define LEAST_CURVE      0.01
#define LEAST_DIFFERENCE 0.001
/* Size of the slope and curves of widths that is usual at least, relative. */
#define LEAST_BEND 0.01
/* Change of the width of all spots that is expected, relative. */
#define WIDER 0.05
/* Largest size that is usual along the traces, of that across them; a tenth is, too. */
#define LARGEST 4
/* Fibres whose lines tell the zero point, at most. */
enum { MOST_FIBRES = 60 };

/* Value and error of a series with coefficients c[n] and covariance (rows of `stride`) at u. */
static double series_at(size_t n, const double *c, const double *cov, size_t stride, double u, double *error)
{
    double p[SPX_SKY_MOST], value = 0, variance = 0;
    spx_legendre(u, n, p);
    for (size_t i = 0; i < n; i++) {
        value += c[i] * p[i];
        for (size_t j = 0; j < n; j++)
            variance += p[i] * p[j] * cov[i * stride + j];
    }
    *error = variance > 0 ? sqrt(variance) : 0;
    return value;
}

/* dY/dlambda of a trace, pixels per Angstrom: between half an Angstrom before and behind. */
#define HALF 0.5

static double dispersion(const spx_psf *psf, size_t f, double lambda)
{
    return (spx_psf_series_value(&psf->y, f, lambda + HALF) - spx_psf_series_value(&psf->y, f, lambda - HALF)) /
           (2 * HALF);
}

/* Width of a core along the trace, by its row of the parameters. */
static double sigma_y(const spx_psf *psf, int row, size_t f, double lambda)
{
    return spx_legendre_sum(psf->ndeg, psf->coeff + ((size_t)row * psf->nspec + f) * psf->ndeg,
                            spx_psf_param_u(psf, f, lambda));
}

/* Wavelengths of the frame that a trace has. */
static void range_of(const spx_frame *frame, const spx_psf *psf, size_t f, double *lo, double *hi)
{
    spx_psf_usable(psf, f, lo, hi);
    *lo = fmax(*lo, frame->arm.wavelength[0]);
    *hi = fmin(*hi, frame->arm.wavelength[frame->arm.nwave - 1]);
}

static spx_status alloc_out(const spx_sky *sky, size_t nzero, size_t nwide, spx_shift *out, spx_err *e)
{
    if (out->delta != NULL)
        return SPX_OK;
    out->nterm_delta = sky->nd > nzero ? sky->nd : nzero;
    out->nterm_kappa = sky->nk > nwide ? sky->nk : nwide;
    out->delta = spx_alloc2(out->nspec, out->nterm_delta, sizeof(double), e);
    out->delta_error = spx_alloc2(out->nspec, out->nterm_delta, sizeof(double), e);
    out->kappa = spx_alloc2(out->nspec, out->nterm_kappa, sizeof(double), e);
    out->kappa_error = spx_alloc2(out->nspec, out->nterm_kappa, sizeof(double), e);
    return out->delta && out->delta_error && out->kappa && out->kappa_error ? SPX_OK : SPX_EIO;
}

/* Change of a trace at one wavelength: row, and width relative to what it was, with errors. */
typedef struct {
    double delta, dy, dy_error, wider, width, width_error; /* wider: of the square of the width, pixels */
} change;

/* slope, sigma: of dispersion() and sigma_y(). */
static change change_of(const spx_frame *frame, const spx_sky *sky, const spx_shift_zero *zero, size_t i, double lambda,
                        double slope, double sigma)
{
    const size_t nt = sky->nt, nd = sky->nd, nk = sky->nk, nq = sky->nq;
    const double *p = sky->p + i * nq, *cov = sky->cov + i * nq * nq;
    const double u = spx_legendre_place(frame->arm.wavelength[0], frame->arm.wavelength[frame->arm.nwave - 1], lambda);
    const double factor = sigma > 0 ? 0.5 * slope * slope / (sigma * sigma) : 0;
    /* lines so bright that the frame's noise is not what limits them, such as those of arcs */
    const double more = sqrt(fmax(1, sky->chi2[i]));
    double own, common;
    change c;
    c.delta = series_at(nd, p + nt, cov + nt * nq + nt, nq, u, &own);
    own *= more;
    c.delta += series_at(zero->nterm, zero->z, zero->cov, zero->nterm, u, &common);
    c.dy = -c.delta * slope;
    c.dy_error = sqrt(own * own + common * common) * fabs(slope);
    double kappa = series_at(nk, p + nt + nd, cov + (nt + nd) * nq + nt + nd, nq, u, &own);
    kappa += series_at(zero->nkappa, zero->kappa, zero->kappa_cov, zero->nkappa, u, &common);
    own *= more;
    c.width = kappa * factor;
    c.width_error = sqrt(own * own + common * common) * factor;
    c.wider = kappa * slope * slope;
    return c;
}

static change change_at(const spx_frame *frame, const spx_sky *sky, const spx_shift_zero *zero, size_t i,
                        const spx_psf *psf, size_t f, double lambda)
{
    return change_of(frame, sky, zero, i, lambda, dispersion(psf, f, lambda), sigma_y(psf, psf->sigy, f, lambda));
}

/* Places of a trace where its change is compared with polynomials, over the wavelengths low ... high, projections on
 * its series and on those of its widths, and the polynomials that these are made of there: of the trace before and
 * behind a place (HALF), of the widths; not of longer series than SPX_SHIFT_MOST_USE. */
typedef struct {
    double low, high, lambda[NODES];
    double y[SPX_SHIFT_MOST_USE * NODES], width[SPX_SHIFT_MOST_USE * NODES];
    double before[NODES][SPX_SHIFT_MOST_USE], behind[NODES][SPX_SHIFT_MOST_USE], shape[NODES][SPX_SHIFT_MOST_USE];
    size_t ny, nwidth;
} places;

/* Those of fibre f; p: of the fibre before, or zeroed. Fibres without ranges of their own share them. 0: there are
 * none. */
static int find_places(const spx_frame *frame, const spx_psf *psf, size_t f, places *p)
{
    const double *own = psf->wave_range != NULL ? psf->wave_range + 2 * f : NULL;
    double lo, hi;
    range_of(frame, psf, f, &lo, &hi);
    if (!(hi > lo))
        return 0;
    if (p->ny > 0 && own == NULL && lo == p->low && hi == p->high)
        return 1;
    p->low = lo;
    p->high = hi;
    for (size_t k = 0; k < NODES; k++)
        p->lambda[k] = lo + (hi - lo) * (double)k / (NODES - 1);
    p->ny = spx_shift_projection(own ? own[0] : psf->y.wmin, own ? own[1] : psf->y.wmax, psf->y.ncoef, NODES, p->lambda,
                                 p->y);
    p->nwidth =
        spx_shift_projection(own ? own[0] : psf->wmin, own ? own[1] : psf->wmax, psf->ndeg, NODES, p->lambda, p->width);
    for (size_t k = 0; k < NODES && psf->y.ncoef <= SPX_SHIFT_MOST_USE; k++) {
        spx_legendre_basis(psf->y.ncoef, spx_psf_series_u(&psf->y, f, p->lambda[k] - HALF), p->before[k]);
        spx_legendre_basis(psf->y.ncoef, spx_psf_series_u(&psf->y, f, p->lambda[k] + HALF), p->behind[k]);
    }
    for (size_t k = 0; k < NODES && psf->ndeg <= SPX_SHIFT_MOST_USE; k++)
        spx_legendre_basis(psf->ndeg, spx_psf_param_u(psf, f, p->lambda[k]), p->shape[k]);
    return 1;
}

/* dispersion() and sigma_y() at place k of find_places(), with their bits. */
static double dispersion_at(const places *p, const spx_psf *psf, size_t f, size_t k)
{
    const size_t n = psf->y.ncoef;
    const double *c = psf->y.coef + f * n;
    if (n > SPX_SHIFT_MOST_USE)
        return dispersion(psf, f, p->lambda[k]);
    return (spx_basis_sum((int)n, c, p->behind[k]) - spx_basis_sum((int)n, c, p->before[k])) / (2 * HALF);
}

static double sigma_y_at(const places *p, const spx_psf *psf, int row, size_t f, size_t k)
{
    const double *c = psf->coeff + ((size_t)row * psf->nspec + f) * psf->ndeg;
    if (psf->ndeg > SPX_SHIFT_MOST_USE)
        return sigma_y(psf, row, f, p->lambda[k]);
    return spx_basis_sum((int)psf->ndeg, c, p->shape[k]);
}

static change change_at_place(const spx_frame *frame, const spx_sky *sky, const spx_shift_zero *zero, size_t i,
                              const spx_psf *psf, size_t f, const places *p, size_t k)
{
    return change_of(frame, sky, zero, i, p->lambda[k], dispersion_at(p, psf, f, k),
                     sigma_y_at(p, psf, psf->sigy, f, k));
}

/* Moves one trace, row i of the frame, fibre f of the PSF. Returns the largest shift, pixels; 0 and the old trace where
 * it is not known. p: of find_places(). */
static double move_fibre(const spx_frame *frame, const spx_sky *sky, const spx_shift_zero *zero, size_t i, size_t f,
                         places *p, spx_psf *psf)
{
    const int row[2] = {psf->sigy, psf->type == SPX_PSF_GAUSS_HERMITE2 ? psf->sigy2 : -1};
    double dy[NODES], ds[2][NODES], most = 0;
    if (!find_places(frame, psf, f, p))
        return 0;
    for (size_t k = 0; k < NODES; k++) {
        const change c = change_at_place(frame, sky, zero, i, psf, f, p, k);
        dy[k] = c.dy;
        for (int core = 0; core < 2 && row[core] >= 0; core++)
            ds[core][k] = 0.5 * c.wider / sigma_y_at(p, psf, row[core], f, k);
        most = fmax(most, fabs(dy[k]));
    }
    spx_shift_project(p->ny, p->y, NODES, dy, psf->y.coef + f * psf->y.ncoef);
    for (int core = 0; core < 2 && row[core] >= 0 && sky->nk > 0; core++)
        spx_shift_project(p->nwidth, p->width, NODES, ds[core],
                          psf->coeff + ((size_t)row[core] * psf->nspec + f) * psf->ndeg);
    return most;
}

/* Whether the shift of a fibre is known well enough, zero point apart. p: of find_places(). */
static int known(const spx_frame *frame, const spx_sky *sky, size_t i, const spx_psf *psf, size_t f, places *p)
{
    const spx_shift_zero none = {0};
    int good = sky->nd > 0 && find_places(frame, psf, f, p);
    for (size_t k = 0; k < NODES && good; k++)
        good = change_at_place(frame, sky, &none, i, psf, f, p, k).dy_error <= KNOWN;
    return good;
}

/* Adds the change of a fibre to what the product says of it. */
static void record(const spx_frame *frame, const spx_sky *sky, const spx_shift_zero *zero, size_t i, size_t f,
                   const spx_psf *psf, spx_shift *out)
{
    const size_t nt = sky->nt, nd = sky->nd, nk = sky->nk, nq = sky->nq;
    double lo, hi;
    range_of(frame, psf, f, &lo, &hi);
    const double *p = sky->p + i * nq, *cov = sky->cov + i * nq * nq;
    for (size_t k = 0; k < SPX_SHIFT_PLACES; k++) {
        const size_t at = f * SPX_SHIFT_PLACES + k;
        const change c = change_at(frame, sky, zero, i, psf, f, fmin(fmax(out->wavelength[k], lo), hi));
        out->dy[at] += c.dy;
        out->width_y[at] = (1 + out->width_y[at]) * (1 + c.width) - 1;
        if (out->rounds > 0) /* later ones see the same noise, which is in what they measure from */
            continue;
        out->dy_error[at] = c.dy_error;
        out->width_y_error[at] = c.width_error;
    }
    for (size_t q = 0; q < out->nterm_delta; q++) {
        const size_t at = f * out->nterm_delta + q;
        out->delta[at] += (q < nd ? p[nt + q] : 0) + (q < zero->nterm ? zero->z[q] : 0);
        if (out->rounds == 0 && q < nd)
            out->delta_error[at] = sqrt(fmax(0, cov[(nt + q) * nq + nt + q]));
    }
    for (size_t q = 0; q < out->nterm_kappa; q++) {
        const size_t at = f * out->nterm_kappa + q;
        out->kappa[at] += (q < nk ? p[nt + nd + q] : 0) + (q < zero->nkappa ? zero->kappa[q] : 0);
        if (out->rounds == 0 && q < nk)
            out->kappa_error[at] = sqrt(fmax(0, cov[(nt + nd + q) * nq + nt + nd + q]));
    }
}

/* What fibres whose columns are known have in common: rms of the terms `first` ... `last` of the mean of value[nspec][]
 * at the places of the product, and means over these fibres. */
typedef struct {
    double size, slope, sigma; /* in units of the value; pixels per Angstrom, and pixels, along the traces */
} common;

enum { COMMON_TERMS = 4 };

/* size 0: not known. */
static common common_of(const spx_psf *psf, const spx_shift *x, const double *value, size_t first, size_t last)
{
    double lambda[SPX_SHIFT_PLACES], mean[SPX_SHIFT_PLACES] = {0}, c[COMMON_TERMS] = {0}, n = 0;
    common found = {0};
    for (size_t f = 0; f < x->nspec; f++) {
        double lo, hi;
        spx_psf_usable(psf, f, &lo, &hi);
        lo = fmax(lo, x->wmin);
        hi = fmin(hi, x->wmax);
        if ((x->flags[f] & SPX_SHIFT_OLDX) != 0 || !(hi > lo))
            continue;
        n++;
        found.slope += fabs(dispersion(psf, f, 0.5 * (lo + hi)));
        found.sigma += sigma_y(psf, psf->sigy, f, 0.5 * (lo + hi));
        for (size_t k = 0; k < SPX_SHIFT_PLACES; k++)
            mean[k] += value[f * SPX_SHIFT_PLACES + k];
    }
    if (x->nterm_wave <= last || !(found.slope > 0))
        return (common){0};
    found.slope /= n;
    found.sigma /= n;
    for (size_t k = 0; k < SPX_SHIFT_PLACES; k++) {
        lambda[k] = x->wavelength[k];
        mean[k] /= n;
    }
    spx_shift_add_series(COMMON_TERMS, c, x->wmin, x->wmax, COMMON_TERMS, SPX_SHIFT_PLACES, lambda, mean);
    for (size_t q = first; q <= last; q++)
        found.size += c[q] * c[q] / (double)(last - first + 1);
    found.size = sqrt(found.size);
    return found;
}

/* Largest slope that is usual for all traces' rows, Angstrom, a tenth of which is, too: by that of their columns, but
 * at least LEAST_SLOPE; 0: not known. The three cameras had 0.004, 0.006 and 0.013 pixel rms, and up to 0.04, whatever
 * the columns had. */
static double expected_slope(const spx_psf *psf, const spx_shift *x)
{
    const common c = common_of(psf, x, x->dx, 1, 1);
    return c.slope > 0 ? fmax(LARGEST * c.size, LEAST_SLOPE) / c.slope : 0;
}

/* The same of the terms above the slope: three cameras over 2.5 days had 0.0024, 0.0056 and 0.0023 pixel in x, and
 * 0.0035, 0.006 and 0.008 in y. That columns have no curve does not say that rows have none: lines, which see one of
 * 0.01 pixel by two of their errors, could not say so against a prior that believed the columns. */
static double expected_curve(const spx_psf *psf, const spx_shift *x)
{
    const common c = common_of(psf, x, x->dx, 2, COMMON_TERMS - 1);
    return c.slope > 0 ? fmax(LARGEST * c.size, LEAST_CURVE) / c.slope : 0;
}

/* The same of the terms of kappa above the first, Angstrom^2, by the widths across the traces: these cameras had 0.4,
 * 0.2 and 0.5 % in x, and 0.4, 0.9 and 1.0 % in y. */
static double expected_bend(const spx_psf *psf, const spx_shift *x)
{
    const common c = common_of(psf, x, x->width_x, 1, COMMON_TERMS - 1);
    return c.slope > 0 ? 2 * pow(c.sigma / c.slope, 2) * fmax(LARGEST * c.size, LEAST_BEND) : 0;
}

/* Size of the terms of delta by which fibres differ, usual[SPX_SKY_MOST], Angstrom: twice that of their shifts in x
 * beyond its errors, but at least LEAST_DIFFERENCE. What tilts one fibre against its neighbours in x does so in y:
 * three cameras over 2.5 days had, of terms 0 to 3, 0.004 to 0.029 pixel in x and 0.006 to 0.027 in y. That columns
 * stay does not say that rows do: larger terms are as likely (sky/params.h). 0: x is not known. */
static void expected_differences(const spx_psf *psf, const spx_shift *x, double *usual)
{
    double to[SPX_SKY_MOST * SPX_SHIFT_PLACES], sum[SPX_SKY_MOST] = {0}, square[SPX_SKY_MOST] = {0}, slope = 0, n = 0,
                                                noise = 0;
    const size_t known = x->nterm_wave < SPX_SKY_MOST ? x->nterm_wave : SPX_SKY_MOST;
    const size_t terms = spx_shift_projection(x->wmin, x->wmax, known, SPX_SHIFT_PLACES, x->wavelength, to);
    memset(usual, 0, SPX_SKY_MOST * sizeof *usual);
    for (size_t f = 0; f < x->nspec; f++) {
        const double *dx = x->dx + f * SPX_SHIFT_PLACES, *error = x->dx_error + f * SPX_SHIFT_PLACES;
        double c[SPX_SKY_MOST] = {0};
        if ((x->flags[f] & SPX_SHIFT_OLDX) != 0)
            continue;
        spx_shift_project(terms, to, SPX_SHIFT_PLACES, dx, c);
        for (size_t q = 0; q < terms; q++) {
            sum[q] += c[q];
            square[q] += c[q] * c[q];
        }
        for (size_t k = 0; k < SPX_SHIFT_PLACES; k++)
            noise += error[k] * error[k] / SPX_SHIFT_PLACES;
        slope += fabs(dispersion(psf, f, 0.5 * (x->wmin + x->wmax)));
        n++;
    }
    for (size_t q = 0; q < SPX_SKY_MOST && n > 1 && terms > 0 && slope > 0; q++) {
        const size_t of = q < terms ? q : terms - 1; /* higher terms: as the last that x has */
        const double mean = sum[of] / n, beyond = square[of] / n - mean * mean + 2 * x->scatter_dx * x->scatter_dx;
        usual[q] = fmax(2 * sqrt(fmax(beyond - noise / n, 0)), LEAST_DIFFERENCE) * n / slope;
    }
}

/* Prior of the width that the lines have in common, WIDER of the spots': where lines may be as wide as these, as in a
 * camera that resolves them, their width is not that of the spots. psf: with the n fibres that see the lines; out: what
 * rounds before this one have found. */
static void expect_width(const spx_psf *psf, double lambda, size_t n, const size_t *fibre, const spx_shift *out,
                         spx_shift_zero *zero)
{
    const size_t nk = zero->nkappa;
    double usual = 0, kappa = zero->kappa[0], gain[SPX_SHIFT_ZERO_MOST], row[SPX_SHIFT_ZERO_MOST];
    for (size_t i = 0; i < n; i++) {
        const double slope = dispersion(psf, fibre[i], lambda), sigma = sigma_y(psf, psf->sigy, fibre[i], lambda);
        usual += slope != 0 ? 2 * WIDER * sigma * sigma / (slope * slope) / (double)n : 0;
        kappa += out->rounds > 0 ? out->kappa[fibre[i] * out->nterm_kappa] / (double)n : 0;
    }
    if (nk == 0 || !(usual > 0))
        return;
    for (size_t q = 0; q < nk; q++)
        gain[q] = zero->kappa_cov[q * nk] / (zero->kappa_cov[0] + usual * usual);
    memcpy(row, zero->kappa_cov, nk * sizeof *row);
    for (size_t q = 0; q < nk; q++) {
        zero->kappa[q] -= gain[q] * kappa;
        for (size_t r = 0; r < nk; r++)
            zero->kappa_cov[q * nk + r] -= gain[q] * row[r];
    }
}

/* Zero point by the lines on the image in fibres that see them alone: their traces moved by what is their own. out: of
 * spx_shift_across(). */
static spx_status find_zero(const spx_shift_engine *g, const spx_image *image, const spx_frame *frame,
                            const spx_psf *psf, const spx_sky *sky, const spx_shift_lines *lines,
                            const spx_shift_options *o, const spx_shift *out, spx_shift_zero *zero, spx_err *e)
{
    const spx_arm *a = &frame->arm;
    spx_psf own = {0};
    size_t *fibre = spx_alloc2(frame->nspec, 2, sizeof *fibre, e), *row = fibre + frame->nspec, n = 0, m = 0, seen = 0;
    double *scale = spx_alloc(frame->nspec, sizeof *scale, e);
    spx_status st = fibre && scale ? spx_shift_psf_copy(psf, &own, e) : SPX_EIO;
    size_t all = 0;
    for (size_t i = 0; i < frame->nspec && st == SPX_OK; i++)
        all += sky->role[i] == SPX_SKY_FIBRE;
    for (size_t i = 0; i < frame->nspec && st == SPX_OK; i++) {
        if (sky->role[i] != SPX_SKY_FIBRE)
            continue;
        seen += MOST_FIBRES; /* of a lamp, which all fibres see, some are enough: evenly spread */
        if (seen < all && all > MOST_FIBRES)
            continue;
        seen -= all > MOST_FIBRES ? all : seen;
        row[m++] = i;
    }
#pragma omp parallel num_threads(o->nthreads > 0 ? o->nthreads : omp_get_max_threads())
    {
        places p = {0};
#pragma omp for schedule(static)
        for (size_t k = 0; k < m; k++) {
            const size_t i = row[k], f = (size_t)frame->fiber[i];
            scale[k] = sky->nt > 0 ? sky->p[i * sky->nq] : 1;
            if (known(frame, sky, i, psf, f, &p) && scale[k] > 0)
                (void)move_fibre(frame, sky, &(spx_shift_zero){0}, i, f, &p, &own);
            else
                scale[k] = 0;
        }
    }
    for (size_t k = 0; k < m; k++)
        if (scale[k] > 0) {
            fibre[n] = (size_t)frame->fiber[row[k]];
            scale[n++] = scale[k];
        }
    const spx_shift_common in = {.nfibre = n,
                                 .fibre = fibre,
                                 .scale = scale,
                                 .first = a->wavelength[0],
                                 .last = a->wavelength[a->nwave - 1],
                                 .step = sky->wavelength[1] - sky->wavelength[0],
                                 .nterm = SPX_SHIFT_ZERO_MOST, /* lines of all fibres bear more than those of one */
                                 .nkappa = o->width ? SPX_SHIFT_ZERO_MOST : 0,
                                 .slope = expected_slope(psf, out),
                                 .curve = expected_curve(psf, out),
                                 .bend = expected_bend(psf, out),
                                 .frame = frame,
                                 .nthreads = o->nthreads,
                                 .image = o->image};
    if (st == SPX_OK)
        st = g->zero_point(g->ctx, image, &own, &in, lines, zero, e);
    if (st == SPX_OK)
        expect_width(&own, 0.5 * (in.first + in.last), n, fibre, out, zero);
    spx_psf_free(&own);
    spx_free(fibre);
    spx_free(scale);
    return st;
}

void spx_shift_lamp_variance(size_t nspec, size_t nwave, const double *flux, double *ivar)
{
    for (size_t i = 0; i < nspec; i++) {
        const double *d = flux + i * nwave;
        double *w = ivar + i * nwave; /* what is above 0 stays above 0 */
        for (size_t k = 0; k < nwave; k++) {
            double most = 0;
            for (size_t l = k < GRID_REACH ? 0 : k - GRID_REACH; l <= k + GRID_REACH && l < nwave; l++)
                most = w[l] > 0 && d[l] > most ? d[l] : most;
            if (w[k] > 0)
                w[k] = 1 / (1 / w[k] + GRID_MISFIT * GRID_MISFIT * most * most);
        }
    }
}

/* Fibres of the PSF that rows of a frame are, each once: one row a fibre where it does not say so. */
static spx_status check_fibres(spx_frame *frame, const spx_psf *psf, spx_err *e)
{
    uint8_t *seen;
    if (frame->fiber == NULL && frame->nspec == psf->nspec) {
        if ((frame->fiber = spx_alloc(frame->nspec, sizeof *frame->fiber, e)) == NULL)
            return SPX_EIO;
        for (size_t i = 0; i < frame->nspec; i++)
            frame->fiber[i] = (int32_t)i;
    }
    if (frame->fiber == NULL)
        return spx_fail_at(e, SPX_EINPUT, NULL, "/frame", "give the PSF that the frame was extracted with",
                           "has %zu spectra and does not say of which of the PSF's %zu fibres", frame->nspec,
                           psf->nspec);
    if ((seen = spx_alloc(psf->nspec, 1, e)) == NULL)
        return SPX_EIO;
    spx_status st = SPX_OK;
    for (size_t i = 0; i < frame->nspec && st == SPX_OK; i++) {
        const int there = frame->fiber[i] >= 0 && (size_t)frame->fiber[i] < psf->nspec;
        if (!there)
            st = spx_fail_at(e, SPX_EINPUT, NULL, "/frame/fiber", "give the PSF that the frame was extracted with",
                             "fibre %d is not one of the PSF's %zu", frame->fiber[i], psf->nspec);
        else if (seen[frame->fiber[i]]++ > 0)
            st = spx_fail_at(e, SPX_EINPUT, NULL, "/frame/fiber", "extract it again", "fibre %d is there twice",
                             frame->fiber[i]);
    }
    spx_free(seen);
    return st;
}

/* Moves the trace of row i of the frame, and records it, where it is known well enough. *largest: shift, pixels;
 * *errors2: square of that in the middle over its variance, negative where nothing is known. */
static void move_and_record(const spx_frame *frame, const spx_sky *sky, const spx_shift_zero *zero, size_t i, places *p,
                            spx_psf *psf, spx_shift *out, double *largest, double *errors2)
{
    const size_t f = (size_t)frame->fiber[i];
    double lo, hi;
    range_of(frame, psf, f, &lo, &hi);
    const double zero_error = sqrt(fmax(0, zero->cov[0])), middle = 0.5 * (lo + hi);
    *largest = 0;
    *errors2 = -1;
    if (!known(frame, sky, i, psf, f, p) || zero_error * fabs(dispersion(psf, f, middle)) > KNOWN) {
        out->flags[f] |= SPX_SHIFT_NOLINES;
        return;
    }
    record(frame, sky, zero, i, f, psf, out);
    const change c = change_at(frame, sky, zero, i, psf, f, middle);
    *largest = move_fibre(frame, sky, zero, i, f, p, psf);
    *errors2 = c.dy_error > 0 ? c.dy * c.dy / (c.dy_error * c.dy_error) : 0;
}

spx_status spx_shift_along(const spx_shift_engine *g, const spx_image *image, const spx_frame *frame,
                           const spx_sky *sky, const spx_shift_lines *lines, const spx_shift_options *o, spx_psf *psf,
                           spx_shift *out, spx_shift_moved *moved, spx_err *e)
{
    const int any = lines->n > 0;
    spx_shift_zero zero;
    double sum = 0, n = 0;
    *moved = (spx_shift_moved){0};
    spx_status st = alloc_out(sky, any ? SPX_SHIFT_ZERO_MOST : 0, any && o->width ? SPX_SHIFT_ZERO_MOST : 0, out, e);
    if (st == SPX_OK)
        st = find_zero(g, image, frame, psf, sky, lines, o, out, &zero, e);
    if (st != SPX_OK)
        return st;
    const double zero_error = sqrt(fmax(0, zero.cov[0]));
    double *largest = spx_alloc2(frame->nspec, 2, sizeof *largest, e);
    if (largest == NULL)
        return SPX_EIO;
    double *errors2 = largest + frame->nspec;
#pragma omp parallel num_threads(o->nthreads > 0 ? o->nthreads : omp_get_max_threads())
    {
        places p = {0};
#pragma omp for schedule(static)
        for (size_t i = 0; i < frame->nspec; i++)
            move_and_record(frame, sky, &zero, i, &p, psf, out, &largest[i], &errors2[i]);
    }
    for (size_t i = 0; i < frame->nspec; i++) {
        moved->largest = fmax(moved->largest, largest[i]);
        sum += fmax(errors2[i], 0);
        n += errors2[i] >= 0;
    }
    spx_free(largest);
    moved->errors = n > 0 ? sqrt(sum / n) : 0;
    out->zero_point += zero.z[0];
    out->zero_point_error = zero_error;
    out->zero_point_chi2 = zero.chi2;
    out->zero_point_dof = zero.dof;
    out->nline = zero.nline;
    out->tau_delta = sky->nd > 0 ? sky->tau[sky->nt] : 0;
    out->tau_kappa = sky->nk > 0 ? sky->tau[sky->nt + sky->nd] : 0;
    out->nfibre_common = sky->nsky;
    return SPX_OK;
}

/* Gives the parameters of a PSF `terms` coefficients at least, so that it holds widths that bend. */
static spx_status hold_terms(spx_psf *psf, size_t terms, spx_err *e)
{
    const size_t rows = psf->npar * psf->nspec;
    if (psf->coeff == NULL || psf->ndeg >= terms)
        return SPX_OK;
    double *coeff = spx_alloc2(rows, terms, sizeof *coeff, e);
    if (coeff == NULL)
        return SPX_EIO;
    for (size_t i = 0; i < rows; i++)
        memcpy(coeff + i * terms, psf->coeff + i * psf->ndeg, psf->ndeg * sizeof *coeff);
    spx_free(psf->coeff);
    psf->coeff = coeff;
    psf->ndeg = terms;
    return SPX_OK;
}

/* Adds the shifts and widths of a round, [nspec][nq] by the fibres of the PSF, where traces were moved by them. */
static spx_status add_round(const spx_frame *frame, const spx_sky *sky, const spx_shift *out, double **sum, spx_err *e)
{
    if (*sum == NULL && (*sum = spx_alloc2(out->nspec, sky->nq, sizeof **sum, e)) == NULL)
        return SPX_EIO;
    for (size_t i = 0; i < frame->nspec; i++) {
        const size_t f = (size_t)frame->fiber[i];
        for (size_t q = sky->nt; q < sky->nq && (out->flags[f] & SPX_SHIFT_NOLINES) == 0; q++)
            (*sum)[f * sky->nq + q] += sky->p[i * sky->nq + q];
    }
    return SPX_OK;
}

/* The same by the rows of a frame: moved[frame->nspec][nq]. */
static spx_status moved_of(const spx_frame *frame, size_t nq, const double *sum, double **moved, spx_err *e)
{
    if (sum == NULL)
        return SPX_OK;
    if ((*moved = spx_alloc2(frame->nspec, nq, sizeof **moved, e)) == NULL)
        return SPX_EIO;
    for (size_t i = 0; i < frame->nspec; i++)
        memcpy(*moved + i * nq, sum + (size_t)frame->fiber[i] * nq, nq * sizeof **moved);
    return SPX_OK;
}

spx_status spx_shift_traces(const spx_shift_engine *g, const spx_image *image, spx_frame *frame,
                            const spx_shift_lines *lines, const spx_shift_options *options, spx_psf *psf,
                            spx_shift *out, spx_err *e)
{
    static unsigned long long images;
    spx_shift_options numbered = *options;
    const spx_shift_options *o = &numbered;
    spx_shift_moved moved = {2 * AGAIN, 0};
    double usual[SPX_SKY_MOST], *sum = NULL;
    size_t nq = 0;
    int found = 1;
    const int given = frame->nspec > 0;
    numbered.image = __atomic_add_fetch(&images, 1, __ATOMIC_RELAXED);
    spx_status st = given ? check_fibres(frame, psf, e) : SPX_OK;
    if (st == SPX_OK && o->width)
        st = hold_terms(psf, SPX_SHIFT_ZERO_MOST, e);
    if (st == SPX_OK)
        st = spx_shift_across(g->measure, g->ctx, image, psf, o, out, e);
    for (size_t f = 0; f < psf->nspec && st == SPX_OK; f++)
        out->flags[f] |= SPX_SHIFT_NOLINES;
    if (st == SPX_OK)
        expected_differences(psf, out, usual);
    while (st == SPX_OK && found && (moved.largest > AGAIN || (o->lamp && moved.errors > AGAIN_ERRORS)) &&
           out->rounds < MOST_ROUNDS) {
        spx_sky sky = {0};
        double *before = NULL;
        if (!given || out->rounds > 0) { /* a frame that was given is that of the traces of before */
            spx_frame_free(frame);
            st = g->extract(g->ctx, image, psf, frame, e);
        }
        if (st == SPX_OK)
            st = moved_of(frame, nq, sum, &before, e);
        if (st == SPX_OK)
            st = g->sky(g->ctx, frame, usual, before, &sky, &found, e);
        if (st == SPX_OK && found) {
            for (size_t i = 0; i < frame->nspec; i++)
                out->flags[frame->fiber[i]] &= ~(uint32_t)SPX_SHIFT_NOLINES;
            st = spx_shift_along(g, image, frame, &sky, lines, o, psf, out, &moved, e);
            out->rounds++;
            nq = sky.nq;
        }
        if (st == SPX_OK && found)
            st = add_round(frame, &sky, out, &sum, e);
        spx_free(before);
        spx_sky_free(&sky);
    }
    for (size_t f = 0; f < psf->nspec && st == SPX_OK; f++) {
        if (out->nline == 0)
            out->flags[f] |= SPX_SHIFT_RELATIVE;
        for (size_t k = f * SPX_SHIFT_PLACES; k < (f + 1) * SPX_SHIFT_PLACES && (out->flags[f] & SPX_SHIFT_NOLINES);
             k++) {
            out->dy_error[k] = SPX_SHIFT_EXPECTED;
            out->width_y_error[k] = o->width ? SPX_SHIFT_EXPECTED_WIDTH : 0;
        }
    }
    spx_free(sum);
    return st;
}
