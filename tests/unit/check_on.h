/* Provides CHECK() for tests that go on after a failure: prints the condition. They end with `return bad`. */
#ifndef UNIT_CHECK_ON_H
#define UNIT_CHECK_ON_H

#include <stdio.h>

static int bad;

#define CHECK(c)                                                                                                       \
    do {                                                                                                               \
        if (!(c)) {                                                                                                    \
            printf("%s:%d: %s\n", __FILE__, __LINE__, #c);                                                             \
            bad = 1;                                                                                                   \
        }                                                                                                              \
    } while (0)

#endif
