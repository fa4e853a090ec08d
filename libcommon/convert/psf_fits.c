/* Recognises PSFs in FITS files, and makes the block psf of them (convert/psf_fits.h). */
#include "convert/psf_fits.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "convert/blocks.h"
#include "convert/blocks_parts.h"
#include "convert/psf_kinds.h"
#include "fits/values.h"
#include "products/psf_h5.h"
#include "products/psf_index.h"

/* Index of the table of a PSF of the first layout of PSFVER 2, or -1: no HDUs XTRACE and YTRACE, but rows X and Y in
 * the table of parameters, whatever its name; every row has its own wavelength range. */
static int find_psf_of_rows(const spx_fits *f)
{
    for (size_t i = 0; i < f->nhdu && spx_fits_find(f, "XTRACE") < 0; i++)
        if (f->hdu[i].kind == SPX_FITS_BINTABLE && spx_fits_find_column(&f->hdu[i], "PARAM") != NULL &&
            spx_fits_find_column(&f->hdu[i], "COEFF") != NULL && spx_fits_find_column(&f->hdu[i], "WAVEMIN") != NULL &&
            spx_fits_find_column(&f->hdu[i], "WAVEMAX") != NULL)
            return (int)i;
    return -1;
}

/* Reads PSFTYPE and PSFVER from the primary header, or from that of the PSF table. */
static int psf_type(const spx_fits *f, char type[32], double *version)
{
    int found = 0;
    *version = 0.0;
    for (size_t i = 0; i < f->nhdu && !found; i++) {
        const spx_cards *h = &f->hdu[i].header;
        char text[32];
        found = spx_cards_string(h, "PSFTYPE", type, 32);
        if (found && !spx_cards_double(h, "PSFVER", version) && spx_cards_string(h, "PSFVER", text, sizeof text))
            *version = atof(text);
    }
    return found;
}

int spx_fits_psf_recognise(const spx_fits *f, char *note, size_t size)
{
    char type[32];
    double version;
    note[0] = 0;
    const int has_type = psf_type(f, type, &version);
    if (spx_fits_desi_traces(f) && !(has_type && strncmp(type, "GAUSS-HERMITE", 13) == 0))
        return 1;
    if (!has_type && (spx_fits_neven(f) != 0 || spx_fits_apogee_psf(f)))
        return 1;
    if (!has_type) {
        const int map = spx_fits_detector_map(f);
        if (map < 0)
            snprintf(note, size,
                     "holds a detectorMap with distortions of an unknown kind; DifferentialDetectorMap cannot be read, "
                     "other classes can");
        return map < 0 ? 0 : map > 0 || spx_fits_trace_sets(f) != 0 ? 1 : -1;
    }
    if ((strcmp(type, "GAUSS-HERMITE") == 0 && (version == 2.0 || version == 3.0)) ||
        (strcmp(type, "GAUSS-HERMITE2") == 0 && (version == 1.0 || version == 2.0)) || strcmp(type, "SPOTGRID") == 0)
        return 1;
    for (char *c = type; *c; c++)
        if (*c < 32 || *c > 126)
            *c = '?';
    snprintf(note, size,
             "holds a PSF of type %s, version %g; the extraction uses GAUSS-HERMITE, version 2 or 3, GAUSS-HERMITE2, "
             "version 1 or 2, and SPOTGRID",
             type, version);
    return 0;
}

void spx_fits_psf_plan(const spx_fits *f, spx_fits_path *view)
{
    static const char *const psf[][2] = {
        {"XTRACE", "/psf/xtrace"},      {"YTRACE", "/psf/ytrace"},    {"PSF", "/psf/coeff"},
        {"XCOEFF", "/psf/xtrace"},      {"YCOEFF", "/psf/ytrace"},    {"SPOTS", "/psf/spots"},
        {"FIBERPOS", "/psf/fibre_pos"}, {"SPOTPOS", "/psf/spot_pos"}, {"SPOTWAVE", "/psf/spot_wave"}};
    for (size_t i = 0; i < sizeof psf / sizeof *psf; i++)
        spx_fits_plan_hdu(f, psf[i][0], view, psf[i][1]);
}

spx_status spx_fits_need_key(const spx_fits *f, int hdu, const char *key, double *out, spx_err *e)
{
    if (spx_cards_double(&f->hdu[hdu].header, key, out))
        return SPX_OK;
    return spx_fail_at(e, SPX_EINPUT, f->name, spx_fits_hduname(f, (size_t)hdu), NULL,
                       "keyword %s is missing: this PSF is not complete", key);
}

static spx_status need_int(const spx_fits *f, int hdu, const char *key, int *out, spx_err *e)
{
    double v = 0.0;
    spx_status st = spx_fits_need_key(f, hdu, key, &v, e);
    if (st == SPX_OK && (v != floor(v) || fabs(v) > 1e6))
        st = spx_fail_at(e, SPX_EINPUT, f->name, spx_fits_hduname(f, (size_t)hdu), NULL, "%s = %g is impossible", key,
                         v);
    *out = st == SPX_OK ? (int)v : 0;
    return st;
}

spx_status spx_fits_trace_series(spx_fits *f, const char *name, spx_psf_series *s, size_t *nspec, spx_err *e)
{
    int i = spx_fits_find_image(f, name, 2);
    if (i < 0)
        return spx_fits_need_hdu(f, name, "PSF", "an image of coefficients", e);
    const spx_fits_hdu *h = &f->hdu[i];
    if (*nspec > 0 && h->dims[0] != *nspec)
        return spx_fail_at(e, SPX_EINPUT, f->name, NULL, NULL, "HDU %s has %zu traces instead of %zu", name, h->dims[0],
                           *nspec);
    *nspec = h->dims[0];
    s->ncoef = h->dims[1];
    if (h->nelem == 0)
        return spx_fail_at(e, SPX_EINPUT, f->name, NULL, NULL, "HDU %s is empty", name);
    spx_status st = spx_fits_need_key(f, i, "WAVEMIN", &s->wmin, e);
    if (st == SPX_OK)
        st = spx_fits_need_key(f, i, "WAVEMAX", &s->wmax, e);
    if (st == SPX_OK)
        st = spx_fits_f64(f, (size_t)i, &s->coef, e);
    for (size_t k = 0; st == SPX_OK && k < h->nelem; k++)
        if (!isfinite(s->coef[k]))
            st = spx_fail_at(e, SPX_EINPUT, f->name, NULL, "take another PSF",
                             "HDU %s: a coefficient of fibre %zu is not finite", name, k / s->ncoef);
    return st;
}

/* Moves the series of row `name` out of the parameters. */
static spx_status trace_of_row(const spx_fits *f, const char *name, spx_psf *psf, double *wmin, double *wmax,
                               spx_psf_series *s, spx_err *e)
{
    const size_t n = psf->nspec * psf->ndeg;
    size_t row = 0;
    while (row < psf->npar && strcmp(psf->param[row], name) != 0)
        row++;
    if (row == psf->npar)
        return spx_fail_at(e, SPX_EINPUT, f->name, NULL, NULL,
                           "neither HDUs XTRACE and YTRACE nor a parameter %s: this PSF has no traces", name);
    s->ncoef = psf->ndeg;
    s->wmin = wmin[row];
    s->wmax = wmax[row];
    if ((s->coef = spx_alloc(n, sizeof *s->coef, e)) == NULL)
        return SPX_EIO;
    memcpy(s->coef, psf->coeff + row * n, n * sizeof *s->coef);
    psf->npar--;
    memmove(psf->coeff + row * n, psf->coeff + (row + 1) * n, (psf->npar - row) * n * sizeof *psf->coeff);
    memmove(psf->param + row, psf->param + row + 1, (psf->npar - row) * sizeof *psf->param);
    memmove(wmin + row, wmin + row + 1, (psf->npar - row) * sizeof *wmin);
    memmove(wmax + row, wmax + row + 1, (psf->npar - row) * sizeof *wmax);
    return SPX_OK;
}

/* Reads traces and wavelength range of a PSF whose table has a range in every row. */
static spx_status traces_of_rows(const spx_fits *f, int table, spx_psf *psf, spx_err *e)
{
    double *wmin = NULL, *wmax = NULL;
    size_t n[2] = {0, 0};
    spx_status st = spx_fits_column_f64(f, (size_t)table, "WAVEMIN", &n[0], &wmin, e);
    if (st == SPX_OK)
        st = spx_fits_column_f64(f, (size_t)table, "WAVEMAX", &n[1], &wmax, e);
    if (st == SPX_OK && (n[0] != 1 || n[1] != 1))
        st = spx_fail_at(e, SPX_EINPUT, f->name, spx_fits_hduname(f, (size_t)table), NULL,
                         "WAVEMIN and WAVEMAX should be one number a row");
    if (st == SPX_OK)
        st = trace_of_row(f, "X", psf, wmin, wmax, &psf->x, e);
    if (st == SPX_OK)
        st = trace_of_row(f, "Y", psf, wmin, wmax, &psf->y, e);
    for (size_t k = 0; st == SPX_OK && k < psf->npar; k++)
        if (!(wmin[k] == wmin[0] && wmax[k] == wmax[0]))
            st = spx_fail_at(e, SPX_EINPUT, f->name, spx_fits_hduname(f, (size_t)table), NULL,
                             "parameters %s and %s have different wavelength ranges", psf->param[0], psf->param[k]);
    if (st == SPX_OK && psf->npar > 0) {
        psf->wmin = wmin[0];
        psf->wmax = wmax[0];
    }
    spx_free(wmin);
    spx_free(wmax);
    return st;
}

/* Numbers of the fibres where the file has some of a spectrograph's, as DESI's of one bundle have. */
static spx_status number_fibres(const spx_fits_hdu *h, spx_psf *psf, spx_err *e)
{
    long first, last;
    if (!spx_cards_int(&h->header, "FIBERMIN", &first) || !spx_cards_int(&h->header, "FIBERMAX", &last) || first <= 0 ||
        first > 1000000 || last - first + 1 != (long)psf->nspec)
        return SPX_OK;
    if ((psf->fibre = spx_alloc(psf->nspec, sizeof *psf->fibre, e)) == NULL)
        return SPX_EIO;
    for (size_t i = 0; i < psf->nspec; i++)
        psf->fibre[i] = (uint32_t)first + (uint32_t)i;
    return SPX_OK;
}

/* Gauss-Hermite PSFs of DESI and BOSS. */
static spx_status read_gauss_hermite(spx_fits *f, spx_psf *psf, spx_err *e)
{
    const int rows = find_psf_of_rows(f), table = rows < 0 ? spx_fits_find_table(f, "PSF") : rows;
    char *param = NULL;
    size_t n = 0;
    double v;
    if (table < 0)
        return spx_fits_need_hdu(f, "PSF", "PSF", "a table of parameters", e);
    const spx_fits_hdu *h = &f->hdu[table];
    int fibre[2] = {0, 0};
    spx_status st;
    if (rows < 0) {
        if ((st = spx_fits_trace_series(f, "XTRACE", &psf->x, &psf->nspec, e)) == SPX_OK)
            st = spx_fits_trace_series(f, "YTRACE", &psf->y, &psf->nspec, e);
    } else if ((st = need_int(f, table, "FIBERMIN", &fibre[0], e)) == SPX_OK &&
               (st = need_int(f, table, "FIBERMAX", &fibre[1], e)) == SPX_OK) {
        if (fibre[1] < fibre[0])
            st = spx_fail_at(e, SPX_EINPUT, f->name, NULL, NULL, "FIBERMAX is below FIBERMIN: this PSF has no fibres");
        else
            psf->nspec = (size_t)(fibre[1] - fibre[0]) + 1;
    }
    if (st == SPX_OK)
        st = spx_fits_column_str(f, (size_t)table, "PARAM", sizeof *psf->param, &param, e);
    if (st == SPX_OK)
        st = spx_fits_column_f64(f, (size_t)table, "COEFF", &n, &psf->coeff, e);
    if (st == SPX_OK && (n == 0 || n % psf->nspec != 0))
        st = spx_fail_at(e, SPX_EINPUT, f->name, spx_fits_hduname(f, (size_t)table), NULL,
                         "COEFF has %zu values a parameter, which is not a multiple of %zu spectra", n, psf->nspec);
    if (st == SPX_OK) {
        psf->npar = h->nrow;
        psf->ndeg = n / psf->nspec;
        psf->param = (spx_psf_param *)param;
        param = NULL;
        for (size_t k = 0; st == SPX_OK && k < psf->npar * n; k++)
            if (!isfinite(psf->coeff[k]))
                st = spx_fail_at(e, SPX_EINPUT, f->name, spx_fits_hduname(f, (size_t)table), "take another PSF",
                                 "parameter %s: a coefficient of fibre %zu is not finite", psf->param[k / n],
                                 k % n / psf->ndeg);
    }
    if (st == SPX_OK && rows >= 0)
        st = traces_of_rows(f, table, psf, e);
    else if (st == SPX_OK && (st = spx_fits_need_key(f, table, "WAVEMIN", &psf->wmin, e)) == SPX_OK)
        st = spx_fits_need_key(f, table, "WAVEMAX", &psf->wmax, e);
    if (st != SPX_OK || (st = need_int(f, table, "GHDEGX", &psf->ghdegx, e)) != SPX_OK ||
        (st = need_int(f, table, "GHDEGY", &psf->ghdegy, e)) != SPX_OK ||
        (st = need_int(f, table, "HSIZEX", &psf->hsizex, e)) != SPX_OK ||
        (st = need_int(f, table, "HSIZEY", &psf->hsizey, e)) != SPX_OK)
        goto done;
    char type[32];
    if (psf_type(f, type, &v) && strcmp(type, "GAUSS-HERMITE2") == 0) {
        psf->type = SPX_PSF_GAUSS_HERMITE2;
        if ((st = need_int(f, table, "GHDEGX2", &psf->ghdegx2, e)) != SPX_OK ||
            (st = need_int(f, table, "GHDEGY2", &psf->ghdegy2, e)) != SPX_OK)
            goto done;
    }
    st = spx_cards_copy(&psf->header, &h->header, e);
    if (st == SPX_OK)
        st = number_fibres(h, psf, e);
done:
    spx_free(param);
    return st;
}

/* Says which fibres the fit of the PSF has lost, and of which it says that it failed, in the row STATUS of specex. */
static spx_status note_failed(const char *name, spx_psf *psf, spx_note_list *notes, spx_err *e)
{
    size_t row = 0, failed = 0, lost = 0, first[2] = {0, 0};
    while (row < psf->npar && strcmp(psf->param[row], "STATUS") != 0)
        row++;
    spx_status st = spx_psf_mark_lost(psf, e);
    for (size_t i = psf->nspec; i-- > 0 && st == SPX_OK;) {
        const int none = psf->valid_range != NULL && psf->valid_range[2 * i + 1] < psf->valid_range[2 * i];
        if (none) {
            lost++;
            first[0] = i;
        } else if (row < psf->npar && psf->coeff[(row * psf->nspec + i) * psf->ndeg] != 0) {
            failed++;
            first[1] = i;
        }
    }
    if (st == SPX_OK && lost > 0)
        st = spx_note_list_add(notes, e,
                               "%s: %zu of %zu fibres, from %zu on, have no spots (GHSIGX, GHSIGY or GH-0-0 is 0): "
                               "their bundle is lost, and nothing will be extracted there: take another PSF",
                               name, lost, psf->nspec, first[0]);
    if (st == SPX_OK && failed > 0)
        st =
            spx_note_list_add(notes, e,
                              "%s: STATUS says that the fit of %zu of %zu fibres, from %zu on, has failed: their spots "
                              "and traces may be wrong",
                              name, failed, psf->nspec, first[1]);
    return st;
}

spx_status spx_fits_psf_block(spx_fits *f, spx_fits *other, hid_t file, spx_note_list *notes, spx_err *e)
{
    spx_psf psf = {0};
    char type[32] = "";
    double v;
    (void)psf_type(f, type, &v);
    spx_status st = strcmp(type, "SPOTGRID") == 0             ? spx_fits_read_spotgrid(f, &psf, notes, e)
                    : strncmp(type, "GAUSS-HERMITE", 13) == 0 ? read_gauss_hermite(f, &psf, e)
                    : spx_fits_neven(f) != 0                  ? spx_fits_read_neven(f, other, &psf, notes, e)
                    : spx_fits_apogee_psf(f)                  ? spx_fits_read_apogee(f, other, &psf, notes, e)
                    : spx_fits_desi_traces(f)                 ? spx_fits_read_desi_traces(f, &psf, notes, e)
                    : spx_fits_trace_sets(f) != 0             ? spx_fits_read_tsets(f, other, &psf, notes, e)
                                                              : spx_fits_read_detector_map(f, &psf, notes, e);
    const spx_cards *h = &psf.header;
    psf.psferr = spx_cards_double(h, "PSFERR", &v) && v >= 0.0 ? v : 0.01;
    if (spx_cards_double(h, "NPIX_X", &v) && v > 0.0 && v < 1e6)
        psf.npix_x = (size_t)v;
    if (spx_cards_double(h, "NPIX_Y", &v) && v > 0.0 && v < 1e6)
        psf.npix_y = (size_t)v;
    spx_fits_camera(h, psf.camera);
    if (!psf.camera[0])
        spx_fits_camera(&f->hdu[0].header, psf.camera);
    if (st == SPX_OK &&
        ((st = spx_psf_index(&psf, e)) != SPX_OK || (st = note_failed(f->name, &psf, notes, e)) != SPX_OK))
        spx_err_at(e, f->name, NULL);
    if (st == SPX_OK)
        st = spx_psf_write(file, &psf, e);
    spx_psf_free(&psf);
    return st;
}
