/* psf_places A.h5 B.h5 FIRST:LAST: prints the largest distance (pixels) between the centres of light of the spots of
 * two PSFs of the same fibres, at 41 wavelengths of each. Their traces may differ by more: GH-1-0 and GH-0-1 undo that.
 * The windows should be of the same size. Exit status 0, or 1 with a message. */
#include <math.h>
#include <stdio.h>

#include "base/mem.h"
#include "products/psf_h5.h"
#include "spot_centre.h"

int main(int argc, char **argv)
{
    enum { PLACES = 41 };
    spx_err e = {0};
    spx_psf p[2] = {{0}};
    double *room[2] = {NULL}, first, last, far = 0;
    int ok = argc == 4 && sscanf(argv[3], "%lf:%lf", &first, &last) == 2;
    for (int i = 0; i < 2 && ok; i++) {
        const hid_t file = H5Fopen(argv[1 + i], H5F_ACC_RDONLY, H5P_DEFAULT);
        ok = file >= 0 && spx_psf_read(file, &p[i], &e) == SPX_OK && H5Fclose(file) >= 0;
        const size_t npix = ok ? (size_t)spx_psf_nx(&p[i]) * (size_t)spx_psf_ny(&p[i]) : 0;
        ok = ok && (room[i] = spx_alloc(spx_psf_spot_work(&p[i]) + npix, sizeof *room[i], &e)) != NULL;
    }
    ok = ok && p[0].nspec == p[1].nspec;
    for (size_t k = 0; ok && k < p[0].nspec * PLACES; k++) {
        const double lambda = first + (last - first) * (double)(k % PLACES) / (PLACES - 1);
        double at[2][2];
        for (int i = 0; i < 2 && ok; i++)
            ok = spot_centre(&p[i], k / PLACES, lambda, room[i], at[i]);
        far = ok ? fmax(far, hypot(at[0][0] - at[1][0], at[0][1] - at[1][1])) : far;
    }
    if (ok)
        printf("%.6f\n", far);
    else
        fprintf(stderr, "psf_places: cannot compare these PSFs there: %s\n", spx_err_text(&e));
    for (int i = 0; i < 2; i++) {
        spx_psf_free(&p[i]);
        spx_free(room[i]);
    }
    return !ok;
}
