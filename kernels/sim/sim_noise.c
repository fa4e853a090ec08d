/* Adds photon and read noise, cosmic rays and defects to an exposure (sim/sim.h). */
#include <math.h>

#include "base/mem.h"
#include "sim/sim.h"
#include "sim/sim_math.h"

/* Adds a cosmic ray's charge to one pixel; its four neighbours get the diffused charge, and are hit, too. */
static void add_hit(const spx_sim_noise *n, spx_image *im, long x, long y, double charge)
{
    static const long dx[] = {0, 1, -1, 0, 0}, dy[] = {0, 0, 0, 1, -1};
    for (int k = 0; k < 5; k++) {
        long px = x + dx[k], py = y + dy[k];
        if (px < 0 || py < 0 || px >= (long)im->nx || py >= (long)im->ny)
            continue;
        size_t i = (size_t)py * im->nx + (size_t)px;
        const float electrons = (float)(charge * (k == 0 ? 0.9 : 0.025));
        im->data[i] += electrons;
        if (n->hits != NULL)
            n->hits[i] += electrons;
        if (n->hide_cosmics && n->ivar == SPX_SIM_IVAR_DATA)
            im->ivar[i] = (float)(1.0 / (fmax(im->data[i], 0.0) + n->readnoise * n->readnoise));
        if (!n->hide_cosmics)
            im->mask[i] |= SPX_CCD_COSMIC;
    }
}

/* Cosmic rays: straight tracks of uniform place and direction, exponential length (mean 12 pixels), log-normal charge a
 * pixel. */
static void add_cosmics(const spx_sim_noise *n, spx_image *im)
{
    double u[6];
    size_t hits = (size_t)spx_sim_poisson(n->cosmics * 1e-6 * (double)im->nx * (double)im->ny, n->seed ^ 0xC05A1Cu,
                                          (unsigned char)n->camera, 0);
    for (uint64_t h = 0; h < hits; h++) {
        for (uint32_t k = 0; k < 3; k++)
            spx_sim_uniform2(n->seed, SPX_SIM_COSMIC, (unsigned char)n->camera, h, k, u + 2 * k);
        double x = u[0] * (double)im->nx, y = u[1] * (double)im->ny, angle = 6.283185307179586477 * u[2];
        double length = 1.0 + fmin(-12.0 * log(u[3]), 150.0), charge = pow(10.0, 3.2 + 0.35 * spx_sim_normal(u + 4));
        const double step = 0.25;
        for (double s = 0.0; s < length; s += step)
            add_hit(n, im, (long)floor(x + s * cos(angle)), (long)floor(y + s * sin(angle)), charge * step);
    }
}

static void spoil(spx_image *im, size_t i, float value, uint32_t bit)
{
    im->data[i] = value;
    im->ivar[i] = 0.0f;
    im->mask[i] |= bit;
}

static void forget_hits(const spx_sim_noise *n, const spx_image *im)
{
    for (size_t i = 0; i < im->nx * im->ny && n->hits != NULL; i++)
        if ((im->mask[i] & ~(uint32_t)SPX_CCD_COSMIC) != 0)
            n->hits[i] = 0.0f;
}

static void defects(const spx_sim_noise *n, spx_image *im)
{
    const size_t nx = im->nx, ny = im->ny;
    double u[2];
    uint64_t index = 0;
    /* A bad column loses all charge between its defect and the end that is read out last. */
    for (size_t k = 0; k < n->badcolumns; k++) {
        spx_sim_uniform2(n->seed, SPX_SIM_DEFECT, (unsigned char)n->camera, index++, 0, u);
        size_t x = (size_t)(u[0] * (double)nx), from = (size_t)(u[1] * (double)ny);
        for (size_t y = from; y < ny; y++)
            spoil(im, y * nx + x, im->data[y * nx + x] + 3000.0f, SPX_CCD_BAD);
    }
    for (size_t k = 0; k < n->blocks; k++) {
        spx_sim_uniform2(n->seed, SPX_SIM_DEFECT, (unsigned char)n->camera, index++, 1, u);
        size_t x0 = (size_t)(u[0] * (double)nx), y0 = (size_t)(u[1] * (double)ny);
        for (size_t y = y0; y < y0 + 24 && y < ny; y++)
            for (size_t x = x0; x < x0 + 8 && x < nx; x++)
                spoil(im, y * nx + x, (float)n->fullwell, SPX_CCD_SATURATED);
    }
    for (size_t y = n->gap_row; y - n->gap_row < n->gap && y < ny; y++)
        for (size_t x = 0; x < nx; x++)
            spoil(im, y * nx + x, 0.0f, SPX_CCD_BAD);
    for (size_t i = 0; i < nx * ny; i++)
        if (im->data[i] >= (float)n->fullwell)
            spoil(im, i, (float)n->fullwell, SPX_CCD_SATURATED);
    for (size_t k = 0; k < n->nans; k++) {
        spx_sim_uniform2(n->seed, SPX_SIM_DEFECT, (unsigned char)n->camera, index++, 2, u);
        size_t x = (size_t)(u[0] * (double)nx), y = (size_t)(u[1] * (double)ny);
        spoil(im, y * nx + x, NAN, SPX_CCD_BAD);
    }
}

void spx_sim_amplifiers(double rms, uint64_t seed, char camera, double offset[4])
{
    for (uint64_t k = 0; k < 4; k++) {
        double u[2];
        spx_sim_uniform2(seed, SPX_SIM_AMPLIFIER, (unsigned char)camera, k, 0, u);
        offset[k] = rms * spx_sim_normal(u);
    }
}

spx_status spx_sim_expose(size_t ny, size_t nx, const double *model, const spx_sim_noise *n, spx_image *out, spx_err *e)
{
    if (!(n->readnoise >= 0.01 && n->readnoise < 1e6))
        return spx_fail(e, SPX_EUSAGE, "read noise %g electrons: give one of at least 0.01", n->readnoise);
    if (!(n->fullwell > 0.0 && n->fullwell < 1e30))
        return spx_fail(e, SPX_EUSAGE, "full well %g electrons: give one above 0", n->fullwell);
    if (!(n->cosmics >= 0.0 && n->cosmics <= 1e5))
        return spx_fail(e, SPX_EUSAGE, "%g cosmic rays a million pixels: give 0 to 100000", n->cosmics);
    if (nx == 0 || ny == 0)
        return spx_fail(e, SPX_EUSAGE, "a CCD of %zu x %zu pixels: give at least 1 x 1", nx, ny);
    for (size_t i = 0; i < nx * ny; i++)
        if (!isfinite(model[i]))
            return spx_fail(e, SPX_EINPUT, "pixel (%zu, %zu) of the noise-free image is not finite", i % nx, i / nx);
    for (int k = 0; k < 4; k++)
        if (!(fabs(n->offset[k]) < 1e9))
            return spx_fail(e, SPX_EUSAGE, "an amplifier's offset of %g electrons: give less than 1e9", n->offset[k]);
    out->data = spx_alloc2(ny, nx, sizeof *out->data, e);
    out->ivar = spx_alloc2(ny, nx, sizeof *out->ivar, e);
    out->mask = spx_alloc2(ny, nx, sizeof *out->mask, e);
    out->readnoise = spx_alloc2(ny, nx, sizeof *out->readnoise, e);
    if (out->data == NULL || out->ivar == NULL || out->mask == NULL || out->readnoise == NULL)
        return SPX_EIO; /* *out is freed by its owner */
    out->ny = ny;
    out->nx = nx;
    const unsigned camera = (unsigned char)n->camera;
    const double rn2 = n->readnoise * n->readnoise;
#pragma omp parallel for schedule(static)
    for (size_t y = 0; y < ny; y++)
        for (size_t x = 0; x < nx; x++) {
            size_t i = y * nx + x;
            double mean = model[i] > 0.0 ? model[i] : 0.0, data = model[i];
            if (n->photon_noise) {
                double u[2];
                spx_sim_uniform2(n->seed, SPX_SIM_READ, camera, i, 0, u);
                data = spx_sim_poisson(mean, n->seed, camera, i) + n->readnoise * spx_sim_normal(u);
            }
            data += n->offset[(y >= ny / 2 ? 2 : 0) + (x >= nx / 2 ? 1 : 0)];
            double signal = n->ivar == SPX_SIM_IVAR_MODEL ? mean : data > 0.0 ? data : 0.0;
            out->data[i] = (float)data;
            out->ivar[i] = (float)(1.0 / (signal + rn2));
            out->readnoise[i] = (float)n->readnoise;
        }
    add_cosmics(n, out);
    defects(n, out);
    forget_hits(n, out);
    return SPX_OK;
}
