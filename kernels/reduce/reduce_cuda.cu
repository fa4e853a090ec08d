/* Provides reductions along an axis on a CUDA device (reduce/reduce.h).
 *
 * Short lines that lie side by side (inner >= 32) take a thread each, in the order of the axis: the sums are the CPU's
 * to the last bit. Others are cut into slices, a warp each, whose lanes are joined in a fixed order: minima, maxima,
 * places and medians are the CPU's; sums, which carry twice the digits of a double, differ from it by one rounding at
 * most. */
#include <cmath>
#include <vector>

#include "cuda/backend.cuh"
#include "cuda/reduce.cuh"
#include "reduce/reduce_math.h"

using spx::FULL;
using spx::WARP;

enum { THREADS = 128, MOST_SLICES = 512, SHORTEST_SLICE = 4096, DIGIT = 8, BINS = 1 << DIGIT };

/* Partial result. */
struct part {
    double value, rest;
    long long index;
    unsigned long long count;
};

static __device__ void add(spx_reduce_op op, int skip, const double *data, size_t at, long long i, part *p,
                           unsigned long long *bad)
{
    const double x = data[at];
    int64_t index = p->index;
    uint64_t count = p->count;
    if (isfinite(x))
        spx_reduce_one(op, x, i, &p->value, &p->rest, &index, &count);
    else if (!skip)
        atomicMin(bad, (unsigned long long)at);
    p->index = index;
    p->count = count;
}

static __global__ void fold_lines(const double *__restrict__ data, size_t outer, size_t n, size_t inner, size_t first,
                                  spx_reduce_op op, int skip, part *out, unsigned long long *bad)
{
    const size_t k = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (k >= outer * inner)
        return;
    const size_t at = k / inner * n * inner + k % inner;
    part p = {0, 0, 0, 0};
    for (size_t a = 0; a < n; a++)
        add(op, skip, data, at + a * inner, (long long)(first + a), &p, bad);
    out[k] = p;
}

/* Reduces slice blockIdx.y of line k, elements [y * length, (y + 1) * length), a warp each. out[line, slice]. */
static __global__ void fold_slices(const double *__restrict__ data, size_t lines, size_t n, size_t inner, size_t first,
                                   size_t length, spx_reduce_op op, int skip, part *out, unsigned long long *bad)
{
    const size_t k = (size_t)blockIdx.x * (blockDim.x / WARP) + threadIdx.x / WARP;
    const unsigned lane = threadIdx.x % WARP;
    if (k >= lines)
        return;
    const size_t at = k / inner * n * inner + k % inner, begin = blockIdx.y * length;
    const size_t end = begin + length < n ? begin + length : n;
    part p = {0, 0, 0, 0};
    for (size_t a = begin + lane; a < end; a += WARP)
        add(op, skip, data, at + a * inner, (long long)(first + a), &p, bad);
    for (unsigned step = WARP / 2; step > 0; step /= 2) {
        const double value = __shfl_down_sync(FULL, p.value, step);
        const double rest = __shfl_down_sync(FULL, p.rest, step);
        const long long i = __shfl_down_sync(FULL, p.index, step);
        const unsigned long long m = __shfl_down_sync(FULL, p.count, step);
        int64_t index = p.index;
        uint64_t count = p.count;
        spx_reduce_merge(op, value, rest, i, m, &p.value, &p.rest, &index, &count);
        p.index = index;
        p.count = count;
    }
    if (lane == 0)
        out[k * gridDim.y + blockIdx.y] = p;
}

/* Medians: a block finds the key of one rank by radix selection, 8 bits at a time, and then the next larger key.
 * Defined as in spx_reduce_select. */
static __global__ void medians(const double *__restrict__ data, size_t lines, size_t n, size_t inner, int skip,
                               part *out, unsigned long long *bad)
{
    __shared__ unsigned long long histogram[BINS], prefix, rank, count, upto, next;
    for (size_t k = blockIdx.x; k < lines; k += gridDim.x) {
        const size_t at = k / inner * n * inner + k % inner;
        if (threadIdx.x == 0) {
            prefix = count = upto = 0;
            next = ~0ull;
        }
        for (int shift = 64 - DIGIT; shift >= -DIGIT; shift -= DIGIT) {
            const bool last = shift < 0;
            for (unsigned i = threadIdx.x; i < BINS; i += blockDim.x)
                histogram[i] = 0;
            __syncthreads();
            const unsigned long long known = prefix;
            unsigned long long mine = 0, least = ~0ull;
            for (size_t a = threadIdx.x; a < n; a += blockDim.x) {
                const double x = data[at + a * inner];
                if (!isfinite(x)) {
                    if (!skip)
                        atomicMin(bad, (unsigned long long)(at + a * inner));
                    continue;
                }
                /* 0 and -0 are equal */
                const unsigned long long key = spx::key_of(x + 0.0);
                if (last) {
                    mine += key <= known;
                    least = key > known && key < least ? key : least;
                } else if (shift == 64 - DIGIT || key >> (shift + DIGIT) == known) {
                    atomicAdd(&histogram[key >> shift & (BINS - 1)], 1ull);
                    mine += shift == 64 - DIGIT;
                }
            }
            if (last) {
                atomicAdd(&upto, mine);
                atomicMin(&next, least);
            } else if (mine > 0) {
                atomicAdd(&count, mine);
            }
            __syncthreads();
            if (threadIdx.x == 0 && !last) {
                if (shift == 64 - DIGIT)
                    rank = count > 0 ? (count - 1) / 2 : 0;
                unsigned digit = 0;
                while (digit + 1 < BINS && rank >= histogram[digit])
                    rank -= histogram[digit++];
                prefix = prefix << DIGIT | digit;
            }
            __syncthreads();
        }
        if (threadIdx.x == 0) {
            const double low = spx::of_key(prefix);
            const double high = count % 2 == 0 && upto <= count / 2 ? spx::of_key(next) : low;
            out[k] = {count > 0 ? low + (high - low) / 2.0 : 0.0, 0.0, 0, count};
        }
        __syncthreads();
    }
}

/* Merges the partial results of line k, in order, into result k. */
static void join(const std::vector<part> &parts, size_t slices, spx_reduce *r)
{
    for (size_t k = 0; k < r->nout; k++)
        for (size_t s = 0; s < slices; s++) {
            const part &p = parts[k * slices + s];
            if (r->op == SPX_REDUCE_MEDIAN) {
                r->value[k] = p.value;
                r->count[k] = p.count;
            } else {
                spx_reduce_merge(r->op, p.value, p.rest, p.index, p.count, &r->value[k], &r->rest[k], &r->index[k],
                                 &r->count[k]);
            }
        }
}

static double run(const double *data, size_t outer, size_t n, size_t inner, size_t first, spx_reduce *r, size_t *bad)
{
    const size_t lines = outer * inner;
    const bool together = inner >= WARP || lines * 8 >= n * 1024;
    /* the number of slices depends on the shape alone, for reproducible sums */
    size_t slices = r->op == SPX_REDUCE_MEDIAN || together ? 1 : (n + SHORTEST_SLICE - 1) / SHORTEST_SLICE;
    slices = slices > MOST_SLICES ? (size_t)MOST_SLICES : slices;
    const size_t length = (n + slices - 1) / slices;
    spx::array<double> d = spx::upload(data, lines * n);
    spx::array<part> out(lines * slices);
    spx::array<unsigned long long> worst(1);
    spx::check(cudaMemset(worst.get(), 0xff, sizeof(unsigned long long)), "device memory");
    spx::stopwatch watch;
    if (r->op == SPX_REDUCE_MEDIAN)
        medians<<<(unsigned)(lines < 65535 ? lines : 65535), 256>>>(d.get(), lines, n, inner, r->skip, out.get(),
                                                                    worst.get());
    else if (together)
        fold_lines<<<spx::blocks(lines, THREADS), THREADS>>>(d.get(), outer, n, inner, first, r->op, r->skip, out.get(),
                                                             worst.get());
    else
        fold_slices<<<dim3(spx::blocks(lines, THREADS / WARP), (unsigned)slices), THREADS>>>(
            d.get(), lines, n, inner, first, length, r->op, r->skip, out.get(), worst.get());
    spx::check(cudaGetLastError(), "launch");
    const double seconds = watch.stop();
    std::vector<part> parts(lines * slices);
    unsigned long long place;
    out.take(parts.data(), parts.size());
    worst.take(&place, 1);
    *bad = place == ~0ull ? SIZE_MAX : (size_t)place;
    join(parts, slices, r);
    return seconds;
}

extern "C" spx_status spx_reduce_cuda(spx_backend *b, const double *data, size_t outer, size_t n, size_t inner,
                                      size_t first, int nthreads, spx_reduce *r, size_t *bad, spx_err *e)
{
    (void)nthreads;
    const spx_status st = spx::guarded("reduce", e, [&] {
        (void)spx::use_first(b);
        b->device_seconds = run(data, outer, n, inner, first, r, bad);
        return SPX_OK;
    });
    return st == SPX_OK && *bad != SIZE_MAX ? spx_reduce_refuse(data, *bad, e) : st;
}
