/* Provides block `image` (products/image.h). */
#include "products/image.h"

#include <ctype.h>
#include <string.h>
#include <strings.h>

#include "base/mem.h"
#include "h5/table.h"

int spx_image_in_counts(const char *unit)
{
    static const char *const counts[] = {"adu", "dn", "du", "count", "ct"};
    const size_t n = strcspn(unit, " /*");
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        const size_t len = strlen(counts[i]);
        if (strncasecmp(unit, counts[i], len) == 0 && (n == len || (n == len + 1 && tolower(unit[len]) == 's')))
            return 1;
    }
    return 0;
}

void spx_image_drop_pixels(spx_image *im)
{
    spx_free(im->data);
    spx_free(im->ivar);
    spx_free(im->mask);
    spx_free(im->readnoise);
    im->data = im->ivar = im->readnoise = NULL;
    im->mask = NULL;
}

void spx_image_free(spx_image *im)
{
    if (im == NULL)
        return;
    spx_image_drop_pixels(im);
    spx_cards_free(&im->header);
    spx_table_free(im->fibermap);
    memset(im, 0, sizeof *im);
}
