/* Plans the rows of h5merge's product, and the source of each. */
#include <ctype.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/order.h"
#include "merge/internal.h"

enum { MAX_FIBER = 1000000 };

static int64_t *sorted(const int64_t *v, size_t n, spx_err *e)
{
    int64_t *s = spx_alloc(n, sizeof *s, e);
    if (s != NULL && n > 0) {
        memcpy(s, v, n * sizeof *s);
        qsort(s, n, sizeof *s, spx_by_i64);
    }
    return s;
}

typedef struct {
    int64_t key;
    size_t part, row;
} keyed;

static int by_key(const void *a, const void *b)
{
    const keyed *x = a, *y = b;
    if (x->key != y->key)
        return x->key < y->key ? -1 : 1;
    if (x->part != y->part)
        return x->part < y->part ? -1 : 1;
    return (x->row > y->row) - (x->row < y->row);
}

static spx_status total_rows(const spx_merge *m, size_t *n, spx_err *e)
{
    *n = 0;
    for (size_t i = 0; i < m->npart; i++) {
        if (m->part[i].nrow > SIZE_MAX / 64 - *n)
            return spx_fail_at(e, SPX_EINPUT, m->part[i].name, NULL, NULL, "has too many rows");
        *n += m->part[i].nrow;
    }
    return SPX_OK;
}

spx_status spx_merge_plan_fibers(spx_merge *m, const spx_merge_options *opt, spx_err *e)
{
    const spx_merge_input *p0 = &m->part[0];
    int index = 1, fiber = 1;
    for (size_t i = 0; i < m->npart; i++) {
        const spx_merge_input *p = &m->part[i];
        if (!p->has[FRAME])
            return spx_fail_at(e, SPX_EINPUT, p->name, NULL, NULL,
                               "is no frame of one camera: --by fibers joins frames");
        if (strcmp(p->camera, p0->camera) != 0)
            return spx_fail_at(e, SPX_EINPUT, p->name, "/frame", NULL,
                               "is of camera %s, but %s of camera %s: --by cameras joins cameras", p->camera, p0->name,
                               p0->camera);
        spx_status st = spx_merge_same_exposure(p0, p, e);
        if (st != SPX_OK)
            return st;
        index &= p->index != NULL || p->nrow == 0;
        fiber &= p->fiber != NULL || p->nrow == 0;
    }
    if (!index && !fiber)
        return spx_fail_at(e, SPX_EINPUT, p0->name, NULL, NULL,
                           "has no fibre numbers (/frame/fiber, or FIBER in /fibermap) in every input");
    m->key_is_index = index;
    size_t n = 0, k = 0;
    spx_status st = total_rows(m, &n, e);
    keyed *rows = st == SPX_OK ? spx_alloc(n, sizeof *rows, e) : NULL;
    if (rows == NULL)
        return e->code;
    for (size_t i = 0; i < m->npart; i++)
        for (size_t r = 0; r < m->part[i].nrow; r++)
            rows[k++] = (keyed){index ? m->part[i].index[r] : m->part[i].fiber[r], i, r};
    qsort(rows, n, sizeof *rows, by_key);
    for (size_t i = 0; i < n && st == SPX_OK; i++) {
        if (rows[i].key < 0 || rows[i].key >= MAX_FIBER)
            st = spx_fail_at(e, SPX_EINPUT, m->part[rows[i].part].name, NULL, NULL, "fibre number %lld is out of range",
                             (long long)rows[i].key);
        else if (i > 0 && rows[i].key == rows[i - 1].key)
            st = spx_fail_at(e, SPX_EINPUT, m->part[rows[i].part].name, "/frame", NULL,
                             "fibre %lld is in %s already: subsets must not overlap", (long long)rows[i].key,
                             m->part[rows[i - 1].part].name);
        else if (opt->last > 0 && (rows[i].key < opt->first || rows[i].key >= opt->last))
            st = spx_fail_at(e, SPX_EINPUT, m->part[rows[i].part].name, "/frame", NULL,
                             "fibre %lld is outside --fibers %ld:%ld", (long long)rows[i].key, opt->first, opt->last);
    }
    int64_t first = opt->last > 0 ? opt->first : n > 0 ? rows[0].key : 0;
    int64_t end = opt->last > 0 ? opt->last : n > 0 ? rows[n - 1].key + 1 : 0;
    m->nout = m->allow_missing || opt->last > 0 ? (size_t)(end - first) : n;
    if (st == SPX_OK && ((m->ref = spx_alloc(m->nout, sizeof *m->ref, e)) == NULL ||
                         (m->key = spx_alloc(m->nout, sizeof *m->key, e)) == NULL))
        st = SPX_EIO;
    k = 0;
    for (size_t i = 0; i < m->nout && st == SPX_OK; i++) {
        int64_t want = m->nout == n ? rows[i].key : first + (int64_t)i;
        m->key[i] = want;
        m->ref[i] = (spx_merge_origin){SPX_NO_ROW, SPX_NO_ROW};
        if (k < n && rows[k].key == want) {
            m->ref[i] = (spx_merge_origin){rows[k].part, rows[k].row};
            k++;
        } else if (!m->allow_missing) {
            st = spx_fail_at(e, SPX_EINPUT, p0->name, "/frame", NULL,
                             "fibre %lld is in none of the inputs: --allow-missing goes on", (long long)want);
        }
    }
    spx_free(rows);
    return st;
}

/* Finds a column usable as key: in every input, without duplicates in any. */
static spx_status usable_key(const spx_merge *m, int64_t *const *key, int *ok, spx_err *e)
{
    *ok = 1;
    for (size_t i = 0; i < m->npart && *ok; i++) {
        size_t n = m->part[i].nrow;
        if (key[i] == NULL) {
            *ok = n == 0;
            continue;
        }
        int64_t *s = sorted(key[i], n, e);
        if (s == NULL)
            return SPX_EIO;
        for (size_t r = 1; r < n; r++)
            if (s[r] == s[r - 1])
                *ok = 0;
        spx_free(s);
    }
    return SPX_OK;
}

static spx_status same_targets(const spx_merge *m, spx_err *e)
{
    for (size_t r = 0; r < m->nout; r++) {
        size_t first = SPX_NO_ROW;
        for (size_t i = 0; i < m->npart; i++) {
            size_t row = m->where[i][r];
            if (m->part[i].target == NULL || !spx_merge_row_known(&m->part[i], row))
                continue;
            if (first == SPX_NO_ROW) {
                first = i;
                continue;
            }
            int64_t a = m->part[first].target[m->where[first][r]], b = m->part[i].target[row];
            if (a != b)
                return spx_fail_at(e, SPX_EINPUT, m->part[i].name, "/fibermap", NULL,
                                   "row %zu is of target %lld, but %lld in %s: these are different exposures", row,
                                   (long long)b, (long long)a, m->part[first].name);
        }
    }
    return SPX_OK;
}

/* Plans rows of the product: the keys of all inputs; fibres ascending, targets in order of first appearance. */
static spx_status match_rows(spx_merge *m, int64_t *const *key, const char *what, int ascending, spx_err *e)
{
    size_t n = 0, k = 0;
    spx_status st = total_rows(m, &n, e);
    keyed *rows = st == SPX_OK ? spx_alloc(n, sizeof *rows, e) : NULL;
    keyed *first = rows == NULL ? NULL : spx_alloc(n, sizeof *first, e);
    if (first == NULL) {
        spx_free(rows);
        return e->code;
    }
    for (size_t i = 0; i < m->npart; i++)
        for (size_t r = 0; r < m->part[i].nrow; r++)
            rows[k++] = (keyed){key[i][r], i, r};
    qsort(rows, n, sizeof *rows, by_key);
    /* one entry a key; its `key` becomes the rank in the order wanted */
    size_t nout = 0;
    for (size_t i = 0; i < n; i++)
        if (i == 0 || rows[i].key != rows[i - 1].key) {
            first[nout] = rows[i];
            if (!ascending) /* order by (part, row): equal keys make by_key() compare those */
                first[nout].key = 0;
            nout++;
        }
    if (!ascending)
        qsort(first, nout, sizeof *first, by_key);
    m->nout = nout;
    m->where = spx_alloc(m->npart, sizeof *m->where, e);
    for (size_t i = 0; m->where != NULL && e->code == SPX_OK && i < m->npart; i++)
        if ((m->where[i] = spx_alloc(nout, sizeof **m->where, e)) != NULL)
            for (size_t r = 0; r < nout; r++)
                m->where[i][r] = SPX_NO_ROW;
    for (size_t r = 0; e->code == SPX_OK && r < nout; r++) {
        keyed want = {key[first[r].part][first[r].row], 0, 0};
        size_t lo = 0, hi = n;
        while (lo < hi) {
            size_t mid = lo + (hi - lo) / 2;
            if (rows[mid].key < want.key)
                lo = mid + 1;
            else
                hi = mid;
        }
        for (; lo < n && rows[lo].key == want.key; lo++)
            m->where[rows[lo].part][r] = rows[lo].row;
        for (size_t i = 0; i < m->npart && !m->allow_missing; i++)
            if (m->where[i][r] == SPX_NO_ROW) {
                spx_fail_at(e, SPX_EINPUT, m->part[i].name, NULL, NULL,
                            "has no row of %s %lld, which %s has: --allow-missing goes on without", what,
                            (long long)want.key, m->part[first[r].part].name);
                break;
            }
    }
    spx_free(rows);
    spx_free(first);
    return e->code;
}

spx_status spx_merge_plan_cameras(spx_merge *m, spx_err *e)
{
    int frames = 1;
    for (size_t i = 0; i < m->npart; i++) {
        const spx_merge_input *p = &m->part[i];
        if (!p->has[FRAME] && !p->has[SPECTRA])
            return spx_fail_at(e, SPX_EINPUT, p->name, NULL, NULL,
                               "holds neither /frame nor /spectra: --by cameras joins spectra");
        if (p->has[FRAME] && !isalpha((unsigned char)p->camera[0]))
            return spx_fail_at(e, SPX_EINPUT, p->name, "/frame", NULL,
                               "has no attribute camera: its arm is not known, so cameras cannot be joined");
        frames &= p->has[FRAME];
        for (size_t k = 0; k < i; k++) {
            const spx_merge_input *q = &m->part[k];
            for (size_t a = 0; a < p->narm; a++)
                if (spx_merge_find_arm(q, p->arms[a].name) >= 0)
                    return spx_fail_at(e, SPX_EINPUT, p->name, p->arms[a].path, NULL,
                                       "arm %s is in %s already: --by fibers joins parts of one camera",
                                       p->arms[a].name, q->name);
            if (p->has[FRAME] && q->has[FRAME] && !spx_same_spectrograph(p->camera, q->camera))
                return spx_fail_at(e, SPX_EINPUT, p->name, "/frame", NULL,
                                   "camera %s belongs to another spectrograph than %s of %s", p->camera, q->camera,
                                   q->name);
            spx_status st = spx_merge_same_exposure(q, p, e);
            if (st != SPX_OK)
                return st;
        }
    }
    int64_t **fiber = spx_alloc(m->npart, sizeof *fiber, e), **target = spx_alloc(m->npart, sizeof *target, e);
    int64_t **index = spx_alloc(m->npart, sizeof *index, e);
    spx_status st = fiber == NULL || target == NULL || index == NULL ? SPX_EIO : SPX_OK;
    for (size_t i = 0; i < m->npart && st == SPX_OK; i++) {
        const spx_merge_input *p = &m->part[i];
        fiber[i] = p->fiber;
        target[i] = p->target;
        if (p->index != NULL) {
            if ((index[i] = spx_alloc(p->nrow, sizeof **index, e)) == NULL)
                st = SPX_EIO;
            for (size_t r = 0; st == SPX_OK && r < p->nrow; r++)
                index[i][r] = p->index[r];
        }
    }
    struct {
        int64_t **key;
        const char *what;
        int ascending;
    } order[3] = {{fiber, "fibre", 1}, {index, "fibre", 1}, {target, "target", 0}};
    if (!frames) { /* coadded spectra: a row is a target, fibres may repeat */
        order[0].key = target;
        order[0].what = "target";
        order[0].ascending = 0;
        order[1].key = fiber;
        order[2].key = index;
        order[2].what = "fibre";
        order[2].ascending = 1;
    }
    int done = 0;
    for (size_t k = 0; k < 3 && st == SPX_OK && !done; k++) {
        st = usable_key(m, order[k].key, &done, e);
        if (st == SPX_OK && done)
            st = match_rows(m, order[k].key, order[k].what, order[k].ascending, e);
    }
    if (st == SPX_OK && !done)
        st = spx_fail_at(e, SPX_EINPUT, m->part[0].name, "/fibermap", NULL,
                         "rows of the inputs cannot be matched: neither FIBER nor TARGETID is in every input and "
                         "different in every row");
    if (st == SPX_OK)
        st = same_targets(m, e);
    for (size_t i = 0; index != NULL && i < m->npart; i++)
        spx_free(index[i]);
    spx_free(index);
    spx_free(fiber);
    spx_free(target);
    return st;
}

spx_status spx_merge_plan_rows(spx_merge *m, spx_err *e)
{
    const spx_merge_input *p0 = &m->part[0];
    for (size_t i = 1; i < m->npart; i++)
        for (int b = 0; b < NBLOCK; b++)
            if (m->part[i].has[b] != p0->has[b]) {
                const spx_merge_input *without = m->part[i].has[b] ? p0 : &m->part[i];
                return spx_fail_at(e, SPX_EINPUT, without->name, NULL, NULL,
                                   "has no /%s, but %s has: rows are joined of the same blocks",
                                   spx_merge_block_name[b], (without == p0 ? &m->part[i] : p0)->name);
            }
    spx_status st = total_rows(m, &m->nout, e);
    if (st != SPX_OK || (m->ref = spx_alloc(m->nout, sizeof *m->ref, e)) == NULL)
        return e->code;
    for (size_t i = 0, k = 0; i < m->npart; i++)
        for (size_t r = 0; r < m->part[i].nrow; r++)
            m->ref[k++] = (spx_merge_origin){i, r};
    return SPX_OK;
}

spx_status spx_merge_recognise(spx_merge *m, spx_err *e)
{
    size_t nframe = 0, shared_arms = 0, same_camera = 0;
    for (size_t i = 0; i < m->npart; i++) {
        const spx_merge_input *p = &m->part[i];
        nframe += (size_t)p->has[FRAME];
        same_camera += strcmp(p->camera, m->part[0].camera) == 0;
        for (size_t k = 0; k < i; k++)
            for (size_t a = 0; a < p->narm; a++)
                shared_arms += spx_merge_find_arm(&m->part[k], p->arms[a].name) >= 0;
        if (p->has[RVFIT])
            shared_arms++;
    }
    if (nframe == m->npart && same_camera == m->npart)
        m->by = SPX_MERGE_FIBERS;
    else if (shared_arms == 0 && m->npart > 1)
        m->by = SPX_MERGE_CAMERAS;
    else if (nframe == 0)
        m->by = SPX_MERGE_ROWS;
    else
        return spx_fail(e, SPX_EUSAGE,
                        "%s and %s: it cannot be seen how to join these: join the parts of each camera first, then the "
                        "cameras, or give --by",
                        m->part[0].name, m->part[m->npart - 1].name);
    return SPX_OK;
}
