/* Checks the hook of the extraction, on the CPU or on the device $SPX_TEST_DEVICE: it sees the frame of the result, to
 * the last bit; on a device before anything is copied to the host, and without copies; its changes are in the
 * result. */
#include "backend.h"
#include "device.h"
#include "device_memory.h"
#include "extract_scene.h"

enum { MOST = 40000 };

static spx_backend backend;

typedef struct {
    size_t calls, left, nbin, ndiag;
    size_t to_host; /* when it was called */
    spx_status answer;
    int change, spoil;
    double flux[MOST], ivar[MOST], chi2pix[MOST], fraction[MOST], resolution[MOST * 8], wavelength[MOST];
    uint32_t mask[MOST];
    int32_t fiber[MOST];
} notes;

static void take(const spx_hook_step_info *s, const char *name, int writable, size_t room, size_t size, void *to)
{
    const spx_hook_array *a = array_of(s, name);
    size_t n = 1;
    for (int i = 0; a != NULL && i < a->ndim; i++)
        n *= a->shape[i];
    CHECK(a != NULL && spx_hook_type_size(a->type) == size && a->writable == writable && a->stride[0] == 0 &&
              n <= room && peek(&s->at, to, a->data, n * size),
          "array %s", name);
}

static spx_status note(struct spx_hook *h, const spx_hook_step_info *s, spx_err *e)
{
    notes *n = h->state;
    const int cuda = getenv("SPX_TEST_DEVICE") != NULL;
    n->calls++;
    n->to_host = copied_so_far(&backend).to_host;
    CHECK(strcmp(s->stage, "extract") == 0 && s->narray == 8, "stage %s, %zu arrays", s->stage, s->narray);
    CHECK((s->at.device >= 0) == cuda && (s->at.stream != NULL) == cuda, "device %d", s->at.device);
    const spx_hook_array *flux = array_of(s, "flux"), *resolution = array_of(s, "resolution");
    if (flux == NULL || resolution == NULL || flux->ndim != 2 || resolution->ndim != 3)
        return spx_fail(e, SPX_EBUG, "no flux or resolution");
    n->nbin = flux->shape[0] * flux->shape[1];
    n->ndiag = resolution->shape[1];
    take(s, "flux", 1, MOST, sizeof *n->flux, n->flux);
    take(s, "ivar", 1, MOST, sizeof *n->ivar, n->ivar);
    take(s, "mask", 1, MOST, sizeof *n->mask, n->mask);
    take(s, "resolution", 1, (size_t)MOST * 8, sizeof *n->resolution, n->resolution);
    take(s, "chi2pix", 0, MOST, sizeof *n->chi2pix, n->chi2pix);
    take(s, "pixmask_fraction", 0, MOST, sizeof *n->fraction, n->fraction);
    take(s, "wavelength", 0, MOST, sizeof *n->wavelength, n->wavelength);
    take(s, "fiber", 0, MOST, sizeof *n->fiber, n->fiber);
    if (n->change) {
        const double other = n->spoil ? NAN : 17.25;
        CHECK(poke(&s->at, (double *)flux->data + 5, &other, sizeof other), "cannot write");
    }
    return n->answer != SPX_OK ? spx_fail(e, n->answer, "on purpose") : SPX_OK;
}

static void leave(struct spx_hook *h)
{
    ((notes *)h->state)->left++;
}

/* An extraction with a hook that takes these notes, or without one. */
static spx_status run_hooked(const scene *s, notes *n, spx_frame *out, size_t *to_host)
{
    spx_hook hook = {.step = note, .leave = leave, .state = n, .writable = n != NULL && n->change};
    spx_extract_options o = s->o;
    spx_extract_counts counts = {0};
    spx_err e = {0};
    *out = (spx_frame){0};
    o.hook = n != NULL ? &hook : NULL;
    const size_t before = copied_so_far(&backend).to_host;
    spx_status st = backend.extract(&backend, &s->image, s->psf, &o, out, &counts, &e);
    *to_host = copied_so_far(&backend).to_host - before;
    if (n != NULL)
        CHECK(n->calls == 1 && n->left == 1, "%zu calls, left %zu times: %s", n->calls, n->left, spx_err_text(&e));
    if (n != NULL && n->calls > 0)
        n->to_host -= before;
    return st;
}

static int same(const void *a, const void *b, size_t n, size_t size)
{
    return memcmp(a, b, n * size) == 0;
}

static void check(const scene *s, const char *what)
{
    notes *n = need(1, sizeof *n), *w = need(1, sizeof *w);
    spx_frame plain, seen, changed;
    size_t without, with;
    CHECK(run_hooked(s, NULL, &plain, &without) == SPX_OK && run_hooked(s, n, &seen, &with) == SPX_OK, "%s: failed",
          what);
    const size_t nbin = plain.nspec * plain.arm.nwave, ndiag = plain.arm.ndiag;
    CHECK(n->nbin == nbin && n->ndiag == ndiag, "%s: %zu bins, %zu diagonals", what, n->nbin, n->ndiag);
    if (failures == 0) {
        CHECK(same(plain.arm.flux, seen.arm.flux, nbin, sizeof(double)) &&
                  same(plain.arm.ivar, seen.arm.ivar, nbin, sizeof(double)) &&
                  same(plain.arm.mask, seen.arm.mask, nbin, sizeof(uint32_t)) &&
                  same(plain.arm.resolution, seen.arm.resolution, nbin * ndiag, sizeof(double)) &&
                  same(plain.chi2pix, seen.chi2pix, nbin, sizeof(double)) &&
                  same(plain.pixmask_fraction, seen.pixmask_fraction, nbin, sizeof(double)),
              "%s: a hook that only looks changes the result", what);
        CHECK(same(n->flux, seen.arm.flux, nbin, sizeof(double)) &&
                  same(n->ivar, seen.arm.ivar, nbin, sizeof(double)) &&
                  same(n->mask, seen.arm.mask, nbin, sizeof(uint32_t)) &&
                  same(n->resolution, seen.arm.resolution, nbin * ndiag, sizeof(double)) &&
                  same(n->chi2pix, seen.chi2pix, nbin, sizeof(double)) &&
                  same(n->fraction, seen.pixmask_fraction, nbin, sizeof(double)) &&
                  same(n->wavelength, seen.arm.wavelength, seen.arm.nwave, sizeof(double)) &&
                  same(n->fiber, seen.fiber, seen.nspec, sizeof(int32_t)),
              "%s: the hook saw another frame", what);
        CHECK((plain.model == NULL) == (seen.model == NULL) &&
                  (plain.model == NULL ||
                   same(plain.model, seen.model, plain.model_ny * plain.model_nx, sizeof *plain.model)),
              "%s: the model image is another one", what);
    }
    if (backend.copied != NULL) {
        /* besides masks and a count, and the flux once more for the model, the frame comes to the host once, afterwards
         */
        const size_t more = nbin * (sizeof(uint32_t) + (s->o.want_model ? sizeof(double) : 0)) + 4096;
        CHECK(with <= without + more, "%s: %zu bytes came to the host, %zu without a hook", what, with, without);
        CHECK(n->to_host < (s->o.want_model ? nbin * sizeof(double) : 0) + 4096,
              "%s: %zu bytes had come to the host when the hook was called", what, n->to_host);
    }
    w->change = 1;
    CHECK(run_hooked(s, w, &changed, &with) == SPX_OK && changed.arm.flux[5] == 17.25 && seen.arm.flux[5] != 17.25 &&
              changed.arm.flux[6] == seen.arm.flux[6],
          "%s: what the hook wrote is not there", what);
    spx_frame_free(&changed);
    *w = (notes){.change = 1, .spoil = 1};
    CHECK(run_hooked(s, w, &changed, &with) == SPX_EHOOK, "%s: NaN is taken", what);
    spx_frame_free(&changed);
    *w = (notes){.answer = SPX_EHOOK};
    CHECK(run_hooked(s, w, &changed, &with) == SPX_EHOOK, "%s: a hook that fails", what);
    spx_frame_free(&changed);
    spx_frame_free(&plain);
    spx_frame_free(&seen);
    spx_free(n);
    spx_free(w);
}

int main(void)
{
    small_psf_shape shape = small_psf_default();
    shape.pitch = 7.0;
    open_device(&backend, SPX_OP_EXTRACT);
    scene s = make_small(&shape);
    check(&s, "clean");
    s.o.want_model = 1;
    check(&s, "with a model");
    s.o.want_model = 0;
    add_masks(&s);
    check(&s, "masked");
    s.o.first = 1;
    s.o.nspec -= 2;
    check(&s, "some fibres");
    free_scene(&s);
    /* equations that a device leaves to the host: traces on each other */
    shape.pitch = 1.5;
    s = make_small(&shape);
    check(&s, "traces that cross");
    free_scene(&s);
    spx_backend_close(&backend);
    return failures != 0;
}
