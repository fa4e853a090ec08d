/* Checks values on their way through h5merge: those that cannot be, and rows that are there twice. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "merge/internal.h"

/* ---- values that cannot be ---- */

static double value_of(const spx_merge_dataset *d, const char *at)
{
    float single;
    double wide;
    if (d->size > 4) {
        memcpy(&wide, at, 8);
        return wide;
    }
    memcpy(&single, at, 4);
    return single;
}

static spx_status add_bin(spx_merge_bins *b, size_t row, size_t bin, spx_err *e)
{
    struct spx_merge_bin *more = spx_grow(b->bin, b->n, 1, &b->capacity, sizeof *more, e);
    if (more == NULL)
        return SPX_EIO;
    b->bin = more;
    b->bin[b->n++] = (struct spx_merge_bin){row, bin};
    return SPX_OK;
}

/* Is any of n floats not finite, or, of ivar, below zero? By their bits: an exponent of ones; a sign and another bit.
 */
static int any_bad(const spx_merge_dataset *d, int ivar, size_t n, const char *p)
{
    uint32_t bad = 0;
    if (!d->is_float || d->size != sizeof(float))
        return d->is_float;
#pragma omp simd reduction(| : bad)
    for (size_t i = 0; i < n; i++) {
        uint32_t v;
        memcpy(&v, p + i * sizeof v, sizeof v);
        bad |= (v & 0x7f800000u) == 0x7f800000u;
        bad |= (uint32_t)ivar & (v > 0x80000000u);
    }
    return bad != 0;
}

spx_status spx_merge_repair(const spx_merge *m, const spx_merge_dataset *d, size_t r0, size_t n, size_t nelem,
                            char *buf, spx_merge_bins *bad, spx_merge_repairs *repairs, spx_err *e)
{
    const spx_merge_group *g = &m->groups[d->group];
    const int ivar = strcmp(d->leaf, "ivar") == 0, light = ivar || strcmp(d->leaf, "flux") == 0,
              mask = strcmp(d->leaf, "mask") == 0;
    const uint32_t nodata = SPX_NODATA;
    spx_status st = SPX_OK;
    for (size_t i = 0; i < bad->n && (light || mask); i++) {
        if (bad->bin[i].row < r0 || bad->bin[i].row >= r0 + n)
            continue;
        char *at = buf + ((bad->bin[i].row - r0) * nelem + bad->bin[i].bin) * d->size;
        uint32_t bits = 0;
        if (mask && d->size == 4) {
            memcpy(&bits, at, 4);
            bits |= nodata;
            memcpy(at, &bits, 4);
        } else if (light) {
            memset(at, 0, d->size);
        }
    }
    const size_t count = d->size >= 4 && any_bad(d, ivar, n * nelem, buf) ? n * nelem : 0;
    for (size_t i = 0; i < count && st == SPX_OK; i++) {
        const double v = value_of(d, buf + i * d->size);
        if (isfinite(v) && !(ivar && v < 0))
            continue;
        memset(buf + i * d->size, 0, d->size);
        if (repairs->nvalue++ == 0) {
            const spx_merge_origin o = spx_merge_row_origin(m, g, r0 + i / nelem);
            (void)snprintf(repairs->first, sizeof repairs->first, "%.200s:%.150s/%.60s",
                           o.part != SPX_NO_ROW ? m->part[o.part].name : "?", g->path, d->leaf);
        }
        if (light)
            st = add_bin(bad, r0 + i / nelem, i % nelem, e);
    }
    return st;
}

/* ---- rows that are there twice ---- */

void spx_merge_add_sums(size_t r0, size_t n, size_t rowbytes, const char *buf, spx_merge_sums *sums)
{
    for (size_t r = 0; r < n; r++) {
        const char *row = buf + r * rowbytes;
        uint64_t sum = 0, word, any = 0;
        for (size_t i = 0; i < rowbytes; i += sizeof word) {
            word = 0;
            memcpy(&word, row + i, rowbytes - i < sizeof word ? rowbytes - i : sizeof word);
            any |= word;
            sum = (sum ^ word) * UINT64_C(0x9e3779b97f4a7c15); /* 2^64 over the golden ratio */
            sum ^= sum >> 29;
        }
        if (any != 0)
            sums->row[sums->n++] = (struct spx_merge_sum){sum, r0 + r};
    }
}

static int by_sum(const void *a, const void *b)
{
    const struct spx_merge_sum *x = a, *y = b;
    if (x->sum != y->sum)
        return x->sum < y->sum ? -1 : 1;
    return (x->row > y->row) - (x->row < y->row);
}

spx_status spx_merge_check_sums(const spx_merge *m, const spx_merge_dataset *d, spx_merge_sums *sums, spx_err *e)
{
    const spx_merge_group *g = &m->groups[d->group];
    spx_merge_origin first = {SPX_NO_ROW, SPX_NO_ROW}, again = first;
    size_t row = SPX_NO_ROW; /* the first that was there before */
    char path[PATH_LEN + 80];
    qsort(sums->row, sums->n, sizeof *sums->row, by_sum);
    for (size_t i = 1; i < sums->n; i++) {
        if (sums->row[i].sum != sums->row[i - 1].sum || sums->row[i].row >= row)
            continue;
        const spx_merge_origin a = spx_merge_row_origin(m, g, sums->row[i - 1].row),
                               b = spx_merge_row_origin(m, g, sums->row[i].row);
        if (a.part == SPX_NO_ROW || b.part == SPX_NO_ROW)
            continue;
        const spx_merge_input *pa = &m->part[a.part], *pb = &m->part[b.part];
        if (pa->target != NULL && pb->target != NULL && pa->target[a.row] != pb->target[b.row])
            continue; /* spectra without noise, of targets that are alike */
        row = sums->row[i].row;
        first = a;
        again = b;
    }
    sums->n = 0;
    (void)snprintf(path, sizeof path, "%s/%s", g->path, d->leaf);
    return row == SPX_NO_ROW
               ? SPX_OK
               : spx_fail_at(e, SPX_EINPUT, m->part[again.part].name, path,
                             "give each spectrum once; --allow repeated keeps both",
                             "row %zu is row %zu of %s once more", again.row, first.row, m->part[first.part].name);
}
