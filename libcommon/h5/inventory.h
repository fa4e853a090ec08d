/* Provides the inventory of an HDF5 file: checksums of all its bytes, kept outside the structure that they describe.
 *
 * It follows the HDF5 file's end, where HDF5 looks at nothing: other programs read the file as ever, and HDF5 cuts it
 * off when a program changes the file, which then counts as any other file without inventory. So do copies by h5repack
 * and h5copy. On a pipe it follows the file image.
 *
 * The bytes are those of contiguous datasets, and all others: the structure, that is groups, attributes, chunks, what
 * is not used. The structure is verified when a file is opened, before HDF5 sees it; of datasets the pieces that are
 * read, each once.
 *
 * Format: words of 8 bytes, little-endian. Head: magic, format (1), bytes of the inventory, bytes of the HDF5 file,
 * bytes of a piece, number of extents. Extents, which follow each other from the file's beginning to its end: bytes,
 * kind (0: structure, 1: dataset), length of the name; the name, filled with NUL to whole words: the dataset, or the
 * object whose header is the last one before the end of the extent's first bytes; XXH3 (64 bits) of each piece, the
 * last one shorter. A word 0 where the whole would be a power of two long: so one flipped bit of the superblock never
 * makes the HDF5 file end where the inventory does. End: XXH3 of all before, bytes of the inventory, another magic. */
#ifndef SPX_H5_INVENTORY_H
#define SPX_H5_INVENTORY_H

#include <hdf5.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

/* SPX_INVENTORY_HEAD: bytes of the head. SPX_INVENTORY_PIECE: bytes of a piece in files written here. */
enum { SPX_INVENTORY_HEAD = 48, SPX_INVENTORY_PIECE = 1 << 17 };

typedef struct spx_inventory spx_inventory;

/* 0: files are read as if they had none (--no-verify). */
void spx_inventory_use(int on);

/* ---- reading ---- */

/* 1 when an inventory may begin with this byte; no HDF5 file does. */
int spx_inventory_begins(unsigned char byte);
/* Bytes of the inventory that has this head; 0: it is none. */
uint64_t spx_inventory_bytes(const unsigned char head[SPX_INVENTORY_HEAD]);
/* Takes the n `bytes`, from spx_alloc(), of the inventory of an HDF5 file of `length` bytes, and frees them in every
 * case. SPX_EINPUT: it is damaged. *v is NULL where inventories are not used. */
spx_status spx_inventory_parse(spx_inventory **v, unsigned char *bytes, size_t n, uint64_t length, const char *name,
                               spx_err *e);
/* Inventory of a regular file of `size` bytes, whose superblock says that the HDF5 file has `length` (0: unknown). *v
 * is NULL where there is none. */
spx_status spx_inventory_find(spx_inventory **v, int fd, uint64_t size, uint64_t length, const char *name, spx_err *e);
/* Verifies the structure, of a descriptor or, where `image` is not NULL, in memory. SPX_EINPUT: it differs. */
spx_status spx_inventory_check(spx_inventory *v, int fd, const void *image, spx_err *e);
/* Makes v the inventory of an open file, whose datasets are verified when they are read. */
void spx_inventory_attach(spx_inventory *v, hid_t file, int fd, const void *image);
/* Detaches and frees; NULL is allowed. */
void spx_inventory_free(spx_inventory *v);

/* ---- verifying ---- */

/* Inventory of the file of an object; NULL: none. */
spx_inventory *spx_inventory_of(hid_t object);
/* Verifies what the selection `fspace` (H5S_ALL: all) of dataset d spans. SPX_EINPUT names the dataset. */
spx_status spx_inventory_verify(hid_t d, hid_t fspace, spx_err *e);
/* Verifies all datasets, and calls `damaged` for each that differs. *has: the file has an inventory. */
spx_status spx_inventory_verify_all(hid_t file, void (*damaged)(void *ctx, const char *path), void *ctx, int *has,
                                    spx_err *e);
/* Bytes of a piece of the dataset whose `bytes` bytes begin at `at`; 0: v knows no such dataset. Of any thread. */
size_t spx_inventory_piece(const spx_inventory *v, uint64_t at, uint64_t bytes);
/* 1 when the n bytes `p` are the piece of a dataset that begins at `at`. Of any thread. */
int spx_inventory_matches(const spx_inventory *v, uint64_t at, const void *p, size_t n);
/* SPX_EINPUT for dataset `path`, which differs. */
spx_status spx_inventory_differs(const char *name, const char *path, spx_err *e);

/* ---- writing ---- */

/* Sums of values are taken while they are written to `file`, an output that is open, from the memory that they come
 * from: its inventory does not read them back. HDF5's thread alone, until spx_inventory_begin() or
 * spx_inventory_unwatch(). */
spx_status spx_inventory_watch(hid_t file, spx_err *e);
void spx_inventory_unwatch(hid_t file);
/* The `len` bytes p, as they are in the file, are written at byte `from` of the values of dataset d. NULL: others are,
 * and what was noted of these bytes holds no longer. Nothing where the file is not watched, or d is small or not
 * contiguous. */
void spx_inventory_note(hid_t d, uint64_t from, const void *p, size_t len);

/* Notes the objects of a file that is complete but for values to be deferred, and takes its sums if it is watched. *v
 * is NULL in a build without checksums (make check-cuda). */
spx_status spx_inventory_begin(spx_inventory **v, hid_t file, spx_err *e);
/* The closed file has `length` bytes: gives each its place in the inventory. */
spx_status spx_inventory_extend(spx_inventory *v, uint64_t length, spx_err *e);
/* Enters the n bytes of a piece of the dataset that begins at `at`, which were or will be written there; other bytes
 * are ignored. Of any thread. */
void spx_inventory_enter(spx_inventory *v, uint64_t at, const void *p, size_t n);
/* Enters all other pieces, of which no sum was taken, read back from the descriptor or, where `image` is not NULL, from
 * memory, with up to `nthreads` threads. */
spx_status spx_inventory_fill(spx_inventory *v, int fd, const void *image, int nthreads, const char *name, spx_err *e);
/* The inventory as bytes. Free with spx_free(). */
spx_status spx_inventory_write(const spx_inventory *v, unsigned char **bytes, size_t *n, spx_err *e);

#endif
