/* frame_dense [--patch | --worst] IMAGE.h5 TOLERANCE FIRST,COUNT,WMIN,WMAX...: parts of an image, fibres FIRST ..
 * FIRST+COUNT-1 as a bundle of their own (FIRST a multiple of COUNT) and wavelengths WMIN .. WMAX, extracted as whole
 * traces and by dense algebra from the same equations. Exit status 1 where flux (in units of its error), inverse
 * variance (relative) or resolution differ by more than TOLERANCE, which is that of the extraction too. Prints for each
 * part its bins, those with masked pixels, and those that have lost more than half of their light.
 * --patch: against patches with a padding of 16 instead. Exit status 1 where the flux differs by more than 0.02 of its
 * error beside a border, or by more than TOLERANCE in the middle of a patch.
 * --worst: where patches with the reference programs' padding of 12 and groups of 5 fibres differ most from whole
 * traces, beside a border and in the middle of a patch, dense algebra says which of them is off: exit status 1 where it
 * is whole traces, by more than 1e-8 of the error. Prints by how much the patches are. */
#include <hdf5.h>
#include <stdlib.h>

#include "../kernels/extract_scene.h"
#include "products/image_h5.h"
#include "products/psf_h5.h"
#include "products/spectra.h"

static void patches(const scene *s, double limit, const char *what)
{
    result trace = extract(s, 0, what);
    difference d = from_patches(s, &trace, 16, 1);
    CHECK(d.border <= 2e-2 && d.middle <= limit, "%s: %g sigma at borders, %g in the middle", what, d.border, d.middle);
    printf("%s: %zu bins, %.2g sigma at borders, %.2g in the middle\n", what, d.bins, d.border, d.middle);
    spx_frame_free(&trace.frame);
    spx_frame_free(&d.patches.frame);
}

static void dense_part(scene *s, const char *what)
{
    s->o.wave_step = spx_extract_nwave(&s->o);
    compare(s, s->o.tolerance, what);
    result r = extract(s, 0, what);
    size_t some = 0, most = 0;
    for (size_t i = 0; r.status == SPX_OK && i < r.counts.nbin; i++) {
        some += r.frame.pixmask_fraction[i] > 0.01;
        most += r.frame.pixmask_fraction[i] > 0.5;
    }
    printf("%s: %zu bins, %zu with masked pixels, %zu masked by half\n", what, r.counts.nbin, some, most);
    spx_frame_free(&r.frame);
}

int main(int argc, char **argv)
{
    const int patch = argc > 1 && !strcmp(argv[1], "--patch"), worst = argc > 1 && !strcmp(argv[1], "--worst");
    argv += patch || worst;
    argc -= patch || worst;
    if (argc < 4)
        return 2;
    spx_err e = {0};
    scene s = {.psf = spx_alloc(1, sizeof *s.psf, &e), .o = spx_extract_trace_defaults()};
    hid_t file = H5Fopen(argv[1], H5F_ACC_RDONLY, H5P_DEFAULT);
    if (!s.psf || file < 0 || spx_image_read_pixels(file, NULL, &s.image, &e) != SPX_OK ||
        spx_psf_read(file, s.psf, &e) != SPX_OK) {
        (void)fprintf(stderr, "%s: %s\n", argv[1], spx_err_text(&e));
        return 3;
    }
    H5Fclose(file);
    s.o.dw = 0.8;
    const double limit = atof(argv[2]);
    if (!patch)
        s.o.tolerance = limit;
    for (int i = 3; i < argc; i++) {
        if (sscanf(argv[i], "%zu,%zu,%lf,%lf", &s.o.first, &s.o.nspec, &s.o.wmin, &s.o.wmax) != 4)
            return 2;
        s.o.bundle_size = s.o.nspec;
        if (worst) {
            const difference d = check_worst(&s, s.o.nspec / 5, argv[i]);
            printf("%s: patches are off by %.2g sigma beside a border, by %.2g in the middle\n", argv[i], d.border,
                   d.middle);
        } else if (patch)
            patches(&s, limit, argv[i]);
        else
            dense_part(&s, argv[i]);
    }
    free_scene(&s);
    return failures != 0;
}
