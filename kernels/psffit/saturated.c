/* Finds saturated pixels that an arc does not flag (psffit/psffit.h). */
#include <math.h>
#include <stdlib.h>

#include "base/mem.h"
#include "num/stat.h"
#include "psf/psf_math.h"
#include "psffit/psffit.h"

/* S/N of a peak that tells, and pixels on either side that it is the highest of. */
#define BRIGHT 100.0
enum { SIDE = 3 };
/* A top is flat where its two pixels differ by less than this part of them beyond their noise. A Gaussian's do where it
 * lies within FLAT sigma^2 of the edge between them: 4 % of all. */
#define FLAT 0.02
/* The ceiling: levels within this part of it, peaks there and fainter ones, how many times as many as in as wide a part
 * below, the part of them that has flat tops, by itself and by that of fainter ones, as images of wide fibres have
 * them, too, and peaks above it, cosmic rays, by their number. */
#define WIDTH   0.06
#define TOPS    0.3
#define FLATTER 2.0
#define ABOVE   0.02
enum { FEWEST = 8, PILED = 4 };
/* Pixels above this part of the ceiling are saturated: gains and flats scatter by a hundredth. */
#define REACHED 0.96

typedef struct {
    double level, fall, noise; /* peak; peak minus its higher neighbour; noise of that; all in units of the image */
    double bend;               /* -ln of the neighbours' mean over the peak, 1/sigma^2 of a Gaussian */
} peak;

static int falling(const void *a, const void *b)
{
    const double x = ((const peak *)a)->level, y = ((const peak *)b)->level;
    return (x < y) - (x > y);
}

/* Whether pixel k is the highest of its row within SIDE, of equal ones the first, and none of them is masked. */
static int is_peak(const spx_image *im, size_t k)
{
    const float v = im->data[k];
    /* first what is rare: half of all pixels are positive, in no order */
    if (!((double)v * v * im->ivar[k] > BRIGHT * BRIGHT) || !(v > 0) || im->mask[k] != 0)
        return 0;
    for (size_t s = 1; s <= SIDE; s++)
        if (!(im->data[k - s] < v && im->data[k + s] <= v) || im->mask[k - s] != 0 || im->mask[k + s] != 0)
            return 0;
    return 1;
}

static spx_status find_peaks(const spx_image *im, peak **list, size_t *n, spx_err *e)
{
    size_t capacity = 0;
    for (size_t r = 0; r < im->ny; r++)
        for (size_t c = SIDE; c + SIDE < im->nx; c++) {
            const size_t k = r * im->nx + c;
            if (!is_peak(im, k))
                continue;
            peak *more = spx_grow(*list, *n, 1, &capacity, sizeof *more, e);
            if (more == NULL)
                return SPX_EIO;
            *list = more;
            const double v = im->data[k], left = im->data[k - 1], right = im->data[k + 1], low = 0.01 * v;
            more[(*n)++] = (peak){.level = v,
                                  .fall = v - fmax(left, right),
                                  .noise = sqrt(2 / im->ivar[k]),
                                  .bend = 2 * log(v) - log(fmax(left, low)) - log(fmax(right, low))};
        }
    return SPX_OK;
}

/* Level that the highest peaks have in common, many with flat tops; 0: there is none. list[n] by falling level;
 * flat[n + 1]: flat tops before each. */
static double find_ceiling(size_t n, const peak *list, const size_t *flat, size_t *count)
{
    size_t end = 0, below = 0;
    for (size_t first = 0; first < n && (double)first <= ABOVE * (double)n; first++) {
        while (end < n && list[end].level >= (1 - WIDTH) * list[first].level)
            end++;
        while (below < n && list[below].level >= (1 - 2 * WIDTH) * list[first].level)
            below++;
        *count = end - first;
        if (*count >= FEWEST && n - end >= FEWEST && *count >= PILED * (below - end) &&
            (double)first <= ABOVE * (double)*count && (double)(flat[end] - flat[first]) > TOPS * (double)*count &&
            (double)(flat[end] - flat[first]) * (double)(n - end) >
                FLATTER * (double)(flat[n] - flat[end]) * (double)*count)
            return list[first + *count / 2].level;
    }
    *count = 0;
    return 0;
}

spx_status spx_psffit_saturated(spx_image *im, spx_psffit_saturation *out, spx_err *e)
{
    peak *list = NULL;
    size_t n = 0;
    *out = (spx_psffit_saturation){0};
    spx_status st = find_peaks(im, &list, &n, e);
    double *bend = st == SPX_OK ? spx_alloc(n + 1, sizeof *bend, e) : NULL;
    size_t *flat = bend != NULL ? spx_alloc(n + 1, sizeof *flat, e) : NULL;
    st = st == SPX_OK && flat == NULL ? SPX_EIO : st;
    if (st == SPX_OK && n > 0) {
        for (size_t k = 0; k < n; k++)
            bend[k] = list[k].bend;
        const double wide = fmax(1, 1 / fmax(spx_median(bend, n), 1e-3));
        qsort(list, n, sizeof *list, falling);
        for (size_t k = 0; k < n; k++)
            flat[k + 1] = flat[k] + (list[k].fall < FLAT / wide * list[k].level + list[k].noise);
        out->level = find_ceiling(n, list, flat, &out->npeak);
        out->nbright = n;
    }
    for (size_t k = 0; out->level > 0 && k < im->ny * im->nx && st == SPX_OK; k++)
        if (im->mask[k] == 0 && im->data[k] >= REACHED * out->level) {
            im->mask[k] |= SPX_CCD_SATURATED;
            out->npix++;
        }
    spx_free(list);
    spx_free(bend);
    spx_free(flat);
    return st;
}

int spx_psffit_spot_saturated(const spx_image *im, long x, long y)
{
    int full = 0;
    for (long r = y > 0 ? y - 1 : 0; r <= y + 1 && r < (long)im->ny; r++)
        for (long c = x > 0 ? x - 1 : 0; c <= x + 1 && c < (long)im->nx; c++)
            full |= im->mask[r * (long)im->nx + c] & SPX_CCD_SATURATED;
    return full != 0;
}

int spx_psffit_line_saturated(const spx_image *im, const spx_psf *psf, double wavelength)
{
    size_t there = 0, lost = 0;
    for (size_t f = 0; f < psf->nspec; f++) {
        spx_spot at;
        if (spx_psf_spot_place(psf, f, wavelength, &at) != SPX_SPOT_OK)
            continue;
        const long x = at.xc + psf->hsizex, y = at.yc + psf->hsizey, nx = (long)im->nx;
        if (x < 1 || y < 1 || x + 1 >= nx || y + 1 >= (long)im->ny)
            continue;
        there++;
        lost += (size_t)spx_psffit_spot_saturated(im, x, y);
    }
    return 2 * lost > there;
}

size_t spx_psffit_count_saturated(const spx_image *image, const spx_psf *psf, const spx_psffit *fit, size_t *used)
{
    size_t lost = 0;
    *used = 0;
    for (size_t l = 0; l < fit->nline; l++)
        if (fit->line[l].used && fit->line[l].nfibre > 0) {
            ++*used;
            lost += spx_psffit_line_saturated(image, psf, fit->line[l].wavelength) != 0;
        }
    return lost;
}
