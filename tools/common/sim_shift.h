/* Reads --shift of specx-sim: how far traces and widths have moved. */
#ifndef SPX_TOOLS_SIM_SHIFT_H
#define SPX_TOOLS_SIM_SHIFT_H

#include "app/main.h"
#include "base/lines.h"
#include "sim/sim_motion.h"

/* Adds to the motion of camera `camera` what `text` says: DX,DY[,WX,WY], wave[:SIZE] or the name of a file
 * (specx-sim(1)). SPX_EUSAGE: numbers that make no sense; SPX_EINPUT: a file that makes none. */
spx_status spx_sim_shift(const char *text, spx_run *s, uint64_t seed, char camera, spx_sim_motion *m, spx_err *e);

/* Adds what the lines of a file say; closes it. */
spx_status spx_sim_shift_lines(spx_lines *lines, uint64_t seed, char camera, spx_sim_motion *m, spx_err *e);

#endif
