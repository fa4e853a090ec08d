/* Keeps failures inside HDF5 from being taken for answers.
 *
 * A link or an attribute is absent, present, or cannot be looked up because a read failed, memory ran out or the file
 * is damaged. HDF5 tells the third by a negative value, deep within calls whose callers ask only whether something is
 * there. So each failure of a call is looked at when it happens, through HDF5's own error handler, and the first that
 * is the machine's fault (errno of a driver, memory), or a lookup in a damaged structure, is kept. A program that has
 * one pending commits no product and does not end with success (app/main.h, run/queue_run.h). HDF5 is called by one
 * thread. */
#ifndef SPX_H5_FAILURE_H
#define SPX_H5_FAILURE_H

#include <hdf5.h>

#include "base/err.h"

/* Installs the error handler, in place of the one that prints. It has to go before HDF5 is closed. */
void spx_h5_watch(void);

/* The failure that is pending, in *e, which is forgotten then: SPX_EIO for the machine's fault, SPX_EINPUT for a
 * damaged file; SPX_OK: none. */
spx_status spx_h5_pending(spx_err *e);

/* A lookup of `path` below `loc` failed though what it is in is there. Keeps it as damage, unless a failure is pending.
 */
void spx_h5_lookup_failed(hid_t loc, const char *path);

/* Values of an input are damaged, as *found says. Keeps that, unless a failure is pending: a caller may go on without
 * them. */
void spx_h5_keep_damage(const spx_err *found);

/* The file of the failure that is pending, where HDF5 did not name it. */
void spx_h5_name_failure(const char *name);

/* A status, or what is pending where that is graver: the machine's fault in place of anything but SPX_EIO, damage in
 * place of success or of "no". Then *e says so. */
spx_status spx_h5_settle(spx_status st, spx_err *e);

#endif
