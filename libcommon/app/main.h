/* Provides the main() of all programs: parses options, opens inputs, makes the output, records provenance, commits, and
 * sets the exit status.
 *
 * A tool is a spx_program and a run function:
 *     int main(int argc, char **argv) { return spx_main(&program, argc, argv); }
 * run() returns SPX_OK after spx_run_commit(), or an error in *e; spx_main() prints it, leaves no output behind, and
 * exits with its code. */
#ifndef SPX_APP_MAIN_H
#define SPX_APP_MAIN_H

#include <hdf5.h>
#include <stddef.h>

#include "app/opt.h"
#include "base/ending.h"
#include "base/err.h"
#include "base/fallback.h"
#include "base/hook.h"
#include "base/lines.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/progress.h"
#include "base/tmpfile.h"
#include "h5/deferred.h"
#include "h5/file.h"

typedef struct spx_run spx_run;

enum {
    SPX_OUT_HDF5 = 0,    /* writes one HDF5 product */
    SPX_OUT_NONE = 1,    /* writes text on stdout, if anything (h5check) */
    SPX_OUT_OTHER = 2,   /* opens its output through spx_run_tmpfile() (h52fits) */
    SPX_IN_OPTIONAL = 4, /* may run without input files; stdin is not read then (specx-sim) */
    SPX_USES_DEVICE = 8, /* uses a kernel: calls spx_backend_open() for the device */
    SPX_OUT_LATE = 16,   /* calls spx_run_need_output() itself, if it makes an output */
    SPX_USES_HOOK = 32,  /* has the option --hook and passes spx_run_hook() to its kernel */
    SPX_USES_BLAS = 64   /* BLAS is loaded before run(), while there is one thread (num/blas.h) */
};

typedef struct {
    const char *name, *summary, *usage;
    const spx_opt *options; /* own options, ended by {0}; may be NULL */
    unsigned flags;
    spx_status (*run)(spx_run *s, spx_err *e);
    const char *example; /* the most common command line, for --help */
} spx_program;

/* Values of the options that all programs share. */
typedef struct {
    const char *output; /* NULL until resolved; "-": standard output */
    int force, verbose, quiet, progress, reproducible, verify;
    long threads;       /* > 0 after parsing */
    const char *device; /* "auto", "cpu", "cuda", "cuda:0,2" */
    size_t max_mem;     /* bytes; 0: no limit */
    const char *hook;   /* FILE.py[:function]; NULL: none */
    int help, version;
} spx_common;

struct spx_run {
    const spx_program *program;
    spx_common common;
    size_t ninput;
    char **input; /* names, "-" for stdin */
    struct spx_run_private *p;
};

int spx_main(const spx_program *p, int argc, char **argv);

/* Opens input i; spx_main() closes it. */
spx_status spx_run_input(spx_run *s, size_t i, spx_input **in, spx_err *e);
/* Opens a further input that an option names (--psf FILE, --templates FILE); recorded like the others. */
spx_status spx_run_extra_input(spx_run *s, const char *path, spx_input **in, spx_err *e);
/* Registers an input that is open already, allocated with spx_alloc(): checked and recorded like the others. own = 1:
 * closed and freed with the product, on success; else the caller does so, after the product has ended. */
spx_status spx_run_use_input(spx_run *s, spx_input *in, int own, spx_err *e);
/* SPX_EUSAGE when the input is the output as well. */
spx_status spx_run_check_input(spx_run *s, const spx_input *in, spx_err *e);
/* Closes and frees an input that no product owns. NULL is allowed. */
void spx_run_close_input(spx_input *in);
/* Registers an input that is not HDF5, which the tool reads itself: checked to differ from the output, and recorded. */
spx_status spx_run_foreign_input(spx_run *s, const char *path, spx_err *e);
/* Registers one likewise that is text, and opens it. Close *l only after SPX_OK. */
spx_status spx_run_text_input(spx_run *s, const char *path, spx_lines *l, spx_err *e);

/* For SPX_OUT_LATE: resolves the target of the output; SPX_EUSAGE where that would be a terminal. Call it before
 * opening inputs. */
spx_status spx_run_need_output(spx_run *s, spx_err *e);
/* Creates the output. `product` is the name of its main block (root attribute). Copies the provenance of all inputs
 * opened so far. */
spx_status spx_run_output(spx_run *s, const char *product, hid_t *file, spx_err *e);
/* Deferred writes of the product in work, which spx_product_flush() writes; NULL where values are written at once: a
 * program's only product, and standard output. */
spx_h5_writes *spx_run_writes(spx_run *s);
/* A further HDF5 output that an option names (--truth FILE), with root attributes and provenance like the main one;
 * committed before it. */
spx_status spx_run_side_output(spx_run *s, const char *target, const char *product, hid_t *file, spx_err *e);
/* For SPX_OUT_OTHER: a temporary file that is committed by spx_run_commit(); `target` NULL: the -o option. */
spx_status spx_run_tmpfile(spx_run *s, const char *target, spx_tmpfile **t, spx_err *e);

/* Begins step `name` ("read", "extract", "write"), whose seconds go into the provenance. */
void spx_run_step(spx_run *s, const char *name);
/* Ends the step; no time is counted until the next one. */
void spx_run_pause(spx_run *s);
/* Adds seconds of a step that were measured elsewhere. */
void spx_run_seconds(spx_run *s, const char *name, double seconds);
/* Adds a line `name=value` to this run's provenance record (counts, device in use). */
spx_status spx_run_record(spx_run *s, const char *name, spx_err *e, const char *fmt, ...) SPX_PRINTF(4, 5);

/* The hook of --hook for a kernel's options, opened by the first call; NULL without the option. spx_run_commit() writes
 * its results under /insitu of the main output. */
spx_status spx_run_hook(spx_run *s, spx_hook **h, spx_err *e);
/* For programs with several products: passes the results of the hook (spx_hook_finish()) for the current product, and
 * takes ownership of them. */
void spx_run_insitu(spx_run *s, spx_hook_results *r);

/* Records the device that computed (spx_backend's `device`) in the provenance. */
void spx_run_device(spx_run *s, const char *device);

/* Reports work of the current product that the CPU computed in place of that device, if any: a warning if --device
 * names the device, else a detail (-v), after `label` (may be ""); UNIT_on_cpu in the provenance; and, summed over the
 * run's products, in the last line (-v). All calls of a run have the same unit. */
spx_status spx_run_fallback(spx_run *s, const char *label, const spx_fallback *f, spx_err *e);

/* Writes the provenance record, closes and renames. */
spx_status spx_run_commit(spx_run *s, spx_err *e);

/* ---- several products in one run ----
 *
 * The functions above act on the current product: the only one of most programs, or the one that
 * spx_run_begin_product() made or spx_run_switch_product() named. Inputs, outputs, steps and records belong to it. All
 * are for one thread, but spx_product_flush() and spx_product_publish(). */
typedef struct spx_product spx_product;

/* Begins a product for `target` ("-" for standard output, whose products follow each other), and makes it the current
 * one. `target` must stay valid until it ends. SPX_EIO when the target exists and must not be replaced; call
 * spx_run_end_product() on failure, too. */
spx_status spx_run_begin_product(spx_run *s, const char *target, spx_product **p, spx_err *e);
void spx_run_switch_product(spx_run *s, spx_product *p);
/* Inputs of the current product, names with tabs between, where the only input on the command line is a list of several
 * products' inputs: for the command that makes it alone. `line` must stay valid until the product ends. */
void spx_run_line(spx_run *s, const char *line);
/* Sets the prefix of the lines with its seconds of steps, including the colon; it must stay valid until the product
 * ends. */
void spx_product_label(spx_product *p, const char *label);
/* spx_run_commit() in three: all that HDF5 has to do with, for the product in work; deferred
 * writes, with up to `nthreads` threads, then sync and rename, or send, in any thread. */
spx_status spx_run_close_product(spx_run *s, spx_err *e);
spx_status spx_product_flush(spx_product *p, int nthreads, spx_err *e);
spx_status spx_product_publish(spx_product *p, spx_err *e);
/* Discards what was not published, closes the inputs, frees. NULL is allowed. */
void spx_run_end_product(spx_run *s, spx_product *p);

#endif
