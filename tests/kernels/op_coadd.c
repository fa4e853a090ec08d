/* Cases of the operation `coadd`, against dense algebra. Sizes: targets, exposures at most, bins, diagonals, and what
 * is asked for: method, +4: scales and rejection, which have no dense reference, +8: masks, +16: rows of R at the ends
 * lack a third of their light, as those of an arm do.
 *
 * Tolerance: the root of N is good to 1e-9, fluxes of a signal-to-noise ratio of 30 to 1e-7 of their errors; backends
 * may differ by 1e-6 of an error. Scales and chi^2 are sums over all bins. */
#include "coadd_dense.h"
#include "op.h"

#define FAR     1e-6
#define FAR_ROW 1e-7

typedef struct {
    exposures x;
    spx_coadd_method method;
    int all;
} scene;

static const op_case cases[] = {
    {"simple, 5 targets of up to 3 exposures", {5, 3, 60, 11, 0}},
    {"simple with masks", {9, 4, 75, 11, 8}},
    {"simple, no resolution matrix", {5, 3, 40, 0, 8}},
    {"simple, one bin", {3, 2, 1, 1, 0}},
    {"optimal, one target of two exposures", {1, 2, 80, 11, 1}},
    {"optimal, 11 targets", {11, 3, 64, 11, 1}},
    {"optimal with masks", {5, 4, 70, 11, 9}},
    {"optimal, 5 diagonals", {4, 3, 50, 5, 1}},
    {"optimal, 4 diagonals", {4, 3, 50, 4, 1}},
    {"optimal, more bins than a block", {3, 3, 700, 11, 5}},
    {"auto with scales, rejection and masks", {20, 5, 300, 11, 14}},
    {"auto, no resolution matrix, rejection", {6, 4, 200, 0, 14}},
    {"optimal, 21 diagonals, 20 exposures", {2, 20, 120, 21, 13}},
    {"optimal, light from beyond the ends", {5, 3, 64, 11, 17}},
    {"simple, light from beyond the ends", {5, 3, 64, 11, 16}},
};

static void *draw(const size_t *size, uint64_t from)
{
    scene *c = memory_for(1, sizeof *c);
    c->method = (spx_coadd_method)(size[4] % 4);
    c->all = (size[4] & 4) != 0;
    c->x = draw_exposures(size[0], size[1], size[2], size[3], 0.9, 0.12, 30, 1, (size[4] & 8) != 0, from);
    const size_t n = size[2];
    for (size_t at = 0; at < c->x.nexp * size[3] * n && (size[4] & 16) != 0; at++) {
        const size_t b = at / n % size[3], row = at % n + b - size[3] / 2; /* wraps around where there is no row */
        if (row < size[3] / 2 || (row + size[3] / 2 >= n && row < n))
            c->x.resolution[at] *= 0.67;
    }
    /* exposures of other scales, and hits */
    for (size_t i = 0; i < c->x.nexp && c->all; i++) {
        const double scale = 0.7 + 0.6 * uniform();
        for (size_t k = 0; k < n; k++) {
            c->x.flux[i * n + k] *= scale;
            c->x.ivar[i * n + k] /= scale * scale;
            if (uniform() < 0.01)
                c->x.flux[i * n + k] += 40 / sqrt(c->x.ivar[i * n + k]);
        }
    }
    op_const("flux", c->x.flux, c->x.nexp * n, sizeof *c->x.flux);
    op_const("ivar", c->x.ivar, c->x.nexp * n, sizeof *c->x.ivar);
    op_const("mask", c->x.mask, c->x.nexp * n, sizeof *c->x.mask);
    if (c->x.ndiag > 0)
        op_const("resolution", c->x.resolution, c->x.nexp * n * c->x.ndiag, sizeof *c->x.resolution);
    return c;
}

/* Scales of an array of bins: errors of fluxes, and ivar itself. */
static void scales_of(size_t n, const double *ivar, double *of_flux, double *of_ivar)
{
    for (size_t i = 0; i < n; i++) {
        of_flux[i] = ivar[i] > 0 ? 1 / sqrt(ivar[i]) : 1;
        of_ivar[i] = ivar[i] > 0 ? ivar[i] : 1;
    }
}

static void run(spx_backend *b, void *scene_, int threads, op_answer *a)
{
    const scene *c = scene_;
    const spx_coadd_input in = input_of(&c->x);
    const spx_coadd_options o = {.method = c->method,
                                 .reject = c->all ? 5 : 0,
                                 .scale = c->all,
                                 .ndiag_out = spx_coadd_diagonals(c->method, c->x.ndiag),
                                 .nthreads = threads};
    spx_coadd *out = op_output("coadd", 1, sizeof *out);
    spx_err e = {0};
    if (op_done(b->coadd(b, &in, &o, out, &e), &e)) {
        const size_t n = out->ntarget * out->nwave;
        double *of_flux, *of_ivar, *flux = op_add(a, "flux", n, FAR, &of_flux);
        double *ivar = op_add(a, "ivar", n, FAR, &of_ivar);
        memcpy(flux, out->flux, n * sizeof *flux);
        memcpy(ivar, out->ivar, n * sizeof *ivar);
        scales_of(n, ivar, of_flux, of_ivar);
        double *mask = op_add(a, "mask", n, 0, NULL);
        for (size_t i = 0; i < n; i++)
            mask[i] = out->mask[i];
        double *rejected = op_add(a, "rejected", out->nexp, 0, NULL), *good = op_add(a, "good", out->nexp, 0, NULL);
        for (size_t i = 0; i < out->nexp; i++) {
            rejected[i] = out->rejected[i];
            good[i] = out->good[i];
        }
        double *optimal = op_add(a, "optimal", out->ntarget, 0, NULL);
        for (size_t t = 0; t < out->ntarget; t++)
            optimal[t] = out->optimal[t];
        op_put(a, "spread", out->ntarget, out->spread, 1e-10);
        op_put(a, "scale", out->nexp, out->scale, 1e-8);
        op_put(a, "chi2", out->nexp, out->chi2, 1e-6);
        if (out->ndiag > 0)
            op_put(a, "resolution", out->ntarget * out->ndiag * out->nwave, out->resolution, FAR_ROW);
    }
    spx_coadd_free(out);
}

static void reference(void *scene_, op_answer *a)
{
    const scene *c = scene_;
    const exposures *x = &c->x;
    const size_t n = x->nwave, ndiag = spx_coadd_diagonals(c->method, x->ndiag), h = ndiag / 2;
    if (c->all || c->method == SPX_COADD_AUTO)
        return;
    double *of_flux, *of_ivar, *flux = op_add(a, "flux", x->ntarget * n, FAR, &of_flux);
    double *ivar = op_add(a, "ivar", x->ntarget * n, FAR, &of_ivar);
    double *res = ndiag > 0 ? op_add(a, "resolution", x->ntarget * ndiag * n, FAR_ROW, NULL) : NULL;
    double *r = memory_for(n * n, sizeof *r);
    for (size_t t = 0; t < x->ntarget; t++) {
        if (c->method == SPX_COADD_SIMPLE)
            dense_simple(x, t, flux + t * n, ivar + t * n, r);
        else
            dense_optimal(x, t, flux + t * n, ivar + t * n, r);
        scales_of(n, ivar + t * n, of_flux + t * n, of_ivar + t * n);
        for (size_t k = 0; k < n && c->method == SPX_COADD_OPTIMAL; k++) { /* rows sum to 1 as far as they are kept */
            double kept = 0;
            for (size_t j = k > h ? k - h : 0; j < n && j <= k + h; j++)
                kept += r[k * n + j];
            for (size_t j = 0; j < n && fabs(kept - 1) < 0.01; j++)
                r[k * n + j] /= kept;
        }
        for (size_t b = 0; b < ndiag; b++)
            for (size_t j = 0; j < n; j++) {
                const long k = (long)j + (long)b - (long)h;
                res[(t * ndiag + b) * n + j] = k < 0 || k >= (long)n ? 0 : r[(size_t)k * n + j];
            }
        if (x->first[t + 1] - x->first[t] > 1)
            continue;
        for (size_t i = 0; i < n; i++) /* the only exposure is copied */
            flux[t * n + i] = ivar[t * n + i] = NAN;
        for (size_t i = 0; i < ndiag * n; i++)
            res[t * ndiag * n + i] = NAN;
    }
    spx_free(r);
}

static void release(void *scene_)
{
    scene *c = scene_;
    exposures_free(&c->x);
    spx_free(c);
}

const op_test op_coadd = {sizeof cases / sizeof *cases, cases, draw, run, reference, release};
