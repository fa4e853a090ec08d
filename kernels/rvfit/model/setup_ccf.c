/* Provides what the cross-correlation needs: principal components of the transforms of the set of templates, the common
 * grid of velocities, the resampling of the spectra. */
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "rvfit/model/setup.h"
#include "spectral/ccf_pca.h"

enum { MOST_PAIRED = 512 /* entries of which pairs are compared */ };

/* Can the sets of two arms be summed entry by entry? */
static int ccf_alike(const spx_ccf_set *a, const spx_ccf_set *b, size_t npar)
{
    return a->ntemp == b->ntemp && memcmp(a->vsini, b->vsini, a->ntemp * sizeof *a->vsini) == 0 &&
           memcmp(a->params, b->params, a->ntemp * npar * sizeof *a->params) == 0;
}

/* Components of the set: those of the templates' file, or of old files' transforms. */
static spx_status take_components(spx_rv_arm *a, spx_err *e)
{
    const spx_ccf_set *set = &a->setup->ccf;
    const spx_ccf_pca *p = &set->pca;
    spx_status st = SPX_OK;
    if (p->comp == NULL)
        st = spx_ccf_pca_make(set, a->setup->setup, &a->ccf_made, e);
    p = p->comp == NULL ? &a->ccf_made : p;
    a->nshort = p->nshort;
    a->nccf = p->ncomp;
    a->ccf_comp = p->comp;
    a->ccf_coef = p->coef;
    return st;
}

/* Where the common velocity grid lies in the inverse transform; cubic (Catmull-Rom) between its samples. */
static spx_status make_lags(const spx_rv_ctx *c, spx_rv_arm *a, spx_err *e)
{
    a->lag_at = spx_alloc(c->ccf.nlag, sizeof *a->lag_at, e);
    a->lag_weight = spx_alloc2(c->ccf.nlag, 4, sizeof *a->lag_weight, e);
    if (!a->lag_at || !a->lag_weight)
        return SPX_EIO;
    double pixel = a->setup->ccf.dlnwave * (double)(a->setup->ccf.nwave / a->nshort);
    for (size_t i = 0; i < c->ccf.nlag; i++) {
        double lag = -spx_rv_lnshift(c->ccf.lag_v0 + (double)i * c->ccf.lag_step) / pixel, base = floor(lag),
               u = lag - base;
        a->lag_at[i] = (size_t)((ptrdiff_t)base - 1) & (a->nshort - 1);
        float *w = a->lag_weight + 4 * i;
        w[0] = (float)(0.5 * u * (-1 + u * (2 - u)));
        w[1] = (float)(1 + 0.5 * u * u * (-5 + 3 * u));
        w[2] = (float)(0.5 * u * (1 + u * (4 - 3 * u)));
        w[3] = (float)(0.5 * u * u * (u - 1));
    }
    return SPX_OK;
}

/* Modified Bessel function I_0, by its power series. */
static double bessel_i0(double x)
{
    double sum = 1, term = 1;
    for (int k = 1; term > 1e-17 * sum; k++) {
        term *= 0.25 * x * x / ((double)k * (double)k);
        sum += term;
    }
    return sum;
}

/* Frequency f of a spectrum z[nshort/2+1] of a real function, which goes on as its conjugate. */
static const float *frequency(const float (*z)[2], size_t nshort, ptrdiff_t f, float *sign)
{
    const ptrdiff_t n = (ptrdiff_t)nshort;
    *sign = f < 0 || f > n / 2 ? -1 : 1;
    return z[f < 0 ? -f : f > n / 2 ? n - f : f];
}

void spx_rv_few_of(const spx_rv_arm *a, const float (*z)[2], float (*out)[2])
{
    const spx_rv_few_lags *w = &a->few;
    const size_t used = w->length / 2 + SPX_RV_TAPS;
    for (size_t r = 0; r < w->per; r++)
        for (size_t b = 0; b < w->nblock; b++) {
            float sign = 0;
            const ptrdiff_t f = ((ptrdiff_t)b - SPX_RV_TAPS / 2) * (ptrdiff_t)w->per + (ptrdiff_t)r;
            const float *from = b < used ? frequency(z, a->nshort, f, &sign) : NULL;
            out[r * w->nblock + b][0] = from != NULL ? from[0] : 0;
            out[r * w->nblock + b][1] = from != NULL ? sign * from[1] : 0;
        }
}

/* Makes a->few of the lags and components. */
static spx_status make_few(const spx_rv_ctx *c, spx_rv_arm *a, spx_err *e)
{
    enum { WIDER = 4 }; /* length of the inverse transform, in largest lags: images are below 3e-7 */
    spx_rv_few_lags *w = &a->few;
    const size_t ns = a->nshort, nlag = c->ccf.nlag;
    w->first = a->lag_at[0];
    w->n = 4;
    for (size_t i = 0; i < nlag; i++) {
        const size_t end = ((a->lag_at[i] - w->first) & (ns - 1)) + 4;
        w->n = w->n < end ? end : w->n;
    }
    size_t most = 1; /* largest lag of those samples, at which they are not cyclic */
    for (size_t j = 0; j < w->n; j++) {
        const size_t at = (w->first + j) & (ns - 1), size = at < ns - at ? at : ns - at;
        most = most < size ? size : most;
    }
    for (w->length = 16; w->length < ns && w->length < WIDER * most;)
        w->length *= 2;
    w->length = w->length < ns ? w->length : ns;
    w->per = ns / w->length;
    w->nblock = (w->length / 2 + SPX_RV_TAPS + SPX_RV_LANES - 1) / SPX_RV_LANES * SPX_RV_LANES;
    const size_t n = w->per * w->nblock, nf = ns / 2 + 1, half = SPX_RV_TAPS / 2 * w->per;
    w->window = spx_alloc2(w->per, SPX_RV_TAPS, sizeof *w->window, e);
    w->comp = spx_alloc2(a->nccf * 2, n * 2, sizeof *w->comp, e);
    w->at = spx_alloc(nlag, sizeof *w->at, e);
    w->weight = spx_alloc2(nlag, 4, sizeof *w->weight, e);
    double *gain = spx_alloc(w->n, sizeof *gain, e);
    if (!w->window || !w->comp || !w->at || !w->weight || !gain) {
        spx_free(gain);
        return SPX_EIO;
    }
    /* Kaiser-Bessel window, as wide in lags as fits between them and their images; with all frequencies, none */
    const double wider = (double)w->length / (2 * (double)most),
                 beta = M_PI * sqrt(fmax(0, pow(SPX_RV_TAPS / wider * (wider - 0.5), 2) - 0.8));
    for (size_t d = 0; d < 2 * half; d++) {
        const double u = ((double)d - (double)half) / (double)half;
        const double h = w->per > 1 ? bessel_i0(beta * sqrt(1 - u * u)) / bessel_i0(beta) : d == half;
        const double one = d > 0 ? h : 0; /* symmetric */
        w->window[d % w->per * SPX_RV_TAPS + d / w->per] = (float)one;
        for (size_t j = 0; j < w->n; j++)
            gain[j] += one / (double)w->per *
                       cos(2 * M_PI * ((double)d - (double)half) * (double)((w->first + j) & (ns - 1)) / (double)ns);
    }
    for (size_t k = 0; k < 2 * a->nccf; k++)
        spx_rv_few_of(a, (const float(*)[2])(a->ccf_comp + k * 2 * nf), (float(*)[2])(w->comp + k * 2 * n));
    for (size_t i = 0; i < nlag; i++) {
        w->at[i] = (a->lag_at[i] - w->first) & (ns - 1);
        for (size_t q = 0; q < 4; q++)
            w->weight[4 * i + q] = (float)((double)a->lag_weight[4 * i + q] / gain[w->at[i] + q]);
    }
    w->first &= w->length - 1;
    spx_free(gain);
    return SPX_OK;
}

/* Where the samples of the cross-correlation lie between pixels. */
static spx_status make_rebin(spx_rv_arm *a, spx_err *e)
{
    const spx_ccf_set *set = &a->setup->ccf;
    size_t j = 0;
    a->rebin_at = spx_alloc(set->nwave, sizeof *a->rebin_at, e);
    a->rebin = spx_alloc(set->nwave, sizeof *a->rebin, e);
    if (!a->rebin_at || !a->rebin)
        return SPX_EIO;
    for (size_t k = 0; k < set->nwave; k++) {
        double x = set->lnwave0 + (double)k * set->dlnwave;
        a->rebin_at[k] = -1;
        if (x < a->lnwave[0] || x > a->lnwave[a->n - 1])
            continue;
        while (j + 2 < a->n && a->lnwave[j + 1] < x)
            j++;
        a->rebin_at[k] = (int32_t)j;
        a->rebin[k] = (x - a->lnwave[j]) / (a->lnwave[j + 1] - a->lnwave[j]);
    }
    return SPX_OK;
}

/* Squared difference of the spectra of two entries, summed over arms. */
static double difference(const spx_rv_ctx *c, size_t t, size_t s)
{
    double sum = 0;
    for (size_t i = 0; i < c->narm; i++) {
        const spx_rv_arm *a = &c->arm[i];
        for (size_t k = 0; k < a->nccf; k++) {
            double d = (double)(a->ccf_coef[t * a->nccf + k] - a->ccf_coef[s * a->nccf + k]);
            sum += d * d;
        }
    }
    return sum;
}

/* Places of the entries: parameters in units of their range, times the root of the share that each has in the
 * differences of spectra, D^2 = sum_p w_p (u_p - u'_p)^2 by least squares over pairs of the same vsini, largest w_p
 * = 1. So the distance of two places says how unlike the entries are, also where the axes have few nodes. */
static spx_status make_places(spx_rv_ctx *c, spx_err *e)
{
    const spx_ccf_set *set = &c->arm[0].setup->ccf;
    const size_t n = c->npar, step = (set->ntemp + MOST_PAIRED - 1) / MOST_PAIRED;
    double gram[SPX_MAX_PAR * (SPX_MAX_PAR + 1) / 2] = {0}, weight[SPX_MAX_PAR] = {0}, most = 0;
    if ((c->ccf.place = spx_alloc2(set->ntemp, n, sizeof *c->ccf.place, e)) == NULL)
        return SPX_EIO;
    for (size_t t = 0; t < set->ntemp; t++)
        for (size_t p = 0; p < n; p++) {
            const double lo = c->lo[2 + p], hi = c->hi[2 + p], x = spx_rv_map(c, 2 + p, set->params[t * n + p]);
            if (hi > lo && isfinite(x))
                c->ccf.place[t * n + p] = (float)fmax(0, fmin(1, (x - lo) / (hi - lo)));
        }
    for (size_t t = 0; t < set->ntemp; t += step)
        for (size_t s = 0; s < t; s += step) {
            const float *a = c->ccf.place + t * n, *b = c->ccf.place + s * n;
            const double d = set->vsini[t] == set->vsini[s] ? difference(c, t, s) : 0;
            double u[SPX_MAX_PAR];
            for (size_t p = 0; p < n; p++)
                u[p] = set->vsini[t] == set->vsini[s] ? (double)((a[p] - b[p]) * (a[p] - b[p])) : 0;
            for (size_t p = 0; p < n; p++) {
                weight[p] += u[p] * d;
                for (size_t k = 0; k <= p; k++)
                    gram[spx_rv_packed(p, k)] += u[p] * u[k];
            }
        }
    for (size_t p = 0; p < n; p++) /* axes of one node */
        gram[spx_rv_packed(p, p)] += 1e-9;
    if (spx_rv_cholesky(n, gram, 0)) {
        spx_rv_forward(n, gram, weight);
        spx_rv_backward(n, gram, weight);
    }
    for (size_t p = 0; p < n; p++)
        if (weight[p] > most) {
            most = weight[p];
            c->ccf.main = p;
        }
    for (size_t t = 0; t < set->ntemp && most > 0; t++)
        for (size_t p = 0; p < n; p++)
            c->ccf.place[t * n + p] *= (float)sqrt(fmax(0, weight[p]) / most);
    return SPX_OK;
}

/* Fourier transforms and the common velocity grid of the cross-correlation; none when an arm has no set. */
spx_status spx_rv_make_ccf(spx_rv_ctx *c, spx_err *e)
{
    double step = HUGE_VAL;
    for (size_t i = 0; i < c->narm; i++) {
        const spx_ccf_set *f = &c->arm[i].setup->ccf, *f0 = &c->arm[0].setup->ccf;
        if (f->ntemp == 0)
            return SPX_OK;
        if (!ccf_alike(f, f0, c->npar))
            return spx_fail(e, SPX_EINPUT,
                            "cross-correlation sets of setups '%.63s' and '%.63s' differ: build all "
                            "setups of a file together",
                            c->arm[0].setup->setup, c->arm[i].setup->setup);
        if (f->nwave < 16 || f->nwave > ((size_t)1 << 30) || (f->nwave & (f->nwave - 1)) != 0 || !(f->dlnwave > 0) ||
            !isfinite(f->lnwave0) || (f->pca.comp != NULL && f->pca.nshort < 16))
            return spx_fail(e, SPX_EINPUT, "cross-correlation set of setup '%.63s' is not usable",
                            c->arm[i].setup->setup);
        step = fmin(step, f->dlnwave);
    }
    c->ccf.lag_step = 0.5 * step * SPX_C_KMS;
    c->ccf.lag_v0 = c->opt->vmin;
    c->ccf.nlag = (size_t)floor((c->opt->vmax - c->opt->vmin) / c->ccf.lag_step) + 1;
    spx_status st = SPX_OK;
    spx_err err[SPX_MAX_ARM] = {{0}};
#pragma omp parallel for schedule(dynamic, 1) num_threads(spx_rv_plan_threads(c))
    for (size_t i = 0; i < c->narm; i++)
        if (take_components(&c->arm[i], &err[i]) == SPX_OK && make_rebin(&c->arm[i], &err[i]) == SPX_OK)
            (void)(make_lags(c, &c->arm[i], &err[i]) == SPX_OK && make_few(c, &c->arm[i], &err[i]) == SPX_OK);
    for (size_t i = 0; i < c->narm; i++) {
        const spx_rv_arm *a = &c->arm[i];
        c->ccf.n = a->setup->ccf.nwave > c->ccf.n ? a->setup->ccf.nwave : c->ccf.n;
        c->ccf.ncomp = a->nccf > c->ccf.ncomp ? a->nccf : c->ccf.ncomp;
        const spx_rv_few_lags *w = &a->few;
        const size_t few = w->per * w->nblock, sum = SPX_RV_TAPS * w->nblock;
        c->ccf.nfew = few > c->ccf.nfew ? few : c->ccf.nfew;
        c->ccf.nsum = sum > c->ccf.nsum ? sum : c->ccf.nsum;
        c->ccf.nsample = w->n > c->ccf.nsample ? w->n : c->ccf.nsample;
        if (st == SPX_OK && err[i].code != SPX_OK)
            st = spx_err_pass(e, &err[i]);
    }
    if (st == SPX_OK)
        st = make_places(c, e);
    c->ccf.stride = c->ccf.n / 2 + 16;
    float *r = st == SPX_OK ? spx_alloc(c->ccf.n, sizeof *r, e) : NULL;
    fftwf_complex *z = r ? spx_alloc(c->ccf.n, sizeof *z, e) : NULL;
    if (st == SPX_OK && !z)
        st = SPX_EIO;
    for (size_t i = 0; st == SPX_OK && i < c->narm; i++) {
        spx_rv_arm *a = &c->arm[i];
        /* ESTIMATE: the plan, and so the last bit, does not depend on timing. */
#pragma omp critical(spx_fftw) /* FFTW's planner is one for all threads */
        {
            a->forward = fftwf_plan_dft_r2c_1d((int)a->setup->ccf.nwave, r, z, FFTW_ESTIMATE);
            a->few.inverse = fftwf_plan_dft_c2r_1d((int)a->few.length, z, r, FFTW_ESTIMATE);
        }
        if (!a->forward || !a->few.inverse)
            st = spx_fail(e, SPX_EIO, "no plan for a Fourier transform of length %zu", a->setup->ccf.nwave);
    }
    spx_free(r);
    spx_free(z);
    return st;
}
