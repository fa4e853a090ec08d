#include "common/flat_report.h"

#include <stdio.h>

#include "base/text.h"

/* Chi2 from which the model is wrong by more than half of the noise. */
#define POOR 1.5

/* Numbers of the fibres that have no flat, as many as fit a line. */
static void name_bad(const spx_flat *flat, char *text, size_t size)
{
    size_t at = 0, more = 0;
    text[0] = '\0';
    for (size_t i = 0; i < flat->nspec; i++) {
        if ((flat->mask[i * flat->nwave] & SPX_BADFIBERFLAT) == 0)
            continue;
        if (at + 24 < size)
            at += (size_t)snprintf(text + at, size - at, "%s%d", at > 0 ? ", " : "",
                                   flat->fiber != NULL ? flat->fiber[i] : (int)i);
        else
            more++;
    }
    if (more > 0)
        (void)snprintf(text + at, size - at, " and %zu more", more);
}

static void tell(const spx_flat *flat, const spx_flat_frames *f, const spx_flat_counts *c)
{
    char bad[160];
    spx_note("flat of %zu fibres from %zu exposure%s: chi2 %.3f, %zu of %zu bins rejected, %zu passes",
             flat->nspec - c->nbadfiber, f->n, f->n > 1 ? "s" : "", c->chi2, c->nreject, c->nbin - c->nmasked,
             c->npass);
    if (flat->native)
        spx_note("%zu bins have a throughput of their own", c->nnative);
    if (flat->nspec - c->nbadfiber == 1)
        spx_warn("with a single fibre there is no mean to compare it with: its flat is 1");
    if (c->nbadfiber > 0) {
        name_bad(flat, bad, sizeof bad);
        spx_warn("%zu of %zu fibres have no flat (mask BADFIBERFLAT): without light, or beyond 0.1 to 10 times the "
                 "median: %s",
                 c->nbadfiber, flat->nspec, bad);
    }
    if (c->nlow > 0)
        spx_warn("%zu of %zu bins of other fibres have no flat (mask LOWFLAT)", c->nlow,
                 (flat->nspec - c->nbadfiber) * flat->nwave);
    if (!c->converged)
        spx_warn("the flat still changes by %.2g after %zu passes: do the exposures belong together?", c->change,
                 c->npass);
    if (c->nline > 4 && c->nline > flat->nwave / 200)
        spx_warn("%s: %zu bins stand out like emission lines: is it a flat?", f->name[c->line_exposure], c->nline);
    if (c->chi2 > POOR)
        spx_warn("chi2 is %.2f: the PSF does not suit, fibres vary within fewer Angstrom than --knots, or the fibres "
                 "do not see the same light",
                 c->chi2);
}

spx_status spx_flat_report(spx_run *s, const spx_flat *flat, const spx_flat_frames *f, const spx_flat_counts *c,
                           spx_err *e)
{
    const struct {
        const char *name;
        size_t value;
    } count[] = {{"exposures", f->n},
                 {"fibres", flat->nspec},
                 {"fibres_flagged", c->nbadfiber},
                 {"bins", c->nbin},
                 {"bins_masked", c->nmasked},
                 {"bins_rejected", c->nreject},
                 {"bins_low", c->nlow},
                 {"bins_native", c->nnative},
                 {"passes", c->npass},
                 {"bins_like_lines", c->nline}};
    spx_status st = SPX_OK;
    tell(flat, f, c);
    for (size_t i = 0; i < sizeof count / sizeof *count && st == SPX_OK; i++)
        st = spx_run_record(s, count[i].name, e, "%zu", count[i].value);
    if (st == SPX_OK)
        st = spx_run_record(s, "chi2", e, "%.6g", c->chi2);
    if (st == SPX_OK)
        st = spx_run_record(s, "last_change", e, "%.3g", c->change);
    if (st == SPX_OK) /* of what is common to all fibres, so not in ivar */
        st = spx_run_record(s, "left_out_of_ivar", e, "error of the lamp's spectrum, common to all fibres");
    return st;
}
