/* Provides the motion of traces on a CUDA device: the engine of extract/trace/windows.h. Steps and memory are those of
 * extract/trace/motion_steps.h and motion_layout.h; an item of a step is a block's. */
#include <algorithm>
#include <vector>

#include "cuda/backend.cuh"

#define restrict __restrict__
extern "C" {
#include "extract/trace/motion_layout.h"
}
#undef restrict

namespace
{

using spx::check;

constexpr int PIXELS = 256; /* threads of a block for them */

/* Memory of the work of a batch of jobs at most, unless one needs more: programs share the device. */
constexpr size_t MOST_BYTES = (size_t)7 << 28;

__global__ void __launch_bounds__(PIXELS) pixel_kernel(const __grid_constant__ spx_motion_view g)
{
    const size_t i = (size_t)blockIdx.x * PIXELS + threadIdx.x;
    if (i < g.npixel)
        spx_motion_pixel(&g, i);
}

#define STEP(name, items, team, bytes, teams)                                                                          \
    __global__ void __launch_bounds__(team, teams) name##_kernel(const __grid_constant__ spx_motion_view g)            \
    {                                                                                                                  \
        extern __shared__ double shared[];                                                                             \
        __shared__ double sums[(team) / SPX_TEAM_WARP];                                                                \
        const spx_team t = {(int)threadIdx.x, team, sums, shared, nullptr, nullptr};                                   \
        spx_motion_##name(&g, &t, blockIdx.x);                                                                         \
    }
SPX_MOTION_STEPS(STEP)
#undef STEP

/* Memory that stays from call to call: to get and to free it takes as long as the rest. One thread of a program
 * measures, on one device. */
struct kept {
    spx::device_buffer<char> pixels, tables, work;
    spx::pinned_buffer<char> staging, results;
    /* rows of the image that `pixels` has, of each window: as in spx_motion_layout */
    std::vector<long> row0;
    std::vector<size_t> nrow, pixel;
    size_t npixel = 0;
    unsigned long long image = 0; /* its number */
};

/* Rows beyond those that are used, to each side, that are sent in case that the traces' next places need them. */
constexpr long BEYOND = 8;

struct cuda {
    spx::stream stream;
    kept &k;
    double seconds;
};

void put(const cuda &c, void *to, const void *from, size_t bytes)
{
    spx::to_device += bytes;
    if (bytes > 0)
        check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, c.stream.s), "copy to the device");
}

/* Whether the rows that windows use are there. */
bool has_rows(const kept &k, size_t nwindow, const spx_motion_layout &l)
{
    bool all = k.row0.size() == nwindow;
    for (size_t i = 0; i < nwindow && all; i++)
        all = l.nrow[i] == 0 || (l.row0[i] >= k.row0[i] && l.row0[i] + (long)l.nrow[i] <= k.row0[i] + (long)k.nrow[i]);
    return all;
}

/* Rows of the image that windows use, with some beyond, unless they are there; *l and *g are then those of these. */
bool put_pixels(cuda &c, const spx_image *image, size_t nwindow, spx_motion_layout &l, spx_motion_view &g)
{
    const int has_mask = image->mask != nullptr;
    const unsigned long long number = l.w[0].image;
    const bool there = number != 0 && number == c.k.image && has_rows(c.k, nwindow, l);
    c.k.image = 0; /* until all of it is there */
    if (!there) {
        c.k.row0.resize(nwindow);
        c.k.nrow.resize(nwindow);
        c.k.pixel.resize(nwindow);
        c.k.npixel = 0;
        for (size_t i = 0; i < nwindow; i++) {
            const long end = std::min(l.row0[i] + (long)l.nrow[i] + BEYOND, (long)image->ny);
            c.k.row0[i] = std::max(l.row0[i] - BEYOND, 0L);
            c.k.nrow[i] = l.nrow[i] > 0 ? (size_t)(end - c.k.row0[i]) : 0;
            c.k.pixel[i] = c.k.npixel;
            c.k.npixel += c.k.nrow[i] * image->nx;
        }
    }
    l.row0 = c.k.row0.data();
    l.nrow = c.k.nrow.data();
    l.pixel = c.k.pixel.data();
    l.size.npixel = g.npixel = c.k.npixel;
    (void)spx_motion_pixels(&g, has_mask, c.k.pixels.need(spx_motion_pixels(&g, has_mask, nullptr)));
    if (there) {
        c.k.image = number;
        return false;
    }
    for (const void *p : {(const void *)image->data, (const void *)image->ivar, (const void *)image->mask})
        if (p != nullptr)
            (void)spx_mem_pagelocked(p);
    for (size_t i = 0; i < nwindow; i++) {
        const size_t from = (size_t)l.row0[i] * image->nx, n = l.nrow[i] * image->nx;
        put(c, g.data + l.pixel[i], image->data + from, n * sizeof(float));
        put(c, g.weight + l.pixel[i], image->ivar + from, n * sizeof(float));
        if (has_mask)
            put(c, g.mask + l.pixel[i], image->mask + from, n * sizeof(uint32_t));
    }
    c.k.image = number;
    return true;
}

/* Jobs first ... first + g.njob - 1; g: with the pixels. fresh: these are as they came. */
void measure_batch(cuda &c, const spx_motion_layout &l, size_t nwindow, size_t first, spx_motion_view view, bool fresh,
                   spx_motion_row *row, spx_motion_fit *fit, unsigned char *left)
{
    const size_t nspec = l.w[0].job.psf->nspec, fibres = (size_t)view.njob * (size_t)view.nl;
    spx_motion_view host = view;
    const size_t bytes = spx_motion_tables(&host, nwindow, nspec, nullptr);
    (void)spx_motion_tables(&host, nwindow, nspec, c.k.staging.need(bytes));
    spx_motion_fill(&l, nwindow, first, &host);
    char *tables = c.k.tables.need(bytes);
    (void)spx_motion_tables(&view, nwindow, nspec, tables);
    (void)spx_motion_work(&view, c.k.work.need(spx_motion_work(&view, nullptr)));
    put(c, tables, c.k.staging.get(), bytes);
    spx::stopwatch watch(c.stream.s);
    const spx_motion_view *g = &view;
    if (fresh)
        pixel_kernel<<<spx::blocks(g->npixel, PIXELS), PIXELS, 0, c.stream.s>>>(view);
#define STEP(name, items, team, bytes, teams) name##_kernel<<<(unsigned)(items), team, bytes, c.stream.s>>>(view);
    SPX_MOTION_STEPS(STEP)
#undef STEP
    check(cudaGetLastError(), "launch");
    c.seconds += watch.stop();
    const size_t rows = fibres * sizeof *g->row, results = (size_t)view.njob * sizeof *g->result;
    char *to = c.k.results.need(rows + results);
    check(cudaMemcpyAsync(to, view.row, rows, cudaMemcpyDeviceToHost, c.stream.s), "copy from the device");
    check(cudaMemcpyAsync(to + rows, view.result, results, cudaMemcpyDeviceToHost, c.stream.s), "copy from the device");
    check(cudaStreamSynchronize(c.stream.s), "stream");
    spx::to_host += rows + results;
    spx_motion_collect(&l, first, (size_t)view.njob, (const spx_motion_row *)to, (const spx_motion_result *)(to + rows),
                       row, fit, left);
}

spx_status measure(spx_motion_engine *engine, size_t nwindow, const spx_motion_layout *l, spx_motion_row *row,
                   spx_motion_fit *fit, unsigned char *left, spx_err *e)
{
    return spx::guarded("shift", e, [&] {
        cuda &c = *static_cast<cuda *>(engine->state);
        spx_motion_layout mine = *l; /* with the rows that the device has */
        spx_motion_view g = l->size;
        const bool fresh = put_pixels(c, l->w[0].job.image, nwindow, mine, g);
        g.njob = 1;
        const size_t most = std::max(MOST_BYTES / spx_motion_work(&g, nullptr), (size_t)1);
        for (size_t first = 0; first < (size_t)l->size.njob; first += most) {
            g.njob = (int)std::min(most, (size_t)l->size.njob - first);
            measure_batch(c, mine, nwindow, first, g, fresh && first == 0, row, fit, left);
        }
        return SPX_OK;
    });
}

} // namespace

extern "C" spx_status spx_motion_cuda(spx_backend *b, const spx_image *image, const spx_psf *psf,
                                      const spx_motion_options *o, spx_motion_row *row, spx_motion_fit *fit,
                                      spx_fallback *left, spx_err *e)
{
    return spx::guarded("shift", e, [&] {
        (void)spx::use_first(b);
        spx::lock_blocks(b);
        static thread_local kept memory;
        cuda c{{}, memory, 0};
        spx_motion_engine engine = {&c, measure};
        const spx_status st = spx_motion_solve(&engine, image, psf, o, row, fit, left, e);
        spx::note_seconds(b, c.seconds);
        return st;
    });
}
