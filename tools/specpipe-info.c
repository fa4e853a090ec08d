/* specpipe-info: what this installation can use, and why not the rest; rules of plausibility; removes what killed
 * programs have left. */
#include <cblas.h>
#include <fftw3.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>
#include <zlib.h>

#include "app/main.h"
#include "base/hook.h"
#include "base/json.h"
#include "common/device.h"
#include "common/kernel_options.h"
#include "num/blas.h"
#include "products/plausible.h"

enum { AS_TEXT, AS_MDOC };

static struct {
    int rules, json;
    const char *clean;
} o = {.rules = SPX_NO_CHOICE};

static const spx_opt options[] = {
    SPX_OPTION(CHOICE, "rules", 0, NULL, o.rules,
               "Print the rules by which input is called implausible, as text or for the manual, and nothing else",
               .choices = SPX_CHOICES({"text", AS_TEXT}, {"mdoc", AS_MDOC})),
    SPX_OPTION(STRING, "clean", 0, "FOLDER", o.clean,
               "Remove the temporary files that killed programs have left in this folder, and say so; nothing else is "
               "shown"),
    SPX_OPTION(FLAG, "json", 0, NULL, o.json, "Print JSON: an object with a text for each key, its lines joined"),
    {0}};

/* Lines of the output, kept for --json: those of one key need not follow each other. */
static struct {
    char key[64];
    spx_text text;
} * told;
static size_t ntold, told_capacity;
static spx_err told_error;

static void tell(const char *key, const char *fmt, ...) SPX_PRINTF(2, 3);

static void tell(const char *key, const char *fmt, ...)
{
    char text[4096];
    size_t i = 0;
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    if (!o.json) {
        printf("%s: %s\n", key, text);
        return;
    }
    while (i < ntold && strcmp(told[i].key, key) != 0)
        i++;
    if (i == ntold) {
        void *more = spx_grow(told, ntold, 1, &told_capacity, sizeof *told, &told_error);
        if (more == NULL)
            return;
        told = more;
        told[ntold].text = (spx_text){0};
        (void)snprintf(told[ntold++].key, sizeof told->key, "%s", key);
    }
    (void)spx_text_add(&told[i].text, &told_error, "%s%s", told[i].text.n > 0 ? "\n" : "", text);
}

/* Prints what was told as JSON, and forgets it. */
static spx_status print_json(spx_err *e)
{
    for (size_t i = 0; i < ntold; i++) {
        printf("%s", i > 0 ? ",\n " : "{");
        spx_json_string(stdout, told[i].key);
        printf(": ");
        spx_json_string(stdout, told[i].text.s != NULL ? told[i].text.s : "");
        spx_text_free(&told[i].text);
    }
    printf("}\n");
    spx_free(told);
    return told_error.code != SPX_OK ? spx_err_pass(e, &told_error) : SPX_OK;
}

static void tell_machine(const spx_run *s)
{
    struct utsname u;
    tell("specpipe", "%s", SPX_VERSION);
    if (uname(&u) == 0)
        tell("machine", "%s %s %s", u.sysname, u.release, u.machine);
    tell("threads", "%ld", s->common.threads);
#if defined(__x86_64__)
    tell("instructions", "%s%s%s", "sse2",
         __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") ? " avx2" : "",
         __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") ? " avx512" : "");
#endif
}

static void tell_libraries(void)
{
    unsigned major = 0, minor = 0, release = 0;
    (void)H5get_libversion(&major, &minor, &release);
    tell("hdf5", "%u.%u.%u", major, minor, release);
    tell("zlib", "%s", zlibVersion());
    spx_err e = {0};
    if (spx_blas_open(&e) == SPX_OK)
        tell("openblas", "%s", openblas_get_config());
    else
        tell("openblas", "not usable: %s", spx_err_text(&e));
    tell("fftw", "%s", fftw_version);
}

static void tell_temporary(const char *name, const char *what)
{
    printf("%s: %s\n", name, what);
}

static spx_status run(spx_run *s, spx_err *e)
{
    spx_backend b = {0};
    if (s->ninput != 0)
        return spx_fail(e, SPX_EUSAGE, "%s: there is no input", s->input[0]);
    if (o.json && (o.clean != NULL || o.rules != SPX_NO_CHOICE))
        return spx_fail(e, SPX_EUSAGE, "--json: not with %s, which has no such form",
                        o.clean != NULL ? "--clean" : "--rules");
    if (o.clean != NULL)
        return spx_tmpfile_clean(o.clean, tell_temporary, e);
    if (o.rules != SPX_NO_CHOICE) {
        spx_rules_print(o.rules == AS_MDOC, stdout);
        return SPX_OK;
    }
    tell_machine(s);
    tell_libraries();
    spx_backend_describe(tell);
    spx_hook_describe(tell);
    /* any operation: each backend that is usable has this one */
    spx_status st = spx_open_device(s, SPX_OP_STACK, &b, e);
    if (st == SPX_OK)
        tell("device", "%s", b.device);
    if (o.json) {
        spx_err none = {0};
        const spx_status printed = print_json(st == SPX_OK ? e : &none);
        st = st == SPX_OK ? printed : st;
    }
    spx_backend_close(&b);
    return st;
}

int main(int argc, char **argv)
{
    static const spx_program program = {.name = "specpipe-info",
                                        .summary = "what this installation can use, and why not the rest",
                                        .usage = "[OPTION...]",
                                        .example = "specpipe-info --device cuda",
                                        .options = options,
                                        .flags = SPX_OUT_NONE | SPX_IN_OPTIONAL | SPX_USES_DEVICE,
                                        .run = run};
    spx_err_options(spx_kernel_options);
    return spx_main(&program, argc, argv);
}
