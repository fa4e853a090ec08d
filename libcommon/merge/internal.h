/* Provides what the files of h5merge share: the inputs as read, and the plan of the product. */
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

extern const char spx_merge_missing_column[]; /* column of the fibermap, MISSING_ARMS */

enum { FRAME, SPECTRA, RVFIT, NBLOCK };
extern const char *const spx_merge_block_name[NBLOCK];

typedef struct {
    char name[16]; /* b, r, z */
    char path[PATH_LEN];
} spx_merge_arm;

/* Description of one input. */
typedef struct {
    hid_t file;
    const char *name;
    int has[NBLOCK];
    size_t nrow;
    char camera[16];
    size_t narm; /* arms of the block with wavelengths: frame or spectra, else rvfit */
    spx_merge_arm arms[SPX_MAX_ARM];
    int64_t *fiber, *target;   /* [nrow] of the fibermap; NULL: no such column */
    int32_t *index;            /* [nrow] /frame/fiber, or NULL */
    char (*flagged)[FLAG_LEN]; /* [nrow] MISSING_ARMS of an earlier merge, or NULL */
    spx_cards header;
} spx_merge_input;

/* Source of a row of the product. */
typedef struct {
    size_t part, row; /* index of the input, and row in it; part SPX_NO_ROW: none */
} spx_merge_origin;

/* Group of the product with datasets that have a row a spectrum. */
typedef struct {
    char path[PATH_LEN], arm[16];
    const char *pattern; /* its path in the schema */
    size_t part;         /* CAMERAS: index of the only input that has the group; else SPX_NO_ROW */
    size_t nwave;
    int per_row;  /* 1: wavelengths are a dataset with a row a spectrum, too */
    size_t first; /* index of an input that has it */
} spx_merge_group;

typedef struct {
    size_t group;
    char leaf[64];
    int ndim;
    size_t dims[SPX_H5_MAXDIM]; /* dims[0]: rows of the product */
    int is_float, is_signed;
    size_t size; /* bytes of an element */
    int create;  /* 1: in no input, made of the fill value */
} spx_merge_dataset;

struct spx_merge {
    spx_merge_by by;
    int allow_missing, allow_repeated, blocks[NBLOCK];
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
    int model; /* FIBERS, 1: every input has a model image; they are added */
    spx_text left_out;
};

/* Lists a dataset of an input as left out of the product. */
spx_status spx_merge_leave_out(spx_merge *m, const spx_merge_input *p, const char *path, spx_err *e);

/* Index of an arm of an input, or -1. */
int spx_merge_find_arm(const spx_merge_input *p, const char *name);

/* Path of group g of the product in input `part`, into path[PATH_LEN]; 0 when the input has no such group. */
int spx_merge_source_path(const spx_merge *m, const spx_merge_group *g, size_t part, char *path);

spx_merge_origin spx_merge_row_origin(const spx_merge *m, const spx_merge_group *g, size_t row);

/* 1 when a word of `len` characters is in a list separated by blanks. */
int spx_merge_has_word(const char *text, const char *word, size_t len);

/* 1 when an input has information on its row: an earlier merge may have added it without any arm. */
int spx_merge_row_known(const spx_merge_input *p, size_t row);

/* Reads a table with a row a spectrum, without MISSING_ARMS. */
spx_status spx_merge_read_table(const spx_merge_input *p, const char *path, spx_table **t, spx_err *e);

/* Reads blocks, arms, rows, keys and header of p->file. SPX_EINPUT when it cannot be joined with any input. */
spx_status spx_merge_read_input(spx_merge_input *p, spx_err *e);

/* Compare two inputs; SPX_EINPUT, naming both, when they differ in: the version of a block; an attribute (also when one
 * lacks it); the wavelengths of a group, whose number goes into *nwave (of groups with a grid for each row, *per_row 1,
 * only the number, and that all increase); the cards that identify an exposure. */
spx_status spx_merge_same_version(const spx_merge_input *a, const spx_merge_input *b, const char *pa, const char *pb,
                                  spx_err *e);
spx_status spx_merge_same_attr(const spx_merge_input *a, const spx_merge_input *b, const char *pa, const char *pb,
                               const char *name, spx_err *e);
spx_status spx_merge_same_wavelength(const spx_merge_input *a, const spx_merge_input *b, const char *ga, const char *gb,
                                     size_t *nwave, int *per_row, spx_err *e);
spx_status spx_merge_same_exposure(const spx_merge_input *a, const spx_merge_input *b, spx_err *e);

/* Bins of a group whose flux or ivar cannot be, by rows of the product. */
typedef struct {
    size_t n, capacity;
    struct spx_merge_bin {
        size_t row, bin;
    } * bin;
} spx_merge_bins;

/* Sums of the values of rows, for rows that are there twice. */
typedef struct {
    size_t n;
    struct spx_merge_sum {
        uint64_t sum;
        size_t row;
    } * row; /* [nout] */
} spx_merge_sums;

/* Repairs rows r0 ... r0+n-1 of a dataset in buf: values that are not finite, or negative in ivar, become 0, and so do
 * flux and ivar at `bad`, to which those of flux and ivar are added; the mask gets NODATA there. */
spx_status spx_merge_repair(const spx_merge *m, const spx_merge_dataset *d, size_t r0, size_t n, size_t nelem,
                            char *buf, spx_merge_bins *bad, spx_merge_repairs *repairs, spx_err *e);
/* Adds rows r0 ... r0+n-1 of a dataset to the sums, but for those that are 0. */
void spx_merge_add_sums(size_t r0, size_t n, size_t rowbytes, const char *buf, spx_merge_sums *sums);
/* SPX_EINPUT, naming both, where two rows of one target, or of none, have the same values. */
spx_status spx_merge_check_sums(const spx_merge *m, const spx_merge_dataset *d, spx_merge_sums *sums, spx_err *e);

/* Recognises the kind of join from the content: sets m->by. */
spx_status spx_merge_recognise(spx_merge *m, spx_err *e);

/* Plan m->nout and the source of each row, for fibres of one camera, cameras of one exposure, and different stars. */
spx_status spx_merge_plan_fibers(spx_merge *m, const spx_merge_options *opt, spx_err *e);
spx_status spx_merge_plan_cameras(spx_merge *m, spx_err *e);
spx_status spx_merge_plan_rows(spx_merge *m, spx_err *e);

/* [nout] texts for MISSING_ARMS; *nmissing counts incomplete rows. */
spx_status spx_merge_missing_texts(const spx_merge *m, char (**out)[FLAG_LEN], size_t *nmissing, spx_err *e);

#endif
