/* Measures light that fibres share across the borders of bundles (extract/quality.h). */
#include <math.h>
#include <stdlib.h>

#include "base/mem.h"
#include "extract/common.h"
#include "extract/quality.h"
#include "psf/psf.h"
#include "psf/psf_math.h"

/* Wavelengths that a pair of fibres is looked at. */
enum { NODES = 9 };

/* A fibre: its column in the middle of its wavelengths, and its bundle. */
typedef struct {
    double x, lo, hi;
    size_t fibre, bundle;
} member;

static int by_column(const void *a, const void *b)
{
    const member *p = a, *q = b;
    return p->x != q->x ? (p->x > q->x) - (p->x < q->x) : (p->fibre > q->fibre) - (p->fibre < q->fibre);
}

/* Fibres with their bundles, from left to right; those that have no place at the wavelengths that are extracted are
 * left out. Returns their number. */
static size_t list_fibres(const spx_psf *psf, const spx_extract_options *o, member *list)
{
    double all[2];
    size_t n = 0, first = 0, end = 0;
    spx_psf_range(psf, &all[0], &all[1]);
    for (size_t bundle = 0; end < psf->nspec; bundle++) {
        spx_extract_bundle(psf, o, bundle, &first, &end);
        for (size_t f = first; f < end; f++) {
            member m = {.fibre = f, .bundle = bundle};
            spx_psf_usable(psf, f, &m.lo, &m.hi);
            m.lo = fmax(fmax(m.lo, all[0]), o->wmin);
            m.hi = fmin(fmin(m.hi, all[1]), o->wmax);
            m.x = spx_psf_series_value(&psf->x, f, 0.5 * (m.lo + m.hi));
            if (m.hi >= m.lo && isfinite(m.x))
                list[n++] = m;
        }
    }
    qsort(list, n, sizeof *list, by_column);
    return n;
}

static void look_at_pair(const spx_psf *psf, const member *a, const member *b, double *work, spx_extract_border *worst)
{
    for (int k = 0; k < NODES; k++) {
        const double here = a->lo + (a->hi - a->lo) * k / (NODES - 1);
        double there = here;
        const double d = spx_psf_distance(psf, a->fibre, b->fibre, here, &there);
        if (!(there >= b->lo && there <= b->hi))
            continue;
        const double one = spx_psf_sigma_across(psf, a->fibre, here, work),
                     two = spx_psf_sigma_across(psf, b->fibre, there, work),
                     light = exp(-0.5 * d * d / (one * one + two * two));
        if (light > worst->light)
            *worst = (spx_extract_border){light, {a->fibre, b->fibre}, here};
    }
}

spx_status spx_extract_borders(const spx_psf *psf, const spx_extract_options *o, spx_extract_border *worst, spx_err *e)
{
    member *list = spx_alloc(psf->nspec, sizeof *list, e);
    double *work = list != NULL ? spx_alloc(spx_psf_width_work(psf), sizeof *work, e) : NULL;
    const size_t first = spx_extract_bundle_of(psf, o, o->first),
                 last = spx_extract_bundle_of(psf, o, o->first + o->nspec - 1),
                 n = work != NULL ? list_fibres(psf, o, list) : 0;
    *worst = (spx_extract_border){0};
    for (size_t i = 1; i < n; i++) {
        const member *a = list + i - 1, *b = list + i;
        if (a->bundle != b->bundle &&
            ((a->bundle >= first && a->bundle <= last) || (b->bundle >= first && b->bundle <= last)))
            look_at_pair(psf, a, b, work, worst);
    }
    spx_free(work);
    spx_free(list);
    return work != NULL ? SPX_OK : SPX_EIO;
}
