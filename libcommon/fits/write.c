/* Writes FITS files: HDUs, their headers and checksums (fits/write.h). */
#include "fits/write.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/tmpfile.h"
#include "fits/checksum.h"
#include "fits/scan.h"
#include "fits/values.h"

spx_status spx_fits_out_bytes(spx_fits_out *o, const void *p, size_t n, spx_err *e)
{
    o->at += n;
    return spx_write_all(o->fd, p, n, o->name, e);
}

spx_status spx_fits_out_fill(spx_fits_out *o, size_t n, char fill, spx_err *e)
{
    char pad[SPX_FITS_BLOCK];
    memset(pad, fill, sizeof pad);
    return spx_fits_out_bytes(o, pad, n < sizeof pad ? n : sizeof pad, e);
}

spx_status spx_fits_out_cards(spx_fits_out *o, const spx_cards *h, spx_err *e)
{
    spx_status st = h->n ? spx_fits_out_bytes(o, h->cards, h->n * 80, e) : SPX_OK;
    return st == SPX_OK ? spx_fits_out_bytes(o, "END", 3, e) : st;
}

spx_status spx_fits_out_hdu(spx_fits_out *o, spx_cards *h, const unsigned char *data, size_t n, spx_err *e)
{
    char text[32];
    uint32_t datasum = spx_fits_sum(0, data, n);
    snprintf(text, sizeof text, "%lu", (unsigned long)datasum);
    spx_status st;
    if ((st = spx_cards_set_string(h, "DATASUM", text, "data unit checksum", e)) != SPX_OK ||
        (st = spx_cards_set_string(h, "CHECKSUM", "0000000000000000", "HDU checksum", e)) != SPX_OK)
        return st;
    uint32_t sum = spx_fits_sum(datasum, h->cards, h->n * 80);
    char tail[SPX_FITS_BLOCK];
    memset(tail, ' ', sizeof tail);
    memcpy(tail, "END", 3);
    size_t ntail = (SPX_FITS_BLOCK - h->n * 80 % SPX_FITS_BLOCK);
    sum = spx_fits_sum(sum, tail, ntail);
    spx_fits_sum_text(sum, text);
    if ((st = spx_cards_set_string(h, "CHECKSUM", text, "HDU checksum", e)) != SPX_OK ||
        (st = spx_fits_out_bytes(o, h->cards, h->n * 80, e)) != SPX_OK ||
        (st = spx_fits_out_bytes(o, tail, ntail, e)) != SPX_OK || (st = spx_fits_out_bytes(o, data, n, e)) != SPX_OK)
        return st;
    return spx_fits_out_fill(o, (SPX_FITS_BLOCK - n % SPX_FITS_BLOCK) % SPX_FITS_BLOCK, 0, e);
}

/* ---- headers ---- */

spx_status spx_fits_out_more(spx_cards *h, const spx_cards *more, spx_err *e)
{
    static const char *const own[] = {"SIMPLE",   "XTENSION", "BITPIX",   "NAXIS*",   "EXTEND",  "PCOUNT",  "GCOUNT",
                                      "GROUPS",   "TFIELDS",  "EXTNAME",  "BSCALE",   "BZERO",   "BLANK",   "CHECKSUM",
                                      "DATASUM",  "ZHECKSUM", "ZDATASUM", "END",      "TTYPE*",  "TFORM*",  "TUNIT*",
                                      "TDIM*",    "TNULL*",   "TSCAL*",   "TZERO*",   "TDISP*",  "THEAP",   "ZIMAGE",
                                      "ZCMPTYPE", "ZBITPIX",  "ZNAXIS*",  "ZTILE*",   "ZNAME*",  "ZVAL*",   "ZQUANTIZ",
                                      "ZDITHER0", "ZSIMPLE",  "ZEXTEND",  "ZTENSION", "ZPCOUNT", "ZGCOUNT", "ZBLANK"};
    spx_cards copy = {0};
    if (more == NULL || more->n == 0)
        return SPX_OK;
    spx_status st = spx_cards_copy(&copy, more, e);
    if (st != SPX_OK)
        return st;
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        spx_cards_drop(&copy, own[i]);
    char *all = spx_alloc2(h->n + copy.n, 80, 1, e);
    if (all != NULL) {
        memcpy(all, h->cards, h->n * 80);
        if (copy.n)
            memcpy(all + h->n * 80, copy.cards, copy.n * 80);
        /* text from HDF5 may be padded with NUL, which FITS does not allow */
        for (size_t i = h->n * 80; i < (h->n + copy.n) * 80; i++)
            if (all[i] < 32 || all[i] > 126)
                all[i] = ' ';
        spx_free(h->cards);
        h->cards = all;
        h->n += copy.n;
    }
    spx_cards_free(&copy);
    return all != NULL ? SPX_OK : SPX_EIO;
}

spx_status spx_fits_out_start(spx_fits_out *o, spx_cards *h, const char *xtension, int bitpix, int ndim,
                              const size_t *dims, spx_err *e)
{
    char key[32];
    int first = o->at == 0;
    spx_status st = first ? spx_cards_set_bool(h, "SIMPLE", 1, "conforms to FITS standard", e)
                          : spx_cards_set_string(h, "XTENSION", xtension, NULL, e);
    if (st == SPX_OK)
        st = spx_cards_set_int(h, "BITPIX", bitpix, NULL, e);
    if (st == SPX_OK)
        st = spx_cards_set_int(h, "NAXIS", ndim, NULL, e);
    for (int i = 0; st == SPX_OK && i < ndim; i++) {
        snprintf(key, sizeof key, "NAXIS%d", i + 1);
        st = spx_cards_set_int(h, key, (long)dims[ndim - 1 - i], NULL, e);
    }
    if (first)
        return st == SPX_OK ? spx_cards_set_bool(h, "EXTEND", 1, NULL, e) : st;
    if (st == SPX_OK)
        st = spx_cards_set_int(h, "PCOUNT", 0, NULL, e);
    return st == SPX_OK ? spx_cards_set_int(h, "GCOUNT", 1, NULL, e) : st;
}

static int little_endian(void)
{
    const uint16_t probe = 1;
    return *(const unsigned char *)&probe;
}

spx_status spx_fits_out_image(spx_fits_out *o, const char *extname, int bitpix, int ndim, const size_t *dims,
                              const void *data, const spx_cards *more, spx_err *e)
{
    spx_cards h = {0};
    const int flip = bitpix == SPX_FITS_UINT32 || bitpix == SPX_FITS_UINT16;
    if (flip)
        bitpix = -bitpix - 100;
    size_t n = ndim > 0, size = (size_t)(abs(bitpix) / 8);
    for (int i = 0; i < ndim; i++)
        n *= dims[i];
    unsigned char *bytes = spx_alloc(n, size, e);
    spx_status st = bytes != NULL ? spx_fits_out_start(o, &h, "IMAGE", bitpix, ndim, dims, e) : SPX_EIO;
    if (st == SPX_OK && flip)
        st = spx_cards_set_double(&h, "BZERO", bitpix == 32 ? 2147483648.0 : 32768.0, "unsigned integers", e);
    if (st == SPX_OK && flip)
        st = spx_cards_set_int(&h, "BSCALE", 1, NULL, e);
    if (st == SPX_OK && extname != NULL && *extname)
        st = spx_cards_set_string(&h, "EXTNAME", extname, NULL, e);
    if (st == SPX_OK)
        st = spx_fits_out_more(&h, more, e);
    if (st == SPX_OK) {
        const unsigned char *p = data;
        int swap = little_endian();
        for (size_t i = 0; i < n; i++)
            for (size_t k = 0; k < size; k++)
                bytes[i * size + k] = p[i * size + (swap ? size - 1 - k : k)];
        if (flip)
            spx_fits_flip(bytes, n, size);
        st = spx_fits_out_hdu(o, &h, bytes, n * size, e);
    }
    spx_free(bytes);
    spx_cards_free(&h);
    return st;
}
