/* Fuzz target: NumPy archives: arrays that are returned are complete. Input that is no archive becomes the only member
 * of one, with a valid checksum. */
#include "../helpers/mock_npz.h"

#include <stdint.h>
#include <stdlib.h>

#include "base/mem.h"
#include "convert/npz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    spx_npz z;
    spx_err e = {0};
    double sum = 0;
    spx_mem_limit(64 << 20);
    static mock_npz m;
    m.size = m.listed = m.n = 0;
    if (size < 2 || data[0] != 'P') {
        mock_npz_member(&m, "x.npy", data, size < sizeof m.data / 2 ? size : sizeof m.data / 2);
        size = mock_npz_finish(&m);
        data = m.data;
    }
    spx_status st = spx_npz_parse("archive", data, size, &z, &e);
    if (st == SPX_EBUG)
        abort();
    for (size_t i = 0; i < z.n; i++) {
        const spx_npz_array *a = &z.array[i];
        size_t n = 1;
        for (int d = 0; d < a->ndim && a->value != NULL; d++)
            n *= a->dims[d];
        if (a->value != NULL && n != a->n)
            abort();
        for (size_t k = 0; k < a->n && a->value != NULL; k++)
            sum += a->value[k];
    }
    (void)sum;
    spx_npz_free(&z);
    return 0;
}
