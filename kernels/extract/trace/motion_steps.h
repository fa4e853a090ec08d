/* Provides the steps of the motion of traces (extract/motion.h) on a device: each is a function of a team and an item,
 * in the order in which they stand here. Items of a step do not depend on each other; every sum has a fixed order.
 *
 *     step        item              threads       results
 *     pixel       pixel             one           weights
 *     spot        bin of a fibre    a warp        spot, its derivatives
 *     equations   bin of some       STEP          M, A^T W p, A^T W 1
 *     regularise  bundle            STEP          M, whether there is light
 *     factor      fibre             a warp        L D L^T of its block, variances
 *     fluxes      bundle            FLUX          flux, range of coupling
 *     light_of    fibre             a warp        light of J
 *     strip       fibre             HALF          J and A f of a fibre alone
 *     rest        bundle            FLUX          residual, chi^2
 *     weigh       fibre             HALF          W J; g and J^T W J
 *     couple      fibre             HALF          v = A^T W J
 *     columns     fibre             HALF          z = M^-1 v
 *     project     fibre             a warp        F
 *
 * A job is a bundle in a window. A row of values has one a fibre, nl of them. The CPU's arithmetic is in motion.h, up
 * to the order of sums. What a device does not solve as it stands is left to the CPU, which regularises. */
#ifndef SPX_EXTRACT_TRACE_MOTION_STEPS_H
#define SPX_EXTRACT_TRACE_MOTION_STEPS_H

#include <math.h>
#include <stddef.h>

#include "extract/motion.h"
#include "extract/motion_math.h"
#include "extract/trace/trace.h"
#include "psf/psf_math.h"
#include "team.h"

enum {
    SPX_MOTION_STEP_TEAM = 256, /* threads */
    SPX_MOTION_FLUX_TEAM = 512,
    SPX_MOTION_HALF_TEAM = 128,
    SPX_MOTION_VECTORS = 8,     /* of a system: x, r, z or M d, d, of both columns of a fibre; of the fluxes fewer */
    SPX_MOTION_CHUNK = 64,      /* bins whose places a strip keeps at a time */
    SPX_MOTION_MOST_STEPS = 100 /* of conjugate gradients */
};

/* Shared memory of a block that every device has, bytes. */
enum { SPX_MOTION_SHARED = 48 << 10 };

/* Where rounding ends, of conjugate gradients. */
#define SPX_MOTION_ROUNDING 1e-26

/* Largest half-bandwidth whose recurrences keep the last bins in registers. */
enum { SPX_MOTION_NARROW = 8 };

typedef struct {
    int df, dk;
} spx_motion_element;

typedef struct {
    int window, n, nf, fibre0; /* bins, fibres */
    int y0, y1, x0, width;     /* rows that are used, columns that spots touch */
    long image;                /* where pixel (0, 0) of the CCD would be among the rows of all windows */
} spx_motion_job;

enum { SPX_MOTION_SOLVED, SPX_MOTION_DARK, SPX_MOTION_LEFT };

typedef struct {
    int status; /* dark: no light; left: to the CPU */
    spx_motion_range range;
    spx_motion_fit fit;
} spx_motion_result;

/* Sizes are those of the largest job. */
typedef struct {
    int njob, n, nl, nx, ny, npix, degx, degy, npar, ndeg, ccd_nx;
    int reach, z, m, nelem, half; /* overlaps as of spx_trace_bundle; z = reach + 1, m = hi[0] */
    int group;                    /* fibres of an item of the equations */
    int height, width, tile;      /* of a strip; columns of a job */
    int rough;                    /* F stays J^T W J: no couple, columns, project */
    double tolerance;             /* of the flux */
    size_t npixel;                /* of the rows of all windows */
    int *lo, *hi, *first;         /* [reach + 1] */
    spx_motion_element *element;  /* [nelem] */
    spx_motion_job *job;          /* [njob] */
    spx_bin_geometry *at;         /* [njob][n][nl] */
    unsigned char *state;         /* [njob][n][nl] */
    int *left;                    /* [njob][nl] first column of a strip */
    double *coeff, *basis;        /* [nspec][ndeg][npar], [nwindow][n][ndeg] */
    double *lambda;               /* [nwindow][n] */
    float *weight, *data;         /* [npixel] ivar and image, then weights and values */
    unsigned *mask;               /* [npixel]; NULL: none */
    double *spot, *dx, *dwidth;   /* [njob][nl][n][npix] */
    double *y, *w, *x, *variance; /* [njob][n][nl] */
    double *light;                /* [njob][n][nl] */
    double *mat;                  /* [njob][n][nelem][nl] */
    double *ldl, *inverse;        /* [njob][n][m + 1][nl]: 1/D, L; Z(k, k + d) */
    double *vector;               /* [njob][nl][VECTORS][n][nl] */
    double *work;                 /* [njob][4][n + 1][nl] */
    double *strip;                /* [njob][nl][3][height][width]: J, A f */
    double *wj;                   /* [njob][nl][2][height][width] */
    unsigned char *touched;       /* [njob][nl][height][width] */
    double *rest;                 /* [njob][height][tile] */
    double *v, *solution;         /* [njob][2][nl][2 z + 1][n] */
    spx_motion_row *row;          /* [njob][nl] */
    spx_motion_result *result;    /* [njob] */
} spx_motion_view;

/* ---- places in arrays ---- */

SPX_HD size_t spx_motion_bin(const spx_motion_view *g, size_t job, size_t k, size_t f)
{
    return (job * (size_t)g->n + k) * (size_t)g->nl + f;
}

SPX_HD size_t spx_motion_spot_at(const spx_motion_view *g, size_t job, size_t f, size_t k)
{
    return ((job * (size_t)g->nl + f) * (size_t)g->n + k) * (size_t)g->npix;
}

SPX_HD size_t spx_motion_strip_size(const spx_motion_view *g)
{
    return (size_t)g->height * (size_t)g->width;
}

/* Pixel of the CCD among those that are used, or -1. */
SPX_HD long spx_motion_pixel_at(const spx_motion_view *g, const spx_motion_job *job, int x, int y)
{
    return y >= job->y0 && y < job->y1 && x >= 0 && x < g->ccd_nx ? job->image + (long)y * g->ccd_nx + x : -1;
}

/* ---- pixel ---- */

/* As spx_extract_pixel_weights() has them. */
SPX_HD void spx_motion_pixel(const spx_motion_view *g, size_t i)
{
    const float value = g->data[i], ivar = g->weight[i];
    const int good = isfinite(value) && isfinite(ivar) && ivar > 0.0f && (g->mask == NULL || g->mask[i] == 0);
    g->weight[i] = good ? ivar : 0.0f;
    g->data[i] = good ? value : 0.0f;
}

/* ---- spot ---- */

/* Doubles of shared memory: coefficients, edges, functions at the edges, their differences and derivatives along x,
 * sums along y. */
SPX_HD size_t spx_motion_spot_shared(const spx_motion_view *g)
{
    const size_t edges = (size_t)(g->nx + g->ny + 2), deg = (size_t)(g->degx > g->degy ? g->degx : g->degy);
    return (size_t)g->npar + edges * (deg + 3) + (size_t)(g->degx + 1) * (size_t)(3 * g->nx + g->ny);
}

/* make_spot_of() with derivatives (spots.h, which has the equations). */
SPX_HD void spx_motion_spot(const spx_motion_view *g, const spx_team *t, size_t item)
{
    const size_t k = item % (size_t)g->n, f = item / (size_t)g->n % (size_t)g->nl;
    const size_t job = item / (size_t)g->n / (size_t)g->nl, bin = spx_motion_bin(g, job, k, f);
    const int nx = g->nx, ny = g->ny, degx = g->degx, degy = g->degy, ne = nx + ny + 2, npar = g->npar;
    const int deg = (degx > degy ? degx : degy) + 1, ngh = (degx + 1) * (degy + 1);
    if (g->state[bin] != SPX_TRACE_SPOT)
        return;
    double *c = t->shared, *e = c + npar, *h = e + ne, *gx = h + (deg + 1) * ne, *moved = gx + (degx + 1) * nx;
    double *wider = moved + (degx + 1) * nx, *across = wider + (degx + 1) * nx;
    const size_t to = spx_motion_spot_at(g, job, f, k);
    double *spot = g->spot + to, *dx = g->dx + to, *dwidth = g->dwidth + to;
    const size_t fibre = (size_t)g->job[job].fibre0 + f;
    const double *coeff = g->coeff + fibre * (size_t)g->ndeg * (size_t)npar;
    const double *basis = g->basis + ((size_t)g->job[job].window * (size_t)g->n + k) * (size_t)g->ndeg;
    for (int i = t->thread; i < ngh + 2; i += t->threads) {
        double sum = 0;
        for (int d = 0; d < g->ndeg; d++)
            sum += coeff[d * npar + i] * basis[d];
        c[i] = sum;
    }
    spx_team_wait(t);
    const double sigx = c[ngh], sigy = c[ngh + 1];
    int good = sigx > 0 && sigy > 0 && sigx < SPX_SPOT_FAR && sigy < SPX_SPOT_FAR;
    const double isx = 1 / sigx, isy = 1 / sigy;
    for (int i = t->thread; good && i < ne; i += t->threads) {
        const int along = i <= nx;
        const double edge = along ? (-(nx / 2) - 0.5 - g->at[bin].dx + i) * isx
                                  : (-(ny / 2) - 0.5 - g->at[bin].dy + (i - nx - 1)) * isy;
        e[i] = edge;
        spx_gauss_hermite_edge(edge, deg, h + i, ne);
    }
    spx_team_wait(t);
    for (int i = t->thread; good && i < (degx + 1) * nx; i += t->threads) {
        const int order = i / nx, x = i % nx;
        const double *hi = h + order * ne + x, *up = hi + ne;
        gx[i] = hi[0] - hi[1];
        moved[i] = (up[0] - up[1]) * isx;
        wider[i] = e[x] * up[0] - e[x + 1] * up[1];
    }
    for (int i = t->thread; good && i < (degx + 1) * ny; i += t->threads) {
        const int order = i / ny, y = i % ny;
        double sum = 0;
        for (int j = 0; j <= degy; j++) {
            const double *hj = h + j * ne + nx + 1 + y;
            sum += (hj[0] - hj[1]) * c[order + (degx + 1) * j];
        }
        across[i] = sum;
    }
    spx_team_wait(t);
    double raw = 0, sum = 0, more = 0, more_wide = 0;
    for (int p = t->thread; good && p < g->npix; p += t->threads) {
        const int y = p / nx, x = p % nx;
        double s = 0, a = 0, b = 0;
        for (int i = 0; i <= degx; i++) {
            const double there = across[i * ny + y];
            s += there * gx[i * nx + x];
            a += there * moved[i * nx + x];
            b += there * wider[i * nx + x];
        }
        raw += s;
        const int lit = s > 0;
        spot[p] = lit ? s : 0;
        dx[p] = lit ? a : 0;
        dwidth[p] = lit ? b : 0;
        sum += spot[p];
        more += dx[p];
        more_wide += dwidth[p];
    }
    raw = spx_team_sum(t, raw);
    sum = spx_team_sum(t, sum);
    more = spx_team_sum(t, more);
    more_wide = spx_team_sum(t, more_wide);
    const double scale = good && isfinite(raw) && sum > 0 && isfinite(sum) ? 1 / sum : 0;
    good = scale > 0 && isfinite(scale);
    if (!good && t->thread == 0)
        g->state[bin] = SPX_TRACE_NOSPOT;
    for (int p = t->thread; good && p < g->npix; p += t->threads) { /* those of before: this thread's own */
        const double s = spot[p] * scale;
        spot[p] = s;
        dx[p] = dx[p] * scale - s * (more * scale);
        dwidth[p] = dwidth[p] * scale - s * (more_wide * scale);
    }
}

/* ---- equations ---- */

/* Groups of fibres, and doubles of shared memory. */
SPX_HD int spx_motion_groups(const spx_motion_view *g)
{
    return (g->nl + g->group - 1) / g->group;
}

SPX_HD size_t spx_motion_equations_shared(const spx_motion_view *g)
{
    return (size_t)g->group * (size_t)g->npix;
}

/* Element of M: sum over the pixels that both spots cover; `weighted` is the first times the weights. */
SPX_HD double spx_motion_overlap(int nx, int ny, const double *weighted, const spx_bin_geometry *i, const double *spot,
                                 const spx_bin_geometry *j)
{
    const int dx = j->xc - i->xc, dy = j->yc - i->yc;
    const int columns = nx - (dx < 0 ? -dx : dx), rows = ny - (dy < 0 ? -dy : dy);
    if (columns <= 0 || rows <= 0)
        return 0;
    const double *a = weighted + (dx > 0 ? dx : 0) + (dy > 0 ? dy : 0) * nx;
    const double *b = spot + (dx < 0 ? -dx : 0) + (dy < 0 ? -dy : 0) * nx;
    double even = 0, odd = 0;
    for (int y = 0; y < rows; y++, a += nx, b += nx) {
        int x = 0;
        for (; x + 1 < columns; x += 2) {
            even += a[x] * b[x];
            odd += a[x + 1] * b[x + 1];
        }
        if (x < columns)
            even += a[x] * b[x];
    }
    return even + odd;
}

SPX_HD void spx_motion_equations(const spx_motion_view *g, const spx_team *t, size_t item)
{
    const size_t groups = (size_t)spx_motion_groups(g), k = item / groups % (size_t)g->n;
    const size_t job = item / groups / (size_t)g->n;
    const spx_motion_job *here = &g->job[job];
    const int f0 = (int)(item % groups) * g->group, npix = g->npix;
    double *weighted = t->shared;
    for (int i = t->thread; i < g->group * npix; i += t->threads) {
        const int f = f0 + i / npix, p = i % npix;
        if (f >= here->nf || (int)k >= here->n)
            continue;
        const size_t bin = spx_motion_bin(g, job, k, (size_t)f);
        if (g->state[bin] != SPX_TRACE_SPOT)
            continue;
        const long pixel = spx_motion_pixel_at(g, here, g->at[bin].xc + p % g->nx, g->at[bin].yc + p / g->nx);
        const double spot = g->spot[spx_motion_spot_at(g, job, (size_t)f, k) + (size_t)p];
        weighted[i] = pixel < 0 ? 0 : spot * (double)g->weight[pixel];
    }
    spx_team_wait(t);
    for (int task = t->thread; task < g->group * (g->nelem + 2); task += t->threads) {
        const int f = f0 + task % g->group, e = task / g->group;
        if (f >= g->nl)
            continue;
        const size_t bin = spx_motion_bin(g, job, k, (size_t)f);
        const int there = f < here->nf && (int)k < here->n && g->state[bin] == SPX_TRACE_SPOT;
        const double *mine = weighted + (size_t)(f - f0) * (size_t)npix;
        double sum = 0;
        if (e >= g->nelem) { /* A^T W 1, A^T W p */
            for (int p = 0; there && p < npix; p++) {
                const long pixel = spx_motion_pixel_at(g, here, g->at[bin].xc + p % g->nx, g->at[bin].yc + p / g->nx);
                sum += e == g->nelem ? mine[p] : pixel < 0 ? 0 : mine[p] * (double)g->data[pixel];
            }
            (e == g->nelem ? g->w : g->y)[bin] = sum;
            continue;
        }
        const int its = f + g->element[e].df, other = (int)k + g->element[e].dk;
        if (there && its < here->nf && other >= 0 && other < here->n) {
            const size_t partner = spx_motion_bin(g, job, (size_t)other, (size_t)its);
            if (g->state[partner] == SPX_TRACE_SPOT)
                sum = spx_motion_overlap(g->nx, g->ny, mine, &g->at[bin],
                                         g->spot + spx_motion_spot_at(g, job, (size_t)its, (size_t)other),
                                         &g->at[partner]);
        }
        g->mat[((job * (size_t)g->n + k) * (size_t)g->nelem + (size_t)e) * (size_t)g->nl + (size_t)f] = sum;
    }
}

/* ---- banded algebra of a fibre ---- */

/* L D L^T of a fibre's own block by a team, its elements `nl` apart; d[n]: D; u[m + 1]: shared. 0: there is none. As
 * factor() (calib/band_lanes.h). Waits. */
SPX_HD int spx_motion_factor_block(const spx_team *t, int n, int m, size_t nl, const double *a, size_t arow, double *l,
                                   double *d, double *u)
{
    const size_t lrow = (size_t)(m + 1) * nl;
    int good = 1;
    for (int j = 0; j < n; j++) {
        const int back = j < m ? j : m;
        double *lj = l + (size_t)j * lrow, sum = 0;
        for (int i = 1 + t->thread; i <= back; i += t->threads) {
            const double li = l[(size_t)(j - i) * lrow + (size_t)i * nl];
            u[i] = li * d[(size_t)(j - i) * nl];
            sum += li * u[i];
        }
        double pivot = a[(size_t)j * arow] - spx_team_sum(t, sum);
        if (!(pivot > 0 && pivot < INFINITY)) {
            good = 0;
            pivot = 1;
        }
        const double inverse = 1 / pivot;
        for (int i = t->thread; i <= m; i += t->threads) {
            if (i == 0) {
                d[(size_t)j * nl] = pivot;
                lj[0] = inverse;
                continue;
            }
            double rest = a[(size_t)j * arow + (size_t)i * nl];
            for (int k = 1; k <= m - i && k <= back; k++)
                rest -= l[(size_t)(j - k) * lrow + (size_t)(k + i) * nl] * u[k];
            lj[(size_t)i * nl] = rest * inverse;
        }
        spx_team_wait(t);
    }
    return good;
}

/* Diagonal of the inverse from the factor by a team, into variance; z: its band, as l. Waits. */
SPX_HD void spx_motion_variance(const spx_team *t, int n, int m, size_t nl, const double *l, double *z,
                                double *variance)
{
    const size_t row = (size_t)(m + 1) * nl;
    for (int j = n - 1; j >= 0; j--) {
        const double *lj = l + (size_t)j * row;
        double *zj = z + (size_t)j * row, sum = 0;
        const int ahead = n - 1 - j < m ? n - 1 - j : m;
        for (int i = 1 + t->thread; i <= ahead; i += t->threads) {
            double v = 0;
            for (int s = 1; s <= ahead; s++) {
                const int low = i < s ? i : s, far = i < s ? s - i : i - s;
                v -= lj[(size_t)s * nl] * z[(size_t)(j + low) * row + (size_t)far * nl];
            }
            zj[(size_t)i * nl] = v;
            sum -= lj[(size_t)i * nl] * v;
        }
        sum = lj[0] + spx_team_sum(t, sum);
        if (t->thread == 0)
            zj[0] = variance[(size_t)j * nl] = sum;
        spx_team_wait(t);
    }
}

/* Columns of some fibres: element (f, q, k) at f of_fibre + q + k of_bin, q < nq. */
typedef struct {
    int first, count, nq; /* fibre of the bundle that f = 0 is; fibres */
    size_t of_fibre, of_bin;
} spx_motion_sides;

/* Rows of the factor and of the sides that shared memory has room for: `room` doubles. */
SPX_HD int spx_motion_staged_rows(const spx_motion_view *g, const spx_motion_sides *s, size_t room)
{
    return (int)(room / ((size_t)s->count * (size_t)(g->m + 1 + s->nq)));
}

/* Brings rows k0 ... k1 - 1 to shared memory: factor [rows][m + 1][count], then sides [rows][count nq]. Waits. */
SPX_HD void spx_motion_stage(const spx_motion_view *g, const spx_team *t, size_t job, const spx_motion_sides *s, int k0,
                             int k1, const double *v, double *stage)
{
    const int count = s->count, width = (g->m + 1) * count, sides = count * s->nq, rows = k1 - k0;
    const double *l = g->ldl + job * (size_t)g->n * (size_t)(g->m + 1) * (size_t)g->nl + s->first;
    spx_team_wait(t);
    for (int i = t->thread; i < rows * width; i += t->threads)
        stage[i] = l[((size_t)(k0 + i / width) * (size_t)(g->m + 1) + (size_t)(i % width / count)) * (size_t)g->nl +
                     (size_t)(i % count)];
    for (int i = t->thread; i < rows * sides; i += t->threads)
        stage[rows * width + i] = v[(size_t)(i % sides / s->nq) * s->of_fibre + (size_t)(i % sides % s->nq) +
                                    (size_t)(k0 + i / sides) * s->of_bin];
    spx_team_wait(t);
}

/* z = P^-1 r with P the blocks of single fibres, by a thread a side; narrow bands: what rows have in common is in
 * registers. Waits. */
SPX_HD void spx_motion_precondition_narrow(const spx_motion_view *g, const spx_team *t, size_t job,
                                           const spx_motion_sides *s, int rows, const double *r, double *z,
                                           double *stage)
{
    const int n = g->job[job].n, m = g->m, count = s->count, sides = count * s->nq, width = (m + 1) * count;
    const int c = t->thread, f = c / s->nq;
    double *to = z + (size_t)f * s->of_fibre + (size_t)(c % s->nq);
    double ahead[SPX_MOTION_NARROW + 1]; /* what bins so far take off those ahead; then values of those behind */
    for (int i = 0; i <= SPX_MOTION_NARROW; i++)
        ahead[i] = 0;
    for (int k0 = 0; k0 < n; k0 += rows) {
        const int k1 = k0 + rows < n ? k0 + rows : n;
        spx_motion_stage(g, t, job, s, k0, k1, r, stage);
        for (int k = k0; k < k1 && c < sides; k++) {
            const double *l = stage + (k - k0) * width + f;
            const double here = stage[(k1 - k0) * width + (k - k0) * sides + c] - ahead[0];
            for (int i = 1; i <= SPX_MOTION_NARROW; i++)
                ahead[i - 1] = ahead[i] + (i <= m ? l[i * count] * here : 0);
            to[(size_t)k * s->of_bin] = here;
        }
    }
    for (int i = 0; i <= SPX_MOTION_NARROW; i++)
        ahead[i] = 0;
    for (int k1 = n; k1 > 0; k1 -= rows) {
        const int k0 = k1 > rows ? k1 - rows : 0;
        spx_motion_stage(g, t, job, s, k0, k1, z, stage);
        for (int k = k1 - 1; k >= k0 && c < sides; k--) {
            const double *l = stage + (k - k0) * width + f;
            double here = stage[(k1 - k0) * width + (k - k0) * sides + c] * l[0];
            for (int i = SPX_MOTION_NARROW; i > 0; i--)
                here -= i <= m ? l[i * count] * ahead[i - 1] : 0;
            for (int i = SPX_MOTION_NARROW - 1; i > 0; i--)
                ahead[i] = ahead[i - 1];
            ahead[0] = here;
            to[(size_t)k * s->of_bin] = here;
        }
    }
    spx_team_wait(t);
}

/* The same of any band. */
SPX_HD void spx_motion_precondition_wide(const spx_motion_view *g, const spx_team *t, size_t job,
                                         const spx_motion_sides *s, const double *r, double *z)
{
    const int n = g->job[job].n, m = g->m;
    const size_t nl = (size_t)g->nl, lrow = (size_t)(m + 1) * nl, step = s->of_bin;
    spx_team_wait(t);
    for (int c = t->thread; c < s->count * s->nq; c += t->threads) {
        const int f = c / s->nq;
        const size_t at = (size_t)f * s->of_fibre + (size_t)(c % s->nq);
        const double *l = g->ldl + job * (size_t)g->n * lrow + s->first + f, *from = r + at;
        double *to = z + at;
        for (int k = 0; k < n; k++) {
            double sum = from[(size_t)k * step];
            for (int i = k < m ? k : m; i > 0; i--)
                sum -= l[(size_t)(k - i) * lrow + (size_t)i * nl] * to[(size_t)(k - i) * step];
            to[(size_t)k * step] = sum;
        }
        for (int k = n - 1; k >= 0; k--) {
            double sum = to[(size_t)k * step] * l[(size_t)k * lrow];
            for (int i = n - 1 - k < m ? n - 1 - k : m; i > 0; i--)
                sum -= l[(size_t)k * lrow + (size_t)i * nl] * to[(size_t)(k + i) * step];
            to[(size_t)k * step] = sum;
        }
    }
    spx_team_wait(t);
}

/* stage: `room` doubles of shared memory. */
SPX_HD void spx_motion_precondition(const spx_motion_view *g, const spx_team *t, size_t job, const spx_motion_sides *s,
                                    const double *r, double *z, double *stage, size_t room)
{
    const int rows = spx_motion_staged_rows(g, s, room);
    if (g->m <= SPX_MOTION_NARROW && rows > 0 && s->count * s->nq <= t->threads)
        spx_motion_precondition_narrow(g, t, job, s, rows, r, z, stage);
    else
        spx_motion_precondition_wide(g, t, job, s, r, z);
}

/* ---- conjugate gradients of a job ---- */

/* Doubles of shared memory for the stage of the fluxes. */
enum { SPX_MOTION_STAGE = 5000 };

/* Element (k, f) of M d; fibres up to `reach` apart have elements of M. */
SPX_HD double spx_motion_multiply(const spx_motion_view *g, size_t job, int reach, int k, int f, const double *d)
{
    const int n = g->job[job].n, nf = g->job[job].nf, nl = g->nl;
    const size_t mrow = (size_t)g->nelem * (size_t)nl;
    const double *mat = g->mat + (job * (size_t)g->n + (size_t)k) * mrow + f;
    double forth = 0, back = 0;
    for (int df = 0; df <= reach; df++) {
        const int lo = df == 0 ? 0 : g->lo[df], hi = g->hi[df];
        const double *e = mat + (long)(g->first[df] - g->lo[df]) * nl;
        const int first = lo > -k ? lo : -k, end = hi < n - 1 - k ? hi : n - 1 - k;
        if (f + df < nf) {
            for (int dk = first; dk <= end; dk++)
                forth += e[(long)dk * nl] * d[(k + dk) * nl + f + df];
        }
        /* as the other of the pair: element dk of row k - dk */
        const int own = df == 0 ? 1 : lo, from = own > k - n + 1 ? own : k - n + 1, to = hi < k ? hi : k;
        if (f >= df) {
            for (int dk = from; dk <= to; dk++)
                back += e[(long)dk * (nl - (long)mrow) - df] * d[(k - dk) * nl + f - df];
        }
    }
    return forth + back;
}

/* M x = right by conjugate gradients, as iterate() (cg.h); v: right-hand side, x, r, z, M d, d. Returns whether it has
 * come to an end. */
SPX_HD int spx_motion_gradients(const spx_motion_view *g, const spx_team *t, size_t job, int reach, double absolute,
                                double relative, double *v)
{
    const spx_motion_sides sides = {0, g->job[job].nf, 1, 1, (size_t)g->nl};
    const size_t size = (size_t)g->n * (size_t)g->nl;
    const int nl = g->nl, nf = g->job[job].nf, all = g->job[job].n * nl;
    double *right = v, *x = v + size, *r = x + size, *z = r + size, *q = z + size, *d = q + size, sum = 0;
    for (int i = t->thread; i < all; i += t->threads) {
        r[i] = i % nl < nf ? right[i] : 0;
        x[i] = z[i] = 0;
    }
    spx_motion_precondition(g, t, job, &sides, r, z, t->shared, SPX_MOTION_STAGE);
    for (int i = t->thread; i < all; i += t->threads) {
        d[i] = z[i];
        sum += r[i] * z[i];
    }
    double rz = spx_team_sum(t, sum), enough = absolute * absolute;
    enough = enough > relative * rz ? enough : relative * rz;
    for (int step = 0; rz > enough && step < SPX_MOTION_MOST_STEPS; step++) {
        sum = 0;
        for (int i = t->thread; i < all; i += t->threads) {
            q[i] = i % nl < nf ? spx_motion_multiply(g, job, reach, i / nl, i % nl, d) : 0;
            sum += q[i] * d[i];
        }
        const double dq = spx_team_sum(t, sum);
        if (!(dq > 0 && isfinite(dq)))
            break;
        const double alpha = rz / dq;
        for (int i = t->thread; i < all; i += t->threads) {
            x[i] += alpha * d[i];
            r[i] -= alpha * q[i];
        }
        spx_motion_precondition(g, t, job, &sides, r, z, t->shared, SPX_MOTION_STAGE);
        sum = 0;
        for (int i = t->thread; i < all; i += t->threads)
            sum += r[i] * z[i];
        const double next = spx_team_sum(t, sum), beta = next / rz;
        rz = next;
        for (int i = t->thread; i < all; i += t->threads)
            d[i] = z[i] + beta * d[i];
        spx_team_wait(t);
    }
    return rz <= enough;
}

/* Memory of the vectors of fibre f's system. */
SPX_HD double *spx_motion_vectors(const spx_motion_view *g, size_t job, size_t f)
{
    return g->vector + (job * (size_t)g->nl + f) * SPX_MOTION_VECTORS * (size_t)g->n * (size_t)g->nl;
}

/* Whether an item's job goes on, and its fibre exists. */
SPX_HD int spx_motion_goes_on(const spx_motion_view *g, size_t job, size_t f)
{
    return g->result[job].status == SPX_MOTION_SOLVED && (int)f < g->job[job].nf;
}

/* ---- regularise ---- */

/* spx_trace_regularise() with no regularisation of the options. */
SPX_HD void spx_motion_regularise_block(const spx_motion_view *g, const spx_team *t, size_t job)
{
    const int n = g->job[job].n, nf = g->job[job].nf, nl = g->nl;
    double *largest = g->work + job * 4 * (size_t)(g->n + 1) * (size_t)nl, everywhere = 0;
    for (int k = t->thread; k < n; k += t->threads) {
        largest[k] = 0;
        for (int f = 0; f < nf; f++)
            largest[k] = fmax(largest[k], g->w[spx_motion_bin(g, job, (size_t)k, (size_t)f)]);
        everywhere = fmax(everywhere, largest[k]);
    }
    everywhere = spx_team_max(t, everywhere);
    for (int k = t->thread; k < n; k += t->threads) {
        const int from = k > g->half ? k - g->half : 0, to = k + g->half < n ? k + g->half : n - 1;
        double most = 0;
        for (int j = from; j <= to; j++)
            most = fmax(most, largest[j]);
        if (!(most > 0))
            most = everywhere;
        for (int f = 0; f < nf; f++) {
            const double w = g->w[spx_motion_bin(g, job, (size_t)k, (size_t)f)], least = 1e-4 * most;
            const double alpha = w < least ? least - w : 0;
            double *diagonal = g->mat + (job * (size_t)g->n + (size_t)k) * (size_t)g->nelem * (size_t)nl + f;
            *diagonal = *diagonal + alpha * alpha + SPX_TRACE_PRIOR;
        }
    }
    spx_team_wait(t);
}

SPX_HD void spx_motion_regularise(const spx_motion_view *g, const spx_team *t, size_t job)
{
    const int n = g->job[job].n, nf = g->job[job].nf, nl = g->nl;
    const size_t bin0 = spx_motion_bin(g, job, 0, 0);
    spx_motion_result *result = &g->result[job];
    double count = 0;
    for (int i = t->thread; i < n * nl; i += t->threads)
        count += i % nl < nf && g->w[bin0 + (size_t)i] > 0;
    count = spx_team_sum(t, count);
    if (t->thread == 0) {
        result->status = count > 0 ? SPX_MOTION_SOLVED : SPX_MOTION_DARK;
        result->fit.chi2 = result->fit.npix = 0;
        result->fit.nflux = count;
    }
    if (count > 0)
        spx_motion_regularise_block(g, t, job);
}

/* ---- factor ---- */

/* A wavelength that says that a fibre's block has no factor. */
#define SPX_MOTION_NO_FACTOR (-1.0)

SPX_HD void spx_motion_factor(const spx_motion_view *g, const spx_team *t, size_t item)
{
    const size_t job = item / (size_t)g->nl, f = item % (size_t)g->nl, nl = (size_t)g->nl;
    if (!spx_motion_goes_on(g, job, f))
        return;
    const int n = g->job[job].n;
    const size_t bin0 = spx_motion_bin(g, job, 0, f), at = job * (size_t)g->n * (size_t)(g->m + 1) * nl + f;
    const int good = spx_motion_factor_block(t, n, g->m, nl, g->mat + job * (size_t)g->n * (size_t)g->nelem * nl + f,
                                             (size_t)g->nelem * nl, g->ldl + at, g->variance + bin0, t->shared);
    if (good)
        spx_motion_variance(t, n, g->m, nl, g->ldl + at, g->inverse + at, g->variance + bin0);
    if (t->thread == 0)
        g->row[item].wavelength = good ? 0 : SPX_MOTION_NO_FACTOR;
}

/* ---- fluxes ---- */

SPX_HD spx_motion_range spx_motion_find_range(const spx_motion_view *g, const spx_team *t, size_t job)
{
    const int n = g->job[job].n, nf = g->job[job].nf, nl = g->nl;
    const size_t mrow = (size_t)g->nelem * (size_t)nl;
    const double *mat = g->mat + job * (size_t)g->n * mrow;
    spx_motion_range range = {0, 1};
    double strongest = 0;
    for (int i = t->thread; i < n * nf; i += t->threads)
        strongest = fmax(strongest, mat[(size_t)(i / nf) * mrow + (size_t)(i % nf)]);
    strongest = spx_team_max(t, strongest);
    for (int df = 1; df <= g->reach; df++) {
        const int elements = g->hi[df] - g->lo[df] + 1;
        double largest = 0;
        for (int i = t->thread; i < n * elements * nf; i += t->threads) {
            const int f = i % nf, e = i / nf % elements, k = i / nf / elements, other = k + g->lo[df] + e;
            if (f + df >= nf || other < 0 || other >= n)
                continue;
            const double *own = mat + (size_t)k * mrow + f;
            largest = spx_motion_coupling(own[(size_t)(g->first[df] + e) * (size_t)nl], own[0],
                                          mat[(size_t)other * mrow + (size_t)(f + df)], strongest, largest);
        }
        spx_motion_range_add(&range, df, sqrt(spx_team_max(t, largest)));
    }
    return range;
}

SPX_HD void spx_motion_fluxes(const spx_motion_view *g, const spx_team *t, size_t job)
{
    const int n = g->job[job].n, nf = g->job[job].nf, nl = g->nl;
    const size_t bin0 = spx_motion_bin(g, job, 0, 0);
    double *v = spx_motion_vectors(g, job, 0), bad = 0;
    spx_motion_result *result = &g->result[job];
    if (!spx_motion_goes_on(g, job, 0))
        return;
    for (int f = t->thread; f < nf; f += t->threads)
        bad += g->row[job * (size_t)nl + (size_t)f].wavelength == SPX_MOTION_NO_FACTOR;
    bad = spx_team_sum(t, bad);
    const spx_motion_range range = spx_motion_find_range(g, t, job);
    for (int i = t->thread; i < n * nl; i += t->threads)
        v[i] = g->y[bin0 + (size_t)i];
    spx_team_wait(t);
    const int good = !(bad > 0) && spx_motion_gradients(g, t, job, range.v, g->tolerance, SPX_MOTION_ROUNDING, v);
    if (t->thread == 0 && !good)
        result->status = SPX_MOTION_LEFT;
    if (t->thread == 0)
        result->range = range;
    for (int i = t->thread; i < n * nl && good; i += t->threads)
        g->x[bin0 + (size_t)i] = v[(size_t)g->n * (size_t)nl + (size_t)i];
}

/* ---- light ---- */

/* Doubles of shared memory: weights, light, flux, variance, and the work of spx_motion_light(). */
SPX_HD size_t spx_motion_light_shared(const spx_motion_view *g)
{
    return 7 * (size_t)(g->n + 1);
}

/* Light and mean wavelength of a fibre. The sums along it are one thread's. */
SPX_HD void spx_motion_light_of(const spx_motion_view *g, const spx_team *t, size_t item)
{
    const size_t job = item / (size_t)g->nl, f = item % (size_t)g->nl, nl = (size_t)g->nl, mrow = (size_t)g->nelem * nl;
    if (!spx_motion_goes_on(g, job, f))
        return;
    const size_t n = (size_t)g->job[job].n, bin0 = spx_motion_bin(g, job, 0, f);
    const double *mat = g->mat + job * (size_t)g->n * mrow + f,
                 *lambda = g->lambda + (size_t)g->job[job].window * (size_t)g->n;
    double *w = t->shared, *light = w + n + 1, *x = light + n + 1, *variance = x + n + 1, info = 0, mean = 0;
    for (size_t k = (size_t)t->thread; k < n; k += (size_t)t->threads) {
        w[k] = spx_motion_light_weight(n, nl, (size_t)g->m, mat, mrow, g->w[bin0 + k * nl], k);
        x[k] = g->x[bin0 + k * nl];
        variance[k] = g->variance[bin0 + k * nl];
    }
    spx_team_wait(t);
    if (t->thread == 0)
        spx_motion_light(n, w, 1, x, variance, 1, light, variance + n + 1);
    spx_team_wait(t);
    for (size_t k = (size_t)t->thread; k < n; k += (size_t)t->threads) {
        const double here = g->state[bin0 + k * nl] == SPX_TRACE_SPOT ? light[k] * light[k] * mat[k * mrow] : 0;
        g->light[bin0 + k * nl] = here > 0 ? light[k] : 0;
        info += here > 0 ? here : 0;
        mean += here > 0 ? here * lambda[k] : 0;
    }
    info = spx_team_sum(t, info);
    mean = spx_team_sum(t, mean);
    if (t->thread == 0)
        g->row[item].wavelength = info > 0 ? mean / info : 0;
}

/* ---- strip ---- */

/* Bytes of shared memory: places of some bins, their light and flux. */
typedef struct {
    double light, flux;
    int x, y; /* of the first pixel; y = SPX_MOTION_NOWHERE: there is no spot */
} spx_motion_place;

#define SPX_MOTION_NOWHERE (-(1 << 30))

SPX_HD void spx_motion_strip(const spx_motion_view *g, const spx_team *t, size_t item)
{
    const size_t job = item / (size_t)g->nl, f = item % (size_t)g->nl, size = spx_motion_strip_size(g);
    const spx_motion_job *here = &g->job[job];
    if (!spx_motion_goes_on(g, job, f))
        return;
    spx_motion_place *place = (spx_motion_place *)t->shared;
    double *strip = g->strip + item * 3 * size;
    unsigned char *touched = g->touched + item * size;
    const int x0 = g->left[item], all = (here->y1 - here->y0) * g->width;
    for (int k0 = 0; k0 < here->n; k0 += SPX_MOTION_CHUNK) {
        const int some = here->n - k0 < SPX_MOTION_CHUNK ? here->n - k0 : SPX_MOTION_CHUNK;
        spx_team_wait(t);
        for (int i = t->thread; i < some; i += t->threads) {
            const size_t bin = spx_motion_bin(g, job, (size_t)(k0 + i), f);
            const int spot = g->state[bin] == SPX_TRACE_SPOT;
            place[i].light = g->light[bin];
            place[i].flux = g->x[bin];
            place[i].x = spot ? g->at[bin].xc : 0;
            place[i].y = spot ? g->at[bin].yc : SPX_MOTION_NOWHERE;
        }
        spx_team_wait(t);
        for (int p = t->thread; p < all; p += t->threads) {
            const int y = here->y0 + p / g->width, x = x0 + p % g->width;
            double moved = k0 > 0 ? strip[p] : 0, wider = k0 > 0 ? strip[size + (size_t)p] : 0;
            double model = k0 > 0 ? strip[2 * size + (size_t)p] : 0;
            unsigned char any = k0 > 0 ? touched[p] : 0;
            for (int i = 0; i < some; i++) {
                const int dy = y - place[i].y, dx = x - place[i].x;
                if (dy < 0 || dy >= g->ny || dx < 0 || dx >= g->nx)
                    continue;
                const size_t at = spx_motion_spot_at(g, job, f, (size_t)(k0 + i)) + (size_t)(dy * g->nx + dx);
                any = 1;
                model += place[i].flux * g->spot[at];
                if (place[i].light != 0) {
                    moved += place[i].light * g->dx[at];
                    wider += place[i].light * g->dwidth[at];
                }
            }
            strip[p] = moved;
            strip[size + (size_t)p] = wider;
            strip[2 * size + (size_t)p] = model;
            touched[p] = any;
        }
    }
}

/* ---- rest ---- */

SPX_HD void spx_motion_rest(const spx_motion_view *g, const spx_team *t, size_t job)
{
    const spx_motion_job *here = &g->job[job];
    const size_t size = spx_motion_strip_size(g);
    double *rest = g->rest + job * (size_t)g->height * (size_t)g->tile, chi2 = 0, npix = 0;
    if (!spx_motion_goes_on(g, job, 0))
        return;
    const int all = (here->y1 - here->y0) * here->width;
    for (int p = t->thread; p < all; p += t->threads) {
        const int row = p / here->width, column = p % here->width, x = here->x0 + column;
        const long pixel = spx_motion_pixel_at(g, here, x, here->y0 + row);
        const double w = pixel < 0 ? 0 : (double)g->weight[pixel];
        double model = 0;
        int touched = 0;
        for (int f = 0; f < here->nf; f++) {
            const size_t fibre = job * (size_t)g->nl + (size_t)f;
            const int dx = x - g->left[fibre];
            if (dx < 0 || dx >= g->width)
                continue;
            const size_t at = (size_t)row * (size_t)g->width + (size_t)dx;
            model += g->strip[(fibre * 3 + 2) * size + at];
            touched |= g->touched[fibre * size + at];
        }
        const double r = w > 0 ? (double)g->data[pixel] - model : 0;
        rest[row * g->tile + column] = r;
        if (w > 0 && touched) {
            chi2 += fmin(w * r * r, SPX_MOTION_MOST);
            npix += 1;
        }
    }
    chi2 = spx_team_sum(t, chi2);
    npix = spx_team_sum(t, npix);
    if (t->thread == 0) {
        g->result[job].fit.chi2 = chi2;
        g->result[job].fit.npix = npix;
    }
}

/* ---- weigh ---- */

SPX_HD void spx_motion_weigh(const spx_motion_view *g, const spx_team *t, size_t item)
{
    const size_t job = item / (size_t)g->nl, f = item % (size_t)g->nl, size = spx_motion_strip_size(g);
    const spx_motion_job *here = &g->job[job];
    if (!spx_motion_goes_on(g, job, f))
        return;
    const int next = (int)f + 1 < here->nf, all = (here->y1 - here->y0) * g->width;
    const int apart = next ? g->left[item + 1] - g->left[item] : 0;
    const double *j = g->strip + item * 3 * size, *its = j + 3 * size;
    const double *rest = g->rest + job * (size_t)g->height * (size_t)g->tile;
    double *wj = g->wj + item * 2 * size, sum[9] = {0, 0, 0, 0, 0, 0, 0, 0, 0};
    for (int p = t->thread; p < all; p += t->threads) {
        const int row = p / g->width, column = p % g->width, x = g->left[item] + column;
        const long pixel = spx_motion_pixel_at(g, here, x, here->y0 + row);
        const double w = pixel < 0 ? 0 : (double)g->weight[pixel];
        const double j0 = j[p], j1 = j[size + (size_t)p], w0 = w * j0, w1 = w * j1;
        wj[p] = w0;
        wj[size + (size_t)p] = w1;
        if (!(w > 0))
            continue;
        sum[0] += w0 * j0;
        sum[1] += w0 * j1;
        sum[2] += w1 * j1;
        if (x >= here->x0 && x < here->x0 + here->width) {
            const double r = rest[row * g->tile + x - here->x0];
            sum[3] += w0 * r;
            sum[4] += w1 * r;
        }
        if (next && column >= apart && column - apart < g->width) {
            const double n0 = its[p - apart], n1 = its[size + (size_t)(p - apart)];
            sum[5] += w0 * n0;
            sum[6] += w0 * n1;
            sum[7] += w1 * n0;
            sum[8] += w1 * n1;
        }
    }
    spx_motion_row *out = &g->row[item];
    for (int i = 0; i < 9; i++) {
        const double all_of_it = spx_team_sum(t, sum[i]);
        if (t->thread == 0)
            *(i < 3 ? &out->fisher[i] : i < 5 ? &out->gradient[i - 3] : &out->next[i - 5]) = all_of_it;
    }
}

/* ---- couple ---- */

/* v of a fibre on the fibres around it; 0 where there is none. */
SPX_HD void spx_motion_couple(const spx_motion_view *g, const spx_team *t, size_t item)
{
    const size_t job = item / (size_t)g->nl, f = item % (size_t)g->nl, size = spx_motion_strip_size(g);
    const spx_motion_job *here = &g->job[job];
    if (g->rough || !spx_motion_goes_on(g, job, f))
        return;
    const int around = 2 * g->z + 1, n = here->n, reach = g->result[job].range.v;
    const double *wj = g->wj + item * 2 * size;
    double *v = g->v + (job * 2 * (size_t)g->nl + f) * (size_t)around * (size_t)g->n;
    const size_t second = (size_t)g->nl * (size_t)around * (size_t)g->n;
    for (int task = t->thread; task < around * n; task += t->threads) {
        const int a = task / n, k = task % n, its = (int)f + a - g->z;
        const int distance = a < g->z ? g->z - a : a - g->z;
        double moved = 0, wider = 0;
        if (distance <= reach && its >= 0 && its < here->nf) {
            const size_t bin = spx_motion_bin(g, job, (size_t)k, (size_t)its);
            if (g->state[bin] == SPX_TRACE_SPOT && g->w[bin] > 0) {
                const double *spot = g->spot + spx_motion_spot_at(g, job, (size_t)its, (size_t)k);
                const int off = g->at[bin].xc - g->left[item], yc = g->at[bin].yc;
                const int x0 = off < 0 ? -off : 0, x1 = off + g->nx > g->width ? g->width - off : g->nx;
                const int y0 = yc < here->y0 ? here->y0 - yc : 0, y1 = yc + g->ny > here->y1 ? here->y1 - yc : g->ny;
                for (int y = y0; y < y1; y++) {
                    const double *line = wj + (yc + y - here->y0) * g->width + off;
                    for (int x = x0; x < x1; x++) {
                        moved += spot[y * g->nx + x] * line[x];
                        wider += spot[y * g->nx + x] * line[size + (size_t)x];
                    }
                }
            }
        }
        v[(size_t)a * (size_t)g->n + (size_t)k] = moved;
        v[second + (size_t)a * (size_t)g->n + (size_t)k] = wider;
    }
}

/* ---- columns ---- */

/* System of a fibre, as in motion_columns.h: fibres first ... last of the bundle. Vectors have both q, element
 * (f, k, q) at 2 ((f - first) n + k) + q. */
typedef struct {
    size_t job;
    int n, first, last, reach; /* reach: fibres apart that have elements of M */
    double *stage;             /* shared: `room` doubles */
    size_t room;
} spx_motion_system;

/* Doubles of shared memory, all that there is: vectors of the fibres that a solution is wanted of, where there is room
 * for them, and the stage. */
enum { SPX_MOTION_COLUMNS_SHARED = 4800 };

/* Element (f, k) of M d, of both q, for a fibre f within `reach` of the system. */
SPX_HD void spx_motion_multiply_system(const spx_motion_view *g, const spx_motion_system *s, int f, int k,
                                       const double *d, double out[2])
{
    const int n = s->n, nl = g->nl;
    const size_t mrow = (size_t)g->nelem * (size_t)nl;
    const double *mat = g->mat + (s->job * (size_t)g->n + (size_t)k) * mrow + f;
    double sum[4] = {0, 0, 0, 0};
    for (int df = 0; df <= s->reach; df++) {
        const int lo = df == 0 ? 0 : g->lo[df], hi = g->hi[df];
        const int forth = f + df >= s->first && f + df <= s->last, back = f - df >= s->first && f - df <= s->last;
        const double *e = mat + (long)(g->first[df] - g->lo[df]) * nl;
        const int first = lo > -k ? lo : -k, end = hi < n - 1 - k ? hi : n - 1 - k;
        if (forth) {
            for (int dk = first; dk <= end; dk++) {
                const double element = e[(long)dk * nl], *x = d + 2 * ((f + df - s->first) * n + k + dk);
                sum[0] += element * x[0];
                sum[1] += element * x[1];
            }
        }
        /* as the other of the pair: element dk of row k - dk */
        const int own = df == 0 ? 1 : lo, from = own > k - n + 1 ? own : k - n + 1, to = hi < k ? hi : k;
        if (back) {
            for (int dk = from; dk <= to; dk++) {
                const double element = e[(long)dk * (nl - (long)mrow) - df],
                             *x = d + 2 * ((f - df - s->first) * n + k - dk);
                sum[2] += element * x[0];
                sum[3] += element * x[1];
            }
        }
    }
    out[0] = sum[0] + sum[2];
    out[1] = sum[1] + sum[3];
}

/* sum[q] = a . b of `size` elements. Waits. */
SPX_HD void spx_motion_inner_system(const spx_team *t, int size, const double *a, const double *b, double sum[2])
{
    double own[2] = {0, 0};
    for (int i = t->thread; i < size / 2; i += t->threads) {
        own[0] += a[2 * i] * b[2 * i];
        own[1] += a[2 * i + 1] * b[2 * i + 1];
    }
    sum[0] = spx_team_sum(t, own[0]);
    sum[1] = spx_team_sum(t, own[1]);
}

/* r^T P^-1 r of the residual r = M x that the fibres beyond one side of a system have; work: twice v of a vector. */
SPX_HD void spx_motion_beyond_system(const spx_motion_view *g, const spx_team *t, const spx_motion_system *s, int first,
                                     int count, const double *x, double *r, double *z, double left[2])
{
    for (int i = t->thread; i < count * s->n; i += t->threads) {
        const int f = i % count, k = i / count;
        spx_motion_multiply_system(g, s, first + f, k, x, r + 2 * (f * s->n + k));
    }
    const spx_motion_sides sides = {first, count, 2, 2 * (size_t)s->n, 2};
    spx_motion_precondition(g, t, s->job, &sides, r, z, s->stage, s->room);
    spx_motion_inner_system(t, 2 * count * s->n, r, z, left);
}

/* x = M^-1 r by conjugate gradients, for each q its own; r is used up. Returns whether the fibres left out do not
 * matter. */
SPX_HD int spx_motion_solve_system(const spx_motion_view *g, const spx_team *t, const spx_motion_system *s, double *x,
                                   double *r, double *z, double *d)
{
    const int n = s->n, count = s->last - s->first + 1, size = 2 * n * count, nf = g->job[s->job].nf;
    const spx_motion_sides sides = {s->first, count, 2, 2 * (size_t)n, 2};
    double rz[2], next[2], enough[2], dq[2], alpha[2], beta[2];
    spx_motion_precondition(g, t, s->job, &sides, r, z, s->stage, s->room);
    for (int i = t->thread; i < size; i += t->threads) {
        x[i] = 0;
        d[i] = z[i];
    }
    spx_motion_inner_system(t, size, r, z, rz);
    for (int q = 0; q < 2; q++)
        enough[q] = SPX_MOTION_RELATIVE * rz[q];
    for (int step = 0; step < SPX_MOTION_MOST_STEPS && (rz[0] > enough[0] || rz[1] > enough[1]); step++) {
        for (int i = t->thread; i < count * n; i += t->threads) { /* M d in place of z */
            const int f = i % count, k = i / count;
            spx_motion_multiply_system(g, s, s->first + f, k, d, z + 2 * (f * n + k));
        }
        spx_team_wait(t);
        spx_motion_inner_system(t, size, d, z, dq);
        for (int q = 0; q < 2; q++)
            alpha[q] = rz[q] > enough[q] && dq[q] > 0 && isfinite(dq[q]) ? rz[q] / dq[q] : 0;
        if (alpha[0] == 0 && alpha[1] == 0)
            break;
        for (int i = t->thread; i < size; i += t->threads) {
            x[i] += alpha[i % 2] * d[i];
            r[i] -= alpha[i % 2] * z[i];
        }
        spx_motion_precondition(g, t, s->job, &sides, r, z, s->stage, s->room);
        spx_motion_inner_system(t, size, r, z, next);
        for (int q = 0; q < 2; q++) {
            beta[q] = alpha[q] != 0 ? next[q] / rz[q] : 0;
            rz[q] = next[q];
        }
        for (int i = t->thread; i < size; i += t->threads)
            d[i] = z[i] + beta[i % 2] * d[i];
        spx_team_wait(t);
    }
    int good = 1;
    for (int side = 0; side < 2; side++) {
        const int from = side == 0 ? s->first - s->reach : s->last + 1,
                  to = side == 0 ? s->first - 1 : s->last + s->reach;
        const int begin = from > 0 ? from : 0, end = to < nf ? to : nf - 1;
        if (end < begin)
            continue;
        spx_motion_beyond_system(g, t, s, begin, end - begin + 1, x, z, d, next);
        for (int q = 0; q < 2; q++)
            good &= !(next[q] > SPX_MOTION_LEFT_OUT / SPX_MOTION_RELATIVE * enough[q]);
    }
    return good;
}

/* z = M^-1 v of a fibre: of those around it, as many as matter. */
SPX_HD void spx_motion_columns(const spx_motion_view *g, const spx_team *t, size_t item)
{
    const size_t job = item / (size_t)g->nl, around = 2 * (size_t)g->z + 1;
    const int f = (int)(item % (size_t)g->nl), n = g->job[job].n, nf = g->job[job].nf;
    if (g->rough || !spx_motion_goes_on(g, job, (size_t)f))
        return;
    const spx_motion_range range = g->result[job].range;
    double *x = NULL;
    spx_motion_system s = {job, n, 0, 0, range.v, t->shared, SPX_MOTION_COLUMNS_SHARED};
    for (int width = range.z, done = 0; !done; width *= 2) {
        s.first = f > width ? f - width : 0;
        s.last = f + width < nf ? f + width : nf - 1;
        const int count = s.last - s.first + 1, size = 2 * n * count;
        const size_t vectors = 4 * (size_t)size;
        const int fits = vectors + (size_t)(2 * count * (g->m + 3)) <= SPX_MOTION_COLUMNS_SHARED; /* two rows staged */
        x = fits ? t->shared : spx_motion_vectors(g, job, (size_t)f);
        s.stage = fits ? t->shared + vectors : t->shared;
        s.room = SPX_MOTION_COLUMNS_SHARED - (fits ? vectors : 0);
        double *r = x + size;
        spx_team_wait(t);
        for (int i = t->thread; i < size; i += t->threads) {
            const int its = s.first + i / (2 * n), k = i / 2 % n, q = i % 2, far = its < f ? f - its : its - f;
            r[i] =
                far > range.v
                    ? 0
                    : g->v[(((job * 2 + (size_t)q) * (size_t)g->nl + (size_t)f) * around + (size_t)(its - f + g->z)) *
                               (size_t)g->n +
                           (size_t)k];
        }
        done = spx_motion_solve_system(g, t, &s, x, r, r + size, r + 2 * size) || count == nf;
    }
    for (int i = t->thread; i < 2 * n * (s.last - s.first + 1); i += t->threads) {
        const int its = s.first + i / (2 * n), k = i / 2 % n, q = i % 2, far = its < f ? f - its : its - f;
        if (far <= range.z)
            g->solution[(((job * 2 + (size_t)q) * (size_t)g->nl + (size_t)f) * around + (size_t)(its - f + g->z)) *
                            (size_t)g->n +
                        (size_t)k] = x[i];
    }
}

/* ---- project ---- */

/* F of a fibre, and with the next: what is left without the fluxes. */
SPX_HD void spx_motion_project(const spx_motion_view *g, const spx_team *t, size_t item)
{
    const size_t job = item / (size_t)g->nl, f = item % (size_t)g->nl;
    const spx_motion_job *here = &g->job[job];
    if (g->rough || !spx_motion_goes_on(g, job, f))
        return;
    const int around = 2 * g->z + 1, reach = g->result[job].range.z, n = here->n;
    spx_motion_row *out = &g->row[item];
    for (int i = 0; i < 7; i++) {
        const int q = i < 3 ? i / 2 : (i - 3) / 2, s = i < 3 ? (i + 1) / 2 : (i - 3) % 2, next = i >= 3;
        const size_t other = f + (size_t)next;
        if ((int)other >= here->nf)
            break;
        double sum = 0;
        for (int task = t->thread; task < around * n; task += t->threads) {
            const int a = task / n, k = task % n, its = (int)f + a - g->z; /* fibre that both have */
            const int far = a < g->z ? g->z - a : a - g->z, b = a - next;
            const int further = b < g->z ? g->z - b : b - g->z;
            if (its < 0 || its >= here->nf || far > reach || b < 0 || further > reach)
                continue;
            sum += g->v[(((job * 2 + (size_t)q) * (size_t)g->nl + f) * (size_t)around + (size_t)a) * (size_t)g->n +
                        (size_t)k] *
                   g->solution[(((job * 2 + (size_t)s) * (size_t)g->nl + other) * (size_t)around + (size_t)b) *
                                   (size_t)g->n +
                               (size_t)k];
        }
        sum = spx_team_sum(t, sum);
        if (t->thread == 0)
            *(next ? &out->next[i - 3] : &out->fisher[i]) -= sum;
    }
}

/* STEP(name, items, threads, bytes of shared memory, teams) of all steps that teams take, in their order, for view *g.
 * teams: that a multiprocessor has side by side at least, where that is worth fewer registers. */
#define SPX_MOTION_STEPS(STEP)                                                                                         \
    STEP(spot, (size_t)g->njob *(size_t)g->nl *(size_t)g->n, SPX_TEAM_WARP,                                            \
         spx_motion_spot_shared(g) * sizeof(double), 1)                                                                \
    STEP(equations, (size_t)g->njob *(size_t)g->n *(size_t)spx_motion_groups(g), SPX_MOTION_STEP_TEAM,                 \
         spx_motion_equations_shared(g) * sizeof(double), 3)                                                           \
    STEP(regularise, (size_t)g->njob, SPX_MOTION_STEP_TEAM, 0, 1)                                                      \
    STEP(factor, (size_t)g->njob *(size_t)g->nl, SPX_TEAM_WARP, (size_t)(g->m + 1) * sizeof(double), 1)                \
    STEP(fluxes, (size_t)g->njob, SPX_MOTION_FLUX_TEAM, SPX_MOTION_STAGE * sizeof(double), 1)                          \
    STEP(light_of, (size_t)g->njob *(size_t)g->nl, SPX_TEAM_WARP, spx_motion_light_shared(g) * sizeof(double), 1)      \
    STEP(strip, (size_t)g->njob *(size_t)g->nl, SPX_MOTION_HALF_TEAM, SPX_MOTION_CHUNK * sizeof(spx_motion_place), 1)  \
    STEP(rest, (size_t)g->njob, SPX_MOTION_FLUX_TEAM, 0, 1)                                                            \
    STEP(weigh, (size_t)g->njob *(size_t)g->nl, SPX_MOTION_HALF_TEAM, 0, 1)                                            \
    STEP(couple, (size_t)g->njob *(size_t)g->nl, SPX_MOTION_HALF_TEAM, 0, 1)                                           \
    STEP(columns, (size_t)g->njob *(size_t)g->nl, SPX_MOTION_HALF_TEAM, SPX_MOTION_COLUMNS_SHARED * sizeof(double), 5) \
    STEP(project, (size_t)g->njob *(size_t)g->nl, SPX_TEAM_WARP, 0, 1)

#endif
