/* Computes what the search asks for (search/search.h) on a CUDA device, for many stars at a time: the data of a group
 * go to the device once, points and velocities with each call. */
#include "rvfit/cuda/engine.cuh"

#include <omp.h>

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "rvfit/cuda/kernels.cuh"

namespace rv
{

enum {
    STAGED = 64,     /* stars whose data go to the device in one piece */
    FEW_WARPS = 1536 /* that are on a device at one time: fewer pieces have a warp for each part of their pixels */
};

engine::engine(const spx_rv_ctx *c, const device_plan *s, int threads)
    : c_(c), full_(s->full), coarse_(s->coarse), widest_(s->window), threads_(threads),
      few_(c->interpolator == SPX_INTERPOLATE_SIMPLEX ? 4 : 128)
{
    spx::check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "stream");
    spx::check(cudaEventCreateWithFlags(&done_, cudaEventBlockingSync | cudaEventDisableTiming), "event");
    shared_limits();
}

size_t engine::star_bytes(const device_plan &p)
{
    const model &m = p.full.m;
    const size_t pixels = (size_t)m.pixels, samples = (size_t)m.samples, lanes = (size_t)m.lanes;
    size_t n = samples * (8 + 4 * (lanes - 1) + 16) + pixels * (8 + 4 * (size_t)m.nfree) + (size_t)m.ncomp * LANES * 4 +
               (size_t)m.narm * (SPX_RV_LARGE + 2 * ((size_t)m.reach + 1)) * 8 +
               (size_t)m.narm * 2 * (size_t)m.width * lanes * 8 + sizeof(spx_rv_stencil) +
               ((1 + SPX_MAX_FIT * (SPX_MAX_FIT + 1)) * 8 + sizeof(item)) * (size_t)m.narm;
    if (m.nccf > 0 && m.most_ccf * sizeof(float2) > SPECTRUM_SHARED)
        n += (size_t)m.narm * m.most_ccf * sizeof(float2);
    if (m.nccf > 0)
        n += (m.nfreq * 4 + ((size_t)m.nccf + m.set.ntemp + 2) * m.set.nlag + 2 * m.set.ntemp + m.ccf_samples) * 4;
    return n;
}

size_t engine::exposure_bytes(const spx_rv_ctx *c, const device_plan &p)
{
    size_t n = (size_t)p.full.m.pixels * (8 + 8 + 1 + 8 + (c->opt->hook != nullptr ? 4 + 4 : 0)) +
               (size_t)p.coarse.m.pixels * (8 + 8);
    if (c->opt->resolution)
        n += (size_t)p.full.m.pixels * (8 + 4 * (size_t)p.full.m.nfree);
    for (size_t i = 0; i < c->narm && c->opt->resolution; i++)
        n += 2 * c->arm[i].n * c->arm[i].arm->ndiag * 8; /* of few, before they are matched, too */
    if (c->opt->epochs)
        n += 2 * (size_t)p.full.m.pixels * 8;
    if (c->opt->jitter)
        n += (3 * (size_t)p.full.m.pixels + 2 * spx_rv_misfit_bins(c)) * 8;
    return n + c->narm * sizeof(spx_rv_read);
}

void engine::load(size_t n, spx_rv_spectra *const *w)
{
    const bool fresh = n > 0 && !loaded(w[0]);
    if (fresh) {
        lay_out(n, w);
        send(full_.pieces, full_.piece.data(), full_.piece.size());
        read_.need(full_.piece.size());
    }
    for (size_t k0 = 0; k0 < n && (fresh || !w[0]->unread); k0 += STAGED)
        stage(std::min((size_t)STAGED, n - k0), w + k0);
    if (fresh)
        read(n, w);
    for (size_t k = 0; k < n; k++)
        for (size_t i = 0; i < w[k]->first[c_->narm]; i++)
            full_.piece[full_.slot[w[k]->slot].piece + i].sum_lne2 = w[k]->piece[i].sum_lne2;
    send(full_.pieces, full_.piece.data(), full_.piece.size());
    wait();
}

void engine::coarsen(size_t n, spx_rv_spectra *const *w)
{
    const spx_rv_ctx *c = w[0]->ctx;
    std::vector<int> from;
    size_t pixels = 0, slots = 0, longest = 0;
    for (size_t k = 0; k < n; k++)
        slots = std::max(slots, w[k]->slot + 1);
    coarse_.slot.assign(slots, {});
    coarse_.piece.clear();
    for (size_t k = 0; k < n; k++) {
        if (!spx_rv_coarse_pieces(w[k]))
            throw spx::failure("there is no memory for the pieces of a star");
        coarse_.slot[w[k]->slot].piece = coarse_.piece.size();
        for (size_t i = 0; i < w[k]->first[c->narm]; i++) {
            const size_t stride = c->arm[w[k]->piece[i].arm].stride;
            from.push_back((int)(full_.slot[w[k]->slot].piece + i));
            coarse_.piece.push_back({(int)w[k]->piece[i].arm, pixels, 0, 0});
            pixels += stride;
            longest = std::max(longest, stride);
        }
    }
    double *flux = coarse_.flux.need(pixels), *ie = coarse_.ie.need(pixels);
    const piece *pieces = send(coarse_.pieces, coarse_.piece.data(), coarse_.piece.size());
    coarsen_kernel<<<dim3((unsigned)from.size(), blocks(longest, 128)), 128, 0, stream_>>>(
        coarse_.m, send(at_, from.data(), from.size()), full_.pieces.get(), full_.flux.get(), full_.ie.get(), pieces,
        flux, ie);
    spx::check(cudaGetLastError(), "launch");
    wait(); /* for the lists, which are sent from here */
}

const float *engine::lags(size_t n, const int2 *ranges)
{
    const size_t nlag = full_.m.set.nlag, size = full_.m.nfreq * 4, narm = c_->narm;
    float *in = spectrum_.need(n * size), *out = lags_.need(n * (size_t)full_.m.nccf * nlag);
    const size_t buffer = full_.m.most_ccf * sizeof(float2);
    spectrum_kernel<<<dim3((unsigned)n, (unsigned)narm), SPECTRUM_THREADS, buffer <= SPECTRUM_SHARED ? buffer : 0,
                      stream_>>>(
        full_.m, send(ranges_, ranges, n * narm), full_.pieces.get(), full_.flux.get(), full_.ie.get(), good_.get(),
        model_.get(), buffer <= SPECTRUM_SHARED ? nullptr : transform_.need(n * narm * full_.m.most_ccf), in);
    float *samples = sample_.need(n * full_.m.ccf_samples);
    sample_kernel<<<dim3(blocks(widest_, SAMPLES), blocks(n * c_->ccf.ncomp, FEW_ROWS), (unsigned)narm), 256, 0,
                    stream_>>>(full_.m, (int)n, in, samples);
    lag_kernel<<<dim3(blocks(nlag, 128), (unsigned)full_.m.nccf, (unsigned)n), 128, 0, stream_>>>(full_.m, samples,
                                                                                                  out);
    spx::check(cudaGetLastError(), "launch");
    return out;
}

void engine::correlate(size_t n, spx_rv_spectra *const *w, spx_rv_candidates *candidates)
{
    const size_t nlag = full_.m.set.nlag;
    std::vector<int2> ranges;
    for (size_t k = 0; k < n; k++)
        for (size_t i = 0; i < c_->narm; i++)
            ranges.push_back(piece_range(w[k], w[k]->first[i], w[k]->first[i + 1]));
    const float *from = lags(n, ranges.data());
    float *chi = chi_.need(n * full_.m.set.ntemp * nlag), *best = best_.need(n * (nlag + full_.m.set.ntemp));
    int *entry = entry_.need(n * (nlag + full_.m.set.ntemp));
    spx_rv_candidates *starts = candidates_.need(n);
    entry_kernel<<<dim3(blocks(nlag, LAGS), blocks(full_.m.set.ntemp, ROWS), (unsigned)n), 256, 0, stream_>>>(
        full_.m, from, chi);
    clear(starts, n); /* arrays are longer than the starts that are found */
    candidates_kernel<<<(unsigned)n, 128, 0, stream_>>>(full_.m, chi, best, entry, best + n * nlag, entry + n * nlag,
                                                        starts);
    spx::check(cudaGetLastError(), "launch");
    spx_rv_candidates *found = host_candidates_.need(n);
    to_host(found, starts, n);
    wait();
    std::copy_n(found, n, candidates);
}

void engine::curves(size_t n, spx_rv_spectra *const *w, spx_rvfit *out)
{
    const size_t nlag = full_.m.set.nlag, narm = c_->narm;
    std::vector<int2> ranges; /* of each exposure of each star, a piece of each arm or none, */
    std::vector<float *> to;  /* whose curve goes there */
    std::vector<int> entries;
    for (size_t k = 0; k < n; k++) {
        const size_t begin = ranges.size() / narm;
        for (size_t i = 0; i < narm; i++)
            for (size_t j = w[k]->first[i]; j < w[k]->first[i + 1]; j++) {
                const size_t at = (begin + j - w[k]->first[i]) * narm + i;
                if (at >= to.size()) {
                    ranges.resize((at / narm + 1) * narm);
                    to.resize(ranges.size());
                }
                ranges[at] = piece_range(w[k], j, j + 1);
                to[at] = out->arm[c_->arm[i].index].ccf + w[k]->piece[j].exposure * nlag;
            }
        entries.resize(ranges.size() / narm, w[k]->ccf_entry);
    }
    for (size_t first = 0; first < entries.size(); first += n) { /* there is memory for n stars */
        const size_t some = std::min(n, entries.size() - first);
        const float *from = lags(some, &ranges[first * narm]);
        float *curve = chi_.need(some * narm * nlag), *result = host_float_.need(some * narm * nlag);
        curve_kernel<<<dim3(blocks(nlag, 128), (unsigned)narm, (unsigned)some), 128, 0, stream_>>>(
            full_.m, from, send(entry_, &entries[first], some), curve);
        spx::check(cudaGetLastError(), "launch");
        to_host(result, curve, some * narm * nlag);
        wait();
        for (size_t k = 0; k < some * narm; k++)
            if (to[first * narm + k] != nullptr)
                std::copy_n(result + k * nlag, nlag, to[first * narm + k]);
    }
}

void engine::eval(size_t n, spx_rv_spectra *const *w, const double (*x)[SPX_MAX_FIT], const size_t *const *cell,
                  spx_rv_value *out)
{
    observed &d = w[0]->of == nullptr ? full_ : coarse_;
    std::vector<item> items;
    std::vector<size_t> first(n + 1);
    double *v = host_velocity_.need(n);
    spx_rv_stencil *s = host_stencil_.need(n);
    for (size_t k = 0; k < n; k++) {
        first[k] = items.size();
        v[k] = x[k][0];
        for (size_t i = 0; i < w[k]->first[c_->narm]; i++)
            items.push_back({(int)k, (int)(d.slot[w[k]->slot].piece + i), x[k][0]});
    }
    first[n] = items.size();
#pragma omp parallel for num_threads(threads_) schedule(dynamic, 16) if (threads_ > 1 && n > few_)
    for (size_t k = 0; k < n; k++) { /* a star may have several points, one after another */
        spx_rv_stencil_at(w[k], x[k], cell != nullptr ? cell[k] : nullptr, 1, &s[k]);
        spx_rv_begin_value(w[k], x[k][0], &out[k]);
    }
    double *velocity = velocity_.need(n);
    to_device(velocity, v, n);
    make_templates(d, n, s, true, velocity, nullptr);
    if (c_->opt->resolution)
        resolve(d, n, w, items);
    const size_t nf = (size_t)d.m.nfree, width = 1 + nf + nf * nf;
    const double *r = sums(d, items, DERIVATIVES, width);
#pragma omp parallel for num_threads(threads_) schedule(dynamic, 16) if (threads_ > 1 && n > few_)
    for (size_t k = 0; k < n; k++) {
        for (size_t i = first[k]; i < first[k + 1]; i++) {
            const double *p = r + i * width;
            out[k].f += p[0];
            for (size_t j = 0; j < nf; j++)
                out[k].grad[j] += p[1 + j];
            for (size_t j = 0; j < nf * nf; j++)
                out[k].hess[j] += p[1 + nf + j];
        }
        if (!std::isfinite(out[k].f))
            out[k].f = HUGE_VAL;
    }
}

void engine::resolve(const observed &d, size_t n, spx_rv_spectra *const *w, std::vector<item> &items)
{
    std::vector<int> from; /* point of the templates of each point of resolved ones: exposures have one each */
    size_t i = 0, longest = 1;
    for (size_t k = 0; k < n; k++) {
        const size_t begin = from.size();
        for (size_t ia = 0; ia < c_->narm; ia++)
            for (size_t j = w[k]->first[ia]; j < w[k]->first[ia + 1]; j++, i++) {
                const size_t at = begin + j - w[k]->first[ia];
                from.resize(std::max(from.size(), at + 1), (int)k);
                items[i].at = (int)at;
                longest = std::max(longest, c_->arm[ia].n);
            }
    }
    const size_t pixels = (size_t)d.m.pixels;
    double *t = resolved_.need(from.size() * pixels);
    float *dt = resolved_dt_.need(from.size() * pixels * (size_t)d.m.nfree);
    const int *of = send(at_, from.data(), from.size());
    for (size_t first = 0; first < items.size(); first += ITEMS) {
        const size_t some = std::min(items.size() - first, (size_t)ITEMS);
        resolve_kernel<<<dim3((unsigned)some, blocks(longest, RESOLVED)), RESOLVED, resolve_shared(d.m.nfree),
                         stream_>>>(d.m, send(item_, items.data() + first, some), of, d.pieces.get(), band_.get(),
                                    t_.get(), dt_.get(), t, dt);
        spx::check(cudaGetLastError(), "launch");
    }
    wait(); /* for the lists, which are sent from here */
}

void engine::values(size_t n, spx_rv_spectra *const *w, const double (*x)[SPX_MAX_FIT], const size_t *first,
                    const double *v, double *f)
{
    templates_at(n, w, x);
    std::vector<item> items;
    for (size_t k = 0; k < n; k++) /* velocities of a piece side by side: they have their data in common */
        for (size_t j = 0; j < w[k]->first[c_->narm]; j++)
            for (size_t i = first[k]; i < first[k + 1]; i++)
                items.push_back({(int)w[k]->slot, piece_of(w[k], j), v[i]});
    const double *p = objectives(items);
    for (size_t k = 0; k < n; k++) {
        const size_t nv = first[k + 1] - first[k], npiece = w[k]->first[c_->narm];
        for (size_t i = 0; i < nv; i++) {
            spx_rv_value value;
            spx_rv_begin_value(w[k], v[first[k] + i], &value);
            for (size_t j = 0; j < npiece; j++)
                value.f += p[j * nv + i];
            f[first[k] + i] = std::isfinite(value.f) ? value.f : HUGE_VAL;
        }
        p += nv * npiece;
    }
}

void engine::scan(size_t n, spx_rv_spectra *const *w, const double (*x)[SPX_MAX_FIT])
{
    const size_t nv = c_->scan.n;
    std::vector<item> items;
    std::vector<double> v(nv);
    templates_at(n, w, x);
    for (size_t i = 0; i < nv; i++)
        v[i] = c_->lo[0] + (double)i * c_->scan.step;
    for (size_t k = 0; k < n; k++)
        for (size_t j = 0; has_lines(w[k]) && j < w[k]->first[c_->narm]; j++)
            items.push_back({(int)w[k]->slot, piece_of(w[k], j), 0});
    const double *p = scans(items);
    for (size_t k = 0; k < n; k++) {
        if (!has_lines(w[k]))
            continue;
        const size_t npiece = w[k]->first[c_->narm];
        for (size_t i = 0; i < nv; i++) {
            spx_rv_value value;
            spx_rv_begin_value(w[k], v[i], &value);
            for (size_t j = 0; j < npiece; j++)
                value.f += p[j * nv + i];
            w[k]->scan[i] = std::isfinite(value.f) ? value.f : HUGE_VAL;
        }
        p += npiece * nv;
    }
    scan_as_values(n, w, x, v);
}

void engine::models(size_t n, spx_rv_spectra *const *w, const double (*x)[SPX_MAX_FIT])
{
    templates_at(n, w, x);
    std::vector<item> items;
    for (size_t k = 0; k < n; k++)
        for (size_t j = 0; j < w[k]->first[c_->narm]; j++)
            items.push_back({(int)w[k]->slot, (int)(full_.slot[w[k]->slot].piece + j), x[k][0]});
    const double *r = sums(full_, items, CONTINUUM, 1);
    size_t i = 0;
    for (size_t k = 0; k < n; k++)
        for (size_t j = 0; j < w[k]->first[c_->narm]; j++)
            w[k]->piece[j].chisq_c = r[i++];
    r = sums(full_, items, MODEL, 1, model_.get());
    i = 0;
    for (size_t k = 0; k < n; k++)
        for (size_t j = 0; j < w[k]->first[c_->narm]; j++)
            w[k]->piece[j].chisq = r[i++];
    std::vector<spx_rv_spectra *> some;
    for (int unread = 0; unread < 2; unread++) {
        some.clear();
        for (size_t k = 0; k < n; k++)
            if (w[k]->unread == unread && (!unread || w[k]->piece[0].kept != nullptr))
                some.push_back(w[k]);
        if (!some.empty())
            unread ? kept_to_host(some.size(), some.data()) : models_to_host(some.size(), some.data());
    }
}

void engine::models_to_host(size_t n, spx_rv_spectra *const *w)
{
    size_t longest = 0;
    for (size_t k = 0; k < n; k++)
        longest = std::max(longest, full_.slot[w[k]->slot].pixels);
    for (size_t k0 = 0; k0 < n; k0 += STAGED) {
        const size_t k1 = std::min(n, k0 + STAGED);
        double *to = host_double_.need(STAGED * longest);
        for (size_t k = k0; k < k1; k++)
            to_host(to + (k - k0) * longest, model_.get() + full_.slot[w[k]->slot].pixel,
                    full_.slot[w[k]->slot].pixels);
        wait();
#pragma omp parallel for num_threads(threads_) schedule(dynamic, 4) if (threads_ > 1)
        for (size_t k = k0; k < k1; k++) {
            const double *from = to + (k - k0) * longest;
            for (size_t j = 0; j < w[k]->first[c_->narm]; j++) {
                const spx_rv_data &d = w[k]->piece[j];
                memcpy(d.model, from, c_->arm[d.arm].n * sizeof *from);
                from += c_->arm[d.arm].stride;
            }
        }
    }
}

void engine::kept_to_host(size_t n, spx_rv_spectra *const *w)
{
    /* stars are in the order of their slots, and so are their places */
    const size_t begin = full_.slot[w[0]->slot].pixel,
                 all = full_.slot[w[n - 1]->slot].pixel + full_.slot[w[n - 1]->slot].pixels - begin;
    float *single = dt_.need(all);
    keep_kernel<<<blocks(all, 256), 256, 0, stream_>>>(all, model_.get() + begin, single);
    spx::check(cudaGetLastError(), "launch");
    for (size_t k0 = 0; k0 < n; k0 += STAGED) {
        const size_t k1 = std::min(n, k0 + STAGED), first = full_.slot[w[k0]->slot].pixel;
        const size_t pixels = full_.slot[w[k1 - 1]->slot].pixel + full_.slot[w[k1 - 1]->slot].pixels - first;
        float *to = host_float_.need(pixels);
        to_host(to, single + (first - begin), pixels);
        wait();
#pragma omp parallel for num_threads(threads_) schedule(dynamic, 4) if (threads_ > 1)
        for (size_t k = k0; k < k1; k++)
            for (size_t j = 0; j < w[k]->first[c_->narm]; j++) {
                const spx_rv_data &d = w[k]->piece[j];
                memcpy(d.kept, to + (full_.piece[full_.slot[w[k]->slot].piece + j].pixel0 - first),
                       c_->arm[d.arm].n * sizeof *to);
            }
    }
}

void engine::shifted(size_t n, const spx_rv_shifts *s)
{
    size_t longest = 1;
    for (size_t k = 0; k < n; k++)
        longest = std::max(longest, s[k].n);
    const size_t most = std::max((size_t)1, (size_t)SCANS / longest);
    for (size_t k0 = 0; k0 < n; k0 += most) {
        const size_t k1 = std::min(n, k0 + most);
        std::vector<shifts> list;
        std::vector<int> pieces;
        size_t all = 0;
        for (size_t k = k0; k < k1; k++) {
            const int begin = (int)pieces.size();
            for (size_t i = 0; i < s[k].w->first[c_->narm]; i++)
                if (spx_rv_is_shifted(&s[k], i))
                    pieces.push_back((int)(full_.slot[s[k].w->slot].piece + i));
            list.push_back({begin, (int)pieces.size(), (unsigned)s[k].n, s[k].first, s[k].step, all});
            all += s[k].n;
        }
        const shifts *asked = send(shifts_, list.data(), list.size());
        const int *of = send(at_, pieces.data(), pieces.size());
        double *out = result_.need(all), *result = host_result_.need(all);
        shifted_kernel<<<dim3((unsigned)list.size(), blocks(longest, SHIFTS)), SHIFT_THREADS, 0, stream_>>>(
            full_.m, asked, of, full_.pieces.get(), full_.flux.get(), full_.ie.get(), good_.get(), model_.get(), out);
        spx::check(cudaGetLastError(), "launch");
        to_host(result, out, all);
        wait();
        for (size_t k = k0; k < k1; k++)
            std::copy_n(result + list[k - k0].out, s[k].n, s[k].chisq);
    }
}

void engine::inform(size_t n, const spx_rv_information *s)
{
    std::vector<spx_rv_spectra *> w;
    std::vector<double> x;
    std::vector<item> items;
    std::vector<informed> list;
    for (size_t k = 0; k < n; k++) {
        w.push_back(s[k].w);
        x.insert(x.end(), s[k].x, s[k].x + SPX_MAX_FIT);
        for (size_t j = 0; j < s[k].w->first[c_->narm]; j++) {
            items.push_back({(int)s[k].w->slot, piece_of(s[k].w, j), s[k].v});
            list.push_back({items.back().piece, s[k].half});
        }
    }
    templates_at(n, w.data(), reinterpret_cast<const double(*)[SPX_MAX_FIT]>(x.data()));
    const size_t m = items.size();
    std::vector<double> chisq[3]; /* left, right, in between */
    for (int side = 0; side < 3; side++) {
        std::vector<item> at = items;
        for (size_t i = 0; i < m; i++)
            at[i].v += side == 0 ? -list[i].half : (side == 1 ? list[i].half : 0);
        const double *r = sums(full_, at, MODEL, 1, side == 1 ? next_.get() : other_.get());
        chisq[side].assign(r, r + m);
        if (side == 1) {
            double2 *out = pairs_.need(m);
            inform_kernel<<<(unsigned)m, JITTER_THREADS, 0, stream_>>>(
                full_.m, send(informed_, list.data(), m), full_.pieces.get(), full_.ie.get(), good_.get(),
                c_->opt->jitter ? sigma_.get() : nullptr, other_.get(), next_.get(), out);
            spx::check(cudaGetLastError(), "launch");
            to_host(host_pairs_.need(m), out, m);
        }
    }
    size_t i = 0;
    for (size_t k = 0; k < n; k++)
        for (size_t j = 0; j < s[k].w->first[c_->narm]; j++, i++) {
            const bool known = chisq[0][i] < HUGE_VAL && chisq[1][i] < HUGE_VAL;
            s[k].piece[j][0] = known ? host_pairs_.get()[i].x : 0;
            s[k].piece[j][1] = known ? host_pairs_.get()[i].y : 0;
            s[k].piece[j][2] = known ? chisq[2][i] : 0;
        }
}

spx_status engine::call_hook(spx_hook *hook, int device, const spx_rvfit *out, size_t first, size_t n, spx_err *e)
{
    const size_t row0 = out->first[first], nrow = out->first[first + n] - row0;
    std::vector<hook_row> list;
    std::vector<size_t> begin(out->narm + 1), at(n);
    for (size_t a = 0; a < out->narm; a++)
        begin[a + 1] = begin[a] + (nrow * out->arm[a].nwave + 63) / 64 * 64; /* frameworks want it aligned */
    size_t longest = 1;
    for (size_t k = 0; k < n; k++) {
        const spx_rv_spectra *w = spx_rv_group_spectra(group_, k);
        at[k] = out->first[first + k] - row0;
        if (!loaded(w) || (out->star[first + k].warn & SPX_RVS_BAD) != 0)
            continue;
        for (size_t i = 0; i < w->first[c_->narm]; i++) {
            const spx_rv_data &d = w->piece[i];
            const size_t a = c_->arm[d.arm].index;
            list.push_back({(int)(full_.slot[k].piece + i), begin[a] + (d.exposure - row0) * out->arm[a].nwave});
            longest = std::max(longest, c_->arm[d.arm].n);
        }
    }
    float *residual = residual_.need(begin[out->narm]), *models = models_.need(begin[out->narm]);
    clear(residual, begin[out->narm]);
    spx::check(cudaMemsetAsync(models, 0, begin[out->narm] * sizeof *models, stream_), "models");
    const hook_row *pieces = send(hook_rows_, list.data(), list.size());
    for (size_t i = 0; i < list.size(); i += 65535) {
        const dim3 grid(blocks(longest, 128), (unsigned)std::min(list.size() - i, (size_t)65535));
        residual_kernel<<<grid, 128, 0, stream_>>>(full_.m, pieces + i, full_.pieces.get(), full_.flux.get(),
                                                   full_.ie.get(), good_.get(), model_.get(), residual, models);
        spx::check(cudaGetLastError(), "launch");
    }
    spx_rvfit here = *out;
    double *wavelength[SPX_MAX_ARM] = {nullptr};
    here.nstar = n;
    here.nrow = nrow;
    here.star = send(star_, out->star + first, n);
    here.first = send(first_, at.data(), n);
    here.row = send(row_, out->row + row0, nrow);
    for (size_t a = 0; a < out->narm; a++)
        here.arm[a].residual = here.arm[a].model = nullptr;
    for (size_t i = 0; i < c_->narm; i++) {
        const size_t a = c_->arm[i].index;
        here.arm[a].residual = residual + begin[a];
        here.arm[a].model = models + begin[a];
        wavelength[a] = send(wavelength_[a], c_->arm[i].arm->wavelength, out->arm[a].nwave);
    }
    const spx_status st = spx_rvfit_hook(hook, &here, wavelength, {device, stream_, spx::order}, e);
    const cudaError_t done = cudaStreamSynchronize(stream_);
    spx_hook_release(hook);
    spx::check(done, "hook");
    spx::check(cudaSetDevice(device), "device");
    return st;
}

void engine::begin(spx_rv_group *g)
{
    group_ = g;
    full_.slot.clear();
    full_.piece.clear();
}

template <typename T> void engine::to_device(T *to, const T *from, size_t n)
{
    spx::to_device += n * sizeof(T);
    spx::check(cudaMemcpyAsync(to, from, n * sizeof(T), cudaMemcpyHostToDevice, stream_), "copy to the device");
}

template <typename T> void engine::to_host(T *to, const T *from, size_t n)
{
    spx::to_host += n * sizeof(T);
    spx::check(cudaMemcpyAsync(to, from, n * sizeof(T), cudaMemcpyDeviceToHost, stream_), "copy from the device");
}

template <typename T> T *engine::send(spx::device_buffer<T> &to, const T *from, size_t n)
{
    T *p = to.need(n);
    to_device(p, from, n);
    return p;
}

/* Calls f(n) with n, clamped to LOW..HIGH, as a constant: kernels are compiled for each. */
template <int LOW, int HIGH, typename F> static void with_constant(int n, F f)
{
    if constexpr (LOW < HIGH) {
        if (n > LOW) {
            with_constant<LOW + 1, HIGH>(n, f);
            return;
        }
    }
    f(std::integral_constant<int, LOW>());
}

/* Calls f with the tiles of eight that functions of a span and the data need. */
template <typename F> static void with_tiles(const model &m, F f)
{
    with_constant<1, 5>(basis_tiles(m), f);
}

/* Calls f with the number of derivatives that are broadened. */
template <typename F> static void with_broadened(int n, F f)
{
    with_constant<0, 7>(n, f);
}

/* Sums of a model have so much shared memory. */
template <int T> void engine::allow(const model &m)
{
    const size_t band = (size_t)std::max(m.basis_band, full_.m.basis_band);
    constexpr int W = pixel_warps(T);
    for (auto kernel : {pixel_kernel<T, false, W>, pixel_kernel<T, true, W>})
        spx::check(spx::allow_shared(kernel, pixel_shared(T, W, full_.m.npoly, (int)band)), "kernel");
    spx::check(spx::allow_shared(pixel_kernel<T, true, PARTS>, pixel_shared(T, PARTS, full_.m.npoly, (int)band)),
               "kernel");
    for (auto kernel : {value_kernel<T, false>, value_kernel<T, true>})
        spx::check(spx::allow_shared(kernel, value_bytes()), "kernel");
}

void engine::shared_limits()
{
    for (const model *m : {&full_.m, &coarse_.m})
        if (m->narm > 0)
            with_tiles(*m, [&](auto tiles) { allow<tiles>(*m); });
    spx::check(spx::allow_shared(spectrum_kernel, SPECTRUM_SHARED), "kernel");
    spx::check(spx::allow_shared(resolve_kernel, resolve_shared(full_.m.nfree)), "kernel");
    for (int n : {0, full_.m.nbroadened, coarse_.m.nbroadened})
        with_broadened(
            n, [](auto nb) { spx::check(spx::allow_shared(resample_kernel<nb>, resample_shared(nb)), "kernel"); });
}

void engine::lay_out(size_t n, spx_rv_spectra *const *w)
{
    size_t pixels = 0, bands = 0, slots = 0;
    for (size_t k = 0; k < n; k++)
        slots = std::max(slots, w[k]->slot + 1);
    full_.slot.assign(slots, {});
    full_.piece.clear();
    for (size_t k = 0; k < n; k++) {
        place &p = full_.slot[w[k]->slot];
        p = {full_.piece.size(), pixels, 0, bands, true, false, {}};
        for (size_t i = 0; i < w[k]->first[c_->narm]; i++) {
            const spx_rv_data &d = w[k]->piece[i];
            const spx_rv_arm &a = c_->arm[d.arm];
            full_.piece.push_back({(int)d.arm, pixels, bands, d.sum_lne2});
            pixels += a.stride;
            bands += c_->opt->resolution ? a.n * a.arm->ndiag : 0;
        }
        p.pixels = pixels - p.pixel;
    }
    full_.flux.need(pixels);
    full_.ie.need(pixels);
    good_.need(pixels);
    clear(model_.need(pixels), pixels); /* strides are longer than models */
    if (c_->opt->resolution)
        band_.need(bands);
    if (c_->opt->jitter) {
        sigma_.need(pixels);
        level_.need(pixels);
    }
    if (c_->opt->jitter || c_->opt->epochs)
        other_.need(pixels);
    if (c_->opt->epochs)
        next_.need(pixels);
    knots_.need(slots * (size_t)full_.m.samples);
}

void engine::stage(size_t n, spx_rv_spectra *const *w)
{
    std::vector<size_t> begin(n + 1), band(n + 1);
    for (size_t k = 0; k < n; k++) {
        begin[k + 1] = begin[k] + full_.slot[w[k]->slot].pixels;
        band[k + 1] = band[k];
        for (size_t i = 0; i < w[k]->first[c_->narm] && c_->opt->resolution; i++)
            band[k + 1] += c_->arm[w[k]->piece[i].arm].n * c_->arm[w[k]->piece[i].arm].arm->ndiag;
    }
    wait();
    /* errors without a jitter go there, too; read_kernel() has those of stars that it reads */
    const bool noise = c_->opt->jitter && !w[0]->unread;
    double *flux = host_double_.need((noise ? 3 : 2) * begin[n] + band[n]), *ie = flux + begin[n],
           *rows = ie + (noise ? 2 : 1) * begin[n], *sigma = ie + begin[n];
    uint8_t *good = host_byte_.need(begin[n]);
#pragma omp parallel for num_threads(threads_) schedule(dynamic, 4) if (threads_ > 1)
    for (size_t k = 0; k < n; k++) {
        size_t at = begin[k], diagonal = band[k];
        for (size_t i = 0; i < w[k]->first[c_->narm]; i++) {
            const spx_rv_data &d = w[k]->piece[i];
            const spx_rv_arm &a = c_->arm[d.arm];
            const size_t row = w[k]->unread ? spx_rv_row(c_, d.exposure) * a.n : 0;
            const uint32_t *mask = w[k]->unread && a.arm->mask != nullptr ? a.arm->mask + row : nullptr;
            memcpy(flux + at, w[k]->unread ? a.arm->flux + row : d.flux, a.n * sizeof *flux);
            memcpy(ie + at, w[k]->unread ? a.arm->ivar + row : d.ie, a.n * sizeof *ie);
            memset(flux + at + a.n, 0, (a.stride - a.n) * sizeof *flux);
            memset(ie + at + a.n, 0, (a.stride - a.n) * sizeof *ie);
            if (noise) {
                memcpy(sigma + at, d.sigma, a.n * sizeof *sigma);
                memset(sigma + at + a.n, 0, (a.stride - a.n) * sizeof *sigma);
            }
            memset(good + at, 0, a.stride);
            if (!w[k]->unread)
                memcpy(good + at, d.good, a.n);
            for (size_t p = 0; mask != nullptr && p < a.n; p++)
                good[at + p] = mask[p] != 0;
            at += a.stride;
            if (c_->opt->resolution) {
                memcpy(rows + diagonal, w[k]->unread ? a.arm->resolution + row * a.arm->ndiag : d.band,
                       a.n * a.arm->ndiag * sizeof *rows);
                diagonal += a.n * a.arm->ndiag;
            }
        }
    }
    /* stars whose places follow each other go together */
    for (size_t k = 0; k < n;) {
        size_t end = k + 1;
        while (end < n && full_.slot[w[end]->slot].pixel ==
                              full_.slot[w[end - 1]->slot].pixel + full_.slot[w[end - 1]->slot].pixels)
            end++;
        const place &p = full_.slot[w[k]->slot];
        to_device(full_.flux.get() + p.pixel, flux + begin[k], begin[end] - begin[k]);
        to_device(full_.ie.get() + p.pixel, ie + begin[k], begin[end] - begin[k]);
        to_device(good_.get() + p.pixel, good + begin[k], begin[end] - begin[k]);
        if (noise)
            to_device(sigma_.get() + p.pixel, sigma + begin[k], begin[end] - begin[k]);
        if (c_->opt->resolution && !w[k]->unread)
            to_device(band_.get() + p.band, rows + band[k], band[end] - band[k]);
        k = end;
    }
    if (c_->opt->resolution && w[0]->unread)
        match(n, w, rows, band[n]);
}

void engine::match(size_t n, spx_rv_spectra *const *w, const double *rows, size_t elements)
{
    const place &first = full_.slot[w[0]->slot], &last = full_.slot[w[n - 1]->slot];
    const size_t pieces = last.piece + w[n - 1]->first[c_->narm] - first.piece;
    band_kernel<<<(unsigned)pieces, BAND_THREADS, 0, stream_>>>(full_.m, (int)first.piece, full_.pieces.get(),
                                                                send(raw_, rows, elements), first.band, band_.get(),
                                                                model_.get(), read_.get());
    spx::check(cudaGetLastError(), "launch");
}

void engine::read(size_t n, spx_rv_spectra *const *w)
{
    std::vector<int> list;
    for (size_t k = 0; k < n; k++)
        for (size_t i = 0; w[k]->unread && i < w[k]->first[c_->narm]; i++)
            list.push_back((int)(full_.slot[w[k]->slot].piece + i));
    if (list.empty())
        return;
    spx_rv_read *all = host_read_.need(full_.piece.size());
    read_kernel<<<(unsigned)list.size(), READ_THREADS, 0, stream_>>>(
        full_.m, send(at_, list.data(), list.size()), full_.pieces.get(), full_.flux.get(), full_.ie.get(), good_.get(),
        sigma_.get(), level_.get(), read_.get());
    spx::check(cudaGetLastError(), "launch");
    to_host(all, read_.get(), full_.piece.size());
    wait();
    for (size_t k = 0; k < n; k++) {
        const size_t first = full_.slot[w[k]->slot].piece, many = w[k]->unread ? w[k]->first[c_->narm] : 0;
        const spx_rv_read *r = all + first;
        rv::piece *p = &full_.piece[first];
        for (size_t i = 0, used = 0; i < many; i++)
            if (r[i].bad == SPX_RVFIT_GOOD)
                p[used++] = p[i];
        if (many > 0)
            spx_rv_take_read(w[k], r);
    }
    if (c_->opt->jitter)
        given_jitter(n, w);
}

void engine::given_jitter(size_t n, spx_rv_spectra *const *w)
{
    std::vector<jittered> list;
    std::vector<spx_rv_data *> of;
    for (size_t k = 0; k < n; k++)
        for (size_t i = 0; w[k]->unread && i < w[k]->first[c_->narm]; i++) {
            spx_rv_data *d = &w[k]->piece[i];
            if (w[k]->jitter[d->arm] > 0) {
                of.push_back(d);
                list.push_back({(int)(full_.slot[w[k]->slot].piece + i), d->large, w[k]->jitter[d->arm]});
            }
        }
    if (list.empty())
        return;
    send(full_.pieces, full_.piece.data(), full_.piece.size());
    const double *sum = errors(list);
    for (spx_rv_data *d : of)
        d->sum_lne2 = *sum++;
}

const double *engine::errors(const std::vector<jittered> &list)
{
    double *out = result_.need(list.size()), *result = host_result_.need(list.size());
    if (list.empty())
        return result;
    error_kernel<<<(unsigned)list.size(), JITTER_THREADS, 0, stream_>>>(
        full_.m, send(jittered_, list.data(), list.size()), full_.pieces.get(), good_.get(), sigma_.get(), level_.get(),
        full_.ie.get(), out);
    spx::check(cudaGetLastError(), "launch");
    to_host(result, out, list.size());
    wait();
    return result;
}

void engine::jitter(size_t n, spx_rv_spectra *const *w, size_t *changed)
{
    std::vector<arm_of_star> arms;
    std::vector<int> pieces;
    for (size_t k = 0; k < n; k++)
        for (size_t ia = 0; ia < c_->narm; ia++) {
            if (!spx_rv_is_jitter_fitted(w[k], ia))
                continue;
            const int begin = (int)pieces.size();
            for (size_t i = w[k]->first[ia]; i < w[k]->first[ia + 1]; i++)
                if (w[k]->piece[i].chisq < HUGE_VAL)
                    pieces.push_back((int)(full_.slot[w[k]->slot].piece + i));
            arms.push_back({begin, (int)pieces.size(), spx_rv_freedom_taken(w[k], ia)});
        }
    double2 *out = pairs_.need(arms.size()), *best = host_pairs_.need(arms.size());
    if (!arms.empty()) {
        jitter_kernel<<<(unsigned)arms.size(), JITTER_THREADS, 0, stream_>>>(
            full_.m, send(arms_, arms.data(), arms.size()), send(at_, pieces.data(), pieces.size()), full_.pieces.get(),
            full_.flux.get(), model_.get(), good_.get(), sigma_.get(), level_.get(), out);
        spx::check(cudaGetLastError(), "launch");
        to_host(best, out, arms.size());
    }
    wait();
    std::vector<jittered> list;
    std::vector<spx_rv_data *> of;
    for (size_t k = 0; k < n; k++) {
        changed[k] = 0;
        for (size_t ia = 0; ia < c_->narm; ia++) {
            if (!spx_rv_is_jitter_fitted(w[k], ia))
                continue;
            const double2 b = *best++;
            if (!spx_rv_take_jitter(w[k], ia, b.x, b.y))
                continue;
            changed[k]++;
            for (size_t i = w[k]->first[ia]; i < w[k]->first[ia + 1]; i++) {
                of.push_back(&w[k]->piece[i]);
                list.push_back({(int)(full_.slot[w[k]->slot].piece + i), of.back()->large, w[k]->jitter[ia]});
            }
        }
    }
    const double *sum = errors(list);
    for (spx_rv_data *d : of)
        d->sum_lne2 = *sum++;
}

void engine::keep_models(size_t n, spx_rv_spectra *const *w)
{
    /* stars are in the order of their slots, and so are their places */
    const place &first = full_.slot[w[0]->slot], &last = full_.slot[w[n - 1]->slot];
    spx::check(cudaMemcpyAsync(other_.get() + first.pixel, model_.get() + first.pixel,
                               (last.pixel + last.pixels - first.pixel) * sizeof(double), cudaMemcpyDeviceToDevice,
                               stream_),
               "models");
}

void engine::misfit(size_t n, spx_rv_shared_misfit *s)
{
    std::vector<shared_misfit> list;
    size_t scores = 0;
    for (size_t k = 0; k < n; k++) {
        const int begin = (int)full_.slot[s[k].w->slot].piece;
        list.push_back({begin, begin + (int)s[k].w->first[c_->narm], s[k].is_velocity, s[k].first, s[k].up, s[k].down,
                        s[k].ln0, s[k].bin, s[k].free, s[k].length, s[k].bins, scores});
        scores += 2 * s[k].bins;
    }
    double2 *out = pairs_.need(n), *result = host_pairs_.need(n);
    misfit_kernel<<<(unsigned)n, JITTER_THREADS, 0, stream_>>>(
        full_.m, send(misfits_, list.data(), n), full_.pieces.get(), full_.flux.get(), full_.ie.get(), good_.get(),
        sigma_.get(), level_.get(), model_.get(), other_.get(), score_.need(scores), out);
    spx::check(cudaGetLastError(), "launch");
    to_host(result, out, n);
    wait();
    for (size_t k = 0; k < n; k++) {
        s[k].length = result[k].x;
        s[k].factor = result[k].y;
    }
}

void engine::reject(size_t n, spx_rv_spectra *const *w, double sigma, size_t *found)
{
    std::vector<rejection> list;
    std::vector<spx_rv_rejected> none;
    for (size_t k = 0; k < n; k++)
        for (size_t i = 0; i < w[k]->first[c_->narm]; i++)
            if (w[k]->piece[i].chisq < HUGE_VAL)
                list.push_back({(int)(full_.slot[w[k]->slot].piece + i), w[k]->piece[i].large});
    spx_rv_rejected *there = rejected_.need(list.size()), *r = host_rejected_.need(list.size());
    if (!list.empty()) {
        reject_kernel<<<(unsigned)list.size(), READ_THREADS, 0, stream_>>>(
            full_.m, sigma, send(rejections_, list.data(), list.size()), full_.pieces.get(), model_.get(),
            full_.flux.get(), full_.ie.get(), good_.get(), there);
        spx::check(cudaGetLastError(), "launch");
        to_host(r, there, list.size());
    }
    wait();
    for (size_t k = 0; k < n; k++) {
        none.assign(w[k]->first[c_->narm], {});
        for (size_t i = 0; i < w[k]->first[c_->narm]; i++)
            if (w[k]->piece[i].chisq < HUGE_VAL)
                none[i] = *r++;
        found[k] = spx_rv_take_rejected(w[k], none.data());
    }
}

template <int L>
void engine::templates_of(const observed &d, size_t n, const spx_rv_stencil *s, float *single, double *large,
                          double *rotation, double *work, double *flux, float *slope)
{
    const unsigned narm = (unsigned)d.m.narm, tiles = (unsigned)d.tiles;
    bool bare = false;
    for (size_t i = 0; i < c_->narm; i++)
        bare = bare || c_->arm[i].comp == nullptr;
    coefficient_kernel<L><<<dim3((unsigned)n, narm), THREADS, 0, stream_>>>(d.m, s, single, large, rotation, work);
    component_kernel<L><<<dim3(tiles, blocks(n, POINTS), narm), COMPONENT_THREADS, 0, stream_>>>(d.m, (int)n, single,
                                                                                                 large, flux, slope);
    if (bare)
        template_kernel<L><<<dim3(tiles, (unsigned)n, narm), 128, 0, stream_>>>(d.m, s, flux, slope);
}

void engine::make_templates(const observed &d, size_t n, const spx_rv_stencil *from, bool deriv, const double *velocity,
                            const int *slot)
{
    const model &m = d.m;
    const size_t narm = (size_t)m.narm, samples = (size_t)m.samples, pixels = (size_t)m.pixels;
    const int lanes = deriv ? m.lanes : 1;
    const spx_rv_stencil *s = send(stencil_, from, n);
    float *single = single_.need((n + POINTS - 1) / POINTS * POINTS * (size_t)m.ncomp * LANES);
    double *large = large_.need(n * narm * SPX_RV_LARGE);
    double *rotation = rotation_.need(n * narm * 2 * ((size_t)m.reach + 1));
    double *work = work_.need(n * narm * 2 * (size_t)m.width * (size_t)m.lanes);
    double *flux = template_.need(n * samples);
    float *slope = slope_.need(n * samples * (size_t)m.ng);
    double *t = nullptr;
    float *dt = nullptr;
    if (deriv) {
        t = t_.need(n * pixels);
        dt = dt_.need(n * pixels * (size_t)m.nfree);
    }
    with_constant<1, 7>(lanes, [&](auto nl) { templates_of<nl>(d, n, s, single, large, rotation, work, flux, slope); });
    with_broadened(deriv ? m.nbroadened : 0, [&](auto nb) {
        resample_kernel<nb>
            <<<dim3(blocks((size_t)d.tiles * COLUMNS, KNOTS), (unsigned)n, (unsigned)narm), 128, resample_shared(nb),
               stream_>>>(m, deriv, s, velocity, flux, slope, rotation, t, dt, slot, knots_.get());
    });
    spx::check(cudaGetLastError(), "launch");
}

void engine::templates_at(size_t n, spx_rv_spectra *const *w, const double (*x)[SPX_MAX_FIT])
{
    size_t m = 0;
    spx_rv_stencil *s = host_stencil_.need(n);
    int *slot = host_int_.need(n);
    for (size_t k = 0; k < n; k++) {
        place &p = full_.slot[w[k]->slot];
        /* the prior, too, is that of the last point that was looked at */
        spx_rv_stencil_at(w[k], x[k], nullptr, 0, &s[m]);
        if (p.has_templates && memcmp(p.at + 1, x[k] + 1, (c_->nq - 1) * sizeof *p.at) == 0)
            continue; /* they are the same at all velocities */
        memcpy(p.at, x[k], sizeof p.at);
        p.has_templates = true;
        slot[m++] = (int)w[k]->slot;
    }
    if (m == 0)
        return;
    int *at = at_.need(m);
    to_device(at, slot, m);
    make_templates(full_, m, s, false, nullptr, at);
}

void engine::scan_as_values(size_t n, spx_rv_spectra *const *w, const double (*x)[SPX_MAX_FIT],
                            const std::vector<double> &v)
{
    std::vector<spx_rv_spectra *> who;
    std::vector<double> at, all, f;
    std::vector<size_t> first = {0};
    for (size_t k = 0; k < n; k++)
        if (!has_lines(w[k])) {
            who.push_back(w[k]);
            at.insert(at.end(), x[k], x[k] + SPX_MAX_FIT);
            all.insert(all.end(), v.begin(), v.end());
            first.push_back(all.size());
        }
    if (who.empty())
        return;
    f.resize(all.size());
    values(who.size(), who.data(), reinterpret_cast<const double(*)[SPX_MAX_FIT]>(at.data()), first.data(), all.data(),
           f.data());
    for (size_t k = 0; k < who.size(); k++)
        std::copy(f.begin() + (ptrdiff_t)first[k], f.begin() + (ptrdiff_t)first[k + 1], who[k]->scan);
}

bool engine::has_lines(const spx_rv_spectra *w) const
{
    bool all = !c_->opt->resolution || (full_.m.scan_window > 0 && full_.m.scan_window <= 8);
    for (size_t j = 0; j < w->first[c_->narm]; j++) {
        const spx_rv_arm &a = c_->arm[w->piece[j].arm];
        all = all && a.lines.per > 0 && a.ndiag <= SCAN_DIAGONALS;
    }
    return all;
}

template <int PER> void engine::launch_scan(size_t n, const item *items, double *out)
{
    const size_t bytes = scan_shared(full_.m.scan_entries);
    spx::check(spx::allow_shared(scan_kernel<PER>, bytes), "kernel");
    scan_kernel<PER><<<dim3((unsigned)n, blocks(c_->scan.n, 32)), 32 * SCAN_WARPS, bytes, stream_>>>(
        full_.m, items, full_.pieces.get(), full_.flux.get(), full_.ie.get(), knots_.get(), out);
}

template <int W, int ND> void engine::launch_narrow_scan(size_t n, const item *items, double *out)
{
    narrow_scan_kernel<W, ND><<<dim3((unsigned)n, blocks(c_->scan.n, NARROW)), NARROW, 0, stream_>>>(
        full_.m, items, full_.pieces.get(), full_.flux.get(), full_.ie.get(), band_.get(), knots_.get(), out);
}

const double *engine::scans(const std::vector<item> &items)
{
    const size_t n = items.size(), nv = c_->scan.n, most = std::max((size_t)1, (size_t)SCANS / nv);
    item *from = host_item_.need(n);
    double *result = host_objective_.need(n * nv);
    std::copy(items.begin(), items.end(), from);
    for (size_t i = 0; i < n; i += most) {
        const size_t some = std::min(n - i, most);
        item *list = item_.need(some);
        double *out = result_.need(some * nv);
        to_device(list, from + i, some);
        const int entries = full_.m.scan_entries, wide = full_.m.scan_window;
        if (c_->opt->resolution)
            wide <= 5 ? launch_narrow_scan<5, SCAN_DIAGONALS>(some, list, out)
                      : launch_narrow_scan<8, SCAN_DIAGONALS>(some, list, out);
        else if (wide > 0 && wide <= 5)
            launch_narrow_scan<5, 0>(some, list, out);
        else if (wide == 6)
            launch_narrow_scan<6, 0>(some, list, out);
        else if (wide == 7 || wide == 8)
            launch_narrow_scan<8, 0>(some, list, out);
        else if (entries <= 9 * SCAN_WARPS)
            launch_scan<9>(some, list, out);
        else if (entries <= 20 * SCAN_WARPS)
            launch_scan<20>(some, list, out);
        else if (entries <= 40 * SCAN_WARPS)
            launch_scan<40>(some, list, out);
        else
            launch_scan<70>(some, list, out);
        spx::check(cudaGetLastError(), "launch");
        to_host(result + i * nv, out, some * nv);
    }
    wait();
    return result;
}

size_t engine::value_bytes() const
{
    return WARPS * value_size(full_.m.npoly, full_.m.basis_band) * sizeof(double);
}

template <int T> void engine::launch_values(size_t n, const item *items, double *out)
{
    const double *band = c_->opt->resolution ? band_.get() : nullptr;
    const auto kernel = band == nullptr ? value_kernel<T, true> : value_kernel<T, false>;
    kernel<<<blocks(n, WARPS), 32 * WARPS, value_bytes(), stream_>>>(
        full_.m, (int)n, items, full_.pieces.get(), full_.flux.get(), full_.ie.get(), band, knots_.get(), out);
}

const double *engine::objectives(const std::vector<item> &items)
{
    const size_t n = items.size();
    item *from = host_item_.need(n);
    double *result = host_objective_.need(n);
    std::copy(items.begin(), items.end(), from);
    for (size_t i = 0; i < n; i += ITEMS) {
        const size_t some = std::min(n - i, (size_t)ITEMS);
        item *list = item_.need(some);
        double *out = result_.need(some);
        to_device(list, from + i, some);
        with_tiles(full_.m, [&](auto tiles) { launch_values<tiles>(some, list, out); });
        spx::check(cudaGetLastError(), "launch");
        to_host(result + i, out, some);
    }
    wait();
    std::vector<item> others;
    for (size_t i = 0; i < n; i++)
        if (std::isnan(result[i]))
            others.push_back(items[i]);
    if (!others.empty()) {
        const double *r = sums(full_, others, VALUE, 1);
        for (size_t i = 0; i < n; i++)
            if (std::isnan(result[i]))
                result[i] = *r++;
    }
    return result;
}

template <int T>
void engine::launch(const observed &d, size_t n, int mode, const item *items, double *out, double *models)
{
    const bool resolution = c_->opt->resolution, derived = mode == DERIVATIVES, few = derived && n * PARTS <= FEW_WARPS;
    const int warps = few ? (int)PARTS : pixel_warps(T);
    const auto kernel = few       ? pixel_kernel<T, true, PARTS>
                        : derived ? pixel_kernel<T, true, pixel_warps(T)>
                                  : pixel_kernel<T, false, pixel_warps(T)>;
    kernel<<<(unsigned)n, 32 * warps, pixel_shared(T, warps, d.m.npoly, d.m.basis_band), stream_>>>(
        d.m, mode, items, d.pieces.get(), d.flux.get(), d.ie.get(), good_.get(), resolution ? band_.get() : nullptr,
        knots_.get(), resolution ? resolved_.get() : t_.get(), resolution ? resolved_dt_.get() : dt_.get(), out,
        models);
}

const double *engine::sums(const observed &d, const std::vector<item> &items, int mode, size_t width, double *models)
{
    const size_t n = items.size();
    item *from = host_item_.need(n);
    double *result = host_result_.need(n * width);
    std::copy(items.begin(), items.end(), from);
    for (size_t i = 0; i < n; i += ITEMS) {
        const size_t some = std::min(n - i, (size_t)ITEMS);
        item *list = item_.need(some);
        double *out = result_.need(some * width);
        to_device(list, from + i, some);
        with_tiles(d.m, [&](auto tiles) { launch<tiles>(d, some, mode, list, out, models); });
        spx::check(cudaGetLastError(), "launch");
        to_host(result + i * width, out, some * width);
    }
    wait();
    return result;
}

namespace
{

engine *engine_of(void *state)
{
    return static_cast<engine *>(state);
}

template <typename F> spx_status step(spx_err *e, F f)
{
    return spx::guarded("rvfit", e, [&] {
        f();
        return SPX_OK;
    });
}

spx_status engine_load(void *state, size_t n, spx_rv_spectra *const *w, spx_err *e)
{
    return step(e, [&] { engine_of(state)->load(n, w); });
}

spx_status engine_correlate(void *state, size_t n, spx_rv_spectra *const *w, spx_rv_candidates *candidates, spx_err *e)
{
    return step(e, [&] { engine_of(state)->correlate(n, w, candidates); });
}

spx_status engine_curves(void *state, size_t n, spx_rv_spectra *const *w, spx_rvfit *out, spx_err *e)
{
    return step(e, [&] { engine_of(state)->curves(n, w, out); });
}

spx_status engine_eval(void *state, size_t n, spx_rv_spectra *const *w, const double (*x)[SPX_MAX_FIT],
                       const size_t *const *cell, spx_rv_value *out, spx_err *e)
{
    return step(e, [&] { engine_of(state)->eval(n, w, x, cell, out); });
}

spx_status engine_values(void *state, size_t n, spx_rv_spectra *const *w, const double (*x)[SPX_MAX_FIT],
                         const size_t *first, const double *v, double *f, spx_err *e)
{
    return step(e, [&] { engine_of(state)->values(n, w, x, first, v, f); });
}

spx_status engine_scan(void *state, size_t n, spx_rv_spectra *const *w, const double (*x)[SPX_MAX_FIT], spx_err *e)
{
    return step(e, [&] { engine_of(state)->scan(n, w, x); });
}

spx_status engine_models(void *state, size_t n, spx_rv_spectra *const *w, const double (*x)[SPX_MAX_FIT], spx_err *e)
{
    return step(e, [&] { engine_of(state)->models(n, w, x); });
}

spx_status engine_reject(void *state, size_t n, spx_rv_spectra *const *w, double sigma, size_t *found, spx_err *e)
{
    return step(e, [&] { engine_of(state)->reject(n, w, sigma, found); });
}

spx_status engine_jitter(void *state, size_t n, spx_rv_spectra *const *w, size_t *changed, spx_err *e)
{
    return step(e, [&] { engine_of(state)->jitter(n, w, changed); });
}

spx_status engine_keep_models(void *state, size_t n, spx_rv_spectra *const *w, spx_err *e)
{
    return step(e, [&] { engine_of(state)->keep_models(n, w); });
}

spx_status engine_misfit(void *state, size_t n, spx_rv_shared_misfit *s, spx_err *e)
{
    return step(e, [&] { engine_of(state)->misfit(n, s); });
}

spx_status engine_shifted(void *state, size_t n, const spx_rv_shifts *s, spx_err *e)
{
    return step(e, [&] { engine_of(state)->shifted(n, s); });
}

spx_status engine_inform(void *state, size_t n, const spx_rv_information *s, spx_err *e)
{
    return step(e, [&] { engine_of(state)->inform(n, s); });
}

spx_status engine_coarsen(void *state, size_t n, spx_rv_spectra *const *w, spx_err *e)
{
    return step(e, [&] { engine_of(state)->coarsen(n, w); });
}

} // namespace

spx_rv_engine engine_table(engine *e, int threads, size_t together)
{
    return {e,
            threads,
            together,
            1,
            engine_load,
            engine_correlate,
            engine_curves,
            engine_eval,
            engine_values,
            engine_scan,
            engine_models,
            engine_reject,
            engine_jitter,
            engine_keep_models,
            engine_misfit,
            engine_shifted,
            engine_inform,
            engine_coarsen,
            e->fill()};
}

} // namespace rv
