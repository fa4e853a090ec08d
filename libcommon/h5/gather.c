/* Provides rows of a dataset, read by threads (h5/gather.h). The file is read in the pieces of its inventory, those
 * that hold rows which are wanted, each once: it is compared and converted while it is in the cache. */
#include "h5/gather.h"

#include <errno.h>
#include <omp.h>
#include <stdint.h>
#include <string.h>

#include "base/clones.h"
#include "base/mem.h"
#include "h5/internal.h"
#include "h5/inventory.h"

/* LEAST: bytes from which on HDF5 takes longer; SHARE: bytes of a thread, at least. */
enum { LEAST = 1 << 16, PART = 1 << 17, SHARE = 1 << 20, FEW = 8 };

/* Where the rows come from, and where they go. */
typedef struct {
    spx_h5_row shape;
    size_t n, in, wide; /* in: bytes of a value in the file; wide: in memory */
    const spx_h5_move *m;
    char *out;
    size_t bytes, piece; /* of the dataset; of what is read at one time */
    int64_t at;
    int fd;
    const spx_inventory *inventory; /* NULL: not compared */
} source;

static size_t row_bytes(const source *s)
{
    return s->shape.lines * s->shape.whole * s->in;
}

/* First of the moves whose row ends behind byte `at` of the dataset. */
static size_t first_move(const source *s, size_t at)
{
    size_t lo = 0, hi = s->n;
    while (lo < hi) {
        const size_t mid = lo + (hi - lo) / 2;
        if ((s->m[mid].from + 1) * row_bytes(s) > at)
            hi = mid;
        else
            lo = mid + 1;
    }
    return lo;
}

/* 1: not all are finite. */
SPX_CLONES
static int widen(const float *from, size_t n, double *to)
{
    uint32_t bad = 0;
#pragma omp simd reduction(| : bad)
    for (size_t k = 0; k < n; k++) {
        uint32_t bits;
        memcpy(&bits, from + k, sizeof bits);
        bad |= (bits & 0x7f800000u) == 0x7f800000u;
        to[k] = from[k];
    }
    return bad != 0;
}

/* Values of one line, of which `part` holds bytes [first, end) of the dataset. 1: of those that are widened not all are
 * finite. */
static int take_line(const source *s, size_t line, char *to, const char *part, size_t first, size_t end)
{
    size_t lo = line + s->shape.skip * s->in, hi = lo + s->shape.count * s->in;
    const size_t from = lo;
    lo = lo > first ? lo : first;
    hi = hi < end ? hi : end;
    if (lo >= hi)
        return 0;
    const size_t n = (hi - lo) / s->in;
    to += (lo - from) / s->in * s->wide;
    part += lo - first;
    if (s->in == s->wide) {
        memcpy(to, part, n * s->in);
        return 0;
    }
    return widen((const float *)(const void *)part, n, (double *)(void *)to);
}

/* Values of all wanted rows that `part`, bytes [first, end) of the dataset, holds; as take_line(). */
static int take_part(const source *s, const char *part, size_t first, size_t end)
{
    const size_t row = row_bytes(s), line = s->shape.whole * s->in, count = s->shape.count * s->wide;
    int bad = 0;
    for (size_t i = first_move(s, first); i < s->n && s->m[i].from * row < end; i++) {
        const size_t begin = s->m[i].from * row;
        char *to = s->out + s->m[i].to * s->shape.lines * count;
        size_t k = first > begin ? (first - begin) / line : 0;
        for (; k < s->shape.lines && begin + k * line < end; k++)
            bad |= take_line(s, begin + k * line, to + k * count, part, first, end);
    }
    return bad;
}

/* 1 when a wanted row has bytes in [first, end). */
static int is_wanted(const source *s, size_t first, size_t end)
{
    const size_t i = first_move(s, first);
    return i < s->n && s->m[i].from * row_bytes(s) < end;
}

static spx_status read_pieces(const source *s, const char *file, const char *path, int *done, int *finite, spx_err *e)
{
    const size_t npiece = (s->bytes + s->piece - 1) / s->piece;
    const size_t shares = s->n * row_bytes(s) / SHARE + 1, most = (size_t)omp_get_max_threads();
    const int nthread = (int)(shares < most ? shares < FEW ? shares : FEW : most < FEW ? most : FEW);
    char *part = spx_alloc_unset((size_t)nthread, s->piece, 1, e);
    int why = 0, differs = 0, bad = 0;
    if (part == NULL)
        return SPX_EIO;
#pragma omp parallel for num_threads(nthread) schedule(dynamic) reduction(max : why) reduction(| : differs, bad)
    for (size_t k = 0; k < npiece; k++) {
        const size_t first = k * s->piece, end = s->bytes - first < s->piece ? s->bytes : first + s->piece;
        char *own = part + (size_t)omp_get_thread_num() * s->piece;
        if (why > 0 || differs || !is_wanted(s, first, end)) /* a reduction by max begins with the least number */
            continue;
        const int failed = spx_h5_read_at(s->fd, own, end - first, (uint64_t)s->at + first);
        why = failed > why ? failed : why;
        if (failed == 0 && s->inventory != NULL)
            differs |= !spx_inventory_matches(s->inventory, (uint64_t)s->at + first, own, end - first);
        if (failed == 0)
            bad |= take_part(s, own, first, end);
    }
    spx_free(part);
    if (finite != NULL)
        *finite = s->in != s->wide && !bad;
    *done = why != ENODATA; /* HDF5 reads zeros behind the end of a file */
    if (differs)
        return spx_inventory_differs(file, path, e);
    return why != 0 && *done ? spx_fail_at(e, SPX_EIO, file, path, NULL, "cannot read: %s", strerror(why)) : SPX_OK;
}

spx_status spx_h5_gather(hid_t loc, const char *path, hid_t mem, const spx_h5_row *shape, size_t n,
                         const spx_h5_move *m, void *out, int *done, int *finite, spx_err *e)
{
    source s = {.shape = *shape, .n = n, .m = m, .out = out, .wide = H5Tget_size(mem)};
    size_t row = 0, dims[SPX_H5_MAXDIM], count = 1;
    int ndim = 0;
    *done = 0;
    if (finite != NULL)
        *finite = 0;
    if (n == 0 || spx_mul(shape->lines, shape->whole, &row, e) != SPX_OK)
        return n == 0 ? SPX_OK : e->code;
    hid_t d = spx_h5_open(loc, path, e);
    if (d < 0)
        return e->code;
    const hid_t ftype = H5Dget_type(d);
    const hid_t type = H5Tequal(mem, H5T_NATIVE_DOUBLE) > 0 && H5Tequal(ftype, H5T_NATIVE_FLOAT) > 0 ? ftype : mem;
    s.in = H5Tget_size(type);
    spx_status st = spx_h5_dataset_dims(d, &ndim, dims);
    for (int i = 0; i < ndim && st == SPX_OK; i++)
        st = spx_mul(count, dims[i], &count, e);
    if (st == SPX_OK && ndim > 0 && row > 0 && count / row == dims[0] && count % row == 0 && m[n - 1].from < dims[0] &&
        count <= SIZE_MAX / 16 && n >= LEAST / s.in / row) {
        s.bytes = count * s.in;
        s.at = spx_h5_place(d, ftype, type, s.bytes, &s.fd);
        *done = s.at >= 0;
    }
    if (*done) {
        s.inventory = spx_inventory_of(d);
        s.piece = s.inventory != NULL ? spx_inventory_piece(s.inventory, (uint64_t)s.at, s.bytes) : 0;
        if (s.piece == 0)
            s.inventory = NULL;
        s.piece = s.piece != 0 ? s.piece : PART;
        *done = s.piece % s.in == 0;
    }
    if (st == SPX_OK && *done) {
        char absolute[512];
        spx_h5_absolute(loc, path, absolute, sizeof absolute);
        st = read_pieces(&s, spx_h5_filename(loc), absolute, done, finite, e);
    }
    (void)H5Tclose(ftype);
    (void)H5Dclose(d);
    return st;
}
