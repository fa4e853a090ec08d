/* Provides the search for cosmic-ray hits in a bundle: pixels far above the model of the deconvolved solution. The
 * noise of a residual is that of the pixel but for its leverage, what the model follows of it.
 *
 * 1. A pixel is rejected when its excess over the model is above the threshold and at least half of the largest within
 *    5 x 5 pixels: the solution is drawn towards a hit, and leaves residuals around it. Beside a pixel that is far
 * above the threshold a lower one holds: hits are tracks.
 * 2. The bins on new pixels get new equations without them; the iteration for the flux goes on where it was. Again,
 *    until nothing is new.
 * 3. Pixels whose excess over the model that was made without them is small come back; then 1 and 2 again.
 * 4. Neighbours of strong hits go, too: charge spreads.
 *
 * Bins that have lost much of their spots are tied to the next ones meanwhile. */
#include <math.h>
#include <stdint.h>
#include <string.h>

#include "base/clones.h"
#include "base/mem.h"
#include "extract/trace/reject_math.h"
#include "extract/trace/trace.h"

enum { CELL = 8, TIED = 1, WAS_TIED = 2, UNTIED = 4 };

typedef struct {
    const spx_trace_plan *p;
    const spx_trace_kernels *kernels;
    spx_trace_bundle *b;
    spx_trace_workspace *r;
    double *first, *whole;  /* [nbin][nl] diagonal, and seen, with nothing rejected */
    double *in_model;       /* [nbin][nl] flux that the model has */
    double *step;           /* [nbin][nl] what the model is to get: zeros but within change() */
    double *untied;         /* [nbin][nl] elements of M with the next bin, where bins are tied: without that */
    double *model;          /* the window's */
    float *ivar;            /* the window's weights with nothing rejected */
    float *most_ivar;       /* the window's 1/variance, or more */
    float *free;            /* the window's 1 - leverage */
    const float *readnoise; /* the window's; NULL: variance from ivar */
    unsigned char *flag;    /* the window's SPX_REJECT_SEEN, ... */
    spx_reject_window w;    /* these */
    unsigned char *touched; /* [nbin][nf] bins to get new equations */
    unsigned char *tied;    /* [nbin][nf] bins that are tied to the next: TIED, WAS_TIED; UNTIED: until lately */
    unsigned char *run;     /* [nbin] bins that are solved again */
    unsigned char *dirty;   /* [wny] rows with another model, or others rejected, and those near them */
    unsigned char *cell;    /* CELL x CELL pixels of the window that hold a changed one */
    uint32_t *list;         /* pixels of the window */
    size_t nlist, most;
} search;

/* Flags the pixels in use that spots of the bins from .. to - 1 cover. */
static void flag_spots(search *s, size_t from, size_t to, int flag)
{
    const spx_trace_plan *p = s->p;
    const spx_trace_bundle *b = s->b;
    const long nx = (long)p->job->image->nx;
    for (size_t i = from * b->nf; i < to * b->nf; i++) {
        const spx_bin_geometry *at = &b->at[i];
        if (b->state[i] != SPX_TRACE_SPOT)
            continue;
        const long x0 = at->xc > 0 ? at->xc : 0, x1 = at->xc + p->nx < nx ? at->xc + p->nx : nx;
        for (long y = at->yc > b->y0 ? at->yc : b->y0; y < at->yc + p->ny && y < b->y1 && x0 < x1; y++)
            memset(s->flag + (size_t)(y - b->wy0) * b->wnx + (size_t)(x0 - b->wx0), flag, (size_t)(x1 - x0));
    }
}

/* Hits are looked for where there is no light of wavelengths beyond the padding, which no bin has. They are kept where
 * hits outside, which are not looked for, do not matter. */
static void mark_seen(search *s)
{
    const size_t n = s->p->nbin, pad = s->p->pad;
    flag_spots(s, pad / 4, pad / 2, SPX_REJECT_SEEN);
    flag_spots(s, n - pad / 2, n - pad / 4, SPX_REJECT_SEEN);
    flag_spots(s, pad / 2, n - pad / 2, SPX_REJECT_SEEN | SPX_REJECT_INNER);
    for (size_t i = 0; i < s->b->wny * s->b->wnx; i++)
        if (!(s->ivar[i] > 0.0f))
            s->flag[i] = 0;
}

static spx_status append(search *s, size_t i, spx_err *e)
{
    if (s->nlist == s->most) {
        const size_t more = s->most > 0 ? 2 * s->most : 1024;
        uint32_t *list = spx_alloc(more, sizeof *list, e);
        if (list == NULL)
            return SPX_EIO;
        if (s->nlist > 0)
            memcpy(list, s->list, s->nlist * sizeof *list);
        spx_free(s->list);
        s->list = list;
        s->most = more;
    }
    s->list[s->nlist++] = (uint32_t)i;
    return SPX_OK;
}

enum { RUN = 32 }; /* pixels of a row that are looked at together */

/* Whether a flag is set in a run of pixels from i on, or beside one of them. */
static int is_flagged(const search *s, size_t i, int flag)
{
    const size_t row = s->b->wnx;
    if (i <= row)
        return 1;
    const unsigned char *const at[] = {s->flag + i - row - 1, s->flag + i - 1, s->flag + i + row - 1};
    uint64_t any = 0, eight; /* flags at a time */
    for (size_t j = 0; j < 3; j++)
        for (size_t x = 0; x < RUN + 2; x += sizeof eight) {
            memcpy(&eight, at[j] + (x < RUN ? x : RUN + 2 - sizeof eight), sizeof eight);
            any |= eight;
        }
    return (any & 0x0101010101010101 * (uint64_t)flag) != 0;
}

/* Makes the list of pixels of which wanted() is true, in the order of the window: they have the flag, or are beside one
 * that has it. */
static spx_status find(search *s, int (*wanted)(const spx_reject_window *, size_t), int flag, spx_err *e)
{
    const spx_trace_bundle *b = s->b;
    const size_t from = (size_t)(b->y0 - b->wy0) * b->wnx, to = (size_t)(b->y1 - b->wy0) * b->wnx;
    spx_status st = SPX_OK;
    s->nlist = 0;
    for (size_t i0 = from; i0 < to && st == SPX_OK; i0 += RUN) {
        if (to - i0 > RUN && !is_flagged(s, i0, flag))
            continue;
        for (size_t i = i0; i < i0 + RUN && i < to && st == SPX_OK; i++)
            if (wanted(&s->w, i))
                st = append(s, i, e);
    }
    return st;
}

/* Whether a pixel of a run from i on stands out of the model. */
SPX_CLONES
static int stands_out(const spx_reject_window *w, size_t i)
{
    const float *data = w->data + i, *ivar = w->ivar + i, *free = w->free + i;
    const double *model = w->model + i, least = spx_reject_least(w);
    int any = 0;
    for (size_t x = 0; x < RUN; x++)
        any |= spx_reject_stands_out(least, (double)data[x], (double)ivar[x], (double)free[x], model[x]);
    return any;
}

/* Makes the list of pixels to reject, of rows that are dirty; then none is. */
static spx_status find_new(search *s, spx_err *e)
{
    const spx_trace_bundle *b = s->b;
    spx_status st = SPX_OK;
    s->nlist = 0;
    for (size_t y = (size_t)(b->y0 - b->wy0); y < (size_t)(b->y1 - b->wy0); y++)
        for (size_t i0 = y * b->wnx, end = i0 + b->wnx; s->dirty[y] && i0 < end && st == SPX_OK; i0 += RUN) {
            if (end - i0 >= RUN && !stands_out(&s->w, i0))
                continue;
            for (size_t i = i0; i < i0 + RUN && i < end && st == SPX_OK; i++)
                if (spx_reject_is_new(&s->w, i))
                    st = append(s, i, e);
        }
    memset(s->dirty, 0, b->wny);
    return st;
}

/* Cells of a row of them; behind these one that says whether any of them holds a changed pixel. */
static size_t cells_across(const spx_trace_bundle *b)
{
    return b->wnx / CELL + 1;
}

/* Flags a pixel that has changed, and its cells. */
static void set_changed(search *s, size_t i, int changed)
{
    const size_t row = s->b->wnx, across = cells_across(s->b);
    unsigned char *cells = s->cell + i / row / CELL * (across + 1);
    s->flag[i] = (unsigned char)((s->flag[i] & ~SPX_REJECT_CHANGED) | (changed ? SPX_REJECT_CHANGED : 0));
    cells[i % row / CELL] = cells[across] = (unsigned char)changed;
}

/* Whether the spot of a bin covers a pixel that has changed. */
static int covers_changed(const search *s, const spx_bin_geometry *at)
{
    const spx_trace_plan *p = s->p;
    const spx_trace_bundle *b = s->b;
    const size_t across = cells_across(b);
    const size_t y0 = (size_t)(at->yc - b->wy0), y1 = y0 + (size_t)p->ny;
    const size_t x0 = (size_t)(at->xc - b->wx0), x1 = x0 + (size_t)p->nx;
    int near = 0;
    for (size_t y = y0 / CELL; y <= (y1 - 1) / CELL; y++) {
        const unsigned char *cells = s->cell + y * (across + 1);
        for (size_t x = x0 / CELL; cells[across] && x <= (x1 - 1) / CELL; x++)
            near |= cells[x];
    }
    for (size_t y = y0; near && y < y1; y++)
        for (size_t x = x0; x < x1; x++)
            if (s->flag[y * b->wnx + x] & SPX_REJECT_CHANGED)
                return 1;
    return 0;
}

/* Bins whose spots cover a pixel of the list. */
static void touch(search *s)
{
    const spx_trace_bundle *b = s->b;
    const size_t bins = s->p->nbin * b->nf;
    memset(s->touched, 0, bins);
    for (size_t j = 0; j < s->nlist; j++)
        set_changed(s, s->list[j], 1);
    for (size_t i = 0; i < bins && s->nlist > 0; i++)
        s->touched[i] = b->state[i] == SPX_TRACE_SPOT && covers_changed(s, &b->at[i]);
    for (size_t j = 0; j < s->nlist; j++)
        set_changed(s, s->list[j], 0);
}

/* Equations of the bins on the pixels of the list, which have other weights now; nothing is tied any more. */
static spx_status renew(search *s, spx_err *e)
{
    spx_trace_bundle *b = s->b;
    const size_t n = s->p->nbin, nf = b->nf, nl = b->nl;
    touch(s);
    for (size_t i = 0; i < n * nf; i++)
        if ((s->tied[i] & (TIED | UNTIED)) == TIED) {
            const size_t k = i / nf, f = i % nf;
            b->m[(k * b->nelem + 1) * nl + f] = s->untied[k * nl + f];
            s->tied[i] |= UNTIED;
        }
    const spx_status st = s->kernels->equations(s->p, b, s->r, s->touched, e);
    for (size_t k = 0; k < n && st == SPX_OK; k++)
        for (size_t f = 0; f < nf; f++)
            if (s->touched[k * nf + f])
                b->diagonal[k * nl + f] = b->m[k * b->nelem * nl + f];
    return st;
}

/* Ties bins that have lost much of their light to the next ones: one without any makes a hole that looks like a hit. */
static void tie(search *s)
{
    const spx_trace_bundle *b = s->b;
    const size_t n = s->p->nbin, nl = b->nl, nf = b->nf;
    for (size_t i = 0; i < n * nf; i++)
        s->tied[i] = s->tied[i] & TIED ? WAS_TIED : 0;
    for (size_t k = 0; k < n && b->hi[0] > 0; k++)
        for (size_t f = 0; f < nf; f++)
            if (b->seen[k * nl + f] < (1.0 - SPX_REJECT_TIED_LOSS) * s->whole[k * nl + f]) {
                s->tied[k * nf + f] |= TIED;
                if (k > 0)
                    s->tied[(k - 1) * nf + f] |= TIED;
            }
    for (size_t k = 0; k < n; k++)
        for (size_t f = 0; f < nf; f++) {
            const size_t i = k * nf + f;
            if (k + 1 == n || b->singular[f] || b->state[i] != SPX_TRACE_SPOT || b->state[i + nf] != SPX_TRACE_SPOT)
                s->tied[i] &= WAS_TIED;
            if (s->tied[i] == TIED || s->tied[i] == WAS_TIED) /* other equations than before */
                s->touched[i] = s->touched[i + nf] = 1;
            if (!(s->tied[i] & TIED))
                continue;
            const double strength = SPX_REJECT_TIED_STRENGTH * s->first[k * nl + f];
            s->untied[k * nl + f] = b->m[(k * b->nelem + 1) * nl + f];
            b->m[k * b->nelem * nl + f] += strength;
            b->m[(k + 1) * b->nelem * nl + f] += strength;
            b->m[(k * b->nelem + 1) * nl + f] -= strength;
        }
}

/* Bins to solve again, in runs that M does not couple, and the rows that they touch. */
static void find_runs(search *s)
{
    const spx_trace_bundle *b = s->b;
    const size_t n = s->p->nbin, nf = b->nf;
    memset(s->run, 0, n);
    for (size_t k = 0; k < n; k++)
        if (memchr(s->touched + k * nf, 1, nf)) {
            const size_t from = k > SPX_REJECT_AROUND ? k - SPX_REJECT_AROUND : 0,
                         to = k + SPX_REJECT_AROUND < n ? k + SPX_REJECT_AROUND + 1 : n;
            memset(s->run + from, 1, to - from);
        }
    for (size_t k = 0, end = 0; k < n; k++)
        if (s->run[k]) {
            if (end > 0 && k - end < spx_reject_apart((size_t)b->depth))
                memset(s->run + end, 1, k - end);
            end = k + 1;
        }
    for (size_t k = 0; k < n; k++)
        for (size_t i = k * nf; s->run[k] && i < (k + 1) * nf; i++)
            if (b->state[i] == SPX_TRACE_SPOT) {
                const long y = (long)b->at[i].yc - b->wy0, end = (long)b->wny;
                const long from = y > 2 ? y - 2 : 0, to = y + s->p->ny + 2 < end ? y + s->p->ny + 2 : end;
                memset(s->dirty + from, 1, (size_t)(to - from));
            }
}

/* Rejects the pixels of the list, or takes them back, with new equations. */
static spx_status apply(search *s, int back, spx_err *e)
{
    spx_trace_bundle *b = s->b;
    for (size_t j = 0; j < s->nlist; j++) {
        const size_t i = s->list[j];
        s->flag[i] =
            (unsigned char)(back ? s->flag[i] & ~(SPX_REJECT_HIT | SPX_REJECT_IS_STRONG) : s->flag[i] | SPX_REJECT_HIT);
        b->weight[i] = back ? s->ivar[i] : 0.0f;
    }
    return renew(s, e);
}

/* The same, and makes flux and model anew. *solved: 0 where that has none. */
static spx_status change(search *s, int back, int *solved, spx_err *e)
{
    spx_trace_bundle *b = s->b;
    spx_status st = apply(s, back, e);
    if (st == SPX_OK)
        st = spx_trace_regularise(s->p, b, e);
    if (st != SPX_OK)
        return st;
    tie(s);
    find_runs(s);
    /* for the variance of the model all factors are wanted in the end */
    *solved = s->kernels->factorise(s->p, b, s->readnoise ? NULL : s->run) == 0;
    if (*solved)
        st = s->kernels->improve(s->p, b, s->r, s->run, SPX_REJECT_TOLERANCE, solved, e);
    if (st != SPX_OK || !*solved)
        return st;
    const size_t n = s->p->nbin, nl = b->nl;
    for (size_t k = 0; k < n; k++) /* where nothing was solved again flux is as it was */
        for (size_t i = k * nl; s->run[k] && i < (k + 1) * nl; i++) {
            const double step = b->x[i] - s->in_model[i];
            s->step[i] = step * step * s->first[i] > SPX_REJECT_SAME * SPX_REJECT_SAME ? step : 0.0;
            s->in_model[i] += s->step[i];
        }
    st = s->kernels->render(s->p, b, s->r, s->step, s->model, e);
    for (size_t k = 0; k < n; k++)
        if (s->run[k])
            memset(s->step + k * nl, 0, nl * sizeof *s->step);
    return st;
}

/* Steps 1 and 2. */
static spx_status converge(search *s, int *changed, int *solved, spx_err *e)
{
    spx_status st = SPX_OK;
    for (int round = 0; round < SPX_REJECT_ROUNDS && st == SPX_OK && *solved; round++) {
        st = find_new(s, e);
        if (st != SPX_OK || s->nlist == 0)
            break;
        *changed = 1;
        for (size_t j = 0; j < s->nlist; j++)
            if (spx_reject_is_strong(&s->w, s->list[j]))
                s->flag[s->list[j]] |= SPX_REJECT_IS_STRONG;
        st = change(s, 0, solved, e);
    }
    return st;
}

/* 1 - leverage of pixels. */
SPX_CLONES
static void free_of(size_t npix, const double *leverage, float *to)
{
    for (size_t i = 0; i < npix; i++)
        to[i] = spx_reject_free(leverage[i]);
}

/* Memory, and where the search begins. */
static spx_status begin(search *s, spx_err *e)
{
    const spx_trace_plan *p = s->p;
    const spx_trace_bundle *b = s->b;
    const size_t row = p->nbin * b->nl, npix = b->wny * b->wnx, bins = p->nbin * b->nf;
    const size_t cells = (b->wny / CELL + 1) * (cells_across(b) + 1);
    double *vectors = spx_trace_workspace_get(s->r, SPX_BUFFER_REJECT, 5, row, e);
    /* weights in single precision, then bytes */
    double *window = spx_trace_workspace_get(
        s->r, SPX_BUFFER_REJECT_WINDOW,
        ((s->readnoise ? 13 : 9) * npix + 2 * bins + cells + p->nbin + b->wny) / sizeof(double) + 1, 1, e);
    s->model = spx_trace_workspace_get(s->r, SPX_BUFFER_MODEL, b->wny, b->wnx, e);
    if (!vectors || !window || !s->model || npix > UINT32_MAX)
        return SPX_EIO;
    s->first = vectors;
    s->whole = s->first + row;
    s->in_model = s->whole + row;
    s->step = s->in_model + row;
    s->untied = s->step + row;
    s->ivar = (float *)window;
    s->most_ivar = s->readnoise ? s->ivar + npix : s->ivar;
    s->free = s->most_ivar + npix;
    s->flag = (unsigned char *)(s->free + npix);
    s->touched = s->flag + npix;
    s->tied = s->touched + bins;
    s->cell = s->tied + bins;
    s->run = s->cell + cells;
    s->dirty = s->run + p->nbin;
    memset(s->step, 0, row * sizeof *s->step);
    memset(s->flag, 0, npix + 2 * bins + cells);
    memset(s->dirty, 1, b->wny);
    memcpy(s->ivar, b->weight, npix * sizeof *s->ivar);
    memcpy(s->first, b->diagonal, row * sizeof *s->first);
    memcpy(s->whole, b->seen, row * sizeof *s->whole);
    memcpy(s->in_model, b->x, row * sizeof *s->in_model);
    mark_seen(s);
    double *leverage = spx_trace_workspace_get(s->r, SPX_BUFFER_SMOOTH, b->wny, b->wnx, e);
    if (!leverage)
        return SPX_EIO;
    memset(s->model, 0, npix * sizeof *s->model);
    spx_status st = s->kernels->leverage(p, b, s->r, leverage, s->readnoise ? NULL : s->model, e);
    free_of(npix, leverage, s->free);
    if (st == SPX_OK && s->readnoise) { /* noise of the model must not make the variance small */
        st = spx_trace_smooth_light(p, s->kernels, b, s->r, 0, &s->model, e);
        for (size_t i = 0; i < npix && st == SPX_OK; i++)
            s->most_ivar[i] =
                s->ivar[i] > 0.0f ? (float)(1.0 / spx_model_variance((double)s->readnoise[i], s->model[i])) : 0.0f;
        memset(s->model, 0, npix * sizeof *s->model);
        if (st == SPX_OK)
            st = s->kernels->render(p, b, s->r, b->x, s->model, e);
    }
    s->w =
        (spx_reject_window){b->wnx, p->job->o->reject, b->data, s->most_ivar, s->readnoise, s->free, s->model, s->flag};
    return st;
}

spx_status spx_trace_reject(const spx_trace_plan *p, const spx_trace_kernels *kernels, spx_trace_bundle *b,
                            spx_trace_workspace *r, const float *readnoise, spx_trace_hits *out, spx_err *e)
{
    search s = {.p = p, .kernels = kernels, .b = b, .r = r, .readnoise = readnoise};
    int solved = 1;
    *out = (spx_trace_hits){0};
    spx_status st = begin(&s, e);
    if (st == SPX_OK)
        st = converge(&s, &out->changed, &solved, e);
    for (int chance = 0; chance < SPX_REJECT_CHANCES && st == SPX_OK && solved && out->changed; chance++) {
        for (size_t i = 0; i < b->wny * b->wnx; i++)
            if (s.flag[i] & SPX_REJECT_HIT) /* what was strong may have been another's light */
                s.flag[i] = (unsigned char)((s.flag[i] & ~SPX_REJECT_IS_STRONG) |
                                            (spx_reject_is_strong(&s.w, i) ? SPX_REJECT_IS_STRONG : 0));
        st = find(&s, spx_reject_comes_back, SPX_REJECT_HIT, e);
        if (st != SPX_OK || s.nlist == 0)
            break;
        st = change(&s, 1, &solved, e);
        if (st == SPX_OK)
            st = converge(&s, &out->changed, &solved, e);
    }
    /* the flux is needed for the variance alone */
    const int last = out->changed && solved, flux = p->job->o->variance == SPX_VARIANCE_MODEL;
    if (st == SPX_OK && last)
        st = find(&s, spx_reject_is_spilled_on, SPX_REJECT_IS_STRONG, e);
    if (st == SPX_OK && last)
        st = flux ? change(&s, 0, &solved, e) : apply(&s, 0, e);
    if (st == SPX_OK && last && solved)
        st = find(&s, spx_reject_is_outside, SPX_REJECT_HIT, e);
    if (st == SPX_OK && last && solved)
        st = flux ? change(&s, 1, &solved, e) : apply(&s, 1, e);
    out->solved = solved;
    out->flag = s.flag;
    out->is_hit = SPX_REJECT_HIT;
    out->whole = s.whole;
    spx_free(s.list);
    return st;
}
