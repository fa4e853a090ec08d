/* Cuts a setup to the pixels that an arm needs: an echelle order needs a small fraction of them. */
#ifndef SPX_TEMPLATES_CUT_H
#define SPX_TEMPLATES_CUT_H

#include "base/err.h"
#include "products/templates.h"

/* Cuts a setup to the pixels that an arm needs at velocities vmin ... vmax (km/s) and rotations up to vsini. Per-pixel
 * arrays are copies, all others are shared with `s`, which must outlive *out. out->nwave 0: no cut, because it would be
 * half of the setup or more, or the setup does not reach there. SPX_EIO: memory. Free with spx_setup_cut_free(). */
spx_status spx_setup_cut(const spx_setup *s, const spx_arm *arm, double vmin, double vmax, double vsini, spx_setup *out,
                         spx_err *e);
void spx_setup_cut_free(spx_setup *cut);

/* Arms that share a setup, of which each needs little, get a part of it each: setup[narm] becomes cut[narm] there,
 * whose members are to be freed in any case; at most SPX_MAX_ARM arms, those without a setup NULL. */
spx_status spx_setups_cut(size_t narm, const spx_arm *arm, double vmin, double vmax, double vsini,
                          const spx_setup **setup, spx_setup *cut, spx_err *e);

#endif
