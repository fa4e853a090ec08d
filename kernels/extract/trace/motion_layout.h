/* Provides the jobs of a device that measures the motion of traces (trace/motion_steps.h): which there are, their
 * sizes and tables, and the memory that they need. Private to kernels/extract.
 *
 * A call has pixels, which all jobs share; a batch of jobs has tables, which the host fills, and work. */
#ifndef SPX_EXTRACT_TRACE_MOTION_LAYOUT_H
#define SPX_EXTRACT_TRACE_MOTION_LAYOUT_H

#include "extract/trace/motion_steps.h"
#include "extract/trace/windows.h"

typedef struct spx_motion_layout {
    spx_motion_view size; /* sizes alone; njob: of the call */
    size_t nbundle;
    const spx_motion_window *w;
    size_t *job;  /* [njob] window nbundle + bundle */
    int *columns; /* [njob][most][2] columns that a fibre's spots touch: first, and one past the last, or 0, 0 */
    size_t most;  /* fibres of a bundle */
    long *row0;   /* [nwindow] first row of the CCD that is used, */
    size_t *nrow, *pixel; /* [nwindow] their number, and the first pixel among those of all windows */
} spx_motion_layout;

/* left[nwindow][nbundle]: 1 for bundles that a device has no room for. Free also after an error. */
spx_status spx_motion_layout_make(size_t nwindow, const spx_motion_window *w, size_t nbundle, unsigned char *left,
                                  spx_motion_layout *l, spx_err *e) SPX_NODISCARD;
void spx_motion_layout_free(spx_motion_layout *l);

/* Hands out the arrays of g->njob jobs, and returns the bytes; NULL: only counts. */
size_t spx_motion_tables(spx_motion_view *g, size_t nwindow, size_t nspec, char *base);
size_t spx_motion_work(spx_motion_view *g, char *base);
size_t spx_motion_pixels(spx_motion_view *g, int has_mask, char *base);

/* Fills the tables of jobs first ... first + g->njob - 1, g: handed out on the host. */
void spx_motion_fill(const spx_motion_layout *l, size_t nwindow, size_t first, const spx_motion_view *g);

/* Adds the results of these jobs, row[njob][nl] and result[njob], to what the call returns. */
void spx_motion_collect(const spx_motion_layout *l, size_t first, size_t njob, const spx_motion_row *row,
                        const spx_motion_result *result, spx_motion_row *rows, spx_motion_fit *fits,
                        unsigned char *left);

#endif
