#include "common/fits_inputs.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "convert/psf_kinds.h"
#include "convert/raw.h"
#include "convert/spectrum/text_table.h"
#include "fits/checksum.h"

/* Does it hold spectra of another instrument? */
static spx_status find_spectra(const spx_fits_wanted *o, spx_fits_input *it, spx_err *e)
{
    spx_status st = spx_fits_spectra_find(&it->fits, &o->spectrum, &it->spectra, e);
    if (st == SPX_OK && it->spectra.n > 0) {
        it->product = SPX_FITS_AS_SPECTRUM;
        it->note[0] = '\0';
    } else if (st == SPX_OK && !it->note[0]) {
        snprintf(it->note, sizeof it->note, "%s", it->spectra.note);
    }
    return st;
}

spx_status spx_fits_input_sums(const spx_fits_wanted *o, spx_fits_input *it, spx_err *e)
{
    spx_err why = {0};
    if (!o->sums || it->sums != NULL || spx_fits_check_sums(&it->fits, &why) == SPX_OK)
        return SPX_OK;
    if (o->strict)
        return spx_err_pass(e, &why);
    it->sums = spx_strdup(spx_err_text(&why), e);
    return it->sums != NULL ? SPX_OK : SPX_EIO;
}

static spx_status open_fits(const spx_fits_wanted *o, spx_fits_input *it, spx_err *e)
{
    const spx_status st = spx_fits_open(&it->fits, it->path, e);
    if (st == SPX_OK && o->leave_out != NULL)
        spx_fits_leave_out(&it->fits, o->leave_out);
    return st;
}

/* What is no FITS file may be a text with a spectrum. */
static spx_status open_input(const spx_fits_wanted *o, spx_fits_input *it, spx_err *e)
{
    spx_err why = {0};
    if (open_fits(o, it, &why) == SPX_OK)
        return o->strict ? spx_fits_input_sums(o, it, e) : SPX_OK;
    if (why.code == SPX_EINPUT && strcmp(it->path, "-") != 0 && !o->generic) {
        spx_status st = spx_text_spectrum_find(it->path, &it->spectra, e);
        if (st != SPX_OK)
            return st;
        if (it->spectra.n > 0) {
            it->product = SPX_FITS_AS_SPECTRUM;
            if (o->spectrum.medium >= 0)
                it->spectra.s[0].medium = o->spectrum.medium;
            return SPX_OK;
        }
    }
    return spx_err_pass(e, &why);
}

spx_status spx_fits_input_recognise(const spx_fits_wanted *o, spx_fits_input *it, spx_err *e)
{
    spx_status st = open_input(o, it, e);
    if (st != SPX_OK || o->generic || it->product == SPX_FITS_AS_SPECTRUM)
        return st;
    int described = o->layout.flux || o->layout.params || o->layout.wavelength;
    it->product = spx_fits_recognise(&it->fits, it->note, sizeof it->note);
    if (it->product == SPX_FITS_AS_GENERIC && !it->note[0]) {
        if (described || spx_fits_is_library(&it->fits, &o->layout, NULL))
            it->product = SPX_FITS_AS_LIBRARY;
        else if (spx_fits_is_model(&it->fits, &o->layout, &it->nwave))
            it->product = SPX_FITS_AS_MODEL;
        else if (spx_fits_is_wavelengths(&it->fits, &it->nwave))
            it->product = SPX_FITS_AS_WAVELENGTH;
        else
            st = find_spectra(o, it, e);
    }
    if (st == SPX_OK && it->product == SPX_FITS_AS_GENERIC && spx_fits_is_raw(&it->fits, o->as == SPX_FITS_AS_RAW)) {
        it->product = SPX_FITS_AS_RAW;
        it->note[0] = '\0';
    }
    if (st == SPX_OK && it->product == SPX_FITS_AS_MODEL && strcmp(it->path, "-") != 0) {
        st = spx_fits_input_sums(o, it, e);
        spx_fits_close(&it->fits);
    }
    return st;
}

/* Is there a model spectrum of as many samples? The first one may be one that does not belong to the library. */
static int fits_a_model(const spx_fits_input *it, size_t n, size_t nwave)
{
    for (size_t i = 0; i < n; i++)
        if (it[i].product == SPX_FITS_AS_MODEL && it[i].nwave == nwave)
            return 1;
    return 0;
}

/* Finds for each file with a part of the trace sets of a PSF one that has the rest. */
static void pair_trace_sets(spx_fits_input *it, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const unsigned mine = it[i].product == SPX_FITS_AS_PSF ? spx_fits_trace_sets(&it[i].fits) : 0;
        for (size_t k = i + 1; k < n && mine != 0 && mine != SPX_TSET_ALL && it[i].other == NULL; k++) {
            const unsigned its = it[k].product == SPX_FITS_AS_PSF ? spx_fits_trace_sets(&it[k].fits) : 0;
            if (its == SPX_TSET_ALL || (mine | its) != SPX_TSET_ALL)
                continue;
            it[i].other = &it[k].fits;
            it[k].product = SPX_FITS_AS_GENERIC;
        }
    }
}

/* Gives spots of PFS the detectorMap of another file, which is no PSF of its own then. */
static void pair_detector_map(spx_fits_input *it, size_t n)
{
    size_t map = n, spots = n;
    for (size_t i = 0; i < n; i++) {
        if (it[i].product == SPX_FITS_AS_PSF && spx_fits_neven(&it[i].fits) != 0)
            spots = i;
        else if (it[i].product == SPX_FITS_AS_PSF && spx_fits_detector_map(&it[i].fits) > 0)
            map = i;
    }
    if (map == n || spots == n)
        return;
    it[spots].other = &it[map].fits;
    it[map].product = SPX_FITS_AS_GENERIC;
}

/* Gives traces of APOGEE the wavelengths of another file, which is nothing of its own then. */
static void pair_waves(spx_fits_input *it, size_t n)
{
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < n && it[i].product == SPX_FITS_AS_PSF && spx_fits_apogee_psf(&it[i].fits); k++)
            if (k != i && it[i].other == NULL && it[k].product != SPX_FITS_AS_PSF &&
                spx_fits_apogee_waves(&it[k].fits, &it[i].fits)) {
                it[i].other = &it[k].fits;
                it[k].product = SPX_FITS_AS_GENERIC;
            }
}

spx_status spx_fits_inputs_settle(const spx_fits_wanted *o, spx_fits_input *it, size_t n, const spx_fits_input **wave,
                                  size_t *nmodel, spx_err *e)
{
    const spx_fits_input *first = NULL;
    pair_trace_sets(it, n);
    pair_detector_map(it, n);
    pair_waves(it, n);
    *wave = NULL;
    *nmodel = 0;
    for (size_t i = 0; i < n; i++)
        if (it[i].product == SPX_FITS_AS_MODEL) {
            first = first ? first : &it[i];
            ++*nmodel;
        }
    for (size_t i = 0; i < n; i++) {
        if (it[i].product != SPX_FITS_AS_WAVELENGTH)
            continue;
        if (!fits_a_model(it, n, it[i].nwave)) {
            it[i].product = SPX_FITS_AS_GENERIC;
        } else if (*wave) {
            return spx_fail(e, SPX_EUSAGE, "%s and %s may both hold the wavelengths of the library: give one",
                            (*wave)->path, it[i].path);
        } else {
            *wave = &it[i];
        }
    }
    if (*nmodel > 0 && *wave)
        return SPX_OK;
    if (*nmodel > 1 || (*nmodel == 1 && o->as == SPX_FITS_AS_LIBRARY))
        return spx_fail(
            e, SPX_EINPUT,
            "%s: is a model spectrum of %zu samples, but no file of as many wavelengths is among the inputs: "
            "give that too (or --generic)",
            first->path, first->nwave);
    *nmodel = 0;
    for (size_t i = 0; i < n; i++)
        if (it[i].product == SPX_FITS_AS_MODEL) {
            it[i].product = SPX_FITS_AS_GENERIC;
            snprintf(it[i].note, sizeof it[i].note,
                     "is one model spectrum; a library needs the file of its wavelengths too");
            spx_status st = it[i].fits.nhdu == 0 ? open_fits(o, &it[i], e) : SPX_OK;
            if (st != SPX_OK || (st = find_spectra(o, &it[i], e)) != SPX_OK)
                return st;
        }
    return SPX_OK;
}

spx_status spx_fits_inputs_check_conflicts(const spx_fits_input *it, size_t n, const spx_fits_input *wave, spx_err *e)
{
    const spx_fits_input *have[4] = {NULL};
    static const char *const what[] = {"an image or spectra", "a PSF", "a library"};
    for (size_t i = 0; i < n; i++) {
        int slot = it[i].product == SPX_FITS_AS_PSF                                               ? 1
                   : it[i].product == SPX_FITS_AS_LIBRARY || &it[i] == wave                       ? 2
                   : it[i].product == SPX_FITS_AS_GENERIC || it[i].product >= SPX_FITS_AS_LIBRARY ? 3
                                                                                                  : 0;
        if (slot < 3 && have[slot] &&
            !(have[slot]->product == SPX_FITS_AS_SPECTRUM && it[i].product == SPX_FITS_AS_SPECTRUM))
            return spx_fail(e, SPX_EUSAGE, "%s and %s both hold %s, one file has room for one: convert them one by one",
                            have[slot]->path, it[i].path, what[slot]);
        have[slot] = &it[i];
    }
    return SPX_OK;
}

/* Product whose name is that of the block. */
static spx_fits_product block_of(spx_fits_product p)
{
    return p == SPX_FITS_AS_SPECTRUM ? SPX_FITS_AS_SPECTRA : p;
}

spx_status spx_fits_inputs_check_as(const spx_fits_wanted *o, const spx_fits_input *it, size_t n, spx_err *e)
{
    if (o->as == SPX_FITS_PRODUCTS)
        return SPX_OK;
    for (size_t i = 0; i < n; i++) {
        spx_fits_product p = it[i].product >= SPX_FITS_AS_MODEL ? SPX_FITS_AS_LIBRARY : block_of(it[i].product);
        if (p != o->as)
            return spx_fail(e, SPX_EINPUT, "%s: cannot be read as %s: %s: see fits2h5 --list and fits2h5(1)",
                            it[i].path, spx_fits_product_names[o->as],
                            it[i].note[0] ? it[i].note : spx_fits_product_names[it[i].product]);
    }
    return SPX_OK;
}

spx_status spx_fits_input_views(const spx_fits_wanted *o, spx_fits_input *it, spx_fits_path **view, spx_err *e)
{
    *view = spx_alloc(it->fits.nhdu, sizeof **view, e);
    if (!*view)
        return SPX_EIO;
    if (it->product == SPX_FITS_AS_SPECTRUM)
        spx_fits_spectra_plan(&it->fits, &it->spectra, *view);
    else
        spx_fits_plan(&it->fits, it->product, *view);
    if (it->product == SPX_FITS_AS_LIBRARY)
        spx_fits_is_library(&it->fits, &o->layout, *view);
    return SPX_OK;
}

const char *spx_fits_inputs_product(const spx_fits_input *it, size_t n, size_t nmodel)
{
    spx_fits_product best = SPX_FITS_AS_GENERIC;
    for (size_t i = 0; i < n; i++)
        if (it[i].product != SPX_FITS_AS_GENERIC && it[i].product < SPX_FITS_AS_MODEL &&
            (best == SPX_FITS_AS_GENERIC || best == SPX_FITS_AS_PSF))
            best = it[i].product;
    if (best == SPX_FITS_AS_GENERIC)
        return nmodel ? "library" : "fits";
    return spx_fits_product_names[block_of(best)];
}

void spx_fits_input_close(spx_fits_input *it)
{
    spx_fits_spectra_free(&it->spectra);
    spx_fits_close(&it->fits);
    spx_free(it->sums);
    it->sums = NULL;
}
