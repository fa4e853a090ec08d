/* Checks plans of extraction that are kept for a queue: one is reused if and only if a new one would be equal. */
#include "extract_scene.h"

static void check_fit(const spx_trace_layout *l, const scene *s, int expected, const char *what)
{
    spx_extract_job job;
    spx_extract_counts counts;
    spx_err e = {0};
    CHECK(spx_extract_check_input(&s->image, s->psf, &s->o, &job, &counts, &e) == SPX_OK, "%s: %s", what,
          spx_err_text(&e));
    CHECK(spx_trace_layout_fits(l, &job) == expected, "%s: seed %llu: fits %d", what, (unsigned long long)seed,
          !expected);
    spx_extract_job_free(&job);
}

/* Numbers of the PSF, each at one place. */
static void check_psf(const spx_trace_layout *l, const scene *s)
{
    spx_psf *p = s->psf;
    double *const number[] = {&p->x.wmin,
                              &p->x.wmax,
                              &p->y.wmin,
                              &p->y.wmax,
                              &p->wmin,
                              &p->wmax,
                              &p->x.coef[1],
                              &p->y.coef[p->nspec * p->y.ncoef - 1],
                              &p->coeff[((size_t)p->sigx * p->nspec + 1) * p->ndeg]};
    for (size_t i = 0; i < sizeof number / sizeof *number; i++) {
        const double was = *number[i];
        *number[i] = nextafter(was, was + 1.0);
        check_fit(l, s, 0, "a number of the PSF");
        *number[i] = was;
    }
    const int gh = p->gh[0];
    p->gh[0] = -1;
    check_fit(l, s, 0, "a parameter of the PSF");
    p->gh[0] = gh;
    p->hsizex++;
    check_fit(l, s, 0, "size of a spot");
    p->hsizex--;
    p->psferr *= 2.0; /* not of the plan */
    check_fit(l, s, 1, "error of the PSF");
}

static void check_options(const spx_trace_layout *l, const scene *s)
{
    scene other = *s;
#define OTHER(member, value, fits)                                                                                     \
    do {                                                                                                               \
        other.o.member = (value);                                                                                      \
        check_fit(l, &other, fits, #member);                                                                           \
        other.o.member = s->o.member;                                                                                  \
    } while (0)
    OTHER(nspec, s->o.nspec - 1, 0);
    OTHER(wmin, s->o.wmin + 1e-9, 0);
    OTHER(wmax, s->o.wmax + 2.0, 0);
    OTHER(dw, s->o.dw * 1.01, 0);
    OTHER(bundle_size, s->o.bundle_size + 1, 0);
    OTHER(wave_pad, s->o.wave_pad + 1, 0);
    OTHER(pix_pad_frac, 0.5, 0);
    OTHER(tolerance, 1e-7, 0);
    OTHER(regularize, 0.1, 1);
    OTHER(nthreads, 3, 1);
    OTHER(want_model, 1, 1);
#undef OTHER
    other.o.first = 1;
    other.o.nspec--;
    check_fit(l, &other, 0, "first");
    other = *s;
    other.image.ny--;
    check_fit(l, &other, 0, "rows of the image");
    other = *s;
    other.image.nx--;
    check_fit(l, &other, 0, "columns of the image");
}

int main(void)
{
    small_psf_shape shape = small_psf_default();
    scene s = make_small(&shape), same = make_small(&shape);
    spx_extract_job job;
    spx_extract_counts counts;
    spx_trace_layout l = {0};
    spx_err e = {0};
    CHECK(spx_extract_check_input(&s.image, s.psf, &s.o, &job, &counts, &e) == SPX_OK &&
              spx_trace_layout_make(&job, &l, &e) == SPX_OK,
          "%s", spx_err_text(&e));
    check_fit(&l, &s, 1, "itself");
    check_fit(&l, &same, 1, "the same numbers elsewhere");
    check_psf(&l, &s);
    check_options(&l, &s);

    /* its bundles are those of a frame alone */
    spx_trace_plan plan;
    spx_trace_bundle *list = spx_alloc(l.nbundle, sizeof *list, &e);
    CHECK(list && spx_trace_plan_make(&job, NULL, &plan, &e) == SPX_OK &&
              spx_trace_bundles_make(&plan, l.nbundle, list, 1, &e) == SPX_OK,
          "%s", spx_err_text(&e));
    for (size_t b = 0; b < l.nbundle; b++) {
        const spx_trace_bundle *x = &l.list[b], *y = &list[b];
        const size_t n = plan.nbin * y->nf;
        CHECK(x->fibre0 == y->fibre0 && x->nf == y->nf && x->reach == y->reach && x->nelem == y->nelem &&
                  memcmp(x->state, y->state, n) == 0 && memcmp(x->at, y->at, n * sizeof *x->at) == 0,
              "bundle %zu differs", b);
        spx_trace_bundle_free(&list[b]);
    }
    CHECK(l.nbundle > 1 && l.plan.job == NULL, "%zu bundles", l.nbundle);
    spx_free(list);
    spx_trace_plan_free(&plan);
    spx_trace_layout_free(&l);
    spx_extract_job_free(&job);
    free_scene(&same);
    free_scene(&s);
    return failures != 0;
}
