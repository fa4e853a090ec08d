/* A group of stars, and what the files that fit it call of each other. Private to kernels/rvfit/search/. */
#ifndef SPX_RVFIT_GROUP_H
#define SPX_RVFIT_GROUP_H

#include "rvfit/search/search.h"

struct spx_rv_group {
    const spx_rv_ctx *c;
    const spx_rv_engine *engine;
    size_t most;
    size_t together; /* at most `most` */
    spx_rv_ws *ws;
    spx_rv_room *room; /* [nroom] a thread each */
    size_t nroom;
    /* [most] each. Stars that can be fitted: their index in the batch, starts, minima, curvatures. */
    spx_rv_ws **who;
    size_t *star, *nstart;
    const double **given;
    double *v_ccf;
    spx_rv_start (*start)[SPX_RV_MAX_START];
    spx_rv_minimum *min;
    double (*hess)[SPX_MAX_FIT * SPX_MAX_FIT];
    /* Some of them that are fitted again, and which. */
    spx_rv_ws **some;
    size_t *some_of;
    spx_rv_start (*again)[SPX_RV_MAX_START];
    size_t *nagain;
    const double **given_again;
    double *v_again;
    spx_rv_minimum *found;
    spx_rv_profile *prof;
    /* Those of which velocities are looked at. */
    spx_rv_ws **part;
    size_t *part_of;
    spx_rv_pick *pick;
    /* Polishing: from where, to where. */
    spx_rv_start (*base)[SPX_RV_MAX_START];
    spx_rv_minimum *reached;
    double (*chol)[SPX_MAX_FIT * (SPX_MAX_FIT + 1) / 2], *best;
    int *going;
    /* Searches, and those that ask for a value. */
    spx_rv_search *search;
    double (*point)[SPX_MAX_FIT];
    int *wants;
    spx_rv_ws **asked;
    size_t *asked_of;
    spx_rv_value *value;
    /* For the engine: points; velocities. */
    double (*at)[SPX_MAX_FIT];
    size_t *first; /* [most + 1] of v and f */
    size_t room_v;
    double *v, *f; /* [room_v] */
    size_t *one;   /* all 1 */
};

/* Room for n velocities. */
spx_status spx_rv_need_velocities(spx_rv_group *g, size_t n, spx_err *e);

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

/* Covariance 2 H^-1 at the minimum x, into *star. */
void spx_rv_covariance(const spx_rv_ctx *c, const double *x, const double *grad, const double *hess,
                       spx_rvfit_star *star);
/* Errors of v of n stars (g->some, whose minima are g->min[g->some_of[]]), n <= together. */
spx_status spx_rv_velocity_errors(spx_rv_group *g, size_t n, spx_rvfit *out, spx_err *e);

/* The row of a star that cannot be fitted; of one of which all is known; its cross-correlation. */
void spx_rv_bad_star(const spx_rv_ctx *c, spx_rvfit_star *s);
void spx_rv_finish_star(const spx_rv_ctx *c, const spx_rv_ws *w, const spx_rv_minimum *min, const double *hess,
                        spx_rvfit_star *s, spx_rvfit *out);
void spx_rv_keep_ccf(spx_rv_ws *w, spx_rvfit *out);

#endif
