/* Writes the star library of specx-sim --library. */
#ifndef SPX_TOOLS_SIM_LIBRARY_H
#define SPX_TOOLS_SIM_LIBRARY_H

#include "app/main.h"
#include "common/sim_options.h"

spx_status spx_sim_library(const spx_sim_args *o, spx_run *s, spx_err *e);

#endif
