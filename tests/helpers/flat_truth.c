/* flat_truth [--rms MOST] [--scatter MOST] [--median MOST] FLAT TRUTH: compares a fibre flat field with the throughputs
 * that specx-sim put in, divided by their mean over fibres at each wavelength; or, where TRUTH is a flat field, of the
 * same exposures without noise, with that: it has the light that spots lose where the PSF is wrong. Says the error in
 * per cent with what the flat expects, and median and scatter (1.4826 times the median magnitude) of (flat -
 * truth)/error with their statistical errors, those of as many independent numbers as there are coefficients of
 * splines. Exit status 1: one is above its limit; that of the median is 4 of its errors unless it is given. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../must.h"
#include "base/mem.h"
#include "h5/file.h"
#include "h5/object.h"
#include "h5/read.h"
#include "num/stat.h"
#include "products/flat_h5.h"

/* Throughput at wavelength w, straight between the truth's samples. */
static double at(size_t n, const double *wavelength, const double *v, double w)
{
    size_t low = 0, high = n - 1;
    while (high - low > 1) {
        const size_t middle = (low + high) / 2;
        if (wavelength[middle] <= w)
            low = middle;
        else
            high = middle;
    }
    const double part = (w - wavelength[low]) / (wavelength[high] - wavelength[low]);
    return v[low] + part * (v[high] - v[low]);
}

int main(int argc, char **argv)
{
    double rms = INFINITY, limit = INFINITY, bias = 0;
    int i = 1;
    for (; i + 1 < argc && strncmp(argv[i], "--", 2) == 0; i += 2)
        *(strcmp(argv[i], "--rms") == 0      ? &rms
          : strcmp(argv[i], "--median") == 0 ? &bias
                                             : &limit) = strtod(argv[i + 1], NULL);
    if (argc - i != 2) {
        puts("usage: flat_truth [--rms MOST] [--scatter MOST] [--median MOST] FLAT TRUTH");
        return 2;
    }
    spx_input f, t;
    spx_flat flat, exact = {0};
    spx_err e = {0};
    size_t nw = 0, dims[2] = {0, 0};
    double *wavelength = NULL, *throughput = NULL;
    must(spx_input_open(&f, argv[i], &e) == SPX_OK && spx_flat_read(f.file, &flat, &e) == SPX_OK, &e);
    must(spx_input_open(&t, argv[i + 1], &e) == SPX_OK, &e);
    if (spx_h5_exists(t.file, "/flat")) {
        must(spx_flat_read(t.file, &exact, &e) == SPX_OK, &e);
    } else {
        must(spx_h5_read_f64(t.file, "/truth/wavelength", 1, &nw, &wavelength, &e) == SPX_OK, &e);
        dims[0] = flat.nspec;
        dims[1] = nw;
        must(spx_h5_read_f64(t.file, "/truth/throughput", 2, dims, &throughput, &e) == SPX_OK, &e);
    }
    must(exact.flat == NULL || (exact.nspec == flat.nspec && exact.nwave == flat.nwave), &e);
    double *pull = must_have(spx_alloc2(flat.nspec, flat.nwave, sizeof *pull, &e));
    double *work = must_have(spx_alloc2(flat.nspec, flat.nwave, sizeof *work, &e)); /* spx_median() destroys it */
    double *truth = must_have(spx_alloc(flat.nspec, sizeof *truth, &e)), sum = 0, expected = 0;
    size_t n = 0;
    for (size_t k = 0; k < flat.nwave; k++) {
        double mean = 0;
        for (size_t s = 0; s < flat.nspec; s++) {
            truth[s] = exact.flat != NULL ? exact.flat[s * flat.nwave + k]
                                          : at(nw, wavelength, throughput + s * nw, flat.wavelength[k]);
            mean += truth[s] / (double)flat.nspec;
        }
        for (size_t s = 0; s < flat.nspec; s++) {
            const double off = flat.flat[s * flat.nwave + k] - truth[s] / mean, w = flat.ivar[s * flat.nwave + k];
            if (!(w > 0))
                continue;
            sum += off * off;
            expected += 1 / w;
            pull[n++] = off * sqrt(w);
        }
    }
    const double independent = (double)(flat.nspec * (flat.nknot + 2)), error = 100 * sqrt(sum / (double)n);
    memcpy(work, pull, n * sizeof *work);
    const double median = spx_median(work, n);
    for (size_t k = 0; k < n; k++)
        work[k] = fabs(pull[k] - median);
    const double scatter = 1.4826 * spx_median(work, n);
    printf("   error %.4f %% (expected %.4f %%), median of pulls %.3f +- %.3f, scatter %.3f +- %.3f\n", error,
           100 * sqrt(expected / (double)n), median, 1.253 / sqrt(independent), scatter, 1.17 / sqrt(independent));
    spx_free(pull);
    spx_free(work);
    spx_free(truth);
    spx_free(wavelength);
    spx_free(throughput);
    spx_flat_free(&flat);
    spx_flat_free(&exact);
    spx_input_close(&f);
    spx_input_close(&t);
    bias = bias > 0 ? bias : 4 * 1.253 / sqrt(independent);
    return error > rms || scatter > limit || fabs(median) > bias;
}
