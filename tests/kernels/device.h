/* Provides the backend of kernel tests: the CPU, or the device $SPX_TEST_DEVICE (make check-cuda). */
#ifndef DEVICE_H
#define DEVICE_H

#include <stdio.h>
#include <stdlib.h>

#include "backend.h"
#include "base/mem.h"

/* Ends the test where the device cannot be used. */
static inline void open_device(spx_backend *b, spx_op stage)
{
    const char *device = getenv("SPX_TEST_DEVICE");
    spx_err e = {0};
    if (spx_backend_open(b, device != NULL ? device : "cpu", stage, NULL, &e) != SPX_OK) {
        puts(spx_err_text(&e));
        exit(1);
    }
}

/* Bytes that were copied from the device to the host so far, and the other way. */
typedef struct {
    size_t to_host, to_device;
} copied_bytes;

static inline copied_bytes copied_so_far(const spx_backend *b)
{
    copied_bytes n = {0, 0};
    if (b->copied != NULL)
        b->copied(b, &n.to_host, &n.to_device);
    return n;
}

/* Memory, or the end of the test. */
static inline void *need(size_t n, size_t size)
{
    spx_err e = {0};
    void *p = spx_alloc(n, size, &e);
    if (p == NULL) {
        puts(spx_err_text(&e));
        exit(1);
    }
    return p;
}

#endif
