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
#include "num/stat.h"
#include "products/psf_h5.h"
#include "psf/psf_math.h"
#include "psffit/compare.h"

enum { PLACES = 41 };

/* What is left of a spot of p[1] in the window of that of p[0]; 0: there is none. */
static int compare(const spx_psf *p, size_t fibre, double wave, double *room, double *core, double *largest)
{
    const size_t n = (size_t)spx_psf_nx(&p[0]) * (size_t)spx_psf_ny(&p[0]);
    const double *left = room, *truth = room + n;
    double sum = 0;
    size_t ncore = 0;
    if (!spx_psf_spot_difference(&p[0], &p[1], fibre, wave, room + 2 * n, room, NULL))
        return 0;
    *largest = 0;
    for (size_t k = 0; k < n; k++) {
        *largest = fmax(*largest, fabs(left[k]));
        if (truth[k] > 0.1) {
            sum += left[k] * left[k];
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
    size_t n = 0;
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
        room = spx_alloc(2 * (size_t)spx_psf_nx(&p[0]) * (size_t)spx_psf_ny(&p[0]) +
                             spx_psf_spot_difference_room(&p[0], &p[1]),
                         sizeof *room, &e);
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
