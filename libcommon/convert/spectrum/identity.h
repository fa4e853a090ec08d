/* Identifies the object and observation of a file, and makes the fibermap. */
#ifndef SPX_SPECTRUM_IDENTITY_H
#define SPX_SPECTRUM_IDENTITY_H

#include "convert/spectrum/spectrum.h"
#include "h5/table.h"

enum { SPX_OBJECT_NAME = 48, SPX_FILE_NAME = 64 };

typedef struct {
    char object[SPX_OBJECT_NAME], file[SPX_FILE_NAME];
    int64_t target;
    int32_t fiber;
    double ra, dec, when; /* NAN: unknown */
    size_t rows;          /* rows of the file in the block */
    int by_file;          /* 1: identified only by the file's name */
} spx_identity;

/* Copies printable ASCII, without blanks at the ends. */
void spx_clean_text(char *to, size_t size, const char *from);

/* 63 bits of the FNV-1a hash: TARGETID for objects that have only a name. */
int64_t spx_text_hash(const char *text);

/* Identifies a file by its keywords, else by its name. */
void spx_identify(const spx_spectrum_file *file, spx_identity *id);

/* 1 when two files are arms of one observation: same star, same time, and no arm in both. */
int spx_identity_joins(const spx_spectrum_file *a, const spx_identity *ia, const spx_spectrum_file *b,
                       const spx_identity *ib);

/* Makes a fibermap of n rows. */
spx_status spx_identity_fibermap(size_t n, const spx_identity *id, spx_table **out, spx_err *e);

#endif
