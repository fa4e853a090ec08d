/* Provides the zero point of wavelengths on a CUDA device: the engine of shift/zero_point.h. Steps and memory are those
 * of shift/zero_steps.h and zero_layout.h; an item of a step is a block's. The host has what is not larger than
 * the lines: the solution of the normal equations, and the polynomial through the lines' places. */
#include <algorithm>
#include <vector>

#include "cuda/backend.cuh"
#include "cuda/image.cuh"

#define restrict __restrict__
extern "C" {
#include "shift/zero_layout.h"
}
#undef restrict

namespace
{

using spx::check;

constexpr int THREADS = 128; /* of a block for items of one thread */

__global__ void __launch_bounds__(THREADS) row_kernel(const __grid_constant__ spx_zero_view g)
{
    const size_t i = (size_t)blockIdx.x * THREADS + threadIdx.x;
    if (i < (size_t)g.nstrip * (size_t)g.rows)
        spx_zero_row(&g, i);
}

__global__ void __launch_bounds__(THREADS) pixel_kernel(const __grid_constant__ spx_zero_view g)
{
    const size_t i = (size_t)blockIdx.x * THREADS + threadIdx.x;
    if (i < (size_t)g.nstrip * (size_t)g.rows * (size_t)g.cols)
        spx_zero_pixel(&g, i);
}

__global__ void __launch_bounds__(THREADS) total_kernel(const __grid_constant__ spx_zero_view g)
{
    const size_t i = (size_t)blockIdx.x * THREADS + threadIdx.x;
    if (i < (size_t)(g.size + g.nc))
        spx_zero_total(&g, i);
}

#define STEP(name, items, team, bytes, teams)                                                                          \
    __global__ void __launch_bounds__((team) * (teams))                                                                \
        name##_kernel(const __grid_constant__ spx_zero_view g, size_t n)                                               \
    {                                                                                                                  \
        extern __shared__ double shared[];                                                                             \
        __shared__ double sums[(team) / SPX_TEAM_WARP];                                                                \
        const spx_team t = {(int)threadIdx.x % (team), team, sums, shared, nullptr, nullptr};                          \
        const size_t item = blockIdx.x * (size_t)(teams) + threadIdx.x / (team);                                       \
        if (item < n)                                                                                                  \
            spx_zero_##name(&g, &t, item);                                                                             \
    }
STEP(splines, 0, SPX_ZERO_TEAM, 0, 1)
SPX_ZERO_STEPS_OF_A_SUM(STEP)
#undef STEP

/* Memory that stays from call to call. One thread of a program measures, on one device. */
struct kept {
    spx::device_buffer<char> tables, work, sum_tables, sums;
    spx::device_buffer<double> beside;
    spx::pinned_buffer<char> staging, sum_staging, results;
    spx::pinned_buffer<double> light;
};

struct cuda {
    spx::stream stream;
    kept &k;
    spx::image_rows &image;
    spx_zero_view g;
    std::vector<long> xc;
    double seconds;
};

void put(const cuda &c, void *to, const void *from, size_t bytes)
{
    spx::to_device += bytes;
    check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, c.stream.s), "copy to the device");
}

void get(const cuda &c, void *to, const void *from, size_t bytes)
{
    spx::to_host += bytes;
    check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, c.stream.s), "copy from the device");
}

/* Rows of the image that strips have. */
void send_rows(const cuda &c, const spx_zero_work *w)
{
    long first = (long)w->image->ny, end = 0;
    for (size_t i = 0; i < w->in->nfibre; i++)
        if (w->strips[i].nrow > 0) {
            first = std::min(first, w->strips[i].y0);
            end = std::max(end, w->strips[i].y0 + (long)w->strips[i].nrow);
        }
    c.image.send(first, end);
}

/* Light of neighbours in strips, if there is any. */
spx_status send_light(cuda &c, spx_zero_work *w, spx_err *e)
{
    spx_zero_view &g = c.g;
    const size_t rows = (size_t)g.nstrip * (size_t)g.rows, pixels = rows * (size_t)g.cols;
    if (!spx_zero_beside(w))
        return SPX_OK;
    int *xc = reinterpret_cast<int *>(c.k.results.need(rows * sizeof *xc));
    get(c, xc, g.xc, rows * sizeof *xc);
    check(cudaStreamSynchronize(c.stream.s), "stream");
    c.xc.resize(rows);
    for (size_t i = 0; i < (size_t)g.nstrip; i++)
        w->strips[i].xc = c.xc.data() + i * (size_t)g.rows;
    spx_zero_take_rows(&g, xc, w);
    double *light = c.k.light.need(pixels);
    std::fill_n(light, pixels, 0.0);
    spx_zero_give_data(&g, light, w);
    const spx_status taken = spx_zero_take_neighbours_off(w, e);
    g.beside = c.k.beside.need(pixels);
    put(c, g.beside, light, pixels * sizeof *light);
    return taken;
}

spx_status begin(spx_zero_engine *engine, spx_zero_work *w, spx_err *e)
{
    return spx::guarded("zero point", e, [&] {
        cuda &c = *static_cast<cuda *>(engine->state);
        spx_zero_view &g = c.g, host;
        const spx_status sizes = spx_zero_sizes(w, &g, e);
        if (sizes != SPX_OK)
            return sizes;
        send_rows(c, w);
        g.image = c.image.data();
        g.weight = c.image.weight();
        g.ccd_nx = (int)w->image->nx;
        host = g;
        const size_t bytes = spx_zero_tables(w, &host, nullptr);
        const size_t rows = (size_t)g.nstrip * (size_t)g.rows, pixels = rows * (size_t)g.cols;
        (void)spx_zero_tables(w, &host, c.k.staging.need(bytes));
        spx_zero_fill(w, &host);
        (void)spx_zero_tables(w, &g, c.k.tables.need(bytes));
        (void)spx_zero_memory(&g, c.k.work.need(spx_zero_memory(&g, nullptr)));
        put(c, c.k.tables.get(), c.k.staging.get(), bytes);
        spx::stopwatch watch(c.stream.s);
        row_kernel<<<spx::blocks(rows, THREADS), THREADS, 0, c.stream.s>>>(g);
        splines_kernel<<<(unsigned)g.nstrip, SPX_ZERO_TEAM, 0, c.stream.s>>>(g, (size_t)g.nstrip);
        check(cudaGetLastError(), "launch");
        const spx_status light = send_light(c, w, e);
        c.image.wait_on(c.stream.s);
        pixel_kernel<<<spx::blocks(pixels, THREADS), THREADS, 0, c.stream.s>>>(g);
        check(cudaGetLastError(), "launch");
        double *step = reinterpret_cast<double *>(c.k.results.need((size_t)g.nstrip * sizeof *step));
        get(c, step, g.step, (size_t)g.nstrip * sizeof *step);
        c.seconds += watch.stop();
        spx_zero_take_steps(&g, step, w);
        return light;
    });
}

spx_status sum_up(spx_zero_engine *engine, spx_zero_work *w, int reject, spx_err *e)
{
    return spx::guarded("zero point", e, [&] {
        cuda &c = *static_cast<cuda *>(engine->state);
        spx_zero_view view = c.g, host;
        const spx_zero_view *g = &view;
        spx_zero_sum_sizes(w, reject, &view);
        host = view;
        const size_t bytes = spx_zero_sum_tables(&host, nullptr);
        (void)spx_zero_sum_tables(&host, c.k.sum_staging.need(bytes));
        spx_zero_fill_sum(w, &host);
        (void)spx_zero_sum_tables(&view, c.k.sum_tables.need(bytes));
        (void)spx_zero_sum_memory(&view, c.k.sums.need(spx_zero_sum_memory(&view, nullptr)));
        put(c, c.k.sum_tables.get(), c.k.sum_staging.get(), bytes);
        spx::stopwatch watch(c.stream.s);
#define STEP(name, items, team, bytes, teams)                                                                          \
    if ((items) > 0)                                                                                                   \
        name##_kernel<<<spx::blocks(items, teams), (team) * (teams), bytes, c.stream.s>>>(view, items);                \
    check(cudaGetLastError(), "launch");
        SPX_ZERO_STEPS_OF_A_SUM(STEP)
#undef STEP
        const size_t all = (size_t)g->size + (size_t)g->nc;
        total_kernel<<<spx::blocks(all, THREADS), THREADS, 0, c.stream.s>>>(view);
        check(cudaGetLastError(), "launch");
        double *sum = reinterpret_cast<double *>(c.k.results.need((all + 2) * sizeof(double)));
        get(c, sum, view.sum, (all + 2) * sizeof(double));
        c.seconds += watch.stop();
        spx_zero_take_sum(&view, sum, w);
        return SPX_OK;
    });
}

} // namespace

extern "C" spx_status spx_zero_point_cuda(spx_backend *b, const spx_image *image, const spx_psf *psf,
                                          const spx_shift_common *in, const spx_shift_lines *lines, spx_shift_zero *out,
                                          spx_err *e)
{
    return spx::guarded("zero point", e, [&] {
        (void)spx::use_first(b);
        spx::lock_blocks(b);
        static thread_local kept memory;
        const spx::rows_in_use used(image, in->image);
        cuda c{{}, memory, used.rows, {}, {}, 0};
        spx_zero_engine engine = {&c, begin, sum_up};
        const spx_status st = spx_zero_solve(&engine, image, psf, in, lines, out, e);
        spx::note_seconds(b, c.seconds);
        return st;
    });
}
