/* Provides the steps of the fibre flat field that a backend computes; what decides is common (flat_common.c). */
#ifndef SPX_FLAT_ENGINE_H
#define SPX_FLAT_ENGINE_H

#include "calib/series.h"
#include "flat/flat.h"

/* Splines at the bins. */
typedef struct {
    spx_bspline spline;
    size_t nint;     /* intervals: nspline - 3 */
    size_t *begin;   /* [nint+1]: bins of interval t are begin[t] ... begin[t+1]-1 */
    uint32_t *first; /* [nwave]: first of the four splines, which is the interval */
    double *basis;   /* [nwave][4] */
    size_t nblock;   /* of the start (flat_math.h) */
} spx_flat_plan;

/* Results of a pass. */
typedef struct {
    double *y;       /* [nexp][nwave]: sum_i R^T w F (D - F R m) over fibres in use */
    double *v;       /* [nexp][nwave]: sum_i w F^2 */
    double *level;   /* [nspec]: sum w x D / sum w x^2 of all exposures; 0: no light */
    double *t, *s;   /* [nexp]: sum w f D, sum w f^2 with f = F R m over fibres in use */
    uint32_t *count; /* [nspec][nint]: bins that have a good exposure */
} spx_flat_pass;

/* Results at the end. */
typedef struct {
    double *flat;              /* [nspec][nwave] */
    double *variance;          /* [nspec][nwave], of the splines and of single bins */
    double *mean;              /* [nexp][nwave]: sum_i (R m)_k over fibres in use */
    double *chi2;              /* [nexp][nspec] */
    uint32_t *nused, *nreject; /* [nexp][nspec] bins */
    uint32_t *nnative;         /* [nspec] */
} spx_flat_end;

/* A backend's steps. F of a step is what the last pass() made; use[nspec]: fibres of the common spectrum. */
typedef struct {
    void *self;
    /* F from level[nspec][nblock], states of the bins from the fibres' median[nexp][nwave]; y and v of lamp 0. */
    spx_status (*begin)(void *self, const double *level, const double *median, const uint8_t *use, spx_flat_pass *out,
                        spx_err *e);
    /* a[nexp][ndiag][nwave]: sum_i R^T (w F^2) R by diagonals. */
    spx_status (*normal)(void *self, const uint8_t *use, double *a, spx_err *e);
    /* New F for lamp[nexp][nwave], rejection, and all of *out. */
    spx_status (*pass)(void *self, const double *lamp, const uint8_t *use, spx_flat_pass *out, spx_err *e);
    /* mean[nwave]: of F over the nref fibres ref; change[nwave]: largest |F/mean - the same before| of these. */
    spx_status (*normalise)(void *self, const uint8_t *ref, size_t nref, double *mean, double *change, spx_err *e);
    spx_status (*end)(void *self, const uint8_t *use, spx_flat_end *out, spx_err *e);
    double (*seconds)(void *self); /* of the device's kernels; NULL: not measured */
} spx_flat_engine;

spx_status spx_flat_plan_make(const spx_flat_input *in, const spx_flat_options *o, spx_flat_plan *plan, spx_err *e);
void spx_flat_plan_free(spx_flat_plan *plan);

/* The whole flat field by an engine; contract of spx_flat_cpu(). */
spx_status spx_flat_run(const spx_flat_engine *engine, const spx_flat_plan *plan, const spx_flat_input *in,
                        const spx_flat_options *o, spx_flat *out, spx_flat_counts *counts, spx_err *e);

#endif
