/* Extraction, trace method: against dense algebra on small frames, and the properties that every method must have. */
#include <lapacke.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "extract/extract_trace_impl.h"
#include "psf/psf_math.h"
#include "sim/sim.h"
#include "small_psf.h"

static int failures;

#define CHECK(ok, ...)                                                                                                 \
    do {                                                                                                               \
        if (!(ok)) {                                                                                                   \
            printf("%s:%d: ", __FILE__, __LINE__);                                                                     \
            printf(__VA_ARGS__);                                                                                       \
            puts("");                                                                                                  \
            failures++;                                                                                                \
        }                                                                                                              \
    } while (0)

/* ---- made-up frames ---- */

static const uint64_t seed = 20250117u;

typedef struct {
    spx_psf *psf;
    spx_image image;
    spx_extract_options o;
} scene;

/* Electrons per Angstrom of fibre f: continuum with lines, fibres of very different brightness. */
static double truth(size_t f, double wavelength)
{
    double line = 0.0;
    for (double at = 5003.7; at < 5100.0; at += 9.3)
        line += 900.0 * exp(-0.5 * (wavelength - at) * (wavelength - at) / 4.0);
    return 30.0 + 40.0 * (double)(f % 5) + line;
}

/* Exposure of the fibres of a PSF, 20 Angstrom more than wmin..wmax at both ends. */
static scene make_scene(spx_psf *psf, size_t ny, size_t nx, double wmin, double wmax, double dw)
{
    scene s = {.psf = psf, .o = spx_extract_trace_defaults()};
    CHECK(psf, "memory");
    if (!psf)
        return s;
    s.o.nspec = psf->nspec;
    s.o.wmin = wmin;
    s.o.wmax = wmax;
    s.o.dw = dw;
    s.o.wave_pad = 12;
    s.o.bundle_size = 4;
    s.o.sub_bundles = 1;
    s.o.wave_step = spx_extract_nwave(&s.o);
    s.o.nthreads = 1;
    const size_t nwave = (size_t)((wmax - wmin + 40.0) / 0.25);
    double *wave = spx_alloc(nwave, sizeof *wave, NULL), *flux = spx_alloc2(psf->nspec, nwave, sizeof *flux, NULL);
    double *model = spx_alloc2(ny, nx, sizeof *model, NULL);
    spx_err e = {0};
    if (wave && flux && model) {
        spx_sim_grid(wmin - 20.0, 0.25, nwave, wave);
        for (size_t f = 0; f < psf->nspec; f++)
            for (size_t k = 0; k < nwave; k++)
                flux[f * nwave + k] = truth(f, 5000.0 + fmod(wave[k], 100.0));
        spx_sim_noise noise = {.seed = seed, .camera = 'r', .photon_noise = 1, .readnoise = 3.0, .fullwell = 1e6};
        CHECK(spx_sim_project(psf, psf->nspec, NULL, nwave, wave, flux, ny, nx, model, NULL, &e) == SPX_OK &&
                  spx_sim_expose(ny, nx, model, &noise, &s.image, &e) == SPX_OK,
              "%s", e.msg);
    }
    spx_free(wave);
    spx_free(flux);
    spx_free(model);
    return s;
}

/* Bins of 1.4 pixels, as surveys have them. */
#define STEP 1.5

static scene make_small(const small_psf_shape *shape)
{
    return make_scene(small_psf(shape), 90, 60, shape->wmin, shape->wmax, STEP);
}

static void free_scene(scene *s)
{
    if (s->psf)
        spx_psf_free(s->psf);
    spx_free(s->psf);
    spx_image_free(&s->image);
}

typedef struct {
    spx_frame frame;
    spx_extract_counts counts;
    spx_status status;
    spx_err e;
} result;

static int all_finite(size_t n, const double *v)
{
    for (size_t k = 0; k < n; k++)
        if (!isfinite(v[k]))
            return 0;
    return 1;
}

static result extract(const scene *s, int patch, const char *what)
{
    result r = {0};
    r.status = patch ? spx_extract_patch_cpu(&s->image, s->psf, &s->o, &r.frame, &r.counts, &r.e)
                     : spx_extract_trace_cpu(&s->image, s->psf, &s->o, &r.frame, &r.counts, &r.e);
    CHECK(r.status == SPX_OK, "%s: %s", what, r.e.msg);
    if (r.status != SPX_OK)
        return r;
    const spx_frame *f = &r.frame;
    size_t nbin = f->nspec * f->arm.nwave, empty = 0;
    CHECK(f->nspec == s->o.nspec && f->arm.ndiag == (size_t)spx_psf_ny(s->psf), "%s: shape", what);
    CHECK(all_finite(nbin, f->arm.flux) && all_finite(nbin, f->arm.ivar) && all_finite(nbin, f->chi2pix) &&
              all_finite(nbin, f->pixmask_fraction) && all_finite(nbin * f->arm.ndiag, f->arm.resolution),
          "%s: not finite", what);
    for (size_t i = 0; i < nbin; i++) {
        int none = (f->arm.mask[i] & SPX_ALLBADPIX) != 0;
        empty += (size_t)none;
        CHECK(none == !(f->arm.ivar[i] > 0.0) && (!none || (f->arm.flux[i] == 0.0 && f->chi2pix[i] == 0.0)),
              "%s: bin %zu: flux %g, ivar %g, mask %u", what, i, f->arm.flux[i], f->arm.ivar[i], f->arm.mask[i]);
    }
    CHECK(r.counts.nbin == nbin && r.counts.nbin_empty == empty, "%s: counts", what);
    return r;
}

static int same_rows(const spx_frame *a, size_t fa, const spx_frame *b, size_t fb, size_t n)
{
    size_t nw = a->arm.nwave, nd = a->arm.ndiag;
    if (nw != b->arm.nwave || nd != b->arm.ndiag)
        return 0;
    for (size_t k = 0; k < n * nw; k++)
        if ((a->arm.mask[fa * nw + k] ^ b->arm.mask[fb * nw + k]) & ~(uint32_t)SPX_BAD2DFIT)
            return 0;
    size_t bytes = n * nw * sizeof(double);
    return !memcmp(a->arm.flux + fa * nw, b->arm.flux + fb * nw, bytes) &&
           !memcmp(a->arm.ivar + fa * nw, b->arm.ivar + fb * nw, bytes) &&
           !memcmp(a->chi2pix + fa * nw, b->chi2pix + fb * nw, bytes) &&
           !memcmp(a->pixmask_fraction + fa * nw, b->pixmask_fraction + fb * nw, bytes) &&
           !memcmp(a->arm.resolution + fa * nw * nd, b->arm.resolution + fb * nw * nd, nd * bytes);
}

/* ---- against dense algebra ---- */

/* flux (per Angstrom), ivar and R of the fibres of one bundle, from all of M. The patch method takes the square root of
 * the inverse of C_s, and loses as many digits as C_s has condition: up to 12 beside masks. Here C_s^-1 comes from the
 * Schur complement M_ss - M_so M_oo^-1 M_os, and keeps them. */
typedef struct {
    double *flux, *ivar, *resolution; /* [nspec][nwave], R as in the frame */
} dense;

typedef struct {
    spx_spot at;
    double spot[400], weight, value;
} column;

static double weight_of(const spx_image *im, long y, long x)
{
    size_t i = (size_t)y * im->nx + (size_t)x;
    if (!isfinite(im->data[i]) || !isfinite(im->ivar[i]) || im->ivar[i] < 0.0f || (im->mask && im->mask[i]))
        return 0.0;
    return (double)im->ivar[i];
}

static double overlap(const scene *s, const column *a, const column *b, long y0, long y1)
{
    const long nx = spx_psf_nx(s->psf), ny = spx_psf_ny(s->psf);
    double sum = 0.0;
    for (long y = a->at.yc > b->at.yc ? a->at.yc : b->at.yc; y < a->at.yc + ny && y < b->at.yc + ny; y++)
        for (long x = a->at.xc > b->at.xc ? a->at.xc : b->at.xc; x < a->at.xc + nx && x < b->at.xc + nx; x++)
            if (y >= y0 && y < y1 && x >= 0 && x < (long)s->image.nx)
                sum += weight_of(&s->image, y, x) * a->spot[(y - a->at.yc) * nx + x - a->at.xc] *
                       b->spot[(y - b->at.yc) * nx + x - b->at.xc];
    return sum;
}

static void dense_bundle(const scene *s, size_t fibre0, size_t nf, dense *out)
{
    const size_t nwave = spx_extract_nwave(&s->o), pad = s->o.wave_pad, nb = nwave + 2 * pad, n = nf * nb;
    const long nx = spx_psf_nx(s->psf), ny = spx_psf_ny(s->psf);
    column *c = spx_alloc(n, sizeof *c, NULL);
    double *m = spx_alloc2(n, n, sizeof *m, NULL), *oo = spx_alloc2(n, n, sizeof *oo, NULL);
    double *os = spx_alloc2(n, nb, sizeof *os, NULL), *a = spx_alloc2(nb, nb, sizeof *a, NULL);
    double *q = spx_alloc2(nb, nb, sizeof *q, NULL), *x = spx_alloc(n, sizeof *x, NULL);
    double *root = spx_alloc(nb, sizeof *root, NULL), *norm = spx_alloc(nb, sizeof *norm, NULL);
    if (!c || !m || !oo || !os || !a || !q || !x || !root || !norm) {
        CHECK(0, "memory");
        return;
    }
    long in0 = 1 << 30, in1 = -in0, all0 = in0, all1 = -in0;
    for (size_t i = 0; i < n; i++) {
        double work[400];
        long k = (long)(i % nb) - (long)pad;
        spx_psf_spot(s->psf, fibre0 + i / nb, s->o.wmin + (double)k * s->o.dw, work, c[i].spot, &c[i].at);
        all0 = c[i].at.yc < all0 ? c[i].at.yc : all0;
        all1 = c[i].at.yc + ny > all1 ? c[i].at.yc + ny : all1;
        if (k >= 0 && k < (long)nwave) {
            in0 = c[i].at.yc < in0 ? c[i].at.yc : in0;
            in1 = c[i].at.yc + ny > in1 ? c[i].at.yc + ny : in1;
        }
    }
    double fraction = s->o.pix_pad_frac, most = 0.0;
    long y0 = all0 + (long)((double)(in0 - all0) * (1.0 - fraction));
    long y1 = all0 + (long)((double)(in1 - all0) + (double)(all1 - in1) * fraction);
    y0 = y0 < 0 ? 0 : y0;
    y1 = y1 > (long)s->image.ny ? (long)s->image.ny : y1;
    for (size_t i = 0; i < n; i++) {
        for (long y = c[i].at.yc; y < c[i].at.yc + ny; y++)
            for (long col = c[i].at.xc; col < c[i].at.xc + nx; col++)
                if (y >= y0 && y < y1 && col >= 0 && col < (long)s->image.nx) {
                    double w = weight_of(&s->image, y, col) * c[i].spot[(y - c[i].at.yc) * nx + col - c[i].at.xc];
                    c[i].weight += w;
                    if (w > 0.0)
                        c[i].value += w * (double)s->image.data[(size_t)y * s->image.nx + (size_t)col];
                }
        most = fmax(most, c[i].weight);
    }
    for (size_t i = 0; i < n; i++) {
        for (size_t j = 0; j <= i; j++)
            m[i * n + j] = m[j * n + i] = overlap(s, &c[i], &c[j], y0, y1);
        double alpha = c[i].weight < 1e-4 * most ? 1e-4 * most - c[i].weight : s->o.regularize;
        m[i * n + i] += alpha * alpha + 1e-15;
        x[i] = c[i].value;
    }
    memcpy(oo, m, n * n * sizeof *m);
    lapack_int info = LAPACKE_dposv(LAPACK_COL_MAJOR, 'L', (lapack_int)n, 1, oo, (lapack_int)n, x, (lapack_int)n);
    CHECK(info == 0, "dense equations: %d", (int)info);
    for (size_t f = 0; f < nf; f++) {
        const size_t no = n - nb, s0 = f * nb;
        for (size_t j = 0; j < no; j++) {
            size_t jj = j < s0 ? j : j + nb;
            for (size_t i = 0; i < no; i++)
                oo[j * no + i] = m[jj * n + (i < s0 ? i : i + nb)];
            for (size_t k = 0; k < nb; k++)
                os[k * no + j] = m[jj * n + s0 + k];
        }
        if (no > 0) {
            info = LAPACKE_dpotrf(LAPACK_COL_MAJOR, 'L', (lapack_int)no, oo, (lapack_int)no);
            info |= LAPACKE_dtrtrs(LAPACK_COL_MAJOR, 'L', 'N', 'N', (lapack_int)no, (lapack_int)nb, oo, (lapack_int)no,
                                   os, (lapack_int)no);
        }
        for (size_t i = 0; i < nb; i++)
            for (size_t j = 0; j < nb; j++) {
                double sum = 0.0;
                for (size_t k = 0; k < no; k++)
                    sum += os[i * no + k] * os[j * no + k];
                a[i * nb + j] = m[(s0 + i) * n + s0 + j] - sum;
            }
        info |= LAPACKE_dsyevd(LAPACK_COL_MAJOR, 'V', 'L', (lapack_int)nb, a, (lapack_int)nb, root);
        CHECK(info == 0 && root[0] > 0.0, "dense square root: %d, %g", (int)info, root[0]);
        for (size_t i = 0; i < nb; i++) {
            norm[i] = 0.0;
            for (size_t j = 0; j < nb; j++) {
                double sum = 0.0;
                for (size_t k = 0; k < nb; k++)
                    sum += a[k * nb + i] * sqrt(root[k]) * a[k * nb + j];
                q[i * nb + j] = sum;
                norm[i] += sum;
            }
        }
        for (size_t k = 0; k < nwave; k++) {
            size_t i = k + pad, at = (fibre0 + f) * nwave + k;
            double sum = 0.0;
            for (size_t j = 0; j < nb; j++)
                sum += q[i * nb + j] * x[s0 + j];
            out->flux[at] = sum / norm[i] / s->o.dw;
            out->ivar[at] = norm[i] * norm[i] * s->o.dw * s->o.dw;
            for (long d = 0; d < ny; d++) {
                long row = (long)i + d - ny / 2;
                if (row >= 0 && row < (long)nb)
                    out->resolution[((fibre0 + f) * (size_t)ny + (size_t)d) * nwave + k] =
                        q[(size_t)row * nb + i] / norm[row];
            }
        }
    }
    spx_free(c);
    spx_free(m);
    spx_free(oo);
    spx_free(os);
    spx_free(a);
    spx_free(q);
    spx_free(x);
    spx_free(root);
    spx_free(norm);
}

/* flux (in units of its error: times ten), ivar and R within `limit` of dense algebra; chi2pix, pixmask_fraction and
 * mask against the patch method with one patch for everything. */
static void compare(const scene *s, double limit, const char *what)
{
    result a = extract(s, 0, what), p = extract(s, 1, what);
    size_t nw = spx_extract_nwave(&s->o), nd = (size_t)spx_psf_ny(s->psf), n = s->o.nspec * nw, other = 0;
    double flux = 0.0, ivar = 0.0, res = 0.0, chi2 = 0.0, fraction = 0.0;
    dense d = {spx_alloc(n, sizeof(double), NULL), spx_alloc(n, sizeof(double), NULL),
               spx_alloc2(n, nd, sizeof(double), NULL)};
    if (!d.flux || !d.ivar || !d.resolution || a.status != SPX_OK || p.status != SPX_OK)
        return;
    for (size_t f = 0; f < s->o.nspec; f += s->o.bundle_size)
        dense_bundle(s, f, f + s->o.bundle_size < s->o.nspec ? s->o.bundle_size : s->o.nspec - f, &d);
    for (size_t i = 0; i < n; i++) {
        size_t f = i / nw, k = i % nw;
        fraction = fmax(fraction, fabs(a.frame.pixmask_fraction[i] - p.frame.pixmask_fraction[i]));
        other += ((a.frame.arm.mask[i] ^ p.frame.arm.mask[i]) & SPX_ALLBADPIX) != 0;
        /* what is left of a bin with hardly a pixel is rounding */
        if (!(a.frame.arm.ivar[i] > 0.0) || a.frame.pixmask_fraction[i] > 0.99)
            continue;
        for (size_t r = 0; r < nd; r++) {
            size_t at = (f * nd + r) * nw + k;
            res = fmax(res, fabs(a.frame.arm.resolution[at] - d.resolution[at]));
        }
        flux = fmax(flux, fabs(a.frame.arm.flux[i] - d.flux[i]) * sqrt(d.ivar[i]));
        ivar = fmax(ivar, fabs(a.frame.arm.ivar[i] / d.ivar[i] - 1.0));
        chi2 = fmax(chi2, fabs(a.frame.chi2pix[i] - p.frame.chi2pix[i]) / (1.0 + p.frame.chi2pix[i]));
    }
    CHECK(other == 0 && flux <= 10.0 * limit && ivar <= limit && res <= limit && chi2 <= 1e-8 && fraction <= 1e-12,
          "seed %llu, %s: flux %.2g sigma, ivar %.2g, R %.2g, chi2pix %.2g, pixmask_fraction %.2g, mask in %zu bins",
          (unsigned long long)seed, what, flux, ivar, res, chi2, fraction, other);
    spx_frame_free(&a.frame);
    spx_frame_free(&p.frame);
    spx_free(d.flux);
    spx_free(d.ivar);
    spx_free(d.resolution);
}

static void add_masks(scene *s)
{
    const size_t nx = s->image.nx;
    for (size_t y = 0; y < s->image.ny; y++) {
        s->image.mask[y * nx + 19] |= y > 10 && y < 40 ? 2u : 0u; /* dead column on a trace */
        for (size_t x = 0; x < nx; x++) {
            s->image.mask[y * nx + x] |= y >= 50 && y < 64 ? 16u : 0u;                     /* gap over all traces */
            s->image.mask[y * nx + x] |= y >= 22 && y < 34 && x >= 30 && x < 36 ? 8u : 0u; /* saturated block */
            s->image.mask[y * nx + x] |= (7 * y + 3 * x) % 151 == 0 ? 64u : 0u;            /* cosmic rays */
        }
    }
    s->image.data[20 * nx + 9] = NAN;
    s->image.ivar[30 * nx + 25] = -1.0f;
}

static void check_dense(void)
{
    small_psf_shape shape = small_psf_default();
    shape.pitch = 7.0;
    scene s = make_small(&shape);
    compare(&s, 1e-8, "clean");
    s.o.regularize = 0.01;
    compare(&s, 1e-8, "regularised");
    s.o.regularize = 0.0;
    add_masks(&s);
    compare(&s, 1e-7, "masked");
    free_scene(&s);

    shape.pitch = 5.6;
    s = make_small(&shape);
    compare(&s, 1e-8, "closer traces");
    free_scene(&s);

    /* so close that A_s is twice as wide as M: its band follows the tolerance */
    shape.pitch = 4.6;
    s = make_small(&shape);
    s.o.bundle_size = 7;
    compare(&s, 1e-8, "traces that overlap");
    s.o.tolerance = 1e-12;
    compare(&s, 1e-11, "traces that overlap, to the last digits");
    s.o.tolerance = 1e-8;
    add_masks(&s);
    compare(&s, 1e-7, "traces that overlap, masked");
    free_scene(&s);

    shape = small_psf_default(); /* other degrees and sizes */
    shape.pitch = 7.0;
    shape.hsizex = 5;
    shape.hsizey = 4;
    shape.ghdegx = 1;
    shape.ghdegy = 5;
    shape.ndeg = 3;
    shape.ncoef = 2;
    s = make_small(&shape);
    s.o.bundle_size = 3;
    compare(&s, 1e-8, "another PSF");
    s.o.dw = 3.5;
    s.o.wave_step = spx_extract_nwave(&s.o); /* bins as coarse as spots: fewer overlaps than stored diagonals */
    compare(&s, 1e-8, "coarse bins");
    free_scene(&s);
}

/* Camera as it is: 8 of its fibres in one bundle. */
static void check_camera(void)
{
    spx_psf *psf = spx_alloc(1, sizeof *psf, NULL);
    spx_err e = {0};
    CHECK(psf && spx_sim_psf('r', 8, 6000.0, 6040.0, psf, &e) == SPX_OK, "%s", e.msg);
    if (!psf || e.code)
        return;
    scene s = make_scene(psf, psf->npix_y, psf->npix_x, 6000.0, 6040.0, 0.8);
    s.o.bundle_size = 8;
    compare(&s, 1e-8, "camera");
    for (size_t x = 0; x < s.image.nx; x++)
        for (size_t y = s.image.ny / 2; y < s.image.ny / 2 + 12; y++)
            s.image.mask[y * s.image.nx + x] |= 1;
    compare(&s, 1e-8, "camera with a gap");
    free_scene(&s);
}

/* ---- properties ---- */

static void check_subsets(void)
{
    small_psf_shape shape = small_psf_default(); /* 7 fibres, bundles of 4 and 3 */
    scene s = make_small(&shape);
    add_masks(&s);
    s.o.want_model = 1;
    result all = extract(&s, 0, "all fibres");
    for (int threads = 2; threads <= 3; threads++) {
        s.o.nthreads = threads;
        result again = extract(&s, 0, "threads");
        CHECK(again.status == SPX_OK && same_rows(&all.frame, 0, &again.frame, 0, 7) &&
                  !memcmp(all.frame.arm.mask, again.frame.arm.mask, 7 * all.frame.arm.nwave * sizeof(uint32_t)) &&
                  !memcmp(all.frame.model, again.frame.model, s.image.ny * s.image.nx * sizeof(float)),
              "%d threads give another result", threads);
        spx_frame_free(&again.frame);
    }
    s.o.nthreads = 1;
    for (size_t first = 0; first < 7; first++)
        for (size_t n = 1; n <= 7 - first; n += 2) {
            s.o.first = first;
            s.o.nspec = n;
            result part = extract(&s, 0, "subset");
            CHECK(part.status == SPX_OK && same_rows(&all.frame, first, &part.frame, 0, n),
                  "fibres %zu to %zu differ from the full run", first, first + n - 1);
            spx_frame_free(&part.frame);
        }
    spx_frame_free(&all.frame);
    free_scene(&s);
}

/* Every instruction set gives the same numbers up to rounding, the same numbers twice, and flags the same bins. */
static void check_instruction_sets(void)
{
    small_psf_shape shape = small_psf_default();
    shape.nspec = 19;
    scene s = make_scene(small_psf(&shape), 90, 130, shape.wmin, shape.wmax, STEP);
    add_masks(&s);
    s.o.bundle_size = 10;
    spx_trace_forced = spx_trace_kernels_base();
    result base = extract(&s, 0, "base");
    const spx_trace_kernels *const sets[] = {spx_trace_kernels_base(), spx_trace_kernels_avx2(),
                                             spx_trace_kernels_avx512()};
    size_t nw = base.frame.arm.nwave, nd = base.frame.arm.ndiag;
    for (size_t i = 0; i < 3 && base.status == SPX_OK; i++) {
        if (!sets[i])
            continue;
        spx_trace_forced = sets[i];
        result r = extract(&s, 0, sets[i]->name), twice = extract(&s, 0, sets[i]->name);
        CHECK(same_rows(&r.frame, 0, &twice.frame, 0, 19), "%s: differs when repeated", sets[i]->name);
        double worst = 0.0;
        size_t other = 0;
        for (size_t k = 0; k < 19 * nw; k++) {
            other += r.frame.arm.mask[k] != base.frame.arm.mask[k];
            if (base.frame.arm.ivar[k] > 0.0) {
                worst = fmax(worst, fabs(r.frame.arm.flux[k] - base.frame.arm.flux[k]) * sqrt(base.frame.arm.ivar[k]));
                worst = fmax(worst, fabs(r.frame.arm.ivar[k] / base.frame.arm.ivar[k] - 1.0));
            }
        }
        for (size_t k = 0; k < 19 * nw * nd; k++)
            worst = fmax(worst, fabs(r.frame.arm.resolution[k] - base.frame.arm.resolution[k]));
        CHECK(worst < 1e-6 && other == 0, "seed %llu: %s differs from base by %g, masks in %zu bins",
              (unsigned long long)seed, sets[i]->name, worst, other);
        spx_frame_free(&r.frame);
        spx_frame_free(&twice.frame);
    }
    spx_trace_forced = NULL;
    spx_frame_free(&base.frame);
    free_scene(&s);
}

/* An image cut on any side gives what dense algebra gives there, and the same as one that is masked there. */
static void check_edges(void)
{
    small_psf_shape shape = small_psf_default();
    shape.pitch = 7.0;
    shape.x0 += 10.0;
    shape.y0 += 10.0;
    shape.y1 += 10.0;
    scene s = make_scene(small_psf(&shape), 100, 70, shape.wmin, shape.wmax, STEP);
    const struct {
        size_t x0, x1, y0, y1;
        const char *what;
    } cuts[] = {{24, 70, 0, 100, "cut on the left"},
                {0, 46, 0, 100, "cut on the right"},
                {0, 70, 21, 100, "cut at the bottom"},
                {0, 70, 0, 69, "cut at the top"},
                {22, 41, 25, 60, "cut on all sides"}};
    for (size_t c = 0; c < sizeof cuts / sizeof *cuts; c++) {
        size_t nx = cuts[c].x1 - cuts[c].x0, ny = cuts[c].y1 - cuts[c].y0;
        small_psf_shape moved = shape;
        scene cut = s, masked = s;
        cut.psf = small_psf(&moved);
        for (size_t f = 0; cut.psf && f < shape.nspec; f++) {
            cut.psf->x.coef[f * shape.ncoef] -= (double)cuts[c].x0;
            cut.psf->y.coef[f * shape.ncoef] -= (double)cuts[c].y0;
        }
        cut.image = (spx_image){.ny = ny, .nx = nx};
        cut.image.data = spx_alloc2(ny, nx, sizeof(float), NULL);
        cut.image.ivar = spx_alloc2(ny, nx, sizeof(float), NULL);
        masked.image.mask = spx_alloc2(100, 70, sizeof(uint32_t), NULL);
        if (!cut.psf || !cut.image.data || !cut.image.ivar || !masked.image.mask) {
            CHECK(0, "memory");
            return;
        }
        for (size_t y = 0; y < 100; y++)
            for (size_t x = 0; x < 70; x++) {
                int in = y >= cuts[c].y0 && y < cuts[c].y1 && x >= cuts[c].x0 && x < cuts[c].x1;
                masked.image.mask[y * 70 + x] = !in;
                if (in) {
                    size_t to = (y - cuts[c].y0) * nx + x - cuts[c].x0;
                    cut.image.data[to] = s.image.data[y * 70 + x];
                    cut.image.ivar[to] = s.image.ivar[y * 70 + x];
                }
            }
        compare(&cut, 1e-7, cuts[c].what);
        compare(&masked, 1e-7, cuts[c].what);
        spx_free(masked.image.mask);
        free_scene(&cut);
    }
    free_scene(&s);
}

/* Pulls against what was put in, through the resolution matrix. */
static void check_statistics(void)
{
    small_psf_shape shape = small_psf_default();
    shape.pitch = 7.0;
    shape.hsizey = 6; /* so that the stored diagonals hold all of R */
    scene s = make_small(&shape);
    s.o.bundle_size = 7;
    result r = extract(&s, 0, "statistics");
    double sum = 0.0, sum2 = 0.0, chi2 = 0.0;
    const long half = 6, nw = (long)r.frame.arm.nwave;
    size_t n = 0;
    for (size_t f = 0; r.status == SPX_OK && f < shape.nspec; f++)
        for (long k = half; k + half < nw; k++, n++) {
            double expected = 0.0;
            for (long d = 0; d <= 2 * half; d++) { /* row k holds R[k][j] at column j = k - off, off = half - d */
                long j = k - half + d;
                double mean = 0.0;
                for (int i = 0; i < 20; i++)
                    mean += truth(f, 5000.0 + fmod(s.o.wmin + ((double)j + (i - 9.5) / 20.0) * STEP, 100.0)) / 20.0;
                expected += r.frame.arm.resolution[((long)f * (2 * half + 1) + 2 * half - d) * nw + j] * mean;
            }
            size_t at = f * (size_t)nw + (size_t)k;
            double pull = (r.frame.arm.flux[at] - expected) * sqrt(r.frame.arm.ivar[at]);
            sum += pull;
            sum2 += pull * pull;
            chi2 += r.frame.chi2pix[at];
        }
    double mean = sum / (double)n, rms = sqrt(sum2 / (double)n);
    chi2 /= (double)n;
    CHECK(n > 200 && fabs(mean) < 0.25 && rms > 0.85 && rms < 1.2 && chi2 > 0.4 && chi2 < 1.2,
          "seed %llu: %zu pulls, mean %g, rms %g, mean chi2pix %g", (unsigned long long)seed, n, mean, rms, chi2);
    spx_frame_free(&r.frame);
    free_scene(&s);
}

static void check_failures(void)
{
    small_psf_shape shape = small_psf_default();
    scene s = make_small(&shape);
    result all = extract(&s, 0, "all spots");
    for (size_t k = 0; k < s.image.ny * s.image.nx; k++)
        s.image.ivar[k] *= 1e12f;
    s.o.wmax = s.o.wmin + 3.0;
    s.o.dw = 0.1; /* bins that share their pixels */
    result r = extract(&s, 0, "no solution");
    CHECK(r.counts.npatch == 7 && r.counts.npatch_failed == 7 && r.counts.nbin_empty == r.counts.nbin,
          "%zu of %zu traces failed, %zu bins empty", r.counts.npatch_failed, r.counts.npatch, r.counts.nbin_empty);
    for (size_t k = 0; r.status == SPX_OK && k < r.counts.nbin; k++)
        CHECK(r.frame.arm.mask[k] == (SPX_ALLBADPIX | SPX_BAD2DFIT), "bin %zu: mask %u", k, r.frame.arm.mask[k]);
    spx_frame_free(&r.frame);
    free_scene(&s);

    s = make_small(&shape);
    s.psf->coeff[5 * s.psf->ndeg] = -1.0; /* sigma of fibre 5 */
    r = extract(&s, 0, "a fibre without spots");
    CHECK(r.counts.nbin_nospot == r.frame.arm.nwave && r.counts.npatch_failed == 0, "%zu bins without spot",
          r.counts.nbin_nospot);
    CHECK(all.status == SPX_OK && r.status == SPX_OK && same_rows(&all.frame, 0, &r.frame, 0, 4), "other bundle");
    for (size_t k = 0; r.status == SPX_OK && k < r.frame.arm.nwave; k++)
        CHECK(r.frame.arm.mask[5 * r.frame.arm.nwave + k] == (SPX_ALLBADPIX | SPX_SOMEBADPIX) &&
                  r.frame.arm.ivar[4 * r.frame.arm.nwave + k] > 0.0,
              "bin %zu of fibres 4, 5", k);
    spx_frame_free(&r.frame);
    /* a trace that turns back harms no other bundle, and nobody's results are not finite */
    s.psf->coeff[5 * s.psf->ndeg] = shape.sigx;
    s.psf->y.coef[6 * shape.ncoef + 1] = 0.01;
    s.psf->y.coef[6 * shape.ncoef + 2] = 15.0;
    r = extract(&s, 0, "a trace that turns back");
    CHECK(all.status == SPX_OK && r.status == SPX_OK && same_rows(&all.frame, 0, &r.frame, 0, 4), "other bundle");
    spx_frame_free(&r.frame);
    spx_frame_free(&all.frame);
    free_scene(&s);
}

static void check_refusals(void)
{
    small_psf_shape shape = small_psf_default();
    scene good = make_small(&shape);
    for (int c = 0; c < 8; c++) {
        scene s = good;
        const char *text = "tolerance";
        spx_status want = SPX_EUSAGE;
        switch (c) {
        case 0:
            s.o.tolerance = 0.0;
            break;
        case 1:
            s.o.tolerance = NAN;
            break;
        case 2:
            s.o.wave_pad = (size_t)-1;
            text = "padded";
            break;
        case 3:
            s.o.dw = 0.005;
            s.o.wmax = s.o.wmin + 2.0;
            text = "smaller than a pixel";
            break;
        case 4:
            s.o.nspec = 8;
            text = "--spectra";
            break;
        case 5:
            s.o.wmin = 6000.0;
            s.o.wmax = 6010.0;
            text = "--wavelength";
            want = SPX_EINPUT;
            break;
        case 6:
            s.o.tolerance = 1.0;
            break;
        case 7:
            s.o.wave_step = (size_t)-1; /* allowed: the window is everything */
            want = SPX_OK;
            text = "";
            break;
        }
        spx_frame frame = {0};
        spx_extract_counts counts;
        spx_err e = {0};
        spx_status st = spx_extract_trace_cpu(&s.image, s.psf, &s.o, &frame, &counts, &e);
        CHECK(st == want && strstr(e.msg, text), "case %d: status %d: %s", c, st, e.msg);
        spx_frame_free(&frame);
    }
    free_scene(&good);
}

static void check_poles(void)
{
    double shift[SPX_MAX_POLES], weight[SPX_MAX_POLES];
    for (double b = 1.0; b < 1e13; b *= 7.0) {
        int n = spx_sqrt_choose(2.0, 2.0 * b, 1e-9, shift, weight);
        double worst = 0.0;
        for (double v = 2.0; v <= 2.0 * b; v *= 1.037) {
            double sum = 0.0;
            for (int j = 0; j < n; j++)
                sum += weight[j] * (1.0 - shift[j] / (v + shift[j]));
            worst = fmax(worst, fabs(sum / sqrt(v) - 1.0));
        }
        CHECK(worst < 1.5e-9 && n <= 50, "condition %g: %d poles, error %g", b, n, worst);
    }
}

int main(void)
{
    check_poles();
    check_dense();
    check_camera();
    check_subsets();
    check_instruction_sets();
    check_edges();
    check_statistics();
    check_failures();
    check_refusals();
    return failures != 0;
}
