/* Provides what decides in the fibre flat field, the same for all backends: splines, the start, the spectrum of the
 * lamp, which fibres are good, convergence, masks and errors (flat/flat_engine.h). */
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "calib/band.h"
#include "flat/flat_engine.h"
#include "flat/flat_math.h"
#include "num/stat.h"

/* Good bins that an interval between knots needs. */
enum { FEWEST = 20 };

/* ---- plan ---- */

spx_status spx_flat_plan_make(const spx_flat_input *in, const spx_flat_options *o, spx_flat_plan *plan, spx_err *e)
{
    const size_t n = in->nwave;
    if (in->nexp == 0 || in->nspec == 0 || n < 2 || in->ndiag == 0)
        return spx_fail(e, SPX_EINPUT, "no spectra with resolution matrices to make a flat of");
    if (in->ndiag > SPX_BAND_MOST)
        return spx_fail(e, SPX_EINPUT, "a resolution matrix of %zu diagonals is wider than the %d that are allowed",
                        in->ndiag, SPX_BAND_MOST);
    if (o->native && in->nexp < 2)
        return spx_fail_remedy(e, SPX_EUSAGE, "give two exposures or more, or leave {native} out",
                               "with one exposure a bin's own throughput cannot be told from a hit");
    plan->spline = spx_bspline_of(in->wavelength[0], in->wavelength[n - 1], o->knots);
    plan->nint = plan->spline.n - 3;
    plan->nblock = (n + SPX_FLAT_BLOCK - 1) / SPX_FLAT_BLOCK;
    if (plan->nint > n / 4)
        return spx_fail(e, SPX_EUSAGE, "knots are %g Angstrom apart: use at least four bins ({knots})", o->knots);
    if ((plan->begin = spx_alloc(plan->nint + 1, sizeof *plan->begin, e)) == NULL ||
        (plan->first = spx_alloc(n, sizeof *plan->first, e)) == NULL ||
        (plan->basis = spx_alloc2(n, 4, sizeof *plan->basis, e)) == NULL)
        return SPX_EIO;
    for (size_t k = 0; k < n; k++) {
        plan->first[k] = (uint32_t)spx_bspline_at(&plan->spline, in->wavelength[k], plan->basis + 4 * k);
        plan->begin[plan->first[k] + 1] = k + 1;
    }
    /* intervals without bins, where wavelengths are not uniform */
    for (size_t t = 1; t <= plan->nint; t++)
        plan->begin[t] = plan->begin[t] > plan->begin[t - 1] ? plan->begin[t] : plan->begin[t - 1];
    return SPX_OK;
}

void spx_flat_plan_free(spx_flat_plan *plan)
{
    spx_free(plan->begin);
    spx_free(plan->first);
    spx_free(plan->basis);
    memset(plan, 0, sizeof *plan);
}

/* ---- working memory ---- */

typedef struct {
    const spx_flat_input *in;
    const spx_flat_options *o;
    const spx_flat_plan *plan;
    const spx_flat_engine *engine;
    int nthreads;
    spx_flat_pass pass;
    spx_flat_end end;
    double *lamp;   /* [nexp][nwave]: m */
    double *fitted; /* [nexp][nwave]: m of the last pass, times the mean */
    double *gain;   /* [nexp]: with one lamp, m of exposure x is gain[x] of a common one */
    double *normal; /* [nexp][ndiag][nwave]: factor */
    double *old;    /* [nexp][nwave]: v when it was made */
    double *mean;   /* [nwave] */
    double *change; /* [nwave] */
    double *level;  /* [nspec][nblock]: of the start */
    double *median; /* [nexp][nwave]: over fibres */
    double *some;   /* [nspec] */
    double *spread; /* [nwave]: sum of the variances of the fibres of the mean */
    uint8_t *use, *ref;
    size_t nuse, nref;
} work;

static spx_status allocate(work *w, spx_err *e)
{
    const size_t nexp = w->in->nexp, ns = w->in->nspec, n = w->in->nwave;
    struct {
        void **at;
        size_t n, per, size;
    } const want[] = {{(void **)&w->pass.y, nexp, n, sizeof(double)},
                      {(void **)&w->pass.v, nexp, n, sizeof(double)},
                      {(void **)&w->pass.level, ns, 1, sizeof(double)},
                      {(void **)&w->pass.t, nexp, 1, sizeof(double)},
                      {(void **)&w->pass.s, nexp, 1, sizeof(double)},
                      {(void **)&w->pass.count, ns, w->plan->nint, sizeof(uint32_t)},
                      {(void **)&w->end.flat, ns, n, sizeof(double)},
                      {(void **)&w->end.variance, ns, n, sizeof(double)},
                      {(void **)&w->end.mean, nexp, n, sizeof(double)},
                      {(void **)&w->end.chi2, nexp, ns, sizeof(double)},
                      {(void **)&w->end.nused, nexp, ns, sizeof(uint32_t)},
                      {(void **)&w->end.nreject, nexp, ns, sizeof(uint32_t)},
                      {(void **)&w->end.nnative, ns, 1, sizeof(uint32_t)},
                      {(void **)&w->lamp, nexp, n, sizeof(double)},
                      {(void **)&w->fitted, nexp, n, sizeof(double)},
                      {(void **)&w->gain, nexp, 1, sizeof(double)},
                      {(void **)&w->normal, nexp, w->in->ndiag * n, sizeof(double)},
                      {(void **)&w->old, nexp, n, sizeof(double)},
                      {(void **)&w->mean, n, 1, sizeof(double)},
                      {(void **)&w->change, n, 1, sizeof(double)},
                      {(void **)&w->level, ns, w->plan->nblock, sizeof(double)},
                      {(void **)&w->median, nexp, n, sizeof(double)},
                      {(void **)&w->some, ns, 1, sizeof(double)},
                      {(void **)&w->spread, n, 1, sizeof(double)},
                      {(void **)&w->use, ns, 1, 1},
                      {(void **)&w->ref, ns, 1, 1}};
    for (size_t i = 0; i < sizeof want / sizeof *want; i++)
        if ((*want[i].at = spx_alloc2(want[i].n, want[i].per, want[i].size, e)) == NULL)
            return SPX_EIO;
    return SPX_OK;
}

static void release(work *w)
{
    void *const all[] = {w->pass.y,      w->pass.v,       w->pass.level, w->pass.t,   w->pass.s,    w->pass.count,
                         w->end.flat,    w->end.variance, w->end.mean,   w->end.chi2, w->end.nused, w->end.nreject,
                         w->end.nnative, w->lamp,         w->fitted,     w->gain,     w->normal,    w->old,
                         w->mean,        w->change,       w->level,      w->median,   w->some,      w->spread,
                         w->use,         w->ref};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        spx_free(all[i]);
}

/* ---- start: ratio of medians ---- */

/* Fibres and values that are looked at for a median. */
enum { FIBRES = 64, VALUES = 64 };

static int usable(const spx_flat_input *in, size_t x, size_t at)
{
    return spx_flat_state(in->flux[x][at], in->ivar[x][at], in->mask[x] != NULL ? in->mask[x][at] : 0) != 0;
}

/* Median over fibres of every bin of an exposure. */
static void find_median(const work *w, size_t x, size_t k)
{
    const spx_flat_input *in = w->in;
    double some[2 * FIBRES];
    size_t have = 0;
    for (size_t i = 0; i < in->nspec; i += in->nspec / FIBRES + 1)
        if (usable(in, x, i * in->nwave + k))
            some[have++] = in->flux[x][i * in->nwave + k];
    w->median[x * in->nwave + k] = spx_median(some, have);
}

/* Levels of a fibre: median of its flux by the median of fibres, in each block of bins. Blocks without have that of the
 * last one before, or of the first behind. Returns the median of all, 0 without light. */
static double find_levels(const work *w, size_t i, double *level)
{
    const spx_flat_input *in = w->in;
    const size_t n = in->nwave, step = in->nexp * SPX_FLAT_BLOCK / VALUES + 1;
    double some[2 * VALUES], last = 0;
    size_t first = w->plan->nblock;
    for (size_t b = 0; b < w->plan->nblock; b++) {
        const size_t low = b * SPX_FLAT_BLOCK, high = n - low < SPX_FLAT_BLOCK ? n : low + SPX_FLAT_BLOCK;
        size_t have = 0, good = 0;
        for (size_t x = 0; x < in->nexp; x++)
            for (size_t k = low; k < high && have < sizeof some / sizeof *some; k++)
                if (w->median[x * n + k] > 0 && usable(in, x, i * n + k) && good++ % step == 0)
                    some[have++] = in->flux[x][i * n + k] / w->median[x * n + k];
        const double found = spx_median(some, have);
        first = found > 0 && first == w->plan->nblock ? b : first;
        last = found > 0 ? found : last;
        level[b] = last;
    }
    for (size_t b = 0; b < first && first < w->plan->nblock; b++)
        level[b] = level[first];
    double sum = 0;
    for (size_t b = 0; b < w->plan->nblock; b++)
        sum += level[b];
    return sum / (double)w->plan->nblock;
}

/* With one lamp: exposures' factors, as medians of their medians. */
static void find_gain(work *w, size_t x)
{
    const size_t n = w->in->nwave;
    double some[2 * VALUES];
    size_t have = 0;
    for (size_t k = 0; k < n && have < sizeof some / sizeof *some; k += n / VALUES + 1)
        if (w->median[k] > 0 && w->median[x * n + k] > 0)
            some[have++] = w->median[x * n + k] / w->median[k];
    w->gain[x] = have > 0 ? spx_median(some, have) : 1;
}

static spx_status start(work *w, spx_err *e)
{
    const size_t n = w->in->nwave, ns = w->in->nspec, nblock = w->plan->nblock;
#pragma omp parallel num_threads(w->nthreads)
    {
#pragma omp for
        for (size_t at = 0; at < w->in->nexp * n; at++)
            find_median(w, at / n, at % n);
#pragma omp for
        for (size_t i = 0; i < ns; i++)
            w->some[i] = find_levels(w, i, w->level + i * nblock);
    }
    for (size_t x = 0; x < w->in->nexp; x++)
        find_gain(w, x);
    w->nuse = 0;
    for (size_t i = 0; i < ns; i++)
        w->nuse += w->use[i] = w->some[i] > 0.02 && w->some[i] < 50;
    if (w->nuse == 0)
        return spx_fail_remedy(e, SPX_EINPUT, "give exposures of a lamp, and see whether their bins are masked",
                               "no fibre has light");
    return SPX_OK;
}

/* ---- spectrum of the lamp ---- */

/* Is the factor too old? Its errors only slow convergence, as long as no weight has grown much since. */
static int is_old(const work *w)
{
    const size_t n = w->in->nexp * w->in->nwave;
    int old = 0;
    for (size_t k = 0; k < n && !old; k++)
        old = fabs(w->pass.v[k] - w->old[k]) > 0.01 * w->old[k];
    return old;
}

static spx_status make_factor(work *w, spx_err *e)
{
    const size_t n = w->in->nwave, ndiag = w->in->ndiag, nexp = w->in->nexp, size = ndiag * n;
    spx_status st = w->engine->normal(w->engine->self, w->use, w->normal, e);
    if (st != SPX_OK)
        return st;
    memcpy(w->old, w->pass.v, nexp * n * sizeof *w->old);
    if (w->o->one_lamp) /* into the place of the first exposure */
        for (size_t k = 0; k < size; k++) {
            double sum = 0;
            for (size_t x = 0; x < nexp; x++)
                sum += w->gain[x] * w->gain[x] * w->normal[x * size + k];
            w->normal[k] = sum;
        }
    const size_t nlamp = w->o->one_lamp ? 1 : nexp;
#pragma omp parallel for schedule(dynamic, 1) num_threads(w->nthreads)
    for (size_t x = 0; x < nlamp; x++) {
        double *a = w->normal + x * size, most = 0;
        for (size_t k = 0; k < n; k++)
            most = fmax(most, a[k]);
        for (size_t k = 0; k < n; k++)
            a[k] += 1e-10 * most;
        (void)spx_band_factor_host(n, (int)ndiag - 1, a, 1e-13, a);
    }
    return SPX_OK;
}

/* m + N^-1 y, with y the gradient at m: exact with a new factor, and a step towards it with an older one. */
static void improve_lamp(work *w)
{
    const size_t n = w->in->nwave, nexp = w->in->nexp, size = w->in->ndiag * n;
    const int m = (int)w->in->ndiag - 1;
    double *y = w->pass.y;
    if (w->o->one_lamp) {
        for (size_t k = 0; k < n; k++) {
            double sum = 0;
            for (size_t x = 0; x < nexp; x++)
                sum += w->gain[x] * y[x * n + k];
            y[k] = sum;
        }
        spx_band_solve_host(n, m, w->normal, y);
        for (size_t x = nexp; x-- > 0;)
            for (size_t k = 0; k < n; k++)
                w->lamp[x * n + k] += w->gain[x] * y[k];
        return;
    }
#pragma omp parallel for schedule(dynamic, 1) num_threads(w->nthreads)
    for (size_t x = 0; x < nexp; x++) {
        spx_band_solve_host(n, m, w->normal + x * size, y + x * n);
        for (size_t k = 0; k < n; k++)
            w->lamp[x * n + k] += y[x * n + k];
    }
}

/* With one lamp: exposures' factors again, by their own fluxes. */
static void improve_gains(work *w)
{
    for (size_t x = 0; x < w->in->nexp; x++) {
        const double factor = w->pass.s[x] > 0 && w->pass.t[x] > 0 ? w->pass.t[x] / w->pass.s[x] : 1;
        w->gain[x] *= factor;
        for (size_t k = 0; k < w->in->nwave; k++)
            w->lamp[x * w->in->nwave + k] *= factor;
    }
}

/* ---- fibres ---- */

static int is_supported(const work *w, size_t i, size_t t)
{
    const size_t bins = w->plan->begin[t + 1] - w->plan->begin[t], half = (bins + 1) / 2;
    return w->pass.count[i * w->plan->nint + t] >= (half < FEWEST ? half : FEWEST) && bins > 0;
}

/* Fibres in use: with light, and not far from the median. Fibres of the mean: of these the ones that have bins wherever
 * half of them have, since a mean over other fibres at other wavelengths would have steps. *changed: use did. */
static spx_status choose_fibres(work *w, int *changed, spx_err *e)
{
    const size_t ns = w->in->nspec, nint = w->plan->nint;
    double *some = w->some;
    size_t have = 0;
    *changed = 0;
    for (size_t i = 0; i < ns; i++)
        if (w->pass.level[i] > 0)
            some[have++] = w->pass.level[i];
    const double median = spx_median(some, have);
    w->nuse = 0;
    for (size_t i = 0; i < ns; i++) {
        const double level = w->pass.level[i];
        size_t supported = 0;
        for (size_t t = 0; t < nint; t++)
            supported += (size_t)is_supported(w, i, t);
        const int use = level >= 0.1 * median && level <= 10 * median && level > 0 && supported > 0;
        *changed |= use != w->use[i];
        w->use[i] = (uint8_t)use;
        w->nuse += (size_t)use;
    }
    if (w->nuse == 0)
        return spx_fail_remedy(e, SPX_EINPUT, "see whether their bins are masked",
                               "no fibre has %d good bins between knots", FEWEST);
    memcpy(w->ref, w->use, ns);
    w->nref = w->nuse;
    for (size_t t = 0; t < nint; t++) {
        size_t n = 0;
        for (size_t i = 0; i < ns; i++)
            n += w->use[i] && is_supported(w, i, t);
        for (size_t i = 0; i < ns && 2 * n >= w->nuse; i++)
            if (w->ref[i] && !is_supported(w, i, t)) {
                w->ref[i] = 0;
                w->nref--;
            }
    }
    if (w->nref == 0) {
        memcpy(w->ref, w->use, ns);
        w->nref = w->nuse;
    }
    return SPX_OK;
}

/* Largest change of F where a fibre of the mean has bins. */
static double largest_change(const work *w)
{
    double most = 0;
    for (size_t t = 0; t < w->plan->nint; t++) {
        int any = 0;
        for (size_t i = 0; i < w->in->nspec && !any; i++)
            any = w->ref[i] && is_supported(w, i, t);
        for (size_t k = w->plan->begin[t]; any && k < w->plan->begin[t + 1]; k++)
            most = fmax(most, w->change[k]);
    }
    return most;
}

/* ---- passes ---- */

static spx_status run_passes(work *w, spx_flat_counts *c, spx_err *e)
{
    const size_t n = w->in->nwave, nexp = w->in->nexp;
    int changed = 1;
    spx_status st = start(w, e);
    if (st == SPX_OK)
        st = w->engine->begin(w->engine->self, w->level, w->median, w->use, &w->pass, e);
    for (c->npass = 0; c->npass < SPX_FLAT_PASSES && !c->converged && st == SPX_OK; c->npass++) {
        if (changed || is_old(w))
            st = make_factor(w, e);
        if (st == SPX_OK) {
            improve_lamp(w);
            /* F of the last pass became 1 in the mean: m takes what that took off */
            for (size_t k = 0; k < nexp * n && c->npass > 0; k++)
                w->lamp[k] *= w->mean[k % n];
            st = w->engine->pass(w->engine->self, w->lamp, w->use, &w->pass, e);
        }
        if (st == SPX_OK)
            st = choose_fibres(w, &changed, e);
        if (st == SPX_OK)
            st = w->engine->normalise(w->engine->self, w->ref, w->nref, w->mean, w->change, e);
        if (st == SPX_OK) {
            for (size_t k = 0; k < nexp * n; k++)
                w->fitted[k] = w->lamp[k] * w->mean[k % n];
            if (w->o->one_lamp)
                improve_gains(w);
            c->change = largest_change(w);
            c->converged = c->npass > 0 && !changed && c->change < w->o->converge;
        }
        spx_progress_step(w->o->progress, 1);
    }
    return st;
}

/* ---- result ---- */

/* Bins that stand out of the running median like emission lines, which a lamp of a flat has not. */
static size_t count_lines(size_t n, const double *spectrum)
{
    enum { HALF = 50 };
    double some[2 * HALF + 1];
    size_t lines = 0, have = 0;
    for (size_t k = 0; k < n && have < sizeof some / sizeof *some; k += n / (2 * HALF + 1) + 1)
        some[have++] = spectrum[k];
    const double typical = spx_median(some, have);
    for (size_t k = 0; k < n; k++) {
        const size_t low = k > HALF ? k - HALF : 0, high = n - k > HALF ? k + HALF + 1 : n;
        memcpy(some, spectrum + low, (high - low) * sizeof *some);
        const double median = spx_median(some, high - low);
        lines += spectrum[k] > 1.5 * median && spectrum[k] - median > 0.02 * typical;
    }
    return lines;
}

/* Variance of F/mean, in which a fibre of the mean is itself: F varies less than its splines, and not at all where it
 * is the only one. var = s_i^2 (1 - 2 F_i/n) + F_i^2 sum_j s_j^2 / n^2, of other fibres without the second term. */
static double variance_of(const work *w, size_t i, size_t k, double flat, double own)
{
    const double n = (double)w->nref;
    const double v = own * (w->ref[i] ? 1 - 2 * flat / n : 1) + flat * flat * w->spread[k] / (n * n);
    return fmax(v, 1e-12);
}

static void finish_fibre(const work *w, size_t i, spx_flat *out, size_t *nlow)
{
    const size_t n = w->in->nwave, nexp = w->in->nexp, ns = w->in->nspec;
    double chi2 = 0, nused = 0;
    for (size_t x = 0; x < nexp; x++) {
        chi2 += w->end.chi2[x * ns + i];
        nused += w->end.nused[x * ns + i];
    }
    const double lamps = (double)(n * (w->o->one_lamp ? 1 : nexp)) / (double)w->nuse;
    out->chi2[i] = w->use[i] ? chi2 / fmax(nused - (double)w->plan->spline.n - lamps, 1) : 0;
    for (size_t k = 0; k < n; k++) {
        const size_t at = i * n + k;
        double flat = w->end.flat[at] / w->mean[k], variance = w->end.variance[at] / (w->mean[k] * w->mean[k]);
        uint32_t mask = w->use[i] ? 0 : SPX_BADFIBERFLAT;
        if (mask == 0 && (!(flat >= 0.1 && flat <= 10) || !is_supported(w, i, w->plan->first[k])))
            mask = SPX_LOWFLAT;
        *nlow += mask == SPX_LOWFLAT;
        variance = variance_of(w, i, k, flat, variance) + w->o->floor * w->o->floor * flat * flat;
        out->flat[at] = mask == 0 ? flat : 1;
        out->ivar[at] = mask == 0 ? 1 / variance : 0;
        out->mask[at] = mask;
    }
}

static spx_status finish(work *w, spx_flat *out, spx_flat_counts *c, spx_err *e)
{
    const size_t n = w->in->nwave, nexp = w->in->nexp, ns = w->in->nspec;
    spx_status st = w->engine->end(w->engine->self, w->use, &w->end, e);
    if (st != SPX_OK)
        return st;
    double chi2 = 0, dof = 0;
    size_t used = 0;
    for (size_t i = 0; i < ns; i++) {
        c->nbadfiber += !w->use[i];
        for (size_t x = 0; x < nexp; x++) {
            used += w->end.nused[x * ns + i];
            c->nreject += w->end.nreject[x * ns + i];
            if (w->use[i]) {
                chi2 += w->end.chi2[x * ns + i];
                dof += w->end.nused[x * ns + i];
            }
        }
        c->nnative += w->use[i] ? w->end.nnative[i] : 0;
        for (size_t k = 0; k < n && w->ref[i]; k++)
            w->spread[k] += w->end.variance[i * n + k] / (w->mean[k] * w->mean[k]);
    }
    c->nbin = nexp * ns * n;
    c->nmasked = c->nbin - used - c->nreject;
    dof -= (double)(w->nuse * w->plan->spline.n + n * (w->o->one_lamp ? 1 : nexp));
    c->chi2 = chi2 / fmax(dof, 1);
    size_t nlow = 0;
#pragma omp parallel for num_threads(w->nthreads) reduction(+ : nlow)
    for (size_t i = 0; i < ns; i++)
        finish_fibre(w, i, out, &nlow);
    c->nlow = nlow;
    for (size_t k = 0; k < nexp * n; k++) {
        out->lamp[k] = w->fitted[k];
        out->mean[k] = w->end.mean[k] * w->mean[k % n] / (double)w->nuse;
    }
    for (size_t x = 0; x < nexp; x++) {
        const size_t lines = count_lines(n, out->mean + x * n);
        if (lines > c->nline) {
            c->nline = lines;
            c->line_exposure = x;
        }
    }
    return SPX_OK;
}

static spx_status make_output(const work *w, spx_flat *out, spx_err *e)
{
    const size_t ns = w->in->nspec, n = w->in->nwave, nexp = w->in->nexp;
    out->nspec = ns;
    out->nwave = n;
    out->nlamp = nexp;
    out->nknot = w->plan->nint + 1;
    out->native = w->o->native;
    out->floor = w->o->floor;
    if ((out->wavelength = spx_alloc(n, sizeof *out->wavelength, e)) == NULL ||
        (out->flat = spx_alloc2(ns, n, sizeof *out->flat, e)) == NULL ||
        (out->ivar = spx_alloc2(ns, n, sizeof *out->ivar, e)) == NULL ||
        (out->mask = spx_alloc2(ns, n, sizeof *out->mask, e)) == NULL ||
        (out->lamp = spx_alloc2(nexp, n, sizeof *out->lamp, e)) == NULL ||
        (out->mean = spx_alloc2(nexp, n, sizeof *out->mean, e)) == NULL ||
        (out->chi2 = spx_alloc(ns, sizeof *out->chi2, e)) == NULL ||
        (out->knot = spx_alloc(out->nknot, sizeof *out->knot, e)) == NULL)
        return SPX_EIO;
    memcpy(out->wavelength, w->in->wavelength, n * sizeof *out->wavelength);
    for (size_t t = 0; t < out->nknot; t++)
        out->knot[t] = w->plan->spline.first + (double)t * w->plan->spline.step;
    return SPX_OK;
}

spx_status spx_flat_run(const spx_flat_engine *engine, const spx_flat_plan *plan, const spx_flat_input *in,
                        const spx_flat_options *o, spx_flat *out, spx_flat_counts *counts, spx_err *e)
{
    work w = {.in = in, .o = o, .plan = plan, .engine = engine, .nthreads = o->nthreads > 1 ? o->nthreads : 1};
    memset(counts, 0, sizeof *counts);
    spx_status st = allocate(&w, e);
    if (st == SPX_OK)
        st = make_output(&w, out, e);
    if (st == SPX_OK)
        st = run_passes(&w, counts, e);
    if (st == SPX_OK)
        st = finish(&w, out, counts, e);
    if (st == SPX_OK && engine->seconds != NULL)
        counts->device_seconds = engine->seconds(engine->self);
    release(&w);
    return st;
}
