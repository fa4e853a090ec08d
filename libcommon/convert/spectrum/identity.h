/* Tells which object a file is of, and makes the fibermap. */
#ifndef SPX_SPECTRUM_IDENTITY_H
#define SPX_SPECTRUM_IDENTITY_H

#include "convert/spectrum/spectrum.h"
#include "h5/table.h"

enum { SPX_OBJECT_NAME = 48, SPX_FILE_NAME = 64 };

typedef struct {
    char object[SPX_OBJECT_NAME], file[SPX_FILE_NAME];
    int64_t target;
    int32_t fiber;
    double ra, dec, when; /* NAN: not known */
    size_t rows;          /* of the file */
    int by_file;          /* nothing but its name tells what it is of */
} spx_identity;

/* Printable ASCII without blanks at the ends. */
void spx_clean_text(char *to, size_t size, const char *from);

/* 63 bits of the FNV-1a hash: a TARGETID for what has a name only. */
int64_t spx_text_hash(const char *text);

/* From the keywords of the file, else its name. */
void spx_identify(const spx_spectrum_file *file, spx_identity *id);

/* Are these files arms of one observation? Same star, same time, and no arm in both. */
int spx_identity_joins(const spx_spectrum_file *a, const spx_identity *ia, const spx_spectrum_file *b,
                       const spx_identity *ib);

/* Fibermap of n rows, new. */
spx_status spx_identity_fibermap(size_t n, const spx_identity *id, spx_table **out, spx_err *e);

#endif
