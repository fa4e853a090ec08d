/* Provides the continuum's basis of an arm: how many functions, and the functions at its pixels.
 *
 * Splines (de Boor, A Practical Guide to Splines, ch. IX): cubic B-splines over x = 0 ... 1, from the first pixel of
 * the arm to the last. Their knots are dense at both ends, where a dichroic, the edge of a filter or a grating's blaze
 * cuts the light off within 1 % of the arm, and sparse between, where the response and a star's own continuum are
 * smooth. At distance d from the nearer end their density is proportional to
 *     1 + (DENSE - 1) min(1, exp((PLATEAU - d)/DECAY)) */
#include <math.h>

#include "base/mem.h"
#include "rvfit/model/setup.h"

static const double PLATEAU = 0.07, DECAY = 0.03, DENSE = 18;

/* Intervals between knots for each unit of ln(wavelength): some 25 for an arm of a three-armed spectrograph, and one
 * cubic for a hundred Angstrom. */
static const double INTERVALS_PER_LN = 90;

enum {
    MOST_INTERVALS = 28,
    PIXELS_OF_INTERVAL = 40, /* at least, in the mean; the shortest has a quarter of them */
    CUBIC = 3,
    OTHER_FORMS = 10, /* functions */
    WIDEST = 6        /* functions of a span: the loops of model/lanes.h take no longer for them than for four */
};

static size_t choose_number(const spx_rv_arm *a, const spx_rvfit_options *o)
{
    if (o->npoly > 0 || o->continuum != SPX_CONTINUUM_SPLINE)
        return o->npoly > 0 ? o->npoly : OTHER_FORMS;
    const double wanted = INTERVALS_PER_LN * log(a->wave[a->n - 1] / a->wave[0]);
    const double most = fmin(MOST_INTERVALS, (double)(a->n / PIXELS_OF_INTERVAL));
    return CUBIC + (size_t)fmax(1, floor(fmin(wanted, most) + 0.5));
}

/* Integral of the knots' density from an end to d <= 1/2. */
static double knots_within(double d)
{
    return d < PLATEAU ? DENSE * d
                       : DENSE * PLATEAU + (d - PLATEAU) + (DENSE - 1) * DECAY * (1 - exp((PLATEAU - d) / DECAY));
}

/* The knot that has the share 0 <= s <= 1 of the intervals to its left. */
static double knot(double s)
{
    const double want = 2 * fmin(s, 1 - s) * knots_within(0.5);
    double lo = 0, hi = 0.5;
    for (int i = 0; i < 60; i++) {
        const double middle = 0.5 * (lo + hi);
        *(knots_within(middle) < want ? &lo : &hi) = middle;
    }
    return s < 0.5 ? lo : 1 - lo;
}

/* B-splines of `degree` between the m + 1 different ones of knots t[m + 1 + 2 degree], at t[degree] <= x: the first of
 * the degree + 1 that are not 0 at x, which are b[]. */
static size_t splines_at(size_t m, size_t degree, const double *t, double x, double b[CUBIC + 1])
{
    size_t first = 0;
    while (first + 1 < m && x >= t[first + 1 + degree])
        first++;
    const double *right = t + first + degree + 1; /* right[-1] <= x < right[0] */
    b[0] = 1;
    for (size_t d = 1; d <= degree; d++) {
        double from_left = 0;
        for (size_t i = 0; i < d; i++) {
            const double after = right[i], before = right[(ptrdiff_t)i - (ptrdiff_t)d], part = b[i] / (after - before);
            b[i] = from_left + (after - x) * part;
            from_left = (x - before) * part;
        }
        b[d] = from_left;
    }
    return first;
}

/* Is there a pixel for each function (Schoenberg and Whitney's condition)? */
static int determined(const spx_rv_arm *a)
{
    size_t i = 0;
    for (size_t k = 0; k < a->basis.n; k++, i++) {
        while (i < a->n && !(a->basis.value[k * a->stride + i] > 0))
            i++;
        if (i >= a->n)
            return 0;
    }
    return 1;
}

/* Values of the splines; *degree of them. */
static void make_splines(const spx_rv_arm *a, size_t *degree)
{
    const size_t np = a->basis.n, p = *degree = np > CUBIC ? CUBIC : np - 1, m = np - p;
    double t[SPX_RVFIT_MAX_POLY + 2 * CUBIC + 1];
    for (size_t i = 0; i < m + 1 + 2 * p; i++)
        t[i] = i <= p ? 0 : i >= m + p ? 1 : knot((double)(i - p) / (double)m);
    for (size_t i = 0; i < a->n; i++) {
        double b[CUBIC + 1];
        const double x = (a->wave[i] - a->wave[0]) / (a->wave[a->n - 1] - a->wave[0]);
        const size_t first = splines_at(m, p, t, x, b);
        for (size_t k = 0; k <= p; k++)
            a->basis.value[(first + k) * a->stride + i] = b[k];
    }
}

/* First and last + 1 of the functions that are not 0 in all of SPX_RV_LANES pixels from i on. */
static void functions_of(const spx_rv_basis *b, size_t i, size_t *first, size_t *end)
{
    *first = b->n;
    *end = 0;
    for (size_t k = 0; k < b->n; k++)
        for (size_t j = i; j < i + SPX_RV_LANES; j++)
            if (b->value[k * b->stride + j] != 0) {
                *first = k < *first ? k : *first;
                *end = k + 1;
            }
}

/* Spans of at most `widest` functions, or of those of SPX_RV_LANES pixels where they are more. */
static void make_spans(spx_rv_basis *b, size_t widest)
{
    for (size_t i = 0; i < b->stride; i += SPX_RV_LANES) {
        size_t first, end;
        functions_of(b, i, &first, &end);
        spx_rv_span *p = b->nspan > 0 ? &b->span[b->nspan - 1] : NULL;
        if (p != NULL && end <= p->first + widest) {
            p->n = end > p->first + p->n ? end - p->first : p->n;
            p->end = i + SPX_RV_LANES;
        } else {
            b->span[b->nspan++] = (spx_rv_span){i, i + SPX_RV_LANES, first, end - first};
        }
    }
}

/* Function k of the other forms, -1 <= u <= 1. */
static double basis_function(spx_continuum form, size_t n, size_t k, double u)
{
    if (form == SPX_CONTINUUM_CHEBYSHEV)
        return cos((double)k * acos(fmin(1, fmax(-1, u))));
    if (k < 3)
        return k == 0 ? 1 : (k == 1 ? u : u * u);
    double nrbf = (double)(n - 3), centre = nrbf > 1 ? -1 + 2 * (double)(k - 3) / (nrbf - 1) : -1;
    double z = (u - centre) * nrbf;
    return exp(-0.5 * z * z);
}

/* Makes function k orthogonal to those before it (modified Gram-Schmidt, twice), with norm 1; 0 where little more than
 * rounding is left of it. */
static int orthonormalise(spx_rv_arm *a, size_t k)
{
    const size_t n = a->n;
    double *p = a->basis.value + k * a->stride, norm0 = 0, norm = 0;
    for (size_t i = 0; i < n; i++)
        norm0 += p[i] * p[i];
    for (size_t j = 0; j < 2 * k; j++) {
        const double *b = a->basis.value + j % k * a->stride;
        double s = 0;
        for (size_t i = 0; i < n; i++)
            s += b[i] * p[i];
        for (size_t i = 0; i < n; i++)
            p[i] -= s * b[i];
    }
    for (size_t i = 0; i < n; i++)
        norm += p[i] * p[i];
    if (!(norm > 1e-20 * norm0))
        return 0;
    norm = sqrt(norm);
    for (size_t i = 0; i < n; i++)
        p[i] /= norm;
    a->basis.lndet += 2 * log(norm);
    return 1;
}

static int make_others(spx_rv_arm *a, spx_continuum form)
{
    int fine = 1;
    for (size_t k = 0; k < a->basis.n && fine; k++) {
        for (size_t i = 0; i < a->n; i++)
            a->basis.value[k * a->stride + i] = basis_function(
                form, a->basis.n, k, (a->wave[i] - a->wave[0]) / (a->wave[a->n - 1] - a->wave[0]) * 2 - 1);
        fine = orthonormalise(a, k);
    }
    return fine;
}

spx_status spx_rv_make_basis(spx_rv_arm *a, const spx_rvfit_options *o, spx_err *e)
{
    const size_t n = a->n, np = choose_number(a, o);
    spx_rv_basis *b = &a->basis;
    *b = (spx_rv_basis){.n = np, .stride = a->stride, .band = np - 1};
    b->value = spx_alloc2(np, a->stride, sizeof *b->value, e);
    b->span = spx_alloc(a->stride / SPX_RV_LANES, sizeof *b->span, e);
    if (b->value == NULL || b->span == NULL)
        return SPX_EIO;
    int fine = n > np;
    if (fine && o->continuum == SPX_CONTINUUM_SPLINE) {
        make_splines(a, &b->band);
        fine = determined(a);
        make_spans(b, WIDEST);
    } else if (fine) {
        fine = make_others(a, o->continuum);
        b->span[b->nspan++] = (spx_rv_span){0, b->stride, 0, np};
    }
    return fine ? SPX_OK
                : spx_fail_remedy(e, SPX_EINPUT, "use fewer ({npoly}), or a wider range ({wavelength})",
                                  "arm '%.15s' has %zu pixels: too few for %zu continuum functions", a->arm->name, n,
                                  np);
}

spx_status spx_rv_coarse_basis(const spx_rv_basis *from, size_t bin, size_t n, size_t stride, spx_rv_basis *b,
                               spx_err *e)
{
    *b = (spx_rv_basis){.n = from->n, .stride = stride, .lndet = from->lndet};
    b->value = spx_alloc2(b->n, stride, sizeof *b->value, e);
    b->span = spx_alloc(stride / SPX_RV_LANES, sizeof *b->span, e);
    if (b->value == NULL || b->span == NULL)
        return SPX_EIO;
    for (size_t k = 0; k < b->n; k++)
        for (size_t i = 0; i < n * bin; i++)
            b->value[k * stride + i / bin] += from->value[k * from->stride + i] / (double)bin;
    for (size_t i = 0; i < n; i++) {
        size_t first = b->n, end = 0;
        for (size_t k = 0; k < b->n; k++)
            if (b->value[k * stride + i] != 0) {
                first = k < first ? k : first;
                end = k + 1;
            }
        b->band = end > first + 1 + b->band ? end - first - 1 : b->band;
    }
    if (from->nspan > 1)
        make_spans(b, WIDEST);
    else
        b->span[b->nspan++] = (spx_rv_span){0, stride, 0, b->n};
    return SPX_OK;
}
