/* Tails of a PSF from arcs (psffit/tail_fit.h). */
#include "psffit/tail_fit.h"

#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "calib/bordered.h"
#include "products/psf_index.h"
#include "psf/psf_math.h"
#include "psf/spot_math.h"
#include "psf/tail.h"

enum {
    STEPS = 8,  /* of the tail's parameters at most */
    ROWS = 64,  /* in which a column's quadratic is free */
    FEWEST = 8, /* pixels that it needs */
    BASE = 3,   /* its terms */
    NPAR = 3,   /* a_0, a_1, index */
    MOST = NPAR + 1,
    BESIDE = 40, /* columns beside the outermost traces that are looked at */
    BEYOND = 6 /* pixels around a spot's window in which light of its core is looked for, a choice: with spots 1.6 times
                * as wide as usual the index is then 0.16 to 0.35 too large, without 1.3 to 1.5 */
};

/* Pixels at which amplitudes are held when the index changes. */
#define PIVOT 15.0
/* Prior of the index: DESI's and BOSS's tails have 2.0 to 2.6. */
#define INDEX       2.0
#define INDEX_WIDTH 1.0
/* Step of the difference that the derivative by the index is made of. */
#define STEP 0.02
/* Errors beyond which a pixel is left out, and above which a tail is one. */
#define CLIP  5.0
#define FOUND 3.0
/* Errors of all parameters within which the steps end. */
#define ENOUGH 0.05

/* Exposures, and where light and pixels are. */
typedef struct {
    const spx_psffit_input *in;
    const spx_psf *psf; /* cores, from the fit of the round */
    const spx_psffit *fit;
    spx_psf tailed; /* these with a tail; shares nothing */
    size_t ny, nx, nexp;
    uint8_t *use;  /* [nexp][ny][nx] beyond all spots, and not left out */
    float *image;  /* [NPAR][ny][nx] derivatives of the model of an exposure by the parameters */
    float *model;  /* [ny][nx] */
    double *light; /* [nspec][nline] sum of the core's pixels */
    int nthreads;
} problem;

/* ---- the PSF's parameters ---- */

static size_t row_of(const spx_psf *psf, const char *name)
{
    size_t k = 0;
    while (k < psf->npar && strcmp(psf->param[k], name) != 0)
        k++;
    return k;
}

/* Sets a parameter of all fibres to c[0] + c[1] u, adding it where there is none. */
static spx_status set_parameter(spx_psf *psf, const char *name, double c0, double c1, spx_err *e)
{
    const size_t k = row_of(psf, name), n = psf->nspec * psf->ndeg;
    if (k == psf->npar) {
        spx_psf_param *param = spx_alloc(k + 1, sizeof *param, e);
        double *coeff = spx_alloc2(k + 1, n, sizeof *coeff, e);
        if (param == NULL || coeff == NULL) {
            spx_free(param);
            spx_free(coeff);
            return SPX_EIO;
        }
        memcpy(param, psf->param, k * sizeof *param);
        memcpy(coeff, psf->coeff, k * n * sizeof *coeff);
        memcpy(param[k], name, strlen(name) + 1);
        spx_free(psf->param);
        spx_free(psf->coeff);
        psf->param = param;
        psf->coeff = coeff;
        psf->npar++;
    }
    for (size_t f = 0; f < psf->nspec; f++) {
        double *to = psf->coeff + k * n + f * psf->ndeg;
        memset(to, 0, psf->ndeg * sizeof *to);
        to[0] = c0;
        if (psf->ndeg > 1)
            to[1] = c1;
    }
    return SPX_OK;
}

static spx_status set_tail(spx_psf *psf, double a0, double a1, double core, double index, spx_err *e)
{
    spx_status st = set_parameter(psf, "TAILAMP", a0, a1, e);
    if (st == SPX_OK)
        st = set_parameter(psf, "TAILCORE", core, 0, e);
    if (st == SPX_OK)
        st = set_parameter(psf, "TAILXSCA", 1, 0, e);
    if (st == SPX_OK)
        st = set_parameter(psf, "TAILYSCA", 1, 0, e);
    if (st == SPX_OK)
        st = set_parameter(psf, "TAILINDE", index, 0, e);
    return st == SPX_OK ? spx_psf_index(psf, e) : st;
}

/* ---- light ---- */

/* Wavelength of a line in the model. */
static double wave_of(const spx_psffit_row *line)
{
    return line->used ? line->wavelength : line->wavelength + line->delta;
}

/* Sums of the pixels of cores at the lines. */
static spx_status sum_cores(problem *p, spx_err *e)
{
    const size_t npix = (size_t)spx_psf_nx(p->psf) * (size_t)spx_psf_ny(p->psf), nline = p->fit->nline;
    double *work = spx_alloc(spx_psf_spot_work(p->psf) + npix, sizeof *work, e);
    if (work == NULL)
        return SPX_EIO;
    for (size_t k = 0; k < p->psf->nspec * nline; k++) {
        double scale;
        const int ok = spx_psf_spot_scale(p->psf, k / nline, wave_of(&p->fit->line[k % nline]), work + npix, work,
                                          &scale) == SPX_SPOT_OK;
        p->light[k] = ok ? 1 / scale : 0;
    }
    spx_free(work);
    return SPX_OK;
}

/* Tails of an exposure's lines with the parameters of p->tailed, electrons, into image[ny][nx]. */
static spx_status draw(const problem *p, size_t exposure, float *image, spx_err *e)
{
    const size_t nline = p->fit->nline, nspec = p->psf->nspec;
    const double *shift = p->fit->shift + 2 * exposure;
    spx_tail *tail = NULL;
    spx_status st = spx_tail_make(&p->tailed, p->ny, p->nx, p->psf->wmin, p->psf->wmax, 0, p->nthreads, &tail, e);
    if (st == SPX_OK)
        st = spx_tail_clear(tail, nspec * nline, e);
    for (size_t f = 0; f < nspec && st == SPX_OK; f++)
        for (size_t l = 0; l < nline; l++) {
            spx_spot at;
            const double wave = wave_of(&p->fit->line[l]),
                         flux = p->fit->flux[(exposure * nspec + f) * nline + l] * p->light[f * nline + l];
            if (flux == 0 || spx_psf_spot_place(p->psf, f, wave, &at) != SPX_SPOT_OK)
                continue;
            const double x = at.x + shift[0], y = at.y + shift[1], column = floor(x + 0.5), row = floor(y + 0.5);
            spx_tail_add(tail, f, wave, (long)column, (long)row, x - column, y - row, flux);
        }
    if (st == SPX_OK)
        st = spx_tail_image(tail, p->nthreads, image, e);
    spx_tail_free(tail);
    return st;
}

/* Adds the light of an exposure's cores beyond the windows of their spots, electrons, to image[ny][nx]: that of wide
 * spots would be taken for a steeper tail. */
static spx_status add_cores(const problem *p, size_t exposure, float *image, spx_err *e)
{
    const size_t nline = p->fit->nline, nspec = p->psf->nspec;
    const double *shift = p->fit->shift + 2 * exposure;
    spx_psf wide = *p->psf;
    wide.hsizex += BEYOND;
    wide.hsizey += BEYOND;
    const long nx = spx_psf_nx(&wide), ny = spx_psf_ny(&wide);
    double *work = spx_alloc(spx_psf_spot_work(&wide) + (size_t)(nx * ny), sizeof *work, e);
    if (work == NULL)
        return SPX_EIO;
    double *pixel = work + spx_psf_spot_work(&wide);
    for (size_t k = 0; k < nspec * nline; k++) {
        spx_spot at;
        double scale;
        const size_t f = k / nline, l = k % nline;
        const double wave = wave_of(&p->fit->line[l]), flux = p->fit->flux[(exposure * nspec + f) * nline + l];
        if (flux == 0 || spx_psf_spot_place(&wide, f, wave, &at) != SPX_SPOT_OK)
            continue;
        const double x = at.x + shift[0], y = at.y + shift[1];
        const long column = (long)floor(x + 0.5), row = (long)floor(y + 0.5);
        at.dx = x - (double)column;
        at.dy = y - (double)row;
        if (spx_psf_spot_scale(&wide, f, wave, work, pixel, &scale) != SPX_SPOT_OK ||
            spx_psf_spot_pixels(&wide, f, wave, &at, work, pixel) != SPX_SPOT_OK)
            continue;
        for (long r = 0; r < ny; r++)
            for (long c = 0; c < nx; c++) {
                const long to_x = column + c - wide.hsizex, to_y = row + r - wide.hsizey;
                const int within = c >= BEYOND && c < nx - BEYOND && r >= BEYOND && r < ny - BEYOND;
                if (!within && to_x >= 0 && to_x < (long)p->nx && to_y >= 0 && to_y < (long)p->ny)
                    image[to_y * (long)p->nx + to_x] += (float)(flux / scale * pixel[r * nx + c]);
            }
    }
    spx_free(work);
    return SPX_OK;
}

/* Pixels without the part of any spot, from BESIDE columns left of all traces to as many right of them. */
static void choose_pixels(const problem *p)
{
    const size_t nline = p->fit->nline, nspec = p->psf->nspec, npix = p->ny * p->nx;
    const long hx = p->psf->hsizex + 1, hy = p->psf->hsizey + 1, nx = (long)p->nx, ny = (long)p->ny;
    for (size_t x = 0; x < p->nexp; x++) {
        const spx_image *im = &p->in->image[x];
        uint8_t *use = p->use + x * npix;
        long left = nx, right = 0;
        for (size_t k = 0; k < npix; k++)
            use[k] = (im->mask == NULL || im->mask[k] == 0) && im->ivar[k] > 0 && isfinite(im->ivar[k]) &&
                     isfinite(im->data[k]);
        for (size_t f = 0; f < nspec; f++)
            for (size_t l = 0; l < nline; l++) {
                spx_spot at;
                if (spx_psf_spot_place(p->psf, f, wave_of(&p->fit->line[l]), &at) != SPX_SPOT_OK)
                    continue;
                const long cx = (long)floor(at.x + p->fit->shift[2 * x] + 0.5),
                           cy = (long)floor(at.y + p->fit->shift[2 * x + 1] + 0.5);
                left = cx - BESIDE < left ? cx - BESIDE : left;
                right = cx + BESIDE > right ? cx + BESIDE : right;
                for (long y = cy - hy > 0 ? cy - hy : 0; y <= cy + hy && y < ny; y++)
                    for (long c = cx - hx > 0 ? cx - hx : 0; c <= cx + hx && c < nx; c++)
                        use[y * nx + c] = 0;
            }
        for (long y = 0; y < ny; y++)
            for (long c = 0; c < nx; c++)
                if (c < left || c > right)
                    use[y * nx + c] = 0;
    }
}

/* ---- least squares ---- */

/* Of one column's rows from y0 to y1: normal equations of the columns image[NPAR], and of what the exposure has beyond
 * the model, with the quadratic eliminated, added to sum[MOST][MOST]. With `clip` no sums are made: pixels beyond CLIP
 * errors are left out, and counted. */
static void column_sums(const problem *p, size_t exposure, size_t x, size_t y0, size_t y1, int clip, double *sum,
                        size_t *npix, size_t *nclip)
{
    const spx_image *im = &p->in->image[exposure];
    uint8_t *use = p->use + exposure * p->ny * p->nx;
    double g[BASE * BASE] = {0}, c[MOST][BASE] = {{0}}, s[MOST * MOST] = {0};
    size_t n = 0;
    for (size_t y = y0; y < y1; y++)
        n += use[y * p->nx + x];
    if (n < FEWEST)
        return;
    for (size_t y = y0; y < y1; y++) {
        const size_t k = y * p->nx + x;
        if (!use[k])
            continue;
        const double t = 2 * (double)(y - y0) / (double)(y1 - y0) - 1, w = (double)im->ivar[k],
                     base[BASE] = {1, t, t * t};
        double v[MOST];
        for (size_t q = 0; q < NPAR; q++)
            v[q] = (double)p->image[q * p->ny * p->nx + k];
        v[NPAR] = (double)im->data[k] - (double)p->model[k];
        for (size_t a = 0; a < BASE; a++) {
            for (size_t b = 0; b < BASE; b++)
                g[a * BASE + b] += w * base[a] * base[b];
            for (size_t q = 0; q < MOST; q++)
                c[q][a] += w * base[a] * v[q];
        }
        for (size_t q = 0; q < MOST; q++)
            for (size_t r = 0; r < MOST; r++)
                s[q * MOST + r] += w * v[q] * v[r];
    }
    if (!spx_small_factor(BASE, g))
        return;
    double solved[MOST][BASE];
    memcpy(solved, c, sizeof c);
    for (size_t q = 0; q < MOST; q++)
        spx_small_solve(BASE, g, solved[q]);
    for (size_t y = y0; y < y1 && clip; y++) {
        const size_t k = y * p->nx + x;
        const double t = 2 * (double)(y - y0) / (double)(y1 - y0) - 1,
                     rest = (double)im->data[k] - (double)p->model[k] - solved[NPAR][0] - t * solved[NPAR][1] -
                            t * t * solved[NPAR][2];
        if (use[k] && rest * rest * (double)im->ivar[k] > CLIP * CLIP) {
            use[k] = 0;
            ++*nclip;
        }
    }
    for (size_t q = 0; q < MOST && !clip; q++)
        for (size_t r = 0; r < MOST; r++) {
            double less = 0;
            for (size_t a = 0; a < BASE; a++)
                less += c[q][a] * solved[r][a];
            sum[q * MOST + r] += s[q * MOST + r] - less;
        }
    *npix += n - BASE;
}

/* The sums of an exposure, by blocks of rows, in an order that threads do not change. SPX_EIO: memory. */
static spx_status exposure_sums(const problem *p, size_t exposure, int clip, double *sum, size_t *npix, size_t *nclip,
                                spx_err *e)
{
    enum { MEMBERS = MOST * MOST };
    const size_t nblock = (p->ny + ROWS - 1) / ROWS;
    double *part = spx_alloc2(nblock, MEMBERS, sizeof *part, e);
    size_t count = 0, left_out = 0;
    if (part == NULL)
        return SPX_EIO;
#pragma omp parallel for schedule(dynamic) num_threads(p->nthreads) reduction(+ : count, left_out)
    for (size_t k = 0; k < nblock; k++) {
        const size_t y1 = (k + 1) * ROWS < p->ny ? (k + 1) * ROWS : p->ny;
        for (size_t x = 0; x < p->nx; x++)
            column_sums(p, exposure, x, k * ROWS, y1, clip, part + k * MEMBERS, &count, &left_out);
    }
    for (size_t k = 0; k < nblock; k++)
        for (size_t i = 0; i < MEMBERS; i++)
            sum[i] += part[k * MEMBERS + i];
    *npix += count;
    *nclip += left_out;
    spx_free(part);
    return SPX_OK;
}

/* Tails of an exposure's lines of amplitude 1 at the pivot, and of amplitude u. Amplitudes below 0 would be those of
 * no spot. */
static spx_status draw_unit(problem *p, size_t exposure, double core, double index, float *one, float *u, spx_err *e)
{
    const double at = pow(PIVOT, index);
    spx_status st = set_tail(&p->tailed, at, 0, core, index, e);
    if (st == SPX_OK)
        st = draw(p, exposure, one, e);
    if (st == SPX_OK)
        st = set_tail(&p->tailed, at, at, core, index, e);
    if (st == SPX_OK)
        st = draw(p, exposure, u, e);
    for (size_t k = 0; k < p->ny * p->nx && st == SPX_OK; k++)
        u[k] -= one[k];
    return st;
}

/* Model of an exposure, p->model, and its derivatives by amplitudes at the pivot and the index, p->image. */
static spx_status derive(problem *p, size_t exposure, const spx_psffit_tail *t, spx_err *e)
{
    const size_t npix = p->ny * p->nx;
    const float b0 = (float)(t->amplitude[0] / pow(PIVOT, t->index)),
                b1 = (float)(t->amplitude[1] / pow(PIVOT, t->index));
    float *by0 = p->image, *by1 = by0 + npix, *byn = by1 + npix;
    spx_status st = draw_unit(p, exposure, t->core, t->index + STEP, byn, p->model, e);
    if (st == SPX_OK)
        st = draw_unit(p, exposure, t->core, t->index, by0, by1, e);
    for (size_t k = 0; k < npix && st == SPX_OK; k++) {
        byn[k] = (b0 * (byn[k] - by0[k]) + b1 * (p->model[k] - by1[k])) / (float)STEP;
        p->model[k] = b0 * by0[k] + b1 * by1[k];
    }
    return st == SPX_OK ? add_cores(p, exposure, p->model, e) : st;
}

/* Fits the tail, from what it is, to the exposures; begun: that is a tail already, which tells hits. */
static spx_status fit_tail(problem *p, int begun, spx_psffit_tail *t, spx_err *e)
{
    const int first_clip = begun ? 0 : 2;
    spx_status st = SPX_OK;
    choose_pixels(p);
    t->nclip = 0;
    for (int step = 0; step < STEPS && st == SPX_OK; step++) {
        double sum[MOST * MOST] = {0}, h[NPAR * NPAR], change[NPAR], inverse[NPAR * NPAR];
        t->npix = 0;
        for (size_t x = 0; x < p->nexp && st == SPX_OK; x++) {
            size_t none = 0;
            st = derive(p, x, t, e);
            if (st == SPX_OK && step >= first_clip)
                st = exposure_sums(p, x, 1, sum, &none, &t->nclip, e);
            if (st == SPX_OK)
                st = exposure_sums(p, x, 0, sum, &t->npix, &none, e);
        }
        if (st != SPX_OK)
            break;
        if (t->npix == 0 || !(sum[0] > 0))
            return spx_fail_remedy(e, SPX_EINPUT, "leave {tail} out, or give arcs with fewer lines",
                                   "no pixel beyond the spots of lines is left to measure a tail on");
        for (size_t q = 0; q < NPAR; q++) {
            for (size_t r = 0; r < NPAR; r++)
                h[q * NPAR + r] = sum[q * MOST + r];
            change[q] = sum[q * MOST + NPAR];
        }
        h[4] += 1e-9 * h[0] + 1e-30; /* a_1 where parameters do not change with the wavelength */
        h[8] += 1 / (INDEX_WIDTH * INDEX_WIDTH);
        change[2] += (INDEX - t->index) / (INDEX_WIDTH * INDEX_WIDTH);
        t->chi2 = sum[MOST * MOST - 1] / (double)t->npix;
        double factor[NPAR * NPAR], gradient[NPAR], size = 0;
        memcpy(factor, h, sizeof h);
        memcpy(gradient, change, sizeof change);
        if (!spx_small_factor(NPAR, factor))
            return spx_fail(e, SPX_EINPUT, "the equations of the tail have no solution");
        spx_small_solve(NPAR, factor, change);
        spx_small_inverse(NPAR, factor, inverse);
        for (size_t q = 0; q < NPAR; q++)
            size += gradient[q] * change[q];
        const double b0 = t->amplitude[0] / pow(PIVOT, t->index) + change[0],
                     b1 = t->amplitude[1] / pow(PIVOT, t->index) + change[1], wide = sqrt(fmax(t->chi2, 1));
        t->index = fmin(fmax(t->index + fmin(fmax(change[2], -0.5), 0.5), 0.5), 6);
        const double back = pow(PIVOT, t->index);
        t->amplitude[0] = b0 * back;
        t->amplitude[1] = b1 * back;
        /* at the pivot: the amplitude itself has the error of the index beside it */
        t->error[0] = wide * sqrt(inverse[0]) * back;
        t->error[1] = wide * sqrt(inverse[4]) * back;
        t->index_error = wide * sqrt(inverse[8]);
        t->found = b0 > FOUND * wide * sqrt(inverse[0]);
        if (step >= first_clip && size < ENOUGH * ENOUGH)
            break;
    }
    return st;
}

/* ---- in turn ---- */

/* Exposures without the tails of their lines, whose photons stay in the variance without light. */
static spx_status take_off(problem *p, const spx_psffit_tail *t, spx_image *to, spx_err *e)
{
    const size_t npix = p->ny * p->nx;
    spx_status st = set_tail(&p->tailed, t->amplitude[0], t->amplitude[1], t->core, t->index, e);
    for (size_t x = 0; x < p->nexp && st == SPX_OK; x++) {
        st = draw(p, x, p->model, e);
        if (st == SPX_OK)
            st = add_cores(p, x, p->model, e);
        const float *noise = p->in->image[x].readnoise;
        for (size_t k = 0; k < npix && st == SPX_OK; k++) {
            to[x].data[k] = p->in->image[x].data[k] - p->model[k];
            if (noise != NULL)
                to[x].readnoise[k] = sqrtf(noise[k] * noise[k] + fmaxf(p->model[k], 0));
        }
    }
    return st;
}

/* Tail of the start PSF, for the wavelengths of psf. */
static spx_status read_tail(const spx_psf *start, const spx_psf *psf, spx_psffit_tail *t, spx_err *e)
{
    spx_tail_shape shape;
    t->amplitude[0] = t->amplitude[1] = 0;
    t->index = INDEX;
    if (!spx_psf_has_tail(start))
        return t->fit ? SPX_OK
                      : spx_fail_remedy(e, SPX_EINPUT, "give {tail} fit, or none",
                                        "the PSF to start from has no tail (TAILAMP is 0)");
    const spx_status st = spx_tail_shape_of(start, &shape, e);
    if (st != SPX_OK)
        return st;
    const double *c = start->coeff + (size_t)start->tail[SPX_TAIL_AMP] * start->nspec * start->ndeg;
    for (size_t k = 0; k < start->nspec * start->ndeg && !t->fit; k++)
        if (fabs(c[k] - (k % start->ndeg < 2 ? c[k % start->ndeg] : 0)) > 1e-6 * fabs(c[0]))
            return spx_fail_remedy(e, SPX_EINPUT, "give {tail} fit",
                                   "the tail of the PSF to start from, TAILAMP, is not the same linear function of the "
                                   "wavelength for all fibres");
    t->core = shape.core;
    t->index = shape.index;
    const double slope = start->ndeg > 1 ? c[1] : 0, lo = c[0] + slope * spx_psf_u(start->wmin, start->wmax, psf->wmin),
                 hi = c[0] + slope * spx_psf_u(start->wmin, start->wmax, psf->wmax);
    t->amplitude[0] = 0.5 * (lo + hi);
    t->amplitude[1] = psf->ndeg > 1 ? 0.5 * (hi - lo) : 0;
    return SPX_OK;
}

/* Traces and cores. Of a shape that is fixed, the copy of the start has its tail, too. */
static spx_status fit_cores(const spx_psffit_input *in, const spx_psffit_options *o, spx_psf *psf, spx_psffit *fit,
                            spx_err *e)
{
    spx_psf_free(psf);
    spx_psffit_free(fit);
    memset(psf, 0, sizeof *psf);
    memset(fit, 0, sizeof *fit);
    const spx_status st = spx_psffit_make(in, o, psf, fit, e);
    if (st == SPX_OK)
        spx_psf_drop_tail(psf);
    return st;
}

/* The tail beyond the cores of the round before, and exposures without it. */
static spx_status one_round(problem *p, int round, spx_psffit_tail *t, spx_image *image, spx_err *e)
{
    spx_psf_free(&p->tailed);
    memset(&p->tailed, 0, sizeof p->tailed);
    spx_status st = spx_psf_copy(p->psf, &p->tailed, e);
    spx_free(p->light);
    if (st == SPX_OK && (p->light = spx_alloc2(p->psf->nspec, p->fit->nline, sizeof *p->light, e)) == NULL)
        st = SPX_EIO;
    if (st == SPX_OK)
        st = sum_cores(p, e);
    if (st == SPX_OK && t->fit)
        st = fit_tail(p, round > 0, t, e);
    return st == SPX_OK && (!t->fit || t->found) ? take_off(p, t, image, e) : st;
}

spx_status spx_psffit_new_images(const spx_psffit_input *in, spx_image **out, spx_err *e)
{
    const size_t ny = in->image[0].ny, nx = in->image[0].nx;
    spx_image *image = *out = spx_alloc(in->nexp, sizeof *image, e);
    if (image == NULL)
        return SPX_EIO;
    for (size_t x = 0; x < in->nexp; x++) {
        image[x] = in->image[x];
        image[x].data = image[x].readnoise = NULL;
    }
    for (size_t x = 0; x < in->nexp; x++)
        if ((image[x].data = spx_alloc_unset(ny, nx, sizeof *image[x].data, e)) == NULL ||
            (in->image[x].readnoise != NULL &&
             (image[x].readnoise = spx_alloc_unset(ny, nx, sizeof *image[x].readnoise, e)) == NULL))
            return SPX_EIO;
    return SPX_OK;
}

void spx_psffit_free_images(size_t n, spx_image *image)
{
    for (size_t x = 0; image != NULL && x < n; x++) {
        spx_free(image[x].data);
        spx_free(image[x].readnoise);
    }
    spx_free(image);
}

spx_status spx_psffit_without_tail(const spx_psffit_input *in, const spx_psffit_tail *t, int nthreads,
                                   const spx_psf *psf, const spx_psffit *fit, spx_image *image, spx_err *e)
{
    spx_psf cores = *psf;
    problem p = {.in = in,
                 .psf = &cores,
                 .fit = fit,
                 .ny = in->image[0].ny,
                 .nx = in->image[0].nx,
                 .nexp = in->nexp,
                 .nthreads = nthreads > 0 ? nthreads : 1};
    spx_psf_drop_tail(&cores);
    spx_status st = spx_psf_copy(psf, &p.tailed, e);
    if (st == SPX_OK && !((p.model = spx_alloc2(p.ny, p.nx, sizeof *p.model, e)) &&
                          (p.light = spx_alloc2(psf->nspec, fit->nline, sizeof *p.light, e))))
        st = SPX_EIO;
    if (st == SPX_OK)
        st = sum_cores(&p, e);
    if (st == SPX_OK)
        st = take_off(&p, t, image, e);
    spx_psf_free(&p.tailed);
    spx_free(p.light);
    spx_free(p.model);
    return st;
}

spx_status spx_psffit_make_with_tail(const spx_psffit_input *in, const spx_psffit_options *o, spx_psffit_tail *t,
                                     spx_psf *psf, spx_psffit *fit, spx_err *e)
{
    const size_t ny = in->image[0].ny, nx = in->image[0].nx;
    problem p = {.in = in, .psf = psf, .fit = fit, .ny = ny, .nx = nx, .nexp = in->nexp, .nthreads = o->nthreads};
    spx_psf bare = *in->start;
    spx_psffit_input cores = *in;
    spx_image *image = NULL;
    spx_psf_drop_tail(&bare);
    cores.start = &bare;
    p.nthreads = o->nthreads > 0 ? o->nthreads : 1;
    spx_status st = fit_cores(&cores, o, psf, fit, e); /* refuses exposures of other sizes */
    if (st == SPX_OK)
        st = read_tail(in->start, psf, t, e);
    if (st == SPX_OK && !((p.use = spx_alloc2(in->nexp * ny, nx, sizeof *p.use, e)) &&
                          (p.image = spx_alloc2(NPAR * ny, nx, sizeof *p.image, e)) &&
                          (p.model = spx_alloc2(ny, nx, sizeof *p.model, e))))
        st = SPX_EIO;
    if (st == SPX_OK)
        st = spx_psffit_new_images(in, &image, e);
    cores.image = image;
    for (int round = 0, none = 0; round < SPX_PSFFIT_TAIL_ROUNDS && st == SPX_OK && !none; round++) {
        st = one_round(&p, round, t, image, e);
        none = t->fit && !t->found; /* cores are those of the exposures as they are */
        if (none)
            cores.image = in->image;
        if (st == SPX_OK && !(none && round == 0))
            st = fit_cores(&cores, o, psf, fit, e);
    }
    const int has = !t->fit || t->found;
    if (st == SPX_OK && (has || row_of(psf, "TAILAMP") < psf->npar))
        st = set_tail(psf, has ? t->amplitude[0] : 0, has ? t->amplitude[1] : 0, t->core, t->index, e);
    spx_psffit_free_images(in->nexp, image);
    spx_psf_free(&p.tailed);
    spx_free(p.light);
    spx_free(p.use);
    spx_free(p.image);
    spx_free(p.model);
    return st;
}

spx_status spx_psffit_cpu(const spx_psffit_input *in, const spx_psffit_options *o, spx_psffit_tail *tail, spx_psf *psf,
                          spx_psffit *fit, spx_err *e)
{
    return tail != NULL ? spx_psffit_make_with_tail(in, o, tail, psf, fit, e) : spx_psffit_make(in, o, psf, fit, e);
}
