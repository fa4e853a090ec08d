/* Reads and writes header cards (products/cards_h5.h). */
#include "products/cards_h5.h"

#include "h5/object.h"
#include "h5/read.h"
#include "h5/write.h"

spx_status spx_cards_read(hid_t file, const char *path, spx_cards *h, spx_err *e)
{
    h->n = 0;
    h->cards = NULL;
    if (!spx_h5_exists(file, path))
        return SPX_OK;
    spx_status st = spx_h5_read_strings(file, path, 80, &h->n, &h->cards, e);
    /* HDF5 pads with NUL, FITS cards are padded with blanks */
    for (size_t i = 0; st == SPX_OK && i < h->n * 80; i++)
        if (h->cards[i] == '\0')
            h->cards[i] = ' ';
    return st;
}

spx_status spx_cards_write(hid_t file, const char *path, const spx_cards *h, spx_err *e)
{
    return h->n > 0 ? spx_h5_write_strings(file, path, 80, h->n, h->cards, e) : SPX_OK;
}
