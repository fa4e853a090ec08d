/* Provides the square root of A_s by rational approximation (calib/root_lanes.h): flux, ivar and resolution, in
 * segments of a trace. Lanes are fibres. */
#ifndef SPX_EXTRACT_TRACE_SQRT_H
#define SPX_EXTRACT_TRACE_SQRT_H

#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "calib/root_lanes.h"
#include "extract/trace/band.h"
#include "extract/trace/outer.h"

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

/* Whether a vector has one fibre alone: then its lanes are poles of that fibre's square root. */
static int is_alone(const spx_trace_bundle *b, size_t v)
{
    return v + 1 == b->nf;
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
    w->variance = w->inverse + SPX_INVERSE_ROWS(m) * SPX_VL;
    double *compact = w->variance + n * SPX_VL, *x = compact + n * (m + 1) * SPX_VL;
    memset(memory, 0, m * (m + 1) * SPX_VL * sizeof *memory);
    memset(w->diag - m * SPX_VL, 0, m * SPX_VL * sizeof *memory);
    for (size_t i = 0; i < m * SPX_VL; i++) {
        (w->one - m * SPX_VL)[i] = w->one[n * SPX_VL + i] = 0.0;
        (w->flux - m * SPX_VL)[i] = w->flux[n * SPX_VL + i] = 0.0;
    }
    const int alone = is_alone(b, v);
    for (size_t k = 0; k < n; k++) {
        for (size_t d = 0; d <= m; d++) {
            const int there = k + d < n && (d <= (size_t)b->hi[0] || a->wide);
            const vec e = there ? load(element(p, b, a, s.r0 + k, (int)d) + v) : every(0.0);
            store(compact + (k * (m + 1) + d) * SPX_VL, alone ? every(e[0]) : e);
        }
        const vec flux = load(b->x + (s.r0 + k) * b->nl + v);
        store(x + k * SPX_VL, alone ? every(flux[0]) : flux);
    }
    return (matrix){compact, x, every(0.0), alone};
}

/* Largest element that the outermost SPX_TRACE_RIM diagonals of A_s, more than `least`, let expect beyond them, of each
 * fibre of the vector: see goes_on(). scale: Z. */
static vec largest_beyond(const spx_trace_plan *p, const spx_trace_bundle *b, const spx_trace_diagonals *a, size_t v,
                          size_t r0, size_t r1, size_t least, const double *scale)
{
    vec most = every(0.0);
    double fall = 1.0;
    for (size_t d = b->band; d > least && d + SPX_TRACE_RIM > b->band; d--, fall *= SPX_TRACE_FALL)
        for (size_t k = r0; k + d < r1; k++) {
            const vec e = load(element(p, b, a, k, (int)d) + v);
            const vec by = load(scale + (k - r0) * SPX_VL) * load(scale + (k + d - r0) * SPX_VL);
            most = vmax(e * e * by / every(fall * fall), most);
        }
    for (int i = 0; i < SPX_VL; i++)
        most[i] = sqrt(most[i]);
    return most;
}

/* Half-bandwidth that A_s needs in rows of a segment; more than b->band where that is too little. Dropping A_s(i,j)
 * changes the square root by about |A_s(i,j)| sqrt(Z_ii Z_jj), Z = A_s^-1. Z is first computed from the non-negligible
 * diagonals only, and counts as far as rounding allows (SPX_TRACE_ROUNDING). *left grows to the largest element that is
 * left out because there is no room for more diagonals. */
static size_t bandwidth(const spx_trace_plan *p, const spx_trace_bundle *b, const spx_trace_diagonals *a, size_t v,
                        segment s, size_t h, double *memory, vec *left)
{
    const size_t n = s.r1 - s.r0, least = least_band(p, b), most = b->band;
    if (!a->wide || least >= most)
        return least;
    if (a->ends[v / SPX_VL] && most < SPX_TRACE_MOST_BAND)
        return most + 1;
    double *scale = memory;
    for (size_t k = 0; k < n; k++)
        store(scale + k * SPX_VL,
              every(1.0) / (load(element(p, b, a, s.r0 + k, 0) + v) * load(a->drop_scale + (s.r0 + k) * b->nl + v)));
    const size_t m = outermost(p, b, a, v, s.r0, s.r1, least, SPX_TRACE_TRIM * p->drop_tolerance, scale);
    if (m + SPX_TRACE_RIM <= most && outermost(p, b, a, v, s.r0, s.r1, m, 0.0, scale) == m)
        return m;
    root_work w;
    const size_t lrow = (m + 1) * SPX_VL;
    const matrix mat = lay_out(p, b, a, v, s, m, h, memory, &w);
    vec u[SPX_LANES_BLOCK * (SPX_TRACE_MOST_BAND + 1)], z[SPX_TRACE_MOST_BAND + 1];
    (void)factor(n, (int)m, mat.a, lrow, SPX_VL, mat.extra, w.l, lrow, SPX_VL, w.diag, u);
    inverse_rows rows = inverse_begin((int)m, w.inverse);
    for (size_t j = n; j-- > 0;) {
        const vec inverse = inverse_row((int)m, j, w.l + j * lrow, lrow, SPX_VL, &rows, z);
        const vec diagonal = load(element(p, b, a, s.r0 + j, 0) + v);
        store(w.sumx + j * SPX_VL, inverse);
        store(w.sum1 + j * SPX_VL, counted_inverse(p, load(a->drop_scale + (s.r0 + j) * b->nl + v), diagonal, inverse));
    }
    const double limit = SPX_TRACE_EDGE * p->drop_tolerance;
    if (most < SPX_TRACE_MOST_BAND && goes_on(p, b, a, v, s.r0, s.r1, least, limit, w.sum1))
        return most + 1;
    if (most == SPX_TRACE_MOST_BAND && n > most + 1) /* else there are no more */
        *left = vmax(largest_beyond(p, b, a, v, s.r0, s.r1, least, w.sumx), *left);
    return outermost(p, b, a, v, s.r0, s.r1, m, limit, w.sum1);
}

/* Bins that a segment of the square root is begun early and ended late: what is beyond falls by ten every four bins. */
static size_t segment_margin(const spx_trace_plan *p)
{
    return (size_t)ceil(8.0 - 4.5 * log10(spx_trace_root_tolerance(p->tolerance)));
}

/* Bins with little information, weak[nbin], and those around them are segments of their own: the square root needs two
 * or three times as many poles there, and more diagonals. Relative to the largest diagonal of the vector's A_s. They
 * begin two margins before, so that the segment beside them, which is worked on a margin further, ends where bins still
 * have light: at the dark end of a trace, of which the deconvolved flux may be anything, segments that ended at the
 * first weak bin did not fit together, and all of the trace was worked on once more with the poles of its end. */
#define WEAK 0.01

static void find_weak(const spx_trace_plan *p, const spx_trace_bundle *b, const spx_trace_diagonals *a, size_t v,
                      unsigned char *weak)
{
    const size_t n = p->nbin, margin = segment_margin(p), around = 2 * margin;
    const ivec used = lanes_used(b, v);
    vec most = every(0.0);
    for (size_t k = 0; k < n; k++)
        most = vmax(load(element(p, b, a, k, 0) + v), most);
    for (size_t k = 0; k < n; k++)
        weak[k] = any_lane((load(element(p, b, a, k, 0) + v) < every(WEAK) * most) & used) != 0;
    for (size_t k = 0, since = n; k < n; k++) {
        since = weak[k] ? 0 : since + 1;
        weak[k] = since == 0 ? 2 : since <= around;
    }
    for (size_t k = n, since = n; k-- > 0;) {
        since = weak[k] == 2 ? 0 : since + 1;
        weak[k] |= since <= around;
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

/* One segment of a vector with half-bandwidth m, and `extra` on the diagonal of A_s: w gets its sums. Lanes that fail
 * are set in *bad. */
static void root_segment(const spx_trace_plan *p, const spx_trace_bundle *b, const spx_trace_diagonals *a, size_t v,
                         segment s, size_t m, vec extra, double *memory, root_work *w, vec *total, ivec *bad)
{
    const size_t n = s.r1 - s.r0, h = (size_t)p->job->psf->hsizey;
    matrix mat = lay_out(p, b, a, v, s, m, h, memory, w);
    mat.extra = mat.alone ? every(extra[0]) : extra;
    const double error = spx_trace_root_error(p->tolerance);
    root_of(n, (int)m, (int)h, error, mat, w, total, bad);
}

typedef enum { DONE, OPEN, NARROW } outcome;

/* Z of the bins of a segment, A_s^-1, into a->variance. */
static void keep_variance(const spx_trace_bundle *b, const spx_trace_diagonals *a, size_t v, segment s,
                          const root_work *w)
{
    for (size_t k = s.k0; k < s.k1; k++)
        store(a->variance + k * b->nl + v, load(w->variance + (k - s.r0) * SPX_VL));
}

/* Says how exact a fibre is of whose A_s so much is left out. */
static void say_inexact(const spx_trace_plan *p, const spx_trace_bundle *b, size_t f, double left, spx_frame *out,
                        spx_trace_tally *t)
{
    const size_t nw = p->job->nwave;
    const double exact = spx_trace_left_tolerance(p->tolerance, left);
    t->tolerance = fmax(t->tolerance, exact);
    t->inexact += exact > SPX_TRACE_INEXACT;
    for (size_t k = 0; k < nw && exact > SPX_TRACE_INEXACT; k++)
        out->arm.mask[(b->fibre0 + f - p->job->o->first) * nw + k] |= SPX_BAD2DFIT;
}

/* All segments of a vector, width[nbin]: scratch; the output of fibres f0 .. f1 - 1 whose lane is in `want`. Lanes
 * without a solution are set in *bad. OPEN: segments do not fit together in a lane of `fit`; NARROW: A_s is wider than
 * b->band. */
static outcome root_vector(const spx_trace_plan *p, const spx_trace_bundle *b, const spx_trace_diagonals *a, size_t v,
                           size_t f0, size_t f1, ivec want, ivec fit, vec extra, const unsigned char *weak,
                           unsigned char *width, double *memory, spx_frame *out, ivec *bad, vec *left)
{
    for (size_t k = 0; k < p->nbin;) { /* before any work that would be done again */
        const segment s = next_segment(p, weak, k);
        const size_t m = bandwidth(p, b, a, v, s, (size_t)p->job->psf->hsizey, memory, left);
        if (m > b->band)
            return NARROW;
        width[k] = (unsigned char)m;
        k = s.k1;
    }
    seam before;
    for (size_t k = 0; k < p->nbin;) {
        const segment s = next_segment(p, weak, k);
        root_work w;
        vec total;
        root_segment(p, b, a, v, s, width[k], extra, memory, &w, &total, bad);
        if (k > 0 &&
            any_lane(seam_open(spx_trace_root_tolerance(p->tolerance), before, seam_at(k, s, &w)) & fit & ~*bad))
            return OPEN;
        keep_variance(b, a, v, s, &w);
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

/* The vector of fibres from v on: see spx_trace_kernels. */
static spx_status root_fibres(const spx_trace_plan *p, spx_trace_bundle *b, spx_trace_workspace *r,
                              const spx_trace_diagonals *a, size_t v, size_t f0, size_t f1, unsigned char *pending,
                              spx_frame *out, spx_trace_tally *t)
{
    const size_t n = p->nbin, most = b->band, h = (size_t)p->job->psf->hsizey, rows = n + 2 * most;
    const size_t need = (rows + n) * (most + 1) + 3 * rows + 4 * n + n * (h + 1) + SPX_INVERSE_ROWS(most);
    const size_t g0 = v > f0 ? v : f0, g1 = v + SPX_VL < f1 ? v + SPX_VL : f1;
    double *memory =
        spx_trace_workspace_get(r, SPX_BUFFER_ROOT, need + 2 * n / SPX_VL / sizeof(double) + 1, SPX_VL, NULL);
    if (!memory)
        return SPX_EIO;
    unsigned char *weak = (unsigned char *)(memory + need * SPX_VL), *width = weak + n; /* [n] each */
    ivec want = EVERY_INT(0), fit = EVERY_INT(0); /* fibres whose output is wanted; all that have a solution */
    vec extra = every(0.0);
    for (size_t f = v; f < v + SPX_VL && f < b->nf; f++) {
        fit[f - v] = b->singular[f] ? 0 : -1;
        want[f - v] = f >= f0 && f < f1 ? fit[f - v] : 0;
    }
    find_weak(p, b, a, v, weak);
    vec left = every(0.0);
    outcome end = DONE;
    for (int attempt = 0; attempt < 2 && any_lane(want) && end == DONE; attempt++) {
        ivec bad = EVERY_INT(0);
        end = attempt > 0 ? OPEN
                          : root_vector(p, b, a, v, f0, f1, want, fit, extra, weak, width, memory, out, &bad, &left);
        if (end == OPEN) {
            bad = EVERY_INT(0);
            end = root_vector(p, b, a, v, f0, f1, want, fit, extra, NULL, width, memory, out, &bad, &left);
        }
        if (end == NARROW)
            break;
        want &= bad;
        for (int i = 0; i < SPX_VL; i++) {
            t->regularised += want[i] && attempt == 0;
            if (want[i] && attempt > 0)
                b->singular[v + (size_t)i] = 1;
        }
        extra = (vec)((ivec)every(SPX_TRACE_RETRY * SPX_TRACE_RETRY) & want);
    }
    for (size_t f = g0; f < g1 && end != NARROW; f++)
        if (fit[f - v] && !b->singular[f])
            say_inexact(p, b, f, left[f - v], out, t);
    memset(pending + g0, end == NARROW, g1 - g0);
    return SPX_OK;
}

/* Vectors of fibres are tasks. */
static spx_status root(const spx_trace_plan *p, spx_trace_bundle *b, spx_trace_workspace *r,
                       const spx_trace_diagonals *a, size_t f0, size_t f1, unsigned char *pending, spx_frame *out,
                       spx_trace_tally *t, spx_err *e)
{
    int failed = 0;
    spx_trace_tally *part = spx_alloc(b->nl / SPX_VL, sizeof *part, e);
    if (!part)
        return SPX_EIO;
    for (size_t v = f0 / SPX_VL * SPX_VL; v < f1; v += SPX_VL) {
        const size_t g0 = v > f0 ? v : f0, g1 = v + SPX_VL < f1 ? v + SPX_VL : f1;
        if (!memchr(pending + g0, 1, g1 - g0))
            continue;
#pragma omp task shared(failed)
        {
            spx_trace_workspace *own = spx_trace_task_begin(r);
            if (root_fibres(p, b, own, a, v, f0, f1, pending, out, &part[v / SPX_VL]) != SPX_OK)
                __atomic_store_n(&failed, 1, __ATOMIC_RELAXED);
            spx_trace_task_end(r, own, SPX_EXTRACT_ROOT);
        }
    }
#pragma omp taskwait
    for (size_t v = 0; v < b->nl / SPX_VL; v++)
        spx_trace_tally_add(&part[v], t);
    spx_free(part);
    return failed ? spx_mem_fail(e) : SPX_OK;
}

#endif
