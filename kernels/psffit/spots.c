/* Spots of a bundle: places, shapes, pixels and their derivatives (psffit/fit.h). */
#include <math.h>
#include <string.h>

#include "psf/psf_math.h"
#include "psffit/fit.h"

/* Polynomials that a PSF's series have for the most part. */
enum { MOST_SERIES = 32 };

/* Value of a parameter's series; basis: its polynomials at u, where these are at most MOST_SERIES. */
static double value_of(const spx_psf *psf, size_t fibre, int param, double u, const double *basis)
{
    const double *c = psf->coeff + ((size_t)param * psf->nspec + fibre) * psf->ndeg;
    return psf->ndeg <= MOST_SERIES ? spx_basis_sum((int)psf->ndeg, c, basis) : spx_legendre_sum(psf->ndeg, c, u);
}

void spx_pf_shape_start(const spx_pf_plan *p, size_t fibre, double wave, double *sigx, double *sigy, double *c)
{
    const spx_psf *psf = p->start;
    const double u = spx_psf_u(psf->wmin, psf->wmax, wave);
    double basis[MOST_SERIES];
    spx_legendre_basis(psf->ndeg < MOST_SERIES ? psf->ndeg : MOST_SERIES, u, basis);
    *sigx = value_of(psf, fibre, psf->sigx, u, basis);
    *sigy = value_of(psf, fibre, psf->sigy, u, basis);
    for (int j = 0; j <= p->deg; j++)
        for (int i = 0; i <= p->deg; i++) {
            const int known = i <= psf->ghdegx && j <= psf->ghdegy ? psf->gh[i + (psf->ghdegx + 1) * j] : -1;
            c[i + (p->deg + 1) * j] = known < 0 ? 0 : value_of(psf, fibre, known, u, basis);
        }
    /* GH-0-0 = 1: the flux takes the factor */
    const double scale = c[0] > 0 ? 1 / c[0] : 1;
    for (int k = 0; k < p->nc; k++)
        c[k] *= scale;
    c[0] = 1;
}

void spx_pf_shape(const spx_pf_bundle *b, const double *theta, size_t i, double wave, double *sigx, double *sigy,
                  double *c)
{
    const spx_pf_plan *p = b->p;
    if (p->nq == 0) {
        spx_pf_shape_start(p, b->fibre0 + i, wave, sigx, sigy, c);
        return;
    }
    double term[SPX_PF_MOST_WAVE], local[SPX_PF_MOST_LOCAL] = {0};
    spx_legendre_basis((size_t)p->nb, spx_pf_u(p, wave), term);
    const double *q = theta + b->shape0;
    const spx_pf_kernels *kernels = spx_pf_kernels_find();
    for (int k = 0; k < p->nb; k++)
        for (int a = 0; a < p->na; a++, q += p->nq)
            kernels->add((size_t)p->nq, term[k] * b->vterm[i * (size_t)p->na + (size_t)a], q, local);
    *sigx = local[0];
    *sigy = local[1];
    c[0] = 1;
    for (int k = 1; k < p->nc; k++)
        c[k] = local[k + 1];
}

void spx_pf_place(const spx_pf_bundle *b, const double *theta, size_t i, double wave, double *x, double *y)
{
    const size_t n = (size_t)b->p->ntr;
    const double u = spx_pf_u(b->p, wave);
    *x = spx_legendre_sum(n, theta + i * 2 * n, u);
    *y = spx_legendre_sum(n, theta + i * 2 * n + n, u);
}

double spx_pf_wave_at(const spx_pf_bundle *b, const double *theta, size_t i, double row)
{
    double lo = b->p->wmin, hi = b->p->wmax, x, ylo, yhi;
    spx_pf_place(b, theta, i, lo, &x, &ylo);
    spx_pf_place(b, theta, i, hi, &x, &yhi);
    const int up = yhi > ylo;
    if ((row - ylo) * (up ? 1 : -1) <= 0)
        return lo;
    if ((row - yhi) * (up ? 1 : -1) >= 0)
        return hi;
    /* regula falsi, kept within the bracket by bisection: traces are close to lines */
    for (int k = 0; k < 60 && hi - lo > 1e-6; k++) {
        double y, wave = lo + (hi - lo) * (row - ylo) / (yhi - ylo);
        if (k % 3 == 2 || !(wave > lo && wave < hi))
            wave = 0.5 * (lo + hi);
        spx_pf_place(b, theta, i, wave, &x, &y);
        if (fabs(y - row) < 1e-6)
            return wave;
        if ((y < row) == up) {
            lo = wave;
            ylo = y;
        } else {
            hi = wave;
            yhi = y;
        }
    }
    return 0.5 * (lo + hi);
}

/* The part of a spot that lies on the pixels of the bundle. */
static void cut(const spx_pf_bundle *b, spx_pf_at *at)
{
    const spx_pf_plan *p = b->p;
    const long left = -at->xc, right = (long)b->width - at->xc, down = -at->yc, up = (long)p->height - at->yc;
    at->x0 = left > 0 ? (int)(left < p->nx ? left : p->nx) : 0;
    at->x1 = right < p->nx ? (int)(right > 0 ? right : 0) : p->nx;
    at->y0 = down > 0 ? (int)(down < p->ny ? down : p->ny) : 0;
    at->y1 = up < p->ny ? (int)(up > 0 ? up : 0) : p->ny;
    if (at->x1 <= at->x0 || at->y1 <= at->y0)
        at->x0 = at->x1 = at->y0 = at->y1 = 0;
}

double spx_pf_wave(const spx_pf_bundle *b, const spx_pf_state *s, const spx_pf_line *line)
{
    return line->free > 0 ? line->wave + s->theta[b->free0 + line->free - 1] : line->wave;
}

int spx_pf_spots(spx_pf_bundle *b, spx_pf_state *s)
{
    const spx_pf_plan *p = b->p;
    const spx_pf_kernels *kernels = spx_pf_kernels_find();
    const size_t nx = (size_t)p->nx, ny = (size_t)p->ny, order = (size_t)p->norder;
    if (b->there != NULL)
        return p->device->spots(b, s);
    for (size_t l = 0; l < b->nl; l++) {
        const double wave = spx_pf_wave(b, s, &b->line[l]);
        double term[SPX_PF_MOST_TRACE];
        spx_legendre_basis((size_t)p->ntr, spx_pf_u(p, wave), term);
        for (size_t i = 0; i < b->nf; i++) {
            double c[SPX_PF_MOST_LOCAL], sigx, sigy, x = 0, y = 0;
            if (b->fixed != NULL) {
                const double *from = b->fixed + (l * b->nf + i) * (size_t)(2 + p->nc);
                sigx = from[0];
                sigy = from[1];
                memcpy(c, from + 2, (size_t)p->nc * sizeof *c);
            } else {
                spx_pf_shape(b, s->theta, i, wave, &sigx, &sigy, c);
            }
            const double *t = s->theta + i * 2 * (size_t)p->ntr;
            for (int k = 0; k < p->ntr; k++) {
                x += t[k] * term[k];
                y += t[k + p->ntr] * term[k];
            }
            if (!(sigx > 0.15 && sigy > 0.15 && sigx < 4 * p->nx && sigy < 4 * p->ny && fabs(x) < SPX_SPOT_FAR &&
                  fabs(y) < SPX_SPOT_FAR))
                return 0;
            for (size_t e = 0; e < p->nexp; e++) {
                const size_t k = (e * b->nl + l) * b->nf + i;
                const double *shift = e > 0 && p->nshift > 0 ? s->theta + b->shift0 + 2 * (e - 1) : NULL;
                spx_pf_at *at = &s->at[k];
                at->x = x + (shift != NULL ? shift[0] : 0);
                at->y = y + (shift != NULL ? shift[1] : 0);
                at->sigx = sigx;
                at->sigy = sigy;
                const double mx = floor(at->x + 0.5), my = floor(at->y + 0.5);
                at->xc = (long)mx - p->hx - (long)b->x0;
                at->yc = (long)my - p->hy;
                cut(b, at);
                double *gx = s->gx + k * order * nx, *gy = s->gy + k * order * ny;
                if (at->y0 == at->y1) {
                    memset(s->spot + k * nx * ny, 0, nx * ny * sizeof *s->spot);
                    continue;
                }
                memcpy(s->c + k * (size_t)p->nc, c, (size_t)p->nc * sizeof *c);
                kernels->hermite(p->norder - 1, p->nx, at->x - mx, sigx, gx);
                kernels->hermite(p->norder - 1, p->ny, at->y - my, sigy, gy);
                kernels->spot(p, gx, gy, c, s->spot + k * nx * ny);
            }
        }
    }
    return 1;
}
