/* Fits the atmosphere of each exposure (common/rvfit_air.h). */
#include "common/rvfit_air.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "h5/object.h"
#include "h5/table.h"
#include "num/stat.h"
#include "products/transmission_h5.h"
#include "run/select.h"

static const double MOST_KMS = 100; /* that an observer has */

/* Wavelengths at which tau of any species exceeds this are absorption. */
static const double DEEP = 1e-3;

spx_status spx_rvfit_read_air(const char *name, spx_run *run, const spx_spectra_parts *p, const spx_setup *const *setup,
                              spx_rvfit_airs *a, spx_err *e)
{
    spx_input *in;
    size_t lines = 0;
    spx_status st = spx_run_extra_input(run, name, &in, e);
    if (st == SPX_OK && !spx_h5_exists(in->file, "/transmission"))
        st = spx_fail(e, SPX_EINPUT, "--tellurics %s: holds no /transmission: rvs-telluric makes it", in->name);
    if (st == SPX_OK)
        st = spx_transmission_read(in->file, &a->table, e);
    for (size_t i = 0; i < p->all.narm && st == SPX_OK; i++) {
        const spx_arm *arm = &p->all.arm[i];
        for (size_t k = 0; k < a->table.nspecies * a->table.nwave && setup[i] != NULL; k++) {
            const double w = a->table.wavelength[k % a->table.nwave];
            const double *ends = p->ends[i];
            lines += a->table.tau[k] > DEEP && w > (arm->per_row ? ends[0] : arm->wavelength[0]) &&
                     w < (arm->per_row ? ends[1] : arm->wavelength[arm->nwave - 1]);
        }
    }
    if (st == SPX_OK && lines == 0)
        st = spx_fail(e, SPX_EINPUT,
                      "--tellurics %s: has no lines where the arms are that are fitted (%.1f to %.1f Angstrom)",
                      in->name, a->table.wavelength[0], a->table.wavelength[a->table.nwave - 1]);
    return st;
}

/* Exposure of each chosen row: group[nrow], numbered by first appearance, and their EXPID. */
static spx_status find_exposures(const spx_spectra_parts *p, const spx_rvfit_stars *stars, size_t *group,
                                 spx_rvfit_airs *a, spx_err *e)
{
    int64_t *expid = NULL, *known = spx_alloc(stars->nrow, sizeof *known, e);
    spx_status st = known == NULL ? SPX_EIO : spx_table_find_i64(p->all.fibermap, "EXPID", &expid, e);
    for (size_t k = 0; k < stars->nrow && st == SPX_OK; k++) {
        int64_t id = 0;
        size_t g = 0;
        if (expid != NULL)
            id = expid[stars->row[k]];
        for (size_t i = 0; i < p->npart && expid == NULL; i++) /* the file that has the row */
            if (stars->row[k] >= p->part[i].first)
                id = (int64_t)p->part[i].first;
        while (g < a->n && known[g] != id)
            g++;
        if (g == a->n)
            known[a->n++] = id;
        group[k] = g;
    }
    if (st == SPX_OK && (a->exposure = spx_alloc(a->n, sizeof *a->exposure, e)) == NULL)
        st = SPX_EIO;
    for (size_t g = 0; g < a->n && st == SPX_OK; g++)
        a->exposure[g].expid = expid != NULL ? known[g] : -1;
    spx_free(expid);
    spx_free(known);
    return st;
}

/* Largest signal-to-noise ratio of a spectrum over the arms that are fitted. */
static double brightness(const spx_spectra *s, const spx_setup *const *setup, size_t row, double *tmp)
{
    double most = 0;
    for (size_t a = 0; a < s->narm; a++) {
        const spx_arm *arm = &s->arm[a];
        size_t n = 0;
        for (size_t i = 0; i < arm->nwave && setup[a] != NULL; i++) {
            const size_t k = row * arm->nwave + i;
            if (arm->ivar[k] > 0 && isfinite(arm->flux[k]) && (arm->mask == NULL || arm->mask[k] == 0))
                tmp[n++] = arm->flux[k] * sqrt(arm->ivar[k]);
        }
        if (n > 0)
            most = fmax(most, spx_median(tmp, n));
    }
    return most;
}

typedef struct {
    double sn;
    size_t k; /* of the chosen rows */
} candidate;

static int brighter(const void *x, const void *y)
{
    const candidate *a = x, *b = y;
    return a->sn != b->sn ? (a->sn < b->sn) - (a->sn > b->sn) : (a->k > b->k) - (a->k < b->k);
}

/* The chosen rows of an exposure, brightest first; spectra are read a few at a time. */
static spx_status rank(const spx_spectra_parts *p, const spx_setup *const *setup, const spx_rvfit_stars *stars,
                       const size_t *group, size_t g, candidate *c, size_t *n, spx_err *e)
{
    enum { AT_ONCE = 64 };
    size_t widest = 0;
    *n = 0;
    for (size_t k = 0; k < stars->nrow; k++)
        if (group[k] == g)
            c[(*n)++].k = k;
    for (size_t a = 0; a < p->all.narm; a++)
        widest = p->all.arm[a].nwave > widest ? p->all.arm[a].nwave : widest;
    double *tmp = spx_alloc(widest, sizeof *tmp, e);
    spx_status st = tmp == NULL ? SPX_EIO : SPX_OK;
    for (size_t first = 0; first < *n && st == SPX_OK; first += AT_ONCE) {
        const size_t m = *n - first < AT_ONCE ? *n - first : AT_ONCE;
        size_t row[AT_ONCE];
        spx_spectra s = {0};
        for (size_t k = 0; k < m; k++)
            row[k] = stars->row[c[first + k].k];
        st = spx_spectra_parts_read(p, m, row, &s, e);
        for (size_t k = 0; k < m && st == SPX_OK; k++)
            c[first + k].sn = brightness(&s, setup, k, tmp);
        spx_spectra_free(&s);
    }
    spx_free(tmp);
    if (st == SPX_OK)
        qsort(c, *n, sizeof *c, brighter);
    return st;
}

/* One exposure, fitted to candidates c[n]. */
static spx_status fit_exposure(const spx_spectra_parts *p, const spx_setup *const *setup, const spx_rvfit_options *o,
                               const spx_rvfit_stars *stars, size_t n, const candidate *c, spx_air *out, spx_err *e)
{
    size_t *row = spx_alloc(n, sizeof *row, e), *group = spx_alloc(n, sizeof *group, e);
    double *velocity = spx_alloc(n, sizeof *velocity, e);
    const int64_t expid = out->expid;
    spx_spectra s = {0};
    spx_status st = row == NULL || group == NULL || velocity == NULL ? SPX_EIO : SPX_OK;
    for (size_t k = 0; k < n && st == SPX_OK; k++) {
        row[k] = stars->row[c[k].k];
        velocity[k] = p->velocity != NULL ? p->velocity[row[k]] : 0;
    }
    if (st == SPX_OK)
        st = spx_spectra_parts_read(p, n, row, &s, e);
    spx_rvfit_input in = {.spectra = &s, .nrow = n};
    memcpy(in.setup, setup, sizeof in.setup);
    if (st == SPX_OK)
        st = spx_rvfit_fit_air(&in, o, 1, group, velocity, NULL, out, e);
    out->expid = expid;
    spx_spectra_free(&s);
    spx_free(row);
    spx_free(group);
    spx_free(velocity);
    return st;
}

static void tell(const spx_transmission *t, const spx_air *a)
{
    char text[256];
    size_t at = 0;
    for (size_t k = 0; k < t->nspecies; k++)
        at += (size_t)snprintf(text + at, sizeof text - at, a->err[k] > 0 ? "%s %.3f +- %.3f, " : "%s is not seen, ",
                               t->name[k], a->value[k], a->err[k]);
    if (a->nstar == 0)
        spx_warn("--tellurics: no spectrum of exposure %lld could be fitted: strengths are 1", (long long)a->expid);
    else
        spx_note("exposure %lld, atmosphere of %zu spectra: %sshift %.2f +- %.2f km/s", (long long)a->expid, a->nstar,
                 text, a->value[t->nspecies], a->err[t->nspecies]);
}

spx_status spx_rvfit_fit_airs(spx_run *run, spx_spectra_parts *p, const spx_setup *const *setup,
                              const spx_rvfit_options *o, const spx_rvfit_stars *stars, size_t most, spx_rvfit_airs *a,
                              spx_err *e)
{
    const size_t na = a->table.nspecies + 1;
    size_t *group = spx_alloc(stars->nrow, sizeof *group, e), n;
    candidate *c = spx_alloc(stars->nrow, sizeof *c, e);
    int unknown;
    spx_run_step(run, "atmosphere");
    a->row = spx_alloc2(stars->nrow, na, sizeof *a->row, e);
    spx_status st = group == NULL || c == NULL || a->row == NULL ? SPX_EIO : spx_spectra_parts_ground(p, &unknown, e);
    if (st == SPX_OK && unknown)
        st = spx_fail(
            e, SPX_EINPUT,
            "--tellurics: wavelengths are barycentric, and the fibermap has no BARYCENTRIC_VELOCITY, which says "
            "where the lines are: extract again, or fit wavelengths of the ground");
    for (size_t k = 0; k < stars->nrow && st == SPX_OK && p->velocity != NULL; k++)
        if (!(fabs(p->velocity[stars->row[k]]) < MOST_KMS))
            st = spx_fail(e, SPX_EINPUT, "/fibermap: BARYCENTRIC_VELOCITY of row %zu is %g km/s", stars->row[k],
                          p->velocity[stars->row[k]]);
    if (st == SPX_OK)
        st = find_exposures(p, stars, group, a, e);
    spx_progress *progress = spx_progress_start(run->common.progress, "atmosphere", "exposures", a->n);
    for (size_t g = 0; g < a->n && st == SPX_OK; g++) {
        st = rank(p, setup, stars, group, g, c, &n, e);
        if (st == SPX_OK)
            st = fit_exposure(p, setup, o, stars, n < most ? n : most, c, &a->exposure[g], e);
        if (st == SPX_OK)
            tell(&a->table, &a->exposure[g]);
        spx_progress_step(progress, 1);
    }
    spx_progress_end(progress);
    for (size_t k = 0; k < stars->nrow * na && st == SPX_OK; k++) {
        const double ground = k % na + 1 == na && p->velocity != NULL ? p->velocity[stars->row[k / na]] : 0;
        a->row[k] = a->exposure[group[k / na]].value[k % na] + ground;
    }
    spx_free(group);
    spx_free(c);
    spx_run_pause(run);
    return st;
}

const double *spx_rvfit_air_rows(const spx_rvfit_airs *a, size_t first)
{
    return a->row != NULL ? a->row + first * (a->table.nspecies + 1) : NULL;
}

void spx_rvfit_air_device(spx_run *run, const char *tellurics)
{
    if (tellurics == NULL)
        return;
    if (strcmp(run->common.device, "auto") != 0 && strcmp(run->common.device, "cpu") != 0)
        spx_warn("--device %s: --tellurics is for the CPU, which fits the stars", run->common.device);
    run->common.device = "cpu";
}

void spx_rvfit_airs_free(spx_rvfit_airs *a)
{
    spx_transmission_free(&a->table);
    spx_free(a->exposure);
    spx_free(a->row);
    memset(a, 0, sizeof *a);
}
