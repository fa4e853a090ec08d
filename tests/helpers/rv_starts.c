/* rv_starts TEMPLATES SPECTRA N [INTERPOLATOR]: does the search of the velocity fit find the lowest minimum? Fits every
 * spectrum from the cross-correlation, and then from N random points each: velocity within 600 km/s, vsini up to 200
 * km/s, parameters anywhere in the templates' range. Prints each star for which one of those led lower by more than
 * 0.01, and how many there are. Exit status 0: none; 1: some, or an error. INTERPOLATOR: cubic (the default), grid or
 * simplex. The dichroic is not left out. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "products/rvfit.h"
#include "products/spectra_h5.h"
#include "products/templates_h5.h"
#include "rvfit/rvfit.h"
#include "sim/sim_math.h"

static double random_between(uint64_t item, uint32_t draw, double lo, double hi)
{
    double u[2];
    spx_sim_uniform2(20, SPX_SIM_TARGET, 0, item, draw, u);
    return lo + u[0] * (hi - lo);
}

/* start[nrow * n][nq]: the points of a star side by side. */
static void draw(const spx_setup *s, size_t n, double *start)
{
    size_t nq = 2 + s->npar;
    for (size_t i = 0; i < n; i++) {
        double *x = start + i * nq;
        x[0] = random_between(i, 0, -600, 600);
        x[1] = random_between(i, 1, 0, 200);
        for (size_t p = 0; p < s->npar; p++) {
            double lo = HUGE_VAL, hi = -HUGE_VAL;
            for (size_t t = 0; t < s->ntemp; t++) {
                lo = fmin(lo, s->params[t * s->npar + p]);
                hi = fmax(hi, s->params[t * s->npar + p]);
            }
            x[2 + p] = random_between(i, 2 + (uint32_t)p, lo, hi);
        }
    }
}

static spx_status compare(const spx_rvfit_input *in, const spx_rvfit_options *o, size_t n, size_t *deeper, spx_err *e)
{
    const spx_spectra *s = in->spectra;
    size_t nspec = s->nspec, npar = in->setup[0]->npar;
    spx_rvfit ours = {0}, other = {0};
    spx_rvfit_input random = *in;
    size_t *row = spx_alloc2(nspec, n, sizeof *row, e);
    double *start = spx_alloc2(nspec * n, 2 + npar, sizeof *start, e);
    spx_status st = row == NULL || start == NULL ? SPX_EIO : spx_rvfit_cpu(in, o, NULL, &ours, e);
    for (size_t i = 0; i < nspec * n && st == SPX_OK; i++)
        row[i] = i / n;
    random.nrow = nspec * n;
    random.row = row;
    random.start = start;
    if (st == SPX_OK) {
        draw(in->setup[0], nspec * n, start);
        st = spx_rvfit_cpu(&random, o, NULL, &other, e);
    }
    size_t reached = 0;
    for (size_t i = 0; i < nspec && st == SPX_OK; i++) {
        double least = HUGE_VAL, at = 0, f = ours.star[i].neg2logl;
        for (size_t k = i * n; k < (i + 1) * n; k++) {
            reached += other.star[k].neg2logl < f + 0.01;
            if (other.star[k].neg2logl < least) {
                least = other.star[k].neg2logl;
                at = other.star[k].vrad;
            }
        }
        if (least < f - 0.01) {
            printf("star %zu: objective %.4f at v %.2f, from a random start %.4f at v %.2f\n", i, f, ours.star[i].vrad,
                   least, at);
            ++*deeper;
        }
    }
    if (st == SPX_OK)
        printf(
            "%zu stars, %zu random starts each: %zu with a deeper minimum; %.0f %% of the starts led to the lowest\n",
            nspec, n, *deeper, 100.0 * (double)reached / (double)(nspec * n));
    spx_rvfit_free(&ours);
    spx_rvfit_free(&other);
    spx_free(row);
    spx_free(start);
    return st;
}

static hid_t open_file(const char *name, spx_err *e)
{
    hid_t file = H5Fopen(name, H5F_ACC_RDONLY, H5P_DEFAULT);
    if (file < 0)
        spx_fail(e, SPX_EIO, "%s cannot be opened", name);
    return file;
}

int main(int argc, char **argv)
{
    static const char *const name[] = {"cubic", "grid", "simplex"};
    static const spx_interpolator which[] = {SPX_INTERPOLATE_CUBIC, SPX_INTERPOLATE_GRID, SPX_INTERPOLATE_SIMPLEX};
    long n = argc == 4 || argc == 5 ? strtol(argv[3], NULL, 10) : 0;
    if (n < 1 || n > 1000) {
        puts("usage: rv_starts TEMPLATES SPECTRA N [INTERPOLATOR]");
        return 1;
    }
    spx_err e = {0};
    spx_templates t = {0};
    spx_spectra s = {0};
    spx_rvfit_options o;
    spx_rvfit_input in = {.spectra = &s};
    size_t deeper = 0;
    (void)H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
    spx_rvfit_options_init(&o);
    o.interpolator = SPX_INTERPOLATE_CUBIC;
    for (size_t i = 0; i < 3 && argc == 5; i++)
        if (strcmp(argv[4], name[i]) == 0)
            o.interpolator = which[i];
    o.dichroic = o.keep_model = 0;
    o.threads = 2;
    hid_t ft = open_file(argv[1], &e), fs = open_file(argv[2], &e);
    spx_status st = ft < 0 || fs < 0 ? SPX_EIO : spx_templates_read(ft, 1, &t, &e);
    if (st == SPX_OK)
        st = spx_spectra_read(fs, 0, &s, &e);
    for (size_t a = 0; a < s.narm && st == SPX_OK; a++)
        for (size_t k = 0; k < t.nsetup; k++)
            if (strcmp(t.setup[k].setup, s.arm[a].name) == 0)
                in.setup[a] = &t.setup[k];
    if (st == SPX_OK && in.setup[0] == NULL)
        st = spx_fail(&e, SPX_EINPUT, "the first arm has no setup");
    in.nrow = s.nspec;
    if (st == SPX_OK)
        st = compare(&in, &o, (size_t)n, &deeper, &e);
    if (st != SPX_OK)
        printf("rv_starts: %s\n", spx_err_text(&e));
    spx_spectra_free(&s);
    spx_templates_free(&t);
    if (ft >= 0)
        (void)H5Fclose(ft);
    if (fs >= 0)
        (void)H5Fclose(fs);
    return st != SPX_OK || deeper > 0;
}
