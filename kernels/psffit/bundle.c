/* Opens a bundle: pixels, parameters that continue the start, groups of lines (psffit/fit.h). */
#include <lapacke.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "num/blas.h"
#include "psf/psf_math.h"
#include "psffit/fit.h"

/* Rows between which the cross profile of a fibre is interpolated: traces move by a tenth of a pixel meanwhile. */
enum { PROFILE_STEP = 8 };
/* Rows of an interval of the continuum's B-splines: lamps and filters change over ten times as many. */
#define KNOT_ROWS 128.0

/* ---- parameters that continue the start ---- */

/* Wavelengths at which the start is fitted: places of a Chebyshev rule, within the start's own range. */
enum { NODES = 48 };

static void nodes(double lo, double hi, double *wave)
{
    for (int k = 0; k < NODES; k++)
        wave[k] = 0.5 * (lo + hi) - 0.5 * (hi - lo) * cos(M_PI * (k + 0.5) / NODES);
}

/* Least squares of m functions, rows basis[n][m], for nrhs right-hand sides value[n][nrhs]; out[m][nrhs]. */
static spx_status least_squares(size_t n, size_t m, const double *basis, size_t nrhs, const double *value, double *out,
                                spx_err *e)
{
    double *a = spx_alloc2(m, m, sizeof *a, e), *r = spx_alloc2(nrhs, m, sizeof *r, e);
    spx_status st = a != NULL && r != NULL ? SPX_OK : SPX_EIO;
    if (st == SPX_OK) {
        for (size_t k = 0; k < n; k++)
            for (size_t i = 0; i < m; i++) {
                for (size_t j = 0; j < m; j++)
                    a[i * m + j] += basis[k * m + i] * basis[k * m + j];
                for (size_t j = 0; j < nrhs; j++)
                    r[j * m + i] += basis[k * m + i] * value[k * nrhs + j];
            }
        for (size_t i = 0; i < m; i++)
            a[i * m + i] += 1e-10;
        if (LAPACKE_dposv(LAPACK_COL_MAJOR, 'L', (lapack_int)m, (lapack_int)nrhs, a, (lapack_int)m, r, (lapack_int)m) !=
            0)
            st = spx_fail(e, SPX_EINPUT, "psf: a series that no polynomials describe");
        for (size_t i = 0; i < m && st == SPX_OK; i++)
            for (size_t j = 0; j < nrhs; j++)
                out[i * nrhs + j] = r[j * m + i];
    }
    spx_free(a);
    spx_free(r);
    return st;
}

static spx_status start_traces(spx_pf_bundle *b, double *theta, spx_err *e)
{
    const spx_pf_plan *p = b->p;
    const size_t n = (size_t)p->ntr;
    double wave[NODES], basis[NODES * SPX_PF_MOST_TRACE], value[NODES * 2], out[SPX_PF_MOST_TRACE * 2];
    const spx_psf *psf = p->start;
    nodes(fmax(p->wmin, fmin(psf->x.wmin, psf->y.wmin)), fmin(p->wmax, fmax(psf->x.wmax, psf->y.wmax)), wave);
    spx_status st = SPX_OK;
    for (size_t k = 0; k < NODES; k++)
        spx_legendre_basis(n, spx_pf_u(p, wave[k]), basis + k * n);
    for (size_t i = 0; i < b->nf && st == SPX_OK; i++) {
        for (size_t k = 0; k < NODES; k++) {
            value[2 * k] = spx_psf_series_value(&psf->x, b->fibre0 + i, wave[k]);
            value[2 * k + 1] = spx_psf_series_value(&psf->y, b->fibre0 + i, wave[k]);
        }
        st = least_squares(NODES, n, basis, 2, value, out, e);
        for (size_t k = 0; k < n && st == SPX_OK; k++) {
            theta[i * 2 * n + k] = out[2 * k];
            theta[i * 2 * n + n + k] = out[2 * k + 1];
        }
    }
    return st;
}

static spx_status start_shape(spx_pf_bundle *b, double *theta, spx_err *e)
{
    const spx_pf_plan *p = b->p;
    const size_t na = (size_t)p->na, nb = (size_t)p->nb, nq = (size_t)p->nq, m = na * nb, n = NODES * b->nf;
    double wave[NODES], term[SPX_PF_MOST_WAVE], c[SPX_PF_MOST_LOCAL];
    double *basis = spx_alloc2(n, m, sizeof *basis, e), *value = spx_alloc2(n, nq, sizeof *value, e);
    spx_status st = basis != NULL && value != NULL ? SPX_OK : SPX_EIO;
    nodes(fmax(p->wmin, p->start->wmin), fmin(p->wmax, p->start->wmax), wave);
    for (size_t k = 0; k < n && st == SPX_OK; k++) {
        const size_t i = k / NODES;
        double *v = value + k * nq;
        spx_legendre_basis(nb, spx_pf_u(p, wave[k % NODES]), term);
        for (size_t l = 0; l < nb; l++)
            for (size_t a = 0; a < na; a++)
                basis[k * m + l * na + a] = term[l] * b->vterm[i * na + a];
        spx_pf_shape_start(p, b->fibre0 + i, wave[k % NODES], &v[0], &v[1], c);
        memcpy(v + 2, c + 1, (nq - 2) * sizeof *v);
        if (p->narrow < 1) { /* Gaussians of the same variance, width^2 (1 + 2 GH-2-0), narrow series or not */
            v[0] *= sqrt(fmax(0.25, 1 + 2 * v[spx_pf_row(p, 2, 0)]));
            v[1] *= sqrt(fmax(0.25, 1 + 2 * v[spx_pf_row(p, 0, 2)]));
            memset(v + 2, 0, (nq - 2) * sizeof *v);
        }
    }
    if (st == SPX_OK)
        st = least_squares(n, m, basis, nq, value, theta + b->shape0, e);
    spx_free(basis);
    spx_free(value);
    return st;
}

/* Projection off polynomials up to the cubic along the fibres: I - C (C'C)^-1 C', by Gram-Schmidt. */
static void off_cubics(spx_pf_bundle *b)
{
    const size_t n = b->nf, m = n < 5 ? (n > 1 ? n - 1 : 1) : 4;
    double q[4][1024];
    for (size_t i = 0; i < n * n; i++)
        b->prior[i] = i % (n + 1) == 0;
    for (size_t k = 0; k < m; k++) {
        for (size_t i = 0; i < n; i++)
            q[k][i] = pow(b->v[i], (double)k);
        for (int twice = 0; twice < 2; twice++)
            for (size_t l = 0; l < k; l++) {
                double dot = 0;
                for (size_t i = 0; i < n; i++)
                    dot += q[k][i] * q[l][i];
                for (size_t i = 0; i < n; i++)
                    q[k][i] -= dot * q[l][i];
            }
        double norm = 0;
        for (size_t i = 0; i < n; i++)
            norm += q[k][i] * q[k][i];
        for (size_t i = 0; i < n; i++)
            q[k][i] /= sqrt(norm);
        for (size_t i = 0; i < n; i++)
            for (size_t j = 0; j < n; j++)
                b->prior[i * n + j] -= q[k][i] * q[k][j];
    }
}

/* ---- pixels ---- */

/* Columns of the bundle on the CCD at rows of its outer fibres: to half the way to the next bundle, and not beyond
 * hx + 2 from the trace. */
enum { SAMPLES = 65 };

typedef struct {
    double y[SAMPLES], x[SAMPLES]; /* limit as a function of the row, rows increasing */
} border;

static void find_border(const spx_pf_bundle *b, const double *theta, int right, border *to)
{
    const spx_pf_plan *p = b->p;
    const double middle = 0.5 * (p->wmin + p->wmax);
    const int falls = spx_psf_series_value(&p->start->x, b->fibre0 + b->nf - 1, middle) <
                      spx_psf_series_value(&p->start->x, b->fibre0, middle);
    const int at_end = right != falls; /* fibres may be numbered from the right */
    const size_t edge = at_end ? b->nf - 1 : 0;
    const int has = at_end ? b->fibre0 + b->nf < p->start->nspec : b->fibre0 > 0;
    const size_t other = at_end ? b->fibre0 + b->nf : b->fibre0 - 1;
    for (int k = 0; k < SAMPLES; k++) {
        double x, y;
        const double wave = p->wmin + (p->wmax - p->wmin) * k / (SAMPLES - 1);
        spx_pf_place(b, theta, edge, wave, &x, &y);
        double limit = right ? x + p->hx + 2 : x - p->hx - 2;
        if (has) {
            /* both by the start's traces, so that neighbours agree on their border */
            const double mine = spx_psf_series_value(&p->start->x, b->fibre0 + edge, wave);
            const double mid = 0.5 * (mine + spx_psf_series_value(&p->start->x, other, wave));
            if ((mid - mine) * (right ? 1 : -1) > 1)
                limit = right ? fmin(limit, mid) : fmax(limit, mid);
        }
        to->y[k] = y;
        to->x[k] = limit;
    }
    if (to->y[0] > to->y[SAMPLES - 1])
        for (int k = 0; k < SAMPLES / 2; k++) {
            const double y = to->y[k], x = to->x[k];
            to->y[k] = to->y[SAMPLES - 1 - k];
            to->x[k] = to->x[SAMPLES - 1 - k];
            to->y[SAMPLES - 1 - k] = y;
            to->x[SAMPLES - 1 - k] = x;
        }
}

static double border_at(const border *of, double row)
{
    int k = 1;
    while (k < SAMPLES - 1 && of->y[k] < row)
        k++;
    const double t = (row - of->y[k - 1]) / (of->y[k] - of->y[k - 1]);
    return of->x[k - 1] + (t < 0 ? 0 : t > 1 ? 1 : t) * (of->x[k] - of->x[k - 1]);
}

/* Memory of pixels, and of what follows from them on the host. */
static spx_status allocate_pixels(const spx_pf_bundle *b, int known, spx_pf_pixels *px, spx_err *e)
{
    const spx_pf_plan *p = b->p;
    const size_t n = p->height * b->width;
    if ((!known && ((px->data = spx_alloc(n, sizeof *px->data, e)) == NULL ||
                    (px->noise = spx_alloc(n, sizeof *px->noise, e)) == NULL)) ||
        (px->coef = spx_alloc(spx_pf_nground(b), sizeof *px->coef, e)) == NULL ||
        (px->own = spx_alloc2(b->nf, 6, sizeof *px->own, e)) == NULL ||
        (px->drifts = spx_alloc(b->nf, sizeof *px->drifts, e)) == NULL)
        return SPX_EIO;
    if (p->device == NULL &&
        ((px->median = spx_alloc(n, sizeof *px->median, e)) == NULL ||
         (px->root = spx_alloc(n, sizeof *px->root, e)) == NULL ||
         (px->ground = spx_alloc(n, sizeof *px->ground, e)) == NULL ||
         (px->goal = spx_alloc(n + SPX_PF_LANES, sizeof *px->goal, e)) == NULL ||
         (px->quiet = spx_alloc(p->height, sizeof *px->quiet, e)) == NULL ||
         (px->rejected = spx_alloc(n, 1, e)) == NULL ||
         (px->rows = spx_alloc(p->height, sizeof *px->rows, e)) == NULL ||
         (px->at = spx_alloc2(b->nf, p->height, sizeof *px->at, e)) == NULL ||
         (px->profile = spx_alloc2(b->nf * p->height, spx_pf_profile_width(p), sizeof *px->profile, e)) == NULL))
        return SPX_EIO;
    px->drift = px->coef + b->nf * b->nknot + 1;
    return SPX_OK;
}

/* known: the device has data and noise. */
static spx_status take_pixels(spx_pf_bundle *b, int known, const border *left, const border *right, spx_err *e)
{
    const spx_pf_plan *p = b->p;
    for (size_t x = 0; x < p->nexp; x++) {
        spx_pf_pixels *px = &b->px[x];
        const spx_image *im = &p->image[x];
        const spx_status st = allocate_pixels(b, known, px, e);
        if (st != SPX_OK)
            return st;
        for (size_t r = 0; r < p->height && !known; r++) {
            const double lo = border_at(left, (double)r), hi = border_at(right, (double)r);
            for (size_t k = 0; k < b->width; k++) {
                const size_t from = r * p->columns + b->x0 + k, to = r * b->width + k;
                const double column = (double)(b->x0 + k), rn = im->readnoise != NULL ? im->readnoise[from] : 0;
                if (column < lo || column >= hi || im->mask[from] != 0 || !(im->ivar[from] > 0) ||
                    !isfinite(im->data[from]) || !isfinite(im->ivar[from]))
                    continue;
                px->data[to] = im->data[from];
                px->noise[to] = (float)(rn > 0 ? rn * rn : p->dark[x]);
            }
        }
    }
    return SPX_OK;
}

static spx_status allocate_state(const spx_pf_bundle *b, spx_pf_state *s, spx_err *e)
{
    const spx_pf_plan *p = b->p;
    const size_t nx = (size_t)p->nx, ny = (size_t)p->ny, order = (size_t)p->norder;
    if ((s->theta = spx_alloc(b->ntheta, sizeof *s->theta, e)) == NULL ||
        (s->at = spx_alloc(b->nspot, sizeof *s->at, e)) == NULL ||
        (s->flux = spx_alloc(b->nspot, sizeof *s->flux, e)) == NULL)
        return SPX_EIO;
    if (p->device == NULL && ((s->gx = spx_alloc2(b->nspot + 1, order * nx, sizeof *s->gx, e)) == NULL ||
                              (s->gy = spx_alloc2(b->nspot, order * ny, sizeof *s->gy, e)) == NULL ||
                              (s->c = spx_alloc2(b->nspot, (size_t)p->nc, sizeof *s->c, e)) == NULL ||
                              (s->spot = spx_alloc2(b->nspot, nx * ny, sizeof *s->spot, e)) == NULL ||
                              (s->lit = spx_alloc2(p->nexp, p->height, 1, e)) == NULL ||
                              (s->light = spx_alloc2(p->nexp * p->height, b->width, sizeof *s->light, e)) == NULL))
        return SPX_EIO;
    return SPX_OK;
}

static void free_state(spx_pf_state *s)
{
    spx_free(s->theta);
    spx_free(s->at);
    spx_free(s->gx);
    spx_free(s->gy);
    spx_free(s->c);
    spx_free(s->spot);
    spx_free(s->flux);
    spx_free(s->factor);
    spx_free(s->light);
    spx_free(s->lit);
}

/* Lines that some fibre has on the CCD. */
static spx_status take_lines(spx_pf_bundle *b, size_t nline, const spx_pf_line *line, const double *theta, spx_err *e)
{
    const spx_pf_plan *p = b->p;
    if ((b->line = spx_alloc(nline + 1, sizeof *b->line, e)) == NULL)
        return SPX_EIO;
    for (size_t l = 0; l < nline; l++) {
        int seen = 0;
        for (size_t i = 0; i < b->nf && !seen && line[l].wave > p->wmin && line[l].wave < p->wmax; i++) {
            double x, y;
            spx_pf_place(b, theta, i, line[l].wave, &x, &y);
            seen = y > -p->hy - 1 && y < (double)p->height + p->hy;
        }
        if (!seen)
            continue;
        spx_pf_line *to = &b->line[b->nl++];
        *to = line[l];
        spx_legendre_basis((size_t)p->ntr, spx_pf_u(p, to->wave), to->term);
    }
    return SPX_OK;
}

static spx_status fix_shape(spx_pf_bundle *b, spx_err *e)
{
    const spx_pf_plan *p = b->p;
    const size_t n = (size_t)(2 + p->nc);
    if ((b->fixed = spx_alloc2(b->nl * b->nf, n, sizeof *b->fixed, e)) == NULL)
        return SPX_EIO;
    for (size_t k = 0; k < b->nl * b->nf; k++) {
        double *to = b->fixed + k * n;
        spx_pf_shape_start(p, b->fibre0 + k % b->nf, b->line[k / b->nf].wave, &to[0], &to[1], to + 2);
    }
    return SPX_OK;
}

spx_status spx_pf_begin(const spx_pf_plan *p, size_t fibre0, size_t nf, size_t nfree, spx_pf_bundle *b, spx_err *e)
{
    memset(b, 0, sizeof *b);
    b->p = p;
    b->fibre0 = fibre0;
    b->nf = nf;
    b->nfree = nfree;
    b->nknot = (size_t)fmax(1, floor((double)p->height / KNOT_ROWS + 0.5)) + SPX_PF_SPLINE - 1;
    b->shift0 = nf * 2 * (size_t)p->ntr;
    b->free0 = b->shift0 + p->nshift;
    b->shape0 = b->free0 + nfree;
    b->ntheta = b->shape0 + (size_t)p->nb * (size_t)p->na * (size_t)p->nq;
    b->terms = p->ntr;
    b->active = p->nq;
    b->gauge = 1;
    if ((b->v = spx_alloc(nf, sizeof *b->v, e)) == NULL ||
        (b->vterm = spx_alloc2(nf, (size_t)p->na, sizeof *b->vterm, e)) == NULL ||
        (b->doubt = spx_alloc2(nf, 2, sizeof *b->doubt, e)) == NULL ||
        (b->theta0 = spx_alloc(b->ntheta, sizeof *b->theta0, e)) == NULL ||
        (b->base = spx_alloc(b->ntheta, sizeof *b->base, e)) == NULL ||
        (b->prior = spx_alloc2(nf, nf, sizeof *b->prior, e)) == NULL)
        return SPX_EIO;
    b->swell = b->doubt + nf;
    for (size_t i = 0; i < nf; i++) {
        b->swell[i] = 1;
        b->v[i] = nf > 1 ? 2.0 * (double)i / (double)(nf - 1) - 1.0 : 0.0;
        spx_legendre_basis((size_t)p->na, b->v[i], b->vterm + i * (size_t)p->na);
    }
    off_cubics(b);
    spx_status st = start_traces(b, b->theta0, e);
    return st == SPX_OK && p->nq > 0 ? start_shape(b, b->theta0, e) : st;
}

/* Holds the widths as they are. */
static spx_status hold_widths(spx_pf_bundle *b, spx_err *e)
{
    const size_t n = (size_t)(b->p->na * b->p->nb), nq = (size_t)b->p->nq;
    if (b->held == NULL && (b->held = spx_alloc2(n, 2, sizeof *b->held, e)) == NULL)
        return SPX_EIO;
    for (size_t k = 0; k < 2 * n; k++)
        b->held[k] = b->now.theta[b->shape0 + k / 2 * nq + k % 2];
    return SPX_OK;
}

spx_status spx_pf_narrow(spx_pf_bundle *b, spx_err *e)
{
    const spx_pf_plan *p = b->p;
    double *shape = b->now.theta + b->shape0;
    for (int axis = 0; axis < 2; axis++) {
        for (int t = 0; t < p->na * p->nb; t++)
            shape[t * p->nq + axis] *= p->narrow;
        /* variance: width^2 (1 + 2 GH-2-0) */
        shape[spx_pf_row(p, axis == 0 ? 2 : 0, axis == 0 ? 0 : 2)] = 0.5 * (1 / (p->narrow * p->narrow) - 1);
    }
    return hold_widths(b, e);
}

spx_status spx_pf_open(const spx_pf_plan *p, size_t fibre0, size_t nf, size_t nline, const spx_pf_line *line,
                       const double *theta, spx_pf_bundle *b, spx_err *e)
{
    border left, right;
    size_t nfree = 0;
    for (size_t l = 0; l < nline; l++)
        nfree += line[l].free > 0;
    spx_status st = spx_pf_begin(p, fibre0, nf, nfree, b, e);
    if (st == SPX_OK && (b->px = spx_alloc(p->nexp, sizeof *b->px, e)) == NULL)
        st = SPX_EIO;
    const double *from = theta != NULL ? theta : b->theta0;
    if (st == SPX_OK)
        st = take_lines(b, nline, line, from, e);
    if (st != SPX_OK)
        return st;
    b->nspot = p->nexp * b->nl * nf;
    find_border(b, b->theta0, 0, &left);
    find_border(b, b->theta0, 1, &right);
    double lo = (double)p->columns, hi = 0;
    for (size_t r = 0; r < p->height; r += 4) {
        lo = fmin(lo, border_at(&left, (double)r));
        hi = fmax(hi, border_at(&right, (double)r));
    }
    lo = fmax(0, floor(lo) - 1);
    hi = fmin((double)p->columns, ceil(hi) + 1);
    b->x0 = (size_t)fmin(lo, (double)p->columns - 1);
    b->width = hi > lo ? (size_t)(hi - lo) : 1;
    if (b->x0 + b->width > p->columns)
        b->width = p->columns - b->x0;
    const int known = theta != NULL && p->device != NULL && p->device->has_pixels(p->device, fibre0);
    st = take_pixels(b, known, &left, &right, e);
    if (st == SPX_OK)
        st = allocate_state(b, &b->now, e);
    if (st == SPX_OK)
        st = allocate_state(b, &b->trial, e);
    if (st == SPX_OK && p->device == NULL &&
        (b->stamp = spx_alloc2((p->nq > 0 ? SPX_PF_STAMPS : SPX_PF_BY_SIGX) * b->nl * nf, (size_t)(p->nx * p->ny),
                               sizeof *b->stamp, e)) == NULL)
        st = SPX_EIO;
    if (st == SPX_OK && p->nq == 0)
        st = fix_shape(b, e);
    if (st == SPX_OK && (b->slope = spx_alloc2(b->nl * nf, 2, sizeof *b->slope, e)) == NULL)
        st = SPX_EIO;
    if (st == SPX_OK && theta == NULL)
        memcpy(b->now.theta, b->theta0, b->ntheta * sizeof *b->now.theta);
    if (st == SPX_OK && theta != NULL) {
        memcpy(b->now.theta, theta, b->free0 * sizeof *theta);
        memcpy(b->now.theta + b->shape0, theta + b->free0, (b->ntheta - b->shape0) * sizeof *theta);
        if (p->narrow < 1 && p->nq > 0)
            st = hold_widths(b, e);
    }
    return st;
}

void spx_pf_close(spx_pf_bundle *b)
{
    for (size_t x = 0; b->px != NULL && x < b->p->nexp; x++) {
        spx_pf_pixels *px = &b->px[x];
        spx_free(px->data);
        spx_free(px->noise);
        spx_free(px->soft);
        spx_free(px->median);
        spx_free(px->root);
        spx_free(px->ground);
        spx_free(px->goal);
        spx_free(px->quiet);
        spx_free(px->rejected);
        spx_free(px->rows);
        spx_free(px->coef);
        spx_free(px->own);
        spx_free(px->drifts);
        spx_free(px->profile);
        spx_free(px->at);
    }
    spx_free(b->line);
    spx_free(b->group);
    spx_free(b->px);
    spx_free(b->v);
    spx_free(b->vterm);
    spx_free(b->doubt);
    spx_free(b->fixed);
    spx_free(b->theta0);
    spx_free(b->held);
    spx_free(b->base);
    spx_free(b->prior);
    spx_free(b->precision);
    spx_free(b->mate);
    free_state(&b->now);
    free_state(&b->trial);
    spx_free(b->slope);
    spx_free(b->stamp);
    spx_free(b->matrix);
    spx_free(b->covariance);
    spx_pf_work_free(b->work);
    memset(b, 0, sizeof *b);
}

/* ---- groups, and what changes from pass to pass ---- */

static int touch(const spx_pf_bundle *b, size_t l, size_t m)
{
    const double close = 2 * b->p->hy + 3;
    for (size_t i = 0; i < b->nf; i++)
        if (fabs(b->now.at[l * b->nf + i].y - b->now.at[m * b->nf + i].y) < close)
            return 1;
    return 0;
}

/* Cross profile of fibre i where it crosses a row, into g[nx], and its first column: sums along
 * columns of its spot there, which is what a smooth continuum makes of spots. Not sum_i GH-i-0 g_i(x): pixels below 0
 * are clipped. */
static long profile_at(const spx_pf_bundle *b, size_t i, const spx_pf_node *node, double *g)
{
    const spx_pf_plan *p = b->p;
    const spx_pf_kernels *kernels = spx_pf_kernels_find();
    double sigx, sigy, c[SPX_PF_MOST_LOCAL], gx[(SPX_PF_MOST_HERMITE + 2) * 128], gy[sizeof gx / sizeof *gx];
    const double X = node->x;
    spx_pf_shape(b, b->base, i, node->wave, &sigx, &sigy, c);
    const double variance = sigx * sigx + node->wider;
    sigx = sigx > 0 ? sqrt(fmin(fmax(variance, 0.5 * sigx * sigx), 2 * sigx * sigx)) : 0;
    const double mx = floor(X + 0.5);
    for (int k = 0; k < p->nx; k++)
        g[k] = 0;
    if (!(fabs(X) < SPX_SPOT_FAR && sigx > 0.05 && sigy > 0.05))
        return -(long)p->nx * 4;
    kernels->hermite(p->deg + 1, p->nx, X - mx, sigx, gx);
    kernels->hermite(p->deg, p->ny, 0, sigy, gy);
    kernels->profile(p, gx, gy, c, g);
    return (long)mx - p->hx - (long)b->x0;
}

/* Where fibre i crosses rows 0, PROFILE_STEP, ...: by the slope at the row before, with one step back to the row where
 * that is enough, as traces are close to lines. */
typedef struct {
    double wave, x, y, slope; /* 0: not known */
} along;

static void follow_trace(const spx_pf_bundle *b, size_t i, double row, along *at)
{
    const spx_pf_plan *p = b->p;
    double y, wave = at->slope != 0 ? at->wave + (row - at->y) / at->slope : NAN;
    for (int k = 0; k < 2 && wave > p->wmin && wave < p->wmax; k++) {
        spx_pf_place(b, b->base, i, wave, &at->x, &y);
        if (wave != at->wave)
            at->slope = (y - at->y) / (wave - at->wave);
        at->wave = wave;
        at->y = y;
        if (fabs(y - row) < 1e-3)
            return;
        wave += (row - y) / at->slope;
    }
    /* the first row, one beyond the range, or a trace that bends */
    const double step = 1e-4 * (p->wmax - p->wmin);
    double ahead, x;
    at->wave = spx_pf_wave_at(b, b->base, i, row);
    spx_pf_place(b, b->base, i, at->wave, &at->x, &at->y);
    spx_pf_place(b, b->base, i, at->wave + step, &x, &ahead);
    at->slope = (ahead - at->y) / step;
}

/* Where fibre i crosses a row of exposure x, for its profile. */
static spx_pf_node node_at(const spx_pf_bundle *b, size_t x, size_t i, double row, along *at)
{
    const spx_pf_plan *p = b->p;
    const double *own = b->px[x].own + 6 * i;
    const double t = 2 * row / (double)(p->height > 1 ? p->height - 1 : 1) - 1;
    follow_trace(b, i, row, at);
    double X = at->x + (own[0] + t * (own[1] + t * own[2]));
    if (x > 0 && p->nshift > 0)
        X += b->base[b->shift0 + 2 * (x - 1)];
    return (spx_pf_node){at->wave, X, 2 * (own[3] + t * (own[4] + t * own[5]))};
}

/* Profile in a row between two of which one begins at column `first`, the other, g, at `at`: its pixels from `first`
 * on, zeros around them. padded[3][wide]: zeros before and after. */
static const double *shift_profile(size_t wide, int nx, const double *g, long first, long at, double *padded)
{
    const long by = at - first < (long)wide ? at - first : (long)wide;
    memset(padded, 0, 3 * wide * sizeof *padded);
    memcpy(padded + wide, g, (size_t)nx * sizeof *g);
    return padded + (long)wide - by;
}

/* Fibres from i on whose profiles, which begin at columns at[.][stride] and move by `moves` columns at most between two
 * nodes, overlap with its own; at least `least`. */
static size_t overlap_from(const spx_pf_bundle *b, size_t i, const int32_t *at, size_t stride, long moves, size_t least)
{
    const long most = (long)spx_pf_profile_width(b->p), wide = b->p->nx + moves < most ? b->p->nx + moves : most;
    while (i + least < b->nf && labs(at[(i + least) * stride] - at[i * stride]) < wide)
        least++;
    return least;
}

/* Profiles of an exposure on a device. SPX_EIO: memory. */
static spx_status profiles_there(spx_pf_bundle *b, size_t x, spx_err *e)
{
    const spx_pf_plan *p = b->p;
    const size_t nstep = (p->height + PROFILE_STEP - 1) / PROFILE_STEP, n = nstep + 1;
    spx_pf_node *node = spx_alloc_unset(b->nf * n, 1, sizeof *node, e);
    int32_t *at = spx_alloc(b->nf * n, sizeof *at, e);
    const spx_status st = node != NULL && at != NULL ? SPX_OK : SPX_EIO;
    for (size_t i = 0; i < b->nf && st == SPX_OK; i++) {
        along place = {0};
        for (size_t k = 0; k < n; k++) {
            const double row = (double)(k * PROFILE_STEP);
            node[i * n + k] = node_at(b, x, i, row, &place);
        }
    }
    if (st == SPX_OK)
        (void)p->device->profiles(b, x, PROFILE_STEP, nstep, node, at);
    b->px[x].overlap = 1;
    long moves = 0;
    for (size_t i = 0; i < b->nf && st == SPX_OK; i++) /* profiles begin at the lower column of two nodes */
        for (size_t k = 0; k < nstep; k++) {
            const long by = labs((long)at[i * n + k + 1] - at[i * n + k]);
            moves = by > moves ? by : moves;
            at[i * n + k] = at[i * n + k] < at[i * n + k + 1] ? at[i * n + k] : at[i * n + k + 1];
        }
    for (size_t k = 0; k < nstep && st == SPX_OK; k++)
        for (size_t i = 0; i < b->nf; i++)
            b->px[x].overlap = overlap_from(b, i, at + k, n, moves, b->px[x].overlap);
    spx_free(node);
    spx_free(at);
    return st;
}

spx_status spx_pf_profiles(spx_pf_bundle *b, spx_err *e)
{
    const spx_pf_plan *p = b->p;
    const spx_pf_kernels *kernels = spx_pf_kernels_find();
    const size_t wide = spx_pf_profile_width(p);
    double below[128], above[128], padded[2][3 * SPX_PF_MOST_WIDE];
    long moves = 0; /* columns that a profile moves by between two nodes, at most */
    spx_status st = SPX_OK;
    for (size_t x = 0; x < p->nexp && st == SPX_OK; x++) {
        b->px[x].whole = 0;
        if (b->there != NULL)
            st = profiles_there(b, x, e);
    }
    for (size_t x = 0; x < p->nexp && b->there == NULL; x++)
        for (size_t i = 0; i < b->nf; i++) {
            along place = {0};
            spx_pf_node node = node_at(b, x, i, 0, &place);
            long at = profile_at(b, i, &node, below);
            for (size_t r = 0; r < p->height; r += PROFILE_STEP) {
                const double row = (double)(r + PROFILE_STEP);
                node = node_at(b, x, i, row, &place);
                const long next = profile_at(b, i, &node, above);
                const long first = at < next ? at : next;
                moves = labs(next - at) > moves ? labs(next - at) : moves;
                const double *lo = shift_profile(wide, p->nx, below, first, at, padded[0]);
                const double *hi = shift_profile(wide, p->nx, above, first, next, padded[1]);
                for (size_t k = 0; k < PROFILE_STEP && r + k < p->height; k++) {
                    b->px[x].at[(r + k) * b->nf + i] = (int32_t)first;
                    kernels->between(wide, lo, hi, (double)k / PROFILE_STEP,
                                     b->px[x].profile + ((r + k) * b->nf + i) * wide);
                }
                at = next;
                memcpy(below, above, sizeof below);
            }
        }
    for (size_t x = 0; x < p->nexp && b->there == NULL; x++) {
        b->px[x].overlap = 1;
        for (size_t r = 0; r < p->height; r += PROFILE_STEP)
            for (size_t i = 0; i < b->nf; i++)
                b->px[x].overlap = overlap_from(b, i, b->px[x].at + r * b->nf, 1, moves, b->px[x].overlap);
    }
    return st;
}

/* Profiles of the parameters as they are. */
static spx_status new_profiles(spx_pf_bundle *b, spx_err *e)
{
    memcpy(b->base, b->now.theta, b->ntheta * sizeof *b->base);
    for (size_t x = 0; x < b->p->nexp; x++) {
        memset(b->px[x].own, 0, 6 * b->nf * sizeof *b->px[x].own);
        memset(b->px[x].drift, 0, 6 * b->nf * sizeof *b->px[x].drift);
    }
    return spx_pf_profiles(b, e);
}

/* Whether the profiles are those of the parameters as they are. */
static int has_profiles(const spx_pf_bundle *b)
{
    int same = memcmp(b->base, b->now.theta, b->ntheta * sizeof *b->base) == 0;
    for (size_t x = 0; x < b->p->nexp && same; x++)
        for (size_t k = 0; k < 6 * b->nf; k++)
            same &= b->px[x].own[k] == 0;
    return same;
}

/* A quadratic of the row, q, along the trace of fibre i as a series of wavelengths: its first three terms, or as many
 * as traces have. */
static spx_status along_trace(const spx_pf_bundle *b, size_t i, const double *q, double *series, spx_err *e)
{
    const spx_pf_plan *p = b->p;
    const size_t n = p->ntr < 3 ? (size_t)p->ntr : 3;
    double wave[NODES], basis[NODES * 3], value[NODES];
    nodes(p->wmin, p->wmax, wave);
    for (size_t k = 0; k < NODES; k++) {
        double x, y;
        spx_pf_place(b, b->now.theta, i, wave[k], &x, &y);
        const double t = fmin(fmax(2 * y / (double)p->height - 1, -1), 1);
        value[k] = q[0] + t * (q[1] + t * q[2]);
        spx_legendre_basis(n, spx_pf_u(p, wave[k]), basis + k * n);
    }
    return least_squares(NODES, n, basis, 1, value, series, e);
}

spx_status spx_pf_follow(spx_pf_bundle *b, int *moved, spx_err *e)
{
    const spx_pf_plan *p = b->p;
    const size_t ntr = (size_t)p->ntr;
    spx_status st = SPX_OK;
    *moved = 0;
    for (size_t i = 0; i < b->nf && st == SPX_OK; i++) {
        double series[3] = {0};
        const double *drift = b->px[0].own + 6 * i;
        if (!b->px[0].drifts[i])
            continue;
        st = along_trace(b, i, drift, series, e);
        for (size_t k = 0; k < 3 && k < ntr && st == SPX_OK; k++)
            b->now.theta[2 * i * ntr + k] += series[k];
        *moved = 1;
    }
    /* other exposures, beyond what the first has moved by */
    for (size_t x = 1; x < p->nexp && p->nshift > 0 && st == SPX_OK; x++) {
        double sum = 0, n = 0;
        for (size_t i = 0; i < b->nf; i++)
            if (b->px[x].drifts[i]) {
                sum += b->px[x].own[6 * i] - (b->px[0].drifts[i] ? b->px[0].own[6 * i] : 0);
                n++;
            }
        b->now.theta[b->shift0 + 2 * (x - 1)] += n > 0 ? sum / n : 0;
        *moved |= n > 0;
    }
    for (size_t x = 0; x < p->nexp; x++)
        memset(b->px[x].drifts, 0, b->nf);
    if (st == SPX_OK && *moved)
        st = new_profiles(b, e);
    return st;
}

/* A line whose (S/N)^2, summed over fibres and exposures, is less than this part of all lines' is weak. In the passes
 * before "clip", which need not be exact, so are the faintest ones that have this part together, but for the two
 * brightest in each part of the range, of which there are twice as many as terms of a trace. */
#define WEAK       2e-5
#define WEAK_EARLY 0.05

/* Information on the flux of each spot by itself, sum (root S)^2. */
static void find_power(const spx_pf_bundle *b, double *power)
{
    const size_t npix = (size_t)b->p->nx * (size_t)b->p->ny;
    for (size_t s = 0; s < b->nspot; s++) {
        const spx_pf_at *at = &b->now.at[s];
        const float *root = b->px[s / (b->nl * b->nf)].root;
        power[s] = 0;
        for (int r = at->y0; r < at->y1; r++)
            for (int k = at->x0; k < at->x1; k++) {
                const double v = root[(size_t)(at->yc + r) * b->width + (size_t)(at->xc + k)] *
                                 b->now.spot[s * npix + (size_t)(r * b->p->nx + k)];
                power[s] += v * v;
            }
    }
}

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Whether two lines of the same part of the range are brighter than a line. */
static int has_brighter(const spx_pf_bundle *b, const double *light, size_t line)
{
    const double part = (b->p->wmax - b->p->wmin) / (2 * b->p->ntr);
    const double mine = floor((b->line[line].wave - b->p->wmin) / part);
    int n = 0;
    for (size_t l = 0; l < b->nl; l++)
        n += floor((b->line[l].wave - b->p->wmin) / part) == mine && light[l] > light[line];
    return n >= 2;
}

static spx_status find_weak(spx_pf_bundle *b, int early, const double *power, spx_err *e)
{
    double *light = spx_alloc2(2, b->nl + 1, sizeof *light, e), all = 0, faint = 0, least = 0;
    if (light == NULL)
        return SPX_EIO;
    double *order = light + b->nl;
    for (size_t s = 0; s < b->nspot; s++) /* (S/N)^2 */
        light[s / b->nf % b->nl] += b->now.flux[s] > 0 ? b->now.flux[s] * b->now.flux[s] * power[s] : 0;
    for (size_t l = 0; l < b->nl; l++)
        all += order[l] = light[l];
    qsort(order, b->nl, sizeof *order, by_value);
    for (size_t l = 0; l < b->nl && early && faint + order[l] < WEAK_EARLY * all; l++) {
        faint += order[l];
        least = order[l];
    }
    for (size_t l = 0; l < b->nl; l++)
        b->line[l].weak = light[l] < WEAK * all || (light[l] > 0 && light[l] <= least && has_brighter(b, light, l));
    spx_free(light);
    return SPX_OK;
}

/* Groups of lines whose spots touch, and fibres whose spots overlap. SPX_EIO: memory. */
static spx_status make_groups(spx_pf_bundle *b, spx_err *e)
{
    const spx_pf_plan *p = b->p;
    size_t largest = 0;
    spx_free(b->group);
    spx_free(b->matrix);
    spx_free(b->now.factor);
    spx_free(b->trial.factor);
    b->matrix = b->now.factor = b->trial.factor = NULL;
    if ((b->group = spx_alloc(b->nl + 1, sizeof *b->group, e)) == NULL)
        return SPX_EIO;
    b->ngroup = b->nfactor = 0;
    for (size_t l = 0; l < b->nl; l++) {
        if (l == 0 || !touch(b, l - 1, l))
            b->group[b->ngroup++].first = l;
        b->group[b->ngroup - 1].last = l + 1;
        b->line[l].group = b->ngroup - 1;
    }
    for (size_t g = 0; g < b->ngroup; g++) {
        const size_t n = (b->group[g].last - b->group[g].first) * b->nf;
        b->group[g].factor = b->nfactor;
        b->nfactor += n * n;
        largest = n > largest ? n : largest;
    }
    b->reach = 0;
    for (size_t l = 0; l < b->nl; l++)
        for (size_t i = 0; i < b->nf; i++)
            while (i + (size_t)b->reach + 1 < b->nf &&
                   b->now.at[l * b->nf + i + (size_t)b->reach + 1].x - b->now.at[l * b->nf + i].x < p->nx + 2)
                b->reach++;
    if ((b->now.factor = spx_alloc2(p->nexp, b->nfactor, sizeof *b->now.factor, e)) == NULL ||
        (b->trial.factor = spx_alloc2(p->nexp, b->nfactor, sizeof *b->trial.factor, e)) == NULL ||
        (b->matrix = spx_alloc2(largest, largest + 1, sizeof *b->matrix, e)) == NULL)
        return SPX_EIO;
    return SPX_OK;
}

spx_status spx_pf_regroup(spx_pf_bundle *b, int early, spx_err *e)
{
    const spx_pf_plan *p = b->p;
    double *power = spx_alloc_unset(b->nspot + 1, 1, sizeof *power, e);
    if (power == NULL)
        return SPX_EIO;
    if (b->there == NULL)
        find_power(b, power);
    else if (!p->device->places(b, power))
        memset(power, 0, b->nspot * sizeof *power);
    spx_status st = make_groups(b, e);
    if (st == SPX_OK)
        st = find_weak(b, early, power, e);
    spx_free(power);
    if (st == SPX_OK && b->there != NULL)
        (void)p->device->regroup(b); /* what fails is told in the end */
    if (st == SPX_OK && !has_profiles(b))
        st = new_profiles(b, e);
    return st;
}
