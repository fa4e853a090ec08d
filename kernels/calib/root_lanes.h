/* Provides the square root of SPX_VL banded matrices side by side by rational approximation (calib/root_math.h): sums
 * of its rows, its product with a vector, and its diagonals. Lanes as in calib/band_lanes.h. */
#ifndef SPX_CALIB_ROOT_LANES_H
#define SPX_CALIB_ROOT_LANES_H

#include <math.h>
#include <string.h>

#include "calib/band_lanes.h"
#include "calib/root_math.h"

/* Memory of SPX_VL lanes: rows of SPX_VL doubles, one a bin. */
typedef struct {
    double *l;           /* [m + n][m + 1] factor; m rows of zeros first */
    double *diag;        /* [m + n] */
    double *one, *flux;  /* [m + n + m] right-hand sides 1 and x, solved in place; zeros at both ends */
    double *sum1, *sumx; /* [n] sum over poles of weight (I - shift Z) times 1 and x */
    double *root;        /* [n][diagonals] sum over poles of -weight shift Z(k, k+d) */
    double *inverse;     /* [SPX_INVERSE_ROWS(m)] */
    double *variance;    /* [n] diagonal of A^-1, but for the smallest shift; or NULL */
} root_work;

/* L^-1 rhs, in place. */
ALWAYS_INLINE void forward(size_t n, int m, const double *l, double *rhs)
{
    const size_t lrow = (size_t)(m + 1) * SPX_VL;
    for (size_t j = 0; j < n; j++) {
        vec sum = load(rhs + j * SPX_VL);
        const double *lj = l + j * lrow;
        for (int t = 1; t <= m; t++)
            sum -= load(lj - (size_t)t * lrow + t * SPX_VL) * load(rhs + ((long)j - t) * SPX_VL);
        store(rhs + j * SPX_VL, sum);
    }
}

ALWAYS_INLINE vec backward_step(int m, const double *lj, const double *rhs)
{
    vec sum = load(rhs) * load(lj);
    for (int t = 1; t <= m; t++)
        sum -= load(lj + t * SPX_VL) * load(rhs + t * SPX_VL);
    return sum;
}

/* A(k, k+d) of SPX_VL matrices at a[(k*(m+1) + d)*SPX_VL], with `extra` on the diagonal, and x(k) at x[k*SPX_VL].
 * alone: all lanes have the same matrix, and share its poles. */
typedef struct {
    const double *a, *x;
    vec extra;
    int alone;
} matrix;

/* Lower bound of the eigenvalues. The infinity norm of the inverse bounds its largest eigenvalue; deconvolution makes
 * the signs of the inverse alternate, so that A^-1 (1, -1, 1, ...) has that norm. One step of Hager's estimator
 * (Higham 1988, ACM TOMS 14, 381) improves on it where the signs do not alternate, two of inverse iteration where that
 * stops at the wrong ones (bins of two pixels and more, weights that differ by 10^4 from pixel to pixel), and more
 * where what they say still grows (traces that lie on each other: after two it was 0.2 of what it is); a margin covers
 * the rest. */
#define BOUND_MARGIN     0.5
#define BOUND_STEPS      4
#define BOUND_MOST_STEPS 20
#define BOUND_GROWS      1.1

/* Where an element of the inverse, which is known later, is above BOUND_SEEN of that norm, the norm is BOUND_SPREAD of
 * the largest element. */
#define BOUND_SEEN   0.8
#define BOUND_SPREAD 4.0

ALWAYS_INLINE vec smallest(size_t n, int m, matrix a, const root_work *w, ivec *bad)
{
    const size_t lrow = (size_t)(m + 1) * SPX_VL;
    vec u[SPX_LANES_BLOCK * (SPX_LANES_MOST_BAND + 1)];
    *bad |= factor(n, m, a.a, lrow, SPX_VL, a.extra, w->l, lrow, SPX_VL, w->diag, u);
    vec most = every(0.0), last = every(1.0), before = every(0.0);
    for (size_t j = 0; j < n; j++)
        store(w->one + j * SPX_VL, every(j % 2 == 0 ? 1.0 : -1.0));
    for (int step = 0; step < BOUND_MOST_STEPS; step++) {
        forward(n, m, w->l, w->one);
        vec size = every(0.0);
        for (size_t j = n; j-- > 0;) {
            vec z = backward_step(m, w->l + j * lrow, w->one + j * SPX_VL);
            store(w->one + j * SPX_VL, z);
            size = vmax(vabs(z), size);
        }
        const vec grown = size / last;
        most = vmax(grown, most);
        if (step + 1 >= BOUND_STEPS && all_lanes(grown <= every(BOUND_GROWS) * before))
            break;
        before = grown;
        for (size_t j = 0; j < n && step == 0; j++) /* its signs */
            store(w->one + j * SPX_VL,
                  (vec)((ivec)every(1.0) | ((ivec)load(w->one + j * SPX_VL) & EVERY_INT(INT64_MIN))));
        last = step == 0 ? every(1.0) : size;
    }
    return every(BOUND_MARGIN) / most;
}

/* One pole; variance: NULL, or [n] for the diagonal of its inverse. */
ALWAYS_INLINE void pole_of(size_t n, int m, int h, matrix a, vec shift, vec weight, const root_work *w,
                           double *variance, ivec *bad)
{
    const size_t lrow = (size_t)(m + 1) * SPX_VL, rrow = (size_t)(h + 1) * SPX_VL;
    vec u[SPX_LANES_BLOCK * (SPX_LANES_MOST_BAND + 1)];
    *bad |= factor(n, m, a.a, lrow, SPX_VL, a.extra + shift, w->l, lrow, SPX_VL, w->diag, u);
    for (size_t j = 0; j < n; j++) {
        vec one = every(1.0), flux = load(a.x + j * SPX_VL);
        const double *lj = w->l + j * lrow;
        for (int t = 1; t <= m; t++) {
            vec l = load(lj - (size_t)t * lrow + t * SPX_VL);
            one -= l * load(w->one + ((long)j - t) * SPX_VL);
            flux -= l * load(w->flux + ((long)j - t) * SPX_VL);
        }
        store(w->one + j * SPX_VL, one);
        store(w->flux + j * SPX_VL, flux);
    }
    inverse_rows rows = inverse_begin(m, w->inverse);
    const vec scale = weight * shift;
    for (size_t j = n; j-- > 0;) {
        const double *lj = w->l + j * lrow;
        vec one = load(w->one + j * SPX_VL) * load(lj), flux = load(w->flux + j * SPX_VL) * load(lj);
        for (int t = 1; t <= m; t++) {
            vec l = load(lj + t * SPX_VL);
            one -= l * load(w->one + (j + (size_t)t) * SPX_VL);
            flux -= l * load(w->flux + (j + (size_t)t) * SPX_VL);
        }
        vec z[SPX_LANES_MOST_BAND + 1];
        const vec sum = inverse_row(m, j, lj, lrow, SPX_VL, &rows, z);
        store(w->one + j * SPX_VL, one);
        store(w->flux + j * SPX_VL, flux);
        double *root = w->root + j * rrow;
        store(root, load(root) - scale * sum);
        if (variance)
            store(variance + j * SPX_VL, sum);
        for (int d = 1; d <= h; d++)
            store(root + d * SPX_VL, load(root + d * SPX_VL) - scale * z[d]);
        store(w->sum1 + j * SPX_VL, load(w->sum1 + j * SPX_VL) + weight * (every(1.0) - shift * one));
        store(w->sumx + j * SPX_VL, load(w->sumx + j * SPX_VL) + weight * (load(a.x + j * SPX_VL) - shift * flux));
    }
}

/* The same, with loops of constant length for usual bandwidths: those take half the time. */
static void add_pole(size_t n, int m, int h, matrix a, vec shift, vec weight, const root_work *w, double *variance,
                     ivec *bad)
{
#define OF_BAND(M)                                                                                                     \
    case M:                                                                                                            \
        pole_of(n, M, h, a, shift, weight, w, variance, bad);                                                          \
        break
    switch (m) {
        OF_BAND(7);
        OF_BAND(8);
        OF_BAND(9);
        OF_BAND(10);
        OF_BAND(11);
        OF_BAND(12);
        OF_BAND(13);
        OF_BAND(14);
        OF_BAND(15);
        OF_BAND(16);
        OF_BAND(17);
        OF_BAND(18);
        OF_BAND(19);
        OF_BAND(20);
    default:
        pole_of(n, m, h, a, shift, weight, w, variance, bad);
    }
#undef OF_BAND
}

/* Lanes whose lower bound of the eigenvalues is no bound: no element of A^-1 is above the inverse of the smallest. */
ALWAYS_INLINE ivec too_high(vec least, vec inverse)
{
    return inverse * least > every(BOUND_SEEN * BOUND_MARGIN);
}

/* The lanes' sums over their poles, and the first one's variance, in all lanes. */
ALWAYS_INLINE void share_lanes(size_t n, int h, const root_work *w, vec *total)
{
    for (size_t i = 0; i < n; i++) {
        store(w->sum1 + i * SPX_VL, every(sum_lanes(load(w->sum1 + i * SPX_VL))));
        store(w->sumx + i * SPX_VL, every(sum_lanes(load(w->sumx + i * SPX_VL))));
        if (w->variance)
            store(w->variance + i * SPX_VL, every(w->variance[i * SPX_VL]));
    }
    for (size_t i = 0; i < n * (size_t)(h + 1); i++)
        store(w->root + i * SPX_VL, every(sum_lanes(load(w->root + i * SPX_VL))));
    *total = every(sum_lanes(*total));
}

/* Sums over the poles for eigenvalues from `least` to `most`. Returns their number; 0 where w->variance is there and
 * `least` turns out to be no bound after the first of them, if that is looked at. */
static int add_poles(size_t n, int m, int h, double error, matrix a, vec least, vec most, int look, const root_work *w,
                     vec *total, ivec *bad)
{
    double shift[SPX_VL][SPX_MAX_POLES], weight[SPX_VL][SPX_MAX_POLES];
    const int matrices = a.alone ? 1 : SPX_VL, each = a.alone ? SPX_VL : 1; /* poles that are added at one time */
    int poles = 1;
    for (int i = 0; i < matrices; i++) {
        double lo = least[i], hi = most[i];
        if (!(lo > 0.0 && hi < INFINITY)) {
            *bad |= a.alone ? EVERY_INT(-1) : EVERY_INT(0);
            (*bad)[i] = -1;
            lo = hi = 1.0;
        }
        int np = spx_sqrt_choose(lo < hi ? lo : hi, hi, error, shift[i], weight[i]);
        for (int k = np; k < SPX_MAX_POLES; k++) { /* no weight: adds nothing */
            shift[i][k] = hi;
            weight[i][k] = 0.0;
        }
        poles = np > poles ? np : poles;
    }
    memset(w->sum1, 0, n * SPX_VL * sizeof(double));
    memset(w->sumx, 0, n * SPX_VL * sizeof(double));
    memset(w->root, 0, n * (size_t)(h + 1) * SPX_VL * sizeof(double));
    *total = every(0.0);
    for (int k = 0; k < poles; k += each) {
        vec s = every(0.0), c = every(0.0), largest = every(0.0);
        for (int i = 0; i < SPX_VL; i++) {
            s[i] = a.alone ? shift[0][k + i] : shift[i][k];
            c[i] = a.alone ? weight[0][k + i] : weight[i][k];
        }
        *total += c;
        add_pole(n, m, h, a, s, c, w, k == 0 ? w->variance : NULL, bad);
        if (k > 0 || !look || !w->variance)
            continue;
        for (size_t j = 0; j < n; j++)
            largest = vmax(load(w->variance + j * SPX_VL), largest);
        if (any_lane(too_high(least, largest) & ~*bad)) {
            if (a.alone)
                share_lanes(n, h, w, total);
            return 0;
        }
    }
    if (a.alone) {
        share_lanes(n, h, w, total);
        *bad = any_lane(*bad) ? EVERY_INT(-1) : EVERY_INT(0);
    }
    return poles;
}

/* Q = A^(1/2) of SPX_VL matrices, to a relative error: sums and diagonals 0 ... h <= m in w, sum of the weights in
 * *total. The diagonal of Q is that of w->root plus *total. Lanes that fail are set in *bad. */
static void root_of(size_t n, int m, int h, double error, matrix a, const root_work *w, vec *total, ivec *bad)
{
    /* Gershgorin: no eigenvalue is above the largest sum of magnitudes of a row */
    const size_t arow = (size_t)(m + 1) * SPX_VL;
    vec most = every(0.0);
    for (size_t j = 0; j < n; j++) {
        vec sum = vabs(load(a.a + j * arow)) + a.extra;
        for (int d = 1; d <= m; d++) {
            sum += vabs(load(a.a + j * arow + (size_t)d * SPX_VL));
            if (j >= (size_t)d)
                sum += vabs(load(a.a + (j - (size_t)d) * arow + (size_t)d * SPX_VL));
        }
        most = vmax(sum, most);
    }
    vec least = smallest(n, m, a, w, bad);
    for (int attempt = 0; attempt < 2; attempt++) {
        const int poles = add_poles(n, m, h, error, a, least, most, attempt == 0, w, total, bad);
        if (poles > 0 || attempt > 0)
            break;
        vec largest = every(0.0);
        for (size_t j = 0; j < n; j++)
            largest = vmax(load(w->variance + j * SPX_VL), largest);
        least = choose(too_high(least, largest), every(BOUND_MARGIN / BOUND_SPREAD) / largest, least);
    }
}

#endif
