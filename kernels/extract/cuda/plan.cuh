/* Provides the plan of a call: the geometry that its bundles share, the tables of a piece, and the sizes of pieces that
 * fit into the memory of a device. */
#ifndef SPX_EXTRACT_CUDA_PLAN_CUH
#define SPX_EXTRACT_CUDA_PLAN_CUH

#include <algorithm>

#include "extract/cuda/coupled.cuh"
#include "extract/cuda/reject.cuh"
#include "extract/cuda/sqrt.cuh"
#include "extract/cuda/transfer.cuh"

namespace
{

/* Geometry that all bundles of the call share: the union of theirs. */
void common_geometry(const spx_trace_plan *p, const spx_trace_bundle *list, size_t nbundle, int coupled, params &k)
{
    const spx_extract_job *job = p->job;
    k = params();
    k.n = (int)p->nbin;
    k.pad = (int)p->pad;
    k.nwave = (int)job->nwave;
    k.nx = p->nx;
    k.ny = p->ny;
    k.npix = p->nx * p->ny;
    k.degx = p->degx;
    k.degy = p->degy;
    k.npar = (int)p->npar;
    k.ndeg = (int)job->psf->ndeg;
    k.nxc = (int)job->psf->x.ncoef;
    k.nyc = (int)job->psf->y.ncoef;
    k.h = job->psf->hsizey;
    k.ccd_nx = (long)job->image->nx;
    k.ccd_ny = (long)job->image->ny;
    k.tolerance = p->tolerance;
    k.drop_tolerance = p->drop_tolerance;
    k.psf_error = job->psf_error;
    k.regularize = job->o->regularize;
    k.reject = job->o->reject;
    k.model_variance = job->o->variance == SPX_VARIANCE_MODEL;
    k.half = job->o->wave_step > p->nbin ? (int)p->nbin : (int)(job->o->wave_step + 2 * p->pad);
    for (int df = 0; df <= REACH; df++) {
        k.lo[df] = INT_MAX;
        k.hi[df] = INT_MIN;
    }
    size_t most = 0;
    for (size_t i = 0; i < nbundle; i++) {
        const spx_trace_bundle *b = &list[i];
        most = b->nf > most ? b->nf : most;
        if (b->reach > REACH)
            spx::fail("traces overlap with more than %d others: use {device} cpu", (int)REACH);
        k.reach = b->reach > k.reach ? b->reach : k.reach;
        for (int df = 0; df <= b->reach; df++) {
            k.lo[df] = b->lo[df] < k.lo[df] ? b->lo[df] : k.lo[df];
            k.hi[df] = b->hi[df] > k.hi[df] ? b->hi[df] : k.hi[df];
        }
        k.wide = (int)b->wnx > k.wide ? (int)b->wnx : k.wide;
    }
    for (int df = 0; df <= k.reach; df++) {
        k.first[df] = k.nelem;
        k.nelem += k.hi[df] - k.lo[df] + 1;
        k.depth = k.hi[df] > k.depth ? k.hi[df] : k.depth;
        k.depth = -k.lo[df] > k.depth ? -k.lo[df] : k.depth;
    }
    k.nl = (int)most + k.reach;
    k.m = k.hi[0];
    k.band = (int)spx_trace_band(k.m, k.reach, k.h, k.tolerance);
    k.coupled = coupled;
    k.least_scale = spx_trace_least_scale(k.tolerance);
    k.rounding_scale = spx_trace_rounding(k.tolerance);
    k.root_error = spx_trace_root_error(k.tolerance);
    if (coupled) { /* as on the CPU; then as many as it takes at most */
        const int most = std::min((int)SPX_TRACE_MOST_BAND, std::max(k.n - 1, std::max(k.m, k.h)));
        k.band = coupled > 1 ? most : std::min(k.band + SPX_TRACE_RIM, most);
    }
    k.tail = coupled ? SPX_TRACE_LONG_TAIL : SPX_TRACE_TAIL;
    k.rows = 2 * k.depth + 1 + k.tail;
    cut_tiles(k);
    for (int mm = 0; mm <= k.band && mm <= SPX_TRACE_MOST_BAND; mm++)
        k.loop[mm] = next_loop(mm, k.band);
}

/* Fills the tables that the device needs of a piece of work. */
void fill_tables(const spx_trace_plan *p, const spx_trace_bundle *list, const params &k, tables &t)
{
    const spx_extract_options *o = p->job->o;
    int rows = 0;
    for (int b = 0; b < k.nbundle; b++) {
        const spx_trace_bundle *from = &list[b];
        t.nf[b] = (int)from->nf;
        t.y0[b] = (int)from->y0;
        t.y1[b] = (int)from->y1;
        t.x0[b] = (int)from->wx0;
        t.others[b] = from->fibre0 > o->first ? (int)(from->fibre0 - o->first) - rows : -rows;
        memcpy(t.bin_state + (size_t)b * k.n * k.nl, from->state, k.n * from->nf);
        for (int f = 0; f < k.nl; f++) {
            const size_t fibre = from->fibre0 + (size_t)f;
            const bool there = (size_t)f < from->nf, kept = there && fibre >= o->first && fibre < o->first + o->nspec;
            t.fibre[b * k.nl + f] = there ? (int)fibre : -1;
            t.wanted[b * k.nl + f] = kept ? (int)(fibre - o->first) : -1;
            rows += kept;
        }
    }
}

/* Of the memory with which all segments' roots are under way at a time, the part that a piece takes: with all of it a
 * frame takes 20 GB, and programs that share the device wait for each other. */
enum { ROOT_PART = 4 };

/* Bytes that a piece of `count` bundles needs at least, and those with which the device has enough to do. */
void piece_size(const params &k, int count, size_t *least, size_t *best)
{
    params w = k;
    arena m = {NULL, 0, 0};
    w.nbundle = count;
    w.lanes = count * w.nl;
    m.take<char>((size_t)w.nbundle * ((w.n + 2 * sizeof(int)) * (size_t)w.nl + 4096) + 8192); /* see struct tables */
    arena before = m;
    lay_out(m, w);
    const size_t columns = std::max((size_t)w.n * w.lanes * w.rows, own_size(w) * w.lanes);
    size_t few, all;
    root_size(w, &few, &all);
    few = columns > few ? columns : few;
    if (w.coupled) {
        arena one = {NULL, 0, 0}, all_blocks = {NULL, 0, 0};
        (void)take_coupled(one, w, 1);
        (void)take_coupled(all_blocks, w, COUPLED_BLOCKS);
        few = std::max(few, one.used / sizeof(double));
        all = std::max(all, all_blocks.used / sizeof(double));
    }
    all = few > all ? few : few + (all - few) / ROOT_PART;
    *least = m.used + few * sizeof(double) + 16384;
    *best = m.used + all * sizeof(double) + 16384;
    if (w.reject > 0.0 || w.model_variance) {
        search v;
        lay_out_search(before, w, v);
        *least = std::max(*least, before.used + 16384);
        *best = std::max(*best, *least);
    }
}

/* Sizes of the pieces, and memory for them, within limit(0) bytes; first what all pieces share. limit(n): where these
 * are less than n, waits for other programs that have them. alone: nobody else of this one has any. false: a bundle
 * that is strongly coupled has no room. */
template <class LIMIT> bool reserve_memory(call &job, size_t shared, bool alone, LIMIT limit_of)
{
    size_t limit = limit_of(0);
    context *c = job.c;
    const int nbundle = (int)job.nbundle;
    size_t least = 0, best = 0, size = 0;
    int nslot = job.p->job->o->queued ? 1 : (int)SLOTS, count = 0;
    bool waited = false;
    job.npiece = SLOTS;
    job.uneven = nbundle >= FOR_UNEVEN && nslot == SLOTS;
    for (size_t i = 0; i < SLOTS && job.uneven; i++)
        count = std::max(count, (int)(job.start(i + 1) - job.start(i)));
    if (job.uneven) {
        piece_size(job.k, count, &least, &best);
        job.uneven = shared + nslot * least <= limit;
    }
    /* else as many equal pieces as slots; fewer slots, then smaller pieces, where memory is short */
    while (!job.uneven) {
        count = count == 0 || nslot > 1 ? (nbundle + nslot - 1) / nslot : count / 2;
        c->starved = count == 0;
        if (count == 0 && alone && !waited) { /* for what keeps a device at work, or as much as there is then */
            waited = true;
            nslot = SLOTS;
            piece_size(job.k, (nbundle + nslot - 1) / nslot, &least, &best);
            limit = limit_of(shared + nslot * least);
            continue;
        }
        if (count == 0 && job.k.coupled)
            return false;
        if (count == 0)
            spx::fail("one bundle needs %.2f GB on the device, %.2f GB may be used: give more "
                      "({max_device_mem}), or use {device} cpu",
                      1e-9 * (double)(shared + least), 1e-9 * (double)limit);
        piece_size(job.k, count, &least, &best);
        if (shared + nslot * least <= limit)
            break;
        if (nslot > 1) {
            nslot /= 2;
            if (nslot == 1)
                count = nbundle;
            continue;
        }
    }
    if (!job.uneven)
        job.npiece = (size_t)((nbundle + count - 1) / count);
    nslot = std::min(nslot, (int)job.npiece);
    job.per_piece = count;
    job.nslot = nslot;
    job.each = (limit - shared) / nslot / 256 * 256;
    job.each = job.each < best ? job.each : best / 256 * 256 + 256;
    size = shared + nslot * job.each;
    if (c->size < size || c->size > limit) {
        c->memory = spx::array<char>();
        forget_constants(c);
        c->size = 0;
        c->starved = true;
        c->memory = spx::array<char>(size);
        c->starved = false;
        c->size = size;
    }
    if (c->front != shared || c->each != job.each) /* a slot's part may reach into another's of before */
        forget_spots(c);
    c->front = shared;
    c->each = job.each;
    for (int i = 0; i < nslot; i++)
        job.memory[i] = c->memory.get() + shared + i * job.each;
    return true;
}

} // namespace

#endif
