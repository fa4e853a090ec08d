/* h52fits: FITS files of HDF5 products: those that fits2h5 took, exactly, or new ones of blocks. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "app/main.h"
#include "convert/hdf5.h"
#include "convert/products.h"
#include "h5/attr.h"
#include "h5/file.h"
#include "h5/object.h"

/* Of several products that blocks can become, the first is made. */
typedef enum {
    RVTAB,
    RVMOD,
    SPECTRA,
    FRAME,
    PREPROC,
    PSF,
    FIBERFLAT,
    SKY,
    CFRAME,
    SFRAME,
    COADD,
    NPRODUCT,
    GENERIC,
    AUTO
} file_kind;

static const spx_opt_choice kinds[] = {{"auto", AUTO},
                                       {"generic", GENERIC},
                                       {"frame", FRAME},
                                       {"sframe", SFRAME},
                                       {"cframe", CFRAME},
                                       {"spectra", SPECTRA},
                                       {"coadd", COADD},
                                       {"sky", SKY},
                                       {"fiberflat", FIBERFLAT},
                                       {"rvtab", RVTAB},
                                       {"rvmod", RVMOD},
                                       {"preproc", PREPROC},
                                       {"psf", PSF},
                                       {0}};

static struct {
    file_kind as;
    const char *file;
    int list;
} o = {.as = AUTO};

static const spx_opt options[] = {
    SPX_OPTION(
        CHOICE, "as", 0, "KIND", o.as,
        "Kind of file to write: generic, what was kept of a FITS file; frame, sframe, cframe; spectra, coadd; sky; "
        "fiberflat; rvtab, rvmod; preproc; psf; or auto, the FITS file that was kept, else the product",
        .choices = kinds),
    SPX_OPTION(STRING, "file", 0, "N|NAME", o.file,
               "Of several kept FITS files, the one to write: its place in --list, from 0, or its name"),
    SPX_OPTION(FLAG, "list", 'l', NULL, o.list, "List the FITS files that can be written, and write nothing"),
    {0}};

/* FITS products of blocks. `kept`: product of a FITS file (fits2h5) that is the very thing. `can`: NULL, or whether the
 * block is in the right state for it. */
static const struct {
    const char *block, *kept[2];
    spx_status (*put)(hid_t in, spx_fits_out *out, spx_err *e);
    int (*can)(hid_t in);
} products[NPRODUCT] = {[RVTAB] = {"/rvfit", {NULL}, spx_fits_put_rvtab, NULL},
                        [RVMOD] = {"/rvfit", {NULL}, spx_fits_put_rvmod, NULL},
                        [SPECTRA] = {"/spectra", {"spectra", "sdss"}, spx_fits_put_spectra, NULL},
                        [COADD] = {"/spectra", {NULL}, spx_fits_put_coadd, NULL},
                        [FRAME] = {"/frame", {"frame", NULL}, spx_fits_put_frame, NULL},
                        [CFRAME] = {"/frame", {NULL}, spx_fits_put_cframe, spx_fits_is_cframe},
                        [SFRAME] = {"/frame", {NULL}, spx_fits_put_sframe, spx_fits_is_sframe},
                        [SKY] = {"/sky", {NULL}, spx_fits_put_sky, NULL},
                        [FIBERFLAT] = {"/flat", {NULL}, spx_fits_put_fiberflat, NULL},
                        [PREPROC] = {"/image", {"image", NULL}, spx_fits_put_image, NULL},
                        [PSF] = {"/psf", {"psf", NULL}, spx_fits_put_psf, NULL}};

/* FITS files that the HDF5 file keeps. */
typedef struct {
    size_t n;
    char **name;
} kept_files;

static void attribute(hid_t in, const char *name, const char *key, char *out, size_t size)
{
    char path[300];
    spx_err e = {0};
    out[0] = 0;
    snprintf(path, sizeof path, "/fits/%.250s", name);
    if (spx_h5_has_attr(in, path, key))
        (void)spx_h5_attr_str(in, path, key, out, size, &e);
}

static void print_list(const spx_input *in, const kept_files *k)
{
    for (size_t i = 0; i < k->n; i++) {
        char file[300], product[32];
        attribute(in->file, k->name[i], "filename", file, sizeof file);
        attribute(in->file, k->name[i], "product", product, sizeof product);
        printf("--file %zu  %s  %s  %s\n", i, k->name[i], file, product);
    }
    for (size_t i = 0; i < NPRODUCT; i++)
        if (spx_h5_exists(in->file, products[i].block) && (products[i].can == NULL || products[i].can(in->file)))
            printf("--as %s  made of %s\n", spx_opt_word(kinds, (int)i), products[i].block);
}

/* --file: number or name. */
static spx_status named(const spx_input *in, const kept_files *k, long *which, spx_err *e)
{
    char *end;
    for (size_t i = 0; i < k->n; i++) {
        char file[300];
        attribute(in->file, k->name[i], "filename", file, sizeof file);
        if (strcmp(o.file, k->name[i]) == 0 || strcmp(o.file, file) == 0) {
            *which = (long)i;
            return SPX_OK;
        }
    }
    *which = strtol(o.file, &end, 10);
    if (end == o.file || *end || *which < 0 || (size_t)*which >= k->n)
        return spx_fail(e, SPX_EUSAGE, "--file %s: %s keeps %zu FITS files, none is called so: see --list", o.file,
                        in->name, k->n);
    return SPX_OK;
}

/* --as generic, or one kept file that is the product asked for; -1: none. */
static spx_status matching(const spx_input *in, const kept_files *k, long *which, spx_err *e)
{
    int generic = o.as == GENERIC || o.as == AUTO;
    *which = -1;
    for (size_t i = 0; i < k->n; i++) {
        char product[32];
        int match = generic;
        attribute(in->file, k->name[i], "product", product, sizeof product);
        for (size_t m = 0; m < 2 && !generic; m++)
            match |= products[o.as].kept[m] && strcmp(product, products[o.as].kept[m]) == 0;
        if (match && *which >= 0)
            return spx_fail(e, SPX_EUSAGE, "%s: keeps %zu FITS files: choose one with --file (see --list)", in->name,
                            k->n);
        if (match)
            *which = (long)i;
    }
    return SPX_OK;
}

/* The product to make of blocks. */
static spx_status choose(const spx_input *in, size_t *which, spx_err *e)
{
    for (size_t i = 0; i < NPRODUCT; i++)
        if (o.as == AUTO ? spx_h5_exists(in->file, products[i].block) : i == o.as) {
            *which = i;
            return SPX_OK;
        }
    return o.as == AUTO ? spx_fail(e, SPX_EINPUT, "%s: holds no FITS files and no block that can become one", in->name)
                        : spx_fail(e, SPX_EINPUT, "%s: keeps no FITS files: leave --as generic out", in->name);
}

static spx_status write_fits(spx_run *s, const spx_input *in, const kept_files *k, spx_err *e)
{
    long which = -1;
    size_t product = 0;
    spx_tmpfile *t;
    spx_status st = o.file ? named(in, k, &which, e) : matching(in, k, &which, e);
    if (st == SPX_OK && which < 0)
        st = choose(in, &product, e);
    if (st != SPX_OK || (st = spx_run_tmpfile(s, NULL, &t, e)) != SPX_OK)
        return st;
    spx_fits_out out = {.fd = t->fd, .name = s->common.output};
    if (which >= 0) {
        char group[300];
        snprintf(group, sizeof group, "/fits/%.250s", k->name[which]);
        st = spx_fits_restore(in->file, group, &out, e);
    } else {
        st = products[product].put(in->file, &out, e);
    }
    return st == SPX_OK ? spx_run_commit(s, e) : st;
}

static spx_status run(spx_run *s, spx_err *e)
{
    spx_input *in;
    kept_files k = {0};
    spx_status st;
    if (s->ninput != 1)
        return spx_fail(e, SPX_EUSAGE, "one input file, not %zu: one call writes one FITS file", s->ninput);
    if (o.file && o.as != AUTO)
        return spx_fail(e, SPX_EUSAGE, "--file and --as contradict each other");
    if (o.list)
        spx_text_output();
    else if ((st = spx_run_need_output(s, e)) != SPX_OK)
        return st;
    if ((st = spx_run_input(s, 0, &in, e)) != SPX_OK)
        return st;
    if (spx_h5_exists(in->file, "/fits"))
        st = spx_h5_list(in->file, "/fits", &k.n, &k.name, e);
    if (st == SPX_OK && o.list)
        print_list(in, &k);
    else if (st == SPX_OK)
        st = write_fits(s, in, &k, e);
    spx_h5_names_free(k.n, k.name);
    return st;
}

int main(int argc, char **argv)
{
    static const spx_program program = {.name = "h52fits",
                                        .summary = "FITS files from HDF5 products",
                                        .usage = "[OPTION...] [FILE]",
                                        .example = "h52fits -o rv.fits rv.h5",
                                        .options = options,
                                        .flags = SPX_OUT_OTHER | SPX_OUT_LATE,
                                        .run = run};
    return spx_main(&program, argc, argv);
}
