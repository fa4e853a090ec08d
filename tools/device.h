/* For programs with a kernel stage: what computes. */
#ifndef SPX_TOOLS_DEVICE_H
#define SPX_TOOLS_DEVICE_H

#include "backend.h"
#include "h5/stage.h"

/* Opens what --device asks for, has it in the provenance, and says (-v) why `auto` came to be the CPU. Closed with
 * spx_backend_close(). */
static inline spx_status open_device(spx_stage *s, spx_stage_id stage, spx_backend *b, spx_err *e)
{
    spx_err why = {0};
    const spx_status st = spx_backend_open(b, s->common.device, stage, &why, e);
    if (st == SPX_OK)
        spx_stage_device(s, b->device);
    if (st == SPX_OK && why.code != SPX_OK)
        spx_detail("computes on the CPU: %s", why.msg);
    return st;
}

#endif
