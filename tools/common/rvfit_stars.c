#include "common/rvfit_stars.h"

#include <math.h>

#include "h5/file.h"
#include "h5/table.h"
#include "products/rvfit_h5.h"
#include "run/select.h"

static spx_status read_redshifts(const spx_rvfit_args *o, spx_run *s, const spx_spectra_parts *p, spx_redshifts *out,
                                 spx_err *e)
{
    spx_input *in;
    if (o->zbest != NULL) {
        spx_status st = spx_run_extra_input(s, o->zbest, &in, e);
        return st == SPX_OK ? spx_redshifts_read(in->file, out, e) : st;
    }
    for (size_t i = 0; i < p->npart; i++)
        if (spx_redshifts_there(p->part[i].file))
            return spx_redshifts_read(p->part[i].file, out, e);
    return spx_fail(e, SPX_EUSAGE,
                    "--zbest-select: the file of the spectra holds no redshifts: name the redshift file with --zbest");
}

/* Warns of what exposures of a star should not be: spectra of no target, of different places, of one exposure. */
static spx_status look_at_exposures(const spx_spectra_parts *p, const spx_rvfit_stars *s, spx_err *e)
{
    int64_t *id = NULL, *expid = NULL;
    size_t apart = 0, example = 0, twice[2] = {0, 0}, none = 0;
    spx_status st = spx_table_find_i64(p->all.fibermap, "TARGETID", &id, e);
    if (st != SPX_OK || id == NULL)
        return st;
    for (size_t i = 0; i < s->nrow; i++)
        none += id[s->row[i]] == -1;
    if (none > 0)
        spx_warn("--joint target: %zu of %zu spectra have no target (TARGETID -1): each is fitted alone", none,
                 s->nrow);
    st = spx_spectra_apart(p, s->row, s->nstar, s->first, &apart, &example, e);
    if (st == SPX_OK && apart > 0)
        spx_warn("--joint target: %zu of %zu targets have exposures more than an arcminute apart on the sky, such as "
                 "TARGETID %lld: different stars are fitted as one; give each its TARGETID, or -1 to what is no target",
                 apart, s->nstar, (long long)id[example]);
    if (st == SPX_OK)
        st = spx_spectra_twice(p, s->row, s->nstar, s->first, twice, e);
    if (st == SPX_OK && twice[0] != twice[1] && (st = spx_spectra_parts_number(p, "EXPID", &expid, e)) == SPX_OK)
        spx_warn("--joint target: exposure %lld of TARGETID %lld is there twice, with the same fibre: errors are too "
                 "small by up to the square root of 2: give each exposure once",
                 (long long)expid[twice[0]], (long long)id[twice[0]]);
    spx_free(expid);
    spx_free(id);
    return st;
}

spx_status spx_rvfit_choose_stars(const spx_rvfit_args *o, spx_run *run, const spx_spectra_parts *p,
                                  const spx_setup *const *setup, spx_rvfit_stars *out, spx_err *e)
{
    uint8_t arm[SPX_MAX_ARM];
    int64_t *target = NULL;
    spx_selection s = {.rows = o->rows,
                       .all_fibers = o->all_fibers,
                       .has_expid = o->minexpid_given || o->maxexpid_given,
                       .expid_min = o->minexpid_given ? o->minexpid : INT64_MIN,
                       .expid_max = o->maxexpid_given ? o->maxexpid : INT64_MAX,
                       .has_minsn = o->minsn_given,
                       .minsn = o->minsn,
                       .sn_arm = arm,
                       .objtypes = o->objtypes};
    out->joint = o->joint != SPX_JOINT_NO;
    for (size_t a = 0; a < SPX_MAX_ARM; a++)
        arm[a] = setup[a] != NULL;
    spx_status st = o->zbest != NULL || o->zbest_select ? read_redshifts(o, run, p, &out->redshifts, e) : SPX_OK;
    s.stars = o->zbest_select ? &out->redshifts : NULL;
    if (st == SPX_OK && o->targetid_file != NULL)
        st = spx_run_foreign_input(run, o->targetid_file, e);
    if (st == SPX_OK)
        st = spx_targets_collect(o->targetid.n, o->targetid.value, o->targetid_file, &s.ntarget, &target, e);
    s.target = target;
    if (st == SPX_OK)
        st = spx_spectra_select(p, &s, &out->row, &out->nrow, e);
    spx_free(target);
    if (st == SPX_OK && out->nrow == 0)
        return spx_fail(e, SPX_ENO, "none of the %zu spectra is a star to fit: choose others, or give --all-fibers",
                        p->all.nspec);
    out->nstar = out->nrow;
    if (st == SPX_OK && out->joint)
        st = spx_spectra_group(p, o->joint == SPX_JOINT_ALL, out->nrow, out->row, &out->nstar, &out->first, e);
    return st == SPX_OK && o->joint == SPX_JOINT_TARGET ? look_at_exposures(p, out, e) : st;
}

size_t *spx_rvfit_star_rows(const spx_rvfit_stars *s, spx_err *e)
{
    size_t *row = spx_alloc(s->nstar, sizeof *row, e);
    for (size_t k = 0; k < s->nstar && row != NULL; k++)
        row[k] = s->row[s->joint ? s->first[k] : k];
    return row;
}

spx_status spx_rvfit_read_starts(const spx_rvfit_args *o, spx_run *run, const spx_spectra_parts *p,
                                 const spx_setup *const *setup, const spx_rvfit_stars *s, size_t nq, double **start,
                                 spx_err *e)
{
    spx_input *file;
    const spx_setup *fitted = NULL;
    size_t missing = 0, *row = spx_rvfit_star_rows(s, e);
    for (size_t a = 0; a < SPX_MAX_ARM; a++)
        fitted = fitted == NULL ? setup[a] : fitted;
    if (row == NULL || fitted == NULL) { /* no arm to fit: the stage says so */
        spx_free(row);
        return row == NULL ? SPX_EIO : SPX_OK;
    }
    *start = spx_alloc2(s->nstar, nq, sizeof **start, e);
    spx_status st = *start == NULL ? SPX_EIO : spx_run_extra_input(run, o->start, &file, e);
    if (st == SPX_OK)
        st = spx_rvfit_read_start(file->file, &p->all, fitted, s->nstar, row, *start, e);
    for (size_t i = 0; i < s->nstar && st == SPX_OK; i++)
        missing += !isfinite((*start)[i * nq]);
    if (st == SPX_OK && missing > 0)
        spx_note("%zu of %zu spectra start from the cross-correlation: %s has no velocity of them", missing, s->nstar,
                 o->start);
    spx_free(row);
    return st;
}

void spx_rvfit_stars_free(spx_rvfit_stars *s)
{
    spx_free(s->row);
    spx_free(s->first);
    spx_redshifts_free(&s->redshifts);
}
