/* Provides block `image` (products/image.h). */
#include "products/image.h"

#include <string.h>

#include "base/mem.h"
#include "h5/table.h"

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
