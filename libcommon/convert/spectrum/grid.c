/* Puts spectra on common grids into arms (convert/spectrum/grid.h). */
#include "convert/spectrum/grid.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"

static const double SAME_PIXEL = 1e-3; /* fraction of a pixel by which wavelengths of one grid may differ */

/* Offset in pixels of w[n] from g[m], into *shift; 0: different grids, or no overlap. */
static int grid_offset(size_t m, const double *g, size_t n, const double *w, ptrdiff_t *shift)
{
    /* first pixel of the grid that begins later, in the other */
    const int later = w[0] >= g[0];
    const double *a = later ? g : w, first = later ? w[0] : g[0];
    size_t na = later ? m : n, lo = 0, hi = na;
    while (hi - lo > 1) {
        size_t mid = lo + (hi - lo) / 2;
        if (a[mid] <= first)
            lo = mid;
        else
            hi = mid;
    }
    if (lo + 1 < na && a[lo + 1] - first < first - a[lo])
        lo++;
    *shift = later ? (ptrdiff_t)lo : -(ptrdiff_t)lo;
    size_t ig = later ? lo : 0, iw = later ? 0 : lo, both = 0;
    for (; ig < m && iw < n; ig++, iw++, both++) {
        double step = iw + 1 < n ? w[iw + 1] - w[iw] : w[iw] - w[iw - 1];
        if (fabs(w[iw] - g[ig]) > SAME_PIXEL * step)
            return 0;
    }
    return both >= 2;
}

static int is_free(const spx_grid *b, size_t arm, size_t row)
{
    for (size_t i = 0; i < b->nplaced; i++)
        if (b->l[i].arm == arm && b->l[i].row == row)
            return 0;
    return 1;
}

/* Extends the grid of arm `a` to cover w[n], which begins `shift` pixels after it. */
static spx_status widen(spx_grid *b, size_t arm, size_t n, const double *w, ptrdiff_t shift, spx_err *e)
{
    spx_arm *a = &b->s.arm[arm];
    const size_t before = shift < 0 ? (size_t)-shift : 0, start = shift > 0 ? (size_t)shift : 0;
    const size_t common = b->common[arm], end = start + n > before + common ? start + n : before + common;
    if (end == common)
        return SPX_OK;
    double *more = spx_alloc_unset(end, 1, sizeof *more, e);
    if (more == NULL)
        return SPX_EIO;
    memcpy(more + start, w, n * sizeof *more);
    memcpy(more + before, a->wavelength, common * sizeof *more);
    spx_free(a->wavelength);
    a->wavelength = more;
    b->common[arm] = end;
    a->nwave = end > a->nwave ? end : a->nwave;
    for (size_t i = 0; i < b->nplaced; i++)
        b->l[i].offset += b->l[i].arm == arm && !b->l[i].own ? before : 0;
    return SPX_OK;
}

static int taken(const spx_grid *b, const char *name)
{
    for (size_t k = 0; k < b->s.narm; k++)
        if (strcmp(b->s.arm[k].name, name) == 0)
            return 1;
    return 0;
}

/* 1 when a target has no spectrum in an arm. */
static int has_no_target(const spx_grid *b, size_t arm, const int64_t *target, size_t row)
{
    for (size_t i = 0; i < b->nplaced; i++)
        if (b->l[i].arm == arm && target[b->l[i].row] == target[row])
            return 0;
    return 1;
}

static int suits(const spx_grid *b, size_t k, const spx_fits_spectrum *s, spx_medium medium)
{
    const spx_arm *a = &b->s.arm[k];
    return strcmp(b->base[k], s->arm) == 0 && a->medium == medium && a->barycentric == (s->barycentric == 1) &&
           a->frame_unknown == (s->barycentric < 0);
}

/* 1 when a spectrum has half of the range of an arm's first grid, and as many bins within a factor of 2, or the other
 * way round: it is of the same instrument. */
static int alike(const spx_grid *b, size_t k, const spx_loaded *l)
{
    const double *w = b->s.arm[k].wavelength;
    const size_t n = b->common[k];
    const double lo = fmax(w[0], l->wave[0]), hi = fmin(w[n - 1], l->wave[l->n - 1]);
    return hi - lo > 0.5 * fmin(w[n - 1] - w[0], l->wave[l->n - 1] - l->wave[0]) && l->n <= 2 * n && n <= 2 * l->n;
}

/* Arm that another spectrum may join with a grid of its own, into *arm; 0: none. */
static int own_grid(const spx_grid *b, const int64_t *target, const spx_loaded *l, spx_medium medium, size_t *arm)
{
    for (*arm = 0; *arm < b->s.narm; ++*arm)
        if (suits(b, *arm, l->from, medium) && alike(b, *arm, l) && has_no_target(b, *arm, target, l->row))
            return 1;
    return 0;
}

spx_status spx_grid_place(spx_grid *b, const char *file, const int64_t *target, spx_loaded *l, spx_err *e)
{
    const spx_fits_spectrum *s = l->from;
    const spx_medium medium = s->medium == SPX_AIR ? SPX_AIR : SPX_VACUUM;
    size_t same = 1;
    for (size_t k = 0; k < b->s.narm; k++) {
        spx_arm *a = &b->s.arm[k];
        ptrdiff_t shift;
        if (strcmp(b->base[k], s->arm) != 0)
            continue;
        same++;
        if (!suits(b, k, s, medium) || !is_free(b, k, l->row) ||
            !grid_offset(b->common[k], a->wavelength, l->n, l->wave, &shift))
            continue;
        spx_status st = widen(b, k, l->n, l->wave, shift, e);
        l->arm = k;
        l->offset = shift > 0 ? (size_t)shift : 0;
        return st;
    }
    if (own_grid(b, target, l, medium, &l->arm)) {
        spx_arm *a = &b->s.arm[l->arm];
        a->per_row = 1;
        a->nwave = l->n > a->nwave ? l->n : a->nwave;
        l->own = 1;
        l->offset = 0;
        return SPX_OK;
    }
    if (b->s.narm == SPX_MAX_ARM)
        return spx_fail_at(e, SPX_EINPUT, file, NULL, "convert fewer at a time, or choose orders with --orders",
                           "spectra on more than %d different wavelength grids do not fit into one file", SPX_MAX_ARM);
    spx_arm *a = &b->s.arm[b->s.narm];
    memcpy(b->base[b->s.narm], s->arm, sizeof s->arm);
    snprintf(a->name, sizeof a->name, "%s", s->arm);
    while (taken(b, a->name))
        snprintf(a->name, sizeof a->name, "%.10s%zu", s->arm, same++ % 100000);
    b->s.narm++;
    a->medium = medium;
    a->barycentric = s->barycentric == 1;
    a->frame_unknown = s->barycentric < 0;
    a->nwave = b->common[b->s.narm - 1] = l->n;
    if ((a->wavelength = spx_alloc_unset(l->n, 1, sizeof *a->wavelength, e)) == NULL)
        return SPX_EIO;
    memcpy(a->wavelength, l->wave, l->n * sizeof *a->wavelength);
    l->arm = b->s.narm - 1;
    l->offset = 0;
    return SPX_OK;
}

/* Wavelengths wave[n] on a row of an arm; beyond their end they go on in their last step. */
static void lay_grid(const spx_arm *a, size_t row, size_t n, const double *wave)
{
    double *w = a->row_wavelength + row * a->nwave;
    memcpy(w, wave, n * sizeof *w);
    for (size_t i = n; i < a->nwave; i++)
        w[i] = w[i - 1] + (wave[n - 1] - wave[n - 2]);
}

spx_status spx_grid_fill(spx_grid *b, spx_err *e)
{
    spx_spectra *s = &b->s;
    for (size_t k = 0; k < s->narm; k++) {
        spx_arm *a = &s->arm[k];
        a->flux = spx_alloc2(s->nspec, a->nwave, sizeof *a->flux, e);
        a->ivar = spx_alloc2(s->nspec, a->nwave, sizeof *a->ivar, e);
        a->mask = spx_alloc2(s->nspec, a->nwave, sizeof *a->mask, e);
        if (a->per_row && (a->row_wavelength = spx_alloc2(s->nspec, a->nwave, sizeof *a->row_wavelength, e)) == NULL)
            return SPX_EIO;
        if (a->flux == NULL || a->ivar == NULL || a->mask == NULL)
            return SPX_EIO;
        for (size_t i = 0; i < s->nspec && a->per_row; i++)
            lay_grid(a, i, b->common[k], a->wavelength);
        for (size_t i = 0; i < s->nspec * a->nwave; i++)
            a->mask[i] = SPX_NODATA;
    }
    for (size_t i = 0; i < b->nloaded; i++) {
        const spx_loaded *l = &b->l[i];
        spx_arm *a = &s->arm[l->arm];
        const size_t at = l->row * a->nwave + l->offset;
        if (l->own)
            lay_grid(a, l->row, l->n, l->wave);
        memcpy(a->flux + at, l->flux, l->n * sizeof *a->flux);
        memcpy(a->ivar + at, l->ivar, l->n * sizeof *a->ivar);
        memcpy(a->mask + at, l->mask, l->n * sizeof *a->mask);
    }
    return SPX_OK;
}
