/* The objective along v at the templates of a minimum, all over the range of velocities: where others may be.
 *
 * What takes time of the objective is S'S of the npoly functions of the continuum, npoly^2/2 products a pixel. Here the
 * functions are replaced by their best straight lines in blocks of pixels, of which only the moments with T^2/e^2 and
 * T f/e^2 are needed: five sums a pixel. It is the objective itself for a continuum that is a little different, so that
 * minima are where they are; how deep they are is then seen by the objective. */
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "rvfit/model/model.h"

enum { LEAST_BLOCKS = 32, MOST_VELOCITIES = 1024 };
static const double STEP_PIXELS = 0.5; /* of a survey */

/* Straight lines of the basis of an arm. */
static spx_status make_lines(spx_rv_arm *a, size_t np, spx_err *e)
{
    size_t wanted = 4 * np > LEAST_BLOCKS ? 4 * np : LEAST_BLOCKS;
    a->per = (a->n / wanted + SPX_RV_LANES - 1) / SPX_RV_LANES * SPX_RV_LANES;
    a->per = a->per < SPX_RV_LANES ? SPX_RV_LANES : a->per > SPX_RV_BLOCK ? SPX_RV_BLOCK : a->per;
    const size_t nblock = (a->n + a->per - 1) / a->per;
    if (nblock < 2 * np) { /* few pixels: the objective itself is as fast */
        a->per = 0;
        return SPX_OK;
    }
    if (!(a->line = spx_alloc2(nblock, 2 * SPX_RVFIT_MAX_POLY, sizeof *a->line, e)))
        return SPX_EIO;
    for (size_t b = 0; b < nblock; b++) {
        const size_t i0 = b * a->per, m = a->n - i0 < a->per ? a->n - i0 : a->per;
        double *line = a->line + b * 2 * SPX_RVFIT_MAX_POLY;
        const double shift = 0.5 * (double)(a->per - 1), middle = 0.5 * (double)(m - 1); /* of a last block */
        for (size_t k = 0; k < np; k++) {
            const double *p = a->basis + k * a->stride + i0;
            double s = 0, sx = 0, xx = 0;
            for (size_t j = 0; j < m; j++) {
                double x = (double)j - middle;
                s += p[j] / (double)m;
                sx += x * p[j];
                xx += x * x;
            }
            line[SPX_RVFIT_MAX_POLY + k] = xx > 0 ? sx / xx : 0;
            line[k] = s + line[SPX_RVFIT_MAX_POLY + k] * (shift - middle);
        }
    }
    return SPX_OK;
}

spx_status spx_rv_survey_init(spx_rv_ctx *c, spx_err *e)
{
    double pixel = 0;
    spx_status st = SPX_OK;
    for (size_t i = 0; i < c->narm && st == SPX_OK; i++) {
        const spx_rv_arm *a = &c->arm[i];
        pixel += (a->lnwave[a->n - 1] - a->lnwave[0]) / (double)(a->n - 1) * SPX_C_KMS / (double)c->narm;
        st = make_lines(&c->arm[i], c->opt->npoly, e);
    }
    const double range = c->hi[0] - c->lo[0];
    c->survey_step = fmax(STEP_PIXELS * pixel, range / (MOST_VELOCITIES - 2));
    c->nsurvey = range > 2 * c->survey_step ? (size_t)floor(range / c->survey_step) + 1 : 0;
    return st;
}

/* Adds the objective of a piece; HUGE_VAL where it cannot be computed. */
static void add_piece(spx_rv_ws *w, const spx_rv_data *d)
{
    enum { CHOL = (SPX_RVFIT_MAX_POLY + 1) * (SPX_RVFIT_MAX_POLY + 2) / 2 };
    const spx_rv_ctx *c = w->ctx;
    const spx_rv_arm *a = &c->arm[d->arm];
    const size_t np = c->opt->npoly;
    double *weight = w->room->q, *data = w->room->r, square = 0;
    for (size_t i = 0; i < a->stride; i++) {
        weight[i] = d->ie[i] * d->ie[i];
        data[i] = d->flux[i] * weight[i];
        square += d->flux[i] * data[i];
    }
    for (size_t i = 0; i < c->nsurvey; i++) {
        double gram[CHOL], *b = gram + np * (np + 1) / 2, v = c->lo[0] + (double)i * c->survey_step, f = square;
        if (c->opt->resolution)
            c->kernels->survey(a->n, a->per, np, a->line, NULL, 0, 0, spx_rv_sample(w, d, v), weight, data, gram);
        else
            c->kernels->survey(a->n, a->per, np, a->line, a->place, spx_rv_lnshift(v) / a->setup->dlnwave, a->nt,
                               w->room->y[d->arm], weight, data, gram);
        if (!spx_rv_cholesky(np, gram, 0)) {
            w->survey[i] = HUGE_VAL;
            continue;
        }
        spx_rv_forward(np, gram, b);
        for (size_t k = 0; k < np; k++)
            f += 2 * log(gram[spx_rv_packed(k, k)]) - b[k] * b[k];
        w->survey[i] += f + a->lndet + d->sum_lne2;
    }
}

void spx_rv_survey(spx_rv_ws *w)
{
    const spx_rv_ctx *c = w->ctx;
    int lines = 1;
    for (size_t i = 0; i < w->first[c->narm]; i++)
        lines = lines && c->arm[w->piece[i].arm].per > 0;
    for (size_t i = 0; i < c->nsurvey; i++) {
        spx_rv_value at;
        const double v = c->lo[0] + (double)i * c->survey_step;
        if (lines)
            spx_rv_begin_value(w, v, &at);
        else
            spx_rv_project(w, v, &at);
        w->survey[i] = at.f;
    }
    for (size_t i = 0; i < w->first[c->narm] && lines; i++)
        add_piece(w, &w->piece[i]);
}
