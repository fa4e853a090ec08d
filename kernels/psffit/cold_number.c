/* Numbers the peaks of a flat by the pattern of bundles (psffit/cold_steps.h). */
#include <math.h>
#include <stdlib.h>

#include "base/mem.h"
#include "num/stat.h"
#include "psffit/cold_steps.h"

/* A distance may be off by this fraction of the pitch; penalty of a fibre without a peak and a peak without a fibre;
 * another numbering fits as well when it costs this much more, at most. */
#define TOLERANCE 0.15
#define PENALTY   4.0
#define CLEAR     2.0
/* A distance is none within a bundle above this, in pitches. */
#define WIDE 1.35

/* Longest runs of fibres without peaks and of peaks without fibres; widths of gaps that are tried. */
enum { MOST_MISSING = 40, MOST_SPURIOUS = 4, MOST_GAPS = 12 };

typedef struct {
    size_t nfibre, npeak, missing, spurious; /* at most so many of either */
    const double *x;
    double *expected, pitch;
    double *forward, *backward; /* [nfibre][npeak] cost of all before, and after, this peak at this fibre */
} numbering;

static double step_cost(const numbering *w, size_t i, size_t j, size_t i2, size_t j2)
{
    const double off = (w->x[j2] - w->x[j]) - (w->expected[i2] - w->expected[i]);
    const double d = off / (TOLERANCE * w->pitch * (1.0 + 0.1 * (double)(i2 - i - 1)));
    return d * d + PENALTY * (double)((i2 - i - 1) + (j2 - j - 1));
}

static int allowed(const numbering *w, size_t i, size_t j)
{
    return i <= j + w->missing && j <= i + w->spurious;
}

/* Fills the costs; way 1: forward, -1: backward. */
static void sweep(numbering *w, int way)
{
    const size_t n = w->nfibre, m = w->npeak;
    double *cost = way > 0 ? w->forward : w->backward;
    for (size_t k = 0; k < n; k++) {
        const size_t i = way > 0 ? k : n - 1 - k;
        for (size_t l = 0; l < m; l++) {
            const size_t j = way > 0 ? l : m - 1 - l;
            double best = HUGE_VAL;
            if (allowed(w, i, j)) {
                best = PENALTY * (double)(k + l);
                for (size_t di = 1; di <= k && di <= MOST_MISSING + 1; di++)
                    for (size_t dj = 1; dj <= l && dj <= MOST_SPURIOUS + 1; dj++) {
                        const size_t i2 = way > 0 ? i - di : i + di, j2 = way > 0 ? j - dj : j + dj;
                        if (!allowed(w, i2, j2))
                            continue;
                        const double c =
                            cost[i2 * m + j2] + (way > 0 ? step_cost(w, i2, j2, i, j) : step_cost(w, i, j, i2, j2));
                        best = fmin(best, c);
                    }
            }
            cost[i * m + j] = best;
        }
    }
}

/* Least cost of a numbering by the costs on both sides. */
static double least(const numbering *w)
{
    double best = HUGE_VAL;
    for (size_t i = 0; i < w->nfibre * w->npeak; i++)
        best = fmin(best, w->forward[i] + w->backward[i]);
    return best;
}

/* Columns at which fibres are expected for a pitch and a gap, from 0. */
static void expect(size_t nbundle, const size_t *bundle, double pitch, double gap, double *expected)
{
    size_t i = 0;
    double at = 0.0;
    for (size_t b = 0; b < nbundle; b++)
        for (size_t k = 0; k < bundle[b]; k++) {
            at += i == 0 ? 0.0 : k == 0 ? gap : pitch;
            expected[i++] = at;
        }
}

static int rising(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Reads the best numbering off the costs. Returns by how much the best one that gives a peak another number costs more.
 */
static double trace_back(const numbering *w, double best, long *peak_of)
{
    double clear = HUGE_VAL;
    for (size_t i = 0; i < w->nfibre; i++)
        peak_of[i] = -1;
    for (size_t j = 0; j < w->npeak; j++) {
        double first = HUGE_VAL, second = HUGE_VAL;
        size_t at = 0;
        for (size_t i = 0; i < w->nfibre; i++) {
            const double c = w->forward[i * w->npeak + j] + w->backward[i * w->npeak + j];
            if (c < first) {
                second = first;
                first = c;
                at = i;
            } else
                second = fmin(second, c);
        }
        if (first > best + 1e-6)
            continue; /* of no fibre */
        peak_of[at] = (long)j;
        clear = fmin(clear, second - first);
    }
    return clear;
}

/* Best numbering with a gap. Returns by how much the best one that differs costs more. */
static double number_with(numbering *w, size_t nbundle, const size_t *bundle, double gap, long *peak_of)
{
    expect(nbundle, bundle, w->pitch, gap, w->expected);
    sweep(w, 1);
    sweep(w, -1);
    return trace_back(w, least(w), peak_of);
}

/* Distances within bundles, and those that may be gaps, from all distances d[n], sorted: some of those that are wide,
 * and such from which one or two fibres are missing. */
static double scale(size_t n, double *d, double *gap, size_t *ngap)
{
    size_t narrow = 0;
    while (narrow < n && d[narrow] <= WIDE * d[n / 2])
        narrow++;
    *ngap = 0;
    for (size_t k = 0; k < MOST_GAPS && narrow < n; k++) {
        const double g = d[narrow + k * (n - narrow) / MOST_GAPS];
        if (*ngap == 0 || g > 1.02 * gap[*ngap - 1])
            gap[(*ngap)++] = g;
    }
    if (*ngap == 0)
        gap[(*ngap)++] = d[n / 2];
    for (size_t k = 0, seen = *ngap; k < seen; k++)
        for (int missing = 1; missing <= 2; missing++)
            if (gap[k] - missing * d[narrow / 2] > d[narrow / 2])
                gap[(*ngap)++] = gap[k] - missing * d[narrow / 2];
    return d[narrow / 2];
}

/* Places of all fibres: those of their peaks, between them by the expected distances. */
static void place_all(const numbering *w, const long *peak_of, double *place)
{
    const size_t n = w->nfibre;
    for (size_t i = 0; i < n; i++) {
        size_t left = i, right = i;
        while (left > 0 && peak_of[left] < 0)
            left--;
        while (right + 1 < n && peak_of[right] < 0)
            right++;
        const double *e = w->expected;
        if (peak_of[left] < 0)
            place[i] = w->x[peak_of[right]] - (e[right] - e[i]);
        else if (peak_of[right] < 0 || left == right)
            place[i] = w->x[peak_of[left]] + (e[i] - e[left]);
        else {
            const double a = w->x[peak_of[left]], b = w->x[peak_of[right]];
            place[i] = a + (b - a) * (e[i] - e[left]) / (e[right] - e[left]);
        }
    }
}

spx_status spx_cold_number(size_t npeak, const double *x, size_t nbundle, const size_t *bundle, size_t nfibre,
                           long *peak_of, double *place, double *pitch, double *gap, spx_err *e)
{
    double candidate[3 * MOST_GAPS], cost[3 * MOST_GAPS], best = HUGE_VAL;
    size_t ncandidate = 0, at = 0, lit = 0;
    if (2 * npeak < nfibre || npeak < 2)
        return spx_fail(e, SPX_EINPUT, "%zu traces of %zu are lit", npeak, nfibre);
    numbering w = {.nfibre = nfibre, .npeak = npeak, .x = x};
    w.spurious = 2 + npeak / 20 + (npeak > nfibre ? npeak - nfibre : 0);
    w.missing = (npeak < nfibre ? nfibre - npeak : 0) + w.spurious;
    double *d = spx_alloc(npeak, sizeof *d, e);
    long *other = spx_alloc(nfibre, sizeof *other, e);
    w.expected = spx_alloc(nfibre, sizeof *w.expected, e);
    w.forward = spx_alloc2(nfibre, npeak, sizeof *w.forward, e);
    w.backward = spx_alloc2(nfibre, npeak, sizeof *w.backward, e);
    spx_status st =
        w.expected != NULL && d != NULL && other != NULL && w.forward != NULL && w.backward != NULL ? SPX_OK : SPX_EIO;
    if (st == SPX_OK) {
        for (size_t i = 0; i + 1 < npeak; i++)
            d[i] = x[i + 1] - x[i];
        qsort(d, npeak - 1, sizeof *d, rising);
        *pitch = w.pitch = scale(npeak - 1, d, candidate, &ncandidate);
        if (nbundle == 1)
            ncandidate = 1;
    }
    for (size_t k = 0; k < ncandidate && st == SPX_OK; k++) {
        expect(nbundle, bundle, *pitch, candidate[k], w.expected);
        sweep(&w, 1);
        sweep(&w, -1);
        cost[k] = least(&w);
        if (cost[k] < best) {
            best = cost[k];
            at = k;
        }
    }
    int clear = 1;
    if (st == SPX_OK) {
        *gap = candidate[at];
        clear = number_with(&w, nbundle, bundle, *gap, peak_of) >= CLEAR;
        for (size_t i = 0; i < nfibre; i++)
            lit += peak_of[i] >= 0;
        if (2 * lit < nfibre)
            st = spx_fail_remedy(e, SPX_EINPUT, "give other {bundles}",
                                 "%zu of the flat's %zu traces fit into the pattern of %zu fibres", lit, npeak, nfibre);
        else
            place_all(&w, peak_of, place);
    }
    for (size_t k = 0; k < ncandidate && st == SPX_OK && clear; k++)
        if (k != at && cost[k] < best + CLEAR) { /* another gap fits as well: does it give the same numbers? */
            (void)number_with(&w, nbundle, bundle, candidate[k], other);
            for (size_t i = 0; i < nfibre; i++)
                clear &= other[i] == peak_of[i];
        }
    if (st == SPX_OK && !clear)
        st = spx_fail_remedy(
            e, SPX_EINPUT, "give other {bundles}, or a flat in which all fibres at the ends of bundles are lit",
            "the flat shows %zu traces of %zu, and they can be numbered in more than one way", npeak, nfibre);
    spx_free(d);
    spx_free(other);
    spx_free(w.expected);
    spx_free(w.forward);
    spx_free(w.backward);
    return st;
}
