/* Checks simulation and extraction together: the extracted flux is R times the true flux, within errors: pulls (flux -
 * R truth) sqrt(ivar) have mean 0 and standard deviation 1. Fixed seed. */
#include <math.h>
#include <string.h>

#include "at_centres.h"
#include "base/mem.h"
#include "check.h"
#include "extract/extract.h"
#include "products/frame.h"
#include "sim/sim.h"

enum { NSPEC = 10 };

int main(void)
{
    const double step = 0.1, wmin = 6000, wmax = 6240, dw = 0.8;
    spx_err e = {0};
    spx_psf psf = {0};
    spx_target target[NSPEC];
    spx_image image = {0};
    spx_frame frame = {0};
    spx_extract_counts counts;
    const spx_sim_ranges r = {.seed = 5,
                              .nsky = 2,
                              .teff = {4600, 6900},
                              .logg = {2, 5},
                              .feh = {-1.5, 0},
                              .v = {-200, 200},
                              .vsini = {0, 20},
                              .mag = {16.5, 18.5}};
    const spx_sim_noise noise = {
        .seed = 5, .camera = 'r', .photon_noise = 1, .readnoise = 3, .fullwell = 2e5, .cosmics = 30};
    if (spx_sim_psf('r', NSPEC, wmin, wmax, &psf, &e) != SPX_OK) {
        puts(spx_err_text(&e));
        return 1;
    }
    size_t n = spx_sim_grid_size(psf.wmin, psf.wmax, step), npix = psf.npix_x * psf.npix_y;
    double *w = spx_alloc(n, sizeof *w, &e), *flux = spx_alloc2(NSPEC, n, sizeof *flux, &e), norm[NSPEC];
    double *model = spx_alloc(npix, sizeof *model, &e);
    if (w == NULL || flux == NULL || model == NULL)
        return 1;
    spx_sim_grid(psf.wmin, step, n, w);
    spx_status st = spx_sim_draw(&r, NSPEC, target, &e);
    if (st == SPX_OK)
        st = spx_sim_stars(NSPEC, target, n, w, flux, norm, NULL, &e);
    if (st == SPX_OK)
        st = spx_sim_electrons(NSPEC, target, norm, 'r', 900, n, w, flux, &e);
    if (st == SPX_OK)
        st = spx_sim_project(&psf, NSPEC, NULL, n, w, flux, psf.npix_y, psf.npix_x, model, NULL, &e);
    if (st == SPX_OK)
        st = spx_sim_expose(psf.npix_y, psf.npix_x, model, &noise, &image, &e);
    spx_extract_options o = spx_extract_defaults();
    o.nspec = NSPEC;
    o.wmin = wmin;
    o.wmax = wmax;
    o.dw = dw;
    if (st == SPX_OK)
        st = spx_extract_patch_cpu(&image, &psf, &o, &frame, &counts, &e);
    CHECK(st == SPX_OK, "%s", spx_err_text(&e));
    if (st == SPX_OK) {
        const spx_arm *a = &frame.arm;
        size_t nb = a->nwave, nd = a->ndiag, good = 0;
        double *truth = spx_alloc(nb, sizeof *truth, &e), sum = 0, sum2 = 0;
        for (size_t s = 0; s < NSPEC && truth != NULL; s++) {
            at_centres(n, w, flux + s * n, wmin, dw, nb, truth);
            for (size_t i = 12; i + 12 < nb; i++) {
                double want = 0;
                for (size_t k = 0; k < nd; k++) { /* R[i][j], j = i + off */
                    size_t j = i + nd / 2 - k;
                    want += a->resolution[(s * nd + k) * nb + j] * truth[j];
                }
                if (frame.pixmask_fraction[s * nb + i] > 0)
                    continue;
                double pull = (a->flux[s * nb + i] - want) * sqrt(a->ivar[s * nb + i]);
                good++;
                sum += pull;
                sum2 += pull * pull;
            }
        }
        double mean = sum / (double)good, sd = sqrt(sum2 / (double)good);
        /* Five sigma of the sample. */
        CHECK(good > 1000, "only %zu good bins", good);
        CHECK(fabs(mean) < 5 / sqrt((double)good), "pulls have mean %g", mean);
        CHECK(fabs(sd - 1) < 5 / sqrt(2.0 * (double)good), "pulls have standard deviation %g", sd);
        spx_free(truth);
    }
    spx_frame_free(&frame);
    spx_image_free(&image);
    spx_psf_free(&psf);
    spx_free(w);
    spx_free(flux);
    spx_free(model);
    return failures != 0;
}
