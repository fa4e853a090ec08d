/* h5check: checks products against the schema, or says which programs take a file (common/check_input.h), each in a
 * process of its own: HDF5 1.10 crashes for some damaged files, which are then the ones that are reported. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "app/main.h"
#include "common/check_input.h"
#include "h5/failure.h"
#include "h5/file.h"
#include "h5/inventory.h"
#include "h5/schema.h"

enum { AS_TEXT, AS_MDOC };

static struct {
    int schema, input;
} o = {.schema = SPX_NO_CHOICE};

static const spx_opt options[] = {
    SPX_OPTION(CHOICE, "schema", 0, NULL, o.schema,
               "Print the definition of the products, as text or for the manual, and check nothing",
               .choices = SPX_CHOICES({"text", AS_TEXT}, {"mdoc", AS_MDOC})),
    SPX_OPTION(FLAG, "input", 'i', NULL, o.input,
               "Print which programs take each block, also of files that other programs wrote, and do not compare with "
               "the definition"),
    {0}};

static spx_status print_schema(void)
{
    if (o.schema == AS_MDOC) {
        spx_schema_mdoc(stdout);
        return SPX_OK;
    }
    for (const spx_schema_text *t = spx_schema_texts; t->name != NULL; t++)
        printf("%s%s", t == spx_schema_texts ? "" : "\n", t->text);
    return SPX_OK;
}

/* Datasets of a file that differ from its inventory. */
typedef struct {
    const char *name;
    size_t n;
} damage;

static void report(void *ctx, const char *path)
{
    damage *d = ctx;
    printf("%s:%s: is damaged: values differ from the file's inventory\n", d->name, path);
    d->n++;
}

/* All of the datasets against the file's inventory; the structure was when it was opened. */
static spx_status check_inventory(const spx_input *in, int *has, spx_err *e)
{
    damage d = {in->name, 0};
    const spx_status st = spx_inventory_verify_all(in->file, report, &d, has, e);
    if (st != SPX_OK || d.n == 0)
        return st;
    return spx_fail_at(e, SPX_EINPUT, in->name, NULL, "make it again, or copy it again", "is damaged in %zu dataset%s",
                       d.n, d.n > 1 ? "s" : "");
}

/* Result of a check, which the process that made it sends. */
typedef struct {
    spx_status st;
    size_t nbad;
    int end; /* of standard input, which has no product number `nth` */
    spx_err err;
} verdict;

static spx_status open_product(spx_run *s, const char *name, size_t nth, spx_input **in, int *end, spx_err *e)
{
    if (strcmp(name, "-") != 0)
        return spx_run_extra_input(s, name, in, e);
    if ((*in = spx_alloc(1, sizeof **in, e)) == NULL)
        return SPX_EIO;
    const spx_status st = spx_input_next(*in, nth, end, e);
    return st == SPX_OK && !*end ? spx_run_use_input(s, *in, 1, e) : st;
}

/* Checks a file, or product number `nth` of standard input. */
static verdict check(spx_run *s, const char *name, size_t nth)
{
    spx_input *in = NULL;
    int has = 0;
    verdict v = {.st = SPX_OK};
    v.st = open_product(s, name, nth, &in, &v.end, &v.err);
    if (v.end)
        return v;
    if (v.st == SPX_OK)
        v.st = check_inventory(in, &has, &v.err);
    if (v.st == SPX_OK && o.input) {
        v.st = spx_check_input(in, stdout, &v.nbad, &v.err);
        v.st = spx_h5_settle(v.st, &v.err);
        return v;
    }
    if (v.st == SPX_OK)
        v.st = spx_schema_check(in->file, in->name, stdout, &v.nbad, &v.err);
    v.st = spx_h5_settle(v.st, &v.err);
    if (v.st == SPX_OK && v.nbad == 0)
        spx_detail("%s: is valid%s", in->name,
                   has                ? ", and as it was written"
                   : s->common.verify ? "; it has no inventory: another program wrote or changed it"
                                      : "");
    return v;
}

static const int crash[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};

static int is_crash(int sig)
{
    for (size_t i = 0; i < sizeof crash / sizeof *crash; i++)
        if (crash[i] == sig)
            return 1;
    return 0;
}

/* The process that checks: signals of a crash end it, without the message of a program that has a bug. */
static void check_and_send(spx_run *s, const char *name, size_t nth, int fd)
{
    for (size_t i = 0; i < sizeof crash / sizeof *crash; i++)
        (void)signal(crash[i], SIG_DFL);
    verdict v = check(s, name, nth);
    if (fflush(stdout) != 0)
        v.st = spx_fail(&v.err, SPX_EIO, "standard output: %s", strerror(errno));
    const char *p = (const char *)&v;
    for (size_t n = 0; n < sizeof v;) {
        const ssize_t sent = write(fd, p + n, sizeof v - n);
        if (sent < 0 && errno != EINTR)
            _exit(SPX_EBUG);
        n += sent > 0 ? (size_t)sent : 0;
    }
    _exit(0);
}

/* Reads what was sent; 0 when the other process ended before. */
static int receive(int fd, verdict *v)
{
    size_t n = 0;
    ssize_t got = 1;
    while (n < sizeof *v && got != 0) {
        got = read(fd, (char *)v + n, sizeof *v - n);
        if (got < 0 && errno != EINTR)
            return 0;
        n += got > 0 ? (size_t)got : 0;
    }
    return n == sizeof *v;
}

static verdict check_apart(spx_run *s, const char *name, size_t nth)
{
    verdict v = {.st = SPX_EIO};
    int fd[2] = {-1, -1}, status = 0;
    (void)fflush(stdout);
    const pid_t child = pipe(fd) == 0 ? fork() : -1;
    if (child == 0)
        check_and_send(s, name, nth, fd[1]);
    const int why = errno;
    if (fd[1] >= 0)
        (void)close(fd[1]);
    const int sent = child > 0 && receive(fd[0], &v);
    if (fd[0] >= 0)
        (void)close(fd[0]);
    while (child > 0 && waitpid(child, &status, 0) < 0 && errno == EINTR)
        ;
    const char *shown = strcmp(name, "-") == 0 ? "standard input" : name;
    if (child < 0)
        v.st =
            spx_fail_at(&v.err, SPX_EIO, shown, NULL, NULL, "no process can be started to check it: %s", strerror(why));
    else if (WIFSIGNALED(status) && WTERMSIG(status) == SIGPIPE) {
        (void)signal(SIGPIPE, SIG_DFL); /* nobody reads what is found: the end of this process, too */
        (void)raise(SIGPIPE);
    } else if (WIFSIGNALED(status) && is_crash(WTERMSIG(status)))
        v.st = spx_fail_at(&v.err, SPX_EINPUT, shown, NULL, "copy it again, or make it again",
                           "is damaged: HDF5 crashed while it was read (%s)", strsignal(WTERMSIG(status)));
    else if (!sent && WIFEXITED(status) && WEXITSTATUS(status) == SPX_EIO)
        v = (verdict){.st = SPX_EIO}; /* spx_end_now() has said why */
    else if (!sent || !WIFEXITED(status) || WEXITSTATUS(status) != 0)
        v.st =
            spx_fail_at(&v.err, SPX_EIO, shown, NULL, NULL, "could not be checked: the process that did was stopped");
    return v;
}

static spx_status run(spx_run *s, spx_err *e)
{
    spx_status worst = SPX_OK;
    if (o.schema != SPX_NO_CHOICE)
        return print_schema();
    /* every file gets its say; the last error is the one that spx_main() prints */
    for (size_t i = 0, nth = 1; i < s->ninput || i == 0; i++) {
        const char *name = s->ninput > 0 ? s->input[i] : "-";
        const verdict v = check_apart(s, name, nth);
        if (v.st != SPX_OK) {
            if (worst > SPX_ENO && spx_err_text(e)[0] != '\0')
                spx_error("%s", spx_err_text(e));
            *e = v.err;
            worst = v.st;
        } else if (v.nbad > 0) {
            worst = worst == SPX_OK ? SPX_ENO : worst;
        }
        if (strcmp(name, "-") == 0 && !v.end && v.st == SPX_OK) { /* its next product */
            nth++;
            i--;
        }
    }
    return worst;
}

int main(int argc, char **argv)
{
    static const spx_program program = {.name = "h5check",
                                        .summary = "check products against their definition",
                                        .usage = "[OPTION...] [FILE...]",
                                        .example = "h5check frame.h5",
                                        .options = options,
                                        .flags = SPX_OUT_NONE | SPX_IN_OPTIONAL, /* --schema needs none */
                                        .run = run};
    return spx_main(&program, argc, argv);
}
