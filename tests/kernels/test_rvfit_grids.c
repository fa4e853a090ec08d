/* Checks kernel `rvfit` on stars that have a wavelength grid each: as one by one on the same device, as on the CPU, in
 * any order and beside each other. */
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

static spx_status call_backend(void *ctx, const spx_rvfit_input *in, const spx_rvfit_options *o, spx_progress *p,
                               spx_rvfit *out, spx_err *e)
{
    spx_backend *b = ctx;
    return b->rvfit(b, in, o, p, out, e);
}

static spx_status call_cpu(void *ctx, const spx_rvfit_input *in, const spx_rvfit_options *o, spx_progress *p,
                           spx_rvfit *out, spx_err *e)
{
    (void)ctx;
    return spx_rvfit_cpu(in, o, p, out, e);
}

static void each_alone(const spx_templates *t)
{
    spx_spectra s;
    spx_rvfit_options o;
    spx_rvfit all, cpu;
    init(&o);
    o.threads = 2;
    o.keep_model = 1;
    draw_rows(&s);
    const spx_rvfit_input in = input_of(&s, t);
    CHECK(spx_rvfit_has_grids(&in), "no grids");
    NEED(spx_rvfit_grids(&in, &o, call_backend, &backend, backend.library == NULL, NULL, &all, &need_e));
    NEED(spx_rvfit_grids(&in, &o, call_cpu, NULL, 1, NULL, &cpu, &need_e));
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

static void checks(spx_templates *t)
{
    interpolator = SPX_INTERPOLATE_CUBIC;
    each_alone(t);
}

int main(void)
{
    return rv_test(checks);
}
