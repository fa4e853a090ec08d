/* Whole-trace extraction: the loops that take the time, written in vectors of SPX_VL doubles and compiled once for
 * every instruction set (see extract_trace_impl.h). The file that includes this defines SPX_VL and SPX_KERNELS.
 *
 * Recurrences along a trace are sequential; their lanes are fibres. Spots and their overlaps are sums over pixels;
 * their lanes are columns of the CCD. */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "extract/extract_trace_impl.h"
#include "psf/psf_math.h"

#define ALWAYS_INLINE static inline __attribute__((always_inline))

typedef double vec __attribute__((vector_size(8 * SPX_VL)));
typedef int64_t ivec __attribute__((vector_size(8 * SPX_VL)));
typedef double vec_any __attribute__((vector_size(8 * SPX_VL), aligned(8), may_alias));
typedef float vec_float __attribute__((vector_size(4 * SPX_VL), aligned(4), may_alias));

ALWAYS_INLINE vec load(const double *p)
{
    return *(const vec_any *)p;
}

ALWAYS_INLINE void store(double *p, vec v)
{
    *(vec_any *)p = v;
}

ALWAYS_INLINE vec load_float(const float *p)
{
    return __builtin_convertvector(*(const vec_float *)p, vec);
}

#if SPX_VL == 8
#define EVERY(v)     ((vec){(v), (v), (v), (v), (v), (v), (v), (v)})
#define EVERY_INT(v) ((ivec){(v), (v), (v), (v), (v), (v), (v), (v)})
#elif SPX_VL == 4
#define EVERY(v)     ((vec){(v), (v), (v), (v)})
#define EVERY_INT(v) ((ivec){(v), (v), (v), (v)})
#else
#define EVERY(v)     ((vec){(v), (v)})
#define EVERY_INT(v) ((ivec){(v), (v)})
#endif

ALWAYS_INLINE vec every(double v)
{
    return EVERY(v);
}

/* a where mask, else b. */
ALWAYS_INLINE vec choose(ivec mask, vec a, vec b)
{
    return (vec)(((ivec)a & mask) | ((ivec)b & ~mask));
}

ALWAYS_INLINE vec positive_or_0(vec v)
{
    return (vec)((ivec)v & (v > every(0.0)));
}

/* Always in the same order: halves are added, until one is left. */
ALWAYS_INLINE double sum_lanes(vec v)
{
#if SPX_VL == 8
    typedef double vec4 __attribute__((vector_size(32)));
    typedef double vec2 __attribute__((vector_size(16)));
    vec4 four = __builtin_shufflevector(v, v, 0, 1, 2, 3) + __builtin_shufflevector(v, v, 4, 5, 6, 7);
    vec2 two = __builtin_shufflevector(four, four, 0, 1) + __builtin_shufflevector(four, four, 2, 3);
    return two[0] + two[1];
#elif SPX_VL == 4
    typedef double vec2 __attribute__((vector_size(16)));
    vec2 two = __builtin_shufflevector(v, v, 0, 1) + __builtin_shufflevector(v, v, 2, 3);
    return two[0] + two[1];
#else
    return v[0] + v[1];
#endif
}

ALWAYS_INLINE vec vabs(vec v)
{
    return (vec)((ivec)v & EVERY_INT(INT64_MAX));
}

ALWAYS_INLINE vec vmax(vec a, vec b)
{
    return choose(a > b, a, b);
}

ALWAYS_INLINE vec square(vec v)
{
    return v * v;
}

/* ---- spots ---- */

/* exp(x) for -700 <= x <= 0, to 2e-16 relative: 2^n times the Taylor series in the remainder, |r| <= log(2)/2. */
ALWAYS_INLINE vec vexp(vec x)
{
    static const double c[13] = {
        1.0,        1.0,         1.0 / 2,      1.0 / 6,       1.0 / 24,       1.0 / 120,      1.0 / 720,
        1.0 / 5040, 1.0 / 40320, 1.0 / 362880, 1.0 / 3628800, 1.0 / 39916800, 1.0 / 479001600};
    const vec magic = every(6755399441055744.0); /* 1.5 * 2^52: rounds to an integer and leaves it in the low bits */
    vec n = x * every(1.4426950408889634) + magic;
    ivec power = ((ivec)n << 52) + EVERY_INT(0x3ff0000000000000);
    n -= magic;
    vec r = x - n * every(6.93147180369123816490e-01) - n * every(1.90821492927058770002e-10);
    vec p = every(c[12]);
    for (int i = 11; i >= 0; i--)
        p = p * r + every(c[i]);
    return p * (vec)power;
}

/* erf(e/sqrt 2)/2 and exp(-e^2/2). (1 + 2 z) exp(z^2) erfc(z) is a polynomial in (z - 4)/(z + 4) for all z >= 0, to
 * 3e-15 (Shepherd & Laframboise 1981, Math. Comp. 36, 249; coefficients: Chebyshev series of order 22). */
ALWAYS_INLINE void half_erf(vec e, vec *erf2, vec *gauss)
{
    static const double c[23] = {
        1.23299511862555256e+00,  -1.39621116840569215e-01, 1.53796521026158643e-02,  6.80970542547575108e-02,
        -1.01039066035322977e-01, 9.37328350030032786e-02,  -6.63303658391336676e-02, 3.71675154395842353e-02,
        -1.61977337706605343e-02, 5.03197080349366416e-03,  -7.57774894395879528e-04, -1.99260525562294788e-04,
        1.50626990644013874e-04,  -2.43883127586741474e-05, -1.12330004048999404e-05, 5.68984840356279205e-06,
        3.08078597299754620e-07,  -8.02031863713636982e-07, 6.33019953966140736e-08,  9.28732333704829190e-08,
        -1.29430554807186135e-08, -6.96396455168724063e-09, 9.31322574615478516e-10};
    vec z = vabs(e) * every(0.70710678118654752440);
    vec power = every(-0.5) * e * e;
    vec g = vexp(vmax(power, every(-700.0)));
    vec t = (z - every(4.0)) / (z + every(4.0));
    vec p = every(c[22]);
    for (int i = 21; i >= 0; i--)
        p = p * t + every(c[i]);
    vec half = every(0.5) - every(0.5) * g * p / (every(1.0) + every(2.0) * z);
    *erf2 = (vec)((ivec)half | ((ivec)e & EVERY_INT(INT64_MIN)));
    *gauss = g;
}

/* Doubles of a row of edges: those along x, then those along y, then room for vectors that reach beyond. */
ALWAYS_INLINE size_t edge_row(const spx_trace_plan *p)
{
    size_t nx = (size_t)p->nx, most = nx + 1 + p->nyp;
    most = (most > p->nxp ? most : p->nxp) + 2 * SPX_TRACE_LANES;
    return most / SPX_TRACE_LANES * SPX_TRACE_LANES;
}

/* The spot of bin k of a fibre into spot[ny][nxp], 0 beyond its nx columns; the same arithmetic as spx_psf_spot() up
 * to rounding. Returns 0, and a spot of zeros, where the PSF has none. */
ALWAYS_INLINE int make_spot_of(const spx_trace_plan *p, size_t fibre, size_t k, const spx_trace_place *at, double *work,
                               double *spot, int nxv, int degx, int degy)
{
    const size_t ndeg = p->job->psf->ndeg, ne = edge_row(p), nxp = (size_t)nxv * SPX_VL, nyp = p->nyp;
    const int nx = p->nx, ny = p->ny, deg = degx > degy ? degx : degy;
    double *c = work, *e = c + p->npar, *h = e + ne, *gx = h + (size_t)(deg + 1) * ne,
           *across = gx + (size_t)(degx + 1) * nxp;
    const double *coeff = p->coeff + fibre * ndeg * p->npar, *basis = p->bp + k * ndeg;
    for (size_t i = 0; i < p->npar; i += SPX_VL) {
        vec sum = load(coeff + i) * every(basis[0]);
        for (size_t d = 1; d < ndeg; d++)
            sum += load(coeff + d * p->npar + i) * every(basis[d]);
        store(c + i, sum);
    }
    const size_t ngh = (size_t)(degx + 1) * (size_t)(degy + 1);
    const double sigx = c[ngh], sigy = c[ngh + 1];
    if (!(sigx > 0.0 && sigy > 0.0 && sigx < SPX_SPOT_FAR && sigy < SPX_SPOT_FAR))
        return 0;

    /* edges in units of sigma, and the functions whose differences are the pixel integrals */
    const double isx = 1.0 / sigx, isy = 1.0 / sigy;
    const double ex = -(nx / 2) - 0.5 - at->dx, ey = -(ny / 2) - 0.5 - at->dy;
    size_t used = (size_t)(nx + ny + 2);
    for (int i = 0; i <= nx; i++)
        e[i] = (ex + i) * isx;
    for (int i = 0; i <= ny; i++)
        e[nx + 1 + i] = (ey + i) * isy;
    for (size_t i = used; i < ne; i++)
        e[i] = 0.0;
    for (size_t i = 0; i < ne; i += SPX_VL) {
        vec edge = load(e + i), erf2, gauss;
        if (i >= used) {
            for (int m = 0; m <= deg; m++)
                store(h + (size_t)m * ne + i, every(0.0));
            continue;
        }
        half_erf(edge, &erf2, &gauss);
        store(h + i, every(0.0) - erf2);
        vec below = every(0.0), here = gauss * every(0.39894228040143267794);
        for (int m = 1; m <= deg; m++) {
            store(h + (size_t)m * ne + i, here);
            vec above = edge * here - every(m - 1) * below;
            below = here;
            here = above;
        }
    }
    for (int i = 0; i <= degx; i++)
        for (int v = 0; v < nxv; v++) {
            const double *hi = h + (size_t)i * ne + (size_t)v * SPX_VL;
            store(gx + (size_t)i * nxp + (size_t)v * SPX_VL,
                  (load(hi) - load(hi + 1)) * load(p->column_mask + (size_t)v * SPX_VL));
        }
    /* across[i][y] = sum_j c_ij g_j(y) */
    for (size_t y = 0; y < nyp; y += SPX_VL) {
        for (int i = 0; i <= degx; i++)
            store(across + (size_t)i * nyp + y, every(0.0));
        for (int j = 0; j <= degy; j++) {
            const double *hj = h + (size_t)j * ne + (size_t)(nx + 1) + y;
            vec gy = load(hj) - load(hj + 1);
            for (int i = 0; i <= degx; i++) {
                double *to = across + (size_t)i * nyp + y;
                store(to, load(to) + gy * every(c[i + (degx + 1) * j]));
            }
        }
    }
    vec sum = every(0.0), raw = every(0.0);
    for (int y = 0; y < ny; y++)
        for (int v = 0; v < nxv; v++) {
            vec s = every(0.0);
            for (int i = 0; i <= degx; i++)
                s += every(across[(size_t)i * nyp + (size_t)y]) * load(gx + (size_t)i * nxp + (size_t)v * SPX_VL);
            raw += s;
            s = positive_or_0(s);
            sum += s;
            store(spot + (size_t)y * nxp + (size_t)v * SPX_VL, s);
        }
    const double total = sum_lanes(sum), check = sum_lanes(raw);
    const double scale = isfinite(check) && total > 0.0 && isfinite(total) ? 1.0 / total : 0.0;
    if (!(scale > 0.0 && isfinite(scale)))
        return 0;
    for (size_t i = 0; i < (size_t)ny * nxp; i += SPX_VL)
        store(spot + i, load(spot + i) * every(scale));
    return 1;
}

static int make_spot(const spx_trace_plan *p, size_t fibre, size_t k, const spx_trace_place *at, double *work,
                     double *spot)
{
    const int nxv = (int)(p->nxp / SPX_VL);
    int ok;
    if (p->nxp == 24 && p->degx == 6 && p->degy == 6) /* DESI's: loops of constant length */
        ok = make_spot_of(p, fibre, k, at, work, spot, 24 / SPX_VL, 6, 6);
    else
        ok = make_spot_of(p, fibre, k, at, work, spot, nxv, p->degx, p->degy);
    if (!ok)
        memset(spot, 0, (size_t)p->ny * p->nxp * sizeof *spot);
    return ok;
}

/* ---- equations ---- */

/* Sum of products of `rows` rows of two spots, nv vectors of each. */
ALWAYS_INLINE double dot_rows(const double *a, const double *b, int rows, size_t stride, int nv)
{
    vec even = every(0.0), odd = every(0.0);
    int y = 0;
    for (; y + 1 < rows; y += 2) {
        for (int v = 0; v < nv; v++) {
            even += load(a + v * SPX_VL) * load(b + v * SPX_VL);
            odd += load(a + stride + v * SPX_VL) * load(b + stride + v * SPX_VL);
        }
        a += 2 * stride;
        b += 2 * stride;
    }
    if (y < rows)
        for (int v = 0; v < nv; v++)
            even += load(a + v * SPX_VL) * load(b + v * SPX_VL);
    return sum_lanes(even + odd);
}

/* Element of M: sum over the pixels that both spots cover; `weighted` is the first times the weights. */
ALWAYS_INLINE double overlap(const spx_trace_plan *p, const double *weighted, const spx_trace_place *i,
                             const double *spot, const spx_trace_place *j)
{
    const int dx = j->xc - i->xc, dy = j->yc - i->yc;
    const int columns = p->nx - (dx < 0 ? -dx : dx), rows = p->ny - (dy < 0 ? -dy : dy);
    if (columns <= 0 || rows <= 0)
        return 0.0;
    const size_t stride = p->nxp;
    const double *a = weighted + (dx > 0 ? dx : 0) + (dy > 0 ? (size_t)dy * stride : 0);
    const double *b = spot + (dx < 0 ? -dx : 0) + (dy < 0 ? (size_t)-dy * stride : 0);
    /* beyond the columns of a spot are zeros, so a vector may reach there */
    const int nv = (columns + SPX_VL - 1) / SPX_VL;
    if (nv == 1)
        return dot_rows(a, b, rows, stride, 1);
    if (nv == 2)
        return dot_rows(a, b, rows, stride, 2);
    if (nv == 3)
        return dot_rows(a, b, rows, stride, 3);
    return dot_rows(a, b, rows, stride, nv);
}

/* Spot times weight, and its sums: A^T W p, A^T W 1, A^T [W > 0] of one bin. */
ALWAYS_INLINE void weigh(const spx_trace_plan *p, const spx_trace_bundle *b, const spx_trace_place *at,
                         const double *spot, double *weighted, double *value, double *weight, double *seen)
{
    vec sum_value = every(0.0), sum_weight = every(0.0), sum_seen = every(0.0);
    size_t pixel = (size_t)(at->yc - b->wy0) * b->wnx + (size_t)(at->xc - b->wx0);
    for (int y = 0; y < p->ny; y++, pixel += b->wnx)
        for (size_t x = 0; x < p->nxp; x += SPX_VL) {
            vec s = load(spot + (size_t)y * p->nxp + x), ivar = load_float(b->weight + pixel + x);
            vec ws = s * ivar;
            store(weighted + (size_t)y * p->nxp + x, ws);
            sum_weight += ws;
            sum_value += ws * load_float(b->data + pixel + x);
            sum_seen += (vec)((ivec)s & (ivar > every(0.0)));
        }
    *value = sum_lanes(sum_value);
    *weight = sum_lanes(sum_weight);
    *seen = sum_lanes(sum_seen);
}

static spx_status equations(const spx_trace_plan *p, spx_trace_bundle *b, spx_trace_rooms *r, spx_err *e)
{
    const size_t nf = b->nf, nl = b->nl, npix = (size_t)p->ny * p->nxp, slots = (size_t)b->depth + 1;
    double *ring = spx_trace_room(r, SPX_ROOM_RING, slots * nf + 1, npix, e);
    double *work = spx_trace_room(r, SPX_ROOM_SPOT, p->spot_work, 1, e);
    if (!ring || !work)
        return SPX_EIO;
    double *weighted = ring + slots * nf * npix;
    for (size_t k = 0; k < p->nbin; k++) {
        double *now = ring + k % slots * nf * npix;
        const spx_trace_place *at = b->at + k * nf;
        unsigned char *state = b->state + k * nf;
        double *row = b->m + k * b->nelem * nl;
        memset(row, 0, b->nelem * nl * sizeof *row);
        for (size_t f = 0; f < nf; f++)
            if (state[f] == SPX_TRACE_SPOT && !make_spot(p, b->fibre0 + f, k, &at[f], work, now + f * npix))
                state[f] = SPX_TRACE_NOSPOT;
        for (size_t f = 0; f < nf; f++) {
            if (state[f] != SPX_TRACE_SPOT)
                continue;
            weigh(p, b, &at[f], now + f * npix, weighted, &b->y[k * nl + f], &b->w[k * nl + f], &b->seen[k * nl + f]);
            if (!(b->w[k * nl + f] > 0.0))
                continue;
            row[f] = overlap(p, weighted, &at[f], now + f * npix, &at[f]);
            size_t f0 = f > (size_t)b->reach ? f - (size_t)b->reach : 0,
                   f1 = f + (size_t)b->reach < nf ? f + (size_t)b->reach : nf - 1;
            for (size_t g = f0; g <= f1; g++) {
                /* earlier bins of fibre g, and this bin of fibres before f */
                size_t df = g > f ? g - f : f - g;
                long from = g > f ? b->lo[df] : -b->hi[df], to = g >= f ? -1 : b->lo[df] > 0 ? -b->lo[df] : 0;
                for (long dk = from < -(long)k ? -(long)k : from; dk <= to; dk++) {
                    size_t k2 = (size_t)((long)k + dk), at2 = k2 * nf + g;
                    if (b->state[at2] != SPX_TRACE_SPOT)
                        continue;
                    double sum = overlap(p, weighted, &at[f], ring + (k2 % slots * nf + g) * npix, &b->at[at2]);
                    if (g > f)
                        row[(b->first[df] + (size_t)(dk - b->lo[df])) * nl + f] = sum;
                    else
                        b->m[(k2 * b->nelem + b->first[df] + (size_t)(-dk - b->lo[df])) * nl + g] = sum;
                }
            }
        }
    }
    return SPX_OK;
}

/* ---- banded factorisation: lanes are fibres ---- */

/* L D L^T of the band matrix a(j, j+d) at a[j*arow + d*aelem], plus `shift` on the diagonal: l[j*lrow] = 1/D_j,
 * l[j*lrow + d*lelem] = L(j+d, j); diag[j*SPX_VL] = D_j. l and diag have m rows before the first, which hold zeros.
 * u: room for m + 1 vectors. Returns the lanes that met a pivot that is not positive (they went on with 1). */
ALWAYS_INLINE ivec factor(size_t n, int m, const double *a, size_t arow, size_t aelem, vec shift, double *l,
                          size_t lrow, size_t lelem, double *diag, vec *u)
{
    ivec bad = EVERY_INT(0);
    for (size_t j = 0; j < n; j++) {
        const double *aj = a + j * arow;
        double *lj = l + j * lrow;
        vec pivot = load(aj) + shift;
        for (int t = 1; t <= m; t++) {
            vec lt = load(lj - (size_t)t * lrow + (size_t)t * lelem);
            u[t] = lt * load(diag + ((long)j - t) * SPX_VL);
            pivot -= lt * u[t];
        }
        ivec good = (pivot > every(0.0)) & (pivot < every(INFINITY));
        bad |= ~good;
        pivot = choose(good, pivot, every(1.0));
        vec inverse = every(1.0) / pivot;
        store(diag + j * SPX_VL, pivot);
        store(lj, inverse);
        for (int i = 1; i <= m; i++) {
            vec sum = load(aj + (size_t)i * aelem);
            for (int t = 1; t <= m - i; t++)
                sum -= load(lj - (size_t)t * lrow + (size_t)(t + i) * lelem) * u[t];
            store(lj + (size_t)i * lelem, sum * inverse);
        }
    }
    return bad;
}

/* Row j of the inverse Z from rows j + 1 .. j + m, by Takahashi's recurrence: z[1..m] and Z(j, j), which is returned.
 * lelem as in factor(). Z(j+i, j) = -sum_t Z(j+i, j+t) L(j+t, j), Z(j, j) = 1/D_j - sum_t L(j+t, j) Z(j+t, j). Row r of
 * the ring of m + 1 holds Z(r, r+d), d = 0..m-1; that of row j + i is `slot` + i. */
ALWAYS_INLINE vec inverse_row(int m, const double *lj, size_t lelem, double *ring, size_t slot, vec *z)
{
    const size_t zrow = (size_t)m * SPX_VL;
    const double *row[SPX_TRACE_MOST_BAND + 1];
    for (int i = 1; i <= m; i++) {
        row[i] = ring + (slot + (size_t)i > (size_t)m ? slot + (size_t)i - (size_t)m - 1 : slot + (size_t)i) * zrow;
        z[i] = every(0.0);
    }
    for (int t = 1; t <= m; t++) {
        vec l = load(lj + (size_t)t * lelem);
        for (int i = 1; i <= m; i++)
            z[i] -= l * load(i < t ? row[i] + (t - i) * SPX_VL : row[t] + (i - t) * SPX_VL);
    }
    vec sum = load(lj);
    for (int t = 1; t <= m; t++)
        sum -= load(lj + (size_t)t * lelem) * z[t];
    store(ring + slot * zrow, sum);
    for (int d = 1; d < m; d++)
        store(ring + slot * zrow + (size_t)d * SPX_VL, z[d]);
    return sum;
}

static size_t factorise(const spx_trace_plan *p, spx_trace_bundle *b)
{
    const int m = b->hi[0];
    const size_t lrow = (size_t)(m + 1) * b->nl;
    double *diag = b->diag;
    size_t count = 0;
    for (size_t v = 0; v < b->nl; v += SPX_VL) {
        vec u[SPX_TRACE_MOST_BAND + 1];
        ivec bad;
        if (m == 7)
            bad = factor(p->nbin, 7, b->m + v, b->nelem * b->nl, b->nl, every(0.0), b->ldl + v, lrow, b->nl, diag, u);
        else
            bad = factor(p->nbin, m, b->m + v, b->nelem * b->nl, b->nl, every(0.0), b->ldl + v, lrow, b->nl, diag, u);
        for (size_t i = 0; i < SPX_VL; i++)
            if (v + i < b->nf && bad[i] && !b->lost[v + i]) {
                b->lost[v + i] = 1;
                count++;
            }
    }
    return count;
}

/* ---- M x = y ---- */

/* out = M v. Vectors have `depth` rows of zeros before and after. */
static void multiply(const spx_trace_plan *p, const spx_trace_bundle *b, const double *v, double *out)
{
    const size_t nl = b->nl;
    memset(out - (size_t)b->depth * nl, 0, (p->nbin + 2 * (size_t)b->depth + 1) * nl * sizeof *out);
    for (size_t k = 0; k < p->nbin; k++) {
        const double *row = b->m + k * b->nelem * nl, *vk = v + k * nl;
        for (size_t i = 0; i < nl; i += SPX_VL) {
            const vec own = load(vk + i);
            vec sum = load(row + i) * own;
            for (int df = 0; df <= b->reach; df++)
                for (int dk = df == 0 ? 1 : b->lo[df]; dk <= b->hi[df]; dk++) {
                    vec m = load(row + (b->first[df] + (size_t)(dk - b->lo[df])) * nl + i);
                    long at = ((long)k + dk) * (long)nl + (long)i + df;
                    sum += m * load(v + at);
                    store(out + at, load(out + at) + m * own);
                }
            store(out + k * nl + i, load(out + k * nl + i) + sum);
        }
    }
}

/* z = P^-1 r with P the blocks of the single fibres. */
static void precondition(const spx_trace_plan *p, const spx_trace_bundle *b, const double *r, double *z)
{
    const size_t nl = b->nl, lrow = (size_t)(b->hi[0] + 1) * nl;
    const int m = b->hi[0];
    for (size_t k = 0; k < p->nbin; k++)
        for (size_t i = 0; i < nl; i += SPX_VL) {
            vec sum = load(r + k * nl + i);
            const double *l = b->ldl + k * lrow + i;
            for (int t = 1; t <= m; t++)
                sum -= load(l - (size_t)t * lrow + (size_t)t * nl) * load(z + ((long)k - t) * (long)nl + (long)i);
            store(z + k * nl + i, sum);
        }
    for (size_t k = p->nbin; k-- > 0;)
        for (size_t i = 0; i < nl; i += SPX_VL) {
            const double *l = b->ldl + k * lrow + i;
            vec sum = load(z + k * nl + i) * load(l);
            for (int t = 1; t <= m; t++)
                sum -= load(l + (size_t)t * nl) * load(z + (k + (size_t)t) * nl + i);
            store(z + k * nl + i, sum);
        }
}

static double inner(size_t n, const double *a, const double *c)
{
    vec sum = every(0.0);
    for (size_t i = 0; i < n; i += SPX_VL)
        sum += load(a + i) * load(c + i);
    return sum_lanes(sum);
}

/* Frames with masks need some 15. */
#define MOST_STEPS 100

/* The preconditioned residual r^T P^-1 r is the squared error of x in units of its standard deviations, summed over
 * the bundle: that is what is driven below the tolerance (or to where rounding ends). */
static spx_status solve(const spx_trace_plan *p, spx_trace_bundle *b, spx_trace_rooms *rooms, int *solved, spx_err *e)
{
    const size_t nl = b->nl, n = p->nbin * nl, margin = (size_t)b->depth * nl + nl, room = n + 2 * margin;
    double *memory = spx_trace_room(rooms, SPX_ROOM_CG, 4, room, e);
    if (!memory)
        return SPX_EIO;
    memset(memory, 0, 4 * room * sizeof *memory);
    double *r = memory + margin, *z = r + room, *q = z + room, *d = q + room, *x = b->x;
    memcpy(r, b->y, n * sizeof *r);
    memset(x, 0, n * sizeof *x);
    precondition(p, b, r, z);
    memcpy(d, z, n * sizeof *d);
    double rz = inner(n, r, z), enough = p->tolerance * p->tolerance, rounding = 1e-26 * rz;
    enough = enough > rounding ? enough : rounding;
    int steps = 0;
    while (rz > enough && steps < MOST_STEPS) {
        multiply(p, b, d, q);
        double dq = inner(n, d, q);
        if (!(dq > 0.0 && isfinite(dq)))
            break;
        double alpha = rz / dq;
        for (size_t i = 0; i < n; i += SPX_VL) {
            store(x + i, load(x + i) + every(alpha) * load(d + i));
            store(r + i, load(r + i) - every(alpha) * load(q + i));
        }
        precondition(p, b, r, z);
        double next = inner(n, r, z), beta = next / rz;
        rz = next;
        for (size_t i = 0; i < n; i += SPX_VL)
            store(d + i, load(z + i) + every(beta) * load(d + i));
        steps++;
    }
    *solved = rz <= enough;
    return SPX_OK;
}

/* ---- marginal information of each fibre ---- */

ALWAYS_INLINE int any_lane(ivec mask)
{
    int64_t all = 0;
    for (int i = 0; i < SPX_VL; i++)
        all |= mask[i];
    return all != 0;
}

ALWAYS_INLINE int all_lanes(ivec mask)
{
    int64_t all = -1;
    for (int i = 0; i < SPX_VL; i++)
        all &= mask[i];
    return all != 0;
}

/* Other fibres whose light is taken out of that of the fibres of SPX_VL lanes: fibre + off[c], c < q, for all lanes,
 * and the factor L D L^T of their block of M, ordered by bin and then by c. */
typedef struct {
    int q;
    int off[2 * SPX_TRACE_MAX_REACH];
    ivec there[2 * SPX_TRACE_MAX_REACH]; /* lanes for which this fibre is in the bundle */
    int m;                               /* half-bandwidth */
    const double *l;                     /* row of bin 0: see factor(); rows of zeros before and after */
    size_t row, elem;
    int tail; /* bins that a column of V may go on beyond the overlap */
    int cut;  /* becomes 1 where that was too little */
} others;

/* Element of M between (lane + f, k) and (lane + g, k + dk) for all lanes. */
ALWAYS_INLINE vec coupling(const spx_trace_bundle *b, size_t lane, int f, int g, long k, long dk)
{
    const int df = g > f ? g - f : f - g;
    const long step = g > f ? dk : g < f ? -dk : dk < 0 ? -dk : dk;
    if (df > b->reach || step < b->lo[df] || step > b->hi[df])
        return every(0.0);
    const long row = g > f || (g == f && dk >= 0) ? k : k + dk;
    const size_t element = (size_t)row * b->nelem + b->first[df] + (size_t)(step - b->lo[df]);
    return load(b->m + element * b->nl + lane + (g > f ? f : g));
}

/* Element (k, k + d) of A_s in lane 0; d beyond the diagonals of M only where those are in use. */
ALWAYS_INLINE double *element(const spx_trace_plan *p, const spx_trace_bundle *b, const spx_trace_diagonals *a,
                              size_t k, int d)
{
    const size_t m = (size_t)b->hi[0];
    return (size_t)d <= m ? a->near + (k * (m + 1) + (size_t)d) * b->nl
                          : a->far + (((size_t)d - m - 1) * p->nbin + k) * b->nl;
}

static void use_far(const spx_trace_plan *p, const spx_trace_bundle *b, spx_trace_diagonals *a)
{
    if (!a->wide)
        memset(a->far, 0, (b->band - (size_t)b->hi[0]) * p->nbin * b->nl * sizeof *a->far);
    a->wide = 1;
}

/* What becomes of elements that are there already. */
typedef enum { FIRST, ADD, REPLACE } take_mode;

/* A column of V = L^-1 B, with B the block of M between a fibre and the others. */
typedef struct {
    int rows;   /* of it that are known, from the first bin that overlaps with its own on */
    vec taken;  /* sum of v^2/D over them: T_jj */
    vec recent; /* of that the last SPX_TRACE_LAST bins and up to as many before: no more than that may follow */
    vec last;   /* of that those since a multiple of SPX_TRACE_LAST */
} reached;

/* Column j of V further on, until what follows is too little for an element of T that it has with a column of which
 * `other` is taken off: their product is at most sqrt(recent other). scaled, unless it is NULL, gets v/D. */
ALWAYS_INLINE void follow(const spx_trace_plan *p, const spx_trace_bundle *b, others *o, int m, int q, size_t lane,
                          size_t j, vec other, vec least, double *v, double *scaled, reached *r)
{
    const int depth = b->depth;
    int rows = r->rows;
    vec recent = r->recent, last = r->last, taken = r->taken;
    for (int bin = rows / q - depth; bin <= depth + o->tail; bin++) {
        if (bin > depth + 1 && all_lanes(recent * vmax(taken, other) <= least))
            break;
        const long k = (long)j + bin;
        vec added = every(0.0);
        for (int c = 0; c < q; c++, rows++) {
            vec sum = every(0.0);
            if (bin <= depth && k >= 0 && k < (long)p->nbin)
                sum = (vec)((ivec)coupling(b, lane, 0, o->off[c], (long)j, bin) & o->there[c]);
            const double *l = o->l + (k * q + c) * (long)o->row;
            if (rows >= m) {
                for (int s = 1; s <= m; s++)
                    sum -= load(l - (size_t)s * o->row + (size_t)s * o->elem) * load(v + (rows - s) * SPX_VL);
            } else {
                for (int s = 1; s <= rows; s++)
                    sum -= load(l - (size_t)s * o->row + (size_t)s * o->elem) * load(v + (rows - s) * SPX_VL);
            }
            const vec u = sum * load(l);
            store(v + rows * SPX_VL, sum);
            if (scaled)
                store(scaled + rows * SPX_VL, u);
            added += sum * u;
        }
        if (bin % SPX_TRACE_LAST == 0) {
            recent = last;
            last = every(0.0);
        }
        recent += added;
        last += added;
        taken += added;
    }
    *r = (reached){rows, taken, recent, last};
}

/* Doubles that take_off() needs, with `column` of them in a column of V. */
static size_t columns_room(const spx_trace_bundle *b, size_t column)
{
    return (b->band + 2) * column + (b->band + 1) * (sizeof(reached) / sizeof(double) + SPX_VL);
}

/* Columns j0 .. j1 - 1 of T = V^T D^-1 V, from row `low` on, into *t: what the Schur complement with respect to the
 * others takes off. Column j of V starts at the first bin that overlaps with j and goes on until what is left of it is
 * too little for any element of T; where a later column turns out to be larger than that, it is followed further.
 *
 * Diagonals that M does not have are small: they are made only where T is above `far` of the diagonal of M near
 * by, and where they may be above `nothing`; they are 0 elsewhere. All limits are multiplied with t->known.
 * own[nbin][nl], unless it is NULL, gets the diagonal of T. Returns the largest change of the diagonal, as a fraction
 * of that of M times t->known, where elements of T are replaced. */
ALWAYS_INLINE double take_off(const spx_trace_plan *p, const spx_trace_bundle *b, others *o, int m, int q, size_t lane,
                              size_t low, size_t j0, size_t j1, take_mode mode, spx_trace_diagonals *t, double *own,
                              double *columns)
{
    const int band = (int)b->band, depth = b->depth, most = (2 * depth + 1 + o->tail) * q;
    const size_t nl = b->nl, column = (size_t)most * SPX_VL, slots = (size_t)band + 1;
    const double far = SPX_TRACE_FAR * p->tolerance, little = SPX_TRACE_LITTLE * p->tolerance;
    const double nothing = SPX_TRACE_NOTHING * p->tolerance;
    /* of the last columns: T_jj as a fraction of M_jj */
    double *scaled = columns + slots * column, *share = scaled + column;
    reached *ring = (reached *)(share + slots * SPX_VL);
    memset(share, 0, slots * SPX_VL * sizeof *share);
    vec change = every(0.0);
    int wide = 0; /* columns that still need all diagonals */
    for (size_t j = j0 > (size_t)band ? j0 - (size_t)band : 0; j < j1; j++) {
        const vec diagonal = load(b->m + j * b->nelem * nl + lane);
        const vec known = load(t->known + j * nl + lane), least = square(every(little) * known * diagonal);
        vec largest = every(0.0);
        for (size_t i = 0; i < slots; i++)
            largest = vmax(load(share + i * SPX_VL), largest);
        const vec other = vmax(every(SPX_TRACE_OTHER), largest) * diagonal;
        reached now = {0, every(0.0), every(0.0), every(0.0)};
        follow(p, b, o, m, q, lane, j, other, least, columns + j % slots * column, scaled, &now);
        o->cut |= j >= j0 && any_lane(now.recent * vmax(now.taken, other) > every(100.0) * least);
        const vec mine = now.taken / (diagonal + every(SPX_TRACE_PRIOR));
        ring[j % slots] = now;
        store(share + j % slots * SPX_VL, mine);
        if (j < j0)
            continue;
        for (int d = 0; d <= band && (size_t)d <= j - low; d++) {
            const size_t i = j - (size_t)d, slot = i % slots;
            /* T_ij^2 <= T_ii T_jj. Elements on the way may be smaller than those farther out: narrow spots touch in
             * some bins, and not in those between. */
            const vec both = known * load(t->known + i * nl + lane);
            const int needed = wide && any_lane(mine * load(share + slot * SPX_VL) > every(nothing * nothing) * both);
            if (d > b->hi[0] && !needed) {
                if (mode == REPLACE && t->wide)
                    store(element(p, b, t, i, d) + lane, every(0.0));
                else if (!wide)
                    break;
                continue;
            }
            const vec end = every(little * little) * both * diagonal * load(b->m + i * b->nelem * nl + lane);
            if (d > 0 && any_lane(ring[slot].recent * now.taken > end)) {
                follow(p, b, o, m, q, lane, i, now.taken, end, columns + slot * column, NULL, &ring[slot]);
                o->cut |= any_lane(ring[slot].recent * now.taken > every(100.0) * end);
            }
            const double *before = columns + slot * column + d * q * SPX_VL;
            const int common = ring[slot].rows - d * q < now.rows ? ring[slot].rows - d * q : now.rows;
            vec sum = every(0.0), odd = every(0.0);
            int row = 0;
            for (; row + 1 < common; row += 2) {
                sum += load(scaled + row * SPX_VL) * load(before + row * SPX_VL);
                odd += load(scaled + (row + 1) * SPX_VL) * load(before + (row + 1) * SPX_VL);
            }
            if (row < common)
                sum += load(scaled + row * SPX_VL) * load(before + row * SPX_VL);
            sum += odd;
            double *to = element(p, b, t, i, d) + lane;
            if (d == 0) {
                if (any_lane(sum > every(far) * known * diagonal)) {
                    wide = band + 1;
                    use_far(p, b, t);
                }
                if (own)
                    store(own + j * nl + lane, sum);
                if (mode == REPLACE)
                    change = vmax(vabs(sum - load(to)) / (known * (diagonal + every(SPX_TRACE_PRIOR))), change);
            }
            store(to, mode == ADD ? load(to) + sum : sum);
        }
        wide -= wide > 0;
    }
    double worst = 0.0;
    for (int i = 0; i < SPX_VL; i++)
        worst = change[i] > worst ? change[i] : worst;
    return worst;
}

/* Lanes whose fibre + off is in the bundle. */
ALWAYS_INLINE ivec lanes_there(const spx_trace_bundle *b, size_t lane, int off)
{
    ivec there = EVERY_INT(0);
    for (int i = 0; i < SPX_VL; i++) {
        long f = (long)lane + i + off;
        there[i] = f >= 0 && f < (long)b->nf ? -1 : 0;
    }
    return there;
}

/* Fibres with the next on one side alone; its factor is at hand. */
ALWAYS_INLINE void one_neighbour(const spx_trace_plan *p, const spx_trace_bundle *b, size_t lane, int side,
                                 take_mode mode, spx_trace_diagonals *t, double *own, double *columns)
{
    const int m = b->hi[0];
    others o = {.q = 1,
                .m = m,
                .row = (size_t)(m + 1) * b->nl,
                .elem = b->nl,
                .l = b->ldl + (long)lane + side,
                .tail = SPX_TRACE_LONG_TAIL};
    o.off[0] = side;
    o.there[0] = lanes_there(b, lane, side);
    if (m == 7)
        take_off(p, b, &o, 7, 1, lane, 0, 0, p->nbin, mode, t, own, columns);
    else
        take_off(p, b, &o, m, 1, lane, 0, 0, p->nbin, mode, t, own, columns);
}

/* The same for columns k0 .. k1 - 1 with the `noff` fibres at the distances off[] at once, columns of V going on for
 * `tail` bins at most; *cut becomes 1 where one is longer. */
static spx_status neighbours_to(const spx_trace_plan *p, const spx_trace_bundle *b, spx_trace_rooms *r, size_t lane,
                                const int *off, int noff, int tail, size_t low, size_t k0, size_t k1,
                                spx_trace_diagonals *t, double *change, int *cut, spx_err *e)
{
    others o = {.q = noff, .tail = tail};
    for (int c = 0; c < noff; c++) {
        o.off[c] = off[c];
        o.there[c] = lanes_there(b, lane, off[c]);
    }
    const int q = o.q, m = b->depth * q + q - 1, depth = b->depth;
    /* bins that are factorised: what is cut off before them is forgotten after twice the tail */
    const size_t before = b->band + (size_t)(depth + 2 * tail), after = (size_t)(depth + tail + 1);
    const size_t r0 = k0 > before ? k0 - before : 0, r1 = k1 + after < p->nbin ? k1 + after : p->nbin;
    const size_t rows = (r1 - r0) * (size_t)q, margin = (size_t)m + (after + (size_t)depth) * (size_t)q;
    const size_t row = (size_t)(m + 1) * SPX_VL, nl_factor = (rows + 2 * margin) * row;
    const size_t column = (size_t)(2 * depth + 1 + tail) * (size_t)q * SPX_VL;
    double *block =
        spx_trace_room(r, SPX_ROOM_CHAIN, nl_factor + rows * row + (rows + 2 * margin) * SPX_VL + row, 1, e);
    double *columns = spx_trace_room(r, SPX_ROOM_COLUMNS, columns_room(b, column), 1, e);
    if (!block || !columns)
        return SPX_EIO;
    memset(block, 0, nl_factor * sizeof *block);
    double *l = block + margin * row, *a = block + nl_factor, *diag = a + rows * row + margin * SPX_VL;
    memset(diag - margin * SPX_VL, 0, margin * SPX_VL * sizeof *diag);
    for (size_t i = 0; i < rows; i++) {
        const long k = (long)(r0 + i / (size_t)q);
        const int c = (int)(i % (size_t)q);
        for (int s = 0; s <= m; s++) {
            const int c2 = (c + s) % q;
            const long dk = (c + s) / q;
            vec v = every(0.0);
            if (k + dk < (long)r1)
                v = (vec)((ivec)coupling(b, lane, o.off[c], o.off[c2], k, dk) & o.there[c] & o.there[c2]);
            if (s == 0)
                v = choose(o.there[c], v, every(1.0));
            store(a + i * row + (size_t)s * SPX_VL, v);
        }
    }
    factor(rows, m, a, row, SPX_VL, every(0.0), l, row, SPX_VL, diag, (vec *)(diag + (rows + margin) * SPX_VL));
    o.l = l - (long)(r0 * (size_t)q * row);
    o.row = row;
    o.elem = SPX_VL;
    *change = take_off(p, b, &o, m, q, lane, low, k0, k1, REPLACE, t, NULL, columns);
    *cut = o.cut;
    return SPX_OK;
}

/* The same as far as it has to go. */
static spx_status many_neighbours(const spx_trace_plan *p, const spx_trace_bundle *b, spx_trace_rooms *r, size_t lane,
                                  const int *off, int noff, size_t low, size_t k0, size_t k1, spx_trace_diagonals *t,
                                  double *change, spx_err *e)
{
    int cut;
    spx_status st = neighbours_to(p, b, r, lane, off, noff, SPX_TRACE_TAIL, low, k0, k1, t, change, &cut, e);
    if (st == SPX_OK && cut) {
        double more;
        st = neighbours_to(p, b, r, lane, off, noff, SPX_TRACE_LONG_TAIL, low, k0, k1, t, &more, &cut, e);
        *change = more > *change ? more : *change;
    }
    return st;
}

/* What the search for strong coupling needs, [nbin][nl] each, with `depth` rows and SPX_TRACE_LANES more around. */
typedef struct {
    double *inverse;   /* 1 over the diagonal of M */
    double *direct[2]; /* bound of what fibres farther than the next take off, before and after the fibre */
    double *own[2];    /* what the next takes off the diagonal, before and after the fibre */
} scales;

/* direct: squares of the elements, scaled to a unit diagonal, times their number. */
static void find_scales(const spx_trace_plan *p, const spx_trace_bundle *b, scales s)
{
    const size_t n = p->nbin, nl = b->nl;
    for (size_t k = 0; k < n; k++)
        for (size_t i = 0; i < nl; i += SPX_VL)
            store(s.inverse + k * nl + i, every(1.0) / (load(b->m + k * b->nelem * nl + i) + every(SPX_TRACE_PRIOR)));
    for (size_t k = 0; k < n; k++)
        for (int df = 2; df <= b->reach; df++)
            for (int dk = b->lo[df]; dk <= b->hi[df]; dk++) {
                const double *m = b->m + (k * b->nelem + b->first[df] + (size_t)(dk - b->lo[df])) * nl;
                const long to = ((long)k + dk) * (long)nl + df;
                for (size_t i = 0; i < nl; i += SPX_VL) {
                    vec v = load(m + i);
                    v = every(10.0) * v * v * load(s.inverse + k * nl + i) * load(s.inverse + to + (long)i);
                    store(s.direct[1] + k * nl + i, load(s.direct[1] + k * nl + i) + v);
                    store(s.direct[0] + to + (long)i, load(s.direct[0] + to + (long)i) + v);
                }
            }
}

/* Where one neighbour on each side at a time is not enough, for the fibres of a vector: bins at which
 *     rel(f) rel(g) + sqrt(rel(f) rel(g) direct) + direct
 * is above the tolerance times `known`, where rel(f) is what a neighbour g takes off f as a fraction of its diagonal,
 * and rel(g) the same of g and its next, the largest near by. */
static void find_strong(const spx_trace_plan *p, const spx_trace_bundle *b, scales s, size_t lane, const double *known,
                        unsigned char *strong)
{
    const size_t n = p->nbin, nl = b->nl;
    const size_t around = (size_t)b->depth + SPX_TRACE_TAIL / 2;
    const double limit = SPX_TRACE_STRONG * p->tolerance;
    memset(strong, 0, n);
    for (int side = 0; side < 2; side++) {
        /* most of rel(g) anywhere: rules out nearly all bins */
        vec most = every(0.0);
        for (size_t k = 0; k < n; k++)
            most =
                vmax(load(s.own[side] + k * nl + lane + 2 * side - 1) * load(s.inverse + k * nl + lane + 2 * side - 1),
                     most);
        for (size_t k = 0; k < n; k++) {
            const vec direct = load(s.direct[side] + k * nl + lane);
            const vec own = load(s.own[side] + k * nl + lane) * load(s.inverse + k * nl + lane);
            const vec bound = own * most;
            /* sqrt(x y) <= (x + y)/2 */
            const vec least = every(limit) * load(known + k * nl + lane);
            if (!any_lane(every(1.5) * (bound + direct) > least))
                continue;
            vec next = every(0.0);
            size_t k0 = k > around ? k - around : 0, k1 = k + around < n ? k + around : n - 1;
            for (size_t j = k0; j <= k1; j++)
                next = vmax(load(s.own[side] + j * nl + lane + 2 * side - 1) *
                                load(s.inverse + j * nl + lane + 2 * side - 1),
                            next);
            for (int i = 0; i < SPX_VL && lane + (size_t)i < b->nf; i++) {
                double both = own[i] * next[i];
                strong[k] |= both + sqrt(both * direct[i]) + direct[i] > least[i];
            }
        }
    }
}

/* Next run of bins from `from` on that lie within `around` bins of a strong one; 0 when there is none. */
static int next_run(size_t n, const unsigned char *strong, size_t from, size_t around, size_t *k0, size_t *k1)
{
    size_t k = from;
    while (k < n && !strong[k])
        k++;
    if (k == n)
        return 0;
    *k0 = k > around ? k - around : 0;
    *k0 = *k0 > from ? *k0 : from;
    size_t last = k;
    for (; k < n && k <= last + 2 * around; k++)
        last = strong[k] ? k : last;
    *k1 = last + around < n ? last + around + 1 : n;
    return 1;
}

/* Bins around k0 .. k1 - 1 that matter for them. */
static void bins_around(const spx_trace_plan *p, const spx_trace_bundle *b, size_t *k0, size_t *k1)
{
    const size_t around = (size_t)b->depth + SPX_TRACE_TAIL / 2;
    *k0 = *k0 > around ? *k0 - around : 0;
    *k1 = *k1 + around < p->nbin ? *k1 + around : p->nbin;
}

/* How much bins k0 .. k1 - 1 of fibre f overlap with fibre f + df at most: the square of the element of M, scaled to a
 * unit diagonal, times ten for their number, as in find_scales(). */
static double most_overlap(const spx_trace_bundle *b, scales s, size_t f, int df, size_t k0, size_t k1)
{
    const size_t nl = b->nl;
    double most = 0.0;
    for (size_t k = k0; k < k1; k++)
        for (int dk = b->lo[df]; dk <= b->hi[df]; dk++) {
            const double m = b->m[(k * b->nelem + b->first[df] + (size_t)(dk - b->lo[df])) * nl + f];
            const double inverse = s.inverse[((long)k + dk) * (long)nl + (long)f + df];
            const double v = 10.0 * m * m * s.inverse[k * nl + f] * inverse;
            most = v > most ? v : most;
        }
    return most;
}

/* Whether traces cross near bins k0 .. k1 - 1: fibres overlap that have two others or more between them. Elsewhere they
 * lie side by side in the order of their numbers, and the influence of one on another falls with their distance. */
static int traces_cross(const spx_trace_plan *p, const spx_trace_bundle *b, scales s, size_t k0, size_t k1)
{
    bins_around(p, b, &k0, &k1);
    for (int df = b->reach; df > 2; df--)
        for (size_t f = 0; f + (size_t)df < b->nf; f++)
            if (most_overlap(b, s, f, df, k0, k1) > SPX_TRACE_STRONG * p->tolerance)
                return 1;
    return 0;
}

/* Distances off[] of the fibres that matter for a fibre of a vector: those which a chain of overlaps joins to it whose
 * product is above `limit`. overlap[reach + 1][nf]; chain[nf] and best[2 nf]: scratch. Returns their number, at most
 * 2 SPX_TRACE_MAX_REACH: the strongest. */
static int chained(const spx_trace_bundle *b, size_t lane, const double *overlap_of, double limit, double *chain,
                   double *best, int *off)
{
    const long nf = (long)b->nf;
    memset(best, 0, 2 * b->nf * sizeof *best);
    for (long f = (long)lane; f < (long)lane + SPX_VL && f < nf; f++) {
        memset(chain, 0, b->nf * sizeof *chain);
        chain[f] = 1.0;
        for (int longer = 1; longer;) { /* no overlap counts for more than 1: chains without a loop are the strongest */
            longer = 0;
            for (long g = 0; g < nf; g++)
                for (long h = g - b->reach > 0 ? g - b->reach : 0; chain[g] > limit && h < nf && h <= g + b->reach;
                     h++) {
                    const double v = h == g ? 0.0 : chain[g] * overlap_of[labs(h - g) * nf + (h < g ? h : g)];
                    if (v > chain[h] && v > limit) {
                        chain[h] = v;
                        longer = 1;
                    }
                }
        }
        for (long h = 0; h < nf; h++)
            if (h != f && chain[h] > best[h - f + nf])
                best[h - f + nf] = chain[h];
    }
    best[nf - 1] = best[nf + 1] = 1.0; /* the next on both sides always */
    int n = 0;
    for (; n < 2 * SPX_TRACE_MAX_REACH; n++) {
        long strongest = 0;
        for (long i = 1; i < 2 * nf; i++)
            strongest = best[i] > best[strongest] ? i : strongest;
        if (!(best[strongest] > limit))
            break;
        best[strongest] = 0.0;
        off[n] = (int)(strongest - nf);
    }
    return n;
}

/* Columns j0 .. j1 - 1 of T where traces cross: with all fibres that matter, and with ever weaker ones until nothing
 * changes. */
static spx_status crossing_neighbours(const spx_trace_plan *p, const spx_trace_bundle *b, spx_trace_rooms *r, scales s,
                                      size_t lane, size_t low, size_t j0, size_t j1, spx_trace_diagonals *t, spx_err *e)
{
    double *overlap_of = spx_alloc2((size_t)b->reach + 4, b->nf, sizeof *overlap_of, e);
    if (!overlap_of)
        return SPX_EIO;
    spx_status st = SPX_OK;
    double *chain = overlap_of + ((size_t)b->reach + 1) * b->nf, *best = chain + b->nf,
           limit = SPX_TRACE_STRONG * p->tolerance;
    size_t k0 = j0, k1 = j1;
    bins_around(p, b, &k0, &k1);
    for (int df = 1; df <= b->reach; df++)
        for (size_t f = 0; f + (size_t)df < b->nf; f++) {
            const double v = most_overlap(b, s, f, df, k0, k1);
            overlap_of[(size_t)df * b->nf + f] = v < 1.0 ? v : 1.0;
        }
    double change = 1.0;
    for (int round = 0, used = 0; round < 4 && st == SPX_OK && change > 0.1 * p->tolerance; round++, limit *= 0.01) {
        int off[2 * SPX_TRACE_MAX_REACH];
        const int n = chained(b, lane, overlap_of, limit, chain, best, off);
        if (n > used)
            st = many_neighbours(p, b, r, lane, off, n, low, j0, j1, t, &change, e);
        used = n;
    }
    spx_free(overlap_of);
    return st;
}

/* The largest value within SPX_TRACE_AROUND bins, or up to twice as many, in the place of every value of a vector. */
ALWAYS_INLINE void largest_around(size_t n, size_t nl, size_t lane, double *v)
{
    const size_t size = SPX_TRACE_AROUND;
    vec before = every(0.0), here = every(0.0);
    for (size_t k = 0; k < size && k < n; k++)
        here = vmax(load(v + k * nl + lane), here);
    for (size_t k0 = 0; k0 < n; k0 += size) { /* block by block: with the blocks before and after it */
        vec after = every(0.0);
        for (size_t k = k0 + size; k < k0 + 2 * size && k < n; k++)
            after = vmax(load(v + k * nl + lane), after);
        const vec most = vmax(vmax(before, after), here);
        for (size_t k = k0; k < k0 + size && k < n; k++)
            store(v + k * nl + lane, most);
        before = here;
        here = after;
    }
}

/* How much masks have taken from the bins of a vector: 1 where a bin overlaps with none that has much less of its spot
 * left than others around it (SPX_TRACE_WHOLE), 0.5 where it has half of what they have itself, else 0. of[nbin][nl]:
 * scratch. */
static void find_whole(const spx_trace_plan *p, const spx_trace_bundle *b, size_t lane, double *whole, double *of)
{
    const size_t n = p->nbin, nl = b->nl, m = (size_t)b->hi[0];
    for (size_t k = 0; k < n; k++)
        store(of + k * nl + lane, load(b->seen + k * nl + lane));
    largest_around(n, nl, lane, of);
    for (size_t k = 0; k < n; k++) {
        const vec most = load(of + k * nl + lane);
        const vec half = choose(load(b->seen + k * nl + lane) > every(0.5) * most, every(0.5), every(0.0));
        ivec is = EVERY_INT(-1);
        for (size_t j = k > m ? k - m : 0; j <= k + m && j < n; j++)
            is &= load(b->seen + j * nl + lane) > every(SPX_TRACE_WHOLE) * most;
        store(whole + k * nl + lane, choose(is, every(1.0), half));
    }
}

/* v[nbin][nl] of bins of a vector that are not whole becomes the largest of bins around them: of those that are whole,
 * else of those that take it from such, else of those with half of their spots. of: scratch. */
static void from_whole(size_t n, size_t nl, size_t lane, const double *whole, double *v, double *of)
{
    const vec none = every(0.0), all = every(1.0);
    for (size_t k = 0; k < n; k++)
        store(of + k * nl + lane, choose(load(whole + k * nl + lane) == all, load(v + k * nl + lane), none));
    largest_around(n, nl, lane, of);
    for (size_t k = 0; k < n; k++) {
        const vec most = load(of + k * nl + lane);
        const vec half = choose(load(whole + k * nl + lane) > none, load(v + k * nl + lane), none);
        store(of + k * nl + lane, choose(most > none, most, half));
    }
    largest_around(n, nl, lane, of);
    for (size_t k = 0; k < n; k++) {
        const vec most = load(of + k * nl + lane);
        const ivec takes = (load(whole + k * nl + lane) != all) & (most > none);
        store(v + k * nl + lane, choose(takes, most, load(v + k * nl + lane)));
    }
}

/* known[nbin][nl] of a vector: see SPX_TRACE_KNOWN. whole[nbin][nl], of[nbin][nl], ring: scratch. The pivots D of the
 * fibre's block, which are at hand, are at least 1/Z, and not much more where bins are wide: Z is found where they are
 * small. */
static void find_known(const spx_trace_plan *p, const spx_trace_bundle *b, size_t lane, double *known, double *whole,
                       double *of, double *ring)
{
    const int m = b->hi[0];
    const size_t n = p->nbin, nl = b->nl, lrow = (size_t)(m + 1) * nl, mrow = b->nelem * nl;
    find_whole(p, b, lane, whole, of);
    for (size_t k = 0; k < n; k++)
        store(known + k * nl + lane, every(1.0) / (load(b->ldl + k * lrow + lane) * load(b->m + k * mrow + lane)));
    from_whole(n, nl, lane, whole, known, of);
    ivec narrow = EVERY_INT(0);
    for (size_t k = 0; k < n; k++) {
        narrow |= load(known + k * nl + lane) < every(SPX_TRACE_NARROW);
        store(known + k * nl + lane, every(1.0));
    }
    if (!any_lane(narrow & lanes_there(b, lane, 0)))
        return;
    vec z[SPX_TRACE_MAX_BAND + 1];
    memset(ring, 0, (size_t)(m + 1) * (size_t)m * SPX_VL * sizeof *ring);
    size_t slot = 0;
    for (size_t k = n; k-- > 0;) {
        slot = slot == 0 ? (size_t)m : slot - 1;
        const vec inverse = inverse_row(m, b->ldl + k * lrow + lane, nl, ring, slot, z);
        const vec v = every(SPX_TRACE_KNOWN) / (inverse * load(b->m + k * mrow + lane));
        store(known + k * nl + lane, choose(v < every(1.0), vmax(v, every(SPX_TRACE_LEAST_KNOWN)), every(1.0)));
    }
    from_whole(n, nl, lane, whole, known, of);
}

/* A_f = M_ff - T_f, the Schur complement with respect to all other fibres of the bundle. T is some 1e-7 of M where
 * nothing is masked, and there the next fibre on each side matters, one at a time. Where T is larger, beside masks and
 * where traces are close, more and more fibres on both sides are taken off together until nothing changes. */
static spx_status marginal(const spx_trace_plan *p, const spx_trace_bundle *b, spx_trace_rooms *r,
                           spx_trace_diagonals *a, spx_err *e)
{
    const size_t n = p->nbin, nl = b->nl, row = (size_t)(b->hi[0] + 1) * nl;
    a->wide = 0;
    if (b->reach < 1) {
        for (size_t k = 0; k < n; k++)
            memcpy(a->near + k * row, b->m + k * b->nelem * nl, row * sizeof *a->near);
        return SPX_OK;
    }
    const size_t column = (size_t)(2 * b->depth + 1 + SPX_TRACE_LONG_TAIL) * SPX_VL;
    double *columns = spx_trace_room(r, SPX_ROOM_COLUMNS, columns_room(b, column), 1, e);
    const size_t around = (size_t)b->depth * nl + SPX_TRACE_LANES, scale = n * nl + 2 * around;
    double *sides = spx_trace_room(r, SPX_ROOM_SIDES, 5 * scale + n, 1, e);
    if (!columns || !sides)
        return SPX_EIO;
    double *const at = sides + around;
    const scales s = {at, {at + scale, at + 2 * scale}, {at + 3 * scale, at + 4 * scale}};
    unsigned char *strong = (unsigned char *)(sides + 5 * scale);
    memset(sides, 0, 5 * scale * sizeof *sides);
    for (size_t k = n > row / nl ? n - row / nl : 0; k < n; k++) /* elements beyond the last bin */
        memset(a->near + k * row, 0, row * sizeof *a->near);
    for (size_t lane = 0; lane < nl; lane += SPX_VL)
        find_known(p, b, lane, a->known, s.own[0], s.own[1], columns);
    for (size_t lane = 0; lane < nl; lane += SPX_VL)
        one_neighbour(p, b, lane, -1, FIRST, a, s.own[0], columns);
    for (size_t lane = 0; lane < nl; lane += SPX_VL)
        one_neighbour(p, b, lane, 1, ADD, a, s.own[1], columns);
    if (b->nf > 2)
        find_scales(p, b, s);
    for (size_t lane = 0; lane < b->nf && b->nf > 2; lane += SPX_VL) {
        size_t k0, k1;
        find_strong(p, b, s, lane, a->known, strong);
        for (size_t from = 0; next_run(n, strong, from, b->band, &k0, &k1); from = k1)
            for (size_t j0 = k0; j0 < k1; j0 += SPX_TRACE_RUN) { /* in pieces, for the sake of memory */
                const size_t j1 = j0 + SPX_TRACE_RUN < k1 ? j0 + SPX_TRACE_RUN : k1;
                const size_t low = j0 > k0 + b->band ? j0 - b->band : k0;
                if (traces_cross(p, b, s, j0, j1)) {
                    if (crossing_neighbours(p, b, r, s, lane, low, j0, j1, a, e) != SPX_OK)
                        return SPX_EIO;
                    continue;
                }
                double change = 1.0;
                for (int reach = 2; reach < (int)b->nf && reach <= SPX_TRACE_MAX_REACH && change > 0.1 * p->tolerance;
                     reach++) {
                    int off[2 * SPX_TRACE_MAX_REACH], noff = 0;
                    for (int i = -reach; i <= reach; i++)
                        if (i != 0)
                            off[noff++] = i;
                    if (many_neighbours(p, b, r, lane, off, noff, low, j0, j1, a, &change, e) != SPX_OK)
                        return SPX_EIO;
                }
            }
    }
    for (size_t k = 0; k < n; k++)
        for (size_t i = 0; i < row; i += SPX_VL)
            store(a->near + k * row + i, load(b->m + k * b->nelem * nl + i) - load(a->near + k * row + i));
    for (size_t i = 0; a->wide && i < (b->band - (size_t)b->hi[0]) * n * nl; i += SPX_VL)
        store(a->far + i, every(0.0) - load(a->far + i));
    return SPX_OK;
}

/* ---- chi2pix ---- */

/* Add the model of one bin to the window. */
ALWAYS_INLINE void add_model(const spx_trace_plan *p, const spx_trace_bundle *b, const spx_trace_place *at,
                             const double *spot, double flux, double *model)
{
    size_t pixel = (size_t)(at->yc - b->wy0) * b->wnx + (size_t)(at->xc - b->wx0);
    for (int y = 0; y < p->ny; y++, pixel += b->wnx)
        for (size_t x = 0; x < p->nxp; x += SPX_VL)
            store(model + pixel + x, load(model + pixel + x) + every(flux) * load(spot + (size_t)y * p->nxp + x));
}

/* Rows first .. last-1 of the window: from the model to (p - M)^2 / (1/ivar + (psf_error M)^2), 0 without ivar. */
static void model_to_chi2(const spx_trace_plan *p, const spx_trace_bundle *b, size_t first, size_t last, double *model)
{
    const double psf_error = p->job->psf_error;
    for (size_t i = first * b->wnx; i < last * b->wnx; i++) {
        double ivar = (double)b->weight[i], error = psf_error * model[i], rest = (double)b->data[i] - model[i];
        model[i] = ivar > 0.0 ? rest * rest * ivar / (error * error * ivar + 1.0) : 0.0;
    }
}

ALWAYS_INLINE double gather_chi2(const spx_trace_plan *p, const spx_trace_bundle *b, const spx_trace_place *at,
                                 const double *spot, const double *chi2)
{
    vec sum = every(0.0);
    size_t pixel = (size_t)(at->yc - b->wy0) * b->wnx + (size_t)(at->xc - b->wx0);
    for (int y = 0; y < p->ny; y++, pixel += b->wnx)
        for (size_t x = 0; x < p->nxp; x += SPX_VL)
            sum += load(spot + (size_t)y * p->nxp + x) * load(chi2 + pixel + x);
    return sum_lanes(sum);
}

static spx_status fit(const spx_trace_plan *p, const spx_trace_bundle *b, spx_trace_rooms *r, size_t f0, size_t f1,
                      double *chi2, spx_err *e)
{
    const size_t nf = b->nf, npix = (size_t)p->ny * p->nxp, nwave = p->job->nwave, nl = b->nl;
    const size_t lag = (size_t)b->fit_depth, slots = lag + 1;
    double *model = spx_trace_room(r, SPX_ROOM_MODEL, b->wny, b->wnx, e);
    double *ring = spx_trace_room(r, SPX_ROOM_RING, slots * nf, npix, e);
    double *work = spx_trace_room(r, SPX_ROOM_SPOT, p->spot_work, 1, e);
    if (!model || !ring || !work)
        return SPX_EIO;
    memset(model, 0, b->wny * b->wnx * sizeof *model);
    /* A bin is looked at `lag` bins after its own model was added: by then its rows are complete. With lag 0 (traces
     * that turn back) there are two passes over all bins instead. */
    size_t done = 0;
    for (size_t k = 0; k < p->nbin + lag; k++) {
        if (k < p->nbin)
            for (size_t f = 0; f < nf; f++) {
                if (b->state[k * nf + f] != SPX_TRACE_SPOT)
                    continue;
                double *spot = ring + (k % slots * nf + f) * npix;
                make_spot(p, b->fibre0 + f, k, &b->at[k * nf + f], work, spot);
                add_model(p, b, &b->at[k * nf + f], spot, b->x[k * nl + f], model);
            }
        if (lag == 0 || k < lag)
            continue;
        size_t old = k - lag, need = done;
        for (size_t f = f0; f < f1; f++)
            if (b->state[old * nf + f] == SPX_TRACE_SPOT) {
                size_t end = (size_t)(b->at[old * nf + f].yc - b->wy0) + (size_t)p->ny;
                need = end > need ? end : need;
            }
        model_to_chi2(p, b, done, need, model);
        done = need;
        if (old < p->pad || old >= p->pad + nwave)
            continue;
        for (size_t f = f0; f < f1; f++)
            if (b->state[old * nf + f] == SPX_TRACE_SPOT && b->seen[old * nl + f] > 0.0)
                chi2[(f - f0) * nwave + old - p->pad] =
                    gather_chi2(p, b, &b->at[old * nf + f], ring + (old % slots * nf + f) * npix, model) /
                    b->seen[old * nl + f];
    }
    if (lag == 0) {
        model_to_chi2(p, b, 0, b->wny, model);
        for (size_t k = p->pad; k < p->pad + nwave; k++)
            for (size_t f = f0; f < f1; f++)
                if (b->state[k * nf + f] == SPX_TRACE_SPOT && b->seen[k * nl + f] > 0.0) {
                    make_spot(p, b->fibre0 + f, k, &b->at[k * nf + f], work, ring);
                    chi2[(f - f0) * nwave + k - p->pad] =
                        gather_chi2(p, b, &b->at[k * nf + f], ring, model) / b->seen[k * nl + f];
                }
    }
    return SPX_OK;
}

/* ---- square root ---- */

/* Memory of SPX_VL lanes: rows of SPX_VL doubles, one a bin. */
typedef struct {
    double *l;           /* [m + n][m + 1] factor; m rows of zeros first */
    double *diag;        /* [m + n] */
    double *one, *flux;  /* [m + n + m] right-hand sides 1 and x, solved in place; zeros at both ends */
    double *sum1, *sumx; /* [n] sum over poles of weight (I - shift Z) times 1 and x */
    double *root;        /* [n][diagonals] sum over poles of -weight shift Z(k, k+d) */
    double *inverse;     /* [m + 1][m] rows of Z: a ring */
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

/* A_s(k, k+d) of SPX_VL fibres at a[(k*(m+1) + d)*SPX_VL], with `extra` on the diagonal, and x(k) at x[k*SPX_VL]. */
typedef struct {
    const double *a, *x;
    vec extra;
} matrix;

/* Lower bound of the eigenvalues. The infinity norm of the inverse bounds its largest eigenvalue; deconvolution makes
 * the signs of the inverse alternate, so that A^-1 (1, -1, 1, ...) has that norm. One step of Hager's estimator
 * (Higham 1988, ACM TOMS 14, 381) improves on it where the signs do not alternate, two of inverse iteration where that
 * stops at the wrong ones (bins of two pixels and more, weights that differ by 10^4 from pixel to pixel); a margin
 * covers the rest. */
#define BOUND_MARGIN 0.5
#define BOUND_STEPS  4

ALWAYS_INLINE vec smallest(size_t n, int m, matrix a, const root_work *w, ivec *bad)
{
    const size_t lrow = (size_t)(m + 1) * SPX_VL;
    vec u[SPX_TRACE_MOST_BAND + 1];
    *bad |= factor(n, m, a.a, lrow, SPX_VL, a.extra, w->l, lrow, SPX_VL, w->diag, u);
    vec most = every(0.0), last = every(1.0);
    for (size_t j = 0; j < n; j++)
        store(w->one + j * SPX_VL, every(j % 2 == 0 ? 1.0 : -1.0));
    for (int step = 0; step < BOUND_STEPS; step++) {
        forward(n, m, w->l, w->one);
        vec size = every(0.0);
        for (size_t j = n; j-- > 0;) {
            vec z = backward_step(m, w->l + j * lrow, w->one + j * SPX_VL);
            store(w->one + j * SPX_VL, z);
            size = vmax(vabs(z), size);
        }
        most = vmax(size / last, most);
        for (size_t j = 0; j < n && step == 0; j++) /* its signs */
            store(w->one + j * SPX_VL,
                  (vec)((ivec)every(1.0) | ((ivec)load(w->one + j * SPX_VL) & EVERY_INT(INT64_MIN))));
        last = step == 0 ? every(1.0) : size;
    }
    return every(BOUND_MARGIN) / most;
}

/* One pole. */
ALWAYS_INLINE void add_pole(size_t n, int m, int h, matrix a, vec shift, vec weight, const root_work *w, ivec *bad)
{
    const size_t lrow = (size_t)(m + 1) * SPX_VL, rrow = (size_t)(h + 1) * SPX_VL;
    vec u[SPX_TRACE_MOST_BAND + 1];
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
    memset(w->inverse, 0, (size_t)(m + 1) * (size_t)m * SPX_VL * sizeof *w->inverse);
    const vec scale = weight * shift;
    size_t slot = 0;
    for (size_t j = n; j-- > 0;) {
        const double *lj = w->l + j * lrow;
        vec one = load(w->one + j * SPX_VL) * load(lj), flux = load(w->flux + j * SPX_VL) * load(lj);
        for (int t = 1; t <= m; t++) {
            vec l = load(lj + t * SPX_VL);
            one -= l * load(w->one + (j + (size_t)t) * SPX_VL);
            flux -= l * load(w->flux + (j + (size_t)t) * SPX_VL);
        }
        slot = slot == 0 ? (size_t)m : slot - 1;
        vec z[SPX_TRACE_MOST_BAND + 1];
        const vec sum = inverse_row(m, lj, SPX_VL, w->inverse, slot, z);
        store(w->one + j * SPX_VL, one);
        store(w->flux + j * SPX_VL, flux);
        double *root = w->root + j * rrow;
        store(root, load(root) - scale * sum);
        for (int d = 1; d <= h; d++)
            store(root + d * SPX_VL, load(root + d * SPX_VL) - scale * z[d]);
        store(w->sum1 + j * SPX_VL, load(w->sum1 + j * SPX_VL) + weight * (every(1.0) - shift * one));
        store(w->sumx + j * SPX_VL, load(w->sumx + j * SPX_VL) + weight * (load(a.x + j * SPX_VL) - shift * flux));
    }
}

/* Q of SPX_VL fibres: sums and diagonals in w, sum of the weights in *total. Lanes that fail are set in *bad. */
ALWAYS_INLINE void root_of(size_t n, int m, int h, double tolerance, matrix a, const root_work *w, vec *total,
                           ivec *bad)
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
    double shift[SPX_VL][SPX_MAX_POLES], weight[SPX_VL][SPX_MAX_POLES];
    int poles = 0;
    for (int i = 0; i < SPX_VL; i++) {
        double lo = least[i], hi = most[i];
        if (!(lo > 0.0 && hi < INFINITY)) {
            (*bad)[i] = -1;
            lo = hi = 1.0;
        }
        int np = spx_sqrt_choose(lo < hi ? lo : hi, hi, spx_trace_root_error(tolerance), shift[i], weight[i]);
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
    for (int k = 0; k < poles; k++) {
        vec s = every(0.0), c = every(0.0);
        for (int i = 0; i < SPX_VL; i++) {
            s[i] = shift[i][k];
            c[i] = weight[i][k];
        }
        *total += c;
        add_pole(n, m, h, a, s, c, w, bad);
    }
}

/* A part of a trace: bins k0 .. k1 - 1 are kept, rows r0 .. r1 - 1 worked on. */
typedef struct {
    size_t k0, k1, r0, r1;
} segment;

/* flux, ivar and resolution of lane i into row f of the output; 0 when a value is not finite. */
static int keep_lane(const spx_trace_plan *p, size_t f, int i, int h, const root_work *w, double total, segment s,
                     spx_frame *out)
{
    const size_t nw = p->job->nwave, ndiag = out->arm.ndiag;
    const size_t k0 = s.k0 > p->pad ? s.k0 - p->pad : 0,
                 k1 = s.k1 < p->pad + nw ? s.k1 - (s.k1 < p->pad ? s.k1 : p->pad) : nw;
    const double *norm = w->sum1 + i, *flux = w->sumx + i, *root = w->root + i;
    for (size_t k = k0; k < k1; k++) {
        size_t j = k + p->pad - s.r0, at = f * nw + k;
        double sum = norm[j * SPX_VL];
        if (sum != 0.0) {
            out->arm.flux[at] = flux[j * SPX_VL] / sum;
            out->arm.ivar[at] = sum * sum;
        }
        if (!isfinite(out->arm.flux[at]) || !isfinite(out->arm.ivar[at]))
            return 0;
    }
    /* column k of R: diagonal d of the file holds R[k - off][k], off = ndiag div 2 - d */
    for (size_t d = 0; d < ndiag; d++) {
        long off = (long)d - h;
        double *to = out->arm.resolution + (f * ndiag + d) * nw;
        for (size_t k = k0; k < k1; k++) {
            long column = (long)(k + p->pad - s.r0), row = column + off;
            if (row < 0 || row >= (long)(s.r1 - s.r0) || norm[row * SPX_VL] == 0.0)
                continue;
            size_t low = (size_t)(off < 0 ? row : column);
            double q = root[(low * (size_t)(h + 1) + (size_t)(off < 0 ? -off : off)) * SPX_VL];
            to[k] = (off == 0 ? q + total : q) / norm[row * SPX_VL];
            if (!isfinite(to[k]))
                return 0;
        }
    }
    return 1;
}

/* Lanes v .. v + SPX_VL - 1 that are fibres. */
ALWAYS_INLINE ivec lanes_used(const spx_trace_bundle *b, size_t v)
{
    return lanes_there(b, v, 0);
}

/* Largest diagonal of A_s, in rows r0 .. r1 - 1 and more than `from`, on which an element of a fibre of the vector is
 * above `limit`, scaled with scale[r1 - r0] of its two bins; `from` where there is none. */
static size_t outermost(const spx_trace_plan *p, const spx_trace_bundle *b, const spx_trace_diagonals *a, size_t v,
                        size_t r0, size_t r1, size_t from, double limit, const double *scale)
{
    const ivec used = lanes_used(b, v);
    for (size_t d = b->band; d > from; d--)
        for (size_t k = r0; k + d < r1; k++) {
            const vec e = load(element(p, b, a, k, (int)d) + v);
            const vec by = load(scale + (k - r0) * SPX_VL) * load(scale + (k + d - r0) * SPX_VL);
            if (any_lane((e * e * by > every(limit * limit)) & used))
                return d;
        }
    return from;
}

/* Arrays of a segment with half-bandwidth m in `memory`, and A_s and x of its rows with it. */
static matrix lay_out(const spx_trace_plan *p, const spx_trace_bundle *b, const spx_trace_diagonals *a, size_t v,
                      segment s, size_t m, size_t h, double *memory, root_work *w)
{
    const size_t n = s.r1 - s.r0, used = n + 2 * m; /* rows with their margins */
    w->l = memory + m * (m + 1) * SPX_VL;
    w->diag = memory + (used * (m + 1) + m) * SPX_VL;
    w->one = w->diag + used * SPX_VL;
    w->flux = w->one + used * SPX_VL;
    w->sum1 = w->flux + (used - m) * SPX_VL;
    w->sumx = w->sum1 + n * SPX_VL;
    w->root = w->sumx + n * SPX_VL;
    w->inverse = w->root + n * (h + 1) * SPX_VL;
    double *compact = w->inverse + (m + 1) * m * SPX_VL, *x = compact + n * (m + 1) * SPX_VL;
    memset(memory, 0, m * (m + 1) * SPX_VL * sizeof *memory);
    memset(w->diag - m * SPX_VL, 0, m * SPX_VL * sizeof *memory);
    for (size_t i = 0; i < m * SPX_VL; i++) {
        (w->one - m * SPX_VL)[i] = w->one[n * SPX_VL + i] = 0.0;
        (w->flux - m * SPX_VL)[i] = w->flux[n * SPX_VL + i] = 0.0;
    }
    for (size_t k = 0; k < n; k++) {
        for (size_t d = 0; d <= m; d++) {
            const int there = k + d < n && (d <= (size_t)b->hi[0] || a->wide);
            store(compact + (k * (m + 1) + d) * SPX_VL,
                  there ? load(element(p, b, a, s.r0 + k, (int)d) + v) : every(0.0));
        }
        store(x + k * SPX_VL, load(b->x + (s.r0 + k) * b->nl + v));
    }
    return (matrix){compact, x, every(0.0)};
}

/* Half-bandwidth that A_s needs in rows of a segment; more than b->band where that is too little. The square root feels
 * an element that is left out as a fraction of what is known of its two bins when nothing is known of others, which is
 * 1/Z_kk with Z = A_s^-1; first Z is found with the diagonals that are not small beside the main one. */
static size_t bandwidth(const spx_trace_plan *p, const spx_trace_bundle *b, const spx_trace_diagonals *a, size_t v,
                        segment s, size_t h, double *memory)
{
    const size_t n = s.r1 - s.r0, least = h > (size_t)b->hi[0] ? h : (size_t)b->hi[0], most = b->band;
    if (!a->wide || least >= most)
        return least;
    double *scale = memory;
    for (size_t k = 0; k < n; k++)
        store(scale + k * SPX_VL,
              every(1.0) / (load(element(p, b, a, s.r0 + k, 0) + v) * load(a->known + (s.r0 + k) * b->nl + v)));
    const size_t m = outermost(p, b, a, v, s.r0, s.r1, least, SPX_TRACE_TRIM * p->tolerance, scale);
    if (m < most && outermost(p, b, a, v, s.r0, s.r1, m, 0.0, scale) == m)
        return m;
    root_work w;
    const size_t lrow = (m + 1) * SPX_VL;
    const matrix mat = lay_out(p, b, a, v, s, m, h, memory, &w);
    vec u[SPX_TRACE_MOST_BAND + 1], z[SPX_TRACE_MOST_BAND + 1];
    (void)factor(n, (int)m, mat.a, lrow, SPX_VL, mat.extra, w.l, lrow, SPX_VL, w.diag, u);
    memset(w.inverse, 0, lrow * m * sizeof *w.inverse);
    size_t slot = 0;
    for (size_t j = n; j-- > 0;) {
        slot = slot == 0 ? m : slot - 1;
        store(w.sum1 + j * SPX_VL, inverse_row((int)m, w.l + j * lrow, SPX_VL, w.inverse, slot, z));
    }
    const double limit = SPX_TRACE_EDGE * p->tolerance;
    if (most < SPX_TRACE_MOST_BAND && outermost(p, b, a, v, s.r0, s.r1, most - 1, limit, w.sum1) == most)
        return most + 1;
    return outermost(p, b, a, v, s.r0, s.r1, m, limit, w.sum1);
}

/* Bins that a segment of the square root is begun early and ended late: what is beyond falls by ten every four bins. */
static size_t segment_margin(const spx_trace_plan *p)
{
    return (size_t)ceil(8.0 - 4.5 * log10(p->tolerance));
}

/* Where hardly anything is known of a bin of the vector, the square root needs two or three times as many poles as
 * elsewhere, and more diagonals: such bins, weak[nbin], and those around them are segments of their own. */
#define WEAK 0.01

static void find_weak(const spx_trace_plan *p, const spx_trace_bundle *b, const spx_trace_diagonals *a, size_t v,
                      unsigned char *weak)
{
    const size_t n = p->nbin, margin = segment_margin(p);
    const ivec used = lanes_used(b, v);
    vec most = every(0.0);
    for (size_t k = 0; k < n; k++)
        most = vmax(load(element(p, b, a, k, 0) + v), most);
    for (size_t k = 0; k < n; k++)
        weak[k] = any_lane((load(element(p, b, a, k, 0) + v) < every(WEAK) * most) & used) != 0;
    for (size_t k = 0, since = n; k < n; k++) {
        since = weak[k] ? 0 : since + 1;
        weak[k] = since == 0 ? 2 : since <= margin;
    }
    for (size_t k = n, since = n; k-- > 0;) {
        since = weak[k] == 2 ? 0 : since + 1;
        weak[k] |= since <= margin;
    }
    for (size_t k = 0, end; k < n; k = end + 1) { /* not worth a segment */
        for (end = k; end < n && !weak[end];)
            end++;
        if (end - k < 3 * margin && end - k < n)
            memset(weak + k, 1, end - k);
    }
}

/* The segment that begins with bin k0, up to the next change of weak[]; all of the trace where that is NULL. */
static segment next_segment(const spx_trace_plan *p, const unsigned char *weak, size_t k0)
{
    const size_t n = p->nbin, margin = segment_margin(p);
    segment s = {k0, n, 0, n};
    if (!weak)
        return s;
    for (s.k1 = k0 + 1; s.k1 < n && !weak[s.k1] == !weak[k0];)
        s.k1++;
    s.r0 = k0 > margin ? k0 - margin : 0;
    s.r1 = s.k1 + margin < n ? s.k1 + margin : n;
    return s;
}

/* Sums over the poles on both sides of a seam. */
typedef struct {
    vec one[2], flux[2];
} seam;

ALWAYS_INLINE seam seam_at(size_t k, segment s, const root_work *w)
{
    const size_t at = (k - s.r0) * SPX_VL;
    return (seam){{load(w->sum1 + at - SPX_VL), load(w->sum1 + at)}, {load(w->sumx + at - SPX_VL), load(w->sumx + at)}};
}

/* Lanes in which two segments do not have the same beside their seam. */
static ivec seam_open(double tolerance, seam s, seam t)
{
    ivec open = EVERY_INT(0);
    for (int i = 0; i < 2; i++) {
        const vec one = vabs(s.one[i] - t.one[i]), flux = vabs(s.flux[i] - t.flux[i]);
        open |= ~(one <= every(0.1 * tolerance) * vabs(s.one[i])) |
                ~(flux <= every(0.1 * tolerance) * (every(1.0) + vabs(s.flux[i])));
    }
    return open;
}

/* One segment of a vector with `extra` on the diagonal of A_s: w gets its sums. Lanes that fail are set in *bad.
 * Returns 0 where A_s is wider than b->band. */
static int root_segment(const spx_trace_plan *p, const spx_trace_bundle *b, const spx_trace_diagonals *a, size_t v,
                        segment s, vec extra, double *memory, root_work *w, vec *total, ivec *bad)
{
    const size_t n = s.r1 - s.r0, h = (size_t)p->job->psf->hsizey, m = bandwidth(p, b, a, v, s, h, memory);
    if (m > b->band)
        return 0;
    matrix mat = lay_out(p, b, a, v, s, m, h, memory, w);
    mat.extra = extra;
    switch (m) { /* loops of constant length for the usual bandwidths */
    case 7:
        root_of(n, 7, (int)h, p->tolerance, mat, w, total, bad);
        break;
    case 8:
        root_of(n, 8, (int)h, p->tolerance, mat, w, total, bad);
        break;
    case 9:
        root_of(n, 9, (int)h, p->tolerance, mat, w, total, bad);
        break;
    default:
        root_of(n, (int)m, (int)h, p->tolerance, mat, w, total, bad);
    }
    return 1;
}

typedef enum { DONE, OPEN, NARROW } outcome;

/* All segments of a vector; the output of fibres f0 .. f1 - 1 whose lane is in `want`. Lanes without a solution are set
 * in *bad. OPEN: segments do not fit together in a lane of `fit`; NARROW: A_s is wider than b->band. */
static outcome root_vector(const spx_trace_plan *p, const spx_trace_bundle *b, const spx_trace_diagonals *a, size_t v,
                           size_t f0, size_t f1, ivec want, ivec fit, vec extra, const unsigned char *weak,
                           double *memory, spx_frame *out, ivec *bad)
{
    seam before;
    for (size_t k = 0; k < p->nbin;) {
        const segment s = next_segment(p, weak, k);
        root_work w;
        vec total;
        if (!root_segment(p, b, a, v, s, extra, memory, &w, &total, bad))
            return NARROW;
        if (k > 0 && any_lane(seam_open(p->tolerance, before, seam_at(k, s, &w)) & fit & ~*bad))
            return OPEN;
        for (size_t f = v > f0 ? v : f0; f < v + SPX_VL && f < f1; f++) {
            const int i = (int)(f - v);
            if (want[i] && !(*bad)[i] &&
                !keep_lane(p, b->fibre0 + f - p->job->o->first, i, p->job->psf->hsizey, &w, total[i], s, out))
                (*bad)[i] = -1;
        }
        if (s.k1 < p->nbin)
            before = seam_at(s.k1, s, &w);
        k = s.k1;
    }
    return DONE;
}

static spx_status root(const spx_trace_plan *p, spx_trace_bundle *b, spx_trace_rooms *r, const spx_trace_diagonals *a,
                       size_t f0, size_t f1, unsigned char *pending, spx_frame *out, size_t *regularised, spx_err *e)
{
    const size_t n = p->nbin, most = b->band, h = (size_t)p->job->psf->hsizey, rows = n + 2 * most;
    const size_t need = (rows + n) * (most + 1) + 3 * rows + 3 * n + n * (h + 1) + (most + 1) * most;
    double *memory = spx_trace_room(r, SPX_ROOM_ROOT, need + n / SPX_VL / sizeof(double) + 1, SPX_VL, e);
    if (!memory)
        return SPX_EIO;
    unsigned char *weak = (unsigned char *)(memory + need * SPX_VL);
    for (size_t v = f0 / SPX_VL * SPX_VL; v < f1; v += SPX_VL) {
        const size_t g0 = v > f0 ? v : f0, g1 = v + SPX_VL < f1 ? v + SPX_VL : f1;
        if (!memchr(pending + g0, 1, g1 - g0))
            continue;
        ivec want = EVERY_INT(0), fit = EVERY_INT(0); /* fibres whose output is wanted; all that have a solution */
        vec extra = every(0.0);
        for (size_t f = v; f < v + SPX_VL && f < b->nf; f++) {
            fit[f - v] = b->lost[f] ? 0 : -1;
            want[f - v] = f >= f0 && f < f1 ? fit[f - v] : 0;
        }
        find_weak(p, b, a, v, weak);
        outcome end = DONE;
        for (int attempt = 0; attempt < 2 && any_lane(want) && end == DONE; attempt++) {
            ivec bad = EVERY_INT(0);
            end = attempt > 0 ? OPEN : root_vector(p, b, a, v, f0, f1, want, fit, extra, weak, memory, out, &bad);
            if (end == OPEN) {
                bad = EVERY_INT(0);
                end = root_vector(p, b, a, v, f0, f1, want, fit, extra, NULL, memory, out, &bad);
            }
            if (end == NARROW)
                break;
            want &= bad;
            for (int i = 0; i < SPX_VL; i++) {
                *regularised += want[i] && attempt == 0;
                if (want[i] && attempt > 0)
                    b->lost[v + (size_t)i] = 1;
            }
            extra = (vec)((ivec)every(SPX_TRACE_RETRY * SPX_TRACE_RETRY) & want);
        }
        memset(pending + g0, end == NARROW, g1 - g0);
    }
    return SPX_OK;
}

static const spx_trace_kernels SPX_KERNELS = {SPX_KERNELS_NAME, equations, factorise, solve, marginal, root, fit};
