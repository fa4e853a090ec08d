/* Checks cuts of setups: they equal the setup at the same wavelengths, and suffice for every velocity. */
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "check.h"
#include "num/wave.h"
#include "products/templates.h"
#include "products/templates_cut.h"

enum { NTEMP = 3, NWAVE = 4000, NCOMP = 2, NPIX = 50 };

static float lnflux[NTEMP * NWAVE], comp[NCOMP * NWAVE];
static double mean[NWAVE], wave[NPIX];

static void check_part(const spx_setup *s, const spx_setup *cut)
{
    const double at = (cut->lnwave0 - s->lnwave0) / s->dlnwave, first = floor(at + 0.5);
    const size_t i0 = (size_t)first;
    CHECK(fabs(at - first) < 1e-6 && cut->dlnwave == s->dlnwave && i0 + cut->nwave <= s->nwave);
    for (size_t i = 0; i < cut->nwave; i++) {
        for (size_t t = 0; t < NTEMP; t++)
            CHECK(cut->lnflux[t * cut->nwave + i] == lnflux[t * NWAVE + i0 + i]);
        for (size_t k = 0; k < NCOMP; k++)
            CHECK(cut->pca.comp[k * cut->nwave + i] == comp[k * NWAVE + i0 + i]);
        CHECK(cut->pca.mean[i] == mean[i0 + i]);
    }
}

/* Does the part reach over the arm, shifted by v and broadened? */
static int reaches(const spx_setup *cut, const spx_arm *arm, double v, double vsini)
{
    double lo = arm->wavelength[0], hi = arm->wavelength[NPIX - 1], last = (double)cut->nwave - 1;
    if (arm->medium != cut->medium) {
        lo = cut->medium == SPX_AIR ? spx_vacuum_to_air(lo) : spx_air_to_vacuum(lo);
        hi = cut->medium == SPX_AIR ? spx_vacuum_to_air(hi) : spx_air_to_vacuum(hi);
    }
    const double shift = -atanh(v / SPX_C_KMS), blur = vsini / SPX_C_KMS;
    return log(lo) + shift - blur > cut->lnwave0 + 15 * cut->dlnwave &&
           log(hi) + shift + blur < cut->lnwave0 + (last - 15) * cut->dlnwave;
}

int main(void)
{
    spx_setup s = {.medium = SPX_VACUUM,
                   .nwave = NWAVE,
                   .lnwave0 = log(5000),
                   .dlnwave = 1e-4,
                   .ntemp = NTEMP,
                   .lnflux = lnflux,
                   .pca = {.ncomp = NCOMP, .mean = mean, .comp = comp}};
    spx_arm arm = {.nwave = NPIX, .wavelength = wave, .medium = SPX_AIR};
    spx_setup cut;
    for (size_t i = 0; i < NTEMP * NWAVE; i++)
        lnflux[i] = (float)i;
    for (size_t i = 0; i < NCOMP * NWAVE; i++)
        comp[i] = -(float)i;
    for (size_t i = 0; i < NWAVE; i++)
        mean[i] = 0.5 * (double)i;
    for (int air = 0; air < 2; air++)
        for (double vmax = 0; vmax < 1500; vmax += 500) {
            arm.medium = air ? SPX_AIR : SPX_VACUUM;
            for (size_t i = 0; i < NPIX; i++)
                wave[i] = 6000 + (double)i;
            CHECK(spx_setup_cut(&s, &arm, -200, vmax, 300, &cut, &e) == SPX_OK && cut.nwave > 0);
            check_part(&s, &cut);
            CHECK(reaches(&cut, &arm, -200, 300) && reaches(&cut, &arm, vmax, 300));
            CHECK(cut.nwave < 400); /* and little more */
            spx_setup_cut_free(&cut);
        }
    /* at an end of the setup; half of it or more; elsewhere; without templates or components */
    for (size_t i = 0; i < NPIX; i++)
        wave[i] = 5010 + (double)i;
    CHECK(spx_setup_cut(&s, &arm, -1000, 1000, 500, &cut, &e) == SPX_OK && cut.nwave == 0); /* not reached */
    CHECK(spx_setup_cut(&s, &arm, -1000, 500, 500, &cut, &e) == SPX_OK && cut.nwave > 0 && cut.lnwave0 == s.lnwave0);
    check_part(&s, &cut);
    spx_setup_cut_free(&cut);
    for (size_t i = 0; i < NPIX; i++)
        wave[i] = 5200 + 25 * (double)i;
    CHECK(spx_setup_cut(&s, &arm, -1000, 1000, 500, &cut, &e) == SPX_OK && cut.nwave == 0);
    for (size_t i = 0; i < NPIX; i++)
        wave[i] = 9000 + (double)i;
    CHECK(spx_setup_cut(&s, &arm, -1000, 1000, 500, &cut, &e) == SPX_OK && cut.nwave == 0);
    for (size_t i = 0; i < NPIX; i++)
        wave[i] = 6000 + (double)i;
    s.pca = (spx_pca){0};
    CHECK(spx_setup_cut(&s, &arm, 0, 0, 0, &cut, &e) == SPX_OK && cut.nwave > 0 && cut.pca.mean == NULL);
    spx_setup_cut_free(&cut);
    s.lnflux = NULL;
    CHECK(spx_setup_cut(&s, &arm, 0, 0, 0, &cut, &e) == SPX_OK && cut.nwave > 0 && cut.lnflux == NULL);
    spx_setup_cut_free(&cut);
    return 0;
}
