#include "common/sim_raw_frame.h"

#include <stdio.h>
#include <string.h>

#include "base/parse.h"
#include "convert/table_h5.h"
#include "products/raw_h5.h"

spx_status spx_sim_args_raw(const spx_sim_args *o, spx_sim_raw_options *r, spx_err *e)
{
    *r = (spx_sim_raw_options){.amps = 4,
                               .overscan = 32,
                               .prescan = 4,
                               .binning = 1,
                               .gain = 1.2,
                               .gain_error = 1,
                               .keywords = 1,
                               .level = 1000};
    const spx_sim_key key[] = {{"amps", &r->amps, 1, 4},
                               {"extensions", &r->extensions, 0, 1},
                               {"flipped", &r->flipped, 0, 1},
                               {"overscan", &r->overscan, 0, 10000},
                               {"prescan", &r->prescan, 0, 10000},
                               {"rows", &r->rows, 0, 10000},
                               {"binning", &r->binning, 1, 64},
                               {"gain", &r->gain, 1e-3, 1e3},
                               {"gain-error", &r->gain_error, 1e-2, 1e2},
                               {"keywords", &r->keywords, 0, 1},
                               {"level", &r->level, 0, 60000},
                               {"gradient", &r->gradient, -1e4, 1e4},
                               {"wander", &r->wander, 0, 1e4},
                               {"pickup", &r->pickup, 0, 1e4},
                               {"bias", &r->bias, 0, 1e4},
                               {"dark", &r->dark, 0, 1e3},
                               {"hot", &r->hot, 0, 1e6},
                               {"response", &r->response, 0, 0.3},
                               {"uniform", &r->uniform, 0, 1e7},
                               {"crosstalk", &r->crosstalk, -0.1, 0.1},
                               {"trail", &r->trail, 0, 0.1},
                               {"nonlinear", &r->nonlinear, 0, 1e-5}};
    return spx_sim_args_keys(o->raw, "--raw", sizeof key / sizeof *key, key, e);
}

spx_status spx_sim_raw_light(const spx_sim_args *o, spx_sim_scene *c, double *model, spx_err *e)
{
    const size_t n = c->psf.npix_y * c->psf.npix_x;
    spx_status st = spx_sim_args_raw(o, &c->raw_options, e);
    if (st == SPX_OK)
        st = spx_sim_raw_structure(&c->raw_options, spx_sim_args_instrument_seed(o), c->arm, c->psf.npix_y,
                                   c->psf.npix_x, &c->structure, e);
    if (st == SPX_OK && (c->electrons = spx_alloc(n, sizeof *c->electrons, e)) == NULL)
        st = SPX_EIO;
    for (size_t i = 0; i < n && st == SPX_OK; i++) {
        const double light = o->bias || o->dark ? 0 : c->raw_options.uniform > 0 ? c->raw_options.uniform : model[i];
        c->electrons[i] = (float)light;
        model[i] = light * c->structure.response[i] + (o->bias ? 0 : c->structure.dark[i] * o->exptime);
    }
    return st;
}

spx_status spx_sim_raw_expose(const spx_sim_args *o, spx_sim_scene *c, spx_err *e)
{
    return spx_sim_raw_read_out(&c->raw_options, &c->structure, c->image.data, o->noise ? o->readnoise : 0,
                                spx_sim_args_noise_seed(o), c->arm, &c->raw, &c->layout, e);
}

/* ---- headers ---- */

static spx_status set_section(spx_cards *h, const char *stem, const char *suffix, const spx_section *s, long binning,
                              int flip_x, int flip_y, spx_err *e)
{
    char key[32], text[80];
    const long x0 = s->x0 * binning + 1, x1 = s->x1 * binning, y0 = s->y0 * binning + 1, y1 = s->y1 * binning;
    (void)snprintf(key, sizeof key, "%s%s", stem, suffix);
    (void)snprintf(text, sizeof text, "[%ld:%ld,%ld:%ld]", flip_x ? x1 : x0, flip_x ? x0 : x1, flip_y ? y1 : y0,
                   flip_y ? y0 : y1);
    return spx_cards_set_string(h, key, text, NULL, e);
}

static spx_status amplifier_cards(const spx_sim_args *o, const spx_sim_raw_options *r, const spx_amplifier *a,
                                  spx_cards *h, spx_err *e)
{
    const char *suffix = r->extensions > 0 || r->amps == 1 ? "" : a->name;
    char key[32];
    spx_status st = SPX_OK;
    if (r->keywords > 0) {
        st = set_section(h, "DATASEC", suffix, &a->data, 1, 0, 0, e);
        for (size_t k = 0; k < a->nbias && st == SPX_OK; k++)
            st = set_section(h, a->bias[k].y0 == a->data.y0 ? "BIASSEC" : "ORSEC", suffix, &a->bias[k], 1, 0, 0, e);
        if (st == SPX_OK)
            st = set_section(h, "DETSEC", suffix, &a->ccd, (long)r->binning, a->flip_x, a->flip_y, e);
    }
    (void)snprintf(key, sizeof key, "GAIN%s", suffix);
    if (st == SPX_OK)
        st = spx_cards_set_double(h, key, a->gain * r->gain_error, "[electron/adu]", e);
    (void)snprintf(key, sizeof key, "RDNOISE%s", suffix);
    if (st == SPX_OK)
        st = spx_cards_set_double(h, key, o->readnoise, "[electron] read noise", e);
    return st;
}

/* Headers of the images, and the primary one; in one image they are the same. */
static spx_status headers(const spx_sim_args *o, spx_sim_scene *c, spx_err *e)
{
    const spx_sim_raw_options *r = &c->raw_options;
    spx_status st = spx_cards_copy(&c->raw.header, &c->image.header, e);
    spx_cards_drop(&c->raw.header, "BUNIT");
    spx_cards_drop(&c->raw.header, "RDNOISE");
    for (size_t k = 0; k < c->raw.n && st == SPX_OK; k++) {
        spx_cards *h = &c->raw.image[k].header;
        st = c->raw.n == 1 ? spx_cards_copy(h, &c->raw.header, e) : SPX_OK;
        if (st == SPX_OK && r->binning > 1) {
            char sum[16];
            (void)snprintf(sum, sizeof sum, "%.0f %.0f", r->binning, r->binning);
            st = spx_cards_set_string(h, "CCDSUM", sum, "binning", e);
        }
        if (st == SPX_OK)
            st = spx_cards_set_string(h, "BUNIT", "adu", NULL, e);
        for (size_t i = 0; i < c->layout.namp && st == SPX_OK; i++)
            if (c->layout.amp[i].image == k)
                st = amplifier_cards(o, r, &c->layout.amp[i], h, e);
    }
    memcpy(c->raw.camera, c->image.camera, sizeof c->raw.camera);
    return st;
}

/* Pixels as 16-bit numbers. */
static uint16_t *digits(const spx_raw_image *im, spx_err *e)
{
    uint16_t *v = spx_alloc2(im->ny, im->nx, sizeof *v, e);
    for (size_t i = 0; i < im->ny * im->nx && v != NULL; i++)
        v[i] = (uint16_t)im->data[i];
    return v;
}

spx_status spx_sim_raw_write_fits(const spx_sim_args *o, spx_sim_scene *c, spx_fits_out *out, spx_err *e)
{
    spx_status st = headers(o, c, e);
    if (st == SPX_OK && c->raw.n > 1)
        st = spx_fits_out_image(out, NULL, 8, 0, NULL, NULL, &c->raw.header, e);
    for (size_t k = 0; k < c->raw.n && st == SPX_OK; k++) {
        const spx_raw_image *im = &c->raw.image[k];
        const size_t dims[2] = {im->ny, im->nx};
        uint16_t *v = digits(im, e);
        st = v == NULL ? SPX_EIO : spx_fits_out_image(out, im->extname, SPX_FITS_UINT16, 2, dims, v, &im->header, e);
        spx_free(v);
    }
    return st == SPX_OK && c->image.fibermap != NULL ? spx_fits_out_table(out, "FIBERMAP", c->image.fibermap, NULL, e)
                                                     : st;
}

spx_status spx_sim_raw_write(const spx_sim_args *o, spx_sim_scene *c, hid_t file, spx_err *e)
{
    spx_status st = headers(o, c, e);
    c->raw.fibermap = c->image.fibermap;
    if (st == SPX_OK)
        st = spx_raw_write(file, &c->raw, e);
    c->raw.fibermap = NULL;
    for (size_t k = 0; k < c->raw.n && st == SPX_OK; k++) {
        uint16_t *v = digits(&c->raw.image[k], e);
        st = v == NULL ? SPX_EIO : spx_raw_write_image(file, k, &c->raw.image[k], H5T_NATIVE_UINT16, v, e);
        spx_free(v);
    }
    return st;
}
