/* Kernel tests that run on the CPU, or on the device that SPX_TEST_DEVICE names (make check-cuda). */
#ifndef DEVICE_H
#define DEVICE_H

#include <stdio.h>
#include <stdlib.h>

#include "backend.h"
#include "base/mem.h"

/* Ends the test where the device cannot be used. */
static inline void open_device(spx_backend *b, spx_stage_id stage)
{
    const char *device = getenv("SPX_TEST_DEVICE");
    spx_err e = {0};
    if (spx_backend_open(b, device != NULL ? device : "cpu", stage, NULL, &e) != SPX_OK) {
        puts(e.msg);
        exit(1);
    }
}

/* Memory, or the end of the test. */
static inline void *need(size_t n, size_t size)
{
    spx_err e = {0};
    void *p = spx_alloc(n, size, &e);
    if (p == NULL) {
        puts(e.msg);
        exit(1);
    }
    return p;
}

#endif
