#include "backend.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/plugin.h"

/* ---- the CPU ---- */

static spx_status cpu_extract(spx_backend *b, const spx_image *image, const spx_psf *psf, const spx_extract_options *o,
                              spx_frame *out, spx_extract_counts *counts, spx_err *e)
{
    (void)b;
    return spx_extract_cpu(image, psf, o, out, counts, e);
}

static spx_status cpu_rvfit_open(spx_backend *b, const spx_rvfit_input *in, const spx_rvfit_options *o,
                                 spx_rvfit_plan **plan, spx_err *e)
{
    (void)b;
    return *plan ? SPX_OK : spx_rvfit_open_cpu(in, o, plan, e);
}

static void cpu_rvfit_close(spx_backend *b, spx_rvfit_plan *plan)
{
    (void)b;
    spx_rvfit_close_cpu(plan);
}

static spx_status cpu_rvfit(spx_backend *b, const spx_rvfit_input *in, const spx_rvfit_options *o, spx_progress *p,
                            spx_rvfit *out, spx_err *e)
{
    (void)b;
    return spx_rvfit_cpu(in, o, p, out, e);
}

static spx_status cpu_stack(spx_backend *b, const spx_traces *tr, const spx_shifts *sh, const spx_stack_options *o,
                            spx_stack *out, spx_err *e)
{
    (void)b;
    return spx_stack_cpu(tr, sh, o, out, e);
}

static spx_status cpu_reduce(spx_backend *b, const double *data, size_t outer, size_t n, size_t inner, size_t first,
                             int nthreads, spx_reduce *r, size_t *bad, spx_err *e)
{
    (void)b;
    return spx_reduce_cpu(data, outer, n, inner, first, nthreads, r, bad, e);
}

static spx_status cpu_svd(spx_backend *b, double *a, size_t nrow, size_t ncol, const spx_svd_options *o, spx_svd *out,
                          spx_err *e)
{
    (void)b;
    return spx_svd_cpu(a, nrow, ncol, o, out, e);
}

static spx_status cpu_burgers(spx_backend *b, const spx_burgers_options *o, spx_burgers *out, spx_err *e)
{
    (void)b;
    return spx_burgers_cpu(o, out, e);
}

static void open_cpu(spx_backend *b)
{
    memset(b, 0, sizeof *b);
    b->abi = SPX_BACKEND_ABI;
    (void)snprintf(b->device, sizeof b->device, "cpu");
    b->extract = cpu_extract;
    b->rvfit_open = cpu_rvfit_open;
    b->rvfit_close = cpu_rvfit_close;
    b->rvfit = cpu_rvfit;
    b->stack = cpu_stack;
    b->reduce = cpu_reduce;
    b->svd = cpu_svd;
    b->burgers = cpu_burgers;
    b->nn_open = spx_nn_open_cpu;
}

/* ---- shared objects ---- */

static int has_op(const spx_backend *b, spx_op stage)
{
    switch (stage) {
    case SPX_OP_EXTRACT:
        return b->extract != NULL;
    case SPX_OP_RVFIT:
        return b->rvfit != NULL;
    case SPX_OP_STACK:
        return b->stack != NULL;
    case SPX_OP_REDUCE:
        return b->reduce != NULL;
    case SPX_OP_SVD:
        return b->svd != NULL;
    case SPX_OP_BURGERS:
        return b->burgers != NULL && b->svd != NULL;
    case SPX_OP_TEMPLATE:
        return b->nn_open != NULL;
    }
    return 0;
}

/* The shared object of a backend; its path is given also when it cannot be loaded. */
static spx_status load(const char *name, void **lib, char *path, size_t size, spx_err *e)
{
    char file[64];
    (void)snprintf(file, sizeof file, "backend-%s.so", name);
    spx_plugin_path(file, path, size);
    *lib = NULL;
    /* the backend brings hundreds of megabytes of libraries: where there is no driver, nobody waits for them */
    void *driver = strcmp(name, "cuda") == 0 ? dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL) : NULL;
    if (driver != NULL)
        (void)dlclose(driver);
    else if (strcmp(name, "cuda") == 0)
        return spx_fail(e, SPX_EDEVICE, "--device %s: no CUDA driver is installed: use --device cpu or auto", name);
    if (access(path, R_OK) != 0)
        return spx_fail(e, SPX_EDEVICE, "--device %s: the %s backend is not installed (%s): use --device cpu or auto",
                        name, name, path);
    if ((*lib = dlopen(path, RTLD_NOW | RTLD_LOCAL)) == NULL)
        return spx_fail(e, SPX_EDEVICE, "--device %s: the %s backend cannot be loaded: %s", name, name, dlerror());
    return SPX_OK;
}

static spx_status open_library(spx_backend *b, const char *name, const char *list, spx_op stage, spx_err *e)
{
    char path[PATH_MAX + 64];
    void *lib;
    memset(b, 0, sizeof *b);
    spx_status st = load(name, &lib, path, sizeof path, e);
    if (st != SPX_OK)
        return st;
    spx_backend_entry *entry;
    *(void **)&entry = dlsym(lib, SPX_BACKEND_ENTRY);
    st = entry == NULL ? spx_fail(e, SPX_EDEVICE, "%s: is not a backend of specpipe", path) : entry(b, list, e);
    if (st == SPX_OK && b->abi != SPX_BACKEND_ABI)
        st = spx_fail(e, SPX_EDEVICE, "%s: belongs to another version of specpipe: install both alike", path);
    if (st == SPX_OK && !has_op(b, stage))
        st = spx_fail(e, SPX_EDEVICE, "--device %s: this program has no %s version: use --device cpu or auto", name,
                      name);
    b->library = lib;
    if (st != SPX_OK)
        spx_backend_close(b);
    return st;
}

static void describe(const char *name, spx_plugin_tell *tell)
{
    static const struct {
        const char *name;
        spx_op stage;
    } stage[] = {{"extract", SPX_OP_EXTRACT},  {"rvfit", SPX_OP_RVFIT}, {"stack", SPX_OP_STACK},
                 {"reduce", SPX_OP_REDUCE},    {"svd", SPX_OP_SVD},     {"burgers", SPX_OP_BURGERS},
                 {"template", SPX_OP_TEMPLATE}};
    char path[PATH_MAX + 64], key[64], stages[128];
    spx_backend b = {0};
    spx_err e = {0};
    void *lib = NULL;
    const spx_status st = load(name, &lib, path, sizeof path, &e);
    (void)snprintf(key, sizeof key, "backend %s", name);
    if (st != SPX_OK) {
        tell(key, "not usable: %s", e.msg);
        return;
    }
    tell(key, "%s", path);
    spx_backend_describe_entry *entry;
    *(void **)&entry = dlsym(lib, SPX_BACKEND_DESCRIBE_ENTRY);
    if (entry != NULL)
        entry(tell);
    size_t n = 0;
    /* which it has is known when it is open, on any device */
    if (open_library(&b, name, "", SPX_OP_STACK, &e) == SPX_OK) {
        for (size_t i = 0; i < sizeof stage / sizeof *stage; i++)
            if (has_op(&b, stage[i].stage))
                n += (size_t)snprintf(stages + n, sizeof stages - n, "%s%s", n > 0 ? " " : "", stage[i].name);
        spx_backend_close(&b);
        (void)snprintf(key, sizeof key, "stages %s", name);
        tell(key, "%s", stages);
    } else {
        tell(key, "not usable: %s", e.msg);
    }
    (void)dlclose(lib);
}

void spx_backend_describe(spx_plugin_tell *tell)
{
    tell("backend cpu", "part of each program");
    describe("cuda", tell);
}

void spx_backend_first_alone(const char *device)
{
    static const char *const first[] = {"auto", "cuda", "cuda:0"};
    for (size_t i = 0; i < sizeof first / sizeof *first; i++)
        if (strcmp(device, first[i]) == 0)
            (void)setenv("CUDA_VISIBLE_DEVICES", "0", 0);
}

spx_status spx_backend_open(spx_backend *b, const char *device, spx_op stage, spx_err *why, spx_err *e)
{
    spx_err none = {0};
    if (strcmp(device, "cuda") == 0 || strncmp(device, "cuda:", 5) == 0)
        return open_library(b, "cuda", device[4] == ':' ? device + 5 : "", stage, e);
    if (strcmp(device, "auto") == 0) {
        if (open_library(b, "cuda", "", stage, why != NULL ? why : &none) == SPX_OK)
            return SPX_OK;
    } else if (strcmp(device, "cpu") != 0) {
        return spx_fail(e, SPX_EUSAGE, "--device: '%s' is not auto, cpu, cuda or cuda:0,1...", device);
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
