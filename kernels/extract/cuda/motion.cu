/* Provides the motion of traces on a CUDA device: the engine of extract/trace/windows.h. Steps and memory are those of
 * extract/trace/motion_steps.h and motion_layout.h; an item of a step is a block's. */
#include <algorithm>
#include <vector>

#include "cuda/backend.cuh"
#include "cuda/image.cuh"

#define restrict __restrict__
extern "C" {
#include "extract/trace/motion_layout.h"
}
#undef restrict

namespace
{

using spx::check;

/* Memory of the work of a batch of jobs at most, unless one needs more: programs share the device. */
constexpr size_t MOST_BYTES = (size_t)7 << 28;

/* Parts of the jobs, each on a stream of its own: steps of few blocks wait for themselves, not for those of others. */
constexpr size_t PARTS = 4;

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

/* Memory of a part. */
struct part_memory {
    spx::stream stream;
    spx::device_buffer<char> tables, work;
    spx::pinned_buffer<char> staging, results;
};

/* Memory that stays from call to call: to get and to free it takes as long as the rest. One thread of a program
 * measures, on one device. */
struct kept {
    part_memory part[PARTS];
};

struct cuda {
    kept &k;
    spx::image_rows &image;
    double seconds;
};

void put(const part_memory &m, void *to, const void *from, size_t bytes)
{
    spx::to_device += bytes;
    if (bytes > 0)
        check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, m.stream.s), "copy to the device");
}

spx_status send(spx_motion_engine *engine, size_t nwindow, const long *row0, const size_t *nrow, spx_err *e)
{
    return spx::guarded("shift", e, [&] {
        for (size_t i = 0; i < nwindow; i++)
            static_cast<cuda *>(engine->state)->image.send(row0[i], row0[i] + (long)nrow[i]);
        return SPX_OK;
    });
}

/* Jobs first ... first + size.njob - 1 of a part. */
struct part {
    size_t first;
    spx_motion_view view;
};

/* Fills and sends their tables. */
void send_tables(part_memory &m, const spx_motion_layout &l, size_t nwindow, part &p)
{
    const size_t nspec = l.w[0].job.psf->nspec;
    spx_motion_view host = p.view;
    const size_t bytes = spx_motion_tables(&host, nwindow, nspec, nullptr);
    (void)spx_motion_tables(&host, nwindow, nspec, m.staging.need(bytes));
    spx_motion_fill(&l, nwindow, p.first, &host);
    (void)spx_motion_tables(&p.view, nwindow, nspec, m.tables.need(bytes));
    (void)spx_motion_work(&p.view, m.work.need(spx_motion_work(&p.view, nullptr)));
    put(m, m.tables.get(), m.staging.get(), bytes);
}

size_t rows_size(const part &p)
{
    return (size_t)p.view.njob * (size_t)p.view.nl * sizeof *p.view.row;
}

/* Measures them, and fetches what comes out. */
void launch(part_memory &m, const part &p)
{
    const spx_motion_view *g = &p.view;
#define STEP(name, items, team, bytes, teams) name##_kernel<<<(unsigned)(items), team, bytes, m.stream.s>>>(p.view);
    SPX_MOTION_STEPS(STEP)
#undef STEP
    check(cudaGetLastError(), "launch");
    const size_t rows = rows_size(p), results = (size_t)g->njob * sizeof *g->result;
    char *to = m.results.need(rows + results);
    check(cudaMemcpyAsync(to, g->row, rows, cudaMemcpyDeviceToHost, m.stream.s), "copy from the device");
    check(cudaMemcpyAsync(to + rows, g->result, results, cudaMemcpyDeviceToHost, m.stream.s), "copy from the device");
    spx::to_host += rows + results;
}

void order(const part_memory &earlier, const part_memory &later)
{
    if (spx::order(earlier.stream.s, later.stream.s) != 0)
        spx::fail("event");
}

/* Jobs first ... in parts of `each`, one a stream; g: with the pixels. Returns how many. */
size_t measure_parts(cuda &c, const spx_motion_layout &l, size_t nwindow, size_t first, size_t each,
                     const spx_motion_view &g, spx_motion_row *row, spx_motion_fit *fit, unsigned char *left)
{
    const size_t njob = (size_t)l.size.njob;
    part p[PARTS];
    size_t n = 0;
    for (size_t next = first; n < PARTS && next < njob; next += each, n++) {
        p[n] = {next, g};
        p[n].view.njob = (int)std::min(each, njob - next);
    }
    send_tables(c.k.part[0], l, nwindow, p[0]);
    c.image.wait_on(c.k.part[0].stream.s);
    spx::stopwatch watch(c.k.part[0].stream.s);
    launch(c.k.part[0], p[0]);
    for (size_t i = 1; i < n; i++) {
        send_tables(c.k.part[i], l, nwindow, p[i]);
        c.image.wait_on(c.k.part[i].stream.s);
        launch(c.k.part[i], p[i]);
    }
    if (!l.size.rough) /* the next to look at the image wants other rows, and these kernels take as long */
        c.image.send_rest();
    for (size_t i = 1; i < n; i++)
        order(c.k.part[i], c.k.part[0]);
    c.seconds += watch.stop();
    size_t done = 0;
    for (size_t i = 0; i < n; i++) {
        const char *from = c.k.part[i].results.get();
        spx_motion_collect(&l, p[i].first, (size_t)p[i].view.njob, (const spx_motion_row *)from,
                           (const spx_motion_result *)(from + rows_size(p[i])), row, fit, left);
        done += (size_t)p[i].view.njob;
    }
    return done;
}

spx_status measure(spx_motion_engine *engine, size_t nwindow, const spx_motion_layout *l, spx_motion_row *row,
                   spx_motion_fit *fit, unsigned char *left, spx_err *e)
{
    return spx::guarded("shift", e, [&] {
        cuda &c = *static_cast<cuda *>(engine->state);
        const long nx = (long)l->w[0].job.image->nx;
        std::vector<size_t> first_pixel(nwindow);
        spx_motion_layout mine = *l; /* all rows are there, in their places */
        spx_motion_view g = l->size;
        for (size_t i = 0; i < nwindow; i++) {
            c.image.send(l->row0[i], l->row0[i] + (long)l->nrow[i]);
            first_pixel[i] = (size_t)(l->row0[i] * nx);
        }
        mine.pixel = first_pixel.data();
        g.data = c.image.data();
        g.weight = c.image.weight();
        g.njob = 1;
        const size_t most = std::max(MOST_BYTES / PARTS / spx_motion_work(&g, nullptr), (size_t)1);
        const size_t njob = (size_t)l->size.njob, each = std::min(most, (njob + PARTS - 1) / PARTS);
        for (size_t first = 0; first < njob;)
            first += measure_parts(c, mine, nwindow, first, each, g, row, fit, left);
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
        const spx::rows_in_use used(image, o->image);
        cuda c{memory, used.rows, 0};
        spx_motion_engine engine = {&c, send, measure};
        const spx_status st = spx_motion_solve(&engine, image, psf, o, row, fit, left, e);
        spx::note_seconds(b, c.seconds);
        return st;
    });
}
