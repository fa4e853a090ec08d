/* Provides hooks: opens FILE[:function] and loads the plug-in of its language (base/hook.h). */
#include "base/hook.h"

#include <ctype.h>
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/plugin.h"

/* Limit of a hook's source text, bytes: it is written by hand. */
enum { MOST_SOURCE = 16 << 20 };

size_t spx_hook_type_size(spx_hook_type type)
{
    static const unsigned char size[] = {1, 1, 2, 2, 4, 4, 8, 8, 4, 8};
    return size[type];
}

/* Length of FILE in FILE[:function]: the text behind the last colon counts as a function where it is an identifier. */
static size_t name_end(const char *arg)
{
    const char *colon = strrchr(arg, ':');
    if (colon == NULL || !(isalpha((unsigned char)colon[1]) || colon[1] == '_'))
        return strlen(arg);
    for (const char *p = colon + 1; *p != '\0'; p++)
        if (!isalnum((unsigned char)*p) && *p != '_')
            return strlen(arg);
    return (size_t)(colon - arg);
}

static spx_status read_source(const char *path, char **source, spx_err *e)
{
    struct stat sb;
    *source = NULL;
    FILE *f = fopen(path, "rbe");
    if (f == NULL || fstat(fileno(f), &sb) != 0 || !S_ISREG(sb.st_mode)) {
        spx_status st = spx_fail(e, SPX_EUSAGE, "--hook %s: cannot open: %s", path,
                                 f == NULL ? strerror(errno) : "no regular file");
        if (f != NULL)
            (void)fclose(f);
        return st;
    }
    spx_status st = SPX_OK;
    const size_t n = (size_t)sb.st_size;
    if (sb.st_size > MOST_SOURCE)
        st = spx_fail(e, SPX_EUSAGE, "--hook %s: is larger than %d MiB: give a Python file", path, MOST_SOURCE >> 20);
    else if ((*source = spx_alloc(n + 1, 1, e)) == NULL)
        st = SPX_EIO;
    else if (fread(*source, 1, n, f) != n)
        st = spx_fail(e, SPX_EIO, "--hook %s: cannot read", path);
    else if (memchr(*source, '\0', n) != NULL)
        st = spx_fail(e, SPX_EUSAGE, "--hook %s: is no text: give a Python file", path);
    (void)fclose(f);
    return st;
}

static spx_status load_plugin(void **lib, char *library, size_t size, spx_err *e)
{
    const spx_status st = spx_plugin_path("hook-python.so", library, size, e);
    if (st != SPX_OK)
        return spx_err_context(e, "--hook");
    if (access(library, R_OK) != 0)
        return spx_fail(e, SPX_EUSAGE,
                        "--hook: this installation has no hooks (%s is not there): install libpython3-dev and build "
                        "specpipe again",
                        library);
    /* lazy binding: loading the entry loads Python, and with it the symbols that the plug-in uses */
    if ((*lib = dlopen(library, RTLD_LAZY | RTLD_LOCAL)) == NULL)
        return spx_fail(e, SPX_EUSAGE, "--hook: %s", dlerror());
    return SPX_OK;
}

void spx_hook_describe(spx_plugin_tell *tell)
{
    char library[PATH_MAX + 64];
    spx_err e = {0};
    void *lib = NULL;
    if (load_plugin(&lib, library, sizeof library, &e) != SPX_OK) {
        tell("hook python", "not usable: %s", spx_err_text(&e));
        return;
    }
    tell("hook python", "%s", library);
    spx_hook_describe_entry *entry;
    *(void **)&entry = dlsym(lib, SPX_HOOK_DESCRIBE_ENTRY);
    if (entry != NULL)
        entry(tell);
}

spx_status spx_hook_open(spx_hook *h, const char *arg, spx_err *e)
{
    char *source = NULL, library[PATH_MAX + 64];
    spx_hook_entry *entry = NULL;
    const size_t end = name_end(arg);
    memset(h, 0, sizeof *h);
    if (end >= sizeof h->file)
        return spx_fail(e, SPX_EUSAGE, "--hook: the file's name is too long");
    memcpy(h->file, arg, end);
    spx_status st = read_source(h->file, &source, e);
    if (st == SPX_OK)
        st = load_plugin(&h->library, library, sizeof library, e);
    if (st == SPX_OK)
        *(void **)&entry = dlsym(h->library, SPX_HOOK_ENTRY);
    if (st == SPX_OK && entry == NULL)
        st = spx_fail(e, SPX_EUSAGE, "--hook: %s belongs to another version of specpipe: install both alike", library);
    if (st == SPX_OK)
        st = entry(h, source, arg[end] == ':' ? arg + end + 1 : "hook", e);
    if (st != SPX_OK)
        spx_hook_close(h);
    spx_free(source);
    return st;
}

spx_status spx_hook_step(spx_hook *h, const spx_hook_step_info *s, spx_err *e)
{
    if (h == NULL)
        return SPX_OK;
    spx_hook_step_info counted = *s;
    h->calls++;
    if (counted.number == 0)
        counted.number = h->calls;
    return h->step(h, &counted, e);
}

void spx_hook_release(spx_hook *h)
{
    if (h != NULL && h->leave != NULL)
        h->leave(h);
}

spx_status spx_hook_finish(spx_hook *h, spx_hook_results *r, spx_err *e)
{
    memset(r, 0, sizeof *r);
    return h != NULL && h->finish != NULL ? h->finish(h, r, e) : SPX_OK;
}

/* No dlclose(): Python's extension modules do not survive being unloaded. */
void spx_hook_close(spx_hook *h)
{
    if (h->close != NULL)
        h->close(h);
    memset(h, 0, sizeof *h);
}

void spx_hook_results_free(spx_hook_results *r)
{
    for (size_t i = 0; i < r->n; i++)
        spx_free(r->result[i].data);
    spx_free(r->result);
    memset(r, 0, sizeof *r);
}
