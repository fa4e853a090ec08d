/* Arithmetic that is compiled once for the host and once for the device is marked SPX_HD. */
#ifndef SPX_HOSTDEVICE_H
#define SPX_HOSTDEVICE_H

#ifdef __CUDACC__
#define SPX_HD static inline __host__ __device__
#else
#define SPX_HD static inline
#endif

#endif
