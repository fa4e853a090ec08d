/* psf_shapes TRUTH.h5 FIT.h5 FIRST:LAST: prints how far the spots of a PSF, of any kind, are from those of another one
 * whose first fibres are its, at 41 wavelengths of each, after the change of place and flux that brings them closest:
 * rms over pixels above a tenth of the peak and the largest pixel, both by the peak, of all spots and of the worst one:
 *
 *     CORE CORE-WORST PIXEL-MEDIAN PIXEL-WORST     percent
 *
 * The window is that of the truth, the fit has a Gauss-Hermite PSF. -v: a line for each spot before it. Exit status 0,
 * or 1 with a message. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "calib/bordered.h"
#include "num/stat.h"
#include "products/psf_h5.h"
#include "psf/spot_math.h"

enum { PLACES = 41, STEPS = 3 };

/* What is left of a spot of p[1] in the window of that of p[0]; 0: there is none. */
static int compare(const spx_psf *p, size_t fibre, double wave, double *room, double *core, double *largest)
{
    static const int of[] = {SPX_SPOT_X, SPX_SPOT_Y};
    const size_t n = (size_t)spx_psf_nx(p) * (size_t)spx_psf_ny(p);
    double *truth = room, *diff = truth + n, *fit = diff + 2 * n, *work = fit + n, d[3] = {0}, peak = 0, sum = 0;
    spx_spot at, from;
    if (spx_psf_spot_diff(&p[0], fibre, wave, 2, of, work, truth, diff, &at) != SPX_SPOT_OK ||
        spx_psf_spot_place(&p[1], fibre, wave, &from) != SPX_SPOT_OK)
        return 0;
    d[0] = from.x - at.x;
    d[1] = from.y - at.y;
    for (int step = 0; step <= STEPS; step++) {
        const double *column[] = {diff, diff + n, truth};
        double m[9] = {0}, r[3] = {0};
        spx_spot moved = at;
        moved.x += d[0];
        moved.y += d[1];
        moved.dx += d[0];
        moved.dy += d[1];
        if (spx_psf_spot_pixels(&p[1], fibre, wave, &moved, work, fit) != SPX_SPOT_OK)
            return 0;
        for (size_t k = 0; k < n; k++) {
            fit[k] *= 1 + d[2];
            for (size_t i = 0; i < 3; i++) {
                r[i] += column[i][k] * (truth[k] - fit[k]);
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
    size_t ncore = 0;
    for (size_t k = 0; k < n; k++)
        peak = fmax(peak, truth[k]);
    *largest = 0;
    for (size_t k = 0; k < n; k++) {
        const double left = (fit[k] - truth[k]) / peak;
        *largest = fmax(*largest, fabs(left));
        if (truth[k] > 0.1 * peak) {
            sum += left * left;
            ncore++;
        }
    }
    *core = sqrt(sum / (double)(ncore > 0 ? ncore : 1));
    return 1;
}

int main(int argc, char **argv)
{
    spx_err e = {0};
    spx_psf p[2] = {{0}};
    const int loud = argc > 1 && strcmp(argv[1], "-v") == 0;
    double first, last, sum = 0, worst_core = 0, worst = 0, *room = NULL, *pixel = NULL;
    size_t work = 0, n = 0;
    argv += loud;
    int ok = argc - loud == 4 && sscanf(argv[3], "%lf:%lf", &first, &last) == 2;
    for (int i = 0; i < 2 && ok; i++) {
        const hid_t file = H5Fopen(argv[1 + i], H5F_ACC_RDONLY, H5P_DEFAULT);
        ok = file >= 0 && spx_psf_read(file, &p[i], &e) == SPX_OK && H5Fclose(file) >= 0;
    }
    ok = ok && p[1].nspec <= p[0].nspec && spx_psf_plain_spots(&p[1]);
    if (ok) {
        p[1].hsizex = p[0].hsizex;
        p[1].hsizey = p[0].hsizey;
        for (int i = 0; i < 2; i++)
            work = spx_psf_spot_work(&p[i]) > work ? spx_psf_spot_work(&p[i]) : work;
        room = spx_alloc(4 * (size_t)spx_psf_nx(&p[0]) * (size_t)spx_psf_ny(&p[0]) + work, sizeof *room, &e);
        pixel = spx_alloc(p[1].nspec * PLACES, sizeof *pixel, &e);
        ok = room != NULL && pixel != NULL;
    }
    for (size_t k = 0; ok && k < p[1].nspec * PLACES; k++) {
        const double wave = first + (last - first) * (double)(k % PLACES) / (PLACES - 1);
        double core;
        ok = compare(p, k / PLACES, wave, room, &core, &pixel[n]);
        if (!ok)
            break;
        if (loud)
            printf("%zu %.2f %.4f %.4f\n", k / PLACES, wave, 100 * core, 100 * pixel[n]);
        sum += core * core;
        worst_core = fmax(worst_core, core);
        worst = fmax(worst, pixel[n++]);
    }
    if (ok && n > 0)
        printf("%.4f %.4f %.4f %.4f\n", 100 * sqrt(sum / (double)n), 100 * worst_core, 100 * spx_median(pixel, n),
               100 * worst);
    else
        fprintf(stderr, "psf_shapes: cannot compare these PSFs there: %s\n", spx_err_text(&e));
    spx_free(room);
    spx_free(pixel);
    for (int i = 0; i < 2; i++)
        spx_psf_free(&p[i]);
    return !(ok && n > 0);
}
