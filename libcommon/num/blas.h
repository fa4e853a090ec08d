/* Provides BLAS and LAPACK: the functions of <cblas.h> and <lapacke.h> that the kernels use, from OpenBLAS and LAPACKE,
 * which are loaded at run time.
 *
 * Called: spx_blas_open() at the beginning of a stage, then cblas_dgemm(), LAPACKE_dpotrf() ... as everywhere; they
 * abort where nobody has called it. A function that the linker does not find is to be added to the list in blas.c.
 *
 * Not linked with them, because OpenBLAS starts a thread for every core when it is loaded, by a program that will never
 * multiply a matrix too, and picks the code of its kernels then. The environment, which both depend on, is set while it
 * is loaded: one thread, and kernels for the instructions of the processor where that is newer than the library. */
#ifndef SPX_BLAS_H
#define SPX_BLAS_H

#include "base/err.h"

/* Loads the libraries with one thread: stages work on bundles, stars or setups side by side, and sums must not depend
 * on the number of threads. The first call loads them (some 10 ms) and changes the environment meanwhile, for which the
 * process must have no other thread that reads it: a program with SPX_USES_BLAS calls it before it has threads
 * (app/main.h). Thread-safe after that, and cheap. SPX_EIO: a library is missing, which the message names. */
spx_status spx_blas_open(spx_err *e);

#endif
