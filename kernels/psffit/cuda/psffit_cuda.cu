/* Provides the fit of traces and PSF to arcs on CUDA devices: the steps of spx_pf_device (psffit/fit.h), which the
 * CPU's passes call. A bundle has a stream, and all its pixels and spots on the device from its first pass to its last;
 * bundles are worked on side by side by the threads of the host, which have what is small: the band of the background,
 * what the arc tells of the priors, and what is found of lines and errors after the passes. */
#include <sys/prctl.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <iterator>
#include <memory>
#include <mutex>
#include <thread>
#include <tuple>
#include <vector>

#include "psffit/cuda/normal.cuh"
#include "psffit/cuda/pixels.cuh"
#include "psffit/cuda/result.cuh"
#include "psffit/cuda/solve.cuh"
#include "psffit/cuda/spots.cuh"

#define restrict __restrict__
extern "C" {
#include "psffit/cuda/psffit_cuda.h"
#include "psffit/tail_fit.h"
}
#undef restrict

namespace
{

using spx::check;
using namespace spx_pf;

/* Images of lines that are made at one time (normal.cuh), bytes. */
constexpr size_t MOST_IMAGES = (size_t)64 << 20;

/* A table that the device copies to page-locked memory. */
struct table {
    void *to;
    const char *pages;
    size_t bytes;
};

/* Copies of tables by a kernel. */
constexpr int MOST_COPIES = 8;
struct copies {
    int n;
    uint32_t *to[MOST_COPIES];
    const uint32_t *from[MOST_COPIES];
    size_t words[MOST_COPIES];
};

/* Device memory that grows: at first a share of a block, so that the driver is asked once for all of them. */
class share
{
  public:
    void begin_with(char *at, size_t bytes)
    {
        at_ = at;
        bytes_ = bytes;
    }
    char *need(size_t bytes)
    {
        if (bytes > bytes_) {
            at_ = own_.need(bytes);
            bytes_ = bytes;
        }
        return at_;
    }

  private:
    spx::device_buffer<char> own_;
    char *at_ = nullptr;
    size_t bytes_ = 0;
};

/* A bundle on a device. Memory stays from bundle to bundle. */
struct context {
    explicit context(int d) : device(d), fibre0(SIZE_MAX)
    {
    }
    const int device;
    spx::stream stream{true}; /* chains of small kernels, and */
    spx::stream slow{false};  /* large ones, behind which those of other bundles would wait */
    size_t fibre0;            /* of the bundle whose pixels are there, SIZE_MAX: of none */
    spx::array<char> block;   /* that the others begin with */
    share pixels;             /* data, then noise */
    share fixed, factors, tables, border, scratch;
    share matrix, square;           /* of the parameters; one that is factored */
    spx::pinned_buffer<char> pages; /* [STAGED] tables on their way, until wait(); then the flag */
    unsigned number = 0;            /* of waits, which the device writes into the flag */
    copies puts = {}, gets = {};
    size_t staged = 0; /* bytes of it that are used */
    std::vector<table> waited_for;
    std::vector<line> lines;
    std::vector<int> groups;  /* first line of each */
    std::vector<int> rows[2]; /* state::rows of now and trial, as they were drawn */
    problem p;
    state now, trial;
    line *there; /* lines, as the kernels have them */
    double *vterm, *doubt, *shape, *series, *slope, *coef;
    float *softened; /* where p.soft is, if it is */
    double *h;       /* the matrix, of p.n columns */
    int *first_of_group;
    unsigned together;      /* blocks that factor a matrix */
    size_t largest, packed; /* fluxes of the largest group; of the largest whose matrix is in shared memory */
    int deepest;            /* lines of the largest group */
    spx_status failed;
    spx_err e;
};

/* A fit: contexts that no bundle has. */
struct fit {
    std::vector<int> device;
    std::mutex lock;
    std::vector<std::unique_ptr<context>> idle;
    std::vector<std::unique_ptr<context>> promised; /* to bundles, whose pixels they have */
    size_t made = 0;
};

/* Contexts that no fit has, until a backend is closed: those that begin, several at a time, take them from here, as
 * their memory takes long to get. */
struct store {
    std::mutex lock;
    std::vector<std::unique_ptr<context>> idle;
};
store &kept = *new store; /* which outlives the driver */

/* NULL: there is none of these devices. */
std::unique_ptr<context> take_kept(const std::vector<int> &device)
{
    std::lock_guard<std::mutex> hold(kept.lock);
    for (auto at = kept.idle.end(); at != kept.idle.begin();)
        if (std::find(device.begin(), device.end(), (*--at)->device) != device.end()) {
            std::unique_ptr<context> c = std::move(*at);
            kept.idle.erase(at);
            return c;
        }
    return nullptr;
}

/* Those of a fit that has ended. */
void keep(fit *f)
{
    std::lock_guard<std::mutex> hold(kept.lock);
    for (auto *list : {&f->idle, &f->promised}) {
        for (auto &c : *list) {
            c->fibre0 = SIZE_MAX;
            kept.idle.push_back(std::move(c));
        }
        list->clear();
    }
}

#define LAUNCH(kernel, grid, threads, bytes, ...)                                                                      \
    do {                                                                                                               \
        flush(c);                                                                                                      \
        kernel<<<grid, threads, bytes, c.stream.s>>>(__VA_ARGS__);                                                     \
        check(cudaGetLastError(), "launch");                                                                           \
    } while (0)

/* Tables of up to SMALL bytes go through page-locked memory, from which and to which kernels copy them: copies of all
 * streams stand in few queues of the device, and wait there for those of other bundles, whose kernels are still at
 * work. Launches, and questions whether all is done, take their turn in the driver, which many threads wait for: so a
 * kernel copies all tables that the next one needs, or that are waited for, and tells the end by a number in
 * page-locked memory. */
constexpr size_t SMALL = (size_t)1536 << 10, STAGED = (size_t)2 << 20, WORD = sizeof(uint32_t);
constexpr size_t ONE_BLOCK = 4096; /* words that a block copies by itself */

__global__ void __launch_bounds__(THREADS) tables_kernel(const __grid_constant__ copies t)
{
    const size_t first = (size_t)blockIdx.x * THREADS + threadIdx.x, step = (size_t)gridDim.x * THREADS;
    for (int k = 0; k < t.n; k++)
        for (size_t i = first; i < t.words[k]; i += step)
            t.to[k][i] = t.from[k][i];
}

/* The same by one block, and `value` to *flag after all that was asked for before. */
__global__ void __launch_bounds__(THREADS)
    last_kernel(const __grid_constant__ copies t, volatile unsigned *flag, unsigned value)
{
    for (int k = 0; k < t.n; k++)
        for (size_t i = threadIdx.x; i < t.words[k]; i += THREADS)
            t.to[k][i] = t.from[k][i];
    __threadfence_system();
    __syncthreads();
    if (threadIdx.x == 0)
        *flag = value;
}

char *pages_of(context &c)
{
    return c.pages.need(STAGED + sizeof(unsigned));
}

/* Page-locked memory for a table, until the next wait(); NULL: it goes by a copy. */
char *stage(context &c, size_t bytes)
{
    const size_t at = c.staged, room = (bytes + 15) / 16 * 16;
    if (bytes == 0 || bytes > SMALL || bytes % WORD != 0 || at + room > STAGED)
        return nullptr;
    c.staged += room;
    return pages_of(c) + at;
}

size_t words_of(const copies &t)
{
    size_t n = 0;
    for (int k = 0; k < t.n; k++)
        n += t.words[k];
    return n;
}

/* Makes the copies that are pending. */
void make_copies(const context &c, copies *t)
{
    if (t->n > 0) {
        tables_kernel<<<spx::blocks(words_of(*t), THREADS), THREADS, 0, c.stream.s>>>(*t);
        check(cudaGetLastError(), "launch");
    }
    t->n = 0;
}

/* Before a kernel: the tables that it needs. */
void flush(context &c)
{
    make_copies(c, &c.puts);
}

void add_copy(const context &c, copies *t, void *to, const void *from, size_t bytes)
{
    if (t->n == MOST_COPIES)
        make_copies(c, t);
    t->to[t->n] = static_cast<uint32_t *>(to);
    t->from[t->n] = static_cast<const uint32_t *>(from);
    t->words[t->n++] = bytes / WORD;
}

void put(context &c, void *to, const void *from, size_t bytes)
{
    char *pages = stage(c, bytes);
    spx::to_device += bytes;
    if (pages == nullptr) {
        flush(c);
        check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, c.stream.s), "copy to the device");
        return;
    }
    memcpy(pages, from, bytes);
    add_copy(c, &c.puts, to, pages, bytes);
}

/* Complete after wait(), before which no kernel may change what is copied. */
void get(context &c, void *to, const void *from, size_t bytes)
{
    char *pages = stage(c, bytes);
    spx::to_host += bytes;
    if (pages == nullptr) {
        flush(c);
        check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, c.stream.s), "copy from the device");
        return;
    }
    flush(c);
    add_copy(c, &c.gets, pages, from, bytes);
    c.waited_for.push_back({to, pages, bytes});
}

void clear(context &c, void *at, size_t bytes)
{
    flush(c);
    check(cudaMemsetAsync(at, 0, bytes, c.stream.s), "device memory");
}

/* Sleeps some 25 us. Threads sleep 50 us longer than they ask for, unless they say once that they need not. */
void nap()
{
    static thread_local bool exact = false;
    if (!exact)
        (void)prctl(PR_SET_TIMERSLACK, 1000UL, 0UL, 0UL, 0UL); /* ns */
    exact = true;
    std::this_thread::sleep_for(std::chrono::microseconds(20));
}

/* Until all is done that was asked for. Others need the processor meanwhile: after a short while the thread sleeps
 * between its looks at the flag. A device that has failed tells nothing by itself. */
void wait(context &c)
{
    constexpr double SHORT = 20e-6, LONG = 1e-3; /* seconds awake, and between questions to the driver */
    volatile unsigned *flag = reinterpret_cast<unsigned *>(pages_of(c) + STAGED);
    flush(c);
    if (words_of(c.gets) > ONE_BLOCK)
        make_copies(c, &c.gets);
    *flag = c.number;
    c.number++;
    last_kernel<<<1, THREADS, 0, c.stream.s>>>(c.gets, flag, c.number);
    check(cudaGetLastError(), "launch");
    c.gets.n = 0;
    const double begin = spx_seconds();
    double asked = begin;
    while (*flag != c.number) {
        const double now = spx_seconds();
        if (now - begin < SHORT)
            std::this_thread::yield();
        else
            nap();
        if (now - asked < LONG)
            continue;
        const cudaError_t code = cudaStreamQuery(c.stream.s);
        if (code != cudaErrorNotReady) {
            check(code, "kernel");
            break;
        }
        (void)cudaGetLastError(); /* which is no error */
        asked = spx_seconds();
    }
    std::atomic_thread_fence(std::memory_order_acquire);
    for (const table &t : c.waited_for)
        memcpy(t.to, t.pages, t.bytes);
    c.waited_for.clear();
    c.staged = 0;
}

int attribute(int device, cudaDeviceAttr which)
{
    int value = 0;
    check(cudaDeviceGetAttribute(&value, which, device), "device");
    return value;
}

/* Lets kernels whose shared memory depends on the bundle have as much as there is. */
void allow()
{
    const auto each = [](auto *...kernel) { (check(spx::allow_shared(kernel, 0), "kernel"), ...); };
    each(spots_kernel, nodes_kernel, spot_gradient_kernel, derive_kernel, spot_rows_kernel, image_kernel, factor_kernel,
         substitute_kernel, whole_kernel);
}

/* Loads the other kernels that most bundles need, which the driver does at a kernel's first launch, and waits then
 * until all that runs on the device has ended. */
void load()
{
    const auto each = [](auto *...kernel) {
        cudaFuncAttributes has;
        (check(cudaFuncGetAttributes(&has, reinterpret_cast<const void *>(kernel)), "kernel"), ...);
    };
    each(add_rows_kernel, before_bright_kernel, border_kernel, border_matrix_kernel, coefficients_kernel,
         count_bright_kernel, count_rejected_kernel, damped_kernel, draw_kernel, drift_kernel, drift_sums_kernel,
         eliminate_kernel, first_weights_kernel, gradient_kernel, gram_kernel, ground_kernel, intervals_kernel,
         last_kernel, learn_kernel, line_gradient_kernel, misfit_kernel, moments_kernel, near_kernel, offsets_kernel,
         pair_kernel, part_kernel, parts_kernel, peaks_kernel, power_kernel, prior_kernel, profiles_kernel,
         reject_kernel, residuals_kernel, rest_kernel, rows_kernel, sample_bright_kernel, schur_kernel, shape_kernel,
         stack_kernel, strip_kernel, tables_kernel, total_kernel, trace_rows_kernel, turn_columns_kernel,
         turn_rows_kernel, variance_kernel, wavelength_kernel, wavelength_rows_kernel, weigh_kernel, weights_kernel);
}

context &of(spx_pf_bundle *b)
{
    return *static_cast<context *>(b->there);
}

state &of(spx_pf_state *s)
{
    return *static_cast<state *>(s->there);
}

/* While it lives kernels go to the stream of large ones, which has to be waited for before it ends. */
class slowly
{
  public:
    explicit slowly(context &c) : c_(c)
    {
        if (spx::order(c.stream.s, c.slow.s) != 0)
            spx::fail("event");
        std::swap(c_.stream.s, c_.slow.s);
    }
    slowly(const slowly &) = delete;
    slowly &operator=(const slowly &) = delete;
    ~slowly()
    {
        std::swap(c_.stream.s, c_.slow.s);
    }

  private:
    context &c_;
};

/* Runs a step: 1, or 0 where it, or one before, has failed. */
template <typename F> int step(spx_pf_bundle *b, F f)
{
    context &c = of(b);
    if (c.failed != SPX_OK)
        return 0;
    int ok = 1;
    c.failed = spx::guarded("psffit", &c.e, [&] {
        ok = f(c);
        return SPX_OK;
    });
    return ok && c.failed == SPX_OK;
}

/* ---- begin, end ---- */

void hand_out(spx::arena &m, const problem &p, state *s)
{
    const size_t n = (size_t)(p.nexp * p.nl * p.nf), ntheta = p.shape0 + (size_t)(p.nb * p.na * p.nq);
    s->theta = m.take<double>(ntheta);
    s->at = m.take<spx_pf_at>(n);
    s->gx = m.take<double>(n * (size_t)(p.norder * p.nx));
    s->gy = m.take<double>(n * (size_t)(p.norder * p.ny));
    s->c = m.take<double>(n * (size_t)p.nc);
    s->spot = m.take<double>(n * (size_t)p.npix);
    s->flux = m.take<double>(n);
    s->light = m.take<double>((size_t)p.nexp * (size_t)(p.height * p.width));
    s->rows = m.take<int>((size_t)(2 * p.nexp * p.nl));
    s->bad = m.take<int>(1);
}

void hand_out(spx::arena &m, context *c)
{
    problem &p = c->p;
    const size_t n = (size_t)(p.nexp * p.nl * p.nf), npix = (size_t)p.nexp * (size_t)(p.height * p.width);
    const size_t nprofile = (size_t)p.nexp * (size_t)(p.height * p.nf);
    hand_out(m, p, &c->now);
    hand_out(m, p, &c->trial);
    p.median = m.take<float>(npix);
    p.root = m.take<float>(npix);
    c->softened = m.take<float>(npix);
    p.ground = m.take<double>(npix);
    p.goal = m.take<double>(npix);
    p.rejected = m.take<uint8_t>(npix);
    p.profile = m.take<float>(nprofile * (size_t)p.wide);
    p.first = m.take<int32_t>(nprofile);
    p.stamp = m.take<double>(n * (size_t)p.npix);
    p.work = m.take<double>(2 * (size_t)p.nexp * (size_t)p.height);
    p.sums = m.take<double>((size_t)(16 * p.nf + 8));
    p.bad = m.take<int>(1);
    c->there = m.take<line>((size_t)p.nl);
    c->first_of_group = m.take<int>((size_t)p.nl);
    c->vterm = m.take<double>((size_t)(p.nf * p.na));
    c->doubt = m.take<double>((size_t)p.nf);
    c->slope = m.take<double>((size_t)(2 * p.nl * p.nf));
    c->coef = m.take<double>(p.nground);
    c->series = m.take<double>(p.fixed != nullptr ? (size_t)(p.nf * (2 + p.nc) * p.ndeg) : 1);
    c->shape = m.take<double>(p.fixed != nullptr ? (size_t)(p.nl * p.nf) * (size_t)(2 + p.nc) : 1);
}

void put_lines(context &c, const spx_pf_bundle *b)
{
    for (size_t l = 0; l < b->nl; l++) {
        const spx_pf_line &from = b->line[l];
        line &to = c.lines[l];
        to.wave = from.wave;
        memcpy(to.term, from.term, sizeof to.term);
        to.weak = from.weak;
        to.free = (int)from.free;
    }
    put(c, c.there, c.lines.data(), b->nl * sizeof(line));
}

/* Whole numbers of the kernels, as the bundle has them now. */
void set_pass(problem &p, const spx_pf_bundle *b)
{
    p.reach = b->reach;
    p.active = b->active;
    p.ns = p.na * p.active;
    p.n = (int)spx_pf_columns(b);
}

void set_sizes(problem &p, const spx_pf_bundle *b)
{
    const spx_pf_plan *q = b->p;
    p = problem{};
    p.deg = q->deg;
    p.norder = q->norder;
    p.nc = q->nc;
    p.nq = q->nq;
    p.hx = q->hx;
    p.hy = q->hy;
    p.nx = q->nx;
    p.ny = q->ny;
    p.npix = q->nx * q->ny;
    p.ntr = q->ntr;
    p.na = q->na;
    p.nb = q->nb;
    p.side = q->deg + 1;
    p.nf = (int)b->nf;
    p.nl = (int)b->nl;
    p.nexp = (int)q->nexp;
    p.nshift = (int)q->nshift;
    p.wide = (int)spx_pf_profile_width(q);
    p.nknot = (int)b->nknot;
    p.height = (long)q->height;
    p.width = (long)b->width;
    p.x0 = (long)b->x0;
    p.shift0 = b->shift0;
    p.free0 = b->free0;
    p.shape0 = b->shape0;
    p.nground = spx_pf_nground(b);
    p.wmin = q->wmin;
    p.wmax = q->wmax;
    p.fixed = b->fixed;
    p.ndeg = (int)q->start->ndeg;
    p.start0 = q->start->wmin;
    p.start1 = q->start->wmax;
    set_pass(p, b);
}

/* The context of a list that has a bundle's pixels, or its end. */
std::vector<std::unique_ptr<context>>::iterator of_fibre(std::vector<std::unique_ptr<context>> &list, size_t fibre0)
{
    return std::find_if(list.begin(), list.end(), [&](const auto &c) { return c->fibre0 == fibre0; });
}

void begin_fit(const spx_pf_device *d)
{
    fit *f = static_cast<fit *>(d->state);
    std::lock_guard<std::mutex> hold(f->lock);
    std::move(f->promised.begin(), f->promised.end(), std::back_inserter(f->idle));
    f->promised.clear();
    for (const auto &c : f->idle)
        c->fibre0 = SIZE_MAX;
}

int has_pixels(const spx_pf_device *d, size_t fibre0)
{
    fit *f = static_cast<fit *>(d->state);
    std::lock_guard<std::mutex> hold(f->lock);
    const auto at = of_fibre(f->idle, fibre0);
    if (at == f->idle.end())
        return 0;
    f->promised.push_back(std::move(*at));
    f->idle.erase(at);
    return 1;
}

std::unique_ptr<context> acquire(fit *f, size_t fibre0)
{
    std::lock_guard<std::mutex> hold(f->lock);
    auto &list = of_fibre(f->promised, fibre0) != f->promised.end() ? f->promised : f->idle;
    if (!list.empty()) {
        const auto at = &list == &f->promised ? of_fibre(list, fibre0) : list.end() - 1;
        std::unique_ptr<context> c = std::move(*at);
        list.erase(at);
        check(cudaSetDevice(c->device), "device");
        return c;
    }
    std::unique_ptr<context> c = take_kept(f->device);
    const int device = c != nullptr ? c->device : f->device[f->made++ % f->device.size()];
    check(cudaSetDevice(device), "device");
    if (c != nullptr)
        return c;
    allow();
    load();
    c.reset(new context(device));
    c->together = (unsigned)std::min(TOGETHER, attribute(device, cudaDevAttrMultiProcessorCount));
    return c;
}

/* Series of the start's widths and coefficients (spx_pf_shape_start()), 0 where it has none. */
std::vector<double> series_of_start(const spx_pf_bundle *b)
{
    const spx_pf_plan *p = b->p;
    const spx_psf *psf = p->start;
    const size_t ndeg = psf->ndeg, each = (size_t)(2 + p->nc);
    std::vector<double> out(b->nf * each * ndeg, 0.0);
    for (size_t i = 0; i < b->nf; i++)
        for (size_t q = 0; q < each; q++) {
            const int m = (int)q - 2, x = m % (p->deg + 1), y = m / (p->deg + 1);
            const int row = q == 0                                 ? psf->sigx
                            : q == 1                               ? psf->sigy
                            : x <= psf->ghdegx && y <= psf->ghdegy ? psf->gh[x + (psf->ghdegx + 1) * y]
                                                                   : -1;
            if (row >= 0)
                memcpy(&out[(i * each + q) * ndeg], psf->coeff + ((size_t)row * psf->nspec + b->fibre0 + i) * ndeg,
                       ndeg * sizeof(double));
        }
    return out;
}

void upload(context &c, const spx_pf_bundle *b)
{
    const problem &p = c.p;
    const size_t npix = (size_t)(p.height * p.width), all = (size_t)p.nexp * npix;
    float *data = reinterpret_cast<float *>(c.pixels.need(2 * all * sizeof(float)));
    c.p.data = data;
    c.p.noise = data + all;
    for (size_t x = 0; x < b->p->nexp && b->px[x].data != nullptr; x++) {
        put(c, data + x * npix, b->px[x].data, npix * sizeof(float));
        put(c, data + all + x * npix, b->px[x].noise, npix * sizeof(float));
    }
    c.fibre0 = b->fibre0;
    clear(c, p.median, (size_t)p.nexp * npix * sizeof(float));
    clear(c, p.root, (size_t)p.nexp * npix * sizeof(float));
    clear(c, p.ground, (size_t)p.nexp * npix * sizeof(double));
    clear(c, p.goal, (size_t)p.nexp * npix * sizeof(double));
    clear(c, p.rejected, (size_t)p.nexp * npix);
    for (const state *s : {&c.now, &c.trial}) {
        clear(c, s->flux, b->nspot * sizeof(double));
        clear(c, s->light, (size_t)p.nexp * npix * sizeof(double));
    }
    put(c, c.vterm, b->vterm, b->nf * (size_t)p.na * sizeof(double));
    if (b->fixed != nullptr) {
        const std::vector<double> series = series_of_start(b);
        put(c, c.shape, b->fixed, b->nl * b->nf * (size_t)(2 + p.nc) * sizeof(double));
        put(c, c.series, series.data(), series.size() * sizeof(double));
        wait(c);
    }
    put_lines(c, b);
}

/* Arrays of normal(). */
struct matrices {
    double *h, *g, *prior, *weight, *add, *spot, *by_line, *stamp, *dots, *u, *product;
    float *image;
    int *strip, *most;
    int2 *pair;
};

/* Those whose sizes do not depend on the strips. */
void hand_out(spx::arena &m, const context &c, size_t nspot, matrices *to)
{
    const problem &p = c.p;
    const size_t n = (size_t)p.n, per = (size_t)(p.nl * p.nf);
    to->h = c.h;
    to->g = m.take<double>(n);
    to->prior = m.take<double>((size_t)(p.nf * p.nf));
    to->weight = m.take<double>((size_t)(2 * p.ntr));
    to->add = m.take<double>(n);
    to->spot = m.take<double>(nspot * (size_t)(2 + p.active));
    to->by_line = m.take<double>((size_t)(p.nexp * p.nl * p.ns) + 1);
    to->stamp = m.take<double>(5 * per * (size_t)p.npix);
    to->dots = m.take<double>(per * (size_t)(c.deepest * (2 * p.reach + 1) * 6));
    to->u = m.take<double>(3 * per * n);
    to->strip = m.take<int>((size_t)p.nl * (size_t)p.width);
    to->most = m.take<int>(1);
}

/* Memory of most bundles, so that none has to be freed while others work, which a device does not do before they end;
 * fixed: bytes of the arrays that are there from the first pass to the last. */
void reserve(context &c, const spx_pf_bundle *b, size_t fixed)
{
    constexpr size_t ALIGNED = 256;
    const size_t n = b->ntheta, per = b->nl * b->nf, lines = std::min((size_t)4, b->nl) * b->nf;
    const size_t npix = b->p->nexp * (size_t)(c.p.height * c.p.width);
    matrices m = {};
    spx::arena count{};
    c.p.n = (int)n;
    c.p.ns = c.p.na * c.p.nq;
    c.deepest = 4;
    hand_out(count, c, b->nspot, &m);
    const struct {
        share *of;
        size_t bytes;
    } all[] = {{&c.pixels, 2 * npix * sizeof(float)},
               {&c.fixed, fixed},
               {&c.tables, count.used},
               {&c.matrix, n * n * sizeof(double)},
               {&c.square, 2 * (n + PANEL) * n * sizeof(double)},
               {&c.factors, (2 * b->p->nexp * per * lines + 1) * sizeof(double)},
               {&c.border, per * (8 * b->nf + 1) * sizeof(double)},
               {&c.scratch, MOST_IMAGES * 5 / 4}};
    if (c.block.get() == nullptr) {
        size_t sum = 0;
        for (const auto &a : all)
            sum += (a.bytes + ALIGNED - 1) / ALIGNED * ALIGNED;
        c.block = spx::array<char>(sum);
        char *at = c.block.get();
        for (const auto &a : all) {
            a.of->begin_with(at, a.bytes);
            at += (a.bytes + ALIGNED - 1) / ALIGNED * ALIGNED;
        }
    }
    for (const auto &a : all)
        (void)a.of->need(a.bytes);
    set_pass(c.p, b);
}

spx_status begin(spx_pf_bundle *b, spx_err *e)
{
    return spx::guarded("psffit", e, [&] {
        fit *f = static_cast<fit *>(b->p->device->state);
        std::unique_ptr<context> taken = acquire(f, b->fibre0);
        context &c = *taken;
        set_sizes(c.p, b);
        const problem &p = c.p;
        const size_t shared = (size_t)attribute(c.device, cudaDevAttrMaxSharedMemoryPerBlockOptin) -
                              (12 << 10); /* without what kernels have besides */
        const size_t room = sizeof(double) * std::max({gradient_room(p), (size_t)(3 * p.npix),
                                                       (size_t)(3 * p.side * p.nx), spot_room(p)});
        if (room > shared)
            return spx_fail_remedy(e, SPX_EDEVICE, "use {device} cpu",
                                   "spots of %d x %d pixels are too large for a GPU", p.nx, p.ny);
        spx::arena count{};
        hand_out(count, &c);
        reserve(c, b, count.used);
        spx::arena m{c.fixed.need(count.used), 0, count.used};
        hand_out(m, &c);
        c.p.lines = c.there;
        c.p.vterm = c.vterm;
        c.p.doubt = c.doubt;
        c.p.soft = nullptr;
        c.p.slope = c.slope;
        c.p.series = c.series;
        c.p.fixed = b->fixed != nullptr ? c.shape : nullptr;
        c.lines.assign(b->nl, line{});
        c.groups.clear();
        for (std::vector<int> &rows : c.rows)
            rows.assign(2 * b->p->nexp * b->nl, 0);
        c.packed = most_packed(shared);
        c.failed = SPX_OK;
        c.e = spx_err{};
        c.puts.n = c.gets.n = 0; /* of a bundle that ended before they were asked for */
        c.waited_for.clear();
        upload(c, b);
        b->now.there = &c.now;
        b->trial.there = &c.trial;
        b->there = taken.release();
        return SPX_OK;
    });
}

/* n elements of an array that the host has, too. */
template <typename T> void get_kept(context &c, T *to, const T *from, size_t n)
{
    if (to != nullptr)
        get(c, to, from, n * sizeof(T));
}

int take_arrays(spx_pf_bundle *b)
{
    return step(b, [&](context &c) {
        const problem &p = c.p;
        const state &s = of(&b->now);
        const size_t npix = (size_t)(p.height * p.width), n = b->nspot, nprofile = b->nf * b->p->height;
        for (size_t x = 0; x < b->p->nexp; x++) {
            const spx_pf_pixels &px = b->px[x];
            get_kept(c, px.data, p.data + x * npix, npix);
            get_kept(c, px.noise, p.noise + x * npix, npix);
            get_kept(c, px.root, p.root + x * npix, npix);
            get_kept(c, px.ground, p.ground + x * npix, npix);
            get_kept(c, px.goal, p.goal + x * npix, npix);
            get_kept(c, px.rejected, p.rejected + x * npix, npix);
            get_kept(c, px.profile, p.profile + x * nprofile * (size_t)p.wide, nprofile * (size_t)p.wide);
        }
        get_kept(c, b->now.gx, s.gx, n * (size_t)(p.norder * p.nx));
        get_kept(c, b->now.gy, s.gy, n * (size_t)(p.norder * p.ny));
        get_kept(c, b->now.c, s.c, n * (size_t)p.nc);
        get_kept(c, b->now.spot, s.spot, n * (size_t)p.npix);
        get_kept(c, b->now.light, s.light, (size_t)p.nexp * npix);
        wait(c);
        return 1;
    });
}

spx_status end(spx_pf_bundle *b, spx_err *e)
{
    std::unique_ptr<context> c(static_cast<context *>(b->there));
    fit *f = static_cast<fit *>(b->p->device->state);
    b->there = b->now.there = b->trial.there = nullptr;
    if (c->failed != SPX_OK)
        return spx_err_pass(e, &c->e);
    std::lock_guard<std::mutex> hold(f->lock);
    f->idle.push_back(std::move(c));
    return SPX_OK;
}

/* ---- spots and fluxes ---- */

int spots(spx_pf_bundle *b, spx_pf_state *s)
{
    return step(b, [&](context &c) {
        const problem &p = c.p;
        const state &to = of(s);
        put(c, to.theta, s->theta, b->ntheta * sizeof *s->theta);
        clear(c, to.bad, sizeof(int));
        LAUNCH(spots_kernel, (unsigned)b->nspot, SPOT_THREADS, spot_room(p) * sizeof(double), p, to);
        LAUNCH(rows_kernel, spx::blocks((size_t)(p.nexp * p.nl), THREADS), THREADS, 0, p, to);
        return 1; /* whether they are in range tell the fluxes */
    });
}

/* Factors of exposures x0 ... x0 + n - 1, and their fluxes, or only L^-1 b. */
void factorise(context &c, const spx_pf_bundle *b, const state &s, size_t x0, size_t n, int whole)
{
    const problem &p = c.p;
    const size_t per = b->nl * b->nf, packed = std::min(c.packed, c.largest);
    /* where the largest do not fit, they are not worth the memory that the others would ask for, too */
    const size_t bytes = factor_room(c.largest, c.largest <= c.packed) * sizeof(double);
    clear(c, p.bad, sizeof(int));
    clear(c, s.factor + x0 * b->nfactor, n * b->nfactor * sizeof(double));
    LAUNCH(weigh_kernel, (unsigned)(n * per), SPOT_THREADS, 0, p, s, x0 * per);
    LAUNCH(gram_kernel, spx::blocks(n * per, WARPS), THREADS, 0, p, s, x0 * per, (x0 + n) * per);
    LAUNCH(factor_kernel, dim3((unsigned)c.groups.size(), (unsigned)n), FACTOR_THREADS, bytes, p, s, c.first_of_group,
           (int)x0, c.largest <= c.packed ? packed : 0, whole);
}

/* Light, and chi squared. 0: it is not finite, or there was no solution. */
int draw_now(context &c, spx_pf_state *to)
{
    const problem &p = c.p;
    const state &s = of(to);
    int bad[2] = {0, 0};
    LAUNCH(draw_kernel, dim3((unsigned)p.height, (unsigned)p.nexp), THREADS,
           (size_t)p.nl * sizeof(int) + sizeof(double), p, s);
    LAUNCH(total_kernel, 1, THREADS, 0, p.work, (size_t)p.nexp * (size_t)p.height, 1, p.sums);
    get(c, &to->chi2, p.sums, sizeof to->chi2);
    get(c, &bad[0], p.bad, sizeof(int));
    get(c, &bad[1], s.bad, sizeof(int));
    std::vector<int> &rows = c.rows[&s == &c.trial];
    get(c, rows.data(), s.rows, rows.size() * sizeof(int));
    wait(c);
    return bad[0] == 0 && bad[1] == 0 && std::isfinite(to->chi2);
}

int fluxes(spx_pf_bundle *b, spx_pf_state *s)
{
    return step(b, [&](context &c) {
        factorise(c, b, of(s), 0, b->p->nexp, 1);
        return draw_now(c, s);
    });
}

void draw(spx_pf_bundle *b, spx_pf_state *s)
{
    (void)step(b, [&](context &c) {
        (void)draw_now(c, s);
        return 1;
    });
}

int places(spx_pf_bundle *b, double *power)
{
    return step(b, [&](context &c) {
        const problem &p = c.p;
        const state &s = of(&b->now);
        get(c, b->now.at, s.at, b->nspot * sizeof *s.at);
        if (power != nullptr) {
            double *out = reinterpret_cast<double *>(c.scratch.need((b->nspot + 1) * sizeof(double)));
            LAUNCH(weigh_kernel, (unsigned)b->nspot, SPOT_THREADS, 0, p, s, (size_t)0);
            LAUNCH(power_kernel, spx::blocks(b->nspot, WARPS), THREADS, 0, p, out);
            get(c, power, out, b->nspot * sizeof(double));
            get(c, b->now.flux, s.flux, b->nspot * sizeof(double));
        }
        wait(c);
        return 1;
    });
}

int regroup(spx_pf_bundle *b)
{
    return step(b, [&](context &c) {
        problem &p = c.p;
        set_pass(p, b);
        c.groups.resize(b->ngroup);
        c.largest = 0;
        c.deepest = 0;
        for (size_t g = 0; g < b->ngroup; g++) {
            const spx_pf_group &from = b->group[g];
            int quiet = 1;
            for (size_t l = from.first; l < from.last; l++)
                quiet &= b->line[l].weak;
            for (size_t l = from.first; l < from.last; l++) {
                c.lines[l].first = (int)from.first;
                c.lines[l].last = (int)from.last;
                c.lines[l].factor = from.factor;
                c.lines[l].quiet = quiet;
            }
            c.groups[g] = (int)from.first;
            c.largest = std::max(c.largest, (from.last - from.first) * b->nf);
            c.deepest = std::max(c.deepest, (int)(from.last - from.first));
        }
        p.nfactor = b->nfactor;
        const size_t n = b->p->nexp * b->nfactor;
        c.now.factor = reinterpret_cast<double *>(c.factors.need((2 * n + 1) * sizeof(double)));
        c.trial.factor = c.now.factor + n;
        put(c, c.first_of_group, c.groups.data(), c.groups.size() * sizeof(int));
        put_lines(c, b);
        return 1;
    });
}

int take_fluxes(spx_pf_bundle *b)
{
    return step(b, [&](context &c) {
        const state &s = of(&b->now);
        get(c, b->now.flux, s.flux, b->nspot * sizeof(double));
        get(c, b->now.factor, s.factor, b->p->nexp * b->nfactor * sizeof(double));
        wait(c);
        return 1;
    });
}

int flux_variance(spx_pf_bundle *b, double *out)
{
    return step(b, [&](context &c) {
        const problem &p = c.p;
        const state &s = of(&b->now);
        const size_t values = b->p->nexp * b->nfactor;
        double *work = reinterpret_cast<double *>(c.scratch.need((values + b->nspot) * sizeof(double)));
        LAUNCH(variance_kernel, dim3((unsigned)c.groups.size(), (unsigned)p.nexp), THREADS, 0, p, s, c.first_of_group,
               work, work + values);
        get(c, b->now.flux, s.flux, b->nspot * sizeof(double));
        get(c, out, work + values, b->nspot * sizeof *out);
        wait(c);
        return 1;
    });
}

int put_fluxes(spx_pf_bundle *b)
{
    return step(b, [&](context &c) {
        put(c, of(&b->now).flux, b->now.flux, b->nspot * sizeof(double));
        return 1;
    });
}

/* ---- weights and background ---- */

unsigned pixel_blocks(const problem &p)
{
    return spx::blocks((size_t)p.nexp * (size_t)(p.height * p.width), THREADS);
}

void first_weights(spx_pf_bundle *b, double epsilon)
{
    (void)step(b, [&](context &c) {
        LAUNCH(first_weights_kernel, pixel_blocks(c.p), THREADS, 0, c.p, epsilon * epsilon);
        return 1;
    });
}

void weights(spx_pf_bundle *b, double epsilon, int clip)
{
    (void)step(b, [&](context &c) {
        const problem &p = c.p;
        const state &s = of(&b->now);
        if (clip) {
            put(c, c.doubt, b->doubt, b->nf * sizeof *b->doubt);
            LAUNCH(misfit_kernel, pixel_blocks(p), THREADS, 0, p, s, epsilon);
            LAUNCH(reject_kernel, pixel_blocks(p), THREADS, 0, p);
        }
        LAUNCH(weights_kernel, pixel_blocks(p), THREADS, 0, p, s, epsilon * epsilon, clip ? 0 : SPX_PF_ROBUST);
        return 1;
    });
}

int soften(spx_pf_bundle *b, double part)
{
    return step(b, [&](context &c) {
        problem &p = c.p;
        p.soft = nullptr;
        if (!(part > 0))
            return 1;
        float *of_row =
            reinterpret_cast<float *>(c.scratch.need((size_t)p.nexp * (size_t)(p.height * p.width) * sizeof(float)));
        LAUNCH(largest_of_row_kernel, pixel_blocks(p), THREADS, 0, p, of(&b->now), of_row);
        LAUNCH(soften_kernel, pixel_blocks(p), THREADS, 0, p, of_row, (float)part, c.softened);
        p.soft = c.softened;
        return 1;
    });
}

int bright(spx_pf_bundle *b, size_t most, double *sample, size_t *n)
{
    return step(b, [&](context &c) {
        const problem &p = c.p;
        const state &s = of(&b->now);
        const size_t rows = (size_t)p.nexp * (size_t)p.height;
        const unsigned blocks = spx::blocks(rows, WARPS);
        size_t *told = reinterpret_cast<size_t *>(
            c.scratch.need((2 + rows + SPX_PF_SAMPLE * most) * sizeof(double) + rows * sizeof(int)));
        size_t *before = told + 2, found[2];
        double *out = reinterpret_cast<double *>(before + rows);
        int *number = reinterpret_cast<int *>(out + SPX_PF_SAMPLE * most);
        LAUNCH(count_bright_kernel, blocks, THREADS, 0, p, s, number);
        LAUNCH(before_bright_kernel, 1, THREADS, 0, rows, number, most, before, told, out);
        LAUNCH(sample_bright_kernel, blocks, THREADS, 0, p, s, before, told, out);
        get(c, found, told, sizeof found);
        get(c, sample, out, SPX_PF_SAMPLE * most * sizeof *sample);
        wait(c);
        *n = (found[0] + found[1] - 1) / found[1];
        return 1;
    });
}

int profiles(spx_pf_bundle *b, size_t x, size_t rows, size_t nstep, const spx_pf_node *node, int32_t *at)
{
    return step(b, [&](context &c) {
        problem &p = c.p;
        p.steps = (int)rows;
        p.nstep = (int)nstep;
        const size_t n = b->nf * (nstep + 1), values = n * (size_t)p.nx;
        double *to = reinterpret_cast<double *>(
            c.scratch.need((values + b->ntheta) * sizeof(double) + n * (sizeof *node + sizeof *at)));
        double *theta = to + values;
        spx_pf_node *nodes = reinterpret_cast<spx_pf_node *>(theta + b->ntheta);
        int32_t *first = reinterpret_cast<int32_t *>(nodes + n);
        put(c, theta, b->base, b->ntheta * sizeof *theta);
        put(c, nodes, node, n * sizeof *node);
        LAUNCH(nodes_kernel, (unsigned)n, SPOT_THREADS, spot_room(p) * sizeof(double), p, theta, nodes, (int)nstep + 1,
               to, first);
        LAUNCH(profiles_kernel, spx::blocks((size_t)(p.height * p.nf * p.wide), THREADS), THREADS, 0, p, (int)x, to,
               first);
        get(c, at, first, n * sizeof *at);
        wait(c);
        return 1;
    });
}

void put_coef(context &c, const spx_pf_bundle *b, size_t x)
{
    put(c, c.coef, b->px[x].coef, c.p.nground * sizeof(double));
}

void ground(spx_pf_bundle *b, size_t x, int continuum, int changes)
{
    (void)step(b, [&](context &c) {
        put_coef(c, b, x);
        LAUNCH(ground_kernel, (unsigned)c.p.height, THREADS, 3 * b->nf * sizeof(double), c.p, (int)x, c.coef, continuum,
               changes);
        return 1;
    });
}

int drift(spx_pf_bundle *b, size_t x, size_t every, double *sums)
{
    return step(b, [&](context &c) {
        const problem &p = c.p;
        const long row0 = (long)every / 2, nrow = (p.height - row0 + (long)every - 1) / (long)every;
        double *row = reinterpret_cast<double *>(c.scratch.need((size_t)(nrow * p.nf * 4) * sizeof(double)));
        if (nrow <= 0)
            return 0;
        put_coef(c, b, x);
        LAUNCH(drift_kernel, (unsigned)nrow, THREADS, 0, p, of(&b->now), (int)x, row0, (long)every, row);
        LAUNCH(drift_sums_kernel, (unsigned)b->nf, THREADS, 0, p, row0, (long)every, nrow, c.coef, row);
        get(c, sums, p.sums, 16 * b->nf * sizeof *sums);
        wait(c);
        return 1;
    });
}

/* Doubles of a matrix of m columns. */
size_t room_of(size_t m, size_t rows)
{
    return m * rows + (m + PANEL - 1) / PANEL * PANEL * PANEL;
}

factored new_factor(const context &c, size_t m, size_t rows, size_t unit, double *room)
{
    factored f = {};
    f.m = (int)m;
    f.rows = (int)rows;
    f.unit = (int)unit;
    f.band = f.dense = (int)m;
    f.a = room;
    f.diagonal = room + m * rows;
    f.bad = c.p.bad;
    return f;
}

/* A kernel of blocks that wait for each other. */
template <typename... P, typename... A> void launch_together(context &c, void (*kernel)(P...), size_t bytes, A... args)
{
    std::tuple<P...> values(static_cast<P>(args)...);
    flush(c);
    std::apply(
        [&](P &...value) {
            void *all[] = {&value...};
            check(cudaLaunchCooperativeKernel(kernel, c.together, FACTOR_THREADS, all, bytes, c.stream.s), "launch");
        },
        values);
}

/* Normal equations of the continuum and the constant beside the fluxes of an exposure, and their solution: out[..] on
 * the device, added to c.coef. */
struct border {
    double *rows, *moments, *schur, *x, *out;
};

void hand_out(spx::arena &m, const problem &p, int band, size_t each, border *to)
{
    const size_t n = (size_t)(p.nf * p.nknot);
    to->rows = m.take<double>((size_t)(p.height * p.nf) * (size_t)(2 + band));
    to->moments = m.take<double>(n * (size_t)moments_of(band));
    to->schur = m.take<double>(n * each + 2);
    to->x = m.take<double>(n + 1);
    to->out = m.take<double>(n + 1);
}

/* B-splines that the rows of each group touch, and where its rows of the border begin. Returns the columns that one
 * touches at most; *columns: with the constant. *doubles: of all rows. */
size_t lay_border(context &c, const spx_pf_bundle *b, size_t x, size_t *doubles)
{
    const int *rows = c.rows[b->now.there == &c.trial].data() + 2 * x * b->nl;
    size_t most = 0;
    *doubles = 0;
    for (size_t k = 0; k < b->ngroup; k++) {
        const spx_pf_group &g = b->group[k];
        size_t first, last;
        double value[SPX_PF_SPLINE];
        int lo = (int)c.p.height - 1, hi = 0;
        for (size_t l = g.first; l < g.last; l++)
            if (rows[2 * l] < rows[2 * l + 1]) {
                lo = std::min(lo, rows[2 * l]);
                hi = std::max(hi, rows[2 * l + 1] - 1);
            }
        spx_pf_splines(b, (size_t)std::min(lo, hi), &first, value);
        spx_pf_splines(b, (size_t)hi, &last, value);
        const size_t n = last - first + SPX_PF_SPLINE;
        for (size_t l = g.first; l < g.last; l++) {
            c.lines[l].band = (int)first;
            c.lines[l].nband = (int)n;
            c.lines[l].border = *doubles;
        }
        most = std::max(most, n * b->nf);
        *doubles += (g.last - g.first) * b->nf * (n * b->nf + 1);
    }
    return most;
}

void solve_background(context &c, const spx_pf_bundle *b, size_t x, double *found)
{
    const problem &p = c.p;
    const state &s = *static_cast<const state *>(b->now.there);
    const spx_pf_pixels &px = b->px[x];
    const size_t n = b->nf * b->nknot;
    const int overlap = (int)px.overlap;
    size_t doubles;
    const size_t columns = lay_border(c, b, x, &doubles), band = std::max(columns, SPX_PF_SPLINE * b->nf);
    border m;
    spx::arena count{};
    hand_out(count, p, overlap, band + 3, &m);
    spx::arena all{c.scratch.need(count.used), 0, count.used};
    hand_out(all, p, overlap, band + 3, &m);
    double *w = reinterpret_cast<double *>(c.border.need((doubles + 1) * sizeof(double)));
    factored f = new_factor(c, n + 1, n + 2, n + 2,
                            reinterpret_cast<double *>(c.square.need(room_of(n + 1, n + 2) * sizeof(double))));
    f.band = (int)band;
    f.dense = (int)n;
    put_lines(c, b);
    put_coef(c, b, x);
    LAUNCH(moments_kernel, (unsigned)p.height, THREADS, 0, p, (int)x, overlap, m.rows);
    LAUNCH(intervals_kernel, dim3((unsigned)(b->nknot - SPX_PF_SPLINE + 1), (unsigned)p.nf), THREADS, 0, p, overlap,
           m.rows, m.moments);
    LAUNCH(total_kernel, 2, THREADS, 0, p.work, (size_t)p.height, 2, p.sums);
    factorise(c, b, s, x, 1, 0);
    LAUNCH(border_kernel, (unsigned)(b->nl * b->nf), WARP, 0, p, s, (int)x, w);
    LAUNCH(eliminate_kernel, dim3((unsigned)b->ngroup, spx::blocks(columns + 1, THREADS)), THREADS, 0, p, s,
           c.first_of_group, (int)x, 0, w);
    LAUNCH(schur_kernel, spx::blocks(n * (band + 3), THREADS) + 1, THREADS, 0, p, s, c.first_of_group, (int)b->ngroup,
           (int)x, (int)band, w, m.schur);
    LAUNCH(border_matrix_kernel, (unsigned)(n + 1), THREADS, 0, p, f, overlap, m.moments, p.sums, m.schur);
    launch_together(c, whole_kernel, (n + 1 + PANEL) * sizeof(double), f, m.x);
    LAUNCH(coefficients_kernel, spx::blocks(n + 1, THREADS), THREADS, 0, p, m.x, px.whole, m.out, c.coef);
    LAUNCH(substitute_kernel, (unsigned)b->ngroup, THREADS, c.largest * sizeof(double), p, s, c.first_of_group, (int)x,
           m.out, w);
    LAUNCH(ground_kernel, (unsigned)p.height, THREADS, 3 * b->nf * sizeof(double), p, (int)x, c.coef, 1, 1);
    get(c, found, m.out, (n + 1) * sizeof *found);
}

int background(spx_pf_bundle *b, double *out)
{
    return step(b, [&](context &c) {
        const size_t n = b->nf * b->nknot + 1;
        int ok = 1;
        for (size_t x = 0; x < b->p->nexp; x++) {
            int bad = 0;
            solve_background(c, b, x, out + x * n);
            get(c, &bad, c.p.bad, sizeof bad);
            if (x + 1 < b->p->nexp) { /* whose memory the next one needs */
                wait(c);
                ok = ok && bad == 0;
            } else {
                ok = draw_now(c, &b->now) && ok && bad == 0;
            }
        }
        return ok;
    });
}

/* ---- normal equations ---- */

/* Gradient without priors, on the device. */
void gradient_there(context &c, const spx_pf_bundle *b, double *spot, double *by_line, double *out)
{
    const problem &p = c.p;
    LAUNCH(spot_gradient_kernel, (unsigned)b->nspot, SPOT_THREADS, gradient_room(p) * sizeof(double), p,
           *static_cast<const state *>(b->now.there), spot);
    if (p.ns > 0)
        LAUNCH(line_gradient_kernel, (unsigned)(p.nexp * p.nl), THREADS, 0, p, spot, by_line);
    LAUNCH(gradient_kernel, spx::blocks((size_t)p.n, WARPS), THREADS, 0, p, spot, by_line, out);
}

void put_pass(context &c, const spx_pf_bundle *b)
{
    set_pass(c.p, b);
    put_lines(c, b);
    put(c, c.slope, b->slope, 2 * b->nl * b->nf * sizeof *b->slope);
}

int gradient(spx_pf_bundle *b, double *g)
{
    return step(b, [&](context &c) {
        put_pass(c, b);
        const problem &p = c.p;
        const size_t spot = b->nspot * (size_t)(2 + p.active), by_line = (size_t)(p.nexp * p.nl * p.ns);
        double *m = reinterpret_cast<double *>(c.scratch.need((spot + by_line + (size_t)p.n) * sizeof(double)));
        gradient_there(c, b, m, m + spot, m + spot + by_line);
        get(c, g, m + spot + by_line, (size_t)p.n * sizeof *g);
        wait(c);
        return 1;
    });
}

/* Lines line0 ... line1 - 1 of exposure x, whole groups: rows of U, and the shape by the shape. */
void add_lines(context &c, const spx_pf_bundle *b, size_t x, size_t line0, size_t line1, int rows, const matrices &m)
{
    const problem &p = c.p;
    const state &s = *static_cast<const state *>(b->now.there);
    std::vector<int2> pairs; /* that have rows in common */
    const int *of = c.rows[b->now.there == &c.trial].data() + 2 * x * b->nl;
    for (size_t l = line0; l < line1 && p.ns > 0; l++)
        for (size_t k = l; k < (size_t)c.lines[l].last; k++)
            if (!c.lines[l].weak && !c.lines[k].weak && of[2 * l] < of[2 * k + 1] && of[2 * k] < of[2 * l + 1])
                pairs.push_back(int2{(int)l, (int)k});
    if (p.ns > 0)
        LAUNCH(image_kernel, dim3((unsigned)(line1 - line0), (unsigned)p.width), THREADS, b->nf * sizeof(crossing), p,
               s, (int)x, (int)line0, rows, m.strip, m.stamp, m.image);
    LAUNCH(spot_rows_kernel, (unsigned)((line1 - line0) * b->nf), THREADS, (size_t)(3 * p.npix) * sizeof(double), p, s,
           (int)x, (int)line0, rows, c.deepest, m.strip, m.stamp, m.image, m.dots, m.u);
    if (pairs.empty())
        return;
    const size_t all = (size_t)(p.nb * p.ns);
    const unsigned tiles = spx::blocks((size_t)p.ns, PAIR);
    put(c, m.pair, pairs.data(), pairs.size() * sizeof(int2));
    LAUNCH(pair_kernel, dim3((unsigned)pairs.size(), tiles, tiles), PAIR_THREADS, 0, p, (int)line0, rows, m.strip,
           m.pair, m.image, m.product);
    LAUNCH(shape_kernel, spx::blocks(all * all, THREADS), THREADS, 0, p, (int)pairs.size(), m.pair, m.product, m.h);
}

/* First lines of parts of the bundle, whole groups, whose images are not too large, and the end; pairs: most of one. */
std::vector<size_t> parts(const context &c, const spx_pf_bundle *b, size_t image, size_t *lines, size_t *pairs)
{
    std::vector<size_t> first(1, 0);
    size_t now = 0;
    *lines = *pairs = 1;
    for (size_t g = 0; g < b->ngroup; g++) {
        const size_t n = b->group[g].last - b->group[g].first;
        if (b->group[g].first > first.back() && (b->group[g].last - first.back()) * image > MOST_IMAGES) {
            first.push_back(b->group[g].first);
            now = 0;
        }
        now += n * (n + 1) / 2;
        *pairs = std::max(*pairs, now);
        *lines = std::max(*lines, b->group[g].last - first.back());
    }
    first.push_back(b->nl);
    (void)c;
    return first;
}

int normal(spx_pf_bundle *b, const double *weight, double *diagonal, double *g)
{
    return step(b, [&](context &c) {
        const slowly all_of_it(c);
        put_pass(c, b);
        const problem &p = c.p;
        const state &s = of(&b->now);
        const size_t n = (size_t)p.n, per = b->nl * b->nf;
        c.h = reinterpret_cast<double *>(c.matrix.need(n * n * sizeof(double)));
        matrices m = {};
        spx::arena count{};
        hand_out(count, c, b->nspot, &m);
        spx::arena all{c.tables.need(count.used), 0, count.used};
        hand_out(all, c, b->nspot, &m);
        clear(c, m.h, n * n * sizeof(double));
        gradient_there(c, b, m.spot, m.by_line, m.g);
        LAUNCH(weigh_kernel, (unsigned)b->nspot, SPOT_THREADS, 0, p, s, (size_t)0);
        for (size_t x = 0; x < b->p->nexp; x++) {
            int rows = 0;
            clear(c, m.most, sizeof(int));
            LAUNCH(derive_kernel, (unsigned)per, SPOT_THREADS, (size_t)(3 * p.side * p.nx) * sizeof(double), p, s,
                   (int)x, m.stamp);
            LAUNCH(strip_kernel, (unsigned)b->nl, THREADS, 0, p, s, (int)x, m.strip, m.most);
            clear(c, m.u, 3 * per * n * sizeof(double));
            get(c, &rows, m.most, sizeof rows);
            wait(c);
            const size_t image = (size_t)p.width * (size_t)rows * (size_t)p.ns * sizeof(float);
            size_t lines, pairs;
            const std::vector<size_t> first = parts(c, b, image, &lines, &pairs);
            const auto part = [&](spx::arena &a) {
                m.image = a.take<float>(lines * image / sizeof(float));
                m.product = a.take<double>(pairs * (size_t)p.ns * (size_t)p.ns);
                m.pair = a.take<int2>(pairs);
            };
            spx::arena each{};
            part(each);
            spx::arena room{c.scratch.need(each.used), 0, each.used};
            part(room);
            for (size_t k = 0; k + 1 < first.size(); k++)
                add_lines(c, b, x, first[k], first[k + 1], rows, m);
            LAUNCH(trace_rows_kernel, dim3((unsigned)p.shape0, spx::blocks(n, THREADS)), THREADS, 0, p, (int)x, m.u,
                   m.h);
            LAUNCH(eliminate_kernel, dim3((unsigned)b->ngroup, spx::blocks(n, THREADS)), THREADS, 0, p, s,
                   c.first_of_group, (int)x, p.n, m.u);
            LAUNCH(add_rows_kernel, dim3(spx::blocks(n, TILE), spx::blocks(n, TILE)), TILE_THREADS, 0, p.n, (int)per, n,
                   m.u, -1.0, m.h);
        }
        put(c, m.prior, b->prior, b->nf * b->nf * sizeof *b->prior);
        put(c, m.weight, weight, (size_t)(2 * p.ntr) * sizeof *weight);
        put(c, m.add, diagonal, n * sizeof *diagonal);
        LAUNCH(prior_kernel, spx::blocks(n, THREADS), THREADS, 0, p, m.prior, m.weight, m.add, m.h, m.add);
        get(c, diagonal, m.add, n * sizeof *diagonal);
        get(c, g, m.g, n * sizeof *g);
        wait(c);
        return 1;
    });
}

int take_matrix(spx_pf_bundle *b, double *h)
{
    return step(b, [&](context &c) {
        get(c, h, c.h, (size_t)c.p.n * (size_t)c.p.n * sizeof *h);
        wait(c);
        return 1;
    });
}

int add_to_matrix(spx_pf_bundle *b, const int *mate, const double *add)
{
    return step(b, [&](context &c) {
        const size_t nq = (size_t)b->p->nq, side = (size_t)b->p->deg + 1, ns = b->ntheta - b->shape0;
        spx::arena count{};
        double *on;
        int *of;
        const auto all = [&](spx::arena &m) {
            on = m.take<double>(ns * side);
            of = m.take<int>(nq * side);
        };
        all(count);
        spx::arena room{c.scratch.need(count.used), 0, count.used};
        all(room);
        put(c, on, add, ns * side * sizeof *add);
        put(c, of, mate, nq * side * sizeof *mate);
        LAUNCH(mates_kernel, spx::blocks(ns, THREADS), THREADS, 0, b->shape0, ns, (size_t)c.p.n, mates{nq, side, of},
               on, c.h);
        wait(c);
        return 1;
    });
}

/* Factors columns at[m] of the matrix with its diagonal times 1 + damping, and below it a right-hand side g, for which
 * it solves, out[m], or, NULL, the unit matrix. */
factored factor(context &c, size_t m, const int *at, double damping, const double *g, double *out)
{
    const size_t rows = g != nullptr ? m + 1 : 2 * m, bytes = out != nullptr ? (m + PANEL) * sizeof(double) : 0;
    const factored f = new_factor(c, m, rows, g != nullptr ? rows : m,
                                  reinterpret_cast<double *>(c.square.need(room_of(m, rows) * sizeof(double))));
    LAUNCH(damped_kernel, dim3((unsigned)m, 2), THREADS, 0, f, (size_t)c.p.n, c.h, at, damping, g);
    launch_together(c, whole_kernel, bytes, f, out);
    return f;
}

int solve(spx_pf_bundle *b, size_t m, const size_t *columns, double damping, const double *g, double *out)
{
    return step(b, [&](context &c) {
        const problem &p = c.p;
        const size_t n = (size_t)p.n;
        std::vector<int> which(columns, columns + m);
        double *there = reinterpret_cast<double *>(c.scratch.need((n + m) * sizeof(double) + m * sizeof(int)));
        double *x = there + n;
        int *at = reinterpret_cast<int *>(x + m), bad = 0;
        put(c, there, g, n * sizeof *g);
        put(c, at, which.data(), m * sizeof(int));
        (void)factor(c, m, at, damping, there, x);
        get(c, out, x, m * sizeof *out);
        get(c, &bad, p.bad, sizeof bad);
        wait(c);
        return bad == 0;
    });
}

int learn(spx_pf_bundle *b, size_t m, const size_t *columns, size_t ns, const double *g, const double *z,
          const double *was, const spx_pf_turned *t, const int *of, int nclass, double *precision)
{
    return step(b, [&](context &c) {
        const problem &p = c.p;
        const size_t n = (size_t)p.n, nt = m - ns;
        std::vector<int> which(columns, columns + m);
        spx::arena count{};
        double *part, *rounds, *rest, *rows, *gradient, *values, *back, *square, *room;
        int *at, *classes, *mate, bad = 0;
        const size_t nback = t->nq * t->side;
        const auto all = [&](spx::arena &a) {
            part = a.take<double>(room_of(nt, m + 1));
            rounds = a.take<double>(room_of(ns, 2 * ns + 1));
            rest = a.take<double>((ns + 1) * (ns + 1));
            rows = a.take<double>(ns * (ns + 1));
            gradient = a.take<double>(n);
            values = a.take<double>(3 * ns); /* z, was, precision */
            back = a.take<double>(nback);
            square = a.take<double>((size_t)nclass);
            room = a.take<double>(2 * ns);
            at = a.take<int>(m);
            classes = a.take<int>(ns);
            mate = a.take<int>(nback);
        };
        all(count);
        spx::arena given{c.square.need(count.used), 0, count.used};
        all(given);
        put(c, at, which.data(), m * sizeof(int));
        put(c, gradient, g, n * sizeof *g);
        put(c, values, z, ns * sizeof *z);
        put(c, values + ns, was, ns * sizeof *was);
        put(c, values + 2 * ns, precision, ns * sizeof *precision);
        put(c, back, t->back, nback * sizeof *back);
        put(c, mate, t->mate, nback * sizeof *mate);
        put(c, classes, of, ns * sizeof *of);
        clear(c, p.bad, sizeof(int));
        LAUNCH(rest_kernel, (unsigned)(ns + 1), THREADS, 0, n, (int)ns, c.h, at + nt, gradient, values + ns, rest);
        if (nt > 0) {
            const factored f = new_factor(c, nt, m + 1, m + 1, part);
            LAUNCH(part_kernel, dim3((unsigned)nt, 2), THREADS, 0, f, n, c.h, at, gradient);
            launch_together(c, whole_kernel, 0, f, nullptr);
            const unsigned tiles = spx::blocks(ns + 1, TILE);
            LAUNCH(add_rows_kernel, dim3(tiles, tiles), TILE_THREADS, 0, (int)ns + 1, (int)nt, (size_t)f.rows, f.a + nt,
                   -1.0, rest);
        }
        const mates with{t->nq, t->side, mate};
        LAUNCH(turn_rows_kernel, (unsigned)ns, THREADS, 0, (int)ns, with, back, rest, rows);
        LAUNCH(turn_columns_kernel, (unsigned)ns, THREADS, 0, (int)ns, with, back, rows, rest);
        launch_together(c, learn_kernel, 0, new_factor(c, ns, 2 * ns + 1, ns, rounds), rest, classes, nclass,
                        SPX_PF_ROUNDS, values, room, room + ns, square, values + 2 * ns);
        get(c, precision, values + 2 * ns, ns * sizeof *precision);
        get(c, &bad, p.bad, sizeof bad);
        wait(c);
        return bad == 0;
    });
}

int covariance(spx_pf_bundle *b, double *out)
{
    return step(b, [&](context &c) {
        const problem &p = c.p;
        const size_t n = (size_t)p.n;
        std::vector<int> which(n);
        for (size_t i = 0; i < n; i++)
            which[i] = (int)i;
        int *at = reinterpret_cast<int *>(c.scratch.need(n * sizeof(int))), bad = 0;
        put(c, at, which.data(), n * sizeof(int));
        const factored f = factor(c, n, at, 0, nullptr, nullptr);
        clear(c, c.h, n * n * sizeof *c.h);
        LAUNCH(add_rows_kernel, dim3(spx::blocks(n, TILE), spx::blocks(n, TILE)), TILE_THREADS, 0, p.n, (int)n,
               (size_t)f.rows, f.a + n, 1.0, c.h);
        get(c, out, c.h, n * n * sizeof *out);
        get(c, &bad, p.bad, sizeof bad);
        wait(c);
        return bad == 0;
    });
}

/* ---- results ---- */

int residuals(spx_pf_bundle *b, double *num, double *den)
{
    return step(b, [&](context &c) {
        const problem &p = c.p;
        const size_t n = (size_t)(p.height * p.nf);
        double *out = reinterpret_cast<double *>(c.scratch.need(2 * n * sizeof(double)));
        LAUNCH(residuals_kernel, spx::blocks(n, WARPS), THREADS, 0, p, of(&b->now), out, out + n);
        get(c, num, out, n * sizeof *num);
        get(c, den, out + n, n * sizeof *den);
        wait(c);
        return 1;
    });
}

int wavelengths(spx_pf_bundle *b, size_t x, const double *slope, double *spot, double *rhs)
{
    return step(b, [&](context &c) {
        const problem &p = c.p;
        const state &s = of(&b->now);
        const size_t n = b->nl * b->nf;
        std::vector<size_t> before(b->nl);
        size_t rows = 0;
        for (size_t l = 0; l < b->nl; l++) {
            before[l] = rows;
            rows += (size_t)(c.lines[l].last - c.lines[l].first) * b->nf;
        }
        spx::arena count{};
        double *stamp, *by, *out, *products;
        size_t *at;
        const auto all = [&](spx::arena &m) {
            stamp = m.take<double>(2 * n * (size_t)p.npix);
            by = m.take<double>(n);
            out = m.take<double>(2 * n);
            products = m.take<double>(rows);
            at = m.take<size_t>(b->nl);
        };
        all(count);
        spx::arena room{c.scratch.need(count.used), 0, count.used};
        all(room);
        problem place = p; /* derivatives by the place alone */
        place.ns = 0;
        put(c, by, slope, n * sizeof *slope);
        put(c, at, before.data(), b->nl * sizeof(size_t));
        LAUNCH(derive_kernel, (unsigned)n, SPOT_THREADS, (size_t)(3 * p.side * p.nx) * sizeof(double), place, s, (int)x,
               stamp);
        LAUNCH(weigh_kernel, (unsigned)n, SPOT_THREADS, 0, p, s, x * n);
        const double *by_y = stamp + n * (size_t)p.npix;
        LAUNCH(wavelength_kernel, spx::blocks(n, WARPS), THREADS, 0, p, s, (int)x, by, by_y, out);
        LAUNCH(wavelength_rows_kernel, dim3((unsigned)b->nl, spx::blocks((size_t)c.deepest * b->nf, WARPS)), THREADS, 0,
               p, s, (int)x, by, by_y, at, products);
        get(c, spot, out, 2 * n * sizeof *spot);
        get(c, rhs, products, rows * sizeof *rhs);
        wait(c);
        return 1;
    });
}

int look(spx_pf_bundle *b, const int *bright, spx_pf_look *to)
{
    return step(b, [&](context &c) {
        const problem &p = c.p;
        const state &s = of(&b->now);
        const size_t nparts = b->p->nexp * spx_pf_nparts(b->p->height) * b->nf, rows = b->p->nexp * b->p->height;
        const size_t phases = SPX_PF_PHASES * SPX_PF_PHASES, ncell = SPX_PF_CELL * phases * (size_t)p.npix;
        spx::arena count{};
        double *near, *part, *cell, *peak, *offset;
        spx_pf_offset *told;
        int *number, *wanted, *cell_of;
        const auto all = [&](spx::arena &m) {
            near = m.take<double>(4 * b->nf);
            part = m.take<double>(2 * nparts);
            cell = m.take<double>(ncell);
            peak = m.take<double>(b->nspot);
            offset = m.take<double>(SPX_PF_OFFSET * b->nspot);
            told = m.take<spx_pf_offset>(b->nspot);
            number = m.take<int>(rows);
            wanted = m.take<int>(b->nspot);
            cell_of = m.take<int>(b->nspot);
        };
        all(count);
        spx::arena room{c.scratch.need(count.used), 0, count.used};
        all(room);
        std::vector<int> of_row(rows);
        put(c, wanted, bright, b->nspot * sizeof *bright);
        LAUNCH(peaks_kernel, spx::blocks(b->nspot, WARPS), THREADS, 0, p, s, wanted, peak, cell_of);
        LAUNCH(offsets_kernel, spx::blocks(b->nspot, WARPS), THREADS, 0, p, s, wanted, peak, offset, told);
        LAUNCH(stack_kernel, dim3((unsigned)phases, spx::blocks((size_t)p.npix, SPOT_THREADS)), SPOT_THREADS, 0, p, s,
               peak, cell_of, told, cell);
        get(c, to->cell, cell, ncell * sizeof(double));
        get(c, to->offset, offset, SPX_PF_OFFSET * b->nspot * sizeof(double));
        if (to->near != nullptr) {
            LAUNCH(near_kernel, (unsigned)b->nf, THREADS, 0, p, s, near);
            if (nparts > 0)
                LAUNCH(parts_kernel, spx::blocks(nparts, WARPS), THREADS, 0, p, s, part);
            LAUNCH(count_rejected_kernel, spx::blocks(rows, WARPS), THREADS, 0, p, number);
            get(c, to->near, near, 4 * b->nf * sizeof(double));
            if (nparts > 0)
                get(c, to->part, part, 2 * nparts * sizeof(double));
            get(c, of_row.data(), number, rows * sizeof(int));
        }
        wait(c);
        for (const int n : of_row)
            to->nreject += (size_t)n;
        return 1;
    });
}

/* The steps of a fit's devices. */
void set_steps(fit *f, spx_pf_device *out)
{
    out->state = f;
    out->begin_fit = begin_fit;
    out->has_pixels = has_pixels;
    out->begin = begin;
    out->end = end;
    out->spots = spots;
    out->fluxes = fluxes;
    out->draw = draw;
    out->first_weights = first_weights;
    out->weights = weights;
    out->soften = soften;
    out->bright = bright;
    out->places = places;
    out->regroup = regroup;
    out->take_fluxes = take_fluxes;
    out->flux_variance = flux_variance;
    out->put_fluxes = put_fluxes;
    out->profiles = profiles;
    out->ground = ground;
    out->drift = drift;
    out->background = background;
    out->gradient = gradient;
    out->normal = normal;
    out->take_matrix = take_matrix;
    out->add_to_matrix = add_to_matrix;
    out->solve = solve;
    out->learn = learn;
    out->covariance = covariance;
    out->residuals = residuals;
    out->wavelengths = wavelengths;
    out->look = look;
    out->take_arrays = take_arrays;
}

std::unique_ptr<fit> new_fit(int ndevice, const int *device)
{
    std::unique_ptr<fit> f(new fit{});
    f->device.assign(device, device + ndevice);
    return f;
}

} // namespace

extern "C" spx_status spx_psffit_cuda_open(int ndevice, const int *device, spx_pf_device *out, spx_err *e)
{
    *out = spx_pf_device{};
    return spx::guarded("psffit", e, [&] {
        set_steps(new_fit(ndevice, device).release(), out);
        return SPX_OK;
    });
}

extern "C" void spx_psffit_cuda_close(spx_pf_device *d)
{
    delete static_cast<fit *>(d->state);
    *d = spx_pf_device{};
}

extern "C" void spx_psffit_close_cuda(void)
{
    std::lock_guard<std::mutex> hold(kept.lock);
    kept.idle.clear();
}

extern "C" spx_status spx_psffit_cuda(spx_backend *backend, const spx_psffit_input *in, const spx_psffit_options *o,
                                      spx_psffit_tail *tail, spx_psf *psf, spx_psffit *out, spx_err *e)
{
    const spx_cuda_state *s = spx::state_of(backend);
    spx_pf_device device = {};
    spx_psffit_options options = *o;
    spx_status st = spx::guarded("psffit", e, [&] {
        set_steps(new_fit(s->ndevice, s->device).release(), &device);
        return SPX_OK;
    });
    options.device = &device;
    if (st == SPX_OK)
        st = spx_psffit_cpu(in, &options, tail, psf, out, e);
    if (st != SPX_EDEVICE && device.state != nullptr)
        keep(static_cast<fit *>(device.state));
    spx_psffit_cuda_close(&device);
    return st;
}
