/* Provides one spot of a PSF of any type, with its derivatives and its factors, for host and device: the interface that
 * extraction, simulation and fit share.
 *
 * Plain inline functions on plain data, as those of psf/psf_math.h, which has the place of a spot and the pixel-
 * integrated Gauss-Hermite functions g_n. spx_psf_index() must have been called on the PSF.
 *
 *   gauss-hermite    S = sum_ij GH-i-j g_i(x; GHSIGX) g_j(y; GHSIGY)
 *   gauss-hermite2   S [r2 < GHNSIG^2] + sum_ij GH2-i-j g_i(x; GHSIGX2) g_j(y; GHSIGY2) + T, where, at the centre of a
 *                    pixel dx, dy from the trace, r2 = (dx/GHSIGX)^2 + (dy/GHSIGY)^2, and
 *                    T = TAILAMP R2/(TAILCORE^2 + R2)^(1 + TAILINDE/2), R2 = (dx TAILXSCA)^2 + (dy TAILYSCA)^2
 * (specex's, as its files describe them; those have 2 HSIZE pixels, spots here 2 HSIZE + 1 around the trace). A
 * gauss-hermite whose TAILAMP is not 0 has T, too. Negative pixels are clipped to 0, then all are divided by the sum.
 * Light of the tail beyond the spot: psf/tail.h.
 *
 *   spotgrid         S = sum of the over-sampled spots s_n at the four corners of (place on the slit, lambda), with the
 *                    weights of bilinear interpolation (beyond the grid they go on for one interval), each with its
 *                    place on the trace and stretched by GHSIGX/sigmax, GHSIGY/sigmay; light is even within a
 * sub-pixel, so a pixel has the differences of F_n(x, y), the light of s_n below and left of an edge, which is linear
 * in x and y within a sub-pixel. Derivatives are exact, and have steps
 *
 * TILT, of any type: row r of the spot has its centre at X + TILT (r - Y), with r the centre of the row. */
#ifndef SPX_SPOT_MATH_H
#define SPX_SPOT_MATH_H

#include "psf/psf_math.h"

/* What spx_psf_spot_diff() differentiates by, besides rows of `param`. */
enum { SPX_SPOT_X = -2, SPX_SPOT_Y = -3 }; /* an absent row is -1 */

/* Orders of Hermite functions beyond the PSF's own that derivatives need. */
enum { SPX_SPOT_MORE = 2 };

/* Gauss-Hermite series of a spot: the first core, or the second. */
typedef struct {
    int degx, degy, rowx, rowy; /* rows of the widths in `param` */
    const int *gh;
    double sigx, sigy; /* pixels */
    double nsig;       /* cut off at so many sigma; 0: not */
    double tilt;
} spx_spot_core;

SPX_HD int spx_spot_ncore(const spx_psf *p)
{
    return p->type == SPX_PSF_GAUSS_HERMITE2 ? 2 : 1;
}

/* Length of the workspace of all functions here, doubles. */
SPX_HD size_t spx_psf_spot_work(const spx_psf *p)
{
    const int two = spx_spot_ncore(p) > 1;
    const int degx = two && p->ghdegx2 > p->ghdegx ? p->ghdegx2 : p->ghdegx;
    const int degy = two && p->ghdegy2 > p->ghdegy ? p->ghdegy2 : p->ghdegy;
    const size_t nx = (size_t)spx_psf_nx(p), ny = (size_t)spx_psf_ny(p);
    const size_t mx = (size_t)(degx + 1 + SPX_SPOT_MORE), my = (size_t)(degy + 1 + SPX_SPOT_MORE);
    return p->ndeg + mx * nx + my * ny + my * nx + mx * my + nx;
}

/* Value of row `par` of the parameters of a fibre, from the polynomials; an absent one (-1) is 0. */
SPX_HD double spx_psf_param_value(const spx_psf *p, size_t fibre, int par, const double *basis)
{
    if (par < 0)
        return 0.0;
    return spx_basis_sum((int)p->ndeg, p->coeff + ((size_t)par * p->nspec + fibre) * p->ndeg, basis);
}

/* Core `which` of a spot; returns 0 where its widths cannot be used. */
SPX_HD int spx_spot_core_find(const spx_psf *p, size_t fibre, int which, const double *basis, spx_spot_core *c)
{
    c->degx = which == 0 ? p->ghdegx : p->ghdegx2;
    c->degy = which == 0 ? p->ghdegy : p->ghdegy2;
    c->rowx = which == 0 ? p->sigx : p->sigx2;
    c->rowy = which == 0 ? p->sigy : p->sigy2;
    c->gh = which == 0 ? p->gh : p->gh2;
    c->sigx = spx_psf_param_value(p, fibre, c->rowx, basis);
    c->sigy = spx_psf_param_value(p, fibre, c->rowy, basis);
    c->nsig = which == 0 && p->type == SPX_PSF_GAUSS_HERMITE2 ? spx_psf_param_value(p, fibre, p->nsig, basis) : 0.0;
    c->tilt = spx_psf_param_value(p, fibre, p->tilt, basis);
    return c->sigx > 0.0 && c->sigy > 0.0 && c->sigx < SPX_SPOT_FAR && c->sigy < SPX_SPOT_FAR;
}

/* Row of the centre of row y of a spot, relative to the trace centre. */
SPX_HD double spx_spot_row(const spx_psf *p, const spx_spot *at, int y)
{
    return (double)(y - p->hsizey) - at->dy;
}

/* Adds sum_ij m[i + mx j] g_i(x) g_j(y), i < mx, j < my, to spot[ny][nx], row by row: for cores that are cut off or
 * tilted, and for derivatives. by_row: each row times its distance from the trace centre. */
SPX_HD void spx_spot_add_rows(const spx_psf *p, const spx_spot_core *c, const spx_spot *at, int mx, int my,
                              const double *m, int by_row, double *gx, double *gy, double *across, double *line,
                              double *spot)
{
    const int nx = spx_psf_nx(p), ny = spx_psf_ny(p);
    spx_gauss_hermite(my - 1, ny, at->dy, c->sigy, gy);
    for (int y = 0; y < ny; y++) {
        const double row = spx_spot_row(p, at, y), dx = at->dx + c->tilt * row;
        for (int k = 0; (y == 0 || c->tilt != 0.0) && k < my * nx; k++)
            across[k] = 0.0;
        if (y == 0 || c->tilt != 0.0) {
            spx_gauss_hermite(mx - 1, nx, dx, c->sigx, gx);
            for (int j = 0; j < my; j++)
                for (int i = 0; i < mx; i++)
                    for (int x = 0; m[i + mx * j] != 0.0 && x < nx; x++)
                        across[j * nx + x] += m[i + mx * j] * gx[i * nx + x];
        }
        for (int x = 0; x < nx; x++)
            line[x] = 0.0;
        for (int j = 0; j < my; j++)
            for (int x = 0; x < nx; x++)
                line[x] += gy[j * ny + y] * across[j * nx + x];
        for (int x = 0; x < nx; x++) {
            const double ex = ((double)(x - p->hsizex) - dx) / c->sigx, ey = row / c->sigy;
            if (c->nsig > 0.0 && !(ex * ex + ey * ey < c->nsig * c->nsig))
                continue;
            spot[(size_t)y * (size_t)nx + (size_t)x] += by_row ? row * line[x] : line[x];
        }
    }
}

/* Adds a core that is neither cut off nor tilted to spot[ny][nx]. */
SPX_HD void spx_spot_add_plain(const spx_psf *p, size_t fibre, const spx_spot_core *core, const spx_spot *at,
                               const double *basis, double *gx, double *gy, double *across, double *spot)
{
    const int nx = spx_psf_nx(p), ny = spx_psf_ny(p);
    spx_gauss_hermite(core->degx, nx, at->dx, core->sigx, gx);
    spx_gauss_hermite(core->degy, ny, at->dy, core->sigy, gy);
    for (int j = 0; j <= core->degy; j++) {
        for (int x = 0; x < nx; x++)
            across[x] = 0.0;
        for (int i = 0; i <= core->degx; i++) {
            int par = core->gh[i + (core->degx + 1) * j];
            if (par < 0)
                continue;
            const double c = spx_psf_param_value(p, fibre, par, basis);
            const double *gxi = gx + (size_t)i * (size_t)nx;
            for (int x = 0; x < nx; x++)
                across[x] += c * gxi[x];
        }
        const double *gyj = gy + (size_t)j * (size_t)ny;
        for (int y = 0; y < ny; y++)
            for (int x = 0; x < nx; x++)
                spot[(size_t)y * (size_t)nx + (size_t)x] += gyj[y] * across[x];
    }
}

/* Adds the tail, or its derivative by `what` where `diff`, to spot[ny][nx]. */
SPX_HD void spx_spot_add_tail(const spx_psf *p, size_t fibre, const spx_spot *at, const double *basis, double tilt,
                              int diff, int what, double *spot)
{
    const int nx = spx_psf_nx(p), ny = spx_psf_ny(p);
    double t[SPX_PSF_NTAIL];
    if (p->tail[SPX_TAIL_AMP] < 0)
        return;
    for (int k = 0; k < SPX_PSF_NTAIL; k++)
        t[k] = spx_psf_param_value(p, fibre, p->tail[k], basis);
    const double sx2 = t[SPX_TAIL_XSCA] * t[SPX_TAIL_XSCA], sy2 = t[SPX_TAIL_YSCA] * t[SPX_TAIL_YSCA];
    const double power = 1.0 + 0.5 * t[SPX_TAIL_INDE];
    for (int y = 0; y < ny; y++)
        for (int x = 0; x < nx; x++) {
            const double dy = spx_spot_row(p, at, y), dx = (double)(x - p->hsizex) - at->dx - tilt * dy;
            const double r2 = dx * dx * sx2 + dy * dy * sy2, q = t[SPX_TAIL_CORE] * t[SPX_TAIL_CORE] + r2;
            if (!(q > 0.0)) /* the middle of a tail without a core */
                continue;
            const double shape = pow(q, -power), one = r2 * shape; /* of amplitude 1 */
            const double by_r2 = t[SPX_TAIL_AMP] * (shape - power * one / q);
            double v = t[SPX_TAIL_AMP] * one;
            if (diff && what == SPX_SPOT_X)
                v = -2.0 * dx * sx2 * by_r2;
            else if (diff && what == SPX_SPOT_Y)
                v = 2.0 * (tilt * dx * sx2 - dy * sy2) * by_r2;
            else if (diff && what == p->tilt)
                v = -2.0 * dx * dy * sx2 * by_r2;
            else if (diff && what == p->tail[SPX_TAIL_AMP])
                v = one;
            else if (diff && what == p->tail[SPX_TAIL_CORE])
                v = -2.0 * power * t[SPX_TAIL_CORE] / q * v;
            else if (diff && what == p->tail[SPX_TAIL_XSCA])
                v = 2.0 * dx * dx * t[SPX_TAIL_XSCA] * by_r2;
            else if (diff && what == p->tail[SPX_TAIL_YSCA])
                v = 2.0 * dy * dy * t[SPX_TAIL_YSCA] * by_r2;
            else if (diff && what == p->tail[SPX_TAIL_INDE])
                v = -0.5 * log(q) * v;
            else if (diff)
                v = 0.0;
            spot[(size_t)y * (size_t)nx + (size_t)x] += v;
        }
}

/* Interval of x in `at`, which increases; *part: of it that x has passed, 0 to 1, and at most one interval beyond. */
SPX_HD size_t spx_grid_interval(size_t n, const double *at, double x, double *part)
{
    size_t low = 0, high = n - 1;
    *part = 0.0;
    if (n < 2)
        return 0;
    while (high - low > 1) {
        const size_t middle = (low + high) / 2;
        if (x < at[middle])
            high = middle;
        else
            low = middle;
    }
    *part = fmin(fmax((x - at[low]) / (at[high] - at[low]), -1.0), 2.0);
    return low;
}

/* Sub-pixel in which an edge lies, of n, and how far within it; *inside: 0 beyond the array. */
SPX_HD size_t spx_grid_edge(size_t n, double t, double *part, int *inside)
{
    *inside = t > 0.0 && t < (double)n;
    if (!*inside) {
        *part = t > 0.0 ? 1.0 : 0.0;
        return t > 0.0 ? n - 1 : 0;
    }
    const size_t i = (size_t)t;
    *part = t - (double)i;
    return i;
}

/* Light of one array left of the edge at tx between its edges at t[0] and t[1] in y, or its derivative: by_x: by tx;
 * else by t[1] times by[1] and t[0] times by[0]. */
SPX_HD double spx_grid_light(const spx_psf_grid *g, const double *sum, double tx, const double *t, int by_x,
                             const double *by)
{
    const size_t row = g->mx + 1;
    double fx, out = 0.0;
    int in;
    const size_t i = spx_grid_edge(g->mx, tx, &fx, &in);
    if (by_x && !in)
        return 0.0;
    for (int k = 0; k < 2; k++) {
        double fy;
        const size_t j = spx_grid_edge(g->my, t[k], &fy, &in);
        const double *p = sum + j * row + i;
        double low = by_x ? p[1] - p[0] : p[0] + fx * (p[1] - p[0]);
        const double high = by_x ? p[row + 1] - p[row] : p[row] + fx * (p[row + 1] - p[row]);
        if (by != NULL)
            low = in ? by[k] * (high - low) : 0.0;
        else
            low += fy * (high - low);
        out += k == 1 ? low : -low;
    }
    return out;
}

/* Adds weight times one array to spot[ny][nx], without TILT: edges between rows are looked up once. rx, ry: sub-pixels
 * a pixel; line[3 (nx + 1)]. */
SPX_HD void spx_grid_add_upright(const spx_psf *p, const spx_spot *at, const double *sum, const double *centre,
                                 double weight, double rx, double ry, double *line, double *spot)
{
    const spx_psf_grid *g = &p->grid;
    const int nx = spx_psf_nx(p), ny = spx_psf_ny(p);
    const size_t row = g->mx + 1;
    double *place = line, *part = place + nx + 1, *before = part + nx + 1, fy;
    int in;
    for (int x = 0; x <= nx; x++) {
        const double d = (double)(x - p->hsizex) - 0.5 - at->dx;
        place[x] = (double)spx_grid_edge(g->mx, centre[1] + d * rx, &part[x], &in);
    }
    for (int y = 0; y <= ny; y++) {
        const size_t j = spx_grid_edge(g->my, centre[0] + (spx_spot_row(p, at, y) - 0.5) * ry, &fy, &in);
        const double *lower = sum + j * row;
        double left = 0.0;
        for (int x = 0; x <= nx; x++) {
            const double *l = lower + (size_t)place[x], *h = l + row;
            const double low = l[0] + part[x] * (l[1] - l[0]), high = h[0] + part[x] * (h[1] - h[0]);
            const double v = low + fy * (high - low), light = y > 0 ? v - before[x] : 0.0;
            if (y > 0 && x > 0)
                spot[(size_t)(y - 1) * (size_t)nx + (size_t)(x - 1)] += weight * (light - left);
            before[x] = v;
            left = light;
        }
    }
}

/* Adds the spot of a grid, or its derivative by `what` where `diff`, to spot[ny][nx]; returns 0 where it has no size.
 * line[3 (nx + 1)]. */
SPX_HD int spx_spot_add_grid(const spx_psf *p, size_t fibre, double lambda, const spx_spot *at, const double *basis,
                             int diff, int what, double *line, double *spot)
{
    const spx_psf_grid *g = &p->grid;
    const int nx = spx_psf_nx(p), ny = spx_psf_ny(p);
    const double qx = spx_psf_param_value(p, fibre, p->sigx, basis) / g->sigma_x,
                 qy = spx_psf_param_value(p, fibre, p->sigy, basis) / g->sigma_y,
                 tilt = spx_psf_param_value(p, fibre, p->tilt, basis);
    if (!(qx > 0.0 && qy > 0.0 && qx < SPX_SPOT_FAR && qy < SPX_SPOT_FAR))
        return 0;
    const int by_x = diff && (what == SPX_SPOT_X || what == p->sigx || what == p->tilt),
              by_y = diff && (what == SPX_SPOT_Y || what == p->sigy), tilted = what == SPX_SPOT_Y && tilt != 0.0;
    if (diff && !by_x && !by_y)
        return 1;
    double part[2];
    const size_t corner =
        spx_grid_interval(g->npos, g->pos, g->fibre_pos[fibre], &part[0]) * g->nwave +
        spx_grid_interval(g->nwave, g->wave, g->stretched != NULL ? lambda / g->stretched[fibre] : lambda, &part[1]);
    const double rx = g->oversample / qx, ry = g->oversample / qy; /* sub-pixels a pixel */
    for (int n = 0; n < 4; n++) {
        const double weight = (n & 2 ? part[0] : 1.0 - part[0]) * (n & 1 ? part[1] : 1.0 - part[1]);
        if (weight == 0.0)
            continue;
        const size_t node = corner + (n & 2 ? g->nwave : 0) + (n & 1 ? 1 : 0);
        const double *sum = g->sum + node * (g->my + 1) * (g->mx + 1), *centre = g->centre + 2 * node;
        if (!diff && tilt == 0.0) {
            spx_grid_add_upright(p, at, sum, centre, weight, rx, ry, line, spot);
            continue;
        }
        for (int y = 0; y < ny; y++) {
            const double r = spx_spot_row(p, at, y);
            const double t[2] = {centre[0] + (r - 0.5) * ry, centre[0] + (r + 0.5) * ry};
            /* the edges' motion: dt/dY, dt/dGHSIGY */
            const double by[2] = {what == SPX_SPOT_Y ? -ry : -(r - 0.5) * ry / (qy * g->sigma_y),
                                  what == SPX_SPOT_Y ? -ry : -(r + 0.5) * ry / (qy * g->sigma_y)};
            for (int x = 0; x <= nx; x++) {
                const double d = (double)(x - p->hsizex) - 0.5 - at->dx - tilt * r, tx = centre[1] + d * rx;
                line[x] = 0.0;
                if (by_x || (diff && tilted)) {
                    const double move = what == p->sigx      ? -d * rx / (qx * g->sigma_x)
                                        : what == p->tilt    ? -r * rx
                                        : what == SPX_SPOT_Y ? tilt * rx
                                                             : -rx;
                    line[x] += move * spx_grid_light(g, sum, tx, t, 1, NULL);
                }
                if (!diff || by_y)
                    line[x] += spx_grid_light(g, sum, tx, t, 0, diff ? by : NULL);
            }
            for (int x = 0; x < nx; x++)
                spot[(size_t)y * (size_t)nx + (size_t)x] += weight * (line[x + 1] - line[x]);
        }
    }
    return 1;
}

/* Parts of a workspace. */
typedef struct {
    double *basis, *gx, *gy, *across, *m, *line;
} spx_spot_parts;

SPX_HD spx_spot_parts spx_spot_divide_work(const spx_psf *p, double *work)
{
    const int two = spx_spot_ncore(p) > 1;
    const int degx = two && p->ghdegx2 > p->ghdegx ? p->ghdegx2 : p->ghdegx;
    const int degy = two && p->ghdegy2 > p->ghdegy ? p->ghdegy2 : p->ghdegy;
    const size_t nx = (size_t)spx_psf_nx(p), ny = (size_t)spx_psf_ny(p);
    const size_t mx = (size_t)(degx + 1 + SPX_SPOT_MORE), my = (size_t)(degy + 1 + SPX_SPOT_MORE);
    spx_spot_parts w;
    w.basis = work;
    w.gx = w.basis + p->ndeg;
    w.gy = w.gx + mx * nx;
    w.across = w.gy + my * ny;
    w.m = w.across + my * nx;
    w.line = w.m + mx * my;
    return w;
}

/* The pixels of a spot whose place is known, before negative ones are clipped; w->basis is set. */
SPX_HD spx_spot_status spx_spot_raw(const spx_psf *p, size_t fibre, double lambda, const spx_spot *at,
                                    const spx_spot_parts *w, double *spot)
{
    const size_t npix = (size_t)spx_psf_nx(p) * (size_t)spx_psf_ny(p);
    spx_spot_core c;
    for (size_t k = 0; k < npix; k++)
        spot[k] = 0.0;
    spx_legendre_basis(p->ndeg, spx_psf_param_u(p, fibre, lambda), w->basis);
    if (p->type == SPX_PSF_SPOTGRID)
        return spx_spot_add_grid(p, fibre, lambda, at, w->basis, 0, 0, w->gx, spot) ? SPX_SPOT_OK : SPX_SPOT_SIGMA;
    for (int which = 0; which < spx_spot_ncore(p); which++) {
        if (!spx_spot_core_find(p, fibre, which, w->basis, &c)) {
            for (size_t k = 0; k < npix; k++)
                spot[k] = 0.0;
            return SPX_SPOT_SIGMA;
        }
        if (c.nsig > 0.0 || c.tilt != 0.0) {
            for (int j = 0; j <= c.degy; j++)
                for (int i = 0; i <= c.degx; i++)
                    w->m[i + (c.degx + 1) * j] = spx_psf_param_value(p, fibre, c.gh[i + (c.degx + 1) * j], w->basis);
            spx_spot_add_rows(p, &c, at, c.degx + 1, c.degy + 1, w->m, 0, w->gx, w->gy, w->across, w->line, spot);
        } else {
            spx_spot_add_plain(p, fibre, &c, at, w->basis, w->gx, w->gy, w->across, spot);
        }
    }
    spx_spot_add_tail(p, fibre, at, w->basis, c.tilt, 0, 0, spot);
    return SPX_SPOT_OK;
}

/* Clips negative pixels to 0 and divides by the sum; *scale: 1 over the sum. */
SPX_HD spx_spot_status spx_spot_normalise(size_t npix, double *spot, double *scale)
{
    double sum = 0.0;
    int finite = 1;
    for (size_t k = 0; k < npix; k++) {
        finite &= isfinite(spot[k]) != 0;
        spot[k] = spot[k] > 0.0 ? spot[k] : 0.0;
        sum += spot[k];
    }
    *scale = finite && sum > 0.0 && isfinite(sum) ? 1.0 / sum : 0.0;
    if (!(*scale > 0.0 && isfinite(*scale))) {
        for (size_t k = 0; k < npix; k++)
            spot[k] = 0.0;
        return SPX_SPOT_EMPTY;
    }
    for (size_t k = 0; k < npix; k++)
        spot[k] *= *scale;
    return SPX_SPOT_OK;
}

/* The pixels of the spot of (fibre, lambda) whose place is *at, into spot[ny][nx]; see spx_psf_spot(). */
SPX_HD spx_spot_status spx_psf_spot_pixels(const spx_psf *p, size_t fibre, double lambda, const spx_spot *at,
                                           double *work, double *spot)
{
    const spx_spot_parts w = spx_spot_divide_work(p, work);
    double scale;
    const spx_spot_status st = spx_spot_raw(p, fibre, lambda, at, &w, spot);
    return st == SPX_SPOT_OK ? spx_spot_normalise((size_t)spx_psf_nx(p) * (size_t)spx_psf_ny(p), spot, &scale) : st;
}

/* 1 over the sum of the pixels of the spot of (fibre, lambda) before they are divided by it; work and spot as of
 * spx_psf_spot(). */
SPX_HD spx_spot_status spx_psf_spot_scale(const spx_psf *p, size_t fibre, double lambda, double *work, double *spot,
                                          double *scale)
{
    const spx_spot_parts w = spx_spot_divide_work(p, work);
    spx_spot at;
    spx_spot_status st = spx_psf_spot_place(p, fibre, lambda, &at);
    if (st == SPX_SPOT_OK)
        st = spx_spot_raw(p, fibre, lambda, &at, &w, spot);
    return st == SPX_SPOT_OK ? spx_spot_normalise((size_t)spx_psf_nx(p) * (size_t)spx_psf_ny(p), spot, scale) : st;
}

/* Computes the spot of (fibre, lambda): its place in *at and its pixels in spot[ny][nx], none negative, sum 1. `work`:
 * spx_psf_spot_work() doubles. Anything but SPX_SPOT_OK: all pixels are 0 (never NaN). fibre < p->nspec. */
SPX_HD spx_spot_status spx_psf_spot(const spx_psf *p, size_t fibre, double lambda, double *work, double *spot,
                                    spx_spot *at)
{
    const spx_spot_status st = spx_psf_spot_place(p, fibre, lambda, at);
    for (size_t k = 0; st != SPX_SPOT_OK && k < (size_t)spx_psf_nx(p) * (size_t)spx_psf_ny(p); k++)
        spot[k] = 0.0;
    return st == SPX_SPOT_OK ? spx_psf_spot_pixels(p, fibre, lambda, at, work, spot) : st;
}

/* Coefficients m[i + mx j] of the derivative of a core by `what` as a series of Hermite functions, of SPX_SPOT_MORE
 * orders more than its own; returns 0 where the core does not depend on it. With
 * dg_n/dX = g_(n+1)/sigma and dg_n/dsigma = (g_(n+2) + n g_n)/sigma. */
SPX_HD int spx_spot_core_diff(const spx_psf *p, size_t fibre, const spx_spot_core *c, int what, const double *basis,
                              double *m)
{
    const int mx = c->degx + 1 + SPX_SPOT_MORE, my = c->degy + 1 + SPX_SPOT_MORE;
    const int by_x = what == SPX_SPOT_X || what == p->tilt, tilted = what == SPX_SPOT_Y && c->tilt != 0.0;
    int any = 0;
    for (int k = 0; k < mx * my; k++)
        m[k] = 0.0;
    for (int j = 0; j <= c->degy; j++)
        for (int i = 0; i <= c->degx; i++) {
            const int par = c->gh[i + (c->degx + 1) * j];
            if (par < 0)
                continue;
            const double v = spx_psf_param_value(p, fibre, par, basis);
            if (par == what)
                m[i + mx * j] += 1.0;
            else if (by_x || tilted)
                m[i + 1 + mx * j] += (by_x ? v : -c->tilt * v) / c->sigx;
            if (what == SPX_SPOT_Y)
                m[i + mx * (j + 1)] += v / c->sigy;
            if (what == c->rowx) {
                m[i + 2 + mx * j] += v / c->sigx;
                m[i + mx * j] += i * v / c->sigx;
            } else if (what == c->rowy) {
                m[i + mx * (j + 2)] += v / c->sigy;
                m[i + mx * j] += j * v / c->sigy;
            }
        }
    for (int k = 0; k < mx * my; k++)
        any |= m[k] != 0.0;
    return any;
}

/* The spot as spx_psf_spot(), and its derivatives d[nwhat][ny][nx] by what[]: SPX_SPOT_X, SPX_SPOT_Y (pixels of the
 * trace), or a row of p->param, by its value at this wavelength. d is the derivative of the pixels before they are
 * divided by their sum, over the same sum; 0 where a pixel is clipped, or lies beyond the cut of the first core; by
 * GHNSIG it is 0. The corner is held. Anything but SPX_SPOT_OK: spot and derivatives are 0. */
SPX_HD spx_spot_status spx_psf_spot_diff(const spx_psf *p, size_t fibre, double lambda, size_t nwhat, const int *what,
                                         double *work, double *spot, double *d, spx_spot *at)
{
    const size_t npix = (size_t)spx_psf_nx(p) * (size_t)spx_psf_ny(p);
    const spx_spot_parts w = spx_spot_divide_work(p, work);
    double scale = 0.0;
    spx_spot_status st = spx_psf_spot_place(p, fibre, lambda, at);
    for (size_t k = 0; k < npix; k++)
        spot[k] = 0.0;
    for (size_t k = 0; k < nwhat * npix; k++)
        d[k] = 0.0;
    if (st == SPX_SPOT_OK)
        st = spx_spot_raw(p, fibre, lambda, at, &w, spot);
    if (st == SPX_SPOT_OK)
        st = spx_spot_normalise(npix, spot, &scale);
    for (size_t k = 0; k < nwhat && st == SPX_SPOT_OK; k++) {
        double *to = d + k * npix;
        spx_spot_core c;
        if (p->type == SPX_PSF_SPOTGRID) {
            (void)spx_spot_add_grid(p, fibre, lambda, at, w.basis, 1, what[k], w.gx, to);
            for (size_t i = 0; i < npix; i++)
                to[i] = spot[i] > 0.0 ? to[i] * scale : 0.0;
            continue;
        }
        for (int which = 0; which < spx_spot_ncore(p); which++) {
            (void)spx_spot_core_find(p, fibre, which, w.basis, &c);
            if (spx_spot_core_diff(p, fibre, &c, what[k], w.basis, w.m))
                spx_spot_add_rows(p, &c, at, c.degx + 1 + SPX_SPOT_MORE, c.degy + 1 + SPX_SPOT_MORE, w.m,
                                  what[k] == p->tilt, w.gx, w.gy, w.across, w.line, to);
        }
        spx_spot_add_tail(p, fibre, at, w.basis, c.tilt, 1, what[k], to);
        for (size_t i = 0; i < npix; i++)
            to[i] = spot[i] > 0.0 ? to[i] * scale : 0.0;
    }
    return st;
}

/* Factors of a separable spot (spx_psf_plain_spots()): before clipping it is the sum of c[i + (ghdegx+1) j] gx[i][x]
 * gy[j][y] over i <= ghdegx, j <= ghdegy. gx[ghdegx + 1 + more][nx] and gy[ghdegy + 1 + more][ny] get `more` orders
 * beyond these, 0 ... SPX_SPOT_MORE, for derivatives. SPX_SPOT_DENSE: other kinds of spot. */
SPX_HD spx_spot_status spx_psf_spot_factors(const spx_psf *p, size_t fibre, double lambda, int more, double *work,
                                            double *gx, double *gy, double *c, spx_spot *at)
{
    spx_spot_core core;
    if (!spx_psf_plain_spots(p))
        return SPX_SPOT_DENSE;
    const spx_spot_status st = spx_psf_spot_place(p, fibre, lambda, at);
    if (st != SPX_SPOT_OK)
        return st;
    spx_legendre_basis(p->ndeg, spx_psf_param_u(p, fibre, lambda), work);
    if (!spx_spot_core_find(p, fibre, 0, work, &core))
        return SPX_SPOT_SIGMA;
    spx_gauss_hermite(core.degx + more, spx_psf_nx(p), at->dx, core.sigx, gx);
    spx_gauss_hermite(core.degy + more, spx_psf_ny(p), at->dy, core.sigy, gy);
    for (int k = 0; k < (core.degx + 1) * (core.degy + 1); k++)
        c[k] = spx_psf_param_value(p, fibre, core.gh[k], work);
    return SPX_SPOT_OK;
}

#endif
