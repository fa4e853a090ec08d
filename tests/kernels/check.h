/* Checks that go on after a failure: a test ends with `return failures != 0`. */
#ifndef CHECK_H
#define CHECK_H

#include <stdio.h>

/* Stands around memory that a function must not write to. */
#define SENTINEL 12345.678

static int failures;

/* Message in the manner of printf when `ok` does not hold. */
#define CHECK(ok, ...)                                                                                                 \
    do {                                                                                                               \
        if (!(ok)) {                                                                                                   \
            printf("%s:%d: ", __FILE__, __LINE__);                                                                     \
            printf(__VA_ARGS__);                                                                                       \
            puts("");                                                                                                  \
            failures++;                                                                                                \
        }                                                                                                              \
    } while (0)

#endif
