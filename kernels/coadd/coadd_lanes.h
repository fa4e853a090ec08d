/* Provides what the CPU's files of coadds share: the root of the N of several targets side by side, compiled for each
 * instruction set (coadd_base.c, _avx2.c, _avx512.c) and chosen at run time. Private to kernels/coadd. */
#ifndef SPX_COADD_LANES_H
#define SPX_COADD_LANES_H

#include <stddef.h>

enum { SPX_COADD_LANES = 8 }; /* targets of a group, of any instruction set: a multiple of all its vectors */

/* Q of the targets of a vector, lane by lane: sums of its rows, Q x, and [n][h + 1] diagonals from the main one on,
 * which `total` is to be added to on the main one. */
typedef struct {
    const double *sum1, *sumx, *root;
    double total[SPX_COADD_LANES];
    int bad[SPX_COADD_LANES];
} spx_coadd_root;

/* Vectors of `lanes` doubles. memory(): doubles that root() needs for n bins, half-bandwidth m and h diagonals beside
 * the main one, for all lanes. a[n][m + 1][lanes] and x[n][lanes] are within it, where place() says. */
typedef struct {
    const char *name;
    size_t lanes;
    size_t (*memory)(size_t n, size_t m, size_t h);
    void (*place)(size_t n, size_t m, size_t h, double *memory, double **a, double **x);
    void (*root)(size_t n, size_t m, size_t h, double *memory, spx_coadd_root *out);
} spx_coadd_kernels;

/* NULL where the compiler or the processor lacks the instructions. */
const spx_coadd_kernels *spx_coadd_kernels_base(void);
const spx_coadd_kernels *spx_coadd_kernels_avx2(void);
const spx_coadd_kernels *spx_coadd_kernels_avx512(void);

/* Used instead of the best of these where it is not NULL: for tests. */
extern const spx_coadd_kernels *spx_coadd_forced;

#endif
