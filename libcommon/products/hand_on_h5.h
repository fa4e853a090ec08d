/* Provides blocks that a program hands on unchanged, so that programs of a pipe lose nothing that one behind them
 * needs.
 */
#ifndef SPX_HAND_ON_H5_H
#define SPX_HAND_ON_H5_H

#include <hdf5.h>

#include "base/err.h"

/* Copies the blocks of a reduction that lie beside a frame, /psf, /shift, /flat, /sky, /flux, from one file to another
 * that does not have them yet. SPX_EINPUT: they cannot be read. */
spx_status spx_blocks_hand_on(hid_t from, hid_t to, spx_err *e) SPX_NODISCARD;

/* The same of how the traces of a PSF have moved, /shift: from the PSF's file to that of a frame. */
spx_status spx_traces_hand_on(hid_t from, hid_t to, spx_err *e) SPX_NODISCARD;

/* The same of an exposure before it is extracted: /image and /fibermap. */
spx_status spx_exposure_hand_on(hid_t from, hid_t to, spx_err *e) SPX_NODISCARD;

#endif
