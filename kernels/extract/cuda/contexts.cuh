/* Provides what calls on a device share: layouts of frames, contexts with their streams, events and memory, and the
 * scheduling of calls. */
#ifndef SPX_EXTRACT_CUDA_CONTEXTS_CUH
#define SPX_EXTRACT_CUDA_CONTEXTS_CUH

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <new>
#include <vector>

#include "extract/cuda/beyond_find.cuh"
#include "extract/cuda/chi2.cuh"
#include "extract/cuda/coupled.cuh"
#include "extract/cuda/reject.cuh"
#include "extract/cuda/spots.cuh"
#include "extract/cuda/sqrt.cuh"
#include "extract/cuda/staging.cuh"
#include "extract/cuda/weights.cuh"

namespace
{

/* Layouts that are kept: those of the cameras of a spectrograph, which may take turns. */
enum { LAYOUTS = 3 };

/* Strips of columns that an image is sent in: see cut_image(). */
enum { STRIPS = SLOTS + 1 };

/* What one call needs, kept from call to call. */
struct context {
    slot slots[SLOTS];
    cudaStream_t upload;
    cudaEvent_t strip_there[STRIPS], dark; /* a strip of the image; light beyond the spots is off all of it */
    cudaEvent_t uploaded;                  /* what the host waits for on `upload` */
    light_finder beyond;                   /* of that light */
    unsigned long long *counted;           /* page-locked, [PIXEL_COUNTS] */
    spx::array<char> memory;
    size_t size, front, each; /* of `memory`; how the last call has cut it: what all pieces share, then a part a slot */
    layout_ref constants;     /* whose constants are in `memory`, at its front */
    unsigned long long image; /* number of the image whose pixels and weights are there, too; 0: none */
    size_t shared;            /* bytes of shared memory that a block may have */
    bool starved;             /* the last call found too little memory */
    spx::device_buffer<unsigned> hits; /* pixels of the image that are rejected */
    staging_workers staging;           /* for pages that are not locked */
};

/* Calls that share a device: transfers of one run beside the others' work. */
enum { MAX_CONCURRENT_CALLS = 3 };

/* Of a device: as many contexts as there have been calls at a time. */
struct pool {
    std::mutex lock;
    std::condition_variable released;
    std::vector<context *> idle;
    int busy = 0;
    bool gate_held = false; /* a call holds the launch gate */
    std::mutex planning;
    std::vector<layout_ref> layouts; /* the latest first */
    pool *next = nullptr;            /* of those that are open */
};

/* Launch gate: the pieces of the next call on the device begin when all pieces of this one have their solution; its
 * image is sent meanwhile. Calls that begin together stay together: they send results at the same time, and leave the
 * device idle meanwhile. Four calls: 0.0117 s a frame without it, 0.0105 until half of the pieces, 0.0097 until all.
 * An image that waits for the gate, too: 4 % more. */
class launch_gate
{
  public:
    explicit launch_gate(pool *all) : all_(all)
    {
    }
    launch_gate(const launch_gate &) = delete;
    launch_gate &operator=(const launch_gate &) = delete;
    ~launch_gate()
    {
        end();
    }
    /* Before the pieces begin, of which there are so many; waits for the call that holds the gate. */
    void enter(size_t npiece)
    {
        left_ = npiece;
        std::unique_lock<std::mutex> lock(all_->lock);
        all_->released.wait(lock, [this]() { return !all_->gate_held; });
        all_->gate_held = true;
        held_ = true;
    }
    void solved()
    {
        if (--left_ == 0)
            end();
    }

  private:
    pool *const all_;
    std::atomic<size_t> left_{0};
    bool held_ = false; /* by this call, now or before */
    std::atomic<bool> over_{false};

    void end()
    {
        if (!held_ || over_.exchange(true))
            return;
        const std::lock_guard<std::mutex> lock(all_->lock);
        all_->gate_held = false;
        all_->released.notify_all();
    }
};

void free_context(context *c)
{
    (void)cudaFreeHost(c->counted);
    for (slot &s : c->slots) {
        (void)cudaFreeHost(s.table);
        for (cudaEvent_t v : s.step)
            (void)(v && cudaEventDestroy(v));
        for (cudaEvent_t v : s.joined)
            (void)(v && cudaEventDestroy(v));
        for (cudaEvent_t v : {s.begun, s.ended, s.stepped, s.solved, s.fitted, s.forked})
            (void)(v && cudaEventDestroy(v));
        for (cudaStream_t v : s.beside)
            (void)(v && cudaStreamDestroy(v));
        for (cudaStream_t v : {s.last, s.aside, s.stream})
            (void)(v && cudaStreamDestroy(v));
    }
    for (cudaEvent_t v : c->strip_there)
        (void)(v && cudaEventDestroy(v));
    for (cudaEvent_t v : {c->dark, c->uploaded})
        (void)(v && cudaEventDestroy(v));
    (void)(c->upload && cudaStreamDestroy(c->upload));
    delete c;
}

/* Streams and events of a new context. */
void fill_context(context *c, int device)
{
    const auto stream = [&](cudaStream_t *to, int priority) {
        return cudaStreamCreateWithPriority(to, cudaStreamNonBlocking, priority);
    };
    const auto event = [&](cudaEvent_t *to) { return cudaEventCreateWithFlags(to, cudaEventDisableTiming); };
    const auto awaited = [&](cudaEvent_t *to, unsigned flags) {
        return cudaEventCreateWithFlags(to, spx::host_event(flags, sleeps()));
    };
    int low, high, shared;
    spx::check(cudaDeviceGetStreamPriorityRange(&low, &high), "device");
    spx::check(cudaDeviceGetAttribute(&shared, cudaDevAttrMaxSharedMemoryPerBlockOptin, device), "device");
    c->shared = (size_t)shared;
    for (void (*kernel)(params, batch) :
         {root_kernel<0>, root_kernel<6>, root_kernel<7>, root_kernel<8>, root_kernel<9>, root_kernel<WIDER>})
        spx::check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared), "kernel");
    for (void (*kernel)(params, batch) : {broad_bounds_kernel, broad_root_kernel})
        spx::check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, BAND_SHARED), "kernel");
    for (void (*kernel)(params, coupled_work) : {coupled_kernel, need_kernel})
        spx::check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, BAND_SHARED), "kernel");
    spx::check(
        cudaFuncSetAttribute(own_variance_block_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, BAND_SHARED),
        "kernel");
    spx::check(cudaFuncSetAttribute(second_wide_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, BAND_SHARED),
               "kernel");
    spx::check(cudaFuncSetAttribute(fit_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared), "kernel");
    spx::check(cudaFuncSetAttribute(render_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared), "kernel");
    spx::check(cudaFuncSetAttribute(spots_kernel<false>, cudaFuncAttributeMaxDynamicSharedMemorySize, shared),
               "kernel");
    spx::check(stream(&c->upload, high), "stream");
    for (cudaEvent_t &v : c->strip_there)
        spx::check(event(&v), "event");
    spx::check(event(&c->dark), "event");
    spx::check(awaited(&c->uploaded, cudaEventDisableTiming), "event");
    spx::check(cudaMallocHost((void **)&c->counted, PIXEL_COUNTS * sizeof *c->counted), "page-locked memory");
    for (int i = 0; i < SLOTS; i++) {
        slot *s = &c->slots[i];
        /* those before go ahead, so that their results travel while the others compute; a low number comes first */
        const int priority = std::min(high + i, low);
        spx::check(stream(&s->stream, priority), "stream");
        spx::check(stream(&s->aside, priority), "stream");
        spx::check(stream(&s->last, low), "stream");
        for (cudaEvent_t *v : {&s->begun, &s->ended, &s->forked})
            spx::check(event(v), "event");
        spx::check(awaited(&s->stepped, cudaEventDisableTiming), "event");
        for (int j = 0; j < BESIDE; j++) {
            spx::check(stream(&s->beside[j], priority), "stream");
            spx::check(event(&s->joined[j]), "event");
        }
        for (cudaEvent_t &v : s->step)
            spx::check(awaited(&v, cudaEventDefault), "event");
        for (cudaEvent_t *v : {&s->solved, &s->fitted})
            spx::check(awaited(v, cudaEventDefault), "event");
    }
}

/* Acquires a context. Reuses an idle one, preferably with this image, or this layout's constants, else creates one.
 * Blocks until fewer than MAX_CONCURRENT_CALLS calls are active. alone: waits for all calls to end and frees idle
 * contexts first. */
void context_acquire(pool *all, int device, const layout_ref &l, unsigned long long image, bool alone, context **c)
{
    std::unique_lock<std::mutex> lock(all->lock);
    all->released.wait(lock, [&]() { return all->busy < (alone ? 1 : (int)MAX_CONCURRENT_CALLS); });
    all->busy++;
    if (alone) {
        for (context *old : all->idle)
            free_context(old);
        all->idle.clear();
    }
    if (!all->idle.empty()) {
        auto found = std::find_if(all->idle.begin(), all->idle.end(), [&](context *i) { return i->image == image; });
        if (found == all->idle.end())
            found = std::find_if(all->idle.begin(), all->idle.end(), [&](context *i) { return i->constants == l; });
        if (found == all->idle.end())
            found--;
        *c = *found;
        all->idle.erase(found);
        return;
    }
    lock.unlock();
    *c = new context();
    fill_context(*c, device);
}

/* Returns a context to the idle ones, or frees it (keep false: after an error). */
void context_release(pool *all, context *c, bool keep)
{
    const std::lock_guard<std::mutex> lock(all->lock);
    if (c && keep)
        all->idle.push_back(c);
    else if (c)
        free_context(c);
    all->busy--;
    all->released.notify_all();
}

/* Page-locked tables for pieces of a size. */
void need_tables(context *c, const params &k, int nslot)
{
    arena count = {NULL, 0, 0};
    const tables t(count, k);
    (void)t;
    for (int i = 0; i < nslot; i++) {
        slot *s = &c->slots[i];
        if (s->ntable >= count.used)
            continue;
        (void)cudaFreeHost(s->table);
        s->table = NULL;
        s->ntable = 0;
        spx::check(cudaMallocHost((void **)&s->table, count.used), "page-locked memory");
        s->ntable = count.used;
    }
}

/* Spots are no longer where they were. */
void forget_spots(context *c)
{
    for (slot &s : c->slots)
        s.spots_of = NULL;
}

/* Nothing that frames share is in the memory any more. */
void forget_constants(context *c)
{
    c->constants.reset();
    c->image = 0;
    forget_spots(c);
}

/* The layout of a job: one of those that are there, or a new one, for which calls that come meanwhile wait. */
spx_status find_layout(pool *all, const spx_extract_job *job, layout_ref *found, spx_err *e)
{
    const std::lock_guard<std::mutex> lock(all->planning);
    for (size_t i = 0; i < all->layouts.size(); i++)
        if (spx_trace_layout_fits(&all->layouts[i]->it, job)) {
            *found = all->layouts[i];
            std::rotate(all->layouts.begin(), all->layouts.begin() + (long)i, all->layouts.begin() + (long)i + 1);
            return SPX_OK;
        }
    const std::shared_ptr<layout> made = std::make_shared<layout>();
    const spx_status st = spx_trace_layout_make(job, &made->it, e);
    if (st != SPX_OK)
        return st;
    *found = made;
    if (all->layouts.size() == LAYOUTS)
        all->layouts.pop_back();
    all->layouts.insert(all->layouts.begin(), made);
    return SPX_OK;
}

} // namespace

#endif
