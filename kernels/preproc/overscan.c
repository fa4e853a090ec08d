/* Level and noise of the overscan of an amplifier (preproc/preproc.h). */
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "num/stat.h"
#include "preproc/preproc.h"
#include "preproc/smooth.h"

#define CLIP 5.0 /* sigma */

const char *const spx_overscan_names[SPX_OVERSCANS + 1] = {"auto", "none", "constant", "smooth", "line", NULL};

void spx_overscan_free(spx_overscan *s)
{
    spx_free(s->level);
    memset(s, 0, sizeof *s);
}

/* The sections of one direction, as lines of values: a line is a row of the data section, or a column of it. */
typedef struct {
    const spx_raw_image *im;
    const spx_amplifier *a;
    int columns;
    size_t nline, width; /* width: values of a line, of all sections */
    float *v;            /* [nline][width], NaN where a section does not reach */
    unsigned char *keep; /* [width] */
    double *mean;        /* [nline] */
    size_t *n;           /* [nline] values in it */
    double sigma;
    size_t dof;
} lines;

static long begin(const spx_section *s, int y)
{
    return y ? s->y0 : s->x0;
}

static long end(const spx_section *s, int y)
{
    return y ? s->y1 : s->x1;
}

/* Does a section lie beside the pixels along an axis (y: 1), so that it has values of half of their lines? */
static int beside(const spx_section *data, const spx_section *s, int y)
{
    const long lo = begin(s, y) > begin(data, y) ? begin(s, y) : begin(data, y);
    const long hi = end(s, y) < end(data, y) ? end(s, y) : end(data, y);
    return 2 * (hi - lo) >= end(data, y) - begin(data, y);
}

static size_t across(const spx_section *s, int columns)
{
    return (size_t)(end(s, columns) - begin(s, columns));
}

static float pixel(const spx_raw_image *im, long x, long y)
{
    return im->data[(size_t)y * im->nx + (size_t)x];
}

/* Gathers the values; columns: of sections above and below the pixels. */
static spx_status gather(lines *l, spx_err *e)
{
    const spx_section *data = &l->a->data;
    const int along = !l->columns; /* axis of the lines' index: rows are y */
    size_t at = 0;
    l->nline = (size_t)(end(data, along) - begin(data, along));
    for (size_t k = 0; k < l->a->nbias; k++)
        l->width += beside(data, &l->a->bias[k], along) ? across(&l->a->bias[k], !along) : 0;
    l->v = spx_alloc2(l->nline, l->width, sizeof *l->v, e);
    l->keep = spx_alloc(l->width, 1, e);
    l->mean = spx_alloc(l->nline, sizeof *l->mean, e);
    l->n = spx_alloc(l->nline, sizeof *l->n, e);
    if (l->v == NULL || l->keep == NULL || l->mean == NULL || l->n == NULL)
        return SPX_EIO;
    memset(l->keep, 1, l->width);
    for (size_t k = 0; k < l->a->nbias; k++) {
        const spx_section *s = &l->a->bias[k];
        if (!beside(data, s, along))
            continue;
        for (size_t i = 0; i < l->nline; i++)
            for (size_t w = 0; w < across(s, !along); w++) {
                const long line = begin(data, along) + (long)i, other = begin(s, !along) + (long)w;
                const int inside = line >= begin(s, along) && line < end(s, along);
                l->v[i * l->width + at + w] = !inside      ? NAN
                                              : l->columns ? pixel(l->im, line, other)
                                                           : pixel(l->im, other, line);
            }
        at += across(s, !along);
    }
    return SPX_OK;
}

static void free_lines(lines *l)
{
    spx_free(l->v);
    spx_free(l->keep);
    spx_free(l->mean);
    spx_free(l->n);
}

/* Median of the values of a line that are kept, into scratch[width]; *n: how many there are. */
static double line_median(const lines *l, size_t i, double *scratch, size_t *n)
{
    *n = 0;
    for (size_t w = 0; w < l->width; w++)
        if (l->keep[w] && isfinite(l->v[i * l->width + w]))
            scratch[(*n)++] = l->v[i * l->width + w];
    return spx_median(scratch, *n);
}

/* Means of lines, and the pooled scatter about them, without values CLIP sigma from the median of their line. Digits
 * leave a robust scatter in steps: it is only where the clipping starts. */
static void measure(lines *l, double *scratch)
{
    double start = 0;
    size_t nstart = 0;
    for (size_t i = 0; i < l->nline; i++) {
        size_t n;
        const double m = line_median(l, i, scratch, &n);
        for (size_t w = 0; w < n; w++)
            scratch[w] = fabs(scratch[w] - m);
        if (n > 1) { /* mean of the medians of |v - m|: the digits' steps average out */
            start += 1.4826 * spx_median(scratch, n);
            nstart++;
        }
    }
    l->sigma = nstart > 0 ? fmax(start / (double)nstart, 0.3) : 0;
    for (int pass = 0; pass < 3; pass++) {
        double sum2 = 0;
        l->dof = 0;
        for (size_t i = 0; i < l->nline; i++) {
            size_t all, n = 0;
            double sum = 0, dev = 0;
            const double m = line_median(l, i, scratch, &all);
            for (size_t w = 0; w < l->width; w++) {
                const double v = l->v[i * l->width + w];
                if (l->keep[w] && fabs(v - m) <= CLIP * l->sigma) {
                    sum += v;
                    n++;
                }
            }
            l->n[i] = n;
            l->mean[i] = n > 0 ? sum / (double)n : 0;
            for (size_t w = 0; w < l->width; w++) {
                const double v = l->v[i * l->width + w];
                if (l->keep[w] && fabs(v - m) <= CLIP * l->sigma)
                    dev += (v - l->mean[i]) * (v - l->mean[i]);
            }
            sum2 += n > 1 ? dev : 0;
            l->dof += n > 1 ? n - 1 : 0;
        }
        if (l->dof == 0)
            return;
        l->sigma = sqrt(sum2 / (double)l->dof);
    }
}

/* ---- charge of the pixels in the overscan ---- */

/* Signal of the pixel nearest to column w of the values, above the median of these pixels. */
static void nearest_signal(const lines *l, long w, double *signal, double *scratch)
{
    const spx_section *d = &l->a->data;
    const int along = !l->columns;
    const long x = w < begin(d, !along) ? begin(d, !along) : end(d, !along) - 1;
    for (size_t i = 0; i < l->nline; i++) {
        const long line = begin(d, along) + (long)i;
        const double v = l->columns ? pixel(l->im, line, x) : pixel(l->im, x, line);
        signal[i] = scratch[i] = isfinite(v) ? v : 0;
    }
    const double m = spx_median(scratch, l->nline);
    for (size_t i = 0; i < l->nline; i++)
        signal[i] -= m;
}

/* Does column w of the values have charge of the pixels? Its excess over the means of lines, and the part of the
 * nearest pixel's signal in it. */
static int contaminated(const lines *l, size_t w, const double *signal, double *part)
{
    double sum = 0, sr = 0, ss = 0, n = 0;
    for (size_t i = 0; i < l->nline; i++) {
        const double v = l->v[i * l->width + w];
        if (!isfinite(v) || l->n[i] == 0)
            continue;
        const double r = v - l->mean[i];
        n++;
        sum += fmax(fmin(r, 20 * l->sigma), -20 * l->sigma);
        sr += signal[i] > 0 ? r * signal[i] : 0;
        ss += signal[i] > 0 ? signal[i] * signal[i] : 0;
    }
    const double sigma = 1.2 * l->sigma; /* the lines' means have noise of their own */
    const int follows = ss > 0 && sr / sqrt(ss) > CLIP * sigma;
    *part = follows ? sr / ss : 0;
    return n > 0 && (follows || fabs(sum / n) > fmax(CLIP * sigma / sqrt(n), 0.1 * l->sigma));
}

/* Drops columns at both ends of each section; means and scatter come from the middle half while they are judged. */
static spx_status drop_contaminated(lines *l, spx_overscan *out, double *scratch, spx_err *e)
{
    const spx_section *data = &l->a->data;
    const int along = !l->columns;
    double *signal = spx_alloc(l->nline, sizeof *signal, e);
    double *other = spx_alloc(l->nline > l->width ? l->nline : l->width, sizeof *other, e);
    unsigned char *drop = spx_alloc(l->width, 1, e);
    spx_status st = signal == NULL || other == NULL || drop == NULL ? SPX_EIO : SPX_OK;
    size_t at = 0;
    for (size_t k = 0; k < l->a->nbias && st == SPX_OK; k++) {
        const spx_section *s = &l->a->bias[k];
        if (!beside(data, s, along))
            continue;
        const size_t n = across(s, !along), quarter = n / 4;
        memset(l->keep, 0, l->width);
        memset(l->keep + at + quarter, 1, n - 2 * quarter);
        measure(l, scratch);
        for (int side = 0; side < 2; side++)
            for (size_t i = 0; i < quarter; i++) {
                const size_t w = at + (side ? n - 1 - i : i);
                double part = 0;
                nearest_signal(l, begin(s, !along) + (long)(w - at), signal, other);
                if (!contaminated(l, w, signal, &part))
                    break;
                drop[w] = 1;
                out->ndropped++;
                if (i == 0 && part > out->trail)
                    out->trail = part;
            }
        at += n;
    }
    for (size_t w = 0; w < l->width && st == SPX_OK; w++)
        l->keep[w] = !drop[w];
    spx_free(signal);
    spx_free(other);
    spx_free(drop);
    return st;
}

/* ---- level ---- */

/* Weighted mean of the lines' means, and chi squared a degree of freedom about it. */
static double constant_level(const lines *l, double *chi2)
{
    double sw = 0, swy = 0, c2 = 0, used = 0;
    for (size_t i = 0; i < l->nline; i++) {
        sw += (double)l->n[i];
        swy += (double)l->n[i] * l->mean[i];
    }
    const double level = sw > 0 ? swy / sw : 0;
    for (size_t i = 0; i < l->nline; i++) {
        c2 += (double)l->n[i] * (l->mean[i] - level) * (l->mean[i] - level);
        used += l->n[i] > 0;
    }
    *chi2 = used > 1 && l->sigma > 0 ? c2 / (l->sigma * l->sigma * (used - 1)) : 1;
    return level;
}

/* Straight line through the means of the `window` lines around each, fewer at the ends; lines without values get one,
 * too. *chi2: of the means about it, where each line's own weight in it is allowed for; *var: variance of the level.
 */
static spx_status smooth_level(const lines *l, size_t window, double *level, double *chi2, double *var, spx_err *e)
{
    double c2 = 0, dof = 0, sum_var = 0, *weight = spx_alloc(l->nline, sizeof *weight, e);
    if (weight == NULL)
        return SPX_EIO;
    for (size_t i = 0; i < l->nline; i++)
        weight[i] = (double)l->n[i];
    for (size_t i = 0; i < l->nline; i++) {
        double v;
        level[i] = spx_local_line(l->nline, 1, l->mean, weight, window, i, &v);
        sum_var += v;
        const double own = weight[i] * v;
        if (weight[i] > 0 && own < 1) {
            c2 += weight[i] * (l->mean[i] - level[i]) * (l->mean[i] - level[i]);
            dof += 1 - own;
        }
    }
    *chi2 = dof > 0 && l->sigma > 0 ? c2 / (l->sigma * l->sigma * dof) : 1;
    *var = l->sigma * l->sigma * sum_var / (double)l->nline;
    spx_free(weight);
    return SPX_OK;
}

/* Levels of lines that have none, from the nearest that has. */
static void fill_level(size_t n, double *level, double otherwise)
{
    double last = NAN;
    for (size_t i = 0; i < n; i++) {
        if (isfinite(level[i])) {
            for (size_t k = i; isnan(last) && k-- > 0;)
                level[k] = level[i];
            last = level[i];
        } else if (!isnan(last)) {
            level[i] = last;
        }
    }
    for (size_t i = 0; i < n && isnan(last); i++)
        level[i] = otherwise;
}

/* The simplest model that describes the lines: one more is taken where it describes them better by more than chance,
 * and by more than its own noise. */
static spx_status fit_level(const lines *l, const spx_preproc_options *o, spx_overscan *out, spx_err *e)
{
    double chi2 = 1, smooth_chi2 = 1, smooth_var = 0, count = 0, used = 0;
    const double level = constant_level(l, &chi2);
    for (size_t i = 0; i < l->nline; i++) {
        count += (double)l->n[i];
        used += l->n[i] > 0;
    }
    const double line_var = count > 0 ? l->sigma * l->sigma * used / count : 0, chance = 4 * sqrt(2 / fmax(used, 1));
    if (smooth_level(l, o->window, out->level, &smooth_chi2, &smooth_var, e) != SPX_OK)
        return SPX_EIO;
    out->chi2 = chi2;
    out->model = o->overscan;
    if (o->overscan == SPX_OVERSCAN_AUTO)
        out->model = smooth_chi2 > 2 + chance                           ? SPX_OVERSCAN_LINE
                     : chi2 > smooth_chi2 + chance && chi2 > 1 + chance ? SPX_OVERSCAN_SMOOTH
                                                                        : SPX_OVERSCAN_CONSTANT;
    double excess = 0;
    switch (out->model) {
    case SPX_OVERSCAN_SMOOTH:
        excess = smooth_chi2 - 1;
        out->level_var = smooth_var;
        break;
    case SPX_OVERSCAN_LINE:
        for (size_t i = 0; i < l->nline; i++)
            out->level[i] = l->n[i] > 0 ? l->mean[i] : NAN;
        out->level_var = line_var;
        break;
    default:
        for (size_t i = 0; i < l->nline; i++)
            out->level[i] = level;
        excess = chi2 - 1;
        out->level_var = count > 0 ? l->sigma * l->sigma / count : 0;
        break;
    }
    if (excess > chance)
        out->level_var += excess * line_var;
    fill_level(l->nline, out->level, level);
    double sum = 0;
    for (size_t i = 0; i < l->nline; i++)
        sum += out->level[i];
    out->mean = sum / (double)l->nline;
    return SPX_OK;
}

spx_status spx_overscan_fit(const spx_raw *raw, const spx_amplifier *a, const spx_preproc_options *o, spx_overscan *out,
                            spx_err *e)
{
    lines l = {.im = &raw->image[a->image], .a = a};
    double *scratch = NULL;
    int rows = 0, columns = 0;
    for (size_t k = 0; k < a->nbias; k++) {
        rows |= beside(&a->data, &a->bias[k], 1);
        columns |= beside(&a->data, &a->bias[k], 0);
    }
    const int use = o->overscan != SPX_OVERSCAN_NONE && a->nbias > 0;
    if (use && !rows && !columns)
        return spx_fail_remedy(e, SPX_EINPUT, "give {layout} a file with other sections bias=, or {overscan} none",
                               "amplifier %s: its overscan lies neither beside its pixels nor above or below", a->name);
    out->columns = l.columns = use && !rows;
    out->model = SPX_OVERSCAN_NONE;
    out->n = (size_t)(l.columns ? a->data.x1 - a->data.x0 : a->data.y1 - a->data.y0);
    if ((out->level = spx_alloc(out->n, sizeof *out->level, e)) == NULL)
        return SPX_EIO;
    if (!use)
        return SPX_OK;
    spx_status st = gather(&l, e);
    if (st == SPX_OK && (scratch = spx_alloc(l.width, sizeof *scratch, e)) == NULL)
        st = SPX_EIO;
    if (st == SPX_OK)
        st = drop_contaminated(&l, out, scratch, e);
    if (st == SPX_OK) {
        measure(&l, scratch);
        if (l.dof == 0)
            st = spx_fail(e, SPX_EINPUT, "amplifier %s: its overscan has no two values side by side", a->name);
    }
    if (st == SPX_OK) {
        const double dof = (double)l.dof;
        out->readnoise = l.sigma * (1 + 1 / (4 * dof));
        out->readnoise_err = l.sigma / sqrt(2 * dof);
        st = fit_level(&l, o, out, e);
    }
    spx_free(scratch);
    free_lines(&l);
    return st;
}
