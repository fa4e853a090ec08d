/* Cases of the operation `svd`, against one-sided Jacobi rotations in long double (Hestenes 1958, J. SIAM 6, 51).
 * Sizes: rows, columns, method, modes kept, and 1: centred, 2: with weights, 3: both.
 *
 * Tolerance: singular values to 1e-13 of the largest, as LAPACK's and cuSOLVER's are backward stable; vectors to 1e-10,
 * which is that over the least distance of singular values of these matrices, 1e-3 of the largest; modes that are
 * nearer to each other are not known. The matrix of the randomised method has singular values that fall by 2, so that
 * ten more samples and three powers leave 2^-60 of what is left out; its figures are those of test_svd.c. */
#include <math.h>
#include <string.h>

#include "device.h"
#include "op.h"
#include "random.h"

typedef struct {
    size_t m, n;
    double *a, *row, *column;
    spx_svd_options o;
} scene;

static const op_case cases[] = {
    {"square", {12, 12, SPX_SVD_ECONOMIC, 0, 0}},
    {"one element", {1, 1, SPX_SVD_ECONOMIC, 0, 0}},
    {"one row", {1, 7, SPX_SVD_ECONOMIC, 0, 0}},
    {"one column, centred", {9, 1, SPX_SVD_ECONOMIC, 0, 1}},
    {"high, three modes", {57, 11, SPX_SVD_ECONOMIC, 3, 1}},
    {"wide", {12, 64, SPX_SVD_ECONOMIC, 0, 0}},
    {"weights, one of them 0", {20, 9, SPX_SVD_ECONOMIC, 0, 2}},
    {"weights, centred", {9, 20, SPX_SVD_ECONOMIC, 4, 3}},
    {"randomised", {60, 40, SPX_SVD_RANDOMISED, 6, 0}},
    {"randomised, weights, centred", {33, 70, SPX_SVD_RANDOMISED, 5, 3}},
};

static void *draw(const size_t *size, uint64_t seed)
{
    scene *c = need(1, sizeof *c);
    const size_t m = c->m = size[0], n = c->n = size[1];
    c->a = need(m * n, sizeof *c->a);
    c->row = need(m, sizeof *c->row);
    c->column = need(n, sizeof *c->column);
    random_start(seed);
    const size_t nterm = size[2] == SPX_SVD_RANDOMISED ? 30 : 0;
    for (size_t i = 0; i < m * n; i++)
        c->a[i] = nterm > 0 ? 0 : 1 + gauss();
    for (size_t k = 0; k < nterm; k++) {
        for (size_t i = 0; i < m; i++)
            c->row[i] = gauss();
        for (size_t j = 0; j < n; j++)
            c->column[j] = gauss();
        for (size_t i = 0; i < m * n; i++)
            c->a[i] += pow(0.5, (double)k) * c->row[i / n] * c->column[i % n];
    }
    for (size_t i = 0; i < m; i++)
        c->row[i] = i == m / 2 ? 0 : 0.5 + uniform();
    for (size_t j = 0; j < n; j++)
        c->column[j] = 0.5 + uniform();
    c->o = (spx_svd_options){.method = (spx_svd_method)size[2],
                             .rank = size[3],
                             .center = size[4] % 2 == 1,
                             .row_weight = size[4] > 1 ? c->row : NULL,
                             .column_weight = size[4] > 1 ? c->column : NULL,
                             .oversample = 10,
                             .power = 3,
                             .seed = seed};
    op_const("row_weight", c->row, m, sizeof *c->row);
    op_const("column_weight", c->column, n, sizeof *c->column);
    return c;
}

/* u, s, v, energy and mean as parts of an answer. */
static void put(const scene *c, size_t nmode, const double *u, const double *s, const double *v, const double *energy,
                const double *mean, op_answer *a)
{
    const int economic = c->o.method == SPX_SVD_ECONOMIC;
    double *scale, *value = op_add(a, "s", nmode, economic ? 1e-13 : 1e-9, &scale);
    for (size_t k = 0; k < nmode; k++) {
        value[k] = s[k];
        scale[k] = s[0];
    }
    op_put(a, "energy", nmode, energy, economic ? 1e-13 : 1e-9);
    op_put(a, "u", c->m * nmode, u, economic ? 1e-10 : 1e-6);
    op_put(a, "v", nmode * c->n, v, economic ? 1e-10 : 1e-6);
    op_put(a, "mean", mean != NULL ? c->n : 0, mean, 1e-14);
}

static void run(spx_backend *b, void *scene_, int threads, op_answer *a)
{
    const scene *c = scene_;
    spx_svd *out = op_output("svd", 1, sizeof *out);
    double *copy = op_output("a", c->m * c->n, sizeof *copy);
    spx_err e = {0};
    (void)threads; /* BLAS has one, always */
    memcpy(copy, c->a, c->m * c->n * sizeof *copy);
    if (op_done(b->svd(b, copy, c->m, c->n, &c->o, out, &e), &e))
        put(c, out->nmode, out->u, out->s, out->v, out->energy, out->mean, a);
    spx_svd_free(out);
}

/* Makes the q columns of x[p][q] orthogonal by rotations, which w[q][q] collects. */
static void jacobi(long double *x, size_t p, size_t q, long double *w)
{
    for (size_t i = 0; i < q; i++)
        w[i * q + i] = 1;
    for (int sweep = 0, turned = 1; turned && sweep < 60; sweep++) {
        turned = 0;
        for (size_t i = 0; i < q; i++)
            for (size_t j = i + 1; j < q; j++) {
                long double ii = 0, jj = 0, ij = 0;
                for (size_t r = 0; r < p; r++) {
                    ii += x[r * q + i] * x[r * q + i];
                    jj += x[r * q + j] * x[r * q + j];
                    ij += x[r * q + i] * x[r * q + j];
                }
                if (fabsl(ij) <= 1e-18L * sqrtl(ii * jj))
                    continue;
                turned = 1;
                const long double z = (jj - ii) / (2 * ij), t = (z < 0 ? -1 : 1) / (fabsl(z) + sqrtl(1 + z * z));
                const long double cosine = 1 / sqrtl(1 + t * t), sine = cosine * t;
                for (size_t r = 0; r < p + q; r++) {
                    long double *row = r < p ? x + r * q : w + (r - p) * q;
                    const long double left = row[i], right = row[j];
                    row[i] = cosine * left - sine * right;
                    row[j] = sine * left + cosine * right;
                }
            }
    }
}

static void reference(void *scene_, op_answer *a)
{
    const scene *c = scene_;
    const size_t m = c->m, n = c->n, least = m < n ? m : n, p = m < n ? n : m, q = least;
    const size_t nmode = c->o.rank > 0 ? c->o.rank : least;
    long double *x = need(p * q, sizeof *x), *w = need(q * q, sizeof *w), *norm = need(q, sizeof *norm), total = 0;
    double *u = need(m * nmode, sizeof *u), *v = need(nmode * n, sizeof *v), *s = need(nmode, sizeof *s);
    double *energy = need(nmode, sizeof *energy), *mean = need(n, sizeof *mean);
    for (size_t j = 0; j < n; j++) {
        long double sum = 0, weight = 0;
        for (size_t i = 0; i < m; i++) {
            sum += (c->o.row_weight != NULL ? c->row[i] : 1) * (long double)c->a[i * n + j];
            weight += c->o.row_weight != NULL ? c->row[i] : 1;
        }
        mean[j] = c->o.center ? (double)(sum / weight) : 0;
        for (size_t i = 0; i < m; i++) {
            const long double f = c->o.row_weight != NULL ? sqrtl(c->row[i]) * sqrtl(c->column[j]) : 1;
            const long double value = f * (c->a[i * n + j] - (c->o.center ? sum / weight : 0));
            x[m < n ? j * q + i : i * q + j] = value; /* of a wide matrix the transpose */
            total += value * value;
        }
    }
    jacobi(x, p, q, w);
    for (size_t k = 0; k < q; k++)
        for (size_t r = 0; r < p; r++)
            norm[k] += x[r * q + k] * x[r * q + k];
    long double so_far = 0, last = HUGE_VALL;
    for (size_t k = 0; k < nmode; k++) {
        size_t of = 0, at = 0;
        for (size_t i = 0; i < q; i++)
            of = norm[i] > norm[of] ? i : of;
        const long double here = sqrtl(norm[of]);
        so_far += norm[of];
        s[k] = (double)here;
        energy[k] = (double)(so_far / total);
        norm[of] = -1;
        long double next = 0;
        for (size_t i = 0; i < q; i++)
            next = norm[i] > 0 ? fmaxl(next, sqrtl(norm[i])) : next;
        const int known = last - here > 1e-3L * s[0] && (q == 1 || here - next > 1e-3L * s[0]);
        for (size_t i = 0; i < m; i++)
            u[i * nmode + k] = (double)(m < n ? w[i * q + of] : x[i * q + of] / here);
        for (size_t j = 0; j < n; j++)
            v[k * n + j] = (double)(m < n ? x[j * q + of] / here : w[j * q + of]);
        double most = 0;
        for (size_t j = 0; j < n; j++)
            most = fmax(most, fabs(v[k * n + j]));
        while (fabs(v[k * n + at]) < 0.999 * most) /* ties: the first */
            at++;
        const double sign = !known ? NAN : v[k * n + at] < 0 ? -1 : 1;
        for (size_t i = 0; i < m; i++)
            u[i * nmode + k] *= sign;
        for (size_t j = 0; j < n; j++)
            v[k * n + j] *= sign;
        last = here;
    }
    put(c, nmode, u, s, v, energy, c->o.center ? mean : NULL, a);
    spx_free(x);
    spx_free(w);
    spx_free(norm);
    spx_free(u);
    spx_free(v);
    spx_free(s);
    spx_free(energy);
    spx_free(mean);
}

static void release(void *scene_)
{
    scene *c = scene_;
    spx_free(c->a);
    spx_free(c->row);
    spx_free(c->column);
    spx_free(c);
}

const op_test op_svd = {sizeof cases / sizeof *cases, cases, draw, run, reference, release};
