/* A backend is a table of the stages that a device can run. The CPU backend is part of every program and is the
 * definition of correct. Others are shared objects that are loaded at run time when they are installed and a usable
 * device is there, so that one package serves machines with and without it, and a new backend touches no tool.
 *
 * A tool asks spx_backend_open() for a device and a stage, and calls the stage through the table. */
#ifndef SPX_BACKEND_H
#define SPX_BACKEND_H

#include "base/err.h"
#include "base/plugin.h"
#include "burgers/burgers.h"
#include "extract/extract.h"
#include "reduce/reduce.h"
#include "rvfit/rvfit.h"
#include "stack/stack.h"
#include "svd/svd.h"
#include "template/nn_steps.h"

/* A backend of another ABI is not used. It calls functions of the program with structures of theirs, so that it has to
 * be of the same build: the sum of all headers (SPX_ABI_SUM, from the Makefile) is a part of it. The rest is raised
 * whenever the table or a structure that passes through it changes its meaning, not its declaration. */
#ifndef SPX_ABI_SUM
#define SPX_ABI_SUM 0u
#endif
enum { SPX_BACKEND_ABI = 6 + 16 * (int)(SPX_ABI_SUM & 0x3ffffffu) };

typedef enum {
    SPX_OP_EXTRACT,
    SPX_OP_RVFIT,
    SPX_OP_STACK,
    SPX_OP_REDUCE,
    SPX_OP_SVD,
    SPX_OP_BURGERS,
    SPX_OP_TEMPLATE
} spx_op;

typedef struct spx_backend {
    int abi;               /* SPX_BACKEND_ABI */
    char device[256];      /* what computes, for messages and provenance: "cpu", "cuda:0 (NVIDIA H200)" */
    double device_seconds; /* of the last stage's kernels, without copies; 0: not measured */
    /* Bytes that the stages with hooks have copied from devices to the host so far, and to devices; NULL: the CPU. */
    void (*copied)(const struct spx_backend *b, size_t *to_host, size_t *to_device);
    void *state;   /* the backend's own */
    void *library; /* handle of the shared object; NULL: the CPU */
    /* Stages; NULL: this backend has none. Contracts as those of the CPU's functions. */
    spx_status (*extract)(struct spx_backend *b, const spx_image *image, const spx_psf *psf,
                          const spx_extract_options *o, spx_frame *out, spx_extract_counts *counts, spx_err *e);
    /* A plan that in->plan of rvfit may be, from *plan, which is the CPU's or NULL; and its end, which NULL may be too.
     */
    spx_status (*rvfit_open)(struct spx_backend *b, const spx_rvfit_input *in, const spx_rvfit_options *o,
                             spx_rvfit_plan **plan, spx_err *e);
    void (*rvfit_close)(struct spx_backend *b, spx_rvfit_plan *plan);
    spx_status (*rvfit)(struct spx_backend *b, const spx_rvfit_input *in, const spx_rvfit_options *o, spx_progress *p,
                        spx_rvfit *out, spx_err *e);
    spx_status (*stack)(struct spx_backend *b, const spx_traces *tr, const spx_shifts *sh, const spx_stack_options *o,
                        spx_stack *out, spx_err *e);
    spx_status (*reduce)(struct spx_backend *b, const double *data, size_t outer, size_t n, size_t inner, size_t first,
                         int nthreads, spx_reduce *r, size_t *bad, spx_err *e);
    spx_status (*svd)(struct spx_backend *b, double *a, size_t nrow, size_t ncol, const spx_svd_options *o,
                      spx_svd *out, spx_err *e);
    spx_status (*burgers)(struct spx_backend *b, const spx_burgers_options *o, spx_burgers *out, spx_err *e);
    /* of the stage `template` only the training of networks */
    spx_nn_open *nn_open;
    void (*close)(struct spx_backend *b);
} spx_backend;

/* Entry of a shared object backend-NAME.so: fill in *b for the devices in `list` ("" any one, or "0,2").
 * SPX_EDEVICE says why there is no usable device. */
typedef spx_status spx_backend_entry(spx_backend *b, const char *list, spx_err *e);
#define SPX_BACKEND_ENTRY "spx_backend_entry_point"

/* The other entry: versions of its libraries, and its devices with what each can, or why it is refused. */
typedef void spx_backend_describe_entry(spx_plugin_tell *tell);
#define SPX_BACKEND_DESCRIBE_ENTRY "spx_backend_describe_point"

/* All backends: where they are, whether they can be used and why not, and what they say themselves. */
void spx_backend_describe(spx_plugin_tell *tell);

/* Has the driver start the first device alone where `device` asks for no other (auto, cuda, cuda:0), unless
 * CUDA_VISIBLE_DEVICES says which: it takes a tenth of a second or more for each device that it starts, needed or not.
 * For programs, before they have threads; the process sees no other device from then on. */
void spx_backend_first_alone(const char *device);

/* Open a backend that has `stage`. device "cpu", "cuda", "cuda:0,2": exactly that, or SPX_EDEVICE
 * (a stage may leave parts of a call to the CPU: base/fallback.h). "auto": a device
 * where one is usable, else the CPU; why not is then in `why` (may be NULL). SPX_EUSAGE: another word. */
spx_status spx_backend_open(spx_backend *b, const char *device, spx_op stage, spx_err *why, spx_err *e);
void spx_backend_close(spx_backend *b);

#endif
