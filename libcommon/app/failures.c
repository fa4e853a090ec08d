/* Provides --keep-going: counts and prints failures of single inputs (app/failures.h). */
#include "app/failures.h"

#include "base/log.h"

spx_status spx_failures_note(spx_failures *f, spx_status st, int *left_out, spx_err *e)
{
    *left_out = 0;
    if (st != SPX_EINPUT || !f->go_on)
        return st;
    spx_error("%s", spx_err_text(e));
    spx_err_clear(e);
    f->n++;
    *left_out = 1;
    return SPX_OK;
}
