/* Makes flats and arcs for tests of the start of a PSF fit, with traces, dispersion and spots of their own: none is a
 * series or a Gauss-Hermite spot.
 *
 * Spots are Moffat profiles (1 + r^2/a^2)^-3, summed over 5 x 5 points of each pixel. */
#ifndef COLD_SCENE_H
#define COLD_SCENE_H

#include <math.h>
#include <stdlib.h>

#include "base/mem.h"
#include "products/image.h"
#include "random.h"
#include "spectral/lines.h"

typedef struct {
    size_t nx, ny, nbundle;
    size_t bundle[8]; /* fibres, from left to right */
    double x0, pitch, gap;
    double tilt, bend;         /* columns from the first to the last row; of the middle against the ends */
    double middle, dispersion; /* wavelength at the middle row, Angstrom a row; below 0: falling */
    double curve, twist;       /* lambda = middle + dispersion (r + curve r^2/ny + twist r^3/ny^2) */
    double smile;              /* rows by which lines of outer fibres lie higher */
    double width;              /* half width at half maximum of spots, pixels */
    double light;              /* electrons of a bright line */
    unsigned lamps;            /* of the arc */
    int quality;               /* faintest lines of the arc */
    size_t unlisted;           /* lines that are of no lamp */
    size_t ndead, dead[8];     /* fibres without light, from left to right */
    double uneven;             /* brightest over faintest fibre */
    size_t hits;               /* cosmic rays a million pixels */
    double hit;                /* their electrons */
    double noise;              /* electrons a pixel */
    uint64_t seed;
} cold_scene;

static inline size_t cold_nspec(const cold_scene *s)
{
    size_t n = 0;
    for (size_t b = 0; b < s->nbundle; b++)
        n += s->bundle[b];
    return n;
}

/* Column of fibre i (from the left) at a row. */
static inline double cold_x(const cold_scene *s, size_t i, double row)
{
    size_t b = 0, first = 0;
    while (i >= first + s->bundle[b])
        first += s->bundle[b++];
    const double t = 2 * row / (double)(s->ny - 1) - 1, off = (double)i / (double)cold_nspec(s) - 0.5;
    return s->x0 + (double)i * s->pitch + (double)b * (s->gap - s->pitch) + 0.03 * s->pitch * sin(1.7 * (double)i) +
           s->tilt * 0.5 * t + s->bend * (1 + off) * (sin(1.3 * t) * sin(1.3 * t) - 0.5);
}

static inline double cold_lambda(const cold_scene *s, size_t i, double row)
{
    const double off = (double)i / (double)cold_nspec(s) - 0.5, n = (double)s->ny;
    const double r = row - 0.5 * (n - 1) - s->smile * off * off - 0.4 * sin(2.1 * (double)i);
    return s->middle + s->dispersion * (r + s->curve * r * r / n + s->twist * r * r * r / n / n);
}

/* Row of a wavelength, by bisection. */
static inline double cold_y(const cold_scene *s, size_t i, double lambda)
{
    double low = -60, high = (double)s->ny + 60;
    for (int k = 0; k < 60; k++) {
        const double mid = 0.5 * (low + high);
        if ((cold_lambda(s, i, mid) < lambda) == (s->dispersion > 0))
            low = mid;
        else
            high = mid;
    }
    return 0.5 * (low + high);
}

static inline void cold_spot(const cold_scene *s, double x, double y, double electrons, double *image)
{
    const double a2 = s->width * s->width / (pow(2, 1. / 3) - 1), norm = 2 / (M_PI * a2);
    const long half = (long)ceil(5 * s->width), cx = lround(x), cy = lround(y);
    for (long r = cy - half; r <= cy + half; r++)
        for (long c = cx - half; c <= cx + half; c++) {
            if (r < 0 || c < 0 || r >= (long)s->ny || c >= (long)s->nx)
                continue;
            double sum = 0;
            for (int k = 0; k < 25; k++) {
                const double dx = (double)c + 0.2 * (k % 5 - 2) - x, dy = (double)r + 0.2 * (k / 5 - 2) - y;
                const double f = 1 + (dx * dx + dy * dy) / a2;
                sum += 1 / (f * f * f);
            }
            image[(size_t)r * s->nx + (size_t)c] += electrons * norm * sum / 25;
        }
}

static inline int cold_is_dead(const cold_scene *s, size_t i)
{
    for (size_t k = 0; k < s->ndead; k++)
        if (s->dead[k] == i)
            return 1;
    return 0;
}

/* Bundle of fibre i (from the left), numbered from either side. */
static inline int cold_bundle(const cold_scene *s, size_t i, int from_right)
{
    int b = 0;
    size_t first = 0;
    while (i >= first + s->bundle[b])
        first += s->bundle[b++];
    return from_right ? (int)s->nbundle - 1 - b : b;
}

static inline double cold_brightness(const cold_scene *s, size_t i)
{
    return cold_is_dead(s, i) ? 0 : pow(s->uneven, 0.5 * sin(0.9 * (double)i * (double)i));
}

/* Adds noise and hits; allocates the image. */
static inline void cold_expose(const cold_scene *s, uint64_t seed, const double *model, spx_image *im)
{
    const size_t n = s->nx * s->ny;
    random_start(seed);
    im->nx = s->nx;
    im->ny = s->ny;
    im->data = spx_alloc(n, sizeof *im->data, NULL);
    im->ivar = spx_alloc(n, sizeof *im->ivar, NULL);
    im->mask = spx_alloc(n, sizeof *im->mask, NULL);
    for (size_t p = 0; p < n; p++) {
        const double v = model[p] + s->noise * s->noise;
        im->data[p] = (float)(model[p] + sqrt(v) * gauss());
        im->ivar[p] = (float)(1 / v);
    }
    for (size_t k = 0; k < s->hits * n / 1000000; k++)
        im->data[(size_t)(uniform() * (double)n) % n] += (float)(s->hit * (0.2 + uniform()));
}

static inline void cold_flat(const cold_scene *s, spx_image *im)
{
    double *model = spx_alloc2(s->ny, s->nx, sizeof *model, NULL);
    for (size_t i = 0; i < cold_nspec(s); i++)
        for (size_t r = 0; r < s->ny; r++) {
            const double x = cold_x(s, i, (double)r), level = 3000 * cold_brightness(s, i);
            const double a2 = s->width * s->width / (pow(2, 1. / 3) - 1);
            const long half = (long)ceil(5 * s->width);
            for (long c = lround(x) - half; c <= lround(x) + half; c++)
                for (int k = 0; k < 5 && c >= 0 && c < (long)s->nx; k++) { /* a line of Moffat spots: index 5/2 */
                    const double dx = (double)c + 0.2 * (k - 2) - x;
                    model[r * s->nx + (size_t)c] += 0.2 * level * pow(1 + dx * dx / a2, -2.5);
                }
        }
    cold_expose(s, s->seed * 2 + 1, model, im);
    spx_free(model);
}

/* Strengths have nothing to do with those of the list. */
static inline void cold_arc(const cold_scene *s, spx_image *im)
{
    double *model = spx_alloc2(s->ny, s->nx, sizeof *model, NULL);
    spx_arc_line *line = NULL;
    size_t n = 0;
    const double low = fmin(cold_lambda(s, 0, -40), cold_lambda(s, 0, (double)s->ny + 40)),
                 high = fmax(cold_lambda(s, 0, -40), cold_lambda(s, 0, (double)s->ny + 40));
    random_start(s->seed * 77 + 5);
    if (spx_arc_lines(s->lamps, &line, &n, NULL) != SPX_OK)
        abort();
    for (size_t l = 0; l < n + s->unlisted; l++) {
        const double strength = s->light * pow(10, -2 * uniform());
        const double lambda = l < n ? line[l].wavelength : low + (high - low) * uniform();
        if (l < n && line[l].quality > s->quality)
            continue;
        for (size_t i = 0; i < cold_nspec(s); i++) {
            const double y = cold_y(s, i, lambda);
            if (y > -20 && y < (double)s->ny + 20 && !cold_is_dead(s, i))
                cold_spot(s, cold_x(s, i, y), y, strength * cold_brightness(s, i), model);
        }
    }
    spx_free(line);
    cold_expose(s, s->seed * 2 + 2, model, im);
    spx_free(model);
}

#endif
