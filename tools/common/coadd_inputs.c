#include "common/coadd_inputs.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/order.h"
#include "common/each_input.h"
#include "h5/object.h"
#include "h5/write.h"
#include "products/cards_h5.h"
#include "run/select.h"

/* ---- files ---- */

/* The header's cards that all inputs have, and the precision of the arms. */
static spx_status look_at(spx_coadd_inputs *in, const spx_spectra_part *part, int first, spx_err *e)
{
    spx_cards h = {0};
    spx_status st = spx_spectra_part_header(part, first ? &in->header : &h, e);
    if (st == SPX_OK && !first)
        spx_cards_keep_common(&in->header, &h);
    spx_cards_free(&h);
    for (size_t k = 0; k < part->narm && st == SPX_OK; k++) {
        char path[SPX_ARM_PATH + 8];
        (void)snprintf(path, sizeof path, "%s/flux", part->path[k]);
        hid_t set = spx_h5_open(part->file, path, e), type = set < 0 ? set : H5Dget_type(set);
        if (type >= 0 && H5Tget_size(type) > 4)
            in->precision = 8;
        if (type >= 0)
            (void)H5Tclose(type);
        if (set >= 0)
            (void)H5Dclose(set);
        st = e->code;
    }
    return st;
}

static spx_status open_all(spx_run *run, spx_coadd_inputs *in, spx_err *e)
{
    spx_inputs all = {0};
    spx_status st = spx_all_inputs_once(run, run->ninput, run->input, &all, e);
    spx_input *const *file = all.in;
    if (st == SPX_OK && (in->name = spx_alloc(all.n, sizeof *in->name, e)) == NULL)
        st = SPX_EIO;
    for (size_t i = 0; i < all.n && st == SPX_OK; i++) {
        const char *base = strrchr(file[i]->name, '/');
        if (!spx_h5_exists(file[i]->file, "/frame") && !spx_h5_exists(file[i]->file, "/spectra"))
            st = spx_fail_at(e, SPX_EINPUT, file[i]->name, NULL, "give extracted frames or spectra",
                             "holds nothing that can be coadded (/frame or /spectra)");
        if (st == SPX_OK)
            st = spx_spectra_parts_add(&in->spectra, file[i]->file, 1, e);
        if (st == SPX_OK)
            st = look_at(in, &in->spectra.part[i], i == 0, e);
        (void)snprintf(in->name[i], sizeof *in->name, "%.127s", base != NULL ? base + 1 : file[i]->name);
    }
    spx_inputs_free(&all);
    return st;
}

/* Arms of one name have one grid and unit, else each would be coadded for itself. */
static spx_status check_grids(const spx_coadd_inputs *in, spx_err *e)
{
    const spx_spectra_parts *p = &in->spectra;
    for (size_t i = 0; i < p->npart; i++)
        for (size_t k = 0; k < p->part[i].narm; k++) {
            const spx_arm *a = &p->all.arm[p->part[i].arm[k]], *b = NULL;
            if (strcmp(p->base[p->part[i].arm[k]], a->name) == 0)
                continue;
            for (size_t n = 0; n < p->all.narm; n++)
                if (strcmp(p->all.arm[n].name, p->base[p->part[i].arm[k]]) == 0)
                    b = &p->all.arm[n];
            if (b != NULL && strcmp(a->unit, b->unit) != 0)
                return spx_fail_at(e, SPX_EINPUT, in->name[i], p->part[i].path[k], "calibrate all exposures, or none",
                                   "has flux in '%s', but '%s' in the inputs before it", a->unit, b->unit);
            const char *why = b == NULL || a->nwave != b->nwave ? "another number of bins"
                              : a->medium != b->medium          ? "another medium (vacuum, air)"
                              : a->barycentric != b->barycentric || a->frame_unknown != b->frame_unknown
                                  ? "another frame (topocentric, barycentric)"
                              : a->ndiag != b->ndiag ? "another number of diagonals of the resolution matrix"
                                                     : "other wavelengths";
            return spx_fail_at(e, SPX_EINPUT, in->name[i], p->part[i].path[k],
                               "extract all exposures with the same --wavelength", "has %s than the inputs before it",
                               why);
        }
    return SPX_OK;
}

/* ---- targets ---- */

enum { MOST_FIBER = 1000000 };

/* Target of each row: TARGETID, or else tile and fibre; -1: none. */
static spx_status target_ids(const spx_coadd_inputs *in, const size_t *part, int64_t **id, spx_err *e)
{
    static const char remedy[] = "add column TARGETID to the fibermaps";
    const spx_spectra_parts *p = &in->spectra;
    int64_t *tile = NULL, *fiber = NULL;
    spx_status st = spx_table_find_i64(p->all.fibermap, "TARGETID", id, e);
    if (st != SPX_OK || *id != NULL)
        return st;
    st = spx_table_find_i64(p->all.fibermap, "FIBER", &fiber, e);
    if (st == SPX_OK)
        st = spx_spectra_parts_number(p, "TILEID", &tile, e);
    if (st == SPX_OK && fiber == NULL)
        st = spx_fail_at(e, SPX_EINPUT, in->name[0], "/fibermap", remedy,
                         "has neither TARGETID nor FIBER: it cannot be told which spectra are of one target");
    if (st == SPX_OK && (*id = spx_alloc(p->all.nspec, sizeof **id, e)) == NULL)
        st = SPX_EIO;
    for (size_t r = 0; r < p->all.nspec && st == SPX_OK; r++) {
        if (tile[r] < 0)
            st = spx_fail_at(
                e, SPX_EINPUT, in->name[part[r]], "/fibermap", remedy,
                "has no TARGETID, and the header no TILEID: fibres of several exposures may look at several "
                "targets");
        else if (fiber[r] >= MOST_FIBER || tile[r] > INT64_MAX / MOST_FIBER - 1)
            st = spx_fail_at(e, SPX_EINPUT, in->name[part[r]], "/fibermap", remedy,
                             "fibre %lld of tile %lld is no number "
                             "of a fibre",
                             (long long)fiber[r], (long long)tile[r]);
        else
            (*id)[r] = fiber[r] < 0 ? -1 : tile[r] * MOST_FIBER + fiber[r];
    }
    spx_free(tile);
    spx_free(fiber);
    return st;
}

/* SPX_EINPUT where two rows of a target are of one exposure, fibre and arm. */
static spx_status check_twice(const spx_coadd_inputs *in, const size_t *part, spx_err *e)
{
    int64_t *fiber = NULL;
    size_t at[2];
    spx_status st = spx_spectra_twice(&in->spectra, in->row, in->ntarget, in->first, at, e);
    if (st == SPX_OK && at[0] != at[1] &&
        (st = spx_table_find_i64(in->spectra.all.fibermap, "FIBER", &fiber, e)) == SPX_OK)
        st = spx_fail(e, SPX_EINPUT, "%s: exposure %lld of fibre %lld is in %s already: give each exposure once",
                      in->name[part[at[1]]], (long long)in->expid[at[1]], fiber == NULL ? -1 : (long long)fiber[at[1]],
                      in->name[part[at[0]]]);
    spx_free(fiber);
    return st;
}

/* Warns of targets whose exposures are of different places on the sky. */
static spx_status check_places(const spx_coadd_inputs *in, const int64_t *id, spx_err *e)
{
    size_t n, example;
    const spx_status st = spx_spectra_apart(&in->spectra, in->row, in->ntarget, in->first, &n, &example, e);
    if (st == SPX_OK && n > 0)
        spx_warn("%zu of %zu targets have exposures more than an arcminute apart on the sky, such as TARGETID %lld: "
                 "different stars are coadded; give each its TARGETID, or -1 to what is no target",
                 n, in->ntarget, (long long)id[example]);
    return st;
}

static spx_status check_frames(const spx_coadd_inputs *in, spx_err *e)
{
    int several = 0;
    for (size_t t = 0; t < in->ntarget; t++)
        several |= in->first[t + 1] - in->first[t] > 1;
    for (size_t k = 0; k < in->spectra.all.narm && several; k++)
        if (!in->spectra.all.arm[k].barycentric)
            return spx_fail_at(
                e, SPX_EINPUT, in->name[0], in->spectra.part[0].path[0],
                "extract with specx-extract --barycentric; --allow-topocentric takes exposures of one hour",
                "has %s, in which a star's lines move by up to 30 km/s in half a year and 1 km/s in a night",
                in->spectra.all.arm[k].frame_unknown ? "wavelengths of unknown frame, which may be topocentric ones"
                                                     : "topocentric wavelengths");
    return SPX_OK;
}

/* Rows that have a target, and one of those in the text `targets` where there is one. */
static spx_status take_rows(const char *targets, size_t n, const int64_t *id, spx_coadd_inputs *in, spx_err *e)
{
    int64_t *wanted = NULL;
    size_t nwanted = 0;
    spx_status st = targets != NULL ? spx_targets_collect(0, NULL, targets, &nwanted, &wanted, e) : SPX_OK;
    if (st == SPX_OK && targets != NULL)
        qsort(wanted, nwanted, sizeof *wanted, spx_by_i64);
    for (size_t r = 0; r < n && st == SPX_OK; r++) {
        in->nleft += id[r] == -1;
        if (id[r] == -1)
            continue;
        const size_t k = spx_targets_lower(nwanted, wanted, id[r]);
        if (targets == NULL || (k < nwanted && wanted[k] == id[r]))
            in->row[in->nrow++] = r;
    }
    spx_free(wanted);
    if (st == SPX_OK && in->nrow == 0)
        st = in->nleft == n
                 ? spx_fail_at(e, SPX_EINPUT, in->name[0], "/fibermap", NULL,
                               "has no target: TARGETID is -1 in every row")
                 : spx_fail_at(e, SPX_EINPUT, in->name[0], "/fibermap", NULL, "has no target of %s", targets);
    return st;
}

/* Leaves out exposures of a bad status, of targets that have others; of those that have none, all stay. */
static spx_status drop_bad(spx_coadd_inputs *in, spx_err *e)
{
    int64_t *bad = NULL;
    spx_status st = spx_fibermap_status(in->spectra.all.fibermap, &bad, e);
    size_t kept = 0;
    for (size_t t = 0, i = 0; t < in->ntarget && st == SPX_OK && bad != NULL; t++) {
        const size_t end = in->first[t + 1];
        int good = 0;
        for (size_t k = i; k < end; k++)
            good |= bad[in->row[k]] == 0;
        for (; i < end; i++)
            if (bad[in->row[i]] == 0 || !good)
                in->row[kept++] = in->row[i];
        in->first[t + 1] = kept;
    }
    if (st == SPX_OK && bad != NULL) {
        in->nbad = in->nrow - kept;
        in->nrow = kept;
    }
    spx_free(bad);
    return st;
}

spx_status spx_coadd_inputs_read(spx_run *run, int topocentric, const char *targets, spx_coadd_inputs *in, spx_err *e)
{
    int64_t *id = NULL;
    in->precision = 4;
    in->spectra.with_resolution = 1;
    spx_status st = open_all(run, in, e);
    const size_t n = in->spectra.all.nspec;
    size_t *part = st == SPX_OK ? spx_alloc(n, sizeof *part, e) : NULL;
    uint64_t *arms = part != NULL ? spx_alloc(n, sizeof *arms, e) : NULL;
    if (st == SPX_OK && (arms == NULL || (in->row = spx_alloc(n, sizeof *in->row, e)) == NULL))
        st = SPX_EIO;
    if (st == SPX_OK && in->spectra.dropped.n > 0)
        spx_note("columns of the fibermaps that not all inputs have alike are left out: %s", in->spectra.dropped.s);
    if (st == SPX_OK)
        st = check_grids(in, e);
    if (st == SPX_OK) {
        spx_spectra_parts_sources(&in->spectra, part, arms);
        st = target_ids(in, part, &id, e);
    }
    if (st == SPX_OK)
        st = spx_spectra_parts_number(&in->spectra, "EXPID", &in->expid, e);
    if (st == SPX_OK)
        st = take_rows(targets, n, id, in, e);
    if (st == SPX_OK)
        st = spx_spectra_group_by(id, in->nrow, in->row, &in->ntarget, &in->first, e);
    if (st == SPX_OK && !topocentric)
        st = check_frames(in, e);
    if (st == SPX_OK)
        st = check_twice(in, part, e);
    if (st == SPX_OK)
        st = check_places(in, id, e);
    if (st == SPX_OK)
        st = drop_bad(in, e);
    spx_free(id);
    spx_free(part);
    spx_free(arms);
    return st;
}

void spx_coadd_inputs_free(spx_coadd_inputs *in)
{
    spx_spectra_parts_free(&in->spectra);
    spx_cards_free(&in->header);
    spx_free(in->name);
    spx_free(in->row);
    spx_free(in->first);
    spx_free(in->expid);
}

/* ---- tables ---- */

/* Name of a column of an arm: SCALE_B. */
static const char *column(char name[40], const char *what, const spx_arm *a)
{
    size_t n = (size_t)snprintf(name, 40, "%s_%.15s", what, a->name);
    for (size_t i = 0; i < n; i++)
        name[i] = (char)toupper((unsigned char)name[i]);
    return name;
}

/* Columns that this program adds; those of an earlier coadd are left out. */
static spx_table *without_own(const spx_coadd_inputs *in, const spx_table *t, const char *const *what, spx_err *e)
{
    enum { MOST = SPX_MAX_ARM * 8 + 8 };
    char names[MOST][40];
    const char *list[MOST + 1] = {NULL};
    size_t n = 0;
    for (size_t k = 0; what[k] != NULL; k++) {
        list[n] = what[k];
        n++;
        for (size_t a = 0; a < in->spectra.all.narm && n < MOST; a++, n++)
            list[n] = column(names[n], what[k], &in->spectra.all.arm[a]);
    }
    return spx_table_without(t, list, e);
}

/* Status of a target: that of its exposures, all bits of those that went in. */
static spx_status add_status(const spx_coadd_inputs *in, spx_table *t, spx_err *e)
{
    int64_t *status = NULL;
    spx_status st = spx_table_find_i64(in->spectra.all.fibermap, "FIBERSTATUS", &status, e);
    if (st == SPX_OK && status == NULL)
        st = spx_table_find_i64(in->spectra.all.fibermap, "COADD_FIBERSTATUS", &status, e);
    int32_t *all = st == SPX_OK && status != NULL ? spx_alloc(in->ntarget, sizeof *all, e) : NULL;
    for (size_t k = 0; k < in->ntarget && all != NULL; k++)
        for (size_t i = in->first[k]; i < in->first[k + 1]; i++)
            all[k] |= (int32_t)status[in->row[i]];
    if (all != NULL)
        st = spx_table_add(t, "COADD_FIBERSTATUS", H5T_NATIVE_INT32, NULL, all, e);
    else if (status != NULL)
        st = e->code;
    spx_free(status);
    spx_free(all);
    return st;
}

/* Number of exposures of a target: of different EXPIDs, where they are known; of earlier coadds those that went in. */
static spx_status count_exposures(const spx_coadd_inputs *in, int32_t *count, spx_err *e)
{
    int64_t *before = NULL;
    spx_status st = spx_table_find_i64(in->spectra.all.fibermap, "COADD_NUMEXP", &before, e);
    for (size_t t = 0; t < in->ntarget && st == SPX_OK; t++)
        for (size_t i = in->first[t]; i < in->first[t + 1]; i++) {
            int again = 0;
            for (size_t k = in->first[t]; k < i && !again; k++)
                again = in->expid[in->row[i]] >= 0 && in->expid[in->row[k]] == in->expid[in->row[i]];
            if (!again)
                count[t] += before != NULL && before[in->row[i]] > 0 ? (int32_t)before[in->row[i]] : 1;
        }
    spx_free(before);
    return st;
}

static spx_status write_fibermap(const spx_coadd_inputs *in, const spx_coadd *coadd, hid_t file, spx_err *e)
{
    static const char *const own[] = {"COADD_NUMEXP", "COADD_FIBERSTATUS", "COADD_OPTIMAL", "COADD_SPREAD", NULL};
    spx_text varying = {0};
    char name[40];
    spx_table *given = without_own(in, in->spectra.all.fibermap, own, e);
    spx_table *t = given == NULL ? NULL : spx_table_subset_common(given, in->ntarget, in->first, in->row, &varying, e);
    int32_t *count = t == NULL ? NULL : spx_alloc(in->ntarget, sizeof *count, e);
    spx_status st = count == NULL ? e->code : count_exposures(in, count, e);
    if (st == SPX_OK)
        st = spx_table_add(t, "COADD_NUMEXP", H5T_NATIVE_INT32, NULL, count, e);
    if (st == SPX_OK)
        st = add_status(in, t, e);
    for (size_t k = 0; k < in->spectra.all.narm && st == SPX_OK; k++) {
        const spx_arm *a = &in->spectra.all.arm[k];
        st = spx_table_add(t, column(name, "COADD_OPTIMAL", a), H5T_NATIVE_UINT8, NULL, coadd[k].optimal, e);
        if (st == SPX_OK)
            st = spx_table_add(t, column(name, "COADD_SPREAD", a), H5T_NATIVE_DOUBLE, NULL, coadd[k].spread, e);
    }
    if (st == SPX_OK)
        st = spx_table_write(file, "/fibermap", t, e);
    if (st == SPX_OK && varying.n > 0)
        spx_detail("columns that differ between exposures of a target are in /exp_fibermap alone: %s", varying.s);
    spx_text_free(&varying);
    spx_table_free(given);
    spx_table_free(t);
    spx_free(count);
    return st;
}

static spx_status write_exposures(const spx_coadd_inputs *in, const spx_coadd *coadd, hid_t file, spx_err *e)
{
    static const char *const own[] = {"COADD_INPUT", "COADD_SCALE", "COADD_CHI2", "COADD_GOOD", "COADD_REJECTED", NULL};
    const spx_spectra_parts *p = &in->spectra;
    char name[40];
    spx_table *given = spx_table_subset(p->all.fibermap, in->nrow, in->row, e);
    spx_table *t = given == NULL ? NULL : without_own(in, given, own, e);
    char(*from)[128] = t == NULL ? NULL : spx_alloc(in->nrow, sizeof *from, e);
    int64_t *expid = from == NULL ? NULL : spx_alloc(in->nrow, sizeof *expid, e);
    spx_status st = expid == NULL ? e->code : SPX_OK;
    size_t width = 1;
    for (size_t i = 0; i < in->nrow && st == SPX_OK; i++) {
        size_t part = 0;
        while (in->row[i] < p->part[part].first || in->row[i] - p->part[part].first >= p->part[part].nspec)
            part++;
        memcpy(from[i], in->name[part], sizeof *from);
        width = strlen(from[i]) > width ? strlen(from[i]) : width;
        expid[i] = in->expid[in->row[i]];
    }
    if (st == SPX_OK && spx_table_find(t, "EXPID") < 0)
        st = spx_table_add(t, "EXPID", H5T_NATIVE_INT64, NULL, expid, e);
    for (size_t i = 0; i < in->nrow && st == SPX_OK; i++)
        memmove((char *)from + i * width, from[i], width);
    if (st == SPX_OK)
        st = spx_table_add_strings(t, "COADD_INPUT", width, (const char *)from, e);
    for (size_t k = 0; k < p->all.narm && st == SPX_OK; k++) {
        const spx_arm *a = &p->all.arm[k];
        st = spx_table_add(t, column(name, "COADD_SCALE", a), H5T_NATIVE_DOUBLE, NULL, coadd[k].scale, e);
        if (st == SPX_OK)
            st = spx_table_add(t, column(name, "COADD_CHI2", a), H5T_NATIVE_DOUBLE, NULL, coadd[k].chi2, e);
        if (st == SPX_OK)
            st = spx_table_add(t, column(name, "COADD_GOOD", a), H5T_NATIVE_UINT32, NULL, coadd[k].good, e);
        if (st == SPX_OK)
            st = spx_table_add(t, column(name, "COADD_REJECTED", a), H5T_NATIVE_UINT32, NULL, coadd[k].rejected, e);
    }
    if (st == SPX_OK)
        st = spx_table_write(file, "/exp_fibermap", t, e);
    spx_table_free(given);
    spx_table_free(t);
    spx_free(from);
    spx_free(expid);
    return st;
}

spx_status spx_coadd_inputs_write(const spx_coadd_inputs *in, const spx_coadd *coadd, hid_t file, spx_err *e)
{
    spx_status st = write_fibermap(in, coadd, file, e);
    if (st == SPX_OK)
        st = write_exposures(in, coadd, file, e);
    if (st == SPX_OK)
        st = spx_cards_write(file, "/spectra/header", &in->header, e);
    return st;
}
