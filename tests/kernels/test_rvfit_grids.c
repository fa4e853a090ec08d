/* Checks kernel `rvfit` on stars that have a wavelength grid each: as one by one on the same device, as on the CPU, in
 * any order and beside each other; and exposures of a star that are on different grids, against the same in arms of
 * their own. */
#include "rv_stars.h"

#include "rvfit/grids.h"

enum { NSTAR = 12, NGRID = 4 };

/* Spectra of which arm b has a grid for each row, of NGRID in turns; arm r has one for all. */
static void draw_rows(spx_spectra *s)
{
    alloc_spectra(s, NSTAR);
    spx_arm *b = &s->arm[0];
    b->per_row = 1;
    b->row_wavelength = need(NSTAR * NPIX, sizeof *b->row_wavelength);
    for (size_t i = 0; i < NSTAR; i++) {
        const truth star = {-250 + 45 * (double)i, i % 3 == 0 ? 60 : 0, 4700 + 140 * (double)i, -1.5 + 0.1 * (double)i,
                            35};
        double *wave = b->row_wavelength + i * NPIX;
        for (size_t k = 0; k < NPIX; k++)
            wave[k] = b->wavelength[k] + 0.11 * (double)(i % NGRID);
        draw(s, i, &star);
        draw_arm(&star, wave, b->flux + i * NPIX, b->ivar + i * NPIX);
    }
}

/* Row i by itself, on one grid; arrays of `s` are used. */
static spx_spectra single(const spx_spectra *s, size_t i)
{
    spx_spectra one = *s;
    one.nspec = 1;
    for (size_t a = 0; a < NARM; a++) {
        spx_arm *m = &one.arm[a];
        m->wavelength = m->per_row ? m->row_wavelength + i * NPIX : m->wavelength;
        m->flux += i * NPIX;
        m->ivar += i * NPIX;
        m->mask += i * NPIX;
        m->per_row = 0;
        m->row_wavelength = NULL;
    }
    return one;
}

static spx_status call_backend(void *ctx, const spx_rvfit_input *in, const size_t *row, const spx_rvfit_options *o,
                               spx_progress *p, spx_rvfit *out, spx_err *e)
{
    spx_backend *b = ctx;
    (void)row;
    return b->rvfit(b, in, o, p, out, e);
}

static spx_status call_cpu(void *ctx, const spx_rvfit_input *in, const size_t *row, const spx_rvfit_options *o,
                           spx_progress *p, spx_rvfit *out, spx_err *e)
{
    (void)ctx;
    (void)row;
    return spx_rvfit_cpu(in, o, p, out, e);
}

static void each_alone(const spx_templates *t)
{
    spx_spectra s;
    spx_rvfit_options o;
    spx_rvfit all, cpu;
    init(&o);
    o.threads = 2;
    o.keep_model = o.keep_ccf = 1;
    draw_rows(&s);
    const spx_rvfit_input in = input_of(&s, t);
    CHECK(spx_rvfit_has_grids(&in), "no grids");
    NEED(spx_rvfit_grids(&in, &o, call_backend, &backend, backend.library == NULL, NULL, NULL, &all, &need_e));
    NEED(spx_rvfit_grids(&in, &o, call_cpu, NULL, 1, NULL, NULL, &cpu, &need_e));
    for (size_t i = 0; i < NSTAR; i++) {
        spx_spectra row = single(&s, i);
        const spx_rvfit_input alone = input_of(&row, t);
        const spx_rvfit_star *r = &all.star[i], *host = &cpu.star[i];
        spx_rvfit one;
        NEED(backend.rvfit(&backend, &alone, &o, NULL, &one, &need_e));
        CHECK(memcmp(r, &one.star[0], sizeof *r) == 0, "star %zu: v %.17g, alone %.17g", i, r->vrad, one.star[0].vrad);
        for (size_t a = 0; a < NARM; a++)
            CHECK(memcmp(all.arm[a].model + i * NPIX, one.arm[a].model, NPIX * sizeof(float)) == 0,
                  "star %zu, arm %zu: another model than alone", i, a);
        CHECK(all.nlag == one.nlag && all.lag_v0 == one.lag_v0 && all.lag_step == one.lag_step, "%zu lags, alone %zu",
              all.nlag, one.nlag);
        for (size_t a = 0; a < NARM; a++)
            CHECK(memcmp(all.arm[a].ccf + i * all.nlag, one.arm[a].ccf, one.nlag * sizeof(float)) == 0,
                  "star %zu, arm %zu: another curve than alone", i, a);
        /* rvs-fit(1): the objective within 1e-4, the velocity within 1e-3 of its error */
        CHECK(fabs(r->neg2logl - host->neg2logl) < 1e-4 && fabs(r->vrad - host->vrad) < 1e-3 * host->vrad_err &&
                  r->warn == host->warn,
              "star %zu: objective %.9g, v %.9g, on the CPU %.9g, %.9g +- %g", i, r->neg2logl, r->vrad, host->neg2logl,
              host->vrad, host->vrad_err);
        CHECK(fabs(r->vrad - (-250 + 45 * (double)i)) < 5 * r->vrad_err, "star %zu: v %g +- %g", i, r->vrad,
              r->vrad_err);
        spx_rvfit_free(&one);
    }
    spx_rvfit_free(&all);
    spx_rvfit_free(&cpu);
    spx_free(s.arm[0].row_wavelength);
    free_spectra(&s);
}

/* The spectra of draw_rows() in arms b, b2 ... of one grid each, and r; rows without one have no information there. */
static void apart(const spx_spectra *s, spx_spectra *out)
{
    *out = (spx_spectra){.nspec = NSTAR, .narm = NGRID + 1};
    for (size_t k = 0; k <= NGRID; k++) {
        const spx_arm *from = &s->arm[k == NGRID];
        spx_arm *a = &out->arm[k];
        *a = *from;
        a->per_row = 0;
        a->row_wavelength = NULL;
        a->wavelength = need(NPIX, sizeof(double));
        a->flux = need(NSTAR * NPIX, sizeof(double));
        a->ivar = need(NSTAR * NPIX, sizeof(double));
        a->mask = need(NSTAR * NPIX, sizeof(uint32_t));
        a->name[1] = (char)(k == 0 || k == NGRID ? '\0' : '1' + k);
        memcpy(a->wavelength, k == NGRID ? from->wavelength : from->row_wavelength + k * NPIX, NPIX * sizeof(double));
        memcpy(a->flux, from->flux, NSTAR * NPIX * sizeof(double));
        for (size_t i = 0; i < NSTAR; i++)
            if (k == NGRID || i % NGRID == k)
                memcpy(a->ivar + i * NPIX, from->ivar + i * NPIX, NPIX * sizeof(double));
    }
}

/* Stars of six, one, no, and five exposures; a jitter for each arm. */
static void exposures_apart(const spx_templates *t, int jitter)
{
    enum { N = 4 };
    static const size_t first[N + 1] = {0, 6, 7, 7, NSTAR};
    spx_spectra s, parts;
    spx_rvfit_options o;
    spx_rvfit joint, want;
    init(&o);
    o.threads = 2;
    o.keep_model = o.keep_ccf = o.epochs = 1;
    o.jitter = jitter;
    for (size_t a = 0; a < SPX_MAX_ARM; a++)
        o.jitter_of[a] = a == 0 ? 0.02 : 0.01;
    draw_rows(&s);
    for (size_t i = 0; i < NSTAR; i++) { /* one velocity a star */
        const truth star = {i < 6 ? -120 : 80, 20, 5300, -0.6, 35};
        spx_arm *b = &s.arm[0];
        draw(&s, i, &star);
        draw_arm(&star, b->row_wavelength + i * NPIX, b->flux + i * NPIX, b->ivar + i * NPIX);
    }
    apart(&s, &parts);
    spx_rvfit_input in = input_of(&s, t);
    in.nstar = N;
    in.first = first;
    NEED(spx_rvfit_grids(&in, &o, call_backend, &backend, backend.library == NULL, NULL, NULL, &joint, &need_e));
    spx_rvfit_options all = o;
    all.jitter_of[NGRID] = 0.01;
    for (size_t k = 0; k < NGRID; k++) {
        all.jitter_of[k] = 0.02;
        in.setup[k] = &t->setup[0];
    }
    in.setup[NGRID] = &t->setup[1];
    in.spectra = &parts;
    NEED(backend.rvfit(&backend, &in, &all, NULL, &want, &need_e));
    CHECK(joint.narm == NARM && joint.with_epochs && joint.nlag == want.nlag, "%zu arms", joint.narm);
    for (size_t i = 0; i < N; i++) {
        const spx_rvfit_star *r = &joint.star[i], *w = &want.star[i];
        if (first[i] == first[i + 1]) {
            CHECK(r->warn == SPX_RVS_BAD && isnan(r->vrad), "a star without spectra");
            continue;
        }
        /* what the other stars' grids are does not matter, but parts without information are sums of fewer terms */
        CHECK(fabs(r->neg2logl - w->neg2logl) < 1e-6 && fabs(r->vrad - w->vrad) < 1e-6 * w->vrad_err &&
                  fabs(r->vrad_err - w->vrad_err) < 1e-6 * w->vrad_err && r->npix == w->npix && r->nexp == w->nexp &&
                  r->warn == w->warn && fabs(r->const_chisq - w->const_chisq) < 1e-5 * (1 + w->const_chisq),
              "star %zu: objective %.9g, v %.9g +- %g, exposures %d, apart %.9g, %.9g +- %g, %d", i, r->neg2logl,
              r->vrad, r->vrad_err, r->nexp, w->neg2logl, w->vrad, w->vrad_err, w->nexp);
        double chisq = 0, sn = 0;
        for (size_t k = 0; k < NGRID; k++) {
            chisq += w->arm_chisq[k];
            sn += w->sn[k] * w->sn[k];
        }
        CHECK(fabs(r->arm_chisq[0] - chisq) < 1e-6 * chisq && fabs(r->sn[0] - sqrt(sn)) < 1e-9 * sqrt(sn) &&
                  r->npoly[0] == w->npoly[first[i] % NGRID] && r->arm_chisq[2] == 0,
              "star %zu: chi2 %g, S/N %g, apart %g, %g", i, r->arm_chisq[0], r->sn[0], chisq, sqrt(sn));
        CHECK(r->jitter[0] == (jitter ? 0.02 : 0) && r->jitter[1] == (jitter ? 0.01 : 0), "jitter %g, %g", r->jitter[0],
              r->jitter[1]);
        CHECK(fabs(r->vrad - (i == 0 ? -120 : 80)) < 5 * r->vrad_err, "star %zu: v %g +- %g", i, r->vrad, r->vrad_err);
    }
    for (size_t i = 0; i < NSTAR; i++) {
        const spx_rvfit_exposure *r = &joint.exposure[i], *w = &want.exposure[i];
        CHECK(fabs(r->vrad - w->vrad) < 1e-4 * w->vrad_err && fabs(r->vrad_err - w->vrad_err) < 1e-4 * w->vrad_err &&
                  r->sn[0] == w->sn[i % NGRID] && r->sn[1] == w->sn[NGRID] && r->npix == w->npix,
              "exposure %zu: v %.9g +- %g, apart %.9g +- %g", i, r->vrad, r->vrad_err, w->vrad, w->vrad_err);
        const float *m = joint.arm[0].model + i * NPIX, *n = want.arm[i % NGRID].model + i * NPIX;
        for (size_t k = 0; k < NPIX; k++)
            CHECK(fabsf(m[k] - n[k]) <= 1e-5f * fabsf(n[k]), "exposure %zu: model %g, apart %g", i, (double)m[k],
                  (double)n[k]);
        CHECK(memcmp(joint.arm[0].ccf + i * want.nlag, want.arm[i % NGRID].ccf + i * want.nlag,
                     want.nlag * sizeof(float)) == 0,
              "exposure %zu: another curve", i);
    }
    spx_rvfit_free(&joint);
    spx_rvfit_free(&want);
    spx_free(s.arm[0].row_wavelength);
    free_spectra(&s);
    free_spectra(&parts);
}

static void checks(spx_templates *t)
{
    interpolator = SPX_INTERPOLATE_CUBIC;
    each_alone(t);
    exposures_apart(t, 0);
    exposures_apart(t, 1);
}

int main(void)
{
    return rv_test(checks);
}
