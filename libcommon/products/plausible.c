/* Provides the rules of plausibility (products/plausible.h). */
#include "products/plausible.h"

#include <math.h>
#include <string.h>

const spx_rule spx_rules[SPX_RULES] = {
    [SPX_RULE_CAMERA] = {.name = "camera",
                         .programs = "specx-extract specx-shift",
                         .measure = "Cameras that image and PSF name",
                         .limits = "the same"},
    [SPX_RULE_CCD] = {.name = "ccd",
                      .programs = "specx-extract specx-shift",
                      .measure = "Columns and rows of the image, and of the CCD that the PSF was made for",
                      .limits = "the same"},
    [SPX_RULE_UNIT] = {.name = "unit",
                       .programs = "specx-extract specx-shift",
                       .measure = "Red end of the PSF's traces, Angstrom: wavelengths are in nm or micron where no "
                                  "light would reach the ground",
                       .lo = 2800,
                       .hi = HUGE_VAL},
    [SPX_RULE_TRACES] = {.name = "traces",
                         .programs = "specx-extract specx-shift",
                         .measure =
                             "Part of the fibres whose trace lies within 0.5 pixel of the next, at both ends and "
                             "in the middle of its wavelengths",
                         .hi = 0.5},
    [SPX_RULE_FIBRES] =
        {.name = "fibres",
         .programs = "specx-extract specx-shift",
         .measure =
             "Fibres whose trace coincides with another, lies nowhere on the CCD or in one row, is 10 rows or more "
             "and ten times as far as usual from both neighbours, or not between them, two that have changed places "
             "among them; and those "
             "whose spots have no width or light",
         .limits = "none",
         .flag = "mask BADFIBER of these fibres, attribute implausible"},
    [SPX_RULE_HORIZON] = {.name = "horizon",
                          .programs = "specx-extract",
                          .measure = "Part of the fibres whose target is below the horizon in the middle of the "
                                     "exposure, with --barycentric: positions, time or site are wrong",
                          .hi = 0.5},
    [SPX_RULE_POINTING] = {.name = "pointing",
                           .programs = "specx-extract",
                           .measure = "Degrees from where the header says that the telescope pointed to the targets, "
                                      "with --barycentric; positions below 24 degrees that scatter eight times less "
                                      "along the right ascension than along the declination, as hours do, count, too",
                           .hi = 10},
    [SPX_RULE_BUNDLES] = {.name = "bundles",
                          .programs = "specx-shift specx-extract",
                          .measure =
                              "Part of a fibre's light that lies in a fibre of another bundle, by their distance "
                              "and the widths of their spots: bundles that are named or counted wrong",
                          .hi = 1e-3,
                          .flag = "attribute implausible"},
    [SPX_RULE_LINES] = {.name = "lines",
                        .programs = "specx-shift specx-sky",
                        .measure = "Rows or bins by which all lines of the sky, or of a lamp, lie elsewhere than their "
                                   "list says, where four or more agree and are not where it says: a PSF of another "
                                   "night, an image that lost rows or was read out the other way, wavelengths in air",
                        .hi = 1,
                        .flag = "attribute implausible"},
    [SPX_RULE_BLANK] = {.name = "blank",
                        .programs = "specx-extract",
                        .measure = "Part of the bins with information whose flux is exactly 0: an image without signal",
                        .hi = 0.99},
    [SPX_RULE_CHI2] = {.name = "chi2",
                       .programs = "specx-extract",
                       .measure = "Median of chi2pix, where the error of the PSF model counts towards the upper limit "
                                  "only: traces that have moved, spots of another shape, a variance that is wrong or "
                                  "no inverse variance, bins wider than spots",
                       .lo = 0.4,
                       .hi = 1.5,
                       .flag = "attribute implausible"},
    [SPX_RULE_SIGN] = {.name = "sign",
                       .programs = "specx-extract",
                       .measure =
                           "Sum of squares of the signal-to-noise ratios of negative bins, over that of positive "
                           "ones: light of the wrong sign, or too much subtracted",
                       .hi = 2,
                       .flag = "attribute implausible"},
    [SPX_RULE_UNLIT] = {.name = "unlit",
                        .programs = "specx-extract",
                        .measure =
                            "Light of bins at an end of the wavelengths, where none is detected, over that of the "
                            "bins inside of them: an upper limit",
                        .lo = 0.05,
                        .hi = HUGE_VAL,
                        .flag = "mask LOWFLAT of these bins, attribute implausible"},
    [SPX_RULE_HITS] = {.name = "hits",
                       .programs = "specx-extract",
                       .measure = "Part of the bins that --reject calls hit by cosmic rays: traces that have moved, "
                                  "spots of another shape",
                       .hi = 0.2,
                       .flag = "attribute implausible"},
    [SPX_RULE_MISFIT] = {.name = "misfit",
                         .programs = "specx-extract",
                         .measure = "Median chi2pix of a spectrum over that of all, where it is above 5; spectra more "
                                    "than half of whose bins are hit by cosmic rays count, too: light that is not "
                                    "where its trace is",
                         .hi = 8,
                         .flag = "attribute implausible"},
    [SPX_RULE_BINS] = {.name = "bins",
                       .programs = "specx-sky",
                       .measure = "Bins over sigma of a narrow line in them, by the resolution matrix, a median: how "
                                  "shifts of lines vary along the arm has errors that are too small",
                       .hi = 1.4,
                       .flag = "attribute implausible"},
    [SPX_RULE_VARIANCE] = {.name = "variance",
                           .programs = "specx-shift specx-sky",
                           .measure =
                               "chi squared of sky fibres off lines, as if each had been a target, or, where it is "
                               "too low, of the image with traces that were moved; 4 of its errors or more from "
                               "1: a variance that is wrong",
                           .lo = 0.8,
                           .hi = 1.5,
                           .flag = "attribute implausible"},
    [SPX_RULE_FINITE] = {.name = "finite",
                         .programs = "h5merge",
                         .measure = "Values of spectra",
                         .limits = "finite, and no ivar below 0",
                         .flag = "0, where it is flux or ivar both are, and mask NODATA"},
    [SPX_RULE_REPEATED] = {.name = "repeated",
                           .programs = "h5merge",
                           .measure =
                               "Rows of one target with the same flux, or models, in all bins, and files that are "
                               "given twice",
                           .limits = "none"},
    [SPX_RULE_MEDIUM] = {.name = "medium",
                         .programs = "rvs-template",
                         .measure =
                             "Strong lines of the library's spectra that lie where they are in air, of a library in "
                             "vacuum, or the other way: all velocities are 83 km/s off",
                         .limits = "fewer than four, or less than four times as many as lie where they should",
                         .flag = "attribute implausible"},
    [SPX_RULE_FIT] = {.name = "fit",
                      .programs = "rvs-fit",
                      .measure = "chi squared a degree of freedom, where it is 5 sigma from 1",
                      .lo = 0.5,
                      .hi = 1.5,
                      .flag = "RVS_WARN 256"},
    [SPX_RULE_NEGATIVE] = {.name = "negative",
                           .programs = "rvs-fit",
                           .measure =
                               "Median of the signal-to-noise ratio of a star's pixels, where it is 5 errors below 0",
                           .lo = -0.2,
                           .hi = HUGE_VAL,
                           .flag = "RVS_WARN 512"},
    [SPX_RULE_EXPOSURES] = {.name = "exposures",
                            .programs = "rvs-fit",
                            .measure =
                                "Errors by which the velocity of an exposure, more than 5 km/s away, differs from "
                                "that of the joint fit",
                            .hi = 6,
                            .flag = "RVS_WARN 1024"},
    [SPX_RULE_ARMS] = {.name = "arms",
                       .programs = "rvs-fit",
                       .measure = "Errors by which the velocity of an arm, more than 25 km/s away, differs from that "
                                  "of the others: wavelengths in air, or of another night, which in an arm without "
                                  "lines of the sky nothing else tells",
                       .hi = 6,
                       .flag = "RVS_WARN 4096"},
    [SPX_RULE_READNOISE] = {.name = "readnoise",
                            .programs = "specx-preproc",
                            .measure = "Noise of an amplifier's overscan, times its gain, over the read noise that the "
                                       "header has: a wrong gain",
                            .lo = 0.5,
                            .hi = 2,
                            .flag = "attribute implausible"},
    [SPX_RULE_GAIN] = {.name = "gain",
                       .programs = "specx-preproc",
                       .measure = "Variance of exposures of a lamp about their mean, over that of photons, where these "
                                  "are most of it: a wrong gain, or a lamp that flickers",
                       .lo = 0.8,
                       .hi = 1.25,
                       .flag = "attribute implausible"},
};

int spx_rule_broken(spx_rule_id rule, double value)
{
    return !(value >= spx_rules[rule].lo && value <= spx_rules[rule].hi);
}

/* 1 when a program is in a list of names separated by blanks. */
static int applies(const spx_rule *r, const char *program)
{
    const size_t n = strlen(program);
    for (const char *p = r->programs; *p != '\0'; p += *p == ' ') {
        const size_t len = strcspn(p, " ");
        if (len == n && strncmp(p, program, n) == 0)
            return 1;
        p += len;
    }
    return 0;
}

spx_status spx_rules_allow(const char *program, const spx_opt_list *names, unsigned *allowed, spx_err *e)
{
    *allowed = 0;
    for (size_t i = 0; i < names->n; i++) {
        size_t k = 0;
        while (k < SPX_RULES && (strcmp(spx_rules[k].name, names->value[i]) != 0 || spx_rules[k].flag != NULL ||
                                 !applies(&spx_rules[k], program)))
            k++;
        if (k == SPX_RULES) {
            char known[256];
            unsigned all = 0;
            for (k = 0; k < SPX_RULES; k++)
                all |= spx_rules[k].flag == NULL && applies(&spx_rules[k], program) ? 1u << k : 0;
            spx_rules_names(all, known, sizeof known);
            return spx_fail(e, SPX_EUSAGE, "--allow %s: no rule that %s refuses by: it has %s", names->value[i],
                            program, known);
        }
        *allowed |= 1u << k;
    }
    return SPX_OK;
}

void spx_rules_names(unsigned rules, char *text, size_t size)
{
    size_t at = 0;
    text[0] = '\0';
    for (size_t k = 0; k < SPX_RULES; k++)
        if (rules & 1u << k && at < size)
            at += (size_t)snprintf(text + at, size - at, "%s%s", at > 0 ? " " : "", spx_rules[k].name);
}

/* Plausible values of a rule. */
static void print_limits(const spx_rule *r, FILE *out)
{
    if (r->limits != NULL)
        fprintf(out, "%s", r->limits);
    else if (r->hi == HUGE_VAL)
        fprintf(out, "%g or more", r->lo);
    else if (r->lo == 0)
        fprintf(out, "%g or less", r->hi);
    else
        fprintf(out, "%g to %g", r->lo, r->hi);
}

void spx_rules_print(int mdoc, FILE *out)
{
    if (mdoc)
        fprintf(out, ".Bl -tag -width Ds\n");
    for (const spx_rule *r = spx_rules; r < spx_rules + SPX_RULES; r++) {
        fprintf(out, mdoc ? ".It Cm %s Pq %s\n%s.\nPlausible: " : "%s (%s)\n    %s.\n    Plausible: ", r->name,
                r->programs, r->measure);
        print_limits(r, out);
        fprintf(out, mdoc ? ".\n" : ". ");
        if (r->flag != NULL)
            fprintf(out, "Else: flagged, %s.\n", r->flag);
        else
            fprintf(out, "Else: refused, unless --allow %s is given.\n", r->name);
    }
    if (mdoc)
        fprintf(out, ".El\n");
}
