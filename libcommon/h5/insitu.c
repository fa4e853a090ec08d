/* Writes the arrays that a hook returned, under /insitu (h5/insitu.h). */
#include "h5/insitu.h"

#include <stdio.h>

#include "h5/write.h"

static hid_t memory_type(spx_hook_type type)
{
    switch (type) {
    case SPX_HOOK_INT8:
        return H5T_NATIVE_INT8;
    case SPX_HOOK_UINT8:
        return H5T_NATIVE_UINT8;
    case SPX_HOOK_INT16:
        return H5T_NATIVE_INT16;
    case SPX_HOOK_UINT16:
        return H5T_NATIVE_UINT16;
    case SPX_HOOK_INT32:
        return H5T_NATIVE_INT32;
    case SPX_HOOK_UINT32:
        return H5T_NATIVE_UINT32;
    case SPX_HOOK_INT64:
        return H5T_NATIVE_INT64;
    case SPX_HOOK_UINT64:
        return H5T_NATIVE_UINT64;
    case SPX_HOOK_FLOAT32:
        return H5T_NATIVE_FLOAT;
    case SPX_HOOK_FLOAT64:
        return H5T_NATIVE_DOUBLE;
    }
    return H5I_INVALID_HID;
}

spx_status spx_insitu_write(hid_t file, const spx_hook_results *r, spx_err *e)
{
    spx_status st = SPX_OK;
    for (size_t i = 0; i < r->n && st == SPX_OK; i++) {
        const spx_hook_result *a = &r->result[i];
        char path[96];
        (void)snprintf(path, sizeof path, "/insitu/%s", a->name);
        st = spx_h5_write(file, path, memory_type(a->type), a->ndim, a->shape, a->data, e);
    }
    return st;
}
