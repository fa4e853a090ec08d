/* Starts a fit of traces and PSF from a flat and an arc alone (psffit/cold.h). */
#include "psffit/cold.h"

#include <math.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "num/stat.h"
#include "products/psf_index.h"
#include "psf/psf_math.h"
#include "psffit/cold_steps.h"

/* Peaks of an arc's spectrum, errors above the background; fraction of the usual width below which one is a hit, and
 * above which it is a blend. */
#define SHARP  8.0
#define NARROW 0.6
#define BROAD  2.0
/* Part of a trace's profile that has to be good. */
#define WHOLE 0.25
/* Rows that a fibre's lines may lie above or below its neighbour's. */
#define REACH 6.0
/* Rows beyond the CCD that the series cover. */
#define MARGIN 34.0
/* Rows that extrapolated points are worth, for a line of 0.03. */
#define ANCHOR 3.0

/* Rows of the running background; fewest lines of a fibre; most peaks of a fibre; terms of y(lambda); ends that hold
 * extrapolated series; fibres that share coefficients. */
enum {
    BACKGROUND = 101,
    BACKGROUND_STEP = 8,
    FEWEST = 6,
    MOST_PEAKS = 1000,
    WAVE_DEGREE = 5,
    ANCHORS = 4,
    SMOOTH = 8,
    LEAST_BUNDLE = 5
};

typedef struct {
    size_t n;
    spx_cold_peak *peak; /* [n] */
    long *line;          /* [n] listed line, -1: none */
    spx_cold_wave wave;
    size_t nline, spoilt;
    int solved;
} spectrum;

typedef struct {
    size_t narc;
    const spx_image *arc; /* [narc] */
    const spx_cold_options *o;
    spx_cold_traces t;
    size_t nwave;
    double *wave; /* [nwave] listed lines that are looked for, rising */
    int *quality; /* [nwave] */
    spectrum *s;  /* [nspec] */
    double sigmay;
    double wmin, wmax; /* of the series */
    spx_cold_report *report;
} work;

spx_cold_options spx_cold_defaults(void)
{
    return (spx_cold_options){
        .centre_range = 200.0, .dispersion_range = 0.08, .trace_degree = 6, .hsizex = 8, .hsizey = 5, .nthreads = 1};
}

static spx_status check_options(const spx_cold_options *o, spx_err *e)
{
    if (!(o->centre > 0.0 && o->centre_range >= 0.0 && o->centre_range < o->centre))
        return spx_fail(e, SPX_EUSAGE, "{centre}: %g +- %g Angstrom is no wavelength", o->centre, o->centre_range);
    if (!(o->dispersion > 0.0 && o->dispersion_range >= 0.0 && o->dispersion_range <= 0.5))
        return spx_fail(e, SPX_EUSAGE,
                        "{dispersion}: %g Angstrom a pixel +- %g %% should be above 0 and known to 50 %%",
                        o->dispersion, 100.0 * o->dispersion_range);
    if (o->trace_degree < 1 || o->trace_degree > 20 || o->hsizex < 1 || o->hsizey < 1 || o->nthreads < 1)
        return spx_fail(e, SPX_EUSAGE, "degree %d of traces, spots of half size %d, %d, %d threads", o->trace_degree,
                        o->hsizex, o->hsizey, o->nthreads);
    return SPX_OK;
}

static spx_status check_images(const spx_image *flat, size_t narc, const spx_image *arc, spx_err *e)
{
    for (size_t k = 0; k < narc; k++) {
        if (flat->nx != arc[k].nx || flat->ny != arc[k].ny)
            return spx_fail(e, SPX_EINPUT, "the flat has %zu x %zu pixels, the arc %zu x %zu", flat->nx, flat->ny,
                            arc[k].nx, arc[k].ny);
        if (flat->camera[0] != '\0' && arc[k].camera[0] != '\0' && strcmp(flat->camera, arc[k].camera) != 0)
            return spx_fail(e, SPX_EINPUT, "the flat is of camera %s, the arc of camera %s", flat->camera,
                            arc[k].camera);
    }
    return narc > 0 ? SPX_OK : spx_fail(e, SPX_EUSAGE, "no arc");
}

/* ---- spectra of the arc ---- */

/* Light of a trace in each row, of all arcs together: v[ny], error[ny]. Least squares of a Gaussian profile p at the
 * trace, sum p d / sum p^2 over good pixels, so that a bad column costs little; NaN where they have less than WHOLE of
 * sum p^2. */
static void sum_along(const work *w, size_t fibre, double *v, double *error)
{
    const double sigma2 = w->t.sigma * w->t.sigma + 1.0 / 12.0, norm = 1.0 / sqrt(2.0 * M_PI * sigma2);
    const long nx = (long)w->arc->nx, half = lround(fmax(1.0, fmin(2.0 * w->t.sigma, 0.5 * (w->t.pitch - 1.0))));
    for (size_t r = 0; r < w->arc->ny; r++) {
        const double x = spx_cold_column(&w->t, fibre, (double)r), at = fmax(-1e6, fmin(1e6, x));
        double all = 0.0, good = 0.0, sum = 0.0, variance = 0.0;
        for (long c = lround(at) - half; c <= lround(at) + half; c++) {
            const double p = norm * exp(-0.5 * ((double)c - at) * ((double)c - at) / sigma2);
            const size_t k = r * w->arc->nx + (size_t)(c < 0 ? 0 : c);
            int known = c >= 0 && c < nx;
            all += p * p;
            for (size_t a = 0; a < w->narc && known; a++)
                known = w->arc[a].mask[k] == 0 && w->arc[a].ivar[k] > 0.0f && isfinite(w->arc[a].data[k]);
            if (!known)
                continue;
            good += p * p;
            for (size_t a = 0; a < w->narc; a++) {
                sum += p * w->arc[a].data[k];
                variance += p * p / w->arc[a].ivar[k];
            }
        }
        v[r] = good > WHOLE * all ? sum / good : NAN;
        error[r] = good > 0.0 ? sqrt(variance) / good : 0.0;
    }
}

/* Running median of the known values, at every BACKGROUND_STEP-th row, and straight lines between. */
static void running_median(size_t n, const double *v, double *out)
{
    double near[BACKGROUND];
    size_t last = 0;
    for (size_t r = 0;; r = r + BACKGROUND_STEP < n - 1 ? r + BACKGROUND_STEP : n - 1) {
        size_t m = 0;
        const size_t first = r > BACKGROUND / 2 ? r - BACKGROUND / 2 : 0;
        for (size_t k = first; k < first + BACKGROUND && k < n; k++)
            if (isfinite(v[k]))
                near[m++] = v[k];
        out[r] = spx_median(near, m);
        for (size_t k = last + 1; k < r; k++)
            out[k] = out[last] + (out[r] - out[last]) * (double)(k - last) / (double)(r - last);
        last = r;
        if (r == n - 1)
            return;
    }
}

static double median_width2(size_t n, const spx_cold_peak *peak, double *scratch)
{
    for (size_t k = 0; k < n; k++)
        scratch[k] = peak[k].sigma2;
    return spx_median(scratch, n);
}

/* Peaks of one fibre's spectrum but hits and blends; buffer[5][ny]. */
static void find_lines(const work *w, size_t fibre, spectrum *s, double *buffer)
{
    const size_t ny = w->arc->ny;
    double *v = buffer, *error = v + ny, *background = error + ny, *scratch = background + ny;
    size_t reach = 2, step = 1, n = 0;
    sum_along(w, fibre, v, error);
    running_median(ny, v, background);
    for (int round = 0; round < 2; round++) { /* with the sizes that suit the widths of the first */
        s->spoilt = 0;
        n = spx_cold_peaks(ny, v, error, background, reach, step, SHARP, MOST_PEAKS, s->peak, &s->spoilt);
        const double sigma = sqrt(fmax(median_width2(n, s->peak, scratch), 0.04));
        step = (size_t)fmax(1.0, floor(sigma + 0.3));
        reach = (size_t)fmax(2.0, floor(1.3 * sigma + 0.5));
    }
    const double pixel = 1.0 / 12.0, usual = median_width2(n, s->peak, scratch) + pixel;
    s->n = 0;
    for (size_t k = 0; k < n; k++)
        if (s->peak[k].sigma2 + pixel > NARROW * NARROW * usual && s->peak[k].sigma2 + pixel < BROAD * BROAD * usual)
            s->peak[s->n++] = s->peak[k];
}

static spx_status all_spectra(work *w, spx_err *e)
{
    const size_t ny = w->arc->ny, nspec = w->t.nspec;
    double *buffer = spx_alloc2((size_t)w->o->nthreads, 4 * ny + MOST_PEAKS, sizeof *buffer, e);
    spx_status st = buffer != NULL && (w->s = spx_alloc(nspec, sizeof *w->s, e)) != NULL ? SPX_OK : SPX_EIO;
    for (size_t i = 0; i < nspec && st == SPX_OK; i++)
        if ((w->s[i].peak = spx_alloc(MOST_PEAKS, sizeof *w->s[i].peak, e)) == NULL ||
            (w->s[i].line = spx_alloc(MOST_PEAKS, sizeof *w->s[i].line, e)) == NULL)
            st = SPX_EIO;
    if (st == SPX_OK) {
#pragma omp parallel for schedule(dynamic) num_threads(w->o->nthreads)
        for (size_t i = 0; i < nspec; i++)
            if (!w->t.dead[i])
                find_lines(w, i, &w->s[i], buffer + (size_t)omp_get_thread_num() * (4 * ny + MOST_PEAKS));
    }
    spx_free(buffer);
    return st;
}

/* ---- identification ---- */

/* Lines of these qualities that can be on the CCD. */
static void select_lines(work *w, size_t nline, const spx_arc_line *line, int quality)
{
    const spx_cold_options *o = w->o;
    const double reach = o->centre_range + 0.5 * (double)w->arc->ny * o->dispersion * (1.05 + o->dispersion_range);
    w->nwave = 0;
    for (size_t k = 0; k < nline; k++)
        if (line[k].quality <= quality && fabs(line[k].wavelength - o->centre) <= reach &&
            (w->nwave == 0 || line[k].wavelength > w->wave[w->nwave - 1])) {
            w->quality[w->nwave] = line[k].quality;
            w->wave[w->nwave++] = line[k].wavelength;
        }
}

/* Living fibre nearest the middle that has most of the lines that the others have. */
static size_t middle_fibre(const work *w, double *scratch)
{
    const size_t n = w->t.nspec;
    size_t alive = 0, best = n;
    for (size_t i = 0; i < n; i++)
        if (!w->t.dead[i])
            scratch[alive++] = (double)w->s[i].n;
    const double usual = spx_median(scratch, alive);
    for (size_t i = 0; i < n; i++)
        if (!w->t.dead[i] && (double)w->s[i].n >= 0.8 * usual &&
            (best == n || labs((long)(2 * i) - (long)n + 1) < labs((long)(2 * best) - (long)n + 1)))
            best = i;
    return best;
}

/* Identifies the middle fibre: with bright lines, or, where these do not do it, with fainter ones, too. */
static spx_status identify_middle(work *w, size_t nline, const spx_arc_line *line, spx_err *e)
{
    spx_cold_report *r = w->report;
    spx_status st = SPX_EINPUT;
    spx_err first = {0};
    double *scratch = spx_alloc(w->t.nspec, sizeof *scratch, e);
    if (scratch == NULL)
        return SPX_EIO;
    r->middle = middle_fibre(w, scratch);
    spx_free(scratch);
    spectrum *s = &w->s[r->middle];
    r->npeak = s->n;
    r->nlost = s->spoilt;
    size_t before = 0;
    for (int quality = SPX_ARC_BRIGHT; quality <= SPX_ARC_VISIBLE && st == SPX_EINPUT; quality++) {
        spx_err this = {0};
        select_lines(w, nline, line, quality);
        if (quality > SPX_ARC_BRIGHT && w->nwave == before)
            break;
        before = w->nwave;
        st =
            spx_cold_identify(s->n, s->peak, w->nwave, w->wave, w->arc->ny, w->o, &s->wave, &r->best, &r->rival, &this);
        if (st != SPX_OK && first.code == SPX_OK)
            first = this;
    }
    if (st == SPX_OK)
        return SPX_OK;
    if (s->spoilt > s->n)
        return spx_fail_remedy(e, SPX_EINPUT, "take a shorter exposure",
                               "%zu of the %zu lines of the arc in the middle are saturated or masked", s->spoilt,
                               s->spoilt + s->n);
    return spx_err_pass(e, &first);
}

/* Takes solutions from fibre to fibre, outwards from the middle; way 1 or -1. */
static void follow_fibres(work *w, size_t from, int way)
{
    const spx_cold_wave *last = &w->s[from].wave;
    size_t usual = w->s[from].nline;
    for (long i = (long)from + way; i >= 0 && i < (long)w->t.nspec; i += way) {
        spectrum *s = &w->s[i];
        s->wave = *last;
        if (w->t.dead[i])
            continue;
        s->nline = spx_cold_follow(s->n, s->peak, w->nwave, w->wave, w->arc->ny, REACH, WAVE_DEGREE, &s->wave, s->line);
        s->solved = s->nline >= FEWEST && 2 * s->nline > usual;
        if (s->solved) {
            last = &s->wave;
            usual = s->nline;
        }
    }
}

/* ---- series ---- */

/* A line may be used for places: no other that is as bright is so near that both are one peak. */
static int is_alone(const work *w, size_t l, double dispersion)
{
    const double near = 4.0 * w->sigmay * fabs(dispersion);
    for (size_t k = l; k-- > 0 && w->wave[l] - w->wave[k] < near;)
        if (w->quality[k] <= w->quality[l])
            return 0;
    for (size_t k = l + 1; k < w->nwave && w->wave[k] - w->wave[l] < near; k++)
        if (w->quality[k] <= w->quality[l])
            return 0;
    return 1;
}

/* Wavelengths at rows of the CCD's ends and beyond by a cubic at most, because higher terms say nothing there. Gives
 * the series' range. */
static spx_status wave_range(work *w, spx_err *e)
{
    const size_t n = w->t.nspec, ny = w->arc->ny;
    const double half = 0.5 * (double)(ny - 1);
    double *u = spx_alloc2(3, MOST_PEAKS, sizeof *u, e);
    if (u == NULL)
        return SPX_EIO;
    double *v = u + MOST_PEAKS, *weight = v + MOST_PEAKS;
    w->wmin = HUGE_VAL;
    w->wmax = 0.0;
    for (size_t i = 0; i < n; i++) {
        const spectrum *s = &w->s[i];
        double c[SPX_COLD_TERMS];
        size_t m = 0;
        if (!s->solved)
            continue;
        for (size_t k = 0; k < s->n; k++)
            if (s->line[k] >= 0) {
                u[m] = (s->peak[k].at - half) / half;
                v[m] = w->wave[s->line[k]];
                weight[m++] = 1.0;
            }
        if (!spx_cold_fit(m, u, v, weight, m >= 10 ? 4 : 3, 0, 0.0, c))
            continue;
        for (int end = -1; end <= 1; end += 2) {
            const double lambda = spx_legendre_sum(m >= 10 ? 4 : 3, c, end * (1.0 + MARGIN / half));
            w->wmin = fmin(w->wmin, lambda);
            w->wmax = fmax(w->wmax, lambda);
        }
    }
    w->wmin = floor(fmax(w->wmin, 1.0));
    w->wmax = ceil(w->wmax);
    spx_free(u);
    return SPX_OK;
}

/* Points of one fibre: wavelength as argument of the series, row, weight; those of lines, and beyond the outermost
 * lines some of a cubic through all, which hardly weigh. Returns their number, at most s->n + ANCHORS. */
static size_t points_of(const work *w, const spectrum *s, double *u, double *y, double *weight)
{
    size_t m = 0, lines;
    double c[SPX_COLD_TERMS];
    const double dispersion = (w->wmax - w->wmin) / (double)w->arc->ny;
    for (int alone = 1; alone >= 0 && m < 2 * FEWEST; alone--) { /* blends only where there is little else */
        m = 0;
        for (size_t k = 0; k < s->n; k++)
            if (s->line[k] >= 0 && (!alone || is_alone(w, (size_t)s->line[k], dispersion))) {
                const double error = w->sigmay * s->peak[k].error / s->peak[k].height;
                u[m] = spx_psf_u(w->wmin, w->wmax, w->wave[s->line[k]]);
                y[m] = s->peak[k].at;
                weight[m++] = 1.0 / (0.02 * 0.02 + error * error);
            }
    }
    lines = m;
    const size_t nterm = lines >= 10 ? 4 : 3;
    if (!spx_cold_fit(lines, u, y, weight, nterm, 0, 0.0, c))
        return lines;
    double low = u[0], high = u[0];
    for (size_t k = 1; k < lines; k++) {
        low = fmin(low, u[k]);
        high = fmax(high, u[k]);
    }
    for (int k = 1; k <= ANCHORS / 2; k++)
        for (int end = -1; end <= 1; end += 2) {
            const double from = end < 0 ? low : high, at = from + (end - from) * 2.0 * k / ANCHORS;
            if (fabs(end - from) < 0.1)
                continue;
            u[m] = at;
            y[m] = spx_legendre_sum(nterm, c, at);
            weight[m++] = 1.0 / (ANCHOR * ANCHOR);
        }
    return m;
}

/* Smooths the terms from `first` on over the fibres of a bundle, or of all where it is small: a cubic of the fibre, for
 * those that are solved; the others get all their terms so. c[nspec][nterm]. */
static spx_status smooth_terms(const work *w, size_t nterm, size_t first, double *c, spx_err *e)
{
    const size_t n = w->t.nspec;
    double *u = spx_alloc2(3, n, sizeof *u, e);
    if (u == NULL)
        return SPX_EIO;
    double *v = u + n, *weight = v + n;
    for (size_t a = 0, b; a < n; a = b) {
        size_t lo = a, hi, solved = 0;
        for (b = a; b < n && w->t.bundle[b] == w->t.bundle[a]; b++)
            solved += w->s[b].solved != 0;
        hi = b;
        if (solved < SMOOTH) { /* with its neighbours */
            while (solved < SMOOTH && (lo > 0 || hi < n)) {
                solved += lo > 0 && w->s[lo - 1].solved;
                solved += hi < n && w->s[hi].solved;
                lo -= lo > 0;
                hi += hi < n;
            }
        }
        const size_t degree = solved >= SMOOTH ? 3 : solved >= 4 ? 1 : 0;
        for (size_t k = 0; k < nterm; k++) {
            double p[SPX_COLD_TERMS];
            for (size_t i = lo; i < hi; i++) {
                u[i - lo] = hi - lo > 1 ? 2.0 * (double)(i - lo) / (double)(hi - lo - 1) - 1.0 : 0.0;
                v[i - lo] = c[i * nterm + k];
                weight[i - lo] = w->s[i].solved;
            }
            if (!spx_cold_fit(hi - lo, u, v, weight, degree + 1, 3, 5.0, p))
                continue;
            for (size_t i = a; i < b; i++)
                if (!w->s[i].solved || (k >= first && solved >= SMOOTH))
                    c[i * nterm + k] = spx_legendre_sum(degree + 1, p, u[i - lo]);
        }
    }
    spx_free(u);
    return SPX_OK;
}

/* Series of y(lambda), c[nspec][nterm], of fibres; medians for the report. */
static spx_status fit_rows(work *w, size_t nterm, double *c, spx_err *e)
{
    const size_t n = w->t.nspec, most = MOST_PEAKS + ANCHORS;
    double *u = spx_alloc2(3, most, sizeof *u, e), *y = u + most, *weight = y + most;
    double *count = spx_alloc(n, sizeof *count, e);
    spx_status st = u != NULL && count != NULL ? SPX_OK : SPX_EIO;
    size_t solved = 0;
    double sum = 0.0, number = 0.0;
    for (size_t i = 0; i < n && st == SPX_OK; i++) {
        spectrum *s = &w->s[i];
        if (!s->solved)
            continue;
        const size_t m = points_of(w, s, u, y, weight);
        if (!spx_cold_fit(m, u, y, weight, nterm, 3, 5.0, c + i * nterm)) {
            s->solved = 0;
            continue;
        }
        count[solved++] = (double)s->nline;
    }
    if (st == SPX_OK) {
        w->report->nline = spx_median(count, solved);
        st = smooth_terms(w, nterm, 3, c, e);
    }
    for (size_t i = 0; i < n && st == SPX_OK; i++) {
        if (!w->s[i].solved) {
            w->report->nfew += !w->t.dead[i];
            continue;
        }
        const size_t m = points_of(w, &w->s[i], u, y, weight);
        for (size_t k = 0; k < m; k++)
            if (weight[k] > 1.0 / (ANCHOR * ANCHOR)) {
                const double d = y[k] - spx_legendre_sum(nterm, c + i * nterm, u[k]);
                sum += d * d;
                number += 1.0;
            }
    }
    w->report->rms = number > 0.0 ? sqrt(sum / number) : 0.0;
    spx_free(u);
    spx_free(count);
    return st;
}

/* Terms of y(lambda): two lines for each, up to WAVE_DEGREE. */
static size_t wave_terms(const work *w, spx_err *e, spx_status *st)
{
    const size_t n = w->t.nspec;
    double *count = spx_alloc(n, sizeof *count, e);
    size_t solved = 0;
    if (count == NULL) {
        *st = SPX_EIO;
        return 0;
    }
    for (size_t i = 0; i < n; i++)
        if (w->s[i].solved)
            count[solved++] = (double)w->s[i].nline;
    const int degree =
        (int)fmin(fmin(WAVE_DEGREE, w->o->trace_degree), fmax(2.0, floor(0.5 * spx_median(count, solved) - 1.0)));
    spx_free(count);
    return (size_t)degree + 1;
}

/* Median width of lines, all fibres together. */
static spx_status line_width(work *w, spx_err *e)
{
    double *width = spx_alloc(w->t.nspec, sizeof *width, e), *scratch = spx_alloc(MOST_PEAKS, sizeof *scratch, e);
    size_t n = 0;
    spx_status st = width != NULL && scratch != NULL ? SPX_OK : SPX_EIO;
    for (size_t i = 0; i < w->t.nspec && st == SPX_OK; i++)
        if (w->s[i].n > 0)
            width[n++] = median_width2(w->s[i].n, w->s[i].peak, scratch);
    if (st == SPX_OK)
        w->report->sigmay = w->sigmay = sqrt(fmax(spx_median(width, n), 0.04));
    spx_free(width);
    spx_free(scratch);
    return st;
}

/* Series of x(lambda) = x(y(lambda)) of one fibre. */
static void fit_columns(const work *w, size_t fibre, const spx_psf_series *y, size_t nterm, double *c)
{
    enum { POINTS = 60 };
    double u[POINTS], x[POINTS], weight[POINTS], series[SPX_COLD_TERMS];
    for (size_t k = 0; k < POINTS; k++) {
        u[k] = -cos(M_PI * ((double)k + 0.5) / POINTS);
        const double lambda = w->wmin + 0.5 * (u[k] + 1.0) * (w->wmax - w->wmin);
        x[k] = spx_cold_column(&w->t, fibre, spx_psf_series_value(y, fibre, lambda));
        weight[k] = 1.0;
    }
    if (spx_cold_fit(POINTS, u, x, weight, nterm, 0, 0.0, series))
        memcpy(c, series, nterm * sizeof *c);
}

/* Bundles are those that were given, or gaps of the flat that leave enough fibres between them to be bundles. */
static int are_bundles(const work *w)
{
    size_t count = 0;
    for (size_t i = 0; i < w->t.nspec && w->o->nbundle == 0; i++) {
        count = i > 0 && w->t.bundle[i] == w->t.bundle[i - 1] ? count + 1 : 1;
        if (count < LEAST_BUNDLE && (i + 1 == w->t.nspec || w->t.bundle[i + 1] != w->t.bundle[i]))
            return 0;
    }
    return 1;
}

static spx_status make_psf(work *w, spx_psf *psf, spx_err *e)
{
    const size_t n = w->t.nspec, ncoef = (size_t)w->o->trace_degree + 1;
    spx_status st = SPX_OK;
    const size_t nterm = wave_terms(w, e, &st), xterm = ncoef < SPX_COLD_TERMS ? ncoef : SPX_COLD_TERMS;
    double *c = spx_alloc2(n, SPX_COLD_TERMS, sizeof *c, e);
    psf->nspec = n;
    psf->x = psf->y = (spx_psf_series){.ncoef = ncoef, .wmin = w->wmin, .wmax = w->wmax};
    psf->x.coef = spx_alloc2(n, ncoef, sizeof *psf->x.coef, e);
    psf->y.coef = spx_alloc2(n, ncoef, sizeof *psf->y.coef, e);
    psf->npar = 3;
    psf->ndeg = 1;
    psf->wmin = w->wmin;
    psf->wmax = w->wmax;
    psf->param = spx_alloc(psf->npar, sizeof *psf->param, e);
    psf->coeff = spx_alloc2(psf->npar, n, sizeof *psf->coeff, e);
    psf->status = spx_alloc(n, sizeof *psf->status, e);
    psf->bundle = spx_alloc(n, sizeof *psf->bundle, e);
    if (c == NULL || psf->x.coef == NULL || psf->y.coef == NULL || psf->param == NULL || psf->coeff == NULL ||
        psf->status == NULL || psf->bundle == NULL)
        st = SPX_EIO;
    if (st == SPX_OK)
        st = fit_rows(w, nterm, c, e);
    if (st == SPX_OK) {
        w->report->degree = (int)nterm - 1;
        strcpy(psf->param[0], "GHSIGX");
        strcpy(psf->param[1], "GHSIGY");
        strcpy(psf->param[2], "GH-0-0");
        for (size_t i = 0; i < n; i++) {
            memcpy(psf->y.coef + i * ncoef, c + i * nterm, nterm * sizeof *c);
            fit_columns(w, i, &psf->y, xterm, psf->x.coef + i * ncoef);
            psf->coeff[i] = w->t.sigma;
            psf->coeff[n + i] = w->sigmay;
            psf->coeff[2 * n + i] = 1.0;
            psf->bundle[i] = w->t.bundle[i];
            psf->status[i] = (uint16_t)(w->t.dead[i] ? SPX_PSF_DEAD : w->s[i].solved ? 0 : SPX_PSF_FEWLINES);
        }
        if (!are_bundles(w)) {
            spx_free(psf->bundle);
            psf->bundle = NULL;
        }
        psf->hsizex = w->o->hsizex;
        psf->hsizey = w->o->hsizey;
        psf->psferr = 0.01;
        psf->npix_x = w->arc->nx;
        psf->npix_y = w->arc->ny;
        memcpy(psf->camera, w->arc->camera, sizeof psf->camera);
        st = spx_psf_index(psf, e);
    }
    spx_free(c);
    return st;
}

static spx_status wavelengths(work *w, size_t nline, const spx_arc_line *line, spx_err *e)
{
    spx_status st = all_spectra(w, e);
    if (st == SPX_OK && ((w->wave = spx_alloc(nline, sizeof *w->wave, e)) == NULL ||
                         (w->quality = spx_alloc(nline, sizeof *w->quality, e)) == NULL))
        st = SPX_EIO;
    if (st == SPX_OK)
        st = identify_middle(w, nline, line, e);
    if (st == SPX_OK)
        st = line_width(w, e);
    if (st == SPX_OK) {
        spectrum *s = &w->s[w->report->middle];
        select_lines(w, nline, line, SPX_ARC_VISIBLE);
        s->nline = spx_cold_follow(s->n, s->peak, w->nwave, w->wave, w->arc->ny, 0.0, WAVE_DEGREE, &s->wave, s->line);
        s->solved = s->nline > 0;
        follow_fibres(w, w->report->middle, 1);
        follow_fibres(w, w->report->middle, -1);
        st = wave_range(w, e);
    }
    return st;
}

spx_status spx_cold_start(const spx_image *flat, size_t narc, const spx_image *arc, size_t nline,
                          const spx_arc_line *line, const spx_cold_options *o, spx_psf *psf, spx_cold_report *report,
                          spx_err *e)
{
    work w = {.narc = narc, .arc = arc, .o = o, .report = report};
    const size_t lost = spx_mem_failures();
    *report = (spx_cold_report){0};
    spx_status st = check_options(o, e);
    if (st == SPX_OK)
        st = check_images(flat, narc, arc, e);
    if (st == SPX_OK)
        st = spx_cold_find_traces(flat, o, &w.t, e);
    if (st == SPX_OK) {
        report->nspec = w.t.nspec;
        report->nbundle = w.t.nbundle;
        report->turned = w.t.turned;
        report->pitch = w.t.pitch;
        report->sigmax = w.t.sigma;
        for (size_t i = 0; i < w.t.nspec; i++)
            report->ndead += w.t.dead[i] != 0;
        st = wavelengths(&w, nline, line, e);
    }
    if (st == SPX_OK)
        st = make_psf(&w, psf, e);
    if (st != SPX_EIO && spx_mem_failures() > lost) /* fits of series that have no solution without memory for it */
        st = spx_mem_fail(e);
    for (size_t i = 0; i < w.t.nspec && w.s != NULL; i++) {
        spx_free(w.s[i].peak);
        spx_free(w.s[i].line);
    }
    spx_free(w.s);
    spx_free(w.wave);
    spx_free(w.quality);
    spx_cold_traces_free(&w.t);
    return st;
}
