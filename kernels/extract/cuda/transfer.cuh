/* Provides a call, the upload of its image in strips of columns, and the download of its results. */
#ifndef SPX_EXTRACT_CUDA_TRANSFER_CUH
#define SPX_EXTRACT_CUDA_TRANSFER_CUH

#include <algorithm>
#include <atomic>
#include <future>
#include <sys/mman.h>
#include <unistd.h>

#include "extract/cuda/contexts.cuh"
#include "extract/cuda/hook_frame.cuh"
#include "extract/cuda/reject.cuh"

namespace
{

/* Columns x0 .. x1 - 1 of the image. */
struct strip {
    size_t x0, x1;
};
enum { STRIP_UNIT = 32, STRIP_BESIDE = 16 };

/* An array of the output: where it goes, and whether its pages are locked; `each` values a bin. */
struct result {
    double *to;
    bool direct;
    size_t each;
};
enum { RESULTS = 5 };

/* Shares of a frame's bundles that its pieces have, added up, where each has a slot of its own and there are bundles
 * enough: the first begins as soon as its strip is there, and beside the last there is nothing else in the end. 0.3 ms
 * less for an r frame, 0.8 for z, than with equal ones. */
const size_t UP_TO[SLOTS + 1] = {0, 4, 10, 16, 20};
enum { FOR_UNEVEN = 8 };

/* What the pieces of a call share. */
struct call {
    const spx_trace_plan *p;
    const spx_trace_bundle *list;
    size_t nbundle;
    int per_piece, nslot; /* most bundles of a piece; pieces under way at a time */
    size_t npiece;
    bool uneven; /* see UP_TO */
    params k;
    result results[RESULTS];
    const device_frame *retained; /* NULL, or where the frame is until a hook has seen it */
    found_hits *found;            /* NULL, or [nbundle] for what a search finds, which is all that is done */
    uint32_t *mask;               /* of the frame, for a search */
    bool there;                   /* the image is, with weights: nothing is sent */
    bool covered;                 /* that the spectra see enough of it is known */
    const unsigned *hits;         /* on the device: pixels without weight, */
    size_t nhit;                  /* and their number */
    int *why_host;
    context *c;
    launch_gate *begun;
    char *memory[SLOTS]; /* memory of a slot, and its size */
    size_t each;
    strip strips[STRIPS];
    std::shared_future<bool> sent[STRIPS]; /* true: on its way, strip_there will say when it is there */
    bool goes_beyond;                      /* light beyond the spots is taken off before pieces begin: */
    std::shared_future<bool> dark;         /* true: on its way, `dark` of the context will say when it is off */

    /* First bundle of piece i; of i = npiece: all bundles. */
    size_t start(size_t i) const
    {
        return uneven ? nbundle * UP_TO[i] / UP_TO[SLOTS] : std::min(i * (size_t)per_piece, nbundle);
    }
};

/* Cuts the image into strips of columns in the order of the pieces, so that the first can begin while those of the
 * others travel: piece i needs strips 0 .. i, those beyond the slots all that any needs. Where traces are not in the
 * order of their columns, that makes the first strips wider. The last strip is what no bundle needs. STRIP_BESIDE
 * columns beside a bundle's are read with them (see window::add_rows()), with pixels of spots that are 0: what is there
 * has to be weights, as 0 times what is not a number is none. */
void cut_image(call &job)
{
    const size_t nx = (size_t)job.k.ccd_nx;
    const auto column = [&](long x) { return x < 0 ? 0 : std::min((size_t)x, nx); };
    size_t begin = nx;
    for (size_t b = 0; b < job.nbundle; b++)
        begin = std::min(begin, column(job.list[b].wx0 - STRIP_BESIDE));
    begin = begin / STRIP_UNIT * STRIP_UNIT;
    size_t end = begin;
    for (size_t i = 0; i < SLOTS; i++) {
        size_t to = i + 1 < SLOTS ? end : nx;
        for (size_t b = job.start(std::min(i, job.npiece)); b < job.start(std::min(i + 1, job.npiece)); b++)
            to = std::max(to, column(job.list[b].wx0 + job.k.wide + STRIP_BESIDE));
        to = std::min((to + STRIP_UNIT - 1) / STRIP_UNIT * STRIP_UNIT, nx);
        job.strips[i] = {end, to};
        end = to;
    }
    job.strips[SLOTS] = {0, begin};
}

/* The image on its way to the device, strip by strip: fetched from there by the device where all of its pages are
 * locked, else carried by the staging workers in chunks of rows, with the mask folded into ivar. */
class sender
{
  public:
    sender(call &job, const unsigned *mask, unsigned long long *counted)
        : job_(job), image_(*job.p->job->image), mask_(mask), counted_(counted),
          direct_(job.there || (spx_mem_pagelocked(image_.ivar) && spx_mem_pagelocked(image_.data) &&
                                (!image_.mask || spx_mem_pagelocked(image_.mask))))
    {
        for (int i = 0; i < STRIPS; i++) {
            job.sent[i] = sent_[i].get_future().share();
            left_[i] = 1;
        }
    }
    bool direct() const
    {
        return direct_;
    }

    /* Every strip will be sent, or said to have failed, whatever this returns. */
    spx_status begin(spx_err *e)
    {
        spx_status st = whether([&]() { cleared(); }, e);
        for (int i = 0; i < STRIPS; i++) {
            if (st == SPX_OK && !job_.there)
                st = whether([&]() { direct_ ? fetched(i) : posted(i); }, e);
            st = one_less(i, st, e);
        }
        return st;
    }

  private:
    call &job_;
    const spx_image &image_;
    const unsigned *mask_;
    unsigned long long *counted_;
    const bool direct_;
    std::atomic<int> left_[STRIPS]; /* chunks of a strip, and one for all of them */
    std::atomic<bool> failed_{false};
    std::promise<bool> sent_[STRIPS];

    /* What becomes of a part of the work. */
    template <typename F> static spx_status whether(F f, spx_err *e)
    {
        return spx::guarded("extract", e, [&]() {
            f();
            return SPX_OK;
        });
    }

    void cleared() /* bad and masked pixels of an image that is there are counted */
    {
        const int first = job_.there ? (int)PIXELS_SEEN : 0;
        spx::check(cudaMemsetAsync(counted_ + first, 0, (PIXEL_COUNTS - first) * sizeof *counted_, job_.c->upload),
                   "device memory");
    }

    void fetched(int which)
    {
        const strip &part = job_.strips[which];
        const size_t pitch = image_.nx * sizeof(float), x = part.x0, width = (part.x1 - part.x0) * sizeof(float);
        const auto fetch = [&](const void *to, const void *from) {
            spx::check(cudaMemcpy2DAsync((float *)to + x, pitch, (const float *)from + x, pitch, width, image_.ny,
                                         cudaMemcpyHostToDevice, job_.c->upload),
                       "copy");
        };
        if (width == 0)
            return;
        fetch(job_.k.weight, image_.ivar);
        fetch(job_.k.data, image_.data);
        if (mask_)
            fetch(mask_, image_.mask);
    }

    void posted(int which)
    {
        const strip &part = job_.strips[which];
        const size_t most = CHUNK_BYTES / sizeof(float);
        for (int array = 0; array < 2; array++)
            for (size_t x = part.x0; x < part.x1; x += most) {
                const size_t width = std::min(part.x1 - x, most), high = most / width;
                for (size_t y = 0; y < image_.ny; y += high) {
                    const size_t nrow = std::min(image_.ny - y, high);
                    left_[which]++;
                    try {
                        job_.c->staging.post([=](spx_err *mine) {
                            const spx_status st = whether([&]() { carried(array == 0, x, y, width, nrow); }, mine);
                            return one_less(which, st, mine);
                        });
                    } catch (...) {
                        left_[which]--;
                        throw;
                    }
                }
            }
    }

    /* Some rows of a strip: of ivar, or of the data. */
    void carried(bool ivar, size_t x, size_t y, size_t width, size_t nrow)
    {
        chunk c;
        job_.c->staging.take(true, &c);
        try {
            filled(c, ivar, x, y, width, nrow);
        } catch (...) {
            job_.c->staging.give(c);
            throw;
        }
        job_.c->staging.give(c);
    }

    void filled(const chunk &c, bool ivar, size_t x, size_t y, size_t width, size_t nrow)
    {
        const size_t at = y * image_.nx + x, pitch = image_.nx * sizeof(float), bytes = width * sizeof(float);
        const float *from = (ivar ? image_.ivar : image_.data) + at;
        float *to = (float *)c.at;
        spx::check(cudaEventSynchronize(c.used), "event");
        for (size_t row = 0; row < nrow; row++, from += image_.nx, to += width)
            if (ivar && image_.mask) /* is weighed, and counted, as with the mask beside it */
                fold(to, from, image_.mask + at + row * image_.nx, width);
            else
                memcpy(to, from, bytes);
        spx::check(cudaMemcpy2DAsync((float *)(ivar ? job_.k.weight : job_.k.data) + at, pitch, c.at, bytes, bytes,
                                     nrow, cudaMemcpyHostToDevice, job_.c->upload),
                   "copy");
        spx::check(cudaEventRecord(c.used, job_.c->upload), "event");
    }

    /* On the bits, which compilers have vectors for: finite values from 0 up are those below infinity's. */
    static void fold(float *to, const float *ivar, const uint32_t *mask, size_t n)
    {
        const uint32_t infinity = 0x7f800000;
        for (size_t i = 0; i < n; i++) {
            uint32_t bits;
            memcpy(&bits, &ivar[i], sizeof bits);
            bits = mask[i] != 0 && bits < infinity ? 0 : bits;
            memcpy(&to[i], &bits, sizeof bits);
        }
    }

    /* A chunk's end, and what became of it: with the last of a strip its weights are made, and pieces are told. */
    spx_status one_less(int which, spx_status st, spx_err *e)
    {
        if (st != SPX_OK)
            failed_ = true;
        if (--left_[which] > 0)
            return st;
        if (!failed_ && (st = whether([&]() { strip_weights(which); }, e)) != SPX_OK)
            failed_ = true;
        sent_[which].set_value(!failed_);
        return st;
    }

    void strip_weights(int which)
    {
        const strip &part = job_.strips[which];
        if (!job_.there)
            pixel_weights(job_.k, direct_ ? mask_ : NULL, part.x0, part.x1, counted_, job_.c->upload);
        leave_out_pixels(job_.k, job_.hits, job_.nhit, part.x0, part.x1, job_.c->upload);
        spx::check(cudaEventRecord(job_.c->strip_there[which], job_.c->upload), "event");
    }
};

/* n bytes of the device's into a chunk, when what was in it has been used. */
void fetch(slot *s, const chunk &c, const char *from, size_t n)
{
    spx::check(cudaStreamWaitEvent(s->stream, c.used, 0), "stream");
    spx::check(cudaMemcpyAsync(c.at, from, n, cudaMemcpyDeviceToHost, s->stream), "copy");
    spx::check(cudaEventRecord(c.used, s->stream), "event");
}

/* To part of a block; `direct`: it is locked. Else it is there when the staging workers have finished. */
void pull(staging_workers *staging, slot *s, char *to, bool direct, const char *from, size_t n)
{
    spx::to_host += n;
    if (direct) {
        spx::check(cudaMemcpyAsync(to, from, n, cudaMemcpyDeviceToHost, s->stream), "copy");
        return;
    }
    for (size_t at = 0; at < n; at += CHUNK_BYTES) {
        const size_t part = std::min(n - at, (size_t)CHUNK_BYTES);
        const auto carry = [=](const chunk &c, spx_err *mine) {
            const cudaError_t code = cudaEventSynchronize(c.used);
            if (code == cudaSuccess)
                memcpy(to + at, c.at, part);
            staging->give(c);
            return spx::guarded("extract", mine, [&]() {
                spx::check(code, "results");
                return SPX_OK;
            });
        };
        chunk c;
        staging->take(false, &c);
        try {
            fetch(s, c, from + at, part);
            staging->post([=](spx_err *mine) { return carry(c, mine); });
        } catch (...) {
            staging->give(c);
            throw;
        }
    }
}

/* New memory's pages come when it is written to, which takes longer than what is copied there: staging workers fetch
 * those of the results as soon as the image is on its way, in the order of the pieces. Without a word of the contents,
 * so that it does not matter who comes first, nor whether the system can do it; in parts, as who needs to change what
 * the process has mapped, such as for a new thread's stack, waits for the part that is under way. */
void fetch_pages(const call &job)
{
#ifdef MADV_POPULATE_WRITE
    const spx_extract_options *o = job.p->job->o;
    const size_t page = (size_t)sysconf(_SC_PAGESIZE), most = (size_t)4 << 20;
    for (size_t i = 0; i < job.npiece; i++) {
        const spx_trace_bundle *b0 = job.list + job.start(i), *b1 = job.list + job.start(i + 1) - 1;
        const size_t f0 = std::max(b0->fibre0, o->first), f1 = std::min(b1->fibre0 + b1->nf, o->first + o->nspec);
        for (const result &r : job.results) {
            const size_t row = job.p->job->nwave * r.each * sizeof(double);
            const size_t p0 = (size_t)r.to + (f0 - o->first) * row, p1 = (size_t)r.to + (f1 - o->first) * row;
            for (size_t at = p0 / page * page, next; at < p1 && !r.direct; at = next) { /* locked pages are there */
                next = std::min((at / most + 1) * most, p1);
                job.c->staging.post([=](spx_err *) {
                    (void)madvise((void *)at, next - at, MADV_POPULATE_WRITE);
                    return SPX_OK;
                });
            }
        }
    }
#else
    (void)job;
#endif
}

/* The slot's stream goes on when the pixels are there that a piece needs; SPX_EDEVICE where they do not come. */
spx_status wait_for_pixels(const call &job, slot *s, size_t number)
{
    const size_t last = std::min(number, (size_t)SLOTS - 1);
    for (size_t i = 0; i <= last; i++) { /* a strip may be there before the one before it */
        if (!job.sent[i].get())
            return SPX_EDEVICE; /* the one who sends it says why */
        spx::check(cudaStreamWaitEvent(s->stream, job.c->strip_there[i], 0), "stream");
    }
    if (job.goes_beyond) {
        if (!job.dark.get())
            return SPX_EDEVICE;
        spx::check(cudaStreamWaitEvent(s->stream, job.c->dark, 0), "stream");
    }
    return SPX_OK;
}

} // namespace

#endif
