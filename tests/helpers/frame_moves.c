/* frame_moves A.h5 B.h5: two extractions of the same image with different PSFs, by what A has beyond B: differences of
 * flux, of resolution, and the shift of the spectra as a velocity, whose noise is that of both and cancels. Prints
 *
 *     FLUX% SIGMA VELOCITY RMS WORST R% R%WORST
 *
 * rms differences of flux by the median flux of the fibre (%) and by its error; mean, rms between fibres and largest
 * velocity (km/s); rms and largest difference of resolution by its peak in a bin (%), of bins with half the ivar of the
 * fibre or more. -v: before it a line for each fibre, its number, how much more light A has in all bins (%), and its
 * velocity. Status 1: not comparable. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "num/stat.h"
#include "products/frame_h5.h"

#define KMS 299792.458

/* Velocity of a - b: f_a = f_b - (v / c) lambda df/dlambda, least squares by ivar; slopes by differences. */
static double velocity(const spx_arm *a, const spx_arm *b, size_t first)
{
    double up = 0, down = 0;
    for (size_t k = 1; k + 1 < b->nwave; k++) {
        const size_t at = first + k;
        if (!(a->ivar[at] > 0 && b->ivar[at - 1] > 0 && b->ivar[at] > 0 && b->ivar[at + 1] > 0))
            continue;
        const double slope = (b->flux[at + 1] - b->flux[at - 1]) / (b->wavelength[k + 1] - b->wavelength[k - 1]);
        const double by = -b->wavelength[k] * slope / KMS;
        up += b->ivar[at] * by * (a->flux[at] - b->flux[at]);
        down += b->ivar[at] * by * by;
    }
    return down > 0 ? up / down : NAN;
}

/* Element of diagonal q of n, of which a frame may have only those in the middle. */
static double diagonal(const spx_arm *a, size_t fibre, size_t q, size_t n, size_t bin)
{
    const size_t out = (n - a->ndiag) / 2;
    return q < out || q >= out + a->ndiag ? 0 : a->resolution[(fibre * a->ndiag + q - out) * a->nwave + bin];
}

int main(int argc, char **argv)
{
    spx_frame f[2] = {{0}};
    spx_err e = {0};
    const int loud = argc > 1 && strcmp(argv[1], "-v") == 0;
    argv += loud;
    int ok = argc - loud == 3;
    for (int i = 0; i < 2 && ok; i++) {
        const hid_t file = H5Fopen(argv[1 + i], H5F_ACC_RDONLY, H5P_DEFAULT);
        ok = file >= 0 && spx_frame_read(file, &f[i], &e) == SPX_OK && H5Fclose(file) >= 0;
    }
    const spx_arm *a = &f[0].arm, *b = &f[1].arm;
    ok = ok && f[0].nspec == f[1].nspec && a->nwave == b->nwave && a->nwave > 2 && a->resolution != NULL &&
         b->resolution != NULL;
    const size_t most_diag = a->ndiag > b->ndiag ? a->ndiag : b->ndiag;
    double *some = ok ? spx_alloc(b->nwave, sizeof *some, &e) : NULL;
    double percent = 0, sigma = 0, mean = 0, rms = 0, worst = 0, r = 0, r_worst = 0, n = 0, nr = 0;
    ok = ok && some != NULL;
    for (size_t i = 0; ok && i < f[0].nspec; i++) {
        const size_t first = i * b->nwave;
        for (size_t k = 0; k < b->nwave; k++)
            some[k] = b->flux[first + k];
        const double level = spx_median(some, b->nwave);
        for (size_t k = 0; k < b->nwave; k++)
            some[k] = b->ivar[first + k];
        const double known = spx_median(some, b->nwave), v = velocity(a, b, first);
        ok = isfinite(v) && level > 0;
        double sum[2] = {0, 0};
        mean += v / (double)f[0].nspec;
        rms += v * v / (double)f[0].nspec;
        worst = fmax(worst, fabs(v));
        for (size_t k = 0; k < b->nwave; k++) {
            const double d = a->flux[first + k] - b->flux[first + k];
            double peak = 0, most = 0, square = 0;
            if (!(a->ivar[first + k] > 0 && b->ivar[first + k] > 0))
                continue;
            n++;
            sum[0] += a->flux[first + k];
            sum[1] += b->flux[first + k];
            percent += d * d / (level * level);
            sigma += d * d * b->ivar[first + k];
            for (size_t q = 0; q < most_diag; q++) {
                const double of[2] = {diagonal(a, i, q, most_diag, k), diagonal(b, i, q, most_diag, k)};
                const double off = of[0] - of[1];
                peak = fmax(peak, of[1]);
                most = fmax(most, fabs(off));
                square += off * off;
            }
            if (!(peak > 0 && b->ivar[first + k] >= 0.5 * known))
                continue;
            r += square / (peak * peak);
            nr += (double)most_diag;
            r_worst = fmax(r_worst, most / peak);
        }
        if (loud)
            printf("%zu %+.4f %+.4f\n", i, 100 * (sum[0] / sum[1] - 1), v);
    }
    if (ok && nr > 0)
        printf("%.4f %.4f %+.4f %.4f %.4f %.4f %.3f\n", 100 * sqrt(percent / n), sqrt(sigma / n), mean, sqrt(rms),
               worst, 100 * sqrt(r / nr), 100 * r_worst);
    else
        fprintf(stderr, "frame_moves: not two extractions of the same image: %s\n", spx_err_text(&e));
    spx_free(some);
    spx_frame_free(&f[0]);
    spx_frame_free(&f[1]);
    return !(ok && nr > 0);
}
