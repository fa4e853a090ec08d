/* Provides a read-only file driver of HDF5 for files without an inventory, which checks global heaps before HDF5 reads
 * them: libhdf5 before 1.14 walks through a damaged heap without end, or copies from outside it (H5HG_read()).
 *
 * Texts of variable length and other sequences lie in collections of a global heap (HDF5 File Format Specification,
 * III.E): a header with the collection's size, then objects, each with an index, its size and its bytes. Index 0 is
 * free space, whose size counts its header, too. All of them have to end within the collection. What refers to an
 * object, a number of a collection's object in a value, the driver does not see. */
#ifndef SPX_H5_HEAPS_H
#define SPX_H5_HEAPS_H

#include <hdf5.h>
#include <stddef.h>

/* 1: libhdf5 needs it. Later ones check, and their drivers have another interface. */
#define SPX_HEAPS_NEEDED (!H5_VERSION_GE(1, 14, 0))

/* Sets the driver in a list of file access properties: for a file or, where `image` is not NULL, for the n bytes of one
 * in memory, which have to stay until the file is closed. Negative, with HDF5's error stack: it cannot be. */
herr_t spx_heaps_set(hid_t fapl, const void *image, size_t n);

/* 1: the list names this driver. */
int spx_heaps_is(hid_t fapl);

#endif
