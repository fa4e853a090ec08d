/* Makes the PSF of the built-in cameras (sim/sim.h): traces, dispersion and spots. */
#include <math.h>
#include <stdio.h>

#include "base/mem.h"
#include "products/psf_index.h"
#include "sim/sim.h"

/* Angstrom that are imaged beyond the nominal range on both sides: a CCD is not dark there, and an extraction solves
 * for some bins beyond those that it keeps. */
#define MARGIN 60.0

/* Half of a CCD of 500 fibres, pixels. */
#define HALF_CCD 2057.0

enum { BUNDLE = 25, NTRACE = 5, NDEG = 3, GHDEG = 4, NGH = (GHDEG + 1) * (GHDEG + 1), NTAIL = 5 };
enum { NPAR = 2 + NGH + NTAIL };

static const struct {
    char name;
    double wmin, wmax, dispersion; /* Angstrom, Angstrom a row */
} arms[] = {{'b', 3600, 5800, 0.58}, {'r', 5760, 7620, 0.53}, {'z', 7520, 9824, 0.60}};

int spx_sim_arm_range(char arm, double *wmin, double *wmax)
{
    for (size_t i = 0; i < sizeof arms / sizeof *arms; i++)
        if (arms[i].name == arm) {
            *wmin = arms[i].wmin;
            *wmax = arms[i].wmax;
            return 1;
        }
    return 0;
}

spx_sim_camera spx_sim_camera_defaults(void)
{
    return (spx_sim_camera){.pitch = 7.3, .gap = 20.0, .width = 1.0, .tail_index = 2.0, .tail_core = 1.0};
}

/* Bundle of a fibre. */
static size_t bundle_of(const spx_sim_camera *o, size_t fibre)
{
    size_t b = 0;
    if (o->nbundle == 0)
        return fibre / BUNDLE;
    for (size_t end = o->bundle[0]; fibre >= end && b + 1 < o->nbundle; end += o->bundle[b])
        b++;
    return b;
}

/* Column of a fibre at mid-range, with small irregularities as of a real slit block. */
static double fibre_column(const spx_sim_camera *o, size_t fibre)
{
    double x = (double)fibre * o->pitch + (double)bundle_of(o, fibre) * (o->gap - o->pitch);
    return x + 0.12 * sin(2.4 * (double)fibre + 0.3);
}

/* Column of the optical axis. */
static double middle(const spx_sim_camera *o, size_t nspec)
{
    return 0.5 * (fibre_column(o, 0) + fibre_column(o, nspec - 1));
}

/* Distance of a trace from the optical axis in units of half a 500-fibre CCD, so that a narrow camera is the middle of
 * a wide one. */
static double off_axis(const spx_sim_camera *o, size_t fibre, size_t nspec)
{
    return (fibre_column(o, fibre) - middle(o, nspec)) / HALF_CCD;
}

/* Chebyshev coefficients of x and y along the traces, and the size of the CCD; the bend is fastest at the edges.
 * dispersion: Angstrom a row; range: Angstrom that the whole arm images. */
static void make_traces(const spx_sim_camera *o, double dispersion, double range, spx_psf *psf)
{
    const size_t nspec = psf->nspec;
    const double rows = (psf->wmax - psf->wmin) / dispersion;
    const double length = (psf->wmax - psf->wmin) / range;
    const double smax = (middle(o, nspec) + 5.0) / HALF_CCD;
    const double bend_x = 8.0 * length * length, smile = 60.0;
    const double side = 16.0 + bend_x * (1.0 + 0.7 * smax), below = 12.0 + smile * smax * smax;
    for (size_t i = 0; i < nspec; i++) {
        const double x = fibre_column(o, i), s = off_axis(o, i, nspec);
        double *cx = psf->x.coef + i * NTRACE, *cy = psf->y.coef + i * NTRACE;
        cx[0] = x + side;
        cx[1] = length * (1.5 + 6.0 * s) * fmin(1.0, length);
        cx[2] = -bend_x * (0.25 + 0.6 * s);
        cx[3] = 0.1 * length * s;
        cx[4] = -0.05 * length;
        cy[0] = (0.5 - 0.0085 * length) * rows + below - smile * s * s; /* the blue end then lies at `below` */
        cy[1] = 0.5 * rows;
        cy[2] = 0.011 * rows * length;
        cy[3] = 0.002 * rows * length;
        cy[4] = -0.0005 * rows * length;
    }
    psf->npix_x = (size_t)ceil(fibre_column(o, nspec - 1) + 2.0 * side);
    psf->npix_y = (size_t)ceil(rows * (1.0 + 0.004 * length) + 2.0 * below - smile * smax * smax);
}

/* Turns a direction of the CCD round. */
static void turn(size_t npix, spx_psf_series *s, size_t nspec)
{
    for (size_t k = 0; k < nspec * s->ncoef; k++)
        s->coef[k] = (k % s->ncoef == 0 ? (double)npix - 1.0 : 0.0) - s->coef[k];
}

/* Chebyshev coefficients along the trace of parameter p of a fibre's spot. s: distance of its trace from the optical
 * axis, wobble: an irregularity of its own. Those that are not set stay 0. */
static void spot(int p, double s, double wobble, double c[NDEG])
{
    const int order = 10 * ((p - 2) % (GHDEG + 1)) + (p - 2) / (GHDEG + 1);
    if (p == 0) {
        c[0] = 1.03 + 0.04 * s * s + 0.012 * wobble;
        c[1] = 0.03 - 0.02 * s;
        c[2] = 0.025;
    } else if (p == 1) {
        c[0] = 1.10 + 0.03 * s * s - 0.010 * wobble;
        c[1] = 0.05 + 0.02 * s;
        c[2] = 0.03;
    } else if (order == 0) {
        c[0] = 1.0;
    } else if (order == 20) {
        c[0] = 0.010;
        c[1] = 0.004;
    } else if (order == 2) {
        c[0] = 0.025;
        c[1] = 0.006;
    } else if (order == 11) {
        c[0] = 0.04 * s + 0.005 * wobble;
        c[1] = -0.015;
    } else if (order == 21) {
        c[0] = -0.012;
        c[1] = 0.003 * s;
    } else if (order == 30) {
        c[0] = 0.006 * s;
        c[1] = 0.004;
    } else if (order == 3) {
        c[0] = 0.005;
        c[1] = -0.004;
    } else if (order == 22) {
        c[0] = 0.008;
    } else if (order == 4) {
        c[0] = 0.010;
        c[1] = 0.001;
    } else if (order == 40) {
        c[0] = 0.004;
    }
}

static void make_spots(const spx_sim_camera *o, spx_psf *psf)
{
    static const char *const other[NTAIL] = {"TAILAMP", "TAILCORE", "TAILXSCA", "TAILYSCA", "TAILINDE"};
    for (int p = 0; p < NPAR; p++) {
        if (p < 2)
            snprintf(psf->param[p], sizeof psf->param[p], "%s", p == 0 ? "GHSIGX" : "GHSIGY");
        else if (p < 2 + NGH)
            snprintf(psf->param[p], sizeof psf->param[p], "GH-%d-%d", (p - 2) % (GHDEG + 1), (p - 2) / (GHDEG + 1));
        else
            snprintf(psf->param[p], sizeof psf->param[p], "%s", other[p - 2 - NGH]);
        for (size_t i = 0; i < psf->nspec; i++)
            spot(p, off_axis(o, i, psf->nspec), sin(0.9 * (double)i), psf->coeff + ((size_t)p * psf->nspec + i) * NDEG);
    }
    const double tail[NTAIL] = {o->tail, o->tail_core, 1, 1, o->tail_index};
    for (size_t p = 2 + NGH; p < NPAR; p++)
        for (size_t i = 0; i < psf->nspec; i++)
            psf->coeff[(p * psf->nspec + i) * NDEG] = tail[p - 2 - NGH];
    for (size_t k = 0; k < 2 * psf->nspec * NDEG; k++) /* GHSIGX and GHSIGY come first */
        psf->coeff[k] *= o->width;
}

spx_status spx_sim_psf(char arm, size_t nspec, double wmin, double wmax, spx_psf *psf, spx_err *e)
{
    const spx_sim_camera camera = spx_sim_camera_defaults();
    return spx_sim_psf_camera(&camera, arm, nspec, wmin, wmax, psf, e);
}

spx_status spx_sim_psf_camera(const spx_sim_camera *o, char arm, size_t nspec, double wmin, double wmax, spx_psf *psf,
                              spx_err *e)
{
    size_t a = 0, all = 0;
    while (a < sizeof arms / sizeof *arms && arms[a].name != arm)
        a++;
    if (a == sizeof arms / sizeof *arms)
        return spx_fail(e, SPX_EUSAGE, "no built-in camera '%c': use b, r or z", arm);
    if (nspec == 0 || nspec > 5000)
        return spx_fail(e, SPX_EUSAGE, "%zu fibres: a built-in camera has 1 to 5000", nspec);
    for (size_t k = 0; k < o->nbundle; k++)
        all += o->bundle[k];
    if (o->nbundle > 0 && nspec > all)
        return spx_fail(e, SPX_EUSAGE, "%zu fibres: the bundles have %zu", nspec, all);
    if (wmin == 0.0 && wmax == 0.0) {
        wmin = arms[a].wmin;
        wmax = arms[a].wmax;
    }
    if (!(wmin >= 3000.0 && wmax <= 11000.0 && wmax - wmin >= 10.0))
        return spx_fail(e, SPX_EUSAGE,
                        "range %g to %g Angstrom: a built-in camera images at least 10 Angstrom within 3000 to 11000",
                        wmin, wmax);
    *psf = (spx_psf){.nspec = nspec,
                     .npar = NPAR,
                     .ndeg = NDEG,
                     .ghdegx = GHDEG,
                     .ghdegy = GHDEG,
                     .hsizex = (int)lround(7 * o->width),
                     .hsizey = (int)lround(5 * o->width),
                     .psferr = 0.01};
    psf->wmin = psf->x.wmin = psf->y.wmin = wmin - MARGIN;
    psf->wmax = psf->x.wmax = psf->y.wmax = wmax + MARGIN;
    psf->x.ncoef = psf->y.ncoef = NTRACE;
    snprintf(psf->camera, sizeof psf->camera, "%c0", arm);
    psf->x.coef = spx_alloc2(nspec, NTRACE, sizeof(double), e);
    psf->y.coef = spx_alloc2(nspec, NTRACE, sizeof(double), e);
    psf->param = spx_alloc(NPAR, sizeof *psf->param, e);
    psf->coeff = spx_alloc2(NPAR * NDEG, nspec, sizeof(double), e);
    if (o->nbundle > 0)
        psf->bundle = spx_alloc(nspec, sizeof *psf->bundle, e);
    if (psf->x.coef == NULL || psf->y.coef == NULL || psf->param == NULL || psf->coeff == NULL ||
        (o->nbundle > 0 && psf->bundle == NULL)) {
        spx_psf_free(psf);
        return SPX_EIO;
    }
    make_traces(o, o->dispersion > 0 ? o->dispersion : arms[a].dispersion, arms[a].wmax - arms[a].wmin + 2 * MARGIN,
                psf);
    make_spots(o, psf);
    if (o->mirrored > 0)
        turn(psf->npix_x, &psf->x, nspec);
    if (o->falling > 0)
        turn(psf->npix_y, &psf->y, nspec);
    for (size_t i = 0; i < nspec && psf->bundle != NULL; i++)
        psf->bundle[i] = (int32_t)bundle_of(o, i);
    spx_status st = spx_psf_index(psf, e);
    if (st != SPX_OK)
        spx_psf_free(psf);
    return st;
}
