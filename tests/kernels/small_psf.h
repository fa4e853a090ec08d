/* Provides a small simulated PSF for tests: any number of fibres, any spot size and degrees. */
#ifndef SMALL_PSF_H
#define SMALL_PSF_H

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "products/psf.h"
#include "products/psf_index.h"

typedef struct {
    size_t nspec;
    int hsizex, hsizey, ghdegx, ghdegy;
    size_t ncoef, ndeg;
    double x0, pitch; /* column of fibre 0 in mid-range, columns between fibres */
    double y0, y1;    /* rows of the first and last wavelength */
    double sigx, sigy;
    double wmin, wmax;
} small_psf_shape;

static inline small_psf_shape small_psf_default(void)
{
    return (small_psf_shape){.nspec = 7,
                             .hsizex = 4,
                             .hsizey = 3,
                             .ghdegx = 3,
                             .ghdegy = 2,
                             .ncoef = 4,
                             .ndeg = 2,
                             .x0 = 8.3,
                             .pitch = 5.6,
                             .y0 = 6.2,
                             .y1 = 80.1,
                             .sigx = 1.1,
                             .sigy = 0.75,
                             .wmin = 5000.0,
                             .wmax = 5080.0};
}

/* NULL on failure (out of memory). Free with spx_psf_free() and spx_free(). */
static inline spx_psf *small_psf(const small_psf_shape *s)
{
    spx_psf *p = spx_alloc(1, sizeof *p, NULL);
    if (!p)
        return NULL;
    p->nspec = s->nspec;
    p->x = p->y = (spx_psf_series){.ncoef = s->ncoef, .wmin = s->wmin, .wmax = s->wmax};
    p->x.coef = spx_alloc2(s->nspec, s->ncoef, sizeof(double), NULL);
    p->y.coef = spx_alloc2(s->nspec, s->ncoef, sizeof(double), NULL);
    p->ndeg = s->ndeg;
    p->wmin = s->wmin - 3.0;
    p->wmax = s->wmax + 5.0;
    p->ghdegx = s->ghdegx;
    p->ghdegy = s->ghdegy;
    p->hsizex = s->hsizex;
    p->hsizey = s->hsizey;
    p->psferr = 0.01;
    p->npar = 2 + (size_t)((s->ghdegx + 1) * (s->ghdegy + 1));
    p->param = spx_alloc(p->npar, sizeof *p->param, NULL);
    p->coeff = spx_alloc2(p->npar * s->nspec, s->ndeg, sizeof(double), NULL);
    if (!p->x.coef || !p->y.coef || !p->param || !p->coeff)
        return NULL;
    strcpy(p->camera, "r9");
    strcpy(p->param[0], "GHSIGX");
    strcpy(p->param[1], "GHSIGY");
    for (int j = 0; j <= s->ghdegy; j++)
        for (int i = 0; i <= s->ghdegx; i++) {
            char name[32];
            snprintf(name, sizeof name, "GH-%d-%d", i, j);
            memcpy(p->param[2 + i + (s->ghdegx + 1) * j], name, sizeof(spx_psf_param));
        }
    for (size_t f = 0; f < s->nspec; f++) {
        double *x = p->x.coef + f * s->ncoef, *y = p->y.coef + f * s->ncoef;
        x[0] = s->x0 + s->pitch * (double)f;
        y[0] = 0.5 * (s->y0 + s->y1) + 0.13 * (double)f;
        if (s->ncoef > 1) {
            x[1] = 0.4;
            y[1] = 0.5 * (s->y1 - s->y0);
        }
        for (size_t k = 2; k < s->ncoef; k++)
            x[k] = y[k] = 0.2 / (double)(k * k);
        for (size_t par = 0; par < p->npar; par++) {
            double *c = p->coeff + (par * s->nspec + f) * s->ndeg;
            c[0] = par == 0 ? s->sigx : par == 1 ? s->sigy : par == 2 ? 1.0 : 0.02 / (double)par;
            for (size_t k = 1; k < s->ndeg; k++)
                c[k] = 0.03 * c[0] / (double)(k + f + 1);
        }
    }
    return spx_psf_index(p, NULL) == SPX_OK ? p : NULL;
}

#endif
