/* Provides a read-only file driver of HDF5 for files without an inventory, which checks global heaps before HDF5 reads
 * them: libhdf5 before 1.14 walks through a damaged heap without end, or copies from outside it (H5HG_read()). Files
 * without a name are read by it, too: HDF5's own driver follows links to one.
 *
 * Texts of variable length and other sequences lie in collections of a global heap (HDF5 File Format Specification,
 * III.E): a header with the collection's size, then objects, each with an index, its size and its bytes. Index 0 is
 * free space, whose size counts its header, too. All of them have to end within the collection. A value that refers to
 * an object has its length, the collection's address and the object's number, which the driver does not see: whoever
 * reads texts or sequences asks spx_heaps_attribute() or spx_heaps_values() before. */
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

/* Are the texts or sequences in their heaps, and as long as it says, that an attribute refers to, n elements, or the
 * selection `space` of a dataset? 1 also for other types, and where this driver does not read the file. 0: not, which
 * is kept as damage (h5/failure.h). */
int spx_heaps_attribute(hid_t attribute, hid_t type, size_t n);
int spx_heaps_values(hid_t dataset, hid_t type, hid_t memory, hid_t space);

#endif
