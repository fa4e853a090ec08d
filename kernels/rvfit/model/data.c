/* Reads a star into spx_rv_spectra: errors, bad pixels, resolution matrix; and memory of stars and workspaces. */
#include <float.h>
#include <math.h>
#include <string.h>

#include "base/clones.h"
#include "base/mem.h"
#include "num/stat.h"
#include "rvfit/model/model.h"

int spx_rv_make_templates(const spx_rv_ctx *c, spx_rv_templates *t, spx_err *e)
{
    int ok = 1;
    for (size_t i = 0; i < c->narm && ok; i++)
        ok = (t->c[i] = spx_alloc(c->arm[i].nt + 2, sizeof *t->c[i], e)) != NULL;
    return ok;
}

static void free_templates(spx_rv_templates *t)
{
    for (size_t i = 0; i < SPX_MAX_ARM; i++)
        spx_free(t->c[i]);
}

enum { LINE = 64 }; /* bytes of a line of the cache */

/* The next n elements of `size` bytes of memory at `at`, from a line of the cache on; NULL where that is nowhere. *used
 * is raised by their bytes. */
static void *place(char *at, size_t *used, size_t n, size_t size)
{
    void *p = at != NULL ? at + *used : NULL;
    *used += (n * size + LINE - 1) / LINE * LINE;
    return p;
}

/* Places the arrays of a workspace in memory at `at`, NULL: nowhere. Those that a device's engine leaves alone are the
 * last ones, so that their pages are never touched there. Returns the bytes. */
static size_t place_workspace(const spx_rv_ctx *c, char *at, spx_rv_workspace *r)
{
    const size_t lanes = 1 + c->nfree, planes = 1 + c->grid.ng, nlag = c->ccf.nlag;
    const size_t batch = c->interpolator != SPX_INTERPOLATE_GRID ? SPX_RV_BATCH : 1;
    const spx_rv_lags *ccf = &c->ccf;
    size_t used = 0, nnode = 1;
    for (size_t g = 0; g < c->grid.ng; g++)
        nnode *= 4;
#define PLACE(array, n) ((array) = place(at, &used, (n), sizeof *(array)))
    PLACE(r->q, c->size.n);
    PLACE(r->r, c->size.n);
    PLACE(r->w, c->size.n);
    PLACE(r->u, lanes * c->size.n);
    PLACE(r->t, lanes * c->size.sample);
    PLACE(r->t2, lanes * c->size.sample);
    PLACE(r->product, c->size.sample);
    PLACE(r->rot, 3 * c->size.nt);
    PLACE(r->rotf, 4 * c->size.nt);
    PLACE(r->node, nnode);
    PLACE(r->row, nnode);
    PLACE(r->weight, nnode * planes);
    PLACE(r->single, nnode * planes);
    PLACE(r->sum, planes * c->size.comp);
    PLACE(r->net, 2 * planes * c->size.width);
    for (size_t i = 0; i < c->narm; i++) { /* templates that are kept are made when they are needed */
        PLACE(r->own.c[i], c->arm[i].nt + 2);
        PLACE(r->s[i], SPX_MAX_FIT * (c->arm[i].nt + 2));
    }
    if (c->scan.n > 0) {
        PLACE(r->pixel, c->size.n);
        for (size_t i = 0; i < (c->opt->resolution ? 4 : 2); i++)
            PLACE(r->curve[i], c->size.nt + SPX_RV_KNOTS);
        if (c->opt->resolution)
            PLACE(r->rows, SPX_RV_LANES * c->size.n);
    }
    if (ccf->n > 0) {
        const size_t ntemp = c->arm[0].setup->ccf.ntemp;
        PLACE(r->cdata, 2 * ccf->n + 4);
        PLACE(r->cout, ccf->n);
        PLACE(r->cs, ccf->stride);
        PLACE(r->civ, ccf->stride);
        PLACE(r->cprod, ccf->stride);
        PLACE(r->cfew, 4 * ccf->nfew);
        PLACE(r->csum, ccf->nsum);
        PLACE(r->csample, ccf->ncomp * ccf->nsample);
        PLACE(r->clag, ccf->ncomp * nlag);
        PLACE(r->chi, ntemp * nlag);
        PLACE(r->best, nlag);
        PLACE(r->best_entry, nlag);
        PLACE(r->least, ntemp);
        PLACE(r->least_lag, ntemp);
    }
    for (size_t i = 0; i < batch; i++) {
        PLACE(r->plane[i], c->size.nt);
        PLACE(r->slope[i], planes * c->size.nt);
        PLACE(r->cd[i], planes * c->narm * c->size.comp);
        PLACE(r->cf[i], planes * c->narm * c->size.comp);
    }
#undef PLACE
    return used;
}

spx_status spx_rv_workspace_init(spx_rv_workspace *r, const spx_rv_ctx *c, spx_err *e)
{
    *r = (spx_rv_workspace){0};
    r->memory = spx_alloc(place_workspace(c, NULL, r), 1, e);
    if (r->memory == NULL)
        return SPX_EIO;
    (void)place_workspace(c, r->memory, r);
    r->at = &r->own;
    return SPX_OK;
}

void spx_rv_workspace_free(spx_rv_workspace *r)
{
    for (size_t i = 0; i < SPX_RV_TOGETHER; i++)
        free_templates(&r->kept[i]);
    spx_free(r->memory);
    *r = (spx_rv_workspace){0};
}

/* Places the arrays of a piece, each from a line of the cache on, in memory at `at`, NULL: nowhere. Returns their
 * bytes. */
static size_t place_piece(const spx_rv_ctx *c, char *at, spx_rv_data *d)
{
    const size_t n = c->size.n, nair = c->opt->transmission ? 2 * c->size.sample : 0;
    const struct {
        double **array;
        size_t n;
    } part[] = {{&d->flux, n},
                {&d->ie, n},
                {&d->model, n},
                {&d->band, c->opt->resolution ? c->size.band : 0},
                {&d->air, nair},
                {&d->sigma, c->opt->jitter ? n : 0},
                {&d->level, c->opt->jitter ? n : 0},
                {&d->other, c->opt->jitter ? n : 0}};
    size_t used = 0;
    for (size_t k = 0; k < sizeof part / sizeof *part; k++) {
        if (at != NULL && part[k].n > 0)
            *part[k].array = (double *)(void *)(at + used);
        used += (part[k].n * sizeof(double) + LINE - 1) / LINE * LINE;
    }
    if (at != NULL)
        d->good = (uint8_t *)at + used;
    return used + (n + LINE - 1) / LINE * LINE;
}

size_t spx_rv_pieces_bytes(const spx_rv_ctx *c)
{
    spx_rv_data any;
    return c->narm * place_piece(c, NULL, &any);
}

/* Pieces up to n, which have their arrays in `memory`, zeroed. */
static int add_pieces(spx_rv_spectra *w, size_t n, char *memory, spx_err *e)
{
    spx_rv_data *more = spx_alloc(n, sizeof *more, e);
    if (!more)
        return 0;
    if (w->maxpiece > 0)
        memcpy(more, w->piece, w->maxpiece * sizeof *more);
    spx_free(w->piece);
    w->piece = more;
    for (; w->maxpiece < n; w->maxpiece++)
        memory += place_piece(w->ctx, memory, &w->piece[w->maxpiece]);
    return 1;
}

int spx_rv_need_pieces(spx_rv_spectra *w, size_t n, spx_err *e)
{
    const size_t have = w->maxpiece;
    spx_rv_data any;
    if (n <= have)
        return 1;
    char *memory = spx_alloc2(n - have, place_piece(w->ctx, NULL, &any), 1, e);
    if (!memory || !add_pieces(w, n, memory, e)) {
        spx_free(memory);
        return 0;
    }
    w->piece[have].memory = memory;
    return 1;
}

spx_status spx_rv_spectra_init(spx_rv_spectra *w, const spx_rv_ctx *c, spx_rv_workspace *r, void *memory, spx_err *e)
{
    *w = (spx_rv_spectra){.ctx = c, .workspace = r};
    if (!add_pieces(w, c->narm, memory, e) || (w->scan = spx_alloc(c->scan.n, sizeof *w->scan, e)) == NULL) {
        spx_rv_spectra_free(w);
        return SPX_EIO;
    }
    return SPX_OK;
}

void spx_rv_spectra_free(spx_rv_spectra *w)
{
    for (size_t i = 0; i < w->maxpiece; i++)
        spx_free(w->piece[i].memory);
    spx_free(w->piece);
    spx_free(w->scan);
    *w = (spx_rv_spectra){0};
}

/* Those of the values of x[n] that `take` marks, which are finite, into tmp, and infinity for the others; how many. */
SPX_CLONES
static size_t take_finite(size_t n, const double *restrict x, const uint8_t *restrict take, double *restrict tmp)
{
    size_t m = 0;
#pragma omp simd reduction(+ : m)
    for (size_t i = 0; i < n; i++) {
        const int taken = (take[i] != 0) & (fabs(x[i]) <= DBL_MAX);
        tmp[i] = taken ? x[i] : HUGE_VAL;
        m += (size_t)taken;
    }
    return m;
}

/* Median of the finite values of x[n] that `take` marks; 0 when there are none. Uses tmp[n]. */
static double median_of(size_t n, const double *x, const uint8_t *take, double *tmp)
{
    return spx_median_smallest(tmp, n, take_finite(n, x, take, tmp));
}

/* Fill pixels that are marked in fill[n], linearly over the pixel number; the ends take their nearest value. */
static void fill_pixels(size_t n, double *f, const uint8_t *fill)
{
    for (size_t i = 0; i < n; i++) {
        if (!fill[i])
            continue;
        size_t j = i;
        while (j < n && fill[j])
            j++;
        for (size_t k = i; k < j; k++) {
            if (i == 0)
                f[k] = j < n ? f[j] : 0;
            else if (j == n)
                f[k] = f[i - 1];
            else
                f[k] = spx_rv_filled(f[i - 1], f[j], i - 1, k, j);
        }
        i = j;
    }
}

/* A piece is left out: of all reasons the one that came closest to a fit is kept. */
static void leave_out(spx_rv_spectra *w, spx_rvfit_bad why)
{
    if (why > w->bad)
        w->bad = why;
}

/* Fluxes, 0 where they or their ivar cannot be measurements, and errors, 0 there: two loops, since vectors have no
 * division that is left out. */
SPX_CLONES
static void sane_pixels(size_t n, const double *restrict flux, const double *restrict ivar, double *restrict f,
                        double *restrict err)
{
#pragma omp simd
    for (size_t i = 0; i < n; i++)
        err[i] = sqrt(ivar[i]);
#pragma omp simd
    for (size_t i = 0; i < n; i++) {
        const double value = flux[i], root = err[i];
        const int sane = spx_rv_sane(value, ivar[i], root);
        f[i] = sane ? value : 0;
        err[i] = sane ? root : HUGE_VAL;
    }
#pragma omp simd
    for (size_t i = 0; i < n; i++)
        err[i] = 1 / err[i];
}

/* No error where there is a mask. */
SPX_CLONES
static void mask_pixels(size_t n, const uint32_t *restrict mask, double *restrict err)
{
#pragma omp simd
    for (size_t i = 0; i < n; i++)
        err[i] = mask[i] != 0 ? 0 : err[i];
}

/* Marks pixels that are to be filled, those without an error, and good ones, which are also not left out and have an
 * error in the end, others 0. Returns how many are good. */
SPX_CLONES
static size_t good_pixels(size_t n, double *restrict err, const uint8_t *restrict leftout, uint8_t *restrict fill,
                          uint8_t *restrict good)
{
    size_t ngood = 0;
#pragma omp simd reduction(+ : ngood)
    for (size_t i = 0; i < n; i++) {
        const int has = err[i] > 0, use = has & (leftout[i] == 0);
        fill[i] = (uint8_t)!has;
        good[i] = (uint8_t)use;
        ngood += (size_t)use;
        err[i] = use ? err[i] : 0;
    }
    return ngood;
}

SPX_CLONES
static void divide(size_t n, const double *x, const double *y, double *out)
{
#pragma omp simd
    for (size_t i = 0; i < n; i++)
        out[i] = x[i] / y[i];
}

SPX_CLONES
static void at_least(size_t n, double least, double *x)
{
#pragma omp simd
    for (size_t i = 0; i < n; i++)
        x[i] = x[i] > least ? x[i] : least;
}

static int load_piece(spx_rv_spectra *w, spx_rv_data *d, size_t row)
{
    const spx_rv_ctx *c = w->ctx;
    const spx_rv_arm *a = &c->arm[d->arm];
    size_t n = a->n;
    const double *flux = a->arm->flux + row * n, *ivar = a->arm->ivar + row * n;
    const uint32_t *mask = a->arm->mask ? a->arm->mask + row * n : NULL;
    uint8_t *fill = (uint8_t *)w->workspace->u, *all = fill + n; /* not in use yet */
    double *tmp = w->workspace->r, *err = w->workspace->q;

    sane_pixels(n, flux, ivar, d->flux, err);
    if (mask != NULL)
        mask_pixels(n, mask, err);
    d->nreject = 0;
    d->ngood = good_pixels(n, err, a->leftout, fill, d->good);
    if (d->ngood <= a->basis.n) {
        leave_out(w, d->ngood == 0 ? SPX_RVFIT_NO_PIXEL : SPX_RVFIT_FEW_PIXELS);
        return 0;
    }
    /* The median flux sets the error of bad pixels: of all finite values, or of what is not 0 when most are. */
    memset(all, 1, n);
    double typical = median_of(n, flux, all, tmp);
    if (typical == 0) {
        size_t m = 0;
        for (size_t i = 0; i < n; i++)
            if (!fill[i] && flux[i] > 0)
                tmp[m++] = flux[i];
        typical = spx_median(tmp, m);
        for (size_t i = 0; m == 0 && i < n; i++)
            tmp[i] = isfinite(flux[i]) ? fabs(flux[i]) : 0;
        if (m == 0)
            typical = spx_median(tmp, n);
    }
    typical = fabs(typical);
    if (!(typical > 1e-45) || !(typical < 1e45)) {
        leave_out(w, SPX_RVFIT_NO_FLUX);
        return 0;
    }
    fill_pixels(n, d->flux, fill);

    divide(n, d->flux, err, w->workspace->w);
    d->sn = median_of(n, w->workspace->w, d->good, tmp);
    double least = SPX_RV_LEAST_ERROR * median_of(n, err, d->good, tmp);
    d->large = typical * SPX_RV_LARGE_ERROR;
    at_least(n, least, err);
    if (c->opt->jitter) {
        memcpy(d->sigma, err, n * sizeof *err);
        spx_rv_level(n, d->flux, d->good, tmp, d->level);
    }
    spx_rv_set_errors(a, d, err, d->level, w->jitter[d->arm]);
    for (size_t i = n; i < a->stride; i++) /* an arm with more pixels may have been here */
        d->flux[i] = d->ie[i] = 0;
    const double *res = c->opt->resolution ? a->arm->resolution + row * a->arm->ndiag * n : NULL;
    if (res != NULL && a->fine.per > 0)
        spx_rv_fine_rows(a, res, d->band, tmp, &d->width, &d->misfit);
    else if (res != NULL)
        spx_rv_match_rows(c->kernels, a, res, d->band, tmp, &d->width, &d->misfit);
    if (a->fine.per > 0) {
        const size_t nair = c->opt->transmission->nspecies + 1;
        double plain[SPX_MAX_SPECIES + 1];
        for (size_t k = 0; k < nair; k++)
            plain[k] = k + 1 < nair;
        spx_rv_air(a, c->opt->transmission, c->in->air != NULL ? c->in->air + d->exposure * nair : plain, d->air,
                   w->workspace->t2);
    }
    return 1;
}

static size_t reject_piece(spx_rv_spectra *w, spx_rv_data *d, double sigma)
{
    const spx_rv_arm *a = &w->ctx->arm[d->arm];
    double *z = w->workspace->w, *tmp = w->workspace->r;
    size_t m = 0, found = 0;
    if (!(d->chisq < HUGE_VAL))
        return 0;
    for (size_t i = 0; i < a->n; i++) {
        z[i] = fabs(d->flux[i] - d->model[i]) * d->ie[i];
        if (d->good[i])
            tmp[m++] = z[i];
    }
    const double cut = spx_rv_reject_cut(sigma, spx_median(tmp, m));
    uint8_t *fill = (uint8_t *)w->workspace->u; /* not in use */
    for (size_t i = 0; i < a->n; i++)
        found += fill[i] = d->good[i] && z[i] > cut;
    if (d->ngood - found <= a->basis.n)
        return 0;
    for (size_t i = 0; i < a->n; i++)
        if (fill[i]) {
            d->sum_lne2 += 2 * log(d->large * d->ie[i]);
            d->ie[i] = 1 / d->large;
            d->good[i] = 0;
        }
    d->ngood -= found;
    d->nreject += found;
    fill_pixels(a->n, d->flux, fill);
    return found;
}

size_t spx_rv_reject(spx_rv_spectra *w, double sigma)
{
    size_t n = 0;
    for (size_t i = 0; i < w->first[w->ctx->narm]; i++)
        n += reject_piece(w, &w->piece[i], sigma);
    return n;
}

size_t spx_rv_take_rejected(spx_rv_spectra *w, const spx_rv_rejected *r)
{
    size_t n = 0;
    for (size_t i = 0; i < w->first[w->ctx->narm]; i++) {
        spx_rv_data *d = &w->piece[i];
        d->sum_lne2 += r[i].sum_lne2;
        d->ngood -= (size_t)r[i].found;
        d->nreject += (size_t)r[i].found;
        n += (size_t)r[i].found;
    }
    return n;
}

void spx_rv_exposures(const spx_rv_ctx *c, size_t star, size_t *first, size_t *end)
{
    *first = c->in->first ? c->in->first[star] : star;
    *end = c->in->first ? c->in->first[star + 1] : star + 1;
}

size_t spx_rv_row(const spx_rv_ctx *c, size_t exposure)
{
    return c->in->row ? c->in->row[exposure] : exposure;
}

size_t spx_rv_continua(const spx_rv_spectra *w)
{
    size_t n = 0;
    for (size_t i = 0; i < w->first[w->ctx->narm]; i++)
        n += w->ctx->arm[w->piece[i].arm].basis.n;
    return n;
}

/* Pieces of a star: of each arm and exposure, as far as they can be fitted, or of all, whose pixels are not read. */
static int take_star(spx_rv_spectra *w, size_t star, int read)
{
    const spx_rv_ctx *c = w->ctx;
    size_t n = 0, begin, end;
    spx_rv_exposures(c, star, &begin, &end);
    spx_rv_forget(w);
    w->npix = 0;
    w->neval = 0;
    w->bad = SPX_RVFIT_NO_PIXEL;
    w->unread = !read;
    if (!spx_rv_need_pieces(w, c->narm * (end - begin), &w->err))
        return 0;
    for (size_t i = 0; i < c->narm; i++) {
        const double given = c->opt->jitter_of[c->arm[i].index];
        w->jitter[i] = c->opt->jitter && isfinite(given) ? given : 0;
        w->jitter_err[i] = 0;
        w->first[i] = n;
        for (size_t k = begin; k < end; k++) {
            spx_rv_data *d = &w->piece[n];
            d->arm = i;
            d->exposure = k;
            n += !read || load_piece(w, d, spx_rv_row(c, k));
        }
        w->npix += (n - w->first[i]) * c->arm[i].n;
    }
    w->first[c->narm] = n;
    return n > 0;
}

int spx_rv_load(spx_rv_spectra *w, size_t star)
{
    return take_star(w, star, 1);
}

int spx_rv_list(spx_rv_spectra *w, size_t star)
{
    return take_star(w, star, 0);
}

void spx_rv_take_read(spx_rv_spectra *w, const spx_rv_read *r)
{
    size_t n = 0, p = 0;
    w->npix = 0;
    for (size_t i = 0; i < w->ctx->narm; i++) {
        const size_t end = w->first[i + 1];
        w->first[i] = n;
        for (; p < end; p++) {
            if (r[p].bad != SPX_RVFIT_GOOD) {
                leave_out(w, (spx_rvfit_bad)r[p].bad);
                continue;
            }
            spx_rv_data *d = &w->piece[n++];
            d->arm = i;
            d->exposure = w->piece[p].exposure;
            d->large = r[p].large;
            d->sn = r[p].sn;
            d->width = r[p].width;
            d->misfit = r[p].misfit;
            d->sum_lne2 = r[p].sum_lne2;
            d->ngood = (size_t)r[p].ngood;
            d->nreject = 0;
            d->kept = NULL;
        }
        w->npix += (n - w->first[i]) * w->ctx->arm[i].n;
    }
    w->first[w->ctx->narm] = n;
}
