#include "common/rvfit_report.h"

#include <math.h>
#include <stdio.h>

#include "base/mem.h"
#include "num/stat.h"
#include "products/plausible.h"

/* Degrees of freedom of a star's fit with nq quantities, at least 1. */
static double freedom(const spx_rvfit_star *star, size_t nq)
{
    double functions = 0;
    for (size_t a = 0; a < SPX_MAX_ARM; a++)
        functions += star->npoly[a] * star->nexp;
    return fmax(1, (double)star->npix - functions - (double)nq);
}

/* Warns where chi^2 of most stars is that of a variance that is too large. */
static spx_status say_variance(const spx_rvfit_stars *stars, const spx_rvfit *all, spx_err *e)
{
    static const double TELLING = 5; /* errors of the median, which is that of the mean times sqrt(pi / 2) */
    double *reduced = spx_alloc(stars->nstar, sizeof *reduced, e), sum = 0;
    if (reduced == NULL)
        return SPX_EIO;
    size_t n = 0;
    for (size_t i = 0; i < stars->nstar; i++) {
        const double dof = freedom(&all->star[i], 2 + all->npar);
        if (all->star[i].npix == 0 || all->star[i].warn & SPX_RVS_BAD)
            continue;
        reduced[n++] = all->star[i].chisq / dof;
        sum += dof;
    }
    const double median = spx_median(reduced, n);
    if (n > 0 && median < spx_rules[SPX_RULE_VARIANCE].lo && 1 - median > TELLING * sqrt(M_PI / sum))
        spx_warn("median chi2 a degree of freedom is %.2f, and should be above %g: the variance of the spectra is too "
                 "large, and so are errors; or neighbouring pixels share noise, as in spectra that were rebinned",
                 median, spx_rules[SPX_RULE_VARIANCE].lo);
    spx_free(reduced);
    return SPX_OK;
}

/* Says which bits of RVS_WARN how many stars have, and the median of chi^2 a pixel. */
static spx_status say_quality(const spx_rvfit_stars *stars, const spx_rvfit *all, spx_err *e)
{
    double *reduced = spx_alloc(stars->nstar, sizeof *reduced, e);
    if (reduced == NULL)
        return SPX_EIO;
    size_t n = 0;
    for (size_t i = 0; i < stars->nstar; i++)
        if (all->star[i].npix > 0)
            reduced[n++] = all->star[i].chisq / (double)all->star[i].npix;
    char text[256];
    int at = snprintf(text, sizeof text, "median chi2 a pixel %.2f; RVS_WARN bits", spx_median(reduced, n)), any = 0;
    for (int64_t bit = 1; bit <= SPX_RVS_LAST && at < (int)sizeof text; bit *= 2) {
        size_t has = 0;
        for (size_t i = 0; i < stars->nstar; i++)
            has += (all->star[i].warn & bit) != 0;
        if (has > 0)
            at += snprintf(text + at, sizeof text - (size_t)at, "%s %lld: %zu", any++ ? "," : "", (long long)bit, has);
    }
    spx_note("%s%s", text, any ? "" : ": none");
    spx_free(reduced);
    return SPX_OK;
}

/* Why stars could not be fitted, and a row of each kind, into text. */
static void say_why(const spx_rvfit_stars *stars, const spx_rvfit *all, char *text, size_t size)
{
    static const char *const why[SPX_RVFIT_NBAD] = {"no finite objective", "no good pixel in any arm that is fitted",
                                                    "no more good pixels than functions of the continuum (--npoly)",
                                                    "no flux"};
    size_t at = 0;
    text[0] = '\0';
    for (int k = SPX_RVFIT_GOOD; k < SPX_RVFIT_NBAD; k++) {
        size_t n = 0, first = 0;
        for (size_t i = stars->nstar; i-- > 0;)
            if ((all->star[i].warn & SPX_RVS_BAD) && (int)all->star[i].bad == k) {
                n++;
                first = stars->row[stars->joint ? stars->first[i] : i];
            }
        if (n > 0 && at < size)
            at += (size_t)snprintf(text + at, size - at, "%s%zu with %s (row %zu%s)", at > 0 ? ", " : "", n, why[k],
                                   first, n > 1 ? " is the first" : "");
    }
}

/* Median standard error of a parameter; 0: it was held, or no star has one. */
static spx_status median_error(const spx_rvfit_stars *stars, const spx_rvfit *all, size_t p, double *out, spx_err *e)
{
    double *v = spx_alloc(stars->nstar, sizeof *v, e);
    if (v == NULL)
        return SPX_EIO;
    size_t n = 0;
    for (size_t i = 0; i < stars->nstar; i++)
        if (all->star[i].success && all->star[i].par_err[p] > 0)
            v[n++] = all->star[i].par_err[p];
    *out = n > 0 ? spx_median(v, n) : 0;
    spx_free(v);
    return SPX_OK;
}

/* Warns where the interpolation between nodes moves parameters by a good part of their errors: what rvs-template has
 * estimated for fits of each setup alone, weighted as their information. */
static spx_status say_nodes(spx_run *s, const spx_rvfit_stars *stars, const spx_spectra_parts *parts,
                            const spx_setup *const *setup, const spx_rvfit *all, spx_err *e)
{
    static const double WORTH = 0.5; /* of the median error */
    char text[512] = "";
    size_t at = 0;
    spx_status st = SPX_OK;
    for (size_t p = 0; p < all->npar && st == SPX_OK; p++) {
        double weight = 0, bias = 0, spread = 0, sigma = 0;
        for (size_t a = 0; a < parts->all.narm; a++) {
            const spx_node_error *n = setup[a] != NULL ? &setup[a]->nodes : NULL;
            if (n == NULL || n->sn == 0 || n->error[p] == 0)
                continue;
            weight += 1 / (n->error[p] * n->error[p]);
            bias += n->bias[p] / n->error[p];
            spread += n->spread[p] / n->error[p];
        }
        if (weight == 0 || (st = median_error(stars, all, p, &sigma, e)) != SPX_OK || sigma == 0)
            continue;
        const double off = hypot(bias, spread) / weight;
        char name[64];
        (void)snprintf(name, sizeof name, "node_error_%.31s", all->parname[p]);
        st = spx_run_record(s, name, e, "%.3g", off);
        if (off > WORTH * sigma && at < sizeof text)
            at += (size_t)snprintf(text + at, sizeof text - at, "%s %.31s %.2g (median error %.2g)", at > 0 ? "," : "",
                                   all->parname[p], off, sigma);
    }
    if (st == SPX_OK && at > 0)
        spx_warn(
            "errors hold noise alone, and interpolation between the nodes of the library is expected to be off by:%s: "
            "use a library with nodes closer together, or add that to the errors",
            text);
    return st;
}

static int is_odd(const spx_rvfit_star *s, size_t arm)
{
    return (s->warn & SPX_RVS_ARMS) != 0 && (size_t)s->odd_arm == arm;
}

/* The arm that is odd in most stars; *by: median of its velocities less those of the other arms. */
static spx_status find_odd_arm(const spx_rvfit *all, size_t *arm, double *by, spx_err *e)
{
    size_t n[SPX_MAX_ARM] = {0}, m = 0;
    double *of = spx_alloc(all->nstar, sizeof *of, e);
    if (of == NULL)
        return SPX_EIO;
    *arm = 0;
    for (size_t a = 0; a < all->narm; a++) {
        for (size_t i = 0; i < all->nstar; i++)
            n[a] += is_odd(&all->star[i], a);
        *arm = n[a] > n[*arm] ? a : *arm;
    }
    for (size_t i = 0; i < all->nstar; i++)
        if (is_odd(&all->star[i], *arm))
            of[m++] = all->star[i].odd_by;
    *by = spx_median(of, m);
    spx_free(of);
    return SPX_OK;
}

/* Warns where the velocities of many stars are off alike in one arm: it is not they that are odd, but its wavelengths.
 */
static spx_status say_arms(const spx_rvfit *all, spx_err *e)
{
    enum { FEWEST = 3 };
    static const double PART = 0.1, ALIKE = 15, AIR = 82; /* of the stars with lines; km/s */
    size_t arm, good = 0, alike = 0;
    double by;
    const spx_status st = find_odd_arm(all, &arm, &by, e);
    for (size_t i = 0; i < all->nstar && st == SPX_OK; i++) {
        const spx_rvfit_star *s = &all->star[i];
        good += (s->warn & (SPX_RVS_BAD | SPX_RVS_CHISQ)) == 0;
        alike += is_odd(s, arm) && fabs(s->odd_by - by) < ALIKE;
    }
    if (alike >= FEWEST && (double)alike > PART * (double)good)
        spx_warn("velocities of %zu of %zu stars in arm %s are %+.0f km/s from those in their other arms (RVS_WARN "
                 "4096): wavelengths of that arm or of the others are wrong%s",
                 alike, good, all->arm[arm].name, by,
                 fabs(fabs(by) - AIR) < ALIKE ? ", as where some are in air and called vacuum" : "");
    return st;
}

spx_status spx_rvfit_report(spx_run *s, const spx_rvfit_stars *stars, const spx_spectra_parts *p,
                            const spx_setup *const *setup, const spx_rvfit *all, spx_err *e)
{
    size_t bad = 0, flagged = 0, failed = 0, wide = 0;
    for (size_t i = 0; i < stars->nstar; i++) {
        const spx_rvfit_star *star = &all->star[i];
        bad += (star->warn & SPX_RVS_BAD) != 0;
        flagged += star->warn != 0 && !(star->warn & SPX_RVS_BAD);
        wide += (star->warn & SPX_RVS_WIDE) != 0;
        failed += !star->success && !(star->warn & SPX_RVS_BAD);
    }
    const char *what = stars->joint ? "stars" : "spectra";
    char why[400];
    say_why(stars, all, why, sizeof why);
    if (bad == stars->nstar)
        return spx_fail(e, SPX_ENO, "none of %zu %s could be fitted: %s; nothing is written", stars->nstar, what, why);
    if (bad > 0)
        spx_warn("%zu of %zu %s could not be fitted (RVS_WARN 32): %s", bad, stars->nstar, what, why);
    if (failed > 0)
        spx_warn("%zu of %zu fits did not converge (SUCCESS 0)", failed, stars->nstar);
    if (wide > 0)
        spx_warn("%zu of %zu %s: the templates are wider than the resolution matrix, by more than can be taken out: "
                 "parameters and rotation are wrong (RVS_WARN 2048): make narrower ones with rvs-template",
                 wide, stars->nstar, what);
    if (stars->joint)
        spx_note("%zu star%s of %zu spectra fitted, %zu with a warning (RVS_WARN)", stars->nstar - bad,
                 stars->nstar - bad == 1 ? "" : "s", stars->nrow, flagged);
    else
        spx_note("%zu of %zu spectra fitted, %zu with a warning (RVS_WARN)", stars->nstar - bad, p->all.nspec, flagged);
    size_t compared = 0, variable = 0;
    for (size_t i = 0; i < stars->nstar; i++) {
        compared += all->star[i].const_dof > 0;
        variable += all->star[i].variable != 0;
    }
    if (all->with_epochs)
        spx_note("exposures of %zu stars were compared: the velocities of %zu change (VARIABLE; 0.27 %% do by chance)",
                 compared, variable);
    spx_status st = say_quality(stars, all, e);
    if (st == SPX_OK)
        st = say_variance(stars, all, e);
    if (st == SPX_OK)
        st = say_arms(all, e);
    if (st == SPX_OK)
        st = say_nodes(s, stars, p, setup, all, e);
    if (st == SPX_OK)
        st = spx_run_record(s, "stars", e, "%zu", stars->nstar);
    if (st == SPX_OK && stars->joint)
        st = spx_run_record(s, "exposures", e, "%zu", stars->nrow);
    if (st == SPX_OK && p->dropped.n > 0)
        st = spx_run_record(s, "columns_left_out", e, "%s", p->dropped.s);
    if (st == SPX_OK)
        st = spx_run_record(s, "stars_bad", e, "%zu", bad);
    if (st == SPX_OK)
        st = spx_run_record(s, "stars_not_converged", e, "%zu", failed);
    for (size_t a = 0; a < p->all.narm && st == SPX_OK; a++) {
        char name[32];
        (void)snprintf(name, sizeof name, "setup_%s", p->all.arm[a].name);
        if (setup[a] != NULL)
            st = spx_run_record(s, name, e, "%s", setup[a]->setup);
    }
    return st;
}
