/* shift_information IMAGE.h5 WMIN,WMAX,STEP: the part of the information on traces and widths that is left when all
 * fluxes are free, F_free/F_held of each quantity by itself, by dense algebra on a noise-free image with its PSF:
 *
 *     F_held = J^T W J,   F_free = F_held - J^T W A M^-1 A^T W J,   M = A^T W A,   J = (dA/dq) f
 *
 * q: x, width in x, y, width in y of one fibre; f: fluxes that fit the image. All fibres are one bundle; pixels that
 * spots of bins beyond the window reach are not used. Prints "NAME FRACTION", sums over fibres. */
#include <hdf5.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "../must.h"
#include "base/mem.h"
#include "calib/dense.h"
#include "products/image_h5.h"
#include "products/psf_h5.h"
#include "psf/spot_math.h"

enum { NQ = 4, BEYOND = 20 };
static const char *const name[NQ] = {"x", "wx", "y", "wy"};
static spx_err e;

/* One spot on the image, and its derivatives: planes 0, 1 + q. */
typedef struct {
    spx_spot at;
    double *pixel; /* [1 + NQ][ny][nx] */
} spot;

static const spx_psf *psf;
static int nx, ny;

static spot make_spot(size_t fibre, double lambda, double *work)
{
    const int what[NQ] = {SPX_SPOT_X, psf->sigx, SPX_SPOT_Y, psf->sigy};
    const size_t npix = (size_t)nx * (size_t)ny;
    spot s = {.pixel = must_have(spx_alloc((1 + NQ) * npix, sizeof(double), &e))};
    must(spx_psf_spot_diff(psf, fibre, lambda, NQ, what, work, s.pixel, s.pixel + npix, &s.at) == SPX_SPOT_OK, &e);
    return s;
}

/* Sum over the spot's rectangle of v times plane q of the spot, v[image]. */
static double against(const spot *s, int q, const double *v, const spx_image *im)
{
    double sum = 0;
    for (int r = 0; r < ny; r++)
        for (int c = 0; c < nx; c++) {
            const long x = s->at.xc + c, y = s->at.yc + r;
            if (x >= 0 && y >= 0 && x < (long)im->nx && y < (long)im->ny)
                sum += s->pixel[(q * ny + r) * nx + c] * v[(size_t)y * im->nx + (size_t)x];
        }
    return sum;
}

/* v += f times plane q. */
static void add(const spot *s, int q, double f, double *v, const spx_image *im)
{
    for (int r = 0; r < ny; r++)
        for (int c = 0; c < nx; c++) {
            const long x = s->at.xc + c, y = s->at.yc + r;
            if (x >= 0 && y >= 0 && x < (long)im->nx && y < (long)im->ny)
                v[(size_t)y * im->nx + (size_t)x] += f * s->pixel[(q * ny + r) * nx + c];
        }
}

int main(int argc, char **argv)
{
    double wmin, wmax, step, held[NQ] = {0}, left[NQ] = {0};
    spx_psf p = {0};
    spx_image im = {0};
    if (argc != 3 || sscanf(argv[2], "%lf,%lf,%lf", &wmin, &wmax, &step) != 3)
        return 2;
    const hid_t file = H5Fopen(argv[1], H5F_ACC_RDONLY, H5P_DEFAULT);
    must(file >= 0 && spx_image_read_pixels(file, NULL, &im, &e) == SPX_OK && spx_psf_read(file, &p, &e) == SPX_OK, &e);
    psf = &p;
    nx = spx_psf_nx(psf);
    ny = spx_psf_ny(psf);
    const size_t nb = (size_t)lround((wmax - wmin) / step) + 1, n = nb * psf->nspec, size = im.nx * im.ny;
    double *work = must_have(spx_alloc(spx_psf_spot_work(psf), sizeof *work, &e));
    double *w = must_have(spx_alloc(size, sizeof *w, &e)), *v = must_have(spx_alloc(size, sizeof *v, &e));
    double *m = must_have(spx_alloc2(n, n, sizeof *m, &e)), *f = must_have(spx_alloc2(n, 2, sizeof *f, &e));
    spot *s = must_have(spx_alloc(n, sizeof *s, &e));
    for (size_t i = 0; i < size; i++)
        w[i] = im.mask == NULL || im.mask[i] == 0 ? (double)im.ivar[i] : 0;
    for (size_t i = 0; i < psf->nspec; i++) {
        for (size_t k = 0; k < nb; k++)
            s[i * nb + k] = make_spot(i, wmin + (double)k * step, work);
        for (int k = 1; k <= BEYOND; k++)
            for (int end = 0; end < 2; end++) {
                spot out = make_spot(i, end ? wmax + k * step : wmin - k * step, work);
                memset(v, 0, size * sizeof *v);
                for (int r = 0; r < nx * ny; r++)
                    out.pixel[r] = 1;
                add(&out, 0, 1, v, &im);
                for (size_t at = 0; at < size; at++)
                    w[at] = v[at] > 0 ? 0 : w[at];
                spx_free(out.pixel);
            }
    }
    for (size_t j = 0; j < n; j++) {
        const size_t fibre = j / nb;
        memset(v, 0, size * sizeof *v);
        add(&s[j], 0, 1, v, &im);
        for (size_t at = 0; at < size; at++)
            v[at] *= w[at];
        for (size_t i = fibre > 0 ? (fibre - 1) * nb : 0; i <= j; i++) /* light reaches the next fibre at most */
            m[j * n + i] = labs(s[i].at.yc - s[j].at.yc) < 2 * ny ? against(&s[i], 0, v, &im) : 0;
        for (size_t at = 0; at < size; at++)
            v[at] = w[at] > 0 ? w[at] * (double)im.data[at] : 0;
        f[j] = against(&s[j], 0, v, &im);
    }
    must(spx_dense_factor(n, m), &e);
    spx_dense_solve(n, m, 1, f);
    for (size_t i = 0; i < psf->nspec; i++)
        for (int q = 0; q < NQ; q++) {
            double *b = f + n, *x = must_have(spx_alloc(n, sizeof *x, &e)), own = 0, taken = 0;
            memset(v, 0, size * sizeof *v);
            for (size_t k = 0; k < nb; k++)
                add(&s[i * nb + k], 1 + q, f[i * nb + k], v, &im);
            for (size_t at = 0; at < size; at++) {
                own += w[at] * v[at] * v[at];
                v[at] *= w[at];
            }
            for (size_t j = 0; j < n; j++)
                b[j] = x[j] = j / nb + 1 >= i && j / nb <= i + 1 ? against(&s[j], 0, v, &im) : 0;
            spx_dense_solve(n, m, 1, x);
            for (size_t j = 0; j < n; j++)
                taken += b[j] * x[j];
            held[q] += own;
            left[q] += own - taken;
            spx_free(x);
        }
    for (int q = 0; q < NQ; q++)
        printf("%s %.6f\n", name[q], left[q] / held[q]);
    for (size_t j = 0; j < n; j++)
        spx_free(s[j].pixel);
    spx_free(work);
    spx_free(w);
    spx_free(v);
    spx_free(m);
    spx_free(f);
    spx_free(s);
    spx_psf_free(&p);
    spx_image_free(&im);
    H5Fclose(file);
    return 0;
}
