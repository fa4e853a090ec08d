/* Computes the steps of the fibre flat field on a CUDA device (flat/flat_engine.h). Sums over fibres are taken in
 * chunks, in order, so that results are the same bits from run to run; from the CPU they differ by rounding. The bands
 * of the lamps' spectra are factored by the host. */
#include <cmath>

#include "calib/calib.cuh"
#include "cuda/backend.cuh"
#include "cuda/reduce.cuh"
#include "flat/flat_math.h"
extern "C" {
#include "flat/flat_engine.h"
}

namespace
{

using spx::WARP;
using spx::calib::FIBRES;

constexpr int THREADS = 128, WARPS = THREADS / WARP;

/* Shapes, and arrays of all exposures: [nexp][nspec][...]. */
struct view {
    size_t nexp, ns, n, ndiag, nint, nspline, nblock;
    double reject;
    int native;
    const double *flux, *ivar, *resolution, *basis;
    const uint32_t *mask, *first;
    const size_t *begin;
    const uint8_t *use;
    uint8_t *state;
    double *flat, *last;       /* [ns][n] */
    double *x, *p, *q, *v, *r; /* x, v, r: [nexp][ns][n]; p, q: [ns][n] */
    double *sum;               /* [ns][nint][SPX_FLAT_SUMS] */
};

/* Arrays of a fibre's splines, in shared memory: band, right-hand side, band of the inverse. */
__host__ __device__ inline size_t spline_bytes(size_t nspline, bool inverse)
{
    return (inverse ? 9 : 5) * nspline * sizeof(double);
}

/* F and the states of the bins before the first pass; x = 0. Fibre: blockIdx.y. */
__global__ void begin_kernel(view w, const double *level, const double *median)
{
    const size_t k = blockIdx.x * (size_t)blockDim.x + threadIdx.x, i = blockIdx.y, at = i * w.n + k;
    if (k >= w.n)
        return;
    const double start = spx_flat_start(w.nblock, level + i * w.nblock, k);
    w.flat[at] = w.last[at] = start;
    for (size_t x = 0; x < w.nexp; x++) {
        const size_t here = x * w.ns * w.n + at;
        w.state[here] =
            spx_flat_first_state(w.flux[here], w.ivar[here], w.mask[here], start * median[x * w.n + k], w.reject);
        w.x[here] = 0;
    }
}

/* p = sum w x^2 and q = sum w x D of the bins that are in the fit. Fibre: blockIdx.y. */
__global__ void weights_kernel(view w)
{
    const size_t k = blockIdx.x * (size_t)blockDim.x + threadIdx.x, at = blockIdx.y * w.n + k;
    if (k >= w.n)
        return;
    double p = 0, q = 0;
    for (size_t x = 0; x < w.nexp; x++) {
        const size_t here = x * w.ns * w.n + at;
        if (w.state[here] != SPX_FLAT_USABLE)
            continue;
        p += w.ivar[here] * w.x[here] * w.x[here];
        q += w.ivar[here] * w.x[here] * w.flux[here];
    }
    w.p[at] = p;
    w.q[at] = q;
}

/* Sums of the intervals of fibre blockIdx.x, one warp each, and how many bins they have. */
__device__ void sum_intervals(const view &w, size_t i, uint32_t *count)
{
    const int lane = threadIdx.x % WARP;
    for (size_t t = threadIdx.x / WARP; t < w.nint; t += WARPS) {
        double sum[SPX_FLAT_SUMS] = {};
        uint32_t bins = 0;
        for (size_t k = w.begin[t] + lane; k < w.begin[t + 1]; k += WARP)
            if (w.p[i * w.n + k] > 0) {
                spx_flat_add(w.basis + 4 * k, w.p[i * w.n + k], w.q[i * w.n + k], sum);
                bins++;
            }
        for (int s = 0; s < SPX_FLAT_SUMS; s++) {
            const double total = spx::warp_sum(sum[s]);
            if (lane == 0)
                w.sum[(i * w.nint + t) * SPX_FLAT_SUMS + s] = total;
        }
        bins = spx::warp_sum(bins);
        if (lane == 0 && count != nullptr)
            count[i * w.nint + t] = bins;
    }
}

/* F of fibre blockIdx.x, its level and numbers of bins. */
__global__ void fit_kernel(view w, double *level, uint32_t *count)
{
    extern __shared__ double shared[];
    __shared__ double partial[2][WARPS];
    __shared__ int light;
    const size_t i = blockIdx.x;
    double *band = shared, *rhs = shared + 4 * w.nspline, p = 0, q = 0;
    sum_intervals(w, i, count);
    for (size_t k = threadIdx.x; k < w.n; k += THREADS) {
        p += w.p[i * w.n + k];
        q += w.q[i * w.n + k];
    }
    p = spx::block_sum<WARPS>(p, partial[0]);
    q = spx::block_sum<WARPS>(q, partial[1]);
    __syncthreads(); /* sums of all intervals */
    if (threadIdx.x == 0) {
        level[i] = p > 0 ? q / p : 0;
        light = spx_flat_assemble(w.nspline, w.sum + i * w.nint * SPX_FLAT_SUMS, band, rhs);
        if (light) {
            (void)spx_band_factor(w.nspline, 3, band, 1e-13, band);
            spx_band_solve(w.nspline, 3, band, rhs);
        }
    }
    __syncthreads();
    for (size_t k = threadIdx.x; k < w.n; k += THREADS)
        w.flat[i * w.n + k] = light ? spx_flat_value(w.basis + 4 * k, rhs + w.first[k]) : 0;
}

/* Tests the bins of row blockIdx.x, exposure * ns + fibre, again; weights of those that are in, and of fibres in use
 * weighted residuals and the sums of w f D and w f^2. */
__global__ void test_kernel(view w, int test, double *t, double *s)
{
    __shared__ double partial[2][WARPS];
    const size_t row = blockIdx.x, i = row % w.ns;
    const double limit = w.reject * w.reject;
    const bool use = w.use[i] != 0;
    double mt = 0, ms = 0;
    for (size_t k = threadIdx.x; k < w.n; k += THREADS) {
        const size_t at = row * w.n + k;
        const double flat = w.flat[i * w.n + k], model = flat * w.x[at];
        double v = 0, r = 0;
        if ((w.state[at] & SPX_FLAT_USABLE) != 0) {
            const double left = w.flux[at] - model, ivar = w.ivar[at];
            if (test)
                w.state[at] = left * left * ivar > limit ? SPX_FLAT_USABLE | SPX_FLAT_REJECTED : SPX_FLAT_USABLE;
            if (w.state[at] == SPX_FLAT_USABLE)
                v = ivar * flat * flat;
            if (w.state[at] == SPX_FLAT_USABLE && use) {
                r = ivar * flat * left;
                mt += ivar * model * w.flux[at];
                ms += ivar * model * model;
            }
        }
        w.v[at] = v;
        w.r[at] = r;
    }
    mt = spx::block_sum<WARPS>(mt, partial[0]);
    ms = spx::block_sum<WARPS>(ms, partial[1]);
    if (threadIdx.x == 0) {
        t[row] = mt;
        s[row] = ms;
    }
}

/* Chunk blockIdx.y of the fibres of exposure blockIdx.z: R^T r and the sum of v, part[chunk][2][nexp][n]. */
__global__ void gradient_kernel(view w, double *part)
{
    const size_t j = blockIdx.x * (size_t)blockDim.x + threadIdx.x, chunk = blockIdx.y, x = blockIdx.z;
    if (j >= w.n)
        return;
    const size_t end = (chunk + 1) * FIBRES < w.ns ? (chunk + 1) * FIBRES : w.ns;
    double y = 0, v = 0;
    for (size_t i = chunk * FIBRES; i < end; i++) {
        if (!w.use[i])
            continue;
        const size_t row = x * w.ns + i;
        const double *resolution = w.resolution + row * w.ndiag * w.n, *r = w.r + row * w.n;
        for (size_t b = 0; b < w.ndiag; b++) {
            const long k = (long)j + (long)b - (long)(w.ndiag / 2);
            if (k >= 0 && k < (long)w.n)
                y += resolution[b * w.n + j] * r[k];
        }
        v += w.v[row * w.n + j];
    }
    part[((chunk * 2) * w.nexp + x) * w.n + j] = y;
    part[((chunk * 2 + 1) * w.nexp + x) * w.n + j] = v;
}

/* Sum of rows[rows of chunk blockIdx.y of which][n] over the fibres that are chosen. */
__global__ void rows_kernel(size_t ns, size_t n, const uint8_t *which, const double *rows, double *part)
{
    const size_t k = blockIdx.x * (size_t)blockDim.x + threadIdx.x, chunk = blockIdx.y;
    if (k >= n)
        return;
    const size_t end = (chunk + 1) * FIBRES < ns ? (chunk + 1) * FIBRES : ns;
    double sum = 0;
    for (size_t i = chunk * FIBRES; i < end; i++)
        if (which[i])
            sum += rows[i * n + k];
    part[chunk * n + k] = sum;
}

__global__ void mean_kernel(size_t n, double nref, double *mean)
{
    const size_t k = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    if (k < n)
        mean[k] = mean[k] > 0 ? mean[k] / nref : 1;
}

/* Normalised F of chunk blockIdx.y of the fibres, and its largest change, of the fibres ref. */
__global__ void change_kernel(view w, const uint8_t *ref, const double *mean, double *part)
{
    const size_t k = blockIdx.x * (size_t)blockDim.x + threadIdx.x, chunk = blockIdx.y;
    if (k >= w.n)
        return;
    const size_t end = (chunk + 1) * FIBRES < w.ns ? (chunk + 1) * FIBRES : w.ns;
    double most = 0;
    for (size_t i = chunk * FIBRES; i < end; i++) {
        const size_t at = i * w.n + k;
        const double value = w.flat[at] / mean[k];
        if (ref[i])
            most = fmax(most, fabs(value - w.last[at]));
        w.last[at] = value;
    }
    part[chunk * w.n + k] = most;
}

__global__ void largest_kernel(size_t n, size_t chunks, const double *part, double *most)
{
    const size_t k = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    if (k >= n)
        return;
    double m = 0;
    for (size_t c = 0; c < chunks; c++)
        m = fmax(m, part[c * n + k]);
    most[k] = m;
}

/* Factor that the usable exposures of a bin have in common; 1 where none is significant, or they differ. */
__device__ double native_factor(const view &w, size_t at, double *variance)
{
    const size_t size = w.ns * w.n;
    double t = 0, s = 0;
    size_t usable = 0;
    for (size_t x = 0; x < w.nexp; x++)
        if ((w.state[x * size + at] & SPX_FLAT_USABLE) != 0) {
            const double model = w.flat[at] * w.x[x * size + at];
            t += w.ivar[x * size + at] * model * w.flux[x * size + at];
            s += w.ivar[x * size + at] * model * model;
            usable++;
        }
    if (!spx_flat_is_native(usable, t, s))
        return 1;
    for (size_t x = 0; x < w.nexp; x++) {
        const double r = w.flux[x * size + at] - t / s * w.flat[at] * w.x[x * size + at];
        if ((w.state[x * size + at] & SPX_FLAT_USABLE) != 0 && r * r * w.ivar[x * size + at] > w.reject * w.reject)
            return 1;
    }
    *variance += w.flat[at] * w.flat[at] / s;
    return t / s;
}

/* Variance of F of fibre blockIdx.x, and F with its single bins, into `out`. */
__global__ void variance_kernel(view w, double *out, double *variance, uint32_t *nnative)
{
    extern __shared__ double shared[];
    __shared__ uint32_t partial[WARPS];
    __shared__ int light;
    const size_t i = blockIdx.x;
    double *band = shared, *rhs = shared + 4 * w.nspline, *inverse = shared + 5 * w.nspline;
    uint32_t own = 0;
    sum_intervals(w, i, nullptr);
    __syncthreads();
    if (threadIdx.x == 0) {
        light = spx_flat_assemble(w.nspline, w.sum + i * w.nint * SPX_FLAT_SUMS, band, rhs);
        if (light) {
            (void)spx_band_factor(w.nspline, 3, band, 1e-13, band);
            spx_band_inverse(w.nspline, 3, band, inverse);
        }
    }
    __syncthreads();
    for (size_t k = threadIdx.x; k < w.n; k += THREADS) {
        const size_t at = i * w.n + k;
        double v = light ? spx_flat_variance(w.nspline, inverse, w.first[k], w.basis + 4 * k) : 0;
        const double factor = w.native && light ? native_factor(w, at, &v) : 1;
        own += factor != 1;
        out[at] = factor * w.flat[at];
        variance[at] = v;
    }
    own = spx::block_sum<WARPS>(own, partial);
    if (threadIdx.x == 0)
        nnative[i] = own;
}

/* Chi2 of row blockIdx.x, exposure * ns + fibre, and its numbers of bins. */
__global__ void chi2_kernel(view w, const double *flat, double *chi2, uint32_t *nused, uint32_t *nreject)
{
    __shared__ double partial[WARPS];
    __shared__ uint32_t counts[2][WARPS];
    const size_t row = blockIdx.x, i = row % w.ns;
    double sum = 0;
    uint32_t used = 0, rejected = 0;
    for (size_t k = threadIdx.x; k < w.n; k += THREADS) {
        const size_t at = row * w.n + k;
        if ((w.state[at] & SPX_FLAT_USABLE) == 0)
            continue;
        const double r = w.flux[at] - flat[i * w.n + k] * w.x[at], z = r * r * w.ivar[at];
        if (z > w.reject * w.reject) {
            rejected++;
        } else {
            used++;
            sum += z;
        }
    }
    sum = spx::block_sum<WARPS>(sum, partial);
    used = spx::block_sum<WARPS>(used, counts[0]);
    rejected = spx::block_sum<WARPS>(rejected, counts[1]);
    if (threadIdx.x == 0) {
        chi2[row] = sum;
        nused[row] = used;
        nreject[row] = rejected;
    }
}

class engine
{
  public:
    engine(const spx_flat_input *in, const spx_flat_options *o, const spx_flat_plan *plan)
        : rows_(in->nexp * in->nspec), bins_(rows_ * in->nwave), nchunk_((in->nspec + FIBRES - 1) / FIBRES),
          flux_(bins_), ivar_(bins_), resolution_(bins_ * in->ndiag), x_(bins_), v_(bins_), r_(bins_), mask_(bins_),
          state_(bins_), flat_(in->nspec * in->nwave), last_(in->nspec * in->nwave), p_(in->nspec * in->nwave),
          q_(in->nspec * in->nwave), sum_(in->nspec * plan->nint * SPX_FLAT_SUMS), lamp_(in->nexp * in->nwave),
          use_(in->nspec), part_(parts(in)), total_((in->ndiag + 2) * in->nexp * in->nwave), t_(rows_), s_(rows_),
          level_(in->nspec * plan->nblock), count_(rows_ > in->nspec * plan->nint ? rows_ : in->nspec * plan->nint),
          fibre_(in->nspec), basis_(spx::upload(plan->basis, 4 * in->nwave)),
          first_(spx::upload(plan->first, in->nwave)), begin_(spx::upload(plan->begin, plan->nint + 1))
    {
        const size_t rows = in->nspec * in->nwave;
        mask_.clear(bins_);
        for (size_t x = 0; x < in->nexp; x++) {
            copy(flux_.get() + x * rows, in->flux[x], rows);
            copy(ivar_.get() + x * rows, in->ivar[x], rows);
            copy(resolution_.get() + x * rows * in->ndiag, in->resolution[x], rows * in->ndiag);
            if (in->mask[x] != nullptr)
                copy(mask_.get() + x * rows, in->mask[x], rows);
        }
        w_ = {in->nexp,     in->nspec,    in->nwave,   in->ndiag,    plan->nint,        plan->spline.n, plan->nblock,
              o->reject,    o->native,    flux_.get(), ivar_.get(),  resolution_.get(), basis_.get(),   mask_.get(),
              first_.get(), begin_.get(), use_.get(),  state_.get(), flat_.get(),       last_.get(),    x_.get(),
              p_.get(),     q_.get(),     v_.get(),    r_.get(),     sum_.get()};
        allow(fit_kernel, spline_bytes(w_.nspline, false));
        allow(variance_kernel, spline_bytes(w_.nspline, true));
    }

    void begin(const double *level, const double *median, const uint8_t *use, spx_flat_pass *out)
    {
        level_.put(level, w_.ns * w_.nblock);
        lamp_.put(median, w_.nexp * w_.n);
        use_.put(use, w_.ns);
        spx::stopwatch watch;
        begin_kernel<<<by_fibre(), THREADS>>>(w_, level_.get(), lamp_.get());
        spx::check(cudaGetLastError(), "launch");
        add(0);
        seconds_ += watch.stop();
        take_sums(out);
    }

    void pass(const double *lamp, const uint8_t *use, spx_flat_pass *out)
    {
        lamp_.put(lamp, w_.nexp * w_.n);
        use_.put(use, w_.ns);
        spx::stopwatch watch;
        convolve();
        fit_kernel<<<(unsigned)w_.ns, THREADS, spline_bytes(w_.nspline, false)>>>(w_, level_.get(), count_.get());
        spx::check(cudaGetLastError(), "launch");
        add(1);
        seconds_ += watch.stop();
        level_.take(out->level, w_.ns);
        count_.take(out->count, w_.ns * w_.nint);
        take_sums(out);
    }

    void normal(const uint8_t *use, double *a)
    {
        spx::pinned_buffer<uint32_t> list;
        uint32_t *fibre = list.need(w_.ns);
        size_t n = 0;
        for (size_t i = 0; i < w_.ns; i++)
            if (use[i])
                fibre[n++] = (uint32_t)i;
        fibre_.put(fibre, n);
        spx::stopwatch watch;
        for (size_t x = 0; x < w_.nexp; x++) {
            const double *v = w_.v + x * w_.ns * w_.n;
            spx::calib::normal(nullptr, n, fibre_.get(), w_.n, w_.ndiag, w_.resolution + x * w_.ns * w_.ndiag * w_.n, v,
                               v, part_.get(), total_.get() + x * w_.ndiag * w_.n);
        }
        seconds_ += watch.stop();
        total_.take(a, w_.nexp * w_.ndiag * w_.n);
    }

    void normalise(const uint8_t *ref, size_t nref, double *mean, double *change)
    {
        spx::array<uint8_t> which = spx::upload(ref, w_.ns);
        const dim3 grid(spx::blocks(w_.n, THREADS), (unsigned)nchunk_);
        double *m = total_.get(), *c = m + w_.n;
        spx::stopwatch watch;
        rows_kernel<<<grid, THREADS>>>(w_.ns, w_.n, which.get(), w_.flat, part_.get());
        merge(w_.n, m);
        mean_kernel<<<spx::blocks(w_.n, THREADS), THREADS>>>(w_.n, (double)nref, m);
        change_kernel<<<grid, THREADS>>>(w_, which.get(), m, part_.get());
        largest_kernel<<<spx::blocks(w_.n, THREADS), THREADS>>>(w_.n, nchunk_, part_.get(), c);
        spx::check(cudaGetLastError(), "launch");
        seconds_ += watch.stop();
        take(mean, m, w_.n);
        take(change, c, w_.n);
    }

    void end(const uint8_t *use, spx_flat_end *out)
    {
        use_.put(use, w_.ns);
        spx::array<uint32_t> reject(rows_);
        spx::stopwatch watch;
        convolve();
        /* residuals and weights are not needed any more: F goes to r, its variance to v */
        variance_kernel<<<(unsigned)w_.ns, THREADS, spline_bytes(w_.nspline, true)>>>(w_, w_.r, w_.v, count_.get());
        spx::check(cudaGetLastError(), "launch");
        const dim3 grid(spx::blocks(w_.n, THREADS), (unsigned)nchunk_);
        for (size_t x = 0; x < w_.nexp; x++) {
            rows_kernel<<<grid, THREADS>>>(w_.ns, w_.n, w_.use, w_.x + x * w_.ns * w_.n, part_.get());
            merge(w_.n, total_.get() + x * w_.n);
        }
        seconds_ += watch.stop();
        count_.take(out->nnative, w_.ns);
        spx::stopwatch again;
        chi2_kernel<<<(unsigned)rows_, THREADS>>>(w_, w_.r, t_.get(), count_.get(), reject.get());
        spx::check(cudaGetLastError(), "launch");
        seconds_ += again.stop();
        take(out->flat, w_.r, w_.ns * w_.n);
        take(out->variance, w_.v, w_.ns * w_.n);
        take(out->mean, total_.get(), w_.nexp * w_.n);
        t_.take(out->chi2, rows_);
        count_.take(out->nused, rows_);
        reject.take(out->nreject, rows_);
    }

    double seconds() const
    {
        return seconds_;
    }

  private:
    static size_t parts(const spx_flat_input *in)
    {
        const size_t most = in->ndiag + 1 > 2 * in->nexp ? in->ndiag + 1 : 2 * in->nexp;
        return (in->nspec + FIBRES - 1) / FIBRES * most * in->nwave;
    }

    template <typename T> static void copy(T *to, const T *from, size_t n)
    {
        spx::to_device += n * sizeof(T);
        spx::check(cudaMemcpy(to, from, n * sizeof(T), cudaMemcpyHostToDevice), "copy to the device");
    }

    template <typename T> static void take(T *to, const T *from, size_t n)
    {
        spx::to_host += n * sizeof(T);
        spx::check(cudaMemcpy(to, from, n * sizeof(T), cudaMemcpyDeviceToHost), "copy from the device");
    }

    template <typename F> static void allow(F *kernel, size_t bytes)
    {
        if (spx::allow_shared(kernel, bytes) != cudaSuccess)
            spx::fail("%zu bytes of splines are more than a block has: use wider {knots}, or {device} cpu", bytes);
    }

    dim3 by_fibre() const
    {
        return dim3(spx::blocks(w_.n, THREADS), (unsigned)w_.ns);
    }

    void merge(size_t size, double *sum)
    {
        spx::calib::chunks_kernel<<<spx::blocks(size, THREADS), THREADS>>>(size, nchunk_, part_.get(), sum);
        spx::check(cudaGetLastError(), "launch");
    }

    void convolve()
    {
        for (size_t x = 0; x < w_.nexp; x++)
            spx::calib::apply(nullptr, w_.ns, w_.n, w_.ndiag, w_.resolution + x * w_.ns * w_.ndiag * w_.n,
                              lamp_.get() + x * w_.n, 0, w_.x + x * w_.ns * w_.n);
        weights_kernel<<<by_fibre(), THREADS>>>(w_);
        spx::check(cudaGetLastError(), "launch");
    }

    void add(int test)
    {
        test_kernel<<<(unsigned)rows_, THREADS>>>(w_, test, t_.get(), s_.get());
        gradient_kernel<<<dim3(spx::blocks(w_.n, THREADS), (unsigned)nchunk_, (unsigned)w_.nexp), THREADS>>>(
            w_, part_.get());
        merge(2 * w_.nexp * w_.n, total_.get());
    }

    void take_sums(spx_flat_pass *out)
    {
        spx::pinned_buffer<double> rows;
        double *t = rows.need(2 * rows_), *s = t + rows_;
        take(out->y, total_.get(), w_.nexp * w_.n);
        take(out->v, total_.get() + w_.nexp * w_.n, w_.nexp * w_.n);
        t_.take(t, rows_);
        s_.take(s, rows_);
        for (size_t x = 0; x < w_.nexp; x++) {
            out->t[x] = out->s[x] = 0;
            for (size_t i = 0; i < w_.ns; i++) {
                out->t[x] += t[x * w_.ns + i];
                out->s[x] += s[x * w_.ns + i];
            }
        }
    }

    size_t rows_, bins_, nchunk_;
    spx::array<double> flux_, ivar_, resolution_, x_, v_, r_;
    spx::array<uint32_t> mask_;
    spx::array<uint8_t> state_;
    spx::array<double> flat_, last_, p_, q_, sum_, lamp_;
    spx::array<uint8_t> use_;
    spx::array<double> part_, total_, t_, s_, level_;
    spx::array<uint32_t> count_, fibre_;
    spx::array<double> basis_;
    spx::array<uint32_t> first_;
    spx::array<size_t> begin_;
    view w_;
    double seconds_ = 0;
};

engine *of(void *self)
{
    return static_cast<engine *>(self);
}

/* A step for the host's driver: what it throws becomes a status. */
template <typename F> spx_status step(spx_err *e, F f)
{
    return spx::guarded("flat", e, [&] {
        f();
        return SPX_OK;
    });
}

spx_status begin(void *self, const double *level, const double *median, const uint8_t *use, spx_flat_pass *out,
                 spx_err *e)
{
    return step(e, [&] { of(self)->begin(level, median, use, out); });
}

spx_status normal(void *self, const uint8_t *use, double *a, spx_err *e)
{
    return step(e, [&] { of(self)->normal(use, a); });
}

spx_status pass(void *self, const double *lamp, const uint8_t *use, spx_flat_pass *out, spx_err *e)
{
    return step(e, [&] { of(self)->pass(lamp, use, out); });
}

spx_status normalise(void *self, const uint8_t *ref, size_t nref, double *mean, double *change, spx_err *e)
{
    return step(e, [&] { of(self)->normalise(ref, nref, mean, change); });
}

spx_status end(void *self, const uint8_t *use, spx_flat_end *out, spx_err *e)
{
    return step(e, [&] { of(self)->end(use, out); });
}

double seconds(void *self)
{
    return of(self)->seconds();
}

} // namespace

extern "C" spx_status spx_flat_cuda(spx_backend *b, const spx_flat_input *in, const spx_flat_options *o, spx_flat *out,
                                    spx_flat_counts *counts, spx_err *e)
{
    spx_flat_plan plan = {};
    spx_status st = spx_flat_plan_make(in, o, &plan, e);
    if (st == SPX_OK)
        st = spx::guarded("flat", e, [&] {
            (void)spx::use_first(b);
            engine device(in, o, &plan);
            const spx_flat_engine steps = {&device, begin, normal, pass, normalise, end, seconds};
            const spx_status done = spx_flat_run(&steps, &plan, in, o, out, counts, e);
            b->device_seconds = device.seconds();
            return done;
        });
    spx_flat_plan_free(&plan);
    return st;
}
