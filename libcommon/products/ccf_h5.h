/* Reads and writes /ccf as traces, and velocities of a stack of them: contract of all readers and writers in
 * products/README. */
#ifndef SPX_CCF_H5_H
#define SPX_CCF_H5_H

#include <hdf5.h>

#include "app/main.h"
#include "h5/file.h"
#include "products/stack.h"

/* Reads /ccf, whose curves become traces; spectra are grouped into stars by column NEXP of /rvfit/table, where there is
 * one. */
spx_status spx_ccf_read(spx_input *in, spx_traces *t, spx_ccf_stars *c, spx_err *e);
/* Writes the velocities of the samples of a stack of such curves, or of its maxima. */
spx_status spx_stack_write_velocity(hid_t file, const spx_stack *s, const spx_ccf_stars *c, spx_err *e);

#endif
