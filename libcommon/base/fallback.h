/* Provides the count of what a stage call computed on the CPU in place of the device that it was asked to use.
 *
 * A stage that can leave part of its work to the CPU has an spx_fallback in its results; a program hands it to
 * spx_run_fallback() (app/main.h), which says and records it. */
#ifndef SPX_FALLBACK_H
#define SPX_FALLBACK_H

#include <stddef.h>

typedef struct {
    const char *unit;     /* of work, plural: "bundles", "stars"; a word of its own in the provenance */
    const char *why;      /* which units these are, for messages; NULL where nothing is left to the CPU */
    size_t total, on_cpu; /* units, and those of them that the CPU computed in place of the device */
} spx_fallback;

#endif
