/* Reads and writes header cards: contract of all readers and writers in products/README. */
#ifndef SPX_CARDS_H5_H
#define SPX_CARDS_H5_H

#include <hdf5.h>

#include "fits/cards.h"

/* Reads or writes cards at `path` (absent: none). */
spx_status spx_cards_read(hid_t file, const char *path, spx_cards *h, spx_err *e);
spx_status spx_cards_write(hid_t file, const char *path, const spx_cards *h, spx_err *e);

#endif
