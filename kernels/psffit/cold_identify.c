/* Identifies the lines of an arc (psffit/cold_steps.h).
 *
 * Search: lambda = c + s t + q t^2, t the row from the middle; score = sum over the brightest peaks of
 * exp(-(distance to the nearest listed line)^2/(2 1.5^2)). All lengths are in units of 1.7 dispersions (one Angstrom
 * for the spectrograph on which they were chosen), in which the steps move no row by more than one. For all c of one
 * (s, q) the scores are sums of shifted tables. The best different hypotheses are polished: polynomials of rising
 * degree through the peaks that have a line near by, with falling tolerances. */
#include <math.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "num/stat.h"
#include "psf/psf_math.h"
#include "psffit/cold_steps.h"

#define UNIT   1.7   /* dispersions */
#define SPREAD 1.5   /* of the score, units */
#define CURVE  0.033 /* q at the end of the CCD, of the half range */
#define DIFFER 3.0   /* other hypothesis: units */
#define RATIO  1.3   /* of lines, for a solution that is the only one */
/* Part of the peaks that are lines in one third of the peaks by row, by that in another: a dispersion beyond the limits
 * of the search may be followed from one end of the CCD to where no polynomial of the degree follows. */
#define LOPSIDED 0.4

/* Peaks of the search; cells of the table in a unit; places of c that are kept for one (s, q); hypotheses that are
 * polished; fewest lines; most steps of s and of c; peaks of the polish. */
enum {
    BRIGHTEST = 40,
    CELLS = 4,
    KEPT = 2,
    POLISHED = 80,
    FEWEST = 10,
    MOST_S = 2000,
    MOST_C = 40000,
    MOST_PEAKS = 400,
    LEAST_THIRD = 4 /* peaks of a third that is looked at */
};

static const struct {
    int degree;
    double tolerance; /* units */
} polish_step[] = {{2, 2.0}, {3, 1.5}, {3, 1.0}, {4, 0.7}, {5, 0.4}, {5, 0.25}, {5, 0.25}, {5, 0.25}};

enum { NPOLISH = sizeof polish_step / sizeof *polish_step };

double spx_cold_wavelength(const spx_cold_wave *w, double middle, double half, double row)
{
    return spx_legendre_sum((size_t)w->degree + 1, w->c, (row - middle) / half);
}

/* ---- lines near peaks ---- */

/* Number of the line nearest to a wavelength. */
static size_t nearest(size_t nwave, const double *wave, double lambda)
{
    size_t low = 0, high = nwave;
    while (high - low > 1) {
        const size_t mid = low + (high - low) / 2;
        if (wave[mid] <= lambda)
            low = mid;
        else
            high = mid;
    }
    return low + 1 < nwave && wave[low + 1] - lambda < lambda - wave[low] ? low + 1 : low;
}

typedef struct {
    size_t npeak, nwave;
    const spx_cold_peak *peak;
    const double *wave;
    double middle, half, unit;
    double *u, *lambda, *weight; /* [npeak] */
    long *line;                  /* [npeak] */
    size_t *taken;               /* [nwave] peak + 1 */
} match;

static spx_status match_open(size_t npeak, const spx_cold_peak *peak, size_t nwave, const double *wave, size_t ny,
                             double unit, match *m, spx_err *e)
{
    *m = (match){.npeak = npeak, .nwave = nwave, .peak = peak, .wave = wave, .unit = unit};
    m->middle = m->half = 0.5 * (double)(ny - 1);
    m->u = spx_alloc(npeak, sizeof *m->u, e);
    m->lambda = spx_alloc(npeak, sizeof *m->lambda, e);
    m->weight = spx_alloc(npeak, sizeof *m->weight, e);
    m->line = spx_alloc(npeak, sizeof *m->line, e);
    m->taken = spx_alloc(nwave, sizeof *m->taken, e);
    if (m->u == NULL || m->lambda == NULL || m->weight == NULL || m->line == NULL || m->taken == NULL)
        return SPX_EIO;
    for (size_t k = 0; k < npeak; k++)
        m->u[k] = (peak[k].at - m->middle) / m->half;
    return SPX_OK;
}

static void match_close(match *m)
{
    spx_free(m->u);
    spx_free(m->lambda);
    spx_free(m->weight);
    spx_free(m->line);
    spx_free(m->taken);
}

/* Gives each peak the nearest line within the tolerance, each line to one peak; returns their number. */
static size_t match_lines(match *m, const spx_cold_wave *w, double tolerance)
{
    size_t n = 0;
    memset(m->taken, 0, m->nwave * sizeof *m->taken);
    for (size_t k = 0; k < m->npeak; k++) {
        const double lambda = spx_legendre_sum((size_t)w->degree + 1, w->c, m->u[k]);
        const size_t l = nearest(m->nwave, m->wave, lambda);
        m->line[k] = -1;
        m->lambda[k] = m->wave[l] - lambda;
        if (!(fabs(m->lambda[k]) <= tolerance))
            continue;
        if (m->taken[l] != 0) { /* the nearer one has it */
            const size_t other = m->taken[l] - 1;
            if (fabs(m->lambda[other]) <= fabs(m->lambda[k]))
                continue;
            m->line[other] = -1;
            n--;
        }
        m->taken[l] = k + 1;
        m->line[k] = (long)l;
        n++;
    }
    return n;
}

/* Fits a polynomial to the peaks that have lines, and returns their number; 0: too few, or wavelengths that turn round.
 * A degree above 3 needs two lines for each of its terms. */
static size_t match_fit(match *m, size_t n, int degree, spx_cold_wave *w)
{
    spx_cold_wave next = {.degree = degree};
    while (next.degree > (n < 6 ? 2 : 3) && n < 2 * (size_t)next.degree + 2)
        next.degree--;
    if (n < (size_t)next.degree + 2)
        return 0;
    for (size_t k = 0; k < m->npeak; k++) {
        m->weight[k] = m->line[k] >= 0;
        m->lambda[k] = m->line[k] >= 0 ? m->wave[m->line[k]] : 0.0;
    }
    if (!spx_cold_fit(m->npeak, m->u, m->lambda, m->weight, (size_t)next.degree + 1, 0, 0.0, next.c))
        return 0;
    double last = 0.0, way = 0.0;
    for (int k = -8; k <= 8; k++) {
        const double lambda = spx_legendre_sum((size_t)next.degree + 1, next.c, k / 8.0);
        if (k > -8 && (way * (lambda - last) < 0.0 || lambda == last))
            return 0;
        way = k > -8 ? lambda - last : 0.0;
        last = lambda;
    }
    *w = next;
    return n;
}

/* Root mean square of the deviations of peaks from their lines. */
static double match_rms(const match *m, const spx_cold_wave *w)
{
    double sum = 0.0;
    size_t n = 0;
    for (size_t k = 0; k < m->npeak; k++)
        if (m->line[k] >= 0) {
            const double d = m->wave[m->line[k]] - spx_legendre_sum((size_t)w->degree + 1, w->c, m->u[k]);
            sum += d * d;
            n++;
        }
    return n > 0 ? sqrt(sum / (double)n) : 0.0;
}

/* ---- search ---- */

typedef struct {
    float score;
    double c, s, q; /* at the middle; at the end of the CCD, in Angstrom */
} hypothesis;

typedef struct {
    size_t npeak;        /* of the brightest */
    double t[BRIGHTEST]; /* [-1, 1] */
    double unit;
    float *table[CELLS];
    size_t ncell;
    double table0; /* wavelength of the first cell */
} search;

static int by_height(const void *a, const void *b)
{
    const spx_cold_peak *x = a, *y = b;
    if (x->height != y->height)
        return x->height < y->height ? 1 : -1;
    return (x->at > y->at) - (x->at < y->at);
}

static int by_score(const void *a, const void *b)
{
    const hypothesis *x = a, *y = b;
    if (x->score != y->score)
        return x->score < y->score ? 1 : -1;
    if (x->s != y->s)
        return x->s < y->s ? -1 : 1;
    if (x->q != y->q)
        return x->q < y->q ? -1 : 1;
    return (x->c > y->c) - (x->c < y->c);
}

/* Table of the score of a peak against its wavelength, in CELLS parts that are a unit apart each. */
static spx_status make_table(search *f, size_t nwave, const double *wave, double low, double high, spx_err *e)
{
    const double cell = f->unit / CELLS;
    f->table0 = low;
    f->ncell = (size_t)((high - low) / f->unit) + 2;
    for (int p = 0; p < CELLS; p++)
        if ((f->table[p] = spx_alloc(f->ncell, sizeof *f->table[p], e)) == NULL)
            return SPX_EIO;
    for (size_t k = 0; k < f->ncell * CELLS; k++) {
        const double lambda = low + cell * (double)k,
                     d = (wave[nearest(nwave, wave, lambda)] - lambda) / (SPREAD * f->unit);
        f->table[k % CELLS][k / CELLS] = (float)exp(-0.5 * d * d);
    }
    return SPX_OK;
}

/* Scores of all c for one (s, q): c0 + k units; the best KEPT, at least DIFFER apart, into h. */
static void scan(const search *f, double s, double q, double c0, size_t nc, float *score, hypothesis *h)
{
    for (size_t k = 0; k < nc; k++)
        score[k] = 0.0f;
    for (size_t i = 0; i < f->npeak; i++) {
        const double lambda = c0 + s * f->t[i] + q * f->t[i] * f->t[i];
        const size_t cell = (size_t)((lambda - f->table0) / f->unit * CELLS + 0.5);
        const float *table = f->table[cell % CELLS] + cell / CELLS;
        for (size_t k = 0; k < nc; k++)
            score[k] += table[k];
    }
    for (int kept = 0; kept < KEPT; kept++) {
        size_t best = 0;
        for (size_t k = 1; k < nc; k++)
            if (score[k] > score[best])
                best = k;
        h[kept] = (hypothesis){score[best], c0 + f->unit * (double)best, s, q};
        const size_t near = (size_t)DIFFER, first = best > near ? best - near : 0;
        for (size_t k = first; k <= best + near && k < nc; k++)
            score[k] = -1.0f;
    }
}

/* Hypotheses differ: at the middle or an end of the CCD. */
static int differ(const hypothesis *a, const hypothesis *b, double unit)
{
    const double c = a->c - b->c, s = a->s - b->s, q = a->q - b->q;
    return fmax(fabs(c), fmax(fabs(c + s + q), fabs(c - s + q))) > DIFFER * unit;
}

/* Searches all hypotheses: the best different ones into best[POLISHED], sorted; returns their number. */
static spx_status search_all(search *f, const spx_cold_options *o, double half, hypothesis *best, size_t *nbest,
                             spx_err *e)
{
    const double reach = o->dispersion * half, spread = o->dispersion_range * reach, curve = CURVE * reach;
    const size_t ns = 2 * (size_t)ceil(spread / f->unit) + 1, nq = 2 * (size_t)ceil(curve / f->unit) + 1,
                 nc = 2 * (size_t)ceil(o->centre_range / f->unit) + 1;
    if (ns > MOST_S || nc > MOST_C)
        return spx_fail_remedy(e, SPX_EUSAGE, "narrow {dispersion} and {centre}",
                               "the search for wavelengths would have %zu x %zu steps", ns, nc);
    const int ways = o->direction == 0 ? 2 : 1;
    const size_t most = (size_t)ways * ns * nq * KEPT;
    hypothesis *all = spx_alloc(most, sizeof *all, e);
    float *score = spx_alloc2((size_t)o->nthreads, nc, sizeof *score, e);
    spx_status st = all != NULL && score != NULL ? SPX_OK : SPX_EIO;
    if (st == SPX_OK) {
        const double c0 = o->centre - f->unit * (double)(nc / 2);
#pragma omp parallel for schedule(static) num_threads(o->nthreads)
        for (size_t k = 0; k < (size_t)ways * ns; k++) {
            float *mine = score + (size_t)omp_get_thread_num() * nc;
            const double way = ways == 2 ? (k < ns ? -1.0 : 1.0) : (double)o->direction;
            const double s = way * (reach + f->unit * ((double)(k % ns) - (double)(ns / 2)));
            for (size_t j = 0; j < nq; j++)
                scan(f, s, f->unit * ((double)j - (double)(nq / 2)), c0, nc, mine, all + (k * nq + j) * KEPT);
        }
        qsort(all, most, sizeof *all, by_score);
        *nbest = 0;
        for (size_t k = 0; k < most && *nbest < POLISHED; k++) {
            size_t i = 0;
            while (i < *nbest && differ(&all[k], &best[i], f->unit))
                i++;
            if (i == *nbest)
                best[(*nbest)++] = all[k];
        }
    }
    spx_free(all);
    spx_free(score);
    return st;
}

/* ---- solutions ---- */

static size_t polish(match *m, const hypothesis *h, spx_cold_wave *w)
{
    size_t n = 0;
    /* t = P_1, t^2 = (2 P_2 + 1)/3 */
    *w = (spx_cold_wave){2, {h->c + h->q / 3.0, h->s, 2.0 * h->q / 3.0}};
    for (int k = 0; k < NPOLISH; k++) {
        n = match_lines(m, w, polish_step[k].tolerance * m->unit);
        if ((n = match_fit(m, n, polish_step[k].degree, w)) == 0)
            return 0;
    }
    return match_lines(m, w, polish_step[NPOLISH - 1].tolerance * m->unit);
}

/* Another solution: at more than half of the rows where the first one has lines. row[n]: these, [-1, 1]. */
static int is_rival(const spx_cold_wave *a, const spx_cold_wave *b, size_t n, const double *row, double unit)
{
    size_t apart = 0;
    for (size_t k = 0; k < n; k++)
        apart += fabs(spx_legendre_sum((size_t)a->degree + 1, a->c, row[k]) -
                      spx_legendre_sum((size_t)b->degree + 1, b->c, row[k])) > DIFFER * unit;
    return 2 * apart > n;
}

static spx_cold_solution describe(const match *m, const spx_cold_wave *w, size_t nline)
{
    return (spx_cold_solution){
        .nline = nline,
        .first = spx_cold_wavelength(w, m->middle, m->half, 0.0),
        .last = spx_cold_wavelength(w, m->middle, m->half, 2.0 * m->half),
        .dispersion = spx_cold_wavelength(w, m->middle, m->half, m->middle + 0.5) -
                      spx_cold_wavelength(w, m->middle, m->half, m->middle - 0.5),
        .rms = match_rms(m, w),
        .degree = w->degree,
    };
}

static int by_place(const void *a, const void *b)
{
    const spx_cold_peak *x = a, *y = b;
    return (x->at > y->at) - (x->at < y->at);
}

/* Whether a solution has lines in all parts of the CCD that have peaks; else the rows of the third of the peaks that
 * has fewest, first[2], its peaks and lines. peak[npeak] will be sorted by row. SPX_EIO: memory. */
typedef struct {
    int whole;
    double row[2];
    size_t npeak, nline;
} parts;

/* Whether a solution has lines in all parts of the CCD that have peaks; sorts peak[npeak] by row. SPX_EIO: memory. */
static spx_status look_at_parts(match *m, const spx_cold_wave *w, spx_cold_peak *peak, parts *p, spx_err *e)
{
    match sorted = *m;
    double share[3] = {0};
    size_t worst = 0, best = 0, lines[3] = {0};
    p->whole = 1;
    if (m->npeak < 3 * LEAST_THIRD)
        return SPX_OK;
    qsort(peak, m->npeak, sizeof *peak, by_place);
    const spx_status st =
        match_open(m->npeak, peak, m->nwave, m->wave, (size_t)(2.0 * m->half + 1.5), m->unit, &sorted, e);
    if (st != SPX_OK) {
        match_close(&sorted);
        return st;
    }
    match_lines(&sorted, w, polish_step[NPOLISH - 1].tolerance * m->unit);
    for (size_t t = 0; t < 3; t++) {
        const size_t first = t * m->npeak / 3, last = (t + 1) * m->npeak / 3;
        for (size_t k = first; k < last; k++)
            lines[t] += sorted.line[k] >= 0;
        share[t] = (double)lines[t] / (double)(last - first);
        worst = share[t] < share[worst] ? t : worst;
        best = share[t] > share[best] ? t : best;
    }
    match_close(&sorted);
    /* a list may have none there */
    const size_t first = worst * m->npeak / 3, last = (worst + 1) * m->npeak / 3;
    const double lo = spx_cold_wavelength(w, m->middle, m->half, peak[first].at);
    const double hi = spx_cold_wavelength(w, m->middle, m->half, peak[last - 1].at);
    size_t listed = 0;
    for (size_t k = 0; k < m->nwave; k++)
        listed += m->wave[k] >= fmin(lo, hi) && m->wave[k] <= fmax(lo, hi);
    *p = (parts){share[worst] >= LOPSIDED * share[best] || listed < 2 * lines[worst] + LEAST_THIRD,
                 {peak[first].at, peak[last - 1].at},
                 last - first,
                 lines[worst]};
    return SPX_OK;
}

/* Polishes hypotheses; the best solution and its rival. */
static spx_status choose(match *m, size_t nbest, const hypothesis *start, spx_cold_wave *wave, spx_cold_solution *best,
                         spx_cold_solution *rival, spx_err *e)
{
    spx_cold_wave *w = spx_alloc(nbest + 1, sizeof *w, e);
    spx_cold_solution *s = spx_alloc(nbest + 1, sizeof *s, e);
    double *row = spx_alloc(m->npeak, sizeof *row, e);
    size_t top = 0, nrow = 0;
    spx_status st = w != NULL && s != NULL && row != NULL ? SPX_OK : SPX_EIO;
    for (size_t k = 0; k < nbest && st == SPX_OK; k++) {
        const size_t n = polish(m, &start[k], &w[k]);
        if (n > 0)
            s[k] = describe(m, &w[k], n);
        if (s[k].nline > s[top].nline || (s[k].nline == s[top].nline && s[k].rms < s[top].rms))
            top = k;
    }
    if (st == SPX_OK && nbest > 0 && s[top].nline > 0) {
        match_lines(m, &w[top], polish_step[NPOLISH - 1].tolerance * m->unit);
        for (size_t k = 0; k < m->npeak; k++)
            if (m->line[k] >= 0)
                row[nrow++] = m->u[k];
        for (size_t k = 0; k < nbest; k++)
            if (s[k].nline > rival->nline && is_rival(&w[top], &w[k], nrow, row, m->unit))
                *rival = s[k];
        *best = s[top];
        *wave = w[top];
    }
    spx_free(w);
    spx_free(s);
    spx_free(row);
    return st;
}

spx_status spx_cold_identify(size_t npeak, const spx_cold_peak *peak, size_t nwave, const double *wave, size_t ny,
                             const spx_cold_options *o, spx_cold_wave *best_wave, spx_cold_solution *best,
                             spx_cold_solution *rival, spx_err *e)
{
    const double unit = UNIT * o->dispersion, half = 0.5 * (double)(ny - 1);
    search f = {.unit = unit};
    match m = {0};
    hypothesis start[POLISHED];
    size_t nstart = 0;
    *best = *rival = (spx_cold_solution){0};
    if (npeak < FEWEST || nwave < FEWEST)
        return spx_fail_remedy(
            e, SPX_EINPUT, "is it an arc? give {lamps} or {lines} that suit it",
            "the arc shows %zu lines in the middle, and the list has %zu near {centre}: at least %d are needed", npeak,
            nwave, FEWEST);
    spx_cold_peak *bright = spx_alloc(npeak, sizeof *bright, e);
    spx_status st = bright != NULL ? SPX_OK : SPX_EIO;
    if (st == SPX_OK) {
        memcpy(bright, peak, npeak * sizeof *bright);
        qsort(bright, npeak, sizeof *bright, by_height);
        npeak = npeak < MOST_PEAKS ? npeak : MOST_PEAKS;
        f.npeak = npeak < BRIGHTEST ? npeak : BRIGHTEST;
        for (size_t k = 0; k < f.npeak; k++)
            f.t[k] = (bright[k].at - half) / half;
        /* wavelengths that a row can have, and some units for rounding */
        const double widest =
            o->dispersion * half * (1.0 + o->dispersion_range + CURVE) + o->centre_range + 20.0 * unit;
        st = make_table(&f, nwave, wave, o->centre - widest, o->centre + widest, e);
    }
    if (st == SPX_OK)
        st = search_all(&f, o, half, start, &nstart, e);
    if (st == SPX_OK)
        st = match_open(npeak, bright, nwave, wave, ny, unit, &m, e);
    if (st == SPX_OK)
        st = choose(&m, nstart, start, best_wave, best, rival, e);
    if (st == SPX_OK && best->nline < FEWEST)
        st = spx_fail_remedy(
            e, SPX_EINPUT, "give {lamps} or {lines} that suit the arc, or another {centre} and {dispersion}",
            "no identification: of %zu peaks at most %zu are listed lines, %d are needed", npeak, best->nline, FEWEST);
    else if (st == SPX_OK && (double)best->nline < RATIO * (double)rival->nline)
        st = spx_fail_remedy(
            e, SPX_EINPUT, "give {centre} and {dispersion} within narrower limits, and the {lamps} of the arc",
            "no unique identification: %zu of %zu peaks are lines with %.1f to %.1f Angstrom, %zu with %.1f to "
            "%.1f",
            best->nline, npeak, best->first, best->last, rival->nline, rival->first, rival->last);
    else if (st == SPX_OK) {
        parts p;
        st = look_at_parts(&m, best_wave, bright, &p, e);
        if (st == SPX_OK && !p.whole)
            st = spx_fail_remedy(
                e, SPX_EINPUT,
                "give {centre} and {dispersion} as they are, with wider limits where you do not know them, and the "
                "{lamps} of the arc",
                "no identification: of %zu peaks %zu are lines with %.1f to %.1f Angstrom, but only %zu of the %zu in "
                "rows %.0f to %.0f",
                npeak, best->nline, best->first, best->last, p.nline, p.npeak, p.row[0], p.row[1]);
    }
    match_close(&m);
    for (int p = 0; p < CELLS; p++)
        spx_free(f.table[p]);
    spx_free(bright);
    return st;
}

/* ---- other fibres ---- */

/* Shift of the peaks against a solution, rows, at which most of them are near lines. */
static double best_shift(const match *m, const spx_cold_wave *w, double reach)
{
    const double spread = 0.6 * m->unit;
    double best = -1.0, shift = 0.0;
    for (int k = 0; k <= (int)(8.0 * reach); k++) {
        const double d = 0.25 * (k % 2 == 0 ? k / 2 : -(k + 1) / 2); /* 0, -1/4, 1/4, ... */
        double score = 0.0;
        for (size_t i = 0; i < m->npeak; i++) {
            const double lambda = spx_cold_wavelength(w, m->middle, m->half, m->peak[i].at - d),
                         off = (m->wave[nearest(m->nwave, m->wave, lambda)] - lambda) / spread;
            score += exp(-0.5 * off * off);
        }
        if (score > best + 1e-9) {
            best = score;
            shift = d;
        }
    }
    return shift;
}

size_t spx_cold_follow(size_t npeak, const spx_cold_peak *peak, size_t nwave, const double *wave, size_t ny,
                       double reach, int degree, spx_cold_wave *w, long *line)
{
    static const double tolerance[] = {1.0, 0.5, 0.3};
    match m;
    size_t n = 0;
    const double half = 0.5 * (double)(ny - 1);
    const double unit =
        UNIT * fabs(spx_cold_wavelength(w, half, half, half + 0.5) - spx_cold_wavelength(w, half, half, half - 0.5));
    spx_cold_wave next = *w;
    for (size_t k = 0; k < npeak; k++)
        line[k] = -1;
    if (npeak < 3 || nwave < 3)
        return 0;
    if (match_open(npeak, peak, nwave, wave, ny, unit, &m, NULL) == SPX_OK) {
        const double shift = best_shift(&m, w, reach);
        for (size_t k = 0; k < npeak; k++) /* the neighbour's solution, moved */
            m.u[k] = (peak[k].at - shift - half) / half;
        n = match_lines(&m, w, tolerance[0] * unit);
        for (size_t k = 0; k < npeak; k++)
            m.u[k] = (peak[k].at - half) / half;
        for (size_t k = 0; k < 3 && n > 0; k++) {
            if ((n = match_fit(&m, n, degree, &next)) > 0)
                n = match_lines(&m, &next, tolerance[k < 2 ? k + 1 : 2] * unit);
        }
        if (n > 0) {
            *w = next;
            memcpy(line, m.line, npeak * sizeof *line);
        }
    }
    match_close(&m);
    return n;
}
