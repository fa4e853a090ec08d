#include "common/zero_inputs.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/lines.h"
#include "base/mem.h"
#include "base/order.h"
#include "common/each_input.h"
#include "h5/object.h"
#include "h5/table.h"
#include "products/rvfit.h"

static const char path[] = "/rvfit/exposures";

/* Columns of one input. */
typedef struct {
    size_t n;
    double *v, *err;
    int64_t *target, *warn, *petal, *fiber, *night;
    size_t narm;
    char arm[SPX_MAX_ARM][16];
    double *weight[SPX_MAX_ARM];
} columns;

static void free_columns(columns *c)
{
    void *all[] = {c->v, c->err, c->target, c->warn, c->petal, c->fiber, c->night};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        spx_free(all[i]);
    for (size_t a = 0; a < c->narm; a++)
        spx_free(c->weight[a]);
}

/* Arms of the velocities, without numbers at the end of their names, and their shares. */
static spx_status read_weights(const spx_table *t, columns *c, spx_err *e)
{
    static const char prefix[] = "VRAD_WEIGHT_";
    spx_status st = SPX_OK;
    for (size_t k = 0; k < spx_table_ncol(t) && st == SPX_OK; k++) {
        char *name = spx_table_name(t, (int)k, e);
        st = name == NULL ? SPX_EIO : SPX_OK;
        if (st == SPX_OK && strncmp(name, prefix, sizeof prefix - 1) == 0 && c->narm < SPX_MAX_ARM) {
            char *arm = c->arm[c->narm];
            (void)snprintf(arm, sizeof c->arm[0], "%s", name + sizeof prefix - 1);
            for (char *p = arm; *p != '\0'; p++)
                *p = (char)tolower((unsigned char)*p);
            for (size_t n = strlen(arm); n > 1 && isdigit((unsigned char)arm[n - 1]); n--)
                arm[n - 1] = '\0';
            c->weight[c->narm] = spx_alloc(t->nrow, sizeof(double), e);
            st = c->weight[c->narm] == NULL ? SPX_EIO : spx_table_get_f64(t, name, c->weight[c->narm], e);
            c->narm++;
        }
        spx_free(name);
    }
    return st;
}

/* A key of all rows, of the exposures or else of their fibermap. */
static spx_status read_key(const spx_table *t, const spx_table *fibermap, const char *name, int64_t **out, spx_err *e)
{
    spx_status st = spx_table_find_i64(t, name, out, e);
    if (st == SPX_OK && *out == NULL && fibermap != NULL && fibermap->nrow == t->nrow)
        st = spx_table_find_i64(fibermap, name, out, e);
    if (st == SPX_OK && *out == NULL)
        st = spx_fail(e, SPX_EINPUT, "has no %s, which zero points are to be told apart by: see --by", name);
    return st;
}

static spx_status read_columns(const spx_table *t, const spx_table *fibermap, int by, columns *c, spx_err *e)
{
    c->n = t->nrow;
    if (spx_table_find(t, "VRAD") < 0)
        return spx_fail(e, SPX_EINPUT, "has no velocities of exposures: fit with rvs-fit --joint target --epochs");
    if (spx_table_find(t, "ZERO") >= 0)
        return spx_fail(e, SPX_EINPUT, "has zero points subtracted already: fit without --zero-points");
    c->v = spx_alloc(c->n, sizeof *c->v, e);
    c->err = spx_alloc(c->n, sizeof *c->err, e);
    spx_status st = c->v == NULL || c->err == NULL ? SPX_EIO : spx_table_get_f64(t, "VRAD", c->v, e);
    if (st == SPX_OK)
        st = spx_table_get_f64(t, "VRAD_ERR", c->err, e);
    if (st == SPX_OK)
        st = read_key(t, fibermap, "TARGETID", &c->target, e);
    if (st == SPX_OK)
        st = read_key(t, fibermap, "EPOCH_WARN", &c->warn, e);
    if (st == SPX_OK && (by & SPX_BY_PETAL))
        st = read_key(t, fibermap, "PETAL_LOC", &c->petal, e);
    if (st == SPX_OK && (by & SPX_BY_FIBER))
        st = read_key(t, fibermap, "FIBER", &c->fiber, e);
    if (st == SPX_OK && (by & SPX_BY_NIGHT))
        st = read_key(t, fibermap, "NIGHT", &c->night, e);
    return st == SPX_OK ? read_weights(t, c, e) : st;
}

/* The arm that a velocity is of; NULL: it is of several. */
static const char *arm_of(const columns *c, size_t i)
{
    const char *arm = NULL;
    for (size_t a = 0; a < c->narm; a++)
        if (c->weight[a][i] > 0) {
            if (arm != NULL && strcmp(arm, c->arm[a]) != 0)
                return NULL;
            arm = c->arm[a];
        }
    return arm;
}

/* Appends the exposures of an input that can be used. */
static spx_status append(spx_zero_inputs *z, const columns *c, int by, double max_err, spx_err *e)
{
    spx_zero_exposure *more = spx_grow(z->exposure, z->n, c->n, &z->capacity, sizeof *more, e);
    if (more == NULL)
        return SPX_EIO;
    z->exposure = more;
    for (size_t i = 0; i < c->n; i++) {
        const char *arm = arm_of(c, i);
        spx_zero_exposure x = {c->v[i], c->err[i], c->target[i], {.key = {"", -1, -1, -1}}};
        if (!isfinite(x.v) || !(x.err > 0 && x.err <= max_err) || (c->warn[i] & SPX_EPOCH_OUT) != 0) {
            z->nleft++;
            continue;
        }
        if ((by & SPX_BY_ARM) && arm == NULL)
            return spx_fail(
                e, SPX_EINPUT,
                "row %zu: the velocity is of several arms: fit each arm by itself (rvs-fit --arms), and give "
                "all of these fits",
                i);
        if (by & SPX_BY_ARM)
            (void)snprintf(x.where.key.arm, sizeof x.where.key.arm, "%s", arm);
        x.where.key.petal = c->petal != NULL ? c->petal[i] : -1;
        x.where.key.fiber = c->fiber != NULL ? c->fiber[i] : -1;
        x.where.key.night = c->night != NULL ? c->night[i] : -1;
        z->exposure[z->n++] = x;
    }
    return SPX_OK;
}

static spx_status add_input(const spx_input *in, int by, double max_err, spx_zero_inputs *z, spx_err *e)
{
    spx_table *t = NULL, *fibermap = NULL;
    columns c = {0};
    spx_status st = spx_table_read(in->file, path, &t, e);
    if (st == SPX_OK && t == NULL)
        st = spx_fail(e, SPX_EINPUT, "is missing: fit with rvs-fit --joint target --epochs");
    if (st == SPX_OK)
        st = spx_table_read(in->file, "/exp_fibermap", &fibermap, e);
    if (st == SPX_OK && (st = read_columns(t, fibermap, by, &c, e)) == SPX_OK)
        st = append(z, &c, by, max_err, e);
    if (st != SPX_OK)
        spx_err_at(e, in->name, path);
    free_columns(&c);
    spx_table_free(t);
    spx_table_free(fibermap);
    return st;
}

/* Numbers of stars and groups. */
static spx_status number(spx_zero_inputs *z, spx_err *e)
{
    int64_t *id = z->target = spx_alloc(z->n, sizeof *id, e);
    z->zero = spx_alloc(z->n, sizeof *z->zero, e);
    z->v = spx_alloc(z->n, sizeof *z->v, e);
    z->err = spx_alloc(z->n, sizeof *z->err, e);
    z->star = spx_alloc(z->n, sizeof *z->star, e);
    z->group = spx_alloc(z->n, sizeof *z->group, e);
    z->known = spx_alloc(z->n, sizeof *z->known, e);
    z->known_err = spx_alloc(z->n, sizeof *z->known_err, e);
    if (id == NULL || z->zero == NULL || z->v == NULL || z->err == NULL || z->star == NULL || z->group == NULL ||
        z->known == NULL || z->known_err == NULL)
        return SPX_EIO;
    for (size_t i = 0; i < z->n; i++) {
        id[i] = z->exposure[i].target;
        z->zero[i] = z->exposure[i].where;
        z->v[i] = z->exposure[i].v;
        z->err[i] = z->exposure[i].err;
        z->known[i] = NAN;
    }
    qsort(id, z->n, sizeof *id, spx_by_i64);
    qsort(z->zero, z->n, sizeof *z->zero, spx_zero_key_compare);
    for (size_t i = 0; i < z->n; i++) {
        if (i == 0 || id[i] != id[z->nstar - 1])
            id[z->nstar++] = id[i];
        if (i == 0 || spx_zero_key_compare(&z->zero[i], &z->zero[z->ngroup - 1]) != 0)
            z->zero[z->ngroup++] = z->zero[i];
    }
    for (size_t i = 0; i < z->n; i++) {
        const int64_t *star = bsearch(&z->exposure[i].target, id, z->nstar, sizeof *id, spx_by_i64);
        const spx_zeropoint *group =
            bsearch(&z->exposure[i].where, z->zero, z->ngroup, sizeof *z->zero, spx_zero_key_compare);
        z->star[i] = (size_t)(star - id);
        z->group[i] = (size_t)(group - z->zero);
    }
    return SPX_OK;
}

/* Known velocities. */
static spx_status read_known(spx_run *run, const char *name, spx_zero_inputs *z, spx_err *e)
{
    spx_lines lines;
    spx_status st = spx_run_text_input(run, name, &lines, e);
    if (st != SPX_OK)
        return st;
    for (char *p, *q, *r; st == SPX_OK && (p = spx_lines_next(&lines)) != NULL;) {
        const int64_t target = strtoll(p, &q, 10);
        const double v = strtod(q, &r);
        char *end;
        double err = strtod(r, &end);
        if (end == r)
            err = 0;
        if (q == p || r == q || *end != '\0' || !isfinite(v) || !(err >= 0 && err < 1e6))
            st = spx_fail(e, SPX_EINPUT, "%s:%zu: is not a TARGETID, a velocity and its error (km/s)", name,
                          lines.number);
        const int64_t *star = bsearch(&target, z->target, z->nstar, sizeof *star, spx_by_i64);
        if (st == SPX_OK && star != NULL) {
            const size_t k = (size_t)(star - z->target);
            if (isfinite(z->known[k]))
                st = spx_fail(e, SPX_EINPUT, "%s:%zu: target %lld is there twice", name, lines.number,
                              (long long)target);
            z->known[k] = v;
            z->known_err[k] = err;
            z->nknown++;
        }
    }
    st = spx_lines_close(&lines, st, e);
    if (st == SPX_OK && z->nknown == 0)
        st = spx_fail(e, SPX_EINPUT, "%s: none of its targets was observed", name);
    return st;
}

spx_status spx_zero_inputs_read(spx_run *run, int by, double max_err, const char *known, spx_zero_inputs *z, spx_err *e)
{
    spx_inputs all = {0};
    spx_status st = spx_all_inputs(run, run->ninput, run->input, &all, e);
    *z = (spx_zero_inputs){0};
    for (size_t k = 0; k < all.n && st == SPX_OK; k++)
        st = add_input(all.in[k], by, max_err, z, e);
    spx_inputs_free(&all);
    if (st == SPX_OK && z->n == 0)
        st = spx_fail(e, SPX_ENO, "no exposure has a velocity that can be used (EPOCH_WARN, --max-error)");
    if (st == SPX_OK)
        st = number(z, e);
    return st == SPX_OK && known != NULL ? read_known(run, known, z, e) : st;
}

void spx_zero_inputs_free(spx_zero_inputs *z)
{
    void *all[] = {z->exposure, z->v, z->err, z->star, z->group, z->target, z->known, z->known_err, z->zero};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        spx_free(all[i]);
}
