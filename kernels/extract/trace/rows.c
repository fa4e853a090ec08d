/* Computes the light of fibres by rows (extract/trace/rows.h). */
#include "extract/trace/rows.h"

#include <math.h>
#include <string.h>

#include "base/clones.h"
#include "base/mem.h"
#include "psf/spot_math.h"

/* Share of a profile's light that it has at most beyond the columns that count for overlaps. */
#define BEYOND 1e-5

enum {
    LANES = SPX_ROW_LANES,
    NKNOT = SPX_ROW_KNOTS,
    NPHASE = SPX_ROW_PHASES,
    NPLACE = 129, /* of a trace, with cubics in between */
    BLOCK = 16,   /* rows that are a thread's at one time */
    SIDE = SPX_ROW_SIDE,
    TERMS = SPX_ROW_TERMS
};

struct spx_rows {
    const spx_extract_job *job;
    size_t ny, nx, nspec;
    size_t nc;         /* columns of a profile */
    int hsizex;        /* of these, those before the middle */
    size_t first, end; /* of these, those that have its light */
    int mirrored;      /* most fibres lie left of the one before */
    size_t pad;        /* columns before and behind the CCD */
    int wide;          /* spots have a sigma of a pixel along the traces, or more */
    float *profile;    /* [nspec][NKNOT][NPHASE + 1][nc] */
    float (*place)[2]; /* [ny][nspec] column and place among the knots of a trace in a row; the second below 0: none */
    double *range;     /* [nspec][2] wavelengths of the first and the last knot */
    size_t (*ends)[2]; /* [nspec] first row with a trace, and one past the last */
    float (*spread)[SIDE + 1]; /* [nspec] part of the light of a row that spots have in those beside it */
};

void spx_rows_look(const spx_rows *r, spx_rows_view *v)
{
    *v = (spx_rows_view){.ny = r->ny,
                         .nx = r->nx,
                         .nspec = r->nspec,
                         .width = r->nc,
                         .first = r->first,
                         .end = r->end,
                         .pad = r->pad,
                         .hsizex = r->hsizex,
                         .mirrored = r->mirrored,
                         .wide = r->wide,
                         .profile = r->profile,
                         .place = (const float(*)[2])r->place,
                         .range = r->range,
                         .ends = (const size_t(*)[2])r->ends,
                         .spread = (const float(*)[SIDE + 1]) r->spread};
}

size_t spx_rows_pad(const spx_rows *r)
{
    return r->pad;
}

size_t spx_rows_width(const spx_rows *r)
{
    return r->nc;
}

size_t spx_rows_nspec(const spx_rows *r)
{
    return r->nspec;
}

void spx_rows_set_job(spx_rows *r, const spx_extract_job *job)
{
    r->job = job;
}

void spx_rows_free(spx_rows *r)
{
    if (r == NULL)
        return;
    spx_free(r->profile);
    spx_free(r->place);
    spx_free(r->range);
    spx_free(r->spread);
    spx_free(r->ends);
    spx_free(r);
}

/* ---- traces and profiles ---- */

/* Wavelengths of a fibre's light on the CCD: those of the PSF's series, and those that are wanted. */
static void find_range(const spx_extract_job *job, size_t fibre, double *range)
{
    const spx_psf *psf = job->psf;
    const spx_extract_options *o = job->o;
    const double first = spx_extract_lambda(o, -(long)o->wave_pad),
                 last = spx_extract_lambda(o, (long)(job->nwave + o->wave_pad));
    range[0] = psf->wave_range != NULL ? psf->wave_range[2 * fibre] : fmin(fmax(psf->x.wmin, psf->y.wmin), first);
    range[1] = psf->wave_range != NULL ? psf->wave_range[2 * fibre + 1] : fmax(fmin(psf->x.wmax, psf->y.wmax), last);
}

/* Where a trace crosses the rows: divided differences of column and wavelength through four places around each. */
static void find_places(spx_rows *r, size_t fibre)
{
    const spx_psf *psf = r->job->psf;
    const double *range = r->range + 2 * fibre, step = (range[1] - range[0]) / (NPLACE - 1);
    double x[NPLACE], y[NPLACE];
    for (size_t k = 0; k < NPLACE; k++) {
        const double lambda = range[0] + step * (double)k;
        x[k] = spx_psf_series_value(&psf->x, fibre, lambda);
        y[k] = spx_psf_series_value(&psf->y, fibre, lambda);
    }
    for (size_t row = 0; row < r->ny; row++)
        memcpy(r->place[row * r->nspec + fibre], (const float[2]){0.0f, -1.0f}, sizeof r->place[0]);
    for (size_t k = 0; k + 1 < NPLACE; k++) {
        const size_t from = k == 0 ? 0 : k + 3 < NPLACE ? k - 1 : NPLACE - 4;
        const double *u = y + from, lo = fmin(y[k], y[k + 1]), hi = fmax(y[k], y[k + 1]);
        double dx[4], dk[4]; /* of columns and of knots */
        int turns = 0;
        for (size_t i = 0; i < 4; i++) {
            dx[i] = x[from + i];
            dk[i] = (double)(from + i) * (NKNOT - 1) / (NPLACE - 1);
            turns |= !(fabs(x[from + i]) < SPX_SPOT_FAR && fabs(u[i]) < SPX_SPOT_FAR) ||
                     (i > 0 && !((u[i] - u[i - 1]) * (u[1] - u[0]) > 0.0));
        }
        if (turns || !(hi >= 0.0 && lo <= (double)(r->ny - 1)))
            continue;
        for (size_t order = 1; order < 4; order++)
            for (size_t i = 3; i >= order; i--) {
                dx[i] = (dx[i] - dx[i - 1]) / (u[i] - u[i - order]);
                dk[i] = (dk[i] - dk[i - 1]) / (u[i] - u[i - order]);
            }
        const size_t first = lo > 0.0 ? (size_t)ceil(lo) : 0,
                     end = hi < (double)(r->ny - 1) ? (size_t)floor(hi) + 1 : r->ny;
        for (size_t row = first; row < end; row++) {
            const double a = (double)row - u[0], b = (double)row - u[1], c = (double)row - u[2],
                         at = dx[0] + a * (dx[1] + b * (dx[2] + c * dx[3])),
                         knot = dk[0] + a * (dk[1] + b * (dk[2] + c * dk[3]));
            float *to = r->place[row * r->nspec + fibre];
            if (!(at > -(double)r->nc && at < (double)(r->nx + r->nc)))
                continue;
            to[0] = (float)at;
            to[1] = (float)fmin(fmax(knot, 0.0), NKNOT - 1);
            r->ends[fibre][0] = r->ends[fibre][1] == 0 || row < r->ends[fibre][0] ? row : r->ends[fibre][0];
            r->ends[fibre][1] = row >= r->ends[fibre][1] ? row + 1 : r->ends[fibre][1];
        }
    }
}

/* Profiles of a fibre at its knots, for places of the trace centre within a pixel. move: the PSF with columns of its
 * own, which are this thread's for the fibre. Where there is no spot, profiles are 0. Returns the columns on each side
 * of the middle one that have all light. */
static int find_profiles(spx_rows *r, size_t fibre, spx_psf *move, double *work, double *spot)
{
    int half = 0;
    const spx_psf *psf = r->job->psf;
    const int nx = spx_psf_nx(psf), ny = spx_psf_ny(psf);
    double *c0 = move->x.coef + fibre * move->x.ncoef, variance = 0.0;
    for (size_t k = 0; k < NKNOT; k++) {
        const double *range = r->range + 2 * fibre, lambda = range[0] + (range[1] - range[0]) * (double)k / (NKNOT - 1),
                     before = *c0;
        spx_spot at;
        if (spx_psf_spot_place(psf, fibre, lambda, &at) != SPX_SPOT_OK)
            continue;
        for (size_t phase = 0; phase <= NPHASE; phase++) {
            float *to = r->profile + ((fibre * NKNOT + k) * (NPHASE + 1) + phase) * r->nc;
            *c0 = before + fmin(fmax((double)phase / NPHASE - 0.5, -0.4999), 0.4999) - at.dx;
            spx_spot moved;
            if (spx_psf_spot(move, fibre, lambda, work, spot, &moved) != SPX_SPOT_OK)
                continue;
            for (int x = 0; x < nx; x++) {
                double sum = 0.0;
                for (int y = 0; y < ny; y++)
                    sum += spot[y * nx + x];
                to[x] = (float)sum;
            }
            double beyond = 0.0;
            for (int h = psf->hsizex; h > half; h--) {
                beyond += (double)(to[psf->hsizex - h] + to[psf->hsizex + h]);
                if (beyond > BEYOND)
                    half = h;
            }
            if (k == NKNOT / 2 && phase == NPHASE / 2) {
                double mean = 0.0;
                for (int i = 0; i < nx * ny; i++)
                    mean += spot[i] * (double)(i / nx);
                for (int i = 0; i < nx * ny; i++)
                    variance += spot[i] * ((double)(i / nx) - mean) * ((double)(i / nx) - mean);
            }
        }
        *c0 = before;
    }
    double all = 0.0, tap[SIDE + 1];
    for (int d = 0; d <= SIDE; d++) {
        tap[d] = d == 0 ? 1.0 : variance > 0.0 ? exp(-0.5 * d * d / variance) : 0.0;
        all += d == 0 ? 1.0 : 2.0 * tap[d];
    }
    for (int d = 0; d <= SIDE; d++)
        r->spread[fibre][d] = (float)(tap[d] / all);
    return half;
}

spx_status spx_rows_make(const spx_extract_job *job, int nthreads, spx_rows **rows, spx_err *e)
{
    const spx_psf *psf = job->psf;
    const size_t nx = (size_t)spx_psf_nx(psf), npix = nx * (size_t)spx_psf_ny(psf), nwork = spx_psf_spot_work(psf);
    spx_rows *r = *rows = spx_alloc(1, sizeof *r, e);
    if (!r)
        return SPX_EIO;
    r->job = job;
    r->ny = job->image->ny;
    r->nx = job->image->nx;
    r->nspec = psf->nspec;
    r->nc = (nx + LANES - 1) / LANES * LANES;
    r->pad = 3 * r->nc;
    r->hsizex = psf->hsizex;
    spx_psf move = *psf;
    move.x.coef = spx_alloc2(psf->nspec, psf->x.ncoef, sizeof *move.x.coef, e);
    if (!move.x.coef || !((r->profile = spx_alloc2(r->nspec * NKNOT * (NPHASE + 1), r->nc, sizeof *r->profile, e)) &&
                          (r->place = spx_alloc_unset(r->ny, r->nspec, sizeof *r->place, e)) &&
                          (r->range = spx_alloc2(r->nspec, 2, sizeof *r->range, e)) &&
                          (r->ends = spx_alloc(r->nspec, sizeof *r->ends, e)) &&
                          (r->spread = spx_alloc(r->nspec, sizeof *r->spread, e)))) {
        spx_free(move.x.coef);
        return SPX_EIO;
    }
    memcpy(move.x.coef, psf->x.coef, psf->nspec * psf->x.ncoef * sizeof *move.x.coef);
    int failed = 0, half = 0;
#pragma omp parallel num_threads(nthreads) reduction(| : failed) reduction(max : half)
    {
        double *work = spx_alloc(nwork + npix, sizeof *work, NULL);
        failed |= !work;
#pragma omp for
        for (size_t f = 0; f < r->nspec; f++) {
            find_range(job, f, r->range + 2 * f);
            find_places(r, f);
            const int here = work ? find_profiles(r, f, &move, work, work + nwork) : 0;
            half = here > half ? here : half;
        }
        spx_free(work);
    }
    spx_free(move.x.coef);
    r->first = (size_t)(psf->hsizex - half);
    r->end = (size_t)(psf->hsizex + half + 1);
    r->wide = 1;
    for (size_t f = 0; f < r->nspec; f++)
        r->wide &= !(r->spread[f][1] > 0.0f && r->spread[f][1] < expf(-0.5f) * r->spread[f][0]);
    size_t left = 0;
    for (size_t f = 1; f < r->nspec; f++)
        left += psf->x.coef[f * psf->x.ncoef] < psf->x.coef[(f - 1) * psf->x.ncoef];
    r->mirrored = left > r->nspec / 2;
    return failed ? spx_mem_fail(e) : SPX_OK;
}

int spx_rows_place(const spx_rows *r, size_t fibre, size_t y, double *x, double *lambda)
{
    const float *at = r->place[y * r->nspec + fibre];
    const double *range = r->range + 2 * fibre;
    *x = (double)at[0];
    *lambda = range[0] + (range[1] - range[0]) * (double)at[1] / (NKNOT - 1);
    return at[1] >= 0.0f;
}

int spx_rows_nearest(const spx_rows *r, size_t fibre, size_t y, double *x)
{
    const size_t *end = r->ends[fibre], row = y < end[0] ? end[0] : y < end[1] ? y : end[1] - 1;
    if (end[1] == 0)
        return 0;
    *x = (double)r->place[row * r->nspec + fibre][0];
    return 1;
}

/* ---- one row ---- */

struct row_products {
    float own, pixels, seen, all;
    float before[SPX_ROW_REACH]; /* with the profile that is so many before, from 1 on */
    unsigned char reach;         /* how many of those share columns with it */
};
typedef struct row_products row_products;

spx_row *spx_row_alloc(const spx_rows *r)
{
    spx_row *row = spx_alloc(1, sizeof *row, NULL);
    const size_t columns = r->nx + 2 * r->pad;
    if (row != NULL)
        row->stride = r->nc + LANES;
    if (row && (row->data = spx_alloc(columns, sizeof *row->data, NULL)) &&
        (row->weight = spx_alloc(columns, sizeof *row->weight, NULL)) &&
        (row->fibre = spx_alloc(r->nspec, sizeof *row->fibre, NULL)) &&
        (row->start = spx_alloc(r->nspec, sizeof *row->start, NULL)) &&
        (row->seen = spx_alloc2(3, r->nspec, 1, NULL)) &&
        (row->profile = spx_alloc2(r->nspec, row->stride, sizeof *row->profile, NULL)) &&
        (row->weighted = spx_alloc(row->stride, sizeof *row->weighted, NULL)) &&
        (row->product = spx_alloc(r->nspec, sizeof *row->product, NULL)) &&
        (row->factor = spx_alloc(r->nspec, sizeof *row->factor, NULL)) &&
        (row->x = spx_alloc(r->nspec, sizeof *row->x, NULL))) {
        row->reach = row->seen + r->nspec;
        row->fresh = row->reach + r->nspec;
        return row;
    }
    spx_row_free(row);
    return NULL;
}

void spx_row_free(spx_row *row)
{
    if (row == NULL)
        return;
    spx_free(row->data);
    spx_free(row->weight);
    spx_free(row->fibre);
    spx_free(row->start);
    spx_free(row->seen);
    spx_free(row->profile);
    spx_free(row->weighted);
    spx_free(row->product);
    spx_free(row->factor);
    spx_free(row->x);
    spx_free(row);
}

/* Profiles of the fibres of a row. */
SPX_CLONES static void draw_profiles(const spx_rows *r, size_t y, spx_row *row)
{
    const size_t nc = r->nc;
    for (size_t i = 0; i < row->n; i++) {
        const float *at = r->place[y * r->nspec + row->fibre[i]], middle = floorf(at[0] + 0.5f);
        const float phase = (at[0] - middle + 0.5f) * NPHASE;
        const size_t p = phase > 1.5f ? (size_t)fminf(phase + 0.5f, NPHASE - 1) : 1, /* the nearest but the ends */
            k = (size_t)fminf(at[1], NKNOT - 2);
        const float u = phase - (float)p, v = at[1] - (float)k;
        const float wa = 0.5f * u * (u - 1.0f), wb = 1.0f - u * u, wc = 0.5f * u * (u + 1.0f);
        const float *a = r->profile + ((row->fibre[i] * NKNOT + k) * (NPHASE + 1) + p - 1) * nc,
                    *b = a + (NPHASE + 1) * nc;
        float *to = row->profile + i * row->stride;
        row->start[i] = (long)middle - r->hsizex + (long)r->pad;
        for (size_t c = 0; c < nc; c += LANES)
#pragma omp simd
            for (size_t l = c; l < c + LANES; l++) {
                const float first = wa * a[l] + wb * a[nc + l] + wc * a[2 * nc + l],
                            next = wa * b[l] + wb * b[nc + l] + wc * b[2 * nc + l];
                to[l] = first + v * (next - first);
            }
    }
}

void spx_row_load(const spx_rows *r, size_t y, const float *far, spx_row *row)
{
    const spx_image *im = r->job->image;
    const float *weight = r->job->weight, *place = r->place[y * r->nspec];
    const float *data = im->data + y * r->nx, *beyond = far != NULL ? far + y * r->nx : NULL;
    float *w = row->weight + r->pad, *d = row->data + r->pad;
    if (weight != NULL)
        memcpy(w, weight + y * r->nx, r->nx * sizeof *w);
    for (size_t x = 0; x < r->nx && weight == NULL; x++)
        w[x] = spx_extract_pixel_weight(im, y * r->nx + x);
    for (size_t x = 0; x < r->nx; x++)
        d[x] = w[x] > 0.0f ? data[x] - (beyond != NULL ? beyond[x] : 0.0f) : 0.0f;
    row->n = 0;
    for (size_t k = 0; k < r->nspec; k++) { /* nearly in order, or the reverse of it */
        const size_t f = r->mirrored ? r->nspec - 1 - k : k;
        if (!(place[2 * f + 1] >= 0.0f))
            continue;
        size_t i = row->n++;
        for (; i > 0 && place[2 * row->fibre[i - 1]] > place[2 * f]; i--)
            row->fibre[i] = row->fibre[i - 1];
        row->fibre[i] = f;
    }
    memset(row->fresh, 0, row->n);
    row->from = 0;
    draw_profiles(r, y, row);
}

/* Products of the profiles of a row that are not there yet: with themselves and with the pixels; their light on pixels
 * in use, and all of it; with those before that share columns with them. Returns the first that was made. */
SPX_CLONES static size_t find_products(const spx_rows *r, spx_row *row)
{
    const size_t begin = r->first / LANES * LANES;
    size_t first = row->n;
    float *u = row->weighted;
    for (size_t i = row->n; i-- > 0;) {
        const float *p = row->profile + i * row->stride, *w = row->weight + row->start[i],
                    *d = row->data + row->start[i];
        float own[LANES] = {0}, pixels[LANES] = {0}, seen[LANES] = {0}, all[LANES] = {0};
        row_products *to = &row->product[i];
        if (row->fresh[i])
            continue;
        row->fresh[i] = 1;
        first = i;
        for (size_t c = 0; c < r->nc; c += LANES)
#pragma omp simd
            for (size_t l = 0; l < LANES; l++) {
                const float v = p[c + l];
                u[c + l] = v * w[c + l];
                own[l] += u[c + l] * v;
                pixels[l] += u[c + l] * d[c + l];
                seen[l] += w[c + l] > 0.0f ? v : 0.0f;
                all[l] += v;
            }
        *to = (row_products){.own = spx_row_total(own),
                             .pixels = spx_row_total(pixels),
                             .seen = spx_row_total(seen),
                             .all = spx_row_total(all)};
        for (size_t k = 1; k <= SPX_ROW_REACH && k <= i; k++) {
            const size_t before = (size_t)(row->start[i] - row->start[i - k]);
            if (before >= r->end - r->first)
                break;
            const float *q = row->profile + (i - k) * row->stride + before;
            float lane[LANES] = {0};
            for (size_t c = begin; c + before < r->end; c += LANES)
#pragma omp simd
                for (size_t l = 0; l < LANES; l++)
                    lane[l] += u[c + l] * q[c + l];
            to->before[k - 1] = spx_row_total(lane);
            to->reach = (unsigned char)k;
        }
    }
    return first;
}

void spx_row_see(const spx_rows *r, spx_row *row)
{
    const size_t first = find_products(r, row);
    for (size_t i = first; i < row->n; i++) {
        const row_products *is = &row->product[i];
        row->seen[i] = is->own > 0.0f && is->seen > SPX_ROW_LEAST_SEEN * is->all;
    }
    row->from = first < row->from ? first : row->from;
}

size_t spx_row_hide(const spx_rows *r, spx_row *row, size_t first, size_t end)
{
    size_t count = 0;
    for (size_t c = first; c < end; c++) {
        count += row->weight[c] > 0.0f;
        row->weight[c] = 0.0f;
    }
    size_t i = 0, last = count > 0 ? row->n : 0; /* the first profile that ends behind `first` */
    while (i < last) {
        const size_t middle = (i + last) / 2;
        if (row->start[middle] + (long)r->nc > (long)first)
            last = middle;
        else
            i = middle + 1;
    }
    for (; i < row->n && count > 0 && row->start[i] < (long)end; i++)
        row->fresh[i] = 0;
    return count;
}

void spx_row_factor(const spx_rows *r, spx_row *row)
{
    enum { REACH = SPX_ROW_REACH };
    spx_row_see(r, row);
    for (size_t i = row->from; i < row->n; i++) {
        const row_products *is = &row->product[i];
        double u[REACH + 1] = {0}, left = (double)is->own;
        const size_t reach = is->reach;
        row->reach[i] = is->reach;
        for (size_t k = reach; k > 0; k--) {
            u[k] = row->seen[i] && row->seen[i - k] ? (double)is->before[k - 1] : 0.0;
            for (size_t m = k + 1; m <= reach; m++)
                u[k] -= u[m] * row->factor[i - k][m - k];
            row->factor[i][k] = u[k] * row->factor[i - k][0];
            left -= u[k] * row->factor[i][k];
        }
        if (row->seen[i] && !(left > SPX_ROW_LEAST_LEFT * (double)is->own)) {
            row->seen[i] = 0;
            memset(row->factor[i], 0, sizeof row->factor[i]);
        }
        row->factor[i][0] = row->seen[i] ? 1.0 / left : 1.0;
    }
    row->from = row->n;
    for (size_t i = 0; i < row->n; i++)
        row->x[i] = row->seen[i] ? (double)row->product[i].pixels : 0.0;
}

void spx_row_forward(const spx_row *row, double *v)
{
    for (size_t i = 0; i < row->n; i++)
        for (size_t k = 1; k <= row->reach[i]; k++)
            v[i] -= row->factor[i][k] * v[i - k];
}

void spx_row_back(const spx_row *row, double *v)
{
    for (size_t i = row->n; i-- > 0;)
        for (size_t k = 1; k <= row->reach[i]; k++)
            v[i - k] -= row->factor[i][k] * v[i];
}

void spx_row_solve(const spx_rows *r, spx_row *row, float *model)
{
    spx_row_forward(row, row->x);
    for (size_t i = 0; i < row->n; i++)
        row->x[i] *= row->factor[i][0];
    spx_row_back(row, row->x);
    if (model == NULL)
        return;
    memset(model, 0, (r->nx + 2 * r->pad) * sizeof *model);
    for (size_t i = 0; i < row->n; i++) {
        const float *p = row->profile + i * row->stride, x = (float)row->x[i];
        float *to = model + row->start[i];
        for (size_t c = 0; c < r->nc; c++)
            to[c] += x * p[c];
    }
}

/* ---- all rows ---- */

/* Light of a fibre between the rows that are seen (seen[ny]: 1; 0: no trace, 2: hidden). */
static void fill(size_t ny, const unsigned char *seen, float *light)
{
    size_t last = ny;
    for (size_t y = 0; y < ny; y++) {
        if (seen[y] == 0)
            last = ny; /* light beyond a gap of the trace tells nothing */
        if (seen[y] != 1)
            continue;
        for (size_t k = last < ny ? last + 1 : y; k < y; k++)
            light[k] = light[last] + (light[y] - light[last]) * (float)(k - last) / (float)(y - last);
        last = y;
    }
}

/* Light as it was before spots spread it along the trace: l + (1 - S) l + (1 - S)^2 l ... */
SPX_CLONES static void sharpen(size_t ny, const float *tap, float *light, float *rest, float *next)
{
    memcpy(rest, light, ny * sizeof *rest);
    for (int term = 0; term < TERMS; term++) {
        memset(next, 0, ny * sizeof *next);
#pragma omp simd
        for (size_t y = SIDE; y < ny - SIDE; y++)
            next[y] = rest[y] - (tap[0] * rest[y] + tap[1] * (rest[y - 1] + rest[y + 1]) +
                                 tap[2] * (rest[y - 2] + rest[y + 2]) + tap[3] * (rest[y - 3] + rest[y + 3]) +
                                 tap[4] * (rest[y - 4] + rest[y + 4]) + tap[5] * (rest[y - 5] + rest[y + 5]));
#pragma omp simd
        for (size_t y = 0; y < ny; y++) {
            light[y] += next[y];
            rest[y] = next[y];
        }
    }
}

spx_status spx_rows_light(const spx_rows *r, const float *far, int rough, int nthreads, float *light, spx_err *e)
{
    const size_t nblock = (r->ny + BLOCK - 1) / BLOCK, every = rough && r->wide ? 2 : 1;
    unsigned char *seen = spx_alloc2(r->nspec, r->ny, 1, e);
    int failed = !seen;
    if (failed)
        return SPX_EIO;
#pragma omp parallel num_threads(nthreads) reduction(| : failed)
    {
        spx_row *row = spx_row_alloc(r);
        float *line = spx_alloc(2 * r->ny, sizeof *line, NULL);
        failed |= !row || !line;
#pragma omp for
        for (size_t f = 0; f < r->nspec; f++)
            memset(light + f * r->ny, 0, r->ny * sizeof *light);
#pragma omp for schedule(dynamic)
        for (size_t b = 0; b < nblock; b++)
            for (size_t y = b * BLOCK; y < (b + 1) * BLOCK && y < r->ny && row; y++) {
                for (size_t f = 0; f < r->nspec && y % every != 0; f++)
                    seen[f * r->ny + y] = r->place[y * r->nspec + f][1] >= 0.0f ? 2 : 0;
                if (y % every != 0)
                    continue;
                spx_row_load(r, y, far, row);
                spx_row_factor(r, row);
                spx_row_solve(r, row, NULL);
                for (size_t i = 0; i < row->n; i++) {
                    light[row->fibre[i] * r->ny + y] = (float)row->x[i];
                    seen[row->fibre[i] * r->ny + y] = row->seen[i] ? 1 : 2;
                }
            }
#pragma omp for
        for (size_t f = 0; f < r->nspec; f++)
            if (line) {
                fill(r->ny, seen + f * r->ny, light + f * r->ny);
                if (r->ny > 2 * SIDE)
                    sharpen(r->ny, r->spread[f], light + f * r->ny, line, line + r->ny);
            }
        spx_row_free(row);
        spx_free(line);
    }
    spx_free(seen);
    return failed ? spx_mem_fail(e) : SPX_OK;
}
