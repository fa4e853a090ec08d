/* Provides copies from and to a CUDA device for hooks in C, by the driver, so that the backend does not count their
 * bytes. */
#ifndef DEVICE_MEMORY_H
#define DEVICE_MEMORY_H

#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hook.h"

/* A function of the driver, which is loaded where a hook got arrays on a device. */
static inline void *driver_function(const char *name)
{
    void *driver = dlopen("libcuda.so.1", RTLD_NOW), *f = driver != NULL ? dlsym(driver, name) : NULL;
    if (f == NULL) {
        printf("no %s in libcuda.so.1\n", name);
        exit(1);
    }
    return f;
}

/* Bytes of memory at a step's place into the host's; 1: done. Waits for what the step's stream holds. */
static inline int peek(const spx_hook_space *at, void *to, const void *from, size_t n)
{
    int (*wait)(void *), (*copy)(void *, uint64_t, size_t);
    if (at->device < 0) {
        memcpy(to, from, n);
        return 1;
    }
    *(void **)&wait = driver_function("cuStreamSynchronize");
    *(void **)&copy = driver_function("cuMemcpyDtoH_v2");
    return wait(at->stream) == 0 && copy(to, (uint64_t)(uintptr_t)from, n) == 0;
}

/* The other way; what the default stream copies is there before any other stream goes on. */
static inline int poke(const spx_hook_space *at, void *to, const void *from, size_t n)
{
    int (*wait)(void *), (*copy)(uint64_t, const void *, size_t);
    if (at->device < 0) {
        memcpy(to, from, n);
        return 1;
    }
    *(void **)&wait = driver_function("cuStreamSynchronize");
    *(void **)&copy = driver_function("cuMemcpyHtoD_v2");
    return wait(at->stream) == 0 && copy((uint64_t)(uintptr_t)to, from, n) == 0 && wait(NULL) == 0;
}

/* The array of that name; NULL: there is none. */
static inline const spx_hook_array *array_of(const spx_hook_step_info *s, const char *name)
{
    for (size_t i = 0; i < s->narray; i++)
        if (strcmp(s->array[i].name, name) == 0)
            return &s->array[i];
    return NULL;
}

#endif
