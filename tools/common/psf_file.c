#include "common/psf_file.h"

#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/text.h"
#include "convert/ccd.h"
#include "h5/object.h"
#include "products/psf_h5.h"
#include "psf/psf.h"

#define REMEDY "give traces and PSF: an HDF5 file with /psf, such as specx-psf makes, or a DESI PSF file"

spx_status spx_psf_file_read(spx_run *s, const char *path, spx_psf *psf, spx_err *e)
{
    spx_input *in;
    spx_err no_hdf5 = {0};
    spx_status st = spx_run_extra_input(s, path, &in, &no_hdf5);
    if (st == SPX_OK && !spx_h5_exists(in->file, "/psf"))
        return spx_fail_at(e, SPX_EINPUT, in->name, "/psf", REMEDY, "is missing");
    if (st == SPX_OK)
        return spx_psf_read(in->file, psf, e);
    if (st != SPX_EINPUT || strcmp(path, "-") == 0)
        return spx_err_pass(e, &no_hdf5);
    spx_note_list notes = {0};
    st = spx_run_foreign_input(s, path, e);
    if (st == SPX_OK)
        st = spx_psf_read_fits(path, psf, &notes, e);
    if (st == SPX_EINPUT && e->remedy[0] == '\0')
        (void)snprintf(e->remedy, sizeof e->remedy, "%s", REMEDY);
    for (size_t i = 0; i < notes.n; i++)
        spx_warn("%s", notes.note[i]);
    spx_note_list_free(&notes);
    return st;
}

/* Warns of traces that are in each other's place: the fit finds light there, and cannot tell. */
static spx_status warn_of_exchanged(const char *path, const spx_psf *psf, spx_err *e)
{
    const size_t any = 1u << 20; /* pixels of the CCD */
    char some[80];
    double together;
    uint32_t *odd = spx_alloc(psf->nspec, sizeof *odd, e);
    const spx_status st = odd != NULL ? spx_psf_odd_traces(psf, any, any, odd, &together, e) : SPX_EIO;
    if (st == SPX_OK) {
        spx_text_flagged(psf->nspec, odd, SPX_ODD_EXCHANGED, some);
        if (some[0] != '\0')
            spx_warn("%s: traces%s have changed places in pairs: put them in order, or their fibres have each other's "
                     "light",
                     path, some);
    }
    spx_free(odd);
    return st;
}

spx_status spx_psf_file_start(spx_run *s, const char *path, int as_it_is, spx_psf *psf, spx_err *e)
{
    spx_psf from = {0};
    spx_status st = spx_psf_file_read(s, path, psf, e);
    if (st == SPX_OK)
        st = spx_psf_one_range(psf, e);
    if (st == SPX_OK)
        st = warn_of_exchanged(path, psf, e);
    if (st != SPX_OK || as_it_is || (psf->type == SPX_PSF_GAUSS_HERMITE && psf->tilt < 0))
        return st;
    from = *psf;
    *psf = (spx_psf){0};
    const spx_status made = spx_psf_gaussians(&from, psf, e);
    if (made == SPX_OK)
        spx_note("%s: spots of this kind (%s) are nothing that is fitted: begins with Gaussians as wide", path,
                 from.type != SPX_PSF_GAUSS_HERMITE ? spx_psf_type_name(from.type) : "with TILT");
    spx_psf_free(&from);
    return made;
}
