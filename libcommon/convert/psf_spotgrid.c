/* Reads grids of spots as PSFs (convert/psf_kinds.h). */
#include "convert/psf_kinds.h"

#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "convert/blocks_parts.h"
#include "convert/psf_fits.h"
#include "fits/values.h"
#include "products/psf_grid.h"
#include "products/psf_index.h"

/* Gives the PSF parameters GHSIGX and GHSIGY of these constant values, over the range of its traces. */
static spx_status set_widths(spx_psf *psf, double sigma_x, double sigma_y, spx_err *e)
{
    spx_free(psf->param);
    spx_free(psf->coeff);
    psf->npar = 2;
    psf->ndeg = 1;
    psf->wmin = psf->x.wmin;
    psf->wmax = psf->x.wmax;
    psf->param = spx_alloc(2, sizeof *psf->param, e);
    psf->coeff = spx_alloc2(2, psf->nspec, sizeof *psf->coeff, e);
    if (psf->param == NULL || psf->coeff == NULL)
        return SPX_EIO;
    memcpy(psf->param[0], "GHSIGX", 7);
    memcpy(psf->param[1], "GHSIGY", 7);
    for (size_t f = 0; f < psf->nspec; f++) {
        psf->coeff[f] = sigma_x;
        psf->coeff[psf->nspec + f] = sigma_y;
    }
    return SPX_OK;
}

/* Values of an image of one dimension. */
static spx_status read_axis(spx_fits *f, const char *name, size_t n, double **out, spx_err *e)
{
    const int i = spx_fits_find_image(f, name, 1);
    if (i < 0)
        return spx_fits_need_hdu(f, name, "PSF", "an image of one dimension", e);
    if (f->hdu[i].nelem != n)
        return spx_fail_at(e, SPX_EINPUT, f->name, name, NULL, "holds %zu values instead of %zu", f->hdu[i].nelem, n);
    return spx_fits_f64(f, (size_t)i, out, e);
}

/* Sub-pixels a pixel, by the sizes of both. */
static spx_status read_oversample(const spx_fits *f, int *oversample, spx_err *e)
{
    double ccd, spot;
    spx_status st = spx_fits_need_key(f, 0, "CCDPIXSZ", &ccd, e);
    if (st == SPX_OK)
        st = spx_fits_need_key(f, 0, "PIXSIZE", &spot, e);
    if (st != SPX_OK)
        return st;
    const double ratio = ccd / spot, whole = floor(ratio + 0.5);
    if (!(whole >= 1 && whole <= 1000 && fabs(ratio - whole) < 1e-3 * whole))
        return spx_fail_at(e, SPX_EINPUT, f->name, NULL, NULL,
                           "pixels of %g (CCDPIXSZ) are %g sub-pixels of %g (PIXSIZE): must be a whole number, 1 to "
                           "1000",
                           ccd, ratio, spot);
    *oversample = (int)whole;
    return SPX_OK;
}

double spx_fits_specter_place(size_t n, int oversample)
{
    const double even = n % (size_t)oversample == 0 && n / (size_t)oversample % 2 == 0 ? 0.5 * oversample : 0;
    return 0.5 * ((double)n - 1) - even;
}

spx_status spx_fits_grid_ends(const spx_fits *f, spx_psf *psf, spx_err *e)
{
    spx_psf_grid *g = &psf->grid;
    psf->type = SPX_PSF_SPOTGRID;
    g->sigma_x = g->sigma_y = 1; /* until the sums are there */
    if (spx_psf_grid_index(psf, e) != SPX_OK)
        return spx_err_at(e, f->name, NULL);
    spx_psf_grid_size(g, &psf->hsizex, &psf->hsizey);
    spx_psf_grid_sigma(g, g->npos / 2, g->nwave / 2, &g->sigma_x, &g->sigma_y);
    return set_widths(psf, g->sigma_x, g->sigma_y, e);
}

spx_status spx_fits_read_spotgrid(spx_fits *f, spx_psf *psf, spx_note_list *notes, spx_err *e)
{
    spx_psf_grid *g = &psf->grid;
    spx_status st = spx_fits_trace_series(f, "XCOEFF", &psf->x, &psf->nspec, e);
    if (st == SPX_OK)
        st = spx_fits_trace_series(f, "YCOEFF", &psf->y, &psf->nspec, e);
    const int spots = spx_fits_find_image(f, "SPOTS", 4);
    if (st == SPX_OK && spots < 0)
        st = spx_fits_need_hdu(f, "SPOTS", "PSF", "an image of four dimensions", e);
    if (st != SPX_OK)
        return st;
    const spx_fits_hdu *h = &f->hdu[spots];
    g->npos = h->dims[0];
    g->nwave = h->dims[1];
    g->my = h->dims[2];
    g->mx = h->dims[3];
    if (h->nelem == 0)
        return spx_fail_at(e, SPX_EINPUT, f->name, "SPOTS", NULL, "is empty");
    st = read_oversample(f, &g->oversample, e);
    if (st == SPX_OK)
        st = spx_fits_f32(f, (size_t)spots, &g->spot, e);
    if (st == SPX_OK)
        st = read_axis(f, "FIBERPOS", psf->nspec, &g->fibre_pos, e);
    if (st == SPX_OK)
        st = read_axis(f, "SPOTPOS", g->npos, &g->pos, e);
    if (st == SPX_OK)
        st = read_axis(f, "SPOTWAVE", g->nwave, &g->wave, e);
    if (st == SPX_OK)
        st = spx_cards_copy(&psf->header, &f->hdu[0].header, e);
    if (st == SPX_OK && ((g->place_x = spx_alloc2(g->npos, g->nwave, sizeof *g->place_x, e)) == NULL ||
                         (g->place_y = spx_alloc2(g->npos, g->nwave, sizeof *g->place_y, e)) == NULL))
        st = SPX_EIO;
    if (st != SPX_OK)
        return st;
    const double x = spx_fits_specter_place(g->mx, g->oversample), y = spx_fits_specter_place(g->my, g->oversample);
    for (size_t i = 0; i < g->npos * g->nwave; i++) {
        g->place_x[i] = x;
        g->place_y[i] = y;
    }
    if (x != 0.5 * ((double)g->mx - 1) || y != 0.5 * ((double)g->my - 1))
        st = spx_note_list_add(notes, e,
                               "%s: spots of %zu x %zu sub-pixels are an even number of pixels wide: placed half a "
                               "pixel beyond the trace, as specter does; /psf/spot_x and spot_y say where",
                               f->name, g->mx, g->my);
    return st == SPX_OK ? spx_fits_grid_ends(f, psf, e) : st;
}
