/* Provides singular value decomposition on a CUDA device: cuSOLVER's QR iteration (gesvd) and cuBLAS. Mean, weights,
 * random vectors, energies and signs are made on the host by the functions that the CPU uses. Against the CPU, singular
 * values agree to a few times the precision of a double times the largest one, vectors to that over the gap between
 * their singular values. */
#include <cublas_v2.h>
#include <cusolverDn.h>

#include <vector>

#include "cuda/backend.cuh"

namespace spx
{

static void check(cusolverStatus_t status, const char *what)
{
    if (status != CUSOLVER_STATUS_SUCCESS)
        throw failure(std::string(what) + ": cuSOLVER error " + std::to_string((int)status));
}

static void check(cublasStatus_t status, const char *what)
{
    if (status != CUBLAS_STATUS_SUCCESS)
        throw failure(std::string(what) + ": cuBLAS error " + std::to_string((int)status));
}

} // namespace spx

namespace
{

struct handles {
    cublasHandle_t blas = nullptr;
    cusolverDnHandle_t solver = nullptr;
    handles()
    {
        spx::check(cublasCreate(&blas), "cuBLAS");
        spx::check(cusolverDnCreate(&solver), "cuSOLVER");
    }
    handles(const handles &) = delete;
    handles &operator=(const handles &) = delete;
    ~handles()
    {
        if (solver != nullptr)
            (void)cusolverDnDestroy(solver);
        if (blas != nullptr)
            (void)cublasDestroy(blas);
    }
};

void succeeded(const spx::array<int> &info, const char *what)
{
    int value;
    info.take(&value, 1);
    if (value != 0)
        throw spx::failure(std::string(what) + " does not converge (" + std::to_string(value) + ")");
}

/* Transposes row-major from[rows, columns] to to[columns, rows]. */
void transpose(const handles &h, const double *from, int rows, int columns, double *to)
{
    const double one = 1, zero = 0;
    spx::check(
        cublasDgeam(h.blas, CUBLAS_OP_T, CUBLAS_OP_N, rows, columns, &one, from, columns, &zero, to, rows, to, rows),
        "transpose");
}

/* All modes of a[m, n], row-major (destroyed): u[m, k], s[k], v[k, n], row-major, k = min(m, n). cuSOLVER is
 * column-major and needs at least as many rows as columns: it gets the transpose where that is taller. */
void economic(const handles &h, double *a, int m, int n, double *u, double *s, double *v)
{
    const bool wide = n >= m;
    const int rows = wide ? n : m, k = wide ? m : n;
    int room = 0;
    spx::check(cusolverDnDgesvd_bufferSize(h.solver, rows, k, &room), "gesvd");
    spx::array<double> work((size_t)room), unconverged((size_t)k), tall, left((size_t)rows * k), right((size_t)k * k);
    spx::array<int> info(1);
    double *matrix = a;
    if (!wide) {
        tall = spx::array<double>((size_t)m * n);
        transpose(h, a, m, n, tall.get());
        matrix = tall.get();
    }
    /* columns: matrix = left s right; by rows left is [k, rows], right is the transpose of [k, k] */
    spx::check(cusolverDnDgesvd(h.solver, 'S', 'S', rows, k, matrix, rows, s, left.get(), rows, right.get(), k,
                                work.get(), room, unconverged.get(), info.get()),
               "gesvd");
    succeeded(info, "the decomposition");
    const double *lefts = left.get(), *rights = right.get();
    if (wide) {
        spx::check(cudaMemcpy(v, lefts, (size_t)k * n * sizeof *v, cudaMemcpyDeviceToDevice), "copy");
        spx::check(cudaMemcpy(u, rights, (size_t)m * k * sizeof *u, cudaMemcpyDeviceToDevice), "copy");
    } else {
        transpose(h, lefts, k, m, u);
        transpose(h, rights, n, k, v);
    }
}

/* Replaces the rows of q[l, n], l <= n, by orthonormal rows. */
void orthonormal(const handles &h, double *q, int l, int n)
{
    int room = 0, more = 0;
    spx::array<double> tau((size_t)l);
    spx::array<int> info(1);
    spx::check(cusolverDnDgeqrf_bufferSize(h.solver, n, l, q, n, &room), "geqrf");
    spx::check(cusolverDnDorgqr_bufferSize(h.solver, n, l, l, q, n, tau.get(), &more), "orgqr");
    room = room > more ? room : more;
    spx::array<double> work((size_t)room);
    spx::check(cusolverDnDgeqrf(h.solver, n, l, q, n, tau.get(), work.get(), room, info.get()), "geqrf");
    succeeded(info, "geqrf");
    spx::check(cusolverDnDorgqr(h.solver, n, l, l, q, n, tau.get(), work.get(), room, info.get()), "orgqr");
    succeeded(info, "orgqr");
}

/* c[l, p] = op(b) op(a), row-major, over q terms; b is [l, q] or, transposed, [q, l]; a is [q, p] or [p, q]. */
void product(const handles &h, const double *b, bool tb, const double *a, bool ta, int l, int p, int q, double *c)
{
    const double one = 1, zero = 0;
    spx::check(cublasDgemm(h.blas, ta ? CUBLAS_OP_T : CUBLAS_OP_N, tb ? CUBLAS_OP_T : CUBLAS_OP_N, p, l, q, &one, a,
                           ta ? q : p, b, tb ? l : q, &zero, c, p),
               "product");
}

void all_modes(const handles &h, const spx::array<double> &a, spx_svd *out)
{
    const size_t m = out->nrow, n = out->ncol, k = m < n ? m : n;
    spx::array<double> u(m * k), s(k), v(k * n);
    economic(h, a.get(), (int)m, (int)n, u.get(), s.get(), v.get());
    s.take(out->s, out->nmode);
    v.take(out->v, out->nmode * n);
    spx::to_host += out->nmode * sizeof *out->u * m;
    spx::check(cudaMemcpy2D(out->u, out->nmode * sizeof *out->u, u.get(), k * sizeof *out->u,
                            out->nmode * sizeof *out->u, m, cudaMemcpyDeviceToHost),
               "copy from the device");
}

void leading_modes(const handles &h, const spx::array<double> &a, const spx_svd_options *o, spx_svd *out)
{
    const size_t m = out->nrow, n = out->ncol, l = spx_svd_sample(o, m, n);
    std::vector<double> random(l * n);
    for (size_t i = 0; i < l * n; i++)
        random[i] = spx_svd_random(o->seed, i);
    spx::array<double> y(l * m), z = spx::upload(random.data(), l * n), u(l * l), s(l), v(l * n);
    for (size_t p = 0; p <= o->power; p++) {
        product(h, z.get(), false, a.get(), true, (int)l, (int)m, (int)n, y.get());
        orthonormal(h, y.get(), (int)l, (int)m);
        product(h, y.get(), false, a.get(), false, (int)l, (int)n, (int)m, z.get());
        if (p < o->power)
            orthonormal(h, z.get(), (int)l, (int)n);
    }
    economic(h, z.get(), (int)l, (int)n, u.get(), s.get(), v.get());
    spx::array<double> left(m * l);
    product(h, y.get(), true, u.get(), false, (int)m, (int)l, (int)l, left.get());
    s.take(out->s, out->nmode);
    v.take(out->v, out->nmode * n);
    spx::to_host += out->nmode * sizeof *out->u * m;
    spx::check(cudaMemcpy2D(out->u, out->nmode * sizeof *out->u, left.get(), l * sizeof *out->u,
                            out->nmode * sizeof *out->u, m, cudaMemcpyDeviceToHost),
               "copy from the device");
}

} // namespace

extern "C" spx_status spx_svd_cusolver(spx_backend *b, double *a, size_t nrow, size_t ncol, const spx_svd_options *o,
                                       spx_svd *out, spx_err *e)
{
    double total, scale;
    spx_status st = spx_svd_begin(a, nrow, ncol, o, out, &total, &scale, e);
    if (st != SPX_OK)
        return st;
    st = spx::guarded("svd", e, [&] {
        (void)spx::use_first(b);
        const handles h;
        const spx::array<double> d = spx::upload(a, nrow * ncol);
        spx::stopwatch watch;
        if (o->method == SPX_SVD_RANDOMISED)
            leading_modes(h, d, o, out);
        else
            all_modes(h, d, out);
        b->device_seconds = watch.stop();
        return SPX_OK;
    });
    if (st == SPX_OK)
        spx_svd_end(out, total, scale);
    return st;
}

extern "C" void spx_svd_describe_cuda(spx_plugin_tell *tell)
{
    spx::tell_library(tell, "cublas", cublasGetProperty);
    spx::tell_library(tell, "cusolver", cusolverGetProperty);
}
