/* Provides block `raw` (products/raw.h). */
#include "products/raw.h"

#include <string.h>

#include "base/mem.h"
#include "h5/table.h"

void spx_raw_free(spx_raw *r)
{
    for (size_t k = 0; k < r->n && r->image != NULL; k++) {
        spx_free(r->image[k].data);
        spx_cards_free(&r->image[k].header);
    }
    spx_free(r->image);
    spx_cards_free(&r->header);
    spx_table_free(r->fibermap);
    memset(r, 0, sizeof *r);
}

double spx_raw_exptime(const spx_raw *raw, int dark)
{
    static const char *const key[] = {"DARKTIME", "EXPTIME", "EXPOSURE"};
    double t = 0;
    for (size_t i = dark ? 0 : 1; i < sizeof key / sizeof *key; i++)
        if (spx_cards_double(&raw->header, key[i], &t) ||
            (raw->n > 0 && spx_cards_double(&raw->image[0].header, key[i], &t)))
            return t > 0 && t < 1e9 ? t : 0;
    return 0;
}
