/* The iteration that finds the sky (sky/sky.h): decisions, small and banded algebra, for all engines. */
#include <math.h>
#include <omp.h>
#include <string.h>

#include "base/mem.h"
#include "calib/band.h"
#include "calib/bordered.h"
#include "calib/resolution.h"
#include "calib/series.h"
#include "num/stat.h"
#include "sky/engine.h"

/* Speed of light, km/s. */
#define LIGHT 299792.458

/* SAMPLE: bins that tell scales to begin with. UNKNOWN: passes after which a bin that was left out of all fibres has no
 * sky. */
enum { WINDOW = 151, EVERY = 8, FEW_BINS = 50, SAMPLE = 400, TOGETHER = 8, UNKNOWN = 3 };
/* Weight of all fibres in a bin without light, over the median: the brightest lines of lamps have 1e-7; and information
 * on s in a bin that was left out of all fibres as its neighbours were, over that of all: a seventh in the usual
 * resolution matrices. Where neighbours are in, these tell s of a single bin: 0.28. Bins at the ends of those that were
 * left out have more, up to BESIDE. */
static const double DARK = 1e-8, LEFT_OUT = 0.2, BESIDE = 0.4;

spx_sky_options spx_sky_defaults(void)
{
    return (spx_sky_options){.terms = {1, 2, 1},
                             .gradient_knots = 60,
                             .degree = 4,
                             .reject = 4.5,
                             .shift_error = 0.01,
                             .tolerance = 0.01,
                             .most_passes = 30,
                             .nthreads = 1};
}

double spx_sky_bin_in_sigma(const spx_sky_input *in)
{
    enum { FIBRES = 5, BINS = 16 };
    double ratio[FIBRES * BINS];
    const size_t nw = in->nwave, nd = in->ndiag;
    size_t n = 0, fibres = 0;
    for (size_t i = 0; i < in->nspec && fibres < FIBRES; i++) {
        if (in->role[i] != SPX_SKY_FIBRE)
            continue;
        fibres++;
        for (size_t k = 0; k < BINS; k++) {
            const size_t j = (2 * k + 1) * nw / (2 * BINS);
            if (j < nd || j + nd >= nw || !(in->ivar[i * nw + j] > 0))
                continue;
            const double v = spx_resolution_variance_of_row(nw, nd, in->resolution + i * nd * nw, j);
            if (isfinite(v)) /* of bins much wider than a line it may be negative */
                ratio[n++] = v > 0 ? 1 / sqrt(v) : HUGE_VAL;
        }
    }
    return n > 0 ? spx_median(ratio, n) : 0;
}

double spx_sky_knots(const spx_sky_input *in)
{
    const double KNOTS = 25, SIGMAS = 30;
    const double step = (in->wavelength[in->nwave - 1] - in->wavelength[0]) / (double)(in->nwave - 1),
                 wide = spx_sky_bin_in_sigma(in);
    return wide > 0 ? fmax(KNOTS, SIGMAS * step / wide) : KNOTS;
}

spx_sky_fit spx_sky_fit_of(const spx_sky_input *in, const spx_sky_options *o)
{
    return (spx_sky_fit){.nwave = in->nwave,
                         .first = in->wavelength[0],
                         .step = (in->wavelength[in->nwave - 1] - in->wavelength[0]) / (double)(in->nwave - 1),
                         .terms = o->terms,
                         .knots = o->knots > 0 ? o->knots : spx_sky_knots(in),
                         .rounds = 3,
                         .nthreads = o->nthreads};
}

/* Basis of the spectra of a mode: rows of b[n][nwave]. */
typedef struct {
    size_t n;
    double *b;
} basis;

/* Everything that a call has. */
typedef struct {
    const spx_sky_input *in;
    const spx_sky_options *o;
    spx_sky_engine *g;
    spx_sky_work w;
    spx_sky *out;
    basis basis[SPX_SKY_MODES];
    size_t nborder, npair;
    double *a, *y;                       /* normal equations: [npair][ndiag][nwave], [nmode + 1][nwave] */
    double *factor, *e, *f, *corner, *z; /* of the bordered system; e, f [nborder][nwave] */
    double *coefficient;                 /* [nborder] of the modes */
    double prior;                        /* weight of their prior, which is 0 */
    double *info, *right, *scale, *dark; /* dark: scratch [nspec] */
    double *total;                       /* right of quantities with those of before; NULL: there are none */
    spx_sky_sums *sums;
    uint8_t *unlit;   /* [nwave] 1: no fibre in use has light in this bin */
    uint8_t *unknown; /* [nwave] passes in which no fibre in use was in, up to UNKNOWN */
    double *all;      /* [nwave] diagonal of the normal matrix with nothing left out; not known yet where `fresh` */
    int fresh;
    uint8_t *informs;    /* [nspec] 1: fibres that the prior is found of */
    spx_sky_prior found; /* of the last quantities */
} job;

/* ---- checks and memory ---- */

spx_status spx_sky_check(const spx_sky_input *in, const spx_sky_options *o, spx_err *e)
{
    size_t nsky = 0, nlight = 0;
    if (in->ndiag == 0 || in->resolution == NULL)
        return spx_fail_at(e, SPX_EINPUT, NULL, NULL, "extract the frame with specx-extract, which makes it",
                           "no resolution matrix");
    if (in->ndiag > SPX_BAND_MOST)
        return spx_fail(e, SPX_EINPUT, "resolution matrix of %zu diagonals: not more than %d", in->ndiag,
                        SPX_BAND_MOST);
    if (in->nwave < 64)
        return spx_fail(e, SPX_EINPUT, "%zu bins: sky subtraction needs 64 or more", in->nwave);
    const double step = (in->wavelength[in->nwave - 1] - in->wavelength[0]) / (double)(in->nwave - 1);
    for (size_t k = 0; k < in->nwave; k++)
        if (!(fabs(in->wavelength[k] - in->wavelength[0] - (double)k * step) < 1e-3 * step))
            return spx_fail_at(e, SPX_EINPUT, NULL, NULL, "extract the frame with bins of equal width",
                               "wavelengths are not uniform at bin %zu", k);
    if (spx_sky_count(&o->terms) > SPX_SKY_MOST)
        return spx_fail(e, SPX_EUSAGE, "%zu terms of scale, shift and width: not more than %d ({terms})",
                        spx_sky_count(&o->terms), SPX_SKY_MOST);
    for (size_t i = 0; i < in->nspec; i++) {
        int light = 0;
        if (in->role[i] != SPX_SKY_FIBRE)
            continue;
        nsky++;
        for (size_t k = 0; k < in->nwave && !light; k++)
            light = in->ivar[i * in->nwave + k] > 0;
        nlight += (size_t)light;
    }
    if (nsky == 0)
        return spx_fail_at(e, SPX_EINPUT, NULL, NULL,
                           "name the fibres that see nothing but sky ({sky_fibers}), or hold fewer out",
                           "no sky fibre");
    if (nlight == 0)
        return spx_fail_at(e, SPX_EINPUT, NULL, NULL, "see the frame's mask: were they extracted?",
                           "no bin of the %zu sky fibres is good", nsky);
    return SPX_OK;
}

/* Coordinates 0 ... 1; the middle where there is none. */
static void scale_coordinate(const spx_sky_input *in, const double *from, size_t nmode, double *x)
{
    double low = INFINITY, high = -INFINITY;
    for (size_t i = 0; i < in->nspec; i++)
        if (isfinite(from[i])) {
            low = from[i] < low ? from[i] : low;
            high = from[i] > high ? from[i] : high;
        }
    for (size_t i = 0; i < in->nspec; i++)
        x[i * nmode] = isfinite(from[i]) && high > low ? (from[i] - low) / (high - low) : 0.5;
}

static spx_status make_bases(job *j, spx_err *e)
{
    const spx_sky_input *in = j->in;
    const size_t n = in->nwave;
    for (size_t q = 0; q < in->ngradient; q++) {
        const spx_bspline s = spx_bspline_of(in->wavelength[0], in->wavelength[n - 1], j->o->gradient_knots);
        j->basis[q].n = s.n;
        if ((j->basis[q].b = spx_alloc2(s.n, n, sizeof(double), e)) == NULL)
            return SPX_EIO;
        for (size_t k = 0; k < n; k++) {
            double b[4];
            const size_t first = spx_bspline_at(&s, in->wavelength[k], b);
            for (size_t t = 0; t < 4; t++)
                j->basis[q].b[(first + t) * n + k] = b[t];
        }
        scale_coordinate(in, in->coordinate[q], j->w.nmode, j->w.x + q);
        (void)memcpy(j->out->mode_name[q], in->coordinate_name[q], strlen(in->coordinate_name[q]) + 1);
    }
    if (in->side != NULL) {
        basis *b = &j->basis[in->ngradient];
        b->n = 2;
        if ((b->b = spx_alloc2(2, n, sizeof(double), e)) == NULL)
            return SPX_EIO;
        for (size_t k = 0; k < n; k++)
            b->b[(k < in->split ? 0 : n) + k] = 1;
        (void)memcpy(j->out->mode_name[in->ngradient], "amplifier", sizeof "amplifier");
    }
    for (size_t q = 0; q < j->w.nmode; q++)
        j->nborder += j->basis[q].n;
    return SPX_OK;
}

static spx_status make_output(job *j, spx_err *e)
{
    const size_t ns = j->in->nspec, n = j->in->nwave, nd = j->in->ndiag, nq = j->w.nq, nm = j->w.nmode;
    spx_sky *s = j->out;
    *s = (spx_sky){.nspec = ns, .nwave = n, .ndiag = nd, .nq = nq, .nmode = nm};
    s->nt = j->o->terms.nt;
    s->nd = j->o->terms.nd;
    s->nk = j->o->terms.nk;
    s->wavelength = spx_alloc(n, sizeof(double), e);
    s->s = spx_alloc(n, sizeof(double), e);
    s->covariance = spx_alloc2(nd, n, sizeof(double), e);
    s->mode = spx_alloc2(nm, n, sizeof(double), e);
    s->coordinate = spx_alloc2(ns, nm, sizeof(double), e);
    const int models = !j->o->quantities;
    s->model = models ? spx_alloc_unset(ns, n, sizeof(double), e) : NULL;
    s->variance = models ? spx_alloc_unset(ns, n, sizeof(double), e) : NULL;
    s->p = spx_alloc2(ns, nq, sizeof(double), e);
    s->cov = spx_alloc2(ns, nq * nq, sizeof(double), e);
    s->chi2 = spx_alloc(ns, sizeof(double), e);
    s->chi2_loo = spx_alloc(ns, sizeof(double), e);
    s->role = spx_alloc(ns, 1, e);
    s->nrejected = spx_alloc(ns, sizeof(uint32_t), e);
    s->line_class = spx_alloc(n, 1, e);
    s->bad = spx_alloc(n, 1, e);
    return s->wavelength != NULL && s->s != NULL && s->covariance != NULL && s->mode != NULL && s->coordinate != NULL &&
                   (!models || (s->model != NULL && s->variance != NULL)) && s->p != NULL && s->cov != NULL &&
                   s->chi2 != NULL && s->chi2_loo != NULL && s->role != NULL && s->nrejected != NULL &&
                   s->line_class != NULL && s->bad != NULL
               ? SPX_OK
               : SPX_EIO;
}

static spx_status make_job(job *j, spx_err *e)
{
    const size_t ns = j->in->nspec, n = j->in->nwave, nd = j->in->ndiag, nq = spx_sky_count(&j->o->terms);
    spx_sky_work *w = &j->w;
    w->in = j->in;
    w->o = j->o;
    w->nq = nq;
    w->nmode = j->in->ngradient + (j->in->side != NULL);
    j->npair = spx_sky_pair(w->nmode + 1, 0);
    spx_status st = make_output(j, e);
    if (st != SPX_OK)
        return st;
    w->active = spx_alloc(ns, 1, e);
    w->use = spx_alloc(ns, 1, e);
    w->kind = spx_alloc(ns, 1, e);
    w->x = spx_alloc2(ns, w->nmode, sizeof(double), e);
    w->q = j->in->velocity != NULL ? spx_alloc(ns, sizeof(double), e) : NULL;
    w->noise = spx_alloc(n, sizeof(double), e);
    w->continuum = j->o->scale == SPX_SKY_SCALE_LINES ? spx_alloc(n, sizeof(double), e) : NULL;
    w->bad = j->out->bad;
    w->s = j->out->s;
    w->mode = j->out->mode;
    w->p = j->out->p;
    w->cov = j->out->cov;
    if (w->active == NULL || w->use == NULL || w->kind == NULL || w->x == NULL || w->noise == NULL ||
        (j->in->velocity != NULL && w->q == NULL) || (j->o->scale == SPX_SKY_SCALE_LINES && w->continuum == NULL))
        return SPX_EIO;
    if ((st = make_bases(j, e)) != SPX_OK)
        return st;
    const size_t nb = j->nborder;
    j->a = spx_alloc2(j->npair * nd, n, sizeof(double), e);
    j->y = spx_alloc2(w->nmode + 1, n, sizeof(double), e);
    j->factor = spx_alloc2(nd, n, sizeof(double), e);
    j->e = spx_alloc2(nb, n, sizeof(double), e);
    j->f = spx_alloc2(nb, n, sizeof(double), e);
    j->corner = spx_alloc2(nb, nb, sizeof(double), e);
    j->z = spx_alloc2(nb, 2, sizeof(double), e);
    j->coefficient = spx_alloc(nb, sizeof(double), e);
    j->info = spx_alloc2(ns, nq * nq, sizeof(double), e);
    j->right = spx_alloc2(ns, nq, sizeof(double), e);
    j->total = j->in->moved != NULL ? spx_alloc2(ns, nq, sizeof(double), e) : NULL;
    j->scale = spx_alloc(ns, sizeof(double), e);
    j->dark = spx_alloc(ns > n ? ns : n, sizeof(double), e);
    j->sums = spx_alloc(ns, sizeof *j->sums, e);
    j->informs = spx_alloc(ns, sizeof *j->informs, e);
    j->unlit = spx_alloc(n, sizeof *j->unlit, e);
    j->unknown = spx_alloc(n, sizeof *j->unknown, e);
    j->all = spx_alloc(n, sizeof *j->all, e);
    return j->a != NULL && j->y != NULL && j->factor != NULL && j->e != NULL && j->f != NULL && j->corner != NULL &&
                   j->z != NULL && j->coefficient != NULL && j->info != NULL && j->right != NULL &&
                   (j->in->moved == NULL || j->total != NULL) && j->scale != NULL && j->dark != NULL &&
                   j->sums != NULL && j->informs != NULL && j->unlit != NULL && j->unknown != NULL && j->all != NULL
               ? SPX_OK
               : SPX_EIO;
}

static void free_job(job *j)
{
    spx_free(j->w.active);
    spx_free(j->w.use);
    spx_free(j->w.kind);
    spx_free(j->w.x);
    spx_free(j->w.q);
    spx_free(j->w.noise);
    spx_free(j->w.continuum);
    for (size_t q = 0; q < SPX_SKY_MODES; q++)
        spx_free(j->basis[q].b);
    spx_free(j->a);
    spx_free(j->y);
    spx_free(j->factor);
    spx_free(j->e);
    spx_free(j->f);
    spx_free(j->corner);
    spx_free(j->z);
    spx_free(j->coefficient);
    spx_free(j->info);
    spx_free(j->right);
    spx_free(j->total);
    spx_free(j->scale);
    spx_free(j->dark);
    spx_free(j->sums);
    spx_free(j->informs);
    spx_free(j->unlit);
    spx_free(j->unknown);
    spx_free(j->all);
    spx_sky_prior_free(&j->found);
}

/* ---- the beginning ---- */

/* Bins where no fibre in use has light, or has been in, and ndiag bins around them: the sky is not known there. */
static spx_status find_bad_bins(job *j, spx_err *e)
{
    const size_t n = j->in->nwave, reach = j->in->ndiag;
    double *sum = j->all; /* found again from the next normal matrix */
    size_t lit = 0;
    memset(sum, 0, n * sizeof *sum);
    for (size_t i = 0; i < j->in->nspec; i++)
        for (size_t k = 0; k < n && j->w.use[i]; k++) {
            const double w = j->in->ivar[i * n + k];
            sum[k] += w > 0 && w < INFINITY ? w : 0;
        }
    for (size_t k = 0; k < n; k++)
        if (sum[k] > 0)
            j->dark[lit++] = sum[k];
    const double least = DARK * spx_median(j->dark, lit);
    memset(j->w.bad, 0, n);
    for (size_t k = 0; k < n; k++) {
        j->unlit[k] = !(sum[k] > least) || j->unknown[k] >= UNKNOWN;
        for (size_t l = k < reach ? 0 : k - reach; j->unlit[k] && l <= k + reach && l < n; l++)
            j->w.bad[l] = 1;
    }
    j->fresh = 1;
    return j->g->weights(j->g, &j->w, e);
}

/* Bins that the beginning looks at: TOGETHER neighbours, then a gap, for the frame lies in memory by fibre. Distance of
 * the first ones of neighbours. */
static size_t sample_step(size_t n)
{
    return TOGETHER * (n / SAMPLE > 1 ? n / SAMPLE : 1);
}

/* End of the neighbours that begin with bin `first`. */
static size_t sample_end(size_t n, size_t first)
{
    return first + TOGETHER < n ? first + TOGETHER : n;
}

/* Threads of the beginning. */
static size_t threads_of(const job *j)
{
    return j->o->nthreads > 0 ? (size_t)j->o->nthreads : 1;
}

/* Median of the sky fibres in bins of the sample; 0 where none has light, and in others. scratch[threads][size], size
 * at least TOGETHER nspec */
static void median_sky(const job *j, size_t size, double *scratch, double *sky)
{
    const size_t n = j->in->nwave, ns = j->in->nspec;
    memset(sky, 0, n * sizeof *sky);
#pragma omp parallel for num_threads((int)threads_of(j))
    for (size_t first = 0; first < n; first += sample_step(n)) {
        double *v = scratch + (size_t)omp_get_thread_num() * size;
        size_t m[TOGETHER] = {0};
        const size_t last = sample_end(n, first);
        for (size_t i = 0; i < ns; i++)
            for (size_t k = first; k < last && j->w.use[i]; k++)
                if (j->in->ivar[i * n + k] > 0)
                    v[(k - first) * ns + m[k - first]++] = j->in->flux[i * n + k];
        for (size_t k = first; k < last; k++)
            sky[k] = spx_median(v + (k - first) * ns, m[k - first]);
    }
}

/* Scale of a sky fibre against the median sky, and its median residual in units of the error; scale 1 where there is no
 * light to tell it. */
static double first_scale(const job *j, size_t i, const double *sky, double *v, double *median)
{
    const size_t n = j->in->nwave;
    const double *d = j->in->flux + i * n, *w = j->in->ivar + i * n;
    double dm = 0, mm = 0, t = 1;
    size_t m = 0;
    for (size_t first = 0; first < n; first += sample_step(n))
        for (size_t k = first; k < sample_end(n, first); k++)
            if (w[k] > 0) {
                dm += w[k] * d[k] * sky[k];
                mm += w[k] * sky[k] * sky[k];
            }
    if (j->o->terms.nt > 0 && mm > 1e4 && dm > 0.02 * mm && dm < 50 * mm)
        t = dm / mm;
    for (size_t first = 0; first < n; first += sample_step(n))
        for (size_t k = first; k < sample_end(n, first); k++)
            if (w[k] > 0)
                v[m++] = fabs(d[k] - t * sky[k]) * sqrt(w[k]);
    *median = spx_median(v, m) / 0.6745;
    return t;
}

/* Scales to begin with, and fibres that are far from the median sky, which cannot tell what is in them when there are
 * two: with them in, the sky of a few fibres would be so wrong that all contradict it. */
static spx_status begin(job *j, spx_err *e)
{
    const size_t ns = j->in->nspec, n = j->in->nwave;
    size_t nsky = 0, nin = 0;
    const size_t size = TOGETHER * ns > n ? TOGETHER * ns : n;
    double *v = spx_alloc2(threads_of(j), size, sizeof *v, e), *residual = spx_alloc(ns, sizeof *residual, e);
    if (v == NULL || residual == NULL) {
        spx_free(v);
        spx_free(residual);
        return SPX_EIO;
    }
    for (size_t i = 0; i < ns; i++) {
        j->w.use[i] = j->w.active[i] = j->in->role[i] == SPX_SKY_FIBRE;
        j->w.kind[i] = (uint8_t)(j->w.use[i] ? SPX_SKY_ALONE : SPX_SKY_LEAVE);
        nsky += j->w.use[i];
        for (size_t q = 0; q < j->w.nq; q++)
            j->w.p[i * j->w.nq + q] = spx_sky_expected(&j->o->terms, q);
    }
    j->out->nsky = nsky;
    double *sky = j->y; /* not used yet */
    median_sky(j, size, v, sky);
#pragma omp parallel for num_threads((int)threads_of(j))
    for (size_t i = 0; i < ns; i++)
        if (j->w.use[i]) {
            const double t = first_scale(j, i, sky, v + (size_t)omp_get_thread_num() * size, &residual[i]);
            if (j->o->terms.nt > 0)
                j->w.p[i * j->w.nq] = t;
        }
    nsky = 0;
    for (size_t i = 0; i < ns; i++)
        if (j->w.use[i])
            j->dark[nsky++] = residual[i];
    const double usual = spx_median(j->dark, nsky);
    for (size_t i = 0; i < ns && nsky > 2; i++)
        if (j->w.use[i] && residual[i] > 3 * (usual > 1 ? usual : 1))
            j->w.use[i] = 0;
    for (size_t i = 0; i < ns; i++)
        nin += j->w.use[i];
    for (size_t i = 0; i < ns && nin == 0; i++)
        j->w.use[i] = j->w.active[i];
    spx_free(v);
    spx_free(residual);
    j->out->noise = 1;
    return find_bad_bins(j, e);
}

/* Differences of barycentric velocities from their mean over sky fibres, in units of c. */
static void set_velocities(job *j)
{
    double sum = 0;
    size_t n = 0;
    for (size_t i = 0; i < j->in->nspec; i++)
        if (j->in->role[i] == SPX_SKY_FIBRE && isfinite(j->in->velocity[i])) {
            sum += j->in->velocity[i];
            n++;
        }
    j->out->mean_velocity = n > 0 ? sum / (double)n : 0;
    for (size_t i = 0; i < j->in->nspec; i++)
        j->w.q[i] = isfinite(j->in->velocity[i]) ? (j->out->mean_velocity - j->in->velocity[i]) / LIGHT : 0;
}

/* Offsets of amplifiers are not scaled by a fibre's throughput. */
static void set_sides(job *j)
{
    const size_t nm = j->w.nmode;
    for (size_t i = 0; i < j->in->nspec && j->in->side != NULL; i++) {
        const double t = j->o->terms.nt > 0 ? j->w.p[i * j->w.nq] : 1;
        j->w.x[i * nm + nm - 1] = j->in->side[i] / (t > 0.05 ? t : 1);
    }
}

/* ---- the common sky ---- */

/* y = A x, A symmetric by diagonals. */
static void multiply_band(size_t n, size_t nd, const double *a, const double *x, double *y)
{
    for (size_t k = 0; k < n; k++)
        y[k] = a[k] * x[k];
    for (size_t d = 1; d < nd; d++)
        for (size_t k = 0; k + d < n; k++) {
            y[k] += a[d * n + k] * x[k + d];
            y[k + d] += a[d * n + k] * x[k];
        }
}

static double dot(size_t n, const double *x, const double *y)
{
    double sum = 0;
    for (size_t k = 0; k < n; k++)
        sum += x[k] * y[k];
    return sum;
}

/* Border and corner of the modes from their normal matrices; f is scratch. */
static void make_border(job *j)
{
    const size_t n = j->in->nwave, nd = j->in->ndiag, nb = j->nborder;
    for (size_t q = 0, at = 0; q < j->w.nmode; at += j->basis[q++].n) {
        for (size_t c = 0; c < j->basis[q].n; c++)
            multiply_band(n, nd, j->a + spx_sky_pair(q + 1, 0) * nd * n, j->basis[q].b + c * n, j->e + (at + c) * n);
        for (size_t r = 0, to = 0; r <= q; to += j->basis[r++].n)
            for (size_t c = 0; c < j->basis[q].n; c++) {
                multiply_band(n, nd, j->a + spx_sky_pair(q + 1, r + 1) * nd * n, j->basis[q].b + c * n, j->f);
                for (size_t b = 0; b < j->basis[r].n; b++)
                    j->corner[(at + c) * nb + to + b] = dot(n, j->f, j->basis[r].b + b * n);
            }
    }
    for (size_t c = 0; c < nb; c++)
        j->corner[c * nb + c] += j->prior;
}

/* Variance of c: R (sum R^T w t^2 R)^-1 R^T is 1/sum w t^2 for fibres of one resolution, whose noise is white, and sums
 * over rows of the normal matrix are that. */
static void find_variance(job *j)
{
    const size_t n = j->in->nwave;
    for (size_t k = 0; k < n; k++)
        j->dark[k] = 1;
    multiply_band(n, j->in->ndiag, j->a, j->dark, j->w.noise);
    for (size_t k = 0; k < n; k++)
        j->w.noise[k] = j->w.noise[k] > 0 ? 1 / j->w.noise[k] : 0;
}

/* Factorises the normal matrix, and the Schur complement of the modes: f = N^-1 E. */
static void factorise(job *j)
{
    const size_t n = j->in->nwave, nd = j->in->ndiag, nb = j->nborder;
    double most = 0;
    for (size_t k = 0; k < n; k++)
        most = j->a[k] > most ? j->a[k] : most;
    if (nb > 0)
        make_border(j);
    /* s stays as it was where no fibre has light: rows of R of bins beside tell it by their tails alone, and what their
     * derivatives, which reach there, add would grow from pass to pass */
    for (size_t k = 0; k < n; k++)
        j->a[k] += (j->unknown[k] >= UNKNOWN ? 1e6 : j->unlit[k] ? 1 : 1e-10) * most; /* unknown: it has data */
    (void)spx_band_factor_host(n, (int)nd - 1, j->a, 1e-12, j->factor);
    memcpy(j->f, j->e, nb * n * sizeof *j->f);
    for (size_t c = 0; c < nb; c++)
        spx_band_solve_host(n, (int)nd - 1, j->factor, j->f + c * n);
    for (size_t c = 0; c < nb; c++)
        for (size_t d = 0; d <= c; d++)
            j->corner[c * nb + d] -= dot(n, j->e + c * n, j->f + d * n);
    if (nb > 0)
        (void)spx_small_factor(nb, j->corner); /* positive definite by the prior */
}

/* Correction of s and of the modes by the residuals' right-hand side. */
static void correct(job *j)
{
    const size_t n = j->in->nwave, nd = j->in->ndiag, nb = j->nborder;
    for (size_t q = 0, at = 0; q < j->w.nmode; at += j->basis[q++].n)
        for (size_t c = 0; c < j->basis[q].n; c++)
            j->z[at + c] = dot(n, j->basis[q].b + c * n, j->y + (q + 1) * n) - j->prior * j->coefficient[at + c] -
                           dot(n, j->f + (at + c) * n, j->y);
    if (nb > 0)
        spx_small_solve(nb, j->corner, j->z);
    spx_band_solve_host(n, (int)nd - 1, j->factor, j->y);
    for (size_t c = 0; c < nb; c++) {
        j->coefficient[c] += j->z[c];
        for (size_t k = 0; k < n; k++)
            j->y[k] -= j->f[c * n + k] * j->z[c];
    }
    for (size_t k = 0; k < n; k++)
        j->w.s[k] += j->y[k];
    memset(j->w.mode, 0, j->w.nmode * n * sizeof *j->w.mode);
    for (size_t q = 0, at = 0; q < j->w.nmode; at += j->basis[q++].n)
        for (size_t c = 0; c < j->basis[q].n; c++)
            for (size_t k = 0; k < n; k++)
                j->w.mode[q * n + k] += j->coefficient[at + c] * j->basis[q].b[c * n + k];
}

/* Covariance of s and the modes inside the band: covariance[npair][ndiag][nwave] (engine.h, finish). */
static spx_status make_covariance(job *j, double *covariance, spx_err *e)
{
    const size_t n = j->in->nwave, nd = j->in->ndiag, nb = j->nborder;
    spx_band_inverse_host(n, (int)nd - 1, j->factor, covariance);
    if (nb == 0)
        return SPX_OK;
    double *cg = spx_alloc2(nb, nb, sizeof *cg, e), *p = spx_alloc2(nb, n, sizeof *p, e);
    if (cg == NULL || p == NULL) {
        spx_free(cg);
        spx_free(p);
        return SPX_EIO;
    }
    for (size_t c = 0; c < nb; c++) {
        cg[c * nb + c] = 1;
        spx_small_solve(nb, j->corner, cg + c * nb);
    }
    /* p = cov(modes, s) = - C_g F^T */
    for (size_t c = 0; c < nb; c++)
        for (size_t l = 0; l < nb; l++)
            for (size_t k = 0; k < n; k++)
                p[c * n + k] -= cg[c * nb + l] * j->f[l * n + k];
    for (size_t d = 0; d < nd; d++)
        for (size_t c = 0; c < nb; c++)
            for (size_t k = 0; k + d < n; k++)
                covariance[d * n + k] -= j->f[c * n + k] * p[c * n + k + d];
    for (size_t q = 0, at = 0; q < j->w.nmode; at += j->basis[q++].n) {
        double *with_s = covariance + spx_sky_pair(q + 1, 0) * nd * n;
        for (size_t d = 0; d < nd; d++)
            for (size_t c = 0; c < j->basis[q].n; c++) {
                const double *b = j->basis[q].b + c * n, *pc = p + (at + c) * n;
                for (size_t k = 0; k + d < n; k++)
                    with_s[d * n + k] += pc[k] * b[k + d] + pc[k + d] * b[k];
            }
        for (size_t r = 0, to = 0; r <= q; to += j->basis[r++].n) {
            double *of_modes = covariance + spx_sky_pair(q + 1, r + 1) * nd * n;
            for (size_t b = 0; b < j->basis[r].n; b++) {
                /* row of C_g: sum_c C_g(c, b) basis_c, then times basis_b */
                double *row = j->e; /* no longer needed */
                memset(row, 0, n * sizeof *row);
                for (size_t c = 0; c < j->basis[q].n; c++)
                    for (size_t k = 0; k < n; k++)
                        row[k] += cg[(at + c) * nb + to + b] * j->basis[q].b[c * n + k];
                const double *other = j->basis[r].b + b * n;
                for (size_t d = 0; d < nd; d++)
                    for (size_t k = 0; k + d < n; k++)
                        of_modes[d * n + k] += row[k] * other[k + d] + (r < q ? row[k + d] * other[k] : 0);
            }
        }
    }
    spx_free(cg);
    spx_free(p);
    return SPX_OK;
}

/* Running median over WINDOW bins, between every EVERYth: the sky without its lines. v: scratch [WINDOW]. */
static void find_continuum(size_t n, const double *x, const uint8_t *bad, double *v, double *continuum)
{
    double before = 0;
    for (size_t k = 0, last = 0; k < n; last = k, k += k + EVERY < n ? EVERY : n - 1 - k > 0 ? n - 1 - k : 1) {
        size_t m = 0;
        for (size_t l = k < WINDOW / 2 ? 0 : k - WINDOW / 2; l <= k + WINDOW / 2 && l < n; l++)
            if (!bad[l])
                v[m++] = x[l];
        const double now = m > 0 ? spx_median(v, m) : before;
        for (size_t l = last; l <= k; l++)
            continuum[l] = k == last ? now : before + (now - before) * (double)(l - last) / (double)(k - last);
        before = now;
    }
}

/* ---- quantities ---- */

/* Right-hand side of what fibres have been moved by and what is left, whose scatter is that of the prior: of what is
 * left alone the prior would be the narrower the more of it was found, and the rest would never be. Light of scale t is
 * moved by t delta; physical: info is of delta. */
static const double *right_of_total(job *j, int physical)
{
    const size_t nq = j->w.nq;
    for (size_t i = 0; i < j->in->nspec && j->in->moved != NULL; i++) {
        const double scale = physical || j->o->terms.nt == 0 ? 1 : j->w.p[i * nq];
        for (size_t q = 0; q < nq; q++) {
            j->total[i * nq + q] = j->right[i * nq + q];
            for (size_t r = j->o->terms.nt; r < nq; r++)
                j->total[i * nq + q] += j->info[(i * nq + q) * nq + r] * scale * j->in->moved[i * nq + r];
        }
    }
    return j->in->moved != NULL ? j->total : j->right;
}

/* Prior of the fibres that are in use or have a star, and its posterior; rough: with the prior of the last pass, if
 * there is one, and without errors: to find these takes longer than everything else here. Fibres that are not worked on
 * keep theirs, unless offsets of amplifiers need their scales. */
static spx_status find_posterior(job *j, int rough, spx_err *e)
{
    const size_t ns = j->in->nspec;
    for (size_t i = 0; i < ns; i++)
        j->informs[i] = j->w.use[i] || (j->w.kind[i] == SPX_SKY_STAR && j->in->role[i] != SPX_SKY_FIBRE);
    const double *right = right_of_total(j, !rough);
    const uint8_t *active = j->in->side == NULL ? j->w.active : NULL;
    spx_status st = SPX_OK;
    if (!rough || j->found.mean == NULL) {
        spx_sky_prior_free(&j->found);
        st = spx_sky_prior_find(&j->o->terms, spx_sky_fit_of(j->in, j->o).step, j->o->degree, j->o->together, ns,
                                j->in->place, j->info, right, j->informs, j->o->nthreads, &j->found, e);
    }
    if (st == SPX_OK)
        spx_sky_posterior(&j->found, j->info, right, active, j->w.p, rough ? NULL : j->w.cov);
    for (size_t i = 0; i < ns && st == SPX_OK && j->in->moved != NULL; i++)
        for (size_t q = j->o->terms.nt; q < j->w.nq && (active == NULL || active[i]); q++)
            j->w.p[i * j->w.nq + q] -= j->in->moved[i * j->w.nq + q];
    return st;
}

/* Quantities of the fibres that were measured. Covariances are those of errors that s does not share. */
static spx_status find_quantities(job *j, spx_err *e)
{
    const size_t ns = j->in->nspec, nq = j->w.nq;
    if (nq == 0)
        return SPX_OK;
    spx_status st = j->g->measure(j->g, &j->w, j->info, j->right, e);
    if (st == SPX_OK && j->o->terms.nt > 0 && (st = find_posterior(j, 1, e)) == SPX_OK) {
        /* shifts and widths are those of the fibre's light */
        for (size_t i = 0; i < ns; i++)
            j->scale[i] = j->w.p[i * nq] > 0.05 ? j->w.p[i * nq] : 0.05;
        spx_sky_physical(&j->o->terms, ns, j->scale, j->info, j->right);
    }
    if (st == SPX_OK)
        st = find_posterior(j, 0, e);
    if (st == SPX_OK) {
        (void)spx_sky_gauge(&j->o->terms, ns, j->w.use, j->w.p, j->w.cov, j->out->gauge);
        memcpy(j->out->tau, j->found.tau, sizeof j->found.tau);
        memcpy(j->out->degree, j->found.degree, sizeof j->found.degree);
        memcpy(j->out->informed, j->found.used, sizeof j->found.used);
    }
    return st;
}

/* Median chi2 of the sky fibres, at least 1: a variance that is too small rejects nothing by itself. */
static double find_noise(job *j)
{
    size_t n = 0;
    for (size_t i = 0; i < j->in->nspec; i++)
        if (j->w.use[i] && j->sums[i].n >= FEW_BINS)
            j->dark[n++] = j->sums[i].chi2 / j->sums[i].n;
    const double median = spx_median(j->dark, n);
    return median > 1 ? median : 1;
}

/* Leaves bins and fibres out. *changed: the set of fibres is another one. */
static spx_status leave_out(job *j, int *changed, spx_err *e)
{
    const size_t ns = j->in->nspec;
    size_t nin = 0;
    *changed = 0;
    if (!(j->o->reject > 0))
        return SPX_OK;
    j->out->noise = find_noise(j);
    const double noise = j->out->noise;
    const spx_status st = j->g->reject(j->g, &j->w, j->o->reject * sqrt(noise), 25 * noise, j->sums, e);
    for (size_t i = 0; i < ns && st == SPX_OK; i++) {
        const spx_sky_sums *s = &j->sums[i];
        const int good = j->w.active[i] && s->n > 0 && s->nout <= 0.2 * (s->n + s->nout) && s->chi2 <= 3 * noise * s->n;
        j->dark[i] = good;
        nin += (size_t)good;
    }
    for (size_t i = 0; i < ns && st == SPX_OK && nin > 0; i++) { /* all are odd: then none is */
        *changed |= j->w.use[i] != (j->dark[i] > 0);
        j->w.use[i] = j->dark[i] > 0;
    }
    return st;
}

/* ---- the iteration ---- */

static void spread_unknown(job *j, size_t from, size_t to)
{
    if (j->unknown[from] == UNKNOWN && j->a[to] < BESIDE * j->all[to])
        j->unknown[to] = UNKNOWN;
}

/* Bins that are left out of all fibres in use, with their neighbours: s would follow what derivatives of the light
 * beside add to it, and grow. Fibres may come back while scales and shifts are found; those that do not have no sky. By
 * the normal matrix, whose diagonal falls to what tails of rows of R have. Returns 1 where there are new ones. */
static int find_unknown(job *j)
{
    int found = 0;
    for (size_t k = 0; k < j->in->nwave; k++) {
        if (j->fresh)
            j->all[k] = j->a[k];
        const int out = !j->unlit[k] && j->a[k] < LEFT_OUT * j->all[k];
        if (j->unknown[k] < UNKNOWN)
            j->unknown[k] = (uint8_t)(out ? j->unknown[k] + 1 : 0);
        found |= out && j->unknown[k] == UNKNOWN;
    }
    for (size_t k = 1; k < j->in->nwave && found; k++)
        spread_unknown(j, k - 1, k);
    for (size_t k = j->in->nwave - 1; k > 0 && found; k--)
        spread_unknown(j, k, k - 1);
    j->fresh = 0;
    return found;
}

static spx_status one_pass(job *j, double *change, spx_err *e)
{
    const size_t n = j->in->nwave;
    int changed = 0;
    set_sides(j);
    spx_status st = j->g->normal(j->g, &j->w, j->a, j->y, e);
    const int lost = st == SPX_OK && find_unknown(j);
    if (lost && (st = find_bad_bins(j, e)) == SPX_OK && (st = j->g->normal(j->g, &j->w, j->a, j->y, e)) == SPX_OK)
        (void)find_unknown(j);
    if (st == SPX_OK) {
        find_variance(j);
        factorise(j);
        correct(j);
        st = j->g->spectra(j->g, &j->w, e);
    }
    if (st == SPX_OK && j->w.continuum != NULL && (st = j->g->mean(j->g, &j->w, j->y, e)) == SPX_OK)
        find_continuum(n, j->y, j->w.bad, j->dark, j->w.continuum);
    if (st == SPX_OK)
        st = find_quantities(j, e);
    if (st == SPX_OK)
        st = j->g->model(j->g, &j->w, 25 * j->out->noise, j->sums, e);
    *change = 0;
    for (size_t i = 0; i < j->in->nspec && st == SPX_OK; i++)
        *change = j->w.use[i] && j->sums[i].change > *change ? j->sums[i].change : *change;
    if (st == SPX_OK && j->out->passes > 0)
        st = leave_out(j, &changed, e);
    if (st == SPX_OK && changed)
        st = find_bad_bins(j, e);
    if (changed || lost)
        *change = INFINITY;
    j->out->passes++;
    return st;
}

/* A gradient's prior: not more than the sky itself. */
static spx_status set_prior(job *j, spx_err *e)
{
    const size_t n = j->in->nwave;
    double *v = spx_alloc(n, sizeof *v, e);
    if (v == NULL)
        return SPX_EIO;
    size_t m = 0;
    for (size_t first = 0; first < n; first += sample_step(n))
        for (size_t k = first; k < sample_end(n, first); k++)
            v[m++] = fabs(j->y[k]); /* the median sky of begin() */
    const double median = spx_median(v, m);
    j->prior = median > 0 ? 1 / (median * median) : 1;
    spx_free(v);
    return SPX_OK;
}

/* Classes of bins by the mean view of the sky, mean[nwave]; work [2][nwave]. Off lines are bins, too, whose light above
 * the continuum the noise of s explains: without those that it makes brighter than 1 % of the brightest line, it would
 * be less than its variance says in the rest. */
static void classify(const job *j, const double *mean, double *work)
{
    const size_t n = j->in->nwave;
    double *continuum = work, *sorted = work + n, most = 0;
    size_t good = 0;
    find_continuum(n, mean, j->w.bad, j->dark, continuum);
    for (size_t k = 0; k < n; k++)
        if (!j->w.bad[k]) {
            most = fmax(most, mean[k] - continuum[k]);
            sorted[good++] = mean[k];
        }
    /* the value that one bin in a hundred is above */
    double low = -INFINITY;
    for (size_t at = 0; at < good; at++)
        low = fmax(low, sorted[at]);
    double bright = low;
    if (good > 1) {
        double from = INFINITY;
        for (size_t at = 0; at < good; at++)
            from = fmin(from, sorted[at]);
        for (int step = 0; step < 60; step++) {
            const double middle = 0.5 * (from + low);
            size_t above = 0;
            for (size_t at = 0; at < good; at++)
                above += sorted[at] >= middle;
            if (above * 100 > good)
                from = middle;
            else
                low = middle;
        }
        bright = low;
    }
    for (size_t k = 0; k < n; k++) {
        const double line = mean[k] - continuum[k], error = sqrt(j->w.noise[k] * j->out->noise);
        if (j->w.bad[k])
            continue;
        j->out->line_class[k] =
            (uint8_t)((line <= fmin(fmax(0.01 * most, 3 * error), 0.1 * most) ? 1 << SPX_SKY_OFF : 0) |
                      (line > 0.1 * most ? 1 << SPX_SKY_ON : 0) | (mean[k] >= bright ? 1 << SPX_SKY_TOP : 0));
    }
}

/* Sums of chi2 into the product. */
static void report(job *j, const spx_sky_chi2 *chi2)
{
    spx_sky *s = j->out;
    double n[2][SPX_SKY_CLASSES] = {{0}}, sum[2][SPX_SKY_CLASSES] = {{0}}, loo[SPX_SKY_CLASSES] = {0};
    for (size_t i = 0; i < s->nspec; i++) {
        const spx_sky_chi2 *x = &chi2[i];
        const int held = s->role[i] == SPX_SKY_HELD_OUT;
        s->nrejected[i] = (uint32_t)j->sums[i].nout;
        if (s->role[i] == SPX_SKY_TARGET)
            continue;
        if (x->n[SPX_SKY_CLASSES] > 0) {
            s->chi2[i] = x->chi2[SPX_SKY_CLASSES] / x->n[SPX_SKY_CLASSES];
            s->chi2_loo[i] = x->loo[SPX_SKY_CLASSES] / x->n[SPX_SKY_CLASSES];
        }
        for (size_t c = 0; c < SPX_SKY_CLASSES && s->role[i] != SPX_SKY_REJECTED; c++) {
            n[held][c] += x->n[c];
            sum[held][c] += x->chi2[c];
            loo[c] += held ? 0 : x->loo[c];
        }
    }
    for (size_t c = 0; c < SPX_SKY_CLASSES; c++) {
        s->nfitted[c] = (size_t)n[0][c];
        s->nheld_out[c] = (size_t)n[1][c];
        s->fitted[c] = n[0][c] > 0 ? sum[0][c] / n[0][c] : 0;
        s->loo[c] = n[0][c] > 0 ? loo[c] / n[0][c] : 0;
        s->held_out[c] = n[1][c] > 0 ? sum[1][c] / n[1][c] : 0;
    }
}

/* Means of the coordinates over sky fibres, at[nmode + 1], behind that of s. */
static void find_centre(const job *j, double *at)
{
    const size_t nm = j->w.nmode;
    size_t used = 0;
    memset(at, 0, (nm + 1) * sizeof *at);
    at[0] = 1;
    for (size_t i = 0; i < j->in->nspec; i++) {
        used += j->w.use[i];
        for (size_t q = 0; q < nm; q++)
            at[q + 1] += j->w.use[i] ? j->w.x[i * nm + q] : 0;
    }
    for (size_t q = 0; q < nm; q++)
        at[q + 1] /= (double)used;
}

/* Coordinates are counted from the mean of the sky fibres, so that s is the sky in the middle. */
static void centre_modes(job *j)
{
    const size_t n = j->in->nwave, nm = j->w.nmode;
    double at[SPX_SKY_MODES + 1];
    find_centre(j, at);
    for (size_t q = 0; q < nm; q++) {
        for (size_t k = 0; k < n; k++)
            j->out->s[k] += at[q + 1] * j->out->mode[q * n + k];
        for (size_t i = 0; i < j->in->nspec; i++)
            j->out->coordinate[i * nm + q] = j->w.x[i * nm + q] - at[q + 1];
    }
}

/* Covariance of that s; covariance[npair]. */
static void centre_covariance(job *j, const double *covariance)
{
    const size_t size = j->in->ndiag * j->in->nwave;
    double at[SPX_SKY_MODES + 1];
    find_centre(j, at);
    for (size_t q = 0; q <= j->w.nmode; q++)
        for (size_t r = 0; r <= q; r++)
            for (size_t k = 0; k < size; k++)
                j->out->covariance[k] += at[q] * at[r] * covariance[spx_sky_pair(q, r) * size + k];
}

/* From now on all fibres are worked on, those that the sky is not made of as if they had a star. */
static void take_all_fibres(job *j)
{
    for (size_t i = 0; i < j->in->nspec; i++) {
        const int sky = j->in->role[i] == SPX_SKY_FIBRE;
        j->w.active[i] = 1;
        j->w.kind[i] = (uint8_t)(j->w.use[i] ? SPX_SKY_ALONE : SPX_SKY_STAR);
        j->out->role[i] = (uint8_t)(!sky ? j->in->role[i] : j->w.use[i] ? SPX_SKY_FIBRE : SPX_SKY_REJECTED);
    }
}

/* Quantities of all fibres, and chi2 of sky fibres as they are fitted, with the sky that was found. */
static spx_status finish_quantities(job *j, spx_err *e)
{
    spx_status st = find_quantities(j, e);
    for (size_t i = 0; i < j->in->nspec; i++)
        j->w.active[i] = j->in->role[i] == SPX_SKY_FIBRE;
    if (st == SPX_OK)
        st = j->g->model(j->g, &j->w, INFINITY, j->sums, e);
    for (size_t i = 0; i < j->in->nspec && st == SPX_OK; i++) {
        const spx_sky_sums *s = &j->sums[i];
        j->out->nrejected[i] = (uint32_t)s->nout;
        j->out->chi2[i] = j->w.active[i] && s->n > 0 ? s->chi2 / s->n : 0;
    }
    return st;
}

/* The same with models, and variances, of all of them. */
static spx_status finish_models(job *j, spx_err *e)
{
    const size_t ns = j->in->nspec, n = j->in->nwave, nd = j->in->ndiag;
    double *covariance = spx_alloc2(j->npair * nd, n, sizeof *covariance, e);
    double *mean = spx_alloc2(3, n, sizeof *mean, e);
    spx_sky_chi2 *chi2 = spx_alloc(ns, sizeof *chi2, e);
    spx_status st = covariance != NULL && mean != NULL && chi2 != NULL ? SPX_OK : SPX_EIO;
    if (st == SPX_OK)
        st = j->g->mean(j->g, &j->w, mean, e);
    if (st == SPX_OK && j->w.nq > 0 && j->g->begin_measure != NULL)
        st = j->g->begin_measure(j->g, &j->w, e);
    if (st == SPX_OK) {
        classify(j, mean, mean + n);
        st = find_quantities(j, e);
    }
    if (st == SPX_OK) {
        set_sides(j);
        st = j->g->normal(j->g, &j->w, j->a, j->y, e);
    }
    if (st == SPX_OK) {
        factorise(j);
        st = make_covariance(j, covariance, e);
    }
    if (st == SPX_OK)
        st = j->g->finish(j->g, &j->w, covariance, j->out->line_class, j->out->model, j->out->variance, chi2, e);
    if (st == SPX_OK) {
        report(j, chi2);
        centre_covariance(j, covariance);
    }
    spx_free(covariance);
    spx_free(mean);
    spx_free(chi2);
    return st;
}

static spx_status finish(job *j, spx_err *e)
{
    take_all_fibres(j);
    spx_status st = j->g->spectra(j->g, &j->w, e);
    if (st == SPX_OK)
        st = j->o->quantities ? finish_quantities(j, e) : finish_models(j, e);
    if (st == SPX_OK && j->w.nq > 0)
        st = spx_sky_gauge_errors(&j->found, j->info, j->w.use, j->w.cov, e);
    if (st == SPX_OK)
        centre_modes(j);
    for (size_t k = 0; k < j->in->nwave && st == SPX_OK; k++)
        j->out->wavelength[k] = j->in->wavelength[k] / (1 + j->out->mean_velocity / LIGHT);
    return st;
}

spx_status spx_sky_solve(spx_sky_engine *g, const spx_sky_input *in, const spx_sky_options *o, spx_sky *out, spx_err *e)
{
    job j = {.in = in, .o = o, .g = g, .out = out};
    double change = INFINITY;
    memset(out, 0, sizeof *out);
    spx_status st = make_job(&j, e);
    if (st == SPX_OK) {
        if (in->velocity != NULL)
            set_velocities(&j);
        st = begin(&j, e);
    }
    if (st == SPX_OK)
        st = set_prior(&j, e);
    while (st == SPX_OK && out->passes < o->most_passes && (change > o->tolerance || out->passes < 3))
        st = one_pass(&j, &change, e);
    out->change = change;
    out->converged = change <= o->tolerance;
    if (st == SPX_OK)
        st = finish(&j, e);
    free_job(&j);
    return st;
}
