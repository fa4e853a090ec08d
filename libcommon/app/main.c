/* Provides the run of a program: shared options, inputs, output, steps and their seconds, provenance, and products of a
 * queue (app/main.h). */
#include "app/main.h"

#include <errno.h>
#include <fcntl.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/infile.h"
#include "base/shortage.h"
#include "base/text.h"
#include "h5/attr.h"
#include "h5/deferred.h"
#include "h5/failure.h"
#include "h5/file.h"
#include "h5/insitu.h"
#include "h5/inventory.h"
#include "h5/provenance.h"
#include "num/blas.h"

enum { MOST_INPUTS = 4096, MAX_STEP = 24, MAX_TMP = 4 };

/* State of one product, from its inputs to its provenance. */
struct spx_product {
    const char *target; /* target of the main output; NULL until it is known */
    const char *line;   /* its inputs in a list, with tabs between; NULL: they are on the command line */
    const char *label;  /* prefix of messages about it; NULL: none */
    int in_queue;       /* 1: one of several products; standard output stays open after it */
    struct {
        spx_input *in;
        int own;
    } * in;
    size_t nin, in_capacity;
    spx_output *out, *side[MAX_TMP];
    size_t nside;
    spx_tmpfile tmp[MAX_TMP];
    size_t ntmp;
    spx_text inputs, record;
    spx_hook_results insitu;
    int hook_done; /* 1: the program passed the hook's results (spx_run_insitu()) */
    char started[32];
    struct {
        char name[32];
        double seconds;
    } step[MAX_STEP];
    size_t nstep, step_now;
    double step_begun; /* by spx_seconds() */
};

struct spx_run_private {
    spx_opt_program opts;
    spx_product first, *now; /* now: the current product, which functions act on; first: the only one of most
                              * programs */
    spx_text command;
    int argc;     /* of the command line, and a copy of argv before options were parsed, which moves them */
    char **argv;  /* NULL: not --reproducible */
    double begun; /* by spx_seconds() */
    char device[256];
    spx_fallback fallback; /* sum over all products */
    spx_hook hook;         /* its member `step` is NULL until it is opened */
};

/* ---- options that all programs share (data, spliced into each table as samtools' sam_opts.h) ---- */

enum { NSHARED = 18 };

/* Splits the shared options: those of the output into `out`, all others into `t`. */
static void shared_options(spx_common *c, unsigned flags, spx_opt *out, spx_opt *t)
{
    const int device = (flags & SPX_USES_DEVICE) != 0;
    size_t n = 0;
    if (!(flags & SPX_OUT_NONE)) {
        out[n++] = (spx_opt)SPX_OPTION(
            STRING, "output", 'o', "FILE|-", c->output,
            "Write the product to this file; - is standard output. Nothing is written to a terminal", .absent = "-");
        out[n++] = (spx_opt)SPX_OPTION(FLAG, "force", 'f', NULL, c->force, "Replace an output that exists");
    }
    out[n] = (spx_opt){0};
    n = 0;
    t[n++] = (spx_opt)SPX_HEADING("Common options");
    t[n++] = (spx_opt)SPX_OPTION(
        INT, "threads", 'j', "N", c->threads,
        "Number of threads, 0 for OMP_NUM_THREADS or one a processor. The result does not depend on it", .min = 0,
        .max = 4096, .brief = !device && (flags & SPX_OUT_NONE), .place = "");
    t[n++] = (spx_opt)SPX_OPTION(
        STRING, "device", 0, "DEVICE", c->device,
        "Where to compute: auto, cpu, cuda (the first GPU), or some of them: cuda:0,2. Only those named are started; "
        "auto takes the CPU when there is nothing better",
        .brief = !device, .place = ":");
    if (flags & SPX_USES_HOOK)
        t[n++] = (spx_opt)SPX_OPTION(
            STRING, "hook", 0, "FILE.py[:FUNCTION]", c->hook,
            "Call this Python function after each step or batch with the arrays where they are. Without a name it is "
            "the one called hook",
            .brief = 1);
    t[n++] = (spx_opt)SPX_OPTION(BYTES, "max-mem", 0, "SIZE", c->max_mem,
                                 "Largest amount of memory to use, such as 500M or 4G; 0: no limit", .absent = "0",
                                 .brief = 1);
    t[n++] = (spx_opt)SPX_OPTION(
        FLAG, "reproducible", 0, NULL, c->reproducible,
        "Leave times, host, -j and which GPU out of the provenance, so that equal runs give equal files", .brief = 1);
    t[n++] = (spx_opt)SPX_OPTION(FLAG, "verify", 0, NULL, c->verify,
                                 "Take damaged input files as they are: do not compare them with their inventory",
                                 .brief = 1, .no = 1);
    t[n++] = (spx_opt)SPX_OPTION(FLAG, "progress", 0, NULL, c->progress,
                                 "Show progress. It is shown on a terminal without this option, and never with "
                                 "--no-progress",
                                 .brief = 1);
    t[n++] = (spx_opt)SPX_OPTION(FLAG, "verbose", 'v', NULL, c->verbose, "Report more, with times");
    t[n++] = (spx_opt)SPX_OPTION(FLAG, "quiet", 'q', NULL, c->quiet, "Report errors only", .brief = 1);
    t[n++] = (spx_opt)SPX_OPTION(FLAG, "help", 'h', NULL, c->help, "Show this help");
    t[n++] = (spx_opt)SPX_OPTION(FLAG, "version", 0, NULL, c->version, "Show the version", .brief = 1);
    t[n] = (spx_opt){0};
}

/* ---- time ---- */

static void end_step(spx_product *p)
{
    if (p->step_now < MAX_STEP) {
        p->step[p->step_now].seconds += spx_seconds() - p->step_begun;
        spx_detail("%s%s: %.3f s", p->label != NULL ? p->label : "", p->step[p->step_now].name,
                   p->step[p->step_now].seconds);
    }
    p->step_now = MAX_STEP;
}

/* Index of a step, appended where its name is new; MAX_STEP: the table is full. */
static size_t find_step(spx_product *p, const char *name)
{
    size_t i = 0;
    while (i < p->nstep && strcmp(p->step[i].name, name) != 0)
        i++;
    if (i == p->nstep && i < MAX_STEP) {
        (void)snprintf(p->step[i].name, sizeof p->step[i].name, "%s", name);
        p->nstep++;
    }
    return i;
}

void spx_run_step(spx_run *s, const char *name)
{
    spx_product *p = s->p->now;
    end_step(p);
    p->step_now = find_step(p, name);
    p->step_begun = spx_seconds();
}

void spx_run_pause(spx_run *s)
{
    end_step(s->p->now);
}

void spx_run_seconds(spx_run *s, const char *name, double seconds)
{
    spx_product *p = s->p->now;
    const size_t i = find_step(p, name);
    if (i < MAX_STEP)
        p->step[i].seconds += seconds;
}

static void note_start(spx_product *p)
{
    time_t now = time(NULL);
    struct tm tm;
    if (gmtime_r(&now, &tm) != NULL)
        (void)strftime(p->started, sizeof p->started, "%Y-%m-%dT%H:%M:%SZ", &tm);
}

/* ---- inputs ---- */

static spx_status refuse_output(spx_run *s, const char *name, uint64_t dev, uint64_t ino, spx_err *e)
{
    struct stat sb;
    const char *out = s->p->now->target;
    if (out == NULL)
        return SPX_OK;
    int there = strcmp(out, "-") == 0 ? fstat(STDOUT_FILENO, &sb) == 0 : stat(out, &sb) == 0;
    if (there && S_ISREG(sb.st_mode) && (uint64_t)sb.st_dev == dev && (uint64_t)sb.st_ino == ino)
        return spx_fail_at(e, SPX_EUSAGE, name, NULL, "write to another file", "is both input and output");
    return SPX_OK;
}

static spx_status note_input(spx_run *s, const char *name, size_t size, int64_t mtime, spx_err *e)
{
    spx_product *p = s->p->now;
    const time_t t = (time_t)mtime;
    const size_t line = p->inputs.n > 0 ? p->inputs.n + 1 : 0;
    struct tm tm;
    char when[48] = "";
    if (!s->common.reproducible && mtime != 0 && gmtime_r(&t, &tm) != NULL)
        (void)strftime(when, sizeof when, ", changed %Y-%m-%dT%H:%M:%SZ", &tm);
    spx_status st = spx_text_add(&p->inputs, e, "%s%s (%zu bytes%s)", line > 0 ? "\n" : "", name, size, when);
    if (st == SPX_OK)
        (void)spx_text_one_line(p->inputs.s + line);
    return st;
}

spx_status spx_run_check_input(spx_run *s, const spx_input *in, spx_err *e)
{
    return in->ino != 0 ? refuse_output(s, in->name, in->dev, in->ino, e) : SPX_OK;
}

spx_status spx_run_use_input(spx_run *s, spx_input *in, int own, spx_err *e)
{
    spx_product *p = s->p->now;
    void *more = spx_grow(p->in, p->nin, 1, &p->in_capacity, sizeof *p->in, e);
    if (more == NULL)
        return SPX_EIO;
    p->in = more;
    p->in[p->nin].in = in;
    p->in[p->nin].own = 0;
    spx_status st = spx_run_check_input(s, in, e);
    /* the name of a pipe is the shell's, and another one the next time */
    const char *name = s->common.reproducible && in->ino == 0 ? "standard input" : in->name;
    if (st == SPX_OK)
        st = note_input(s, name, in->size, in->mtime, e);
    if (st == SPX_OK)
        p->in[p->nin++].own = own;
    return st;
}

void spx_run_close_input(spx_input *in)
{
    if (in != NULL)
        spx_input_close(in);
    spx_free(in);
}

spx_status spx_run_extra_input(spx_run *s, const char *path, spx_input **in, spx_err *e)
{
    spx_input *x = spx_alloc(1, sizeof *x, e);
    if (x == NULL)
        return SPX_EIO;
    x->file = H5I_INVALID_HID;
    spx_status st = spx_input_open(x, path, e);
    if (st == SPX_OK)
        st = spx_run_use_input(s, x, 1, e);
    if (st != SPX_OK) {
        spx_run_close_input(x);
        return st;
    }
    *in = x;
    return st;
}

spx_status spx_run_input(spx_run *s, size_t i, spx_input **in, spx_err *e)
{
    if (i >= s->ninput)
        return spx_fail(e, SPX_EBUG, "no such input");
    return spx_run_extra_input(s, s->input[i], in, e);
}

spx_status spx_run_foreign_input(spx_run *s, const char *path, spx_err *e)
{
    struct stat sb;
    if (strcmp(path, "-") == 0)
        return note_input(s, "standard input", 0, 0, e);
    if (stat(path, &sb) != 0)
        return spx_fail_open(path, errno, e);
    spx_status st = refuse_output(s, path, (uint64_t)sb.st_dev, (uint64_t)sb.st_ino, e);
    return st == SPX_OK ? note_input(s, path, (size_t)sb.st_size, (int64_t)sb.st_mtime, e) : st;
}

spx_status spx_run_text_input(spx_run *s, const char *path, spx_lines *l, spx_err *e)
{
    const spx_status st = spx_run_foreign_input(s, path, e);
    return st == SPX_OK ? spx_lines_open(l, path, e) : st;
}

/* ---- output ---- */

/* Target without -o: standard output, unless that is a terminal. */
static spx_status resolve_output(spx_run *s, spx_err *e)
{
    if (s->common.output == NULL) {
        if (isatty(STDOUT_FILENO))
            return spx_fail(e, SPX_EUSAGE,
                            "the output would go to the terminal: give -o FILE, or put this program in a pipe");
        s->common.output = "-";
    } else if (strcmp(s->common.output, "-") == 0 && isatty(STDOUT_FILENO)) {
        return spx_fail(e, SPX_EUSAGE,
                        "-o -: standard output is a terminal: give a file, or put this program in a pipe");
    }
    s->p->now->target = s->common.output;
    return SPX_OK;
}

spx_status spx_run_need_output(spx_run *s, spx_err *e)
{
    return resolve_output(s, e);
}

/* Creates an HDF5 output with its root attributes and the provenance of the inputs. */
static spx_status make_output(spx_run *s, const char *target, const char *product, spx_output **out, spx_err *e)
{
    spx_product *p = s->p->now;
    spx_status st = spx_output_open(out, target, s->common.force, e);
    if (st != SPX_OK)
        return st;
    hid_t file = spx_output_file(*out);
    if ((st = spx_h5_set_str(file, "/", "product", product, e)) != SPX_OK ||
        (st = spx_h5_set_str(file, "/", "schema_version", "1.0", e)) != SPX_OK ||
        (st = spx_h5_set_str(file, "/", "creator", "specpipe " SPX_VERSION, e)) != SPX_OK)
        return st;
    hid_t *from = spx_alloc(p->nin, sizeof *from, e);
    if (from == NULL)
        return SPX_EIO;
    for (size_t i = 0; i < p->nin; i++)
        from[i] = p->in[i].in->file;
    st = spx_provenance_copy(p->nin, from, file, e);
    spx_free(from);
    return st;
}

spx_status spx_run_output(spx_run *s, const char *product, hid_t *file, spx_err *e)
{
    spx_product *p = s->p->now;
    spx_status st = make_output(s, p->target, product, &p->out, e);
    if (st == SPX_OK) {
        *file = spx_output_file(p->out);
    }
    return st;
}

spx_h5_writes *spx_run_writes(spx_run *s)
{
    spx_product *p = s->p->now;
    return p->in_queue && p->out != NULL ? spx_output_writes(p->out) : NULL;
}

spx_status spx_run_side_output(spx_run *s, const char *target, const char *product, hid_t *file, spx_err *e)
{
    spx_product *p = s->p->now;
    if (p->nside == MAX_TMP)
        return spx_fail(e, SPX_EBUG, "too many outputs");
    if (strcmp(target, "-") == 0)
        return spx_fail(e, SPX_EUSAGE, "-: only the main output can go to standard output: give a file name");
    spx_status st = make_output(s, target, product, &p->side[p->nside], e);
    if (st == SPX_OK)
        *file = spx_output_file(p->side[p->nside]);
    p->nside++;
    return st;
}

spx_status spx_run_tmpfile(spx_run *s, const char *target, spx_tmpfile **t, spx_err *e)
{
    spx_product *p = s->p->now;
    if (p->ntmp == MAX_TMP)
        return spx_fail(e, SPX_EBUG, "too many outputs");
    spx_status st = spx_tmpfile_open(&p->tmp[p->ntmp], target != NULL ? target : p->target, s->common.force, e);
    if (st == SPX_OK)
        *t = &p->tmp[p->ntmp++];
    return st;
}

spx_status spx_run_record(spx_run *s, const char *name, spx_err *e, const char *fmt, ...)
{
    char value[1024];
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(value, sizeof value, fmt, ap);
    va_end(ap);
    return spx_text_add(&s->p->now->record, e, "%s=%s\n", name, spx_text_one_line(value));
}

void spx_run_device(spx_run *s, const char *device)
{
    (void)snprintf(s->p->device, sizeof s->p->device, "%s", device);
}

spx_status spx_run_fallback(spx_run *s, const char *label, const spx_fallback *f, spx_err *e)
{
    spx_fallback *all = &s->p->fallback;
    const int explicit_device = strcmp(s->common.device, "auto") != 0;
    char name[64];
    all->unit = f->unit;
    all->total += f->total;
    all->on_cpu += f->on_cpu;
    if (f->on_cpu == 0)
        return SPX_OK;
    (explicit_device ? spx_warn : spx_detail)("%s--device %s: %zu of %zu %s were computed on the CPU: %s", label,
                                              s->common.device, f->on_cpu, f->total, f->unit, f->reason);
    (void)snprintf(name, sizeof name, "%s_on_cpu", f->unit);
    return spx_run_record(s, name, e, "%zu", f->on_cpu);
}

/* The product's own input with this name on the command line; NULL: it has none. */
static const spx_input *own_input(const spx_product *p, const char *name)
{
    for (size_t i = 0; i < p->nin; i++)
        if (strcmp(p->in[i].in->name, strcmp(name, "-") == 0 ? "standard input" : name) == 0)
            return p->in[i].in;
    return NULL;
}

/* Where a value, which is part of it, begins in a word of the command line; -1: it is of another word. */
static int place_in(const char *word, const char *value)
{
    int at = 0;
    while (word + at != value && word[at] != '\0')
        at++;
    return word + at == value ? at : -1;
}

/* The command that makes a product of a queue alone: with its own inputs, pipes being standard input, and its own
 * target. So the bytes of a product do not depend on the others that one process makes. */
static spx_status own_command(const spx_run *s, spx_text *out, spx_err *e)
{
    const struct spx_run_private *r = s->p;
    const spx_product *p = r->now;
    static char from_pipe[] = "-";
    char *line = p->line != NULL ? spx_strdup(p->line, e) : NULL, *joined = NULL, *next = NULL;
    /* a list, one word, becomes its line's names: no more than half of its bytes and one */
    char **argv = spx_alloc((size_t)r->argc + (line != NULL ? strlen(line) / 2 + 1 : 0), sizeof *argv, e);
    int argc = 0;
    spx_status st = argv != NULL && (line != NULL || p->line == NULL) ? SPX_OK : SPX_EIO;
    for (int i = 0; i < r->argc && st == SPX_OK; i++) {
        char *arg = r->argv[i];
        const int at = place_in(arg, s->common.output);
        int file = 0;
        for (size_t k = 0; k < s->ninput && !file; k++)
            file = s->input[k] == arg;
        const spx_input *in = file ? own_input(p, arg) : NULL;
        for (size_t k = 0; in != NULL && s->input[k] != arg; k++) /* a PSF may stand before several images */
            in = strcmp(s->input[k], arg) == 0 ? NULL : in;
        if (file && line != NULL) {
            for (char *name = strtok_r(line, "\t", &next); name != NULL; name = strtok_r(NULL, "\t", &next)) {
                in = own_input(p, name);
                argv[argc++] = in != NULL && in->ino == 0 ? from_pipe : name;
            }
        } else if (file) {
            if (in != NULL)
                argv[argc++] = in->ino == 0 ? from_pipe : arg;
        } else if (at >= 0) { /* the value of -o, perhaps behind its name */
            spx_text t = {0};
            st = spx_text_add(&t, e, "%.*s%s", at, arg, p->target);
            argv[argc++] = joined = t.s;
        } else {
            argv[argc++] = arg;
        }
    }
    if (st == SPX_OK)
        st = spx_opt_command(&r->opts, argc, argv, 1, out, e);
    spx_free(joined);
    spx_free(argv);
    spx_free(line);
    return st;
}

/* Kinds of the devices "cuda:0 (NVIDIA H200), cuda:1 (NVIDIA H200)": "cuda (NVIDIA H200)", without their numbers, each
 * once. No longer than the devices. */
static void device_kinds(const char *devices, char *kinds, size_t size)
{
    size_t n = 0;
    kinds[0] = '\0';
    for (const char *d = devices; *d != '\0'; d += strncmp(d, ", ", 2) == 0 ? 2 : 0) {
        const char *const end = strstr(d, ", ") != NULL ? strstr(d, ", ") : d + strlen(d);
        char kind[256];
        const size_t number = strcspn(d, ": ,");
        const char *const rest = d[number] == ':' ? d + number + strcspn(d + number, " ,") : d + number;
        (void)snprintf(kind, sizeof kind, "%.*s%.*s", (int)number, d, (int)(end - rest), rest);
        if (strstr(kinds, kind) == NULL)
            n += (size_t)snprintf(kinds + n, size - n, "%s%s", n > 0 ? ", " : "", kind);
        d = end;
    }
}

static spx_status write_provenance(spx_run *s, hid_t file, spx_err *e)
{
    const spx_product *p = s->p->now;
    /* options that cannot change results are not recorded */
    static const char *const skip[] = {"help",         "version",       "progress", "verbose", "quiet",
                                       "force",        "output",        "threads",  "max-mem", "max-device-mem",
                                       "reproducible", "skip-existing", "verify",   NULL};
    const int all_fields = !s->common.reproducible;
    char *options = spx_opt_record(&s->p->opts, skip, !all_fields, e), host[256] = "", kinds[sizeof s->p->device];
    spx_text steps = {0}, all = {0}, command = {0};
    const int own = s->p->argv != NULL && p->in_queue;
    spx_status st =
        options == NULL ? SPX_EIO : spx_text_add(&all, e, "%s%s", options, p->record.n > 0 ? p->record.s : "");
    if (st == SPX_OK && own)
        st = own_command(s, &command, e);
    for (size_t i = 0; i < p->nstep && st == SPX_OK; i++)
        st = spx_text_add(&steps, e, "%s%s %.3f", i > 0 ? "\n" : "", p->step[i].name, p->step[i].seconds);
    (void)gethostname(host, sizeof host - 1);
    device_kinds(s->p->device, kinds, sizeof kinds);
    spx_provenance r = {.program = s->program->name,
                        .version = SPX_VERSION,
                        .command_line = own ? command.s : s->p->command.s,
                        .options = all.s,
                        .device = kinds[0] == '\0' ? NULL
                                  : all_fields     ? s->p->device
                                                   : kinds,
                        .inputs = p->inputs.n > 0 ? p->inputs.s : NULL,
                        .started = all_fields ? p->started : NULL,
                        .host = all_fields ? host : NULL,
                        .step_seconds = all_fields && steps.n > 0 ? steps.s : NULL};
    if (st == SPX_OK)
        st = spx_provenance_append(file, &r, e);
    spx_free(options);
    spx_text_free(&steps);
    spx_text_free(&all);
    spx_text_free(&command);
    return st;
}

spx_status spx_run_hook(spx_run *s, spx_hook **h, spx_err *e)
{
    spx_hook *own = &s->p->hook;
    *h = s->common.hook != NULL ? own : NULL;
    return *h == NULL || own->step != NULL ? SPX_OK : spx_hook_open(own, s->common.hook, e);
}

void spx_run_insitu(spx_run *s, spx_hook_results *r)
{
    spx_product *p = s->p->now;
    p->insitu = *r;
    p->hook_done = 1;
    memset(r, 0, sizeof *r);
}

/* Writes the hook's results into the product. */
static spx_status write_insitu(spx_run *s, spx_err *e)
{
    spx_product *p = s->p->now;
    spx_hook *hook = &s->p->hook;
    if (hook->step == NULL)
        return SPX_OK;
    spx_status st = spx_run_foreign_input(s, hook->file, e);
    if (st == SPX_OK && !p->hook_done)
        st = spx_hook_finish(hook, &p->insitu, e);
    return st == SPX_OK && p->out != NULL ? spx_insitu_write(spx_output_file(p->out), &p->insitu, e) : st;
}

spx_status spx_run_close_product(spx_run *s, spx_err *e)
{
    spx_product *p = s->p->now;
    end_step(p);
    spx_status st = spx_h5_settle(SPX_OK, e);
    if (st == SPX_OK)
        st = write_insitu(s, e);
    for (size_t i = 0; i < p->nside && st == SPX_OK; i++)
        st = write_provenance(s, spx_output_file(p->side[i]), e);
    if (p->out != NULL && st == SPX_OK)
        st = write_provenance(s, spx_output_file(p->out), e);
    for (size_t i = 0; i < p->nside && st == SPX_OK; i++)
        st = spx_output_close(p->side[i], e);
    if (p->out != NULL && st == SPX_OK)
        st = spx_output_close(p->out, e);
    return spx_h5_settle(st, e);
}

spx_status spx_product_flush(spx_product *p, int nthreads, spx_err *e)
{
    spx_status st = SPX_OK;
    for (size_t i = 0; i < p->nside && st == SPX_OK; i++)
        st = spx_output_flush(p->side[i], nthreads, e);
    return p->out != NULL && st == SPX_OK ? spx_output_flush(p->out, nthreads, e) : st;
}

static spx_status publish(spx_output **out, spx_err *e)
{
    spx_output *now = *out;
    *out = NULL;
    return spx_output_publish(now, e);
}

spx_status spx_product_publish(spx_product *p, spx_err *e)
{
    const int to_stdout = p->out != NULL && strcmp(p->target, "-") == 0 && !p->in_queue;
    spx_status st = SPX_OK;
    /* side outputs are committed first: when the main output appears, they exist */
    for (size_t i = 0; i < p->ntmp && st == SPX_OK; i++)
        st = spx_tmpfile_commit(&p->tmp[i], e);
    for (size_t i = 0; i < p->nside && st == SPX_OK; i++)
        st = publish(&p->side[i], e);
    if (p->out != NULL && st == SPX_OK)
        st = publish(&p->out, e);
    if (to_stdout && st == SPX_OK)
        st = spx_output_end_stdout(e);
    return st;
}

spx_status spx_run_commit(spx_run *s, spx_err *e)
{
    spx_status st = spx_run_close_product(s, e);
    if (st == SPX_OK)
        st = spx_product_flush(s->p->now, (int)s->common.threads, e);
    if (st == SPX_OK)
        st = spx_product_publish(s->p->now, e);
    if (st == SPX_OK)
        spx_ending_success();
    return st;
}

/* ---- several products in one run ---- */

static void end_product(spx_product *p)
{
    spx_output_discard(p->out);
    for (size_t i = 0; i < p->nside; i++)
        spx_output_discard(p->side[i]);
    for (size_t i = 0; i < p->ntmp; i++)
        spx_tmpfile_discard(&p->tmp[i]);
    for (size_t i = 0; i < p->nin; i++)
        if (p->in[i].own)
            spx_run_close_input(p->in[i].in);
    spx_free(p->in);
    spx_text_free(&p->inputs);
    spx_text_free(&p->record);
    spx_hook_results_free(&p->insitu);
    memset(p, 0, sizeof *p);
    p->step_now = MAX_STEP;
}

spx_status spx_run_begin_product(spx_run *s, const char *target, spx_product **product, spx_err *e)
{
    spx_product *p = spx_alloc(1, sizeof *p, e);
    *product = p;
    if (p == NULL)
        return SPX_EIO;
    p->target = target;
    p->in_queue = 1;
    p->step_now = MAX_STEP;
    note_start(p);
    s->p->now = p;
    return spx_tmpfile_check(target, s->common.force, e);
}

void spx_run_switch_product(spx_run *s, spx_product *p)
{
    s->p->now = p;
}

void spx_run_line(spx_run *s, const char *line)
{
    s->p->now->line = line;
}

void spx_product_label(spx_product *p, const char *label)
{
    p->label = label;
}

void spx_run_end_product(spx_run *s, spx_product *p)
{
    if (p == NULL)
        return;
    if (s->p->now == p)
        s->p->now = &s->p->first;
    end_product(p);
    spx_free(p);
}

/* ---- main ---- */

static spx_status prepare(spx_run *s, int argc, char **argv, int *done, spx_err *e)
{
    struct spx_run_private *p = s->p;
    spx_common *c = &s->common;
    int nfile = 0;
    /* for manual pages and shell completion, from the same table of options */
    static const struct {
        const char *text;
        void (*print)(const spx_opt_program *p, FILE *out);
    } form[] = {
        {"--help=mdoc", spx_opt_mdoc}, {"--help=names", spx_opt_names}, {"--help=completion", spx_opt_completion}};
    if (s->program->flags & SPX_OUT_NONE)
        spx_text_output();
    for (size_t i = 0; argc == 2 && i < sizeof form / sizeof *form; i++)
        if (strcmp(argv[1], form[i].text) == 0) {
            spx_text_output();
            form[i].print(&p->opts, stdout);
            *done = 1;
            return SPX_OK;
        }
    spx_status st = SPX_OK;
    spx_text reproducible = {0};
    if (st == SPX_OK)
        st = spx_opt_command(&p->opts, argc, argv, 0, &p->command, e);
    if (st == SPX_OK)
        st = spx_opt_command(&p->opts, argc, argv, 1, &reproducible, e);
    p->argc = argc;
    if (st == SPX_OK && (p->argv = spx_alloc((size_t)argc, sizeof *p->argv, e)) == NULL)
        st = SPX_EIO;
    for (int i = 0; i < argc && st == SPX_OK; i++)
        p->argv[i] = argv[i];
    if (st == SPX_OK)
        st = spx_opt_parse(&p->opts, argc, argv, &nfile, e);
    if (!c->reproducible) {
        spx_free(p->argv);
        p->argv = NULL;
    }
    if (c->reproducible) {
        spx_text_free(&p->command);
        p->command = reproducible;
    } else {
        spx_text_free(&reproducible);
    }
    if (c->quiet || c->verbose)
        spx_log_level(c->quiet ? SPX_QUIET : SPX_VERBOSE);
    if (st != SPX_OK)
        return st;
    if (c->help || c->version) {
        spx_text_output();
        if (c->help)
            spx_opt_help(&p->opts, stdout);
        else
            printf("%s (specpipe) %s\n", s->program->name, SPX_VERSION);
        *done = 1;
        return SPX_OK;
    }
    if (c->progress < 0)
        c->progress = isatty(STDERR_FILENO) && !c->quiet;
    if (c->threads == 0)
        c->threads = omp_get_max_threads();
    omp_set_num_threads((int)c->threads);
    spx_mem_limit(c->max_mem);
    spx_inventory_use(c->verify);
    /* an explicit device that cannot be used is an error; programs with a kernel check it in spx_backend_open() */
    if (!(s->program->flags & SPX_USES_DEVICE) && strcmp(c->device, "auto") != 0 && strcmp(c->device, "cpu") != 0)
        return spx_fail(e, SPX_EDEVICE, "--device %s: this program runs on the CPU only: use cpu or auto", c->device);
    static char *standard_input[] = {"-"};
    s->input = argv + 1;
    s->ninput = (size_t)nfile;
    if (nfile == 0 && !(s->program->flags & SPX_IN_OPTIONAL)) {
        if (isatty(STDIN_FILENO))
            return spx_fail(e, SPX_EUSAGE, "no input: give a file, or put this program in a pipe (%s --help)",
                            s->program->name);
        s->input = standard_input;
        s->ninput = 1;
    }
    if (!(s->program->flags & (SPX_OUT_NONE | SPX_OUT_LATE)) && (st = resolve_output(s, e)) != SPX_OK)
        return st;
    size_t stdins = spx_opt_pipes(&s->p->opts, &s->common.output);
    for (size_t i = 0; i < s->ninput; i++)
        stdins += strcmp(s->input[i], "-") == 0;
    if (stdins > 1)
        return spx_fail(e, SPX_EUSAGE, "-: standard input can be given once only");
    if (s->ninput > MOST_INPUTS)
        return spx_fail(e, SPX_EUSAGE, "more than %d inputs", MOST_INPUTS);
    return SPX_OK;
}

/* Gives descriptors 0, 1 and 2 to /dev/null where the caller closed them: the next file that is opened would get the
 * number, and messages would go into a product. Reading from 0 and writing to 1 still fail, as of closed ones. */
static void open_descriptors(void)
{
    static const int mode[] = {O_WRONLY, O_RDONLY, O_RDWR};
    for (int fd = 0; fd <= STDERR_FILENO; fd++)
        if (fcntl(fd, F_GETFD) < 0 && errno == EBADF && open("/dev/null", mode[fd]) != fd)
            _exit(SPX_EIO); /* not even that: no message can be written either */
}

/* After spx_main() has seen that the stack takes its variables. */
static __attribute__((noinline)) spx_status run_program(const spx_program *program, int argc, char **argv)
{
    struct spx_run_private priv;
    spx_run s;
    spx_opt output[3], shared[NSHARED];
    spx_err err = {0};
    int done = 0;
    memset(&priv, 0, sizeof priv);
    memset(&s, 0, sizeof s);
    s.program = program;
    s.p = &priv;
    s.common.device = "auto";
    s.common.progress = -1;
    s.common.verify = 1;
    priv.now = &priv.first;
    priv.first.step_now = MAX_STEP;
    shared_options(&s.common, program->flags, output, shared);
    static const spx_opt none = {0};
    priv.opts = (spx_opt_program){program->name,
                                  program->summary,
                                  program->usage,
                                  {program->options != NULL ? program->options : &none, output, shared},
                                  program->example};
    spx_shortage_guard();
    spx_log_init(program->name, SPX_NORMAL);
    (void)H5dont_atexit(); /* must precede any other call of HDF5; see spx_output_abandoned() */
    spx_h5_watch();
    priv.begun = spx_seconds();
    note_start(&priv.first);

    spx_status st = prepare(&s, argc, argv, &done, &err);
    if (st == SPX_OK && !done && (program->flags & SPX_USES_BLAS) != 0)
        st = spx_blas_open(&err);
    if (st == SPX_OK && !done)
        st = spx_h5_settle(program->run(&s, &err), &err);
    if (!done) {
        char on_cpu[96] = "";
        if (priv.fallback.on_cpu > 0)
            (void)snprintf(on_cpu, sizeof on_cpu, ", %zu of %zu %s on the CPU", priv.fallback.on_cpu,
                           priv.fallback.total, priv.fallback.unit);
        spx_detail("%s in %.3f s, %zu MiB of memory at most%s", st == SPX_OK ? "done" : "failed",
                   spx_seconds() - priv.begun, spx_mem_peak() >> 20, on_cpu);
    }
    if ((st == SPX_OK || st == SPX_ENO) && (fflush(stdout) != 0 || ferror(stdout)))
        st = spx_fail(&err, SPX_EIO, "standard output: cannot write: %s", strerror(errno));
    if (st == SPX_OK) /* of a queue, too */
        spx_ending_success();
    if (st == SPX_OK && !done && spx_input_more())
        spx_warn("another product follows on standard input: left to the program that reads there next");

    end_product(&priv.first);
    spx_hook_close(&priv.hook);
    spx_text_free(&priv.command);
    spx_free(priv.argv);
    spx_opt_free(&priv.opts);
    if (st != SPX_OK && spx_err_text(&err)[0] != '\0')
        spx_error("%s", spx_err_text(&err));
    /* after a failure HDF5 may hold what it cannot close: it would crash, or try again and again */
    if ((st == SPX_OK || st == SPX_ENO) && !spx_output_abandoned()) {
        (void)H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
        (void)H5close();
    }
    return st;
}

int spx_main(const spx_program *program, int argc, char **argv)
{
    open_descriptors();
    spx_ending_guard(program->name);
    const spx_status st = run_program(program, argc, argv);
    spx_ending_expected();
    if (st == SPX_OK)
        spx_ending_now();
    return (int)st;
}
