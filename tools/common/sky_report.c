#include "common/sky_report.h"

#include <stdio.h>
#include <string.h>

#include "common/plausible_inputs.h"

/* The same on lines, over that between them, above which the fibres do not see one sky as they should; and bins of
 * lines that are enough to tell. */
#define UNLIKE 1.5
enum { FEW_LINES = 50 };

static const char *const class_name[SPX_SKY_CLASSES] = {"off", "on", "top"};

/* One figure a class, or "-" where there is no bin. */
static void figures(const double *value, const size_t *n, char *text, size_t size)
{
    text[0] = '\0';
    for (size_t c = 0; c < SPX_SKY_CLASSES; c++) {
        char one[32] = "-";
        if (n[c] > 0)
            (void)snprintf(one, sizeof one, "%.3f", value[c]);
        (void)snprintf(text + strlen(text), size - strlen(text), "%s%s %s", c > 0 ? ", " : "", class_name[c], one);
    }
}

/* Wavelengths without sky. */
static size_t count_bad(const spx_sky *sky)
{
    size_t n = 0;
    for (size_t k = 0; k < sky->nwave; k++)
        n += sky->bad[k];
    return n;
}

/* Lines that are left: throughputs that are not those of a scale a fibre, or traces that have moved. */
static void tell_lines(const char *label, const spx_sky *sky, int flat)
{
    const double on = sky->loo[SPX_SKY_ON], off = sky->nfitted[SPX_SKY_OFF] > 0 ? sky->loo[SPX_SKY_OFF] : 1;
    if (sky->nfitted[SPX_SKY_ON] >= FEW_LINES && on > UNLIKE * off)
        spx_warn(
            "%schi2 on sky lines is %.1f, between them %.1f: %s", label, on, off,
            flat ? "is the flat field of this camera? Or have traces moved (specx-shift)?"
                 : "the frame was not divided by a flat field: give one (--flat). Or have traces moved (specx-shift)?");
}

static void tell(const char *label, const spx_sky *sky, int flat)
{
    const size_t nbad = count_bad(sky);
    size_t role[4] = {0}, nrejected = 0;
    char loo[96], held[96];
    for (size_t i = 0; i < sky->nspec; i++) {
        role[sky->role[i]]++;
        nrejected += sky->role[i] == SPX_SKY_FIBRE ? sky->nrejected[i] : 0;
    }
    figures(sky->loo, sky->nfitted, loo, sizeof loo);
    figures(sky->held_out, sky->nheld_out, held, sizeof held);
    if (role[SPX_SKY_FIBRE] > 1)
        spx_note("%ssky of %zu fibres, chi2 of each without it: %s lines", label, role[SPX_SKY_FIBRE], loo);
    else
        spx_note("%ssky of one fibre: nothing tells how good it is", label);
    if (role[SPX_SKY_HELD_OUT] > 0)
        spx_note("%schi2 of %zu sky fibres held out: %s lines", label, role[SPX_SKY_HELD_OUT], held);
    spx_detail("%s%zu passes, %zu bins of sky fibres left out", label, sky->passes, nrejected);
    for (size_t i = 0; i < sky->nspec; i++)
        if (sky->role[i] == SPX_SKY_REJECTED)
            spx_warn("%sspectrum %zu is no clean sky: left out, and flagged BADSKY", label, i);
    if (nbad > 0)
        spx_warn("%s%zu of %zu wavelengths have no sky: flux and ivar 0 there, mask BADSKY", label, nbad, sky->nwave);
    if (!sky->converged)
        spx_warn("%sthe sky still changes by %.2g errors after %zu passes (/sky, converged 0): is there other light in "
                 "sky fibres?",
                 label, sky->change, sky->passes);
    if (role[SPX_SKY_FIBRE] > 1 && sky->loo[SPX_SKY_OFF] > SPX_SKY_CONTRADICT * sky->noise)
        spx_warn("%sthe sky fibres contradict each other: other light in one of them? Name others, or more "
                 "(--sky-fibers)",
                 label);
    else if (role[SPX_SKY_FIBRE] > 1)
        tell_lines(label, sky, flat);
}

static spx_status record_chi2(spx_run *s, const char *name, const double *value, const size_t *n, spx_err *e)
{
    char text[96];
    figures(value, n, text, sizeof text);
    return spx_run_record(s, name, e, "%s", text);
}

spx_status spx_sky_report(spx_run *s, const char *label, const spx_sky *sky, int flat, spx_err *e)
{
    size_t nrejected = 0, fibres = 0;
    char tau[SPX_SKY_MOST * 16] = "", gauge[SPX_SKY_MOST * 16] = "";
    if (!sky->converged && sky->change > SPX_SKY_UNSETTLED)
        return spx_fail_at(e, SPX_ENO, NULL, "/frame",
                           "name more fibres that see nothing but sky (--sky-fibers), or look at these",
                           "the sky of %zu fibres has not converged, it still changes by %.2g errors after %zu passes; "
                           "nothing is written",
                           sky->nsky, sky->change, sky->passes);
    if (count_bad(sky) == sky->nwave)
        return spx_fail_at(e, SPX_ENO, NULL, "/frame", "look at these fibres, or name others (--sky-fibers)",
                           "no wavelength has a sky: its %zu fibres contradict each other in all bins; nothing is "
                           "written",
                           sky->nsky);
    tell(label, sky, flat);
    for (size_t i = 0; i < sky->nspec; i++) {
        nrejected += sky->nrejected[i];
        fibres += sky->role[i] == SPX_SKY_REJECTED;
    }
    for (size_t q = 0; q < sky->nq; q++) {
        const char *comma = q > 0 ? "," : "";
        (void)snprintf(tau + strlen(tau), sizeof tau - strlen(tau), "%s%.4g", comma, sky->tau[q]);
        (void)snprintf(gauge + strlen(gauge), sizeof gauge - strlen(gauge), "%s%.4g", comma, sky->gauge[q]);
    }
    spx_status st = spx_run_record(s, "sky_fibers", e, "%zu", sky->nsky);
    if (st == SPX_OK)
        st = spx_run_record(s, "terms", e, "%zu,%zu,%zu", sky->nt, sky->nd, sky->nk);
    if (st == SPX_OK)
        st = spx_run_record(s, "passes", e, "%zu", sky->passes);
    if (st == SPX_OK)
        st = spx_run_record(s, "converged", e, "%s, last change %.2g errors", sky->converged ? "yes" : "no",
                            sky->change);
    if (st == SPX_OK)
        st = spx_run_record(s, "bins_rejected", e, "%zu", nrejected);
    if (st == SPX_OK)
        st = spx_run_record(s, "fibers_rejected", e, "%zu", fibres);
    if (st == SPX_OK && sky->nq > 0)
        st = spx_run_record(s, "tau", e, "%s", tau);
    if (st == SPX_OK && sky->nq > 0)
        st = spx_run_record(s, "gauge", e, "%s", gauge);
    if (st == SPX_OK)
        st = record_chi2(s, "chi2", sky->fitted, sky->nfitted, e);
    if (st == SPX_OK)
        st = record_chi2(s, "chi2_loo", sky->loo, sky->nfitted, e);
    return st == SPX_OK ? record_chi2(s, "chi2_heldout", sky->held_out, sky->nheld_out, e) : st;
}
