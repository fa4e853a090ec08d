/* Deconvolved flux: M x = y by conjugate gradients, preconditioned with the fibres' own blocks. */
#ifndef SPX_EXTRACT_CUDA_SOLVE_CUH
#define SPX_EXTRACT_CUDA_SOLVE_CUH

#include "extract/extract_cuda_band.cuh"

namespace
{

__global__ void multiply_kernel(work k)
{
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= k.n * k.lanes)
        return;
    const int bin = i / k.lanes, column = i % k.lanes;
    if (k.fibre[column] < 0)
        return;
    const int f = column % k.nl;
    double sum = 0.0;
    for (int df = 0; df <= k.reach; df++)
        for (int dk = k.lo[df]; dk <= k.hi[df]; dk++) {
            const size_t e = (size_t)(k.first[df] + dk - k.lo[df]);
            if (bin + dk >= 0 && bin + dk < k.n && f + df < k.nl)
                sum += k.mat[((size_t)bin * k.nelem + e) * k.lanes + column] *
                       k.d[(size_t)(bin + dk) * k.lanes + column + df];
            if ((df > 0 || dk > 0) && bin - dk >= 0 && bin - dk < k.n && f - df >= 0)
                sum += k.mat[((size_t)(bin - dk) * k.nelem + e) * k.lanes + column - df] *
                       k.d[(size_t)(bin - dk) * k.lanes + column - df];
        }
    k.q[i] = sum;
}

/* z = P^-1 r; block (lanes, segment). Segments begin half as early as those of the factors: the iteration takes the
 * same steps. */
template <int M> __global__ void precondition_kernel(work k)
{
    extern __shared__ double shared[];
    const int column = blockIdx.x * WARP + threadIdx.x;
    if (column >= k.lanes || k.fibre[column] < 0)
        return;
    const segment s(k, blockIdx.y, k.halo / 2);
    const size_t lanes = k.lanes, lrow = (size_t)(k.m + 1) * lanes;
    double *z = k.z + column, *scratch = k.scratch + (size_t)blockIdx.y * (k.seg + 2 * k.halo) * lanes + column;
    const double *l = k.ldl + s.begin * lrow + column;
    solve_forth<M>(s.end - s.begin, k.m, l, lrow, lanes, scratch, lanes, k.r + s.begin * lanes + column, lanes,
                   shared + threadIdx.x, [](int, double v) { return v; });
    solve_back<M>(s.end - s.begin, s.first - s.begin, k.m, l, lrow, lanes, scratch, lanes, shared + threadIdx.x,
                  [&](int j, double v) {
                      if (s.begin + j < s.last)
                          z[(s.begin + j) * lanes] = v;
                  });
}

/* Inner products of each bundle, in parts: block (part, bundle). */
__global__ void dot_kernel(work k, const double *a, const double *c)
{
    __shared__ double partial[256];
    const int part = blockIdx.x, b = blockIdx.y;
    const int k0 = (int)((long)k.n * part / DOT_PARTS), k1 = (int)((long)k.n * (part + 1) / DOT_PARTS);
    double sum = 0.0;
    for (int i = threadIdx.x; i < (k1 - k0) * k.nl; i += blockDim.x) {
        const size_t at = (size_t)(k0 + i / k.nl) * k.lanes + (size_t)b * k.nl + i % k.nl;
        sum += a[at] * c[at];
    }
    partial[threadIdx.x] = sum;
    __syncthreads();
    for (int s = blockDim.x / 2; s > 0; s /= 2) {
        if (threadIdx.x < s)
            partial[threadIdx.x] += partial[threadIdx.x + s];
        __syncthreads();
    }
    if (threadIdx.x == 0)
        k.part[b * DOT_PARTS + part] = partial[0];
}

enum { START, STEP, NEXT };

/* scalar[b]: rz, alpha, beta, what is enough. A bundle that is done has alpha = beta = 0. */
__global__ void scalar_kernel(work k, int what)
{
    const int b = blockIdx.x * blockDim.x + threadIdx.x;
    if (b >= k.nbundle)
        return;
    double sum = 0.0, *s = k.scalar + 4 * b;
    for (int i = 0; i < DOT_PARTS; i++)
        sum += k.part[b * DOT_PARTS + i];
    if (what == START) {
        s[0] = sum;
        s[3] = fmax(k.tolerance * k.tolerance, 1e-26 * sum);
        s[1] = s[2] = 0.0;
    } else if (what == STEP) {
        s[1] = 0.0;
        if (s[0] > s[3]) {
            if (sum > 0.0 && isfinite(sum))
                s[1] = s[0] / sum;
            else
                atomicOr(&k.bad[b], BAD_SOLVE);
        }
    } else {
        s[2] = s[0] > s[3] && s[1] != 0.0 ? sum / s[0] : 0.0;
        if (s[1] != 0.0)
            s[0] = sum;
    }
}

__global__ void start_kernel(work k)
{
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < k.n * k.lanes) {
        k.r[i] = k.y[i];
        k.x[i] = 0.0;
    }
}

__global__ void update_kernel(work k)
{
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= k.n * k.lanes)
        return;
    const double alpha = k.scalar[4 * (i % k.lanes / k.nl) + 1];
    if (alpha != 0.0) {
        k.x[i] += alpha * k.d[i];
        k.r[i] -= alpha * k.q[i];
    }
}

__global__ void direction_kernel(work k)
{
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < k.n * k.lanes)
        k.d[i] = k.z[i] + k.scalar[4 * (i % k.lanes / k.nl) + 2] * k.d[i];
}

/* Steps that nearly all frames take, and that nobody waits for. */
enum { LEAST_STEPS = 4 };

/* scalar: page-locked, of the bundles, and k.bad and k.torn after it. When the factors are there, meanwhile() is called
 * as often as the host waits. */
template <class MEANWHILE> spx_status solve(work &k, slot *s, double *scalar, int *bad, MEANWHILE meanwhile, spx_err *e)
{
    const size_t bins = (size_t)k.n * k.lanes;
    const dim3 parts(DOT_PARTS, k.nbundle);
    const unsigned few = blocks(k.nbundle, 32), each = blocks(bins, 128), column = blocks(k.lanes, 32);
    const size_t bytes = stream_bytes(k.m, k.m + 2);
    cut_lanes(k);
    for (int step = 0; step < MOST_STEPS; step++) {
        const dim3 segments(column, k.nseg);
        if (step == 0) {
            BY_BAND(k.m, factorise_kernel, <<<segments, 32, bytes, s->stream>>>(k))
            if (k.nseg > 1)
                seams_kernel<<<dim3(column, k.m, k.nseg - 1), 32, 0, s->stream>>>(k);
            start_kernel<<<each, 128, 0, s->stream>>>(k);
        } else {
            multiply_kernel<<<each, 128, 0, s->stream>>>(k);
            dot_kernel<<<parts, 256, 0, s->stream>>>(k, k.d, k.q);
            scalar_kernel<<<few, 32, 0, s->stream>>>(k, STEP);
            update_kernel<<<each, 128, 0, s->stream>>>(k);
        }
        BY_BAND(k.m, precondition_kernel, <<<segments, 32, bytes, s->stream>>>(k))
        dot_kernel<<<parts, 256, 0, s->stream>>>(k, k.r, k.z);
        scalar_kernel<<<few, 32, 0, s->stream>>>(k, step == 0 ? START : NEXT);
        direction_kernel<<<each, 128, 0, s->stream>>>(k);
        TRY(cudaGetLastError());
        if (step > 0 && step < LEAST_STEPS) /* a bundle that is done does not change any more */
            continue;
        PASS(get(s, scalar, k.scalar, 4 * (size_t)k.nbundle, e));
        PASS(get(s, bad, k.bad, (size_t)k.nbundle + 1, e));
        TRY(cudaEventRecord(s->stepped, s->stream));
        for (bool there = false; !there;) {
            PASS(is_over(s->stepped, &there, e));
            if (!there && step > 0)
                PASS(meanwhile());
        }
        if (step == 0 && bad[k.nbundle] != 0 && k.nseg > 1) { /* segments do not fit together */
            one_piece(k);
            step = -1;
            continue;
        }
        PASS(meanwhile());
        int busy = 0;
        for (int b = 0; b < k.nbundle; b++)
            busy |= scalar[4 * b] > scalar[4 * b + 3] && (step == 0 || scalar[4 * b + 1] != 0.0);
        if (!busy)
            break;
    }
    return SPX_OK;
}

} // namespace

#endif
