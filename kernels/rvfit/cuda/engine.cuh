/* The engine that search/search.h asks, on a CUDA device. */
#ifndef SPX_RVFIT_CUDA_ENGINE_CUH
#define SPX_RVFIT_CUDA_ENGINE_CUH

#include <vector>

#include "rvfit/cuda/plan.cuh"

namespace rv
{

enum {
    ITEMS = 1 << 16, /* sums over pixels of one launch, */
    SCANS = 1 << 20  /* and values of scans: blocks of few stars leave a device idle */
};

/* One worker: its stream, and the data of the group that it has. */
class engine
{
  public:
    engine(const spx_rv_ctx *c, const device_plan *s, int threads);
    engine(const engine &) = delete;
    engine &operator=(const engine &) = delete;
    ~engine()
    {
        (void)cudaEventDestroy(done_);
        (void)cudaStreamDestroy(stream_);
    }

    /* Device memory of a group: of each star, and of each exposure. */
    static size_t star_bytes(const device_plan &p);
    static size_t exposure_bytes(const spx_rv_ctx *c, const device_plan &p);

    void load(size_t n, spx_rv_spectra *const *w);

    void coarsen(size_t n, spx_rv_spectra *const *w);

    void correlate(size_t n, spx_rv_spectra *const *w, spx_rv_candidates *candidates);

    void curves(size_t n, spx_rv_spectra *const *w, spx_rvfit *out);

    void eval(size_t n, spx_rv_spectra *const *w, const double (*x)[SPX_MAX_FIT], const size_t *const *cell,
              spx_rv_value *out);

    void values(size_t n, spx_rv_spectra *const *w, const double (*x)[SPX_MAX_FIT], const size_t *first,
                const double *v, double *f);

    void scan(size_t n, spx_rv_spectra *const *w, const double (*x)[SPX_MAX_FIT]);

    void models(size_t n, spx_rv_spectra *const *w, const double (*x)[SPX_MAX_FIT]);

    void reject(size_t n, spx_rv_spectra *const *w, double sigma, size_t *found);

    void jitter(size_t n, spx_rv_spectra *const *w, size_t *changed);

    void keep_models(size_t n, spx_rv_spectra *const *w);

    void misfit(size_t n, spx_rv_shared_misfit *s);

    void shifted(size_t n, const spx_rv_shifts *s);

    void inform(size_t n, const spx_rv_information *s);

    /* The hook, for stars first ... first + n - 1 of *out, which are the group's: residuals and models are computed
     * into arrays that the hook gets, and numbers of the host's go to it beside them. */
    spx_status call_hook(spx_hook *hook, int device, const spx_rvfit *out, size_t first, size_t n, spx_err *e);

    /* Stars of the next group come, into workspaces of g. */
    void begin(spx_rv_group *g);

    /* Points that are computed beside others in little more time: those of a star, one after another by the host. */
    size_t fill() const
    {
        enum { FILL = 48 };
        return c_->interpolator == SPX_INTERPOLATE_CUBIC || c_->interpolator == SPX_INTERPOLATE_NN ? FILL : 0;
    }

  private:
    struct place {
        size_t piece, pixel, pixels, band; /* first piece; pixels of all of them */
        bool loaded, has_templates;
        double at[SPX_MAX_FIT]; /* point of the templates in knots_, where they are broadened */
    };

    /* The model, or the coarse one, and the group's data as it sees them. */
    struct observed {
        explicit observed(const templates &t) : m(t.m), tiles(t.tiles)
        {
        }
        const model m;
        const int tiles;
        std::vector<place> slot;
        std::vector<rv::piece> piece;
        spx::device_buffer<double> flux, ie;
        spx::device_buffer<rv::piece> pieces;
    };

    template <typename T> void to_device(T *to, const T *from, size_t n);
    template <typename T> void to_host(T *to, const T *from, size_t n);
    template <typename T> void clear(T *p, size_t n)
    {
        spx::check(cudaMemsetAsync(p, 0, n * sizeof(T), stream_), "device memory");
    }
    template <typename T> T *send(spx::device_buffer<T> &to, const T *from, size_t n);
    /* Without spinning: the workers of a device would keep as many processors busy. */
    void wait()
    {
        spx::check(cudaEventRecord(done_, stream_), "event");
        spx::check(cudaEventSynchronize(done_), "stream");
    }

    template <int T> void allow(const model &m);
    void shared_limits();

    /* Where piece j of a star, or of an exposure of one, is among all pieces. */
    int piece_of(const spx_rv_spectra *w, size_t j) const
    {
        return (int)(full_.slot[w->slot].piece + (w->part != nullptr ? w->part[j] : j));
    }

    /* Pieces j ... end - 1 of a star among all pieces. */
    int2 piece_range(const spx_rv_spectra *w, size_t j, size_t end) const
    {
        const size_t first = full_.slot[w->slot].piece;
        return make_int2((int)(first + j), (int)(first + end));
    }

    bool loaded(const spx_rv_spectra *w) const
    {
        return w->slot < full_.slot.size() && full_.slot[w->slot].loaded;
    }

    /* Where the data of a group's stars will be. */
    void lay_out(size_t n, spx_rv_spectra *const *w);

    /* Data of a few stars to the device; of those that are unread as their spectra have them, with the bands of their
     * resolution matrices made there. */
    void stage(size_t n, spx_rv_spectra *const *w);

    /* Bands of few stars that are unread, of rows of their resolution matrices, [elements]. */
    void match(size_t n, spx_rv_spectra *const *w, const double *rows, size_t elements);

    /* Errors of pieces with a jitter: 2 sum ln e of each, until the next call. */
    const double *errors(const std::vector<jittered> &list);

    /* Errors of those that are unread, where an arm's jitter is given. */
    void given_jitter(size_t n, spx_rv_spectra *const *w);

    /* Reads the pixels of those that are unread. */
    void read(size_t n, spx_rv_spectra *const *w);

    /* chi^2 of the components at all lags, [n][components of all arms][lags], until the next call: of pieces
     * ranges[n][narm] of each arm together. */
    const float *lags(size_t n, const int2 *ranges);

    /* Models of n stars to the host, in double precision, or those of unread stars as they are kept. */
    void models_to_host(size_t n, spx_rv_spectra *const *w);
    void kept_to_host(size_t n, spx_rv_spectra *const *w);

    template <int L>
    void templates_of(const observed &d, size_t n, const spx_rv_stencil *s, float *single, double *large,
                      double *rotation, double *work, double *flux, float *slope);

    /* Templates of n points: sampled, with derivatives, or their knots, of slots. */
    void make_templates(const observed &d, size_t n, const spx_rv_stencil *from, bool deriv, const double *velocity,
                        const int *slot);

    /* Templates with derivatives as resolution matrices of pieces make them, one for each piece of an arm; `at` of the
     * items is changed to these. */
    void resolve(const observed &d, size_t n, spx_rv_spectra *const *w, std::vector<item> &items);

    /* Templates at x[k] into the knots of the stars that have not these already. */
    void templates_at(size_t n, spx_rv_spectra *const *w, const double (*x)[SPX_MAX_FIT]);

    /* The same of stars that have no lines. */
    void scan_as_values(size_t n, spx_rv_spectra *const *w, const double (*x)[SPX_MAX_FIT],
                        const std::vector<double> &v);

    bool has_lines(const spx_rv_spectra *w) const;

    template <int PER> void launch_scan(size_t n, const item *items, double *out);
    template <int W, int ND> void launch_narrow_scan(size_t n, const item *items, double *out);

    /* Scans of items, [items][nscan], until the next call. */
    const double *scans(const std::vector<item> &items);

    size_t value_bytes() const;
    template <int T> void launch_values(size_t n, const item *items, double *out);

    /* The objective of items without derivatives, until the next call. */
    const double *objectives(const std::vector<item> &items);

    template <int T> void launch(const observed &d, size_t n, int mode, const item *items, double *out, double *models);

    /* Sums over pixels, result[items][width], until the next call; so many at a time that their memory is little. Of a
     * MODEL, the models, too. */
    const double *sums(const observed &d, const std::vector<item> &items, int mode, size_t width,
                       double *models = nullptr);

    const spx_rv_ctx *c_;
    observed full_, coarse_;
    size_t widest_; /* of windows */
    int threads_;
    size_t few_; /* points take less than it takes to call the threads, unless a simplex has to be looked for */
    cudaStream_t stream_ = nullptr;
    cudaEvent_t done_ = nullptr;
    spx_rv_group *group_ = nullptr;
    spx::device_buffer<double> sigma_, level_, other_, next_, score_, band_, raw_, model_, large_, rotation_, work_,
        template_, resolved_, t_, velocity_, result_;
    spx::device_buffer<float> single_, slope_, dt_, resolved_dt_, spectrum_, sample_, lags_, chi_, best_;
    spx::device_buffer<uint8_t> good_;
    spx::device_buffer<spx_rv_read> read_;
    spx::device_buffer<double2> knots_;
    spx::device_buffer<float2> transform_;
    spx::device_buffer<spx_rv_stencil> stencil_;
    spx::device_buffer<spx_rv_candidates> candidates_;
    spx::device_buffer<rejection> rejections_;
    spx::device_buffer<jittered> jittered_;
    spx::device_buffer<arm_of_star> arms_;
    spx::device_buffer<shared_misfit> misfits_;
    spx::device_buffer<double2> pairs_;
    spx::device_buffer<spx_rv_rejected> rejected_;
    spx::device_buffer<shifts> shifts_;
    spx::device_buffer<informed> informed_;
    spx::device_buffer<hook_row> hook_rows_; /* for a hook, as are all of these */
    spx::device_buffer<float> residual_, models_;
    spx::device_buffer<spx_rvfit_star> star_;
    spx::device_buffer<size_t> first_, row_;
    spx::device_buffer<double> wavelength_[SPX_MAX_ARM];
    spx::device_buffer<item> item_;
    spx::device_buffer<int> entry_, at_;
    spx::device_buffer<int2> ranges_;
    spx::pinned_buffer<double> host_double_, host_velocity_, host_result_, host_objective_;
    spx::pinned_buffer<float> host_float_;
    spx::pinned_buffer<uint8_t> host_byte_;
    spx::pinned_buffer<spx_rv_read> host_read_;
    spx::pinned_buffer<spx_rv_rejected> host_rejected_;
    spx::pinned_buffer<double2> host_pairs_;
    spx::pinned_buffer<spx_rv_stencil> host_stencil_;
    spx::pinned_buffer<spx_rv_candidates> host_candidates_;
    spx::pinned_buffer<item> host_item_;
    spx::pinned_buffer<int> host_int_;
};

/* The functions of an engine, as the search calls them. */
spx_rv_engine engine_table(engine *e, int threads, size_t together);

} // namespace rv

#endif
