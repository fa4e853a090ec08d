/* Provides extraction of whole traces on a CUDA device (the method: ../README): calls, pieces of a frame, and devices.
 * The steps of the method are files of their own, which params.cuh lists.
 *
 * What bounds it, and what is done about it (500 fibres x 2326 bins of a DESI r frame on one H200): kernels alone would
 * take 14 ms, one after another (the steps' files say why), half of that in chains that leave most of the device idle.
 * Transfers, 135 MB to the device and 140 MB back, are 5 at the bus's speed. The frame takes 10. Four pieces of it run
 * on streams of their own, and in each of them marginal information and bounds beside the solution, and the fit beside
 * the square root. Pieces have falling priorities, so that the results of the first travel while the others compute,
 * and the fit has the lowest; chains that waited for it, and for the host's word on each other, took 2 ms more. The
 * image travels in strips of columns, and a piece begins with its own: 3 ms less. Spots are made meanwhile, and stay
 * for the frames of a queue. New memory of the host comes page by page, which took longer than copying: the threads
 * that carry what is not page-locked fetch the pages meanwhile. In a queue of frames pages that were locked once stay
 * so (base/mem.h) and transfers go there directly, plan and constants stay, too, and three frames share the device, one
 * behind the other, each in one piece: its kernels take 10.3 ms one after another, where those of four pieces take
 * 16, as chains are as long for few traces as for many: 0.0095 s a frame. */
#include <algorithm>
#include <exception>
#include <future>
#include <mutex>
#include <new>
#include <omp.h>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "extract/cuda/cg.cuh"
#include "extract/cuda/chi2.cuh"
#include "extract/cuda/contexts.cuh"
#include "extract/cuda/coupled.cuh"
#include "extract/cuda/hook_frame.cuh"
#include "extract/cuda/normal.cuh"
#include "extract/cuda/plan.cuh"
#include "extract/cuda/reject.cuh"
#include "extract/cuda/schur.cuh"
#include "extract/cuda/spots.cuh"
#include "extract/cuda/sqrt.cuh"
#include "extract/cuda/transfer.cuh"
#include "extract/cuda/weights.cuh"
extern "C" {
#include "extract/cuda/extract_cuda.h"
#include "extract/trace/beyond.h"
}

namespace
{

/* What is done beside the solution: marginal information and bounds, which need the factors but not the solution. These
 * chains leave most of a device idle. The host has to make lists in between, which it does as soon as it can while it
 * waits for the solution. */
class side_chain
{
  public:
    explicit side_chain(const slot *s) : slot_(*s)
    {
        slot_.stream = s->aside;
        main_ = s->stream;
    }
    /* Goes on as far as possible without waiting; the factors are there. */
    void go_on(const params &k, const arena &m, tables &t)
    {
        bool there = stage_ == FACTORS;
        if (stage_ == FACTORS) {
            spx::check(cudaEventRecord(slot_.begun, main_), "event");
            spx::check(cudaStreamWaitEvent(slot_.stream, slot_.begun, 0), "stream");
        } else if (stage_ != LISTED) {
            there = is_over(slot_.ended);
        }
        if (!there)
            return;
        if (stage_ == FACTORS && k.coupled)
            coupled_complement(k, m, t.need, &slot_);
        else if (stage_ == FACTORS)
            schur_complement(k, m, t.need, &slot_);
        else if (stage_ == SCHUR)
            bounds(k, m, t, &slot_);
        else
            list_roots(k, t, USUAL, roots_);
        spx::check(cudaEventRecord(slot_.ended, slot_.stream), "event");
        stage_++;
    }
    /* All of it; the slot's stream goes on after it. */
    void end(const params &k, const arena &m, tables &t, list **roots)
    {
        while (stage_ != LISTED)
            go_on(k, m, t);
        spx::check(cudaStreamWaitEvent(main_, slot_.ended, 0), "stream");
        *roots = &roots_;
    }

  private:
    enum { FACTORS, SCHUR, BOUNDS, LISTED }; /* the last that there is */

    slot slot_;
    cudaStream_t main_;
    int stage_ = FACTORS;
    list roots_;
};

/* Model and chi^2 need nothing but the solution, and nothing but their results is needed of them: they fill what the
 * square root leaves of the device. */
void begin_fit(const params &k, size_t most_shared, slot *s)
{
    spx::check(cudaEventRecord(s->solved, s->stream), "event");
    spx::check(cudaStreamWaitEvent(s->last, s->solved, 0), "stream");
    slot behind = *s;
    behind.stream = s->last;
    fit(k, most_shared, &behind);
    spx::check(cudaEventRecord(s->fitted, s->last), "event");
}

/* A piece of a call, by its number, in a slot: its first bundle, geometry and arrays, and its tables on the host. */
struct piece {
    const call &job;
    slot *s;
    int which;
    size_t number, first;
    params k;
    arena page_locked, m;
    tables t;

    piece(const call &c, int slot_number, size_t i)
        : job(c), s(&c.c->slots[slot_number]), which(slot_number), number(i), first(c.start(i)),
          k(part_of(c, i)), page_locked{s->table, 0, s->ntable}, m{c.memory[slot_number], 0, c.each}, t(page_locked, k)
    {
    }

  private:
    static params part_of(const call &c, size_t i)
    {
        params k = c.k;
        k.nbundle = (int)(c.start(i + 1) - c.start(i));
        k.lanes = k.nbundle * k.nl;
        return k;
    }
};

/* Hands out the piece's memory, with that of a search unless v is NULL, and sends its tables there. The spots are at
 * the same place with and without a search. */
void send_tables(piece &w, search *v)
{
    const call &job = w.job;
    params &k = w.k;
    const tables &t = w.t;
    fill_tables(job.p, job.list + w.first, k, w.t);
    if (job.retained)
        std::fill(w.t.others, w.t.others + k.nbundle, 0);
    const size_t bytes = (size_t)((char *)t.need - (char *)t.fibre);
    char *block = w.m.take<char>(bytes);
    if (v)
        lay_out_search(w.m, k, *v);
    else
        lay_out(w.m, k);
    if (job.retained) {
        const spx_frame *f = &job.retained->f;
        k.out_flux = f->arm.flux;
        k.out_ivar = f->arm.ivar;
        k.out_chi2 = f->chi2pix;
        k.out_seen = f->pixmask_fraction;
        k.out_res = f->arm.resolution;
    }
    const auto on_device = [&](const void *host) { return block + ((const char *)host - (const char *)t.fibre); };
    k.fibre = (const int *)on_device(t.fibre);
    k.wanted = (const int *)on_device(t.wanted);
    k.nf = (const int *)on_device(t.nf);
    k.y0 = (const int *)on_device(t.y0);
    k.y1 = (const int *)on_device(t.y1);
    k.x0 = (const int *)on_device(t.x0);
    k.others = (const int *)on_device(t.others);
    k.bin_state = (const unsigned char *)on_device(t.bin_state);
    put(w.s, block, (const char *)t.fibre, bytes);
}

/* Zeros, and the spots, which may be there from the search or the frame before. */
void prepare(piece &w)
{
    params &k = w.k;
    slot *s = w.s;
    const spx_trace_bundle *first = w.job.list + w.first;
    const char *memory = w.job.memory[w.which];
    zero(s, k.bad, sizeof(int) * (k.nbundle + 1));
    for (double *v : {k.x, k.r, k.z, k.q, k.d})
        zero(s, v, sizeof(double) * (size_t)k.n * k.lanes);
    if (k.coupled || s->spots_of != first || s->spots_in != memory || s->nspots != k.nbundle) {
        spots(k, s);
        s->spots_of = k.coupled ? NULL : first; /* it may be in other pieces as well */
        s->spots_in = memory;
        s->nspots = k.nbundle;
    }
}

/* From the pixels to flux, information and resolution. */
void take_steps(piece &w)
{
    const call &job = w.job;
    params &k = w.k;
    tables &t = w.t;
    slot *s = w.s;
    spx::check(cudaEventRecord(s->step[0], s->stream), "event");
    side_chain aside(s);
    list *roots = NULL;
    for (int step = 0; step < STEPS - 1; step++) {
        switch (step) {
        case 0:
            equations(k, s);
            regularise(k, s);
            break;
        case 1:
            solve(k, s, t.scalar, t.bad, [&]() { aside.go_on(k, w.m, t); });
            job.begun->solved();
            begin_fit(k, job.c->shared, s);
            break;
        case 2:
            aside.end(k, w.m, t, &roots);
            break;
        case 3:
            root(k, w.m, t, *roots, job.c->shared, s);
            break;
        }
        spx::check(cudaEventRecord(s->step[step + 1], s->stream), "event");
    }
}

/* do_it(row of the output, of the piece, number) for its rows, those that follow each other at once. */
template <class DO> void for_rows(const piece &w, const DO &do_it)
{
    const params &k = w.k;
    int first = -1, from = 0, n = 0; /* rows that were met and are not done */
    const auto done = [&]() {
        if (n > 0)
            do_it((size_t)first, (size_t)from, (size_t)n);
        from += n;
        n = 0;
    };
    for (int lane = 0; lane < k.lanes; lane++) {
        const int row = w.t.wanted[lane];
        if (row >= 0 && row != first + n)
            done();
        first = row >= 0 && n == 0 ? row : first;
        n += row >= 0;
    }
    done();
}

/* The results to the host, with the bins' states in t.bin_state as [n][lanes]; the times that the steps took. */
void fetch_results(piece &w)
{
    const call &job = w.job;
    const params &k = w.k;
    slot *s = w.s;
    get(s, w.t.bad, k.bad, k.nbundle);
    get(s, w.t.narrow, k.narrow, 4 * (size_t)k.lanes);
    get(s, w.t.bin_state, k.state, (size_t)k.n * k.lanes);
    wait_for(s->stream, s->stepped); /* no staging worker is to wait for kernels */
    const double *const results[RESULTS] = {k.out_flux, k.out_ivar, k.out_res, k.out_seen, k.out_chi2};
    for (int i = 0; i < RESULTS; i++) {
        const result &r = job.results[i];
        if (results[i] == k.out_chi2) /* the others travel meanwhile */
            spx::check(cudaEventSynchronize(s->fitted), "event");
        if (job.retained)
            continue;
        const size_t row = job.p->job->nwave * r.each;
        for_rows(w, [&](size_t to, size_t from, size_t n) {
            pull(&job.c->staging, s, (char *)(r.to + to * row), r.direct, (const char *)(results[i] + from * row),
                 n * row * sizeof(double));
        });
    }
    wait_for(s->stream, s->stepped);
    for (int step = 0; step < STEPS; step++) {
        const bool is_fit = step == STEPS - 1;
        float ms = 0.0f;
        spx::check(
            cudaEventElapsedTime(&ms, is_fit ? s->solved : s->step[step], is_fit ? s->fitted : s->step[step + 1]),
            "event");
        s->seconds[step] += 1e-3 * (double)ms;
    }
}

/* Reasons to leave a bundle of a piece to the CPU. The last word: did the iteration converge? */
int why_host(const tables &t, int b)
{
    return t.bad[b] | (is_above_limit(t.scalar + SCALARS * b) ? BAD_SOLVE : 0);
}

/* Bound of rounding in the fluxes of a bundle: see spx_extract_counts. */
double rounding_of(const params &k, const tables &t, int b)
{
    double most = 0.0, largest = 0.0, faintest = INFINITY;
    for (int lane = b * k.nl; lane < (b + 1) * k.nl; lane++) {
        most = fmax(most, t.narrow[k.lanes + lane]);
        largest = fmax(largest, t.narrow[2 * k.lanes + lane]);
        faintest = t.wanted[lane] >= 0 ? fmin(faintest, fmax(t.narrow[3 * k.lanes + lane], 1.0)) : faintest;
    }
    return SPX_TRACE_LAST_PLACE * most * largest / faintest;
}

/* Tolerance that a bundle reaches whose fibres overlap with `reach` others. Bins of those that are not coupled are not
 * so narrow that it is missed: see TOO_NARROW. */
double reached_by(const params &k, const tables &t, int b, int reach)
{
    double most = 0.0;
    for (int f = 0; f < k.nl && reach > 0; f++)
        most = fmax(most, t.narrow[b * k.nl + f]);
    return spx_trace_reached_tolerance(k.tolerance, most);
}

/* Which bundles are left to the CPU: job.why_host gets the reasons; and how many bins of the others have no spot. */
void settle(const piece &w, size_t *nospot, double *tolerance, double *rounding)
{
    const call &job = w.job;
    const params &k = w.k;
    const tables &t = w.t;
    int *why = job.why_host + w.first;
    for (int b = 0; b < k.nbundle; b++) {
        why[b] = why_host(t, b);
        const double rounds = why[b] ? 0.0 : rounding_of(k, t, b);
        for (size_t j = 0; j < job.p->job->nwave && !why[b]; j++)
            for (int f = 0; f < k.nl; f++)
                *nospot += t.wanted[b * k.nl + f] >= 0 &&
                           t.bin_state[(j + job.p->pad) * k.lanes + (size_t)b * k.nl + f] == SPX_TRACE_NOSPOT;
        if (!why[b]) {
            *tolerance = fmax(*tolerance, reached_by(k, t, b, job.list[w.first + (size_t)b].reach));
            *rounding = fmax(*rounding, rounds);
        }
        spx_progress_step(job.p->job->o->progress, why[b] ? 0 : job.list[w.first + (size_t)b].nf);
    }
}

/* Piece number i of the work, in a slot. */
spx_status run_piece(const call &job, int which, size_t i, size_t *nospot, double *tolerance, double *rounding)
{
    piece w(job, which, i);
    send_tables(w, NULL);
    prepare(w);
    begin_roots(w.k, w.s);
    const spx_status st = wait_for_pixels(job, w.s, i);
    if (st != SPX_OK)
        return st;
    take_steps(w);
    fetch_results(w);
    settle(w, nospot, tolerance, rounding);
    return SPX_OK;
}

/* Piece number i, as far as hits are found: job.found, COSMIC in job.mask, and job.why_host for bundles in which nobody
 * has looked. */
spx_status search_piece(const call &job, int which, size_t i)
{
    piece w(job, which, i);
    params &k = w.k;
    tables &t = w.t;
    slot *s = w.s;
    search v;
    send_tables(w, &v);
    prepare(w);
    const spx_status st = wait_for_pixels(job, s, i);
    if (st != SPX_OK)
        return st;
    spx::check(cudaEventRecord(s->step[0], s->stream), "event");
    equations(k, s);
    hit_search::keep(k, v, s);
    regularise(k, s);
    spx::check(cudaEventRecord(s->step[1], s->stream), "event");
    solve(k, s, t.scalar, t.bad, []() {});
    job.begun->solved();
    std::vector<char> solved((size_t)k.nbundle);
    for (int b = 0; b < k.nbundle; b++)
        solved[b] = (job.why_host[w.first + b] = why_host(t, b)) == 0;
    hit_search hits(k, v, job.c->shared, s, t);
    hits.begin(solved);
    if (k.reject > 0.0)
        hits.run();
    if (k.model_variance)
        hits.add_light(solved);
    for (int b = 0; b < k.nbundle && k.model_variance; b++) /* light of a search without a solution is the CPU's */
        job.why_host[w.first + b] |= solved[b] ? 0 : (int)BAD_SOLVE;
    hits.collect(job.found + w.first, t.bin_state);
    const size_t nwave = job.p->job->nwave;
    for (int lane = 0; lane < k.lanes; lane++)
        for (size_t j = 0; j < nwave && t.wanted[lane] >= 0; j++)
            if (t.bin_state[(j + job.p->pad) * k.lanes + lane]) {
                job.mask[t.wanted[lane] * nwave + j] |= SPX_COSMIC;
                job.found[w.first + lane / k.nl].ncosmic++;
            }
    spx::check(cudaEventRecord(s->step[2], s->stream), "event");
    spx::check(cudaEventSynchronize(s->step[2]), "event");
    for (int step = 0; step < 2; step++) {
        float ms = 0.0f;
        spx::check(cudaEventElapsedTime(&ms, s->step[step], s->step[step + 1]), "event");
        s->seconds[step] += 1e-3 * (double)ms;
    }
    return SPX_OK;
}

/* Light beyond the spots of a job, which devices take off the image that they have. They find it, each that has a part
 * of the frame, but for lines between bins, which are the host's. Nothing, where none is taken off. */
class light_beyond
{
  public:
    light_beyond() = default;
    light_beyond(const light_beyond &) = delete;
    light_beyond &operator=(const light_beyond &) = delete;
    ~light_beyond()
    {
        if (ground_.valid())
            ground_.wait();
        if (tables_ == NULL || !ended_) {
            spx_beyond_free(tables_);
            return;
        }
        spx_beyond_rest(tables_);
        const std::lock_guard<std::mutex> lock(layout_->lock);
        try {
            layout_->beyond.push_back(tables_);
        } catch (const std::exception &) { /* without memory it is made anew */
            spx_beyond_free(tables_);
        }
    }

    /* psf: with its tail, which the job's is without. Tables are those of a frame before with the same layout, if no
     * other call has them. */
    spx_status begin(const spx_extract_job *job, const spx_psf *psf, const layout_ref &l, spx_err *e)
    {
        if (!spx_extract_goes_beyond(psf, job->o))
            return SPX_OK;
        const spx_psf *const full = spx_extract_corrects_tail(psf, job->o) ? psf : NULL;
        layout_ = l;
        {
            const std::lock_guard<std::mutex> lock(l->lock);
            const auto found = std::find_if(l->beyond.begin(), l->beyond.end(),
                                            [&](const spx_beyond *b) { return spx_beyond_has_tail_of(b, full) != 0; });
            if (found != l->beyond.end()) {
                tables_ = *found;
                l->beyond.erase(found);
            }
        }
        if (tables_ == NULL)
            return spx_beyond_make(job, full, &tables_, e);
        spx_beyond_go_on(tables_, job);
        return SPX_OK;
    }
    /* Before devices see the job's image, with so many corrections; hits: NULL, or pixels that do not count; out: NULL,
     * or the frame that gets the background, beside what devices do. */
    spx_status expect(spx_extract_job *job, int corrections, const std::vector<unsigned> *hits, spx_frame *out,
                      spx_extract_counts *counts, spx_err *e)
    {
        there_ = found_ = false;
        out_ = out;
        nthreads_ = std::min(spx_extract_threads(job->o), (int)GROUND_THREADS);
        corrections_ = corrections;
        counts_ = before_ = *counts;
        if (tables_ == NULL || job->o->nline == 0)
            return SPX_OK;
        spx_extract_counts of_pixels = {}; /* devices count them */
        spx_status st = hits && !hits->empty() ? spx_extract_pixel_weights(job, &of_pixels, e) : SPX_OK;
        for (size_t i = 0; st == SPX_OK && hits && i < hits->size(); i++)
            job->weight[(*hits)[i]] = 0.0f;
        if (st == SPX_OK)
            st = spx_beyond_find(tables_, corrections, &counts_, e);
        spx_extract_job_free(job);
        there_ = found_ = st == SPX_OK;
        return st;
    }
    /* On a device, from the image in k.data, whose weights are there: to it, and on the stream. */
    spx_status take_off(light_finder &by, const params &k, cudaStream_t s, spx_err *e)
    {
        const size_t npix = (size_t)k.ccd_nx * k.ccd_ny;
        if (light()) {
            spx::to_device += npix * sizeof(float);
            spx::check(cudaMemcpyAsync(by.far(), light(), npix * sizeof(float), cudaMemcpyHostToDevice, s), "copy");
        } else {
            spx_background *bg = NULL;
            spx_extract_counts counts = before_;
            const spx_status st = by.find(tables_, corrections_, k.data, k.weight, &bg, &counts, e);
            if (st != SPX_OK) {
                spx_background_free(bg);
                return st;
            }
            keep(bg, counts);
        }
        take_off_kernel<<<blocks(npix, 256), 256, 0, s>>>(npix, by.far(), (float *)k.data, k.light);
        spx::check(cudaGetLastError(), "launch");
        return SPX_OK;
    }
    /* To the host, from a device that has found it. */
    spx_status fetch(const light_finder &by, size_t npix, cudaStream_t s, spx_err *e)
    {
        const std::lock_guard<std::mutex> lock(lock_);
        if (there_)
            return SPX_OK;
        float *const to = spx_beyond_room(tables_, e);
        if (to == NULL)
            return SPX_EIO;
        spx::to_host += npix * sizeof(float);
        spx::check(cudaMemcpyAsync(to, by.far(), npix * sizeof(float), cudaMemcpyDeviceToHost, s), "copy");
        spx::check(cudaStreamSynchronize(s), "stream");
        there_ = true;
        return SPX_OK;
    }
    /* What is known of it, when devices have seen the image. */
    void count(spx_extract_counts *counts) const
    {
        if (!found_)
            return;
        counts->tail_light = counts_.tail_light;
        counts->core_light = counts_.core_light;
        counts->tail_change = counts_.tail_change;
        counts->background_unknowns = counts_.background_unknowns;
        counts->background_clipped = counts_.background_clipped;
        counts->nline = counts_.nline;
        counts->line_light = counts_.line_light;
        for (int step : {SPX_EXTRACT_TAIL, SPX_EXTRACT_BACKGROUND})
            counts->seconds[step] = counts_.seconds[step];
    }
    const spx_beyond *tables() const
    {
        return tables_;
    }
    /* On the host; NULL: it is not there. */
    const float *light()
    {
        const std::lock_guard<std::mutex> lock(lock_);
        return there_ ? spx_beyond_light(tables_) : NULL;
    }
    spx_status end(spx_frame *out, spx_extract_counts *counts, spx_err *e)
    {
        spx_status st = SPX_OK;
        if (ground_.valid()) {
            st = ground_.get();
            counts->background = mean_;
        }
        if (st != SPX_OK)
            return spx_err_pass(e, &error_);
        st = tables_ ? spx_beyond_end(tables_, out, counts, e) : SPX_OK;
        ended_ = st == SPX_OK;
        return st;
    }

  private:
    enum { GROUND_THREADS = 4 }; /* others carry results meanwhile */

    spx_beyond *tables_ = NULL;
    spx_frame *out_ = NULL;
    int nthreads_ = 1;
    std::future<spx_status> ground_; /* the background at the bins */
    double mean_ = 0.0;
    spx_err error_ = {};
    layout_ref layout_;  /* that keeps them */
    bool ended_ = false; /* without an error */
    std::mutex lock_;
    bool there_ = false, found_ = false; /* on the host; what is known of it */
    int corrections_ = 0;
    spx_extract_counts before_ = {}, counts_ = {}; /* before the devices; then */

    /* All devices find the same, to the bit where they are alike: that of the first counts. */
    void keep(spx_background *bg, const spx_extract_counts &counts)
    {
        const std::lock_guard<std::mutex> lock(lock_);
        if (found_) {
            spx_background_free(bg);
            return;
        }
        found_ = true;
        counts_ = counts;
        spx_beyond_take_background(tables_, bg);
        if (bg != NULL && out_ != NULL)
            ground_ = std::async(std::launch::async, [this]() {
                return spx_beyond_give_background(tables_, nthreads_, out_, &mean_, &error_);
            });
    }
};

/* A call's frame. */
struct frame {
    const spx_trace_plan *p;
    layout_ref l;
    result results[RESULTS];
    const device_frame *retained = NULL;
    found_hits *found = NULL; /* [bundles of the frame] for a search */
    uint32_t *mask;
    const std::vector<unsigned> *hits = NULL; /* or pixels to leave out */
    unsigned long long image;                 /* its number: those of one number are the same */
    bool covered = false;                     /* that the spectra see enough of the image is known */
    int coupled = 0;                          /* 1: bundles that are strongly coupled; 2: with all diagonals */
    float *weight = NULL;                     /* gets the weights of the model's variance, from a search; */
    std::vector<double> *light = NULL;        /* and its light, where bundles are left to the CPU */
    light_beyond *beyond = NULL;              /* light beyond the spots, which is taken off, and the variance has */
    bool brings_light = false;                /* it is wanted on the host */

    frame(const spx_trace_plan *plan, const layout_ref &shared, unsigned long long number, const spx_frame *out)
        : p(plan), l(shared), results{{out->arm.flux, false, 1},
                                      {out->arm.ivar, false, 1},
                                      {out->arm.resolution, false, out->arm.ndiag},
                                      {out->pixmask_fraction, false, 1},
                                      {out->chi2pix, false, 1}},
          mask(out->arm.mask), image(number)
    {
        for (result &r : results)
            r.direct = spx_mem_pagelocked(r.to) != 0;
    }
};

/* What a part of it gives; sums over the devices, but for the pixels, of which each device has counted all. */
struct outcome {
    size_t nospot;
    double tolerance; /* the largest that was reached */
    double rounding;  /* see spx_extract_counts, of all that stay on the device */
    unsigned long long counted[PIXEL_COUNTS];
    spx_extract_cuda_times times;
};

/* Bytes of the device that a call may use, those that it has at least; waits for others where these are less than
 * `least`. */
size_t memory_limit(const context *c, const frame &f, size_t least)
{
    const size_t kept = (f.retained ? f.retained->bytes : 0) + (f.beyond ? c->beyond.bytes() : 0),
                 given = f.p->job->o->max_device_mem;
    const size_t most = given == 0 ? (size_t)-1 : given - std::min(given, kept);
    return std::min(std::max(spx::usable_memory(std::min(least, most), c->size), c->size), most);
}

/* Hands out what all pieces share; what frames share, first. */
void take_shared(arena &m, const spx_trace_plan *p, params &k, unsigned **mask, unsigned long long **counted)
{
    const spx_psf *psf = p->job->psf;
    const spx_image *image = p->job->image;
    const size_t npix = image->nx * image->ny;
    k.coeff = m.take<double>(psf->nspec * psf->ndeg * p->npar);
    k.bp = m.take<double>(p->nbin * psf->ndeg);
    k.xcoef = m.take<double>(psf->nspec * psf->x.ncoef);
    k.ycoef = m.take<double>(psf->nspec * psf->y.ncoef);
    k.bx = m.take<double>(p->nbin * psf->x.ncoef);
    k.by = m.take<double>(p->nbin * psf->y.ncoef);
    k.weight = m.take<float>(npix);
    k.data = m.take<float>(npix);
    k.readnoise = k.light_wanted ? m.take<float>(npix) : NULL;
    k.light = k.light_wanted ? m.take<long long>(npix) : NULL;
    *mask = image->mask ? m.take<unsigned>(npix) : NULL;
    *counted = m.take<unsigned long long>(PIXEL_COUNTS);
}

/* The constants of the frame's layout, unless they are there. */
void send_constants(context *c, const frame &f, const params &k)
{
    const spx_trace_plan *p = f.p;
    const spx_psf *psf = p->job->psf;
    if (c->constants == f.l)
        return;
    forget_constants(c);
    const struct {
        const double *to, *from;
        size_t n;
    } constants[] = {{k.coeff, p->coeff, psf->nspec * psf->ndeg * p->npar},
                     {k.bp, p->bp, p->nbin * psf->ndeg},
                     {k.xcoef, psf->x.coef, psf->nspec * psf->x.ncoef},
                     {k.ycoef, psf->y.coef, psf->nspec * psf->y.ncoef},
                     {k.bx, p->bx, p->nbin * psf->x.ncoef},
                     {k.by, p->by, p->nbin * psf->y.ncoef}};
    for (const auto &v : constants)
        spx::check(cudaMemcpyAsync((void *)v.to, v.from, v.n * sizeof(double), cudaMemcpyHostToDevice, c->upload),
                   "copy");
    spx::check(cudaStreamSynchronize(c->upload), "stream");
    c->constants = f.l;
}

/* The staging workers, where pages are not locked. */
void need_workers(call &all, bool direct, int device)
{
    for (const result &r : all.results)
        direct = direct && r.direct;
    if (direct)
        return;
    /* what OpenMP has kept of threads waits in loops, and would take the staging workers' processors: 1.6 ms of a
     * frame */
    (void)omp_pause_resource_all(omp_pause_soft);
    all.c->staging.start(spx_extract_threads(all.p->job->o), device);
}

/* When the image is there: counts what the spectra see of it. */
spx_status check_coverage(const call &all, unsigned long long *counted, outcome *got, spx_err *e)
{
    const spx_extract_job *job = all.p->job;
    context *c = all.c;
    for (const std::shared_future<bool> &sent : all.sent)
        if (!sent.get())
            return c->staging.wait(e);
    count_coverage(all.k, (int)job->o->first, (int)job->o->nspec, counted, c->upload);
    spx::check(cudaMemcpyAsync(c->counted, counted, PIXEL_COUNTS * sizeof *counted, cudaMemcpyDeviceToHost, c->upload),
               "copy");
    wait_for(c->upload, c->uploaded);
    memcpy(got->counted, c->counted, sizeof got->counted);
    if (all.covered)
        return SPX_OK;
    return spx_extract_check_coverage(job, got->counted[PIXELS_SEEN], got->counted[PIXELS_BLIND], e);
}

/* All pieces, by a thread of the host for each slot; st: what became of the image's upload, which is under way. The
 * first error is returned when nobody works for the call any more. */
spx_status run_pieces(const call &all, const frame &f, std::promise<bool> &dark, int device,
                      unsigned long long *counted, spx_status st, outcome *got, spx_err *e)
{
    spx_err errors[SLOTS] = {}, *mine = errors;
    spx_status status[SLOTS] = {};
    size_t nospot[SLOTS] = {0};
    double tolerance[SLOTS] = {0.0}, rounding[SLOTS] = {0.0};
    const auto work_of = [&](int which) {
        status[which] = spx::guarded("extract", &mine[which], [&]() {
            spx_status done = SPX_OK;
            spx::check(cudaSetDevice(device), "device");
            for (size_t i = (size_t)which; i < all.npiece && done == SPX_OK; i += (size_t)all.nslot)
                done = all.found ? search_piece(all, which, i)
                                 : run_piece(all, which, i, &nospot[which], &tolerance[which], &rounding[which]);
            return done;
        });
    };
    std::vector<std::thread> slots;
    try {
        for (int i = 0; i < all.nslot && st == SPX_OK; i++)
            slots.emplace_back(work_of, i);
    } catch (const std::exception &x) {
        st = spx_fail(e, SPX_EIO, "threads of the host: %s", x.what());
    }
    if (st == SPX_OK)
        st = spx::guarded("extract", e, [&]() { return check_coverage(all, counted, got, e); });
    if (st == SPX_OK && all.goes_beyond)
        st = spx::guarded("extract", e, [&]() {
            const spx_status found = f.beyond->take_off(all.c->beyond, all.k, all.c->upload, e);
            spx::check(cudaEventRecord(all.c->dark, all.c->upload), "event");
            return found;
        });
    dark.set_value(st == SPX_OK);
    for (std::thread &t : slots)
        t.join();
    spx_err late = {};
    const spx_status carried = all.c->staging.wait(&late);
    if (st == SPX_OK && carried != SPX_OK)
        st = spx_err_pass(e, &late);
    for (int i = 0; i < all.nslot && st == SPX_OK; i++)
        if (status[i] != SPX_OK)
            st = spx_err_pass(e, &errors[i]);
    for (int i = 0; i < all.nslot; i++) {
        got->nospot += nospot[i];
        got->tolerance = fmax(got->tolerance, tolerance[i]);
        got->rounding = fmax(got->rounding, rounding[i]);
    }
    return st;
}

/* What a model's variance needs of the image, before its pixels: read noise, and room for light. */
void send_readnoise(const call &all)
{
    const spx_image *image = all.p->job->image;
    const size_t npix = image->nx * image->ny;
    spx::to_device += npix * sizeof(float);
    spx::check(cudaMemcpyAsync((float *)all.k.readnoise, image->readnoise, npix * sizeof(float), cudaMemcpyHostToDevice,
                               all.c->upload),
               "copy");
    spx::check(cudaMemsetAsync(all.k.light, 0, npix * sizeof *all.k.light, all.c->upload), "device memory");
}

/* Weights of the model's variance, when the light of all pieces is there; and the light, if bundles are left to the
 * CPU. */
void fetch_weights(const call &all, const frame &f)
{
    const size_t npix = f.p->job->image->nx * f.p->job->image->ny;
    cudaStream_t s = all.c->upload;
    if (std::any_of(all.why_host, all.why_host + all.nbundle, [](int why) { return why != 0; })) {
        std::vector<long long> light(npix);
        spx::to_host += npix * sizeof(long long);
        spx::check(cudaMemcpyAsync(light.data(), all.k.light, npix * sizeof(long long), cudaMemcpyDeviceToHost, s),
                   "copy");
        spx::check(cudaStreamSynchronize(s), "stream");
        f.light->resize(npix);
        std::transform(light.begin(), light.end(), f.light->begin(),
                       [](long long v) { return (double)v * LIGHT_UNIT; });
    }
    model_weights_kernel<<<blocks(npix, 256), 256, 0, s>>>(all.k, (float *)all.k.weight);
    spx::check(cudaGetLastError(), "launch");
    spx::to_host += npix * sizeof(float);
    spx::check(cudaMemcpyAsync(f.weight, all.k.weight, npix * sizeof(float), cudaMemcpyDeviceToHost, s), "copy");
    spx::check(cudaStreamSynchronize(s), "stream");
}

/* Pixels that were rejected, to the device. */
void send_hits(call &all, const std::vector<unsigned> &hits)
{
    const size_t unit = (size_t)1 << 16; /* so that memory is asked for seldom */
    all.nhit = hits.size();
    if (all.nhit == 0)
        return;
    unsigned *to = all.c->hits.need((all.nhit + unit - 1) / unit * unit);
    spx::to_device += all.nhit * sizeof *to;
    spx::check(cudaMemcpyAsync(to, hits.data(), all.nhit * sizeof *to, cudaMemcpyHostToDevice, all.c->upload), "copy");
    all.hits = to;
}

/* A call in a context: bundles list[nbundle] of a frame, of which the first is its bundle number bundle0. */
spx_status run_in(context *c, bool alone, launch_gate *begun, int device, const frame &f, const spx_trace_bundle *list,
                  size_t bundle0, size_t nbundle, int *why_host, outcome *got, spx_err *e)
{
    call all = {};
    all.p = f.p;
    all.list = list;
    all.nbundle = nbundle;
    memcpy(all.results, f.results, sizeof all.results);
    all.retained = f.retained;
    all.found = f.found ? f.found + bundle0 : NULL;
    all.mask = f.mask;
    all.covered = f.covered;
    all.why_host = why_host;
    all.c = c;
    all.begun = begun;
    common_geometry(f.p, list, nbundle, f.coupled, all.k);
    all.k.light_wanted = f.weight != NULL;
    unsigned *mask;
    unsigned long long *counted;
    arena shared = {NULL, 0, 0};
    c->starved = f.beyond != NULL;
    if (f.beyond)
        c->beyond.prepare(f.l, f.beyond->tables(), c->upload);
    c->starved = false;
    take_shared(shared, f.p, all.k, &mask, &counted);
    if (!reserve_memory(all, shared.used, alone, [&](size_t least) { return memory_limit(c, f, least); })) {
        std::fill(why_host, why_host + nbundle, (int)BAD_MEMORY);
        return SPX_OK;
    }
    params piece_work = all.k;
    piece_work.nbundle = all.per_piece;
    piece_work.lanes = all.per_piece * all.k.nl;
    need_tables(c, piece_work, all.nslot);
    all.there = c->image == f.image;
    all.goes_beyond = f.beyond && !all.there;
    std::promise<bool> dark;
    all.dark = dark.get_future().share();
    c->image = 0;
    shared = {c->memory.get(), 0, c->size};
    take_shared(shared, f.p, all.k, &mask, &counted);
    for (slot &s : c->slots)
        memset(s.seconds, 0, sizeof s.seconds);
    cut_image(all);
    sender upload(all, mask, counted);
    need_workers(all, upload.direct(), device);
    const double begin = spx_seconds();
    send_constants(c, f, all.k);
    if (f.hits)
        send_hits(all, *f.hits);
    if (all.k.light_wanted)
        send_readnoise(all);
    /* from here on others use `upload`: nothing may be thrown before they have ended */
    spx_status st = upload.begin(e);
    if (st == SPX_OK)
        st = spx::guarded("extract", e, [&]() {
            fetch_pages(all);
            return SPX_OK;
        });
    begun->enter(all.npiece); /* the image travels meanwhile */
    st = run_pieces(all, f, dark, device, counted, st, got, e);
    if (st == SPX_OK && f.beyond &&
        (f.brings_light || std::any_of(why_host, why_host + nbundle, [](int why) { return why != 0; })))
        st = spx::guarded("extract", e, [&]() {
            const spx_image *image = f.p->job->image;
            return f.beyond->fetch(c->beyond, image->ny * image->nx, c->upload, e);
        });
    if (st == SPX_OK && all.k.light_wanted)
        st = spx::guarded("extract", e, [&]() {
            fetch_weights(all, f);
            return SPX_OK;
        });
    c->image = st == SPX_OK && !all.k.light_wanted ? f.image : 0;
    got->times.seconds = spx_seconds() - begin;
    for (int i = 0; i < all.nslot; i++)
        for (int step = 0; step < STEPS; step++)
            got->times.step[step] += c->slots[i].seconds[step];
    return st;
}

/* With a context of the device's. Where memory is out, once more, when no other call has some of it. */
spx_status run(const spx_extract_device *dev, const frame &f, const spx_trace_bundle *list, size_t bundle0,
               size_t nbundle, int *why_host, outcome *got, spx_err *e)
{
    pool *all = (pool *)dev->pool;
    const spx_status there = spx::guarded("extract", e, [&]() {
        spx::check(cudaSetDevice(dev->device), "device");
        return SPX_OK;
    });
    if (there != SPX_OK)
        return there;
    for (bool alone = false;; alone = true) {
        context *c = NULL;
        spx_status st = spx::guarded("extract", e, [&]() {
            context_acquire(all, dev->device, f.l, f.image, alone, &c);
            return SPX_OK;
        });
        launch_gate begun(all);
        if (st == SPX_OK) /* others wait for the context, whatever happens */
            st = spx::guarded("extract", e, [&]() {
                return run_in(c, alone, &begun, dev->device, f, list + bundle0, bundle0, nbundle, why_host + bundle0,
                              got, e);
            });
        const bool again = st != SPX_OK && c && c->starved && !alone;
        if (st != SPX_OK)
            (void)cudaDeviceSynchronize();
        context_release(all, c, st == SPX_OK);
        if (!again)
            return st;
        *e = {};
        *got = {};
    }
}

/* share(0) .. share(n - 1), a thread each. Whatever is thrown, nobody works for this call any more behind it. */
template <class SHARE> void run_beside(size_t n, const SHARE &share)
{
    struct joined {
        std::vector<std::thread> threads;

        ~joined()
        {
            for (std::thread &t : threads)
                t.join();
        }
    };
    joined others;
    for (size_t d = 1; d < n; d++)
        others.threads.emplace_back(share, d);
    if (n > 0)
        share(0);
}

/* Shares the bundles out among the devices, a host thread each, and joins what they have counted; adds to *times. */
spx_status run_on_devices(const spx_extract_device *dev, size_t ndev, const frame &f, const spx_trace_bundle *list,
                          size_t nbundle, int *why_host, spx_extract_counts *counts, spx_extract_cuda_times *times,
                          spx_err *e)
{
    struct part {
        outcome got;
        spx_status st;
        spx_err error;
    };
    spx_status st = SPX_OK;
    double seconds = 0.0;
    try {
        std::vector<part> parts(ndev);
        const auto share = [&](size_t d) {
            const size_t b0 = nbundle * d / ndev, b1 = nbundle * (d + 1) / ndev;
            part &mine = parts[d];
            if (b0 < b1)
                mine.st = run(&dev[d], f, list, b0, b1 - b0, why_host, &mine.got, &mine.error);
        };
        run_beside(ndev, share);
        for (const part &each : parts) {
            counts->nbin_nospot += each.got.nospot;
            counts->tolerance = fmax(counts->tolerance, each.got.tolerance);
            counts->rounding = fmax(counts->rounding, each.got.rounding);
            counts->npix_bad = std::max(counts->npix_bad, (size_t)each.got.counted[PIXELS_BAD]);
            counts->npix_masked = std::max(counts->npix_masked, (size_t)each.got.counted[PIXELS_MASKED]);
            seconds = fmax(seconds, each.got.times.seconds);
            for (int i = 0; i < STEPS; i++)
                times->step[i] += each.got.times.step[i];
            if (st == SPX_OK && each.st != SPX_OK)
                st = spx_err_pass(e, &each.error);
        }
    } catch (const std::exception &x) {
        st = spx_fail(e, SPX_EIO, "threads of the host: %s", x.what());
    }
    times->seconds += seconds;
    counts->device_seconds = times->seconds;
    return st;
}

/* Bundles that a device has left over as strongly coupled, once more: as the CPU solves them, and with all diagonals
 * where they need more than it begins with. */
spx_status solve_coupled(const spx_extract_device *dev, size_t ndev, frame f, const spx_trace_bundle *list,
                         size_t nbundle, int *why_host, spx_extract_counts *counts, spx_extract_cuda_times *times,
                         spx_err *e)
{
    spx_status st = SPX_OK;
    f.covered = true;
    for (f.coupled = 1; f.coupled <= 2 && st == SPX_OK; f.coupled++) {
        const int again = f.coupled == 1 ? BAD_STRONG | BAD_BAND | BAD_ROOT : (int)BAD_BAND;
        std::vector<size_t> number;
        std::vector<spx_trace_bundle> chosen;
        for (size_t i = 0; i < nbundle; i++)
            if ((why_host[i] & again) != 0 && (why_host[i] & (BAD_FACTOR | BAD_SOLVE)) == 0) {
                number.push_back(i);
                chosen.push_back(list[i]);
            }
        if (chosen.empty())
            continue;
        std::vector<int> why(chosen.size());
        spx_extract_counts more = {};
        st = run_on_devices(dev, ndev, f, chosen.data(), chosen.size(), why.data(), &more, times, e);
        for (size_t i = 0; i < chosen.size() && st == SPX_OK; i++)
            why_host[number[i]] = why[i];
        times->coupled += f.coupled == 1 ? chosen.size() : 0;
        counts->nbin_nospot += more.nbin_nospot;
        counts->tolerance = fmax(counts->tolerance, more.tolerance);
        counts->rounding = fmax(counts->rounding, more.rounding);
        counts->device_seconds = times->seconds;
    }
    return st;
}

/* Solves on the CPU the bundles that the device has left, why_host[i] != 0, without some pixels; retained: NULL, or the
 * frame that gets their rows. */
spx_status solve_the_rest(spx_extract_job *job, const spx_trace_plan *plan, const spx_trace_bundle *list,
                          size_t nbundle, const int *why_host, const std::vector<unsigned> &hits,
                          const device_frame *retained, spx_frame *out, spx_extract_counts *counts, spx_err *e)
{
    const spx_extract_options *o = job->o;
    spx_status st = spx_extract_pixel_weights(job, counts, e);
    for (size_t i = 0; st == SPX_OK && i < hits.size(); i++)
        job->weight[hits[i]] = 0.0f;
    if (st == SPX_OK)
        st = spx_trace_solve_bundles(plan, nbundle, list, why_host, out, counts, e);
    if (st != SPX_OK)
        return st;
    for (size_t i = 0; i < nbundle && retained; i++) {
        const size_t f0 = std::max(list[i].fibre0, o->first);
        const size_t f1 = std::min(list[i].fibre0 + list[i].nf, o->first + o->nspec);
        if (why_host[i] && f0 < f1)
            send_rows(*retained, out, f0 - o->first, f1 - f0);
    }
    return SPX_OK;
}

/* A frame whose PSF devices do not take, as the CPU extracts it. */
spx_status extract_on_host(const spx_image *image, const spx_psf *psf, const spx_extract_options *o, spx_frame *out,
                           spx_extract_counts *counts, spx_err *e)
{
    const spx_status st = spx_extract_cpu(image, psf, o, out, counts, e);
    const size_t nbundle = spx_extract_nbundle(psf, o);
    if (st == SPX_OK)
        counts->fallback = {"bundles", spx_extract_on_cpu_only(psf, o), nbundle, nbundle};
    return st;
}

/* The error of an image whose light beyond the spots the host cannot find: that of an image without anything to
 * extract, if it is one, which devices see later, and the CPU first. */
spx_status name_error(const spx_extract_job *job, const spx_image *image, spx_status st, spx_err *e)
{
    spx_extract_job again = *job;
    spx_extract_counts counts = {};
    spx_err why = {};
    again.image = image;
    again.weight = NULL;
    if (spx_extract_pixel_weights(&again, &counts, &why) == SPX_OK &&
        spx_extract_check_traces(&again, &why) == SPX_EINPUT && e)
        *e = why;
    spx_extract_job_free(&again);
    return st;
}

/* The hits of the bundles that a search on devices has left to the CPU, why_host[i] != 0; their pixels are added to the
 * list. light: that of the others, and weight [ny][nx], which gets the weights of them all; or NULL. */
spx_status search_the_rest(spx_extract_job *job, const spx_trace_plan *plan, const spx_trace_bundle *list,
                           size_t nbundle, const int *why_host, const double *light, float *weight,
                           std::vector<unsigned> &hits, spx_frame *out, spx_extract_counts *counts, spx_err *e)
{
    const size_t nx = job->image->nx;
    std::vector<int> chosen(nbundle);
    spx_extract_counts of_pixels = {}; /* devices have counted them */
    spx_status st = spx_extract_pixel_weights(job, &of_pixels, e);
    if (st == SPX_OK)
        st = spx_trace_screen_bundles(plan, nbundle, list, why_host, light, job, 0, chosen.data(), out, &of_pixels, e);
    counts->nbin_cosmic += of_pixels.nbin_cosmic;
    for (int step = 0; step < SPX_EXTRACT_STEPS; step++)
        counts->seconds[step] += of_pixels.seconds[step];
    if (st == SPX_OK && weight)
        memcpy(weight, job->weight, job->image->ny * nx * sizeof *weight);
    spx_extract_job_free(job);
    for (size_t i = 0; i < out->ncosmic; i++)
        hits.push_back((unsigned)((size_t)out->cosmic_pixels[2 * i] * nx + (size_t)out->cosmic_pixels[2 * i + 1]));
    spx_free(out->cosmic_pixels);
    out->cosmic_pixels = NULL;
    return st;
}

/* A pass of devices over all bundles that ends with the hits, and with weights of the model's variance, [ny][nx], or
 * NULL. hits: pixels of the frame, in order, which *out gets, too; they have no weight. */
spx_status screen(const spx_extract_device *dev, size_t ndev, spx_extract_job *job, const spx_trace_plan *plan,
                  const layout_ref &l, unsigned long long image, light_beyond &beyond, float *weight, int *why_host,
                  std::vector<unsigned> &hits, spx_frame *out, spx_extract_counts *counts,
                  spx_extract_cuda_times *times, spx_err *e)
{
    const size_t nbundle = l->it.nbundle, nx = job->image->nx;
    std::vector<found_hits> found(nbundle);
    std::vector<double> light;
    spx_extract_counts of_pixels = {};
    frame f(plan, l, image, out);
    f.found = found.data();
    f.weight = weight;
    f.light = &light;
    f.beyond = beyond.tables() ? &beyond : NULL;
    /* light of all bundles has to be on one device */
    spx_status st = run_on_devices(dev, weight ? 1 : ndev, f, l->it.list, nbundle, why_host, &of_pixels, times, e);
    counts->npix_bad = of_pixels.npix_bad;
    counts->npix_masked = of_pixels.npix_masked;
    beyond.count(counts);
    job->far = beyond.light();
    bool rest = false;
    for (size_t i = 0; i < nbundle; i++) {
        hits.insert(hits.end(), found[i].pixel.begin(), found[i].pixel.end());
        counts->nbin_cosmic += found[i].ncosmic;
        rest |= why_host[i] != 0;
    }
    if (st == SPX_OK && rest)
        st = search_the_rest(job, plan, l->it.list, nbundle, why_host, weight ? light.data() : NULL, weight, hits, out,
                             counts, e);
    job->far = NULL;
    std::fill(why_host, why_host + nbundle, 0);
    std::sort(hits.begin(), hits.end()); /* windows of bundles overlap */
    hits.erase(std::unique(hits.begin(), hits.end()), hits.end());
    counts->npix_rejected = out->ncosmic = hits.size();
    if (st == SPX_OK && !hits.empty()) {
        out->cosmic_pixels = (int32_t *)spx_alloc2(hits.size(), 2, sizeof *out->cosmic_pixels, e);
        st = out->cosmic_pixels ? SPX_OK : SPX_EIO;
    }
    for (size_t i = 0; i < hits.size() && st == SPX_OK; i++) {
        out->cosmic_pixels[2 * i] = (int32_t)(hits[i] / nx);
        out->cosmic_pixels[2 * i + 1] = (int32_t)(hits[i] % nx);
        if (weight)
            weight[hits[i]] = 0.0f;
    }
    return st;
}

/* Devices that are open; with the last, page-locked memory goes. */
std::mutex opening;
int open_devices;
pool *open_pools;

/* Frees contexts that no call uses (spx::give_back). */
void free_idle_contexts()
{
    const std::lock_guard<std::mutex> lock(opening);
    for (pool *all = open_pools; all != nullptr; all = all->next) {
        const std::lock_guard<std::mutex> idle(all->lock);
        for (context *c : all->idle)
            free_context(c);
        all->idle.clear();
    }
}

} // namespace

extern "C" int spx_extract_cuda_count(void)
{
    int count = 0;
    if (cudaGetDeviceCount(&count) != cudaSuccess)
        (void)cudaGetLastError();
    return count;
}

extern "C" spx_status spx_extract_cuda_open(spx_extract_device *dev, int device, spx_err *e)
{
    const std::lock_guard<std::mutex> lock(opening);
    dev->device = device;
    dev->pool = NULL;
    const cudaError_t code = cudaSetDevice(device);
    if (code != cudaSuccess)
        return spx_fail(e, SPX_EDEVICE, "device %d cannot be opened: %s", device, cudaGetErrorString(code));
    dev->pool = new (std::nothrow) pool;
    if (!dev->pool)
        return spx_fail(e, SPX_EIO, "device %d cannot be opened: out of memory", device);
    ((pool *)dev->pool)->next = open_pools;
    open_pools = (pool *)dev->pool;
    spx::give_back = free_idle_contexts;
    if (open_devices++ == 0)
        spx_mem_begin_pagelock(spx::lock_pages);
    return SPX_OK;
}

extern "C" void spx_extract_cuda_free(spx_extract_device *dev)
{
    const std::lock_guard<std::mutex> lock(opening);
    pool *all = (pool *)dev->pool;
    if (!all)
        return;
    if (cudaSetDevice(dev->device) == cudaSuccess)
        for (context *c : all->idle)
            free_context(c);
    pool **at = &open_pools;
    while (*at != all)
        at = &(*at)->next;
    *at = all->next;
    delete all;
    dev->pool = NULL;
    if (--open_devices == 0)
        spx_mem_end_pagelock();
}

extern "C" spx_status spx_extract_trace_cuda(const spx_extract_device *dev, size_t ndev, const spx_image *image,
                                             const spx_psf *psf, const spx_extract_options *o, spx_frame *out,
                                             spx_extract_counts *counts, spx_extract_cuda_times *times, spx_err *e)
{
    if (o->method != SPX_METHOD_TRACE)
        return spx_fail(e, SPX_EUSAGE, "patches are solved on the CPU only: use {method} trace, or {device} cpu");
    if (spx_extract_on_cpu_only(psf, o) != NULL)
        return extract_on_host(image, psf, o, out, counts, e);
    spx_extract_job job;
    spx_trace_plan plan = {};
    layout_ref l;
    const spx_trace_bundle *list = NULL;
    int *why_host = NULL;
    size_t nbundle = 0;
    memset(times, 0, sizeof *times);
    light_beyond beyond;
    spx_psf bare = *psf; /* of spots' cores, where tails are taken off */
    if (spx_extract_corrects_tail(psf, o))
        spx_psf_drop_tail(&bare);
    spx_status st = spx_extract_check_input(image, &bare, o, &job, counts, e);
    try {
        if (st == SPX_OK)
            st = find_layout((pool *)dev->pool, &job, &l, e);
    } catch (const std::exception &x) {
        st = spx_fail(e, SPX_EIO, "plan of the frame: %s", x.what());
    }
    if (st == SPX_OK) {
        plan = l->it.plan;
        plan.job = &job;
        list = l->it.list;
        nbundle = l->it.nbundle;
        why_host = (int *)spx_alloc2(nbundle, 1, sizeof *why_host, e);
        st = why_host ? spx_extract_alloc(&job, 1, out, e) : SPX_EIO;
    }
    counts->npatch = o->nspec;
    counts->npix = image->nx * image->ny;
    spx_image seen; /* the image with other weights */
    float *weight = NULL;
    const bool screens = spx_extract_screens(o), anew = o->variance == SPX_VARIANCE_MODEL;
    static std::atomic<unsigned long long> images{0};
    unsigned long long number = ++images;
    std::vector<unsigned> hits;
    if (st == SPX_OK && anew && image->readnoise == NULL)
        st = spx_trace_no_readnoise(e);
    if (st == SPX_OK && anew) {
        weight = (float *)spx_alloc_unset(image->ny, image->nx, sizeof *weight, e);
        st = weight ? SPX_OK : SPX_EIO;
    }
    if (st == SPX_OK)
        st = beyond.begin(&job, psf, l, e);
    if (st == SPX_OK && screens)
        st = beyond.expect(&job, 1, NULL, NULL, counts, e);
    if (st == SPX_OK && screens)
        st = spx::guarded("extract", e, [&]() {
            return screen(dev, ndev, &job, &plan, l, number, beyond, weight, why_host, hits, out, counts, times, e);
        });
    job.image = image;
    if (st == SPX_OK && anew) {
        seen = *image;
        seen.ivar = weight;
        seen.mask = NULL;
        job.image = &seen;
    }
    const spx_extract_counts before = *counts;
    if (st == SPX_OK)
        st = beyond.expect(&job, o->tail_corrections, anew ? NULL : &hits, out, counts, e);
    if (st == SPX_EINPUT && o->nline > 0)
        st = name_error(&job, image, st, e);
    if (anew || beyond.tables())
        number = ++images;
    device_frame retained; /* on one device */
    if (st == SPX_OK && o->hook) {
        ndev = 1;
        st = spx::guarded("extract", e, [&]() {
            make_device_frame(retained, dev->device, out);
            return SPX_OK;
        });
    }
    if (st == SPX_OK) {
        frame f(&plan, l, number, out);
        f.covered = screens;
        f.retained = o->hook ? &retained : NULL;
        f.hits = anew ? NULL : &hits;
        f.beyond = beyond.tables() ? &beyond : NULL;
        f.brings_light = o->want_model != 0;
        st = run_on_devices(dev, ndev, f, list, nbundle, why_host, counts, times, e);
        if (st == SPX_OK)
            st = spx::guarded("extract", e,
                              [&]() { return solve_coupled(dev, ndev, f, list, nbundle, why_host, counts, times, e); });
        beyond.count(counts);
    }
    job.far = beyond.light(); /* which bundles on the CPU are without, and the model has */
    counts->fallback = {"bundles", "those that need regularisation, or whose traces or bins can hardly be told apart",
                        nbundle, 0};
    for (size_t i = 0; i < nbundle && why_host; i++)
        counts->fallback.on_cpu += why_host[i] != 0;
    if (st == SPX_OK && counts->fallback.on_cpu > 0)
        st = spx::guarded("extract", e, [&]() {
            return solve_the_rest(&job, &plan, list, nbundle, why_host, hits, o->hook ? &retained : NULL, out, counts,
                                  e);
        });
    if (st == SPX_OK)
        st = spx::guarded("extract", e, [&]() {
            return o->hook ? finish_device_frame(retained, &job, out, counts, e)
                           : spx_extract_end(&job, out, counts, e);
        });
    if (st == SPX_OK)
        st = beyond.end(out, counts, e);
    if (screens) { /* rejected pixels are not counted as masked */
        counts->npix_bad = before.npix_bad;
        counts->npix_masked = before.npix_masked;
    }
    spx_free(why_host);
    spx_free(weight);
    spx_extract_job_free(&job);
    return st;
}
