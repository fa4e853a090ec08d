/* Provides the product of Burgers' equation (products/burgers.h). */
#include "products/burgers.h"

#include <string.h>

#include "base/mem.h"

void spx_burgers_free(spx_burgers *b)
{
    spx_free(b->x);
    spx_free(b->time);
    spx_free(b->snapshot);
    memset(b, 0, sizeof *b);
}
