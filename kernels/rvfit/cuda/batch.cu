/* Shares a batch out, in groups of stars, among devices and a few threads of the host each, so that what the host does
 * of one group (reading the data, choosing steps) falls beside the device's work for others. */
#include "rvfit/cuda/batch.cuh"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>

namespace rv
{

namespace
{

enum {
    WORKERS = 16, /* groups that a device works on at a time */
    PER_WORKER =
        2048,         /* with so many stars for each, which repay the time that memory for its first group takes, and */
    FEW_WORKERS = 8,  /* with fewer */
    GROUP = 512,      /* stars of one, at most, */
    LEAST_GROUP = 32, /* and at least, where there are as many */
    STARS_OF_THREAD = 8, /* at least: each thread of a worker has memory of its own */
    ROUNDING = 1 << 25   /* bytes that a worker's pieces of memory are together larger than what was asked for */
};

/* Device memory of the star that takes most. */
size_t largest_star(const spx_rv_ctx *c, const device_plan &p)
{
    size_t most = 1, begin, end;
    for (size_t k = 0; k < c->nstar; k++) {
        spx_rv_exposures(c, k, &begin, &end);
        most = std::max(most, end - begin);
    }
    return engine::star_bytes(p) + most * engine::exposure_bytes(c, p);
}

/* Groups of stars, as many as fit, and at least one: first star of each, and the number of all. The first ones are
 * smaller, so that workers do not wait for each other, and so are the last ones, so that all end together. */
std::vector<size_t> make_groups(const spx_rv_ctx *c, const device_plan &p, size_t budget, size_t workers)
{
    const size_t star = engine::star_bytes(p), exposure = engine::exposure_bytes(c, p);
    const size_t share = (c->nstar + workers - 1) / workers;
    std::vector<size_t> first = {0};
    size_t bytes = 0, most = 0;
    for (size_t k = 0; k < c->nstar; k++) {
        size_t begin, end;
        spx_rv_exposures(c, k, &begin, &end);
        const size_t more = star + (end - begin) * exposure;
        if (k > first.back() && (k - first.back() == most || bytes + more > budget)) {
            first.push_back(k);
            bytes = 0;
        }
        if (k == first.back()) {
            const size_t group = first.size() - 1;
            most = group < workers ? GROUP * (group + 1) / workers : std::min((size_t)GROUP, (c->nstar - k) / workers);
            most = std::min(share, std::max(most, (size_t)LEAST_GROUP));
        }
        bytes += more;
    }
    first.push_back(c->nstar);
    return first;
}

/* What the workers of all devices have in common. */
struct batch {
    const spx_rv_ctx *c;
    spx_progress *progress;
    spx_rvfit *out;
    std::vector<size_t> first; /* of the groups */
    size_t most;               /* stars of a group */
    int threads;               /* of a worker */
    std::atomic<size_t> next{0};
    std::mutex lock;
    spx_err err = {};
    size_t shown = 0; /* groups that the hook has seen: it sees them one after another */
    std::condition_variable turn;
};

/* The hook, for group k, when it has seen all groups before it. */
spx_status hook_in_turn(batch *b, engine &computes, int device, size_t k, spx_err *e)
{
    {
        std::unique_lock<std::mutex> hold(b->lock);
        b->turn.wait(hold, [&] { return b->shown == k || b->err.code != SPX_OK; });
        if (b->err.code != SPX_OK)
            return SPX_OK; /* it is said already */
    }
    const spx_status st =
        computes.call_hook(b->c->opt->hook, device, b->out, b->first[k], b->first[k + 1] - b->first[k], e);
    if (st == SPX_OK) {
        const std::lock_guard<std::mutex> hold(b->lock);
        b->shown = k + 1;
    }
    b->turn.notify_all();
    return st;
}

void work(batch *b, device_state *s)
{
    spx_err mine = {};
    spx_status st = spx::guarded("rvfit", &mine, [&] {
        spx::check(cudaSetDevice(s->device), "device");
        std::unique_ptr<worker> w;
        {
            const std::lock_guard<std::mutex> hold(b->lock);
            if (!s->idle.empty()) {
                w = std::move(s->idle.back());
                s->idle.pop_back();
            }
        }
        if (w == nullptr)
            w.reset(new worker(b->c, &s->plan, b->most, b->threads, &mine));
        if (w->group == nullptr)
            return SPX_EIO;
        spx_status status = SPX_OK;
        for (size_t k; status == SPX_OK && (k = b->next++) + 1 < b->first.size();) {
            const size_t n = b->first[k + 1] - b->first[k];
            w->computes.begin(w->group);
            status = spx_rv_group_fit(w->group, b->first[k], n, b->out, &mine);
            if (status == SPX_OK && b->c->opt->hook != nullptr)
                status = hook_in_turn(b, w->computes, s->device, k, &mine);
            spx_progress_step(b->progress, n);
        }
        const std::lock_guard<std::mutex> hold(b->lock);
        if (status == SPX_OK)
            s->idle.push_back(std::move(w));
        return status;
    });
    if (st != SPX_OK) {
        b->next = b->first.size(); /* no more groups are begun */
        const std::lock_guard<std::mutex> hold(b->lock);
        if (b->err.code == SPX_OK)
            b->err = mine;
        b->turn.notify_all();
    }
}

/* What every device has at least of memory for workers, beside what `bytes` of a plan's workers have already; waits for
 * `least`. */
size_t budget_of(const spx_rv_ctx *c, const plan_state &all, size_t bytes, size_t least)
{
    size_t budget = (size_t)-1;
    for (const std::unique_ptr<device_state> &s : all.devices) {
        spx::check(cudaSetDevice(s->device), "device");
        budget = std::min(budget, device_limit(c->opt, s->plan.bytes + s->idle.size() * bytes, least));
    }
    return budget;
}

/* How a batch is shared out: workers of each device, first star of each group, stars of the largest. Workers of batches
 * before are kept where they suffice, and where memory for more is left beside them. */
struct shares {
    size_t workers, most = 1;
    std::vector<size_t> first;
};

shares share_out(plan_state *all)
{
    const spx_rv_ctx *c = &all->c;
    const device_plan &p = all->devices[0]->plan;
    const size_t ndevice = all->devices.size();
    /* lists of sums do not depend on the group */
    const size_t lists = ITEMS * (sizeof(item) + 8) + SCANS * 8 + ROUNDING, star = largest_star(c, p),
                 full = lists + GROUP * star;
    for (;;) {
        shares s;
        const bool fresh = all->devices[0]->idle.empty();
        const size_t budget = budget_of(c, *all, all->bytes, fresh ? lists + star : 0);
        const size_t share = c->nstar / ndevice;
        s.workers =
            std::min((size_t)WORKERS, std::max(share / PER_WORKER, std::min((size_t)FEW_WORKERS, share / LEAST_GROUP)));
        s.workers = std::max((size_t)1, s.workers);
        /* where memory is little, fewer groups of more stars */
        while (s.workers > 1 && budget / s.workers < lists + LEAST_GROUP * star)
            s.workers--;
        if (fresh && budget < lists + star)
            throw spx::failure("a star takes " + megabytes(lists + star) + " MB of a device's memory, of which " +
                               megabytes(budget) + MORE_MEMORY);
        if (fresh || budget / s.workers >= full) {
            s.first = make_groups(c, p, budget / s.workers - lists, s.workers * ndevice);
            for (size_t k = 0; k + 1 < s.first.size(); k++)
                s.most = std::max(s.most, s.first[k + 1] - s.first[k]);
            if (fresh)
                all->most = s.most;
            if (star > all->star) /* their memory grows */
                all->bytes += full;
            all->star = std::max(all->star, star);
            if (s.most <= all->most)
                return s;
        }
        for (const std::unique_ptr<device_state> &d : all->devices)
            d->idle.clear();
        all->star = all->bytes = 0;
    }
}

} // namespace

std::unique_ptr<device_state> make_state(int device, const spx_rv_ctx *c)
{
    std::unique_ptr<device_state> s(new device_state(device, c, device_limit(c->opt, 0, 0)));
    if (!s->plan.has_all()) {
        const size_t bytes = s->plan.bytes;
        s.reset();
        s.reset(new device_state(device, c, device_limit(c->opt, 0, bytes)));
    }
    s->plan.need_all();
    return s;
}

spx_status fit(plan_state *all, spx_progress *p, spx_rvfit *out, spx_err *e)
{
    const spx_rv_ctx *c = &all->c;
    const size_t ndevice = all->devices.size();
    const shares s = share_out(all);
    batch b;
    b.c = c;
    b.progress = p;
    b.out = out;
    b.first = s.first;
    b.most = all->most;
    /* while some workers wait for the device, others may use what they leave */
    const int share = c->opt->threads / (int)(s.workers * ndevice);
    b.threads = std::min(s.workers * ndevice > 1 ? 2 * share : share, (int)(all->most / STARS_OF_THREAD));
    b.threads = std::max(1, std::min(c->opt->threads, b.threads));
    std::vector<std::thread> threads;
    for (const std::unique_ptr<device_state> &d : all->devices)
        for (size_t i = 0; i < s.workers; i++)
            threads.emplace_back(work, &b, d.get());
    for (std::thread &t : threads)
        t.join();
    return b.err.code == SPX_OK ? SPX_OK : spx_err_pass(e, &b.err);
}

} // namespace rv
