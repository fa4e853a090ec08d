/* Reads texts of options of the velocity fit (common/rvfit_options.h). */
#include "common/rvfit_options.h"

#include <stdio.h>
#include <string.h>

#include "base/parse.h"

spx_status spx_rvfit_parse_named(const char *text, const char *option, char name[SPX_RVFIT_NAME], const char **rest,
                                 spx_err *e)
{
    const char *eq = strchr(text, '=');
    if (eq == NULL || eq == text || eq[1] == '\0' || eq - text >= SPX_RVFIT_NAME)
        return spx_fail(e, SPX_EUSAGE, "--%s: '%s' is not NAME=VALUE", option, text);
    (void)snprintf(name, SPX_RVFIT_NAME, "%.*s", (int)(eq - text), text);
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
    char name[SPX_RVFIT_NAME];
    spx_status st = spx_rvfit_parse_named(text, option, name, rest, e);
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

static spx_status parse_fix(const char *text, const spx_setup *s, spx_rvfit_options *o, spx_err *e)
{
    const char *rest;
    size_t q;
    spx_status st = find_quantity(text, "fix", s, &q, &rest, e);
    if (st == SPX_OK && (st = spx_parse_double(rest, "--fix", &o->value[q], e)) == SPX_OK)
        o->fixed[q] = 1;
    return st;
}

static spx_status parse_prior(const char *text, const spx_setup *s, spx_rvfit_options *o, spx_err *e)
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

spx_status spx_rvfit_args_options(const spx_rvfit_args *o, const spx_setup *setup, spx_rvfit_options *fit, spx_err *e)
{
    spx_rvfit_options_init(fit);
    fit->npoly = (size_t)o->npoly;
    fit->continuum = o->continuum;
    fit->interpolator = o->interpolator;
    fit->dichroic = o->dichroic;
    fit->resolution = o->resolution;
    fit->lsf_sigma = o->lsf_given ? o->lsf_sigma : -1;
    fit->reject = (int)o->reject;
    fit->reject_sigma = o->reject_sigma;
    fit->brute = o->start != NULL && strcmp(o->start, "grid") == 0;
    fit->scale_errors = o->scale_errors;
    fit->components = (int)o->components;
    fit->epochs = o->epochs || o->zero_points != NULL;
    fit->keep_model = o->model;
    fit->keep_ccf = o->ccf;
    fit->max_device_mem = o->max_device_mem;
    spx_status st = SPX_OK;
    if (o->lsf_given && !o->resolution)
        st = spx_fail(e, SPX_EUSAGE, "--lsf-sigma goes with --resolution-matrix only");
    if (st == SPX_OK && o->with_template && (!o->resolution || !o->model))
        st = spx_fail(e, SPX_EUSAGE, "--with-template %s",
                      o->model ? "goes with --resolution-matrix only: without it, nothing is known of how the template "
                                 "is blurred"
                               : "and --no-model exclude each other");
    if (st == SPX_OK && o->epochs && o->joint == SPX_JOINT_NO)
        st = spx_fail(e, SPX_EUSAGE, "--epochs goes with --joint only, which says what the exposures of a star are");
    if (st == SPX_OK && o->tellurics != NULL && !o->resolution)
        st = spx_fail(e, SPX_EUSAGE,
                      "--tellurics goes with --resolution-matrix only: lines of the atmosphere multiply the "
                      "light before it is blurred");
    if (st == SPX_OK && o->telluric_stars_given && o->tellurics == NULL)
        st = spx_fail(e, SPX_EUSAGE, "--telluric-stars goes with --tellurics only");
    if (st == SPX_OK && o->reject_sigma_given && o->reject == 0)
        st = spx_fail(e, SPX_EUSAGE, "--reject-sigma goes with --reject only");
    if (st == SPX_OK && !o->rotation && o->vsini_range != NULL)
        st = spx_fail(e, SPX_EUSAGE, "--vsini-range and --no-rotation exclude each other");
    if (st == SPX_OK && o->vrange != NULL)
        st = spx_rvfit_parse_pair(o->vrange, "--vrange", "MIN,MAX", &fit->vmin, &fit->vmax, e);
    if (st == SPX_OK && o->vsini_range != NULL)
        st = spx_rvfit_parse_pair(o->vsini_range, "--vsini-range", "MIN,MAX", &fit->vsinimin, &fit->vsinimax, e);
    if (!o->rotation)
        fit->vsinimin = fit->vsinimax = 0;
    for (size_t i = 0; i < o->fix.n && st == SPX_OK; i++)
        st = parse_fix(o->fix.value[i], setup, fit, e);
    for (size_t i = 0; i < o->prior.n && st == SPX_OK; i++)
        st = parse_prior(o->prior.value[i], setup, fit, e);
    if (st == SPX_OK && o->components > 1 && o->prior.n > 0)
        st = spx_fail(e, SPX_EUSAGE,
                      "--components 2 and --prior exclude each other: the two stars of a pair are not "
                      "those that the prior is for");
    if (st == SPX_OK && fit->epochs && (fit->fixed[0] || fit->prior_sigma[0] > 0))
        st = spx_fail(e, SPX_EUSAGE, "%s: give no --%s v",
                      o->epochs ? "--epochs measures velocities" : "--zero-points are of measured velocities",
                      fit->fixed[0] ? "fix" : "prior");
    return st;
}
