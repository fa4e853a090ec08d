/* Checks the driver of files without an inventory: whatever bit is flipped of the heads of a heap of texts or of what
 * refers to them, and whatever sizes they claim, each text is as it was or refused, from a file and from a pipe; no
 * read goes on without end or leaves the heap. */
#include "h5/heaps.h"

#include <hdf5.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/mem.h"
#include "h5/attr.h"
#include "h5/failure.h"
#include "h5/file.h"
#include "h5/internal.h"
#include "h5/read.h"

#include "check.h"

enum { TEXTS = 5, SMALLEST = 4096 };

static char dir[] = "/tmp/spx-heaps-XXXXXX";
static char path[64], damaged[64];

static int large; /* 1: a heap that HDF5 reads in two steps */

/* Text k of the file. */
static const char *text(int k)
{
    static char s[TEXTS][2 * SMALLEST];
    const int n = k > 0 || !large ? 5 + 9 * k : 2 * SMALLEST - 1;
    memset(s[k], 'a' + k, (size_t)n);
    s[k][n] = '\0';
    return s[k];
}

static void make(void)
{
    char name[] = "text0";
    const size_t n = 3;
    const double numbers[3] = {1, 2, 3};
    hid_t f = H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT),
          space = H5Screate_simple(1, &(hsize_t){n}, NULL);
    hid_t d = H5Dcreate2(f, "numbers", H5T_IEEE_F64LE, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    CHECK(H5Dwrite(d, H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT, numbers) >= 0);
    for (int k = 0; k < TEXTS; k++) {
        name[4] = (char)('0' + k);
        CHECK(spx_h5_set_str(f, "/", name, text(k), &e) == SPX_OK);
    }
    CHECK(H5Dclose(d) >= 0 && H5Sclose(space) >= 0 && H5Fclose(f) >= 0);
}

static unsigned char *read_file(size_t *n)
{
    FILE *f = fopen(path, "rb");
    CHECK(f != NULL && fseek(f, 0, SEEK_END) == 0);
    *n = (size_t)ftell(f);
    unsigned char *p = malloc(*n);
    rewind(f);
    CHECK(p != NULL && fread(p, 1, *n, f) == *n && fclose(f) == 0);
    return p;
}

/* Reads all texts of an open input: how many are as they were; *refused counts those that are not to be had. */
static int read_texts(spx_input *in, int *refused)
{
    int same = 0;
    static char got[3 * SMALLEST];
    char name[] = "text0";
    *refused = 0;
    for (int k = 0; k < TEXTS; k++) {
        name[4] = (char)('0' + k);
        spx_err why = {0};
        const spx_status st = spx_h5_attr_str(in->file, "/", name, got, sizeof got, &why);
        same += st == SPX_OK && strcmp(got, text(k)) == 0;
        *refused += st != SPX_OK;
    }
    return same;
}

/* Texts of the n bytes as a file, or through a pipe; -1: it cannot be opened. */
static int texts_of(const unsigned char *p, size_t n, int piped, int *refused)
{
    spx_input in;
    int same = -1;
    FILE *f = fopen(damaged, "wb");
    CHECK(f != NULL && fwrite(p, 1, n, f) == n && fclose(f) == 0);
    const int keep = dup(STDIN_FILENO);
    if (piped) {
        int fd[2];
        CHECK(pipe(fd) == 0);
        if (fork() == 0) {
            (void)close(fd[0]);
            _exit(write(fd[1], p, n) != (ssize_t)n);
        }
        (void)close(fd[1]);
        (void)dup2(fd[0], STDIN_FILENO);
        (void)close(fd[0]);
    }
    *refused = 0;
    if (spx_input_open(&in, piped ? "-" : damaged, &e) == SPX_OK) {
        same = read_texts(&in, refused);
        spx_input_close(&in);
    }
    e = (spx_err){0};
    if (piped)
        (void)wait(NULL);
    (void)dup2(keep, STDIN_FILENO);
    (void)close(keep);
    return same;
}

/* Next heap at or behind `at`; n: none. */
static size_t heap_at(const unsigned char *p, size_t n, size_t at)
{
    while (at + 4 <= n && memcmp(p + at, "GCOL", 4) != 0)
        at++;
    return at + 4 <= n ? at : n;
}

static size_t little(const unsigned char *p)
{
    size_t v = 0;
    for (int k = 7; k >= 0; k--)
        v = v << 8 | p[k];
    return v;
}

/* Every bit of the heads of heaps and of their objects, and sizes that no bit of the right one makes. */
static void every_head(unsigned char *p, size_t n)
{
    int heaps = 0, tries = 0, found = 0, refused;
    for (size_t heap = heap_at(p, n, 0); heap < n; heap = heap_at(p, n, heap + 16)) {
        const size_t end = heap + little(p + heap + 8);
        heaps++;
        for (size_t at = heap; at + 16 <= end;) {
            const size_t bytes = little(p + at + 8), index = p[at] + 256u * p[at + 1];
            for (int bit = 0; bit < 128 + 4; bit++) {
                static const size_t sizes[] = {0, 8, SIZE_MAX - 15, (size_t)1 << 63};
                unsigned char keep[16];
                memcpy(keep, p + at, sizeof keep);
                if (bit < 128)
                    p[at + (size_t)bit / 8] ^= (unsigned char)(1 << bit % 8);
                else
                    memcpy(p + at + 8, &sizes[bit - 128], 8);
                for (int piped = 0; piped < 2; piped++, tries++) {
                    const int same = texts_of(p, n, piped, &refused);
                    found += refused > 0;
                    if (refused >
                        0) /* of a heap that is not whole the reason is kept, of an object that is absent not */
                        (void)spx_h5_pending(&e);
                    CHECK(same + refused == TEXTS);
                }
                memcpy(p + at, keep, sizeof keep);
            }
            at += at == heap ? 16 : index == 0 ? bytes : 16 + (bytes + 7) / 8 * 8;
            if (at > heap + 16 && index == 0)
                break;
        }
    }
    printf("%d heaps, %d tries, %d refused\n", heaps, tries, found);
    CHECK(heaps == 1 && found > tries / 4);
}

/* Every bit of the length, address and number by which attributes refer to texts. */
static void every_reference(unsigned char *p, size_t n)
{
    int references = 0, refused, found = 0;
    const size_t heap = heap_at(p, n, 0);
    for (size_t at = 4; at + 12 <= n; at++) {
        if (little(p + at) != heap || little(p + at + 8) % ((size_t)1 << 32) - 1 >= TEXTS)
            continue;
        references++;
        for (int bit = 0; bit < 128; bit++) {
            p[at - 4 + (size_t)bit / 8] ^= (unsigned char)(1 << bit % 8);
            for (int piped = 0; piped < 2; piped++) {
                CHECK(texts_of(p, n, piped, &refused) + refused == TEXTS);
                CHECK(refused == 0 || spx_h5_pending(&e) == SPX_EINPUT);
                e = (spx_err){0};
                found += refused > 0;
            }
            p[at - 4 + (size_t)bit / 8] ^= (unsigned char)(1 << bit % 8);
        }
    }
    printf("%d references, %d refused\n", references, found);
    CHECK(references == TEXTS && found >= TEXTS * 250);
}

/* A free object of no size, which libhdf5 1.10 passes without end: the file's fault, by name. */
static void no_end(unsigned char *p, size_t n)
{
    int refused;
    const size_t heap = heap_at(p, n, 0);
    CHECK(heap < n);
    size_t at = heap + 16;
    while (p[at] != 0)
        at += 16 + (little(p + at + 8) + 7) / 8 * 8;
    CHECK(at < n);
    const size_t keep = little(p + at + 8);
    memset(p + at + 8, 0, 8);
    for (int piped = 0; piped < 2; piped++) {
        CHECK(texts_of(p, n, piped, &refused) < TEXTS && refused > 0);
        CHECK(spx_h5_pending(&e) == SPX_EINPUT && strcmp(e.file, piped ? "standard input" : damaged) == 0);
    }
    memcpy(p + at + 8, &keep, 8);
}

/* Numbers of a file without an inventory are read in the ways of any other, and a file is one however often it is open.
 */
static void as_before(const unsigned char *p, size_t n)
{
    int refused;
    for (int piped = 0; piped < 2; piped++)
        CHECK(texts_of(p, n, piped, &refused) == TEXTS && refused == 0);
    spx_input a, b;
    double v[3] = {0};
    CHECK(spx_input_open(&a, path, &e) == SPX_OK && spx_input_open(&b, path, &e) == SPX_OK);
    CHECK(spx_h5_read_rows(a.file, "/numbers", H5T_NATIVE_DOUBLE, 0, 3, v, &e) == SPX_OK && v[2] == 3);
    spx_input_close(&a);
    CHECK(spx_h5_read_rows(b.file, "/numbers", H5T_NATIVE_DOUBLE, 1, 1, v, &e) == SPX_OK && v[0] == 2);
    spx_input_close(&b);
    CHECK(spx_h5_pending(&e) == SPX_OK);
}

int main(void)
{
    CHECK(mkdtemp(dir) != NULL);
    (void)snprintf(path, sizeof path, "%s/right.h5", dir);
    (void)snprintf(damaged, sizeof damaged, "%s/damaged.h5", dir);
    spx_h5_watch();
    for (large = 0; large < 2; large++) {
        size_t n;
        make();
        unsigned char *p = read_file(&n);
        as_before(p, n);
        no_end(p, n);
        every_head(p, n);
        if (!large)
            every_reference(p, n);
        free(p);
    }
    CHECK(unlink(path) == 0 && unlink(damaged) == 0 && rmdir(dir) == 0);
    return 0;
}
