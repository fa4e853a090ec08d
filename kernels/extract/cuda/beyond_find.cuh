/* Provides the steps by which a device finds the light beyond the spots of the image that it has (../trace/beyond.h),
 * and what frames of a layout share. */
#ifndef SPX_EXTRACT_CUDA_BEYOND_FIND_CUH
#define SPX_EXTRACT_CUDA_BEYOND_FIND_CUH

#include <cstring>
#include <memory>
#include <mutex>
#include <vector>

#include "cuda/memory.cuh"
#include "extract/cuda/beyond_rows.cuh"
#include "extract/cuda/beyond_tail.cuh"
#include "extract/cuda/weights.cuh"

extern "C" {
#include "extract/trace/trace.h"
}

namespace
{

/* Plan and geometry of a frame, which do not depend on its pixels, shared by the frames of a queue. */
struct layout {
    spx_trace_layout it = {};
    mutable std::mutex lock;
    mutable std::vector<spx_beyond *> beyond; /* tables for light beyond the spots, that no call uses */

    layout() = default;
    layout(const layout &) = delete;
    layout &operator=(const layout &) = delete;
    ~layout()
    {
        for (spx_beyond *b : beyond)
            spx_beyond_free(b);
        spx_trace_layout_free(&it);
    }
};
using layout_ref = std::shared_ptr<const layout>;

/* Memory and tables of a device for that light, kept from frame to frame. */
class light_finder
{
  public:
    light_finder() = default;
    light_finder(const light_finder &) = delete;
    light_finder &operator=(const light_finder &) = delete;

    /* Tables of a layout, unless they are there; memory for an image. */
    void prepare(const layout_ref &l, const spx_beyond *b, cudaStream_t s)
    {
        int key[SPX_BEYOND_KEY];
        spx_beyond_key(b, key);
        stream_ = s;
        if (of_ == l && memcmp(key, key_, sizeof key) == 0)
            return;
        of_.reset();
        spx_rows_view r;
        spx_rows_look(spx_beyond_rows(b), &r);
        has_tail_ = spx_beyond_tail(b) != NULL;
        spx_tail_view v = {};
        if (has_tail_)
            spx_tail_look(spx_beyond_tail(b), &v);
        spx::arena count = {NULL, 0, 0};
        lay_out(count, r, v);
        spx::arena m = {memory_.need(count.used), 0, count.used};
        bytes_ = std::max(bytes_, count.used);
        lay_out(m, r, v);
        send(r, v);
        of_ = l;
        memcpy(key_, key, sizeof key);
    }
    /* Finds the light of the image [ny][nx] that is on the device, with weights. */
    spx_status find(const spx_beyond *b, int corrections, const float *data, const float *weight, spx_background **bg,
                    spx_extract_counts *counts, spx_err *e)
    {
        const spx_beyond_steps steps = {this, clear, light, keep, extrapolate, draw, fit, add};
        rows_.data = data;
        rows_.weight = weight;
        return spx_beyond_find_by(b, &steps, corrections, bg, counts, e);
    }
    /* Of the device, that it has. */
    size_t bytes() const
    {
        return bytes_;
    }
    /* That light, [ny][nx]. */
    float *far() const
    {
        return rows_.far;
    }

  private:
    layout_ref of_; /* whose tables are there, */
    int key_[SPX_BEYOND_KEY] = {};
    spx::device_buffer<char> memory_;
    spx::device_buffer<char> scratch_;
    spx::device_buffer<double> ground_, sums_, rows_of_ground_;
    spx::pinned_buffer<double> host_;
    cudaStream_t stream_ = nullptr;
    bool has_tail_ = false;
    size_t bytes_ = 0;
    row_tables rows_ = {};
    tail_tables tail_ = {};
    tail_order together_ = {}, roughly_ = {};
    double *partial_ = nullptr, *total_ = nullptr;

    size_t lights() const
    {
        return (size_t)rows_.ny * rows_.nspec;
    }

    void lay_out(spx::arena &m, const spx_rows_view &r, const spx_tail_view &v)
    {
        row_tables &t = rows_;
        const size_t n = r.ny * r.nspec, npix = r.ny * r.nx;
        t = {};
        t.ny = (int)r.ny;
        t.nx = (int)r.nx;
        t.nspec = (int)r.nspec;
        t.width = (int)r.width;
        t.first = (int)r.first;
        t.end = (int)r.end;
        t.pad = (int)r.pad;
        t.hsizex = r.hsizex;
        t.wide = r.wide;
        t.mirrored = r.mirrored;
        t.profile = m.take<float>(r.nspec * SPX_ROW_KNOTS * (SPX_ROW_PHASES + 1) * r.width);
        t.place = m.take<float2>(n);
        t.ends = m.take<int2>(r.nspec);
        t.spread = m.take<float>(r.nspec * (SPX_ROW_SIDE + 1));
        t.order = m.take<unsigned short>(n);
        t.count = m.take<int>(r.ny);
        t.drawn = m.take<float>(r.ny * drawn_row(t));
        t.start = m.take<int>(n);
        t.chain = m.take<unsigned short>(r.ny * (r.nspec + 2));
        t.use = m.take<unsigned char>(npix);
        t.far = m.take<float>(npix);
        t.flags = m.take<unsigned char>(npix);
        for (float **p : {&t.light, &t.rest, &t.first_light, &t.sharp})
            *p = m.take<float>(n);
        t.seen = m.take<unsigned char>(n);
        if (has_tail_)
            lay_out_tail(m, r, v);
        size_t most = 2 * (size_t)spx::blocks(r.nspec, SHARE_THREADS) * spx::blocks(r.ny, SPX_BEYOND_EACH);
        for (const tail_order *o : {&together_, &roughly_})
            most = has_tail_ ? std::max(most, tail_blocks(tail_, *o)) : most;
        partial_ = m.take<double>(most);
        total_ = m.take<double>(2);
    }

    static convolution grid_of(spx::arena &m, size_t ny, size_t nx, size_t reach, size_t grid_ny, size_t grid_nx,
                               size_t inner_y, size_t inner_x)
    {
        convolution c = {};
        c.ny = (int)ny;
        c.nx = (int)nx;
        c.reach = (int)reach;
        c.grid_ny = (int)grid_ny;
        c.grid_nx = (int)grid_nx;
        c.inner_y = (int)inner_y;
        c.inner_x = (int)inner_x;
        c.across = (int)((grid_nx + inner_x - 1) / inner_x);
        c.ntile = c.across * (int)((grid_ny + inner_y - 1) / inner_y);
        c.light = m.take<long long>(grid_ny * grid_nx);
        c.spectrum = m.take<float2>((size_t)c.ntile * ny * (nx / 2 + 1));
        c.kernel = m.take<float2>(ny * (nx / 2 + 1));
        c.along_x = m.take<float2>(nx);
        c.along_y = m.take<float2>(ny);
        c.result = m.take<float>(grid_ny * grid_nx);
        return c;
    }

    void lay_out_tail(spx::arena &m, const spx_rows_view &r, const spx_tail_view &v)
    {
        tail_tables &t = tail_;
        t = {};
        t.ny = (int)v.ny;
        t.nx = (int)v.nx;
        t.edge = (int)v.edge;
        t.near = (int)v.near;
        t.row = (int)v.row;
        t.nspec = (int)r.nspec;
        t.strips = (int)spx::blocks(v.nx, spx::WARP);
        t.wmin = v.wmin;
        t.wmax = v.wmax;
        t.table = m.take<float>((size_t)(SPX_TAIL_XPHASES + 1) * (2 * v.near + 1) * v.row);
        t.amplitude = m.take<double>(r.nspec * SPX_TAIL_KNOTS);
        t.place = rows_.place;
        t.range = m.take<double>(2 * r.nspec);
        const size_t inner = v.tile - 2 * v.reach;
        t.fine = grid_of(m, v.tile, v.tile, v.reach, v.fine_ny, v.fine_nx, inner, inner);
        t.coarse = grid_of(m, v.field_ny, v.field_nx, 0, v.coarse_ny, v.coarse_nx, v.coarse_ny, v.coarse_nx);
        t.fine_light = (long long *)t.fine.light;
        t.coarse_light = (long long *)t.coarse.light;
        t.smooth = m.take<float>(v.fine_ny * v.fine_nx);
        const auto order_of = [&](tail_order &o, int rough) {
            o.rough = rough;
            o.rows = spx_beyond_rows_of(rough);
            o.count = (int)spx::blocks(v.ny, (size_t)o.rows);
            o.rank = m.take<int>((size_t)o.count * r.nspec);
            o.strips = m.take<int2>((size_t)o.count * t.strips);
        };
        order_of(together_, 0);
        order_of(roughly_, 1);
        t.source = m.take<tail_source>((size_t)together_.count * r.nspec);
    }

    template <typename T> void put(const void *to, const T *from, size_t n)
    {
        spx::to_device += n * sizeof(T);
        spx::check(cudaMemcpyAsync(const_cast<void *>(to), from, n * sizeof(T), cudaMemcpyHostToDevice, stream_),
                   "copy");
    }

    void send(const spx_rows_view &r, const spx_tail_view &v)
    {
        const row_tables &t = rows_;
        std::vector<int2> ends(r.nspec);
        for (size_t f = 0; f < r.nspec; f++)
            ends[f] = {(int)r.ends[f][0], (int)r.ends[f][1]};
        put(t.profile, r.profile, r.nspec * SPX_ROW_KNOTS * (SPX_ROW_PHASES + 1) * r.width);
        put(t.place, &r.place[0][0], 2 * r.ny * r.nspec);
        put(t.ends, ends.data(), r.nspec);
        put(t.spread, &r.spread[0][0], r.nspec * (SPX_ROW_SIDE + 1));
        spx::check(spx::allow_shared(row_order_kernel, r.nspec * sizeof(float)), "kernel");
        row_order_kernel<<<(unsigned)r.ny, ROW_THREADS, r.nspec * sizeof(float), stream_>>>(t);
        const size_t places = r.nspec * (sizeof(profile_place) + sizeof(int));
        spx::check(spx::allow_shared(row_profiles_kernel, places), "kernel");
        row_profiles_kernel<<<(unsigned)r.ny, ROW_THREADS, places, stream_>>>(t);
        const size_t columns = r.nx + 2 * r.pad;
        spx::check(spx::allow_shared(row_use_kernel, columns), "kernel");
        row_use_kernel<<<(unsigned)r.ny, ROW_THREADS, columns, stream_>>>(t);
        spx::check(cudaGetLastError(), "launch");
        if (has_tail_)
            send_tail(r, v);
        spx::check(cudaStreamSynchronize(stream_), "stream"); /* `ends` goes */
    }

    void send_tail(const spx_rows_view &r, const spx_tail_view &v)
    {
        const tail_tables &t = tail_;
        put(t.table, v.table, (size_t)(SPX_TAIL_XPHASES + 1) * (2 * v.near + 1) * v.row);
        put(t.amplitude, v.amplitude, r.nspec * SPX_TAIL_KNOTS);
        put(t.range, r.range, 2 * r.nspec);
        const auto send_kernel = [&](const convolution &c, const float *kernel) {
            const std::vector<float2> x = spx::twiddles((size_t)c.nx), y = spx::twiddles((size_t)c.ny);
            put(c.kernel, kernel, 2 * (size_t)c.ny * c.half());
            put(c.along_x, x.data(), x.size());
            put(c.along_y, y.data(), y.size());
            spx::check(cudaStreamSynchronize(stream_), "stream");
        };
        send_kernel(t.fine, v.middle);
        send_kernel(t.coarse, v.far);
        spx::check(spx::allow_shared(tail_order_kernel, r.nspec * sizeof(int)), "kernel");
        for (const tail_order *o : {&together_, &roughly_})
            tail_order_kernel<<<(unsigned)o->count, ROW_THREADS, r.nspec * sizeof(int), stream_>>>(t, *o);
        spx::check(cudaGetLastError(), "launch");
    }

    /* do_it(blocks, bytes of shared memory, scratch, bytes of a block there) for a kernel of n rows, whose blocks have
     * shared memory, or, of wide rows, the device's. */
    template <class KERNEL, class DO> void for_rows(KERNEL *kernel, size_t n, size_t room, const DO &do_it)
    {
        int shared, count;
        const int device = spx::device_in_use();
        spx::check(cudaDeviceGetAttribute(&shared, cudaDevAttrMaxSharedMemoryPerBlockOptin, device), "device");
        spx::check(cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device), "device");
        if (room + 1024 <= (size_t)shared) {
            spx::check(spx::allow_shared(kernel, room), "kernel");
            do_it((unsigned)n, room, (char *)nullptr, (size_t)0);
        } else {
            const size_t few = std::min(n, (size_t)count * 4);
            do_it((unsigned)few, (size_t)0, scratch_.need(few * room), room);
        }
        spx::check(cudaGetLastError(), "launch");
    }

    template <class DO> spx_status guard(spx_err *e, const DO &do_it)
    {
        return spx::guarded("light beyond spots", e, [&]() { return do_it(); });
    }

    dim3 fibres_by_rows() const
    {
        return dim3(spx::blocks((size_t)rows_.nspec, SHARE_THREADS), (unsigned)rows_.ny);
    }

    /* ---- the steps ---- */

    static spx_status clear(void *with, spx_err *e)
    {
        light_finder *s = (light_finder *)with;
        return s->guard(e, [&]() {
            spx::check(cudaMemsetAsync(s->rows_.far, 0, (size_t)s->rows_.ny * s->rows_.nx * sizeof(float), s->stream_),
                       "device memory");
            return SPX_OK;
        });
    }

    static spx_status light(void *with, int rough, spx_err *e)
    {
        light_finder *s = (light_finder *)with;
        return s->guard(e, [&]() {
            const row_tables &t = s->rows_;
            const cudaStream_t stream = s->stream_;
            const dim3 all = s->fibres_by_rows();
            row_work w;
            s->for_rows(row_light_kernel, (size_t)t.ny, row_room(t, 0, false, NULL, &w),
                        [&](unsigned n, size_t shared, char *scratch, size_t each) {
                            row_light_kernel<<<n, ROW_THREADS, shared, stream>>>(t, rough && t.wide ? 2 : 1, scratch,
                                                                                 each);
                        });
            row_fill_kernel<<<all, SHARE_THREADS, 0, stream>>>(t);
            row_rest_kernel<<<all, SHARE_THREADS, 0, stream>>>(t);
            row_sharpen_kernel<<<all, SHARE_THREADS, 0, stream>>>(t);
            spx::check(cudaGetLastError(), "launch");
            return SPX_OK;
        });
    }

    static spx_status keep(void *with, spx_err *e)
    {
        light_finder *s = (light_finder *)with;
        return s->guard(e, [&]() {
            spx::check(cudaMemcpyAsync(s->rows_.first_light, s->rows_.sharp, s->lights() * sizeof(float),
                                       cudaMemcpyDeviceToDevice, s->stream_),
                       "copy");
            return SPX_OK;
        });
    }

    static spx_status extrapolate(void *with, spx_err *e)
    {
        light_finder *s = (light_finder *)with;
        return s->guard(e, [&]() {
            const row_tables &t = s->rows_;
            const dim3 grid(spx::blocks((size_t)t.nspec, SHARE_THREADS), spx::blocks((size_t)t.ny, SPX_BEYOND_EACH));
            const size_t n = (size_t)grid.x * grid.y;
            row_share_kernel<<<grid, SHARE_THREADS, 0, s->stream_>>>(t, s->partial_);
            for (int k = 0; k < 2; k++)
                total_kernel<<<1, 1024, 0, s->stream_>>>(s->partial_ + (size_t)k * n, n, s->total_ + k);
            row_extrapolate_kernel<<<spx::blocks(s->lights(), 256), 256, 0, s->stream_>>>(t, s->total_);
            spx::check(cudaGetLastError(), "launch");
            return SPX_OK;
        });
    }

    static spx_status draw(void *with, int rough, double *sum, spx_err *e)
    {
        light_finder *s = (light_finder *)with;
        return s->guard(e, [&]() {
            draw_tail(s->tail_, rough ? s->roughly_ : s->together_, s->rows_.sharp, s->rows_.far, s->partial_,
                      s->total_, s->stream_);
            double *const host = s->host_.need(2);
            s->get(host, s->total_, 2);
            memcpy(sum, host, 2 * sizeof *sum);
            return SPX_OK;
        });
    }

    /* To page-locked memory, when all that was launched is done. */
    void get(double *to, const double *from, size_t n)
    {
        spx::to_host += n * sizeof *to;
        spx::check(cudaMemcpyAsync(to, from, n * sizeof *to, cudaMemcpyDeviceToHost, stream_), "copy");
        spx::check(cudaStreamSynchronize(stream_), "stream");
    }

    /* The background as it is, on the device. */
    row_background send_ground(const spx_background *bg, size_t more)
    {
        spx_background_view v;
        spx_background_look(bg, &v);
        const size_t n = v.along.n * v.across.n;
        row_background g = {};
        double *const host = host_.need(n + more), *const c = ground_.need(n);
        memcpy(host, v.c, n * sizeof *host);
        put(c, host, n);
        g.along = v.along;
        g.across = v.across;
        g.c = c;
        g.every = (int)v.every;
        return g;
    }

    static spx_status fit(void *with, spx_background *bg, int rough, spx_extract_counts *counts, spx_err *e)
    {
        light_finder *s = (light_finder *)with;
        const double *sums = NULL;
        spx_status st = s->guard(e, [&]() {
            sums = s->sum_ground(bg, rough != 0, counts);
            return SPX_OK;
        });
        return st == SPX_OK ? spx_background_solve(bg, sums, e) : st;
    }

    const double *sum_ground(const spx_background *bg, bool rough, spx_extract_counts *counts)
    {
        const row_tables &t = rows_;
        spx_background_view v;
        spx_background_look(bg, &v);
        const size_t each = v.across.n * (ROW_NEAR + 1), n = 4 * v.along.n * each, unknowns = v.along.n * v.across.n;
        double *const host = host_.need(std::max(n + 1, unknowns));
        row_background g = send_ground(bg, 0);
        g.every = rough ? g.every : 1;
        g.rows = rows_of_ground_.need(spx::blocks((size_t)t.ny, (size_t)g.every) * each);
        double *const sums = sums_.need(n + 1); /* and a count */
        g.left_out = (unsigned long long *)(sums + n);
        zero_count(g.left_out);
        row_work w;
        const size_t room = row_room(t, (int)v.across.n - 3, true, NULL, &w);
        if (!rough)
            for_rows(ground_flags_kernel, (size_t)t.ny, room,
                     [&](unsigned count, size_t shared, char *scratch, size_t size) {
                         ground_flags_kernel<<<count, ROW_THREADS, shared, stream_>>>(t, g, scratch, size);
                     });
        for_rows(ground_rows_kernel, spx::blocks((size_t)t.ny, (size_t)g.every), room,
                 [&](unsigned count, size_t shared, char *scratch, size_t size) {
                     ground_rows_kernel<<<count, ROW_THREADS, shared, stream_>>>(t, g, !rough, scratch, size);
                 });
        ground_sums_kernel<<<dim3(spx::blocks(4 * each, ROW_THREADS / spx::WARP), (unsigned)v.along.n), ROW_THREADS, 0,
                             stream_>>>(t, g, sums);
        spx::check(cudaGetLastError(), "launch");
        get(host, sums, n + 1);
        unsigned long long left_out;
        memcpy(&left_out, host + n, sizeof left_out);
        counts->background_unknowns = unknowns;
        counts->background_clipped = (size_t)left_out;
        return host;
    }

    void zero_count(unsigned long long *at)
    {
        spx::check(cudaMemsetAsync(at, 0, sizeof *at, stream_), "device memory");
    }

    static spx_status add(void *with, const spx_background *bg, spx_err *e)
    {
        light_finder *s = (light_finder *)with;
        return s->guard(e, [&]() {
            const row_tables &t = s->rows_;
            const row_background g = s->send_ground(bg, 0);
            const size_t shared = g.across.n * sizeof *g.c;
            spx::check(spx::allow_shared(ground_add_kernel, shared), "kernel");
            ground_add_kernel<<<(unsigned)t.ny, ROW_THREADS, shared, s->stream_>>>(t, g);
            spx::check(cudaGetLastError(), "launch");
            return SPX_OK;
        });
    }
};

/* Takes that light off the image; light: NULL, or where it begins, in units of LIGHT_UNIT. Thread (pixel). */
__global__ void take_off_kernel(size_t n, const float *far, float *data, long long *light)
{
    const size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    data[i] -= far[i];
    if (light)
        light[i] = llrint((double)far[i] * (1.0 / LIGHT_UNIT));
}

} // namespace

#endif
