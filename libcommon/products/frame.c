/* Provides the parts of a frame that come from its image (header, fibermap rows), and its scores (products/frame.h). */
#include "products/frame.h"

#include <stdio.h>

#include "base/mem.h"
#include "h5/table.h"

/* Matches rows to the fibres whose numbers the PSF gives, where these are all different, and all rows or all fibres
 * then have their counterpart; 0: they do not tell. */
static int match_numbers(const spx_psf *psf, size_t nrow, const int64_t *fiber, size_t *row, spx_err *e)
{
    size_t numbered = 0, matched = 0;
    for (size_t k = 0; k < psf->nspec; k++) {
        for (size_t i = 0; i < k; i++)
            if (psf->fibre[i] == psf->fibre[k])
                return 0;
        row[k] = SPX_NO_ROW;
    }
    for (size_t r = 0; r < nrow; r++)
        for (size_t k = 0; k < psf->nspec; k++)
            if (fiber[r] == (int64_t)psf->fibre[k]) {
                if (row[k] != SPX_NO_ROW)
                    (void)spx_fail(e, SPX_EINPUT, "fibermap: rows %zu and %zu both have FIBER %lld", row[k], r,
                                   (long long)fiber[r]);
                row[k] = r;
                matched++;
            }
    for (size_t r = 0; r < nrow; r++)
        numbered += fiber[r] >= 0;
    return matched > 0 && (matched == numbered || matched >= psf->nspec);
}

spx_status spx_frame_fibre_rows(const spx_image *im, const spx_psf *psf, size_t *row, spx_err *e)
{
    const spx_table *map = im->fibermap;
    const size_t nfibre = psf->nspec;
    if (psf->fibre != NULL && spx_table_find(map, "FIBER") >= 0) {
        int64_t *fiber = spx_alloc(map->nrow, sizeof *fiber, e);
        spx_err twice = {0};
        spx_status st = fiber == NULL ? SPX_EIO : spx_table_get_i64(map, "FIBER", fiber, e);
        const int found = st == SPX_OK && match_numbers(psf, map->nrow, fiber, row, &twice);
        spx_free(fiber);
        if (st == SPX_OK && found && twice.code != SPX_OK)
            return spx_err_pass(e, &twice);
        spx_err_clear(&twice);
        if (st != SPX_OK || found)
            return st;
    }
    for (size_t k = 0; k < nfibre; k++)
        row[k] = SPX_NO_ROW;
    const int numbered = spx_table_find(map, "FIBER") >= 0;
    if (!numbered && map->nrow > nfibre)
        return spx_fail(
            e, SPX_EINPUT,
            "fibermap: has %zu rows for %zu fibres of the PSF, and no column FIBER that says which are theirs",
            map->nrow, nfibre);
    if (map->nrow == nfibre || !numbered) {
        for (size_t k = 0; k < nfibre && k < map->nrow; k++)
            row[k] = k;
        return SPX_OK;
    }
    int64_t *fiber = spx_alloc(map->nrow, sizeof *fiber, e);
    if (fiber == NULL)
        return SPX_EIO;
    spx_status st = spx_table_get_i64(map, "FIBER", fiber, e);
    size_t first = SPX_NO_ROW; /* row of a fibre */
    for (size_t k = 0; k < map->nrow && st == SPX_OK; k++) {
        if (fiber[k] < 0)
            continue; /* FIBER is outside the PSF's fibres */
        size_t at = (size_t)fiber[k] % nfibre;
        first = first == SPX_NO_ROW ? k : first;
        if (row[at] != SPX_NO_ROW)
            st = spx_fail(e, SPX_EINPUT,
                          "fibermap: rows %zu and %zu both belong to fibre %zu of the PSF, which has %zu: give one "
                          "spectrograph's "
                          "rows, or a PSF of all of its fibres",
                          row[at], k, at, nfibre);
        else if ((size_t)fiber[k] / nfibre != (size_t)fiber[first] / nfibre) /* counted from 1, say */
            st = spx_fail(
                e, SPX_EINPUT,
                "fibermap: FIBER %lld and %lld are not of one spectrograph of %zu fibres, counted from 0: give "
                "one row for each fibre of the PSF, in their order",
                (long long)fiber[first], (long long)fiber[k], nfibre);
        row[at] = k;
    }
    spx_free(fiber);
    return st;
}

static spx_status inherit_fibermap(spx_frame *f, const spx_image *im, const spx_psf *psf, size_t first, size_t nspec,
                                   spx_err *e)
{
    size_t *row = spx_alloc(psf->nspec, sizeof *row, e);
    spx_status st = row != NULL ? spx_frame_fibre_rows(im, psf, row, e) : SPX_EIO;
    for (size_t k = first; k < first + nspec && st == SPX_OK; k++)
        if (row[k] == SPX_NO_ROW)
            st = spx_fail(e, SPX_EINPUT,
                          "fibermap: has no row for fibre %zu of the PSF: choose the fibres that it has with --spectra",
                          k);
    if (st == SPX_OK && (f->fibermap = spx_table_subset(im->fibermap, nspec, row + first, e)) == NULL)
        st = SPX_EIO;
    spx_free(row);
    return st;
}

spx_status spx_frame_inherit(spx_frame *f, const spx_image *im, const spx_psf *psf, size_t first, size_t nspec,
                             spx_err *e)
{
    spx_status st = spx_cards_copy(&f->header, &im->header, e);
    return st == SPX_OK && im->fibermap != NULL ? inherit_fibermap(f, im, psf, first, nspec, e) : st;
}

spx_status spx_frame_set_scores(spx_frame *f, const char *arm, const double *sum, const double *median,
                                const double *snr, spx_err *e)
{
    const struct {
        const char *what, *unit;
        const double *data;
    } column[] = {{"SUM_RAW_COUNT", "electron", sum},
                  {"MEDIAN_RAW_COUNT", "electron/Angstrom", median},
                  {"MEDIAN_RAW_SNR", "Angstrom**(-1/2)", snr}};
    spx_table_free(f->scores);
    if ((f->scores = spx_table_new(f->nspec, e)) == NULL)
        return SPX_EIO;
    spx_status st = SPX_OK;
    if (f->fibermap != NULL && spx_table_find(f->fibermap, "TARGETID") >= 0) {
        int64_t *target = spx_alloc(f->nspec, sizeof *target, e);
        st = target != NULL ? spx_table_get_i64(f->fibermap, "TARGETID", target, e) : SPX_EIO;
        if (st == SPX_OK)
            st = spx_table_add(f->scores, "TARGETID", H5T_NATIVE_INT64, NULL, target, e);
        spx_free(target);
    }
    for (size_t k = 0; k < 3 && st == SPX_OK; k++) {
        char upper[SPX_ARM_NAME], name[40];
        spx_arm_upper(arm, upper);
        (void)snprintf(name, sizeof name, "%s_%s", column[k].what, upper);
        st = spx_table_add(f->scores, name, H5T_NATIVE_DOUBLE, column[k].unit, column[k].data, e);
    }
    return st;
}
