/* Lines between bins (extract/trace/lines.h). */
#include "extract/trace/lines.h"

#include <math.h>
#include <stdlib.h>

#include "base/mem.h"
#include "num/stat.h"
#include "psf/spot_math.h"

/* Light beneath a line that its neighbours do not tell, a fraction; error of a strength from which on it tells how much
 * fibres differ, and by how much they do where fewer than LEAST do; largest difference: hits, fibres without light. */
static const double STRUCTURE = 0.02, WELL = 0.05, USUAL = 0.1, FAR = 0.5;

/* SHARES: bins of Lagrange's polynomial. WITHIN: rows on each side of a line that have its light, more than spots reach
 * once their spread is taken back; BESIDE: rows behind these, on both sides, that tell what lies beneath it. TOGETHER:
 * fibres whose spots are in memory at the same time. */
enum { SHARES = 8, WITHIN = 7, BESIDE = 4, TOGETHER = 64, LEAST = 5 };

/* Spots of one fibre: of the line, and of bins. */
typedef struct {
    spx_spot at[SHARES + 1];
    double *pixel; /* [SHARES + 1][ny][nx] */
} spots;

/* Shares of bins first ... first + SHARES - 1 of a line at place u of the grid, in bins. */
static void find_shares(double u, long first, double *share)
{
    for (int a = 0; a < SHARES; a++) {
        share[a] = 1.0;
        for (int b = 0; b < SHARES; b++)
            if (b != a)
                share[a] *= (u - (double)(first + b)) / (double)(a - b);
    }
}

/* Electrons of a fibre's line that falls on row y, above the means of rows on both sides, and their variance: that of
 * photons, and of STRUCTURE of the light beneath, which may have lines of its own. 0: it is not seen whole. */
static int find_strength(const spx_extract_job *job, const float *light, double y, double *strength, double *variance)
{
    const long ny = (long)job->image->ny, reach = WITHIN + BESIDE;
    if (!(y >= (double)reach && y < (double)(ny - 1 - reach)))
        return 0;
    const long middle = lround(y);
    double sum = 0.0, beneath = 0.0;
    for (long d = -reach; d <= reach; d++) {
        const double here = (double)light[middle + d];
        if (labs(d) <= WITHIN)
            sum += here;
        else
            beneath += here * (2 * WITHIN + 1) / (2.0 * BESIDE);
    }
    *strength = sum - beneath;
    *variance =
        fabs(sum) + fabs(beneath) * (2 * WITHIN + 1) / (2.0 * BESIDE) + STRUCTURE * STRUCTURE * beneath * beneath;
    return 1;
}

/* Strengths of a line in all fibres: each one's own, drawn towards their median by how much those fibres differ that
 * tell it well. Returns the median, 0 where no fibre sees the line; then there are none. own, variance, scratch
 * [nspec]. */
static double find_strengths(const spx_extract_job *job, const float *light, double lambda, double *own,
                             double *variance, double *scratch)
{
    const spx_extract_options *o = job->o;
    const size_t nspec = job->psf->nspec;
    size_t n = 0, nwell = 0;
    for (size_t f = 0; f < nspec; f++) {
        const double wave = o->line_factor != NULL ? lambda * o->line_factor[f] : lambda;
        if (find_strength(job, light + f * job->image->ny, spx_psf_series_value(&job->psf->y, f, wave), &own[f],
                          &variance[f]))
            scratch[n++] = own[f];
        else
            variance[f] = -1.0;
    }
    const double median = n > 0 ? spx_median(scratch, n) : 0.0;
    if (!(median > 0.0))
        return 0.0;
    double noise = 0.0;
    for (size_t f = 0; f < nspec; f++) {
        variance[f] /= median * median;
        own[f] = variance[f] >= 0.0 ? fmin(fmax(own[f] / median - 1.0, -FAR), FAR) : 0.0;
        if (variance[f] >= 0.0 && variance[f] < WELL * WELL) {
            scratch[nwell++] = fabs(own[f]);
            noise += variance[f];
        }
    }
    const double scatter = nwell >= LEAST ? 1.4826 * spx_median(scratch, nwell) : USUAL;
    const double differ = nwell >= LEAST ? fmax(scatter * scatter - noise / (double)nwell, 0.0) : USUAL * USUAL;
    for (size_t f = 0; f < nspec; f++)
        own[f] = median * (1.0 + (differ > 0.0 && variance[f] >= 0.0 ? own[f] * differ / (differ + variance[f]) : 0.0));
    return median;
}

/* Spots of a line in a fibre and of the bins that share it, whose shares are share[]. 0: there are none. */
static int make_spots(const spx_extract_job *job, size_t fibre, double lambda, double *work, spots *s, double *share)
{
    const spx_extract_options *o = job->o;
    const size_t size = (size_t)spx_psf_nx(job->psf) * (size_t)spx_psf_ny(job->psf);
    const double wave = o->line_factor != NULL ? lambda * o->line_factor[fibre] : lambda;
    const double u = (wave - spx_extract_lambda(o, 0)) / spx_extract_step(o);
    const double pad = (double)o->wave_pad;
    if (!(u >= -pad + SHARES / 2 && u <= (double)job->nwave + pad - SHARES / 2 - 1))
        return 0;
    const long first = (long)floor(u) - (SHARES / 2 - 1);
    find_shares(u, first, share);
    for (int k = 0; k <= SHARES; k++) {
        const double here = k < SHARES ? spx_extract_lambda(o, first + k) : wave;
        if (!spx_extract_has_spot(job->psf, o, fibre, here) ||
            spx_psf_spot(job->psf, fibre, here, work, s->pixel + (size_t)k * size, &s->at[k]) != SPX_SPOT_OK)
            return 0;
    }
    return 1;
}

/* strength times a spot onto the image. */
static void add_spot(const spx_extract_job *job, const spx_spot *at, const double *spot, double strength, float *far)
{
    const long nx = (long)job->image->nx, ny = (long)job->image->ny;
    for (int r = 0; r < spx_psf_ny(job->psf); r++)
        for (int c = 0; c < spx_psf_nx(job->psf); c++) {
            const long x = at->xc + c, y = at->yc + r;
            if (x >= 0 && x < nx && y >= 0 && y < ny)
                far[y * nx + x] += (float)(strength * spot[r * spx_psf_nx(job->psf) + c]);
        }
}

/* One line of strength[nspec]; returns the number of fibres that have it. s[TOGETHER], share[TOGETHER][SHARES],
 * work[threads][size]. */
static size_t add_line(const spx_extract_job *job, double lambda, const double *strength, int nthreads, spots *s,
                       double (*share)[SHARES], double *work, size_t size, float *far)
{
    const size_t nspec = job->psf->nspec, npix = (size_t)spx_psf_nx(job->psf) * (size_t)spx_psf_ny(job->psf);
    size_t n = 0;
    for (size_t from = 0; from < nspec; from += TOGETHER) {
        const size_t many = nspec - from < TOGETHER ? nspec - from : TOGETHER;
        int there[TOGETHER];
#pragma omp parallel for schedule(static) num_threads(nthreads)
        for (size_t i = 0; i < many; i++)
            there[i] = make_spots(job, from + i, lambda, work + i * size, &s[i], share[i]);
        for (size_t i = 0; i < many; i++) {
            n += (size_t)there[i];
            for (int k = 0; there[i] && k <= SHARES; k++)
                add_spot(job, &s[i].at[k], s[i].pixel + (size_t)k * npix,
                         k < SHARES ? -strength[from + i] * share[i][k] : strength[from + i], far);
        }
    }
    return n;
}

spx_status spx_lines_add(const spx_extract_job *job, const float *light, int nthreads, float *far,
                         spx_extract_counts *counts, spx_err *e)
{
    const spx_psf *psf = job->psf;
    const size_t npix = (size_t)spx_psf_nx(psf) * (size_t)spx_psf_ny(psf), size = spx_psf_spot_work(psf);
    double *pixel = spx_alloc_unset(TOGETHER * (SHARES + 1), npix, sizeof *pixel, e);
    double *work = spx_alloc_unset(TOGETHER, size, sizeof *work, e), *v = spx_alloc(3 * psf->nspec, sizeof *v, e);
    spots s[TOGETHER];
    double share[TOGETHER][SHARES];
    const int ok = pixel != NULL && work != NULL && v != NULL;
    counts->nline = 0;
    counts->line_light = 0.0;
    for (size_t i = 0; i < TOGETHER && ok; i++)
        s[i] = (spots){.pixel = pixel + i * (SHARES + 1) * npix};
    for (size_t l = 0; l < job->o->nline && ok; l++) {
        const double median = find_strengths(job, light, job->o->line[l], v, v + psf->nspec, v + 2 * psf->nspec);
        if (median > 0.0 && add_line(job, job->o->line[l], v, nthreads, s, share, work, size, far) > 0) {
            counts->nline++;
            counts->line_light += median;
        }
    }
    spx_free(pixel);
    spx_free(work);
    spx_free(v);
    return ok ? SPX_OK : SPX_EIO;
}
