/* Provides the windows of a measurement of traces (extract/motion.h): plan and bundles of each, and the driver, which
 * leaves them to a device as far as that can measure them. Private to kernels/extract. */
#ifndef SPX_EXTRACT_TRACE_WINDOWS_H
#define SPX_EXTRACT_TRACE_WINDOWS_H

#include "extract/motion.h"
#include "extract/trace/trace.h"

/* One window. Bundles have the rows that no light of other bins reaches as those that are used. */
typedef struct {
    spx_extract_options o;
    spx_extract_job job; /* without weights */
    spx_trace_plan plan;
    spx_trace_bundle *list; /* [nbundle] */
    int rough;              /* as in spx_motion_options */
} spx_motion_window;

struct spx_motion_layout;

/* A device, which measures the jobs of a layout (trace/motion_layout.h). *row and *fit are zeroed; wavelengths of rows
 * are the middles of windows. left[nwindow][nbundle]: 1 for bundles that the CPU has to measure, whose rows stay as
 * they are. */
typedef struct spx_motion_engine {
    void *state;
    /* Begins to send rows row0[nwindow], nrow[nwindow] of the image, which windows are expected to use, while the host
     * lays out their bundles. */
    spx_status (*send)(struct spx_motion_engine *g, size_t nwindow, const long *row0, const size_t *nrow, spx_err *e);
    spx_status (*measure)(struct spx_motion_engine *g, size_t nwindow, const struct spx_motion_layout *l,
                          spx_motion_row *row, spx_motion_fit *fit, unsigned char *left, spx_err *e);
} spx_motion_engine;

/* spx_motion_cpu() with a device; NULL: the CPU alone. */
spx_status spx_motion_solve(spx_motion_engine *g, const spx_image *image, const spx_psf *psf,
                            const spx_motion_options *o, spx_motion_row *row, spx_motion_fit *fit, spx_fallback *left,
                            spx_err *e);

#endif
