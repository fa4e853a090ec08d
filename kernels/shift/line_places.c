/* Provides the check of wavelengths by lines (shift/line_places.h): cross-correlation of a list with a spectrum.
 *
 * Signal of a row: g = log(1 + max(0, r/sigma - LEAST)), r the flux above its running median, sigma 1.4826 times the
 * median of |r|: a bright line counts more than a faint one, but not by its brightness, so that one hot column does not
 * decide. C(d) = sum_l w_l g(y_l + d) / sum_l w_l, w = log(1 + strength over that of the faintest), g = 0 beyond the
 * spectrum. An offset d is believed where C stands out of all others, with the spectrum as it is and reversed, and is
 * larger than any other, and than where the list has its lines: C(0) is small, or the wing of bright lines that lie d
 * away, which is as high on their other side, C(2d). */
#include "shift/line_places.h"

#include <math.h>
#include <stdlib.h>

#include "base/mem.h"
#include "base/order.h"
#include "num/stat.h"
#include "psf/psf_math.h"

/* Rows of the running median, and fewest of a spectrum; fewest lines. */
enum { MEDIAN = 101, FEWEST_ROWS = 300, FEWEST = 4 };
/* Deviations from which on a row has signal; strength of lines that are used, of the brightest. */
#define LEAST 4.0
#define FAINT 0.005
/* Offsets: steps in a row, and farthest, as a part of the spectrum. A list whose lines are where it says may be NEAR
 * off, one whose lines are elsewhere is OFF at least. */
enum { STEPS = 2 };
#define PART 0.4
#define NEAR 0.5
#define OFF  1.0
/* Standard deviations by which a place stands out of all, or, with MANY lines, of the next one: where lines are close
 * to each other, all places have some, and the deviation is larger. Part of that which the list's own may have, and any
 * other that is more than APART rows away; and which its own may have as the wing of lines FAR rows away, within EVEN
 * of that of their other wing. */
#define SURE  12.0
#define CLEAR 4.5
enum { MANY = 10 };
#define PALE   0.5
#define WING   0.85
#define EVEN   0.2
#define FAR    1.75
#define SECOND 0.7
#define APART  10.0

/* A spectrum by uniform rows. */
typedef struct {
    size_t n, nline;
    double *flux, *signal, *place, *weight, *scratch; /* place: of lines, rows; NAN flux: not used */
} rows;

static void free_rows(rows *s)
{
    spx_free(s->flux);
    spx_free(s->place);
}

/* Row of a wavelength, or bin. */
static double row_of(const spx_psf *psf, double first, double bin, double lambda)
{
    return psf != NULL ? spx_psf_series_value(&psf->y, psf->nspec / 2, lambda) : (lambda - first) / bin;
}

static spx_status make_rows(const spx_psf *psf, size_t n, const double *wavelength, const double *flux,
                            const uint8_t *bad, const spx_shift_lines *lines, rows *s, spx_err *e)
{
    const double first = wavelength[0], last = wavelength[n - 1], bin = (last - first) / (double)(n - 1);
    const double from = row_of(psf, first, bin, first), to = row_of(psf, first, bin, last), way = to > from ? 1 : -1;
    if (!(fabs(to - from) + 1 >= FEWEST_ROWS && fabs(to - from) < 1e6))
        return SPX_OK;
    s->n = (size_t)fabs(to - from) + 1;
    s->flux = spx_alloc2(3, s->n, sizeof *s->flux, e);
    s->place = spx_alloc2(2, lines->n, sizeof *s->place, e);
    if (s->flux == NULL || s->place == NULL)
        return SPX_EIO;
    s->signal = s->flux + s->n;
    s->scratch = s->signal + s->n;
    s->weight = s->place + lines->n;
    size_t k = 0; /* the bins around a row are k and k + 1 */
    for (size_t i = 0; i < s->n; i++) {
        const double y = (double)i;
        double low = (row_of(psf, first, bin, wavelength[k]) - from) * way,
               high = (row_of(psf, first, bin, wavelength[k + 1]) - from) * way;
        while (k + 2 < n && high < y) {
            low = high;
            high = (row_of(psf, first, bin, wavelength[++k + 1]) - from) * way;
        }
        const double part = high > low ? fmin(fmax((y - low) / (high - low), 0), 1) : 0;
        const int gone = bad != NULL && (bad[k] || bad[k + 1]);
        s->flux[i] = gone ? NAN : flux[k] + part * (flux[k + 1] - flux[k]);
    }
    double brightest = 0;
    for (size_t i = 0; i < lines->n; i++)
        if (lines->line[i].wavelength >= first && lines->line[i].wavelength <= last)
            brightest = fmax(brightest, lines->line[i].strength);
    for (size_t i = 0; i < lines->n; i++) {
        const spx_shift_line *l = &lines->line[i];
        if (l->wavelength >= first && l->wavelength <= last && l->strength > FAINT * brightest) {
            s->place[s->nline] = (row_of(psf, first, bin, l->wavelength) - from) * way;
            s->weight[s->nline++] = log(1 + l->strength / (FAINT * brightest));
        }
    }
    return SPX_OK;
}

static void find_signal(rows *s)
{
    double window[MEDIAN];
    size_t m = 0;
    spx_running_median(s->n, s->flux, MEDIAN / 2, window, s->scratch);
    for (size_t i = 0; i < s->n; i++)
        s->signal[i] = s->flux[i] - s->scratch[i];
    for (size_t i = 0; i < s->n; i++)
        if (!isnan(s->signal[i]))
            s->scratch[m++] = fabs(s->signal[i]);
    const double sigma = 1.4826 * spx_median(s->scratch, m);
    for (size_t i = 0; i < s->n; i++) {
        const double r = s->signal[i] / sigma;
        s->signal[i] = sigma > 0 && r > LEAST ? log(1 + r - LEAST) : 0;
    }
}

static double place_of(const rows *s, size_t line, int mirrored)
{
    return mirrored ? (double)(s->n - 1) - s->place[line] : s->place[line];
}

/* Mean signal at the lines, with offsets of -most ... most steps, c[2 most + 1]. Line by line, for its part of a row is
 * the same at all offsets that are whole rows apart. */
static void correlate(const rows *s, int mirrored, size_t most, double *c)
{
    double all = 0;
    for (size_t k = 0; k <= 2 * most; k++)
        c[k] = 0;
    for (size_t i = 0; i < s->nline; i++)
        all += s->weight[i];
    for (size_t i = 0; i < s->nline; i++)
        for (size_t q = 0; q < STEPS && q <= 2 * most; q++) { /* offsets q, q + STEPS, ... of c */
            const double at = place_of(s, i, mirrored) + ((double)q - (double)most) / STEPS, low = floor(at);
            const double part = at - low, w = s->weight[i] / all;
            const long row = (long)low, first = row < 0 ? -row : 0, end = (long)s->n - 1 - row;
            const long offsets = (long)((2 * most - q) / STEPS) + 1, last = end < offsets ? end : offsets;
            for (long j = first; j < last; j++)
                c[q + STEPS * (size_t)j] += w * ((1 - part) * s->signal[row + j] + part * s->signal[row + j + 1]);
        }
}

/* How many lines have a signal there. */
static size_t count_lines(const rows *s, double offset, int mirrored)
{
    size_t found = 0;
    for (size_t i = 0; i < s->nline; i++) {
        const double at = place_of(s, i, mirrored) + offset;
        if (at >= 0 && at < (double)(s->n - 1))
            found += s->signal[(size_t)at] > 0 || (at > floor(at) && s->signal[(size_t)at + 1] > 0);
    }
    return found;
}

/* Mean and standard deviation of values c[n], but for the highest hundredth, which the place itself is part of; they
 * are sorted. */
static void spread(size_t n, double *c, double *mean, double *sd)
{
    const size_t m = n - n / 100;
    qsort(c, n, sizeof *c, spx_by_f64);
    *mean = *sd = 0;
    for (size_t i = 0; i < m; i++)
        *mean += c[i] / (double)m;
    for (size_t i = 0; i < m; i++)
        *sd += (c[i] - *mean) * (c[i] - *mean) / (double)m;
    *sd = sqrt(*sd);
}

static spx_status search(const rows *s, spx_line_places *out, spx_err *e)
{
    const size_t most = (size_t)(PART * STEPS * (double)s->n), one = 2 * most + 1;
    double *c = spx_alloc2(2, one, sizeof *c, e), here = 0, second = 0, mean, sd;
    if (c == NULL)
        return SPX_EIO;
    size_t best = most;
    correlate(s, 0, most, c);
    correlate(s, 1, most, c + one);
    for (size_t i = 0; i < 2 * one; i++) {
        best = c[i] > c[best] ? i : best;
        if (i < one && fabs((double)i - (double)most) <= NEAR * STEPS)
            here = fmax(here, c[i]);
    }
    const double offset = ((double)(best % one) - (double)most) / STEPS, top = c[best];
    const int mirrored = best >= one;
    double other = 0; /* of the other wing, where the list's own is one */
    for (size_t i = 0; i < one; i++)
        if (fabs((double)i - (double)most - 2 * STEPS * offset) <= NEAR * STEPS)
            other = fmax(other, c[i]);
    const size_t found = count_lines(s, offset, mirrored);
    for (size_t i = 0; i < 2 * one; i++)
        if ((i >= one) != mirrored || fabs((double)i - (double)best) > APART * STEPS)
            second = fmax(second, c[i]);
    spread(2 * one, c, &mean, &sd);
    out->agree = sd > 0 ? (top - mean) / sd : 0;
    out->here = sd > 0 ? (here - mean) / sd : 0;
    const double height = top - mean;
    const int sure = out->agree > SURE || (found >= MANY && top - second > CLEAR * sd);
    const int pale = here - mean < PALE * height || (!mirrored && fabs(offset) > FAR && here - mean < WING * height &&
                                                     fabs(here - other) < EVEN * height);
    if (sure && pale && second - mean < SECOND * height && found >= FEWEST && (mirrored || fabs(offset) > OFF)) {
        out->offset = offset;
        out->mirrored = mirrored;
        out->nline = found;
    }
    spx_free(c);
    return SPX_OK;
}

spx_status spx_find_line_places(const spx_psf *psf, size_t n, const double *wavelength, const double *flux,
                                const uint8_t *bad, const spx_shift_lines *lines, spx_line_places *out, spx_err *e)
{
    rows s = {0};
    *out = (spx_line_places){0};
    if (n < 2 || lines->n == 0)
        return SPX_OK;
    spx_status st = make_rows(psf, n, wavelength, flux, bad, lines, &s, e);
    if (st == SPX_OK && s.nline >= FEWEST) {
        find_signal(&s);
        st = search(&s, out, e);
        out->angstrom = out->offset * (wavelength[n - 1] - wavelength[0]) / (double)(s.n - 1);
    }
    free_rows(&s);
    return st;
}
