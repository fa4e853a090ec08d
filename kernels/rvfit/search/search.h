/* The search for the minimum of each star, once for all backends. An engine computes, for many stars at a time, their
 * objective with derivatives, the objective at other velocities, models; the search chooses the points. Results of a
 * star depend on no other star.
 *
 * A group is the stars that one thread of the host fits together. */
#ifndef SPX_RVFIT_SEARCH_H
#define SPX_RVFIT_SEARCH_H

#include "rvfit/model/model.h"
#include "rvfit/search/candidates.h"

/* A start: internal point, and the objective there where that was computed. */
typedef struct {
    double x[SPX_MAX_FIT], f;
} spx_rv_start;

/* What a search found. */
typedef struct spx_rv_minimum {
    double x[SPX_MAX_FIT];
    spx_rv_value at;
    int converged;
} spx_rv_minimum;

/* Pixels with more than this times the median error are not correlated. */
#define SPX_RV_CCF_MAX_ERROR 10.0

/* Starts from the cross-correlation of one star. */
void spx_rv_correlate(spx_rv_spectra *w, spx_rv_candidates *candidates);
spx_rv_set spx_rv_set_of(const spx_rv_ctx *c);
/* Cross-correlation of one piece with an entry of the set, out[nlag]: what is taken off its chi^2. */
void spx_rv_ccf(spx_rv_spectra *w, const spx_rv_data *d, size_t entry, float *out);

/* Search without derivatives around a minimum: point number i (from 0) of those that are tried one after another is y,
 * seen from the best one so far, x; 0 when there are no more. chol: of half the curvature, spx_rv_pattern_axes(). */
int spx_rv_pattern_axes(const spx_rv_ctx *c, const spx_rv_value *at, double *chol);
int spx_rv_pattern_point(const spx_rv_ctx *c, const double *chol, size_t i, const double *x, double *y);
/* A minimum is lower than another by more than this: two ways into the same one end within the tolerance of a descent,
 * and which of these is lower is left to rounding, which differs from device to device. */
#define SPX_RV_LOWER 1e-3
/* A point is taken when it is lower by more than this. */
#define SPX_RV_PATTERN_LOWER 1e-4

/* w->scan with the templates in the workspace. */
void spx_rv_velocity_scan(spx_rv_spectra *w);

/* Shifts of the models of an exposure, or of an arm (SPX_RV_ALL: of all of them), each scaled to its pixels: chi^2 of
 * all their pieces of at least four pixels, without a shift and at velocities first + k step, into chisq[n]
 * (agreement.c). */
#define SPX_RV_ALL SIZE_MAX
typedef struct {
    spx_rv_spectra *w;
    size_t exposure, arm;
    double first, step; /* km/s */
    size_t n;
    double *chisq;
} spx_rv_shifts;

/* Misfit that neighbouring pixels of a star share, along a quantity: of its models at two points, which are `up` and
 * `down` errors away, in bins ln0 + k bin of ln(wavelength) (misfit.c). */
typedef struct {
    spx_rv_spectra *w;
    double up, down, ln0, bin;
    size_t bins;
    double free; /* quantities that are fitted to the pixels */
    int is_velocity;
    int first;             /* `length`, over which influences keep their sign, is found; else it is given */
    double length, factor; /* of the quantity's error */
} spx_rv_shared_misfit;

/* Bins of a star at most. */
size_t spx_rv_misfit_bins(const spx_rv_ctx *c);

/* Information that pieces of w have on the velocity v, of the templates of x, where the continuum follows: by models at
 * v - half and v + half, sum (dm/dv / e)^2 over the good pixels of each, with errors as they are, and with those of the
 * noise alone; and chi^2 at v. */
typedef struct {
    spx_rv_spectra *w;
    const double *x;
    double v, half;
    double (*piece)[3];
} spx_rv_information;

/* On the host, with the templates of x in the workspace. */
void spx_rv_inform(const spx_rv_information *s);

static inline int spx_rv_is_shifted(const spx_rv_shifts *s, size_t piece)
{
    const spx_rv_data *d = &s->w->piece[piece];
    return (s->exposure == SPX_RV_ALL || d->exposure == s->exposure) && (s->arm == SPX_RV_ALL || d->arm == s->arm) &&
           s->w->ctx->arm[d->arm].n >= 4;
}

static inline double spx_rv_shift(const spx_rv_shifts *s, size_t k)
{
    return k == 0 ? 0 : s->first + (double)(k - 1) * s->step;
}

/* The same on the host, with the pixels and models that are there, and the workspace. */
void spx_rv_shifted_chisq(const spx_rv_shifts *s);

typedef struct {
    void *state;
    int threads;     /* of the host, for the logic of a group's stars; each has a workspace of its own */
    size_t together; /* stars whose profiles and models are computed side by side */
    int reads;       /* load() takes stars that are unread, from spx_rv_list(), and does spx_rv_take_read() */
    /* The stars w[n] have new data, from spx_rv_load(), or other errors. NULL: nothing to be done. */
    spx_status (*load)(void *state, size_t n, spx_rv_spectra *const *w, spx_err *e);
    /* Cross-correlation: starts into candidates[n]. */
    spx_status (*correlate)(void *state, size_t n, spx_rv_spectra *const *w, spx_rv_candidates *candidates, spx_err *e);
    /* Curves of the cross-correlation (spx_rv_keep_ccf()) of stars w[n] that are unread. */
    spx_status (*curves)(void *state, size_t n, spx_rv_spectra *const *w, spx_rvfit *out, spx_err *e);
    /* Objective with derivatives of star k at x[k], seen from cell[k] of the grid (NULL: the one that it is in; all
     * of them NULL: so are all). */
    spx_status (*eval)(void *state, size_t n, spx_rv_spectra *const *w, const double (*x)[SPX_MAX_FIT],
                       const size_t *const *cell, spx_rv_value *out, spx_err *e);
    /* Objective of star k with the templates of x[k] at velocities v[first[k]] ... v[first[k+1]-1], into f. n is at
     * most `together`. */
    spx_status (*values)(void *state, size_t n, spx_rv_spectra *const *w, const double (*x)[SPX_MAX_FIT],
                         const size_t *first, const double *v, double *f, spx_err *e);
    /* w[k]->scan with the templates of x[k]; NULL: values() does as well. n as above. */
    spx_status (*scan)(void *state, size_t n, spx_rv_spectra *const *w, const double (*x)[SPX_MAX_FIT], spx_err *e);
    /* chi^2 of all pieces (spx_rv_data) at x[k], and models: in `kept` of stars that are unread. n as above. */
    spx_status (*models)(void *state, size_t n, spx_rv_spectra *const *w, const double (*x)[SPX_MAX_FIT], spx_err *e);
    /* spx_rv_reject() of stars w[n] that are unread and that models() was the last to be asked of; how many pixels of
     * each, found[n]. */
    spx_status (*reject)(void *state, size_t n, spx_rv_spectra *const *w, double sigma, size_t *found, spx_err *e);
    /* spx_rv_fit_jitter() of such stars, into changed[n]. */
    spx_status (*jitter)(void *state, size_t n, spx_rv_spectra *const *w, size_t *changed, spx_err *e);
    /* Of such stars, models of the last two points that models() was asked of, the former kept: length and factor. */
    spx_status (*keep_models)(void *state, size_t n, spx_rv_spectra *const *w, spx_err *e);
    spx_status (*misfit)(void *state, size_t n, spx_rv_shared_misfit *s, spx_err *e);
    /* Shifts s[n] of stars that models() was the last to be asked of. */
    spx_status (*shifted)(void *state, size_t n, const spx_rv_shifts *s, spx_err *e);
    /* Information s[n] on velocities. n is at most `together`. */
    spx_status (*inform)(void *state, size_t n, const spx_rv_information *s, spx_err *e);
    /* Stars w[n] as the coarse model sees them, from those that are loaded (w[k]->of), for eval(): of one call, all are
     * of the model, or all of the coarse one. NULL: it does not take these. */
    spx_status (*coarsen)(void *state, size_t n, spx_rv_spectra *const *w, spx_err *e);
    /* Points, several of a star among them, that eval() computes in little more time than one; SPX_RV_MOST_FILL at
     * most, 0: not even two. */
    size_t fill;
} spx_rv_engine;
enum { SPX_RV_MOST_FILL = 128 };

/* Search for the minimum of one star from several starts, one after another (search/smooth.c). */
typedef struct {
    const spx_rv_ctx *c;
    const spx_rv_start *start;
    size_t nstart, s;  /* start that is followed; s == nstart: done */
    size_t nsure, met; /* starts from nsure on are followed until `met` of all led to the best minimum (MEET) */
    int fresh;         /* the point that was asked for is the start itself */
    size_t steps;
    double lambda, gain;   /* damping; what the step in question should gain, */
    double before;         /* and what the last one did, as it should have; 0: it did not */
    double x[SPX_MAX_FIT]; /* current point */
    spx_rv_value at;       /* there */
    spx_rv_minimum *best;
    size_t inside;    /* start that is the first one away from bounds; 0: none */
    size_t look;      /* steps of a start before it is given up */
    double tolerance; /* of the objective: a step that gains less is the last of a start */
    /* Where starts led to that neither met another on the way nor were given up. */
    spx_rv_start end[SPX_RV_MAX_START];
    size_t nend;
    double least[SPX_RV_MAX_START]; /* of the objective, where each start may lead */
} spx_rv_search;

/* `look`: steps that a start is followed at least. */
void spx_rv_search_begin(spx_rv_search *f, const spx_rv_ctx *c, size_t nstart, size_t nsure, const spx_rv_start *start,
                         size_t look, double tolerance, spx_rv_minimum *out);
/* Point whose value the search needs next, in y[SPX_MAX_FIT]; 0 when all starts are done. */
int spx_rv_search_next(spx_rv_search *f, double *y);
void spx_rv_search_take(spx_rv_search *f, const double *y, const spx_rv_value *value);

/* Errors of v, and the best other minimum along v, of one star (search/profile.c): results so far, and the velocities
 * to be looked at next. */
enum { SPX_RV_MAX_OTHER = 5 };
typedef struct {
    double v, f, half; /* half: distance of the points on both sides that are looked at; 0: done */
    double around[3];  /* objective at v - half, v, v + half: */
    int moved;         /* -1, 1: only the first or last of them is wanted, for v is where that was; 0: all */
} spx_rv_other;

typedef struct {
    const spx_rv_spectra *w;
    const double *x;
    double f0, sigma;
    enum { SPX_RV_SCAN, SPX_RV_WIDE, SPX_RV_NARROW, SPX_RV_OTHER, SPX_RV_DONE } step;
    int round, far, scanned; /* far: there is weight beyond the profile; scanned: other minima have been sought */
    double grid, lo, hi;     /* velocities of the moments: x[0] + i grid within lo ... hi */
    double err, skew, kurt;
    int unresolved;     /* one of the velocities has all weight: err is a guess from their distance */
    double best, lower; /* objective, and the velocity where that is: below the minimum, or x[0] */
    const double *scan; /* velocity scan of the whole range, or NULL, */
    double least;       /* and its value at the minimum */
    size_t nother;
    spx_rv_other other[SPX_RV_MAX_OTHER]; /* velocities where another minimum may be */
} spx_rv_profile;

/* At the minimum x, where the objective is f0 and sigma the error of v by its curvature. In the end err, skew and kurt
 * are those of rvspecfit: moments of the conditional likelihood of v on a grid that resolves it. */
void spx_rv_profile_begin(spx_rv_profile *p, const spx_rv_spectra *w, const double *x, double f0, double sigma);
/* Velocities that are wanted next, into v unless NULL; returns how many. */
size_t spx_rv_profile_ask(const spx_rv_profile *p, double *v);
/* The objective there. */
void spx_rv_profile_take(spx_rv_profile *p, const double *f);
/* The best other minimum along v with all other quantities held, farther than SPX_RV_FAR, and how much higher it is;
 * NaN: none. Sought from the lowest other minima of a scan of the whole range (search/scan.c). */
void spx_rv_profile_other(const spx_rv_profile *p, double *v, double *above);

typedef struct spx_rv_group spx_rv_group;

/* A group of up to `most` stars. NULL: no memory. */
spx_rv_group *spx_rv_group_new(const spx_rv_ctx *c, const spx_rv_engine *engine, size_t most, spx_err *e);
void spx_rv_group_free(spx_rv_group *g);
/* Spectra of star k of a group; workspace of a thread of it. */
spx_rv_spectra *spx_rv_group_spectra(spx_rv_group *g, size_t k);
spx_rv_workspace *spx_rv_group_workspace(spx_rv_group *g, size_t thread);
/* Fits stars first ... first+n-1 of the batch, n <= most. */
spx_status spx_rv_group_fit(spx_rv_group *g, size_t first, size_t n, spx_rvfit *out, spx_err *e);

/* The result of a batch, with nothing in it yet; and that of a star that cannot be fitted. */
spx_status spx_rv_result_init(const spx_rv_ctx *c, spx_rvfit *out, spx_err *e);

/* A group of stars, from `first` on; each star by itself, so that neither threads nor groups change anything. */
typedef spx_status (*spx_rv_task)(spx_rv_group *g, size_t first, size_t n, void *arg, spx_err *e);
/* The task for all stars of a batch, by the threads of the options; it has memory for the spectra of `held` of a
 * group's stars at a time. */
spx_status spx_rv_for_stars(const spx_rv_ctx *c, spx_progress *p, spx_rv_task task, size_t held, void *arg, spx_err *e);
/* The context of a batch; *own: the plan of a batch that came without one, to be closed, else NULL. */
spx_status spx_rv_begin(spx_rv_ctx *c, const spx_rvfit_input *in, const spx_rvfit_options *o, spx_rvfit_plan **own,
                        spx_err *e);

/* The CPU as an engine: its stars share one workspace. */
spx_rv_engine spx_rv_engine_cpu(const spx_rv_ctx *c);

#endif
