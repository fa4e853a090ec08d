/* Reads a simulated exposure out through amplifiers (sim/sim_raw.h). */
#include "sim/sim_raw.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "sim/sim_math.h"

void spx_sim_raw_truth_free(spx_sim_raw_truth *t)
{
    spx_free(t->bias);
    spx_free(t->dark);
    spx_free(t->response);
    memset(t, 0, sizeof *t);
}

static double normal(uint64_t seed, unsigned kind, char camera, uint64_t index, uint32_t draw)
{
    double u[2];
    spx_sim_uniform2(seed, kind, (unsigned char)camera, index, draw, u);
    return spx_sim_normal(u);
}

spx_status spx_sim_raw_structure(const spx_sim_raw_options *o, uint64_t seed, char camera, size_t ny, size_t nx,
                                 spx_sim_raw_truth *t, spx_err *e)
{
    t->ny = ny;
    t->nx = nx;
    t->bias = spx_alloc2(ny, nx, sizeof *t->bias, e);
    t->dark = spx_alloc2(ny, nx, sizeof *t->dark, e);
    t->response = spx_alloc2(ny, nx, sizeof *t->response, e);
    if (t->bias == NULL || t->dark == NULL || t->response == NULL)
        return SPX_EIO;
#pragma omp parallel for schedule(static)
    for (size_t i = 0; i < ny * nx; i++) {
        const size_t x = i % nx;
        double u[2];
        spx_sim_uniform2(seed, SPX_SIM_RAW_STRUCTURE, (unsigned char)camera, i, 0, u);
        const int hot = u[1] < 1e-6 * o->hot;
        /* half of the variance in columns, half in pixels */
        t->bias[i] = (float)(o->bias * M_SQRT1_2 *
                             (normal(seed, SPX_SIM_RAW_STRUCTURE, camera, x, 1) +
                              normal(seed, SPX_SIM_RAW_STRUCTURE, camera, i, 2)));
        t->dark[i] = (float)(hot ? 1 + 1000 * o->dark : o->dark);
        t->response[i] = (float)fmax(1 + o->response * normal(seed, SPX_SIM_RAW_STRUCTURE, camera, i, 3), 0.02);
    }
    return SPX_OK;
}

/* ---- layout ---- */

static spx_section section(long x0, long nx, long y0, long ny)
{
    return (spx_section){x0, x0 + nx, y0, y0 + ny};
}

/* Amplifier k: its pixels of the CCD, and where it stores what it reads: columns in the order of the CCD, unless images
 * are stored in the order of reading. */
static void place(const spx_sim_raw_options *o, long ny, long nx, size_t k, spx_amplifier *a, spx_raw_image *im)
{
    const long namp = (long)o->amps, pre = (long)o->prescan, over = (long)o->overscan, rows = (long)o->rows;
    const int right = k % 2 == 1, top = k / 2 == 1, flipped = o->flipped > 0;
    const long left = namp > 1 ? nx / 2 : nx, low = namp > 2 ? ny / 2 : ny;
    const long mx = right ? nx - left : left, my = top ? ny - low : low;
    const int mirror_x = right && !flipped, mirror_y = top && !flipped; /* the overscan lies before the pixels */
    a->ccd = section(right ? left : 0, mx, top ? low : 0, my);
    a->flip_x = right && flipped;
    a->flip_y = top && flipped;
    a->right = mirror_x;
    a->top = mirror_y;
    long x = 0, y = 0;
    if (o->extensions > 0) {
        a->image = k;
        im[k].nx = (size_t)(pre + mx + over);
        im[k].ny = (size_t)(my + rows);
    } else {
        x = right ? pre + left + over : 0;
        y = top ? low + rows : 0;
        im[0].nx = (size_t)(nx + (namp > 1 ? 2 : 1) * (pre + over));
        im[0].ny = (size_t)(ny + (namp > 2 ? 2 : 1) * rows);
    }
    a->data = section(x + (mirror_x ? over : pre), mx, y + (mirror_y ? rows : 0), my);
    if (over > 0)
        a->bias[a->nbias++] = section(mirror_x ? x : a->data.x1, over, a->data.y0, my);
    if (rows > 0)
        a->bias[a->nbias++] = section(a->data.x0, mx, mirror_y ? y : a->data.y1, rows);
}

static spx_status make_layout(const spx_sim_raw_options *o, size_t ny, size_t nx, spx_raw *raw, spx_layout *l,
                              spx_err *e)
{
    const size_t namp = (size_t)o->amps;
    if ((namp != 1 && namp != 2 && namp != 4) || o->amps != (double)namp)
        return spx_fail(e, SPX_EUSAGE, "{raw}: amps is 1, 2 or 4, not %g", o->amps);
    if ((namp > 1 && nx < 4) || (namp > 2 && ny < 4))
        return spx_fail(e, SPX_EUSAGE, "{raw}: a CCD of %zu x %zu pixels has no room for %zu amplifiers", nx, ny, namp);
    l->ny = ny;
    l->nx = nx;
    l->namp = namp;
    raw->n = o->extensions > 0 ? namp : 1;
    l->amp = spx_alloc(namp, sizeof *l->amp, e);
    raw->image = spx_alloc(raw->n, sizeof *raw->image, e);
    if (l->amp == NULL || raw->image == NULL)
        return SPX_EIO;
    for (size_t k = 0; k < namp; k++) {
        spx_amplifier *a = &l->amp[k];
        a->name[0] = (char)('A' + k);
        a->gain = o->gain * (1 + 0.03 * (double)k);
        a->saturation = 65535;
        place(o, (long)ny, (long)nx, k, a, raw->image);
    }
    for (size_t k = 0; k < raw->n; k++) {
        spx_raw_image *im = &raw->image[k];
        im->largest = 65535;
        if (raw->n > 1)
            (void)snprintf(im->extname, sizeof im->extname, "AMP%c", (char)('A' + k));
        if ((im->data = spx_alloc2(im->ny, im->nx, sizeof *im->data, e)) == NULL)
            return SPX_EIO;
    }
    return SPX_OK;
}

/* ---- reading out ---- */

typedef struct {
    const spx_sim_raw_options *o;
    const spx_sim_raw_truth *t;
    const spx_layout *l;
    const float *electrons;
    double readnoise;
    uint64_t seed;
    char camera;
} reading;

/* Signal (ADU above the bias) of the pixel that amplifier k reads as number i of row j, both of the CCD's pixels. */
static double signal(const reading *r, size_t k, long i, long j, double *bias)
{
    const spx_amplifier *a = &r->l->amp[k];
    const long mx = a->ccd.x1 - a->ccd.x0, my = a->ccd.y1 - a->ccd.y0;
    if (bias != NULL)
        *bias = 0;
    if (i < 0 || j < 0 || i >= mx || j >= my)
        return 0;
    const long x = k % 2 == 1 ? a->ccd.x1 - 1 - i : a->ccd.x0 + i, y = k / 2 == 1 ? a->ccd.y1 - 1 - j : a->ccd.y0 + j;
    const size_t at = (size_t)y * r->l->nx + (size_t)x;
    const double s = r->electrons[at] / a->gain, c = r->o->nonlinear;
    if (bias != NULL)
        *bias = r->t->bias[at];
    return c != 0 && s > 0 ? (sqrt(1 + 4 * c * s) - 1) / (2 * c) : s;
}

/* Number i of row j in the order of reading: prescan, pixels, overscan; overscan rows are the last. */
static double read_one(const reading *r, size_t k, long i, long j)
{
    const spx_sim_raw_options *o = r->o;
    const spx_amplifier *a = &r->l->amp[k];
    const long mx = a->ccd.x1 - a->ccd.x0, my = a->ccd.y1 - a->ccd.y0, pre = (long)o->prescan;
    const long ncol = pre + mx + (long)o->overscan, p = i - pre;
    const uint64_t index = ((uint64_t)k << 40) + (uint64_t)j * (uint64_t)ncol + (uint64_t)i;
    double bias, v = signal(r, k, p, j, &bias);
    for (size_t s = 0; s < r->l->namp; s++)
        v += s != k && o->crosstalk != 0 ? o->crosstalk * signal(r, s, p, j, NULL) : 0;
    if (p >= mx && o->trail > 0)
        v += o->trail * pow(0.5, (double)(p - mx)) * signal(r, k, mx - 1, j, NULL);
    v += bias + o->level + 20 * (double)k + o->gradient * (double)j / (double)my;
    if (o->wander > 0)
        v += o->wander * normal(r->seed, SPX_SIM_RAW_WANDER, r->camera, ((uint64_t)k << 40) + (uint64_t)j, 0);
    if (o->pickup > 0)
        v += o->pickup * sin(6.283185307179586477 * (double)((uint64_t)j * (uint64_t)ncol + (uint64_t)i) / 7.3);
    return v + r->readnoise / a->gain * normal(r->seed, SPX_SIM_RAW_NOISE, r->camera, index, 0);
}

static void read_amplifier(const reading *r, size_t k, spx_raw *raw)
{
    const spx_amplifier *a = &r->l->amp[k];
    spx_raw_image *im = &raw->image[a->image];
    const long mx = a->ccd.x1 - a->ccd.x0, my = a->ccd.y1 - a->ccd.y0;
    const long ncol = (long)r->o->prescan + mx + (long)r->o->overscan, nrow = my + (long)r->o->rows;
#pragma omp parallel for schedule(static)
    for (long j = 0; j < nrow; j++)
        for (long i = 0; i < ncol; i++) {
            const long p = i - (long)r->o->prescan;
            const long x = a->right ? a->data.x1 - 1 - p : a->data.x0 + p;
            const long y = a->top ? a->data.y1 - 1 - j : a->data.y0 + j;
            const double v = floor(read_one(r, k, i, j) + 0.5);
            im->data[(size_t)y * im->nx + (size_t)x] = (float)fmin(fmax(v, 0), 65535);
        }
}

spx_status spx_sim_raw_read_out(const spx_sim_raw_options *o, const spx_sim_raw_truth *t, const float *electrons,
                                double readnoise, uint64_t seed, char camera, spx_raw *raw, spx_layout *l, spx_err *e)
{
    const reading r = {
        .o = o, .t = t, .l = l, .electrons = electrons, .readnoise = readnoise, .seed = seed, .camera = camera};
    const spx_status st = make_layout(o, t->ny, t->nx, raw, l, e);
    for (size_t k = 0; k < l->namp && st == SPX_OK; k++)
        read_amplifier(&r, k, raw);
    return st;
}
