/* Provides the arrays of an extracted frame to a hook, and the check of what it wrote. */
#include <math.h>

#include "extract/extract.h"

static int usable(const double *x, size_t n, double least)
{
    for (size_t i = 0; i < n; i++)
        if (!isfinite(x[i]) || x[i] < least)
            return 0;
    return 1;
}

spx_status spx_extract_hook(spx_hook *hook, const spx_frame *frame, spx_hook_space at, spx_err *e)
{
    enum { NARRAY = 8 };
    const spx_arm *a = &frame->arm;
    const size_t nspec = frame->nspec, nwave = a->nwave;
    const spx_hook_array array[NARRAY] = {
        {.name = "flux", a->flux, SPX_HOOK_FLOAT64, 2, 1, {nspec, nwave}, {0}},
        {.name = "ivar", a->ivar, SPX_HOOK_FLOAT64, 2, 1, {nspec, nwave}, {0}},
        {.name = "mask", a->mask, SPX_HOOK_UINT32, 2, 1, {nspec, nwave}, {0}},
        {.name = "resolution", a->resolution, SPX_HOOK_FLOAT64, 3, 1, {nspec, a->ndiag, nwave}, {0}},
        {.name = "chi2pix", frame->chi2pix, SPX_HOOK_FLOAT64, 2, 0, {nspec, nwave}, {0}},
        {.name = "pixmask_fraction", frame->pixmask_fraction, SPX_HOOK_FLOAT64, 2, 0, {nspec, nwave}, {0}},
        {.name = "wavelength", a->wavelength, SPX_HOOK_FLOAT64, 1, 0, {nwave}, {0}},
        {.name = "fiber", frame->fiber, SPX_HOOK_INT32, 1, 0, {nspec}, {0}}};
    const spx_hook_step_info step = {.stage = "extract", .at = at, .narray = NARRAY, .array = array};
    return hook != NULL ? spx_hook_step(hook, &step, e) : SPX_OK;
}

spx_status spx_extract_hook_check(const spx_hook *hook, const spx_frame *out, spx_err *e)
{
    const spx_arm *a = &out->arm;
    const size_t n = out->nspec * a->nwave;
    if (hook == NULL || !hook->writable ||
        (usable(a->flux, n, -HUGE_VAL) && usable(a->ivar, n, 0) && usable(a->resolution, n * a->ndiag, -HUGE_VAL)))
        return SPX_OK;
    return spx_fail(e, SPX_EHOOK,
                    "{hook} %s: wrote values that are not finite, or a negative ivar: mask what is bad, with ivar 0",
                    hook->file);
}
