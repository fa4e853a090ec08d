/* Writes images and PSFs as DESI FITS files, and reads such PSFs (convert/ccd.h). */
#include "convert/ccd.h"

#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "base/text.h"
#include "convert/blocks.h"
#include "convert/psf_kinds.h"
#include "convert/table_h5.h"
#include "fits/checksum.h"
#include "fits/open.h"
#include "h5/table.h"
#include "products/psf_h5.h"

spx_status spx_image_write_fits(spx_fits_out *o, const spx_image *im, spx_err *e)
{
    size_t dims[2] = {im->ny, im->nx};
    spx_status st = spx_fits_out_image(o, "IMAGE", -32, 2, dims, im->data, &im->header, e);
    if (st == SPX_OK)
        st = spx_fits_out_image(o, "IVAR", -32, 2, dims, im->ivar, NULL, e);
    if (st == SPX_OK && im->mask != NULL)
        st = spx_fits_out_image(o, "MASK", 32, 2, dims, im->mask, NULL, e);
    if (st == SPX_OK && im->readnoise != NULL)
        st = spx_fits_out_image(o, "READNOISE", -32, 2, dims, im->readnoise, NULL, e);
    if (st == SPX_OK && im->fibermap != NULL)
        st = spx_fits_out_table(o, "FIBERMAP", im->fibermap, NULL, e);
    return st;
}

/* Sets keywords that all three HDUs of a PSF have. */
static spx_status ranges(spx_cards *h, const spx_psf *p, double wmin, double wmax, spx_err *e)
{
    long first = p->fibre != NULL ? (long)p->fibre[0] : 0;
    for (size_t i = 1; i < p->nspec && first > 0; i++)
        first = (long)p->fibre[i] == first + (long)i ? first : 0;
    spx_status st = spx_cards_set_int(h, "FIBERMIN", first, "first fibre", e);
    if (st == SPX_OK)
        st = spx_cards_set_int(h, "FIBERMAX", first + (long)p->nspec - 1, "last fibre", e);
    if (st == SPX_OK)
        st = spx_cards_set_double(h, "WAVEMIN", wmin, "[Angstrom] Legendre argument -1", e);
    if (st == SPX_OK)
        st = spx_cards_set_double(h, "WAVEMAX", wmax, "[Angstrom] Legendre argument +1", e);
    if (st == SPX_OK)
        st = spx_cards_set_string(h, "PSFTYPE", "GAUSS-HERMITE", NULL, e);
    return st == SPX_OK ? spx_cards_set_string(h, "PSFVER", "3", NULL, e) : st;
}

static spx_status trace(spx_fits_out *o, const char *name, const spx_psf_series *s, const spx_psf *p, spx_err *e)
{
    size_t dims[2] = {p->nspec, s->ncoef};
    spx_cards h = {0};
    spx_status st = ranges(&h, p, s->wmin, s->wmax, e);
    if (st == SPX_OK)
        st = spx_fits_out_image(o, name, -64, 2, dims, s->coef, &h, e);
    spx_cards_free(&h);
    return st;
}

/* The same of a file that has no keywords of its own in every HDU; adds to *h. */
static spx_status series(spx_fits_out *o, const char *name, const spx_psf_series *s, size_t nspec, spx_cards *h,
                         spx_err *e)
{
    const size_t dims[2] = {nspec, s->ncoef};
    spx_status st = spx_cards_set_double(h, "WAVEMIN", s->wmin, "[Angstrom] Legendre argument -1", e);
    if (st == SPX_OK)
        st = spx_cards_set_double(h, "WAVEMAX", s->wmax, "[Angstrom] Legendre argument +1", e);
    return st == SPX_OK ? spx_fits_out_image(o, name, -64, 2, dims, s->coef, h, e) : st;
}

static spx_table *parameters(const spx_psf *p, spx_err *e)
{
    enum { WIDTH = 8 }; /* width of PARAM in these files; longer names make the column wider */
    size_t width = WIDTH;
    for (size_t i = 0; i < p->npar; i++)
        if (strlen(p->param[i]) > width)
            width = strlen(p->param[i]);
    hsize_t dims[2] = {p->nspec, p->ndeg};
    hid_t type = H5Tarray_create2(H5T_NATIVE_DOUBLE, 2, dims);
    char *names = spx_alloc2(p->npar, width, 1, e);
    spx_table *t = names != NULL ? spx_table_new(p->npar, e) : NULL;
    spx_status st = t == NULL ? SPX_EIO : SPX_OK;
    for (size_t i = 0; i < p->npar && st == SPX_OK; i++)
        memcpy(names + i * width, p->param[i], strlen(p->param[i]));
    if (st == SPX_OK)
        st = spx_table_add_strings(t, "PARAM", width, names, e);
    if (st == SPX_OK)
        st = spx_table_add(t, "COEFF", type, NULL, p->coeff, e);
    (void)H5Tclose(type);
    spx_free(names);
    if (st != SPX_OK) {
        spx_table_free(t);
        return NULL;
    }
    return t;
}

/* Numbers in the header of the table of parameters. */
static spx_status set_numbers(spx_cards *h, const spx_psf *p, spx_err *e)
{
    const struct {
        const char *key;
        long value;
        const char *comment;
    } number[] = {{"NPIX_X", (long)p->npix_x, "columns of the CCD"},
                  {"NPIX_Y", (long)p->npix_y, "rows of the CCD"},
                  {"HSIZEX", p->hsizex, "half size of a spot, NX = 2*HSIZEX+1"},
                  {"HSIZEY", p->hsizey, "half size of a spot, NY = 2*HSIZEY+1"},
                  {"NPARAMS", (long)p->npar, "number of PSF parameters"},
                  {"LEGDEG", (long)p->ndeg - 1, "degree of the parameters' Legendre series"},
                  {"GHDEGX", p->ghdegx, "highest Hermite order along columns"},
                  {"GHDEGY", p->ghdegy, "highest Hermite order along rows"},
                  {"GHDEGX2", p->ghdegx2, "the same of the second core"},
                  {"GHDEGY2", p->ghdegy2, "the same of the second core"}};
    const size_t n = sizeof number / sizeof *number - (p->type == SPX_PSF_GAUSS_HERMITE2 ? 0 : 2);
    spx_status st = SPX_OK;
    if (p->camera[0] != '\0')
        st = spx_cards_set_string(h, "CAMERA", p->camera, NULL, e);
    for (size_t i = 0; i < n && st == SPX_OK; i++)
        st = spx_cards_set_int(h, number[i].key, number[i].value, number[i].comment, e);
    return st == SPX_OK ? spx_cards_set_double(h, "PSFERR", p->psferr, "fractional error of the model", e) : st;
}

/* The PSF with its traces as rows X and Y of the parameters, all over one range: *to, whose arrays are its own. */
static spx_status traces_as_rows(const spx_psf *p, spx_psf *to, spx_err *e)
{
    const spx_psf_series *trace[2] = {&p->x, &p->y};
    size_t n = p->ndeg;
    for (int k = 0; k < 2; k++) {
        n = trace[k]->ncoef > n ? trace[k]->ncoef : n;
        if (trace[k]->wmin != p->wmin || trace[k]->wmax != p->wmax)
            return spx_fail_remedy(e, SPX_EINPUT, "keep the HDF5 file",
                                   "psf: traces and parameters have different ranges of wavelengths, which a "
                                   "GAUSS-HERMITE2 file of this program cannot have");
    }
    *to = (spx_psf){.nspec = p->nspec, .npar = p->npar + 2, .ndeg = n, .type = p->type};
    to->param = spx_alloc(to->npar, sizeof *to->param, e);
    to->coeff = spx_alloc2(to->npar * p->nspec, n, sizeof *to->coeff, e);
    if (to->param == NULL || to->coeff == NULL)
        return SPX_EIO;
    memcpy(to->param[0], "X", 2);
    memcpy(to->param[1], "Y", 2);
    memcpy(to->param + 2, p->param, p->npar * sizeof *p->param);
    for (size_t row = 0; row < to->npar * p->nspec; row++) {
        const size_t par = row / p->nspec, f = row % p->nspec;
        const size_t m = par < 2 ? trace[par]->ncoef : p->ndeg;
        const double *from = par < 2 ? trace[par]->coef + f * m : p->coeff + ((par - 2) * p->nspec + f) * m;
        memcpy(to->coeff + row * n, from, m * sizeof *from);
    }
    return SPX_OK;
}

/* A column of one number in all rows. */
static spx_status add_number(spx_table *t, const char *name, size_t n, double v, spx_err *e)
{
    double *all = spx_alloc(n, sizeof *all, e);
    for (size_t i = 0; all != NULL && i < n; i++)
        all[i] = v;
    const spx_status st = all != NULL ? spx_table_add(t, name, H5T_NATIVE_DOUBLE, NULL, all, e) : SPX_EIO;
    spx_free(all);
    return st;
}

/* Writes a GAUSS-HERMITE2 PSF as specex does: one table, with traces as rows X and Y, and the range in every row. */
static spx_status write_two_cores(spx_fits_out *o, const spx_psf *p, spx_err *e)
{
    spx_psf rows = {0};
    spx_cards h = {0};
    spx_table *t = NULL;
    spx_status st = spx_cards_copy(&h, &p->header, e);
    if (st == SPX_OK)
        st = ranges(&h, p, p->wmin, p->wmax, e);
    if (st == SPX_OK)
        st = spx_cards_set_string(&h, "PSFTYPE", "GAUSS-HERMITE2", NULL, e);
    if (st == SPX_OK)
        st = spx_cards_set_string(&h, "PSFVER", "2", NULL, e);
    if (st == SPX_OK)
        st = set_numbers(&h, p, e);
    if (st == SPX_OK)
        st = traces_as_rows(p, &rows, e);
    if (st == SPX_OK && (t = parameters(&rows, e)) == NULL)
        st = SPX_EIO;
    if (st == SPX_OK)
        st = add_number(t, "WAVEMIN", rows.npar, p->wmin, e);
    if (st == SPX_OK)
        st = add_number(t, "WAVEMAX", rows.npar, p->wmax, e);
    if (st == SPX_OK)
        st = spx_cards_set_int(&h, "NPARAMS", (long)rows.npar, "number of PSF parameters", e);
    if (st == SPX_OK)
        st = spx_cards_set_int(&h, "LEGDEG", (long)rows.ndeg - 1, "degree of the parameters' Legendre series", e);
    if (st == SPX_OK)
        st = spx_fits_out_table(o, "PSF", t, &h, e);
    spx_table_free(t);
    spx_cards_free(&h);
    spx_psf_free(&rows);
    return st;
}

/* SPX_EINPUT where specter would make other spots of the grid. */
static spx_status check_grid(const spx_psf *p, spx_err *e)
{
    const spx_psf_grid *g = &p->grid;
    const double x = spx_fits_specter_place(g->mx, g->oversample), y = spx_fits_specter_place(g->my, g->oversample);
    const size_t n = p->nspec * p->ndeg;
    const char *what = NULL;
    for (size_t i = 0; i < g->npos * g->nwave; i++)
        if (!(fabs(g->centre[2 * i] - y - 0.5) < 1e-6 && fabs(g->centre[2 * i + 1] - x - 0.5) < 1e-6))
            what = "spots lie elsewhere than in the middle of their arrays";
    for (size_t i = 0; i < n; i++)
        if (fabs(p->coeff[(size_t)p->sigx * n + i] - (i % p->ndeg == 0 ? g->sigma_x : 0)) > 1e-9 * g->sigma_x ||
            fabs(p->coeff[(size_t)p->sigy * n + i] - (i % p->ndeg == 0 ? g->sigma_y : 0)) > 1e-9 * g->sigma_y)
            what = "spots are stretched (GHSIGX, GHSIGY)";
    if (what == NULL)
        return SPX_OK;
    return spx_fail_remedy(e, SPX_EINPUT, "keep the HDF5 file", "psf: %s, which a SPOTGRID file cannot say", what);
}

/* Writes a grid of spots as specter reads it. */
static spx_status write_grid(spx_fits_out *o, const spx_psf *p, spx_err *e)
{
    const spx_psf_grid *g = &p->grid;
    const size_t dims[4] = {g->npos, g->nwave, g->my, g->mx};
    spx_cards h = {0};
    double ccd, sub;
    spx_status st = check_grid(p, e);
    if (st == SPX_OK)
        st = spx_cards_copy(&h, &p->header, e);
    if (st == SPX_OK && !(spx_cards_double(&h, "CCDPIXSZ", &ccd) && spx_cards_double(&h, "PIXSIZE", &sub) &&
                          floor(ccd / sub) == g->oversample)) { /* specter cuts the ratio off */
        st = spx_cards_set_double(&h, "CCDPIXSZ", 1, "size of a pixel", e);
        if (st == SPX_OK)
            st = spx_cards_set_double(&h, "PIXSIZE", (1 - 1e-9) / g->oversample, "size of a sub-pixel of spots", e);
    }
    if (st == SPX_OK)
        st = spx_cards_set_string(&h, "PSFTYPE", "SPOTGRID", "grid of over-sampled spots", e);
    if (st == SPX_OK)
        st = spx_cards_set_int(&h, "NPIX_X", (long)p->npix_x, "columns of the CCD", e);
    if (st == SPX_OK)
        st = spx_cards_set_int(&h, "NPIX_Y", (long)p->npix_y, "rows of the CCD", e);
    if (st == SPX_OK)
        st = spx_cards_set_int(&h, "NSPEC", (long)p->nspec, "traces", e);
    if (st == SPX_OK && p->camera[0] != '\0')
        st = spx_cards_set_string(&h, "CAMERA", p->camera, NULL, e);
    if (st == SPX_OK)
        st = spx_cards_set_double(&h, "PSFERR", p->psferr, "fractional error of the model", e);
    if (st == SPX_OK)
        st = series(o, "XCOEFF", &p->x, p->nspec, &h, e);
    spx_cards_free(&h);
    if (st == SPX_OK)
        st = series(o, "YCOEFF", &p->y, p->nspec, &h, e);
    spx_cards_free(&h);
    if (st == SPX_OK)
        st = spx_fits_out_image(o, "SPOTS", -32, 4, dims, g->spot, NULL, e);
    if (st == SPX_OK)
        st = spx_fits_out_image(o, "FIBERPOS", -64, 1, &p->nspec, g->fibre_pos, NULL, e);
    if (st == SPX_OK)
        st = spx_fits_out_image(o, "SPOTPOS", -64, 1, &dims[0], g->pos, NULL, e);
    return st == SPX_OK ? spx_fits_out_image(o, "SPOTWAVE", -64, 1, &dims[1], g->wave, NULL, e) : st;
}

spx_status spx_psf_write_fits(spx_fits_out *o, const spx_psf *p, spx_err *e)
{
    spx_cards h = {0};
    spx_table *t = NULL;
    spx_status st =
        spx_psf_require(p, p->tilt < 0 ? SPX_PSF_SPOTS : 0, "a PSF file of DESI or BOSS", "keep the HDF5 file", e);
    if (st == SPX_OK && p->type == SPX_PSF_GAUSS_HERMITE2)
        return write_two_cores(o, p, e);
    if (st == SPX_OK && p->type == SPX_PSF_SPOTGRID)
        return write_grid(o, p, e);
    if (st == SPX_OK)
        st = trace(o, "XTRACE", &p->x, p, e);
    if (st == SPX_OK)
        st = trace(o, "YTRACE", &p->y, p, e);
    if (st == SPX_OK)
        st = spx_cards_copy(&h, &p->header, e);
    if (st == SPX_OK)
        st = ranges(&h, p, p->wmin, p->wmax, e);
    if (st == SPX_OK)
        st = set_numbers(&h, p, e);
    if (st == SPX_OK && (t = parameters(p, e)) == NULL)
        st = SPX_EIO;
    if (st == SPX_OK)
        st = spx_fits_out_table(o, "PSF", t, &h, e);
    spx_table_free(t);
    spx_cards_free(&h);
    return st;
}

spx_status spx_psf_read_fits(const char *path, spx_psf *psf, spx_note_list *notes, spx_err *e)
{
    spx_fits f = {0};
    char note[512];
    spx_err sums = {0};
    hid_t fapl = H5Pcreate(H5P_FILE_ACCESS), file = H5I_INVALID_HID;
    memset(psf, 0, sizeof *psf);
    spx_status st = spx_fits_open(&f, path, e);
    if (st == SPX_OK && spx_fits_recognise(&f, note, sizeof note) != SPX_FITS_AS_PSF)
        st = spx_fail_at(e, SPX_EINPUT, path, NULL, NULL, "holds no PSF of a known kind%s%s",
                         note[0] != '\0' ? ": " : "", note);
    if (st == SPX_OK && spx_fits_check_sums(&f, &sums) != SPX_OK)
        st = spx_note_list_add(notes, e, "%s", spx_err_text(&sums));
    /* by way of the block, in memory: there is one reader of these files */
    if (st == SPX_OK && (H5Pset_fapl_core(fapl, (size_t)1 << 20, 0) < 0 ||
                         (file = H5Fcreate("PSF in memory", H5F_ACC_TRUNC, H5P_DEFAULT, fapl)) < 0))
        st = spx_fail_at(e, SPX_EIO, path, NULL, NULL, "no memory for it");
    if (st == SPX_OK)
        st = spx_fits_blocks(&f, SPX_FITS_AS_PSF, file, notes, e);
    if (st == SPX_OK)
        st = spx_psf_read(file, psf, e);
    if (file >= 0)
        (void)H5Fclose(file);
    (void)H5Pclose(fapl);
    spx_fits_close(&f);
    return st;
}
