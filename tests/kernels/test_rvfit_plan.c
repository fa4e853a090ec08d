/* Checks plans of kernel `rvfit`: batches with one plan equal those without, bit by bit; a plan is refused for input
 * that it was not made for. */
#include "rv_stars.h"

enum { NSTAR = 9, NDIAG = 5 };

/* Rows first ... first+n-1 in memory of their own. */
static void part_of(const spx_spectra *s, size_t first, size_t n, spx_spectra *part)
{
    alloc_spectra(part, n);
    for (size_t a = 0; a < NARM; a++) {
        const spx_arm *from = &s->arm[a];
        spx_arm *to = &part->arm[a];
        memcpy(to->flux, from->flux + first * NPIX, n * NPIX * sizeof *to->flux);
        memcpy(to->ivar, from->ivar + first * NPIX, n * NPIX * sizeof *to->ivar);
        to->ndiag = NDIAG;
        to->resolution = spx_alloc2(n * NDIAG, NPIX, sizeof *to->resolution, NULL);
        if (!to->resolution)
            exit(1);
        memcpy(to->resolution, from->resolution + first * NDIAG * NPIX, n * NDIAG * NPIX * sizeof *to->resolution);
    }
}

static void resolve(spx_spectra *s)
{
    for (size_t a = 0; a < NARM; a++) {
        s->arm[a].ndiag = NDIAG;
        s->arm[a].resolution = spx_alloc2(s->nspec * NDIAG, NPIX, sizeof(double), NULL);
        if (!s->arm[a].resolution)
            exit(1);
        for (size_t i = 0; i < s->nspec * NDIAG * NPIX; i++) {
            double z = (double)(i / NPIX % NDIAG) - 2;
            s->arm[a].resolution[i] = 0.4 * exp(-0.5 * z * z);
        }
    }
}

static void batches(const spx_spectra *s, const spx_templates *t, const spx_rvfit_options *o)
{
    static const size_t cut[] = {0, 2, 2, 3, NSTAR}; /* one has no star, one more than those before */
    spx_rvfit all;
    spx_rvfit_plan *plan = NULL;
    spx_rvfit_input in = input_of(s, t);
    NEED(backend.rvfit(&backend, &in, o, NULL, &all, &need_e));
    spx_spectra like = *s; /* what is in the spectra does not matter to a plan */
    like.nspec = 0;
    in = input_of(&like, t);
    NEED(spx_rvfit_open_cpu(&in, o, &plan, &need_e)); /* built upon by the backend */
    NEED(backend.rvfit_open(&backend, &in, o, &plan, &need_e));
    for (size_t k = 0; k + 1 < sizeof cut / sizeof *cut; k++) {
        spx_spectra part;
        spx_rvfit r;
        size_t n = cut[k + 1] - cut[k];
        part_of(s, cut[k], n, &part);
        in = input_of(&part, t);
        in.plan = plan;
        NEED(backend.rvfit(&backend, &in, o, NULL, &r, &need_e));
        CHECK(r.nstar == n && memcmp(r.star, all.star + cut[k], n * sizeof *r.star) == 0,
              "interpolator %d: stars %zu to %zu differ in a batch of their own", (int)interpolator, cut[k],
              cut[k + 1]);
        CHECK(memcmp(r.exposure, all.exposure + cut[k], n * sizeof *r.exposure) == 0, "exposures from %zu on differ",
              cut[k]);
        CHECK(r.nlag == all.nlag, "%zu lags, %zu in one batch", r.nlag, all.nlag);
        for (size_t a = 0; a < NARM; a++)
            CHECK(memcmp(r.arm[a].model, all.arm[a].model + cut[k] * NPIX, n * NPIX * sizeof(float)) == 0 &&
                      memcmp(r.arm[a].ccf, all.arm[a].ccf + cut[k] * all.nlag, n * all.nlag * sizeof(float)) == 0,
                  "models or curves from star %zu on differ", cut[k]);
        spx_rvfit_free(&r);
        free_spectra(&part);
    }
    backend.rvfit_close(&backend, plan);
    spx_rvfit_free(&all);
}

static void refusals(spx_spectra *s, const spx_templates *t, const spx_rvfit_options *o)
{
    spx_rvfit_plan *plan = NULL;
    spx_rvfit_input in = input_of(s, t), other;
    NEED(backend.rvfit_open(&backend, &in, o, &plan, &need_e));
    in.plan = plan;

    spx_rvfit_options d = *o;
    refused("other options", SPX_EUSAGE, &in, &d);
    spx_setup copy = t->setup[1];
    other = in;
    other.setup[1] = &copy;
    refused("other templates", SPX_EUSAGE, &other, o);
    other = in;
    other.setup[1] = NULL;
    refused("fewer arms", SPX_EUSAGE, &other, o);
    double *wave = s->arm[1].wavelength, keep = wave[NPIX - 1];
    wave[NPIX - 1] += 1e-6;
    refused("other wavelengths", SPX_EUSAGE, &in, o);
    wave[NPIX - 1] = keep;
    s->arm[0].nwave--;
    refused("fewer pixels", SPX_EUSAGE, &in, o);
    s->arm[0].nwave++;
    s->arm[0].ndiag = NDIAG - 2;
    refused("other resolution matrices", SPX_EUSAGE, &in, o);
    s->arm[0].ndiag = NDIAG;
    /* what a batch brings is looked at with a plan, too */
    size_t row = NSTAR, first[] = {0, 2, 1, NSTAR};
    other = in;
    other.row = &row;
    other.nrow = 1;
    refused("row that is not there", SPX_EINPUT, &other, o);
    other = in;
    other.first = first;
    other.nstar = 3;
    refused("stars out of order", SPX_EINPUT, &other, o);
    backend.rvfit_close(&backend, plan);

    d.npoly = SPX_RVFIT_MAX_POLY + 1;
    spx_err e = {0};
    in.plan = plan = NULL;
    CHECK(backend.rvfit_open(&backend, &in, &d, &plan, &e) == SPX_EUSAGE && !plan, "a plan with too many functions");
    backend.rvfit_close(&backend, plan);
}

static void body(spx_templates *t)
{
    static const spx_interpolator all[] = {SPX_INTERPOLATE_CUBIC, SPX_INTERPOLATE_GRID, SPX_INTERPOLATE_SIMPLEX};
    spx_spectra s;
    spx_rvfit_options o;
    alloc_spectra(&s, NSTAR);
    resolve(&s);
    for (size_t i = 0; i < NSTAR; i++)
        draw(&s, i, &(truth){-200 + 400 * uniform(), 0, 4600 + 1800 * uniform(), -1.5 * uniform(), 5 + 40 * uniform()});
    for (size_t k = 0; k < sizeof all / sizeof *all; k++) {
        interpolator = all[k];
        init(&o);
        o.keep_ccf = 1;
        o.threads = 1 + (int)k;
        o.resolution = k == 0;
        batches(&s, t, &o);
        if (o.resolution)
            refusals(&s, t, &o);
    }
    free_spectra(&s);
}

int main(void)
{
    return rv_test(body);
}
