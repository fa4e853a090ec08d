/* Provides the functions of blas.h: each jumps through a pointer that spx_blas_open() has set.
 *
 * Debian installs one OpenBLAS with threads (pthread or OpenMP) or without, and LAPACKE takes LAPACK from what is
 * called liblapack.so.3, which can be the reference implementation. OpenBLAS has LAPACK itself, and its symbols are
 * made global, so that LAPACKE finds them first, as in a program that is linked with both. */
#include "num/blas.h"

#include <cblas.h>
#include <dlfcn.h>
#include <lapacke.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

/* X(result, name, parameters, arguments) */
/* clang-format off */
#define OPENBLAS_FUNCTIONS(X)                                                                                          \
    X(void, cblas_daxpy, (blasint n, double a, const double *x, blasint incx, double *y, blasint incy),                \
      (n, a, x, incx, y, incy))                                                                                        \
    X(void, cblas_dgemm,                                                                                               \
      (enum CBLAS_ORDER order, enum CBLAS_TRANSPOSE ta, enum CBLAS_TRANSPOSE tb, blasint m, blasint n, blasint k,      \
       double alpha, const double *a, blasint lda, const double *b, blasint ldb, double beta, double *c, blasint ldc), \
      (order, ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc))                                                   \
    X(void, cblas_dscal, (blasint n, double a, double *x, blasint incx), (n, a, x, incx))                              \
    X(void, cblas_dswap, (blasint n, double *x, blasint incx, double *y, blasint incy), (n, x, incx, y, incy))         \
    X(void, cblas_dsymm,                                                                                               \
      (enum CBLAS_ORDER order, enum CBLAS_SIDE side, enum CBLAS_UPLO uplo, blasint m, blasint n, double alpha,         \
       const double *a, blasint lda, const double *b, blasint ldb, double beta, double *c, blasint ldc),               \
      (order, side, uplo, m, n, alpha, a, lda, b, ldb, beta, c, ldc))                                                  \
    X(void, cblas_dsyrk,                                                                                               \
      (enum CBLAS_ORDER order, enum CBLAS_UPLO uplo, enum CBLAS_TRANSPOSE t, blasint n, blasint k, double alpha,       \
       const double *a, blasint lda, double beta, double *c, blasint ldc),                                             \
      (order, uplo, t, n, k, alpha, a, lda, beta, c, ldc))                                                             \
    X(void, cblas_dtrsm,                                                                                               \
      (enum CBLAS_ORDER order, enum CBLAS_SIDE side, enum CBLAS_UPLO uplo, enum CBLAS_TRANSPOSE t,                     \
       enum CBLAS_DIAG diag, blasint m, blasint n, double alpha, const double *a, blasint lda, double *b, blasint ldb), \
      (order, side, uplo, t, diag, m, n, alpha, a, lda, b, ldb))                                                       \
    X(void, cblas_saxpy, (blasint n, float a, const float *x, blasint incx, float *y, blasint incy),                   \
      (n, a, x, incx, y, incy))                                                                                        \
    X(void, cblas_sgemm,                                                                                               \
      (enum CBLAS_ORDER order, enum CBLAS_TRANSPOSE ta, enum CBLAS_TRANSPOSE tb, blasint m, blasint n, blasint k,      \
       float alpha, const float *a, blasint lda, const float *b, blasint ldb, float beta, float *c, blasint ldc),      \
      (order, ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc))                                                   \
    X(void, cblas_sgemv,                                                                                               \
      (enum CBLAS_ORDER order, enum CBLAS_TRANSPOSE t, blasint m, blasint n, float alpha, const float *a, blasint lda, \
       const float *x, blasint incx, float beta, float *y, blasint incy),                                              \
      (order, t, m, n, alpha, a, lda, x, incx, beta, y, incy))                                                         \
    X(void, cblas_ssyrk,                                                                                               \
      (enum CBLAS_ORDER order, enum CBLAS_UPLO uplo, enum CBLAS_TRANSPOSE t, blasint n, blasint k, float alpha,        \
       const float *a, blasint lda, float beta, float *c, blasint ldc),                                                \
      (order, uplo, t, n, k, alpha, a, lda, beta, c, ldc))                                                             \
    X(void, cblas_strsm,                                                                                               \
      (enum CBLAS_ORDER order, enum CBLAS_SIDE side, enum CBLAS_UPLO uplo, enum CBLAS_TRANSPOSE t,                     \
       enum CBLAS_DIAG diag, blasint m, blasint n, float alpha, const float *a, blasint lda, float *b, blasint ldb),   \
      (order, side, uplo, t, diag, m, n, alpha, a, lda, b, ldb))                                                       \
    X(char *, openblas_get_config, (void), ())                                                                         \
    X(char *, openblas_get_corename, (void), ())                                                                       \
    X(int, openblas_get_num_threads, (void), ())                                                                       \
    X(void, openblas_set_num_threads, (int n), (n))

#define LAPACKE_FUNCTIONS(X)                                                                                           \
    X(lapack_int, LAPACKE_dgeqrf, (int layout, lapack_int m, lapack_int n, double *a, lapack_int lda, double *tau),    \
      (layout, m, n, a, lda, tau))                                                                                     \
    X(lapack_int, LAPACKE_dgesdd,                                                                                      \
      (int layout, char job, lapack_int m, lapack_int n, double *a, lapack_int lda, double *s, double *u,              \
       lapack_int ldu, double *vt, lapack_int ldvt),                                                                   \
      (layout, job, m, n, a, lda, s, u, ldu, vt, ldvt))                                                                \
    X(lapack_int, LAPACKE_dgesvj,                                                                                      \
      (int layout, char joba, char jobu, char jobv, lapack_int m, lapack_int n, double *a, lapack_int lda,             \
       double *sva, lapack_int mv, double *v, lapack_int ldv, double *stat),                                           \
      (layout, joba, jobu, jobv, m, n, a, lda, sva, mv, v, ldv, stat))                                                 \
    X(lapack_int, LAPACKE_dgesvj_work,                                                                                 \
      (int layout, char joba, char jobu, char jobv, lapack_int m, lapack_int n, double *a, lapack_int lda,             \
       double *sva, lapack_int mv, double *v, lapack_int ldv, double *work, lapack_int lwork),                         \
      (layout, joba, jobu, jobv, m, n, a, lda, sva, mv, v, ldv, work, lwork))                                          \
    X(lapack_int, LAPACKE_dgetrf, (int layout, lapack_int m, lapack_int n, double *a, lapack_int lda, lapack_int *p),  \
      (layout, m, n, a, lda, p))                                                                                       \
    X(lapack_int, LAPACKE_dgetri, (int layout, lapack_int n, double *a, lapack_int lda, const lapack_int *p),          \
      (layout, n, a, lda, p))                                                                                          \
    X(lapack_int, LAPACKE_dorgqr,                                                                                      \
      (int layout, lapack_int m, lapack_int n, lapack_int k, double *a, lapack_int lda, const double *tau),            \
      (layout, m, n, k, a, lda, tau))                                                                                  \
    X(lapack_int, LAPACKE_dpbsv_work,                                                                                  \
      (int layout, char uplo, lapack_int n, lapack_int kd, lapack_int nrhs, double *ab, lapack_int ldab, double *b,    \
       lapack_int ldb),                                                                                                \
      (layout, uplo, n, kd, nrhs, ab, ldab, b, ldb))                                                                   \
    X(lapack_int, LAPACKE_dpbtrf_work,                                                                                 \
      (int layout, char uplo, lapack_int n, lapack_int kd, double *ab, lapack_int ldab),                               \
      (layout, uplo, n, kd, ab, ldab))                                                                                 \
    X(lapack_int, LAPACKE_dpbtrs_work,                                                                                 \
      (int layout, char uplo, lapack_int n, lapack_int kd, lapack_int nrhs, const double *ab, lapack_int ldab,         \
       double *b, lapack_int ldb),                                                                                     \
      (layout, uplo, n, kd, nrhs, ab, ldab, b, ldb))                                                                   \
    X(lapack_int, LAPACKE_dposv,                                                                                       \
      (int layout, char uplo, lapack_int n, lapack_int nrhs, double *a, lapack_int lda, double *b, lapack_int ldb),    \
      (layout, uplo, n, nrhs, a, lda, b, ldb))                                                                         \
    X(lapack_int, LAPACKE_dpotrf, (int layout, char uplo, lapack_int n, double *a, lapack_int lda),                    \
      (layout, uplo, n, a, lda))                                                                                       \
    X(lapack_int, LAPACKE_dpotrf_work, (int layout, char uplo, lapack_int n, double *a, lapack_int lda),               \
      (layout, uplo, n, a, lda))                                                                                       \
    X(lapack_int, LAPACKE_dpotri_work, (int layout, char uplo, lapack_int n, double *a, lapack_int lda),               \
      (layout, uplo, n, a, lda))                                                                                       \
    X(lapack_int, LAPACKE_dpotrs,                                                                                      \
      (int layout, char uplo, lapack_int n, lapack_int nrhs, const double *a, lapack_int lda, double *b,               \
       lapack_int ldb),                                                                                                \
      (layout, uplo, n, nrhs, a, lda, b, ldb))                                                                         \
    X(lapack_int, LAPACKE_dpotrs_work,                                                                                 \
      (int layout, char uplo, lapack_int n, lapack_int nrhs, const double *a, lapack_int lda, double *b,               \
       lapack_int ldb),                                                                                                \
      (layout, uplo, n, nrhs, a, lda, b, ldb))                                                                         \
    X(lapack_int, LAPACKE_dsyev,                                                                                       \
      (int layout, char job, char uplo, lapack_int n, double *a, lapack_int lda, double *w),                           \
      (layout, job, uplo, n, a, lda, w))                                                                               \
    X(lapack_int, LAPACKE_dsyevd,                                                                                      \
      (int layout, char job, char uplo, lapack_int n, double *a, lapack_int lda, double *w),                           \
      (layout, job, uplo, n, a, lda, w))                                                                               \
    X(lapack_int, LAPACKE_dtrtri_work,                                                                                 \
      (int layout, char uplo, char diag, lapack_int n, double *a, lapack_int lda), (layout, uplo, diag, n, a, lda))    \
    X(lapack_int, LAPACKE_dtrtrs,                                                                                      \
      (int layout, char uplo, char trans, char diag, lapack_int n, lapack_int nrhs, const double *a, lapack_int lda,   \
       double *b, lapack_int ldb),                                                                                     \
      (layout, uplo, trans, diag, n, nrhs, a, lda, b, ldb))
/* clang-format on */

static void not_open(void)
{
    (void)fputs("BLAS is used before spx_blas_open(): a bug in specpipe\n", stderr);
    abort();
}

/* Hidden visibility: libraries loaded at run time (NumPy in a hook) must bind to OpenBLAS, not to these. */
#define FUNCTION(result, name, parameters, arguments)                                                                  \
    extern __typeof__(name) name __attribute__((visibility("hidden")));                                                \
    static __typeof__(&name) at_##name = (__typeof__(&name))not_open;                                                  \
    result name parameters                                                                                             \
    {                                                                                                                  \
        return at_##name arguments;                                                                                    \
    }
OPENBLAS_FUNCTIONS(FUNCTION)
LAPACKE_FUNCTIONS(FUNCTION)

#define ENTRY(result, name, parameters, arguments) {#name, &at_##name},
static const struct entry {
    const char *name;
    void *at; /* address of the function's pointer */
} openblas_entry[] = {OPENBLAS_FUNCTIONS(ENTRY){NULL, NULL}}, lapacke_entry[] = {LAPACKE_FUNCTIONS(ENTRY){NULL, NULL}};

static spx_status missing(const char *package, spx_err *e)
{
    return spx_fail(e, SPX_EIO, "%s: install %s (its name in Debian)", dlerror(), package);
}

static spx_status find(void *library, const struct entry *entry, const char *package, spx_err *e)
{
    for (; entry->name != NULL; entry++) {
        void *found = dlsym(library, entry->name);
        if (found == NULL)
            return missing(package, e);
        memcpy(entry->at, &found, sizeof found);
    }
    return SPX_OK;
}

/* Name of the best OpenBLAS kernels for this processor's instructions, out of those that every supported version
 * has. */
static const char *best_core(void)
{
#ifdef __x86_64__
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512vl"))
        return "SkylakeX";
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        return "Haswell";
#endif
    return NULL;
}

/* dlopen() with variable `name` of the environment set to `value`. */
static void *load_with(const char *library, const char *name, const char *value, spx_err *e)
{
    const char *now = getenv(name);
    char *before = now != NULL ? spx_strdup(now, e) : NULL;
    if (now != NULL && before == NULL)
        return NULL;
    (void)setenv(name, value, 1);
    void *handle = dlopen(library, RTLD_LAZY | RTLD_GLOBAL);
    if (before != NULL)
        (void)setenv(name, before, 1);
    else
        (void)unsetenv(name);
    spx_free(before);
    return handle;
}

/* OpenBLAS chooses kernels by the processor's model number; on a processor newer than the library it takes generic ones
 * of 2004, four to eight times slower. OPENBLAS_CORETYPE is set while it loads, unless the user has set it. */
static spx_status load_openblas(void **handle, spx_err *e)
{
    static const char library[] = "libopenblas.so.0", package[] = "libopenblas0";
    static const char threads[] = "OPENBLAS_NUM_THREADS", core[] = "OPENBLAS_CORETYPE";
    const char *best = best_core();
    if ((*handle = load_with(library, threads, "1", e)) == NULL)
        return missing(package, e);
    spx_status st = find(*handle, openblas_entry, package, e);
    if (st != SPX_OK || best == NULL || getenv(core) != NULL || strcmp(openblas_get_corename(), "Prescott") != 0)
        return st;
    (void)dlclose(*handle);
    (void)setenv(core, best, 1);
    *handle = load_with(library, threads, "1", e);
    (void)unsetenv(core);
    return *handle != NULL ? find(*handle, openblas_entry, package, e) : missing(package, e);
}

static spx_err failure;

static void load_libraries(void)
{
    static const char package[] = "liblapacke";
    void *openblas, *lapacke;
    if (load_openblas(&openblas, &failure) != SPX_OK)
        return;
    if ((lapacke = dlopen("liblapacke.so.3", RTLD_LAZY | RTLD_LOCAL)) == NULL)
        (void)missing(package, &failure);
    else
        (void)find(lapacke, lapacke_entry, package, &failure);
}

spx_status spx_blas_open(spx_err *e)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    (void)pthread_once(&once, load_libraries);
    if (failure.code != SPX_OK)
        return spx_err_pass(e, &failure);
    /* more than one where something else has loaded it before, or has asked for more: NumPy in a hook */
    if (openblas_get_num_threads() != 1)
        openblas_set_num_threads(1);
    return SPX_OK;
}
