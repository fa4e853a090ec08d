/* The velocity fit on CUDA devices: the engine that the logic of search/group.c asks, and the batch, which is shared
 * out in groups of stars among devices and a few threads of the host each, so that what the host does of one group
 * (reading the data, choosing steps) falls beside the device's work for others. */
#include "rvfit/cuda/lend.cuh"

#include <omp.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstring>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

using namespace rv;

namespace
{

enum {
    WORKERS = 6,       /* groups that a device works on at a time */
    GROUP = 256,       /* stars of one, at most, */
    LEAST_GROUP = 32,  /* and at least, where there are as many */
    STAGED = 64,       /* stars whose data go to the device in one piece */
    ITEMS = 1 << 16,   /* sums over pixels of one launch */
    ROUNDING = 1 << 25 /* bytes that a worker's pieces of memory are together larger than what was asked for */
};

/* Page-locked host memory of n elements, which grows. */
template <typename T> class pinned
{
  public:
    pinned() = default;
    pinned(const pinned &) = delete;
    pinned &operator=(const pinned &) = delete;
    ~pinned()
    {
        (void)cudaFreeHost(p_);
    }
    T *need(size_t n)
    {
        if (n > n_) {
            (void)cudaFreeHost(p_);
            p_ = nullptr;
            n_ = 0;
            spx::check(cudaMallocHost(reinterpret_cast<void **>(&p_), n * sizeof(T)), "page-locked memory");
            n_ = n;
        }
        return p_;
    }
    T *get() const
    {
        return p_;
    }

  private:
    T *p_ = nullptr;
    size_t n_ = 0;
};

/* Device memory that grows; what was in it is lost. */
template <typename T> class room
{
  public:
    T *need(size_t n)
    {
        if (n > n_) {
            n_ = 0;
            a_ = spx::array<T>();
            a_ = spx::array<T>(n);
            n_ = n;
        }
        return a_.get();
    }
    T *get() const
    {
        return a_.get();
    }

  private:
    spx::array<T> a_;
    size_t n_ = 0;
};

/* ---- what all stars share ---- */

/* What the lags of an arm need of the inverse transform, which is cyclic: n samples from `first` on, and of those each
 * lag the four from at[] on. */
struct lag_samples {
    size_t first, n;
    std::vector<int> at;
};

lag_samples lag_window(const spx_rv_arm &a, size_t nlag)
{
    lag_samples w = {a.lag_at[0], 4, std::vector<int>(nlag)};
    for (size_t j = 0; j < nlag; j++) {
        w.at[j] = (int)((a.lag_at[j] - w.first) & (a.nshort - 1)); /* nshort is a power of two */
        w.n = std::min(a.nshort, std::max(w.n, (size_t)w.at[j] + 4));
    }
    return w;
}

/* Those samples as functions of the spectrum: the response of sample j to the real and imaginary part of frequency i,
 * [2 nfreq][n]. */
std::vector<float> response_of(const spx_rv_arm &a, const lag_samples &w)
{
    const size_t ns = a.nshort, nf = ns / 2 + 1;
    std::vector<float> out(2 * nf * w.n);
    for (size_t i = 0; i < nf; i++) {
        const double twice = i == 0 || 2 * i == ns ? 1 : 2;
        for (size_t j = 0; j < w.n; j++) {
            const double angle = 2 * M_PI * (double)(i * (w.first + j) & (ns - 1)) / (double)ns;
            out[2 * i * w.n + j] = (float)(twice * cos(angle));
            out[(2 * i + 1) * w.n + j] = (float)(-twice * sin(angle));
        }
    }
    return out;
}

std::string megabytes(size_t bytes)
{
    return std::to_string((bytes + 999999) / 1000000);
}

/* Ends what says how much memory is too little. */
#define MORE_MEMORY                                                                                                    \
    " MB are free or allowed: allow more (--max-device-mem), use a device with more, or the CPU (--device cpu)"

/* What a plan may take of the memory of the device in use, of which `taken` bytes are what it has already. */
size_t device_limit(const spx_rvfit_options *o, size_t taken)
{
    size_t available = 0, total = 0;
    spx::check(cudaMemGetInfo(&available, &total), "device memory");
    available -= available / 8; /* what the driver and others take meanwhile */
    return o->max_device_mem > 0 ? std::min(available, o->max_device_mem - std::min(o->max_device_mem, taken))
                                 : available;
}

/* What a plan has on one device. */
class shared
{
  public:
    /* As many bytes as there may be: spx::failure says that there are more. */
    shared(const spx_rv_ctx *c, size_t limit) : limit_(limit)
    {
        const spx_rvfit_options *o = c->opt;
        std::vector<arm> arms(c->narm);
        m.narm = (int)c->narm;
        m.ng = (int)c->ng;
        m.nfree = (int)c->nfree;
        m.npoly = (int)o->npoly;
        m.lanes = 1 + m.ng;
        m.interpolator = (int)c->interpolator;
        m.free_v = c->nfree > 0 && c->freeq[0] == 0;
        for (size_t k = (size_t)m.free_v; k < c->nfree; k++) {
            int g = -1;
            for (int i = 0; c->freeq[k] >= 2 && i < m.ng; i++)
                if (c->gpar[i] == c->freeq[k] - 2)
                    g = i;
            m.bent[m.nbent++] = g;
        }
        for (int g = 0; g < m.ng; g++) {
            m.step[g] = (int)c->stride[g];
            m.gpar[g] = c->gpar[g];
        }
        m.nsurvey = (int)c->nsurvey;
        m.survey_v0 = c->lo[0];
        m.survey_step = c->survey_step;
        m.reach = 1;
        m.width = (int)c->maxwidth;
        for (size_t i = 0; i < c->narm; i++)
            add_arm(c, c->arm[i], &arms[i]);
        m.arms = keep(arms.data(), arms.size());
        if (c->maxccf > 0 && c->nlag > 0)
            add_set(c, arms);
        if (bytes > limit)
            throw spx::failure("the templates take " + megabytes(bytes) + " MB of a device's memory, of which " +
                               megabytes(limit) + MORE_MEMORY);
    }

    model m = {};
    size_t bytes = 0;  /* of device memory */
    size_t window = 0; /* most samples of the inverse transform */
    int tiles = 0;     /* of samples, of the widest arm: columns */

  private:
    /* A copy on the device, which lives as long as this. */
    template <typename T> const T *keep(const T *from, size_t n)
    {
        bytes += n * sizeof(T);
        if (bytes > limit_) /* counted only: it is said in the end how many they are */
            return nullptr;
        spx::array<uint8_t> a(n * sizeof(T));
        a.put(reinterpret_cast<const uint8_t *>(from), n * sizeof(T));
        kept_.push_back(std::move(a));
        return reinterpret_cast<const T *>(kept_.back().get());
    }

    void add_arm(const spx_rv_ctx *c, const spx_rv_arm &from, arm *a)
    {
        const spx_setup *s = from.setup;
        const spx_pca *p = &s->pca;
        *a = {};
        a->n = (int)from.n;
        a->nt = (int)from.nt;
        a->columns = (a->nt + COLUMNS - 1) / COLUMNS * COLUMNS;
        a->pixel0 = m.pixels;
        a->sample0 = m.samples;
        a->comp0 = m.ncomp;
        a->stride = (int)from.stride;
        a->ndiag = (int)from.arm->ndiag;
        a->dlnwave = s->dlnwave;
        a->lndet = from.lndet;
        a->place = keep(from.place, from.n);
        a->basis = keep(from.basis, from.stride * c->opt->npoly);
        a->per = (int)from.per;
        if (from.per > 0)
            a->line = keep(from.line, (from.n + from.per - 1) / from.per * 2 * SPX_RVFIT_MAX_POLY);
        if (s->node != nullptr) {
            size_t n = 1;
            for (size_t q = 0; q < s->npar; q++)
                n *= s->naxis[q];
            a->node = c->interpolator == SPX_INTERPOLATE_NN ? nullptr : keep(s->node, n);
        }
        if (from.comp != nullptr) {
            std::vector<float> comp(p->ncomp * (size_t)a->columns);
            std::vector<double> mean((size_t)a->columns);
            for (size_t k = 0; k < p->ncomp; k++)
                std::copy(p->comp + k * from.nt, p->comp + (k + 1) * from.nt, &comp[k * (size_t)a->columns]);
            std::copy(p->mean, p->mean + from.nt, mean.begin());
            a->ncomp = (int)p->ncomp;
            a->nlarge = std::min(a->ncomp, (int)SPX_RV_LARGE);
            a->of_flux = p->of_flux;
            a->comp = keep(comp.data(), comp.size());
            a->mean = keep(mean.data(), mean.size());
            if (c->interpolator != SPX_INTERPOLATE_NN)
                a->coef = keep(p->coef, s->ntemp * p->ncomp);
        } else if (c->interpolator != SPX_INTERPOLATE_NN) {
            a->lnflux = keep(s->lnflux, s->ntemp * s->nwave);
        }
        if (c->interpolator == SPX_INTERPOLATE_NN) {
            size_t nw = 0, nb = 0;
            for (size_t l = 0; l < s->nn.nlayer; l++) {
                nw += s->nn.size[l] * s->nn.size[l + 1];
                nb += s->nn.size[l + 1];
            }
            a->nn = s->nn;
            a->nn.weight = const_cast<float *>(keep(s->nn.weight, nw));
            a->nn.bias = const_cast<float *>(keep(s->nn.bias, nb));
        }
        m.pixels += (int)from.stride;
        m.samples += a->columns;
        m.ncomp += a->ncomp;
        tiles = std::max(tiles, a->columns / COLUMNS);
        const double h = spx_rv_unmap(c, 1, c->hi[1]) / (SPX_C_KMS * a->dlnwave);
        m.reach = std::max(m.reach, (int)spx_rotation_reach(std::min(h, (double)MAX_REACH)));
    }

    void add_bins(const spx_rv_arm &from, arm *a)
    {
        size_t first[SPX_CONTINUUM_NODES + 1];
        int pixel[SPX_CONTINUUM_NODES + 1];
        a->bin_ln0 = log(from.setup->wmin);
        a->nbin = spx_continuum_bins(a->bin_ln0, log(from.setup->wmax), from.n, from.lnwave, &a->bin_width, first);
        std::copy(first, first + a->nbin + 1, pixel);
        a->bin = keep(pixel, (size_t)a->nbin + 1);
    }

    void add_set(const spx_rv_ctx *c, std::vector<arm> &arms)
    {
        m.set = spx_rv_set_of(c);
        m.set.kind = keep(m.set.kind, m.set.ntemp);
        m.set.vsini = keep(m.set.vsini, m.set.ntemp);
        std::vector<lag_samples> windows(c->narm);
        std::vector<std::vector<float>> responses(c->narm);
#pragma omp parallel for num_threads(c->opt->threads) schedule(dynamic, 1) if (c->opt->threads > 1)
        for (size_t i = 0; i < c->narm; i++) {
            windows[i] = lag_window(c->arm[i], c->nlag);
            responses[i] = response_of(c->arm[i], windows[i]);
        }
        for (size_t i = 0; i < c->narm; i++) {
            const spx_rv_arm &from = c->arm[i];
            arm &a = arms[i];
            const std::vector<float> &response = responses[i];
            a.nccf = (int)from.nccf;
            a.nfreq = (int)(from.nshort / 2 + 1);
            a.ccf0 = m.nccf;
            a.freq0 = m.nfreq;
            a.ccf_comp = keep(from.ccf_comp, from.nccf * 4 * (size_t)a.nfreq);
            a.response = keep(response.data(), response.size());
            a.nsample = (int)windows[i].n;
            a.cyclic = windows[i].n == from.nshort;
            a.nwave_ccf = (int)from.setup->ccf.nwave;
            a.rebin_at = keep(from.rebin_at, from.setup->ccf.nwave);
            a.rebin = keep(from.rebin, from.setup->ccf.nwave);
            a.lnwave = keep(from.lnwave, from.n);
            add_bins(from, &a);
            a.lag_at = keep(windows[i].at.data(), c->nlag);
            a.lag_weight = reinterpret_cast<const float4 *>(keep(from.lag_weight, 4 * c->nlag));
            m.most_ccf = std::max(m.most_ccf, from.setup->ccf.nwave);
            a.samples0 = m.ccf_samples;
            m.ccf_samples += from.nccf * windows[i].n;
            window = std::max(window, windows[i].n);
            m.nccf += a.nccf;
            m.nfreq += (size_t)a.nfreq;
        }
        std::vector<float> coef(m.set.ntemp * (size_t)m.nccf);
        for (size_t t = 0; t < m.set.ntemp; t++)
            for (size_t i = 0; i < c->narm; i++)
                std::copy(c->arm[i].ccf_coef + t * c->arm[i].nccf, c->arm[i].ccf_coef + (t + 1) * c->arm[i].nccf,
                          &coef[t * (size_t)m.nccf + (size_t)arms[i].ccf0]);
        m.ccf_coef = keep(coef.data(), coef.size());
        m.arms = keep(arms.data(), arms.size());
    }

    const size_t limit_;
    std::vector<spx::array<uint8_t>> kept_;
};

/* ---- the engine ---- */

/* One worker: its stream, and the data of the group that it has. */
class engine
{
  public:
    engine(const spx_rv_ctx *c, const shared *s, int threads)
        : c_(c), m_(s->m), widest_(s->window), tiles_(s->tiles), threads_(threads),
          few_(c->interpolator == SPX_INTERPOLATE_SIMPLEX ? 4 : 128)
    {
        spx::check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "stream");
        shared_limits();
    }
    engine(const engine &) = delete;
    engine &operator=(const engine &) = delete;
    ~engine()
    {
        (void)cudaStreamDestroy(stream_);
    }

    /* Device memory of a group: of each star, and of each exposure. */
    static size_t star_bytes(const spx_rv_ctx *c, const model &m)
    {
        const size_t pixels = (size_t)m.pixels, samples = (size_t)m.samples, lanes = (size_t)m.lanes;
        size_t n = samples * (8 + 4 * (lanes - 1) + 16) + pixels * (8 + 4 * (size_t)m.nfree) +
                   (size_t)m.ncomp * LANES * 4 + (size_t)m.narm * (SPX_RV_LARGE + 2 * ((size_t)m.reach + 1)) * 8 +
                   (size_t)m.narm * 2 * (size_t)m.width * lanes * 8 + sizeof(spx_rv_stencil) +
                   ((1 + SPX_MAX_FIT * (SPX_MAX_FIT + 1)) * 8 + sizeof(item)) * (size_t)m.narm;
        if (m.nccf > 0 && m.most_ccf * sizeof(float2) > SPECTRUM_SHARED)
            n += (size_t)m.narm * m.most_ccf * sizeof(float2);
        if (m.nccf > 0)
            n += (m.nfreq * 4 + ((size_t)m.nccf + m.set.ntemp + 2) * m.set.nlag + m.ccf_samples) * 4;
        (void)c;
        return n;
    }
    static size_t exposure_bytes(const spx_rv_ctx *c, const model &m)
    {
        size_t n = (size_t)m.pixels * (8 + 8 + 1 + 8 + (c->opt->hook != nullptr ? 4 + 4 : 0));
        for (size_t i = 0; i < c->narm && c->opt->resolution; i++)
            n += c->arm[i].n * c->arm[i].arm->ndiag * 8;
        return n;
    }

    void load(size_t n, spx_rv_ws *const *w)
    {
        const bool fresh = n > 0 && !known(w[0]);
        if (fresh)
            lay_out(n, w);
        for (size_t k0 = 0; k0 < n; k0 += STAGED)
            stage(std::min((size_t)STAGED, n - k0), w + k0);
        for (size_t k = 0; k < n; k++)
            for (size_t i = 0; i < w[k]->first[c_->narm]; i++)
                piece_[slot_[w[k]->slot].piece + i].sum_lne2 = w[k]->piece[i].sum_lne2;
        send(pieces_, piece_.data(), piece_.size());
        wait();
    }

    void correlate(size_t n, spx_rv_ws *const *w, spx_rv_pick *pick)
    {
        const size_t nlag = m_.set.nlag, size = m_.nfreq * 4, narm = c_->narm;
        int *first = host_int_.need(n * (narm + 1));
        for (size_t k = 0; k < n; k++)
            for (size_t i = 0; i <= narm; i++)
                first[k * (narm + 1) + i] = (int)(slot_[w[k]->slot].piece + w[k]->first[i]);
        const int *begin = send(at_, first, n * (narm + 1));
        float *in = spectrum_.need(n * size), *lags = lags_.need(n * (size_t)m_.nccf * nlag);
        float *chi = chi_.need(n * m_.set.ntemp * nlag), *curve = curve_.need(n * nlag);
        int *entry = entry_.need(n * nlag);
        spx_rv_pick *picks = pick_.need(n);
        const size_t room = m_.most_ccf * sizeof(float2);
        spectrum_kernel<<<dim3((unsigned)n, (unsigned)narm), SPECTRUM_THREADS, room <= SPECTRUM_SHARED ? room : 0,
                          stream_>>>(m_, begin, pieces_.get(), flux_.get(), ie_.get(), good_.get(), model_.get(),
                                     room <= SPECTRUM_SHARED ? nullptr : transform_.need(n * narm * m_.most_ccf), in);
        float *samples = sample_.need(n * m_.ccf_samples);
        sample_kernel<<<dim3(blocks(widest_, SAMPLES), blocks(n * c_->maxnccf, FEW_ROWS), (unsigned)narm), 256, 0,
                        stream_>>>(m_, (int)n, in, samples);
        lag_kernel<<<dim3(blocks(nlag, 128), (unsigned)m_.nccf, (unsigned)n), 128, 0, stream_>>>(m_, samples, lags);
        entry_kernel<<<dim3(blocks(nlag, LAGS), blocks(m_.set.ntemp, ROWS), (unsigned)n), 256, 0, stream_>>>(m_, lags,
                                                                                                             chi);
        clear(picks, n); /* it has room for more than there are */
        pick_kernel<<<(unsigned)n, 128, 0, stream_>>>(m_, chi, curve, entry, picks);
        spx::check(cudaGetLastError(), "launch");
        spx_rv_pick *found = host_pick_.need(n);
        to_host(found, picks, n);
        wait();
        std::copy_n(found, n, pick);
    }

    void eval(size_t n, spx_rv_ws *const *w, const double (*x)[SPX_MAX_FIT], const size_t *const *cell,
              spx_rv_value *out)
    {
        std::vector<item> items;
        std::vector<size_t> first(n + 1);
        double *v = host_velocity_.need(n);
        spx_rv_stencil *s = host_stencil_.need(n);
        for (size_t k = 0; k < n; k++) {
            first[k] = items.size();
            v[k] = x[k][0];
            for (size_t i = 0; i < w[k]->first[c_->narm]; i++)
                items.push_back({(int)k, (int)(slot_[w[k]->slot].piece + i), x[k][0]});
        }
        first[n] = items.size();
#pragma omp parallel for num_threads(threads_) schedule(dynamic, 16) if (threads_ > 1 && n > few_)
        for (size_t k = 0; k < n; k++)
            spx_rv_stencil_at(w[k], x[k], cell != nullptr ? cell[k] : nullptr, 1, &s[k]);
        double *velocity = velocity_.need(n);
        to_device(velocity, v, n);
        templates(n, s, true, velocity, nullptr);
        const size_t nf = (size_t)m_.nfree, width = 1 + nf + nf * nf;
        const double *r = sums(items, DERIVATIVES, width);
#pragma omp parallel for num_threads(threads_) schedule(dynamic, 16) if (threads_ > 1 && n > few_)
        for (size_t k = 0; k < n; k++) {
            spx_rv_begin_value(w[k], x[k][0], &out[k]);
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

    void values(size_t n, spx_rv_ws *const *w, const double (*x)[SPX_MAX_FIT], const size_t *first, const double *v,
                double *f)
    {
        bent_at(n, w, x);
        std::vector<item> items;
        for (size_t k = 0; k < n; k++) /* velocities of a piece side by side: they have their data in common */
            for (size_t j = 0; j < w[k]->first[c_->narm]; j++)
                for (size_t i = first[k]; i < first[k + 1]; i++)
                    items.push_back({(int)w[k]->slot, (int)(slot_[w[k]->slot].piece + j), v[i]});
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

    void survey(size_t n, spx_rv_ws *const *w, const double (*x)[SPX_MAX_FIT])
    {
        const size_t nv = c_->nsurvey;
        std::vector<item> items;
        std::vector<double> v(nv);
        bent_at(n, w, x);
        for (size_t i = 0; i < nv; i++)
            v[i] = c_->lo[0] + (double)i * c_->survey_step;
        for (size_t k = 0; k < n; k++)
            for (size_t j = 0; has_lines(w[k]) && j < w[k]->first[c_->narm]; j++)
                items.push_back({(int)w[k]->slot, (int)(slot_[w[k]->slot].piece + j), 0});
        const double *p = surveys(items);
        for (size_t k = 0; k < n; k++) {
            if (!has_lines(w[k]))
                continue;
            const size_t npiece = w[k]->first[c_->narm];
            for (size_t i = 0; i < nv; i++) {
                spx_rv_value value;
                spx_rv_begin_value(w[k], v[i], &value);
                for (size_t j = 0; j < npiece; j++)
                    value.f += p[j * nv + i];
                w[k]->survey[i] = std::isfinite(value.f) ? value.f : HUGE_VAL;
            }
            p += npiece * nv;
        }
        survey_as_values(n, w, x, v);
    }

    void models(size_t n, spx_rv_ws *const *w, const double (*x)[SPX_MAX_FIT])
    {
        bent_at(n, w, x);
        std::vector<item> items;
        size_t longest = 0;
        for (size_t k = 0; k < n; k++) {
            size_t pixels = 0;
            for (size_t j = 0; j < w[k]->first[c_->narm]; j++) {
                items.push_back({(int)w[k]->slot, (int)(slot_[w[k]->slot].piece + j), x[k][0]});
                pixels += c_->arm[w[k]->piece[j].arm].stride;
            }
            longest = std::max(longest, pixels);
        }
        const double *r = sums(items, CONTINUUM, 1);
        size_t i = 0;
        for (size_t k = 0; k < n; k++)
            for (size_t j = 0; j < w[k]->first[c_->narm]; j++)
                w[k]->piece[j].chisq_c = r[i++];
        r = sums(items, MODEL, 1);
        i = 0;
        for (size_t k = 0; k < n; k++)
            for (size_t j = 0; j < w[k]->first[c_->narm]; j++)
                w[k]->piece[j].chisq = r[i++];
        /* pieces of neighbouring slots lie side by side */
        for (size_t k0 = 0; k0 < n; k0 += STAGED) {
            const size_t k1 = std::min(n, k0 + STAGED);
            double *to = host_double_.need(STAGED * longest);
            for (size_t k = k0; k < k1; k++)
                to_host(to + (k - k0) * longest, model_.get() + slot_[w[k]->slot].pixel, slot_[w[k]->slot].pixels);
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

    /* The hook, for stars first ... first + n - 1 of *out, which are the group's: residuals and models are computed
     * into arrays that the hook gets, and numbers of the host's go to it beside them. */
    spx_status lend(spx_hook *hook, int device, const spx_rvfit *out, size_t first, size_t n, spx_err *e)
    {
        const size_t row0 = out->first[first], nrow = out->first[first + n] - row0;
        std::vector<shown> list;
        std::vector<size_t> begin(out->narm + 1), at(n);
        for (size_t a = 0; a < out->narm; a++)
            begin[a + 1] = begin[a] + (nrow * out->arm[a].nwave + 63) / 64 * 64; /* frameworks want it aligned */
        size_t longest = 1;
        for (size_t k = 0; k < n; k++) {
            const spx_rv_ws *w = spx_rv_group_ws(group_, k);
            at[k] = out->first[first + k] - row0;
            if (!known(w) || (out->star[first + k].warn & SPX_RVS_BAD) != 0)
                continue;
            for (size_t i = 0; i < w->first[c_->narm]; i++) {
                const spx_rv_data &d = w->piece[i];
                const size_t a = c_->arm[d.arm].index;
                list.push_back({(int)(slot_[k].piece + i), begin[a] + (d.exposure - row0) * out->arm[a].nwave});
                longest = std::max(longest, c_->arm[d.arm].n);
            }
        }
        float *residual = residual_.need(begin[out->narm]), *models = models_.need(begin[out->narm]);
        clear(residual, begin[out->narm]);
        spx::check(cudaMemsetAsync(models, 0, begin[out->narm] * sizeof *models, stream_), "models");
        const shown *pieces = send(shown_, list.data(), list.size());
        for (size_t i = 0; i < list.size(); i += 65535) {
            const dim3 grid(blocks(longest, 128), (unsigned)std::min(list.size() - i, (size_t)65535));
            residual_kernel<<<grid, 128, 0, stream_>>>(m_, pieces + i, pieces_.get(), flux_.get(), ie_.get(),
                                                       good_.get(), model_.get(), residual, models);
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
        spx_hook_leave(hook);
        spx::check(done, "hook");
        spx::check(cudaSetDevice(device), "device");
        return st;
    }

    /* Stars of the next group come, into workspaces of g. */
    void begin(spx_rv_group *g)
    {
        group_ = g;
        slot_.clear();
        piece_.clear();
    }

  private:
    struct place {
        size_t piece, pixel, pixels, band; /* first piece; pixels of all of them */
        bool known, bent;
        double at[SPX_MAX_FIT]; /* point of the templates in knots_, where they are bent */
    };

    static unsigned blocks(size_t n, size_t size)
    {
        return (unsigned)((n + size - 1) / size);
    }

    template <typename T> void to_device(T *to, const T *from, size_t n)
    {
        spx::to_device += n * sizeof(T);
        spx::check(cudaMemcpyAsync(to, from, n * sizeof(T), cudaMemcpyHostToDevice, stream_), "copy to the device");
    }
    template <typename T> void to_host(T *to, const T *from, size_t n)
    {
        spx::to_host += n * sizeof(T);
        spx::check(cudaMemcpyAsync(to, from, n * sizeof(T), cudaMemcpyDeviceToHost, stream_), "copy from the device");
    }
    template <typename T> void clear(T *p, size_t n)
    {
        spx::check(cudaMemsetAsync(p, 0, n * sizeof(T), stream_), "device memory");
    }
    template <typename T> T *send(room<T> &to, const T *from, size_t n)
    {
        T *p = to.need(n);
        to_device(p, from, n);
        return p;
    }
    void wait()
    {
        spx::check(cudaStreamSynchronize(stream_), "stream");
    }

    template <int T> void allow()
    {
        spx::check(
            cudaFuncSetAttribute(pixel_kernel<T>, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)pixel_shared(T)),
            "kernel");
    }
    void shared_limits()
    {
        allow<1>();
        allow<2>();
        allow<3>();
        allow<4>();
        allow<5>();
        spx::check(cudaFuncSetAttribute(spectrum_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, SPECTRUM_SHARED),
                   "kernel");
        spx::check(cudaFuncSetAttribute(bend_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                        (int)bend_shared(SPX_MAX_FIT)),
                   "kernel");
    }

    bool known(const spx_rv_ws *w) const
    {
        return w->slot < slot_.size() && slot_[w->slot].known;
    }

    /* Where the data of a group's stars will be. */
    void lay_out(size_t n, spx_rv_ws *const *w)
    {
        size_t pixels = 0, bands = 0, slots = 0;
        for (size_t k = 0; k < n; k++)
            slots = std::max(slots, w[k]->slot + 1);
        slot_.assign(slots, {});
        piece_.clear();
        for (size_t k = 0; k < n; k++) {
            place &p = slot_[w[k]->slot];
            p = {piece_.size(), pixels, 0, bands, true, false, {}};
            for (size_t i = 0; i < w[k]->first[c_->narm]; i++) {
                const spx_rv_data &d = w[k]->piece[i];
                const spx_rv_arm &a = c_->arm[d.arm];
                piece_.push_back({(int)d.arm, pixels, bands, d.sum_lne2});
                pixels += a.stride;
                bands += c_->opt->resolution ? a.n * a.arm->ndiag : 0;
            }
            p.pixels = pixels - p.pixel;
        }
        flux_.need(pixels);
        ie_.need(pixels);
        good_.need(pixels);
        clear(model_.need(pixels), pixels); /* strides are longer than models */
        if (c_->opt->resolution)
            band_.need(bands);
        knots_.need(slots * (size_t)m_.samples);
    }

    /* Data of a few stars to the device. */
    void stage(size_t n, spx_rv_ws *const *w)
    {
        std::vector<size_t> begin(n + 1), band(n + 1);
        for (size_t k = 0; k < n; k++) {
            begin[k + 1] = begin[k] + slot_[w[k]->slot].pixels;
            band[k + 1] = band[k];
            for (size_t i = 0; i < w[k]->first[c_->narm] && c_->opt->resolution; i++)
                band[k + 1] += c_->arm[w[k]->piece[i].arm].n * c_->arm[w[k]->piece[i].arm].arm->ndiag;
        }
        wait();
        double *flux = host_double_.need(2 * begin[n] + band[n]), *ie = flux + begin[n], *rows = ie + begin[n];
        uint8_t *good = host_byte_.need(begin[n]);
#pragma omp parallel for num_threads(threads_) schedule(dynamic, 4) if (threads_ > 1)
        for (size_t k = 0; k < n; k++) {
            size_t at = begin[k], row = band[k];
            for (size_t i = 0; i < w[k]->first[c_->narm]; i++) {
                const spx_rv_data &d = w[k]->piece[i];
                const spx_rv_arm &a = c_->arm[d.arm];
                memcpy(flux + at, d.flux, a.stride * sizeof *flux);
                memcpy(ie + at, d.ie, a.stride * sizeof *ie);
                memset(good + at, 0, a.stride);
                memcpy(good + at, d.good, a.n);
                at += a.stride;
                if (c_->opt->resolution) {
                    memcpy(rows + row, d.band, a.n * a.arm->ndiag * sizeof *rows);
                    row += a.n * a.arm->ndiag;
                }
            }
        }
        /* stars whose places follow each other go together */
        for (size_t k = 0; k < n;) {
            size_t end = k + 1;
            while (end < n &&
                   slot_[w[end]->slot].pixel == slot_[w[end - 1]->slot].pixel + slot_[w[end - 1]->slot].pixels)
                end++;
            const place &p = slot_[w[k]->slot];
            to_device(flux_.get() + p.pixel, flux + begin[k], begin[end] - begin[k]);
            to_device(ie_.get() + p.pixel, ie + begin[k], begin[end] - begin[k]);
            to_device(good_.get() + p.pixel, good + begin[k], begin[end] - begin[k]);
            if (c_->opt->resolution)
                to_device(band_.get() + p.band, rows + band[k], band[end] - band[k]);
            k = end;
        }
    }

    template <int L>
    void templates_of(size_t n, const spx_rv_stencil *s, float *single, double *large, double *rotation, double *work,
                      double *flux, float *slope)
    {
        const unsigned narm = (unsigned)m_.narm, tiles = (unsigned)tiles_;
        bool bare = false;
        for (size_t i = 0; i < c_->narm; i++)
            bare = bare || c_->arm[i].comp == nullptr;
        coefficient_kernel<L><<<dim3((unsigned)n, narm), THREADS, 0, stream_>>>(m_, s, single, large, rotation, work);
        component_kernel<L>
            <<<dim3(tiles, blocks(n, POINTS), narm), 128, 0, stream_>>>(m_, (int)n, single, large, flux, slope);
        if (bare)
            template_kernel<L><<<dim3(tiles, (unsigned)n, narm), 128, 0, stream_>>>(m_, s, flux, slope);
    }

    /* Templates of n points: sampled, with derivatives, or their knots, of slots. */
    void templates(size_t n, const spx_rv_stencil *from, bool deriv, const double *velocity, const int *slot)
    {
        const size_t narm = (size_t)m_.narm, samples = (size_t)m_.samples, pixels = (size_t)m_.pixels;
        const int lanes = deriv ? m_.lanes : 1;
        const spx_rv_stencil *s = send(stencil_, from, n);
        float *single = single_.need(n * (size_t)m_.ncomp * LANES);
        double *large = large_.need(n * narm * SPX_RV_LARGE);
        double *rotation = rotation_.need(n * narm * 2 * ((size_t)m_.reach + 1));
        double *work = work_.need(n * narm * 2 * (size_t)m_.width * (size_t)m_.lanes);
        double *flux = template_.need(n * samples);
        float *slope = slope_.need(n * samples * (size_t)m_.ng);
        double *t = nullptr;
        float *dt = nullptr;
        if (deriv) {
            t = t_.need(n * pixels);
            dt = dt_.need(n * pixels * (size_t)m_.nfree);
        }
        switch (lanes) {
        case 1:
            templates_of<1>(n, s, single, large, rotation, work, flux, slope);
            break;
        case 2:
            templates_of<2>(n, s, single, large, rotation, work, flux, slope);
            break;
        case 3:
            templates_of<3>(n, s, single, large, rotation, work, flux, slope);
            break;
        case 4:
            templates_of<4>(n, s, single, large, rotation, work, flux, slope);
            break;
        case 5:
            templates_of<5>(n, s, single, large, rotation, work, flux, slope);
            break;
        case 6:
            templates_of<6>(n, s, single, large, rotation, work, flux, slope);
            break;
        default:
            templates_of<7>(n, s, single, large, rotation, work, flux, slope);
        }
        bend_kernel<<<dim3(blocks((size_t)tiles_ * COLUMNS, KNOTS), (unsigned)n, (unsigned)narm), 128,
                      bend_shared(deriv ? m_.nbent : 0), stream_>>>(m_, deriv, s, velocity, flux, slope, rotation, t,
                                                                    dt, slot, knots_.get());
        spx::check(cudaGetLastError(), "launch");
    }

    /* Templates at x[k] into the knots of the stars that have not these already. */
    void bent_at(size_t n, spx_rv_ws *const *w, const double (*x)[SPX_MAX_FIT])
    {
        size_t m = 0;
        spx_rv_stencil *s = host_stencil_.need(n);
        int *slot = host_int_.need(n);
        for (size_t k = 0; k < n; k++) {
            place &p = slot_[w[k]->slot];
            /* the prior, too, is that of the last point that was looked at */
            spx_rv_stencil_at(w[k], x[k], nullptr, 0, &s[m]);
            if (p.bent && memcmp(p.at, x[k], c_->nq * sizeof *p.at) == 0)
                continue;
            memcpy(p.at, x[k], sizeof p.at);
            p.bent = true;
            slot[m++] = (int)w[k]->slot;
        }
        if (m == 0)
            return;
        int *at = at_.need(m);
        to_device(at, slot, m);
        templates(m, s, false, nullptr, at);
    }

    /* The same of stars that have no lines. */
    void survey_as_values(size_t n, spx_rv_ws *const *w, const double (*x)[SPX_MAX_FIT], const std::vector<double> &v)
    {
        std::vector<spx_rv_ws *> who;
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
        values(who.size(), who.data(), reinterpret_cast<const double(*)[SPX_MAX_FIT]>(at.data()), first.data(),
               all.data(), f.data());
        for (size_t k = 0; k < who.size(); k++)
            std::copy(f.begin() + (ptrdiff_t)first[k], f.begin() + (ptrdiff_t)first[k + 1], who[k]->survey);
    }

    bool has_lines(const spx_rv_ws *w) const
    {
        bool all = !c_->opt->resolution; /* which the kernel does not multiply with */
        for (size_t j = 0; j < w->first[c_->narm]; j++)
            all = all && c_->arm[w->piece[j].arm].per > 0;
        return all;
    }

    template <int PER> void launch_survey(size_t n, const item *items, double *out)
    {
        const size_t bytes = survey_shared(m_.npoly);
        spx::check(cudaFuncSetAttribute(survey_kernel<PER>, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes),
                   "kernel");
        survey_kernel<PER><<<dim3((unsigned)n, blocks(c_->nsurvey, 32)), 32 * SURVEY_WARPS, bytes, stream_>>>(
            m_, items, pieces_.get(), flux_.get(), ie_.get(), knots_.get(), out);
    }

    /* Surveys of items, [items][nsurvey], until the next call. */
    const double *surveys(const std::vector<item> &items)
    {
        const size_t n = items.size(), nv = c_->nsurvey, most = std::max((size_t)1, (size_t)ITEMS / nv);
        item *from = host_item_.need(n);
        double *result = host_objective_.need(n * nv);
        std::copy(items.begin(), items.end(), from);
        for (size_t i = 0; i < n; i += most) {
            const size_t some = std::min(n - i, most);
            item *list = item_.need(some);
            double *out = result_.need(some * nv);
            to_device(list, from + i, some);
            const int entries = survey_entries(m_.npoly);
            if (entries <= 9 * SURVEY_WARPS)
                launch_survey<9>(some, list, out);
            else if (entries <= 20 * SURVEY_WARPS)
                launch_survey<20>(some, list, out);
            else if (entries <= 40 * SURVEY_WARPS)
                launch_survey<40>(some, list, out);
            else
                launch_survey<70>(some, list, out);
            spx::check(cudaGetLastError(), "launch");
            to_host(result + i * nv, out, some * nv);
        }
        wait();
        return result;
    }

    template <int T> void launch_values(size_t n, const item *items, double *out)
    {
        value_kernel<T><<<blocks(n, WARPS), 32 * WARPS, value_shared(T), stream_>>>(
            m_, (int)n, items, pieces_.get(), flux_.get(), ie_.get(), c_->opt->resolution ? band_.get() : nullptr,
            knots_.get(), out);
    }

    /* The objective of items without derivatives, until the next call. */
    const double *objectives(const std::vector<item> &items)
    {
        if (m_.npoly > VALUE_POLY)
            return sums(items, VALUE, 1);
        const size_t n = items.size();
        item *from = host_item_.need(n);
        double *result = host_objective_.need(n);
        std::copy(items.begin(), items.end(), from);
        for (size_t i = 0; i < n; i += ITEMS) {
            const size_t some = std::min(n - i, (size_t)ITEMS);
            item *list = item_.need(some);
            double *out = result_.need(some);
            to_device(list, from + i, some);
            switch (((size_t)m_.npoly + 1 + 7) / 8) {
            case 1:
                launch_values<1>(some, list, out);
                break;
            case 2:
                launch_values<2>(some, list, out);
                break;
            case 3:
                launch_values<3>(some, list, out);
                break;
            default:
                launch_values<4>(some, list, out);
            }
            spx::check(cudaGetLastError(), "launch");
            to_host(result + i, out, some);
        }
        wait();
        std::vector<item> others;
        for (size_t i = 0; i < n; i++)
            if (std::isnan(result[i]))
                others.push_back(items[i]);
        if (!others.empty()) {
            const double *r = sums(others, VALUE, 1);
            for (size_t i = 0; i < n; i++)
                if (std::isnan(result[i]))
                    result[i] = *r++;
        }
        return result;
    }

    template <int T> void launch(size_t n, int mode, const item *items, double *out)
    {
        pixel_kernel<T><<<(unsigned)n, 32 * WARPS, pixel_shared(T), stream_>>>(
            m_, mode, items, pieces_.get(), flux_.get(), ie_.get(), good_.get(),
            c_->opt->resolution ? band_.get() : nullptr, knots_.get(), t_.get(), dt_.get(), out, model_.get());
    }

    /* Sums over pixels, result[items][width], until the next call; so many at a time that their memory is little. */
    const double *sums(const std::vector<item> &items, int mode, size_t width)
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
            switch (((size_t)m_.npoly + 1 + 7) / 8) {
            case 1:
                launch<1>(some, mode, list, out);
                break;
            case 2:
                launch<2>(some, mode, list, out);
                break;
            case 3:
                launch<3>(some, mode, list, out);
                break;
            case 4:
                launch<4>(some, mode, list, out);
                break;
            default:
                launch<5>(some, mode, list, out);
            }
            spx::check(cudaGetLastError(), "launch");
            to_host(result + i * width, out, some * width);
        }
        wait();
        return result;
    }

    const spx_rv_ctx *c_;
    model m_;
    size_t widest_; /* of windows */
    int tiles_, threads_;
    size_t few_; /* points take less than it takes to call the threads, unless a simplex has to be looked for */
    cudaStream_t stream_ = nullptr;
    spx_rv_group *group_ = nullptr;
    std::vector<place> slot_;
    std::vector<piece> piece_;
    room<double> flux_, ie_, band_, model_, large_, rotation_, work_, template_, t_, velocity_, result_;
    room<float> single_, slope_, dt_, spectrum_, sample_, lags_, chi_, curve_;
    room<uint8_t> good_;
    room<double2> knots_;
    room<float2> transform_;
    room<spx_rv_stencil> stencil_;
    room<spx_rv_pick> pick_;
    room<piece> pieces_;
    room<shown> shown_; /* for a hook, as are all of these */
    room<float> residual_, models_;
    room<spx_rvfit_star> star_;
    room<size_t> first_, row_;
    room<double> wavelength_[SPX_MAX_ARM];
    room<item> item_;
    room<int> entry_, at_;
    pinned<double> host_double_, host_velocity_, host_result_, host_objective_;
    pinned<float> host_float_;
    pinned<uint8_t> host_byte_;
    pinned<spx_rv_stencil> host_stencil_;
    pinned<spx_rv_pick> host_pick_;
    pinned<item> host_item_;
    pinned<int> host_int_;
};

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

spx_status engine_load(void *state, size_t n, spx_rv_ws *const *w, spx_err *e)
{
    return step(e, [&] { engine_of(state)->load(n, w); });
}

spx_status engine_correlate(void *state, size_t n, spx_rv_ws *const *w, spx_rv_pick *pick, spx_err *e)
{
    return step(e, [&] { engine_of(state)->correlate(n, w, pick); });
}

spx_status engine_eval(void *state, size_t n, spx_rv_ws *const *w, const double (*x)[SPX_MAX_FIT],
                       const size_t *const *cell, spx_rv_value *out, spx_err *e)
{
    return step(e, [&] { engine_of(state)->eval(n, w, x, cell, out); });
}

spx_status engine_values(void *state, size_t n, spx_rv_ws *const *w, const double (*x)[SPX_MAX_FIT],
                         const size_t *first, const double *v, double *f, spx_err *e)
{
    return step(e, [&] { engine_of(state)->values(n, w, x, first, v, f); });
}

spx_status engine_survey(void *state, size_t n, spx_rv_ws *const *w, const double (*x)[SPX_MAX_FIT], spx_err *e)
{
    return step(e, [&] { engine_of(state)->survey(n, w, x); });
}

spx_status engine_models(void *state, size_t n, spx_rv_ws *const *w, const double (*x)[SPX_MAX_FIT], spx_err *e)
{
    return step(e, [&] { engine_of(state)->models(n, w, x); });
}

/* ---- the batch ---- */

/* Device memory of the star that takes most. */
size_t largest_star(const spx_rv_ctx *c, const model &m)
{
    size_t most = 1, begin, end;
    for (size_t k = 0; k < c->nstar; k++) {
        spx_rv_exposures(c, k, &begin, &end);
        most = std::max(most, end - begin);
    }
    return engine::star_bytes(c, m) + most * engine::exposure_bytes(c, m);
}

/* Groups of stars, as many as fit, and at least one: first star of each, and the number of all. The first ones are
 * smaller, so that workers do not wait for each other, and so are the last ones, so that all end together. */
std::vector<size_t> make_groups(const spx_rv_ctx *c, const model &m, size_t budget, size_t workers)
{
    const size_t star = engine::star_bytes(c, m), exposure = engine::exposure_bytes(c, m);
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

/* One that fits groups, with its engine and the memory of a group; kept for the next batch. */
struct worker {
    engine computes;
    spx_rv_engine table;
    spx_rv_group *group;

    /* group: NULL where there is no memory, which *e says */
    worker(const spx_rv_ctx *c, const shared *s, size_t most, int threads, spx_err *e)
        : computes(c, s, threads), table{&computes,   threads,       most,          engine_load,  engine_correlate,
                                         engine_eval, engine_values, engine_survey, engine_models}
    {
        group = spx_rv_group_new(c, &table, most, e);
    }
    worker(const worker &) = delete;
    worker &operator=(const worker &) = delete;
    ~worker()
    {
        spx_rv_group_free(group);
    }
};

/* A plan on one device: copies of the templates, and workers that wait for a batch. */
struct station {
    station(int d, const spx_rv_ctx *c, size_t limit) : device(d), templates(c, limit)
    {
    }
    const int device;
    shared templates;
    std::vector<std::unique_ptr<worker>> idle;
};

/* A plan on all devices. */
struct copies {
    spx_rv_ctx c; /* of the batch that is under way: where workers look for it */
    std::vector<std::unique_ptr<station>> stations;
    /* of the workers that wait: stars that they have room for; largest memory of a star, and device memory of a worker,
     * that there may have been */
    size_t most = 0, star = 0, bytes = 0;
};

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
spx_status show(batch *b, engine &computes, int device, size_t k, spx_err *e)
{
    {
        std::unique_lock<std::mutex> hold(b->lock);
        b->turn.wait(hold, [&] { return b->shown == k || b->err.code != SPX_OK; });
        if (b->err.code != SPX_OK)
            return SPX_OK; /* it is said already */
    }
    const spx_status st = computes.lend(b->c->opt->hook, device, b->out, b->first[k], b->first[k + 1] - b->first[k], e);
    if (st == SPX_OK) {
        const std::lock_guard<std::mutex> hold(b->lock);
        b->shown = k + 1;
    }
    b->turn.notify_all();
    return st;
}

void work(batch *b, station *s)
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
            w.reset(new worker(b->c, &s->templates, b->most, b->threads, &mine));
        if (w->group == nullptr)
            return SPX_EIO;
        spx_status status = SPX_OK;
        for (size_t k; status == SPX_OK && (k = b->next++) + 1 < b->first.size();) {
            const size_t n = b->first[k + 1] - b->first[k];
            w->computes.begin(w->group);
            status = spx_rv_group_fit(w->group, b->first[k], n, b->out, &mine);
            if (status == SPX_OK && b->c->opt->hook != nullptr)
                status = show(b, w->computes, s->device, k, &mine);
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

/* What every device has at least of memory for workers, beside what `bytes` of a plan's workers have already. */
size_t budget_of(const spx_rv_ctx *c, const copies &all, size_t bytes)
{
    size_t budget = (size_t)-1;
    for (const std::unique_ptr<station> &s : all.stations) {
        spx::check(cudaSetDevice(s->device), "device");
        budget = std::min(budget, device_limit(c->opt, s->templates.bytes + s->idle.size() * bytes));
    }
    return budget;
}

/* How a batch is shared out: workers of each device, first star of each group, stars of the largest. Workers of batches
 * before are kept where they suffice, and where more have room beside them. */
struct shares {
    size_t workers, most = 1;
    std::vector<size_t> first;
};

shares share_out(copies *all)
{
    const spx_rv_ctx *c = &all->c;
    const model &m = all->stations[0]->templates.m;
    const size_t ndevice = all->stations.size();
    /* lists of sums do not depend on the group */
    const size_t lists = ITEMS * (sizeof(item) + 8) + ROUNDING, star = largest_star(c, m), full = lists + GROUP * star;
    for (;;) {
        shares s;
        const bool fresh = all->stations[0]->idle.empty();
        const size_t budget = budget_of(c, *all, all->bytes);
        s.workers = std::min((size_t)WORKERS, std::max((size_t)1, c->nstar / (ndevice * LEAST_GROUP)));
        /* where memory is little, fewer groups of more stars */
        while (s.workers > 1 && budget / s.workers < lists + LEAST_GROUP * star)
            s.workers--;
        if (fresh && budget < lists + star)
            throw spx::failure("a star takes " + megabytes(lists + star) + " MB of a device's memory, of which " +
                               megabytes(budget) + MORE_MEMORY);
        if (fresh || budget / s.workers >= full) {
            s.first = make_groups(c, m, budget / s.workers - lists, s.workers * ndevice);
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
        for (const std::unique_ptr<station> &d : all->stations)
            d->idle.clear();
        all->star = all->bytes = 0;
    }
}

spx_status fit(copies *all, spx_progress *p, spx_rvfit *out, spx_err *e)
{
    const spx_rv_ctx *c = &all->c;
    const size_t ndevice = all->stations.size();
    const shares s = share_out(all);
    batch b;
    b.c = c;
    b.progress = p;
    b.out = out;
    b.first = s.first;
    b.most = all->most;
    /* while some workers wait for the device, others may use what they leave */
    const int share = c->opt->threads / (int)(s.workers * ndevice);
    b.threads = std::max(1, std::min(c->opt->threads, s.workers * ndevice > 1 ? 2 * share : share));
    std::vector<std::thread> threads;
    for (const std::unique_ptr<station> &d : all->stations)
        for (size_t i = 0; i < s.workers; i++)
            threads.emplace_back(work, &b, d.get());
    for (std::thread &t : threads)
        t.join();
    return b.err.code == SPX_OK ? SPX_OK : spx_fail(e, b.err.code, "%s", b.err.msg);
}

} // namespace

extern "C" void spx_rvfit_close_cuda(spx_backend *, spx_rvfit_plan *plan)
{
    if (plan != nullptr)
        delete static_cast<copies *>(plan->device);
    spx_rvfit_close_cpu(plan);
}

extern "C" spx_status spx_rvfit_open_cuda(spx_backend *b, const spx_rvfit_input *in, const spx_rvfit_options *o,
                                          spx_rvfit_plan **plan, spx_err *e)
{
    spx_rv_ctx c;
    spx_status st = *plan != nullptr ? SPX_OK : spx_rvfit_open_cpu(in, o, plan, e);
    if (st != SPX_OK)
        return st;
    if ((st = spx_rv_ctx_batch(&c, *plan, in, o, e)) == SPX_OK)
        st = spx::guarded("rvfit", e, [&] {
            const spx_cuda_state *state = spx::state_of(b);
            copies *all = new copies;
            (*plan)->device = all; /* which is closed with it, whatever happens */
            for (int d = 0; d < state->ndevice; d++) {
                spx::check(cudaSetDevice(state->device[d]), "device");
                all->stations.emplace_back(new station(state->device[d], &c, device_limit(o, 0)));
            }
            return SPX_OK;
        });
    if (st != SPX_OK) {
        spx_rvfit_close_cuda(b, *plan);
        *plan = nullptr;
    }
    return st;
}

extern "C" spx_status spx_rvfit_cuda(spx_backend *b, const spx_rvfit_input *in, const spx_rvfit_options *o,
                                     spx_progress *p, spx_rvfit *out, spx_err *e)
{
    spx_rvfit_plan *own = nullptr;
    memset(out, 0, sizeof *out);
    spx_status st = in->plan != nullptr ? SPX_OK : spx_rvfit_open_cuda(b, in, o, &own, e);
    if (st != SPX_OK)
        return st;
    const spx_rvfit_plan *plan = in->plan != nullptr ? in->plan : own;
    copies *all = static_cast<copies *>(plan->device);
    if ((st = spx_rv_ctx_batch(&all->c, plan, in, o, e)) == SPX_OK &&
        (st = spx_rv_result_init(&all->c, out, e)) == SPX_OK && all->c.nstar > 0)
        st = spx::guarded("rvfit", e, [&] { return fit(all, p, out, e); });
    spx_rvfit_close_cuda(b, own);
    if (st != SPX_OK)
        spx_rvfit_free(out);
    return st;
}
