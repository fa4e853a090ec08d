/* Checks the rejection of cosmic-ray hits and the variance of the model against plain loops with dense algebra on small
 * frames, and what holds whatever is rejected: the rest of the frame is that of an extraction with these pixels masked,
 * to the last bit, for any number of threads. */
#include "device.h"
#include "extract/trace/reject_math.h"
#include "extract_scene.h"

static spx_backend backend;

/* On the CPU, or the device that is tested. */
static result extract_there(const scene *s, const char *what)
{
    result r = {0};
    r.status = backend.extract(&backend, &s->image, s->psf, &s->o, &r.frame, &r.counts, &r.e);
    CHECK(r.status == SPX_OK, "%s: %s", what, spx_err_text(&r.e));
    return r;
}

enum { SEEN = 1, HIT = 2, STRONG = 4, USED = 8, INNER = 16 };

static spx_sim_noise noise_of(uint64_t from, double cosmics)
{
    return (spx_sim_noise){
        .seed = from, .camera = 'r', .photon_noise = 1, .readnoise = 3.0, .fullwell = 1e6, .cosmics = cosmics};
}

static scene make_hit(uint64_t from, double cosmics, double pitch)
{
    small_psf_shape shape = small_psf_default();
    shape.pitch = pitch;
    const spx_sim_noise noise = noise_of(from, cosmics);
    scene s = expose_scene(small_psf(&shape), 90, 60, shape.wmin, shape.wmax, STEP, &noise);
    for (size_t i = 0; i < s.image.ny * s.image.nx; i++) /* nobody has flagged them */
        s.image.mask[i] = 0;
    return s;
}

/* The same with two bundles whose spots have no pixel in common: no hit of one matters for the other. */
static scene make_apart(uint64_t from, double cosmics)
{
    small_psf_shape shape = small_psf_default();
    const spx_sim_noise noise = noise_of(from, cosmics);
    const size_t half = shape.nspec / 2;
    shape.pitch = 7.0;
    spx_psf *psf = small_psf(&shape);
    for (size_t f = half; f < shape.nspec; f++)
        psf->x.coef[f * psf->x.ncoef] += 25.0;
    scene s = expose_scene(psf, 90, 85, shape.wmin, shape.wmax, STEP, &noise);
    memset(s.image.mask, 0, s.image.ny * s.image.nx * sizeof *s.image.mask);
    s.o.bundle_size = half;
    return s;
}

/* ---- a bundle, by dense algebra: A is stored, and every round solves for all bins with all pixels ---- */

typedef struct {
    const scene *s;
    size_t n, nb, nf, npix;
    column *c;            /* [n] */
    double *a;            /* [npix][n] */
    double *x, *model;    /* [n], [npix] */
    double *m;            /* [n][n] */
    double *seen, *whole; /* [n] part of the spot on pixels with weight, and without rejection */
    double *light;        /* [n] sum of weights, and the diagonal of M, without rejection */
    double *first;
    double *free; /* [npix] 1 - w a^T C a, C the inverse of the blocks of single fibres */
    unsigned char *flag;
} plain;

static double plain_weight(const plain *d, size_t i)
{
    return d->flag[i] & HIT ? 0.0 : weight_of(&d->s->image, (long)(i / d->s->image.nx), (long)(i % d->s->image.nx));
}

/* Flux and model; tied: with bins that have lost 30 % of their light tied to the next. */
static void plain_solve(plain *d, int first)
{
    const size_t n = d->n;
    double most = 0.0, *w = spx_alloc(n, sizeof *w, NULL);
    memset(d->m, 0, n * n * sizeof *d->m);
    memset(d->x, 0, n * sizeof *d->x);
    memset(d->seen, 0, n * sizeof *d->seen);
    for (size_t q = 0; q < d->npix; q++) {
        const double weight = plain_weight(d, q), *row = d->a + q * n;
        if (!(weight > 0.0) || !(d->flag[q] & USED))
            continue;
        for (size_t i = 0; i < n; i++) {
            if (row[i] == 0.0)
                continue;
            d->seen[i] += row[i];
            w[i] += weight * row[i];
            d->x[i] += weight * row[i] * (double)d->s->image.data[q];
            for (size_t j = 0; j < n; j++)
                d->m[i * n + j] += weight * row[i] * row[j];
        }
    }
    for (size_t i = 0; i < n; i++) {
        most = fmax(most, w[i]);
        if (first) {
            d->whole[i] = d->seen[i];
            d->first[i] = d->m[i * n + i];
        }
    }
    for (size_t i = 0; i < n; i++) {
        const double alpha = w[i] < 1e-4 * most ? 1e-4 * most - w[i] : 0.0;
        d->m[i * n + i] += alpha * alpha + 1e-15;
    }
    for (size_t i = 0; i + 1 < n; i++)
        if ((i + 1) % d->nb != 0 && (d->seen[i] < 0.7 * d->whole[i] || d->seen[i + 1] < 0.7 * d->whole[i + 1])) {
            const double t = 4e-2 * d->first[i];
            d->m[i * n + i] += t;
            d->m[(i + 1) * n + i + 1] += t;
            d->m[i * n + i + 1] -= t;
            d->m[(i + 1) * n + i] -= t;
        }
    CHECK(LAPACKE_dposv(LAPACK_COL_MAJOR, 'L', (lapack_int)n, 1, d->m, (lapack_int)n, d->x, (lapack_int)n) == 0,
          "dense equations");
    for (size_t q = 0; q < d->npix; q++) {
        d->model[q] = 0.0;
        for (size_t i = 0; i < n; i++)
            d->model[q] += d->a[q * n + i] * d->x[i];
    }
    spx_free(w);
}

static void plain_leverage(plain *d)
{
    const size_t nb = d->nb;
    double *block = spx_alloc2(nb, nb, sizeof *block, NULL), *c = spx_alloc2(nb, nb, sizeof *c, NULL);
    for (size_t q = 0; q < d->npix; q++)
        d->free[q] = 1.0;
    for (size_t f = 0; f < d->nf; f++) {
        double most = 0.0, *w = spx_alloc(d->n, sizeof *w, NULL);
        memset(block, 0, nb * nb * sizeof *block);
        memset(c, 0, nb * nb * sizeof *c);
        for (size_t q = 0; q < d->npix; q++)
            for (size_t i = 0; i < d->n && (d->flag[q] & USED); i++)
                w[i] += plain_weight(d, q) * d->a[q * d->n + i];
        for (size_t i = 0; i < d->n; i++)
            most = fmax(most, w[i]);
        for (size_t i = 0; i < nb; i++) {
            for (size_t q = 0; q < d->npix; q++)
                for (size_t j = 0; j < nb && (d->flag[q] & USED); j++)
                    block[i * nb + j] += plain_weight(d, q) * d->a[q * d->n + f * nb + i] * d->a[q * d->n + f * nb + j];
            const double alpha = w[f * nb + i] < 1e-4 * most ? 1e-4 * most - w[f * nb + i] : 0.0;
            block[i * nb + i] += alpha * alpha + 1e-15;
            c[i * nb + i] = 1.0;
        }
        CHECK(LAPACKE_dposv(LAPACK_COL_MAJOR, 'L', (lapack_int)nb, (lapack_int)nb, block, (lapack_int)nb, c,
                            (lapack_int)nb) == 0,
              "leverage");
        for (size_t q = 0; q < d->npix; q++)
            for (size_t i = 0; i < nb; i++)
                for (size_t j = 0; j < nb && d->a[q * d->n + f * nb + i] != 0.0; j++)
                    d->free[q] -=
                        plain_weight(d, q) * d->a[q * d->n + f * nb + i] * c[i * nb + j] * d->a[q * d->n + f * nb + j];
        spx_free(w);
    }
    for (size_t q = 0; q < d->npix; q++)
        d->free[q] = fmax(d->free[q], 0.1);
    spx_free(block);
    spx_free(c);
}

static int plain_is(const plain *d, long y, long x, int flag)
{
    return y >= 0 && x >= 0 && y < (long)d->s->image.ny && x < (long)d->s->image.nx &&
           (d->flag[(size_t)y * d->s->image.nx + (size_t)x] & flag) != 0;
}

/* Beside the CCD there is a model, too. */
static double plain_model(const plain *d, long y, long x)
{
    const long nx = spx_psf_nx(d->s->psf), ny = spx_psf_ny(d->s->psf);
    if (y >= 0 && x >= 0 && y < (long)d->s->image.ny && x < (long)d->s->image.nx)
        return d->model[(size_t)y * d->s->image.nx + (size_t)x];
    double sum = 0.0;
    for (size_t i = 0; i < d->n; i++) {
        const long row = y - d->c[i].at.yc, col = x - d->c[i].at.xc;
        if (row >= 0 && row < ny && col >= 0 && col < nx)
            sum += d->x[i] * d->c[i].spot[row * nx + col];
    }
    return sum;
}

static double plain_excess(const plain *d, long y, long x)
{
    const double m = plain_model(d, y, x);
    const double v = (plain_is(d, y, x, HIT) ? 1.0 : d->free[(size_t)y * d->s->image.nx + (size_t)x]) /
                     weight_of(&d->s->image, y, x);
    const double gx = (plain_model(d, y, x + 1) - plain_model(d, y, x - 1)) / 2.0;
    const double gy = (plain_model(d, y + 1, x) - plain_model(d, y - 1, x)) / 2.0;
    return ((double)d->s->image.data[(size_t)y * d->s->image.nx + (size_t)x] - m) /
           sqrt(v + 0.02 * m * 0.02 * m + 0.05 * 0.05 * (gx * gx + gy * gy));
}

static int plain_beside(const plain *d, long y, long x, int flag, int eight)
{
    int some = 0;
    for (long j = -1; j <= 1; j++)
        for (long i = -1; i <= 1; i++)
            some |= (eight || i == 0 || j == 0) && plain_is(d, y + j, x + i, flag);
    return some;
}

/* Rounds until there are no new pixels; returns whether there were some. */
static int plain_converge(plain *d, double sigma)
{
    int some = 0;
    for (size_t found = 1; found > 0;) {
        unsigned char *new = spx_alloc(d->npix, 1, NULL);
        found = 0;
        for (size_t q = 0; q < d->npix; q++) {
            const long y = (long)(q / d->s->image.nx), x = (long)(q % d->s->image.nx);
            double worst = 0.0;
            if ((d->flag[q] & (SEEN | HIT)) != SEEN)
                continue;
            const double z = plain_excess(d, y, x);
            for (long j = y - 2; j <= y + 2; j++)
                for (long i = x - 2; i <= x + 2; i++)
                    if (plain_is(d, j, i, SEEN) && !plain_is(d, j, i, HIT))
                        worst = fmax(worst, plain_excess(d, j, i));
            const double m = fmax(d->model[q], 0.0), v = 1.0 / weight_of(&d->s->image, y, x);
            if ((z > sigma + m / pow(v, 1.5) * (sigma * sigma - 1.0) / 6.0 ||
                 (z > 3.0 && plain_beside(d, y, x, STRONG, 1))) &&
                z >= 0.25 * worst)
                found += new[q] = z > 10.0 ? HIT | STRONG : HIT;
        }
        for (size_t q = 0; q < d->npix; q++)
            d->flag[q] |= new[q];
        spx_free(new);
        if (found > 0) {
            some = 1;
            plain_solve(d, 0);
        }
    }
    return some;
}

static void plain_reject(plain *d, double sigma)
{
    plain_leverage(d);
    plain_solve(d, 1);
    if (!plain_converge(d, sigma))
        return;
    for (int chance = 0; chance < 2; chance++) {
        size_t back = 0;
        unsigned char *comes = spx_alloc(d->npix, 1, NULL);
        for (size_t q = 0; q < d->npix; q++)
            if (d->flag[q] & HIT) {
                const int strong = plain_excess(d, (long)(q / d->s->image.nx), (long)(q % d->s->image.nx)) > 10.0;
                d->flag[q] = (unsigned char)((d->flag[q] & ~STRONG) | (strong ? STRONG : 0));
            }
        for (size_t q = 0; q < d->npix; q++) {
            const long y = (long)(q / d->s->image.nx), x = (long)(q % d->s->image.nx);
            if (d->flag[q] & HIT)
                back += comes[q] = plain_excess(d, y, x) < (plain_beside(d, y, x, STRONG, 1) ? 2.0 : 0.8 * sigma);
        }
        for (size_t q = 0; q < d->npix; q++)
            d->flag[q] &= (unsigned char)(comes[q] ? ~(HIT | STRONG) : ~0);
        spx_free(comes);
        if (back == 0)
            break;
        plain_solve(d, 0);
        (void)plain_converge(d, sigma);
    }
    unsigned char *spilled = spx_alloc(d->npix, 1, NULL);
    for (size_t q = 0; q < d->npix; q++)
        spilled[q] = (d->flag[q] & (SEEN | HIT)) == SEEN &&
                     plain_beside(d, (long)(q / d->s->image.nx), (long)(q % d->s->image.nx), STRONG, 0);
    for (size_t q = 0; q < d->npix; q++)
        d->flag[q] |= spilled[q] ? HIT : 0;
    for (size_t q = 0; q < d->npix; q++)
        d->flag[q] &= (unsigned char)(d->flag[q] & INNER ? ~0 : ~HIT);
    spx_free(spilled);
}

static plain plain_bundle(const scene *s, size_t fibre0, size_t nf)
{
    const size_t nwave = spx_extract_nwave(&s->o), pad = s->o.wave_pad, nb = nwave + 2 * pad;
    const size_t npix = s->image.ny * s->image.nx, n = nf * nb;
    const long nx = spx_psf_nx(s->psf), ny = spx_psf_ny(s->psf);
    plain d = {.s = s, .n = n, .nb = nb, .nf = nf, .npix = npix};
    long in0 = 1 << 30, in1 = -in0, all0 = in0, all1 = -in0;
    d.a = spx_alloc2(npix, n, sizeof *d.a, NULL);
    d.m = spx_alloc2(n, n, sizeof *d.m, NULL);
    d.x = spx_alloc2(4, n, sizeof *d.x, NULL);
    d.model = spx_alloc2(2, npix, sizeof *d.model, NULL);
    d.flag = spx_alloc(npix, 1, NULL);
    column *c = d.c = spx_alloc(n, sizeof *c, NULL);
    if (!d.a || !d.m || !d.x || !d.model || !d.flag || !c) {
        CHECK(0, "memory");
        return d;
    }
    d.free = d.model + npix;
    d.seen = d.x + n;
    d.whole = d.seen + n;
    d.first = d.whole + n;
    for (size_t i = 0; i < n; i++) {
        double work[1000];
        const long k = (long)(i % nb) - (long)pad;
        CHECK(spx_psf_spot(s->psf, fibre0 + i / nb, spx_extract_lambda(&s->o, k), work, c[i].spot, &c[i].at) ==
                  SPX_SPOT_OK,
              "spot");
        all0 = c[i].at.yc < all0 ? c[i].at.yc : all0;
        all1 = c[i].at.yc + ny > all1 ? c[i].at.yc + ny : all1;
        if (k >= 0 && k < (long)nwave) {
            in0 = c[i].at.yc < in0 ? c[i].at.yc : in0;
            in1 = c[i].at.yc + ny > in1 ? c[i].at.yc + ny : in1;
        }
    }
    const double fraction = s->o.pix_pad_frac;
    const long y0 = all0 + (long)((double)(in0 - all0) * (1.0 - fraction));
    const long y1 = all0 + (long)((double)(in1 - all0) + (double)(all1 - in1) * fraction);
    for (size_t i = 0; i < n; i++)
        for (long row = c[i].at.yc; row < c[i].at.yc + ny; row++)
            for (long col = c[i].at.xc; col < c[i].at.xc + nx; col++)
                if (row >= 0 && row < (long)s->image.ny && col >= 0 && col < (long)s->image.nx) {
                    const size_t q = (size_t)row * s->image.nx + (size_t)col;
                    d.a[q * n + i] = c[i].spot[(row - c[i].at.yc) * nx + col - c[i].at.xc];
                    if (row >= y0 && row < y1 && weight_of(&s->image, row, col) > 0.0)
                        d.flag[q] |= (unsigned char)(USED | (i % nb >= pad / 4 && i % nb < nb - pad / 4 ? SEEN : 0) |
                                                     (i % nb >= pad / 2 && i % nb < nb - pad / 2 ? INNER : 0));
                }
    return d;
}

static void plain_free(plain *d)
{
    spx_free(d->c);
    spx_free(d->a);
    spx_free(d->m);
    spx_free(d->x);
    spx_free(d->model);
    spx_free(d->flag);
}

/* ---- checks ---- */

/* The same pixels as by dense algebra. No excess of these scenes is so close to a threshold that the 1e-2 of an error
 * to which a round solves could decide. */
static void check_pixels(uint64_t from, double cosmics, double pitch)
{
    scene s = make_hit(from, cosmics, pitch);
    s.o.reject = 5.0;
    result r = extract_there(&s, "hits");
    const size_t npix = s.image.ny * s.image.nx;
    unsigned char *want = spx_alloc(npix, 1, NULL), *got = spx_alloc(npix, 1, NULL);
    size_t nwant = 0, differ = 0;
    for (size_t f = 0; f < s.o.nspec; f += s.o.bundle_size) {
        const size_t nf = s.o.nspec - f < s.o.bundle_size ? s.o.nspec - f : s.o.bundle_size;
        plain d = plain_bundle(&s, f, nf);
        plain_reject(&d, 5.0);
        for (size_t q = 0; q < npix; q++)
            want[q] |= (d.flag[q] & HIT) != 0;
        plain_free(&d);
    }
    for (size_t j = 0; j < r.frame.ncosmic; j++)
        got[(size_t)r.frame.cosmic_pixels[2 * j] * s.image.nx + (size_t)r.frame.cosmic_pixels[2 * j + 1]] = 1;
    for (size_t q = 0; q < npix; q++) {
        nwant += want[q];
        differ += want[q] != got[q];
    }
    CHECK(differ == 0 && nwant == r.frame.ncosmic && r.counts.npix_rejected == nwant,
          "seed %llu, pitch %g: %zu pixels rejected, %zu by dense algebra, %zu differ", (unsigned long long)from, pitch,
          r.frame.ncosmic, nwant, differ);
    CHECK(cosmics == 0 || nwant > 20, "seed %llu: hardly a hit: %zu", (unsigned long long)from, nwant);
    spx_free(want);
    spx_free(got);
    spx_frame_free(&r.frame);
    free_scene(&s);
}

static size_t count_bits(const spx_frame *f, uint32_t bit)
{
    size_t n = 0;
    for (size_t i = 0; i < f->nspec * f->arm.nwave; i++)
        n += (f->arm.mask[i] & bit) != 0;
    return n;
}

/* Without hits nothing is changed; with hits the frame is that of an image in which they are masked, but for COSMIC. */
static void check_frame(scene *s, const char *what)
{
    s->o.reject = 5.0;
    s->o.nthreads = 1;
    result r = extract_there(s, what);
    s->o.nthreads = 3;
    result three = extract_there(s, what);
    s->o.reject = 0.0;
    const size_t n = r.frame.nspec * r.frame.arm.nwave;
    CHECK(r.frame.ncosmic == three.frame.ncosmic && same_rows(&r.frame, 0, &three.frame, 0, s->o.nspec) &&
              memcmp(r.frame.arm.mask, three.frame.arm.mask, n * sizeof(uint32_t)) == 0 &&
              (r.frame.ncosmic == 0 ||
               memcmp(r.frame.cosmic_pixels, three.frame.cosmic_pixels, 2 * r.frame.ncosmic * sizeof(int32_t)) == 0),
          "%s: depends on the number of threads", what);
    for (size_t j = 0; j < r.frame.ncosmic; j++)
        s->image.mask[(size_t)r.frame.cosmic_pixels[2 * j] * s->image.nx + (size_t)r.frame.cosmic_pixels[2 * j + 1]] |=
            SPX_CCD_COSMIC;
    result masked = extract_there(s, what);
    size_t wrong = 0;
    const size_t cosmic = count_bits(&r.frame, SPX_COSMIC);
    for (size_t i = 0; i < n; i++) {
        const uint32_t bits = r.frame.arm.mask[i];
        wrong += (bits & ~(uint32_t)SPX_COSMIC) != masked.frame.arm.mask[i];
        r.frame.arm.mask[i] = masked.frame.arm.mask[i];
    }
    CHECK(wrong == 0 && same_rows(&r.frame, 0, &masked.frame, 0, s->o.nspec),
          "%s: not the frame of an image in which the pixels are masked", what);
    CHECK(cosmic == r.counts.nbin_cosmic && (cosmic == 0 || r.frame.ncosmic > 0) &&
              masked.counts.npix_masked == r.counts.npix_masked + r.frame.ncosmic,
          "%s: %zu bins COSMIC, %zu counted, %zu pixels", what, cosmic, r.counts.nbin_cosmic, r.frame.ncosmic);
    spx_frame_free(&r.frame);
    spx_frame_free(&three.frame);
    spx_frame_free(&masked.frame);
}

static void check_frames(void)
{
    scene s = make_hit(seed, 0.0, 7.0);
    check_frame(&s, "no hits");
    s.o.reject = 5.0;
    result r = extract_there(&s, "no hits");
    CHECK(r.frame.ncosmic == 0 && r.frame.cosmic_pixels == NULL, "no hits: %zu pixels rejected", r.frame.ncosmic);
    spx_frame_free(&r.frame);
    free_scene(&s);

    s = make_hit(seed + 1, 3000.0, 7.0);
    check_frame(&s, "hits");
    free_scene(&s);

    s = make_hit(seed + 2, 3000.0, 7.0);
    s.o.dw = 0.7; /* bins narrower than the PSF */
    check_frame(&s, "narrow bins");
    free_scene(&s);

    s = make_hit(seed + 3, 3000.0, 1.5);
    s.o.bundle_size = 7;
    check_frame(&s, "traces on each other");
    free_scene(&s);

    s = make_hit(seed + 4, 3000.0, 7.0);
    add_masks(&s);
    check_frame(&s, "masks, NaN");
    for (size_t i = 0; i < s.image.ny * s.image.nx; i++) /* the first bundle has nothing */
        if (i % s.image.nx < 30)
            s.image.mask[i] = 1;
    check_frame(&s, "a bundle without pixels");
    for (size_t i = 0; i < s.image.ny * s.image.nx; i++) /* one row is left */
        s.image.mask[i] = i / s.image.nx == 45 ? 0 : i / s.image.nx % 8 != 0;
    check_frame(&s, "few rows");
    free_scene(&s);

    s = make_apart(seed + 6, 3000.0);
    check_frame(&s, "bundles apart");
    memset(s.image.mask, 0, s.image.ny * s.image.nx * sizeof *s.image.mask);
    s.o.dw = 0.7;
    check_frame(&s, "bundles apart, narrow bins");
    free_scene(&s);

    s = make_hit(seed + 5, 60000.0, 7.0); /* hardly a pixel is not hit */
    check_frame(&s, "hits everywhere");
    free_scene(&s);
}

/* Weights by the model of a dense solution whose spectra are smoothed, given as ivar of an image: the same frame. A
 * weight in single precision may differ in its last bit, 6e-8. */
static void check_variance(double pitch)
{
    scene s = make_hit(seed + 6, 0.0, pitch), t = make_hit(seed + 6, 0.0, pitch);
    const size_t npix = s.image.ny * s.image.nx, nx = s.image.nx;
    for (size_t i = 0; i < npix; i++) { /* variance of the noisy pixels */
        const double v = 9.0 + fmax((double)s.image.data[i], 0.0);
        s.image.ivar[i] = t.image.ivar[i] = (float)(1.0 / v);
    }
    double *light = spx_alloc(npix, sizeof *light, NULL);
    for (size_t f = 0; f < s.o.nspec; f += s.o.bundle_size) {
        const size_t nf = s.o.nspec - f < s.o.bundle_size ? s.o.nspec - f : s.o.bundle_size;
        plain d = plain_bundle(&s, f, nf);
        plain_solve(&d, 1);
        /* errors with the neighbours known: those of the fibre's own block */
        double *block = spx_alloc2(d.nb, d.nb, sizeof *block, NULL);
        double *smooth = spx_alloc(d.n, sizeof *smooth, NULL);
        double *variance = spx_alloc2(2, d.nb, sizeof *variance, NULL), *column_of = variance + d.nb;
        plain again = plain_bundle(&s, f, nf);
        memset(again.m, 0, d.n * d.n * sizeof *again.m);
        for (size_t q = 0; q < npix; q++)
            for (size_t i = 0; i < d.n && (d.flag[q] & USED); i++)
                for (size_t j = 0; j < d.n && d.a[q * d.n + i] != 0.0; j++)
                    again.m[i * d.n + j] += plain_weight(&d, q) * d.a[q * d.n + i] * d.a[q * d.n + j];
        for (size_t g = 0; g < nf; g++) {
            for (size_t i = 0; i < d.nb; i++)
                for (size_t j = 0; j < d.nb; j++)
                    block[i * d.nb + j] = again.m[(g * d.nb + i) * d.n + g * d.nb + j] + (i == j ? 1e-15 : 0.0);
            lapack_int info = LAPACKE_dpotrf(LAPACK_COL_MAJOR, 'L', (lapack_int)d.nb, block, (lapack_int)d.nb);
            for (size_t k = 0; k < d.nb; k++) {
                memset(column_of, 0, d.nb * sizeof *column_of);
                column_of[k] = 1.0;
                info |= LAPACKE_dpotrs(LAPACK_COL_MAJOR, 'L', (lapack_int)d.nb, 1, block, (lapack_int)d.nb, column_of,
                                       (lapack_int)d.nb);
                variance[k] = column_of[k];
            }
            CHECK(info == 0, "inverse");
            for (size_t k = 0; k < d.nb; k++) {
                double v[31], middle;
                int count = 0, below = 0;
                for (long j = (long)k - 15; j <= (long)k + 15; j++)
                    if (j >= 0 && j < (long)d.nb && d.seen[g * d.nb + (size_t)j] > 0.0)
                        v[count++] = d.x[g * d.nb + (size_t)j];
                for (int i = 0; i < count; i++) /* insertion */
                    for (int j = i; j > 0 && v[j] < v[j - 1]; j--) {
                        const double swap = v[j];
                        v[j] = v[j - 1];
                        v[j - 1] = swap;
                    }
                below = (count - 1) / 2;
                middle = count % 2 ? v[below] : 0.5 * (v[below] + v[below + 1]);
                const double flux = d.x[g * d.nb + k];
                smooth[g * d.nb + k] = fabs(flux - middle) < 4.0 * sqrt(variance[k]) ? middle : flux;
            }
        }
        for (size_t q = 0; q < npix; q++)
            for (size_t i = 0; i < d.n; i++)
                light[q] += d.a[q * d.n + i] * smooth[i];
        spx_free(block);
        spx_free(smooth);
        spx_free(variance);
        plain_free(&again);
        plain_free(&d);
    }
    for (size_t q = 0; q < npix; q++)
        t.image.ivar[q] = (float)(1.0 / (9.0 + fmax(light[q], 0.0)));
    s.o.variance = SPX_VARIANCE_MODEL;
    CHECK(s.image.readnoise && s.image.readnoise[nx] == 3.0f, "read noise");
    result a = extract_there(&s, "variance of the model"), b = extract_there(&t, "variance of the model");
    double flux = 0.0, ivar = 0.0;
    for (size_t i = 0; i < a.frame.nspec * a.frame.arm.nwave; i++) {
        flux = fmax(flux, fabs(a.frame.arm.flux[i] - b.frame.arm.flux[i]) * sqrt(b.frame.arm.ivar[i]));
        ivar = fmax(ivar, fabs(a.frame.arm.ivar[i] / b.frame.arm.ivar[i] - 1.0));
    }
    CHECK(flux < 1e-5 && ivar < 1e-6, "pitch %g: flux %.2g sigma, ivar %.2g from dense algebra", pitch, flux, ivar);
    s.o.nthreads = 3;
    result c = extract_there(&s, "variance of the model");
    CHECK(same_rows(&a.frame, 0, &c.frame, 0, s.o.nspec), "variance of the model: depends on the number of threads");
    spx_frame_free(&a.frame);
    spx_frame_free(&b.frame);
    spx_frame_free(&c.frame);
    s.image.readnoise[45 * nx + 20] = NAN; /* pixels without read noise are not used */
    s.image.readnoise[45 * nx + 21] = 0.0f;
    s.o.reject = 5.0;
    a = extract_there(&s, "read noise that is none");
    CHECK(a.counts.npix_bad == 2, "%zu pixels without read noise", a.counts.npix_bad);
    spx_frame_free(&a.frame);
    spx_free(light);
    free_scene(&s);
    free_scene(&t);
}

static void check_refusals(void)
{
    scene s = make_hit(seed, 0.0, 7.0);
    const struct {
        double reject;
        spx_variance variance;
        spx_extract_method method;
        int noise;
        spx_status want;
        const char *text;
    } cases[] = {{-1.0, SPX_VARIANCE_DATA, SPX_METHOD_TRACE, 1, SPX_EUSAGE, "must not be negative"},
                 {NAN, SPX_VARIANCE_DATA, SPX_METHOD_TRACE, 1, SPX_EUSAGE, "must not be negative"},
                 {5.0, SPX_VARIANCE_DATA, SPX_METHOD_PATCH, 1, SPX_EUSAGE, "patches"},
                 {0.0, SPX_VARIANCE_MODEL, SPX_METHOD_PATCH, 1, SPX_EUSAGE, "patches"},
                 {0.0, SPX_VARIANCE_MODEL, SPX_METHOD_TRACE, 0, SPX_EINPUT, "readnoise"}};
    float *noise = s.image.readnoise;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        spx_frame out = {0};
        spx_extract_counts counts;
        spx_err e = {0};
        s.o.reject = cases[i].reject;
        s.o.variance = cases[i].variance;
        s.o.method = cases[i].method;
        s.image.readnoise = cases[i].noise ? noise : NULL;
        const spx_status st = spx_extract_cpu(&s.image, s.psf, &s.o, &out, &counts, &e);
        CHECK(st == cases[i].want && strstr(spx_err_text(&e), cases[i].text), "case %zu: %d: %s", i, (int)st,
              spx_err_text(&e));
        spx_frame_free(&out);
    }
    s.image.readnoise = noise;
    free_scene(&s);
}

int main(void)
{
    open_device(&backend, SPX_OP_EXTRACT);
    for (uint64_t i = 0; i < 4; i++)
        check_pixels(seed + i, 3000.0, i % 2 ? 5.6 : 7.0);
    check_pixels(seed, 0.0, 7.0);
    check_frames();
    check_variance(7.0);
    check_variance(5.6);
    check_refusals();
    spx_backend_close(&backend);
    return failures != 0;
}
