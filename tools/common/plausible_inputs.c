#include "common/plausible_inputs.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/mem.h"
#include "base/text.h"
#include "h5/attr.h"
#include "h5/table.h"
#include "num/wave.h"
#include "products/frame.h"
#include "products/library_h5.h"
#include "psf/psf.h"
#include "spectral/star_lines.h"

/* Errors of its own that chi squared is from 1, where it tells of the variance. */
static const double TELLING = 4;

/* Breaks a rule: SPX_EINPUT with that text, or, where it is allowed, a warning. */
static spx_status refuse(spx_rule_id rule, unsigned allowed, const char *label, spx_err *e, const char *fmt, ...)
    SPX_PRINTF(5, 6);

static spx_status refuse(spx_rule_id rule, unsigned allowed, const char *label, spx_err *e, const char *fmt, ...)
{
    char text[512], remedy[64];
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    if (allowed & 1u << rule) {
        spx_warn("%s%s", label, text);
        return SPX_OK;
    }
    (void)snprintf(remedy, sizeof remedy, "--allow %s goes on", spx_rules[rule].name);
    return spx_fail_at(e, SPX_EINPUT, NULL, NULL, remedy, "%s", text);
}

/* First row whose number is not that of its trace, where the PSF numbers them: the same, counted from 0 in place of 1,
 * or of a later spectrograph, all of whose numbers are above the PSF's. n: there is none. */
static size_t find_other_number(const spx_psf *psf, size_t n, const int64_t *fiber)
{
    int64_t last = 0, off = 0;
    size_t first = n;
    for (size_t k = 0; k < n; k++)
        last = psf->fibre[k] > last ? psf->fibre[k] : last;
    for (size_t k = 0; k < n; k++) {
        const int64_t d = fiber[k] - (int64_t)psf->fibre[k];
        if (fiber[k] < 0)
            continue;
        if (first < n ? d != off : d != 0 && d != -1 && d <= last)
            return k;
        if (first == n) {
            first = k;
            off = d;
        }
    }
    return n;
}

/* Rows of a fibermap are the fibres in their order, where there are as many and the PSF does not number its fibres:
 * numbers that fall may mean another, and those that repeat are not the fibres'. Negative ones are none. */
static spx_status look_at_order(const spx_image *image, const spx_psf *psf, const char *label, spx_err *e)
{
    const spx_table *map = image->fibermap;
    if (map == NULL || map->nrow != psf->nspec || spx_table_find(map, "FIBER") < 0)
        return SPX_OK;
    int64_t *fiber = spx_alloc(map->nrow, sizeof *fiber, e);
    size_t *row = fiber == NULL ? NULL : spx_alloc(psf->nspec, sizeof *row, e), k = 1, same = 0;
    spx_status st = row != NULL ? spx_table_get_i64(map, "FIBER", fiber, e) : SPX_EIO;
    if (st == SPX_OK)
        st = spx_frame_fibre_rows(image, psf, row, e);
    while (st == SPX_OK && same < psf->nspec && row[same] == same)
        same++;
    while (st == SPX_OK && k < map->nrow && (fiber[k] > fiber[k - 1] || fiber[k] < 0))
        k++;
    const size_t other =
        st == SPX_OK && psf->fibre != NULL && psf->order == NULL ? find_other_number(psf, map->nrow, fiber) : map->nrow;
    if (other < map->nrow && same == psf->nspec)
        spx_warn("%sthe PSF's fibre %zu is number %u, FIBER of the fibermap is %lld there: its rows are taken for the "
                 "traces of the PSF in their order; is the PSF of these fibres?",
                 label, other, psf->fibre[other], (long long)fiber[other]);
    else if (st == SPX_OK && k < map->nrow && same == psf->nspec && fiber[k] == fiber[k - 1])
        spx_warn(
            "%sFIBER of the fibermap is %lld in rows %zu and %zu: rows are taken for the traces of the PSF in their "
            "order, but tables and zero points by fibre will mix them",
            label, (long long)fiber[k], k - 1, k);
    else if (st == SPX_OK && k < map->nrow && same == psf->nspec)
        spx_warn(
            "%sFIBER of the fibermap falls from %lld to %lld: its rows are taken for the traces of the PSF in their "
            "order, not by their numbers",
            label, (long long)fiber[k - 1], (long long)fiber[k]);
    spx_free(row);
    spx_free(fiber);
    return st;
}

/* 1 when the PSF says that a trace may be used nowhere. */
static int is_lost(const spx_psf *psf, size_t f)
{
    double lo, hi;
    spx_psf_usable(psf, f, &lo, &hi);
    return hi < lo;
}

/* Warns of traces that cannot be right, and of those that the PSF has lost; *odd stays NULL where there are none. */
static spx_status look_at_traces(const spx_psf *psf, uint32_t *flags, const char *label, uint32_t **odd, spx_err *e)
{
    static const struct {
        uint32_t flag;
        const char *text;
    } what[] = {{SPX_ODD_TOGETHER, "coincide with another"},
                {SPX_ODD_OFF, "lie nowhere on the CCD, or in one row"},
                {SPX_ODD_APART, "lie far from where their neighbours do"},
                {SPX_ODD_EXCHANGED, "have changed places in pairs"},
                {SPX_ODD_LOST, "have no spots, or may be used nowhere (valid_range)"}};
    int any = 0;
    for (size_t f = 0; f < psf->nspec; f++)
        flags[f] |= is_lost(psf, f) ? SPX_ODD_LOST : 0;
    for (size_t k = 0; k < sizeof what / sizeof *what; k++) {
        char some[80];
        size_t n = 0;
        for (size_t f = 0; f < psf->nspec; f++)
            n += (flags[f] & what[k].flag) != 0;
        spx_text_flagged(psf->nspec, flags, what[k].flag, some);
        if (n > 0)
            spx_warn("%s%zu of the PSF's %zu traces%s %s: their spectra are masked; take another PSF", label, n,
                     psf->nspec, some, what[k].text);
        any |= n > 0;
    }
    if (!any)
        return SPX_OK;
    if ((*odd = spx_alloc(psf->nspec, sizeof **odd, e)) == NULL)
        return SPX_EIO;
    memcpy(*odd, flags, psf->nspec * sizeof **odd);
    return SPX_OK;
}

/* Longest wavelength of any trace. */
static double red_end(const spx_psf *psf)
{
    double red = psf->wave_range != NULL ? 0 : psf->y.wmax;
    for (size_t f = 0; f < psf->nspec && psf->wave_range != NULL; f++)
        red = fmax(red, psf->wave_range[2 * f + 1]);
    return red;
}

spx_status spx_plausible_pair(const spx_image *image, const spx_psf *psf, unsigned allowed, const char *label,
                              uint32_t **odd, spx_err *e)
{
    *odd = NULL;
    spx_status st = SPX_OK;
    if (image->camera[0] != '\0' && psf->camera[0] != '\0' && strcasecmp(image->camera, psf->camera) != 0)
        st = refuse(SPX_RULE_CAMERA, allowed, label, e, "the image is of camera %s, the PSF of camera %s",
                    image->camera, psf->camera);
    if (st == SPX_OK && psf->npix_x > 0 && psf->npix_y > 0 && (psf->npix_x != image->nx || psf->npix_y != image->ny))
        st = refuse(SPX_RULE_CCD, allowed, label, e, "the image has %zu x %zu pixels, the PSF was made for %zu x %zu",
                    image->nx, image->ny, psf->npix_x, psf->npix_y);
    const double red = red_end(psf);
    if (st == SPX_OK && spx_rule_broken(SPX_RULE_UNIT, red))
        st = refuse(SPX_RULE_UNIT, allowed, label, e,
                    "the PSF's traces end at %g Angstrom: are their wavelengths in nm, or micron?", red);
    double together = 0;
    uint32_t *flags = st == SPX_OK ? spx_alloc(psf->nspec, sizeof *flags, e) : NULL;
    if (st == SPX_OK)
        st = flags != NULL ? spx_psf_odd_traces(psf, image->nx, image->ny, flags, &together, e) : SPX_EIO;
    if (st == SPX_OK && spx_rule_broken(SPX_RULE_TRACES, together))
        st = refuse(SPX_RULE_TRACES, allowed, label, e, "%.0f %% of the PSF's traces coincide with the next one",
                    100 * together);
    else if (st == SPX_OK)
        st = look_at_traces(psf, flags, label, odd, e);
    spx_free(flags);
    return st == SPX_OK ? look_at_order(image, psf, label, e) : st;
}

spx_status spx_plausible_ranges(const spx_psf *psf, const uint32_t *odd, double **ranges, spx_err *e)
{
    double *const range = spx_alloc2(psf->nspec, 2, sizeof *range, e);
    if ((*ranges = range) == NULL)
        return SPX_EIO;
    for (size_t f = 0; f < psf->nspec; f++) {
        spx_psf_usable(psf, f, &range[2 * f], &range[2 * f + 1]);
        if (odd[f] != 0) {
            range[2 * f] = 1;
            range[2 * f + 1] = 0;
        }
    }
    return SPX_OK;
}

/* Scatter along right ascension over that along declination, of positions in hours: 1/15 where fields are round. Fibres
 * in a row along the meridian have less. */
#define FLAT    0.125
#define FLATTER 0.02

static const char in_hours[] = "TARGET_RA should be in degrees, and seems to be in hours";

spx_status spx_plausible_directions(const spx_directions *where, unsigned allowed, const char *label, spx_err *e)
{
    spx_status st = SPX_OK;
    if (spx_rule_broken(SPX_RULE_HORIZON, where->below))
        st = refuse(SPX_RULE_HORIZON, allowed, label, e,
                    "the targets of %.0f %% of the fibres were below the horizon, in the mean at %.0f degrees: %s",
                    100 * where->below, where->altitude,
                    where->in_hours > 0 ? in_hours
                                        : "their places (degrees), the time (UTC) or the site (degrees east) is wrong");
    if (st != SPX_OK)
        return st;
    if (where->off > spx_rules[SPX_RULE_POINTING].hi)
        st =
            refuse(SPX_RULE_POINTING, allowed, label, e,
                   "the targets lie %.0f degrees from where the header says that the telescope pointed: %s", where->off,
                   where->off_hours < spx_rules[SPX_RULE_POINTING].hi
                       ? in_hours
                       : "the fibermap is of another exposure, or TARGET_RA, TARGET_DEC are not in degrees");
    else if (where->flat < FLAT && where->flat > FLATTER && !(where->off < 1))
        st = refuse(SPX_RULE_POINTING, allowed, label, e,
                    "the targets scatter %.2f times as far along the right ascension as along the declination: %s",
                    where->flat, in_hours);
    if (st == SPX_OK && where->astray > 0)
        spx_warn(
            "%s%zu fibres, such as %zu, have targets more than %g degrees from the others: their velocities will be "
            "wrong if they do not look there",
            label, where->astray, where->stray, spx_rules[SPX_RULE_POINTING].hi);
    return st;
}

/* Ends without light, and the wavelengths that are left. */
static void warn_of_unlit(const char *label, const spx_arm *a, const size_t unlit[2])
{
    const double step = a->nwave > 1 ? (a->wavelength[a->nwave - 1] - a->wavelength[0]) / (double)(a->nwave - 1) : 0;
    char which[64];
    if (unlit[0] > 0 && unlit[1] > 0)
        (void)snprintf(which, sizeof which, "first %zu and last %zu", unlit[0], unlit[1]);
    else
        (void)snprintf(which, sizeof which, "%s %zu", unlit[0] > 0 ? "first" : "last", unlit[0] + unlit[1]);
    spx_warn("%sno light reaches the %s of %zu wavelengths: masked as LOWFLAT; --wavelength %.8g,%.8g,%.8g leaves them "
             "out",
             label, which, a->nwave, a->wavelength[unlit[0]], a->wavelength[a->nwave - 1 - unlit[1]], step);
}

unsigned spx_plausible_bundles(const char *label, const spx_extract_border *border)
{
    if (!spx_rule_broken(SPX_RULE_BUNDLES, border->light))
        return 0;
    spx_warn("%sfibres %zu and %zu of different bundles share %.2g of their light at %.0f Angstrom: bundles that "
             "overlap have to be one: --bundle-size, or right ones in /psf/bundle",
             label, border->fibre[0], border->fibre[1], border->light, border->wavelength);
    return 1u << SPX_RULE_BUNDLES;
}

/* Flags the bins of fibres whose traces cannot be right. Returns the rule that is broken, 1 << rule, or 0. */
static unsigned flag_fibres(spx_frame *f, const uint32_t *odd)
{
    unsigned broken = 0;
    for (size_t i = 0; i < f->nspec && odd != NULL; i++) {
        if (odd[f->fiber[i]] == 0)
            continue;
        broken = 1u << SPX_RULE_FIBRES;
        for (size_t k = 0; k < f->arm.nwave; k++)
            f->arm.mask[i * f->arm.nwave + k] |= SPX_BADFIBER;
    }
    return broken;
}

static void warn_of_misfits(const char *label, const spx_frame_quality *q)
{
    enum { NAMED = sizeof q->misfit / sizeof *q->misfit };
    char some[80] = "";
    for (size_t i = 0, at = 0; i < q->nmisfit && i < NAMED; i++)
        at += (size_t)snprintf(some + at, sizeof some - at, "%s%zu", i > 0 ? ", " : "", q->misfit[i]);
    spx_warn(
        "%s%zu of the spectra (%s%s) fit the image far worse than the others: their light is not where the PSF has "
        "their traces",
        label, q->nmisfit, some, q->nmisfit > NAMED ? ", ..." : "");
}

spx_status spx_plausible_frame(spx_run *s, const char *label, spx_frame *frame, const spx_frame_quality *q,
                               const spx_extract_border *border, const uint32_t *odd, unsigned allowed, spx_err *e)
{
    spx_status st = SPX_OK;
    const unsigned broken = q->broken | spx_plausible_bundles(label, border) | flag_fibres(frame, odd);
    spx_rules_names(broken, frame->implausible, sizeof frame->implausible);
    if (q->broken & 1u << SPX_RULE_BLANK)
        st = refuse(SPX_RULE_BLANK, allowed, label, e, "the flux of %.0f %% of the bins is 0: the image has no signal",
                    100 * q->blank);
    if (q->broken & 1u << SPX_RULE_CHI2) {
        const spx_rule *r = &spx_rules[SPX_RULE_CHI2];
        if (q->chi2 > r->hi)
            spx_warn(
                "%sthe median of chi2pix is %.3g, and should be below %g: traces have moved (specx-shift), spots have "
                "another shape, the variance of the image is too small, or bins are wider than spots",
                label, q->chi2, r->hi);
        else
            spx_warn("%sthe median of chi2pix is %.3g of what noise gives, and should be above %g: the variance of the "
                     "image is too large, or a gain was left out of it",
                     label, q->chi2_noise, r->lo);
    }
    if (q->broken & 1u << SPX_RULE_SIGN)
        spx_warn("%sthe light is negative: too much was subtracted from the image, or its sign is wrong", label);
    if (q->broken & 1u << SPX_RULE_HITS)
        spx_warn("%s%.0f %% of the bins are masked as hit by cosmic rays: traces have moved (specx-shift), or spots "
                 "have another shape",
                 label, 100 * q->hits);
    if (q->nmisfit > 0)
        warn_of_misfits(label, q);
    if (st == SPX_OK && q->broken & 1u << SPX_RULE_UNLIT)
        warn_of_unlit(label, &frame->arm, q->unlit);
    return st == SPX_OK && broken != 0 ? spx_run_record(s, "implausible", e, "%s", frame->implausible) : st;
}

/* Adds a rule to those that a frame breaks, and to the provenance. */
static spx_status add_broken(spx_run *s, spx_frame *frame, spx_rule_id rule, spx_err *e)
{
    const char *const name = spx_rules[rule].name;
    const size_t used = strlen(frame->implausible);
    if (strstr(frame->implausible, name) == NULL)
        (void)snprintf(frame->implausible + used, sizeof frame->implausible - used, "%s%s", used > 0 ? " " : "", name);
    return spx_run_record(s, "implausible", e, "%s", name);
}

spx_status spx_plausible_bins(spx_run *s, const char *label, spx_frame *frame, const spx_sky_input *in, spx_err *e)
{
    const double wide = spx_sky_bin_in_sigma(in);
    if (!spx_rule_broken(SPX_RULE_BINS, wide))
        return SPX_OK;
    spx_warn(
        "%sbins are %.2f of the sigma of a line in them, and should be below %g: shifts of lines along the arm have "
        "errors that are too small: extract in narrower bins (specx-extract --wavelength)",
        label, wide, spx_rules[SPX_RULE_BINS].hi);
    return add_broken(s, frame, SPX_RULE_BINS, e);
}

/* Does a reduced chi squared of n values say that their variance is wrong? */
static int tells_of_variance(double chi2, double n)
{
    return n > 0 && spx_rule_broken(SPX_RULE_VARIANCE, chi2) && fabs(chi2 - 1) > TELLING * sqrt(2 / n);
}

spx_status spx_plausible_sky(spx_run *s, const char *label, spx_frame *frame, const spx_sky *sky, spx_err *e)
{
    /* each fibre is compared with the others: of two fibres the differences are the same */
    const double loo = sky->loo[SPX_SKY_OFF], n = (double)sky->nfitted[SPX_SKY_OFF],
                 apart = sky->nsky > 1 ? n * (1 - 1 / (double)sky->nsky) : 0;
    const int contradicts = loo > SPX_SKY_CONTRADICT * sky->noise;
    const double off = !contradicts && tells_of_variance(loo, apart) ? loo : 1,
                 chi2 = tells_of_variance(sky->noise, n) ? fmax(off, sky->noise) : off;
    if (!spx_rule_broken(SPX_RULE_VARIANCE, chi2))
        return SPX_OK;
    if (chi2 > 1)
        spx_warn("%schi2 of the sky fibres is %.2f: the variance of the frame is too small, or these fibres see no "
                 "sky: is the fibermap of this image?",
                 label, chi2);
    else
        spx_warn("%schi2 of the sky fibres is %.2f, off lines: the variance of the frame is too large, or a gain was "
                 "left out of it",
                 label, chi2);
    return add_broken(s, frame, SPX_RULE_VARIANCE, e);
}

unsigned spx_plausible_moved(const char *label, const spx_shift *s)
{
    const double chi2 = s->dof > 0 ? s->chi2_after / s->dof : 1;
    if (chi2 > 1 || !tells_of_variance(chi2, s->dof))
        return 0;
    spx_warn(
        "%schi2 of the image is %.2f, and should be above %g: its variance is too large, or a gain was left out of "
        "it",
        label, chi2, spx_rules[SPX_RULE_VARIANCE].lo);
    return 1u << SPX_RULE_VARIANCE;
}

unsigned spx_plausible_lines(const char *label, const spx_line_places *places, const char *unit, double wavelength)
{
    const double air = wavelength - spx_air_to_vacuum(wavelength);
    if (!places->mirrored && !spx_rule_broken(SPX_RULE_LINES, fabs(places->offset)))
        return 0;
    if (places->mirrored)
        spx_warn("%slines lie in the order of an image that is upside down, as %zu of them tell: turn it, or take the "
                 "PSF of images that were read out this way",
                 label, places->nline);
    else
        spx_warn("%slines lie %.1f %s, %.2f Angstrom, from where their wavelengths should be, as %zu of them tell%s: "
                 "take the PSF of this setup and night, and see that no rows of the image are lost",
                 label, places->offset, unit, places->angstrom, places->nline,
                 fabs(places->angstrom - air) < 0.2 * fabs(air)   ? ", as wavelengths in air make it"
                 : fabs(places->angstrom + air) < 0.2 * fabs(air) ? ", as a list of lines in air makes it"
                                                                  : "");
    return 1u << SPX_RULE_LINES;
}

spx_status spx_plausible_library(const spx_input *in, const spx_library *lib, unsigned *broken, spx_err *e)
{
    enum { ROWS = 32 };
    const size_t n = lib->ntemp < ROWS ? lib->ntemp : ROWS;
    const int air = lib->medium == SPX_AIR;
    float *row = spx_alloc(lib->nwave, sizeof *row, e);
    double *flux = row != NULL ? spx_alloc(lib->nwave, sizeof *flux, e) : NULL;
    spx_status st = flux != NULL ? SPX_OK : SPX_EIO;
    spx_star_medium most = {0}; /* of the spectrum that has most lines */
    *broken = 0;
    for (size_t i = 0; i < n && st == SPX_OK; i++) {
        st = spx_library_read_flux(in->file, lib, i * lib->ntemp / n, 1, row, e);
        for (size_t k = 0; k < lib->nwave; k++)
            flux[k] = row[k];
        const spx_star_medium these = spx_star_lines_medium(lib->nwave, lib->wavelength, flux);
        if (these.air + these.vacuum > most.air + most.vacuum)
            most = these;
    }
    if (st == SPX_OK && spx_star_medium_wrong(&most, air)) {
        *broken = 1u << SPX_RULE_MEDIUM;
        spx_warn(
            "%s:/library/wavelength: is in %s, and %zu strong lines lie where they are in %s, %zu where they should: "
            "velocities will be 83 km/s off: convert it with fits2h5 --%s",
            in->name, air ? "air" : "vacuum", air ? most.vacuum : most.air, air ? "vacuum" : "air",
            air ? most.air : most.vacuum, air ? "vacuum" : "air");
    }
    spx_free(row);
    spx_free(flux);
    return st;
}

spx_status spx_plausible_flag(spx_run *s, hid_t file, const char *block, unsigned broken, spx_err *e)
{
    char names[64];
    if (broken == 0)
        return SPX_OK;
    spx_rules_names(broken, names, sizeof names);
    const spx_status st = spx_h5_set_str(file, block, "implausible", names, e);
    return st == SPX_OK ? spx_run_record(s, "implausible", e, "%s", names) : st;
}
