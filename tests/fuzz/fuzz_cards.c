/* Fuzz target: FITS header cards of any 80 bytes each. */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "fits/cards.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const key[] = {"BITPIX", "NAXIS1", "TTYPE1", "CAMERA", "WAVEMIN", "LONGSTRN", "HIERARCH"};
    spx_cards h = {0}, copy = {0};
    h.n = size / 80;
    if ((h.cards = spx_alloc(h.n, 80, NULL)) == NULL)
        return 0;
    if (h.n > 0)
        memcpy(h.cards, data, h.n * 80);
    for (size_t i = 0; i < sizeof key / sizeof key[0]; i++) {
        double value;
        long whole;
        char text[9];
        if (spx_cards_double(&h, key[i], &value) && !isfinite(value))
            abort();
        (void)spx_cards_int(&h, key[i], &whole);
        if (spx_cards_string(&h, key[i], text, sizeof text) && strlen(text) >= sizeof text)
            abort();
    }
    if (spx_cards_copy(&copy, &h, NULL) == SPX_OK) {
        (void)spx_cards_set_double(&copy, "WAVEMIN", 3600.5, "a value", NULL);
        (void)spx_cards_set_string(&copy, "CAMERA", "it's r0", NULL, NULL);
        spx_cards_drop(&copy, "NAXIS*");
    }
    spx_cards_free(&h);
    spx_cards_free(&copy);
    return 0;
}
