/* A group of stars, and what the files that fit it call of each other. Private to kernels/rvfit/search/. */
#ifndef SPX_RVFIT_GROUP_H
#define SPX_RVFIT_GROUP_H

#include <string.h>

#include "rvfit/search/search.h"

/* A start that is followed ahead of its turn (ahead.c): its first points, and the objective there. */
enum { SPX_RV_AHEAD = 16 };
typedef struct {
    spx_rv_search search; /* from this start alone, */
    spx_rv_minimum found;
    int ended; /* which is at its end, or has n = SPX_RV_AHEAD */
    size_t n;
    double x[SPX_RV_AHEAD][SPX_MAX_FIT];
    spx_rv_value value[SPX_RV_AHEAD];
} spx_rv_ahead;

/* A star of a group: its data, and all that the fit finds of it on the way. */
typedef struct {
    spx_rv_spectra spectra;
    spx_rv_spectra coarse;                /* the same for the coarse model, where the group has it */
    size_t index;                         /* in the batch */
    const double *given;                  /* [2+npar] where to start; NULL: nothing is given */
    spx_rv_start start[SPX_RV_MAX_START]; /* of the next search, best first */
    size_t nstart, nsure;                 /* those from nsure on only where no two met (search.h) */
    double v_ccf;                         /* km/s, of the best start by cross-correlation or scan; NaN: there is none */
    spx_rv_search search;                 /* from these starts, */
    spx_rv_ahead *ahead[SPX_RV_MAX_START];  /* those that are followed ahead of their turn, or NULL, */
    spx_rv_minimum found;                   /* and what it found */
    spx_rv_minimum min;                     /* the minimum of the star: the lowest that was found so far */
    double hess[SPX_MAX_FIT * SPX_MAX_FIT]; /* curvature there, */
    double coherence;          /* length in ln(wavelength) over which influences on the velocity keep their sign, */
    double widen[SPX_MAX_FIT]; /* of each quantity, factor of the error that neighbouring pixels give it (misfit.c) */
    double chol[SPX_MAX_FIT * (SPX_MAX_FIT + 1) / 2]; /* half of it, factored, for the pattern search */
    spx_rv_profile profile;                           /* along v */
    double point[SPX_MAX_FIT];                        /* whose value is asked for, */
    int wants;                                        /* if the search asks for one */
    int again;                                        /* there is more to be done to the star */
    int followed;                                     /* its starts have been, on the coarse model */
    size_t inside; /* number of the start that is the first one away from bounds; 0: none */
    int masked;    /* pixels were, in this round */
    int differ;    /* an exposure has another velocity */
    size_t odd;    /* arm whose velocity is another than that of the others; SPX_RV_ALL: none, */
    double odd_by; /* by which, km/s */
} spx_rv_star;

/* What an engine is asked for at a time: n stars, a point of each, or velocities at it, and its answer. */
typedef struct {
    size_t n;
    spx_rv_star **star;            /* [most] */
    spx_rv_spectra **spectra;      /* [most] of these */
    double (*x)[SPX_MAX_FIT];      /* [most] */
    spx_rv_value *value;           /* [most] */
    spx_rv_candidates *candidates; /* [most] */
    size_t *first;                 /* [most + 1] velocities of star k are v[first[k]] ... v[first[k+1]-1] */
    size_t capacity;               /* of v and f */
    double *v, *f;                 /* km/s; objective */
} spx_rv_request;

struct spx_rv_group {
    const spx_rv_ctx *c;
    const spx_rv_engine *engine;
    size_t most;
    size_t together;             /* at most `most` */
    spx_rv_star *star;           /* [most] */
    char *pieces;                /* arrays of a piece of each arm of each star, and of its coarse one */
    spx_rv_workspace *workspace; /* [nworkspace] a thread each */
    size_t nworkspace;
    /* [most] each: stars that can be fitted; those of them that are fitted again, or whose errors are found; those that
     * one step of the search or of the starts is about. */
    spx_rv_star **fitted, **again, **list;
    spx_rv_request ask;
    spx_rv_ahead *ahead; /* [most_ahead] */
    size_t most_ahead, nahead;
    spx_rv_ahead *asked[SPX_RV_MOST_FILL]; /* [nasked] whose points are the last ones of the request */
    size_t nasked;
};

/* Are many starts followed on a coarse model first? */
static inline int spx_rv_has_coarse(const spx_rv_group *g)
{
    return g->engine->coarsen != NULL && g->c->coarse != NULL;
}

/* Adds spectra at x to what the engine is asked. */
static inline void spx_rv_ask_of(spx_rv_request *r, spx_rv_spectra *w, const double *x)
{
    r->spectra[r->n] = w;
    memcpy(r->x[r->n++], x, sizeof r->x[0]);
}

/* Adds a star. */
static inline void spx_rv_ask(spx_rv_request *r, spx_rv_star *s, const double *x)
{
    r->star[r->n] = s;
    spx_rv_ask_of(r, &s->spectra, x);
}

/* The next point of a star's search that is not known yet, in s->point; 0: it is done. Of the coarse model, or the
 * model. */
int spx_rv_ahead_next(spx_rv_star *s, int coarse);
/* Adds points of later starts of the n stars of a search to what the engine is asked, which has those that are wanted.
 */
void spx_rv_ahead_ask(spx_rv_group *g, size_t n, spx_rv_star *const *star, int coarse);
/* The answer. */
void spx_rv_ahead_take(spx_rv_group *g);
/* The searches of the n stars are done. */
void spx_rv_ahead_end(spx_rv_group *g, size_t n, spx_rv_star *const *star);

/* Memory for n velocities. */
spx_status spx_rv_need_velocities(spx_rv_group *g, size_t n, spx_err *e);
/* The objective of the stars of g->ask at its velocities. */
spx_status spx_rv_ask_values(spx_rv_group *g, spx_err *e);

/* Threads for n stars of which each takes so little that `few` of them are done before the threads are called. */
static inline int threads_for(const spx_rv_group *g, size_t n, size_t few)
{
    return n > few ? g->engine->threads : 1;
}

/* What is done to each of n stars, by all threads of the group unless they are few. */
#define DIRECTIVE(words) _Pragma(#words)
#define EACH_STAR(k, n, few)                                                                                           \
    DIRECTIVE(omp parallel for num_threads(threads_for(g, n, few)) schedule(dynamic, 4))                               \
    for (size_t k = 0; k < (n); k++)

/* Starts of n stars with data, best first, at least one each. */
spx_status spx_rv_group_starts(spx_rv_group *g, size_t n, spx_rv_star *const *star, spx_err *e);
/* Starts of n stars at their minima, n <= together, whose velocity is open: elsewhere along v, as slow rotators where
 * they are fast ones, and fast where slow. nstart is 0 of those that have none. */
spx_status spx_rv_turn_open(spx_rv_group *g, size_t n, spx_rv_star *const *star, spx_err *e);
/* Minima of n stars from their starts, into `found`. */
spx_status spx_rv_group_minimise(spx_rv_group *g, size_t n, spx_rv_star *const *star, spx_err *e);
/* The same for the multilinear interpolation, which has kinks (minimise.c). */
spx_status spx_rv_minimise(const spx_rv_engine *engine, const spx_rv_ctx *c, size_t n, spx_rv_star *const *star,
                           spx_err *e);
/* Do exposures of n stars, after models(), differ from them in velocity? Into `differ`. Do their arms differ from each
 * other? Into `odd` and `odd_by` (agreement.c). */
spx_status spx_rv_compare_exposures(spx_rv_group *g, size_t n, spx_rv_star *const *star, const spx_rvfit *out,
                                    spx_err *e);
spx_status spx_rv_compare_arms(spx_rv_group *g, size_t n, spx_rv_star *const *star, spx_err *e);
/* Second component of a star whose fit has ended, into *out (double.c). The workspace is that of the calling thread. */
void spx_rv_double(spx_rv_star *star, spx_rvfit *out);
/* Velocities of the exposures of n stars whose fits have ended, n <= together, and their constancy, into *out
 * (epochs.c). */
spx_status spx_rv_epochs(spx_rv_group *g, size_t n, spx_rv_star *const *star, spx_rvfit *out, spx_err *e);
/* Curvature of the objective at the minima, mean over the cells of the grid that meet there, into `hess`. */
spx_status spx_rv_mean_curvature(const spx_rv_engine *engine, const spx_rv_ctx *c, size_t n, spx_rv_star *const *star,
                                 spx_err *e);

/* Inverse of the curvature at the minimum x, cov[nfree][nfree]; 0 where it is not positive definite, and cov is rough.
 * A quantity that the data push against a bound keeps the variance it would have without the bound and is held for the
 * others: that is where they were fitted. */
int spx_rv_inverse_curvature(const spx_rv_ctx *c, const double *x, const double *grad, const double *hess, double *cov);
/* Inverse of the n x n matrix a (full), through Cholesky; 0 when it is not positive definite. */
int spx_rv_invert(size_t n, const double *a, double *inverse);
/* Moments about the minimum x, moment[nfree][nfree], of exp(-f/2) within the bounds, f by its curvature (bounds.c);
 * *vsini_square: mean square of vsini about the fitted one, unchanged where its bounds are far. 0: there are none, the
 * curvature is not positive definite. */
int spx_rv_bounded_moments(const spx_rv_ctx *c, const double *x, const double *grad, const double *hess, double *moment,
                           double *vsini_square);
/* Covariance about the minimum x, into *star: moments within the bounds, or else of the curvature alone. */
void spx_rv_covariance(const spx_rv_ctx *c, const double *x, const double *grad, const double *hess,
                       spx_rvfit_star *row);
/* Profiles p[n] of the objective of w[n], n <= together, until all are done. */
spx_status spx_rv_profiles(spx_rv_group *g, size_t n, spx_rv_spectra *const *w, spx_rv_profile *const *p, spx_err *e);
/* Errors of v of the stars g->again[n], n <= together. */
spx_status spx_rv_velocity_errors(spx_rv_group *g, size_t n, spx_rvfit *out, spx_err *e);

/* Factors of the errors of n stars at their minima, n <= together, for misfit that neighbouring pixels share; leaves
 * other models than theirs (misfit.c). */
spx_status spx_rv_misfit(spx_rv_group *g, size_t n, spx_rv_star *const *star, spx_err *e);

/* The row of a star that cannot be fitted; of one whose fit has ended; its cross-correlation. */
void spx_rv_bad_star(const spx_rv_ctx *c, spx_rvfit_star *row);
void spx_rv_finish_star(const spx_rv_ctx *c, const spx_rv_star *star, spx_rvfit *out);
void spx_rv_keep_ccf(spx_rv_spectra *w, spx_rvfit *out);

#endif
