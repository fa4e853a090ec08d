/* Provides the steps of the motion of traces (extract/motion.h) on a device: each is a function of a team and an item,
 * in the order in which they stand here. Items of a step do not depend on each other; every sum has a fixed order.
 *
 *     step        item              threads       results
 *     pixel       pixel             one           weights
 *     spot        bin of a fibre    a warp        spot, its derivatives
 *     equations   fibre             STEP          M, A^T W p, A^T W 1
 *     regularise  bundle            STEP          M, whether there is light
 *     factor      fibre             a warp        L D L^T of its block, variances
 *     fluxes      bundle            FLUX          flux, range of coupling
 *     light_of    fibre             a warp        light of J
 *     strip       fibre             HALF          J and A f of a fibre alone
 *     rest        bundle            FLUX          residual, chi^2
 *     weigh       fibre             HALF          W J; g and J^T W J
 *     couple      fibre             HALF          v = A^T W J
 *     columns     bundle            WIDE          z = M^-1 v
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
    SPX_MOTION_WIDE_TEAM = 1024,
    SPX_MOTION_VECTORS = 8,     /* of a system: x, r, z or M d, d, of both columns of a fibre; of the fluxes fewer */
    SPX_MOTION_CHUNK = 64,      /* bins whose places a strip keeps at a time */
    SPX_MOTION_MOST_STEPS = 100 /* of conjugate gradients */
};

/* Shared memory of a block that every device has, bytes, but for that of sums over a team. */
enum { SPX_MOTION_SHARED = (48 << 10) - 512 };

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
    int group;                    /* bins whose weighted spots are kept together */
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
 * sums along y; then the spot and its derivatives before they are scaled, unless they are too large. */
SPX_HD size_t spx_motion_spot_work(const spx_motion_view *g)
{
    const size_t edges = (size_t)(g->nx + g->ny + 2), deg = (size_t)(g->degx > g->degy ? g->degx : g->degy);
    return (size_t)g->npar + edges * (deg + 3) + (size_t)(g->degx + 1) * (size_t)(3 * g->nx + g->ny);
}

SPX_HD size_t spx_motion_spot_shared(const spx_motion_view *g)
{
    const size_t work = spx_motion_spot_work(g), all = work + 3 * (size_t)g->npix;
    return all * sizeof(double) <= SPX_MOTION_SHARED ? all : work;
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
    const int kept = spx_motion_spot_shared(g) > spx_motion_spot_work(g);
    double *own = t->shared + spx_motion_spot_work(g), *s0 = kept ? own : spot, *a0 = kept ? own + g->npix : dx,
           *b0 = kept ? own + 2 * g->npix : dwidth;
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
        s0[p] = lit ? s : 0;
        a0[p] = lit ? a : 0;
        b0[p] = lit ? b : 0;
        sum += s0[p];
        more += a0[p];
        more_wide += b0[p];
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
        const double s = s0[p] * scale;
        spot[p] = s;
        dx[p] = a0[p] * scale - s * (more * scale);
        dwidth[p] = b0[p] * scale - s * (more_wide * scale);
    }
}

/* ---- equations ---- */

/* Bins that shared memory has weighted spots of at a time, at most. */
enum { SPX_MOTION_TOGETHER = 8 };

/* Doubles of shared memory. */
SPX_HD size_t spx_motion_equations_shared(const spx_motion_view *g)
{
    return (size_t)g->group * (size_t)g->npix;
}

/* Element of M: sum over the pixels that both spots cover, of this thread's columns; `weighted` is the first times the
 * weights. */
SPX_HD double spx_motion_overlap(int nx, int ny, int lane, int lanes, const double *weighted, const spx_bin_geometry *i,
                                 const double *spot, const spx_bin_geometry *j)
{
    const int dx = j->xc - i->xc, dy = j->yc - i->yc;
    const int columns = nx - (dx < 0 ? -dx : dx), rows = ny - (dy < 0 ? -dy : dy);
    weighted += (dx > 0 ? dx : 0) + (dy > 0 ? dy : 0) * nx;
    spot += (dx < 0 ? -dx : 0) + (dy < 0 ? -dy : 0) * nx;
    double even = 0, odd = 0;
    for (int x = lane; x < columns; x += lanes) {
        const double *a = weighted + x, *b = spot + x;
        int y = 0;
        for (; y + 1 < rows; y += 2, a += 2 * nx, b += 2 * nx) {
            even += a[0] * b[0];
            odd += a[nx] * b[nx];
        }
        if (y < rows)
            even += a[0] * b[0];
    }
    return even + odd;
}

/* Weighted spots of bins k0 ... k0 + some - 1 of fibre f, and their sums A^T W 1, A^T W p: a warp a bin. Waits. */
SPX_HD void spx_motion_weigh_spots(const spx_motion_view *g, const spx_team *t, size_t job, size_t f, int k0, int some)
{
    const spx_motion_job *here = &g->job[job];
    const int npix = g->npix, lanes = spx_team_lanes(SPX_TEAM_WARP), lane = t->thread % lanes, nx = g->nx;
    spx_team_wait(t);
    for (int first = 0; first < some; first += t->threads / lanes) {
        const int i = first + t->thread / lanes, k = k0 + i;
        const size_t bin = spx_motion_bin(g, job, (size_t)k, f);
        const int there = i < some && (int)f < here->nf && k < here->n && g->state[bin] == SPX_TRACE_SPOT;
        const double *spot = g->spot + spx_motion_spot_at(g, job, f, (size_t)k);
        double *weighted = t->shared + i * npix, light = 0, data = 0;
        for (int p = lane; there && p < npix; p += lanes) {
            const long pixel = spx_motion_pixel_at(g, here, g->at[bin].xc + p % nx, g->at[bin].yc + p / nx);
            weighted[p] = pixel < 0 ? 0 : spot[p] * (double)g->weight[pixel];
            light += weighted[p];
            data += pixel < 0 ? 0 : weighted[p] * (double)g->data[pixel];
        }
        light = spx_team_part_sum(light, SPX_TEAM_WARP);
        data = spx_team_part_sum(data, SPX_TEAM_WARP);
        if (lane == 0 && i < some) {
            g->w[bin] = light;
            g->y[bin] = data;
        }
    }
    spx_team_wait(t);
}

/* Equations of a fibre's bins: a part of the team an element. */
SPX_HD void spx_motion_equations(const spx_motion_view *g, const spx_team *t, size_t item)
{
    const size_t job = item / (size_t)g->nl, f = item % (size_t)g->nl, bin0 = spx_motion_bin(g, job, 0, f);
    const int n = g->job[job].n, nf = g->job[job].nf, nl = g->nl, npix = g->npix, nelem = g->nelem;
    const int lanes = spx_team_lanes(SPX_TEAM_PART), lane = t->thread % lanes, parts = t->threads / lanes;
    const unsigned char *state = g->state + bin0;
    const spx_bin_geometry *at = g->at + bin0;
    const double *spots = g->spot + spx_motion_spot_at(g, job, f, 0); /* of bin (f + df, k) at (df n + k) npix */
    double *mat = g->mat + job * (size_t)g->n * (size_t)nelem * (size_t)nl + f;
    for (int k0 = 0; k0 < g->n; k0 += g->group) {
        const int some = g->n - k0 < g->group ? g->n - k0 : g->group;
        spx_motion_weigh_spots(g, t, job, f, k0, some);
        for (int first = 0; first < nelem * SPX_MOTION_TOGETHER; first += parts) {
            const int task = first + t->thread / lanes, e = task / SPX_MOTION_TOGETHER, i = task % SPX_MOTION_TOGETHER,
                      k = k0 + i;
            double sum = 0;
            if (e < nelem && i < some && (int)f < nf && k < n && state[k * nl] == SPX_TRACE_SPOT) {
                const int df = g->element[e].df, other = k + g->element[e].dk, its = other * nl + df;
                if ((int)f + df < nf && other >= 0 && other < n && state[its] == SPX_TRACE_SPOT)
                    sum = spx_motion_overlap(g->nx, g->ny, lane, lanes, t->shared + i * npix, &at[k * nl],
                                             spots + (df * g->n + other) * npix, &at[its]);
            }
            sum = spx_team_part_sum(sum, SPX_TEAM_PART);
            if (lane == 0 && e < nelem && i < some)
                mat[(k * nelem + e) * nl] = sum;
        }
    }
}

/* ---- banded algebra of a fibre ---- */

/* Rows of a band that a team works on: all of them, element (j, d) at j row + d nl, and the last m + 1 in shared
 * memory, [slots][slots]. */
typedef struct {
    double *last, *all;
    int slots;
    size_t row, nl;
} spx_motion_rows;

/* Doubles of shared memory: two vectors, and rows. */
SPX_HD size_t spx_motion_factor_shared(const spx_motion_view *g)
{
    const size_t slots = (size_t)g->m + 1;
    return slots * (slots + 2);
}

SPX_HD spx_motion_rows spx_motion_rows_of(const spx_motion_view *g, double *shared, double *all)
{
    const size_t slots = (size_t)g->m + 1, nl = (size_t)g->nl;
    const spx_motion_rows r = {shared + 2 * slots, all, (int)slots, slots * nl, nl};
    return r;
}

/* Slot of the row k after, or before (k < 0), that of a slot; -slots <= k <= slots. */
SPX_HD int spx_motion_slot(const spx_motion_rows *r, int slot, int k)
{
    const int to = slot + k;
    return to < 0 ? to + r->slots : to < r->slots ? to : to - r->slots;
}

/* Element d of a row that is among the last m + 1; slot: of the row. */
SPX_HD double *spx_motion_row_at(const spx_motion_rows *r, int slot, int d)
{
    return r->last + slot * r->slots + d;
}

/* Sets an element of row j, for good. */
SPX_HD void spx_motion_set_row(const spx_motion_rows *r, int j, int slot, int d, double value)
{
    *spx_motion_row_at(r, slot, d) = value;
    r->all[(size_t)j * r->row + (size_t)d * r->nl] = value;
}

/* L D L^T of a fibre's own block by a team, its elements `nl` apart, rows of L into *l, with 1/D; u[2 (m + 1)]: shared.
 * 0: there is none. As factor() (calib/band_lanes.h). Waits. */
SPX_HD int spx_motion_factor_block(const spx_team *t, int n, int m, const double *a, size_t arow,
                                   const spx_motion_rows *l, double *u)
{
    double *d = u + l->slots; /* D of the last rows */
    int good = 1;
    for (int j = 0, slot = 0; j < n; j++, slot = spx_motion_slot(l, slot, 1)) {
        const int back = j < m ? j : m;
        double sum = 0;
        for (int i = 1 + t->thread; i <= back; i += t->threads) {
            const int of = spx_motion_slot(l, slot, -i);
            const double li = *spx_motion_row_at(l, of, i);
            u[i] = li * d[of];
            sum += li * u[i];
        }
        double pivot = a[(size_t)j * arow] - spx_team_sum(t, sum);
        if (!(pivot > 0 && pivot < INFINITY)) {
            good = 0;
            pivot = 1;
        }
        const double inverse = 1 / pivot;
        for (int i = t->thread; i <= m; i += t->threads) {
            double rest = a[(size_t)j * arow + (size_t)i * l->nl];
            for (int k = 1; i > 0 && k <= m - i && k <= back; k++)
                rest -= *spx_motion_row_at(l, spx_motion_slot(l, slot, -k), k + i) * u[k];
            spx_motion_set_row(l, j, slot, i, i == 0 ? inverse : rest * inverse);
            if (i == 0)
                d[slot] = pivot;
        }
        spx_team_wait(t);
    }
    return good;
}

/* Diagonal of the inverse from the factor by a team, into variance; rows of its band into *z; lj[m + 1]: shared.
 * Waits. */
SPX_HD void spx_motion_variance(const spx_team *t, int n, int m, const double *l, const spx_motion_rows *z, double *lj,
                                double *variance)
{
    for (int j = n - 1, slot = 0; j >= 0; j--, slot = spx_motion_slot(z, slot, -1)) {
        const int ahead = n - 1 - j < m ? n - 1 - j : m;
        double sum = 0;
        for (int i = t->thread; i <= ahead; i += t->threads)
            lj[i] = l[(size_t)j * z->row + (size_t)i * z->nl];
        spx_team_wait(t);
        for (int i = 1 + t->thread; i <= ahead; i += t->threads) {
            double v = 0;
            for (int s = 1; s <= ahead; s++) {
                const int low = i < s ? i : s, far = i < s ? s - i : i - s;
                v -= lj[s] * *spx_motion_row_at(z, spx_motion_slot(z, slot, low), far);
            }
            spx_motion_set_row(z, j, slot, i, v);
            sum -= lj[i] * v;
        }
        sum = lj[0] + spx_team_sum(t, sum);
        if (t->thread == 0) {
            spx_motion_set_row(z, j, slot, 0, sum);
            variance[(size_t)j * z->nl] = sum;
        }
        spx_team_wait(t);
    }
}

/* Columns of some fibres: element (f, h, k) at f + h of_side + k of_bin, h < nside. */
typedef struct {
    int first, count, nside; /* fibre of the bundle that f = 0 is; fibres; columns of each */
    size_t of_side, of_bin;
} spx_motion_sides;

/* Rows of the factor and of the sides that shared memory has room for: `room` doubles. */
SPX_HD int spx_motion_staged_rows(const spx_motion_view *g, const spx_motion_sides *s, size_t room)
{
    return (int)(room / ((size_t)s->count * (size_t)(g->m + 1 + s->nside)));
}

/* Brings rows k0 ... k1 - 1 to shared memory: factor [rows][m + 1][count], then sides [rows][nside][count]. Waits. */
SPX_HD void spx_motion_stage(const spx_motion_view *g, const spx_team *t, size_t job, const spx_motion_sides *s, int k0,
                             int k1, const double *v, double *stage)
{
    const int count = s->count, width = (g->m + 1) * count, sides = count * s->nside, rows = k1 - k0;
    const size_t lrow = (size_t)(g->m + 1) * (size_t)g->nl;
    spx_team_wait(t);
    for (int c = t->thread; c < width + sides; c += t->threads) {
        const int own = c < width ? c : c - width;
        const size_t step = c < width ? lrow : s->of_bin, f = (size_t)(own % count), h = (size_t)(own / count);
        const double *from = c < width ? g->ldl + job * (size_t)g->n * lrow + (size_t)s->first + f + h * (size_t)g->nl
                                       : v + f + h * s->of_side;
        double *to = stage + (c < width ? own : rows * width + own);
        const int row = c < width ? width : sides;
        for (int k = k0; k < k1; k++)
            to[(k - k0) * row] = from[(size_t)k * step];
    }
    spx_team_wait(t);
}

/* z = P^-1 r with P the blocks of single fibres, by a thread a side; narrow bands: what rows have in common is in
 * registers. Waits. */
SPX_HD void spx_motion_precondition_narrow(const spx_motion_view *g, const spx_team *t, size_t job,
                                           const spx_motion_sides *s, int rows, const double *r, double *z,
                                           double *stage)
{
    const int n = g->job[job].n, m = g->m, count = s->count, sides = count * s->nside, width = (m + 1) * count;
    const int c = t->thread, f = c % count;
    double *to = z + (size_t)f + (size_t)(c / count) * s->of_side;
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
    for (int c = t->thread; c < s->count * s->nside; c += t->threads) {
        const int f = c % s->count;
        const size_t at = (size_t)f + (size_t)(c / s->count) * s->of_side;
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
    if (g->m <= SPX_MOTION_NARROW && rows > 0 && s->count * s->nside <= t->threads)
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
    const spx_motion_sides sides = {0, g->job[job].nf, 1, 0, (size_t)g->nl};
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
    const spx_motion_rows l = spx_motion_rows_of(g, t->shared, g->ldl + at),
                          z = spx_motion_rows_of(g, t->shared, g->inverse + at);
    const int good = spx_motion_factor_block(t, n, g->m, g->mat + job * (size_t)g->n * (size_t)g->nelem * nl + f,
                                             (size_t)g->nelem * nl, &l, t->shared);
    if (good)
        spx_motion_variance(t, n, g->m, g->ldl + at, &z, t->shared, g->variance + bin0);
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

/* Systems of all fibres of a bundle, as in motion_columns.h: that of fibre f has fibres f - width ... f + width. A
 * fibre is in `slots` systems or fewer, as those of one slot are so far apart; element (slot, q, k, fibre) of a vector
 * at
 * ((2 slot + q) n + k) nl + fibre, 0 where the slot has no system there. */
typedef struct {
    size_t job;
    int n, nf, width, slots, reach; /* reach: fibres apart that have elements of M */
    double *rz, *enough, *factor;   /* shared, [nf][2] of systems */
    double *stage;                  /* shared: `room` doubles */
    size_t room;
} spx_motion_systems;

/* Systems' slots that are multiplied together. */
enum { SPX_MOTION_SLOTS = 5 };

/* First of the slots of a fibre: that of system fibre - width. */
SPX_HD int spx_motion_first_slot(const spx_motion_systems *s, int fibre)
{
    return s->slots == s->nf ? 0 : (fibre + s->slots - s->width % s->slots) % s->slots;
}

/* System that a slot is of, for a fibre whose first slot is given; -1: of none. */
SPX_HD int spx_motion_system_of(const spx_motion_systems *s, int fibre, int first, int slot)
{
    const int after = slot < first ? slot - first + s->slots : slot - first;
    const int f = s->slots == s->nf ? slot : fibre - s->width + after, far = f < fibre ? fibre - f : f - fibre;
    return f >= 0 && f < s->nf && far <= s->width ? f : -1;
}

/* Whether fibre `fibre` is in the system of f, and in the bundle. */
SPX_HD int spx_motion_in_system(const spx_motion_systems *s, int f, int fibre)
{
    const int far = f < fibre ? fibre - f : f - fibre;
    return fibre >= 0 && fibre < s->nf && far <= s->width;
}

/* Adds an element of M times d, of both q of those slots that `mask` has; part: elements of a slot's q. */
SPX_HD void spx_motion_add_element(double element, const double *d, size_t part, unsigned mask,
                                   double sum[2 * SPX_MOTION_SLOTS])
{
    for (int j = 0; j < SPX_MOTION_SLOTS; j++)
        if (mask >> j & 1) {
            sum[2 * j] += element * d[(size_t)(2 * j) * part];
            sum[2 * j + 1] += element * d[(size_t)(2 * j + 1) * part];
        }
}

/* Elements of row (k, fibre) of M with fibres df away, times d of the slots of two masks: of the fibre df further on,
 * and of that df before, as the other of the pair. */
SPX_HD void spx_motion_add_fibres(const spx_motion_view *g, const spx_motion_systems *s, int k, int fibre, int df,
                                  const unsigned mask[2], const double *d, double sum[2 * SPX_MOTION_SLOTS])
{
    const int n = s->n, nl = g->nl, lo = df == 0 ? 0 : g->lo[df], hi = g->hi[df], own = df == 0 ? 1 : lo;
    const size_t mrow = (size_t)g->nelem * (size_t)nl, part = (size_t)n * (size_t)nl;
    const double *e =
        g->mat + (s->job * (size_t)g->n + (size_t)k) * mrow + fibre + (long)(g->first[df] - g->lo[df]) * nl;
    const int first = lo > -k ? lo : -k, end = hi < n - 1 - k ? hi : n - 1 - k;
    for (int dk = first; dk <= end && mask[0] != 0; dk++)
        spx_motion_add_element(e[(long)dk * nl], d + (k + dk) * nl + fibre + df, part, mask[0], sum);
    const int from = own > k - n + 1 ? own : k - n + 1, to = hi < k ? hi : k;
    for (int dk = from; dk <= to && mask[1] != 0; dk++)
        spx_motion_add_element(e[(long)dk * (nl - (long)mrow) - df], d + (k - dk) * nl + fibre - df, part, mask[1],
                               sum);
}

/* out = M d of all systems. */
SPX_HD void spx_motion_multiply_systems(const spx_motion_view *g, const spx_team *t, const spx_motion_systems *s,
                                        const double *d, double *out)
{
    const size_t part = (size_t)s->n * (size_t)g->nl;
    for (int i = t->thread; i < s->n * g->nl; i += t->threads) {
        const int fibre = i % g->nl, k = i / g->nl, first = spx_motion_first_slot(s, fibre);
        for (int slot = 0; slot < s->slots && fibre < s->nf; slot += SPX_MOTION_SLOTS) {
            double sum[2 * SPX_MOTION_SLOTS];
            for (int j = 0; j < 2 * SPX_MOTION_SLOTS; j++)
                sum[j] = 0;
            for (int df = 0; df <= s->reach; df++) {
                unsigned mask[2] = {0, 0};
                for (int j = 0; j < SPX_MOTION_SLOTS && slot + j < s->slots; j++) {
                    const int f = spx_motion_system_of(s, fibre, first, slot + j);
                    mask[0] |= (unsigned)(f >= 0 && spx_motion_in_system(s, f, fibre + df)) << j;
                    mask[1] |= (unsigned)(f >= 0 && spx_motion_in_system(s, f, fibre - df)) << j;
                }
                spx_motion_add_fibres(g, s, k, fibre, df, mask, d + (size_t)(2 * slot) * part, sum);
            }
            for (int j = 0; j < 2 * SPX_MOTION_SLOTS && slot + j / 2 < s->slots; j++)
                out[(size_t)(2 * slot + j) * part + (size_t)i] = sum[j];
        }
    }
    spx_team_wait(t);
}

/* a . b of system f's q, of the bins of this thread of a part. */
SPX_HD double spx_motion_inner_system(const spx_motion_view *g, const spx_motion_systems *s, int f, int q, int lane,
                                      const double *a, const double *b)
{
    const int from = f > s->width ? f - s->width : 0, to = f + s->width < s->nf ? f + s->width : s->nf - 1;
    const size_t at = (size_t)(2 * (f % s->slots) + q) * (size_t)s->n * (size_t)g->nl;
    double sum = 0;
    for (int k = lane; k < s->n; k += spx_team_lanes(SPX_TEAM_PART))
        for (int fibre = from; fibre <= to; fibre++) {
            const size_t i = at + (size_t)(k * g->nl + fibre);
            sum += a[i] * b[i];
        }
    return sum;
}

/* What comes of a . b of all systems: r^T P^-1 r at first; the step, r^T P^-1 r over d^T M d; the next direction. */
enum { SPX_MOTION_BEGIN, SPX_MOTION_STEP, SPX_MOTION_TURN };

/* Returns whether any system goes on. Waits. */
SPX_HD int spx_motion_inner_systems(const spx_motion_view *g, const spx_team *t, const spx_motion_systems *s, int what,
                                    const double *a, const double *b)
{
    const int lanes = spx_team_lanes(SPX_TEAM_PART), parts = t->threads / lanes, tasks = 2 * s->nf;
    int on = 0;
    for (int first = 0; first < tasks; first += parts) {
        const int i = first + t->thread / lanes;
        const double own = i < tasks ? spx_motion_inner_system(g, s, i / 2, i % 2, t->thread % lanes, a, b) : 0;
        const double sum = spx_team_part_sum(own, SPX_TEAM_PART);
        if (t->thread % lanes != 0 || i >= tasks)
            continue;
        if (what == SPX_MOTION_STEP) {
            s->factor[i] = s->rz[i] > s->enough[i] && sum > 0 && isfinite(sum) ? s->rz[i] / sum : 0;
            continue;
        }
        s->factor[i] = what == SPX_MOTION_TURN && s->factor[i] != 0 ? sum / s->rz[i] : 0;
        s->rz[i] = sum;
        if (what == SPX_MOTION_BEGIN)
            s->enough[i] = SPX_MOTION_RELATIVE * sum;
    }
    spx_team_wait(t);
    for (int i = 0; i < tasks; i++)
        on |= what == SPX_MOTION_STEP ? s->factor[i] != 0 : s->rz[i] > s->enough[i];
    return on;
}

/* Of each system by its own factor: x += factor d, r -= factor z; or d = z + factor d, where x is NULL. Waits. */
SPX_HD void spx_motion_go(const spx_motion_view *g, const spx_team *t, const spx_motion_systems *s, double *x,
                          double *r, const double *z, double *d)
{
    const size_t part = (size_t)s->n * (size_t)g->nl;
    for (int i = t->thread; i < s->n * g->nl; i += t->threads) {
        const int fibre = i % g->nl, first = spx_motion_first_slot(s, fibre);
        for (int slot = 0; slot < s->slots && fibre < s->nf; slot++) {
            const int f = spx_motion_system_of(s, fibre, first, slot);
            for (int q = 0; q < 2 && f >= 0; q++) {
                const size_t at = (size_t)(2 * slot + q) * part + (size_t)i;
                const double factor = s->factor[2 * f + q];
                if (x == NULL) {
                    d[at] = z[at] + factor * d[at];
                    continue;
                }
                x[at] += factor * d[at];
                r[at] -= factor * z[at];
            }
        }
    }
    spx_team_wait(t);
}

/* Whether the residuals M x that systems have in the fibres beyond them do not matter: r^T P^-1 r. Element (side, away,
 * q, k, fibre) of r and z at (((side reach + away) 2 + q) n + k) nl + fibre, of the system whose last fibre is away + 1
 * fibres from this one. They take the place of three vectors: 8 reach of 6 nl rows, by spx_motion_layout_make(). Waits.
 */
SPX_HD int spx_motion_beyond_systems(const spx_motion_view *g, const spx_team *t, const spx_motion_systems *s,
                                     const double *x, double *r)
{
    const int n = s->n, nl = g->nl, nside = 4 * s->reach, lanes = spx_team_lanes(SPX_TEAM_PART),
              parts = t->threads / lanes;
    const size_t part = (size_t)n * (size_t)nl;
    const spx_motion_sides sides = {0, s->nf, nside, part, (size_t)nl};
    double *z = r + (size_t)nside * part, bad = 0;
    for (int i = t->thread; i < n * nl; i += t->threads)
        for (int h = 0; h < nside / 2; h++) {
            const int fibre = i % nl, below = h < s->reach, away = s->width + 1 + h % s->reach;
            const int f = below ? fibre + away : fibre - away;
            double sum[2 * SPX_MOTION_SLOTS] = {0};
            for (int df = 1; df <= s->reach && fibre < s->nf && f >= 0 && f < s->nf; df++) {
                const unsigned mask[2] = {(unsigned)spx_motion_in_system(s, f, fibre + df),
                                          (unsigned)spx_motion_in_system(s, f, fibre - df)};
                spx_motion_add_fibres(g, s, i / nl, fibre, df, mask, x + (size_t)(2 * (f % s->slots)) * part, sum);
            }
            for (int q = 0; q < 2; q++)
                r[(size_t)(2 * h + q) * part + (size_t)i] = sum[q];
        }
    spx_motion_precondition(g, t, s->job, &sides, r, z, s->stage, s->room);
    for (int first = 0; first < 4 * s->nf; first += parts) { /* system, q, side */
        const int i = first + t->thread / lanes, f = i / 4, q = i % 2, below = i % 4 < 2;
        double sum = 0;
        for (int h = 0; h < s->reach && i < 4 * s->nf; h++) {
            const int away = s->width + 1 + h, fibre = below ? f - away : f + away;
            const size_t at = (size_t)(2 * ((below ? 0 : s->reach) + h) + q) * part + (size_t)(fibre < 0 ? 0 : fibre);
            for (int k = t->thread % lanes; k < n && fibre >= 0 && fibre < s->nf; k += lanes)
                sum += r[at + (size_t)(k * nl)] * z[at + (size_t)(k * nl)];
        }
        sum = spx_team_part_sum(sum, SPX_TEAM_PART);
        if (i < 4 * s->nf)
            bad += sum > fmax(SPX_MOTION_LEFT_OUT / SPX_MOTION_RELATIVE * s->enough[2 * f + q],
                              SPX_MOTION_LEFT_OUT_OF_F * g->row[s->job * (size_t)g->nl + (size_t)f].fisher[2 * q]);
    }
    return !(spx_team_sum(t, bad) > 0);
}

/* x = M^-1 r by conjugate gradients, of each system and q by steps of its own; r is used up. Returns whether the fibres
 * left out do not matter. */
SPX_HD int spx_motion_solve_systems(const spx_motion_view *g, const spx_team *t, const spx_motion_systems *s, double *x,
                                    double *r, double *z, double *d)
{
    const size_t part = (size_t)s->n * (size_t)g->nl;
    const spx_motion_sides sides = {0, s->nf, 2 * s->slots, part, (size_t)g->nl};
    spx_motion_precondition(g, t, s->job, &sides, r, z, s->stage, s->room);
    for (size_t i = (size_t)t->thread; i < 2 * (size_t)s->slots * part; i += (size_t)t->threads)
        x[i] = d[i] = 0;
    spx_team_wait(t);
    int on = spx_motion_inner_systems(g, t, s, SPX_MOTION_BEGIN, r, z);
    for (int step = 0; step < SPX_MOTION_MOST_STEPS && on; step++) {
        spx_team_wait(t); /* for factors that were looked at */
        spx_motion_go(g, t, s, NULL, NULL, z, d);
        spx_motion_multiply_systems(g, t, s, d, z);
        if (!spx_motion_inner_systems(g, t, s, SPX_MOTION_STEP, d, z))
            break;
        spx_motion_go(g, t, s, x, r, z, d);
        spx_motion_precondition(g, t, s->job, &sides, r, z, s->stage, s->room);
        on = spx_motion_inner_systems(g, t, s, SPX_MOTION_TURN, r, z);
    }
    spx_team_wait(t);
    return s->reach == 0 || s->width + 1 >= s->nf || spx_motion_beyond_systems(g, t, s, x, r);
}

/* Right-hand sides, or solutions, of all systems: between v or the solution, which have fibres up to z away, and
 * vectors. to: 1 into x. far: fibres away that are looked at. */
SPX_HD void spx_motion_exchange(const spx_motion_view *g, const spx_team *t, const spx_motion_systems *s, double *v,
                                double *x, int far, int to)
{
    const size_t part = (size_t)s->n * (size_t)g->nl, around = 2 * (size_t)g->z + 1;
    for (int i = t->thread; i < s->n * g->nl; i += t->threads) {
        const int fibre = i % g->nl, k = i / g->nl, first = spx_motion_first_slot(s, fibre);
        for (int slot = 0; slot < s->slots; slot++) {
            const int f = fibre < s->nf ? spx_motion_system_of(s, fibre, first, slot) : -1;
            const int near = f >= 0 && fibre - f <= far && f - fibre <= far;
            for (int q = 0; q < 2; q++) {
                double *own = x + (size_t)(2 * slot + q) * part + (size_t)i;
                double *its = v +
                              (((s->job * 2 + (size_t)q) * (size_t)g->nl + (size_t)(near ? f : 0)) * around +
                               (size_t)(near ? fibre - f + g->z : 0)) *
                                  (size_t)g->n +
                              (size_t)k;
                if (to)
                    *own = near ? *its : 0;
                else if (near)
                    *its = *own;
            }
        }
    }
    spx_team_wait(t);
}

/* z = M^-1 v of all fibres of a bundle: of those around each, as many as matter. */
SPX_HD void spx_motion_columns(const spx_motion_view *g, const spx_team *t, size_t job)
{
    const int n = g->job[job].n, nf = g->job[job].nf;
    if (g->rough || !spx_motion_goes_on(g, job, 0))
        return;
    const spx_motion_range range = g->result[job].range;
    spx_motion_systems s = {job, n, nf, 0, 0, range.v, t->shared, NULL, NULL, NULL, 0};
    s.enough = s.rz + 2 * g->nl;
    s.factor = s.enough + 2 * g->nl;
    s.stage = s.factor + 2 * g->nl;
    s.room = SPX_MOTION_SHARED / sizeof(double) - 6 * (size_t)g->nl;
    const size_t size = 2 * (size_t)g->nl * (size_t)n * (size_t)g->nl;
    double *x = spx_motion_vectors(g, job, 0);
    for (int width = range.z, done = 0; !done; width *= 2) {
        s.width = width;
        s.slots = 2 * width + 1 < nf ? 2 * width + 1 : nf;
        spx_team_wait(t);
        spx_motion_exchange(g, t, &s, g->v, x + size, range.v, 1);
        done = spx_motion_solve_systems(g, t, &s, x, x + size, x + 2 * size, x + 3 * size);
    }
    spx_motion_exchange(g, t, &s, g->solution, x, range.z, 0);
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
    STEP(equations, (size_t)g->njob *(size_t)g->nl, SPX_MOTION_STEP_TEAM,                                              \
         spx_motion_equations_shared(g) * sizeof(double), 3)                                                           \
    STEP(regularise, (size_t)g->njob, SPX_MOTION_STEP_TEAM, 0, 1)                                                      \
    STEP(factor, (size_t)g->njob *(size_t)g->nl, SPX_TEAM_WARP, spx_motion_factor_shared(g) * sizeof(double), 1)       \
    STEP(fluxes, (size_t)g->njob, SPX_MOTION_FLUX_TEAM, SPX_MOTION_STAGE * sizeof(double), 1)                          \
    STEP(light_of, (size_t)g->njob *(size_t)g->nl, SPX_TEAM_WARP, spx_motion_light_shared(g) * sizeof(double), 1)      \
    STEP(strip, (size_t)g->njob *(size_t)g->nl, SPX_MOTION_HALF_TEAM, SPX_MOTION_CHUNK * sizeof(spx_motion_place), 1)  \
    STEP(rest, (size_t)g->njob, SPX_MOTION_FLUX_TEAM, 0, 1)                                                            \
    STEP(weigh, (size_t)g->njob *(size_t)g->nl, SPX_MOTION_HALF_TEAM, 0, 1)                                            \
    STEP(couple, (size_t)g->njob *(size_t)g->nl, SPX_MOTION_HALF_TEAM, 0, 1)                                           \
    STEP(columns, (size_t)g->njob, SPX_MOTION_WIDE_TEAM, SPX_MOTION_SHARED, 1)                                         \
    STEP(project, (size_t)g->njob *(size_t)g->nl, SPX_TEAM_WARP, 0, 1)

#endif
