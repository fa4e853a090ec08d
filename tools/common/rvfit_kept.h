/* Templates and plan of a fit, kept from one product of a list to the next. */
#ifndef SPX_RVFIT_KEPT_H
#define SPX_RVFIT_KEPT_H

#include <stddef.h>
#include <stdint.h>

#include "app/main.h"
#include "backend.h"
#include "common/rvfit_options.h"
#include "run/catalogue_parts.h"
#include "rvfit/rvfit.h"

/* Where the next product has the same file, arms and options, reading and planning are done once: they take longer than
 * the fit of a petal. Zeros hold nothing. */
typedef struct {
    uint64_t dev, ino; /* identity of the templates' file; ino is 0 where there are none */
    int64_t mtime;
    size_t size;
    spx_templates templates;
    spx_rvfit_options options;
    const spx_setup *setup[SPX_MAX_ARM];
    spx_arm bins[SPX_MAX_ARM]; /* wavelengths of the arms that the plan is for, and their ndiag */
    spx_rvfit_plan *plan;      /* of all parts: */
    int planned;               /* by the backend, with the first of them */
} spx_rvfit_kept;

/* Reads the templates that the options name, unless k holds those of that file. Errors: those of the file. */
spx_status spx_rvfit_take_templates(const spx_rvfit_args *o, spx_run *s, spx_backend *b, spx_rvfit_kept *k, spx_err *e);

/* Takes options and arms for the plan that is to be made, or keeps the plan, where k holds one for them. setup
 * [SPX_MAX_ARM]: NULL where an arm is not fitted. Errors: memory. */
spx_status spx_rvfit_take_plan(spx_backend *b, const spx_rvfit_options *fit, const spx_spectra_parts *spectra,
                               const spx_setup *const *setup, spx_rvfit_kept *k, spx_err *e);

/* Makes of a new plan what needs no device, while that is being opened. in: all rows. Errors: those of the templates.
 */
spx_status spx_rvfit_begin_plan(const spx_rvfit_args *o, const spx_rvfit_input *in, spx_rvfit_kept *k, spx_err *e);

/* May the next product use the plan? Not where the plan refers to this product: to parts of setups (cut
 * [SPX_MAX_ARM]), a transmission, or a hook. Wavelength grids of single rows and an atmosphere are for the caller to
 * look at. */
int spx_rvfit_may_keep(const spx_rvfit_kept *k, const spx_setup *cut);

/* Drop the plan alone, and all. */
void spx_rvfit_drop_plan(spx_backend *b, spx_rvfit_kept *k);
void spx_rvfit_drop_kept(spx_backend *b, spx_rvfit_kept *k);

#endif
