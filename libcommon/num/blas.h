/* OpenBLAS picks its kernels when it is loaded, by the model number of the processor. One that is newer than the
 * library gets those of 2004, which are four to eight times slower than the processor is. */
#ifndef SPX_BLAS_H
#define SPX_BLAS_H

/* Where that has happened, and $OPENBLAS_CORETYPE does not say that it shall be so: the program starts itself again,
 * with $OPENBLAS_CORETYPE set to what the processor can do. To be called before anything else. */
void spx_blas_exec(char *const *argv);

/* Limits OpenBLAS to one thread until the spx_blas_unpin() that belongs to it: for loops that solve problems side by
 * side, as its sums depend on its number of threads. Pairs of calls may nest and overlap in several threads; the last
 * to end gives back the number of threads that there was before the first. */
void spx_blas_pin(void);
void spx_blas_unpin(void);

#endif
