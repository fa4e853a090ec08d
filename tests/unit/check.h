/* Provides CHECK() for tests that cannot go on after a failure: prints the condition and the error in `e`, and
 * stops. */
#ifndef UNIT_CHECK_H
#define UNIT_CHECK_H

#include <stdio.h>
#include <stdlib.h>

#include "base/err.h"

static spx_err e;

#define CHECK(c)                                                                                                       \
    do {                                                                                                               \
        if (!(c)) {                                                                                                    \
            printf("%s:%d: %s (%s)\n", __FILE__, __LINE__, #c, spx_err_text(&e));                                      \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

#endif
