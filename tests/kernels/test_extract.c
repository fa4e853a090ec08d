/* Checks the patch method of extraction: against an independent dense solution, and the properties that every method
 * has. */
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "check.h"
#include "extract/extract.h"
#include "psf/spot_math.h"
#include "same_rows.h"
#include "small_psf.h"

/* ---- made-up frames ---- */

static const unsigned seed = 20240611u;
static uint64_t state;

/* Uniform in (0, 1): xorshift64*. */
static double uniform(void)
{
    state ^= state >> 12;
    state ^= state << 25;
    state ^= state >> 27;
    return ((double)((state * 2685821657736338717ull) >> 11) + 0.5) / 9007199254740992.0;
}

static double gauss(void)
{
    double r = sqrt(-2.0 * log(uniform()));
    return r * cos(2.0 * acos(-1.0) * uniform());
}

typedef struct {
    spx_psf *psf;
    spx_image image;
    spx_extract_options o;
} scene;

/* Electrons per bin of fibre f at bin k: continuum with lines. */
static double truth(size_t f, long k)
{
    return 200.0 + 20.0 * (double)f + (k % 11 == 3 ? 900.0 : 0.0);
}

/* Image of ny x nx pixels with the spectra truth() of all fibres of the PSF in bins -pad .. nbin+pad-1 of the grid,
 * noise of sigma 3 electrons and Poisson noise times `noise`. */
static scene make_scene(const small_psf_shape *shape, size_t ny, size_t nx, double noise)
{
    scene s = {.psf = small_psf(shape), .o = spx_extract_defaults()};
    s.o.nspec = shape->nspec;
    s.o.wmin = shape->wmin;
    s.o.wmax = shape->wmax;
    s.o.dw = 1.0;
    s.o.bundle_size = 4;
    s.o.sub_bundles = 2;
    s.o.wave_step = 20;
    s.o.wave_pad = 6;
    s.o.nthreads = 1;
    s.image = (spx_image){.ny = ny, .nx = nx, .camera = "r9"};
    s.image.data = spx_alloc2(ny, nx, sizeof(float), NULL);
    s.image.ivar = spx_alloc2(ny, nx, sizeof(float), NULL);
    s.image.mask = spx_alloc2(ny, nx, sizeof(uint32_t), NULL);
    double *clean = spx_alloc2(ny, nx, sizeof(double), NULL);
    double work[400], spot[400];
    CHECK(s.psf && s.image.data && s.image.ivar && s.image.mask && clean, "memory");
    state = seed;
    for (size_t f = 0; f < shape->nspec; f++)
        for (long k = -20; k < (long)(shape->wmax - shape->wmin) + 20; k++) {
            spx_spot at;
            if (spx_psf_spot(s.psf, f, shape->wmin + (double)k, work, spot, &at) != SPX_SPOT_OK)
                continue;
            for (long y = 0; y < spx_psf_ny(s.psf); y++)
                for (long x = 0; x < spx_psf_nx(s.psf); x++)
                    if (at.yc + y >= 0 && at.yc + y < (long)ny && at.xc + x >= 0 && at.xc + x < (long)nx)
                        clean[(at.yc + y) * (long)nx + at.xc + x] += truth(f, k) * spot[y * spx_psf_nx(s.psf) + x];
        }
    for (size_t k = 0; k < ny * nx; k++) {
        double var = 9.0 + clean[k];
        s.image.data[k] = (float)(clean[k] + noise * sqrt(var) * gauss());
        s.image.ivar[k] = (float)(1.0 / var);
    }
    spx_free(clean);
    return s;
}

static void free_scene(scene *s)
{
    spx_psf_free(s->psf);
    spx_free(s->psf);
    spx_free(s->image.data);
    spx_free(s->image.ivar);
    spx_free(s->image.mask);
}

/* A result, its counts, and whether every number in it is finite. */
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

static result extract(const scene *s, const char *what)
{
    result r = {0};
    r.status = spx_extract_patch_cpu(&s->image, s->psf, &s->o, &r.frame, &r.counts, &r.e);
    CHECK(r.status == SPX_OK, "%s: %s", what, spx_err_text(&r.e));
    if (r.status != SPX_OK)
        return r;
    const spx_frame *f = &r.frame;
    size_t nbin = f->nspec * f->arm.nwave;
    CHECK(f->nspec == s->o.nspec && f->arm.ndiag == (size_t)spx_psf_ny(s->psf), "%s: shape", what);
    CHECK(all_finite(nbin, f->arm.flux) && all_finite(nbin, f->arm.ivar) && all_finite(nbin, f->chi2pix) &&
              all_finite(nbin, f->pixmask_fraction) && all_finite(nbin * f->arm.ndiag, f->arm.resolution),
          "%s: not finite", what);
    size_t empty = 0;
    for (size_t i = 0; i < nbin; i++) {
        int none = (f->arm.mask[i] & SPX_ALLBADPIX) != 0;
        empty += (size_t)none;
        CHECK(none == !(f->arm.ivar[i] > 0.0), "%s: bin %zu: ivar %g, mask %u", what, i, f->arm.ivar[i],
              f->arm.mask[i]);
        CHECK(!none || (f->arm.flux[i] == 0.0 && f->chi2pix[i] == 0.0), "%s: bin %zu: flux without information", what,
              i);
        CHECK(f->pixmask_fraction[i] >= 0.0 && f->pixmask_fraction[i] <= 1.0, "%s: bin %zu: fraction %g", what, i,
              f->pixmask_fraction[i]);
        CHECK(((f->arm.mask[i] & SPX_SOMEBADPIX) != 0) == (f->pixmask_fraction[i] > 0.5),
              "%s: bin %zu: fraction %g, "
              "mask %u",
              what, i, f->pixmask_fraction[i], f->arm.mask[i]);
    }
    CHECK(r.counts.nbin == nbin && r.counts.nbin_empty == empty && r.counts.npix == s->image.ny * s->image.nx,
          "%s: counts", what);
    CHECK(r.counts.npatch == spx_extract_patch_units(s->psf, &s->o), "%s: units", what);
    return r;
}

/* ---- one patch, solved by other means ---- */

/* Inverse of a symmetric positive definite matrix by Gauss-Jordan elimination, in place. */
static void invert(size_t n, double *a)
{
    for (size_t p = 0; p < n; p++) {
        double pivot = 1.0 / a[p * n + p];
        a[p * n + p] = 1.0;
        for (size_t j = 0; j < n; j++)
            a[p * n + j] *= pivot;
        for (size_t i = 0; i < n; i++) {
            double f = a[i * n + p];
            if (i == p || f == 0.0)
                continue;
            a[i * n + p] = 0.0;
            for (size_t j = 0; j < n; j++)
                a[i * n + j] -= f * a[p * n + j];
        }
    }
}

/* Square root of a symmetric positive definite matrix by the Denman-Beavers iteration, into y; z and t: scratch. */
static void square_root(size_t n, const double *a, double *y, double *z, double *t)
{
    memcpy(y, a, n * n * sizeof *y);
    memset(z, 0, n * n * sizeof *z);
    for (size_t i = 0; i < n; i++)
        z[i * n + i] = 1.0;
    for (int step = 0; step < 40; step++) {
        memcpy(t, z, n * n * sizeof *t);
        invert(n, t);
        double *u = t + n * n;
        memcpy(u, y, n * n * sizeof *u);
        invert(n, u);
        for (size_t k = 0; k < n * n; k++) {
            y[k] = 0.5 * (y[k] + t[k]);
            z[k] = 0.5 * (z[k] + u[k]);
        }
    }
}

/* Bins of a fibre, 16 and 4 of padding at both ends, and of all three; pixels. */
enum { NB = 16 + 2 * 4, N = 3 * NB, NPIX = 35 * 27 };

/* The solution with plain dense algebra: design matrix, covariance, deconvolved flux, pixel weights, model image. */
static struct {
    double a[N][NPIX], c[N * N], x[N], w[NPIX], model[NPIX];
} dense;

static void solve_dense(const scene *s, double wmin)
{
    static double m[N * N], y[N];
    memset(dense.a, 0, sizeof dense.a);
    memset(dense.model, 0, sizeof dense.model);
    for (size_t i = 0; i < N; i++) {
        double work[400], spot[400];
        spx_spot at;
        spx_psf_spot(s->psf, i / NB, wmin + (double)(i % NB) - 4.0, work, spot, &at);
        for (long iy = 0; iy < 7; iy++)
            for (long ix = 0; ix < 9; ix++)
                if (at.yc + iy >= 0 && at.yc + iy < 35 && at.xc + ix >= 0 && at.xc + ix < 27)
                    dense.a[i][(at.yc + iy) * 27 + at.xc + ix] = spot[iy * 9 + ix];
    }
    for (size_t k = 0; k < NPIX; k++)
        dense.w[k] = s->image.mask[k] || !isfinite(s->image.data[k]) ? 0.0 : (double)s->image.ivar[k];
    double most = 0.0;
    for (size_t i = 0; i < N; i++) {
        y[i] = 0.0;
        for (size_t j = 0; j < N; j++) {
            m[i * N + j] = 0.0;
            for (size_t k = 0; k < NPIX; k++)
                m[i * N + j] += dense.a[i][k] * dense.w[k] * dense.a[j][k];
        }
        for (size_t k = 0; k < NPIX; k++)
            y[i] += dense.w[k] > 0.0 ? dense.a[i][k] * dense.w[k] * (double)s->image.data[k] : 0.0;
        double fw = 0.0;
        for (size_t k = 0; k < NPIX; k++)
            fw += dense.a[i][k] * dense.w[k];
        most = fw > most ? fw : most;
        dense.x[i] = fw; /* until it is needed */
    }
    for (size_t i = 0; i < N; i++) {
        double alpha = dense.x[i] < 1e-4 * most ? 1e-4 * most - dense.x[i] : 1e-3;
        m[i * N + i] += alpha * alpha + 1e-15;
    }
    memcpy(dense.c, m, sizeof dense.c);
    invert(N, dense.c);
    for (size_t i = 0; i < N; i++) {
        dense.x[i] = 0.0;
        for (size_t j = 0; j < N; j++)
            dense.x[i] += dense.c[i * N + j] * y[j];
        for (size_t k = 0; k < NPIX; k++)
            dense.model[k] += dense.x[i] * dense.a[i][k];
    }
}

/* Fluxes, errors, resolution, chi2 and model image of the kept bins against it. */
static void compare_dense(const scene *s, const result *r, int masked)
{
    static double block[NB * NB], q[NB * NB], z[NB * NB], t[2 * NB * NB], image_model[NPIX];
    memset(image_model, 0, sizeof image_model);
    double worst_flux = 0.0, worst_ivar = 0.0, worst_r = 0.0, worst_chi2 = 0.0, worst_fraction = 0.0;
    for (size_t f = 0; r->status == SPX_OK && f < 3; f++) {
        for (size_t i = 0; i < NB; i++)
            for (size_t j = 0; j < NB; j++)
                block[i * NB + j] = dense.c[(f * NB + i) * N + f * NB + j];
        invert(NB, block);
        square_root(NB, block, q, z, t);
        double norm[NB];
        for (size_t i = 0; i < NB; i++) {
            norm[i] = 0.0;
            for (size_t j = 0; j < NB; j++)
                norm[i] += q[i * NB + j];
        }
        for (size_t k = 0; k < 16; k++) {
            size_t i = k + 4, at = f * 16 + k;
            double flux = 0.0, chi2 = 0.0, weight = 0.0, seen = 0.0;
            for (size_t j = 0; j < NB; j++)
                flux += q[i * NB + j] * dense.x[f * NB + j] / norm[i];
            for (size_t p = 0; p < NPIX; p++) {
                if (!(dense.w[p] > 0.0))
                    continue;
                double rest = (double)s->image.data[p] - dense.model[p], v = 0.01 * dense.model[p];
                chi2 += dense.a[f * NB + i][p] * rest * rest / (v * v + 1.0 / dense.w[p]);
                weight += dense.a[f * NB + i][p];
                seen += dense.a[f * NB + i][p];
            }
            double fraction = 1.0 - seen;
            worst_flux = fmax(worst_flux, fabs(r->frame.arm.flux[at] - flux) * norm[i]);
            worst_ivar = fmax(worst_ivar, fabs(r->frame.arm.ivar[at] / (norm[i] * norm[i]) - 1.0));
            worst_chi2 = fmax(worst_chi2, fabs(r->frame.chi2pix[at] - chi2 / weight));
            worst_fraction = fmax(worst_fraction, fabs(r->frame.pixmask_fraction[at] - fraction));
            for (size_t d = 0; d < 7; d++) {
                size_t row = i + d - 3; /* inside 0..NB-1: the padding is wider than 3 */
                worst_r =
                    fmax(worst_r, fabs(r->frame.arm.resolution[(f * 7 + d) * 16 + k] - q[row * NB + i] / norm[row]));
            }
            for (size_t p = 0; p < NPIX; p++)
                image_model[p] += flux * dense.a[f * NB + i][p];
        }
    }
    CHECK(worst_flux < 1e-7 && worst_ivar < 1e-7 && worst_r < 1e-7 && worst_chi2 < 1e-7 && worst_fraction < 1e-12,
          "dense%s: flux %g sigma, ivar %g, R %g, chi2pix %g, pixmask_fraction %g", masked ? " masked" : "", worst_flux,
          worst_ivar, worst_r, worst_chi2, worst_fraction);
    for (size_t k = 0; r->status == SPX_OK && k < NPIX; k++)
        CHECK(fabs((double)r->frame.model[k] - image_model[k]) < 1e-3, "model image %zu: %g, want %g", k,
              (double)r->frame.model[k], image_model[k]);
}

/* All fibres in one group and all bins in one patch, every pixel used: flux, ivar, R, chi2pix and pixmask_fraction from
 * a full matrix A, elimination and the Denman-Beavers square root. */
static void check_dense(int masked)
{
    small_psf_shape shape = small_psf_default();
    shape.nspec = 3;
    shape.y1 = 24.0;
    shape.wmax = 5015.0;
    scene s = make_scene(&shape, 35, 27, 1.0);
    s.o.bundle_size = 3;
    s.o.sub_bundles = 1;
    s.o.wave_step = 16;
    s.o.wave_pad = 4;
    s.o.pix_pad_frac = 1.0;
    s.o.regularize = 1e-3;
    s.o.want_model = 1;
    if (masked)
        for (size_t y = 0; y < 35; y++) {
            s.image.mask[y * 27 + 9] = 4;
            s.image.ivar[y * 27 + 14] = y > 12 && y < 19 ? 0.0f : s.image.ivar[y * 27 + 14];
            s.image.data[y * 27 + 20] = y == 17 ? NAN : s.image.data[y * 27 + 20];
        }
    result r = extract(&s, "dense");
    solve_dense(&s, shape.wmin);
    compare_dense(&s, &r, masked);
    spx_frame_free(&r.frame);
    free_scene(&s);
}

/* ---- properties ---- */

/* R times what was put in, fibre f, bin k. */
static double resolved_truth(const spx_frame *r, size_t f, long k)
{
    double sum = 0.0;
    long half = (long)r->arm.ndiag / 2, nw = (long)r->arm.nwave;
    for (long d = 0; d < 2 * half + 1; d++) {
        long j = k - (half - d); /* row k holds R[k][j] at column j = k - off */
        if (j >= 0 && j < nw)
            sum += r->arm.resolution[((long)f * (2 * half + 1) + d) * nw + j] * truth(f, j);
    }
    return sum;
}

static void check_statistics(void)
{
    small_psf_shape shape = small_psf_default();
    shape.hsizey = 7; /* so that the stored diagonals hold all of R */
    scene s = make_scene(&shape, 90, 60, 1.0);
    s.o.wave_pad = 12;
    s.o.bundle_size = 7; /* no light from a bundle that is not modelled */
    s.o.sub_bundles = 2;
    result r = extract(&s, "statistics");
    double sum2 = 0.0, chi2 = 0.0;
    size_t n = 0, nw = r.frame.arm.nwave;
    for (size_t f = 0; r.status == SPX_OK && f < shape.nspec; f++)
        for (size_t k = 8; k + 8 < nw; k++, n++) {
            double pull = (r.frame.arm.flux[f * nw + k] - resolved_truth(&r.frame, f, (long)k)) *
                          sqrt(r.frame.arm.ivar[f * nw + k]);
            sum2 += pull * pull;
            chi2 += r.frame.chi2pix[f * nw + k];
        }
    double rms = sqrt(sum2 / (double)n);
    CHECK(n > 400 && rms > 0.9 && rms < 1.1, "seed %u: pulls %g over %zu bins", seed, rms, n);
    chi2 /= (double)n;
    CHECK(chi2 > 0.5 && chi2 < 1.1, "seed %u: mean chi2pix %g", seed, chi2);
    spx_frame_free(&r.frame);
    free_scene(&s);
}

/* Every subset of fibres has the rows of the full run; partial bundles and groups; any number of threads. */
static void check_subsets(void)
{
    small_psf_shape shape = small_psf_default(); /* 7 fibres, bundles of 4 and 3 */
    scene s = make_scene(&shape, 90, 60, 1.0);
    s.image.mask[40 * 60 + 12] = s.image.mask[40 * 60 + 13] = 1;
    s.o.want_model = 1;
    for (size_t sub = 1; sub <= 4; sub++) {
        s.o.sub_bundles = sub;
        s.o.first = 0;
        s.o.nspec = 7;
        s.o.nthreads = 1;
        result all = extract(&s, "all fibres");
        for (int threads = 2; threads <= 3; threads++) {
            s.o.nthreads = threads;
            result again = extract(&s, "threads");
            CHECK(again.status == SPX_OK && same_rows(&all.frame, 0, &again.frame, 0, 7) &&
                      !memcmp(all.frame.arm.mask, again.frame.arm.mask, 7 * all.frame.arm.nwave * sizeof(uint32_t)) &&
                      !memcmp(all.frame.model, again.frame.model, 90 * 60 * sizeof(float)),
                  "%d threads give another result", threads);
            spx_frame_free(&again.frame);
        }
        for (size_t first = 0; first < 7; first++)
            for (size_t n = 1; n <= 7 - first; n += 2) {
                s.o.first = first;
                s.o.nspec = n;
                result part = extract(&s, "subset");
                CHECK(part.status == SPX_OK && same_rows(&all.frame, first, &part.frame, 0, n),
                      "fibres %zu to %zu differ from the full run, %zu sub-bundles", first, first + n - 1, sub);
                CHECK(part.frame.fiber && part.frame.fiber[0] == (int32_t)first, "fiber");
                spx_frame_free(&part.frame);
            }
        spx_frame_free(&all.frame);
    }
    free_scene(&s);
}

/* An image cut on any side is the same as one that is masked there; and the fibres and bins in the middle do not care.
 */
static void check_edges(void)
{
    small_psf_shape shape = small_psf_default();
    shape.x0 += 10.0;
    shape.y0 += 10.0;
    shape.y1 += 10.0;
    scene s = make_scene(&shape, 100, 70, 1.0);
    result whole = extract(&s, "whole CCD");
    const struct {
        size_t x0, x1, y0, y1;
        const char *what;
    } cuts[] = {{24, 70, 0, 100, "cut on the left"},   {0, 46, 0, 100, "cut on the right"},
                {0, 70, 21, 100, "cut at the bottom"}, {0, 70, 0, 69, "cut at the top"},
                {22, 41, 25, 60, "cut on all sides"},  {30, 33, 40, 43, "hardly anything left"}};
    for (size_t c = 0; c < sizeof cuts / sizeof *cuts; c++) {
        size_t nx = cuts[c].x1 - cuts[c].x0, ny = cuts[c].y1 - cuts[c].y0;
        small_psf_shape moved = shape;
        scene cut = s, masked = s;
        cut.psf = small_psf(&moved);
        for (size_t f = 0; cut.psf && f < shape.nspec; f++) {
            cut.psf->x.coef[f * shape.ncoef] -= (double)cuts[c].x0;
            cut.psf->y.coef[f * shape.ncoef] -= (double)cuts[c].y0;
        }
        cut.image.nx = nx;
        cut.image.ny = ny;
        cut.image.data = spx_alloc2(ny, nx, sizeof(float), NULL);
        cut.image.ivar = spx_alloc2(ny, nx, sizeof(float), NULL);
        cut.image.mask = NULL; /* a mask may be absent */
        masked.image.mask = spx_alloc2(100, 70, sizeof(uint32_t), NULL);
        if (!cut.psf || !cut.image.data || !cut.image.ivar || !masked.image.mask) {
            CHECK(0, "memory");
            return;
        }
        for (size_t y = 0; y < 100; y++)
            for (size_t x = 0; x < 70; x++) {
                int in = y >= cuts[c].y0 && y < cuts[c].y1 && x >= cuts[c].x0 && x < cuts[c].x1;
                masked.image.mask[y * 70 + x] = in ? 0 : 1;
                if (in) {
                    cut.image.data[(y - cuts[c].y0) * nx + x - cuts[c].x0] = s.image.data[y * 70 + x];
                    cut.image.ivar[(y - cuts[c].y0) * nx + x - cuts[c].x0] = s.image.ivar[y * 70 + x];
                }
            }
        result a = extract(&cut, cuts[c].what);
        if (c < 4) { /* beyond that most of the traces are masked, which is refused */
            result b = extract(&masked, "masked");
            /* the traces' own rounding moves with the corner of the image: not the same to the last bit */
            for (size_t k = 0; a.status == SPX_OK && b.status == SPX_OK && k < 7 * a.frame.arm.nwave; k++)
                CHECK(fabs(a.frame.arm.flux[k] - b.frame.arm.flux[k]) * sqrt(b.frame.arm.ivar[k]) < 1e-5 &&
                          fabs(a.frame.arm.ivar[k] - b.frame.arm.ivar[k]) <= 1e-5 * b.frame.arm.ivar[k] &&
                          fabs(a.frame.pixmask_fraction[k] - b.frame.pixmask_fraction[k]) < 1e-9 &&
                          a.frame.arm.mask[k] == b.frame.arm.mask[k],
                      "%s: bin %zu: %g instead of %g", cuts[c].what, k, a.frame.arm.flux[k], b.frame.arm.flux[k]);
            CHECK(a.counts.nbin_empty > 0 && a.counts.nbin_empty < a.counts.nbin, "%s: %zu of %zu empty", cuts[c].what,
                  a.counts.nbin_empty, a.counts.nbin);
            spx_frame_free(&b.frame);
        }
        if (c == 1) /* fibre 0 is far from the right edge, in another bundle than what is cut */
            CHECK(a.status == SPX_OK && same_rows(&a.frame, 0, &whole.frame, 0, 2), "%s: fibre 0 changed",
                  cuts[c].what);
        spx_frame_free(&a.frame);
        spx_psf_free(cut.psf);
        spx_free(cut.psf);
        spx_free(cut.image.data);
        spx_free(cut.image.ivar);
        spx_free(masked.image.mask);
    }
    spx_frame_free(&whole.frame);
    free_scene(&s);
}

/* Pixels that are not finite or have a negative ivar count as masked, and nothing else changes. */
static void check_bad_pixels(void)
{
    small_psf_shape shape = small_psf_default();
    scene s = make_scene(&shape, 90, 60, 1.0);
    for (size_t y = 0; y < 90; y++) { /* a dead column along fibre 2, and a band over all fibres */
        s.image.mask[y * 60 + 19] = 2;
        for (size_t x = 0; y >= 50 && y < 62 && x < 60; x++)
            s.image.mask[y * 60 + x] |= 16;
    }
    const size_t where[5] = {30 * 60 + 8, 31 * 60 + 14, 32 * 60 + 25, 33 * 60 + 30, 20 * 60 + 36};
    for (size_t k = 0; k < 5; k++)
        s.image.mask[where[k]] = 1;
    result masked = extract(&s, "masked pixels");
    CHECK(masked.counts.npix_masked == 90 + 12 * 59 + 5 && masked.counts.npix_bad == 0, "%zu masked, %zu bad",
          masked.counts.npix_masked, masked.counts.npix_bad);
    CHECK(masked.counts.nbin_empty > 7 * 3 && masked.counts.npatch_failed == 0, "%zu empty", masked.counts.nbin_empty);
    for (size_t k = 0; k < 5; k++)
        s.image.mask[where[k]] = 0;
    s.image.data[where[0]] = NAN;
    s.image.data[where[1]] = INFINITY;
    s.image.ivar[where[2]] = NAN;
    s.image.ivar[where[3]] = -1.0f;
    s.image.ivar[where[4]] = INFINITY;
    result bad = extract(&s, "bad pixels");
    CHECK(bad.counts.npix_masked == 90 + 12 * 59 && bad.counts.npix_bad == 5, "%zu masked, %zu bad",
          bad.counts.npix_masked, bad.counts.npix_bad);
    CHECK(masked.status == SPX_OK && bad.status == SPX_OK && same_rows(&masked.frame, 0, &bad.frame, 0, 7),
          "bad pixels are not the same as masked ones");
    spx_frame_free(&masked.frame);
    spx_frame_free(&bad.frame);
    free_scene(&s);
}

/* A cosmic ray that nobody masked is seen by chi2pix. */
static void check_bad_fit(void)
{
    small_psf_shape shape = small_psf_default();
    scene s = make_scene(&shape, 90, 60, 1.0);
    long y = (long)spx_psf_series_value(&s.psf->y, 3, 5040.0), x = (long)spx_psf_series_value(&s.psf->x, 3, 5040.0);
    s.image.data[y * 60 + x] += 3000.0f;
    result r = extract(&s, "cosmic ray");
    size_t flagged = 0, elsewhere = 0;
    for (size_t k = 0; r.status == SPX_OK && k < 7 * r.frame.arm.nwave; k++)
        if (r.frame.arm.mask[k] & SPX_BAD2DFIT) {
            flagged++;
            size_t f = k / r.frame.arm.nwave, bin = k % r.frame.arm.nwave;
            elsewhere += f < 2 || f > 4 || bin < 30 || bin > 50;
        }
    CHECK(flagged > 0 && elsewhere == 0, "%zu bins flagged, %zu far away", flagged, elsewhere);
    spx_frame_free(&r.frame);
    free_scene(&s);
}

/* Equations without a solution, and a PSF without spots, are flagged and counted; the rest of the frame is kept. */
static void check_failures(void)
{
    small_psf_shape shape = small_psf_default();
    scene s = make_scene(&shape, 90, 60, 1.0);
    for (size_t k = 0; k < 90 * 60; k++)
        s.image.ivar[k] *= 1e9f;
    s.o.wmax = s.o.wmin + 0.2;
    s.o.dw = 0.005; /* 33 bins that share their pixels */
    result r = extract(&s, "no solution");
    CHECK(r.counts.npatch_failed == r.counts.npatch && r.counts.nbin_empty == r.counts.nbin, "%zu of %zu failed",
          r.counts.npatch_failed, r.counts.npatch);
    for (size_t k = 0; r.status == SPX_OK && k < r.counts.nbin; k++)
        CHECK(r.frame.arm.mask[k] == (SPX_ALLBADPIX | SPX_BAD2DFIT), "bin %zu: mask %u", k, r.frame.arm.mask[k]);
    spx_frame_free(&r.frame);
    free_scene(&s);

    s = make_scene(&shape, 90, 60, 1.0);
    result all = extract(&s, "all spots");
    s.psf->coeff[5 * s.psf->ndeg] = -1.0; /* sigma of fibre 5 */
    r = extract(&s, "a fibre without spots");
    CHECK(r.counts.nbin_nospot == r.frame.arm.nwave && r.counts.npatch_failed == 0, "%zu bins without spot",
          r.counts.nbin_nospot);
    CHECK(all.status == SPX_OK && r.status == SPX_OK && same_rows(&all.frame, 0, &r.frame, 0, 4), "other bundle");
    for (size_t k = 0; r.status == SPX_OK && k < r.frame.arm.nwave; k++)
        CHECK(r.frame.arm.mask[5 * r.frame.arm.nwave + k] == (SPX_ALLBADPIX | SPX_SOMEBADPIX) &&
                  r.frame.arm.ivar[4 * r.frame.arm.nwave + k] > 0.0,
              "bin %zu of fibres 4, 5", k);
    spx_frame_free(&r.frame);
    spx_frame_free(&all.frame);
    free_scene(&s);
}

static void check_refusals(void)
{
    small_psf_shape shape = small_psf_default();
    scene good = make_scene(&shape, 90, 60, 1.0);
    const struct {
        int what;
        spx_status want;
        const char *text;
    } cases[] = {{0, SPX_EUSAGE, "{spectra}"},      {1, SPX_EUSAGE, "{spectra}"},
                 {2, SPX_EUSAGE, "{wavelength}"},   {3, SPX_EUSAGE, "{wavelength}"},
                 {4, SPX_EUSAGE, "sub-bundles"},    {5, SPX_EUSAGE, "sub-bundles"},
                 {6, SPX_EUSAGE, "0 bins"},         {7, SPX_EUSAGE, "padding"},
                 {8, SPX_EUSAGE, "regularisation"}, {9, SPX_EINPUT, "{wavelength}"},
                 {10, SPX_EINPUT, "masked"},        {11, SPX_EUSAGE, "unknowns"},
                 {12, SPX_EUSAGE, "{wavelength}"},  {13, SPX_EUSAGE, "{spectra}"},
                 {14, SPX_EUSAGE, "{psf_error}"},   {15, SPX_EUSAGE, "wavelengths: need"}};
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        scene s = good;
        uint32_t *all_masked = NULL;
        switch (cases[c].what) {
        case 0:
            s.o.first = 7;
            break;
        case 1:
            s.o.nspec = 8;
            break;
        case 2:
            s.o.wmax = s.o.wmin - 1.0;
            break;
        case 3:
            s.o.dw = NAN;
            break;
        case 4:
            s.o.sub_bundles = 5;
            break;
        case 5:
            s.o.bundle_size = 0;
            break;
        case 6:
            s.o.wave_step = 0;
            break;
        case 7:
            s.o.pix_pad_frac = 1.5;
            break;
        case 8:
            s.o.regularize = -1.0;
            break;
        case 9:
            s.o.wmin = 6000.0;
            s.o.wmax = 6010.0;
            break;
        case 10:
            all_masked = spx_alloc2(90, 60, sizeof(uint32_t), NULL);
            for (size_t k = 0; all_masked && k < 90 * 60; k++)
                all_masked[k] = k % 41 != 0;
            s.image.mask = all_masked;
            break;
        case 11:
            s.o.wave_step = 20000;
            break;
        case 12:
            s.o.dw = 1e-12;
            break;
        case 13:
            s.o.first = 3;
            s.o.nspec = (size_t)-1;
            break;
        case 14:
            s.o.psf_error = 1e200;
            break;
        case 15:
            s.o.wave_pad = (size_t)-1;
            break;
        }
        spx_frame frame = {0};
        spx_extract_counts counts;
        spx_err e = {0};
        spx_status st = spx_extract_patch_cpu(&s.image, s.psf, &s.o, &frame, &counts, &e);
        CHECK(st == cases[c].want && strstr(spx_err_text(&e), cases[c].text), "case %d: status %d: %s", cases[c].what,
              st, spx_err_text(&e));
        spx_frame_free(&frame);
        spx_free(all_masked);
    }
    free_scene(&good);
}

static void check_scores(void)
{
    double wave[5] = {5798.0, 5800.0, 5802.0, 5804.0, 5806.0}, flux[10] = {1e9, 1, 5, 2, 8, 1e9, -1, -1, -1, 3},
           ivar[10] = {1, 4, 4, 4, 4, 1, 0, 0, 0, 1};
    spx_frame f = {.nspec = 2, .camera = "r3"};
    f.arm.nwave = 5;
    f.arm.wavelength = wave;
    f.arm.flux = flux;
    f.arm.ivar = ivar;
    double sum[4] = {0, 0, SENTINEL, SENTINEL}, median[4] = {0, 0, SENTINEL, SENTINEL},
           snr[4] = {0, 0, SENTINEL, SENTINEL};
    spx_score_range range;
    CHECK(spx_extract_scores(&f, 2, sum, median, snr, &range, NULL) == SPX_OK && strcmp(range.arm, "r") == 0 &&
              range.wlo == 5800.0,
          "range");
    CHECK(sum[0] == 32.0 && median[0] == 3.5 && fabs(snr[0] - 7.0 / sqrt(2.0)) < 1e-15, "fibre 0: %g %g %g", sum[0],
          median[0], snr[0]);
    CHECK(sum[1] == 0.0 && median[1] == -1.0 && snr[1] == 0.0, "fibre 1: %g %g %g", sum[1], median[1], snr[1]);
    CHECK(sum[2] == SENTINEL && median[2] == SENTINEL && snr[2] == SENTINEL, "wrote beyond its memory");
    strcpy(f.camera, "z1"); /* no bin in the range of z: all bins */
    CHECK(spx_extract_scores(&f, 2, sum, median, snr, &range, NULL) == SPX_OK && strcmp(range.arm, "z") == 0 &&
              range.wlo == 5798.0 && sum[0] > 1e9,
          "whole grid");
    strcpy(f.camera, "red1"); /* no range of its own, and not that of r */
    CHECK(spx_extract_scores(&f, 2, sum, median, snr, &range, NULL) == SPX_OK && strcmp(range.arm, "red") == 0 &&
              range.wlo == 5798.0,
          "%s from %g", range.arm, range.wlo);
    static const struct {
        const char *camera, *arm;
        double wavelength;
    } arms[] = {{"", "b", 4000}, {"", "z", 9000}, {"x2", "x", 7000}, {"b9", "b", 9000}, {"rnir", "rnir", 7000}};
    for (size_t i = 0; i < sizeof arms / sizeof *arms; i++) {
        char arm[SPX_ARM_NAME];
        spx_extract_arm(arms[i].camera, arms[i].wavelength, arm);
        CHECK(strcmp(arm, arms[i].arm) == 0, "camera '%s': arm %s", arms[i].camera, arm);
    }
}

int main(void)
{
    check_dense(0);
    check_dense(1);
    check_statistics();
    check_subsets();
    check_edges();
    check_bad_pixels();
    check_bad_fit();
    check_failures();
    check_refusals();
    check_scores();
    return failures != 0;
}
