/* Checks HDF5 input and output: round trips, shapes, classes, hostile content, pipes, atomic output. */
#include "h5/attr.h"
#include "h5/deferred.h"
#include "h5/file.h"
#include "h5/object.h"
#include "h5/read.h"
#include "h5/write.h"

#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/tmpfile.h"

static int bad;
#define CHECK(x)                                                                                                       \
    do {                                                                                                               \
        if (!(x)) {                                                                                                    \
            printf("%s:%d: %s (%s)\n", __FILE__, __LINE__, #x, spx_err_text(&e));                                      \
            bad = 1;                                                                                                   \
        }                                                                                                              \
        memset(&e, 0, sizeof e);                                                                                       \
    } while (0)

static char dir[] = "/tmp/spx-h5io-XXXXXX";
static char path[64];
static spx_err e;

static void in_dir(const char *name)
{
    (void)snprintf(path, sizeof path, "%s/%s", dir, name);
}

static void fill(hid_t f)
{
    double v[6] = {1, 2, 3, 1e300, -1e300, 1e-300};
    int32_t mask[6] = {0, -1, 2, 3, 4, 5};
    size_t d2[2] = {2, 3}, n = 2;
    CHECK(spx_h5_write_real(f, "/a/b/double", 8, 2, d2, v, &e) == SPX_OK);
    CHECK(spx_h5_write_real(f, "/a/b/float", 4, 2, d2, v, &e) == SPX_OK);
    CHECK(spx_h5_write(f, "/a/mask", H5T_NATIVE_INT32, 2, d2, mask, &e) == SPX_OK);
    CHECK(spx_h5_write_strings(f, "/a/cards", 4, n, "abcdef  ", &e) == SPX_OK);
    CHECK(spx_h5_set_f64(f, "/a", "x", 0.5, &e) == SPX_OK && spx_h5_set_str(f, "/a", "s", "text", &e) == SPX_OK);
    CHECK(spx_h5_set_i64(f, "/a", "i", -7, &e) == SPX_OK && spx_h5_set_i64(f, "/a", "i", 7, &e) == SPX_OK);
    CHECK(spx_h5_write_real(f, "/a/w", 8, 1, &d2[1], v, &e) == SPX_OK);
    CHECK(spx_h5_attach_scale(f, "/a/b/double", 1, "/a/w", "wavelength", &e) == SPX_OK);
    v[2] = NAN;
    CHECK(spx_h5_write_real(f, "/a/nan", 8, 2, d2, v, &e) == SPX_EBUG);
}

static void verify(hid_t f)
{
    double *v = NULL;
    uint32_t *m = NULL;
    int32_t *i = NULL;
    char *s = NULL;
    size_t d[2] = {0, 3}, n = 0;
    CHECK(spx_h5_read_f64(f, "/a/b/double", 2, d, &v, &e) == SPX_OK && d[0] == 2 && v[3] == 1e300);
    spx_free(v);
    CHECK(spx_h5_read_f64(f, "/a/b/float", 2, d, &v, &e) == SPX_OK && isfinite(v[3]) && v[4] < -1e38);
    spx_free(v);
    CHECK(spx_h5_read_u32(f, "/a/mask", 2, d, &m, &e) == SPX_OK && m[1] == 0xffffffffu);
    spx_free(m);
    CHECK(spx_h5_read_i32(f, "/a/b/double", 2, d, &i, &e) == SPX_EINPUT && i == NULL);
    CHECK(spx_h5_read_strings(f, "/a/cards", 5, &n, &s, &e) == SPX_OK && n == 2 && memcmp(s, "abcd\0ef", 7) == 0);
    spx_free(s);
    n = 0;
    CHECK(spx_h5_read_strings(f, "/a/cards", 3, &n, &s, &e) == SPX_EINPUT);
    d[1] = 4;
    CHECK(spx_h5_read_f64(f, "/a/b/double", 2, d, &v, &e) == SPX_EINPUT);
    d[1] = 0;
    CHECK(spx_h5_read_f64(f, "/a/b/double", 1, d, &v, &e) == SPX_EINPUT);
    CHECK(spx_h5_read_f64(f, "/a/none", 2, d, &v, &e) == SPX_EINPUT);
    CHECK(spx_h5_read_f64(f, "/a/b", 2, d, &v, &e) == SPX_EINPUT);
    double row[3], x = 0;
    CHECK(spx_h5_read_rows(f, "/a/b/double", H5T_NATIVE_DOUBLE, 1, 1, row, &e) == SPX_OK && row[1] == -1e300);
    CHECK(spx_h5_read_rows(f, "/a/b/double", H5T_NATIVE_DOUBLE, 1, 2, row, &e) == SPX_EINPUT);
    int64_t k = 0;
    char text[8];
    CHECK(spx_h5_attr_f64(f, "/a", "x", &x, &e) == SPX_OK && x == 0.5);
    CHECK(spx_h5_attr_i64(f, "/a", "i", &k, &e) == SPX_OK && k == 7);
    CHECK(spx_h5_attr_str(f, "/a", "s", text, sizeof text, &e) == SPX_OK && strcmp(text, "text") == 0);
    CHECK(spx_h5_attr_str(f, "/a", "i", text, sizeof text, &e) == SPX_EINPUT);
    CHECK(spx_h5_attr_f64(f, "/a", "none", &x, &e) == SPX_EINPUT);
    CHECK(!spx_h5_exists(f, "/a/b/c") && !spx_h5_exists(f, "/x/y") && spx_h5_exists(f, "/a/b"));
}

static void hostile(void)
{
    size_t d[1] = {0};
    double *v = NULL;
    in_dir("hostile.h5");
    hid_t f = H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
    hsize_t huge = (hsize_t)1 << 40, chunk = 1024, three = 3;
    hid_t s = H5Screate_simple(1, &huge, NULL), p = H5Pcreate(H5P_DATASET_CREATE);
    (void)H5Pset_chunk(p, 1, &chunk);
    (void)H5Dclose(H5Dcreate2(f, "/huge", H5T_IEEE_F64LE, s, H5P_DEFAULT, p, H5P_DEFAULT));
    (void)H5Pclose(p);
    (void)H5Sclose(s);
    s = H5Screate_simple(1, &three, NULL);
    p = H5Pcreate(H5P_DATASET_CREATE);
    (void)H5Pset_external(p, "/etc/passwd", 0, 24);
    (void)H5Dclose(H5Dcreate2(f, "/external", H5T_IEEE_F64LE, s, H5P_DEFAULT, p, H5P_DEFAULT));
    (void)H5Pclose(p);
    (void)H5Sclose(s);
    (void)H5Lcreate_external("other.h5", "/a/w", f, "/link", H5P_DEFAULT, H5P_DEFAULT);
    (void)H5Lcreate_soft("/nowhere", f, "/soft", H5P_DEFAULT, H5P_DEFAULT);
    CHECK(spx_h5_read_f64(f, "/huge", 1, d, &v, &e) == SPX_EINPUT);
    d[0] = 0;
    CHECK(spx_h5_read_f64(f, "/external", 1, d, &v, &e) == SPX_EINPUT);
    CHECK(spx_h5_read_f64(f, "/link", 1, d, &v, &e) == SPX_EINPUT);
    CHECK(spx_h5_read_f64(f, "/soft", 1, d, &v, &e) == SPX_EINPUT);
    (void)H5Fclose(f);
    (void)unlink(path);
}

/* Arrays large enough to be read by several threads: in one piece as they are wanted, after a user block, of the other
 * byte order, in chunks, wanted as another type, and in a file that was cut short after it was opened. */
static void large(void)
{
    enum { N = 3 << 20, BLOCK = 2048 };
    float *v = spx_alloc(N, sizeof *v, &e), *back = NULL;
    double *wide = NULL;
    const char *const name[] = {"/plain", "/other", "/chunks"};
    size_t d[1] = {0};
    spx_input in;
    CHECK(v != NULL);
    for (size_t i = 0; i < N; i++)
        v[i] = (float)(i % 1000003) - 7.5f;
    in_dir("large.h5");
    for (int userblock = 0; userblock < 2; userblock++) {
        hsize_t n = N, chunk = 10007;
        hid_t fcpl = H5Pcreate(H5P_FILE_CREATE), dcpl = H5Pcreate(H5P_DATASET_CREATE),
              s = H5Screate_simple(1, &n, NULL);
        (void)H5Pset_userblock(fcpl, userblock ? BLOCK : 0);
        (void)H5Pset_chunk(dcpl, 1, &chunk);
        hid_t f = H5Fcreate(path, H5F_ACC_TRUNC, fcpl, H5P_DEFAULT);
        for (int k = 0; k < 3; k++) {
            hid_t set = H5Dcreate2(f, name[k], k == 1 ? H5T_IEEE_F32BE : H5T_IEEE_F32LE, s, H5P_DEFAULT,
                                   k == 2 ? dcpl : H5P_DEFAULT, H5P_DEFAULT);
            CHECK(H5Dwrite(set, H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, v) >= 0);
            (void)H5Dclose(set);
        }
        /* not yet on the disk */
        CHECK(spx_h5_read_f32(f, name[0], 1, d, &back, &e) == SPX_OK && memcmp(back, v, N * sizeof *v) == 0);
        spx_free(back);
        (void)H5Pclose(fcpl);
        (void)H5Pclose(dcpl);
        (void)H5Sclose(s);
        (void)H5Fclose(f);
        CHECK(spx_input_open(&in, path, &e) == SPX_OK);
        for (int k = 0; k < 3; k++) {
            CHECK(spx_h5_read_f32(in.file, name[k], 1, d, &back, &e) == SPX_OK && memcmp(back, v, N * sizeof *v) == 0);
            spx_free(back);
        }
        CHECK(spx_h5_read_f64(in.file, name[0], 1, d, &wide, &e) == SPX_OK && wide[N - 1] == (double)v[N - 1]);
        spx_free(wide);
        /* left for later: only what lies in the file as it is wanted */
        spx_h5_reads later = {0};
        for (int k = 0; k < 3; k++) {
            CHECK(spx_h5_defer_f32(&later, in.file, name[k], 1, d, &back, &e) == SPX_OK && later.n == 1);
            CHECK(k == 0 || memcmp(back, v, N * sizeof *v) == 0);
            if (k > 0) {
                spx_free(back);
                continue;
            }
            memset(back, 0, N * sizeof *v);
            CHECK(spx_h5_flush_reads(&later, 2, &e) == SPX_OK && memcmp(back, v, N * sizeof *v) == 0);
            spx_free(back);
        }
        CHECK(truncate(path, N) == 0);
        CHECK(spx_h5_read_f32(in.file, name[0], 1, d, &back, &e) == SPX_EINPUT);
        spx_input_close(&in);
        (void)unlink(path);
    }
    spx_free(v);
}

/* A mask that is put off takes the weights of its pixels, but not what is no weight, and is no array itself. In chunks
 * it cannot be. */
static void masks(void)
{
    enum { N = 1500003 };
    float *weight = spx_alloc(N, sizeof *weight, &e);
    uint32_t *mask = spx_alloc(N, sizeof *mask, &e);
    size_t d[1] = {N};
    const hsize_t n = N, chunk = 10007;
    spx_input in;
    int done = 0, same = 1;
    CHECK(weight != NULL && mask != NULL);
    for (size_t i = 0; i < N; i++) {
        weight[i] = (float)(i % 7);
        mask[i] = i % 1001 == 5 ? 1u << i % 32 : 0;
    }
    weight[5] = NAN;
    weight[1006] = -1;
    in_dir("masks.h5");
    const hid_t dcpl = H5Pcreate(H5P_DATASET_CREATE), s = H5Screate_simple(1, &n, NULL);
    const hid_t f = H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
    (void)H5Pset_chunk(dcpl, 1, &chunk);
    for (int k = 0; k < 2; k++) {
        const hid_t set = H5Dcreate2(f, k == 0 ? "mask" : "chunks", H5T_STD_U32LE, s, H5P_DEFAULT,
                                     k == 0 ? H5P_DEFAULT : dcpl, H5P_DEFAULT);
        CHECK(H5Dwrite(set, H5T_NATIVE_UINT32, H5S_ALL, H5S_ALL, H5P_DEFAULT, mask) >= 0);
        (void)H5Dclose(set);
    }
    (void)H5Pclose(dcpl);
    (void)H5Sclose(s);
    (void)H5Fclose(f);
    CHECK(spx_input_open(&in, path, &e) == SPX_OK);
    spx_h5_reads later = {0};
    CHECK(spx_h5_defer_mask(&later, in.file, "chunks", 1, d, weight, &done, &e) == SPX_OK && !done && later.n == 0);
    CHECK(spx_h5_defer_mask(&later, in.file, "mask", 1, d, weight, &done, &e) == SPX_OK && done && later.n == 1);
    CHECK(spx_h5_flush_reads(&later, 2, &e) == SPX_OK);
    for (size_t i = 1007; i < N; i++)
        same &= weight[i] == (mask[i] != 0 ? 0 : (float)(i % 7));
    CHECK(same && isnan(weight[5]) && weight[1006] < 0);
    d[0] = N - 1;
    CHECK(spx_h5_defer_mask(&later, in.file, "mask", 1, d, weight, &done, &e) == SPX_EINPUT);
    CHECK(truncate(path, N) == 0 && spx_h5_flush_reads(&later, 2, &e) == SPX_EINPUT);
    spx_input_close(&in);
    (void)unlink(path);
    spx_free(weight);
    spx_free(mask);
}

/* Values that are put off: nothing of them is in the file when it is sealed, all is when it is stored; the same bytes
 * as those of a file whose values are not. */
static void defer(void)
{
    enum { N = 700001 };
    double *v = spx_alloc(N, sizeof *v, &e), *back = NULL;
    uint32_t *m = spx_alloc(N, sizeof *m, &e);
    const size_t d[1] = {N};
    char *bytes[2] = {NULL, NULL};
    size_t size[2] = {0, 1};
    CHECK(v != NULL && m != NULL);
    for (size_t i = 0; i < N; i++) {
        v[i] = (double)i * 1.1 - 5e4;
        m[i] = (uint32_t)(i * 2654435761u);
    }
    v[7] = 1e300;
    for (int later = 0; later < 2; later++) {
        spx_output *o = NULL;
        spx_input in;
        size_t any[1] = {0};
        in_dir("later.h5");
        CHECK(spx_output_open(&o, path, 1, &e) == SPX_OK);
        const hid_t f = spx_output_file(o);
        spx_h5_writes *w = later ? spx_output_writes(o) : NULL;
        CHECK(spx_h5_defer_write_real(w, f, "/narrow", 4, 1, d, v, &e) == SPX_OK);
        CHECK(spx_h5_defer_write_real(w, f, "/double", 8, 1, d, v, &e) == SPX_OK);
        CHECK(spx_h5_defer_write(w, f, "/mask", H5T_NATIVE_UINT32, 1, d, m, &e) == SPX_OK);
        const size_t few[1] = {5};
        double small[5] = {1, 2, 3, 4, 5};
        CHECK(spx_h5_defer_write_real(w, f, "/small", 4, 1, few, small, &e) == SPX_OK);
        CHECK(spx_h5_set_str(f, "/narrow", "units", "1", &e) == SPX_OK);
        CHECK(spx_output_close(o, &e) == SPX_OK);
        small[0] = 100; /* small ones do not have to last */
        m[3] ^= 1;
        CHECK(spx_output_flush(o, 3, &e) == SPX_OK && spx_output_publish(o, &e) == SPX_OK);
        m[3] ^= 1;
        CHECK(spx_input_open(&in, path, &e) == SPX_OK);
        CHECK(spx_h5_read_f64(in.file, "/double", 1, any, &back, &e) == SPX_OK && memcmp(back, v, N * sizeof *v) == 0);
        spx_free(back);
        CHECK(spx_h5_read_f64(in.file, "/narrow", 1, any, &back, &e) == SPX_OK);
        size_t same = 0;
        for (size_t i = 0; i < N; i++)
            same += back[i] == (i == 7 ? (double)3.40282347e38f : (double)(float)v[i]);
        CHECK(same == N);
        spx_free(back);
        spx_input_close(&in);
        FILE *file = fopen(path, "rb");
        CHECK(file != NULL && fseek(file, 0, SEEK_END) == 0);
        size[later] = (size_t)ftell(file);
        rewind(file);
        bytes[later] = spx_alloc(size[later], 1, &e);
        CHECK(bytes[later] != NULL && fread(bytes[later], 1, size[later], file) == size[later]);
        (void)fclose(file);
    }
    /* what was changed before it was stored is the only difference, with two checksums of the inventory */
    size_t differ = 0, before = 0;
    CHECK(size[0] == size[1]);
    for (size_t i = 0; i < size[0] && size[0] == size[1]; i++) {
        differ += bytes[0][i] != bytes[1][i];
        before += bytes[0][i] != bytes[1][i] && i < N * (sizeof(float) + sizeof(double) + sizeof *m);
    }
    CHECK(before == 1 && differ > 1 && differ <= 1 + 2 * sizeof(uint64_t));
    spx_free(bytes[0]);
    spx_free(bytes[1]);

    spx_output *o = NULL;
    CHECK(spx_output_open(&o, path, 1, &e) == SPX_OK);
    v[N - 1] = NAN;
    CHECK(spx_h5_defer_write_real(spx_output_writes(o), spx_output_file(o), "/narrow", 4, 1, d, v, &e) == SPX_OK);
    CHECK(spx_output_close(o, &e) == SPX_OK && spx_output_flush(o, 2, &e) == SPX_EBUG);
    spx_output_discard(o);
    spx_free(v);
    spx_free(m);
    (void)unlink(path);
}

/* Two images one after another through a real pipe; each reader takes exactly its own. */
static void through_pipe(size_t limit)
{
    int fd[2];
    CHECK(pipe(fd) == 0);
    pid_t child = fork();
    if (child == 0) {
        (void)dup2(fd[1], STDOUT_FILENO);
        (void)close(fd[0]);
        (void)close(fd[1]);
        int copy = dup(STDOUT_FILENO);
        for (int k = 0; k < 2; k++) {
            spx_output *o;
            (void)dup2(copy, STDOUT_FILENO);
            if (spx_output_open(&o, "-", 0, &e) != SPX_OK)
                _exit(1);
            fill(spx_output_file(o));
            if (spx_output_commit(o, &e) != SPX_OK)
                _exit(2);
        }
        _exit(bad);
    }
    (void)close(fd[1]);
    int keep = dup(STDIN_FILENO);
    (void)dup2(fd[0], STDIN_FILENO);
    (void)close(fd[0]);
    spx_mem_limit(limit);
    for (int k = 0; k < 2; k++) {
        spx_input in;
        spx_status st = spx_input_open(&in, "-", &e);
        CHECK(st == SPX_OK);
        if (st == SPX_OK)
            verify(in.file);
        spx_input_close(&in);
    }
    spx_input in;
    CHECK(spx_input_open(&in, "-", &e) == SPX_EINPUT);
    spx_input_close(&in);
    spx_mem_limit(0);
    (void)dup2(keep, STDIN_FILENO);
    (void)close(keep);
    int status = 1;
    (void)waitpid(child, &status, 0);
    CHECK(status == 0);
}

/* HDF5 unpacks a chunk as a whole, in memory of its own. */
static void large_chunks(void)
{
    const hsize_t dims[] = {4, 1 << 22};
    in_dir("chunks.h5");
    hid_t f = H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT), s = H5Screate_simple(2, dims, NULL);
    for (int filtered = 0; filtered < 2; filtered++) {
        hid_t p = H5Pcreate(H5P_DATASET_CREATE);
        H5Pset_chunk(p, 2, (const hsize_t[]){1, 1 << 22});
        if (filtered)
            H5Pset_deflate(p, 1);
        hid_t d = H5Dcreate2(f, filtered ? "packed" : "plain", H5T_NATIVE_DOUBLE, s, H5P_DEFAULT, p, H5P_DEFAULT);
        H5Dclose(d);
        H5Pclose(p);
    }
    spx_mem_limit((size_t)63 << 20); /* two chunks have 64 MiB */
    hid_t d = spx_h5_open(f, "plain", &e);
    CHECK(d >= 0);
    H5Dclose(d);
    CHECK(spx_h5_open(f, "packed", &e) < 0 && e.code == SPX_EIO && strstr(spx_err_text(&e), "has chunks of 32.0 MiB"));
    int ndim;
    size_t shape[SPX_H5_MAXDIM];
    CHECK(spx_h5_shape(f, "packed", &ndim, shape, &e) == SPX_EIO);
    spx_mem_limit((size_t)65 << 20);
    CHECK(spx_h5_shape(f, "packed", &ndim, shape, &e) == SPX_OK);
    spx_mem_limit(0);
    CHECK(spx_h5_shape(f, "packed", &ndim, shape, &e) == SPX_OK);
    H5Sclose(s);
    H5Fclose(f);
    (void)unlink(path);
}

int main(void)
{
    if (mkdtemp(dir) == NULL)
        return 1;
    (void)H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
    spx_output *o = NULL;
    spx_input in;
    (void)unsetenv("HDF5_USE_FILE_LOCKING");
    char **const environment = environ;
    in_dir("a.h5");
    CHECK(spx_output_open(&o, path, 0, &e) == SPX_OK);
    fill(spx_output_file(o));
    CHECK(access(path, F_OK) != 0);
    CHECK(spx_output_commit(o, &e) == SPX_OK);
    CHECK(access(path, F_OK) == 0);
    CHECK(spx_input_open(&in, path, &e) == SPX_OK);
    verify(in.file);
    spx_input_close(&in);
    CHECK(spx_output_open(&o, path, 0, &e) == SPX_EIO);
    CHECK(spx_output_open(&o, path, 1, &e) == SPX_OK);
    spx_output_discard(o);
    CHECK(spx_input_open(&in, path, &e) == SPX_OK);
    spx_input_close(&in);
    CHECK(spx_output_open(&o, "/nonexistent/x.h5", 0, &e) == SPX_EIO);
    CHECK(spx_output_open(&o, dir, 1, &e) == SPX_EIO);
    CHECK(truncate(path, 1000) == 0);
    CHECK(spx_input_open(&in, path, &e) == SPX_EINPUT);
    CHECK(truncate(path, 0) == 0);
    CHECK(spx_input_open(&in, path, &e) == SPX_EINPUT);
    CHECK(spx_input_open(&in, dir, &e) == SPX_EINPUT);
    (void)unlink(path);
    /* other threads may read the environment while files are opened */
    CHECK(environ == environment && getenv("HDF5_USE_FILE_LOCKING") == NULL);
    hostile();
    large_chunks();
    large();
    masks();
    defer();
    through_pipe(0);
    /* small limit: the image goes through an unlinked temporary file */
    through_pipe((size_t)1 << 21);
    CHECK(rmdir(dir) == 0); /* nothing was left behind */
    return bad;
}
