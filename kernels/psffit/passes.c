/* Passes of the fit of a bundle: Levenberg-Marquardt steps under weights that become stricter (psffit/fit.h). */
#include <lapacke.h>
#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "num/blas.h"
#include "psffit/fit.h"

const spx_pf_kernels *spx_pf_kernels_find(void)
{
    const spx_pf_kernels *k = spx_pf_kernels_avx512();
    if (k == NULL)
        k = spx_pf_kernels_avx2();
    return k != NULL ? k : spx_pf_kernels_base();
}

/* Terms of traces, parameters of the shape (-1: all), what ends a pass: relative fall of chi squared, and a larger one
 * (chord) below which a step leaves the matrix nearly as it was: the next step has only a new gradient (chord method).
 * The last passes have directions that chi squared hardly tells, such as a place and GH-1-0, and need the better
 * matrix. */
static const struct {
    int terms, active, gauge, clip;
    double epsilon, stop, chord;
} passes[] = {{3, 0, 0, 0, 0.2, 0.1, 0.3},       /* place */
              {-1, 2, 0, 0, 0.05, 0.02, 0.3},    /* width */
              {-1, -1, 0, 0, 0.02, 1e-3, 0.1},   /* all */
              {-1, -1, 1, 1, 0.003, 1e-4, 0.02}, /* clip */
              {-1, -1, 1, 1, 0, 1e-5, 0.02}};    /* final */

enum { WIDTH = 1, ALL = 2, CLIP = 3, FINAL = 4, TRIALS = 6, ROUNDS = 3 };

/* Damping at first, and its factor. */
#define DAMPING 1e-3
#define FACTOR  10.0
/* Predicted fall of chi squared, relative, above which a fit that makes no step has not converged. */
#define UNCONVERGED 1e-3
/* Relative fall of chi squared by a step, above which another one may be that of another matrix; by the background,
 * above which it is found again, and the part of the step's fall that it has to be at least. */
#define STILL 1e-3
#define SHARE 0.02
/* A background is also good enough where its last solution was worth less than this part of what ends the pass. */
#define QUIET 0.2
/* Weights have at most this uncertainty of the model, a part of it. */
#define UNSURE 0.005
/* Floor of the weights of narrow functions (spx_pf_soften()), by the peak: places lose a tenth of their accuracy by it,
 * and the core of a series of degree 8 is moved by wings that it lacks by less than a third of what they move it
 * without. */
#define SOFT 0.2
/* The same where the series has what spots have. None at all is no better there: spots of charge are then off by 0.16 %
 * of the peak more in the worst pixel. */
#define SOFT_LESS 0.05
/* Fall of chi squared a parameter above which it is the whole one. */
#define HAUSMAN 1.5
/* Part of the predicted fall below which a shorter step is tried, too. */
#define POOR 0.6
/* S/N of lines, and how many of them, that a fibre with light shows where the start has its spots: fewer and fainter
 * ones than it has to have in the end, since these may be off. */
#define SEEN 3.0
#define GOOD 5.0 /* that of a line which counts for terms of the traces */
enum { SEEN_LINES = 2 };

typedef struct {
    size_t n, nfree;
    double *h, *g;    /* of all columns */
    double *a, *step; /* of those that are free */
    size_t *at;       /* [nfree] columns */
    double lately;    /* relative fall of chi squared in this pass since the matrix was made; 1: there is none */
} system_of;

/* Step of the damped matrix, and the fall of chi squared that it predicts. 0: no solution. */
static int solve(spx_pf_bundle *b, const system_of *s, double damping, double *gain)
{
    const lapack_int n = (lapack_int)s->nfree;
    int ok = 1;
    for (size_t i = 0; i < s->nfree && b->there == NULL; i++) {
        for (size_t k = i; k < s->nfree; k++)
            s->a[i * s->nfree + k] = s->h[s->at[i] * s->n + s->at[k]];
        s->a[i * s->nfree + i] *= 1 + damping;
        s->step[i] = s->g[s->at[i]];
    }
    if (b->there != NULL)
        ok = b->p->device->solve(b, s->nfree, s->at, damping, s->g, s->step);
    else /* the upper triangle in rows is the lower one in columns */
        ok = LAPACKE_dpotrf_work(LAPACK_COL_MAJOR, 'L', n, s->a, n) == 0 &&
             LAPACKE_dpotrs_work(LAPACK_COL_MAJOR, 'L', n, 1, s->a, n, s->step, n) == 0;
    *gain = 0;
    for (size_t i = 0; i < s->nfree && ok; i++) {
        ok = isfinite(s->step[i]);
        *gain += s->step[i] * s->g[s->at[i]];
    }
    return ok;
}

static int evaluate(spx_pf_bundle *b, spx_pf_state *s)
{
    if (!spx_pf_spots(b, s) || !spx_pf_fluxes(b, s))
        return 0;
    spx_pf_prior(b, s);
    return 1;
}

/* The background in a step stays, is found again, or is found again and traces follow it: a continuum that is stronger
 * than lines tells best where traces are, until spots lie so near that lines do, which are sharper. */
typedef enum { KEEP, FIND, FOLLOW } background_of;

/* Uncertainty of the model by its bright pixels. The hard clip allows for all of it: pixels where spots are of another
 * shape than the model can have would be rejected one after the other, as each fit is worse where it has none. */
static spx_status doubt(spx_pf_bundle *b, int pass, double *epsilon, spx_err *e)
{
    const spx_status st = spx_pf_uncertain(b, e);
    *epsilon = pass < FINAL ? passes[pass].epsilon : b->soft > 0 ? 0 : fmin(b->unsure, UNSURE);
    return st;
}

/* Background and weights, then fluxes again, for parameters as they are, whose fluxes are known in the first of the
 * rounds; they end early where the background stays as it is. *ok 0: no solution. */
static spx_status settle(spx_pf_bundle *b, double epsilon, int clip, int rounds, background_of background, int *ok,
                         spx_err *e)
{
    *ok = 1;
    for (int k = 0; k < rounds && *ok; k++) {
        *ok = k == 0 || spx_pf_fluxes(b, &b->now);
        int moved = 0;
        spx_status st = *ok && background != KEEP ? spx_pf_background(b, ok, e) : SPX_OK;
        if (st == SPX_OK && *ok && background == FOLLOW)
            st = spx_pf_follow(b, &moved, e);
        if (st != SPX_OK)
            return st;
        if (moved)
            *ok = spx_pf_spots(b, &b->now) && spx_pf_fluxes(b, &b->now);
        if (*ok)
            spx_pf_weights(b, epsilon, clip);
        if (!moved && b->calm < STILL)
            break;
    }
    *ok = *ok && spx_pf_fluxes(b, &b->now);
    if (*ok)
        spx_pf_prior(b, &b->now);
    return SPX_OK;
}

/* Moves by a part of the step of the matrix and gradient at hand. 1: chi squared has fallen, and the state is the new
 * one. */
static int try_step(spx_pf_bundle *b, const system_of *s, double part)
{
    memcpy(b->trial.theta, b->now.theta, b->ntheta * sizeof *b->now.theta);
    for (size_t i = 0; i < s->nfree; i++) {
        int is_free;
        b->trial.theta[spx_pf_parameter(b, s->at[i], &is_free)] += part * s->step[i];
    }
    if (!evaluate(b, &b->trial) || !(b->trial.chi2 + b->trial.prior < b->now.chi2 + b->now.prior))
        return 0;
    const spx_pf_state kept = b->now;
    b->now = b->trial;
    b->trial = kept;
    return 1;
}

/* New matrix and gradient, and the columns that are free. */
static spx_status renew(spx_pf_bundle *b, system_of *s, int *ok, spx_err *e)
{
    s->n = spx_pf_columns(b);
    s->nfree = 0;
    for (size_t k = 0; k < s->n; k++) {
        int is_free;
        (void)spx_pf_parameter(b, k, &is_free);
        if (is_free)
            s->at[s->nfree++] = k;
    }
    s->lately = 0;
    return spx_pf_normal(b, s->h, s->g, ok, e);
}

/* One step, with the matrix of the step before where `chord` is not 0. A pass ends with falls below `stop`: where the
 * matrix predicts less, one trial is enough. *fall: relative fall of chi squared, 0 when no trial is better; *gain:
 * what the matrix predicted. */
static spx_status step(spx_pf_bundle *b, system_of *s, int chord, double stop, double *damping, double *fall,
                       double *gain, int *ok, spx_err *e)
{
    const double before = b->now.chi2 + b->now.prior;
    *fall = *gain = 0;
    spx_status st = chord ? spx_pf_gradient(b, s->g, e) : SPX_OK;
    for (int trial = 0; trial < TRIALS && st == SPX_OK; trial++) {
        const int old = chord && trial == 0;
        double gained;
        if (!old && trial == chord)
            st = renew(b, s, ok, e);
        if (st != SPX_OK || !*ok)
            break;
        const int solved = solve(b, s, *damping, &gained);
        if (trial == 0 || trial == chord)
            *gain = solved ? gained / before : 0;
        if (solved && try_step(b, s, 1)) {
            *fall = 1 - (b->now.chi2 + b->now.prior) / before;
            /* part of the step at the minimum of the parabola through both ends: pixels that became negative are
             * clipped, which the matrix does not know */
            const double part = *gain / (2 * *gain - *fall);
            if (*fall < POOR * *gain && *gain >= stop && try_step(b, s, part - 1))
                *fall = 1 - (b->now.chi2 + b->now.prior) / before;
            s->lately += *fall;
            *damping = fmax(*damping / FACTOR, 1e-9);
            break;
        }
        if (solved && *gain < stop)
            break;
        if (!old)
            *damping *= FACTOR;
    }
    return st;
}

/* Learns the prior of the shape, and moves to where it says: within the noise, so that the matrix is still that of the
 * state; most of the fall is the prior's. */
static spx_status learn(spx_pf_bundle *b, system_of *s, double stop, double *damping, int *ok, spx_err *e)
{
    double fall, gain;
    spx_status st = renew(b, s, ok, e);
    if (st == SPX_OK && *ok)
        st = spx_pf_learn(b, s->h, s->g, e);
    if (st == SPX_OK && *ok)
        st = step(b, s, 1, stop, damping, &fall, &gain, ok, e);
    s->lately = 0;
    return st;
}

/* Whether weights by photons move the fit by more than noise does (Hausman's test): with the result of weights with the
 * floor as where the fit is, chi squared falls on the way to that of the photons by what their variances differ by, 0.4
 * to 0.9 a parameter; where wings are of a shape that the series has not, by 3 and more. *asks: 1 or 0. */
static spx_status asks_for_floor(spx_pf_bundle *b, system_of *s, double damping, int *asks, int *ok, spx_err *e)
{
    double gained = 0;
    const spx_status st = renew(b, s, ok, e);
    *asks = st != SPX_OK || !*ok || !solve(b, s, damping, &gained) || gained > HAUSMAN * (double)s->nfree;
    return st;
}

/* Floor of the weights of narrow functions, which are for spots of another shape than any series has; then fluxes
 * again. What they lack may be less than residuals show, so all have it, and the whole of it where weights by photons
 * have another result; but where places are off, weights are those of photons, which show it most. */
static spx_status soften(spx_pf_bundle *b, int pass, system_of *s, double damping, double *epsilon, int *ok, spx_err *e)
{
    double off;
    int asks = 1;
    spx_status st = spx_pf_places_off(b, &off, ok, e);
    if (st == SPX_OK && *ok && pass == FINAL && !(off > 0)) {
        if (b->soft > 0) {
            st = spx_pf_soften(b, 0, e);
            if (st == SPX_OK)
                st = settle(b, *epsilon, 1, 1, KEEP, ok, e);
        }
        if (st == SPX_OK && *ok)
            st = asks_for_floor(b, s, damping, &asks, ok, e);
    }
    const double part = off > 0 ? 0 : asks ? SOFT : SOFT_LESS;
    if (st != SPX_OK || !*ok || part == b->soft)
        return st;
    st = spx_pf_soften(b, part, e);
    *epsilon = pass < FINAL || !(part > 0) ? *epsilon : 0;
    return st == SPX_OK ? settle(b, *epsilon, 1, 1, KEEP, ok, e) : st;
}

/* Whether enough fibres show light to fit, at the places of the start: a dark bundle would go through all passes with
 * nothing to hold on to. *failed: no solution. */
static spx_status seems_lit(spx_pf_bundle *b, int *lit, int *failed, spx_err *e)
{
    const size_t least = b->nf < SPX_PF_FEWEST_ALIVE ? b->nf : SPX_PF_FEWEST_ALIVE;
    double *variance = spx_alloc(b->nspot + 1, sizeof *variance, e);
    size_t alive = 0;
    if (variance == NULL)
        return SPX_EIO;
    *failed = !spx_pf_flux_variance(b, variance);
    for (size_t i = 0; i < b->nf && !*failed; i++) {
        int seen = 0;
        for (size_t s = i; s < b->nspot; s += b->nf)
            seen += variance[s] > 0 && b->now.flux[s] > SEEN * sqrt(variance[s]);
        alive += seen >= SEEN_LINES;
    }
    *lit = alive >= least;
    spx_free(variance);
    return SPX_OK;
}

/* Lines that at least half of the living fibres show with S/N above GOOD, over two: terms of traces that they can tell;
 * one at least. 0: no solution. */
static spx_status known_terms(spx_pf_bundle *b, int *terms, spx_err *e)
{
    double *variance = spx_alloc(b->nspot + 1, sizeof *variance, e);
    size_t most = 0, lines = 0;
    if (variance == NULL)
        return SPX_EIO;
    *terms = 0;
    if (spx_pf_flux_variance(b, variance)) {
        for (int pass = 0; pass < 2; pass++)
            for (size_t l = 0; l < b->nl; l++) {
                size_t seen = 0;
                for (size_t i = 0; i < b->nf; i++) {
                    int good = 0;
                    for (size_t x = 0; x < b->p->nexp; x++) {
                        const size_t s = (x * b->nl + l) * b->nf + i;
                        good |= variance[s] > 0 && b->now.flux[s] > GOOD * sqrt(variance[s]);
                    }
                    seen += good != 0;
                }
                most = pass == 0 && seen > most ? seen : most;
                lines += pass == 1 && b->line[l].free == 0 && 2 * seen > most;
            }
        *terms = lines / 2 > 1 ? (int)(lines / 2) : 1;
    }
    spx_free(variance);
    return SPX_OK;
}

/* Frees terms of the traces, at most as many as lines tell. */
static spx_status free_terms(spx_pf_bundle *b, int most, spx_err *e)
{
    int known = 0;
    const spx_status st = known_terms(b, &known, e);
    b->terms = known > 0 && known < most ? known : most;
    return st;
}

/* Whether the background may stay as it is after a step. */
static int is_settled(const spx_pf_bundle *b, double fall, double stop)
{
    return b->calm <= STILL && b->calm <= fmax(SHARE * fall, QUIET * stop);
}

static spx_pf_failure failure(int solved)
{
    return solved ? SPX_PF_GOES_ON : SPX_PF_UNSOLVED;
}

/* last: no other pass follows, which would begin with background and weights of its own. */
static spx_status one_pass(spx_pf_bundle *b, int pass, int last, int most, system_of *s, spx_pf_run *run, spx_err *e)
{
    const spx_pf_plan *p = b->p;
    const int clip = passes[pass].clip, place_alone = pass == 0 && p->nq == 0;
    const double stop = passes[pass].stop;
    /* "final" of traces alone goes on from "place", whose background is that of the same spots: where that is weak, it
     * is good enough to begin with */
    const background_of begin = pass == 0 ? FOLLOW : p->nq == 0 && b->calm <= STILL ? KEEP : FIND;
    double epsilon = passes[pass].epsilon, damping = DAMPING;
    s->lately = 1;
    b->terms = passes[pass].terms < 0 || passes[pass].terms > p->ntr ? p->ntr : passes[pass].terms;
    b->active = p->nq == 0 || passes[pass].active == 0 ? 0 : passes[pass].active < 0 ? p->nq : passes[pass].active;
    b->gauge = passes[pass].gauge;
    int ok = 1, dark = 0;
    spx_status st = SPX_OK;
    if (pass == ALL && p->narrow < 1) {
        st = spx_pf_narrow(b, e);
        ok = st == SPX_OK && spx_pf_spots(b, &b->now) && spx_pf_fluxes(b, &b->now);
    }
    b->gauge |= b->held != NULL;
    if (st == SPX_OK)
        st = spx_pf_regroup(b, pass < CLIP, e);
    if (st == SPX_OK && pass == 0)
        ok = spx_pf_fluxes(b, &b->now);
    if (st == SPX_OK && ok && clip)
        st = doubt(b, pass, &epsilon, e);
    if (st == SPX_OK && ok)
        st = settle(b, epsilon, clip, pass == 0 ? ROUNDS : 1, begin, &ok, e);
    if (st == SPX_OK && ok && clip && p->narrow < 1)
        st = soften(b, pass, s, damping, &epsilon, &ok, e);
    if (st == SPX_OK && ok && pass > 0)
        st = free_terms(b, b->terms, e);
    double fall = 1, gain = 0;
    run->converged = 0;
    if (st == SPX_OK && ok && pass == FINAL && p->nq > 0 && run->niter < most) {
        st = learn(b, s, stop, &damping, &ok, e);
        run->niter++;
        fall = 0; /* the next step has the matrix that is there */
        if (st == SPX_OK && ok)
            st = settle(b, epsilon, clip, 1, KEEP, &ok, e);
    }
    if (st == SPX_OK && ok && pass == 0) {
        int lit = 0, failed = 0;
        st = seems_lit(b, &lit, &failed, e);
        dark = !lit && !failed;
        ok = lit && !failed;
    }
    while (st == SPX_OK && ok && run->niter < most) {
        const int chord = fall < passes[pass].chord;
        st = step(b, s, chord, stop, &damping, &fall, &gain, &ok, e);
        run->niter++;
        /* a small step of an old matrix may be the matrix's fault */
        const int ends = fall < stop && (!chord || gain < stop);
        if (st != SPX_OK || !ok || fall <= 0 || (ends && !last))
            break;
        if (place_alone) { /* all terms, which "width" would free */
            st = free_terms(b, p->ntr, e);
            fall = 1;
        }
        if (st == SPX_OK && pass == FINAL && !chord && fall > passes[pass].chord)
            st = doubt(b, pass, &epsilon, e);
        if (st == SPX_OK)
            st = settle(b, epsilon, clip, 1, is_settled(b, fall, stop) ? KEEP : FIND, &ok, e);
        if (ends)
            break;
    }
    run->converged = fall <= 0 ? gain < UNCONVERGED : fall < stop;
    run->failed = dark ? SPX_PF_DARK : failure(ok);
    return st;
}

/* Fluxes, background and weights: those of the model, or, when lines have changed, from the image again. *ok 0: no
 * solution. */
static spx_status resume(spx_pf_bundle *b, const spx_pf_model *model, int changed, int *ok, spx_err *e)
{
    int same = !changed && b->nl == model->nl;
    for (size_t l = 0; l < b->nl && same; l++) /* a trace that has moved may take one over the edge of the CCD */
        same = b->line[l].row == model->row[l];
    double epsilon = passes[CLIP].epsilon;
    if (!same) {
        spx_status st = spx_pf_first_weights(b, epsilon, e);
        *ok = st == SPX_OK && spx_pf_fluxes(b, &b->now);
        if (*ok)
            st = doubt(b, CLIP, &epsilon, e);
        return *ok && st == SPX_OK ? settle(b, epsilon, 1, ROUNDS, FIND, ok, e) : st;
    }
    memcpy(b->now.flux, model->flux, b->nspot * sizeof *b->now.flux);
    if (b->there != NULL && !b->p->device->put_fluxes(b)) {
        *ok = 0;
        return SPX_OK;
    }
    if (spx_pf_put_background(b, model->coef, e) != SPX_OK)
        return SPX_EIO;
    *ok = 1;
    spx_pf_draw(b, &b->now);
    const spx_status st = doubt(b, CLIP, &epsilon, e);
    if (st == SPX_OK)
        spx_pf_weights(b, epsilon, 1);
    return st;
}

/* Weights of the result, and, where it is no trial, the covariance of all parameters, from the matrix of the last step,
 * where it is still good. *ok 0: that is not positive definite. */
static spx_status inform(spx_pf_bundle *b, system_of *s, int *ok, spx_err *e)
{
    const lapack_int n = (lapack_int)b->ntheta;
    spx_status st = SPX_OK;
    *ok = 1;
    /* errors are those of all that is uncertain, and the floor is none of it: chi squared tells what the model lacks */
    const int other = b->unsure > UNSURE || b->soft > 0;
    if (b->soft > 0)
        st = spx_pf_soften(b, 0, e);
    if (other && st == SPX_OK) {
        spx_pf_weights(b, b->unsure, 1);
        *ok = spx_pf_fluxes(b, &b->now);
    }
    if (b->p->trial)
        return st;
    if (st == SPX_OK && *ok && (other || s->lately >= STILL)) {
        b->terms = b->p->ntr;
        b->active = b->p->nq;
        b->gauge = 1;
        st = spx_pf_normal(b, s->h, s->g, ok, e);
    }
    if (st == SPX_OK && *ok && b->there != NULL)
        *ok = b->p->device->covariance(b, s->h);
    else if (st == SPX_OK && *ok) /* the upper triangle in rows is the lower one in columns */
        *ok = LAPACKE_dpotrf_work(LAPACK_COL_MAJOR, 'L', n, s->h, n) == 0 &&
              LAPACKE_dpotri_work(LAPACK_COL_MAJOR, 'L', n, s->h, n) == 0;
    b->covariance = s->h;
    s->h = NULL;
    return st;
}

spx_status spx_pf_passes(spx_pf_bundle *b, const spx_pf_model *model, int changed, int most, spx_pf_run *run,
                         spx_err *e)
{
    const double begin = spx_seconds();
    const size_t n = b->ntheta;
    const int alone = b->p->nq == 0, first = model == NULL ? 0 : changed ? CLIP : FINAL;
    const int end = model == NULL && !alone ? FINAL : FINAL + 1;
    system_of s = {.h = spx_alloc2(n, n, sizeof *s.h, e),
                   .g = spx_alloc(n, sizeof *s.g, e),
                   .a = spx_alloc2(n, n, sizeof *s.a, e),
                   .step = spx_alloc(n, sizeof *s.step, e),
                   .at = spx_alloc(n, sizeof *s.at, e)};
    spx_status st = s.h != NULL && s.g != NULL && s.a != NULL && s.step != NULL && s.at != NULL ? SPX_OK : SPX_EIO;
    if (st == SPX_OK && b->p->device != NULL)
        st = b->p->device->begin(b, e);
    run->failed = failure(st != SPX_OK || spx_pf_spots(b, &b->now));
    if (st == SPX_OK && model == NULL)
        st = spx_pf_first_weights(b, passes[0].epsilon, e);
    else if (st == SPX_OK && !run->failed) {
        int ok = 0;
        st = spx_pf_regroup(b, 0, e);
        if (st == SPX_OK)
            st = resume(b, model, changed, &ok, e);
        run->failed = failure(ok);
    }
    for (int pass = first; pass < end && st == SPX_OK && !run->failed; pass++)
        if (!alone || pass == 0 || pass == FINAL) /* others are for the shape */
            st = one_pass(b, pass, pass == end - 1, most, &s, run, e);
    if (st == SPX_OK && !run->failed && end > FINAL) {
        int ok = 1;
        st = inform(b, &s, &ok, e);
        run->failed = failure(ok);
    }
    if (st == SPX_OK && !run->failed && b->there != NULL)
        run->failed = failure(b->p->device->places(b, NULL) && b->p->device->take_fluxes(b));
    spx_free(s.h);
    spx_free(s.g);
    spx_free(s.a);
    spx_free(s.step);
    spx_free(s.at);
    run->seconds += spx_seconds() - begin;
    return st;
}
