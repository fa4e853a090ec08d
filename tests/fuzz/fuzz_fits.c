/* Fuzz target: FITS files: structure, blocks, libraries, values, and conversion to HDF5 and back, which must restore
 * the input. */
#include <hdf5.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/text.h"
#include "convert/blocks.h"
#include "convert/hdf5.h"
#include "convert/library.h"
#include "convert/spectrum/spectrum.h"
#include "fits/scan.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static hid_t memory_file(void)
{
    hid_t fapl = H5Pcreate(H5P_FILE_ACCESS);
    H5Pset_fapl_core(fapl, 1 << 16, 0);
    hid_t h5 = H5Fcreate("memory", H5F_ACC_TRUNC, H5P_DEFAULT, fapl);
    H5Pclose(fapl);
    return h5;
}

/* Blocks of every kind that the content may be taken for; errors are welcome, crashes are not. */
static void blocks(spx_fits *f)
{
    static const spx_library_layout layout = {.medium = -1};
    char note[200];
    size_t nwave;
    spx_err e = {0};
    spx_note_list notes = {0};
    hid_t h5 = memory_file();
    spx_fits_product p = spx_fits_recognise(f, note, sizeof note);
    spx_fits_path *view = spx_alloc(f->nhdu, sizeof *view, &e);
    (void)spx_fits_is_model(f, &layout, &nwave);
    (void)spx_fits_is_wavelengths(f, &nwave);
    if (view != NULL && spx_fits_is_library(f, &layout, view))
        (void)spx_fits_library_single(f, &layout, h5, &notes, &e);
    else if (view != NULL && spx_fits_blocks(f, p, h5, &notes, &e) == SPX_OK) {
        spx_fits_plan(f, p, view);
        (void)spx_fits_store(h5, f, "", view, &e);
    }
    spx_free(view);
    spx_note_list_free(&notes);
    H5Fclose(h5);
}

/* Spectra of other instruments, sums and exposures. */
static void spectra(spx_fits *f)
{
    for (int exposures = 0; exposures < 2; exposures++) {
        const spx_fits_spectrum_options o = {.exposures = exposures, .medium = -1};
        spx_fits_spectra found;
        spx_err e = {0};
        spx_note_list notes = {0};
        if (spx_fits_spectra_find(f, &o, &found, &e) == SPX_OK && found.n > 0) {
            spx_spectrum_file file = {f, "fuzz", &found, 0};
            hid_t h5 = memory_file();
            spx_failures failed = {.go_on = 0};
            (void)spx_fits_spectra_write(1, &file, h5, &failed, &notes, &e);
            H5Fclose(h5);
        }
        spx_fits_spectra_free(&found);
        spx_note_list_free(&notes);
    }
}

static void round_trip(spx_fits *f, const uint8_t *data, size_t size)
{
    spx_err e = {0};
    hid_t h5 = memory_file();
    if (spx_fits_store(h5, f, "", NULL, &e) == SPX_OK) {
        spx_fits_out out = {.fd = memfd_create("back", 0), .name = "back"};
        uint8_t *back = malloc(size + 1);
        if (out.fd < 0 || back == NULL || spx_fits_restore(h5, "/fits/fuzz", &out, &e) != SPX_OK || out.at != size ||
            pread(out.fd, back, size + 1, 0) != (ssize_t)size || memcmp(back, data, size) != 0)
            abort();
        free(back);
        close(out.fd);
    }
    H5Fclose(h5);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    spx_fits f;
    spx_err e = {0};
    H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
    spx_mem_limit((size_t)64 << 20);
    if (spx_fits_parse(&f, "fuzz", data, size, &e) != SPX_OK)
        return 0;
    blocks(&f);
    spectra(&f);
    round_trip(&f, data, size);
    spx_fits_close(&f);
    return 0;
}
