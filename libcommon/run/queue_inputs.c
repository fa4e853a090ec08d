/* Provides the queue of exposures: finds images and PSFs, or frames, among the inputs, pairs them, and names the
 * outputs (run/queue_inputs.h). */
#include "run/queue_inputs.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "app/filelist.h"
#include "base/mem.h"
#include "base/pipeline.h"
#include "h5/deferred.h"
#include "h5/file.h"
#include "h5/object.h"
#include "products/flat_h5.h"
#include "products/image_h5.h"
#include "products/psf_h5.h"
#include "run/queue_lines.h"

/* PSF, or flat, with the input that it comes from, counted by its users: the exposures, and the queue. */
typedef struct spx_psf_source {
    size_t at; /* index of the input */
    spx_input *in;
    spx_psf psf;
    spx_flat flat;
    size_t users;
    spx_err err; /* error that its reading gave */
} psf_source;

/* Content of one input. */
typedef struct {
    const char *name;
    int is_stdin, image, psf;
    spx_err err; /* error where it cannot be read */
    uint64_t dev, ino;
    spx_input *pipe; /* named pipe, which can be read once only: open since its content was found */
    char *target;
    int kept; /* 1: the target exists, and stays */
} entry;

struct spx_queue {
    spx_run *s;
    spx_queue_kind kind;
    size_t n, at; /* number of inputs, and index of the next */
    int skip_existing, noise;
    size_t nkept; /* number of existing products so far */
    entry *it;
    enum { TO_FILE, TO_STDOUT, TO_FOLDER, TO_PATTERN, TO_LIST } to;
    spx_filelist list;       /* outputs of all exposures, in their order, for TO_LIST */
    size_t stdin_at, nimage; /* index of the input that is standard input (n: none); images so far */
    spx_input *pending;      /* next product of standard input, open */
    int stdin_over;
    int by_lines; /* 1: the only input is @FILE, a line of which is an exposure: */
    spx_queue_lines lines;
    psf_source *psf; /* PSF of the next images; the queue is one of its users */
};

/* Comes an exposure only in its turn, while others are in work? */
static int comes(const spx_queue *q, const entry *it)
{
    return it->is_stdin || q->by_lines;
}

/* Words for what a queue takes. */
static const struct {
    const char *block, *name, *names, *remedy, *with; /* with: that comes with it; NULL: nothing */
} content[] = {
    [SPX_QUEUE_IMAGES] = {"/image", "image", "images",
                          "give the file that holds /image too (fits2h5 joins several "
                          "inputs)",
                          "PSF"},
    [SPX_QUEUE_FRAMES] = {"/frame", "frame", "frames", "give a file that specx-extract has made of an image", NULL},
    [SPX_QUEUE_FLAT_FRAMES] = {"/frame", "frame", "frames", "give a file that specx-extract has made of an image",
                               "flat"},
    [SPX_QUEUE_FIT_FRAMES] = {"/frame", "frame", "frames", "give a file that specx-sky has made of a frame", "fit"},
    [SPX_QUEUE_RAW] = {"/raw", "raw exposure", "raw exposures",
                       "make it of a FITS file with fits2h5 (--as raw, where no keyword tells of amplifiers)", NULL}};

/* A frame or raw exposure comes alone, as an image does that has its own PSF. One that has been divided by a flat may
 * hold that flat, and is not itself one that stands for others. */
static void find_content(const spx_queue *q, spx_input *in, int *image, int *psf)
{
    *image = spx_h5_exists(in->file, content[q->kind].block);
    *psf = q->kind == SPX_QUEUE_IMAGES        ? spx_h5_exists(in->file, "/psf")
           : q->kind == SPX_QUEUE_FLAT_FRAMES ? !*image && spx_h5_exists(in->file, "/flat")
           : q->kind == SPX_QUEUE_FIT_FRAMES  ? !*image && spx_h5_exists(in->file, "/rvfit")
                                              : *image;
}

static spx_status holds_nothing(const spx_queue *q, const char *name, spx_err *e)
{
    if (q->kind != SPX_QUEUE_IMAGES)
        return spx_queue_without(q, name, e);
    return spx_fail_at(e, SPX_EINPUT, name, NULL,
                       "make them of FITS files with fits2h5, whose --list says what it recognises",
                       "holds neither an image nor a PSF");
}

int spx_queue_todo(const spx_queue *q, size_t *kept)
{
    int left = q->stdin_at < q->n || q->by_lines;
    *kept = q->nkept;
    for (size_t i = 0; i < q->n; i++)
        left |= q->it[i].image && !q->it[i].kept;
    for (size_t i = 0; i < q->n && !left; i++)
        *kept += (size_t)q->it[i].kept;
    return left;
}

spx_status spx_queue_without(const spx_queue *q, const char *name, spx_err *e)
{
    return spx_fail_at(e, SPX_EINPUT, name, NULL, content[q->kind].remedy, "no %s", content[q->kind].name);
}

/* ---- outputs ---- */

static void find_kind(spx_queue *q)
{
    const char *out = q->s->common.output;
    struct stat sb;
    const size_t len = strlen(out);
    if (strcmp(out, "-") == 0)
        q->to = TO_STDOUT;
    else if (out[0] == '@' && len > 1)
        q->to = TO_LIST;
    else if (strstr(out, "%s") != NULL)
        q->to = TO_PATTERN;
    else if ((len > 0 && out[len - 1] == '/') || (stat(out, &sb) == 0 && S_ISDIR(sb.st_mode)))
        q->to = TO_FOLDER;
    else
        q->to = TO_FILE;
}

/* Checks that the folder of all products exists: one error, not one for each product. */
static spx_status check_folder(const spx_queue *q, spx_err *e)
{
    const char *out = q->s->common.output, *slash = strrchr(out, '/');
    char folder[PATH_MAX];
    struct stat sb;
    const size_t len = q->to == TO_FOLDER ? strlen(out) : slash != NULL ? (size_t)(slash - out) + 1 : 0;
    if ((q->to != TO_FOLDER && q->to != TO_PATTERN) || len == 0 || len >= sizeof folder)
        return SPX_OK;
    memcpy(folder, out, len);
    folder[len] = '\0';
    if (strstr(folder, "%s") != NULL || (stat(folder, &sb) == 0 && S_ISDIR(sb.st_mode)))
        return SPX_OK;
    return spx_fail_at(e, SPX_EIO, folder, NULL, "make it first, with mkdir", "is not a folder that is there");
}

/* Output file for the exposure of input `name`, the number-th, counted from 1. */
static char *make_target(const spx_queue *q, const char *name, size_t number, spx_err *e)
{
    const char *out = q->s->common.output, *slash = strrchr(name, '/'), *stem = slash != NULL ? slash + 1 : name;
    if (q->to == TO_LIST && number > q->list.n) {
        (void)spx_fail(e, SPX_EUSAGE, "-o %s: has names of %zu %s, and there are more: give each a line", out,
                       q->list.n, content[q->kind].names);
        return NULL;
    }
    if (q->to == TO_LIST)
        return spx_strdup(q->list.name[number - 1], e);
    if (q->to == TO_FILE || q->to == TO_STDOUT)
        return spx_strdup(out, e);
    size_t len = strlen(stem);
    const char *dot = strrchr(stem, '.');
    if (dot != NULL && dot > stem && (strcasecmp(dot, ".h5") == 0 || strcasecmp(dot, ".hdf5") == 0))
        len = (size_t)(dot - stem);
    const char *at = q->to == TO_PATTERN ? strstr(out, "%s") : out + strlen(out);
    const char *behind = q->to == TO_PATTERN ? at + 2 : ".h5";
    const int folder = q->to == TO_FOLDER && (at == out || at[-1] != '/');
    const size_t size = (size_t)(at - out) + len + strlen(behind) + 2;
    char *target = spx_alloc(size, 1, e);
    if (target != NULL)
        (void)snprintf(target, size, "%.*s%s%.*s%s", (int)(at - out), out, folder ? "/" : "", (int)len, stem, behind);
    return target;
}

static int exists(const char *target)
{
    struct stat sb;
    return strcmp(target, "-") != 0 && stat(target, &sb) == 0 && S_ISREG(sb.st_mode);
}

static int by_target(const void *a, const void *b)
{
    const entry *const *x = a, *const *y = b;
    return strcmp((*x)->target, (*y)->target);
}

static int by_file(const void *a, const void *b)
{
    const entry *const *x = a, *const *y = b;
    if ((*x)->ino != (*y)->ino)
        return (*x)->ino < (*y)->ino ? -1 : 1;
    return (*x)->dev < (*y)->dev ? -1 : (*x)->dev > (*y)->dev;
}

/* Checks that no two products have one target, and none an input's file. */
static spx_status check_targets(spx_queue *q, spx_err *e)
{
    size_t nimage = 0;
    spx_status st = SPX_OK;
    const entry **with = spx_alloc(q->n, sizeof *with, e), **all = spx_alloc(q->n, sizeof *all, e);
    if (with == NULL || all == NULL)
        st = SPX_EIO;
    for (size_t i = 0; i < q->n && st == SPX_OK; i++) {
        entry *it = &q->it[i];
        all[i] = it;
        if (it->is_stdin || q->by_lines || !it->image)
            continue;
        if ((it->target = make_target(q, it->name, nimage + 1, e)) == NULL)
            st = e->code;
        else
            it->kept = q->skip_existing && exists(it->target);
        with[nimage++] = it;
    }
    if (st == SPX_OK && q->to == TO_LIST && q->stdin_at == q->n && !q->by_lines && nimage < q->list.n)
        st = spx_fail(e, SPX_EUSAGE, "-o %s: has %zu names for %zu %s: give each one line", q->s->common.output,
                      q->list.n, nimage, content[q->kind].names);
    if (st == SPX_OK && q->to != TO_STDOUT) {
        qsort(with, nimage, sizeof *with, by_target);
        qsort(all, q->n, sizeof *all, by_file);
        for (size_t k = 1; k < nimage && st == SPX_OK; k++)
            if (strcmp(with[k - 1]->target, with[k]->target) == 0)
                st = spx_fail(e, SPX_EUSAGE, "%s and %s would both become %s: write them to different folders",
                              with[k - 1]->name, with[k]->name, with[k]->target);
        for (size_t k = 0; k < nimage && st == SPX_OK; k++) {
            struct stat sb;
            if (stat(with[k]->target, &sb) != 0)
                continue;
            const entry file = {.dev = (uint64_t)sb.st_dev, .ino = (uint64_t)sb.st_ino}, *key = &file;
            const entry *const *hit = bsearch(&key, all, q->n, sizeof *all, by_file);
            if (hit != NULL)
                st =
                    spx_fail_at(e, SPX_EUSAGE, (*hit)->name, NULL, "write to another file", "is both input and output");
        }
    }
    spx_free(with);
    spx_free(all);
    return st;
}

/* ---- content of inputs ---- */

static spx_input *new_input(spx_err *e)
{
    spx_input *in = spx_alloc(1, sizeof *in, e);
    if (in != NULL)
        in->file = H5I_INVALID_HID;
    return in;
}

/* Opens the next product of standard input as q->pending, which stays NULL at the end. */
static spx_status next_of_stdin(spx_queue *q, int first, spx_err *e)
{
    int end = 0;
    spx_input *in = new_input(e);
    if (in == NULL)
        return SPX_EIO;
    spx_status st =
        q->to == TO_FILE ? (first ? spx_input_open(in, "-", e) : SPX_OK) : spx_input_next(in, (size_t)first, &end, e);
    q->stdin_over = st != SPX_OK || end || (q->to == TO_FILE && !first);
    if (q->stdin_over)
        spx_run_close_input(in);
    else
        q->pending = in;
    return st;
}

static spx_status look_at(spx_queue *q, entry *it, spx_err *e)
{
    spx_input *own = it->is_stdin ? NULL : new_input(e), *in = own;
    if (!it->is_stdin && own == NULL)
        return SPX_EIO;
    spx_status st = it->is_stdin ? next_of_stdin(q, 1, e) : spx_input_open(own, it->name, e);
    if (it->is_stdin)
        in = q->pending;
    if (st == SPX_OK) {
        find_content(q, in, &it->image, &it->psf);
        it->dev = in->dev;
        it->ino = in->ino;
        st = spx_run_check_input(q->s, in, e);
        if (st == SPX_OK && !it->image && !it->psf)
            st = holds_nothing(q, in->name, e);
    }
    if (st == SPX_OK && own != NULL && own->ino == 0)
        it->pipe = own;
    else
        spx_run_close_input(own);
    return st;
}

/* Opens an input that is not standard input. */
static spx_status open_entry(entry *it, spx_input **in, spx_err *e)
{
    *in = it->pipe;
    it->pipe = NULL;
    if (*in != NULL)
        return SPX_OK;
    if ((*in = new_input(e)) == NULL)
        return SPX_EIO;
    const spx_status st = spx_input_open(*in, it->name, e);
    if (st != SPX_OK) {
        spx_run_close_input(*in);
        *in = NULL;
    }
    return st;
}

/* Index of the PSF file for the image at `i`; q->n: none. */
static size_t psf_of(const spx_queue *q, size_t i)
{
    for (size_t k = i; k-- > 0;)
        if (q->it[k].psf && !q->it[k].image)
            return k;
    for (size_t k = i + 1; k < q->n; k++)
        if (q->it[k].psf && !q->it[k].image)
            return k;
    return q->n;
}

static const char *name_of(const entry *it)
{
    return it->is_stdin ? "standard input" : it->name;
}

/* Is standard input a pipe? It is an input only where it is named, or nothing is. */
static int is_piped(void)
{
    struct stat sb;
    return fstat(STDIN_FILENO, &sb) == 0 && S_ISFIFO(sb.st_mode);
}

/* Checks that every image has a PSF, and every PSF an image. Standard input is checked as it comes. */
static spx_status match(const spx_queue *q, spx_err *e)
{
    const int alone = content[q->kind].with == NULL;
    size_t nimage = 0, npsf = 0;
    const entry *first = NULL, *with_image = NULL, *with_psf = NULL;
    for (size_t i = 0; i < q->n; i++) {
        const entry *it = &q->it[i];
        const int second_image = it->image && nimage > 0, second_psf = it->psf && npsf > 0;
        if (q->to == TO_FILE && (second_image || second_psf))
            return spx_fail_at(e, SPX_EUSAGE, it->name, NULL, NULL,
                               "is a second %s, beside that of %s: give one %s%s%s, or for several %s -o FOLDER or "
                               "-o NAME-%%s.h5",
                               alone || second_image ? content[q->kind].name : content[q->kind].with,
                               name_of(alone || second_image ? with_image : with_psf), content[q->kind].name,
                               alone ? "" : " and one ", alone ? "" : content[q->kind].with, content[q->kind].names);
        nimage += (size_t)it->image;
        npsf += (size_t)it->psf;
        with_image = with_image == NULL && it->image ? it : with_image;
        with_psf = with_psf == NULL && it->psf ? it : with_psf;
        if (first == NULL && it->image && !it->psf)
            first = it;
    }
    const int open_end = q->stdin_at < q->n && q->to != TO_FILE;
    const char *any = name_of(&q->it[0]);
    if (nimage == 0 && !open_end && q->stdin_at == q->n && is_piped()) {
        char remedy[256];
        (void)snprintf(remedy, sizeof remedy, "%s; if the pipe has it, name - among the inputs",
                       content[q->kind].remedy);
        return spx_fail_at(e, SPX_EINPUT, any, NULL, remedy, "no %s", content[q->kind].name);
    }
    if (nimage == 0 && !open_end)
        return spx_queue_without(q, any, e);
    if (npsf == 0 && first != NULL && !open_end && q->kind == SPX_QUEUE_IMAGES)
        return spx_fail_at(e, SPX_EINPUT, any, NULL, "give the file that holds /psf too (fits2h5 joins several inputs)",
                           "no PSF");
    for (size_t k = 0; k < q->n && !open_end; k++) {
        int used = q->it[k].image || !q->it[k].psf;
        for (size_t i = 0; i < q->n && !used; i++)
            used = q->it[i].image && !q->it[i].psf && psf_of(q, i) == k;
        if (!used)
            return spx_fail_at(
                e, SPX_EUSAGE, q->it[k].name, NULL, NULL, "no %s takes this %s: a %s stands before its %s%s",
                content[q->kind].name, content[q->kind].with, content[q->kind].with, content[q->kind].names,
                q->kind == SPX_QUEUE_IMAGES ? ", and those that come with one in their own file have that" : "");
    }
    return SPX_OK;
}

/* Opens a list of exposures, whose products all have a name before the first exposure is there. */
static spx_status open_lines(spx_queue *q, spx_err *e)
{
    const char *name = q->s->input[0];
    if (q->n > 1)
        return spx_fail(e, SPX_EUSAGE, "@FILE: a list of exposures has to be the only input: a line names all of one");
    q->it[0].name = name;
    q->it[0].image = 1;
    return spx_queue_lines_open(&q->lines, name + 1, e);
}

spx_status spx_queue_open(spx_run *s, spx_queue_kind kind, int skip_existing, spx_queue **queue, spx_err *e)
{
    spx_queue *q = *queue = spx_alloc(1, sizeof *q, e);
    if (q == NULL)
        return SPX_EIO;
    q->s = s;
    q->kind = kind;
    q->skip_existing = skip_existing;
    if (skip_existing && (s->common.force || strcmp(s->common.output, "-") == 0))
        return spx_fail(e, SPX_EUSAGE, "--skip-existing %s",
                        s->common.force ? "and --force contradict each other" : "goes with -o FILE or FOLDER only");
    q->n = q->stdin_at = s->ninput;
    find_kind(q);
    const char *at = q->to == TO_PATTERN ? strstr(s->common.output, "%s") : NULL;
    if (at != NULL && strstr(at + 2, "%s") != NULL)
        return spx_fail(e, SPX_EUSAGE, "--output: '%s' has more than one %%s", s->common.output);
    for (size_t i = 0; i < q->n; i++)
        q->by_lines |= spx_queue_is_list(s->input[i]);
    if (q->by_lines && spx_queue_targets(s->common.output, s->input[0], &q->list, e) != SPX_OK)
        return e->code;
    if (!q->by_lines && q->to == TO_LIST && spx_filelist_add(&q->list, s->common.output, "", e) != SPX_OK)
        return e->code;
    if (check_folder(q, e) != SPX_OK || (q->it = spx_alloc(q->n, sizeof *q->it, e)) == NULL)
        return SPX_EIO;
    if (q->by_lines)
        return open_lines(q, e);
    for (size_t i = 0; i < q->n; i++) {
        entry *it = &q->it[i];
        it->name = s->input[i];
        it->is_stdin = strcmp(it->name, "-") == 0;
        if (it->is_stdin)
            q->stdin_at = i;
        const spx_status st = look_at(q, it, &it->err);
        if (st != SPX_OK && (q->to == TO_FILE || (q->n == 1 && q->pending == NULL))) {
            *e = it->err;
            return st;
        }
        if (st != SPX_OK) { /* the error is reported in its turn */
            it->image = 1;
            it->psf = 0;
        }
    }
    if (q->to == TO_LIST && q->stdin_at + 1 < q->n)
        return spx_fail(e, SPX_EUSAGE,
                        "-o %s: standard input, which may hold any number of %s, has to be the last input",
                        s->common.output, content[kind].names);
    spx_status st = match(q, e);
    return st == SPX_OK ? check_targets(q, e) : st;
}

size_t spx_queue_total(const spx_queue *q)
{
    size_t n = 0;
    if (q->by_lines)
        return q->list.n;
    if (q->stdin_at < q->n && q->to != TO_FILE)
        return 0;
    for (size_t i = 0; i < q->n; i++)
        n += (size_t)(q->it[i].image && !q->it[i].kept);
    return n;
}

spx_run *spx_queue_context(const spx_queue *q)
{
    return q->s;
}

int spx_queue_to_stdout(const spx_queue *q)
{
    return q->to == TO_STDOUT;
}

int spx_queue_ready(spx_queue *q)
{
    if (q->by_lines)
        return spx_queue_lines_ready(&q->lines);
    if (q->at != q->stdin_at || q->pending != NULL || q->stdin_over)
        return 1;
    struct pollfd p = {.fd = STDIN_FILENO, .events = POLLIN};
    return poll(&p, 1, 0) != 0;
}

/* ---- PSFs ---- */

void spx_psf_source_release(psf_source *p)
{
    if (p == NULL || --p->users > 0)
        return;
    spx_psf_free(&p->psf);
    spx_flat_free(&p->flat);
    spx_run_close_input(p->in);
    spx_free(p);
}

const spx_input *spx_queue_fit(const spx_queue_item *x)
{
    return x->source != NULL ? x->source->in : NULL;
}

hid_t spx_queue_psf_file(const spx_queue_item *x)
{
    return x->source->in != NULL ? x->source->in->file : x->in->file;
}

/* Reads the PSF of an open input, which it then owns, as q->psf. */
static spx_status make_source(spx_queue *q, size_t at, spx_input *in, spx_err *e)
{
    psf_source *p = spx_alloc(1, sizeof *p, e);
    if (p == NULL) {
        spx_run_close_input(in);
        return SPX_EIO;
    }
    p->at = at;
    p->in = in;
    p->users = 1;
    spx_psf_source_release(q->psf);
    q->psf = p;
    if (q->kind == SPX_QUEUE_IMAGES)
        (void)spx_psf_read(in->file, &p->psf, &p->err);
    else if (q->kind == SPX_QUEUE_FLAT_FRAMES)
        (void)spx_flat_read(in->file, &p->flat, &p->err);
    return SPX_OK;
}

/* Makes the PSF of the image at input i q->psf, which stays NULL where there is none. A PSF that could not be read is
 * one, too: its error is that of all its images. */
static spx_status find_psf(spx_queue *q, size_t i, spx_err *e)
{
    const size_t k = psf_of(q, i);
    const size_t have = q->psf != NULL ? q->psf->at : q->n;
    /* standard input's content is known only now */
    if (k == q->n || have == k || (have <= i && (k > i || have > k)))
        return SPX_OK;
    spx_input *in = NULL;
    if (q->it[k].is_stdin) {
        in = q->pending; /* an image precedes it in the same product */
        q->pending = NULL;
    } else {
        const spx_status st = open_entry(&q->it[k], &in, e);
        if (st != SPX_OK)
            return st;
    }
    return make_source(q, k, in, e);
}

/* ---- exposures ---- */

/* Reads the image, and the PSF where it is in the same file, of an open input, which the product then owns; later:
 * reads of pixels are deferred. */
static spx_status read_exposure(spx_queue *q, spx_queue_item *x, spx_input *in, int own_psf, int later, spx_err *e)
{
    spx_status st = SPX_OK;
    x->in = in;
    if (q->kind != SPX_QUEUE_IMAGES && (content[q->kind].with == NULL || q->psf == NULL)) {
        st = spx_run_use_input(q->s, in, 1, e);
        if (st != SPX_OK)
            spx_run_close_input(in);
        return st;
    }
    psf_source *p = own_psf ? spx_alloc(1, sizeof *p, e) : q->psf;
    if (p == NULL) {
        spx_run_close_input(in);
        return own_psf ? SPX_EIO
                       : spx_fail_at(e, SPX_EINPUT, x->name, NULL,
                                     "give the file that holds /psf too (fits2h5 joins several inputs)", "no PSF");
    }
    p->users++;
    x->source = p;
    x->psf = &p->psf;
    x->flat = q->kind == SPX_QUEUE_FLAT_FRAMES ? &p->flat : NULL;
    /* inputs are recorded in the order of the command line */
    if (!own_psf && p->at <= q->at)
        st = spx_run_use_input(q->s, p->in, 0, e);
    if (st == SPX_OK)
        st = spx_run_use_input(q->s, in, 1, e);
    if (st != SPX_OK) {
        spx_run_close_input(in);
        return st;
    }
    if (!own_psf && p->at > q->at)
        st = spx_run_use_input(q->s, p->in, 0, e);
    if (st == SPX_OK && p->err.code != SPX_OK) {
        *e = p->err;
        st = p->err.code;
    }
    if (q->kind != SPX_QUEUE_IMAGES)
        return st;
    if (st == SPX_OK)
        st = spx_image_read_pixels(in->file, later ? &x->reads : NULL, &x->image, e);
    if (st == SPX_OK && q->noise)
        st = spx_image_read_noise(in->file, later ? &x->reads : NULL, &x->image, e);
    if (st == SPX_OK && own_psf)
        st = spx_psf_read(in->file, &p->psf, e);
    return st;
}

/* Next product of standard input with an image; *in stays NULL at its end. PSF products before it become q->psf. */
static spx_status next_image_of_stdin(spx_queue *q, spx_input **in, int *psf, spx_err *e)
{
    int image = 0;
    for (;;) {
        const spx_status st = q->pending == NULL && !q->stdin_over ? next_of_stdin(q, 0, e) : SPX_OK;
        spx_input *now = q->pending;
        q->pending = NULL;
        if (st != SPX_OK || now == NULL)
            return st;
        find_content(q, now, &image, psf);
        if (image) {
            *in = now;
            return SPX_OK;
        }
        if (!*psf) {
            spx_run_close_input(now);
            return holds_nothing(q, "standard input", e);
        }
        if (make_source(q, q->at, now, e) != SPX_OK)
            return SPX_EIO;
    }
}

/* Inputs of the next line of a list: *in gets the one with the image, and q->psf the PSF where it stands alone. q->at
 * is q->n at the end. */
static spx_status next_of_lines(spx_queue *q, spx_queue_item *x, spx_input **in, int *psf, spx_err *e)
{
    char *line, *at = NULL, first[sizeof x->name];
    spx_psf_source_release(q->psf);
    q->psf = NULL;
    spx_status st = spx_queue_lines_next(&q->lines, &line, e);
    if (st != SPX_OK || line == NULL) {
        q->at = st == SPX_OK ? q->n : q->at;
        (void)snprintf(x->name, sizeof x->name, "%s", q->it[0].name);
        return st;
    }
    if ((x->line = spx_strdup(line, e)) == NULL)
        return SPX_EIO;
    (void)snprintf(first, sizeof first, "%.*s", (int)strcspn(line, "\t"), line);
    for (char *name = strtok_r(line, "\t", &at); name != NULL && st == SPX_OK; name = strtok_r(NULL, "\t", &at)) {
        int has_image = 0, has_psf = 0;
        spx_input *one = new_input(e);
        if (one == NULL)
            return SPX_EIO;
        if (*in == NULL)
            (void)snprintf(x->name, sizeof x->name, "%s", name);
        st = spx_input_open(one, name, e);
        if (st == SPX_OK)
            find_content(q, one, &has_image, &has_psf);
        if (st == SPX_OK && ((has_image && *in != NULL) || (has_psf && !has_image && q->psf != NULL)))
            st = spx_fail_at(e, SPX_EUSAGE, name, NULL, "give each exposure a line", "is a second %s in a line",
                             has_image ? content[q->kind].name : content[q->kind].with);
        else if (st == SPX_OK && !has_image && !has_psf)
            st = holds_nothing(q, name, e);
        if (st != SPX_OK) {
            spx_run_close_input(one);
        } else if (has_image) {
            *in = one;
            *psf = has_psf;
        } else {
            st = make_source(q, q->at + (*in != NULL), one, e); /* recorded in the order of the line */
        }
    }
    return st == SPX_OK && *in == NULL ? spx_queue_without(q, first, e) : st;
}

/* Advances to the next input with an image: sets its name, and *in where it is standard input. q->at is its index, or
 * q->n at the end. */
static spx_status advance(spx_queue *q, spx_queue_item *x, spx_input **in, int *psf, spx_err *e)
{
    if (q->by_lines)
        return next_of_lines(q, x, in, psf, e);
    for (; q->at < q->n; q->at++) {
        entry *it = &q->it[q->at];
        if (it->kept) {
            q->nkept++;
            q->nimage++;
            continue;
        }
        (void)snprintf(x->name, sizeof x->name, "%s", it->is_stdin ? "standard input" : it->name);
        *psf = it->psf;
        if (it->err.code != SPX_OK && (!it->is_stdin || q->pending == NULL)) {
            const spx_status st = it->err.code;
            *e = it->err;
            it->err.code = SPX_OK;
            q->at += !it->is_stdin;
            return st;
        }
        if (!it->is_stdin && it->image)
            return SPX_OK;
        if (it->is_stdin) {
            const spx_status st = next_image_of_stdin(q, in, psf, e);
            if (st != SPX_OK || *in != NULL)
                return st;
        }
    }
    return SPX_OK;
}

/* Begins the product of an exposure; an error where its target exists. */
static spx_status begin_product(const spx_queue *q, spx_queue_item *x, spx_err *e)
{
    x->exists = !q->s->common.force && q->to != TO_FILE && exists(x->target);
    if (x->exists)
        return spx_fail_at(e, SPX_EIO, x->target, NULL, "give --skip-existing to keep it, or -f to replace it",
                           "exists already");
    return spx_run_begin_product(q->s, x->target, &x->product, e);
}

/* Next exposure to process: sets name, number and target of x, and *in where it is standard input; *end becomes 1 at
 * the end. */
static spx_status next_target(spx_queue *q, spx_queue_item *x, spx_input **in, int *psf, int *end, spx_err *e)
{
    for (;;) {
        spx_status st = advance(q, x, in, psf, e);
        *end = st == SPX_OK && q->at == q->n;
        if (*end && q->to == TO_LIST && q->nimage < q->list.n) { /* how many standard input holds is known in its end */
            const size_t n = q->nimage;
            q->nimage = q->list.n;
            *end = 0;
            return spx_fail(e, SPX_EUSAGE, "-o %s: has %zu names, and there were %zu %s: give each one line",
                            q->s->common.output, q->list.n, n, content[q->kind].names);
        }
        if (!*end)
            x->number = ++q->nimage; /* failed ones count: numbers in names do not depend on failures */
        if (st != SPX_OK || *end)
            return st;
        const entry *it = &q->it[q->at];
        char number[32];
        (void)snprintf(number, sizeof number, "%03zu", x->number);
        x->target = comes(q, it) ? make_target(q, number, x->number, e) : spx_strdup(it->target, e);
        if (x->target == NULL) {
            q->at += !comes(q, it);
            return e->code;
        }
        if (!comes(q, it) || !q->skip_existing || !exists(x->target))
            return SPX_OK;
        q->nkept++;
        spx_run_close_input(*in);
        *in = NULL;
        spx_free(x->target);
        x->target = NULL;
        spx_free(x->line);
        x->line = NULL;
    }
}

spx_status spx_queue_next(spx_queue *q, spx_queue_item *x, int later, int *end, spx_err *e)
{
    spx_input *in = NULL;
    int psf = 0;
    spx_status st = next_target(q, x, &in, &psf, end, e);
    if (*end || (st != SPX_OK && x->target == NULL)) {
        spx_run_close_input(in);
        return st;
    }
    entry *it = &q->it[q->at];
    st = begin_product(q, x, e);
    if (st == SPX_OK) {
        spx_run_step(q->s, "read");
        if (q->by_lines)
            spx_run_line(q->s, x->line);
        else if (!it->is_stdin)
            st = open_entry(it, &in, e);
    }
    if (st == SPX_OK && !psf)
        st = find_psf(q, q->at, e);
    if (st == SPX_OK)
        st = read_exposure(q, x, in, psf, later, e);
    else
        spx_run_close_input(in);
    q->at += !comes(q, it);
    return st;
}

void spx_queue_need_noise(spx_queue *q)
{
    q->noise = 1;
}

void spx_queue_close(spx_queue *q)
{
    if (q == NULL)
        return;
    spx_psf_source_release(q->psf);
    spx_run_close_input(q->pending);
    for (size_t i = 0; i < q->n && q->it != NULL; i++) {
        spx_run_close_input(q->it[i].pipe);
        spx_free(q->it[i].target);
    }
    spx_free(q->it);
    if (q->by_lines)
        spx_queue_lines_close(&q->lines);
    spx_filelist_free(&q->list);
    spx_free(q);
}
