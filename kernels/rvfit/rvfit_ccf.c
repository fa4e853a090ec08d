/* Starts of the fit, by cross-correlation with a set of templates: chi^2 of every entry at every lag by fast Fourier
 * transform, summed over arms on a common velocity grid. */
#include <cblas.h>
#include <math.h>
#include <string.h>

#include "base/stat.h"
#include "rvfit/rvfit_internal.h"
#include "template/continuum.h"

static const double MAX_ERROR = 10;  /* pixels with more than this times the median error are not used */
static const double SCAN_STEP = 15;  /* km/s, at most, of the scan without a cross-correlation set */
static const double MAX_BRUTE = 100; /* templates of a start by brute force */
static const double FAST = 100;      /* km/s, vsini of the fast rotators among them */

/* Adds a piece, as the set wants it (templates.h), to the arm's data in room->cdata: ivar s and ivar, weighted so that
 * an inverse transform of the product needs no factor. Returns sum ivar s^2; sets w->err when memory runs out. */
static double add_piece(spx_rv_ws *w, const spx_rv_data *d)
{
    const spx_rv_arm *a = &w->ctx->arm[d->arm];
    const spx_setup *s = a->setup;
    const spx_ccf_set *set = &s->ccf;
    size_t n = a->n, nc = set->nwave;
    uint8_t *bad = (uint8_t *)w->room->u;
    double *cont = w->room->q, *value = w->room->r, *ivar = w->room->w, sum = 0;
    float *num = w->room->cdata, *den = w->room->cdata + nc;

    size_t m = 0;
    for (size_t i = 0; i < n; i++)
        if (d->good[i])
            cont[m++] = d->ie[i];
    double typical = spx_median(cont, m);
    for (size_t i = 0; i < n; i++)
        bad[i] = !d->good[i] || d->ie[i] * MAX_ERROR < typical;
    if (spx_continuum_find(log(s->wmin), log(s->wmax), n, a->lnwave, d->flux, bad, cont, &w->err) != SPX_OK)
        return 0;
    for (size_t i = 0; i < n; i++) {
        value[i] = d->flux[i] / cont[i] - 1;
        ivar[i] = bad[i] ? 0 : cont[i] * cont[i] * d->ie[i] * d->ie[i];
    }
    size_t j = 0;
    for (size_t k = 0; k < nc; k++) {
        double x = set->lnwave0 + (double)k * set->dlnwave;
        if (x < a->lnwave[0] || x > a->lnwave[n - 1])
            continue;
        while (j + 2 < n && a->lnwave[j + 1] < x)
            j++;
        double f = (x - a->lnwave[j]) / (a->lnwave[j + 1] - a->lnwave[j]), g = 1 - f;
        if (!(ivar[j] > 0) || !(ivar[j + 1] > 0))
            continue;
        double iv = ivar[j] * ivar[j + 1] / (g * g * ivar[j + 1] + f * f * ivar[j]);
        double v = g * value[j] + f * value[j + 1];
        num[k] += (float)(-2 * iv * v / (double)nc);
        den[k] += (float)(iv / (double)nc);
        sum += iv * v * v;
    }
    return sum;
}

/* n pieces, all of one arm: chi^2 of the components at all lags in room->clag. Returns sum ivar s^2. */
static double correlate(spx_rv_ws *w, size_t n, const spx_rv_data *piece)
{
    const spx_rv_ctx *c = w->ctx;
    const spx_rv_arm *a = &c->arm[piece->arm];
    spx_rv_room *r = w->room;
    size_t ns = a->nshort, nf = ns / 2 + 1, nc = a->setup->ccf.nwave;
    double zero = 0;
    memset(r->cdata, 0, 2 * nc * sizeof *r->cdata);
    for (size_t i = 0; i < n; i++)
        zero += add_piece(w, &piece[i]);
    fftwf_execute_dft_r2c(a->forward, r->cdata, r->cs);
    fftwf_execute_dft_r2c(a->forward, r->cdata + nc, r->civ);
    const float(*s)[2] = (const float(*)[2])r->cs, (*iv)[2] = (const float(*)[2])r->civ;
    float(*prod)[2] = (float(*)[2])r->cprod;
    for (size_t k = 0; k < a->nccf; k++) {
        const float *f = a->ccf_comp + k * 4 * nf, *f2 = f + 2 * nf;
        float *out = r->clag + k * c->nlag;
        for (size_t i = 0; i < nf; i++) { /* S conj(F) + V conj(F2) */
            float sr = s[i][0], si = s[i][1], vr = iv[i][0], vi = iv[i][1];
            prod[i][0] = sr * f[2 * i] + si * f[2 * i + 1] + vr * f2[2 * i] + vi * f2[2 * i + 1];
            prod[i][1] = si * f[2 * i] - sr * f[2 * i + 1] + vi * f2[2 * i] - vr * f2[2 * i + 1];
        }
        fftwf_execute_dft_c2r(a->inverse, r->cprod, r->cout);
        memcpy(r->cout + ns, r->cout, 3 * sizeof *r->cout);
        for (size_t i = 0; i < c->nlag; i++) {
            const float *p = r->cout + a->lag_at[i], *u = a->lag_weight + 4 * i;
            out[i] = u[0] * p[0] + u[1] * p[1] + u[2] * p[2] + u[3] * p[3];
        }
    }
    return zero;
}

/* Adds arm ia to chi^2 of all entries at all lags. */
static void add_arm(spx_rv_ws *w, size_t ia)
{
    const spx_rv_ctx *c = w->ctx;
    const spx_rv_arm *a = &c->arm[ia];
    w->room->chi_zero += correlate(w, w->first[ia + 1] - w->first[ia], &w->piece[w->first[ia]]);
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, (int)a->setup->ccf.ntemp, (int)c->nlag, (int)a->nccf, 1,
                a->ccf_coef, (int)a->nccf, w->room->clag, (int)c->nlag, 1, w->room->chi, (int)c->nlag);
}

void spx_rv_ccf(spx_rv_ws *w, const spx_rv_data *d, size_t entry, float *out)
{
    const spx_rv_ctx *c = w->ctx;
    const spx_rv_arm *a = &c->arm[d->arm];
    (void)correlate(w, 1, d);
    cblas_sgemv(CblasRowMajor, CblasTrans, (int)a->nccf, (int)c->nlag, -1, w->room->clag, (int)c->nlag,
                a->ccf_coef + entry * a->nccf, 1, 0, out, 1);
}

/* Point of an entry of the set at lag i, refined by a parabola. */
static void set_start(const spx_rv_ws *w, size_t t, size_t i, spx_rv_start *out)
{
    const spx_rv_ctx *c = w->ctx;
    const spx_ccf_set *set = &c->arm[0].setup->ccf;
    const float *chi = w->room->chi + t * c->nlag;
    double at = (double)i;
    out->chisq = (double)chi[i] + w->room->chi_zero;
    if (i > 0 && i + 1 < c->nlag) {
        double left = (double)(chi[i - 1] - chi[i]), right = (double)(chi[i + 1] - chi[i]);
        if (left + right > 0)
            at += fmax(-0.5, fmin(0.5, 0.5 * (left - right) / (left + right)));
    }
    out->x[0] = c->lag_v0 + at * c->lag_step;
    out->x[1] = set->vsini[t];
    for (size_t p = 0; p < c->npar; p++)
        out->x[2 + p] = spx_rv_map(c, 2 + p, set->params[t * c->npar + p]);
    for (size_t q = 0; q < c->nq; q++) {
        out->x[q] = fmax(c->lo[q], fmin(c->hi[q], out->x[q]));
        if (!isfinite(out->x[q]))
            out->x[q] = c->start[q];
    }
}

/* Several starts from chi^2 of all entries and lags: the best of all; the best with another template; then the best at
 * velocities that are far from all others. */
static size_t pick_starts(spx_rv_ws *w, spx_rv_start *start)
{
    const spx_rv_ctx *c = w->ctx;
    const spx_ccf_set *set = &c->arm[0].setup->ccf;
    size_t nl = c->nlag, nt = set->ntemp, n = 0, used[SPX_RV_MAX_START];
    for (size_t i = 0; i < nl; i++) {
        w->room->best[i] = HUGE_VALF;
        w->room->best_entry[i] = 0;
        for (size_t t = 0; t < nt; t++)
            if (w->room->chi[t * nl + i] < w->room->best[i]) {
                w->room->best[i] = w->room->chi[t * nl + i];
                w->room->best_entry[i] = t;
            }
    }
    size_t top = 0;
    for (size_t i = 1; i < nl; i++)
        if (w->room->best[i] < w->room->best[top])
            top = i;
    if (!isfinite(w->room->best[top]))
        return 0;
    used[n] = w->room->best_entry[top];
    w->ccf_entry = (int32_t)used[n];
    set_start(w, used[n], top, &start[n]);
    n++;
    /* Other templates near the best velocity: different parameters first, then another vsini. */
    size_t reach = (size_t)ceil(SPX_RV_FAR / c->lag_step), i0 = top > reach ? top - reach : 0;
    size_t i1 = top + reach < nl ? top + reach : nl - 1;
    for (int kind = 0; kind < 2 && n < SPX_RV_MAX_START; kind++) {
        float least = HUGE_VALF;
        size_t bt = 0, bi = 0;
        for (size_t t = 0; t < nt; t++) {
            int same =
                memcmp(set->params + t * c->npar, set->params + used[0] * c->npar, c->npar * sizeof *set->params) == 0;
            if (kind == 0 ? same : set->vsini[t] == set->vsini[used[0]])
                continue;
            for (size_t i = i0; i <= i1; i++)
                if (w->room->chi[t * nl + i] < least) {
                    least = w->room->chi[t * nl + i];
                    bt = t;
                    bi = i;
                }
        }
        if (isfinite(least)) {
            used[n] = bt;
            set_start(w, bt, bi, &start[n]);
            n++;
        }
    }
    while (n < SPX_RV_MAX_START) {
        size_t bi = nl;
        for (size_t i = 0; i < nl; i++) {
            double v = c->lag_v0 + (double)i * c->lag_step;
            int far = 1, peak = (i == 0 || w->room->best[i] <= w->room->best[i - 1]) &&
                                (i + 1 == nl || w->room->best[i] <= w->room->best[i + 1]);
            for (size_t k = 0; k < n; k++)
                far = far && fabs(start[k].x[0] - v) > SPX_RV_FAR;
            if (far && peak && (bi == nl || w->room->best[i] < w->room->best[bi]))
                bi = i;
        }
        if (bi == nl)
            break;
        used[n] = w->room->best_entry[bi];
        set_start(w, used[n], bi, &start[n]);
        n++;
    }
    return n;
}

/* The objective on a scan of velocities with the templates at start->x; the lowest is what *start becomes. */
static void scan(spx_rv_ws *w, spx_rv_start *start)
{
    const spx_rv_ctx *c = w->ctx;
    double step = SCAN_STEP;
    for (size_t i = 0; i < c->narm; i++) /* sharper templates, narrower minima */
        step = fmin(step, c->arm[i].setup->dlnwave * SPX_C_KMS);
    size_t steps = (size_t)floor((c->hi[0] - c->lo[0]) / step);
    spx_rv_template(w, start->x, NULL, 0);
    start->chisq = HUGE_VAL;
    for (size_t i = 0; i <= steps; i++) {
        double v = c->lo[0] + (c->hi[0] - c->lo[0]) * (steps ? (double)i / (double)steps : 0);
        spx_rv_value f;
        spx_rv_project(w, v, &f);
        if (f.f < start->chisq) {
            start->chisq = f.f;
            start->x[0] = v;
        }
    }
}

/* Starts by the objective itself, best first. Without a cross-correlation set: with templates along the first axis; by
 * brute force: over all of parameter space, the same number of them along each axis, and slow and fast rotators. */
static size_t scan_starts(spx_rv_ws *w, spx_rv_start *start)
{
    const spx_rv_ctx *c = w->ctx;
    size_t n = 0, naxis = c->opt->brute ? c->ng : c->npar > 0, per = 3, total = 1, nvsini = 1;
    if (c->opt->brute && c->hi[1] > c->lo[1])
        nvsini = 2;
    for (; c->opt->brute && naxis > 0 && pow((double)per + 1, (double)naxis) <= MAX_BRUTE; per++)
        ;
    for (size_t g = 0; g < naxis; g++)
        total *= per;
    for (size_t k = 0; k < total * nvsini; k++) {
        spx_rv_start s;
        size_t rest = k / nvsini;
        memcpy(s.x, c->start, sizeof s.x);
        if (k % nvsini)
            s.x[1] = fmax(c->lo[1], fmin(c->hi[1], FAST));
        for (size_t g = 0; g < naxis; g++, rest /= per) {
            size_t q = 2 + (c->opt->brute ? c->gpar[g] : 0);
            double u = c->opt->brute ? ((double)(rest % per) + 0.5) / (double)per : 0.25 * (double)(rest % per + 1);
            s.x[q] = c->lo[q] + u * (c->hi[q] - c->lo[q]);
        }
        scan(w, &s);
        size_t at = n < SPX_RV_MAX_START ? n++ : SPX_RV_MAX_START;
        for (; at > 0 && s.chisq < start[at - 1].chisq; at--)
            if (at < SPX_RV_MAX_START)
                start[at] = start[at - 1];
        if (at < SPX_RV_MAX_START)
            start[at] = s;
    }
    return n;
}

static void given_start(const spx_rv_ctx *c, const double *given, double *x)
{
    for (size_t q = 0; q < c->nq; q++) {
        double at = isfinite(given[q]) ? spx_rv_map(c, q, given[q]) : c->start[q];
        x[q] = fmax(c->lo[q], fmin(c->hi[q], isfinite(at) ? at : c->start[q]));
    }
}

size_t spx_rv_starts(spx_rv_ws *w, const double *given, spx_rv_start *start, double *v_ccf)
{
    const spx_rv_ctx *c = w->ctx;
    size_t n = 0;
    int have = given && isfinite(given[0]);
    w->ccf_entry = -1;
    *v_ccf = NAN;
    if (c->maxccf > 0 && c->nlag > 0 && (c->opt->keep_ccf || !(have || c->opt->brute))) {
        size_t nt = c->arm[0].setup->ccf.ntemp;
        w->room->chi_zero = 0;
        memset(w->room->chi, 0, nt * c->nlag * sizeof *w->room->chi);
        for (size_t ia = 0; ia < c->narm; ia++)
            if (w->first[ia] < w->first[ia + 1])
                add_arm(w, ia);
        n = pick_starts(w, start);
        memcpy(w->curve, w->room->best, c->nlag * sizeof *w->curve);
        w->has_curve = n > 0;
        if (n > 0)
            *v_ccf = start[0].x[0];
    }
    if (have) {
        given_start(c, given, start[0].x);
        start[0].chisq = 0;
        return 1;
    }
    if (n == 0 || c->opt->brute)
        n = scan_starts(w, start);
    if (!c->opt->brute)
        *v_ccf = start[0].x[0];
    return n;
}
