/* Provides the inventory of an HDF5 file: checksums of all its bytes (h5/inventory.h). */
#include "h5/inventory.h"

#include <errno.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "h5/failure.h"
#include "h5/internal.h"
#include "h5/object.h"
#include "h5/sum.h"

#if !defined SPX_BARE || __has_include(<xxhash.h>)
#define XXH_INLINE_ALL
#include <xxhash.h>
#else
typedef int XXH3_state_t;
#define XXH3_64bits_reset(s)        ((void)(s))
#define XXH3_64bits_update(s, p, n) ((void)(s), (void)(p), (void)(n))
#define XXH3_64bits_digest(s)       ((void)(s), (uint64_t)0)
#endif

/* As PNG's: the first byte is no text, and conversions of line ends show. */
static const unsigned char magic[8] = {0x8b, 'S', 'P', 'X', '\r', '\n', 0x1a, '\n'};
static const unsigned char end_magic[8] = {'\n', 'x', 'p', 's', '\r', '\n', 0x1a, 0x8b};

enum { FORMAT = 1, WORD = 8, END = 3 * WORD, STRUCTURE = 0, DATASET = 1 };

typedef struct {
    uint64_t at, bytes;
    size_t piece; /* index of its first piece */
    int kind;
    const char *name;
} extent;

typedef struct {
    uint64_t at, bytes; /* of a dataset's values; 0 bytes: an object header */
    char *name;
} object;

typedef struct noted noted;

struct spx_inventory {
    uint64_t length; /* bytes of the HDF5 file */
    size_t piece;
    size_t n, capacity, npiece;
    extent *extent; /* in the order of the file, without gaps */
    uint64_t *sum;  /* of each piece */
    char *known;    /* reading: 1: the piece is verified; writing: 1: it is entered */
    object *object; /* writing */
    size_t nobject, object_capacity;
    noted *noted;    /* writing: sums that were taken while values were written */
    spx_err *e;      /* writing, while objects are visited */
    char *names;     /* reading: NUL-terminated */
    char name[1024]; /* of the file, for messages */
    hid_t file;      /* reading: the file that it is of, and what it is verified with */
    int fd;
    const char *image;
    spx_inventory *next;
};

static void free_noted(noted *x);

static int in_use = 1;
static spx_inventory *attached; /* inventories of open files; HDF5's thread alone */

void spx_inventory_use(int on)
{
    in_use = on;
}

static uint64_t get_word(const unsigned char *p)
{
    uint64_t v = 0;
    for (int i = WORD - 1; i >= 0; i--)
        v = v << 8 | p[i];
    return v;
}

static unsigned char *put_word(unsigned char *p, uint64_t v)
{
    for (int i = 0; i < WORD; i++)
        p[i] = (unsigned char)(v >> 8 * i);
    return p + WORD;
}

static size_t pieces(const spx_inventory *v, uint64_t bytes)
{
    return (size_t)((bytes + v->piece - 1) / v->piece);
}

/* Extent that holds byte `at` < length. */
static size_t find_extent(const spx_inventory *v, uint64_t at)
{
    size_t low = 0, high = v->n;
    while (high - low > 1) {
        const size_t mid = low + (high - low) / 2;
        if (v->extent[mid].at <= at)
            low = mid;
        else
            high = mid;
    }
    return low;
}

/* Piece that is exactly the n bytes at `at` of a dataset; v->npiece: none. */
static size_t find_piece(const spx_inventory *v, uint64_t at, size_t n)
{
    if (at >= v->length)
        return v->npiece;
    const extent *x = &v->extent[find_extent(v, at)];
    const uint64_t from = at - x->at, left = x->bytes - from;
    return x->kind == DATASET && from % v->piece == 0 && n == (left < v->piece ? left : v->piece)
               ? x->piece + (size_t)(from / v->piece)
               : v->npiece;
}

/* ---- reading ---- */

int spx_inventory_begins(unsigned char byte)
{
    return byte == magic[0];
}

uint64_t spx_inventory_bytes(const unsigned char head[SPX_INVENTORY_HEAD])
{
    return memcmp(head, magic, sizeof magic) == 0 ? get_word(head + 2 * WORD) : 0;
}

static spx_status damaged_inventory(const char *name, spx_err *e)
{
    return spx_fail_at(e, SPX_EINPUT, name, NULL, "make it again, copy it again, or read it as it is with --no-verify",
                       "its inventory is damaged: so may be the file");
}

/* Extents and checksums from the words between head and end; 0: they are not as they must be. */
static int parse_extents(spx_inventory *v, const unsigned char *p, const unsigned char *end)
{
    uint64_t at = 0;
    char *name = v->names;
    for (size_t i = 0; i < v->n; i++) {
        if (end - p < 3 * WORD)
            return 0;
        extent *x = &v->extent[i];
        const uint64_t kind = get_word(p + WORD), len = get_word(p + 2 * WORD);
        *x = (extent){.at = at, .bytes = get_word(p), .piece = v->npiece, .kind = (int)kind, .name = name};
        p += 3 * WORD;
        if (x->bytes == 0 || x->bytes > v->length - at || kind > DATASET || len > (uint64_t)(end - p))
            return 0;
        memcpy(name, p, len);
        name[len] = '\0';
        name += len + 1;
        const size_t words = (size_t)(len + WORD - 1) / WORD;
        if (words > (size_t)(end - p) / WORD)
            return 0;
        p += words * WORD;
        if (pieces(v, x->bytes) > (size_t)(end - p) / WORD)
            return 0;
        for (size_t k = pieces(v, x->bytes); k > 0; k--, p += WORD)
            v->sum[v->npiece++] = get_word(p);
        at += x->bytes;
    }
    return at == v->length && end - p <= WORD;
}

spx_status spx_inventory_parse(spx_inventory **out, unsigned char *bytes, size_t n, uint64_t length, const char *name,
                               spx_err *e)
{
    *out = NULL;
    if (!in_use || !SPX_SUMS) {
        spx_free(bytes);
        return SPX_OK;
    }
    spx_inventory *v = spx_alloc(1, sizeof *v, e);
    spx_status st = v == NULL ? SPX_EIO : SPX_OK;
    if (st == SPX_OK) {
        v->file = H5I_INVALID_HID;
        v->fd = -1;
        (void)snprintf(v->name, sizeof v->name, "%s", name);
        if (n < SPX_INVENTORY_HEAD + END || n % WORD != 0 || memcmp(bytes, magic, sizeof magic) != 0 ||
            memcmp(bytes + n - WORD, end_magic, sizeof end_magic) != 0 || get_word(bytes + 2 * WORD) != n ||
            get_word(bytes + n - 2 * WORD) != n)
            st = damaged_inventory(name, e);
    }
    /* the end is the same in all formats */
    if (st == SPX_OK && get_word(bytes + n - END) != spx_sum(bytes, n - END))
        st = damaged_inventory(name, e);
    if (st == SPX_OK && get_word(bytes + WORD) != FORMAT)
        st = spx_fail_at(e, SPX_EINPUT, name, NULL, "use a newer specpipe, or --no-verify",
                         "its inventory has format %llu", (unsigned long long)get_word(bytes + WORD));
    if (st == SPX_OK) {
        v->length = get_word(bytes + 3 * WORD);
        v->piece = (size_t)get_word(bytes + 4 * WORD);
        v->n = (size_t)get_word(bytes + 5 * WORD);
        if (v->length != length || v->n == 0 || v->n > n / (3 * WORD) || v->piece < WORD || v->piece > (size_t)1 << 30)
            st = damaged_inventory(name, e);
    }
    if (st == SPX_OK && ((v->extent = spx_alloc(v->n, sizeof *v->extent, e)) == NULL ||
                         (v->sum = spx_alloc(n / WORD, sizeof *v->sum, e)) == NULL ||
                         (v->known = spx_alloc(n / WORD, 1, e)) == NULL || (v->names = spx_alloc(n, 1, e)) == NULL))
        st = SPX_EIO;
    if (st == SPX_OK && !parse_extents(v, bytes + SPX_INVENTORY_HEAD, bytes + n - END))
        st = damaged_inventory(name, e);
    spx_free(bytes);
    if (st != SPX_OK)
        spx_inventory_free(v);
    else
        *out = v;
    return st;
}

int spx_h5_read_at(int fd, void *p, size_t n, uint64_t at)
{
    for (size_t have = 0; have < n;) {
        const ssize_t got = pread(fd, (char *)p + have, n - have, (off_t)(at + have));
        if (got > 0)
            have += (size_t)got;
        else if (got == 0)
            return ENODATA;
        else if (errno != EINTR)
            return errno;
    }
    return 0;
}

static spx_status cannot_read(const char *name, int why, spx_err *e)
{
    if (why == ENODATA)
        return spx_fail_at(e, SPX_EINPUT, name, NULL, NULL, "is truncated: it became shorter while it was read");
    return spx_fail_at(e, SPX_EIO, name, NULL, NULL, "cannot read: %s", strerror(why));
}

/* The inventory that begins at `at`, after the HDF5 file; or, where its head or the superblock is damaged, the one that
 * the end of the file belongs to. *n is 0 where there is none. */
static int find_in_file(int fd, uint64_t size, uint64_t length, uint64_t *at, uint64_t *n)
{
    unsigned char head[SPX_INVENTORY_HEAD], end[2 * WORD];
    *n = 0;
    if (length != 0 && length < size) {
        const size_t rest = size - length < sizeof head ? (size_t)(size - length) : sizeof head;
        const int why = spx_h5_read_at(fd, head, rest, length);
        if (why != 0)
            return why;
        *at = length;
        if (rest < sizeof head && memcmp(head, magic, rest < sizeof magic ? rest : sizeof magic) == 0)
            *n = sizeof head + END; /* more than there is: it is cut off */
        else if (rest == sizeof head)
            *n = spx_inventory_bytes(head);
        if (*n != 0)
            return 0;
    }
    if (length == size || size < sizeof head + END)
        return 0;
    const int why = spx_h5_read_at(fd, end, sizeof end, size - sizeof end);
    if (why != 0 || memcmp(end + WORD, end_magic, sizeof end_magic) != 0)
        return why;
    const uint64_t bytes = get_word(end);
    if (bytes < sizeof head + END || bytes >= size)
        return 0;
    const int again = spx_h5_read_at(fd, head, sizeof head, size - bytes);
    if (again != 0 || get_word(head + 3 * WORD) != size - bytes)
        return again;
    *at = size - bytes;
    *n = bytes;
    return 0;
}

spx_status spx_inventory_find(spx_inventory **v, int fd, uint64_t size, uint64_t length, const char *name, spx_err *e)
{
    uint64_t at = 0, n = 0;
    *v = NULL;
    if (!in_use || !SPX_SUMS)
        return SPX_OK;
    const int why = find_in_file(fd, size, length, &at, &n);
    if (why != 0)
        return cannot_read(name, why, e);
    if (n == 0)
        return SPX_OK;
    if (n > size - at)
        return damaged_inventory(name, e);
    unsigned char *bytes = spx_alloc_unset(n, 1, 1, e);
    if (bytes == NULL)
        return SPX_EIO;
    const int again = spx_h5_read_at(fd, bytes, n, at);
    if (again != 0) {
        spx_free(bytes);
        return cannot_read(name, again, e);
    }
    return spx_inventory_parse(v, bytes, n, at, name, e);
}

/* Checksum of n bytes at `at`; returns errno, ENODATA where the file ends before. In parts, without allocation: the
 * file may be read with little memory left. */
static int checksum_at(int fd, uint64_t at, size_t n, uint64_t *sum)
{
    enum { PART = 1 << 14 };
    char part[PART];
    XXH3_state_t state;
    int why = 0;
    (void)XXH3_64bits_reset(&state);
    for (size_t done = 0; done < n && why == 0; done += PART) {
        const size_t m = n - done < PART ? n - done : PART;
        why = spx_h5_read_at(fd, part, m, at + done);
        if (why == 0)
            (void)XXH3_64bits_update(&state, part, m);
    }
    *sum = XXH3_64bits_digest(&state);
    return why;
}

/* Enters the checksum of piece k of an extent, or compares it, unless that was done. *differs: it does. Returns errno.
 */
static int visit_piece(spx_inventory *v, const extent *x, size_t k, int enter, int fd, const char *image, int *differs)
{
    const uint64_t from = (uint64_t)k * v->piece, left = x->bytes - from;
    const size_t n = left < v->piece ? (size_t)left : v->piece, at = x->piece + k;
    *differs = 0;
    if (v->known[at])
        return 0;
    uint64_t sum = 0;
    int why = 0;
    if (image != NULL)
        sum = spx_sum(image + x->at + from, n);
    else
        why = checksum_at(fd, x->at + from, n, &sum);
    if (why != 0)
        return why;
    if (enter)
        v->sum[at] = sum;
    *differs = v->sum[at] != sum;
    v->known[at] = !*differs;
    return 0;
}

/* Visits pieces [first, end) of an extent. *differs: the first piece that does, or `end`. */
static spx_status visit_pieces(spx_inventory *v, const extent *x, size_t first, size_t end, int enter, int fd,
                               const char *image, int nthreads, size_t *differs, spx_err *e)
{
    enum { MANY = 16 };
    size_t bad = end;
    int why = 0;
#pragma omp parallel for num_threads(nthreads) if (end - first > MANY) schedule(dynamic) reduction(max                 \
                                                                                                   : why)              \
    reduction(min                                                                                                      \
              : bad)
    for (size_t k = first; k < end; k++) {
        int other;
        const int failed = visit_piece(v, x, k, enter, fd, image, &other);
        why = failed > why ? failed : why;
        bad = other && k < bad ? k : bad;
    }
    *differs = bad;
    return bad == end && why != 0 ? cannot_read(v->name, why, e) : SPX_OK;
}

static int most_threads(void)
{
    enum { FEW = 8 };
    const int most = omp_get_max_threads();
    return most < FEW ? most : FEW;
}

spx_status spx_inventory_check(spx_inventory *v, int fd, const void *image, spx_err *e)
{
    for (size_t i = 0; i < v->n; i++) {
        const extent *x = &v->extent[i];
        size_t bad, end = pieces(v, x->bytes);
        if (x->kind != STRUCTURE)
            continue;
        spx_status st = visit_pieces(v, x, 0, end, 0, fd, image, most_threads(), &bad, e);
        if (st != SPX_OK)
            return st;
        if (bad < end) {
            const uint64_t from = x->at + (uint64_t)bad * v->piece, left = x->at + x->bytes - from;
            return spx_fail_at(
                e, SPX_EINPUT, v->name, x->name, "make it again, copy it again, or read it as it is with --no-verify",
                "the file is damaged in its structure, here or nearby (bytes %llu to %llu)", (unsigned long long)from,
                (unsigned long long)(from + (left < v->piece ? left : v->piece) - 1));
        }
    }
    return SPX_OK;
}

void spx_inventory_attach(spx_inventory *v, hid_t file, int fd, const void *image)
{
    v->file = file;
    v->fd = fd;
    v->image = image;
    v->next = attached;
    attached = v;
}

void spx_inventory_free(spx_inventory *v)
{
    if (v == NULL)
        return;
    for (spx_inventory **p = &attached; *p != NULL; p = &(*p)->next)
        if (*p == v) {
            *p = v->next;
            break;
        }
    for (size_t i = 0; i < v->nobject; i++)
        spx_free(v->object[i].name);
    spx_free(v->object);
    free_noted(v->noted);
    spx_free(v->extent);
    spx_free(v->sum);
    spx_free(v->known);
    spx_free(v->names);
    spx_free(v);
}

/* ---- verifying ---- */

spx_inventory *spx_inventory_of(hid_t any)
{
    spx_inventory *v = attached;
    if (v == NULL)
        return NULL;
    const hid_t file = H5Iget_file_id(any);
    while (v != NULL && v->file != file)
        v = v->next;
    if (file >= 0)
        (void)H5Fclose(file);
    return v;
}

spx_status spx_inventory_differs(const char *name, const char *path, spx_err *e)
{
    return spx_fail_at(e, SPX_EINPUT, name, path, "make it again, copy it again, or read it as it is with --no-verify",
                       "is damaged: values differ from the file's inventory");
}

/* Verifies bytes [from, end) of the file. */
static spx_status verify_bytes(spx_inventory *v, uint64_t from, uint64_t end, spx_err *e)
{
    spx_status st = SPX_OK;
    end = end < v->length ? end : v->length;
    for (size_t i = from < end ? find_extent(v, from) : v->n; i < v->n && v->extent[i].at < end && st == SPX_OK; i++) {
        const extent *x = &v->extent[i];
        const uint64_t last = end < x->at + x->bytes ? end : x->at + x->bytes;
        const size_t first_piece = from > x->at ? (size_t)((from - x->at) / v->piece) : 0;
        const size_t end_piece = pieces(v, last - x->at);
        size_t bad;
        st = visit_pieces(v, x, first_piece, end_piece, 0, v->fd, v->image, most_threads(), &bad, e);
        if (st == SPX_OK && bad < end_piece)
            st = spx_inventory_differs(v->name, x->name, e);
    }
    return st;
}

/* Bytes [*from, *end) of a dataset's values that a selection spans, in the order of the file. */
static void span(hid_t d, hid_t fspace, uint64_t stored, uint64_t *from, uint64_t *end)
{
    hsize_t first[H5S_MAX_RANK], last[H5S_MAX_RANK], dims[H5S_MAX_RANK];
    const hid_t type = H5Dget_type(d);
    const uint64_t size = H5Tget_size(type);
    const int ndim = fspace == H5S_ALL ? 0 : H5Sget_simple_extent_dims(fspace, dims, NULL);
    (void)H5Tclose(type);
    *from = 0;
    *end = stored;
    if (ndim <= 0 || H5Sget_select_npoints(fspace) <= 0 || H5Sget_select_bounds(fspace, first, last) < 0)
        return;
    uint64_t a = 0, b = 0;
    for (int i = 0; i < ndim; i++) {
        a = a * dims[i] + first[i];
        b = b * dims[i] + last[i];
    }
    *from = a * size;
    *end = (b + 1) * size;
}

spx_status spx_inventory_verify(hid_t d, hid_t fspace, spx_err *e)
{
    spx_inventory *v = spx_inventory_of(d);
    const haddr_t at = v != NULL ? H5Dget_offset(d) : HADDR_UNDEF;
    uint64_t from, end;
    if (at == HADDR_UNDEF || (fspace != H5S_ALL && H5Sget_select_npoints(fspace) == 0))
        return SPX_OK;
    span(d, fspace, H5Dget_storage_size(d), &from, &end);
    spx_err err = {0};
    if (verify_bytes(v, at + from, at + end, &err) == SPX_OK)
        return SPX_OK;
    spx_h5_keep_damage(&err);
    return spx_err_pass(e, &err);
}

spx_status spx_inventory_verify_all(hid_t file, void (*damaged)(void *ctx, const char *path), void *ctx, int *has,
                                    spx_err *e)
{
    spx_inventory *v = spx_inventory_of(file);
    spx_status st = SPX_OK;
    *has = v != NULL;
    for (size_t i = 0; v != NULL && i < v->n && st == SPX_OK; i++) {
        const extent *x = &v->extent[i];
        const size_t end = pieces(v, x->bytes);
        size_t bad;
        st = visit_pieces(v, x, 0, end, 0, v->fd, v->image, most_threads(), &bad, e);
        if (st == SPX_OK && bad < end)
            damaged(ctx, x->name);
    }
    return st;
}

size_t spx_inventory_piece(const spx_inventory *v, uint64_t at, uint64_t bytes)
{
    if (at >= v->length)
        return 0;
    const extent *x = &v->extent[find_extent(v, at)];
    return x->kind == DATASET && x->at == at && x->bytes == bytes ? v->piece : 0;
}

int spx_inventory_matches(const spx_inventory *v, uint64_t at, const void *p, size_t n)
{
    const size_t k = find_piece(v, at, n);
    return k < v->npiece && v->sum[k] == spx_sum(p, n);
}

/* ---- sums of values while they are written ---- */

/* Sums of one dataset's pieces. Rows are written one after another, and end within pieces: of the piece that byte
 * `next` is in, `state` has the bytes up to it where the piece was `begun`. */
struct noted {
    uint64_t at, bytes, next;
    uint64_t *sum;
    char *known;
    int begun;
    XXH3_state_t state;
    noted *older;
};

typedef struct watched {
    hid_t file;
    noted *dataset; /* the last one that was begun comes first */
    struct watched *other;
} watched;

static watched *watching;

spx_status spx_inventory_watch(hid_t file, spx_err *e)
{
    watched *w = SPX_SUMS ? spx_alloc(1, sizeof *w, e) : NULL;
    if (w == NULL)
        return SPX_SUMS ? SPX_EIO : SPX_OK;
    *w = (watched){.file = file, .other = watching};
    watching = w;
    return SPX_OK;
}

static void free_noted(noted *x)
{
    while (x != NULL) {
        noted *older = x->older;
        spx_free(x->sum);
        spx_free(x->known);
        spx_free(x);
        x = older;
    }
}

/* Ends the watch on a file; its notes. */
static noted *end_watch(hid_t file)
{
    noted *all = NULL;
    for (watched **p = &watching; *p != NULL; p = &(*p)->other)
        if ((*p)->file == file) {
            watched *w = *p;
            all = w->dataset;
            *p = w->other;
            spx_free(w);
            break;
        }
    return all;
}

void spx_inventory_unwatch(hid_t file)
{
    free_noted(end_watch(file));
}

/* Notes of the dataset that begins at `at`, new where there are none; NULL: memory is out, and it is read back. */
static noted *find_noted(watched *w, uint64_t at, uint64_t bytes)
{
    spx_err none = {0};
    for (noted *x = w->dataset; x != NULL; x = x->older)
        if (x->at == at && x->bytes == bytes)
            return x;
    const size_t npiece = (size_t)((bytes + SPX_INVENTORY_PIECE - 1) / SPX_INVENTORY_PIECE);
    noted *x = spx_alloc(1, sizeof *x, &none);
    if (x == NULL)
        return NULL;
    x->at = at;
    x->bytes = bytes;
    x->sum = spx_alloc(npiece, sizeof *x->sum, &none);
    x->known = spx_alloc(npiece, 1, &none);
    if (x->sum == NULL || x->known == NULL) {
        free_noted(x);
        return NULL;
    }
    x->older = w->dataset;
    w->dataset = x;
    return x;
}

/* Bytes [lo, hi) of piece k, which has bytes [first, last) of the dataset. */
static void note_piece(noted *x, size_t k, uint64_t first, uint64_t last, uint64_t lo, uint64_t hi, const char *p)
{
    const size_t n = (size_t)(hi - lo);
    x->known[k] = 0;
    if (p == NULL)
        return;
    if (lo == first && hi == last) {
        x->sum[k] = spx_sum(p, n);
        x->known[k] = 1;
        return;
    }
    if (lo == first) {
        (void)XXH3_64bits_reset(&x->state);
        x->begun = 1;
    }
    if (x->begun)
        (void)XXH3_64bits_update(&x->state, p, n);
    if (x->begun && hi == last) {
        x->sum[k] = XXH3_64bits_digest(&x->state);
        x->known[k] = 1;
        x->begun = 0;
    }
}

void spx_inventory_note(hid_t d, uint64_t from, const void *p, size_t len)
{
    watched *w = watching;
    const hid_t file = w != NULL && len > 0 ? H5Iget_file_id(d) : H5I_INVALID_HID;
    while (w != NULL && w->file != file)
        w = w->other;
    const haddr_t at = file >= 0 && w != NULL ? H5Dget_offset(d) : HADDR_UNDEF;
    const uint64_t bytes = at != HADDR_UNDEF ? H5Dget_storage_size(d) : 0, piece = SPX_INVENTORY_PIECE;
    noted *x = bytes >= piece && from < bytes && len <= bytes - from ? find_noted(w, at, bytes) : NULL;
    if (x != NULL) {
        const uint64_t end = from + len;
        x->begun = x->begun && from == x->next;
        x->next = end;
        for (uint64_t first = from / piece * piece; first < end; first += piece) {
            const uint64_t last = bytes - first < piece ? bytes : first + piece;
            const uint64_t lo = from > first ? from : first, hi = end < last ? end : last;
            note_piece(x, (size_t)(first / piece), first, last, lo, hi,
                       p != NULL ? (const char *)p + (lo - from) : NULL);
        }
        x->begun = x->begun && p != NULL;
    }
    if (file >= 0)
        (void)H5Fclose(file);
}

/* Sums that were taken, of a file whose extents are known. */
static void enter_noted(spx_inventory *v)
{
    for (const noted *x = v->noted; x != NULL; x = x->older) {
        if (spx_inventory_piece(v, x->at, x->bytes) != SPX_INVENTORY_PIECE)
            continue;
        const extent *in = &v->extent[find_extent(v, x->at)];
        const size_t npiece = pieces(v, x->bytes);
        for (size_t k = 0; k < npiece; k++)
            if (x->known[k]) {
                v->sum[in->piece + k] = x->sum[k];
                v->known[in->piece + k] = 1;
            }
    }
    free_noted(v->noted);
    v->noted = NULL;
}

/* ---- writing ---- */

static spx_status note_object(spx_inventory *v, uint64_t at, uint64_t bytes, const char *name, spx_err *e)
{
    object *more = spx_grow(v->object, v->nobject, 1, &v->object_capacity, sizeof *more, e);
    if (more == NULL)
        return SPX_EIO;
    v->object = more;
    const size_t len = strlen(name) + 2;
    char *path = spx_alloc(len, 1, e);
    if (path == NULL)
        return SPX_EIO;
    (void)snprintf(path, len, "/%s", strcmp(name, ".") == 0 ? "" : name);
    v->object[v->nobject++] = (object){.at = at, .bytes = bytes, .name = path};
    return SPX_OK;
}

static herr_t visit(hid_t file, const char *name, const H5O_info_t *info, void *ctx)
{
    spx_inventory *v = ctx;
    spx_status st = note_object(v, info->addr, 0, name, v->e);
    if (st != SPX_OK || info->type != H5O_TYPE_DATASET)
        return st != SPX_OK;
    const hid_t d = H5Dopen2(file, name, H5P_DEFAULT);
    const haddr_t at = d >= 0 ? H5Dget_offset(d) : HADDR_UNDEF;
    const hsize_t bytes = at != HADDR_UNDEF ? H5Dget_storage_size(d) : 0;
    if (bytes > 0)
        st = note_object(v, at, bytes, name, v->e);
    if (d < 0 || H5Dclose(d) < 0)
        st = spx_h5_fail_at(file, name, SPX_EIO, "cannot be opened again", v->e);
    return st != SPX_OK;
}

/* By place in the file. */
static int compare_objects(const void *a, const void *b)
{
    const object *x = a, *y = b;
    return x->at < y->at ? -1 : x->at > y->at;
}

spx_status spx_inventory_begin(spx_inventory **out, hid_t file, spx_err *e)
{
    *out = NULL;
    spx_inventory *v = SPX_SUMS ? spx_alloc(1, sizeof *v, e) : NULL;
    if (v == NULL)
        return SPX_SUMS ? SPX_EIO : SPX_OK;
    spx_err err = {0};
    spx_status st = SPX_OK;
    v->piece = SPX_INVENTORY_PIECE;
    v->e = &err;
    if (H5Ovisit2(file, H5_INDEX_NAME, H5_ITER_NATIVE, visit, v, H5O_INFO_BASIC) < 0 || err.code != SPX_OK)
        st = err.code != SPX_OK ? spx_err_pass(e, &err)
                                : spx_fail_at(e, SPX_EIO, spx_h5_filename(file), NULL, NULL, "cannot be listed");
    v->e = NULL;
    if (st != SPX_OK) {
        spx_inventory_free(v);
        return st;
    }
    qsort(v->object, v->nobject, sizeof *v->object, compare_objects);
    v->noted = end_watch(file);
    *out = v;
    return SPX_OK;
}

static spx_status add_extent(spx_inventory *v, uint64_t at, uint64_t end, int kind, const char *name, spx_err *e)
{
    if (at >= end)
        return SPX_OK;
    extent *more = spx_grow(v->extent, v->n, 1, &v->capacity, sizeof *more, e);
    if (more == NULL)
        return SPX_EIO;
    v->extent = more;
    v->extent[v->n++] = (extent){.at = at, .bytes = end - at, .piece = v->npiece, .kind = kind, .name = name};
    v->npiece += pieces(v, end - at);
    return SPX_OK;
}

spx_status spx_inventory_extend(spx_inventory *v, uint64_t length, spx_err *e)
{
    uint64_t at = 0;
    const char *name = "/";
    spx_status st = SPX_OK;
    v->length = length;
    /* structure is cut at object headers, so that a message can say which object is damaged or near */
    for (size_t i = 0; i < v->nobject && st == SPX_OK; i++) {
        const object *o = &v->object[i];
        if (o->at < at || o->bytes > length || o->at > length - o->bytes)
            continue;
        st = add_extent(v, at, o->at, STRUCTURE, name, e);
        if (st == SPX_OK && o->bytes > 0)
            st = add_extent(v, o->at, o->at + o->bytes, DATASET, o->name, e);
        name = o->name;
        at = o->at + o->bytes;
    }
    if (st == SPX_OK)
        st = add_extent(v, at, length, STRUCTURE, name, e);
    if (st == SPX_OK &&
        ((v->sum = spx_alloc(v->npiece, sizeof *v->sum, e)) == NULL || (v->known = spx_alloc(v->npiece, 1, e)) == NULL))
        st = SPX_EIO;
    if (st == SPX_OK)
        enter_noted(v);
    return st;
}

void spx_inventory_enter(spx_inventory *v, uint64_t at, const void *p, size_t n)
{
    const size_t k = find_piece(v, at, n);
    if (k < v->npiece) {
        v->sum[k] = spx_sum(p, n);
        v->known[k] = 1;
    }
}

spx_status spx_inventory_fill(spx_inventory *v, int fd, const void *image, int nthreads, const char *name, spx_err *e)
{
    spx_status st = SPX_OK;
    (void)snprintf(v->name, sizeof v->name, "%s", name);
    for (size_t i = 0; i < v->n && st == SPX_OK; i++) {
        size_t bad;
        st = visit_pieces(v, &v->extent[i], 0, pieces(v, v->extent[i].bytes), 1, fd, image, nthreads, &bad, e);
    }
    return st;
}

spx_status spx_inventory_write(const spx_inventory *v, unsigned char **out, size_t *size, spx_err *e)
{
    size_t n = SPX_INVENTORY_HEAD + END;
    for (size_t i = 0; i < v->n; i++)
        n += (3 + (strlen(v->extent[i].name) + WORD - 1) / WORD) * WORD;
    n += v->npiece * WORD;
    if ((n & (n - 1)) == 0)
        n += WORD;
    unsigned char *p = spx_alloc(n, 1, e);
    *out = p;
    *size = n;
    if (p == NULL)
        return SPX_EIO;
    const uint64_t head[] = {FORMAT, n, v->length, v->piece, v->n};
    memcpy(p, magic, sizeof magic);
    p += WORD;
    for (size_t i = 0; i < sizeof head / sizeof *head; i++)
        p = put_word(p, head[i]);
    for (size_t i = 0; i < v->n; i++) {
        const extent *x = &v->extent[i];
        const size_t len = strlen(x->name);
        p = put_word(p, x->bytes);
        p = put_word(p, (uint64_t)x->kind);
        p = put_word(p, len);
        memcpy(p, x->name, len);
        p += (len + WORD - 1) / WORD * WORD;
        for (size_t k = 0; k < pieces(v, x->bytes); k++)
            p = put_word(p, v->sum[x->piece + k]);
    }
    p = put_word(*out + n - END, spx_sum(*out, n - END));
    p = put_word(p, n);
    memcpy(p, end_magic, sizeof end_magic);
    return SPX_OK;
}
