/* Reads what npz2h5's options say of the inputs of a network. */
#ifndef SPX_TOOLS_PAYNE_OPTIONS_H
#define SPX_TOOLS_PAYNE_OPTIONS_H

#include "convert/payne.h"

enum { SPX_PAYNE_MAX_LABEL = 64 };

/* `labels`: NAME[:UNIT], with commas between; fix[nfix]: NAME=VALUE. l[*n]: the inputs in order. SPX_EUSAGE: a text
 * makes no sense, or there is no such input, or two of one name. */
spx_status spx_payne_parse_labels(const char *labels, size_t nfix, const char *const *fix,
                                  spx_payne_label l[SPX_PAYNE_MAX_LABEL], size_t *n, spx_err *e);

#endif
