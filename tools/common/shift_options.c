#include "common/shift_options.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/lines.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/parse.h"
#include "psf/psf.h"
#include "spectral/lines.h"

/* Two degrees, WAVELENGTH,FIBER, each at most `most`. */
static spx_status degrees(const char *text, const char *option, double most, double n[2], spx_err *e)
{
    size_t count = 0;
    spx_status st = spx_parse_doubles(text, ',', option, "WAVELENGTH,FIBER", 2, n, &count, e);
    for (size_t i = 0; i < 2 && st == SPX_OK; i++)
        if (count != 2 || !(n[i] >= 0) || n[i] > most || floor(n[i]) != n[i])
            st = spx_fail(e, SPX_EUSAGE, "%s: '%s' is not WAVELENGTH,FIBER: two degrees from 0 to %g, such as 1,4",
                          option, text, most);
    return st;
}

spx_status spx_shift_args_options(const spx_shift_args *o, int nthreads, spx_shift_options *so, spx_sky_terms *terms,
                                  size_t *degree, spx_err *e)
{
    double x[2] = {-1, -1}, y[2];
    *so = (spx_shift_options){.bundle_size = (size_t)o->bundle_size,
                              .nwindow = (size_t)o->windows,
                              .window = o->window,
                              .width = !o->no_width,
                              .lamp = o->lamp,
                              .nthreads = nthreads};
    spx_status st = o->terms_x != NULL ? degrees(o->terms_x, "--terms-x", 9, x, e) : SPX_OK;
    if (st == SPX_OK)
        st = degrees(o->terms_y != NULL ? o->terms_y : o->lamp ? "3,6" : "3,4", "--terms-y", 8, y, e);
    if (st != SPX_OK)
        return st;
    so->degree_wave = (int)x[0];
    so->degree_fibre = (int)x[1];
    *terms = (spx_sky_terms){1, (size_t)y[0] + 1, o->no_width ? 0 : 1};
    *degree = (size_t)y[1];
    return SPX_OK;
}

/* ---- by the spots ---- */

static double sigma_of(const spx_psf *psf)
{
    return spx_psf_sigma_along(psf, psf->nspec / 2);
}

double spx_shift_too_wide(const spx_psf *psf, double step)
{
    const double sigma = sigma_of(psf);
    return sigma > 0 && step > SPX_SHIFT_WIDEST * sigma ? step / sigma : 0;
}

spx_status spx_shift_args_frame(const char *label, const char *name, const spx_psf *psf, spx_frame *frame,
                                spx_extract_options *extract, spx_err *e)
{
    const spx_arm *a = &frame->arm;
    const double step = (a->wavelength[a->nwave - 1] - a->wavelength[0]) / (double)(a->nwave > 1 ? a->nwave - 1 : 1),
                 wide = spx_shift_too_wide(psf, step);
    if (a->barycentric)
        return spx_fail_at(e, SPX_EINPUT, name, "/frame", "extract it without --barycentric",
                           "is on barycentric wavelengths, on which no trace lies");
    if (frame->camera[0] != '\0' && psf->camera[0] != '\0' && strcmp(frame->camera, psf->camera) != 0)
        return spx_fail_at(e, SPX_EINPUT, name, "/frame", "leave it out, or give that of this image",
                           "is of camera %s, the PSF of camera %s", frame->camera, psf->camera);
    extract->wmin = a->wavelength[0];
    extract->wmax = a->wavelength[a->nwave - 1];
    if (wide > 0) {
        spx_note("%sbins of /frame are %.2f of the PSF's sigma along the traces, and hold bright lines elsewhere "
                 "beside a star: the image is extracted in bins of %.3g Angstrom",
                 label, wide, extract->dw);
        spx_frame_free(frame);
    } else {
        extract->dw = step;
    }
    return SPX_OK;
}

/* Length of windows, in sigma of the spots along the traces, where those of --window-length are below SHORT: of an arc
 * of a camera of 2.5 Angstrom a row 24 rows, 18 sigma, say nothing of x, 100 rows as much as all do. */
#define SHORT  30.0
#define WINDOW 75.0

double spx_shift_args_window(const spx_shift_args *o, const spx_psf *psf)
{
    const double sigma = sigma_of(psf);
    return !o->window_given && o->window < SHORT * sigma ? WINDOW * sigma : o->window;
}

/* ---- line lists ---- */

static spx_status known_lines(int lamp, spx_shift_lines *lines, spx_err *e)
{
    spx_line *line = NULL;
    size_t n = 0;
    spx_status st = lamp ? spx_lamp_lines(SPX_LAMP_ALL, &line, &n, e) : spx_sky_lines(&line, &n, e);
    if (st == SPX_OK && (lines->line = spx_alloc(n, sizeof *lines->line, e)) == NULL)
        st = SPX_EIO;
    for (size_t i = 0; i < n && st == SPX_OK; i++)
        lines->line[lines->n++] = (spx_shift_line){line[i].wavelength, line[i].strength};
    spx_free(line);
    return st;
}

static spx_status one_line(const spx_lines *l, const char *text, spx_shift_line *line, spx_err *e)
{
    char *end, *last;
    line->strength = 1;
    line->wavelength = strtod(text, &end);
    if (end != text && *end != '\0') {
        line->strength = strtod(end, &last);
        if (last == end)
            end = NULL;
        else
            end = last;
    }
    while (end != NULL && (*end == ' ' || *end == '\t'))
        end++;
    if (end == NULL || end == text || *end != '\0' || !(line->wavelength > 0) || !(line->strength >= 0) ||
        !isfinite(line->wavelength) || !isfinite(line->strength))
        return spx_fail(e, SPX_EINPUT, "%s:%zu: should be 'WAVELENGTH [STRENGTH]', Angstrom in vacuum", l->name,
                        l->number);
    return SPX_OK;
}

static spx_status read_lines(const char *name, spx_shift_lines *lines, spx_err *e)
{
    spx_lines l;
    size_t capacity = 0;
    spx_status st = spx_lines_open(&l, name, e);
    if (st != SPX_OK)
        return st;
    for (char *text; st == SPX_OK && (text = spx_lines_next(&l)) != NULL;) {
        spx_shift_line *more = spx_grow(lines->line, lines->n, 1, &capacity, sizeof *more, e);
        if (more == NULL) {
            st = SPX_EIO;
            break;
        }
        lines->line = more;
        st = one_line(&l, text, &more[lines->n], e);
        lines->n += st == SPX_OK;
    }
    st = spx_lines_close(&l, st, e);
    if (st == SPX_OK && lines->n == 0)
        st = spx_fail(e, SPX_EINPUT, "%s: has no lines: give --lines none to measure without", name);
    return st;
}

spx_status spx_shift_args_lines(const spx_shift_args *o, spx_shift_lines *lines, spx_err *e)
{
    *lines = (spx_shift_lines){0};
    const char *what = o->lines != NULL ? o->lines : o->lamp ? "arc" : "sky";
    if (strcmp(what, "none") == 0)
        return SPX_OK;
    if (strcmp(what, "sky") == 0 || strcmp(what, "arc") == 0)
        return known_lines(strcmp(what, "arc") == 0, lines, e);
    return read_lines(what, lines, e);
}

/* Lines of a file of the user's that are all outside the wavelengths, as those in nm are. */
static void say_lines(const char *what, const spx_shift_lines *lines, const spx_shift_options *so, const char *label)
{
    size_t n = 0;
    for (size_t i = 0; i < lines->n; i++)
        n += lines->line[i].wavelength >= so->wmin && lines->line[i].wavelength <= so->wmax;
    if (n == 0 && lines->n > 0)
        spx_warn(
            "%s%s: none of its %zu lines lies between %.0f and %.0f Angstrom, the first at %.8g: no zero point: are "
            "they in nm, or strengths in the first column?",
            label, what, lines->n, so->wmin, so->wmax, lines->line[0].wavelength);
}

void spx_shift_say_given(const spx_shift_args *o, const spx_shift_lines *lines, const spx_psf *psf,
                         const spx_shift_options *so, const char *label)
{
    const double wide = o->wavelength != NULL ? spx_shift_too_wide(psf, so->dw) : 0;
    if (o->lines != NULL && strcmp(o->lines, "sky") != 0 && strcmp(o->lines, "arc") != 0)
        say_lines(o->lines, lines, so, label);
    if (wide > 0)
        spx_warn("%sbins of %.3g Angstrom are %.2f of the PSF's sigma along the traces, and hold bright lines "
                 "elsewhere beside a star: give %.3g or less",
                 label, so->dw, wide, so->dw * SPX_SHIFT_WIDEST / wide);
}
