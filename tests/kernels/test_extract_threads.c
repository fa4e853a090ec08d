/* Checks the driver of the trace method that the CPU and the CUDA backend share (spx_trace_solve_bundles()), with bins
 * of less than a pixel and with traces that cross. Bundles from a list have the bits of the whole frame, others are
 * left alone, and neither depends on the threads of OpenMP or OpenBLAS, also where LAPACK solves, and where threads
 * share a bundle. */
#include <cblas.h>
#include <stdatomic.h>

#include "extract_scene.h"
#include "num/blas.h"

enum { NSPEC = 6, BUNDLE = 2, NBUNDLE = 3 };

/* ---- kernels whose conjugate gradients never converge, so that every bundle takes the direct solver ---- */

static atomic_int calls, most_threads;

static spx_status never_solves(const spx_trace_plan *p, spx_trace_bundle *b, spx_trace_workspace *r, int *solved,
                               spx_err *e)
{
    (void)p;
    (void)b;
    (void)r;
    (void)e;
    const int n = openblas_get_num_threads();
    atomic_fetch_add(&calls, 1);
    if (n > atomic_load(&most_threads))
        atomic_store(&most_threads, n);
    *solved = 0;
    return SPX_OK;
}

/* ---- scenes ---- */

static scene make_narrow(void)
{
    small_psf_shape shape = small_psf_default();
    shape.nspec = NSPEC;
    shape.pitch = 6.5;
    scene s = make_scene(small_psf(&shape), 90, 75, shape.wmin, shape.wmax, 0.45);
    s.o.bundle_size = BUNDLE;
    return s;
}

/* In each bundle the first trace crosses the other. */
static scene make_crossing(void)
{
    scene s = make_narrow();
    s.o.dw = STEP;
    for (size_t f = 0; f < NSPEC; f += BUNDLE) {
        s.psf->x.coef[f * s.psf->x.ncoef] += 6.5;
        s.psf->x.coef[f * s.psf->x.ncoef + 1] = 9.0;
    }
    return s;
}

/* ---- checks ---- */

/* Bundles with chosen[i] from a frame full of sevens: their bits are those of `all`, sevens stay elsewhere. */
static void check_chosen(const scene *s, const spx_frame *all, const int *chosen, const char *what)
{
    spx_extract_job job;
    spx_trace_layout l = {0};
    spx_frame part = {0};
    spx_extract_counts counts;
    spx_err e = {0};
    const int before = openblas_get_num_threads();
    CHECK(spx_extract_begin(&s->image, s->psf, &s->o, &job, &part, &counts, &e) == SPX_OK &&
              spx_trace_layout_make(&job, &l, &e) == SPX_OK && l.nbundle == NBUNDLE,
          "%s: %s", what, spx_err_text(&e));
    if (e.code != SPX_OK)
        return;
    l.plan.job = &job;
    const size_t nw = job.nwave, nd = part.arm.ndiag;
    for (size_t i = 0; i < NSPEC * nw; i++)
        part.arm.flux[i] = part.arm.ivar[i] = part.chi2pix[i] = 7.0;
    for (size_t i = 0; i < NSPEC * nw * nd; i++)
        part.arm.resolution[i] = 7.0;
    CHECK(spx_trace_solve_bundles(&l.plan, l.nbundle, l.list, chosen, &part, &counts, &e) == SPX_OK, "%s: %s", what,
          spx_err_text(&e));
    CHECK(openblas_get_num_threads() == before, "%s: OpenBLAS is left with %d threads in place of %d", what,
          openblas_get_num_threads(), before);
    for (size_t f = 0; f < NSPEC; f++) {
        if (chosen[f / BUNDLE])
            continue;
        size_t changed = 0;
        for (size_t i = f * nw; i < (f + 1) * nw; i++) {
            changed += part.arm.flux[i] != 7.0 || part.arm.ivar[i] != 7.0 || part.chi2pix[i] != 7.0;
            part.arm.flux[i] = part.arm.ivar[i] = part.chi2pix[i] = 0.0;
        }
        for (size_t i = f * nw * nd; i < (f + 1) * nw * nd; i++) {
            changed += part.arm.resolution[i] != 7.0;
            part.arm.resolution[i] = 0.0;
        }
        CHECK(changed == 0, "%s: fibre %zu, which was not chosen, changed at %zu places", what, f, changed);
    }
    CHECK(spx_extract_end(&job, &part, &counts, &e) == SPX_OK, "%s: %s", what, spx_err_text(&e));
    for (size_t i = 0; i < NBUNDLE; i++)
        CHECK(!chosen[i] || same_rows(all, i * BUNDLE, &part, i * BUNDLE, BUNDLE), "%s: bundle %zu differs", what, i);
    spx_frame_free(&part);
    spx_trace_layout_free(&l);
    spx_extract_job_free(&job);
}

static void check_scene(scene *s, const char *what)
{
    static const int chosen[][NBUNDLE] = {{1, 0, 1}, {0, 1, 0}};
    spx_err e = {0};
    CHECK(spx_blas_open(&e) == SPX_OK, "%s: %s", what, spx_err_text(&e));
    s->o.nthreads = 1;
    result one = extract(s, 0, what);
    CHECK(one.counts.npatch_failed == 0, "%s: %zu traces failed", what, one.counts.npatch_failed);
    for (int threads = 1; one.status == SPX_OK && threads <= 4; threads += 3) {
        openblas_set_num_threads(threads);
        s->o.nthreads = 3;
        result again = extract(s, 0, what);
        CHECK(again.status == SPX_OK && same_rows(&one.frame, 0, &again.frame, 0, NSPEC),
              "%s: %d threads, %d of OpenBLAS: differs", what, s->o.nthreads, threads);
        spx_frame_free(&again.frame);
        check_chosen(s, &one.frame, chosen[threads > 1], what);
    }
    spx_frame_free(&one.frame);
}

/* One bundle of all fibres, in vectors as short as there are: threads without a bundle take parts of it. */
static void check_shared(const scene *from, const char *what)
{
    scene s = *from;
    s.o.bundle_size = NSPEC;
    s.o.nthreads = 1;
    spx_trace_forced = spx_trace_kernels_base();
    result one = extract(&s, 0, what);
    for (s.o.nthreads = 2; s.o.nthreads <= 9 && one.status == SPX_OK; s.o.nthreads += 7)
        for (int again = 0; again < 4; again++) { /* shared out otherwise each time */
            result r = extract(&s, 0, what);
            CHECK(r.status == SPX_OK && same_rows(&one.frame, 0, &r.frame, 0, NSPEC), "%s: one bundle, %d threads",
                  what, s.o.nthreads);
            spx_frame_free(&r.frame);
        }
    spx_frame_free(&one.frame);
    spx_trace_forced = NULL;
}

int main(void)
{
    const spx_trace_kernels *usual = spx_trace_kernels_avx512();
    usual = usual ? usual : spx_trace_kernels_avx2();
    usual = usual ? usual : spx_trace_kernels_base();
    spx_trace_kernels direct = *usual;
    direct.solve = never_solves;
    scene narrow = make_narrow(), crossing = make_crossing();
    check_scene(&narrow, "narrow bins");
    check_scene(&crossing, "traces that cross");
    check_shared(&narrow, "narrow bins");
    check_shared(&crossing, "traces that cross");
    spx_trace_forced = &direct;
    check_scene(&crossing, "traces that cross, solved by LAPACK");
    spx_trace_forced = NULL;
    CHECK(atomic_load(&calls) > 0 && atomic_load(&most_threads) == 1,
          "%d bundles solved by LAPACK, with up to %d threads of OpenBLAS", atomic_load(&calls),
          atomic_load(&most_threads));
    free_scene(&narrow);
    free_scene(&crossing);
    return failures != 0;
}
