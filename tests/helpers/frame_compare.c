/* frame_compare [--long] FRAME REFERENCE: a frame against reference extractions of the same image (datasets flux, ivar,
 * resolution, pixmask_fraction, chi2pix and wavelength at the root, one row a fibre of the PSF).
 *
 * In every bin with pixmask_fraction below 0.99: flux within 1e-5 of its error, ivar within 1e-5 of itself, resolution
 * within 1e-6, their medians below 1e-10, chi2pix within 1e-8; pixmask_fraction within 1e-8 and finite values
 * everywhere. (Two ways of solving the same equations in double precision differ by some 1e-6 in the worst bin, beside
 * pixels that are masked, and by 1e-14 in half of them.)
 * --long: whole traces against long patches, in bins with pixmask_fraction below 0.3: flux within 1e-6, ivar and
 * resolution within 1e-8, pixmask_fraction within 1e-8; the reference has no chi2pix. Exit status 0: equal; 1: not, or
 * not readable. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "h5/file.h"
#include "h5/object.h"
#include "h5/read.h"
#include "num/stat.h"
#include "products/frame_h5.h"
#include "products/spectra.h"

typedef struct {
    size_t nspec, nwave, ndiag;
    double *wavelength, *flux, *ivar, *resolution, *fraction, *chi2pix;
} reference;

static spx_status read_reference(hid_t file, reference *r, spx_err *e)
{
    size_t dims[3] = {0, 0, 0};
    spx_status st = spx_h5_read_f64(file, "/resolution", 3, dims, &r->resolution, e);
    size_t d2[2] = {dims[0], dims[2]}, d1[1] = {dims[2]};
    r->nspec = dims[0];
    r->ndiag = dims[1];
    r->nwave = dims[2];
    if (st == SPX_OK && (st = spx_h5_read_f64(file, "/flux", 2, d2, &r->flux, e)) == SPX_OK &&
        (st = spx_h5_read_f64(file, "/ivar", 2, d2, &r->ivar, e)) == SPX_OK &&
        (st = spx_h5_read_f64(file, "/pixmask_fraction", 2, d2, &r->fraction, e)) == SPX_OK &&
        (!spx_h5_exists(file, "/chi2pix") || (st = spx_h5_read_f64(file, "/chi2pix", 2, d2, &r->chi2pix, e)) == SPX_OK))
        st = spx_h5_read_f64(file, "/wavelength", 1, d1, &r->wavelength, e);
    return st;
}

enum { FLUX, IVAR, RESOLUTION, CHI2PIX, FRACTION, NKIND };

static const char *const names[NKIND] = {"flux (sigma)", "ivar (relative)", "resolution", "chi2pix",
                                         "pixmask_fraction"};

typedef struct {
    double wavelength;                  /* Angstrom */
    double fraction;                    /* bins with a pixmask_fraction below it count */
    double worst[NKIND], median[NKIND]; /* limits; median 0: none */
} limits;

static const limits same = {0.0, 0.99, {1e-5, 1e-5, 1e-6, 1e-8, 1e-8}, {1e-10, 1e-10, 1e-10, 0, 0}};
static const limits seamless = {1e-9, 0.3, {1e-6, 1e-8, 1e-8, 0, 1e-8}, {0}};

/* Differences of bin k of row f from row g of the reference. Returns 0 when a value is not finite. */
static int differences(const spx_frame *a, size_t f, const reference *b, size_t g, size_t k, double d[NKIND])
{
    const size_t at = f * a->arm.nwave + k, to = g * b->nwave + k;
    d[FLUX] = fabs(a->arm.flux[at] - b->flux[to]) * sqrt(b->ivar[to]);
    d[IVAR] = fabs(a->arm.ivar[at] / b->ivar[to] - 1.0);
    d[CHI2PIX] = b->chi2pix ? fabs(a->chi2pix[at] - b->chi2pix[to]) : 0.0;
    d[FRACTION] = fabs(a->pixmask_fraction[at] - b->fraction[to]);
    d[RESOLUTION] = 0.0;
    int finite = isfinite(a->arm.flux[at]) && isfinite(a->arm.ivar[at]) && isfinite(a->chi2pix[at]) &&
                 isfinite(a->pixmask_fraction[at]);
    for (size_t diag = 0; diag < b->ndiag; diag++) {
        double r = a->arm.resolution[(f * b->ndiag + diag) * b->nwave + k];
        d[RESOLUTION] = fmax(d[RESOLUTION], fabs(r - b->resolution[(g * b->ndiag + diag) * b->nwave + k]));
        finite &= isfinite(r) != 0;
    }
    return finite;
}

static int compare(const spx_frame *a, const reference *b, const limits *limit, double *value[NKIND])
{
    size_t n = 0, not_finite = 0;
    double worst[NKIND] = {0}, d[NKIND];
    int ok = 1;
    for (size_t k = 0; k < b->nwave; k++)
        if (fabs(a->arm.wavelength[k] - b->wavelength[k]) > limit->wavelength) {
            printf("wavelength %zu: %.17g instead of %.17g\n", k, a->arm.wavelength[k], b->wavelength[k]);
            return 0;
        }
    for (size_t f = 0; f < a->nspec; f++)
        for (size_t k = 0; k < b->nwave; k++) {
            size_t g = (size_t)a->fiber[f];
            not_finite += !differences(a, f, b, g, k, d);
            worst[FRACTION] = fmax(worst[FRACTION], d[FRACTION]);
            if (!(b->fraction[g * b->nwave + k] < limit->fraction))
                continue;
            for (int kind = 0; kind < NKIND; kind++) {
                worst[kind] = fmax(worst[kind], d[kind]);
                value[kind][n] = d[kind];
            }
            n++;
        }
    for (int kind = 0; kind < NKIND; kind++) {
        double median = spx_median(value[kind], n);
        int good = worst[kind] <= limit->worst[kind] && (limit->median[kind] == 0 || median < limit->median[kind]);
        printf("%-16s worst %.2g (limit %.0g), median %.2g%s\n", names[kind], worst[kind], limit->worst[kind], median,
               good ? "" : "  TOO LARGE");
        ok &= good;
    }
    printf("%zu bins compared, %zu not finite\n", n, not_finite);
    return ok && n > 0 && not_finite == 0;
}

int main(int argc, char **argv)
{
    spx_input in[2] = {{.file = H5I_INVALID_HID}, {.file = H5I_INVALID_HID}};
    spx_frame frame = {0};
    reference ref = {0};
    spx_err e = {0};
    double *value[NKIND] = {NULL};
    int equal = 0;
    const limits *limit = &same;
    if (argc == 4 && strcmp(argv[1], "--long") == 0) {
        limit = &seamless;
        argv++;
        argc--;
    }
    if (argc != 3) {
        puts("usage: frame_compare [--long] FRAME REFERENCE");
        return 1;
    }
    spx_status st = spx_input_open(&in[0], argv[1], &e);
    if (st == SPX_OK && (st = spx_input_open(&in[1], argv[2], &e)) == SPX_OK &&
        (st = spx_frame_read(in[0].file, &frame, &e)) == SPX_OK)
        st = read_reference(in[1].file, &ref, &e);
    int last = frame.nspec > 0 && frame.fiber != NULL ? frame.fiber[frame.nspec - 1] : -1;
    if (st == SPX_OK && (frame.arm.nwave != ref.nwave || frame.arm.ndiag != ref.ndiag || last < 0 ||
                         (size_t)last >= ref.nspec || frame.chi2pix == NULL || frame.pixmask_fraction == NULL))
        st = spx_fail(&e, SPX_EINPUT,
                      "%zu x %zu x %zu values with fibres up to %d, but the reference has %zu x %zu x %zu", frame.nspec,
                      frame.arm.ndiag, frame.arm.nwave, last, ref.nspec, ref.ndiag, ref.nwave);
    for (int kind = 0; kind < NKIND && st == SPX_OK; kind++)
        if ((value[kind] = spx_alloc2(frame.nspec, frame.arm.nwave, sizeof(double), &e)) == NULL)
            st = SPX_EIO;
    if (st == SPX_OK)
        equal = compare(&frame, &ref, limit, value);
    else
        printf("%s\n", spx_err_text(&e));
    for (int kind = 0; kind < NKIND; kind++)
        spx_free(value[kind]);
    spx_frame_free(&frame);
    spx_free(ref.wavelength);
    spx_free(ref.flux);
    spx_free(ref.ivar);
    spx_free(ref.resolution);
    spx_free(ref.fraction);
    spx_free(ref.chi2pix);
    for (int k = 0; k < 2; k++)
        spx_input_close(&in[k]);
    return !equal;
}
