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

spx_status spx_psffit_agree(const spx_psf *p, const spx_psf *a, const spx_psf *b, const spx_psffit *fit, size_t bundle,
                            spx_psffit_agreement *out, spx_err *e)
{
    const size_t n = pixels_of(p), more = spx_psf_spot_difference_room(p, a), work = spx_psf_spot_difference_room(p, b);
    double *first = spx_alloc(4 * n + (more > work ? more : work), sizeof *first, e), sum[3] = {0};
    size_t ncore = 0;
    *out = (spx_psffit_agreement){0};
    if (first == NULL)
        return SPX_EIO;
    double *second = first + 2 * n, *room = second + 2 * n;
    for (size_t i = 0; i < fit->nspec; i++) {
        const spx_psffit_fibre *f = &fit->fibre[i];
        if (f->bundle != (int32_t)bundle || (f->status & (SPX_PSF_DEAD | SPX_PSF_BUNDLE)) != 0)
            continue;
        for (size_t k = 0; k < PLACES; k++) {
            const double wave = f->valid_min + (f->valid_max - f->valid_min) * (double)k / (PLACES - 1);
            if (!spx_psf_spot_difference(p, a, i, wave, room, first, NULL) ||
                !spx_psf_spot_difference(p, b, i, wave, room, second, NULL))
                continue;
            for (size_t q = 0; q < n; q++)
                if (first[n + q] > SPX_PF_CORE) {
                    sum[0] += first[q] * second[q];
                    sum[1] += first[q] * first[q];
                    sum[2] += second[q] * second[q];
                    ncore++;
                }
        }
    }
    spx_free(first);
    if (ncore > 0) {
        out->common = sqrt(fmax(0, sum[0] / (double)ncore));
        out->alike = sum[0] / sqrt(fmax(sum[1] * sum[2], 1e-300));
    }
    return SPX_OK;
}
