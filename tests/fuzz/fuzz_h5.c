/* Fuzz target: HDF5 products with foreign content. HDF5's own robustness is not tested, so the input is not a file but
 * a list of edits to valid products: objects deleted, replaced by others of any type and shape, values and attributes
 * changed, links to elsewhere. Every reader of blocks, the checker and the merge then either refuse or give blocks that
 * hold together: all that their sizes promise is read here.
 *
 * First byte: which product, and who reads it. Then edits of 6 bytes: what, which object, four arguments. */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <hdf5_hl.h>

#include "base/mem.h"
#include "flux/flux.h"
#include "h5/attr.h"
#include "h5/file.h"
#include "h5/provenance.h"
#include "h5/schema.h"
#include "h5/table.h"
#include "h5/write.h"
#include "merge/merge.h"
#include "products/ccf_h5.h"
#include "products/flat_h5.h"
#include "products/flux_h5.h"
#include "products/frame_h5.h"
#include "products/image_h5.h"
#include "products/library_h5.h"
#include "products/master_h5.h"
#include "products/psf_h5.h"
#include "products/raw_h5.h"
#include "products/rvfit_templates_h5.h"
#include "products/spectra_h5.h"
#include "products/stack.h"
#include "products/templates_h5.h"
#include "products/transmission_h5.h"
#include "products/zeropoint_h5.h"
#include "psf/spot_math.h"
#include "run/catalogue_parts.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { NSPEC = 2, NWAVE = 8, MAXPATH = 128, NBASE = 3, MAXEDIT = 12 };

typedef struct {
    void *image;
    size_t size, npath;
    char path[MAXPATH][64];
} base;

static base bases[NBASE];

/* ---- good products ---- */

static void need(int ok, const char *what)
{
    if (!ok) {
        printf("fuzz_h5: %s\n", what);
        abort();
    }
}

static void *ramp(size_t n, double first, double step)
{
    double *v = spx_alloc(n, sizeof *v, NULL);
    need(v != NULL, "memory");
    for (size_t i = 0; i < n; i++)
        v[i] = first + step * (double)i;
    return v;
}

static spx_table *sample_table(void)
{
    static const int64_t id[NSPEC] = {5, 6};
    static const double v[NSPEC] = {1, 2};
    spx_table *t = spx_table_new(NSPEC, NULL);
    spx_err e = {0};
    need(t != NULL && spx_table_add(t, "TARGETID", H5T_NATIVE_INT64, NULL, id, &e) == SPX_OK &&
             spx_table_add(t, "FIBER", H5T_NATIVE_INT64, NULL, id, &e) == SPX_OK &&
             spx_table_add(t, "VRAD", H5T_NATIVE_DOUBLE, "km/s", v, &e) == SPX_OK &&
             spx_table_add(t, "VRAD_ERR", H5T_NATIVE_DOUBLE, "km/s", v, &e) == SPX_OK &&
             spx_table_add(t, "RVS_WARN", H5T_NATIVE_INT64, NULL, id, &e) == SPX_OK &&
             spx_table_add_strings(t, "OBJTYPE", 3, "TGTSKY", &e) == SPX_OK,
         "table");
    return t;
}

static void make_arm(spx_arm *a, const char *name, double first)
{
    size_t n = (size_t)NSPEC * NWAVE;
    (void)snprintf(a->name, sizeof a->name, "%s", name);
    (void)snprintf(a->unit, sizeof a->unit, "electron/Angstrom");
    a->nwave = NWAVE;
    a->ndiag = 3;
    a->wavelength = ramp(NWAVE, first, 1);
    a->flux = ramp(n, 1, 1);
    a->ivar = ramp(n, 1, 0);
    a->resolution = ramp(3 * n, 0, 0);
    a->mask = spx_alloc(n, sizeof *a->mask, NULL);
    need(a->mask != NULL, "memory");
}

static void write_frame(hid_t f)
{
    spx_frame fr = {.nspec = NSPEC, .camera = "r0"};
    spx_err e = {0};
    make_arm(&fr.arm, "r", 5000);
    fr.chi2pix = ramp(NSPEC * NWAVE, 1, 0);
    fr.pixmask_fraction = ramp(NSPEC * NWAVE, 0, 0);
    fr.fiber = spx_alloc(NSPEC, sizeof *fr.fiber, NULL);
    fr.model = spx_alloc(12, sizeof *fr.model, NULL);
    need(fr.fiber != NULL && fr.model != NULL, "memory");
    fr.fiber[1] = 1;
    fr.model_ny = 3;
    fr.model_nx = 4;
    fr.fibermap = sample_table();
    fr.scores = sample_table();
    need(spx_cards_set_int(&fr.header, "EXPID", 7, NULL, &e) == SPX_OK &&
             spx_frame_write(f, &fr, 4, NULL, &e) == SPX_OK,
         "frame");
    spx_frame_free(&fr);
}

static void write_image(hid_t f)
{
    spx_image im = {.ny = 4, .nx = 5, .camera = "r0"};
    spx_psf p = {
        .nspec = NSPEC, .npar = 3, .ndeg = 2, .hsizex = 1, .hsizey = 1, .psferr = 0.01, .npix_x = 5, .npix_y = 4};
    spx_err e = {0};
    im.data = spx_alloc(20, sizeof *im.data, NULL);
    im.ivar = spx_alloc(20, sizeof *im.ivar, NULL);
    im.mask = spx_alloc(20, sizeof *im.mask, NULL);
    im.readnoise = spx_alloc(20, sizeof *im.readnoise, NULL);
    need(im.data != NULL && im.ivar != NULL && im.mask != NULL && im.readnoise != NULL, "memory");
    need(spx_cards_set_int(&im.header, "EXPID", 7, NULL, &e) == SPX_OK && spx_image_write(f, &im, &e) == SPX_OK,
         "image");
    p.x = (spx_psf_series){.ncoef = 2, .coef = ramp(NSPEC * 2, 1, 0.5)};
    p.y = (spx_psf_series){.ncoef = 2, .coef = ramp(NSPEC * 2, 1, 0.5)};
    spx_psf_set_wave_range(&p, ramp(2 * NSPEC, 5000, 10));
    p.valid_range = ramp(2 * NSPEC, 5000, 10);
    p.status = spx_alloc(NSPEC, sizeof *p.status, NULL);
    p.bundle = spx_alloc(NSPEC, sizeof *p.bundle, NULL);
    p.fibre = spx_alloc(NSPEC, sizeof *p.fibre, NULL);
    p.order = spx_alloc(NSPEC, sizeof *p.order, NULL);
    need(p.status != NULL && p.bundle != NULL && p.fibre != NULL && p.order != NULL, "memory");
    p.coeff = ramp((size_t)3 * NSPEC * 2, 1, 0);
    p.param = spx_alloc(3, sizeof *p.param, NULL);
    need(p.param != NULL, "memory");
    (void)snprintf(p.param[0], sizeof *p.param, "GHSIGX");
    (void)snprintf(p.param[1], sizeof *p.param, "GHSIGY");
    (void)snprintf(p.param[2], sizeof *p.param, "GH-0-0");
    need(spx_psf_write(f, &p, &e) == SPX_OK, "psf");
    spx_image_free(&im);
    spx_psf_free(&p);
}

static void write_spectra(hid_t f)
{
    spx_spectra s = {.nspec = NSPEC, .narm = 2};
    spx_err e = {0};
    make_arm(&s.arm[0], "b", 4000);
    make_arm(&s.arm[1], "r", 5000);
    s.fibermap = sample_table();
    s.scores = sample_table();
    s.exp_fibermap = sample_table();
    need(spx_cards_set_int(&s.header, "EXPID", 7, NULL, &e) == SPX_OK && spx_spectra_write(f, &s, 8, &e) == SPX_OK,
         "spectra");
    spx_spectra_free(&s);
}

static void write_raw(hid_t f)
{
    static const float pixel[3][8] = {{9}, {8}, {7}};
    spx_raw r = {.camera = "r0", .fibermap = sample_table()};
    spx_raw_image im = {.extname = "CCD", .ny = 3, .nx = 8};
    spx_err e = {0};
    need(spx_cards_set_int(&r.header, "EXPID", 7, NULL, &e) == SPX_OK &&
             spx_cards_set_string(&im.header, "DATASEC", "[1:4,1:3]", NULL, &e) == SPX_OK &&
             spx_cards_set_string(&im.header, "BIASSEC", "[5:8,1:3]", NULL, &e) == SPX_OK &&
             spx_cards_set_double(&im.header, "GAIN", 1.5, NULL, &e) == SPX_OK && spx_raw_write(f, &r, &e) == SPX_OK &&
             spx_raw_write_image(f, 0, &im, H5T_NATIVE_FLOAT, pixel, &e) == SPX_OK,
         "raw");
    spx_raw_free(&r);
    need(spx_raw_read(f, NULL, &r, &e) == SPX_OK, "raw cannot be read");
    spx_raw_free(&r);
    spx_cards_free(&im.header);
}

/* A PSF whose spots are a grid. */
static void write_grid(hid_t f)
{
    spx_psf p = {.nspec = NSPEC, .type = SPX_PSF_SPOTGRID, .npar = 2, .ndeg = 1, .hsizex = 2, .hsizey = 2, .npix_x = 5};
    spx_psf_grid *g = &p.grid;
    spx_err e = {0};
    *g = (spx_psf_grid){.npos = 2, .nwave = 2, .my = 4, .mx = 3, .oversample = 2, .sigma_x = 1, .sigma_y = 1};
    p.x = (spx_psf_series){.ncoef = 1, .wmin = 5000, .wmax = 5010, .coef = ramp(NSPEC, 1, 0.5)};
    p.y = (spx_psf_series){.ncoef = 1, .wmin = 5000, .wmax = 5010, .coef = ramp(NSPEC, 1, 0.5)};
    p.wmin = 5000;
    p.wmax = 5010;
    p.coeff = ramp((size_t)2 * NSPEC, 1, 0);
    p.param = spx_alloc(2, sizeof *p.param, NULL);
    g->spot = spx_alloc(48, sizeof *g->spot, NULL);
    need(p.param != NULL && g->spot != NULL, "memory");
    for (int k = 0; k < 48; k++)
        g->spot[k] = (float)(1 + k % 5);
    g->pos = ramp(2, 0, 1);
    g->wave = ramp(2, 5000, 8);
    g->fibre_pos = ramp(NSPEC, 0, 0.4);
    g->place_x = ramp(4, 1, 0);
    g->place_y = ramp(4, 1.5, 0);
    (void)snprintf(p.param[0], sizeof *p.param, "GHSIGX");
    (void)snprintf(p.param[1], sizeof *p.param, "GHSIGY");
    need(spx_psf_write(f, &p, &e) == SPX_OK, "grid");
    spx_psf_free(&p);
    need(spx_psf_read(f, &p, &e) == SPX_OK, "grid cannot be read");
    spx_psf_free(&p);
}

static void write_master(hid_t f)
{
    enum { NY = 3, NX = 4 };
    spx_master m = {
        .kind = SPX_MASTER_FLAT, .ny = NY, .nx = NX, .camera = "r0", .nexp = 2, .amplifiers = sample_table()};
    spx_err e = {0};
    m.data = spx_alloc((size_t)NY * NX, sizeof *m.data, NULL);
    m.ivar = spx_alloc((size_t)NY * NX, sizeof *m.ivar, NULL);
    m.mask = spx_alloc((size_t)NY * NX, sizeof *m.mask, NULL);
    need(m.data != NULL && m.ivar != NULL && m.mask != NULL, "memory");
    for (int i = 0; i < NY * NX; i++)
        m.data[i] = 1;
    need(spx_cards_set_int(&m.header, "EXPID", 7, NULL, &e) == SPX_OK && spx_master_write(f, &m, &e) == SPX_OK,
         "master");
    spx_master_free(&m);
    need(spx_master_read(f, &m, &e) == SPX_OK, "master cannot be read");
    spx_master_free(&m);
}

static void write_flat(hid_t f)
{
    const size_t n = (size_t)NSPEC * NWAVE;
    spx_flat flat = {.nspec = NSPEC, .nwave = NWAVE, .nlamp = 1, .nknot = 2, .camera = "r0", .unit = "electron"};
    spx_err e = {0};
    flat.wavelength = ramp(NWAVE, 5000, 1);
    flat.flat = ramp(n, 1, 0.01);
    flat.ivar = ramp(n, 1, 1);
    flat.mask = spx_alloc(n, sizeof *flat.mask, NULL);
    flat.lamp = ramp(NWAVE, 5, 0);
    flat.mean = ramp(NWAVE, 5, 0);
    flat.chi2 = ramp(NSPEC, 1, 0);
    flat.knot = ramp(2, 5000, 7);
    flat.fiber = spx_alloc(NSPEC, sizeof *flat.fiber, NULL);
    need(flat.mask != NULL && flat.fiber != NULL && spx_flat_write(f, &flat, 4, &e) == SPX_OK, "flat");
    spx_flat_free(&flat);
}

static void write_flux(hid_t f)
{
    spx_flux x = {.nwave = NWAVE, .ndiag = 3, .camera = "r0", .unit = "1", .exptime = 900, .nstar = 1, .nband = 1};
    spx_err e = {0};
    x.wavelength = ramp(NWAVE, 5000, 1);
    x.response = ramp(NWAVE, 1, 0.1);
    x.covariance = ramp(3 * NWAVE, 1e-4, 0);
    x.model_error = ramp(NWAVE, 0, 1e-3);
    x.band = ramp(2, 5002, 2);
    x.stars = spx_alloc(NWAVE, sizeof *x.stars, NULL);
    x.star = spx_alloc(1, sizeof *x.star, NULL);
    need(x.stars != NULL && x.star != NULL && spx_flux_write(f, &x, &e) == SPX_OK, "flux");
    spx_flux_free(&x);
}

static void write_zeropoints(hid_t f)
{
    spx_err e = {0};
    spx_zeropoint row[2] = {{{"b", -1, 0, -1}, 1, 0.1, 3, 0.2, 0}, {{"b", -1, 1, -1}, 2, 0.1, 3, 0.2, 0}};
    const spx_zeropoints z = {2, row};
    need(spx_zeropoints_write(f, &z, &e) == SPX_OK, "zero points");
}

/* Velocities with the templates of the stars. */
static void write_star_templates(hid_t f)
{
    static const char *const bins[] = {"/rvfit/r/wavelength", "/rvfit/r/template_wavelength"};
    static const char *const values[] = {"/rvfit/r/model", "/rvfit/r/template"};
    const size_t n = NWAVE, dims[2] = {NSPEC, NWAVE};
    spx_err e = {0};
    spx_table *t = sample_table();
    double *w = ramp(NWAVE, 5000, 1), *v = ramp((size_t)NSPEC * NWAVE, 1, 1);
    int ok = spx_table_write(f, "/rvfit/table", t, &e) == SPX_OK;
    for (int i = 0; i < 2 && ok; i++)
        ok = spx_h5_write_real(f, bins[i], 8, 1, &n, w, &e) == SPX_OK &&
             spx_h5_write_real(f, values[i], 4, 2, dims, v, &e) == SPX_OK;
    need(ok, "templates of stars");
    spx_table_free(t);
    spx_free(w);
    spx_free(v);
}

static void write_templates(hid_t f)
{
    enum { NTEMP = 4, NPAR = 2 };
    spx_setup s = {.setup = "r",
                   .wmin = 5000,
                   .wmax = 5007,
                   .step = 1,
                   .resolution = "FWHM=2",
                   .nwave = NWAVE,
                   .lnwave0 = 8.5,
                   .dlnwave = 2e-4,
                   .npar = NPAR,
                   .parname = {"teff", "logg"},
                   .parlog = {1, 0},
                   .ntemp = NTEMP,
                   .naxis = {2, 2}};
    spx_templates t = {.nsetup = 1, .setup = &s, .library = "x"};
    spx_err e = {0};
    s.params = ramp(NTEMP * NPAR, 1, 1);
    s.lnnorm = ramp(NTEMP, 0, 0);
    s.lnflux = spx_alloc2(NTEMP, NWAVE, sizeof *s.lnflux, NULL);
    s.filled = spx_alloc(NTEMP, 1, NULL);
    s.axis[0] = ramp(2, 1, 1);
    s.axis[1] = ramp(2, 1, 1);
    s.node = spx_alloc(NTEMP, sizeof *s.node, NULL);
    s.ccf.ntemp = 1;
    s.ccf.nwave = NWAVE;
    s.ccf.lnwave0 = 8.5;
    s.ccf.dlnwave = 2e-4;
    s.ccf.params = ramp(NPAR, 1, 1);
    s.ccf.vsini = ramp(1, 0, 0);
    s.ccf.flux = spx_alloc(NWAVE, sizeof(float), NULL);
    s.ccf.fft = spx_alloc2(NWAVE / 2 + 1, 2, sizeof(float), NULL);
    s.ccf.fft2 = spx_alloc2(NWAVE / 2 + 1, 2, sizeof(float), NULL);
    s.ccf.pca = (spx_ccf_pca){.nshort = NWAVE,
                              .ncomp = 1,
                              .comp = spx_alloc2(NWAVE + 2, 2, sizeof(float), NULL),
                              .coef = spx_alloc(1, sizeof(float), NULL)};
    need(s.ccf.pca.comp != NULL && s.ccf.pca.coef != NULL, "memory");
    need(s.lnflux != NULL && s.filled != NULL && s.node != NULL && s.ccf.flux != NULL && s.ccf.fft != NULL &&
             s.ccf.fft2 != NULL,
         "memory");
    for (int i = 0; i < NTEMP; i++)
        s.node[i] = i;
    need(spx_templates_write(f, &t, &e) == SPX_OK, "templates");
    spx_setup_free(&s);

    size_t nw = NWAVE, dims[2] = {NTEMP, NPAR}, df[2] = {NTEMP, NWAVE}, np = NPAR;
    double *w = ramp(NWAVE, 5000, 1), *p = ramp(NTEMP * NPAR, 1, 1), *x = ramp(NTEMP * NWAVE, 1, 1);
    char names[NPAR][32] = {"teff", "logg"};
    need(spx_h5_write_real(f, "/library/wavelength", 8, 1, &nw, w, &e) == SPX_OK &&
             spx_h5_set_str(f, "/library/wavelength", "medium", "air", &e) == SPX_OK &&
             spx_h5_write_real(f, "/library/params", 8, 2, dims, p, &e) == SPX_OK &&
             spx_h5_write_strings(f, "/library/parname", 32, np, names[0], &e) == SPX_OK &&
             spx_h5_write_real(f, "/library/flux", 4, 2, df, x, &e) == SPX_OK,
         "library");
    spx_transmission air = {.nspecies = 2, .nwave = NWAVE, .name = {"O2", "H2O"}, .wavelength = w, .tau = x};
    need(spx_transmission_write(f, &air, &e) == SPX_OK, "transmission");
    spx_free(w);
    spx_free(p);
    spx_free(x);
}

static herr_t note_path(hid_t root, const char *name, const H5L_info_t *info, void *data)
{
    base *b = data;
    (void)root, (void)info;
    need(b->npath < MAXPATH, "more objects than there is room for");
    (void)snprintf(b->path[b->npath++], sizeof b->path[0], "/%s", name);
    return 0;
}

static hid_t in_memory(void)
{
    hid_t fapl = H5Pcreate(H5P_FILE_ACCESS);
    need(fapl >= 0 && H5Pset_fapl_core(fapl, 1 << 14, 0) >= 0, "core driver");
    hid_t f = H5Fcreate("fuzz.h5", H5F_ACC_TRUNC, H5P_DEFAULT, fapl);
    H5Pclose(fapl);
    need(f >= 0, "file");
    return f;
}

/* Curves of the cross-correlation of two arms. */
static void write_curves(hid_t f)
{
    spx_err e = {0};
    enum { NLAG = 5 };
    float gain[NSPEC][2][NLAG] = {{{1}}};
    size_t dims[3] = {NSPEC, 2, NLAG}, nlag = NLAG;
    double *v = ramp(NLAG, -10, 5);
    need(spx_h5_write_real(f, "/ccf/velocity", 8, 1, &nlag, v, &e) == SPX_OK &&
             spx_h5_write_strings(f, "/ccf/arm", 16, 2, "b               r               ", &e) == SPX_OK &&
             spx_h5_write(f, "/ccf/gain", H5T_NATIVE_FLOAT, 3, dims, gain, &e) == SPX_OK &&
             spx_h5_attach_scale(f, "/ccf/gain", 2, "/ccf/velocity", "velocity", &e) == SPX_OK,
         "curves");
    spx_free(v);
}

static void make_bases(void)
{
    H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
    for (int i = 0; i < NBASE; i++) {
        base *b = &bases[i];
        spx_err e = {0};
        hid_t f = in_memory();
        if (i == 0) {
            write_frame(f);
            H5Ldelete(f, "/fibermap", H5P_DEFAULT); /* comes again with the image */
            write_image(f);
            spx_table *t = sample_table();
            need(spx_table_write(f, "/fibermap", t, &e) == SPX_OK &&
                     spx_table_write(f, "/rvfit/table", t, &e) == SPX_OK,
                 "table");
            spx_table_free(t);
            write_curves(f);
        } else if (i == 2) {
            write_raw(f);
            write_master(f);
            write_grid(f);
        } else {
            write_spectra(f);
            write_templates(f);
            write_flat(f);
            write_flux(f);
            write_star_templates(f);
            write_zeropoints(f);
        }
        need(spx_h5_set_str(f, "/", "product",
                            i == 0   ? "frame"
                            : i == 1 ? "spectra"
                                     : "raw",
                            &e) == SPX_OK &&
                 spx_h5_set_str(f, "/", "schema_version", "1.0", &e) == SPX_OK &&
                 spx_h5_set_str(f, "/", "creator", "test", &e) == SPX_OK &&
                 spx_provenance_append(f, &(spx_provenance){.program = "x", .version = "1", .command_line = "x"}, &e) ==
                     SPX_OK,
             "attributes");
        need(H5Lvisit(f, H5_INDEX_NAME, H5_ITER_INC, note_path, b) >= 0, "paths");
        (void)snprintf(b->path[b->npath++], sizeof b->path[0], "/");
        need(H5Fflush(f, H5F_SCOPE_GLOBAL) >= 0, "flush");
        ssize_t n = H5Fget_file_image(f, NULL, 0);
        need(n > 0 && (b->image = malloc((size_t)n)) != NULL, "memory");
        b->size = (size_t)n;
        need(H5Fget_file_image(f, b->image, b->size) == n, "image");
        H5Fclose(f);
    }
}

/* ---- edits ---- */

static hid_t type_of(unsigned k)
{
    hid_t t;
    switch (k % 14) {
    case 0:
        return H5Tcopy(H5T_STD_I8BE);
    case 1:
        return H5Tcopy(H5T_STD_U16LE);
    case 2:
        return H5Tcopy(H5T_STD_I32BE);
    case 3:
        return H5Tcopy(H5T_STD_U32LE);
    case 4:
        return H5Tcopy(H5T_STD_I64LE);
    case 5:
        return H5Tcopy(H5T_STD_U64BE);
    case 6:
        return H5Tcopy(H5T_IEEE_F32BE);
    case 7:
        return H5Tcopy(H5T_IEEE_F64LE);
    case 8:
    case 9:
        t = H5Tcopy(H5T_C_S1);
        H5Tset_size(t, k % 14 == 8 ? 200 : H5T_VARIABLE);
        return t;
    case 10:
        return H5Tvlen_create(H5T_NATIVE_INT);
    case 11:
        return H5Tcopy(H5T_STD_REF_OBJ);
    case 12:
        t = H5Tcreate(H5T_COMPOUND, 24);
        H5Tinsert(t, k & 32 ? "FIBER" : "TARGETID", 3, k & 64 ? H5T_STD_I64BE : H5T_IEEE_F32LE);
        H5Tinsert(t, "OBJTYPE", 12, H5T_STD_I16LE);
        return t;
    default:
        return H5Tcreate(H5T_OPAQUE, 5);
    }
}

static hsize_t length_of(unsigned k)
{
    static const hsize_t n[] = {0, 1, 2, 3, 5, 8, 9, (hsize_t)1 << 20, (hsize_t)1 << 31, (hsize_t)1 << 40};
    return n[k % (sizeof n / sizeof *n)];
}

static void replace(hid_t f, const char *path, const uint8_t a[4])
{
    hsize_t dims[4], chunk[4] = {1, 1, 1, 1};
    int ndim = a[1] % 5;
    for (int i = 0; i < ndim; i++)
        dims[i] = length_of(i == 0 ? a[2] : i == 1 ? a[3] : a[3] >> 4);
    hid_t t = type_of(a[0]),
          s = ndim == 0 ? H5Screate(a[2] & 1 ? H5S_NULL : H5S_SCALAR) : H5Screate_simple(ndim, dims, NULL);
    hid_t p = H5Pcreate(H5P_DATASET_CREATE);
    int large = 0;
    for (int i = 0; i < ndim; i++)
        large |= dims[i] > 100 || dims[i] == 0;
    if (ndim > 0 && (large || (a[1] & 64)))
        H5Pset_chunk(p, ndim, chunk);
    if (ndim > 0 && !large && (a[1] & 128))
        H5Pset_external(p, "/etc/hostname", 0, H5F_UNLIMITED);
    H5Ldelete(f, path, H5P_DEFAULT);
    hid_t d = H5Dcreate2(f, path, t, s, H5P_DEFAULT, p, H5P_DEFAULT);
    if (d >= 0)
        H5Dclose(d);
    H5Pclose(p);
    H5Sclose(s);
    H5Tclose(t);
}

static double value_of(unsigned k)
{
    static const double v[] = {0, -1, 1, 0.5, 1e300, -1e300, 2147483648.0, 4294967296.0, 1e-300, 3};
    k %= 13;
    return k == 10 ? NAN : k == 11 ? INFINITY : k == 12 ? -INFINITY : v[k];
}

static void set_values(hid_t f, const char *path, const uint8_t a[4])
{
    double v[256];
    hid_t d = H5Dopen2(f, path, H5P_DEFAULT), s = d < 0 ? d : H5Dget_space(d);
    hssize_t n = s < 0 ? 0 : H5Sget_simple_extent_npoints(s);
    if (n > 0 && n <= 256 && H5Dread(d, H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT, v) >= 0) {
        for (hssize_t i = 0; i < n; i++)
            if (a[1] & 128 || i == a[1] % n)
                v[i] = value_of(a[0]);
        (void)H5Dwrite(d, H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT, v);
    }
    if (s >= 0)
        H5Sclose(s);
    if (d >= 0)
        H5Dclose(d);
}

static void edit_attribute(hid_t f, const char *path, const uint8_t a[4])
{
    static const char *const names[] = {
        "type",         "version", "units",  "medium",    "frame",          "camera",     "lnwave0",    "dlnwave",
        "wmin",         "wmax",    "step",   "norm",      "resolution",     "wavemin",    "wavemax",    "ghdegx",
        "ghdegy",       "hsizex",  "hsizey", "npix_x",    "psferr",         "flag_masks", "CLASS",      "product",
        "column_units", "library", "NAME",   "long_name", "DIMENSION_LIST", "psftype",    "oversample", "sigmax"};
    static const char *const texts[] = {"",    "frame",  "spectra",  "1.0", "9.0",     "x.y",
                                        "air", "vacuum", "electron", "r0",  "spotgrid"};
    const char *name = names[a[0] % (sizeof names / sizeof *names)];
    if (H5Aexists_by_name(f, path, name, H5P_DEFAULT) > 0)
        (void)H5Adelete_by_name(f, path, name, H5P_DEFAULT);
    if (a[1] % 4 == 0)
        return;
    hsize_t n = a[3] % 4;
    hid_t t, s = n == 1 ? H5Screate(H5S_SCALAR) : n == 3 ? H5Screate(H5S_NULL) : H5Screate_simple(1, &n, NULL);
    double number[2] = {value_of(a[2]), value_of(a[3])};
    char text[2][8] = {"", ""};
    const char *pointer[2] = {texts[a[2] % 11], texts[a[3] % 11]};
    const void *value = number;
    if (a[1] % 4 == 1) {
        t = H5Tcopy(H5T_NATIVE_DOUBLE);
    } else if (a[1] % 4 == 2) {
        t = H5Tcopy(H5T_C_S1);
        H5Tset_size(t, sizeof text[0]);
        memset(text, 'x', sizeof text);
        memcpy(text[0], pointer[0], strlen(pointer[0]));
        value = text;
    } else {
        t = H5Tcopy(H5T_C_S1);
        H5Tset_size(t, H5T_VARIABLE);
        value = pointer;
    }
    hid_t at = H5Acreate_by_name(f, path, name, t, s, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    if (at >= 0) {
        if (n == 1 || n == 2)
            (void)H5Awrite(at, t, value);
        H5Aclose(at);
    }
    H5Sclose(s);
    H5Tclose(t);
}

static void edit(hid_t f, const base *b, const uint8_t e[6])
{
    const char *path = b->path[e[1] % b->npath], *other = b->path[e[2] % b->npath];
    if (strcmp(path, "/") == 0 && e[0] % 9 != 3 && e[0] % 9 != 4)
        return;
    switch (e[0] % 9) {
    case 0:
        (void)H5Ldelete(f, path, H5P_DEFAULT);
        break;
    case 1:
    case 2:
        replace(f, path, e + 2);
        break;
    case 3:
    case 4:
        edit_attribute(f, path, e + 2);
        break;
    case 5:
        (void)H5Ldelete(f, path, H5P_DEFAULT);
        (void)H5Lcreate_hard(f, other, f, path, H5P_DEFAULT, H5P_DEFAULT);
        break;
    case 6:
        (void)H5Ldelete(f, path, H5P_DEFAULT);
        if (e[3] % 3 == 0)
            (void)H5Lcreate_external("/etc/hostname", "/x", f, path, H5P_DEFAULT, H5P_DEFAULT);
        else
            (void)H5Lcreate_soft(e[3] % 3 == 1 ? other : path, f, path, H5P_DEFAULT, H5P_DEFAULT);
        break;
    default:
        set_values(f, path, e + 2);
        break;
    }
}

/* ---- reading, all of it ---- */

static volatile unsigned sink;

static void touch(const void *p, size_t n, size_t size)
{
    const unsigned char *c = p;
    unsigned s = 0;
    for (size_t i = 0; p != NULL && i < n * size; i++)
        s += c[i];
    sink += s;
}

static void touch_table(const spx_table *t, size_t nrow)
{
    if (t == NULL)
        return;
    if (t->nrow != nrow)
        abort();
    touch(t->rows, t->nrow, t->rowsize);
}

static void touch_arm(const spx_arm *a, size_t nspec)
{
    for (size_t i = 1; i < a->nwave; i++)
        if (!(a->wavelength[i] > a->wavelength[i - 1]))
            abort();
    touch(a->wavelength, a->nwave, 8);
    touch(a->flux, nspec * a->nwave, 8);
    touch(a->ivar, nspec * a->nwave, 8);
    touch(a->mask, nspec * a->nwave, 4);
    touch(a->resolution, nspec * a->ndiag * a->nwave, 8);
}

static void read_frame(hid_t f)
{
    spx_err e = {0};
    spx_frame fr;
    if (spx_frame_read(f, &fr, &e) == SPX_OK) {
        touch_arm(&fr.arm, fr.nspec);
        touch(fr.chi2pix, fr.nspec * fr.arm.nwave, 8);
        touch(fr.pixmask_fraction, fr.nspec * fr.arm.nwave, 8);
        touch(fr.fiber, fr.nspec, 4);
        touch(fr.model, fr.model_ny * fr.model_nx, 4);
        touch(fr.header.cards, fr.header.n, 80);
        touch_table(fr.fibermap, fr.nspec);
        touch_table(fr.scores, fr.nspec);
    }
    spx_frame_free(&fr);
    spx_err_clear(&e);
}

static void read_spectra(hid_t f)
{
    spx_err e = {0};
    spx_spectra s;
    if (spx_spectra_read(f, 1, &s, &e) == SPX_OK) {
        for (size_t i = 0; i < s.narm; i++)
            touch_arm(&s.arm[i], s.nspec);
        touch_table(s.fibermap, s.nspec);
        touch_table(s.scores, s.nspec);
    }
    spx_spectra_free(&s);
    spx_err_clear(&e);
}

static void read_parts(hid_t f)
{
    spx_err e = {0};
    spx_spectra s;
    spx_spectra_parts parts = {.with_resolution = 1};
    if (spx_spectra_parts_add(&parts, f, 1, &e) == SPX_OK && spx_spectra_parts_add(&parts, f, 1, &e) == SPX_OK) {
        const size_t row[3] = {parts.all.nspec - 1, 0, parts.all.nspec / 2};
        if (spx_spectra_parts_row_bytes(&parts) < 1 << 20 && spx_spectra_parts_read(&parts, 3, row, &s, &e) == SPX_OK)
            for (size_t i = 0; i < s.narm; i++)
                touch_arm(&s.arm[i], 3);
        spx_spectra_free(&s);
        touch_table(parts.all.fibermap, parts.all.nspec);
    }
    spx_spectra_parts_free(&parts);
    spx_err_clear(&e);
}

static void read_ccf(hid_t f)
{
    spx_err e = {0};
    spx_traces tr;
    spx_ccf_stars ccf;
    spx_input in = {.file = f, .name = "fuzz"};
    if (spx_ccf_read(&in, &tr, &ccf, &e) == SPX_OK) {
        touch(tr.data, tr.nsample, 4);
        touch(tr.start, tr.ntrace + 1, sizeof *tr.start);
        if (ccf.first[ccf.nstar] != tr.ntrace)
            abort();
    }
    spx_traces_free(&tr);
    spx_ccf_stars_free(&ccf);
    spx_err_clear(&e);
}

static void read_image(hid_t f)
{
    spx_err e = {0};
    spx_image im;
    memset(&im, 0, sizeof im);
    if (spx_image_read(f, &im, &e) == SPX_OK) {
        touch(im.data, im.ny * im.nx, 4);
        touch(im.ivar, im.ny * im.nx, 4);
        touch(im.mask, im.ny * im.nx, 4);
        touch(im.readnoise, im.ny * im.nx, 4);
    }
    spx_image_free(&im);
    spx_err_clear(&e);
}

static void read_raw(hid_t f)
{
    spx_err e = {0};
    spx_raw r;
    spx_layout l;
    spx_master m;
    memset(&r, 0, sizeof r);
    memset(&l, 0, sizeof l);
    memset(&m, 0, sizeof m);
    if (spx_raw_read(f, NULL, &r, &e) == SPX_OK) {
        for (size_t k = 0; k < r.n; k++)
            touch(r.image[k].data, r.image[k].ny * r.image[k].nx, 4);
        if (spx_layout_make(&r, NULL, 1, &l, &e) == SPX_OK)
            touch(l.amp, l.namp, sizeof *l.amp);
    }
    spx_layout_free(&l);
    spx_raw_free(&r);
    spx_err_clear(&e);
    if (spx_master_read(f, &m, &e) == SPX_OK) {
        touch(m.data, m.ny * m.nx, 4);
        touch(m.ivar, m.ny * m.nx, 4);
        touch(m.mask, m.ny * m.nx, 4);
    }
    spx_master_free(&m);
    spx_err_clear(&e);
}

/* Spots of a PSF that is accepted are none, or sum up to 1. */
static void touch_spots(const spx_psf *p)
{
    enum { MOST = 20 };
    double spot[(2 * MOST + 1) * (2 * MOST + 1)], sum = 0, *work = NULL;
    const double lambda[] = {5001, 5009, 0, -1e300, 1e300};
    spx_spot at;
    if (p->hsizex > MOST || p->hsizey > MOST || p->ghdegx > MOST || p->ghdegy > MOST ||
        (work = spx_alloc(spx_psf_spot_work(p), sizeof *work, NULL)) == NULL)
        return;
    for (size_t f = 0; f < p->nspec && f < 4; f++)
        for (size_t k = 0; k < sizeof lambda / sizeof *lambda; k++) {
            const spx_spot_status st = spx_psf_spot(p, f, lambda[k], work, spot, &at);
            sum = 0;
            for (int i = 0; i < spx_psf_nx(p) * spx_psf_ny(p); i++)
                sum += spot[i];
            need(fabs(sum - (st == SPX_SPOT_OK)) < 1e-9, "pixels of a spot");
        }
    spx_free(work);
}

static void read_psf(hid_t f)
{
    spx_err e = {0};
    spx_psf p;
    memset(&p, 0, sizeof p);
    if (spx_psf_read(f, &p, &e) == SPX_OK) {
        touch(p.x.coef, p.nspec * p.x.ncoef, 8);
        touch(p.y.coef, p.nspec * p.y.ncoef, 8);
        touch(p.coeff, p.npar * p.nspec * p.ndeg, 8);
        touch(p.param, p.npar, sizeof *p.param);
        touch(p.gh, ((size_t)p.ghdegx + 1) * ((size_t)p.ghdegy + 1), sizeof *p.gh);
        if (p.sigx < 0 || (size_t)p.sigx >= p.npar || p.hsizex < 0 || p.hsizey < 0)
            abort();
        touch(p.grid.spot, p.grid.npos * p.grid.nwave * p.grid.my * p.grid.mx, sizeof *p.grid.spot);
        touch_spots(&p);
    }
    spx_psf_free(&p);
    spx_err_clear(&e);
}

/* Zero points that are accepted are numbers, and found by what they name. */
static void read_zeropoints(hid_t f)
{
    spx_err e = {0};
    spx_zeropoints z;
    if (spx_zeropoints_read(f, &z, &e) == SPX_OK)
        for (size_t i = 0; i < z.n; i++) {
            need(isfinite(z.row[i].zero) && z.row[i].err >= 0, "a zero point is no number");
            need(spx_zeropoints_find(&z, &z.row[i].key) == &z.row[i], "a zero point is not found");
        }
    spx_zeropoints_free(&z);
}

/* A flat that is accepted divides a frame without a division by 0. */
static void read_flat(hid_t f)
{
    spx_err e = {0};
    spx_flat flat;
    if (spx_flat_read(f, &flat, &e) == SPX_OK) {
        touch(flat.lamp, flat.nlamp * flat.nwave, 8);
        touch(flat.mean, flat.nlamp * flat.nwave, 8);
        touch(flat.chi2, flat.nspec, 8);
        touch(flat.knot, flat.nknot, 8);
        touch(flat.fiber, flat.fiber != NULL ? flat.nspec : 0, 4);
        touch(flat.mask, flat.nspec * flat.nwave, 4);
        touch_table(flat.fibermap, flat.nspec);
        spx_frame fr = {.nspec = 1, .arm = {.nwave = flat.nwave, .medium = flat.medium}};
        size_t lost;
        fr.fiber = spx_alloc(1, sizeof *fr.fiber, NULL);
        fr.arm.wavelength = ramp(flat.nwave, 0, 0);
        fr.arm.flux = ramp(flat.nwave, 1, 0);
        fr.arm.ivar = ramp(flat.nwave, 1, 0);
        need(fr.fiber != NULL, "memory");
        memcpy(fr.arm.wavelength, flat.wavelength, flat.nwave * sizeof *flat.wavelength);
        fr.fiber[0] = flat.fiber != NULL ? flat.fiber[0] : 0;
        if (spx_flat_apply(&flat, &fr, 1, &lost, &e) == SPX_OK)
            for (size_t k = 0; k < flat.nwave; k++)
                if (!isfinite(fr.arm.flux[k]) || !(fr.arm.ivar[k] >= 0) || !isfinite(fr.arm.ivar[k]))
                    abort();
        spx_frame_free(&fr);
    }
    spx_flat_free(&flat);
    spx_err_clear(&e);
}

/* A response that is accepted calibrates a spectrum, and all stays finite. */
static void read_flux(hid_t f)
{
    spx_err e = {0};
    spx_flux x;
    if (spx_flux_read(f, &x, &e) == SPX_OK && x.nwave >= 3) {
        spx_arm a = {.nwave = x.nwave, .ndiag = 3};
        touch(x.band, 2 * x.nband, 8);
        a.wavelength = ramp(x.nwave, 0, 0);
        a.flux = ramp(x.nwave, 1, 0);
        a.ivar = ramp(x.nwave, 1, 0);
        a.resolution = ramp(3 * x.nwave, 0.33, 0);
        memcpy(a.wavelength, x.wavelength, x.nwave * sizeof *x.wavelength);
        if (spx_flux_apply_cpu(&x, 0.5, 1, 1, &a, NULL, &e) == SPX_OK) {
            for (size_t k = 0; k < x.nwave; k++)
                if (!isfinite(a.flux[k]) || !(a.ivar[k] >= 0) || !isfinite(a.ivar[k]))
                    abort();
            for (size_t k = 0; k < 3 * x.nwave; k++)
                if (!isfinite(a.resolution[k]))
                    abort();
        }
        spx_arm_free(&a);
    }
    spx_flux_free(&x);
    spx_err_clear(&e);
}

static void read_star_templates(hid_t f)
{
    spx_err e = {0};
    spx_star_templates t;
    if (spx_star_templates_read(f, &t, &e) == SPX_OK) {
        touch(t.targetid, t.targetid != NULL ? t.nrow : 0, 8);
        touch(t.fiber, t.fiber != NULL ? t.nrow : 0, 8);
        touch(t.warn, t.nrow, 8);
        for (size_t a = 0; a < t.narm; a++) {
            touch(t.arm[a].wavelength, t.arm[a].nbin, 8);
            touch(t.arm[a].value, t.nrow * t.arm[a].nbin, 8);
            touch(t.arm[a].brightness, t.nrow, 8);
            touch(t.arm[a].sn, t.nrow, 8);
        }
    }
    spx_star_templates_free(&t);
    spx_err_clear(&e);
}

static void read_templates_with(hid_t f, int all)
{
    spx_err e = {0};
    spx_templates t;
    if (spx_templates_read(f, all, &t, &e) == SPX_OK)
        for (size_t i = 0; i < t.nsetup; i++) {
            const spx_setup *u = &t.setup[i];
            touch(u->lnflux, u->ntemp * u->nwave, 4);
            touch(u->params, u->ntemp * u->npar, 8);
            touch(u->lnnorm, u->ntemp, 8);
            touch(u->filled, u->ntemp, 1);
            size_t nnode = u->node != NULL;
            for (size_t k = 0; k < u->npar; k++) {
                touch(u->axis[k], u->naxis[k], 8);
                nnode *= u->naxis[k];
            }
            touch(u->node, nnode, 4);
            touch(u->ccf.flux, u->ccf.ntemp * u->ccf.nwave, 4);
            touch(u->ccf.fft, u->ccf.ntemp * (u->ccf.nwave / 2 + 1) * 2, 4);
            touch(u->ccf.fft2, u->ccf.ntemp * (u->ccf.nwave / 2 + 1) * 2, 4);
            touch(u->ccf.pca.comp, u->ccf.pca.ncomp * (2 * u->ccf.pca.nshort + 4), 4);
            touch(u->ccf.pca.coef, u->ccf.ntemp * u->ccf.pca.ncomp, 4);
            touch(u->ccf.params, u->ccf.ntemp * u->npar, 8);
            touch(u->ccf.vsini, u->ccf.ntemp, 8);
        }
    spx_templates_free(&t);
    spx_err_clear(&e);
}

static void read_templates(hid_t f)
{
    read_templates_with(f, 0);
    read_templates_with(f, 1);
}

static void read_library(hid_t f)
{
    spx_err e = {0};
    spx_library lib;
    if (spx_library_read(f, &lib, &e) == SPX_OK) {
        touch(lib.wavelength, lib.nwave, 8);
        touch(lib.params, lib.ntemp * lib.npar, 8);
        float *row = spx_alloc(lib.nwave, sizeof *row, NULL);
        if (row != NULL && lib.ntemp > 0 && spx_library_read_flux(f, &lib, lib.ntemp - 1, 1, row, &e) == SPX_OK)
            touch(row, lib.nwave, 4);
        spx_free(row);
    }
    spx_library_free(&lib);
    spx_err_clear(&e);
}

static void read_transmission(hid_t f)
{
    spx_err e = {0};
    spx_transmission t;
    if (spx_transmission_read(f, &t, &e) == SPX_OK) {
        touch(t.wavelength, t.nwave, 8);
        touch(t.tau, t.nspecies * t.nwave, 8);
    }
    spx_transmission_free(&t);
    spx_err_clear(&e);
}

static void read_blocks(hid_t f)
{
    read_frame(f);
    read_spectra(f);
    read_parts(f);
    read_ccf(f);
    read_image(f);
    read_raw(f);
    read_psf(f);
    read_flat(f);
    read_flux(f);
    read_star_templates(f);
    read_zeropoints(f);
    read_templates(f);
    read_library(f);
    read_transmission(f);
}

static void merge_with(hid_t f, const base *b, spx_merge_by by)
{
    spx_err e = {0};
    spx_merge *m = NULL;
    spx_merge_repairs repairs = {0};
    hid_t good = H5LTopen_file_image(b->image, b->size, 0), out = in_memory();
    need(good >= 0, "good file");
    const spx_merge_part part[2] = {{.file = good, .name = "good"}, {.file = f, .name = "bad"}};
    const spx_merge_options o = {.by = by, .allow_missing = 1};
    if (spx_merge_plan(2, part, &o, &m, &e) == SPX_OK)
        (void)spx_merge_write(m, out, NULL, &repairs, &e);
    spx_merge_free(m);
    H5Fclose(out);
    H5Fclose(good);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static FILE *nowhere;
    if (nowhere == NULL) {
        nowhere = fopen("/dev/null", "w");
        need(nowhere != NULL, "/dev/null");
        make_bases();
        spx_mem_limit((size_t)64 << 20);
    }
    if (size < 1)
        return 0;
    const base *b = &bases[data[0] % NBASE];
    hid_t f = H5LTopen_file_image(b->image, b->size, H5LT_FILE_IMAGE_OPEN_RW);
    need(f >= 0, "image");
    for (size_t i = 0; i < MAXEDIT && 1 + 6 * (i + 1) <= size; i++)
        edit(f, b, data + 1 + 6 * i);

    spx_err e = {0};
    size_t nbad;
    char text[64];
    int has;
    switch (data[0] / NBASE % 4) {
    case 0:
        (void)spx_schema_check(f, "fuzz", nowhere, &nbad, &e);
        for (size_t i = 0; i < spx_provenance_count(f); i++)
            (void)spx_provenance_read(f, i, "program", text, sizeof text, &has, &e);
        break;
    case 1:
        read_blocks(f);
        break;
    case 2:
        merge_with(f, b, SPX_MERGE_ROWS);
        break;
    default:
        merge_with(f, b, data[0] & 128 ? SPX_MERGE_CAMERAS : SPX_MERGE_AUTO);
    }
    if (H5Fget_obj_count(f, H5F_OBJ_ALL) != 1) {
        printf("fuzz_h5: %ld objects were left open\n", (long)H5Fget_obj_count(f, H5F_OBJ_ALL) - 1);
        abort();
    }
    H5Fclose(f);
    return 0;
}
