/* Provides atomic output: a temporary file in the target directory, closed, synced, renamed. Nothing is left behind
 * after a failure or a signal; an existing output is untouched until the commit. As git's tempfile.h. */
#ifndef SPX_TMPFILE_H
#define SPX_TMPFILE_H

#include <stddef.h>
#include <sys/types.h>

#include "base/err.h"

typedef struct {
    char *target; /* final name; NULL: standard output */
    char *path;   /* name of the temporary file, readable and writable; never NULL while open */
    int fd;       /* its descriptor */
    int force;    /* 1: an existing target may be replaced */
    int slot;     /* index in the list of files to unlink at exit */
} spx_tmpfile;

/* Creates the temporary file. `target` "-" is standard output: the temporary file then lives in $TMPDIR and is copied
 * at the commit. SPX_EIO when the target exists and `force` is 0, is a directory, or nothing can be written there. */
spx_status spx_tmpfile_open(spx_tmpfile *t, const char *target, int force, spx_err *e);

/* Checks of spx_tmpfile_open() that can be made before there is anything to write: SPX_EIO when `target` exists and
 * `force` is 0, or is a directory. */
spx_status spx_tmpfile_check(const char *target, int force, spx_err *e);

/* Syncs, closes and renames (or copies to standard output and checks that it arrived). On failure the temporary file is
 * gone. */
spx_status spx_tmpfile_commit(spx_tmpfile *t, spx_err *e);

/* Closes and removes; safe on a struct of zeros and after a commit. */
void spx_tmpfile_discard(spx_tmpfile *t);

/* Name for messages: the target of the temporary file `path`; `path` itself when it is none. */
const char *spx_tmpfile_shown(const char *path);

/* Permissions after the umask of the program's start, as open() and mkdir() apply it to `mode`. */
mode_t spx_tmpfile_mode(mode_t mode);

/* Writes all of a buffer to a descriptor; `name` is for the message. */
spx_status spx_write_all(int fd, const void *buf, size_t n, const char *name, spx_err *e);

/* Removes temporary files; for functions that end the process at once. May be called from any thread and in a handler
 * of a signal. */
void spx_tmpfile_abandon(void);

/* Registers the removal of temporary files at exit; for spx_ending_guard() (base/ending.h). */
void spx_tmpfile_guard(void);

#endif
