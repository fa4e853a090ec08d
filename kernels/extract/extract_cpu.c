/* Provides extraction as an operation of the CPU: both methods, then the hook. */
#include "extract/extract.h"

spx_status spx_extract_cpu(const spx_image *image, const spx_psf *psf, const spx_extract_options *o, spx_frame *out,
                           spx_extract_counts *counts, spx_err *e)
{
    spx_status st = o->method == SPX_METHOD_TRACE ? spx_extract_trace_cpu(image, psf, o, out, counts, e)
                                                  : spx_extract_patch_cpu(image, psf, o, out, counts, e);
    if (st != SPX_OK)
        return st;
    st = spx_extract_hook(o->hook, out, SPX_HOOK_HOST, e);
    spx_hook_release(o->hook);
    return st == SPX_OK ? spx_extract_hook_check(o->hook, out, e) : st;
}

size_t spx_extract_units(const spx_psf *psf, const spx_extract_options *o)
{
    return o->method == SPX_METHOD_TRACE ? spx_extract_trace_units(psf, o) : spx_extract_patch_units(psf, o);
}
