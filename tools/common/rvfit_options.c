#include "common/rvfit_options.h"

#include <stdio.h>
#include <string.h>

#include "base/parse.h"

enum { NAME_ROOM = 64 };

/* Splits NAME=REST; name[NAME_ROOM]. */
static spx_status split(const char *text, const char *option, char *name, const char **rest, spx_err *e)
{
    const char *eq = strchr(text, '=');
    if (eq == NULL || eq == text || eq[1] == '\0' || eq - text >= NAME_ROOM)
        return spx_fail(e, SPX_EUSAGE, "--%s: '%s' is not NAME=VALUE", option, text);
    (void)snprintf(name, NAME_ROOM, "%.*s", (int)(eq - text), text);
    *rest = eq + 1;
    return SPX_OK;
}

spx_status spx_rvfit_parse_pair(const char *text, const char *what, const char *form, double *a, double *b, spx_err *e)
{
    double v[2];
    size_t n;
    if (spx_parse_doubles(text, ',', what, form, 2, v, &n, NULL) != SPX_OK || n != 2)
        return spx_fail(e, SPX_EUSAGE, "%s: '%s' is not %s", what, text, form);
    *a = v[0];
    *b = v[1];
    return SPX_OK;
}

/* Number of the quantity that a text NAME=REST is about. */
static spx_status find_quantity(const char *text, const char *option, const spx_setup *s, size_t *q, const char **rest,
                                spx_err *e)
{
    char name[NAME_ROOM];
    spx_status st = split(text, option, name, rest, e);
    if (st != SPX_OK)
        return st;
    *q = 0;
    if (strcmp(name, "v") == 0 || strcmp(name, "vrad") == 0)
        return SPX_OK;
    *q = 1;
    if (strcmp(name, "vsini") == 0)
        return SPX_OK;
    for (size_t p = 0; p < s->npar; p++)
        if (strcmp(s->parname[p], name) == 0) {
            *q = 2 + p;
            return SPX_OK;
        }
    char known[512] = "v, vsini";
    for (size_t p = 0, at = strlen(known); p < s->npar && at < sizeof known; p++)
        at += (size_t)snprintf(known + at, sizeof known - at, ", %s", s->parname[p]);
    return spx_fail(e, SPX_EUSAGE, "--%s %s: the templates have no parameter '%s': there are %s", option, text, name,
                    known);
}

spx_status spx_rvfit_parse_fix(const char *text, const spx_setup *s, spx_rvfit_options *o, spx_err *e)
{
    const char *rest;
    size_t q;
    spx_status st = find_quantity(text, "fix", s, &q, &rest, e);
    if (st == SPX_OK && (st = spx_parse_double(rest, "--fix", &o->value[q], e)) == SPX_OK)
        o->fixed[q] = 1;
    return st;
}

spx_status spx_rvfit_parse_prior(const char *text, const spx_setup *s, spx_rvfit_options *o, spx_err *e)
{
    const char *rest;
    size_t q;
    spx_status st = find_quantity(text, "prior", s, &q, &rest, e);
    if (st == SPX_OK)
        st = spx_rvfit_parse_pair(rest, "--prior", "MEAN,SIGMA", &o->prior_mean[q], &o->prior_sigma[q], e);
    if (st == SPX_OK && !(o->prior_sigma[q] > 0))
        st = spx_fail(e, SPX_EUSAGE, "--prior %s: sigma must be positive", text);
    return st;
}

static const spx_setup *find_setup(const spx_templates *t, const char *name)
{
    for (size_t i = 0; i < t->nsetup; i++)
        if (strcmp(t->setup[i].setup, name) == 0)
            return &t->setup[i];
    return NULL;
}

/* Is `name` one of the comma-separated words of `list`? */
static int in_list(const char *list, const char *name)
{
    size_t len = strlen(name);
    for (const char *p = list; *p != '\0'; p += *p == ',') {
        size_t n = strcspn(p, ",");
        if (n == len && strncmp(p, name, n) == 0)
            return 1;
        p += n;
    }
    return 0;
}

/* Length of a name without a number at its end. */
static size_t stem(const char *name)
{
    size_t n = strlen(name);
    while (n > 1 && name[n - 1] >= '0' && name[n - 1] <= '9')
        n--;
    return n;
}

spx_status spx_rvfit_choose_setups(const spx_templates *t, size_t narm, const char *const *name, size_t nmap,
                                   const char *const *map, const char *arms, const spx_setup **setup, int *left_out,
                                   spx_err *e)
{
    char arm[NAME_ROOM];
    const char *wanted;
    int alike = 1; /* all arms have one name but for numbers */
    for (size_t a = 1; a < narm; a++)
        alike = alike && stem(name[a]) == stem(name[0]) && strncmp(name[a], name[0], stem(name[0])) == 0;
    for (size_t a = 0; a < narm; a++) {
        setup[a] = find_setup(t, name[a]);
        if (setup[a] == NULL) { /* b2 is another exposure, or order, of b */
            (void)snprintf(arm, sizeof arm, "%.*s", (int)stem(name[a]), name[a]);
            setup[a] = find_setup(t, arm);
        }
        if (setup[a] == NULL && alike && t->nsetup == 1)
            setup[a] = &t->setup[0];
    }
    for (size_t i = 0; i < nmap; i++) {
        size_t found = 0;
        spx_status st = split(map[i], "map", arm, &wanted, e);
        if (st != SPX_OK)
            return st;
        for (size_t a = 0; a < narm; a++)
            if (strcmp(name[a], arm) == 0) {
                setup[a] = find_setup(t, wanted);
                found++;
            }
        if (found == 0)
            return spx_fail(e, SPX_EUSAGE, "--map %s: the spectra have no arm '%s'", map[i], arm);
        if (find_setup(t, wanted) == NULL)
            return spx_fail(e, SPX_EUSAGE, "--map %s: the templates have no setup '%s'", map[i], wanted);
    }
    for (const char *p = arms != NULL ? arms : ""; *p != '\0'; p += *p == ',') {
        size_t n = strcspn(p, ","), a = 0;
        while (a < narm && (strlen(name[a]) != n || strncmp(name[a], p, n) != 0))
            a++;
        if (a == narm)
            return spx_fail(e, SPX_EUSAGE, "--arms %s: the spectra have no arm '%.*s'", arms, (int)n, p);
        p += n;
    }
    for (size_t a = 0; a < narm; a++) {
        left_out[a] = arms != NULL && !in_list(arms, name[a]);
        if (left_out[a])
            setup[a] = NULL;
    }
    return SPX_OK;
}

spx_status spx_rvfit_choose_ranges(size_t n, const char *const *text, size_t narm, const char *const *name,
                                   double (*range)[2], spx_range_of *chosen, spx_err *e)
{
    for (size_t a = 0; a < narm; a++)
        chosen[a] = SPX_RANGE_NONE;
    for (size_t i = 0; i < n; i++) {
        const char *colon = strrchr(text[i], ':'), *pair = colon != NULL ? colon + 1 : text[i];
        const spx_range_of which = colon != NULL ? SPX_RANGE_OF_ARM : SPX_RANGE_OF_ALL;
        const size_t len = colon != NULL ? (size_t)(colon - text[i]) : 0;
        double lo, hi;
        size_t found = 0;
        if (spx_rvfit_parse_pair(pair, "", "", &lo, &hi, NULL) != SPX_OK)
            return spx_fail(e, SPX_EUSAGE, "--wavelength: '%s' is not MIN,MAX or ARM:MIN,MAX", text[i]);
        if (!(lo < hi))
            return spx_fail(e, SPX_EUSAGE, "--wavelength %s: the first wavelength has to be the smaller one", text[i]);
        for (size_t a = 0; a < narm; a++) {
            if (which == SPX_RANGE_OF_ARM && (strlen(name[a]) != len || strncmp(name[a], text[i], len) != 0))
                continue;
            found++;
            if (chosen[a] == which)
                return spx_fail(e, SPX_EUSAGE, "--wavelength %s: there is another range for the same arm", text[i]);
            if (chosen[a] > which)
                continue;
            range[a][0] = lo;
            range[a][1] = hi;
            chosen[a] = which;
        }
        if (found == 0)
            return spx_fail(e, SPX_EUSAGE, "--wavelength %s: the spectra have no arm '%.*s'", text[i], (int)len,
                            text[i]);
    }
    return SPX_OK;
}
