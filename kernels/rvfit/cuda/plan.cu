/* Copies the templates, and what else stars have in common, to a device (plan.cuh). */
#include "rvfit/cuda/plan.cuh"

#include <algorithm>

namespace rv
{

namespace
{

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
    std::vector<double> cosine(ns), sine(ns);
    for (size_t i = 0; i < ns; i++) {
        cosine[i] = cos(2 * M_PI * (double)i / (double)ns);
        sine[i] = sin(2 * M_PI * (double)i / (double)ns);
    }
    for (size_t i = 0; i < nf; i++) {
        const double twice = i == 0 || 2 * i == ns ? 1 : 2;
        for (size_t j = 0; j < w.n; j++) {
            const size_t angle = i * (w.first + j) & (ns - 1);
            out[2 * i * w.n + j] = (float)(twice * cosine[angle]);
            out[(2 * i + 1) * w.n + j] = (float)(-twice * sine[angle]);
        }
    }
    return out;
}

/* First of the functions that are not 0 somewhere in a chunk of 32 pixels, for each chunk; where that does not take
 * another tile of eight rows with the data's, chunks side by side have the same. *span: raised to the most functions
 * from the first one on. */
std::vector<int> chunk_functions(const spx_rv_basis &b, size_t n, int *span)
{
    std::vector<int> first, end;
    for (size_t i = 0; i < n; i += 32) {
        size_t k0 = b.n, k1 = 0;
        for (size_t k = 0; k < b.n; k++)
            for (size_t j = i; j < std::min(n, i + 32); j++)
                if (b.value[k * b.stride + j] != 0) {
                    k0 = std::min(k0, k);
                    k1 = k + 1;
                }
        first.push_back((int)std::min(k0, k1));
        end.push_back((int)k1);
        *span = std::max(*span, end.back() - first.back());
    }
    const int most = (*span + 1 + 7) / 8 * 8 - 1;
    for (size_t c = 1; c < first.size(); c++)
        if (end[c] <= first[c - 1] + most && first[c] >= first[c - 1])
            first[c] = first[c - 1];
    return first;
}

/* The functions of each chunk, from its first one on, as products of matrices take them: fragments<> of pixels.cuh. */
std::vector<double2> fragments_of(const spx_rv_basis &b, size_t n, const std::vector<int> &first, int tiles)
{
    std::vector<double2> rows;
    auto at = [&](size_t chunk, int p, int lane, int k) {
        const int row = 8 * p + lane / 4;
        const size_t f = (size_t)(first[chunk] + row), i = 32 * chunk + (size_t)(4 * k + lane % 4);
        return row == 8 * tiles - 1 ? 1 : f < b.n && i < n ? b.value[f * b.stride + i] : 0;
    };
    for (size_t chunk = 0; chunk < first.size(); chunk++)
        for (int p = 0; p < tiles; p++)
            for (int j = 0; j < 4; j++)
                for (int lane = 0; lane < 32; lane++)
                    rows.push_back(make_double2(at(chunk, p, lane, 2 * j), at(chunk, p, lane, 2 * j + 1)));
    return rows;
}

} // namespace

std::string megabytes(size_t bytes)
{
    return std::to_string((bytes + 999999) / 1000000);
}

size_t device_limit(const spx_rvfit_options *o, size_t taken, size_t least)
{
    const size_t given = o->max_device_mem, most = given > 0 ? given - std::min(given, taken) : (size_t)-1;
    return std::min(spx::usable_memory(std::min(least, most)), most);
}

device_plan::device_plan(const spx_rv_ctx *c, size_t limit) : limit_(limit)
{
    add_model(c, &full);
    if (c->coarse != nullptr)
        add_model(c->coarse, &coarse);
}

void device_plan::add_model(const spx_rv_ctx *c, templates *t)
{
    std::vector<arm> arms(c->narm);
    model &m = t->m;
    m.narm = (int)c->narm;
    m.ng = (int)c->grid.ng;
    m.nfree = (int)c->nfree;
    m.lanes = 1 + m.ng;
    m.interpolator = (int)c->interpolator;
    m.free_v = c->nfree > 0 && c->freeq[0] == 0;
    for (size_t k = (size_t)m.free_v; k < c->nfree; k++) {
        int g = -1;
        for (int i = 0; c->freeq[k] >= 2 && i < m.ng; i++)
            if (c->grid.gpar[i] == c->freeq[k] - 2)
                g = i;
        m.broadened[m.nbroadened++] = g;
    }
    for (int g = 0; g < m.ng; g++) {
        m.step[g] = (int)c->grid.stride[g];
        m.gpar[g] = c->grid.gpar[g];
    }
    m.nscan = (int)c->scan.n;
    m.scan_v0 = c->lo[0];
    m.scan_step = c->scan.step;
    m.reach = 1;
    m.width = (int)c->size.width;
    std::vector<std::vector<int>> first(c->narm);
    for (size_t i = 0; i < c->narm; i++)
        add_arm(c, c->arm[i], t, &arms[i], &first[i]);
    for (size_t i = 0; i < c->narm; i++) {
        const std::vector<double2> rows = fragments_of(c->arm[i].basis, c->arm[i].n, first[i], basis_tiles(m));
        arms[i].fragments = keep(rows.data(), rows.size());
    }
    if (c->ccf.n > 0 && c->ccf.nlag > 0)
        add_set(c, m, arms);
    m.arms = keep(arms.data(), arms.size());
}

void device_plan::need_all() const
{
    if (!has_all())
        throw spx::failure("the templates take " + megabytes(bytes) + " MB of a device's memory, of which " +
                           megabytes(limit_) + MORE_MEMORY);
}

template <typename T> const T *device_plan::keep(const T *from, size_t n)
{
    bytes += n * sizeof(T);
    if (bytes > limit_) /* counted only: it is said in the end how many they are */
        return nullptr;
    spx::array<uint8_t> a(n * sizeof(T));
    a.put(reinterpret_cast<const uint8_t *>(from), n * sizeof(T));
    kept_.push_back(std::move(a));
    return reinterpret_cast<const T *>(kept_.back().get());
}

void device_plan::add_arm(const spx_rv_ctx *c, const spx_rv_arm &from, templates *t, arm *a, std::vector<int> *first)
{
    const spx_setup *s = from.setup;
    const spx_pca *p = &s->pca;
    model &m = t->m;
    *a = {};
    a->n = (int)from.n;
    a->nt = (int)from.nt;
    a->columns = (a->nt + COLUMNS - 1) / COLUMNS * COLUMNS;
    a->pixel0 = m.pixels;
    a->sample0 = m.samples;
    a->comp0 = m.ncomp;
    a->stride = (int)from.stride;
    a->ndiag = (int)from.ndiag;
    a->dlnwave = s->dlnwave;
    a->lnwave = from.lnwave != nullptr ? keep(from.lnwave, from.n) : nullptr;
    const spx_rv_match &match = from.match;
    const size_t nmatch = match.matrix != nullptr ? match.nclass * SPX_RV_LEVELS * from.ndiag : 0;
    a->nclass = (int)match.nclass;
    if (nmatch > 0) {
        a->match = keep(match.matrix, nmatch * from.ndiag);
        a->match_lag = match.least > 0 ? keep(match.lag, nmatch * SPX_RV_PRODUCTS) : nullptr;
        a->match_place = keep(match.place, from.n);
    }
    a->npoly = (int)from.basis.n;
    m.npoly = std::max(m.npoly, a->npoly);
    a->basis_band = (int)from.basis.band;
    m.basis_band = std::max(m.basis_band, a->basis_band);
    *first = chunk_functions(from.basis, from.n, &m.span);
    a->first = keep(first->data(), first->size());
    a->lndet = from.basis.lndet;
    a->place = keep(from.place, from.n);
    a->leftout = from.leftout != nullptr ? keep(from.leftout, from.n) : nullptr;
    a->basis = keep(from.basis.value, from.stride * from.basis.n);
    const spx_rv_lines &lines = from.lines;
    a->per = (int)lines.per;
    a->band = (int)lines.band;
    if (lines.per > 0) {
        std::vector<int2> range(lines.n);
        for (size_t b = 0; b < lines.n; b++)
            range[b] = make_int2((int)lines.range[b][0], (int)(lines.range[b][0] + lines.range[b][1]));
        a->line = keep(lines.line, lines.n * 2 * SPX_RVFIT_MAX_POLY);
        a->range = keep(range.data(), lines.n);
        m.scan_entries = std::max(m.scan_entries, scan_entries(a->npoly, a->band));
        const bool in_order = std::is_sorted(range.begin(), range.end(), [](int2 p, int2 q) { return p.x < q.x; });
        m.scan_window = in_order && m.scan_window >= 0 ? std::max(m.scan_window, a->band + 1) : -1;
    }
    if (s->node != nullptr) {
        size_t n = 1;
        for (size_t q = 0; q < s->npar; q++)
            n *= s->naxis[q];
        a->node = c->interpolator == SPX_INTERPOLATE_NN ? nullptr : keep(s->node, n);
    }
    if (from.comp != nullptr) {
        std::vector<float> comp(p->ncomp * (size_t)a->columns);
        std::vector<double> mean((size_t)a->columns);
#pragma omp parallel for num_threads(spx_rv_plan_threads(c)) schedule(static)
        for (size_t k = 0; k < p->ncomp; k++)
            for (size_t i = 0; i < from.nt; i++)
                comp[k * (size_t)a->columns + i] =
                    from.comp[(i / SPX_RV_TILE * p->ncomp + k) * SPX_RV_TILE + i % SPX_RV_TILE];
        std::copy(from.mean, from.mean + from.nt, mean.begin());
        a->ncomp = (int)p->ncomp;
        a->nlarge = std::min(a->ncomp, (int)SPX_RV_LARGE);
        a->of_flux = p->of_flux;
        a->comp = keep(comp.data(), comp.size());
        a->mean = keep(mean.data(), mean.size());
        if (c->interpolator != SPX_INTERPOLATE_NN) {
            const size_t large = (size_t)a->nlarge;
            std::vector<float> coef(p->coef, p->coef + s->ntemp * p->ncomp), rest(s->ntemp * large);
            for (size_t t = 0; t < s->ntemp; t++)
                for (size_t k = 0; k < large; k++)
                    rest[t * large + k] = (float)(p->coef[t * p->ncomp + k] - (double)coef[t * p->ncomp + k]);
            a->coef = keep(coef.data(), coef.size());
            a->rest = keep(rest.data(), rest.size());
        }
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
    t->tiles = std::max(t->tiles, a->columns / COLUMNS);
    const double h = spx_rv_unmap(c, 1, c->hi[1]) / (SPX_C_KMS * a->dlnwave);
    m.reach = std::max(m.reach, (int)spx_rotation_reach(std::min(h, (double)MAX_REACH)));
}

void device_plan::add_bins(const spx_rv_arm &from, arm *a)
{
    size_t first[SPX_CONTINUUM_NODES + 1];
    int pixel[SPX_CONTINUUM_NODES + 1];
    a->bin_ln0 = log(from.setup->wmin);
    a->nbin = spx_continuum_bins(a->bin_ln0, log(from.setup->wmax), from.n, from.lnwave, &a->bin_width, first);
    std::copy(first, first + a->nbin + 1, pixel);
    a->bin = keep(pixel, (size_t)a->nbin + 1);
}

void device_plan::add_set(const spx_rv_ctx *c, model &m, std::vector<arm> &arms)
{
    m.set = spx_rv_set_of(c);
    m.set.vsini = keep(m.set.vsini, m.set.ntemp);
    m.set.place = keep(m.set.place, m.set.ntemp * m.set.npar);
    std::vector<lag_samples> windows(c->narm);
    std::vector<std::vector<float>> responses(c->narm);
#pragma omp parallel for num_threads(spx_rv_plan_threads(c)) schedule(dynamic, 1)
    for (size_t i = 0; i < c->narm; i++) {
        windows[i] = lag_window(c->arm[i], c->ccf.nlag);
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
        add_bins(from, &a);
        a.lag_at = keep(windows[i].at.data(), c->ccf.nlag);
        a.lag_weight = reinterpret_cast<const float4 *>(keep(from.lag_weight, 4 * c->ccf.nlag));
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
}

} // namespace rv
