/* Differences of spots (psffit/compare.h). */
#include "psffit/compare.h"

#include <math.h>

#include "base/mem.h"
#include "calib/bordered.h"
#include "psf/spot_math.h"
#include "psffit/step_math.h"

/* Gauss-Newton steps of place and flux; wavelengths of a fibre. */
enum { STEPS = 3, PLACES = 21 };

static size_t pixels_of(const spx_psf *p)
{
    return (size_t)spx_psf_nx(p) * (size_t)spx_psf_ny(p);
}

size_t spx_psf_spot_difference_room(const spx_psf *of, const spx_psf *other)
{
    const size_t a = spx_psf_spot_work(of), b = spx_psf_spot_work(other);
    return 2 * pixels_of(of) + (a > b ? a : b);
}

int spx_psf_spot_difference(const spx_psf *of, const spx_psf *other, size_t fibre, double wave, double *room,
                            double *out, double *change)
{
    static const int what[] = {SPX_SPOT_X, SPX_SPOT_Y};
    const size_t n = pixels_of(of);
    double *left = out, *spot = out + n, *diff = room, *work = diff + 2 * n, d[3] = {0}, peak = 0;
    spx_spot at, from;
    if (spx_psf_spot_diff(of, fibre, wave, 2, what, work, spot, diff, &at) != SPX_SPOT_OK ||
        spx_psf_spot_place(other, fibre, wave, &from) != SPX_SPOT_OK)
        return 0;
    d[0] = from.x - at.x;
    d[1] = from.y - at.y;
    for (int step = 0; step <= STEPS; step++) {
        const double *column[] = {diff, diff + n, spot};
        double m[9] = {0}, r[3] = {0};
        spx_spot moved = at;
        moved.x += d[0];
        moved.y += d[1];
        moved.dx += d[0];
        moved.dy += d[1];
        if (spx_psf_spot_pixels(other, fibre, wave, &moved, work, left) != SPX_SPOT_OK)
            return 0;
        for (size_t k = 0; k < n; k++) {
            left[k] *= 1 + d[2];
            for (size_t i = 0; i < 3; i++) {
                r[i] += column[i][k] * (spot[k] - left[k]);
                for (size_t j = 0; j < 3; j++)
                    m[i * 3 + j] += column[i][k] * column[j][k];
            }
        }
        if (step == STEPS)
            break;
        if (!spx_small_factor(3, m))
            return 0;
        spx_small_solve(3, m, r);
        for (size_t i = 0; i < 3; i++)
            d[i] += r[i];
    }
    for (int q = 0; q < 2 && change != NULL; q++)
        change[q] = d[q] - (q == 0 ? from.x - at.x : from.y - at.y);
    for (size_t k = 0; k < n; k++)
        peak = fmax(peak, spot[k]);
    for (size_t k = 0; k < n; k++) {
        left[k] = (left[k] - spot[k]) / peak;
        spot[k] /= peak;
    }
    return peak > 0;
}

/* Adds a spot's differences from that of p, left[4][2 npix] of fit[kind][half], to the sums; the last three are for
 * noise that is that of photons. */
static size_t add_spot(size_t n, const double *left, double sum[6])
{
    const double *peak = left + n;
    size_t ncore = 0;
    for (size_t q = 0; q < n; q++) {
        if (!(peak[q] > SPX_PF_CORE))
            continue;
        const double a[2] = {left[q], left[2 * n + q]}, b[2] = {left[4 * n + q], left[6 * n + q]};
        const double first = b[0] - a[0], second = b[1] - a[1];
        sum[0] += first * second;
        sum[1] += (a[0] - a[1]) * (a[0] - a[1]);
        sum[2] += (b[0] - b[1]) * (b[0] - b[1]);
        sum[3] += (a[0] - a[1]) * (a[0] - a[1]) / peak[q];
        sum[4] += (b[0] - b[1]) * (b[0] - b[1]) / peak[q];
        sum[5] += peak[q];
        ncore++;
    }
    return ncore;
}

spx_status spx_psffit_agree(const spx_psf *p, spx_psf *const fit[2][2], const spx_psffit *of, size_t bundle,
                            spx_psffit_agreement *out, spx_err *e)
{
    const size_t n = pixels_of(p);
    size_t more = 0, ncore = 0;
    for (size_t k = 0; k < 4; k++) {
        const size_t room = spx_psf_spot_difference_room(p, fit[k / 2][k % 2]);
        more = room > more ? room : more;
    }
    double *left = spx_alloc(8 * n + more, sizeof *left, e), sum[6] = {0};
    *out = (spx_psffit_agreement){0};
    if (left == NULL)
        return SPX_EIO;
    for (size_t i = 0; i < of->nspec; i++) {
        const spx_psffit_fibre *f = &of->fibre[i];
        if (f->bundle != (int32_t)bundle || (f->status & (SPX_PSF_DEAD | SPX_PSF_BUNDLE)) != 0)
            continue;
        for (size_t k = 0; k < PLACES; k++) {
            const double wave = f->valid_min + (f->valid_max - f->valid_min) * (double)k / (PLACES - 1);
            int ok = 1;
            for (size_t m = 0; m < 4 && ok; m++)
                ok = spx_psf_spot_difference(p, fit[m / 2][m % 2], i, wave, left + 8 * n, left + 2 * m * n, NULL);
            ncore += ok ? add_spot(n, left, sum) : 0;
        }
    }
    spx_free(left);
    if (ncore > 0) {
        out->gain = sum[0] / (double)ncore;
        /* of halves half their square, of all half of that */
        out->noise[0] = sum[1] / (4 * (double)ncore);
        out->noise[1] = sum[2] / (4 * (double)ncore);
        out->of_light[0] = sum[3] / (4 * sum[5]);
        out->of_light[1] = sum[4] / (4 * sum[5]);
    }
    return SPX_OK;
}
