/* rv_starts TEMPLATES SPECTRA N [INTERPOLATOR [FIRST LAST]]: does the search of the velocity fit find the lowest
 * minimum? Fits every spectrum (rows FIRST to LAST) from the cross-correlation, and then from N random points each:
 * velocity within 600 km/s, vsini up to 200 km/s, parameters anywhere in the templates' range; and from the truth where
 * the fibermap has it (sim_survey). Prints each star for which one of those led lower by more than 0.01, and how many
 * there are; by more than 1; and what the search costs, in evaluations of the objective with derivatives (CPU) and in
 * seconds of the process. Exit status 0: none; 1: some, or an error. INTERPOLATOR: cubic (the default), grid or
 * simplex. The dichroic is not left out. $SPX_TEST_DEVICE: cpu (the default) or cuda. */
#include <math.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend.h"
#include "base/clock.h"
#include "base/mem.h"
#include "h5/table.h"
#include "products/rvfit.h"
#include "products/spectra_h5.h"
#include "products/templates_h5.h"
#include "rvfit/rvfit.h"
#include "sim/sim_math.h"

enum { CHUNK = 500 };

typedef struct {
    spx_backend backend;
    spx_rvfit_options options;
    spx_rvfit_input in; /* of all stars, with the plan */
    size_t n, nq;       /* random starts; quantities */
    double *truth;      /* [star][nq]; NULL: not known */
    size_t nstar, deeper, much_deeper, reached;
    double evaluations, seconds; /* of the fits from the cross-correlation */
} trial;

static double random_between(uint64_t item, uint32_t draw, double lo, double hi)
{
    double u[2];
    spx_sim_uniform2(20, SPX_SIM_TARGET, 0, item, draw, u);
    return lo + u[0] * (hi - lo);
}

/* Random start number i. */
static void draw(const spx_setup *s, size_t i, double *x)
{
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

static void print_star(const char *name, const spx_rvfit_star *s, size_t npar)
{
    printf("  %s %.4f at v %.2f vsini %.1f", name, s->neg2logl, s->vrad, s->vsini);
    for (size_t p = 0; p < npar; p++)
        printf(" %.6g", s->par[p]);
}

static void compare_star(trial *t, size_t i, const spx_rvfit_star *ours, size_t n, const spx_rvfit_star *other)
{
    const spx_rvfit_star *best = other;
    const size_t npar = t->nq - 2;
    for (size_t k = 0; k < n; k++) {
        t->reached += other[k].neg2logl < ours->neg2logl + 0.01;
        if (other[k].neg2logl < best->neg2logl)
            best = &other[k];
    }
    t->evaluations += ours->niter;
    if (!(best->neg2logl < ours->neg2logl - 0.01))
        return;
    t->deeper++;
    t->much_deeper += best->neg2logl < ours->neg2logl - 1;
    printf("star %zu: %.4f above the lowest:", i, ours->neg2logl - best->neg2logl);
    print_star("found", ours, npar);
    print_star("lowest", best, npar);
    printf("  ccf v %.2f entry %d warn %d success %d S/N %.1f", ours->vrad_ccf, (int)ours->ccf_entry, (int)ours->warn,
           (int)ours->success, ours->sn[0]);
    for (size_t q = 0; q < t->nq && t->truth != NULL; q++)
        printf("%s%.6g", q == 0 ? "  truth " : " ", t->truth[i * t->nq + q]);
    puts("");
}

/* Stars first ... first+m-1. */
static spx_status compare(trial *t, size_t first, size_t m, spx_err *e)
{
    const size_t n = t->n + (t->truth != NULL);
    spx_rvfit ours = {0}, other = {0};
    spx_rvfit_input one = t->in, many = t->in;
    size_t *row = spx_alloc2(m, n + 1, sizeof *row, e), *rows = row + m;
    double *start = spx_alloc2(m * n, t->nq, sizeof *start, e);
    if (row == NULL || start == NULL) {
        spx_free(row);
        spx_free(start);
        return SPX_EIO;
    }
    for (size_t i = 0; i < m; i++) {
        row[i] = first + i;
        for (size_t k = 0; k < n; k++) {
            double *x = start + (i * n + k) * t->nq;
            rows[i * n + k] = first + i;
            if (k < t->n)
                draw(t->in.setup[0], (first + i) * t->n + k, x);
            else
                memcpy(x, t->truth + (first + i) * t->nq, t->nq * sizeof *x);
        }
    }
    one.nrow = m;
    one.row = row;
    many.nrow = m * n;
    many.row = rows;
    many.start = start;
    double before = spx_process_seconds();
    spx_status st = t->backend.rvfit(&t->backend, &one, &t->options, NULL, &ours, e);
    t->seconds += spx_process_seconds() - before;
    if (st == SPX_OK)
        st = t->backend.rvfit(&t->backend, &many, &t->options, NULL, &other, e);
    for (size_t i = 0; i < m && st == SPX_OK; i++)
        compare_star(t, first + i, &ours.star[i], n, &other.star[i * n]);
    t->nstar += m;
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

/* Columns of the fibermap that a parameter of the templates is called, in capitals but for alpha. */
static spx_status read_truth(trial *t, const spx_spectra *s, spx_err *e)
{
    const char *name[] = {"VRAD", "VSINI", "TEFF", "LOGG", "FEH", "ALPHAFE"};
    spx_status st = SPX_OK;
    if (t->nq != sizeof name / sizeof *name || s->fibermap == NULL || spx_table_find(s->fibermap, "ALPHAFE") < 0)
        return SPX_OK;
    double *column = spx_alloc(s->nspec, sizeof *column, e);
    t->truth = spx_alloc2(s->nspec, t->nq, sizeof *t->truth, e);
    if (column == NULL || t->truth == NULL)
        st = SPX_EIO;
    for (size_t q = 0; q < t->nq && st == SPX_OK; q++) {
        st = spx_table_get_f64(s->fibermap, name[q], column, e);
        for (size_t i = 0; i < s->nspec && st == SPX_OK; i++)
            t->truth[i * t->nq + q] = column[i];
    }
    spx_free(column);
    return st;
}

static spx_status run(trial *t, const spx_spectra *s, size_t first, size_t end, spx_err *e)
{
    const char *device = getenv("SPX_TEST_DEVICE");
    spx_rvfit_plan *plan = NULL;
    t->nq = 2 + t->in.setup[0]->npar;
    t->in.nrow = s->nspec;
    spx_status st = spx_backend_open(&t->backend, device != NULL ? device : "cpu", SPX_OP_RVFIT, NULL, e);
    if (st != SPX_OK)
        return st;
    st = read_truth(t, s, e);
    if (st == SPX_OK)
        st = t->backend.rvfit_open(&t->backend, &t->in, &t->options, &plan, e);
    t->in.plan = plan;
    for (size_t i = first; i < end && st == SPX_OK; i += CHUNK)
        st = compare(t, i, end - i < CHUNK ? end - i : CHUNK, e);
    if (st == SPX_OK) {
        printf(
            "%zu stars, %zu random starts each: %zu with a deeper minimum; %.0f %% of the starts led to the lowest\n",
            t->nstar, t->n, t->deeper, 100.0 * (double)t->reached / (double)(t->nstar * (t->n + (t->truth != NULL))));
        printf("deeper by more than 1: %zu; %.2f evaluations and %.2f ms of the processor a star\n", t->much_deeper,
               t->evaluations / (double)t->nstar, 1e3 * t->seconds / (double)t->nstar);
    }
    t->backend.rvfit_close(&t->backend, plan);
    spx_backend_close(&t->backend);
    spx_free(t->truth);
    return st;
}

int main(int argc, char **argv)
{
    static const char *const name[] = {"cubic", "grid", "simplex"};
    static const spx_interpolator which[] = {SPX_INTERPOLATE_CUBIC, SPX_INTERPOLATE_GRID, SPX_INTERPOLATE_SIMPLEX};
    long n = argc == 4 || argc == 5 || argc == 7 ? strtol(argv[3], NULL, 10) : 0;
    if (n < 1 || n > 1000) {
        puts("usage: rv_starts TEMPLATES SPECTRA N [INTERPOLATOR [FIRST LAST]]");
        return 1;
    }
    spx_err e = {0};
    spx_templates t = {0};
    spx_spectra s = {0};
    const char *bent = NULL;
    trial a = {.n = (size_t)n, .in.spectra = &s};
    (void)H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
    spx_rvfit_options_init(&a.options);
    a.options.interpolator = SPX_INTERPOLATE_CUBIC;
    for (size_t i = 0; i < 3 && argc >= 5; i++)
        if (strcmp(argv[4], name[i]) == 0)
            a.options.interpolator = which[i];
    a.options.dichroic = a.options.keep_model = 0;
    a.options.threads = omp_get_max_threads();
    hid_t ft = open_file(argv[1], &e), fs = open_file(argv[2], &e);
    spx_status st = ft < 0 || fs < 0 ? SPX_EIO : spx_templates_read(ft, 1, &t, &e);
    if (st == SPX_OK && a.options.interpolator == SPX_INTERPOLATE_CUBIC) /* as rvs-fit does */
        st = spx_rvfit_bend(&t, &bent, &e);
    if (st == SPX_OK)
        st = spx_spectra_read(fs, 0, &s, &e);
    for (size_t k = 0; k < s.narm && st == SPX_OK; k++)
        for (size_t i = 0; i < t.nsetup; i++)
            if (strcmp(t.setup[i].setup, s.arm[k].name) == 0)
                a.in.setup[k] = &t.setup[i];
    if (st == SPX_OK && a.in.setup[0] == NULL)
        st = spx_fail(&e, SPX_EINPUT, "the first arm has no setup");
    if (st == SPX_OK) {
        size_t first = argc == 7 ? strtoul(argv[5], NULL, 10) : 0,
               end = argc == 7 ? strtoul(argv[6], NULL, 10) + 1 : s.nspec;
        st = run(&a, &s, first, end < s.nspec ? end : s.nspec, &e);
    }
    if (st != SPX_OK)
        printf("rv_starts: %s\n", spx_err_text(&e));
    spx_spectra_free(&s);
    spx_templates_free(&t);
    if (ft >= 0)
        (void)H5Fclose(ft);
    if (fs >= 0)
        (void)H5Fclose(fs);
    return st != SPX_OK || a.deeper > 0;
}
