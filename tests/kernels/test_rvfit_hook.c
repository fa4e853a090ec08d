/* Checks the hook of the fit, on the CPU or on the device $SPX_TEST_DEVICE: it sees all stars once and in their order,
 * with the numbers that the result holds and with residuals that are those of data and models; on a device these are
 * computed there, no more bytes come to the host than without it, and no arrays of pixels go back. */
#include "device_memory.h"
#include "rv_stars.h"

enum { DRAWN = 6, NROW = 90, NSTAR = 70, SPOILT = 4 };

typedef struct {
    size_t calls, left, fail_at, nstar, nrow;
    double vrad[NSTAR], teff[NSTAR];
    size_t first[NSTAR], row[NROW];
    float residual[NARM][NROW * NPIX], model[NARM][NROW * NPIX];
} notes;

static spx_spectra spectra;

/* n elements of an array with any strides along its first axis, into `to`. */
static void take(const spx_hook_step_info *s, const char *name, size_t n, size_t size, void *to)
{
    const spx_hook_array *a = array_of(s, name);
    CHECK(a != NULL && a->shape[0] == n && spx_hook_type_size(a->type) == size && !a->writable, "array %s", name);
    for (size_t i = 0; a != NULL && i < n; i++)
        CHECK(peek(&s->at, (char *)to + i * size,
                   (const char *)a->data + (ptrdiff_t)i * (a->stride[0] != 0 ? a->stride[0] : (ptrdiff_t)size), size),
              "array %s", name);
}

static spx_status note(struct spx_hook *h, const spx_hook_step_info *s, spx_err *e)
{
    notes *n = h->state;
    const int cuda = getenv("SPX_TEST_DEVICE") != NULL;
    const spx_hook_array *vrad = array_of(s, "vrad"), *row = array_of(s, "row");
    n->calls++;
    CHECK(strcmp(s->stage, "rvfit") == 0 && s->number == n->calls && s->total == 0, "call %zu is number %zu", n->calls,
          s->number);
    CHECK((s->at.device >= 0) == cuda && (s->at.stream != NULL) == cuda, "device %d", s->at.device);
    if (vrad == NULL || row == NULL || n->nstar + vrad->shape[0] > NSTAR || n->nrow + row->shape[0] > NROW)
        return spx_fail(e, SPX_EBUG, "no velocities, or too many stars");
    const size_t nstar = vrad->shape[0], nrow = row->shape[0];
    take(s, "vrad", nstar, sizeof(double), n->vrad + n->nstar);
    take(s, "par", nstar, sizeof(double), n->teff + n->nstar);
    take(s, "first", nstar, sizeof(size_t), n->first + n->nstar);
    take(s, "row", nrow, sizeof(size_t), n->row + n->nrow);
    for (size_t k = n->nstar; k < n->nstar + nstar; k++)
        n->first[k] += n->nrow;
    for (size_t a = 0; a < NARM; a++) {
        const struct {
            const char *name;
            float *to;
        } pixels[] = {{a ? "residual_r" : "residual_b", n->residual[a]}, {a ? "model_r" : "model_b", n->model[a]}};
        for (size_t i = 0; i < 2; i++) {
            const spx_hook_array *x = array_of(s, pixels[i].name);
            CHECK(x != NULL && x->type == SPX_HOOK_FLOAT32 && x->ndim == 2 && x->shape[0] == nrow &&
                      x->shape[1] == NPIX && x->stride[0] == 0 &&
                      peek(&s->at, pixels[i].to + n->nrow * NPIX, x->data, nrow * NPIX * sizeof(float)),
                  "array %s", pixels[i].name);
        }
        double wavelength[NPIX];
        take(s, a ? "wavelength_r" : "wavelength_b", NPIX, sizeof(double), wavelength);
        CHECK(memcmp(wavelength, spectra.arm[a].wavelength, sizeof wavelength) == 0, "wavelengths of arm %zu", a);
    }
    n->nstar += nstar;
    n->nrow += nrow;
    return n->calls == n->fail_at ? spx_fail(e, SPX_EHOOK, "on purpose") : SPX_OK;
}

static void leave(struct spx_hook *h)
{
    notes *n = h->state;
    n->left++;
    CHECK(n->left == n->calls, "left %zu times after %zu calls", n->left, n->calls);
}

/* Residuals of a row: those of data and model where the fit used the pixel. */
static void check_row(const notes *n, size_t r, int bad)
{
    for (size_t a = 0; a < NARM; a++) {
        const spx_arm *data = &spectra.arm[a];
        for (size_t i = 0; i < NPIX; i++) {
            const size_t at = n->row[r] * NPIX + i;
            const double model = (double)n->model[a][r * NPIX + i];
            double want = (data->flux[at] - model) * sqrt(data->ivar[at]);
            if (data->mask[at] != 0 || bad)
                want = 0;
            CHECK(fabs((double)n->residual[a][r * NPIX + i] - want) < 1e-4, "row %zu, arm %zu, pixel %zu: %g, not %g",
                  r, a, i, (double)n->residual[a][r * NPIX + i], want);
        }
    }
}

static void check_all(const notes *n, const spx_rvfit *out)
{
    CHECK(n->nstar == out->nstar && n->nrow == out->nrow, "%zu stars, %zu rows", n->nstar, n->nrow);
    for (size_t k = 0; k < n->nstar; k++) {
        const int bad = (out->star[k].warn & SPX_RVS_BAD) != 0;
        CHECK(bad ? isnan(n->vrad[k]) : n->vrad[k] == out->star[k].vrad && n->teff[k] == out->star[k].par[0],
              "star %zu: %g, %g", k, n->vrad[k], out->star[k].vrad);
        CHECK(n->first[k] == out->first[k], "star %zu begins with row %zu", k, n->first[k]);
        for (size_t r = out->first[k]; r < out->first[k + 1] && failures == 0; r++)
            check_row(n, r, bad);
    }
    for (size_t r = 0; r < n->nrow; r++)
        CHECK(n->row[r] == out->row[r], "row %zu", r);
    for (size_t a = 0; a < NARM; a++) {
        CHECK(memcmp(n->model[a], out->arm[a].model, NROW * NPIX * sizeof(float)) == 0, "models of arm %zu", a);
        CHECK(out->arm[a].residual == NULL, "residuals are left");
    }
}

static void check(spx_templates *t, spx_interpolator which)
{
    static notes n, bad;
    spx_hook hook = {.step = note, .leave = leave, .state = &n};
    spx_rvfit_options o;
    spx_rvfit plain, out;
    spx_err e = {0};
    size_t row[NROW], first[NSTAR + 1];
    alloc_spectra(&spectra, DRAWN);
    for (size_t i = 0; i < DRAWN; i++) {
        draw(&spectra, i,
             &(truth){-100 + 50 * (double)i, 0, 4800 + 250 * (double)i, -0.3 * (double)i, 20 + 10 * (double)i});
        for (size_t a = 0; a < NARM; a++)
            spectra.arm[a].mask[i * NPIX + 17 * (i + 1)] = 1;
    }
    for (size_t a = 0; a < NARM; a++)
        for (size_t i = 0; i < NPIX; i++)
            spectra.arm[a].ivar[SPOILT * NPIX + i] = 0;
    for (size_t i = 0; i < NROW; i++)
        row[i] = (7 * i + 1) % DRAWN;
    for (size_t k = 0; k <= NSTAR; k++) /* the first twenty stars have two exposures */
        first[k] = k < NROW - NSTAR ? 2 * k : k + NROW - NSTAR;
    n = bad = (notes){0};
    interpolator = which;
    init(&o);
    o.keep_model = 1;
    o.threads = 2;
    spx_rvfit_input in = input_of(&spectra, t);
    in.row = row;
    in.nrow = NROW;
    in.first = first;
    in.nstar = NSTAR;

    const copied_bytes begin = copied_so_far(&backend);
    NEED(backend.rvfit(&backend, &in, &o, NULL, &plain, &need_e));
    const copied_bytes middle = copied_so_far(&backend);
    o.hook = &hook;
    NEED(backend.rvfit(&backend, &in, &o, NULL, &out, &need_e));
    const copied_bytes end = copied_so_far(&backend);
    CHECK(end.to_host - middle.to_host == middle.to_host - begin.to_host,
          "%zu bytes came to the host, %zu without a hook", end.to_host - middle.to_host,
          middle.to_host - begin.to_host);
    const size_t more = (end.to_device - middle.to_device) - (middle.to_device - begin.to_device);
    /* the stars' results and the wavelengths; models and residuals are there */
    const size_t table = NSTAR * (sizeof *out.star + sizeof *out.first) + NROW * sizeof *out.row;
    const size_t lists = NROW * NARM * 4 * sizeof(size_t) + n.calls * NARM * NPIX * sizeof(double);
    CHECK(more < table + lists, "%zu more bytes went to the device, the tables are %zu", more, table + lists);
    CHECK(memcmp(plain.star, out.star, NSTAR * sizeof *out.star) == 0, "a hook that only looks changes the result");
    CHECK(backend.copied == NULL ? n.calls == 1 : n.calls > 1, "%zu calls", n.calls);
    check_all(&n, &out);
    spx_rvfit_free(&out);
    spx_rvfit_free(&plain);

    bad.fail_at = n.calls;
    hook = (spx_hook){.step = note, .leave = leave, .state = &bad};
    CHECK(backend.rvfit(&backend, &in, &o, NULL, &out, &e) == SPX_EHOOK, "a hook that fails: %s", spx_err_text(&e));
    CHECK(bad.calls == bad.fail_at && bad.left == bad.calls, "%zu calls, left %zu times", bad.calls, bad.left);
    free_spectra(&spectra);
}

static void body(spx_templates *t)
{
    check(t, SPX_INTERPOLATE_CUBIC);
    check(t, SPX_INTERPOLATE_GRID);
}

int main(void)
{
    return rv_test(body);
}
