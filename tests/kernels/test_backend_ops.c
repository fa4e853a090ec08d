/* Every operation of kernels/operations.def from a table of cases, on the CPU and on the device that SPX_TEST_DEVICE
 * names (make check-cuda); after test-backend-ops of ggml.
 *
 *     test_backend_ops                 all cases, with the seed of the table
 *     test_backend_ops stack           those of an operation
 *     test_backend_ops stack:3         one of them
 *     test_backend_ops stack:3:seed=7  with another seed; a failure prints this string
 *     test_backend_ops small           the first case of each operation, for sanitizers
 *     test_backend_ops list            operations and cases
 * SPX_TEST_VERBOSE=1 shows how much of its tolerance each array uses.
 *
 * A case passes if
 * - the device's answer is that of the CPU, and the CPU's that of the plain reference of op_NAME.c, where it has one,
 * to the tolerance that op_NAME.c states with its reason;
 * - the answer has the same bits when the call is repeated, and with another number of threads;
 * - nothing beside its outputs was written to, its input least of all.
 * An operation that is in the list and has no op_NAME.c does not link. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device.h"
#include "op.h"

#define SPX_OPERATION(NAME, name, ...) extern const op_test op_##name;
#include "operations.def"

static const op_test *const tests[] = {
#define SPX_OPERATION(NAME, name, ...) &op_##name,
#include "operations.def"
};

/* Those that CUDA has. */
enum { ON_no, ON_yes };
static const int on_cuda[] = {
#define SPX_OPERATION(NAME, name, function, needs, cuda, ...) ON_##cuda,
#include "operations.def"
};

enum { SEED = 20261122, GUARD = 64, SENTINEL_BYTE = 0xA5, MOST_BLOCKS = 256 };

static int failures;
static char here[64]; /* the case, as the command line names it */

static void wrong(const char *format, ...)
{
    va_list arg;
    va_start(arg, format);
    printf("test_backend_ops %s: ", here);
    (void)vprintf(format, arg);
    puts("");
    va_end(arg);
    failures++;
}

/* ---- memory ---- */

typedef struct {
    const char *name;
    const unsigned char *at; /* what may not change */
    size_t n;
    unsigned char *copy;
    void *base; /* to be freed; NULL: the scene's */
} block;

static block blocks[MOST_BLOCKS];
static size_t nblock;

static void watch(const char *name, const void *at, size_t n, void *base)
{
    if (nblock == MOST_BLOCKS) {
        puts("test_backend_ops: MOST_BLOCKS is too small");
        exit(1);
    }
    block *b = &blocks[nblock++];
    *b = (block){name, at, n, need(n + 1, 1), base};
    if (n > 0)
        memcpy(b->copy, at, n);
}

void op_const(const char *name, const void *at, size_t n, size_t size)
{
    watch(name, at, n * size, NULL);
}

void *op_output(const char *name, size_t n, size_t size)
{
    unsigned char *base = need(n * size + 2 * GUARD, 1);
    memset(base, SENTINEL_BYTE, GUARD);
    memset(base + GUARD + n * size, SENTINEL_BYTE, GUARD);
    watch(name, base, GUARD, base);
    watch(name, base + GUARD + n * size, GUARD, NULL);
    return base + GUARD;
}

static void look_at_blocks(void)
{
    for (size_t i = 0; i < nblock; i++) {
        const block *b = &blocks[i];
        size_t k = 0;
        while (k < b->n && b->at[k] == b->copy[k])
            k++;
        if (k < b->n)
            wrong("%s: written to, at byte %zu", b->name, k);
        spx_free(b->copy);
    }
    for (size_t i = 0; i < nblock; i++)
        spx_free(blocks[i].base);
    nblock = 0;
}

/* ---- answers ---- */

double *op_add(op_answer *a, const char *name, size_t n, double tolerance, double **scale)
{
    if (a->n == OP_PARTS) {
        puts("test_backend_ops: OP_PARTS is too small");
        exit(1);
    }
    op_part *p = &a->part[a->n++];
    *p = (op_part){.name = name, .n = n, .tolerance = tolerance, .value = need(n + 1, sizeof *p->value)};
    if (scale != NULL)
        *scale = p->scale = need(n + 1, sizeof *p->scale);
    return p->value;
}

void op_put(op_answer *a, const char *name, size_t n, const double *value, double tolerance)
{
    double *to = op_add(a, name, n, tolerance, NULL);
    for (size_t i = 0; i < n; i++)
        to[i] = value[i];
}

int op_done(spx_status st, const spx_err *e)
{
    if (st != SPX_OK)
        wrong("status %d: %s", (int)st, spx_err_text(e));
    return st == SPX_OK;
}

static void free_answer(op_answer *a)
{
    for (size_t i = 0; i < a->n; i++) {
        spx_free(a->part[i].value);
        spx_free(a->part[i].scale);
    }
    a->n = 0;
}

/* A part is as far off as its worst element. */
static void compare_part(const op_part *got, const op_part *want, int known, const char *with)
{
    size_t worst = 0;
    double most = 0;
    if (got->n != want->n) {
        wrong("%s: %zu elements, %s has %zu", got->name, got->n, with, want->n);
        return;
    }
    for (size_t i = 0; i < want->n; i++) {
        const double x = got->value[i], y = want->value[i];
        const double limit = want->tolerance * (want->scale != NULL ? want->scale[i] : 1);
        if (isnan(y) && (!known || isnan(x)))
            continue;
        const double off = x == y ? 0 : limit > 0 ? fabs(x - y) / limit : HUGE_VAL;
        if (!(off <= most)) {
            most = isnan(off) ? HUGE_VAL : off;
            worst = i;
        }
    }
    if (getenv("SPX_TEST_VERBOSE") != NULL)
        printf("%s %s: %g of the tolerance (%s)\n", here, got->name, most, with);
    if (!(most <= 1))
        wrong("%s[%zu] is %.17g, %s has %.17g: off by %.3g times the tolerance", got->name, worst, got->value[worst],
              with, want->value[worst], most);
}

/* known 0: a reference, whose NaN are elements that it does not know. */
static void compare(const op_answer *got, const op_answer *want, int known, const char *with)
{
    for (size_t i = 0; i < want->n; i++) {
        size_t k = 0;
        while (k < got->n && strcmp(got->part[k].name, want->part[i].name) != 0)
            k++;
        if (k < got->n)
            compare_part(&got->part[k], &want->part[i], known, with);
        else
            wrong("no %s, %s has it", want->part[i].name, with);
    }
}

static void same_bits(const op_answer *a, const op_answer *b, const char *when)
{
    if (a->n != b->n) {
        wrong("%zu arrays instead of %zu %s", b->n, a->n, when);
        return;
    }
    for (size_t i = 0; i < a->n; i++) {
        const op_part *p = &a->part[i], *q = &b->part[i];
        if (p->n != q->n || memcmp(p->value, q->value, p->n * sizeof *p->value) != 0)
            wrong("%s: not the same bits %s", p->name, when);
    }
}

/* ---- cases ---- */

/* One backend: a call, again, with three threads. */
static void calls(const op_test *t, spx_backend *b, void *scene, op_answer *a)
{
    op_answer again = {0}, threads = {0};
    t->run(b, scene, 1, a);
    t->run(b, scene, 1, &again);
    t->run(b, scene, 3, &threads);
    same_bits(a, &again, "when repeated");
    same_bits(a, &threads, "with three threads");
    free_answer(&again);
    free_answer(&threads);
}

static void run_case(spx_op op, size_t k, uint64_t seed, spx_backend *cpu, spx_backend *device)
{
    const op_test *t = tests[op];
    op_answer want = {0}, host = {0}, there = {0};
    (void)snprintf(here, sizeof here, "%s:%zu:seed=%llu", spx_op_name(op), k, (unsigned long long)seed);
    void *scene = t->draw(t->cases[k].size, seed);
    calls(t, cpu, scene, &host);
    if (t->reference != NULL) {
        t->reference(scene, &want);
        compare(&host, &want, 0, "the reference");
    }
    if (device != NULL) {
        calls(t, device, scene, &there);
        compare(&there, &host, 1, "the CPU");
    }
    look_at_blocks();
    free_answer(&want);
    free_answer(&host);
    free_answer(&there);
    t->release(scene);
}

static void run_operation(spx_op op, size_t first, size_t last, uint64_t seed)
{
    const char *name = getenv("SPX_TEST_DEVICE");
    spx_backend device, cpu;
    spx_err e = {0};
    const int two = name != NULL && strcmp(name, "cpu") != 0 && on_cuda[op];
    if (spx_backend_open(&cpu, "cpu", op, NULL, &e) != SPX_OK) {
        puts(spx_err_text(&e));
        exit(1);
    }
    if (two)
        open_device(&device, op);
    for (size_t k = first; k < last; k++)
        run_case(op, k, seed, &cpu, two ? &device : NULL);
    if (two)
        spx_backend_close(&device);
    spx_backend_close(&cpu);
}

static void list(void)
{
    for (int op = 0; op < SPX_NOPERATION; op++) {
        printf("%s: %s\n", spx_op_name((spx_op)op), spx_op_description((spx_op)op));
        for (size_t k = 0; k < tests[op]->ncase; k++)
            printf("    %s:%zu  %s\n", spx_op_name((spx_op)op), k, tests[op]->cases[k].what);
    }
}

/* NAME, NAME:CASE or NAME:CASE:seed=N. */
static int chosen(const char *word)
{
    char name[32] = "";
    unsigned long long seed = SEED;
    size_t k = 0;
    const int n = sscanf(word, "%31[^:]:%zu:seed=%llu", name, &k, &seed);
    for (int op = 0; op < SPX_NOPERATION; op++)
        if (strcmp(name, spx_op_name((spx_op)op)) == 0 && k < tests[op]->ncase) {
            run_operation((spx_op)op, k, n > 1 ? k + 1 : tests[op]->ncase, seed);
            return 1;
        }
    return 0;
}

int main(int argc, char **argv)
{
    const int small = argc == 2 && strcmp(argv[1], "small") == 0;
    if (argc == 2 && strcmp(argv[1], "list") == 0)
        list();
    else if (argc > 1 && !small)
        for (int i = 1; i < argc; i++) {
            if (!chosen(argv[i])) {
                printf("test_backend_ops: %s: no such case: see test_backend_ops list\n", argv[i]);
                return 1;
            }
        }
    else
        for (int op = 0; op < SPX_NOPERATION; op++)
            run_operation((spx_op)op, 0, small ? 1 : tests[op]->ncase, SEED);
    return failures != 0;
}
