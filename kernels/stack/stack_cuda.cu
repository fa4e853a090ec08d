/* Provides shift-and-stack on a CUDA device (stack/stack.h).
 *
 * A block of threads makes a tile of samples for a chunk of shifts, a group of its threads for each set of shifts at a
 * time. The samples of the traces that a chunk needs are copied to shared memory once, padded with zeros, and read from
 * there at any shift without bank conflicts: each term costs one read of shared memory, which is the limit. Of up to
 * BLOCK traces of float32, the usual case, a thread reads two neighbours at a time, which takes half the instructions:
 * a second copy of each trace, a sample further, has those that begin with an odd sample. Chunks are as large as keep
 * all multiprocessors busy to the end, or smaller where shifts lie so far apart that the parts do not fit otherwise;
 * where they never do, threads read the traces through the caches.
 *
 * Sums are taken in the order of the definition (stack.h), so that results are the CPU's to the last bit. Maxima are
 * joined by warp, or by the groups of a block, and by a second kernel; the first of equal values counts everywhere. */
#include <algorithm>
#include <climits>
#include <thread>
#include <vector>

#include "cuda/backend.cuh"
#include "cuda/reduce.cuh"
#include "stack/stack_math.h"

namespace
{

using spx::FULL;
using spx::WARP;

enum {
    GROUP = 64,
    MOST_THREADS = 1024,
    TABLE = 64,       /* sets of shifts whose table is in shared memory at one time */
    LEAST_CHUNK = 64, /* shifts of a chunk when they are far apart */
    MOST_TURNS = 255, /* most turns of a group in a chunk: ARGMAX stores them in a byte */
    BLOCK = SPX_STACK_BLOCK
};

/* Threads of a block: as many as the registers of a thread allow. */
constexpr int threads_of(size_t item, bool once)
{
    return item == sizeof(float) && once ? MOST_THREADS : MOST_THREADS / 2;
}

/* Position of a trace's samples in shared memory for one set of shifts, and its weight. */
template <typename T> struct entry {
    int at;
    T weight;
};

/* Parameters of a launch: shifts k0 ... k0 + nshift - 1 of the call, in chunks; arrays begin at k0. */
template <typename T> struct work {
    size_t ntrace, nshift, length, chunk;
    int64_t t0;
    const unsigned long long *start;
    const int *offset;
    const T *data;
    const int *shift;           /* [nshift, ntrace] */
    const T *weight;            /* [nshift, ntrace] */
    const int *low, *high, *at; /* [chunk, ntrace]: range of the shifts; offset of the trace in shared memory */
    const T *earlier;           /* [nshift, length] or NULL */
    T *stack;                   /* STACK: [nshift, length] */
    T *best;                    /* MAX: [tile, warp of a group, nshift]; ARGMAX: [chunk, length] */
    long long *which;           /* indices of the maxima, shape as best */
    int *overflow;
};

template <typename T> __device__ bool finite(T x)
{
    return x - x == T(0);
}

/* Copies traces [j0, j1) of chunk c for the tile that begins at sample `begin` to shared memory, one trace a warp. */
template <typename T, int TILE>
__device__ void stage(const work<T> &w, size_t c, size_t j0, size_t j1, int64_t begin, T *segment,
                      [[maybe_unused]] size_t segment_size)
{
    for (size_t j = j0 + threadIdx.x / WARP; j < j1; j += blockDim.x / WARP) {
        const size_t m = c * w.ntrace + j;
        const int n = TILE + w.high[m] - w.low[m];
        const int64_t first = begin - spx_stack_first(w.offset[j], w.high[m], w.t0);
        const int64_t length = (int64_t)(w.start[j + 1] - w.start[j]);
        const T *from = w.data + w.start[j];
        T *to = segment + w.at[m];
        SPX_DEVICE_ASSERT(n >= TILE && w.at[m] >= 0 && (size_t)(w.at[m] + n) <= segment_size);
#pragma unroll 8
        for (int i = (int)(threadIdx.x % WARP); i < n; i += WARP)
            to[i] = first + i >= 0 && first + i < length ? from[first + i] : T(0);
    }
}

/* Fills the table of reads of traces [j0, j1) for sets of shifts k ... k + nk - 1 of the chunk: table[nk, BLOCK]. */
template <typename T>
__device__ void tabulate(const work<T> &w, size_t c, size_t k, int nk, size_t j0, size_t j1, entry<T> *table)
{
    const int n = (int)(j1 - j0);
    for (int i = (int)threadIdx.x; i < nk * n; i += (int)blockDim.x) {
        const size_t j = j0 + (size_t)(i % n), r = k + (size_t)(i / n);
        entry<T> x = {0, T(0)};
        if (r < w.nshift) {
            x.at = w.at[c * w.ntrace + j] + w.high[c * w.ntrace + j] - w.shift[r * w.ntrace + j];
            x.weight = w.weight[r * w.ntrace + j];
        }
        table[i / n * BLOCK + i % n] = x;
    }
}

/* 1 when the lane has the warp's largest value, and of equal ones the smallest index; index UINT_MAX: no value. */
__device__ bool is_warp_max(float value, unsigned index)
{
    const int bits = __float_as_int(value + 0.0f); /* -0 becomes 0 */
    const int rank = index == UINT_MAX ? INT_MIN : bits >= 0 ? bits : bits ^ INT_MAX;
    const int most = __reduce_max_sync(FULL, rank);
    return index == __reduce_min_sync(FULL, rank == most ? index : UINT_MAX) && index != UINT_MAX;
}

__device__ bool is_warp_max(double value, unsigned index)
{
    double most = value;
    unsigned where = index;
    for (int step = WARP / 2; step > 0; step /= 2) {
        const double v = __shfl_xor_sync(FULL, most, step);
        const unsigned i = __shfl_xor_sync(FULL, where, step);
        if (where == UINT_MAX || (i != UINT_MAX && spx_stack_before(v, i, most, where))) {
            most = v;
            where = i;
        }
    }
    return index == where && index != UINT_MAX;
}

/* Byte number i of a word. */
__device__ void put_byte(unsigned *word, int i, unsigned value)
{
    *word = __byte_perm(*word, value, 0x3210u + (4u - (unsigned)i) * (1u << 4 * i));
}

/* Start value of sample t of stack k, from the earlier result. */
template <typename T, int METHOD> __device__ double earlier_at(const work<T> &w, size_t k, size_t k1, int64_t t)
{
    return METHOD == SPX_STACK_STACK && w.earlier != nullptr && k < k1 && t < (int64_t)w.length
               ? (double)w.earlier[k * w.length + (size_t)t]
               : 0.0;
}

/* Stacks tile blockIdx.x of chunk blockIdx.y. Each thread has V samples, GROUP apart. STAGED: through shared memory.
 * ONCE: all traces are in one block of BLOCK. */
template <typename T, int V, bool STAGED, bool ONCE, int METHOD>
__global__ void __launch_bounds__(threads_of(sizeof(T), ONCE)) stack_kernel(const work<T> w, size_t segment_size)
{
    constexpr int TILE = V * GROUP;
    extern __shared__ double shared[];
    T *segment = reinterpret_cast<T *>(shared);
    entry<T> *table = reinterpret_cast<entry<T> *>(segment + segment_size);
    const int group = (int)threadIdx.x / GROUP, ngroup = (int)blockDim.x / GROUP, lane = (int)threadIdx.x % GROUP;
    const size_t c = blockIdx.y, k0 = c * w.chunk, k1 = w.nshift < k0 + w.chunk ? w.nshift : k0 + w.chunk;
    const int64_t begin = (int64_t)blockIdx.x * TILE;
    T best[V];
    unsigned turns[(V + 3) / 4] = {0}; /* ARGMAX: the group's best turn for each of V samples, one byte each */
    unsigned turn = 0;
    int row0 = 0; /* row of the table for the group's turn */
    if (STAGED && ONCE)
        stage<T, TILE>(w, c, 0, w.ntrace, begin, segment, segment_size);
    for (size_t k = k0; k < k1; k += (size_t)ngroup, turn++, row0 += ngroup) {
        const size_t mine = k + (size_t)group;
        if (STAGED && ONCE && (turn == 0 || row0 == TABLE)) {
            __syncthreads();
            tabulate(w, c, k, (int)(k1 - k < TABLE ? k1 - k : TABLE), 0, w.ntrace, table);
            __syncthreads();
            row0 = 0;
        }
        T value[V];
        double sum[V];
        if (!ONCE)
#pragma unroll
            for (int v = 0; v < V; v++)
                sum[v] = earlier_at<T, METHOD>(w, mine, k1, begin + lane + v * GROUP);
        for (size_t j0 = 0; j0 < (ONCE ? 1 : w.ntrace); j0 += BLOCK) {
            const size_t j1 = ONCE || w.ntrace < j0 + BLOCK ? w.ntrace : j0 + BLOCK;
#pragma unroll
            for (int v = 0; v < V; v++)
                value[v] = 0;
            if (STAGED) {
                if (!ONCE) {
                    __syncthreads();
                    stage<T, TILE>(w, c, j0, j1, begin, segment, segment_size);
                    tabulate(w, c, k, ngroup, j0, j1, table);
                    __syncthreads();
                }
                const entry<T> *row = table + (ONCE ? row0 + group : group) * BLOCK;
                const int n = mine < k1 ? (int)(j1 - j0) : 0;
                entry<T> next = row[0];
#pragma unroll 2
                for (int j = 0; j < n; j++) {
                    /* software pipelining: the next entry is loaded while this one is used */
                    const entry<T> x = next;
                    next = row[j + 1 < n ? j + 1 : j];
                    const T *p = segment + x.at + lane;
                    SPX_DEVICE_ASSERT(x.at >= 0 && (size_t)(x.at + TILE) <= segment_size);
#pragma unroll
                    for (int v = 0; v < V; v++)
                        value[v] += x.weight * p[v * GROUP];
                }
            } else if (mine < k1) {
                for (size_t j = j0; j < j1; j++) {
                    const T weight = w.weight[mine * w.ntrace + j];
                    const int64_t first = spx_stack_first(w.offset[j], w.shift[mine * w.ntrace + j], w.t0);
                    const int64_t i = begin + lane - first, length = (int64_t)(w.start[j + 1] - w.start[j]);
                    const T *p = w.data + w.start[j];
#pragma unroll
                    for (int v = 0; v < V; v++)
                        if (i + v * GROUP >= 0 && i + v * GROUP < length)
                            value[v] += weight * p[i + v * GROUP];
                }
            }
            if (!ONCE)
#pragma unroll
                for (int v = 0; v < V; v++)
                    sum[v] += (double)value[v];
        }
        bool good = true;
#pragma unroll
        for (int v = 0; v < V; v++) {
            value[v] =
                (T)(ONCE ? earlier_at<T, METHOD>(w, mine, k1, begin + lane + v * GROUP) + (double)value[v] : sum[v]);
            good &= finite(value[v]);
        }
        if (!good)
            *w.overflow = 1;
        if (METHOD == SPX_STACK_STACK) {
#pragma unroll
            for (int v = 0; v < V; v++) {
                const int64_t t = begin + lane + v * GROUP;
                if (mine < k1 && t < (int64_t)w.length)
                    w.stack[mine * w.length + (size_t)t] = value[v];
            }
        } else if (METHOD == SPX_STACK_MAX) {
            T most = 0;
            unsigned where = UINT_MAX;
#pragma unroll
            for (int v = 0; v < V; v++)
                if (begin + lane + v * GROUP < (int64_t)w.length && (where == UINT_MAX || value[v] > most)) {
                    most = value[v];
                    where = (unsigned)(lane + v * GROUP);
                }
            /* of a group's warps, those with samples in the window */
            const size_t part = blockIdx.x * (GROUP / WARP) + (size_t)(lane / WARP);
            if (is_warp_max(most, where) && mine < k1) {
                w.best[part * w.nshift + mine] = most;
                w.which[part * w.nshift + mine] = begin + where;
            } else if (begin + lane / WARP * WARP >= (int64_t)w.length && lane % WARP == 0 && mine < k1) {
                w.best[part * w.nshift + mine] = -(T)INFINITY;
                w.which[part * w.nshift + mine] = LLONG_MAX;
            }
        } else if (mine < k1) {
#pragma unroll
            for (int v = 0; v < V; v++)
                if (turn == 0 || value[v] > best[v]) {
                    best[v] = value[v];
                    put_byte(&turns[v / 4], v % 4, turn);
                }
        }
    }
    if (METHOD != SPX_STACK_ARGMAX)
        return;
    /* combine the groups' maxima through shared memory, one sample of the tile at a time */
    T *values = reinterpret_cast<T *>(shared);
    int *indices = reinterpret_cast<int *>(values + MOST_THREADS);
    const int groups = (int)(k1 - k0 < (size_t)ngroup ? k1 - k0 : (size_t)ngroup);
#pragma unroll
    for (int v = 0; v < V; v++) {
        int which = (int)k0 + (int)(turns[v / 4] >> 8 * (v % 4) & 0xff) * ngroup + group;
        __syncthreads();
        if (group < groups) {
            values[threadIdx.x] = best[v];
            indices[threadIdx.x] = which;
        }
        __syncthreads();
        const int64_t t = begin + lane + v * GROUP;
        if (group != 0 || t >= (int64_t)w.length)
            continue;
        for (int g = 1; g < groups; g++)
            if (spx_stack_before((double)values[g * GROUP + lane], indices[g * GROUP + lane], (double)best[v], which)) {
                best[v] = values[g * GROUP + lane];
                which = indices[g * GROUP + lane];
            }
        w.best[c * w.length + (size_t)t] = best[v];
        w.which[c * w.length + (size_t)t] = which;
    }
}

/* Loads P pairs of samples, 2 WARP apart, of a trace from `at` on. */
template <int P>
__device__ void read_pairs(const float *segment, int at, int lane, float2 *a, [[maybe_unused]] size_t segment_size)
{
    const float2 *p = reinterpret_cast<const float2 *>(segment + at) + lane;
    SPX_DEVICE_ASSERT(at % 2 == 0 && at >= 0 && (size_t)(at + 2 * P * WARP) <= segment_size);
#pragma unroll
    for (int v = 0; v < P; v++)
        a[v] = p[v * WARP];
}

template <int P> __device__ void add_pairs(float2 *sum, float weight, const float2 *a)
{
#pragma unroll
    for (int v = 0; v < P; v++) {
        sum[v].x += weight * a[v].x;
        sum[v].y += weight * a[v].y;
    }
}

/* As above for at most BLOCK traces of float32, all in shared memory, one set of shifts a warp at a time: each thread
 * has P pairs of samples, 2 WARP apart. Shared memory has each trace twice, the second copy shifted by one sample.
 * Lanes compute the read positions; warps do not synchronise, so that stores of some overlap sums of others. */
template <int P, int METHOD>
__global__ void __launch_bounds__(MOST_THREADS) pair_kernel(const work<float> w, size_t segment_size)
{
    constexpr int TILE = 2 * P * WARP, WARPS = MOST_THREADS / WARP;
    /* samples of the next trace are loaded while those of this one are used, where registers suffice */
    constexpr bool AHEAD = METHOD != SPX_STACK_ARGMAX;
    extern __shared__ double shared[];
    float *segment = reinterpret_cast<float *>(shared);
    entry<float> *table = reinterpret_cast<entry<float> *>(segment + segment_size);
    const int warp = (int)threadIdx.x / WARP, lane = (int)threadIdx.x % WARP, ntrace = (int)w.ntrace;
    const size_t c = blockIdx.y, k0 = c * w.chunk, k1 = w.nshift < k0 + w.chunk ? w.nshift : k0 + w.chunk;
    const int64_t begin = (int64_t)blockIdx.x * TILE;
    for (int j = warp; j < ntrace; j += WARPS) {
        const size_t m = c * w.ntrace + (size_t)j;
        const int n = TILE + w.high[m] - w.low[m], even = n + n % 2;
        const int64_t first = begin - spx_stack_first(w.offset[j], w.high[m], w.t0);
        const int64_t length = (int64_t)(w.start[j + 1] - w.start[j]);
        const float *from = w.data + w.start[j];
        float *to = segment + w.at[m], *later = to + even - 1;
        SPX_DEVICE_ASSERT(w.at[m] % 2 == 0 && (size_t)(w.at[m] + 2 * even) <= segment_size);
#pragma unroll 8
        for (int i = lane; i < n; i += WARP) {
            const float v = first + i >= 0 && first + i < length ? from[first + i] : 0.0F;
            to[i] = v;
            if (i > 0)
                later[i] = v;
        }
    }
    float2 best[P];
    unsigned turns[(P + 1) / 2] = {0}; /* ARGMAX: the warp's best turns, one byte each */
    unsigned turn = 0;
    entry<float> *row = table + warp * BLOCK; /* a row for each warp: no synchronisation */
    __syncthreads();
    for (size_t mine = k0 + (size_t)warp; mine < k1; mine += WARPS, turn++) {
        __syncwarp();
        if (lane < ntrace) {
            const size_t m = c * w.ntrace + (size_t)lane, i = mine * w.ntrace + (size_t)lane;
            const int n = TILE + w.high[m] - w.low[m], at = w.high[m] - w.shift[i];
            row[lane] = {w.at[m] + (at % 2 == 0 ? at : n + n % 2 + at - 1), w.weight[i]};
        }
        __syncwarp();
        float2 value[P];
#pragma unroll
        for (int v = 0; v < P; v++)
            value[v] = {0.0F, 0.0F};
        entry<float> x = row[0], next = row[ntrace > 1 ? 1 : 0];
        float2 a[P], b[P];
        if constexpr (AHEAD) {
            read_pairs<P>(segment, x.at, lane, a, segment_size);
#pragma unroll 2
            for (int j = 1; j < ntrace; j++) {
                const entry<float> soon = row[j + 1 < ntrace ? j + 1 : j];
                read_pairs<P>(segment, next.at, lane, b, segment_size);
                add_pairs<P>(value, x.weight, a);
#pragma unroll
                for (int v = 0; v < P; v++)
                    a[v] = b[v];
                x = next;
                next = soon;
            }
            add_pairs<P>(value, x.weight, a);
        } else {
#pragma unroll 2
            for (int j = 0; j < ntrace; j++) {
                read_pairs<P>(segment, x.at, lane, a, segment_size);
                add_pairs<P>(value, x.weight, a);
                x = next;
                next = row[j + 2 < ntrace ? j + 2 : ntrace - 1];
            }
        }
        const int64_t t0 = begin + 2 * lane;
        float good = 0.0F; /* checks finiteness: 0 * NaN is not 0 */
#pragma unroll
        for (int v = 0; v < P; v++) {
            if (METHOD == SPX_STACK_STACK && w.earlier != nullptr) {
                value[v].x = (float)(earlier_at<float, METHOD>(w, mine, k1, t0 + v * 2 * WARP) + (double)value[v].x);
                value[v].y =
                    (float)(earlier_at<float, METHOD>(w, mine, k1, t0 + v * 2 * WARP + 1) + (double)value[v].y);
            }
            good = fmaf(value[v].x, 0.0F, good);
            good = fmaf(value[v].y, 0.0F, good);
        }
        if (!(good == 0.0F))
            *w.overflow = 1;
        if (METHOD == SPX_STACK_STACK) {
            float *to = w.stack + mine * w.length;
            if (mine * w.length % 2 == 0) {
#pragma unroll
                for (int v = 0; v < P; v++) {
                    const int64_t t = t0 + v * 2 * WARP;
                    if (t + 1 < (int64_t)w.length)
                        *reinterpret_cast<float2 *>(to + t) = value[v];
                    else if (t < (int64_t)w.length)
                        to[t] = value[v].x;
                }
            } else { /* in memory pairs begin with y */
#pragma unroll
                for (int v = 0; v < P; v++) {
                    const int64_t t = t0 + v * 2 * WARP + 1;
                    const float after = __shfl_down_sync(FULL, value[v].x, 1);
                    if (t + 1 < (int64_t)w.length && lane < WARP - 1)
                        *reinterpret_cast<float2 *>(to + t) = {value[v].y, after};
                    else if (t < (int64_t)w.length)
                        to[t] = value[v].y;
                    if (lane == 0 && t - 1 < (int64_t)w.length)
                        to[t - 1] = value[v].x;
                }
            }
        } else if (METHOD == SPX_STACK_MAX) {
            float most = 0.0F;
            unsigned where = UINT_MAX;
#pragma unroll
            for (int v = 0; v < P; v++) {
                const int i = 2 * lane + v * 2 * WARP;
                if (begin + i < (int64_t)w.length && (where == UINT_MAX || value[v].x > most)) {
                    most = value[v].x;
                    where = (unsigned)i;
                }
                if (begin + i + 1 < (int64_t)w.length && value[v].y > most) {
                    most = value[v].y;
                    where = (unsigned)i + 1;
                }
            }
            if (is_warp_max(most, where)) {
                w.best[blockIdx.x * w.nshift + mine] = most;
                w.which[blockIdx.x * w.nshift + mine] = begin + where;
            }
        } else {
#pragma unroll
            for (int v = 0; v < P; v++) {
                if (turn == 0 || value[v].x > best[v].x) {
                    best[v].x = value[v].x;
                    put_byte(&turns[v / 2], 2 * (v % 2), turn);
                }
                if (turn == 0 || value[v].y > best[v].y) {
                    best[v].y = value[v].y;
                    put_byte(&turns[v / 2], 2 * (v % 2) + 1, turn);
                }
            }
        }
    }
    if (METHOD != SPX_STACK_ARGMAX)
        return;
    /* combine the warps' maxima through shared memory, WARP pairs of the tile at a time */
    float2 *values = reinterpret_cast<float2 *>(shared);
    int2 *indices = reinterpret_cast<int2 *>(values + MOST_THREADS);
    const int some = (int)(k1 - k0 < WARPS ? k1 - k0 : WARPS);
#pragma unroll
    for (int v = 0; v < P; v++) {
        const unsigned bytes = turns[v / 2] >> 16 * (v % 2);
        int2 which = {(int)k0 + (int)(bytes & 0xff) * WARPS + warp, (int)k0 + (int)(bytes >> 8 & 0xff) * WARPS + warp};
        __syncthreads();
        values[threadIdx.x] = best[v];
        indices[threadIdx.x] = which;
        __syncthreads();
        const int64_t t = begin + 2 * lane + v * 2 * WARP;
        if (warp != 0)
            continue;
        for (int g = 1; g < some; g++) {
            const float2 other = values[g * WARP + lane];
            const int2 place = indices[g * WARP + lane];
            if (spx_stack_before((double)other.x, place.x, (double)best[v].x, which.x)) {
                best[v].x = other.x;
                which.x = place.x;
            }
            if (spx_stack_before((double)other.y, place.y, (double)best[v].y, which.y)) {
                best[v].y = other.y;
                which.y = place.y;
            }
        }
        if (t < (int64_t)w.length) {
            w.best[c * w.length + (size_t)t] = best[v].x;
            w.which[c * w.length + (size_t)t] = which.x;
        }
        if (t + 1 < (int64_t)w.length) {
            w.best[c * w.length + (size_t)t + 1] = best[v].y;
            w.which[c * w.length + (size_t)t + 1] = which.y;
        }
    }
}

/* Reduces parts[nparts, n] to the first of their maxima; `add` is added to the indices. A thread takes parts JOINED
 * apart; a block has results x parts. */
enum { JOINED = 8 };

template <typename T>
__global__ void join_kernel(const T *parts, const long long *indices, size_t nparts, size_t n, long long add, T *best,
                            long long *which)
{
    __shared__ T values[JOINED][WARP];
    __shared__ long long places[JOINED][WARP];
    const size_t i = (size_t)blockIdx.x * WARP + threadIdx.x;
    T most = -(T)INFINITY;
    long long where = LLONG_MAX;
    for (size_t p = threadIdx.y; p < nparts && i < n; p += JOINED)
        if (spx_stack_before((double)parts[p * n + i], indices[p * n + i], (double)most, where)) {
            most = parts[p * n + i];
            where = indices[p * n + i];
        }
    values[threadIdx.y][threadIdx.x] = most;
    places[threadIdx.y][threadIdx.x] = where;
    __syncthreads();
    if (threadIdx.y != 0 || i >= n)
        return;
    for (int p = 1; p < JOINED; p++)
        if (spx_stack_before((double)values[p][threadIdx.x], places[p][threadIdx.x], (double)most, where)) {
            most = values[p][threadIdx.x];
            where = places[p][threadIdx.x];
        }
    best[i] = most;
    which[i] = where + add;
}

/* ---- host ---- */

/* Layout of launches: ranges of the shifts of each chunk, and offsets in shared memory of the traces of a block. */
struct layout {
    std::vector<int> low, high, at;
    size_t chunk, nchunk;
    size_t widest = 0; /* elements of shared memory beyond the tile, for the widest block of traces */
    layout(const spx_shifts *sh, size_t k0, size_t n, size_t size) : chunk(size), nchunk((n + size - 1) / size)
    {
        const size_t ntrace = sh->ntrace;
        low.resize(nchunk * ntrace);
        high.resize(nchunk * ntrace);
        at.assign(nchunk * ntrace, 0);
        for (size_t c = 0; c < nchunk; c++)
            spx_stack_range(sh->shift + (k0 + c * chunk) * ntrace, std::min(chunk, n - c * chunk), ntrace, ntrace,
                            &low[c * ntrace], &high[c * ntrace]);
        for (size_t c = 0; c < nchunk; c++)
            for (size_t j0 = 0; j0 < ntrace; j0 += BLOCK) {
                size_t spread = 0;
                for (size_t j = j0; j < std::min(ntrace, j0 + BLOCK); j++)
                    spread += (size_t)((int64_t)high[c * ntrace + j] - low[c * ntrace + j]);
                widest = std::max(widest, spread);
            }
    }
    /* Computes offsets for tiles of this size, two copies of each trace where pairs are read; called only for layouts
     * that fit, so that numbers do not overflow. */
    void place(size_t ntrace, int tile, bool pairs)
    {
        for (size_t c = 0; c < nchunk; c++)
            for (size_t j = 0; j < ntrace; j++) {
                const size_t m = c * ntrace + j, before = m - 1;
                const int n = j % BLOCK == 0 ? 0 : tile + high[before] - low[before];
                at[m] = j % BLOCK == 0 ? 0 : at[before] + (pairs ? 2 * (n + n % 2) : n);
            }
    }
};

/* Most waves of blocks on each multiprocessor; where shifts are too far apart for that, chunks have LEAST_CHUNK
 * shifts. */
constexpr size_t MOST_WAVES = 8;

/* Cost of staging a tile, in units of a read of shared memory. */
constexpr double STAGING = 4;

/* Resources of a device. */
struct resources {
    int processors = 0, block = 0, each = 0; /* number of multiprocessors; shared memory of a block, and of a
                                              * multiprocessor, bytes */
    explicit resources(int device)
    {
        spx::check(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device), "device");
        spx::check(cudaDeviceGetAttribute(&block, cudaDevAttrMaxSharedMemoryPerBlockOptin, device), "device");
        spx::check(cudaDeviceGetAttribute(&each, cudaDevAttrMaxSharedMemoryPerMultiprocessor, device), "device");
    }
};

/* Shape of a launch: samples, or pairs, of a thread; threads of a block, samples of a tile, bytes of shared memory. */
struct shape {
    int v, threads, tile;
    bool pairs, staged;
    size_t segment, bytes;
    double cost; /* estimated cost: reads of shared memory in sequence */
};

/* Tile sizes for which kernels are instantiated, in samples of a thread, and in pairs. */
constexpr int tiles[] = {16, 8, 4}, pair_tiles[] = {9, 8, 7, 6, 5, 4, 3, 2};

/* Chooses the shape of least cost among those whose traces fit the device's shared memory. Costs: samples of the last
 * tile beyond the window; each thread reads one entry of the table for V samples of a trace; staging of a chunk's
 * traces; idle multiprocessors in the last wave. */
template <typename T>
shape choose(size_t chunk, size_t nchunk, size_t widest, size_t ntrace, size_t length, const resources &d)
{
    const bool once = ntrace <= BLOCK;
    const size_t reserved = 1024, together = std::min(ntrace, (size_t)BLOCK);
    /* buffer for combining ARGMAX, in the same memory */
    const size_t combine = MOST_THREADS * 2 * (sizeof(T) + sizeof(int));
    shape best = {8, MOST_THREADS / 4, 8 * GROUP, false, false, 0, combine, 0};
    const auto look = [&](int v, bool pairs) {
        const size_t tile = (size_t)(pairs ? 2 * v * WARP : v * GROUP), ntile = (length + tile - 1) / tile;
        const size_t segment = pairs ? 2 * (together * (tile + 1) + widest) : together * tile + widest;
        const size_t rows = pairs ? MOST_THREADS / WARP : TABLE;
        const size_t bytes = (segment + 3) / 4 * 4 * sizeof(T) + rows * BLOCK * sizeof(entry<T>);
        if (bytes + reserved > (size_t)d.block)
            return;
        /* two small blocks use a multiprocessor as well as a large one, and leave less of it idle in the last wave */
        const size_t several = !pairs && 2 * (bytes + reserved) <= (size_t)d.each ? 2 : 1;
        const int threads = pairs ? (int)MOST_THREADS : threads_of(sizeof(T), once) / (int)several;
        if (chunk > (size_t)(MOST_TURNS * threads / (pairs ? WARP : GROUP)))
            return;
        const size_t at_once = several * (size_t)d.processors, nblock = ntile * nchunk;
        const double turns = (double)((nblock + at_once - 1) / at_once) * (double)several;
        const double read = 1.0 + (double)GROUP / (double)tile * (pairs ? 0.5 : 1.0);
        const double cost = turns * (double)tile * ((double)chunk * read + STAGING * (pairs ? 2 : 1));
        if (best.staged && cost >= best.cost)
            return;
        best = {v, threads, (int)tile, pairs, true, (segment + 3) / 4 * 4, std::max(bytes, combine), cost};
    };
    for (const int v : pair_tiles)
        if (once && sizeof(T) == sizeof(float))
            look(v, true);
    for (const int v : tiles)
        if (!best.pairs)
            look(v, false);
    return best;
}

/* Divides n sets of shifts from k0 on into chunks, and chooses the shape of their launch. */
template <typename T> layout cut(const spx_shifts *sh, size_t k0, size_t n, size_t length, const resources &d, shape *s)
{
    const size_t ntrace = sh->ntrace;
    /* chunks such that each multiprocessor gets `times` blocks of tiles of some size */
    const auto chunk_for = [&](int pairs, size_t times) {
        const size_t tile = (size_t)(2 * pairs * WARP), ntile = (length + tile - 1) / tile;
        const size_t parts = std::max((size_t)1, times * (size_t)d.processors / ntile);
        return std::max((n + parts - 1) / parts, std::min(n, (size_t)LEAST_CHUNK));
    };
    /* where shifts are close, the range of all of them fits */
    const size_t widest = layout(sh, k0, n, n).widest;
    size_t best = 0;
    const auto look = [&](size_t chunk, size_t spread) {
        const shape other = choose<T>(chunk, (n + chunk - 1) / chunk, spread, ntrace, length, d);
        if (best != 0 && (!other.staged || (s->staged && other.cost >= s->cost)))
            return;
        *s = other;
        best = chunk;
    };
    for (const int v : pair_tiles)
        look(chunk_for(v, 1), widest);
    for (size_t times = 1; times <= MOST_WAVES && !s->staged; times *= 2)
        for (const int v : pair_tiles)
            look(chunk_for(v, times), layout(sh, k0, n, chunk_for(v, times)).widest);
    if (!s->staged) {
        best = std::min(n, (size_t)LEAST_CHUNK);
        *s = choose<T>(best, (n + best - 1) / best, layout(sh, k0, n, best).widest, ntrace, length, d);
    }
    return layout(sh, k0, n, best);
}

template <typename T, int V, bool STAGED, bool ONCE> const void *kernel_of(spx_stack_method method)
{
    switch (method) {
    case SPX_STACK_MAX:
        return (const void *)stack_kernel<T, V, STAGED, ONCE, SPX_STACK_MAX>;
    case SPX_STACK_ARGMAX:
        return (const void *)stack_kernel<T, V, STAGED, ONCE, SPX_STACK_ARGMAX>;
    default:
        return (const void *)stack_kernel<T, V, STAGED, ONCE, SPX_STACK_STACK>;
    }
}

template <int P> const void *pair_kernel_of(spx_stack_method method)
{
    return method == SPX_STACK_MAX      ? (const void *)pair_kernel<P, SPX_STACK_MAX>
           : method == SPX_STACK_ARGMAX ? (const void *)pair_kernel<P, SPX_STACK_ARGMAX>
                                        : (const void *)pair_kernel<P, SPX_STACK_STACK>;
}

const void *find_pair_kernel(int pairs, spx_stack_method method)
{
    switch (pairs) {
    case 9:
        return pair_kernel_of<9>(method);
    case 8:
        return pair_kernel_of<8>(method);
    case 7:
        return pair_kernel_of<7>(method);
    case 6:
        return pair_kernel_of<6>(method);
    case 5:
        return pair_kernel_of<5>(method);
    case 4:
        return pair_kernel_of<4>(method);
    case 3:
        return pair_kernel_of<3>(method);
    default:
        return pair_kernel_of<2>(method);
    }
}

template <typename T, bool ONCE> const void *find_kernel(const shape &s, spx_stack_method method)
{
    if (!s.staged)
        return kernel_of<T, 8, false, ONCE>(method);
    if constexpr (ONCE && sizeof(T) == sizeof(float)) {
        if (s.pairs)
            return find_pair_kernel(s.v, method);
    }
    return s.v == 16  ? kernel_of<T, 16, true, ONCE>(method)
           : s.v == 8 ? kernel_of<T, 8, true, ONCE>(method)
                      : kernel_of<T, 4, true, ONCE>(method);
}

/* Sets of shifts [k0, k0 + n) on one device. STACK: value[n, length]; MAX: value[n], index[n]; ARGMAX: value[length],
 * index[length], the best of these shifts. */
template <typename T>
void run_part(int device, const spx_traces *tr, const spx_shifts *sh, const spx_stack_options *o, const spx_stack *out,
              size_t k0, size_t n, T *value, long long *index, int *overflow, double *seconds)
{
    spx::check(cudaSetDevice(device), "device");
    const size_t ntrace = tr->ntrace, length = out->length;
    const spx::array<unsigned long long> start =
        spx::upload(reinterpret_cast<const unsigned long long *>(tr->start), ntrace + 1);
    const spx::array<int> offset = spx::upload(tr->offset, ntrace);
    const spx::array<T> data = spx::upload(static_cast<const T *>(tr->data), tr->nsample);
    spx::array<int> flag(1);
    flag.clear(1);
    /* stacks are copied out in batches that fit the free memory */
    const size_t free_bytes = spx::usable_memory(0);
    const size_t row = (o->earlier != nullptr ? 2 : 1) * length * sizeof(T);
    size_t batch = n;
    if (out->method == SPX_STACK_STACK)
        batch = std::max((size_t)LEAST_CHUNK, std::min(n, free_bytes / 2 / row / LEAST_CHUNK * LEAST_CHUNK));
    batch = std::min(batch, (size_t)LEAST_CHUNK * 65535); /* limit of chunks of a launch */
    const resources have(device);
    spx::array<T> best;
    spx::array<long long> which;
    std::vector<T> part_value;
    std::vector<long long> part_index;
    for (size_t b0 = 0; b0 < n; b0 += batch) {
        const size_t m = std::min(batch, n - b0);
        shape s;
        layout l = cut<T>(sh, k0 + b0, m, length, have, &s);
        const size_t nchunk = l.nchunk;
        const size_t ntile = (length + (size_t)s.tile - 1) / (size_t)s.tile;
        if (s.staged)
            l.place(ntrace, s.tile, s.pairs);
        const spx::array<int> low = spx::upload(l.low.data(), l.low.size());
        const spx::array<int> high = spx::upload(l.high.data(), l.high.size());
        const spx::array<int> at = spx::upload(l.at.data(), l.at.size());
        const spx::array<int> shift = spx::upload(sh->shift + (k0 + b0) * ntrace, m * ntrace);
        const spx::array<T> weight = spx::upload(static_cast<const T *>(sh->weight) + (k0 + b0) * ntrace, m * ntrace);
        spx::array<T> stack, before, parts;
        spx::array<long long> indices;
        const size_t results = out->method == SPX_STACK_MAX ? m : length;
        const size_t nparts = out->method == SPX_STACK_MAX ? ntile * (s.pairs ? 1 : GROUP / WARP) : nchunk;
        if (out->method == SPX_STACK_STACK) {
            stack = spx::array<T>(m * length);
            if (o->earlier != nullptr)
                before = spx::upload(static_cast<const T *>(o->earlier) + (k0 + b0) * length, m * length);
        } else {
            parts = spx::array<T>(nparts * results);
            indices = spx::array<long long>(nparts * results);
            best = spx::array<T>(results);
            which = spx::array<long long>(results);
        }
        work<T> w = {ntrace,      m,           length,        l.chunk,   out->t0,    start.get(), offset.get(),
                     data.get(),  shift.get(), weight.get(),  low.get(), high.get(), at.get(),    before.get(),
                     stack.get(), parts.get(), indices.get(), flag.get()};
        size_t segment = s.segment;
        void *arguments[] = {&w, &segment};
        const void *kernel =
            ntrace <= BLOCK ? find_kernel<T, true>(s, out->method) : find_kernel<T, false>(s, out->method);
        spx::check(spx::allow_shared(kernel, s.bytes), "kernel");
        spx::stopwatch watch;
        spx::check(cudaLaunchKernel(kernel, dim3((unsigned)ntile, (unsigned)nchunk), dim3((unsigned)s.threads),
                                    arguments, s.bytes, nullptr),
                   "launch");
        if (out->method != SPX_STACK_STACK)
            join_kernel<<<spx::blocks(results, WARP), dim3(WARP, JOINED)>>>(
                parts.get(), indices.get(), nparts, results,
                out->method == SPX_STACK_MAX ? (long long)out->t0 : (long long)(k0 + b0), best.get(), which.get());
        spx::check(cudaGetLastError(), "launch");
        *seconds += watch.stop();
        if (out->method == SPX_STACK_STACK) {
            const spx::page_lock page(value + b0 * length, m * length * sizeof(T));
            stack.take(value + b0 * length, m * length);
        } else if (out->method == SPX_STACK_MAX) {
            best.take(value + b0, m);
            which.take(index + b0, m);
        } else {
            part_value.resize(length);
            part_index.resize(length);
            best.take(part_value.data(), length);
            which.take(part_index.data(), length);
            for (size_t t = 0; t < length; t++)
                if (b0 == 0 || part_value[t] > value[t]) {
                    value[t] = part_value[t];
                    index[t] = part_index[t];
                }
        }
    }
    flag.take(overflow, 1);
}

/* Divides all shifts among the devices. */
template <typename T>
double run(const spx_cuda_state *s, const spx_traces *tr, const spx_shifts *sh, const spx_stack_options *o,
           spx_stack *out, int *overflow)
{
    const size_t ndevice = (size_t)s->ndevice, n = sh->nshift;
    std::vector<std::string> failed(ndevice);
    std::vector<int> flags(ndevice, 0);
    std::vector<double> seconds(ndevice, 0);
    std::vector<std::thread> threads;
    std::vector<std::vector<T>> values(ndevice);
    std::vector<std::vector<long long>> indices(ndevice);
    for (size_t d = 0; d < ndevice; d++)
        threads.emplace_back([&, d] {
            const size_t k0 = n * d / ndevice, k1 = n * (d + 1) / ndevice;
            try {
                if (k0 == k1)
                    return;
                T *value = static_cast<T *>(out->value);
                long long *index = nullptr;
                if (out->method == SPX_STACK_STACK) {
                    value += k0 * out->length;
                } else if (out->method == SPX_STACK_MAX) {
                    value += k0;
                    index = reinterpret_cast<long long *>(out->index) + k0;
                } else {
                    values[d].resize(out->length);
                    indices[d].resize(out->length);
                    value = values[d].data();
                    index = indices[d].data();
                }
                run_part<T>(s->device[d], tr, sh, o, out, k0, k1 - k0, value, index, &flags[d], &seconds[d]);
            } catch (const std::exception &x) {
                failed[d] = x.what();
            }
        });
    for (std::thread &t : threads)
        t.join();
    for (size_t d = 0; d < ndevice; d++) {
        if (!failed[d].empty())
            throw spx::failure("device " + std::to_string(s->device[d]) + ": " + failed[d]);
        *overflow |= flags[d];
        for (size_t t = 0; t < values[d].size(); t++)
            if (out->index[t] < 0 || values[d][t] > static_cast<T *>(out->value)[t]) {
                static_cast<T *>(out->value)[t] = values[d][t];
                out->index[t] = indices[d][t];
            }
    }
    return *std::max_element(seconds.begin(), seconds.end());
}

} // namespace

extern "C" spx_status spx_stack_cuda(spx_backend *b, const spx_traces *tr, const spx_shifts *sh,
                                     const spx_stack_options *o, spx_stack *out, spx_err *e)
{
    spx_status st = spx_stack_begin(tr, sh, o, out, e);
    if (st != SPX_OK)
        return st;
    for (size_t t = 0; out->method == SPX_STACK_ARGMAX && t < out->length; t++)
        out->index[t] = -1;
    int overflow = 0;
    st = spx::guarded("stack", e, [&] {
        if (out->precision == 4)
            b->device_seconds = run<float>(spx::state_of(b), tr, sh, o, out, &overflow);
        else
            b->device_seconds = run<double>(spx::state_of(b), tr, sh, o, out, &overflow);
        return SPX_OK;
    });
    if (st == SPX_OK && overflow)
        st = spx_stack_overflow(out->precision, e);
    spx_progress_step(o->progress, sh->nshift);
    return st;
}
