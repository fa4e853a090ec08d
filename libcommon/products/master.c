/* Provides block `master` (products/master.h). */
#include "products/master.h"

#include <string.h>

#include "base/mem.h"
#include "h5/table.h"

const char *const spx_master_names[SPX_MASTERS + 1] = {"bias", "dark", "flat", NULL};

void spx_master_free(spx_master *m)
{
    spx_free(m->data);
    spx_free(m->ivar);
    spx_free(m->mask);
    spx_free(m->count);
    spx_cards_free(&m->header);
    spx_table_free(m->amplifiers);
    memset(m, 0, sizeof *m);
}
