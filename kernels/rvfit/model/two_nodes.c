/* Provides a node between the two of an axis of abundance ratios, [alpha/Fe] and the like.
 *
 * Between two nodes interpolation is linear in ln T, and lines are not: strong ones saturate, weak ones grow with the
 * abundance itself. Lines of an element X depend on [X/H] = [Fe/H] + [X/Fe], so that the metallicity axis tells how
 * they grow. The difference between the two nodes, D = ln T(a + h) - ln T(a), is that of the lines of X alone; with l
 * their part of ln T at the metallicity z, D(z) = l(z + h) - l(z), and to the third order in h l(z + h/2) - [l(z) + l(z
 * + h)]/2 = -h^2/8 l''(z + h/2) = -h/8 dD/dz. Structure and continuous opacity of the atmosphere, which lines of other
 * elements show, do not follow that sum, but are a small part of D. D(z) is differentiated in the function of z, of the
 * family of spx_rv_axis_transform(), from whose other nodes it is predicted best. */
#include <ctype.h>
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "rvfit/model/math.h"
#include "rvfit/rvfit.h"

enum { MOST_NODES = 64, SAMPLES = 256, TRIALS = 9 };
static const double RATE = 0.5; /* steps of the exponent of D(z), 1/dex, from 0 to 4 */

/* Is `name` one of list[n], whatever its case, and without characters that are no letters? */
static int is_one_of(const char *name, size_t n, const char *const *list)
{
    char plain[32];
    size_t k = 0;
    for (; *name != '\0' && k + 1 < sizeof plain; name++)
        if (isalpha((unsigned char)*name))
            plain[k++] = (char)tolower((unsigned char)*name);
    plain[k] = '\0';
    for (size_t i = 0; i < n; i++)
        if (strcmp(plain, list[i]) == 0)
            return 1;
    return 0;
}

/* The axis of two nodes, and that of the metallicity; 0: there is no such pair. */
static int find_axes(const spx_setup *s, size_t *ratio, size_t *metal)
{
    static const char *const ratios[] = {"alpha", "alphafe", "alpham", "afe", "am", "cfe",
                                         "cm",    "nfe",     "nm",     "ofe", "om"};
    static const char *const metals[] = {"feh", "mh", "metallicity", "monh", "metal"};
    *ratio = *metal = s->npar;
    for (size_t p = 0; p < s->npar; p++) {
        if (s->naxis[p] == 2 && !s->parlog[p] && *ratio == s->npar &&
            is_one_of(s->parname[p], sizeof ratios / sizeof *ratios, ratios))
            *ratio = p;
        if (s->naxis[p] >= 3 && s->naxis[p] <= MOST_NODES && !s->parlog[p] &&
            is_one_of(s->parname[p], sizeof metals / sizeof *metals, metals))
            *metal = p;
    }
    return *ratio < s->npar && *metal < s->npar;
}

/* One number of each of the templates: coefficients of components, or samples of ln flux. */
typedef struct {
    size_t n;
    const double *coef; /* [row][n], or NULL: */
    const float *lnflux;
} numbers;

static double number(const numbers *v, size_t row, size_t k)
{
    return v->coef != NULL ? v->coef[row * v->n + k] : v->lnflux[row * v->n + k];
}

/* Nodes along the metallicity with the other parameters held: rows[2][n] of the templates at both nodes of the ratio.
 */
typedef struct {
    size_t n;
    const double *z;
    int32_t row[2][MOST_NODES];
} line;

static double difference(const numbers *v, const line *l, size_t j, size_t k)
{
    return number(v, (size_t)l->row[1][j], k) - number(v, (size_t)l->row[0][j], k);
}

/* Sum of squares of what D is off at the nodes inside, each from the others, in exp(rate z). */
static double left_out(const numbers *v, const line *l, double rate)
{
    const size_t step = v->coef != NULL ? 1 : v->n / SAMPLES + 1;
    double sum = 0;
    for (size_t j = 1; j + 1 < l->n; j++) {
        double x[MOST_NODES], w[4], d[4];
        size_t index[MOST_NODES], m = 0;
        for (size_t i = 0; i < l->n; i++)
            if (i != j) {
                index[m] = i;
                x[m++] = spx_rv_axis_transform(rate, l->z[0], l->z[i]);
            }
        const size_t from = spx_rv_cubic_weights(m, x, spx_rv_axis_transform(rate, l->z[0], l->z[j]), w, d);
        for (size_t k = 0; k < v->n; k += step) {
            double e = -difference(v, l, j, k);
            for (size_t i = 0; i < 4 && from + i < m; i++)
                e += w[i] * difference(v, l, index[from + i], k);
            sum += e * e;
        }
    }
    return sum;
}

/* Coordinates of a line of nodes: `at` counts the combinations of all parameters but the ratio and the metallicity. */
static void take_line(const spx_setup *s, size_t ratio, size_t metal, const size_t *stride, size_t at, line *l)
{
    size_t base = 0;
    for (size_t p = s->npar; p-- > 0;)
        if (p != ratio && p != metal) {
            base += at % s->naxis[p] * stride[p];
            at /= s->naxis[p];
        }
    l->n = s->naxis[metal];
    l->z = s->axis[metal];
    for (size_t i = 0; i < 2; i++)
        for (size_t j = 0; j < l->n; j++)
            l->row[i][j] = s->node[base + i * stride[ratio] + j * stride[metal]];
}

/* A copy with room for more rows, of n numbers of `size` bytes each; the old one is freed. */
static int lengthen(void *array, size_t rows, size_t more, size_t n, size_t size, spx_err *e)
{
    void **old = array, *copy;
    if (*old == NULL)
        return 1;
    if ((copy = spx_alloc2(rows + more, n * size, 1, e)) == NULL)
        return 0;
    memcpy(copy, *old, rows * n * size);
    spx_free(*old);
    *old = copy;
    return 1;
}

/* Nodes of a grid whose axis `ratio` has one more in its middle, from those of the old one; middle[] in the order of
 * the nodes that are left when that axis is taken out. */
static spx_status widen_grid(spx_setup *s, size_t ratio, const size_t *stride, const int32_t *middle, spx_err *e)
{
    const size_t inner = stride[ratio];
    size_t outer = 1;
    for (size_t p = 0; p < ratio; p++)
        outer *= s->naxis[p];
    double *axis = spx_alloc(3, sizeof *axis, e);
    int32_t *node = spx_alloc2(outer, 3 * inner * sizeof *node, 1, e);
    if (axis == NULL || node == NULL) {
        spx_free(axis);
        spx_free(node);
        return SPX_EIO;
    }
    for (size_t o = 0; o < outer; o++)
        for (size_t i = 0; i < inner; i++) {
            node[(o * 3 + 0) * inner + i] = s->node[(o * 2 + 0) * inner + i];
            node[(o * 3 + 1) * inner + i] = middle[o * inner + i];
            node[(o * 3 + 2) * inner + i] = s->node[(o * 2 + 1) * inner + i];
        }
    axis[0] = s->axis[ratio][0];
    axis[1] = 0.5 * (s->axis[ratio][0] + s->axis[ratio][1]);
    axis[2] = s->axis[ratio][1];
    spx_free(s->axis[ratio]);
    spx_free(s->node);
    s->axis[ratio] = axis;
    s->node = node;
    s->naxis[ratio] = 3;
    return SPX_OK;
}

static spx_status bend(spx_setup *s, size_t ratio, size_t metal, spx_err *e)
{
    const int components = s->pca.mean != NULL;
    const size_t old = s->ntemp, nz = s->naxis[metal];
    const double h = s->axis[ratio][1] - s->axis[ratio][0];
    size_t stride[SPX_MAX_PAR] = {0}, nnode = 1, made = 0;
    for (size_t p = s->npar; p-- > 0; nnode *= s->naxis[p])
        stride[p] = nnode;
    const size_t more = nnode / 2, nline = more / nz;
    if (s->filled == NULL && (s->filled = spx_alloc(old, 1, e)) == NULL)
        return SPX_EIO;
    int32_t *middle = spx_alloc(more, sizeof *middle, e);
    if (middle == NULL || !lengthen(&s->params, old, more, s->npar, sizeof *s->params, e) ||
        !lengthen(&s->lnnorm, old, more, 1, sizeof *s->lnnorm, e) ||
        !lengthen(&s->filled, old, more, 1, sizeof *s->filled, e) ||
        !lengthen(&s->lnflux, old, more, s->nwave, sizeof *s->lnflux, e) ||
        (components && !lengthen(&s->pca.coef, old, more, s->pca.ncomp, sizeof *s->pca.coef, e))) {
        spx_free(middle);
        return SPX_EIO;
    }
    s->ntemp += more;
    const numbers of[3] = {{components ? s->pca.ncomp : 0, s->pca.coef, NULL},
                           {s->lnflux != NULL ? s->nwave : 0, NULL, s->lnflux},
                           {s->lnnorm != NULL, s->lnnorm, NULL}};
    const numbers *judged = components ? &of[0] : &of[1];
    double best = HUGE_VAL, rate = 0;
    line l;
    for (size_t trial = 0; trial < TRIALS; trial++) {
        double sum = 0;
        for (size_t at = 0; at < nline; at++) {
            take_line(s, ratio, metal, stride, at, &l);
            sum += left_out(judged, &l, RATE * (double)trial);
        }
        if (sum < best) {
            best = sum;
            rate = RATE * (double)trial;
        }
    }
    double x[MOST_NODES];
    for (size_t j = 0; j < nz; j++)
        x[j] = spx_rv_axis_transform(rate, s->axis[metal][0], s->axis[metal][j]);
    for (size_t at = 0; at < nline; at++) {
        take_line(s, ratio, metal, stride, at, &l);
        for (size_t j = 0; j < nz; j++) {
            const size_t row = old + made++, a = (size_t)l.row[0][j], b = (size_t)l.row[1][j];
            size_t first, place = 0;
            double w[3];
            spx_rv_slope_weights(nz, x, j, &first, w);
            const double slope = exp(rate * (l.z[j] - l.z[0]));
            for (size_t q = 0; q < 3; q++)
                for (size_t k = 0; k < of[q].n; k++) {
                    double dz = 0;
                    for (size_t i = 0; i < 3; i++)
                        dz += w[i] * slope * difference(&of[q], &l, first + i, k);
                    const double value = 0.5 * (number(&of[q], a, k) + number(&of[q], b, k)) - h / 8 * dz;
                    if (q == 0)
                        s->pca.coef[row * of[q].n + k] = value;
                    else if (q == 1)
                        s->lnflux[row * of[q].n + k] = (float)value;
                    else
                        s->lnnorm[row] = value;
                }
            s->filled[row] = 1;
            for (size_t p = 0; p < s->npar; p++)
                s->params[row * s->npar + p] = 0.5 * (s->params[a * s->npar + p] + s->params[b * s->npar + p]);
            /* its place among the nodes without the axis of the ratio */
            size_t rest = at, unit = 1;
            for (size_t p = s->npar; p-- > 0; unit *= p == ratio ? 1 : s->naxis[p])
                if (p == metal) {
                    place += j * unit;
                } else if (p != ratio) {
                    place += rest % s->naxis[p] * unit;
                    rest /= s->naxis[p];
                }
            middle[place] = (int32_t)row;
        }
    }
    spx_status st = widen_grid(s, ratio, stride, middle, e);
    spx_free(middle);
    return st;
}

spx_status spx_rvfit_bend(spx_templates *t, const char **name, spx_err *e)
{
    spx_status st = SPX_OK;
    size_t ratio, metal;
    *name = NULL;
    for (size_t i = 0; i < t->nsetup && st == SPX_OK; i++)
        if (t->setup[i].node != NULL && find_axes(&t->setup[i], &ratio, &metal)) {
            *name = t->setup[i].parname[ratio];
            st = bend(&t->setup[i], ratio, metal, e);
        }
    return st;
}
