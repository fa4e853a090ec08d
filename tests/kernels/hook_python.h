/* Provides hooks in Python for tests: whether they are installed, and a hook from a text. */
#ifndef HOOK_PYTHON_H
#define HOOK_PYTHON_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/hook.h"

/* Ends the test as skipped. */
static inline void skip(const char *why)
{
    puts(why);
    exit(77);
}

/* Whether a Python imports a module. */
static inline int imports(const char *python, const char *module)
{
    char command[512];
    (void)snprintf(command, sizeof command, "%s -c 'import %s' >/dev/null 2>&1", python, module);
    return system(command) == 0;
}

/* Plug-in of this build, and a Python that has a module, or the end. */
static inline void choose_python(const char *module)
{
    const char *named = getenv("SPX_PYTHON");
    char exe[1024], path[1200];
    const ssize_t n = readlink("/proc/self/exe", exe, sizeof exe - 1);
    exe[n > 0 ? n : 0] = '\0';
    for (int up = 0; up < 3; up++) /* BUILD/tests/kernels/test_hook_python */
        *strrchr(exe, '/') = '\0';
    (void)snprintf(path, sizeof path, "%s/lib/specpipe", exe);
    (void)setenv("SPX_BACKENDS", path, 0);
    (void)snprintf(path, sizeof path, "%s/hook-python.so", getenv("SPX_BACKENDS"));
    if (access(path, R_OK) != 0)
        skip("built without hooks");
    if (imports(named != NULL ? named : "python3", module))
        return;
    if (named != NULL || !imports("/usr/bin/python3", module))
        skip("no Python with what the test needs");
    (void)setenv("SPX_PYTHON", "/usr/bin/python3", 1);
}

/* The hook of a program text. */
static inline spx_status open_text(spx_hook *h, const char *source, spx_err *e)
{
    char file[] = "/tmp/spx-hook-XXXXXX";
    const size_t n = strlen(source);
    const int fd = mkstemp(file);
    const int written = fd >= 0 && write(fd, source, n) == (ssize_t)n;
    if (fd >= 0)
        (void)close(fd);
    spx_status st = written ? spx_hook_open(h, file, e) : spx_fail(e, SPX_EIO, "cannot write %s", file);
    (void)unlink(file);
    return st;
}

#endif
