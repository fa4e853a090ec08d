/* Provides the loops of shift/spots.h in vectors of SPX_VL doubles: lanes are edges of pixels, then columns. The file
 * that includes it defines SPX_VL, SPX_SPOTS and SPX_SPOTS_NAME. */
#ifndef SPX_SHIFT_SPOTS_LANES_H
#define SPX_SHIFT_SPOTS_LANES_H

#include <math.h>

#include "psf/edge_lanes.h"
#include "shift/spots.h"
#include "simd/simd.h"

static int spot(const spx_shift_spot *s, double *work, double *pixels)
{
    const int nx = s->nx, ny = s->ny, degx = s->degx, degy = s->degy, deg = degx + 1 > degy + 2 ? degx + 1 : degy + 2;
    const size_t row = spx_shift_row((size_t)nx), ne = spx_shift_row((size_t)(nx + ny + 2)), npix = (size_t)(nx * ny);
    double *e = work, *h = e + ne, *gx = h + (size_t)(deg + 1) * ne, *here = gx + (size_t)(degx + 2) * row,
           *moved = here + (size_t)(degy + 1) * row, *out = moved + (size_t)(degy + 1) * row;
    for (int i = 0; i <= nx; i++)
        e[i] = (i - nx / 2 - 0.5 - s->dx) / s->sigx;
    for (int i = 0; i <= ny; i++)
        e[nx + 1 + i] = (i - ny / 2 - 0.5 - s->dy) / s->sigy;
    for (size_t i = (size_t)(nx + ny + 2); i < ne; i++)
        e[i] = 0;
    edge_functions((size_t)(nx + ny + 2), deg, e, ne, h);
    for (int i = 0; i <= degx + 1; i++)
        for (size_t x = 0; x < (size_t)nx; x += SPX_VL)
            store(gx + (size_t)i * row + x, load(h + (size_t)i * ne + x) - load(h + (size_t)i * ne + x + 1));
    for (int j = 0; j <= degy; j++) /* functions across of each function along */
        for (size_t x = 0; x < (size_t)nx; x += SPX_VL) {
            vec a = every(0.0), b = every(0.0);
            for (int i = 0; i <= degx; i++) {
                const vec c = every(s->c[i + (degx + 1) * j]);
                a += c * load(gx + (size_t)i * row + x);
                b += c * load(gx + (size_t)(i + 1) * row + x);
            }
            store(here + (size_t)j * row + x, a);
            store(moved + (size_t)j * row + x, b * every(s->slope_x / s->sigx));
        }
    const double along = s->slope_y / s->sigy, wider = 0.5 * along * along;
    double sum = 0;
    for (int y = 0; y < ny; y++)
        for (size_t x = 0; x < (size_t)nx; x += SPX_VL) {
            vec a = every(0.0), b = every(0.0), d = every(0.0);
            for (int j = 0; j <= degy; j++) {
                const double *hj = h + (size_t)j * ne + nx + 1 + y, g = hj[0] - hj[1], g1 = hj[ne] - hj[ne + 1];
                const double g2 = hj[2 * ne] - hj[2 * ne + 1] + j * g;
                const vec across = load(here + (size_t)j * row + x);
                a += every(g) * across;
                b += every(g1 * along) * across + every(g) * load(moved + (size_t)j * row + x);
                d += every(g2 * wider) * across;
            }
            const ivec lit = a > every(0.0);
            double *to = out + (size_t)y * row + x;
            store(to, choose(lit, a, every(0.0)));
            store(to + (size_t)ny * row, choose(lit, b, every(0.0)));
            store(to + 2 * (size_t)ny * row, choose(lit, d, every(0.0)));
        }
    for (size_t y = 0; y < (size_t)ny; y++)
        for (size_t x = 0; x < (size_t)nx; x++)
            sum += out[y * row + x];
    if (!(sum > 0 && isfinite(sum)))
        return 0;
    for (size_t d = 0; d < 3; d++)
        for (size_t y = 0; y < (size_t)ny; y++)
            for (size_t x = 0; x < (size_t)nx; x++)
                pixels[d * npix + y * (size_t)nx + x] = out[(d * (size_t)ny + y) * row + x] / sum;
    return 1;
}

static const spx_shift_spots SPX_SPOTS = {SPX_SPOTS_NAME, edge_functions, spot};

#endif
