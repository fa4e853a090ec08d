/* Which programs take a file (common/check_input.h). */
#include "common/check_input.h"

#include <stdarg.h>
#include <string.h>

#include "app/dataset.h"
#include "base/mem.h"
#include "base/text.h"
#include "h5/object.h"
#include "h5/table.h"
#include "products/ccf_h5.h"
#include "products/flat_h5.h"
#include "products/flux_h5.h"
#include "products/frame_h5.h"
#include "products/image_h5.h"
#include "products/library_h5.h"
#include "products/master_h5.h"
#include "products/network_h5.h"
#include "products/psf_h5.h"
#include "products/raw_h5.h"
#include "products/rvfit_templates_h5.h"
#include "products/shifts_h5.h"
#include "products/spectra_h5.h"
#include "products/templates_h5.h"
#include "products/traces_h5.h"
#include "products/transmission_h5.h"
#include "products/zeropoint_h5.h"

/* A block that was read: its contents, and the programs that take it. */
typedef struct {
    spx_input *in;
    FILE *out;
    const char *path;
    spx_err *e;
} block;

static spx_status say(const block *b, const char *programs, const char *fmt, ...) SPX_PRINTF(3, 4);

static spx_status say(const block *b, const char *programs, const char *fmt, ...)
{
    va_list ap;
    fprintf(b->out, "%s:%s: ", b->in->name, b->path);
    va_start(ap, fmt);
    (void)vfprintf(b->out, fmt, ap);
    va_end(ap);
    fprintf(b->out, ": %s\n", programs);
    return SPX_OK;
}

static spx_status read_spectra(const block *b)
{
    spx_spectra s = {0};
    spx_status st = spx_spectra_read_grids(b->in->file, 1, &s, b->e);
    spx_text arms = {0};
    int with = 1;
    for (size_t i = 0; i < s.narm && st == SPX_OK; i++) {
        with &= s.arm[i].ndiag > 0;
        st = spx_text_add(&arms, b->e, "%s%s", i > 0 ? " " : "", s.arm[i].name);
    }
    if (st == SPX_OK)
        st = say(b, with ? "rvs-fit --resolution-matrix, rvs-fit, h5merge" : "rvs-fit, h5merge", "%zu spectra, arms %s",
                 s.nspec, arms.s);
    spx_text_free(&arms);
    spx_spectra_free(&s);
    return st;
}

static spx_status read_frame(const block *b)
{
    spx_frame f = {0};
    spx_text programs = {0};
    spx_status st = spx_frame_read(b->in->file, &f, b->e);
    if (st == SPX_OK && f.arm.ndiag > 0)
        st = spx_text_add(&programs, b->e, "specx-sky, %s%srvs-fit --resolution-matrix, ",
                          f.arm.barycentric || f.flat_applied ? "" : "specx-flat, ",
                          strstr(f.arm.unit, "electron") != NULL ? "specx-flux, " : "");
    if (st == SPX_OK)
        st = spx_text_add(&programs, b->e, "rvs-fit, h5merge%s",
                          f.arm.ndiag > 0 ? "" : " (it has no resolution matrix)");
    if (st == SPX_OK)
        st = say(b, programs.s, "%zu spectra of camera %s", f.nspec, f.camera[0] != '\0' ? f.camera : "?");
    spx_text_free(&programs);
    spx_frame_free(&f);
    return st;
}

static spx_status read_image(const block *b)
{
    spx_image im = {0};
    spx_status st = spx_image_read(b->in->file, &im, b->e);
    if (st == SPX_OK)
        st = say(b,
                 spx_h5_exists(b->in->file, "/psf") ? "specx-extract, specx-shift"
                                                    : "specx-extract, specx-shift (with a file that holds /psf)",
                 "%zu x %zu pixels", im.nx, im.ny);
    spx_image_free(&im);
    return st;
}

static spx_status read_raw(const block *b)
{
    spx_raw r = {0};
    spx_layout l = {0};
    spx_err none = {0};
    spx_status st = spx_raw_read(b->in->file, NULL, &r, b->e);
    const spx_status known = st == SPX_OK ? spx_layout_make(&r, NULL, 1, &l, &none) : SPX_EINPUT;
    if (st == SPX_OK && known != SPX_OK && known != SPX_EINPUT)
        st = spx_err_pass(b->e, &none);
    if (st == SPX_OK)
        st = known == SPX_OK ? say(b, "specx-preproc", "%zu amplifiers", l.namp)
                             : say(b, "specx-preproc --layout", "%zu images without usable keywords", r.n);
    spx_layout_free(&l);
    spx_raw_free(&r);
    return st;
}

static spx_status read_master(const block *b)
{
    spx_master m = {0};
    char programs[32];
    spx_status st = spx_master_read(b->in->file, &m, b->e);
    if (st == SPX_OK) {
        (void)snprintf(programs, sizeof programs, "specx-preproc --%s", spx_master_names[m.kind]);
        st = say(b, programs, "%s of %zu x %zu pixels", spx_master_names[m.kind], m.nx, m.ny);
    }
    spx_master_free(&m);
    return st;
}

static spx_status read_psf(const block *b)
{
    spx_psf psf = {0};
    spx_status st = spx_psf_read(b->in->file, &psf, b->e);
    if (st == SPX_OK)
        st = say(b,
                 spx_h5_exists(b->in->file, "/image")
                     ? "specx-extract, specx-shift, specx-sim --psf"
                     : "specx-extract, specx-shift (with a file that holds /image), specx-sim --psf",
                 "%zu fibres", psf.nspec);
    spx_psf_free(&psf);
    return st;
}

static spx_status read_library(const block *b)
{
    enum { ROWS = 16 };
    spx_library lib = {0};
    spx_status st = spx_library_read(b->in->file, &lib, b->e);
    float *flux = st == SPX_OK ? spx_alloc2(ROWS, lib.nwave, sizeof *flux, b->e) : NULL;
    if (st == SPX_OK && flux == NULL)
        st = SPX_EIO;
    for (size_t i = 0; i < lib.ntemp && st == SPX_OK; i += ROWS)
        st = spx_library_read_flux(b->in->file, &lib, i, lib.ntemp - i < ROWS ? lib.ntemp - i : ROWS, flux, b->e);
    if (st == SPX_OK)
        st = say(b, "rvs-template, specx-sim --models", "%zu models", lib.ntemp);
    spx_free(flux);
    spx_library_free(&lib);
    return st;
}

static spx_status read_network(const block *b)
{
    spx_network n = {0};
    spx_status st = spx_network_read(b->in->file, &n, b->e);
    if (st == SPX_OK)
        st = say(b, "rvs-template", "network of spectra");
    spx_network_free(&n);
    return st;
}

static spx_status read_templates(const block *b)
{
    spx_templates t = {0};
    spx_status st = spx_templates_read(b->in->file, 1, &t, b->e);
    spx_text setups = {0};
    for (size_t i = 0; i < t.nsetup && st == SPX_OK; i++)
        st = spx_text_add(&setups, b->e, "%s%s", i > 0 ? " " : "", t.setup[i].setup);
    if (st == SPX_OK)
        st = say(b, "rvs-fit --templates", "setups %s", setups.s);
    spx_text_free(&setups);
    spx_templates_free(&t);
    return st;
}

static spx_status read_rvfit(const block *b)
{
    spx_table *t = NULL;
    spx_star_templates stars = {0};
    spx_err none = {0};
    spx_status st = spx_table_read(b->in->file, "/rvfit/table", &t, b->e);
    if (st == SPX_OK && (t == NULL || spx_table_find(t, "VRAD") < 0))
        st = spx_fail_at(b->e, SPX_EINPUT, b->in->name, "/rvfit/table", NULL,
                         t == NULL ? "is missing" : "column VRAD is missing");
    const spx_status with = st == SPX_OK ? spx_star_templates_read(b->in->file, &stars, &none) : SPX_EINPUT;
    if (st == SPX_OK && with != SPX_OK && with != SPX_EINPUT)
        st = spx_err_pass(b->e, &none);
    if (st == SPX_OK)
        st = say(b,
                 with == SPX_OK ? "rvs-fit --start, specx-flux --fit, h5table, h52fits"
                                : "rvs-fit --start, h5table, h52fits",
                 "%zu stars", t->nrow);
    spx_star_templates_free(&stars);
    spx_table_free(t);
    return st;
}

static spx_status read_zeropoint(const block *b)
{
    spx_zeropoints z = {0};
    spx_status st = spx_zeropoints_read(b->in->file, &z, b->e);
    if (st == SPX_OK)
        st = say(b, "rvs-fit --zero-points, h5table", "%zu zero points", z.n);
    spx_zeropoints_free(&z);
    return st;
}

static spx_status read_flat(const block *b)
{
    spx_flat f = {0};
    spx_status st = spx_flat_read(b->in->file, &f, b->e);
    if (st == SPX_OK)
        st = say(b, "specx-sky --flat, specx-flat --apply", "flat of %zu fibres", f.nspec);
    spx_flat_free(&f);
    return st;
}

static spx_status read_flux(const block *b)
{
    spx_flux f = {0};
    spx_status st = spx_flux_read(b->in->file, &f, b->e);
    if (st == SPX_OK)
        st = say(b, "specx-flux --apply", "response in %zu bins", f.nwave);
    spx_flux_free(&f);
    return st;
}

/* Bytes of a weight, which has to have the type of the traces; they may be in another file. */
static int weight_bytes(spx_input *in)
{
    spx_dataset d = {0};
    spx_err none = {0};
    const char *path = spx_h5_exists(in->file, "/traces/data") ? "/traces/data" : "/shifts/weight";
    return spx_h5_exists(in->file, path) && spx_dataset_open(in, path, &d, &none) == SPX_OK && d.bytes == 4 ? 4 : 8;
}

static spx_status read_traces(const block *b)
{
    spx_traces t = {0};
    spx_status st = spx_traces_read(b->in, &t, b->e);
    if (st == SPX_OK)
        st = say(b,
                 spx_h5_exists(b->in->file, "/shifts") ? "h5stack"
                 : t.position != NULL && t.sampling_rate > 0
                     ? "h5stack (with --slowness, --velocity, or a file that holds "
                       "/shifts)"
                     : "h5stack (with a file that holds /shifts)",
                 "%zu traces", t.ntrace);
    spx_traces_free(&t);
    return st;
}

static spx_status read_shifts(const block *b)
{
    spx_shifts s = {0};
    spx_status st = spx_shifts_read(b->in, weight_bytes(b->in), &s, b->e);
    if (st == SPX_OK)
        st = say(b,
                 spx_h5_exists(b->in->file, "/traces") ? "h5stack" : "h5stack (with a file that holds /traces or /ccf)",
                 "%zu sets of shifts", s.nshift);
    spx_shifts_free(&s);
    return st;
}

static spx_status read_ccf(const block *b)
{
    spx_traces t = {0};
    spx_ccf_stars c = {0};
    spx_status st = spx_ccf_read(b->in, &t, &c, b->e);
    if (st == SPX_OK)
        st = say(b, "h5stack", "correlation functions of %zu stars", c.nstar);
    spx_ccf_stars_free(&c);
    spx_traces_free(&t);
    return st;
}

static spx_status read_transmission(const block *b)
{
    spx_transmission t = {0};
    spx_status st = spx_transmission_read(b->in->file, &t, b->e);
    if (st == SPX_OK)
        st = say(b, "rvs-fit --tellurics", "%zu species, %.1f to %.1f Angstrom", t.nspecies, t.wavelength[0],
                 t.wavelength[t.nwave - 1]);
    spx_transmission_free(&t);
    return st;
}

static const struct {
    const char *path;
    spx_status (*read)(const block *b);
} readers[] = {{"/raw", read_raw},
               {"/master", read_master},
               {"/image", read_image},
               {"/psf", read_psf},
               {"/frame", read_frame},
               {"/spectra", read_spectra},
               {"/flat", read_flat},
               {"/flux", read_flux},
               {"/rvfit", read_rvfit},
               {"/library", read_library},
               {"/network", read_network},
               {"/templates", read_templates},
               {"/traces", read_traces},
               {"/shifts", read_shifts},
               {"/ccf", read_ccf},
               {"/zeropoint", read_zeropoint},
               {"/transmission", read_transmission}};

spx_status spx_check_input(spx_input *in, FILE *out, size_t *nbad, spx_err *e)
{
    size_t n = 0;
    *nbad = 0;
    for (size_t i = 0; i < sizeof readers / sizeof *readers; i++) {
        spx_err err = {0};
        const block b = {in, out, readers[i].path, &err};
        if (!spx_h5_exists(in->file, b.path))
            continue;
        n++;
        const spx_status st = readers[i].read(&b);
        if (st == SPX_OK)
            continue;
        if (st != SPX_EINPUT)
            return spx_err_pass(e, &err);
        (*nbad)++;
        if (err.file[0] == '\0')
            (void)spx_err_at(&err, in->name, b.path);
        fprintf(out, "%s\n", spx_err_text(&err));
    }
    if (n == 0) {
        (*nbad)++;
        fprintf(out,
                "%s: holds no block that another step takes: h5table, h5reduce and h5svd take tables and arrays of any "
                "file\n",
                in->name);
    }
    return SPX_OK;
}
