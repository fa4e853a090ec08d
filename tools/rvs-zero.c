/* rvs-zero: zero points of velocities, from standards or from repeated exposures. */
#include <math.h>
#include <string.h>

#include "app/main.h"
#include "base/log.h"
#include "base/mem.h"
#include "common/zero_inputs.h"
#include "products/zeropoint_h5.h"
#include "rvfit/zero.h"

static struct {
    const char *by, *known;
    double max_error;
    long least;
} o = {.by = "fiber,night", .max_error = 20, .least = 3};

static const spx_opt options[] = {
    SPX_OPTION(
        STRING, "by", 'b', "KEY,...", o.by,
        "Tell zero points apart by these: arm, petal (the spectrograph, PETAL_LOC), fiber, night; none: one zero "
        "point"),
    SPX_OPTION(STRING, "known", 'k', "FILE", o.known,
               "Velocities of standards: a text of TARGETID, velocity and its error (km/s), a line a star",
               .absent = "none: zero points are relative"),
    SPX_OPTION(DOUBLE, "max-error", 0, "KMS", o.max_error, "Leave out exposures with larger errors", .min = 0,
               .max = 1e6),
    SPX_OPTION(INT, "least", 'n', "N", o.least, "Leave out zero points of fewer exposures", .min = 1, .max = 1000000),
    {0}};

/* --by as a sum. */
static spx_status parse_keys(int *by, spx_err *e)
{
    static const char *const name[] = {"arm", "petal", "fiber", "night"};
    *by = 0;
    for (const char *p = strcmp(o.by, "none") == 0 ? "" : o.by; *p != '\0';) {
        const size_t n = strcspn(p, ",");
        int bit = 0;
        for (int k = 0; k < 4; k++)
            if (strlen(name[k]) == n && strncmp(name[k], p, n) == 0)
                bit = 1 << k;
        if (bit == 0 || (*by & bit))
            return spx_fail(e, SPX_EUSAGE, "--by %s: should be of arm, petal, fiber, night, each once, or none", o.by);
        *by |= bit;
        p += n + (p[n] == ',');
    }
    return SPX_OK;
}

/* Zero points of enough exposures, as they were measured. */
static spx_status measure(const spx_zero_inputs *in, spx_zeropoints *z, spx_err *e)
{
    const size_t n = in->ngroup;
    const spx_zero_input input = {in->n, in->nstar, n, in->v, in->err, in->star, in->group, in->known, in->known_err};
    double *zero = spx_alloc(n, sizeof *zero, e), *err = spx_alloc(n, sizeof *err, e),
           *scatter = spx_alloc(n, sizeof *scatter, e);
    int64_t *relative = spx_alloc(n, sizeof *relative, e), *used = spx_alloc(n, sizeof *used, e);
    z->row = spx_alloc(n, sizeof *z->row, e);
    spx_status st = zero == NULL || err == NULL || scatter == NULL || relative == NULL || used == NULL || z->row == NULL
                        ? SPX_EIO
                        : spx_rvfit_measure_zero(&input, zero, err, scatter, relative, used, e);
    for (size_t g = 0; g < n && st == SPX_OK; g++)
        if (used[g] >= o.least)
            z->row[z->n++] = (spx_zeropoint){.key = in->zero[g].key,
                                             .zero = zero[g],
                                             .err = err[g],
                                             .n = used[g],
                                             .scatter = scatter[g],
                                             .relative = relative[g]};
    if (st == SPX_OK && z->n == 0)
        st = spx_fail(e, SPX_ENO, "no zero point has %ld exposures (--least)", o.least);
    spx_free(zero);
    spx_free(err);
    spx_free(scatter);
    spx_free(relative);
    spx_free(used);
    return st;
}

/* How many there are, and of how many sets. */
static spx_status report(spx_run *s, const spx_zero_inputs *in, const spx_zeropoints *z, spx_err *e)
{
    int64_t sets = 0;
    size_t free = 0;
    for (size_t g = 0; g < z->n; g++) {
        sets = z->row[g].relative > sets ? z->row[g].relative : sets;
        free += z->row[g].relative > 0;
    }
    spx_note("%zu zero points of %zu exposures of %zu stars (%zu with known velocities); %zu exposures and %zu zero "
             "points left out",
             z->n, in->n, in->nstar, in->nknown, in->nleft, in->ngroup - z->n);
    if (free > 0)
        spx_warn(
            "%zu zero points are relative, with a mean of 0 in each of %lld sets that no star connects (RELATIVE): "
            "--known fixes them",
            free, (long long)sets);
    spx_status st = spx_run_record(s, "zero_points", e, "%zu", z->n);
    if (st == SPX_OK)
        st = spx_run_record(s, "exposures", e, "%zu", in->n);
    return st == SPX_OK ? spx_run_record(s, "relative", e, "%zu", free) : st;
}

static spx_status run(spx_run *s, spx_err *e)
{
    spx_zero_inputs in = {0};
    spx_zeropoints z = {0};
    hid_t file;
    int by;
    spx_status st = parse_keys(&by, e);
    if (st == SPX_OK && s->ninput == 0)
        st = spx_fail(e, SPX_EUSAGE, "no input file");
    spx_run_step(s, "read");
    if (st == SPX_OK)
        st = spx_zero_inputs_read(s, by, o.max_error, o.known, &in, e);
    spx_run_step(s, "measure");
    if (st == SPX_OK)
        st = measure(&in, &z, e);
    spx_run_step(s, "write");
    if (st == SPX_OK)
        st = spx_run_output(s, "zeropoint", &file, e);
    if (st == SPX_OK)
        st = spx_zeropoints_write(file, &z, e);
    if (st == SPX_OK)
        st = report(s, &in, &z, e);
    if (st == SPX_OK)
        st = spx_run_commit(s, e);
    spx_zero_inputs_free(&in);
    spx_zeropoints_free(&z);
    return st;
}

int main(int argc, char **argv)
{
    static const spx_program program = {.name = "rvs-zero",
                                        .summary = "zero points of velocities, from standards or repeats",
                                        .usage = "[OPTION...] [FILE...]",
                                        .example = "rvs-zero --by arm,night --known standards.txt -o zero.h5 rv.h5",
                                        .options = options,
                                        .flags = SPX_USES_BLAS,
                                        .run = run};
    return spx_main(&program, argc, argv);
}
