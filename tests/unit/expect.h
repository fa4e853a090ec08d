/* Provides EXPECT() for tests that go on after a failure: prints the place and a message of its own, and counts. They
 * end with `return failures > 0`. */
#ifndef UNIT_EXPECT_H
#define UNIT_EXPECT_H

#include <stdio.h>

static int failures;

#define EXPECT(ok, ...)                                                                                                \
    do {                                                                                                               \
        if (!(ok)) {                                                                                                   \
            failures++;                                                                                                \
            printf("%s:%d: ", __FILE__, __LINE__);                                                                     \
            printf(__VA_ARGS__);                                                                                       \
            putchar('\n');                                                                                             \
        }                                                                                                              \
    } while (0)

#endif
