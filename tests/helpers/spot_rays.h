/* Provides spots as optics make them, for tests: the image of a round fibre through a telescope with coma and a
 * detector that diffuses charge, as a sum of small Gaussians; exact in pixels and sub-pixels of any size. */
#ifndef SPOT_RAYS_H
#define SPOT_RAYS_H

#include <math.h>

/* Pupil: RAY_RINGS rings of RAY_STEPS rays. Disc: a point and rings of 6, 12, 18 ... around it, at most RAY_DISC. */
enum {
    RAY_RINGS = 6,
    RAY_STEPS = 12,
    RAY_DISC = 12,
    RAY_COUNT = RAY_RINGS * RAY_STEPS * (1 + 3 * RAY_DISC * (RAY_DISC + 1))
};

/* Lengths in pixels. coma: of the tangential coma, 3 times the radius of its largest ring, along (cos, sin) of `angle`;
 * disc: radius of the fibre's image; sigma: of the diffusion. */
typedef struct {
    double coma, angle, disc, sigma;
} ray_spot;

/* Places of all rays, pixels, about their mean; returns their number. Points of the disc are at most sigma apart, but
 * for spots of sigma below a twelfth of it: from farther ones the disc would be lumpy. */
static inline int ray_places(const ray_spot *s, double *x, double *y)
{
    const double pi = 3.14159265358979323846;
    const int rings = s->coma != 0 ? RAY_RINGS : 1, steps = s->coma != 0 ? RAY_STEPS : 1;
    const int outer = (int)fmin(RAY_DISC, fmax(2, ceil(s->disc / s->sigma - 1e-9))), all = 1 + 3 * outer * (outer + 1);
    double mx = 0, my = 0;
    int n = 0;
    for (int r = 0; r < rings; r++)
        for (int k = 0; k < steps; k++)
            for (int ring = 0; ring <= outer; ring++) {
                /* equal areas of the pupil; the image of a ring of radius rho is one of radius rho^2, 2 rho^2 away */
                const double rho2 = (r + 0.5) / rings, phi = 2 * pi * (k + 0.5) / steps;
                const double along = s->coma / 3 * rho2 * (2 + cos(2 * phi)),
                             across = s->coma / 3 * rho2 * sin(2 * phi);
                /* points of a disc with the same area each: a ring has those of 1 + 3 r (r - 1) to 1 + 3 r (r + 1),
                 * and the mean of their radii squared */
                const int of = ring == 0 ? 1 : 6 * ring;
                const double far = ring == 0 ? 0 : s->disc * sqrt((1 + 3.0 * ring * ring) / all);
                for (int at = 0; at < of; at++) {
                    const double turn = 2 * pi * at / of;
                    x[n] = along * cos(s->angle) - across * sin(s->angle) + far * cos(turn);
                    y[n] = along * sin(s->angle) + across * cos(s->angle) + far * sin(turn);
                    mx += x[n];
                    my += y[n++];
                }
            }
    for (int i = 0; i < n; i++) {
        x[i] -= mx / n;
        y[i] -= my / n;
    }
    return n;
}

/* Light in n cells `step` wide, the first from x0 on (pixels from the centroid), of a Gaussian at x. */
static inline void ray_cells(int n, double x0, double step, double x, double sigma, double *light)
{
    double before = erf((x0 - x) / (sigma * sqrt(2.0)));
    for (int i = 0; i < n; i++) {
        const double here = erf((x0 + (i + 1) * step - x) / (sigma * sqrt(2.0)));
        light[i] = 0.5 * (here - before);
        before = here;
    }
}

/* Light of the spot in ny x nx cells; x0, y0: the first edges, pixels from the centroid. Of all light: 1. */
static inline void ray_image(const ray_spot *s, int ny, int nx, double y0, double x0, double step, double *image)
{
    static double x[RAY_COUNT], y[RAY_COUNT], across[4096], along[4096];
    const int count = ray_places(s, x, y);
    for (int k = 0; k < ny * nx; k++)
        image[k] = 0;
    for (int n = 0; n < count; n++) {
        ray_cells(nx, x0, step, x[n], s->sigma, across);
        ray_cells(ny, y0, step, y[n], s->sigma, along);
        for (int j = 0; j < ny; j++)
            for (int i = 0; i < nx; i++)
                image[j * nx + i] += along[j] * across[i] / count;
    }
}

#endif
