/* Provides the width of a line-spread function as users and setups give it: "R=x/1.55", "FWHM=1.55", or a table. */
#ifndef SPX_LSF_WIDTH_H
#define SPX_LSF_WIDTH_H

#include <stddef.h>

#include "base/err.h"
#include "num/expr.h"

/* FWHM of a Gaussian in units of its sigma, 2 sqrt(2 ln 2). */
#define SPX_FWHM_PER_SIGMA 2.35482004503094938202

/* Table of the width of a line-spread function: linear between wavelengths and constant beyond; n 0: none. */
typedef struct {
    size_t n;
    const double *wave, *value; /* Angstrom, increasing; R, or FWHM in Angstrom */
} spx_lsf_table;

typedef struct {
    enum { SPX_LSF_NONE, SPX_LSF_R, SPX_LSF_FWHM } kind;
    const char *name; /* name of a table, in place of the expression, within the text; NULL: none */
    spx_expr expr;
    spx_lsf_table table;
} spx_lsf_width;

/* Parses "R=..." or "FWHM=..."; with number_allowed also an expression alone (R), or nothing (SPX_LSF_NONE).
 * SPX_EUSAGE: it is neither. */
spx_status spx_lsf_parse(const char *text, int number_allowed, spx_lsf_width *w, spx_err *e);

/* Attaches the table to a width that names one; checks that it covers first ... last. SPX_EUSAGE: there is none;
 * SPX_EINPUT: it does not. */
spx_status spx_lsf_take_table(spx_lsf_width *w, const spx_lsf_table *t, double first, double last, spx_err *e);

/* FWHM in Angstrom at wavelength x; SPX_EUSAGE where the expression has no positive value. */
spx_status spx_lsf_fwhm(const spx_lsf_width *w, double x, double *fwhm, spx_err *e);

#endif
