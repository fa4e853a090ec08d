/* Provides backends: tables of the operations that a device can run. The CPU backend is part of every program and is
 * the definition of correct. Others are shared objects that are loaded at run time when they are installed and a usable
 * device is there, so that one package serves machines with and without it, and a new backend touches no tool.
 *
 * A tool asks spx_backend_open() for a device and an operation, and calls it through the table. The operations are
 * listed in operations.def. One that has a hook (--hook) among its options calls it itself, on every backend: only it
 * knows when its arrays are complete, and whether they are the host's or the device's at that time (after a frame, a
 * group of stars, a step). The table calls operations and nothing else. */
#ifndef SPX_BACKEND_H
#define SPX_BACKEND_H

#include "base/err.h"
#include "base/plugin.h"
#include "burgers/burgers.h"
#include "coadd/coadd.h"
#include "extract/extract.h"
#include "extract/motion.h"
#include "flat/flat.h"
#include "flux/flux.h"
#include "psffit/tail_fit.h"
#include "reduce/reduce.h"
#include "rvfit/rvfit.h"
#include "shift/shift.h"
#include "sky/sky.h"
#include "stack/stack.h"
#include "svd/svd.h"
#include "template/nn_steps.h"

/* Version of the interface. A backend calls functions of the program with its structures, so both must be of the same
 * build: the checksum of all headers (SPX_ABI_SUM, from the Makefile) is part of the number. The rest is raised when
 * the table, or a structure that passes through it, changes its meaning but not its declaration. */
#ifndef SPX_ABI_SUM
#define SPX_ABI_SUM 0u
#endif
enum { SPX_BACKEND_ABI = 6 + 16 * (int)(SPX_ABI_SUM & 0x3ffffffu) };

/* SPX_LIST (a, b) is a, b. */
#define SPX_LIST(...) __VA_ARGS__

typedef enum {
#define SPX_OPERATION(NAME, ...) SPX_OP_##NAME,
#include "operations.def"
    SPX_NOPERATION
} spx_op;

typedef struct spx_backend {
    int abi;               /* SPX_BACKEND_ABI */
    char device[256];      /* what computes, for messages and provenance: "cpu", "cuda:0 (NVIDIA H200)" */
    double device_seconds; /* of the last operation's kernels, without copies; 0: not measured */
    /* Bytes that the operations with hooks have copied from devices to the host so far, and to devices; NULL: the CPU.
     */
    void (*copied)(const struct spx_backend *b, size_t *to_host, size_t *to_device);
    void *state;   /* state of the backend */
    void *library; /* handle of the shared object; NULL: the CPU */
    /* Operations; NULL: this backend has none. Contracts as those of the CPU's functions. */
#define SPX_FUNCTION(type, function, cuda, parameters, arguments)                                                      \
    type (*function)(struct spx_backend * b, SPX_LIST parameters);
#include "operations.def"
    void (*close)(struct spx_backend *b);
} spx_backend;

/* Type of the entry point of a shared object backend-NAME.so: fills *b for the devices in `list` ("": any one, or
 * "0,2"; "3@0": the one that the user calls 3, and the driver 0). SPX_EDEVICE with the reason when no device is usable.
 */
typedef spx_status spx_backend_entry(spx_backend *b, const char *list, spx_err *e);
#define SPX_BACKEND_ENTRY "spx_backend_entry_point"

/* Type of the second entry point: tells versions of its libraries, and its devices with their properties, or why one is
 * refused. */
typedef void spx_backend_describe_entry(spx_plugin_tell *tell);
#define SPX_BACKEND_DESCRIBE_ENTRY "spx_backend_describe_point"

/* Name of an operation, and what it computes, as operations.def has them. */
const char *spx_op_name(spx_op op);
const char *spx_op_description(spx_op op);

/* All backends: where they are, whether they can be used and why not, and what they say themselves. */
void spx_backend_describe(spx_plugin_tell *tell);

/* Restricts CUDA to the one device that `device` asks for (cuda:N; auto and cuda: the first, where
 * CUDA_VISIBLE_DEVICES is not set) by setting that variable: initialising each further device costs 0.1 s or more, and
 * processes on different devices wait for each other in the driver. N counts those in view before. For programs, before
 * they have threads; the process cannot use other devices afterwards. */
void spx_backend_restrict(const char *device);

/* Open a backend that has `op`. device "cpu", "cuda", "cuda:0,2": exactly that, or SPX_EDEVICE
 * (an operation may leave parts of a call to the CPU: base/fallback.h). "auto": a device
 * where one is usable, else the CPU; why not is then in `why` (may be NULL). SPX_EUSAGE: another word. */
spx_status spx_backend_open(spx_backend *b, const char *device, spx_op op, spx_err *why, spx_err *e);
void spx_backend_close(spx_backend *b);

#endif
