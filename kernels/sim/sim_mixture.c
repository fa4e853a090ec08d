/* Makes spots that are mixtures of Gaussians, and the wings of all light (sim/sim_mixture.h, sim/sim.h). */
#include "sim/sim_mixture.h"

#include <math.h>

#include "base/mem.h"

/* Number t of which a fraction p of a Gamma distribution of shape 3 lies below, by bisection. */
static double gamma3_quantile(double p)
{
    double lo = 0.0, hi = 50.0;
    for (int k = 0; k < 80; k++) {
        double t = 0.5 * (lo + hi);
        if (1.0 - exp(-t) * (1.0 + t + 0.5 * t * t) < p)
            lo = t;
        else
            hi = t;
    }
    return lo;
}

void spx_sim_mixture_make(spx_sim_family family, spx_sim_mixture *m)
{
    *m = (spx_sim_mixture){0};
    if (family == SPX_SIM_MOFFAT) {
        /* (1 + r^2/a^2)^-4 is a mixture of Gaussians of variance a^2/(2 t), t of a Gamma distribution of shape 3. Half
         * of the light is within r = 0.5098 a, and of a Gaussian's within 1.1774 sigma. */
        const double a = 1.1774 / 0.5098;
        m->n = 16;
        for (size_t k = 0; k < m->n; k++)
            m->sigma[k] = a / sqrt(2.0 * gamma3_quantile(((double)k + 0.5) / (double)m->n));
    } else if (family == SPX_SIM_DISC) {
        /* Points on a spiral, evenly over the disc; its rms width along an axis is half its radius. */
        const double radius = 1.5;
        m->n = 24;
        for (size_t k = 0; k < m->n; k++) {
            double r = radius * sqrt(((double)k + 0.5) / (double)m->n), angle = 2.39996322972865332 * (double)k;
            m->x[k] = r * cos(angle);
            m->y[k] = r * sin(angle);
            m->sigma[k] = sqrt(1.0 - 0.25 * radius * radius);
        }
        double mx = 0.0, my = 0.0; /* the centre of the spot is that of its light */
        for (size_t k = 0; k < m->n; k++) {
            mx += m->x[k] / (double)m->n;
            my += m->y[k] / (double)m->n;
        }
        for (size_t k = 0; k < m->n; k++) {
            m->x[k] -= mx;
            m->y[k] -= my;
        }
    }
}

spx_spot_status spx_sim_mixture_spot(const spx_sim_mixture *m, const spx_psf *psf, size_t fibre, double lambda,
                                     double *work, double *spot, spx_spot *at)
{
    const int nx = spx_psf_nx(psf), ny = spx_psf_ny(psf);
    const size_t npix = (size_t)nx * (size_t)ny, row = psf->nspec * psf->ndeg;
    double *basis = work, *gx = basis + psf->ndeg, *gy = gx + nx;
    for (size_t k = 0; k < npix; k++)
        spot[k] = 0.0;
    spx_spot_status st = spx_psf_spot_place(psf, fibre, lambda, at);
    if (st != SPX_SPOT_OK)
        return st;
    spx_legendre_basis(psf->ndeg, spx_psf_param_u(psf, fibre, lambda), basis);
    const double *c = psf->coeff + fibre * psf->ndeg;
    const double sx = spx_basis_sum((int)psf->ndeg, c + (size_t)psf->sigx * row, basis);
    const double sy = spx_basis_sum((int)psf->ndeg, c + (size_t)psf->sigy * row, basis);
    if (!(sx > 0.0 && sy > 0.0 && sx < SPX_SPOT_FAR && sy < SPX_SPOT_FAR))
        return SPX_SPOT_SIGMA;
    double sum = 0.0;
    for (size_t q = 0; q < m->n; q++) {
        spx_gauss_hermite(0, nx, at->dx + m->x[q] * sx, m->sigma[q] * sx, gx);
        spx_gauss_hermite(0, ny, at->dy + m->y[q] * sy, m->sigma[q] * sy, gy);
        for (int y = 0; y < ny; y++)
            for (int x = 0; x < nx; x++)
                spot[(size_t)y * (size_t)nx + (size_t)x] += gy[y] * gx[x];
    }
    for (size_t k = 0; k < npix; k++)
        sum += spot[k];
    if (!(sum > 0.0 && isfinite(sum)))
        return SPX_SPOT_EMPTY;
    for (size_t k = 0; k < npix; k++)
        spot[k] /= sum;
    return SPX_SPOT_OK;
}

/* Convolves a row of nx pixels with kernel[2 r + 1]. */
static void along_row(size_t nx, const double *from, long r, const double *kernel, double *to)
{
    for (long i = 0; i < (long)nx; i++) {
        const long a = i - r < 0 ? 0 : i - r, b = i + r >= (long)nx ? (long)nx - 1 : i + r;
        double sum = 0.0;
        for (long j = a; j <= b; j++)
            sum += kernel[j - i + r] * from[j];
        to[i] = sum;
    }
}

/* Adds `share` of row y of the columns' convolution to to[nx]. */
static void along_columns(size_t ny, size_t nx, size_t y, const double *from, long r, const double *kernel,
                          double share, double *to)
{
    const long a = (long)y - r < 0 ? 0 : (long)y - r, b = (long)y + r >= (long)ny ? (long)ny - 1 : (long)y + r;
    for (long j = a; j <= b; j++) {
        const double k = share * kernel[j - (long)y + r], *row = from + (size_t)j * nx;
        for (size_t x = 0; x < nx; x++)
            to[x] += k * row[x];
    }
}

spx_status spx_sim_tails(double fraction, size_t ny, size_t nx, double *image, spx_err *e)
{
    static const double sigma[] = {3, 6, 12, 24}, share[] = {0.4, 0.3, 0.2, 0.1};
    enum { RADIUS = 96 };
    if (!(fraction >= 0.0 && fraction <= 1.0))
        return spx_fail(e, SPX_EUSAGE, "tails with %g of the light: give 0 to 1", fraction);
    double *across = spx_alloc2(ny, nx, sizeof *across, e), *wings = spx_alloc2(ny, nx, sizeof *wings, e);
    spx_status st = across == NULL || wings == NULL ? SPX_EIO : SPX_OK;
    for (size_t q = 0; q < sizeof sigma / sizeof *sigma && st == SPX_OK; q++) {
        double kernel[2 * RADIUS + 1], sum = 0.0;
        const long r = (long)(4.0 * sigma[q]);
        for (long k = -r; k <= r; k++)
            sum += kernel[k + r] = exp(-0.5 * (double)(k * k) / (sigma[q] * sigma[q]));
        for (long k = 0; k <= 2 * r; k++)
            kernel[k] /= sum;
#pragma omp parallel for schedule(static)
        for (size_t y = 0; y < ny; y++)
            along_row(nx, image + y * nx, r, kernel, across + y * nx);
#pragma omp parallel for schedule(static)
        for (size_t y = 0; y < ny; y++)
            along_columns(ny, nx, y, across, r, kernel, share[q], wings + y * nx);
    }
    for (size_t i = 0; i < ny * nx && st == SPX_OK; i++)
        image[i] = (1.0 - fraction) * image[i] + fraction * wings[i];
    spx_free(across);
    spx_free(wings);
    return st;
}
