/* Provides atomic output: a temporary file in the target's folder, closed, synced, renamed, the folder synced. Nothing
 * is left behind after a failure or a signal; an existing output is untouched until the commit. As git's tempfile.h.
 *
 * The folder is opened once: files are made, renamed and removed relative to its descriptor, with O_EXCL and
 * O_NOFOLLOW. A target that is a symbolic link is replaced itself, and what it led to stays; a pipe, terminal or device
 * is written where it is. What standard output and devices get is collected in a file in $TMPDIR.
 *
 * Only SIGKILL and a power failure leave a file: .NAME.specpipe-HOST-PID-XXXXXX, with NAME cut where that would be
 * longer than 255 bytes; spx_tmpfile_clean() removes those of processes that have ended. */
#ifndef SPX_TMPFILE_H
#define SPX_TMPFILE_H

#include <stddef.h>
#include <sys/types.h>

#include "base/err.h"

typedef struct {
    char *target; /* final name; NULL: standard output */
    char *path;   /* name under which a library can open the same file again, while fd is open */
    int fd;       /* its descriptor, for reading and writing */
    int folder;   /* descriptor of its folder */
    int force;    /* 1: an existing target may be replaced */
    int device;   /* 1: the target is a pipe, a terminal or a device */
    int slot;     /* index in the list of files to unlink at exit */
} spx_tmpfile;

/* Creates the temporary file for `target`, "-" for standard output. SPX_EIO when the target exists and `force` is 0, is
 * a directory, or nothing can be written there. */
spx_status spx_tmpfile_open(spx_tmpfile *t, const char *target, int force, spx_err *e);

/* Checks of spx_tmpfile_open() that can be made before there is anything to write: SPX_EIO when `target` exists and
 * `force` is 0, or is a directory. */
spx_status spx_tmpfile_check(const char *target, int force, spx_err *e);

/* Syncs, closes, renames and syncs the folder (or copies to standard output and checks that it arrived). On failure the
 * temporary file is gone; when the folder alone cannot be synced, the target is there. */
spx_status spx_tmpfile_commit(spx_tmpfile *t, spx_err *e);

/* Closes and removes; safe on a struct of zeros and after a commit. */
void spx_tmpfile_discard(spx_tmpfile *t);

/* Standard output by a name under which a library can open it again, where it is a file. */
#define SPX_STDOUT_PATH "/proc/self/fd/1"

/* Name for messages: the target of the temporary file `path`, standard output; `path` itself when it is none. */
const char *spx_tmpfile_shown(const char *path);

/* A new name for a temporary file or folder beside `base`, of at most `most` bytes (NAME_MAX or less, 64 or more), into
 * name[NAME_MAX + 1]. */
void spx_tmpfile_name(const char *base, size_t most, char *name);

/* Removes what killed processes of this machine have left in a folder, not below it; `tell` gets the name of each
 * temporary file, and "removed" or why it is kept. */
spx_status spx_tmpfile_clean(const char *folder, void (*tell)(const char *name, const char *what), spx_err *e);

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
