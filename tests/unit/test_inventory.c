/* Checks the inventory of HDF5 files: every flipped bit of a file is found where it is read, and not where it is not;
 * files that other programs changed, pipes, several products, rows that threads read and
 * write. */
#include "h5/inventory.h"

#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/mem.h"
#include "h5/attr.h"
#include "h5/deferred.h"
#include "h5/failure.h"
#include "h5/file.h"
#include "h5/gather.h"
#include "h5/object.h"
#include "h5/read.h"
#include "h5/write.h"

static int bad;
static spx_err e;
#define CHECK(x)                                                                                                       \
    do {                                                                                                               \
        if (!(x)) {                                                                                                    \
            printf("%s:%d: %s (%s)\n", __FILE__, __LINE__, #x, spx_err_text(&e));                                      \
            bad = 1;                                                                                                   \
        }                                                                                                              \
        memset(&e, 0, sizeof e);                                                                                       \
    } while (0)

enum { ROWS = 1300, COLUMNS = 1024, ODD = 999, FEW = 9 };

static char dir[] = "/tmp/spx-inventory-XXXXXX";
static char path[64];

static const char *in_dir(const char *name)
{
    (void)snprintf(path, sizeof path, "%s/%s", dir, name);
    return path;
}

static float *large;

/* A product with groups, attributes of both kinds, a dimension scale, and, `rows` > 0, a large array. */
static void make(spx_output *o, size_t rows, int deferred)
{
    const hid_t f = spx_output_file(o);
    const double v[FEW] = {1, 2, 3, 4, 5, 6, 7, 8, 9};
    const size_t few = FEW, shape[2] = {rows, COLUMNS};
    CHECK(spx_h5_set_str(f, "/", "product", "a", &e) == SPX_OK);
    CHECK(spx_h5_write_real(f, "/a/b/flux", 4, 1, &few, v, &e) == SPX_OK);
    CHECK(spx_h5_write_real(f, "/a/b/wavelength", 8, 1, &few, v, &e) == SPX_OK);
    CHECK(spx_h5_attach_scale(f, "/a/b/flux", 0, "/a/b/wavelength", "wavelength", &e) == SPX_OK);
    CHECK(spx_h5_set_str(f, "/a/b/wavelength", "medium", "air", &e) == SPX_OK);
    CHECK(spx_h5_set_f64(f, "/a", "x", 0.5, &e) == SPX_OK);
    CHECK(spx_h5_write_strings(f, "/a/cards", 4, 2, "abcdef  ", &e) == SPX_OK);
    if (rows > 0)
        CHECK(spx_h5_defer_write(deferred ? spx_output_writes(o) : NULL, f, "/large", H5T_NATIVE_FLOAT, 2, shape, large,
                                 &e) == SPX_OK);
}

static void make_file(const char *name, size_t rows, int deferred)
{
    spx_output *o = NULL;
    CHECK(spx_output_open(&o, in_dir(name), 1, &e) == SPX_OK);
    make(o, rows, deferred);
    CHECK(spx_output_close(o, &e) == SPX_OK && spx_output_flush(o, 3, &e) == SPX_OK &&
          spx_output_publish(o, &e) == SPX_OK);
}

static unsigned char *read_file(const char *name, size_t *n)
{
    FILE *f = fopen(in_dir(name), "rb");
    CHECK(f != NULL && fseek(f, 0, SEEK_END) == 0);
    *n = (size_t)ftell(f);
    rewind(f);
    unsigned char *p = spx_alloc(*n, 1, &e);
    CHECK(p != NULL && fread(p, 1, *n, f) == *n);
    (void)fclose(f);
    return p;
}

static void write_file(const char *name, const void *p, size_t n)
{
    FILE *f = fopen(in_dir(name), "wb");
    CHECK(f != NULL && fwrite(p, 1, n, f) == n && fclose(f) == 0);
}

/* Bytes of the HDF5 file within a product of n bytes, of which the inventory tells its own length. */
static size_t hdf5_bytes(const unsigned char *p, size_t n)
{
    uint64_t own = 0;
    for (int i = 0; i < 8; i++)
        own |= (uint64_t)p[n - 16 + (size_t)i] << 8 * i;
    CHECK(own < n && own % 8 == 0 && (own & (own - 1)) != 0 && spx_inventory_bytes(p + n - own) == own &&
          spx_inventory_begins(p[n - own]));
    return n - (size_t)own;
}

/* Reads all that make() writes, but for the large array; also the first error. */
static spx_status read_all(const char *name, spx_err *why)
{
    spx_input in;
    double *v = NULL;
    char *s = NULL, medium[16] = "";
    size_t n = 0;
    spx_status st = spx_input_open(&in, name, why);
    if (st != SPX_OK)
        return st;
    CHECK(in.inventory == NULL || spx_inventory_of(in.file) == in.inventory);
    st = spx_h5_read_f64(in.file, "/a/b/flux", 1, &n, &v, why);
    CHECK(st != SPX_OK || (n == FEW && v[8] == 9));
    spx_free(v);
    n = 0;
    if (st == SPX_OK) {
        st = spx_h5_read_f64(in.file, "/a/b/wavelength", 1, &n, &v, why);
        CHECK(st != SPX_OK || (n == FEW && v[0] == 1));
        spx_free(v);
    }
    n = 0;
    if (st == SPX_OK) {
        st = spx_h5_read_strings(in.file, "/a/cards", 4, &n, &s, why);
        CHECK(st != SPX_OK || (n == 2 && memcmp(s, "abcdef\0\0", 8) == 0));
        spx_free(s);
    }
    if (st == SPX_OK) {
        st = spx_h5_attr_str(in.file, "/a/b/wavelength", "medium", medium, sizeof medium, why);
        CHECK(st != SPX_OK || strcmp(medium, "air") == 0);
    }
    spx_input_close(&in);
    return st;
}

/* One flipped bit anywhere: an error, and none of the values is another. In the inventory it may go unnoticed only
 * where it makes it none: the file is as it was. */
static void flip_all(void)
{
    size_t n, unnoticed = 0, named = 0;
    make_file("small.h5", 0, 0);
    unsigned char *p = read_file("small.h5", &n);
    const size_t length = hdf5_bytes(p, n);
    write_file("x.h5", p, n);
    FILE *x = fopen(in_dir("x.h5"), "r+b");
    CHECK(x != NULL && setvbuf(x, NULL, _IONBF, 0) == 0);
    for (size_t i = 0; i < n; i += 1 + (i > 64 && i < n - 64) * 2) {
        spx_err why = {0};
        const unsigned char flipped = p[i] ^ (unsigned char)(1u << i % 8);
        CHECK(fseek(x, (long)i, SEEK_SET) == 0 && fwrite(&flipped, 1, 1, x) == 1);
        const spx_status st = read_all(path, &why);
        CHECK(fseek(x, (long)i, SEEK_SET) == 0 && fwrite(&p[i], 1, 1, x) == 1);
        CHECK(st == SPX_EINPUT || (st == SPX_OK && i >= length));
        unnoticed += st == SPX_OK;
        named += strcmp(why.place, "/a/b/flux") == 0;
        if (bad) {
            printf("byte %zu of %zu, %zu: %s\n", i, length, n, spx_err_text(&why));
            break;
        }
    }
    (void)fclose(x);
    CHECK(unnoticed == 0 && named > 10);
    /* both magics lost: as a file of another program */
    p[length] = 0;
    p[n - 1] = 0;
    write_file("x.h5", p, n);
    CHECK(read_all(in_dir("x.h5"), &e) == SPX_OK);
    /* the same bytes whatever has become of them */
    for (size_t cut = 1; cut <= n - length; cut += 40) {
        p[n - 1] = 0x8b;
        p[length] = 0x8b;
        write_file("x.h5", p, n - cut);
        const spx_status st = read_all(in_dir("x.h5"), &e);
        CHECK(cut == n - length ? st == SPX_OK : st == SPX_EINPUT);
        spx_err_clear(&e);
    }
    spx_free(p);
}

static spx_status read_rows(const char *name, size_t first, size_t n, float *out, spx_err *why)
{
    spx_input in;
    spx_status st = spx_input_open(&in, name, why);
    if (st == SPX_OK)
        st = spx_h5_read_rows(in.file, "/large", H5T_NATIVE_FLOAT, first, n, out, why);
    spx_input_close(&in);
    return st;
}

static spx_status read_whole(const char *name, int deferred, int as_double, spx_err *why)
{
    spx_input in;
    spx_h5_reads reads = {0};
    size_t shape[2] = {0, 0};
    void *p = NULL;
    spx_status st = spx_input_open(&in, name, why);
    if (st == SPX_OK)
        st = as_double ? spx_h5_read_f64(in.file, "/large", 2, shape, (double **)&p, why)
                       : spx_h5_defer_f32(deferred ? &reads : NULL, in.file, "/large", 2, shape, (float **)&p, why);
    if (st == SPX_OK && deferred) {
        CHECK(reads.n == 1);
        st = spx_h5_flush_reads(&reads, 2, why);
    }
    if (st == SPX_OK && !as_double)
        CHECK(memcmp(p, large, (size_t)ROWS * COLUMNS * sizeof *large) == 0);
    spx_free(p);
    spx_input_close(&in);
    return st;
}

/* Rows are verified when they are read, whether by HDF5, directly or later; others are not. */
static void flip_rows(void)
{
    size_t n, again;
    make_file("now.h5", ROWS, 0);
    make_file("later.h5", ROWS, 1);
    unsigned char *p = read_file("now.h5", &n), *q = read_file("later.h5", &again);
    CHECK(n == again && memcmp(p, q, n) == 0);
    spx_free(q);
    CHECK(read_whole(in_dir("now.h5"), 0, 0, &e) == SPX_OK && read_whole(in_dir("now.h5"), 1, 0, &e) == SPX_OK &&
          read_whole(in_dir("now.h5"), 0, 1, &e) == SPX_OK);
    size_t at = 0;
    while (at < n && memcmp(p + at, large, 4096) != 0)
        at++;
    float *row = spx_alloc((size_t)ROWS * COLUMNS, sizeof *row, &e);
    const size_t rows[] = {0, 1, 700, ROWS - 1}, per_piece = SPX_INVENTORY_PIECE / (COLUMNS * sizeof *row);
    for (size_t k = 0; k < sizeof rows / sizeof *rows; k++) {
        const size_t r = rows[k], byte = at + r * COLUMNS * sizeof *row + 17;
        p[byte] ^= 4;
        write_file("x.h5", p, n);
        p[byte] ^= 4;
        for (int how = 0; how < 4; how++) {
            spx_err why = {0};
            CHECK((how < 3 ? read_whole(in_dir("x.h5"), how == 1, how == 2, &why)
                           : read_rows(in_dir("x.h5"), r, 1, row, &why)) == SPX_EINPUT &&
                  strcmp(why.place, "/large") == 0 && strcmp(why.file, path) == 0 && strstr(why.remedy, "--no-verify"));
        }
        /* kept for a caller that goes on without */
        CHECK(spx_h5_settle(SPX_OK, &e) == SPX_EINPUT && spx_h5_settle(SPX_OK, &e) == SPX_OK);
        if (r >= per_piece)
            CHECK(read_rows(in_dir("x.h5"), 0, r - per_piece, row, &e) == SPX_OK);
        if (r + per_piece < ROWS)
            CHECK(read_rows(in_dir("x.h5"), r + per_piece, ROWS - r - per_piece, row, &e) == SPX_OK);
        CHECK(read_all(in_dir("x.h5"), &e) == SPX_OK);
        spx_inventory_use(0);
        CHECK(read_rows(in_dir("x.h5"), r, 1, row, &e) == SPX_OK && memcmp(row, large + r * COLUMNS, 16) == 0 &&
              row[4] != large[r * COLUMNS + 4]);
        spx_inventory_use(1);
    }
    spx_free(row);
    spx_free(p);
}

/* HDF5 cuts the inventory off when it changes a file: what others change on purpose is no damage. */
static void edited(void)
{
    static const double other = 7;
    for (int how = 0; how < 3; how++) {
        spx_input in;
        make_file("edited.h5", 0, 0);
        const hid_t f = H5Fopen(in_dir("edited.h5"), H5F_ACC_RDWR, H5P_DEFAULT);
        const size_t one = 1;
        if (how == 0)
            CHECK(spx_h5_set_str(f, "/a", "comment", "mine", &e) == SPX_OK);
        else if (how == 1)
            CHECK(spx_h5_write_real(f, "/mine", 8, 1, &one, &other, &e) == SPX_OK);
        else
            CHECK(spx_h5_write_rows(f, "/a/b/wavelength", H5T_NATIVE_DOUBLE, 3, 1, &other, &e) == SPX_OK);
        CHECK(H5Fclose(f) >= 0);
        CHECK(read_all(in_dir("edited.h5"), &e) == SPX_OK);
        CHECK(spx_input_open(&in, in_dir("edited.h5"), &e) == SPX_OK && in.inventory == NULL);
        spx_input_close(&in);
    }
}

/* Sends files through a pipe or a socket. */
static pid_t send_files(int fd[2], const char *const *name, int n)
{
    const pid_t child = fork();
    if (child == 0) {
        (void)close(fd[0]);
        for (int k = 0; k < n; k++) {
            size_t size;
            unsigned char *p = read_file(name[k], &size);
            for (size_t done = 0; done < size;) {
                const ssize_t got = write(fd[1], p + done, size - done);
                if (got <= 0)
                    _exit(1);
                done += (size_t)got;
            }
            spx_free(p);
        }
        _exit(bad);
    }
    (void)close(fd[1]);
    return child;
}

/* Products with and without inventory one after another: each reader takes exactly its own. */
static void through_pipe(int of_sockets, size_t limit)
{
    static const char *const name[] = {"small.h5", "edited.h5", "now.h5", "small.h5"};
    enum { N = sizeof name / sizeof *name };
    int fd[2], status = 1;
    CHECK(of_sockets ? socketpair(AF_UNIX, SOCK_STREAM, 0, fd) == 0 : pipe(fd) == 0);
    const pid_t child = send_files(fd, name, N);
    const int keep = dup(STDIN_FILENO);
    (void)dup2(fd[0], STDIN_FILENO);
    (void)close(fd[0]);
    spx_mem_limit(limit);
    for (int k = 0; k < N; k++) {
        spx_input in;
        size_t shape[2] = {0, 0};
        double *v = NULL;
        CHECK(spx_input_open(&in, "-", &e) == SPX_OK && (in.inventory != NULL) == (k != 1));
        CHECK(spx_h5_read_f64(in.file, "/a/b/flux", 1, shape, &v, &e) == SPX_OK);
        spx_free(v);
        float *row = spx_alloc(COLUMNS, sizeof *row, &e);
        if (k == 2)
            CHECK(spx_h5_read_rows(in.file, "/large", H5T_NATIVE_FLOAT, ROWS - 1, 1, row, &e) == SPX_OK &&
                  memcmp(row, large + (size_t)(ROWS - 1) * COLUMNS, COLUMNS * sizeof *row) == 0);
        spx_free(row);
        spx_input_close(&in);
    }
    spx_input in;
    CHECK(spx_input_open(&in, "-", &e) == SPX_EINPUT);
    spx_mem_limit(0);
    (void)dup2(keep, STDIN_FILENO);
    (void)close(keep);
    (void)waitpid(child, &status, 0);
    CHECK(status == 0);
}

/* A damaged image in a pipe. */
static void damaged_pipe(void)
{
    size_t n;
    unsigned char *p = read_file("small.h5", &n);
    static const char *const name[] = {"x.h5"};
    const size_t length = hdf5_bytes(p, n), place[] = {40, 100, length / 2, length - 9, length, length + 20, n - 1};
    for (size_t k = 0; k < sizeof place / sizeof *place; k++) {
        int fd[2], status = 1;
        p[place[k]] ^= 1;
        write_file("x.h5", p, n);
        p[place[k]] ^= 1;
        CHECK(pipe(fd) == 0);
        const pid_t child = send_files(fd, name, 1);
        const int keep = dup(STDIN_FILENO);
        (void)dup2(fd[0], STDIN_FILENO);
        (void)close(fd[0]);
        CHECK(read_all("-", &e) == SPX_EINPUT);
        (void)dup2(keep, STDIN_FILENO);
        (void)close(keep);
        (void)waitpid(child, &status, 0);
    }
    spx_free(p);
}

/* Columns [skip, skip+count) of each of the `lines` lines in rows m[], of type `mem`, from the array with this many
 * columns: 1 when they are right. *done: by threads. */
static int gathered(hid_t f, size_t columns, hid_t mem, size_t lines, size_t skip, size_t count, size_t n,
                    const spx_h5_move *m, int *done)
{
    const spx_h5_row row = {lines, columns / lines, skip, count};
    const size_t wide = H5Tget_size(mem);
    char *out = spx_alloc2(ROWS, lines * count, wide, &e);
    int finite = 2;
    const spx_status st = spx_h5_gather(f, columns == ODD ? "odd" : "large", mem, &row, n, m, out, done, &finite, &e);
    int same = st == SPX_OK && finite == (*done && wide == sizeof(double));
    for (size_t i = 0; i < n && *done && same; i++)
        for (size_t k = 0; k < lines * count; k++) {
            const float want = large[m[i].from * columns + k / count * row.whole + skip + k % count];
            const char *have = out + (m[i].to * lines * count + k) * wide;
            double value;
            float narrow;
            memcpy(&value, have, wide < sizeof value ? 0 : sizeof value);
            memcpy(&narrow, have, sizeof narrow);
            same &= wide == sizeof value ? value == (double)want : memcmp(&narrow, &want, sizeof want) == 0;
        }
    spx_free(out);
    return same;
}

/* An array written row by row, few by HDF5 and many by threads, in any order: it is as if written at once. */
static void rows_written(void)
{
    static const struct {
        size_t first, n;
    } part[] = {{1270, 20}, {0, 30}, {30, 1240}, {1290, 10}};
    spx_output *o = NULL;
    spx_input in;
    const size_t shape[2] = {ROWS, COLUMNS};
    size_t dims[2] = {ROWS, COLUMNS};
    float *back = NULL;
    CHECK(spx_output_open(&o, in_dir("large.h5"), 1, &e) == SPX_OK);
    const hid_t f = spx_output_file(o);
    CHECK(spx_h5_create(f, "/rows", H5T_NATIVE_FLOAT, 2, shape, &e) == SPX_OK);
    CHECK(spx_h5_create(f, "/behind", H5T_NATIVE_FLOAT, 2, shape, &e) == SPX_OK);
    for (size_t i = 0; i < sizeof part / sizeof *part; i++) {
        const float *from = large + part[i].first * COLUMNS;
        CHECK(spx_h5_write_rows(f, "/rows", H5T_NATIVE_FLOAT, part[i].first, part[i].n, from, &e) == SPX_OK);
        CHECK(spx_h5_write_rows(f, "/behind", H5T_NATIVE_FLOAT, part[i].first, part[i].n, from, &e) == SPX_OK);
    }
    CHECK(spx_h5_write_rows(f, "/rows", H5T_NATIVE_FLOAT, 1, ROWS, large, &e) == SPX_EBUG);
    CHECK(spx_output_commit(o, &e) == SPX_OK);
    CHECK(spx_input_open(&in, in_dir("large.h5"), &e) == SPX_OK);
    for (int k = 0; k < 2; k++) {
        CHECK(spx_h5_read_f32(in.file, k == 0 ? "/rows" : "/behind", 2, dims, &back, &e) == SPX_OK &&
              memcmp(back, large, sizeof *large * ROWS * COLUMNS) == 0);
        spx_free(back);
        back = NULL;
    }
    spx_input_close(&in);
}

/* Rows read by threads: any of them, parts of rows, in another order, twice, across pieces; a bit that has flipped is
 * found in those that are read, and only there. */
static void gather(void)
{
    static spx_h5_move all[ROWS], some[ROWS];
    size_t n, nsome = 0;
    int done;
    spx_input in;
    for (size_t k = 0; k < ROWS; k++)
        all[k] = (spx_h5_move){k, (k + 7) % ROWS};
    for (size_t k = 3; k < ROWS; k++)
        if (k % 5 != 0)
            some[nsome++] = (spx_h5_move){k - k % 3 / 2, 0}; /* some twice */
    for (size_t k = 0; k < nsome; k++)
        some[k].to = nsome - 1 - k;
    spx_output *o = NULL;
    CHECK(spx_output_open(&o, in_dir("large.h5"), 1, &e) == SPX_OK);
    make(o, ROWS, 1);
    CHECK(spx_h5_defer_write(NULL, spx_output_file(o), "/odd", H5T_NATIVE_FLOAT, 2, (size_t[]){ROWS, ODD}, large, &e) ==
          SPX_OK);
    CHECK(spx_output_commit(o, &e) == SPX_OK);
    CHECK(spx_input_open(&in, in_dir("large.h5"), &e) == SPX_OK);
    CHECK(gathered(in.file, COLUMNS, H5T_NATIVE_DOUBLE, 1, 0, COLUMNS, ROWS, all, &done) && done);
    CHECK(gathered(in.file, COLUMNS, H5T_NATIVE_FLOAT, 1, 0, COLUMNS, nsome, some, &done) && done);
    CHECK(gathered(in.file, COLUMNS, H5T_NATIVE_DOUBLE, 8, 5, 100, nsome, some, &done) && done);
    CHECK(gathered(in.file, COLUMNS, H5T_NATIVE_DOUBLE, 8, COLUMNS / 8 - 1, 1, ROWS, all, &done) && done);
    CHECK(gathered(in.file, ODD, H5T_NATIVE_DOUBLE, 1, 0, ODD, nsome, some, &done) && done);
    CHECK(gathered(in.file, ODD, H5T_NATIVE_FLOAT, 3, 7, 300, nsome, some, &done) && done);
    CHECK(gathered(in.file, COLUMNS, H5T_NATIVE_INT32, 1, 0, COLUMNS, ROWS, all, &done) && !done);
    CHECK(gathered(in.file, COLUMNS, H5T_NATIVE_DOUBLE, 1, 0, COLUMNS, 3, all, &done) && !done);
    all[ROWS - 1].from = ROWS; /* HDF5 says that there is no such row */
    CHECK(gathered(in.file, COLUMNS, H5T_NATIVE_DOUBLE, 1, 0, COLUMNS, ROWS, all, &done) && !done);
    all[ROWS - 1].from = ROWS - 1;
    spx_input_close(&in);

    unsigned char *p = read_file("large.h5", &n);
    const float *at = NULL; /* the large array in the file: its values are all different */
    for (size_t k = 0; k + sizeof *large * COLUMNS <= n && at == NULL; k += 8)
        at = memcmp(p + k, large, sizeof *large * COLUMNS) == 0 ? (const float *)(const void *)(p + k) : NULL;
    CHECK(at != NULL);
    ((unsigned char *)p)[(const unsigned char *)(at + 1000 * COLUMNS) - p] ^= 1;
    write_file("x.h5", p, n);
    spx_free(p);
    CHECK(spx_input_open(&in, in_dir("x.h5"), &e) == SPX_OK);
    CHECK(gathered(in.file, COLUMNS, H5T_NATIVE_DOUBLE, 1, 0, COLUMNS, 900, all, &done) && done);
    spx_err why = {0};
    double *out = spx_alloc2(ROWS, COLUMNS, sizeof *out, &e);
    CHECK(spx_h5_gather(in.file, "large", H5T_NATIVE_DOUBLE, &(spx_h5_row){1, COLUMNS, 0, COLUMNS}, ROWS, all, out,
                        &done, NULL, &why) == SPX_EINPUT &&
          strcmp(why.place, "/large") == 0);
    spx_free(out);
    spx_input_close(&in);
}

static size_t ndamaged;
/* What reading says of values that are not finite: the first, the last, one between, none. */
static void finite_values(void)
{
    static const float wrong[] = {NAN, INFINITY, -INFINITY, 1};
    const size_t shape[2] = {ROWS, COLUMNS}, all = (size_t)ROWS * COLUMNS, place[] = {0, all - 1, all / 3, 5};
    for (size_t k = 0; k < sizeof place / sizeof *place; k++) {
        const float right = large[place[k]];
        double *back = NULL;
        size_t dims[2] = {0, 0};
        spx_output *o = NULL;
        spx_input in;
        int finite = 2;
        large[place[k]] = wrong[k];
        CHECK(spx_output_open(&o, in_dir("x.h5"), 1, &e) == SPX_OK);
        CHECK(spx_h5_write(spx_output_file(o), "/v", H5T_NATIVE_FLOAT, 2, shape, large, &e) == SPX_OK);
        CHECK(spx_output_commit(o, &e) == SPX_OK);
        large[place[k]] = right;
        CHECK(spx_input_open(&in, in_dir("x.h5"), &e) == SPX_OK);
        CHECK(spx_h5_read_checked(in.file, "/v", 2, dims, &back, &finite, &e) == SPX_OK);
        CHECK(finite == (k == 3) && dims[0] == ROWS && isfinite(back[place[k]]) == (k == 3));
        spx_free(back);
        spx_input_close(&in);
    }
}

static void count_damaged(void *ctx, const char *name)
{
    ndamaged += strcmp(name, ctx) == 0;
}

/* Damaged datasets of a file, all called `name`. */
static size_t damaged_in(const char *file, const char *name)
{
    spx_input in;
    int has = 0;
    char dataset[16];
    (void)snprintf(dataset, sizeof dataset, "%s", name);
    ndamaged = 0;
    CHECK(spx_input_open(&in, in_dir(file), &e) == SPX_OK);
    CHECK(spx_inventory_verify_all(in.file, count_damaged, dataset, &has, &e) == SPX_OK && has);
    spx_input_close(&in);
    return ndamaged;
}

/* Sums that are taken while rows are written: in any order, some again, with other values, and some as doubles, which
 * HDF5 converts. */
static void sums_of_rows(unsigned seed)
{
    spx_output *o = NULL;
    spx_input in;
    const size_t shape[2] = {ROWS, ODD};
    size_t dims[2] = {ROWS, ODD}, left = ROWS, next = 0;
    float *value = spx_alloc2(ROWS, ODD, sizeof *value, &e), *back = NULL;
    double *wide = spx_alloc2(ROWS, ODD, sizeof *wide, &e);
    char *written = spx_alloc(ROWS, 1, &e);
    CHECK(value != NULL && wide != NULL && written != NULL);
    CHECK(spx_output_open(&o, in_dir("large.h5"), 1, &e) == SPX_OK);
    const hid_t f = spx_output_file(o);
    CHECK(spx_h5_create(f, "/rows", H5T_NATIVE_FLOAT, 2, shape, &e) == SPX_OK);
    for (unsigned k = seed; left > 0; k++) {
        const unsigned r = k * 2654435761u >> 8;
        const size_t first = r % 3 != 0 && next < ROWS ? next : r / 3 % ROWS;
        const size_t most = r % 5 == 0 ? 200 : 40, n = 1 + r / 15 % (ROWS - first < most ? ROWS - first : most);
        float *from = value + first * ODD;
        for (size_t i = 0; i < n * ODD; i++) {
            from[i] = (float)((i + k) * 2654435761u % 1000003) * 0.25f;
            wide[i] = from[i];
        }
        for (size_t i = first; i < first + n; i++) {
            left -= !written[i];
            written[i] = 1;
        }
        if (r % 11 == 0)
            CHECK(spx_h5_write_rows(f, "/rows", H5T_NATIVE_DOUBLE, first, n, wide, &e) == SPX_OK);
        else
            CHECK(spx_h5_write_rows(f, "/rows", H5T_NATIVE_FLOAT, first, n, from, &e) == SPX_OK);
        next = first + n;
    }
    CHECK(spx_output_commit(o, &e) == SPX_OK);
    if (damaged_in("large.h5", "/rows") != 0) {
        printf("seed %u: sums of rows differ\n", seed);
        bad = 1;
    }
    CHECK(spx_input_open(&in, in_dir("large.h5"), &e) == SPX_OK);
    CHECK(spx_h5_read_f32(in.file, "/rows", 2, dims, &back, &e) == SPX_OK &&
          memcmp(back, value, sizeof *value * ROWS * ODD) == 0);
    spx_input_close(&in);
    spx_free(back);
    spx_free(value);
    spx_free(wide);
    spx_free(written);
}

/* Sums are those of the values in memory: what a disk makes of them before the file is complete shows. */
static void sums_of_memory(void)
{
    static const char *const name[] = {"/rows", "/whole", "/real"};
    const size_t shape[2] = {ROWS, COLUMNS};
    double *real = spx_alloc2(ROWS, COLUMNS, sizeof *real, &e);
    CHECK(real != NULL);
    for (size_t i = 0; i < (size_t)ROWS * COLUMNS; i++)
        real[i] = large[i];
    for (size_t k = 0; k < sizeof name / sizeof *name; k++) {
        spx_output *o = NULL;
        char temporary[200];
        unsigned char byte = 0;
        CHECK(spx_output_open(&o, in_dir("large.h5"), 1, &e) == SPX_OK);
        const hid_t f = spx_output_file(o);
        if (k == 0) {
            CHECK(spx_h5_create(f, name[k], H5T_NATIVE_FLOAT, 2, shape, &e) == SPX_OK);
            CHECK(spx_h5_write_rows(f, name[k], H5T_NATIVE_FLOAT, 0, ROWS, large, &e) == SPX_OK);
        } else if (k == 1) {
            CHECK(spx_h5_write(f, name[k], H5T_NATIVE_FLOAT, 2, shape, large, &e) == SPX_OK);
        } else {
            CHECK(spx_h5_write_real(f, name[k], 4, 2, shape, real, &e) == SPX_OK);
        }
        const hid_t d = spx_h5_open(f, name[k], &e);
        const off_t at = (off_t)H5Dget_offset(d) + 1234567;
        CHECK(d >= 0 && H5Dclose(d) >= 0 && H5Fget_name(f, temporary, sizeof temporary) > 0);
        const int fd = open(temporary, O_RDWR);
        CHECK(fd >= 0 && pread(fd, &byte, 1, at) == 1);
        byte ^= 4;
        CHECK(pwrite(fd, &byte, 1, at) == 1 && close(fd) == 0);
        CHECK(spx_output_commit(o, &e) == SPX_OK);
        CHECK(damaged_in("large.h5", name[k]) == 1);
    }
    spx_free(real);
}

int main(void)
{
    if (mkdtemp(dir) == NULL)
        return 1;
    (void)H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
    large = spx_alloc((size_t)ROWS * COLUMNS, sizeof *large, &e);
    CHECK(large != NULL);
    for (size_t i = 0; i < (size_t)ROWS * COLUMNS; i++)
        large[i] = (float)(i * 2654435761u % 1000003) * 0.25f;
    flip_all();
    flip_rows();
    edited();
    for (int of_sockets = 0; of_sockets < 2; of_sockets++) {
        through_pipe(of_sockets, 0);
        through_pipe(of_sockets, 10 << 20); /* the large one is spilled */
    }
    damaged_pipe();
    rows_written();
    for (unsigned seed = 1; seed <= 12; seed++)
        sums_of_rows(seed * 1000);
    sums_of_memory();
    gather();
    finite_values();
    spx_free(large);
    static const char *const left[] = {"small.h5", "x.h5", "now.h5", "later.h5", "edited.h5", "large.h5"};
    for (size_t i = 0; i < sizeof left / sizeof *left; i++)
        (void)unlink(in_dir(left[i]));
    (void)rmdir(dir);
    return bad;
}
