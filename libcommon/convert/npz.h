/* Reads NumPy's .npz, a zip archive of arrays; every size is checked before it is used. */
#ifndef SPX_NPZ_H
#define SPX_NPZ_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

enum { SPX_NPZ_MAXDIM = 4 };

typedef struct {
    char name[64]; /* without .npy */
    char type[8];  /* as NumPy writes it, "<f8"; "": a structure, or longer */
    int ndim;      /* 0: a scalar */
    size_t dims[SPX_NPZ_MAXDIM], n;
    double *value; /* [n], C order; NULL: of a type that is not read (texts, objects), or too many dimensions */
} spx_npz_array;

typedef struct {
    size_t n;
    spx_npz_array *array;
} spx_npz;

/* Parses an archive in memory; `name` for messages. SPX_EINPUT: damaged, or not as NumPy writes it. Free with
 * spx_npz_free(), also after an error. */
spx_status spx_npz_parse(const char *name, const uint8_t *data, size_t size, spx_npz *z, spx_err *e);
spx_status spx_npz_read(const char *path, spx_npz *z, spx_err *e);
/* Finds the array of that name, numbers in `ndim` dimensions of lengths dims[] (0: any, and then gets it); NULL and
 * SPX_EINPUT in *e when there is none. */
const spx_npz_array *spx_npz_find(const spx_npz *z, const char *path, const char *name, int ndim, size_t *dims,
                                  spx_err *e);
/* The arrays of an archive for a message: "the archive has w0 (8, 4), names of type <U3 and 12 more". */
void spx_npz_list(const spx_npz *z, size_t size, char *out);
/* Shape of an array as NumPy writes it, or why it was not read. */
void spx_npz_shape(const spx_npz_array *a, size_t size, char *out);
void spx_npz_free(spx_npz *z);

#endif
