/* Provides the judgement of an extracted frame as a whole (extract/quality.h). */
#include "extract/quality.h"

#include <math.h>
#include <omp.h>
#include <string.h>

#include "base/mem.h"
#include "num/stat.h"
#include "products/plausible.h"

enum {
    FEWEST = 10,    /* clean bins of a frame that is judged */
    JUDGED = 50,    /* of a spectrum that is */
    SHORTEST = 200, /* wavelengths of one whose ends are */
    INSIDE = 125,   /* bins whose median an end is compared with, at most an eighth of all */
    BLOCK = 16,     /* bins of a gap between lines */
    TOGETHER = 64,  /* bins of the mean spectrum that a thread sums at a time */
    SPOT_PIXELS = 7 /* of equal weight, which a spot covers */
};

/* Errors that sums of squares have to differ by. */
static const double SIGN_ERRORS = 10;
/* Errors that are added to the mean light for an upper limit, and that it is detected by. */
static const double LIMIT = 2.5, DETECTED = 3;
/* Part of the light inside that scattered light reaches. */
static const double TINY = 0.005;
/* Part of the light inside, below which a bin lies on the edge of the light. */
static const double EDGE = 0.5;
/* Median chi2pix of a misfit, at least, and the part of its bins that are hit. */
static const double BAD = 5, HIT = 0.5;
/* Part of the blocks inside that may be as dark as an unlit end. */
static const double DARK_INSIDE = 0.05;

/* Sums of a fibre, or of all. */
typedef struct {
    size_t nbin, nzero, nhit, nseen;
    double positive, negative; /* sums of squared signal-to-noise ratios */
    double chi2, chi2_noise;   /* medians */
} fibre_sums;

static int is_clean(const spx_arm *a, size_t i)
{
    return a->ivar[i] > 0.0 && (a->mask == NULL || a->mask[i] == 0);
}

/* Sums of fibre f; work[2][nwave]. */
static fibre_sums sum_fibre(const spx_frame *frame, size_t f, double psf_error, double *work)
{
    const spx_arm *a = &frame->arm;
    fibre_sums s = {0};
    double *chi2 = work, *noise = work + a->nwave;
    for (size_t k = 0, i = f * a->nwave; k < a->nwave; k++, i++) {
        const int hit = a->mask != NULL && (a->mask[i] & SPX_COSMIC) != 0;
        s.nhit += (size_t)hit;
        s.nseen += hit || a->ivar[i] > 0.0;
        if (!is_clean(a, i))
            continue;
        const double z2 = a->flux[i] * a->flux[i] * a->ivar[i];
        s.nzero += a->flux[i] == 0.0;
        *(a->flux[i] > 0.0 ? &s.positive : &s.negative) += z2;
        if (frame->chi2pix != NULL) {
            chi2[s.nbin] = frame->chi2pix[i];
            noise[s.nbin] = frame->chi2pix[i] * (1.0 + psf_error * psf_error * z2 / SPOT_PIXELS);
        }
        s.nbin++;
    }
    if (frame->chi2pix != NULL) {
        s.chi2 = spx_median(chi2, s.nbin);
        s.chi2_noise = spx_median(noise, s.nbin);
    }
    return s;
}

/* Mean over fibres of the clean bins at k0 ... k1-1, and its error; an error of 0: there are none. */
static void mean_light(const spx_frame *frame, size_t k0, size_t k1, double *mean, double *error)
{
    const spx_arm *a = &frame->arm;
    size_t n[TOGETHER] = {0};
    for (size_t k = k0; k < k1; k++)
        mean[k] = error[k] = 0.0;
    for (size_t f = 0; f < frame->nspec; f++)
        for (size_t k = k0; k < k1; k++) {
            const size_t i = f * a->nwave + k;
            if (!is_clean(a, i))
                continue;
            mean[k] += a->flux[i];
            error[k] += 1.0 / a->ivar[i];
            n[k - k0]++;
        }
    for (size_t k = k0; k < k1; k++)
        if (n[k - k0] > 0) {
            mean[k] /= (double)n[k - k0];
            error[k] = sqrt(error[k]) / (double)n[k - k0];
        }
}

/* The mean spectrum seen from one of its ends: bin i from there is bin_of() it, and sums of those before it. */
typedef struct {
    const double *mean, *error; /* [n]; error 0: not known */
    double *sum, *var, *count;  /* [n+1] of known bins: light, squared errors, number */
    size_t n;
    int backward;
} light;

static size_t bin_of(const light *l, size_t i)
{
    return l->backward ? l->n - 1 - i : i;
}

static void sum_light(const light *l)
{
    l->sum[0] = l->var[0] = l->count[0] = 0.0;
    for (size_t i = 0; i < l->n; i++) {
        const size_t k = bin_of(l, i);
        const int known = l->error[k] > 0.0;
        l->sum[i + 1] = l->sum[i] + (known ? l->mean[k] : 0.0);
        l->var[i + 1] = l->var[i] + (known ? l->error[k] * l->error[k] : 0.0);
        l->count[i + 1] = l->count[i] + known;
    }
}

/* Mean light of bins i0 ... i1-1 from the end, and its error; 0: none of them is known. */
static int block_light(const light *l, size_t i0, size_t i1, double *mean, double *error)
{
    const double n = l->count[i1] - l->count[i0];
    *mean = n > 0.0 ? (l->sum[i1] - l->sum[i0]) / n : 0.0;
    *error = n > 0.0 ? sqrt(fmax(0.0, l->var[i1] - l->var[i0])) / n : 0.0;
    return n > 0.0;
}

/* Median of the known ones of the next INSIDE bins from i0 on; 0: none. */
static double level_inside(const light *l, size_t i0)
{
    double v[INSIDE];
    size_t n = 0;
    const size_t most = l->n / 8 < INSIDE ? l->n / 8 + 1 : INSIDE;
    for (size_t i = i0; i < l->n && n < most; i++)
        if (l->error[bin_of(l, i)] > 0.0)
            v[n++] = l->mean[bin_of(l, i)];
    return spx_median(v, n);
}

/* Part of the blocks from i0 on, over a quarter of the bins, that are below a limit: gaps between lines. */
static double dark_inside(const light *l, size_t i0, double limit)
{
    size_t n = 0, dark = 0;
    for (size_t i = i0; i + BLOCK <= i0 + l->n / 4; i += BLOCK) {
        double mean, error;
        if (!block_light(l, i, i + BLOCK, &mean, &error))
            continue;
        n++;
        dark += mean < limit;
    }
    return n > 0 ? (double)dark / (double)n : 1.0;
}

/* Has the block i0 ... i1-1 light, where the level inside of it is this? */
static int is_lit(const light *l, size_t i0, size_t i1, double level)
{
    double mean, error;
    return block_light(l, i0, i1, &mean, &error) && mean > DETECTED * error && mean > TINY * level;
}

/* Are bins 0 ... end-1 unlit? */
static int is_unlit(const light *l, size_t end)
{
    double mean, error;
    const double limit = spx_rules[SPX_RULE_UNLIT].lo, level = level_inside(l, end);
    if (!block_light(l, 0, end, &mean, &error) || !(fmax(mean, 0.0) + LIMIT * error < limit * level) ||
        is_lit(l, 0, end, level))
        return 0;
    for (size_t block = 1; block <= 64 && block < end; block *= 4)
        if (is_lit(l, end - block, end, level))
            return 0;
    return dark_inside(l, end, limit * level) <= DARK_INSIDE;
}

/* Number of bins from the end that no light reaches. */
static size_t find_unlit(const light *l)
{
    size_t unlit = 0;
    for (size_t i = 1; i < l->n / 2; i++)
        if (is_unlit(l, i))
            unlit = i;
    return unlit;
}

/* Adds bins on the edge of the light, up to `most`. */
static size_t add_edge(const light *l, size_t unlit, size_t most)
{
    const double level = EDGE * level_inside(l, unlit);
    const size_t end = unlit + most < l->n ? unlit + most : l->n;
    while (unlit < end && l->mean[bin_of(l, unlit)] < level)
        unlit++;
    return unlit;
}

/* mean[5 nwave + 3]: mean light, its error, and three sums */
static void mark_unlit(spx_frame *frame, double *mean, spx_frame_quality *q)
{
    spx_arm *a = &frame->arm;
    const size_t n = a->nwave;
    for (int side = 0; side < 2; side++) {
        const light l = {mean, mean + n, mean + 2 * n, mean + 3 * n + 1, mean + 4 * n + 2, n, side};
        sum_light(&l);
        size_t unlit = find_unlit(&l);
        if (unlit == 0)
            continue;
        q->unlit[side] = unlit = add_edge(&l, unlit, a->ndiag / 2 + 1);
        for (size_t f = 0; f < frame->nspec && a->mask != NULL; f++)
            for (size_t i = 0; i < unlit; i++)
                a->mask[f * n + bin_of(&l, i)] |= SPX_LOWFLAT;
    }
}

/* Medians over fibres, and the sums of all. */
static void conclude(size_t nspec, const fibre_sums *s, double *work, spx_frame_quality *q)
{
    double positive = 0.0, negative = 0.0;
    size_t nzero = 0, n = 0, nhit = 0, nseen = 0;
    for (size_t f = 0; f < nspec; f++) {
        nhit += s[f].nhit;
        nseen += s[f].nseen;
        q->nbin += s[f].nbin;
        nzero += s[f].nzero;
        positive += s[f].positive;
        negative += s[f].negative;
        if (s[f].nbin > 0) {
            work[n] = s[f].chi2;
            work[nspec + n++] = s[f].chi2_noise;
        }
    }
    q->chi2 = spx_median(work, n);
    q->chi2_noise = spx_median(work + nspec, n);
    q->hits = nseen > 0 ? (double)nhit / (double)nseen : 0.0;
    q->blank = q->nbin > 0 ? (double)nzero / (double)q->nbin : 0.0;
    /* the square of a normal number, where it is positive, has the mean 1/2 and the variance 5/4 */
    if (negative - positive > SIGN_ERRORS * sqrt(2.5 * (double)q->nbin))
        q->negative = negative / fmax(positive, 0.5);
}

/* Spectra that are far worse than most. */
static void find_misfits(size_t nspec, const fibre_sums *s, spx_frame_quality *q)
{
    const double limit = fmax(BAD, spx_rules[SPX_RULE_MISFIT].hi * q->chi2);
    for (size_t f = 0; f < nspec; f++) {
        const int poor = !(q->chi2 > spx_rules[SPX_RULE_CHI2].hi) && s[f].nbin >= JUDGED && s[f].chi2 > limit;
        const int hit = !spx_rule_broken(SPX_RULE_HITS, q->hits) && s[f].nseen >= JUDGED &&
                        (double)s[f].nhit > HIT * (double)s[f].nseen;
        if ((poor || hit) && q->nmisfit++ < sizeof q->misfit / sizeof *q->misfit)
            q->misfit[q->nmisfit - 1] = f;
    }
}

static unsigned broken_rules(const spx_frame *frame, const spx_frame_quality *q)
{
    unsigned broken = 0;
    if (q->unlit[0] + q->unlit[1] > 0)
        broken |= 1u << SPX_RULE_UNLIT;
    if (spx_rule_broken(SPX_RULE_HITS, q->hits))
        broken |= 1u << SPX_RULE_HITS;
    if (q->nmisfit > 0)
        broken |= 1u << SPX_RULE_MISFIT;
    if (q->nbin < FEWEST)
        return broken;
    if (spx_rule_broken(SPX_RULE_BLANK, q->blank))
        return broken | 1u << SPX_RULE_BLANK;
    if (frame->chi2pix != NULL &&
        (q->chi2 > spx_rules[SPX_RULE_CHI2].hi || q->chi2_noise < spx_rules[SPX_RULE_CHI2].lo))
        broken |= 1u << SPX_RULE_CHI2;
    if (spx_rule_broken(SPX_RULE_SIGN, q->negative))
        broken |= 1u << SPX_RULE_SIGN;
    return broken;
}

spx_status spx_extract_quality(spx_frame *frame, double psf_error, int nthreads, spx_frame_quality *q, spx_err *e)
{
    const size_t nw = frame->arm.nwave, ns = frame->nspec;
    memset(q, 0, sizeof *q);
    fibre_sums *s = spx_alloc(ns, sizeof *s, e);
    double *work = spx_alloc2(2 * (size_t)nthreads, nw > ns ? nw : ns, sizeof *work, e);
    double *mean = spx_alloc2(5, nw + 1, sizeof *mean, e);
    if (s != NULL && work != NULL && mean != NULL) {
#pragma omp parallel num_threads(nthreads)
        {
#pragma omp for nowait
            for (size_t f = 0; f < ns; f++)
                s[f] = sum_fibre(frame, f, psf_error, work + 2 * (size_t)omp_get_thread_num() * nw);
#pragma omp for
            for (size_t k = 0; k < nw; k += TOGETHER)
                mean_light(frame, k, k + TOGETHER < nw ? k + TOGETHER : nw, mean, mean + nw);
        }
        conclude(ns, s, work, q);
        find_misfits(ns, s, q);
        if (nw >= SHORTEST && !spx_rule_broken(SPX_RULE_BLANK, q->blank))
            mark_unlit(frame, mean, q);
        q->broken = broken_rules(frame, q);
    }
    spx_free(s);
    spx_free(work);
    spx_free(mean);
    return s != NULL && work != NULL && mean != NULL ? SPX_OK : SPX_EIO;
}
