/* Finds the levels at which the pixels of an amplifier are full (preproc/preproc.h). */
#include <math.h>

#include "base/mem.h"
#include "preproc/preproc.h"

/* Width of the window in units of the read noise, and the least, ADU; parts of it that it moves by. */
#define WIDTH     6.0
#define NARROWEST 3.0
enum { PARTS = 4, MOST_PARTS = 1 << 21 };
/* Pixels in the window, how many times as many as in the one below, and the part of them that may lie above. */
enum { FEWEST = 20, PILED = 5 };
#define ABOVE 0.02
/* The same of a pile that others lie above, and the windows on either side with which it is compared. */
enum { FEWEST_BELOW = 50, NEAR = 16 };
/* Part of the level that a pixel beside has, too. */
#define BESIDE 0.1
enum { ROWS = 8 };

/* Histogram of the values between level and saturation. */
typedef struct {
    double from, part;
    size_t n, *count;
} histogram;

/* A column of an amplifier: pixels from a level on, those of them in light, 1: it is a defect. */
typedef struct {
    size_t n, lit;
    int defect;
} column;

/* Values of an amplifier: as they were read, or, with `over`, with the mean level for that of their row or column. */
typedef struct {
    const spx_raw_image *im;
    const spx_amplifier *a;
    const spx_overscan *over;
    column *column; /* from the amplifier's first */
} pixels;

/* NAN where a value is not finite, of a defect column, or saturated as it was read. */
static double value(const pixels *p, long x, long y)
{
    const double v = p->im->data[(size_t)y * p->im->nx + (size_t)x];
    if (!isfinite(v) || p->column[x - p->a->data.x0].defect || (p->a->saturation > 0 && v >= p->a->saturation))
        return NAN;
    return p->over != NULL ? spx_overscan_above(p->over, v, x - p->a->data.x0, y - p->a->data.y0) + p->over->mean : v;
}

/* Counts what lies below `end`. */
static spx_status fill(const pixels *p, double end, histogram *h, spx_err *e)
{
    const spx_section *d = &p->a->data;
    double top = h->from;
    for (long y = d->y0; y < d->y1; y++)
        for (long x = d->x0; x < d->x1; x++) {
            const double v = value(p, x, y);
            top = v < end ? fmax(top, v) : top;
        }
    if (!((top - h->from) / h->part < MOST_PARTS))
        return SPX_OK;
    h->n = (size_t)((top - h->from) / h->part) + 1;
    if ((h->count = spx_alloc(h->n, sizeof *h->count, e)) == NULL)
        return SPX_EIO;
    for (long y = d->y0; y < d->y1; y++)
        for (long x = d->x0; x < d->x1; x++) {
            const double v = value(p, x, y);
            if (v >= h->from && v < end)
                h->count[(size_t)((v - h->from) / h->part)]++;
        }
    return SPX_OK;
}

static size_t sum(const histogram *h, size_t first)
{
    size_t n = 0;
    for (size_t k = first; k < first + PARTS; k++)
        n += h->count[k];
    return n;
}

static int in_pile(const spx_pile *pile, double v)
{
    return v >= pile->from && v < pile->to;
}

/* Do most pixels of a pile stand in runs along x that end beside a bright pixel, as spots do, which fade, in more
 * than one column and several rows? Those of hits and of defect columns, also of several side by side, do not. */
static int have_light_beside(const pixels *p, double zero, const spx_pile *pile)
{
    const spx_section *d = &p->a->data;
    const double bright = zero + BESIDE * (pile->from - zero);
    size_t n = 0, lit = 0, rows = 0, columns = 0;
    for (long x = d->x0; x < d->x1; x++)
        p->column[x - d->x0].n = p->column[x - d->x0].lit = 0;
    for (long y = d->y0; y < d->y1; y++) {
        const size_t before = lit;
        for (long x = d->x0, end; x < d->x1; x = end + 1) {
            for (end = x; end < d->x1 && in_pile(pile, value(p, end, y));)
                end++;
            const int light = (x > d->x0 && value(p, x - 1, y) > bright) || (end < d->x1 && value(p, end, y) > bright);
            for (long k = x; k < end; k++) {
                p->column[k - d->x0].n++;
                p->column[k - d->x0].lit += (size_t)light;
            }
            n += (size_t)(end - x);
            lit += light ? (size_t)(end - x) : 0;
        }
        rows += lit > before;
    }
    for (long x = d->x0; x < d->x1; x++)
        columns += p->column[x - d->x0].lit > 0;
    return 2 * lit > n && columns > 1 && rows >= ROWS;
}

/* Leaves columns out most of whose pixels from the level on are in no light; 0: there are none. */
static int leave_out_defects(const pixels *p)
{
    int any = 0;
    for (long k = 0; k < p->a->data.x1 - p->a->data.x0; k++) {
        column *c = p->column + k;
        c->defect = c->defect || (c->n >= ROWS && 2 * c->lit < c->n);
        any |= c->n > 0 && c->defect;
    }
    return any;
}

/* The highest level that hardly any value lies above, and how many more than in the window below; 0: there is none. */
static size_t find_highest(const histogram *h, double all, spx_pile *pile)
{
    size_t above = 0, best = 0;
    for (size_t k = h->n; k > 2 * PARTS && (double)above <= ABOVE * all; k--) {
        const size_t n = sum(h, k - PARTS), below = sum(h, k - 2 * PARTS);
        if (n >= FEWEST && n >= PILED * below && (double)above <= ABOVE * (double)n && 2 * (double)n < all &&
            n - below > best) {
            best = n - below;
            *pile = (spx_pile){.from = h->from + (double)(k - PARTS) * h->part, .to = INFINITY};
        } else if (best > 0) {
            break;
        }
        above += h->count[k - 1];
    }
    return best;
}

/* How many more values than in any window near it the one from `first` on has, where they pile up; 0: they do not. */
static size_t piled_in(const histogram *h, double all, size_t first)
{
    const size_t n = sum(h, first), low = first - NEAR * PARTS, last = first + NEAR * PARTS;
    size_t near = sum(h, first - PARTS);
    if (n < FEWEST_BELOW || n < PILED * near || 2 * (double)n >= all)
        return 0;
    for (size_t k = low; k <= last && k + PARTS <= h->n; k++) {
        const size_t other = k + PARTS <= first || k >= first + PARTS ? sum(h, k) : 0;
        near = other > near ? other : near;
    }
    return n >= PILED * near ? n - near : 0;
}

/* The highest level among values that may lie above it. Those that pile up scatter a little beyond the window. */
static size_t find_lower(const histogram *h, double all, spx_pile *pile)
{
    size_t best = 0;
    for (size_t k = h->n; k >= (NEAR + 1) * PARTS; k--) {
        const size_t n = piled_in(h, all, k - PARTS);
        if (n > best) {
            best = n;
            *pile = (spx_pile){.from = h->from + ((double)k - PARTS - 1) * h->part,
                               .to = h->from + ((double)k + 1) * h->part};
        } else if (best > 0) {
            break;
        }
    }
    return best;
}

/* The pile below those that are known, or the highest; the number by which it stands out, 0: there is none. */
static spx_status find_pile(const pixels *p, const spx_overscan *s, spx_pile *pile, size_t *most, spx_err *e)
{
    const spx_amplifier *a = p->a;
    const double width = fmax(WIDTH * (s->readnoise > 0 ? s->readnoise : a->readnoise / a->gain), NARROWEST);
    /* photons scatter by more than the window from here on: light has no such edge */
    histogram h = {.from = s->mean + width * width * a->gain, .part = width / PARTS};
    /* the values of a pile scatter below it, too */
    const double end = s->npile > 0 ? s->pile[s->npile - 1].from - width : INFINITY;
    spx_status st = fill(p, end, &h, e);
    const double all = (double)(a->data.x1 - a->data.x0) * (double)(a->data.y1 - a->data.y0);
    *most = s->npile == 0 ? find_highest(&h, all, pile) : 0;
    if (*most == 0)
        *most = find_lower(&h, all, pile);
    spx_free(h.count);
    return st;
}

/* The same where light is beside; without defect columns, where these pile up. */
static spx_status find(const pixels *p, const spx_overscan *s, spx_pile *pile, size_t *most, spx_err *e)
{
    spx_status st;
    int again;
    for (long k = 0; k < p->a->data.x1 - p->a->data.x0; k++)
        p->column[k].defect = 0;
    do {
        st = find_pile(p, s, pile, most, e);
        again = 0;
        if (st == SPX_OK && *most > 0 && !have_light_beside(p, s->mean, pile)) {
            *most = 0;
            again = leave_out_defects(p);
        }
    } while (again);
    return st;
}

spx_status spx_preproc_ceiling(const spx_raw *raw, const spx_amplifier *a, spx_overscan *s, spx_err *e)
{
    pixels p = {.im = &raw->image[a->image], .a = a};
    size_t most = 1;
    p.column = spx_alloc((size_t)(a->data.x1 - a->data.x0), sizeof *p.column, e);
    spx_status st = p.column != NULL ? SPX_OK : SPX_EIO;
    while (st == SPX_OK && most > 0 && s->npile < SPX_PILES) {
        spx_pile pile = {0}, charge = {0};
        size_t ncharge = 0;
        p.over = NULL;
        st = find(&p, s, &pile, &most, e);
        if (st == SPX_OK && s->model != SPX_OVERSCAN_CONSTANT && s->model != SPX_OVERSCAN_NONE) {
            p.over = s;
            st = find(&p, s, &charge, &ncharge, e);
        }
        if (ncharge > most) {
            most = ncharge;
            pile = charge;
            pile.charge = 1;
        }
        if (st == SPX_OK && most > 0)
            s->pile[s->npile++] = pile;
    }
    /* as many as fit: these are digits that are coarse, not wells */
    if (s->npile == SPX_PILES)
        s->npile = isinf(s->pile[0].to) ? 1 : 0;
    spx_free(p.column);
    return st;
}
