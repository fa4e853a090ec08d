/* Reads spots of PFS's NevenPsf (convert/psf_kinds.h): objects of an archive, along the traces of a detectorMap. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "convert/archive.h"
#include "convert/blocks_parts.h"
#include "convert/psf_kinds.h"
#include "fits/values.h"

static const char class_name[] = "NevenPsf", map_name[] = "SplinedDetectorMap", images_name[] = "NevenPsfImages";

/* Over-sampled spot of a fibre and a wavelength: row of the table of images. */
typedef struct {
    double fibre, wavelength; /* Angstrom */
    size_t row;
} one_spot;

typedef struct {
    const spx_fits *f;
    spx_archived images;
    size_t n, npos, *first; /* spots; fibres; first[npos + 1] spot of each */
    one_spot *spot;         /* by fibre, and by wavelength within each */
    int oversample;
    double size[2]; /* targetSize, pixels, x and y; 0: none */
} all_spots;

int spx_fits_neven(const spx_fits *f)
{
    spx_archive a;
    spx_archived psf;
    spx_err e = {0};
    double id = 0;
    int found = 0;
    if (spx_fits_find_table(f, "ARCHIVE_INDEX") < 0)
        return 0;
    if (spx_archive_open(f, &a, &e) == SPX_OK && (id = spx_archive_find(&a, class_name)) > 0) {
        found = -1;
        if (spx_archive_object(f, &a, id, class_name, &psf, &e) == SPX_OK &&
            spx_archive_number(f, &psf, "detectorMap", &id, &e) == SPX_OK && spx_archive_class(&a, id) != NULL &&
            strcmp(spx_archive_class(&a, id), map_name) == 0)
            found = 1;
    }
    spx_archive_free(&a);
    return found;
}

static int by_place(const void *x, const void *y)
{
    const one_spot *a = x, *b = y;
    const double d = a->fibre != b->fibre ? a->fibre - b->fibre : a->wavelength - b->wavelength;
    return (d > 0) - (d < 0);
}

/* Fibres and wavelengths of the spots. */
static spx_status read_places(const spx_fits *f, const spx_archived *psf, all_spots *s, spx_err *e)
{
    double *v[2] = {NULL, NULL};
    size_t n[2] = {0, 0};
    static const char *const name[] = {"fiberId", "wavelength"};
    spx_status st = SPX_OK;
    for (int k = 0; k < 2 && st == SPX_OK; k++)
        st = spx_fits_cell_f64(f, (size_t)psf->hdu, name[k], psf->row, &n[k], &v[k], e);
    if (st == SPX_OK && (n[0] != n[1] || n[0] != s->images.nrow))
        st = spx_fail_at(e, SPX_EINPUT, f->name, class_name, NULL, "%zu fibres, %zu wavelengths, %zu images", n[0],
                         n[1], s->images.nrow);
    s->n = s->images.nrow;
    if (st == SPX_OK && ((s->spot = spx_alloc(s->n, sizeof *s->spot, e)) == NULL ||
                         (s->first = spx_alloc(s->n + 1, sizeof *s->first, e)) == NULL))
        st = SPX_EIO;
    for (size_t i = 0; i < s->n && st == SPX_OK; i++) {
        s->spot[i] = (one_spot){v[0][i], 10 * v[1][i], i};
        if (!isfinite(v[0][i]) || !(v[1][i] > 0) || !isfinite(v[1][i]))
            st = spx_fail_at(e, SPX_EINPUT, f->name, class_name, NULL, "spot %zu is of fibre %g and %g nm", i, v[0][i],
                             v[1][i]);
    }
    spx_free(v[0]);
    spx_free(v[1]);
    if (st != SPX_OK)
        return st;
    qsort(s->spot, s->n, sizeof *s->spot, by_place);
    for (size_t i = 0; i < s->n; i++) {
        if (i == 0 || s->spot[i].fibre > s->spot[i - 1].fibre)
            s->first[s->npos++] = i;
        else if (!(s->spot[i].wavelength > s->spot[i - 1].wavelength))
            return spx_fail_at(e, SPX_EINPUT, f->name, class_name, NULL, "two spots of fibre %g are of %g nm",
                               s->spot[i].fibre, 0.1 * s->spot[i].wavelength);
    }
    s->first[s->npos] = s->n;
    return SPX_OK;
}

static int by_number(const void *x, const void *y)
{
    const double d = *(const double *)x - *(const double *)y;
    return (d > 0) - (d < 0);
}

/* Wavelengths of all fibres' spots, and the ends of the traces, beyond which spots stay as they are. */
static spx_status find_waves(const all_spots *s, double wmin, double wmax, spx_psf_grid *g, spx_err *e)
{
    if ((g->wave = spx_alloc(s->n + 2, sizeof *g->wave, e)) == NULL)
        return SPX_EIO;
    for (size_t i = 0; i < s->n; i++)
        g->wave[i] = s->spot[i].wavelength;
    g->wave[s->n] = wmin;
    g->wave[s->n + 1] = wmax;
    qsort(g->wave, s->n + 2, sizeof *g->wave, by_number);
    for (size_t i = 0; i < s->n + 2; i++)
        if (i == 0 || g->wave[i] > g->wave[g->nwave - 1])
            g->wave[g->nwave++] = g->wave[i];
    return SPX_OK;
}

/* Image of a spot: `width` rows of `height`, as its writer names them. */
static spx_status read_image(const all_spots *s, const one_spot *one, spx_psf_grid *g, double **image, spx_err *e)
{
    spx_archived at = s->images;
    double size[2] = {0, 0};
    size_t n = 0;
    at.row += one->row;
    spx_free(*image);
    *image = NULL;
    spx_status st = spx_archive_number(s->f, &at, "width", &size[0], e);
    if (st == SPX_OK)
        st = spx_archive_number(s->f, &at, "height", &size[1], e);
    if (st == SPX_OK)
        st = spx_fits_cell_f64(s->f, (size_t)at.hdu, "images", at.row, &n, image, e);
    if (st != SPX_OK)
        return st;
    if (!(size[0] >= 1 && size[1] >= 1 && size[0] * size[1] == (double)n))
        return spx_fail_at(e, SPX_EINPUT, s->f->name, images_name, NULL, "image %zu has %zu values: should be %g x %g",
                           one->row, n, size[0], size[1]);
    if (g->my == 0) {
        g->my = (size_t)size[0];
        g->mx = (size_t)size[1];
    }
    if ((double)g->my != size[0] || (double)g->mx != size[1])
        return spx_fail_at(e, SPX_EINPUT, s->f->name, images_name, NULL,
                           "image %zu has %g x %g values, others %zu x %zu", one->row, size[0], size[1], g->my, g->mx);
    return SPX_OK;
}

/* Spots of fibre k at all wavelengths: as they are at its own, in proportion in between. */
static spx_status fill_fibre(const all_spots *s, size_t k, spx_psf_grid *g, spx_err *e)
{
    double *image[2] = {NULL, NULL};
    size_t here = s->first[k];
    const size_t last = s->first[k + 1] - 1, n = g->my * g->mx;
    spx_status st = read_image(s, &s->spot[here], g, &image[0], e);
    if (st == SPX_OK)
        st = read_image(s, &s->spot[here < last ? here + 1 : here], g, &image[1], e);
    for (size_t w = 0; w < g->nwave && st == SPX_OK; w++) {
        while (here + 1 < last && g->wave[w] >= s->spot[here + 1].wavelength && st == SPX_OK) {
            double *swap = image[0];
            image[0] = image[1];
            image[1] = swap;
            here++;
            st = read_image(s, &s->spot[here + 1], g, &image[1], e);
        }
        if (st != SPX_OK)
            break;
        const double from = s->spot[here].wavelength, to = s->spot[here < last ? here + 1 : here].wavelength;
        const double part = to > from ? fmin(fmax((g->wave[w] - from) / (to - from), 0), 1) : 0;
        float *spot = g->spot + (k * g->nwave + w) * n;
        for (size_t i = 0; i < n; i++)
            spot[i] = (float)((1 - part) * image[0][i] + part * image[1][i]);
    }
    spx_free(image[0]);
    spx_free(image[1]);
    return st;
}

static spx_status fill_grid(const all_spots *s, spx_psf *psf, spx_note_list *notes, spx_err *e)
{
    spx_psf_grid *g = &psf->grid;
    double *image = NULL;
    size_t n = 0, none = 0;
    spx_status st = find_waves(s, psf->x.wmin, psf->x.wmax, g, e);
    if (st == SPX_OK)
        st = read_image(s, &s->spot[0], g, &image, e); /* their size */
    spx_free(image);
    g->npos = s->npos;
    g->oversample = s->oversample;
    if (st == SPX_OK)
        st = spx_mul(g->my, g->mx, &n, e);
    if (st == SPX_OK)
        st = spx_mul(n, g->nwave, &n, e);
    if (st == SPX_OK && ((g->spot = spx_alloc2(g->npos, n, sizeof *g->spot, e)) == NULL ||
                         (g->pos = spx_alloc(g->npos, sizeof *g->pos, e)) == NULL ||
                         (g->fibre_pos = spx_alloc(psf->nspec, sizeof *g->fibre_pos, e)) == NULL))
        st = SPX_EIO;
    for (size_t k = 0; k < g->npos && st == SPX_OK; k++) {
        g->pos[k] = s->spot[s->first[k]].fibre;
        st = fill_fibre(s, k, g, e);
    }
    for (size_t i = 0; i < psf->nspec && st == SPX_OK; i++) {
        const double id = psf->fibre[i];
        g->fibre_pos[i] = fmin(fmax(id, g->pos[0]), g->pos[g->npos - 1]);
        none += bsearch(&id, g->pos, g->npos, sizeof *g->pos, by_number) == NULL;
    }
    if (st == SPX_OK && none == psf->nspec)
        st = spx_fail_at(e, SPX_EINPUT, s->f->name, class_name, NULL,
                         "its %zu fibres, %g to %g, are none of the detectorMap's", g->npos, g->pos[0],
                         g->pos[g->npos - 1]);
    if (st == SPX_OK && none > 0)
        st = spx_note_list_add(notes, e,
                               "%s: %zu of %zu fibres have no spots of their own: they get what lies between those of "
                               "the fibres beside them",
                               s->f->name, none, psf->nspec);
    return st;
}

static spx_status read_spots(spx_fits *f, const spx_archive *a, const spx_archived *psf, all_spots *s, spx_err *e)
{
    static const char *const name[] = {"targetSize_x", "targetSize_y"};
    double id = 0, over = 0;
    spx_status st = spx_archive_number(f, psf, "images", &id, e);
    if (st == SPX_OK)
        st = spx_archive_object(f, a, id, images_name, &s->images, e);
    if (st == SPX_OK)
        st = spx_archive_number(f, psf, "oversampleFactor", &over, e);
    for (int k = 0; k < 2 && st == SPX_OK; k++)
        st = spx_archive_number(f, psf, name[k], &s->size[k], e);
    if (st == SPX_OK && !(over >= 1 && over <= 1000))
        st = spx_fail_at(e, SPX_EINPUT, f->name, class_name, NULL, "oversampleFactor %g: should be 1 to 1000", over);
    s->oversample = st == SPX_OK ? (int)over : 0;
    return st == SPX_OK ? read_places(f, psf, s, e) : st;
}

/* Traces: those of the detectorMap in a file of its own, else of that in the archive. */
static spx_status read_traces(spx_fits *f, spx_fits *other, const spx_archive *a, const spx_archived *psf, spx_psf *to,
                              spx_note_list *notes, spx_err *e)
{
    double id = 0;
    spx_archived map;
    if (other != NULL)
        return spx_fits_map_traces(other, NULL, NULL, to, notes, e);
    spx_status st = spx_archive_number(f, psf, "detectorMap", &id, e);
    const char *its = st == SPX_OK ? spx_archive_class(a, id) : NULL;
    if (st == SPX_OK && its != NULL && strcmp(its, map_name) != 0)
        return spx_fail_at(e, SPX_EINPUT, f->name, class_name,
                           "give the file pfsDetectorMap, too, in the same call, or --generic to keep it as it is",
                           "its traces are a %s, which cannot be read in an archive", its);
    if (st == SPX_OK)
        st = spx_archive_object(f, a, id, map_name, &map, e);
    return st == SPX_OK ? spx_fits_map_traces(f, a, &map, to, notes, e) : st;
}

spx_status spx_fits_read_neven(spx_fits *f, spx_fits *other, spx_psf *psf, spx_note_list *notes, spx_err *e)
{
    spx_archive a;
    spx_archived own;
    all_spots s = {.f = f};
    spx_status st = spx_archive_open(f, &a, e);
    if (st == SPX_OK)
        st = spx_archive_object(f, &a, spx_archive_find(&a, class_name), class_name, &own, e);
    if (st == SPX_OK)
        st = read_spots(f, &a, &own, &s, e);
    if (st == SPX_OK)
        st = read_traces(f, other, &a, &own, psf, notes, e);
    if (st == SPX_OK)
        st = fill_grid(&s, psf, notes, e);
    if (st == SPX_OK)
        st = spx_fits_grid_ends(f, psf, e);
    if (st == SPX_OK && s.size[0] >= 1 && s.size[1] >= 1) { /* pixels beyond are cut off */
        psf->hsizex = (int)fmin(psf->hsizex, floor(0.5 * s.size[0]));
        psf->hsizey = (int)fmin(psf->hsizey, floor(0.5 * s.size[1]));
    }
    spx_archive_free(&a);
    spx_free(s.spot);
    spx_free(s.first);
    return st;
}
