/* Provides backends: the CPU's table, and shared objects of other devices, opened on demand (backend.h). */
#include "backend.h"

#include <ctype.h>
#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/plugin.h"

/* ---- the CPU ---- */

#define SPX_FUNCTION(type, function, cuda, parameters, arguments)                                                      \
    static type cpu_##function(spx_backend *b, SPX_LIST parameters)                                                    \
    {                                                                                                                  \
        (void)b;                                                                                                       \
        return spx_##function##_cpu arguments;                                                                         \
    }
#include "operations.def"

static void open_cpu(spx_backend *b)
{
    memset(b, 0, sizeof *b);
    b->abi = SPX_BACKEND_ABI;
    (void)snprintf(b->device, sizeof b->device, "cpu");
#define SPX_FUNCTION(type, function, cuda, parameters, arguments) b->function = cpu_##function;
#include "operations.def"
}

/* ---- operations ---- */

static const struct {
    const char *name, *description;
} operation[] = {
#define SPX_OPERATION(NAME, name, function, needs, cuda, description, parameters, arguments) {#name, description},
#include "operations.def"
};

const char *spx_op_name(spx_op op)
{
    return operation[op].name;
}

const char *spx_op_description(spx_op op)
{
    return operation[op].description;
}

static int has_op(const spx_backend *b, spx_op op)
{
    switch (op) {
#define SPX_OPERATION(NAME, name, function, needs, cuda, description, parameters, arguments)                           \
    case SPX_OP_##NAME:                                                                                                \
        return b->function != NULL && b->needs != NULL;
#include "operations.def"
    case SPX_NOPERATION:
        break;
    }
    return 0;
}

/* ---- shared objects ---- */

/* The shared object of a backend; its path is given also when it cannot be loaded. */
static spx_status load_library(const char *name, void **lib, char *path, size_t size, spx_err *e)
{
    char file[64];
    (void)snprintf(file, sizeof file, "backend-%s.so", name);
    *lib = NULL;
    const spx_status st = spx_plugin_path(file, path, size, e);
    if (st != SPX_OK)
        return st;
    /* the backend's libraries take hundreds of megabytes: do not load them where there is no CUDA driver, which stays
     * loaded for them */
    void *driver = strcmp(name, "cuda") == 0 ? dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL | RTLD_NODELETE) : NULL;
    if (driver != NULL)
        (void)dlclose(driver);
    else if (strcmp(name, "cuda") == 0)
        return spx_fail(e, SPX_EDEVICE, "{device} %s: no CUDA driver is installed: use {device} cpu or auto", name);
    if (access(path, R_OK) != 0)
        return spx_fail(e, SPX_EDEVICE, "{device} %s: the %s backend is not installed (%s): use {device} cpu or auto",
                        name, name, path);
    if ((*lib = dlopen(path, RTLD_NOW | RTLD_LOCAL)) == NULL)
        return spx_fail(e, SPX_EDEVICE, "{device} %s: the %s backend cannot be loaded: %s", name, name, dlerror());
    return SPX_OK;
}

static spx_status open_library(spx_backend *b, const char *name, const char *list, spx_op op, spx_err *e)
{
    char path[PATH_MAX + 64];
    void *lib;
    memset(b, 0, sizeof *b);
    spx_status st = load_library(name, &lib, path, sizeof path, e);
    if (st != SPX_OK)
        return st;
    spx_backend_entry *entry;
    *(void **)&entry = dlsym(lib, SPX_BACKEND_ENTRY);
    st = entry == NULL ? spx_fail(e, SPX_EDEVICE, "%s: is not a backend of specpipe", path) : entry(b, list, e);
    if (st == SPX_OK && b->abi != SPX_BACKEND_ABI)
        st = spx_fail(e, SPX_EDEVICE, "%s: belongs to another version of specpipe: install both alike", path);
    if (st == SPX_OK && !has_op(b, op))
        st = spx_fail(e, SPX_EDEVICE, "{device} %s: no %s version of %s (%s): use {device} cpu or auto", name, name,
                      spx_op_name(op), spx_op_description(op));
    b->library = lib;
    if (st != SPX_OK)
        spx_backend_close(b);
    return st;
}

static void describe(const char *name, spx_plugin_tell *tell)
{
    /* room for all names, each with a blank */
#define SPX_OPERATION(NAME, name, ...) #name " "
    char path[PATH_MAX + 64], key[64],
        operations[] =
#include "operations.def"
            "";
    spx_backend b = {0};
    spx_err e = {0};
    void *lib = NULL;
    const spx_status st = load_library(name, &lib, path, sizeof path, &e);
    (void)snprintf(key, sizeof key, "backend %s", name);
    if (st != SPX_OK) {
        tell(key, "not usable: %s", spx_err_text(&e));
        return;
    }
    tell(key, "%s", path);
    spx_backend_describe_entry *entry;
    *(void **)&entry = dlsym(lib, SPX_BACKEND_DESCRIBE_ENTRY);
    if (entry != NULL)
        entry(tell);
    size_t n = 0;
    /* the operations of a backend are known once it is open, whatever the device */
    if (open_library(&b, name, "", SPX_OP_STACK, &e) == SPX_OK) {
        operations[0] = '\0';
        for (int op = 0; op < SPX_NOPERATION; op++)
            if (has_op(&b, (spx_op)op))
                n += (size_t)snprintf(operations + n, sizeof operations - n, "%s%s", n > 0 ? " " : "",
                                      operation[op].name);
        spx_backend_close(&b);
        (void)snprintf(key, sizeof key, "operations %s", name);
        tell(key, "%s", operations);
    } else {
        tell(key, "not usable: %s", spx_err_text(&e));
    }
    (void)dlclose(lib);
}

void spx_backend_describe(spx_plugin_tell *tell)
{
    tell("backend cpu", "part of each program");
    describe("cuda", tell);
}

/* The device N of cuda:N that spx_backend_restrict() has left in view, by itself; -1: none. */
static long only = -1;

void spx_backend_restrict(const char *device)
{
    const char *view = getenv("CUDA_VISIBLE_DEVICES");
    char *end = NULL;
    const int numbered = strncmp(device, "cuda:", 5) == 0 && isdigit((unsigned char)device[5]);
    const long n = numbered ? strtol(device + 5, &end, 10) : 0;
    if (only >= 0 || (numbered && *end != '\0'))
        return;
    if (view == NULL && (numbered || strcmp(device, "auto") == 0 || strcmp(device, "cuda") == 0)) {
        (void)setenv("CUDA_VISIBLE_DEVICES", numbered ? device + 5 : "0", 1);
        only = n;
    } else if (view != NULL && numbered) {
        /* the n-th of a list, of numbers or of names */
        for (long i = 0; i < n && view != NULL; i++)
            view = (view = strchr(view, ',')) != NULL ? view + 1 : NULL;
        char name[256];
        if (view != NULL && (size_t)snprintf(name, sizeof name, "%.*s", (int)strcspn(view, ","), view) < sizeof name &&
            name[0] != '\0' && setenv("CUDA_VISIBLE_DEVICES", name, 1) == 0)
            only = n;
    }
}

spx_status spx_backend_open(spx_backend *b, const char *device, spx_op op, spx_err *why, spx_err *e)
{
    spx_err none = {0};
    char list[32];
    if (strncmp(device, "cuda:", 5) == 0 && strchr(device, '@') == NULL) {
        /* "N@0": the user's device N is the first in view */
        const int alone = only >= 0 && strtol(device + 5, NULL, 10) == only && strchr(device, ',') == NULL;
        (void)snprintf(list, sizeof list, "%ld@0", only);
        return open_library(b, "cuda", alone ? list : device + 5, op, e);
    }
    if (strcmp(device, "cuda") == 0)
        return open_library(b, "cuda", "", op, e);
    if (strcmp(device, "auto") == 0) {
        if (open_library(b, "cuda", "", op, why != NULL ? why : &none) == SPX_OK)
            return SPX_OK;
    } else if (strcmp(device, "cpu") != 0) {
        return spx_fail(e, SPX_EUSAGE, "{device}: '%s' is not auto, cpu, cuda or cuda:0,1...", device);
    }
    open_cpu(b);
    return SPX_OK;
}

void spx_backend_close(spx_backend *b)
{
    if (b->close != NULL)
        b->close(b);
    if (b->library != NULL)
        (void)dlclose(b->library);
    memset(b, 0, sizeof *b);
}
