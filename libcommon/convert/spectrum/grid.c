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
    const size_t end = start + n > before + a->nwave ? start + n : before + a->nwave;
    if (end == a->nwave)
        return SPX_OK;
    double *more = spx_alloc_unset(end, 1, sizeof *more, e);
    if (more == NULL)
        return SPX_EIO;
    memcpy(more + start, w, n * sizeof *more);
    memcpy(more + before, a->wavelength, a->nwave * sizeof *more);
    spx_free(a->wavelength);
    a->wavelength = more;
    a->nwave = end;
    for (size_t i = 0; i < b->nplaced; i++)
        b->l[i].offset += b->l[i].arm == arm ? before : 0;
    return SPX_OK;
}

static int taken(const spx_grid *b, const char *name)
{
    for (size_t k = 0; k < b->s.narm; k++)
        if (strcmp(b->s.arm[k].name, name) == 0)
            return 1;
    return 0;
}

spx_status spx_grid_place(spx_grid *b, const char *file, spx_loaded *l, spx_err *e)
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
        if (a->medium != medium || a->barycentric != (s->barycentric == 1) || !is_free(b, k, l->row) ||
            !grid_offset(a->nwave, a->wavelength, l->n, l->wave, &shift))
            continue;
        spx_status st = widen(b, k, l->n, l->wave, shift, e);
        l->arm = k;
        l->offset = shift > 0 ? (size_t)shift : 0;
        return st;
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
    a->nwave = l->n;
    if ((a->wavelength = spx_alloc_unset(l->n, 1, sizeof *a->wavelength, e)) == NULL)
        return SPX_EIO;
    memcpy(a->wavelength, l->wave, l->n * sizeof *a->wavelength);
    l->arm = b->s.narm - 1;
    l->offset = 0;
    return SPX_OK;
}

spx_status spx_grid_fill(spx_grid *b, spx_err *e)
{
    spx_spectra *s = &b->s;
    for (size_t k = 0; k < s->narm; k++) {
        spx_arm *a = &s->arm[k];
        a->flux = spx_alloc2(s->nspec, a->nwave, sizeof *a->flux, e);
        a->ivar = spx_alloc2(s->nspec, a->nwave, sizeof *a->ivar, e);
        a->mask = spx_alloc2(s->nspec, a->nwave, sizeof *a->mask, e);
        if (a->flux == NULL || a->ivar == NULL || a->mask == NULL)
            return SPX_EIO;
        for (size_t i = 0; i < s->nspec * a->nwave; i++)
            a->mask[i] = SPX_NODATA;
    }
    for (size_t i = 0; i < b->nloaded; i++) {
        const spx_loaded *l = &b->l[i];
        spx_arm *a = &s->arm[l->arm];
        const size_t at = l->row * a->nwave + l->offset;
        memcpy(a->flux + at, l->flux, l->n * sizeof *a->flux);
        memcpy(a->ivar + at, l->ivar, l->n * sizeof *a->ivar);
        memcpy(a->mask + at, l->mask, l->n * sizeof *a->mask);
    }
    return SPX_OK;
}
