/* Provides the steps of the zero point (zero_point.c) on a device: each is a function of a team and an item, in the
 * order in which they stand here. Items of a step do not depend on each other; every sum has a fixed order.
 *
 *     step       item                  threads   results
 *     row        row of a strip        one       wavelength, first column, light of a spectrum that is 1, splines
 *     splines    strip                 TEAM      rows of the splines, Angstrom of a row
 *     pixel      pixel of a strip      one       data and weights from those of the image
 *   once, then with each change of the lines' places or of the groups
 *     line       blend in a strip      a warp    image of the lines, its derivatives
 *     group      group in a strip      a warp    derivative by its place
 *     model      rows of a strip       TEAM      residual, weights, derivative by kappa, chi^2
 *     element    element, of a strip   a warp    sums of the normal equations
 *     total      element               one       these of all strips
 *     chi2       -                     TEAM      chi^2 and pixels of all strips
 *
 * The CPU's arithmetic is in zero_point.c, up to the order of sums. Private to kernels/shift. */
#ifndef SPX_SHIFT_ZERO_STEPS_H
#define SPX_SHIFT_ZERO_STEPS_H

#include "calib/series.h"
#include "psf/psf_math.h"
#include "shift/zero_math.h"
#include "team.h"

/* Threads; rows of an item of the model. */
enum { SPX_ZERO_TEAM = 256, SPX_ZERO_ROWS = 64 };

typedef struct {
    int fibre, nrow, ncol, y0; /* as in zero_point.h */
    double scale;
    spx_zero_parabola trace;
} spx_zero_place_of;

/* Rows of a column in a strip. */
typedef struct {
    int first, n;
} spx_zero_rows;

/* Rows and columns of a strip are those of the largest. */
typedef struct {
    spx_psf psf; /* its arrays are the device's */
    int nstrip, rows, cols;
    int nl, nline, nb, ng, nk, nc, size; /* as in zero_point.h */
    int reject;
    int line_size, group_size; /* of all lines, and all groups, in a strip */
    spx_bspline spline;
    spx_zero_place_of *strip;         /* [nstrip] */
    int *blend, *line_at, *most;      /* [nl + 1] first line; [nl] place among line_size; [nstrip][nl] rows */
    double *part_of;                  /* [nline] fractions of the blend's strength */
    double *place, *strength;         /* [nline] wavelengths; [nl + nb] */
    double *kappa, *terms;            /* [nl] of lines; [nl][nk] of its series there */
    int *group_of, *group, *group_at; /* [nl], -1: none; [ng][2] first and last line; [ng + 1] */
    int *element;                     /* [size][2] columns of each */
    int *column;                      /* [nc] of right-hand sides */
    int *xc, *interval;               /* [nstrip][rows] */
    double *lambda, *basis;           /* [nstrip][rows], [nstrip][rows][4] of splines from `interval` on */
    double *unit, *data, *w, *rest;   /* [nstrip][rows][cols] */
    double *wide;                     /* [nk][nstrip][rows][cols]: derivatives by terms of kappa */
    const float *image, *weight;      /* [ny][ccd_nx]: values and weights of the CCD, 0 where they are not good */
    int ccd_nx;
    double *beside;        /* [nstrip][rows cols], packed as in zero_point.h: light of neighbours, negative;
                            * NULL: none */
    double *step;          /* [nstrip] Angstrom of a row, at most */
    spx_zero_rows *span;   /* [nstrip][2 nl + nb]: lines, splines, groups */
    double *line, *places; /* [nstrip][line_size], [nstrip][group_size] */
    double *chi2;          /* [nstrip][chunks][2] chi^2, pixels */
    double *part, *sum;    /* [nstrip][size + nc]; [size + nc + 2] */
} spx_zero_view;

SPX_HD size_t spx_zero_chunks(const spx_zero_view *g)
{
    return (size_t)(g->rows + SPX_ZERO_ROWS - 1) / SPX_ZERO_ROWS;
}

SPX_HD size_t spx_zero_row_at(const spx_zero_view *g, size_t strip, int row)
{
    return strip * (size_t)g->rows + (size_t)row;
}

SPX_HD spx_zero_rows *spx_zero_span_of(const spx_zero_view *g, size_t strip, int column)
{
    return g->span + strip * (size_t)(2 * g->nl + g->nb) + (size_t)column;
}

/* ---- row ---- */

/* Fractions of the light of a spectrum that is 1 over the columns of a row, as plain_profiles() has them. */
SPX_HD void spx_zero_profile(const spx_zero_view *g, const spx_zero_place_of *s, double lambda, double x, double slope,
                             double *unit)
{
    const spx_psf *p = &g->psf;
    const int n = s->ncol, degx = p->ghdegx;
    const double u = spx_psf_param_u(p, (size_t)s->fibre, lambda), dx = x - floor(x + 0.5);
    const size_t fibre = (size_t)s->fibre;
    const double sigx = spx_legendre_sum(p->ndeg, p->coeff + ((size_t)p->sigx * p->nspec + fibre) * p->ndeg, u);
    const double sigy = spx_legendre_sum(p->ndeg, p->coeff + ((size_t)p->sigy * p->nspec + fibre) * p->ndeg, u);
    const int good = sigx > 0 && sigy > 0 && sigx < SPX_SPOT_FAR && sigy < SPX_SPOT_FAR && fabs(slope) > 0;
    double all = 0;
    for (int k = 0; k < n; k++)
        unit[k] = 0;
    for (int order = 0; order <= degx && good; order++) {
        const int par = p->gh[order];
        const double c =
            par < 0 ? 0 : spx_legendre_sum(p->ndeg, p->coeff + ((size_t)par * p->nspec + fibre) * p->ndeg, u);
        double before = 0;
        for (int k = 0; k < n + 3 && c != 0; k++) { /* edges of columns, then of all columns of a spot */
            const double edge = ((k <= n ? k - n / 2 - 0.5 : (k - n - 1 - 0.5) * spx_psf_nx(p)) - dx) / sigx;
            double here, below = 0;
            if (order == 0) {
                here = -0.5 * erf(edge * 0.70710678118654752440);
            } else {
                here = exp(-0.5 * edge * edge) * 0.39894228040143267794;
                for (int m = 1; m < order; m++) {
                    const double above = edge * here - (m - 1) * below;
                    below = here;
                    here = above;
                }
            }
            if (k > 0 && k <= n)
                unit[k - 1] += c * (before - here);
            if (k == n + 2)
                all += c * (before - here);
            before = here;
        }
    }
    for (int k = 0; k < n; k++)
        unit[k] = all > 0 && isfinite(all) ? fmax(unit[k], 0.0) / all / fabs(slope) : 0;
}

/* Row number i of all strips. */
SPX_HD void spx_zero_row(const spx_zero_view *g, size_t i)
{
    const size_t strip = i / (size_t)g->rows, fibre = (size_t)g->strip[strip].fibre;
    const int row = (int)(i % (size_t)g->rows);
    const spx_zero_place_of *s = &g->strip[strip];
    const spx_psf_series *y = &g->psf.y;
    if (row >= s->nrow)
        return;
    double lambda = spx_zero_start(&s->trace, (double)s->y0 + row), b[4];
    for (int step = 0; step < SPX_ZERO_STEPS; step++)
        lambda = spx_zero_step(&s->trace, lambda, (double)s->y0 + row, spx_psf_series_value(y, fibre, lambda),
                               spx_zero_slope(y, fibre, lambda));
    const double x = spx_psf_series_value(&g->psf.x, fibre, lambda);
    g->lambda[i] = lambda;
    g->xc[i] = (int)spx_zero_corner(x, s->ncol);
    spx_zero_profile(g, s, lambda, x, spx_zero_slope(y, fibre, lambda), g->unit + i * (size_t)g->cols);
    g->interval[i] = (int)spx_bspline_at(&g->spline, lambda, b);
    for (int k = 0; k < 4; k++)
        g->basis[4 * i + (size_t)k] = b[k];
}

/* ---- splines ---- */

SPX_HD void spx_zero_splines(const spx_zero_view *g, const spx_team *t, size_t strip)
{
    const int n = g->strip[strip].nrow;
    const size_t at = spx_zero_row_at(g, strip, 0);
    double most = 0;
    for (int row = 1 + t->thread; row < n; row += t->threads)
        most = fmax(most, fabs(g->lambda[at + (size_t)row] - g->lambda[at + (size_t)row - 1]));
    most = spx_team_max(t, most);
    if (t->thread == 0)
        g->step[strip] = most;
    for (int k = t->thread; k < g->nb; k += t->threads) { /* rows of intervals k - 3 ... k */
        spx_zero_rows *out = spx_zero_span_of(g, strip, g->nl + k);
        int first = n, end = 0;
        for (int row = 0; row < n; row++)
            if (g->interval[at + (size_t)row] <= k && g->interval[at + (size_t)row] + 3 >= k) {
                first = row < first ? row : first;
                end = row + 1;
            }
        out->first = first;
        out->n = end > first ? end - first : 0;
    }
}

/* ---- pixel ---- */

/* Number i of [nstrip][rows][cols]. */
SPX_HD void spx_zero_pixel(const spx_zero_view *g, size_t i)
{
    const size_t at = i / (size_t)g->cols, strip = at / (size_t)g->rows;
    const int x = (int)(i % (size_t)g->cols), row = (int)(at % (size_t)g->rows);
    const spx_zero_place_of *s = &g->strip[strip];
    if (row >= s->nrow || x >= s->ncol)
        return;
    const long column = (long)g->xc[at] + x, pixel = (long)(s->y0 + row) * g->ccd_nx + column;
    const int there = column >= 0 && column < g->ccd_nx;
    const double off =
        g->beside == NULL ? 0 : g->beside[strip * (size_t)g->rows * (size_t)g->cols + (size_t)(row * s->ncol + x)];
    g->data[i] = (there ? (double)g->image[pixel] : 0) + off;
    g->w[i] = there ? (double)g->weight[pixel] : 0;
}

/* ---- line ---- */

/* Doubles of shared memory: basis, coefficients, edges, functions at edges, across and its derivative, pixels of a spot
 * and its derivatives. */
SPX_HD int spx_zero_orders(const spx_psf *p)
{
    return p->ghdegx + 1 > p->ghdegy + 2 ? p->ghdegx + 1 : p->ghdegy + 2;
}

SPX_HD size_t spx_zero_line_shared(const spx_zero_view *g)
{
    const spx_psf *p = &g->psf;
    const size_t nx = (size_t)spx_psf_nx(p), ny = (size_t)spx_psf_ny(p), edges = nx + ny + 2;
    return p->ndeg + (size_t)(p->ghdegx + 1) * (size_t)(p->ghdegy + 1) + 2 + edges * ((size_t)spx_zero_orders(p) + 2) +
           2 * (size_t)(p->ghdegy + 1) * nx + 3 * nx * ny;
}

/* Spot of (fibre, lambda), sum 1, at t->shared + spx_zero_line_shared() - 3 nx ny, with its derivatives by lambda and
 * kappa, as make_plain() and shift/spots.h have them. 0: there is none. */
SPX_HD int spx_zero_spot(const spx_zero_view *g, const spx_team *t, size_t fibre, double lambda, double kappa,
                         spx_spot *at)
{
    const spx_psf *p = &g->psf;
    const int nx = spx_psf_nx(p), ny = spx_psf_ny(p), degx = p->ghdegx, degy = p->ghdegy, ne = nx + ny + 2;
    const int ngh = (degx + 1) * (degy + 1), orders = spx_zero_orders(p), npix = nx * ny;
    double *basis = t->shared, *c = basis + p->ndeg, *e = c + ngh + 2, *h = e + ne;
    double *across = h + (orders + 1) * ne, *moved = across + (degy + 1) * nx, *out = moved + (degy + 1) * nx;
    if (spx_psf_spot_place(p, fibre, lambda, at) != SPX_SPOT_OK)
        return 0;
    spx_team_wait(t); /* for the spot before */
    if (t->thread == 0)
        spx_legendre_basis(p->ndeg, spx_psf_param_u(p, fibre, lambda), basis);
    spx_team_wait(t);
    for (int k = t->thread; k < ngh + 2; k += t->threads) {
        const int par = k < ngh ? p->gh[k] : k == ngh ? p->sigx : p->sigy;
        c[k] = par < 0 ? 0 : spx_basis_sum((int)p->ndeg, p->coeff + ((size_t)par * p->nspec + fibre) * p->ndeg, basis);
    }
    spx_team_wait(t);
    const double slope_x = spx_zero_slope(&p->x, fibre, lambda), slope_y = spx_zero_slope(&p->y, fibre, lambda);
    const double sigx = c[ngh], narrow = c[ngh + 1], wider = narrow * narrow + kappa * slope_y * slope_y;
    if (!(sigx > 0 && narrow > 0 && sigx < SPX_SPOT_FAR && narrow < SPX_SPOT_FAR && wider > 0 && wider < SPX_SPOT_FAR))
        return 0;
    const double sigy = sqrt(wider);
    for (int i = t->thread; i < ne; i += t->threads) {
        const double edge = i <= nx ? (i - nx / 2 - 0.5 - at->dx) / sigx : (i - nx - 1 - ny / 2 - 0.5 - at->dy) / sigy;
        e[i] = edge;
        spx_gauss_hermite_edge(edge, orders, h + i, ne);
    }
    spx_team_wait(t);
    for (int i = t->thread; i < (degy + 1) * nx; i += t->threads) {
        const int order = i / nx, x = i % nx;
        double a = 0, b = 0;
        for (int k = 0; k <= degx; k++) {
            const double ck = c[k + (degx + 1) * order], *hk = h + k * ne + x;
            a += ck * (hk[0] - hk[1]);
            b += ck * (hk[ne] - hk[ne + 1]);
        }
        across[i] = a;
        moved[i] = b * (slope_x / sigx);
    }
    spx_team_wait(t);
    const double along = slope_y / sigy;
    double sum = 0;
    for (int i = t->thread; i < npix; i += t->threads) {
        const int y = i / nx, x = i % nx;
        double a = 0, b = 0, d = 0;
        for (int k = 0; k <= degy; k++) {
            const double *hk = h + k * ne + nx + 1 + y, g0 = hk[0] - hk[1], g1 = hk[ne] - hk[ne + 1];
            const double g2 = hk[2 * ne] - hk[2 * ne + 1] + k * g0, here = across[k * nx + x];
            a += g0 * here;
            b += g1 * along * here + g0 * moved[k * nx + x];
            d += g2 * (0.5 * along * along) * here;
        }
        out[i] = a > 0 ? a : 0;
        out[npix + i] = a > 0 ? b : 0;
        out[2 * npix + i] = a > 0 ? d : 0;
        sum += a > 0 ? a : 0;
    }
    sum = spx_team_sum(t, sum);
    if (!(sum > 0 && isfinite(sum)))
        return 0;
    for (int i = t->thread; i < 3 * npix; i += t->threads)
        out[i] /= sum;
    spx_team_wait(t);
    return 1;
}

/* As make_line(). */
SPX_HD void spx_zero_line(const spx_zero_view *g, const spx_team *t, size_t item)
{
    const size_t strip = item / (size_t)g->nl;
    const int l = (int)(item % (size_t)g->nl), nx = spx_psf_nx(&g->psf), ny = spx_psf_ny(&g->psf);
    const spx_zero_place_of *s = &g->strip[strip];
    spx_zero_rows *out = spx_zero_span_of(g, strip, l);
    const int most = g->most[item];
    double *value = g->line + strip * (size_t)g->line_size + (size_t)g->line_at[l];
    const double *spots = t->shared + spx_zero_line_shared(g) - 3 * nx * ny;
    long first = s->nrow, end = 0;
    spx_spot at;
    for (int i = g->blend[l]; i < g->blend[l + 1]; i++)
        if (spx_psf_spot_place(&g->psf, (size_t)s->fibre, g->place[i], &at) == SPX_SPOT_OK) {
            first = at.yc - s->y0 < first ? at.yc - s->y0 : first;
            end = at.yc - s->y0 + ny > end ? at.yc - s->y0 + ny : end;
        }
    first = first < 0 ? 0 : first;
    end = end > s->nrow ? s->nrow : end;
    const int n = end > first ? (int)(end - first < most ? end - first : most) : 0, size = n * s->ncol;
    if (t->thread == 0) {
        out->first = (int)first;
        out->n = n;
    }
    for (int k = t->thread; k < size; k += t->threads)
        value[k] = value[size + k] = value[2 * size + k] = 0;
    for (int i = g->blend[l]; i < g->blend[l + 1]; i++) {
        if (n == 0 || !spx_zero_spot(g, t, (size_t)s->fibre, g->place[i], g->kappa[l], &at))
            continue;
        const double factor = g->part_of[i];
        for (int k = t->thread; k < size; k += t->threads) {
            const int row = (int)first + k / s->ncol;
            const long y = s->y0 + row - at.yc, x = g->xc[spx_zero_row_at(g, strip, row)] + k % s->ncol - at.xc;
            if (y < 0 || y >= ny || x < 0 || x >= nx)
                continue;
            const double *spot = spots + y * nx + x;
            value[k] += factor * spot[0];
            value[size + k] -= factor * spot[nx * ny];
            value[2 * size + k] += factor * spot[2 * nx * ny];
        }
    }
    for (int k = t->thread; k < size; k += t->threads)
        for (int part = 0; part < 3; part++)
            value[part * size + k] *= s->scale;
}

/* ---- columns ---- */

/* Place in `wide` of term q in a row, as spx_zero_row_at() has it, and column. */
SPX_HD size_t spx_zero_wide_at(const spx_zero_view *g, int q, size_t row, int x)
{
    return ((size_t)q * (size_t)g->nstrip * (size_t)g->rows + row) * (size_t)g->cols + (size_t)x;
}

/* Value of a line's image (part 0), or derivative (1, 2), in a row and column that it has. */
SPX_HD double spx_zero_line_value(const spx_zero_view *g, size_t strip, int l, const spx_zero_rows *has, int part,
                                  int row, int x)
{
    const int ncol = g->strip[strip].ncol;
    return g->line[strip * (size_t)g->line_size + (size_t)g->line_at[l] +
                   (size_t)((part * has->n + row - has->first) * ncol + x)];
}

SPX_HD int spx_zero_has_row(const spx_zero_rows *s, int row)
{
    return row >= s->first && row < s->first + s->n;
}

/* Value of spline k. */
SPX_HD double spx_zero_spline_value(const spx_zero_view *g, size_t strip, int k, int row, int x)
{
    const size_t at = spx_zero_row_at(g, strip, row);
    const int j = k - g->interval[at];
    return j < 0 || j > 3
               ? 0
               : g->basis[4 * at + (size_t)j] * g->strip[strip].scale * g->unit[at * (size_t)g->cols + (size_t)x];
}

/* Rows of any column. */
SPX_HD spx_zero_rows spx_zero_rows_of(const spx_zero_view *g, size_t strip, int column)
{
    const spx_zero_rows all = {0, g->strip[strip].nrow};
    return column < g->nl + g->nb + g->ng ? *spx_zero_span_of(g, strip, column) : all;
}

/* Value of any column in a row that it has. */
SPX_HD double spx_zero_value(const spx_zero_view *g, size_t strip, int column, const spx_zero_rows *has, int row, int x)
{
    if (column < g->nl)
        return spx_zero_line_value(g, strip, column, has, 0, row, x);
    if (column < g->nl + g->nb)
        return spx_zero_spline_value(g, strip, column - g->nl, row, x);
    if (column < g->nl + g->nb + g->ng)
        return g->places[strip * (size_t)g->group_size + (size_t)g->group_at[column - g->nl - g->nb] +
                         (size_t)((row - has->first) * g->strip[strip].ncol + x)];
    return g->wide[spx_zero_wide_at(g, column - g->nl - g->nb - g->ng, spx_zero_row_at(g, strip, row), x)];
}

/* ---- group ---- */

SPX_HD void spx_zero_group(const spx_zero_view *g, const spx_team *t, size_t item)
{
    const size_t strip = item / (size_t)g->ng;
    const int n = (int)(item % (size_t)g->ng), ncol = g->strip[strip].ncol;
    const int low = g->group[2 * n], high = g->group[2 * n + 1];
    double *value = g->places + strip * (size_t)g->group_size + (size_t)g->group_at[n];
    int first = g->strip[strip].nrow, end = 0;
    for (int l = low; l <= high; l++) {
        const spx_zero_rows *has = spx_zero_span_of(g, strip, l);
        if (g->group_of[l] != n || has->n == 0)
            continue;
        first = has->first < first ? has->first : first;
        end = has->first + has->n > end ? has->first + has->n : end;
    }
    const int most = (g->group_at[n + 1] - g->group_at[n]) / g->cols;
    end = end - first < most ? end : first + most;
    if (t->thread == 0) {
        spx_zero_rows *out = spx_zero_span_of(g, strip, g->nl + g->nb + n);
        out->first = first;
        out->n = end > first ? end - first : 0;
    }
    for (int k = t->thread; k < (end - first) * ncol; k += t->threads) {
        const int row = first + k / ncol;
        double sum = 0;
        for (int l = low; l <= high; l++) {
            const spx_zero_rows *has = spx_zero_span_of(g, strip, l);
            if (g->group_of[l] == n && spx_zero_has_row(has, row))
                sum += g->strength[l] * spx_zero_line_value(g, strip, l, has, 1, row, k % ncol);
        }
        value[k] = sum;
    }
}

/* ---- model ---- */

/* Bytes of shared memory: whether a line has rows of a chunk, and those that have. */
SPX_HD size_t spx_zero_model_shared(const spx_zero_view *g)
{
    return 2 * (size_t)g->nl * sizeof(int);
}

/* Lines that have any of rows from ... end - 1 of a strip, in their order, into list[nl]; their number. Waits. */
SPX_HD int spx_zero_lines_of(const spx_zero_view *g, const spx_team *t, size_t strip, int from, int end, int *list)
{
    int *has = list + g->nl, n = 0;
    for (int l = t->thread; l < g->nl; l += t->threads) {
        const spx_zero_rows *rows = spx_zero_span_of(g, strip, l);
        has[l] = rows->n > 0 && rows->first < end && rows->first + rows->n > from;
    }
    spx_team_wait(t);
    for (int l = t->thread; l < g->nl; l += t->threads) {
        int before = 0;
        for (int k = 0; k < l; k++)
            before += has[k];
        if (has[l])
            list[before] = l;
    }
    for (int l = 0; l < g->nl; l++)
        n += has[l];
    spx_team_wait(t);
    return n;
}

SPX_HD void spx_zero_model(const spx_zero_view *g, const spx_team *t, size_t item)
{
    const size_t strip = item / spx_zero_chunks(g);
    const int from = (int)(item % spx_zero_chunks(g)) * SPX_ZERO_ROWS, ncol = g->strip[strip].ncol;
    const int end = from + SPX_ZERO_ROWS < g->strip[strip].nrow ? from + SPX_ZERO_ROWS : g->strip[strip].nrow;
    double chi2 = 0, used = 0;
    int *list = (int *)t->shared;
    const int n = spx_zero_lines_of(g, t, strip, from, end, list);
    for (int i = t->thread; i < (end - from) * ncol; i += t->threads) {
        const int row = from + i / ncol, x = i % ncol;
        const size_t at = spx_zero_row_at(g, strip, row), p = at * (size_t)g->cols + (size_t)x;
        double rest = g->data[p];
        for (int q = 0; q < g->nk; q++)
            g->wide[spx_zero_wide_at(g, q, at, x)] = 0;
        for (int k = 0; k < n; k++) {
            const int l = list[k];
            const spx_zero_rows *has = spx_zero_span_of(g, strip, l);
            if (!spx_zero_has_row(has, row))
                continue;
            rest -= g->strength[l] * spx_zero_line_value(g, strip, l, has, 0, row, x);
            const double wider = g->nk > 0 ? g->strength[l] * spx_zero_line_value(g, strip, l, has, 2, row, x) : 0;
            for (int q = 0; q < g->nk; q++)
                g->wide[spx_zero_wide_at(g, q, at, x)] += g->terms[l * g->nk + q] * wider;
        }
        for (int k = g->interval[at]; k < g->interval[at] + 4; k++)
            rest -= g->strength[g->nl + k] * spx_zero_spline_value(g, strip, k, row, x);
        const double w = spx_zero_is_far(g->data[p], rest, g->w[p], g->reject) ? 0 : g->w[p];
        g->w[p] = w;
        g->rest[p] = rest;
        chi2 += w > 0 ? rest * rest * w : 0;
        used += w > 0;
    }
    chi2 = spx_team_sum(t, chi2);
    used = spx_team_sum(t, used);
    if (t->thread == 0) {
        g->chi2[2 * item] = chi2;
        g->chi2[2 * item + 1] = used;
    }
}

/* ---- element ---- */

SPX_HD void spx_zero_element(const spx_zero_view *g, const spx_team *t, size_t item)
{
    const size_t all = (size_t)(g->size + g->nc), strip = item / all, k = item % all;
    const int right = k >= (size_t)g->size, ncol = g->strip[strip].ncol;
    const int one = right ? g->column[k - (size_t)g->size] : g->element[2 * k];
    const int other = right ? -1 : g->element[2 * k + 1];
    const spx_zero_rows a = spx_zero_rows_of(g, strip, one);
    const spx_zero_rows b = right ? a : spx_zero_rows_of(g, strip, other);
    const int first = a.first > b.first ? a.first : b.first;
    const int end = a.first + a.n < b.first + b.n ? a.first + a.n : b.first + b.n;
    double sum = 0;
    for (int i = t->thread; i < (end - first) * ncol; i += t->threads) {
        const int row = first + i / ncol, x = i % ncol;
        const size_t p = spx_zero_row_at(g, strip, row) * (size_t)g->cols + (size_t)x;
        sum += g->w[p] * spx_zero_value(g, strip, one, &a, row, x) *
               (right ? g->rest[p] : spx_zero_value(g, strip, other, &b, row, x));
    }
    sum = spx_team_sum(t, sum);
    if (t->thread == 0)
        g->part[item] = sum;
}

/* ---- total, chi2 ---- */

SPX_HD void spx_zero_total(const spx_zero_view *g, size_t k)
{
    const size_t all = (size_t)(g->size + g->nc);
    double sum = 0;
    for (size_t strip = 0; strip < (size_t)g->nstrip; strip++)
        sum += g->part[strip * all + k];
    g->sum[k] = sum;
}

SPX_HD void spx_zero_chi2(const spx_zero_view *g, const spx_team *t, size_t item)
{
    const size_t n = (size_t)g->nstrip * spx_zero_chunks(g);
    double chi2 = 0, used = 0;
    (void)item;
    for (size_t i = (size_t)t->thread; i < n; i += (size_t)t->threads) {
        chi2 += g->chi2[2 * i];
        used += g->chi2[2 * i + 1];
    }
    chi2 = spx_team_sum(t, chi2);
    used = spx_team_sum(t, used);
    if (t->thread == 0) {
        g->sum[g->size + g->nc] = chi2;
        g->sum[g->size + g->nc + 1] = used;
    }
}

/* STEP(name, items, threads, bytes of shared memory, teams of a block) of all steps that teams take in a sum, in their
 * order, for view *g; total, of one thread, stands behind them. Teams that share a block are warps without memory. */
#define SPX_ZERO_STEPS_OF_A_SUM(STEP)                                                                                  \
    STEP(line, (size_t)g->nstrip *(size_t)g->nl, SPX_TEAM_WARP, spx_zero_line_shared(g) * sizeof(double), 1)           \
    STEP(group, (size_t)g->nstrip *(size_t)g->ng, SPX_TEAM_WARP, 0, 8)                                                 \
    STEP(model, (size_t)g->nstrip *spx_zero_chunks(g), SPX_ZERO_TEAM, spx_zero_model_shared(g), 1)                     \
    STEP(element, (size_t)g->nstrip *(size_t)(g->size + g->nc), SPX_TEAM_WARP, 0, 8)                                   \
    STEP(chi2, 1, SPX_ZERO_TEAM, 0, 1)

#endif
