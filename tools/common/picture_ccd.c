/* Pictures of CCD images (common/picture.h). */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "common/picture.h"
#include "h5/object.h"
#include "products/psf_h5.h"
#include "psf/psf_math.h"

enum { LEFT = 90, RIGHT = 18, BAR = 100, TOP = 30, BOTTOM = 50 };

/* Cut-out of a CCD, in cells of kx x ky pixels. */
typedef struct {
    size_t x0, y0, nx, ny, kx, ky;
} cut;

/* Values of the cut of z[..][width]. */
static double *cut_out(spx_picture *p, const double *z, size_t width, const cut *c)
{
    double *out = spx_picture_alloc(p, c->nx * c->ny);
    for (size_t y = 0; y < c->ny && out != NULL; y++)
        memcpy(out + y * c->nx, z + (c->y0 + y) * width + c->x0, c->nx * sizeof *out);
    return out;
}

/* Panel with a cut, beside those of other cuts; its colour axis and plot command follow. */
static void ccd_panel(spx_picture *p, const char *name, const double *z, const cut *c, double left, double right)
{
    const size_t mx = (c->nx + c->kx - 1) / c->kx, my = (c->ny + c->ky - 1) / c->ky;
    double *cell = z != NULL ? spx_picture_bin(p, z, c->nx, c->ny, c->kx, c->ky) : NULL;
    if (cell == NULL)
        return;
    spx_picture_matrix(p, name, mx, my, cell);
    spx_picture_add(p, "x(i) = %zu + i * %zu + %g\ny(j) = %zu + j * %zu + %g\n", c->x0, c->kx,
                    0.5 * (double)(c->kx - 1), c->y0, c->ky, 0.5 * (double)(c->ky - 1));
    spx_picture_panel(p, left, right, TOP, p->height - BOTTOM);
    spx_picture_range(p, "x", (double)c->x0 - 0.5, (double)(c->x0 + c->nx) - 0.5);
    spx_picture_range(p, "y", (double)c->y0 - 0.5, (double)(c->y0 + c->ny) - 0.5);
    spx_picture_add(p, "set xlabel 'column (pixel)'\n");
    spx_picture_bar(p, right, TOP, p->height - BOTTOM);
}

/* Traces that cross the cut, $traces: column and row, blank lines between. Returns their number. */
static size_t trace_block(spx_picture *p, const cut *c)
{
    enum { STEPS = 60, MOST = 100 };
    spx_input *in = spx_picture_find(p, "/psf");
    spx_psf psf = {0};
    size_t n = 0;
    if (in == NULL || p->st != SPX_OK)
        return 0;
    p->st = spx_psf_read(in->file, &psf, p->e);
    /* of many traces every kth */
    const size_t k = psf.nspec / MOST + 1;
    spx_picture_add(p, "$traces << EOD\n");
    for (size_t f = 0; f < psf.nspec && p->st == SPX_OK; f += k) {
        size_t inside = 0;
        const double lo = psf.wave_range != NULL ? psf.wave_range[2 * f] : psf.y.wmin;
        const double hi = psf.wave_range != NULL ? psf.wave_range[2 * f + 1] : psf.y.wmax;
        for (size_t i = 0; i <= STEPS; i++) {
            const double w = lo + (hi - lo) * (double)i / STEPS;
            const double x = spx_psf_series_value(&psf.x, f, w), y = spx_psf_series_value(&psf.y, f, w);
            inside +=
                x >= (double)c->x0 && x < (double)(c->x0 + c->nx) && y >= (double)c->y0 && y < (double)(c->y0 + c->ny);
            spx_picture_add(p, "%.6g %.6g\n", x, y);
        }
        spx_picture_add(p, "\n");
        n += inside > 0;
    }
    spx_picture_add(p, "EOD\n");
    spx_psf_free(&psf);
    return n;
}

/* Pixels of the cut that have a bit in the mask, or that the extraction of a frame took for cosmic rays: $masked. Of
 * very many every kth. */
static size_t masked_block(spx_picture *p, const double *mask, size_t width, const cut *c)
{
    enum { MOST = 40000 };
    size_t n = 0, npixel = 0, two = 2;
    spx_input *in = spx_picture_find(p, "/frame/cosmic_pixels");
    const double *hit = in != NULL ? spx_picture_read2(p, in, "/frame/cosmic_pixels", &npixel, &two) : NULL;
    for (size_t y = c->y0; y < c->y0 + c->ny; y++)
        for (size_t x = c->x0; mask != NULL && x < c->x0 + c->nx; x++)
            n += mask[y * width + x] != 0;
    const size_t k = n / MOST + 1;
    size_t seen = 0;
    spx_picture_add(p, "$masked << EOD\n");
    for (size_t y = c->y0; y < c->y0 + c->ny; y++)
        for (size_t x = c->x0; mask != NULL && x < c->x0 + c->nx; x++)
            if (mask[y * width + x] != 0 && seen++ % k == 0)
                spx_picture_add(p, "%zu %zu\n", x, y);
    for (size_t i = 0; hit != NULL && i < npixel; i++)
        if (hit[2 * i] >= (double)c->y0 && hit[2 * i] < (double)(c->y0 + c->ny) && hit[2 * i + 1] >= (double)c->x0 &&
            hit[2 * i + 1] < (double)(c->x0 + c->nx)) {
            spx_picture_add(p, "%.0f %.0f\n", hit[2 * i + 1], hit[2 * i]);
            n++;
        }
    spx_picture_add(p, "EOD\n");
    return n;
}

void spx_picture_image(spx_picture *p)
{
    size_t nx = 0, ny = 0;
    spx_input *in = spx_picture_need(p, "/image/data", "fits2h5 reads images");
    spx_input *fitted = spx_picture_find(p, "/frame/model");
    double *data = in != NULL ? spx_picture_read2(p, in, "/image/data", &ny, &nx) : NULL, lo, hi, soft, unused;
    const double *ivar = in != NULL ? spx_picture_read2(p, in, "/image/ivar", &ny, &nx) : NULL;
    const double *mask =
        in != NULL && spx_h5_exists(in->file, "/image/mask") ? spx_picture_read2(p, in, "/image/mask", &ny, &nx) : NULL;
    const double *model = fitted != NULL ? spx_picture_read2(p, fitted, "/frame/model", &ny, &nx) : NULL;
    if (p->st != SPX_OK)
        return;
    const double *r = p->args->region;
    cut c = {.nx = nx, .ny = ny};
    if (r[1] > r[0]) {
        c.x0 = (size_t)fmax(r[0], 0);
        c.y0 = (size_t)fmax(r[2], 0);
        const double x1 = fmin(r[1], (double)nx), y1 = fmin(r[3], (double)ny);
        if (!(x1 > (double)c.x0) || !(y1 > (double)c.y0)) {
            spx_picture_fail(p, SPX_EUSAGE, "--region: the image has the columns 0 to %zu and the rows 0 to %zu",
                             nx - 1, ny - 1);
            return;
        }
        c.nx = (size_t)x1 - c.x0;
        c.ny = (size_t)y1 - c.y0;
    }
    const double right = p->width - BAR, half = model != NULL ? 0.5 * (right - LEFT - BAR - 40) : right - LEFT;
    /* cells of at least two thirds of a pixel of the picture */
    c.kx = (size_t)fmax(1, ceil((double)c.nx / (1.5 * half)));
    c.ky = (size_t)fmax(1, ceil((double)c.ny / (1.5 * (p->height - TOP - BOTTOM))));
    for (size_t i = 0; i < nx * ny; i++)
        if (!isfinite(data[i]))
            data[i] = NAN;
    const double *shown = cut_out(p, data, nx, &c);
    if (shown == NULL)
        return;
    (void)spx_picture_quantiles(shown, c.nx * c.ny, 0.02, 0.997, &lo, &hi);
    (void)spx_picture_quantiles(shown, c.nx * c.ny, 0.16, 0.5, &soft, &unused);
    soft = fmax(fabs(unused - soft), (hi - lo) / 1000);
    const char *slash = strrchr(in->name, '/');
    spx_picture_add(p, "set multiplot\n");
    ccd_panel(p, "data", shown, &c, LEFT, LEFT + half);
    spx_picture_asinh(p, soft > 0 ? soft : 1, lo, hi);
    spx_picture_add(p, "set palette defined (0 '#ffffff', 1 '#000000')\nunset key\n");
    spx_picture_label(p, "y", "row (pixel)", "");
    spx_picture_label(p, "cb", "electrons", "");
    const size_t ntrace = trace_block(p, &c), nmasked = masked_block(p, mask, nx, &c);
    const char *name = slash != NULL ? slash + 1 : in->name;
    /* beside residuals there is no room for more */
    if (model == NULL)
        spx_picture_title(p, LEFT, "%s%s%s", name, ntrace > 0 ? "; traces in blue" : "",
                          nmasked > 0 ? "; masked in orange" : "");
    else
        spx_picture_title(p, LEFT, "%s", name);
    spx_picture_add(p, "plot $data matrix using (x($1)):(y($2)):(f(v($3))) with image notitle");
    if (nmasked > 0)
        spx_picture_add(p, ", \\\n     $masked using 1:2 with points pt 5 ps %.3g lc rgb '" SPX_ORANGE "' notitle",
                        fmax(0.12, 0.16 * half / (double)c.nx));
    if (ntrace > 0)
        spx_picture_add(p, ", \\\n     $traces using 1:2 with lines lw 0.8 lc rgb '#1E9BE0' notitle");
    spx_picture_add(p, "\nunset colorbox\nunset label 3\n");
    spx_picture_untitled(p);
    if (model != NULL) {
        double *pull = spx_picture_alloc(p, c.nx * c.ny);
        for (size_t y = 0; y < c.ny && pull != NULL; y++)
            for (size_t x = 0; x < c.nx; x++) {
                const size_t i = (c.y0 + y) * nx + c.x0 + x;
                pull[y * c.nx + x] =
                    ivar[i] > 0 && (mask == NULL || mask[i] == 0) ? (data[i] - model[i]) * sqrt(ivar[i]) : NAN;
            }
        ccd_panel(p, "pull", pull, &c, right - half, right);
        if (c.kx * c.ky > 1)
            spx_picture_title(p, right - half, "(image − model) / σ, means of %zu × %zu pixels", c.kx, c.ky);
        else
            spx_picture_title(p, right - half, "(image − model) / σ");
        /* means of n pixels scatter by 1/sqrt(n) */
        const double most = fmax(4 / sqrt((double)(c.kx * c.ky)), 0.5);
        spx_picture_range(p, "cb", -most, most);
        spx_picture_add(
            p, "set palette defined " SPX_DIVERGING "\nset cbtics auto\nunset label 2\nset format y ''\nunset cblabel\n"
               "set object 1 rectangle from graph 0,0 to graph 1,1 behind fc rgb '#d8d8d8' fs solid noborder\n"
               "plot $pull matrix using (x($1)):(y($2)):(v($3)) with image notitle\n");
    }
    spx_picture_add(p, "unset multiplot\n");
}
