/* Reads detectorMaps of PFS as PSFs (convert/psf_kinds.h). */
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "convert/archive.h"
#include "convert/blocks_parts.h"
#include "convert/psf_fits.h"
#include "convert/psf_kinds.h"
#include "convert/psf_layers.h"
#include "convert/psf_traces.h"
#include "fits/values.h"

/* Cubic splines with not-a-knot ends (de Boor, A Practical Guide to Splines, chapter IV) of all fibres: knots of fibre
 * f are first[f] ... first[f + 1] - 1. */
typedef struct {
    size_t nfibre, *first;
    double *knot, *value, *slope;
} splines;

typedef struct {
    splines column, wave;
    double *spatial, *spectral; /* [nfibre] offsets of the slit, pixels */
    int layered;
    spx_layers layers; /* over all this */
} detector_map;

static void free_splines(splines *s)
{
    spx_free(s->first);
    spx_free(s->knot);
    spx_free(s->value);
    spx_free(s->slope);
}

/* Slopes at n knots: tridiagonal equations of a continuous second derivative. work[n]. */
static void find_slopes(size_t n, const double *x, const double *y, double *slope, double *work)
{
    double *above = work, low, middle;
    for (size_t i = 0; i < n; i++) {
        const size_t k = i == 0 ? 1 : i == n - 1 ? n - 2 : i;
        const double h = x[k] - x[k - 1], next = x[k + 1] - x[k];
        const double d = (y[k] - y[k - 1]) / h, dn = (y[k + 1] - y[k]) / next;
        if (i == 0) {
            low = 0;
            middle = next;
            above[i] = h + next;
            slope[i] = ((h + 2 * (h + next)) * next * d + h * h * dn) / (h + next);
        } else if (i == n - 1) {
            low = h + next;
            middle = h;
            above[i] = 0;
            slope[i] = (next * next * d + (2 * (h + next) + next) * h * dn) / (h + next);
        } else {
            low = next;
            middle = 2 * (h + next);
            above[i] = h;
            slope[i] = 3 * (next * d + h * dn);
        }
        const double pivot = i > 0 ? middle - low * above[i - 1] : middle;
        above[i] /= pivot;
        slope[i] = (i > 0 ? slope[i] - low * slope[i - 1] : slope[i]) / pivot;
    }
    for (size_t i = n - 1; i-- > 0;)
        slope[i] -= above[i] * slope[i + 1];
}

static double spline_value(const splines *s, size_t f, double at)
{
    size_t low = s->first[f], high = s->first[f + 1] - 1;
    while (high - low > 1) {
        const size_t middle = (low + high) / 2;
        if (at < s->knot[middle])
            high = middle;
        else
            low = middle;
    }
    const double h = s->knot[high] - s->knot[low], t = (at - s->knot[low]) / h, u = 1 - t;
    return s->value[low] * u * u * (1 + 2 * t) + s->value[high] * t * t * (1 + 2 * u) +
           h * t * u * (s->slope[low] * u - s->slope[high] * t);
}

/* Slopes of splines whose knots and values have been read, after a check of both. */
static spx_status make_splines(const spx_fits *f, const char *name, splines *s, spx_err *e)
{
    const size_t nknot = s->first[s->nfibre];
    double *work = spx_alloc(nknot, sizeof *work, e);
    spx_status st = work != NULL && (s->slope = spx_alloc(nknot, sizeof *s->slope, e)) != NULL ? SPX_OK : SPX_EIO;
    for (size_t i = 0; i < s->nfibre && st == SPX_OK; i++) {
        const size_t first = s->first[i], m = s->first[i + 1] - first;
        if (m < 4)
            st = spx_fail_at(e, SPX_EINPUT, f->name, name, NULL, "fibre index %zu has %zu knots: at least 4", i, m);
        for (size_t k = first; k < first + m && st == SPX_OK; k++)
            if (!isfinite(s->knot[k]) || !isfinite(s->value[k]) || (k > first && !(s->knot[k] > s->knot[k - 1])))
                st = spx_fail_at(e, SPX_EINPUT, f->name, name, NULL,
                                 "knot %g, value %g of row %zu: knots of a fibre should increase, all be finite",
                                 s->knot[k], s->value[k], k);
        if (st == SPX_OK)
            find_slopes(m, s->knot + first, s->value + first, s->slope + first, work);
    }
    spx_free(work);
    return st;
}

static spx_status read_splines(const spx_fits *f, const char *name, size_t nfibre, splines *s, spx_err *e)
{
    const int hdu = spx_fits_find_table(f, name);
    double *index = NULL;
    size_t n[3] = {0, 0, 0}, most = 0;
    spx_status st = spx_fits_column_f64(f, (size_t)hdu, "index", &n[0], &index, e);
    if (st == SPX_OK)
        st = spx_fits_column_f64(f, (size_t)hdu, "knot", &n[1], &s->knot, e);
    if (st == SPX_OK)
        st = spx_fits_column_f64(f, (size_t)hdu, "value", &n[2], &s->value, e);
    const size_t nrow = f->hdu[hdu].nrow;
    s->nfibre = nfibre;
    if (st == SPX_OK && (n[0] != 1 || n[1] != 1 || n[2] != 1))
        st = spx_fail_at(e, SPX_EINPUT, f->name, name, NULL, "columns should hold one number a row");
    if (st == SPX_OK && (s->first = spx_alloc(nfibre + 1, sizeof *s->first, e)) == NULL)
        st = SPX_EIO;
    for (size_t i = 0, fibre = 0; i < nrow && st == SPX_OK; i++) {
        const int same = i > 0 && index[i] == index[i - 1];
        if (!same && i > 0)
            fibre++;
        if (!same && fibre < nfibre)
            s->first[fibre] = i;
        if (fibre >= nfibre || index[i] != (double)fibre)
            st = spx_fail_at(e, SPX_EINPUT, f->name, name, NULL,
                             "row %zu is of fibre index %g: should be 0 to %zu, one after another", i, index[i],
                             nfibre - 1);
        most = st == SPX_OK ? fibre + 1 : most;
    }
    if (st == SPX_OK && most != nfibre)
        st = spx_fail_at(e, SPX_EINPUT, f->name, name, NULL, "has splines of %zu of %zu fibres", most, nfibre);
    if (st == SPX_OK) {
        s->first[nfibre] = nrow;
        st = make_splines(f, name, s, e);
    }
    spx_free(index);
    return st;
}

static void at_splines(const void *of, size_t f, double row, double *wave, double *column)
{
    const detector_map *m = of;
    *wave = spline_value(&m->wave, f, row - m->spectral[f]);
    *column = spline_value(&m->column, f, row - m->spectral[f]) + m->spatial[f];
}

/* Layers move rows by little, which changes slowly: row - (what they move it by), again and again. */
static void at_map(const void *of, size_t f, double row, double v[SPX_ROW_VALUES])
{
    enum { STEPS = 40 };
    const detector_map *m = of;
    double place[2] = {0, row}, at = row;
    at_splines(m, f, row, &v[SPX_ROW_WAVELENGTH], &place[0]);
    for (int k = 0; k < STEPS && m->layered; k++) {
        spx_layers_place(&m->layers, f, at, &v[SPX_ROW_WAVELENGTH], place);
        at += row - place[1];
        if (fabs(row - place[1]) < 1e-8)
            break;
    }
    v[SPX_ROW_WAVELENGTH] *= 10; /* nm */
    v[SPX_ROW_X] = place[0];
    v[SPX_ROW_SIGMA_X] = v[SPX_ROW_SIGMA_Y] = SPX_TRACE_SIGMA;
}

int spx_fits_detector_map(const spx_fits *f)
{
    const int centre = spx_fits_find_table(f, "CENTER"), wave = spx_fits_find_table(f, "WAVELENGTH");
    if (centre < 0 || wave < 0 || spx_fits_find_image(f, "FIBERID", 1) < 0 ||
        spx_fits_find_image(f, "SLITOFF", 2) < 0 || spx_fits_find_column(&f->hdu[centre], "knot") == NULL ||
        spx_fits_find_column(&f->hdu[wave], "knot") == NULL)
        return 0;
    return spx_layers_found(f) < 0 ? -1 : 1;
}

/* First and last row of the detector that both splines of each fibre cover. */
static void find_rows(const detector_map *m, const double box[4], double *rows)
{
    for (size_t i = 0; i < m->column.nfibre; i++) {
        const splines *s[2] = {&m->column, &m->wave};
        double end[2] = {-INFINITY, INFINITY};
        for (int k = 0; k < 2; k++) {
            end[0] = fmax(end[0], s[k]->knot[s[k]->first[i]] + m->spectral[i]);
            end[1] = fmin(end[1], s[k]->knot[s[k]->first[i + 1] - 1] + m->spectral[i]);
        }
        for (int k = 0; k < 2 && m->layered; k++) {
            double wave, place[2];
            spx_layers_place(&m->layers, i, end[k], &wave, place);
            end[k] = place[1];
        }
        rows[2 * i] = fmax(box[1], end[0]);
        rows[2 * i + 1] = fmin(box[3], end[1]);
    }
}

/* First and last column, first and last row of the detector: a box that begins with 0. */
static spx_status check_box(const spx_fits *f, const double box[4], spx_psf *psf, spx_err *e)
{
    if (!(box[0] == 0 && box[1] == 0 && box[2] > 0 && box[3] > 0 && box[2] < 1e6 && box[3] < 1e6))
        return spx_fail_at(e, SPX_EINPUT, f->name, NULL, NULL, "the detector is %g:%g, %g:%g: should begin with 0, 0",
                           box[0], box[2], box[1], box[3]);
    psf->npix_x = (size_t)box[2] + 1;
    psf->npix_y = (size_t)box[3] + 1;
    return SPX_OK;
}

/* The map of the HDUs of a file of its own. */
static spx_status read_map(spx_fits *f, size_t n, const uint32_t *fibre, detector_map *m, double box[4], spx_psf *psf,
                           spx_err *e)
{
    static const char *const key[] = {"MINX", "MINY", "MAXX", "MAXY"};
    const int off = spx_fits_find_image(f, "SLITOFF", 2);
    double *all = NULL;
    spx_status st = read_splines(f, "CENTER", n, &m->column, e);
    if (st == SPX_OK)
        st = read_splines(f, "WAVELENGTH", n, &m->wave, e);
    for (int k = 0; k < 4 && st == SPX_OK; k++)
        st = spx_fits_need_key(f, 0, key[k], &box[k], e);
    if (st == SPX_OK)
        st = check_box(f, box, psf, e);
    if (st == SPX_OK && (f->hdu[off].dims[0] < 2 || f->hdu[off].dims[1] != n))
        st = spx_fail_at(e, SPX_EINPUT, f->name, "SLITOFF", NULL, "has %zu x %zu values for %zu fibres",
                         f->hdu[off].dims[0], f->hdu[off].dims[1], n);
    if (st == SPX_OK)
        st = spx_fits_f64(f, (size_t)off, &all, e);
    for (size_t i = 0; i < n && st == SPX_OK; i++) {
        m->spatial[i] = all[i];
        m->spectral[i] = all[n + i];
    }
    spx_free(all);
    m->layered = st == SPX_OK && spx_layers_found(f) > 0;
    return m->layered ? spx_layers_read(f, n, fibre, (const double[4]){box[0], box[2], box[1], box[3]}, at_splines, m,
                                        &m->layers, e)
                      : st;
}

/* Splines that are objects of an archive, by the numbers in a column of the map's row. */
static spx_status archived_splines(const spx_fits *f, const spx_archive *a, const spx_archived *map, const char *name,
                                   size_t nfibre, splines *s, spx_err *e)
{
    double *id = NULL;
    size_t n = 0, nknot = 0, room[2] = {0, 0};
    spx_status st = spx_fits_cell_f64(f, (size_t)map->hdu, name, map->row, &n, &id, e);
    if (st == SPX_OK && n != nfibre)
        st = spx_fail_at(e, SPX_EINPUT, f->name, "SplinedDetectorMap", NULL, "%s: %zu splines of %zu fibres", name, n,
                         nfibre);
    s->nfibre = nfibre;
    if (st == SPX_OK && (s->first = spx_alloc(nfibre + 1, sizeof *s->first, e)) == NULL)
        st = SPX_EIO;
    for (size_t i = 0; i < nfibre && st == SPX_OK; i++) {
        double *knot = NULL, *value = NULL;
        size_t m[2] = {0, 0};
        spx_archived one;
        st = spx_archive_object(f, a, id[i], "Spline", &one, e);
        if (st == SPX_OK)
            st = spx_fits_cell_f64(f, (size_t)one.hdu, "x", one.row, &m[0], &knot, e);
        if (st == SPX_OK)
            st = spx_fits_cell_f64(f, (size_t)one.hdu, "y", one.row, &m[1], &value, e);
        if (st == SPX_OK && m[0] != m[1])
            st = spx_fail_at(e, SPX_EINPUT, f->name, "Spline", NULL, "object %g has %zu knots and %zu values", id[i],
                             m[0], m[1]);
        double **const to[2] = {&s->knot, &s->value};
        for (int k = 0; k < 2 && st == SPX_OK; k++) {
            double *more = spx_grow(*to[k], nknot, m[0], &room[k], sizeof *more, e);
            if (more == NULL)
                st = SPX_EIO;
            else
                *to[k] = more;
        }
        if (st == SPX_OK) {
            memcpy(s->knot + nknot, knot, m[0] * sizeof *knot);
            memcpy(s->value + nknot, value, m[0] * sizeof *value);
            nknot += m[0];
            s->first[i + 1] = nknot;
        }
        spx_free(knot);
        spx_free(value);
    }
    spx_free(id);
    return st == SPX_OK ? make_splines(f, "SplinedDetectorMap", s, e) : st;
}

static spx_status archived_offsets(const spx_fits *f, const spx_archived *map, const char *name, size_t nfibre,
                                   double *to, spx_err *e)
{
    double *v = NULL;
    size_t n = 0;
    spx_status st = spx_fits_cell_f64(f, (size_t)map->hdu, name, map->row, &n, &v, e);
    for (size_t i = 0; i < nfibre && n == nfibre && st == SPX_OK; i++)
        if (!isfinite(to[i] = v[i]))
            st = spx_fail_at(e, SPX_EINPUT, f->name, "SplinedDetectorMap", NULL, "%s: a number is not finite", name);
    if (st == SPX_OK && n != nfibre)
        st = spx_fail_at(e, SPX_EINPUT, f->name, "SplinedDetectorMap", NULL, "%s: %zu of %zu fibres", name, n, nfibre);
    spx_free(v);
    return st;
}

/* The map that is an object of an archive. */
static spx_status archived_map(const spx_fits *f, const spx_archive *a, const spx_archived *map, size_t n,
                               detector_map *m, double box[4], spx_psf *psf, spx_err *e)
{
    static const char *const name[] = {"bbox_min_x", "bbox_min_y", "bbox_max_x", "bbox_max_y"};
    spx_status st = archived_splines(f, a, map, "xCenter", n, &m->column, e);
    if (st == SPX_OK)
        st = archived_splines(f, a, map, "wavelength", n, &m->wave, e);
    for (int k = 0; k < 4 && st == SPX_OK; k++)
        st = spx_archive_number(f, map, name[k], &box[k], e);
    if (st == SPX_OK)
        st = check_box(f, box, psf, e);
    if (st == SPX_OK)
        st = archived_offsets(f, map, "spatialOffset", n, m->spatial, e);
    return st == SPX_OK ? archived_offsets(f, map, "spectralOffset", n, m->spectral, e) : st;
}

/* Numbers of the fibres. */
static spx_status read_fibres(spx_fits *f, const spx_archived *map, size_t *n, uint32_t **fibre, spx_err *e)
{
    if (map == NULL) {
        const int id = spx_fits_find_image(f, "FIBERID", 1);
        *n = f->hdu[id].nelem;
        return *n > 0 ? spx_fits_u32(f, (size_t)id, fibre, e)
                      : spx_fail_at(e, SPX_EINPUT, f->name, "FIBERID", NULL, "is empty");
    }
    double *v = NULL;
    spx_status st = spx_fits_cell_f64(f, (size_t)map->hdu, "fiberId", map->row, n, &v, e);
    if (st == SPX_OK && *n == 0)
        st = spx_fail_at(e, SPX_EINPUT, f->name, "SplinedDetectorMap", NULL, "has no fibres");
    if (st == SPX_OK && (*fibre = spx_alloc(*n, sizeof **fibre, e)) == NULL)
        st = SPX_EIO;
    for (size_t i = 0; i < *n && st == SPX_OK; i++) {
        if (!(v[i] >= 0 && v[i] < 4294967296.0))
            st = spx_fail_at(e, SPX_EINPUT, f->name, "SplinedDetectorMap", NULL, "fiberId %g", v[i]);
        else
            (*fibre)[i] = (uint32_t)v[i];
    }
    spx_free(v);
    return st;
}

spx_status spx_fits_map_traces(spx_fits *f, const spx_archive *a, const spx_archived *map, spx_psf *psf,
                               spx_note_list *notes, spx_err *e)
{
    size_t n = 0;
    detector_map m = {.spatial = NULL};
    double *rows = NULL, box[4];
    uint32_t *fibre = NULL;
    spx_status st = read_fibres(f, map, &n, &fibre, e);
    if (st == SPX_OK && ((m.spatial = spx_alloc(n, sizeof *m.spatial, e)) == NULL ||
                         (m.spectral = spx_alloc(n, sizeof *m.spectral, e)) == NULL ||
                         (rows = spx_alloc2(n, 2, sizeof *rows, e)) == NULL))
        st = SPX_EIO;
    if (st == SPX_OK)
        st = map == NULL ? read_map(f, n, fibre, &m, box, psf, e) : archived_map(f, a, map, n, &m, box, psf, e);
    if (st == SPX_OK)
        find_rows(&m, box, rows);
    const spx_row_traces t = {.file = f->name, .ntrace = n, .rows = rows, .of = &m, .at = at_map};
    if (st == SPX_OK)
        st = spx_psf_of_rows(&t, psf, notes, e);
    if (st == SPX_OK) {
        psf->fibre = fibre;
        fibre = NULL;
    }
    spx_layers_free(&m.layers);
    free_splines(&m.column);
    free_splines(&m.wave);
    spx_free(m.spatial);
    spx_free(m.spectral);
    spx_free(rows);
    spx_free(fibre);
    return st == SPX_OK ? spx_cards_copy(&psf->header, &f->hdu[0].header, e) : st;
}

spx_status spx_fits_read_detector_map(spx_fits *f, spx_psf *psf, spx_note_list *notes, spx_err *e)
{
    const spx_status st = spx_fits_map_traces(f, NULL, NULL, psf, notes, e);
    return st != SPX_OK ? st
                        : spx_note_list_add(notes, e,
                                            "%s: a detectorMap has no widths of spots: Gaussians of %g pixel, for "
                                            "specx-psf --start",
                                            f->name, SPX_TRACE_SIGMA);
}
