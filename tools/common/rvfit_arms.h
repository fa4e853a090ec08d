/* Chooses the setups of the templates that the arms of spectra are fitted with, the wavelengths that are fitted,
 * and the jitter of each. */
#ifndef SPX_TOOLS_RVFIT_ARMS_H
#define SPX_TOOLS_RVFIT_ARMS_H

#include "common/bands.h"
#include "common/rvfit_options.h"
#include "run/catalogue_parts.h"

/* Spectra of all inputs, with the columns of the fibermaps that all have; says which ones are left out. */
spx_status spx_rvfit_read_inputs(const spx_rvfit_args *o, spx_run *run, size_t n, char **name, spx_spectra_parts *p,
                                 spx_err *e);

/* The spectra could not be read: perhaps since they and the templates changed places, which *e says then. Returns its
 * status. */
spx_status spx_rvfit_explain_swap(const spx_rvfit_args *o, const spx_input *spectra, spx_err *e);

/* The templates of --templates, which is open as `in`; axes of abundance ratios that have two nodes are bent for a
 * smooth interpolation. */
spx_status spx_rvfit_read_templates(const spx_rvfit_args *o, const spx_input *in, spx_templates *t, spx_err *e);

/* setup[SPX_MAX_ARM], by --map, --arms and the names that the arms have in their files; NULL: the arm is left out, with
 * a warning unless --arms says so. SPX_EUSAGE: no such arm or setup; SPX_EINPUT: an arm lacks the resolution matrix
 * that
 * --resolution-matrix needs. */
spx_status spx_rvfit_choose_setups(const spx_rvfit_args *o, const spx_templates *t, const spx_spectra_parts *p,
                                   const spx_setup **setup, spx_err *e);

/* Cuts the arms that have a setup to --wavelength; those that have nothing of what it says of all arms lose theirs.
 * SPX_EUSAGE: no such arm, no range, two for the same, or nothing is left. */
spx_status spx_rvfit_choose_wavelengths(const spx_rvfit_args *o, const spx_templates *t, spx_spectra_parts *p,
                                        const spx_setup **setup, spx_err *e);

/* Leaves out of the spectra what --leave-out says; the bands are in use as long as the spectra. SPX_EUSAGE: not a band;
 * SPX_EINPUT: a file that holds none. */
spx_status spx_rvfit_leave_out(const spx_rvfit_args *o, spx_run *run, spx_spectra_parts *p, spx_bands *bands,
                               spx_err *e);

/* Sets the jitter of each arm by --jitter. SPX_EUSAGE: no such arm, no fraction, or two for the same. */
spx_status spx_rvfit_choose_jitter(const spx_rvfit_args *o, const spx_templates *t, const spx_spectra_parts *p,
                                   spx_rvfit_options *fit, spx_err *e);

#endif
