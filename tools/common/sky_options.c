#include "common/sky_options.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/parse.h"
#include "calib/series.h"
#include "h5/table.h"
#include "psf/psf_math.h"

enum { WIDTH = 16 };

spx_status spx_sky_args_options(const spx_sky_args *o, int nthreads, spx_sky_options *so, spx_err *e)
{
    double n[3];
    size_t count;
    *so = spx_sky_defaults();
    spx_status st = spx_parse_doubles(o->terms, ',', "--terms", "T,DELTA,KAPPA", 3, n, &count, e);
    if (st != SPX_OK)
        return st;
    for (size_t i = 0; i < 3; i++)
        if (count != 3 || !(n[i] >= 0) || n[i] > SPX_SKY_MOST || floor(n[i]) != n[i])
            return spx_fail(e, SPX_EUSAGE, "--terms: '%s' is not T,DELTA,KAPPA: three numbers of terms, such as 1,2,1",
                            o->terms);
    if (n[0] + n[1] + n[2] > SPX_SKY_MOST)
        return spx_fail(e, SPX_EUSAGE, "--terms: '%s' has more than %d terms together", o->terms, SPX_SKY_MOST);
    so->terms = (spx_sky_terms){(size_t)n[0], (size_t)n[1], (size_t)n[2]};
    so->scale = n[0] > 0 ? o->scale : SPX_SKY_SCALE_NONE;
    so->reject = o->reject;
    so->knots = o->knots;
    so->nthreads = nthreads;
    return SPX_OK;
}

/* ---- which fibres are sky ---- */

static spx_status sky_of_list(const char *list, size_t nspec, uint8_t *role, spx_err *e)
{
    const spx_status st = spx_parse_rows(list, "--sky-fibers", nspec, role, e);
    for (size_t i = 0; i < nspec && st == SPX_OK; i++)
        role[i] = role[i] != 0 ? SPX_SKY_FIBRE : SPX_SKY_TARGET;
    return st;
}

static spx_status sky_of_fibermap(const spx_frame *f, uint8_t *role, spx_err *e)
{
    if (f->fibermap == NULL || spx_table_find(f->fibermap, "OBJTYPE") < 0)
        return spx_fail_at(e, SPX_EINPUT, NULL, "/fibermap", "name the fibres that see nothing but sky: --sky-fibers",
                           "does not say which fibres are sky (column OBJTYPE)");
    char *type = spx_alloc(f->nspec, WIDTH, e);
    spx_status st = type != NULL ? spx_table_get_str(f->fibermap, "OBJTYPE", WIDTH, type, e) : SPX_EIO;
    for (size_t i = 0; i < f->nspec && st == SPX_OK; i++)
        role[i] = strcmp(type + i * WIDTH, "SKY") == 0 ? SPX_SKY_FIBRE : SPX_SKY_TARGET;
    spx_free(type);
    return st;
}

/* Holds out n of the sky fibres, evenly. */
static spx_status hold_out(long n, size_t nspec, uint8_t *role, spx_err *e)
{
    size_t nsky = 0, seen = 0;
    for (size_t i = 0; i < nspec; i++)
        nsky += role[i] == SPX_SKY_FIBRE;
    if (n > 0 && (size_t)n >= nsky)
        return spx_fail(e, SPX_EUSAGE, "--hold-out: %ld of %zu sky fibres leave none to find the sky of", n, nsky);
    for (size_t i = 0; i < nspec; i++)
        if (role[i] == SPX_SKY_FIBRE) {
            const size_t before = seen * (size_t)n / nsky, after = ++seen * (size_t)n / nsky;
            role[i] = after > before ? SPX_SKY_HELD_OUT : SPX_SKY_FIBRE;
        }
    return SPX_OK;
}

/* ---- where fibres are ---- */

static spx_status coordinate(const spx_frame *f, const char *label, const char *column, int needed, double *x,
                             spx_err *e)
{
    if (f->fibermap != NULL && spx_table_find(f->fibermap, column) >= 0)
        return spx_table_get_f64(f->fibermap, column, x, e);
    if (needed)
        return spx_fail_at(e, SPX_EINPUT, NULL, "/fibermap", "give --gradient x or none",
                           "has no column %s, the position in the focal plane", column);
    spx_note("%sno column %s in the fibermap: the gradient is over the number of the fibre", label, column);
    for (size_t i = 0; i < f->nspec; i++)
        x[i] = (double)i;
    return SPX_OK;
}

static spx_status add_gradient(const spx_sky_args *o, const char *label, const spx_frame *f, spx_sky_scene *s,
                               spx_err *e)
{
    const int x = o->gradient == SPX_GRADIENT_X || o->gradient == SPX_GRADIENT_XY;
    const int y = o->gradient == SPX_GRADIENT_Y || o->gradient == SPX_GRADIENT_XY;
    spx_status st = SPX_OK;
    if (o->gradient == SPX_GRADIENT_NONE)
        return SPX_OK;
    if ((s->coordinate = spx_alloc2(2, f->nspec, sizeof *s->coordinate, e)) == NULL)
        return SPX_EIO;
    if (x) {
        st = coordinate(f, label, "FIBERASSIGN_X", y, s->coordinate, e);
        s->in.coordinate[0] = s->coordinate;
        s->in.coordinate_name[0] = "x";
    }
    if (y && st == SPX_OK) {
        double *to = s->coordinate + f->nspec;
        st = coordinate(f, label, "FIBERASSIGN_Y", 1, to, e);
        s->in.coordinate[x] = to;
        s->in.coordinate_name[x] = "y";
    }
    s->in.ngradient = (size_t)(x + y);
    return st;
}

/* Halves of the CCD: by the traces where the PSF is there, else by the middle of fibres and wavelengths. */
static spx_status add_sectors(const char *label, const spx_frame *f, const spx_psf *psf, spx_sky_scene *s, spx_err *e)
{
    const double *wave = f->arm.wavelength, middle = wave[f->arm.nwave / 2];
    if ((s->side = spx_alloc(f->nspec, sizeof *s->side, e)) == NULL)
        return SPX_EIO;
    s->in.side = s->side;
    s->in.split = f->arm.nwave / 2;
    if (psf == NULL || psf->npix_x == 0 || psf->npix_y == 0) {
        spx_note("%sno PSF with the size of the CCD in the file: amplifiers are told apart by the middle of fibres and "
                 "wavelengths",
                 label);
        for (size_t i = 0; i < f->nspec; i++)
            s->side[i] = 2 * i >= f->nspec;
        return SPX_OK;
    }
    size_t centre = 0;
    for (size_t i = 0; i < f->nspec; i++) {
        const size_t fiber = f->fiber != NULL ? (size_t)f->fiber[i] : i;
        if (fiber >= psf->nspec)
            return spx_fail_at(e, SPX_EINPUT, NULL, "/psf", "give the file that the frame was extracted with",
                               "has %zu fibres, but the frame has fibre %zu", psf->nspec, fiber);
        s->side[i] = spx_psf_series_value(&psf->x, fiber, middle) >= 0.5 * (double)psf->npix_x;
        centre = i == f->nspec / 2 ? fiber : centre;
    }
    for (s->in.split = 0; s->in.split < f->arm.nwave; s->in.split++)
        if (spx_psf_series_value(&psf->y, centre, wave[s->in.split]) >= 0.5 * (double)psf->npix_y)
            break;
    return SPX_OK;
}

static spx_status add_velocities(const spx_frame *f, spx_sky_scene *s, spx_err *e)
{
    if (!f->arm.barycentric)
        return SPX_OK;
    if (f->fibermap == NULL || spx_table_find(f->fibermap, "BARYCENTRIC_VELOCITY") < 0)
        return spx_fail_at(e, SPX_EINPUT, NULL, "/fibermap", "extract it with specx-extract --barycentric, or without",
                           "has no BARYCENTRIC_VELOCITY, but wavelengths are barycentric");
    if ((s->velocity = spx_alloc(f->nspec, sizeof *s->velocity, e)) == NULL)
        return SPX_EIO;
    s->in.velocity = s->velocity;
    return spx_table_get_f64(f->fibermap, "BARYCENTRIC_VELOCITY", s->velocity, e);
}

spx_status spx_sky_scene_make(const spx_sky_args *o, const char *label, const spx_frame *f, const spx_psf *psf,
                              spx_sky_scene *s, spx_err *e)
{
    const size_t ns = f->nspec, n = f->arm.nwave;
    *s = (spx_sky_scene){.role = spx_alloc(ns, 1, e),
                         .place = spx_alloc(ns, sizeof *s->place, e),
                         .ivar = spx_alloc_unset(ns, n, sizeof *s->ivar, e)};
    if (s->role == NULL || s->place == NULL || s->ivar == NULL)
        return SPX_EIO;
    for (size_t i = 0; i < ns; i++)
        s->place[i] = spx_legendre_place(0, (double)(ns - 1), (double)i);
    for (size_t k = 0; k < ns * n; k++)
        s->ivar[k] = f->arm.mask == NULL || f->arm.mask[k] == 0 ? f->arm.ivar[k] : 0;
    s->in = (spx_sky_input){.nspec = ns,
                            .nwave = n,
                            .ndiag = f->arm.ndiag,
                            .wavelength = f->arm.wavelength,
                            .resolution = f->arm.resolution,
                            .flux = f->arm.flux,
                            .ivar = s->ivar,
                            .role = s->role,
                            .place = s->place};
    spx_status st = o->sky_fibers != NULL ? sky_of_list(o->sky_fibers, ns, s->role, e) : sky_of_fibermap(f, s->role, e);
    if (st == SPX_OK && o->hold_out > 0)
        st = hold_out(o->hold_out, ns, s->role, e);
    if (st == SPX_OK)
        st = add_gradient(o, label, f, s, e);
    if (st == SPX_OK && o->sectors)
        st = add_sectors(label, f, psf, s, e);
    return st == SPX_OK ? add_velocities(f, s, e) : st;
}

void spx_sky_scene_free(spx_sky_scene *s)
{
    spx_free(s->role);
    spx_free(s->place);
    spx_free(s->velocity);
    spx_free(s->coordinate);
    spx_free(s->side);
    spx_free(s->ivar);
    *s = (spx_sky_scene){0};
}
