/* fits2h5: FITS files to HDF5: blocks where the content is known, and every HDU without loss. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "app/filelist.h"
#include "app/main.h"
#include "common/fits_inputs.h"
#include "convert/note_list.h"
#include "convert/psf_fits.h"

static struct {
    int list, exposures, air, vacuum;
    spx_failures failed;
    const char *params, *orders;
    spx_fits_wanted wanted;
} o = {.wanted.as = SPX_FITS_PRODUCTS};

static const spx_opt options[] = {
    SPX_OPTION(FLAG, "list", 'l', NULL, o.list, "List what would be made of each HDU, and write nothing"),
    SPX_OPTION(FLAG, "generic", 'g', NULL, o.wanted.generic, "Make no blocks: keep the HDUs only"),
    SPX_OPTION(STRING, "leave-out", 0, "NAME,...", o.wanted.leave_out,
               "Leave out HDUs of these names, where there are such, as if the files did not have them"),
    SPX_OPTION(FLAG, "keep-going", 'k', NULL, o.failed.go_on,
               "Leave out files that cannot be read, and convert the others. The exit status tells of them"),
    SPX_OPTION(FLAG, "strict", 0, NULL, o.wanted.strict,
               "Refuse files whose bytes disagree with their CHECKSUM or DATASUM, instead of warning"),
    SPX_OPTION(CHOICE, "as", 0, NULL, o.wanted.as,
               "Refuse input of any other kind than this; raw: also an image without keywords of amplifiers",
               .choices =
                   SPX_CHOICES({"auto", SPX_FITS_PRODUCTS}, {"image", SPX_FITS_AS_IMAGE}, {"psf", SPX_FITS_AS_PSF},
                               {"frame", SPX_FITS_AS_FRAME}, {"spectra", SPX_FITS_AS_SPECTRA},
                               {"library", SPX_FITS_AS_LIBRARY}, {"raw", SPX_FITS_AS_RAW})),
    SPX_OPTION(FLAG, "exposures", 0, NULL, o.exposures,
               "Take the single exposures of SDSS, LAMOST and APOGEE spectra, not their sum"),
    SPX_OPTION(STRING, "orders", 0, "FIRST:LAST", o.orders,
               "Take these orders of an echelle spectrum only, counted from 0, without LAST", .absent = "all"),
    SPX_OPTION(FLAG, "air", 0, NULL, o.air, "Treat wavelengths as air, even if the file says vacuum"),
    SPX_OPTION(FLAG, "vacuum", 0, NULL, o.vacuum, "Treat wavelengths as vacuum, even if the file says air"),
    SPX_HEADING("Libraries of model spectra"),
    SPX_OPTION(STRING, "library-flux", 0, "HDU", o.wanted.layout.flux,
               "HDU with the fluxes of a library in one file, by name or number"),
    SPX_OPTION(STRING, "library-params", 0, "HDU", o.wanted.layout.params,
               "HDU with a table of the parameters, a row a spectrum"),
    SPX_OPTION(STRING, "library-wavelength", 0, "HDU|log10:START:STEP|linear:START:STEP", o.wanted.layout.wavelength,
               "HDU with the wavelengths, or a formula for them, Angstrom"),
    SPX_OPTION(STRING, "param-keywords", 0, "NAME=KEYWORD,...", o.params,
               "Keywords or columns of the parameters, such as teff=PHXTEFF",
               .absent = "the usual names of teff, logg, "
                         "feh and alpha"),
    {0}};

/* --exposures and --orders choose among spectra: is there one? */
static spx_status check_choice(const spx_fits_input *it, size_t n, spx_err *e)
{
    for (size_t i = 0; i < n; i++)
        if (it[i].product == SPX_FITS_AS_SPECTRUM)
            return SPX_OK;
    return o.exposures || o.orders ? spx_fail(e, SPX_EUSAGE, "%s: the input holds no spectrum to choose from",
                                              o.exposures ? "--exposures" : "--orders")
                                   : SPX_OK;
}

static void print_hdu(const spx_fits_hdu *h, size_t i, const char *view)
{
    static const char *const kind[] = {"image", "compressed image", "table", "text table", "bytes"};
    printf("  %3zu  %-16s %s", i, h->extname[0] ? h->extname : "-", kind[h->kind]);
    if (h->kind == SPX_FITS_IMAGE || h->kind == SPX_FITS_TILED) {
        for (int k = 0; k < h->ndim; k++)
            printf("%s%zu", k ? " x " : " ", h->dims[k]);
        printf(h->ndim ? " (BITPIX %d)" : " without data", h->bitpix);
    } else if (h->kind != SPX_FITS_OTHER) {
        printf(" %zu rows", h->nrow);
    }
    printf("%s%s\n", view && view[0] ? " -> " : "", view ? view : "");
}

static spx_status print_list(spx_fits_input *it, size_t n, const spx_fits_input *wave, spx_err *e)
{
    spx_status st = SPX_OK;
    for (size_t i = 0; st == SPX_OK && i < n; i++) {
        spx_fits_path *view = NULL;
        const char *what = it[i].product == SPX_FITS_AS_SPECTRUM ? it[i].spectra.format : it[i].note;
        printf("%s: %s%s%s\n", it[i].path, spx_fits_product_names[it[i].product], what[0] ? "; " : "", what);
        if (it[i].product == SPX_FITS_AS_MODEL) {
            printf("  row of /library/flux\n");
            continue;
        }
        if ((st = spx_fits_input_views(&o.wanted, &it[i], &view, e)) == SPX_OK)
            for (size_t k = 0; k < it[i].fits.nhdu; k++)
                print_hdu(&it[i].fits.hdu[k], k, &it[i] == wave ? "/library/wavelength" : view[k]);
        spx_free(view);
    }
    return st;
}

static spx_status write_models(spx_run *s, spx_fits_input *it, size_t n, const spx_fits_input *wave, size_t nmodel,
                               hid_t file, spx_note_list *notes, spx_err *e)
{
    const char **path = spx_alloc(nmodel, sizeof *path, e);
    size_t k = 0;
    spx_status st = path ? SPX_OK : SPX_EIO;
    for (size_t i = 0; st == SPX_OK && i < n; i++) {
        if (it[i].product != SPX_FITS_AS_MODEL && &it[i] != wave)
            continue;
        if (strcmp(it[i].path, "-") == 0)
            st = spx_fail(e, SPX_EUSAGE, "-: a model spectrum cannot come from standard input: give a file");
        if (it[i].product == SPX_FITS_AS_MODEL)
            path[k++] = it[i].path;
    }
    spx_progress *progress = spx_progress_start(s->common.progress, "library", "spectra", nmodel);
    if (st == SPX_OK)
        st = spx_fits_library_files(nmodel, path, wave->path, &o.wanted.layout, file, progress, &o.failed, notes, e);
    spx_progress_end(progress);
    spx_free(path);
    return st;
}

/* Spectra of all files that hold some. */
static spx_status write_spectra(spx_fits_input *it, size_t n, hid_t file, spx_note_list *notes, spx_err *e)
{
    size_t m = 0;
    spx_spectrum_file *from = spx_alloc(n, sizeof *from, e);
    for (size_t i = 0; from && i < n; i++)
        if (it[i].product == SPX_FITS_AS_SPECTRUM)
            from[m++] = (spx_spectrum_file){&it[i].fits, it[i].path, &it[i].spectra, 0};
    spx_status st = !from ? SPX_EIO : m > 0 ? spx_fits_spectra_write(m, from, file, &o.failed, notes, e) : SPX_OK;
    for (size_t i = 0, k = 0; i < n && k < m; i++)
        if (it[i].product == SPX_FITS_AS_SPECTRUM && from[k++].left_out) {
            if (st == SPX_OK && !o.wanted.strict)
                st = spx_fits_input_sums(&o.wanted, &it[i], e);
            spx_fits_close(&it[i].fits); /* its HDUs are not kept either */
        }
    spx_free(from);
    return st;
}

static spx_status write_all(spx_run *s, spx_fits_input *it, size_t n, const spx_fits_input *wave, size_t nmodel,
                            hid_t file, spx_note_list *notes, spx_err *e)
{
    spx_status st = SPX_OK;
    if (nmodel > 0)
        st = write_models(s, it, n, wave, nmodel, file, notes, e);
    if (st == SPX_OK)
        st = write_spectra(it, n, file, notes, e);
    for (size_t i = 0; st == SPX_OK && i < n; i++) {
        spx_fits_path *view = NULL;
        if (it[i].product >= SPX_FITS_AS_MODEL || it[i].fits.nhdu == 0)
            continue;
        if (it[i].product == SPX_FITS_AS_LIBRARY)
            st = spx_fits_library_single(&it[i].fits, &o.wanted.layout, file, notes, e);
        else if (it[i].other != NULL)
            st = spx_fits_psf_block(&it[i].fits, it[i].other, file, notes, e);
        else
            st = spx_fits_blocks(&it[i].fits, it[i].product, file, notes, e);
        if (st == SPX_OK)
            st = spx_fits_input_views(&o.wanted, &it[i], &view, e);
        if (st == SPX_OK)
            st = spx_fits_store(file, &it[i].fits, spx_fits_product_names[it[i].product], view, e);
        spx_free(view);
    }
    return st;
}

/* Warns of files that disagree with their sums, once images were copied, and summed with it. */
static spx_status warn_of_sums(spx_fits_input *it, size_t n, spx_err *e)
{
    spx_status st = SPX_OK;
    for (size_t i = 0; st == SPX_OK && i < n && !o.wanted.strict; i++) {
        st = spx_fits_input_sums(&o.wanted, &it[i], e);
        if (it[i].sums != NULL)
            spx_warn("%s", it[i].sums);
    }
    return st;
}

/* Opens all inputs, and drops from it[*n] those that are left out. */
static spx_status recognise_all(spx_fits_input *it, size_t *n, spx_err *e)
{
    const size_t all = *n;
    spx_status st = SPX_OK;
    *n = 0;
    for (size_t i = 0; i < all; i++) {
        int left_out = 0;
        if (st == SPX_OK)
            st = spx_failures_note(&o.failed, spx_fits_input_recognise(&o.wanted, &it[i], e), &left_out, e);
        if (left_out)
            spx_fits_input_close(&it[i]);
        else
            it[(*n)++] = it[i];
    }
    return st == SPX_OK && *n == 0 ? spx_fail(e, SPX_EINPUT, "no file could be read: see above") : st;
}

static spx_status convert(spx_run *s, spx_fits_input *it, size_t *nitem, spx_err *e)
{
    const spx_fits_input *wave = NULL;
    size_t nmodel = 0;
    hid_t file;
    spx_note_list notes = {0};
    spx_status st;
    spx_run_step(s, "read");
    st = recognise_all(it, nitem, e);
    const size_t n = *nitem;
    if (st != SPX_OK || (st = spx_fits_inputs_settle(&o.wanted, it, n, &wave, &nmodel, e)) != SPX_OK ||
        (st = spx_fits_inputs_check_as(&o.wanted, it, n, e)) != SPX_OK || (st = check_choice(it, n, e)) != SPX_OK)
        return st;
    if (o.list)
        return print_list(it, n, wave, e);
    if ((st = spx_fits_inputs_check_conflicts(it, n, wave, e)) != SPX_OK)
        return st;
    for (size_t i = 0; i < n; i++) {
        if (it[i].note[0])
            spx_warn("%s: %s: kept as FITS HDUs only", it[i].path, it[i].note);
        if (it[i].fits.trailing < it[i].fits.size)
            spx_warn("%s: %zu bytes behind the last HDU are none: kept, but not used", it[i].path,
                     it[i].fits.size - it[i].fits.trailing);
    }
    spx_run_step(s, "write");
    for (size_t i = 0; st == SPX_OK && i < n; i++) /* h52fits names them in a frame's header */
        if (it[i].product == SPX_FITS_AS_IMAGE || it[i].product == SPX_FITS_AS_PSF || it[i].product == SPX_FITS_AS_RAW)
            st = spx_run_record(s, spx_fits_product_names[it[i].product], e, "%s", it[i].path);
    if (st == SPX_OK && (st = spx_run_output(s, spx_fits_inputs_product(it, n, nmodel), &file, e)) == SPX_OK)
        st = write_all(s, it, n, wave, nmodel, file, &notes, e);
    spx_err more = {0}; /* damage explains why a file cannot be read */
    if (warn_of_sums(it, n, &more) != SPX_OK && st == SPX_OK)
        st = spx_err_pass(e, &more);
    for (size_t i = 0; st == SPX_OK && i < notes.n; i++)
        spx_warn("%s", notes.note[i]);
    spx_note_list_free(&notes);
    if (st == SPX_OK && o.failed.n > 0)
        st = spx_run_record(s, "files_left_out", e, "%zu", o.failed.n);
    return st == SPX_OK ? spx_run_commit(s, e) : st;
}

static spx_status run(spx_run *s, spx_err *e)
{
    spx_filelist files = {0};
    spx_status st = SPX_OK;
    o.wanted.layout.medium = o.air ? SPX_AIR : o.vacuum ? SPX_VACUUM : -1;
    o.wanted.spectrum = (spx_fits_spectrum_options){o.exposures, o.wanted.layout.medium, o.orders};
    if (o.air && o.vacuum)
        return spx_fail(e, SPX_EUSAGE, "--air and --vacuum contradict each other");
    if (o.wanted.generic && o.wanted.as != SPX_FITS_PRODUCTS)
        return spx_fail(e, SPX_EUSAGE, "--generic and --as contradict each other");
    if (o.params && (st = spx_library_parse_params(o.params, &o.wanted.layout, e)) != SPX_OK)
        return spx_err_context(e, "--param-keywords");
    o.wanted.sums = !o.list;
    if (o.list)
        spx_text_output();
    else if ((st = spx_run_need_output(s, e)) != SPX_OK)
        return st;
    for (size_t i = 0; st == SPX_OK && i < s->ninput; i++) {
        const char *arg = s->input[i];
        int left_out;
        st = spx_run_foreign_input(s, arg[0] == '@' && arg[1] ? arg + 1 : arg, e);
        if (st == SPX_OK)
            st = spx_filelist_add(&files, arg, ".fits .fits.gz .fit .fit.gz .fts .fts.gz", e);
        st = spx_failures_note(&o.failed, st, &left_out, e);
    }
    spx_fits_input *it = st == SPX_OK ? spx_alloc(files.n, sizeof *it, e) : NULL;
    if (st == SPX_OK && !it)
        st = SPX_EIO;
    for (size_t i = 0; it && i < files.n; i++)
        it[i].path = files.name[i];
    size_t n = files.n;
    if (st == SPX_OK)
        st = convert(s, it, &n, e);
    if (st == SPX_OK && o.failed.n > 0) /* all else is done */
        st = spx_fail(e, SPX_EINPUT, "%zu of the inputs could not be read: see above", o.failed.n);
    for (size_t i = 0; it && i < n; i++)
        spx_fits_input_close(&it[i]);
    spx_free(it);
    spx_filelist_free(&files);
    return st;
}

int main(int argc, char **argv)
{
    static const spx_program program = {.name = "fits2h5",
                                        .summary = "FITS files to HDF5, without loss",
                                        .usage = "[OPTION...] [FILE|FOLDER|@LIST...]",
                                        .example = "fits2h5 -o r0.h5 preproc-r0.fits psf-r0.fits",
                                        .options = options,
                                        .flags = SPX_OUT_HDF5 | SPX_OUT_LATE,
                                        .run = run};
    return spx_main(&program, argc, argv);
}
