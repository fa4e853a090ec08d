/* Provides the count of what a stage call computed on the CPU in place of the device that it was asked to use.
 *
 * A stage that can leave part of its work to the CPU has an spx_fallback in its results; a program hands it to
 * spx_run_fallback() (app/main.h), which warns and records it in the provenance. */
#ifndef SPX_FALLBACK_H
#define SPX_FALLBACK_H

#include <stddef.h>

typedef struct {
    const char *unit;     /* unit of work, plural: "bundles", "stars"; one word, as the provenance has it */
    const char *reason;   /* for messages: property of the units that fall back; NULL where none does */
    size_t total, on_cpu; /* units in all, and computed on the CPU in place of the device */
} spx_fallback;

/* Adds another call's units, of the same kind; the reason is the first one's. */
static inline void spx_fallback_add(spx_fallback *sum, const spx_fallback *f)
{
    sum->unit = f->unit;
    sum->total += f->total;
    sum->on_cpu += f->on_cpu;
    sum->reason = sum->reason != NULL ? sum->reason : f->reason;
}

#endif
