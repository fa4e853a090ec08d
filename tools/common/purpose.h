/* Warns of exposures that were taken for something else, by their headers: OBSTYPE, FLAVOR, IMAGETYP. `name`: of the
 * input. */
#ifndef SPX_TOOLS_PURPOSE_H
#define SPX_TOOLS_PURPOSE_H

#include "fits/cards.h"

/* Warns where the header says that it is none of `words`, ended by NULL; `what` for the message: "a flat". */
void spx_warn_of_purpose(const spx_cards *header, const char *name, const char *const *words, const char *what);

/* Warns where the header says that it is an exposure of a lamp, or of no light. That of the twilight has a star's
 * lines. */
void spx_warn_of_lamp(const spx_cards *header, const char *name);

#endif
