/* Provides an estimate of how far off fits are because templates are interpolated between the nodes of a library.
 *
 * At points all over the grid, the error of interpolation along each axis, ln T interpolated less ln T, is taken from
 * the nodes on its line, the other parameters at theirs: the difference from the polynomial L through the nearest m <=
 * 5 of them, and the remainder of the latter, f^(m)/m! (x - x_1)...(x - x_m). That derivative follows from the two
 * before it as of an exponential, f^(m) = f^(m-1) |f^(m-1)| / |f^(m-2)|; these are divided differences, the latter with
 * nodes left out. The middle of an axis that was bent (two_nodes.c) is no node of the library; UNSURE of what it
 * differs from a straight line is its error. Two nodes that are not bent tell nothing.
 *
 * An error delta of ln T moves a fit by -(J'WJ)^-1 J'W delta, with J the derivatives of ln T by velocity, rotation
 * (T''/T, as of slow rotators) and the parameters, and the functions of the continuum, which are eliminated arm by arm;
 * weights are those of constant noise, (T / median)^2 (S/N)^2 / 2 for a sample of the template, of which two make a
 * bin. (J'WJ)^-1 is also the covariance of the fit. */
#include <cblas.h>
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "num/blas.h"
#include "num/stat.h"
#include "rvfit/model/setup.h"

enum { POINTS = 128, HIGH = 5, MOST_COLUMN = 3 + SPX_MAX_PAR + SPX_RVFIT_MAX_POLY, FREE = 2 + SPX_MAX_PAR, FEW = 50 };
static const double UNSURE = 0.3; /* 0.5 where lines grow with the ratio 30 % slower than with the metallicity */
static const double SN = 30, TINY = 1e-9;

/* A point of the grid: for each axis, the cell that it lies in, in node numbers and a fraction, and the nearest node.
 */
typedef struct {
    size_t cell[SPX_MAX_PAR], node[SPX_MAX_PAR];
    double part[SPX_MAX_PAR];
} place;

/* Halton's sequence, number i in base b. */
static double halton(size_t i, size_t b)
{
    double x = 0, f = 1;
    for (; i > 0; i /= b) {
        f /= (double)b;
        x += f * (double)(i % b);
    }
    return x;
}

static place place_of(const spx_rv_ctx *c, size_t i)
{
    static const size_t base[SPX_MAX_PAR] = {2, 3, 5, 7, 11, 13};
    place at = {0};
    for (size_t g = 0; g < c->grid.ng; g++) {
        const size_t p = c->grid.gpar[g], n = c->grid.naxis[p];
        const double x = halton(i + 1, base[g]) * (double)(n - 1);
        at.cell[g] = (size_t)x < n - 2 ? (size_t)x : n - 2;
        at.part[g] = x - (double)at.cell[g];
        at.node[g] = (size_t)(x + 0.5);
    }
    return at;
}

/* The axis that was bent: of three nodes, of which no middle one is of the library; ng: none was. */
static size_t bent_axis(const spx_rv_ctx *c, const spx_setup *s)
{
    size_t nnode = 1, g = 0;
    for (size_t k = 0; k < c->grid.ng; k++)
        nnode *= c->grid.naxis[c->grid.gpar[k]];
    for (; g < c->grid.ng; g++) {
        int made = s->filled != NULL && c->grid.naxis[c->grid.gpar[g]] == 3;
        for (size_t node = 0; node < nnode && made; node++)
            made = node / c->grid.stride[g] % 3 != 1 || s->filled[s->node[node]];
        if (made)
            break;
    }
    return g;
}

/* Rows of n templates through the place, along axis g from node `first` on. 0: some are not of the library, other than
 * the middle of the axis `bent`. */
static int line_of(const spx_rv_ctx *c, const spx_setup *s, const place *at, size_t bent, size_t g, size_t first,
                   size_t n, int32_t *row)
{
    size_t node = 0;
    int fine = 1;
    for (size_t k = 0; k < c->grid.ng; k++)
        node += (k == g ? first : at->node[k]) * c->grid.stride[k];
    for (size_t i = 0; i < n; i++) {
        const size_t middle = bent == g ? first + i : (bent < c->grid.ng ? at->node[bent] : 0);
        row[i] = s->node[node + i * c->grid.stride[g]];
        fine = fine && (s->filled == NULL || !s->filled[row[i]] || (bent < c->grid.ng && middle == 1));
    }
    return fine;
}

/* Weights of the polynomial through n nodes. */
static void lagrange(size_t n, const double *x, double at, double *w)
{
    for (size_t i = 0; i < n; i++) {
        w[i] = 1;
        for (size_t k = 0; k < n; k++)
            if (k != i)
                w[i] *= (at - x[k]) / (x[i] - x[k]);
    }
}

/* Adds weights of the divided difference of n nodes, times `factor`. */
static void divided(size_t n, const double *x, double factor, double *w)
{
    for (size_t i = 0; i < n; i++) {
        double product = factor;
        for (size_t k = 0; k < n; k++)
            if (k != i)
                product /= x[i] - x[k];
        w[i] += product;
    }
}

static double dot(size_t n, const double *x, const double *y)
{
    double s = 0;
    for (size_t k = 0; k < n; k++)
        s += x[k] * y[k];
    return s;
}

/* Error of the interpolation, and its slope, along axis g in the components: error[K], slope[K]. 0: nodes are
 * missing. *known is 0 where two nodes are all. */
static int along(const spx_rv_ctx *c, const spx_setup *s, const place *at, size_t bent, size_t g, double *error,
                 double *slope, double *difference, int *known)
{
    const size_t p = c->grid.gpar[g], n = c->grid.naxis[p], K = s->pca.ncomp, m = n < HIGH ? n : HIGH;
    const double *axis = c->grid.axis[p];
    const double x = axis[at->cell[g]] + at->part[g] * (axis[at->cell[g] + 1] - axis[at->cell[g]]);
    size_t first = at->node[g] > m / 2 ? at->node[g] - m / 2 : 0;
    first = first + m > n ? n - m : first;
    int32_t row[HIGH];
    if (!line_of(c, s, at, bent, g, first, m, row))
        return 0;
    double w[4], d[4], high[HIGH] = {0}, low[HIGH] = {0}, by[HIGH] = {0};
    const size_t from = spx_rv_cubic_weights(n, axis, x, w, d);
    for (size_t i = 0; i < 4 && from + i < n; i++) {
        if (from + i < first || from + i >= first + m) /* has no weight at this end of the axis */
            continue;
        low[from + i - first] = w[i];
        by[from + i - first] = d[i];
    }
    lagrange(m, axis + first, x, high);
    /* divided differences of all m nodes, and mean of the two of m - 1 */
    double last[HIGH] = {0}, former[HIGH] = {0}, product = 0, one = 0, two = 0, reach = 1;
    divided(m, axis + first, 1, last);
    if (m > 2) {
        divided(m - 1, axis + first, 0.5, former);
        divided(m - 1, axis + first + 1, 0.5, former + 1);
    }
    for (size_t i = 0; i < m; i++)
        reach *= x - axis[first + i];
    for (size_t k = 0; k < K; k++) {
        double u = 0, v = 0;
        error[k] = slope[k] = 0;
        for (size_t i = 0; i < m; i++) {
            const double f = s->pca.coef[(size_t)row[i] * K + k];
            error[k] += (low[i] - high[i]) * f;
            slope[k] += by[i] * f;
            u += last[i] * f;
            v += former[i] * f;
        }
        difference[k] = u;
        product += u * v;
        one += v * v;
        two += u * u;
    }
    if (m == 2) {
        *known = 0;
        return 1;
    }
    const double size = (double)m, rate = one > 0 ? (size - 1) / size * copysign(sqrt(two / one), product) : 0;
    const double bow = bent == g ? UNSURE * (x - axis[0]) * (x - axis[2]) : 0;
    for (size_t k = 0; k < K; k++)
        error[k] -= (rate * reach + bow) * difference[k];
    return 1;
}

/* Memory of the estimate. */
typedef struct {
    size_t first[SPX_MAX_ARM]; /* sample of each setup from which on it is used, the arm's pixel 0 */
    size_t bent;               /* axis */
    float *coef;               /* [2 + ng][K] ln T at the node, its slopes, the sum of all errors */
    double *sum;               /* [4][K] that sum; error, slope and divided difference along an axis */
    float *line;               /* [2 + ng][nwave] coef as spectra */
    double *t, *tmp;           /* [nwave] T */
    double *column;            /* [MOST_COLUMN][nwave] weighted derivatives */
    double gram[MOST_COLUMN * MOST_COLUMN];
} workspace;

/* Spectra at a place, but for the mean of the components: ln T, its slopes along the axes, and the error of all. */
static int spectra(const spx_rv_ctx *c, const spx_setup *s, const place *at, workspace *w, int *known)
{
    const size_t ng = c->grid.ng, K = s->pca.ncomp;
    double *error = w->sum + K, *slope = error + K;
    int32_t here;
    if (!line_of(c, s, at, w->bent, 0, at->node[0], 1, &here))
        return 0;
    memset(w->sum, 0, K * sizeof *w->sum);
    for (size_t k = 0; k < K; k++)
        w->coef[k] = (float)s->pca.coef[(size_t)here * K + k];
    for (size_t g = 0; g < ng; g++) {
        if (!along(c, s, at, w->bent, g, error, slope, slope + K, &known[c->grid.gpar[g]]))
            return 0;
        for (size_t k = 0; k < K; k++) {
            w->sum[k] += error[k];
            w->coef[(1 + g) * K + k] = (float)slope[k];
        }
    }
    for (size_t k = 0; k < K; k++)
        w->coef[(1 + ng) * K + k] = (float)w->sum[k];
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, (int)(2 + ng), (int)s->nwave, (int)K, 1, w->coef, (int)K,
                s->pca.comp, (int)s->nwave, 0, w->line, (int)s->nwave);
    return 1;
}

/* Adds arm ia at a place to the normal matrix of velocity, rotation, parameters and, last, the error. 0: nodes are
 * missing. */
static int add_arm(const spx_rv_ctx *c, size_t ia, const place *at, workspace *w, double *normal, int *known)
{
    const spx_rv_arm *a = &c->arm[ia];
    const spx_setup *s = a->setup;
    const size_t ng = c->grid.ng, nw = s->nwave, n = a->n, npoly = a->basis.n, ncol = npoly + 3 + ng;
    if (!spectra(c, s, at, w, known))
        return 0;
    for (size_t k = 0; k < nw; k++)
        w->t[k] = exp(s->pca.mean[k] + (double)w->line[k]);
    memcpy(w->tmp, w->t + w->first[ia], n * sizeof *w->tmp);
    const double scale = SN / sqrt(2) / spx_median(w->tmp, n);
    for (size_t i = 0; i < n; i++) {
        const size_t k = w->first[ia] + i;
        const double *t = w->t + k, weight = *t * scale;
        double *column = w->column + i;
        for (size_t j = 0; j < npoly; j++)
            column[j * n] = weight * a->basis.value[j * a->basis.stride + i];
        column[npoly * n] = scale * (t[1] - t[-1]) / 2;
        column[(npoly + 1) * n] = scale * (t[1] - 2 * t[0] + t[-1]);
        for (size_t g = 0; g <= ng; g++)
            column[(npoly + 2 + g) * n] = weight * (double)w->line[(1 + g) * nw + k];
    }
    cblas_dsyrk(CblasRowMajor, CblasLower, CblasNoTrans, (int)ncol, (int)n, 1, w->column, (int)n, 0, w->gram,
                (int)ncol);
    for (size_t j = 0; j < npoly; j++) /* Schur complement: the continuum is marginalised */
        for (size_t k = ncol; k-- > j + 1;) {
            const double f = w->gram[k * ncol + j] / w->gram[j * ncol + j];
            for (size_t l = j + 1; l <= k; l++)
                w->gram[k * ncol + l] -= f * w->gram[l * ncol + j];
        }
    for (size_t k = 0; k < 3 + ng; k++)
        for (size_t l = 0; l <= k; l++)
            normal[spx_rv_packed(k, l)] += w->gram[(npoly + k) * ncol + npoly + l];
    return 1;
}

/* Shifts of the parameters of a fit, and their errors, in internal units, of `normal`. 0: some are not told. */
static int solve(size_t ng, const double *normal, double *shift, double *error)
{
    const size_t m = 2 + ng;
    double a[FREE * (FREE + 1) / 2], x[FREE];
    memcpy(a, normal, m * (m + 1) / 2 * sizeof *a);
    for (size_t k = 0; k < m; k++)
        x[k] = -normal[spx_rv_packed(m, k)];
    if (!spx_rv_cholesky(m, a, TINY))
        return 0;
    spx_rv_forward(m, a, x);
    spx_rv_backward(m, a, x);
    for (size_t g = 0; g < ng; g++) {
        double unit[FREE] = {0};
        unit[2 + g] = 1;
        spx_rv_forward(m, a, unit);
        error[g] = sqrt(dot(m, unit, unit));
        shift[g] = x[2 + g];
    }
    return 1;
}

/* Results of all points of one setup, or of all. */
typedef struct {
    size_t n;
    double pull[SPX_MAX_PAR][POINTS], error[SPX_MAX_PAR][POINTS];
} tally;

static void add_point(const spx_rv_ctx *c, const place *at, const double *normal, tally *t)
{
    double shift[SPX_MAX_PAR], error[SPX_MAX_PAR];
    if (!solve(c->grid.ng, normal, shift, error))
        return;
    for (size_t g = 0; g < c->grid.ng; g++) {
        const size_t p = c->grid.gpar[g];
        t->pull[g][t->n] = shift[g] / error[g];
        t->error[g][t->n] = error[g] * fabs(spx_rv_slope(c, 2 + p, c->grid.axis[p][at->node[g]], 0));
    }
    t->n++;
}

static void sum_up(const spx_rv_ctx *c, tally *t, const int *known, spx_node_error *out)
{
    *out = (spx_node_error){.sn = t->n > 0 ? SN : 0};
    for (size_t g = 0; g < c->grid.ng && t->n > 0; g++) {
        const size_t p = c->grid.gpar[g];
        out->known[p] = known[p];
        out->error[p] = spx_median(t->error[g], t->n);
        out->bias[p] = spx_median(t->pull[g], t->n);
        for (size_t k = 0; k < t->n; k++)
            t->pull[g][k] = fabs(t->pull[g][k] - out->bias[p]);
        out->spread[p] = 1.4826 * spx_median(t->pull[g], t->n);
    }
}

static void free_workspace(workspace *w)
{
    if (w == NULL)
        return;
    spx_free(w->coef);
    spx_free(w->sum);
    spx_free(w->line);
    spx_free(w->t);
    spx_free(w->tmp);
    spx_free(w->column);
    spx_free(w);
}

/* Makes it, and pixels and continua of the arms: the samples of each setup within its range. */
static workspace *make_workspace(spx_rv_ctx *c, spx_err *e)
{
    static const spx_arm unnamed = {0};
    workspace *w = spx_alloc(1, sizeof *w, e);
    if (w != NULL)
        w->bent = bent_axis(c, c->arm[0].setup);
    size_t most = 0, ncomp = 0;
    int fine = w != NULL;
    for (size_t i = 0; i < c->narm && fine; i++) {
        spx_rv_arm *a = &c->arm[i];
        const spx_setup *s = a->setup;
        most = s->nwave > most ? s->nwave : most;
        ncomp = s->pca.ncomp > ncomp ? s->pca.ncomp : ncomp;
        a->arm = &unnamed;
        a->stride = (s->nwave + SPX_RV_LANES - 1) / SPX_RV_LANES * SPX_RV_LANES;
        if ((a->wave = spx_alloc(a->stride, sizeof *a->wave, e)) == NULL) {
            fine = 0;
            break;
        }
        for (size_t k = 1; k + 1 < s->nwave; k++) {
            const double wave = exp(s->lnwave0 + (double)k * s->dlnwave);
            if (wave < s->wmin || wave > s->wmax)
                continue;
            w->first[i] = a->n == 0 ? k : w->first[i];
            a->wave[a->n++] = wave;
        }
        fine = a->n < FEW || spx_rv_make_basis(a, c->opt, e) == SPX_OK;
    }
    if (fine && (w->coef = spx_alloc2(2 + c->grid.ng, ncomp, sizeof *w->coef, e)) != NULL &&
        (w->sum = spx_alloc2(4, ncomp, sizeof *w->sum, e)) != NULL &&
        (w->line = spx_alloc2(2 + c->grid.ng, most, sizeof *w->line, e)) != NULL &&
        (w->t = spx_alloc(most, sizeof *w->t, e)) != NULL && (w->tmp = spx_alloc(most, sizeof *w->tmp, e)) != NULL &&
        (w->column = spx_alloc2(MOST_COLUMN, most, sizeof *w->column, e)) != NULL)
        return w;
    free_workspace(w);
    return NULL;
}

static spx_status estimate(spx_rv_ctx *c, spx_templates *t, spx_node_error *all, spx_err *e)
{
    enum { M = (FREE + 1) * (FREE + 2) / 2 };
    int known[SPX_MAX_PAR];
    workspace *w = make_workspace(c, e);
    tally *each = spx_alloc(c->narm + 1, sizeof *each, e);
    for (size_t p = 0; p < SPX_MAX_PAR; p++)
        known[p] = 1;
    for (size_t i = 0; i < POINTS && w != NULL && each != NULL; i++) {
        const place at = place_of(c, i);
        double sum[M] = {0};
        int whole = 1;
        for (size_t a = 0; a < c->narm; a++) {
            double one[M] = {0};
            if (c->arm[a].n < FEW || !add_arm(c, a, &at, w, one, known)) {
                whole = 0;
                continue;
            }
            add_point(c, &at, one, &each[a]);
            for (size_t k = 0; k < M; k++)
                sum[k] += one[k];
        }
        if (whole)
            add_point(c, &at, sum, &each[c->narm]);
    }
    const spx_status st = w != NULL && each != NULL ? SPX_OK : SPX_EIO;
    for (size_t a = 0; a < c->narm && st == SPX_OK; a++)
        sum_up(c, &each[a], known, &t->setup[a].nodes);
    if (st == SPX_OK)
        sum_up(c, &each[c->narm], known, all);
    free_workspace(w);
    spx_free(each);
    return st;
}

spx_status spx_rvfit_node_errors(spx_templates *t, int threads, spx_node_error *all, spx_err *e)
{
    spx_rvfit_options o;
    *all = (spx_node_error){0};
    for (size_t i = 0; i < t->nsetup; i++)
        if (t->setup[i].node == NULL || t->setup[i].pca.ncomp == 0 || t->setup[i].pca.of_flux || i == SPX_MAX_ARM)
            return SPX_OK;
    spx_rvfit_options_init(&o);
    o.threads = threads;
    spx_rv_ctx *c = spx_alloc(1, sizeof *c, e);
    spx_status st = c != NULL ? spx_blas_open(e) : SPX_EIO;
    if (st == SPX_OK) {
        c->opt = &o;
        c->interpolator = SPX_INTERPOLATE_CUBIC;
        for (size_t i = 0; i < t->nsetup; i++)
            c->arm[c->narm++].setup = &t->setup[i];
        st = spx_rv_make_ranges(c, e);
    }
    if (st == SPX_OK && c->grid.ng > 0)
        st = estimate(c, t, all, e);
    if (c != NULL)
        spx_rv_ctx_free(c);
    spx_free(c);
    return st;
}
