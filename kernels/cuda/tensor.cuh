/* Provides products of small matrices by the tensor cores of double precision: D += A B of a warp, each product and sum
 * as fma() would. */
#ifndef SPX_CUDA_TENSOR_CUH
#define SPX_CUDA_TENSOR_CUH

#include <cuda_runtime.h>

namespace spx
{

/* 8 x 4 by 4 x 8: lane l has A(l/4, l%4), B(l%4, l/4) and D(l/4, 2 (l%4) + 0, 1). */
__device__ inline void multiply_add(double (&d)[2], double a, double b)
{
    asm("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0, %1}, {%2}, {%3}, {%0, %1};"
        : "+d"(d[0]), "+d"(d[1])
        : "d"(a), "d"(b));
}

/* 16 x 4 by 4 x 8: two tiles of it with the same B, in the time of one where the device can. */
__device__ inline void multiply_add(double (&d)[4], double a0, double a1, double b)
{
#if __CUDA_ARCH__ >= 900
    asm("mma.sync.aligned.m16n8k4.row.col.f64.f64.f64.f64 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
        : "+d"(d[0]), "+d"(d[1]), "+d"(d[2]), "+d"(d[3])
        : "d"(a0), "d"(a1), "d"(b));
#else
    double d0[2] = {d[0], d[1]}, d1[2] = {d[2], d[3]};
    multiply_add(d0, a0, b);
    multiply_add(d1, a1, b);
    d[0] = d0[0];
    d[1] = d0[1];
    d[2] = d1[0];
    d[3] = d1[1];
#endif
}

} // namespace spx

#endif
