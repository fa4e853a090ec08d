/* Provides over-sampled spots of a PSF (products/psf_grid.h). */
#include "products/psf_grid.h"

#include <math.h>
#include <string.h>

#include "base/mem.h"

/* Limits of a file that is not taken for broken. */
enum { MAX_OVERSAMPLE = 1000, MAX_SIDE = 100000 };

void spx_psf_grid_free(spx_psf_grid *g)
{
    spx_free(g->spot);
    spx_free(g->pos);
    spx_free(g->wave);
    spx_free(g->fibre_pos);
    spx_free(g->place_x);
    spx_free(g->place_y);
    spx_free(g->stretched);
    spx_free(g->sum);
    spx_free(g->centre);
    memset(g, 0, sizeof *g);
}

spx_status spx_psf_copy_array(const void *from, size_t n, size_t size, void *to, spx_err *e)
{
    void *more = from != NULL ? spx_alloc_unset(n, 1, size, e) : NULL;
    memcpy(to, &more, sizeof more);
    if (from == NULL)
        return SPX_OK;
    if (more == NULL)
        return SPX_EIO;
    memcpy(more, from, n * size);
    return SPX_OK;
}

spx_status spx_psf_grid_copy(const spx_psf_grid *from, size_t nspec, spx_psf_grid *to, spx_err *e)
{
    const size_t n = from->npos * from->nwave;
    *to = *from;
    to->spot = NULL;
    to->pos = to->wave = to->fibre_pos = to->place_x = to->place_y = to->stretched = to->sum = to->centre = NULL;
    spx_status st = spx_psf_copy_array(from->spot, n * from->my * from->mx, sizeof *to->spot, &to->spot, e);
    if (st == SPX_OK)
        st = spx_psf_copy_array(from->pos, from->npos, sizeof *to->pos, &to->pos, e);
    if (st == SPX_OK)
        st = spx_psf_copy_array(from->wave, from->nwave, sizeof *to->wave, &to->wave, e);
    if (st == SPX_OK)
        st = spx_psf_copy_array(from->fibre_pos, nspec, sizeof *to->fibre_pos, &to->fibre_pos, e);
    if (st == SPX_OK)
        st = spx_psf_copy_array(from->place_x, n, sizeof *to->place_x, &to->place_x, e);
    if (st == SPX_OK)
        st = spx_psf_copy_array(from->place_y, n, sizeof *to->place_y, &to->place_y, e);
    if (st == SPX_OK)
        st = spx_psf_copy_array(from->stretched, nspec, sizeof *to->stretched, &to->stretched, e);
    if (st == SPX_OK)
        st = spx_psf_copy_array(from->sum, n * (from->my + 1) * (from->mx + 1), sizeof *to->sum, &to->sum, e);
    if (st == SPX_OK)
        st = spx_psf_copy_array(from->centre, 2 * n, sizeof *to->centre, &to->centre, e);
    return st;
}

/* First index at which x[n] is not finite or not above the one before; n: none. */
static size_t not_increasing(size_t n, const double *x)
{
    for (size_t i = 0; i < n; i++)
        if (!isfinite(x[i]) || (i > 0 && !(x[i] > x[i - 1])))
            return i;
    return n;
}

static spx_status check(const spx_psf *psf, spx_err *e)
{
    const spx_psf_grid *g = &psf->grid;
    if (g->npos == 0 || g->nwave == 0 || g->my == 0 || g->mx == 0 || g->my > MAX_SIDE || g->mx > MAX_SIDE)
        return spx_fail(e, SPX_EINPUT, "psf: a grid of %zu x %zu spots of %zu x %zu sub-pixels", g->npos, g->nwave,
                        g->my, g->mx);
    if (g->oversample < 1 || g->oversample > MAX_OVERSAMPLE)
        return spx_fail(e, SPX_EINPUT, "psf: oversample is %d: must be 1 to %d", g->oversample, MAX_OVERSAMPLE);
    if (!(g->sigma_x > 0 && g->sigma_y > 0 && isfinite(g->sigma_x) && isfinite(g->sigma_y)))
        return spx_fail(e, SPX_EINPUT, "psf: sigmax %g, sigmay %g of the spots: must be above 0", g->sigma_x,
                        g->sigma_y);
    if ((g->place_x == NULL) != (g->place_y == NULL))
        return spx_fail(e, SPX_EINPUT, "psf: spot_x without spot_y, or spot_y without spot_x");
    size_t i = not_increasing(g->npos, g->pos);
    if (i < g->npos)
        return spx_fail(e, SPX_EINPUT, "psf: position %zu of the spots on the slit is %g: they have to increase", i,
                        g->pos[i]);
    i = not_increasing(g->nwave, g->wave);
    if (i < g->nwave)
        return spx_fail(e, SPX_EINPUT, "psf: wavelength %zu of the spots is %g: they have to increase", i, g->wave[i]);
    for (i = 0; i < psf->nspec; i++)
        if (!isfinite(g->fibre_pos[i]))
            return spx_fail(e, SPX_EINPUT, "psf: the position of trace %zu on the slit is not finite", i);
    return SPX_OK;
}

/* Sums of one spot, and its place. */
static spx_status index_spot(spx_psf_grid *g, size_t pos, size_t wave, spx_err *e)
{
    const size_t node = pos * g->nwave + wave, row = g->mx + 1;
    const float *spot = g->spot + node * g->my * g->mx;
    double *sum = g->sum + node * (g->my + 1) * row, *centre = g->centre + 2 * node, x = 0, y = 0;
    for (size_t j = 0; j < g->my; j++) {
        double line = 0;
        for (size_t i = 0; i < g->mx; i++) {
            const double v = spot[j * g->mx + i];
            line += v;
            x += v * ((double)i + 0.5);
            y += v * ((double)j + 0.5);
            sum[(j + 1) * row + i + 1] = sum[j * row + i + 1] + line;
        }
    }
    const double all = sum[g->my * row + g->mx];
    if (!isfinite(x + y))
        return spx_fail(e, SPX_EINPUT, "psf: spot %zu, %zu (position, wavelength) is not finite", pos, wave);
    if (!(all > 0))
        return spx_fail(e, SPX_EINPUT,
                        "psf: spot %zu, %zu (position, wavelength) sums up to %g: its light has to be above 0", pos,
                        wave, all);
    centre[0] = g->place_y != NULL ? g->place_y[node] + 0.5 : y / all;
    centre[1] = g->place_x != NULL ? g->place_x[node] + 0.5 : x / all;
    /* half an array beyond its edges: specter places spots of an even number of pixels half a pixel off */
    if (!(fabs(centre[0] / (double)g->my - 0.5) <= 1 && fabs(centre[1] / (double)g->mx - 0.5) <= 1))
        return spx_fail(e, SPX_EINPUT,
                        "psf: the trace is at sub-pixel %g, %g of spot %zu, %zu (position, wavelength), which has %zu "
                        "x %zu",
                        centre[1] - 0.5, centre[0] - 0.5, pos, wave, g->mx, g->my);
    return SPX_OK;
}

spx_status spx_psf_grid_index(spx_psf *psf, spx_err *e)
{
    spx_psf_grid *g = &psf->grid;
    size_t n, size;
    spx_status st = check(psf, e);
    if (st == SPX_OK)
        st = spx_mul(g->npos, g->nwave, &n, e);
    if (st == SPX_OK)
        st = spx_mul(g->my + 1, g->mx + 1, &size, e);
    if (st != SPX_OK)
        return st;
    spx_free(g->sum);
    spx_free(g->centre);
    g->sum = spx_alloc2(n, size, sizeof *g->sum, e);
    g->centre = spx_alloc2(n, 2, sizeof *g->centre, e);
    if (g->sum == NULL || g->centre == NULL)
        return SPX_EIO;
    for (size_t i = 0; i < n && st == SPX_OK; i++)
        st = index_spot(g, i / g->nwave, i % g->nwave, e);
    return st;
}

void spx_psf_grid_size(const spx_psf_grid *g, int *hsizex, int *hsizey)
{
    double far[2] = {0, 0}; /* of light from the trace, sub-pixels */
    for (size_t node = 0; node < g->npos * g->nwave; node++)
        for (size_t k = 0; k < g->my * g->mx; k++) {
            if (g->spot[node * g->my * g->mx + k] == 0)
                continue;
            const double y = (double)(k / g->mx) - g->centre[2 * node],
                         x = (double)(k % g->mx) - g->centre[2 * node + 1];
            far[0] = fmax(far[0], fmax(-y, y + 1));
            far[1] = fmax(far[1], fmax(-x, x + 1));
        }
    *hsizey = (int)ceil(far[0] / g->oversample - 1e-9);
    *hsizex = (int)ceil(far[1] / g->oversample - 1e-9);
}

/* Edge coordinate at which the sums s[n + 1], `step` apart, pass `part` of the last. */
static double quantile(size_t n, const double *s, size_t step, double part)
{
    const double want = part * s[n * step];
    size_t i = 0;
    while (i + 1 < n && s[(i + 1) * step] < want)
        i++;
    const double more = s[(i + 1) * step] - s[i * step];
    return (double)i + (more > 0 ? (want - s[i * step]) / more : 0.5);
}

void spx_psf_grid_sigma(const spx_psf_grid *g, size_t pos, size_t wave, double *sigma_x, double *sigma_y)
{
    const double low = 0.158655253931457; /* of a Gaussian, at -1 sigma */
    const double *s = g->sum + (pos * g->nwave + wave) * (g->my + 1) * (g->mx + 1);
    const double *last = s + g->my * (g->mx + 1);
    *sigma_x = 0.5 * (quantile(g->mx, last, 1, 1 - low) - quantile(g->mx, last, 1, low)) / g->oversample;
    s += g->mx;
    *sigma_y = 0.5 * (quantile(g->my, s, g->mx + 1, 1 - low) - quantile(g->my, s, g->mx + 1, low)) / g->oversample;
}
