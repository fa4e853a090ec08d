/* Numbers and pictures of a night: frames of all exposures and cameras, stars seen several times (common/picture.h). */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "common/each_input.h"
#include "common/picture.h"
#include "h5/attr.h"
#include "h5/file.h"
#include "h5/object.h"
#include "h5/read.h"
#include "num/stat.h"
#include "products/cards_h5.h"
#include "products/site.h"

enum { LEFT = 90, RIGHT = 18, TOP = 30, BOTTOM = 50, NAME = 24 };

/* Numbers of a frame. NaN: the file does not say. */
enum { SNR, SKY, CHI2, MASKED, COSMICS, DX, DY, ZERO, SKYCHI2, STARS, NVALUE };
static const char *const heads[NVALUE] = {"snr", "sky", "chi2pix",    "masked",   "cosmic_pixels",
                                          "dx",  "dy",  "zero_point", "sky_chi2", "flux_stars"};

typedef struct {
    char camera[NAME], expid[NAME], tile[NAME];
    double mjd, exptime; /* middle, UTC; s */
    double v[NVALUE];
} seen;

/* Median of values that are finite, every kth of very many; NaN: none. */
static double median_of(double *v, size_t n)
{
    size_t m = 0;
    const size_t k = n / 20000 + 1;
    for (size_t i = 0; i < n; i += k)
        if (isfinite(v[i]))
            v[m++] = v[i];
    return m > 0 ? spx_median(v, m) : NAN;
}

/* Median of a two-dimensional dataset; 0: it is not there. */
static spx_status median_in(hid_t file, const char *path, double *out, spx_err *e)
{
    double *v = NULL;
    size_t dims[2] = {0, 0};
    if (!spx_h5_exists(file, path))
        return SPX_OK;
    spx_status st = spx_h5_read_f64(file, path, 2, dims, &v, e);
    if (st == SPX_OK)
        *out = median_of(v, dims[0] * dims[1]);
    spx_free(v);
    return st;
}

/* Median of a column in the rows that `use` (NULL: all) names, and where it is above 0. */
static spx_status median_column(const spx_table *t, const char *name, const unsigned char *use, double *out, spx_err *e)
{
    if (t == NULL || spx_table_find(t, name) < 0)
        return SPX_OK;
    double *v = spx_alloc(t->nrow, sizeof *v, e);
    spx_status st = v == NULL ? SPX_EIO : spx_table_get_f64(t, name, v, e);
    for (size_t i = 0; st == SPX_OK && i < t->nrow; i++)
        if ((use != NULL && !use[i]) || !(v[i] > 0))
            v[i] = NAN;
    if (st == SPX_OK)
        *out = median_of(v, t->nrow);
    spx_free(v);
    return st;
}

/* Camera, exposure and time, by the header; the exposure is what the file's name says, KIND-CAM-EXPID.h5, where it is a
 * number. */
static void words_of(hid_t file, const char *name, seen *s)
{
    const char *dash = strrchr(name, '-');
    const size_t digits = dash != NULL ? strspn(dash + 1, "0123456789") : 0;
    if (digits > 0 && dash[1 + digits] == '.')
        (void)snprintf(s->expid, sizeof s->expid, "%.*s", (int)digits, dash + 1);
    spx_cards h = {0};
    spx_err ignored = {0};
    long n;
    if (spx_h5_has_attr(file, "/frame", "camera"))
        (void)spx_h5_attr_str(file, "/frame", "camera", s->camera, sizeof s->camera, &ignored);
    if (spx_cards_read(file, "/frame/header", &h, &ignored) == SPX_OK) {
        if (*s->expid == '\0' && spx_cards_int(&h, "EXPID", &n))
            (void)snprintf(s->expid, sizeof s->expid, "%08ld", n);
        if (spx_cards_int(&h, "TILEID", &n))
            (void)snprintf(s->tile, sizeof s->tile, "%ld", n);
        (void)spx_cards_double(&h, "EXPTIME", &s->exptime);
        if (spx_exposure_middle(&h, &s->mjd, &ignored) != SPX_OK)
            s->mjd = NAN;
    }
    spx_cards_free(&h);
}

/* Fraction of the bins of the targets that are masked or without information. */
static spx_status masked_fraction(hid_t file, double *out, spx_err *e)
{
    uint32_t *mask = NULL;
    float *ivar = NULL;
    size_t dims[2] = {0, 0}, bad = 0;
    spx_status st = spx_h5_read_u32(file, "/frame/mask", 2, dims, &mask, e);
    if (st == SPX_OK)
        st = spx_h5_read_f32(file, "/frame/ivar", 2, dims, &ivar, e);
    for (size_t i = 0; st == SPX_OK && i < dims[0] * dims[1]; i++)
        bad += mask[i] != 0 || !(ivar[i] > 0);
    if (st == SPX_OK && dims[0] * dims[1] > 0)
        *out = (double)bad / (double)(dims[0] * dims[1]);
    spx_free(mask);
    spx_free(ivar);
    return st;
}

/* Frames, one after another. */
typedef struct {
    seen *frame;
    size_t n, capacity;
} frames;

/* Reads the numbers of a frame. */
static spx_status look(void *ctx, spx_input *in, spx_err *e)
{
    enum { WIDTH = 8 };
    frames *all = ctx;
    seen *s = spx_grow(all->frame, all->n, 1, &all->capacity, sizeof *s, e);
    if (s == NULL)
        return SPX_EIO;
    all->frame = s;
    s += all->n++;
    spx_table *fibermap = NULL, *scores = NULL, *sky = NULL, *stars = NULL;
    char *type = NULL, column[64];
    unsigned char *target = NULL;
    size_t dims[SPX_H5_MAXDIM] = {0};
    int ndim = 0;
    *s = (seen){.mjd = NAN, .exptime = NAN};
    for (size_t i = 0; i < NVALUE; i++)
        s->v[i] = NAN;
    spx_status st = spx_h5_exists(in->file, "/frame") ? SPX_OK : spx_fail(e, SPX_EINPUT, "%s: is no frame", in->name);
    if (st == SPX_OK)
        words_of(in->file, in->name, s);
    if (st == SPX_OK)
        st = spx_table_read(in->file, "/fibermap", &fibermap, e);
    if (st == SPX_OK)
        st = spx_table_read(in->file, "/scores", &scores, e);
    if (st == SPX_OK)
        st = spx_table_read(in->file, "/sky/table", &sky, e);
    if (st == SPX_OK)
        st = spx_table_read(in->file, "/flux/stars", &stars, e);
    /* signal-to-noise ratio of targets alone */
    if (st == SPX_OK && fibermap != NULL && scores != NULL && fibermap->nrow == scores->nrow &&
        spx_table_find(fibermap, "OBJTYPE") >= 0) {
        type = spx_alloc2(fibermap->nrow, WIDTH, 1, e);
        target = spx_alloc(fibermap->nrow, 1, e);
        st = type == NULL || target == NULL ? SPX_EIO : spx_table_get_str(fibermap, "OBJTYPE", WIDTH, type, e);
        for (size_t i = 0; st == SPX_OK && i < fibermap->nrow; i++)
            target[i] = strcmp(type + i * WIDTH, "TGT") == 0;
    }
    char arm[SPX_ARM_NAME], upper[SPX_ARM_NAME];
    spx_arm_of_camera(s->camera, arm);
    spx_arm_upper(arm, upper);
    (void)snprintf(column, sizeof column, "MEDIAN_RAW_SNR_%s", upper);
    if (st == SPX_OK)
        st = median_column(scores, column, target, &s->v[SNR], e);
    if (st == SPX_OK)
        st = median_column(sky, "CHI2_LOO", NULL, &s->v[SKYCHI2], e);
    if (st == SPX_OK)
        st = median_in(in->file, "/sky/model", &s->v[SKY], e);
    if (st == SPX_OK)
        st = median_in(in->file, "/frame/chi2pix", &s->v[CHI2], e);
    if (st == SPX_OK)
        st = masked_fraction(in->file, &s->v[MASKED], e);
    if (st == SPX_OK && spx_h5_exists(in->file, "/frame/cosmic_pixels"))
        st = spx_h5_shape(in->file, "/frame/cosmic_pixels", &ndim, dims, e);
    s->v[COSMICS] = (double)dims[0];
    if (st == SPX_OK)
        st = median_in(in->file, "/shift/dx", &s->v[DX], e);
    if (st == SPX_OK)
        st = median_in(in->file, "/shift/dy", &s->v[DY], e);
    if (st == SPX_OK && spx_h5_exists(in->file, "/shift") && spx_h5_has_attr(in->file, "/shift", "zero_point"))
        st = spx_h5_attr_f64(in->file, "/shift", "zero_point", &s->v[ZERO], e);
    if (st == SPX_OK && stars != NULL && spx_table_find(stars, "USED") >= 0) {
        double *used = spx_alloc(stars->nrow, sizeof *used, e);
        st = used == NULL ? SPX_EIO : spx_table_get_f64(stars, "USED", used, e);
        s->v[STARS] = 0;
        for (size_t i = 0; st == SPX_OK && i < stars->nrow; i++)
            s->v[STARS] += used[i] > 0;
        spx_free(used);
    }
    if (st != SPX_OK)
        (void)spx_err_at(e, in->name, NULL);
    spx_free(type);
    spx_free(target);
    spx_table_free(fibermap);
    spx_table_free(scores);
    spx_table_free(sky);
    spx_table_free(stars);
    return st;
}

/* By exposure, then camera. */
static int in_order(const void *a, const void *b)
{
    const seen *x = a, *y = b;
    const int c = strcmp(x->expid, y->expid);
    return c != 0 ? c : strcmp(x->camera, y->camera);
}

/* Frames of p->args->name, *n, in order; NULL after a failure. */
static seen *look_at_all(spx_picture *p, size_t *n)
{
    frames all = {0};
    if (p->st == SPX_OK)
        p->st = spx_each_in_turn(p->args->n, p->args->name, look, &all, p->e);
    spx_picture_keep(p, all.frame);
    if (p->st == SPX_OK)
        qsort(all.frame, all.n, sizeof *all.frame, in_order);
    *n = all.n;
    return p->st == SPX_OK ? all.frame : NULL;
}

void spx_picture_night_table(spx_picture *p)
{
    size_t n;
    const seen *s = look_at_all(p, &n);
    spx_picture_add(p, "camera\texposure\ttile\tmjd\texptime");
    for (size_t k = 0; k < NVALUE; k++)
        spx_picture_add(p, "\t%s", heads[k]);
    spx_picture_add(p, "\n");
    for (size_t i = 0; s != NULL && i < n; i++) {
        spx_picture_add(p, "%s\t%s\t%s\t%.6f\t%g", s[i].camera, s[i].expid, s[i].tile, s[i].mjd, s[i].exptime);
        for (size_t k = 0; k < NVALUE; k++)
            spx_picture_add(p, "\t%.6g", s[i].v[k]);
        spx_picture_add(p, "\n");
    }
}

void spx_picture_night(spx_picture *p)
{
    enum { ARMS = 6, LABELS = 12 };
    static const char *const colour[ARMS] = {SPX_BLUE, SPX_RED, SPX_PURPLE, SPX_GREEN, SPX_ORANGE, SPX_GREY};
    static const struct {
        int value;
        const char *label, *fine; /* of thousandths */
        double scale;
    } panel[] = {{SNR, "S/N of targets", NULL, 1},
                 {SKY, "sky (electrons / Å)", NULL, 1},
                 {DX, "shift across (pixel)", "shift across (pixel / 1000)", 1},
                 {DY, "shift along (pixel)", "shift along (pixel / 1000)", 1},
                 {SKYCHI2, "χ²/dof of sky fibres", NULL, 1},
                 {MASKED, "masked bins (%)", NULL, 100}};
    enum { NPANEL = sizeof panel / sizeof *panel };
    size_t narm = 0, nexp = 0, n;
    const seen *s = look_at_all(p, &n);
    char arm[ARMS] = {0};
    double *x = spx_picture_alloc(p, n), *which = spx_picture_alloc(p, n), *y = spx_picture_alloc(p, n);
    if (p->st != SPX_OK || s == NULL)
        return;
    for (size_t i = 0; i < n; i++) {
        size_t k = 0;
        while (k < narm && arm[k] != *s[i].camera)
            k++;
        if (k == narm && narm < ARMS)
            arm[narm++] = *s[i].camera;
        which[i] = (double)k;
        nexp += i == 0 || strcmp(s[i].expid, s[i - 1].expid) != 0;
        x[i] = (double)nexp;
    }
    /* blue before red */
    const double right = p->width - RIGHT, half = 0.5 * (right - LEFT - 98), tall = (p->height - TOP - BOTTOM - 20) / 3;
    spx_picture_add(p, "set multiplot\n");
    spx_picture_title(p, LEFT, "%zu frames of %zu exposures", n, nexp);
    for (size_t q = 0; q < NPANEL; q++) {
        const double left = LEFT + (double)(q % 2) * (half + 98), top = TOP + (double)(q / 2) * (tall + 10);
        double lo, hi;
        char name[16];
        for (size_t i = 0; i < n; i++)
            y[i] = s[i].v[panel[q].value] * panel[q].scale;
        const double *col[] = {x, y, which};
        (void)snprintf(name, sizeof name, "n%zu", q);
        if (spx_picture_quantiles(y, n, 0, 1, &lo, &hi) == 0) {
            lo = 0;
            hi = 1;
        }
        /* numbers of an axis have few places beside its label */
        const char *label = panel[q].label;
        const int fine = panel[q].fine != NULL && fmax(fabs(lo), fabs(hi)) < 0.05;
        for (size_t i = 0; i < n && fine; i++)
            y[i] *= 1000;
        if (fine) {
            label = panel[q].fine;
            lo *= 1000;
            hi *= 1000;
        }
        spx_picture_columns(p, name, n, 3, col);
        const double edge = fmax(0.1 * (lo >= 0 ? hi : hi - lo), 1e-4); /* axes of what is positive begin at 0 */
        spx_picture_panel(p, left, left + half, top, top + tall);
        spx_picture_range(p, "x", 0.4, (double)nexp + 0.6);
        spx_picture_range(p, "y", lo >= 0 ? 0 : lo - edge, hi + (q == 0 ? 3.5 : 1.5) * edge);
        spx_picture_label(p, "y", label, "");
        spx_picture_add(p, q < NPANEL - 2 ? "set xtics format ''\nunset xlabel\n"
                                          : "set xtics format '%%g'\nset xlabel 'exposure'\n");
        /* the numbers of some exposures, without the zeros that they begin with */
        const size_t step = nexp / LABELS + 1;
        spx_picture_add(p, "set xtics (");
        size_t e = 0;
        for (size_t i = 0; i < n; i++)
            if (i == 0 || x[i] != x[i - 1]) {
                if (e++ % step == 0)
                    spx_picture_add(p, "%s'%s' %zu", e > 1 ? ", " : "",
                                    q < NPANEL - 2 ? "" : s[i].expid + strspn(s[i].expid, "0"), e);
            }
        spx_picture_add(p, ")%s\n", nexp > 4 ? " rotate by 40 right font 'sans-serif,8.5'" : "");
        spx_picture_add(p, q == 0 ? "set key top right horizontal\n" : "set key off\n");
        if (panel[q].value == SKYCHI2)
            spx_picture_add(
                p, "set arrow 1 from graph 0, first 1 to graph 1, first 1 nohead back lw 0.6 lc rgb '" SPX_GREY "'\n");
        const char *comma = "plot ";
        for (size_t k = 0; k < narm; k++) {
            spx_picture_add(p,
                            "%s$%s using ($3 == %zu ? $1 + %g : NaN):2 with points pt %d ps 0.8 lc rgb '%s' title '%c'",
                            comma, name, k, ((double)k - 0.5 * (double)(narm - 1)) * 0.16, k % 2 == 0 ? 7 : 5,
                            arm[k] == 'b'   ? SPX_BLUE
                            : arm[k] == 'r' ? SPX_RED
                            : arm[k] == 'z' ? SPX_PURPLE
                                            : colour[k],
                            arm[k] != '\0' ? arm[k] : '?');
            comma = ", \\\n     ";
        }
        spx_picture_add(p, "\nunset arrow 1\n");
        if (q == 0)
            spx_picture_untitled(p);
    }
    spx_picture_add(p, "unset multiplot\n");
}

/* ---- stars seen several times ---- */

typedef struct {
    int64_t target;
    double v, error;
    size_t file;
} measured;

static int by_target(const void *a, const void *b)
{
    const measured *x = a, *y = b;
    return x->target != y->target ? (x->target > y->target) - (x->target < y->target)
                                  : (x->file > y->file) - (x->file < y->file);
}

/* Velocities, file after file. */
typedef struct {
    spx_picture *p;
    measured *m;
    size_t n, capacity, nfile;
} velocities;

/* Those of a file, without warnings. */
static spx_status take_velocities(void *ctx, spx_input *in, spx_err *e)
{
    velocities *all = ctx;
    spx_picture *p = all->p;
    spx_table *t = NULL;
    int64_t *id = NULL, *warn = NULL;
    p->st = spx_table_read(in->file, "/rvfit/table", &t, e);
    if (p->st == SPX_OK && t == NULL)
        spx_picture_fail(p, SPX_EINPUT, "%s: has no /rvfit/table", in->name);
    if (p->st == SPX_OK)
        p->st = spx_table_find_i64(t, "TARGETID", &id, e);
    if (p->st == SPX_OK)
        p->st = spx_table_find_i64(t, "RVS_WARN", &warn, e);
    const double *v = spx_picture_column(p, t, "VRAD"), *error = spx_picture_column(p, t, "VRAD_ERR");
    for (size_t i = 0; p->st == SPX_OK && id != NULL && v != NULL && error != NULL && i < t->nrow; i++) {
        if ((warn != NULL && warn[i] != 0) || !isfinite(v[i]) || !(error[i] > 0) || id[i] < 0)
            continue;
        measured *more = spx_grow(all->m, all->n, 1, &all->capacity, sizeof *more, e);
        if (more == NULL) {
            p->st = SPX_EIO;
            break;
        }
        all->m = more;
        all->m[all->n++] = (measured){id[i], v[i], error[i], all->nfile};
    }
    all->nfile++;
    spx_free(id);
    spx_free(warn);
    spx_table_free(t);
    return p->st;
}

void spx_picture_repeats(spx_picture *p)
{
    velocities all = {.p = p};
    size_t npair = 0;
    if (p->st == SPX_OK)
        p->st = spx_each_in_turn(p->args->n, p->args->name, take_velocities, &all, p->e);
    spx_picture_keep(p, all.m);
    const measured *m = all.m;
    const size_t n = all.n;
    if (p->st == SPX_OK && n > 0)
        qsort(all.m, n, sizeof *all.m, by_target);
    double *mean = spx_picture_alloc(p, n), *diff = spx_picture_alloc(p, n), *error = spx_picture_alloc(p, n);
    /* each measurement with the one before it of the same star */
    for (size_t i = 1; p->st == SPX_OK && i < n; i++)
        if (m[i].target == m[i - 1].target) {
            mean[npair] = 0.5 * (m[i].v + m[i - 1].v);
            error[npair] = hypot(m[i].error, m[i - 1].error);
            diff[npair++] = m[i].v - m[i - 1].v;
        }
    if (p->st == SPX_OK && npair == 0)
        spx_picture_fail(p, SPX_ENO, "no star was measured twice without a warning");
    if (p->st != SPX_OK)
        return;
    spx_picture_add(p, "set multiplot\n");
    spx_picture_title(p, LEFT, "%zu pairs of velocities of the same star", npair);
    spx_picture_pulls(p, "second − first velocity", "km/s", "mean velocity (km/s)", "difference / error", mean, diff,
                      error, npair, TOP, p->height - BOTTOM);
    spx_picture_add(p, "unset multiplot\n");
}
