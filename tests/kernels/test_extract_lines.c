/* Extraction with lines between bins: fibres with and without a bright star see the same line, whatever their
 * throughputs, where without it the star's does not; with the model image, hits that reject looks for, any number of
 * threads, fibres alone; and nothing changes where there is no line. */
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "check.h"
#include "extract/extract.h"
#include "extract_bright.h"
#include "psf/psf_math.h"
#include "psf/spot_math.h"

enum { BUNDLE = 6 };

static const scene lit = {.first = 6200, .last = 6400, .beyond = 50, .faint = 100, .ratio = 300};
static const double line = 6302.05, electrons = 9000;

/* Electrons of the line in a fibre: throughputs that differ. */
static double strength(size_t fibre)
{
    return electrons * (1 + 0.1 * cos(2.3 * (double)fibre));
}

/* Spectra with the line, `much` of it, without noise. */
static void expose(const spx_psf *p, double much, spx_image *image)
{
    spx_err e = {0};
    const int nx = spx_psf_nx(p), ny = spx_psf_ny(p);
    double *model = project(&lit, p), *work = spx_alloc(spx_psf_spot_work(p), sizeof *work, NULL),
           *spot = spx_alloc2((size_t)nx, (size_t)ny, sizeof *spot, NULL);
    for (size_t i = 0; i < NFIBRE; i++) {
        spx_spot at;
        CHECK(spx_psf_spot(p, i, line, work, spot, &at) == SPX_SPOT_OK, "fibre %zu has no line", i);
        for (int r = 0; r < ny; r++)
            for (int c = 0; c < nx; c++)
                model[(size_t)(at.yc + r) * p->npix_x + (size_t)(at.xc + c)] += much * strength(i) * spot[r * nx + c];
    }
    const spx_sim_noise noise = {.seed = 7, .camera = 'r', .readnoise = 3, .fullwell = 1e9};
    spx_image_free(image);
    CHECK(spx_sim_expose(p->npix_y, p->npix_x, model, &noise, image, &e) == SPX_OK, "%s", spx_err_text(&e));
    spx_free(model);
    spx_free(work);
    spx_free(spot);
}

/* Largest difference of a fibre's flux from R (star + line), in errors, within 8 bins of the line. */
static double off(const spx_frame *f, size_t fibre)
{
    const size_t nw = f->arm.nwave, nd = f->arm.ndiag;
    const double step = f->arm.wavelength[1] - f->arm.wavelength[0];
    double *s = spx_alloc(nw, sizeof *s, NULL), most = 0;
    /* the line on the grid of bins: polynomial through eight of them, by barycentric weights (-1)^a binomial(7, a) */
    const double u = (line - f->arm.wavelength[0]) / step, binomial[] = {1, 7, 21, 35, 35, 21, 7, 1};
    const size_t first = (size_t)u - 3;
    double sum = 0;
    for (size_t a = 0; a < 8; a++)
        sum += s[first + a] = (a % 2 ? -1 : 1) * binomial[a] / (u - (double)(first + a));
    for (size_t a = 0; a < 8; a++)
        s[first + a] *= strength(fibre) / step / sum;
    for (size_t k = 0; k < nw; k++) {
        double seen = 0;
        for (size_t b = 0; b < nd; b++) {
            const size_t j = k + b - nd / 2; /* data[b][j] = R[j - off_b][j], off_b = nd/2 - b */
            if (j < nw)
                seen += f->arm.resolution[(fibre * nd + (nd - 1 - b)) * nw + j] * (s[j] + truth(&lit, fibre));
        }
        if (fabs(f->arm.wavelength[k] - line) < 8 * step)
            most = fmax(most, fabs(f->arm.flux[fibre * nw + k] - seen) * sqrt(f->arm.ivar[fibre * nw + k]));
    }
    spx_free(s);
    return most;
}

/* Mean chi squared of a fibre's bins around the line. */
static double chi2(const spx_frame *f, size_t fibre)
{
    const size_t nw = f->arm.nwave;
    double sum = 0;
    for (size_t k = 0; k < nw; k++)
        sum += fabs(f->arm.wavelength[k] - line) < 3 ? f->chi2pix[fibre * nw + k] / 7 : 0;
    return sum;
}

int main(void)
{
    spx_psf p;
    spx_image image = {0};
    spx_extract_counts counts;
    spx_err e = {0};
    camera(&lit, 0, 2.2, &p);
    spx_extract_options o = options(&lit, BUNDLE, 0);
    o.psf_error = 0;
    expose(&p, 1, &image);
    spx_frame plain = extract(&image, &p, &o, &counts);
    const double before = off(&plain, BRIGHT), misfit = chi2(&plain, BRIGHT);
    CHECK(before > 0.7 && counts.nline == 0, "without it the star's line is off by %g only", before);

    o.line = &line;
    o.nline = 1;
    spx_frame f = extract(&image, &p, &o, &counts);
    for (size_t i = 0; i < NFIBRE; i++) /* strengths of the fibres but the star's are known to 1 %, its own to 10 % */
        CHECK(off(&f, i) < 0.15, "fibre %zu: the line is off by %g errors, %g before", i, off(&f, i), off(&plain, i));
    CHECK(chi2(&f, 2) < 0.1 * chi2(&plain, 2) && chi2(&f, BRIGHT) < 0.3 * misfit,
          "chi squared of fibres %g, %g, before %g, %g", chi2(&f, 2), chi2(&f, BRIGHT), chi2(&plain, 2), misfit);
    CHECK(counts.nline == 1 && fabs(counts.line_light / electrons - 1) < 0.1, "%zu lines of %g electrons", counts.nline,
          counts.line_light);
    CHECK(memcmp(f.arm.resolution, plain.arm.resolution, NFIBRE * f.arm.ndiag * f.arm.nwave * sizeof(double)) == 0 &&
              memcmp(f.arm.ivar, plain.arm.ivar, NFIBRE * f.arm.nwave * sizeof(double)) == 0,
          "resolution or errors change");
    check_same(&image, &p, o, &f);

    /* barycentric wavelengths: those of the PSF, which are the line's times a factor */
    double factor[NFIBRE];
    const double ground = line / 1.0001;
    for (size_t i = 0; i < NFIBRE; i++)
        factor[i] = 1.0001;
    o.line = &ground;
    o.line_factor = factor;
    spx_frame again = extract(&image, &p, &o, &counts);
    CHECK(off(&again, BRIGHT) < 0.15, "barycentric: the line is off by %g", off(&again, BRIGHT));
    spx_frame_free(&again);
    o.line = &line;
    o.line_factor = NULL;

    /* with hits looked for: the line is none */
    size_t rejected[2];
    o.reject = 5;
    for (o.nline = 0; o.nline < 2; o.nline++) {
        again = extract(&image, &p, &o, &counts);
        rejected[o.nline] = counts.npix_rejected;
        CHECK(o.nline == 0 || off(&again, BRIGHT) < 0.15, "with reject: %g", off(&again, BRIGHT));
        spx_frame_free(&again);
    }
    CHECK(rejected[1] <= rejected[0], "%zu pixels rejected, %zu without", rejected[1], rejected[0]);
    o.nline = 1;
    o.reject = 0;
    spx_frame_free(&f);
    spx_frame_free(&plain);

    /* nothing changes where there is no line, or where it is beyond the grid */
    expose(&p, 0, &image);
    f = extract(&image, &p, &o, &counts);
    o.nline = 0;
    plain = extract(&image, &p, &o, &counts);
    double most = 0;
    for (size_t i = 0; i < NFIBRE * f.arm.nwave; i++)
        most = fmax(most, fabs(f.arm.flux[i] - plain.arm.flux[i]) * sqrt(f.arm.ivar[i]));
    CHECK(most < 1e-4, "where there is no line fluxes change by %g errors", most);
    spx_frame_free(&f);
    o.nline = 1;
    const double beyond = 7000;
    o.line = &beyond;
    f = extract(&image, &p, &o, &counts);
    CHECK(counts.nline == 0 && same(&f, 0, &plain), "a line beyond the grid");
    spx_frame_free(&f);
    spx_frame_free(&plain);

    /* options that make no sense */
    const double none = -1;
    o.nline = 1;
    o.line = &none;
    CHECK(spx_extract_trace_cpu(&image, &p, &o, &f, &counts, &e) == SPX_EUSAGE && strstr(spx_err_text(&e), "-1"),
          "a negative wavelength: %s", spx_err_text(&e));
    o.line = &line;
    o.method = SPX_METHOD_PATCH;
    CHECK(spx_extract_patch_cpu(&image, &p, &o, &f, &counts, &e) == SPX_EUSAGE && strstr(spx_err_text(&e), "lines"),
          "patches: %s", spx_err_text(&e));
    spx_image_free(&image);
    spx_psf_free(&p);
    return failures != 0;
}
