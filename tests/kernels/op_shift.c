/* Cases of the operation `shift`: what an image says of the place and the width of its traces, against dense algebra
 * with all of A, and derivatives by differences. Sizes: columns between the fibres in tenths, fibres, 1: pixels masked,
 * 2: spots lean (TILT), 3: one bundle of all fibres, 4: fluxes held in F, electrons of the brightest lines in thousands
 * (0: no light).
 *
 * Tolerance: 1e-4 of F, where the iteration ends that projects out the fluxes of fibres on each other (1e-8 of a
 * square, its root of a product), and 1e-5 of what g scatters by, sqrt(F). The reference's differences of 1e-4 pixel
 * have errors of 1e-8 relative, in sums of opposite signs. */
#include "calib/bordered.h"
#include "device.h"
#include "extract_exposure.h"
#include "op.h"
#include "psf/psf_math.h"

enum { NWINDOW = 2 };

static const op_case cases[] = {
    {"five fibres", {70, 5, 0, 1}},         {"one fibre", {70, 1, 0, 1}},
    {"fibres that overlap", {45, 5, 0, 1}}, {"two bundles, masked: a dead column, a gap, NaN", {60, 6, 1, 1}},
    {"spots that lean", {60, 5, 2, 1}},     {"no light", {70, 5, 0, 0}},
    {"ten that overlap", {42, 10, 3, 1}},   {"fluxes held", {45, 5, 4, 1}},
};

typedef struct {
    scene s;
    double first[NWINDOW], last[NWINDOW];
    spx_motion_options o;
} motion_scene;

static void *draw(const size_t *size, uint64_t from)
{
    motion_scene *m = need(1, sizeof *m);
    small_psf_shape shape = small_psf_default();
    const spx_sim_noise noise = {.seed = from, .camera = 'r', .photon_noise = 1, .readnoise = 3.0, .fullwell = 1e6};
    shape.pitch = 0.1 * (double)size[0];
    shape.nspec = size[1];
    shape.sigy = 0.9;
    spx_psf *psf = small_psf(&shape);
    if (size[2] == 2) {
        memcpy(psf->param[psf->npar - 1], "TILT", sizeof "TILT");
        for (size_t f = 0; f < psf->nspec; f++)
            psf->coeff[((psf->npar - 1) * psf->nspec + f) * psf->ndeg] = 0.12;
        CHECK(spx_psf_index(psf, NULL) == SPX_OK, "index");
    }
    m->s = expose_scene(psf, 90, 60, shape.wmin, shape.wmax, 1.2, &noise);
    const size_t npix = m->s.image.ny * m->s.image.nx;
    for (size_t i = 0; i < npix && size[3] == 0; i++) {
        m->s.image.data[i] = (float)(i % 2 ? 2.5 : -2.5);
        m->s.image.ivar[i] = 1.0f / 9;
    }
    for (size_t y = 0; y < 90 && size[2] == 1; y++)
        for (size_t x = 0; x < 60; x++) {
            const size_t i = y * 60 + x;
            m->s.image.mask[i] |= x == 14 || (y > 24 && y < 28);
            if (y == 60 && x % 7 == 0)
                m->s.image.data[i] = NAN;
        }
    m->first[0] = 5003;
    m->last[0] = 5036.6;
    m->first[1] = 5045;
    m->last[1] = 5076.2;
    m->o = (spx_motion_options){.nwindow = NWINDOW,
                                .first = m->first,
                                .last = m->last,
                                .dw = 1.2,
                                .bundle_size = size[2] == 3 ? size[1] : 4,
                                .rough = size[2] == 4,
                                .nthreads = 1};
    op_const("image", m->s.image.data, npix, sizeof *m->s.image.data);
    op_const("ivar", m->s.image.ivar, npix, sizeof *m->s.image.ivar);
    return m;
}

/* F, F with the next fibre, g, wavelengths, chi^2 as parts. */
static void put(const motion_scene *m, const spx_motion_row *row, const spx_motion_fit *fit, op_answer *a)
{
    const size_t n = NWINDOW * m->s.psf->nspec, nfit = NWINDOW * spx_motion_bundles(m->s.psf, &m->o);
    double *of_fisher, *of_next, *of_gradient, *scale;
    double *fisher = op_add(a, "fisher", 3 * n, 1e-4, &of_fisher), *next = op_add(a, "next", 4 * n, 1e-4, &of_next);
    double *gradient = op_add(a, "gradient", 2 * n, 1e-5, &of_gradient);
    for (size_t i = 0; i < n; i++) {
        const double both = fmax(row[i].fisher[0], row[i].fisher[2]);
        for (size_t k = 0; k < 3; k++) {
            fisher[3 * i + k] = row[i].fisher[k];
            of_fisher[3 * i + k] = both;
        }
        for (size_t k = 0; k < 4; k++) {
            next[4 * i + k] = row[i].next[k];
            of_next[4 * i + k] = both;
        }
        for (size_t k = 0; k < 2; k++) {
            gradient[2 * i + k] = row[i].gradient[k];
            of_gradient[2 * i + k] = sqrt(both);
        }
    }
    double *wavelength = op_add(a, "wavelength", n, 1e-6, NULL);
    for (size_t i = 0; i < n; i++)
        wavelength[i] = row[i].wavelength;
    double *chi2 = op_add(a, "chi2", 3 * nfit, 1e-8, &scale);
    for (size_t i = 0; i < nfit; i++) {
        chi2[3 * i] = fit[i].chi2;
        chi2[3 * i + 1] = fit[i].npix;
        chi2[3 * i + 2] = fit[i].nflux;
        scale[3 * i] = scale[3 * i + 1] = scale[3 * i + 2] = fit[i].npix;
    }
}

static void run(spx_backend *b, void *scene_, int threads, op_answer *a)
{
    const motion_scene *m = scene_;
    const size_t n = NWINDOW * m->s.psf->nspec, nfit = NWINDOW * spx_motion_bundles(m->s.psf, &m->o);
    spx_motion_row *row = op_output("row", n, sizeof *row);
    spx_motion_fit *fit = op_output("fit", nfit, sizeof *fit);
    spx_motion_options o = m->o;
    spx_fallback left;
    spx_err e = {0};
    o.nthreads = threads;
    if (!op_done(b->motion(b, &m->s.image, m->s.psf, &o, row, fit, &left, &e), &e))
        return;
    put(m, row, fit, a);
    /* twice again, at last with the image that a device has: the same bits */
    static unsigned long long images = 1ull << 40;
    spx_motion_row *again = need(n, sizeof *again);
    spx_motion_fit *fit_again = need(nfit, sizeof *fit_again);
    o.image = ++images;
    for (int i = 0; i < 2; i++)
        CHECK(op_done(b->motion(b, &m->s.image, m->s.psf, &o, again, fit_again, &left, &e), &e) &&
                  memcmp(again, row, n * sizeof *row) == 0 && memcmp(fit_again, fit, nfit * sizeof *fit) == 0,
              "another result with an image that has a number, call %d", i);
    spx_free(again);
    spx_free(fit_again);
}

/* ---- dense ---- */

typedef struct {
    size_t n, nf, nbin, npix; /* columns of A: [bin][fibre]; pixels of the image */
    double *a, *ax, *as;      /* [n][npix]: A, its derivatives */
    double *w, *data;         /* [npix], 0 beyond the rows that are used */
    double *f, *light;        /* [n] */
    double *m, *factor;       /* [n][n] */
    double *j;                /* [2 nf][npix] */
} dense;

/* Spot of (fibre, lambda) with its corner held, moved by dx and wider by the factor `wider`: sum 1. */
static int moved_spot(const spx_psf *p, size_t fibre, double lambda, double dx, double wider, spx_spot *at,
                      double *spot)
{
    const int nx = spx_psf_nx(p), ny = spx_psf_ny(p);
    double basis[16], gx[16 * 32], gy[16 * 32], sum = 0, sig[2] = {0, 0}, tilt = 0;
    if (spx_psf_spot_place(p, fibre, lambda, at) != SPX_SPOT_OK)
        return 0;
    spx_legendre_basis(p->ndeg, spx_psf_u(p->wmin, p->wmax, lambda), basis);
    for (size_t k = 0; k < p->ndeg; k++) {
        sig[0] += p->coeff[((size_t)p->sigx * p->nspec + fibre) * p->ndeg + k] * basis[k];
        sig[1] += p->coeff[((size_t)p->sigy * p->nspec + fibre) * p->ndeg + k] * basis[k];
    }
    for (size_t k = 0; k < p->ndeg && p->tilt >= 0; k++)
        tilt += p->coeff[((size_t)p->tilt * p->nspec + fibre) * p->ndeg + k] * basis[k];
    spx_gauss_hermite(p->ghdegy, ny, at->dy, sig[1], gy);
    memset(spot, 0, (size_t)(nx * ny) * sizeof *spot);
    for (int y = 0; y < ny; y++) {
        spx_gauss_hermite(p->ghdegx, nx, at->dx + dx + tilt * (y - p->hsizey - at->dy), sig[0] * wider, gx);
        for (int j = 0; j <= p->ghdegy; j++)
            for (int i = 0; i <= p->ghdegx && p->gh[i + (p->ghdegx + 1) * j] >= 0; i++) {
                double c = 0;
                for (size_t k = 0; k < p->ndeg; k++)
                    c += p->coeff[((size_t)p->gh[i + (p->ghdegx + 1) * j] * p->nspec + fibre) * p->ndeg + k] * basis[k];
                for (int x = 0; x < nx; x++)
                    spot[y * nx + x] += c * gy[j * ny + y] * gx[i * nx + x];
            }
    }
    for (int i = 0; i < nx * ny; i++)
        sum += spot[i] = fmax(spot[i], 0);
    for (int i = 0; i < nx * ny; i++)
        spot[i] /= sum;
    return 1;
}

/* Columns of one bundle in one window, and the weights of the rows in which no other light falls. */
static void fill(const motion_scene *m, size_t fibre0, size_t window, dense *d)
{
    const spx_psf *p = m->s.psf;
    const spx_image *im = &m->s.image;
    const long nx = spx_psf_nx(p), ny = spx_psf_ny(p), width = (long)im->nx, height = (long)im->ny;
    long row0 = 0, row1 = height;
    static double spot[5][600];
    const double h = 1e-4;
    for (size_t c = 0; c < d->n; c++) {
        const size_t k = c / d->nf, f = fibre0 + c % d->nf;
        const double lambda = m->first[window] + (double)k * m->o.dw;
        spx_spot at;
        moved_spot(p, f, lambda, 0, 1, &at, spot[0]);
        moved_spot(p, f, lambda, h, 1, &at, spot[1]);
        moved_spot(p, f, lambda, -h, 1, &at, spot[2]);
        moved_spot(p, f, lambda, 0, exp(h), &at, spot[3]);
        moved_spot(p, f, lambda, 0, exp(-h), &at, spot[4]);
        for (long y = at.yc < 0 ? -at.yc : 0; y < ny && at.yc + y < height; y++)
            for (long x = at.xc < 0 ? -at.xc : 0; x < nx && at.xc + x < width; x++) {
                const size_t i = c * d->npix + (size_t)(at.yc + y) * im->nx + (size_t)(at.xc + x),
                             s = (size_t)(y * nx + x);
                d->a[i] = spot[0][s];
                d->ax[i] = (spot[1][s] - spot[2][s]) / (2 * h);
                d->as[i] = (spot[3][s] - spot[4][s]) / (2 * h);
            }
        if (k == 0)
            row0 = at.yc + ny > row0 ? at.yc + ny : row0;
        if (k + 1 == d->nbin)
            row1 = at.yc < row1 ? at.yc : row1;
    }
    for (size_t i = 0; i < d->npix; i++) {
        const long y = (long)(i / im->nx);
        const int good = isfinite(im->data[i]) && im->ivar[i] > 0 && im->mask[i] == 0 && y >= row0 && y < row1;
        d->w[i] = good ? (double)im->ivar[i] : 0;
        d->data[i] = good ? (double)im->data[i] : 0;
    }
}

static double weighted(const dense *d, const double *a, const double *b)
{
    double sum = 0;
    for (size_t i = 0; i < d->npix; i++)
        sum += d->w[i] * a[i] * b[i];
    return sum;
}

/* M, regularised as the extraction does it, and the flux. */
static void solve_dense(dense *d)
{
    double *one = need(d->npix, sizeof *one), *w = need(d->n, sizeof *w), most = 0;
    for (size_t i = 0; i < d->npix; i++)
        one[i] = 1;
    for (size_t c = 0; c < d->n; c++) {
        w[c] = weighted(d, d->a + c * d->npix, one);
        most = fmax(most, w[c]);
        d->f[c] = weighted(d, d->a + c * d->npix, d->data);
        for (size_t b = 0; b < d->n; b++)
            d->m[c * d->n + b] = weighted(d, d->a + c * d->npix, d->a + b * d->npix);
    }
    for (size_t c = 0; c < d->n; c++) {
        const double alpha = w[c] < 1e-4 * most ? 1e-4 * most - w[c] : 0;
        d->m[c * d->n + c] += alpha * alpha + 1e-15;
    }
    memcpy(d->factor, d->m, d->n * d->n * sizeof *d->m);
    CHECK(spx_small_factor(d->n, d->factor), "dense normal equations");
    spx_small_solve(d->n, d->factor, d->f);
    for (size_t c = 0; c < d->n; c++)
        d->light[c] = w[c]; /* for find_light_dense() */
    spx_free(one);
    spx_free(w);
}

/* The light that J is made of (extract/motion.h), of one fibre: its own block of M, as dense as it is. */
static void find_light_dense(dense *d, size_t f)
{
    const size_t n = d->nbin, nf = d->nf;
    double *own = need(n * n, sizeof *own), *z = need(n, sizeof *z), *one = need(n, sizeof *one);
    double *variance = need(n, sizeof *variance), *mean = need(n, sizeof *mean), *weight = need(n, sizeof *weight);
    int *line = need(n, sizeof *line);
    for (size_t k = 0; k < n; k++)
        for (size_t l = 0; l < n; l++) {
            own[k * n + l] = d->m[(k * nf + f) * d->n + l * nf + f];
            one[k] += own[k * n + l];
        }
    for (size_t k = 0; k < n; k++)
        one[k] = d->light[k * nf + f] > 0 && one[k] > 0 ? one[k] : 0;
    CHECK(spx_small_factor(n, own), "block of a fibre");
    for (size_t k = 0; k < n; k++) {
        memset(z, 0, n * sizeof *z);
        z[k] = 1;
        spx_small_solve(n, own, z);
        variance[k] = z[k];
    }
    for (int round = 0; round < 3; round++) {
        for (size_t k = 0; k < n; k++) {
            double sum = 0;
            weight[k] = 0;
            for (size_t l = k > 15 ? k - 15 : 0; l <= k + 15 && l < n; l++)
                if (!line[l]) {
                    weight[k] += one[l];
                    sum += one[l] * d->f[l * nf + f];
                }
            mean[k] = weight[k] > 0 ? sum / weight[k] : 0;
        }
        for (size_t k = 0; k < n && round == 2; k++)
            d->light[k * nf + f] = line[k] ? d->f[k * nf + f] : mean[k] * mean[k] * weight[k] > 25 ? mean[k] : 0;
        for (size_t k = 0; k < n && round < 2; k++) {
            const double off = d->f[k * nf + f] - mean[k];
            if (one[k] > 0 && off * off > 25 * variance[k])
                for (size_t l = k > 3 ? k - 3 : 0; l <= k + 3 && l < n; l++)
                    line[l] = 1;
        }
    }
    spx_free(own);
    spx_free(z);
    spx_free(one);
    spx_free(variance);
    spx_free(mean);
    spx_free(weight);
    spx_free(line);
}

static void bundle_dense(const motion_scene *m, size_t fibre0, size_t nf, size_t window, spx_motion_row *row,
                         spx_motion_fit *fit)
{
    const size_t nbin = (size_t)((m->last[window] - m->first[window]) / m->o.dw + 1.5);
    dense d = {.n = nbin * nf, .nf = nf, .nbin = nbin, .npix = m->s.image.ny * m->s.image.nx};
    double *model = need(d.npix, sizeof *model), *v = need(2 * nf * d.n, sizeof *v), *z = need(2 * nf * d.n, sizeof *z);
    d.a = need(3 * d.n * d.npix, sizeof(double));
    d.ax = d.a + d.n * d.npix;
    d.as = d.ax + d.n * d.npix;
    d.w = need(2 * d.npix, sizeof(double));
    d.data = d.w + d.npix;
    d.f = need(2 * d.n, sizeof(double));
    d.light = d.f + d.n;
    d.m = need(2 * d.n * d.n, sizeof(double));
    d.factor = d.m + d.n * d.n;
    d.j = need(2 * nf * d.npix, sizeof(double));
    fill(m, fibre0, window, &d);
    solve_dense(&d);
    for (size_t c = 0; c < d.n; c++)
        fit->nflux += d.light[c] > 0;
    for (size_t f = 0; f < nf; f++) {
        double info = 0, sum = 0;
        find_light_dense(&d, f);
        for (size_t k = 0; k < nbin; k++) {
            const size_t c = k * nf + f;
            const double here = d.light[c] * d.light[c] * d.m[c * d.n + c];
            info += here;
            sum += here * (m->first[window] + (double)k * m->o.dw);
            for (size_t i = 0; i < d.npix; i++) {
                model[i] += d.f[c] * d.a[c * d.npix + i];
                d.j[2 * f * d.npix + i] += d.light[c] * d.ax[c * d.npix + i];
                d.j[(2 * f + 1) * d.npix + i] += d.light[c] * d.as[c * d.npix + i];
            }
        }
        row[f].wavelength = info > 0 ? sum / info : 0.5 * (m->first[window] + m->last[window]);
    }
    for (size_t i = 0; i < d.npix; i++) {
        int touched = 0;
        for (size_t c = 0; c < d.n; c++)
            touched |= d.a[c * d.npix + i] > 0;
        fit->chi2 += touched ? fmin(d.w[i] * (d.data[i] - model[i]) * (d.data[i] - model[i]), SPX_MOTION_MOST) : 0;
        fit->npix += touched && d.w[i] > 0;
        model[i] = d.data[i] - model[i];
    }
    for (size_t q = 0; q < 2 * nf; q++) {
        for (size_t c = 0; c < d.n; c++)
            z[q * d.n + c] = v[q * d.n + c] = weighted(&d, d.j + q * d.npix, d.a + c * d.npix);
        spx_small_solve(d.n, d.factor, z + q * d.n);
    }
    for (size_t f = 0; f < nf; f++) {
        double part[2][4];
        for (size_t q = 0; q < 2; q++) {
            row[f].gradient[q] = weighted(&d, d.j + (2 * f + q) * d.npix, model);
            for (size_t r = 0; r < 4 && 2 * f + r < 2 * nf; r++) {
                part[q][r] = weighted(&d, d.j + (2 * f + q) * d.npix, d.j + (2 * f + r) * d.npix);
                for (size_t c = 0; c < d.n && !m->o.rough; c++)
                    part[q][r] -= v[(2 * f + q) * d.n + c] * z[(2 * f + r) * d.n + c];
            }
        }
        row[f].fisher[0] = part[0][0];
        row[f].fisher[1] = part[0][1];
        row[f].fisher[2] = part[1][1];
        for (size_t q = 0; q < 4 && f + 1 < nf; q++)
            row[f].next[q] = part[q / 2][2 + q % 2];
    }
    spx_free(model);
    spx_free(v);
    spx_free(z);
    spx_free(d.a);
    spx_free(d.w);
    spx_free(d.f);
    spx_free(d.m);
    spx_free(d.j);
}

static void reference(void *scene_, op_answer *a)
{
    const motion_scene *m = scene_;
    const size_t ns = m->s.psf->nspec, nb = spx_motion_bundles(m->s.psf, &m->o);
    spx_motion_row *row = need(NWINDOW * ns, sizeof *row);
    spx_motion_fit *fit = need(NWINDOW * nb, sizeof *fit);
    for (size_t i = 0; i < NWINDOW; i++)
        for (size_t b = 0; b < nb; b++) {
            const size_t f = b * m->o.bundle_size, nf = ns - f < m->o.bundle_size ? ns - f : m->o.bundle_size;
            bundle_dense(m, f, nf, i, row + i * ns + f, &fit[i * nb + b]);
        }
    put(m, row, fit, a);
    spx_free(row);
    spx_free(fit);
}

static void release(void *scene_)
{
    motion_scene *m = scene_;
    spx_psf_free(m->s.psf);
    spx_free(m->s.psf);
    spx_image_free(&m->s.image);
    spx_free(m);
}

const op_test op_shift = {sizeof cases / sizeof *cases, cases, draw, run, reference, release};
