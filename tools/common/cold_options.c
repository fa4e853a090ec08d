#include "common/cold_options.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/parse.h"
#include "products/image_h5.h"

enum { MOST_FIBRES = 5000 };

/* Adds bundles of `text`, "25" or "25x20", to bundle[*n], nfibre fibres before. */
static int one_part(const char *text, size_t length, size_t *bundle, size_t *n, size_t *nfibre)
{
    char copy[32], *end;
    if (length == 0 || length >= sizeof copy)
        return 0;
    memcpy(copy, text, length);
    copy[length] = '\0';
    const unsigned long size = strtoul(copy, &end, 10);
    unsigned long count = 1;
    if (end == copy || copy[0] < '0' || copy[0] > '9')
        return 0;
    if (*end == 'x') {
        const char *second = end + 1;
        count = strtoul(second, &end, 10);
        if (end == second || *second < '0' || *second > '9')
            return 0;
    }
    if (*end != '\0' || size < 1 || count < 1 || size > MOST_FIBRES || count > MOST_FIBRES ||
        *nfibre + size * count > MOST_FIBRES)
        return 0;
    *nfibre += size * count;
    while (count-- > 0)
        bundle[(*n)++] = size;
    return 1;
}

spx_status spx_bundles_parse(const char *text, size_t **bundle, size_t *n, spx_err *e)
{
    size_t nfibre = 0;
    *n = 0;
    if ((*bundle = spx_alloc(MOST_FIBRES, sizeof **bundle, e)) == NULL)
        return SPX_EIO;
    for (const char *p = text;; p++) {
        const size_t length = strcspn(p, ",");
        if (!one_part(p, length, *bundle, n, &nfibre))
            return spx_fail(
                e, SPX_EUSAGE,
                "--bundles: '%s' should be fibres of each bundle such as 25x20 (20 bundles of 25) or 9,12,7, %d "
                "fibres at most",
                text, MOST_FIBRES);
        p += length;
        if (*p == '\0')
            return SPX_OK;
    }
}

/* A value and the range around it: *range stays where there is none. */
static spx_status parse_range(const char *text, const char *option, const char *form, double *value, double *range,
                              spx_err *e)
{
    double v[2];
    size_t n = 0;
    const spx_status st = spx_parse_doubles(text, ',', option, form, 2, v, &n, e);
    if (st != SPX_OK)
        return st;
    *value = v[0];
    if (n == 2)
        *range = v[1];
    return SPX_OK;
}

spx_status spx_cold_args_options(const spx_cold_args *a, spx_cold_options *o, size_t **bundle, spx_err *e)
{
    double percent = 8.0;
    *bundle = NULL;
    *o = spx_cold_defaults();
    if (a->centre == NULL || a->dispersion == NULL)
        return spx_fail(e, SPX_EUSAGE,
                        "--flat needs --centre and --dispersion: the wavelength of the middle row, Angstrom, and "
                        "Angstrom a row, such as --centre 6700,200 --dispersion 0.6");
    spx_status st = parse_range(a->centre, "--centre", "WAVELENGTH[,RANGE]", &o->centre, &o->centre_range, e);
    if (st == SPX_OK)
        st = parse_range(a->dispersion, "--dispersion", "VALUE[,PERCENT]", &o->dispersion, &percent, e);
    if (st == SPX_OK) {
        const char first = a->dispersion[strspn(a->dispersion, " \t")];
        o->direction = first == '-' ? -1 : first == '+' ? 1 : 0;
        o->dispersion = fabs(o->dispersion);
        o->dispersion_range = 0.01 * percent;
        o->from_right = a->from_right;
    }
    if (st == SPX_OK && a->bundles != NULL) {
        st = spx_bundles_parse(a->bundles, bundle, &o->nbundle, e);
        o->bundle = *bundle;
    }
    return st;
}

spx_status spx_cold_args_lamps(const spx_cold_args *a, unsigned *lamps, spx_err *e)
{
    *lamps = a->lamps == NULL ? SPX_LAMP_EVERY : 0;
    for (const char *p = a->lamps; p != NULL; p++) {
        const size_t n = strcspn(p, ",");
        const unsigned one = spx_lamp_of(p, n);
        if (one == 0)
            return spx_fail(e, SPX_EUSAGE, "--lamps: '%s' should be some of Hg,Cd,Ne,Ar,Kr,Xe,He,Zn", a->lamps);
        *lamps |= one;
        p += n;
        if (*p == '\0')
            break;
    }
    return SPX_OK;
}

static spx_status report(spx_run *s, const spx_cold_options *o, const spx_cold_report *r, spx_err *e)
{
    spx_note("start: %zu fibres, %.2f pixels apart; %zu of %zu peaks of fibre %zu are lines, %.1f to "
             "%.1f Angstrom, "
             "of the next best solution %zu",
             r->nspec, r->pitch, r->best.nline, r->npeak, r->middle, fmin(r->best.first, r->best.last),
             fmax(r->best.first, r->best.last), r->rival.nline);
    spx_detail(
        "start: widths of spots %.2f and %.2f pixels, %.4f Angstrom a row, %.0f lines a fibre within %.3f pixel rms",
        r->sigmax, r->sigmay, r->best.dispersion, r->nline, r->rms);
    if (r->ndead > 0)
        spx_warn("%zu of %zu fibres have no light in the flat%s", r->ndead, r->nspec,
                 !r->turned ? ""
                 : o->from_right
                     ? "; fewer with --bundles from the other side: is fibre 0 at the left (--first-fiber left)?"
                     : "; fewer with --bundles from the other side: is fibre 0 at the right (--first-fiber right)?");
    if (r->degree < 5 && r->degree < o->trace_degree)
        spx_warn("%.0f lines a fibre: the wavelengths of the start are polynomials of degree %d, not 5", r->nline,
                 r->degree);
    if (r->nfew > 0)
        spx_warn("%zu of %zu fibres show few lines, and start with the wavelengths of their neighbours", r->nfew,
                 r->nspec);
    if (r->nlost > 0)
        spx_note("%zu lines of fibre %zu are saturated or masked", r->nlost, r->middle);
    const struct {
        const char *name;
        size_t value;
    } counts[] = {
        {"start_lines", r->best.nline}, {"start_rival_lines", r->rival.nline}, {"start_fibres_dead", r->ndead}};
    spx_status st = SPX_OK;
    for (size_t k = 0; k < sizeof counts / sizeof *counts && st == SPX_OK; k++)
        st = spx_run_record(s, counts[k].name, e, "%zu", counts[k].value);
    return st;
}

spx_status spx_cold_args_start(spx_run *s, const spx_cold_args *a, const spx_cold_options *o, size_t narc,
                               const spx_image *arc, size_t nline, const spx_arc_line *line, spx_psf *psf, spx_err *e)
{
    spx_input *in;
    spx_image flat = {0};
    spx_cold_report r;
    spx_status st = spx_run_extra_input(s, a->flat, &in, e);
    if (st == SPX_OK)
        st = spx_image_read(in->file, &flat, e);
    if (st == SPX_OK)
        st = spx_cold_start(&flat, narc, arc, nline, line, o, psf, &r, e);
    if (st == SPX_EINPUT && flat.nx > 0 && narc > 0)
        st = spx_err_context(e, "--flat %s %s%s", a->flat, s->input[0], narc > 1 ? " ..." : "");
    if (st == SPX_OK)
        st = report(s, o, &r, e);
    spx_image_free(&flat);
    return st;
}

spx_status spx_cold_args_move(spx_run *s, size_t narc, const spx_image *arc, size_t nline, const spx_arc_line *line,
                              spx_psf *start, double moved[2], spx_err *e)
{
    int found = 0;
    double dx = 0, dy = 0;
    moved[0] = moved[1] = 0;
    if (narc == 0 || (start->npix_x > 0 && start->npix_x != arc->nx) || (start->npix_y > 0 && start->npix_y != arc->ny))
        return SPX_OK; /* the fit refuses it */
    spx_status st = spx_cold_shift(start, narc, arc, nline, line, (int)s->common.threads, &found, &dx, &dy, e);
    if (st == SPX_OK && found && hypot(dx, dy) > 1.0) {
        spx_note(
            "the lines are %+.1f pixels in x and %+.1f in y from where --start has them: moved there before the fit",
            dx, dy);
        spx_cold_move(start, dx, dy);
        moved[0] = dx;
        moved[1] = dy;
        st = spx_run_record(s, "start_moved", e, "%.1f,%.1f", dx, dy);
    }
    return st;
}
