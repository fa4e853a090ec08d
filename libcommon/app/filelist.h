/* Provides lists of input files, from names, folders and list files that a user gives. */
#ifndef SPX_FILELIST_H
#define SPX_FILELIST_H

#include <stddef.h>

#include "base/err.h"

typedef struct {
    size_t n, capacity;
    char **name;
} spx_filelist;

/* Appends the files that `arg` names: "-" or a file: itself; a folder: all files in it and below whose names end in one
 * of `suffixes` (such as ".fits .fits.gz"), sorted; @FILE: the names in that text file, one a line (blank lines and
 * lines that begin with # ignored). SPX_EINPUT: no such folder or list, nothing in it. */
spx_status spx_filelist_add(spx_filelist *l, const char *arg, const char *suffixes, spx_err *e);
void spx_filelist_free(spx_filelist *l);

#endif
