#include "common/flat_inputs.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "common/each_input.h"
#include "common/purpose.h"
#include "h5/file.h"
#include "h5/object.h"
#include "h5/table.h"
#include "products/frame_h5.h"

/* Exposures of one lamp can be combined bin by bin only where these are the same. */
static spx_status check_same(const spx_frame *f, const spx_frame *first, const char *name, const char *of, spx_err *e)
{
    static const char again[] = "extract all exposures with the same --wavelength and --spectra";
    if (strcmp(f->camera, first->camera) != 0)
        return spx_fail_at(e, SPX_EINPUT, name, NULL, "give frames of one camera at a time",
                           "is of camera %s, %s of camera %s", f->camera, of, first->camera);
    if (f->nspec != first->nspec)
        return spx_fail_at(e, SPX_EINPUT, name, NULL, again, "has %zu fibres, %s %zu", f->nspec, of, first->nspec);
    for (size_t i = 0; i < f->nspec && f->fiber != NULL && first->fiber != NULL; i++)
        if (f->fiber[i] != first->fiber[i])
            return spx_fail_at(e, SPX_EINPUT, name, NULL, again, "row %zu is fibre %d, in %s fibre %d", i, f->fiber[i],
                               of, first->fiber[i]);
    int same = f->arm.nwave == first->arm.nwave && f->arm.medium == first->arm.medium;
    for (size_t k = 0; k < f->arm.nwave && same; k++)
        same = fabs(f->arm.wavelength[k] - first->arm.wavelength[k]) <= 1e-9 * first->arm.wavelength[k];
    if (!same)
        return spx_fail_at(e, SPX_EINPUT, name, NULL, again, "has other wavelengths than %s", of);
    if (f->arm.ndiag != first->arm.ndiag)
        return spx_fail_at(e, SPX_EINPUT, name, NULL, "extract all exposures alike",
                           "has resolution matrices of %zu diagonals, %s of %zu", f->arm.ndiag, of, first->arm.ndiag);
    return SPX_OK;
}

static spx_status check(const spx_flat_frames *f, const spx_frame *frame, const char *name, spx_err *e)
{
    if (frame->arm.ndiag == 0)
        return spx_fail_at(e, SPX_EINPUT, name, "/frame/resolution", "extract the flat with specx-extract",
                           "the frame has no resolution matrix");
    if (frame->arm.barycentric)
        return spx_fail_at(e, SPX_EINPUT, name, NULL, "extract flats without --barycentric",
                           "wavelengths are barycentric: a lamp is at rest");
    if (frame->flat_applied)
        return spx_fail_at(e, SPX_EINPUT, name, NULL, "give it as it was extracted",
                           "the frame was divided by a flat field before");
    return f->n == 0 ? SPX_OK : check_same(frame, &f->frame[0], name, f->name[0], e);
}

static spx_status add_frame(void *ctx, spx_input *in, spx_err *e)
{
    static const char *const flat[] = {"flat", NULL};
    spx_flat_frames *f = ctx;
    if (!spx_h5_exists(in->file, "/frame"))
        return spx_fail_at(e, SPX_EINPUT, in->name, NULL, "give frames that specx-extract has made of lamp exposures",
                           "no frame");
    void *frames = spx_grow(f->frame, f->n, 1, &f->capacity, sizeof *f->frame, e);
    if (frames == NULL)
        return SPX_EIO;
    f->frame = frames;
    void *names = spx_grow(f->name, f->n, 1, &f->name_capacity, sizeof *f->name, e);
    if (names == NULL)
        return SPX_EIO;
    f->name = names;
    spx_frame *frame = &f->frame[f->n];
    (void)snprintf(f->name[f->n], sizeof *f->name, "%.*s", (int)sizeof *f->name - 1, in->name);
    spx_status st = spx_frame_read(in->file, frame, e);
    spx_free(frame->chi2pix);
    spx_free(frame->pixmask_fraction);
    spx_free(frame->model);
    frame->chi2pix = frame->pixmask_fraction = NULL;
    frame->model = NULL;
    spx_table_free(frame->scores);
    frame->scores = NULL;
    if (st == SPX_OK)
        st = check(f, frame, in->name, e);
    else
        (void)spx_err_at(e, in->name, NULL);
    if (st == SPX_OK)
        spx_warn_of_purpose(&frame->header, in->name, flat, "a flat");
    const size_t size = frame->nspec * frame->arm.nwave * sizeof *frame->arm.flux;
    for (size_t k = 0; k < f->n && st == SPX_OK; k++)
        if (spx_warn_of_repeated(frame->arm.flux, f->frame[k].arm.flux, size, in->name))
            break;
    f->n++;
    return st;
}

spx_status spx_flat_frames_read(spx_run *s, spx_flat_frames *f, spx_err *e)
{
    return spx_each_input(s, add_frame, f, e);
}

spx_status spx_flat_frames_input(spx_flat_frames *f, spx_flat_input *in, spx_err *e)
{
    if ((f->array = spx_alloc2(3, f->n, sizeof *f->array, e)) == NULL ||
        (f->mask = spx_alloc(f->n, sizeof *f->mask, e)) == NULL)
        return SPX_EIO;
    for (size_t x = 0; x < f->n; x++) {
        const spx_arm *a = &f->frame[x].arm;
        f->array[x] = a->flux;
        f->array[f->n + x] = a->ivar;
        f->array[2 * f->n + x] = a->resolution;
        f->mask[x] = a->mask;
    }
    const spx_frame *first = &f->frame[0];
    *in = (spx_flat_input){.nexp = f->n,
                           .nspec = first->nspec,
                           .nwave = first->arm.nwave,
                           .ndiag = first->arm.ndiag,
                           .wavelength = first->arm.wavelength,
                           .flux = f->array,
                           .ivar = f->array + f->n,
                           .resolution = f->array + 2 * f->n,
                           .mask = f->mask};
    return SPX_OK;
}

void spx_flat_frames_free(spx_flat_frames *f)
{
    for (size_t x = 0; x < f->n; x++)
        spx_frame_free(&f->frame[x]);
    spx_free(f->frame);
    spx_free(f->name);
    spx_free(f->array);
    spx_free(f->mask);
    memset(f, 0, sizeof *f);
}

void spx_flat_inherit(spx_flat *flat, spx_flat_frames *f)
{
    spx_frame *first = &f->frame[0];
    memcpy(flat->camera, first->camera, sizeof flat->camera);
    memcpy(flat->unit, first->arm.unit, sizeof flat->unit);
    flat->medium = first->arm.medium;
    flat->fiber = first->fiber;
    flat->fibermap = first->fibermap;
    first->fiber = NULL;
    first->fibermap = NULL;
}
