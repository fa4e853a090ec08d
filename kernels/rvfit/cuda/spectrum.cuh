/* Prepares spectra for cross-correlation on CUDA devices: search/ccf.c and spectral/continuum.c with a block for each
 * arm of a star, whose threads share medians, pixels and the butterflies of the transform. */
#ifndef SPX_RVFIT_CUDA_SPECTRUM_CUH
#define SPX_RVFIT_CUDA_SPECTRUM_CUH

namespace rv
{

enum {
    SPECTRUM_THREADS = 512,
    SPECTRUM_SHARED =
        1 << 17, /* bytes of the longest transform in shared memory; longer ones are made in global memory */
    KEPT = 8     /* keys of a thread that are kept in registers */
};

/* Of no number: above all that there are. */
constexpr unsigned long long NO_KEY = ~0ull;

__device__ inline unsigned long long largest_of_warp(unsigned long long x)
{
    const unsigned high = __reduce_max_sync(FULL, (unsigned)(x >> 32));
    const unsigned low = __reduce_max_sync(FULL, (unsigned)(x >> 32) == high ? (unsigned)x : 0);
    return (unsigned long long)high << 32 | low;
}

/* Threads that work together: all of a block, or a warp. */
struct block_scope {
    unsigned *buffer; /* shared, three a warp */
    __device__ int first() const
    {
        return (int)threadIdx.x;
    }
    __device__ int step() const
    {
        return (int)blockDim.x;
    }
    template <int N> __device__ void sum(unsigned (&x)[N]) const
    {
        const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32, warps = (int)blockDim.x / 32;
#pragma unroll
        for (int i = 0; i < N; i++) {
            x[i] = __reduce_add_sync(FULL, x[i]);
            if (lane == 0)
                buffer[i * warps + warp] = x[i];
        }
        __syncthreads();
#pragma unroll
        for (int i = 0; i < N; i++)
            x[i] = __reduce_add_sync(FULL, lane < warps ? buffer[i * warps + lane] : 0);
        __syncthreads();
    }
    __device__ unsigned long long largest(unsigned long long x) const
    {
        const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32, warps = (int)blockDim.x / 32;
        x = largest_of_warp(x);
        if (lane == 0) {
            buffer[warp] = (unsigned)(x >> 32);
            buffer[warps + warp] = (unsigned)x;
        }
        __syncthreads();
        x = largest_of_warp(lane < warps ? (unsigned long long)buffer[lane] << 32 | buffer[warps + lane] : 0);
        __syncthreads();
        return x;
    }
};

struct warp_scope {
    __device__ int first() const
    {
        return (int)threadIdx.x % 32;
    }
    __device__ int step() const
    {
        return 32;
    }
    template <int N> __device__ void sum(unsigned (&x)[N]) const
    {
#pragma unroll
        for (int i = 0; i < N; i++)
            x[i] = __reduce_add_sync(FULL, x[i]);
    }
    __device__ unsigned long long largest(unsigned long long x) const
    {
        return largest_of_warp(x);
    }
};

/* Key of rank `rank` (from 0) of those that each(f) calls f with, in the threads that have them: found two bits at a
 * time. */
template <typename S, typename E> __device__ inline unsigned long long rank_key(const S &s, unsigned rank, E each)
{
    unsigned long long found = 0;
    for (int bit = 62; bit >= 0; bit -= 2) {
        const unsigned long long one = 1ull << bit;
        unsigned below[3] = {0, 0, 0};
        each([&](unsigned long long k) {
            below[0] += k < found + one;
            below[1] += k < found + 2 * one;
            below[2] += k < found + 3 * one;
        });
        s.sum(below);
        found += ((below[0] <= rank) + (below[1] <= rank) + (below[2] <= rank)) * one;
    }
    return found;
}

/* Median of those keys, mean of the two in the middle, and how many they are; 0 of none. */
template <typename S, typename E> __device__ inline double median_of(const S &s, E each, unsigned *count)
{
    unsigned all[1] = {0};
    each([&](unsigned long long k) { all[0] += k != NO_KEY; });
    s.sum(all);
    const unsigned n = *count = all[0];
    if (n == 0)
        return 0;
    const unsigned long long middle = rank_key(s, n / 2, each);
    const double upper = spx::of_key(middle);
    if (n % 2 == 1)
        return upper;
    /* the one before: the largest of those below, if there are half of them, else the same again */
    unsigned below[1] = {0};
    unsigned long long largest = 0;
    each([&](unsigned long long k) {
        below[0] += k < middle;
        largest = k < middle && k > largest ? k : largest;
    });
    s.sum(below);
    largest = s.largest(largest);
    const double lower = below[0] == n / 2 ? spx::of_key(largest) : upper;
    return lower + (upper - lower) / 2;
}

/* The same of the values of i0 ... i1-1 that value(i, &x) gives. Keys are kept in registers where they are few. */
template <typename S, typename V> __device__ inline double median(const S &s, int i0, int i1, V value, unsigned *count)
{
    auto key = [&](int i) {
        double x;
        return i < i1 && value(i, &x) ? spx::key_of(x) : NO_KEY;
    };
    const int begin = i0 + s.first();
    if (i1 - i0 <= KEPT * s.step()) {
        unsigned long long kept[KEPT];
#pragma unroll
        for (int q = 0; q < KEPT; q++)
            kept[q] = key(begin + q * s.step());
        return median_of(
            s,
            [&](auto f) {
#pragma unroll
                for (int q = 0; q < KEPT; q++)
                    f(kept[q]);
            },
            count);
    }
    return median_of(
        s,
        [&](auto f) {
            for (int i = begin; i < i1; i += s.step())
                f(key(i));
        },
        count);
}

/* A pixel of a piece, with what tells whether it is used. */
struct correlated {
    const double *flux, *ie;
    const uint8_t *good;
    double typical; /* 1/e */
    __device__ bool use(int i) const
    {
        return good[i] && !(ie[i] * SPX_RV_CCF_MAX_ERROR < typical);
    }
};

/* The continuum of a piece into cont[n]. */
__device__ inline void continuum(const arm &a, const correlated &p, unsigned *buffer, double *cont)
{
    __shared__ double node[SPX_CONTINUUM_NODES], value[SPX_CONTINUUM_NODES], middle[SPX_CONTINUUM_NODES];
    __shared__ unsigned many[SPX_CONTINUUM_NODES];
    __shared__ int nnode;
    const int warp = (int)threadIdx.x / 32;
    unsigned used;
    const double least = 0.01 * median(
                                    block_scope{buffer}, 0, a.n,
                                    [&](int i, double *x) {
                                        *x = fabs(p.flux[i]);
                                        return p.use(i);
                                    },
                                    &used);
    if (!(least > 0)) {
        for (int i = (int)threadIdx.x; i < a.n; i += (int)blockDim.x)
            cont[i] = 1;
        __syncthreads();
        return;
    }
    for (int b = warp; b < a.nbin; b += (int)blockDim.x / 32) {
        unsigned n;
        const double x = median(
            warp_scope{}, a.bin[b], a.bin[b + 1],
            [&](int i, double *y) {
                *y = p.flux[i];
                return p.use(i);
            },
            &n);
        if (threadIdx.x % 32 == 0) {
            middle[b] = x;
            many[b] = n;
        }
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        int n = 0;
        for (int b = 0; b < a.nbin; b++)
            if (many[b] >= SPX_CONTINUUM_PIXELS) {
                node[n] = a.bin_ln0 + (b + 0.5) * a.bin_width;
                value[n++] = log(fmax(middle[b], least));
            }
        if (n == 0) {
            node[0] = a.bin_ln0;
            value[n++] = log(100 * least);
        }
        nnode = n;
    }
    __syncthreads();
    for (int i = (int)threadIdx.x, j = 0; i < a.n; i += (int)blockDim.x) {
        while (j + 2 < nnode && a.lnwave[i] > node[j + 1])
            j++;
        const double slope = nnode > 1 ? (value[j + 1] - value[j]) / (node[j + 1] - node[j]) : 0;
        cont[i] = fmax(exp(value[j] + slope * (a.lnwave[i] - node[j])), least);
    }
    __syncthreads();
}

__device__ inline float2 times(float2 a, float2 b)
{
    return make_float2(a.x * b.x - a.y * b.y, a.x * b.y + a.y * b.x);
}

/* z[n] in place, n a power of two, of numbers in the order of their reversed bits: the sums of z_j exp(-2 pi i j k/n).
 * Two steps of radix two at a time, of which the first is alone where they are an odd number. */
__device__ inline void transform(float2 *z, int n, int bits)
{
    if (bits % 2 == 1) {
        __syncthreads();
        for (int b = (int)threadIdx.x; b < n / 2; b += (int)blockDim.x) {
            const float2 x = z[2 * b], y = z[2 * b + 1];
            z[2 * b] = make_float2(x.x + y.x, x.y + y.y);
            z[2 * b + 1] = make_float2(x.x - y.x, x.y - y.y);
        }
    }
    for (int part = 1 << bits % 2; part < n; part *= 4) { /* parts of z that are transformed by now */
        __syncthreads();
        for (int b = (int)threadIdx.x; b < n / 4; b += (int)blockDim.x) {
            const int j = b & (part - 1), i = 4 * (b - j) + j;
            float s, c;
            sincospif(-0.5f * (float)j / (float)part, &s, &c);
            const float2 w = make_float2(c, s), w2 = times(w, w);
            /* parts are in the order of their reversed numbers: 0, 2, 1, 3 */
            const float2 x0 = z[i], x2 = times(w2, z[i + part]), x1 = times(w, z[i + 2 * part]),
                         x3 = times(times(w, w2), z[i + 3 * part]);
            const float2 p = make_float2(x0.x + x2.x, x0.y + x2.y), q = make_float2(x0.x - x2.x, x0.y - x2.y);
            const float2 r = make_float2(x1.x + x3.x, x1.y + x3.y), t = make_float2(x1.x - x3.x, x1.y - x3.y);
            z[i] = make_float2(p.x + r.x, p.y + r.y);
            z[i + part] = make_float2(q.x + t.y, q.y - t.x);
            z[i + 2 * part] = make_float2(p.x - r.x, p.y - r.y);
            z[i + 3 * part] = make_float2(q.x - t.y, q.y + t.x);
        }
    }
    __syncthreads();
}

/* Block (star, arm): real and imaginary parts of both transforms, data[star][nfreq of all arms][4]; pieces
 * ranges[star][arm], [begin, end). `cont` holds a number a pixel, at the pieces' places; `buffer`:
 * long[star][arm][nwave] where transforms are too long for shared memory. */
__global__ void __launch_bounds__(SPECTRUM_THREADS)
    spectrum_kernel(model m, const int2 *ranges, const piece *pieces, const double *flux, const double *ie,
                    const uint8_t *good, double *cont, float2 *buffer, float *data)
{
    extern __shared__ __align__(16) double memory[];
    __shared__ unsigned sums[3 * SPECTRUM_THREADS / 32];
    const arm &a = m.arms[blockIdx.y];
    const size_t star = blockIdx.x;
    const int nc = a.nwave_ccf, bits = 31 - __clz(nc), tid = (int)threadIdx.x, step = (int)blockDim.x;
    const int begin = ranges[star * m.narm + blockIdx.y].x, end = ranges[star * m.narm + blockIdx.y].y;
    float2 *z =
        buffer == nullptr ? reinterpret_cast<float2 *>(memory) : buffer + (star * m.narm + blockIdx.y) * m.most_ccf;
    float4 *out = reinterpret_cast<float4 *>(data) + star * m.nfreq + a.freq0;
    if (begin == end) {
        for (int i = tid; i < a.nfreq; i += step)
            out[i] = make_float4(0, 0, 0, 0);
        return;
    }
    for (int i = tid; i < nc; i += step)
        z[i] = make_float2(0, 0);
    for (int k = begin; k < end; k++) {
        const size_t at = pieces[k].pixel0;
        correlated p = {flux + at, ie + at, good + at, 0};
        double *c = cont + at;
        unsigned used;
        p.typical = median(
            block_scope{sums}, 0, a.n,
            [&](int i, double *x) {
                *x = p.ie[i];
                return p.good[i] != 0;
            },
            &used);
        continuum(a, p, sums, c);
        for (int i = tid; i < nc; i += step) {
            const int j = a.rebin_at[i];
            if (j < 0 || !p.use(j) || !p.use(j + 1))
                continue;
            const double f = a.rebin[i], g = 1 - f, s0 = c[j] * p.ie[j], s1 = c[j + 1] * p.ie[j + 1];
            const double iv0 = s0 * s0, iv1 = s1 * s1;
            if (!(iv0 > 0) || !(iv1 > 0))
                continue;
            const double iv = iv0 * iv1 / (g * g * iv1 + f * f * iv0);
            const double v = g * (p.flux[j] / c[j] - 1) + f * (p.flux[j + 1] / c[j + 1] - 1);
            float2 &to = z[__brev((unsigned)i) >> (32 - bits)];
            to.x += (float)(-2 * iv * v / nc);
            to.y += (float)(iv / nc);
        }
        __syncthreads();
    }
    /* both at once: they are real */
    transform(z, nc, bits);
    for (int i = tid; i < a.nfreq; i += step) {
        const float2 x = z[i], y = z[(nc - i) & (nc - 1)];
        out[i] = make_float4(0.5f * (x.x + y.x), 0.5f * (x.y - y.y), 0.5f * (x.y + y.y), 0.5f * (y.x - x.x));
    }
}

} // namespace rv

#endif
