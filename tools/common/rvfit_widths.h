/* Says where the lines of templates are not as wide as the spectra want them. */
#ifndef SPX_TOOLS_RVFIT_WIDTHS_H
#define SPX_TOOLS_RVFIT_WIDTHS_H

#include "common/rvfit_stars.h"

/* Warns of arms whose templates have lines hardly wider than a bin, with resolution matrices, or without these, where
 * spectra have some, of another width than the spectra. setup[SPX_MAX_ARM]; NULL for arms that are not fitted. */
void spx_rvfit_say_widths(const spx_rvfit_args *o, const spx_spectra_parts *p, const spx_setup *const *setup,
                          const spx_rvfit_stars *stars);

#endif
