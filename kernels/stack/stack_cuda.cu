/* Shift-and-stack on a CUDA device.
 *
 * A block of threads makes a tile of samples for a chunk of shifts, a group of its threads for each set of shifts at a
 * time. The parts of the traces that a chunk needs are brought to shared memory once, with zeros around their ends, and
 * read from there at any shift without bank conflicts: each term costs one read of shared memory, which is the limit.
 * Chunks are as large as keep all multiprocessors busy to the end, or smaller where shifts lie so far apart that the
 * parts do not fit otherwise; where they never do, threads read the traces through the caches.
 *
 * Sums are taken in the order of the definition (stack.h), so that results are the CPU's to the last bit. Maxima are
 * joined by warp, or by the groups of a block, and by a second kernel; the first of equal values counts everywhere. */
#include <algorithm>
#include <climits>
#include <thread>
#include <vector>

#include "cuda.cuh"
#include "stack/stack_math.h"

namespace
{

enum {
    WARP = 32,
    GROUP = 64,
    MOST_THREADS = 1024,
    TABLE = 64,       /* sets of shifts whose table is in shared memory at a time */
    LEAST_CHUNK = 64, /* where shifts lie far apart */
    MOST_TURNS = 255, /* of a group in a chunk: ARGMAX counts them in a byte */
    BLOCK = SPX_STACK_BLOCK
};

/* Threads of a block: as many as the registers allow that a thread needs. */
constexpr int threads_of(size_t item, bool once)
{
    return item == sizeof(float) && once ? MOST_THREADS : MOST_THREADS / 2;
}

/* Where a trace's samples lie in shared memory for one set of shifts, and what they are multiplied by. */
template <typename T> struct entry {
    int at;
    T weight;
};

/* What a launch works on. Shifts k0 ... k0 + nshift - 1 of the run, in chunks; the arrays begin there. */
template <typename T> struct work {
    size_t ntrace, nshift, length, chunk;
    int64_t t0;
    const unsigned long long *start;
    const int *offset;
    const T *data;
    const int *shift;           /* [nshift, ntrace] */
    const T *weight;            /* [nshift, ntrace] */
    const int *low, *high, *at; /* [chunk, ntrace]: range of the shifts; place of the trace in shared memory */
    const T *earlier;           /* [nshift, length] or NULL */
    T *stack;                   /* STACK: [nshift, length] */
    T *best;                    /* MAX: [tile, warp of a group, nshift]; ARGMAX: [chunk, length] */
    long long *which;           /* the same */
    int *overflow;
};

template <typename T> __device__ bool finite(T x)
{
    return x - x == T(0);
}

/* Bring traces [j0, j1) of chunk c for the tile that begins at sample `begin` to shared memory, a trace a warp. */
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

/* Reads of traces [j0, j1) for sets of shifts k ... k + nk - 1 of the chunk: table[nk, BLOCK]. */
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

/* Whether the lane's value is the warp's largest, of which the one with the smallest index counts; an index of UINT_MAX
 * is no value. */
__device__ bool is_warp_max(float value, unsigned index)
{
    const int bits = __float_as_int(value + 0.0f); /* there is one zero */
    const int rank = index == UINT_MAX ? INT_MIN : bits >= 0 ? bits : bits ^ INT_MAX;
    const int most = __reduce_max_sync(0xffffffffu, rank);
    return index == __reduce_min_sync(0xffffffffu, rank == most ? index : UINT_MAX) && index != UINT_MAX;
}

__device__ bool is_warp_max(double value, unsigned index)
{
    double most = value;
    unsigned where = index;
    for (int step = WARP / 2; step > 0; step /= 2) {
        const double v = __shfl_xor_sync(0xffffffffu, most, step);
        const unsigned i = __shfl_xor_sync(0xffffffffu, where, step);
        if (where == UINT_MAX || (i != UINT_MAX && spx_stack_before(v, i, most, where))) {
            most = v;
            where = i;
        }
    }
    return index == where && index != UINT_MAX;
}

/* What sample t of stack k is added to. */
template <typename T, int METHOD> __device__ double earlier_at(const work<T> &w, size_t k, size_t k1, int64_t t)
{
    return METHOD == SPX_STACK_STACK && w.earlier != nullptr && k < k1 && t < (int64_t)w.length
               ? (double)w.earlier[k * w.length + (size_t)t]
               : 0.0;
}

/* Tile blockIdx.x, chunk blockIdx.y. Each thread has V samples, GROUP apart. STAGED: through shared memory. ONCE: all
 * traces are one block. */
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
    unsigned turns[(V + 3) / 4] = {0}; /* ARGMAX: of each of V samples, in a byte, the group's turn that was best */
    unsigned turn = 0;
    int row0 = 0; /* of the table: of the group's turn */
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
                    /* the next one is on its way while this one is used */
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
            /* of a group's warps, those that reach the window */
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
                    turns[v / 4] = __byte_perm(turns[v / 4], turn, 0x3210u + (4u - v % 4) * (1u << 4 * (v % 4)));
                }
        }
    }
    if (METHOD != SPX_STACK_ARGMAX)
        return;
    /* the groups' maxima, through shared memory, a sample of the tile at a time */
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

/* parts[nparts, n] to the first of their maxima; `add` to the indices. A thread JOINED parts apart, results x parts a
 * block. */
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

/* ---- the host's side ---- */

/* Ranges of the shifts of each chunk, and the places of the traces of a block in shared memory. */
struct layout {
    std::vector<int> low, high, at;
    size_t chunk, nchunk;
    size_t widest = 0; /* elements of shared memory beyond the tiles, for the widest block of traces */
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
    /* places for tiles of this size; only where they are used, so that the numbers fit */
    void place(size_t ntrace, int tile)
    {
        for (size_t c = 0; c < nchunk; c++)
            for (size_t j = 0; j < ntrace; j++)
                at[c * ntrace + j] =
                    j % BLOCK == 0 ? 0
                                   : at[c * ntrace + j - 1] + tile + high[c * ntrace + j - 1] - low[c * ntrace + j - 1];
    }
};

/* What it takes to bring a tile to shared memory, in reads of it. */
constexpr double STAGING = 4;

/* What a device has. */
struct resources {
    int processors = 0, block = 0, each = 0; /* multiprocessors; bytes of shared memory of a block, of one of them */
    explicit resources(int device)
    {
        spx::check(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device), "device");
        spx::check(cudaDeviceGetAttribute(&block, cudaDevAttrMaxSharedMemoryPerBlockOptin, device), "device");
        spx::check(cudaDeviceGetAttribute(&each, cudaDevAttrMaxSharedMemoryPerMultiprocessor, device), "device");
    }
};

/* How a launch is cut: samples of a thread, threads of a block, shared memory. */
struct shape {
    int v, threads;
    bool staged;
    size_t segment, bytes;
    double cost; /* reads of shared memory that follow each other */
};

/* Sizes of tiles, in samples of a thread, that there are kernels for; those that are not marked only for float32 and
 * with ONCE. */
const struct {
    int v;
    bool always;
} tiles[] = {{16, true}, {14, false}, {12, false}, {10, false}, {8, true}, {4, true}};

/* The tiles that cost least of those whose traces fit into the device's shared memory: samples beyond the window are
 * wasted, every thread reads an entry of the table for each of its V samples of a trace, a chunk's traces have to come,
 * and at the end some multiprocessors have nothing to do. */
template <typename T> shape choose(const layout &l, size_t ntrace, size_t length, const resources &d)
{
    const bool once = ntrace <= BLOCK;
    const int threads = threads_of(sizeof(T), once);
    const size_t reserved = 1024;
    const size_t combine = MOST_THREADS * (sizeof(T) + sizeof(int)); /* of ARGMAX, in the same place */
    shape best = {8, MOST_THREADS / 4, false, 0, combine, 0};
    for (const auto &t : tiles) {
        const size_t tile = (size_t)t.v * GROUP, ntile = (length + tile - 1) / tile;
        const size_t segment = (std::min(ntrace, (size_t)BLOCK) * tile + l.widest + 3) / 4 * 4;
        const size_t bytes = segment * sizeof(T) + TABLE * BLOCK * sizeof(entry<T>);
        if ((!t.always && (!once || sizeof(T) != sizeof(float))) || bytes + reserved > (size_t)d.block)
            continue;
        /* several small blocks keep a multiprocessor as busy as a large one, and leave less idle at the end */
        const size_t several = 2 * (bytes + reserved) <= (size_t)d.each ? 2 : 1;
        const size_t at_once = several * (size_t)d.processors, nblock = ntile * l.nchunk;
        const double turns = (double)((nblock + at_once - 1) / at_once) * (double)several;
        const double cost = turns * (double)tile * ((double)l.chunk * (1.0 + 1.0 / t.v) + STAGING);
        if (best.staged && cost >= best.cost)
            continue;
        best = {t.v, threads / (int)several, true, segment, std::max(bytes, combine), cost};
    }
    return best;
}

/* Chunks for n sets of shifts from k0 on, and how they are launched. */
template <typename T> layout cut(const spx_shifts *sh, size_t k0, size_t n, size_t length, const resources &d, shape *s)
{
    const size_t ntrace = sh->ntrace, ngroup = (size_t)threads_of(sizeof(T), ntrace <= BLOCK) / GROUP;
    /* so many as one block of each multiprocessor takes of the largest tiles; halves, thirds of it ... */
    const size_t ntile = (length + 16 * GROUP - 1) / (16 * GROUP);
    const size_t most = std::min(n, (size_t)MOST_TURNS * ngroup / 2);
    layout best(sh, k0, n, std::min(n, (size_t)LEAST_CHUNK));
    *s = choose<T>(best, ntrace, length, d);
    for (size_t parts = std::max((size_t)1, (size_t)d.processors / ntile); parts * LEAST_CHUNK < n; parts *= 2) {
        const size_t chunk = std::min(most, ((n + parts - 1) / parts + ngroup - 1) / ngroup * ngroup);
        layout l(sh, k0, n, chunk);
        const shape other = choose<T>(l, ntrace, length, d);
        if (other.staged && (!s->staged || other.cost < s->cost)) {
            *s = other;
            best = std::move(l);
        }
    }
    return best;
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

template <typename T, bool ONCE> const void *find_kernel(const shape &s, spx_stack_method method)
{
    if (!s.staged)
        return kernel_of<T, 8, false, ONCE>(method);
    if constexpr (ONCE && sizeof(T) == sizeof(float)) {
        if (s.v == 14)
            return kernel_of<T, 14, true, true>(method);
        if (s.v == 12)
            return kernel_of<T, 12, true, true>(method);
        if (s.v == 10)
            return kernel_of<T, 10, true, true>(method);
    }
    return s.v == 16  ? kernel_of<T, 16, true, ONCE>(method)
           : s.v == 8 ? kernel_of<T, 8, true, ONCE>(method)
                      : kernel_of<T, 4, true, ONCE>(method);
}

/* Host memory that the device reaches itself: copies run at the speed of the bus. Where it cannot be pinned, they are
 * slower. */
class pinned
{
  public:
    pinned(void *p, size_t bytes) : p_(cudaHostRegister(p, bytes, cudaHostRegisterDefault) == cudaSuccess ? p : nullptr)
    {
        (void)cudaGetLastError();
    }
    pinned(const pinned &) = delete;
    pinned &operator=(const pinned &) = delete;
    ~pinned()
    {
        if (p_ != nullptr)
            (void)cudaHostUnregister(p_);
    }

  private:
    void *p_;
};

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
    /* stacks go out in batches that leave room on the device */
    size_t free_bytes = 0, all_bytes = 0;
    spx::check(cudaMemGetInfo(&free_bytes, &all_bytes), "device memory");
    const size_t row = (o->earlier != nullptr ? 2 : 1) * length * sizeof(T);
    size_t batch = n;
    if (out->method == SPX_STACK_STACK)
        batch = std::max((size_t)LEAST_CHUNK, std::min(n, free_bytes / 2 / row / LEAST_CHUNK * LEAST_CHUNK));
    batch = std::min(batch, (size_t)LEAST_CHUNK * 65535); /* chunks of a launch */
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
        const size_t tile = (size_t)s.v * GROUP, ntile = (length + tile - 1) / tile;
        if (s.staged)
            l.place(ntrace, (int)tile);
        const spx::array<int> low = spx::upload(l.low.data(), l.low.size());
        const spx::array<int> high = spx::upload(l.high.data(), l.high.size());
        const spx::array<int> at = spx::upload(l.at.data(), l.at.size());
        const spx::array<int> shift = spx::upload(sh->shift + (k0 + b0) * ntrace, m * ntrace);
        const spx::array<T> weight = spx::upload(static_cast<const T *>(sh->weight) + (k0 + b0) * ntrace, m * ntrace);
        spx::array<T> stack, before, parts;
        spx::array<long long> indices;
        const size_t results = out->method == SPX_STACK_MAX ? m : length;
        const size_t nparts = out->method == SPX_STACK_MAX ? ntile * (GROUP / WARP) : nchunk;
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
        spx::check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)s.bytes), "kernel");
        spx::stopwatch watch;
        spx::check(cudaLaunchKernel(kernel, dim3((unsigned)ntile, (unsigned)nchunk), dim3((unsigned)s.threads),
                                    arguments, s.bytes, nullptr),
                   "launch");
        if (out->method != SPX_STACK_STACK)
            join_kernel<<<(unsigned)((results + WARP - 1) / WARP), dim3(WARP, JOINED)>>>(
                parts.get(), indices.get(), nparts, results,
                out->method == SPX_STACK_MAX ? (long long)out->t0 : (long long)(k0 + b0), best.get(), which.get());
        spx::check(cudaGetLastError(), "launch");
        *seconds += watch.stop();
        if (out->method == SPX_STACK_STACK) {
            const pinned page(value + b0 * length, m * length * sizeof(T));
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

/* All shifts, shared out among the devices. */
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
