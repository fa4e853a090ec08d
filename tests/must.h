/* What benchmarks and checks cannot go on without. */
#ifndef MUST_H
#define MUST_H

#include <stdio.h>
#include <stdlib.h>

#include "base/err.h"

static inline void must(int ok, const spx_err *e)
{
    if (!ok) {
        printf("%s\n", spx_err_text(e));
        exit(1);
    }
}

static inline void *must_have(void *p)
{
    if (p == NULL) {
        puts("out of memory");
        exit(1);
    }
    return p;
}

#endif
