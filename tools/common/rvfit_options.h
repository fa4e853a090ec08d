/* Makes the options of the velocity fit from those of rvs-fit's command line: held quantities, priors, ranges. */
#ifndef SPX_TOOLS_RVFIT_OPTIONS_H
#define SPX_TOOLS_RVFIT_OPTIONS_H

#include "app/opt.h"
#include "rvfit/rvfit.h"

/* Spectra that are fitted together. */
typedef enum { SPX_JOINT_NO, SPX_JOINT_TARGET, SPX_JOINT_ALL } spx_rvfit_joint;

/* Values of rvs-fit's option table; its help says what they are. */
typedef struct {
    const char *templates, *arms, *vrange, *vsini_range, *rows, *targetid_file, *objtypes, *zbest, *start, *zero_points;
    spx_continuum continuum;
    spx_interpolator interpolator;
    spx_rvfit_joint joint;
    spx_opt_list map, fix, prior, targetid, wavelength, leave_out, jitter;
    size_t max_device_mem;
    const char *tellurics;
    long npoly, components, reject, minexpid, maxexpid, telluric_stars;
    double lsf_sigma, reject_sigma, minsn;
    int rotation, dichroic, resolution, all_fibers, scale_errors, model, with_template, ccf, zbest_select, epochs;
    int lsf_given, reject_sigma_given, minsn_given, minexpid_given, maxexpid_given, npoly_given, telluric_stars_given;
} spx_rvfit_args;

/* Options of the fit, but for threads and hook. --fix and --prior name v, vsini, or a parameter of `setup`. SPX_EUSAGE:
 * an option makes no sense, or another one is missing. */
spx_status spx_rvfit_args_options(const spx_rvfit_args *o, const spx_setup *setup, spx_rvfit_options *fit, spx_err *e);

/* Two numbers, which `form` names: "MIN,MAX"; `what` names the option. SPX_EUSAGE: `text` is something else. */
spx_status spx_rvfit_parse_pair(const char *text, const char *what, const char *form, double *a, double *b, spx_err *e);

/* NAME=REST: copies the name, and *rest points into `text`. SPX_EUSAGE: `text` is something else. */
enum { SPX_RVFIT_NAME = 64 };
spx_status spx_rvfit_parse_named(const char *text, const char *option, char name[SPX_RVFIT_NAME], const char **rest,
                                 spx_err *e);

#endif
