/* Fuzz target: compressed images. A FITS file: all its images are decoded. Else one stream: byte 0 chooses the method,
 * bytes 1 and 2 what the file's keywords would say, and the number of values. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "fits/codec.h"
#include "fits/values.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void whole_file(const uint8_t *data, size_t size)
{
    spx_fits f;
    spx_err e = {0};
    if (spx_fits_parse(&f, "fuzz", data, size, &e) != SPX_OK)
        return;
    for (size_t i = 0; i < f.nhdu; i++) {
        spx_err err = {0};
        if (f.hdu[i].kind == SPX_FITS_TILED && spx_fits_raw(&f, i, &err) == NULL && err.code == SPX_OK)
            abort();
    }
    spx_fits_close(&f);
}

/* Arrays of exactly the size that is asked for. */
static void one_stream(const uint8_t *data, size_t size)
{
    const uint8_t how = data[0], parameter = data[1];
    size_t n = (size_t)data[2] + 1, width = 0, height = 0;
    const uint8_t *stream = data + 3;
    size -= 3;
    if (how % 3 == 2) {
        if (spx_hcompress_shape(stream, size, &width, &height) != NULL || width * height > 1 << 16)
            return;
        n = width * height;
    }
    int32_t *out = malloc(n * sizeof *out);
    int64_t *wide = malloc(2 * n * sizeof *wide);
    uint8_t *codes = malloc(2 * ((width + 3) / 4) * ((height + 3) / 4) + 1);
    if (out == NULL || wide == NULL || codes == NULL)
        abort();
    if (how % 3 == 0)
        (void)spx_rice_decode(stream, size, 1 << how / 3 % 3, (size_t)parameter + 1, out, n);
    else if (how % 3 == 1)
        (void)spx_plio_decode(stream, size / 2, out, n);
    else
        (void)spx_hcompress_decode(stream, size, parameter % 2, wide, codes, out);
    free(out);
    free(wide);
    free(codes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    spx_mem_limit((size_t)64 << 20);
    if (size > 6 && memcmp(data, "SIMPLE", 6) == 0)
        whole_file(data, size);
    else if (size > 3)
        one_stream(data, size);
    return 0;
}
