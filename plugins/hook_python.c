/* Provides hooks in Python: loads an interpreter when --hook is given (base/hook.h).
 *
 * Uses Python's limited API and is not linked with Python: the python3 of the PATH (or the one in SPX_PYTHON) reports
 * its library, which is loaded at run time, so that one build serves every Python from 3.9 on with its packages,
 * virtual environments included. Nothing of Python that is data is used (exceptions, None): functions can be bound
 * late, data cannot. */
#define Py_LIMITED_API 0x03090000
#include <Python.h>
/* after Python.h, which must come first */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <wchar.h>

#include "base/hook.h"
#include "base/mem.h"

enum { KEPT = 4, KEPT_ARRAYS = 8, KEPT_NAME = 32 };

/* Cached step: a stage passes the same few arrays again and again, and only number and time of its steps differ. */
typedef struct {
    const char *stage;
    size_t total, narray;
    spx_hook_array array[KEPT_ARRAYS]; /* storage of the arrays' names */
    char name[KEPT_ARRAYS][KEPT_NAME];
    PyObject *step; /* NULL: the slot is free */
} kept;

typedef struct {
    PyObject *runner, *step, *make, *number, *time; /* Runner, two of its methods, names of a step's attributes */
    PyThreadState *main;                            /* thread state of the thread that opened the hook, while another
                                                     * one runs */
    /* 1: between the first step and spx_hook_release(): one thread has its turn, with its thread state, for one device
     */
    int inside;
    PyGILState_STATE lock;
    PyThreadState *thread;
    spx_hook_space at;
    kept before[KEPT];
    size_t oldest;
} state;

/* One for the process, as is the interpreter. */
static state *running;

extern const char spx_hook_python_source[];

/* ---- finding Python ---- */

typedef struct {
    char version[16], program[PATH_MAX], folder[PATH_MAX], library[256], base[PATH_MAX], free_threaded[8];
} python;

/* Output of a command, up to size - 1 characters. */
static spx_status output_of(char *const argv[], char *text, size_t size, spx_err *e)
{
    int fd[2], wstatus = 0;
    pid_t pid;
    posix_spawn_file_actions_t actions;
    if (pipe2(fd, O_CLOEXEC) != 0)
        return spx_fail(e, SPX_EIO, "--hook: %s", strerror(errno));
    (void)posix_spawn_file_actions_init(&actions);
    (void)posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    (void)posix_spawn_file_actions_adddup2(&actions, fd[1], STDOUT_FILENO);
    const int failed = posix_spawnp(&pid, argv[0], &actions, NULL, argv, environ);
    (void)posix_spawn_file_actions_destroy(&actions);
    (void)close(fd[1]);
    size_t n = 0;
    ssize_t got = 1;
    while (!failed && got > 0 && n + 1 < size)
        if ((got = read(fd[0], text + n, size - 1 - n)) > 0)
            n += (size_t)got;
        else if (got < 0 && errno == EINTR)
            got = 1;
    text[n] = '\0';
    (void)close(fd[0]);
    if (failed)
        return spx_fail(e, SPX_EUSAGE, "--hook: %s: %s: install python3, or name a Python in SPX_PYTHON", argv[0],
                        strerror(failed));
    while (waitpid(pid, &wstatus, 0) < 0 && errno == EINTR)
        ;
    if (wstatus != 0)
        return spx_fail(e, SPX_EUSAGE, "--hook: %s does not work: name another Python in SPX_PYTHON", argv[0]);
    return SPX_OK;
}

static spx_status ask(python *p, spx_err *e)
{
    char text[4 * PATH_MAX], code[] =
                                 "import sys, sysconfig\n"
                                 "v = sysconfig.get_config_var\n"
                                 "print('%d.%d' % sys.version_info[:2], sys.executable, v('LIBDIR'), v('INSTSONAME'), "
                                 "sys.base_prefix, v('Py_GIL_DISABLED'), sep='\\n')\n";
    char *name = getenv("SPX_PYTHON"), usual[] = "python3", isolated[] = "-I", command[] = "-c";
    char *const argv[] = {name != NULL ? name : usual, isolated, command, code, NULL};
    spx_status st = output_of(argv, text, sizeof text, e);
    if (st != SPX_OK)
        return st;
    const struct {
        char *to;
        size_t size;
    } field[] = {{p->version, sizeof p->version}, {p->program, sizeof p->program},
                 {p->folder, sizeof p->folder},   {p->library, sizeof p->library},
                 {p->base, sizeof p->base},       {p->free_threaded, sizeof p->free_threaded}};
    const char *line = text;
    for (size_t i = 0; i < sizeof field / sizeof *field; i++) {
        const size_t n = strcspn(line, "\n");
        if (line[n] != '\n' || n >= field[i].size)
            return spx_fail(e, SPX_EUSAGE, "--hook: %s is no Python: name one in SPX_PYTHON", argv[0]);
        memcpy(field[i].to, line, n);
        field[i].to[n] = '\0';
        line += n + 1;
    }
    int major = 0, minor = 0;
    if (sscanf(p->version, "%d.%d", &major, &minor) != 2 || major != 3 || minor < 9 ||
        strcmp(p->free_threaded, "1") == 0)
        return spx_fail(e, SPX_EUSAGE, "--hook: %s is Python %s%s: 3.9 or newer is needed, with its global lock",
                        p->program, p->version, strcmp(p->free_threaded, "1") == 0 ? ", free-threaded" : "");
    return SPX_OK;
}

/* Loads Python's library, with global symbols, for the plug-in and for extension modules imported later. */
static spx_status load_library(const python *p, spx_err *e)
{
    char path[2 * PATH_MAX];
    const char *const folder[] = {p->folder, p->base, NULL};
    const char *const format[] = {"%s/%s", "%s/lib/%s", NULL};
    for (size_t i = 0; folder[i] != NULL; i++) {
        /* one of two formats of this file */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
        (void)snprintf(path, sizeof path, format[i], folder[i], p->library);
#pragma GCC diagnostic pop
        if (dlopen(path, RTLD_LAZY | RTLD_GLOBAL) != NULL)
            return SPX_OK;
    }
    if (dlopen(p->library, RTLD_LAZY | RTLD_GLOBAL) != NULL)
        return SPX_OK;
    return spx_fail(e, SPX_EUSAGE,
                    "--hook: %s has no shared library %s: install libpython%s, or name another Python in SPX_PYTHON",
                    p->program, p->library, p->version);
}

spx_hook_describe_entry spx_hook_describe_point;

void spx_hook_describe_point(spx_plugin_tell *tell)
{
    python p = {0};
    spx_err e = {0};
    spx_status st = ask(&p, &e);
    if (st == SPX_OK)
        st = load_library(&p, &e);
    if (st == SPX_OK)
        tell("python", "%s, version %s, library %s", p.program, p.version, p.library);
    else
        tell("python", "not usable: %s", spx_err_text(&e));
}

static spx_status start(spx_err *e)
{
    static wchar_t program[PATH_MAX]; /* Python keeps the pointer */
    python p = {0};
    spx_status st = ask(&p, e);
    if (st == SPX_OK)
        st = load_library(&p, e);
    if (st != SPX_OK)
        return st;
    /* locates packages, also of virtual environments, relative to the program; absent from newer headers */
    void (*set_program)(const wchar_t *);
    *(void **)&set_program = dlsym(RTLD_DEFAULT, "Py_SetProgramName");
    const size_t n = mbstowcs(program, p.program, PATH_MAX - 1);
    if (set_program != NULL && n != (size_t)-1)
        set_program(program);
    Py_InitializeEx(0); /* no signal handlers: signals are the program's */
    return SPX_OK;
}

/* ---- functions for hook_python.py ---- */

/* core_order(earlier, later): orders the second stream after the first. */
static PyObject *core_order(PyObject *self, PyObject *args)
{
    unsigned long long earlier, later;
    (void)self;
    if (!PyArg_ParseTuple(args, "KK", &earlier, &later))
        return NULL;
    const int done = running != NULL && running->at.order != NULL &&
                     running->at.order((void *)(uintptr_t)earlier, (void *)(uintptr_t)later) == 0;
    return PyBool_FromLong(done);
}

/* DLPack's structures (https://dmlc.github.io/dlpack): versions 0.x, which every consumer accepts, and version 1, which
 * marks read-only arrays. */
typedef struct {
    void *data;
    int32_t device_type, device_id, ndim;
    uint8_t code, bits;
    uint16_t lanes;
    int64_t *shape, *strides; /* in elements */
    uint64_t byte_offset;
} dl_tensor;

typedef struct dl_managed {
    dl_tensor t;
    void *context;
    void (*deleter)(struct dl_managed *);
} dl_managed;

typedef struct dl_versioned {
    uint32_t major, minor;
    void *context;
    void (*deleter)(struct dl_versioned *);
    uint64_t flags;
    dl_tensor t;
} dl_versioned;

enum { DL_CUDA = 2, DL_READ_ONLY = 1 };

/* Content of a capsule: one of both structures, with storage of its shape and strides. */
typedef struct {
    union {
        dl_managed old;
        dl_versioned now;
    };
    int64_t extent[2 * SPX_HOOK_MAXDIM];
} dl_export;

static void dl_delete(dl_managed *m)
{
    spx_free(m);
}

static void dl_delete_versioned(dl_versioned *m)
{
    spx_free(m);
}

/* Destructor of a capsule: a consumer that has taken ownership has renamed it. */
static void dl_destroy(PyObject *capsule)
{
    if (PyCapsule_IsValid(capsule, "dltensor") || PyCapsule_IsValid(capsule, "dltensor_versioned"))
        spx_free(PyCapsule_GetPointer(capsule, PyCapsule_GetName(capsule)));
}

/* core_dlpack(address, code, bits, shape, strides or None, device, versioned, read-only): makes a capsule. */
static PyObject *core_dlpack(PyObject *self, PyObject *args)
{
    unsigned long long address;
    int code, bits, device, versioned, read_only;
    PyObject *shape, *strides;
    (void)self;
    if (!PyArg_ParseTuple(args, "KiiOOipp", &address, &code, &bits, &shape, &strides, &device, &versioned, &read_only))
        return NULL;
    dl_export *x = spx_alloc(1, sizeof *x, NULL);
    if (x == NULL)
        return PyErr_NoMemory();
    const Py_ssize_t n = PyTuple_Size(shape);
    const int strided = PyTuple_Check(strides);
    for (Py_ssize_t i = 0; i < n && i < SPX_HOOK_MAXDIM; i++) {
        x->extent[i] = PyLong_AsLongLong(PyTuple_GetItem(shape, i));
        if (strided)
            x->extent[SPX_HOOK_MAXDIM + i] = PyLong_AsLongLong(PyTuple_GetItem(strides, i));
    }
    const dl_tensor t = {.data = (void *)(uintptr_t)address,
                         .device_type = DL_CUDA,
                         .device_id = device,
                         .ndim = (int32_t)n,
                         .code = (uint8_t)code,
                         .bits = (uint8_t)bits,
                         .lanes = 1,
                         .shape = x->extent,
                         .strides = strided ? x->extent + SPX_HOOK_MAXDIM : NULL};
    if (versioned)
        x->now = (dl_versioned){
            .major = 1, .deleter = dl_delete_versioned, .flags = read_only ? (uint64_t)DL_READ_ONLY : 0, .t = t};
    else
        x->old = (dl_managed){.t = t, .deleter = dl_delete};
    PyObject *capsule = PyCapsule_New(x, versioned ? "dltensor_versioned" : "dltensor", dl_destroy);
    if (capsule == NULL)
        spx_free(x);
    return capsule;
}

/* ---- the hook ---- */

/* SPX_EBUG: an exception in hook_python.py itself. */
static spx_status internal(spx_err *e)
{
    if (PyErr_Occurred() != NULL)
        PyErr_Print();
    return spx_fail(e, SPX_EBUG, "--hook: Python failed");
}

/* Status from the message that a method of Runner returned, or None. Steals the reference. */
static spx_status answer(const spx_hook *h, PyObject *r, spx_err *e)
{
    if (r == NULL)
        return internal(e);
    spx_status st = SPX_OK;
    if (PyUnicode_Check(r)) {
        PyObject *bytes = PyUnicode_AsEncodedString(r, "utf-8", "replace");
        const char *text = bytes != NULL ? PyBytes_AsString(bytes) : NULL;
        st = spx_fail(e, SPX_EHOOK, "--hook %s: %s", h->file, text != NULL ? text : "failed");
        Py_DecRef(bytes);
    }
    Py_DecRef(r);
    return st;
}

/* Shape or strides of an array as a tuple. */
static PyObject *extents(const spx_hook_array *a, int strides)
{
    PyObject *t = PyTuple_New(a->ndim);
    for (int i = 0; i < a->ndim && t != NULL; i++)
        (void)PyTuple_SetItem(t, i, strides ? PyLong_FromSsize_t(a->stride[i]) : PyLong_FromSize_t(a->shape[i]));
    return t;
}

static int same_array(const spx_hook_array *a, const spx_hook_array *b)
{
    if (a->data != b->data || a->type != b->type || a->ndim != b->ndim || a->writable != b->writable ||
        strcmp(a->name, b->name) != 0)
        return 0;
    for (int i = 0; i < a->ndim; i++)
        if (a->shape[i] != b->shape[i] || a->stride[i] != b->stride[i])
            return 0;
    return 1;
}

static int same_step(const kept *k, const spx_hook_step_info *s)
{
    if (k->step == NULL || k->stage != s->stage || k->total != s->total || k->narray != s->narray)
        return 0;
    for (size_t i = 0; i < s->narray; i++)
        if (!same_array(&k->array[i], &s->array[i]))
            return 0;
    return 1;
}

/* Describes an array for Runner.make_step(): (name, address, type, shape, strides or None, writable). */
static PyObject *describe(const spx_hook *h, const spx_hook_array *a)
{
    int strided = 0;
    for (int i = 0; i < a->ndim; i++)
        strided |= a->stride[i] != 0;
    return Py_BuildValue("(sKiNNi)", a->name, (unsigned long long)(uintptr_t)a->data, (int)a->type, extents(a, 0),
                         strided ? extents(a, 1) : Py_BuildValue(""), a->writable && h->writable);
}

/* Makes a step's object; a new reference. */
static PyObject *make_step(const spx_hook *h, const spx_hook_step_info *s)
{
    const state *t = h->state;
    PyObject *list = PyTuple_New((Py_ssize_t)s->narray), *step = NULL;
    int ok = list != NULL;
    for (size_t i = 0; i < s->narray && ok; i++) {
        PyObject *a = describe(h, &s->array[i]);
        ok = a != NULL && PyTuple_SetItem(list, (Py_ssize_t)i, a) == 0;
    }
    if (ok)
        step = PyObject_CallFunction(t->make, "sKO", s->stage, (unsigned long long)s->total, list);
    Py_DecRef(list);
    return step;
}

/* Calls Runner.leave(), which restores a thread's current streams. The lock is held. */
static void leave_place(state *t)
{
    PyObject *r = PyObject_CallMethod(t->runner, "leave", NULL);
    if (r == NULL)
        PyErr_Print();
    Py_DecRef(r);
    for (size_t i = 0; i < KEPT; i++) {
        Py_DecRef(t->before[i].step);
        t->before[i].step = NULL;
    }
}

/* Takes the lock, and tells Runner the arrays' device and stream when they have changed. */
static int arrive(state *t, const spx_hook_step_info *s)
{
    const int first = !t->inside;
    if (first)
        t->lock = PyGILState_Ensure();
    else
        PyEval_RestoreThread(t->thread);
    t->inside = 1;
    if (!first && t->at.device == s->at.device && t->at.stream == s->at.stream && t->at.order == s->at.order)
        return 1;
    if (!first)
        leave_place(t);
    t->at = s->at;
    PyObject *r =
        PyObject_CallMethod(t->runner, "enter", "iK", s->at.device, (unsigned long long)(uintptr_t)s->at.stream);
    Py_DecRef(r);
    return r != NULL;
}

static int set(PyObject *step, PyObject *name, PyObject *value)
{
    const int ok = value != NULL && PyObject_SetAttr(step, name, value) == 0;
    Py_DecRef(value);
    return ok;
}

/* Caches the step in place of the oldest, where its arrays fit. Steals the reference then; else returns NULL. */
static kept *keep(state *t, const spx_hook_step_info *s, PyObject *step)
{
    if (s->narray > KEPT_ARRAYS)
        return NULL;
    for (size_t i = 0; i < s->narray; i++)
        if (strlen(s->array[i].name) >= KEPT_NAME)
            return NULL;
    kept *k = &t->before[t->oldest++ % KEPT];
    Py_DecRef(k->step);
    *k = (kept){.stage = s->stage, .total = s->total, .narray = s->narray, .step = step};
    for (size_t i = 0; i < s->narray; i++) {
        k->array[i] = s->array[i];
        k->array[i].name = strcpy(k->name[i], s->array[i].name);
    }
    return k;
}

static spx_status hook_step(spx_hook *h, const spx_hook_step_info *s, spx_err *e)
{
    state *t = h->state;
    PyObject *own = NULL, **step = &own;
    int ok = arrive(t, s);
    for (size_t i = 0; i < KEPT && ok; i++)
        if (same_step(&t->before[i], s))
            step = &t->before[i].step;
    if (ok && *step == NULL) {
        ok = (own = make_step(h, s)) != NULL;
        kept *k = ok ? keep(t, s, own) : NULL;
        step = k != NULL ? &k->step : &own;
    }
    if (ok && Py_REFCNT(*step) > 1) { /* the hook has kept the object: make another of the same arrays */
        PyObject *again = PyObject_CallMethod(t->runner, "again", "O", *step);
        ok = again != NULL;
        Py_DecRef(*step);
        *step = again;
    }
    PyObject *r = NULL;
    if (ok && set(*step, t->number, PyLong_FromSize_t(s->number)) && set(*step, t->time, PyFloat_FromDouble(s->time)))
        r = PyObject_CallFunctionObjArgs(t->step, *step, NULL);
    spx_status st = answer(h, r, e);
    if (step == &own)
        Py_DecRef(own);
    t->thread = PyEval_SaveThread();
    return st;
}

static void hook_leave(spx_hook *h)
{
    state *t = h->state;
    if (!t->inside)
        return;
    PyEval_RestoreThread(t->thread);
    leave_place(t);
    t->inside = 0;
    PyGILState_Release(t->lock);
}

static spx_status copy_result(PyObject *item, spx_hook_result *r, spx_err *e)
{
    const char *name;
    int type;
    PyObject *shape;
    unsigned long long address;
    if (!PyArg_ParseTuple(item, "siOK", &name, &type, &shape, &address))
        return internal(e);
    (void)snprintf(r->name, sizeof r->name, "%s", name);
    r->type = (spx_hook_type)type;
    r->ndim = (int)PyTuple_Size(shape);
    size_t n = 1;
    for (int i = 0; i < r->ndim; i++) {
        r->shape[i] = PyLong_AsSize_t(PyTuple_GetItem(shape, i));
        n *= r->shape[i];
    }
    if ((r->data = spx_alloc(n, spx_hook_type_size(r->type), e)) == NULL)
        return SPX_EIO;
    memcpy(r->data, (const void *)(uintptr_t)address, n * spx_hook_type_size(r->type));
    return SPX_OK;
}

static spx_status hook_finish(spx_hook *h, spx_hook_results *r, spx_err *e)
{
    state *t = h->state;
    const PyGILState_STATE lock = PyGILState_Ensure();
    PyObject *both = PyObject_CallMethod(t->runner, "finish", NULL), *failed, *list;
    spx_status st = SPX_OK;
    if (both == NULL || !PyArg_ParseTuple(both, "OO", &failed, &list)) {
        st = internal(e);
    } else {
        Py_IncRef(failed);
        st = answer(h, failed, e);
        const Py_ssize_t n = st == SPX_OK ? PyList_Size(list) : 0;
        if (n > 0 && (r->result = spx_alloc((size_t)n, sizeof *r->result, e)) == NULL)
            st = SPX_EIO;
        for (Py_ssize_t i = 0; i < n && st == SPX_OK; i++)
            st = copy_result(PyList_GetItem(list, i), &r->result[r->n++], e);
    }
    Py_DecRef(both);
    PyGILState_Release(lock);
    return st;
}

static void hook_close(spx_hook *h)
{
    state *t = h->state;
    if (t == NULL)
        return;
    if (t->main != NULL)
        PyEval_RestoreThread(t->main);
    if (Py_IsInitialized()) {
        PyObject *const all[] = {t->step, t->make, t->number, t->time, t->runner};
        for (size_t i = 0; i < sizeof all / sizeof *all; i++)
            Py_DecRef(all[i]);
        /* runs functions that the hook registered with atexit */
        (void)Py_FinalizeEx();
    }
    running = NULL;
    spx_free(t);
    h->state = NULL;
}

static PyObject *function_of(PyMethodDef *m)
{
    return PyCFunction_NewEx(m, NULL, NULL);
}

/* Runs hook_python.py; its Runner into *t. */
static spx_status load_runner(state *t, spx_err *e)
{
    static PyMethodDef order = {"core_order", core_order, METH_VARARGS, NULL},
                       dlpack = {"core_dlpack", core_dlpack, METH_VARARGS, NULL};
    PyObject *globals = PyDict_New(), *c_order = function_of(&order), *c_dlpack = function_of(&dlpack);
    PyObject *code = Py_CompileString(spx_hook_python_source, "specpipe's hook_python.py", Py_file_input), *done = NULL;
    if (globals != NULL && c_order != NULL && c_dlpack != NULL && code != NULL &&
        PyDict_SetItemString(globals, "__builtins__", PyEval_GetBuiltins()) == 0 &&
        PyDict_SetItemString(globals, "core_order", c_order) == 0 &&
        PyDict_SetItemString(globals, "core_dlpack", c_dlpack) == 0)
        done = PyEval_EvalCode(code, globals, globals);
    spx_status st = SPX_OK;
    if (done == NULL) {
        PyErr_Print();
        st = spx_fail(e, SPX_EUSAGE,
                      "--hook: Python cannot start, see above: NumPy is needed: install python3-numpy, or "
                      "name another Python in SPX_PYTHON");
    } else {
        PyObject *type = PyDict_GetItemString(globals, "Runner");
        t->runner = type != NULL ? PyObject_CallFunction(type, NULL) : NULL;
        t->step = t->runner != NULL ? PyObject_GetAttrString(t->runner, "step") : NULL;
        t->make = t->runner != NULL ? PyObject_GetAttrString(t->runner, "make_step") : NULL;
        t->number = PyUnicode_InternFromString("number");
        t->time = PyUnicode_InternFromString("time");
        if (t->step == NULL || t->make == NULL || t->number == NULL || t->time == NULL)
            st = internal(e);
    }
    Py_DecRef(done);
    Py_DecRef(code);
    Py_DecRef(c_dlpack);
    Py_DecRef(c_order);
    Py_DecRef(globals);
    return st;
}

static spx_status open_file(spx_hook *h, const char *source, const char *function, spx_err *e)
{
    state *t = h->state;
    spx_status st = answer(h, PyObject_CallMethod(t->runner, "open", "sss", h->file, source, function), e);
    if (st != SPX_OK)
        return st;
    PyObject *f = PyObject_GetAttrString(t->runner, "function"), *w = PyObject_GetAttrString(t->runner, "writable");
    if (f == NULL || w == NULL)
        st = internal(e);
    else if (!PyCallable_Check(f))
        st = spx_fail(e, SPX_EUSAGE, "--hook %s: it has no function '%s': name one with FILE.py:function", h->file,
                      function);
    else
        h->writable = PyObject_IsTrue(w) == 1;
    Py_DecRef(f);
    Py_DecRef(w);
    return st;
}

spx_hook_entry spx_hook_entry_point_3;

spx_status spx_hook_entry_point_3(spx_hook *h, const char *source, const char *function, spx_err *e)
{
    if (running != NULL)
        return spx_fail(e, SPX_EBUG, "--hook: there is one already");
    spx_status st = start(e);
    if (st != SPX_OK)
        return st;
    state *t = spx_alloc(1, sizeof *t, e);
    if (t == NULL)
        return SPX_EIO;
    h->state = running = t;
    h->step = hook_step;
    h->leave = hook_leave;
    h->finish = hook_finish;
    h->close = hook_close;
    st = load_runner(t, e);
    if (st == SPX_OK)
        st = open_file(h, source, function, e);
    /* release the lock: other threads may call the hook */
    if (st == SPX_OK)
        t->main = PyEval_SaveThread();
    return st;
}
