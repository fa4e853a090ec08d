/* Fits the background of an image (extract/trace/background.h). */
#include "extract/trace/background.h"

#include <lapacke.h>
#include <math.h>
#include <string.h>

#include "base/clones.h"
#include "base/mem.h"
#include "calib/series.h"
#include "num/blas.h"

/* Second differences of the coefficients are held at 0 with this fraction of their mean information: where no pixel
 * tells, the background goes on as a straight line. */
#define HOLD 1e-6

enum {
    LANES = SPX_ROW_LANES,
    NEAR = SPX_BACKGROUND_NEAR, /* splines from the first that is not 0 in the middle of a fibre, and elements of a row
                                   of S */
    POWERS = 7,                 /* of products of two cubics */
    ROUGH = 16,                 /* rows, of which one is used for a rough fit, or of an eighth of a cell */
    BLOCK = 32,                 /* rows that are a thread's at one time: a multiple of it */
    BESIDE = 3                  /* rows that are held at one time: hits count for those before and behind them */
};

struct spx_background {
    size_t ny, nx;
    spx_bspline along, across; /* in rows, in columns */
    size_t n;                  /* unknowns */
    size_t rough;              /* rows, of which one is used for a rough fit */
    double *c;                 /* [along.n][across.n] */
    size_t *first;             /* [nx] first spline that is not 0 in a column */
    size_t *next;              /* [nx] first column behind it with other splines */
    double (*taylor)[4][4];    /* [nx] series of the splines around a column: powers, splines */
    double *row;               /* [ny][across.n][NEAR + 1] S of a row, and the right side; NULL before the first fit */
    size_t band;               /* elements of a column of S below its diagonal */
    double *matrix;            /* [n][band + 1] S, columns from the diagonal on */
};

spx_status spx_background_make(size_t ny, size_t nx, double cell, spx_background **out, spx_err *e)
{
    spx_background *bg = *out = spx_alloc(1, sizeof *bg, e);
    if (!bg)
        return SPX_EIO;
    bg->ny = ny;
    bg->nx = nx;
    bg->along = spx_bspline_of(0, (double)ny - 1, cell);
    bg->across = spx_bspline_of(0, (double)nx - 1, cell);
    bg->n = bg->along.n * bg->across.n;
    bg->band = 3 * bg->across.n + NEAR - 1;
    bg->rough = cell < ROUGH * 8 ? ROUGH / 2 : ROUGH;
    if (bg->n > SPX_BACKGROUND_MOST)
        return spx_fail_remedy(e, SPX_EUSAGE, "give a larger {background}",
                               "a background in cells of %g pixels has %zu unknowns, of at most %d", cell, bg->n,
                               (int)SPX_BACKGROUND_MOST);
    if (!((bg->c = spx_alloc(bg->n, sizeof *bg->c, e)) && (bg->first = spx_alloc2(2, nx, sizeof *bg->first, e)) &&
          (bg->taylor = spx_alloc(nx, sizeof *bg->taylor, e)) &&
          (bg->matrix = spx_alloc2(bg->n, bg->band + 1, sizeof *bg->matrix, e))))
        return SPX_EIO;
    for (size_t x = 0; x < nx; x++)
        bg->first[x] = spx_bspline_series(&bg->across, (double)x, bg->taylor[x]);
    bg->next = bg->first + nx;
    for (size_t x = nx; x-- > 0;)
        bg->next[x] = x + 1 < nx && bg->first[x + 1] == bg->first[x] ? bg->next[x + 1] : x + 1;
    return SPX_OK;
}

void spx_background_free(spx_background *bg)
{
    if (bg == NULL)
        return;
    spx_free(bg->c);
    spx_free(bg->first);
    spx_free(bg->taylor);
    spx_free(bg->row);
    spx_free(bg->matrix);
    spx_free(bg);
}

/* ---- the splines ---- */

double spx_background_at(const spx_background *bg, double x, double y)
{
    double by[4], bx[4], sum = 0.0;
    const size_t j = spx_bspline_at(&bg->along, fmin(fmax(y, 0.0), (double)bg->ny - 1), by),
                 i = spx_bspline_at(&bg->across, fmin(fmax(x, 0.0), (double)bg->nx - 1), bx);
    for (size_t a = 0; a < 4; a++)
        for (size_t b = 0; b < 4; b++)
            sum += by[a] * bx[b] * bg->c[(j + a) * bg->across.n + i + b];
    return sum;
}

/* Coefficients of the splines across in row y. c: [across.n] */
static void across_row(const spx_background *bg, size_t y, double *c)
{
    double by[4];
    const size_t n = bg->across.n, j = spx_bspline_at(&bg->along, (double)y, by);
    for (size_t i = 0; i < n; i++)
        c[i] = by[0] * bg->c[j * n + i] + by[1] * bg->c[(j + 1) * n + i] + by[2] * bg->c[(j + 2) * n + i] +
               by[3] * bg->c[(j + 3) * n + i];
}

/* Adds factor times the background of a row, whose coefficients are c, to line[nx]. */
SPX_CLONES static void draw_row(const spx_background *bg, const double *c, double factor, float *line)
{
    for (size_t x = 0, end; x < bg->nx; x = end) {
        const double *v = c + bg->first[x];
        float a[4] = {0}; /* of the distance from x, the first column with these splines */
        for (size_t k = 0; k < 4; k++)
            a[k] = (float)(factor * (bg->taylor[x][k][0] * v[0] + bg->taylor[x][k][1] * v[1] +
                                     bg->taylor[x][k][2] * v[2] + bg->taylor[x][k][3] * v[3]));
        end = bg->next[x];
#pragma omp simd
        for (size_t k = x; k < end; k++) {
            const float t = (float)(int)(k - x);
            line[k] += a[0] + t * (a[1] + t * (a[2] + t * a[3]));
        }
    }
}

void spx_background_add(const spx_background *bg, int nthreads, float *far)
{
#pragma omp parallel for num_threads(nthreads)
    for (size_t y = 0; y < bg->ny; y++) {
        double *c = bg->row + y * bg->across.n * (NEAR + 1);
        across_row(bg, y, c);
        draw_row(bg, c, 1.0, far + y * bg->nx);
    }
}

/* Holds second differences along rows and columns at 0: hold times their squares into the matrix, and what they are now
 * off the right side, c. */
static void add_hold(spx_background *bg, double hold, double *c)
{
    static const double bend[3] = {1, -2, 1};
    const size_t ny = bg->along.n, nx = bg->across.n;
    for (size_t j = 0; j < ny; j++)
        for (size_t i = 0; i < nx; i++)
            for (int way = 0; way < 2; way++) {
                const size_t next = way == 0 ? 1 : nx, k = j * nx + i;
                if (way == 0 ? i + 2 >= nx : j + 2 >= ny)
                    continue;
                const double is = bg->c[k] - 2 * bg->c[k + next] + bg->c[k + 2 * next];
                for (size_t a = 0; a < 3; a++) {
                    c[k + a * next] -= hold * bend[a] * is;
                    for (size_t b = a; b < 3; b++)
                        bg->matrix[(k + a * next) * (bg->band + 1) + (b - a) * next] += hold * bend[a] * bend[b];
                }
            }
}

/* ---- rows ---- */

/* Of a thread. */
typedef struct {
    spx_row *row[BESIDE];       /* by the row's number, modulo BESIDE, without the background as it is */
    unsigned char *hit[BESIDE]; /* [nx] pixels off the model */
    double *c;                  /* [across.n] */
    double (*v)[NEAR];          /* [fibres] */
    float *model;               /* [columns] */
    unsigned char *use;         /* [columns] */
    size_t left_out;            /* pixels */
} workspace;

static int make_workspace(const spx_background *bg, const spx_rows *r, workspace *w)
{
    const size_t columns = bg->nx + 2 * spx_rows_pad(r);
    int ok = (w->c = spx_alloc(bg->across.n, sizeof *w->c, NULL)) != NULL &&
             (w->v = spx_alloc(spx_rows_nspec(r), sizeof *w->v, NULL)) != NULL &&
             (w->model = spx_alloc(columns, sizeof *w->model, NULL)) != NULL &&
             (w->use = spx_alloc(columns, 1, NULL)) != NULL;
    for (size_t i = 0; i < BESIDE && ok; i++)
        ok = (w->row[i] = spx_row_alloc(r)) != NULL && (w->hit[i] = spx_alloc(bg->nx, 1, NULL)) != NULL;
    return ok;
}

static void free_workspace(workspace *w)
{
    for (size_t i = 0; i < BESIDE; i++) {
        spx_row_free(w->row[i]);
        spx_free(w->hit[i]);
    }
    spx_free(w->c);
    spx_free(w->v);
    spx_free(w->model);
    spx_free(w->use);
}

/* Pixels of a row that are not of the fibres of the PSF, or also of a fibre that has no trace in the row, get no
 * weight. use: [columns] */
static void choose_pixels(const spx_background *bg, const spx_rows *r, size_t y, unsigned char *use, spx_row *row)
{
    const size_t pad = spx_rows_pad(r), width = spx_rows_width(r), columns = bg->nx + 2 * pad;
    memset(use, 0, columns);
    for (size_t i = 0; i < row->n; i++)
        memset(use + row->start[i] - SPX_BACKGROUND_GAP, 1, width + 2 * SPX_BACKGROUND_GAP);
    for (size_t f = 0; f < spx_rows_nspec(r) && row->n < spx_rows_nspec(r); f++) {
        double x, lambda;
        if (spx_rows_place(r, f, y, &x, &lambda) || !spx_rows_nearest(r, f, y, &x))
            continue;
        const long first = (long)floor(x + 0.5) + (long)pad - (long)width;
        for (long c = first > 0 ? first : 0; c < first + 2 * (long)width && c < (long)columns; c++)
            use[c] = 0;
    }
    float *weight = row->weight;
#pragma omp simd
    for (size_t c = 0; c < columns; c++)
        weight[c] = use[c] ? weight[c] : 0.0f;
}

/* Leaves out the pixels of fibres that are hardly seen, whose light is not solved for. Returns whether there were any.
 */
static int hide(const spx_rows *r, spx_row *row)
{
    size_t hidden = 0;
    for (size_t i = 0; i < row->n; i++)
        if (!row->seen[i])
            hidden += spx_row_hide(r, row, (size_t)row->start[i], (size_t)row->start[i] + spx_rows_width(r));
    return hidden > 0;
}

/* Equations of a row. */
static void factor(const spx_rows *r, spx_row *row)
{
    do {
        do
            spx_row_see(r, row);
        while (hide(r, row));
        spx_row_factor(r, row);
    } while (hide(r, row));
}

/* Row y without far and the background as it is, its equations and, but for a rough fit, its hits. */
static void open_row(const spx_background *bg, const spx_rows *r, size_t y, const float *far, int rough, workspace *w)
{
    spx_row *row = w->row[y % BESIDE];
    const size_t pad = spx_rows_pad(r);
    spx_row_load(r, y, far, row);
    choose_pixels(bg, r, y, w->use, row);
    across_row(bg, y, w->c);
    draw_row(bg, w->c, -1.0, row->data + pad);
    factor(r, row);
    if (rough)
        return;
    spx_row_solve(r, row, w->model);
    const float *data = row->data + pad, *weight = row->weight + pad, *have = w->model + pad;
    unsigned char *hit = w->hit[y % BESIDE];
#pragma omp simd
    for (size_t x = 0; x < bg->nx; x++)
        hit[x] =
            (data[x] - have[x]) * (data[x] - have[x]) * weight[x] > (float)(SPX_BACKGROUND_CLIP * SPX_BACKGROUND_CLIP);
}

/* Leaves out the hits of row y, the pixels beside them, and those beside hits of the rows before and behind it. */
static void leave_out(const spx_background *bg, const spx_rows *r, size_t y, workspace *w)
{
    const size_t pad = spx_rows_pad(r);
    for (size_t k = y > 0 ? y - 1 : 0; k <= y + 1 && k < bg->ny; k++) {
        const unsigned char *from = w->hit[k % BESIDE], *end = from + bg->nx, *at = from;
        for (; (at = memchr(at, 1, (size_t)(end - at))) != NULL; at++) {
            const size_t x = (size_t)(at - from), first = k == y && x > 0 ? x - 1 : x,
                         last = k == y && x + 1 < bg->nx ? x + 1 : x;
            w->left_out += spx_row_hide(r, w->row[y % BESIDE], pad + first, pad + last + 1);
        }
    }
}

/* Moments of a profile times the weights: powers 0 to 3 of the distance from column `middle`. */
SPX_CLONES static void find_moments(size_t width, float middle, const float *p, const float *w, double *moment)
{
    float m[4][LANES] = {{0}};
    for (size_t c = 0; c < width; c += LANES)
#pragma omp simd
        for (size_t l = 0; l < LANES; l++) {
            const float d = (float)(int)(c + l) - middle, v = p[c + l] * w[c + l];
            m[0][l] += v;
            m[1][l] += v * d;
            m[2][l] += v * d * d;
            m[3][l] += v * d * d * d;
        }
    for (size_t k = 0; k < 4; k++)
        moment[k] = (double)spx_row_total(m[k]);
}

/* Moments of columns x to end - 1 with the distance from x, in units of `scale` columns: powers 0 to 6 of the weights,
 * 0 to 3 of the weighted data. */
SPX_CLONES static void column_moments(size_t x, size_t end, double scale, const float *weight, const float *data,
                                      double *mw, double *md)
{
    enum { VECTOR = 4 };
    double w[POWERS][VECTOR] = {{0}}, d[4][VECTOR] = {{0}};
    for (size_t c = x; c < end; c += VECTOR)
        if (c + VECTOR <= end)
#pragma omp simd
            for (size_t l = 0; l < VECTOR; l++) {
                const double t = (double)(int)(c + l - x) * scale, v = (double)weight[c + l],
                             u = v * (double)data[c + l], t2 = t * t, t3 = t2 * t;
                w[0][l] += v;
                w[1][l] += v * t;
                w[2][l] += v * t2;
                w[3][l] += v * t3;
                w[4][l] += v * t2 * t2;
                w[5][l] += v * t2 * t3;
                w[6][l] += v * t3 * t3;
                d[0][l] += u;
                d[1][l] += u * t;
                d[2][l] += u * t2;
                d[3][l] += u * t3;
            }
        else
            for (size_t l = 0; c + l < end; l++) {
                double power = 1.0;
                for (size_t k = 0; k < POWERS; k++) {
                    w[k][l] += power * (double)weight[c + l];
                    if (k < 4)
                        d[k][l] += power * (double)weight[c + l] * (double)data[c + l];
                    power *= (double)(c + l - x) * scale;
                }
            }
    for (size_t k = 0; k < POWERS; k++)
        mw[k] = (w[k][0] + w[k][1]) + (w[k][2] + w[k][3]);
    for (size_t k = 0; k < 4; k++)
        md[k] = (d[k][0] + d[k][1]) + (d[k][2] + d[k][3]);
}

/* Adds B^T W B and B^T W p of the columns from x on that have the same splines to s. Returns the column behind them. */
static size_t add_columns(const spx_background *bg, size_t x, const float *weight, const float *data, double *s)
{
    const size_t end = bg->next[x];
    const double unit = bg->across.step;
    double mw[POWERS], md[4], p[4][4]; /* p: powers, splines */
    column_moments(x, end, 1.0 / unit, weight, data, mw, md);
    for (size_t k = 0; k < 4; k++)
        for (size_t a = 0; a < 4; a++)
            p[k][a] = bg->taylor[x][k][a] * (k == 0 ? 1.0 : k == 1 ? unit : k == 2 ? unit * unit : unit * unit * unit);
    for (size_t a = 0; a < 4; a++) {
        double *to = s + (bg->first[x] + a) * (NEAR + 1);
        for (size_t b = a; b < 4; b++)
            for (size_t i = 0; i < 4; i++)
                for (size_t j = 0; j < 4; j++)
                    to[b - a] += p[i][a] * p[j][b] * mw[i + j];
        for (size_t i = 0; i < 4; i++)
            to[NEAR] += p[i][a] * md[i];
    }
    return end;
}

/* Takes V^T A^-1 V and V^T A^-1 G^T W p of a row off s, with V and the right side times L^-1. Within a profile, splines
 * are the cubics that they are in its middle. v: [n fibres][NEAR] */
SPX_CLONES static void take_fibres(const spx_background *bg, const spx_rows *r, const spx_row *row, double (*v)[NEAR],
                                   double *s)
{
    const size_t pad = spx_rows_pad(r), width = spx_rows_width(r);
    for (size_t i = 0; i < row->n; i++) {
        const long at = row->start[i] - (long)pad + (long)width / 2;
        const size_t middle = at < 0 ? 0 : at < (long)bg->nx ? (size_t)at : bg->nx - 1, first = bg->first[middle];
        const double(*d)[4] = (const double(*)[4])bg->taylor[middle];
        double moment[4] = {0};
        if (row->seen[i])
            find_moments(width, (float)((long)middle + (long)pad - row->start[i]), row->profile + i * row->stride,
                         row->weight + row->start[i], moment);
#pragma omp simd
        for (size_t a = 0; a < NEAR; a++)
            v[i][a] = moment[0] * d[0][a] + moment[1] * d[1][a] + moment[2] * d[2][a] + moment[3] * d[3][a];
        for (size_t k = 1; k <= row->reach[i]; k++) {
            const long old = row->start[i - k] - (long)pad + (long)width / 2;
            const size_t shift = first - bg->first[old < 0 ? 0 : old < (long)bg->nx ? (size_t)old : bg->nx - 1];
            for (size_t a = 0; a + shift < NEAR; a++)
                v[i][a] -= row->factor[i][k] * v[i - k][a + shift];
        }
        for (size_t a = 0; a < NEAR && row->seen[i]; a++) {
            const double part = v[i][a] * row->factor[i][0];
            double *to = s + (first + a) * (NEAR + 1);
            for (size_t b = a; b < NEAR; b++)
                to[b - a] -= part * v[i][b];
            to[NEAR] -= part * row->x[i];
        }
    }
}

/* S and right side of a row. v: [n fibres][NEAR] */
static void add_row(const spx_background *bg, const spx_rows *r, size_t y, spx_row *row, double (*v)[NEAR])
{
    const size_t pad = spx_rows_pad(r), n = bg->across.n;
    double *s = bg->row + y * n * (NEAR + 1);
    memset(s, 0, n * (NEAR + 1) * sizeof *s);
    for (size_t x = 0; x < bg->nx;)
        x = add_columns(bg, x, row->weight + pad, row->data + pad, s);
    spx_row_forward(row, row->x);
    take_fibres(bg, r, row, v, s);
}

/* All that rows first to end - 1 tell, of which those `every` apart count. */
static void add_rows(const spx_background *bg, const spx_rows *r, size_t first, size_t end, size_t every,
                     const float *far, workspace *w)
{
    const int rough = every > 1;
    for (size_t y = first; y < end && rough; y += every) {
        open_row(bg, r, y, far, rough, w);
        add_row(bg, r, y, w->row[y % BESIDE], w->v);
    }
    if (rough)
        return;
    for (size_t y = first > 0 ? first - 1 : 0; y <= end; y++) {
        if (y < bg->ny)
            open_row(bg, r, y, far, rough, w);
        if (y <= first)
            continue;
        leave_out(bg, r, y - 1, w);
        factor(r, w->row[(y - 1) % BESIDE]);
        add_row(bg, r, y - 1, w->row[(y - 1) % BESIDE], w->v);
    }
}

/* Sums of the rows `every` apart for spx_background_solve(). */
static void sum_rows(const spx_background *bg, size_t every, int nthreads, double *sums)
{
    const size_t each = bg->across.n * (NEAR + 1);
#pragma omp parallel for num_threads(nthreads)
    for (size_t k = 0; k < bg->along.n; k++)
        for (size_t y = 0; y < bg->ny; y += every) {
            double by[4];
            const size_t first = spx_bspline_at(&bg->along, (double)y, by), a = k - first;
            const double *s = bg->row + y * each;
            if (k < first || a >= 4)
                continue;
            for (size_t b = a; b < 4; b++) {
                double *to = sums + (4 * k + b - a) * each;
                for (size_t i = 0; i < each; i++)
                    to[i] += (i % (NEAR + 1) == NEAR ? (b == a ? by[a] : 0.0) : by[a] * by[b]) * s[i];
            }
        }
}

spx_status spx_background_solve(spx_background *bg, const double *sums, spx_err *e)
{
    const size_t n = bg->n, nx = bg->across.n, column = bg->band + 1;
    const spx_status st = spx_blas_open(e);
    double sum = 0.0, *c = st == SPX_OK ? spx_alloc(n, sizeof *c, e) : NULL;
    if (!c)
        return st != SPX_OK ? st : SPX_EIO;
    memset(bg->matrix, 0, n * column * sizeof *bg->matrix);
    for (size_t at = 0; at < n; at++)
        for (size_t b = 0; b < 4; b++) {
            const size_t i = at % nx;
            const double *from = sums + (4 * (at / nx) + b) * nx * (NEAR + 1) + i * (NEAR + 1);
            c[at] += from[NEAR];
            /* column `at` of S: splines along behind it, to both sides across */
            for (size_t k = 0; k < NEAR && at / nx + b < bg->along.n && i + k < nx; k++) {
                bg->matrix[at * column + b * nx + k] += from[k];
                if (k > 0 && b > 0)
                    bg->matrix[(at + k) * column + b * nx - k] += from[k];
            }
        }
    for (size_t k = 0; k < n; k++)
        sum += bg->matrix[k * column];
    if (!(sum > 0.0)) {
        spx_free(c);
        return spx_fail_remedy(e, SPX_EINPUT, "leave {background} out",
                               "no pixel of the image tells of a background: all are masked, or belong to light of "
                               "fibres whose traces have ended");
    }
    add_hold(bg, HOLD * sum / (double)n, c);
    for (size_t k = 0; k < n; k++)
        bg->matrix[k * column] += 1e-12 * sum / (double)n;
    const int failed = LAPACKE_dpbsv_work(LAPACK_COL_MAJOR, 'L', (lapack_int)n, (lapack_int)bg->band, 1, bg->matrix,
                                          (lapack_int)column, c, (lapack_int)n) != 0;
    for (size_t k = 0; k < n && !failed; k++)
        bg->c[k] += c[k];
    spx_free(c);
    return !failed ? SPX_OK : spx_fail(e, SPX_EBUG, "the background's equations are not positive definite");
}

void spx_background_look(const spx_background *bg, spx_background_view *v)
{
    *v = (spx_background_view){
        .ny = bg->ny, .nx = bg->nx, .along = bg->along, .across = bg->across, .every = bg->rough, .c = bg->c};
}

spx_status spx_background_fit(spx_background *bg, const spx_rows *rows, const float *far, int rough, int nthreads,
                              spx_extract_counts *counts, spx_err *e)
{
    const size_t nblock = (bg->ny + BLOCK - 1) / BLOCK, every = rough ? bg->rough : 1;
    size_t left_out = 0;
    int failed = 0;
    spx_status st = SPX_OK;
    if (bg->row == NULL && !(bg->row = spx_alloc2(bg->ny, bg->across.n * (NEAR + 1), sizeof *bg->row, e)))
        return SPX_EIO;
#pragma omp parallel num_threads(nthreads) reduction(| : failed) reduction(+ : left_out)
    {
        workspace w = {0};
        const int ok = make_workspace(bg, rows, &w);
        failed |= !ok;
#pragma omp for schedule(dynamic)
        for (size_t b = 0; b < nblock; b++)
            if (ok)
                add_rows(bg, rows, b * BLOCK, (b + 1) * BLOCK < bg->ny ? (b + 1) * BLOCK : bg->ny, every, far, &w);
        left_out += w.left_out;
        free_workspace(&w);
    }
    double *sums = spx_alloc2(bg->along.n * 4, bg->across.n * (NEAR + 1), sizeof *sums, e);
    if (sums)
        sum_rows(bg, every, nthreads, sums);
    st = failed ? spx_mem_fail(e) : sums ? spx_background_solve(bg, sums, e) : SPX_EIO;
    counts->background_unknowns = bg->n;
    counts->background_clipped = left_out;
    spx_free(sums);
    return st;
}
