/* Reads line lists of arcs. */
#ifndef SPX_TOOLS_ARC_LIST_H
#define SPX_TOOLS_ARC_LIST_H

#include <stddef.h>

#include "products/spectra.h"
#include "spectral/lines.h"

/* Lines of a text file, by wavelength in vacuum, *n of them; free with spx_free(). One a line:
 *
 *     ELEMENT WAVELENGTH [QUALITY [INTENSITY]]     such as  NeI 6404.018 1 20000
 *
 * Element: a symbol, with the ion in Roman figures or without. Wavelength: Angstrom, in this medium. Quality: 1 bright,
 * 2 visible, 3 faint (spectral/lines.h); 1 where it is absent. # begins a comment. SPX_EINPUT: the file has something
 * else, which the message names with its number, a line twice, or none; a list in the other medium, as far as lamps of
 * spx_arc_lines() are in it. */
spx_status spx_arc_list_read(const char *name, spx_medium medium, spx_arc_line **line, size_t *n,
                             spx_err *e) SPX_NODISCARD;

/* Do lines tell that the medium they were read with is right? At least four have to be where a known lamp has them, of
 * other elements most of those within the known ranges, too. */
spx_status spx_arc_list_tells_medium(size_t n, const spx_arc_line *line, int *tells, spx_err *e) SPX_NODISCARD;

#endif
