/* Atomic output: a temporary file in the target directory, closed, synced, renamed. Nothing is left behind after a
 * failure or a signal; an existing output is untouched until the commit. As git's tempfile.h. */
#ifndef SPX_TMPFILE_H
#define SPX_TMPFILE_H

#include <stddef.h>
#include <sys/types.h>

#include "base/err.h"

typedef struct {
    char *target; /* final name; NULL: standard output */
    char *path;   /* name of the temporary file, readable and writable; never NULL while open */
    int fd;       /* descriptor of it */
    int force;    /* an existing target may be replaced */
    int slot;     /* for the clean-up at exit */
} spx_tmpfile;

/* Create. `target` "-" is standard output: the temporary file then lives in $TMPDIR and is copied at the commit.
 * SPX_EIO when the target exists and `force` is 0, is a directory, or nothing can be written there. */
spx_status spx_tmpfile_open(spx_tmpfile *t, const char *target, int force, spx_err *e);

/* What of spx_tmpfile_open() can be known before there is anything to write: SPX_EIO when `target` exists and `force`
 * is 0, or is a directory. */
spx_status spx_tmpfile_check(const char *target, int force, spx_err *e);

/* Sync, close and rename (or copy to standard output and check that it arrived). On failure the temporary file is gone.
 */
spx_status spx_tmpfile_commit(spx_tmpfile *t, spx_err *e);

/* Close and remove; safe on a struct of zeros and after a commit. */
void spx_tmpfile_discard(spx_tmpfile *t);

/* For messages: the target of the temporary file called `path`; `path` itself when it is none. */
const char *spx_tmpfile_shown(const char *path);

/* What open() and mkdir() would make of these permissions: `mode` without the umask of the program's start. */
mode_t spx_tmpfile_mode(mode_t mode);

/* Write all of a buffer to a descriptor; `name` is for the message. */
spx_status spx_write_all(int fd, const void *buf, size_t n, const char *name, spx_err *e);

/* Remove temporary files when the program exits or a signal ends it (once, at program start; SIGPIPE and SIGXFSZ
 * are ignored, so that a closed pipe and a file beyond the size limit are errors of write()). */
void spx_tmpfile_guard(void);

/* Standard output takes text, and no product: where its reader stops (`| head`), SIGPIPE ends the program without a
 * word, as it ends others. Also where the parent ignored that signal. */
void spx_text_output(void);

#endif
