/* Reads the texts that users give to the velocity fit: held quantities, priors, ranges, the setup of each arm, and the
 * wavelengths of it that are fitted. */
#ifndef SPX_TOOLS_RVFIT_OPTIONS_H
#define SPX_TOOLS_RVFIT_OPTIONS_H

#include "rvfit/rvfit.h"

/* NAME=VALUE: hold v, vsini, or a parameter of the templates; NAME=MEAN,SIGMA: a prior on it. SPX_EUSAGE: makes no
 * sense, or the templates have no such parameter. */
spx_status spx_rvfit_parse_fix(const char *text, const spx_setup *s, spx_rvfit_options *o, spx_err *e);
spx_status spx_rvfit_parse_prior(const char *text, const spx_setup *s, spx_rvfit_options *o, spx_err *e);

/* MIN,MAX, or two other numbers, which `form` names. */
spx_status spx_rvfit_parse_pair(const char *text, const char *what, const char *form, double *a, double *b, spx_err *e);

/* setup[narm]: for each arm name[k] the setup of this name, or of the name without a number at its end (or a
 * single setup, where all arms have one name but for such numbers), or what one of map[nmap] "ARM=SETUP" says; NULL:
 * none, or `arms` (names with commas between, NULL: all) leaves it out, which is left_out[k]. SPX_EUSAGE: no such arm
 * or setup. */
spx_status spx_rvfit_choose_setups(const spx_templates *t, size_t narm, const char *const *name, size_t nmap,
                                   const char *const *map, const char *arms, const spx_setup **setup, int *left_out,
                                   spx_err *e);

/* What a range was given for. */
typedef enum { SPX_RANGE_NONE = 0, SPX_RANGE_OF_ALL, SPX_RANGE_OF_ARM } spx_range_of;

/* range[narm]: which wavelengths of each arm name[k] are fitted, of text[n]: "MIN,MAX" for all arms, "ARM:MIN,MAX" for
 * one, which goes before; none where chosen[k] is SPX_RANGE_NONE. SPX_EUSAGE: no such arm, no range, or two for the
 * same. */
spx_status spx_rvfit_choose_ranges(size_t n, const char *const *text, size_t narm, const char *const *name,
                                   double (*range)[2], spx_range_of *chosen, spx_err *e);

#endif
