/* What the parts of h5merge share: the inputs as they are read, and the plan of the product. */
#ifndef SPX_MERGE_INTERNAL_H
#define SPX_MERGE_INTERNAL_H

#include <stddef.h>
#include <stdint.h>

#include "base/text.h"
#include "h5/object.h"
#include "h5/table.h"
#include "merge/merge.h"
#include "products/spectra.h"

enum {
    PATH_LEN = 300,
    FLAG_LEN = 2 * SPX_MAX_ARM * 8 /* MISSING_ARMS: names and blanks */
};

extern const char spx_merge_missing_column[]; /* of the fibermap: MISSING_ARMS */

enum { FRAME, SPECTRA, RVFIT, NBLOCK };
extern const char *const spx_merge_block_name[NBLOCK];

typedef struct {
    char name[16]; /* b, r, z */
    char path[PATH_LEN];
} spx_merge_arm;

/* What is known of one input. */
typedef struct {
    hid_t file;
    const char *name;
    int has[NBLOCK];
    size_t nrow;
    char camera[16];
    size_t narm; /* of the block that carries wavelengths: frame or spectra, else rvfit */
    spx_merge_arm arms[SPX_MAX_ARM];
    int64_t *fiber, *target;   /* [nrow] of the fibermap; NULL: no such column */
    int32_t *index;            /* [nrow] /frame/fiber, or NULL */
    char (*flagged)[FLAG_LEN]; /* [nrow] MISSING_ARMS of an earlier merge, or NULL */
    spx_cards header;
} spx_merge_input;

/* Where a row of the product comes from. */
typedef struct {
    size_t part, row; /* part SPX_NO_ROW: from nowhere */
} spx_merge_origin;

/* One group of the product with datasets that have a row a spectrum. */
typedef struct {
    char path[PATH_LEN], arm[16];
    const char *pattern; /* its path in the schema */
    size_t part;         /* CAMERAS: the only input that has it; else SPX_NO_ROW */
    size_t nwave;
    size_t first; /* an input that has it */
} spx_merge_group;

typedef struct {
    size_t group;
    char leaf[64];
    int ndim;
    size_t dims[SPX_H5_MAXDIM]; /* dims[0]: rows of the product */
    int is_float, is_signed;
    size_t size; /* bytes of an element */
    int create;  /* in no input: made of the fill value */
} spx_merge_dataset;

struct spx_merge {
    spx_merge_by by;
    int allow_missing, blocks[NBLOCK];
    size_t npart, nout, nmissing;
    spx_merge_input *part;
    spx_merge_origin *ref; /* [nout] FIBERS, ROWS */
    size_t **where;        /* [npart][nout] CAMERAS: row of the input or SPX_NO_ROW */
    int64_t *key;          /* [nout] FIBERS: fibre */
    int key_is_index;      /* the key is /frame/fiber, not fibermap's FIBER */
    size_t ngroup, group_capacity;
    spx_merge_group *groups;
    size_t ndataset, dataset_capacity;
    spx_merge_dataset *datasets;
    int model; /* FIBERS: every input has a model image; they are added */
    spx_text left_out;
};

/* Note that a dataset of an input does not go into the product. */
spx_status spx_merge_leave_out(spx_merge *m, const spx_merge_input *p, const char *path, spx_err *e);

/* Index of an arm of an input, or -1. */
int spx_merge_find_arm(const spx_merge_input *p, const char *name);

/* Group of input `part` that goes into group g of the product, into path[PATH_LEN]; 0 when it has none. */
int spx_merge_source_path(const spx_merge *m, const spx_merge_group *g, size_t part, char *path);

spx_merge_origin spx_merge_row_origin(const spx_merge *m, const spx_merge_group *g, size_t row);

/* Is a word of `len` characters in a list separated by blanks? */
int spx_merge_has_word(const char *text, const char *word, size_t len);

/* Does an input know anything about its row? An earlier merge may have put it in without any arm. */
int spx_merge_row_known(const spx_merge_input *p, size_t row);

/* A table that has a row a spectrum, without MISSING_ARMS. */
spx_status spx_merge_read_table(const spx_merge_input *p, const char *path, spx_table **t, spx_err *e);

/* Blocks, arms, rows, keys and header of p->file. SPX_EINPUT when it cannot be joined with anything. */
spx_status spx_merge_read_input(spx_merge_input *p, spx_err *e);

/* SPX_EINPUT, naming both, when two inputs differ in: the version of a block; an attribute (absent in one only is a
 * difference too); the wavelengths of a group, whose number goes into *nwave; the cards that tell exposures apart. */
spx_status spx_merge_same_version(const spx_merge_input *a, const spx_merge_input *b, const char *pa, const char *pb,
                                  spx_err *e);
spx_status spx_merge_same_attr(const spx_merge_input *a, const spx_merge_input *b, const char *pa, const char *pb,
                               const char *name, spx_err *e);
spx_status spx_merge_same_wavelength(const spx_merge_input *a, const spx_merge_input *b, const char *ga, const char *gb,
                                     size_t *nwave, spx_err *e);
spx_status spx_merge_same_exposure(const spx_merge_input *a, const spx_merge_input *b, spx_err *e);

/* What is joined, from the content: m->by. */
spx_status spx_merge_recognise(spx_merge *m, spx_err *e);

/* m->nout and where each row comes from, for fibres of one camera, cameras of one exposure, and different stars. */
spx_status spx_merge_plan_fibers(spx_merge *m, const spx_merge_options *opt, spx_err *e);
spx_status spx_merge_plan_cameras(spx_merge *m, spx_err *e);
spx_status spx_merge_plan_rows(spx_merge *m, spx_err *e);

/* [nout] texts for MISSING_ARMS; *nmissing counts rows that are not complete. */
spx_status spx_merge_missing_texts(const spx_merge *m, char (**out)[FLAG_LEN], size_t *nmissing, spx_err *e);

#endif
