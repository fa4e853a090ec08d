/* Pre-processes a raw exposure on the CPU (preproc/preproc.h). */
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "preproc/preproc.h"

typedef struct {
    const spx_raw *raw;
    const spx_layout *l;
    const spx_preproc_masters *m;
    const spx_preproc_options *o;
    spx_image *out;
    const spx_overscan *over;
} work;

/* Pixel of the data section of an amplifier, above its level: ADU. */
static double above_level(const work *w, size_t amp, long x, long y)
{
    const spx_amplifier *a = &w->l->amp[amp];
    const spx_raw_image *im = &w->raw->image[a->image];
    return spx_overscan_above(&w->over[amp], im->data[(size_t)(a->data.y0 + y) * im->nx + (size_t)(a->data.x0 + x)], x,
                              y);
}

/* Cross-talk into pixel (x,y) of an amplifier's data section: counted from the corners that are read first, amplifiers
 * read the same pixel at the same time. */
static double crosstalk(const work *w, size_t amp, long x, long y)
{
    const spx_amplifier *a = &w->l->amp[amp];
    const long nx = a->data.x1 - a->data.x0, ny = a->data.y1 - a->data.y0;
    const long i = a->right ? nx - 1 - x : x, j = a->top ? ny - 1 - y : y;
    double sum = 0;
    for (size_t s = 0; s < w->l->namp; s++) {
        const double k = w->l->crosstalk[amp * w->l->namp + s];
        const spx_amplifier *b = &w->l->amp[s];
        const long mx = b->data.x1 - b->data.x0, my = b->data.y1 - b->data.y0;
        if (k == 0 || i >= mx || j >= my)
            continue;
        const double u = above_level(w, s, b->right ? mx - 1 - i : i, b->top ? my - 1 - j : j);
        sum += isfinite(u) ? k * u : 0;
    }
    return sum;
}

static double variance(const spx_master *m, size_t i)
{
    return m->ivar[i] > 0 ? 1 / (double)m->ivar[i] : 0;
}

/* Pixel (x,y) of the data section of an amplifier, which is pixel i of the image. */
static void one_pixel(const work *w, size_t amp, long x, long y, size_t i)
{
    const spx_amplifier *a = &w->l->amp[amp];
    const spx_preproc_masters *m = w->m;
    const spx_overscan *s = &w->over[amp];
    const double v =
        w->raw->image[a->image].data[(size_t)(a->data.y0 + y) * w->raw->image[a->image].nx + (size_t)(a->data.x0 + x)];
    double u = above_level(w, amp, x, y), flat = 1;
    uint32_t mask = m->bad != NULL ? m->bad[i] : 0;
    if (!isfinite(v)) {
        w->out->mask[i] = mask | SPX_CCD_BAD;
        return;
    }
    if ((a->saturation > 0 && v >= a->saturation) || spx_overscan_piled(s, v, u))
        mask |= SPX_CCD_SATURATED;
    if (w->l->crosstalk != NULL)
        u -= crosstalk(w, amp, x, y);
    double e = a->gain * u, noise = s->readnoise > 0 ? s->readnoise * a->gain : a->readnoise;
    double var = noise * noise + s->level_var * a->gain * a->gain;
    if (m->bias != NULL) {
        e -= m->bias->data[i];
        var += variance(m->bias, i);
        mask |= m->bias->mask[i];
    }
    if (a->nlinear > 0) {
        const double adu = e / a->gain;
        double factor = 0;
        for (size_t k = a->nlinear; k-- > 0;)
            factor = (factor + a->linear[k]) * adu;
        e *= 1 + factor;
    }
    if (m->dark != NULL) {
        const double dark = w->o->exptime * m->dark->data[i];
        e -= dark;
        var += w->o->exptime * w->o->exptime * variance(m->dark, i) + fmax(dark, 0);
        mask |= m->dark->mask[i];
    }
    if (m->flat != NULL) {
        flat = m->flat->data[i];
        mask |= m->flat->mask[i];
    }
    w->out->data[i] = (float)(e / flat);
    w->out->readnoise[i] = (float)(sqrt(var) / flat);
    w->out->mask[i] = mask;
}

/* Light of pixel (x,y): the mean of REACH pixels on both sides along y, where their scatter is that of noise (chi2 a
 * degree of freedom below 3), else its own. */
static double light_of(const spx_image *im, size_t x, size_t y)
{
    enum { REACH = 4 };
    const size_t lo = y > REACH ? y - REACH : 0, hi = y + REACH < im->ny ? y + REACH : im->ny - 1;
    double n = 0, sum = 0, chi2 = 0;
    for (size_t k = lo; k <= hi; k++)
        if (im->mask[k * im->nx + x] == 0) {
            sum += im->data[k * im->nx + x];
            n++;
        }
    const double own = im->data[y * im->nx + x], mean = n > 0 ? sum / n : own;
    for (size_t k = lo; k <= hi; k++) {
        const size_t i = k * im->nx + x;
        const double d = im->data[i] - mean, noise = im->readnoise[i];
        chi2 += im->mask[i] == 0 ? d * d / (fmax(mean, 0) + noise * noise) : 0;
    }
    return n > 2 && chi2 < 3 * (n - 1) ? mean : own;
}

/* Inverse variances of pixels without flags. */
static void weigh(const work *w)
{
    spx_image *im = w->out;
    const spx_master *f = w->m->flat;
#pragma omp parallel for schedule(static) num_threads(w->o->nthreads)
    for (size_t y = 0; y < im->ny; y++)
        for (size_t x = 0; x < im->nx; x++) {
            const size_t i = y * im->nx + x;
            if (im->mask[i] != 0)
                continue;
            const double s = w->o->smooth ? light_of(im, x, y) : im->data[i], noise = im->readnoise[i];
            const double flat = f != NULL ? f->data[i] : 1, flat_var = f != NULL ? variance(f, i) : 0;
            const double var = fmax(s, 0) / flat + noise * noise + s * s * flat_var / (flat * flat);
            im->ivar[i] = var > 0 ? (float)(1 / var) : 0;
        }
}

static void amplifier(const work *w, size_t amp)
{
    const spx_amplifier *a = &w->l->amp[amp];
    const long nx = a->data.x1 - a->data.x0, ny = a->data.y1 - a->data.y0;
#pragma omp parallel for schedule(static) num_threads(w->o->nthreads)
    for (long y = 0; y < ny; y++)
        for (long x = 0; x < nx; x++) {
            const long cx = a->flip_x ? a->ccd.x1 - 1 - x : a->ccd.x0 + x;
            const long cy = a->flip_y ? a->ccd.y1 - 1 - y : a->ccd.y0 + y;
            one_pixel(w, amp, x, y, (size_t)cy * w->out->nx + (size_t)cx);
        }
}

/* Charge of a full pixel flows along its column. */
static void grow_saturated(spx_image *out, size_t grow)
{
    const size_t ny = out->ny, nx = out->nx;
    const uint32_t grown = 1u << 31; /* of this pass: taken off again */
    for (size_t i = 0; i < ny * nx && grow > 0; i++) {
        const size_t y = i / nx, x = i % nx;
        if ((out->mask[i] & (SPX_CCD_SATURATED | grown)) != SPX_CCD_SATURATED)
            continue;
        const size_t lo = y > grow ? y - grow : 0, hi = y + grow < ny - 1 ? y + grow : ny - 1;
        for (size_t k = lo; k <= hi; k++)
            if ((out->mask[k * nx + x] & SPX_CCD_SATURATED) == 0)
                out->mask[k * nx + x] |= SPX_CCD_SATURATED | grown;
    }
    for (size_t i = 0; i < ny * nx && grow > 0; i++)
        out->mask[i] &= ~grown;
}

/* Pixels that no amplifier has read. */
static void flag_uncovered(const spx_layout *l, spx_image *out)
{
    for (size_t i = 0; i < out->ny * out->nx; i++) {
        const long x = (long)(i % out->nx), y = (long)(i / out->nx);
        int read = 0;
        for (size_t k = 0; k < l->namp && !read; k++) {
            const spx_section *c = &l->amp[k].ccd;
            read = x >= c->x0 && x < c->x1 && y >= c->y0 && y < c->y1;
        }
        if (!read)
            out->mask[i] |= SPX_CCD_BAD;
    }
}

/* Counts saturated pixels of each amplifier. SPX_EINPUT: there is no other pixel. */
static spx_status count_saturated(const spx_layout *l, const spx_image *out, spx_overscan *over, spx_err *e)
{
    size_t all = 0, full = 0;
    for (size_t k = 0; k < l->namp; k++) {
        const spx_section *c = &l->amp[k].ccd;
        for (long y = c->y0; y < c->y1; y++)
            for (long x = c->x0; x < c->x1; x++)
                over[k].nsaturated += (out->mask[(size_t)y * out->nx + (size_t)x] & SPX_CCD_SATURATED) != 0;
        all += (size_t)(c->x1 - c->x0) * (size_t)(c->y1 - c->y0);
        full += over[k].nsaturated;
    }
    return full < all ? SPX_OK
                      : spx_fail(e, SPX_EINPUT, "all %zu pixels are saturated (%g ADU or more): a wrong saturation=?",
                                 all, over[0].saturation);
}

spx_status spx_preproc_cpu(const spx_raw *raw, const spx_layout *l, const spx_preproc_masters *m,
                           const spx_preproc_options *o, spx_image *out, spx_overscan *over, spx_err *e)
{
    const work w = {.raw = raw, .l = l, .m = m, .o = o, .out = out, .over = over};
    out->ny = l->ny;
    out->nx = l->nx;
    out->data = spx_alloc2(l->ny, l->nx, sizeof *out->data, e);
    out->ivar = spx_alloc2(l->ny, l->nx, sizeof *out->ivar, e);
    out->mask = spx_alloc2(l->ny, l->nx, sizeof *out->mask, e);
    out->readnoise = spx_alloc2(l->ny, l->nx, sizeof *out->readnoise, e);
    if (out->data == NULL || out->ivar == NULL || out->mask == NULL || out->readnoise == NULL)
        return SPX_EIO;
    spx_status st = SPX_OK;
    for (size_t k = 0; k < l->namp && st == SPX_OK; k++)
        st = spx_overscan_fit(raw, &l->amp[k], o, &over[k], e);
    for (size_t k = 0; k < l->namp && st == SPX_OK; k++)
        if (over[k].readnoise == 0 && l->amp[k].readnoise == 0)
            st = spx_fail_remedy(e, SPX_EINPUT, "give {layout} a file with readnoise= of it",
                                 "amplifier %s: no overscan shows its read noise, and the header has no RDNOISE",
                                 l->amp[k].name);
    for (size_t k = 0; k < l->namp && st == SPX_OK; k++) {
        st = spx_preproc_ceiling(raw, &l->amp[k], &over[k], e);
        over[k].saturation = over[k].npile > 0 ? over[k].pile[0].from : l->amp[k].saturation;
    }
    for (size_t k = 0; k < l->namp && st == SPX_OK; k++)
        amplifier(&w, k);
    if (st == SPX_OK) {
        grow_saturated(out, o->grow);
        flag_uncovered(l, out);
        weigh(&w);
        st = count_saturated(l, out, over, e);
    }
    return st;
}
