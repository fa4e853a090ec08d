#include "common/rvfit_zero.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "rvfit/zero.h"

/* Name of an arm without the number of its grid. */
static void base_name(const char *arm, char *out, size_t size)
{
    (void)snprintf(out, size, "%s", arm);
    for (size_t n = strlen(out); n > 1 && isdigit((unsigned char)out[n - 1]); n--)
        out[n - 1] = '\0';
}

typedef struct {
    int64_t *petal, *fiber, *night; /* [all.nspec] */
    double *zero, *err;             /* [nrow][narm] */
    size_t *id;
} tables;

static void look_up(const spx_zeropoints *z, const spx_rvfit *all, const tables *t)
{
    for (size_t i = 0; i < all->nrow; i++)
        for (size_t a = 0; a < all->narm; a++) {
            const size_t row = all->row[i], k = i * all->narm + a;
            spx_zero_key key = {"", t->petal[row], t->fiber[row], t->night[row]};
            base_name(all->arm[a].name, key.arm, sizeof key.arm);
            const spx_zeropoint *found = spx_zeropoints_find(z, &key);
            t->id[k] = found != NULL ? (size_t)(found - z->row) : SIZE_MAX;
            t->zero[k] = found != NULL ? found->zero : 0;
            t->err[k] = found != NULL ? found->err : 0;
        }
}

/* How many velocities have no zero point, or not for all of their arms. */
static spx_status report(spx_run *run, const spx_rvfit *all, spx_err *e)
{
    size_t without = 0, fitted = 0;
    for (size_t k = 0; k < all->nstar; k++) {
        const int good = (all->star[k].warn & SPX_RVS_BAD) == 0;
        fitted += (size_t)good;
        without += good && all->star[k].zero_known < 1 - 1e-9;
    }
    if (without > 0)
        spx_warn(
            "%zu of %zu velocities have no zero point for some of their arms and exposures, where 0 was subtracted "
            "(ZERO_KNOWN is below 1)",
            without, fitted);
    return spx_run_record(run, "without_zero_point", e, "%zu", without);
}

spx_status spx_rvfit_apply_zero(spx_run *run, const spx_zeropoints *z, const spx_spectra_parts *p, spx_rvfit *all,
                                spx_err *e)
{
    tables t = {0};
    spx_status st = spx_spectra_parts_number(p, "PETAL_LOC", &t.petal, e);
    if (st == SPX_OK)
        st = spx_spectra_parts_number(p, "FIBER", &t.fiber, e);
    if (st == SPX_OK)
        st = spx_spectra_parts_number(p, "NIGHT", &t.night, e);
    t.zero = spx_alloc2(all->nrow, all->narm, sizeof *t.zero, e);
    t.err = spx_alloc2(all->nrow, all->narm, sizeof *t.err, e);
    t.id = spx_alloc2(all->nrow, all->narm, sizeof *t.id, e);
    if (st == SPX_OK && (t.zero == NULL || t.err == NULL || t.id == NULL))
        st = SPX_EIO;
    if (st == SPX_OK) {
        look_up(z, all, &t);
        st = spx_rvfit_subtract_zero(all, t.zero, t.err, t.id, e);
    }
    void *memory[] = {t.petal, t.fiber, t.night, t.zero, t.err, t.id};
    for (size_t i = 0; i < sizeof memory / sizeof *memory; i++)
        spx_free(memory[i]);
    return st == SPX_OK ? report(run, all, e) : st;
}
