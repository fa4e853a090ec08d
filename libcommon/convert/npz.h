/* NumPy's .npz: a zip archive of arrays. Everything in it is checked before it is used. */
#ifndef SPX_NPZ_H
#define SPX_NPZ_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

enum { SPX_NPZ_MAXDIM = 4 };

typedef struct {
    char name[64]; /* without .npy */
    int ndim;      /* 0: one number */
    size_t dims[SPX_NPZ_MAXDIM], n;
    double *value; /* [n], last dimension fastest; NULL: no numbers (texts, Python objects), or too many dimensions */
} spx_npz_array;

typedef struct {
    size_t n;
    spx_npz_array *array;
} spx_npz;

/* Archive in memory; `name` for messages. SPX_EINPUT: damaged, or of a kind that NumPy does not write. Free with
 * spx_npz_free(), also after an error. */
spx_status spx_npz_parse(const char *name, const uint8_t *data, size_t size, spx_npz *z, spx_err *e);
spx_status spx_npz_read(const char *path, spx_npz *z, spx_err *e);
/* Array of that name with numbers of `ndim` dimensions, whose lengths are dims[] (0: any, and then gets it); NULL and
 * SPX_EINPUT in *e when there is none. */
const spx_npz_array *spx_npz_find(const spx_npz *z, const char *path, const char *name, int ndim, size_t *dims,
                                  spx_err *e);
void spx_npz_free(spx_npz *z);

#endif
