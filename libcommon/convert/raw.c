/* Recognises raw CCD exposures, and writes their block (convert/raw.h). */
#include "convert/raw.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "convert/blocks.h"
#include "convert/table_h5.h"
#include "convert/types_h5.h"
#include "fits/values.h"
#include "h5/table.h"
#include "products/raw_h5.h"

/* Does a header tell of amplifiers or overscan, with any suffix? */
static int tells(const spx_cards *h)
{
    static const char *const stem[] = {"DATASEC", "BIASSEC", "TRIMSEC", "DSEC", "BSEC", "TSEC"};
    for (size_t i = 0; i < h->n; i++)
        for (size_t k = 0; k < sizeof stem / sizeof *stem; k++)
            if (strncmp(h->cards + 80 * i, stem[k], strlen(stem[k])) == 0 && h->cards[80 * i + 8] == '=')
                return 1;
    return 0;
}

static int is_image(const spx_fits *f, size_t i)
{
    return spx_fits_is_image(&f->hdu[i], 2) && f->hdu[i].nelem > 0;
}

/* Images that are the exposure: those that tell of amplifiers, or whose primary HDU does. */
static int is_part(const spx_fits *f, size_t i)
{
    int any = f->nhdu > 0 && tells(&f->hdu[0].header);
    for (size_t k = 0; k < f->nhdu && is_image(f, i) && !any; k++)
        any = is_image(f, k) && tells(&f->hdu[k].header);
    return is_image(f, i) && (!any || tells(&f->hdu[i].header) || tells(&f->hdu[0].header));
}

int spx_fits_is_raw(const spx_fits *f, int any)
{
    int image = 0, told = 0;
    for (size_t i = 0; i < f->nhdu; i++) {
        image |= is_image(f, i);
        told |= (is_image(f, i) || i == 0) && tells(&f->hdu[i].header);
    }
    return image && (told || any);
}

void spx_fits_raw_plan(const spx_fits *f, spx_fits_path *view)
{
    size_t n = 0;
    for (size_t i = 0; i < f->nhdu; i++)
        if (is_part(f, i)) {
            char group[32];
            spx_raw_path(n++, group);
            (void)snprintf(view[i], sizeof view[i], "%s/data", group);
        }
}

/* Pixels as they are stored, in the byte order of the machine and with the sign that BZERO gives integers; scaled ones
 * as float32. */
static spx_status write_image(spx_fits *f, size_t i, hid_t file, size_t k, spx_err *e)
{
    const spx_fits_hdu *h = &f->hdu[i];
    spx_raw_image im = {.ny = h->dims[0], .nx = h->dims[1], .header = h->header};
    unsigned char *copy;
    float *scaled = NULL;
    spx_status st;
    (void)snprintf(im.extname, sizeof im.extname, "%s", h->extname);
    if (h->scale != 1.0 || h->zero != 0.0 || abs(h->bitpix) == 64) {
        st = spx_fits_f32(f, i, &scaled, e);
        if (st == SPX_OK)
            st = spx_raw_write_image(file, k, &im, H5T_NATIVE_FLOAT, scaled, e);
        spx_free(scaled);
        return st;
    }
    const unsigned char *pixels = spx_fits_signed(f, i, &copy, e);
    if (pixels == NULL)
        return e->code;
    st = spx_raw_write_image(file, k, &im, spx_fits_image_type(h), pixels, e);
    spx_free(copy);
    return st;
}

spx_status spx_fits_raw_block(spx_fits *f, hid_t file, spx_err *e)
{
    spx_raw r = {.header = f->hdu[0].header}; /* a view: not freed */
    const int map = spx_fits_find(f, "FIBERMAP");
    size_t n = 0;
    spx_fits_camera(&f->hdu[0].header, r.camera);
    for (size_t i = 0; i < f->nhdu && r.camera[0] == '\0'; i++)
        if (is_part(f, i))
            spx_fits_camera(&f->hdu[i].header, r.camera);
    spx_status st = SPX_OK;
    if (map >= 0 && f->hdu[map].kind == SPX_FITS_BINTABLE && f->hdu[map].pcount == 0)
        st = spx_fits_table(f, (size_t)map, &r.fibermap, e);
    if (st == SPX_OK)
        st = spx_raw_write(file, &r, e);
    spx_table_free(r.fibermap);
    for (size_t i = 0; i < f->nhdu && st == SPX_OK; i++)
        if (is_part(f, i))
            st = write_image(f, i, file, n++, e);
    return st;
}
