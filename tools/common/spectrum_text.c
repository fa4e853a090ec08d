/* Prints one spectrum of a product as text (common/spectrum_text.h). */
#include "common/spectrum_text.h"

#include <math.h>
#include <string.h>

#include "app/dataset.h"
#include "base/mem.h"
#include "base/parse.h"
#include "h5/object.h"
#include "h5/table.h"

enum { MAX_GROUP = 64 };

/* Path of a dataset in a group: the precision says to the compiler how long the group's path is at most. */
static void path_in(const char *group, const char *name, char path[2 * SPX_TEXTCOLUMN_WIDTH])
{
    (void)snprintf(path, 2 * SPX_TEXTCOLUMN_WIDTH, "%.*s/%s", SPX_TEXTCOLUMN_WIDTH - 1, group, name);
}

/* Groups that hold spectra: arms of /spectra, else /frame, else the models of the arms of /rvfit. */
static spx_status find_groups(const spx_input *in, char (*group)[SPX_TEXTCOLUMN_WIDTH], size_t *n, spx_err *e)
{
    static const char *const roots[] = {"/spectra", "/frame", "/rvfit"};
    spx_status st = SPX_OK;
    for (size_t i = 0; i < sizeof roots / sizeof *roots && *n == 0 && st == SPX_OK; i++) {
        char path[2 * SPX_TEXTCOLUMN_WIDTH], **name = NULL;
        size_t nname = 0;
        if (!spx_h5_exists(in->file, roots[i]))
            continue;
        path_in(roots[i], "wavelength", path);
        if (spx_h5_exists(in->file, path))
            (void)snprintf(group[(*n)++], SPX_TEXTCOLUMN_WIDTH, "%s", roots[i]);
        st = spx_h5_list(in->file, roots[i], &nname, &name, e);
        for (size_t k = 0; k < nname && *n < MAX_GROUP && strlen(name[k]) < SPX_TEXTCOLUMN_WIDTH / 2; k++) {
            (void)snprintf(path, sizeof path, "%s/%s/wavelength", roots[i], name[k]);
            if (spx_h5_exists(in->file, path))
                (void)snprintf(group[(*n)++], SPX_TEXTCOLUMN_WIDTH, "%s/%s", roots[i], name[k]);
        }
        spx_h5_names_free(nname, name);
    }
    if (st == SPX_OK && *n == 0)
        st = spx_fail(e, SPX_EINPUT, "%s: holds no spectra (/spectra, /frame or /rvfit)", in->name);
    return st;
}

spx_status spx_spectrum_of_target(const spx_input *in, const char *targetid, long *row, spx_err *e)
{
    spx_table *t = NULL;
    int64_t *id = NULL;
    long wanted = 0;
    size_t found = 0;
    spx_status st = spx_parse_long(targetid, "--targetid", &wanted, e);
    if (st == SPX_OK)
        st = spx_table_read(in->file, "/fibermap", &t, e);
    if (st == SPX_OK && t != NULL)
        st = spx_table_find_i64(t, "TARGETID", &id, e);
    for (size_t r = 0; st == SPX_OK && id != NULL && r < t->nrow; r++)
        if (id[r] == wanted && found++ == 0)
            *row = (long)r;
    if (st == SPX_OK && found == 0)
        st = spx_fail(e, SPX_EINPUT, "%s:/fibermap: no spectrum has TARGETID %ld", in->name, wanted);
    if (st == SPX_OK && found > 1)
        st = spx_fail(e, SPX_EINPUT, "%s:/fibermap: %zu spectra have TARGETID %ld: choose one with --spectrum",
                      in->name, found, wanted);
    spx_free(id);
    spx_table_free(t);
    return st;
}

/* Values of row `row` of a dataset of spectra, or of the wavelengths, into column c from `first` on. */
static spx_status add_values(spx_input *in, const char *path, long row, size_t nwave, const spx_textformat *format,
                             spx_textcolumn *c, size_t first, spx_err *e)
{
    spx_dataset d;
    spx_status st = spx_dataset_open(in, path, &d, e);
    if (st != SPX_OK)
        return st;
    const int flat = d.ndim == 1;
    const size_t start[2] = {flat ? 0 : (size_t)row, 0}, count[2] = {flat ? nwave : 1, nwave};
    if (d.ndim > 2 || d.dims[d.ndim - 1] != nwave)
        return spx_fail(e, SPX_EINPUT, "%s: has not a value a wavelength", d.name);
    if (!flat && (size_t)row >= d.dims[0])
        return spx_fail(e, SPX_EUSAGE, "--spectrum: %s has the spectra 0 to %zu, not %ld", in->name, d.dims[0] - 1,
                        row);
    c->kind = d.is_float ? H5T_FLOAT : H5T_INTEGER;
    c->digits = format->csv || format->json ? spx_textcolumn_digits((size_t)d.bytes, format) : 6;
    c->decimals = -1;
    spx_free(c->unit);
    if ((c->unit = spx_strdup(d.units, e)) == NULL)
        return SPX_EIO;
    st = spx_dataset_read(&d, start, count, c->f + first, e);
    for (size_t k = 0; k < nwave && st == SPX_OK; k++)
        c->i[first + k] = d.is_float ? 0 : (int64_t)c->f[first + k];
    return st;
}

spx_status spx_spectrum_print(spx_input *in, long row, const spx_textformat *format, FILE *out, spx_err *e)
{
    static const char *const quantity[] = {"arm", "wavelength", "flux", "ivar", "mask", "model"};
    enum { ARM, WAVELENGTH, N = sizeof quantity / sizeof *quantity };
    char group[MAX_GROUP][SPX_TEXTCOLUMN_WIDTH], path[2 * SPX_TEXTCOLUMN_WIDTH];
    char number[24];
    size_t ngroup = 0, nwave[MAX_GROUP], nrow = 0, n = 0;
    spx_textcolumn c[N] = {{0}};
    (void)snprintf(number, sizeof number, "%ld", row);
    spx_status st = find_groups(in, group, &ngroup, e);
    for (size_t g = 0; g < ngroup && st == SPX_OK; g++) {
        int ndim;
        size_t dims[SPX_H5_MAXDIM];
        path_in(group[g], "wavelength", path);
        st = spx_h5_shape(in->file, path, &ndim, dims, e);
        nwave[g] = st == SPX_OK ? dims[0] : 0;
        nrow += nwave[g];
    }
    for (size_t q = 0; q < N && st == SPX_OK; q++) {
        int there = q == ARM && ngroup > 1;
        size_t first = 0;
        if ((c[n].name = spx_strdup(quantity[q], e)) == NULL || (c[n].unit = spx_strdup("", e)) == NULL ||
            (c[n].s = spx_alloc2(q == ARM ? nrow : 1, SPX_TEXTCOLUMN_WIDTH, 1, e)) == NULL ||
            (c[n].i = spx_alloc(nrow, sizeof *c[n].i, e)) == NULL ||
            (c[n].f = spx_alloc(nrow, sizeof *c[n].f, e)) == NULL)
            st = SPX_EIO;
        c[n].kind = H5T_STRING;
        for (size_t g = 0; g < ngroup && st == SPX_OK; first += nwave[g++]) {
            for (size_t k = first; k < first + nwave[g]; k++) {
                c[n].f[k] = NAN;
                if (q == ARM)
                    (void)snprintf(c[n].s + k * SPX_TEXTCOLUMN_WIDTH, SPX_TEXTCOLUMN_WIDTH, "%s",
                                   strrchr(group[g], '/') + 1);
            }
            path_in(group[g], quantity[q], path);
            /* the model of a frame is an image */
            if (q == ARM || !spx_h5_exists(in->file, path) || strcmp(path, "/frame/model") == 0)
                continue;
            st = add_values(in, path, row, nwave[g], format, &c[n], first, e);
            there = 1;
        }
        if (!there) {
            spx_textcolumns_empty(&c[n], 1);
            continue;
        }
        if (strcmp(c[n].name, "wavelength") == 0)
            spx_textcolumn_round(&c[n], nrow, format);
        spx_textcolumn_measure(&c[n++], nrow, format);
    }
    if (st == SPX_OK)
        spx_textcolumns_print(out, "spectrum", number, c, n, 0, nrow, format);
    spx_textcolumns_empty(c, N);
    return st;
}
