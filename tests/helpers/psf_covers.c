/* psf_covers TRUTH.h5 FIT.h5 FIRST:LAST FIBRE,WAVE: how far the spots of a fit of one bundle (specx-psf with
 * --shape-degree FIBRE,WAVE) are from those of a PSF of any kind, beside what /psffit/cov_shape and psferr say: pixels
 * above a tenth of the peak, at 41 wavelengths of each fibre, after the change of place and flux that brings them
 * closest. Prints
 *
 *     LEFT COV ALL  MEDIAN MAD  MEDIAN-ALL MAD-ALL
 *
 * rms of what is left, what cov_shape says of it, and with psferr, % of the peak; of left / said, by cov_shape and with
 * psferr, median and 1.4826 MAD. Exit status 0, or 1 with a message. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "num/stat.h"
#include "products/psf_h5.h"
#include "psf/spot_math.h"
#include "psffit/compare.h"

enum { PLACES = 41, MOST = 128, TERMS = 8 };

typedef struct {
    spx_psf truth, fit;
    float *cov;        /* [nq na nb]^2 */
    size_t nq, na, nb; /* parameters at one place, terms along fibres and wavelengths */
    double *left;      /* [2][npix] */
    double *spot, *d;  /* [npix], [2 + nq][npix] by x, y and parameters, at right angles to those before */
    double *at;        /* [nq][nq] covariance at one place */
    double *room;
    double sum[3], *by_cov, *by_all;
    size_t n;
} cover;

static int read_files(const char *truth, const char *fit, cover *c, spx_err *e)
{
    hsize_t dim[3] = {0, 0, 0};
    hid_t file = H5Fopen(truth, H5F_ACC_RDONLY, H5P_DEFAULT);
    if (file < 0 || spx_psf_read(file, &c->truth, e) != SPX_OK || H5Fclose(file) < 0)
        return 0;
    file = H5Fopen(fit, H5F_ACC_RDONLY, H5P_DEFAULT);
    if (file < 0 || spx_psf_read(file, &c->fit, e) != SPX_OK)
        return 0;
    const hid_t set = H5Dopen2(file, "/psffit/cov_shape", H5P_DEFAULT), space = H5Dget_space(set);
    c->nq = c->fit.npar - 1; /* all but GH-0-0 */
    int ok = H5Sget_simple_extent_ndims(space) == 3 && H5Sget_simple_extent_dims(space, dim, NULL) == 3 &&
             dim[0] == 1 && dim[1] == c->nq * c->na * c->nb && dim[2] == dim[1] && c->nq <= MOST;
    c->cov = ok ? spx_alloc2(dim[1], dim[2], sizeof *c->cov, e) : NULL;
    ok = c->cov != NULL && H5Dread(set, H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, c->cov) >= 0;
    return H5Sclose(space) >= 0 && H5Dclose(set) >= 0 && H5Fclose(file) >= 0 && ok;
}

/* Covariance of the parameters at place v along the fibres and u along wavelengths. */
static void covariance_at(cover *c, double v, double u)
{
    double term[TERMS], along[TERMS];
    const size_t nt = c->na * c->nb;
    spx_legendre_basis(c->nb, u, term);
    spx_legendre_basis(c->na, v, along);
    memset(c->at, 0, c->nq * c->nq * sizeof *c->at);
    for (size_t m = 0; m < nt; m++)
        for (size_t k = 0; k < nt; k++) {
            const double f = term[m / c->na] * along[m % c->na] * term[k / c->na] * along[k % c->na];
            for (size_t q = 0; q < c->nq; q++)
                for (size_t r = 0; r < c->nq; r++)
                    c->at[q * c->nq + r] += f * (double)c->cov[(m * c->nq + q) * nt * c->nq + k * c->nq + r];
        }
}

/* Takes flux and place out of the derivatives (Gram-Schmidt). */
static void project(cover *c, size_t npix)
{
    for (size_t k = 0; k < c->nq + 2; k++)
        for (size_t l = 0; l < 3 && l <= k; l++) {
            const double *by = l == 0 ? c->spot : c->d + (l - 1) * npix;
            double dot = 0, norm = 0;
            for (size_t q = 0; q < npix; q++) {
                dot += c->d[k * npix + q] * by[q];
                norm += by[q] * by[q];
            }
            for (size_t q = 0; q < npix; q++)
                c->d[k * npix + q] -= dot / norm * by[q];
        }
}

static int add_spot(cover *c, size_t fibre, double wave)
{
    const size_t npix = (size_t)spx_psf_nx(&c->fit) * (size_t)spx_psf_ny(&c->fit), nf = c->fit.nspec;
    int what[MOST + 2] = {SPX_SPOT_X, SPX_SPOT_Y};
    double peak = 0, g[MOST];
    spx_spot at;
    for (size_t q = 0; q < c->nq; q++)
        what[q + 2] = (int)(q < 2 ? q : q + 1);
    if (!spx_psf_spot_difference(&c->truth, &c->fit, fibre, wave, c->room, c->left, NULL) ||
        spx_psf_spot_diff(&c->fit, fibre, wave, (int)c->nq + 2, what, c->room, c->spot, c->d, &at) != SPX_SPOT_OK)
        return 0;
    project(c, npix);
    covariance_at(c, nf > 1 ? 2.0 * (double)fibre / (double)(nf - 1) - 1 : 0,
                  spx_psf_u(c->fit.x.wmin, c->fit.x.wmax, wave));
    for (size_t q = 0; q < npix; q++)
        peak = fmax(peak, c->spot[q]);
    for (size_t q = 0; q < npix; q++) {
        const double light = c->left[npix + q];
        double said = 0;
        if (!(light > 0.1))
            continue;
        for (size_t k = 0; k < c->nq; k++)
            g[k] = c->d[(k + 2) * npix + q] / peak;
        for (size_t k = 0; k < c->nq; k++)
            for (size_t l = 0; l < c->nq; l++)
                said += g[k] * g[l] * c->at[k * c->nq + l];
        const double all = said + pow(c->fit.psferr * light, 2);
        c->sum[0] += c->left[q] * c->left[q];
        c->sum[1] += said;
        c->sum[2] += all;
        c->by_cov[c->n] = c->left[q] / sqrt(said);
        c->by_all[c->n++] = c->left[q] / sqrt(all);
    }
    return 1;
}

static void print_pulls(size_t n, double *pull)
{
    const double median = spx_median(pull, n);
    for (size_t k = 0; k < n; k++)
        pull[k] = fabs(pull[k] - median);
    printf("  %.3f %.3f", median, 1.4826 * spx_median(pull, n));
}

int main(int argc, char **argv)
{
    spx_err e = {0};
    cover c = {.n = 0};
    double first = 0, last = 0;
    int ok = argc == 5 && sscanf(argv[3], "%lf:%lf", &first, &last) == 2 &&
             sscanf(argv[4], "%zu,%zu", &c.na, &c.nb) == 2 && c.na++ < TERMS && c.nb++ < TERMS &&
             read_files(argv[1], argv[2], &c, &e) && c.fit.nspec <= c.truth.nspec;
    if (ok) {
        c.fit.hsizex = c.truth.hsizex;
        c.fit.hsizey = c.truth.hsizey;
        const size_t npix = (size_t)spx_psf_nx(&c.fit) * (size_t)spx_psf_ny(&c.fit);
        const size_t all = c.fit.nspec * PLACES * npix;
        c.left = spx_alloc((c.nq + 5) * npix + c.nq * c.nq + 2 * all + spx_psf_spot_work(&c.fit) +
                               spx_psf_spot_difference_room(&c.truth, &c.fit),
                           sizeof *c.left, &e);
        c.spot = c.left + 2 * npix;
        c.d = c.spot + npix;
        c.at = c.d + (c.nq + 2) * npix;
        c.by_cov = c.at + c.nq * c.nq;
        c.by_all = c.by_cov + all;
        c.room = c.by_all + all;
        ok = c.left != NULL;
    }
    for (size_t k = 0; ok && k < c.fit.nspec * PLACES; k++)
        ok = add_spot(&c, k / PLACES, first + (last - first) * (double)(k % PLACES) / (PLACES - 1));
    if (ok && c.n > 0) {
        for (int k = 0; k < 3; k++)
            printf("%.4f ", 100 * sqrt(c.sum[k] / (double)c.n));
        print_pulls(c.n, c.by_cov);
        print_pulls(c.n, c.by_all);
        printf("\n");
    } else {
        fprintf(stderr, "psf_covers: cannot compare these PSFs there: %s\n", spx_err_text(&e));
    }
    spx_free(c.left);
    spx_free(c.cov);
    spx_psf_free(&c.truth);
    spx_psf_free(&c.fit);
    return !(ok && c.n > 0);
}
