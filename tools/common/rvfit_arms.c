#include "common/rvfit_arms.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/log.h"
#include "base/parse.h"
#include "base/text.h"
#include "common/each_input.h"
#include "common/purpose.h"
#include "h5/object.h"
#include "products/site.h"
#include "products/templates_h5.h"

/* Arms are in lower case; setups, and what is typed, may have the upper case of the cameras. */
static const spx_setup *find_setup(const spx_templates *t, const char *name)
{
    const spx_setup *alike = NULL;
    for (size_t i = 0; i < t->nsetup; i++) {
        if (strcmp(t->setup[i].setup, name) == 0)
            return &t->setup[i];
        if (alike == NULL && strcasecmp(t->setup[i].setup, name) == 0)
            alike = &t->setup[i];
    }
    return alike;
}

/* Length of a name without a number at its end. */
static size_t stem(const char *name)
{
    size_t n = strlen(name);
    while (n > 1 && name[n - 1] >= '0' && name[n - 1] <= '9')
        n--;
    return n;
}

/* An arm as its file calls it, and as the output does: exposures of b on other wavelengths are b2, b3 ... there. */
typedef struct {
    const char *name, *own;
} arm_name;

static void name_arms(const spx_spectra_parts *p, arm_name *name)
{
    for (size_t a = 0; a < p->all.narm; a++)
        name[a] = (arm_name){p->base[a], p->all.arm[a].name};
}

/* Does text[n] name an arm: NOT_NAMED, as its name without a number at the end (b is b, b2, b3 ...), as its file does,
 * or as the output alone does? */
typedef enum { NOT_NAMED = 0, NAMED_BY_STEM, NAMED, NAMED_ALONE } naming;

static naming names(const char *text, size_t n, const arm_name *arm)
{
    if (n == 0)
        return NOT_NAMED;
    if (strncasecmp(text, arm->name, n) == 0 && (arm->name[n] == '\0' || n == stem(arm->name)))
        return arm->name[n] == '\0' ? NAMED : NAMED_BY_STEM;
    return strncasecmp(text, arm->own, n) == 0 && arm->own[n] == '\0' ? NAMED_ALONE : NOT_NAMED;
}

/* Is an arm named by one of the comma-separated words of `list`? */
static int in_list(const char *list, const arm_name *arm)
{
    for (const char *p = list; *p != '\0'; p += *p == ',') {
        size_t n = strcspn(p, ",");
        if (names(p, n, arm) != NOT_NAMED)
            return 1;
        p += n;
    }
    return 0;
}

/* setup[narm]: for each arm name[k] the setup of this name, or of the name without a number at its end (or a
 * single setup, where all arms have one name but for such numbers), or what one of map[nmap] "ARM=SETUP" says; NULL:
 * none, or `arms` (names with commas between, NULL: all) leaves it out, which is left_out[k]. SPX_EUSAGE: no such arm
 * or setup. */
static spx_status name_setups(const spx_templates *t, size_t narm, const arm_name *name, size_t nmap,
                              const char *const *map, const char *arms, const spx_setup **setup, int *left_out,
                              spx_err *e)
{
    char arm[SPX_RVFIT_NAME];
    const char *wanted;
    int alike = 1;                            /* all arms have one name but for numbers */
    naming mapped[SPX_MAX_ARM] = {NOT_NAMED}; /* b=x holds for b2, unless there is b2=y */
    for (size_t a = 1; a < narm; a++)
        alike = alike && stem(name[a].name) == stem(name[0].name) &&
                strncmp(name[a].name, name[0].name, stem(name[0].name)) == 0;
    for (size_t a = 0; a < narm; a++) {
        setup[a] = find_setup(t, name[a].name);
        if (setup[a] == NULL) { /* b2 is another exposure, or order, of b */
            (void)snprintf(arm, sizeof arm, "%.*s", (int)stem(name[a].name), name[a].name);
            setup[a] = find_setup(t, arm);
        }
        if (setup[a] == NULL && alike && t->nsetup == 1)
            setup[a] = &t->setup[0];
    }
    for (size_t i = 0; i < nmap; i++) {
        size_t found = 0;
        spx_status st = spx_rvfit_parse_named(map[i], "map", arm, &wanted, e);
        if (st != SPX_OK)
            return st;
        for (size_t a = 0; a < narm; a++) {
            const naming how = names(arm, strlen(arm), &name[a]);
            found += how != NOT_NAMED;
            if (how != NOT_NAMED && how >= mapped[a]) {
                setup[a] = find_setup(t, wanted);
                mapped[a] = how;
            }
        }
        if (found == 0)
            return spx_fail(e, SPX_EUSAGE, "--map %s: the spectra have no arm '%s'", map[i], arm);
        if (find_setup(t, wanted) == NULL)
            return spx_fail(e, SPX_EUSAGE, "--map %s: the templates have no setup '%s'", map[i], wanted);
    }
    for (const char *p = arms != NULL ? arms : ""; *p != '\0'; p += *p == ',') {
        size_t n = strcspn(p, ","), a = 0;
        while (a < narm && names(p, n, &name[a]) == NOT_NAMED)
            a++;
        if (a == narm)
            return spx_fail(e, SPX_EUSAGE, "--arms %s: the spectra have no arm '%.*s'", arms, (int)n, p);
        p += n;
    }
    for (size_t a = 0; a < narm; a++) {
        left_out[a] = arms != NULL && !in_list(arms, &name[a]);
        if (left_out[a])
            setup[a] = NULL;
    }
    return SPX_OK;
}

/* The kind of name that a value was given for. */
typedef enum {
    SPX_RANGE_NONE = 0,
    SPX_RANGE_OF_ALL,
    SPX_RANGE_OF_STEM,
    SPX_RANGE_OF_ARM,
    SPX_RANGE_OF_PART
} spx_range_of;

/* The arms name[narm] that a text "VALUE", of all arms, or "ARM:VALUE", of one or of all of that name but for a number
 * at the end, sets: takes[narm]; the narrower goes before, and chosen[narm] is what each has been given so far. *value
 * points into the text. An arm that the templates have and the spectra lack, as where a camera failed, is warned of.
 * SPX_EUSAGE: no such arm in either, or two values for the same. */
static spx_status match_arms(const char *option, const char *what, const char *text, const spx_templates *t,
                             size_t narm, const arm_name *name, spx_range_of *chosen, int *takes, const char **value,
                             spx_err *e)
{
    const char *colon = strrchr(text, ':');
    const size_t len = colon != NULL ? (size_t)(colon - text) : 0;
    size_t found = 0;
    *value = colon != NULL ? colon + 1 : text;
    for (size_t a = 0; a < narm; a++) {
        const naming how = names(text, len, &name[a]);
        const spx_range_of which = colon == NULL          ? SPX_RANGE_OF_ALL
                                   : how == NAMED_ALONE   ? SPX_RANGE_OF_PART
                                   : how == NAMED         ? SPX_RANGE_OF_ARM
                                   : how == NAMED_BY_STEM ? SPX_RANGE_OF_STEM
                                                          : SPX_RANGE_NONE;
        takes[a] = 0;
        if (which == SPX_RANGE_NONE)
            continue;
        found++;
        if (chosen[a] == which)
            return spx_fail(e, SPX_EUSAGE, "%s %s: there is another %s for the same arm", option, text, what);
        takes[a] = chosen[a] < which;
        chosen[a] = takes[a] ? which : chosen[a];
    }
    char arm[32];
    (void)snprintf(arm, sizeof arm, "%.*s", (int)len, text);
    if (found == 0 && find_setup(t, arm) == NULL)
        return spx_fail(e, SPX_EUSAGE, "%s %s: the spectra have no arm '%s'", option, text, arm);
    if (found == 0)
        spx_warn("%s %s: the spectra have no arm '%s'", option, text, arm);
    return SPX_OK;
}

/* range[narm]: which wavelengths of each arm name[k] are fitted, of text[n]: "MIN,MAX" for all arms, "ARM:MIN,MAX" for
 * one, or for all of that name but for a number at the end; the narrower goes before; none where chosen[k] is
 * SPX_RANGE_NONE. SPX_EUSAGE: no such arm, no range, or two for the same. */
static spx_status name_ranges(size_t n, const char *const *text, const spx_templates *t, size_t narm,
                              const arm_name *name, double (*range)[2], spx_range_of *chosen, spx_err *e)
{
    spx_status st = SPX_OK;
    memset(chosen, 0, narm * sizeof *chosen);
    for (size_t i = 0; i < n && st == SPX_OK; i++) {
        const char *pair = strrchr(text[i], ':') != NULL ? strrchr(text[i], ':') + 1 : text[i];
        int takes[SPX_MAX_ARM];
        double lo, hi;
        if (spx_rvfit_parse_pair(pair, "", "", &lo, &hi, NULL) != SPX_OK)
            return spx_fail(e, SPX_EUSAGE, "--wavelength: '%s' is not MIN,MAX or ARM:MIN,MAX", text[i]);
        if (!(lo < hi))
            return spx_fail(e, SPX_EUSAGE, "--wavelength %s: the first wavelength has to be the smaller one", text[i]);
        st = match_arms("--wavelength", "range", text[i], t, narm, name, chosen, takes, &pair, e);
        for (size_t a = 0; a < narm && st == SPX_OK; a++)
            if (takes[a]) {
                range[a][0] = lo;
                range[a][1] = hi;
            }
    }
    return st;
}

spx_status spx_rvfit_leave_out(const spx_rvfit_args *o, spx_run *run, spx_spectra_parts *p, spx_bands *bands,
                               spx_err *e)
{
    spx_status st = SPX_OK;
    int widened;
    for (size_t i = 0; i < o->leave_out.n && st == SPX_OK; i++) {
        const char *text = o->leave_out.value[i];
        const size_t before = bands->n;
        int touch = 0;
        double lo, hi;
        if (strcmp(text, "telluric") == 0)
            st = spx_bands_add_telluric(bands, p->all.arm[0].medium, e);
        else if (spx_rvfit_parse_pair(text, "", "", &lo, &hi, NULL) != SPX_OK)
            st = spx_bands_add_file(bands, run, text, e);
        else if (lo > 0 && lo < hi)
            st = spx_bands_add(bands, lo, hi, e);
        else
            st = spx_fail(e, SPX_EUSAGE, "--leave-out %s: give the smaller of two wavelengths first", text);
        for (size_t a = 0; a < p->all.narm && !touch; a++)
            touch = spx_bands_touch(bands, before, &p->all.arm[a]);
        if (st == SPX_OK && !touch && strcmp(text, "telluric") != 0)
            spx_bands_warn(bands, before, "--leave-out", text);
    }
    if (st == SPX_OK)
        st = spx_spectra_parts_leave_out(p, bands->n, bands->band, &widened, e);
    if (st == SPX_OK && widened)
        spx_note("--leave-out: wavelengths are barycentric, and the fibermap has no BARYCENTRIC_VELOCITY: bands are "
                 "wider by 30 km/s on both sides");
    return st;
}

spx_status spx_rvfit_choose_jitter(const spx_rvfit_args *o, const spx_templates *t, const spx_spectra_parts *p,
                                   spx_rvfit_options *fit, spx_err *e)
{
    arm_name name[SPX_MAX_ARM];
    const char *value;
    spx_range_of chosen[SPX_MAX_ARM] = {0};
    spx_status st = SPX_OK;
    name_arms(p, name);
    fit->jitter = o->jitter.n > 0;
    for (size_t i = 0; i < o->jitter.n && st == SPX_OK; i++) {
        const char *text = o->jitter.value[i];
        int takes[SPX_MAX_ARM];
        double jitter = NAN;
        st = match_arms("--jitter", "jitter", text, t, p->all.narm, name, chosen, takes, &value, e);
        if (st == SPX_OK && strcmp(value, "fit") != 0 &&
            (spx_parse_double(value, "--jitter", &jitter, NULL) != SPX_OK || !(jitter >= 0 && jitter <= 1)))
            st = spx_fail(e, SPX_EUSAGE, "--jitter %s: give a fraction of the flux, 0 to 1, or 'fit'", text);
        for (size_t a = 0; a < p->all.narm && st == SPX_OK; a++)
            if (takes[a])
                fit->jitter_of[a] = jitter;
    }
    if (st == SPX_OK && fit->jitter && fit->scale_errors)
        st = spx_fail(e, SPX_EUSAGE, "--jitter and --scale-errors exclude each other");
    return st;
}

/* Is arm a the only one that a range for its name holds for? Of several, those without any of it are left out. */
static int is_alone(size_t narm, const arm_name *name, size_t a)
{
    for (size_t k = 0; k < narm; k++)
        if (k != a && names(name[a].name, strlen(name[a].name), &name[k]) != NOT_NAMED)
            return 0;
    return 1;
}

spx_status spx_rvfit_explain_swap(const spx_rvfit_args *o, const spx_input *spectra, spx_err *e)
{
    spx_input t;
    spx_status st = e->code;
    if (st != SPX_EINPUT || !spx_h5_exists(spectra->file, "/templates") || strcmp(o->templates, "-") == 0 ||
        spx_input_open(&t, o->templates, NULL) != SPX_OK)
        return st;
    const char *kind = spx_h5_exists(t.file, "/frame")     ? "a frame"
                       : spx_h5_exists(t.file, "/spectra") ? "spectra"
                                                           : NULL;
    spx_input_close(&t);
    if (kind == NULL)
        return st;
    spx_err_clear(e);
    return spx_fail(e, SPX_EUSAGE, "--templates %s: is %s, and %s holds templates: give them the other way round",
                    o->templates, kind, spectra->name);
}

static spx_status warn_of_lamps(const spx_spectra_part *part, const char *name, spx_err *e)
{
    spx_cards header = {0};
    const spx_status st = spx_spectra_part_header(part, &header, e);
    if (st == SPX_OK)
        spx_warn_of_lamp(&header, name);
    spx_cards_free(&header);
    return st;
}

spx_status spx_rvfit_read_inputs(const spx_rvfit_args *o, spx_run *run, size_t n, char **name, spx_spectra_parts *p,
                                 spx_err *e)
{
    spx_inputs all = {0};
    spx_status st =
        o->joint == SPX_JOINT_NO ? spx_all_inputs_once(run, n, name, &all, e) : spx_all_inputs(run, n, name, &all, e);
    spx_input *const *in = all.in;
    p->with_resolution = o->resolution;
    for (size_t i = 0; i < all.n && st == SPX_OK; i++) {
        if ((st = spx_spectra_parts_add(p, in[i]->file, o->joint != SPX_JOINT_NO, e)) != SPX_OK)
            st = spx_rvfit_explain_swap(o, in[i], e);
        if (st == SPX_OK)
            st = warn_of_lamps(&p->part[p->npart - 1], in[i]->name, e);
    }
    spx_inputs_free(&all);
    if (st == SPX_OK && p->dropped.n > 0)
        spx_note("columns of the fibermaps that not all inputs have alike are left out: %s", p->dropped.s);
    return st;
}

/* Says which parameters have two nodes, and stay linear between them. */
static spx_status say_straight(const spx_setup *s, spx_err *e)
{
    spx_text names = {0};
    spx_status st = SPX_OK;
    size_t n = 0;
    for (size_t q = 0; q < s->npar && s->node != NULL && st == SPX_OK; q++)
        if (s->naxis[q] == 2)
            st = spx_text_add(&names, e, "%s%s", n++ > 0 ? ", " : "", s->parname[q]);
    if (st == SPX_OK && n > 0)
        spx_note(
            "%s %s two nodes: templates are straight lines between them, which biases %s where lines saturate: add "
            "nodes to the library, or hold %s (--fix)",
            names.s, n > 1 ? "have" : "has", n > 1 ? "them" : "it", n > 1 ? "them" : "it");
    spx_text_free(&names);
    return st;
}

spx_status spx_rvfit_read_templates(const spx_rvfit_args *o, const spx_input *in, spx_templates *t, spx_err *e)
{
    const char *bent = NULL;
    spx_status st = SPX_OK;
    if (!spx_h5_exists(in->file, "/templates"))
        st = spx_fail(e, SPX_EINPUT, "--templates %s: holds no templates (/templates): rvs-template makes them",
                      in->name);
    if (st == SPX_OK)
        st = spx_templates_read(in->file, o->interpolator == SPX_INTERPOLATE_GRID, t, e);
    if (st == SPX_OK && (o->interpolator == SPX_INTERPOLATE_AUTO || o->interpolator == SPX_INTERPOLATE_CUBIC))
        st = spx_rvfit_bend(t, &bent, e);
    else
        for (size_t i = 0; i < t->nsetup; i++) /* they are of that interpolator */
            t->setup[i].nodes.sn = 0;
    if (bent != NULL)
        spx_note("%s has two nodes: between them, templates are bent as the metallicity predicts", bent);
    if (st == SPX_OK && t->nsetup > 0 && o->interpolator != SPX_INTERPOLATE_NN &&
        o->interpolator != SPX_INTERPOLATE_SIMPLEX)
        st = say_straight(&t->setup[0], e);
    return st;
}

/* Says that velocities hold the motion of the Earth: of topocentric wavelengths a warning where the header has the
 * time, with which they could be barycentric ones, else a note. */
static void say_topocentric(const spx_spectra *s)
{
    double mjd;
    spx_err unknown = {0};
    const int timed = spx_exposure_middle(&s->header, &mjd, &unknown) == SPX_OK;
    const char *const text =
        "wavelengths are topocentric: velocities are as seen from the telescope, and hold the motion "
        "of the Earth, up to 30 km/s";
    if (timed)
        spx_warn("%s: extract with specx-extract --barycentric", text);
    else
        spx_note("%s", text);
    spx_err_clear(&unknown);
}

/* Says of arms that are fitted what their wavelengths mean for velocities: of unknown frame, or topocentric. */
static void warn_of_frames(const spx_spectra *s, const spx_setup *const *setup)
{
    size_t n = 0, first = 0, topocentric = 0;
    for (size_t a = s->narm; a-- > 0;)
        if (setup[a] != NULL && s->arm[a].frame_unknown) {
            n++;
            first = a;
        } else if (setup[a] != NULL) {
            topocentric += !s->arm[a].barycentric;
        }
    if (topocentric > 0)
        say_topocentric(s);
    if (n > 0)
        spx_warn(
            "arm '%s'%s: it is not known whether wavelengths are barycentric: they are taken for topocentric ones, "
            "and velocities may hold the motion of the Earth, up to 30 km/s",
            s->arm[first].name, n > 1 ? " and others" : "");
}

spx_status spx_rvfit_choose_setups(const spx_rvfit_args *o, const spx_templates *t, const spx_spectra_parts *p,
                                   const spx_setup **setup, spx_err *e)
{
    const spx_spectra *s = &p->all;
    arm_name name[SPX_MAX_ARM];
    int left_out[SPX_MAX_ARM];
    name_arms(p, name);
    spx_status st = name_setups(t, s->narm, name, o->map.n, o->map.value, o->arms, setup, left_out, e);
    for (size_t a = 0; a < s->narm && st == SPX_OK; a++) {
        if (setup[a] == NULL && !left_out[a])
            spx_warn("arm '%s' is left out: the templates have no setup of that name (--map %s=SETUP)", name[a].name,
                     name[a].name);
        if (o->resolution && setup[a] != NULL && s->arm[a].ndiag == 0)
            st = spx_fail(e, SPX_EINPUT,
                          "arm '%s' of the spectra has no resolution matrix: fit without --resolution-matrix, or "
                          "without the arm (--arms)",
                          s->arm[a].name);
        if (st == SPX_OK && o->with_template && o->resolution && o->model && setup[a] != NULL &&
            (setup[a]->norm == SPX_NORM_LINEAR || (setup[a]->norm == SPX_NORM_MEDIAN && setup[a]->lnnorm == NULL)))
            st = spx_fail(e, SPX_EINPUT,
                          "%s: setup '%s' has lost its continuum to normalisation, and --with-template writes it: make "
                          "the templates with rvs-template --norm median",
                          o->templates, setup[a]->setup);
    }
    if (st == SPX_OK)
        warn_of_frames(s, (const spx_setup *const *)setup);
    return st;
}

spx_status spx_rvfit_choose_wavelengths(const spx_rvfit_args *o, const spx_templates *t, spx_spectra_parts *p,
                                        const spx_setup **setup, spx_err *e)
{
    const spx_spectra *s = &p->all;
    arm_name name[SPX_MAX_ARM];
    double range[SPX_MAX_ARM][2];
    spx_range_of chosen[SPX_MAX_ARM];
    size_t left_out = 0, fitted = 0;
    name_arms(p, name);
    spx_status st = name_ranges(o->wavelength.n, o->wavelength.value, t, s->narm, name, range, chosen, e);
    for (size_t a = 0; a < s->narm && st == SPX_OK; a++) {
        const spx_arm *arm = &s->arm[a];
        const double first = arm->per_row ? p->ends[a][0] : arm->wavelength[0],
                     last = arm->per_row ? p->ends[a][1] : arm->wavelength[arm->nwave - 1];
        const int fit = setup[a] != NULL, must = chosen[a] == SPX_RANGE_OF_PART ||
                                                 (chosen[a] == SPX_RANGE_OF_ARM && is_alone(s->narm, name, a));
        if (!fit && must)
            return spx_fail(e, SPX_EUSAGE, "--wavelength: arm '%s' is not fitted", arm->name);
        if (fit && chosen[a] != SPX_RANGE_NONE && spx_spectra_parts_cut(p, a, range[a][0], range[a][1]) == 0) {
            if (must)
                return spx_fail(e, SPX_EUSAGE, "--wavelength: arm '%s' has %.1f-%.1f Angstrom, nothing of %g-%g",
                                arm->name, first, last, range[a][0], range[a][1]);
            spx_note("arm '%s' is left out: it has %.1f-%.1f Angstrom, nothing of %g-%g", arm->name, first, last,
                     range[a][0], range[a][1]);
            setup[a] = NULL;
            left_out++;
        }
        fitted += setup[a] != NULL;
    }
    if (st == SPX_OK && left_out > 0 && fitted == 0)
        return spx_fail(e, SPX_EUSAGE, "--wavelength leaves nothing to fit");
    return st;
}
