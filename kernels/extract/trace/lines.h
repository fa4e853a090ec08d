/* Provides lines of the sky at known wavelengths for the extraction: light between two bins, which no spectrum on the
 * grid of the bins has. Private to kernels/extract/.
 *
 * The extraction sees such a line through the weights of the pixels, A^T W a(l) with a(l) its spot: as another spectrum
 * in a fibre whose pixels have other weights, such as one with a bright star beside one without, and no model of a sky
 * that all fibres share has both. In its place the same line as a spectrum on the grid is put into the image,
 *
 *     strength (a(l) - sum_k e_k(l) a(l_k)),   e: shares of eight bins (Lagrange),
 *
 * being taken off: what is left of the difference is the error of the strength, as a fraction. Nothing is said of how
 * bright the line is: sums over it are not changed. */
#ifndef SPX_EXTRACT_TRACE_LINES_H
#define SPX_EXTRACT_TRACE_LINES_H

#include "extract/common.h"

/* Adds that to far[ny][nx], for lines of the job's options that lie on its grid, with all bins that have a share of
 * them. light[nspec][ny]: light by rows (spx_rows_light()) of the image without far, of all fibres. The strength of a
 * line in a fibre is its own, drawn towards the median of all by its error. The result does not depend on the number of
 * threads. counts: lines, and electrons of them in a fibre. SPX_EIO: memory. */
spx_status spx_lines_add(const spx_extract_job *job, const float *light, int nthreads, float *far,
                         spx_extract_counts *counts, spx_err *e) SPX_NODISCARD;

#endif
