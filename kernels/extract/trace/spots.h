/* Provides the spot of a bin: pixel integrals of the Gauss-Hermite PSF, as spx_psf_spot() has them up to rounding.
 * Lanes are edges of pixels, then columns of the CCD. */
#ifndef SPX_EXTRACT_TRACE_SPOTS_H
#define SPX_EXTRACT_TRACE_SPOTS_H

#include <math.h>
#include <string.h>

#include "extract/trace/trace.h"
#include "psf/edge_lanes.h"
#include "psf/spot_math.h"
#include "simd/simd.h"

/* Doubles of a row of edges: those along x, then those along y, then room for vectors that reach beyond. */
ALWAYS_INLINE size_t edge_row(const spx_trace_plan *p)
{
    const size_t lanes = SPX_TRACE_LANES, nx = (size_t)p->nx, ny = (size_t)p->ny;
    const size_t along = nx + 1 + (ny + lanes - 1) / lanes * lanes, across = (nx + lanes - 1) / lanes * lanes;
    return ((along > across ? along : across) + lanes) / lanes * lanes;
}

/* Derivatives of a spot S, each [ny][nxp], its corner held: dS/dx of the trace, pixel^-1, and dS/d ln(sigma x). With
 * g_m of spx_gauss_hermite(), h_m = He_(m-1) phi and edges e: dg_m/dx = g_(m+1)/sigma, and dg_m/d ln(sigma) is the
 * difference of e h_(m+1) at both edges. Pixels that are clipped at 0 stay there. */
typedef struct {
    double *dx, *dwidth;
} spot_motion;

/* Orders of the Gauss-Hermite series that registers hold. */
enum { SPX_SPOT_ORDERS = 8 };

/* The spot of bin k of a fibre into spot[ny][nxp], 0 beyond its nx columns; the same arithmetic as spx_psf_spot() up
 * to rounding; its derivatives into *motion_of unless that is NULL. Returns 0, and a spot of zeros, where the PSF has
 * none. nxv vectors hold the columns of a row, which is p->nxp = `row` long; apart: the last one holds a single column,
 * which is made as a whole, without derivatives. work: p->spot_work doubles, and
 * p->motion_work more where those are wanted. */
ALWAYS_INLINE int make_spot_of(const spx_trace_plan *p, size_t fibre, size_t k, const spx_bin_geometry *at,
                               double *work, double *spot, const spot_motion *motion_of, int nxv, int apart, size_t row,
                               int degx, int degy)
{
    const size_t ndeg = p->job->psf->ndeg, ne = edge_row(p), nxp = (size_t)nxv * SPX_VL, nyp = p->nyp;
    const int nx = p->nx, ny = p->ny, deg = (degx > degy ? degx : degy) + (motion_of ? 1 : 0);
    const int by_rows = nxv - apart; /* vectors that are made row by row */
    const size_t rest = (size_t)by_rows * SPX_VL;
    double *c = work, *e = c + p->npar, *h = e + ne, *gx = h + (size_t)(deg + 1) * ne,
           *across = gx + (size_t)(degx + 1) * nxp, *gx_moved = across + (size_t)(degx + 1) * nyp,
           *gx_wider = gx_moved + (size_t)(degx + 1) * nxp;
    const double *coeff = p->coeff + fibre * ndeg * p->npar, *basis = spx_trace_basis(p, p->bp, ndeg, fibre, k);
    for (size_t i = 0; i < p->npar; i += SPX_VL) {
        vec sum = load(coeff + i) * every(basis[0]);
        for (size_t d = 1; d < ndeg; d++)
            sum += load(coeff + d * p->npar + i) * every(basis[d]);
        store(c + i, sum);
    }
    const size_t ngh = (size_t)(degx + 1) * (size_t)(degy + 1);
    const double sigx = c[ngh], sigy = c[ngh + 1];
    if (!(sigx > 0.0 && sigy > 0.0 && sigx < SPX_SPOT_FAR && sigy < SPX_SPOT_FAR))
        return 0;

    /* edges in units of sigma, and the functions whose differences are the pixel integrals */
    const double isx = 1.0 / sigx, isy = 1.0 / sigy;
    const double ex = -(nx / 2) - 0.5 - at->dx, ey = -(ny / 2) - 0.5 - at->dy;
    const size_t used = (size_t)(nx + ny + 2);
    for (int i = 0; i <= nx; i++)
        e[i] = (ex + i) * isx;
    for (int i = 0; i <= ny; i++)
        e[nx + 1 + i] = (ey + i) * isy;
    for (size_t i = used; i < ne; i++)
        e[i] = 0.0;
    edge_functions(used, deg, e, ne, h);
    for (size_t i = (used + SPX_VL - 1) / SPX_VL * SPX_VL; i < ne; i += SPX_VL)
        for (int m = 0; m <= deg; m++)
            store(h + (size_t)m * ne + i, every(0.0));
    for (int i = 0; i <= degx; i++)
        for (int v = 0; v < nxv; v++) {
            const double *hi = h + (size_t)i * ne + (size_t)v * SPX_VL;
            store(gx + (size_t)i * nxp + (size_t)v * SPX_VL,
                  (load(hi) - load(hi + 1)) * load(p->column_mask + (size_t)v * SPX_VL));
        }
    for (int i = 0; motion_of && i <= degx; i++)
        for (int v = 0; v < nxv; v++) {
            const double *hi = h + (size_t)(i + 1) * ne + (size_t)v * SPX_VL, *ei = e + (size_t)v * SPX_VL;
            const vec mask = load(p->column_mask + (size_t)v * SPX_VL);
            const size_t to = (size_t)i * nxp + (size_t)v * SPX_VL;
            store(gx_moved + to, (load(hi) - load(hi + 1)) * mask * every(isx));
            store(gx_wider + to, (load(ei) * load(hi) - load(ei + 1) * load(hi + 1)) * mask);
        }
    /* across[i][y] = sum_j c_ij g_j(y), some orders at a time */
    for (size_t y = 0; y < (size_t)ny; y += SPX_VL)
        for (int i0 = 0; i0 <= degx; i0 += SPX_SPOT_ORDERS) {
            const int n = degx + 1 - i0 < SPX_SPOT_ORDERS ? degx + 1 - i0 : SPX_SPOT_ORDERS;
            vec to[SPX_SPOT_ORDERS];
            for (int i = 0; i < n; i++)
                to[i] = every(0.0);
            for (int j = 0; j <= degy; j++) {
                const double *hj = h + (size_t)j * ne + (size_t)(nx + 1) + y;
                const vec gy = load(hj) - load(hj + 1);
                for (int i = 0; i < n; i++)
                    to[i] += gy * every(c[i0 + i + (degx + 1) * j]);
            }
            for (int i = 0; i < n; i++)
                store(across + (size_t)(i0 + i) * nyp + y, to[i]);
        }
    vec sum = every(0.0), raw = every(0.0), moved = every(0.0), wider = every(0.0);
    for (int v = 0; v < by_rows; v++) {
        const size_t from = (size_t)v * SPX_VL;
        vec g[SPX_SPOT_ORDERS];
        for (int i = 0; i <= degx && i < SPX_SPOT_ORDERS; i++)
            g[i] = load(gx + (size_t)i * nxp + from);
        for (int y = 0; y < ny; y++) {
            const size_t to = (size_t)y * row + from;
            vec s = every(0.0), m = every(0.0), w = every(0.0);
            for (int i = 0; i <= degx; i++) {
                const vec a = every(across[(size_t)i * nyp + (size_t)y]);
                s += a * (i < SPX_SPOT_ORDERS ? g[i] : load(gx + (size_t)i * nxp + from));
                if (motion_of) {
                    m += a * load(gx_moved + (size_t)i * nxp + from);
                    w += a * load(gx_wider + (size_t)i * nxp + from);
                }
            }
            raw += s;
            s = positive_or_0(s);
            sum += s;
            store(spot + to, s);
            if (motion_of) {
                const ivec lit = s > every(0.0);
                m = choose(lit, m, every(0.0));
                w = choose(lit, w, every(0.0));
                moved += m;
                wider += w;
                store(motion_of->dx + to, m);
                store(motion_of->dwidth + to, w);
            }
        }
    }
    for (size_t y = 0; apart && y < (size_t)ny; y += SPX_VL) { /* the column takes the place of across[0] */
        vec s = every(0.0);
        for (int i = 0; i <= degx; i++)
            s += load(across + (size_t)i * nyp + y) * every(gx[(size_t)i * nxp + rest]);
        s *= load(p->row_mask + y);
        raw += s;
        s = positive_or_0(s);
        sum += s;
        store(across + y, s);
    }
    const double total = sum_lanes(sum), check = sum_lanes(raw);
    const double scale = isfinite(check) && total > 0.0 && isfinite(total) ? 1.0 / total : 0.0;
    if (!(scale > 0.0 && isfinite(scale)))
        return 0;
    const double more = motion_of ? sum_lanes(moved) * scale : 0.0,
                 more_wide = motion_of ? sum_lanes(wider) * scale : 0.0;
    for (int y = 0; y < ny; y++) {
        size_t i = (size_t)y * row;
        if (apart)
            store(spot + i + rest, (vec){across[y] * scale});
        for (const size_t end = i + rest; i < end; i += SPX_VL) {
            const vec s = load(spot + i) * every(scale);
            store(spot + i, s);
            if (motion_of) { /* of the spot over its sum */
                store(motion_of->dx + i, load(motion_of->dx + i) * every(scale) - s * every(more));
                store(motion_of->dwidth + i, load(motion_of->dwidth + i) * every(scale) - s * every(more_wide));
            }
        }
        i += (size_t)apart * SPX_VL;
        for (const size_t end = (size_t)(y + 1) * row; i < end; i += SPX_VL)
            store(spot + i, every(0.0));
    }
    return 1;
}

/* Rows of [ny][nx] pixels into those of a spot. */
static void put_rows(const spx_trace_plan *p, const double *pixels, double *spot)
{
    for (int y = 0; y < p->ny; y++) {
        memcpy(spot + (size_t)y * p->nxp, pixels + (size_t)y * (size_t)p->nx, (size_t)p->nx * sizeof *spot);
        memset(spot + (size_t)y * p->nxp + p->nx, 0, (p->nxp - (size_t)p->nx) * sizeof *spot);
    }
}

/* The same for spots that are no plain Gauss-Hermite series. */
static int make_dense_spot(const spx_trace_plan *p, size_t fibre, size_t k, const spx_bin_geometry *at, double *work,
                           double *spot)
{
    const spx_spot place = {.xc = at->xc, .yc = at->yc, .dx = at->dx, .dy = at->dy};
    const double lambda = spx_extract_lambda(p->job->o, (long)k - (long)p->pad);
    double *pixels = work + spx_psf_spot_work(p->job->psf);
    if (spx_psf_spot_pixels(p->job->psf, fibre, lambda, &place, work, pixels) != SPX_SPOT_OK)
        return 0;
    put_rows(p, pixels, spot);
    return 1;
}

/* The same with its derivatives; widths of both cores change by the same factor. */
static int make_dense_moving_spot(const spx_trace_plan *p, size_t fibre, size_t k, double *work, double *spot,
                                  const spot_motion *d)
{
    const spx_psf *psf = p->job->psf;
    const size_t npix = (size_t)p->nx * (size_t)p->ny, ncore = (size_t)spx_spot_ncore(psf);
    const int what[3] = {SPX_SPOT_X, psf->sigx, psf->sigx2};
    const double lambda = spx_extract_lambda(p->job->o, (long)k - (long)p->pad);
    double *pixels = work + spx_psf_spot_work(psf), *moved = pixels + npix, *wider = moved + npix, sum[2] = {0, 0};
    spx_spot place;
    if (spx_psf_spot_diff(psf, fibre, lambda, 1 + ncore, what, work, pixels, moved, &place) != SPX_SPOT_OK)
        return 0;
    spx_legendre_basis(psf->ndeg, spx_psf_param_u(psf, fibre, lambda), work);
    for (size_t i = 0; i < npix; i++) {
        double all = 0;
        for (size_t c = 0; c < ncore; c++)
            all += spx_psf_param_value(psf, fibre, what[1 + c], work) * wider[c * npix + i];
        wider[i] = all;
        sum[0] += moved[i];
        sum[1] += all;
    }
    for (size_t i = 0; i < npix; i++) { /* of the spot over its sum */
        moved[i] -= pixels[i] * sum[0];
        wider[i] -= pixels[i] * sum[1];
    }
    put_rows(p, pixels, spot);
    put_rows(p, moved, d->dx);
    put_rows(p, wider, d->dwidth);
    return 1;
}

/* Vectors that hold the columns of a spot: those behind are zeros. */
ALWAYS_INLINE int spot_vectors(const spx_trace_plan *p)
{
    return (p->nx + SPX_VL - 1) / SPX_VL;
}

/* make_spot_of() with loops of constant length for spots of the usual size and degree: DESI's have 17 columns and 6,
 * those of specx-sim up to 16 and 4; spots of at most 8 columns are narrow ones (extract/trace/tail.c). */
ALWAYS_INLINE int make_usual_spot(const spx_trace_plan *p, size_t fibre, size_t k, const spx_bin_geometry *at,
                                  double *work, double *spot, const spot_motion *d)
{
    enum { VECTORS = 16 / SPX_VL, MORE = (17 + SPX_VL - 1) / SPX_VL, ROW = 24, FEW = 8 / SPX_VL, SHORT = 16 };
    const int degree = p->degx == p->degy ? p->degx : 0, usual = p->nxp == ROW && spot_vectors(p) == VECTORS,
              narrow = p->nxp == SHORT && spot_vectors(p) == FEW;
    if (usual && degree == 6)
        return make_spot_of(p, fibre, k, at, work, spot, d, VECTORS, 0, ROW, 6, 6);
    if (usual && degree == 4)
        return make_spot_of(p, fibre, k, at, work, spot, d, VECTORS, 0, ROW, 4, 4);
    if (degree == 6 && p->nxp == ROW && p->nx == 17 && d == NULL)
        return make_spot_of(p, fibre, k, at, work, spot, d, MORE, 1, ROW, 6, 6);
    if (degree == 6 && p->nxp == ROW && spot_vectors(p) == MORE)
        return make_spot_of(p, fibre, k, at, work, spot, d, MORE, 0, ROW, 6, 6);
    if (narrow && degree == 6)
        return make_spot_of(p, fibre, k, at, work, spot, d, FEW, 0, SHORT, 6, 6);
    if (narrow && degree == 4)
        return make_spot_of(p, fibre, k, at, work, spot, d, FEW, 0, SHORT, 4, 4);
    return make_spot_of(p, fibre, k, at, work, spot, d, spot_vectors(p), 0, p->nxp, p->degx, p->degy);
}

static int make_spot(const spx_trace_plan *p, size_t fibre, size_t k, const spx_bin_geometry *at, double *work,
                     double *spot)
{
    int ok;
    if (p->dense)
        ok = make_dense_spot(p, fibre, k, at, work, spot);
    else
        ok = make_usual_spot(p, fibre, k, at, work, spot, NULL);
    if (!ok)
        memset(spot, 0, (size_t)p->ny * p->nxp * sizeof *spot);
    return ok;
}

/* The same with its derivatives, zeros where the PSF has no spot. */
static int make_moving_spot(const spx_trace_plan *p, size_t fibre, size_t k, const spx_bin_geometry *at, double *work,
                            double *spot, const spot_motion *d)
{
    int ok;
    if (p->dense)
        ok = make_dense_moving_spot(p, fibre, k, work, spot, d);
    else
        ok = make_usual_spot(p, fibre, k, at, work, spot, d);
    if (!ok) {
        memset(spot, 0, (size_t)p->ny * p->nxp * sizeof *spot);
        memset(d->dx, 0, (size_t)p->ny * p->nxp * sizeof *spot);
        memset(d->dwidth, 0, (size_t)p->ny * p->nxp * sizeof *spot);
    }
    return ok;
}

#endif
