/* Provides a backend "cuda" that computes on the CPU, for tests of what does not depend on the device: SPX_BACKENDS
 * names its folder, and LD_LIBRARY_PATH, too, where it is also the driver's library, of which only the name is asked
 * for. It has eight devices. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>

#include "backend.h"

spx_backend_entry spx_backend_entry_point;

spx_status spx_backend_entry_point(spx_backend *b, const char *list, spx_err *e)
{
    char *end;
    const long n = strtol(list, &end, 10);
    if (n < 0 || n > 7)
        return spx_fail(e, SPX_EDEVICE, "{device} cuda:%s: there are 8 devices", list);
    const spx_status st = spx_backend_open(b, "cpu", SPX_OP_STACK, NULL, e);
    if (st == SPX_OK)
        (void)snprintf(b->device, sizeof b->device, "cuda:%ld (stand-in)", n);
    return st;
}
